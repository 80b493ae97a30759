"""What the model is asked to get right: the next token, with softened labels (sections 3.1 and 5.4 of the paper)."""

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
