"""Count all of a kernel's processes and the memory they use in total, from outside the kernel.

Linux can limit the memory of each process, but it can limit a group's total only in a cgroup, which few users are
allowed to create. So the grader checks ten times a second. Without this check, the attack called "memory of children"
succeeds, and `test_memory_that_no_process_owns_counts_as_well` fails.
"""

import contextlib
import os
import signal
from pathlib import Path

import psutil

from transformer_lab.classroom.resource_limits import Limits
from transformer_lab.classroom.sandbox import Sandbox

SOCKET_BYTES = 2 * 212_992  # the most that Linux buffers in a socket by default; no process is charged for it
ENTRY_BYTES = 2_048  # for each file in an in-memory file system, even if it is empty
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessGroup:
    """A kernel and everything it has started.

    Args:
        supervisor: Process ID of the kernel's parent.
        sandbox: The kernel's sandbox, if it has one.
    """

    def __init__(self, supervisor: int, sandbox: Sandbox | None) -> None:
        self.supervisor, self.sandbox = supervisor, sandbox
        self.root = Path(f"/proc/{sandbox.first_process}/root" if sandbox else "/")

    def exceeded_limit(self, limits: Limits) -> str:
        """Return the limit that the whole group exceeds: `memory`, `processes`, or ""."""
        try:
            processes = self._processes()
        except (OSError, psutil.Error):  # the group has ended
            return ""
        if len(processes) > limits.processes:
            return "processes"
        left = limits.memory - (self._file_bytes() + self._socket_bytes() if self.sandbox else 0)
        # The first sum counts shared pages once per forked process. The second is exact but slower.
        if sum(map(_resident_bytes, processes)) > left and sum(map(_proportional_bytes, processes)) > left:
            return "memory"
        return ""

    def interrupt(self) -> None:
        """Interrupt the kernel as Ctrl-C does."""
        with contextlib.suppress(psutil.Error):
            for kernel in psutil.Process(self.supervisor).children():
                kernel.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """Kill all processes. In a sandbox, this ends even detached processes, because its first process is killed."""
        if self.sandbox is not None:
            self.sandbox.kill()
            return
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(self.supervisor).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    process.kill()  # the supervisor kills any orphans, and ends

    def _processes(self) -> list[Path]:
        """Return each process's folder in /proc. A sandbox's own /proc shows all of them."""
        if self.sandbox is not None:
            folder = self.root / "proc"
            return [folder / name for name in os.listdir(folder) if name.isdigit()]
        return [Path("/proc", str(child.pid)) for child in psutil.Process(self.supervisor).children(recursive=True)]

    def _file_bytes(self) -> int:
        total = 0
        for folder in ("tmp", "dev/shm"):
            with contextlib.suppress(OSError):
                status = os.statvfs(self.root / folder)
                total += (status.f_blocks - status.f_bfree) * status.f_frsize
                total += (status.f_files - status.f_ffree) * ENTRY_BYTES
        return total

    def _socket_bytes(self) -> int:
        """Return how many bytes all sockets together may hold, including sockets being sent through another socket."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            first_line = Path(f"/proc/{self.sandbox.first_process}/net/sockstat").read_text().splitlines()[0]
            return int(first_line.split()[2]) * SOCKET_BYTES
        return 0


def _resident_bytes(process: Path) -> int:
    """Return how much memory a process maps, counting shared pages in full."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int((process / "statm").read_text().split()[1]) * PAGE_BYTES
    return 0


def _proportional_bytes(process: Path) -> int:
    """Return how much memory a process maps, counting only its share of the pages that other processes also map."""
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = (process / "smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return _resident_bytes(process)  # if the process has ended or can't be inspected, count shared pages in full
