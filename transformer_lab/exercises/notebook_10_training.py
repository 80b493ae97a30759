"""Notebook 10, training: labels, loss, learning rate, one training step, and evaluation."""

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from transformer_lab.exercises.exercise import Exercise, Probe, Property, Remark
from transformer_lab.exercises.harnesses import batches_of, gradients, outcome, two_tables
from transformer_lab.exercises.rules import Rule, requirement
from transformer_lab.exercises.sampling import InputSampler
from transformer_lab.training import evaluate, label_smoothing_loss, shift_target, train_step, warmup_rate

BOS, EOS = 1, 2


def padded_targets(sampler: InputSampler, lengths: list[int], vocab: int = 10, pad_id: int = 0) -> Tensor:
    """Return targets `(batch, longest)`: bos, tokens, eos, padding. If `pad_id` is not 0, each row contains token 0."""
    target = torch.full((len(lengths), max(lengths)), pad_id)
    tokens = [token for token in range(3, vocab) if token != pad_id]
    for row, length in zip(target, lengths, strict=True):
        middle = (sampler.shuffled(tokens) * length)[: length - 2]
        if pad_id != 0 and middle:
            middle[0] = 0
        row[:length] = torch.tensor([BOS, *middle, EOS])
    return target


# --- shift_target ----------------------------------------------------------------------------------------------------


def three_targets(sampler: InputSampler) -> dict:
    lengths = sampler.shuffled([sampler.integer(3, 4), 5, sampler.integer(6, 7)])
    return {"target": padded_targets(sampler, lengths)}


def an_empty_target(sampler: InputSampler) -> dict:
    lengths = [2, sampler.integer(4, 6)]
    return {"target": padded_targets(sampler, lengths if sampler.integer(0, 1) else lengths[::-1])}


def targets_with_another_pad_id(sampler: InputSampler) -> dict:
    lengths = sampler.shuffled([3, sampler.integer(5, 6)])
    return {"target": padded_targets(sampler, lengths, pad_id=sampler.integer(4, 9))}


def have_one_column_less(inputs, received):
    batch, length = inputs["target"].shape
    for name, tensor in zip(("decoder_input", "labels"), received, strict=True):
        if tuple(tensor.shape) != (batch, length - 1):
            shape = tuple(tensor.shape)
            return f"expected `{name}` of shape {(batch, length - 1)}, one column fewer than `target`; got {shape}"
    return None


SHIFT_TARGET = Exercise(
    answer=shift_target,
    points=1,
    minutes=5,
    returns=("decoder_input", "labels"),
    axes={"target": "batch length", "decoder_input": "batch length", "labels": "batch length"},
    probes=[
        Probe("one sentence", lambda sampler: {"target": padded_targets(sampler, [sampler.integer(4, 6)])}),
        Probe("three sentences, the shorter ones padded", three_targets),
        Probe("an empty sentence next to another one", an_empty_target),
        Probe("padding with another id", targets_with_another_pad_id),
    ],
    properties=[
        Property(
            "both results have one column fewer than the target",
            lambda sampler: {"target": padded_targets(sampler, [5, 4])},
            have_one_column_less,
        ),
        requirement(
            "the label at one position is the input at the next",
            lambda sampler: {"target": padded_targets(sampler, [7, 6])},
            lambda inputs, received: torch.equal(received[0][:, 1:], received[1][:, :-1]),
            "a label isn't the token that the decoder reads one position later",
        ),
    ],
)

# --- label_smoothing_loss --------------------------------------------------------------------------------------------


