"""A search for hyper-parameters that can be killed, shared among processes, and believed.

A search is a folder. `search.json` says what is searched and how, `search.db` holds every trial (Optuna, in SQLite),
`trials/` and `finalists/` the log and the metrics of each training, and `trials.csv` and `finalists.csv` are the tables
that remain. Each trial is a training of the project's own trainer. Any number of processes may work on the folder; what
one of them leaves unfinished, because it was killed or the machine stopped, the next one takes up after the last
finished epoch.

    search("runs/search")                       # 20 trials on picture captions, then three finalists with three seeds
    results = read_search("runs/search")        # at any time, also while it runs
"""

import gc
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from transformer_lab.data import load_corpus
from transformer_lab.errors import InputError
from transformer_lab.files import replacing, writing
from transformer_lab.training import DivergedError, Preset, find_preset, read_metrics, train
from transformer_lab.training.records import command_line, commit, installed, read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optuna import Study, Trial
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial
    from pandas import DataFrame

HYPER_PARAMETERS = ("n_heads", "n_layers", "peak_rate", "max_tokens", "dropout", "label_smoothing")
SAMPLERS = ("random", "tpe")
WORDS = 8  # of the longest German caption in a search on `captions`: a small model learns such in seconds
HELD_OUT = 200  # captions to validate on: enough to tell trials apart, and quickly translated
STARTUP_TRIALS = 5  # trials that are trained to their end before any other is pruned
BEST_SHARE = 0.25  # of the trials: where do they lie, compared with all?
LOCK_SECONDS = 300  # the longest that processes wait for each other; they hold the lock for milliseconds
SILENCE = 900  # seconds in which a trial on another machine must have written something
LIVES = 3  # a trial whose process has died so often is not tried again: it may be what kills them


