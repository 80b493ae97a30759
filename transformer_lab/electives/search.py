"""A hyperparameter search that survives being killed and that several processes can share.

A search is a folder. `search.json` holds its plan, and `search.db` holds every trial (Optuna, in SQLite). `trials/` and
`finalists/` have the log and the metrics of each training run, and `trials.csv` and `finalists.csv` are the resulting
tables. Each trial is a run of the project's own trainer. Any number of processes may work on the folder. If one of them
is killed or its machine stops, the next one resumes its trial after the last finished epoch.

    search("runs/search")                       # 20 trials on image captions, then three finalists with three seeds
    results = read_search("runs/search")        # at any time, also while it runs
"""

import gc
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from transformer_lab.data import load_corpus
from transformer_lab.electives.search_tables import (
    HYPER_PARAMETERS,
    LIVES,
    Results,
    current_trials,
    importance,
    load_optuna,
    read_table,
    table_of,
)
from transformer_lab.errors import InputError
from transformer_lab.files import replacing, writing
from transformer_lab.presets import MOST_WORKERS
from transformer_lab.shipped import shipped
from transformer_lab.training import DivergedError, Preset, find_preset, read_metrics, train
from transformer_lab.training.records import differing_values, read_json, software, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optuna import Study, Trial
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

__all__ = ["HYPER_PARAMETERS", "Results", "importance"]  # they belong to a search, wherever they are defined

SAMPLERS = ("random", "tpe")
WORDS = 8  # in the longest German caption of a search on `captions`: a small model learns those in seconds
HELD_OUT = 200  # validation captions: enough to tell trials apart, and quickly translated
STARTUP_TRIALS = 5  # trials that finish before any other trial may be pruned
LOCK_SECONDS = 300  # the longest wait for another process, which holds the lock for milliseconds


def base_preset(corpus: str = "captions") -> Preset:
    """Return the preset that all trials share, apart from the six hyperparameters that are searched.

    On `captions` a trial takes seconds: 3,000 captions of at most 8 words, a model of width 64. Any other corpus gets
    the preset `laptop` with 6 instead of 15 epochs, so a search takes hours. Both train with Adam, because the range of
    learning rates that is searched is Adam's.
    """
    if corpus == "captions":
        small = {"train_limit": 3000, "vocab_size": 1000, "d_model": 64, "d_ff": 128, "epochs": 4, "max_length": 32}
        return replace(find_preset("tour"), name="search", **small, max_tokens=512, warmup_steps=50)
    adam = {"optimizer": "adam", "peak_rate": 3e-3, "weight_decay": 0.0}
    short = {"epochs": 6, "validate_every": 1, "average": 1, "beam_size": 1}
    return replace(find_preset("laptop"), name="search", corpus=corpus, **adam, **short)