def loss_inputs(sampler: InputSampler, lengths: list[int], smoothing: float, vocab: int = 5, pad_id: int = 0) -> dict:
    """Return padded labels with the given lengths, and logits at every position, including the padding.

    If `pad_id` is not 0, each row starts with token 0. Padding has the highest logit, and the correct token has by far
    the lowest, so a wrong weight for either of them always changes the loss. Each sentence has a higher loss than the
    one before it.
    """
    labels = torch.full((len(lengths), max(lengths)), pad_id)
    for row, length in zip(labels, lengths, strict=True):
        tokens = sampler.integers(length, low=0, high=vocab - 2)
        row[:length] = tokens + (tokens >= pad_id).long()  # any id except the padding's
        if pad_id != 0:
            row[0] = 0
    gaps = 8 + 4 * torch.arange(len(lengths))[:, None, None]
    logits = sampler.numbers(*labels.shape, vocab, low=0, high=2) - gaps * torch.nn.functional.one_hot(labels, vocab)
    logits[..., pad_id] = sampler.numbers(*labels.shape, low=3, high=4)
    return {"logits": logits, "labels": labels, "smoothing": smoothing, "pad_id": pad_id}


def very_large_logits(sampler: InputSampler) -> dict:
    inputs = loss_inputs(sampler, [1], 0.1)
    inputs["logits"] *= 1000
    return inputs


def loss_and_gradient(subject, logits, labels, smoothing, pad_id):
    loss = subject(logits.requires_grad_(), labels, smoothing, pad_id)
    return {"loss": loss} | gradients(loss, {"logits": logits})


def kind_of_loss(subject, logits, labels, smoothing, pad_id):
    loss = subject(logits.requires_grad_(), labels, smoothing, pad_id)
    return {"kind": type(loss).__name__, "axes": loss.ndim if isinstance(loss, torch.Tensor) else 0}


def is_a_scalar_tensor(inputs, received):
    if received["kind"] not in ("Tensor", "Parameter"):
        return f"expected a tensor with no axes, which `backward` needs; got a `{received['kind']}`"
    if received["axes"]:
        return f"expected a tensor with no axes, which `backward` needs; the number of axes is {received['axes']}"
    return None


def loss_of_raised_logits(subject, logits, labels, smoothing, pad_id, added):
    raised_logits = logits + added
    return [float(subject(given, labels, smoothing, pad_id)) for given in (logits, raised_logits)]


LABEL_SMOOTHING_LOSS = Exercise(
    answer=label_smoothing_loss,
    points=3,
    minutes=25,
    returns=("loss",),
    axes={"logits": "batch length vocab", "labels": "batch length"},
    banned=("torch.nn.functional.cross_entropy", "torch.nn.CrossEntropyLoss"),
    probes=[
        Probe("one token, no smoothing", lambda sampler: loss_inputs(sampler, [1], 0.0, vocab=3)),
        Probe("one token, smoothed", lambda sampler: loss_inputs(sampler, [1], sampler.integer(2, 4) / 10, vocab=4)),
        # The first sentence is the shorter one, so if axes are mixed up, labels always meet the logits of its padding.
        Probe(
            "sentences of different lengths",
            lambda sampler: loss_inputs(
                sampler, [sampler.integer(1, 2), sampler.integer(3, 4)], sampler.integer(2, 4) / 10, vocab=6
            ),
        ),
        Probe(
            "padding that isn't 0",
            lambda sampler: loss_inputs(sampler, [2, 3], sampler.integer(2, 4) / 10, pad_id=sampler.integer(1, 4)),
        ),
        Probe("very large logits", very_large_logits),
        Probe("the gradient of the logits", lambda sampler: loss_inputs(sampler, [1, 2], 0.3), loss_and_gradient),
    ],
    properties=[
        Property(
            "the loss is a tensor without axes",
            lambda sampler: loss_inputs(sampler, [2, 1], 0.1),
            is_a_scalar_tensor,
            kind_of_loss,
        ),
        requirement(
            "adding a number to all logits changes nothing",
            lambda sampler: loss_inputs(sampler, [2, 3], 0.1) | {"added": sampler.integer(2, 5)},
            lambda inputs, received: math.isclose(*received, abs_tol=1e-6),
            "the loss changes when the same number is added to all logits",
            loss_of_raised_logits,
        ),
    ],
)

