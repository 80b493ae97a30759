"""Test what a kernel may return and how many points each reply earns. This process acts as the kernel."""

import functools
import inspect
import json
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import nn

from transformer_lab.classroom import kernel_side, scoring
from transformer_lab.classroom.kernel_client import KernelEnded
from transformer_lab.classroom.wire import WireError, decode, decode_observation, encode
from transformer_lab.exercises import exercises
from transformer_lab.exercises.judgment import inputs_by_check
from transformer_lab.exercises.observation import NotData, Observation, same_data

SEED = 4711


class Here:
    """A fake kernel that uses names from this process."""

    def __init__(self, **names):
        self.names, self.asked = names, []

    def ask(self, kind, content, timeout):
        self.asked.append(json.loads(content["data"]))
        return kernel_side.answer_request(content, self.names)


def score(name, kernel, shown=()):
    return scoring.score(kernel, exercises()[name], SEED, set(shown), 60.0)


def softmax(scores):
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


# The wire format ------------------------------------------------------------------------------------------------------


def sent(data):
    """Return the data as it arrives."""
    return decode(json.loads(json.dumps(encode(data))))


def test_the_inputs_of_every_exercise_arrive_as_they_were_sent():
    for exercise in exercises().values():
        for name, inputs in inputs_by_check(exercise, 0).items():
            assert same_data(sent(inputs), inputs), f"{exercise.name}: {name}"


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("-inf"),
        0.1,
        -0.0,
        10**300,
        "\ud800 ü",
        (),
        [(1, [None])],
        {(1, "a"): True},
        torch.tensor(1.5),
        torch.zeros(0, 3),
        torch.tensor([True, False]),
        torch.tensor([1.5], dtype=torch.bfloat16),
        torch.arange(6).reshape(2, 3).T,
        torch.tensor([1 + 2j]),
        np.zeros((2, 0)),
        np.array([1.0, np.nan]),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    ],
    ids=repr,
)
def test_data_keeps_its_bits_on_the_way(value):
    arrived = sent(value)
    assert type(arrived) is type(value)
    if isinstance(value, np.ndarray):
        assert (arrived.dtype, arrived.tobytes()) == (value.dtype, value.tobytes())
    else:
        assert same_data(arrived, value) or (value != value and arrived != arrived)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        torch.zeros(1).to_sparse(),
        torch.zeros(1, device="meta"),
        np.array([object()]),
        np.array(["ab", "c"]),
        np.array([1.5], ">f8"),
        2**1024 - 1,
        1 << 5000,
        [[[[[[[[[[[[[[1]]]]]]]]]]]]]],
    ],
    ids=["object", "sparse", "meta", "objects", "text", "byte order", "no float", "enormous", "deep"],
)
def test_what_is_no_data_arrives_as_a_description(value):
    arrived = sent(value)
    while isinstance(arrived, list):
        (arrived,) = arrived
    assert isinstance(arrived, NotData)


def test_results_that_are_too_large_do_not_travel():
    assert "shape (3000, 3000)" in decode(encode(torch.zeros(3000, 3000))).description
    assert len(json.dumps(encode(np.zeros(10**7)))) < 200


