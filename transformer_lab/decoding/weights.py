"""A model's weights on disk: safetensors, replaced in one step, never pickled."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from transformer_lab.errors import InputError


def cannot_write(path: Path, error: OSError | SafetensorError) -> InputError:
    """The line that says what keeps `path` from being written."""
    reason = error.strerror if isinstance(error, OSError) else str(error).rpartition("I/O error: ")[2]
    return InputError(
        f"cannot write {path} ({reason}): make room there or choose another folder; what was saved before is intact"
    )


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say in one line what keeps `path` from being written.

    Raises:
        InputError: the folder cannot be written, or the disk is full.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise cannot_write(path, error) from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to. What is written there takes the place of `path` at once, or not at all.

    Raises:
        InputError: the folder cannot be written, or the disk is full; the old file is as it was.
    """
    unfinished = path.with_name(path.name + ".part")
    try:
        yield unfinished
        with open(unfinished, "rb+") as file:
            os.fsync(file.fileno())  # the bytes must be on the disk before the name is
        os.chmod(unfinished, 0o644)  # safetensors lets nobody but the owner read
        os.replace(unfinished, path)
    except (OSError, SafetensorError) as error:
        raise cannot_write(path, error) from None
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


@contextmanager
def replacing_together(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """A folder inside `folder` to write files of these names to. They take the places of the old ones all, or none.

    No file system replaces several files in one step. So all are written whole first; the old ones are put back if one
    cannot be replaced. Only a machine that stops between the first and the last of the renamings, some microseconds,
    leaves files of two kinds.

    Raises:
        InputError: the folder cannot be written, or the disk is full; the old files are as they were.
    """
    scratch = folder / ".unfinished"
    kept = scratch / "old"
    moved: list[str] = []
    path = folder
    try:
        shutil.rmtree(scratch, ignore_errors=True)  # of a run that was killed
        kept.mkdir(parents=True)
        yield scratch
        for name in names:
            path = folder / name
            with open(scratch / name, "rb+") as file:
                os.fsync(file.fileno())  # the bytes must be on the disk before the name is
            os.chmod(scratch / name, 0o644)  # safetensors lets nobody but the owner read
            if path.exists():
                keep_aside(path, kept / name)
        for name in names:
            path = folder / name
            os.replace(scratch / name, path)
            moved.append(name)
    except (OSError, SafetensorError) as error:
        raise cannot_write(path, error) from None
    finally:
        for name in moved if len(moved) < len(names) else ():
            if (kept / name).exists():
                os.replace(kept / name, folder / name)
            else:
                (folder / name).unlink()
        shutil.rmtree(scratch, ignore_errors=True)


def keep_aside(path: Path, copy: Path) -> None:
    """A second name for the same file, or a copy of it where the file system has no such thing."""
    try:
        os.link(path, copy)
    except OSError:
        shutil.copy2(path, copy)


def model_weights(model: nn.Module) -> dict[str, Tensor]:
    """The parameters of `model` by name; one that has several names (tied embeddings) stands under its first alone.

    Buffers are left out: a table of positions is computed, and whether it is a buffer is up to whoever wrote the model.
    """
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, those in half precision as float32.

    Raises:
        InputError: the file is missing or not whole.
    """
    if not path.is_file():
        raise InputError(f"{path} is missing: give the folder of a trained model")
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise InputError(f"{path} is damaged ({error}): copy it again, or train the model again") from None
    return {
        name: tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
        for name, tensor in tensors.items()
    }


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], origin: Path) -> None:
    """Copy `weights`, named as `model_weights` names them, into `model`.

    Raises:
        InputError: they are of another model; the message names `origin` and the first tensor that differs.
    """
    own = model_weights(model)
    remedy = "take weights.safetensors and config.json from the same run"
    for name, tensor in own.items():
        if name not in weights:
            raise InputError(f"{origin} has no {name}, which its config.json asks for: {remedy}")
        if weights[name].shape != tensor.shape:
            raise InputError(
                f"{origin} is of another model: {name} is {tuple(weights[name].shape)} there, "
                f"but {tuple(tensor.shape)} by its config.json: {remedy}"
            )
    for name in weights:
        if name not in own:
            raise InputError(f"{origin} has {name}, which the model of its config.json has not: {remedy}")
    for name, tensor in own.items():
        tensor.copy_(weights[name])
