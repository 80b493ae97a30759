"""Translate with a trained model: greedy decoding and beam search, each with or without a cache."""

from transformer_lab.decoding.beam import beam_search, length_penalty
from transformer_lab.decoding.greedy import greedy_decode
from transformer_lab.decoding.incremental import CachedAttention, cached_beam_search, cached_greedy_decode
from transformer_lab.decoding.translator import DEFAULT_ALPHA, Translator, load_pretrained

__all__ = [
    "DEFAULT_ALPHA",
    "CachedAttention",
    "Translator",
    "beam_search",
    "cached_beam_search",
    "cached_greedy_decode",
    "greedy_decode",
    "length_penalty",
    "load_pretrained",
]
