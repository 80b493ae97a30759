"""Notebook 21, a language model: windows of a text, a loss at every position, what may be drawn, and a text drawn."""

import math
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lab.decoding.greedy import evaluation_mode
from transformer_lab.electives.language_model import (
    LanguageModel,
    causal_language_model_loss,
    next_token_pairs,
    sample,
    top_k_filter,
    top_p_filter,
)
from transformer_lab.exercises.draw import Draw
from transformer_lab.exercises.exercise import Exercise, Misconception, Probe, Property
from transformer_lab.exercises.recipes import build, gradients, raised
from transformer_lab.model import causal_mask

# --- next_token_pairs -------------------------------------------------------------------------------------------------


def text_inputs(draw: Draw, count: int, length: int) -> dict:
    """A text in which no token occurs twice, so that each place can be told from every other."""
    return {"tokens": torch.tensor(draw.order(count)) + 10, "length": length}


def repeating_text(draw: Draw, count: int, length: int) -> dict:
    return {"tokens": draw.integers(count, low=0, high=2), "length": length}


def asked_here_is_read_next(inputs, received):
    windows, labels = (part.flatten() for part in received)
    if not torch.equal(windows[1:], labels[:-1]):
        return "what is asked at one place is not what is read at the next, from one window to the next one too"
    return None


def of_one_shape(inputs, received):
    windows, labels = received
    if windows.shape != labels.shape:
        return f"`inputs` has shape {tuple(windows.shape)} and `labels` {tuple(labels.shape)}: each place has one label"
    return None


def complaints(subject, tokens, lengths):
    return {f"length {length}": raised(subject, tokens, length) for length in lengths}


def enough_are_taken(inputs, received):
    if set(received.values()) != {"nothing"}:
        return "a text of `length + 1` tokens raises an error: it holds one whole window and all its labels"
    return None


def too_few_are_refused(inputs, received):
    if set(received.values()) != {"ValueError"}:
        return "a text that is too short for one window and its labels does not raise a ValueError"
    return None


def needs_a_window(tokens, length):
    if len(tokens) <= length:
        raise ValueError("too few tokens")


def in_windows(tokens, length):
    """All whole windows, whether or not there is a label for the last token."""
    windows = len(tokens) // length
    return tokens[: windows * length].view(windows, length)


def pairs_by(make):
    """A `next_token_pairs` that refuses short texts as it should, and makes pairs in its own way."""

    def pairs(tokens, length):
        needs_a_window(tokens, length)
        return make(tokens, length)

    return pairs


def pairs_within_windows(tokens, length):
    windows = in_windows(tokens, length)
    return windows[:, :-1], windows[:, 1:]


def pairs_of_longer_windows(tokens, length):
    windows = in_windows(tokens, length + 1)
    return windows[:, :-1], windows[:, 1:]


def pairs_rolled(tokens, length):
    return in_windows(tokens, length), in_windows(tokens.roll(-1), length)


def pairs_rolled_within_windows(tokens, length):
    inputs = next_token_pairs(tokens, length)[0]
    return inputs, inputs.roll(-1, dims=1)


def pairs_of_more_than_enough(tokens, length):
    if len(tokens) <= length + 1:
        raise ValueError("too few tokens")
    return next_token_pairs(tokens, length)


def pairs_of_next_windows(tokens, length):
    windows = in_windows(tokens, length)
    return windows[:-1], windows[1:]


def pairs_sliding(tokens, length):
    windows = tokens.unfold(0, length + 1, 1)
    return windows[:, :-1], windows[:, 1:]


def pairs_in_columns(tokens, length):
    windows = (len(tokens) - 1) // length
    used = windows * length
    return tokens[:used].view(length, windows).T, tokens[1 : used + 1].view(length, windows).T


def pairs_with_one_label(tokens, length):
    inputs, labels = next_token_pairs(tokens, length)
    return inputs, labels[:, -1]


def pairs_two_ahead(tokens, length):
    windows = (len(tokens) - 2) // length
    used = windows * length
    return tokens[:used].view(windows, length), tokens[2 : used + 2].view(windows, length)


