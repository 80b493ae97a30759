"""Notebook 09, text: words and pieces of words become numbers, and sentences become batches (section 5.1)."""

from collections import Counter
from itertools import pairwise

import torch

from transformer_lab.data import apply_bpe, build_vocabulary, learn_bpe, pad_batch, token_batches
from transformer_lab.data.byte_pairs import END_OF_WORD, merge_pair
from transformer_lab.data.vocabulary import SPECIAL_TOKENS
from transformer_lab.exercises.draw import Draw
from transformer_lab.exercises.exercise import Exercise, Misconception, Probe, Property, Remark

# --- build_vocabulary ------------------------------------------------------------------------------------------------

WORDS = ("Ball", "Baum", "Frau", "Hund", "Kind", "Wiese", "alte", "ein", "ist", "rennt", "und", "zwei")


def some_words(draw: Draw, count: int) -> list[str]:
    """Different words in a random order that is not that of the alphabet."""
    chosen = sorted(WORDS[index] for index in draw.order(len(WORDS))[:count])
    return [chosen[index] for index in draw.order(count)]


def sentences_of(draw: Draw, tokens: list[str]) -> list[list[str]]:
    """The tokens in a random order, as sentences of three."""
    tokens = [tokens[index] for index in draw.order(len(tokens))]
    return [tokens[start : start + 3] for start in range(0, len(tokens), 3)]


def words_of_all_frequencies(draw: Draw) -> dict:
    words = some_words(draw, 4)
    often = [word for times, word in enumerate(words, start=1) for _ in range(times)]
    return {"sentences": [words[:2], *sentences_of(draw, often)], "min_frequency": 1}  # a rare one opens


def equally_frequent_words(draw: Draw) -> dict:
    words = some_words(draw, 4)
    return {"sentences": [words, words[::-1]], "min_frequency": 1}


def repeats_in_one_sentence(draw: Draw) -> dict:
    repeated, other, rare = some_words(draw, 3)
    sentences = [[repeated] * 3, [other, rare], [other]]
    return {"sentences": [sentences[index] for index in draw.order(3)], "min_frequency": 1}


def words_at_the_limit(draw: Draw) -> dict:
    limit = draw.integer(2, 3)
    above, at, below = some_words(draw, 3)
    tokens = [above] * (limit + 1) + [at] * limit + [below] * (limit - 1)
    return {"sentences": sentences_of(draw, tokens), "min_frequency": limit}


def questions_about_rare_words(draw: Draw) -> dict:
    inputs = words_at_the_limit(draw)
    known = {token for sentence in inputs["sentences"] for token in sentence}
    unseen = next(word for word in WORDS if word not in known)
    return inputs | {"questions": [*sorted(known), unseen]}


def capitals_and_small_letters(draw: Draw) -> dict:
    counts = {"Sie": draw.integer(4, 5), "sie": draw.integer(2, 3), "essen": 1, "Essen": 1}
    tokens = [word for word, count in counts.items() for _ in range(count)]
    return {"sentences": sentences_of(draw, tokens), "min_frequency": 1}


def typed_special_tokens(draw: Draw) -> dict:
    one, other = some_words(draw, 2)
    return {"sentences": [["<eos>", one, "<eos>"], [other, "<pad>", one]], "min_frequency": 1}


def tokens_in_order(subject, sentences, min_frequency):
    return {"tokens": list(subject(sentences, min_frequency).itos)}


def numbers_of_tokens(subject, sentences, min_frequency, questions):
    vocabulary = subject(sentences, min_frequency)
    return {"numbers": {token: vocabulary[token] for token in questions}}


def kind_of_vocabulary(subject, sentences, min_frequency):
    from torchtext.vocab import Vocab

    return {"is a Vocab": isinstance(subject(sentences, min_frequency), Vocab)}


def it_is_a_vocab(inputs, received):
    return None if received["is a Vocab"] else "what it returns is no `torchtext.vocab.Vocab`"


def tokens_from_a_generator(subject, sentences, min_frequency):
    from_list = subject([list(sentence) for sentence in sentences], min_frequency)
    from_generator = subject((list(sentence) for sentence in sentences), min_frequency)
    return {"list": list(from_list.itos), "generator": list(from_generator.itos)}


def generators_will_do(inputs, received):
    if received["list"] != received["generator"]:
        return "sentences that come one by one, from a generator, give another vocabulary than a list of them"
    return None


def tokens_and_back(subject, sentences, min_frequency):
    vocabulary = subject(sentences, min_frequency)
    return {"tokens": list(vocabulary.itos), "again": [vocabulary.itos[vocabulary[t]] for t in vocabulary.itos]}


def each_token_has_one_number(inputs, received):
    if len(set(received["tokens"])) < len(received["tokens"]):
        return "a token has two numbers"
    if received["again"] != received["tokens"]:
        return "the number of a token does not lead back to the token"
    return None


def vocabulary_with(count=None, **settings):
    """A `build_vocabulary` that counts otherwise, or gives torchtext other settings."""
    from_all = count or (lambda sentences: Counter(token for sentence in sentences for token in sentence))

    def build(sentences, min_frequency=1):
        from torchtext.vocab import Vocab

        chosen = {"min_freq": min_frequency, "specials": list(SPECIAL_TOKENS)} | settings
        return Vocab(from_all(sentences), **chosen)

    return build


def vocabulary_in_order(tokens):
    """A torchtext vocabulary of the special tokens and these, without regard to frequency."""
    from torchtext.vocab import Vocab

    vocabulary = Vocab(Counter(), specials=list(SPECIAL_TOKENS))
    vocabulary.itos += [token for token in tokens if token not in SPECIAL_TOKENS]
    vocabulary.stoi.update({token: index for index, token in enumerate(vocabulary.itos)})
    return vocabulary


def vocabulary_in_order_of_appearance(sentences, min_frequency=1):
    counts = Counter(token for sentence in sentences for token in sentence)
    return vocabulary_in_order(token for token in counts if counts[token] >= min_frequency)


def vocabulary_with_ties_as_they_come(sentences, min_frequency=1):
    counts = Counter(token for sentence in sentences for token in sentence)
    return vocabulary_in_order(token for token, count in counts.most_common() if count >= min_frequency)


def vocabulary_with_defaults(sentences, min_frequency=1):
    from torchtext.vocab import Vocab

    return Vocab(Counter(token for sentence in sentences for token in sentence), min_freq=min_frequency)


def vocabulary_off_by_one(sentences, min_frequency=1):
    return build_vocabulary(sentences, min_frequency + 1)


def vocabulary_limited_in_size(sentences, min_frequency=1):
    from torchtext.vocab import Vocab

    counts = Counter(token for sentence in sentences for token in sentence)
    return Vocab(counts, min_frequency, specials=list(SPECIAL_TOKENS))


def vocabulary_as_dictionary(sentences, min_frequency=1):
    return dict(build_vocabulary(sentences, min_frequency).stoi)


