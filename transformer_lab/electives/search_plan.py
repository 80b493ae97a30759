"""The plan of a hyperparameter search: its preset, the space to search, and how many trials and finalists it has."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from transformer_lab.errors import InputError
from transformer_lab.training import Preset, find_preset

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

HYPER_PARAMETERS = ("n_heads", "n_layers", "peak_rate", "max_tokens", "dropout", "label_smoothing")
SAMPLERS = ("random", "tpe")


def base_preset(corpus: str = "captions") -> Preset:
    """Return the preset that all trials share, except for the six hyperparameters that are searched.

    On `captions`, a trial takes only seconds because it uses 3,000 captions of at most 8 words and a model of width 64.
    Any other corpus uses the preset `laptop` with 6 epochs rather than 15, so a search takes hours. Both presets use
    Adam, because the range of learning rates to search is chosen for Adam.
    """
    if corpus == "captions":
        small = {"train_limit": 3000, "vocab_size": 1000, "d_model": 64, "d_ff": 128, "epochs": 4, "max_length": 32}
        return replace(find_preset("tour"), name="search", **small, max_tokens=512, warmup_steps=50)
    adam = {"optimizer": "adam", "peak_rate": 3e-3, "weight_decay": 0.0}
    short = {"epochs": 6, "validate_every": 1, "average": 1, "beam_size": 1}
    return replace(find_preset("laptop"), name="search", corpus=corpus, **adam, **short)


@dataclass(frozen=True)
class Plan:
    """The plan of a search, which is saved in `search.json`.

    A process that joins or resumes the search must use the same plan.

    Raises:
        InputError: A value is not valid for a search.
    """

    preset: Preset
    trials: int = 20
    sampler: str = "random"  # one of SAMPLERS
    prune: bool = True  # stop a trial if its BLEU is below the median of the finished trials after the same epoch
    finalists: int = 3  # number of best trials to repeat
    seeds: int = 3  # number of new seeds for each finalist
    source: str = "de"
    target: str = "en"
    data_dir: str | None = None

    def __post_init__(self) -> None:
        for name, least in (("trials", 1), ("finalists", 0), ("seeds", 1)):
            if getattr(self, name) < least:
                raise InputError(f"`{name}` must be {least} or more; got {getattr(self, name)}")
        if self.sampler not in SAMPLERS:
            raise InputError(f"`sampler` must be one of {', '.join(SAMPLERS)}; got {self.sampler!r}")
        schedule, every = self.preset.schedule, self.preset.validate_every
        if schedule != "linear":
            raise InputError(f"`schedule` must be linear in a search, which varies `peak_rate`; got {schedule!r}")
        if every != 1:
            raise InputError(f"`validate_every` must be 1, because trials are compared after every epoch; got {every}")

    def space(self) -> dict[str, "BaseDistribution"]:
        """Return the distribution of each hyperparameter: log-uniform for the learning rate and uniform for the others.

        The learning rate, batch size, and depth vary around the preset's values. Every batch size has room for the
        longest sentence pair allowed.
        """
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        preset = self.preset
        batches = [preset.max_tokens // 4, preset.max_tokens // 2, preset.max_tokens, 2 * preset.max_tokens]
        least = min(preset.max_length, preset.max_tokens)
        return {
            "n_heads": CategoricalDistribution([count for count in (1, 2, 4, 8) if preset.d_model % count == 0]),
            "n_layers": IntDistribution(1, preset.n_layers + 1),
            "peak_rate": FloatDistribution(preset.peak_rate / 10, preset.peak_rate * 10, log=True),
            "max_tokens": CategoricalDistribution([size for size in batches if size >= least]),
            "dropout": FloatDistribution(0.0, 0.3),
            "label_smoothing": FloatDistribution(0.0, 0.3),
        }

    def preset_of(self, chosen: Mapping[str, Any], seed: int) -> Preset:
        """Return the preset of a trial.

        Its warm-up covers about the same number of tokens regardless of the batch size.
        """
        warmup = round(self.preset.warmup_steps * self.preset.max_tokens / chosen["max_tokens"])
        return replace(self.preset, **chosen, warmup_steps=max(1, warmup), seed=seed)


def load_optuna() -> ModuleType:
    """Import Optuna, silence its log and its warnings about experimental functions, and return it.

    Raises:
        InputError: Optuna cannot be imported.
    """
    try:
        import optuna
    except ImportError as error:
        raise InputError(f"Optuna does not load ({error}): run python -m pip install optuna") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    return optuna
