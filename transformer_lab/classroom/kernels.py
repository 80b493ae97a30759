"""The kernels of submissions, seen from outside: every message of theirs is checked, and no wait is without a limit."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from queue import Empty
from typing import Any

from transformer_lab.classroom import zygote
from transformer_lab.classroom.limits import Limits
from transformer_lab.classroom.sandbox import Sandbox, own_count_of_processes
from transformer_lab.files import clean

IMPORT_SECONDS = 180.0  # for a zygote, on a busy machine
START_SECONDS = 60.0  # for a kernel
INTERRUPT_SECONDS = 2.0  # for a kernel that was told to stop; then it is killed
QUIET_SECONDS = 2.0  # after a cell's reply: outputs still to come, if any were lost
OUTPUT_SECONDS = 5.0  # after a cell's reply, however much still comes
SHELL_BYTES, IOPUB_BYTES = 12 * 2**20, 4 * 2**20  # of one message
CELL_MESSAGES, CELL_CHARACTERS = 500, 50_000  # kept of what a cell shows
TEXT_CHARACTERS = 10_000  # of one text
READ_SECONDS = 0.3  # at a stretch
LOOK_SECONDS = 0.1
MESSAGES_BYTES = 512 * 2**20  # that messages may take here: one that never ends is kept whole until it does
DELIMITER = b"<IDS|MSG>"


class KernelEnded(Exception):  # noqa: N818 (it is no error of ours)
    """The kernel is gone: `reason` is `exit`, `time`, `memory`, `processes`, `cpu` or `owner`."""

    def __init__(self, reason: str, says: str) -> None:
        super().__init__(says)
        self.reason = reason


class ZygoteError(Exception):
    """The process from which kernels are forked did not start; the message holds its last words."""


class Zygotes:
    """Starts the zygote of a run, and one for each notebook.

    Args:
        folder: Private to this user; sockets and logs lie there. Its path is short, as those of sockets must be.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        cache = folder / "matplotlib"
        cache.mkdir(exist_ok=True)
        (folder / "zygote").unlink(missing_ok=True)
        for fonts in _font_lists():
            shutil.copy(fonts, cache)
        environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "LANG": "C.UTF-8",
            "HOME": str(folder),
            "MPLCONFIGDIR": str(cache),
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",
            "TRANSFORMER_LAB_MINE": "off",
            "TRANSFORMER_LAB_PRESET": "tiny",  # notebook 13 would train for twenty minutes
            "OBJC_DISABLE_INITIALIZE_FORK_SAFETY": "YES",  # macOS
        } | _one_thread()
        with open(folder / "zygote.log", "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-B", zygote.__file__, str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=folder,
            )

    def notebook(self, name: str, package: Path) -> Path:
        """The socket that gives kernels with the stubbed package in the folder `package`.

        Raises:
            ZygoteError: it did not start.
        """
        end = time.monotonic() + IMPORT_SECONDS
        listening = self.folder / "zygote"
        while not listening.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                raise ZygoteError(f"no kernel can be started: {self._last_words()}")
            time.sleep(0.02)
        path = self.folder / name
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(IMPORT_SECONDS)
            connection.connect(str(listening))
            connection.sendall(json.dumps({"package": str(package), "listen": str(path)}).encode() + b"\n")
            try:
                ready = connection.recv(100)
            except TimeoutError:
                ready = b""
        if not ready:
            raise ZygoteError(f"no kernel of {name} can be started: {self._last_words()}")
        return path

    def _last_words(self) -> str:
        lines = (self.folder / "zygote.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it says nothing"

    def close(self) -> None:
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)


def _font_lists() -> list[Path]:
    """matplotlib's lists of fonts, where it has made them before: that takes seconds."""
    root = os.environ.get("MPLCONFIGDIR")
    folder = Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "matplotlib"
    return sorted(folder.glob("fontlist-*.json")) if folder.is_dir() else []


def _one_thread() -> dict[str, str]:
    return dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")


