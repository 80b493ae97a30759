"""Notebook 10, training: what is asked, how wrong an answer is, how far to step, a step, and how good the model is."""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lab.exercises.draw import Draw
from transformer_lab.exercises.exercise import Exercise, Misconception, Probe, Property, Remark
from transformer_lab.exercises.recipes import gradients, raised
from transformer_lab.training import evaluate, label_smoothing_loss, shift_target, train_step, warmup_rate

BOS, EOS = 1, 2


def padded_targets(draw: Draw, lengths: list[int], vocab: int = 7, pad_id: int = 0) -> Tensor:
    """`(batch, longest)`: bos, tokens, eos, padding. Where padding is not 0, each row has 0 among its tokens."""
    target = torch.full((len(lengths), max(lengths)), pad_id)
    for row, length in zip(target, lengths, strict=True):
        tokens = [token for token in range(3, vocab) if token != pad_id]
        order = [tokens[index] for index in draw.order(len(tokens))]
        middle = (order * length)[: length - 2]
        if pad_id != 0 and middle:
            middle[0] = 0
        row[:length] = torch.tensor([BOS, *middle, EOS])
    return target


# --- shift_target ----------------------------------------------------------------------------------------------------


def lengths_are_one_less(inputs, received):
    batch, length = inputs["target"].shape
    for name, tensor in zip(("decoder_input", "labels"), received, strict=True):
        if tuple(tensor.shape) != (batch, length - 1):
            return f"`{name}` has shape {tuple(tensor.shape)}, expected is {(batch, length - 1)}: one column less"
    return None


def next_input_is_this_label(inputs, received):
    decoder_input, labels = received
    if not torch.equal(decoder_input[:, 1:], labels[:, :-1]):
        return "a label is not the token that the decoder reads one position later"
    return None


def ignoring_last_column(target):
    target[:, -1] = 0
    return target[:, :-1], target[:, 1:]


def rolled_to_the_right(target):
    return target[:, :-1], target.roll(1, dims=1)[:, :-1]


def input_without_its_eos(target):
    decoder_input = target[:, :-1].clone()
    decoder_input[decoder_input == 2] = 0
    return decoder_input, target[:, 1:]


def bos_put_in_front(target):
    return torch.cat([torch.full_like(target[:, :1], 1), target[:, :-1]], dim=1), target


SHIFT_TARGET = Exercise(
    answer=shift_target,
    points=1,
    minutes=5,
    returns=("decoder_input", "labels"),
    axes={"target": "batch length", "decoder_input": "batch length", "labels": "batch length"},
    probes=[
        Probe("one sentence", lambda draw: {"target": padded_targets(draw, [4])}),
        Probe("three sentences, the shorter ones padded", lambda draw: {"target": padded_targets(draw, [6, 4, 5])}),
        Probe("an empty sentence among others", lambda draw: {"target": padded_targets(draw, [2, 4])}),
        Probe("other ids for padding", lambda draw: {"target": padded_targets(draw, [3, 5], pad_id=6)}),
    ],
    properties=[
        Property(
            "both have one column less than the target",
            lambda draw: {"target": padded_targets(draw, [5, 4])},
            lengths_are_one_less,
        ),
        Property(
            "what is asked at one position is read at the next",
            lambda draw: {"target": padded_targets(draw, [7, 6])},
            next_input_is_this_label,
        ),
    ],
    misconceptions=[
        Misconception(
            "unshifted",
            lambda target: (target, target),
            "The labels are what the decoder reads. It sees each answer while it is asked for it, learns to copy, "
            "reaches a loss near zero, and cannot write a word. The labels are one position ahead (section 3.1): "
            "`target[:, 1:]`.",
        ),
        Misconception(
            "same_part_twice",
            lambda target: (target[:, :-1], target[:, :-1]),
            "Input and labels are the same columns, all but the last. The model would learn to copy the token it "
            "reads. The labels are all but the *first* column, `target[:, 1:]`.",
        ),
        Misconception(
            "without_bos_twice",
            lambda target: (target[:, 1:], target[:, 1:]),
            "Input and labels are the same columns, all but the first. The decoder has to start from bos, which is how "
            "a translation starts: it reads all columns but the *last*, `target[:, :-1]`.",
        ),
        Misconception(
            "swapped",
            lambda target: (target[:, 1:], target[:, :-1]),
            "The two are swapped: the decoder reads each token and is asked for the one *before*. It reads all columns "
            "but the last and is asked for all but the first.",
        ),
        Misconception(
            "input_whole",
            lambda target: (target, target[:, 1:]),
            "The decoder reads one token more than it has labels. After the last token nothing is asked: drop the last "
            "column, `target[:, :-1]`.",
        ),
        Misconception(
            "labels_whole",
            lambda target: (target[:, :-1], target),
            "The labels are the whole target, bos too. Nobody is asked for bos, it is given: the labels start with the "
            "first real token, `target[:, 1:]`.",
        ),
        Misconception(
            "along_the_batch",
            lambda target: (target[:-1], target[1:]),
            "Rows are cut off, not columns: `target[:-1]` is all sentences but the last. The positions are the second "
            "axis, `target[:, :-1]`.",
        ),
        Misconception(
            "rolled",
            lambda target: (target, target.roll(-1, dims=1)),
            "`roll` brings bos round to the end, where it becomes a label. Cut a column off instead: `target[:, :-1]` "
            "and `target[:, 1:]`.",
        ),
        Misconception(
            "shifted_once_more",
            lambda target: (F.pad(target[:, :-1], (1, 0)), target),
            "The target is shifted to the right behind a 0, as for a target that has no bos. This one starts with bos "
            "already, so the decoder would start from padding and be asked for bos.",
        ),
        Misconception(
            "two_ahead",
            lambda target: (target[:, :-2], target[:, 2:]),
            "Two columns are cut off each side, so that a token is asked for two positions ahead. It is the next one: "
            "one column each.",
        ),
        Misconception(
            "inner_tokens",
            lambda target: (target[:, 1:-1], target[:, 1:-1]),
            "Both ends are cut off both times. Without bos the decoder has nothing to start from, without eos it never "
            "learns to stop: cut one column off each.",
        ),
        Misconception(
            "last_token_erased",
            ignoring_last_column,
            "The last column is overwritten with 0. The eos of the longest sentence stands there, and it belongs to "
            "the caller's tensor: take slices and write nothing.",
        ),
        Misconception(
            "rolled_to_the_right",
            rolled_to_the_right,
            "The labels are rolled the wrong way, so that each position is asked for the token before it, which it "
            "has read. `target[:, 1:]` is all but the first.",
        ),
        Misconception(
            "eos_taken_out",
            input_without_its_eos,
            "The shorter sentences' eos is taken out of what the decoder reads. It may stay: behind it there is "
            "nothing but padding to be asked for, and the loss leaves that out. Just cut the last column off.",
        ),
        Misconception(
            "bos_put_in_front",
            bos_put_in_front,
            "Bos is put in front, as T5's `shift_right` does, and the whole target is asked for. In this course the "
            "target has its bos already, so nobody is asked for it: cut the last column off the one side and the "
            "first off the other.",
        ),
        Misconception(
            "bos_dropped",
            lambda target: (target[:, 1:-1], target[:, 2:]),
            "Bos is dropped first, so the decoder never reads it and nobody is asked for the first word. A "
            "translation begins with bos: it has to be there in training too.",
        ),
        Misconception(
            "hundred_below_zero",
            lambda target: (target[:, :-1], target[:, 1:].masked_fill(target[:, 1:] == 0, -100)),
            "Padding in the labels becomes -100, which Hugging Face's models leave out. Here the loss compares with "
            "`pad_id`, and an index of -100 is none: leave the labels as they are.",
        ),
    ],
    hints=[
        "Write a target down: bos, the, dog, eos. What should the decoder answer when it has read bos? And when it has "
        "read bos, the?",
        "Position i of the labels is position i + 1 of the target. Nothing follows the last token, and nothing asks "
        "for the first.",
        "All columns but the last, and all columns but the first: `target[:, :-1]` and `target[:, 1:]`.",
    ],
)

