"""Notebook 12, Multi30k: the weights of several checkpoints become those of one model (section 6.1)."""

import torch
from torch import Tensor

from transformer_lab.exercises.draw import Draw
from transformer_lab.exercises.exercise import Exercise, Misconception, Probe, Property, Remark
from transformer_lab.exercises.recipes import raised
from transformer_lab.training import average_checkpoints

# Inputs hold all checkpoints of one tensor: along their first axis, oldest first.


def average_of_rows(subject, **stacked):
    count = len(next(iter(stacked.values())))
    return subject([{name: values[row] for name, values in stacked.items()} for row in range(count)])


def average_forwards_and_backwards(subject, **stacked):
    count = len(next(iter(stacked.values())))
    states = [{name: values[row] for name, values in stacked.items()} for row in range(count)]
    forwards, backwards = subject(states), subject(states[::-1])
    return {"forwards": dict(forwards), "backwards": dict(backwards)}


def averages_of_different_models(subject, weight):
    plain, more = {"weight": weight[0]}, {"weight": weight[1], "bias": weight[1]}
    return {
        "more names in the first": raised(subject, [more, plain]),
        "more names in the last": raised(subject, [plain, more]),
        "no checkpoint": raised(subject, []),
    }


def with_counters(draw: Draw) -> dict:
    """A weight, a counter and a mask. Counter and mask have other values in the last checkpoint than in the first."""
    mask = draw.integers(3, 2, low=0, high=1).bool()
    mask[0] = ~mask[2]
    first = draw.integer(10, 20)
    return {
        "weight": draw.numbers(3, 2),
        "steps": torch.tensor([first, first + 7, first + 15 + draw.integer(0, 2)]),
        "mask": mask,
    }


def in_half_precision(draw: Draw) -> dict:
    """2048, 1, 1 and 2, times a power of two: half precision can hold their mean, but not every sum on the way."""
    numbers = torch.tensor([[2048.0], [1.0], [1.0], [2.0]])
    powers = 2.0 ** draw.integers(2, low=-1, high=3)
    return {"weight": (numbers * powers).to(torch.float16)}


def in_three_precisions(draw: Draw) -> dict:
    return {
        "weight": draw.numbers(2, 3).float(),
        "bias": draw.numbers(2, 2),
        "scale": draw.integers(2, 2, low=-8, high=8).to(torch.float16),
    }


def same_dtypes(inputs, averaged):
    changed = [name for name, tensor in averaged.items() if name in inputs and tensor.dtype != inputs[name].dtype]
    return f"`{changed[0]}` comes back in another dtype than it had" if changed else None


def order_does_not_matter(inputs, received):
    forwards, backwards = received["forwards"], received["backwards"]
    same = all(torch.allclose(forwards[name], backwards[name], rtol=1e-5, atol=1e-5) for name in inputs)
    return None if same else "the same checkpoints in another order give another mean"


def different_models_are_refused(inputs, received):
    for given, error in received.items():
        if error == "nothing":
            return f"{given}: nothing is raised, a ValueError is meant"
    others = sorted({error for error in received.values() if error != "ValueError"})
    return Remark(f"It refuses with {' and '.join(others)}; a `ValueError` that says why is meant.") if others else None


# --- the mistakes ----------------------------------------------------------------------------------------------------


def refuse_different_names(state_dicts):
    if not state_dicts or any(state.keys() != state_dicts[-1].keys() for state in state_dicts):
        raise ValueError("not of one model")


def averaging(mean):
    """The mistakes that are only in the mean, `mean(tensors, state_dicts)`, of floating-point tensors."""

    def average(state_dicts):
        refuse_different_names(state_dicts)
        averaged = dict(state_dicts[-1])
        for name, tensor in averaged.items():
            if tensor.is_floating_point():
                tensors = [state[name].double() for state in state_dicts]
                averaged[name] = mean(tensors, state_dicts).to(tensor.dtype)
        return averaged

    return average


def exponential_mean(tensors, state_dicts):
    mean = tensors[0]
    for tensor in tensors[1:]:
        mean = (mean + tensor) / 2
    return mean


def treating_others(treat):
    """The mistakes with whole numbers and truth values: `treat(averaged, name, tensors)` puts them into `averaged`."""

    def average(state_dicts):
        refuse_different_names(state_dicts)
        averaged = {}
        for name, tensor in state_dicts[-1].items():
            tensors = [state[name] for state in state_dicts]
            if tensor.is_floating_point():
                averaged[name] = (sum(one.double() for one in tensors) / len(tensors)).to(tensor.dtype)
            else:
                treat(averaged, name, tensors)
        return averaged

    return average


def take_mean(averaged: dict, name: str, tensors: list[Tensor]) -> None:
    averaged[name] = sum(tensor.double() for tensor in tensors) / len(tensors)


def take_mean_of_stack(averaged: dict, name: str, tensors: list[Tensor]) -> None:
    averaged[name] = torch.stack(tensors).mean(dim=0)


