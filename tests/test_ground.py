"""Without these tests, a fresh clone could install untested versions or contain files that do not belong in it."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]

LEARNER, TEACHER, DEVELOPER = "requirements.txt", "requirements/teacher.txt", "requirements/developer.txt"
EXTRAS = {LEARNER: ["export"], TEACHER: ["teacher"], DEVELOPER: ["dev", "site"]}  # extras that each file adds

HEAVY = ("spacy", "torchtext", "matplotlib", "seaborn", "ipywidgets", "pandas", "pooch", "sacrebleu", "platformdirs")


@cache
def pins(file: str = DEVELOPER) -> dict[str, Requirement]:
    """Return the pins of a file and of the files it includes."""
    found: dict[str, Requirement] = {}
    for line in (ROOT / file).read_text(encoding="utf-8").splitlines():
        if line.startswith("-r "):
            included = (ROOT / file).parent / line.removeprefix("-r ")
            found |= pins(os.path.relpath(included, ROOT))
        elif line.strip() and not line.startswith("#"):
            pin = Requirement(line)
            assert canonicalize_name(pin.name) not in found, f"{file} pins {pin.name} again"
            found[canonicalize_name(pin.name)] = pin
    return found


@cache
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def asked_for(file: str) -> list[str]:
    """Return the requirements in pyproject.toml that a file has to satisfy."""
    asked = [*project()["project"]["dependencies"], *project()["build-system"]["requires"]]
    for extra in EXTRAS[file]:
        asked += project()["project"]["optional-dependencies"][extra]
    return asked


def needed(asked: Iterable[str], on_any_system: bool = False) -> set[str]:
    """Return the names of these packages and of all their dependencies, either on this system only or on any system."""
    found: set[tuple[str, str]] = set()
    todo = list(map(Requirement, asked))
    while todo:
        requirement = todo.pop()
        for extra in {"", *requirement.extras}:
            key = (canonicalize_name(requirement.name), extra)
            if key in found:
                continue
            found.add(key)
            try:
                wanted = map(Requirement, requires(requirement.name) or [])
            except PackageNotFoundError:  # a package for another system
                continue
            for each in wanted:
                another_system = on_any_system and "extra" not in str(each.marker)
                if each.marker is None or another_system or each.marker.evaluate({"extra": extra}):
                    todo.append(each)
    return {name for name, _ in found}


@cache
def tracked_files() -> list[Path]:
    """Return the files tracked by git. In an unpacked archive, skip the test."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout, so git cannot list the tracked files")
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def python_sources() -> list[Path]:
    return sorted((ROOT / "transformer_lab").rglob("*.py"))


def nodes_of_the_package() -> Iterator[tuple[str, ast.AST]]:
    """Yield every node of the package's syntax trees, with the path of its file."""
    for path in python_sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield str(path.relative_to(ROOT)), node


def imported_packages(node: ast.AST) -> set[str]:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
    return {name.partition(".")[0] for name in names}


def test_every_pin_is_one_exact_version():
    loose = [str(pin) for pin in pins().values() if [bound.operator for bound in pin.specifier] != ["=="]]
    assert loose == []


def test_the_pins_satisfy_the_packages_requirements():
    """`pip install --no-deps -e .` must not leave any of the package's requirements unmet."""
    extras = project()["project"]["optional-dependencies"]
    assert sorted(name for names in EXTRAS.values() for name in names) == sorted(extras)
    for file in EXTRAS:
        for requirement in map(Requirement, asked_for(file)):
            pin = pins(file)[canonicalize_name(requirement.name)]
            (bound,) = pin.specifier
            assert requirement.specifier.contains(bound.version), f"{pin} does not meet {requirement}"


@pytest.mark.parametrize("file", EXTRAS)
def test_each_requirements_file_pins_every_dependency(file):
    """Without a pin, pip would install the newest version, which is untested."""
    assert sorted(needed(asked_for(file)) - pins(file).keys()) == []


def test_learners_do_not_download_packages_for_teachers_and_developers():
    """Every extra package costs learners download time and disk space."""
    learner = asked_for(LEARNER)
    assert sorted(pins(LEARNER).keys() - needed(learner, on_any_system=True)) == []
    assert sorted(pins(TEACHER).keys() - needed(learner + asked_for(TEACHER), on_any_system=True)) == []
    assert not {"nbgrader", "playwright", "jupyter-book", "ruff", "pytest-xdist", "dask"} & pins(LEARNER).keys()


