"""The grader's side of a submission's kernel. It checks every message, and limits every wait.

It replaces `jupyter_client`, which connects to sockets that the kernel has bound. In the sandbox, the folder that
contains the sockets is read-only, so the grader binds the sockets. The grader can then also limit the size and number
of messages (see the attacks called "garbage on the sockets" and "an endless message" in tests/classroom/hostile/).
There is another difference: `jupyter_client` waits for a reply until a time limit is reached, but here, the wait also
ends as soon as the kernel ends.
"""

import contextlib
import json
import math
import multiprocessing
import os
import runpy
import secrets
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from queue import Empty
from types import ModuleType
from typing import Any

import psutil
import zmq

from transformer_lab.classroom import kernel_process
from transformer_lab.classroom.messages import DELIMITER, SURROGATES, Message, checked_output, is_idle, message, parse
from transformer_lab.classroom.process_group import ProcessGroup
from transformer_lab.classroom.resource_limits import ONE_THREAD, Limits
from transformer_lab.classroom.sandbox import INSIDE, Sandbox

START_SECONDS = 60.0  # how long a kernel may take to start; the first one waits until torch is imported
END_SECONDS = 10.0
INTERRUPT_SECONDS = 2.0  # how long a cell may take to end after an interrupt before the kernel is killed
QUIET_SECONDS = 2.0  # how long to wait for the next output after a cell's reply
OUTPUT_SECONDS = 5.0  # how long to wait for all outputs after a cell's reply
SHELL_BYTES, IOPUB_BYTES = 12 * 2**20, 4 * 2**20  # per message
CELL_MESSAGES, CELL_CHARACTERS = 500, 50_000  # how much of a cell's output is kept
READ_SECONDS = 0.3  # how long to read before checking the clock again
WATCH_SECONDS = 0.1
MESSAGES_BYTES = 512 * 2**20  # limit on messages in the grader's memory, because ZeroMQ would buffer an endless one

# Libraries that are slow to import. They are imported once, in the process from which all kernels are forked.
PRELOADED = [
    "torch",
    "torch._dynamo",  # imported by the first optimizer
    "matplotlib.pyplot",
    "matplotlib_inline.backend_inline",
    "seaborn",
    "ipywidgets",
    "ipykernel.ipkernel",
    "ipykernel.kernelapp",
]
PASSED_ON = ("PATH", "HOME", "MPLCONFIGDIR", "XDG_CACHE_HOME", "LD_LIBRARY_PATH", "OPENBLAS_CORETYPE")
EXPLANATIONS = {
    "time": "time ran out, and the kernel did not stop when it was interrupted",
    "memory": "the kernel and its processes used more memory than is allowed",
    "processes": "the kernel started more processes than are allowed",
    "cpu": "the kernel used more CPU time than is allowed",
    "owner": "the kernel was stopped",
}
INLINE_BACKEND = "module://matplotlib_inline.backend_inline"

_forking = multiprocessing.get_context("forkserver")
_forking.set_forkserver_preload(PRELOADED)


