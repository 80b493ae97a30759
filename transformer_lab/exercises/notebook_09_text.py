"""Notebook 09, text: turning words and subwords into ids, and sentences into batches (section 5.1)."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch

from transformer_lab.data import apply_bpe, build_vocabulary, learn_bpe, pad_batch, token_batches
from transformer_lab.data.byte_pairs import END_OF_WORD
from transformer_lab.exercises.comparison import described
from transformer_lab.exercises.exercise import Exercise, Probe, Property, Remark
from transformer_lab.exercises.harnesses import outcome
from transformer_lab.exercises.rules import equal_results, requirement
from transformer_lab.exercises.sampling import InputSampler
from transformer_lab.plural import plural

# --- build_vocabulary ------------------------------------------------------------------------------------------------

# Capitalized words come first in alphabetical order. If you ignored case, they would all come last.
CAPITALIZED = ("Mann", "Park", "Rad", "Stein", "Straße", "Tisch", "Vogel", "Wiese")
LOWERCASE = ("alte", "auf", "das", "ein", "geht", "hinter", "ist", "kleine")
WITH_AND_WITHOUT_CAPITAL = (("Arm", "arm"), ("Essen", "essen"), ("Leben", "leben"), ("Sie", "sie"), ("Weg", "weg"))


def some_words(sampler: InputSampler, count: int, *others: str) -> list[str]:
    """Return `count` words, about half of them capitalized, and the others. Their order is never alphabetical."""
    words = sampler.shuffled(CAPITALIZED)[: count // 2] + sampler.shuffled(LOWERCASE)[: count - count // 2]
    return sampler.shuffled(sorted([*words, *others]))


def in_sentences(counts: dict[str, int]) -> list[list[str]]:
    """Return each token as often as `counts` says, at most once per sentence, and in the order of `counts`."""
    return [[token for token in counts if counts[token] > number] for number in range(max(counts.values()))]


def rarest_first(words: list[str]) -> list[list[str]]:
    """Return sentences that contain the last word once, the one before it twice, and so on. Rare words come first."""
    return in_sentences({word: times for times, word in enumerate(reversed(words), start=1)})


def words_of_all_frequencies(sampler: InputSampler) -> dict:
    other = ("T-Shirt", "12", ",", "...")[sampler.integer(0, 3)]
    return {"sentences": rarest_first(some_words(sampler, sampler.integer(3, 4), other)), "min_frequency": 1}


def equally_frequent_words(sampler: InputSampler) -> dict:
    words = some_words(sampler, sampler.integer(4, 6))
    return {"sentences": [words, words[::-1]], "min_frequency": 1}


def repeats_in_one_sentence(sampler: InputSampler) -> dict:
    repeated, other, rare = some_words(sampler, 3)
    return {"sentences": [[other, rare], [repeated] * sampler.integer(3, 4), [other]], "min_frequency": 1}


def words_at_the_limit(sampler: InputSampler) -> dict:
    """Return words of which two are frequent enough. The more frequent one also comes first alphabetically."""
    limit = sampler.integer(3, 4)
    above, *others = sorted(some_words(sampler, 3 + sampler.integer(1, 2)))
    at, once, *below = sampler.shuffled(others)
    counts = {above: limit + sampler.integer(1, 2), at: limit, once: 1} | dict.fromkeys(below, limit - 1)
    return {"sentences": in_sentences(counts), "min_frequency": limit}


def questions_about_rare_words(sampler: InputSampler) -> dict:
    inputs = words_at_the_limit(sampler)
    known = {token for sentence in inputs["sentences"] for token in sentence}
    unseen = [word for word in CAPITALIZED if word not in known][sampler.integer(0, 5)]
    return inputs | {"looked_up": sampler.shuffled([*sorted(known), unseen])}


def uppercase_and_lowercase(sampler: InputSampler) -> dict:
    pairs = sampler.shuffled(WITH_AND_WITHOUT_CAPITAL)[:2]
    words = sampler.shuffled(sorted(word for pair in pairs for word in pair))
    return {"sentences": rarest_first(words), "min_frequency": 1}


def special_tokens_in_a_sentence(sampler: InputSampler) -> dict:
    one, other = some_words(sampler, 2)
    return {"sentences": [["<eos>", one, "<eos>"], [other, "<pad>", one]], "min_frequency": 1}


def tokens_in_order(subject, sentences, min_frequency):
    return {"vocabulary.itos": list(subject(sentences, min_frequency).itos)}


def ids_of_tokens(subject, sentences, min_frequency, looked_up):
    vocabulary = subject(sentences, min_frequency)
    return {f'vocabulary["{token}"]': vocabulary[token] for token in looked_up}


def other_kind_than_vocab(subject, sentences, min_frequency):
    from torchtext.vocab import Vocab

    vocabulary = subject(sentences, min_frequency)
    return None if isinstance(vocabulary, Vocab) else type(vocabulary).__name__


def is_a_vocab(inputs, other_kind):
    return f"expected a `torchtext.vocab.Vocab`; got a `{other_kind}`" if other_kind else None


def tokens_from_a_generator(subject, sentences, min_frequency):
    from_list = subject([list(sentence) for sentence in sentences], min_frequency)
    from_generator = subject((list(sentence) for sentence in sentences), min_frequency)
    return {"list": list(from_list.itos), "generator": list(from_generator.itos)}


def tokens_and_back(subject, sentences, min_frequency):
    vocabulary = subject(sentences, min_frequency)
    return {"tokens": list(vocabulary.itos), "again": [vocabulary.itos[vocabulary[t]] for t in vocabulary.itos]}


def each_token_has_one_id(inputs, received):
    if len(set(received["tokens"])) < len(received["tokens"]):
        return "a token has two ids"
    if received["again"] != received["tokens"]:
        return "looking up a token's id in `itos` yields a different token"
    return None


BUILD_VOCABULARY = Exercise(
    answer=build_vocabulary,
    points=1,
    minutes=10,
    returns=("vocabulary",),
    call=tokens_in_order,
    probes=[
        Probe("special tokens first, then the words from the most frequent to the rarest", words_of_all_frequencies),
        Probe("equally frequent words are in alphabetical order", equally_frequent_words),
        Probe("every occurrence of a word counts", repeats_in_one_sentence),
        Probe("a word that occurs `min_frequency` times is included", words_at_the_limit),
        Probe("rare and unseen words get the id of `<unk>`", questions_about_rare_words, ids_of_tokens),
        Probe("uppercase and lowercase make different words", uppercase_and_lowercase),
    ],
    properties=[
        Property(
            "the result is a `torchtext.vocab.Vocab`", words_of_all_frequencies, is_a_vocab, other_kind_than_vocab
        ),
        Property(
            "a generator of sentences works as well as a list",
            words_at_the_limit,
            equal_results("a generator of sentences leads to a different vocabulary than a list of the same sentences"),
            tokens_from_a_generator,
        ),
        Property(
            "each token has exactly one id, even a special token that occurs in a sentence",
            special_tokens_in_a_sentence,
            each_token_has_one_id,
            tokens_and_back,
        ),
    ],
)

# --- learn_bpe -------------------------------------------------------------------------------------------------------

ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def letters(sampler: InputSampler, count: int) -> list[str]:
    """Return different letters in random order."""
    return sampler.shuffled(ALPHABET)[:count]


def a_frequent_pair(sampler: InputSampler) -> dict:
    """Return words that share a pair. The last one is the rarest, so its count alone is not the highest."""
    a, b, *others = letters(sampler, 2 + sampler.integer(2, 3))
    most = sampler.integer(4, 6)
    return {"word_counts": {a + b + other: most - index for index, other in enumerate(others)}, "n_merges": 1}


def a_chain_of_merges(sampler: InputSampler) -> dict:
    a, b, z, *others = letters(sampler, 5)
    x, y = sorted(others)  # so that a merge is different if each word counts once
    few = sampler.integer(1, 3)
    some = few + sampler.integer(1, 3)
    return {"word_counts": {a + b + x: some, a + b + y: some + sampler.integer(1, 3), z + y: few}, "n_merges": 3}


def rare_words_and_a_frequent_pair(sampler: InputSampler) -> dict:
    a, b, c, d, u, v, w, x, y = letters(sampler, 9)
    rare, times = {a + b + u: 1, a + b + v: 1, a + b + w: 1}, sampler.integer(3, 5)
    return {"word_counts": rare | {c + d + x: times + sampler.integer(1, 2), c + d + y: times}, "n_merges": 1}


def a_pair_twice_in_a_word(sampler: InputSampler) -> dict:
    """Return words in which the third merge joins only the second `ab` with `</w>`, not the first.

    The letter `a` comes first in the alphabet, so the merges are the same if each word counts once.
    """
    a, *others = sorted(letters(sampler, 7))
    b, c, d, x, y, z = sampler.shuffled(others)
    times = sampler.integer(4, 6)
    return {"word_counts": {a + b + x + a + b: times, c + d + y: times - 1, c + d + z: times - 1}, "n_merges": 4}


def equal_counts(sampler: InputSampler) -> dict:
    p, q, t, u = sorted(letters(sampler, 4))
    times = sampler.integer(2, 4)
    return {"word_counts": {q + t: times, p + u: times}, "n_merges": 2}


def three_of_a_kind(sampler: InputSampler) -> dict:
    a, *others = sorted(letters(sampler, 5))  # so that the merges are the same if each word counts once
    c, d, x, y = sampler.shuffled(others)
    times = sampler.integer(5, 7)  # with 4, the merges could be the same if the old counts were kept
    return {"word_counts": {a + a + a: times, c + d + x: times - 1, c + d + y: times - 1}, "n_merges": 3}


def merges_that_meet_whole_symbols(sampler: InputSampler) -> dict:
    b, a, c, *others = letters(sampler, 10)
    b, a = sorted([a, b])  # so that the merges are the same if each word counts once
    least = sampler.integer(3, 4)
    counts = {a + b + other: least + 1 for other in others[:3]}
    counts |= {a + b + c + other: least for other in others[3:5]}
    return {"word_counts": counts | {b + c + other: least + 1 for other in others[5:7]}, "n_merges": 3}


def equal_counts_of_longer_symbols(sampler: InputSampler) -> dict:
    """Return words in which two pairs tie after the first merge: `(a, c)` < `(ab, b)`, but `ac` > `abb`."""
    a, b, c, x, y = sorted(letters(sampler, 5))
    times = sampler.integer(2, 4)
    return {"word_counts": {a + b + b: times, a + b + x: 1, a + c + y: times}, "n_merges": 2}


def pairs_that_occur_once(sampler: InputSampler) -> dict:
    b, a, c = sorted(letters(sampler, 3))  # `(b, </w>)` and `(a, b)` tie, and the first one wins
    return {"word_counts": {a + b: 2, c: 1}, "n_merges": sampler.integer(4, 5)}


def words_that_are_used_up(sampler: InputSampler) -> dict:
    b, *others = letters(sampler, 3)
    a, c = sorted(others)  # so that the merges are the same if each word counts once
    few = sampler.integer(2, 4)
    return {"word_counts": {a + b: few + 1, c + b: few}, "n_merges": sampler.integer(8, 12)}


def words_of_the_paper(sampler: InputSampler) -> dict:
    words = ["lowest", *sampler.shuffled(["low", "newer", "wider"])]  # from the rarest to the most frequent
    counts = {word: times for times, word in enumerate(words, start=sampler.integer(3, 4))}
    return {"word_counts": counts, "n_merges": sampler.integer(8, 10)}


def merges_of_nothing(subject, word_counts, n_merges):
    return {"none asked for": subject(word_counts, 0), "no words": subject({}, n_merges)}


def nothing_to_learn(inputs, received):
    if list(received["none asked for"]):
        return "expected no merges for `n_merges` 0; got some"
    return "expected no merges without words; got some" if list(received["no words"]) else None


def merges_join_what_exists(inputs, merges):
    known = {END_OF_WORD, *"".join(inputs["word_counts"])}
    if not merges:
        return "no merges were returned"
    for merge in merges:
        if not isinstance(merge, list | tuple) or len(merge) != 2:
            return "a merge isn't a pair of symbols"
        if not known.issuperset(merge):
            return "a merge joins a symbol that isn't a character, `</w>`, or the result of an earlier merge"
        known.add(merge[0] + merge[1])
    return None


LEARN_BPE = Exercise(
    answer=learn_bpe,
    points=3,
    minutes=25,
    returns=("merges",),
    banned=("tokenizers.",),
    probes=[
        Probe("one merge: the most frequent pair", a_frequent_pair),
        Probe("three merges, each based on the one before", a_chain_of_merges),
        Probe("a pair is as frequent as the words that contain it", rare_words_and_a_frequent_pair),
        Probe("a pair that occurs twice in a word counts twice", a_pair_twice_in_a_word),
        Probe("the smallest of several equally frequent pairs", equal_counts),
        Probe("ties: pairs are compared, not their joined text", equal_counts_of_longer_symbols),
        Probe("a pair that occurs only once is merged too", pairs_that_occur_once),
        Probe("the same letter three times in a row", three_of_a_kind),
        Probe("a merge joins two whole symbols", merges_that_meet_whole_symbols),
        Probe("learning ends when every word is a single symbol", words_that_are_used_up),
        Probe("the words in Sennrich's paper", words_of_the_paper),
    ],
    properties=[
        Property("no merges for `n_merges` 0 or without words", a_frequent_pair, nothing_to_learn, merges_of_nothing),
        Property("each merge joins two symbols that exist by then", words_of_the_paper, merges_join_what_exists),
    ],
)

# --- apply_bpe -------------------------------------------------------------------------------------------------------


def patterned(word: str, merges: str, ascending: str = "") -> Callable[[InputSampler], dict]:
    """Return a function that returns this word and these merges, with random letters in place of the given ones.

    The letters in `ascending` remain in alphabetical order. Some of those in brackets may be left out, the last ones
    first, but never all of them. A `.` is an `</w>`.
    """
    start, _, rest = word.partition("[")
    optional, _, end = rest.rpartition("]")

    def inputs(sampler: InputSampler) -> dict:
        count = sampler.integer(1, len(optional)) if optional else 0
        table = dict(zip(ALPHABET, letters(sampler, len(ALPHABET)), strict=True)) | {".": END_OF_WORD}
        table |= zip(ascending, sorted(table[letter] for letter in ascending), strict=True)
        key = str.maketrans(table)
        pairs = [tuple(merge.translate(key).split()) for merge in merges.split(", ")]
        return {"word": (start + optional[:count] + end).translate(key), "merges": pairs}

    return inputs


def an_odd_number_of_a_letter(sampler: InputSampler) -> dict:
    a = letters(sampler, 1)[0]
    return {"word": a * (2 * sampler.integer(2, 3) + 1), "merges": [(a, a)]}


def a_character_that_no_merge_knows(sampler: InputSampler) -> dict:
    a, b = letters(sampler, 2)
    unknown = "ßéñ☃"[sampler.integer(0, 3)]
    return {"word": unknown + a + b + unknown, "merges": [(a, b)]}


def a_word_and_learned_merges(sampler: InputSampler) -> dict:
    """Return a word that contains `wid` and `er` and ends with `st`. Seven of the merges apply, each once."""
    parts = sampler.shuffled(["wid", "er", ("low", "new", "slow")[sampler.integer(0, 2)]])
    merges = ["e r", "er </w>", "l o", "lo w", "n e", "ne w", "i d", "w id", "s t", "st </w>"]
    return {
        "word": "".join(parts) + ("st", "est")[sampler.integer(0, 1)],
        "merges": [tuple(merge.split()) for merge in merges],
    }


def symbols_are_known(inputs, symbols):
    if not symbols:
        return "no symbols were returned"
    known = {END_OF_WORD, *inputs["word"], *(left + right for left, right in inputs["merges"])}
    return None if known.issuperset(symbols) else "a symbol isn't a character, `</w>`, or the result of a merge"


a_pair_at_the_end = patterned("abcab", "a b, ab ., c ab.", ascending="ac")  # the merges are in alphabetical order

APPLY_BPE = Exercise(
    answer=apply_bpe,
    points=1,
    minutes=10,
    returns=("symbols",),
    banned=("tokenizers.",),
    probes=[
        Probe("no merge applies: single characters and `</w>`", patterned("aef[gh]", "b c, c d, a b")),
        Probe("merges that build on each other", patterned("abcd[ef]", "a b, ab c")),
        Probe("merges that don't apply are skipped", patterned("ab[gh]cd", "e f, a b, f a, c d")),
        Probe(
            "an earlier merge goes first, even if it's further to the right",
            patterned("cba[de]", "b a, c b", ascending="bc"),  # so that the merges are in alphabetical order
        ),
        Probe(
            "a longer symbol that the merges don't reach",
            patterned("cba[de]", "c b, b a, c ba", ascending="bc"),  # so that they are not in alphabetical order
        ),
        Probe("the same letter several times in a row", an_odd_number_of_a_letter),
        Probe("a pair that occurs twice", patterned("abc[de]ab", "a b")),
        Probe("a pair at the end of the word", a_pair_at_the_end),
        Probe("a word of one letter", patterned("a", "b a, b .")),
        Probe("a merge joins two whole symbols", patterned("abcbc", "a b, b c", ascending="ba")),  # not alphabetical
        Probe("a character that occurs in no merge stays as it is", a_character_that_no_merge_knows),
        Probe("ten learned merges", a_word_and_learned_merges),
    ],
    properties=[
        requirement(
            "put together, the symbols spell the word",
            a_word_and_learned_merges,
            lambda inputs, symbols: "".join(symbols) == inputs["word"] + END_OF_WORD,
            "put together, the symbols don't spell the word followed by `</w>`",
        ),
        Property("every symbol is a character, `</w>`, or the result of a merge", a_pair_at_the_end, symbols_are_known),
    ],
)

# --- pad_batch -------------------------------------------------------------------------------------------------------


def token_lists(sampler: InputSampler, *lengths: int, low: int = 4, high: int = 9) -> list[list[int]]:
    """Return random tokens. The `max` of the lists, which depends on their first tokens, is also the longest list."""
    while True:
        lists = [sampler.integers(length, low=low, high=high).tolist() for length in lengths]
        if len(max(lists)) == max(lengths):
            return lists


def padded_with_zero(sampler: InputSampler) -> dict:
    short = sampler.integer(1, 3)
    return {"sequences": token_lists(sampler, short, short + sampler.integer(2, 3)), "pad_id": 0}


def padded_with_another_id(sampler: InputSampler) -> dict:
    sequences = token_lists(sampler, sampler.integer(4, 5), *sampler.shuffled([1, sampler.integer(2, 3)]))
    sequences[sampler.integer(0, 2)][-1] = 0  # here, 0 is a word
    return {"sequences": sequences, "pad_id": sampler.integer(1, 3)}


def longest_in_the_middle(sampler: InputSampler) -> dict:
    longest, *others = token_lists(
        sampler, sampler.integer(5, 6), 1, sampler.integer(2, 3), sampler.integer(1, 3), low=5
    )
    longest[0] = 4  # the longest sequence has the smallest first token
    return {"sequences": [others[0], longest, *others[1:]], "pad_id": 0}


def two_languages(sampler: InputSampler) -> dict:
    one, other = (1, 2) if sampler.integer(0, 1) else (2, 1)
    short = sampler.integer(1, 2)
    return {
        "sources": token_lists(sampler, short, short + 1),
        "targets": token_lists(sampler, sampler.integer(4, 5), 2),
        "source_pad_id": one,
        "target_pad_id": other,
    }


def both_sides(subject, sources, targets, source_pad_id, target_pad_id):
    return {"source": subject(sources, source_pad_id), "target": subject(targets, target_pad_id)}


def pad_alone_and_together(subject, sequences, pad_id):
    """Pad the first sequence alone, then all of them, then the first one alone again."""
    alone = subject(sequences[:1], pad_id)
    together = subject(sequences, pad_id)
    return {"alone": alone, "together": together, "alone again": subject(sequences[:1], pad_id)}


def is_int64_of_the_right_shape(inputs, padded):
    if padded.dtype != torch.int64:
        return f"expected `torch.int64`, PyTorch's type for indices; the tensor is `{padded.dtype}`"
    shape = len(inputs["sequences"]), max(map(len, inputs["sequences"]))
    return None if tuple(padded.shape) == shape else f"expected the shape {shape}; got {tuple(padded.shape)}"


PAD_BATCH = Exercise(
    answer=pad_batch,
    points=1,
    minutes=10,
    returns=("padded",),
    axes={"padded": "batch length", "source": "batch length", "target": "batch length"},
    banned=(
        "torch.nn.utils.rnn.pad_sequence",
        "torch.nn.utils.rnn.pad_packed_sequence",
        "torch.nested.",
        ".to_padded_tensor",
    ),
    probes=[
        Probe("two sequences, padded with 0", padded_with_zero),
        Probe("another pad id, so that 0 is a word", padded_with_another_id),
        Probe("four sequences, not in order of length", longest_in_the_middle),
        Probe("two languages, each with its own pad id", two_languages, both_sides),
    ],
    properties=[
        Property(
            "the result is int64 of shape (sequences, longest)", longest_in_the_middle, is_int64_of_the_right_shape
        ),
        requirement(
            "a sequence can be used in another batch later",
            padded_with_zero,
            lambda inputs, received: received["alone"].shape == received["alone again"].shape,
            "a sequence that was padded along with longer ones is still padded in its next batch",
            pad_alone_and_together,
        ),
    ],
)

# --- token_batches ---------------------------------------------------------------------------------------------------


def almost_the_same_length(sampler: InputSampler) -> dict:
    """Return an odd number of short sentences, of which two fit into a batch, and two that are one token longer.

    The first long one comes second, so a batch that is not full yet has no room for it.
    """
    length, count = sampler.integer(4, 6), 2 * sampler.integer(2, 4) + 1
    lengths = [length, length + 1, *[length] * (count - 1)]
    lengths.insert(sampler.integer(3, count), length + 1)
    return {"lengths": lengths, "max_tokens": 2 * length + 1}


def lengths_whose_sum_would_fit(sampler: InputSampler) -> dict:
    """Return four short sentences and two long ones. If padding did not count, the short ones could join a long one."""
    long = sampler.integer(5, 8)
    short = sampler.integers(4, low=1, high=2).tolist()
    return {"lengths": [long, *short, long + 2], "max_tokens": 2 * (long + 2)}


def short_ones_after_long_ones(sampler: InputSampler) -> dict:
    """Return short sentences, which fit into one batch, and two long ones, which fill another."""
    long = sampler.integer(6, 9)
    first, *others = sampler.shuffled([1, 1, 2, 2])
    lengths = [first, long, *others]
    lengths.insert(sampler.integer(4, 5), long)
    return {"lengths": lengths, "max_tokens": 2 * long}


def two_that_fill_a_batch_alone(sampler: InputSampler) -> dict:
    """Return two long sentences, and short ones that do not fill a batch. Two short ones follow the first long one."""
    longest, count, first = sampler.integer(6, 8), sampler.integer(4, 5), sampler.integer(1, 2)
    lengths = [1] * count
    lengths.insert(first, longest)
    lengths.insert(sampler.integer(first + 3, count + 1), longest)
    return {"lengths": lengths, "max_tokens": longest}


def forty_sentences(sampler: InputSampler) -> dict:
    """Return lengths from 1 to 10. The 10 does not fit into a batch with the three before it. The last 20 are short."""
    long, short = sampler.shuffled([6, 7, 8, 9] * 4), sampler.shuffled([1, 2, 3, 4, 5] * 4)
    return {"lengths": [1, 1, 1, 10, *long, *short], "max_tokens": sampler.integer(31, 37)}


def a_sentence_that_is_too_long(sampler: InputSampler) -> dict:
    lengths, most = sampler.integers(4, low=1, high=5).tolist(), sampler.integer(10, 12)
    lengths[sampler.integer(0, 3)] = most + 1
    return {"lengths": lengths, "max_tokens": most}


def batches_that_keep_the_rules(inputs, expected, received):
    """Say what is wrong with a partition. If nothing is wrong, return None. There is more than one right answer."""
    lengths, max_tokens = inputs["lengths"], inputs["max_tokens"]
    if not isinstance(received, list | tuple):
        return f"expected a list of batches; got {described(received)}"
    if others := [batch for batch in received if not isinstance(batch, list | tuple)]:
        return f"expected every batch to be a list of positions in `lengths`; one is {described(others[0])}"
    positions = [position for batch in received for position in batch]
    if not all(received):
        return "one of the batches is empty"
    if others := [position for position in positions if position not in range(len(lengths))]:
        other = max(others) if all(isinstance(other, int) for other in others) else described(others[0])
        return f"the positions in `lengths` go from 0 to {len(lengths) - 1}; one of the batches contains {other}"
    times = Counter(positions)
    if repeated := sorted(lengths[position] for position in times if times[position] > 1):
        return f"found more than once in the batches: {sentences_of_lengths(repeated)}"
    if missing := sorted(lengths[position] for position in range(len(lengths)) if position not in times):
        return f"missing from the batches: {sentences_of_lengths(missing)}"
    of_batches = [[lengths[position] for position in batch] for batch in received]
    tokens, most, size = max((len(batch) * max(batch), max(batch), len(batch)) for batch in of_batches)
    if tokens > max_tokens:
        return (
            f"a batch has {plural(size, 'sentence')}, the longest with {plural(most, 'token')}: padded, that makes "
            f"{tokens} tokens, but `max_tokens` is {max_tokens}"
        )
    pairs = [one + other for one, other in pairwise(of_batches)]
    joined = [(len(pair) * max(pair), len(pair), max(pair)) for pair in pairs]
    if joined and min(joined)[0] <= max_tokens:
        tokens, size, most = min(joined)
        return (
            f"two neighboring batches would fit into one: {size} sentences, the longest with {plural(most, 'token')}, "
            f"make {tokens} tokens when padded, and `max_tokens` is {max_tokens}"
        )
    ranges = sorted((min(batch), max(batch)) for batch in of_batches)
    if any(left[1] > right[0] for left, right in pairwise(ranges)):
        return Remark(
            "Your batches mix short and long sentences, so the short ones get a lot of padding. Take the sentences in "
            "order of length: “batched together by approximate sequence length” (section 5.1)."
        )
    return None


batching_probe = partial(Probe, compare_results=batches_that_keep_the_rules)


def sentences_of_lengths(lengths: list[int]) -> str:
    if len(lengths) == 1:
        return f"a sentence of length {lengths[0]}"
    return f"{len(lengths)} sentences, of lengths {', '.join(map(str, lengths[:5]))}{', …' if len(lengths) > 5 else ''}"


def outcome_with_a_long_sentence(subject, lengths, max_tokens):
    """Make sure that sentences that fit do not raise an exception. Then return the result for one that does not fit."""
    subject([length for length in lengths if length <= max_tokens], max_tokens)
    return outcome(subject, lengths, max_tokens)


def too_long_is_refused(inputs, received):
    if received["raised"] == "ValueError":
        return None
    if received["raised"] != "nothing":
        return Remark(
            f"A sentence longer than `max_tokens` raises `{received['raised']}`. Raise a `ValueError` that names the "
            "length and the limit instead, so that it's clear what to do."
        )
    too_long = inputs["lengths"].index(max(inputs["lengths"]))
    if any(too_long in batch for batch in received["returned"]):
        return "expected a `ValueError`; the sentence longer than `max_tokens` is in one of the batches"
    return "expected a `ValueError`; the sentence longer than `max_tokens` is silently left out"


TOKEN_BATCHES = Exercise(
    answer=token_batches,
    points=2,
    minutes=20,
    returns=("batches",),
    probes=[
        batching_probe("sentences of almost the same length", almost_the_same_length),
        batching_probe("padding counts", lengths_whose_sum_would_fit),
        batching_probe("short sentences after long ones", short_ones_after_long_ones),
        batching_probe("sentences that fill a batch by themselves", two_that_fill_a_batch_alone),
        batching_probe("forty sentences", forty_sentences),
    ],
    properties=[
        Property(
            "a sentence longer than `max_tokens`",
            a_sentence_that_is_too_long,
            too_long_is_refused,
            outcome_with_a_long_sentence,
        ),
        requirement(
            "no sentences, no batches",
            lambda sampler: {"lengths": [], "max_tokens": sampler.integer(5, 9)},
            lambda inputs, batches: not len(batches),
            "expected no batches without sentences; got some",
        ),
    ],
)

EXERCISES = [BUILD_VOCABULARY, LEARN_BPE, APPLY_BPE, PAD_BATCH, TOKEN_BATCHES]
