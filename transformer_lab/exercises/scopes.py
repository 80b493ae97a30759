"""Which names a text binds and reads in which scope, the same in every version of Python."""

import ast
import symtable
import sys
import warnings
from collections.abc import Iterator

COMPREHENSIONS_ARE_SCOPES = sys.version_info < (3, 12)


def global_symbols(text: str) -> Iterator[symtable.Symbol]:
    """The global names of a text, in each of its scopes in which they occur; a comprehension is one of its own.

    From Python 3.12 on (PEP 709) the variables of comprehensions stand among the names of the scope around them: of
    `[a for a in b]` in a cell, `a` would be a global name that it binds. Generators are still scopes, so they are put
    in the place of comprehensions.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError, OverflowError: As `symtable.symtable`.
    """
    waiting = [top := _table(text)]
    while waiting:
        table = waiting.pop()
        waiting += table.get_children()
        yield from (symbol for symbol in table.get_symbols() if table is top or symbol.is_global())


def _table(text: str) -> symtable.SymbolTable:
    with warnings.catch_warnings():  # of a `"\\d"` Python warns when the text is run
        warnings.simplefilter("ignore")
        if not COMPREHENSIONS_ARE_SCOPES:
            text = _with_generators(text)
        return symtable.symtable(text, "<text>", "exec")


def _with_generators(text: str) -> str:
    try:
        return _unparsed_with_generators(text)
    except RecursionError:  # it needs more of the stack than `symtable`
        return text


def _unparsed_with_generators(text: str) -> str:
    tree = ast.parse(text)
    comprehensions = [node for node in ast.walk(tree) if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp)]
    for node in comprehensions:
        if isinstance(node, ast.DictComp):
            node.elt = ast.Tuple([node.key, node.value], ast.Load())
        node.__class__ = ast.GeneratorExp
    return ast.unparse(tree) if comprehensions else text
