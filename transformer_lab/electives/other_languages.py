"""Scores of languages that are written without spaces between words: sacreBLEU's way with Chinese, written out."""

import functools
from collections.abc import Callable, Sequence

from transformer_lab.evaluation.bleu import bleu

# What sacreBLEU's tokenizer `zh` takes for Chinese: ideographs, their parts, full-width forms, Chinese punctuation.
CHINESE = (
    *((0x3400, 0x4DB5), (0x4E00, 0x9FBB), (0xF900, 0xFA2D), (0xFA30, 0xFA6A), (0xFA70, 0xFAD9), (0xFF00, 0xFFEF)),
    *((0x2E80, 0x2FDF), (0x2FF0, 0x303F), (0x3100, 0x312F), (0x31A0, 0x31BF), (0x31C0, 0x31EF), (0x3200, 0x33FF)),
    *((0xFE10, 0xFE1F), (0xFE30, 0xFE4F), (0x2600, 0x27BF)),
    # Its line for the characters from U+20000 on says "\u20000", which Python reads as U+2000 and a zero. So those are
    # not taken for Chinese, and these are, among them curly quotation marks, dashes, and the dots of an ellipsis.
    (0x2001, 0x2A6D),
)


def is_chinese_character(character: str) -> bool:
    """Whether sacreBLEU's tokenizer `zh` makes a token of this one character."""
    return any(first <= ord(character) <= last for first, last in CHINESE)


def words_13a(text: str) -> list[str]:
    """Words and signs as the WMT campaigns cut them ("13a"): at spaces, and at the punctuation of ASCII.

    A stop or comma within a figure stays, as in `3.5` and `1,000`.
    """
    return _rules_13a()(text).split()


@functools.cache
def _rules_13a() -> Callable[[str], str]:
    from sacrebleu.tokenizers.tokenizer_re import TokenizerRegexp

    return TokenizerRegexp()


def split_chinese(text: str) -> list[str]:
    """Tokens of a Chinese sentence as sacreBLEU counts them with `tokenize="zh"`.

    Args:
        text: a sentence, which may hold words and figures of other scripts.

    Returns:
        Each character for which `is_chinese_character` holds by itself, full-width punctuation among them; everything
        else in words, as `words_13a` cuts the whole sentence once every Chinese character has a space on both sides.
        (A piece alone would hide from its rules what stands beside a stop: of `第3.章` the stop is a token.) No token
        holds a space, and nothing but spaces is lost.
    """
    apart = "".join(f" {character} " if is_chinese_character(character) else character for character in text.strip())
    return words_13a(apart)


def chinese_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """BLEU of Chinese sentences, over the tokens of `split_chinese`.

    Args:
        hypotheses: the translations, whole sentences.
        references: one for each hypothesis, in the same order.

    Returns:
        From 0 to 100: what sacreBLEU gives with `tokenize="zh"` and `smooth_method="none"`.

    Raises:
        ValueError: not as many references as hypotheses.
    """
    return bleu([split_chinese(text) for text in hypotheses], [split_chinese(text) for text in references])
