"""Notebook 12, BLEU: clipped n-gram precision, the brevity penalty, and the score."""

from itertools import pairwise

from transformer_lab.evaluation import bleu, brevity_penalty, ngram_precision
from transformer_lab.exercises.exercise import Exercise, Probe, Property, Remark
from transformer_lab.exercises.harnesses import raised
from transformer_lab.exercises.rules import requirement
from transformer_lab.exercises.sampling import InputSampler

# --- ngram_precision --------------------------------------------------------------------------------------------------

WORDS = [
    *["a", "dog", "runs", "over", "the", "green", "field", "and", "two", "men", "sit", "there", "in", "snow", "while"],
    *["she", "wears", "red", "shoes", "near", "old", "boats", "with", "children", "who", "play", "on", "wet", "sand"],
]


def some_words(sampler: InputSampler, *counts: int) -> list[list[str]]:
    """Return lists of random words, with the lengths in `counts`. No word occurs twice."""
    words = sampler.shuffled(WORDS)
    return [[words.pop() for _ in range(count)] for count in counts]


def corpus_of(*pairs: tuple[list | str, list | str], **others: int) -> dict:
    """Return hypotheses and references, given as pairs."""
    hypotheses, references = zip(*pairs, strict=True)
    return {"hypotheses": list(hypotheses), "references": list(references)} | others


def one_pair_inputs(sampler: InputSampler, n: int) -> dict:
    """Return a hypothesis with wrong words around the right ones, which come later in the longer reference.

    There are an even number of right words and more than three wrong ones. Otherwise, n-grams that do not overlap might
    have the same precision by chance.
    """
    before, after = sampler.integer(1, 2), sampler.integer(3, 4)
    first = before + after + sampler.integer(1, 2)  # the last correct words come after the end of the hypothesis
    right, *wrong, others, last = some_words(
        sampler, 2 * sampler.integer(2, 3), before, after, first, sampler.integer(1, 2)
    )
    return corpus_of(([*wrong[0], *right, *wrong[1]], [*others, *right, *last]), n=n)


def repeated_word_inputs(sampler: InputSampler, times: int, times_in_reference: int) -> dict:
    """Return a hypothesis and a reference that repeat the same word a different number of times.

    Only one other word is wrong, so the sentence that repeats the word more often is the longer one.
    """
    (word, wrong), right = some_words(sampler, 2, sampler.integer(3, 10))
    return corpus_of(([*[word] * times, *right, wrong], [*right, *[word] * times_in_reference]), n=1)


def turned_round_inputs(sampler: InputSampler) -> dict:
    """Return a hypothesis whose first two words are swapped. The number of right words is even.

    If it were odd, bigrams that do not overlap might have the same precision by chance.
    """
    pair, right, wrong = some_words(sampler, 2, 2 * sampler.integer(3, 7), sampler.integer(1, 6))
    return corpus_of(([*pair, *right, *wrong], [*pair[::-1], *right]), n=2)


def long_and_short_inputs(sampler: InputSampler) -> dict:
    """Return a long hypothesis that is mostly right and a short one that is wrong, in either order."""
    right, wrong, missing, short, other = some_words(
        sampler, sampler.integer(3, 12), sampler.integer(1, 3), 4, sampler.integer(1, 2), 3
    )
    pairs = [([*right, *wrong], [*right, *missing]), (short, other)]
    return corpus_of(*pairs[:: sampler.integer(0, 1) * 2 - 1], n=1)


def swapped_words_inputs(sampler: InputSampler) -> dict:
    """Return two hypotheses, each with some words that occur only in the other one's reference.

    They have the same precision, so it does not matter here how the two are combined.
    """
    right, wrong = sampler.integer(1, 6), sampler.integer(1, 5)
    first, second, mine, yours = some_words(sampler, right, right, wrong, wrong)
    return corpus_of((first + yours, first + mine), (second + mine, second + yours), n=1)


def short_sentence_inputs(sampler: InputSampler) -> dict:
    n = sampler.integer(3, 4)
    wrong = sampler.integer(1, 2)
    short, right, wrongs, others = some_words(
        sampler, sampler.integer(1, n - 2), n + wrong + sampler.integer(0, 7), wrong, wrong
    )
    return corpus_of((short, short), (wrongs + right, others + right), n=n)


