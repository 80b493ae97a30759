"""A kernel's sandbox: namespaces that bubblewrap creates and keeps open, and that the kernel's process enters.

It has its own network, processes, IPC, and mounts. It can read the system and the Python environment, and it has a
small /tmp and /dev/shm in memory. Nothing else on the machine exists there, including /home, /run, and the checkout
with the answers. It cannot write anything outside. Even the folder that contains the kernel's sockets is read-only, but
the kernel can still connect to the sockets. Without the sandbox, the attacks called "reads the disk" and "a detached
process that rewrites results" would succeed.
"""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from multiprocessing.connection import wait
from pathlib import Path

import psutil

from transformer_lab.classroom.kernel_process import ARCHITECTURES, seccomp_filter
from transformer_lab.classroom.temporary_folders import temporary_folder

START_SECONDS = 20.0  # enough on a busy machine
END_SECONDS = 10.0
TMP_BYTES, SHM_BYTES = 256 * 2**20, 64 * 2**20
INSIDE = "/run/kernel"  # the folder of the kernel's sockets, as the sandbox sees it
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
    """Raised if this machine cannot create a sandbox. The message says why."""


class Sandbox:
    """Namespaces kept alive by a waiting `cat`. When `cat` ends, so does every process that has entered them.

    `cat` is the first process in these namespaces, so no signal from inside can end it. The seccomp filter also applies
    to `cat`, because an ordinary user's processes can write to each other's memory
    (`test_every_process_in_it_has_the_filter`).

    Args:
        package: Folder that contains the stubbed package. The sandbox can read it at the same path.
        sockets: Folder that contains the grader's sockets. Inside the sandbox, its path is `INSIDE`.

    Raises:
        SandboxError: bubblewrap is missing or is not allowed to create namespaces here, or there is no seccomp filter
            for this machine.
    """

    def __init__(self, package: Path, sockets: Path) -> None:
        self._first: int | None = None  # a pidfd, because another process could get the same ID later
        if (machine := os.uname().machine) not in ARCHITECTURES:
            reason = f"this machine is `{machine}`, and the seccomp filter exists only for x86-64 and arm64"
            raise SandboxError(f"{reason}: grade on one of those")
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
                    start_new_session=True,  # Ctrl-C in the terminal must not end it before the grader can react
                )
            except OSError as error:
                raise SandboxError(f"bubblewrap cannot be started: {error.strerror}") from None
        try:
            self._wait_until_ready()
        except (SandboxError, OSError, ValueError, psutil.Error) as error:
            reason = self._last_error_line() or (str(error) if isinstance(error, SandboxError) else "it gave no reason")
            self.close()
            raise SandboxError(f"bubblewrap cannot create a sandbox here: {reason}") from None

    def _wait_until_ready(self) -> None:
        """Wait until `cat` echoes a byte, which shows that the namespaces are ready."""
        os.write(self.process.stdin.fileno(), b"?")
        if not wait([self.process.stdout], START_SECONDS) or os.read(self.process.stdout.fileno(), 1) != b"?":
            raise SandboxError("it did not start")
        (first,) = psutil.Process(self.process.pid).children()
        self.first_process = first.pid
        self._first = os.pidfd_open(first.pid)
        if "\nSeccomp:\t2\n" not in Path(f"/proc/{first.pid}/status").read_text():
            raise SandboxError("its first process runs without the seccomp filter")

    def kill(self) -> None:
        """Kill every process in the sandbox without waiting for the processes to end."""
        with contextlib.suppress(OSError):
            if self._first is not None:
                signal.pidfd_send_signal(self._first, signal.SIGKILL)

    def close(self) -> None:
        """Kill every process in the sandbox, and wait until all are gone. The first process is the last to end."""
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

    def _last_error_line(self) -> str:
        if not wait([self.process.stderr], 1.0):
            return ""
        lines = os.read(self.process.stderr.fileno(), 400).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


