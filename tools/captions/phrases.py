"""German and English words in all their forms: articles, adjectives, nouns, verbs. Each phrase has its alignment."""

from dataclasses import dataclass
from functools import cache

from lexicon import Noun, Verb, english_adjective

DEFINITE = {
    "nominative": {"m": "der", "f": "die", "n": "das", "plural": "die"},
    "accusative": {"m": "den", "f": "die", "n": "das", "plural": "die"},
    "dative": {"m": "dem", "f": "der", "n": "dem", "plural": "den"},
}
RELATIVE = DEFINITE | {"dative": {"m": "dem", "f": "der", "n": "dem", "plural": "denen"}}
EIN_ENDINGS = {  # endings of ein, kein, sein, ihr
    "nominative": {"m": "", "f": "e", "n": "", "plural": "e"},
    "accusative": {"m": "en", "f": "e", "n": "", "plural": "e"},
    "dative": {"m": "em", "f": "er", "n": "em", "plural": "en"},
}
ADJECTIVE_ENDINGS = {
    "weak": {  # after der, die, das: the article shows the case
        "nominative": {"m": "e", "f": "e", "n": "e", "plural": "en"},
        "accusative": {"m": "en", "f": "e", "n": "e", "plural": "en"},
        "dative": {"m": "en", "f": "en", "n": "en", "plural": "en"},
    },
    "mixed": {  # after ein, kein, sein: the adjective shows what the article leaves open
        "nominative": {"m": "er", "f": "e", "n": "es", "plural": "en"},
        "accusative": {"m": "en", "f": "e", "n": "es", "plural": "en"},
        "dative": {"m": "en", "f": "en", "n": "en", "plural": "en"},
    },
    "strong": {  # without an article, or after a number: the adjective has the article's ending
        "nominative": {"m": "er", "f": "e", "n": "es", "plural": "e"},
        "accusative": {"m": "en", "f": "e", "n": "es", "plural": "e"},
        "dative": {"m": "em", "f": "er", "n": "em", "plural": "en"},
    },
}
ADJECTIVE_STEMS = {"hoch": "hoh", "rosa": None}  # None: not inflected
EIN_WORDS = {"a": "ein", "not": "kein", "no": "kein", "his": "sein", "her": "ihr", "their": "ihr"}
QUANTITIES = {  # German, whether it is inflected, English
    "two": ("zwei", False, ("two",)),
    "three": ("drei", False, ("three",)),
    "four": ("vier", False, ("four",)),
    "some": ("einig", True, ("some",)),
    "several": ("mehrer", True, ("several",)),
    "many": ("viel", True, ("many",)),
    "+": ("", False, ()),
}
CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("an", "das"): "ans",
    ("bei", "dem"): "beim",
    ("von", "dem"): "vom",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
}


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Words that form a unit of meaning, even if one of the languages separates them.

    `links` are pairs of positions in `german` and `english`; None links every word of one with every word of the other.
    `content` lists its nouns and adjectives, so that a caption uses each of them only once.
    """

    german: tuple[str, ...]
    english: tuple[str, ...]
    links: tuple[tuple[int, int], ...] | None = None
    content: tuple[str, ...] = ()


Layout = list[tuple[Piece, tuple[str, ...]]]  # one language's words in order, grouped by piece


# Determiners are named after their English word. A plus marks the plural: "the+" is the plural "die", "+" is a plural
# without an article, and "their+" is "their" before a plural. "mass" is a singular without an article, "both" is "die
# beiden", "not" is "keinen" in an object, and "no+" is "keine" in a subject.


def is_plural(determiner: str) -> bool:
    return determiner in QUANTITIES or determiner == "both" or determiner.endswith("+")


def _german_determiner(determiner: str, group: str, case: str) -> tuple[tuple[str, ...], str]:
    """Return the determiner's words, and the declension of an adjective that follows them."""
    if determiner in ("the", "the+", "both"):
        article = DEFINITE[case][group]
        return ((article, "beiden") if determiner == "both" else (article,)), "weak"
    if determiner in QUANTITIES:
        word, inflected, _ = QUANTITIES[determiner]
        if inflected:
            word += ADJECTIVE_ENDINGS["strong"][case]["plural"]
        return ((word,) if word else ()), "strong"
    if determiner == "mass":
        return (), "strong"
    return (EIN_WORDS[determiner.rstrip("+")] + EIN_ENDINGS[case][group],), "mixed"


def _english_determiner(determiner: str, noun: Noun, next_word: str) -> tuple[str, ...]:
    if determiner in QUANTITIES:
        return QUANTITIES[determiner][2]
    if determiner in ("a", "not"):
        article = "an" if next_word[0] in "aeiou" and not next_word.startswith("uni") else "a"
        words = ("not", article) if determiner == "not" else (article,)
        return words[:-1] if noun.always_plural else words
    return {"mass": (), "not+": ("not",), "both": ("the", "two")}.get(determiner, (determiner.rstrip("+"),))


