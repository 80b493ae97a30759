"""Right answers to notebook 23 in other styles."""

import itertools
import re

from transformer_lab.electives.other_languages import CHINESE, is_chinese_character, split_chinese, words_13a
from transformer_lab.evaluation import bleu, brevity_penalty, ngram_precision

# --- split_chinese ----------------------------------------------------------------------------------------------------


def split_by_groups(text):
    """Runs of Chinese and of other signs in turn; only the others go through 13a."""
    tokens = []
    for chinese, signs in itertools.groupby(text, is_chinese_character):
        run = "".join(signs)
        tokens += list(run) if chinese else words_13a(run)
    return [token for token in tokens if token.strip()]


def split_by_pattern(text):
    ranges = "".join(f"{chr(first)}-{chr(last)}" for first, last in CHINESE)
    return words_13a(re.sub(f"([{ranges}])", r" \1 ", text))


def split_word_by_word(text):
    """A stack of signs that is emptied at each Chinese character."""
    tokens, word = [], ""
    for sign in text + "\u3000":
        if is_chinese_character(sign):
            tokens.extend(words_13a(word))
            tokens.append(sign)
            word = ""
        else:
            word += sign
    return tokens[:-1]


# --- chinese_bleu -----------------------------------------------------------------------------------------------------


def bleu_of_mapped(hypotheses, references):
    return bleu(list(map(split_chinese, hypotheses)), list(map(split_chinese, references)))


def bleu_of_joined_tokens(hypotheses, references):
    """Back to strings with a space between the tokens, and cut there."""
    sides = [[" ".join(split_chinese(text)).split(" ") for text in side] for side in (hypotheses, references)]
    return bleu(*sides)


def bleu_from_its_parts(hypotheses, references):
    hypotheses, references = ([split_chinese(text) for text in side] for side in (hypotheses, references))
    product = 1.0
    for n in (1, 2, 3, 4):
        product *= ngram_precision(hypotheses, references, n)
    return 100 * brevity_penalty(sum(map(len, hypotheses)), sum(map(len, references))) * product**0.25


VARIANTS = {
    "split_chinese": [split_by_groups, split_by_pattern, split_word_by_word],
    "chinese_bleu": [bleu_of_mapped, bleu_of_joined_tokens, bleu_from_its_parts],
}
