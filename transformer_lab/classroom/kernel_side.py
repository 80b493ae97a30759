"""The half of scoring that runs next to the student's code: it finds their object, calls it, and returns plain data.

It knows no answer, and the other half, `scoring.py`, treats whatever it says as something the student may have written.
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

MOST_CHARACTERS = 6 * 2**20  # of a reply


def answer_request(content: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    """The reply to one request: what was observed of the object that `names` has under the name of the exercise."""
    try:
        reply = _observed(json.loads(content["data"]), names)
    except BaseException as error:
        reply = {"broken": f"{type(error).__name__}: {str(error)[:300]}"}
    return {"data": json.dumps(reply)}


def _observed(request: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    if request["name"] not in names:
        return {"missing": True}
    subject, remark = names[request["name"]], ""
    if request["blank"] and not isinstance(subject, type) and isinstance(subject, nn.Module):
        subject, remark = type(subject), "This was an object of the class; its class has been scored."
    if not callable(subject):
        return {"kind": type(subject).__name__[:100]}
    if is_unwritten(subject, tuple(request["blank"])):
        return {"unwritten": True}
    jobs = [_job(subject, check) for check in request["checks"]]
    with _earlier_parts(request["earlier"], subject), preserved_global_state():
        try:
            ran = run_limited(jobs)
        except RuntimeError:  # no thread can be started, because the student's code has started all that may be
            ran = Ran([job() for job in jobs], "", [])
    results = ran.results + [timed_out(ran.stuck_at)] * (len(ran.results) < len(jobs))
    return {
        "observations": _encoded(results),
        "printed": ran.printed,
        "remark": remark,
    }


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
    """Let the student's code see right earlier parts under their names, so that one mistake costs once.

    Only what was defined beside the student's object is replaced, or what its cell failed to define: a name that was
    imported is meant as it is. A part comes as its source where the package that is here has it empty, because it
    belongs to the same notebook.
    """
    names = namespace(subject)
    replaced, added, made = {}, [], {}
    for part in earlier:
        name = part["name"]
        module = importlib.import_module(part["module"])
        if part["source"]:
            inner = vars(module) | made
            exec(compile(part["source"], "<harness>", "exec", dont_inherit=True), inner)
            made[name] = inner[name]
        right = made.get(name) or getattr(module, name)
        if name not in names:
            added.append(name)
            names[name] = right
            continue
        own = names[name]
        if own is getattr(module, name) or not _is_imported(own, names.get("__name__", "")):
            replaced[name] = own
            names[name] = right
    try:
        yield
    finally:
        names.update(replaced)
        for name in added:
            names.pop(name, None)


def _is_imported(one: Any, home: Any) -> bool:
    """Whether a function or class comes from another module than `home`. Nothing of it is called to find out."""
    if type(one) is FunctionType:
        module = one.__module__
    elif issubclass(type(one), type):  # an object may lie about its `__class__`
        module = type.__getattribute__(one, "__module__")
    else:
        return False
    return type(module) is str and module != home
