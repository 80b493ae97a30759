import math

import pytest
import torch

from transformer_lab.model import PositionalEncoding, TokenEmbedding, sinusoidal_encoding

PAD = 3


def test_padding_is_zero_and_learns_nothing():
    embedding = TokenEmbedding(10, 16, PAD)
    output = embedding(torch.tensor([[1, PAD, PAD]]))
    assert (output[0, 1:] == 0).all()
    output.sum().backward()
    gradient = embedding.embedding.weight.grad
    assert (gradient[PAD] == 0).all()
    assert (gradient[1] == 4).all()  # √d_model


@pytest.mark.parametrize("d_model", [2, 6, 512])
def test_sinusoids_follow_the_formula(d_model, dtype):
    """Even at high positions, every entry matches section 3.5 (computed in Python's own float64) to within rounding."""
    encoding = sinusoidal_encoding(512, d_model)
    assert encoding.shape == (512, d_model)
    assert encoding.dtype == dtype
    # Half a unit in the last place of float32; float64 loses three digits with angles up to 511.
    rounding = {torch.float32: 6e-8, torch.float64: 1e-12}[dtype]
    for position in (0, 1, 2, 20, 100, 511):
        angles = [position / 10000 ** (feature / d_model) for feature in range(0, d_model, 2)]
        expected = [wave(angle) for angle in angles for wave in (math.sin, math.cos)]
        difference = encoding[position].double() - torch.tensor(expected, dtype=torch.float64)
        assert difference.abs().max() < rounding


@pytest.mark.parametrize("d_model", [1, 7, 255])
def test_an_odd_width_is_refused(d_model):
    """An odd width would leave a sine without its cosine. The error gives that width and suggests one that works."""
    with pytest.raises(ValueError, match=f"d_model {d_model} is odd.*{d_model + 1}"):
        sinusoidal_encoding(4, d_model)


def test_dropout_acts_on_the_sum():
    """Dropout on the tokens alone would leave the positions unchanged (section 5.4)."""
    assert (PositionalEncoding(6, dropout=1.0)(torch.randn(2, 4, 6)) == 0).all()


def test_positions_move_with_the_model():
    """A table that stays on the CPU would crash a model on a GPU. The meta device is used here in place of a GPU."""
    positional_encoding = PositionalEncoding(6).to("meta")
    assert positional_encoding(torch.zeros(1, 2, 6, device="meta")).device.type == "meta"
