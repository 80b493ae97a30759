"""A model's weights on disk: safetensors, replaced in one step, never pickled."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from transformer_lab.errors import InputError


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
        reason = error.strerror if isinstance(error, OSError) else str(error).rpartition("I/O error: ")[2]
        raise InputError(
            f"cannot write {path} ({reason}): make room there or choose another folder; what was saved before is intact"
        ) from None
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def model_weights(model: nn.Module) -> dict[str, Tensor]:
    """The state of `model` by name; a tensor that has several names (tied embeddings) stands under its first alone."""
    weights: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():  # the very tensors, not views of them
        if id(tensor) not in seen:
            seen.add(id(tensor))
            weights[name] = tensor.detach()
    return weights


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
