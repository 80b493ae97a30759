"""The hyperparameters of a training run, and presets with good values for all of them.

This file does not import PyTorch, so the command line can list and check a run's options without delay. Messages put
the name of a hyperparameter in backticks, which the command line replaces with the option: `epochs` becomes --epochs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from transformer_lab.errors import InputError

DEFAULT_ALPHA = 1.5  # length penalty; chosen with an earlier model on Multi30k's validation pairs
LARGEST_BEAM = 1000  # with 4,000 tokens, a beam of 5,000 takes minutes per sentence, and 100,000 would use up memory
MOST_WORKERS = 64  # processes of a search; a typo with a few extra digits would use up memory


def option(default: Any, help: str) -> Any:
    """Return a field of a preset with its default and its help text for the command line."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Preset:
    """All settings that define a training run, except the output folder.

    Raises:
        InputError: A value is impossible, such as `epochs=0`.
    """

    name: str
    corpus: str = option("multi30k", "multi30k, captions, or your own folder or table of sentence pairs")
    train_limit: int | None = option(None, "use only the first N sentence pairs; none uses all")
    tokenizer: Literal["bpe", "spacy"] = option("bpe", "bpe: subwords (byte pairs); spacy: whole words")
    vocab_size: int = option(8000, "tokens in the bpe vocabulary; spacy keeps every word that occurs twice")
    shared_vocabulary: bool = option(True, "one bpe vocabulary for both languages; false gives each language its own")
    chinese: Literal["byte_pairs", "characters"] = option("byte_pairs", "how bpe splits Chinese text")

    d_model: int = option(128, "width of the model: the length of each token's vector")
    n_heads: int = option(4, "attention heads per layer; must divide the width of the model")
    n_layers: int = option(4, "layers in the encoder, and the same number in the decoder")
    d_ff: int = option(512, "width of the hidden layer in each feed-forward network")
    dropout: float = option(0.1, "probability of zeroing an activation during training")
    norm_first: bool = option(False, "normalize before each sublayer (pre-norm); the paper normalizes after it")
    tie: bool = option(True, "one matrix for both embeddings and the output layer; needs a shared bpe vocabulary")
    max_length: int = option(256, "most tokens that the model can read or write; longer training pairs are skipped")

    epochs: int = option(13, "passes over the training pairs")
    both_directions: int = option(0, "in the first N epochs, train on both directions of translation")
    max_tokens: int = option(4096, "maximum number of tokens per batch on each side, padding included")
    accumulation: int = option(1, "add up the gradients of N batches before each update")
    schedule: Literal["linear", "paper"] = option("linear", "learning rate: linear decay to zero, or section 5.3's")
    optimizer: Literal["adam", "muon"] = option("adam", "muon: Muon for the layers' weight matrices, Adam for the rest")
    peak_rate: float = option(3e-3, "highest learning rate of the linear schedule")
    learning_rate_scale: float = option(1.0, "multiply the learning rate of the paper's schedule by X")
    warmup_steps: int = option(400, "updates until the learning rate peaks")
    betas: tuple[float, float] = option((0.9, 0.98), "decay rates of Adam's two running averages (section 5.3)")
    eps: float = option(1e-9, "Adam's epsilon, which prevents division by zero")
    weight_decay: float = option(0.0, "shrink the weights by X times the learning rate in every update, as in AdamW")
    clip_norm: float = option(1.0, "scale gradients down to at most this norm; 0 turns clipping off")
    label_smoothing: float = option(0.1, "probability spread over all tokens instead of the correct one (section 5.4)")
    consistency: float = option(0.0, "R-Drop: weight of the difference between two dropout passes; 0 turns it off")
    bpe_dropout: float = option(0.0, "probability of skipping a merge, so a word is split differently each epoch")
    bpe_dropout_on: Literal["both", "source", "target"] = option("both", "side that --bpe-dropout applies to")
    precision: Literal["auto", "bf16", "float32"] = option("auto", "auto: bf16 if the hardware supports it")
    attention: Literal["explicit", "fused"] = option("fused", "the paper's formula, step by step, or one fused kernel")
    fast: bool = option(True, "compute gradients with a faster copy of the model; the model itself stays the same")
    compiled: bool = option(False, "compile the model with torch.compile, which takes about a minute")

    validate_every: int = option(1, "compute BLEU on the validation set every N epochs")
    average: int = option(5, "average the weights of the last N epochs at the end")
    beam_size: int = option(4, "beam size for the final BLEU scores; during training, decoding is greedy")
    alpha: float = option(DEFAULT_ALPHA, "length penalty; larger values favor longer translations")
    seed: int = option(1, "random seed for the initial weights, dropout, and the order of the pairs")

    def __post_init__(self) -> None:
        if isinstance(self.betas, list):  # JSON has no tuples
            object.__setattr__(self, "betas", tuple(self.betas))
        for name, kind in get_type_hints(Preset).items():
            value = getattr(self, name)
            if not is_of(value, kind):
                raise InputError(f"`{name}` must be {describe(kind)}; got {value!r}")
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(f"`{name}` must be a finite number; got {value}")
        for names, fits, allowed in RANGES:
            for name in names:
                value = getattr(self, name)
                if not fits(value):
                    raise InputError(f"`{name}` must be {allowed}; got {value}")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(f"`betas` must both be at least 0 and less than 1; got {self.betas[0]},{self.betas[1]}")
        if self.bpe_dropout and self.tokenizer != "bpe":
            raise InputError(
                f"`bpe_dropout` needs byte pairs, but `tokenizer` is {self.tokenizer}: "
                "set `bpe_dropout` to 0, or `tokenizer` to bpe"
            )
        if self.both_directions >= self.epochs:
            raise InputError(
                f"`both_directions` must be less than `epochs`, {self.epochs}, which includes them; got "
                f"{self.both_directions}"
            )
        if self.both_directions and not (self.tokenizer == "bpe" and self.shared_vocabulary):
            raise InputError(
                "`both_directions` needs one vocabulary for both languages: set `both_directions` to 0, or `tokenizer` "
                "to bpe and `shared_vocabulary` to true"
            )
        if self.tie and self.tokenizer != "bpe":
            raise InputError(
                f"`tie` needs one vocabulary for both languages, but `tokenizer` is {self.tokenizer}, which makes two: "
                "set `tie` to false, or `tokenizer` to bpe"
            )
        if self.tie and not self.shared_vocabulary:
            raise InputError(
                "`tie` needs one vocabulary for both languages: set `tie` to false, or `shared_vocabulary` to true"
            )


