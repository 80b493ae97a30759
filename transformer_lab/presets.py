"""What a training run is made of: every hyperparameter in one place, and the runs that are worth starting.

This file doesn't import PyTorch, so the command line can list the options of a run at once.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from transformer_lab.errors import InputError

DEFAULT_ALPHA = 1.5  # length penalty: the best one on Multi30k's validation pairs, for the included model
LARGEST_BEAM = 1000  # with 4,000 tokens, a beam of 5,000 takes minutes per sentence, and one of 100,000 all memory


def option(default: Any, help: str) -> Any:
    """Return a field of a preset with its default and the text that the command line shows."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Preset:
    """A whole training run, except for the folder it writes to.

    Raises:
        InputError: a value that no run can have, such as `epochs=0`.
    """

    name: str
    corpus: str = option("multi30k", "name of a corpus, or your own folder or table")
    train_limit: int | None = option(None, "use only the first N sentence pairs")
    tokenizer: Literal["bpe", "spacy"] = option("bpe", "byte pairs, or whole words with a vocabulary per language")
    vocab_size: int = option(8000, "size of the bpe vocabulary; spacy keeps every word that occurs twice")
    shared_vocabulary: bool = option(True, "one bpe vocabulary for both languages, or one of that size for each")
    chinese: Literal["byte_pairs", "characters"] = option("byte_pairs", "how bpe splits Chinese")

    d_model: int = option(128, "width of the model")
    n_heads: int = option(4, "attention heads per layer")
    n_layers: int = option(4, "layers in the encoder, and as many in the decoder")
    d_ff: int = option(512, "width inside the feed-forward networks")
    dropout: float = option(0.1, "dropout rate")
    norm_first: bool = option(False, "pre-norm; the paper uses post-norm")
    tie: bool = option(True, "one matrix for both embeddings and the output layer; needs a shared bpe vocabulary")
    max_length: int = option(256, "leave out training pairs with more tokens than this on either side")

    epochs: int = option(13, "passes through the training pairs")
    max_tokens: int = option(4096, "tokens per batch, padding included, on each side")
    accumulation: int = option(1, "batches whose gradients are added up for one update")
    schedule: Literal["linear", "paper"] = option("linear", "learning rate: down to zero at the end, or section 5.3")
    optimizer: Literal["adam", "muon"] = option("adam", "muon leaves embeddings, output layer, and vectors to Adam")
    peak_rate: float = option(3e-3, "learning rate of the linear schedule at the end of the warm-up")
    learning_rate_scale: float = option(1.0, "factor on the learning rate of section 5.3, for the paper's schedule")
    warmup_steps: int = option(400, "updates until the learning rate reaches its peak")
    betas: tuple[float, float] = option((0.9, 0.98), "Adam's betas (section 5.3)")
    eps: float = option(1e-9, "Adam's epsilon")
    weight_decay: float = option(0.0, "decay of all weights per update, times the learning rate, as in AdamW")
    clip_norm: float = option(1.0, "largest norm of an update's gradient; 0 never clips")
    label_smoothing: float = option(0.1, "label smoothing (section 5.4)")
    consistency: float = option(0.0, "R-Drop: weight of the disagreement between two passes; 0 makes one pass")
    bpe_dropout: float = option(0.0, "probability of skipping a merge when a training pair is encoded, in every epoch")
    bpe_dropout_on: Literal["both", "source", "target"] = option("both", "the sides that bpe_dropout applies to")
    precision: Literal["auto", "bf16", "float32"] = option("auto", "auto uses bf16 where the hardware computes in it")
    attention: Literal["explicit", "fused"] = option("fused", "the paper's formula as written, or a fused kernel")
    fast: bool = option(True, "compute the gradients with a copy of the model that is built for speed")
    compiled: bool = option(False, "use torch.compile: fewer kernels, after a minute of compilation")

    validate_every: int = option(1, "epochs between two BLEU scores on the validation set")
    average: int = option(5, "average the checkpoints of the last N epochs at the end")
    beam_size: int = option(4, "beam for choosing the model at the end; scores along the way are greedy")
    alpha: float = option(DEFAULT_ALPHA, "length penalty; larger values favor longer sentences")
    seed: int = option(1, "seed for initial weights, dropout, and the order and encoding of the pairs")

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(Preset).items():
            value = getattr(self, name)
            if get_origin(kind) is Literal and value not in get_args(kind):
                raise InputError(f"{name} is {value!r}, but must be one of: {', '.join(get_args(kind))}")
            if get_origin(kind) is not Literal and not is_of(value, kind):
                raise InputError(f"{name} is {value!r}, but must be {DESCRIPTIONS[kind]}")
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(f"{name} is {value}, but must be a finite number")
        for names, fits, says in RANGES:
            for name in names:
                value = getattr(self, name)
                if not fits(value):
                    raise InputError(f"{name} is {value}, but must be {says}")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(f"betas are {self.betas}, but each must be at least 0 and less than 1")
        if self.bpe_dropout and self.tokenizer != "bpe":
            raise InputError(
                f"bpe_dropout skips merges of byte pairs, but the tokenizer {self.tokenizer} has none: "
                "set bpe_dropout to 0, or tokenizer to bpe"
            )
        if self.tie and self.tokenizer != "bpe":
            raise InputError(
                f"tie needs one vocabulary for both languages, but the tokenizer {self.tokenizer} "
                "makes two: set tie to false, or tokenizer to bpe"
            )
        if self.tie and not self.shared_vocabulary:
            raise InputError(
                "tie needs one vocabulary for both languages: set tie to false, or shared_vocabulary to true"
            )


