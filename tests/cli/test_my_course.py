"""A reader's copy of the notebooks keeps the reader's work, and newer versions of notebooks are listed."""

import os
from pathlib import Path

import pytest

from transformer_lab.errors import InputError
from transformer_lab.my_course import JUPYTER, jupyterlab_environment, prepare, refresh


@pytest.fixture
def notebooks(tmp_path):
    folder = tmp_path / "notebooks"
    folder.mkdir()
    for name in ("00_tour", "03_masks"):
        (folder / f"{name}.ipynb").write_text(f"original {name}", encoding="utf-8")
    return folder


def test_the_copy_is_made_once_and_keeps_the_readers_work(notebooks, tmp_path):
    mine = tmp_path / "my_course"
    assert prepare(mine, notebooks) == []
    assert (mine / "mine").is_dir()
    (mine / "03_masks.ipynb").write_text("my work", encoding="utf-8")
    assert prepare(mine, notebooks) == []
    assert (mine / "03_masks.ipynb").read_text(encoding="utf-8") == "my work"


def test_a_newer_version_is_listed_until_it_is_fetched(notebooks, tmp_path):
    mine = tmp_path / "my_course"
    prepare(mine, notebooks)
    (notebooks / "03_masks.ipynb").write_text("newer", encoding="utf-8")
    assert prepare(mine, notebooks) == ["03_masks.ipynb"]
    refresh(mine, "03", notebooks)
    assert prepare(mine, notebooks) == []


def test_fetching_a_fresh_notebook_keeps_the_old_one(notebooks, tmp_path):
    mine = tmp_path / "my_course"
    prepare(mine, notebooks)
    kept = []
    for work in ("first", "second"):
        (mine / "03_masks.ipynb").write_text(work, encoding="utf-8")
        fresh, old = refresh(mine, "03", notebooks)
        kept.append(old.read_text(encoding="utf-8"))
        assert fresh.read_text(encoding="utf-8") == "original 03_masks"
    assert kept == ["first", "second"]
    assert len(list(mine.glob("03_masks*.ipynb"))) == 3


def test_jupyterlab_keeps_the_readers_layout_and_other_settings(tmp_path):
    mine = tmp_path / "my_course"
    given = jupyterlab_environment(mine, {"JUPYTER_CONFIG_PATH": "elsewhere"})
    assert given["JUPYTER_CONFIG_PATH"].split(os.pathsep) == [str(JUPYTER), "elsewhere"]
    assert given["JUPYTER_PATH"] == str(JUPYTER)
    (layout,) = Path(given["JUPYTERLAB_WORKSPACES_DIR"]).iterdir()
    assert layout.is_relative_to(mine)
    layout.write_text("my layout", encoding="utf-8")
    jupyterlab_environment(mine, {})
    assert layout.read_text(encoding="utf-8") == "my layout"


@pytest.mark.parametrize("number", ["99", "0", "", "../0", "*"])
def test_a_missing_notebook(notebooks, tmp_path, number):
    with pytest.raises(InputError, match="--fresh 03"):
        refresh(tmp_path / "my_course", number, notebooks)
