"""The half of the scoring that runs alongside the student's code.

It finds the student's object, calls it, and returns plain data. It does not know the answers. The other half,
`scoring.py`, assumes that the student may have forged everything it receives.
"""

import importlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FunctionType
from typing import Any

from torch import nn

from transformer_lab.classroom.wire import decode, encode_observation
from transformer_lab.exercises.harnesses import harness_from_source
from transformer_lab.exercises.observation import (
    NotData,
    Observation,
    is_unwritten,
    namespace,
    observe,
    preserved_global_state,
    timed_out,
)
from transformer_lab.exercises.time_limit import Ran, run_limited

MOST_CHARACTERS = 6 * 2**20  # per reply


def answer_request(content: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    """Return the reply to a request: the observations of the object in `names` that has the exercise's name."""
    try:
        reply = _observed(json.loads(content["data"]), names)
    except BaseException as error:
        reply = {"broken": f"{type(error).__name__}: {str(error)[:300]}"}
    return {"data": json.dumps(reply)}


def _observed(request: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    if request["name"] not in names:
        return {"missing": True}
    subject, is_object = names[request["name"]], False
    if request["blank"] and not isinstance(subject, type) and isinstance(subject, nn.Module):
        subject, is_object = type(subject), True
    if not callable(subject):
        return {"kind": type(subject).__name__[:100]}
    if is_unwritten(subject, tuple(request["blank"])):
        return {"unwritten": True}
    jobs = [_job(subject, check) for check in request["checks"]]
    with _earlier_parts(request["earlier"], subject), preserved_global_state():
        try:
            ran = run_limited(jobs)
        except RuntimeError:  # the student's code has already started as many threads as allowed
            ran = Ran([job() for job in jobs], "", [])
    results = ran.results + [timed_out(ran.stuck_at)] * (len(ran.results) < len(jobs))
    return {"observations": _encoded(results), "remark": is_object}


def _encoded(results: list[Observation]) -> list:
    encoded, left = [], MOST_CHARACTERS
    for result in results:
        wire = encode_observation(result)
        left -= len(json.dumps(wire))
        encoded.append(wire if left > 0 else encode_observation(replace(result, value=NotData("a very large result"))))
    return encoded


def _job(subject: Any, check: dict[str, Any]) -> Callable[[], Observation]:
    harness, inputs = harness_from_source(check["harness"]), decode(check["inputs"])
    return lambda: observe(subject, harness, inputs, check["seed"])


@contextmanager
def _earlier_parts(earlier: list[dict[str, str]], subject: Any) -> Iterator[None]:
    """Let the student's code use correct earlier parts, so that a mistake costs points only once.

    This replaces the earlier parts defined in the same module as the student's object, and adds those that are missing.
    An imported part is kept, because the student chose it. A part from the same notebook is passed in as source code,
    because that part is empty in this package.
    """
    names = namespace(subject)
    replacements, from_source = {}, {}
    for part in earlier:
        name = part["name"]
        module = importlib.import_module(part["module"])
        packaged = getattr(module, name)
        if part["source"]:
            scope = vars(module) | from_source
            exec(compile(part["source"], "<harness>", "exec", dont_inherit=True), scope)
            from_source[name] = scope[name]
        current = names.get(name, packaged)
        if current is packaged or not _is_imported(current, names.get("__name__", "")):
            replacements[name] = from_source.get(name, packaged)
    replaced = {name: names[name] for name in replacements if name in names}
    names.update(replacements)
    try:
        yield
    finally:
        names.update(replaced)
        for name in replacements.keys() - replaced.keys():
            names.pop(name, None)


def _is_imported(value: Any, home: Any) -> bool:
    """Return whether a function or class comes from a module other than `home`, without calling any of its code."""
    if type(value) is FunctionType:
        module = value.__module__
    elif issubclass(type(value), type):  # `isinstance` would trust an object's own `__class__`
        module = type.__getattribute__(value, "__module__")
    else:
        return False
    return type(module) is str and module != home