BUILD_VOCABULARY = Exercise(
    answer=build_vocabulary,
    points=1,
    minutes=10,
    returns=("vocabulary",),
    probes=[
        Probe("the special tokens, then the words, the most frequent first", words_of_all_frequencies, tokens_in_order),
        Probe("of equally frequent words, the first in the alphabet", equally_frequent_words, tokens_in_order),
        Probe("a word counts as often as it stands there", repeats_in_one_sentence, tokens_in_order),
        Probe("a word that is seen `min_frequency` times is in", words_at_the_limit, tokens_in_order),
        Probe("rare words and unseen ones have the number of `<unk>`", questions_about_rare_words, numbers_of_tokens),
        Probe("a capital letter makes another word", capitals_and_small_letters, tokens_in_order),
    ],
    properties=[
        Property("it is a `torchtext.vocab.Vocab`", words_of_all_frequencies, it_is_a_vocab, kind_of_vocabulary),
        Property("sentences may come one by one", words_at_the_limit, generators_will_do, tokens_from_a_generator),
        Property(
            "each token has one number, even a special one that is typed in a sentence",
            typed_special_tokens,
            each_token_has_one_number,
            tokens_and_back,
        ),
    ],
    misconceptions=[
        Misconception(
            "default_specials",
            vocabulary_with_defaults,
            "The special tokens are torchtext's own, `<unk>` and `<pad>`. Here there are four, and their numbers are "
            "fixed: the decoder starts with `<bos>` and ends at `<eos>`, and padding is 0. Hand "
            "`specials=list(SPECIAL_TOKENS)` to `Vocab`.",
        ),
        Misconception(
            "no_specials",
            vocabulary_with(specials=[]),
            "There are no special tokens. Without `<unk>` a new word has no number at all, and without `<pad>`, "
            "`<bos>` and `<eos>` no sentence can be padded, begun or ended: `specials=list(SPECIAL_TOKENS)`.",
        ),
        Misconception(
            "specials_last",
            vocabulary_with(specials_first=False),
            "The special tokens come last. Their numbers then depend on how many words there are, while the model "
            "counts on 0, 1, 2 and 3: leave `specials_first` as it is.",
        ),
        Misconception(
            "other_order_of_specials",
            vocabulary_with(specials=["<unk>", "<pad>", "<bos>", "<eos>"]),
            "The special tokens are there, but in another order than in `SPECIAL_TOKENS`. Padding is no longer 0, and "
            "every mask that looks for `pad_id` hides a word instead.",
        ),
        Misconception(
            "min_frequency_ignored",
            vocabulary_with(min_freq=1),
            "`min_frequency` is not used: every word has a number of its own, even one that is seen once. From a "
            "single sentence no model learns what a word means; such words are `<unk>`: `min_freq=min_frequency`.",
        ),
        Misconception(
            "off_by_one",
            vocabulary_off_by_one,
            "A word that is seen exactly `min_frequency` times is left out. It should be in: “at least”, not “more "
            "than”.",
        ),
        Misconception(
            "size_for_frequency",
            vocabulary_limited_in_size,
            "`min_frequency` is used as the size of the vocabulary: the second argument of `Vocab` is `max_size`. "
            "Name it: `Vocab(counts, min_freq=min_frequency, …)`.",
        ),
        Misconception(
            "once_per_sentence",
            vocabulary_with(
                count=lambda sentences: Counter(token for sentence in sentences for token in set(sentence))
            ),
            "Each word is counted once per sentence, however often it stands there. The frequency of a word is the "
            "number of its occurrences: leave `set` out.",
        ),
        Misconception(
            "characters",
            vocabulary_with(
                count=lambda sentences: Counter(c for sentence in sentences for token in sentence for c in token)
            ),
            "Characters are counted instead of words: there is one loop too many. A sentence is a list of tokens "
            "already, and each token counts as a whole.",
        ),
        Misconception(
            "lower_case",
            vocabulary_with(count=lambda sentences: Counter(t.lower() for sentence in sentences for t in sentence)),
            "All words are put into small letters. In German that joins words that differ (“Sie essen”, “das Essen”), "
            "and no capital letter could ever come out of the model, while BLEU compares capitals too.",
        ),
        Misconception(
            "order_of_appearance",
            vocabulary_in_order_of_appearance,
            "The words are numbered as they appear. They should be in order of their frequency, the most frequent "
            "first: `Vocab` does that by itself when it gets a `Counter`.",
        ),
        Misconception(
            "ties_as_they_come",
            vocabulary_with_ties_as_they_come,
            "Words that are equally frequent are numbered as they appear, so the same sentences in another order give "
            "other numbers, and a saved model no longer fits. Of equal counts, the alphabet decides, as in `Vocab`.",
        ),
        Misconception(
            "dictionary",
            vocabulary_as_dictionary,
            "It returns a dictionary. That has no `itos` to lead from numbers back to words, and a word it does not "
            "know is an error instead of `<unk>`: return a `torchtext.vocab.Vocab`.",
        ),
    ],
    hints=[
        "`torchtext.vocab.Vocab` does the numbering. It wants to know how often each token occurs: which class of "
        "Python's `collections` counts things?",
        "`Counter(token for sentence in sentences for token in sentence)`. Then look at `help(Vocab)`: which "
        "arguments take the special tokens and the least frequency?",
        "`Vocab(counts, min_freq=min_frequency, specials=list(SPECIAL_TOKENS))`",
    ],
)

# --- learn_bpe -------------------------------------------------------------------------------------------------------

ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def letters(draw: Draw, count: int) -> list[str]:
    """Different letters in a random order."""
    return [ALPHABET[index] for index in draw.order(len(ALPHABET))[:count]]


def a_frequent_pair(draw: Draw) -> dict:
    a, b, x, y = letters(draw, 4)
    return {"word_counts": {a + b + x: draw.integer(2, 4), a + b + y: draw.integer(2, 4)}, "n_merges": 1}


def a_chain_of_merges(draw: Draw) -> dict:
    a, b, x, y, z = letters(draw, 5)
    few = draw.integer(1, 3)
    some = few + draw.integer(1, 3)
    return {"word_counts": {a + b + x: some, a + b + y: some + draw.integer(1, 3), z + y: few}, "n_merges": 3}


def rare_words_and_a_frequent_one(draw: Draw) -> dict:
    a, b, c, d, u, v, w, x, y = letters(draw, 9)
    rare = {a + b + u: 1, a + b + v: 1, a + b + w: 1}
    return {"word_counts": rare | {c + d + x: draw.integer(3, 5), c + d + y: draw.integer(3, 5)}, "n_merges": 1}


def a_pair_twice_in_a_word(draw: Draw) -> dict:
    a, b, c, d, x, y, z = letters(draw, 7)
    times = draw.integer(4, 6)
    return {"word_counts": {a + b + x + a + b: times, c + d + y: times - 1, c + d + z: times - 1}, "n_merges": 3}


def equal_counts(draw: Draw) -> dict:
    p, q, t, u = sorted(letters(draw, 4))
    times = draw.integer(2, 4)
    return {"word_counts": {q + t: times, p + u: times}, "n_merges": 2}


def three_of_a_kind(draw: Draw) -> dict:
    a, c, d, x, y = letters(draw, 5)
    times = draw.integer(4, 6)
    return {"word_counts": {a + a + a: times, c + d + x: times - 1, c + d + y: times - 1}, "n_merges": 3}


def merges_that_meet_whole_symbols(draw: Draw) -> dict:
    a, b, c, *others = letters(draw, 10)
    least = draw.integer(3, 4)
    counts = {a + b + other: least + 1 for other in others[:3]}
    counts |= {a + b + c + other: least for other in others[3:5]}
    return {"word_counts": counts | {b + c + other: least + 1 for other in others[5:7]}, "n_merges": 3}


def equal_counts_of_longer_symbols(draw: Draw) -> dict:
    """After the first merge, the smaller of two pairs has the greater text: `(a, c)` and `(ab, b)`."""
    a, b, c, x, y = sorted(letters(draw, 5))
    times = draw.integer(2, 4)
    return {"word_counts": {a + b + b: times, a + b + x: 1, a + c + y: times}, "n_merges": 2}


def pairs_that_are_there_once(draw: Draw) -> dict:
    a, b, c = letters(draw, 3)
    return {"word_counts": {a + b: 2, c: 1}, "n_merges": 5}


