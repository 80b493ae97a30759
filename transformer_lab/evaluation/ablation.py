"""Head ablation: switch attention heads off and measure how much the model loses."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import nn

from transformer_lab.model.attention_hooks import Attend, attending_modules, wrapped_attention


@contextmanager
def without_heads(model: nn.Module, heads: Iterable[tuple[str, int]]) -> Iterator[None]:
    """Switch heads off inside the `with` block: what they hand to `w_o` is zero (Michel et al. 2019, section 2.3).

    The weights of the model stay as they are, and so does the attention of the other heads.

    Args:
        model: its attention has the hook `attend`.
        heads: name of the module, such as `decoder.layers.0.cross_attention`, and number of the head, from 0.

    Raises:
        ValueError: the model has no such module, or the module no such head (said when the model is called).
    """
    modules = attending_modules(model)
    chosen: dict[str, list[int]] = {}
    for name, head in heads:
        if name not in modules:
            raise ValueError(f"there is no attention `{name}`; there are {', '.join(modules)}")
        if head < 0:
            raise ValueError(f"there is no head {head}: heads are counted from 0")
        chosen.setdefault(name, []).append(head)

    def silenced(name: str, attend: Attend) -> Attend:
        off = chosen[name]

        def attend_without(query, key, value, mask=None, dropout=None):
            output, weights = attend(query, key, value, mask, dropout)
            if max(off) >= output.size(1):  # the output shows the number of heads; the module may not
                raise ValueError(f"there is no head {max(off)}: this model has heads 0 to {output.size(1) - 1}")
            output = output.clone()
            output[:, off] = 0.0  # (batch, heads, query, d_k)
            return output, weights

        return attend_without

    with wrapped_attention({name: modules[name] for name in chosen}, silenced):
        yield