def pairs_with_padded_rest(tokens, length):
    windows = -(-(len(tokens) - 1) // length)
    short = windows * length + 1 - len(tokens)
    return next_token_pairs(F.pad(tokens, (0, short)), length)


def pairs_with_a_window_too_many(tokens, length):
    windows = len(tokens) // length
    used = windows * length
    return tokens[:used].view(windows, length), tokens[1 : used + 1].view(windows, length)


def pairs_of_whatever_there_is(tokens, length):
    windows = (len(tokens) - 1) // length
    used = windows * length
    return tokens[:used].view(windows, length), tokens[1 : used + 1].view(windows, length)


def pairs_without_the_last_window(tokens, length):
    starts = range(0, len(tokens) - length - 1, length) or [0]
    inputs = torch.stack([tokens[start : start + length] for start in starts])
    return inputs, torch.stack([tokens[start + 1 : start + length + 1] for start in starts])


NEXT_TOKEN_PAIRS = Exercise(
    answer=next_token_pairs,
    points=1,
    minutes=10,
    returns=("inputs", "labels"),
    axes={"tokens": "n", "inputs": "windows length", "labels": "windows length"},
    probes=[
        Probe("one window and its labels", lambda draw: text_inputs(draw, 4, 3)),
        Probe("two windows", lambda draw: text_inputs(draw, 7, 3)),
        Probe("no token is left to follow the last window", lambda draw: text_inputs(draw, 6, 2)),
        Probe("a rest is left out", lambda draw: text_inputs(draw, 9, 3)),
        Probe("windows of one token", lambda draw: text_inputs(draw, 4, 1)),
        Probe("a longer text of few tokens", lambda draw: repeating_text(draw, 30, 4)),
    ],
    properties=[
        Property("each place has one label", lambda draw: text_inputs(draw, 12, 4), of_one_shape),
        Property(
            "what is asked at one place is read at the next",
            lambda draw: text_inputs(draw, 11, 3),
            asked_here_is_read_next,
        ),
        Property(
            "length + 1 tokens are enough",
            lambda draw: {"tokens": torch.tensor(draw.order(5)) + 10, "lengths": [4]},
            enough_are_taken,
            complaints,
        ),
        Property(
            "a text that is too short is refused",
            lambda draw: {"tokens": torch.tensor(draw.order(4)) + 10, "lengths": [4, 7]},
            too_few_are_refused,
            complaints,
        ),
    ],
    misconceptions=[
        Misconception(
            "unshifted",
            pairs_by(lambda tokens, length: (next_token_pairs(tokens, length)[0],) * 2),
            "The labels are the inputs. A model that may see the token it stands on copies it and learns nothing: the "
            "labels are one place further on, `tokens[1:]`.",
        ),
        Misconception(
            "shifted_within_windows",
            pairs_by(pairs_within_windows),
            "The windows are cut first and shifted inside, so that each has one place less, and the step from one "
            "window to the next is never learnt. Shift the whole text first, then cut both the same way.",
        ),
        Misconception(
            "windows_of_one_more",
            pairs_by(pairs_of_longer_windows),
            "Windows of `length + 1` tokens stand one behind the other, and each is cut into inputs and labels. The "
            "first token of every window but the first is never asked for. Let the next window begin with the last "
            "label of this one.",
        ),
        Misconception(
            "rolled",
            pairs_by(pairs_rolled),
            "`roll` brings the first token round to the end: where nothing follows, the text's first token is asked "
            "for. Leave the last token out of the inputs instead.",
        ),
        Misconception(
            "rolled_within_windows",
            pairs_by(pairs_rolled_within_windows),
            "`roll` works inside each window and brings its first token round to its end: there the window's beginning "
            "is asked for, not the token that follows in the text. Cut the labels from the text, `tokens[1:]`, not "
            "from the windows.",
        ),
        Misconception(
            "next_window",
            pairs_by(pairs_of_next_windows),
            "The labels are the next window: each token is asked for a whole window ahead. It is the next token, one "
            "place further.",
        ),
        Misconception(
            "sliding",
            pairs_by(pairs_sliding),
            "The windows begin at every token, so that each prediction is made `length` times over, and one pass "
            "through the text takes `length` times as long. Here they stand one behind the other.",
        ),
        Misconception(
            "in_columns",
            pairs_by(pairs_in_columns),
            "The text runs down the columns, not along the rows: `view(length, windows)` and a transpose put tokens "
            "side by side that are far apart in the text. `view(windows, length)` keeps neighbours together.",
        ),
        Misconception(
            "one_label",
            pairs_by(pairs_with_one_label),
            "There is one label a window, the token behind it. A causal model predicts at every position, so a window "
            "of `length` tokens asks `length` questions; with one, it learns that much more slowly.",
        ),
        Misconception(
            "swapped",
            pairs_by(lambda tokens, length: next_token_pairs(tokens, length)[::-1]),
            "Inputs and labels are swapped: each token is asked for the one *before* it.",
        ),
        Misconception(
            "two_ahead",
            pairs_by(pairs_two_ahead),
            "The labels are two places further on. Count: position 0 of the inputs is token 0, and asks for token 1.",
        ),
        Misconception(
            "rest_padded",
            pairs_by(pairs_with_padded_rest),
            "The rest of the text is filled up with zeros to a whole window. Zero is a token like any other here, so "
            "the model would learn to write it. Leave the rest out.",
        ),
        Misconception(
            "a_window_too_many",
            pairs_by(pairs_with_a_window_too_many),
            "The windows are counted from all tokens. The last one needs a token behind it as its last label: there "
            "are `(n - 1) // length`.",
        ),
        Misconception(
            "no_error",
            pairs_of_whatever_there_is,
            "A text that is too short for one window comes back as no windows at all, and a training would do nothing "
            "without a word. Raise a `ValueError`.",
        ),
        Misconception(
            "enough_refused",
            pairs_of_more_than_enough,
            "A text of exactly `length + 1` tokens is refused. It holds a whole window, and the last token is its last "
            "label: only fewer than `length + 1` are too few.",
        ),
        Misconception(
            "last_window_lost",
            pairs_without_the_last_window,
            "A last window that just fits, with its label, is left out: the range of its starts ends one too early. "
            "The last start is `len(tokens) - length - 1`, so the range goes up to `len(tokens) - length`.",
        ),
    ],
    hints=[
        "Write eight tokens down in a row, and cut off windows of three. What does the last token of each window ask "
        "for? And has the last window an answer to all its questions?",
        "n tokens have n - 1 questions, so there are `(n - 1) // length` windows. The labels are cut in the same way "
        "as the inputs, from a text that begins one token later.",
        "`used = windows * length`; then `tokens[:used].view(windows, length)` and "
        "`tokens[1 : used + 1].view(windows, length)`.",
    ],
)

# --- causal_language_model_loss ---------------------------------------------------------------------------------------


def model_inputs(draw: Draw, batch: int, length: int, vocab: int, n_layers: int = 1) -> dict:
    """A `LanguageModel` and a text in windows. No token follows itself, so that no label is the token read; and token 0
    is among the labels, because here it is a token like any other."""
    labels = torch.ones(1)
    while labels.all():
        steps = draw.integers(batch * length, low=1, high=vocab - 1)
        text = torch.cat([draw.integers(1, low=0, high=vocab - 1), steps]).cumsum(0) % vocab  # (batch * length + 1)
        inputs, labels = next_token_pairs(text, length)
    arguments = {
        "vocab_size": vocab, "d_model": 4, "n_heads": 2, "n_layers": n_layers, "d_ff": 6, "max_length": length
    }  # fmt: skip
    weights = draw.weights(LanguageModel(*arguments.values()), scale=1.0)
    return {"arguments": arguments, "weights": weights, "inputs": inputs, "labels": labels}


def loss_of_model(subject, arguments, weights, inputs, labels):
    from transformer_lab.electives.language_model import LanguageModel

    return subject(build(LanguageModel, arguments, weights), inputs, labels)


def loss_and_gradient(subject, arguments, weights, inputs, labels):
    from transformer_lab.electives.language_model import LanguageModel

    model = build(LanguageModel, arguments, weights)
    loss = subject(model, inputs, labels)
    return {"loss": loss} | gradients(loss, {"the output layer's bias": model.output.bias})


def even_logits(subject, inputs, labels, vocab):
    class Even(nn.Module):
        def forward(self, tokens, mask=None):
            return torch.full((*tokens.shape, vocab), 1.5)

    return {"loss": subject(Even(), inputs, labels)}


def even_logits_lose_log_vocab(inputs, received):
    if not math.isclose(float(received["loss"]), math.log(inputs["vocab"]), abs_tol=1e-6):
        return "with equal logits for all tokens, the loss is not the logarithm of their number"
    return None


def loss_of_a_peeping_model(subject, inputs, labels, vocab):
    """The loss of a model that says the next token wherever the mask lets it look there."""

    class Peeping(nn.Module):
        def forward(self, tokens, mask=None):
            length = tokens.size(1)
            hidden = torch.zeros(length, length, dtype=torch.bool) if mask is None else mask
            hidden = hidden if hidden.dtype == torch.bool else hidden < -1e4
            seen = ~hidden.reshape(-1, length, length)[0].diagonal(1)  # whether position i sees i + 1
            logits = torch.zeros(*tokens.shape, vocab)
            following = nn.functional.one_hot(tokens[:, 1:], vocab)
            logits[:, :-1] = 30.0 * following * seen[:, None]
            return logits

    return {"loss": subject(Peeping(), inputs, labels)}


def the_answer_is_hidden(inputs, received):
    if float(received["loss"]) < math.log(inputs["vocab"]) - 1e-6:
        return "a model that looks at the next token has a lower loss than one that guesses: the mask lets it see it"
    return None


def gradient_of_logits(subject, inputs, labels, logits):
    logits = logits.requires_grad_()

    class Given(nn.Module):
        def forward(self, tokens, mask=None):
            return logits

    loss = subject(Given(), inputs, labels)
    (gradient,) = torch.autograd.grad(loss, [logits])
    return {"gradient": gradient}


def every_position_is_asked(inputs, received):
    if (received["gradient"].abs().sum(dim=-1) == 0).any():
        return "the logits of some positions get no gradient: nothing is learnt there"
    of_labels = received["gradient"].gather(-1, inputs["labels"][..., None])
    if (of_labels >= 0).any():  # a step against the gradient has to make the right token likelier
        return "some positions do not learn to say their own label: they are asked for another token"
    return None


def modes_around_loss(subject, table, inputs, labels):
    from transformer_lab.electives.table_language_model import TableLanguageModel

    result = {}
    for name, training in (("training", True), ("evaluation", False)):
        model = TableLanguageModel(table).train(training)
        subject(model, inputs, labels)
        result[name] = model.training
    return result


def mode_is_left(inputs, received):
    if received["training"] is not True:
        return "a model that was in training mode is in evaluation mode afterwards"
    if received["evaluation"] is not False:
        return "a model that was in evaluation mode is in training mode afterwards"
    return None


def window_inputs(draw: Draw, batch: int, length: int, vocab: int) -> dict:
    inputs = model_inputs(draw, batch, length, vocab)
    return {"inputs": inputs["inputs"], "labels": inputs["labels"]}


def hides_future(inputs: Tensor) -> Tensor:
    return ~causal_mask(inputs.size(1))[0, 0]


def every_prediction(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def loss_with(mask=hides_future, measure=every_prediction):
    """A loss with another mask, or another way to measure."""

    def loss(model, inputs, labels):
        return measure(model(inputs, mask(inputs)), labels)

    return loss


def loss_of_swapped_axes(model, inputs, labels):
    logits = model(inputs.T, ~causal_mask(inputs.size(0))[0, 0])  # (length, batch, vocab)
    return every_prediction(logits.transpose(0, 1), labels)


def loss_that_evaluates(model, inputs, labels):
    model.eval()
    return causal_language_model_loss(model, inputs, labels)


def loss_that_trains(model, inputs, labels):
    model.train()
    return causal_language_model_loss(model, inputs, labels)


def every_prediction_with(**settings):
    return lambda logits, labels: F.cross_entropy(logits.flatten(0, 1), labels.flatten(), **settings)


SAYS_OURS = (
    "The mask says True for what may be seen, as in this course. PyTorch's classes mean the opposite: there True "
    "*hides*. So each position sees the future alone, the answer in it, and the last one sees nothing. Turn it "
    "round: `~mask`."
)


CAUSAL_LANGUAGE_MODEL_LOSS = Exercise(
    answer=causal_language_model_loss,
    points=3,
    minutes=20,
    returns=("loss",),
    axes={"inputs": "batch length", "labels": "batch length"},
    builds_on=("causal_mask",),
    probes=[
        Probe("one window of two tokens", lambda draw: model_inputs(draw, 1, 2, 4), loss_of_model),
        Probe("several windows", lambda draw: model_inputs(draw, 3, 4, 5), loss_of_model),
        Probe("as many windows as tokens", lambda draw: model_inputs(draw, 4, 4, 6), loss_of_model),
        Probe("a model of two layers", lambda draw: model_inputs(draw, 2, 5, 6, n_layers=2), loss_of_model),
        Probe("the gradient reaches the model", lambda draw: model_inputs(draw, 2, 3, 4), loss_and_gradient),
    ],
    properties=[
        Property(
            "a model that knows nothing loses the logarithm of the vocabulary",
            lambda draw: window_inputs(draw, 2, 3, 7) | {"vocab": 7},
            even_logits_lose_log_vocab,
            even_logits,
        ),
        Property(
            "no position can see its answer",
            lambda draw: window_inputs(draw, 2, 4, 7) | {"vocab": 7},
            the_answer_is_hidden,
            loss_of_a_peeping_model,
        ),
        Property(
            "every position is asked for its own label",
            lambda draw: window_inputs(draw, 2, 4, 5) | {"logits": draw.numbers(2, 4, 5)},
            every_position_is_asked,
            gradient_of_logits,
        ),
        Property(
            "the model's mode is left as it is",
            lambda draw: {"table": draw.numbers(5, 5)} | window_inputs(draw, 2, 3, 5),
            mode_is_left,
            modes_around_loss,
        ),
    ],
    misconceptions=[
        Misconception("true_for_visible", loss_with(lambda inputs: causal_mask(inputs.size(1))[0, 0]), SAYS_OURS),
        Misconception(
            "no_mask",
            loss_with(lambda inputs: None),
            "There is no mask. `nn.TransformerEncoder` looks both ways, so each position sees its answer standing "
            "beside it: the loss falls to nearly nothing, and the model cannot write a word. Hide the future.",
        ),
        Misconception(
            "itself_hidden",
            loss_with(lambda inputs: ~causal_mask(inputs.size(1))[0, 0] | torch.eye(inputs.size(1), dtype=torch.bool)),
            "The mask hides each position from itself too. The token that stands there may be read, the next one may "
            "not: above the diagonal, `triu(diagonal=1)`. Else the first position sees nothing at all.",
        ),
        Misconception(
            "next_one_seen",
            loss_with(lambda inputs: torch.ones(2 * inputs.shape[-1:], dtype=torch.bool).triu(2)),
            "The mask begins one place too late: each position sees the token after it, which is the answer. The "
            "diagonal itself may be seen, and all above it is hidden: `triu(diagonal=1)`.",
        ),
        Misconception(
            "four_axes",
            loss_with(lambda inputs: ~causal_mask(inputs.size(1))),
            "The mask has four axes, as this course's attention takes it. `nn.TransformerEncoder` takes `(length, "
            "length)`: `causal_mask(length)[0, 0]`.",
        ),
        Misconception(
            "added_ones",
            loss_with(lambda inputs: hides_future(inputs).to(torch.get_default_dtype())),
            "The mask is made of numbers. To PyTorch a mask of floats is *added* to the scores, and adding 1 to what "
            "should be hidden draws attention to it. Give a boolean mask, or one of 0 and minus infinity.",
        ),
        Misconception(
            "averaged_positions",
            loss_with(measure=lambda logits, labels: F.cross_entropy(logits.mean(dim=1), labels[:, -1])),
            "The logits are averaged over all positions, and the one average is asked for the token behind the window. "
            "The average does not know what came last, and of all questions one is left. Each position predicts its "
            "own next token.",
        ),
        Misconception(
            "last_position",
            loss_with(measure=lambda logits, labels: F.cross_entropy(logits[:, -1], labels[:, -1])),
            "Only the last position is asked. That is how a text is continued, but in training the causal mask makes "
            "all positions honest at once: ask each of them.",
        ),
        Misconception(
            "not_flattened",
            loss_with(measure=F.cross_entropy),
            "`cross_entropy` gets `(batch, length, vocab)` as it is, and takes the second axis for the vocabulary. Put "
            "all predictions in one column, `logits.flatten(0, 1)` and `labels.flatten()`, or the vocabulary second, "
            "`logits.transpose(1, 2)`.",
        ),
        Misconception(
            "view_for_transpose",
            loss_with(
                measure=lambda logits, labels: F.cross_entropy(
                    logits.reshape(logits.size(0), logits.size(2), logits.size(1)), labels
                )
            ),
            "`view` or `reshape` cannot swap axes: it reads the same numbers in the same order into other rows. For "
            "`(batch, vocab, length)`, as `cross_entropy` has it, `transpose(1, 2)` is needed, or flatten batch and "
            "length.",
        ),
        Misconception(
            "batch_second",
            loss_of_swapped_axes,
            "The model is given `(length, batch)`. That was PyTorch's way before `batch_first=True`; now the batch is "
            "taken for the text, and a token attends to other windows.",
        ),
        Misconception(
            "softmax_first",
            loss_with(measure=lambda logits, labels: every_prediction(logits.softmax(dim=-1), labels)),
            "`cross_entropy` gets probabilities. It takes logits, and applies its own softmax: with two of them the "
            "loss can never come near 0.",
        ),
        Misconception(
            "summed",
            loss_with(
                measure=lambda logits, labels: F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
            ),
            "The loss is a sum. It grows with the size of the batch, and the gradient with it: take the mean over all "
            "predictions.",
        ),
        Misconception(
            "summed_over_positions",
            loss_with(
                measure=lambda logits, labels: (
                    F.cross_entropy(logits.transpose(1, 2), labels, reduction="none").sum(dim=1).mean()
                )
            ),
            "The losses are summed along each window and averaged over the windows. A longer window would count for "
            "more: take the mean over all predictions.",
        ),
        Misconception(
            "asked_for_inputs",
            lambda model, inputs, labels: every_prediction(model(inputs, hides_future(inputs)), inputs),
            "The model is asked for the token that it reads. It sees that one, so it only has to copy: compare with "
            "`labels`.",
        ),
        Misconception(
            "shifted_again",
            loss_with(measure=lambda logits, labels: every_prediction(logits[:, :-1], labels[:, 1:])),
            "The labels are shifted a second time. They are one place ahead already, so position i is asked for token "
            "i + 2: take both as they are.",
        ),
        Misconception(
            "perplexity",
            lambda model, inputs, labels: causal_language_model_loss(model, inputs, labels).exp(),
            "This is the perplexity, e to the loss. Train on the loss itself; the perplexity is for people to read.",
        ),
        Misconception(
            "bits",
            lambda model, inputs, labels: causal_language_model_loss(model, inputs, labels) / math.log(2),
            "The loss is in bits. The docstring asks for nats, as `cross_entropy` gives them: whoever wants to print "
            "bits divides by ln 2 there.",
        ),
        Misconception(
            "token_0_ignored",
            loss_with(measure=every_prediction_with(ignore_index=0)),
            "Token 0 is left out (`ignore_index=0`). That was padding in notebook 10; here nothing is padded, and 0 is "
            "a token like any other, which the model would never learn to say.",
        ),
        Misconception(
            "smoothed",
            loss_with(measure=every_prediction_with(label_smoothing=0.1)),
            "The labels are smoothed, as in notebook 10. Then the number is no longer the cross-entropy of the text, "
            "and neither perplexity nor bits per character can be worked out from it: leave `label_smoothing` out.",
        ),
        Misconception(
            "detached",
            lambda model, inputs, labels: causal_language_model_loss(model, inputs, labels).detach(),
            "The loss has no connection to the model any more, through `detach`, `no_grad` or a copy: `backward` would "
            "find nothing to do.",
        ),
        Misconception(
            "evaluates",
            loss_that_evaluates,
            "The model is put into evaluation mode, and stays there: a training would go on without dropout. The loss "
            "does not set the mode; whoever calls it does.",
        ),
        Misconception(
            "trains",
            loss_that_trains,
            "The model is put into training mode, and stays there: what should be measured without dropout is measured "
            "with it. The loss does not set the mode; whoever calls it does.",
        ),
    ],
    hints=[
        "Three lines: a mask, the logits, one loss over all of them. What does True mean in a mask for "
        "`nn.TransformerEncoder`?",
        "The mask is `(length, length)` and True above the diagonal: the reverse of this course's "
        "`causal_mask(length)`, without its first two axes. `model(inputs, mask)` gives `(batch, length, vocab)`, and "
        "each of these positions has a label.",
        "`hidden = ~causal_mask(inputs.size(1), inputs.device)[0, 0]`, and "
        "`F.cross_entropy(logits.flatten(0, 1), labels.flatten())`.",
    ],
)

# --- top_k_filter -----------------------------------------------------------------------------------------------------


def distinct_logits(draw: Draw, *shape: int) -> Tensor:
    """Logits of both signs, no two the same in a row. The rows are ordered differently."""
    *rows, vocab = shape
    orders = [draw.order(vocab) for _ in range(math.prod(rows))]
    offsets = [draw.integer(-3, 3) / 10 for _ in orders]
    tables = [
        [(0.7 * place - 0.35 * vocab) + offset for place in order]
        for order, offset in zip(orders, offsets, strict=True)
    ]
    return torch.tensor(tables, dtype=torch.float64).reshape(shape)


def kept_in_rows(received: Tensor) -> Tensor:
    return received.isfinite().sum(dim=-1)


def k_are_left(inputs, received):
    k = min(inputs["k"], inputs["logits"].size(-1))
    if (kept_in_rows(received) != k).any():
        return f"not every row has {k} finite logits left"
    return None


def nothing_is_removed(inputs, received):
    if received.shape == inputs["logits"].shape:
        removed = received.isneginf()
        if torch.allclose(received[~removed], inputs["logits"][~removed]):
            return "tokens are removed, although all are to stay" if removed.any() else None
    return "the logits are not those that were given"


def kept_as_they_were(inputs, received):
    kept = received.isfinite()
    changed = kept & (received != inputs["logits"])
    if not changed.any():
        return None
    if (received[changed] < -1000).all():  # nothing was drawn below -30
        return "a great negative number stands where minus infinity is asked for"
    return "a logit that is left is not what it was"


def complaints_about(subject, logits, values):
    return {f"{value}": raised(subject, logits, value) for value in values}


def all_are_refused(inputs, received):
    refused = [value for value, error in received.items() if error != "ValueError"]
    return f"{' and '.join(refused)}: no ValueError is raised" if refused else None


def threshold_of(logits, k):
    return logits.topk(min(k, logits.size(-1)), dim=-1).values[..., -1:]


def refusing(filtered, valid=lambda k: k >= 1):
    """A filter that refuses what it should, and filters in its own way."""

    def filter_tokens(logits, amount):
        if not valid(amount):
            raise ValueError("nothing would be left")
        return filtered(logits, amount)

    return filter_tokens


def in_place_top_k(logits, k):
    logits[logits < threshold_of(logits, k)] = -math.inf
    return logits


def top_k_that_cannot_have_more(logits, k):
    removed = torch.ones_like(logits, dtype=torch.bool).scatter(-1, logits.topk(k, dim=-1).indices, False)
    return logits.masked_fill(removed, -math.inf)


def top_k_down_the_columns(logits, k):
    best = logits.topk(min(k, logits.size(0)), dim=0).indices
    return logits.masked_fill(torch.ones_like(logits, dtype=torch.bool).scatter(0, best, False), -math.inf)


def top_k_of_all_rows(logits, k):
    return logits.masked_fill(logits < threshold_of(logits.flatten(), k), -math.inf)


def top_k_of_the_first_row(logits, k):
    first = logits.reshape(-1, logits.size(-1))[0]
    return logits.masked_fill(first < threshold_of(first, k), -math.inf)


SAYS_ZEROS = (
    "The logits of removed tokens are set to 0. A logit of 0 is no probability of 0: it can even be the greatest. "
    "Minus infinity is, since e to it is 0."
)
SAYS_FINITE = (
    "Removed tokens get a great negative number, and -1e9 is not minus infinity. The docstring asks for `-math.inf`: "
    "its probability is exactly 0 whatever the temperature, and what was removed can be told from what is unlikely."
)
LEAST_FLOAT = torch.finfo(torch.float64).min  # checks run in float64
SAYS_IN_PLACE = (
    "The caller's logits are overwritten. Whoever draws the distribution before and after, as the picture below does, "
    "finds it changed: return a new tensor (`masked_fill`, `torch.where`)."
)
SAYS_PROBABILITIES = (
    "It returns probabilities. Logits go in and logits come out, so that filters can be put one behind the other; the "
    "softmax comes last."
)
SAYS_LOG_PROBABILITIES = (
    "It returns logarithms of probabilities, of a `log_softmax`. The softmax would make the same of them, but what is "
    "left is to stay as it was: only what is removed changes."
)
SAYS_SORTED = (
    "It returns the logits in the order of their size. Then position 0 is the likeliest token, not token 0: what is "
    "drawn is a rank, and the text is nonsense. Keep every logit in its place."
)


def log_probabilities_of(keep, refusing):
    """The two ways of a filter to give back logarithms of probabilities."""
    return [
        Misconception(
            "log_probabilities",
            refusing(lambda logits, amount: keep(logits, amount).log_softmax(dim=-1)),
            SAYS_LOG_PROBABILITIES,
        ),
        Misconception(
            "log_probabilities_of_all",
            refusing(lambda logits, amount: keep(logits.log_softmax(dim=-1), amount)),
            SAYS_LOG_PROBABILITIES,
        ),
    ]


def top_k_of_the_least(logits, k):
    least = logits.kthvalue(min(k, logits.size(-1)), dim=-1, keepdim=True).values
    return logits.masked_fill(logits < least, -math.inf)


def top_k_of_two_axes(logits, k):
    return logits.masked_fill(logits < logits.topk(min(k, logits.size(-1))).values[:, [-1]], -math.inf)


TOP_K_FILTER = Exercise(
    answer=top_k_filter,
    points=1,
    minutes=10,
    axes={"logits": "batch vocab", "output": "batch vocab"},
    probes=[
        Probe("two of five", lambda draw: {"logits": distinct_logits(draw, 5), "k": 2}),
        Probe("one", lambda draw: {"logits": distinct_logits(draw, 4), "k": 1}),
        Probe("several rows", lambda draw: {"logits": distinct_logits(draw, 3, 6), "k": 3}),
        Probe("rows of rows", lambda draw: {"logits": distinct_logits(draw, 2, 3, 5), "k": 2}),
    ],
    properties=[
        Property("all are left", lambda draw: {"logits": distinct_logits(draw, 2, 4), "k": 4}, nothing_is_removed),
        Property(
            "k may be more than there are",
            lambda draw: {"logits": distinct_logits(draw, 2, 4), "k": 9},
            nothing_is_removed,
        ),
        Property("k are left in every row", lambda draw: {"logits": distinct_logits(draw, 4, 7), "k": 3}, k_are_left),
        Property(
            "what is left stays as it was",
            lambda draw: {"logits": distinct_logits(draw, 2, 6), "k": 4},
            kept_as_they_were,
        ),
        Property(
            "k below 1 is refused",
            lambda draw: {"logits": distinct_logits(draw, 4), "values": [0, -2]},
            all_are_refused,
            complaints_about,
        ),
    ],
    misconceptions=[
        Misconception(
            "zeros",
            refusing(lambda logits, k: logits.masked_fill(logits < threshold_of(logits, k), 0.0)),
            SAYS_ZEROS,
        ),
        Misconception(
            "finite",
            refusing(lambda logits, k: logits.masked_fill(logits < threshold_of(logits, k), -1e9)),
            SAYS_FINITE,
        ),
        Misconception(
            "least_float",
            refusing(lambda logits, k: logits.masked_fill(logits < threshold_of(logits, k), LEAST_FLOAT)),
            SAYS_FINITE,
        ),
        Misconception(
            "least_likely",
            refusing(lambda logits, k: -top_k_filter(-logits, k)),
            "The k *smallest* logits are kept, and the others are plus infinity: a sign is turned round.",
        ),
        Misconception(
            "least_likely_kept",
            refusing(lambda logits, k: logits.masked_fill(top_k_filter(-logits, k).isinf(), -math.inf)),
            "The k *smallest* logits are kept. The likeliest tokens have the greatest: `largest=True`, or "
            "`descending=True`.",
        ),
        Misconception(
            "likeliest_removed",
            refusing(lambda logits, k: logits.masked_fill(top_k_filter(logits, k).isfinite(), -math.inf)),
            "The k likeliest are removed, and all others kept: the mask is the wrong way round.",
        ),
        Misconception("in_place", refusing(in_place_top_k), SAYS_IN_PLACE),
        Misconception(
            "one_too_few",
            refusing(lambda logits, k: logits.masked_fill(logits <= threshold_of(logits, k), -math.inf)),
            "The k-th likeliest is removed too, so that k - 1 are left, and with k = 1 none. Remove what is *smaller* "
            "than the k-th: `<`, not `<=`.",
        ),
        Misconception(
            "one_too_many",
            refusing(lambda logits, k: top_k_filter(logits, k + 1)),
            "One token too many is kept. Counted from 0, the k-th likeliest stands at `k - 1`.",
        ),
        Misconception(
            "values_only",
            refusing(lambda logits, k: logits.topk(min(k, logits.size(-1)), dim=-1).values),
            "It returns the k greatest logits alone. Which tokens are they? What is drawn from them is a rank, not a "
            "token: keep all places, and fill the others with minus infinity.",
        ),
        Misconception(
            "sorted_logits",
            refusing(
                lambda logits, k: top_k_filter(logits.sort(dim=-1, descending=True).values, k),
            ),
            SAYS_SORTED,
        ),
        Misconception(
            "axis_lost",
            refusing(lambda logits, k: logits.masked_fill(logits < threshold_of(logits, k)[..., 0], -math.inf)),
            "The k-th greatest of each row is compared with the wrong logits, or with none: `[..., -1]` drops the axis "
            "of the vocabulary. Keep it, `[..., -1:]`, so that each row has its own.",
        ),
        Misconception(
            "over_all_rows",
            refusing(top_k_of_all_rows),
            "The k greatest of the whole tensor are kept, so that some rows have more and some none. Each row is a "
            "distribution of its own: `dim=-1`.",
        ),
        Misconception(
            "first_rows_tokens",
            refusing(top_k_of_the_first_row),
            "In all rows those tokens are kept that are likeliest in the first. Each row has its own.",
        ),
        Misconception(
            "more_than_there_are",
            refusing(top_k_that_cannot_have_more),
            "`topk` fails when k is greater than the vocabulary. Then all are kept: `min(k, logits.size(-1))`.",
        ),
        Misconception(
            "probabilities",
            refusing(lambda logits, k: top_k_filter(logits, k).softmax(dim=-1)),
            SAYS_PROBABILITIES,
        ),
        Misconception(
            "probabilities_with_zeros",
            refusing(lambda logits, k: logits.softmax(dim=-1).masked_fill(top_k_filter(logits, k).isinf(), 0.0)),
            SAYS_PROBABILITIES,
        ),
        *log_probabilities_of(top_k_filter, refusing),
        Misconception(
            "wrong_axis",
            refusing(top_k_down_the_columns),
            "The k greatest are looked for down the columns (`dim=0`), among the rows of a batch. Each row is a "
            "distribution of its own: the vocabulary is the last axis, `dim=-1`.",
        ),
        Misconception(
            "no_error",
            lambda logits, k: top_k_filter(logits, k) if k >= 1 else torch.full_like(logits, -math.inf),
            "With k = 0 no token is left, and what is drawn from that is NaN. Raise a `ValueError` before.",
        ),
        Misconception(
            "from_the_smallest",
            refusing(top_k_of_the_least),
            "The threshold is the k-th smallest logit, so that only k - 1 tokens are removed. `kthvalue` counts from "
            "the smallest, and so does `sort` unless told `descending=True`: take the k-th greatest.",
        ),
        Misconception(
            "two_axes",
            refusing(top_k_of_two_axes),
            "`values[:, [-1]]` is the last of each row where there are exactly two axes. A single row has one, and "
            "rows of rows have three: `values[..., -1:]` is right for all.",
        ),
    ],
    hints=[
        "Which logit is the last that may stay? Or: which places are those of the k greatest?",
        "`logits.topk(k, dim=-1)` gives values and places. Either compare with the last of the values (keep the axis: "
        "`[..., -1:]`), or mark the places in a mask with `scatter`. Then `masked_fill` with `-math.inf`.",
        "`smallest = logits.topk(min(k, logits.size(-1)), dim=-1).values[..., -1:]`, then "
        "`logits.masked_fill(logits < smallest, -math.inf)`.",
    ],
)

# --- top_p_filter -----------------------------------------------------------------------------------------------------


def logits_of(draw: Draw, *rows: list[float]) -> Tensor:
    """Logits of the given probabilities, in each row in another order, and with the same number added to all of it."""
    shuffled = [[row[place] for place in draw.order(len(row))] for row in rows]
    shifts = torch.tensor([[draw.integer(-20, 20) / 10] for _ in rows], dtype=torch.float64)
    logits = torch.tensor(shuffled, dtype=torch.float64).log() + shifts
    return logits[0] if len(rows) == 1 else logits


FOUR, STEEP, LONG = [0.4, 0.3, 0.2, 0.1], [0.7, 0.15, 0.1, 0.05], [0.31, 0.22, 0.15, 0.11, 0.09, 0.07, 0.05]
FLAT = [0.28, 0.26, 0.24, 0.22]


def one_is_left(inputs, received):
    return "a row has no finite logit left" if (kept_in_rows(received) == 0).any() else None


def likeliest_are_kept(inputs, received):
    kept = received.isfinite()
    least_kept = inputs["logits"].masked_fill(~kept, math.inf).amin(dim=-1)
    most_removed = inputs["logits"].masked_fill(kept, -math.inf).amax(dim=-1)
    if (least_kept < most_removed).any():
        return "a token is removed that is likelier than one that is kept"
    return None


def peaked_logits(draw: Draw, vocab: int) -> Tensor:
    """One token has so much that the sum of all probabilities is 1 after it, as every dtype rounds."""
    logits = draw.numbers(vocab)
    logits[draw.integer(0, vocab - 1)] = 60.0
    return logits


def filtered_with_one(subject, logits, p):
    error = raised(subject, logits.clone(), p)
    return {"error": error, "logits": subject(logits, p) if error == "nothing" else None}


def all_are_left_with_one(inputs, received):
    if received["error"] != "nothing":
        return f"p = 1 raises a {received['error']}: it is allowed, and keeps all"
    return nothing_is_removed(inputs, received["logits"])


def with_and_without_shift(subject, logits, p, shift):
    return {"kept": subject(logits, p).isfinite(), "kept after the shift": subject(logits + shift, p).isfinite()}


def shift_changes_nothing(inputs, received):
    if not torch.equal(received["kept"], received["kept after the shift"]):
        return "the same number added to all logits changes which tokens are kept"
    return None


def nucleus(removed_of, fill=-math.inf, weigh=lambda logits: logits.softmax(dim=-1), descending=True,
            all_with_one=False):  # fmt: skip
    """A top_p_filter in which `removed_of(sorted weights, their sums so far, p)` says what goes."""

    def filter_tokens(logits, p):
        if p == 1 and all_with_one:
            return logits.clone()
        weights, order = weigh(logits).sort(dim=-1, descending=descending)
        removed = removed_of(weights, weights.cumsum(dim=-1), p)
        return logits.masked_fill(torch.zeros_like(removed).scatter(-1, order, removed), fill)

    return refusing(filter_tokens, valid=lambda p: 0 < p <= 1)


def right_removed(weights, sums, p):
    return sums - weights >= p


def without_crossing_but_first(weights, sums, p):
    removed = sums > p
    removed[..., 0] = False
    return removed


def one_more_kept(weights, sums, p):
    return sums - weights - weights.roll(1, dims=-1) >= p


def refusing_p(filtered):
    return refusing(filtered, valid=lambda p: 0 < p <= 1)


def top_p_not_put_back(logits, p):
    weights = logits.softmax(dim=-1).sort(dim=-1, descending=True).values
    return logits.masked_fill(right_removed(weights, weights.cumsum(dim=-1), p), -math.inf)


def top_p_down_the_columns(logits, p):
    if p == 1:
        return logits.clone()
    weights, order = logits.softmax(dim=0).sort(dim=0, descending=True)
    removed = weights.cumsum(dim=0) - weights >= p
    return logits.masked_fill(torch.zeros_like(removed).scatter(0, order, removed), -math.inf)


def top_p_filter_or_nothing(logits, p):
    return top_p_filter(logits, p) if p > 0 else torch.full_like(logits, -math.inf)


def top_p_unsorted(logits, p):
    weights = logits.softmax(dim=-1)
    return logits.masked_fill(right_removed(weights, weights.cumsum(dim=-1), p), -math.inf)


def top_p_put_back_wrongly(logits, p):
    """The order is used in the wrong direction: `gather` where `scatter` belongs."""
    weights, order = logits.softmax(dim=-1).sort(dim=-1, descending=True)
    removed = right_removed(weights, weights.cumsum(dim=-1), p)
    return logits.masked_fill(removed.gather(-1, order), -math.inf)


def top_p_of_one_row(logits, p):
    """Right for one row; with more, the tokens removed anywhere are taken for rows."""
    weights, order = logits.softmax(dim=-1).sort(dim=-1, descending=True)
    filtered = logits.clone()
    filtered[order[right_removed(weights, weights.cumsum(dim=-1), p)]] = -math.inf
    return filtered


def top_p_with_the_first_rows_order(logits, p):
    weights, order = logits.softmax(dim=-1).sort(dim=-1, descending=True)
    removed = right_removed(weights, weights.cumsum(dim=-1), p)
    order = order.reshape(-1, order.size(-1))[0].expand_as(order)
    return logits.masked_fill(torch.zeros_like(removed).scatter(-1, order, removed), -math.inf)


def in_place_top_p(logits, p):
    logits[top_p_filter(logits, p).isinf()] = -math.inf
    return logits


def nucleus_of_all_rows(logits, p):
    if p == 1:
        return logits.clone()
    weights, order = logits.softmax(dim=-1).flatten().sort(descending=True)
    removed = right_removed(weights, weights.cumsum(dim=0), p)
    return logits.masked_fill(torch.zeros_like(removed).scatter(0, order, removed).view_as(logits), -math.inf)


TOP_P_FILTER = Exercise(
    answer=top_p_filter,
    points=2,
    minutes=20,
    axes={"logits": "batch vocab", "output": "batch vocab"},
    probes=[
        Probe("two of four are enough", lambda draw: {"logits": logits_of(draw, FOUR), "p": 0.6}),
        Probe("the likeliest alone is enough", lambda draw: {"logits": logits_of(draw, STEEP), "p": 0.5}),
        Probe("many tokens", lambda draw: {"logits": logits_of(draw, LONG), "p": 0.72}),
        Probe("each row has its own", lambda draw: {"logits": logits_of(draw, FOUR, STEEP, FLAT), "p": 0.75}),
        Probe("rows of rows", lambda draw: {"logits": logits_of(draw, STEEP, FLAT)[None], "p": 0.5}),
    ],
    properties=[
        Property(
            "where three are not enough, four are left",
            lambda draw: {"logits": logits_of(draw, FLAT), "p": 0.9},
            nothing_is_removed,
        ),
        Property(
            "with p = 1 all are left",
            lambda draw: {"logits": logits_of(draw, FOUR, STEEP), "p": 1.0},
            all_are_left_with_one,
            filtered_with_one,
        ),
        Property(
            "with p = 1 all are left, even where one token has nearly everything",
            lambda draw: {"logits": peaked_logits(draw, 6), "p": 1.0},
            all_are_left_with_one,
            filtered_with_one,
        ),
        Property(
            "one is always left",
            lambda draw: {"logits": logits_of(draw, FOUR, STEEP, FLAT), "p": 0.001},
            one_is_left,
        ),
        Property(
            "what is left stays as it was",
            lambda draw: {"logits": logits_of(draw, LONG, LONG), "p": 0.6},
            kept_as_they_were,
        ),
        Property(
            "none that is removed is likelier than one that is kept",
            lambda draw: {"logits": logits_of(draw, LONG, LONG, LONG), "p": 0.5},
            likeliest_are_kept,
        ),
        Property(
            "the same number added to all logits changes nothing",
            lambda draw: {"logits": logits_of(draw, FOUR, FLAT), "p": 0.75, "shift": draw.integer(2, 4) / 1},
            shift_changes_nothing,
            with_and_without_shift,
        ),
        Property(
            "0 and what is above 1 is refused",
            lambda draw: {"logits": logits_of(draw, FOUR), "values": [0.0, -0.5, 1.5]},
            all_are_refused,
            complaints_about,
        ),
    ],
    misconceptions=[
        Misconception(
            "last_one_missing",
            nucleus(lambda weights, sums, p: sums > p),
            "The token with which the sum passes p is removed, so that less than p is left, and nothing at all where "
            "the likeliest token alone has more than p. The nucleus is the smallest set that *reaches* p (Holtzman et "
            "al. 2020): ask what the likelier ones have together, without the token itself.",
        ),
        Misconception(
            "reached_is_removed",
            nucleus(lambda weights, sums, p: sums >= p),
            "The token with which the sum reaches p is removed, so that less than p is left, nothing where the "
            "likeliest token alone has p, and with p = 1 the last one is missing. `cumsum >= p` asks one place "
            "too early: what counts is what stands *before* a token, `cumsum - probabilities >= p`.",
        ),
        Misconception(
            "last_one_missing_but_the_first",
            nucleus(without_crossing_but_first),
            "The token with which the sum passes p is removed, and only the likeliest is rescued. So a row that needs "
            "two tokens or more has one too few: shift the whole mask by one place, not only its beginning.",
        ),
        Misconception(
            "one_too_many",
            nucleus(one_more_kept),
            "One token more than needed is kept: the mask is shifted by two places. The token with which the sum "
            "reaches p is the last.",
        ),
        Misconception(
            "not_put_back",
            refusing_p(top_p_not_put_back),
            "The mask is in the order of the sorted probabilities, the logits are in that of the tokens, and the two "
            "are put together. Bring the mask back: `mask.scatter(-1, order, mask)`, or sort the order itself "
            "(`argsort`).",
        ),
        Misconception(
            "put_back_wrongly",
            refusing_p(top_p_put_back_wrongly),
            "`gather` with the order sorts once more; it does not undo it. Writing back is `scatter`: what stands at "
            "place i of the sorted row belongs to token `order[i]`.",
        ),
        Misconception(
            "unsorted",
            refusing_p(top_p_unsorted),
            "The probabilities are added up in the order of the tokens. Which ones are kept then depends on how they "
            "are numbered: sort first, likeliest in front.",
        ),
        Misconception(
            "unlikely_first",
            nucleus(right_removed, descending=False),
            "The probabilities are added up from the smallest on, so that the unlikely tokens are kept and the "
            "likeliest go: `descending=True`.",
        ),
        Misconception(
            "sums_of_logits",
            nucleus(right_removed, weigh=lambda logits: logits),
            "Logits are added up, not probabilities. They can be negative, and their sum means nothing: "
            "`softmax` first.",
        ),
        Misconception(
            "each_against_p",
            refusing_p(lambda logits, p: logits.masked_fill(logits.softmax(dim=-1) < p, -math.inf)),
            "Each probability by itself is compared with p. It is their sum, from the likeliest on, that has "
            "to reach p.",
        ),
        Misconception(
            "share_of_the_greatest",
            refusing_p(
                lambda logits, p: logits.masked_fill(
                    logits.softmax(dim=-1) < p * logits.softmax(dim=-1).amax(dim=-1, keepdim=True), -math.inf
                )
            ),
            "Kept is what has at least p times the greatest probability. That is another method (min-p); here the "
            "probabilities are added up until they reach p.",
        ),
        Misconception(
            "rest_of_p",
            nucleus(lambda weights, sums, p: (sums - weights >= 1 - p) & (sums > weights)),
            "The tokens are added up to 1 - p. That is what may be *lost*; what is kept has p.",
        ),
        Misconception(
            "wrong_axis",
            refusing_p(top_p_down_the_columns),
            "Sorting and adding run down the columns (`dim=0`), over the rows of a batch. Each row is a distribution "
            "of its own: the vocabulary is the last axis, `dim=-1`, in softmax, sort, cumsum and scatter.",
        ),
        Misconception(
            "softmax_of_columns",
            nucleus(right_removed, weigh=lambda logits: logits.softmax(dim=0), all_with_one=True),
            "The softmax runs down the columns (`dim=0`), so that no row of a batch sums to 1. The vocabulary is the "
            "last axis: `dim=-1`.",
        ),
        Misconception(
            "softmax_over_all_rows",
            nucleus(
                right_removed, weigh=lambda logits: logits.flatten().softmax(dim=0).view_as(logits), all_with_one=True
            ),
            "One softmax is taken over all rows together. Then each row has only a share of the 1, and keeps more "
            "tokens than it needs: each row is a distribution of its own, `softmax(dim=-1)`.",
        ),
        Misconception(
            "one_is_rounded",
            nucleus(right_removed),
            "With p = 1 tokens are removed. Where one token has nearly all the probability, the sum is rounded to 1 "
            "after it, and the others seem to be no longer needed. p = 1 asks for everything: return the logits, as a "
            "copy, before any sum.",
        ),
        Misconception("zeros", nucleus(right_removed, fill=0.0, all_with_one=True), SAYS_ZEROS),
        Misconception("finite", nucleus(right_removed, fill=-1e9, all_with_one=True), SAYS_FINITE),
        Misconception("least_float", nucleus(right_removed, fill=LEAST_FLOAT, all_with_one=True), SAYS_FINITE),
        Misconception("in_place", refusing_p(in_place_top_p), SAYS_IN_PLACE),
        Misconception(
            "probabilities",
            refusing_p(lambda logits, p: top_p_filter(logits, p).softmax(dim=-1)),
            SAYS_PROBABILITIES,
        ),
        Misconception(
            "probabilities_with_zeros",
            refusing_p(lambda logits, p: logits.softmax(dim=-1).masked_fill(top_p_filter(logits, p).isinf(), 0.0)),
            SAYS_PROBABILITIES,
        ),
        Misconception(
            "probabilities_filled",
            refusing_p(
                lambda logits, p: logits.softmax(dim=-1).masked_fill(top_p_filter(logits, p).isinf(), -math.inf)
            ),
            SAYS_PROBABILITIES,
        ),
        *log_probabilities_of(top_p_filter, refusing_p),
        Misconception(
            "sorted_logits",
            refusing_p(lambda logits, p: top_p_filter(logits.sort(dim=-1, descending=True).values, p)),
            SAYS_SORTED,
        ),
        Misconception(
            "one_row_only",
            refusing_p(top_p_of_one_row),
            "`logits[order[removed]]` is right for one row. With several, the numbers of tokens are taken for numbers "
            "of rows: use `scatter` along the last axis.",
        ),
        Misconception(
            "first_rows_order",
            refusing_p(top_p_with_the_first_rows_order),
            "The order of the first row is used for all. Each row has its own: `scatter(-1, order, ...)` with the "
            "whole of it.",
        ),
        Misconception(
            "no_error",
            lambda logits, p: nucleus_of_anything(logits, p),
            "A p of 0, below 0 or above 1 is no probability to reach, and passes without a word. Raise a `ValueError`.",
        ),
        Misconception(
            "zero_allowed",
            refusing(top_p_filter_or_nothing, valid=lambda p: 0 <= p <= 1),
            "p = 0 is accepted. No token is needed to reach 0, so none would be left to draw from: `0 < p <= 1`, and a "
            "`ValueError` for all else.",
        ),
        Misconception(
            "one_refused",
            refusing(top_p_filter, valid=lambda p: 0 < p < 1),
            "p = 1 is refused. It is a probability too, and says that all tokens are to stay: `0 < p <= 1`.",
        ),
        Misconception(
            "sum_over_all_rows",
            refusing(nucleus_of_all_rows, lambda p: 0 < p <= 1),
            "The probabilities of all rows are added up in one sum, so that later rows have nothing left. Each row is "
            "a distribution of its own: sort and add up along the last axis.",
        ),
    ],
    hints=[
        "Sort the probabilities, likeliest first, and write beside each what all *before* it have together. When is a "
        "token not needed any more?",
        "`softmax`, `sort(descending=True)`, `cumsum`; a token goes if the sum of those before it is p already. The "
        "mask is in sorted order then: `scatter` brings it back to the tokens.",
        "`before = probabilities.cumsum(dim=-1) - probabilities`; `removed = before >= p`; "
        "`torch.zeros_like(removed).scatter(-1, order, removed)` is the mask for `logits.masked_fill(..., -math.inf)`. "
        "Before all that, p = 1: `return logits.clone()`, because a rounded sum can be 1 too early.",
    ],
)


def nucleus_of_anything(logits, p):
    if p == 1:
        return logits.clone()
    weights, order = logits.softmax(dim=-1).sort(dim=-1, descending=True)
    removed = right_removed(weights, weights.cumsum(dim=-1), p)
    return logits.masked_fill(torch.zeros_like(removed).scatter(-1, order, removed), -math.inf)


# --- sample -----------------------------------------------------------------------------------------------------------


def chain_inputs(draw: Draw) -> dict:
    """After each token another one is much the likeliest, and greedy writing goes round them all."""
    vocab, order = 5, draw.order(5)
    table = draw.numbers(vocab, vocab, low=-1, high=1)
    for token, following in zip(order, order[1:] + order[:1], strict=True):
        table[token, following] = 4.0
    return {"table": table, "prompt": torch.tensor([order[3], order[0]]), "count": 4}


def writes_greedily(subject, table, prompt, count):
    from transformer_lab.electives.table_language_model import TableLanguageModel

    return subject(TableLanguageModel(table), prompt, count, temperature=0)


def reader_inputs(draw: Draw, max_length: int, prompt: int, count: int) -> dict:
    """A model that reads everything, and a prompt for which each mistake in reading writes a text of its own."""
    mistakes = [{"mask": mask_without_hiding}, {"mask": mask_of_this_course}, {"reads": the_newest}, {"position": 0}]
    if prompt + count > max_length + 1:
        mistakes += [{"reads": the_first}, {"reads": one_less_than_it_can}]
    writers = [sample, *(sample_with(**mistake) for mistake in mistakes)]
    while True:
        inputs = {
            "vocab": 7,
            "max_length": max_length,
            "prompt": draw.integers(prompt, low=0, high=6),
            "count": count,
        }
        if len({tuple(reader_writes(write, **inputs).tolist()) for write in writers}) == len(writers):
            return inputs


def reader_writes(subject, vocab, max_length, prompt, count):
    from transformer_lab.electives.table_language_model import CountingLanguageModel

    return subject(CountingLanguageModel(vocab, max_length), prompt, count, temperature=0)


def table_inputs(draw: Draw, probabilities: list[float], count: int, **settings) -> dict:
    """Whatever was written, the same probabilities hold for the next token; which token has which, is drawn."""
    logits = torch.tensor([probabilities[place] for place in draw.order(len(probabilities))]).double().log()
    return {
        "logits": logits.round(decimals=4),
        "prompt": draw.integers(1, low=0, high=len(probabilities) - 1),
        "count": count,
        "settings": settings,
        "seed": draw.integer(1, 9999),
    }


def tokens_that_come(subject, logits, prompt, count, settings, seed):
    from transformer_lab.electives.table_language_model import TableLanguageModel

    model = TableLanguageModel(logits.expand(len(logits), -1).contiguous())
    written = subject(model, prompt, count, **settings, generator=torch.Generator().manual_seed(seed))
    return {"tokens that come": sorted(set(written.tolist()))}


def shares_of_tokens(subject, logits, prompt, count, settings, seed):
    from transformer_lab.electives.table_language_model import TableLanguageModel

    model = TableLanguageModel(logits.expand(len(logits), -1).contiguous())
    written = subject(model, prompt, count, **settings, generator=torch.Generator().manual_seed(seed))
    shares = torch.bincount(written, minlength=len(logits)).double() / len(written)
    return {"shares": shares, "tokens written": len(written)}


def shares_as_they_should(inputs, expected, received):
    """Five standard deviations: of a million right answers, one would be found fault with."""
    if received["tokens written"] != inputs["count"]:
        return f"{'more' if received['tokens written'] > inputs['count'] else 'fewer'} tokens are written than `count`"
    probabilities = (inputs["logits"] / inputs["settings"].get("temperature", 1.0)).softmax(dim=-1)
    shares = received["shares"]
    allowed = 5 * (probabilities * (1 - probabilities) / inputs["count"]).sqrt()
    if shares.shape != probabilities.shape or shares.isnan().any():
        return "what comes are not tokens of the vocabulary"
    if ((shares - probabilities).abs() <= allowed).all():
        return None
    likeliest = probabilities.argmax()
    more = "more" if shares[likeliest] > probabilities[likeliest] else "less"
    return f"the likeliest token comes {more} often than its probability at this temperature says"


def with_seeds(subject, logits, prompt, count, settings, seed):
    from transformer_lab.electives.table_language_model import TableLanguageModel

    model = TableLanguageModel(logits.expand(len(logits), -1).contiguous())
    texts = {}
    before = torch.get_rng_state()
    for name, number in (("one seed", seed), ("the same seed", seed), ("another seed", seed + 1)):
        generator = torch.Generator().manual_seed(number)
        texts[name] = subject(model, prompt, count, **settings, generator=generator).tolist()
    return texts | {"torch's own generator is left alone": torch.equal(before, torch.get_rng_state())}


def seeds_decide(inputs, received):
    if received["one seed"] != received["the same seed"]:
        return "two generators with the same seed write different texts"
    if received["one seed"] == received["another seed"]:
        return "generators with different seeds write the same text"
    if not received["torch's own generator is left alone"]:
        return "torch's own generator is drawn from, although another one is given"
    return None


def modes_and_gradients(subject, table, prompt, count):
    from transformer_lab.electives.table_language_model import TableLanguageModel

    result = {}
    for name, training in (("training", True), ("evaluation", False)):
        model = TableLanguageModel(table).train(training)
        subject(model, prompt, count, temperature=0)
        result |= {f"{name} mode": model.training, f"{name}, with gradients": model.with_gradients}
    return result


def mode_is_restored(inputs, received):
    if received["training mode"] is not True:
        return "a model that was in training mode is in evaluation mode afterwards"
    if received["evaluation mode"] is not False:
        return "a model that was in evaluation mode is in training mode afterwards"
    return None


def without_gradients(inputs, received):
    if received["evaluation, with gradients"] or received["training, with gradients"]:
        return "the model computes with gradients switched on, which costs memory for every token and serves nobody"
    return None


def bad_requests(subject, table, prompt):
    from transformer_lab.electives.table_language_model import TableLanguageModel

    model = TableLanguageModel(table)
    return {
        "an empty prompt": raised(subject, model, prompt[:0], 2),
        "a negative temperature": raised(subject, model, prompt, 2, -1.0),
    }


def coldest_request(subject, table, prompt):
    from transformer_lab.electives.table_language_model import TableLanguageModel

    return {"temperature 0": raised(subject, TableLanguageModel(table), prompt, 2, 0)}


def the_coldest_is_taken(inputs, received):
    if received["temperature 0"] == "ValueError":
        return "temperature 0 raises a ValueError: it is allowed, and takes the likeliest token"
    return None


@contextmanager
def no_grad_only(model):
    with torch.no_grad():
        yield


@contextmanager
def eval_left(model):
    model.eval()
    with torch.no_grad():
        yield


@contextmanager
def train_afterwards(model):
    with evaluation_mode(model):
        yield
    model.train()


@contextmanager
def eval_with_gradients(model):
    was_training = model.training
    model.eval()
    yield
    model.train(was_training)


def in_order(logits, temperature, top_k, top_p):
    logits = logits / temperature
    logits = top_k_filter(logits, top_k) if top_k is not None else logits
    return top_p_filter(logits, top_p) if top_p is not None else logits


def temperature_last(logits, temperature, top_k, top_p):
    return in_order(logits, 1.0, top_k, top_p) / temperature


def top_p_first(logits, temperature, top_k, top_p):
    return in_order(in_order(logits, temperature, None, top_p), 1.0, top_k, None)


def of_all_written(written, max_length):
    return written[-max_length:]


def one_less_than_it_can(written, max_length):
    return written[-(max_length - 1) :]


def the_newest(written, max_length):
    return written[-1:]


def the_first(written, max_length):
    return written[:max_length]


def mask_without_hiding(length):
    return None


def mask_of_this_course(length):
    return causal_mask(length)[0, 0]


def sample_with(mask=lambda length: ~causal_mask(length)[0, 0], reads=of_all_written, position=-1, prepare=in_order,
                mode=evaluation_mode, generator_of=lambda given: given, appended=True, returned=None,
                chooses=None, greedy_at_zero=True, refuses=lambda temperature: temperature < 0,
                draws_from=lambda logits: logits.softmax(dim=-1), rounds=lambda count, max_length: count):  # fmt: skip
    """A `sample` with one thing changed."""

    def write(model, prompt, count, temperature=1.0, top_k=None, top_p=None, generator=None):
        if refuses and (len(prompt) == 0 or refuses(temperature)):
            raise ValueError("cannot write")
        written, new = prompt, []
        generator = generator_of(generator)
        with mode(model):
            for _ in range(rounds(count, model.max_length)):
                seen = reads(written, model.max_length)
                logits = model(seen[None], mask(len(seen)))[0, position]
                if chooses is not None:
                    token = chooses(logits)
                elif temperature == 0 and greedy_at_zero:
                    token = logits.argmax(keepdim=True)
                else:
                    logits = prepare(logits, temperature, top_k, top_p)
                    token = torch.multinomial(draws_from(logits), 1, generator=generator)
                new.append(token)
                written = torch.cat([written, token]) if appended else written
        return returned(prompt, new) if returned else torch.cat(new)

    return write


SAYS_EVAL = (
    "The model writes in the mode it is in. In training mode dropout is on, and what it says is not what it has "
    "learnt: `model.eval()`, or `with evaluation_mode(model):`."
)


SAMPLE = Exercise(
    answer=sample,
    points=3,
    minutes=30,
    returns=("tokens",),
    axes={"prompt": "length", "tokens": "count"},
    builds_on=("causal_mask", "top_k_filter", "top_p_filter"),
    probes=[
        Probe("the likeliest token each time, temperature 0", chain_inputs, writes_greedily),
        Probe("a model that reads everything", lambda draw: reader_inputs(draw, 9, 3, 6), reader_writes),
        Probe(
            "more text than the model can read",
            lambda draw: reader_inputs(draw, 4, 3, 6),
            reader_writes,
            needs=("a model that reads everything",),
        ),
        Probe(
            "as often as the model says",
            lambda draw: table_inputs(draw, [0.7, 0.2, 0.1], 300),
            shares_of_tokens,
            agrees=shares_as_they_should,
        ),
        Probe(
            "a high temperature",
            lambda draw: table_inputs(draw, [0.9, 0.1], 300, temperature=3.0),
            shares_of_tokens,
            agrees=shares_as_they_should,
        ),
        Probe("top-k", lambda draw: table_inputs(draw, [0.3, 0.28, 0.22, 0.2], 80, top_k=2), tokens_that_come),
        Probe("top-p", lambda draw: table_inputs(draw, [0.35, 0.3, 0.2, 0.15], 80, top_p=0.6), tokens_that_come),
        Probe(
            "the temperature before top-p",
            lambda draw: table_inputs(draw, [0.6, 0.25, 0.1, 0.05], 400, temperature=0.5, top_p=0.9),
            tokens_that_come,
        ),
        Probe(
            "top-k before top-p",
            lambda draw: table_inputs(draw, [0.3, 0.25, 0.2, 0.15, 0.1], 80, top_k=3, top_p=0.7),
            tokens_that_come,
        ),
    ],
    properties=[
        Property(
            "the generator's seed decides",
            lambda draw: table_inputs(draw, [0.3, 0.28, 0.22, 0.2], 25),
            seeds_decide,
            with_seeds,
        ),
        Property("the model's mode is restored", chain_inputs, mode_is_restored, modes_and_gradients),
        Property("no gradients", chain_inputs, without_gradients, modes_and_gradients),
        Property(
            "an empty prompt and a negative temperature are refused",
            lambda draw: {"table": draw.numbers(4, 4), "prompt": draw.integers(2, low=0, high=3)},
            all_are_refused,
            bad_requests,
        ),
        Property(
            "temperature 0 is not refused",
            lambda draw: {"table": draw.numbers(4, 4), "prompt": draw.integers(2, low=0, high=3)},
            the_coldest_is_taken,
            coldest_request,
        ),
    ],
    misconceptions=[
        Misconception(
            "no_mask",
            sample_with(mask=mask_without_hiding),
            "There is no mask. Only the last position is read, and it may see all; but in the layers below the earlier "
            "positions now see what comes after them, which they never did in training. Hide the future when writing "
            "too.",
        ),
        Misconception("true_for_visible", sample_with(mask=mask_of_this_course), SAYS_OURS),
        Misconception(
            "first_position",
            sample_with(position=0),
            "The logits of the first position are read, which always say the same. What comes next is said at the last "
            "one: `[0, -1]`.",
        ),
        Misconception(
            "prompt_returned",
            sample_with(returned=lambda prompt, new: torch.cat([prompt, *new])),
            "The prompt is in the result. Only the new tokens are asked for: `written[len(prompt):]`.",
        ),
        Misconception(
            "times_temperature",
            sample_with(prepare=lambda logits, temperature, k, p: in_order(logits * temperature, 1.0, k, p)),
            "The logits are multiplied by the temperature. Divide: a high temperature brings them nearer together, and "
            "the choice becomes freer.",
        ),
        Misconception(
            "temperature_ignored",
            sample_with(prepare=lambda logits, temperature, k, p: in_order(logits, 1.0, k, p)),
            "The temperature has no effect. The *logits* are divided by it, before the softmax; dividing probabilities "
            "changes nothing, because they are scaled back to a sum of 1.",
        ),
        Misconception(
            "temperature_last",
            sample_with(prepare=temperature_last),
            "The filters come before the temperature. Then the nucleus is that of temperature 1, whatever is asked "
            "for: divide first.",
        ),
        Misconception(
            "top_p_first",
            sample_with(prepare=top_p_first),
            "Top-p comes before top-k. The nucleus is to be taken of what top-k has left, whose probabilities sum to 1 "
            "again; so top-k comes first.",
        ),
        Misconception(
            "top_k_ignored",
            sample_with(prepare=lambda logits, temperature, k, p: in_order(logits, temperature, None, p)),
            "`top_k` has no effect. Where it is given, the logits go through `top_k_filter`, and what that returns is "
            "used.",
        ),
        Misconception(
            "top_p_ignored",
            sample_with(prepare=lambda logits, temperature, k, p: in_order(logits, temperature, k, None)),
            "`top_p` has no effect. Where it is given, the logits go through `top_p_filter`, and what that returns is "
            "used.",
        ),
        Misconception(
            "always_greedy",
            sample_with(chooses=lambda logits: logits.argmax(keepdim=True)),
            "The likeliest token is taken every time. That is what temperature 0 asks for; else a token is *drawn* "
            "with its probability: `torch.multinomial`.",
        ),
        Misconception(
            "no_history",
            sample_with(reads=the_newest),
            "The model reads the newest token alone. It has no memory of its own: give it everything that stands "
            "there, up to `max_length` tokens.",
        ),
        Misconception(
            "never_cut",
            sample_with(reads=lambda written, max_length: written),
            "The text grows longer than the model can read. It has a position for `max_length` tokens: give it the "
            "last ones, `written[-model.max_length:]`.",
        ),
        Misconception(
            "first_tokens_kept",
            sample_with(reads=the_first),
            "The *first* `max_length` tokens are read. From then on the model sees always the same and says always the "
            "same: keep the last ones.",
        ),
        Misconception(
            "one_less_than_it_can",
            sample_with(reads=one_less_than_it_can),
            "The model reads one token fewer than it can. It has a position for `max_length` of them, and none has to "
            "be kept free for the token that comes: `written[-model.max_length:]`.",
        ),
        Misconception(
            "max_length_rounds",
            sample_with(rounds=lambda count, max_length: max_length),
            "It writes `max_length` tokens, whatever was asked for. That is how many the model can *read* at once; "
            "written are `count`: `range(count)`.",
        ),
        Misconception(
            "one_round_too_few",
            sample_with(rounds=lambda count, max_length: count - 1),
            "It writes one token fewer than `count`. Each round draws one, the first too: `range(count)`.",
        ),
        Misconception(
            "draws_from_logits",
            sample_with(draws_from=lambda logits: logits),
            "`torch.multinomial` gets logits, or logarithms of probabilities. It takes probabilities, or weights that "
            "are none of them negative: `logits.softmax(dim=-1)`, the last step before it draws.",
        ),
        Misconception(
            "not_appended",
            sample_with(appended=False),
            "What was drawn is not written behind the text, so that every token is drawn as if it were the first.",
        ),
        Misconception(
            "generator_ignored",
            sample_with(generator_of=lambda given: None),
            "The generator is not used, so that a text cannot be written a second time: hand it on, "
            "`torch.multinomial(..., generator=generator)`.",
        ),
        Misconception(
            "own_generator",
            sample_with(generator_of=lambda given: torch.Generator().manual_seed(0)),
            "A generator of its own is made, always with the same seed: every call writes the same text. Use the one "
            "that is given.",
        ),
        Misconception(
            "divides_by_zero",
            sample_with(greedy_at_zero=False),
            "Temperature 0 divides by zero. It stands for the limit: the likeliest token, `argmax`, and "
            "nothing is drawn.",
        ),
        Misconception(
            "zero_refused",
            sample_with(refuses=lambda temperature: temperature <= 0),
            "Temperature 0 is refused. It is allowed, and stands for the limit: the likeliest token, `argmax`. Only a "
            "negative one raises a `ValueError`.",
        ),
        Misconception(
            "list_returned",
            sample_with(returned=lambda prompt, new: [int(token) for token in new]),
            "A list is returned; a tensor `(count,)` is meant, which can be a prompt again.",
        ),
        Misconception("no_eval", sample_with(mode=no_grad_only), SAYS_EVAL),
        Misconception(
            "eval_left",
            sample_with(mode=eval_left),
            "The model is left in evaluation mode. Whoever writes a sample in the middle of a training goes on without "
            "dropout: put it back, as `evaluation_mode` does.",
        ),
        Misconception(
            "train_afterwards",
            sample_with(mode=train_afterwards),
            "The model is always left in training mode, although it may have come in evaluation mode. Remember what it "
            "was in, as `evaluation_mode` does.",
        ),
        Misconception(
            "with_gradients",
            sample_with(mode=eval_with_gradients),
            "Gradients are switched on. Nobody will ask for them, and each token keeps a graph in memory: "
            "`torch.no_grad()`, or `with evaluation_mode(model):`.",
        ),
        Misconception(
            "no_error",
            sample_with(refuses=None),
            "An empty prompt or a negative temperature is accepted. A negative temperature turns the order round, so "
            "that the unlikeliest token comes most: raise a `ValueError`.",
        ),
    ],
    hints=[
        "Go round `count` times: read what stands there, look at the logits of the last position, make a distribution "
        "of them, draw a token, write it behind. What does the model need so that it computes what it did in training?",
        "`seen = written[-model.max_length:]` and the mask of the loss give `model(seen[None], hidden)[0, -1]`. "
        "Temperature 0 is `argmax`; else divide, filter, filter, `softmax`, `torch.multinomial`. All of it in "
        "`with evaluation_mode(model):`.",
        "`token = torch.multinomial(logits.softmax(dim=-1), 1, generator=generator)`, then "
        "`written = torch.cat([written, token])`; in the end `written[len(prompt):]`.",
    ],
)

EXERCISES = [NEXT_TOKEN_PAIRS, CAUSAL_LANGUAGE_MODEL_LOSS, TOP_K_FILTER, TOP_P_FILTER, SAMPLE]
