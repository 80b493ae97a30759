"""Notebook 23, other languages: how a Chinese sentence is cut, and what BLEU makes of it."""

from transformer_lab.electives.other_languages import chinese_bleu, is_chinese_character, split_chinese, words_13a
from transformer_lab.evaluation.bleu import bleu
from transformer_lab.exercises.draw import Draw
from transformer_lab.exercises.exercise import Exercise, Misconception, Probe, Property
from transformer_lab.exercises.recipes import raised

CHARACTERS = "我你他她们今天明学校老师朋友喜欢吃买看书水果红花苹面包米饭去来说话中国人大小多少"
NAMES = ("Tom", "Mary", "Python", "Berlin", "Linux", "Alice")


def some_characters(draw: Draw, count: int) -> list[str]:
    """Chinese characters, each another."""
    return [CHARACTERS[index] for index in draw.order(len(CHARACTERS))[:count]]


def some_names(draw: Draw, count: int) -> list[str]:
    return [NAMES[index] for index in draw.order(len(NAMES))[:count]]


# --- split_chinese ----------------------------------------------------------------------------------------------------


def characters_inputs(draw: Draw) -> dict:
    return {"text": "".join(some_characters(draw, draw.integer(4, 5)))}


def latin_word_inputs(draw: Draw) -> dict:
    """Two words with a space between them, and characters on both sides without one."""
    one, other = some_names(draw, 2)
    characters = some_characters(draw, 4)
    return {"text": "".join([*characters[:2], one, " ", other, *characters[2:]])}


def full_width_inputs(draw: Draw) -> dict:
    """The comma stands beside a Latin word, and the stop at the end."""
    characters = some_characters(draw, 3)
    return {"text": "".join([*some_names(draw, 1), "，", *characters, "。"])}


def figures_inputs(draw: Draw) -> dict:
    one, other = some_characters(draw, 2)
    price, year = f"{draw.integer(1, 9)}.{draw.integer(1, 9)}", draw.integer(1980, 2030)
    return {"text": f"{one}{year}{other}，{price}元"}


def figure_beside_stop_inputs(draw: Draw) -> dict:
    """A stop or a comma of ASCII, with a figure on one side and a Chinese character on the other."""
    one, other, third = some_characters(draw, 3)
    return {"text": f"{one}{draw.integer(2, 9)}.{other},{draw.integer(2, 9)}{third}"}


def ends_in_latin_inputs(draw: Draw) -> dict:
    return {"text": "".join(some_characters(draw, 3)) + " ".join(some_names(draw, 2))}


def ascii_signs_inputs(draw: Draw) -> dict:
    one, other = some_names(draw, 2)
    first, second = some_characters(draw, 2)
    return {"text": f"{first}{second}({one}), {other}!"}


def capitals_inputs(draw: Draw) -> dict:
    return {"text": some_names(draw, 1)[0].upper() + "".join(some_characters(draw, 2))}


def spaced_inputs(draw: Draw) -> dict:
    characters = some_characters(draw, 4)
    return {"text": "".join(characters), "spaced": " ".join(characters) + " "}


def split_both_ways(subject, text, spaced):
    return {"without spaces": subject(text), "with spaces": subject(spaced)}


def same_tokens(inputs, received):
    if received["without spaces"] != received["with spaces"]:
        return "a space between two Chinese characters changes the tokens: Chinese writes none, and it means nothing"
    return None


def nothing_is_lost(inputs, received):
    if "".join(received) != inputs["text"].replace(" ", ""):
        return "the tokens, written one after the other, are not the sentence without its spaces"
    return None


def no_token_with_a_space(inputs, received):
    return None if all(token and " " not in token for token in received) else "a token is empty or holds a space"


def apart(text, is_character=is_chinese_character, words=words_13a):
    return words("".join(f" {sign} " if is_character(sign) else sign for sign in text))


