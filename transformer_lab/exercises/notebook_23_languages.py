"""Notebook 23, other languages: how a Chinese sentence is split into tokens, and its BLEU."""

from transformer_lab.electives.other_languages import chinese_bleu, split_chinese
from transformer_lab.exercises.exercise import Exercise, Probe, Property, Remark
from transformer_lab.exercises.notebook_12_bleu import pair_of, scores_of_unequal_numbers
from transformer_lab.exercises.rules import equal_results
from transformer_lab.exercises.sampling import InputSampler

CHARACTERS = "我你他她们今天明学校老师朋友喜欢吃买看书水果红花苹面包米饭去来说话中国人大小多少"
NAMES = ("Tom", "Mary", "Python", "Berlin", "Linux", "Alice")
ACCENTED = ("José", "Zoë", "Müller", "Renée", "Jürgen", "Chloé")


def some_characters(sampler: InputSampler, count: int) -> list[str]:
    """Return `count` Chinese characters, all different."""
    return sampler.shuffled(CHARACTERS)[:count]


def some_names(sampler: InputSampler, count: int, names: tuple[str, ...] = NAMES) -> list[str]:
    return sampler.shuffled(names)[:count]


# --- split_chinese ----------------------------------------------------------------------------------------------------


def latin_words_inputs(sampler: InputSampler) -> dict:
    """Put a space between the two words, but none between them and the characters on both sides."""
    one, other = some_names(sampler, 2)
    characters = some_characters(sampler, 6)
    place = sampler.integer(1, 3)
    return {"text": "".join([*characters[:place], one, " ", other, *characters[place + sampler.integer(0, 2) :]])}


def full_width_inputs(sampler: InputSampler) -> dict:
    """Put a comma or the like next to a Latin word, and a stop at the end."""
    characters = some_characters(sampler, sampler.integer(2, 4))
    return {"text": "".join([*some_names(sampler, 1), "，！？：；"[sampler.integer(0, 4)], *characters, "。"])}


def figures_inputs(sampler: InputSampler) -> dict:
    one, other = some_characters(sampler, 2)
    price, year = f"{sampler.integer(1, 9)}.{sampler.integer(1, 9)}", sampler.integer(1980, 2030)
    return {"text": f"{one}{year}{other}，{price}元"}


def figure_next_to_stop_inputs(sampler: InputSampler) -> dict:
    """Put an ASCII stop after a digit and an ASCII comma before one, with Chinese characters on the other sides."""
    one, other, third = some_characters(sampler, 3)
    return {"text": f"{one}{sampler.integer(2, 9)}.{other},{sampler.integer(2, 9)}{third}"}


def ascii_punctuation_inputs(sampler: InputSampler) -> dict:
    one, other = some_names(sampler, 2)
    first, second = some_characters(sampler, 2)
    return {"text": f"{first}{second}({one}), {other}!"}


def accents_inputs(sampler: InputSampler) -> dict:
    one, other = some_names(sampler, 2, ACCENTED)
    characters = some_characters(sampler, 3)
    return {"text": f"{characters[0]}{one}{characters[1]}{other}{characters[2]}。"}


def everything_inputs(sampler: InputSampler) -> dict:
    """Mix Chinese characters, words, a number, spaces, and both kinds of punctuation."""
    one, other = some_names(sampler, 2)
    characters = some_characters(sampler, 5)
    price = f"{sampler.integer(1, 9)}.{sampler.integer(1, 9)}"
    text = f"{characters[0]}{one} {other}，{characters[1]}{characters[2]}({price})"
    return {"text": f"{text}: {some_names(sampler, 1, ACCENTED)[0]}！{characters[3]}{characters[4]}?"}


def spaced_inputs(sampler: InputSampler) -> dict:
    characters = some_characters(sampler, 4)
    return {"text": "".join(characters), "spaced": " ".join(characters) + " "}


def split_both_ways(subject, text, spaced):
    return {"without spaces": subject(text), "with spaces": subject(spaced)}


same_tokens = equal_results(
    "a space between two Chinese characters changes the tokens, although Chinese is written without spaces"
)


def nothing_is_lost(inputs, received):
    if "".join(received) != inputs["text"].replace(" ", ""):
        return "joined together, the tokens don't spell the sentence without its spaces"
    return None


def no_token_with_a_space(inputs, received):
    return None if all(token and " " not in token for token in received) else "a token is empty or contains a space"