def words_that_are_used_up(draw: Draw) -> dict:
    a, b, c = letters(draw, 3)
    few = draw.integer(1, 3)
    return {"word_counts": {a + b: few + 1, c + b: few}, "n_merges": 10}


def words_of_the_paper(draw: Draw) -> dict:
    words = ["low", "lowest", "newer", "wider"]
    counts = [words[index] for index in draw.order(4)]
    return {"word_counts": {word: draw.integer(2, 9) for word in counts}, "n_merges": draw.integer(8, 10)}


def merges_of_nothing(subject, word_counts, n_merges):
    return {"none asked for": subject(word_counts, 0), "no words": subject({}, n_merges)}


def nothing_comes_of_nothing(inputs, received):
    if list(received["none asked for"]):
        return "it learns merges even when `n_merges` is 0"
    return "it finds merges where there are no words" if list(received["no words"]) else None


def merges_of_reordered_words(subject, word_counts, n_merges):
    reordered = dict(reversed(word_counts.items()))
    return {"merges": subject(word_counts, n_merges), "reordered": subject(reordered, n_merges)}


def order_of_words_does_not_matter(inputs, received):
    if received["merges"] != received["reordered"]:
        return "the same words in another order give other merges"
    return None


def merges_join_what_is_there(inputs, merges):
    known = {END_OF_WORD, *(character for word in inputs["word_counts"] for character in word)}
    for merge in merges:
        if not isinstance(merge, list | tuple) or len(merge) != 2:
            return "a merge is no pair of symbols"
        if not known.issuperset(merge):
            return "a merge joins a symbol that is no character, no `</w>` and no result of an earlier merge"
        known.add(merge[0] + merge[1])
    return None


def characters_and_end(word):
    return [*word, END_OF_WORD]


def by_word_counts(words, word_counts):
    counts = Counter()
    for word, symbols in words.items():
        for pair in pairwise(symbols):
            counts[pair] += word_counts[word]
    return counts


def smallest_of_the_most_frequent(counts):
    return min(counts, key=lambda pair: (-counts[pair], pair))


def learn_bpe_with(
    start=characters_and_end, count=by_word_counts, choose=smallest_of_the_most_frequent, merge=merge_pair
):
    """A `learn_bpe` in which one of its four steps goes wrong."""

    def learn(word_counts, n_merges):
        words = {word: start(word) for word in word_counts}
        merges = []
        while len(merges) < n_merges and (counts := count(words, word_counts)):
            merges.append(choose(counts))
            words = {word: merge(symbols, merges[-1]) for word, symbols in words.items()}
        return merges

    return learn


def characters_alone(word):
    return list(word)


def end_as_four_characters(word):
    return list(word + END_OF_WORD)


def end_at_the_last_character(word):
    return [*word[:-1], word[-1] + END_OF_WORD]


def one_for_each_type(words, word_counts):
    return Counter(pair for symbols in words.values() for pair in pairwise(symbols))


def once_for_each_word(words, word_counts):
    counts = Counter()
    for word, symbols in words.items():
        for pair in dict.fromkeys(pairwise(symbols)):
            counts[pair] += word_counts[word]
    return counts


def without_overlaps(words, word_counts):
    counts = Counter()
    for word, symbols in words.items():
        for pair in dict.fromkeys(pairwise(symbols)):
            counts[pair] += word_counts[word] * (len(symbols) - len(merge_pair(symbols, pair)))
    return counts


def first_of_the_most_frequent(counts):
    return max(counts, key=counts.get)


def greatest_of_the_most_frequent(counts):
    return max(counts, key=lambda pair: (counts[pair], pair))


def merge_by_replacing_text(symbols, pair):
    return " ".join(symbols).replace(" ".join(pair), "".join(pair)).split(" ")


def merge_first_only(symbols, pair):
    for position in range(len(symbols) - 1):
        if tuple(symbols[position : position + 2]) == pair:
            return [*symbols[:position], pair[0] + pair[1], *symbols[position + 2 :]]
    return symbols


def merge_overlapping(symbols, pair):
    merged = []
    for position, symbol in enumerate(symbols):
        if tuple(symbols[position : position + 2]) == pair:
            merged.append(pair[0] + pair[1])
        elif position == 0 or tuple(symbols[position - 1 : position + 1]) != pair:
            merged.append(symbol)
    return merged


def merge_from_the_right(symbols, pair):
    merged = []
    position = len(symbols)
    while position > 0:
        if position > 1 and tuple(symbols[position - 2 : position]) == pair:
            merged.insert(0, pair[0] + pair[1])
            position -= 2
        else:
            merged.insert(0, symbols[position - 1])
            position -= 1
    return merged


def learn_bpe_across_words(word_counts, n_merges):
    text = [symbol for word, count in word_counts.items() for symbol in characters_and_end(word) * count]
    merges = []
    while len(merges) < n_merges and len(text) > 1:
        merges.append(smallest_of_the_most_frequent(Counter(pairwise(text))))
        text = merge_pair(text, merges[-1])
    return merges


def learn_bpe_from_one_count(word_counts, n_merges):
    counts = by_word_counts({word: characters_and_end(word) for word in word_counts}, word_counts)
    return sorted(counts, key=lambda pair: (-counts[pair], pair))[:n_merges]


def learn_bpe_from_all_counts(word_counts, n_merges):
    total = Counter()

    def count(words, word_counts):
        total.update(by_word_counts(words, word_counts))
        return total

    return learn_bpe_with(count=count)(word_counts, n_merges)


def learn_bpe_as_symbols(word_counts, n_merges):
    return [left + right for left, right in learn_bpe(word_counts, n_merges)]


def learn_bpe_without_an_end(choose):
    def learn(word_counts, n_merges):
        words = {word: characters_and_end(word) for word in word_counts}
        merges = []
        for _ in range(n_merges):
            merges.append(choose(by_word_counts(words, word_counts)))
            words = {word: merge_pair(symbols, merges[-1]) for word, symbols in words.items()}
        return merges

    return learn


NO_PAIRS_LEFT = (
    "When every word has become a single symbol, there are no pairs left, and `max` or `min` of nothing stops with an "
    "error. End the loop then, even if fewer than `n_merges` have been found."
)


def smallest_text_of_the_most_frequent(counts):
    return min(counts, key=lambda pair: (-counts[pair], pair[0] + pair[1]))


def pairs_that_are_there_twice(words, word_counts):
    counts = by_word_counts(words, word_counts)
    return counts if max(counts.values(), default=0) > 1 else Counter()


