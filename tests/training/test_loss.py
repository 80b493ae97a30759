import pytest
import torch
import torch.nn.functional as F

from transformer_lab.training.loss import consistency_loss, label_smoothing_loss, shift_target

PAD = 0


def test_decoder_reads_all_but_the_last_token_and_answers_all_but_the_first():
    """Without the shift, the decoder would be trained to predict the token it has just read."""
    target = torch.tensor([[1, 7, 8, 2], [1, 9, 2, PAD]])
    decoder_input, labels = shift_target(target)
    assert decoder_input.tolist() == [[1, 7, 8], [1, 9, 2]]
    assert labels.tolist() == [[7, 8, 2], [9, 2, PAD]]


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_loss_and_its_gradient_are_those_of_torch(smoothing):
    """An error in the correct token's share, or in averaging over padding, would change every figure in the course."""
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
    torch.testing.assert_close(loss, expected, atol=1e-12, rtol=0)  # float64: only rounding may differ
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-12, rtol=0)


def test_logits_at_padding_do_not_matter_even_if_they_are_no_numbers():
    """Multiplying by a mask would let a NaN at a padded position into the loss, because NaN times 0 is NaN."""
    logits = torch.randn(1, 3, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[3, 4, PAD]])
    expected = label_smoothing_loss(logits, labels, 0.1, PAD)
    logits[0, 2] = torch.nan
    assert torch.equal(label_smoothing_loss(logits, labels, 0.1, PAD), expected)


def two_passes():
    generator = torch.Generator().manual_seed(3)
    first, second = torch.randn(2, 2, 4, 7, generator=generator, dtype=torch.float64) * 2  # (batch, length, vocab) each
    labels = torch.tensor([[3, 4, 2, PAD], [5, 2, PAD, PAD]])
    return first, second, labels


def test_consistency_is_half_of_the_papers_loss():
    """If a factor were lost between the paper's sum of two losses and our mean, α would mean something else here."""
    first, second, labels = two_passes()
    total = 0.0
    for p_logits, q_logits, label in zip(first.flatten(0, 1), second.flatten(0, 1), labels.flatten(), strict=True):
        if label != PAD:
            p, q = p_logits.softmax(-1), q_logits.softmax(-1)
            to_q, to_p = F.kl_div(q.log(), p, reduction="sum"), F.kl_div(p.log(), q, reduction="sum")
            total += -p[label].log() - q[label].log() + 3.0 * (to_q + to_p) / 2
    loss = consistency_loss(first, second, labels, 0.0, PAD, consistency=3.0)
    torch.testing.assert_close(loss, total / 5 / 2, atol=1e-12, rtol=0)  # 5 real tokens; half of the sum


def test_two_passes_that_agree_have_the_loss_of_one():
    first, _, labels = two_passes()
    expected = label_smoothing_loss(first, labels, 0.1, PAD)
    assert torch.equal(consistency_loss(first, first.clone(), labels, 0.1, PAD, consistency=5.0), expected)


def test_the_gradient_of_consistency_is_that_of_differences_and_flows_into_both_passes():
    """If one pass were detached, only the other pass would get a gradient."""
    first, second, labels = two_passes()
    first.requires_grad_()
    second.requires_grad_()

    def loss(one, other):
        return consistency_loss(one, other, labels, 0.1, PAD, consistency=5.0)

    assert torch.autograd.gradcheck(loss, (first, second))
    apart = loss(first, second) - consistency_loss(first, second, labels, 0.1, PAD, consistency=0.0)
    for gradient in torch.autograd.grad(apart, (first, second)):
        real = (labels != PAD).unsqueeze(-1)
        assert (gradient.abs().amax(-1, keepdim=True)[real] > 1e-3).all()
        assert (gradient.masked_select(~real) == 0).all()  # padding has no gradient