SPLIT_CHINESE = Exercise(
    answer=split_chinese,
    points=2,
    minutes=15,
    returns=("tokens",),
    banned=("sacrebleu.", "jieba.", "nltk."),
    probes=[
        Probe(
            "a sentence of Chinese characters",
            lambda sampler: {"text": "".join(some_characters(sampler, sampler.integer(3, 6)))},
        ),
        Probe("two Latin words between Chinese characters", latin_words_inputs),
        Probe("full-width punctuation next to a Latin word", full_width_inputs),
        Probe("a year and a price", figures_inputs),
        Probe("an ASCII stop between a digit and a Chinese character", figure_next_to_stop_inputs),
        Probe(
            "a Latin word at the end",
            lambda sampler: {
                "text": "".join(some_characters(sampler, sampler.integer(2, 4))) + " ".join(some_names(sampler, 2))
            },
        ),
        Probe("brackets and punctuation in ASCII", ascii_punctuation_inputs),
        Probe(
            "a word in uppercase",
            lambda sampler: {
                "text": some_names(sampler, 1)[0].upper() + "".join(some_characters(sampler, sampler.integer(2, 4)))
            },
        ),
        Probe("words with accented letters stay whole", accents_inputs),
    ],
    properties=[
        Property("nothing but spaces is lost", everything_inputs, nothing_is_lost),
        Property("no token is empty or contains a space", everything_inputs, no_token_with_a_space),
        Property("spaces between Chinese characters don't matter", spaced_inputs, same_tokens, split_both_ways),
    ],
    hints=[
        "It takes two steps: set the Chinese characters apart, then let `words_13a`, which splits at spaces, do what's "
        "left.",
        'Go through the text character by character. A Chinese one becomes `f" {character} "`; any other stays as it '
        "is.",
        '`words_13a("".join(f" {character} " if is_chinese_character(character) else character for character in '
        "text))`.",
    ],
)

# --- chinese_bleu -----------------------------------------------------------------------------------------------------


def spoiled(sampler: InputSampler, characters: list[str], others: list[str], kept: int = 4) -> str:
    """Replace one to four of the characters, but none of the first `kept`: four in a row keep the score above 0."""
    result = list(characters)
    places = sampler.order(len(characters) - kept)[: sampler.integer(1, 4)]
    for place, other in zip(places, others, strict=False):
        result[kept + place] = other
    return "".join(result)


def replaced_inputs(sampler: InputSampler) -> dict:
    characters = some_characters(sampler, sampler.integer(14, 20))
    others, reference = characters[:4], characters[4:]
    return pair_of(spoiled(sampler, reference, others), "".join(reference))


def wrong_letter_inputs(sampler: InputSampler) -> dict:
    """Put a full-width comma after the name, and two more words at the end."""
    name, *words = some_names(sampler, 3)
    characters = some_characters(sampler, sampler.integer(14, 21))
    others, before, after = characters[:4], "".join(characters[4:8]), characters[8:]
    return pair_of(
        f"{before}{name[:-1]}q，{spoiled(sampler, after, others, 0)}{' '.join(words)}",
        f"{before}{name}，{''.join(after)}{' '.join(words)}",
    )


def missing_name_inputs(sampler: InputSampler) -> dict:
    name = some_names(sampler, 1)[0]
    characters = some_characters(sampler, sampler.integer(14, 20))
    others, characters = characters[:4], characters[4:]
    place = sampler.integer(4, len(characters))
    reference = "".join([*characters[:place], name, *characters[place:]])
    return pair_of(spoiled(sampler, characters, others) + "。", f"{reference}。")


def two_sentences_inputs(sampler: InputSampler) -> dict:
    """Cut the end off the first hypothesis. Put characters of the first reference into the second one."""
    characters = some_characters(sampler, 25)
    first, second = characters[4 : sampler.integer(14, 17)], characters[17 : sampler.integer(22, 25)]
    kept, right = len(first) - sampler.integer(1, 3), sampler.integer(2, 4)
    return {
        "hypotheses": [
            spoiled(sampler, first[:kept], characters[:4]),
            "".join([*second[:right], first[-1], first[-2], "。"]),
        ],
        "references": ["".join(first), "".join([*second, "。"])],
    }


def too_long_inputs(sampler: InputSampler) -> dict:
    characters = some_characters(sampler, 25)
    others, before, after = (
        characters[:4],
        characters[4 : sampler.integer(5, 7)],
        characters[7 : sampler.integer(9, 11)],
    )
    reference = characters[11 : sampler.integer(19, 25)]
    hypothesis = "".join(before) + spoiled(sampler, reference, others) + "".join(after)
    return pair_of(hypothesis, "".join(reference))


def segmented_inputs(sampler: InputSampler) -> dict:
    """Put spaces into the hypothesis, where a word segmenter might leave them, and cut off its end."""
    characters = some_characters(sampler, sampler.integer(15, 20))
    others, reference = characters[:4], characters[4:]
    hypothesis = spoiled(sampler, reference[: -sampler.integer(1, 3)], others)
    places = [sampler.integer(1, 2), sampler.integer(3, 4), len(hypothesis)]
    pieces = [hypothesis[one:other] for one, other in zip([0, *places], places, strict=False)]
    return pair_of(" ".join([*pieces, "。"]), "".join([*reference, "。"]))


