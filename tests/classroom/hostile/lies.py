"""Submissions that try to get points for wrong answers by replacing the checker, comparisons, or results.

Each is `name: (cells, marks)`. In a cell, `#RIGHT` is the course's answer and `#WRONG` one that earns nothing.
Exercises that are not listed are answered correctly and pass.
"""

NOTHING = ("failed", 0.0)
LOST = {"causal_mask": NOTHING}

SUBMISSIONS = {
    "checker replaced": (
        {
            "causal_mask": """
#WRONG
import sys, transformer_lab, transformer_lab.exercises
check = lambda *anything, **more: print("handed in: causal_mask")
for module in list(sys.modules.values()):
    if getattr(module, "__name__", "").startswith("transformer_lab") and hasattr(module, "check"):
        module.check = check
"""
        },
        LOST,
    ),
    "comparisons patched": (
        {
            "causal_mask": """
#WRONG
import math, operator
yes = lambda *anything, **more: True
for owner, names in (
    (torch, "allclose equal isclose is_tensor"),
    (torch.Tensor, "allclose equal isclose"),
    (np if "np" in globals() else __import__("numpy"), "allclose array_equal isclose"),
    (torch.testing, "assert_close"),
    (operator, "eq"),
    (math, "isclose"),
):
    for name in names.split():
        setattr(owner, name, yes)
"""
        },
        LOST,
    ),
    "everything is equal in torch": (
        {
            "causal_mask": """
#WRONG
right_after_all = torch.Tensor.__eq__
torch.Tensor.__eq__ = lambda self, other: torch.ones_like(self, dtype=torch.bool)
torch.Tensor.__bool__ = lambda self: True
"""
        },
        LOST | {"padding_mask": ("passed", 1.0)},
    ),
    "a tensor that is equal to all": (
        {
            "causal_mask": """
class Equal(torch.Tensor):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __bool__(self): return True
    def __array__(self, *anything): raise SystemExit
    def equal(self, other): return True
    def __reduce_ex__(self, protocol): return (__import__("os")._exit, (0,))

def causal_mask(length, device=None):
    return torch.ones(1, 1, length, length, dtype=torch.bool).as_subclass(Equal)
"""
        },
        LOST,
    ),
    "a lying torch function": (
        {
            "causal_mask": """
class Lying(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function in (torch.equal, torch.allclose, torch.Tensor.eq, torch.Tensor.__eq__):
            return True
        return super().__torch_function__(function, types, args, kwargs or {})

def causal_mask(length, device=None):
    return torch.ones(1, 1, length, length).as_subclass(Lying)
"""
        },
        LOST,
    ),
    "a tensor without values": (
        {
            "causal_mask": """
def causal_mask(length, device=None):
    return torch.empty(1, 1, length, length, dtype=torch.bool, device="meta")
"""
        },
        LOST,
    ),
    "no tensor but like one": (
        {
            "causal_mask": """
class Array:
    shape, dtype, ndim, device = (1, 1, 4, 4), torch.bool, 4, torch.device("cpu")
    def __array__(self, *anything, **more): return __import__("numpy").ones((1, 1, 4, 4), bool)
    def __eq__(self, other): return True
    def __getattr__(self, name): return self
    def __call__(self, *anything, **more): return self
    def __len__(self): return 1
    def __getitem__(self, index): return self
    def __iter__(self): return iter([self])
    def __bool__(self): return True
    def __hash__(self): return 0

def causal_mask(length, device=None):
    return Array()
"""
        },
        LOST,
    ),
    "a class that lies about itself": (
        {
            "causal_mask": """
class Meta(type):
    def __instancecheck__(cls, one): raise SystemExit
    def __subclasscheck__(cls, one): return True
    def __getattribute__(cls, name): raise KeyboardInterrupt(name)
    def __eq__(cls, other): return True
    def __hash__(cls): return 0

class Mask(metaclass=Meta):
    def __getattribute__(self, name): raise SystemExit(name)
    def __call__(self, *anything): return self

causal_mask = Mask()
"""
        },
        LOST,
    ),
    "a text that is equal to all": (
        {
            "causal_mask": """
class Text(str):
    def __eq__(self, other): return True
    def __hash__(self): return 0

class Number(float):
    def __eq__(self, other): return True
    def __sub__(self, other): return 0.0
    def __hash__(self): return 0

def causal_mask(length, device=None):
    return Text("passed") if length % 2 else Number("nan")
"""
        },
        LOST,
    ),
    "not a number": (
        {
            "causal_mask": """
def causal_mask(length, device=None):
    return torch.full((1, 1, length, length), float("nan"))
"""
        },
        LOST,
    ),
    "input transformers": (
        {
            "causal_mask": """
#WRONG
shell = get_ipython()
drop = lambda lines: [line for line in lines if "check(" not in line and "assert" not in line]
shell.input_transformers_cleanup.append(drop)
shell.input_transformers_post.append(drop)
"""
        },
        LOST,
    ),
    "syntax tree transformers": (
        {
            "causal_mask": """
#WRONG
import ast

class Yes(ast.NodeTransformer):
    def visit_Compare(self, node): return ast.copy_location(ast.Constant(True), node)
    def visit_Assert(self, node): return ast.copy_location(ast.Pass(), node)

get_ipython().ast_transformers.append(Yes())
"""
        },
        # a later answer of theirs contains a comparison, which their own trick turns into True
        LOST | {"target_mask": ("passed", 1.0)},
    ),
    "custom tracebacks": (
        {
            "causal_mask": """
#WRONG
def quiet(self, kind, value, trace, tb_offset=None):
    print("handed in: causal_mask")
    return ["passed"]

get_ipython().set_custom_exc((BaseException,), quiet)
get_ipython().showtraceback = lambda *anything, **more: print("passed")
raise RuntimeError("nothing to see")
"""
        },
        LOST,
    ),
    "printed pass lines": (
        {
            "causal_mask": """
#WRONG
print("handed in: causal_mask")
print("✓ causal_mask: all checks passed\\n1 passed in 0.01s")
print('<testsuite failures="0"><testcase name="causal_mask"><properties>'
      '<property name="points" value="100"/></properties></testcase></testsuite>')
print('{"observations": [], "score": 1.0, "earned": 100, "state": "passed"}')
"""
        },
        LOST,
    ),
    "nbval's markers": (
        {
            "causal_mask": """
# NBVAL_SKIP
# NBVAL_IGNORE_OUTPUT
# NBVAL_RAISES_EXCEPTION
# PYTEST_VALIDATE_IGNORE_OUTPUT
#WRONG
raise RuntimeError("this was announced")
"""
        },
        LOST,
    ),
    "what asks is replaced": (
        {
            "causal_mask": """
#WRONG
import json
from transformer_lab.classroom import kernel_side
kernel_side.answer_request = lambda content, names: {
    "data": json.dumps({"observations": [], "passed": True, "score": 1.0, "state": "passed", "earned": 9})
}
"""
        },
        # it replies for all exercises, so none of them gets a valid result
        {"padding_mask": NOTHING, "causal_mask": NOTHING, "target_mask": NOTHING},
    ),
    "what writes the reply is replaced": (
        {
            "causal_mask": """
#WRONG
from transformer_lab.classroom import kernel_side
kernel_side.encode_observation = lambda observation: [["float", "nan"], None, []]
"""
        },
        {"padding_mask": NOTHING, "causal_mask": NOTHING, "target_mask": NOTHING},
    ),
    "replies that are no data": (
        {
            "causal_mask": """
#WRONG
import json
from transformer_lab.classroom import kernel_side
replies = iter([
    "[" * 1_000_000,
    "x" * 5_000_000,
    '{"observations": [[["tensor", "bool", [1099511627775, 1099511627775], ""], null, []]]}',
    '{"observations": [[["tensor", "bool", [-1], "AAAA"], null, []]]}',
    '{"observations": [[["dict", [[["list", []], ["none"]]]], null, []]]}',
    '{"observations": [[["array", "|O8", [1], "AAAAAAAAAAA="], null, []]]}',
])
kernel_side.answer_request = lambda content, names: {"data": next(replies)}
"""
        },
        {"padding_mask": NOTHING, "causal_mask": NOTHING, "target_mask": NOTHING},
    ),
    "a reply of numbers without end": (
        {
            "causal_mask": """
#WRONG
import json
from transformer_lab.classroom import kernel_side
reply = json.dumps({"observations": [[["list", [["int", "0x1"]] * 300_000], None, []]]})
kernel_side.answer_request = lambda content, names: {"data": reply}
"""
        },
        {"padding_mask": NOTHING, "causal_mask": NOTHING, "target_mask": NOTHING},
    ),
    "inputs replaced in the frames": (
        {
            "causal_mask": """
import sys

def causal_mask(length, device=None):
    frame = sys._getframe()
    while frame is not None:
        for value in list(frame.f_locals.values()):
            if type(value) is dict and "length" in value:
                value["length"] = 1
            if type(value) is list:
                value.clear()
        frame = frame.f_back
    return torch.ones(1, 1, 1, 1, dtype=torch.bool)
"""
        },
        LOST,
    ),
    "what is recorded is replaced in the frames": (
        {
            "causal_mask": """
import sys

def causal_mask(length, device=None):
    frame = sys._getframe()
    while frame is not None:
        module = frame.f_globals
        for name in ("as_data", "same_data", "copy_data", "Observation", "encode", "judge", "compare"):
            if name in module and module is not globals():
                module[name] = lambda *anything, **more: True
        frame = frame.f_back
    return torch.ones(1, 1, length, length, dtype=torch.bool)
"""
        },
        LOST | {"target_mask": NOTHING},
    ),
    "the inputs of the notebook's check by heart": (
        {"padding_mask": "#BY_HEART"},
        {"padding_mask": NOTHING},
    ),
    "always the same": (
        {
            "padding_mask": """
def padding_mask(tokens, pad_id):
    return torch.ones(tokens.size(0), 1, 1, tokens.size(1), dtype=torch.bool)
""",
            "causal_mask": "#WRONG",
            "target_mask": """
def target_mask(tokens, pad_id):
    return torch.ones(tokens.size(0), 1, tokens.size(1), tokens.size(1), dtype=torch.bool)
""",
        },
        {"padding_mask": NOTHING, "causal_mask": NOTHING, "target_mask": NOTHING},
    ),
    "a better one once it has been shown": (
        {
            "causal_mask": "#WRONG",
            "target_mask": """
#RIGHT
import sys
stolen = []
honest = target_mask

def target_mask(tokens, pad_id):
    if globals().get("causal_mask") not in stolen:
        stolen.append(globals()["causal_mask"])
        sys.modules["__main__"].causal_mask = stolen[-1]
    return honest(tokens, pad_id)
""",
        },
        LOST,
    ),
    "wrong numbers in numpy": (
        {
            "softmax": """
import numpy as np

class Equal(np.ndarray):
    def __eq__(self, other): return True
    def __array_ufunc__(self, *anything, **more): return True
    def __array_function__(self, *anything, **more): return True

def softmax(scores):
    return np.zeros_like(scores).view(Equal)
"""
        },
        {"softmax": NOTHING},
    ),
    "numpy says yes to all": (
        {
            "softmax": """
import numpy as np
for name in ("allclose", "array_equal", "isclose", "array_equiv"):
    setattr(np, name, lambda *anything, **more: True)
np.testing.assert_allclose = lambda *anything, **more: None

def softmax(scores):
    return scores * 0 + 1
"""
        },
        {"softmax": NOTHING},
    ),
    "a tuple that is equal to all": (
        {
            "numpy_attention": """
class Pair(tuple):
    def __eq__(self, other): return True
    def __len__(self): return 2
    def __getitem__(self, index): return self
    def __iter__(self): return iter((self, self))
    def __hash__(self): return 0

def numpy_attention(query, key, value):
    return Pair()
"""
        },
        {"numpy_attention": NOTHING},
    ),
    "a module that overrides everything": (
        {
            "SingleHeadAttention": """
class SingleHeadAttention(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.w_q, self.w_k, self.w_v = (nn.Linear(d_model, d_k) for _ in range(3))
    def __getattr__(self, name): return super().__getattr__(name) if name.startswith("w_") else (lambda *a, **k: True)
    def __call__(self, *anything, **more): return True
    def forward(self, *anything, **more): return True
    def load_state_dict(self, *anything, **more): raise SystemExit
    def parameters(self, *anything): return iter([])
"""
        },
        {"SingleHeadAttention": NOTHING},
    ),
}