# --- label_smoothing_loss --------------------------------------------------------------------------------------------


def loss_inputs(draw: Draw, lengths: list[int], smoothing: float, vocab: int = 5, pad_id: int = 0) -> dict:
    """Labels of the given lengths, padded. At padding too there are logits."""
    labels = torch.full((len(lengths), max(lengths)), pad_id)
    for row, length in zip(labels, lengths, strict=True):
        tokens = draw.integers(length, low=0, high=vocab - 2)
        row[:length] = tokens + (tokens >= pad_id).long()  # any id but that of padding
    return {
        "logits": draw.numbers(*labels.shape, vocab),
        "labels": labels,
        "smoothing": smoothing,
        "pad_id": pad_id,
    }


def zero_is_a_word(draw: Draw) -> dict:
    inputs = loss_inputs(draw, [3, 2], 0.2, pad_id=3)
    inputs["labels"][:, 0] = 0
    return inputs


def great_logits(draw: Draw) -> dict:
    inputs = loss_inputs(draw, [3, 2], 0.1)
    inputs["logits"] *= 1000
    inputs["logits"][0, 0, :2] = torch.tensor([3000.0, -3000.0])
    return inputs


def loss_and_gradient(subject, logits, labels, smoothing, pad_id):
    loss = subject(logits.requires_grad_(), labels, smoothing, pad_id)
    return {"loss": loss} | gradients(loss, {"logits": logits})


def no_gradient_at_padding(inputs, received):
    gradient = received["gradient of logits"]
    if gradient is not None and gradient[inputs["labels"] == inputs["pad_id"]].abs().max() > 0:
        return "the logits at padding have a gradient"
    return None


def losses_of_even_logits(subject, logits, labels, smoothing, pad_id):
    return {"loss": subject(torch.full_like(logits, 1.5), labels, smoothing, pad_id)}


def even_logits_lose_log_vocab(inputs, received):
    if not math.isclose(float(received["loss"]), math.log(inputs["logits"].size(-1)), abs_tol=1e-6):
        return "with equal logits for all tokens, the loss is not the logarithm of their number"
    return None


def losses_of_raised_logits(subject, logits, labels, smoothing, pad_id, added):
    raised_logits = logits + added
    return {
        "loss": subject(logits, labels, smoothing, pad_id),
        "raised": subject(raised_logits, labels, smoothing, pad_id),
    }


def raising_changes_nothing(inputs, received):
    if torch.allclose(torch.as_tensor(received["loss"]), torch.as_tensor(received["raised"]), atol=1e-6):
        return None
    return "the same number added to all logits of a position changes the loss"


def soft_labels(labels: Tensor, smoothing: float, vocab: int) -> Tensor:
    return (1 - smoothing) * F.one_hot(labels, vocab) + smoothing / vocab


def loss_from(distribution=soft_labels, log_softmax=lambda logits: logits.log_softmax(-1), reduce=None):
    """A label_smoothing_loss with other labels, other log-probabilities, or another mean."""

    def loss(logits, labels, smoothing, pad_id):
        softened = distribution(labels, smoothing, logits.size(-1))
        losses = -(softened * log_softmax(logits)).sum(-1)  # (batch, length)
        real = labels != pad_id
        return reduce(losses, real) if reduce else losses[real].mean()

    return loss


def spread_over_others(labels, smoothing, vocab):
    right = F.one_hot(labels, vocab)
    return (1 - smoothing) * right + smoothing / (vocab - 1) * (1 - right)


def spread_with_right_not_raised(labels, smoothing, vocab):
    right = F.one_hot(labels, vocab)
    return (1 - smoothing) * right + smoothing / vocab * (1 - right)


def without_padding_token(logits, labels, smoothing, pad_id):
    """As the Annotated Transformer spreads it: nothing for padding, over all but padding and the right token."""
    vocab = logits.size(-1)
    softened = torch.full_like(logits, smoothing / (vocab - 2)).detach()
    softened.scatter_(-1, labels.unsqueeze(-1), 1 - smoothing)
    softened[..., pad_id] = 0
    return -(softened * logits.log_softmax(-1)).sum(-1)[labels != pad_id].mean()


def divergence(logits, labels, smoothing, pad_id):
    real = labels != pad_id
    softened = soft_labels(labels, smoothing, logits.size(-1))[real]
    return F.kl_div(logits.log_softmax(-1)[real], softened, reduction="batchmean")


def with_padding_zero(logits, labels, smoothing, pad_id):
    return label_smoothing_loss(logits, labels, smoothing, 0)


def with_labels_overwritten(logits, labels, smoothing, pad_id):
    labels[labels == pad_id] = -100
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing)


def with_classes_last(logits, labels, smoothing, pad_id):
    return F.cross_entropy(logits, labels, ignore_index=pad_id, label_smoothing=smoothing)


def with_axes_viewed(logits, labels, smoothing, pad_id):
    batch, length, vocab = logits.shape
    scrambled = logits.reshape(batch, vocab, length).transpose(1, 2)
    return label_smoothing_loss(scrambled, labels, smoothing, pad_id)


def smoothed_over_padding(logits, labels, smoothing, pad_id):
    log_probabilities = logits.log_softmax(-1)
    real = labels != pad_id
    right = -log_probabilities.gather(-1, labels[..., None]).squeeze(-1)[real].sum()
    return ((1 - smoothing) * right - smoothing * log_probabilities.mean(-1).sum()) / real.sum()


def with_length_first(logits, labels, smoothing, pad_id):
    logits = logits.transpose(0, 1).reshape(-1, logits.size(-1))
    return F.cross_entropy(logits, labels.flatten(), label_smoothing=smoothing, ignore_index=pad_id)