class Kernel:
    """One kernel, with the methods that nbval asks of its `RunningKernel`.

    Args:
        source: The socket of the notebook's zygote.
        package: The folder with the stubbed package.
        folder: A new folder for this kernel; its path is short.
        limits: Of time, memory and processes.
        seconds: It is killed then, whatever else happens.
        sandboxed: Whether it runs in a sandbox. If not, limits are those that the system holds for each process.

    Raises:
        SandboxError: there can be no sandbox.
        KernelEnded: it ended at once, or does not answer.
    """

    def __init__(
        self, source: Path, package: Path, folder: Path, limits: Limits, seconds: float, sandboxed: bool = True
    ) -> None:
        import zmq

        self.ended: dict[str, Any] | None = None
        self.killed_for = ""
        self._messages: deque[dict[str, Any]] = deque()  # of the cell that runs, from iopub
        self._replies: dict[str, dict[str, Any]] = {}
        self._wanted = self._cell = ""
        self._reset_budget()
        self._interrupted_at: float | None = None
        self._heard = b""
        self._count = 0
        self._memory_before, self._looked_at = _own_memory(), 0.0
        self.sandbox: Sandbox | None = None
        self.connection: socket.socket | None = None
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
            self.connection = self._ask_for_kernel(source, folder, sockets, limits, seconds)
            self._poller = zmq.Poller()
            for readable in (self._shell, self._iopub, self.connection.fileno()):
                self._poller.register(readable, zmq.POLLIN)
            self._wait_until_it_answers()
        except BaseException:
            self.stop()
            raise

    def _listen(self, kind: int, path: Path, most_bytes: int, most_messages: int) -> Any:
        import zmq

        listening = self._context.socket(kind)
        listening.linger = 0
        listening.setsockopt(zmq.MAXMSGSIZE, most_bytes)
        listening.rcvhwm = most_messages
        listening.bind(f"ipc://{path}")
        path.chmod(0o777)  # the kernel's user is another; nobody else can come here, for the grader's folder is private
        return listening

    def _ask_for_kernel(
        self, source: Path, folder: Path, sockets: Path, limits: Limits, seconds: float
    ) -> socket.socket:
        inside = self.sandbox is not None
        home = Path("/tmp") if inside else folder
        seen = Path(zygote.INSIDE) if inside else sockets
        request = {
            "sandboxed": inside,
            "uid": 1_000_000_000 + os.getpid() if inside and os.geteuid() == 0 else None,
            "own_count": inside and own_count_of_processes(),
            "environment": _environment(home),
            "folder": str(home / "work"),
            "shell": str(seen / "shell"),
            "iopub": str(seen / "iopub"),
            "seconds": seconds,
            "memory": limits.memory,
            "processes": limits.processes,
            "file_bytes": limits.file_bytes,
            "cpu_seconds": limits.cpu_seconds,
            "files": limits.files,
        }
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(START_SECONDS)
        try:
            connection.connect(str(source))
            data = json.dumps(request).encode() + b"\n"
            if inside:
                socket.send_fds(connection, [data], self.sandbox.files())
            else:
                connection.sendall(data)
        except OSError as error:
            connection.close()
            raise KernelEnded("owner", f"the zygote does not answer: {error}") from None
        connection.setblocking(False)
        return connection

    def _wait_until_it_answers(self) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            self._request("kernel_info_request", {})
            if self._wait(lambda: self._wanted in self._replies, min(end, time.monotonic() + 5.0)) and self._wait(
                lambda: any(map(_is_idle, self._messages)), min(end, time.monotonic() + 0.5)
            ):
                return
            if self.ended:
                self._raise_ended()
        raise KernelEnded("time", f"the kernel did not answer within {START_SECONDS:g} seconds")

    # What nbval calls ------------------------------------------------------------------------------------------------

    def execute_cell_input(self, cell_input: str, allow_stdin: bool | None = None) -> str:
        """Run a cell; returns the id of the request."""
        content = {
            "code": _SURROGATES.sub("\ufffd", cell_input),  # with one of them the kernel would never answer
            "silent": False,
            "store_history": False,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        return self._request("execute_request", content)

    def await_reply(self, msg_id: str, timeout: float) -> None:
        """Wait until the cell has run.

        Raises:
            Empty: it takes longer than `timeout` seconds.
            KernelEnded: the kernel is gone.
        """
        if not self._wait(lambda: msg_id in self._replies, time.monotonic() + timeout):
            if self.ended:
                self._raise_ended()
            raise Empty

    def get_message(self, stream: str = "iopub", timeout: float = OUTPUT_SECONDS) -> dict[str, Any]:
        """The next thing that the cell showed. After its reply, one more `idle` comes in any case.

        Raises:
            Empty: the kernel was interrupted and did not obey; it has been killed.
            KernelEnded: the kernel is gone.
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
        if self.ended:
            self._raise_ended()
        if self._wanted in self._replies:  # its last words were lost, or are none
            return _message("status", {"execution_state": "idle"}, self._wanted)
        self.kill("time")
        raise Empty

    def await_idle(self, parent_id: str, timeout: float) -> None:
        """Throw away what the cell still shows."""
        while not _is_idle(self.get_message(timeout=timeout)):
            pass

    def interrupt(self) -> None:
        """What Ctrl-C does. `get_message` kills the kernel soon, if it does not obey."""
        self._interrupted_at = time.monotonic()
        with contextlib.suppress(OSError):
            self.connection.send(b"i")

    def is_alive(self) -> bool:
        self._pump(0.0)
        return self.ended is None

    def stop(self) -> None:
        """End it and everything it has started."""
        if self.ended is None:
            self.kill("owner")
        with contextlib.suppress(OSError):
            if self.connection is not None:
                self.connection.close()
        self._context.destroy(linger=0)

    # ------------------------------------------------------------------------------------------------------------------

    def kill(self, reason: str) -> None:
        """End it and everything it has started, because of `reason`."""
        self.killed_for = self.killed_for or reason
        if self.sandbox is not None:
            self.sandbox.kill()
        if self.connection is not None and self.ended is None:
            # The keeper kills what is outside of sandboxes when its owner stops to listen, and then ends itself.
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_WR)
                self.connection.settimeout(10)
                while self.connection.recv(4096):
                    pass
        self.ended = self.ended or {"ended": reason, "signal": 0, "exit": 0}

    def ask(self, kind: str, content: dict[str, Any], timeout: float) -> dict[str, Any] | None:
        """Send a request of our own and return the content of its reply, or None when none came in time.

        The content is any JSON at all.

        Raises:
            KernelEnded: the kernel is gone.
        """
        msg_id = self._request(kind, content)
        if not self._wait(lambda: msg_id in self._replies, time.monotonic() + timeout):
            if self.ended:
                self._raise_ended()
            return None
        return self._replies[msg_id]

    def _raise_ended(self) -> None:
        ended = self.ended or {}
        reason, number = ended.get("ended", "exit"), ended.get("signal", 0)
        if self.killed_for:
            reason = self.killed_for
        if reason == "exit" and number == signal.SIGXCPU:
            reason = "cpu"
        raise KernelEnded(reason, _in_words(reason, number, ended.get("exit", 0)))

    def _request(self, kind: str, content: dict[str, Any]) -> str:
        import zmq

        self._count += 1
        msg_id = f"{os.getpid()}-{self._count}-{os.urandom(8).hex()}"
        self._messages.clear()
        self._replies.clear()
        self._wanted = msg_id
        self._reset_budget()
        self._interrupted_at = None
        header = {
            "msg_id": msg_id,
            "msg_type": kind,
            "username": "",
            "session": "grader",
            "date": "2000-01-01T00:00:00+00:00",
            "version": "5.3",
        }
        parts = [json.dumps(part).encode() for part in (header, {}, {}, content)]  # ASCII: lone surrogates pass
        end = time.monotonic() + START_SECONDS
        while True:
            if self.ended:
                self._raise_ended()
            try:
                self._shell.send_multipart([DELIMITER, b"", *parts], zmq.NOBLOCK)
                return msg_id
            except zmq.Again:
                self._pump(0.02)
                if time.monotonic() > end:
                    self.kill("time")

    def _reset_budget(self) -> None:
        self._kept_messages, self._kept_characters = 0, 0
        self._replied_at: float | None = None

    def _wait(self, arrived: Any, end: float) -> bool:
        """Read until `arrived()`, the kernel's end or the time `end`; whether it has arrived."""
        while not arrived():
            left = end - time.monotonic()
            if left <= 0 or self.ended:
                return False
            self._pump(min(left, LOOK_SECONDS))
        return True

    def _pump(self, seconds: float) -> None:
        """Read what is there, at most some of it, waiting for at most `seconds`."""
        if self.ended is not None:
            return
        if (now := time.monotonic()) > self._looked_at + LOOK_SECONDS:
            self._looked_at = now
            if _own_memory() > self._memory_before + MESSAGES_BYTES:
                self.kill("memory")
                return
        ready = dict(self._poller.poll(seconds * 1000))
        for stream in (self._shell, self._iopub):
            if stream in ready:
                self._drain(stream)
        if self.connection.fileno() in ready:
            self._listen_to_keeper()

    def _drain(self, stream: Any) -> None:
        import zmq

        end = time.monotonic() + READ_SECONDS  # whoever reads on must look at the clock now and then
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
                    self._replies[self._wanted] = message["content"]
                    self._replied_at = time.monotonic()
                continue
            checked = _checked(message)
            if checked is None:
                continue
            if not _is_idle(checked):
                size = _characters(checked["content"])
                self._kept_messages += 1
                self._kept_characters += size
                if self._kept_messages > CELL_MESSAGES or self._kept_characters > CELL_CHARACTERS:
                    continue
            self._messages.append(checked)

    def _listen_to_keeper(self) -> None:
        try:
            data = self.connection.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._heard += data
        for line in self._heard.splitlines():
            with contextlib.suppress(ValueError):
                said = json.loads(line)
                if "ended" in said:
                    self.ended = said
        if not data and self.ended is None:
            self.ended = {"ended": "exit", "signal": 0, "exit": 0}
        if self.ended is not None:  # what it said before it ended
            for stream in (self._shell, self._iopub):
                self._drain(stream)
            if self.sandbox is not None:
                self.sandbox.kill()


def _own_memory() -> int:
    """Bytes that this process holds, where the system tells."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _environment(home: Path) -> dict[str, str]:
    return {
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
    } | _one_thread()


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
