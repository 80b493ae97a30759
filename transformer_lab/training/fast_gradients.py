"""The same gradients, sooner: a copy of the model made for speed computes them, the model itself stays the paper's.

On a CPU about half of a plain training step is matrix products. The rest is random numbers for dropout, the softmax
over the vocabulary, and moving float32 numbers through memory. The copy computes in bfloat16, draws one random byte a
number, normalizes with torch's kernel, and never holds the logits of a whole batch.

Where a sum in bfloat16 would be too coarse, over the tokens of a batch, it is in float32.

A GPU has done its work on a small model before the next piece of work is handed to it: there, what counts is how many
pieces there are. The copy has little more than half as many (`benchmarks/launches.py`): a norm is one kernel, and
weights in bfloat16 need not be converted in each step.
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
    """Dropout that decides by one random byte for each number: `p` is rounded to a multiple of 1/256 below 1."""

    def forward(self, x: Tensor) -> Tensor:
        dropped_of_256 = min(255, round(self.p * 256))
        if not self.training or dropped_of_256 == 0:
            return x
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64, device=x.device).random_(-(2**63), None)
        random_bytes = words.view(torch.uint8)[: x.numel()].view(x.shape)
        # Whole numbers up to 256 are exact in bfloat16: 0 where the byte is below the threshold, 1 elsewhere.
        keep_mask = random_bytes.to(x.dtype).sub_(dropped_of_256 - 1).clamp_(0, 1)
        return x * keep_mask.mul_(256 / (256 - dropped_of_256))


class SummingEmbedding(nn.Embedding):
    """Sums its gradient in float32: in bfloat16 that of a frequent token stops growing at 256 times a summand."""

    def forward(self, tokens: Tensor) -> Tensor:
        options = self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        return F.embedding(tokens, self.weight.float(), *options).to(self.weight.dtype)


class FusedLayerNorm(nn.Module):
    """torch's kernel with the parameters of a `LayerNorm` of the model."""

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
    """Attention without a tensor more than it needs. For sentences of some tens of tokens this beats the flash kernel.

    Every query must have a key to attend to: it does in training, where each sentence ends in eos.
    """
    scores = (query * query.size(-1) ** -0.5) @ key.transpose(-2, -1)  # (batch, heads, query, key)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)
    return (weights if dropout is None else dropout(weights)) @ value, None


class OutputLayerLoss(torch.autograd.Function):
    """The output layer and `label_smoothing_loss` in one pass, some hundred tokens at a time.

    For a token with logits z, label y and smoothing e over V words, the gradient of the loss by z is
    softmax(z) - e / V - (1 - e) [y]: it is at hand as soon as the softmax is, so that logits need not be kept.

    With `consistency`, `hidden` and `labels` hold every token twice, once for each pass, and it is `consistency_loss`.
    """

    tokens_at_a_time = 512  # their logits fit into the cache of a processor; even, for the two passes of a token
    tokens_at_a_time_on_gpu = 8192  # all of a batch, as a rule: one launch for each operation

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
        """The mean over real tokens: those of `labels` `(tokens)` at the places `real`.

        `hidden` is `(tokens, d_model)`, `weight` `(vocab, d_model)`.
        """
        if consistency:  # the two passes of a token side by side, so that no piece parts them
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
    """KL(P ‖ Q) + KL(Q ‖ P), summed over tokens, and its gradient by the logits of both passes.

    With d = log P - log Q, the sum is that of (P - Q) d over all words; by the logits of P, its gradient is
    P (d - KL(P ‖ Q)) + P - Q, and by those of Q the same with P and Q exchanged.

    Args:
        log_probabilities: `(tokens * 2, vocab)`: in turn a token's in the first pass and in the second.

    Returns:
        `(disagreement, gradient)`: a scalar, and the shape of `log_probabilities`.
    """
    log_p = log_probabilities.view(-1, 2, log_probabilities.size(-1))  # (tokens, 2, vocab)
    log_q = log_p.flip(1)  # of each pass the other one
    p, difference = log_p.exp(), log_p - log_q
    divergence = (p * difference).sum(dim=-1, keepdim=True)  # (tokens, 2, 1): KL(P ‖ Q) and KL(Q ‖ P)
    gradient = p * (difference - divergence) + p - log_q.exp()
    return divergence.sum(), gradient.flatten(0, 1)


class FastGradients:
    """A copy of `model` that computes gradients in `precision` and hands them to the model's float32 parameters.

    Parts that are not the package's own, such as a reader's, are copied as they are, and computed under autocast. What
    is exchanged, in them too, is torch's dropout, on a CPU, and `fused_attention`, if that is what `attend` is: any
    other function there is called as it is.

    Args:
        model: stays where it is and as it is; only the gradients of its parameters are set.
        precision: of the copy.
        compiled: the copy goes through `torch.compile`.
        device_type: for which the copy is made, `"cpu"` or any other, which is a GPU; without, that of the model.

    Raises:
        ValueError: the model has no `output` that is an `nn.Linear` with a bias, whose place the loss takes.
    """

    def __init__(
        self, model: nn.Module, precision: torch.dtype, compiled: bool = False, device_type: str | None = None
    ) -> None:
        output = getattr(model, "output", None)
        if not isinstance(output, nn.Linear) or output.bias is None:
            raise ValueError(
                f"the output of this {type(model).__name__} is no nn.Linear with a bias: train with fast=False"
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
        if on_cpu:  # a GPU draws the numbers of dropout in the kernel that uses them
            replace_modules(self.copy, nn.Dropout, lambda dropout: ByteDropout(dropout.p))
            for module in self.copy.modules():
                if getattr(module, "attend", None) is fused_attention:
                    module.attend = unfused_attention
                if type(module) is nn.Embedding:  # with the weight that it may share
                    module.__class__ = SummingEmbedding
        self.copy.train()
        if compiled:
            self.copy.compile(dynamic=True)  # one program for batches of every shape

    @reimplements("train_step")
    def backward(self, batch: Batch, smoothing: float, part: float, consistency: float = 0.0) -> Tensor:
        """Add the gradients of `part` times the loss on `batch` to the parameters' gradients, and return that loss.

        A batch on the CPU is copied to the model's device after its real tokens have been found: how many there are
        decides the shapes of what follows, and asking a GPU would mean waiting for it.
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
        """Add the copy's gradients to the model's, all with one call, and leave the copy without any."""
        pairs = zip(self.parameters, self.copied_parameters, strict=True)
        pairs = [(parameter, copied) for parameter, copied in pairs if copied.grad is not None]
        gradients = [torch.empty_like(parameter) for parameter, _ in pairs]
        torch._foreach_copy_(gradients, [copied.grad for _, copied in pairs])
        for (parameter, copied), gradient in zip(pairs, gradients, strict=True):
            parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
            copied.grad = None

    @torch.no_grad()
    def sync_weights(self) -> None:
        """Take over the model's weights: to be called after each change of them."""
        torch._foreach_copy_(self.copied_parameters, self.parameters)


def replace_modules(module: nn.Module, slow: type[nn.Module], fast: Callable[[Any], nn.Module]) -> None:
    """Put `fast(child)` in the place of every child of the class `slow`, but of no class derived from it."""
    for name, child in module.named_children():
        if type(child) is slow:
            setattr(module, name, fast(child))
        else:
            replace_modules(child, slow, fast)
