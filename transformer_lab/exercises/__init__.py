"""The exercises: what they are, how they are checked, and one file per notebook that lists them.

To add an exercise, write it into `notebook_NN_topic.py`. The file ends in `EXERCISES = [...]`, in the order of the
notebook, and nothing else has to be registered. `notebook_01_attention.py` shows everything below in use.

    Exercise(
        answer=scaled_dot_product_attention,     # the package's own object; its `__name__` names the exercise
        blank=("__init__", "forward"),           # classes only: the methods that the student writes
        points=3,
        minutes=20,
        returns=("output", "weights"),           # names of the results; a single name if it doesn't return a tuple
        axes={"query": "batch query d_k", ...},  # axis names of inputs and results, for the report's pictures
        builds_on=("split_heads",),              # earlier exercises: the package's are used instead of the student's
        banned=("torch.nn.functional.softmax",), # library answers: right, but with a remark; ".softmax" is a method
        probes=[Probe(name, inputs, call)],      # earn points: the same result as the answer's
        properties=[Property(name, inputs, rule, call)],   # cost points if they don't hold
    )

Inputs
    A function of an `InputSampler` creates them: `lambda sampler: {"scores": sampler.numbers(2, 3)}`. They are plain
    data (float64 tensors, arrays, numbers, strings, lists, dictionaries), small enough to print. Give each axis a
    different size, so that a wrong shape can be named. Make the most basic probe the smallest, because that one is
    shown. A grader uses its own seeds, so what a probe covers has to happen for every seed: the mask hides something,
    and the hidden key has the highest score. The expected value has to differ from seed to seed. If it depends only on
    sizes, overlaps, or ranks, sample those too.

Harnesses
    `call` is the function that uses the student's object. An exercise can have one for all checks without their own.
    By default, a function is called with the inputs in their order. A module is constructed from `inputs["arguments"]`
    (a dictionary), gets `inputs["weights"]` by name (`sampler.weights(Answer(...))`), and is called with the other
    inputs in their order. `harnesses.py` has more that fit several exercises. A harness of your own is a `def` with the
    arguments `(subject, **inputs)` that returns data: a tensor, a tuple (named by `returns`), or a dictionary that
    names its results. Its source may run in another process, next to the student's code and without these files. So it
    uses only its arguments, the `HARNESS_NAMES` and `CLASSES` of `harnesses.py` (`torch`, `nn`, `np`, `build`,
    `gradients`, `raised`, …), and what it imports in its own body. If the student's object needs callables or models,
    the harness makes them from data. Random numbers (dropout) are seeded. Compare their effects, not their values.

Probes
    compare with the answer's result, to 1e-5 (`tolerance`). If several results are right, `compare_results(inputs,
    expected, received)` returns what is wrong, or None. No constant function may pass a probe. If constant results can
    satisfy it (a shape, rows that sum to 1, no look ahead), make it a property.

Properties
    `rule(inputs, received)` returns a sentence about what is wrong, or None, or a `Remark` if the result is accepted
    but deserves a comment. `rules.py` has rules that several properties share. Leave out numbers that depend on how the
    code is written. Every call already checks that inputs, seeds, default dtype, and gradient mode don't change.

Dependencies
    `needs=("name of an earlier check",)` makes a check "not checked" if that one fails. So does a crash in the same
    line as in an earlier check, without being asked.

Hints
    are three numbered paragraphs in the Markdown files of `mistakes/`, below the exercise's heading. They go from a
    nudge to nearly the line.

Mistakes
    are edits of the answer, in the same files, at least five per exercise. `catalogue.py` has the
    format. Everything that the student's object does in all checks (values, NaN, exceptions, changed inputs, broken
    properties) is compared with what the edited answer does. So each mistake has to fail, and no two may do the same
    everywhere. If two do, a probe is missing, or they are one mistake. The text says what the code does, why it
    matters, and where the paper says otherwise. It has to be true for everyone who gets these results. Small edits in
    different places are best, because two of them applied together recognize two mistakes at once.

Validation
    of arguments isn't what an exercise teaches. A property that asks for a `ValueError` returns a `Remark` if none is
    raised, so it costs nothing.

Second implementations
    Students must not find the answer elsewhere in the package. Mark a faster version, or whatever else does the same,
    with `@reimplements("name")`. `tests/classroom/test_reimplementations.py` looks for those without a mark.

Tests
    `tests/exercises/test_registry.py` tests every exercise from its own parts. Add at least three right answers in
    other styles to `tests/exercises/variants/variants_NN.py`, as `VARIANTS = {"softmax": [function, ...]}`. While you
    write, use `pytest tests/exercises -k softmax`; `python -m transformer_lab.exercises softmax` shows the reports. At
    the end, run `TRANSFORMER_LAB_SEEDS=20 pytest tests/exercises/test_registry.py -k softmax`, because a grader uses
    other seeds. All checks of the course together take at most 20 s, and each at most 1 s.
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