# --- warmup_rate -----------------------------------------------------------------------------------------------------

RandomInteger = Callable[[int, int], int]  # a sampler's method `integer`


def rate_probe(name: str, numbers: Callable[[RandomInteger], tuple[int, int, int]]) -> Probe:
    def inputs(sampler: InputSampler) -> dict:
        return dict(zip(("step", "d_model", "warmup_steps"), numbers(sampler.integer), strict=True))

    return Probe(name, inputs, tolerance=1e-10)  # rates are so small that with 1e-5, a rate of zero would be accepted


def rates_of_steps(subject, steps, d_model, warmup_steps):
    return [float(subject(step, d_model, warmup_steps)) for step in steps]


def peak_is_at_the_end_of_warmup(inputs, rates):
    peak = inputs["steps"].index(inputs["warmup_steps"])
    if any(one >= other for one, other in pairwise(rates[: peak + 1])):
        return "the learning rate doesn't rise at every step of the warm-up"
    if any(one <= other for one, other in pairwise(rates[peak:])):
        return "the learning rate doesn't fall at every step after the warm-up"
    return None


def four_times_as_late(sampler: InputSampler) -> dict:
    warmup_steps = 4 * sampler.integer(3, 9)
    return {"steps": [warmup_steps, 4 * warmup_steps, 16 * warmup_steps], "d_model": 8, "warmup_steps": warmup_steps}


def four_times_as_late_is_half(inputs, rates):
    first, second, third = rates
    if first > 0 and math.isclose(first, 2 * second, rel_tol=1e-6) and math.isclose(second, 2 * third, rel_tol=1e-6):
        return None
    return "after the warm-up, quadrupling the step doesn't halve the learning rate"


WARMUP_RATE = Exercise(
    answer=warmup_rate,
    points=1,
    minutes=10,
    returns=("rate",),
    probes=[
        # The ranges leave out the paper's 4000 warm-up steps and width of 512. In each probe, the same term is the
        # smaller one for every seed, even if one of the exponents is wrong.
        rate_probe("early in the warm-up", lambda draw: (draw(2, 7), 4 * draw(4, 16), draw(30, 60))),
        rate_probe(
            "shortly before the warm-up ends", lambda draw: ((peak := draw(20, 60)) - draw(1, 4), 4 * draw(4, 16), peak)
        ),
        rate_probe("after the warm-up", lambda draw: ((peak := draw(20, 60)) + draw(10, 30), 4 * draw(4, 16), peak)),
        # so late that in a wrong `min`, the other term would be the smaller one
        rate_probe("long after a short warm-up", lambda draw: (draw(30, 90), 4 * draw(4, 16), draw(2, 3))),
        rate_probe("at the peak", lambda draw: (peak := 100 * draw(5, 39), 32 * draw(17, 32), peak)),
        rate_probe("step 0 counts as step 1", lambda draw: (0, 4 * draw(4, 16), draw(10, 60))),
        rate_probe("a wider model", lambda draw: (draw(2, 3), 2 * draw(100, 250), draw(10, 20))),
        rate_probe("step 1 of a warm-up of one step", lambda draw: (1, draw(10, 500), 1)),
    ],
    properties=[
        Property(
            "the learning rate rises until the warm-up ends and falls from then on",
            lambda sampler: {"steps": list(range(1, 30)), "d_model": 16, "warmup_steps": sampler.integer(5, 9)},
            peak_is_at_the_end_of_warmup,
            rates_of_steps,
        ),
        Property(
            "after the warm-up, quadrupling the step halves the learning rate",
            four_times_as_late,
            four_times_as_late_is_half,
            rates_of_steps,
        ),
    ],
)

# --- train_step ------------------------------------------------------------------------------------------------------


