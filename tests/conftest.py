"""Fixtures and hooks shared by several test folders."""

import io
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from transformer_lab.cli import main


@dataclass(frozen=True)
class Outcome:
    """How the `transformer-lab` command ended and what it printed."""

    status: int
    stdout: str
    stderr: str

    @property
    def hints(self) -> list[str]:
        """The next steps that the command suggests."""
        return [line.removeprefix("Next: ") for line in self.stderr.splitlines() if line.startswith("Next: ")]

    @property
    def warnings(self) -> str:
        """Everything on stderr except the hints."""
        return "".join(line for line in self.stderr.splitlines(keepends=True) if not line.startswith("Next: "))

    @property
    def complaint(self) -> str:
        """The error message: a single line at the end of stderr. Only progress output may precede it."""
        *before, last = self.stderr.splitlines()
        assert last.startswith("transformer-lab: ")
        assert not any(line.startswith(("transformer-lab:", "Traceback")) for line in before)
        assert (self.status, self.stdout) == (1, "")
        return last.removeprefix("transformer-lab: ")

    def next_command(self) -> list[str]:
        """Return the arguments of the command suggested in the last line of stderr."""
        assert self.hints[-1].startswith("transformer-lab ")
        return shlex.split(self.hints[-1].partition(" (")[0])[1:]


@pytest.fixture
def lab(monkeypatch, capfd):
    """Run the command in this process: `lab("translate", "Ein Hund.")` returns its `Outcome`."""

    def run(*arguments: object, stdin: bytes | None = None) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["transformer-lab", *map(str, arguments)])
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main()
        return Outcome(exit_.value.code or 0, *capfd.readouterr())

    return run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests marked `costly_setup` first. A worker that has finished its own list takes tests from
    the ends of other workers' lists, so a module at the front stays with a single worker and is set up only once."""
    items.sort(key=lambda item: item.get_closest_marker("costly_setup") is None)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder of real corpora (`multi30k/`, `tatoeba_en_zh/`, `ted_de_en/`). Without it, skip the test."""
    named = os.environ.get("TRANSFORMER_LAB_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    if folder.name == "multi30k":
        folder = folder.parent
    if not (folder / "multi30k" / "train.de.gz").is_file():
        pytest.skip(f"no real corpora: {folder / 'multi30k' / 'train.de.gz'} is missing (set TRANSFORMER_LAB_DATA)")
    return folder
