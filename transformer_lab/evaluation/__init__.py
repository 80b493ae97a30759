"""Evaluate translations with BLEU and chrF, and analyze attention: alignment, rollout, and head ablation."""

from transformer_lab.evaluation.ablation import without_heads
from transformer_lab.evaluation.alignment import alignment_error_rate
from transformer_lab.evaluation.bleu import bleu, brevity_penalty, ngram_precision
from transformer_lab.evaluation.rollout import attention_rollout
from transformer_lab.evaluation.scores import Scores, bleu_difference, cased_bleu, score_translations

__all__ = [
    "Scores",
    "alignment_error_rate",
    "attention_rollout",
    "bleu",
    "bleu_difference",
    "brevity_penalty",
    "cased_bleu",
    "ngram_precision",
    "score_translations",
    "without_heads",
]