def runs(text):
    """Chinese characters one by one, and what stands between them in one piece."""
    found = [""]
    for sign in text:
        if is_chinese_character(sign):
            found += [sign, ""]
        else:
            found[-1] += sign
    return [run for run in found if run]


def last_chinese(text):
    return max((place for place, sign in enumerate(text) if is_chinese_character(sign)), default=-1)


def is_ideograph(sign):
    return "\u4e00" <= sign <= "\u9fff"


SPLIT_CHINESE = Exercise(
    answer=split_chinese,
    points=2,
    minutes=15,
    returns=("tokens",),
    banned=("sacrebleu.", "jieba.", "nltk."),
    probes=[
        Probe("a sentence of Chinese characters", characters_inputs),
        Probe("two Latin words among them", latin_word_inputs),
        Probe("a full-width comma beside a Latin word", full_width_inputs),
        Probe("a year and a price", figures_inputs),
        Probe("a stop of ASCII between a figure and a character", figure_beside_stop_inputs),
        Probe("a Latin word at the end", ends_in_latin_inputs),
        Probe("brackets and signs of ASCII", ascii_signs_inputs),
        Probe("a word in capitals", capitals_inputs),
    ],
    properties=[
        Property("nothing but spaces is lost", ends_in_latin_inputs, nothing_is_lost),
        Property("no token is empty or holds a space", latin_word_inputs, no_token_with_a_space),
        Property("spaces between Chinese characters mean nothing", spaced_inputs, same_tokens, split_both_ways),
    ],
    misconceptions=[
        Misconception(
            "split_at_spaces",
            lambda text: text.split(),
            "The sentence is cut at spaces. Chinese has none between words, so that a sentence is one token: right as"
            " a whole, or wrong as a whole.",
        ),
        Misconception(
            "words_13a_alone",
            lambda text: words_13a(text),
            "The rules for European languages are applied alone. They know spaces and the punctuation of ASCII, and "
            "leave a run of Chinese characters, with its full-width punctuation, as one word.",
        ),
        Misconception(
            "every_sign",
            lambda text: list(text.replace(" ", "")),
            "Latin words and figures are cut into letters too. Only Chinese characters stand alone; *Python* is one "
            "word, and got right or wrong once, not six times.",
        ),
        Misconception(
            "every_sign_and_space",
            lambda text: list(text),
            "Each sign is a token, spaces too. Spaces are no tokens, and Latin words and figures stay whole.",
        ),
        Misconception(
            "ideographs_alone",
            lambda text: apart(text, is_ideograph),
            "Only the ideographs are taken apart. The full-width comma and stop (，。) stay with the word beside them, "
            "since 13a knows the signs of ASCII alone: ask `is_chinese_character`, which knows them.",
        ),
        Misconception(
            "rest_at_spaces",
            lambda text: apart(text, words=str.split),
            "What is not Chinese is cut at spaces alone, so that brackets and exclamation marks of ASCII stay on their "
            "words. `words_13a` takes them off.",
        ),
        Misconception(
            "rest_is_lost",
            lambda text: [sign for sign in text if is_chinese_character(sign)],
            "Only Chinese characters are kept. A translation that leaves out the name, or gets the year wrong, would "
            "lose nothing.",
        ),
        Misconception(
            "spaces_out_first",
            lambda text: apart(text.replace(" ", "")),
            "All spaces are taken out before the words are cut, so that two Latin words become one. Only between "
            "Chinese characters a space means nothing.",
        ),
        Misconception(
            "run_by_run",
            lambda text: [
                token for run in runs(text) for token in ([run] if is_chinese_character(run[0]) else words_13a(run))
            ],
            "Each run between Chinese characters is handed to `words_13a` alone. Its rules look at what stands beside "
            "a stop: after a figure, and before anything but a figure, it is cut off, and where the run ends they "
            "cannot see that. Set spaces around the Chinese characters and hand over the whole text.",
        ),
        Misconception(
            "last_run_lost",
            lambda text: apart(text[: last_chinese(text) + 1]),
            "What comes after the last Chinese character is lost: a loop that hands a run on when a Chinese character "
            "ends it has to do so at the end of the text as well.",
        ),
        Misconception(
            "runs_uncut",
            lambda text: [run for run in runs(text) if run.strip()],
            "What stands between Chinese characters becomes one token, however many words and signs it has: "
            "`words_13a` cuts it.",
        ),
        Misconception(
            "space_before_alone",
            lambda text: words_13a("".join(f" {sign}" if is_chinese_character(sign) else sign for sign in text)),
            "A space is set before each Chinese character and none behind it, so that a Latin word sticks to the "
            "character before it.",
        ),
        Misconception(
            "lowercased",
            lambda text: apart(text.lower()),
            "Capitals are made small. Scores here are cased, unless their signature says `case:lc`.",
        ),
    ],
    hints=[
        "There are two steps: set the Chinese characters apart, and hand the whole to `words_13a`, which cuts at "
        "spaces.",
        'Go through the text sign by sign. A Chinese one becomes `f" {sign} "`, any other stays as it is.',
        '`words_13a("".join(f" {sign} " if is_chinese_character(sign) else sign for sign in text))`.',
    ],
)

