"""Recognize Chinese characters, and remove spaces that Chinese does not use."""

import re

# The Unicode script Han: unified ideographs and their extensions, compatibility ideographs, radicals, 〇, and 々.
HAN = (
    "\u2e80-\u2fd5\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufad9"
    "\U00020000-\U0002fa1d\U00030000-\U0003347f"
)
_SIGNS = "、。，！？；：（）《》〈〉「」『』【】〔〕"  # full-width punctuation, which includes its own spacing

_FIRST = re.compile(f"[{HAN}]")
NEEDLESS_SPACE = f"(?<=[{HAN}{_SIGNS}]) (?=[{HAN}{_SIGNS}])|(?<=[{_SIGNS}]) | (?=[{_SIGNS}])"
_NEEDLESS_SPACE = re.compile(NEEDLESS_SPACE)


def is_chinese(language: str) -> bool:
    """Return whether a language code means Chinese: `zh`, `cmn`, or a variant such as `zh-TW`."""
    return language.lower().replace("_", "-").split("-")[0] in ("zh", "cmn")


def starts_in_chinese(sentence: str) -> bool:
    """Return whether the first character of the sentence is Chinese."""
    return _FIRST.match(sentence) is not None


def without_needless_spaces(sentence: str) -> str:
    """Remove spaces between two Chinese characters and next to full-width punctuation.

    Chinese is written without these spaces. They come from typing, typesetting, and word segmenters. A space between a
    Chinese character and a Latin letter or a digit is a matter of style, so it is kept.
    """
    return sentence if sentence.isascii() else _NEEDLESS_SPACE.sub("", sentence)
