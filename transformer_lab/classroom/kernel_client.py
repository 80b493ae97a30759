"""The kernel of a submission, seen by the grader: every message is checked, and every wait has a limit."""

import contextlib
import json
import multiprocessing
import os
import re
import runpy
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty
from types import ModuleType
from typing import Any

from transformer_lab.classroom import kernel_process
from transformer_lab.classroom.process_group import ProcessGroup
from transformer_lab.classroom.resource_limits import Limits
from transformer_lab.classroom.sandbox import INSIDE, Sandbox
from transformer_lab.files import clean

START_SECONDS = 60.0  # for a kernel; the first one waits until torch is imported
END_SECONDS = 10.0
INTERRUPT_SECONDS = 2.0  # for a kernel that was told to stop; then it is killed
QUIET_SECONDS = 2.0  # after a cell's reply: outputs still to come, if any were lost
OUTPUT_SECONDS = 5.0  # after a cell's reply, however much still comes
SHELL_BYTES, IOPUB_BYTES = 12 * 2**20, 4 * 2**20  # of one message
CELL_MESSAGES, CELL_CHARACTERS = 500, 50_000  # kept of what a cell shows
TEXT_CHARACTERS = 10_000  # of one text
READ_SECONDS = 0.3  # at a stretch
WATCH_SECONDS = 0.1
MESSAGES_BYTES = 512 * 2**20  # that messages may take here: one that never ends is kept whole until it does
DELIMITER = b"<IDS|MSG>"

# Libraries that take long to import. They are imported once; each kernel is forked from the process that has them.
PRELOADED = [
    "torch",
    "matplotlib.pyplot",
    "matplotlib_inline.backend_inline",
    "seaborn",
    "ipywidgets",
    "ipykernel.ipkernel",
    "ipykernel.kernelapp",
]
PASSED_ON = ("PATH", "HOME", "MPLCONFIGDIR", "XDG_CACHE_HOME", "LD_LIBRARY_PATH", "OPENBLAS_CORETYPE")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
ONE_THREAD = dict.fromkeys(THREADS, "1")  # kernels are forked, and a process with threads must not be

_forking = multiprocessing.get_context("forkserver")
_forking.set_forkserver_preload(PRELOADED)


