"""What a training run is made of: every number in one place, and the runs that are worth starting."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from transformer_lab.decoding.translator import DEFAULT_ALPHA, LARGEST_BEAM
from transformer_lab.errors import InputError


@dataclass(frozen=True)
class Preset:
    """A whole training run, but for the folder it writes to.

    Raises:
        InputError: a value that no run can have, such as `epochs=0`.
    """

    name: str
    corpus: str = "multi30k"  # a name that load_corpus knows, or a folder or table of your own
    train_limit: int | None = None  # take only the first so many pairs
    tokenizer: Literal["bpe", "spacy"] = "bpe"  # parts of words; or words, with a vocabulary for each language
    vocab_size: int = 8000  # of bpe; spacy keeps every word that occurs twice
    shared_vocabulary: bool = True  # of bpe: one vocabulary for both languages, or one of that size for each
    chinese: Literal["byte_pairs", "characters"] = "byte_pairs"  # how bpe cuts Chinese: with merges, or without

    d_model: int = 128  # width of the model
    n_heads: int = 4  # of each attention
    n_layers: int = 4  # of the encoder, and as many of the decoder
    d_ff: int = 512  # width inside the feed-forward networks
    dropout: float = 0.1
    norm_first: bool = False  # pre-norm; the paper has post-norm
    tie: bool = True  # one matrix for both embeddings and the output layer; needs bpe's shared vocabulary
    max_length: int = 256  # tokens; training pairs with a longer side are left out

    epochs: int = 13  # times through the training pairs
    max_tokens: int = 4096  # tokens of a batch, padding included, on the source side and on the target side
    accumulation: int = 1  # batches whose gradients are summed for one update
    schedule: Literal["linear", "paper"] = "linear"  # of the learning rate: down to zero at the end, or section 5.3
    optimizer: Literal["adam", "muon"] = "adam"  # muon: not of embeddings, output layer and vectors, which keep Adam
    peak_rate: float = 3e-3  # of the linear schedule: the rate at the end of the warm-up
    learning_rate_scale: float = 1.0  # of the paper's schedule: a factor on the rate of section 5.3
    warmup_steps: int = 400  # updates until the rate is at its peak
    betas: tuple[float, float] = (0.9, 0.98)  # of Adam, section 5.3
    eps: float = 1e-9  # of Adam
    weight_decay: float = 0.0  # of every weight: this times the rate, in each update (AdamW's)
    clip_norm: float = 1.0  # the largest norm of an update's gradient; 0 never clips
    label_smoothing: float = 0.1  # section 5.4
    consistency: float = 0.0  # R-Drop: weight of the disagreement of two passes with different dropout; 0: one pass
    bpe_dropout: float = 0.0  # probability that a merge is skipped in spelling a training pair, newly in each epoch
    bpe_dropout_on: Literal["both", "source", "target"] = "both"  # the sides that bpe_dropout spells anew
    precision: Literal["auto", "bf16", "float32"] = "auto"  # auto: bf16 where the processor or the GPU computes in it
    attention: Literal["explicit", "fused"] = "fused"  # the paper's formula as written, or a kernel
    fast: bool = True  # a copy of the model that is made for speed computes the gradients: fast.py
    compiled: bool = False  # what computes the gradients goes through torch.compile: fewer kernels, after a minute

    validate_every: int = 1  # epochs between two BLEU scores on validation
    average: int = 5  # checkpoints of the last so many epochs are averaged at the end
    beam_size: int = 4  # for the choice at the end; the scores on the way are greedy
    alpha: float = DEFAULT_ALPHA  # of the length penalty; more makes longer sentences
    seed: int = 1  # of the first weights, the order and the spelling of the pairs, and dropout

    def __post_init__(self) -> None:
        for field, kind in get_type_hints(Preset).items():
            value = getattr(self, field)
            if get_origin(kind) is Literal and value not in get_args(kind):
                raise InputError(f"{field} is {value!r}, but must be one of: {', '.join(get_args(kind))}")
            if get_origin(kind) is not Literal and not is_of(value, kind):
                raise InputError(f"{field} is {value!r}, but must be {DESCRIPTIONS[kind]}")
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(f"{field} is {value}, but must be a finite number")
        for fields, fits, says in RANGES:
            for field in fields:
                value = getattr(self, field)
                if not fits(value):
                    raise InputError(f"{field} is {value}, but must be {says}")
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
    for field, text in values.items():
        if field not in types_of_fields:
            raise InputError(f"a preset has no field {field!r}: the fields are {', '.join(types_of_fields)}")
        try:
            parsed[field] = parse(text.strip(), types_of_fields[field])
        except ValueError:
            raise InputError(f"{field} is {text!r}, but must be {DESCRIPTIONS[types_of_fields[field]]}") from None
    return replace(preset, **parsed)


def refuse_idle_change(preset: Preset, changed: Preset) -> None:
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