def step_inputs(sampler: InputSampler, *batches: list[int], pad_id: int = 0, **others) -> dict:
    """Return batches of targets with the given lengths, and two tables of logits that are the model's weights.

    There are up to three batches, each with sources of a different length.
    """
    vocab = 7
    source_lengths = sampler.order(3)
    return {
        "sources": [
            sampler.integers(len(lengths), source_lengths[number] + 2, low=3, high=vocab - 1)
            for number, lengths in enumerate(batches)
        ],
        "targets": [padded_targets(sampler, lengths, vocab, pad_id) for lengths in batches],
        "weights": {"read the source": sampler.numbers(vocab, vocab), "read the target": sampler.numbers(vocab, vocab)},
        "pad_id": pad_id,
        "optimizer": "SGD",
        "learning_rate": 1.0,
        "smoothing": 0.0,
        "clip_norm": 100.0,
    } | others


def surely_wrong(inputs: dict) -> dict:
    """Make the model confident in the wrong token, so that the gradient norm is larger than 1."""
    source_table, target_table = inputs["weights"].values()
    target = inputs["targets"][0][0]
    source_table *= 0.25
    for read, asked in pairwise(target):
        target_table[read] = -4
        target_table[read, (asked + 1) % len(target_table)] = 4
    return inputs


def learn(subject, sources, targets, weights, pad_id, optimizer, learning_rate, smoothing, clip_norm):
    """Take one step for each batch, with a model whose logits depend on the previous token and the source's mean."""
    model = two_tables(weights, pad_id)
    optimizer = getattr(torch.optim, optimizer)(model.parameters(), lr=learning_rate)
    settings = [setting for setting in (smoothing, clip_norm) if setting is not None]
    return {
        "loss": [subject(model, batch, optimizer, *settings) for batch in batches_of(sources, targets, pad_id)],
        "weights that read the target": model.target_table,
        "weights that read the source": model.source_table,
    }


def watch_learning(
    subject, sources, targets, weights, pad_id, optimizer, learning_rate, smoothing, clip_norm, mode_before="training"
):
    """Record the effects of a step other than the loss. Before it, the weights that read the target have gradients."""
    model = two_tables(weights, pad_id).train(mode_before == "training")
    model.target_table.square().sum().backward()
    optimizer = getattr(torch.optim, optimizer)(model.parameters(), lr=learning_rate)
    loss = subject(model, batches_of(sources, targets, pad_id)[0], optimizer, smoothing, clip_norm)
    return {
        "modes while learning": ["training" if training else "evaluation" for training, _ in model.calls],
        "mode afterwards": "training" if model.training else "evaluation",
        "kind of loss": type(loss).__name__,
        "learning rate": optimizer.param_groups[0]["lr"],
        "weights that read the target": model.target_table,
    }


def learns_in_training_mode(inputs, received):
    modes = received["modes while learning"]
    if not modes:
        return "the model is never called"
    if "evaluation" in modes:
        return "the model is in evaluation mode while it learns, so there's no dropout: call `model.train()` first"
    if received["mode afterwards"] == "evaluation":
        return Remark(
            "A model that was in evaluation mode is still in evaluation mode after the step. `train_step` should leave "
            "the model in training mode, whichever mode it was in before."
        )
    return None


def returns_a_float(inputs, received):
    kind = received["kind of loss"]
    return None if kind == "float" else f"expected a `float`, which `loss.item()` returns; got a `{kind}`"


def leftover_gradients_make_no_difference(inputs, received):
    before, after = inputs["weights"]["read the target"], received["weights that read the target"]
    if torch.equal(before, after):
        return "the weights don't change, so there is nothing to compare"
    unread = [token for token in range(len(before)) if token not in inputs["targets"][0][:, :-1]]
    if torch.allclose(before[unread], after[unread], atol=1e-8):
        return None  # in this step, these have no gradient
    return Remark(
        "Gradients left over from before your first step are added to that step's gradients. Call `zero_grad` right "
        "before `backward`, and it won't matter what happened earlier."
    )