def take_truncated_mean(averaged: dict, name: str, tensors: list[Tensor]) -> None:
    averaged[name] = (sum(tensor.double() for tensor in tensors) / len(tensors)).to(tensors[0].dtype)


def take_first(averaged: dict, name: str, tensors: list[Tensor]) -> None:
    averaged[name] = tensors[0]


def take_none(averaged: dict, name: str, tensors: list[Tensor]) -> None:
    pass


def average_in_own_precision(state_dicts):
    refuse_different_names(state_dicts)
    averaged = dict(state_dicts[-1])
    for name, tensor in averaged.items():
        if tensor.is_floating_point():
            total = state_dicts[0][name]
            for state in state_dicts[1:]:
                total = total + state[name]
            averaged[name] = total / len(state_dicts)
    return averaged


def average_left_in_float64(state_dicts):
    refuse_different_names(state_dicts)
    averaged = dict(state_dicts[-1])
    for name, tensor in averaged.items():
        if tensor.is_floating_point():
            averaged[name] = sum(state[name].double() for state in state_dicts) / len(state_dicts)
    return averaged


def average_in_place(state_dicts):
    refuse_different_names(state_dicts)
    averaged = dict(state_dicts[0])
    for name, tensor in averaged.items():
        for state in state_dicts[1:]:
            if tensor.is_floating_point():
                tensor += state[name]
            else:
                averaged[name] = state[name]
        if tensor.is_floating_point():
            tensor /= len(state_dicts)
    return averaged


def average_over_names_of(which):
    """Goes through the names of the first or of the last checkpoint, and looks at no others."""

    def average(state_dicts):
        averaged = dict(state_dicts[-1])
        return {
            name: (
                (sum(state[name].double() for state in state_dicts) / len(state_dicts)).to(state_dicts[-1][name].dtype)
                if state_dicts[-1][name].is_floating_point()
                else averaged[name]
            )
            for name in state_dicts[which]
        }

    return average


def average_of_float32(state_dicts):
    refuse_different_names(state_dicts)
    averaged = dict(state_dicts[-1])
    for name, tensor in averaged.items():
        if tensor.dtype == torch.float32:
            averaged[name] = (sum(state[name].double() for state in state_dicts) / len(state_dicts)).to(tensor.dtype)
    return averaged