# --- chinese_bleu -----------------------------------------------------------------------------------------------------


def replaced_inputs(draw: Draw) -> dict:
    """One of nine characters is another."""
    characters = some_characters(draw, 10)
    return {
        "hypotheses": ["".join([*characters[:7], characters[9], characters[8]])],
        "references": ["".join(characters[:9])],
    }


def latin_names_inputs(draw: Draw) -> dict:
    """The names differ in a letter; one has two words; the comma is full-width."""
    one, other = some_names(draw, 2)
    characters = some_characters(draw, 7)
    text = "".join(characters[:5]) + "{}，" + "".join(characters[5:]) + other + " X"
    return {"hypotheses": [text.format(one[:-1] + "y")], "references": [text.format(one)]}


def latin_sentence_inputs(draw: Draw) -> dict:
    """All Chinese characters are right, and the name is left out."""
    name = some_names(draw, 1)[0]
    characters = "".join(some_characters(draw, 7))
    return {"hypotheses": [f"{characters}。"], "references": [f"{name}{characters}。"]}


def two_sentences_inputs(draw: Draw) -> dict:
    """The first is nearly right and short of an end; the second has characters of the first one's reference."""
    characters = some_characters(draw, 15)
    first, second = characters[:9], characters[9:]
    return {
        "hypotheses": ["".join(first[:7]), "".join([*second[:3], first[8], first[7], "。"])],
        "references": ["".join(first), "".join([*second, "。"])],
    }


def too_long_inputs(draw: Draw) -> dict:
    characters = "".join(some_characters(draw, 10))
    return {"hypotheses": [characters], "references": [characters[1:8]]}


def segmented_inputs(draw: Draw) -> dict:
    """The hypothesis has spaces, as a program that segments words leaves them."""
    characters = some_characters(draw, 9)
    pieces = ["".join(characters[:2]), characters[2], "".join(characters[3:6]), characters[8], "。"]
    return {"hypotheses": [" ".join(pieces)], "references": ["".join([*characters[:8], "。"])]}


def signs_inputs(draw: Draw) -> dict:
    """Words in a row, the last with a bracket and without one: the same word for 13a."""
    *names, last = some_names(draw, 5)
    start = "".join(some_characters(draw, 4)) + " " + " ".join(names)
    return {"hypotheses": [f"{start} {last}!"], "references": [f"{start} ({last})!"]}


def no_four_in_a_row_inputs(draw: Draw) -> dict:
    """Three characters in a row are right, and never four: without smoothing the score is 0."""
    characters = some_characters(draw, 11)
    hypothesis = [*characters[:3], characters[9], *characters[4:7], characters[10]]
    return {"hypotheses": ["".join(hypothesis)], "references": ["".join(characters[:8])]}