class KernelEnded(Exception):  # noqa: N818 (the grader expects it)
    """The kernel is gone. `reason` is `exit`, `time`, `memory`, `processes`, `cpu`, or `owner`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def preload() -> None:
    """Start importing what kernels need, without waiting for the imports to finish."""
    with _stripped_process():
        ensure_running()


@contextlib.contextmanager
def _stripped_process() -> Iterator[None]:
    """Hide this process's environment variables and main script from the processes that `multiprocessing` starts.

    Otherwise, a kernel could read the instructor's tokens in /proc/self/environ, and it would import the main script.
    `test_a_kernel_does_not_get_the_graders_environment` would fail.
    """
    environment, script = dict(os.environ), sys.modules["__main__"]
    os.environ.clear()
    # Only one thread, because a process with several must not fork.
    os.environ.update({name: environment[name] for name in PASSED_ON if name in environment} | ONE_THREAD)
    os.environ.update(LANG="C.UTF-8", MPLBACKEND=INLINE_BACKEND)
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        sys.modules["__main__"] = script


@dataclass
class _Request:
    """A request to the kernel, and the messages received in response so far."""

    id: str = field(default_factory=lambda: secrets.token_hex(16))
    reply: dict[str, Any] | None = None
    outputs: deque[Message] = field(default_factory=deque)
    output_deadline: float = math.inf
    messages: int = 0
    characters: int = 0

    def add_reply(self, received: Message) -> None:
        if received["msg_type"].endswith("_reply"):
            self.reply = received["content"]
            self.output_deadline = min(self.output_deadline, time.monotonic() + OUTPUT_SECONDS)

    def add_output(self, received: Message) -> None:
        """Keep an output, unless the cell has exceeded its output limit.

        Without this limit, `test_floods_of_output_are_read_and_forgotten` fails.
        """
        if (output := checked_output(received)) is None:
            return
        if not is_idle(output):
            self.messages += 1
            self.characters += len(str(output["content"]))
            if self.messages > CELL_MESSAGES or self.characters > CELL_CHARACTERS:
                return
        self.outputs.append(output)


class Kernel:
    """A kernel with the methods that nbval calls on its own `RunningKernel`.

    Args:
        package: Folder that contains the stubbed package.
        folder: A new folder for this kernel. Its path must be short, because it will hold sockets.
        limits: Limits on time, memory, and processes.
        seconds: Time limit after which the kernel is always killed.
        sandboxed: Whether to run the kernel in a sandbox.

    Raises:
        SandboxError: The sandbox cannot be created.
        KernelEnded: The kernel ended right away or did not answer.
    """

    def __init__(self, package: Path, folder: Path, limits: Limits, seconds: float, sandboxed: bool = True) -> None:
        self.limits = limits
        self.killed_for = ""
        self.exit_status: int | None = None  # 128 + N after signal N
        self.sandbox: Sandbox | None = None
        self.group: ProcessGroup | None = None
        self._deadline = time.monotonic() + seconds
        self._stopped = threading.Event()
        self._context = zmq.Context()
        sockets = folder / "s"
        try:
            sockets.mkdir(parents=True)
            self._shell = self._bind(zmq.DEALER, sockets / "shell", SHELL_BYTES, 16)
            self._iopub = self._bind(zmq.SUB, sockets / "iopub", IOPUB_BYTES, 200)
            self._iopub.subscribe(b"")
            if sandboxed:
                folder.chmod(0o711)
                sockets.chmod(0o711)
                self.sandbox = Sandbox(package, sockets)
            self._start(package, folder, sockets)
            self._poller = zmq.Poller()
            for readable in (self._shell, self._iopub, self._process.sentinel):
                self._poller.register(readable, zmq.POLLIN)
            threading.Thread(target=self._watch, daemon=True).start()
            self._wait_until_it_answers()
        except BaseException:
            self.stop()
            raise

    def _bind(self, kind: int, path: Path, most_bytes: int, most_messages: int) -> zmq.Socket:
        """Bind a socket that limits the size and number of messages.

        The attack called "garbage on the sockets" exceeds both limits.
        """
        bound = self._context.socket(kind)
        bound.linger = 0
        bound.setsockopt(zmq.MAXMSGSIZE, most_bytes)
        bound.rcvhwm = most_messages
        bound.bind(f"ipc://{path}")
        path.chmod(0o777)  # for the kernel's user; other users can't enter the grader's private folder
        return bound

    def _start(self, package: Path, folder: Path, sockets: Path) -> None:
        inside = self.sandbox is not None
        home, sockets_seen = (Path("/tmp"), Path(INSIDE)) if inside else (folder, sockets)
        request = {
            "sandbox": self.sandbox.first_process if inside else None,
            "uid": 1_000_000_000 + os.getpid() if inside and os.geteuid() == 0 else None,
            "environment": _environment(home),
            "package": str(package),
            "folder": str(home / "work"),
            "shell": str(sockets_seen / "shell"),
            "iopub": str(sockets_seen / "iopub"),
            "limits": self.limits.of_a_process(),
        }
        # Run the file by its path, because importing it would import this package, which has the answers.
        self._process = _forking.Process(target=runpy.run_path, args=(kernel_process.__file__, {"REQUEST": request}))
        with _stripped_process():
            self._process.start()
        self.group = ProcessGroup(self._process.pid, self.sandbox)

    def _watch(self) -> None:
        """Kill the kernel when it exceeds a limit. This runs in its own thread, so it works while the grader waits.

        Without the deadline, `test_a_kernel_whose_time_is_up_is_ended` fails.
        """
        grader = psutil.Process()
        most_bytes = grader.memory_info().rss + MESSAGES_BYTES
        while not self._stopped.wait(WATCH_SECONDS):
            if time.monotonic() > self._deadline:
                self.kill("time")
            elif grader.memory_info().rss > most_bytes:  # "an endless message"
                self.kill("memory")
            elif limit := self.group.exceeded_limit(self.limits):
                self.kill(limit)

    def _wait_until_it_answers(self) -> None:
        """Wait until the kernel answers and its outputs arrive, so that no output of the first cell is lost.

        Without this, `test_a_kernel_that_does_not_answer_is_reported_before_its_first_cell` fails.
        """
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if self.ask("kernel_info_request", {}, min(5.0, end - time.monotonic())) is not None and self._wait(
                lambda: any(map(is_idle, self._request.outputs)), min(end, time.monotonic() + 0.5)
            ):
                return
            self._raise_if_ended()
        raise KernelEnded("time", f"the kernel did not answer within {START_SECONDS:g} seconds")

    # Methods that nbval calls
    # ------------------------------------------------------------------------------------------------

    def execute_cell_input(self, cell_input: str, allow_stdin: bool | None = None) -> str:
        """Run a cell, and return the ID of the request."""
        content = {
            "code": SURROGATES.sub("\ufffd", cell_input),  # the kernel would never answer a lone surrogate
            "silent": False,
            "store_history": False,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        self._send("execute_request", content)
        return self._request.id

    def await_reply(self, msg_id: str, timeout: float) -> None:
        """Wait until the cell has run.

        Raises:
            Empty: The cell takes longer than `timeout` seconds.
            KernelEnded: The kernel is gone.
        """
        if self._reply_within(timeout) is None:
            raise Empty

    def get_message(self, stream: str = "iopub", timeout: float = OUTPUT_SECONDS) -> Message:
        """Return the next output of a cell that has replied or was interrupted. The last output is always `idle`.

        Raises:
            Empty: The cell kept running after the interrupt, so the kernel was killed.
            KernelEnded: The kernel is gone.
        """
        outputs = self._request.outputs
        self._wait(lambda: bool(outputs), min(self._request.output_deadline, time.monotonic() + QUIET_SECONDS))
        if outputs:
            return outputs.popleft()
        self._raise_if_ended()
        if self._has_reply():  # the kernel's own `idle` was lost in a flood
            return message("status", {"execution_state": "idle"}, self._request.id)
        self.kill("time")
        raise Empty

    def await_idle(self, parent_id: str, timeout: float) -> None:
        """Discard the rest of the cell's output."""
        while not is_idle(self.get_message()):
            pass

    def interrupt(self) -> None:
        """Interrupt the cell as Ctrl-C does. If it keeps running, `get_message` kills the kernel."""
        self._request.output_deadline = time.monotonic() + INTERRUPT_SECONDS
        self.group.interrupt()

    def is_alive(self) -> bool:
        self._pump(0.0)
        return not self._has_ended()

    def stop(self) -> None:
        """Shut down the kernel and everything it has started, and wait until all of these processes are gone."""
        self._stopped.set()
        if self.group is not None:
            self.kill("owner")
            self._process.join(END_SECONDS)
            self._process.kill()  # the supervisor, in case it hangs
        if self.sandbox is not None:
            self.sandbox.close()
        self._context.destroy(linger=0)

    # -----------------------------------------------------------------------------------------------------------------

    def kill(self, reason: str) -> None:
        """Kill the kernel and everything it has started, and record `reason`."""
        if self.exit_status is None:
            self.killed_for = self.killed_for or reason
        self.group.kill()

    def ask(self, kind: str, content: dict[str, Any], timeout: float) -> dict[str, Any] | None:
        """Send a request, and return the content of its reply. If none arrives within `timeout` seconds, return None.

        The reply can be any JSON object, because a student's code may have written it.

        Raises:
            KernelEnded: The kernel is gone.
        """
        self._send(kind, content)
        return self._reply_within(timeout)

    def _send(self, kind: str, content: dict[str, Any]) -> None:
        """Send a request. Messages that arrive later for the previous request are ignored."""
        self._request = _Request()
        header = {"msg_id": self._request.id, "msg_type": kind, "username": "", "session": "grader", "version": "5.3"}
        header["date"] = "2000-01-01T00:00:00+00:00"
        parts = [json.dumps(part).encode() for part in (header, {}, {}, content)]  # ASCII, without surrogates
        end = time.monotonic() + START_SECONDS
        while not self._shell.poll(20, zmq.POLLOUT):  # the kernel has not connected yet, or has stopped reading
            self._pump(0.0)
            self._raise_if_ended()
            if time.monotonic() > end:
                self.kill("time")
        self._raise_if_ended()
        self._shell.send_multipart([DELIMITER, b"", *parts], zmq.NOBLOCK)

    def _reply_within(self, seconds: float) -> dict[str, Any] | None:
        if not self._wait(self._has_reply, time.monotonic() + seconds):
            self._raise_if_ended()
        return self._request.reply

    def _has_reply(self) -> bool:
        return self._request.reply is not None

    def _has_ended(self) -> bool:
        return self.exit_status is not None or bool(self.killed_for)

    def _raise_if_ended(self) -> None:
        if not self._has_ended():
            return
        status = self.exit_status or 0
        signal_number = -status if status < 0 else max(0, status - 128)  # of the supervisor or of the kernel
        reason = self.killed_for or ("cpu" if signal_number == signal.SIGXCPU else "exit")
        names = {member.value: member.name for member in signal.Signals}
        signal_name = names.get(signal_number, f"signal {signal_number}")
        ending = f"was ended by {signal_name}" if signal_number else f"ended with status {status}"
        raise KernelEnded(reason, EXPLANATIONS.get(reason, f"the kernel {ending}"))

    def _wait(self, arrived: Callable[[], bool], end: float) -> bool:
        """Read until `arrived()` is true, the kernel ends, or the time `end` is reached. Return `arrived()`."""
        while not arrived():
            left = end - time.monotonic()
            if left <= 0 or self._has_ended():
                return False
            self._pump(min(left, WATCH_SECONDS))
        return True

    def _pump(self, seconds: float) -> None:
        """Wait at most `seconds` for messages, and read some of them."""
        if self._has_ended():
            return
        ready = dict(self._poller.poll(seconds * 1000))
        has_ended = self._process.sentinel in ready
        if self._shell in ready or has_ended:
            self._drain(self._shell, self._request.add_reply)
        if self._iopub in ready or has_ended:
            self._drain(self._iopub, self._request.add_output)
        if has_ended:
            self.exit_status = self._process.exitcode or 0
            self.group.kill()

    def _drain(self, stream: zmq.Socket, add: Callable[[Message], None]) -> None:
        """Read messages for only a moment, so that the caller can check the clock."""
        end = time.monotonic() + READ_SECONDS
        while time.monotonic() < end:
            try:
                frames = stream.recv_multipart(zmq.NOBLOCK)
            except zmq.ZMQError:
                return
            if (received := parse(frames, self._request.id)) is not None:
                add(received)


def _environment(home: Path) -> dict[str, str]:
    return ONE_THREAD | {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "USER": "student",
        "LOGNAME": "student",
        "HOME": str(home / "home"),
        "TMPDIR": str(home),
        "IPYTHONDIR": str(home / "home" / ".ipython"),
        "JUPYTER_RUNTIME_DIR": str(home / "home"),
        "MPLCONFIGDIR": str(home / "home"),
        "MPLBACKEND": INLINE_BACKEND,
        "TRANSFORMER_LAB_MINE": "off",
        "TRANSFORMER_LAB_PRESET": "tiny",  # otherwise, notebook 13 would train for twenty minutes
        "PYTHONDONTWRITEBYTECODE": "1",
        "TORCHDYNAMO_DISABLE": "1",  # `@torch.compile` has no effect, because there is no time to compile
    }
