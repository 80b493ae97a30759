"""Convert weights between `nn.TransformerEncoder` and this course's encoder or your own."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

# Names of the parts of a layer, in this course and in nn.TransformerEncoderLayer.
PARTS = {
    "self_attention.w_o": "self_attn.out_proj",
    "feed_forward.w_1": "linear1",
    "feed_forward.w_2": "linear2",
    "residuals.0.norm": "norm1",
    "residuals.1.norm": "norm2",
}
PROJECTIONS = [f"self_attention.{name}" for name in ("w_q", "w_k", "w_v")]  # PyTorch stores all three in one matrix


def course_weights(theirs: nn.TransformerEncoder) -> dict[str, Tensor]:
    """Return the weights of PyTorch's encoder under this course's names, for `Encoder.load_state_dict`."""
    named, weights = theirs.state_dict(), {}
    for layer in range(theirs.num_layers):
        here = f"layers.{layer}."
        for part, theirs_part in PARTS.items():
            _copy(named, f"{here}{theirs_part}", weights, f"{here}{part}", course_norm=True)
        for kind in ("weight", "bias"):
            three = named[f"{here}self_attn.in_proj_{kind}"].chunk(3)  # query, key, value
            weights |= {f"{here}{name}.{kind}": one.clone() for name, one in zip(PROJECTIONS, three, strict=True)}
    if theirs.norm is not None:
        _copy(named, "norm", weights, "norm", course_norm=True)
    return weights


def torch_weights(ours: nn.Module) -> dict[str, Tensor]:
    """Return the weights of this course's encoder under PyTorch's names, for `nn.TransformerEncoder.load_state_dict`.

    A pre-norm encoder ends with a norm, so PyTorch's encoder needs a norm, too:
    `nn.TransformerEncoder(layer, n, nn.LayerNorm(d))`.
    """
    named, weights = dict(ours.named_parameters()), {}
    for layer in range(len(ours.layers)):
        here = f"layers.{layer}."
        for part, theirs_part in PARTS.items():
            _copy(named, f"{here}{part}", weights, f"{here}{theirs_part}", course_norm=False)
        for kind in ("weight", "bias"):
            three = [named[f"{here}{name}.{kind}"].detach() for name in PROJECTIONS]
            weights[f"{here}self_attn.in_proj_{kind}"] = torch.cat(three)  # (3 * d_model, d_model), (3 * d_model)
    if "norm.gain" in named:
        _copy(named, "norm", weights, "norm", course_norm=False)
    return weights


def _copy(source: Mapping[str, Tensor], old: str, weights: dict[str, Tensor], new: str, course_norm: bool) -> None:
    """Copy the weight and bias of a part from `source` to `weights`. This course calls the weight of a norm `gain`."""
    is_norm = "norm" in new.rsplit(".", 1)[-1]
    gain_here, gain_there = ("gain", "weight") if is_norm else ("weight", "weight")
    old_kind, new_kind = (gain_there, gain_here) if course_norm else (gain_here, gain_there)
    weights[f"{new}.{new_kind}"] = source[f"{old}.{old_kind}"].detach().clone()
    weights[f"{new}.bias"] = source[f"{old}.bias"].detach().clone()
