"""You train what you built: parts that passed are saved and loaded, and are replaced if they no longer pass."""

import ast
import atexit
import importlib
import inspect
import os
import textwrap

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import transformer_lab.model
from transformer_lab.exercises import exercises, progress, saved_parts

IMPORTS = """
import math
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformer_lab import check, hint, progress, solution
"""

SOFTMAX = """
def softmax(scores):
    # mine
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
"""

ATTENTION = """
LOWEST = -1e9

def hide(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, LOWEST)

def scaled_dot_product_attention(query, key, value, mask=None, dropout=None):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = hide(scores, mask)
    weights = F.softmax(scores, dim=-1)
    return (weights if dropout is None else dropout(weights)) @ value, weights
"""

HEAD = """
class SingleHeadAttention(nn.Module):
    def __init__(self, d_model: int, d_k: int) -> None:
        super().__init__()
        self.w_q, self.w_k, self.w_v = (nn.Linear(d_model, d_k) for _ in range(3))

    def forward(self, query, key, value, mask=None):
        return scaled_dot_product_attention(self.w_q(query), self.w_k(key), self.w_v(value), mask)[0]
"""


class Notebook:
    """A notebook without a browser. Its cells run one after another."""

    def __init__(self, shell):
        self.shell = shell

    def run(self, *cells):
        result = None
        for cell in cells:
            outcome = self.shell.run_cell(textwrap.dedent(cell), store_history=True, silent=False)
            outcome.raise_error()
            result = outcome.result
        return result


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """Create a new notebook that saves its parts in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRANSFORMER_LAB_MINE", "")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    for name in ("_in_memory", "_loaded", "_loading"):
        monkeypatch.setattr(saved_parts, name, [] if name == "_loading" else {})
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    atexit.unregister(shell.atexit_operations)
    notebook = Notebook(shell)
    notebook.run(IMPORTS)
    yield notebook
    shell.restore_sys_module_state()
    InteractiveShell.clear_instance()


def load(name):
    return getattr(importlib.import_module("transformer_lab.mine"), name)


def test_a_passed_part_is_saved_and_loaded(notebook, capsys):
    assert notebook.run(SOFTMAX, "check(softmax)").passed
    text = (notebook_file := saved_parts.folder() / "softmax.py").read_text()
    assert "import numpy as np" in text
    assert "# mine" in text
    brought = load("softmax")
    assert brought.__code__.co_filename == str(notebook_file)
    assert capsys.readouterr().out.endswith(f"softmax: yours ({notebook_file})\n")
    assert "✓ softmax" in str(progress())


def test_a_failed_part_is_not_saved(notebook):
    assert not notebook.run("def softmax(scores):\n    return scores", "check(softmax)").passed
    assert not os.path.exists("mine")


def test_what_a_part_uses_comes_with_it(notebook, capsys):
    """Helpers, constants, and imports from other cells are saved as well. Earlier parts are imported from `mine`."""
    notebook.run(ATTENTION, HEAD)
    assert notebook.run("check(scaled_dot_product_attention)").passed
    report = notebook.run("check(SingleHeadAttention)")
    assert report.passed
    assert not [remark for remark in report.remarks if "can't be saved" in remark]
    text = (saved_parts.folder() / "scaled_dot_product_attention.py").read_text()
    assert "LOWEST = -1000000000.0" in text
    assert "def hide(" in text
    assert "import torch.nn.functional as F" in text
    assert "from torch import Tensor" in text
    head = (saved_parts.folder() / "SingleHeadAttention.py").read_text()
    assert "from transformer_lab.mine import scaled_dot_product_attention" in head
    capsys.readouterr()
    brought = load("SingleHeadAttention")
    assert capsys.readouterr().out.startswith("SingleHeadAttention: yours")
    assert brought(4, 2)(*torch.rand(3, 1, 5, 4)).shape == (1, 5, 2)
    used = brought.forward.__globals__["scaled_dot_product_attention"]
    assert used is not transformer_lab.model.scaled_dot_product_attention


def test_a_lambda_and_a_renamed_part_are_saved(notebook):
    notebook.run(SOFTMAX.replace("softmax", "my_softmax"))
    assert notebook.run('check("softmax", my_softmax)').passed
    assert "softmax = my_softmax" in (saved_parts.folder() / "softmax.py").read_text()
    notebook.run("causal_mask = lambda n, device=None: torch.ones(1, 1, n, n, dtype=torch.bool, device=device).tril()")
    assert notebook.run('check("causal_mask", causal_mask)').passed
    assert load("causal_mask")(2).flatten().tolist() == [True, False, True, True]


def test_a_newer_version_replaces_the_saved_one(notebook):
    notebook.run(SOFTMAX, "check(softmax)")
    first = load("softmax")
    assert load("softmax") is first
    notebook.run(SOFTMAX.replace("# mine", "# mine, again"), "check(softmax)")
    assert load("softmax") is not first


def test_an_edited_part_that_fails_is_replaced(notebook, capsys):
    notebook.run(SOFTMAX, "check(softmax)")
    file = saved_parts.folder() / "softmax.py"
    file.write_text(file.read_text().replace("scores.max(axis=-1, keepdims=True)", "0"))
    assert saved_parts.state("softmax") == "edited"
    assert load("softmax") is transformer_lab.model.softmax
    printed = capsys.readouterr().out
    assert "softmax: the package's, because yours no longer passes its check" in printed
    assert "`weights` is NaN" in printed


def test_an_edited_part_that_still_passes_is_yours(notebook):
    notebook.run(SOFTMAX, "check(softmax)")
    file = saved_parts.folder() / "softmax.py"
    file.write_text(file.read_text() + "\n# a later thought\n")
    assert load("softmax").__code__.co_filename == str(file)


def test_a_broken_file_is_replaced(notebook, capsys):
    notebook.run(SOFTMAX, "check(softmax)")
    (saved_parts.folder() / "softmax.py").write_text("def softmax(:\n")
    assert load("softmax") is transformer_lab.model.softmax
    assert "yours can't be loaded" in capsys.readouterr().out


def test_a_newer_check_is_run_again(notebook, monkeypatch):
    """If a part passed an older version of its check, it has to pass the new version before it is used."""
    notebook.run(SOFTMAX, "check(softmax)")
    monkeypatch.setattr(saved_parts, "_stamp", lambda exercise, text: "# another check\n")
    assert saved_parts.state("softmax") == "edited"
    assert load("softmax") is not transformer_lab.model.softmax


def test_without_a_part_the_package_helps_out(notebook, capsys):
    assert load("softmax") is transformer_lab.model.softmax
    assert "softmax: the package's (yours is saved once its check in notebook 01 passes)" in capsys.readouterr().out


def test_the_packages_part_uses_the_readers_parts(notebook, capsys):
    """If you skip a notebook, the package fills in the missing part, which uses the other parts that you wrote."""
    notebook.run(SOFTMAX, "check(softmax)")
    capsys.readouterr()
    attention = load("numpy_attention")
    assert "numpy_attention: the package's (yours is saved once" in (printed := capsys.readouterr().out)
    assert printed.endswith("with your softmax\n")
    assert attention.__globals__["softmax"].__code__.co_filename == str(saved_parts.folder() / "softmax.py")
    assert transformer_lab.model.numpy_attention.__globals__["softmax"] is transformer_lab.model.softmax


def test_the_packages_part_uses_parts_far_below_it(notebook):
    """The norm is three levels below the Transformer, and the reader wrote none of the parts in between."""
    notebook.run(*cells_of(exercises()["LayerNorm"]), "check(LayerNorm)")
    config = transformer_lab.model.TransformerConfig(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=16)
    model = load("Transformer")(config)
    norms = {type(module) for module in model.modules() if type(module).__name__ == "LayerNorm"}
    assert len(norms) == 1
    assert norms != {transformer_lab.model.LayerNorm}


def test_unknown_part_is_an_import_error(notebook):
    with pytest.raises(ImportError, match="did you mean softmax"):
        load("sofmax")


def test_switched_off(notebook, monkeypatch, capsys):
    monkeypatch.setenv("TRANSFORMER_LAB_MINE", "off")
    notebook.run(SOFTMAX, "check(softmax)")
    assert not os.path.exists("mine")
    assert load("softmax") is transformer_lab.model.softmax
    assert "TRANSFORMER_LAB_MINE is off" in capsys.readouterr().out


def test_another_folder(notebook, monkeypatch, tmp_path):
    monkeypatch.setenv("TRANSFORMER_LAB_MINE", str(tmp_path / "deep" / "inside"))
    notebook.run(SOFTMAX, "check(softmax)")
    assert (tmp_path / "deep" / "inside" / "softmax.py").is_file()


def test_read_only_folder_keeps_in_memory(notebook, monkeypatch, tmp_path):
    """The test uses a path below a file, where not even root can write."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRANSFORMER_LAB_MINE", str(tmp_path / "file" / "mine"))
    report = notebook.run(SOFTMAX, "check(softmax)")
    assert report.passed
    assert "available until this kernel stops, but not on disk" in str(report)
    assert load("softmax") is not transformer_lab.model.softmax
    assert saved_parts.state("softmax") == "yours"


