"""Checks of command-line values, files, and hyperparameters. Each error names its option.

Options are declared as strings and checked by a callback, because Typer's own messages differ between versions. Nothing
here imports PyTorch, so errors are reported right away.
"""

import errno
import inspect
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from rich.markup import escape

from transformer_lab.errors import InputError
from transformer_lab.presets import LARGEST_BEAM, Preset
from transformer_lab.shipped import PACKAGE

SEARCHED = ("n_heads", "dropout", "label_smoothing")  # the search chooses these itself
METAVARS = {
    str: "NAME",
    int: "N",
    float: "X",
    bool: "true|false",
    int | None: "N|none",
    tuple[float, float]: "X,X",
}


class Group(typer.core.TyperGroup):
    """A command group. If the user can fix an error, it prints one line on stderr and exits without a traceback."""

    def get_params(self, ctx: Any) -> Any:
        return hide_types(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:  # None if the calling process has closed it
                sys.stdout.flush()  # now, because later a closed pipe couldn't be told from other errors
            return result
        except InputError as error:
            status, message = 1, str(error)
        except ModuleNotFoundError as error:
            from transformer_lab.doctor import GRADING_PACKAGES, INSTALL, NOTEBOOK_PACKAGES, TRAINING_PACKAGES

            if error.name not in {*TRAINING_PACKAGES, *NOTEBOOK_PACKAGES, *GRADING_PACKAGES}:
                raise
            status, message = 1, f"{error.name} is not installed: {INSTALL}"
        except KeyboardInterrupt as interrupt:
            status, message = 130, str(interrupt) or "interrupted"
        except OSError as error:
            if error.filename is not None:
                status, message = 1, f"{error.filename}: {error.strerror}"
            elif error.errno in (errno.ENOSPC, errno.EDQUOT):  # other files have names, so this is stdout
                status, message = 1, f"cannot write the output ({error.strerror}): make room, or send it elsewhere"
                sys.stdout = None  # otherwise Python tries again when it exits, and prints a traceback
            else:  # such as a closed pipe
                raise
        print(f"transformer-lab: {message}", file=sys.stderr)
        raise typer.Exit(status)


class Command(typer.core.TyperCommand):
    """A command whose errors name the option at fault, and whose help fits the width of the terminal."""

    def __init__(self, *args: Any, help: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, help=unwrap(help or ""), **kwargs)

    def get_params(self, ctx: Any) -> Any:
        return hide_types(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except InputError as error:
            raise InputError(with_options(error, self.params, ctx.params)) from None


def unwrap(text: str) -> str:
    """Join the lines of each paragraph.

    If a paragraph starts with a backspace (\\b), keep its line breaks, as Typer does.
    """
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(each if each.startswith("\b") else each.replace("\n", " ") for each in paragraphs)


def with_options(error: InputError, parameters: Sequence[Any], values: Mapping[str, Any]) -> str:
    """Return an error message that names the offending option, given a command's parameters and their values by name.

    A parameter in backticks is replaced with its option: `epochs` becomes --epochs. Otherwise, the option for the
    error's `parameter` is added at the end. If the error has no `parameter`, the options whose path or address appears
    in the message are added instead.
    """
    options = {each.name: each for each in parameters if each.opts[0].startswith("--")}
    message = re.sub(r"`(\w+)`", lambda name: options[name[1]].opts[0] if name[1] in options else name[0], str(error))
    if error.parameter in options:
        at_fault = [error.parameter]
    else:
        typed = {name: value for name, value in values.items() if name in options and value != options[name].default}
        paths = {name: path for name, path in typed.items() if isinstance(path, Path) or name in ("corpus", "cluster")}
        at_fault = [name for name, path in paths.items() if is_shown(path, message)]
    if not at_fault or "--" in message:
        return message
    return f"{message} ({', '.join(options[name].opts[0] for name in at_fault)})"


def is_shown(path: str | Path, message: str) -> bool:
    """Return whether a message contains a path or an address that is not just part of a longer word."""
    forms = "|".join(re.escape(str(form)) for form in (path, Path(path).resolve()))
    return bool(re.search(rf"(?<![\w/])({forms})(?!\w)", message))


def hide_types(parameters: list[Any]) -> list[Any]:
    """Leave `<bool>` and `<str>` out of the help: a flag takes no value, and an argument's metavar is enough."""
    for parameter in parameters:
        if getattr(parameter, "is_bool_flag", False):
            parameter.metavar = ""
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: None
    return parameters


# --- checks of single values ------------------------------------------------------------------------------------------


def check(convert: Callable[[str], Any], allowed: str, accepts: Callable[[Any], Any] | None = None) -> Any:
    """Return a callback that converts an option's text, or raises an error that says which values are allowed.

    Args:
        convert: Converts the text to a value, or raises `ValueError`.
        allowed: Describes the values in words.
        accepts: Returns whether a value is allowed. By default, all values are allowed.
    """

    def callback(parameter: typer.CallbackParam, text: Any) -> Any:
        if text is None:
            return None
        try:
            value = convert(str(text))
            if accepts is None or accepts(value):
                return value
        except ValueError:
            pass
        raise InputError(f"{parameter.opts[0]} must be {allowed}; got {str(text)!r}")

    return callback


def whole(least: int | None = None, most: int | None = None) -> Any:
    """Check that the text is an integer. If a range is given, check that the integer is within it."""
    allowed = f" from {least} to {most}" if most is not None else "" if least is None else f", {least} or more"
    smallest, largest = -math.inf if least is None else least, math.inf if most is None else most
    return check(int, f"a whole number{allowed}", lambda number: smallest <= number <= largest)


def one_of(*choices: str) -> Any:
    return check(str, f"one of {', '.join(choices)}", choices.__contains__)


def matching(pattern: str, allowed: str) -> Any:
    """Check that the whole text matches a regular expression; `allowed` describes it in words."""
    return check(str, allowed, re.compile(pattern).fullmatch)


FINITE = check(float, "a finite number", math.isfinite)
existing_folder = check(Path, "an existing folder", Path.is_dir)
existing_file = check(Path, "an existing file", Path.is_file)


def new_folder(parameter: typer.CallbackParam, value: Path | None) -> Path | None:
    """Check that the folder exists or could be created. Neither the folder nor any of its parents may be a file."""
    if value is not None:
        refuse_file(parameter, value, (value, *value.parents))
    return value


def file_name(*suffixes: str) -> Callable[..., Any]:
    """Check that a path could be the name of a file. If suffixes are given, check that it has one of them."""

    def callback(parameter: typer.CallbackParam, value: Path | None) -> Path | None:
        if value is None:
            return None
        if suffixes and value.suffix.lower() not in suffixes:
            raise InputError(f"{parameter.opts[0]} must end in {' or '.join(suffixes)}; got {str(value)!r}")
        if value.is_dir():
            raise InputError(f"{parameter.opts[0]} must be a file; {str(value)!r} is a folder")
        refuse_file(parameter, value, value.parents)
        return value

    return callback


def refuse_file(parameter: typer.CallbackParam, value: Path, folders: Iterable[Path]) -> None:
    for path in folders:
        if path.exists() and not path.is_dir():
            raise InputError(f"{parameter.opts[0]} cannot be {str(value)!r}: {path} is a file, not a folder")


def check_languages(source: str, target: str) -> None:
    """Check that the two languages differ.

    Raises:
        InputError: The two languages are the same.
    """
    if source == target:
        raise InputError(f"--source and --target must be two different languages; got {source!r} twice")


def check_corpus(corpus: str, data_dir: Path | None) -> None:
    """Check that a corpus exists, before the slow imports that reading it requires.

    Raises:
        InputError: The corpus is not one of those included, and no such file or folder exists.
    """
    folders = [Path(), data_dir or Path(os.environ.get("TRANSFORMER_LAB_DATA", ""))]
    if corpus not in ("multi30k", "captions") and not (corpus and any((each / corpus).exists() for each in folders)):
        raise InputError(f"--corpus must be captions, multi30k, or an existing folder or table; got {corpus!r}")


def check_layer_and_head(model: Path | None, layer: int, head: int | None) -> None:
    """Check that the model in a folder has the layer and the head. Loading the model will report a damaged config.json.

    Raises:
        InputError: The model does not have the layer or the head.
    """
    try:
        config = dict(json.loads(((model or PACKAGE / "pretrained") / "config.json").read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError, RecursionError):
        return
    for name, index in (("layer", layer), ("head", head)):
        count = config.get(f"n_{name}s")
        if index is not None and isinstance(count, int) and not -count <= index < count:
            raise InputError(f"--{name} must be from {-count} to {count - 1} for this model; got {index}")


# --- options shared by several commands -------------------------------------------------------------------------------


def option(
    name: str, metavar: str, help: str, callback: Callable[..., Any] | None = None, default: str | Path | None = None
) -> Any:
    """Declare an option. Numbers are declared as text and converted by the callback, whose errors name the option."""
    return typer.Option(default, name, metavar=metavar, help=help, callback=callback)


def flag(name: str, help: str, default: bool = False) -> Any:
    """Declare an option without a value, or a pair of such options: `--prune/--no-prune`."""
    return typer.Option(default, name, help=help)


MODEL = option(
    "--model",
    "FOLDER",
    "folder of a trained model; default: the German-English model that comes with the course",
    existing_folder,
)
DATA_DIR = option(
    "--data-dir", "FOLDER", "folder that holds the corpus; default: download it once and keep it", existing_folder
)
BEAM = option(
    "--beam", "N", "beam size: hypotheses kept at each step; 1 decodes greedily", whole(1, LARGEST_BEAM), default="4"
)
ALPHA = option("--alpha", "X", "length penalty; larger values favor longer translations", FINITE, default="1.5")
SOURCE = option("--source", "CODE", "language to translate from, such as de", default="de")
TARGET = option("--target", "CODE", "language to translate into, such as en", default="en")


# --- hyperparameters --------------------------------------------------------------------------------------------------


def with_preset_options(hidden: tuple[str, ...] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add an option for each preset field to a command that takes `**fields`.

    Args:
        hidden: Fields whose options are left out of the help.
    """
    kinds = get_type_hints(Preset)
    options = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                str | None,
                typer.Option(
                    option_of(field.name),
                    metavar=METAVARS.get(kinds[field.name]) or "|".join(get_args(kinds[field.name])),
                    help=escape(field.metadata["help"]),
                    rich_help_panel="Hyperparameters (the preset supplies the defaults)",
                    hidden=field.name in hidden,
                ),
            ],
        )
        for field in fields(Preset)
        if field.name != "name"
    ]

    def extend(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command)
        fixed = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        command.__signature__ = signature.replace(parameters=[*fixed, *options])
        command.__annotations__ |= {option.name: option.annotation for option in options}
        return command

    return extend


def option_of(field: str) -> str:
    """Return the option for a preset's field: `--max-tokens` for `max_tokens`."""
    return f"--{field.replace('_', '-')}"


def check_unsearched(given: Mapping[str, str]) -> None:
    """Check that the user has not set any hyperparameter that the search itself varies.

    Raises:
        InputError: Such a hyperparameter was given.
    """
    for name in (*SEARCHED, "validate_every"):
        if name in given:
            reason = "the search chooses it" if name in SEARCHED else "trials are compared after every epoch"
            raise InputError(f"{option_of(name)} cannot be given to a search, because {reason}: leave it out")
    if given.get("schedule", "linear") != "linear":
        raise InputError("--schedule must be linear in a search, which varies --peak-rate; leave it out")