TRAIN_STEP = Exercise(
    answer=train_step,
    points=3,
    minutes=20,
    returns=("loss",),
    axes={"weights that read the target": "read next", "weights that read the source": "read next"},
    builds_on=("shift_target", "label_smoothing_loss"),
    call=learn,
    probes=[
        Probe("one sentence", lambda sampler: step_inputs(sampler, [sampler.integer(4, 6)])),
        Probe("smoothed labels", lambda sampler: step_inputs(sampler, [5], smoothing=sampler.integer(2, 4) / 10)),
        Probe(
            "sentences of different lengths, and padding that isn't 0",
            lambda sampler: step_inputs(sampler, sampler.shuffled([3, 6, 4]), pad_id=sampler.integer(3, 6)),
        ),
        Probe(
            "a gradient longer than `clip_norm`",
            lambda sampler: surely_wrong(step_inputs(sampler, [3], clip_norm=0.05)),
        ),
        Probe("a gradient shorter than `clip_norm`", lambda sampler: surely_wrong(step_inputs(sampler, [3]))),
        Probe(
            "default smoothing of 0.1 and `clip_norm` of 1.0",
            lambda sampler: surely_wrong(step_inputs(sampler, [3], smoothing=None, clip_norm=None)),
        ),
        Probe("three steps", lambda sampler: step_inputs(sampler, [4], [3, 5], [4, 3])),
        Probe(
            "two steps of Adam", lambda sampler: step_inputs(sampler, [4], [3, 5], optimizer="Adam", learning_rate=0.1)
        ),
    ],
    properties=[
        Property(
            "the model learns in training mode",
            lambda sampler: step_inputs(sampler, [4], mode_before="evaluation"),
            learns_in_training_mode,
            watch_learning,
        ),
        requirement(
            "a model in training mode stays in it",
            lambda sampler: step_inputs(sampler, [5], mode_before="training"),
            lambda inputs, received: received["mode afterwards"] == "training",
            "the model was in training mode before the step and is in evaluation mode after it",
            watch_learning,
        ),
        Property(
            "the loss is a plain number",
            lambda sampler: step_inputs(sampler, [4], mode_before="training"),
            returns_a_float,
            watch_learning,
        ),
        requirement(
            "the learning rate stays what the caller set",
            lambda sampler: step_inputs(sampler, [3], learning_rate=sampler.integer(2, 9) / 4, mode_before="training"),
            lambda inputs, received: received["learning rate"] == inputs["learning_rate"],
            "the optimizer's learning rate has changed",
            watch_learning,
        ),
        Property(
            "gradients left over from before the first step",
            lambda sampler: step_inputs(sampler, [4]),
            leftover_gradients_make_no_difference,
            watch_learning,
        ),
    ],
)

# --- evaluate --------------------------------------------------------------------------------------------------------


def evaluation_inputs(sampler: InputSampler, *batches: list[int], pad_id: int = 0, **others) -> dict:
    inputs = step_inputs(sampler, *batches, pad_id=pad_id)
    inputs = {name: inputs[name] for name in ("sources", "targets", "weights", "pad_id")} | others
    source_table, target_table = inputs["weights"].values()
    source_table *= 0.25
    for number, target in enumerate(inputs["targets"]):  # the first batch is easy, and the last one is hard
        for read, asked in pairwise(target[0]):
            target_table[read, asked] += 1 if number == 0 else -2
    return inputs


def measure(subject, sources, targets, weights, pad_id, batches_are="a list"):
    """Evaluate a model that starts in training mode, in which its logits differ, as they would with dropout."""
    model = two_tables(weights, pad_id)
    in_evaluation = model.forward

    def forward(source, target):
        logits = in_evaluation(source, target)
        return logits * torch.linspace(0, 2, logits.size(-1)) if model.training else logits

    model.forward = forward
    batches = batches_of(sources, targets, pad_id)
    return subject(model, iter(batches) if batches_are == "an iterator" else batches)


