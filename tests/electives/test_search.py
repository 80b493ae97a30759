"""Without these tests, a killed process could ruin a search, a trial could run twice, or failures could be lost."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from itertools import chain, repeat
from unittest.mock import Mock

import pandas as pd
import psutil
import pytest
import torch

import transformer_lab.electives.search as searching
from transformer_lab.electives.search import HYPER_PARAMETERS, Plan, base_preset, importance, read_search, search
from transformer_lab.errors import InputError
from transformer_lab.training import DivergedError

NOUNS = {"Hund": "dog", "Vogel": "bird", "Mann": "man", "Ball": "ball", "Baum": "tree"}
VERBS = {"sieht": "sees", "sucht": "seeks", "malt": "paints"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    pairs = [
        (f"Der {one} {verb} den {other}.", f"The {NOUNS[one]} {VERBS[verb]} the {NOUNS[other]}.")
        for one in NOUNS
        for other in NOUNS
        for verb in VERBS
    ]
    folder = tmp_path_factory.mktemp("corpus")
    for split, chosen in {"train": pairs[::2], "val": pairs[1::8], "test": pairs[3::8]}.items():
        for side, code in enumerate(("de", "en")):
            (folder / f"{split}.{code}").write_text("".join(pair[side] + "\n" for pair in chosen), encoding="utf-8")
    return folder


@pytest.fixture
def plan(corpus):
    """Return a plan of four trials, each of which takes a second or less."""
    sizes = {"vocab_size": 540, "d_model": 8, "d_ff": 8, "n_layers": 1, "max_tokens": 100, "max_length": 25}
    return Plan(replace(base_preset(), corpus=str(corpus), epochs=3, **sizes), trials=4, finalists=0, seeds=2)


@pytest.fixture
def trainer(monkeypatch):
    """Return a function that replaces `train`, and returns the list of presets that it is then called with.

    After `trainer(bleu)`, each epoch's BLEU score is `bleu(preset, epoch)`. This call may also raise an exception.
    """

    def put(bleu):
        presets = []

        def train(preset, output, resume=False, on_log=None, **_):
            presets.append(preset)
            (output / "training.json").write_text("{}")
            with open(output / "metrics.jsonl", "a") as file:
                for epoch in range(1, preset.epochs + 1):
                    record = {"kind": "epoch", "epoch": epoch, "validation_bleu": bleu(preset, epoch)}
                    file.write(json.dumps(record) + "\n")
                    on_log(record)

        monkeypatch.setattr(searching, "train", train)
        return presets

    return put


def of_rate(preset, epoch):
    """Return a BLEU score that increases with the epoch and with the learning rate."""
    return 10 * epoch + 1000 * preset.peak_rate


def fails_in_turn(*errors):
    """Return a function that raises one of these errors per call and then returns a BLEU score of 5."""
    return Mock(side_effect=chain(errors, repeat(5.0)))


# --- kills and processes ---


def test_a_search_that_was_killed_ends_as_if_it_had_not_been(plan, tmp_path):
    """After a kill -9 in the second trial, the next search resumes that trial after its last finished epoch.

    It samples the same trials that the first search would have sampled, and every curve is the same to the last digit.
    """
    plan = replace(plan, trials=3, prune=False)
    searching.open_folder(tmp_path / "killed", plan)
    command = [sys.executable, "-m", "transformer_lab.electives.search", str(tmp_path / "killed")]
    worker = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    metrics = tmp_path / "killed" / "trials" / "001" / "metrics.jsonl"
    until(lambda: metrics.exists() and '"kind": "epoch"' in metrics.read_text(), worker)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    assert [trial.state for trial in read_search(tmp_path / "killed").trials.itertuples()] == ["complete", "running"]

    resumed, whole = search(tmp_path / "killed"), search(tmp_path / "whole", plan)
    assert list(resumed.trials["state"]) == ["complete"] * 3
    columns = [*HYPER_PARAMETERS, "bleu", "curve", "epochs"]
    pd.testing.assert_frame_equal(resumed.trials[columns], whole.trials[columns])
    assert resumed.trials["number"].tolist() == [0, 1, 2]  # the killed trial has a single row
    assert len(resumed.trials[list(HYPER_PARAMETERS)].drop_duplicates()) == 3
    epochs = [json.loads(line)["epoch"] for line in metrics.read_text().splitlines() if '"kind": "epoch"' in line]
    assert epochs == [1, 2, 3]  # in its original folder, without repeated epochs


def test_a_worker_that_is_told_to_stop_leaves_its_trial_to_the_next(plan, tmp_path):
    """A parent process or a cluster sends SIGTERM.

    The signal must work even if Ctrl-C is ignored, as in background jobs.
    """
    long = replace(plan, preset=replace(plan.preset, epochs=1000), trials=1)
    searching.open_folder(tmp_path, long)
    command = [sys.executable, "-m", "transformer_lab.electives.search", str(tmp_path)]
    worker = subprocess.Popen(command, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    until(lambda: (tmp_path / "trials" / "000" / "metrics.jsonl").exists(), worker)
    worker.terminate()
    assert worker.wait(timeout=900) == 130
    assert take_and_die(tmp_path, long, searching.LIVES) == [0] * searching.LIVES  # the signal is not a failure


def take_and_die(folder, plan, times):
    """Take a trial and release its lock, as a dying process does. Return the numbers of the trials taken."""
    studies, numbers = searching.open_studies(folder, plan), []
    for _ in range(times):
        trial, lock = searching.next_trial(studies, "trials", plan, folder)
        with lock:
            numbers.append(trial.number)
    return numbers


def until(happened, process=None, seconds=900):
    start = time.monotonic()
    while not happened():
        assert time.monotonic() - start < seconds, "the condition never became true"
        assert process is None or process.poll() is None, "the process has already ended"
        time.sleep(0.02)


def test_two_workers_share_a_search_and_one_that_is_killed_is_replaced(plan, tmp_path):
    """Each trial is trained by one worker, no two trials are the same, and a killed worker's trial is resumed."""
    plan, found, counts = replace(plan, preset=replace(plan.preset, epochs=6), trials=5, prune=False), [], []
    searching.open_folder(tmp_path, plan)
    before = children()

    def search_and_count():
        found.append(search(tmp_path, workers=2, advance=lambda *numbers: counts.append(numbers)))

    parent = threading.Thread(target=search_and_count)
    parent.start()
    until(lambda: len(list(tmp_path.glob("trials/*/metrics.jsonl"))) >= 2)
    workers = children() - before
    assert len(workers) == 2
    killed = min(workers)
    os.kill(killed, signal.SIGKILL)
    until(lambda: children() - before - workers)
    parent.join(timeout=900)
    (results,) = found
    total = plan.trials + plan.finalists * plan.seeds
    assert (counts[0], counts[-1]) == ((0, total), (total, total))
    assert list(results.trials["state"]) == ["complete"] * 5
    assert len(results.trials[list(HYPER_PARAMETERS)].drop_duplicates()) == 5
    assert (tmp_path / "trials.csv").exists()


