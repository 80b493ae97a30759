"""Find the mistake that explains a student's results: the edit to the answer that produces the same results.

Tools that repair students' code use the same kind of search (Wang, Singh, and Su, "Search, Align, and Repair", PLDI
2018). A mistake is reported only if it agrees with the student's results in every check, so that students are not told
about mistakes they did not make.
"""

import functools
import itertools
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transformer_lab.exercises.catalogue import Mistake, mistakes_of
from transformer_lab.exercises.edits import Wrong, joined
from transformer_lab.exercises.exercise import Check, Exercise
from transformer_lab.exercises.observation import Observation
from transformer_lab.exercises.variants import SAYS, Variant, variants_of
from transformer_lab.exercises.verdicts import Reference, observation, same_result, same_value

MOST_CHECKS = 4  # how many of the cheapest checks are used to decide which pairs are worth trying
EFFORT = 1_000_000  # in units of `effort`; about half a second on one core for each kind of candidate


@dataclass(frozen=True)
class Diagnosis:
    """The causes that explain the results in every check, if any were found."""

    slugs: tuple[str, ...] = ()
    says: tuple[str, ...] = ()  # one or two sentences for each slug, the most important first
    kind: str = "none"  # "one", "either" (all produce the same results), "two", "variant", or "none"


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A wrong version of the answer, and the mistake or variant that it comes from."""

    wrong: Wrong
    cause: Mistake | Variant


_Pair = tuple[_Candidate, _Candidate]


def diagnose(reference: Reference, observations: dict[str, Observation], source: str | None = None) -> Diagnosis:
    """Find the wrong version of the answer that behaves like the student's object.

    Args:
        reference: The exercise and the seed.
        observations: The observations of the student's object, by check name.
        source: The student's code without comments, which can rule out a mistake. Pass None if the code is not known.
    """
    return _Search(reference, observations, source).diagnosis()


@functools.cache
def sentences(exercise: Exercise) -> dict[str, str]:
    """Return the texts for the student, keyed by the slug of the mistake or generic variant."""
    generic = {slug: says.format(name=exercise.name, where="") for slug, says in SAYS.items()}
    return generic | {mistake.slug: mistake.says for mistake in mistakes_of(exercise)}


@functools.lru_cache(maxsize=256)
def effort(exercise: Exercise, seed: int) -> dict[str, int]:
    """Return the number of function calls that each check takes. Unlike seconds, it is the same on every machine."""
    cost = {}
    for check in exercise.checks:
        calls = 0

        def count(frame: Any, event: str, argument: Any) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        outer = sys.getprofile()
        sys.setprofile(count)
        try:
            observation(exercise, exercise.answer, check, seed)
        finally:
            sys.setprofile(outer if callable(outer) else None)
        cost[check.name] = 2 ** (4 * calls).bit_length()
    return cost


class _Search:
    def __init__(self, reference: Reference, observations: dict[str, Observation], source: str | None) -> None:
        self.reference, self.observations = reference, observations
        exercise = reference.exercise
        checks = [check for check in exercise.checks if check.name in observations]
        for check in checks:
            reference.of_answer(check)  # first, so that `effort` doesn't count one-time imports and setup
        self.cost = effort(exercise, reference.seed)
        checks.sort(key=lambda check: self.cost[check.name])
        self.failed = [check for check in checks if not self._is_right(check)]
        self.right = [check for check in checks if check not in self.failed]
        self.informative = [check for check in self.failed if _is_informative(observations[check.name])]
        possible = [mistake for mistake in mistakes_of(exercise) if mistake.is_possible(source)]
        self.known = [_Candidate(way, mistake) for mistake in possible for way in mistake.ways]
        self.budget = 0

    def diagnosis(self) -> Diagnosis:
        if not self.failed:
            return Diagnosis()
        if diagnosis := self._single():
            return diagnosis
        if not self.informative:  # only a known mistake can explain such results (see `_explains`)
            return Diagnosis()
        if diagnosis := self._two(self._pairs_of_known()):
            return diagnosis
        generic = [_Candidate(variant.wrong, variant) for variant in variants_of(self.reference.exercise)]
        self.budget = EFFORT
        for candidate in generic:
            if self._can_afford() and self._explains(candidate.wrong):
                return Diagnosis((candidate.cause.slug,), (candidate.cause.says,), "variant")
        return self._two(self._known_with(generic)) or self._two(self._pairs_of(generic)) or Diagnosis()

    def _is_right(self, check: Check) -> bool:
        return same_result(self.reference, check, self.observations[check.name], self.reference.of_answer(check))

    def _agreement(self, wrong: Wrong, check: Check) -> str:
        """Return how well a wrong version agrees with the student's object in one check: "exactly", "roughly", or "".

        Crashes of the same type agree at least roughly, because messages can contain the student's own names.
        """
        ours, theirs = self.reference.of(wrong, check), self.observations[check.name]
        if not set(ours.changes) <= set(theirs.changes):
            return ""
        if same_value(self.reference, check, ours, theirs):
            return "exactly"
        if ours.crash is None or theirs.crash is None:
            return ""
        same_type = (ours.crash.kind, ours.crash.type) == (theirs.crash.kind, theirs.crash.type)
        return "roughly" if same_type and ours.crash.type != "ParameterError" else ""

    def _explains(self, wrong: Wrong, is_known: bool = False) -> bool:
        """Return whether a wrong version agrees in every check and agrees exactly in at least one failed check.

        For a generic variant, that failed check must have an informative result, because many causes can lead to the
        same exception or to a result of all zeros.
        """
        is_exact = False
        for check in self.failed:
            agreement = self._agreement(wrong, check)
            if not agreement:
                return False
            counts = is_known or check in self.informative
            is_exact = is_exact or (counts and agreement == "exactly" and self.reference.is_symptom(wrong, check))
        return is_exact and all(self._agreement(wrong, check) == "exactly" for check in self.right)

    def _single(self) -> Diagnosis | None:
        explaining = [candidate for candidate in self.known if self._explains(candidate.wrong, is_known=True)]
        if not explaining:
            return None
        unexplained = {candidate: self._unexplained(candidate.wrong) for candidate in explaining}
        fewest = min(unexplained.values())
        causes = [candidate.cause for candidate in explaining if unexplained[candidate] == fewest]
        slugs, says = dict.fromkeys(cause.slug for cause in causes), dict.fromkeys(cause.says for cause in causes)
        return Diagnosis(tuple(slugs), tuple(says), "either" if len(says) > 1 else "one")

    def _unexplained(self, wrong: Wrong) -> int:
        """Count the checks that agree only roughly and the unexplained changes to inputs or settings."""
        count = 0
        for check in [*self.failed, *self.right]:
            count += len(set(self.observations[check.name].changes) - set(self.reference.of(wrong, check).changes))
            count += self._agreement(wrong, check) == "roughly"
        return count

    def _can_afford(self) -> bool:
        self.budget -= self.cost[self.failed[0].name] + 1000  # the cost of compiling it
        return self.budget > 0

    def _two(self, pairs: Iterable[_Pair]) -> Diagnosis | None:
        """Return a diagnosis with the first pair of wrong versions that agrees in every check when both are applied."""
        for first, second in pairs:
            both = joined(first.wrong, second.wrong)
            if both is None:
                continue
            if not self._can_afford():
                return None
            if not self._explains(both) or self._explains(first.wrong) or self._explains(second.wrong):
                continue
            if all(self._is_evident(candidate.wrong, both) for candidate in (first, second)):
                causes = [candidate.cause for candidate in sorted((first, second), key=self._importance)]
                return Diagnosis(tuple(cause.slug for cause in causes), tuple(cause.says for cause in causes), "two")
        return None

    def _is_evident(self, part: Wrong, both: Wrong) -> bool:
        """Return whether some failed check shows the effect of one mistake, `part`, and supports the pair, `both`.

        A `RuntimeError` with a different message does not count, because torch raises it for almost everything.
        """

        def is_evidence(check: Check) -> bool:
            crash = self.reference.of(both, check).crash
            return crash is None or crash.type != "RuntimeError" or self._agreement(both, check) == "exactly"

        return any(self.reference.is_symptom(part, check) and is_evidence(check) for check in self.failed)

    def _pairs_of_known(self) -> list[_Pair]:
        """Return all pairs, starting with the likely ones.

        Likely pairs are sorted by how many results they reproduce (most first), then by number of edits (fewest first).
        """
        self.budget = EFFORT
        clues = self._clues([candidate for candidate in self.known if candidate.wrong.edits])
        loud = {candidate for candidate in clues if not self._is_quiet(candidate.wrong)}
        candidates = sorted(clues, key=lambda candidate: (candidate in loud, -clues[candidate]))
        pairs = list(filter(_can_be_joined, itertools.combinations(candidates, 2)))
        likely = [pair for pair in pairs if loud.isdisjoint(pair) and self._fit_together(pair, MOST_CHECKS)]
        likely.sort(key=lambda pair: (-sum(map(clues.get, pair)), sum(len(each.wrong.edits) for each in pair)))
        return list(dict.fromkeys([*likely, *pairs]))  # likely pairs first, then the rest

    def _known_with(self, generic: list[_Candidate]) -> list[_Pair]:
        """Return pairs that combine a generic variant with a known mistake that is probably part of the cause."""
        self.budget = EFFORT
        quiet = [candidate for candidate in self.known if candidate.wrong.edits and self._is_quiet(candidate.wrong)]
        clues = self._clues(quiet)
        likely = sorted(filter(clues.get, clues), key=clues.get, reverse=True)
        pairs = filter(_can_be_joined, itertools.product(likely, generic))
        return [pair for pair in pairs if self._fit_together(pair, 1)]

    def _pairs_of(self, generic: list[_Candidate]) -> list[_Pair]:
        """Return pairs of generic variants, each of which explains a result by itself.

        Other pairs often fit by chance.
        """
        self.budget = EFFORT
        checks = self.informative[:MOST_CHECKS]
        likely = [
            candidate
            for candidate in generic
            if self._can_afford() and any(self._is_clue(candidate.wrong, check) for check in checks)
        ]
        pairs = filter(_can_be_joined, itertools.combinations(likely, 2))
        return [pair for pair in pairs if self._fit_together(pair, 1)]

    def _is_quiet(self, wrong: Wrong) -> bool:
        """Return whether a wrong version passes the cheapest checks that the student passes."""
        return not any(self.reference.is_symptom(wrong, check) for check in self.right[:MOST_CHECKS])

    def _clues(self, candidates: list[_Candidate]) -> dict[_Candidate, int]:
        checks = self.failed[:MOST_CHECKS]
        return {candidate: sum(self._is_clue(candidate.wrong, check) for check in checks) for candidate in candidates}

    def _is_clue(self, wrong: Wrong, check: Check) -> bool:
        """Return whether a wrong version by itself reproduces the student's wrong result in a check."""
        return self.reference.is_symptom(wrong, check) and self._agreement(wrong, check) == "exactly"

    def _fit_together(self, pair: _Pair, most_checks: int) -> bool:
        """Return whether each failed check shows the effect of at least one of the two wrong versions.

        If a check shows the effect of only one version, that version must agree with the student's object there.
        """
        for check in self.failed[:most_checks]:
            visible = [candidate.wrong for candidate in pair if self.reference.is_symptom(candidate.wrong, check)]
            if not visible or (len(visible) == 1 and not self._agreement(visible[0], check)):
                return False
        return True

    def _importance(self, candidate: _Candidate) -> tuple[bool, int]:
        """Sort key: known mistakes come before generic ones.

        Mistakes that affect more checks come before those that affect fewer.
        """
        symptoms = sum(self.reference.is_symptom(candidate.wrong, check) for check in self.failed)
        return isinstance(candidate.cause, Variant), -symptoms


def _can_be_joined(pair: _Pair) -> bool:
    return pair[0].cause is not pair[1].cause and all(candidate.wrong.edits for candidate in pair)


def _is_informative(observed: Observation) -> bool:
    """Return whether a call returned something other than a single number repeated everywhere."""
    values = observed.value if isinstance(observed.value, tuple) else (observed.value,)
    arrays = [torch.as_tensor(value) for value in values if isinstance(value, Tensor | np.ndarray)]
    large = [array for array in arrays if array.numel() > 1]
    return observed.crash is None and (not large or not all(map(_is_repeated, large)))


def _is_repeated(array: Tensor) -> bool:
    first = array.flatten()[0]
    return bool(((array == first) | (array.isnan() & first.isnan())).all())
