"""The training objective: predict the next token, with label smoothing (sections 3.1 and 5.4 of the paper).

`consistency_loss` is newer than the paper.
"""

from torch import Tensor


def shift_target(target: Tensor) -> tuple[Tensor, Tensor]:
    """Split targets into the decoder's input and the labels: each position's label is the next token (section 3.1).

    Args:
        target: `(batch, length)`. Each row has bos, tokens, eos, and padding.

    Returns:
        `(decoder_input, labels)`, both `(batch, length - 1)`: all columns but the last, and all columns but the first.
    """
    return target[:, :-1], target[:, 1:]


def label_smoothing_loss(logits: Tensor, labels: Tensor, smoothing: float, pad_id: int) -> Tensor:
    """Return the cross-entropy against smoothed labels, averaged over real tokens (section 5.4, `smoothing` 0.1).

    The correct token keeps `1 - smoothing`. The rest is spread evenly over the whole vocabulary, including the correct
    token.

    Args:
        logits: `(batch, length, vocab)`.
        labels: `(batch, length)`. Positions with `pad_id` are ignored.
        smoothing: 0 is plain cross-entropy.
        pad_id: The ID of the padding token.

    Returns:
        A scalar, in nats per token.
    """
    real = labels != pad_id  # (batch, length)
    log_probabilities = logits[real].log_softmax(dim=-1)  # (real tokens, vocab)
    of_right_token = log_probabilities.gather(-1, labels[real].unsqueeze(-1)).squeeze(-1)  # (real tokens)
    of_every_token = log_probabilities.mean(dim=-1)  # (real tokens)
    return -((1 - smoothing) * of_right_token + smoothing * of_every_token).mean()


def consistency_loss(
    first: Tensor, second: Tensor, labels: Tensor, smoothing: float, pad_id: int, consistency: float
) -> Tensor:
    """Compute the loss of R-Drop (Liang et al. 2021, "R-Drop: Regularized Dropout for Neural Networks").

    The same sentences pass through the model twice with different dropout. Both passes must predict the labels, and
    their predictions must agree.

    The result is half of the loss in that paper, L1 + L2 + α (KL(P1 ‖ P2) + KL(P2 ‖ P1)) / 2, with `consistency` as α.
    If both passes agree, it equals the loss of a plain run.

    Args:
        first: `(batch, length, vocab)`, the logits of the first pass.
        second: The logits of the second pass, with the same shape.
        labels: `(batch, length)`. Positions with `pad_id` are ignored.
        smoothing: Label smoothing.
        pad_id: The ID of the padding token.
        consistency: Weight of the disagreement. For translation, that paper uses 5.

    Returns:
        A scalar, in nats per token.
    """
    real = labels != pad_id  # (batch, length)
    log_p, log_q = first[real].log_softmax(dim=-1), second[real].log_softmax(dim=-1)  # (real tokens, vocab)
    symmetric_kl = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(dim=-1)  # KL(P ‖ Q) + KL(Q ‖ P) of each token
    one, other = (label_smoothing_loss(logits, labels, smoothing, pad_id) for logits in (first, second))
    return (one + other) / 2 + consistency / 4 * symmetric_kl.mean()