SIZES = "vocab_size d_model n_heads n_layers d_ff max_length epochs max_tokens accumulation warmup_steps validate_every"
RANGES: tuple[tuple[Sequence[str], Callable[[Any], bool], str], ...] = (  # fields, test, description
    ((*SIZES.split(), "average"), lambda value: value >= 1, "1 or more"),
    ((*SIZES.split(), "average"), lambda value: value < 2**31, f"less than {2**31}"),
    (["beam_size"], lambda value: 1 <= value <= LARGEST_BEAM, f"from 1 to {LARGEST_BEAM}"),
    (["train_limit"], lambda value: value is None or value >= 1, "1 or more, or none for all pairs"),
    (["peak_rate", "learning_rate_scale", "eps"], lambda value: value > 0, "greater than 0"),
    (["both_directions", "weight_decay", "clip_norm", "consistency", "alpha"], lambda value: value >= 0, "0 or more"),
    (["seed"], lambda value: 0 <= value < 2**32, f"at least 0 and less than {2**32}"),
    (["dropout", "label_smoothing"], lambda value: 0 <= value < 1, "at least 0 and less than 1"),
    (["bpe_dropout"], lambda value: 0 <= value <= 1, "from 0 to 1"),
)


def is_of(value: Any, kind: Any) -> bool:
    """Return whether `value` is of type `kind`. Integers count as numbers; True and False do not."""
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if isinstance(value, bool):
        return kind is bool
    if kind == tuple[float, float]:
        return isinstance(value, tuple) and len(value) == 2 and all(is_of(part, float) for part in value)
    return isinstance(value, int | float if kind is float else kind)


