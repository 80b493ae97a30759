"""Correct answers to notebook 13 in different styles."""

from collections import OrderedDict

import numpy as np
import torch


def by_stack(state_dicts):
    if len(state_dicts) == 0:
        raise ValueError("nothing to average")
    names = set(state_dicts[0])
    if any(set(state) != names for state in state_dicts):
        raise ValueError("different names")
    averaged = OrderedDict()
    for name in state_dicts[0]:
        tensors = torch.stack([state[name] for state in state_dicts])
        averaged[name] = (
            tensors.to(torch.float64).mean(dim=0).to(tensors.dtype) if tensors.is_floating_point() else tensors[-1]
        )
    return averaged


def by_running_mean(checkpoints):
    """Move the running mean a little toward each checkpoint."""
    mean = {name: tensor.double().clone() for name, tensor in checkpoints[0].items()}
    for count, state in enumerate(checkpoints[1:], start=2):
        assert state.keys() == mean.keys()
        for name, tensor in state.items():
            mean[name] += (tensor.double() - mean[name]) / count
    last = checkpoints[-1]
    return {name: mean[name].to(t.dtype) if torch.is_floating_point(t) else t for name, t in last.items()}


def by_copy_and_in_place(state_dicts):
    """Copy the tensors first, and then average in place on the copies."""
    first, *others = state_dicts  # raises a ValueError if there are none
    for other in others:
        if list(other) != list(first):
            raise KeyError("names")
    result = {name: tensor.clone() for name, tensor in state_dicts[-1].items()}
    for name, tensor in result.items():
        if tensor.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            total = torch.zeros(tensor.shape, dtype=torch.float64)
            for state in state_dicts:
                total.add_(state[name])
            tensor.copy_(total.div_(len(state_dicts)))
    return result


def by_numpy(state_dicts):
    assert state_dicts, "none"
    assert len({tuple(sorted(state)) for state in state_dicts}) == 1, "different names"

    def mean(name):
        arrays = [state[name].numpy() for state in state_dicts]
        if arrays[-1].dtype.kind != "f":
            return arrays[-1]
        return np.mean(arrays, axis=0, dtype=np.float64).astype(arrays[-1].dtype)

    return {name: torch.from_numpy(np.array(mean(name))) for name in state_dicts[-1]}


def by_weighted_sum(state_dicts):
    """Give each checkpoint the weight 1/n."""
    if not state_dicts:
        raise ValueError("none")
    keys = state_dicts[-1].keys()
    if not all(keys == state.keys() for state in state_dicts):
        raise ValueError("names")
    weight = 1 / len(state_dicts)
    out = {}
    for key in keys:
        tensors = [state[key] for state in state_dicts]
        floating = tensors[0].is_floating_point()
        out[key] = sum(weight * t.double() for t in tensors).to(tensors[0].dtype) if floating else tensors[-1].clone()
    return out


VARIANTS = {"average_checkpoints": [by_stack, by_running_mean, by_copy_and_in_place, by_numpy, by_weighted_sum]}
