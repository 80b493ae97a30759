"""Find uses of ready-made library answers in source code. The code is not run."""

from collections.abc import Iterable, Mapping

from transformer_lab.exercises.cells import names_of

USUAL_NAMES = {"torch": "torch", "nn": "torch.nn", "F": "torch.nn.functional", "np": "numpy", "scipy": "scipy"}


def library_answers(source: str, banned: Iterable[str], names: Mapping[str, str]) -> list[str]:
    """Return the full names of the banned functions and methods that `source` uses, in order of use.

    Args:
        source: Python source. If it cannot be parsed, the result is empty.
        banned: Full names, such as `torch.nn.functional.softmax`. A trailing dot bans everything below the name. A
            leading dot bans methods of that name on any object.
        names: Maps each name bound by an import outside `source` to its full name.
    """
    found = names_of(source)
    known = {**names, **found.imports}
    used = [".".join([known.get(name, ""), *attributes]) for _, name, attributes in found.uses]
    return [name for name in dict.fromkeys(used) if is_library_answer(name, banned)]


def is_library_answer(name: str, banned: Iterable[str]) -> bool:
    """Return whether `name` is banned, or is the same function elsewhere in the library: `torch._C._nn.softmax`."""
    library, last = name.partition(".")[0], name.rpartition(".")[2]
    for answer in banned:
        if answer.startswith("."):
            if answer[1:] in name.split(".")[1:]:
                return True
            continue
        if name == answer or name.startswith(f"{answer.rstrip('.')}."):
            return True
        if library == answer.partition(".")[0] and last in (answer.rpartition(".")[2], "*"):
            return last != "*" or answer.startswith(name[:-1])
    return False
