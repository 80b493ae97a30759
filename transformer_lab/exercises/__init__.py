"""Exercises: what they are, how they are checked, and one file a notebook that lists them.

To add an exercise, write it into `notebook_NN_topic.py`, which ends in `EXERCISES = [...]`, in the order of the
notebook. Nothing else has to be registered; `notebook_01_attention.py` shows everything below at work.

    Exercise(
        answer=scaled_dot_product_attention,     # the package's own object; its `__name__` names the exercise
        blank=("__init__", "forward"),           # classes only: the methods the student writes
        points=3,
        minutes=20,
        returns=("output", "weights"),           # names of what it returns; one name where it is no tuple
        axes={"query": "batch query d_k", ...},  # axis names of inputs and results, for the report's pictures
        builds_on=("split_heads",),              # earlier exercises: the package's stand in for the student's
        banned=("torch.nn.functional.softmax",), # libraries' answers: right, but remarked upon; ".softmax": a method
        probes=[Probe(name, inputs, call)],      # what earns points: the same result as the answer's
        properties=[Property(name, inputs, rule, call)],   # what must hold anyway: costs points when broken
        hints=["...", "...", "..."],             # from a nudge to nearly the line
    )

Inputs
    are drawn by a function of an `InputSampler`: `lambda sampler: {"scores": sampler.numbers(2, 3)}`. They are plain
    data (float64 tensors, arrays, numbers, strings, lists, dictionaries), small enough to print, with a different size
    for each axis, so that a wrong shape can be named. Make the most basic probe the smallest: it is the one shown.
    Every seed must do, because a grader draws its own: make sure that what the probe covers happens for all of them
    (the mask hides something, and the hidden key has the highest score). The expected value has to differ from seed
    to seed, so draw sizes, overlaps, and ranks too if the result depends on nothing else.

Harnesses
    `call` says how the student's object is used; an exercise may have one for all checks that have none of their own.
    Without either, a function is called with the inputs in their order, and a module is constructed from
    `inputs["arguments"]` (a dictionary), gets `inputs["weights"]` by name (`sampler.weights(Answer(...))`), and is
    called with the other inputs in their order. `harnesses.py` has more that fit several exercises. A harness of your
    own is a `def` with the arguments `(subject, **inputs)` that returns data: a tensor, a tuple (named by `returns`),
    or a dictionary that names its results. Its text may run in another process, next to the student's code and without
    these files, so it uses only its arguments, the `HARNESS_NAMES` and `CLASSES` of `harnesses.py` (`torch`, `nn`,
    `np`, `build`, `gradients`, `raised`, …) and what it imports in its own body. Callables and models that the
    student's object needs are made inside the harness, from data. Random draws (dropout) are seeded; compare effects,
    not streams.

Probes
    compare with the answer's result, to 1e-5 (`tolerance`). Where several results are right, `compare_results(inputs,
    expected, received)` returns what is wrong, or None. No constant function may pass a probe: what any constant has
    (a shape, rows that sum to 1, no look ahead) is a property.

Properties
    `rule(inputs, received)` returns a sentence on what is wrong, or None, or a `Remark` where the result is accepted
    but something should be said. `rules.py` has what several properties ask for. Say it without numbers that depend on
    how the code was written. That inputs, seeds, default dtype and gradient mode are left alone is checked in every
    call already.

What depends on what
    `needs=("name of an earlier check",)` makes a check "not checked" where that one failed. A check that crashes in
    the same line as an earlier one is so by itself.

Mistakes
    are edits of the answer, in the Markdown files of `mistakes/`, five or more for each exercise; `catalogue.py` has
    the format. Whatever the student's object does in all probes and properties (values, NaN, exceptions, mutated
    inputs, broken properties) is compared with what the edited answer does there. So each one must fail, and no two
    may do the same everywhere: if two do, a probe is missing, or they are one mistake. The text says what was done,
    why it matters, and where the paper says otherwise; it must be true for everyone who gets these results. Small
    edits in different places are best, because two of them applied together recognize two mistakes at once.

Validation
    of arguments isn't what an exercise teaches. A property that asks for a `ValueError` returns a `Remark` if none
    was raised, so it costs nothing.

Second implementations
    Students must not find the answer elsewhere in the package: mark a faster version, or whatever else does the same,
    with `@reimplements("name")`. `tests/classroom/test_reimplementations.py` looks for those without a mark.

Tests
    `tests/exercises/test_registry.py` tests every registered exercise from its own parts. Right answers in another
    style go to `tests/exercises/variants/variants_NN.py` as `VARIANTS = {"softmax": [function, ...]}`, at least
    three each. While you write: `pytest tests/exercises -k softmax`, and `python -m transformer_lab.exercises softmax`
    shows reports. In the end: `TRANSFORMER_LAB_SEEDS=20 pytest tests/exercises/test_registry.py -k softmax`, because a
    grader's seeds are others. All checks of the course together take at most 20 s, one at most 1 s.
"""

from transformer_lab.exercises.checking import CheckFailed, CheckUsageError, check
from transformer_lab.exercises.examination import run_check
from transformer_lab.exercises.exercise import Exercise, Probe, Property, Remark
from transformer_lab.exercises.hints import hint, solution
from transformer_lab.exercises.progress import progress
from transformer_lab.exercises.registry import exercises, find_exercise, notebooks
from transformer_lab.exercises.report import Report
from transformer_lab.exercises.sampling import InputSampler

__all__ = [
    "CheckFailed",
    "CheckUsageError",
    "Exercise",
    "InputSampler",
    "Probe",
    "Property",
    "Remark",
    "Report",
    "check",
    "exercises",
    "find_exercise",
    "hint",
    "notebooks",
    "progress",
    "run_check",
    "solution",
]