def same_characters_inputs(sampler: InputSampler) -> dict:
    """Return a pair of sentences that differ only in word boundaries, and a pair that is mostly right.

    In the second pair, the hypothesis is longer. The numbers of words are even, so that bigrams that do not overlap
    cannot have the same precision by chance.
    """
    (first, second), right, wrong = some_words(sampler, 2, 2 * sampler.integer(2, 7), 2 * sampler.integer(1, 3))
    merged = [first + "x", second, first], [first, "x" + second, first]
    return corpus_of(merged, (right + wrong, [*right, first]), n=2)


def capital_inputs(sampler: InputSampler) -> dict:
    capitals, others = some_words(sampler, sampler.integer(2, 6), sampler.integer(1, 7))
    return corpus_of(([word.capitalize() for word in capitals] + others, capitals + others), n=1)


def too_few_words_inputs(sampler: InputSampler) -> dict:
    """Return hypotheses with at most two words, which are right, for n = 3."""
    references = some_words(sampler, 4, 4)
    return {"hypotheses": [references[0][:2], []], "references": references, "n": 3}


def without_ngrams(subject, hypotheses, references, n):
    return [subject(hypotheses, references, n), subject([], [], 1)]


def zero_without_ngrams(inputs, received):
    for precision in received:
        if precision != 0:
            return f"expected 0.0 when the hypotheses have no n-grams at all; got {precision}"
    return None


def exceptions_of_unequal_numbers(subject, hypotheses, references, **n):
    shorter = (hypotheses, references[:-1]), (hypotheses[:-1], references)
    return [raised(subject, *both, *n.values()) for both in shorter]


def unequal_numbers_are_an_error(inputs, received):
    if "nothing" in received:
        return Remark(
            "If the numbers of hypotheses and references differ, it still returns a result, so you'd never notice that "
            "some sentences have no counterpart. `zip(hypotheses, references, strict=True)` raises a `ValueError`."
        )
    return None


NGRAM_PRECISION = Exercise(
    answer=ngram_precision,
    points=2,
    minutes=20,
    returns=("precision",),
    banned=("nltk.", "sacrebleu.", "torchtext.data."),
    probes=[
        Probe("the words of one sentence", lambda sampler: one_pair_inputs(sampler, 1)),
        Probe("two or three words in a row", lambda sampler: one_pair_inputs(sampler, sampler.integer(2, 3))),
        Probe(
            "a word repeated too often",
            lambda sampler: repeated_word_inputs(sampler, sampler.integer(6, 9), sampler.integer(2, 4)),
        ),
        Probe(
            "a word that the reference repeats",
            lambda sampler: repeated_word_inputs(sampler, sampler.integer(2, 3), sampler.integer(5, 6)),
        ),
        Probe("two words the wrong way around", turned_round_inputs),
        Probe("a long and a short sentence share one fraction", long_and_short_inputs),
        Probe("a word that only another reference has", swapped_words_inputs),
        Probe("a sentence shorter than n", short_sentence_inputs),
        Probe("words are compared, not characters", same_characters_inputs),
        Probe("capital letters", capital_inputs),
    ],
    properties=[
        Property(
            "without any n-gram it is 0.0",
            too_few_words_inputs,
            zero_without_ngrams,
            without_ngrams,
        ),
        Property(
            "unequal numbers of hypotheses and references",
            lambda sampler: {"hypotheses": some_words(sampler, 2, 2), "references": some_words(sampler, 2, 2), "n": 1},
            unequal_numbers_are_an_error,
            exceptions_of_unequal_numbers,
        ),
    ],
)

# --- brevity_penalty --------------------------------------------------------------------------------------------------


def factors(subject, lengths):
    return [subject(hypothesis_length, reference_length) for hypothesis_length, reference_length in lengths]