@dataclass(frozen=True)
class Plan:
    """The plan of a search. It is kept in `search.json`, and a process that joins or resumes must have the same one.

    Raises:
        InputError: a value that no search can have.
    """

    preset: Preset
    trials: int = 20
    sampler: str = "random"  # one of SAMPLERS
    prune: bool = True  # stop a trial whose BLEU is below the median of the finished ones after the same epoch
    finalists: int = 3  # the number of best trials that are repeated ...
    seeds: int = 3  # ... with this many other seeds each
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
        """Return the distributions that trials are sampled from: the learning rate on a log scale, the rest evenly.

        Learning rate, batch size and depth lie around those of the preset. No batch is smaller than the longest
        sentence pair may need.
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
        """Return the preset of a trial. The warm-up sees the same number of sentences whatever the batch size."""
        warmup = round(self.preset.warmup_steps * self.preset.max_tokens / chosen["max_tokens"])
        return replace(self.preset, **chosen, warmup_steps=max(1, warmup), seed=seed)


# --- the folder -------------------------------------------------------------------------------------------------------


def search(
    folder: str | Path,
    plan: Plan | None = None,
    workers: int = 1,
    device: str | None = None,
    on_trial: Callable[[str], None] | None = None,
    advance: Callable[[int, int], None] | None = None,
) -> Results:
    """Search until the plan is fulfilled, and return the results.

    Call it again to resume a search that was stopped or killed. Call it from another process to join a search that is
    running. A trial that diverges or runs out of memory is recorded as such, and the search goes on.

    Args:
        folder: A new folder, or that of a search to resume or to join.
        plan: What to do. The default is the plan of the folder's search, or a standard search on `captions`. The
            numbers of trials, finalists and seeds of an existing search may be changed, and nothing else.
        workers: The number of processes that train at once. A single worker is this process. Several workers are
            started as processes of their own, and one that is killed, perhaps for want of memory, is replaced.
        device: For example `"cpu"` or `"cuda:1"`; the default is a GPU if there is one.
        on_trial: Called with one line about every trial that has ended. Several workers print it to stderr instead.
        advance: Called with the number of trials that have ended and the number planned, finalists included. Several
            workers don't call it.

    Raises:
        InputError: Optuna is missing, the plan is not that of the folder's search, or no training is possible.
    """
    load_optuna()
    if not 1 <= workers <= MOST_WORKERS:
        raise InputError(f"`workers` must be from 1 to {MOST_WORKERS}; got {workers}")
    folder = Path(folder)
    open_folder(folder, plan)
    try:
        if workers == 1:
            work(folder, device, on_trial, advance)
        else:
            keep_working(folder, workers, device)
    except BaseException:
        with suppress(Exception):  # report what stopped the search, not what followed from it
            write_tables(folder)
        raise
    return write_tables(folder)


def open_folder(folder: Path, plan: Plan | None) -> None:
    """Write the plan into a new folder, or make sure that it is the plan of the folder's search.

    Raises:
        InputError: the folder holds something else, its search has another plan, or it cannot be written.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with only_one(folder):
        begun = read_plan(folder) if (folder / "search.json").exists() else None
        plan = plan or begun or Plan(base_preset())
        if begun:
            free = {"trials": plan.trials, "finalists": plan.finalists, "seeds": plan.seeds}
            plans = (replace(begun, **free), plan)
            was, now = (asdict(each) | asdict(each.preset) | {"preset": None} for each in plans)
            if differing := differing_values(was, now):
                raise InputError(
                    f"{folder} holds a search of something else ({differing}): give the same values to go "
                    "on with it, or another folder (on the command line: --output)"
                )
        elif (folder / "search.db").exists() or (folder / "training.json").exists():
            raise InputError(
                f"{folder} holds something else than a search: give another folder (on the command line: --output)"
            )
        elif plan.preset.corpus != "captions" or {plan.source, plan.target} != {"de", "en"}:
            load_corpus(plan.preset.corpus, plan.source, plan.target, plan.data_dir)  # or says what is wrong
        if plan != begun:
            write_json(folder / "search.json", {"plan": asdict(plan), "environment": software("optuna")})


def read_plan(folder: Path) -> Plan:
    """Read the plan of the folder's search.

    Raises:
        InputError: the folder holds no search, or `search.json` is damaged.
    """
    if not (folder / "search.json").exists():
        raise InputError(f"{folder} holds no search: there is no search.json in it")
    try:
        content = read_json(folder / "search.json")["plan"]
        preset = Preset(**content["preset"] | {"betas": tuple(content["preset"]["betas"])})
        return Plan(**content | {"preset": preset})
    except (KeyError, TypeError) as error:
        raise InputError(f"search.json is not the plan of a search ({error}): start anew in another folder") from None


@contextmanager
def only_one(folder: Path) -> "Iterator[None]":
    """Let one process at a time into this block. If that process dies, the system releases its lock."""
    from filelock import FileLock, Timeout

    try:
        with writing(folder), FileLock(folder / "search.lock", timeout=LOCK_SECONDS):
            yield
    except Timeout:
        raise InputError(
            f"another process has held {folder / 'search.lock'} for {LOCK_SECONDS} s: end it, then start this again"
        ) from None


