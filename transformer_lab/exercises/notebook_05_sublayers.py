"""Notebook 05, what surrounds attention: layer normalisation, feed-forward and residual connections."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lab.exercises.draw import Draw
from transformer_lab.exercises.exercise import Exercise, Misconception, Probe, Property
from transformer_lab.exercises.recipes import build, gradients
from transformer_lab.model import FeedForward, LayerNorm, ResidualConnection


def uneven(draw: Draw, *shape: int) -> Tensor:
    """Numbers of which no two along the last axis are equal, so that they have a deviation."""
    rows = [draw.order(shape[-1]) for _ in range(math.prod(shape[:-1]))]
    return torch.tensor(rows).view(shape) + draw.numbers(*shape, low=-0.4, high=0.4)


def positions_apart(subject, arguments, weights, x):
    module = build(subject, arguments, weights)
    together = module(x.clone())
    alone = torch.stack([torch.stack([module(p[None, None].clone())[0, 0] for p in sentence]) for sentence in x])
    return {"positions together": together, "each alone": alone}


def positions_do_not_matter_to_each_other(inputs, received):
    if not torch.allclose(received["positions together"], received["each alone"], atol=1e-8):
        return "a position gives something else among others than alone"
    return None


def names_and_shapes(subject, arguments):
    return {name: list(parameter.shape) for name, parameter in subject(*arguments.values()).named_parameters()}


def parameters_are(expected: dict[str, list[int]], received: dict[str, list[int]]) -> str | None:
    if received == expected:
        return None
    for name in expected:
        if name not in received:
            return f"there is no parameter `{name}`"
        if received[name] != expected[name]:
            return f"the parameter `{name}` has shape {tuple(received[name])}, expected {tuple(expected[name])}"
    extra = next(name for name in received if name not in expected)
    return f"there is a parameter `{extra}`, which does not belong to it"


# --- LayerNorm -------------------------------------------------------------------------------------------------------


def norm_inputs(draw: Draw, *shape: int, spread: float = 1.0, **arguments) -> dict:
    gain, bias = draw.numbers(shape[-1], low=0.5, high=1.5), draw.numbers(shape[-1], low=-0.5, high=0.5)
    gain[0], bias[0] = 2, 0.7
    return {
        "arguments": {"d_model": shape[-1]} | arguments,
        "weights": {"gain": gain, "bias": bias},
        "x": uneven(draw, *shape) * spread,
    }


def constant_position_inputs(draw: Draw) -> dict:
    inputs = norm_inputs(draw, 1, 2, 4)
    inputs["x"][0, draw.integer(0, 1)] = draw.integer(1, 5)
    return inputs


def norm_gradients(subject, arguments, weights, x):
    module = build(subject, arguments, weights)
    return gradients(module(x.requires_grad_()), {"x": x, "gain": module.gain, "bias": module.bias})


def new_norm(subject, arguments, x):
    return subject(*arguments.values())(x)


def mean_0_and_variance_1(inputs, output):
    if not output.mean(-1).abs().max() < 1e-6:
        return "a new LayerNorm, with gain 1 and bias 0, does not give every position the mean 0"
    if not (output.var(-1, unbiased=False) - 1).abs().max() < 1e-3:
        return "a new LayerNorm, with gain 1 and bias 0, does not give every position the variance 1"
    return None


def norm_of_stretched(subject, arguments, weights, x, shift, factor):
    module = build(subject, arguments, weights)
    return {"output": module(x.clone()), "output of the stretched": module(x * factor + shift)}


def stretching_changes_nothing(inputs, received):
    if not torch.allclose(received["output"], received["output of the stretched"], atol=1e-3):
        return "the same numbers, all times a factor plus a shift, give another result"
    return None


def gain_and_bias(inputs, received):
    d_model = inputs["arguments"]["d_model"]
    return parameters_are({"gain": [d_model], "bias": [d_model]}, received)


def norm_by(normalise):
    """A LayerNorm whose forward pass is `normalise(x, gain, bias, eps)`."""

    class Norm(LayerNorm):
        def forward(self, x):
            return normalise(x, self.gain, self.bias, self.eps)

    return Norm


def centred(x: Tensor) -> Tensor:
    return x - x.mean(-1, keepdim=True)


def variance_of(x: Tensor) -> Tensor:
    return x.var(-1, keepdim=True, unbiased=False)


def normalised_over(*axes: int):
    def normalise(x, gain, bias, eps):
        mean = x.mean(axes, keepdim=True)
        return gain * (x - mean) / torch.sqrt((x - mean).square().mean(axes, keepdim=True) + eps) + bias

    return normalise


def normalised_by_constants(x, gain, bias, eps):
    with torch.no_grad():
        mean, variance = x.mean(-1, keepdim=True), variance_of(x)
    return gain * (x - mean) / torch.sqrt(variance + eps) + bias


def normalised_in_place(x, gain, bias, eps):
    variance = variance_of(x)
    x -= x.mean(-1, keepdim=True)
    return gain * x / torch.sqrt(variance + eps) + bias


class NormWithOneGain(LayerNorm):
    def __init__(self, d_model, eps=1e-5):
        super().__init__(d_model, eps)
        self.gain, self.bias = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))


class NormWithoutParameters(LayerNorm):
    def __init__(self, d_model, eps=1e-5):
        nn.Module.__init__(self)
        self.gain, self.bias, self.eps = torch.ones(d_model), torch.zeros(d_model), eps


class NormStartingAtZero(LayerNorm):
    def __init__(self, d_model, eps=1e-5):
        super().__init__(d_model, eps)
        self.gain = nn.Parameter(torch.zeros(d_model))


class NormWithFixedEps(LayerNorm):
    def __init__(self, d_model, eps=1e-5):
        super().__init__(d_model)


class NormByOneMoreThanTheGain(LayerNorm):
    def __init__(self, d_model, eps=1e-5):
        super().__init__(d_model, eps)
        self.gain = nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        return super().forward(x) + (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance_of(x) + self.eps)


LAYER_NORM = Exercise(
    answer=LayerNorm,
    blank=("__init__", "forward"),
    points=2,
    minutes=15,
    axes={
        "x": "batch length d_model",
        "output": "batch length d_model",
        "gradient of x": "batch length d_model",
        "gradient of gain": "d_model",
        "gradient of bias": "d_model",
    },
    banned=(
        "torch.nn.LayerNorm",
        "torch.nn.functional.layer_norm",
        "torch.layer_norm",
        "torch.native_layer_norm",
    ),
    probes=[
        Probe("two positions", lambda draw: norm_inputs(draw, 1, 2, 3)),
        Probe("a batch of two", lambda draw: norm_inputs(draw, 2, 3, 4)),
        Probe("a position whose features are all equal", constant_position_inputs),
        Probe("a great eps", lambda draw: norm_inputs(draw, 1, 2, 5, eps=draw.integer(5, 20) / 10)),
        Probe("features that hardly differ", lambda draw: norm_inputs(draw, 1, 2, 4, spread=1 / 512)),
        Probe("an axis of heads in front", lambda draw: norm_inputs(draw, 2, 3, 4, 5)),
        Probe("gradients reach x, gain and bias", lambda draw: norm_inputs(draw, 1, 2, 4), norm_gradients),
    ],
    properties=[
        Property(
            "a new LayerNorm gives every position mean 0 and variance 1",
            lambda draw: {"arguments": {"d_model": 5}, "x": uneven(draw, 2, 3, 5)},
            mean_0_and_variance_1,
            new_norm,
        ),
        Property(
            "its parameters are gain and bias, one number for each feature",
            lambda draw: {"arguments": {"d_model": draw.integer(3, 6)}},
            gain_and_bias,
            names_and_shapes,
        ),
        Property(
            "a shift or a factor of all features changes nothing",
            lambda draw: norm_inputs(draw, 1, 2, 4) | {"shift": draw.integer(2, 5), "factor": draw.integer(2, 4)},
            stretching_changes_nothing,
            norm_of_stretched,
        ),
        Property(
            "each position is normalised by itself",
            lambda draw: norm_inputs(draw, 2, 3, 4),
            positions_do_not_matter_to_each_other,
            positions_apart,
        ),
    ],
    misconceptions=[
        Misconception(
            "unbiased",
            norm_by(lambda x, g, b, eps: g * centred(x) / torch.sqrt(x.var(-1, keepdim=True) + eps) + b),
            "The variance is divided by d_model - 1: torch's `var` and `std` estimate that of a larger population "
            "unless told otherwise. Here the d_model features are all there is (Ba et al. 2016, equation 3): "
            "`unbiased=False`. Weights of other programs do not fit this one's otherwise.",
        ),
        Misconception(
            "eps_outside",
            norm_by(lambda x, g, b, eps: g * centred(x) / (variance_of(x).sqrt() + eps) + b),
            "`eps` is added to the deviation, outside the root. Here it stands inside, beside the variance, as in "
            "torch's own layer: a variance of 0 then gives no root of 0, whose gradient is infinite.",
        ),
        Misconception(
            "unbiased_and_eps_outside",
            norm_by(lambda x, g, b, eps: g * centred(x) / (x.std(-1, keepdim=True) + eps) + b),
            "Two things differ, as in a well-known listing: `std` divides by d_model - 1, and `eps` is added outside "
            "the root. Ba et al. (2016) divide by d_model, and eps belongs beside the variance: "
            "`torch.sqrt(variance + eps)` with `unbiased=False`.",
        ),
        Misconception(
            "no_root",
            norm_by(lambda x, g, b, eps: g * centred(x) / (variance_of(x) + eps) + b),
            "The features are divided by their variance, not by its root. Only the deviation has the unit of the "
            "features: divided by it, the result has variance 1, whatever the input was.",
        ),
        Misconception(
            "no_eps",
            norm_by(lambda x, g, b, eps: g * centred(x) / torch.sqrt(variance_of(x)) + b),
            "`eps` is not used. Where all features of a position are equal the variance is 0, and 0 divided by 0 is "
            "NaN: `torch.sqrt(variance + self.eps)`.",
        ),
        Misconception(
            "fixed_eps",
            NormWithFixedEps,
            "`eps` is always 1e-5, whatever was given. Keep the argument: `self.eps = eps`.",
        ),
        Misconception(
            "mean_kept",
            norm_by(lambda x, g, b, eps: g * x / torch.sqrt(variance_of(x) + eps) + b),
            "The mean is not subtracted. Layer normalisation takes each position to mean 0 first (Ba et al. 2016); the "
            "norm without it, RMSNorm, is another one and came later.",
        ),
        Misconception(
            "one_gain",
            NormWithOneGain,
            "Gain and bias are single numbers. Each feature has its own: `torch.ones(d_model)` and "
            "`torch.zeros(d_model)`, so that a feature can be made louder than its neighbours again.",
        ),
        Misconception(
            "not_parameters",
            NormWithoutParameters,
            "Gain and bias are plain tensors, so no optimizer finds them and they stay what they were: wrap each in "
            "`nn.Parameter`.",
        ),
        Misconception(
            "gain_starts_at_zero",
            NormStartingAtZero,
            "The gain starts at 0, so a new layer gives nothing but its bias, whatever comes in, and nothing before it "
            "learns. It starts at 1: `torch.ones(d_model)`.",
        ),
        Misconception(
            "gain_and_bias_swapped",
            norm_by(lambda x, g, b, eps: b * centred(x) / torch.sqrt(variance_of(x) + eps) + g),
            "Gain and bias have changed places: the gain multiplies, the bias is added.",
        ),
        Misconception(
            "gain_times_bias",
            norm_by(lambda x, g, b, eps: g * (centred(x) / torch.sqrt(variance_of(x) + eps) + b)),
            "The gain multiplies the bias as well. First multiply by the gain, then add the bias as it is.",
        ),
        Misconception(
            "no_gain",
            norm_by(lambda x, g, b, eps: centred(x) / torch.sqrt(variance_of(x) + eps)),
            "The normalised features are returned without gain and bias. They let the model choose another scale where "
            "one serves it better: multiply by `self.gain`, then add `self.bias`.",
        ),
        Misconception(
            "over_the_batch",
            norm_by(normalised_over(0)),
            "Mean and variance are taken along the batch, feature by feature: that is batch normalisation. A sentence "
            "would then depend on those that happen to be beside it. Take them along the last axis.",
        ),
        Misconception(
            "along_the_sentence",
            norm_by(normalised_over(1)),
            "Mean and variance are taken along axis 1: with x `(batch, length, d_model)` that is each feature over the "
            "words of the sentence. Here each position has its own, over its features: `dim=-1`.",
        ),
        Misconception(
            "over_everything",
            norm_by(lambda x, g, b, eps: g * (x - x.mean()) / torch.sqrt(x.var(unbiased=False) + eps) + b),
            "There is one mean and one variance for all numbers of the batch. Each position has its own, over its "
            "d_model features: `x.mean(dim=-1, keepdim=True)`, and the variance likewise.",
        ),
        Misconception(
            "over_the_sentence",
            norm_by(normalised_over(-2, -1)),
            "Mean and variance are taken over all positions of a sentence together. A word would then depend on later "
            "ones and on padding. Each position is normalised by itself, along the last axis.",
        ),
        Misconception(
            "no_keepdim",
            norm_by(
                lambda x, g, b, eps: g * (x - x.mean(-1)) / torch.sqrt(x.var(-1, unbiased=False) + eps) + b,
            ),
            "Mean and variance have lost their last axis, so torch cannot line them up with x, or lines them up with "
            "the wrong axis. `keepdim=True` keeps an axis of size 1, which stretches along the features.",
        ),
        Misconception(
            "statistics_without_gradient",
            norm_by(normalised_by_constants),
            "Mean and variance are treated as constants: with `torch.no_grad()`, `.detach()` or `.item()` no gradient "
            "flows through them. They depend on x, and that part of the gradient is what keeps its size in check.",
        ),
        Misconception(
            "changes_x",
            norm_by(normalised_in_place),
            "The result is right, but `x -= …` writes into the caller's tensor, which the residual connection still "
            "needs. `x - …` makes a new one.",
        ),
        Misconception(
            "one_more_than_the_gain",
            NormByOneMoreThanTheGain,
            "The factor is 1 + gain, with a gain that starts at 0, as in some later models. A new layer does the same "
            "that way, but weights that were trained elsewhere do not fit: the gain itself is the factor, and starts "
            "at 1.",
        ),
    ],
    hints=[
        "Each position has d_model features. Take their mean and their variance along the last axis, and keep that "
        "axis, so that they line up with x again.",
        "`x.var(dim=-1, keepdim=True, unbiased=False)` is the variance; `eps` is added to it before the root. What has "
        "to start at 1, and what at 0, so that a new layer only normalises?",
        "`self.gain = nn.Parameter(torch.ones(d_model))`, the bias likewise with zeros, and then "
        "`return self.gain * (x - mean) / torch.sqrt(variance + self.eps) + self.bias`.",
    ],
)

# --- FeedForward -----------------------------------------------------------------------------------------------------


def feed_forward_inputs(draw: Draw, batch: int, length: int, d_model: int, d_ff: int, dropout: float = 0.0) -> dict:
    """Whatever x is, the first hidden feature is positive and the second negative."""
    weights = draw.weights(FeedForward(d_model, d_ff))
    weights["w_1.bias"][0] = 6
    weights["w_2.weight"][:, 0] = draw.numbers(d_model, low=0.3, high=0.5)
    if d_ff > 1:
        weights["w_1.bias"][1] = -6
        weights["w_2.weight"][:, 1] = draw.numbers(d_model, low=0.3, high=0.5)
    weights["w_2.bias"] = draw.numbers(d_model, low=-4, high=-3)
    weights["w_2.bias"][0] = 4
    return {
        "arguments": {"d_model": d_model, "d_ff": d_ff, "dropout": dropout},
        "weights": weights,
        "x": draw.numbers(batch, length, d_model),
    }


def module_gradients(subject, arguments, weights, x):
    module = build(subject, arguments, weights)
    return gradients(module(x.requires_grad_()), {"x": x} | dict(module.named_parameters()))


def module_dropout(subject, arguments, weights, x):
    module = build(subject, arguments, weights).train()
    drawn = module(x.repeat(300, 1, 1))  # 300 draws in one call
    evaluated = module.eval()(x.repeat(300, 1, 1))
    return {
        "greatest result of 300 in training": drawn.max(dim=0).values,
        "least result of 300 in training": drawn.min(dim=0).values,
        "greatest result in evaluation": evaluated.max(dim=0).values,
        "least result in evaluation": evaluated.min(dim=0).values,
    }


def two_linear_layers(inputs, received):
    d_model, d_ff = inputs["arguments"]["d_model"], inputs["arguments"]["d_ff"]
    expected = {
        "w_1.weight": [d_ff, d_model],
        "w_1.bias": [d_ff],
        "w_2.weight": [d_model, d_ff],
        "w_2.bias": [d_model],
    }
    return parameters_are(expected, received)


class FeedForwardLinear(FeedForward):
    def forward(self, x):
        return self.w_2(self.dropout(self.w_1(x)))


class FeedForwardSmooth(FeedForward):
    def forward(self, x):
        return self.w_2(self.dropout(F.gelu(self.w_1(x))))


class FeedForwardCutAtTheEnd(FeedForward):
    def forward(self, x):
        return super().forward(x).relu()


class FeedForwardCutOnlyAtTheEnd(FeedForward):
    def forward(self, x):
        return self.w_2(self.dropout(self.w_1(x))).relu()


class FeedForwardCutBefore(FeedForward):
    def forward(self, x):
        return self.w_2(self.dropout(self.w_1(x.relu())))


class FeedForwardWithResidual(FeedForward):
    def forward(self, x):
        return x + super().forward(x)


class FeedForwardSizesSwapped(FeedForward):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_ff, d_model, dropout)


class FeedForwardWithoutBias(FeedForward):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, d_ff, dropout)
        self.w_1, self.w_2 = nn.Linear(d_model, d_ff, bias=False), nn.Linear(d_ff, d_model, bias=False)


class FeedForwardWithoutDropout(FeedForward):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, d_ff)


class FeedForwardDroppedAtTheEnd(FeedForward):
    def forward(self, x):
        return self.dropout(self.w_2(self.w_1(x).relu()))


class FeedForwardDroppedTwice(FeedForward):
    def forward(self, x):
        return self.dropout(super().forward(x))


class FeedForwardDroppedBefore(FeedForward):
    def forward(self, x):
        return self.w_2(self.w_1(self.dropout(x)).relu())


class FeedForwardAlwaysDropped(FeedForward):
    def forward(self, x):
        return self.w_2(F.dropout(self.w_1(x).relu(), self.dropout.p))


class FeedForwardOfTheSentence(FeedForward):
    def forward(self, x):
        return super().forward(x.mean(1, keepdim=True).expand_as(x))


class FeedForwardWithoutGradient(FeedForward):
    def forward(self, x):
        return super().forward(x).detach()


class FeedForwardKeepingTheNegative(FeedForward):
    def forward(self, x):
        return self.w_2(self.dropout(self.w_1(x).clamp(max=0)))


FEED_FORWARD = Exercise(
    answer=FeedForward,
    blank=("__init__", "forward"),
    points=1,
    minutes=10,
    axes={
        "x": "batch length d_model",
        "output": "batch length d_model",
        "gradient of x": "batch length d_model",
        "gradient of w_1.weight": "d_ff d_model",
        "gradient of w_1.bias": "d_ff",
        "gradient of w_2.weight": "d_model d_ff",
        "gradient of w_2.bias": "d_model",
    },
    probes=[
        Probe("two positions", lambda draw: feed_forward_inputs(draw, 1, 2, 3, 4)),
        Probe("a batch of two", lambda draw: feed_forward_inputs(draw, 2, 3, 4, 7)),
        Probe(
            "gradients reach x and all weights",
            lambda draw: feed_forward_inputs(draw, 1, 2, 3, 5),
            module_gradients,
        ),
        Probe(
            "dropout acts on the hidden layer, in training only",
            lambda draw: feed_forward_inputs(draw, 1, 2, 3, 1, dropout=0.25),
            module_dropout,
        ),
    ],
    properties=[
        Property(
            "its parameters are two linear layers with bias",
            lambda draw: {"arguments": {"d_model": 3, "d_ff": draw.integer(4, 7)}},
            two_linear_layers,
            names_and_shapes,
        ),
        Property(
            "it does the same at each position, whatever stands around it",
            lambda draw: feed_forward_inputs(draw, 2, 3, 4, 5),
            positions_do_not_matter_to_each_other,
            positions_apart,
        ),
    ],
    misconceptions=[
        Misconception(
            "no_relu",
            FeedForwardLinear,
            "There is no ReLU between the two layers. Two linear maps in a row are one linear map, so the wide hidden "
            "layer gains nothing: equation 2 has max(0, …) between them.",
        ),
        Misconception(
            "gelu",
            FeedForwardSmooth,
            "GELU stands between the layers, as in BERT and GPT. The Transformer of this paper has ReLU: max(0, …) in "
            "equation 2.",
        ),
        Misconception(
            "relu_at_the_end_too",
            FeedForwardCutAtTheEnd,
            "There is a second ReLU after `w_2`. It would only let positive numbers be added to what comes around the "
            "sublayer; equation 2 ends in W_2 and b_2.",
        ),
        Misconception(
            "relu_at_the_end",
            FeedForwardCutOnlyAtTheEnd,
            "The ReLU stands after `w_2`. In equation 2 it stands between the layers: it cuts the hidden features, and "
            "the result may be negative.",
        ),
        Misconception(
            "relu_before",
            FeedForwardCutBefore,
            "The ReLU is applied to x, before `w_1`. Everything negative in the input is lost that way; in equation 2 "
            "it cuts what `w_1` gives.",
        ),
        Misconception(
            "own_residual",
            FeedForwardWithResidual,
            "x is added to the result. That is the task of the residual connection around it (section 3.1), which you "
            "write next: done here too, x would count twice.",
        ),
        Misconception(
            "sizes_swapped",
            FeedForwardSizesSwapped,
            "The two sizes are swapped: `w_1` goes from d_model to d_ff (512 to 2048 in section 3.3), and `w_2` comes "
            "back.",
        ),
        Misconception(
            "no_bias",
            FeedForwardWithoutBias,
            "The linear layers have no bias. Equation 2 has b_1 and b_2, and `nn.Linear` gives them: leave out "
            "`bias=False`.",
        ),
        Misconception(
            "no_dropout",
            FeedForwardWithoutDropout,
            "There is no dropout. In this course it acts on the hidden layer, after the ReLU: "
            "`self.w_2(self.dropout(…))`.",
        ),
        Misconception(
            "dropout_at_the_end",
            FeedForwardDroppedAtTheEnd,
            "Dropout is applied to the result. The residual connection does that (section 5.4); the dropout in here "
            "acts on the hidden layer, between ReLU and `w_2`.",
        ),
        Misconception(
            "dropout_twice",
            FeedForwardDroppedTwice,
            "Dropout is applied to the hidden layer and once more to the result. The residual connection drops out the "
            "result (section 5.4): here it belongs on the hidden layer only.",
        ),
        Misconception(
            "dropout_before",
            FeedForwardDroppedBefore,
            "Dropout is applied to x. In this course it acts on the hidden layer, between ReLU and `w_2`.",
        ),
        Misconception(
            "dropout_always",
            FeedForwardAlwaysDropped,
            "Dropout acts in evaluation too: `F.dropout` does unless it is told `training=self.training`. A "
            "translation would then change from call to call. `nn.Dropout`, made in `__init__`, knows by itself.",
        ),
        Misconception(
            "positions_mixed",
            FeedForwardOfTheSentence,
            "The positions of a sentence are mixed before they go through the layers. Section 3.3 applies the same "
            "network to each position separately; to look around is the task of attention.",
        ),
        Misconception(
            "no_gradient",
            FeedForwardWithoutGradient,
            "No gradient reaches the weights, so they never learn, whatever the numbers are: `.detach()`, `.data`, "
            "NumPy and `torch.no_grad()` cut a result off from what it was made of.",
        ),
        Misconception(
            "negative_kept",
            FeedForwardKeepingTheNegative,
            "What is kept are the negative numbers. `clamp(max=0)` and `torch.minimum` cut off above; max(0, …) in "
            "equation 2 cuts off below: `relu`, or `clamp(min=0)`.",
        ),
    ],
    hints=[
        "Equation 2 read from the inside out: a linear layer that widens, a ReLU, a linear layer that comes back. "
        "`nn.Linear` works on the last axis and leaves the others alone.",
        "`self.w_1 = nn.Linear(d_model, d_ff)`, and `self.w_2` the other way round. Dropout stands between the ReLU "
        "and `w_2`.",
        "`return self.w_2(self.dropout(torch.relu(self.w_1(x))))`",
    ],
)

# --- ResidualConnection ----------------------------------------------------------------------------------------------


def residual_inputs(draw: Draw, norm_first: bool, batch: int = 1, dropout: float = 0.0) -> dict:
    """The sublayer is linear, so that it can be given as data; its text is for the report."""
    d_model = 3
    matrix = draw.numbers(d_model, d_model, low=-1, high=1)
    matrix += 2 * torch.eye(d_model)[draw.order(d_model)]
    return {
        "arguments": {"d_model": d_model, "dropout": dropout, "norm_first": norm_first},
        "weights": {
            "norm.gain": torch.tensor([0.6, 1.2, 1.7])[draw.order(d_model)],
            "norm.bias": torch.tensor([0.4, -0.3, 0.9])[draw.order(d_model)],
        },
        "x": uneven(draw, batch, 2, d_model),
        "sublayer": "y @ matrix + shift",
        "matrix": matrix,
        "shift": draw.numbers(d_model, low=0.5, high=1.5),
    }


def residual_with_linear_sublayer(subject, arguments, weights, x, sublayer, matrix, shift):
    module = build(subject, arguments, weights)
    given = []

    def linear(y):
        given.append(y.clone())
        return y @ matrix + shift

    output = module(x, linear)
    return {"output": output, "what the sublayer gets": given[0] if given else None}


def residual_calls(subject, arguments, weights, x, sublayer, matrix, shift):
    calls = {}
    for name, norm_first in (("post-norm", False), ("pre-norm", True)):
        module = build(subject, arguments | {"norm_first": norm_first}, weights)
        given = []

        def linear(y, given=given):
            given.append(y)
            return y @ matrix + shift

        module(x.clone(), linear)
        calls[name] = len(given)
    return calls


def called_once(inputs, received):
    for name, calls in received.items():
        if calls != 1:
            return f"in {name} the sublayer is called {calls} times, expected is once"
    return None


def residual_gradients(subject, arguments, weights, x, sublayer, matrix, shift):
    module = build(subject, arguments, weights)
    inputs = {"x": x.requires_grad_(), "matrix": matrix.requires_grad_(), "shift": shift.requires_grad_()}
    output = module(x, lambda y: y @ matrix + shift)
    return gradients(output, inputs | dict(module.named_parameters()))


def residual_dropout(subject, arguments, weights, x, sublayer, matrix, shift):
    module = build(subject, arguments, weights).train()

    def linear(y):
        return y @ matrix + shift

    drawn = module(x.repeat(300, 1, 1), linear)  # 300 draws in one call
    evaluated = module.eval()(x.repeat(300, 1, 1), linear)
    return {
        "greatest result of 300 in training": drawn.max(dim=0).values,
        "least result of 300 in training": drawn.min(dim=0).values,
        "greatest result in evaluation": evaluated.max(dim=0).values,
        "least result in evaluation": evaluated.min(dim=0).values,
    }


def parts_after_a_call(subject, arguments, x):
    module = subject(*arguments.values())
    module(x.clone(), nn.Linear(x.size(-1), x.size(-1)))
    return [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]


def sublayer_is_not_kept(inputs, received):
    return f"it keeps the sublayer as a part of its own, `self.{received[0]}`" if received else None


def norm_of_this_course(inputs, received):
    d_model = inputs["arguments"]["d_model"]
    return parameters_are({"norm.gain": [d_model], "norm.bias": [d_model]}, received)


def residual_by(forward):
    """A residual connection whose forward pass is `forward(module, x, sublayer)`."""

    class Residual(ResidualConnection):
        def forward(self, x, sublayer):
            return forward(self, x, sublayer)

    return Residual


def residual_with_flag(flag):
    """A residual connection that turns the flag `norm_first` into another."""

    class Residual(ResidualConnection):
        def __init__(self, d_model, dropout=0.0, norm_first=False):
            super().__init__(d_model, dropout, flag(norm_first))

    return Residual


def without_shortcut(module, x, sublayer):
    if module.norm_first:
        return module.dropout(sublayer(module.norm(x)))
    return module.norm(module.dropout(sublayer(x)))


def without_norm(module, x, sublayer):
    return x + module.dropout(sublayer(x))


def with_normed_shortcut(module, x, sublayer):
    if module.norm_first:
        x = module.norm(x)
        return x + module.dropout(sublayer(x))
    return module.norm(x + module.dropout(sublayer(x)))


def with_normed_sublayer(module, x, sublayer):
    if module.norm_first:
        return x + module.dropout(sublayer(module.norm(x)))
    return x + module.norm(module.dropout(sublayer(x)))


def with_both_norms(module, x, sublayer):
    if module.norm_first:
        return module.norm(x + module.dropout(sublayer(module.norm(x))))
    return module.norm(x + module.dropout(sublayer(x)))


def with_both_ways(module, x, sublayer):
    before = x + module.dropout(sublayer(module.norm(x)))
    after = module.norm(x + module.dropout(sublayer(x)))
    return before if module.norm_first else after


def with_sum_dropped_out(module, x, sublayer):
    if module.norm_first:
        return module.dropout(x + sublayer(module.norm(x)))
    return module.norm(module.dropout(x + sublayer(x)))


def with_result_dropped_out(module, x, sublayer):
    if module.norm_first:
        return module.dropout(x + sublayer(module.norm(x)))
    return module.dropout(module.norm(x + sublayer(x)))


def with_input_dropped_out(module, x, sublayer):
    if module.norm_first:
        return x + sublayer(module.dropout(module.norm(x)))
    return module.norm(x + sublayer(module.dropout(x)))


def with_dropout_always(module, x, sublayer):
    if module.norm_first:
        return x + F.dropout(sublayer(module.norm(x)), module.dropout.p)
    return module.norm(x + F.dropout(sublayer(x), module.dropout.p))


def with_sum_in_place(module, x, sublayer):
    if module.norm_first:
        x += module.dropout(sublayer(module.norm(x)))
        return x
    x += module.dropout(sublayer(x))
    return module.norm(x)


class ResidualWithoutDropout(ResidualConnection):
    def __init__(self, d_model, dropout=0.0, norm_first=False):
        super().__init__(d_model, 0.0, norm_first)


class ResidualWithLibraryNorm(ResidualConnection):
    def __init__(self, d_model, dropout=0.0, norm_first=False):
        super().__init__(d_model, dropout, norm_first)
        self.norm = nn.LayerNorm(d_model)


def with_sublayer_kept(module, x, sublayer):
    module.sublayer = sublayer
    if module.norm_first:
        return x + module.dropout(module.sublayer(module.norm(x)))
    return module.norm(x + module.dropout(module.sublayer(x)))


RESIDUAL_CONNECTION = Exercise(
    answer=ResidualConnection,
    blank=("__init__", "forward"),
    points=2,
    minutes=15,
    axes={
        "x": "batch length d_model",
        "matrix": "d_model d_model",
        "shift": "d_model",
        "output": "batch length d_model",
        "what the sublayer gets": "batch length d_model",
        "gradient of x": "batch length d_model",
    },
    builds_on=("LayerNorm",),
    probes=[
        Probe(
            "post-norm: the sum is normalised",
            lambda draw: residual_inputs(draw, norm_first=False),
            residual_with_linear_sublayer,
        ),
        Probe(
            "pre-norm: what the sublayer gets is normalised",
            lambda draw: residual_inputs(draw, norm_first=True),
            residual_with_linear_sublayer,
        ),
        Probe(
            "gradients reach x, the sublayer and the norm, post-norm",
            lambda draw: residual_inputs(draw, norm_first=False, batch=2),
            residual_gradients,
        ),
        Probe(
            "gradients reach x, the sublayer and the norm, pre-norm",
            lambda draw: residual_inputs(draw, norm_first=True, batch=2),
            residual_gradients,
        ),
        Probe(
            "dropout acts on what the sublayer gives, post-norm",
            lambda draw: residual_inputs(draw, norm_first=False, dropout=0.5),
            residual_dropout,
        ),
        Probe(
            "dropout acts on what the sublayer gives, pre-norm",
            lambda draw: residual_inputs(draw, norm_first=True, dropout=0.25),
            residual_dropout,
        ),
    ],
    properties=[
        Property(
            "the sublayer is called once",
            lambda draw: residual_inputs(draw, norm_first=bool(draw.integer(0, 1))),
            called_once,
            residual_calls,
        ),
        Property(
            "its parameters are those of one LayerNorm of this course",
            lambda draw: {"arguments": {"d_model": draw.integer(3, 6)}},
            norm_of_this_course,
            names_and_shapes,
        ),
        Property(
            "the sublayer comes with each call and is not kept",
            lambda draw: {"arguments": {"d_model": 3}, "x": draw.numbers(1, 2, 3)},
            sublayer_is_not_kept,
            parts_after_a_call,
            needs=("the sublayer is called once",),
        ),
    ],
    misconceptions=[
        Misconception(
            "always_post_norm",
            residual_with_flag(lambda norm_first: False),
            "`norm_first` is not used: the sum is normalised in any case, as in section 3.1. With `norm_first` only "
            "the sublayer's input is to be normalised, and the sum left as it is (Xiong et al. 2020).",
        ),
        Misconception(
            "always_pre_norm",
            residual_with_flag(lambda norm_first: True),
            "The sublayer's input is normalised in any case. That is the later pre-norm; the paper normalises the sum, "
            "LayerNorm(x + Sublayer(x)) in section 3.1, and so must this unless `norm_first` is True.",
        ),
        Misconception(
            "flag_inverted",
            residual_with_flag(lambda norm_first: not norm_first),
            "Post-norm and pre-norm have changed places. Without `norm_first` the sum is normalised (section 3.1); "
            "with it the sublayer's input is.",
        ),
        Misconception(
            "normed_shortcut",
            residual_by(with_normed_shortcut),
            "With `norm_first` x itself is normalised before the two ways part, so that the shortcut carries the "
            "normalised x as well. The shortcut must carry x as it came: that open way for the gradient is what "
            "pre-norm is for.",
        ),
        Misconception(
            "normed_sublayer",
            residual_by(with_normed_sublayer),
            "Without `norm_first` only the sublayer's output is normalised, and x is added after. Section 3.1 "
            "normalises the sum: LayerNorm(x + Sublayer(x)).",
        ),
        Misconception(
            "both_norms",
            residual_by(with_both_norms),
            "With `norm_first` the sum is normalised too. Pre-norm moves the norm to the sublayer's input; the sum "
            "stays as it is.",
        ),
        Misconception(
            "no_shortcut",
            residual_by(without_shortcut),
            "x is not added. The way around the sublayer is the point of a residual connection (section 3.1): through "
            "it the gradient reaches the lowest layer of a deep stack.",
        ),
        Misconception(
            "no_norm",
            residual_by(without_norm),
            "Nothing is normalised. Section 3.1 normalises the sum, and with `norm_first` it is the sublayer's input; "
            "without either the numbers grow from layer to layer.",
        ),
        Misconception(
            "called_twice",
            residual_by(with_both_ways),
            "The sublayer is called twice, for both orders, and one result is thrown away. That costs double, and each "
            "call draws its own dropout: decide first, then call it once.",
        ),
        Misconception(
            "no_dropout",
            ResidualWithoutDropout,
            "There is no dropout. Section 5.4 applies it to the output of each sublayer, before it is added.",
        ),
        Misconception(
            "dropout_on_sum",
            residual_by(with_sum_dropped_out),
            "Dropout is applied to the sum. Section 5.4 applies it to the sublayer's output, before that is added: on "
            "the sum it cuts the shortcut as well, which should always be open.",
        ),
        Misconception(
            "dropout_on_result",
            residual_by(with_result_dropped_out),
            "Dropout is the last thing that happens, to the finished result. Section 5.4 applies it to the sublayer's "
            "output, before that is added to x and normalised.",
        ),
        Misconception(
            "dropout_on_input",
            residual_by(with_input_dropped_out),
            "Dropout is applied to what goes into the sublayer. Section 5.4 applies it to what comes out, before it is "
            "added.",
        ),
        Misconception(
            "dropout_always",
            residual_by(with_dropout_always),
            "Dropout acts in evaluation too: `F.dropout` does unless it is told `training=self.training`. A "
            "translation would then change from call to call. `nn.Dropout`, made in `__init__`, knows by itself.",
        ),
        Misconception(
            "library_norm",
            ResidualWithLibraryNorm,
            "The norm is `nn.LayerNorm`, whose parameters are called `weight` and `bias`. Use the `LayerNorm` that you "
            "have written, with `gain` and `bias`.",
        ),
        Misconception(
            "changes_x",
            residual_by(with_sum_in_place),
            "The sum is right, but `x += …` writes it into the caller's tensor, and where gradients are wanted torch "
            "refuses. `x + …` makes a new one.",
        ),
        Misconception(
            "sublayer_kept",
            residual_by(with_sublayer_kept),
            "`self.sublayer = …` makes the sublayer a part of this module: its parameters are saved twice, and after "
            "a module no plain function can be put there. It comes with each call: use it and let it go.",
        ),
    ],
    hints=[
        "Two ways lead from x to a sum: through the sublayer, and around it. Only the place of the norm depends on "
        "`norm_first`. `sublayer` is a function: call it.",
        "Section 3.1: LayerNorm(x + Sublayer(x)). With `norm_first` it becomes x + Sublayer(LayerNorm(x)). Where does "
        "dropout stand, according to section 5.4?",
        "`if self.norm_first: return x + self.dropout(sublayer(self.norm(x)))`, and else "
        "`return self.norm(x + self.dropout(sublayer(x)))`.",
    ],
)

EXERCISES = [LAYER_NORM, FEED_FORWARD, RESIDUAL_CONNECTION]
