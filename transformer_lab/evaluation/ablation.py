"""Head ablation: switch attention heads off to measure how much the model needs them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import nn

from transformer_lab.model.attention_hooks import Attend, attending_modules, wrapped_attention


@contextmanager
def without_heads(model: nn.Module, heads: Iterable[tuple[str, int]]) -> Iterator[None]:
    """Switch heads off inside the `with` block: their outputs are zero (Michel et al. 2019, section 2.3).

    The model's weights and the attention of the other heads are left unchanged.

    Args:
        model: A model whose attention modules have an `attend` hook.
        heads: The heads as `(module name, index)`, such as `("decoder.layers.0.cross_attention", 0)`.

    Raises:
        ValueError: The model has no such module, or an index is negative. If an index is too high, the error is raised
            when the model is called.
    """
    modules = attending_modules(model)
    heads_of: dict[str, list[int]] = {}
    for name, head in heads:
        if name not in modules:
            raise ValueError(f"there is no attention `{name}`: choose one of {', '.join(modules)}")
        if head < 0:
            raise ValueError(f"there is no head {head}: heads are counted from 0")
        heads_of.setdefault(name, []).append(head)

    def silenced(name: str, attend: Attend) -> Attend:
        off = heads_of[name]

        def attend_without(query, key, value, mask=None, dropout=None):
            output, weights = attend(query, key, value, mask, dropout)
            if max(off) >= output.size(1):  # use the shape, because the module may not store the number of heads
                raise ValueError(f"there is no head {max(off)}: the model has heads 0 to {output.size(1) - 1}")
            output = output.clone()
            output[:, off] = 0.0  # (batch, heads, query, d_k)
            return output, weights

        return attend_without

    with wrapped_attention({name: modules[name] for name in heads_of}, silenced):
        yield
