"""All processes of one kernel, seen from outside: how many there are, and how much memory they hold together.

Linux limits memory for each process, and for a group only in a cgroup that few users may make. So the grader looks ten
times a second. "memory of children" and `test_memory_that_no_process_owns_counts_as_well` fail without it.
"""

import contextlib
import os
from pathlib import Path

import psutil

from transformer_lab.classroom.resource_limits import Limits
from transformer_lab.classroom.sandbox import Sandbox

BYTES_OF_A_SOCKET = 2 * 212_992  # the most that Linux lets wait in one by default; no process is charged with it
BYTES_OF_AN_ENTRY = 2_048  # of a folder in memory, however empty the file is


class ProcessGroup:
    """The kernel with this supervisor, and everything it has started.

    Args:
        supervisor: Process ID of the kernel's parent.
        sandbox: Where the kernel runs, if it has one.
    """

    def __init__(self, supervisor: int, sandbox: Sandbox | None) -> None:
        self.supervisor, self.sandbox = supervisor, sandbox
        self.root = Path(f"/proc/{sandbox.first_process}/root" if sandbox else "/")

    def passed_limit(self, limits: Limits) -> str:
        """Return which limit of the whole group is passed: `memory`, `processes`, or none."""
        try:
            processes = self._processes()
        except (OSError, psutil.Error):  # it has ended
            return ""
        if len(processes) > limits.processes:
            return "processes"
        left = limits.memory - (self._bytes_in_folders() + self._bytes_in_sockets() if self.sandbox else 0)
        # Forked processes share most of what the first sum counts for each: the second one is exact, and takes longer.
        if sum(map(_resident_bytes, processes)) > left and sum(map(_proportional_bytes, processes)) > left:
            return "memory"
        return ""

    def interrupt(self) -> None:
        """Do what Ctrl-C does to the kernel."""
        with contextlib.suppress(psutil.Error):
            for kernel in psutil.Process(self.supervisor).children():
                kernel.send_signal(2)

    def kill(self) -> None:
        """End all of them. In a sandbox they end with its first process, whatever they have done to hide."""
        if self.sandbox is not None:
            self.sandbox.kill()
            return
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(self.supervisor).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    process.kill()  # the supervisor kills what they leave, and ends

    def _processes(self) -> list[Path]:
        """Return the folder of each in /proc; in a sandbox, of everything that its own /proc shows."""
        if self.sandbox is not None:
            folder = self.root / "proc"
            return [folder / name for name in os.listdir(folder) if name.isdigit()]
        children = psutil.Process(self.supervisor).children(recursive=True)
        return [Path("/proc") / str(child.pid) for child in children]

    def _bytes_in_folders(self) -> int:
        total = 0
        for folder in ("tmp", "dev/shm"):
            with contextlib.suppress(OSError):
                status = os.statvfs(self.root / folder)
                total += (status.f_blocks - status.f_bfree) * status.f_frsize
                total += (status.f_files - status.f_ffree) * BYTES_OF_AN_ENTRY
        return total

    def _bytes_in_sockets(self) -> int:
        """Return what sockets may hold, including those that are on their way through another socket."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            first_line = Path(f"/proc/{self.sandbox.first_process}/net/sockstat").read_text().splitlines()[0]
            return int(first_line.split()[2]) * BYTES_OF_A_SOCKET
        return 0


def _resident_bytes(process: Path) -> int:
    """Return what a process maps, shared memory included: it may be mapped by this process alone."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _proportional_bytes(process: Path) -> int:
    """Return what a process maps, with its share of what others map too."""
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = (process / "smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return _resident_bytes(process)  # it has ended, or hides: then all that it maps counts as its own