def children():
    """Return the IDs of the child processes that are running."""
    return {process.pid for process in psutil.Process().children()}


def test_a_worker_with_something_to_say_ends_the_search(plan, tmp_path, capfd):
    """A worker that ends with an error message must not be restarted. Its message appears on stderr."""
    searching.open_folder(tmp_path, plan)
    (tmp_path / "search.db").write_text("this is no database " * 300)
    with pytest.raises(InputError, match="a worker of the search"):
        searching.keep_working(tmp_path, 2, None)
    assert "search.db cannot be used (file is not a database)" in capfd.readouterr().err


def test_a_trial_that_kills_every_process_is_given_up(plan, tmp_path):
    """The search must not keep trying a model that is too large for the machine."""
    searching.open_folder(tmp_path, plan)
    assert take_and_die(tmp_path, plan, searching.LIVES + 1) == [0] * searching.LIVES + [1]
    table = read_search(tmp_path).trials
    assert list(table["state"]) == ["lost", "running"]
    assert "killed it because memory ran out" in table["message"][0]


def test_the_trial_of_a_living_process_is_left_alone(plan, tmp_path):
    """A process that was paused (say, while the laptop was asleep) must not find another process in its folder.

    If the process is dead, the next one takes over the trial at once, even in a folder copied to another machine.
    """
    plan = replace(plan, trials=1)
    searching.open_folder(tmp_path, plan)
    take = (
        "import sys, time; from pathlib import Path; import transformer_lab.electives.search as searching;"
        "folder = Path(sys.argv[1]); plan = searching.read_plan(folder);"
        "taken = searching.next_trial(searching.open_studies(folder, plan), 'trials', plan, folder);"
        "print(flush=True); time.sleep(900)"
    )
    worker = subprocess.Popen([sys.executable, "-c", take, str(tmp_path)], stdout=subprocess.PIPE)
    worker.stdout.readline()
    worker.send_signal(signal.SIGSTOP)
    studies = searching.open_studies(tmp_path, plan)
    assert searching.next_trial(studies, "trials", plan, tmp_path) is None
    worker.kill()
    worker.communicate()
    assert take_and_die(tmp_path, plan, 1) == [0]


