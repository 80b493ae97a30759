"""The sandbox of one kernel: namespaces that bubblewrap makes and holds, which the kernel's process enters.

Network, processes, IPC, and mounts are its own. The system and the Python environment can be read; /tmp and /dev/shm
are small and in memory; everything else on the machine (/home, /run, the checkout with the answers) isn't there.
Nothing outside can be written: the folder with the kernel's sockets is read-only too, because connecting is not
writing. Without it, "reads the disk" and "a detached process that rewrites results" would find what they look for.
"""

import contextlib
import functools
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

from transformer_lab.classroom.kernel_process import seccomp_filter
from transformer_lab.classroom.temporary_folders import temporary_folder

START_SECONDS = 20.0  # a busy machine needs some
END_SECONDS = 10.0
TMP_BYTES, SHM_BYTES = 256 * 2**20, 64 * 2**20
INSIDE = "/run/kernel"  # where the sandbox has the folder with the kernel's sockets
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
    """Namespaces with nothing in them but a `cat` that waits. Everything that enters them ends with it.

    `cat` is the first process in them, which no signal from inside can end. It has the seccomp filter too: an ordinary
    user's processes can write into each other's memory.

    Args:
        package: The folder with the stubbed package; readable inside under the same path.
        sockets: The folder that is to be `INSIDE`, where the kernel finds the grader's sockets.

    Raises:
        SandboxError: bubblewrap is missing, or may not make namespaces here.
    """

    def __init__(self, package: Path, sockets: Path) -> None:
        self._first: int | None = None  # a file of the first process: its number may be given to another one
        with tempfile.TemporaryFile() as program:
            program.write(seccomp_filter())
            program.seek(0)
            try:
                self.process = subprocess.Popen(
                    [*command(package, sockets), "--seccomp", str(program.fileno()), "--", "cat"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=[program.fileno()],
                    env={"PATH": "/usr/bin:/bin"},
                    start_new_session=True,  # a Ctrl-C at the terminal must not end it before the grader knows
                )
            except OSError as error:
                raise SandboxError(f"bubblewrap cannot be started: {error.strerror}") from None
        try:
            os.write(self.process.stdin.fileno(), b"?")  # that `cat` gives it back says that everything is in place
            if not _readable(self.process.stdout, START_SECONDS) or os.read(self.process.stdout.fileno(), 1) != b"?":
                raise SandboxError("it did not start")
            (first,) = psutil.Process(self.process.pid).children()
            self.first_process = first.pid
            self._first = os.pidfd_open(first.pid)
            if "\nSeccomp:\t2\n" not in Path(f"/proc/{first.pid}/status").read_text():
                raise SandboxError("its first process takes no seccomp filter")
        except (SandboxError, OSError, ValueError, psutil.Error) as error:
            reason = self._last_words() or (str(error) if isinstance(error, SandboxError) else "it says no more")
            self.close()
            raise SandboxError(f"bubblewrap cannot make a sandbox here: {reason}") from None

    def kill(self) -> None:
        """End every process in it, without waiting for them."""
        with contextlib.suppress(OSError):
            if self._first is not None:
                signal.pidfd_send_signal(self._first, signal.SIGKILL)

    def close(self) -> None:
        """End every process in it, and wait until they are gone: the first one ends as the last one."""
        self.kill()
        try:
            self.process.wait(END_SECONDS if self._first is not None else 0.1)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                pipe.close()
        if self._first is not None:
            os.close(self._first)
            self._first = None

    def _last_words(self) -> str:
        if not _readable(self.process.stderr, 1.0):
            return ""
        lines = os.read(self.process.stderr.fileno(), 400).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


def _readable(file: object, seconds: float) -> bool:
    return bool(select.select([file], [], [], seconds)[0])


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
    # Root needs no user namespace. There the kernel becomes a user of its own, so that its processes are counted alone.
    arguments += ["--cap-drop", "ALL"] if os.geteuid() == 0 else ["--unshare-user"]
    arguments += ["--as-pid-1", "--die-with-parent", "--clearenv", "--hostname", "classroom"]
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


@functools.cache
def why_no_sandbox() -> str:
    """Why kernels cannot run in a sandbox here; empty where they can."""
    if sys.platform != "linux":
        return "there are sandboxes on Linux only"
    if not shutil.which("bwrap"):
        return "bubblewrap is not installed (Debian and Ubuntu: sudo apt install bubblewrap)"
    with temporary_folder() as folder:
        try:
            Sandbox(folder, folder).close()
        except SandboxError as error:
            return str(error)
    return ""