@pytest.mark.parametrize(
    "wire",
    [
        10**309,
        {},
        {"float": 1.0},
        [],
        [1],
        ["none"],
        ["int", 5],
        ["str", "x"],
        ["unknown", 1],
        ["foreign", 1],
        ["tensor", "float64", [1], "####"],
        ["tensor", "float64", [1], "AAAA"],
        ["tensor", "float64", [-1], ""],
        ["tensor", "float64", [10**12], "AAAA"],
        ["tensor", "object", [1], "AAAA"],
        ["tensor", "float64", [True], "AAAAAAAAAAA="],
        ["tensor", "float64", [2.0], "AAAA"],
        ["tensor", "uint8", [[1]], "AA=="],
        ["tensor", "float64", [1] * 99, "AAAAAAAAAAA="],
        ["tensor", "bool", [1 << 39, 1 << 39, 0], ""],
        ["tensor", "float64", [0] + [1 << 39] * 6, ""],
        ["array", "<f8", [1 << 39, 1 << 39, 0], ""],
        ["array", "|O", [1], "AAAAAAAAAAA="],
        ["array", "<U1", [1], "/////w=="],
        ["array", ">f8", [1], 5],
        ["array", ">f8", [1], "AAAAAAAAAAA="],
        2**1024 - 1,
        ["array", "V8", [1], "AAAAAAAAAAA="],
        ["array", "<f8,<f8", [1], "A" * 24],
        ["list", {}],
        ["dict", [["x"]]],
        ["dict", [[["list", []], None]]],
        ["foreign", "x" * 300],
        functools.reduce(lambda inner, _: ["list", [inner]], range(50), None),
        ["list", [None] * 300_000],
    ],
    ids=lambda wire: str(wire)[:40],
)
def test_what_nobody_here_would_have_written_is_refused(wire):
    with pytest.raises(WireError):
        decode(wire)


def test_many_large_results_make_no_reply_that_cannot_travel():
    observations = [Observation(np.zeros(100_000))] * 30
    assert len(json.dumps(kernel_side._encoded(observations))) < 2 * kernel_side.MOST_CHARACTERS


def test_truth_values_are_made_of_bytes_that_are_none():
    """In torch, a boolean stored as byte 7 has undefined behavior."""
    arrived = decode(["tensor", "bool", [2], "BwA="])
    assert arrived.view(torch.uint8).tolist() == [1, 0]


@pytest.mark.parametrize(
    "wire",
    [
        None,
        [],
        [None, None],
        [None, ["boom", "", "", 1, ""], []],
        [None, ["exception", 1, "", 1, ""], []],
        [None, ["exception", "E", "m", 1.5, ""], []],
        [None, None, "changes"],
    ],
    ids=repr,
)
def test_observations_that_are_none_are_refused(wire):
    with pytest.raises(WireError):
        decode_observation(wire, ())


def test_of_an_observation_only_known_changes_and_lines_count():
    observation = decode_observation([None, ["exception", "E" * 999, "m", -5, "c"], ["seed", "x", ["y"], 3]], ("seed",))
    assert observation.changes == ("seed",)
    assert observation.crash.line is None
    assert len(observation.crash.type) == 200


# Scores ---------------------------------------------------------------------------------------------------------------


def test_every_answer_of_the_course_earns_all_of_its_points():
    """Inputs and results are encoded, harnesses are sent as source code, and the seed differs from the notebook's."""
    for name in ("softmax", "numpy_attention", "SingleHeadAttention", "split_heads", "target_mask", "LayerNorm"):
        found = score(name, Here(**{name: exercises()[name].answer}))
        assert (found.state, found.earned) == ("passed", exercises()[name].points), found.report


class CallableSoftmax:
    def __call__(self, scores):
        return softmax(scores)


@pytest.mark.parametrize(
    "subject",
    [
        lambda s: softmax(s),
        functools.partial(softmax),
        functools.wraps(print)(lambda scores: softmax(scores)),
        CallableSoftmax(),
    ],
    ids=["lambda", "partial", "decorated", "callable object"],
)
def test_the_object_is_found_by_its_variable_whatever_it_calls_itself(subject):
    assert score("softmax", Here(softmax=subject)).state == "passed"


def test_a_decorated_class_and_an_object_of_it_are_scored():
    answer = exercises()["SingleHeadAttention"].answer
    assert score("SingleHeadAttention", Here(SingleHeadAttention=functools.partial(answer))).state == "passed"
    found = score("SingleHeadAttention", Here(SingleHeadAttention=answer(4, 2)))
    assert found.state == "passed"
    assert "the class itself has been scored" in found.remarks[0]


def test_a_list_for_a_tuple_passes_with_a_remark():
    found = score("numpy_attention", Here(numpy_attention=lambda *a: list(exercises()["numpy_attention"].answer(*a))))
    assert found.state == "passed"
    assert "use a tuple" in found.remarks[0]