LAPTOP = Preset(
    name="laptop",  # about 20 minutes on two CPU cores
    vocab_size=4000,
    norm_first=True,  # with this learning rate, a post-norm encoder collapses to the same vector for every word
    epochs=15,
    max_tokens=2500,
    optimizer="muon",
    peak_rate=8e-3,
    warmup_steps=200,
    weight_decay=0.1,
    validate_every=3,
)

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="tour",  # about a minute on two CPU cores
            corpus="captions",
            vocab_size=2500,
            n_layers=2,
            d_ff=256,
            dropout=0.0,  # the model sees each pair only once, so it can't overfit
            norm_first=True,
            max_length=64,
            epochs=1,
            max_tokens=2048,
            warmup_steps=100,
            average=1,
            beam_size=1,
        ),
        LAPTOP,
        # The presets for a GPU have only been measured on a CPU so far. results/README.md lists the commands for a GPU.
        replace(LAPTOP, name="gpu", epochs=30, consistency=5.0, validate_every=5),  # a second pass is cheap on a GPU
        replace(LAPTOP, name="gpu-sprint", epochs=12),
        Preset(
            name="paper",  # table 3's base model, section 5's training and 6.1's search; the vocabulary is smaller
            d_model=512,
            n_heads=8,
            n_layers=6,
            d_ff=2048,
            max_length=512,
            epochs=40,
            max_tokens=8192,
            accumulation=3,  # about 25,000 tokens per step, as in section 5.1
            schedule="paper",
            warmup_steps=4000,
            clip_norm=0.0,
            alpha=0.6,
        ),
    )
}


def find_preset(name: str) -> Preset:
    """Return the preset with this name.

    Raises:
        InputError: There is no such preset; the message lists all presets.
    """
    if name not in PRESETS:
        raise InputError(f"unknown preset {name!r}: the presets are {', '.join(PRESETS)}", parameter="preset")
    return PRESETS[name]


def override(preset: Preset, values: Mapping[str, str]) -> Preset:
    """Return the preset with some fields replaced by values given as text: `override(preset, {"epochs": "3"})`.

    Raises:
        InputError: A field does not exist, or a value is invalid for its field.
    """
    types_of_fields = get_type_hints(Preset)
    parsed = {}
    for name, text in values.items():
        if name not in types_of_fields:
            raise InputError(f"a preset has no field {name!r}: the fields are {', '.join(types_of_fields)}")
        try:
            parsed[name] = parse(text.strip(), types_of_fields[name])
        except ValueError:
            raise InputError(f"`{name}` must be {describe(types_of_fields[name])}; got {text!r}") from None
    return replace(preset, **parsed)


def reject_unused_option(preset: Preset, changed: Preset) -> None:
    """Reject a learning rate that the schedule ignores, because any change in the result would be due to chance.

    Raises:
        InputError: `changed` differs from `preset` in a field that its schedule ignores.
    """
    of_linear, of_paper = "peak_rate", "learning_rate_scale"
    unused, instead = (of_linear, of_paper) if changed.schedule == "paper" else (of_paper, of_linear)
    if getattr(changed, unused) != getattr(preset, unused):
        raise InputError(
            f"`{unused}` has no effect with `schedule` {changed.schedule}: set `{instead}`, or change `schedule`"
        )


DESCRIPTIONS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    int | None: "a whole number or none",
    tuple[float, float]: "two numbers separated by a comma",
}


def describe(kind: Any) -> str:
    """Return the values that a type allows, in words."""
    return f"one of {', '.join(get_args(kind))}" if get_origin(kind) is Literal else DESCRIPTIONS[kind]


def parse(text: str, kind: Any) -> Any:
    """Convert text to a value of type `kind`.

    Raises:
        ValueError: The text cannot be converted to this type.
    """
    if kind is str or get_origin(kind) is Literal:  # `Preset` checks the choices
        return text
    if kind == int | None:
        return None if text.lower() == "none" else int(text)
    if kind == tuple[float, float]:
        first, second = text.split(",")
        return float(first), float(second)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    return kind(text)