def test_a_failure_counts_only_for_the_attempt_that_failed(plan, tmp_path, trainer, monkeypatch):
    """Even if a process is killed after recording why its trial failed, the next attempt can succeed."""
    trainer(fails_in_turn(MemoryError("no room")))
    searching.open_folder(tmp_path, replace(plan, trials=1))
    with monkeypatch.context() as dying:
        dying.setattr(searching.load_optuna().Study, "tell", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            search(tmp_path)
    results = search(tmp_path)
    assert list(results.trials["state"]) == ["complete"]
    assert results.trials["message"].isna().all()


# --- failures ---


def test_failures_are_recorded_and_the_search_goes_on(plan, tmp_path, trainer):
    """The second error is torch's own for more memory than the machine has."""
    with pytest.raises(RuntimeError) as of_torch:
        torch.empty(2**50)
    errors = (DivergedError("the loss is nan at step 3"), of_torch.value, MemoryError())
    trainer(fails_in_turn(*errors, torch.OutOfMemoryError("CUDA out of memory")))
    lines = []
    results = search(tmp_path, replace(plan, trials=6, finalists=1), on_trial=lines.append)
    states = ["diverged", "out of memory", "out of memory", "out of memory", "complete", "complete"]
    assert list(results.trials["state"]) == states
    assert results.trials["bleu"].fillna(-1).tolist() == [0, -1, -1, -1, 5, 5]
    assert results.trials["message"][0] == "the loss is nan at step 3"
    assert "can't allocate memory" in results.trials["message"][1]
    assert lines[0].startswith("trial 0: diverged (the loss is nan at step 3); n_heads ")
    assert "6 trials: 3 out of memory, 2 complete, 1 diverged" in results.conclusion()
    assert list(results.finalists["bleu"]) == [5, 5]


def test_a_training_run_that_really_diverges(plan, tmp_path):
    """At this learning rate and without clipping, the loss stops being finite after a few steps."""
    wild = replace(plan.preset, peak_rate=1e12, clip_norm=0.0, warmup_steps=1, precision="float32", fast=False)
    results = search(tmp_path, replace(plan, preset=wild, trials=1, finalists=1))
    assert list(results.trials["state"]) == ["diverged"]
    assert "at step" in results.trials["message"][0]
    assert results.finalists.empty  # there is no trial to train again
    assert not (tmp_path / "trials" / "000" / "checkpoints").exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), InputError("the disk is full"), KeyError("a bug")])
def test_an_error_that_is_not_a_result_stops_the_search_and_keeps_the_trial(plan, tmp_path, trainer, error):
    """A bug or a full disk would make every trial fail. An interruption is not the trial's fault."""
    trainer(fails_in_turn(error))
    with pytest.raises(type(error)):
        search(tmp_path, plan)
    stopped = read_search(tmp_path).trials
    assert list(stopped["state"]) == ["running"]
    results = search(tmp_path)
    assert list(results.trials["state"]) == ["complete"] * 4
    pd.testing.assert_frame_equal(results.trials[[*HYPER_PARAMETERS]].head(1), stopped[[*HYPER_PARAMETERS]])


def test_an_error_of_another_kind_is_not_out_of_memory():
    assert not searching.is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


# --- pruning, finalists ---


def test_trials_below_the_median_are_pruned(plan, tmp_path, trainer):
    """The first five trials are never pruned. Later trials are pruned if they are below the finished trials' median."""
    used = trainer(of_rate)
    table = search(tmp_path / "pruned", replace(plan, trials=12)).trials
    pruned = table[table["state"] == "pruned"]
    assert len(pruned)
    assert pruned["number"].min() >= searching.STARTUP_TRIALS
    assert (pruned["epochs"] < 3).all()
    assert [curve[-1] for curve in pruned["curve"]] == list(pruned["bleu"])
    assert pruned["peak_rate"].max() < table.loc[table["state"] == "complete", "peak_rate"].max()
    assert len(used) == 12

    count = int(pruned["number"].min()) + 1  # the first pruned trial is now trained to the end
    results = search(tmp_path / "not", replace(plan, trials=count, prune=False))
    assert set(results.trials["state"]) == {"complete"}
    pd.testing.assert_frame_equal(results.trials[[*HYPER_PARAMETERS]], table[[*HYPER_PARAMETERS]].head(count))


