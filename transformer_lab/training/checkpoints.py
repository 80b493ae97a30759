"""Save weights and training states as safetensors files with JSON headers.

Files are replaced atomically, and nothing is pickled.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from transformer_lab.decoding.weights import load_weights, model_weights
from transformer_lab.errors import InputError
from transformer_lab.files import replacing

MODEL_HAS_CHANGED = "the model has changed since this run started, so restore it or train in a new folder"


def average_checkpoints(state_dicts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Average the weights of several checkpoints (section 6.1 averages the last 5 of the base model).

    Args:
        state_dicts: The checkpoints, oldest first, all with the same names and shapes. They are not modified.

    Returns:
        The mean of each floating-point tensor, summed in float64 and converted back to the tensor's dtype. All other
        tensors are copied from the last checkpoint.

    Raises:
        ValueError: There are no checkpoints, or their names differ.
    """
    if not state_dicts:
        raise ValueError("no checkpoints to average: give at least one")
    last = state_dicts[-1]
    for state_dict in state_dicts:
        if state_dict.keys() != last.keys():
            differing = ", ".join(sorted(state_dict.keys() ^ last.keys()))
            raise ValueError(f"checkpoints of different models cannot be averaged: not all of them have {differing}")
    averaged = {}
    for name, tensor in last.items():
        if tensor.is_floating_point():
            total = sum(state_dict[name].double() for state_dict in state_dicts)
            averaged[name] = (total / len(state_dicts)).to(tensor.dtype)
        else:
            averaged[name] = tensor.clone()
    return averaged


def save_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors to a file, with `facts` as JSON in its header, so that the two always match."""
    with replacing(path) as unfinished:
        save_file(
            {name: tensor.contiguous() for name, tensor in tensors.items()},
            unfinished,
            metadata={"facts": json.dumps(facts)},
        )


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return `(tensors, facts)` as written by `save_tensors`. The tensors are on the CPU.

    Raises:
        InputError: The file is missing or incomplete, or `save_tensors` didn't write it.
    """
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
        facts = json.loads(metadata.get("facts", "null"))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: start this run again in another folder") from None
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({error}): start this run again in another folder") from None
    if "facts" not in metadata:
        raise InputError(f"{path} holds no training state: start this run again in another folder")
    return tensors, facts


def save_training_state(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, facts: Mapping[str, Any]
) -> None:
    """Write everything needed to resume a run: the weights, the optimizer's moments, and `facts` such as the step."""
    tensors = {f"model.{name}": tensor for name, tensor in model_weights(model).items()}
    for name, parameter in model.named_parameters():
        for moment, tensor in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{moment}.{name}"] = tensor
    save_tensors(path, tensors, facts)


def load_training_state(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Restore `model` and `optimizer` from a file that `save_training_state` wrote, and return the facts.

    Raises:
        InputError: The file is missing, damaged, or from a different model.
    """
    tensors, facts = load_tensors(path)
    weights: dict[str, Tensor] = {}
    moments: dict[str, dict[str, Tensor]] = {name: {} for name, _ in model.named_parameters()}
    for key, tensor in tensors.items():
        part, _, name = key.partition(".")
        if part == "model":
            weights[name] = tensor
        else:
            moment, _, name = name.partition(".")
            moments.setdefault(name, {})[moment] = tensor
    load_weights(model, weights, path, MODEL_HAS_CHANGED)
    if not any(moments.values()):
        raise InputError(f"{path} is damaged (no optimizer state): start this run again in another folder")
    for name, parameter in model.named_parameters():
        for moment, value in moments[name].items():
            # torch's kernels don't check these shapes, so they would read past the end of a tensor that is too small.
            shape = torch.Size() if moment == "step" else parameter.shape
            if not value.is_floating_point() or value.shape != shape:
                raise InputError(f"{path} is damaged (the {moment} of {name}): start this run again in another folder")
        if moments[name]:
            optimizer.state[parameter] = {moment: value.to(parameter.device) for moment, value in moments[name].items()}
    return facts
