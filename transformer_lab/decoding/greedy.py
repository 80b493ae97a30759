"""Greedy decoding: always take the most probable next token."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from transformer_lab.model import Transformer, TransformerConfig


@contextmanager
def evaluation_mode(model: Transformer) -> Iterator[None]:
    """Turn off dropout and gradients inside the `with` block, and restore the model's mode afterward."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def translated_tokens(generated: list[int], config: TransformerConfig) -> list[int]:
    """Return the tokens before the first eos, excluding any bos or pad that the model predicted."""
    if config.eos_id in generated:
        generated = generated[: generated.index(config.eos_id)]
    return [token for token in generated if token not in (config.bos_id, config.pad_id)]


def greedy_decode(model: Transformer, source: Tensor, max_length: int) -> list[list[int]]:
    """Translate a batch greedily: append the most probable next token until every sentence has ended.

    Args:
        model: A `Transformer` in any mode. It runs in evaluation mode, and its own mode is restored afterward.
        source: `(batch, source)`, integers, padded on the right.
        max_length: Maximum number of generated tokens per sentence. Bos does not count; eos does.

    Returns:
        One list of tokens per sentence, without bos, eos, and pad.

    Raises:
        ValueError: A source or a translation is longer than the model's own `max_length`. The model raises it.
    """
    config = model.config
    with evaluation_mode(model):
        memory, source_mask = model.encode(source)
        target = torch.full_like(source[:, :1], config.bos_id)  # (batch, 1)
        finished = torch.zeros_like(target, dtype=torch.bool)  # (batch, 1)
        for _ in range(max_length):
            logits = model.decode(target, memory, source_mask)[:, -1]  # (batch, vocab)
            token = logits.argmax(dim=-1, keepdim=True)  # (batch, 1)
            target = torch.cat([target, token], dim=1)  # (batch, 1 + generated)
            finished |= token == config.eos_id
            if finished.all():
                break
    return [translated_tokens(generated, config) for generated in target[:, 1:].tolist()]
