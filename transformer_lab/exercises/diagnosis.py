"""From a student's results to the mistake that explains them: the edit of the answer that gives the same ones.

Programs that repair students' code search the same way (Wang, Singh, and Su, "Search, Align, and Repair", PLDI 2018).
What is named has to agree with the student's results in every check, so that nothing is named that isn't there.
"""

import functools
import itertools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transformer_lab.exercises.catalogue import Mistake, mistakes_of
from transformer_lab.exercises.edits import Wrong
from transformer_lab.exercises.exercise import Exercise, Probe, Property
from transformer_lab.exercises.observation import Observation
from transformer_lab.exercises.variants import SAYS, Variant, variants_of
from transformer_lab.exercises.verdicts import Reference, observation, same_crash, same_result, same_value

LOOKED_AT = 4  # failed checks, the cheapest ones, that decide which pairs are worth trying
EFFORT = 1_000_000  # see `effort`: about half a second on one core for each kind of candidate
Check = Probe | Property


@dataclass(frozen=True)
class Diagnosis:
    """What the student did, as far as the results show it: nothing at all, or causes that explain every check."""

    slugs: tuple[str, ...] = ()
    says: tuple[str, ...] = ()  # one sentence or two for each slug, the most important one first
    kind: str = "none"  # "one", "either" (all have the same results), "two", "variant" or "none"


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A wrong version and what to say if it's the one."""

    wrong: Wrong
    cause: Mistake | Variant

    @property
    def slug(self) -> str:
        return self.cause.slug if isinstance(self.cause, Mistake) else self.cause.operator


def diagnose(reference: Reference, observations: dict[str, Observation], source: str | None = None) -> Diagnosis:
    """Find the wrong version of the answer that gives what the student's object gave.

    Args:
        reference: The exercise and the seed.
        observations: The student's, by name of check.
        source: The student's code without comments, which may rule a mistake out; None if it isn't known.
    """
    return _Search(reference, observations, source).diagnosis()


@functools.cache
def sentences(exercise: Exercise) -> dict[str, str]:
    """Return what the student is told, by the slug of a mistake or the name of a generic operator."""
    generic = {operator: says.format(name=exercise.name, where="") for operator, says in SAYS.items()}
    return generic | {mistake.slug: mistake.says for mistake in mistakes_of(exercise)}


