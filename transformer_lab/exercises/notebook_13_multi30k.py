"""Notebook 13, Multi30k: averaging the weights of several checkpoints (section 6.1)."""

import torch

from transformer_lab.exercises.exercise import Exercise, Probe, Property, Remark
from transformer_lab.exercises.harnesses import outcome, raised
from transformer_lab.exercises.rules import REFUSED, raises, requirement
from transformer_lab.exercises.sampling import InputSampler
from transformer_lab.training import average_checkpoints

# Each input is one tensor from every checkpoint, stacked along the first axis with the oldest first.


def average_of_rows(subject, **stacked):
    count = len(next(iter(stacked.values())))
    return subject([{name: values[row] for name, values in stacked.items()} for row in range(count)])


def average_of_names_in_other_orders(subject, weight, bias):
    states = [{"weight": one, "bias": other} for one, other in zip(weight, bias, strict=True)]
    states[0] = dict(reversed(states[0].items()))
    return outcome(lambda: dict(subject(states)))


def checkpoints_afterwards(subject, weight):
    states = [{"weight": one} for one in weight.clone()]
    subject(states)
    return torch.stack([state["weight"] for state in states])


def averages_of_different_models(subject, weight):
    plain, more = {"weight": weight[0]}, {"weight": weight[1], "bias": weight[1]}
    return {
        "a first checkpoint with more names": raised(subject, [more, plain]),
        "a last checkpoint with more names": raised(subject, [plain, more]),
        "no checkpoint at all": raised(subject, []),
    }


def with_counters(sampler: InputSampler) -> dict:
    """Return a weight, an increasing and a decreasing counter, and a mask. The first and last of each differ."""
    mask = sampler.integers(3, 2, low=0, high=1).bool()
    mask[2, sampler.integer(0, 1)] = False  # so that it differs from a mean converted to booleans
    mask[0] = ~mask[2]
    first = sampler.integer(10, 20)
    return {
        "weight": sampler.numbers(3, 2),
        "steps": torch.tensor([first, first + 7, first + 15 + sampler.integer(0, 2)]),
        "left": torch.tensor([40 - first, 33 - first, 25 - first]),
        "mask": mask,
    }


def in_half_precision(sampler: InputSampler) -> dict:
    """Return columns that contain 2048, 1, 1, and 2, each column multiplied by a power of two.

    Half precision can hold the mean of a column, but not every partial sum.
    """
    numbers = torch.tensor([[2048.0], [1.0], [1.0], [2.0]])
    powers = 2.0 ** sampler.integers(3, low=-3, high=3)
    return {"weight": (numbers * powers).to(torch.float16)}


def that_cancel(sampler: InputSampler) -> dict:
    """Return columns in which two large numbers cancel. In a float32 sum, anything added in between is lost."""
    small = sampler.integers(7, 4, low=1, high=3).float()
    small[1] = 2.0 ** sampler.integers(4, low=27, high=29)
    small[5] = -small[1]
    return {"weight": small}


def in_three_precisions(sampler: InputSampler) -> dict:
    return {
        "weight": sampler.numbers(2, 3).float(),
        "bias": sampler.numbers(2, 2),
        "scale": sampler.integers(2, 2, low=-8, high=8).to(torch.float16),
    }


def same_dtypes(inputs, averaged):
    for name, tensor in averaged.items():
        if name in inputs and tensor.dtype != inputs[name].dtype:
            wanted, got = (str(one.dtype).removeprefix("torch.") for one in (inputs[name], tensor))
            return f"`{name}` is {wanted} in the checkpoints but {got} in the average"
    return None


def names_are_not_mixed_up(inputs, received):
    if received["raised"] != "nothing":
        return Remark(
            f"Checkpoints that list the same names in different orders raise `{received['raised']}`. They belong to "
            "the same model, so average them: comparing `keys()` ignores the order of names."
        )
    for name, stacked in inputs.items():
        if received["returned"][name].shape != stacked[0].shape:
            return f"the mean of `{name}` has the wrong shape"
        if not torch.allclose(received["returned"][name], stacked.mean(0)):
            return f"the mean of `{name}` is wrong when one checkpoint lists its names in a different order"
    return None


def different_models_are_refused(inputs, received):
    """Return a remark if mismatched checkpoints or an empty list do not raise a `ValueError`."""
    for given, error in received.items():
        if error not in REFUSED:
            if given.startswith("no"):
                return Remark(
                    f"An empty list of checkpoints {raises(error)}. Raise a `ValueError` that says there are none."
                )
            return Remark(
                f"{given.capitalize()} {raises(error)}. Checkpoints with different names belong to different models, "
                "so compare their `keys()`, and raise a `ValueError` that says which names differ."
            )
    return None


AVERAGE_CHECKPOINTS = Exercise(
    answer=average_checkpoints,
    points=2,
    minutes=15,
    returns=("averaged",),
    axes=dict.fromkeys(("weight", "bias", "mask", "scale"), "checkpoint feature")
    | dict.fromkeys(("steps", "left"), "checkpoint"),
    banned=("torch.optim.swa_utils.AveragedModel",),
    call=average_of_rows,
    probes=[
        Probe("two checkpoints of one tensor", lambda sampler: {"weight": sampler.numbers(2, 3)}),
        Probe(
            "three checkpoints of two tensors",
            lambda sampler: {"weight": sampler.numbers(3, 2, 3), "bias": sampler.numbers(3, 2)},
        ),
        Probe(
            "six to eight checkpoints in float32",
            lambda sampler: {"weight": sampler.numbers(sampler.integer(6, 8), 3).float()},
        ),
        Probe("integers and booleans come from the last checkpoint", with_counters),
        Probe("half precision: small numbers aren't lost in the sum", in_half_precision),
        Probe("float32: small numbers aren't lost in the sum", that_cancel),
    ],
    properties=[
        Property("every tensor keeps its dtype", in_three_precisions, same_dtypes),
        Property(
            "tensors with different names aren't mixed up",
            lambda sampler: {"weight": sampler.numbers(3, 2, low=0.1), "bias": sampler.numbers(3, 2, low=0.1)},
            names_are_not_mixed_up,
            average_of_names_in_other_orders,
        ),
        requirement(
            "the checkpoints themselves stay as they are",
            lambda sampler: {"weight": sampler.numbers(3, 2)},
            lambda inputs, afterwards: torch.equal(inputs["weight"], afterwards),
            "your function changes the numbers in one of the checkpoints that it was given",
            checkpoints_afterwards,
        ),
        Property(
            "tried: checkpoints with different names, and none at all",
            lambda sampler: {"weight": sampler.numbers(2, 2)},
            different_models_are_refused,
            averages_of_different_models,
        ),
    ],
)

EXERCISES = [AVERAGE_CHECKPOINTS]
