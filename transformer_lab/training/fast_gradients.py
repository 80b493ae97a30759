"""Compute the same gradients in less time, with a copy of the model. The model itself is left unchanged.

On a CPU, matrix products take only about half the time of a plain training step. The rest is spent on random numbers
for dropout, on the softmax over the vocabulary, and on moving float32 numbers through memory. The copy computes in
bfloat16, uses one random byte per number, normalizes with torch's kernel, and never holds the logits of a whole batch.
Sums over the tokens of a batch are computed in float32, because bfloat16 is too coarse for them.

On a GPU, each operation on a small model finishes before the next one is launched, so the number of launches determines
the speed. The copy needs only slightly more than half as many launches (`benchmarks/launches.py`), because each norm is
a single kernel and the bfloat16 weights are not converted in each step.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from transformer_lab.data.batches import Batch, copy_to
from transformer_lab.model import LayerNorm, fused_attention
from transformer_lab.reimplementations import reimplements
from transformer_lab.training.loss import shift_target


class ByteDropout(nn.Dropout):
    """Dropout that uses one random byte per number, so `p` is rounded to a multiple of 1/256 below 1."""

    def forward(self, x: Tensor) -> Tensor:
        dropped_of_256 = min(255, round(self.p * 256))
        if not self.training or dropped_of_256 == 0:
            return x
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64, device=x.device).random_(-(2**63), None)
        random_bytes = words.view(torch.uint8)[: x.numel()].view(x.shape)
        keep_mask = random_bytes.ge_(dropped_of_256)  # 0 or 1; in place, which is faster than a mask of booleans
        return x * keep_mask.to(x.dtype).mul_(256 / (256 - dropped_of_256))


class SummingEmbedding(nn.Embedding):
    """An embedding that sums its gradient in float32.

    In bfloat16, the sum for a frequent token would stop growing at 256 times a single term.
    """

    def forward(self, tokens: Tensor) -> Tensor:
        options = self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        return F.embedding(tokens, self.weight.float(), *options).to(self.weight.dtype)


class FusedLayerNorm(nn.Module):
    """torch's layer-norm kernel with the parameters of a `LayerNorm` in the model."""

    def __init__(self, norm: LayerNorm) -> None:
        super().__init__()
        self.gain, self.bias, self.eps = norm.gain, norm.bias, norm.eps

    @reimplements("LayerNorm")
    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.gain, self.bias, self.eps)


@reimplements("scaled_dot_product_attention")
def unfused_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: nn.Dropout | None
) -> tuple[Tensor, None]:
    """Compute attention with few intermediate tensors.

    For sentences of a few dozen tokens, this is faster than flash attention.

    The arguments and the result are the same as in `fused_attention`, but every query needs at least one visible key.
    In training, every query has a visible key because each sentence ends with eos.
    """
    scores = (query * query.size(-1) ** -0.5) @ key.transpose(-2, -1)  # (batch, heads, query, key)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)
    return (weights if dropout is None else dropout(weights)) @ value, None