def test_the_best_are_trained_again_with_other_seeds(plan, tmp_path, trainer):
    """Choosing a trial by its score biases that score, so the seed that produced it must not be used again."""
    used = trainer(lambda preset, epoch: of_rate(preset, epoch) + preset.seed)
    results = search(tmp_path, replace(plan, trials=5, finalists=2, seeds=3))
    best = results.trials.nlargest(2, "bleu")
    assert results.finalists["of"].tolist() == [number for number in best["number"] for _ in range(3)]
    assert results.finalists["seed"].tolist() == [2, 3, 4] * 2
    for run in results.finalists.itertuples():
        (trial,) = best[best["number"] == run.of].itertuples()
        assert run.bleu == pytest.approx(trial.bleu - 1 + run.seed)
        assert all(getattr(run, name) == getattr(trial, name) for name in HYPER_PARAMETERS)
    assert [preset.seed for preset in used] == [1] * 5 + [2, 3, 4] * 2

    again = search(tmp_path, replace(plan, trials=8, finalists=2, seeds=3))
    assert len(used) == 11 + 3 + 3 * len(set(again.trials.nlargest(2, "bleu")["number"]) - set(best["number"]))


def test_the_warm_up_sees_as_many_sentences_for_every_batch_size(plan):
    numbers = {"n_heads": 2, "n_layers": 1, "peak_rate": 0.01, "dropout": 0.0, "label_smoothing": 0.0}
    for tokens in (25, 50, 100, 200):
        chosen = plan.preset_of(numbers | {"max_tokens": tokens}, seed=9)
        assert chosen.warmup_steps * tokens == plan.preset.warmup_steps * plan.preset.max_tokens
        assert (chosen.max_tokens, chosen.seed, chosen.peak_rate) == (tokens, 9, 0.01)


def sampled(plan, count, seed):
    """Return a table of hyperparameters sampled at random from the plan's space."""
    optuna = searching.load_optuna()
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed))
    return pd.DataFrame([study.ask(plan.space()).params for _ in range(count)])


def test_trials_are_sampled_from_the_whole_space(plan):
    table = sampled(plan, 60, seed=0)
    assert set(table["n_heads"]) == {1, 2, 4, 8}
    assert set(table["n_layers"]) == {1, 2}
    assert set(table["max_tokens"]) == {25, 50, 100, 200}
    rate = plan.preset.peak_rate
    assert rate / 10 <= table["peak_rate"].min() < rate / 4
    assert 4 * rate < table["peak_rate"].max() <= 10 * rate
    assert 0.3 < (table["peak_rate"] < rate).mean() < 0.7  # on a log scale, half are below this rate
    for name in ("dropout", "label_smoothing"):
        assert 0 <= table[name].min() < 0.05
        assert 0.25 < table[name].max() <= 0.3


def test_tpe_samples_near_good_trials(plan, tmp_path, trainer):
    """After ten random trials, later trials are better on average."""
    trainer(of_rate)
    table = search(tmp_path, replace(plan, trials=16, sampler="tpe", prune=False)).trials
    assert table["bleu"][10:].mean() > table["bleu"][:10].mean()


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_every_seed_of_a_preset_can_be_searched_with(plan, sampler):
    """NumPy's seeds must be below 2³²."""
    study = searching.load_optuna().create_study(direction="maximize")
    largest = replace(plan, preset=replace(plan.preset, seed=2**32 - 1), sampler=sampler)
    assert set(searching.new_trial(study, largest)[0]) == set(HYPER_PARAMETERS)


# --- the folder ---


def test_captions_are_written_once(tmp_path, trainer):
    used = trainer(lambda preset, epoch: 1.0)
    preset = replace(base_preset(), train_limit=20, epochs=1)
    search(tmp_path, Plan(preset, trials=2, finalists=0))
    lines = {name: len((tmp_path / "corpus" / name).read_text("utf-8").splitlines()) for name in ("train.de", "val.en")}
    assert lines == {"train.de": 20, "val.en": searching.HELD_OUT}
    assert {preset.corpus for preset in used} == {str(tmp_path / "corpus")}


