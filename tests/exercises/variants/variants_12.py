"""Correct answers to notebook 12 in different styles."""

import collections
import fractions
import math

import torch

# --- ngram_precision --------------------------------------------------------------------------------------------------


def precision_by_removal(hypotheses, references, n):
    """Remove each reference n-gram once it has been matched."""
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses, {len(references)} references")
    right = there_are = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        left = [reference[i : i + n] for i in range(len(reference) - n + 1)]
        for i in range(len(hypothesis) - n + 1):
            there_are += 1
            if hypothesis[i : i + n] in left:
                left.remove(hypothesis[i : i + n])
                right += 1
    return 0.0 if there_are == 0 else right / there_are


def precision_by_zip(hypotheses, references, n):
    assert len(hypotheses) == len(references)
    matches, total = 0, 0
    for pair in zip(hypotheses, references, strict=True):
        ours, theirs = (collections.Counter(zip(*(side[i:] for i in range(n)), strict=False)) for side in pair)
        matches += sum(min(count, theirs[gram]) for gram, count in ours.items())
        total += sum(ours.values())
    return matches / max(total, 1)


def precision_as_fraction(hypotheses, references, n):
    counts = collections.defaultdict(lambda: [0, 0])
    for number, (hypothesis, reference) in enumerate(zip(hypotheses, references, strict=True)):
        for side, tokens in enumerate((hypothesis, reference)):
            for start in range(max(0, len(tokens) - n + 1)):
                counts[number, " ".join(tokens[start : start + n])][side] += 1
    total = sum(ours for ours, _ in counts.values())
    return float(fractions.Fraction(sum(map(min, counts.values())), total)) if total else 0.0


def precision_of_uneven_sides(hypotheses, references, n):
    """Accept unequal numbers of sentences without an error. The answer gets a remark but loses no points."""
    pairs = [
        [[tuple(side[i : i + n]) for i in range(len(side) - n + 1)] for side in pair]
        for pair in zip(hypotheses, references)  # noqa: B905
    ]
    total = sum(len(ours) for ours, _ in pairs)
    found = sum(min(ours.count(gram), theirs.count(gram)) for ours, theirs in pairs for gram in set(ours))
    return found / total if total else 0.0


# --- brevity_penalty --------------------------------------------------------------------------------------------------


def brevity_by_cases(hypothesis_length, reference_length):
    if not hypothesis_length:
        return 0.0
    if hypothesis_length > reference_length:
        return 1.0
    return math.e ** (1 - reference_length / hypothesis_length)


def brevity_by_minimum(c, r):
    return min(1.0, math.exp(1 - r / c)) if c > 0 else 0.0


def brevity_by_torch(c, r):
    return torch.exp(-(torch.tensor(r / c) - 1).relu()).item() if c else 0.0


# --- bleu -------------------------------------------------------------------------------------------------------------


def counted(tokens, n):
    return collections.Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def bleu_at_once(hypotheses, references):
    """Compute everything in one pass over the corpus."""
    right, there_are, c, r = [0] * 4, [0] * 4, 0, 0
    for one, other in zip(hypotheses, references, strict=True):
        c, r = c + len(one), r + len(other)
        for n in range(4):
            ours, theirs = counted(one, n + 1), counted(other, n + 1)
            right[n] += sum((ours & theirs).values())
            there_are[n] += sum(ours.values())
    if 0 in right:
        return 0.0
    return 100 * math.exp(sum(math.log(a / b) for a, b in zip(right, there_are, strict=True)) / 4 - max(0, r / c - 1))


def bleu_by_root(hypotheses, references):
    c, r = (sum(len(tokens) for tokens in side) for side in (hypotheses, references))
    product = math.prod(precision_by_removal(hypotheses, references, n) for n in (1, 2, 3, 4))
    return 100.0 * brevity_by_cases(c, r) * product**0.25


def bleu_in_tensors(hypotheses, references):
    p = torch.tensor([precision_by_zip(hypotheses, references, n) for n in range(1, 5)])
    c, r = len([t for s in hypotheses for t in s]), len([t for s in references for t in s])
    return float(p.log().mean().exp()) * brevity_by_minimum(c, r) * 100


VARIANTS = {
    "ngram_precision": [precision_by_removal, precision_by_zip, precision_as_fraction, precision_of_uneven_sides],
    "brevity_penalty": [brevity_by_cases, brevity_by_minimum, brevity_by_torch],
    "bleu": [bleu_at_once, bleu_by_root, bleu_in_tensors],
}