LABEL_SMOOTHING_LOSS = Exercise(
    answer=label_smoothing_loss,
    points=3,
    minutes=25,
    returns=("loss",),
    axes={"logits": "batch length vocab", "labels": "batch length", "gradient of logits": "batch length vocab"},
    banned=("torch.nn.functional.cross_entropy", "torch.nn.CrossEntropyLoss"),
    probes=[
        Probe("one token, not smoothed", lambda draw: loss_inputs(draw, [1], 0.0, vocab=3, pad_id=2)),
        Probe("one token, smoothed", lambda draw: loss_inputs(draw, [1], 0.2, vocab=4)),
        Probe("sentences of different lengths", lambda draw: loss_inputs(draw, [2, 1], 0.1, vocab=4)),
        Probe("padding is not 0", zero_is_a_word),
        Probe("very great logits", great_logits),
        Probe("the gradient of the logits", lambda draw: loss_inputs(draw, [2, 1], 0.3), loss_and_gradient),
    ],
    properties=[
        Property(
            "no gradient at padding",
            lambda draw: loss_inputs(draw, [3, 1], 0.1),
            no_gradient_at_padding,
            loss_and_gradient,
        ),
        Property(
            "equal logits lose the logarithm of the vocabulary's size",
            lambda draw: loss_inputs(draw, [2, 2], 0.1, vocab=draw.integer(4, 8)),
            even_logits_lose_log_vocab,
            losses_of_even_logits,
        ),
        Property(
            "a number added to all logits changes nothing",
            lambda draw: loss_inputs(draw, [2, 3], 0.1) | {"added": draw.integer(2, 5)},
            raising_changes_nothing,
            losses_of_raised_logits,
        ),
    ],
    misconceptions=[
        Misconception(
            "over_the_other_tokens",
            loss_from(spread_over_others),
            "The mass is spread over the vocab - 1 *other* tokens. In this course, as in torch's `cross_entropy` and "
            "in Szegedy et al. (2016), whom section 5.4 cites, it is spread evenly over the whole vocabulary, the "
            "right token too: smoothing / vocab each.",
        ),
        Misconception(
            "over_all_but_two",
            without_padding_token,
            "The mass is spread over vocab - 2 tokens, neither on padding nor on the right token, as in a well-known "
            "listing. Here every token of the vocabulary gets smoothing / vocab, the right one as well: so does "
            "torch's `cross_entropy`, and losses can be compared.",
        ),
        Misconception(
            "mass_lost",
            loss_from(spread_with_right_not_raised),
            "The softened labels do not add up to 1: with smoothing / vocab on each other token, the right one has "
            "1 - smoothing *plus* its own smoothing / vocab.",
        ),
        Misconception(
            "not_shared",
            loss_from(lambda labels, smoothing, vocab: (1 - smoothing) * F.one_hot(labels, vocab) + smoothing),
            "Every token gets the whole of `smoothing`. The tokens share it, smoothing / vocab each: the *mean* of the "
            "log-probabilities over the vocabulary, not their sum.",
        ),
        Misconception(
            "mass_added",
            loss_from(lambda labels, smoothing, vocab: F.one_hot(labels, vocab) + smoothing / vocab),
            "The right token keeps its whole 1, and smoothing / vocab comes on top everywhere: the labels add up to "
            "1 + smoothing. The right token gives away what the others get: it keeps 1 - smoothing.",
        ),
        Misconception(
            "parts_swapped",
            loss_from(lambda labels, smoothing, vocab: soft_labels(labels, 1 - smoothing, vocab)),
            "`smoothing` and `1 - smoothing` have changed places: the right token gets the small part. With a "
            "smoothing of 0.1 (section 5.4) nine tenths stay on the right token.",
        ),
        Misconception(
            "not_smoothed",
            loss_from(lambda labels, smoothing, vocab: F.one_hot(labels, vocab)),
            "`smoothing` is not used: this is plain cross-entropy. Section 5.4 takes 0.1 from the right token and "
            "spreads it over the vocabulary.",
        ),
        Misconception(
            "over_all_cells",
            loss_from(reduce=lambda losses, real: (losses * real).mean()),
            "The losses of real tokens are added up, but divided by the number of all cells, padding too. The more "
            "padding a batch has, the less its words count. Divide by the number of real tokens.",
        ),
        Misconception(
            "padding_is_a_word",
            loss_from(reduce=lambda losses, real: losses.mean()),
            "Padding is counted like words: the model is asked for it and rewarded for it. Leave out every position "
            "whose label is `pad_id`, in the sum and in the number it is divided by.",
        ),
        Misconception(
            "mean_of_sentences",
            loss_from(reduce=lambda losses, real: ((losses * real).sum(1) / real.sum(1)).mean()),
            "First the mean of each sentence is taken, then the mean of those: a word of a short sentence counts more "
            "than one of a long sentence. All real tokens count the same.",
        ),
        Misconception(
            "sum_by_sentences",
            loss_from(reduce=lambda losses, real: (losses * real).sum() / len(losses)),
            "The sum is divided by the number of sentences. Long sentences then make long steps; divide by the number "
            "of real tokens.",
        ),
        Misconception(
            "sum",
            loss_from(reduce=lambda losses, real: losses[real].sum()),
            "The losses are added up and not divided, so the step grows with the size of the batch. Take the mean over "
            "the real tokens.",
        ),
        Misconception(
            "one_for_each_token",
            loss_from(reduce=lambda losses, real: losses * real),
            "A loss comes back for every token. `backward` needs one number: the mean over the real tokens.",
        ),
        Misconception(
            "divergence",
            divergence,
            "This is the Kullback-Leibler divergence: cross-entropy minus the entropy of the softened labels. Its "
            "gradient is the same, but its value is not in nats a token that you can compare: it is smaller by a "
            "constant. Take the cross-entropy, without that last part.",
        ),
        Misconception(
            "no_softmax",
            loss_from(log_softmax=lambda logits: logits),
            "The logits are used as if they were log-probabilities. They are any numbers; `log_softmax` over the last "
            "axis makes log-probabilities of them.",
        ),
        Misconception(
            "softmax_twice",
            loss_from(log_softmax=lambda logits: logits.softmax(-1).log_softmax(-1)),
            "The softmax is applied twice: `cross_entropy` and `log_softmax` take logits, not probabilities. Squeezed "
            "between 0 and 1 first, no token can get far ahead, and the loss cannot fall.",
        ),
        Misconception(
            "no_logarithm",
            loss_from(log_softmax=lambda logits: logits.softmax(-1)),
            "The logarithm is missing: the probabilities themselves are added up. Cross-entropy is minus the "
            "*logarithm* of the probability: `log_softmax`.",
        ),
        Misconception(
            "softmax_over_positions",
            loss_from(log_softmax=lambda logits: logits.log_softmax(1)),
            "The softmax runs along the sentence. At each position the *tokens* of the vocabulary compete: it runs "
            "along the last axis.",
        ),
        Misconception(
            "logarithm_of_softmax",
            loss_from(log_softmax=lambda logits: logits.softmax(-1).log()),
            "Softmax first and the logarithm after: where a probability is rounded to 0, its logarithm is minus "
            "infinity. `log_softmax` does both at once and stays finite.",
        ),
        Misconception(
            "sign",
            lambda *arguments: -label_smoothing_loss(*arguments),
            "The minus sign is missing: log-probabilities are below zero, and a loss is above. With this sign, "
            "training makes the right tokens less likely.",
        ),
        Misconception(
            "padding_fixed_at_0",
            with_padding_zero,
            "Padding is taken to be 0, whatever `pad_id` says. Other tokenizers have other ids: compare the labels "
            "with `pad_id`.",
        ),
        Misconception(
            "without_gradient",
            lambda logits, *others: label_smoothing_loss(logits.detach(), *others),
            "The value is right, but no gradient flows back to the logits: `.item()`, `.detach()`, NumPy or "
            "`torch.no_grad()` cut it off, and the model would learn nothing.",
        ),
        Misconception(
            "labels_overwritten",
            with_labels_overwritten,
            "The result is right, but -100 is written into the caller's labels. `torch.where`, `masked_fill` without "
            "the underscore, or `ignore_index=pad_id` leave them alone.",
        ),
        Misconception(
            "classes_last",
            with_classes_last,
            "`cross_entropy` looks for the vocabulary on the *second* axis: (batch, vocab, length). "
            "`logits.transpose(1, 2)` brings it there; or flatten batch and length of both.",
        ),
        Misconception(
            "axes_viewed",
            with_axes_viewed,
            "The logits are brought to (batch, vocab, length) by `view` or `reshape`, which only count numbers off and "
            "mix positions with tokens. `transpose(1, 2)` moves the axis; or flatten batch and length.",
        ),
        Misconception(
            "smoothed_over_padding",
            smoothed_over_padding,
            "Padding is left out for the right token, and not for the smoothed part, which is summed over every "
            "position. Take all of a position's loss first, and then the mean over those that are real.",
        ),
        Misconception(
            "orders_mixed",
            with_length_first,
            "Logits and labels are flattened in different orders, one of them with the length first, so that a "
            "position is asked for another one's token. Flatten both as they are: `logits.flatten(0, 1)`, "
            "`labels.flatten()`.",
        ),
    ],
    hints=[
        "The softened labels are a mixture: 1 - smoothing of the right token, and smoothing of all tokens evenly. The "
        "cross-entropy of a mixture is the same mixture of two cross-entropies.",
        "`log_softmax` over the last axis gives log-probabilities. Of the right token: `gather`. Of all tokens evenly: "
        "the mean over the vocabulary. Which positions are real? `labels != pad_id`.",
        "For the real positions only: `-((1 - smoothing) * of_right_token + smoothing * log_probabilities.mean(-1))`, "
        "and then `.mean()` over them.",
    ],
)

