"""Notebook 23, other languages: a split without data leakage, and tokens and BLEU for Chinese."""

from collections.abc import Callable

from transformer_lab.electives.leakage import split_without_leakage
from transformer_lab.electives.other_languages import chinese_bleu, split_chinese
from transformer_lab.exercises.exercise import Exercise, Probe, Property, Remark
from transformer_lab.exercises.notebook_12_bleu import corpus_of, exceptions_of_unequal_numbers
from transformer_lab.exercises.rules import equal_results, requirement
from transformer_lab.exercises.sampling import InputSampler, sampled_until

CHARACTERS = "我你他她们今天明学校老师朋友喜欢吃买看书水果红花苹面包米饭去来说话中国人大小多少"
NAMES = ("Tom", "Mary", "Python", "Berlin", "Linux", "Alice")
ACCENTED = ("José", "Zoë", "Müller", "Renée", "Jürgen", "Chloé")


def some_characters(sampler: InputSampler, count: int) -> list[str]:
    """Return `count` Chinese characters, all different."""
    return sampler.shuffled(CHARACTERS)[:count]


def some_names(sampler: InputSampler, count: int, names: tuple[str, ...] = NAMES) -> list[str]:
    return sampler.shuffled(names)[:count]


# --- split_without_leakage --------------------------------------------------------------------------------------------

# Three ways to say the same thing in English, and three in French. Each can be the translation of any of the others.
PHRASES = (
    (("Wait!", "Hold on!", "Just a moment."), ("Attends !", "Une minute !", "Un instant.")),
    (("Sorry.", "Excuse me.", "I apologize."), ("Pardon.", "Désolé.", "Excusez-moi.")),
    (("Hi.", "Hello!", "Good morning."), ("Salut.", "Bonjour.", "Coucou !")),
    (("Bye.", "See you.", "So long."), ("Au revoir.", "À bientôt.", "À plus tard.")),
    (("Of course.", "Sure.", "Certainly."), ("Bien sûr.", "Évidemment.", "Certainement.")),
    (("Great!", "Perfect!", "Wonderful!"), ("Super !", "Parfait !", "Merveilleux !")),
    (("Hurry up!", "Be quick!", "Faster!"), ("Dépêche-toi !", "Vite !", "Plus vite !")),
    (("Shut up!", "Be quiet.", "Silence!"), ("Tais-toi !", "Du calme.", "Silence, s'il te plaît !")),
)
UNRELATED = (
    *(("I came.", "Je suis venu."), ("It's cold.", "Il fait froid."), ("Tom runs.", "Tom court.")),
    *(("We lost.", "Nous avons perdu."), ("She reads.", "Elle lit."), ("I'm hungry.", "J'ai faim.")),
    *(("He sings.", "Il chante."), ("They sleep.", "Ils dorment."), ("You won.", "Tu as gagné.")),
    *(("It snows.", "Il neige."), ("I know Mary.", "Je connais Marie."), ("The dog barks.", "Le chien aboie.")),
)


def phrases(sampler: InputSampler, count: int) -> list[tuple[list[str], list[str]]]:
    """Return `count` of the `PHRASES`, with the sentences of each language in random order."""
    return [tuple(map(sampler.shuffled, both)) for both in sampler.shuffled(PHRASES)[:count]]


def table_of(sampler: InputSampler, related: list[tuple[str, str]], singles: int, held_out: int) -> dict:
    """Mix the related pairs with `singles` unrelated pairs."""
    return {"pairs": sampler.shuffled([*related, *sampler.shuffled(UNRELATED)[:singles]]), "held_out": held_out}


def related(*links: tuple[int, int], singles: int, held_out: int) -> Callable[[InputSampler], dict]:
    """Return inputs with pairs that share sentences. Each link contains the indices of an English and a French one."""

    def inputs(sampler: InputSampler) -> dict:
        ((english, french),) = phrases(sampler, 1)
        return table_of(sampler, [(english[one], french[other]) for one, other in links], singles, held_out)

    return inputs


def near_duplicates_inputs(sampler: InputSampler) -> dict:
    """Change the case of one source, the punctuation of another, and the punctuation and spacing of a target."""
    (one, other), (english, french), (last_english, last_french) = phrases(sampler, 3)
    related = [
        *((one[0], other[0]), (one[0].upper(), other[1])),
        *((english[0], french[0]), (english[0].rstrip("!.") + "...", french[1])),
        *((last_english[0], last_french[0]), (last_english[1], last_french[0].replace(" !", "").rstrip(".") + "!")),
    ]
    return table_of(sampler, related, 3, 2)


def sizes_inputs(sampler: InputSampler) -> dict:
    """Mix groups of two pairs with enough single pairs to fill both held-out sets, regardless of the order."""
    related = [(english[0], one) for english, french in phrases(sampler, 3) for one in french[:2]]
    held_out = sampler.integer(2, 4)
    return table_of(sampler, related, 2 * held_out, held_out)