LEARN_BPE = Exercise(
    answer=learn_bpe,
    points=3,
    minutes=25,
    returns=("merges",),
    banned=("tokenizers.",),
    probes=[
        Probe("one merge: the most frequent pair", a_frequent_pair),
        Probe("three merges, each after the one before", a_chain_of_merges),
        Probe("a pair counts as often as the words it is in", rare_words_and_a_frequent_one),
        Probe("a pair that is twice in a word counts twice", a_pair_twice_in_a_word),
        Probe("of equally frequent pairs, the smallest", equal_counts),
        Probe("of equally frequent pairs, the smallest, not the smallest text", equal_counts_of_longer_symbols),
        Probe("a pair that is there only once is merged too", pairs_that_are_there_once),
        Probe("the same letter three times", three_of_a_kind),
        Probe("a merge joins two whole symbols", merges_that_meet_whole_symbols),
        Probe("it ends when every word is a single symbol", words_that_are_used_up),
        Probe("the words of Sennrich's paper", words_of_the_paper),
    ],
    properties=[
        Property("nothing comes of nothing", a_frequent_pair, nothing_comes_of_nothing, merges_of_nothing),
        Property(
            "the order of the words does not matter",
            words_of_the_paper,
            order_of_words_does_not_matter,
            merges_of_reordered_words,
        ),
        Property("each merge joins two symbols that are there", words_of_the_paper, merges_join_what_is_there),
    ],
    misconceptions=[
        Misconception(
            "count_per_type",
            learn_bpe_with(count=one_for_each_type),
            "Every word counts once, however frequent it is. A pair counts as often as the words it stands in: add "
            "`word_counts[word]`, not 1 (algorithm 1: `pairs[…] += freq`).",
        ),
        Misconception(
            "once_per_word",
            learn_bpe_with(count=once_for_each_word),
            "A pair that stands in a word twice is counted once. Count it at every place where it stands, each time "
            "with the count of the word.",
        ),
        Misconception(
            "without_overlaps",
            learn_bpe_with(count=without_overlaps),
            "Where a letter stands three times in a row, its pair is counted once. It stands there at two "
            "neighbouring places, and each is counted; only the merge uses no symbol twice.",
        ),
        Misconception(
            "no_end_of_word",
            learn_bpe_with(start=characters_alone),
            "The words have no `</w>` at their end. Without it, *er* at the end of *newer* and in the middle of "
            "*person* are the same piece, and nobody can tell where one word ends and the next begins.",
        ),
        Misconception(
            "end_as_characters",
            learn_bpe_with(start=end_as_four_characters),
            "`</w>` is taken apart into `<`, `/`, `w` and `>`: `list(word + END_OF_WORD)` does that. It is one symbol: "
            "`[*word, END_OF_WORD]`.",
        ),
        Misconception(
            "end_in_last_character",
            learn_bpe_with(start=end_at_the_last_character),
            "The last character and `</w>` are one symbol from the start. Some libraries do that today; in algorithm "
            "1 of Sennrich et al., and here, `</w>` is a symbol of its own, and joining it takes a merge.",
        ),
        Misconception(
            "across_words",
            learn_bpe_across_words,
            "Pairs are counted, and merged, from the end of one word to the beginning of the next. The words of the "
            "list do not stand beside each other in any text: count within each word.",
        ),
        Misconception(
            "first_of_equal",
            learn_bpe_with(choose=first_of_the_most_frequent),
            "Of pairs that are equally frequent, the one that was seen first is merged: `max(counts, key=counts.get)` "
            "does that. Then the order of the words decides. Here the smallest pair is taken: `min(counts, key=lambda "
            "pair: (-counts[pair], pair))`.",
        ),
        Misconception(
            "greatest_of_equal",
            learn_bpe_with(choose=greatest_of_the_most_frequent),
            "Of pairs that are equally frequent, the greatest is merged; it should be the smallest. `max` of `(count, "
            "pair)` prefers great pairs; `min` of `(-count, pair)` does what is wanted.",
        ),
        Misconception(
            "counted_only_once",
            learn_bpe_from_one_count,
            "The pairs are counted once, at the beginning, and the most frequent ones returned. Each merge changes "
            "the words: new pairs arise and others vanish, so count again after every merge.",
        ),
        Misconception(
            "counts_kept",
            learn_bpe_from_all_counts,
            "The counts of earlier rounds are still there, and those of each round are added to them, so that a pair "
            "that is merged already can come again. Begin every round with an empty `Counter()`.",
        ),
        Misconception(
            "text_replaced",
            learn_bpe_with(merge=merge_by_replacing_text),
            "The symbols are joined to a text in which the pair is replaced. That also hits the end of one symbol and "
            "the beginning of another: in `ab c`, the pair (b, c) is found, although there is no symbol b. Compare "
            "whole symbols.",
        ),
        Misconception(
            "first_place_only",
            learn_bpe_with(merge=merge_first_only),
            "In each word only the first occurrence of the pair is merged. A merge joins all of them, from left to "
            "right.",
        ),
        Misconception(
            "overlapping_merge",
            learn_bpe_with(merge=merge_overlapping),
            "A symbol is used twice: of `a a a` come `aa aa`, four letters out of three. After a merge go on behind "
            "both of its symbols: `aa a`.",
        ),
        Misconception(
            "merged_from_the_right",
            learn_bpe_with(merge=merge_from_the_right),
            "The merge runs from right to left: of `a a a` comes `a aa`. It should run from left to right: `aa a`.",
        ),
        Misconception(
            "symbols_for_pairs",
            learn_bpe_as_symbols,
            "The results are the joined symbols. From `low` alone nobody can tell whether `lo` and `w` were joined or "
            "`l` and `ow`: return the pairs, `(left, right)`.",
        ),
        Misconception(
            "max_of_no_pairs",
            learn_bpe_without_an_end(lambda counts: max(sorted(counts), key=lambda pair: counts[pair])),
            NO_PAIRS_LEFT,
        ),
        Misconception(
            "min_of_no_pairs",
            learn_bpe_without_an_end(smallest_of_the_most_frequent),
            NO_PAIRS_LEFT,
        ),
        Misconception(
            "smallest_text",
            learn_bpe_with(choose=smallest_text_of_the_most_frequent),
            "Of pairs that are equally frequent, the one with the smallest joined text is merged. The pairs "
            "themselves are compared, the left symbol first: `(a, c)` comes before `(ab, b)`, because `a` comes "
            "before `ab`.",
        ),
        Misconception(
            "stops_at_one",
            learn_bpe_with(count=pairs_that_are_there_twice),
            "Learning ends as soon as no pair is there twice, as some programs do. Here it goes on until `n_merges` "
            "are found or every word is a single symbol: nothing is said of a least count.",
        ),
    ],
    hints=[
        "Keep each word as a list of symbols: its characters, then `</w>`. Then repeat: count the pairs, take the "
        "best one, merge it in all words. When does the loop end?",
        "`itertools.pairwise(symbols)` gives the neighbours; each counts `word_counts[word]` times. The best one is "
        "the `min` by `(-count, pair)`, and `merge_pair` joins it in one word.",
        "`counts = Counter()`, then for each word and each pair of it `counts[pair] += word_counts[word]`; stop `if "
        "not counts`; `best = min(counts, key=lambda pair: (-counts[pair], pair))`; `words = {word: "
        "merge_pair(symbols, best) for word, symbols in words.items()}`.",
    ],
)

# --- apply_bpe -------------------------------------------------------------------------------------------------------

LEARNT = [
    ("e", "r"),
    ("er", "</w>"),
    ("l", "o"),
    ("lo", "w"),
    ("n", "e"),
    ("ne", "w"),
    ("i", "d"),
    ("w", "id"),
    ("s", "t"),
    ("st", "</w>"),
]


def merges_of_other_letters(draw: Draw) -> dict:
    a, b, c, x, y, z = letters(draw, 6)
    return {"word": a + b + c, "merges": [(x, y), (y, z), (a, x)]}


def merges_that_build_on_each_other(draw: Draw) -> dict:
    a, b, c, d = letters(draw, 4)
    return {"word": a + b + c + d, "merges": [(a, b), (a + b, c)]}


def an_earlier_merge_further_right(draw: Draw) -> dict:
    a, b, c = letters(draw, 3)
    return {"word": a + b + c, "merges": [(b, c), (a, b)]}


def a_longer_symbol_out_of_reach(draw: Draw) -> dict:
    a, b, c = letters(draw, 3)
    return {"word": a + b + c, "merges": [(a, b), (b, c), (a, b + c)]}


def many_of_a_kind(draw: Draw) -> dict:
    a = letters(draw, 1)[0]
    return {"word": a * draw.integer(1, 2) * 2 + a, "merges": [(a, a)]}


def a_pair_in_two_places(draw: Draw) -> dict:
    a, b, x = letters(draw, 3)
    return {"word": a + b + x + a + b, "merges": [(a, b)]}