def test_a_mutated_input_fails_by_name():
    def softmax_in_place(scores):
        scores -= scores.max(axis=-1, keepdims=True)
        return softmax(scores)

    found = score("softmax", Here(softmax=softmax_in_place))
    assert found.state == "failed"
    assert "`scores`" in found.report


def test_nothing_written_is_told_from_something_wrong():
    def stub(scores):
        """Compute the softmax."""
        raise NotImplementedError()

    def halfway(scores):
        shifted = scores - scores.max()
        raise NotImplementedError(shifted)

    assert score("softmax", Here(softmax=stub)).state == "not attempted"
    assert score("softmax", Here(softmax=halfway)).state == "failed"
    assert score("softmax", Here()).state == "not attempted"
    assert scoring.score(Here(), exercises()["softmax"], SEED, set(), 60.0, "x = 1").state == "failed"
    assert "is of type `int`" in score("softmax", Here(softmax=3)).report


def test_a_misconception_is_named_and_earns_what_its_probes_say():
    found = score("softmax", Here(softmax=lambda s: np.exp(s) / np.exp(s).sum(axis=-1, keepdims=True)))
    assert found.state == "failed"
    assert found.misconceptions
    assert 0 <= found.earned < exercises()["softmax"].points


def test_who_knows_the_inputs_of_the_notebook_by_heart_earns_nothing():
    known = [(i["scores"], softmax(i["scores"])) for i in inputs_by_check(exercises()["softmax"], 0).values()]

    def by_heart(scores):
        return next((right for inputs, right in known if np.array_equal(inputs, scores)), np.zeros_like(scores))

    found = score("softmax", Here(softmax=by_heart))
    assert (found.state, found.earned) == ("failed", 0.0)
    assert "not for others" in found.report


def test_a_report_tells_nothing_about_the_secret_inputs():
    """The report is made from the inputs that everyone sees in the notebook."""
    kernel = Here(softmax=lambda scores: scores * 2)
    report = score("softmax", kernel).report
    secret, public = ([check["inputs"] for check in asked["checks"]] for asked in kernel.asked)
    assert secret != public
    for inputs in inputs_by_check(exercises()["softmax"], SEED).values():
        for number in inputs["scores"].flatten()[:20]:
            assert f"{number:.4f}" not in report


def test_a_request_contains_public_seeds_only():
    """The kernel seeds torch with a check's number. If that number were secret, student code could read it there."""
    exercise, seed = exercises()["softmax"], 2**61 + 4711
    request = scoring.request(exercise, seed, set())
    assert [check["seed"] for check in request["checks"]] == [exercise.global_seed(check) for check in exercise.checks]
    for number in (seed, *(exercise.input_seed(check, seed) for check in exercise.checks)):
        assert str(number) not in json.dumps(request)


def test_answers_of_the_same_notebook_are_sent_only_when_they_have_been_scored():
    """The student's code must not be able to read an exercise's answer while that exercise is being scored."""
    body = inspect.getsource(exercises()["softmax"].answer)
    before, after = (
        json.dumps(scoring.request(exercises()["numpy_attention"], 1, shown)) for shown in (set(), {"softmax"})
    )
    assert json.dumps(body)[1:-1] not in before
    assert json.dumps(body)[1:-1] in after


def test_a_wrong_or_lost_earlier_part_costs_once(monkeypatch):
    """A correct `numpy_attention` keeps its points even if the `softmax` it calls is wrong or missing."""
    names = {"np": np, "__name__": "student"}
    exec("def softmax(scores): return scores\n", names)
    exec(
        "def numpy_attention(query, key, value):\n"
        "    weights = softmax(query @ key.swapaxes(-2, -1) / np.sqrt(query.shape[-1]))\n"
        "    return weights @ value, weights\n",
        names,
    )
    assert score("numpy_attention", Here(**names), {"softmax"}).state == "passed"
    assert names["softmax"]("left as it was") == "left as it was"
    del names["softmax"]
    assert score("numpy_attention", Here(**names), {"softmax"}).state == "passed"
    assert "softmax" not in names


