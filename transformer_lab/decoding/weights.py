"""Read and load model weights as safetensors files, never as pickles."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from transformer_lab.errors import InputError


def model_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters of `model`, keyed by name. A tied parameter is listed once, under its first name.

    Buffers are left out: positional encodings can be recomputed, and not every model stores them in a buffer.
    """
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors in a safetensors file, converting half precision (float16 and bfloat16) to float32.

    Raises:
        InputError: The file is missing or damaged, or contains integers, infinities, or NaN.
    """
    if not path.is_file():
        raise InputError(f"{path} is missing: give the folder of a trained model")
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise InputError(f"{path} is damaged ({error}): copy it again, or train the model again") from None
    for name, tensor in tensors.items():
        if not (tensor.is_floating_point() and tensor.isfinite().all()):
            raise InputError(
                f"{path} is damaged ({name} contains values that are not numbers): copy it again, or train the model "
                "again"
            )
    return {
        name: tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
        for name, tensor in tensors.items()
    }


def load_weights(
    model: nn.Module,
    weights: Mapping[str, Tensor],
    origin: Path,
    remedy: str = "take weights.safetensors and config.json from the same run",
) -> None:
    """Copy `weights` into `model`. The names of the weights are the same as in `model_weights`.

    Raises:
        InputError: The weights belong to a different model. The message names `origin` and the first tensor that
            differs, and ends with `remedy`.
    """
    own = model_weights(model)
    for name, tensor in own.items():
        if name not in weights:
            raise InputError(f"{origin} has no {name}, but the model does: {remedy}")
        if weights[name].shape != tensor.shape:
            raise InputError(
                f"{origin} belongs to a different model: {name} has shape {tuple(weights[name].shape)} there, "
                f"but {tuple(tensor.shape)} in this model: {remedy}"
            )
    for name in weights:
        if name not in own:
            raise InputError(f"{origin} has {name}, but the model doesn't: {remedy}")
    for name, tensor in own.items():
        tensor.copy_(weights[name])
