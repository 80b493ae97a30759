"""A hyperparameter search that survives being killed and that several processes can share.

A search is a folder. `search.json` contains its plan, and `search.db` contains all trials (Optuna, SQLite). `trials/`
and `finalists/` contain the log and metrics of each training run, and `trials.csv` and `finalists.csv` are tables of
the results. Each trial is a run of the package's own trainer. Any number of processes can work on the folder. If a
process is killed or its machine fails, another process resumes the trial after the last finished epoch.

    search("runs/search")                       # 20 trials on image captions, then three finalists with three seeds
    results = read_search("runs/search")        # at any time, even while the search is running
"""

import gc
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from transformer_lab.data import load_corpus
from transformer_lab.electives.search_plan import HYPER_PARAMETERS, Plan, base_preset, load_optuna
from transformer_lab.electives.search_tables import LIVES, Results, importance, read_table, table_of, write_table
from transformer_lab.errors import InputError
from transformer_lab.files import creating, writing
from transformer_lab.presets import MOST_WORKERS
from transformer_lab.shipped import shipped
from transformer_lab.training import DivergedError, Preset, read_metrics, train
from transformer_lab.training.records import differing_values, read_json, software, write_json

if TYPE_CHECKING:
    from optuna import Study, Trial

__all__ = ["HYPER_PARAMETERS", "Plan", "Results", "base_preset", "importance"]  # also exported from here

WORDS = 8  # maximum length of a German caption in a search on `captions`, so that a small model learns in seconds
HELD_OUT = 200  # validation captions: enough to tell trials apart, yet quick to translate
STARTUP_TRIALS = 5  # number of trials that have to finish before any trial can be pruned
LOCK_SECONDS = 300  # maximum wait for another process, which normally holds the lock for milliseconds


# --- the folder -------------------------------------------------------------------------------------------------------


def search(
    folder: str | Path,
    plan: Plan | None = None,
    workers: int = 1,
    device: str | None = None,
    on_trial: Callable[[str], None] | None = None,
    advance: Callable[[int, int], None] | None = None,
) -> Results:
    """Search until the plan is complete, and return the results.

    Call this function again to resume a search that was stopped or killed. Call it from another process to join a
    search that is running. If a trial diverges or runs out of memory, this is recorded, and the search continues.

    Args:
        folder: A new folder, or the folder of a search to resume or join.
        plan: The plan of the search. The default is the folder's plan or, in a new folder, a standard search on
            `captions`. In an existing search, you can change only the number of trials, the number of finalists, and
            the number of seeds.
        workers: Number of processes that train at the same time. A single worker runs in this process. Multiple workers
            run in separate processes. If a worker is killed, perhaps because memory ran out, it is replaced.
        device: The device to train on, such as `"cpu"` or `"cuda:1"`. The default is a GPU if there is one.
        on_trial: A function that is called with a line about each trial when the trial ends. Multiple workers do not
            call the function; they print the line to stderr.
        advance: A function that is called from time to time with the number of trials that have ended and the number of
            planned trials. Both numbers include the finalists.

    Raises:
        InputError: `workers` is out of range, Optuna is missing, the plan differs from the plan in the folder, or
            training is not possible.
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
            keep_working(folder, workers, device, advance)
    except BaseException:
        with suppress(Exception):  # report the error that stopped the search, not a later one
            write_tables(folder)
        raise
    return write_tables(folder)


def open_folder(folder: Path, plan: Plan | None) -> None:
    """Create the folder and write the plan to it, or check that an existing search has the same plan.

    Raises:
        InputError: The folder contains a different search or other files, or the corpus cannot be loaded.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with only_one(folder):
        begun = read_plan(folder) if (folder / "search.json").exists() else None
        plan = plan or begun or Plan(base_preset())
        if begun:
            comparable = replace(begun, trials=plan.trials, finalists=plan.finalists, seeds=plan.seeds)
            was, now = (asdict(each) | asdict(each.preset) | {"preset": None} for each in (comparable, plan))
            if differing := differing_values(was, now):
                raise InputError(
                    f"{folder} holds a different search ({differing}): give the same values to continue it, "
                    "or another folder (on the command line: --output)"
                )
        elif (folder / "search.db").exists() or (folder / "training.json").exists():
            raise InputError(
                f"{folder} holds something other than a search: give another folder (on the command line: --output)"
            )
        elif plan.preset.corpus != "captions" or {plan.source, plan.target} != {"de", "en"}:
            load_corpus(plan.preset.corpus, plan.source, plan.target, plan.data_dir)  # or raises InputError
        if plan != begun:
            write_json(folder / "search.json", {"plan": asdict(plan), "environment": software("optuna")})