# --- warmup_rate -----------------------------------------------------------------------------------------------------


def rates_of_steps(subject, steps, d_model, warmup_steps):
    return {"rates": [float(subject(step, d_model, warmup_steps)) for step in steps]}


def peak_is_at_the_end_of_warmup(inputs, received):
    rates = received["rates"]
    peak = inputs["steps"].index(inputs["warmup_steps"])
    if any(one >= other for one, other in pairwise(rates[: peak + 1])):
        return "the rate does not grow at every step of the warm-up"
    if any(one <= other for one, other in pairwise(rates[peak:])):
        return "the rate does not fall at every step after the warm-up"
    return None


def early_and_late(draw: Draw) -> dict:
    warmup_steps = draw.integer(5, 9)
    return {"steps": list(range(1, 30)), "d_model": 16, "warmup_steps": warmup_steps}


def four_times_as_late(draw: Draw) -> dict:
    warmup_steps = 4 * draw.integer(3, 9)
    return {"steps": [warmup_steps, 4 * warmup_steps, 16 * warmup_steps], "d_model": 8, "warmup_steps": warmup_steps}


def four_times_as_late_is_half(inputs, received):
    first, second, third = received["rates"]
    if math.isclose(first, 2 * second, rel_tol=1e-6) and math.isclose(second, 2 * third, rel_tol=1e-6):
        return None
    return "after the warm-up, the rate at four times the step is not half"


def rate_by(rate):
    """A warmup_rate with another formula; step 0 counts as 1."""
    return lambda step, d_model, warmup_steps: float(rate(max(step, 1), d_model, warmup_steps))


def nothing_at_step_0(step, d_model, warmup_steps):
    return warmup_rate(step, d_model, warmup_steps) if step else 0.0


WARMUP_RATE = Exercise(
    answer=warmup_rate,
    points=1,
    minutes=10,
    returns=("rate",),
    probes=[
        # rates are small: a tolerance of 1e-5 would let a rate of zero pass
        Probe(
            "during the warm-up",
            lambda draw: {"step": draw.integer(2, 9), "d_model": 16, "warmup_steps": draw.integer(20, 40)},
            tolerance=1e-10,
        ),
        Probe(
            "after the warm-up",
            lambda draw: {"step": draw.integer(60, 90), "d_model": 16, "warmup_steps": draw.integer(20, 40)},
            tolerance=1e-10,
        ),
        Probe("at the peak", lambda draw: {"step": 4000, "d_model": 512, "warmup_steps": 4000}, tolerance=1e-10),
        Probe(
            "step 0 counts as step 1",
            lambda draw: {"step": 0, "d_model": 4 * draw.integer(3, 9), "warmup_steps": draw.integer(10, 20)},
            tolerance=1e-10,
        ),
        Probe(
            "another width",
            lambda draw: {"step": 7, "d_model": 2 * draw.integer(60, 90), "warmup_steps": draw.integer(10, 20)},
            tolerance=1e-10,
        ),
        Probe(
            "step 1, and a warm-up of one step",
            lambda draw: {"step": 1, "d_model": 4 * draw.integer(3, 9), "warmup_steps": 1},
            tolerance=1e-10,
        ),
    ],
    properties=[
        Property(
            "the rate grows until the warm-up ends, and falls from there",
            early_and_late,
            peak_is_at_the_end_of_warmup,
            rates_of_steps,
        ),
        Property(
            "after the warm-up, at four times the step, half the rate",
            four_times_as_late,
            four_times_as_late_is_half,
            rates_of_steps,
        ),
    ],
    misconceptions=[
        Misconception(
            "max_for_min",
            rate_by(lambda step, d, warmup: d**-0.5 * max(step**-0.5, step * warmup**-1.5)),
            "`max` stands where `min` belongs. The rate then starts at its greatest, just where small steps are "
            "needed, falls, and grows without end after the warm-up. Section 5.3 takes the lower of the two lines.",
        ),
        Misconception(
            "division_by_zero",
            lambda step, d, warmup: d**-0.5 * min(step**-0.5, step * warmup**-1.5),
            "At step 0 this divides by zero: `0 ** -0.5`. Many loops count from 0, so here step 0 counts as 1: "
            "`max(step, 1)`.",
        ),
        Misconception(
            "nothing_at_step_0",
            nothing_at_step_0,
            "At step 0 the rate is 0, so a loop that counts from 0 wastes its first batch. Here step 0 counts as 1: "
            "`max(step, 1)`.",
        ),
        Misconception(
            "counted_from_0",
            lambda step, d, warmup: warmup_rate(step + 1, d, warmup),
            "1 is added to every step, so that the rate is one step ahead. Steps count from 1 in section 5.3; only "
            "step 0 has to become 1: `max(step, 1)`.",
        ),
        Misconception(
            "no_width",
            rate_by(lambda step, d, warmup: min(step**-0.5, step * warmup**-1.5)),
            "The factor d_model ** -0.5 is missing. The wider the model, the smaller its steps have to be "
            "(section 5.3).",
        ),
        Misconception(
            "width_multiplied",
            rate_by(lambda step, d, warmup: d**0.5 * min(step**-0.5, step * warmup**-1.5)),
            "The rate is multiplied by the root of d_model. The exponent is -0.5 (section 5.3): a wider model takes "
            "smaller steps.",
        ),
        Misconception(
            "no_root_of_width",
            rate_by(lambda step, d, warmup: min(step**-0.5, step * warmup**-1.5) / d),
            "The rate is divided by d_model itself. Section 5.3 divides by its root: `d_model ** -0.5`.",
        ),
        Misconception(
            "exponent_of_warmup",
            rate_by(lambda step, d, warmup: d**-0.5 * min(step**-0.5, step * warmup**-0.5)),
            "The exponent of `warmup_steps` is -0.5; it is -1.5 (section 5.3). Only with that do the two lines meet at "
            "the step where the warm-up ends.",
        ),
        Misconception(
            "share_of_warmup",
            rate_by(lambda step, d, warmup: d**-0.5 * min(step**-0.5, step / warmup)),
            "The growing line is step / warmup_steps, which goes up to 1. It has to meet the falling line at "
            "warmup_steps ** -0.5, so divide once more by the root: `step * warmup_steps ** -1.5`.",
        ),
        Misconception(
            "no_warmup",
            rate_by(lambda step, d, warmup: (d * step) ** -0.5),
            "The warm-up is missing: the rate falls from the first step on. The first steps of a model that knows "
            "nothing would be the longest (section 5.3).",
        ),
        Misconception(
            "no_decay",
            rate_by(lambda step, d, warmup: d**-0.5 * min(warmup**-0.5, step * warmup**-1.5)),
            "After the warm-up the rate stays where it is. It falls with the inverse root of the step (section 5.3): "
            "`step ** -0.5`.",
        ),
        Misconception(
            "decay_without_root",
            rate_by(lambda step, d, warmup: d**-0.5 * min(warmup**0.5 / step, step * warmup**-1.5)),
            "After the warm-up the rate falls with the step itself, far too fast. Section 5.3 lets it fall with the "
            "root: `step ** -0.5`.",
        ),
        Misconception(
            "always_4000",
            rate_by(lambda step, d, warmup: d**-0.5 * min(step**-0.5, step * 4000**-1.5)),
            "The warm-up takes 4000 steps, whatever was asked for. That is the paper's number; a short training needs "
            "a short warm-up: use `warmup_steps`.",
        ),
        Misconception(
            "width_halved",
            rate_by(lambda step, d_model, warmup: (d_model**-1 / 2) * min(step**-0.5, step * warmup**-1.5)),
            "`d_model ** -1 / 2` is half of 1 / d_model, because the power comes before the division. The root needs "
            "its brackets, `d_model ** (-1 / 2)`, or `d_model ** -0.5`.",
        ),
        Misconception(
            "warmup_outside",
            rate_by(lambda step, d_model, warmup: d_model**-0.5 * min(step**-0.5, step) * warmup**-1.5),
            "A bracket closes too early: `warmup_steps ** -1.5` multiplies the smaller of the two, and belongs to the "
            "second alone: `min(step ** -0.5, step * warmup_steps ** -1.5)`.",
        ),
    ],
    hints=[
        "Section 5.3, equation 3: two lines, one that grows with the step and one that falls. Which of the two is "
        "lower before the warm-up ends, and which after?",
        "`step ** -0.5` falls, `step * warmup_steps ** -1.5` grows, and `min` takes the lower. What does `0 ** -0.5` "
        "do?",
        "`step = max(step, 1)`, and then `d_model ** -0.5 * min(step ** -0.5, step * warmup_steps ** -1.5)`.",
    ],
)

