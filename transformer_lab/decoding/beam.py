"""Beam search: keep several hypotheses, since the best sentence may not start with the most probable word."""

import torch
from torch import Tensor

from transformer_lab.decoding.greedy import evaluation_mode, translated_tokens
from transformer_lab.model import Transformer


def length_penalty(length: int, alpha: float) -> float:
    """Return ((5 + length) / 6)^alpha, equation 14 of Wu et al. (2016).

    Every additional token makes a sentence less probable. Dividing the log-probability by this penalty gives long
    translations a fair chance: the larger `alpha`, the more it favors them. With `alpha` 0, it is 1 for every length.
    """
    return ((5 + length) / 6) ** alpha


def beam_search(model: Transformer, source: Tensor, beam_size: int, alpha: float, max_length: int) -> list[list[int]]:
    """Translate a batch with beam search (section 6.1), one sentence at a time.

    The beam holds the `beam_size` hypotheses with the highest log-probability, finished or not. In each step, every
    unfinished hypothesis is extended by every token, and finished ones stay as they are. When all of them are finished
    or `max_length` is reached, the one with the highest log-probability divided by `length_penalty` is the answer.

    Args:
        model: A `Transformer` in any mode. It runs in evaluation mode, and its own mode is restored afterward.
        source: `(batch, source)`, integers, padded on the right.
        beam_size: Number of hypotheses kept per sentence; may exceed the vocabulary size. 1 is greedy decoding.
        alpha: Exponent of the length penalty. The paper uses 0.6.
        max_length: Maximum number of generated tokens per sentence. Bos does not count; eos does.

    Returns:
        One list of tokens per sentence, without bos, eos, and pad.

    Raises:
        ValueError: A source or a translation is longer than the model's own `max_length`. The model raises it.
    """
    bos, eos = model.config.bos_id, model.config.eos_id
    translations = []
    with evaluation_mode(model):
        for sentence in source:
            memory, source_mask = model.encode(sentence[None])  # (1, source, d_model), (1, 1, 1, source)
            beam: list[tuple[list[int], float]] = [([], 0.0)]  # hypotheses: tokens generated, their log-probability
            for _ in range(max_length):
                finished = [(tokens, score) for tokens, score in beam if tokens[-1:] == [eos]]
                unfinished = [(tokens, score) for tokens, score in beam if tokens[-1:] != [eos]]
                if not unfinished:
                    break
                n = len(unfinished)
                target = torch.tensor([[bos, *tokens] for tokens, _ in unfinished], device=source.device)  # (n, length)
                logits = model.decode(target, memory.expand(n, -1, -1), source_mask.expand(n, -1, -1, -1))[:, -1]
                # Use double precision, because small rounding errors could add up and change the choice.
                log_probabilities = logits.double().log_softmax(dim=-1)  # (n, vocab)
                best = log_probabilities.topk(min(beam_size, logits.size(-1)))  # (n, children): no more can fit
                beam = finished + [
                    ([*tokens, token], score + log_probability)
                    for (tokens, score), next_tokens, next_log_probabilities in zip(
                        unfinished, best.indices.tolist(), best.values.tolist(), strict=True
                    )
                    for token, log_probability in zip(next_tokens, next_log_probabilities, strict=True)
                ]
                beam = sorted(beam, key=lambda hypothesis: hypothesis[1], reverse=True)[:beam_size]
            tokens, _ = max(beam, key=lambda hypothesis: hypothesis[1] / length_penalty(len(hypothesis[0]), alpha))
            translations.append(translated_tokens(tokens, model.config))
    return translations