@functools.lru_cache(maxsize=256)
def effort(exercise: Exercise, seed: int) -> dict[str, int]:
    """Return what each check costs, in calls of functions: the same on every machine, unlike a time."""
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
        seen = [check for check in exercise.checks if check.name in observations]
        for check in seen:
            reference.of_answer(check)  # so that what's imported or built once isn't counted
        self.cost = effort(exercise, reference.seed)
        seen.sort(key=lambda check: self.cost[check.name])
        self.off = [check for check in seen if not self._is_right(check)]
        self.right = [check for check in seen if check not in self.off]
        possible = [mistake for mistake in mistakes_of(exercise) if mistake.is_possible(source)]
        self.known = [_Candidate(way, mistake) for mistake in possible for way in mistake.ways]
        self.left = 0

    def diagnosis(self) -> Diagnosis:
        if not self.off:
            return Diagnosis()
        if one := self._singles():
            return one
        if two := self._pairs(self.known, self.known):
            return two
        generic = [_Candidate(variant.wrong, variant) for variant in variants_of(self.reference.exercise)]
        self.left = EFFORT
        for candidate in generic:
            if self._can_afford() and self._explains(candidate.wrong):
                return Diagnosis((candidate.slug,), (candidate.cause.says,), "variant")
        return self._pairs(self.known, generic) or self._pairs(generic, generic) or Diagnosis()

    def _is_right(self, check: Check) -> bool:
        """Whether the student's result is the answer's there."""
        return same_result(self.reference, check, self.observations[check.name], self.reference.of_answer(check))

    def _agreement(self, wrong: Wrong, check: Check) -> str:
        """How a wrong version agrees with the student's object in one check: "exactly", "roughly" or not at all ("").

        A crash of the same type is rough agreement, because messages contain the student's own names.
        """
        mine, theirs = self.reference.of(wrong, check), self.observations[check.name]
        if not set(mine.changes) <= set(theirs.changes):
            return ""
        if mine.crash is not None and theirs.crash is not None:
            if same_crash(mine.crash, theirs.crash):
                return "exactly"
            same_type = (mine.crash.kind, mine.crash.type) == (theirs.crash.kind, theirs.crash.type)
            return "roughly" if same_type and mine.crash.type != "ParameterError" else ""
        return "exactly" if same_value(self.reference, check, mine, theirs) else ""

    def _explains(self, wrong: Wrong, is_known: bool = False) -> bool:
        """Whether a wrong version agrees everywhere, and exactly where at least one thing is off.

        For one that isn't a known mistake, that has to be a result with something in it: the same exception, or
        nothing but zeros, has many causes.
        """
        exact = False
        for check in self.off:
            agreement = self._agreement(wrong, check)
            if not agreement:
                return False
            tells = is_known or _says_something(self.observations[check.name])
            exact = exact or (tells and agreement == "exactly" and self.reference.is_symptom(wrong, check))
        return exact and all(self._agreement(wrong, check) == "exactly" for check in self.right)

    def _singles(self) -> Diagnosis | None:
        explaining = [candidate for candidate in self.known if self._explains(candidate.wrong, is_known=True)]
        if not explaining:
            return None
        missed = [self._unexplained(candidate.wrong) for candidate in explaining]
        explaining = [candidate for candidate, count in zip(explaining, missed, strict=True) if count == min(missed)]
        says = dict.fromkeys(candidate.cause.says for candidate in explaining)
        slugs = tuple(dict.fromkeys(candidate.slug for candidate in explaining))
        return Diagnosis(slugs, tuple(says), "either" if len(says) > 1 else "one")

    def _unexplained(self, wrong: Wrong) -> int:
        """Count what a wrong version explains only roughly, and the altered inputs or settings that it leaves alone."""
        count = 0
        for check in [*self.off, *self.right]:
            made = self.reference.of(wrong, check).changes
            count += len(set(self.observations[check.name].changes) - set(made))
            count += self._agreement(wrong, check) == "roughly"
        return count

    def _can_afford(self) -> bool:
        self.left -= self.cost[self.off[0].name] + 1000  # compiling
        return self.left > 0

    def _pairs(self, ones: list[_Candidate], others: list[_Candidate]) -> Diagnosis | None:
        """Look for two wrong versions that, applied together, agree everywhere."""
        self.left = EFFORT
        are_known = others is self.known
        looked_at = self.off[: LOOKED_AT if are_known else 1]  # there are many generic variants
        loud = set()
        if ones is self.known:
            ones = [one for one in ones if one.wrong.edits]
            loud = {one for one in ones if not self._is_quiet(one.wrong)}
            clues = {one: sum(self._is_clue(one.wrong, check) for check in self.off[:LOOKED_AT]) for one in ones}
            ones = [one for one in ones if are_known or (clues[one] and one not in loud)]
            ones.sort(key=lambda one: (one in loud, -clues[one]))
        else:  # any two would do for a result without much in it: each has to show somewhere by itself
            others = ones = [one for one in ones if self._can_afford() and self._shows(one.wrong)]
        same = are_known or others is ones
        likely, unlikely = [], []
        for one, other in self._different(ones, ones if same else others):
            fit = loud.isdisjoint((one, other)) and self._may_join(one.wrong, other.wrong, looked_at)
            (likely if fit else unlikely).append((one, other))
        if are_known:  # first those that show most of what the student's object shows, and of these the simplest

            def rank(pair: tuple[_Candidate, _Candidate]) -> tuple[int, int]:
                return -sum(clues[one] for one in pair), sum(len(one.wrong.edits) for one in pair)

            likely.sort(key=rank)
        for one, other in itertools.chain(likely, unlikely if are_known else []):
            both = one.wrong.joined(other.wrong)
            if both is None:
                continue
            if not self._can_afford():
                return None
            if self._explains(both) and not (self._explains(one.wrong) or self._explains(other.wrong)):
                first, second = sorted((one, other), key=self._importance)
                return Diagnosis((first.slug, second.slug), (first.cause.says, second.cause.says), "two")
        return None

    def _different(self, ones: list[_Candidate], others: list[_Candidate]) -> Iterator[tuple[_Candidate, _Candidate]]:
        pairs: Iterable = itertools.combinations(ones, 2) if ones is others else itertools.product(ones, others)
        for one, other in pairs:
            if one.cause is not other.cause and one.wrong.edits and other.wrong.edits:
                yield one, other

    def _is_quiet(self, wrong: Wrong) -> bool:
        """Whether a wrong version gives the right result where the student's object does, in the cheapest checks."""
        return not any(self.reference.is_symptom(wrong, check) for check in self.right[:LOOKED_AT])

    def _is_clue(self, wrong: Wrong, check: Check) -> bool:
        """Whether a wrong version alone shows what the student's object shows there."""
        return self.reference.is_symptom(wrong, check) and self._agreement(wrong, check) == "exactly"

    def _shows(self, wrong: Wrong) -> bool:
        """Whether a wrong version alone gives one of the student's wrong results."""
        plain = [check for check in self.off if _says_something(self.observations[check.name])]
        return any(self._is_clue(wrong, check) for check in plain[:LOOKED_AT])

    def _may_join(self, one: Wrong, other: Wrong, checks: list[Check]) -> bool:
        """Whether two wrong versions fit together: where only one of them shows, the student's result is its result."""
        for check in checks:
            shows = [wrong for wrong in (one, other) if self.reference.is_symptom(wrong, check)]
            if not shows or (len(shows) == 1 and not self._agreement(shows[0], check)):
                return False
        return True

    def _importance(self, candidate: _Candidate) -> tuple[bool, int]:
        """Sort key: a known mistake before a generic one, then the one that shows in more checks."""
        shown = sum(self.reference.is_symptom(candidate.wrong, check) for check in self.off)
        return isinstance(candidate.cause, Variant), -shown


def _says_something(observed: Observation) -> bool:
    """Whether a call returned something, and not the same number everywhere."""
    values = observed.value if isinstance(observed.value, tuple) else (observed.value,)
    tensors = [torch.as_tensor(value) for value in values if isinstance(value, Tensor | np.ndarray)]
    varied = [tensor for tensor in tensors if tensor.numel() > 1 and bool((tensor != tensor.flatten()[0]).any())]
    return observed.crash is None and (bool(varied) or not any(tensor.numel() > 1 for tensor in tensors))