def copies_inputs(sampler: InputSampler) -> dict:
    """Return pairs, one of which occurs twice."""
    (english, french), (other_english, other_french) = phrases(sampler, 2)
    related = [
        *((english[0], french[0]), (english[0], french[1])),
        *[(other_english[0], other_french[0])] * 2,
    ]
    return table_of(sampler, related, 5, 2)


def kept_together(subject, pairs, held_out):
    """Return the groups of pairs that end up in the same set for all 20 seeds and orders of the pairs.

    Unrelated pairs are separated at some point, no matter how the generator is used, so the result depends only on the
    groups.
    """
    import random

    places = {pair: [] for pair in pairs}
    for seed in range(20):
        mixed = list(pairs)
        random.Random(1000 + seed).shuffle(mixed)
        sets = subject(mixed, held_out, seed)
        for pair in pairs:
            places[pair].append([pair in one for one in sets])
    groups = {}
    for (source, target), place in places.items():
        groups.setdefault(str(place), []).append(f"{source} / {target}")
    return {"pairs that stay together": sorted(map(sorted, groups.values()))}


def sizes_of_sets(subject, pairs, held_out):
    """Return the smallest and the largest size of each held-out set over 20 seeds."""
    sizes = {"validation": [], "test": []}
    for seed in range(20):
        _, validation, test = subject(list(pairs), held_out, seed)
        sizes["validation"].append(len(validation))
        sizes["test"].append(len(test))
    return {f"smallest and largest {name} set": [min(seen), max(seen)] for name, seen in sizes.items()}


def always_in_training(subject, pairs, held_out):
    """Return the pairs that are in the training set for all 20 seeds."""
    training = [subject(list(pairs), held_out, seed)[0] for seed in range(20)]
    always = [pair for pair in pairs if all(pair in one for one in training)]
    return {"always in the training set": sorted(f"{source} / {target}" for source, target in always)}


def lost_and_added(subject, pairs, held_out):
    """Return whether the sets lack any of the `pairs`, and the types of any additional items in them."""
    from collections import Counter

    sets = subject(pairs, held_out, 1)
    returned = [tuple(item) if isinstance(item, list) and len(item) == 2 else item for one in sets for item in one]
    lost = Counter(map(str, pairs)) - Counter(map(str, returned))
    added = Counter(map(str, returned)) - Counter(map(str, pairs))
    kinds = {type(item).__name__ for item in returned if str(item) in added}
    return {"lost": bool(lost), "added": sorted(kinds)}


def sets_of_copies(subject, pairs, held_out):
    """Return whether the pair that occurs twice is in two sets for any of the 20 seeds."""
    twice = next(pair for pair in pairs if pairs.count(pair) == 2)
    return any(sum(twice in one for one in subject(list(pairs), held_out, seed)) > 1 for seed in range(20))


def same_seed_twice(subject, pairs, held_out):
    sets = [[sorted(map(str, one)) for one in subject(list(pairs), held_out, seed)] for seed in (1, 2, 3, 1, 2, 3)]
    return {"first": sets[:3], "again": sets[3:]}


def number_of_splits(subject, pairs, held_out):
    return len({str([sorted(map(str, one)) for one in subject(list(pairs), held_out, seed)]) for seed in range(10)})


def every_pair_once(inputs, received):
    if received["lost"] and received["added"]:
        names = {"tuple": "pairs", "list": "lists", "int": "integers", "str": "strings"}
        found = " and ".join(names.get(kind, f"`{kind}` objects") for kind in received["added"])
        return f"the three sets contain {found} that aren't among the pairs passed in"
    if received["lost"]:
        return "a pair that was passed in is missing from the three sets or occurs fewer times in them"
    return "the three sets together contain a pair more times than the input does" if received["added"] else None


