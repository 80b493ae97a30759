"""Chinese text: how its characters are told from others, and that it is written without spaces."""

import re

# Unified ideographs and their extensions, compatibility ideographs, radicals, 〇 and 々: Unicode's script Han.
HAN = (
    "\u2e80-\u2fd5\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufad9"
    "\U00020000-\U0002fa1d\U00030000-\U0003347f"
)
_SIGNS = "、。，！？；：（）《》〈〉「」『』【】〔〕"  # are as wide as a character and bring their own room

_FIRST = re.compile(f"[{HAN}]")
NEEDLESS_SPACE = f"(?<=[{HAN}{_SIGNS}]) (?=[{HAN}{_SIGNS}])|(?<=[{_SIGNS}]) | (?=[{_SIGNS}])"
_NEEDLESS_SPACE = re.compile(NEEDLESS_SPACE)


def is_chinese(language: str) -> bool:
    """Whether a language code means Chinese: `zh`, `cmn`, and what is derived from them, such as `zh-TW`."""
    return language.lower().replace("_", "-").split("-")[0] in ("zh", "cmn")


def starts_in_chinese(sentence: str) -> bool:
    """Whether the first character is a Chinese one."""
    return _FIRST.match(sentence) is not None


def without_needless_spaces(sentence: str) -> str:
    """The sentence without the spaces between two Chinese characters, and beside a full-width comma, stop, bracket.

    Chinese does not write them; they come from typing, from typesetting, and from programs that segment words. The
    space between a Chinese character and a Latin letter or a figure is a matter of style, and stays.
    """
    return sentence if sentence.isascii() else _NEEDLESS_SPACE.sub("", sentence)