AVERAGE_CHECKPOINTS = Exercise(
    answer=average_checkpoints,
    points=2,
    minutes=15,
    returns=("averaged",),
    axes={
        "weight": "checkpoint place",
        "bias": "checkpoint place",
        "steps": "checkpoint",
        "mask": "checkpoint place",
        "scale": "checkpoint place",
    },
    banned=("torch.optim.swa_utils.AveragedModel",),
    probes=[
        Probe("two checkpoints of one tensor", lambda draw: {"weight": draw.numbers(2, 2)}, average_of_rows),
        Probe(
            "three checkpoints of two tensors",
            lambda draw: {"weight": draw.numbers(3, 2, 3), "bias": draw.numbers(3, 2)},
            average_of_rows,
        ),
        Probe("five checkpoints in float32", lambda draw: {"weight": draw.numbers(5, 3).float()}, average_of_rows),
        Probe("whole numbers and truth values are those of the last", with_counters, average_of_rows),
        Probe("numbers in half precision", in_half_precision, average_of_rows),
    ],
    properties=[
        Property("every tensor keeps its dtype", in_three_precisions, same_dtypes, average_of_rows),
        Property(
            "the order of the checkpoints does not change the mean",
            lambda draw: {"weight": draw.numbers(4, 3)},
            order_does_not_matter,
            average_forwards_and_backwards,
        ),
        Property(
            "checkpoints with different names, or none at all, are refused",
            lambda draw: {"weight": draw.numbers(2, 2)},
            different_models_are_refused,
            averages_of_different_models,
        ),
    ],
    misconceptions=[
        Misconception(
            "sum_without_division",
            averaging(lambda tensors, _: sum(tensors)),
            "The checkpoints are added up and not divided by their number. Weights that are several times too large "
            "give logits that are far too large, and the model is sure of nonsense. Section 6.1 averages: divide by "
            "`len(state_dicts)`.",
        ),
        Misconception(
            "last_two",
            averaging(lambda tensors, _: sum(tensors[-2:]) / len(tensors[-2:])),
            "Only the last two checkpoints are in the mean. All that are given belong in it (section 6.1 averages "
            "five), each with the same weight: does a loop start over, or a variable get overwritten?",
        ),
        Misconception(
            "last_alone",
            averaging(lambda tensors, _: tensors[-1]),
            "What comes back is the last checkpoint as it is. The mean is computed nowhere, or overwritten by the last "
            "turn of a loop: use `+`, not `=`, for what adds up.",
        ),
        Misconception(
            "first_left_out",
            averaging(lambda tensors, _: sum(tensors[1:]) / len(tensors)),
            "The sum starts at the second checkpoint, although it is divided by the number of all. So the weights "
            "are too small, by the share of the first one.",
        ),
        Misconception(
            "running_halves",
            averaging(exponential_mean),
            "Each checkpoint is averaged with the mean so far: `(mean + next) / 2`. Then the last one weighs a half, "
            "the one before a quarter, and so on. Add all of them up first and divide once.",
        ),
        Misconception(
            "always_five",
            averaging(lambda tensors, _: sum(tensors) / 5),
            "The sum is divided by 5, however many checkpoints there are. Five are what section 6.1 takes for the base "
            "model; for the big one it takes 20. Divide by `len(state_dicts)`.",
        ),
        Misconception(
            "divided_by_names",
            averaging(lambda tensors, state_dicts: sum(tensors) / len(state_dicts[0])),
            "The sum is divided by the number of tensors in a checkpoint, not by the number of checkpoints. "
            "`len(state_dicts)` is what you want; `len` of one of them counts its names.",
        ),
        Misconception(
            "one_number",
            averaging(lambda tensors, _: torch.stack(tensors).mean()),
            "`mean()` without `dim` takes everything together, and each tensor becomes one number. The mean runs over "
            "the checkpoints alone: with `torch.stack`, that is `dim=0`.",
        ),
        Misconception(
            "whole_numbers_averaged",
            treating_others(take_mean),
            "Whole numbers and truth values are averaged too, and come back as floats. The mean of three counters "
            "counts nothing, and a mask of thirds hides nothing: only `is_floating_point()` tensors are averaged, all "
            "others are taken from the last checkpoint.",
        ),
        Misconception(
            "mean_of_whole_numbers",
            treating_others(take_mean_of_stack),
            "It stops at the first tensor of whole numbers, because torch gives no mean of those. A state dict holds "
            "whatever the model registered, counters and masks as well: average where `is_floating_point()`, and take "
            "the others from the last checkpoint.",
        ),
        Misconception(
            "whole_numbers_truncated",
            treating_others(take_truncated_mean),
            "Whole numbers are averaged, and what is behind the point is cut off. The mean of three counters is no "
            "count, and of masks the mean is nearly always True: take such tensors from the last checkpoint.",
        ),
        Misconception(
            "whole_numbers_of_the_first",
            treating_others(take_first),
            "Whole numbers and truth values are those of the first checkpoint. The first is the oldest here; a counter "
            "should say where training has got to: take them from the last.",
        ),
        Misconception(
            "whole_numbers_left_out",
            treating_others(take_none),
            "Tensors that are not averaged are missing in the result, so that it cannot be loaded into the model. Take "
            "them from the last checkpoint.",
        ),
        Misconception(
            "own_precision",
            average_in_own_precision,
            "The sum is computed in the checkpoints' own precision. Half precision has 11 digits in base 2: 2048 + 1 "
            "is 2048 there, and the small ones get lost one after the other. Add up in float64, and round once, in the "
            "end.",
        ),
        Misconception(
            "other_dtype",
            average_left_in_float64,
            "The mean is right, but it comes back in the dtype in which it was computed. A file in float64 is twice or "
            "four times as large, and a model that is built from it computes in float64: end with "
            "`.to(tensor.dtype)`.",
        ),
        Misconception(
            "in_place",
            average_in_place,
            "The sum is written into the tensors of the first checkpoint: a copy of a dictionary holds the same "
            "tensors, and `+=` changes them. Who compares the average with that checkpoint then compares it with "
            "itself. `total = total + …` makes a new tensor.",
        ),
        Misconception(
            "names_of_the_first",
            average_over_names_of(0),
            "The names are those of the first checkpoint, and what a later one has beside them is dropped without a "
            "word. Checkpoints with different names are of different models: compare `keys()` and raise a "
            "`ValueError`.",
        ),
        Misconception(
            "names_of_the_last",
            average_over_names_of(-1),
            "The names are those of the last checkpoint, and what an earlier one has beside them is dropped without a "
            "word. Checkpoints with different names are of different models: compare `keys()` and raise a "
            "`ValueError`.",
        ),
        Misconception(
            "float32_alone",
            average_of_float32,
            "Only float32 tensors are averaged, and all others are those of the last checkpoint. Weights may be of "
            "another precision: `tensor.is_floating_point()` is true for each.",
        ),
    ],
    hints=[
        "A state dict is a dictionary: name to tensor. Go through the names, and for each of them through the "
        "checkpoints. Which tensors have a mean at all?",
        "`tensor.is_floating_point()` tells them apart. Add up in float64, divide once, and give the mean the dtype "
        "that the tensor had. Take the others from `state_dicts[-1]`. Before all that: do the names agree?",
        "`total = sum(state[name].double() for state in state_dicts)`, and then "
        "`averaged[name] = (total / len(state_dicts)).to(tensor.dtype)`. All others: "
        "`averaged[name] = state_dicts[-1][name].clone()`.",
    ],
)

EXERCISES = [AVERAGE_CHECKPOINTS]