class KernelEnded(Exception):  # noqa: N818 (it is not an error of ours)
    """The kernel is gone: `reason` is `exit`, `time`, `memory`, `processes`, `cpu` or `owner`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def preload() -> None:
    """Start importing what kernels need, without waiting for it."""
    from multiprocessing.forkserver import ensure_running

    with _stripped_process():
        ensure_running()


@contextlib.contextmanager
def _stripped_process() -> Iterator[None]:
    """Hide this process's environment variables and main script from what `multiprocessing` starts.

    A kernel could read the instructor's tokens in /proc/self/environ, and would import the script that grades.
    """
    environment, script = dict(os.environ), sys.modules["__main__"]
    os.environ.clear()
    os.environ.update({name: environment[name] for name in PASSED_ON if name in environment} | ONE_THREAD)
    os.environ.update(LANG="C.UTF-8", MPLBACKEND="module://matplotlib_inline.backend_inline")
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        sys.modules["__main__"] = script


class Kernel:
    """One kernel, with the methods that nbval calls on its `RunningKernel`.

    Args:
        package: The folder with the stubbed package.
        folder: A new folder for this kernel; its path is short, as those of sockets must be.
        limits: Of time, memory, and processes.
        seconds: It is killed then, whatever else happens.
        sandboxed: Whether it runs in a sandbox.

    Raises:
        SandboxError: There can be no sandbox.
        KernelEnded: It ended at once, or does not answer.
    """

    def __init__(self, package: Path, folder: Path, limits: Limits, seconds: float, sandboxed: bool = True) -> None:
        import zmq

        self.limits = limits
        self.killed_for = ""
        self.exit_status: int | None = None  # of the kernel; from 128 on, a signal
        self.sandbox: Sandbox | None = None
        self.group: ProcessGroup | None = None
        self._deadline = time.monotonic() + seconds
        self._messages: deque[dict[str, Any]] = deque()  # of the cell that runs, from iopub
        self._reply: dict[str, Any] | None = None  # to the last request
        self._interrupted_at: float | None = None
        self._replied_at: float | None = None
        self._requests = 0
        self._stopped = threading.Event()
        self._context = zmq.Context()
        try:
            sockets = folder / "s"
            sockets.mkdir(parents=True)
            self._shell = self._listen(zmq.DEALER, sockets / "shell", SHELL_BYTES, 16)
            self._iopub = self._listen(zmq.SUB, sockets / "iopub", IOPUB_BYTES, 200)
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

    def _listen(self, kind: int, path: Path, most_bytes: int, most_messages: int) -> Any:
        """Bind a socket that takes only so many messages of only such a size: "garbage on the sockets" sends more."""
        import zmq

        listening = self._context.socket(kind)
        listening.linger = 0
        listening.setsockopt(zmq.MAXMSGSIZE, most_bytes)
        listening.rcvhwm = most_messages
        listening.bind(f"ipc://{path}")
        path.chmod(0o777)  # for the kernel's user; nobody else gets here, because the grader's folder is private
        return listening

    def _start(self, package: Path, folder: Path, sockets: Path) -> None:
        inside = self.sandbox is not None
        home, seen = (Path("/tmp"), Path(INSIDE)) if inside else (folder, sockets)
        request = {
            "sandbox": self.sandbox.first_process if inside else None,
            "uid": 1_000_000_000 + os.getpid() if inside and os.geteuid() == 0 else None,
            "environment": _environment(home),
            "package": str(package),
            "folder": str(home / "work"),
            "shell": str(seen / "shell"),
            "iopub": str(seen / "iopub"),
            "limits": self.limits.of_a_process(),
        }
        # By its path, because the stubbed package is not there yet, and this one has the answers.
        self._process = _forking.Process(target=runpy.run_path, args=(kernel_process.__file__, {"REQUEST": request}))
        with _stripped_process():
            self._process.start()
        self.group = ProcessGroup(self._process.pid, self.sandbox)

    def _watch(self) -> None:
        """Kill the kernel when a limit is passed, whatever the grader is busy with. Runs in a thread of its own."""
        memory_before = _own_memory()
        while not self._stopped.wait(WATCH_SECONDS):
            if time.monotonic() > self._deadline:
                self.kill("time")
            elif _own_memory() > memory_before + MESSAGES_BYTES:  # "a message without an end"
                self.kill("memory")
            elif limit := self.group.passed_limit(self.limits):
                self.kill(limit)

    def _wait_until_it_answers(self) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            self._request("kernel_info_request", {})
            if self._wait(self._has_reply, min(end, time.monotonic() + 5.0)) and self._wait(
                lambda: any(map(_is_idle, self._messages)), min(end, time.monotonic() + 0.5)
            ):
                return
            self._raise_if_ended()
        raise KernelEnded("time", f"the kernel did not answer within {START_SECONDS:g} seconds")

    # What nbval calls ------------------------------------------------------------------------------------------------

    def execute_cell_input(self, cell_input: str, allow_stdin: bool | None = None) -> str:
        """Run a cell; returns the ID of the request."""
        content = {
            "code": _SURROGATES.sub("\ufffd", cell_input),  # with one of them the kernel would never answer
            "silent": False,
            "store_history": False,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        self._request("execute_request", content)
        return self._wanted

    def await_reply(self, msg_id: str, timeout: float) -> None:
        """Wait until the cell has run.

        Raises:
            Empty: It takes longer than `timeout` seconds.
            KernelEnded: The kernel is gone.
        """
        if not self._wait(self._has_reply, time.monotonic() + timeout):
            self._raise_if_ended()
            raise Empty

    def get_message(self, stream: str = "iopub", timeout: float = OUTPUT_SECONDS) -> dict[str, Any]:
        """Return the next thing that the cell showed. After its reply, one more `idle` comes in any case.

        Raises:
            Empty: The kernel was interrupted and did not obey; it has been killed.
            KernelEnded: The kernel is gone.
        """
        now = time.monotonic()
        if self._interrupted_at is not None:
            end = self._interrupted_at + INTERRUPT_SECONDS
        elif self._replied_at is not None:
            end = min(now + QUIET_SECONDS, self._replied_at + OUTPUT_SECONDS)
        else:
            end = now + timeout
        if self._replied_at is None or now < self._replied_at + OUTPUT_SECONDS:
            self._wait(lambda: bool(self._messages), end)
        if self._messages:
            return self._messages.popleft()
        self._raise_if_ended()
        if self._has_reply():  # the end of its output was lost
            return _message("status", {"execution_state": "idle"}, self._wanted)
        self.kill("time")
        raise Empty

    def await_idle(self, parent_id: str, timeout: float) -> None:
        """Throw away what the cell still shows."""
        while not _is_idle(self.get_message(timeout=timeout)):
            pass

    def interrupt(self) -> None:
        """Do what Ctrl-C does. `get_message` kills the kernel soon if it does not obey."""
        self._interrupted_at = time.monotonic()
        self.group.interrupt()

    def is_alive(self) -> bool:
        self._pump(0.0)
        return not self.has_ended

    def stop(self) -> None:
        """End it and everything it has started, and wait until they are gone."""
        self._stopped.set()
        if self.group is not None:
            self.kill("owner")
            self._process.join(END_SECONDS)
            self._process.kill()  # the supervisor; it has ended long ago, unless it hangs
        if self.sandbox is not None:
            self.sandbox.close()
        self._context.destroy(linger=0)

    # ------------------------------------------------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        return self.exit_status is not None or bool(self.killed_for)

    def kill(self, reason: str) -> None:
        """End it and everything it has started, because of `reason`."""
        if self.exit_status is None:
            self.killed_for = self.killed_for or reason
        self.group.kill()

    def ask(self, kind: str, content: dict[str, Any], timeout: float) -> dict[str, Any] | None:
        """Send a request of our own, and return the content of its reply; None if none came in time.

        The content is any JSON at all.

        Raises:
            KernelEnded: The kernel is gone.
        """
        self._request(kind, content)
        if not self._wait(self._has_reply, time.monotonic() + timeout):
            self._raise_if_ended()
            return None
        return self._reply

    def _has_reply(self) -> bool:
        return self._reply is not None

    def _raise_if_ended(self) -> None:
        if self.has_ended:
            status = self.exit_status or 0
            number = status - 128 if status > 128 else 0
            reason = self.killed_for or ("cpu" if number == signal.SIGXCPU else "exit")
            raise KernelEnded(reason, _in_words(reason, number, status))

    def _request(self, kind: str, content: dict[str, Any]) -> None:
        """Send a request; what was still expected of the one before is forgotten."""
        import zmq

        self._requests += 1
        self._wanted = f"{os.getpid()}-{self._requests}-{os.urandom(8).hex()}"
        self._messages.clear()
        self._reply = self._interrupted_at = self._replied_at = None
        self._kept_messages = self._kept_characters = 0
        header = {"msg_id": self._wanted, "msg_type": kind, "username": "", "session": "grader", "version": "5.3"}
        header["date"] = "2000-01-01T00:00:00+00:00"
        parts = [json.dumps(part).encode() for part in (header, {}, {}, content)]  # ASCII: lone surrogates pass
        end = time.monotonic() + START_SECONDS
        while True:
            self._raise_if_ended()
            try:
                self._shell.send_multipart([DELIMITER, b"", *parts], zmq.NOBLOCK)
                return
            except zmq.Again:
                self._pump(0.02)
                if time.monotonic() > end:
                    self.kill("time")

    def _wait(self, arrived: Callable[[], bool], end: float) -> bool:
        """Read until `arrived()`, the kernel's end, or the time `end`; return whether it has arrived."""
        while not arrived():
            left = end - time.monotonic()
            if left <= 0 or self.has_ended:
                return False
            self._pump(min(left, WATCH_SECONDS))
        return True

    def _pump(self, seconds: float) -> None:
        """Read what is there, at most some of it, waiting for at most `seconds`."""
        if self.has_ended:
            return
        ready = dict(self._poller.poll(seconds * 1000))
        for stream in (self._shell, self._iopub):
            if stream in ready:
                self._drain(stream)
        if self._process.sentinel in ready:
            for stream in (self._shell, self._iopub):  # what it sent before it ended
                self._drain(stream)
            self.exit_status = self._process.exitcode or 0
            self.group.kill()

    def _drain(self, stream: Any) -> None:
        import zmq

        end = time.monotonic() + READ_SECONDS  # the caller has to look at the clock now and then
        for _ in range(100):
            if time.monotonic() > end:
                return
            try:
                frames = stream.recv_multipart(zmq.NOBLOCK)
            except zmq.ZMQError:
                return
            message = _parsed(frames, self._wanted)
            if message is None:
                continue
            if stream is self._shell:
                if message["msg_type"].endswith("_reply"):
                    self._reply = message["content"]
                    self._replied_at = time.monotonic()
            elif (checked := _checked(message)) is not None:
                if not _is_idle(checked):
                    self._kept_messages += 1
                    self._kept_characters += _characters(checked["content"])
                    if self._kept_messages > CELL_MESSAGES or self._kept_characters > CELL_CHARACTERS:
                        continue
                self._messages.append(checked)


