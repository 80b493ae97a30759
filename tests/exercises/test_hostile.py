"""A report explains in words how code misbehaves. The process that checks the code is not affected."""

import asyncio
import random
import sys
import threading
import time
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from transformer_lab.classroom.wire import decode_observation, encode_observation
from transformer_lab.exercises import check, exercises, run_check, time_limit
from transformer_lab.exercises.judgment import inputs_by_check, judge, observe_all, reference_of
from transformer_lab.exercises.time_limit import run_limited
from transformer_lab.model import scaled_dot_product_attention as attention
from transformer_lab.model import softmax


def row(report, name):
    return next(result for result in report.checks if result.name == name)


def failed(report) -> str:
    """Return the text of a failed report without line breaks."""
    assert not report.passed
    return " ".join(str(report).split())


@pytest.fixture
def world():
    """Assert that a check leaves the global state unchanged."""
    torch.manual_seed(3)
    np.random.seed(3)
    random.seed(3)
    before = (torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate(), np.random.seed, random.seed)
    streams = sys.stdout, sys.stderr
    yield
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()
    assert random.getstate() == before[2]
    assert (np.random.seed, random.seed) == before[3:]
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()
    assert torch.get_default_device().type == "cpu"
    assert (sys.stdout, sys.stderr) == streams
    assert time_limit._worker is None
    assert not time_limit._one_at_a_time.locked()


pytestmark = pytest.mark.usefixtures("world")


@pytest.fixture
def short(monkeypatch):
    """Stop infinite loops after a moment instead of after five seconds."""
    monkeypatch.setattr(time_limit, "SECONDS", 0.3)
    monkeypatch.setattr(time_limit, "GRACE_SECONDS", 0.5)


def raising(error):
    def function(*arguments, **named):
        raise error

    return function


def returning(result):
    return lambda *arguments, **named: result


def misnamed(scores):
    exponentials = np.exp(scores)
    return exponentials / exponential_sum  # noqa: F821


def without_return(scores):
    np.exp(scores)


def recursive(scores):
    return recursive(scores)


def checks_itself(scores):
    return check("softmax", checks_itself)


class UnreadableError(Exception):
    def __str__(self):
        raise ValueError


class WithoutSuper(nn.Module):
    def __init__(self, d_model, d_k):
        self.w_q = nn.Linear(d_model, d_k)