def not_smoothed(inputs, received):
    if abs(received) > 1e-9:
        return f"no four tokens in a row are right, and the score is {received:.4g}: without smoothing it is 0"
    return None


def score_of_references(subject, references):
    return subject(references, references)


def the_same_is_100(inputs, received):
    return None if abs(received - 100) < 1e-6 else "the references themselves do not score 100"


def scores_both_ways(subject, hypotheses, references):
    return {"as they are": subject(hypotheses, references), "turned": subject(hypotheses[::-1], references[::-1])}


def order_does_not_matter(inputs, received):
    same = abs(received["as they are"] - received["turned"]) < 1e-6
    return None if same else "the score changes with the order of the sentences"


def refused_sides(subject, hypotheses, references):
    return [raised(subject, hypotheses, references[:-1]), raised(subject, hypotheses[:-1], references)]


def unequal_sides_are_refused(inputs, received):
    if received != ["ValueError"] * 2:
        given = [name if name != "nothing" else "no error" for name in received]
        return (
            f"a reference too few gives {given[0]}, a hypothesis too few {given[1]}: `ValueError` is asked for, or "
            "sentences without a counterpart are left aside in silence"
        )
    return None


def bleu_of(split):
    """A `chinese_bleu` that cuts in another way."""

    def score(hypotheses, references):
        return bleu([split(text) for text in hypotheses], [split(text) for text in references])

    return score


def mean_of_sentences(hypotheses, references):
    scores = [chinese_bleu([one], [other]) for one, other in zip(hypotheses, references, strict=True)]
    return sum(scores) / len(scores)


def one_long_sentence(hypotheses, references):
    if len(hypotheses) != len(references):
        raise ValueError("not as many references as hypotheses")
    sides = [[token for text in side for token in split_chinese(text)] for side in (hypotheses, references)]
    return bleu([sides[0]], [sides[1]])


def smoothed(hypotheses, references):
    from sacrebleu.metrics import BLEU

    if len(hypotheses) != len(references):
        raise ValueError("not as many references as hypotheses")
    tokenized = [[" ".join(split_chinese(text)) for text in side] for side in (hypotheses, references)]
    return BLEU(tokenize="none", force=True).corpus_score(tokenized[0], [tokenized[1]]).score


def left_aside(hypotheses, references):
    hypotheses, references = zip(*zip(hypotheses, references, strict=False), strict=True)
    return chinese_bleu(hypotheses, references)


def lists_of_references(hypotheses, references):
    return bleu([split_chinese(text) for text in hypotheses], [[split_chinese(text)] for text in references])


