"""The results of a hyperparameter search: tables of its trials, a summary, and each hyperparameter's importance."""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_lab.electives.search_plan import HYPER_PARAMETERS, Plan, load_optuna
from transformer_lab.electives.search_statistics import correlation_interval
from transformer_lab.errors import InputError
from transformer_lab.files import replacing

if TYPE_CHECKING:
    from optuna import Study
    from pandas import DataFrame

BEST_SHARE = 0.25  # `importance` compares the best trials, which are this share of all trials, with all trials
LIVES = 3  # abandon a trial after three processes have died while training it, because the trial may be the cause
LOST = f"its process died {LIVES} times without an error message: the system may have killed it because memory ran out"


@dataclass(frozen=True)
class Results:
    """The results of a search.

    Both tables have one row per trial, with these columns:

    - `number`, `seed`, and the six hyperparameters;
    - `state`: `complete`, `pruned`, `diverged`, `out of memory`, `lost` (LIVES processes died while training it), or
      `running`, which includes trials that were interrupted and have not been resumed yet;
    - `bleu`: validation BLEU (0 to 100) with greedy decoding. A complete trial has the score after its last epoch. A
      pruned trial has the last score it reached, which is a lower bound. A diverged trial has 0, and all others have
      NaN;
    - `epochs`, the number of epochs finished; `seconds`, the time spent; and `curve`, the BLEU after each epoch;
    - `message`: the reason for a failure.

    The table `finalists` also has the column `of`, the number of the trial that is repeated.
    """

    plan: Plan
    environment: dict[str, Any]
    trials: "DataFrame"
    finalists: "DataFrame"

    def conclusion(self) -> str:
        """Summarize in plain text how each hyperparameter correlates with BLEU, and how the finalists scored."""
        counts = self.trials["state"].value_counts()
        lines = [f"{len(self.trials)} trials: " + ", ".join(f"{count} {state}" for state, count in counts.items())]
        judged = self.trials.dropna(subset="bleu")
        lines.append(f"rank correlation with BLEU over {len(judged)} of them, with 95% intervals")
        for name in HYPER_PARAMETERS:
            try:
                correlation, low, high = correlation_interval(judged[name], judged["bleu"])
            except ValueError as error:
                lines.append(f"  {name:16} none: {error}")
            else:
                sure = "" if low * high > 0 else "   includes 0"
                lines.append(f"  {name:16} {correlation:+.2f}  from {low:+.2f} to {high:+.2f}{sure}")
        for number, runs in self.finalists.groupby("of", sort=False):
            when_chosen = self.trials.set_index("number").loc[number, "bleu"]
            each, mean = ", ".join(f"{bleu:.1f}" for bleu in runs["bleu"]), runs["bleu"].mean()
            with_others = f"with other seeds {each}, mean {mean:.1f}"
            lines.append(f"trial {number}: chosen for its score of {when_chosen:.1f}; {with_others}")
        return "\n".join(lines)


def table_of(study: "Study") -> "DataFrame":
    """Return a table of a study's trials, with the columns that `Results` describes."""
    import pandas as pd

    rows = []
    for trial in study.get_trials(deepcopy=False):
        state, message = trial.state.name.lower(), None
        if state == "fail":
            state, message = trial.user_attrs.get("failure", ("lost", LOST))
        curve = [value for _, value in sorted(trial.intermediate_values.items())]
        bleu = {"complete": trial.value, "diverged": 0.0}.get(state, curve[-1] if state == "pruned" else None)
        row = {"number": trial.number, "state": state, "bleu": bleu, "epochs": len(curve), "curve": curve}
        rows.append(trial.user_attrs | trial.params | row | {"message": message})
    of = ["of"] if study.study_name == "finalists" else []
    columns = ["number", *of, "seed", "state", *HYPER_PARAMETERS, "bleu", "epochs", "seconds", "curve", "message"]
    return pd.DataFrame(rows, columns=columns).astype({"bleu": float, "seconds": float})


def write_table(table: "DataFrame", path: Path) -> None:
    """Write a table of `Results` as CSV. The numbers in `curve` are separated by spaces."""
    written = table.assign(curve=[" ".join(f"{bleu:.2f}" for bleu in curve) for curve in table["curve"]])
    with replacing(path) as unfinished:
        written.to_csv(unfinished, index=False, float_format="%.6g")


def read_table(path: Path) -> "DataFrame":
    """Read a table written by `write_table`.

    Raises:
        InputError: The file does not exist.
    """
    import pandas as pd

    if not path.exists():
        raise InputError(f"there is no {path}, which is one of the two tables of a search: restore it")
    return pd.read_csv(
        path, dtype={"message": str}, converters={"curve": lambda text: [float(bleu) for bleu in text.split()]}
    )


def importance(trials: "DataFrame", shuffles: int = 0, seed: int = 0) -> "DataFrame":
    """Measure how strongly each hyperparameter affects whether a trial is among the best quarter.

    PED-ANOVA (Watanabe et al. 2023, as implemented in Optuna) compares the values of each hyperparameter in the best
    quarter of the trials with its values in all trials. 0 means that there is no difference.

    Args:
        trials: A table from `Results`. Trials without a BLEU score are ignored.
        shuffles: How many times to repeat the measurement with the BLEU scores shuffled among the trials.
        seed: Seed for the shuffling.

    Returns:
        One row per hyperparameter, most important first: its `name`, its `importance`, and `by_chance`, the 95th
        percentile of the measurements with shuffled scores (NaN without shuffles).

    Raises:
        InputError: Fewer than 8 trials have a BLEU score.
    """
    import pandas as pd

    judged = trials.dropna(subset="bleu")
    if len(judged) < 8:
        raise InputError(f"{len(judged)} scored trials are too few to say what matters: at least 8 are needed")
    draw, scores = random.Random(seed), list(judged["bleu"])
    shuffled = [pedanova(judged, draw.sample(scores, len(scores))) for _ in range(shuffles)]
    chance = pd.DataFrame(shuffled, columns=list(HYPER_PARAMETERS)).quantile(0.95)
    table = pd.DataFrame({"importance": pd.Series(pedanova(judged, scores)), "by_chance": chance})
    table = table.rename_axis("name").reset_index()
    return table.sort_values("importance", ascending=False, ignore_index=True)


def pedanova(trials: "DataFrame", scores: Iterable[float]) -> dict[str, float]:
    """Return each hyperparameter's importance, given one score per trial.

    The search space is the range of values in the trials.
    """
    optuna = load_optuna()
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    trials = trials[[*HYPER_PARAMETERS]].astype({"n_heads": int, "n_layers": int, "max_tokens": int})
    space: dict[str, Any] = {}
    for name in HYPER_PARAMETERS:
        values = sorted(set(trials[name].tolist()))
        if name in ("n_heads", "max_tokens"):
            space[name] = CategoricalDistribution(values)
        else:
            kind = IntDistribution if name == "n_layers" else FloatDistribution
            space[name] = kind(values[0], values[-1], log=name == "peak_rate")
    study = optuna.create_study(direction="maximize")
    for params, score in zip(trials.to_dict("records"), scores, strict=True):
        study.add_trial(optuna.trial.create_trial(params=params, distributions=space, value=float(score)))
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=BEST_SHARE)
    return optuna.importance.get_param_importances(study, evaluator=evaluator, normalize=False)
