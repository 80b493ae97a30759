"""Scores: BLEU written out, sacreBLEU's for reports, and the alignment error rate of attention."""

from transformer_lab.evaluation.alignment import alignment_error_rate
from transformer_lab.evaluation.bleu import bleu, brevity_penalty, ngram_precision
from transformer_lab.evaluation.scores import Scores, score_translations

__all__ = ["Scores", "alignment_error_rate", "bleu", "brevity_penalty", "ngram_precision", "score_translations"]
