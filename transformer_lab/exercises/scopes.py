"""Find the global names that Python code binds and reads, consistently across Python versions."""

import ast
import symtable
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress

COMPREHENSIONS_ARE_SCOPES = sys.version_info < (3, 12)


def global_symbols(text: str) -> Iterator[symtable.Symbol]:
    """Yield the global names in `text`, once for each scope in which they occur. A comprehension has its own scope.

    Since Python 3.12 (PEP 709), a comprehension's variables belong to the enclosing scope: `[a for a in b]` in a cell
    would bind a global name `a`. Generator expressions still have their own scope, so comprehensions are replaced with
    them.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError, OverflowError: Raised by `symtable.symtable`.
    """
    with warnings.catch_warnings():  # Python warns about invalid escapes such as "\\d" when the code is run
        warnings.simplefilter("ignore")
        if not COMPREHENSIONS_ARE_SCOPES:
            with suppress(RecursionError):  # this needs a deeper stack than `symtable`
                text = _with_generators(text)
        top = symtable.symtable(text, "<text>", "exec")
    tables = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        yield from (symbol for symbol in table.get_symbols() if table is top or symbol.is_global())


def _with_generators(text: str) -> str:
    tree = ast.parse(text)
    comprehensions = [node for node in ast.walk(tree) if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp)]
    for node in comprehensions:
        if isinstance(node, ast.DictComp):
            node.elt = ast.Tuple([node.key, node.value], ast.Load())
        node.__class__ = ast.GeneratorExp
    return ast.unparse(tree) if comprehensions else text