def german_noun(noun: Noun, plural: bool, case: str) -> str:
    if plural:
        return noun.plural + "n" if case == "dative" and noun.plural[-1] not in "ns" else noun.plural
    return noun.plural if noun.weak and case != "nominative" else noun.singular


def german_adjective(adjective: str, declension: str, case: str, group: str) -> str:
    stem = ADJECTIVE_STEMS.get(adjective, adjective)
    return adjective if stem is None else stem + ADJECTIVE_ENDINGS[declension][case][group]


@cache
def noun_phrase(noun: Noun, determiner: str, adjectives: tuple[str, ...], case: str) -> Piece:
    plural = is_plural(determiner)
    group = "plural" if plural else noun.gender
    words, declension = _german_determiner(determiner, group, case)
    english_noun = noun.english_plural if plural else noun.english
    english_words = tuple(english_adjective(adjective, noun) for adjective in adjectives) + english_noun
    english_determiner = _english_determiner(determiner, noun, english_words[0])
    german = (
        *words,
        *(german_adjective(adjective, declension, case, group) for adjective in adjectives),
        german_noun(noun, plural, case),
    )
    english = english_determiner + english_words
    head = [(len(german) - 1, i) for i in range(len(english) - len(english_noun), len(english))]
    links = [(len(words) + i, len(english_determiner) + i) for i in range(len(adjectives))] + head
    if words and not english_determiner:
        links += [(0, i) for _, i in head]  # "eine" in "eine Sonnenbrille", "sunglasses"
    elif len(words) == len(english_determiner):
        links += [(i, i) for i in range(len(words))]
    else:
        links += [(0, i) for i in range(len(english_determiner))]  # "keinen", "not a"
    return Piece(german, english, tuple(links), (noun.singular, *adjectives))


@cache
def prepositional_phrase(
    preposition: str,
    english: tuple[str, ...],
    noun: Noun,
    determiner: str,
    adjectives: tuple[str, ...],
    case: str,
    english_article: bool = True,
) -> Piece:
    inner = noun_phrase(noun, determiner, adjectives, case)
    merged = CONTRACTIONS.get((preposition, inner.german[0])) if determiner == "the" else None
    german = (merged, *inner.german[1:]) if merged else (preposition, *inner.german)
    links = [(0, i) for i in range(len(english))]
    shift = 0 if merged else 1
    if english_article:
        links += [(i + shift, j + len(english)) for i, j in inner.links]
        return Piece(german, english + inner.english, tuple(links), inner.content)
    # "in der Schule", "at school": the article belongs to the noun
    links += [(i + shift, max(j - 1, 0) + len(english)) for i, j in inner.links if not (merged and i == 0)]
    return Piece(german, english + inner.english[1:], tuple(links), inner.content)


@dataclass(frozen=True, slots=True, eq=False)
class VerbForm:
    """A verb in one number: its German forms by their place in the clause, and the English verb."""

    verb: Verb
    piece: Piece
    finite: tuple[str, ...]
    reflexive: tuple[str, ...]
    prefix: tuple[str, ...]
    final: tuple[str, ...]  # at the end of a subordinate clause
    auxiliary: tuple[str, ...]
    main: tuple[str, ...]


@cache
def verb_form(verb: Verb, plural: bool, english_plural: bool, negated: bool = False) -> VerbForm:
    finite = verb.plural if plural else verb.singular
    auxiliary, main = ("are" if english_plural else "is",), verb.progressive
    if verb.simple:
        auxiliary, main = (), verb.base if english_plural else verb.progressive
        if negated:
            auxiliary, main = ("do" if english_plural else "does",), verb.base
    return VerbForm(
        verb=verb,
        piece=Piece((), ()),
        finite=(finite,),
        reflexive=("sich",) if verb.reflexive else (),
        prefix=(verb.prefix,) if verb.prefix else (),
        final=(verb.prefix, finite) if verb.apart else (verb.prefix + finite,),
        auxiliary=auxiliary,
        main=main,
    )


@cache
def infinitive(verb: Verb) -> tuple[Piece, tuple[str, ...]]:
    """Return the piece ("um … zu lesen", "to read"; "um … aufzuheben", "to pick up") and its final German words."""
    start = ("um", "sich") if verb.reflexive else ("um",)
    if verb.prefix and not verb.apart:
        final = (f"{verb.prefix}zu{verb.plural}",)
    else:
        final = (*((verb.prefix,) if verb.prefix else ()), "zu", verb.plural)
    german = start + final
    links = [(0, 0), (len(german) - len(final[-2:]), 0)]  # "um" and "zu" are "to"
    links += [(i, j) for i in range(1, len(german)) if german[i] != "zu" for j in range(1, 1 + len(verb.base))]
    return Piece(german, ("to", *verb.base), tuple(sorted(links))), final