def open_studies(folder: Path, plan: Plan) -> dict[str, "Study"]:
    """Open the folder's database with its studies `trials` and `finalists`. This takes a good part of a second.

    Raises:
        InputError: the file is not an Optuna database, or cannot be written.
    """
    optuna = load_optuna()
    from sqlalchemy.exc import DatabaseError

    path = folder / "search.db"
    median = optuna.pruners.MedianPruner(STARTUP_TRIALS, n_warmup_steps=-(-plan.preset.epochs // 3))
    never = optuna.pruners.NopPruner()
    pruners = {"trials": median if plan.prune else never, "finalists": never}
    try:
        storage = optuna.storages.RDBStorage(
            f"sqlite:///{path.resolve()}", engine_kwargs={"connect_args": {"timeout": LOCK_SECONDS}}
        )
        create = partial(optuna.create_study, storage=storage, direction="maximize", load_if_exists=True)
        return {name: create(study_name=name, pruner=pruner) for name, pruner in pruners.items()}
    except DatabaseError as error:
        reason = " ".join(str(error.orig).split())
        raise InputError(f"{path} cannot be used ({reason}): mend or remove it, or give a new folder") from None


def read_search(folder: str | Path) -> Results:
    """Read the results so far: from the database, or from the two tables if the folder has no database.

    Raises:
        InputError: the folder holds no search.
    """
    folder = Path(folder)
    plan = read_plan(folder)
    if (folder / "search.db").exists():
        with only_one(folder):  # a worker may be creating the database
            studies = open_studies(folder, plan)
        tables = [table_of(study) for study in studies.values()]
    else:
        tables = [read_table(folder / f"{name}.csv") for name in ("trials", "finalists")]
    return Results(plan, read_json(folder / "search.json")["environment"], *tables)


def write_tables(folder: Path) -> Results:
    """Write the results so far as tables for people and other programs, and return them."""
    results = read_search(folder)
    for name, table in (("trials", results.trials), ("finalists", results.finalists)):
        written = table.assign(curve=[" ".join(f"{bleu:.2f}" for bleu in curve) for curve in table["curve"]])
        with replacing(folder / f"{name}.csv") as unfinished:
            written.to_csv(unfinished, index=False, float_format="%.6g")
    return results


def recorded_search() -> Results | None:
    """Return the search that was recorded with this course, or None if the folder `results` is missing."""
    folders = sorted(shipped("results").glob("*_search"))
    return read_search(folders[-1]) if folders else None


# --- the queue of trials ----------------------------------------------------------------------------------------------


def folder_of(trial: "Trial | FrozenTrial", study: "Study", folder: Path) -> Path:
    """Return the folder of a trial. A trial that is retried keeps its number, and with it its folder."""
    return folder / study.study_name / f"{trial.user_attrs['number']:03}"


def next_trial(study: "Study", plan: Plan, folder: Path) -> tuple["Trial", Any] | None:
    """Take the next trial and lock its folder; None if there's nothing to do. Call it inside `only_one`.

    A running trial whose folder isn't locked was left by a process that has died, so it's put back first. Optuna's
    heartbeat can't replace the lock: it fails the trial of a living process that was paused, and it never fails a
    trial whose process died before the first heartbeat.
    """
    optuna = load_optuna()
    from filelock import FileLock, Timeout

    states = optuna.trial.TrialState
    for left in study.get_trials(deepcopy=False, states=(states.RUNNING,)):
        with suppress(Timeout), FileLock(folder_of(left, study, folder) / "trial.lock", timeout=0):
            put_back(study, left.number)
    if not (waiting := study.get_trials(deepcopy=False, states=(states.WAITING,))):
        count = len(current_trials(study))
        if study.study_name == "finalists" or count >= plan.trials:
            return None
        study.enqueue_trial({}, user_attrs={"number": count, "seed": plan.preset.seed})
        waiting = study.get_trials(deepcopy=False, states=(states.WAITING,))
    # Every trial is sampled with a seed of its own, so parallel processes don't sample the same trials, and a search
    # that was killed goes on with the trials it would have had.
    seed = (plan.preset.seed * 100_003 + waiting[0].user_attrs["number"]) % 2**32  # NumPy has no larger seeds
    samplers = optuna.samplers
    study.sampler = samplers.RandomSampler(seed) if plan.sampler == "random" else samplers.TPESampler(seed=seed)
    trial = study.ask(fixed_distributions=plan.space())
    return trial, FileLock(folder_of(trial, study, folder) / "trial.lock").acquire(timeout=0)


def put_back(study: "Study", number: int, interrupted: bool = False) -> None:
    """Fail a running trial, and queue another one with the same hyperparameters, folder and history in its place.

    Call it inside `only_one`. Interruptions don't count as one of the trial's LIVES.
    """
    optuna = load_optuna()
    trial = study.trials[number]
    interruptions = trial.user_attrs["interruptions"] = trial.user_attrs.get("interruptions", 0) + interrupted
    if len(trial.params) < len(HYPER_PARAMETERS):  # its process died while sampling, so sample them all again
        trial.params, trial.distributions = {}, {}
    if current_trials(study)[trial.user_attrs["number"]].number == number:  # not if a process died after the next line
        optuna.storages.RetryHeartbeatStaleTrialCallback(LIVES - 1 + interruptions, True)(study, trial)
    study.tell(number, state=optuna.trial.TrialState.FAIL)


def line_up_finalists(studies: Mapping[str, "Study"], plan: Plan) -> None:
    """Queue the best trials once more, with other seeds. Call it inside `only_one`.

    The score that a trial was selected by is too high on average, because the trial was selected for it.
    """
    complete = [trial for trial in current_trials(studies["trials"]).values() if trial.state.name == "COMPLETE"]
    finalists = current_trials(studies["finalists"]).values()
    queued = {(trial.user_attrs["of"], trial.user_attrs["seed"]) for trial in finalists}
    for trial in sorted(complete, key=lambda trial: -trial.value)[: plan.finalists]:
        for seed in range(plan.preset.seed + 1, plan.preset.seed + 1 + plan.seeds):
            of = trial.user_attrs["number"]
            if (of, seed) not in queued:
                attributes = {"number": len(queued), "of": of, "seed": seed}
                studies["finalists"].enqueue_trial(trial.params, user_attrs=attributes)
                queued.add((of, seed))


# --- training ---------------------------------------------------------------------------------------------------------


def work(
    folder: str | Path,
    device: str | None = None,
    on_trial: Callable[[str], None] | None = None,
    advance: Callable[[int, int], None] | None = None,
) -> None:
    """Train the trials of the search in `folder` until none is left, then its finalists. This is a worker's job.

    Raises:
        InputError: no training is possible; the trial waits for the next worker.
    """
    folder, say = Path(folder), on_trial or (lambda line: None)
    plan = read_plan(folder)
    with only_one(folder):  # the first process creates the database and the corpus
        studies = open_studies(folder, plan)
        own_corpus(folder, plan)
    for name, study in studies.items():
        if name == "finalists":
            with only_one(folder):
                line_up_finalists(studies, plan)
        has_said_waiting = False
        while True:
            if advance:
                advance(count_ended(studies), plan.trials + plan.finalists * plan.seeds)
            with only_one(folder):
                taken = next_trial(study, plan, folder)
                others = any(trial.state.name == "RUNNING" for trial in study.get_trials(deepcopy=False))
            if taken:
                trial, lock = taken
                with lock:
                    ending = run_trial(trial, plan, folder, device)
                say(f"{'trial' if name == 'trials' else 'finalist'} {trial.user_attrs['number']}: {ending}")
            elif others:  # one of them may die, and leave its trial to this process
                if not has_said_waiting:
                    say("waiting for other processes to end their trials")
                has_said_waiting = True
                time.sleep(0.5)
            else:
                break


def count_ended(studies: Mapping[str, "Study"]) -> int:
    """Return the number of trials and finalists that no process has to train any more."""
    trials = [trial for study in studies.values() for trial in current_trials(study).values()]
    return sum(trial.state.is_finished() for trial in trials)


def own_corpus(folder: Path, plan: Plan) -> None:
    """Write the short captions that all trials learn from: 6,926 pairs, unless the preset takes fewer."""
    corpus = folder / "corpus"
    if plan.preset.corpus != "captions" or corpus.exists():
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
        unfinished.rename(corpus)


def run_trial(trial: "Trial", plan: Plan, folder: Path, device: str | None) -> str:
    """Train a trial, record how it ended, and describe that in a line. Call it while holding the trial's lock.

    Raises:
        InputError: no training is possible; the trial is put back, as after an interruption.
    """
    optuna = load_optuna()
    states = optuna.trial.TrialState
    where = folder_of(trial, trial.study, folder)
    start = time.perf_counter()
    try:
        value = train_trial(trial, plan, where, folder, device)
        state, ending = states.COMPLETE, f"BLEU {value:.1f}"
    except optuna.TrialPruned as pruned:
        state, value, ending = states.PRUNED, None, str(pruned)
    except BaseException as error:
        if not (isinstance(error, DivergedError) or is_out_of_memory(error)):  # Ctrl-C, for example
            with only_one(folder):
                put_back(trial.study, trial.number, interrupted=True)
            raise
        failure = "diverged" if isinstance(error, DivergedError) else "out of memory"
        message = (str(error).splitlines() or [type(error).__name__])[0]
        trial.set_user_attr("failure", (failure, message))
        state, value, ending = states.FAIL, None, f"{failure} ({message})"
    if state == states.FAIL:
        gc.collect()
        torch.cuda.empty_cache()
    trial.set_user_attr("seconds", trial.user_attrs.get("seconds", 0) + round(time.perf_counter() - start, 1))
    trial.study.tell(trial, value, state=state)
    shutil.rmtree(where / "checkpoints", ignore_errors=True)  # the models of a hundred trials would fill a disk
    (where / "weights.safetensors").unlink(missing_ok=True)
    return f"{ending}; {', '.join(f'{name} {number:.4g}' for name, number in trial.params.items())}"


def train_trial(trial: "Trial", plan: Plan, where: Path, folder: Path, device: str | None) -> float:
    """Train a trial and return its validation BLEU (greedy decoding) after the last epoch.

    Raises:
        optuna.TrialPruned: it was below the median.
        InputError, MemoryError, RuntimeError: as `train`.
    """
    optuna = load_optuna()
    preset = plan.preset_of(trial.params, trial.user_attrs["seed"])
    if preset.corpus == "captions":
        preset = replace(preset, corpus=str(folder / "corpus"))
    reported = set(trial.study.trials[trial.number].intermediate_values)  # a trial that was put back has some

    def report(record: dict[str, Any]) -> None:
        if record["kind"] == "epoch":
            epoch, bleu = record["epoch"], record["validation_bleu"]
            if epoch not in reported:
                trial.report(bleu, epoch)
            if trial.should_prune():
                raise optuna.TrialPruned(f"pruned after epoch {epoch} at BLEU {bleu:.1f}")

    with writing(where):
        log = open(where / "log.txt", "a", encoding="utf-8")  # noqa: SIM115 - closed by the next line
    with log, redirect_stderr(log):
        languages = {"source": plan.source, "target": plan.target, "data_dir": plan.data_dir}
        resume = (where / "training.json").exists()
        train(preset, where, resume=resume, on_log=report, device=device, **languages)
    epochs = [record for record in read_metrics(where / "metrics.jsonl") if record["kind"] == "epoch"]
    return epochs[-1]["validation_bleu"]


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether a training run failed because the GPU or the machine is out of memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)  # torch on a CPU has no class for it


# --- worker processes -------------------------------------------------------------------------------------------------


def keep_working(folder: Path, workers: int, device: str | None) -> None:
    """Keep this many processes working on the folder until the plan is fulfilled. Replace one that is killed.

    Raises:
        InputError: a process has ended with an error message of its own.
    """
    threads = max(1, torch.get_num_threads() // workers)
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "transformer_lab.electives.search", str(folder), *([device] if device else [])]
    plan = read_plan(folder)
    spare = LIVES * (plan.trials + plan.finalists * plan.seeds)  # trials can't kill more processes than this
    processes: list[subprocess.Popen] = []
    try:
        processes += (subprocess.Popen(command, env=environment) for _ in range(workers))
        while processes:
            time.sleep(0.2)
            for process in [process for process in processes if process.poll() is not None]:
                processes.remove(process)
                if process.returncode < 0 < spare:  # killed
                    spare -= 1
                    processes.append(subprocess.Popen(command, env=environment))
                elif process.returncode:
                    raise InputError(f"a worker of the search in {folder} has ended: its last lines say why")
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def main() -> None:
    """Run a worker of `keep_working`, which prints a line about each trial, and about itself, to stderr."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # KeyboardInterrupt: the trial is put back, not lost
    try:
        work(sys.argv[1], *sys.argv[2:3], on_trial=partial(print, file=sys.stderr, flush=True))
    except InputError as error:
        sys.exit(f"transformer-lab: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
