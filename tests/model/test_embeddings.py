import math

import pytest
import torch

from transformer_lab.model import PositionalEncoding, TokenEmbedding, sinusoidal_encoding

PAD = 3


def formula(position: int, feature: int, d_model: int) -> float:
    """Compute section 3.5 one entry at a time, in Python's own float64."""
    angle = position / 10000 ** (2 * (feature // 2) / d_model)
    return math.cos(angle) if feature % 2 else math.sin(angle)


# TokenEmbedding


def test_embedding_is_scaled_by_the_root_of_d_model():
    """Without the scaling, the positions, of size 1, would drown out the tokens, of size 1/√d_model."""
    embedding = TokenEmbedding(10, 16, PAD)
    tokens = torch.tensor([[1, 5], [9, 0]])
    assert embedding(tokens).shape == (2, 2, 16)
    torch.testing.assert_close(embedding(tokens), 4 * embedding.embedding.weight[tokens])


def test_padding_is_zero_and_learns_nothing():
    embedding = TokenEmbedding(10, 16, PAD)
    output = embedding(torch.tensor([[1, PAD, PAD]]))
    assert (output[0, 1:] == 0).all()
    output.sum().backward()
    gradient = embedding.embedding.weight.grad
    assert (gradient[PAD] == 0).all()
    assert (gradient[1] == 4).all()


@pytest.mark.parametrize("pad_id", [-1, 10, 99])
def test_padding_must_be_a_token(pad_id):
    """torch takes -1 as the last token; the masks, which compare with pad_id, would then hide nothing."""
    with pytest.raises(ValueError, match=f"pad_id {pad_id} is not a token of a vocabulary of 10"):
        TokenEmbedding(10, 16, pad_id)


# sinusoidal_encoding


@pytest.mark.parametrize("d_model", [2, 6, 512])
def test_sinusoids_follow_the_formula(d_model, dtype):
    """Sine on even features, cosine of the same angle on odd ones, exact up to rounding even at high positions."""
    encoding = sinusoidal_encoding(512, d_model)
    assert encoding.shape == (512, d_model)
    assert encoding.dtype == dtype
    # Half a unit in the last place of float32; float64 loses three digits with angles up to 511.
    rounding = {torch.float32: 6e-8, torch.float64: 1e-12}[dtype]
    for position in (0, 1, 2, 20, 100, 511):
        expected = [formula(position, feature, d_model) for feature in range(d_model)]
        difference = encoding[position].double() - torch.tensor(expected, dtype=torch.float64)
        assert difference.abs().max() < rounding


def test_first_rows_by_hand():
    """Position 0 is sin 0, cos 0; with four features, the second pair turns 100 times more slowly."""
    expected = [[0.0, 1.0, 0.0, 1.0], [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)]]
    torch.testing.assert_close(sinusoidal_encoding(2, 4), torch.tensor(expected))


@pytest.mark.parametrize("distance", [1, 7, 100])
def test_a_step_is_the_same_rotation_from_everywhere(distance):
    """The paper chose sinusoids for this reason: PE(pos + k) is a linear function of PE(pos) that depends only on k."""
    d_model, length = 8, 300
    encoding = sinusoidal_encoding(length, d_model)
    rotation = torch.zeros(d_model, d_model)
    for pair in range(0, d_model, 2):
        angle = distance / 10000 ** (pair / d_model)
        rotation[pair : pair + 2, pair : pair + 2] = torch.tensor(
            [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
        )
    # Products of float32 numbers below 1, each rounded by up to 6e-8.
    torch.testing.assert_close(encoding[:-distance] @ rotation.T, encoding[distance:], atol=1e-6, rtol=0)


@pytest.mark.parametrize("d_model", [1, 7, 255])
def test_an_odd_width_is_refused(d_model):
    """It would have a sine without its cosine; the message names the given width and ones that work."""
    for build in (lambda: sinusoidal_encoding(4, d_model), lambda: PositionalEncoding(d_model)):
        with pytest.raises(ValueError, match=f"d_model {d_model} is odd.*{d_model + 1}"):
            build()


# PositionalEncoding


def test_positions_are_added():
    positional_encoding = PositionalEncoding(6, max_length=10)
    x = torch.randn(2, 4, 6)
    torch.testing.assert_close(positional_encoding(x), x + sinusoidal_encoding(4, 6))


def test_max_length_is_the_last_length_that_fits():
    """With an off-by-one error, the longest sentence of a corpus would stop training after an hour."""
    positional_encoding = PositionalEncoding(6, max_length=10)
    assert positional_encoding(torch.zeros(1, 10, 6)).shape == (1, 10, 6)
    with pytest.raises(ValueError, match="sequence of 11 tokens, but max_length is 10: raise max_length"):
        positional_encoding(torch.zeros(1, 11, 6))


def test_dropout_acts_on_the_sum():
    """Section 5.4. Dropout on the tokens alone would leave the positions."""
    positional_encoding = PositionalEncoding(6, dropout=1.0)
    assert (positional_encoding(torch.randn(2, 4, 6)) == 0).all()


def test_positions_are_neither_trained_nor_saved():
    """A saved table would tie a checkpoint to its max_length."""
    positional_encoding = PositionalEncoding(6)
    assert list(positional_encoding.parameters()) == []
    assert positional_encoding.state_dict() == {}


def test_positions_move_with_the_model():
    """A table that stays in float32 or on the CPU would crash a model in half precision or on a GPU."""
    positional_encoding = PositionalEncoding(6).half()
    assert positional_encoding(torch.zeros(1, 2, 6).half()).dtype == torch.half
    assert positional_encoding.to("meta")(torch.zeros(1, 2, 6, device="meta")).device.type == "meta"


def test_a_negative_dropout_is_refused():
    with pytest.raises(ValueError, match=r"between 0 and 1, but got -0\.1"):
        PositionalEncoding(6, dropout=-0.1)
