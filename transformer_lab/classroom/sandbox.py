"""The sandbox of one kernel: namespaces that bubblewrap makes and holds, into which the kernel's process is put.

Network, processes, IPC and mounts are its own. The system and the Python environment are there to be read; /tmp and
/dev/shm are small and in memory; everything else of the machine (/home, /run, the checkout with the answers) is not
there. Nothing outside can be written: the folder with the kernel's sockets is read-only too, for connecting is no
writing. Every process in it, bubblewrap's own included, has the filter that refuses calls: an ordinary user's processes
can write into each other's memory.
"""

import contextlib
import functools
import json
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from transformer_lab.classroom.temporary_folders import temporary_folder
from transformer_lab.classroom.zygote import INSIDE, NAMESPACES, filter_of_calls

START_SECONDS = 20.0  # a busy machine needs some
END_SECONDS = 10.0
TMP_BYTES, SHM_BYTES = 256 * 2**20, 64 * 2**20
ETC = (
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "alternatives",
    "fonts",
    "ssl/openssl.cnf",
    "nsswitch.conf",
)


class SandboxError(Exception):
    """A sandbox cannot be made on this machine; the message says why."""


class Sandbox:
    """Namespaces with nothing in them but a sleeping process. Whatever enters them ends with them.

    Args:
        package: The folder with the stubbed package; readable inside under the same path.
        sockets: The folder that is to be `INSIDE`, where the kernel finds the sockets of the grader.

    Raises:
        SandboxError: bubblewrap is missing, or may not make namespaces here.
    """

    def __init__(self, package: Path, sockets: Path) -> None:
        information, write_information = os.pipe()
        calls = _filter()
        given = ["--info-fd", str(write_information), "--seccomp", str(calls)]
        try:
            self.process = subprocess.Popen(
                [*command(package, sockets), *given, "--", "cat"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[write_information, calls],
                env={"PATH": "/usr/bin:/bin"},
                start_new_session=True,  # a Ctrl-C at the terminal must not end it before the grader knows
            )
        except OSError as error:
            os.close(information)
            raise SandboxError(f"bubblewrap cannot be started: {error.strerror}") from None
        finally:
            os.close(write_information)
            os.close(calls)
        self.init: int | None = None
        try:
            number = json.loads(_read_all(information))["child-pid"]
            self.init = os.pidfd_open(number)
            # What `cat` gives back says that the mounts stand. It lives as long as we hold the other end of its pipe.
            os.write(self.process.stdin.fileno(), b"?")
            if (
                not _readable(self.process.stdout.fileno(), START_SECONDS)
                or os.read(self.process.stdout.fileno(), 1) != b"?"
            ):
                raise SandboxError("it did not start")
            _wait_for_filter(number)
            self.namespaces = _open_namespaces(number)
        except (SandboxError, OSError, ValueError, KeyError) as error:
            says = self._last_words() or (str(error) if isinstance(error, SandboxError) else "it says no more")
            self.kill()
            raise SandboxError(f"bubblewrap cannot make a sandbox here: {says}") from None
        finally:
            os.close(information)

    def files(self) -> list[int]:
        """The open files that a keeper needs to enter and to end it."""
        return [self.init, *self.namespaces]

    def kill(self) -> bool:
        """End every process in it; whether all of them are gone. It waits for the system, not for them."""
        ended = True
        if self.init is not None:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self.init, signal.SIGKILL)
            ended = _readable(self.init, END_SECONDS)  # the first process ends as the last one
            os.close(self.init)
            self.init = None
        for file in getattr(self, "namespaces", []):
            os.close(file)
        self.namespaces = []
        for seconds in (1.0, END_SECONDS):
            try:
                self.process.wait(seconds)  # it ends by itself, and takes the dead first process with it
                break
            except subprocess.TimeoutExpired:
                ended = ended and seconds < END_SECONDS
                self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                pipe.close()
        return ended

    def _last_words(self) -> str:
        if not _readable(self.process.stderr.fileno(), 1.0):
            return ""
        lines = os.read(self.process.stderr.fileno(), 400).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