SIZES = "vocab_size d_model n_heads n_layers d_ff max_length epochs max_tokens accumulation warmup_steps validate_every"
RANGES: tuple[tuple[Sequence[str], Callable[[Any], bool], str], ...] = (  # fields, what they may be, and how to say it
    ((*SIZES.split(), "average"), lambda value: 1 <= value < 2**31, f"at least 1, and below {2**31}"),
    (["beam_size"], lambda value: 1 <= value <= LARGEST_BEAM, f"at least 1, and at most {LARGEST_BEAM}"),
    (["train_limit"], lambda value: value is None or value >= 1, "at least 1, or none for all pairs"),
    (["peak_rate", "learning_rate_scale", "eps"], lambda value: value > 0, "greater than 0"),
    (["weight_decay", "clip_norm", "consistency", "alpha"], lambda value: value >= 0, "at least 0"),
    (["seed"], lambda value: 0 <= value < 2**32, f"at least 0 and less than {2**32}"),
    (["dropout", "label_smoothing"], lambda value: 0 <= value < 1, "at least 0 and less than 1"),
    (["bpe_dropout"], lambda value: 0 <= value <= 1, "from 0 to 1, which spells in characters"),
)


def is_of(value: Any, kind: Any) -> bool:
    """Whether a field of type `kind` can be `value`: whole numbers are numbers, True and False are not."""
    if kind == int | None:
        return value is None or is_of(value, int)
    if kind == tuple[float, float]:
        return isinstance(value, tuple) and len(value) == 2 and all(is_of(part, float) for part in value)
    if kind in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, int | float if kind is float else kind)


LAPTOP = Preset(
    name="laptop",  # some 20 minutes on two CPU cores
    vocab_size=4000,
    norm_first=True,  # at this rate the post-norm encoder gives the same vector for every word
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
            dropout=0.0,  # every pair is seen once: there is nothing to overfit
            norm_first=True,
            max_length=64,
            epochs=1,
            max_tokens=2048,
            warmup_steps=100,
            average=1,
            beam_size=1,
        ),
        LAPTOP,
        # The two for a GPU have been measured on a CPU, where they take hours and minutes; on a GPU they have not been:
        # results/README.md has the commands, and cells that are still empty.
        replace(LAPTOP, name="gpu", epochs=30, consistency=5.0, validate_every=5),  # a second pass costs a GPU little
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
            accumulation=3,  # about 25,000 tokens a step, as in section 5.1
            schedule="paper",
            warmup_steps=4000,
            clip_norm=0.0,
            alpha=0.6,
        ),
    )
}


def find_preset(name: str) -> Preset:
    """The preset of that name.

    Raises:
        InputError: there is none; the message lists those there are.
    """
    if name not in PRESETS:
        raise InputError(f"unknown preset {name!r}: the presets are {', '.join(PRESETS)}")
    return PRESETS[name]


def override(preset: Preset, values: Mapping[str, str]) -> Preset:
    """The preset with some fields replaced, each given as text: `override(preset, {"epochs": "3", "tie": "false"})`.

    Raises:
        InputError: a field that does not exist, or a text that is no value of it.
    """
    types_of_fields = get_type_hints(Preset)
    parsed = {}
    for name, text in values.items():
        if name not in types_of_fields:
            raise InputError(f"a preset has no field {name!r}: the fields are {', '.join(types_of_fields)}")
        try:
            parsed[name] = parse(text.strip(), types_of_fields[name])
        except ValueError:
            raise InputError(f"{name} is {text!r}, but must be {DESCRIPTIONS[types_of_fields[name]]}") from None
    return replace(preset, **parsed)


def reject_unused_option(preset: Preset, changed: Preset) -> None:
    """Whoever turns a knob that is not connected would believe to have seen its effect.

    Raises:
        InputError: a field was changed that does nothing in the schedule.
    """
    of_linear, of_paper = "peak_rate", "learning_rate_scale"
    idle, instead = (of_linear, of_paper) if changed.schedule == "paper" else (of_paper, of_linear)
    if getattr(changed, idle) != getattr(preset, idle):
        raise InputError(f"{idle} does nothing in the schedule {changed.schedule}: set {instead}, or another schedule")


DESCRIPTIONS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    int | None: "a whole number or none",
    tuple[float, float]: "two numbers with a comma between them",
}


def parse(text: str, kind: Any) -> Any:
    """The value of type `kind` that `text` spells.

    Raises:
        ValueError: it spells none.
    """
    if kind is str or get_origin(kind) is Literal:  # the choices are looked at by Preset itself
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