def lowercase_name_inputs(sampler: InputSampler) -> dict:
    """Let a name in the middle be right, but for its capital."""
    name = some_names(sampler, 1)[0]
    characters = some_characters(sampler, sampler.integer(14, 20))
    others, before, after = characters[:4], "".join(characters[4:9]), characters[9:]
    return pair_of(f"{before}{name.lower()}{spoiled(sampler, after, others, 0)}", f"{before}{name}{''.join(after)}")


def nothing_said_inputs(sampler: InputSampler) -> dict:
    """Put an empty translation before or after one with a few wrong characters."""
    characters = some_characters(sampler, sampler.integer(20, 25))
    others, untranslated, reference = characters[:4], "".join(characters[4:7]), characters[7:]
    pairs = [(spoiled(sampler, reference, others), "".join(reference)), ("", untranslated)]
    hypotheses, references = zip(*sampler.shuffled(pairs), strict=True)
    return {"hypotheses": list(hypotheses), "references": list(references)}


def bracket_inputs(sampler: InputSampler) -> dict:
    """Let the last word be right, but for its missing brackets: for 13a they are tokens of their own."""
    *words, last = some_names(sampler, sampler.integer(5, 6))
    characters = some_characters(sampler, sampler.integer(16, 22))
    others, before, after = characters[:4], characters[4 : sampler.integer(6, 10)], characters[10:]
    start = "".join(before) + " " + " ".join(words)
    return pair_of(f"{start} {last}!{spoiled(sampler, after, others, 0)}", f"{start} ({last})!{''.join(after)}")


def no_four_in_a_row_inputs(sampler: InputSampler) -> dict:
    """Let three tokens in a row be right, but never four: without smoothing, the score is 0.

    The words at the end are the only ones that 13a finds in both.
    """
    characters = some_characters(sampler, 11)
    one, other, wrong, *rest = some_names(sampler, 5)
    hypothesis = [*characters[:3], characters[9], *characters[4:7], characters[10]]
    return pair_of(
        " ".join(["".join(hypothesis), one, wrong, *rest]), " ".join(["".join(characters[:8]), one, other, *rest])
    )


def not_smoothed(inputs, received):
    if abs(received) > 1e-9:
        return f"no four tokens in a row are right, so the score should be 0 without smoothing; it is {received:.4g}"
    return None


def score_of_references(subject, references):
    return subject(references, references)


def the_same_is_100(inputs, received):
    return None if abs(received - 100) < 1e-6 else "the references don't score 100 against themselves"


def scores_both_ways(subject, hypotheses, references):
    return {"as they are": subject(hypotheses, references), "reversed": subject(hypotheses[::-1], references[::-1])}


def order_does_not_matter(inputs, received):
    same = abs(received["as they are"] - received["reversed"]) < 1e-6
    return None if same else "the score changes with the order of the sentences"


def never_silently_wrong(inputs, received):
    if "nothing" in received:
        return "expected a `ValueError` if a sentence has no counterpart; nothing was raised, and a score came out"
    if set(received) != {"ValueError"}:
        names = " and ".join(f"`{name}`" for name in dict.fromkeys(received))
        return Remark(
            f"For unequal numbers of hypotheses and references, it raises {names}. A `ValueError` that says so tells "
            "the caller right away what's wrong, and `bleu` already raises one."
        )
    return None


CHINESE_BLEU = Exercise(
    answer=chinese_bleu,
    points=1,
    minutes=10,
    returns=("score",),
    builds_on=("split_chinese", "bleu"),
    banned=("sacrebleu.", "nltk.", "torchtext.data."),
    probes=[
        Probe("a few wrong characters", replaced_inputs),
        Probe("a name with a wrong letter", wrong_letter_inputs),
        Probe("a name is left out", missing_name_inputs),
        Probe("two sentences", two_sentences_inputs),
        Probe("a translation that's too long", too_long_inputs),
        Probe("a hypothesis with spaces", segmented_inputs),
        Probe("a word without its brackets", bracket_inputs),
        Probe("a name without its capital letter", lowercase_name_inputs),
        Probe("an empty translation", nothing_said_inputs),
    ],
    properties=[
        Property(
            "references score 100 against themselves",
            lambda sampler: {"references": two_sentences_inputs(sampler)["references"]},
            the_same_is_100,
            score_of_references,
        ),
        Property(
            "the order of the sentences doesn't matter", two_sentences_inputs, order_does_not_matter, scores_both_ways
        ),
        Property("without four right tokens in a row, the score is 0", no_four_in_a_row_inputs, not_smoothed),
        Property(
            "unequal numbers of sentences don't get a score",
            two_sentences_inputs,
            never_silently_wrong,
            scores_of_unequal_numbers,
        ),
    ],
    hints=[
        "The `bleu` of notebook 12 takes lists of tokens, one per sentence. You've just written the function that "
        "makes them.",
        "Split every hypothesis and every reference with `split_chinese`, and pass both lists to `bleu`.",
        "`bleu([split_chinese(text) for text in hypotheses], [split_chinese(text) for text in references])`.",
    ],
)

EXERCISES = [SPLIT_CHINESE, CHINESE_BLEU]
