import pytest
import torch
import torch.nn.functional as F

from transformer_lab.training.loss import label_smoothing_loss, shift_target

PAD = 0


def test_decoder_reads_all_but_the_last_token_and_answers_all_but_the_first():
    """Without the shift the decoder would be asked for the token it has just read."""
    target = torch.tensor([[1, 7, 8, 2], [1, 9, 2, PAD]])
    decoder_input, labels = shift_target(target)
    assert decoder_input.tolist() == [[1, 7, 8], [1, 9, 2]]
    assert labels.tolist() == [[7, 8, 2], [9, 2, PAD]]


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_loss_and_its_gradient_are_those_of_torch(smoothing):
    """A slip in the share of the right token or in the mean over padding would change every figure of the course."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 5, 11, generator=generator, dtype=torch.float64) * 3
    labels = torch.randint(1, 11, (3, 5), generator=generator)
    labels[0, 3:] = PAD
    labels[2, 1:] = PAD
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss = label_smoothing_loss(ours, labels, smoothing, PAD)
    expected = F.cross_entropy(theirs.flatten(0, 1), labels.flatten(), ignore_index=PAD, label_smoothing=smoothing)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(loss, expected, atol=1e-12, rtol=0)  # float64: nothing but rounding
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-12, rtol=0)


def test_logits_at_padding_do_not_matter_even_if_they_are_no_numbers():
    """A product with a mask would let a NaN at a padded position into the loss: NaN times 0 is NaN."""
    logits = torch.randn(1, 3, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[3, 4, PAD]])
    expected = label_smoothing_loss(logits, labels, 0.1, PAD)
    logits[0, 2] = torch.nan
    assert torch.equal(label_smoothing_loss(logits, labels, 0.1, PAD), expected)
