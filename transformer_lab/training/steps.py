"""Take one training step (sections 5.3 and 5.4 of the paper), or evaluate a model."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from transformer_lab.data.batches import Batch
from transformer_lab.decoding.incremental import ends_with_output
from transformer_lab.presets import Preset
from transformer_lab.reimplementations import reimplements
from transformer_lab.training.distributed import WorkerGroup
from transformer_lab.training.fast_gradients import FastGradients
from transformer_lab.training.loss import consistency_loss, label_smoothing_loss, shift_target
from transformer_lab.training.muon import Muon
from transformer_lab.training.schedule import linear_rate, warmup_rate


def train_step(
    model: nn.Module, batch: Batch, optimizer: torch.optim.Optimizer, smoothing: float = 0.1, clip_norm: float = 1.0
) -> float:
    """Train the model on one batch: predict every next token, compute the loss, and take one optimizer step.

    Args:
        model: Called with `(source, decoder_input)`, it returns logits, `(batch, length - 1, vocab)`. It also needs
            `config.pad_id`. It is left in training mode.
        batch: Padded `source` and `target`; `target` includes bos and eos.
        optimizer: Its learning rate is set by the caller.
        smoothing: Label smoothing (section 5.4).
        clip_norm: A gradient with a larger norm is scaled down to this norm.

    Returns:
        The loss before the step, in nats per token.
    """
    model.train()
    decoder_input, labels = shift_target(batch.target)  # (batch, length - 1)
    logits = model(batch.source, decoder_input)  # (batch, length - 1, vocab)
    loss = label_smoothing_loss(logits, labels, smoothing, model.config.pad_id)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
    optimizer.step()
    return loss.item()


def evaluate(model: nn.Module, batches: Iterable[Batch]) -> tuple[float, float]:
    """Measure how well the model predicts. Every real token has the same weight, regardless of its batch.

    The model runs in evaluation mode without gradients, and its own mode is restored afterward.

    Args:
        model: As in `train_step`.
        batches: An iterable, which is consumed once.

    Returns:
        `(loss, perplexity)`: the cross-entropy against the unsmoothed labels, in nats per token, and its exponential.

    Raises:
        ValueError: There are no tokens to predict.
    """
    was_training = model.training
    model.eval()
    total_loss, total_tokens = 0.0, 0
    with torch.no_grad():
        for batch in batches:
            decoder_input, labels = shift_target(batch.target)
            logits = model(batch.source, decoder_input)
            loss = label_smoothing_loss(logits, labels, 0.0, model.config.pad_id)
            total_loss += loss.item() * batch.target_tokens
            total_tokens += batch.target_tokens
    model.train(was_training)
    if not total_tokens:
        raise ValueError("no tokens to evaluate on: give at least one batch with a target")
    mean = total_loss / total_tokens
    return mean, math.inf if mean > 700 else math.exp(mean)  # e^710 is beyond the largest float


class UpdateResult:
    """The measurements of one update. A GPU may still be computing them; only `read` waits for them."""

    def __init__(self, numbers: Tensor) -> None:
        self.numbers = numbers.to("cpu", non_blocking=True)
        self.copied = torch.cuda.Event() if numbers.is_cuda else None
        if self.copied:
            self.copied.record()

    def read(self) -> tuple[list[float], float]:
        """Return `(losses, norm)`: each batch's share of the mean loss, and the norm of the gradient before clipping.

        The losses sum to the mean loss over all the tokens in the update, in nats per token.
        """
        if self.copied:
            self.copied.synchronize()
        *losses, norm = self.numbers.tolist()
        return losses, norm


@reimplements("train_step")
def update_weights(
    model: nn.Module,
    batches: Sequence[Batch],
    optimizer: torch.optim.Optimizer,
    preset: Preset,
    precision: torch.dtype,
    workers: WorkerGroup,
    fast: FastGradients | None = None,
) -> UpdateResult:
    """Do the work of `train_step` for large runs: one update from several batches, in one or more processes.

    Each batch is weighted by its number of real tokens, so the update is the same as for a single batch with all the
    sentences. If the loss or the norm of the gradient is not finite, the weights are left unchanged.

    Args:
        model: The model to train.
        batches: The batches, on the CPU. They are the same in every process, and each process takes its share of every
            batch.
        optimizer: The result of `build_optimizer`. Its learning rate is set by the caller.
        preset: Determines label smoothing, gradient clipping, and consistency training.
        precision: The dtype of matrix products.
        workers: The group of processes that train together.
        fast: The result of `prepare_gradients`. If it is not None, it computes the gradients in place of `model`, in
            its own precision.
    """
    device = next(model.parameters()).device
    all_tokens = sum(batch.target_tokens for batch in batches)
    losses = torch.zeros(len(batches), device=device)
    model.train()
    optimizer.zero_grad()
    for index, batch in enumerate(batches):
        share = workers.share_of(batch)
        part = share.target_tokens / all_tokens
        if share.indices and fast:
            losses[index] = fast.backward(share, preset.label_smoothing, part, preset.consistency)
        elif share.indices:
            losses[index] = backward(model, share.to(device), preset, part, precision)
    losses = workers.sum_gradients(model.parameters(), losses)
    norm = nn.utils.clip_grad_norm_(model.parameters(), preset.clip_norm or math.inf)
    numbers = torch.cat([losses, norm.view(1)])
    # torch's fused optimizers skip the step if this is 1. They check on the GPU, so the CPU doesn't have to wait.
    optimizer.found_inf = 1.0 - numbers.isfinite().all().float()
    optimizer.step()
    if fast:
        fast.sync_weights()
    return UpdateResult(numbers)


def backward(model: nn.Module, batch: Batch, preset: Preset, part: float, precision: torch.dtype) -> Tensor:
    """Multiply the loss on `batch` by `part`, add its gradients to those of the parameters, and return the product."""
    batch = batch.repeated(2) if preset.consistency else batch
    decoder_input, labels = shift_target(batch.target)
    with torch.autocast(batch.target.device.type, precision, enabled=precision != torch.float32):
        logits = model(batch.source, decoder_input)
    logits, smoothing, pad_id = logits.float(), preset.label_smoothing, model.config.pad_id
    if preset.consistency:
        labels = labels.chunk(2)[0]  # the same for both passes
        loss = part * consistency_loss(*logits.chunk(2), labels, smoothing, pad_id, preset.consistency)
    else:
        loss = part * label_smoothing_loss(logits, labels, smoothing, pad_id)
    loss.backward()
    return loss.detach()


def prepare_gradients(model: nn.Module, preset: Preset, precision: torch.dtype) -> FastGradients | None:
    """Return the `fast` argument for `update_weights`. With `compiled`, compile the module that computes gradients.

    If the model changes its logits after the output layer, the result is None, because the copy would ignore that.
    """
    if preset.fast and ends_with_output(model, lambda tokens: model(tokens, tokens)):
        return FastGradients(model, precision, preset.compiled)
    if preset.compiled:
        model.compile(dynamic=True)  # one program for batches of every shape
    return None


def computing_precision(preset: Preset, device: torch.device) -> torch.dtype:
    """Return the dtype that the preset sets for matrix products.

    "auto" means bfloat16 if the hardware supports it; otherwise, it means float32.
    """
    if preset.precision == "auto":
        if device.type == "cuda":
            has_bf16 = torch.cuda.get_device_capability(device) >= (8, 0)
        else:
            capabilities = getattr(torch.cpu, "get_capabilities", dict)()  # missing in some versions of torch
            has_bf16 = device.type == "cpu" and any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16"))
        return torch.bfloat16 if has_bf16 else torch.float32
    return torch.bfloat16 if preset.precision == "bf16" else torch.float32


def build_optimizer(model: nn.Module, preset: Preset) -> torch.optim.Optimizer:
    """Build Adam (section 5.3) or Muon.

    Muon trains the matrices between the embeddings and the output layer. Adam trains all other parameters. Weight decay
    is decoupled from the gradient, as in AdamW.
    """
    parameters = list(model.parameters())
    adam = {"lr": 0.0, "betas": preset.betas, "eps": preset.eps, "weight_decay": preset.weight_decay, "fused": True}
    if preset.optimizer == "adam":
        return torch.optim.AdamW(parameters, **adam)
    by_token = [part for part in model.modules() if isinstance(part, nn.Embedding) or part is model.output]
    of_tokens = {id(parameter) for part in by_token for parameter in part.parameters()}
    matrices, others = [], []
    for parameter in parameters:
        between = parameter.ndim == 2 and id(parameter) not in of_tokens
        (matrices if between else others).append(parameter)
    return Muon(matrices, others, precision=computing_precision(preset, parameters[0].device), **adam)


def learning_rate(preset: Preset, step: int, total_steps: int) -> float:
    if preset.schedule == "paper":
        return preset.learning_rate_scale * warmup_rate(step, preset.d_model, preset.warmup_steps)
    return linear_rate(step, preset.peak_rate, preset.warmup_steps, total_steps)
