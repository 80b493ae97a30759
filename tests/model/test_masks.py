import torch

from transformer_lab.model import causal_mask, padding_mask, target_mask

PAD = 7
TOKENS = torch.tensor([[1, 5, 2, PAD], [0, 2, PAD, PAD]])


def table(*rows: str) -> torch.Tensor:
    """Draw a mask as text: "#" may attend, "." may not. Rows are queries; columns are keys."""
    return torch.tensor([[cell == "#" for cell in row] for row in rows])


def test_padding_is_hidden_on_the_key_axis():
    """A mask on the query axis would leave padding visible to every word. Here, token 0 is a word."""
    assert torch.equal(padding_mask(TOKENS, PAD), table("###.", "##..")[:, None, None])
    assert torch.equal(padding_mask(TOKENS, 0), table("####", ".###")[:, None, None])


def test_a_position_sees_itself_and_the_past():
    """If the diagonal is off by one, either the decoder copies the answer or its first word sees nothing."""
    assert torch.equal(causal_mask(4), table("#...", "##..", "###.", "####")[None, None])
    assert causal_mask(1).tolist() == [[[[True]]]]  # the first step of decoding


def test_target_mask_is_both():
    expected = [table("#...", "##..", "###.", "###."), table("#...", "##..", "##..", "##..")]
    assert torch.equal(target_mask(TOKENS, PAD), torch.stack(expected)[:, None])


def test_masks_are_created_on_the_device_of_their_tokens():
    """The meta device is used in place of a GPU, where a mask created on the CPU would crash the model."""
    tokens = TOKENS.to("meta")
    for mask in (padding_mask(tokens, PAD), target_mask(tokens, PAD), causal_mask(3, "meta")):
        assert mask.device.type == "meta"