def _own_memory() -> int:
    """Return how many bytes this process holds, where the system tells."""
    with contextlib.suppress(OSError, ValueError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


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
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "TRANSFORMER_LAB_MINE": "off",
        "TRANSFORMER_LAB_PRESET": "tiny",  # notebook 13 would train for twenty minutes
        "PYTHONDONTWRITEBYTECODE": "1",
        "TORCHDYNAMO_DISABLE": "1",  # `@torch.compile` changes nothing: there is no time to compile
    }


def _in_words(reason: str, number: int, status: int) -> str:
    if reason == "exit" and number:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        return f"the kernel was ended by {name}"
    return {
        "exit": f"the kernel ended by itself, with status {status}",
        "time": "the time was up, and the kernel did not stop when it was told to",
        "memory": "the kernel and its processes took more memory than is allowed",
        "processes": "the kernel started more processes than are allowed",
        "cpu": "the kernel used more processor time than is allowed",
        "owner": "the kernel was stopped",
    }.get(reason, "the kernel ended")


# Messages of strangers ------------------------------------------------------------------------------------------------

_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])")
_SURROGATES = re.compile("[\ud800-\udfff]")


def clean_text(text: Any, most: int = TEXT_CHARACTERS) -> str:
    """Text without terminal escapes, control characters and lone surrogates, cut off after `most` characters."""
    if not isinstance(text, str):
        return ""
    cut = text[:most]
    cut = clean(_ESCAPES.sub("", cut.replace("\r\n", "\n"))).replace("\r", "\ufffd")
    return cut if len(text) <= most else f"{cut} …"


