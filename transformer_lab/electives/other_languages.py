"""BLEU for a language written without spaces: sacreBLEU's tokenization of Chinese, step by step."""

import functools
from collections.abc import Callable, Sequence

from transformer_lab.evaluation.bleu import bleu

# Code points that sacreBLEU's `zh` tokenizer treats as Chinese: ideographs and their parts, full-width forms, and
# Chinese punctuation.
CHINESE = (
    *((0x3400, 0x4DB5), (0x4E00, 0x9FBB), (0xF900, 0xFA2D), (0xFA30, 0xFA6A), (0xFA70, 0xFAD9), (0xFF00, 0xFFEF)),
    *((0x2E80, 0x2FDF), (0x2FF0, 0x303F), (0x3100, 0x312F), (0x31A0, 0x31BF), (0x31C0, 0x31EF), (0x3200, 0x33FF)),
    *((0xFE10, 0xFE1F), (0xFE30, 0xFE4F), (0x2600, 0x27BF)),
    # For characters from U+20000 on, sacreBLEU's source says "\u20000". Python reads this as U+2000 and a zero, so the
    # characters don't count as Chinese. Instead, this range counts, including curly quotes, dashes, and the ellipsis.
    (0x2001, 0x2A6D),
)


def is_chinese_character(character: str) -> bool:
    """Return whether sacreBLEU's `zh` tokenizer makes this character a separate token."""
    return any(first <= ord(character) <= last for first, last in CHINESE)


def words_13a(text: str) -> list[str]:
    """Split a string with sacreBLEU's "13a" rules (from the WMT evaluations): at spaces and around ASCII punctuation.

    Periods and commas inside a number, such as `3.5` or `1,000`, are not split off.
    """
    return _rules_13a()(text).split()


@functools.cache
def _rules_13a() -> Callable[[str], str]:
    from sacrebleu.tokenizers.tokenizer_re import TokenizerRegexp

    return TokenizerRegexp()


def split_chinese(text: str) -> list[str]:
    """Split a Chinese sentence into the tokens that sacreBLEU uses with `tokenize="zh"`.

    Args:
        text: A sentence, which may contain words and numbers in other scripts.

    Returns:
        The tokens. Every character for which `is_chinese_character` is true is one, including full-width punctuation.
        Everything else is split by `words_13a`, which gets the whole sentence, with a space on both sides of every
        Chinese character. (Do not pass it the pieces one by one. Its rules depend on what is next to a period: in
        `第3.章`, "chapter 3.", the period is a token.) No token contains a space, and nothing but spaces is lost.
    """
    apart = "".join(f" {character} " if is_chinese_character(character) else character for character in text.strip())
    return words_13a(apart)


def chinese_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Compute BLEU for Chinese sentences, using the tokens of `split_chinese`.

    Args:
        hypotheses: The translations, as whole sentences.
        references: One for each hypothesis, in the same order.

    Returns:
        A score from 0 to 100, the same as sacreBLEU's with `tokenize="zh"` and `smooth_method="none"`.

    Raises:
        ValueError: `hypotheses` and `references` differ in length.
    """
    return bleu([split_chinese(text) for text in hypotheses], [split_chinese(text) for text in references])
