"""Correct answers to notebook 23 in different styles."""

import itertools
import random
import re

from transformer_lab.data.corpora import letters_and_digits
from transformer_lab.electives.other_languages import CHINESE, is_chinese_character, split_chinese, words_13a
from transformer_lab.evaluation import bleu, brevity_penalty, ngram_precision

# --- split_without_leakage --------------------------------------------------------------------------------------------


def distributed(groups, held_out, generator):
    """Return three lists of pairs. The order is not prescribed, so the validation set is filled first here."""
    generator.shuffle(groups)
    validation, test, train = [], [], []
    for group in groups:
        for part, room in ((validation, held_out), (test, held_out), (train, float("inf"))):
            if len(part) + len(group) <= room:
                part.extend(group)
                break
    return train, validation, test


def split_with_union_find(pairs, held_out, seed):
    parent = list(range(len(pairs)))

    def root(index):
        while parent[index] != index:
            parent[index] = index = parent[parent[index]]
        return index

    first_with = {}
    for index, pair in enumerate(pairs):
        for side, sentence in enumerate(map(letters_and_digits, pair)):
            parent[root(index)] = root(first_with.setdefault((side, sentence), index))
    groups = {}
    for index, pair in enumerate(pairs):
        groups.setdefault(root(index), []).append(pair)
    return distributed(list(groups.values()), held_out, random.Random(seed))


def split_by_merging_sets(pairs, held_out, seed):
    """Merge each new pair with all groups that it is related to."""
    groups = []
    for source, target in pairs:
        keys = {"s" + letters_and_digits(source), "t" + letters_and_digits(target)}
        members = []
        apart = []
        for other_keys, others in groups:
            if keys & other_keys:
                keys, members = keys | other_keys, members + others
            else:
                apart.append((other_keys, others))
        groups = [*apart, (keys, [*members, (source, target)])]
    return distributed([members for _, members in groups], held_out, random.Random(seed))


def split_by_sorting(pairs, held_out, seed):
    """Sort by source and give equal neighbors the smallest label. Do so by target, too, until nothing changes."""
    keys = [tuple(map(letters_and_digits, pair)) for pair in pairs]
    labels, before = list(range(len(pairs))), None
    while labels != before:
        before = list(labels)
        for side in (0, 1):
            order = sorted(range(len(pairs)), key=lambda index: keys[index][side])
            for _, run in itertools.groupby(order, key=lambda index: keys[index][side]):
                same = list(run)
                smallest = min(labels[index] for index in same)
                for index in same:
                    labels[index] = smallest
    order = sorted(range(len(pairs)), key=labels.__getitem__)
    groups = [[pairs[index] for index in run] for _, run in itertools.groupby(order, key=labels.__getitem__)]
    return distributed(groups, held_out, random.Random(f"split {seed}"))


def split_breadth_first(pairs, held_out, seed):
    """Use a queue, compare every pair with every other pair, and shuffle the groups with NumPy's generator."""
    import numpy as np

    bare = [(letters_and_digits(source), letters_and_digits(target)) for source, target in pairs]
    left, groups = set(range(len(pairs))), []
    while left:
        queue = [min(left)]
        left -= set(queue)
        for index in queue:
            found = sorted(other for other in left if any(map(str.__eq__, bare[index], bare[other])))
            queue += found
            left -= set(found)
        groups.append([pairs[index] for index in queue])
    generator = np.random.default_rng(seed)
    test, validation, train = [], [], []
    for number in generator.permutation(len(groups)):
        group = groups[number]
        fitting = [part for part in (test, validation) if held_out - len(part) >= len(group)]
        (fitting or [train])[0].extend(group)
    return train, validation, test


# --- split_chinese ----------------------------------------------------------------------------------------------------


def split_by_groups(text):
    """Group runs of Chinese and other characters, put spaces around each Chinese character, and apply 13a."""
    pieces = []
    for chinese, group in itertools.groupby(text, is_chinese_character):
        signs = list(group)
        pieces += signs if chinese else ["".join(signs)]
    return words_13a(" ".join(pieces))


def split_by_pattern(text):
    ranges = "".join(f"{chr(first)}-{chr(last)}" for first, last in CHINESE)
    return words_13a(re.sub(f"([{ranges}])", r" \1 ", text))


def split_sign_by_sign(text):
    """Put a space before and after each Chinese character, regardless of its neighbors."""
    spaced = ""
    for before, sign in itertools.pairwise(" " + text):
        spaced += " " + sign if is_chinese_character(before) or is_chinese_character(sign) else sign
    return words_13a(spaced)


# --- chinese_bleu -----------------------------------------------------------------------------------------------------


def bleu_of_mapped(hypotheses, references):
    return bleu(list(map(split_chinese, hypotheses)), list(map(split_chinese, references)))


def bleu_of_joined_tokens(hypotheses, references):
    """Join the tokens into strings with spaces between them, then split there."""
    sides = [[" ".join(split_chinese(text)).split() for text in side] for side in (hypotheses, references)]
    return bleu(*sides)


def bleu_from_its_parts(hypotheses, references):
    hypotheses, references = ([split_chinese(text) for text in side] for side in (hypotheses, references))
    product = 1.0
    for n in (1, 2, 3, 4):
        product *= ngram_precision(hypotheses, references, n)
    return 100 * brevity_penalty(sum(map(len, hypotheses)), sum(map(len, references))) * product**0.25


VARIANTS = {
    "split_without_leakage": [split_with_union_find, split_by_merging_sets, split_by_sorting, split_breadth_first],
    "split_chinese": [split_by_groups, split_by_pattern, split_sign_by_sign],
    "chinese_bleu": [bleu_of_mapped, bleu_of_joined_tokens, bleu_from_its_parts],
}