def read_plan(folder: Path) -> Plan:
    """Read the plan of the search in a folder.

    Raises:
        InputError: The folder does not contain a search, or its plan is not valid.
    """
    if not (folder / "search.json").exists():
        raise InputError(f"{folder} holds no search: there is no search.json in it")
    try:
        content = read_json(folder / "search.json")["plan"]
        return Plan(**content | {"preset": Preset(**content["preset"])})
    except (KeyError, TypeError) as error:
        raise InputError(f"search.json is not the plan of a search ({error}): start again in another folder") from None


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Let only one process at a time run the `with` block. If that process dies, the system releases the lock.

    Raises:
        InputError: Another process did not release the lock within `LOCK_SECONDS`.
    """
    from filelock import FileLock, Timeout

    with writing(folder):
        try:
            lock = FileLock(folder / "search.lock").acquire(timeout=LOCK_SECONDS)
        except Timeout:  # an `OSError`, which `writing` would report as a disk's
            raise InputError(
                f"another process has held {folder / 'search.lock'} for {LOCK_SECONDS} s: end it, then start this again"
            ) from None
        with lock:
            yield


def open_studies(folder: Path, plan: Plan) -> dict[str, "Study"]:
    """Open the folder's database, and return its `trials` and `finalists` studies. This takes almost a second.

    Raises:
        InputError: The database cannot be used.
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
        raise InputError(f"{path} cannot be used ({reason}): repair or remove it, or give a new folder") from None


def read_search(folder: str | Path) -> Results:
    """Read the results so far from the database. If the folder has no database, read the two tables.

    Raises:
        InputError: The folder does not contain a search, or its database or a table cannot be read.
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
    """Write the results so far to `trials.csv` and `finalists.csv`, and return them."""
    results = read_search(folder)
    write_table(results.trials, folder / "trials.csv")
    write_table(results.finalists, folder / "finalists.csv")
    return results


def recorded_search() -> Results | None:
    """Return the newest search that this copy of the course includes. If it includes no search, return None."""
    folders = sorted(shipped("results").glob("*_search"))
    return read_search(folders[-1]) if folders else None


# --- the next trial ---------------------------------------------------------------------------------------------------


def folder_of(trial: "Trial", folder: Path) -> Path:
    """Return the folder of a trial's training run, such as `trials/007` in the folder of the search."""
    return folder / trial.study.study_name / f"{trial.number:03}"


def next_trial(studies: dict[str, "Study"], name: str, plan: Plan, folder: Path) -> tuple["Trial", Any] | None:
    """Return `(trial, lock)` for a trial that no process is training. If no trial is left, return None.

    Call this function inside `only_one`. A trial counts as running from the moment it is added to the database until it
    ends. If the folder of a running trial is not locked, either the trial is new, or its process died or was
    interrupted. Optuna's heartbeat cannot replace the lock. It marks a trial as failed even if the trial's process was
    only paused. If the process died before the first heartbeat, Optuna never marks the trial as failed.
    """
    optuna = load_optuna()
    from filelock import FileLock, Timeout

    study, states = studies[name], optuna.trial.TrialState
    while True:
        for unfinished in study.get_trials(deepcopy=False, states=(states.RUNNING,)):
            trial = optuna.Trial(study, unfinished._trial_id)  # Optuna has no public way to resume a trial
            with suppress(Timeout):
                lock = FileLock(folder_of(trial, folder) / "trial.lock").acquire(timeout=0)
                attempts = trial.user_attrs.get("attempts", 0)
                if attempts < LIVES:
                    trial.set_user_attr("attempts", attempts + 1)
                    return trial, lock
                with lock:
                    study.tell(trial, state=states.FAIL)
        new = new_finalist(studies, plan) if name == "finalists" else new_trial(study, plan)
        if not new:
            return None
        params, attributes = new
        study.add_trial(  # a single step, so that a process that dies here leaves either the whole trial or nothing
            optuna.create_trial(state=states.RUNNING, params=params, distributions=plan.space(), user_attrs=attributes)
        )


