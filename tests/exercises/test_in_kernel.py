"""Run checks in a real notebook kernel, one cell after another."""

import os
import re
import threading

import pytest
from jupyter_client.manager import KernelManager

FIRST_CELL = """
import numpy as np
from transformer_lab import check, hint, progress, solution
from transformer_lab.exercises import time_limit
"""


class Kernel:
    def __init__(self, manager):
        self.manager, self.client = manager, manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)

    def run(self, code) -> str:
        """Return everything that a cell showed, as text."""
        shown = []

        def collect(message):
            content = message["content"]
            match message["msg_type"]:
                case "stream":
                    shown.append(content["text"])
                case "execute_result" | "display_data":
                    shown.append(content["data"]["text/plain"])
                case "error":
                    shown.append("\n".join(content["traceback"]))

        self.client.execute_interactive(code, output_hook=collect, timeout=120)
        return "\n".join(shown)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook")
    manager = KernelManager(kernel_name="python3")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRANSFORMER_LAB")}
    manager.start_kernel(cwd=str(folder), env=environment)
    kernel = Kernel(manager)
    kernel.folder = folder
    kernel.run(FIRST_CELL)
    yield kernel
    kernel.client.stop_channels()
    manager.shutdown_kernel(now=True)


def test_a_wrong_answer_is_named_with_its_line(kernel):
    shown = kernel.run("def softmax(scores):\n    total = np.exp(scores).sun()\n    return total\n\ncheck(softmax)")
    assert "✗ softmax: not right yet, " in shown
    assert "line 2:  total = np.exp(scores).sun()" in shown


def test_misuse_shows_one_line(kernel):
    shown = kernel.run("check(None)")
    assert shown.startswith("check: it got None")
    assert "\n" not in shown


def test_endless_loop_leaves_the_kernel_usable(kernel):
    """The cell runs in the kernel's main thread, and the cell's loop catches and ignores every exception."""
    kernel.run("time_limit.SECONDS = 0.5")
    shown = kernel.run(
        "def softmax(scores):\n    while True:\n        try:\n            while True: pass\n"
        "        except BaseException: pass\n\ncheck(softmax)"
    )
    kernel.run("time_limit.SECONDS = 5.0")
    assert "it did not finish within" in shown
    assert kernel.run("1 + 1") == "2"


def test_the_stop_button_works_during_a_check(kernel):
    kernel.run("time_limit.SECONDS = 60.0")
    button = threading.Timer(2, kernel.manager.interrupt_kernel)
    button.start()
    shown = kernel.run(
        "def softmax(scores):\n    while True:\n        try:\n            print('.', end='')\n"
        "        except BaseException: pass\n\ncheck(softmax)"
    )
    button.join()
    assert "KeyboardInterrupt" in shown
    kernel.run("time_limit.SECONDS = 5.0")
    assert kernel.run("1 + 1") == "2"


def test_a_right_answer_is_saved_next_to_the_notebook(kernel):
    shown = kernel.run(
        "def softmax(scores):\n    e = np.exp(scores - scores.max(-1, keepdims=True))\n"
        "    return e / e.sum(-1, keepdims=True)\n\ncheck(softmax)"
    )
    assert re.search(r"✓ softmax: (\d+) of \1 checks passed", shown)
    assert (kernel.folder / "mine" / "softmax.py").is_file()
    assert "softmax: yours" in kernel.run("from transformer_lab.mine import softmax")
    assert "1 of " in kernel.run("progress()")
