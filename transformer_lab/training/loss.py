"""What the model is asked to get right: the next token, with softened labels (sections 3.1 and 5.4 of the paper).

And, if it is asked for, to say the same twice: consistency training, which is younger than the paper.
"""

from torch import Tensor


def shift_target(target: Tensor) -> tuple[Tensor, Tensor]:
    """What the decoder reads and what it must answer: at each position, the token that comes next (section 3.1).

    Args:
        target: `(batch, length)`, each row bos, tokens, eos, padding.

    Returns:
        `(decoder_input, labels)`: all columns but the last, all but the first, both `(batch, length - 1)`.
    """
    return target[:, :-1], target[:, 1:]


def label_smoothing_loss(logits: Tensor, labels: Tensor, smoothing: float, pad_id: int) -> Tensor:
    """Cross-entropy against softened labels (section 5.4, where `smoothing` is 0.1), the mean over real tokens.

    The right token keeps `1 - smoothing`; the rest is spread evenly over the whole vocabulary, the right token too.

    Args:
        logits: `(batch, length, vocab)`.
        labels: `(batch, length)`; where it is `pad_id`, nothing is asked.
        smoothing: 0 gives plain cross-entropy.
        pad_id: the id of padding.

    Returns:
        A scalar, in nats a token.
    """
    real = labels != pad_id  # (batch, length)
    log_probabilities = logits[real].log_softmax(dim=-1)  # (real tokens, vocab)
    of_right_token = log_probabilities.gather(-1, labels[real].unsqueeze(-1)).squeeze(-1)  # (real tokens)
    of_every_token = log_probabilities.mean(dim=-1)  # (real tokens)
    return -((1 - smoothing) * of_right_token + smoothing * of_every_token).mean()


def consistency_loss(
    first: Tensor, second: Tensor, labels: Tensor, smoothing: float, pad_id: int, consistency: float
) -> Tensor:
    """R-Drop (Liang et al. 2021, "R-Drop: Regularized Dropout for Neural Networks"): two passes over the same sentences
    drop different numbers; both must be right, and they must not contradict each other.

    This is half of the paper's loss, L1 + L2 + α (KL(P1 ‖ P2) + KL(P2 ‖ P1)) / 2, so that `consistency` is its α, and a
    run in which both passes agree has the loss of a plain one.

    Args:
        first: `(batch, length, vocab)`, the logits of one pass.
        second: those of the other.
        labels: `(batch, length)`; where it is `pad_id`, nothing is asked, neither right answers nor agreement.
        smoothing: of the labels.
        pad_id: the id of padding.
        consistency: the weight of the disagreement; the paper takes 5 for translation.

    Returns:
        A scalar, in nats a token.
    """
    real = labels != pad_id  # (batch, length)
    log_p, log_q = first[real].log_softmax(dim=-1), second[real].log_softmax(dim=-1)  # (real tokens, vocab)
    symmetric_kl = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(dim=-1)  # KL(P ‖ Q) + KL(Q ‖ P) of each token
    one, other = (label_smoothing_loss(logits, labels, smoothing, pad_id) for logits in (first, second))
    return (one + other) / 2 + consistency / 4 * symmetric_kl.mean()
