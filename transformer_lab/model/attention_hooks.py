"""Replacements for `MultiHeadAttention.attend`: one uses a faster kernel, another records the attention weights."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lab.model.attention import scaled_dot_product_attention
from transformer_lab.reimplementations import reimplements

Attend = Callable[..., tuple[Tensor, Tensor | None]]  # like scaled_dot_product_attention; the weights may be None


@reimplements("scaled_dot_product_attention")
def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: nn.Dropout | None = None,
) -> tuple[Tensor, None]:
    """Compute `scaled_dot_product_attention` with PyTorch's fused kernel, which does not return the weights.

    Args:
        query: `(batch, heads, query, d_k)`.
        key: `(batch, heads, key, d_k)`.
        value: `(batch, heads, key, d_v)`.
        mask: Boolean tensor that broadcasts to `(batch, heads, query, key)`; True means "may attend".
        dropout: Module whose probability `p` is used if the module is in training mode.

    Returns:
        `(output, None)`. The shape of the output is `(batch, heads, query, d_v)`.
    """
    p = dropout.p if dropout is not None and dropout.training else 0.0
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=p), None


def attending_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules of `model` that have an `attend` hook, keyed by name.

    Raises:
        ValueError: No module has an `attend` hook.
    """
    modules = {name: module for name, module in model.named_modules() if hasattr(module, "attend")}
    if not modules:
        raise ValueError(f"no module of this {type(model).__name__} has an `attend`: build it from MultiHeadAttention")
    return modules


def set_attention(model: nn.Module, attend: Attend) -> None:
    """Replace the attention function in all modules of `model` with `attend`, such as `fused_attention`.

    Raises:
        ValueError: No module of `model` has an `attend` hook.
    """
    for module in attending_modules(model).values():
        module.attend = attend


@contextmanager
def wrapped_attention(modules: Mapping[str, nn.Module], wrap: Callable[[str, Attend], Attend]) -> Iterator[None]:
    """Replace each module's `attend` with `wrap(name, attend)` inside the `with` block, and restore it afterward."""
    own = {name: vars(module)["attend"] for name, module in modules.items() if "attend" in vars(module)}
    try:
        for name, module in modules.items():
            # An instance attribute takes precedence over a method and over a submodule of the same name.
            vars(module)["attend"] = wrap(name, module.attend)
        yield
    finally:
        for name, module in modules.items():
            vars(module).pop("attend", None)
            if name in own:
                vars(module)["attend"] = own[name]


@contextmanager
def record_attention(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Record the attention weights of the calls made inside the `with` block.

    Recording does not change the model's output. If `attend` returns no weights, `scaled_dot_product_attention`
    computes them.

    Yields:
        A dictionary that is filled as the model runs. It maps the name of each module, such as
        `encoder.layers.0.self_attention`, to the weights of its latest call, `(batch, heads, query, key)`. They are
        detached and on the CPU.

    Raises:
        ValueError: No module of `model` has an `attend` hook.
    """
    recorded: dict[str, Tensor] = {}

    def recorder(name: str, attend: Attend) -> Attend:
        def attend_and_record(query, key, value, mask=None, dropout=None):
            output, weights = attend(query, key, value, mask, dropout)
            if weights is None:
                _, weights = scaled_dot_product_attention(query, key, value, mask)
            recorded[name] = weights.detach().cpu()
            return output, weights

        return attend_and_record

    with wrapped_attention(attending_modules(model), recorder):
        yield recorded