SPLIT_WITHOUT_LEAKAGE = Exercise(
    answer=split_without_leakage,
    points=3,
    minutes=30,
    returns=("result",),
    banned=("sklearn.", "networkx.", "transformer_lab.data.corpora.related_pairs"),
    call=kept_together,
    probes=[
        Probe("two pairs with the same source sentence stay together", related((0, 0), (0, 1), singles=3, held_out=2)),
        Probe("two pairs with the same target sentence stay together", related((0, 0), (1, 0), singles=3, held_out=2)),
        Probe(
            "two pairs that are related through a third one stay together",
            related((0, 0), (1, 1), (0, 1), singles=4, held_out=2),
        ),
        Probe(
            "a chain of five pairs stays together",
            related((0, 0), (0, 1), (1, 1), (1, 2), (2, 2), singles=6, held_out=4),
        ),
        Probe("case, punctuation, and spaces don't separate two pairs", near_duplicates_inputs),
        Probe("the sets have the right sizes", sizes_inputs, sizes_of_sets),
        Probe(
            "a group that's larger than `held_out` is used for training",
            related((0, 0), (0, 1), (0, 2), singles=6, held_out=2),
            always_in_training,
        ),
    ],
    properties=[
        Property("every pair is in the sets as often as in the input", copies_inputs, every_pair_once, lost_and_added),
        requirement(
            "both copies of a pair are in the same set",
            copies_inputs,
            lambda inputs, apart: not apart,
            "a pair that occurs twice was put into two different sets",
            sets_of_copies,
        ),
        Property(
            "the same seed gives the same split",
            sizes_inputs,
            equal_results("the same pairs and the same seed gave a different split the second time"),
            same_seed_twice,
        ),
        requirement(
            "a different seed gives a different split",
            sizes_inputs,
            lambda inputs, splits: splits > 1,
            "ten different seeds gave the same split",
            number_of_splits,
        ),
    ],
)

# --- split_chinese ----------------------------------------------------------------------------------------------------


def latin_words_inputs(sampler: InputSampler) -> dict:
    """Put a space between two words, but not between the words and the characters around them."""
    one, other = some_names(sampler, 2)
    characters = some_characters(sampler, 6)
    place = sampler.integer(1, 3)
    return {"text": "".join([*characters[:place], one, " ", other, *characters[place + sampler.integer(0, 2) :]])}


def full_width_inputs(sampler: InputSampler) -> dict:
    """Put full-width punctuation after a Latin word, and a full stop at the end."""
    characters = some_characters(sampler, sampler.integer(2, 4))
    return {"text": "".join([*some_names(sampler, 1), "，！？：；"[sampler.integer(0, 4)], *characters, "。"])}


def figures_inputs(sampler: InputSampler) -> dict:
    one, other = some_characters(sampler, 2)
    price, year = f"{sampler.integer(1, 9)}.{sampler.integer(1, 9)}", sampler.integer(1980, 2030)
    return {"text": f"{one}{year}{other}，{price}元"}


def figure_next_to_stop_inputs(sampler: InputSampler) -> dict:
    """Put an ASCII period between a digit and a Chinese character, and an ASCII comma the other way around."""
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
        Probe("an ASCII period between a digit and a Chinese character", figure_next_to_stop_inputs),
        Probe(
            "a Latin word at the end",
            lambda sampler: {
                "text": "".join(some_characters(sampler, sampler.integer(2, 4))) + " ".join(some_names(sampler, 2))
            },
        ),
        Probe("brackets and punctuation in ASCII", ascii_punctuation_inputs),
        Probe("words with accented letters stay whole", accents_inputs),
    ],
    properties=[
        requirement(
            "only spaces are lost",
            everything_inputs,
            lambda inputs, tokens: "".join(tokens) == inputs["text"].replace(" ", ""),
            "joined together, the tokens don't spell the sentence without its spaces",
        ),
        requirement(
            "no token is empty or contains a space",
            everything_inputs,
            lambda inputs, tokens: all(token and " " not in token for token in tokens),
            "a token is empty or contains a space",
        ),
    ],
)

# --- chinese_bleu -----------------------------------------------------------------------------------------------------


def spoiled(sampler: InputSampler, characters: list[str], others: list[str], kept: int = 4) -> str:
    """Replace one to four characters after the first `kept` ones. Four right ones in a row keep the score above 0."""
    result = list(characters)
    places = sampler.order(len(characters) - kept)[: sampler.integer(1, 4)]
    for place, other in zip(places, others, strict=False):
        result[kept + place] = other
    return "".join(result)


def replaced_inputs(sampler: InputSampler) -> dict:
    characters = some_characters(sampler, sampler.integer(14, 20))
    others, reference = characters[:4], characters[4:]
    return corpus_of((spoiled(sampler, reference, others), "".join(reference)))


def two_sentences_inputs(sampler: InputSampler) -> dict:
    """Truncate the first hypothesis, and put characters from the first reference into the second.

    Together, the hypotheses are always shorter than the references.
    """
    characters = some_characters(sampler, 25)
    first, second = characters[4 : sampler.integer(14, 17)], characters[17 : sampler.integer(22, 25)]
    kept, right = len(first) - sampler.integer(2, 3), sampler.integer(2, 4)
    return corpus_of(
        (spoiled(sampler, first[:kept], characters[:4]), "".join(first)),
        ("".join([*second[:right], first[-1], first[-2], "。"]), "".join([*second, "。"])),
    )