class OutputLayerLoss(torch.autograd.Function):
    """The output layer and `label_smoothing_loss` in one pass, a few hundred tokens at a time.

    For a token with logits z and label y, smoothing e, and V words, the gradient of the loss with respect to z is
    softmax(z) - e / V - (1 - e) [y], where [y] is the one-hot vector for y. The gradient is available as soon as the
    softmax is, so the logits do not have to be kept.

    With `consistency`, `hidden` and `labels` contain every token twice, once per pass, as in `consistency_loss`.
    """

    tokens_at_a_time = 512  # their logits fit into a CPU's cache; an even number keeps a token's two passes together
    tokens_at_a_time_on_gpu = 8192  # usually the whole batch, so that each operation is launched only once

    @staticmethod
    @reimplements("label_smoothing_loss")
    def forward(
        ctx: FunctionCtx,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        labels: Tensor,
        real: Tensor,
        smoothing: float,
        consistency: float = 0.0,
    ) -> Tensor:
        """Return the mean loss over the real tokens, in nats per token.

        `hidden` is `(tokens, d_model)`, `weight` is `(vocab, d_model)`, `labels` is `(tokens)`, and `real` holds the
        positions of the real tokens in `labels`.
        """
        if consistency:  # put the two passes of a token next to each other, so that they are never split up
            real = real.view(2, -1).t().flatten()
        hidden_real, labels_real = hidden[real], labels[real].unsqueeze(1)
        share = smoothing / weight.size(0)
        hidden_gradient = torch.empty_like(hidden_real)
        weight_gradient = torch.zeros_like(weight, dtype=torch.float32)
        bias_gradient = torch.zeros_like(bias, dtype=torch.float32)
        loss = torch.zeros((), device=hidden.device)
        on_cpu = hidden.device.type == "cpu"
        size = OutputLayerLoss.tokens_at_a_time if on_cpu else OutputLayerLoss.tokens_at_a_time_on_gpu
        for start in range(0, len(real), size):
            some = slice(start, start + size)
            h, y = hidden_real[some], labels_real[some]
            log_probabilities = torch.addmm(bias, h, weight.t()).log_softmax(dim=-1, dtype=torch.float32)
            of_right_token = log_probabilities.gather(1, y)
            loss -= (1 - smoothing) * of_right_token.sum() + share * log_probabilities.sum()
            if consistency:
                divergence, kl_gradient = symmetric_kl(log_probabilities)
                loss += consistency / 2 * divergence
            gradient = log_probabilities.exp_().sub_(share)  # (some, vocab)
            gradient.scatter_add_(1, y, torch.full_like(of_right_token, smoothing - 1))
            if consistency:
                gradient += consistency / 2 * kl_gradient
            bias_gradient += gradient.sum(dim=0)
            gradient = gradient.to(weight.dtype)
            hidden_gradient[some] = gradient @ weight
            weight_gradient += gradient.t() @ h
        spread = torch.zeros_like(hidden)
        spread[real] = hidden_gradient / len(real)
        gradients = (spread, (weight_gradient / len(real)).to(weight.dtype), (bias_gradient / len(real)).to(bias.dtype))
        ctx.save_for_backward(*gradients)
        return loss / len(real)

    @staticmethod
    def backward(ctx: FunctionCtx, loss_gradient: Tensor) -> tuple[Tensor | None, ...]:
        return *(gradient * loss_gradient for gradient in ctx.saved_tensors), None, None, None, None


