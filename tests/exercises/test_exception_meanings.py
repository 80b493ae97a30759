"""Each exception is provoked here as students provoke it, because the patterns depend on other people's messages."""

import math
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from transformer_lab.exercises.exception_meanings import meaning

X = torch.arange(6.0).view(2, 3)
MASK = X > 2
ROWS = [[1, 2], [3, 4]]


class NoSuper(nn.Module):
    def __init__(self):
        self.layer = nn.Linear(1, 1)


class NoForward(nn.Module):
    pass


def overwritten():
    exponentials = torch.ones(2, requires_grad=True).exp()
    exponentials += 1
    exponentials.sum().backward()


def endless():
    endless()


def unwritten():
    raise NotImplementedError


def too_many_names():
    batch, heads, length = X.shape
    return batch, heads, length


def too_few_names():
    first, second = torch.zeros(3, 2)
    return first, second


PROVOKED = {
    "super().__init__()": [NoSuper],
    "loop over them": [lambda: nn.ModuleList([nn.Linear(3, 3)])(X)],
    "has no `forward`": [lambda: NoForward()(X)],
    "take parentheses": [lambda: X.size[0]],
    "isn't a function": [lambda: X.shape(0), lambda: X(0)],
    "can't take these arguments": [lambda: torch.max(0, X), lambda: X.sum(dims=1)],
    "use `math`": [lambda: torch.sin(1.0), lambda: torch.exp(2)],
    "a list of tensors": [lambda: torch.cat(X, X)],
    "is a tuple": [
        lambda: (X, X).transpose(0, 1),
        lambda: (X, X) @ X,
        lambda: (X, X) / 2,
        lambda: nn.Linear(3, 3)((X, X)),
    ],
    "the values and their indices": [lambda: X - X.max(dim=-1), lambda: X.max(dim=-1).unsqueeze(1)],
    "is None": [lambda: None.detach(), lambda: None + X, lambda: X @ None],
    "of torch tensors": [lambda: np.zeros(3).masked_fill(1, 2)],
    "of NumPy arrays": [lambda: X.astype(int)],
    "only be read once": [lambda: len(word for word in "ab"), lambda: map(int, "12")[0]],
    "use a tuple": [lambda: {["a"]: 1}],
    "an `nn.Parameter`": [lambda: setattr(nn.Linear(1, 1), "weight", torch.zeros(1, 1))],
    "a single index": [lambda: ROWS[:, 0]],
    "use `//`": [
        lambda: range(4 / 2),
        lambda: X[:, 4 / 2],
        lambda: ROWS[: 2 / 2],
        lambda: ROWS[2 / 2],
        lambda: nn.Linear(4 / 2, 3),
        lambda: X.reshape(2, 6 / 2),
    ],
    "one True or False": [lambda: 1 if MASK else 2, lambda: MASK and MASK, lambda: not np.zeros(3), lambda: max(0, X)],
    "a single number": [lambda: X.item(), lambda: math.sqrt(X), lambda: torch.tensor([X, X])],
    "doesn't record gradients": [lambda: np.exp(torch.ones(2, requires_grad=True))],
    "an input or a weight in place": [lambda: torch.ones(2, requires_grad=True).add_(1)],
    "was overwritten": [overwritten],
    "record how this was computed": [lambda: torch.tensor(1.0).backward()],
    "use `reshape`": [lambda: X.T.view(6)],
    "as many numbers": [lambda: X.view(4, 2), lambda: np.zeros(3).reshape(2, 2)],
    "In a matrix product": [
        lambda: X @ X,
        lambda: X[None] @ X[None],
        lambda: X.numpy() @ X.numpy(),
        lambda: nn.Linear(4, 3)(X),
    ],
    "aligned from the right": [lambda: X * torch.zeros(4), lambda: X.numpy() * np.zeros(4)],
    "only size 1 can expand": [
        lambda: X.expand(2, 4),
        lambda: X.clone().__setitem__(slice(None), torch.zeros(5)),
        lambda: np.zeros((2, 3)).__setitem__(slice(None), np.zeros(5)),
    ],
    "and `stack` needs": [
        lambda: torch.cat([X, torch.zeros(3, 4)]),
        lambda: torch.cat([X, torch.zeros(3)]),
        lambda: torch.stack([X, torch.zeros(3, 4)]),
    ],
    "aren't that many axes": [
        lambda: X.sum(dim=2),
        lambda: X.transpose(1, 2),
        lambda: X[0, 0, 0],
        lambda: np.zeros(3).sum(axis=2),
        lambda: np.zeros(3)[0, 0],
    ],
    "number of names": [too_many_names, too_few_names],
    "`(batch, vocab, length)`": [lambda: F.cross_entropy(torch.zeros(2, 5, 7), torch.zeros(2, 5, dtype=torch.long))],
    "`topk` can't return": [lambda: X.topk(5)],
    "go from 0": [
        lambda: X[5],
        lambda: ROWS[len(ROWS)],
        lambda: np.zeros(3)[5],
        lambda: nn.Embedding(3, 4)(torch.tensor([7])),
        lambda: F.cross_entropy(X, torch.tensor([7, 8])),
    ],
    "The dtypes differ": [lambda: X @ torch.zeros(3, 2).double()],
    "to int64": [
        lambda: nn.Embedding(3, 4)(torch.zeros(2)),
        lambda: X.gather(1, torch.zeros(2, 1)),
        lambda: F.cross_entropy(torch.zeros(2, 5), torch.zeros(2)),
    ],
    "write `~mask`": [lambda: -MASK, lambda: 1 - MASK],
    "needs booleans": [
        lambda: ~X,
        lambda: X & X,
        lambda: X.masked_fill(X, 0.0),
        lambda: torch.where(X, 1.0, 2.0),
        lambda: X.numpy() & X.numpy(),
        lambda: ~X.numpy(),
    ],
    "NaN from a row": [lambda: torch.multinomial(torch.tensor([math.nan, 1.0]), 1)],
    "calling itself": [endless],
    "Is `softmaxx` misspelled": [lambda: softmaxx(X)],  # noqa: F821
    "end the program": [sys.exit],
    "isn't written yet": [unwritten],
}


@pytest.mark.parametrize("says", PROVOKED)
@pytest.mark.filterwarnings("ignore")
def test_provoked_exceptions(says):
    for provoke in PROVOKED[says]:
        with pytest.raises(BaseException) as raised:  # noqa: PT011 - its type and message are what is tested
            provoke()
        assert says in meaning(f"{raised.type.__name__}: {raised.value}", "softmax(scores)", is_own_call=False)


def test_a_signature_helps_only_with_a_call_of_the_exercise_itself():
    text = "TypeError: softmax() missing 1 required positional argument: 'scores'"
    assert meaning(text, "softmax(scores)", is_own_call=True) == "The check calls it as `softmax(scores)`."
    assert meaning(text, "softmax(scores)", is_own_call=False) == ""


def test_an_unknown_exception_gets_no_explanation():
    assert meaning("KeyError: 'pad'", "softmax(scores)", is_own_call=True) == ""