# --- train_step ------------------------------------------------------------------------------------------------------


def step_inputs(draw: Draw, *batches: list[int], pad_id: int = 0, smoothing: float | None = 0.0,
                clip_norm: float | None = 100.0, **others) -> dict:  # fmt: skip
    """Batches of targets with the given lengths, and sources of three tokens. The model has two tables of logits."""
    vocab = 7
    return {
        "sources": [draw.integers(len(lengths), 3, low=3, high=vocab - 1) for lengths in batches],
        "targets": [padded_targets(draw, lengths, vocab, pad_id) for lengths in batches],
        "weights": {"source_table": draw.numbers(vocab, vocab), "target_table": draw.numbers(vocab, vocab)},
        "pad_id": pad_id,
        "rate": 1.0,
        "smoothing": smoothing,
        "clip_norm": clip_norm,
    } | others


def surely_wrong(inputs: dict) -> dict:
    """The model is sure of the wrong token, so that the gradient is longer than 1."""
    source_table, target_table = inputs["weights"].values()
    target = inputs["targets"][0][0]
    source_table *= 0.25
    for read, asked in pairwise(target):
        target_table[read] = -4
        target_table[read, (asked + 1) % len(target_table)] = 4
    return inputs


def learn(subject, sources, targets, weights, pad_id, rate, smoothing, clip_norm, adam=False):
    """One step for each batch: a token's logits depend on the one before it and on the mean of the source."""
    from types import SimpleNamespace

    from transformer_lab.data import Batch

    model = nn.Module()
    model.config = SimpleNamespace(pad_id=pad_id)
    model.source_table, model.target_table = (nn.Parameter(table.clone()) for table in weights.values())
    model.forward = lambda source, target: (
        model.target_table[target] + model.source_table[source].mean(dim=1, keepdim=True)
    )
    optimizer = (torch.optim.Adam if adam else torch.optim.SGD)(model.parameters(), lr=rate)
    settings = [setting for setting in (smoothing, clip_norm) if setting is not None]
    losses = []
    for source, target in zip(sources, targets, strict=True):
        batch = Batch(source, target, pad_id, list(range(len(source))))
        losses.append(subject(model, batch, optimizer, *settings))
    return {"loss": losses, "target_table": model.target_table, "source_table": model.source_table}


def watch_learning(subject, sources, targets, weights, pad_id, rate, smoothing, clip_norm):
    """What one step does besides learning."""
    from types import SimpleNamespace

    from transformer_lab.data import Batch

    seen = {"in training mode": [], "kind of loss": [], "rate": []}
    model = nn.Module()
    model.config = SimpleNamespace(pad_id=pad_id)
    model.source_table, model.target_table = (nn.Parameter(table.clone()) for table in weights.values())

    def forward(source, target):
        seen["in training mode"].append(model.training)
        return model.target_table[target] + model.source_table[source].mean(dim=1, keepdim=True)

    model.forward = forward
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    batch = Batch(sources[0], targets[0], pad_id, list(range(len(sources[0]))))
    for training in (True, False):
        loss = subject(model.train(training), batch, optimizer, smoothing, clip_norm)
        seen["kind of loss"].append(type(loss).__name__)
        seen["rate"].append(optimizer.param_groups[0]["lr"])
    return seen


def learn_after_others(subject, sources, targets, weights, pad_id, rate, smoothing, clip_norm):
    """The same step twice: with gradients that somebody left behind, and without."""
    from types import SimpleNamespace

    from transformer_lab.data import Batch

    tables = {}
    for left_behind in (False, True):
        model = nn.Module()
        model.config = SimpleNamespace(pad_id=pad_id)
        model.source_table, model.target_table = (nn.Parameter(table.clone()) for table in weights.values())
        model.forward = lambda source, target, model=model: (
            model.target_table[target] + model.source_table[source].mean(dim=1, keepdim=True)
        )
        if left_behind:
            model.target_table.square().sum().backward()
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        subject(model, Batch(sources[0], targets[0], pad_id, [0]), optimizer, smoothing, clip_norm)
        tables["after others" if left_behind else "alone"] = model.target_table
    return tables


def learns_in_training_mode(inputs, received):
    modes = received["in training mode"]
    if modes and all(modes):
        return None
    if modes and modes[0]:
        return "a model that was in evaluation mode stays in it, and learns without dropout: call `model.train()`"
    return "the model is in evaluation mode while it learns"


def gives_a_float(inputs, received):
    if received["kind of loss"] == ["float", "float"]:
        return None
    return f"the loss comes back as `{received['kind of loss'][0]}`, not as a plain number: `loss.item()`"


def leaves_the_rate(inputs, received):
    return None if received["rate"] == [inputs["rate"]] * 2 else "the learning rate of the optimizer has been changed"


def others_gradients_have_no_part(inputs, received):
    if torch.allclose(received["alone"], received["after others"], atol=1e-8):
        return None
    return Remark(
        "Gradients that were left behind by somebody else are added to those of your first step. `zero_grad` right "
        "before `backward` is safe whatever happened before."
    )


