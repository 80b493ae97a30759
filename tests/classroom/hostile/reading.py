"""Submissions that search their environment for the answer: the disk, memory, the harness, and libraries.

The tables have the same format as in `lies.py`.
"""

NOTHING = ("failed", 0.0)
LOST = {"causal_mask": NOTHING}

TRY_EACH = """
import types

def works(candidate):
    try:
        return bool((candidate(5) == torch.ones(5, 5).tril().bool()).all())
    except BaseException:
        return False

def search():
    for candidate in candidates():
        if works(candidate):
            raise RuntimeError("an answer was found")

def causal_mask(length, device=None):
    return torch.ones(1, 1, length, length, dtype=torch.bool)

search()
del causal_mask
"""

SUBMISSIONS = {
    "reads the disk": (
        {
            "causal_mask": """
import glob, os, re, sys
from pathlib import Path

def candidates():
    tops = {*sys.path, os.getcwd(), "/", "/home", "/root", "/srv", "/opt", "/run", "/tmp", "/dev/shm", "/proc/1/root"}
    tops |= {str(parent) for path in sys.path for parent in Path(path).parents}
    names = ("solutions/*.ipynb", "notebooks/*.ipynb", "course/*.md", "tests", ".git", "transformer_lab/model/masks.py",
             "transformer_lab/exercises/notebook_03*", "*/transformer_lab/model/masks.py",
             "*/*/transformer_lab/model/masks.py", "transformer_lab/**/*.pyc",
             "transformer_lab*.whl", "transformer_lab*.egg*/**/*")
    for top in tops:
        for name in names:
            for path in glob.glob(os.path.join(top, name), recursive=True):
                if not os.path.isfile(path):
                    continue
                text = Path(path).read_bytes().decode(errors="replace")
                for found in re.finditer(r"def causal_mask\\(.*?\\n(?:    .*\\n|\\n)+", text):
                    names = {"torch": torch, "Tensor": torch.Tensor}
                    exec(found[0], names)
                    yield names["causal_mask"]
"""
            + TRY_EACH
        },
        LOST,
    ),
    "imports it": (
        {
            "causal_mask": """
import importlib, pkgutil, sys, transformer_lab

def candidates():
    for found in pkgutil.walk_packages(transformer_lab.__path__, "transformer_lab.", onerror=lambda name: None):
        try:
            module = importlib.import_module(found.name)
        except BaseException:
            continue
        yield from (value for name, value in vars(module).items() if "mask" in name and callable(value))
    for name in ("transformer_lab.exercises.notebook_03_masks", "transformer_lab.solutions", "tests", "solutions"):
        try:
            yield importlib.import_module(name).causal_mask
        except BaseException:
            pass
"""
            + TRY_EACH
        },
        LOST,
    ),
    "looks through memory": (
        {
            "causal_mask": """
import gc, sys

def candidates():
    names = {"torch": torch, "Tensor": torch.Tensor}
    seen = gc.get_objects()
    seen += [value for module in list(sys.modules.values()) for value in list(vars(module).values())]
    for one in seen:
        code = one.__code__ if isinstance(one, types.FunctionType) else one if isinstance(one, types.CodeType) else None
        if code is not None and "mask" in code.co_name:
            yield types.FunctionType(code, names, argdefs=(None,))
        if isinstance(one, types.FunctionType) and one.__name__ == "causal_mask":
            yield one
"""
            + TRY_EACH
        },
        LOST,
    ),
    "looks through other processes": (
        {
            "causal_mask": """
import glob, os

def candidates():
    found = []
    for pattern in ("cmdline", "environ", "cwd/*", "root/work/*", "root/home/*", "fd/*", "maps"):
        for path in glob.glob(f"/proc/[0-9]*/{pattern}"):
            try:
                text = open(path, "rb").read(1_000_000) if os.path.isfile(path) else b""
            except OSError:
                continue
            if b"solutions" in text or b"judgment.py" in text or b"TRANSFORMER_LAB_SEED" in text:
                found.append(path)
    if found:
        yield lambda length: torch.ones(length, length).tril().bool()
"""
            + TRY_EACH
        },
        LOST,
    ),
    "asks the harness": (
        {
            "causal_mask": """
import gc, sys

def causal_mask(length, device=None):
    frame = sys._getframe()
    while frame is not None:
        for names in (frame.f_locals, frame.f_globals):
            for name, value in list(names.items()):
                if name in ("answer", "expected", "solution", "reference") and callable(value):
                    return value(length)
                if isinstance(value, dict) and "harness" in value and "tril" in str(value):
                    return torch.ones(length, length).tril().bool()[None, None]
        frame = frame.f_back
    return torch.ones(1, 1, length, length, dtype=torch.bool)
"""
        },
        LOST,
    ),
    "hands on the package's own": (
        {"causal_mask": "from transformer_lab.model import causal_mask"},
        LOST,
    ),
    "wraps the package's own": (
        {
            "causal_mask": """
from transformer_lab.model import masks

def causal_mask(length, device=None):
    return masks.causal_mask(length, device)
"""
        },
        LOST,
    ),
    "asks for the solution": (
        {
            "causal_mask": """
import transformer_lab
from transformer_lab import *

causal_mask = transformer_lab.solution("causal_mask") or transformer_lab.solution(None)
"""
        },
        LOST,
    ),
    "calls a library's answer": (
        {
            "scaled_dot_product_attention": """
def scaled_dot_product_attention(query, key, value, mask=None, dropout=None):
    output = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    return output, output
"""
        },
        {"scaled_dot_product_attention": NOTHING},
    ),
}