def load_optuna() -> ModuleType:
    """Optuna, quiet.

    Raises:
        InputError: it does not load.
    """
    try:
        import optuna
    except ImportError as error:
        raise InputError(
            f"Optuna does not load ({error}): run python -m pip install optuna, the extra `search`"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def base_preset(corpus: str = "captions") -> Preset:
    """What a trial is trained with, but for the six numbers that are searched.

    On `captions` a trial takes seconds: 3,000 captions of at most 8 words, a model of width 64. On any other corpus it
    is the preset `laptop` for 6 instead of 15 epochs, so that a search takes hours. Either is trained with Adam: the
    range of rates that is searched is Adam's.
    """
    if corpus == "captions":
        small = {"train_limit": 3000, "vocab_size": 1000, "d_model": 64, "d_ff": 128, "epochs": 4, "max_length": 32}
        return replace(find_preset("tour"), name="search", **small, max_tokens=512, warmup_steps=50)
    adam = {"optimizer": "adam", "peak_rate": 3e-3, "weight_decay": 0.0}
    short = {"epochs": 6, "validate_every": 1, "average": 1, "beam_size": 1}
    return replace(find_preset("laptop"), name="search", corpus=corpus, **adam, **short)


@dataclass(frozen=True)
class Plan:
    """What a search does. Kept in `search.json`: whoever joins or resumes it must mean the same.

    Raises:
        InputError: a value that no search can have.
    """

    preset: Preset
    trials: int = 20
    sampler: str = "random"  # of SAMPLERS
    prune: bool = True  # stop trials that are below the median of the finished ones after the same epoch
    finalists: int = 3  # the best so many are trained again ...
    seeds: int = 3  # ... with so many other seeds each
    source: str = "de"
    target: str = "en"
    data_dir: str | None = None

    def __post_init__(self) -> None:
        for name, least in (("trials", 1), ("finalists", 0), ("seeds", 1)):
            if getattr(self, name) < least:
                raise InputError(f"{name} is {getattr(self, name)}, but must be at least {least}")
        if self.sampler not in SAMPLERS:
            raise InputError(f"sampler is {self.sampler!r}, but must be one of: {', '.join(SAMPLERS)}")
        if self.preset.schedule != "linear":
            raise InputError(
                f"the search looks for peak_rate, which the schedule {self.preset.schedule} does not have: set "
                "schedule to linear"
            )
        if self.preset.validate_every != 1:
            raise InputError(
                f"validate_every is {self.preset.validate_every}, but trials are compared after every epoch: set it "
                "to 1"
            )

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"preset": asdict(self.preset) | {"betas": list(self.preset.betas)}}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Plan":
        """Raises InputError where the file is not what `to_json` has written."""
        try:
            preset = Preset(**content["preset"] | {"betas": tuple(content["preset"]["betas"])})
            return cls(**dict(content) | {"preset": preset})
        except (KeyError, TypeError) as error:
            raise InputError(
                f"search.json is not the plan of a search ({error}): start anew in another folder"
            ) from None

    def space(self) -> dict[str, "BaseDistribution"]:
        """Where trials are drawn from: what a factor changes on a logarithmic scale, the rest evenly.

        Rate, batch and depth lie around those of the preset; no smaller batch is drawn than the longest pair may need.
        """
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        preset = self.preset
        heads = [count for count in (1, 2, 4, 8) if preset.d_model % count == 0]
        batches = [preset.max_tokens // 4, preset.max_tokens // 2, preset.max_tokens, 2 * preset.max_tokens]
        batches = [size for size in batches if size >= min(preset.max_length, preset.max_tokens)]
        return {
            "n_heads": CategoricalDistribution(heads),
            "n_layers": IntDistribution(1, preset.n_layers + 1),
            "peak_rate": FloatDistribution(preset.peak_rate / 10, preset.peak_rate * 10, log=True),
            "max_tokens": CategoricalDistribution(batches),
            "dropout": FloatDistribution(0.0, 0.3),
            "label_smoothing": FloatDistribution(0.0, 0.3),
        }

    def preset_of(self, chosen: Mapping[str, Any], seed: int) -> Preset:
        """The preset of a trial. The warm-up takes as many sentences with large batches as with small ones."""
        warmup = round(self.preset.warmup_steps * self.preset.max_tokens / chosen["max_tokens"])
        return replace(self.preset, **chosen, warmup_steps=max(1, warmup), seed=seed)


# --- the folder -------------------------------------------------------------------------------------------------------


def search(
    folder: str | Path,
    plan: Plan | None = None,
    workers: int = 1,
    device: str | None = None,
    on_trial: Callable[[str], None] | None = None,
) -> "Results":
    """Search until the plan is fulfilled, and give back what was found.

    The same call again goes on where the last one was stopped or killed, and from another process it joins in. A trial
    that diverges or runs out of memory is recorded as such, and the search goes on.

    Args:
        folder: a new one, or that of a search to go on with or to join.
        plan: what to do; without, what the folder's search does, or the standard search on `captions`. Of a search that
            was begun, the numbers of trials, finalists and seeds may be changed, and nothing else.
        workers: processes that work at once. One works in this process; more are started, and one that is killed, by
            the system for want of memory for instance, is replaced.
        device: such as `"cpu"` or `"cuda:1"`; without, a GPU if there is one.
        on_trial: is called with a line on every trial that has ended. With several workers, the lines go to stderr.

    Raises:
        InputError: Optuna is missing, the plan is not that of the folder's search, or no training can be done.
    """
    load_optuna()
    if workers < 1:
        raise InputError(f"workers is {workers}, but must be at least 1")
    folder = Path(folder)
    open_folder(folder, plan)
    try:
        if workers == 1:
            work(folder, device, on_trial)
        else:
            keep_working(folder, workers, device)
    except BaseException:
        with suppress(Exception):  # what has stopped the search is to be heard, not what that has led to
            write_tables(folder)
        raise
    return write_tables(folder)


def open_folder(folder: Path, plan: Plan | None) -> Plan:
    """Make `folder` that of a search with this plan, or make sure that it is.

    Raises:
        InputError: it is that of another search, or cannot be written.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with only_one(folder):
        if not (folder / "search.json").exists():
            if (folder / "search.db").exists() or (folder / "training.json").exists():
                raise InputError(
                    f"{folder} holds something else than a search: give another folder (on the command line: --output)"
                )
            plan = plan or Plan(base_preset())
            if plan.preset.corpus != "captions" or {plan.source, plan.target} != {"de", "en"}:
                load_corpus(plan.preset.corpus, plan.source, plan.target, plan.data_dir)  # or says what is wrong
            keep_plan(folder, plan)
        else:
            begun = read_plan(folder)
            if plan is None:
                return begun
            may_differ = {"trials": plan.trials, "finalists": plan.finalists, "seeds": plan.seeds}
            compare_plans(replace(begun, **may_differ), plan, folder)
            if plan != begun:
                keep_plan(folder, plan)
    return plan


def compare_plans(begun: Plan, asked: Plan, folder: Path) -> None:
    """Raises InputError, with what differs, if the search in the folder does something else than is asked for."""
    begun_as, asked_for = (plan.to_json() | plan.to_json()["preset"] for plan in (begun, asked))
    differing = "; ".join(
        f"{name} was {value}, now {asked_for[name]}"
        for name, value in begun_as.items()
        if name != "preset" and asked_for[name] != value
    )
    if differing:
        raise InputError(
            f"{folder} holds a search of something else ({differing}): give the same values to go on with it, or "
            "another folder (on the command line: --output)"
        )


def keep_plan(folder: Path, plan: Plan) -> None:
    circumstances = {
        "command": command_line(),
        "commit": commit(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__}
        | {name: installed(name) for name in ("transformer-lab", "optuna")},
        "threads": torch.get_num_threads(),
    }
    write_json(folder / "search.json", {"plan": plan.to_json(), "circumstances": circumstances})


def read_plan(folder: Path) -> Plan:
    """Raises InputError where the folder holds no search."""
    if not (folder / "search.json").exists():
        raise InputError(f"{folder} holds no search: there is no search.json in it")
    return Plan.from_json(read_json(folder / "search.json").get("plan", {}))


@contextmanager
def only_one(folder: Path) -> "Iterator[None]":
    """One process at a time in here. The lock of a process that dies is gone with it."""
    from filelock import FileLock, Timeout

    try:
        with writing(folder), FileLock(folder / "search.lock", timeout=LOCK_SECONDS):
            yield
    except Timeout:
        raise InputError(
            f"another process has held {folder / 'search.lock'} for {LOCK_SECONDS} s: end it, then start this again"
        ) from None


def open_studies(folder: Path, plan: Plan) -> dict[str, "Study"]:
    """The trials of the folder, as `search` and as `finalists`. To open them takes a good part of a second.

    Raises:
        InputError: the file is no database of Optuna, or cannot be written.
    """
    optuna = load_optuna()
    from sqlalchemy.exc import DatabaseError

    path = folder / "search.db"
    pruner = optuna.pruners.NopPruner()
    median = optuna.pruners.MedianPruner(STARTUP_TRIALS, n_warmup_steps=-(-plan.preset.epochs // 3))
    try:
        storage = optuna.storages.RDBStorage(
            f"sqlite:///{path.resolve()}", engine_kwargs={"connect_args": {"timeout": LOCK_SECONDS}}
        )
        return {
            name: optuna.create_study(
                storage=storage,
                study_name=name,
                direction="maximize",
                pruner=median if plan.prune and name == "search" else pruner,
                load_if_exists=True,
            )
            for name in ("search", "finalists")
        }
    except DatabaseError as error:
        reason = " ".join(str(error.orig).split())
        raise InputError(f"{path} cannot be used ({reason}): mend or remove it, or give a new folder") from None


# --- working ----------------------------------------------------------------------------------------------------------


def work(folder: str | Path, device: str | None = None, on_trial: Callable[[str], None] | None = None) -> None:
    """Train trials of the search in `folder` until none is left, then its finalists. What a worker process does.

    Raises:
        InputError: no training can be done; the trial waits for the next worker.
    """
    folder = Path(folder)
    plan = read_plan(folder)
    with only_one(folder):  # tables are made by one process
        studies = open_studies(folder, plan)
        own_corpus(folder, plan)
    for name, study in studies.items():
        if name == "finalists":
            with only_one(folder):
                line_up_finalists(studies["search"], study, plan)
        told = False
        while True:
            with only_one(folder):
                trial, others = next_trial(study, plan, folder, draw=name == "search")
            if trial is None and not others:
                break
            if trial is None:
                if on_trial and not told:
                    on_trial("waiting for other processes to end their trials")
                told = True
                time.sleep(0.5)  # another process may die, and leave its trial to this one
                continue
            said = run_trial(trial, study, plan, folder, device)
            if on_trial:
                on_trial(f"{'trial' if name == 'search' else 'finalist'} {trial.number}: {said}")


def own_corpus(folder: Path, plan: Plan) -> None:
    """Write the short captions that all trials learn from: 6,926 pairs, unless the preset takes fewer."""
    target = folder / "corpus"
    if plan.preset.corpus != "captions" or target.exists():
        return
    from transformer_lab.data.captions import load_captions

    short = [caption for caption in load_captions() if len(caption.german_tokens) <= WORDS]
    end = plan.preset.train_limit and 2 * HELD_OUT + plan.preset.train_limit  # None: all of them
    splits = {"test": short[:HELD_OUT], "val": short[HELD_OUT : 2 * HELD_OUT], "train": short[2 * HELD_OUT : end]}
    unfinished = folder / "corpus.part"
    with writing(unfinished):
        unfinished.mkdir(exist_ok=True)
        for name, captions in splits.items():
            for code, side in (("de", "german"), ("en", "english")):
                text = "".join(f"{getattr(caption, side)}\n" for caption in captions)
                (unfinished / f"{name}.{code}").write_text(text, encoding="utf-8")
        unfinished.rename(target)


def this_process() -> list[Any]:
    """What tells this process from every other, also from a later one with the same number."""
    import psutil

    process = psutil.Process()
    return [platform.node(), process.pid, process.create_time()]


def is_alive(trial: "FrozenTrial", folder: Path) -> bool:
    """Whether the process that has signed a trial is still at work on it.

    Of another machine, its processes cannot be asked. There a trial lives while it writes: it does at every step.
    """
    import psutil

    if "worker" not in trial.user_attrs:  # it died between the drawing of its trial and signing it
        return False
    node, number, created = trial.user_attrs["worker"]
    if node != platform.node():
        where = folder / trial.user_attrs["folder"]
        written = [path.stat().st_mtime for path in where.glob("*")]
        return time.time() - max([trial.datetime_start.timestamp(), *written]) < SILENCE
    try:
        found = psutil.Process(number)
        return abs(found.create_time() - created) < 1 and found.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def next_trial(study: "Study", plan: Plan, folder: Path, draw: bool) -> tuple["Trial | None", bool]:
    """A trial for this process, signed by it, and whether other processes are at work on some. Call under the lock.

    Args:
        draw: whether to draw new ones, up to the number that the plan has.
    """
    optuna = load_optuna()
    states = optuna.trial.TrialState
    for trial in study.get_trials(deepcopy=False, states=(states.RUNNING,)):
        if not is_alive(trial, folder):
            put_back(study, trial, died=True)
    trials = study.get_trials(deepcopy=False)
    counted = [trial for trial in trials if not trial.user_attrs.get("put_back")]
    if any(trial.state == states.WAITING for trial in trials):
        trial = study.ask()
    elif draw and len(counted) < plan.trials:
        # The n-th trial has a seed of its own, so that processes side by side do not draw the same ones, and a search
        # that was killed draws on as if it had not been.
        seed = (plan.preset.seed * 100_003 + len(counted)) % 2**32  # as far as NumPy's go
        study.sampler = (
            optuna.samplers.RandomSampler(seed) if plan.sampler == "random" else optuna.samplers.TPESampler(seed=seed)
        )
        trial = study.ask(fixed_distributions=plan.space())
    else:
        return None, any(trial.state == states.RUNNING for trial in trials)
    own = {"seed": plan.preset.seed, "folder": f"{'trials' if draw else 'finalists'}/{trial.number:03}"}
    for name in own.keys() - trial.user_attrs.keys():  # a finalist has its seed, what was put back has both
        trial.set_user_attr(name, own[name])
    trial.set_user_attr("worker", this_process())
    return trial, True


def put_back(study: "Study", trial: "FrozenTrial", died: bool) -> None:
    """End a trial that its process has left, and let another with the same numbers, folder and past wait for the next.

    Call under the lock.

    Args:
        died: whether the process has died. A trial that LIVES processes have died of is not tried again.
    """
    optuna = load_optuna()
    kept = {name: value for name, value in trial.user_attrs.items() if name != "worker"}
    kept["deaths"] = kept.get("deaths", 0) + died
    identity = trial._trial_id
    # A trial is not complete if its process died while the numbers were drawn. They will be drawn again.
    complete = set(trial.params) == set(HYPER_PARAMETERS)
    waiting = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.WAITING,))
    there = "folder" in kept and any(other.user_attrs.get("folder") == kept["folder"] for other in waiting)
    if kept["deaths"] < LIVES and complete and not there:
        again = optuna.trial.create_trial(
            state=optuna.trial.TrialState.WAITING,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs=kept,
            intermediate_values=trial.intermediate_values,
        )
        study.add_trial(again)
    if kept["deaths"] >= LIVES:
        message = f"its process died {LIVES} times without a word: the system may have killed it for want of memory"
        study._storage.set_trial_user_attr(identity, "failure", "lost")
        study._storage.set_trial_user_attr(identity, "message", message)
    else:
        study._storage.set_trial_user_attr(identity, "put_back", True)
    study.tell(trial.number, state=optuna.trial.TrialState.FAIL)


def line_up_finalists(found: "Study", finalists: "Study", plan: Plan) -> None:
    """Let the best trials wait to be trained again, each with other seeds than the one it was found with.

    The value that a trial was chosen by is too good in the mean: it was chosen for it.
    """
    optuna = load_optuna()
    complete = optuna.trial.TrialState.COMPLETE
    trials = sorted(found.get_trials(deepcopy=False, states=(complete,)), key=lambda trial: -trial.value)
    there = {(trial.user_attrs["of"], trial.user_attrs["seed"]) for trial in finalists.get_trials(deepcopy=False)}
    for trial in trials[: plan.finalists]:
        for seed in range(plan.preset.seed + 1, plan.preset.seed + 1 + plan.seeds):
            if (trial.number, seed) not in there:
                waiting = optuna.trial.create_trial(
                    state=optuna.trial.TrialState.WAITING,
                    params=trial.params,
                    distributions=trial.distributions,
                    user_attrs={"of": trial.number, "seed": seed},
                )
                finalists.add_trial(waiting)


def frozen(trial: "Trial") -> "FrozenTrial":
    """The trial as it stands in the database."""
    return trial.study.get_trials(deepcopy=False)[trial.number]


def give_up(trial: "Trial", folder: Path) -> None:
    with only_one(folder):
        put_back(trial.study, frozen(trial), died=False)


def run_trial(trial: "Trial", study: "Study", plan: Plan, folder: Path, device: str | None) -> str:
    """Train a trial to whatever end it has, record it, and say it in a line.

    Raises:
        InputError: no training can be done with what was given; the trial is put back, as with an interruption.
    """
    optuna = load_optuna()
    states = optuna.trial.TrialState
    where = folder / trial.user_attrs["folder"]
    start = time.perf_counter()
    failed = None
    try:
        value = train_trial(trial, plan, where, folder, device)
    except optuna.TrialPruned:
        epoch, bleu = max(frozen(trial).intermediate_values.items())
        state, value, said = states.PRUNED, None, f"pruned after epoch {epoch} at BLEU {bleu:.1f}"
    except DivergedError as error:
        state, value, failed = states.FAIL, None, ("diverged", str(error))
    except Exception as error:
        if not is_out_of_memory(error):
            give_up(trial, folder)
            raise
        state, value, failed = states.FAIL, None, ("out of memory", first_line(error))
    except BaseException:  # Ctrl-C
        give_up(trial, folder)
        raise
    else:
        state, said = states.COMPLETE, f"BLEU {value:.1f}"
    if failed:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        for name, text in zip(("failure", "message"), failed, strict=True):
            trial.set_user_attr(name, text)
        said = f"{failed[0]} ({failed[1]})"
    trial.set_user_attr("seconds", trial.user_attrs.get("seconds", 0) + round(time.perf_counter() - start, 1))
    study.tell(trial, value, state=state)
    drop_weights(where)
    chosen = ", ".join(f"{name} {number:.4g}" for name, number in trial.params.items())
    return f"{said}; {chosen}"


def train_trial(trial: "Trial", plan: Plan, where: Path, folder: Path, device: str | None) -> float:
    """The validation BLEU after the last epoch, greedy, of the training that a trial asks for.

    Raises:
        optuna.TrialPruned: it was below the median.
        InputError, MemoryError, RuntimeError: as `train`.
    """
    optuna = load_optuna()
    preset = plan.preset_of(trial.params, trial.user_attrs["seed"])
    if preset.corpus == "captions":
        preset = replace(preset, corpus=str(folder / "corpus"))

    def look(record: dict[str, Any]) -> None:
        if record["kind"] == "epoch":
            if record["epoch"] not in reported:  # of a trial that was put back, some epochs may be done again
                trial.report(record["validation_bleu"], record["epoch"])
            if trial.should_prune():
                raise optuna.TrialPruned

    reported = set(frozen(trial).intermediate_values)
    with writing(where):
        where.mkdir(parents=True, exist_ok=True)
        log = open(where / "log.txt", "a", encoding="utf-8")  # noqa: SIM115 - closed by the next line
    with log, redirect_stderr(log):
        train(
            preset,
            where,
            data_dir=plan.data_dir,
            resume=(where / "training.json").exists(),
            source=plan.source,
            target=plan.target,
            on_log=look,
            device=device,
        )
    epochs = [record for record in read_metrics(where / "metrics.jsonl") if record["kind"] == "epoch"]
    return epochs[-1]["validation_bleu"]


def is_out_of_memory(error: Exception) -> bool:
    """Whether a training has failed for want of memory, of the GPU or of the machine."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)  # torch on a CPU has no class for it


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def drop_weights(where: Path) -> None:
    """A search keeps records, not models: hundreds of them would fill a disk."""
    shutil.rmtree(where / "checkpoints", ignore_errors=True)
    (where / "weights.safetensors").unlink(missing_ok=True)


def keep_working(folder: Path, workers: int, device: str | None) -> None:
    """Let so many processes work on the folder until the plan is fulfilled. One that was killed is replaced.

    Raises:
        InputError: a process has ended for a reason that it has said.
    """
    threads = max(1, torch.get_num_threads() // workers)
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "transformer_lab.electives.search", str(folder), *([device] if device else [])]

    def start() -> subprocess.Popen:
        return subprocess.Popen(command, env=environment)

    plan = read_plan(folder)
    spare = LIVES * (plan.trials + plan.finalists * plan.seeds)  # processes; more cannot die of their trials
    at_work = [start() for _ in range(workers)]
    try:
        while at_work:
            time.sleep(0.2)
            for process in [process for process in at_work if process.poll() is not None]:
                at_work.remove(process)
                spare -= process.returncode < 0  # killed
                if process.returncode < 0 and spare >= 0:
                    at_work.append(start())
                elif process.returncode:
                    raise InputError(f"a worker of the search in {folder} has ended: its last lines say why")
    finally:
        for process in at_work:
            process.terminate()
        for process in at_work:
            process.wait()


# --- what was found ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Results:
    """What a search has found.

    Both tables have a row for each trial, with its `number`, the six hyper-parameters, and

    - `state`: `complete`, `pruned`, `diverged`, `out of memory`, `lost` (its process died LIVES times) or `running`;
    - `bleu`: on the validation set, greedy: after the last epoch; of a pruned trial after the last that it had, so that
      it could be more; 0 of a diverged one, which translates nothing; no number (NaN) of all others;
    - `epochs` and `seconds` that it had, `curve`, the BLEU after each epoch, and `message`, why it failed.

    `finalists` has `of`, the number of the trial that is trained again, and its `seed`.
    """

    plan: Plan
    circumstances: dict[str, Any]
    trials: "DataFrame"
    finalists: "DataFrame"

    def conclusion(self) -> str:
        """What can be said, in some lines of plain text: how each number goes with BLEU, and the finalists."""
        from transformer_lab.electives.search_statistics import correlation_interval

        counts = self.trials["state"].value_counts()
        lines = [f"{len(self.trials)} trials: " + ", ".join(f"{count} {state}" for state, count in counts.items())]
        judged = self.trials.dropna(subset="bleu")
        lines.append(f"rank correlation with BLEU over {len(judged)} of them, and 95 % interval")
        for name in HYPER_PARAMETERS:
            try:
                correlation, low, high = correlation_interval(judged[name], judged["bleu"])
            except ValueError as error:
                lines.append(f"  {name:16} none: {error}")
            else:
                sure = "" if low * high > 0 else "   could be none"
                lines.append(f"  {name:16} {correlation:+.2f}  from {low:+.2f} to {high:+.2f}{sure}")
        for number, runs in self.finalists.groupby("of", sort=False):
            found = self.trials.set_index("number").loc[number, "bleu"]
            each, mean = ", ".join(f"{bleu:.1f}" for bleu in runs["bleu"]), runs["bleu"].mean()
            lines.append(f"trial {number}: found with {found:.1f}; with other seeds {each}, mean {mean:.1f}")
        return "\n".join(lines)


def read_search(folder: str | Path) -> Results:
    """What the search in `folder` has found so far: from its database, or where it has none from its two tables.

    Raises:
        InputError: the folder holds no search.
    """
    folder = Path(folder)
    plan = read_plan(folder)
    circumstances = read_json(folder / "search.json")["circumstances"]
    if (folder / "search.db").exists():
        with only_one(folder):  # a worker may just be making the tables
            studies = open_studies(folder, plan)
        found = [table_of(study) for study in studies.values()]
    else:
        found = [read_table(folder / f"{name}.csv") for name in ("trials", "finalists")]
    return Results(plan, circumstances, found[0], found[1])


COLUMNS = ("number", "of", "seed", "state", *HYPER_PARAMETERS, "bleu", "epochs", "seconds", "curve", "message")


def table_of(study: "Study") -> "DataFrame":
    """The trials of a study as `Results` describes them. One that was put back is there once, as what became of it."""
    import pandas as pd

    optuna = load_optuna()
    rows = []
    for trial in study.get_trials(deepcopy=False):
        if trial.user_attrs.get("put_back") or trial.state == optuna.trial.TrialState.WAITING:
            continue
        curve = [value for _, value in sorted(trial.intermediate_values.items())]
        state = trial.user_attrs.get("failure", trial.state.name.lower())
        bleu = {"complete": trial.value, "diverged": 0.0}.get(state, curve[-1] if state == "pruned" else None)
        rows.append(
            {name: trial.user_attrs.get(name) for name in ("of", "seed", "seconds", "message")}
            | trial.params
            | {"number": trial.number, "state": state, "bleu": bleu, "epochs": len(curve), "curve": curve}
        )
    columns = [name for name in COLUMNS if name != "of" or study.study_name == "finalists"]
    return pd.DataFrame(rows, columns=columns).astype({"bleu": float, "seconds": float})


def write_tables(folder: Path) -> Results:
    """Write what the search has found so far as tables for people and other programs, and give it back."""
    results = read_search(folder)
    for name, table in (("trials", results.trials), ("finalists", results.finalists)):
        written = table.assign(curve=[" ".join(f"{bleu:.2f}" for bleu in curve) for curve in table["curve"]])
        with replacing(folder / f"{name}.csv") as unfinished:
            written.to_csv(unfinished, index=False, float_format="%.6g")
    return results


def read_table(path: Path) -> "DataFrame":
    """Raises InputError where there is no such table."""
    import pandas as pd

    if not path.exists():
        raise InputError(f"there is no {path}: it is a part of what a search has found")
    table = pd.read_csv(path, dtype={"curve": str, "message": str}, keep_default_na=True)
    curves = [[float(bleu) for bleu in curve.split()] for curve in table["curve"].fillna("")]
    return table.assign(curve=pd.Series(curves, dtype=object))


def recorded_search() -> Results | None:
    """The search that was recorded with this course, or None where the folder `results` is not at hand."""
    folders = sorted((Path(__file__).resolve().parents[2] / "results").glob("*_search"))
    return read_search(folders[-1]) if folders else None


def importance(trials: "DataFrame", shuffles: int = 0, seed: int = 0) -> "DataFrame":
    """How much each hyper-parameter decides whether a trial is among the best quarter, and how much it would by chance.

    PED-ANOVA (Watanabe et al. 2023), as Optuna has it. It compares where the best quarter lies with where all lie: 0 is
    no difference.

    Args:
        trials: a table of `Results`; rows without a BLEU are left out.
        shuffles: how often to compute the same with the BLEUs dealt out anew among the trials.

    Returns:
        A row for each hyper-parameter, most important first: `importance`, and `by_chance`, below which 95 % of the
        shuffled ones are (NaN without shuffles).

    Raises:
        InputError: there are fewer than 8 trials with a BLEU.
    """
    import pandas as pd

    judged = trials.dropna(subset="bleu")
    if len(judged) < 8:
        raise InputError(f"{len(judged)} trials with a BLEU are too few to say what matters: 8 are the least")
    measured = pedanova(judged, judged["bleu"])
    draw = random.Random(seed)
    dealt = [pedanova(judged, draw.sample(list(judged["bleu"]), len(judged))) for _ in range(shuffles)]
    chance = pd.DataFrame(dealt, columns=list(HYPER_PARAMETERS)).quantile(0.95)
    table = pd.DataFrame({"importance": pd.Series(measured), "by_chance": chance}).rename_axis("name").reset_index()
    return table.sort_values("importance", ascending=False, ignore_index=True)


def pedanova(trials: "DataFrame", bleu: Any) -> dict[str, float]:
    """The importances if the trials had these BLEUs. The space is what the trials cover."""
    optuna = load_optuna()
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    kinds = {
        "n_heads": CategoricalDistribution(sorted(map(int, trials["n_heads"].unique()))),
        "n_layers": IntDistribution(int(trials["n_layers"].min()), int(trials["n_layers"].max())),
        "peak_rate": FloatDistribution(float(trials["peak_rate"].min()), float(trials["peak_rate"].max()), log=True),
        "max_tokens": CategoricalDistribution(sorted(map(int, trials["max_tokens"].unique()))),
        "dropout": FloatDistribution(float(trials["dropout"].min()), float(trials["dropout"].max())),
        "label_smoothing": FloatDistribution(
            float(trials["label_smoothing"].min()), float(trials["label_smoothing"].max())
        ),
    }
    whole = {"n_heads", "n_layers", "max_tokens"}
    study = optuna.create_study(direction="maximize")
    for (_, row), value in zip(trials.iterrows(), bleu, strict=True):
        params = {name: int(row[name]) if name in whole else float(row[name]) for name in kinds}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=kinds, value=float(value)))
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=BEST_SHARE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # of `normalize`
        return optuna.importance.get_param_importances(study, evaluator=evaluator, normalize=False)


def main() -> None:
    """A worker of `keep_working`. It says what came of each trial, and of itself, on stderr."""

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt  # the trial is put back, not lost

    signal.signal(signal.SIGTERM, stop)
    try:
        work(sys.argv[1], *sys.argv[2:3], on_trial=say)
    except InputError as error:
        say(f"transformer-lab: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