def step_by(
    shift=shift_target,
    loss_of=label_smoothing_loss,
    read=lambda model, source, decoder_input: model(source, decoder_input),
    zero=True,
    clip=nn.utils.clip_grad_norm_,
    step=True,
    give=lambda loss, **_: loss.item(),
    before=lambda model, optimizer: model.train(),
):
    """A train_step with one thing done in another way."""

    def train_step(model, batch, optimizer, smoothing=0.1, clip_norm=1.0):
        before(model, optimizer)
        decoder_input, labels = shift(batch.target)
        logits = read(model, batch.source, decoder_input)
        loss = loss_of(logits, labels, smoothing, model.config.pad_id)
        if zero:
            optimizer.zero_grad()
        loss.backward()
        clip(model.parameters(), clip_norm)
        if step:
            optimizer.step()
        again = loss_of(read(model, batch.source, decoder_input), labels, smoothing, model.config.pad_id)
        return give(loss, again=again, batch=batch)

    return train_step


def loss_with(**fixed):
    """The loss with some of its arguments replaced."""

    def loss(logits, labels, smoothing, pad_id):
        return label_smoothing_loss(logits, labels, **{"smoothing": smoothing, "pad_id": pad_id} | fixed)

    return loss


def each_clipped_alone(parameters, clip_norm):
    for parameter in parameters:
        nn.utils.clip_grad_norm_(parameter, clip_norm)


def always_scaled(parameters, clip_norm):
    parameters = list(parameters)
    norm = torch.stack([parameter.grad.norm() for parameter in parameters]).norm()
    for parameter in parameters:
        parameter.grad.mul_(clip_norm / norm)


def rate_reset(model, optimizer):
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = 1e-3


TRAIN_STEP = Exercise(
    answer=train_step,
    points=3,
    minutes=20,
    returns=("loss",),
    axes={"target_table": "token_read token", "source_table": "source_token token"},
    builds_on=("shift_target", "label_smoothing_loss"),
    probes=[
        Probe("one sentence", lambda draw: step_inputs(draw, [4]), learn),
        Probe("smoothed labels", lambda draw: step_inputs(draw, [5], smoothing=0.3), learn),
        Probe("sentences of different lengths, padding is not 0",
              lambda draw: step_inputs(draw, [3, 6, 4], pad_id=6), learn),
        Probe("a gradient that is too long", lambda draw: surely_wrong(step_inputs(draw, [3], clip_norm=0.05)), learn),
        Probe("a long gradient that may be as long", lambda draw: surely_wrong(step_inputs(draw, [3])), learn),
        Probe("without smoothing and clip_norm: 0.1 and 1.0",
              lambda draw: surely_wrong(step_inputs(draw, [3], smoothing=None, clip_norm=None)), learn),
        Probe("three steps", lambda draw: step_inputs(draw, [4], [3, 5], [4, 3]), learn),
        Probe("three steps of Adam", lambda draw: step_inputs(draw, [4], [3, 5], [4, 3], rate=0.1, adam=True), learn),
    ],
    properties=[
        Property("the model learns in training mode", lambda draw: step_inputs(draw, [4]),
                 learns_in_training_mode, watch_learning),
        Property("the loss is a plain number", lambda draw: step_inputs(draw, [4]), gives_a_float, watch_learning),
        Property("the learning rate stays what the caller has set",
                 lambda draw: step_inputs(draw, [3], rate=draw.integer(2, 9) / 4), leaves_the_rate, watch_learning),
        Property("gradients of somebody else have no part in it", lambda draw: step_inputs(draw, [4]),
                 others_gradients_have_no_part, learn_after_others),
    ],
    misconceptions=[
        Misconception(
            "gradients_pile_up",
            step_by(zero=False),
            "The gradients are never set to zero: `backward` *adds* to what is there, so each step follows the sum of "
            "all batches so far. Call `optimizer.zero_grad()` before `backward`.",
        ),
        Misconception(
            "nothing_moves",
            step_by(step=False),
            "The weights stay as they are. Either `backward` or `optimizer.step()` is missing, or the gradients are "
            "set to zero between the two. The order is zero_grad, backward, clip, step.",
        ),
        Misconception(
            "not_clipped",
            step_by(clip=lambda parameters, clip_norm: None),
            "The gradient is not shortened when the optimizer uses it. If you call `clip_grad_norm_`, mind the place: "
            "before `backward` there is no gradient yet, and after `step` it is too late.",
        ),
        Misconception(
            "each_clipped_alone",
            step_by(clip=each_clipped_alone),
            "Each parameter is clipped on its own, which turns the gradient into another direction. The norm is that "
            "of all parameters together: `clip_grad_norm_(model.parameters(), clip_norm)`.",
        ),
        Misconception(
            "clipped_by_value",
            step_by(clip=nn.utils.clip_grad_value_),
            "Each number of the gradient is clipped, which turns it into another direction. Its *norm* is meant: "
            "`clip_grad_norm_` shortens the whole gradient and keeps its direction.",
        ),
        Misconception(
            "always_scaled",
            step_by(clip=always_scaled),
            "Every gradient gets the norm `clip_norm`, short ones too. Clipping shortens what is too long and leaves "
            "the rest alone: a model that is nearly right takes small steps.",
        ),
        Misconception(
            "clip_norm_fixed",
            step_by(clip=lambda parameters, clip_norm: nn.utils.clip_grad_norm_(parameters, 1.0)),
            "The gradient is always clipped to 1, whatever `clip_norm` says.",
        ),
        Misconception(
            "smoothing_fixed",
            step_by(loss_of=loss_with(smoothing=0.1)),
            "The smoothing is always 0.1, whatever was given. Hand the argument on to the loss.",
        ),
        Misconception(
            "not_smoothed",
            step_by(loss_of=loss_with(smoothing=0.0)),
            "The labels are not smoothed: `smoothing` has to be handed on to the loss.",
        ),
        Misconception(
            "labels_unshifted",
            step_by(shift=lambda target: (target[:, :-1], target[:, :-1])),
            "The model is asked for the token that it reads, not for the one that follows: the loss goes to zero, and "
            "nothing is learned but copying. `shift_target` gives input and labels.",
        ),
        Misconception(
            "whole_target",
            step_by(shift=lambda target: (target, target)),
            "The whole target is both what is read and what is asked. The decoder reads all but the last token and is "
            "asked for all but the first: `shift_target` gives both.",
        ),
        Misconception(
            "source_and_target_swapped",
            step_by(read=lambda model, source, decoder_input: model(decoder_input, source)),
            "Source and target have changed places. The model takes the source first: "
            "`model(batch.source, decoder_input)`.",
        ),
        Misconception(
            "padding_counts",
            step_by(loss_of=loss_with(pad_id=-1)),
            "Padding is learned like words. The id of padding is `model.config.pad_id`; the loss needs it.",
        ),
        Misconception(
            "padding_fixed_at_0",
            step_by(loss_of=loss_with(pad_id=0)),
            "Padding is taken to be 0. Other tokenizers have other ids: `model.config.pad_id` is the model's.",
        ),
        Misconception(
            "softmax_before_loss",
            step_by(read=lambda model, source, decoder_input: model(source, decoder_input).softmax(-1)),
            "A softmax stands between the model and the loss, which has one of its own. The loss takes logits as they "
            "come out of the model.",
        ),
        Misconception(
            "loss_after_the_step",
            step_by(give=lambda loss, again, **_: again.item()),
            "The loss is computed a second time, after the step. It is the loss *before* the step that is returned: "
            "you have it already, and the second pass costs half a training.",
        ),
        Misconception(
            "tensor_returned",
            step_by(give=lambda loss, **_: loss),
            "A tensor comes back. It holds on to everything that was computed for it: who collects such losses in a "
            "list keeps the memory of every batch. `loss.item()` is a plain number.",
        ),
        Misconception(
            "loss_of_all_tokens",
            step_by(give=lambda loss, batch, **_: loss.item() * batch.target_tokens),
            "The loss comes back multiplied by the number of tokens. Return the mean, as `label_smoothing_loss` gives "
            "it: only means of batches of different sizes can be compared.",
        ),
        Misconception(
            "evaluation_mode",
            step_by(before=lambda model, optimizer: model.eval()),
            "The model is put into evaluation mode before it learns, so dropout does nothing. Training needs "
            "`model.train()`.",
        ),
        Misconception(
            "mode_left",
            step_by(before=lambda model, optimizer: None),
            "The mode is left as it is. If somebody has translated with the model before, it is in evaluation mode, "
            "and trains without dropout from there on. Call `model.train()` first.",
        ),
        Misconception(
            "rate_set_here",
            step_by(before=rate_reset),
            "The learning rate is set inside of the step. It belongs to the caller, who sets it before every step from "
            "the schedule.",
        ),
        Misconception(
            "shift_swapped",
            step_by(shift=lambda target: shift_target(target)[::-1]),
            "The two results of `shift_target` have changed places: the model reads the labels and is asked for what "
            "came before. The decoder's input comes first: `decoder_input, labels = shift_target(batch.target)`.",
        ),
    ],
    hints=[
        "Shift the target, ask the model, measure the loss. Then four calls in a fixed order: forget old gradients, "
        "compute new ones, shorten them, step.",
        "`model.train()` first. The logits are `model(batch.source, decoder_input)`, the padding id is "
        "`model.config.pad_id`. After `optimizer.zero_grad()` and `loss.backward()`, what does `nn.utils` have for "
        "clipping?",
        "`nn.utils.clip_grad_norm_(model.parameters(), clip_norm)` stands between `loss.backward()` and "
        "`optimizer.step()`. Return `loss.item()`.",
    ],
)

