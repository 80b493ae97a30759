"""One step: from a batch to better weights (sections 5.3 and 5.4 of the paper)."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import nn

from transformer_lab.data.batches import Batch
from transformer_lab.presets import Preset
from transformer_lab.reimplementations import reimplements
from transformer_lab.training.distributed import Processes
from transformer_lab.training.fast_gradients import FastGradients
from transformer_lab.training.loss import consistency_loss, label_smoothing_loss, shift_target
from transformer_lab.training.muon import Muon
from transformer_lab.training.schedule import linear_rate, warmup_rate


def train_step(
    model: nn.Module, batch: Batch, optimizer: torch.optim.Optimizer, smoothing: float = 0.1, clip_norm: float = 1.0
) -> float:
    """Let the model learn from one batch: predict every next token, measure the loss, follow its gradient one step.

    Args:
        model: has `config.pad_id`, and gives logits for `(source, decoder_input)`. It is put into training mode, and
            stays in it.
        batch: `source` and `target`, padded, `target` with bos and eos.
        optimizer: its learning rate is set by the caller.
        smoothing: of the labels (section 5.4).
        clip_norm: a gradient that is longer is shortened to this norm.

    Returns:
        The loss before the step, in nats a token.
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
    """How well the model predicts: every real token of all batches counts the same, whatever batch it is in.

    Predicts in evaluation mode, without gradients, and leaves the model in the mode it was in.

    Args:
        model: as in `train_step`.
        batches: are gone through once.

    Returns:
        `(loss, perplexity)`: the cross-entropy against the plain labels, in nats a token, and e to that power.

    Raises:
        ValueError: there is no token to predict.
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
        raise ValueError("no token to evaluate on: give at least one batch with a target")
    mean = total_loss / total_tokens
    return mean, math.inf if mean > 700 else math.exp(mean)  # e^710 is beyond the largest float


@reimplements("train_step")
def update_weights(
    model: nn.Module,
    batches: Sequence[Batch],
    optimizer: torch.optim.Optimizer,
    preset: Preset,
    precision: torch.dtype,
    processes: Processes,
    fast: FastGradients | None = None,
) -> tuple[list[float], float]:
    """`train_step` at full size: one update from several batches, in several processes, with products in bfloat16.

    Each batch counts by its real tokens, so that the update is the one that a single batch of all sentences would give.

    Args:
        model: the model that is trained.
        batches: the same in every process; each process takes its share of every batch.
        optimizer: its learning rate is set by the caller.
        preset: says how labels are smoothed, gradients clipped and two passes compared.
        precision: of the matrix products.
        processes: this process among the others.
        fast: computes the gradients in the place of `model`, in its own precision.

    Returns:
        The part of each batch in the loss, which is their sum, and the norm of the gradient before clipping. If any of
        these numbers is not finite, the weights are left alone.
    """
    device = next(model.parameters()).device
    all_tokens = sum(batch.target_tokens for batch in batches)
    losses = torch.zeros(len(batches), device=device)
    model.train()
    optimizer.zero_grad()
    for index, batch in enumerate(batches):
        share = processes.share_of(batch)
        if not share.indices:
            continue
        part = share.target_tokens / all_tokens
        share = share.to(device)
        if fast:
            losses[index] = fast.backward(share, preset.label_smoothing, part, preset.consistency)
            continue
        share = share.repeated(2) if preset.consistency else share
        decoder_input, labels = shift_target(share.target)
        with torch.autocast(device.type, precision, enabled=precision != torch.float32):
            logits = model(share.source, decoder_input)
        logits, smoothing, pad_id = logits.float(), preset.label_smoothing, model.config.pad_id
        if preset.consistency:
            labels = labels.chunk(2)[0]  # of both passes the same
            loss = part * consistency_loss(*logits.chunk(2), labels, smoothing, pad_id, preset.consistency)
        else:
            loss = part * label_smoothing_loss(logits, labels, smoothing, pad_id)
        loss.backward()
        losses[index] = loss.detach()
    losses = processes.sum_gradients(model.parameters(), losses)
    norm = nn.utils.clip_grad_norm_(model.parameters(), preset.clip_norm or math.inf)
    *loss_parts, norm = torch.cat([losses, norm.view(1)]).tolist()  # one wait for the GPU, not one for each number
    if all(map(math.isfinite, [*loss_parts, norm])):
        optimizer.step()
        if fast:
            fast.sync_weights()
    return loss_parts, norm


def prepare_gradients(model: nn.Module, preset: Preset, precision: torch.dtype) -> FastGradients | None:
    """What `update_weights` takes as `fast`. With `compiled`, what computes the gradients goes through torch.compile.

    Raises:
        ValueError: as `FastGradients`.
    """
    if preset.fast:
        return FastGradients(model, precision, preset.compiled)
    if preset.compiled:
        model.compile(dynamic=True)  # one program for batches of every shape
    return None


def computing_precision(preset: Preset, device: torch.device) -> torch.dtype:
    """The type in which matrix products are computed: bfloat16 if it is asked for, or if the hardware has it."""
    if preset.precision == "auto":
        if device.type == "cuda":
            has_bf16 = torch.cuda.get_device_capability(device) >= (8, 0)
        else:
            capabilities = getattr(torch.cpu, "get_capabilities", dict)()  # not in every torch
            has_bf16 = device.type == "cpu" and any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16"))
        return torch.bfloat16 if has_bf16 else torch.float32
    return torch.bfloat16 if preset.precision == "bf16" else torch.float32


def build_optimizer(model: nn.Module, preset: Preset) -> torch.optim.Optimizer:
    """Adam as in section 5.3, or Muon for the matrices between embeddings and output layer, and Adam for the rest.

    A weight decay is AdamW's, apart from the gradient.
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
