from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from transformer_lab.errors import InputError
from transformer_lab.model import Transformer, TransformerConfig
from transformer_lab.presets import PRESETS
from transformer_lab.training.checkpoints import (
    average_checkpoints,
    load_tensors,
    load_training_state,
    save_tensors,
    save_training_state,
)
from transformer_lab.training.steps import build_optimizer

TINY = {"source_vocab": 13, "target_vocab": 13, "d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 16, "max_length": 12}


def tiny_model(seed=0, **changes):
    torch.manual_seed(seed)
    return Transformer(TransformerConfig(**TINY | changes))


def test_average_is_taken_in_float64_and_keeps_dtype_and_inputs():
    """In half precision, 2048 + 1 + 1 + 2 would be 2050, because 2049 cannot be represented."""
    states = [
        {"weight": torch.tensor([value], dtype=torch.float16), "steps": torch.tensor(index)}
        for index, value in enumerate([2048.0, 1.0, 1.0, 2.0])
    ]
    before = [{name: tensor.clone() for name, tensor in state.items()} for state in states]
    averaged = average_checkpoints(states)
    assert averaged["weight"].dtype == torch.float16
    assert averaged["weight"].item() == 2052 / 4
    assert averaged["steps"].item() == 3  # an integer keeps the last checkpoint's value
    averaged["steps"] += 1
    averaged["weight"] += 1
    for state, copy in zip(states, before, strict=True):
        assert all(torch.equal(state[name], copy[name]) for name in state)


def test_averaging_nothing_or_different_models_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        average_checkpoints([])
    with pytest.raises(ValueError, match="bias"):
        average_checkpoints([{"weight": torch.zeros(1)}, {"weight": torch.zeros(1), "bias": torch.zeros(1)}])


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_a_training_state_comes_back_bit_for_bit(tmp_path, optimizer):
    """If a moment were lost or assigned to another parameter, a resumed run would drift from the uninterrupted one."""
    preset = replace(PRESETS["tour"], optimizer=optimizer)
    tokens = torch.tensor([[4, 5, 6, 2]])

    def some_run(seed):
        model = tiny_model(seed=seed, tie=True)
        optimizer = build_optimizer(model, preset)
        for group in optimizer.param_groups:
            group["lr"] = 0.01
        return model, optimizer

    def step(model, optimizer):
        optimizer.zero_grad()
        torch.manual_seed(3)
        model(tokens, tokens).square().mean().backward()
        optimizer.step()

    model, optimizer = some_run(0)
    for _ in range(3):
        step(model, optimizer)
    save_training_state(tmp_path / "latest.safetensors", model, optimizer, {"step": 3})
    other, other_optimizer = some_run(1)
    assert load_training_state(tmp_path / "latest.safetensors", other, other_optimizer) == {"step": 3}
    for _ in range(2):
        step(model, optimizer)
        step(other, other_optimizer)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_a_state_of_another_model_is_refused(tmp_path):
    """If the state were loaded by position or in part, training would continue from meaningless weights."""
    model = tiny_model(n_layers=2)
    save_training_state(tmp_path / "latest.safetensors", model, torch.optim.AdamW(model.parameters()), {})
    other = tiny_model()
    with pytest.raises(InputError, match=r"latest\.safetensors has .*layers\.1\..*: the model has changed"):
        load_training_state(tmp_path / "latest.safetensors", other, torch.optim.AdamW(other.parameters()))


@pytest.mark.parametrize("content", [b"", b"not a checkpoint at all", None])
def test_a_damaged_checkpoint_is_one_clear_line(tmp_path, content):
    path = tmp_path / "latest.safetensors"
    save_tensors(path, {"weight": torch.zeros(1000)}, {"epoch": 1})
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    with pytest.raises(InputError, match=r"latest\.safetensors is damaged") as error:
        load_tensors(path)
    assert "\n" not in str(error.value)


def test_a_file_without_a_training_state_is_not_called_damaged(tmp_path):
    save_file({"weight": torch.zeros(1)}, tmp_path / "weights.safetensors")
    with pytest.raises(InputError, match=r"weights\.safetensors holds no training state: start this run again"):
        load_tensors(tmp_path / "weights.safetensors")


MOMENT, STEP = "optimizer.exp_avg.output.bias", "optimizer.step.output.bias"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({MOMENT: torch.zeros(1)}, "the exp_avg of output.bias"),
        ({MOMENT: torch.zeros(())}, "the exp_avg of output.bias"),
        ({STEP: torch.zeros(13)}, "the step of output.bias"),
        ({MOMENT: torch.zeros(13, dtype=torch.int32)}, "the exp_avg of output.bias"),
        (None, "no optimizer state"),
        ({"optimizer": torch.zeros(1), "x": torch.zeros(1)}, None),
    ],
    ids=["too small", "a number", "too many steps", "integers", "missing", "of unknown parameters"],
)
def test_damaged_moments_are_refused(tmp_path, change, says):
    """Torch's fused Adam reads a moment for each value of the parameter, so a wrong shape would crash the process.

    Moments that belong to no parameter are ignored.
    """
    model, path = tiny_model(), tmp_path / "latest.safetensors"
    optimizer = build_optimizer(model, PRESETS["tour"])
    model(torch.tensor([[4, 5]]), torch.tensor([[1, 4]])).sum().backward()
    optimizer.step()
    save_training_state(path, model, optimizer, {"step": 1})
    tensors, facts = load_tensors(path)
    if change is None:
        tensors = {name: tensor for name, tensor in tensors.items() if name.startswith("model.")}
    save_tensors(path, tensors | (change or {}), facts)
    if says:
        with pytest.raises(InputError, match=rf"latest\.safetensors is damaged \({says}\): start this run again"):
            load_training_state(path, model, optimizer)
    else:
        assert load_training_state(path, model, optimizer) == {"step": 1}
