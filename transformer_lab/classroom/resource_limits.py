"""How much a submission may take."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Of one submission and its kernel. Times are seconds on the clock, sizes bytes."""

    cell_seconds: float = 30.0
    exercise_seconds: float = 20.0  # to score one
    submission_seconds: float = 180.0
    cpu_seconds: int = 360  # of one process
    memory: int = 3 * 2**30  # of all its processes together
    processes: int = 128  # and threads
    file_bytes: int = 64 * 2**20  # of one file
    files: int = 512  # open ones, of one process

    def of_a_process(self) -> dict[str, int]:
        """Return what the system limits for each process, by the names of `setrlimit`."""
        return {
            "FSIZE": self.file_bytes,
            "CPU": self.cpu_seconds,
            "DATA": self.memory,
            "NOFILE": self.files,
            "NPROC": self.processes,
        }


STUDENT_SECONDS = 3 * Limits.submission_seconds  # of all files of a student in one run