# --- evaluate --------------------------------------------------------------------------------------------------------


def evaluation_inputs(draw: Draw, *batches: list[int], pad_id: int = 0, one_by_one: bool = False) -> dict:
    inputs = step_inputs(draw, *batches, pad_id=pad_id)
    wanted = ("sources", "targets", "weights", "pad_id")
    inputs = {name: inputs[name] for name in wanted} | {"one_by_one": one_by_one}
    source_table, target_table = inputs["weights"].values()
    source_table *= 0.25
    for number, target in enumerate(inputs["targets"]):  # the first batch is easy and the last one hard
        for read, asked in pairwise(target[0]):
            target_table[read, asked] += 1 if number == 0 else -2
    return inputs


def measure(subject, sources, targets, weights, pad_id, one_by_one):
    """A model in training mode, whose logits are then others, as they are with dropout."""
    from types import SimpleNamespace

    from transformer_lab.data import Batch

    model = nn.Module()
    model.config = SimpleNamespace(pad_id=pad_id)
    model.source_table, model.target_table = (nn.Parameter(table.clone()) for table in weights.values())

    def forward(source, target):
        logits = model.target_table[target] + model.source_table[source].mean(dim=1, keepdim=True)
        return logits * torch.linspace(0, 2, logits.size(-1)) if model.training else logits

    model.forward = forward
    batches = [Batch(*pair, pad_id, list(range(len(pair[0])))) for pair in zip(sources, targets, strict=True)]
    return subject(model, iter(batches) if one_by_one else batches)


def watch_evaluation(subject, sources, targets, weights, pad_id, one_by_one):
    """In which mode the model predicts, whether it records gradients, and in which mode it is left."""
    from types import SimpleNamespace

    from transformer_lab.data import Batch

    seen = {"training": [], "recording": [], "mode kept": []}
    model = nn.Module()
    model.config = SimpleNamespace(pad_id=pad_id)
    model.source_table, model.target_table = (nn.Parameter(table.clone()) for table in weights.values())

    def forward(source, target):
        seen["training"].append(model.training)
        logits = model.target_table[target] + model.source_table[source].mean(dim=1, keepdim=True)
        seen["recording"].append(logits.requires_grad)
        return logits

    model.forward = forward
    batches = [Batch(*pair, pad_id, list(range(len(pair[0])))) for pair in zip(sources, targets, strict=True)]
    for training in (True, False):
        subject(model.train(training), iter(batches) if one_by_one else batches)
        seen["mode kept"].append(model.training == training)
    return seen


def evaluate_nothing(subject, pad_id):
    from types import SimpleNamespace

    model = nn.Module()
    model.config = SimpleNamespace(pad_id=pad_id)
    return {"exception": raised(subject, model, [])}


def predicts_in_evaluation_mode(inputs, received):
    modes = received["training"]
    return None if modes and not any(modes) else "the model predicts in training mode, with dropout"


def records_nothing(inputs, received):
    kept = received["recording"]
    return None if kept and not any(kept) else "gradients are recorded: memory and time for nothing"


def leaves_the_mode(inputs, received):
    was_training, was_evaluating = received["mode kept"]
    if was_training and was_evaluating:
        return None
    if was_evaluating:
        return "a model that was in training mode is left in evaluation mode, and trains on without dropout"
    return "a model that was in evaluation mode is left in training mode, and translates with dropout"


def nothing_is_refused(inputs, received):
    if received["exception"] == "ValueError":
        return None
    if received["exception"] == "nothing":
        return "without any token, a loss comes back as if there were one: raise a ValueError"
    return Remark("Without any token it stops with an exception, but not with a `ValueError` that says why.")


def evaluation_by(
    weight=lambda batch: batch.target_tokens,
    shift=shift_target,
    smoothing=0.0,
    padding=lambda model: model.config.pad_id,
    mean=lambda losses, weights: sum(map(float.__mul__, losses, map(float, weights))) / sum(weights),
    give=lambda loss, losses, weights: (loss, math.exp(loss)),
    mode=lambda model: model.eval(),
    mode_after=lambda model, was_training: model.train(was_training),
    without_gradients=torch.no_grad,
):
    """An evaluate with one thing done in another way."""

    def evaluate(model, batches):
        was_training = model.training
        mode(model)
        losses, weights = [], []
        with without_gradients():
            for batch in batches:
                decoder_input, labels = shift(batch.target)
                logits = model(batch.source, decoder_input)
                losses.append(label_smoothing_loss(logits, labels, smoothing, padding(model)).item())
                weights.append(weight(batch))
        mode_after(model, was_training)
        if not losses:
            raise ValueError("nothing to evaluate")
        return give(mean(losses, weights), losses, weights)

    return evaluate


def mean_of_perplexities(loss, losses, weights):
    return loss, sum(math.exp(one) * weight for one, weight in zip(losses, weights, strict=True)) / sum(weights)


def read_twice(model, batches):
    tokens = sum(batch.target_tokens for batch in batches)
    loss = evaluate(model, batches)[0] if tokens else 1 / 0
    return loss, math.exp(loss)


def gradients_switched_off(model, batches):
    torch.set_grad_enabled(False)
    return evaluate(model, batches)


def zero_for_nothing(model, batches):
    batches = list(batches)
    return evaluate(model, batches) if batches else (0.0, 1.0)