def test_every_pin_installs_with_the_oldest_supported_python():
    """Debian's own Python may be 3.11.2, and pip would stop at the first package that requires a later one."""
    oldest = project()["project"]["requires-python"].removeprefix(">=") + ".0"
    refusing = {}
    for name in pins():
        try:
            wanted = metadata(name).get("Requires-Python") or ""  # the backport of metadata never returns None
        except PackageNotFoundError:  # a package for another system
            continue
        if not SpecifierSet(wanted).contains(oldest):
            refusing[name] = wanted
    assert refusing == {}


def test_the_environment_has_the_pinned_versions():
    """If different versions are installed here, the tests say nothing about the pinned ones."""
    different = {}
    for name, pin in pins().items():
        if pin.marker is None or pin.marker.evaluate():
            try:
                installed = version(name)
            except PackageNotFoundError:
                installed = None
            if installed is None or not pin.specifier.contains(installed):  # 2.13.0+cpu counts as 2.13.0
                different[str(pin)] = installed
    assert different == {}


def test_the_packages_of_the_course_are_pinned_and_used():
    course = {"torch", "jupyterlab", "matplotlib", "seaborn", "spacy", "torchtext", "nbval", "ipywidgets"}
    assert course <= pins(LEARNER).keys()
    assert {"torch", "matplotlib", "seaborn", "spacy", "torchtext", "ipywidgets"} <= {
        name for _, node in nodes_of_the_package() for name in imported_packages(node)
    }
    commands = [ROOT / "Makefile", *python_sources(), *(ROOT / "tests").rglob("test_*.py")]
    text = "".join(path.read_text(encoding="utf-8") for path in commands if path != Path(__file__))
    assert "jupyter" in text
    assert "--nbval" in text


def test_conda_installs_the_same_pins():
    lines = [line.strip(" -") for line in (ROOT / "environment.yml").read_text(encoding="utf-8").splitlines()]
    assert "r requirements.txt" in lines
    assert "e ." in lines


@pytest.mark.parametrize("module", ["transformer_lab", "transformer_lab.training", "transformer_lab.plots"])
def test_importing_stays_light(module):
    """A server must be able to train without these packages, and importing `transformer_lab` must be fast."""
    code = f"import sys, {module}; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == []


def test_weights_are_never_pickled():
    """Loading a pickle can run code, but opening a stranger's checkpoint must never do that."""
    found = []
    for path, node in nodes_of_the_package():
        if {"pickle", "dill", "joblib", "shelve"} & imported_packages(node):
            found.append(f"{path}:{node.lineno} imports pickle")
        if isinstance(node, ast.Attribute) and node.attr in ("load", "save") and ast.unparse(node.value) == "torch":
            found.append(f"{path}:{node.lineno} uses torch.{node.attr}")
    assert found == []


def test_no_tracked_file_has_a_path_of_this_machine():
    """An executed notebook or a log can easily contain the path of the folder it ran in."""
    home = re.compile(rb"(?<![\w.~])/(?:work|home|root|Users)/[\w.-]+/")
    carrying = [
        f"{path.relative_to(ROOT)}: {found[0].decode(errors='replace')}"
        for path in tracked_files()
        if path != Path(__file__) and (found := home.search(path.read_bytes()))
    ]
    assert carrying == []


def test_the_trained_model_is_the_only_large_tracked_file():
    """A corpus must be downloaded and never committed, so that cloning stays fast."""
    large = {str(path.relative_to(ROOT)) for path in tracked_files() if path.stat().st_size > 3 * 2**20}
    assert {name for name in large if not name.startswith("transformer_lab/pretrained/")} == set()
    shipped = [path for path in tracked_files() if "pretrained" in path.parts]
    assert sum(path.stat().st_size for path in shipped) <= 8 * 2**20


def test_every_link_in_the_documents_has_a_target():
    """Readers start with the README, so moving a file must not leave a dead link there."""
    dead = []
    for name in ("README.md", "CONTRIBUTING.md", "CLASSROOM.md", "SERVING.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
            on_github = "://" in target or target.startswith("../../actions/")  # the workflow badge
            if not on_github and not (ROOT / target).exists():
                dead.append(f"{name}: {target}")
    assert dead == []


def test_the_readme_links_every_notebook():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    names = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
    assert [name for name in names if f"(notebooks/{name})" not in text] == []