def new_trial(study: "Study", plan: Plan) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Sample a new trial and return its hyperparameters and attributes. If there are enough trials, return None.

    Each trial is sampled with its own seed, so a search that was killed and resumed samples the same trials as an
    uninterrupted search.
    """
    optuna = load_optuna()
    trials = study.get_trials()
    if len(trials) >= plan.trials:
        return None
    seed = (plan.preset.seed * 100_003 + len(trials)) % 2**32  # NumPy accepts only seeds below this
    samplers = optuna.samplers
    sampler = samplers.RandomSampler(seed) if plan.sampler == "random" else samplers.TPESampler(seed=seed)
    history = optuna.create_study(direction="maximize", sampler=sampler)
    history.add_trials(trial for trial in trials if trial.state.is_finished())
    return history.ask(plan.space()).params, {"seed": plan.preset.seed}


def new_finalist(studies: dict[str, "Study"], plan: Plan) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the hyperparameters of one of the best trials and the attributes of its next repetition.

    If there are enough repetitions, return None.

    On average, the score of a selected trial is too high, because the trial was selected for its high score. That is
    why the trial is repeated with new seeds.
    """
    complete = [trial for trial in studies["trials"].get_trials(deepcopy=False) if trial.state.name == "COMPLETE"]
    begun = [(trial.user_attrs["of"], trial.user_attrs["seed"]) for trial in studies["finalists"].trials]
    for trial in sorted(complete, key=lambda trial: -trial.value)[: plan.finalists]:
        for seed in range(plan.preset.seed + 1, plan.preset.seed + 1 + plan.seeds):
            if (trial.number, seed) not in begun:
                return trial.params, {"of": trial.number, "seed": seed}
    return None


# --- training ---------------------------------------------------------------------------------------------------------


def work(
    folder: str | Path,
    device: str | None = None,
    on_trial: Callable[[str], None] | None = None,
    advance: Callable[[int, int], None] | None = None,
) -> None:
    """Train a search's trials until none are left, and then its finalists.

    The arguments are the same as in `search`.

    Raises:
        InputError: There is no search in the folder, or its settings cannot be used for training.
    """
    folder, say = Path(folder), on_trial or (lambda line: None)
    plan = read_plan(folder)
    with only_one(folder):  # the first process creates the database and the corpus
        studies = open_studies(folder, plan)
        own_corpus(folder, plan)
    for name, study in studies.items():
        has_said_waiting = False
        while True:
            if advance:
                advance(count_ended(studies), plan.trials + plan.finalists * plan.seeds)
            with only_one(folder):
                taken = next_trial(studies, name, plan, folder)
                others = any(trial.state.name == "RUNNING" for trial in study.get_trials(deepcopy=False))
            if taken:
                trial, lock = taken
                with lock:
                    ending = run_trial(trial, plan, folder, device)
                say(f"{name.removesuffix('s')} {trial.number}: {ending}")
            elif others:  # if one of these processes dies, this process takes over its trial
                if not has_said_waiting:
                    say("waiting for other processes to finish their trials")
                has_said_waiting = True
                time.sleep(0.5)
            else:
                break


def count_ended(studies: dict[str, "Study"]) -> int:
    """Return the number of trials and finalists that have ended."""
    return sum(trial.state.is_finished() for study in studies.values() for trial in study.get_trials(deepcopy=False))