def _parsed(frames: list[bytes], wanted: str) -> dict[str, Any] | None:
    """Type and content of a message that answers the request `wanted`, or None."""
    try:
        start = frames.index(DELIMITER)
        header, parent, _, content = frames[start + 2 : start + 6]
        if len(header) > 10_000 or len(parent) > 10_000:
            return None
        parent = json.loads(parent)
        if not isinstance(parent, dict) or parent.get("msg_id") != wanted:
            return None
        header, content = json.loads(header), json.loads(content)
        if not isinstance(header, dict) or not isinstance(content, dict) or not isinstance(header.get("msg_type"), str):
            return None
        return _message(header["msg_type"], content, wanted)
    except (ValueError, RecursionError, MemoryError):
        return None


def _message(kind: str, content: dict[str, Any], parent: str) -> dict[str, Any]:
    return {"msg_type": kind, "parent_header": {"msg_id": parent}, "content": content}


def _is_idle(message: dict[str, Any]) -> bool:
    return message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"


def _characters(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_characters, value.values()))
    if isinstance(value, list):
        return sum(map(_characters, value))
    return len(value) if isinstance(value, str) else 8


def _checked(message: dict[str, Any]) -> dict[str, Any] | None:
    """The message with nothing in it but what its kind has, each of the right type; None where it is of no use."""
    kind, content = message["msg_type"], message["content"]
    checked: dict[str, Any]
    match kind:
        case "status":
            if content.get("execution_state") != "idle":
                return None
            checked = {"execution_state": "idle"}
        case "stream":
            name = content.get("name")
            checked = {
                "name": name if name in ("stdout", "stderr") else "stdout",
                "text": clean_text(content.get("text")),
            }
        case "display_data" | "execute_result":
            data = content.get("data")
            data = data if isinstance(data, dict) else {}
            texts = {
                clean_text(key, 100): clean_text(value)
                for key, value in list(data.items())[:10]
                if isinstance(value, str)
            }
            checked = {"data": texts, "metadata": {}}
            if kind == "execute_result":
                checked["execution_count"] = 1
        case "error":
            lines = content.get("traceback")
            lines = lines[-50:] if isinstance(lines, list) else []
            checked = {
                "ename": clean_text(content.get("ename"), 200),
                "evalue": clean_text(content.get("evalue"), 2000),
                "traceback": [clean_text(line, 2000) for line in lines],
            }
        case _:
            return None
    return _message(kind, checked, message["parent_header"]["msg_id"])