def symmetric_kl(log_probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Return KL(P ‖ Q) + KL(Q ‖ P), summed over tokens, and its gradient with respect to the logits of both passes.

    With d = log P - log Q, KL(P ‖ Q) + KL(Q ‖ P) is the sum of (P - Q) d over all words. Its gradient with respect to
    the logits of P is P (d - KL(P ‖ Q)) + P - Q; for the logits of Q, swap P and Q.

    Args:
        log_probabilities: `(tokens * 2, vocab)`. Each token has two rows, first P and then Q.

    Returns:
        `(disagreement, gradient)`: a scalar, and a tensor of the same shape as `log_probabilities`.
    """
    log_p = log_probabilities.view(-1, 2, log_probabilities.size(-1))  # (tokens, 2, vocab)
    log_q = log_p.flip(1)  # for each pass, the other pass
    p, difference = log_p.exp(), log_p - log_q
    divergence = (p * difference).sum(dim=-1, keepdim=True)  # (tokens, 2, 1): KL(P ‖ Q) and KL(Q ‖ P)
    gradient = p * (difference - divergence) + p - log_q.exp()
    return divergence.sum(), gradient.flatten(0, 1)


class FastGradients:
    """A copy of `model` that computes gradients in `precision` and adds them to the float32 gradients of the model.

    Parts from outside the package, such as your own, are copied unchanged and run under autocast. On a CPU, torch's
    dropout is replaced even in these parts, and so is `attend` if it is `fused_attention`. Any other attention function
    is called unchanged.

    Args:
        model: The model. Only the gradients of its parameters are changed.
        precision: The dtype of the copy.
        compiled: Whether to compile the copy with `torch.compile`.
        device_type: The kind of device that the copy is made for: `"cpu"`, or anything else for a GPU. The default is
            the model's device.

    Raises:
        ValueError: The model's `output` is not an `nn.Linear` with a bias. The loss computes this layer itself.
    """

    def __init__(
        self, model: nn.Module, precision: torch.dtype, compiled: bool = False, device_type: str | None = None
    ) -> None:
        output = getattr(model, "output", None)
        if not isinstance(output, nn.Linear) or output.bias is None:
            raise ValueError(
                f"the output of this {type(model).__name__} is not an nn.Linear with a bias: train with fast=False"
            )
        on_cpu = (device_type or next(model.parameters()).device.type) == "cpu"
        self.precision = precision
        self.copy = copy.deepcopy(model).to(precision)
        self.output = self.copy.output
        self.parameters = list(model.parameters())
        self.copied_parameters = list(self.copy.parameters())
        self.copy.output = nn.Identity()  # the loss applies the output layer itself
        modules_at_home = {type(module).__module__.rpartition(".")[0] for module in model.modules()}
        self.has_foreign_parts = not modules_at_home <= {"torch.nn.modules", "transformer_lab.model"}
        replace_modules(self.copy, LayerNorm, FusedLayerNorm)
        if on_cpu:  # a GPU generates dropout's random numbers in the kernel that uses them
            replace_modules(self.copy, nn.Dropout, lambda dropout: ByteDropout(dropout.p))
            for module in self.copy.modules():
                if getattr(module, "attend", None) is fused_attention:
                    module.attend = unfused_attention
                if type(module) is nn.Embedding:  # keep the weight, which may be tied
                    module.__class__ = SummingEmbedding
        self.copy.train()
        if compiled:
            self.copy.compile(dynamic=True)  # one program for batches of every shape

    @reimplements("train_step")
    def backward(self, batch: Batch, smoothing: float, part: float, consistency: float = 0.0) -> Tensor:
        """Multiply the loss on `batch` by `part`, add its gradients to those of the parameters, and return the product.

        The real tokens are found on the CPU, before the batch is copied to the model's device. Their number determines
        later shapes, and reading this number from a GPU would mean waiting.
        """
        batch = batch.repeated(2) if consistency else batch
        _, labels = shift_target(batch.target)
        real = (labels != self.copy.config.pad_id).flatten().nonzero().squeeze(1)  # (real tokens)
        device = self.output.weight.device
        batch, real = batch.to(device), copy_to(real, device)
        decoder_input, labels = shift_target(batch.target)
        mixed = self.has_foreign_parts and self.precision != torch.float32
        with torch.autocast(device.type, self.precision, enabled=mixed):
            hidden = self.copy(batch.source, decoder_input).flatten(0, 1)  # (batch * length, d_model)
        loss = part * OutputLayerLoss.apply(
            hidden.to(self.precision),
            self.output.weight,
            self.output.bias,
            labels.flatten(),
            real,
            smoothing,
            consistency,
        )
        loss.backward()
        self.accumulate_gradients()
        return loss.detach()

    @torch.no_grad()
    def accumulate_gradients(self) -> None:
        """Add the copy's gradients to the model's gradients, and then clear the copy's gradients."""
        pairs = zip(self.parameters, self.copied_parameters, strict=True)
        pairs = [(parameter, copied) for parameter, copied in pairs if copied.grad is not None]
        gradients = [torch.empty_like(parameter) for parameter, _ in pairs]
        torch._foreach_copy_(gradients, [copied.grad for _, copied in pairs])
        for (parameter, copied), gradient in zip(pairs, gradients, strict=True):
            parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
            copied.grad = None

    @torch.no_grad()
    def sync_weights(self) -> None:
        """Update the copy with the model's weights. Call this whenever they have changed."""
        torch._foreach_copy_(self.copied_parameters, self.parameters)


def replace_modules(module: nn.Module, slow: type[nn.Module], fast: Callable[[Any], nn.Module]) -> None:
    """Replace every descendant whose class is exactly `slow` with `fast(child)`. Subclasses are left unchanged."""
    for name, child in module.named_children():
        if type(child) is slow:
            setattr(module, name, fast(child))
        else:
            replace_modules(child, slow, fast)