def watch_evaluation(subject, sources, targets, weights, pad_id, modes_before):
    """Record the model's mode during and after evaluation, and whether gradients are on."""
    model, batches, modes = two_tables(weights, pad_id), batches_of(sources, targets, pad_id), []
    for mode in modes_before:
        subject(model.train(mode == "training"), batches)
        modes.append("training" if model.training else "evaluation")
    training, recording = map(list, zip(*model.calls, strict=True)) if model.calls else ([], [])
    return {"training": training, "recording": recording, "modes afterwards": modes}


def evaluate_nothing(subject, sources, targets, weights, pad_id):
    """Make sure that evaluating batches does not raise an exception. Then make a call without any batches."""
    model = two_tables(weights, pad_id)
    subject(model, batches_of(sources, targets, pad_id))
    return outcome(subject, model, [])


def never(record: str, says: str) -> Rule:
    """Return a rule that reports `says` if any entry in `record` is true. The record describes the model's calls."""

    def rule(inputs, received):
        if not received[record]:
            return "the model is never called"
        return says if any(received[record]) else None

    return rule


def restores_the_mode(inputs, received):
    after_training, after_evaluation = received["modes afterwards"]
    if after_training == "evaluation":
        return "a model that was in training mode is left in evaluation mode, so training would go on without dropout"
    if after_evaluation == "training":
        return "a model that was in evaluation mode is left in training mode, so it would translate with dropout"
    return None


def nothing_is_refused(inputs, received):
    if received["raised"] == "ValueError":
        return None
    if received["raised"] != "nothing":
        return Remark(
            f"Without any batches, your code raises `{received['raised']}`. Raise a `ValueError` instead, and say "
            "in its message that there is nothing to evaluate."
        )
    results = received["returned"] if isinstance(received["returned"], list | tuple) else [received["returned"]]
    if any(isinstance(number, float | Tensor) and bool(number != number) for number in results):
        return Remark(
            "Without any batches, your code returns NaN. Raise a `ValueError` that says there's nothing to evaluate."
        )
    return "without any batches, expected a `ValueError`; a loss was returned as if it had been measured"


EVALUATE = Exercise(
    answer=evaluate,
    points=2,
    minutes=15,
    returns=("loss", "perplexity"),
    builds_on=("shift_target", "label_smoothing_loss"),
    call=measure,
    probes=[
        Probe("one sentence", lambda sampler: evaluation_inputs(sampler, [sampler.integer(3, 5)])),
        Probe("two batches of different sizes", lambda sampler: evaluation_inputs(sampler, [3], [7, 6, 4])),
        Probe(
            "two batches with the same number of sentences", lambda sampler: evaluation_inputs(sampler, [3, 3], [7, 4])
        ),
        Probe(
            "padding that isn't 0",
            lambda sampler: evaluation_inputs(sampler, [3, 6], [4], pad_id=sampler.integer(3, 6)),
        ),
        Probe(
            "batches from an iterator, which can be read only once",
            lambda sampler: evaluation_inputs(sampler, [5], [3, 6], batches_are="an iterator"),
        ),
    ],
    properties=[
        Property(
            "the model predicts in evaluation mode",
            lambda sampler: evaluation_inputs(sampler, [3], modes_before=["training"]),
            never("training", "the model predicts in training mode, with dropout"),
            watch_evaluation,
        ),
        Property(
            "no gradients are recorded",
            lambda sampler: evaluation_inputs(sampler, [4], modes_before=["training"]),
            never("recording", "gradients are recorded, which costs memory and time"),
            watch_evaluation,
        ),
        Property(
            "the model is left in the mode it was in",
            lambda sampler: evaluation_inputs(sampler, [4], modes_before=["training", "evaluation"]),
            restores_the_mode,
            watch_evaluation,
        ),
        Property(
            "a call without any batches",
            lambda sampler: evaluation_inputs(sampler, [3]),
            nothing_is_refused,
            evaluate_nothing,
        ),
    ],
)

EXERCISES = [SHIFT_TARGET, LABEL_SMOOTHING_LOSS, WARMUP_RATE, TRAIN_STEP, EVALUATE]
