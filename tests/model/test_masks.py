import torch

from transformer_lab.model import causal_mask, padding_mask, target_mask

PAD = 7
TOKENS = torch.tensor([[1, 5, 2, PAD], [1, 2, PAD, PAD]])


def table(*rows: str) -> torch.Tensor:
    """Draw a mask: # may attend, . may not. Rows are queries, columns are keys."""
    return torch.tensor([[cell == "#" for cell in row] for row in rows])


def test_padding_is_hidden_on_the_key_axis():
    """A mask on the query axis would leave padding visible to every word."""
    mask = padding_mask(TOKENS, PAD)
    assert mask.shape == (2, 1, 1, 4)
    assert mask.dtype == torch.bool
    assert torch.equal(mask[:, 0, 0], table("###.", "##.."))


def test_padding_follows_pad_id():
    """If pad_id is not 0, token 0 is a word, so the id must not be hard-coded."""
    assert padding_mask(torch.tensor([[0, PAD]]), PAD).flatten().tolist() == [True, False]
    assert padding_mask(torch.tensor([[0, PAD]]), 0).flatten().tolist() == [False, True]


def test_a_position_sees_itself_and_the_past():
    """One diagonal off, and either the decoder copies the answer or its first word sees nothing."""
    mask = causal_mask(4)
    assert mask.shape == (1, 1, 4, 4)
    assert mask.dtype == torch.bool
    assert torch.equal(mask[0, 0], table("#...", "##..", "###.", "####"))


def test_one_word_sees_itself():
    """This is the first step of decoding; a strict mask would leave it nothing to attend to."""
    assert causal_mask(1).tolist() == [[[[True]]]]


def test_target_mask_is_both():
    mask = target_mask(TOKENS, PAD)
    assert mask.shape == (2, 1, 4, 4)
    assert torch.equal(mask[0, 0], table("#...", "##..", "###.", "###."))
    assert torch.equal(mask[1, 0], table("#...", "##..", "##..", "##.."))


def test_masks_live_where_their_tokens_live():
    """The meta device is used in place of a GPU, where a mask created on the CPU would crash the model."""
    tokens = TOKENS.to("meta")
    assert padding_mask(tokens, PAD).device.type == "meta"
    assert target_mask(tokens, PAD).device.type == "meta"
    assert causal_mask(3, "meta").device.type == "meta"