def segmented_inputs(sampler: InputSampler) -> dict:
    """Put spaces into the hypothesis where a word segmenter might leave them, and truncate it."""
    characters = some_characters(sampler, sampler.integer(15, 20))
    others, reference = characters[:4], characters[4:]
    hypothesis = spoiled(sampler, reference[: -sampler.integer(1, 3)], others)
    places = [sampler.integer(1, 2), sampler.integer(3, 4), len(hypothesis)]
    pieces = [hypothesis[one:other] for one, other in zip([0, *places], places, strict=False)]
    return corpus_of((" ".join([*pieces, "。"]), "".join([*reference, "。"])))


def lowercase_name_inputs(sampler: InputSampler) -> dict:
    """Put a name in the middle that is correct except for its capital letter."""
    name = some_names(sampler, 1)[0]
    characters = some_characters(sampler, sampler.integer(14, 20))
    others, before, after = characters[:4], "".join(characters[4:9]), characters[9:]
    return corpus_of((f"{before}{name.lower()}{spoiled(sampler, after, others, 0)}", f"{before}{name}{''.join(after)}"))


def nothing_said_inputs(sampler: InputSampler) -> dict:
    """Put an empty translation before or after a translation with a few wrong characters."""
    characters = some_characters(sampler, sampler.integer(20, 25))
    others, untranslated, reference = characters[:4], "".join(characters[4:7]), characters[7:]
    pairs = [(spoiled(sampler, reference, others), "".join(reference)), ("", untranslated)]
    return corpus_of(*sampler.shuffled(pairs))


def bracket_inputs(sampler: InputSampler) -> dict:
    """Put a word at the end that is correct except for its missing parentheses, which 13a treats as separate tokens."""
    *words, last = some_names(sampler, sampler.integer(5, 6))
    characters = some_characters(sampler, sampler.integer(16, 22))
    others, before, after = characters[:4], characters[4 : sampler.integer(6, 10)], characters[10:]
    start = "".join(before) + " " + " ".join(words)
    return corpus_of((f"{start} {last}!{spoiled(sampler, after, others, 0)}", f"{start} ({last})!{''.join(after)}"))


def no_four_in_a_row_inputs(sampler: InputSampler) -> dict:
    """Make at most three tokens in a row correct, so that the score is 0 without smoothing.

    The words at the end are the only tokens that 13a would find in both sentences.
    """
    characters = some_characters(sampler, 11)
    one, other, wrong, *rest = some_names(sampler, 5)
    hypothesis = [*characters[:3], characters[9], *characters[4:7], characters[10]]
    reference = characters[:8]
    return corpus_of(
        (" ".join(["".join(hypothesis), one, wrong, *rest]), " ".join(["".join(reference), one, other, *rest]))
    )


def not_smoothed(inputs, received):
    if abs(received) > 1e-9:
        return f"no four tokens in a row are right, so the score should be 0 without smoothing; it is {received:.4g}"
    return None


def never_silently_wrong(inputs, received):
    if "nothing" in received:
        return "expected a `ValueError` if a sentence has no counterpart; nothing was raised, and a score was returned"
    if set(received) != {"ValueError"}:
        names = " and ".join(f"`{name}`" for name in dict.fromkeys(received))
        return Remark(
            f"For unequal numbers of hypotheses and references, it raises {names}. A `ValueError` that says so tells "
            "the caller right away what's wrong, and `bleu` already raises one."
        )
    return None


def rounding_shows(hypotheses: list[str], references: list[str]) -> bool:
    """Return whether the checks would notice that the score was rounded to two decimals."""
    score = chinese_bleu(hypotheses, references)
    return abs(score - round(score, 2)) > 2e-3


def bleu_probe(name: str, inputs: Callable[[InputSampler], dict]) -> Probe:
    return Probe(name, sampled_until(rounding_shows, inputs))


CHINESE_BLEU = Exercise(
    answer=chinese_bleu,
    points=1,
    minutes=10,
    returns=("score",),
    builds_on=("split_chinese", "bleu"),
    banned=("sacrebleu.", "nltk.", "torchtext.data."),
    probes=[
        bleu_probe("a few wrong characters", replaced_inputs),
        bleu_probe("two sentences", two_sentences_inputs),
        bleu_probe("a hypothesis with spaces", segmented_inputs),
        bleu_probe("a word without its brackets", bracket_inputs),
        bleu_probe("a name without its capital letter", lowercase_name_inputs),
        bleu_probe("an empty translation", nothing_said_inputs),
    ],
    properties=[
        Property("without four right tokens in a row, the score is 0", no_four_in_a_row_inputs, not_smoothed),
        Property(
            "unequal numbers of sentences don't get a score",
            two_sentences_inputs,
            never_silently_wrong,
            exceptions_of_unequal_numbers,
        ),
    ],
)

EXERCISES = [SPLIT_WITHOUT_LEAKAGE, SPLIT_CHINESE, CHINESE_BLEU]