def _readable(file: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _read_all(file: int) -> bytes:
    data, end = b"", time.monotonic() + START_SECONDS
    while not data.rstrip().endswith(b"}"):
        if not _readable(file, max(0.0, end - time.monotonic())) or not (part := os.read(file, 4096)):
            break
        data += part
    return data


def _filter() -> int:
    """A file from which bubblewrap reads the filter of calls."""
    reading, writing = os.pipe()
    os.write(writing, filter_of_calls())  # a pipe holds much more
    os.close(writing)
    return reading


def _wait_for_filter(number: int) -> None:
    """Wait until bubblewrap's first process has the filter. It puts it on when `cat` may have started already."""
    end = time.monotonic() + START_SECONDS
    while "\nSeccomp:\t2\n" not in Path(f"/proc/{number}/status").read_text():
        if time.monotonic() > end:
            raise SandboxError("its first process takes no filter of calls")
        time.sleep(0.001)


def _open_namespaces(number: int) -> list[int]:
    """Files of the namespaces of a process, in the order in which a keeper enters them."""
    names = [*NAMESPACES] if os.geteuid() == 0 else [*NAMESPACES, "user"]
    return [os.open(f"/proc/{number}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in names]


def command(package: Path, sockets: Path) -> list[str]:
    """bubblewrap's arguments."""
    arguments = [
        shutil.which("bwrap") or "bwrap",
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]
    # Root needs no user namespace, and the kernel becomes a user of its own: only so its processes are counted alone.
    # Where it is the same user as `cat`, it could end it, and with it the sandbox: no signal ends a first process.
    arguments += ["--cap-drop", "ALL"] if os.geteuid() == 0 else ["--unshare-user", "--as-pid-1"]
    arguments += ["--die-with-parent", "--clearenv", "--hostname", "classroom"]
    arguments += [*_in_memory("/tmp", TMP_BYTES), *_system()]  # in this order: an environment may lie below /tmp
    arguments += ["--proc", "/proc", "--dev", "/dev", *_in_memory("/dev/shm", SHM_BYTES), "--remount-ro", "/dev"]
    arguments += _bound(package)
    arguments += ["--perms", "0755", "--dir", str(Path(INSIDE).parent), "--ro-bind", str(sockets), INSIDE]
    return [*arguments, "--chdir", "/", "--remount-ro", "/"]


def _in_memory(folder: str, most_bytes: int) -> list[str]:
    size = ["--size", str(most_bytes)] if "--size" in _help() else []  # older ones: the keeper counts it all the same
    return ["--perms", "1777", *size, "--tmpfs", folder]


@functools.cache
def _help() -> str:
    return subprocess.run(
        ["bwrap", "--help"], capture_output=True, text=True, timeout=START_SECONDS, check=False
    ).stdout


@functools.cache
def _system() -> list[str]:
    """The mounts of the system and of the Python environment, without the package that holds the answers."""
    arguments: list[str] = []
    for name in ("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin"):
        if os.path.islink(name):
            arguments += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            arguments += ["--ro-bind", name, name]
    arguments += ["--ro-bind", "/usr", "/usr"]
    for folder in ("/etc", "/etc/ssl"):  # bubblewrap would make them for its own user alone
        arguments += ["--perms", "0755", "--dir", folder]
    for name in ETC:
        arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    if os.path.isdir("/nix/store"):
        arguments += ["--ro-bind", "/nix/store", "/nix/store"]
    bound = [Path("/usr")]
    prefixes = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    for prefix in sorted(prefixes, key=lambda path: len(path.parts)):
        if not any(prefix.is_relative_to(folder) for folder in bound):
            arguments += _bound(prefix)
            bound.append(prefix)
    for hidden in _with_answers(bound):
        arguments += ["--perms", "0755", "--tmpfs", str(hidden)]
        for prefix in sorted(prefixes):
            if prefix.is_relative_to(hidden):  # `.venv` in the checkout
                arguments += _bound(prefix)
        arguments += ["--remount-ro", str(hidden)]
    return arguments


def _bound(folder: Path) -> list[str]:
    """A folder to be read under its own path. By itself, bubblewrap makes those above it for its own user alone."""
    above = [str(parent) for parent in reversed(folder.parents) if parent != Path("/")]
    return [
        *(word for name in above for word in ("--perms", "0755", "--dir", name)),
        "--ro-bind",
        str(folder),
        str(folder),
    ]


def _with_answers(bound: list[Path]) -> list[Path]:
    """Folders inside of `bound` in which the package lies, installed or as a checkout."""
    package = Path(__file__).resolve().parents[1]
    checkout = package.parent
    own = checkout if (checkout / "pyproject.toml").exists() else package
    found = {own, *(Path(folder) / "transformer_lab" for folder in sys.path if "-packages" in folder)}
    for folder in bound:
        found.update(folder.glob("lib*/python*/*-packages/transformer_lab"))
    return sorted(
        folder for folder in found if folder.is_dir() and any(folder.resolve().is_relative_to(place) for place in bound)
    )


def own_count_of_processes() -> bool:
    """Whether the system counts the processes of a user in each user namespace for itself (Linux 5.14)."""
    numbers = [int(part) for part in platform.release().split("-")[0].split(".")[:2] if part.isdigit()]
    return sys.platform == "linux" and os.geteuid() != 0 and numbers >= [5, 14]


@functools.cache
def why_no_sandbox() -> str:
    """Why kernels cannot run in a sandbox here; empty where they can."""
    if sys.platform != "linux":
        return "there are sandboxes on Linux only"
    if not shutil.which("bwrap"):
        return "bubblewrap is not installed (Debian and Ubuntu: sudo apt install bubblewrap)"
    with temporary_folder() as folder:
        try:
            Sandbox(folder, folder).kill()
        except SandboxError as error:
            return str(error)
    return ""