def test_a_part_that_needs_its_notebook_says_so(notebook):
    """The part uses a value that has no source code: the check passes, and the report says why it is not saved."""
    notebook.run("globals()['anything'] = object()")
    report = notebook.run(SOFTMAX.replace("# mine", "assert anything"), "check(softmax)")
    assert report.passed
    assert any("it uses `anything`, whose definition wasn't found" in remark for remark in report.remarks)
    assert not os.path.exists("mine/softmax.py")


def test_a_value_that_is_changed_later_is_saved_with_its_definition(notebook):
    """Changing an entry does not define the variable. If the change matters, the part is not saved."""
    notebook.run("class Calls:\n    last = None\n\nlog = Calls()", "log.last = 0")
    assert notebook.run(SOFTMAX.replace("# mine", "log.last = scores"), "check(softmax)").passed
    path = saved_parts.folder() / "softmax.py"
    assert "log = Calls()" in path.read_text()
    path.unlink()
    notebook.run("settings = Calls()", "settings.last = 3")
    report = notebook.run(SOFTMAX.replace("# mine", "assert settings.last == 3"), "check(softmax)")
    assert report.passed
    assert any("outside this notebook" in remark for remark in report.remarks)
    assert not path.exists()


def test_outside_a_notebook_nothing_is_saved(tmp_path, monkeypatch):
    """A script or a test that calls `check` leaves no files behind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRANSFORMER_LAB_MINE", "")
    InteractiveShell.clear_instance()
    from transformer_lab import check

    names = {}
    exec(IMPORTS + SOFTMAX, names)
    assert check(names["softmax"]).passed
    assert list(tmp_path.iterdir()) == []


def test_parts_that_use_each_other_do_not_loop(notebook, capsys):
    folder = saved_parts.folder()
    folder.mkdir()
    (folder / "softmax.py").write_text(
        "from transformer_lab.mine import numpy_attention\ndef softmax(s):\n    return s\n"
    )
    (folder / "numpy_attention.py").write_text(
        "from transformer_lab.mine import softmax\ndef numpy_attention(q, k, v):\n    return q\n"
    )
    assert load("softmax") is transformer_lab.model.softmax
    assert capsys.readouterr().out.count("\n") == 1


def cells_of(exercise) -> list[str]:
    """Return the cells of a notebook that contains the answer: the imports from the answer's file, then its source."""
    module = importlib.import_module(exercise.answer.__module__)
    tree = ast.parse(inspect.getsource(module))
    imports = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    defined = [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    targets = [node.targets[0] for node in tree.body if isinstance(node, ast.Assign)]
    assigned = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    others = [name for name in defined + assigned if name != exercise.name]
    beside = [f"from {module.__name__} import {', '.join(others)}"] if others else []
    return ["\n".join(imports + beside), inspect.getsource(exercise.answer)]
