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
    named = theirs.state_dict()
    weights = {our: named[their].clone() for our, their in _names(theirs.num_layers, named).items()}
    for layer in range(theirs.num_layers):
        for kind in ("weight", "bias"):
            three = named[f"layers.{layer}.self_attn.in_proj_{kind}"].chunk(3)  # query, key, value
            for name, weight in zip(PROJECTIONS, three, strict=True):
                weights[f"layers.{layer}.{name}.{kind}"] = weight.clone()
    return weights


def torch_weights(ours: nn.Module) -> dict[str, Tensor]:
    """Return the weights of this course's encoder under PyTorch's names, for `nn.TransformerEncoder.load_state_dict`.

    A pre-norm encoder ends with a norm, so PyTorch's encoder needs a norm, too:
    `nn.TransformerEncoder(layer, n, nn.LayerNorm(d))`.
    """
    named = {name: weight.detach() for name, weight in ours.named_parameters()}
    weights = {their: named[our].clone() for our, their in _names(len(ours.layers), named).items()}
    for layer in range(len(ours.layers)):
        for kind in ("weight", "bias"):
            three = [named[f"layers.{layer}.{name}.{kind}"] for name in PROJECTIONS]
            weights[f"layers.{layer}.self_attn.in_proj_{kind}"] = torch.cat(three)  # (3 * d_model, …)
    return weights


def _names(n_layers: int, named: Mapping[str, Tensor]) -> dict[str, str]:
    """Map this course's names of weights to PyTorch's, except for the projections."""
    parts = {f"layers.{n}.{our}": f"layers.{n}.{their}" for n in range(n_layers) for our, their in PARTS.items()}
    if "norm.bias" in named:
        parts["norm"] = "norm"
    return {
        f"{our}.{kind}": f"{their}.{'weight' if kind == 'gain' else kind}"
        for our, their in parts.items()
        for kind in ("gain" if our.endswith("norm") else "weight", "bias")
    }