def a_pair_at_the_end(draw: Draw) -> dict:
    e, r, x = letters(draw, 3)
    return {"word": e + r + x + e + r, "merges": [(e, r), (e + r, END_OF_WORD), (x, e + r + END_OF_WORD)]}


def a_word_of_one_letter(draw: Draw) -> dict:
    a, b = letters(draw, 2)
    return {"word": a, "merges": [(b, a), (b, END_OF_WORD)]}


def a_pair_across_symbols(draw: Draw) -> dict:
    a, b, c = letters(draw, 3)
    return {"word": a + b + c + b + c, "merges": [(a, b), (b, c)]}


def a_character_never_seen(draw: Draw) -> dict:
    a, b = letters(draw, 2)
    strange = "ßéñ☃"[draw.integer(0, 3)]
    return {"word": strange + a + b + strange, "merges": [(a, b)]}


def a_word_and_learnt_merges(draw: Draw) -> dict:
    return {"word": ["lower", "newer", "wider", "lowest", "slower"][draw.integer(0, 4)], "merges": list(LEARNT)}


def symbols_spell_the_word(inputs, symbols):
    if "".join(symbols) != inputs["word"] + END_OF_WORD:
        return "put together, the symbols do not spell the word and `</w>`"
    return None


def symbols_are_known(inputs, symbols):
    known = {END_OF_WORD, *inputs["word"], *(left + right for left, right in inputs["merges"])}
    return None if known.issuperset(symbols) else "a symbol is no character, no `</w>` and no result of a merge"


def apply_with(start=characters_and_end, merge=merge_pair, end=list):
    """An `apply_bpe` in which one of its steps goes wrong."""

    def apply(word, merges):
        symbols = start(word)
        for pair in merges:
            symbols = merge(symbols, tuple(pair))
        return end(symbols)

    return apply


def apply_from_left_to_right(word, merges):
    symbols, known = characters_and_end(word), set(map(tuple, merges))
    position = 0
    while position < len(symbols) - 1:
        if (symbols[position], symbols[position + 1]) in known:
            symbols[position : position + 2] = ["".join(symbols[position : position + 2])]
            position = 0
        else:
            position += 1
    return symbols


def apply_longest_first(word, merges):
    known = {left + right for left, right in merges}
    rest, symbols = word + END_OF_WORD, []
    while rest:
        ends = range(len(rest), 0, -1)
        single = END_OF_WORD if rest == END_OF_WORD else rest[0]
        symbols.append(next((rest[:end] for end in ends if rest[:end] in known), single))
        rest = rest[len(symbols[-1]) :]
    return symbols


def apply_last_merge_first(word, merges):
    return apply_bpe(word, merges[::-1])


def apply_one_merge(word, merges):
    symbols = characters_and_end(word)
    for pair in merges:
        if tuple(pair) in pairwise(symbols):
            return merge_pair(symbols, tuple(pair))
    return symbols


def apply_with_unknowns(word, merges):
    known = {END_OF_WORD, *(symbol for pair in merges for symbol in pair)}
    return [symbol if symbol in known else "<unk>" for symbol in apply_bpe(word, [*merges])]


def without_end(symbols):
    *before, last = symbols
    last = last.removesuffix(END_OF_WORD)
    return [*before, last] if last else before


def apply_to_longer_words(word, merges):
    return [word] if len(word) == 1 else apply_bpe(word, merges)


def apply_knowing_the_letters_of_merges(word, merges):
    known = {END_OF_WORD, *(symbol for pair in merges for symbol in pair)}
    return apply_with(start=lambda word: [c if c in known else "<unk>" for c in characters_and_end(word)])(word, merges)


APPLY_BPE = Exercise(
    answer=apply_bpe,
    points=1,
    minutes=10,
    returns=("symbols",),
    banned=("tokenizers.",),
    probes=[
        Probe("no merge fits: characters, and the end", merges_of_other_letters),
        Probe("merges that build on each other", merges_that_build_on_each_other),
        Probe("an earlier merge goes first, wherever it stands", an_earlier_merge_further_right),
        Probe("a longer symbol that no merge reaches", a_longer_symbol_out_of_reach),
        Probe("the same letter several times", many_of_a_kind),
        Probe("a pair in two places", a_pair_in_two_places),
        Probe("a pair at the end of the word", a_pair_at_the_end),
        Probe("a word of one letter", a_word_of_one_letter),
        Probe("a merge joins two whole symbols", a_pair_across_symbols),
        Probe("a character that no merge knows stays", a_character_never_seen),
        Probe("ten learnt merges", a_word_and_learnt_merges),
    ],
    properties=[
        Property("together, the symbols spell the word", a_word_and_learnt_merges, symbols_spell_the_word),
        Property("every symbol is a character, the end or a merge's result", a_pair_at_the_end, symbols_are_known),
        Property("a strange word is spelled as well", a_character_never_seen, symbols_spell_the_word),
    ],
    misconceptions=[
        Misconception(
            "no_end_of_word",
            apply_with(start=characters_alone),
            "The word gets no `</w>`. The merges were learnt with it, and those that hold it can never be used: start "
            "from the characters and `</w>`, as in learning.",
        ),
        Misconception(
            "end_removed",
            apply_with(end=without_end),
            "The merges are right, but `</w>` is taken off in the end. It has to stay: from it the decoder's pieces "
            "are put together to words again.",
        ),
        Misconception(
            "end_in_last_character",
            apply_with(start=end_at_the_last_character),
            "The last character and `</w>` are one symbol from the start. Here `</w>` is a symbol of its own, which "
            "merges join to the word like any other.",
        ),
        Misconception(
            "left_to_right",
            apply_from_left_to_right,
            "The word is read from left to right, and the first pair that is in the list is merged. But the list has "
            "an order: an earlier merge goes first, even if it stands further right in the word. Otherwise frequent "
            "pieces, which were learnt first, are torn apart.",
        ),
        Misconception(
            "longest_piece",
            apply_longest_first,
            "The longest known piece is cut off, again and again. That is the rule of WordPiece. Byte pairs repeat "
            "the merges in the order in which they were learnt; a piece that this order does not reach is not used.",
        ),
        Misconception(
            "end_as_characters",
            apply_with(start=end_as_four_characters),
            "`</w>` is taken apart into `<`, `/`, `w` and `>`: `list(word + END_OF_WORD)` does that. It is one symbol: "
            "`[*word, END_OF_WORD]`.",
        ),
        Misconception(
            "last_merge_first",
            apply_last_merge_first,
            "The merges are made in reverse order. The later ones join what the earlier ones have made, so begin with "
            "the first.",
        ),
        Misconception(
            "one_merge_only",
            apply_one_merge,
            "It stops after the first merge that fits. Go on: every merge of the list gets its turn, and works on "
            "what the earlier ones have left.",
        ),
        Misconception(
            "first_place_only",
            apply_with(merge=merge_first_only),
            "Each merge joins its pair in one place only. It joins the pair wherever it stands, from left to right.",
        ),
        Misconception(
            "overlapping_merge",
            apply_with(merge=merge_overlapping),
            "A symbol is used twice: of `a a a` come `aa aa`, and the word has grown. After a merge go on behind both "
            "of its symbols.",
        ),
        Misconception(
            "merged_from_the_right",
            apply_with(merge=merge_from_the_right),
            "A merge runs from right to left: of `a a a` comes `a aa`. In learning it ran from left to right, and it "
            "has to be the same here.",
        ),
        Misconception(
            "text_replaced",
            apply_with(merge=merge_by_replacing_text),
            "The pair is replaced in a text of all symbols. That also hits the end of one symbol and the beginning of "
            "another: in `ab c`, the pair (b, c) is found, although there is no symbol b. Compare whole symbols.",
        ),
        Misconception(
            "unknown_replaced",
            apply_with_unknowns,
            "Symbols that are in no merge become `<unk>`, so the word is lost. A character that no merge knows stays "
            "as it is: that every word can be spelled is what byte pairs are for.",
        ),
        Misconception(
            "joined",
            apply_with(end=" ".join),
            "It returns one string with blanks in it. A list of symbols is wanted: each of them gets a number of its "
            "own.",
        ),
        Misconception(
            "one_letter_left_out",
            apply_to_longer_words,
            "A word of one letter comes back as it is, without `</w>`. It is a word like any other: its letter and "
            "`</w>` are two symbols, and a merge may join them.",
        ),
        Misconception(
            "unknown_for_characters",
            apply_knowing_the_letters_of_merges,
            "A character that no merge knows becomes `<unk>`. Which symbols have a number is for the vocabulary to "
            "say, later; here every character stays, and the word can be read again.",
        ),
    ],
    hints=[
        "Begin as in learning: the characters, then `</w>`. What has to be repeated, and in which order?",
        "For each pair of `merges`, from the first to the last: join it wherever it stands in the word.",
        "`symbols = [*word, END_OF_WORD]`, then `for pair in merges: symbols = merge_pair(symbols, pair)`.",
    ],
)