def own_corpus(folder: Path, plan: Plan) -> None:
    """Write the corpus of short captions for all trials: 6,926 training pairs, or fewer if the preset limits them."""
    corpus = folder / "corpus"
    if plan.preset.corpus != "captions" or corpus.exists():
        return
    from transformer_lab.data.captions import load_captions

    short = [caption for caption in load_captions() if len(caption.german_tokens) <= WORDS]
    end = plan.preset.train_limit and 2 * HELD_OUT + plan.preset.train_limit  # None for all captions
    splits = {"test": short[:HELD_OUT], "val": short[HELD_OUT : 2 * HELD_OUT], "train": short[2 * HELD_OUT : end]}
    with creating(corpus) as unfinished:
        for name, captions in splits.items():
            for code, side in (("de", "german"), ("en", "english")):
                text = "".join(f"{getattr(caption, side)}\n" for caption in captions)
                (unfinished / f"{name}.{code}").write_text(text, encoding="utf-8")


def run_trial(trial: "Trial", plan: Plan, folder: Path, device: str | None) -> str:
    """Train a trial, record how it ended, and return a line about it. Call this function while holding the lock.

    An interruption or an unexpected error does not count toward LIVES.
    """
    optuna = load_optuna()
    states = optuna.trial.TrialState
    where = folder_of(trial, folder)
    start = time.perf_counter()
    try:
        value = train_trial(trial, plan, where, folder, device)
        state, ending = states.COMPLETE, f"BLEU {value:.1f}"
    except optuna.TrialPruned as pruned:
        state, value, ending = states.PRUNED, None, str(pruned)
    except BaseException as error:
        if not (isinstance(error, DivergedError) or is_out_of_memory(error)):  # Ctrl-C, for example
            trial.set_user_attr("attempts", trial.user_attrs["attempts"] - 1)
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
    shutil.rmtree(where / "checkpoints", ignore_errors=True)  # the checkpoints of a hundred trials would fill a disk
    (where / "weights.safetensors").unlink(missing_ok=True)
    return f"{ending}; {', '.join(f'{name} {number:.4g}' for name, number in trial.params.items())}"


def train_trial(trial: "Trial", plan: Plan, where: Path, folder: Path, device: str | None) -> float:
    """Train a trial and return its validation BLEU (greedy decoding) after the last epoch.

    Raises:
        optuna.TrialPruned: The trial's score was below the median.
        DivergedError: Training diverged.
    """
    optuna = load_optuna()
    preset = plan.preset_of(trial.params, trial.user_attrs["seed"])
    if preset.corpus == "captions":
        preset = replace(preset, corpus=str(folder / "corpus"))
    reported = set(trial.study.trials[trial.number].intermediate_values)  # not empty if the trial is resumed

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
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)  # torch's error on a CPU


# --- worker processes -------------------------------------------------------------------------------------------------


def keep_working(
    folder: Path, workers: int, device: str | None, advance: Callable[[int, int], None] | None = None
) -> None:
    """Keep `workers` processes working on the folder until the plan is complete. If a process is killed, replace it.

    Raises:
        InputError: A worker failed, or too many were killed.
    """
    threads = max(1, torch.get_num_threads() // workers)
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "transformer_lab.electives.search", str(folder), *([device] if device else [])]
    plan = read_plan(folder)
    total = plan.trials + plan.finalists * plan.seeds
    spare = LIVES * total  # the maximum number of processes that trials can kill
    if advance:
        with only_one(folder):
            studies = open_studies(folder, plan)
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
                    raise InputError(f"a worker of the search in {folder} has stopped: its last output says why")
            if advance:
                advance(count_ended(studies), total)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def main() -> None:
    """Run a worker process for `keep_working`. It prints a line about each trial to stderr, as well as any error."""
    over_bar = "\r\x1b[K" if sys.stderr.isatty() else ""  # clears the parent's progress bar, which the parent redraws
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # KeyboardInterrupt doesn't count toward LIVES
    try:
        work(sys.argv[1], *sys.argv[2:3], on_trial=lambda line: print(f"{over_bar}{line}", file=sys.stderr, flush=True))
    except InputError as error:
        sys.exit(f"transformer-lab: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
