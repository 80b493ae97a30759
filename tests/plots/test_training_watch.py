"""Without these tests, a run could continue after a click on Stop, or fail silently."""

import threading

import pytest

from transformer_lab.errors import InputError
from transformer_lab.plots import explore_training


def step(number):
    return {"kind": "step", "step": number, "epoch": 1, "loss": 5.0 / number, "rate": 1e-3, "gradient_norm": 1.0} | {
        "tokens_per_second": 100.0,
        "seconds": float(number),
    }


EPOCH = {"kind": "epoch", "epoch": 1, "step": 3, "train_loss": 2.0, "validation_loss": 1.5, "validation_bleu": None}


def ended(watch):
    watch.thread.join(20)
    assert not watch.thread.is_alive()
    return watch


def test_a_training_is_drawn_to_its_end():
    def run(on_log):
        for number in (1, 2, 3):
            on_log(step(number))
        on_log(EPOCH)
        on_log({"kind": "end", "chosen": "epoch 1"})  # the last record of `train`, which has no step
        return "the model"

    watch = ended(explore_training(run, sample=lambda: "a <b>dog</b>"))
    assert (watch.state, watch.result) == ("finished", "the model")
    assert "<img alt=" in watch.picture.value
    assert watch.samples.value == "<div>epoch 1: a &lt;b&gt;dog&lt;/b&gt;</div>"
    assert watch.pause.disabled


def test_pause_holds_the_training_and_stop_ends_it():
    done, halfway = [], threading.Event()

    def run(on_log):
        for number in range(1, 100_000):
            done.append(number)
            if number == 10:
                watch.pause.click()
                halfway.set()
            on_log(step(number))

    started = threading.Event()
    watch = explore_training(lambda on_log: started.wait(20) and run(on_log), seconds=1000)
    started.set()
    assert halfway.wait(20)
    watch.thread.join(0.3)
    assert watch.thread.is_alive()
    assert (watch.state, done[-1]) == ("paused", 10)
    watch.stop.click()
    ended(watch)
    assert (watch.state, done[-1]) == ("stopped", 10)


def test_a_click_while_a_step_is_recorded_is_not_lost():
    """Training and click handling run in separate threads.

    The button must not say "Continue" while the state is "running".
    """
    told, clicked = threading.Event(), threading.Event()
    watch = explore_training(lambda on_log: told.wait(20) and on_log(step(1)), seconds=0)
    where = watch._where

    def clicked_meanwhile():
        watch.pause.click()
        clicked.set()
        return where()

    watch._where = clicked_meanwhile
    told.set()
    assert clicked.wait(20)
    watch.thread.join(0.3)
    assert watch.thread.is_alive()
    assert (watch.state, watch.pause.description) == ("paused", "Continue")
    assert "paused after the current step" in watch.says.value
    watch.pause.click()
    ended(watch)


@pytest.mark.parametrize(
    ("error", "says"), [(InputError("no such corpus"), "no such corpus"), (ValueError("7"), "ValueError: 7")]
)
def test_a_training_that_fails_says_why(error, says):
    def run(on_log):
        raise error

    watch = ended(explore_training(run))
    assert watch.state == "failed"
    assert says in watch.says.value
    with pytest.raises(type(error), match=str(error)):
        watch.wait()


def test_its_curves_can_be_kept_and_wait_returns_when_the_run_is_paused():
    """If `wait` kept waiting during a pause, its cell would block the button that resumes the run."""
    began = threading.Event()

    def run(on_log):
        on_log(step(1))
        watch.pause.click()
        began.set()
        on_log(step(2))

    started = threading.Event()
    watch = explore_training(lambda on_log: started.wait(20) and run(on_log))
    assert "<img" not in watch._repr_mimebundle_()["text/html"]  # a page saved now has no figure yet
    started.set()
    assert began.wait(20)
    assert watch.wait() is watch
    assert watch.thread.is_alive()
    watch.pause.click()
    assert watch.wait().state == "finished"
    assert "after 2 steps" in watch.figure().get_label()
    assert "<img" in watch._repr_mimebundle_()["text/html"]
    assert "rate 0.001" in watch._where()