# --- pad_batch -------------------------------------------------------------------------------------------------------


def token_lists(draw: Draw, *lengths: int, low: int = 4, high: int = 9) -> list[list[int]]:
    return [draw.integers(length, low=low, high=high).tolist() for length in lengths]


def padded_with_zero(draw: Draw) -> dict:
    return {"sequences": token_lists(draw, 2, 4), "pad_id": 0}


def padded_with_another_id(draw: Draw) -> dict:
    sequences = token_lists(draw, 3, 1, 5)
    sequences[1][0] = 0  # a word here
    return {"sequences": sequences, "pad_id": draw.integer(1, 3)}


def longest_in_the_middle(draw: Draw) -> dict:
    return {"sequences": token_lists(draw, 1, 4, 3, 2), "pad_id": 0}


def two_languages(draw: Draw) -> dict:
    one, other = (1, 2) if draw.integer(0, 1) else (2, 1)
    return {
        "sources": token_lists(draw, 2, 3),
        "targets": token_lists(draw, 4, 2),
        "source_pad_id": one,
        "target_pad_id": other,
    }


def both_sides(subject, sources, targets, source_pad_id, target_pad_id):
    return {"source": subject(sources, source_pad_id), "target": subject(targets, target_pad_id)}


def is_int64_of_the_right_shape(inputs, padded):
    if padded.dtype != torch.int64:
        return "it is not int64, the type in which torch wants its indices"
    shape = len(inputs["sequences"]), max(map(len, inputs["sequences"]))
    return None if tuple(padded.shape) == shape else "its shape is not (sequences, longest)"


def sequences_stand_in_their_rows(inputs, padded):
    for row, sequence in zip(padded.tolist(), inputs["sequences"], strict=True):
        if row[: len(sequence)] != sequence:
            return "a row does not begin with its sequence"
    return None


def pad_with_zero(sequences, pad_id):
    return pad_batch(sequences, 0)


def pad_on_the_left(sequences, pad_id):
    return pad_batch([sequence[::-1] for sequence in sequences], pad_id).flip(1)


def cut_to_the_shortest(sequences, pad_id):
    shortest = min(len(sequence) for sequence in sequences)
    return torch.tensor([sequence[:shortest] for sequence in sequences])


def pad_to_fifty(sequences, pad_id):
    return torch.tensor([sequence + [pad_id] * (50 - len(sequence)) for sequence in sequences])


def pad_with_length_first(sequences, pad_id):
    return pad_batch(sequences, pad_id).T


def pad_as_real_numbers(sequences, pad_id):
    return pad_batch(sequences, pad_id).to(torch.get_default_dtype())


def pad_as_int32(sequences, pad_id):
    return pad_batch(sequences, pad_id).int()


def pad_as_lists(sequences, pad_id):
    return pad_batch(sequences, pad_id).tolist()


def pad_in_place(sequences, pad_id):
    longest = max(len(sequence) for sequence in sequences)
    for sequence in sequences:
        while len(sequence) < longest:
            sequence.append(pad_id)
    return torch.tensor(sequences)


def pad_sorted(sequences, pad_id):
    return pad_batch(sorted(sequences, key=len, reverse=True), pad_id)


def no_padding(sequences, pad_id):
    return torch.tensor(sequences)


def pad_with_one_more(sequences, pad_id):
    longest = max(len(sequence) for sequence in sequences) + 1
    return torch.tensor([sequence + [pad_id] * (longest - len(sequence)) for sequence in sequences])