def test_code_that_ends_threads_or_changes_torch_is_observed_all_the_same(monkeypatch):
    def refuse(jobs):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(kernel_side, "run_limited", refuse)
    assert score("softmax", Here(softmax=softmax)).state == "passed"


# Lies -----------------------------------------------------------------------------------------------------------------

GOOD_SHAPE = ["array", "<f8", [4], "A" * 42 + "A="]


@pytest.mark.parametrize(
    "data",
    [
        None,
        3,
        {"a": 1},
        "",
        "null",
        "[]",
        "{",
        "[" * 100_000,
        '{"observations": 3}',
        '{"observations": [[]]}',
        '{"unwritten": "true"}',
        '{"unwritten": true}',
        '{"passed": true, "score": 1.0}',
        '{"kind": 3}',
        '{"broken": []}',
        json.dumps({"observations": [[None, None, []]] * 1000}),
        json.dumps({"observations": [[GOOD_SHAPE, None, []]]}),
        json.dumps({"observations": [[["tensor", "float64", [10**9], "A"], None, []]]}),
        json.dumps({"observations": [[None, ["exception", "\x1b[31m", "\ud800", 1, "\x00"], []]] * 3}),
        '{"observations": [[NaN, null, []]]}',
    ],
    ids=lambda data: str(data)[:40],
)
def test_no_lie_of_a_kernel_earns_anything_or_stops_the_grader(data):
    kernel = Mock()
    kernel.ask.return_value = {"data": data}
    found = score("softmax", kernel)
    assert found.earned == 0
    assert found.state in ("failed", "not attempted")
    found.report.encode()
    assert "\x1b" not in found.report


@pytest.mark.parametrize(
    ("reason", "state"),
    [("time", "timed out"), ("memory", "out of memory"), ("exit", "killed"), ("processes", "killed")],
)
def test_how_a_kernel_ended_is_the_state(reason, state):
    kernel = Mock()
    kernel.ask.side_effect = KernelEnded(reason, "it ended")
    assert score("softmax", kernel).state == state


def test_an_object_that_does_not_come_back_is_killed():
    kernel = Mock()
    kernel.ask.return_value = None
    assert score("softmax", kernel).state == "timed out"
    kernel.kill.assert_called_once_with("time")


def test_a_machine_that_stood_still_for_a_while_costs_nobody_points():
    """A check's limit is in wall-clock time, so an answer that ran out of time gets a second try."""

    class HeldUp(Here):
        def ask(self, kind, content, timeout):
            reply = super().ask(kind, content, timeout)
            stuck = json.dumps({"observations": [[None, ["time", "", "", None, ""], []]]})
            return {"data": stuck} if len(self.asked) == 1 else reply

    kernel = HeldUp(softmax=softmax)
    assert score("softmax", kernel).state == "passed"
    assert len(kernel.asked) == 2


def test_lying_comparisons_and_conversions_change_nothing():
    class Yes(torch.Tensor):
        def __eq__(self, other):
            return True

        @classmethod
        def __torch_function__(cls, function, types, arguments=(), keywords=None):
            return (
                torch.ones(()).bool()
                if "equal" in str(function)
                else super().__torch_function__(function, types, arguments, keywords or {})
            )

    class Array(np.ndarray):
        def __array__(self, *_):
            raise RuntimeError("no")

        def __eq__(self, other):
            return True

    assert score("softmax", Here(softmax=lambda s: np.zeros_like(s).view(Array))).earned == 0
    assert score("split_heads", Here(split_heads=lambda x, n: torch.zeros(()).as_subclass(Yes))).earned == 0


class Unreadable(nn.Module):
    def __new__(cls, *arguments):
        raise SystemExit


def test_an_exit_in_the_students_code_is_a_failure_like_any_other():
    assert score("SingleHeadAttention", Here(SingleHeadAttention=Unreadable)).state == "failed"
