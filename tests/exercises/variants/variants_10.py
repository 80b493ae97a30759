"""Correct answers to notebook 10 in different styles."""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from transformer_lab.training import label_smoothing_loss, shift_target


def shifted_by_narrow(target):
    length = target.size(1)
    return target.narrow(1, 0, length - 1), target.narrow(1, 1, length - 1)


def shifted_by_index(target):
    positions = torch.arange(target.shape[1] - 1)
    return target.index_select(1, positions).contiguous(), target.index_select(1, positions + 1).contiguous()


def shifted_by_lists(target):
    rows = [list(pairwise(row)) for row in target.tolist()]
    read = torch.tensor([[token for token, _ in row] for row in rows])
    asked = torch.tensor([[token for _, token in row] for row in rows])
    return read, asked


def loss_by_torch(logits, labels, smoothing, pad_id):
    return F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=pad_id, label_smoothing=smoothing)


def loss_by_soft_labels(logits, labels, smoothing, pad_id):
    vocab = logits.size(-1)
    softened = torch.full_like(logits, smoothing / vocab)
    softened.scatter_add_(-1, labels[..., None], torch.full_like(logits[..., :1], 1 - smoothing))
    losses = -torch.einsum("blv,blv->bl", softened, F.log_softmax(logits, dim=-1))
    real = (labels != pad_id).to(losses.dtype)
    return (losses * real).sum() / real.sum()


def loss_by_loops(logits, labels, smoothing, pad_id):
    losses = []
    for sentence, answers in zip(logits, labels, strict=True):
        for scores, answer in zip(sentence, answers, strict=True):
            if answer.item() == pad_id:
                continue
            logs = scores - scores.logsumexp(0)
            losses.append(-(1 - smoothing) * logs[answer] - smoothing * logs.sum() / len(logs))
    return sum(losses) / len(losses)


def loss_by_divergence(logits, labels, smoothing, pad_id):
    """Compute the loss as the Kullback-Leibler divergence plus the entropy of the target distribution."""
    real = labels != pad_id
    log_probabilities = torch.log_softmax(logits[real], dim=-1)
    vocab = logits.shape[-1]
    softened = (1 - smoothing) * F.one_hot(labels[real], vocab).double() + smoothing / vocab
    entropy = -torch.special.xlogy(softened, softened).sum(-1).mean()
    return F.kl_div(log_probabilities, softened, reduction="batchmean") + entropy


def rate_in_two_pieces(step, d_model, warmup_steps):
    step = step or 1
    if step < warmup_steps:
        return step / (math.sqrt(d_model) * warmup_steps**1.5)
    return 1 / math.sqrt(d_model * step)


def rate_from_its_peak(step, d_model, warmup_steps):
    peak = (d_model * warmup_steps) ** -0.5
    progress = max(1, step) / warmup_steps
    return peak * min(progress, progress**-0.5)


def rate_by_torch(step, d_model, warmup_steps):
    step = torch.tensor(float(max(step, 1)))
    return float(torch.minimum(step.rsqrt(), step / warmup_steps**1.5) / math.sqrt(d_model))


def rate_by_exponents(step, d_model, warmup_steps):
    if step == 0:
        step = 1
    growing, falling = math.log(step) - 1.5 * math.log(warmup_steps), -0.5 * math.log(step)
    return math.exp(min(growing, falling) - 0.5 * math.log(d_model))


def step_with_functional_loss(model, batch, optimizer, smoothing=0.1, clip_norm=1.0):
    model.train()
    optimizer.zero_grad(set_to_none=False)
    logits = model(batch.source, batch.target[:, :-1]).flatten(0, 1)
    labels = batch.target[:, 1:].flatten()
    loss = F.cross_entropy(logits, labels, ignore_index=model.config.pad_id, label_smoothing=smoothing)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(list(model.parameters()), max_norm=clip_norm)
    optimizer.step()
    return float(loss)


def step_with_clipping_by_hand(model, batch, optimizer, smoothing=0.1, clip_norm=1.0):
    model.train(True)
    decoder_input, labels = shift_target(batch.target)
    for parameter in model.parameters():
        parameter.grad = None
    loss = label_smoothing_loss(model(batch.source, decoder_input), labels, smoothing, model.config.pad_id)
    loss.backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = math.sqrt(sum(gradient.square().sum().item() for gradient in gradients))
    if norm > clip_norm:
        for gradient in gradients:
            gradient *= clip_norm / norm
    optimizer.step()
    return loss.detach().item()


def step_reading_the_whole_target(model, batch, optimizer, smoothing=0.1, clip_norm=1.0):
    """Read the last position too and discard its prediction. This costs more but is equivalent in a causal model."""
    model.train()
    logits = model(batch.source, batch.target)[:, :-1]
    loss = label_smoothing_loss(logits, shift_target(batch.target)[1], smoothing, batch.pad_id)
    model.zero_grad()
    torch.autograd.backward(loss)
    nn.utils.clip_grad_norm_(model.parameters(), clip_norm, foreach=False)
    optimizer.step()
    return loss.tolist()


def evaluation_of_sums(model, batches):
    training = model.training
    model.eval()
    summed, count = 0.0, 0
    with torch.inference_mode():
        for batch in batches:
            logits = model(batch.source, batch.target[:, :-1])
            labels = batch.target[:, 1:]
            summed += F.cross_entropy(
                logits.flatten(0, 1), labels.flatten(), ignore_index=model.config.pad_id, reduction="sum"
            ).item()
            count += labels.ne(model.config.pad_id).sum().item()
    model.train(training)
    if count == 0:
        raise ValueError("there is no token")
    return summed / count, math.e ** (summed / count)


@torch.no_grad()
def evaluation_of_all_losses(model, batches):
    modes = {module: module.training for module in model.modules()}
    losses = []
    try:
        for module in modes:
            module.training = False
        for batch in batches:
            decoder_input, labels = shift_target(batch.target)
            logs = model(batch.source, decoder_input).log_softmax(-1)
            right = logs.gather(-1, labels[..., None])[..., 0]
            losses += (-right[labels != batch.pad_id]).tolist()
    finally:
        for module, mode in modes.items():
            module.training = mode
    if not losses:
        raise ValueError("no labels")
    mean = math.fsum(losses) / len(losses)
    return mean, math.exp(mean)


def evaluation_with_weights(model, batches):
    was = model.training
    model.train(False)
    with torch.set_grad_enabled(False):
        scored = []
        for batch in batches:
            read, asked = shift_target(batch.target)
            loss = label_smoothing_loss(model(batch.source, read), asked, 0.0, batch.pad_id)
            scored.append((loss, batch.target_tokens))
    model.train(was)
    if not scored:
        raise ValueError("no batch")
    losses, weights = (torch.tensor(column, dtype=torch.float64) for column in zip(*scored, strict=True))
    loss = (losses * weights / weights.sum()).sum()
    return loss.item(), loss.exp().item()


VARIANTS = {
    "shift_target": [shifted_by_narrow, shifted_by_index, shifted_by_lists],
    "label_smoothing_loss": [loss_by_torch, loss_by_soft_labels, loss_by_loops, loss_by_divergence],
    "warmup_rate": [rate_in_two_pieces, rate_from_its_peak, rate_by_torch, rate_by_exponents],
    "train_step": [step_with_functional_loss, step_with_clipping_by_hand, step_reading_the_whole_target],
    "evaluate": [evaluation_of_sums, evaluation_of_all_losses, evaluation_with_weights],
}