class Misspelled(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.w_q, self.w_k, self.w_v = (nn.Linear(d_model, d_k) for _ in range(3))

    def foward(self, query, key, value, mask=None):
        return query


class OtherNames(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.query = nn.Linear(d_model, d_k)

    def forward(self, query, key, value, mask=None):
        return query


def head_without_key_and_value():
    """Return a class with the exercise's name, because the exception contains it."""

    class SingleHeadAttention(nn.Module):
        def __init__(self, d_model, d_k):
            super().__init__()
            self.w_q, self.w_k, self.w_v = (nn.Linear(d_model, d_k) for _ in range(3))

        def forward(self, x):
            return x

    return SingleHeadAttention


EXPLAINED = [
    ("softmax", misnamed, "NameError: name 'exponential_sum' is not defined"),
    ("softmax", misnamed, "return exponentials / exponential_sum"),
    ("softmax", misnamed, "Is `exponential_sum` misspelled, or in a cell you haven't run?"),
    ("softmax", lambda scores, axis: scores, "The check calls it as `softmax(scores)`."),
    (
        "SingleHeadAttention",
        head_without_key_and_value(),
        "The check calls it as `SingleHeadAttention.forward(query, key, value, mask",
    ),
    ("softmax", without_return, "`weights` is None (is there a `return`?)"),
    ("softmax", returning(torch.ones(2)), "`weights` is a tensor of shape (2,)"),
    ("softmax", returning("a string"), "`weights` is a string ('a string')"),
    ("softmax", returning(np.ones(3, dtype=object)), "`weights` is an array of Python objects"),
    ("softmax", returning(np.float64), "`weights` is the class `float64` itself"),
    ("softmax", returning(i for i in range(3)), "`weights` is a `generator`"),
    ("softmax", returning({1: 2}), "`weights` is a dictionary"),
    ("softmax", returning(nn.Linear(2, 2)), "`weights` is a `Linear`"),
    ("softmax", lambda scores: scores * np.nan, "`weights` is NaN (not a number) in 4 of 4 entries"),
    # The `meta` device is used in place of a GPU, which this machine may not have.
    ("causal_mask", returning(torch.ones(1, device="meta")), "is a tensor on the device `meta`"),
    ("split_heads", lambda x, h: x.unflatten(-1, (h, -1)), "expected [ batch 1 | heads 2 | length 3 | d_k 4 ]"),
    ("split_heads", lambda x, h: x.unflatten(-1, (h, -1)), "got [ batch 1 | length 3 | heads 2 | d_k 4 ]"),
    # Exceptions that end a program are treated like any other.
    ("softmax", raising(SystemExit), "`SystemExit`"),
    ("softmax", raising(KeyboardInterrupt), "`KeyboardInterrupt`"),
    ("softmax", raising(GeneratorExit), "`GeneratorExit`"),
    ("softmax", raising(asyncio.CancelledError), "`CancelledError`"),
    ("softmax", recursive, "It keeps calling itself."),
    ("softmax", raising(UnreadableError), "`UnreadableError`"),
    ("softmax", raising(ValueError(f"{object()}")), "0x…"),  # reports must not vary from run to run
    ("softmax", checks_itself, "the code being checked calls `check` itself"),
    ("SingleHeadAttention", WithoutSuper, "The first line of `__init__` has to be `super().__init__()`."),
    ("SingleHeadAttention", Misspelled, "The class in brackets has no `forward`"),
    ("SingleHeadAttention", OtherNames, "no parameter `w_q.weight`; there are `query.weight`, `query.bias`"),
]


@pytest.mark.parametrize(("name", "subject", "words"), EXPLAINED, ids=[words for *_, words in EXPLAINED])
def test_what_went_wrong_is_said(name, subject, words):
    assert words in failed(check(name, subject))


def test_one_exception_is_reported_once():
    """Ten rows with the same exception would hide the row that matters."""
    report = check("softmax", raising(IndexError("out")))
    assert [result.state for result in report.checks].count("failed") == 1
    assert row(report, "two rows, each by itself").state == "not checked"


ODD_RESULTS = {
    "an enormous number": 10**400,
    "a complex number": 1 + 2j,
    "text in an array": np.array(["0.5", "0.5"]),
    "one text in an array": np.array("0.5"),
    "bytes in an array": np.array([b"0.5"]),
    "dates": np.array(["2017-06-12"], "datetime64[D]"),
    "a record": np.zeros(2, [("a", "i4")]),
    "raw memory": np.zeros(2, "V4"),
    "more bits than torch has": np.array([0.5, 0.5], np.longdouble),
    "the other byte order": np.array([0.5, 0.5], ">f8"),
    "objects": np.array([0.5, "a", None], object),
    "a sparse tensor": torch.eye(3).to_sparse(),
    "a tensor without numbers": torch.empty(2, device="meta"),
    "eight bits": torch.ones(2).to(torch.float8_e4m3fn),
    "half a letter": "\ud800",
    "keys of all kinds": {(1, 2): torch.ones(1), None: 3},
}
with warnings.catch_warnings():  # torch warns about these types
    warnings.simplefilter("ignore")
    ODD_RESULTS["a nested tensor"] = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    ODD_RESULTS["a quantized tensor"] = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)
ONE_OF_EACH_KIND = ("softmax", "scaled_dot_product_attention", "warmup_rate", "bleu", "apply_bpe", "greedy_decode")


@pytest.mark.parametrize("result", ODD_RESULTS)
@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_no_result_is_too_odd_to_be_judged(name, result):
    """Odd results are scored both in this process and in a grader, which receives them from another process."""
    exercise = exercises()[name]

    def odd(*arguments, **named):
        return ODD_RESULTS[result]

    report = run_check(exercise, odd)
    assert (report.state, report.score) == ("failed", 0.0)
    assert str(report)
    assert report._repr_html_()
    seen = observe_all(exercise, odd, 0)[0]
    sent = {check: decode_observation(encode_observation(one), ()) for check, one in seen.items()}
    assert judge(exercise, sent, 0, explained=False).score == 0


@pytest.mark.parametrize("dtype", [str, "S8", ">f8", np.longdouble, "datetime64[s]", np.complex128])
def test_right_numbers_of_an_odd_type_are_judged(dtype):
    def softmax_of_another_type(scores):
        return softmax(scores).astype(dtype)

    report = run_check(exercises()["softmax"], softmax_of_another_type)
    assert report.passed == (dtype == ">f8"), str(report)


@pytest.mark.parametrize("number", [float, np.float64, np.float16, np.longdouble, np.complex128, complex])
def test_a_grader_judges_a_number_as_the_notebook_does(number):
    exercise = exercises()["length_penalty"]

    def penalty(length, alpha):
        return number(((5 + length) / 6) ** alpha)

    report = run_check(exercise, penalty)
    assert report.passed == (number in (float, np.float64)), str(report)
    seen = observe_all(exercise, penalty, 0)[0]
    sent = {check: decode_observation(encode_observation(one), ()) for check, one in seen.items()}
    assert judge(exercise, sent, 0, explained=False).score == report.score


def clear(scores):
    scores[:] = 0


CHANGES = [
    ("softmax", clear, "it changed its input `scores`"),
    ("softmax", lambda scores: torch.manual_seed(0), "it set a global random seed"),
    ("softmax", lambda scores: np.random.seed(0), "it set a global random seed"),
    ("softmax", lambda scores: random.seed(0), "it set a global random seed"),
    (
        "combine_heads",
        lambda x: torch.set_default_dtype(torch.float16),
        "it changed torch's default dtype for everyone",
    ),
    ("combine_heads", lambda x: torch.set_grad_enabled(False), "it switched gradients off for everyone"),
    ("combine_heads", lambda x: torch.set_default_device("meta"), "it changed torch's default device for everyone"),
]


@pytest.mark.parametrize(("name", "change", "words"), CHANGES)
def test_a_change_of_what_belongs_to_others_costs_points(name, change, words):
    answer = exercises()[name].answer

    def changing(argument):
        result = answer(argument)
        change(argument)
        return result

    report = check(name, changing)
    assert words in failed(report)
    assert 0 < report.score < 1
    if not report.misconceptions:
        start = "" if any(result.state == "failed" for result in report.checks[:-1]) else "All results are right, but "
        assert f"{start}{words}" in " ".join(str(report).partition("The smallest input")[0].split())


def test_drawing_random_numbers_is_allowed():
    """Layers sample their initial weights from the global generators, but sampling does not set a seed."""

    def drawing(scores):
        torch.rand(3), np.random.rand(1000), random.random()
        return softmax(scores)

    assert check("softmax", drawing).passed


@pytest.mark.parametrize(
    "setting",
    [torch.inference_mode, torch.no_grad, lambda: torch.device("meta"), lambda: torch.autocast("cpu")],
    ids=["inference mode", "no grad", "another device", "autocast"],
)
def test_callers_settings_make_no_difference(setting):
    """If a notebook turned off gradients or changed the defaults, even its first check must give the same result."""
    inputs_by_check.cache_clear()
    reference_of.cache_clear()
    torch.set_default_dtype(torch.float16)
    try:
        with setting():
            report = check(attention)
    finally:
        torch.set_default_dtype(torch.float32)
    assert report.passed, str(report)


def loop_plainly(scores):
    while True:
        pass


def loop_swallowing(scores):
    while True:
        try:
            while True:
                sum(range(100))
        except BaseException:
            pass


def loop_with_finally(scores):
    while True:
        try:
            time.sleep(0.001)
        finally:
            continue  # noqa: B012 (that is the point)


def loop_in_torch(scores):
    numbers = torch.ones(3)
    while numbers.sum() > 0:
        numbers = numbers / numbers.mean()


def wait_for_ever(scores):
    threading.Event().wait()


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("endless", [loop_plainly, loop_swallowing, loop_with_finally, loop_in_torch, wait_for_ever])
def test_endless_loop_is_stopped(endless):
    """Even a loop that catches every exception is stopped. Code that blocks in a C call is stopped, too."""
    report = check("softmax", endless)
    text = failed(report)
    assert "it did not finish within 5 seconds" in text
    assert row(report, "two rows, each by itself").says == "an earlier check ran out of time"
    assert "line " in text.split("it did not finish")[1]


def test_the_next_check_works_after_an_endless_loop(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(time_limit, "SECONDS", 0.3)
        assert not check("softmax", loop_swallowing).passed
    assert check(softmax).passed


@pytest.mark.usefixtures("short")
def test_endless_loop_is_stopped_in_a_thread():
    """Widgets and servers call `check` from other threads, and those threads receive no signals."""
    reports = []
    thread = threading.Thread(target=lambda: reports.append(check("softmax", loop_swallowing)))
    thread.start()
    thread.join(10)
    assert "it did not finish" in failed(reports[0])


def assert_threads_end(before: set[threading.Thread]) -> None:
    """Assert that all threads except those in `before` have ended. A busy machine may schedule them late."""
    for thread in set(threading.enumerate()) - before:
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.usefixtures("short")
def test_stopped_thread_is_gone():
    """If the loop kept running unnoticed, the notebook would run at half speed."""
    before = set(threading.enumerate())
    run_limited([loop := lambda: loop_swallowing(None)])
    assert loop
    assert_threads_end(before)


def test_interrupting_a_check_works(monkeypatch):
    """The stop button raises KeyboardInterrupt in the main thread. It must end the check and the student's code."""
    real_wait = threading.Event.wait
    running = threading.Event()

    def loop(scores):
        running.set()
        loop_swallowing(scores)

    def wait(event, timeout=None):
        if threading.current_thread() is threading.main_thread() and running.is_set():
            running.clear()
            raise KeyboardInterrupt
        return real_wait(event, min(timeout, 0.05) if timeout else None)

    monkeypatch.setattr(threading.Event, "wait", wait)
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        check("softmax", loop)
    assert_threads_end(before)


def test_interrupting_a_check_that_has_just_begun_works(monkeypatch):
    """On a busy machine, the code may start running before the thread that launched it continues."""
    real_start, running = threading.Thread.start, threading.Event()

    def loop(scores):
        running.set()
        loop_swallowing(scores)

    def start(thread):
        real_start(thread)
        running.wait()
        raise KeyboardInterrupt

    before = set(threading.enumerate())
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        check("softmax", loop)
    assert_threads_end(before)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux limits the memory of a running process")
@pytest.mark.parametrize(
    "allocate",
    [
        lambda: torch.zeros(2**28, dtype=torch.float64),
        lambda: np.ones(2**28),
        lambda: bytearray(2**31),
    ],
)
def test_two_gibibytes_are_refused(allocate):
    """A huge allocation must fail in the check. Otherwise, the system could kill the notebook when memory runs low."""

    def greedy(scores):
        return allocate()

    text = failed(check("softmax", greedy))
    assert "memory" in text
    assert "far more than these inputs need" in " ".join(text.split())
    assert check(softmax).passed


def test_flood_of_output_is_cut_off(capsys):
    def chatty(scores):
        for _ in range(10_000):
            print("a line")
        return softmax(scores)

    assert check("softmax", chatty).passed
    printed = capsys.readouterr().out
    assert printed.startswith("While it was being checked, your code printed:\na line\n")
    assert len(printed) < 1_100


def test_other_threads_still_print(capsys):
    """Only the output of the checked code is captured."""
    go, done = threading.Event(), threading.Event()

    def other():
        go.wait(10)
        print("from elsewhere")
        done.set()

    def waiting(scores):
        go.set()
        done.wait(10)
        return softmax(scores)

    thread = threading.Thread(target=other)
    thread.start()
    assert check("softmax", waiting).passed
    thread.join()
    assert capsys.readouterr().out == "from elsewhere\n"


def test_a_half_written_class_is_attempted():
    class SingleHeadAttention(nn.Module):
        def __init__(self, d_model, d_k):
            super().__init__()
            self.w_q, self.w_k, self.w_v = (nn.Linear(d_model, d_k) for _ in range(3))

        def forward(self, query, key, value, mask=None):
            # YOUR CODE HERE
            raise NotImplementedError()

    report = check(SingleHeadAttention)
    assert report.state == "failed"
    assert "Part of your code isn't written yet" in str(report)


@pytest.mark.parametrize("body", ["...", "pass", "'''docstring'''", "raise NotImplementedError", "return None"])
def test_empty_bodies_are_not_attempted(body):
    names = {}
    exec(f"def softmax(scores):\n    {body}", names)
    assert check(names["softmax"]).state == "not attempted"


@pytest.mark.parametrize("body", ["return scores", "x = 1; raise NotImplementedError", "return 0"])
def test_begun_bodies_are_attempted(body):
    names = {}
    exec(f"def softmax(scores):\n    {body}", names)
    assert check(names["softmax"]).state == "failed"