CHINESE_BLEU = Exercise(
    answer=chinese_bleu,
    points=1,
    minutes=10,
    returns=("score",),
    builds_on=("split_chinese", "bleu"),
    banned=("sacrebleu.", "nltk.", "torchtext.data."),
    probes=[
        Probe("one character of nine is wrong", replaced_inputs),
        Probe("a name with a wrong letter", latin_names_inputs),
        Probe("a name is left out", latin_sentence_inputs),
        Probe("two sentences", two_sentences_inputs),
        Probe("a translation that is too long", too_long_inputs),
        Probe("a hypothesis with spaces", segmented_inputs),
        Probe("a bracket of ASCII", signs_inputs),
    ],
    properties=[
        Property(
            "the references themselves score 100",
            lambda draw: {"references": two_sentences_inputs(draw)["references"]},
            the_same_is_100,
            score_of_references,
        ),
        Property(
            "the order of the sentences does not matter", two_sentences_inputs, order_does_not_matter, scores_both_ways
        ),
        Property("without four right tokens in a row it is 0", no_four_in_a_row_inputs, not_smoothed),
        Property("a reference for each hypothesis", two_sentences_inputs, unequal_sides_are_refused, refused_sides),
    ],
    misconceptions=[
        Misconception(
            "strings",
            lambda hypotheses, references: bleu(hypotheses, references),
            "The sentences are handed to `bleu` as strings, and a string is a list of its signs: it counts letters and "
            "spaces as tokens. Cut the sentences with `split_chinese` first.",
        ),
        Misconception(
            "every_sign",
            bleu_of(lambda text: list(text.replace(" ", ""))),
            "Letters of Latin words count as tokens of their own: a long name weighs more than a sentence. "
            "`split_chinese` leaves words whole.",
        ),
        Misconception(
            "split_at_spaces",
            bleu_of(str.split),
            "The sentences are cut at spaces, and Chinese has none: there are no four tokens in a row to match, and "
            "the score is 0, or rewards spaces.",
        ),
        Misconception(
            "words_13a_alone",
            bleu_of(words_13a),
            "The sentences are cut by 13a, the rules for European languages. A run of Chinese characters is one token "
            "there, so that hardly anything matches. Published scores of Chinese have `tok:zh` in their signature.",
        ),
        Misconception(
            "rest_is_lost",
            bleu_of(lambda text: [sign for sign in text if is_chinese_character(sign)]),
            "Only Chinese characters are compared: a name that is missing or wrong costs nothing.",
        ),
        Misconception(
            "joined_again",
            bleu_of(lambda text: " ".join(split_chinese(text))),
            "The tokens are joined to a string again before `bleu` gets them, and a string is a list of its signs, "
            "spaces and letters of Latin words among them. Hand over the lists of tokens.",
        ),
        Misconception(
            "as_a_fraction",
            lambda hypotheses, references: chinese_bleu(hypotheses, references) / 100,
            "The score is a fraction. `bleu` gives it from 0 to 100 already, as papers do.",
        ),
        Misconception(
            "hundredfold",
            lambda hypotheses, references: chinese_bleu(hypotheses, references) * 100,
            "The score is a hundred times too great: `bleu` gives it from 0 to 100 already.",
        ),
        Misconception(
            "smoothed",
            smoothed,
            "The n-grams are counted with smoothing, sacreBLEU's default: a precision of 0 is taken for a small "
            "number. `bleu` of notebook 11 does without.",
        ),
        Misconception(
            "counterparts_left_aside",
            left_aside,
            "Two lists of different lengths get a score all the same. What has no counterpart counts nowhere, and "
            "nobody hears of it: raise `ValueError`.",
        ),
        Misconception(
            "lists_of_references",
            lists_of_references,
            "Each reference is put into a list of its own, as sacreBLEU and torchtext take several for a sentence. "
            "`bleu` of notebook 11 takes one, as a list of tokens.",
        ),
        Misconception(
            "mean_of_sentences",
            mean_of_sentences,
            "Each sentence is scored, and the scores are averaged. BLEU is one number of a whole corpus: matches and "
            "lengths are added up first (Papineni et al. 2002, section 2.1).",
        ),
        Misconception(
            "one_long_sentence",
            one_long_sentence,
            "All sentences are joined to one. A character is then right if it stands anywhere in the corpus: give "
            "`bleu` a list of tokens for each sentence.",
        ),
        Misconception(
            "sides_swapped",
            lambda hypotheses, references: chinese_bleu(references, hypotheses),
            "Hypotheses and references have changed places. The precision is that of the hypotheses, and it is they "
            "that may be too short.",
        ),
    ],
    hints=[
        "`bleu` of notebook 11 takes lists of tokens, one list for each sentence. You have just written what makes "
        "them.",
        "Cut every hypothesis and every reference with `split_chinese`, and hand both lists to `bleu`.",
        "`bleu([split_chinese(text) for text in hypotheses], [split_chinese(text) for text in references])`.",
    ],
)

EXERCISES = [SPLIT_CHINESE, CHINESE_BLEU]
