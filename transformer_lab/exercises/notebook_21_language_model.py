"""Notebook 21, a language model: split text into windows, compute the loss, filter the logits, and sample text."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from transformer_lab.electives.language_model import (
    LanguageModel,
    causal_language_model_loss,
    next_token_pairs,
    sample,
    top_k_filter,
    top_p_filter,
)
from transformer_lab.electives.table_language_model import CountingLanguageModel, TableLanguageModel
from transformer_lab.exercises.exercise import Exercise, Probe, Property, Remark
from transformer_lab.exercises.harnesses import build, gradients, likely_tokens, modes_afterwards, raised
from transformer_lab.exercises.rules import mode_is_restored, remark_unless_refused, requirement
from transformer_lab.exercises.sampling import InputSampler, sampled_until

# --- next_token_pairs -------------------------------------------------------------------------------------------------


def different_tokens(sampler: InputSampler, count: int) -> Tensor:
    """Return tokens that are all different, so that each one identifies its position."""
    return torch.tensor(sampler.order(count)) + 10


def text_inputs(sampler: InputSampler, length: int, windows: int, rest: int = 0) -> dict:
    """Return text that consists of `windows` windows, the last label of the last window, and `rest` more tokens."""
    return {"tokens": different_tokens(sampler, windows * length + 1 + rest), "length": length}


def text_with_a_rest(sampler: InputSampler, windows: int) -> dict:
    length = sampler.integer(3, 5)
    return text_inputs(sampler, length, windows, rest=sampler.integer(1, length - 2))


def exceptions_of_values(subject, given, name, values):
    return {f"{name} = {value}": raised(subject, given, value) for value in values}


NEXT_TOKEN_PAIRS = Exercise(
    answer=next_token_pairs,
    points=1,
    minutes=10,
    returns=("inputs", "labels"),
    axes={"tokens": "n", "inputs": "windows length", "labels": "windows length"},
    probes=[
        Probe("one window and its labels", lambda sampler: text_inputs(sampler, sampler.integer(2, 5), 1)),
        Probe("two windows", lambda sampler: text_inputs(sampler, sampler.integer(2, 4), 2)),
        Probe(
            "a window whose last token has no label is left out",
            lambda sampler: text_inputs(sampler, sampler.integer(3, 4), sampler.integer(3, 4), rest=-1),
        ),
        Probe("leftover tokens are dropped", partial(text_with_a_rest, windows=2)),
        Probe("windows of one token", lambda sampler: text_inputs(sampler, 1, sampler.integer(3, 7))),
        Probe(
            "a longer text in which tokens repeat",
            lambda sampler: (
                (inputs := text_with_a_rest(sampler, sampler.integer(6, 7))) | {"tokens": inputs["tokens"] % 3}
            ),
        ),
    ],
    properties=[
        requirement(
            "each label is the next position's input",
            lambda sampler: text_inputs(sampler, 3, 3, rest=1),
            lambda inputs, received: torch.equal(received[0].flatten()[1:], received[1].flatten()[:-1]),
            "a label isn't the next position's input, which it should be even from one window to the next",
        ),
        Property(
            "a text too short for one window",
            lambda sampler: {"given": different_tokens(sampler, 4), "name": "length", "values": [4, 7]},
            remark_unless_refused(
                "A text that is too short for a single window doesn't raise a `ValueError`. Raise one: with no windows "
                "at all, a training run would do nothing, and you might not notice."
            ),
            exceptions_of_values,
        ),
    ],
)

# --- causal_language_model_loss ---------------------------------------------------------------------------------------


def model_inputs(sampler: InputSampler, batch: int, length: int, vocab: int, n_layers: int = 1) -> dict:
    """Return a `LanguageModel` as data, and text split into windows.

    No token follows itself, so a label never equals the token being read. Token 0 is among the labels, because here
    it is like any other token.
    """
    labels = torch.ones(1)
    while labels.all():
        steps = sampler.integers(batch * length, low=1, high=vocab - 1)
        text = torch.cat([sampler.integers(1, low=0, high=vocab - 1), steps]).cumsum(0) % vocab  # (batch * length + 1)
        inputs, labels = next_token_pairs(text, length)
    arguments = {
        "vocab_size": vocab, "d_model": 4, "n_heads": 2, "n_layers": n_layers, "d_ff": 6, "max_length": length
    }  # fmt: skip
    weights = sampler.weights(LanguageModel(*arguments.values()), scale=1.0)
    return {"arguments": arguments, "weights": weights, "inputs": inputs, "labels": labels}


def loss_of_model(subject, arguments, weights, inputs, labels):
    return subject(build(LanguageModel, arguments, weights), inputs, labels)


def loss_and_gradient(subject, arguments, weights, inputs, labels):
    model = build(LanguageModel, arguments, weights)
    loss = subject(model, inputs, labels)
    return {"loss": loss} | gradients(loss, {"the output layer's bias": model.output.bias})


def losses_of_cheater_and_guesser(subject, inputs, labels, vocab):
    """Return the loss of a model that copies the next token if the mask reveals it, and of one that always guesses."""

    class Cheater(nn.Module):
        def __init__(self, certainty):
            super().__init__()
            self.certainty = certainty

        def forward(self, tokens, mask=None):
            length = tokens.size(1)
            hidden = torch.zeros(length, length, dtype=torch.bool) if mask is None else mask
            hidden = hidden if hidden.dtype == torch.bool else hidden < -1e4
            seen = ~hidden.reshape(-1, length, length)[0].diagonal(1)  # whether position i sees i + 1
            logits = torch.zeros(*tokens.shape, vocab)
            following = nn.functional.one_hot(tokens[:, 1:], vocab)
            logits[:, :-1] = self.certainty * following * seen[:, None]
            return logits

    return {
        "the cheater's loss": subject(Cheater(30.0), inputs, labels),
        "the guesser's loss": subject(Cheater(0.0), inputs, labels),
    }


def modes_around_loss(subject, table, inputs, labels):
    class Watched(TableLanguageModel):
        def forward(self, tokens, mask=None):
            self.mode_inside = self.training
            return super().forward(tokens, mask)

    inside = {}

    def run(model):
        mode = "training" if model.training else "evaluation"
        subject(model, inputs, labels)
        inside[f"{mode}, while it runs"] = model.mode_inside

    return modes_afterwards(Watched(table), run) | inside


def mode_is_left(inputs, received):
    if problem := mode_is_restored(inputs, received):
        return problem
    if received["training, while it runs"] is not True:
        return "a model in training mode is run in evaluation mode, so without dropout"
    if received["evaluation, while it runs"] is not False:
        return "a model in evaluation mode is run in training mode, so with dropout"
    return None


def window_inputs(sampler: InputSampler, batch: int, length: int, vocab: int) -> dict:
    inputs = model_inputs(sampler, batch, length, vocab)
    return {"inputs": inputs["inputs"], "labels": inputs["labels"]}


CAUSAL_LANGUAGE_MODEL_LOSS = Exercise(
    answer=causal_language_model_loss,
    points=3,
    minutes=20,
    returns=("loss",),
    axes={"inputs": "batch length", "labels": "batch length"},
    builds_on=("causal_mask",),
    call=loss_of_model,
    probes=[
        Probe("one window of two tokens", lambda sampler: model_inputs(sampler, 1, 2, 4)),
        Probe("several windows", lambda sampler: model_inputs(sampler, 3, 4, 5)),
        Probe("as many windows as tokens per window", lambda sampler: model_inputs(sampler, 4, 4, 6)),
        Probe("a model with two layers", lambda sampler: model_inputs(sampler, 2, 5, 6, n_layers=2)),
        Probe("the gradient reaches the model", lambda sampler: model_inputs(sampler, 2, 3, 4), loss_and_gradient),
    ],
    properties=[
        requirement(
            "no position sees the token it has to predict",
            lambda sampler: window_inputs(sampler, 2, 4, 7) | {"vocab": 7},
            lambda inputs, losses: not losses["the cheater's loss"] < losses["the guesser's loss"] - 1e-6,
            "a model that copies the next token if it's visible beats guessing, so the mask lets it see that token",
            losses_of_cheater_and_guesser,
        ),
        Property(
            "the model stays in the mode it was in",
            lambda sampler: {"table": sampler.numbers(5, 5)} | window_inputs(sampler, 2, 3, 5),
            mode_is_left,
            modes_around_loss,
        ),
    ],
)

# --- top_k_filter -----------------------------------------------------------------------------------------------------


def distinct_logits(sampler: InputSampler, *shape: int) -> Tensor:
    """Return logits of both signs, all different within a row. The order and the offset differ from row to row.

    No row starts with its likeliest token. The second row's order is the first one's reversed.
    """
    *rows, vocab = shape
    while True:
        orders = torch.tensor([sampler.order(vocab) for _ in range(math.prod(rows))])
        orders[1:2] = vocab - 1 - orders[:1]
        if orders[:, 0].max() < vocab - 1:
            break
    offsets = torch.tensor([1.1 * place + sampler.integer(-30, 30) / 100 for place in sampler.order(len(orders))])
    return (0.7 * orders - 0.35 * vocab + offsets[:, None]).reshape(shape)


def some_of_a_row(sampler: InputSampler, *rows: int) -> dict:
    """Return logits and a `k` that keeps at least three of them, but less than half."""
    vocab = sampler.integer(7, 9)
    return {"logits": distinct_logits(sampler, *rows, vocab), "k": sampler.integer(3, (vocab - 1) // 2)}


def filtered_and_whether_new(subject, logits, **amount):
    try:
        filtered = subject(logits, *amount.values())
    except ValueError:
        return {"refused": True}
    return {"logits": filtered, "is the input": filtered is logits}


def nothing_is_removed(inputs, received):
    """Report tokens that are removed. Logits are not compared, because some solutions change them."""
    if received.get("refused"):
        ((name, value),) = ((name, value) for name, value in inputs.items() if name != "logits")
        return f"{name} = {value:g} raises a `ValueError`, but it's a valid value that keeps every token"
    if received["logits"].isneginf().any():
        return "some tokens are removed, although all of them should stay"
    if received["is the input"]:
        return Remark(
            "It returns the caller's tensor itself when nothing has to be removed. The docstring promises a "
            "new one (`logits.clone()`), which can be changed without changing the caller's."
        )
    return None


def whether_overwritten(subject, logits, **amount):
    own = logits.clone()
    subject(own, *amount.values())
    return not torch.equal(own, logits)


keeps_every_token = partial(Property, rule=nothing_is_removed, call=filtered_and_whether_new)
leaves_logits_alone = partial(
    requirement,
    "the caller's logits aren't overwritten",
    condition=lambda inputs, overwritten: not overwritten,
    says="your function changes the tensor that the caller passed in",
    call=whether_overwritten,
    penalty=0,  # any change to the input costs points anyway
)


def ranks_show(logits: Tensor, k: int) -> bool:
    """Return whether the checks would notice that the order of the tokens was taken for their ranks."""
    order = logits.argsort(dim=-1, descending=True)
    return bool(((order < k) != (order.argsort(dim=-1) < k)).any())


def top_k_probe(name: str, inputs: Callable[[InputSampler], dict]) -> Probe:
    return Probe(name, sampled_until(ranks_show, inputs))


TOP_K_FILTER = Exercise(
    answer=top_k_filter,
    points=1,
    minutes=10,
    axes={"logits": "batch vocab", "output": "batch vocab"},
    probes=[
        top_k_probe("one row of logits", some_of_a_row),
        top_k_probe(
            "the likeliest token alone",
            lambda sampler: {"logits": distinct_logits(sampler, sampler.integer(4, 7)), "k": 1},
        ),
        top_k_probe("several rows", lambda sampler: some_of_a_row(sampler, 3)),
        top_k_probe("more than one axis before the vocabulary", lambda sampler: some_of_a_row(sampler, 2, 3)),
    ],
    properties=[
        keeps_every_token(
            "k equal to the vocabulary size keeps every token",
            lambda sampler: {"logits": distinct_logits(sampler, 4), "k": 4},
        ),
        keeps_every_token(
            "k larger than the vocabulary keeps every token",
            lambda sampler: {"logits": distinct_logits(sampler, 4), "k": 9},
        ),
        leaves_logits_alone(lambda sampler: {"logits": distinct_logits(sampler, 5), "k": 2}),
        Property(
            "a k below 1",
            lambda sampler: {"given": distinct_logits(sampler, 4), "name": "k", "values": [0, -2]},
            remark_unless_refused(
                "Expected a `ValueError` for {}; none was raised. With no token left to choose from, the probabilities "
                "would all be NaN."
            ),
            exceptions_of_values,
        ),
    ],
)

# --- top_p_filter -----------------------------------------------------------------------------------------------------


def distribution(sampler: InputSampler, vocab: int, nucleus: int, p: float) -> list[float]:
    """Return decreasing probabilities. The first `nucleus` of them are just enough to reach `p`.

    The sums just below and above `p` are more than 0.02 away from it, so rounding makes no difference. If
    `nucleus` is above 1, a different number of probabilities are at least `p` times the first.
    """
    fitting = []
    for percent in range(10, 96):
        shares = [(percent / 100) ** place for place in range(vocab)]
        shares = [share / sum(shares) for share in shares]
        near_the_first = sum(share > p * shares[0] - 1e-9 for share in shares)
        reaches_p = sum(shares[: nucleus - 1]) < p - 0.02 and sum(shares[:nucleus]) > p + 0.02
        if reaches_p and (nucleus == 1 or near_the_first != nucleus):
            fitting.append(shares)
    return fitting[sampler.integer(0, len(fitting) - 1)]


def logits_of(sampler: InputSampler, *rows: list[float]) -> Tensor:
    """Return logits for decreasing probabilities, with each row shuffled and lowered by its own constant.

    The first row starts and ends with its two unlikeliest tokens. The other rows start with their likeliest token.
    """
    (*likely, last, first), *others = rows
    shuffled = [[first, *sampler.shuffled(likely), last], *([row[0], *sampler.shuffled(row[1:])] for row in others)]
    shifts = torch.tensor([[sampler.integer(-30, -5) / 10] for _ in rows], dtype=torch.float64)
    logits = torch.tensor(shuffled, dtype=torch.float64).log() + shifts
    return logits[0] if len(rows) == 1 else logits


def nuclei(sampler: InputSampler, vocab: int, *sizes: int) -> dict:
    """Return a row of logits for each nucleus size."""
    p = sampler.integer(64, 70) / 100
    return {"logits": logits_of(sampler, *[distribution(sampler, vocab, size, p) for size in sizes]), "p": p}


def exactly_p(sampler: InputSampler) -> dict:
    """Return logits for equally likely tokens. Their probability is a power of 1/2, and most of them add up to `p`.

    There is no rounding, because all other tokens are so unlikely that their probability is exactly 0. The first token
    is unlikely, and the second is likely.
    """
    equal, likely, unlikely = 2 ** sampler.integer(2, 3), sampler.integer(-20, -1) / 10, -2000.0
    others = sampler.shuffled([likely] * (equal - 1) + [unlikely] * sampler.integer(0, 2))
    return {
        "logits": torch.tensor([unlikely, likely, *others], dtype=torch.float64),
        "p": sampler.integer(equal // 2 + 1, equal - 1) / equal,
    }


def as_many_are_left(inputs, expected, received):
    """Compare the number of tokens kept and their logits, because equally likely tokens may be kept in any order."""
    if received.shape != expected.shape:
        return f"it has shape {tuple(received.shape)}; expected {tuple(expected.shape)}"
    kept, needed = int(received.isfinite().sum()), int(expected.isfinite().sum())
    if kept != needed:
        return f"{needed} tokens together reach exactly p = {inputs['p']:g}, which is enough; {kept} are left"
    if not torch.equal(received.sort().values, expected.sort().values):
        return "the tokens that are left aren't the likeliest ones, or their logits have changed"
    return None


FLAT = [0.28, 0.26, 0.24, 0.22]
TOP_P_FILTER = Exercise(
    answer=top_p_filter,
    points=2,
    minutes=20,
    axes={"logits": "batch vocab", "output": "batch vocab"},
    probes=[
        Probe("a nucleus of two tokens", lambda sampler: nuclei(sampler, 5, 2)),
        Probe("the likeliest token alone reaches p", lambda sampler: nuclei(sampler, sampler.integer(4, 5), 1)),
        Probe("more tokens", lambda sampler: nuclei(sampler, sampler.integer(6, 7), 3)),
        Probe(
            "each row has a nucleus of its own", lambda sampler: nuclei(sampler, 5, *[1 + i for i in sampler.order(3)])
        ),
        Probe(
            "more than one axis before the vocabulary",
            lambda sampler: (inputs := nuclei(sampler, 4, 2, 1)) | {"logits": inputs["logits"][None]},
        ),
        Probe("tokens that together reach exactly p are enough", exactly_p, compare_results=as_many_are_left),
    ],
    properties=[
        keeps_every_token(
            "every token stays if all of them are needed",
            lambda sampler: {"logits": logits_of(sampler, FLAT), "p": 0.9},
        ),
        keeps_every_token(
            "p = 1 keeps every token, even if one has nearly all the probability",
            lambda sampler: {
                "logits": torch.tensor(sampler.shuffled([60.0, *sampler.numbers(5).tolist()])),  # 60: probability 1.0
                "p": 1.0,
            },
        ),
        leaves_logits_alone(lambda sampler: {"logits": logits_of(sampler, FLAT), "p": 0.6}),
        Property(
            "a p of 0, below 0 or above 1",
            lambda sampler: {"given": logits_of(sampler, FLAT), "name": "p", "values": [0.0, -0.5, 1.5]},
            remark_unless_refused(
                "Expected a `ValueError` for {}; none was raised. No set of tokens can have such a probability."
            ),
            exceptions_of_values,
        ),
    ],
)

# --- sample -----------------------------------------------------------------------------------------------------------


def chain_inputs(sampler: InputSampler) -> dict:
    """Return a table in which each token has one obvious successor, so that greedy decoding visits them all."""
    vocab = sampler.integer(5, 7)
    order = sampler.order(vocab)
    table = sampler.numbers(vocab, vocab, low=-1, high=1)
    for token, following in zip(order, order[1:] + order[:1], strict=True):
        table[token, following] = 4.0
    return {"table": table, "prompt": torch.tensor([order[3], order[0]]), "count": vocab - 1}


def writes_greedily(subject, table, prompt, count):
    return subject(TableLanguageModel(table), prompt, count, temperature=0)


def reader_inputs(sampler: InputSampler, max_length: int, prompt: int, count: int) -> dict:
    """Return inputs for a model whose next token depends on all tokens it sees and their positions."""
    return {"vocab": 13, "max_length": max_length, "prompt": sampler.integers(prompt, low=0, high=12), "count": count}


def reader_writes(subject, vocab, max_length, prompt, count):
    class Reader(CountingLanguageModel):
        def forward(self, tokens, mask=None):
            if mask is not None and mask.dtype != torch.bool:  # the mask is added to the scores, so ones hide nothing
                tokens = tokens + (mask > 0).any()
                mask = mask < -1e4
            return super().forward(tokens, mask)

    return subject(Reader(vocab, max_length), prompt, count, temperature=0)


def ranked_inputs(
    sampler: InputSampler, probabilities: list[float], count: int, low: int = 40, at: float = 1.0, **settings
) -> dict:
    """Return, as data, a model in which a few tokens always have the given probabilities at temperature `at`.

    All other tokens have logits of 0 and share the rest of the probability evenly. The few are in the first half of the
    vocabulary, so that none is among them in training mode, when the model's rows are reversed. The prompt is not
    either.
    """
    vocab = sampler.integer(low, low + 20)
    *tokens, prompt = sampler.order(vocab // 2)
    other = (1 - sum(probabilities)) / (vocab - len(probabilities))
    return {
        "vocab": vocab,
        "likeliest": tokens[: len(probabilities)],
        "their_logits": [round(at * math.log(one / other), 2) for one in probabilities],
        "prompt": torch.tensor([prompt]),
        "count": count,
        "settings": settings,
        "seed": sampler.integer(1, 9999),
    }


def half_of_the_time(sampler: InputSampler, **settings) -> dict:
    """Return a model in which one token out of about 100 has about half the probability.

    A slightly different temperature would change its share so much that 40 samples are enough to notice.
    """
    probability = sampler.integer(50, 55) / 100
    return ranked_inputs(sampler, [probability], 40, low=90, at=settings.get("temperature", 1.0), **settings)


def tokens_written(subject, vocab, likeliest, their_logits, prompt, count, settings, seed):
    model = likely_tokens(vocab, likeliest, their_logits)
    written = subject(model, prompt, count, **settings, generator=torch.Generator().manual_seed(seed))
    return torch.as_tensor(written)


def shares_are_right(inputs, expected, received):
    """Allow five standard deviations, so that only about one in a million correct answers is rejected.

    The message contains no measured numbers, so it stays the same even if the code samples differently.
    """
    count, vocab = inputs["count"], inputs["vocab"]
    if received.numel() != count:
        return f"it returns {received.numel()} tokens; expected `count` = {count}"
    if ((received < 0) | (received >= vocab)).any():
        return f"it returns numbers that aren't tokens in the vocabulary, which go from 0 to {vocab - 1}"
    if len(set(received.tolist())) == 1:
        return "the text only repeats a single token"
    logits = torch.zeros(vocab)
    logits[inputs["likeliest"]] = torch.tensor(inputs["their_logits"])
    (likeliest,) = inputs["likeliest"]
    temperature = inputs["settings"].get("temperature", 1.0)
    probability = float((logits / temperature).softmax(dim=-1)[likeliest])
    share = float((received == likeliest).double().mean())
    if abs(share - probability) > 5 * math.sqrt(probability * (1 - probability) / count):
        much = "more" if share > probability else "less"
        return (
            f"token {likeliest} appears much {much} often than its probability of {probability:.0%} at temperature "
            f"{temperature:g} allows in a text of {count} tokens"
        )
    if len(set(received.tolist())) < 4:
        return "all tokens but one are equally likely, but hardly any of them ever shows up"
    return None


def expected_tokens_come(inputs, expected, received):
    """Report whether the sampled tokens are exactly those that the filters keep."""
    wanted, got = set(expected.tolist()), set(received.tolist())
    said = []
    if wanted - got:
        said.append(f"the filters leave {len(wanted)} tokens, but only {len(wanted & got)} of them ever show up")
    if got - set(inputs["likeliest"]):
        said.append(f"tokens show up that should have been removed; expected only {sorted(wanted)}")
    elif got - wanted:
        said.append(f"{len(got - wanted)} of the likeliest tokens show up in addition to {sorted(wanted)}")
    return " and ".join(said) or None


filter_probe = partial(Probe, call=tokens_written, compare_results=expected_tokens_come)


def with_seeds(subject, vocab, likeliest, their_logits, prompt, count, settings, seed):
    model = likely_tokens(vocab, likeliest, their_logits)
    before, texts = torch.get_rng_state(), {}
    for name, number in (("one seed", seed), ("the same seed", seed), ("another seed", seed + 1)):
        generator = torch.Generator().manual_seed(number)
        texts[name] = torch.as_tensor(subject(model, prompt, count, **settings, generator=generator)).tolist()
    return texts | {"torch's own generator is left alone": torch.equal(before, torch.get_rng_state())}


def seeds_decide(inputs, received):
    if received["one seed"] != received["the same seed"]:
        return "two generators with the same seed write different texts"
    if received["one seed"] == received["another seed"]:
        return "generators with different seeds write the same text"
    if not received["torch's own generator is left alone"]:
        return "it takes random numbers from torch's own generator, although it was given another one"
    return None


def writes_beyond_max_length(subject, table, prompt, count):
    return raised(subject, TableLanguageModel(table, max_length=3), prompt, count)


def writes_nothing(subject, table, prompt):
    model = TableLanguageModel(table)
    error = raised(subject, model, prompt, 0)
    return {"raised": error, "tokens": len(subject(model, prompt, 0)) if error == "nothing" else 0}


def nothing_is_written(inputs, received):
    if received["raised"] != "nothing":
        return "`count` = 0 raises an error, but it's a valid value that writes no tokens"
    if received["tokens"] != 0:
        return "`count` = 0 returns tokens; expected none"
    return None


def modes_around_sampling(subject, table, prompt, count):
    return modes_afterwards(TableLanguageModel(table), lambda model: subject(model, prompt, count))


def runs_with_gradients(subject, table, prompt, count):
    model = TableLanguageModel(table)
    subject(model, prompt, count)
    return model.with_gradients


def bad_requests(subject, table, prompt):
    model = TableLanguageModel(table)
    return {
        "an empty prompt": raised(subject, model, prompt[:0], 2),
        "a negative temperature": raised(subject, model, prompt, 2, -1.0),
    }


def table_and_prompt(sampler: InputSampler) -> dict:
    return {"table": sampler.numbers(4, 4), "prompt": sampler.integers(2, low=0, high=3)}


SAMPLE = Exercise(
    answer=sample,
    points=3,
    minutes=30,
    returns=("tokens",),
    axes={"prompt": "length", "tokens": "count"},
    builds_on=("causal_mask", "top_k_filter", "top_p_filter"),
    probes=[
        Probe("temperature 0 takes the likeliest token every time", chain_inputs, writes_greedily),
        Probe(
            "the model reads the whole text and can't look ahead",
            lambda sampler: reader_inputs(sampler, sampler.integer(10, 12), sampler.integer(2, 4), 6),
            reader_writes,
        ),
        Probe(
            "a text longer than the model can read",
            lambda sampler: reader_inputs(sampler, sampler.integer(3, 4), sampler.integer(5, 6), 7),
            reader_writes,
            needs=("the model reads the whole text and can't look ahead",),
        ),
        Probe(
            "tokens appear as often as the model predicts",
            half_of_the_time,
            tokens_written,
            compare_results=shares_are_right,
        ),
        Probe(
            "a high temperature",
            lambda sampler: half_of_the_time(sampler, temperature=[2.5, 3.0, 4.0][sampler.integer(0, 2)]),
            tokens_written,
            compare_results=shares_are_right,
        ),
        filter_probe(
            "top-k", lambda sampler: ranked_inputs(sampler, [0.09, 0.085, 0.08, 0.05], 40, top_k=sampler.integer(2, 3))
        ),
        filter_probe("top-p", lambda sampler: ranked_inputs(sampler, [0.29, 0.27, 0.05], 40, top_p=0.5)),
        filter_probe(
            "the temperature comes before top-p",
            lambda sampler: ranked_inputs(sampler, [0.49, 0.285, 0.21, 0.007], 40, temperature=2.0, top_p=0.6),
        ),
        filter_probe(
            "top-k together with a high top-p",
            lambda sampler: ranked_inputs(sampler, [0.2, 0.18, 0.16, 0.14], 40, top_k=sampler.integer(2, 3), top_p=0.9),
        ),
        filter_probe(
            "top-k comes before top-p",
            lambda sampler: ranked_inputs(sampler, [0.2, 0.18, 0.16, 0.14], 40, top_k=4, top_p=0.5),
        ),
    ],
    properties=[
        Property(
            "the generator's seed decides which text comes out",
            lambda sampler: ranked_inputs(sampler, [0.04], 8),
            seeds_decide,
            with_seeds,
        ),
        requirement(
            "the text may be longer than the model can read, at temperature 1 too",
            lambda sampler: table_and_prompt(sampler) | {"count": 4},
            lambda inputs, error: error != "ValueError",
            "it stops with a ValueError once the text is longer than the 3 tokens that this model can read",
            writes_beyond_max_length,
        ),
        Property("a count of 0 writes no tokens", table_and_prompt, nothing_is_written, writes_nothing, penalty=0.5),
        Property("the model's mode is restored", chain_inputs, mode_is_restored, modes_around_sampling),
        requirement(
            "the model runs without gradients",
            chain_inputs,
            lambda inputs, with_gradients: not with_gradients,
            "the model runs with gradients switched on, which uses memory for every token but isn't needed here",
            runs_with_gradients,
        ),
        Property(
            "an empty prompt and a negative temperature",
            table_and_prompt,
            remark_unless_refused(
                "Expected a `ValueError` for {}; none was raised. The first token needs a token before it, and a "
                "negative temperature would make the unlikeliest tokens the likeliest."
            ),
            bad_requests,
        ),
    ],
)

EXERCISES = [NEXT_TOKEN_PAIRS, CAUSAL_LANGUAGE_MODEL_LOSS, TOP_K_FILTER, TOP_P_FILTER, SAMPLE]