def pad_one_row(sequences, pad_id):
    longest = max(len(sequence) for sequence in sequences)
    rows = [[pad_id] * longest] * len(sequences)
    for row, sequence in zip(rows, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.tensor(rows)


def pad_to_the_greatest(sequences, pad_id):
    longest = len(max(sequences))
    return torch.tensor([sequence + [pad_id] * (longest - len(sequence)) for sequence in sequences])


PAD_BATCH = Exercise(
    answer=pad_batch,
    points=1,
    minutes=10,
    returns=("padded",),
    axes={"padded": "batch length", "source": "batch length", "target": "batch length"},
    banned=("torch.nn.utils.rnn.pad_sequence", "torch.nn.utils.rnn.pad_packed_sequence"),
    probes=[
        Probe("two sequences, padded with 0", padded_with_zero),
        Probe("another pad id, and 0 is a word", padded_with_another_id),
        Probe("four sequences, the longest in the middle", longest_in_the_middle),
        Probe("two languages, each with a pad id of its own", two_languages, both_sides),
    ],
    properties=[
        Property("it is int64, (sequences, longest)", longest_in_the_middle, is_int64_of_the_right_shape),
        Property("every row begins with its sequence", padded_with_another_id, sequences_stand_in_their_rows),
    ],
    misconceptions=[
        Misconception(
            "pad_id_zero",
            pad_with_zero,
            "Padding is always 0, whatever `pad_id` says. Where source and target have vocabularies of their own, "
            "their pad ids may differ, and with the wrong one padding becomes a word that attention sees and the loss "
            "counts.",
        ),
        Misconception(
            "on_the_left",
            pad_on_the_left,
            "The padding stands on the left. Every sentence then begins at another position, so that the positional "
            "encoding shifts it by its neighbours' length, and `target[:, 0]` is no longer `<bos>`. Pad on the right.",
        ),
        Misconception(
            "cut_to_the_shortest",
            cut_to_the_shortest,
            "The sequences are cut to the length of the shortest one. That loses words, and `<eos>` with them: the "
            "shorter ones have to grow, up to the longest.",
        ),
        Misconception(
            "fixed_length",
            pad_to_fifty,
            "All batches are padded to 50. A longer sentence does not fit, and a batch of short ones is nearly all "
            "padding: pad to the longest sequence of this batch.",
        ),
        Misconception(
            "one_more",
            pad_with_one_more,
            "There is a column too many, with nothing but padding in it: the result is as long as the longest "
            "sequence.",
        ),
        Misconception(
            "length_first",
            pad_with_length_first,
            "The axes are `(length, batch)`, as `nn.utils.rnn.pad_sequence` gives them unless it is told "
            "`batch_first=True`. In this course the batch comes first.",
        ),
        Misconception(
            "real_numbers",
            pad_as_real_numbers,
            "The tensor holds real numbers, as `torch.zeros` and `torch.full` with a float make them. Tokens are "
            "indices, and an embedding takes whole numbers only: `dtype=torch.int64`.",
        ),
        Misconception(
            "int32",
            pad_as_int32,
            "The values are right, but the tensor is int32. torch wants its labels in int64, and the loss would stop "
            "with an error: `dtype=torch.int64`.",
        ),
        Misconception(
            "lists",
            pad_as_lists,
            "It returns lists. A model wants a tensor: `torch.tensor(…)` around them.",
        ),
        Misconception(
            "in_place",
            pad_in_place,
            "The values are right, but the caller's own lists are padded (`append` and `+=` change a list in place). "
            "In the next epoch, in another batch, these sentences are longer than they were: build new lists.",
        ),
        Misconception(
            "sorted_rows",
            pad_sorted,
            "The rows are sorted by length. Recurrent networks once needed that; here it tears source and target "
            "apart, because each side would be sorted by itself. Keep the order.",
        ),
        Misconception(
            "no_padding",
            no_padding,
            "Nothing is padded, and torch makes no tensor of rows of different lengths. Fill up the shorter sequences "
            "with `pad_id` first.",
        ),
        Misconception(
            "one_row_for_all",
            pad_one_row,
            "All rows are the same list: `[row] * n` repeats the object, and what is written into one stands in all. "
            "Build a row for each sequence: `[[pad_id] * longest for _ in sequences]`.",
        ),
        Misconception(
            "greatest_for_longest",
            pad_to_the_greatest,
            "`max(sequences)` finds the list whose first token is the greatest, not the longest one: "
            "`max(len(sequence) for sequence in sequences)`.",
        ),
    ],
    hints=[
        "How long does every row have to be? How many times does a sequence need `pad_id` to get there?",
        "`[*sequence, *[pad_id] * missing]` is a new, longer list. With all rows of one length, `torch.tensor` does "
        "the rest.",
        "`longest = max(len(sequence) for sequence in sequences)`, then `torch.tensor([[*sequence, *[pad_id] * "
        "(longest - len(sequence))] for sequence in sequences], dtype=torch.int64)`.",
    ],
)

# --- token_batches ---------------------------------------------------------------------------------------------------


def sentences_of_one_length(draw: Draw) -> dict:
    length, together = draw.integer(2, 4), draw.integer(2, 3)
    return {"lengths": [length] * 7, "max_tokens": length * together}


def lengths_whose_sum_would_fit(draw: Draw) -> dict:
    long = draw.integer(5, 8)
    return {"lengths": [1, 2, long, long + 1], "max_tokens": 2 * long + 4}


def a_long_one_first(draw: Draw) -> dict:
    long, short = draw.integer(5, 9), draw.integer(1, 2)
    return {"lengths": [long, short, short], "max_tokens": 2 * long}


def one_that_fills_a_batch_alone(draw: Draw) -> dict:
    lengths, longest = [1] * 5, draw.integer(6, 8)
    lengths.insert(draw.integer(0, 4), longest)
    return {"lengths": lengths, "max_tokens": longest}


def few_sentences(draw: Draw) -> dict:
    return {"lengths": [draw.integer(1, 4) for _ in range(3)], "max_tokens": draw.integer(13, 20)}


def forty_sentences(draw: Draw) -> dict:
    return {"lengths": draw.integers(40, low=1, high=12).tolist(), "max_tokens": draw.integer(30, 40)}


def a_sentence_that_is_too_long(draw: Draw) -> dict:
    lengths, most = draw.integers(4, low=1, high=5).tolist(), draw.integer(10, 12)
    lengths[draw.integer(0, 3)] = most + 1
    return {"lengths": lengths, "max_tokens": most}


def batches_that_keep_the_rules(inputs, expected, received):
    """What is wrong with a partition, or None; several are right."""
    lengths, max_tokens = inputs["lengths"], inputs["max_tokens"]
    if not isinstance(received, list | tuple) or not all(isinstance(batch, list | tuple) for batch in received):
        return "it is no list of batches, each a list of positions in `lengths`"
    positions = [position for batch in received for position in batch]
    if not all(received):
        return "there is an empty batch"
    if not set(positions) <= set(range(len(lengths))):
        return "a batch holds something that is no position in `lengths`"
    if len(set(positions)) < len(positions):
        return "a sentence is there twice"
    if len(positions) < len(lengths):
        return "a sentence is in no batch"
    longest = [max(lengths[position] for position in batch) for batch in received]
    if any(len(batch) * most > max_tokens for batch, most in zip(received, longest, strict=True)):
        return "there is a batch that, once padded, has more than `max_tokens` cells"
    together = zip(pairwise(received), pairwise(longest), strict=True)
    if any((len(one) + len(other)) * max(two) <= max_tokens for (one, other), two in together):
        return "two neighbouring batches would fit into one"
    ranges = sorted(
        (min(lengths[position] for position in batch), most) for batch, most in zip(received, longest, strict=True)
    )
    if any(left[1] > right[0] for left, right in pairwise(ranges)):
        return Remark(
            "These batches mix short sentences with long ones, and what is short is padded. Take the sentences in "
            "order of their length: “batched together by approximate sequence length” (section 5.1)."
        )
    return None


def what_becomes_of_it(subject, lengths, max_tokens):
    try:
        batches = subject(lengths, max_tokens)
    except Exception as error:
        return {"raised": type(error).__name__, "batches": []}
    return {"raised": "nothing", "batches": batches}


def too_long_is_an_error(inputs, received):
    if received["raised"] == "ValueError":
        return None
    if received["raised"] != "nothing":
        return "it stops with another exception than a ValueError"
    too_long = inputs["lengths"].index(max(inputs["lengths"]))
    if any(too_long in batch for batch in received["batches"]):
        return "a sentence that is longer than `max_tokens` comes back in a batch"
    return "a sentence that is longer than `max_tokens` is left out without a word"


def batches_of_nothing(subject, lengths, max_tokens):
    return {"batches": subject(lengths, max_tokens)}


def no_batches(inputs, received):
    return "there are batches without sentences" if len(received["batches"]) else None


def batches_with(fits, order=None, result=lambda batches, lengths: batches):
    """A `token_batches` that takes sentences in another order, or has another idea of what fits into a batch.

    `fits(members, length, max_tokens)` gets the lengths that are in the batch already.
    """

    def group(lengths, max_tokens):
        if any(length > max_tokens for length in lengths):
            raise ValueError(f"a sentence is longer than {max_tokens}")
        indices = range(len(lengths))
        batches = []
        for index in sorted(indices, key=lambda index: order(lengths[index])) if order else indices:
            if batches and fits([lengths[i] for i in batches[-1]], lengths[index], max_tokens):
                batches[-1].append(index)
            else:
                batches.append([index])
        return result(batches, lengths)

    return group


def shortest_first(length):
    return length


def longest_first(length):
    return -length


def sum_fits(members, length, max_tokens):
    return sum(members) + length <= max_tokens


def count_fits(members, length, max_tokens):
    return len(members) + 1 <= max_tokens


def latest_fits(members, length, max_tokens):
    return (len(members) + 1) * length <= max_tokens


def others_fit(members, length, max_tokens):
    return len(members) * length <= max_tokens


def same_length_fits(members, length, max_tokens):
    return length == members[0] and latest_fits(members, length, max_tokens)


def latest_fits_with_room(members, length, max_tokens):
    return (len(members) + 1) * length < max_tokens


def lengths_for_positions(batches, lengths):
    return [[lengths[index] for index in batch] for batch in batches]


def without_the_last(batches, lengths):
    return batches[:-1]


def batches_of_sorted_positions(lengths, max_tokens):
    return token_batches(sorted(lengths), max_tokens)


def batches_as_the_longest_needs(lengths, max_tokens):
    if not lengths:
        return []
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    if lengths[order[-1]] > max_tokens:
        raise ValueError(f"a sentence is longer than {max_tokens}")
    size = max_tokens // lengths[order[-1]]
    return [order[start : start + size] for start in range(0, len(order), size)]


def batches_that_lose_what_does_not_fit(lengths, max_tokens):
    if any(length > max_tokens for length in lengths):
        raise ValueError(f"a sentence is longer than {max_tokens}")
    batches = []
    current = []
    for index in sorted(range(len(lengths)), key=lambda index: lengths[index]):
        if (len(current) + 1) * lengths[index] <= max_tokens:
            current.append(index)
        else:
            batches.append(current)
            current = []
    return batches + [current] * bool(current)


def batches_with_an_empty_one(lengths, max_tokens):
    return token_batches(lengths, max_tokens) or [[]]


def batches_with_the_too_long_alone(lengths, max_tokens):
    return token_batches(lengths, max_tokens) if not lengths or max(lengths) <= max_tokens else [
        *([index] for index in range(len(lengths)) if lengths[index] > max_tokens),
        [index for index in range(len(lengths)) if lengths[index] <= max_tokens],
    ]  # fmt: skip


def batches_without_the_too_long(lengths, max_tokens):
    kept = [index for index in range(len(lengths)) if lengths[index] <= max_tokens]
    return [[kept[i] for i in batch] for batch in token_batches([lengths[index] for index in kept], max_tokens)]


def positions_found_again(batches, lengths):
    return [[lengths.index(lengths[index]) for index in batch] for batch in batches]


TOKEN_BATCHES = Exercise(
    answer=token_batches,
    points=2,
    minutes=20,
    returns=("batches",),
    probes=[
        Probe("sentences of one length", sentences_of_one_length, agrees=batches_that_keep_the_rules),
        Probe("padding counts", lengths_whose_sum_would_fit, agrees=batches_that_keep_the_rules),
        Probe("a long sentence first, then short ones", a_long_one_first, agrees=batches_that_keep_the_rules),
        Probe(
            "short ones, and one that fills a batch alone",
            one_that_fills_a_batch_alone,
            agrees=batches_that_keep_the_rules,
        ),
        Probe("all of them fit into one batch", few_sentences, agrees=batches_that_keep_the_rules),
        Probe("forty sentences", forty_sentences, agrees=batches_that_keep_the_rules),
    ],
    properties=[
        Property(
            "a sentence longer than `max_tokens` is a ValueError",
            a_sentence_that_is_too_long,
            too_long_is_an_error,
            what_becomes_of_it,
        ),
        Property(
            "no sentences give no batches",
            lambda draw: {"lengths": [], "max_tokens": draw.integer(5, 9)},
            no_batches,
            batches_of_nothing,
        ),
    ],
    misconceptions=[
        Misconception(
            "padding_ignored",
            batches_with(sum_fits, shortest_first),
            "The lengths of the sentences are added up. But every sentence is padded to the longest of its batch, and "
            "padding takes memory and time like any token: it is the number of sentences times the longest that "
            "`max_tokens` limits.",
        ),
        Misconception(
            "sentences_counted",
            batches_with(count_fits, shortest_first),
            "`max_tokens` is taken for a number of sentences. A batch of long sentences is then many times as large "
            "as one of short ones. The paper speaks of tokens (section 5.1: “approximately 25000 source tokens”).",
        ),
        Misconception(
            "latest_length",
            batches_with(latest_fits),
            "The number of sentences is multiplied by the length of the latest one. That is the longest only if the "
            "lengths ascend: sort the positions by length first, or keep the greatest length so far.",
        ),
        Misconception(
            "shortest_length",
            batches_with(latest_fits, longest_first),
            "The sentences come from the longest to the shortest, and the number of them is multiplied by the latest "
            "length, the shortest. The batch is as wide as its first sentence: use that one's length, or sort the "
            "other way round.",
        ),
        Misconception(
            "positions_after_sorting",
            batches_of_sorted_positions,
            "The batches hold positions in the sorted list. The caller has the sentences in their old order, and "
            "would pick others: sort the positions by length, `sorted(range(len(lengths)), key=…)`, not the lengths.",
        ),
        Misconception(
            "lengths_for_positions",
            batches_with(latest_fits, shortest_first, lengths_for_positions),
            "The batches hold lengths. From them nobody can tell which sentence is meant: put the positions into the "
            "batches.",
        ),
        Misconception(
            "size_of_the_longest",
            batches_as_the_longest_needs,
            "Every batch has as many sentences as the longest sentence of all allows. One long sentence makes all "
            "batches small: ask anew for each batch how many fit.",
        ),
        Misconception(
            "strictly_less",
            batches_with(latest_fits_with_room, shortest_first),
            "A batch that would be exactly full is taken for too large. At most `max_tokens` cells: `<=`.",
        ),
        Misconception(
            "new_one_not_counted",
            batches_with(others_fit, shortest_first),
            "The sentence that is about to join is not counted, and the batch gets one too many: with it there are "
            "`(len(batch) + 1) * length` cells.",
        ),
        Misconception(
            "equal_lengths_only",
            batches_with(same_length_fits, shortest_first),
            "Only sentences of exactly the same length share a batch, so many batches stay nearly empty. A little "
            "padding is allowed: fill each batch up to `max_tokens`.",
        ),
        Misconception(
            "empty_batch",
            batches_with_an_empty_one,
            "Without sentences there is one batch, and nothing is in it: the last batch is appended, whether there is "
            "something in it or not. Append it only if there is.",
        ),
        Misconception(
            "last_batch_dropped",
            batches_with(latest_fits, shortest_first, without_the_last),
            "The last batch is missing: the loop ends before it is appended. With the sentences in order of length, "
            "the longest ones are never trained on.",
        ),
        Misconception(
            "lost_between_batches",
            batches_that_lose_what_does_not_fit,
            "A sentence that does not fit closes the batch, and is then forgotten. It is the first one of the next "
            "batch.",
        ),
        Misconception(
            "too_long_alone",
            batches_with_the_too_long_alone,
            "A sentence longer than `max_tokens` gets a batch of its own, which is larger than `max_tokens`. Whoever "
            "set the limit would learn of it when the memory is full: raise a `ValueError`.",
        ),
        Misconception(
            "too_long_left_out",
            batches_without_the_too_long,
            "A sentence longer than `max_tokens` is left out silently. In training it would be missed, and in "
            "translating a line would be lost: raise a `ValueError`.",
        ),
        Misconception(
            "positions_found_again",
            batches_with(latest_fits, shortest_first, positions_found_again),
            "`lengths.index(length)` finds the first sentence of that length, each time: of two that are equally long "
            "one is there twice, and the other never. Sort the positions, `sorted(range(len(lengths)), key=…)`, and "
            "keep them.",
        ),
    ],
    hints=[
        "Go through the sentences from the shortest to the longest. Which sentence is then the longest of the batch, "
        "and how many cells has the padded batch?",
        "`sorted(range(len(lengths)), key=lambda index: lengths[index])` gives the positions in order. A sentence "
        "joins the last batch if (size + 1) × its own length is at most `max_tokens`; otherwise it opens a new one.",
        "`if batches and (len(batches[-1]) + 1) * lengths[index] <= max_tokens: batches[-1].append(index)`, `else: "
        "batches.append([index])`; before that, `raise ValueError(…)` if the length alone is too great.",
    ],
)

EXERCISES = [BUILD_VOCABULARY, LEARN_BPE, APPLY_BPE, PAD_BATCH, TOKEN_BATCHES]
