"""Split sentence pairs into training, validation, and test sets without leaking a sentence from one to another."""

import random
from collections import defaultdict
from collections.abc import Sequence

from transformer_lab.data.corpora import letters_and_digits


def split_without_leakage(
    pairs: Sequence[tuple[str, str]], held_out: int, seed: int
) -> tuple[list[tuple[str, str]], list[tuple[str, str]], list[tuple[str, str]]]:
    """Split sentence pairs at random into three sets, so that no sentence of either language is in two of them.

    Two pairs are related if they have the same source sentence or the same target sentence, where sentences count as
    the same if `letters_and_digits` is the same for both. A pair that is related to one pair of a group belongs to
    the group.

    Args:
        pairs: `(source, target)`, in any order. The list is not modified.
        held_out: Number of pairs for validation, and the same number for testing.
        seed: The same seed gives the same sets, and different seeds give different ones. Use your own generator,
            `random.Random(seed)`.

    Returns:
        `train, validation, test`: three lists that together contain every pair as often as `pairs` does. The groups
        are distributed in random order. A group goes into the test set if it fits there as a whole, otherwise into
        the validation set if it fits there, and otherwise into the training set.
    """
    sentences = [
        (("source", letters_and_digits(source)), ("target", letters_and_digits(target))) for source, target in pairs
    ]
    occurrences = defaultdict(list)  # the pairs that contain a sentence
    for index, both in enumerate(sentences):
        for sentence in both:
            occurrences[sentence].append(index)

    groups, grouped = [], set()
    for first in range(len(pairs)):
        if first in grouped:
            continue
        group = [first]
        grouped.add(first)
        for index in group:  # the list grows during the loop, so relatives of relatives get their turn
            related = {other for sentence in sentences[index] for other in occurrences.pop(sentence, [])}
            group += related - grouped
            grouped |= related
        groups.append(group)

    random.Random(seed).shuffle(groups)
    train, validation, test = [], [], []
    for group in groups:
        if len(test) + len(group) <= held_out:
            chosen = test
        elif len(validation) + len(group) <= held_out:
            chosen = validation
        else:
            chosen = train
        chosen += [pairs[index] for index in group]
    return train, validation, test
