"""Find calls to ready-made library answers in source code. The code is not run."""

import ast
from collections.abc import Mapping, Sequence

USUAL_NAMES = {"torch": "torch", "nn": "torch.nn", "F": "torch.nn.functional", "np": "numpy", "scipy": "scipy"}


def library_answers(source: str, banned: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """Return the full names of the banned functions and methods that `source` uses, in order of use.

    Args:
        source: Python source. If it cannot be parsed, the result is empty.
        banned: Full names, such as `torch.nn.functional.softmax`. A trailing dot bans everything below the name. A
            leading dot bans methods of that name on any object.
        names: Maps each name bound by an import outside `source` to its full name.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    known = dict(names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.split(".")[0]
                known[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    uses = set()
    for node in ast.walk(tree):
        full = _full_name(node, known)
        for name in banned:
            if full == name or (name.endswith(".") and full.startswith(name)):
                uses.add((node.lineno, full))
        if isinstance(node, ast.Attribute) and f".{node.attr}" in banned:
            uses.add((node.lineno, full or f".{node.attr}"))
    return list(dict.fromkeys(name for _, name in sorted(uses)))


def _full_name(node: ast.AST, known: Mapping[str, str]) -> str:
    """Return `torch.nn.functional.softmax` for `F.softmax`. If the expression is not a dotted name, return ""."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in known:
        return ""
    return ".".join([known[node.id], *reversed(parts)])