def ascending_lengths(sampler: InputSampler) -> dict:
    reference = sampler.integer(10, 60)
    return {"lengths": [[length, reference] for length in (1, reference // 2, reference, reference + 4, 3 * reference)]}


def nearly_equal_lengths(sampler: InputSampler) -> dict:
    reference, same = sampler.integer(30, 100), sampler.integer(10, 200)
    return {"lengths": [[reference - sampler.integer(1, 9), reference], [same, same]]}


def half_and_longer_lengths(sampler: InputSampler) -> dict:
    half, reference = sampler.integer(10, 100), sampler.integer(10, 100)
    return {"lengths": [[half, 2 * half + sampler.integer(1, 3)], [reference + sampler.integer(1, 9), reference]]}


def empty_lengths(sampler: InputSampler) -> dict:
    reference = sampler.integer(20, 90)
    return {"lengths": [[0, sampler.integer(5, 9)], [reference - sampler.integer(1, 9), reference], [0, 0]]}


BREVITY_PENALTY = Exercise(
    answer=brevity_penalty,
    points=1,
    minutes=10,
    returns=("factors",),
    call=factors,
    probes=[
        Probe("slightly too short, and equally long", nearly_equal_lengths),
        Probe("about half as long, and slightly longer", half_and_longer_lengths),
        Probe("no tokens at all", empty_lengths),
    ],
    properties=[
        requirement(
            "it is between 0 and 1",
            ascending_lengths,
            lambda inputs, received: all(0 <= factor <= 1 for factor in received),
            "it isn't always between 0 and 1, but it should penalize short translations and never reward any",
        ),
        requirement(
            "more tokens never lower it",
            ascending_lengths,
            lambda inputs, received: all(before <= after for before, after in pairwise(received)),
            "a longer translation gets a smaller factor, but only short ones should be penalized",
        ),
    ],
)

# --- bleu -------------------------------------------------------------------------------------------------------------


def wrong_end_inputs(sampler: InputSampler) -> dict:
    count = sampler.integer(2, 5)
    right, wrong, missing = some_words(sampler, sampler.integer(7, 18), count, count)
    return corpus_of((right + wrong, right + missing))


def too_short_inputs(sampler: InputSampler) -> dict:
    (words,) = some_words(sampler, sampler.integer(9, 20))
    words.sort(key=len)  # long words are missing, so the lengths in characters have a different ratio
    return corpus_of((words[: sampler.integer(5, len(words) - 2)], words))


def too_long_inputs(sampler: InputSampler) -> dict:
    before, right, after = some_words(sampler, sampler.integer(1, 3), sampler.integer(5, 12), sampler.integer(1, 4))
    return corpus_of((before + right + after, right))


def two_sentences_inputs(sampler: InputSampler) -> dict:
    """Return a hypothesis that is slightly too short, and a shorter one whose last words are in the wrong order."""
    words, right, mixed = some_words(sampler, sampler.integer(13, 16), sampler.integer(4, 6), sampler.integer(3, 4))
    return corpus_of((words[: -sampler.integer(1, 2)], words), (right + mixed[::-1], right + mixed))


def short_and_long_inputs(sampler: InputSampler) -> dict:
    """Return a hypothesis that is longer than its reference, and a shorter one with fewer than four words."""
    before, right, after, others = some_words(
        sampler, sampler.integer(1, 2), sampler.integer(5, 12), 1, sampler.integer(7, 12)
    )
    return corpus_of((before + right + after, right), (others[: sampler.integer(1, 3)], others))


def repeated_inputs(sampler: InputSampler) -> dict:
    right, missing = some_words(sampler, sampler.integer(5, 10), 2)
    return corpus_of((right + right[:1] * sampler.integer(3, 6), right + missing))


def as_it_is_and_without_a_4gram(subject, hypotheses, references):
    three_in_a_row = [*hypotheses[0][:3], "else", *hypotheses[0][4:7]]
    return {"as it is": subject(hypotheses, references), "three in a row": subject([three_in_a_row], references[:1])}


def score_of_references(subject, references):
    return [subject(references, references), subject(references[:1], references[:1])]


BLEU = Exercise(
    answer=bleu,
    points=2,
    minutes=15,
    returns=("score",),
    builds_on=("ngram_precision", "brevity_penalty"),
    banned=("nltk.", "sacrebleu.", "torchtext.data."),
    probes=[
        Probe("the last words are wrong", wrong_end_inputs),
        Probe("a translation that is too short", too_short_inputs),
        Probe("a translation that is too long", too_long_inputs),
        Probe("two sentences", two_sentences_inputs),
        Probe("a very short sentence next to a longer one", short_and_long_inputs),
        Probe("a word repeated too often", repeated_inputs),
        Probe("with and without four words in a row", wrong_end_inputs, as_it_is_and_without_a_4gram),
    ],
    properties=[
        requirement(
            "the references themselves score 100",
            lambda sampler: {"references": some_words(sampler, sampler.integer(5, 7), sampler.integer(8, 10))},
            lambda inputs, received: all(abs(score - 100) < 1e-6 for score in received),
            "when the references are scored against themselves, the result isn't 100",
            score_of_references,
        ),
        requirement(  # without an error, the score would be for different sentences than the caller intended
            "a reference for each hypothesis",
            two_sentences_inputs,
            lambda inputs, received: "nothing" not in received,
            "if the numbers of hypotheses and references differ, it returns a score as if nothing were wrong",
            exceptions_of_unequal_numbers,
        ),
    ],
)

EXERCISES = [NGRAM_PRECISION, BREVITY_PENALTY, BLEU]