def command(package: Path, sockets: Path) -> list[str]:
    """Return the `bwrap` command. The caller must append the program to run."""
    # Root doesn't need a user namespace. The kernel gets its own user, so that its processes are counted separately.
    privileges = ["--cap-drop", "ALL"] if os.geteuid() == 0 else ["--unshare-user"]
    return [
        shutil.which("bwrap") or "bwrap",
        *("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try", *privileges),
        *("--as-pid-1", "--die-with-parent", "--clearenv", "--hostname", "classroom"),
        *_in_memory("/tmp", TMP_BYTES),  # before the system, because a Python environment may be in a folder under /tmp
        *_system(),
        *("--proc", "/proc", "--dev", "/dev", *_in_memory("/dev/shm", SHM_BYTES), "--remount-ro", "/dev"),
        *_readable(package),
        *("--perms", "0755", "--dir", str(Path(INSIDE).parent), "--ro-bind", str(sockets), INSIDE),
        *("--chdir", "/", "--remount-ro", "/"),
    ]


def _in_memory(folder: str, most_bytes: int) -> list[str]:
    size = ["--size", str(most_bytes)] if "--size" in _bubblewrap_help() else []  # else, only the group's limit applies
    return ["--perms", "1777", *size, "--tmpfs", folder]


@functools.cache
def _bubblewrap_help() -> str:
    asked = ["bwrap", "--help"]
    return subprocess.run(asked, capture_output=True, text=True, timeout=START_SECONDS, check=False).stdout


@functools.cache
def _system() -> list[str]:
    """Return the mounts for the system and the Python environment, excluding the package because it has the answers."""
    arguments: list[str] = []
    for name in ("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin"):
        is_link = os.path.islink(name)
        arguments += ["--symlink", os.readlink(name), name] if is_link else ["--ro-bind-try", name, name]
    arguments += ["--ro-bind", "/usr", "/usr"]
    for folder in ("/etc", "/etc/ssl"):  # bubblewrap would let only its own user enter them
        arguments += ["--perms", "0755", "--dir", folder]
    for name in ETC:
        arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    arguments += ["--ro-bind-try", "/nix/store", "/nix/store"]
    bound = [Path("/usr")]
    prefixes = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    for prefix in sorted(prefixes, key=lambda path: len(path.parts)):
        if not any(prefix.is_relative_to(folder) for folder in bound):
            arguments += _readable(prefix)
            bound.append(prefix)
    for hidden in _with_answers(bound):
        arguments += ["--perms", "0755", "--tmpfs", str(hidden)]
        for prefix in sorted(prefixes):
            if prefix.is_relative_to(hidden):  # such as `.venv` in the checkout
                arguments += _readable(prefix)
        arguments += ["--remount-ro", str(hidden)]
    return arguments


def _readable(folder: Path) -> list[str]:
    """Return the arguments that make a folder readable at the same path, including arguments for its parents.

    Otherwise, bubblewrap would create the parents so that only its own user can enter them.
    """
    parents = [str(parent) for parent in reversed(folder.parents) if parent != Path("/")]
    return [
        *(argument for parent in parents for argument in ("--perms", "0755", "--dir", parent)),
        *("--ro-bind", str(folder), str(folder)),
    ]


def _with_answers(bound: list[Path]) -> list[Path]:
    """Return the folders inside `bound` that contain the package, whether it is installed or checked out."""
    package = Path(__file__).resolve().parents[1]
    is_checkout = (package.parent / "pyproject.toml").exists()
    folders = {package.parent if is_checkout else package}
    folders.update(Path(folder) / "transformer_lab" for folder in sys.path if "-packages" in folder)
    for folder in bound:
        folders.update(folder.glob("lib*/python*/*-packages/transformer_lab"))
    existing = sorted(folder for folder in folders if folder.is_dir())
    return [folder for folder in existing if any(folder.resolve().is_relative_to(top) for top in bound)]


@functools.cache
def why_no_sandbox() -> str:
    """Return the reason why kernels cannot run in a sandbox on this machine. If they can, return ""."""
    if sys.platform != "linux":
        return "sandboxes need Linux"
    if not shutil.which("bwrap"):
        return "bubblewrap is not installed (Debian and Ubuntu: sudo apt install bubblewrap)"
    with temporary_folder() as folder:
        try:
            Sandbox(folder, folder).close()
        except SandboxError as error:
            return str(error)
    return ""
