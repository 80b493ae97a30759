"""Check whether this machine has everything the course needs, without downloading or changing anything."""

import os
import platform
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from transformer_lab.errors import InputError
from transformer_lab.shipped import is_checkout, shipped

TOUR_NOTEBOOK = shipped("notebooks") / "00_tour.ipynb"

# Training and translating need the first group; the notebooks, pictures, and downloads also need the second.
TRAINING_PACKAGES = ("torch", "numpy", "tokenizers", "sacrebleu", "safetensors", "tqdm", "typer", "rich")
NOTEBOOK_PACKAGES = (
    "jupyterlab",
    "jupytext",
    "nbformat",
    "nbclient",
    "nbval",
    "ipywidgets",
    "matplotlib",
    "seaborn",
    "pandas",
    "optuna",
    "spacy",
    "torchtext",
    "pooch",
    "platformdirs",
    "psutil",
)
# Some of these are imported only by the grader's worker processes, in the middle of a run.
GRADING_PACKAGES = ("torch", "nbformat", "nbval", "pytest", "ipykernel", "psutil", "jinja2", "pandas", "seaborn")
INSTALL = (
    "run make course, or: python -m pip install -r requirements.txt"
    if is_checkout()
    else "install transformer-lab again, with all packages that it needs"
)
ROOM_FOR_RUNS = 3.0  # GiB, with checkpoints: one run of the paper preset takes up to 2.5, one of laptop 0.1


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    observed: str
    advice: str = ""  # what to do; empty if the check passed
    essential: bool = False  # training and translating need it

    @property
    def ok(self) -> bool:
        return not self.advice


def examine() -> list[Finding]:
    """Run all checks, in the order in which the problems they find should be fixed."""
    findings = [find_python()]
    findings += [find_package(name, essential=True) for name in TRAINING_PACKAGES]
    findings += [find_package(name, essential=False) for name in NOTEBOOK_PACKAGES]
    if all(finding.ok for finding in findings if finding.essential):
        findings += [find_threads(), find_gpu(), find_bfloat16(), find_multi30k_files(), find_pretrained()]
    return [*findings, find_disk(), find_notebook(), find_sandbox()]


def require(packages: Iterable[str], purpose: str) -> None:
    """Check that packages are installed before anything is started.

    Raises:
        InputError: At least one of them is not installed. The message says what to install.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise InputError(f"{purpose} needs {', '.join(missing)}: {INSTALL}")


def find_python() -> Finding:
    advice = "" if sys.version_info >= (3, 11) else "install Python 3.11 or newer from python.org"
    return Finding("Python", f"{platform.python_version()}, {sys.executable}", advice, essential=True)


def find_package(name: str, essential: bool) -> Finding:
    """Try to import a package. Even an installed package may fail to load, for example after another was updated."""
    try:
        import_module(name)
        return Finding(name, version(name), essential=essential)
    except (ModuleNotFoundError, PackageNotFoundError) as error:
        state = "not installed" if getattr(error, "name", name) in (name, None) else str(error)
    except Exception as error:  # a broken package can raise any exception
        state = f"does not load: {type(error).__name__}: {error}".partition("\n")[0]
    return Finding(name, state, INSTALL if essential else f"{INSTALL} (only the notebooks need it)", essential)


def find_threads() -> Finding:
    import torch

    threads, cores = torch.get_num_threads(), os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS")
    advice = f"OMP_NUM_THREADS is {limit}: unset it, and training uses all cores" if limit and threads < cores else ""
    return Finding("threads", f"{threads} for {cores} CPU cores", advice)


def find_gpu() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding("GPU", "none that torch can use: the presets tour and laptop are made for a CPU")
    names = [
        f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
        for properties in map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    ]
    return Finding("GPU", "; ".join(names))


def find_bfloat16() -> Finding:
    import torch

    from transformer_lab.training import find_preset
    from transformer_lab.training.steps import computing_precision

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    precision = computing_precision(find_preset("laptop"), device)
    return Finding("bfloat16", "yes" if precision == torch.bfloat16 else "no: training uses float32, which is slower")


def find_multi30k_files() -> Finding:
    from transformer_lab.data import find_multi30k

    try:
        folder = find_multi30k()
    except ModuleNotFoundError as error:  # on a server without the notebooks' packages
        state = f"the download folder is unknown without {error.name}"
        return Finding("Multi30k", state, "set TRANSFORMER_LAB_DATA to a folder with a copy")
    if folder:
        return Finding("Multi30k", str(folder))
    if named := os.environ.get("TRANSFORMER_LAB_DATA"):
        return Finding("Multi30k", f"not in {named}", "set TRANSFORMER_LAB_DATA to its folder, or unset it")
    return Finding("Multi30k", "not downloaded yet: that happens on first use (1.4 MB, German and English)")


def find_pretrained() -> Finding:
    from transformer_lab.decoding.translator import PRETRAINED, load_pretrained

    try:
        translator = load_pretrained()
    except InputError as error:
        state = str(error) if PRETRAINED.is_dir() else f"no {PRETRAINED}"
        return Finding("model", state, "train one (transformer-lab train laptop) and pass it as --model runs/laptop")
    size = sum(parameter.numel() for parameter in translator.model.parameters())
    languages = f"{translator.tokenizer.source} to {translator.tokenizer.target}"
    return Finding("model", f"{languages}, {size / 1e6:.1f} million parameters")


def find_disk() -> Finding:
    folder = Path.cwd()
    room = shutil.disk_usage(folder).free / 2**30
    advice = ""
    if not os.access(folder, os.W_OK):
        advice = "this folder is not writable: go to another one, or choose one with --output"
    elif room < ROOM_FOR_RUNS:
        advice = f"make room: a run takes up to {ROOM_FOR_RUNS:.0f} GiB with the preset paper, and 0.1 with laptop"
    return Finding("disk", f"{room:.1f} GiB free in {folder}", advice)


def find_notebook() -> Finding:
    if TOUR_NOTEBOOK.is_file():
        return Finding("notebooks", str(TOUR_NOTEBOOK.parent))
    return Finding("notebooks", f"no {TOUR_NOTEBOOK}", "install transformer-lab again, from a clone or from a wheel")


def find_sandbox() -> Finding:
    """Look for bubblewrap. When the grader starts, it checks for itself whether bubblewrap may create namespaces."""
    if sys.platform != "linux":
        return Finding("sandbox", "none: sandboxes exist on Linux only, and only teachers who grade need one")
    if bubblewrap := shutil.which("bwrap"):
        return Finding("sandbox", f"bubblewrap, {bubblewrap}")
    advice = "install bubblewrap (Debian and Ubuntu: sudo apt install bubblewrap); only teachers who grade need it"
    return Finding("sandbox", "bubblewrap is not installed", advice)
