"""Right answers to notebook 23 in other styles."""

import itertools
import re

from transformer_lab.electives.other_languages import CHINESE, is_chinese_character, split_chinese, words_13a
from transformer_lab.evaluation import bleu, brevity_penalty, ngram_precision

# --- split_chinese ----------------------------------------------------------------------------------------------------


def split_by_groups(text):
    """Runs of Chinese and of other signs in turn; spaces go around the signs of the former, and all through 13a."""
    pieces = []
    for chinese, group in itertools.groupby(text, is_chinese_character):
        signs = list(group)
        pieces += signs if chinese else ["".join(signs)]
    return words_13a(" ".join(pieces))


def split_by_pattern(text):
    ranges = "".join(f"{chr(first)}-{chr(last)}" for first, last in CHINESE)
    return words_13a(re.sub(f"([{ranges}])", r" \1 ", text))


def split_sign_by_sign(text):
    """A space where a Chinese character begins or ends, whatever stands on the other side."""
    spaced = ""
    for before, sign in itertools.pairwise(" " + text):
        spaced += " " + sign if is_chinese_character(before) or is_chinese_character(sign) else sign
    return words_13a(spaced)


# --- chinese_bleu -----------------------------------------------------------------------------------------------------


def bleu_of_mapped(hypotheses, references):
    return bleu(list(map(split_chinese, hypotheses)), list(map(split_chinese, references)))


def bleu_of_joined_tokens(hypotheses, references):
    """Back to strings with a space between the tokens, and cut there."""
    sides = [[" ".join(split_chinese(text)).split() for text in side] for side in (hypotheses, references)]
    return bleu(*sides)


def bleu_from_its_parts(hypotheses, references):
    hypotheses, references = ([split_chinese(text) for text in side] for side in (hypotheses, references))
    product = 1.0
    for n in (1, 2, 3, 4):
        product *= ngram_precision(hypotheses, references, n)
    return 100 * brevity_penalty(sum(map(len, hypotheses)), sum(map(len, references))) * product**0.25


VARIANTS = {
    "split_chinese": [split_by_groups, split_by_pattern, split_sign_by_sign],
    "chinese_bleu": [bleu_of_mapped, bleu_of_joined_tokens, bleu_from_its_parts],
}