EVALUATE = Exercise(
    answer=evaluate,
    points=2,
    minutes=15,
    returns=("loss", "perplexity"),
    builds_on=("shift_target", "label_smoothing_loss"),
    probes=[
        Probe("one sentence", lambda draw: evaluation_inputs(draw, [4]), measure),
        Probe("two batches of different sizes", lambda draw: evaluation_inputs(draw, [3], [7, 6, 4]), measure),
        Probe("two batches with the same number of sentences",
              lambda draw: evaluation_inputs(draw, [3, 3], [7, 4]), measure),
        Probe("padding is not 0", lambda draw: evaluation_inputs(draw, [3, 6], [4], pad_id=6), measure),
        Probe("batches that come one by one, once",
              lambda draw: evaluation_inputs(draw, [5], [3, 6], one_by_one=True), measure),
    ],
    properties=[
        Property("the model predicts in evaluation mode", lambda draw: evaluation_inputs(draw, [3], [4]),
                 predicts_in_evaluation_mode, watch_evaluation),
        Property("no gradients are recorded", lambda draw: evaluation_inputs(draw, [3], [4]),
                 records_nothing, watch_evaluation),
        Property("the model is left in the mode in which it was", lambda draw: evaluation_inputs(draw, [3], [4]),
                 leaves_the_mode, watch_evaluation),
        Property("no batch at all is refused", lambda draw: {"pad_id": draw.integer(0, 5)},
                 nothing_is_refused, evaluate_nothing),
    ],
    misconceptions=[
        Misconception(
            "mean_of_batches",
            evaluation_by(weight=lambda batch: 1),
            "Every batch counts the same, however many tokens it has. The result then depends on how the sentences "
            "were packed. Weight each batch's loss by `batch.target_tokens`.",
        ),
        Misconception(
            "weighted_by_sentences",
            evaluation_by(weight=lambda batch: len(batch.target)),
            "Batches are weighted by their number of sentences. The loss of a batch is a mean over *tokens*, so their "
            "number is the weight: `batch.target_tokens`.",
        ),
        Misconception(
            "weighted_by_cells",
            evaluation_by(weight=lambda batch: batch.target[:, 1:].numel()),
            "Batches are weighted by their cells, padding too. Only real tokens count: `batch.target_tokens`.",
        ),
        Misconception(
            "bos_counted",
            evaluation_by(weight=lambda batch: int((batch.target != batch.pad_id).sum())),
            "The tokens are counted in the whole target, so each sentence has one too many: nobody is asked for bos. "
            "Count the labels, or take `batch.target_tokens`.",
        ),
        Misconception(
            "sum",
            evaluation_by(mean=lambda losses, weights: sum(map(float.__mul__, losses, map(float, weights))),
                          give=lambda loss, losses, weights: (loss, math.exp(min(loss, 700)))),
            "The losses of all tokens are added up, and not divided by their number. A mean in nats a token can be "
            "compared between corpora of any size.",
        ),
        Misconception(
            "divided_by_batches",
            evaluation_by(mean=lambda losses, weights: (
                              sum(map(float.__mul__, losses, map(float, weights))) / len(losses)),
                          give=lambda loss, losses, weights: (loss, math.exp(min(loss, 700)))),
            "The losses are multiplied by their tokens, and then divided by the number of batches. Divide by the "
            "number of all tokens.",
        ),
        Misconception(
            "last_batch",
            evaluation_by(mean=lambda losses, weights: losses[-1]),
            "Only the last batch counts: the loss is overwritten in each turn. Add up, and divide at the end.",
        ),
        Misconception(
            "mean_of_perplexities",
            evaluation_by(give=mean_of_perplexities),
            "The perplexities of the batches are averaged. Perplexity is e to the power of the mean loss of *all* "
            "tokens: average first, then `math.exp`.",
        ),
        Misconception(
            "power_of_two",
            evaluation_by(give=lambda loss, losses, weights: (loss, 2**loss)),
            "The perplexity is 2 to the power of the loss, which is right for bits. This loss is in nats: `math.exp`.",
        ),
        Misconception(
            "swapped",
            evaluation_by(give=lambda loss, losses, weights: (math.exp(loss), loss)),
            "Loss and perplexity have changed places. The loss comes first: `return mean, math.exp(mean)`.",
        ),
        Misconception(
            "no_perplexity",
            evaluation_by(give=lambda loss, losses, weights: loss),
            "Only the loss comes back. Return two numbers: `return loss, math.exp(loss)`.",
        ),
        Misconception(
            "smoothed",
            evaluation_by(smoothing=0.1),
            "The labels are smoothed in evaluation too. Smoothing is a means of training; e to the power of such a "
            "loss is no perplexity. Evaluate with a smoothing of 0.",
        ),
        Misconception(
            "labels_unshifted",
            evaluation_by(shift=lambda target: (target[:, :-1], target[:, :-1])),
            "The model is scored on the tokens that it reads, not on those that follow. `shift_target` gives input and "
            "labels, as in training.",
        ),
        Misconception(
            "padding_fixed_at_0",
            evaluation_by(padding=lambda model: 0),
            "Padding is taken to be 0. Other tokenizers have other ids: `model.config.pad_id` is the model's.",
        ),
        Misconception(
            "training_mode",
            evaluation_by(mode=lambda model: model.train()),
            "The model predicts in training mode: dropout takes away part of what it knows, and every call gives "
            "another number. Call `model.eval()` first.",
        ),
        Misconception(
            "left_in_evaluation",
            evaluation_by(mode_after=lambda model, was_training: None),
            "The model stays in evaluation mode. A training that goes on from there has no dropout, and nobody "
            "notices. Keep `model.training`, and put it back with `model.train(was_training)`.",
        ),
        Misconception(
            "left_in_training",
            evaluation_by(mode_after=lambda model, was_training: model.train()),
            "The model is always put into training mode in the end. If it was in evaluation mode, it would translate "
            "with dropout from there on: `model.train(was_training)`.",
        ),
        Misconception(
            "gradients_recorded",
            evaluation_by(without_gradients=torch.enable_grad),
            "The result is right, but everything is recorded for a `backward` that never comes, at a cost of memory "
            "and time. Put the loop into `with torch.no_grad():`.",
        ),
        Misconception(
            "gradients_switched_off",
            gradients_switched_off,
            "Gradients are switched off and stay off: the next training step fails. `with torch.no_grad():` switches "
            "them on again at its end.",
        ),
        Misconception(
            "read_twice",
            read_twice,
            "The batches are gone through twice. They may come from a generator, which gives them once: count the "
            "tokens in the same loop.",
        ),
        Misconception(
            "zero_for_nothing",
            zero_for_nothing,
            "Without any token a loss comes back, as if something had been measured. An empty validation set is a "
            "mistake somewhere: raise a ValueError.",
        ),
    ],
    hints=[
        "The loss of a batch is a mean over its tokens. What do you have to multiply it by before you may add it to "
        "that of another batch?",
        "Keep `model.training`, then `model.eval()`, and put the mode back at the end. In "
        "`with torch.no_grad():` add up loss times tokens, and tokens. `batch.target_tokens` knows how many.",
        "`total += loss.item() * batch.target_tokens` and `tokens += batch.target_tokens`; in the end "
        "`mean = total / tokens`, and `return mean, math.exp(mean)`.",
    ],
)

EXERCISES = [SHIFT_TARGET, LABEL_SMOOTHING_LOSS, WARMUP_RATE, TRAIN_STEP, EVALUATE]
