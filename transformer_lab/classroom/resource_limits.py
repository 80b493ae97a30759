"""Limits on the time, memory, and other resources that a submission may use."""

from dataclasses import dataclass

# For processes that are forked, which is unsafe with several threads, and for processes that run in parallel.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Limits:
    """Limits on one submission and its kernel. Times are in wall-clock seconds, sizes in bytes."""

    cell_seconds: float = 30.0
    exercise_seconds: float = 20.0  # limit for scoring one exercise
    submission_seconds: float = 180.0
    cpu_seconds: int = 360  # per process
    memory: int = 3 * 2**30  # for all processes together
    processes: int = 128  # including threads
    file_bytes: int = 64 * 2**20  # per file
    files: int = 512  # open at once, per process

    def of_a_process(self) -> dict[str, int]:
        """Return the limits that the system enforces for each process, under the names that `setrlimit` uses."""
        return {
            "FSIZE": self.file_bytes,
            "CPU": self.cpu_seconds,
            "DATA": self.memory,
            "NOFILE": self.files,
            "NPROC": self.processes,
        }


STUDENT_SECONDS = 3 * Limits.submission_seconds  # for all of a student's files in one run
