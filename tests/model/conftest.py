"""Fixtures that set random weights and copy them to torch.nn modules under torch's names."""

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch import Tensor, nn

from transformer_lab.model import MultiHeadAttention

NAMES_IN_TORCH = {
    "self_attention": "self_attn",
    "cross_attention": "multihead_attn",
    "feed_forward.w_1": "linear1",
    "feed_forward.w_2": "linear2",
    "residuals.0.norm": "norm1",
    "residuals.1.norm": "norm2",
    "residuals.2.norm": "norm3",
    "gain": "weight",
}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request) -> Iterator[torch.dtype]:
    """Set the default dtype for the duration of the test."""
    previous = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(previous)


@pytest.fixture
def tolerance(dtype: torch.dtype) -> float:
    """Allow for rounding in values of 1 to 10 after about twenty matrix products: 1e-6 in float32, 1e-15 in float64."""
    return {torch.float32: 1e-5, torch.float64: 1e-10}[dtype]


@pytest.fixture
def with_gradients() -> Callable[[Tensor, Sequence[Tensor]], tuple[Tensor, ...]]:
    """Return an output and the gradients of a random function of the output. The function depends only on its shape."""

    def with_gradients(output: Tensor, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        cotangent = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
        return (output, *torch.autograd.grad(output, inputs, cotangent))

    return with_gradients


@pytest.fixture(scope="session")
def randomize() -> Callable[[nn.Module], nn.Module]:
    """Randomize every parameter. Fresh norms (gain 1, bias 0) and zero biases would hide a wrong mapping."""

    @torch.no_grad()
    def randomize(module: nn.Module) -> nn.Module:
        for name, parameter in module.named_parameters():
            if name.endswith("gain"):
                parameter.normal_(1.0, 0.3)
            elif parameter.dim() == 1:
                parameter.normal_(0.0, 0.3)
            else:
                parameter.normal_(0.0, parameter.size(-1) ** -0.5)
        return module

    return randomize


@pytest.fixture(scope="session")
def transplant() -> Callable[[nn.Module, nn.Module], None]:
    """Load the weights of the course's attention, layer, or stack into the torch.nn module that should match it."""

    def attention(module: MultiHeadAttention) -> dict[str, Tensor]:
        packed = (module.w_q, module.w_k, module.w_v)
        return {
            "in_proj_weight": torch.cat([linear.weight for linear in packed]),
            "in_proj_bias": torch.cat([linear.bias for linear in packed]),
            "out_proj.weight": module.w_o.weight,
            "out_proj.bias": module.w_o.bias,
        }

    def transplant(ours: nn.Module, theirs: nn.Module) -> None:
        weights = {}
        attentions = [name for name, module in ours.named_modules() if isinstance(module, MultiHeadAttention)]
        for name in attentions:
            prefix = name + "." if name else ""
            weights |= {prefix + key: value for key, value in attention(ours.get_submodule(name)).items()}
        for name, parameter in ours.named_parameters():
            if not any(name.startswith(attention) for attention in attentions):
                weights[name] = parameter
        for mine, torchs in NAMES_IN_TORCH.items():
            weights = {name.replace(mine, torchs): value for name, value in weights.items()}
        theirs.load_state_dict({name: value.detach().clone() for name, value in weights.items()}, strict=True)

    return transplant