def test_the_tables_say_what_the_database_says(plan, tmp_path, trainer):
    """A recorded search consists only of its tables and its plan. It does not include the database."""
    trainer(fails_in_turn(DivergedError("the loss is nan"), MemoryError("no room")))
    from_database = search(tmp_path, replace(plan, finalists=1))
    (tmp_path / "search.db").unlink()
    from_tables = read_search(tmp_path)
    assert from_tables.plan == from_database.plan
    for name in ("trials", "finalists"):
        before, after = (getattr(one, name).fillna({"message": "none"}) for one in (from_database, from_tables))
        pd.testing.assert_frame_equal(before, after, check_dtype=False, rtol=1e-5)  # tables have six digits
    assert from_tables.conclusion() == from_database.conclusion()


@pytest.mark.parametrize(
    ("change", "says"),
    [({"sampler": "tpe"}, "sampler was random, now tpe"), ({"epochs": 5}, "epochs was 3, now 5")],
)
def test_another_plan_is_refused_with_what_differs(plan, tmp_path, change, says):
    searching.open_folder(tmp_path, plan)
    other = replace(plan, **change) if "sampler" in change else replace(plan, preset=replace(plan.preset, **change))
    with pytest.raises(InputError, match=says):
        search(tmp_path, other)
    searching.open_folder(tmp_path, replace(plan, trials=9))  # increasing the number of trials is allowed


def test_a_folder_without_a_search_is_left_alone(plan, tmp_path):
    with pytest.raises(InputError, match="holds no search"):
        read_search(tmp_path)
    (tmp_path / "training.json").write_text("{}")
    with pytest.raises(InputError, match="something other than a search"):
        search(tmp_path, plan)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "search.json").write_text('{"plan": {"trials": 3}}')
    with pytest.raises(InputError, match="not the plan of a search"):
        search(tmp_path / "broken")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"trials": 0}, "`trials` must be 1 or more; got 0"),
        ({"seeds": 0}, "`seeds` must be 1 or more; got 0"),
        ({"finalists": -1}, "`finalists` must be 0 or more; got -1"),
        ({"sampler": "grid"}, "random, tpe"),
    ],
)
def test_an_impossible_plan_is_refused(plan, change, says):
    with pytest.raises(InputError, match=says):
        replace(plan, **change)


@pytest.mark.parametrize(("max_length", "sizes"), [(40, [50, 100, 200, 400]), (60, [100, 200, 400]), (300, [200, 400])])
def test_no_batch_is_smaller_than_the_longest_pair(plan, max_length, sizes):
    """The trainer would refuse such a batch size, and the search would try the same trial again on every start."""
    preset = replace(plan.preset, max_tokens=200, max_length=max_length)
    assert list(replace(plan, preset=preset).space()["max_tokens"].choices) == sizes


def test_a_missing_optuna_is_one_line(plan, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match=r"Optuna does not load .* run python -m pip install optuna"):
        search(tmp_path / "search", plan)
    assert not (tmp_path / "search").exists()


# --- importance ---


def test_a_hyperparameter_that_decides_is_important_beyond_chance(plan):
    table = sampled(plan, 40, seed=0)
    found = importance(table.assign(bleu=table["peak_rate"] * 1000), shuffles=20).set_index("name")
    assert found.index[0] == "peak_rate"
    assert found["importance"]["peak_rate"] > 2 * found["by_chance"]["peak_rate"]


def test_a_hyperparameter_without_effect_is_seldom_important_beyond_chance(plan):
    """One or two of these 24 importances look meaningful by chance.

    Without the shuffles, all of them would look meaningful.
    """
    beyond = 0
    for seed in range(4):
        bleu = sampled(plan, 24, seed + 100)["dropout"]
        found = importance(sampled(plan, 24, seed).assign(bleu=bleu), shuffles=20, seed=seed)
        assert (found["importance"] > 0).all()
        beyond += (found["importance"] > found["by_chance"]).sum()
    assert beyond <= 6


def test_importance_needs_eight_trials(plan):
    table = sampled(plan, 8, seed=0).assign(bleu=[1.0] * 7 + [None])
    with pytest.raises(InputError, match="at least 8 are needed"):
        importance(table)


def test_a_search_that_another_process_holds_is_not_called_a_full_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(searching, "LOCK_SECONDS", 0)
    held = pytest.raises(InputError, match="another process has held")
    with searching.only_one(tmp_path), held, searching.only_one(tmp_path):
        raise AssertionError("two processes hold the lock")
