"""Test the script that creates and compares records. Tables use its output, and other runs rely on it."""

import json
import math
import shutil
from dataclasses import replace

import pytest

from transformer_lab.errors import InputError
from transformer_lab.training import PRESETS, train


@pytest.fixture(scope="module")
def record_script(import_benchmark):
    return import_benchmark("record")


@pytest.fixture(scope="module")
def two_runs(tiny_preset, tmp_path_factory):
    """Train one of the command's built-in presets with two seeds, overriding almost all of its fields."""
    folder = tmp_path_factory.mktemp("two_runs")
    preset = replace(tiny_preset, name="tour", epochs=2)
    for seed in (1, 2):
        train(replace(preset, seed=seed), folder / f"seed_{seed}")
    return [folder / "seed_1", folder / "seed_2"]


@pytest.fixture(scope="module")
def results(record_script, two_runs, tmp_path_factory):
    """Return a results folder with one record."""
    folder = tmp_path_factory.mktemp("results")
    runs = map(str, reversed(two_runs))  # the record still lists its seeds in order
    record_script.main(["collect", *runs, "--results", str(folder), "--name", "old", "--reach", "1"])
    return folder


def only_record(results):
    (path,) = results.glob("*_old")
    return path


def test_a_record_says_what_was_reached_and_with_what(record_script, results, two_runs, capsys):
    folder = only_record(results)
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    scores = [seed["scores"]["test"]["bleu"] for seed in record["seeds"]]
    assert record["mean"]["test"]["bleu"] == pytest.approx(sum(scores) / 2, abs=0.006)  # rounded to two decimals
    assert record["decoding"] == {"beam_size": 2, "alpha": 1.5}
    assert "|c:mixed|" in record["seeds"][0]["scores"]["test"]["signature"].replace("case:", "c:")
    assert [seed["seed"] for seed in record["seeds"]] == [1, 2]
    for seed in (1, 2):
        kept = folder / f"seed_{seed}"
        assert (kept / "metrics.jsonl").read_bytes() == (two_runs[seed - 1] / "metrics.jsonl").read_bytes()
        assert len((kept / "test.txt").read_text(encoding="utf-8").splitlines()) == 49
    page = (folder / "README.md").read_text(encoding="utf-8")
    assert f"**{record['mean']['test']['bleu']:.2f}**" in page
    assert "From the start of the command to a validation BLEU of 1.0: " in page


def test_the_best_record_is_replayed_to_the_same_figures(record_script, results, tmp_path, capsys):
    """A single command in its own process must reach the same score. Otherwise, the record is incomplete."""
    command = ["replay", "--results", str(results), "--seeds", "1", "--runs", str(tmp_path), "--name", "again"]
    try:
        record_script.main([*command, "--device", "cpu"])
        (again,) = results.glob("*_again")
        new, old = (json.loads((path / "record.json").read_text()) for path in (again, only_record(results)))
        assert new["preset"] | {"seed": 0} == old["preset"] | {"seed": 0}
        assert new["seeds"][0]["scores"] == old["seeds"][0]["scores"]
        log = (again / "seed_1" / "log.txt").read_text().splitlines()
        *epochs, result, next_step = log  # without progress bars
        assert [line.partition(": loss")[0] for line in epochs] == ["epoch 1", "epoch 2"]
        assert "validation BLEU" in result
        assert "transformer-lab" in next_step
        assert new["seeds"][0]["command_seconds"] >= new["seeds"][0]["training_seconds"]
        assert "already finished" not in capsys.readouterr().out
        with pytest.raises(SystemExit, match="already exists: choose a different --name"):
            record_script.main(command)
        assert not capsys.readouterr().out  # nothing was printed before the error, so nothing was trained
        again.rename(tmp_path / "again")
        record_script.main(command)
        assert "already finished" in capsys.readouterr().out  # it was not trained twice
    finally:
        for path in results.glob("*_again"):
            path.rename(tmp_path / "again_2")


def test_a_record_grows_by_the_seeds_of_an_earlier_one(record_script, results, two_runs, tmp_path):
    """Five seeds can take longer than a machine is available, and the weights of earlier ones may be gone."""
    earlier = tmp_path / "earlier"
    record_script.main(["collect", str(two_runs[0]), "--results", str(earlier), "--name", "first"])
    (first,) = earlier.glob("*_first")
    grown = tmp_path / "grown"
    command = ["collect", str(first / "seed_1"), str(two_runs[1]), "--results", str(grown), "--name", "old"]
    record_script.main(command)
    whole, record = (json.loads((only_record(path) / "record.json").read_text()) for path in (results, grown))
    assert record["mean"] == whole["mean"]
    assert [seed["scores"] for seed in record["seeds"]] == [seed["scores"] for seed in whole["seeds"]]
    for name in ("test.txt", "metrics.jsonl", "training.json"):
        assert (only_record(grown) / "seed_1" / name).read_bytes() == (
            only_record(results) / "seed_1" / name
        ).read_bytes()
    with pytest.raises(SystemExit, match=r"has alpha 1\.5: use --alpha to choose the same"):
        record_script.main([*command[:3], "--results", str(tmp_path / "other"), "--alpha", "0.6"])


def test_a_finished_run_of_another_kind_is_not_taken_for_this_one(record_script, two_runs, tmp_path):
    """One preset's record must not appear under another preset's name."""
    shutil.copytree(two_runs[0], tmp_path / "runs" / "tour_seed_1")
    replay = ["replay", "--results", str(tmp_path), "--runs", str(tmp_path / "runs"), "--seeds"]
    recorded = json.loads((two_runs[0] / "training.json").read_text(encoding="utf-8"))["configuration"]["preset"]
    same = [
        f"--set={field}={value}"
        for field, value in recorded.items()
        if value != record_script.as_recorded(PRESETS["tour"])[field]
    ]
    with pytest.raises(SystemExit, match=r"tour_seed_1 has a different kind of run: choose a different --name"):
        record_script.main([*replay, "1", "--preset", "tour", *same, "--set=dropout=0.3"])
    shutil.copytree(two_runs[0], tmp_path / "runs" / "tour_seed_2")
    with pytest.raises(SystemExit, match=r"tour_seed_2 has a different kind of run: choose a different --name"):
        record_script.main([*replay, "2", "--preset", "tour", *same])
    assert not list(tmp_path.glob("*_tour"))


def test_a_device_that_is_not_there_is_refused_before_training(record_script, tmp_path):
    command = ["replay", "--preset", "tour", "--results", str(tmp_path), "--runs", str(tmp_path / "runs")]
    with pytest.raises(SystemExit, match="cannot compute on cuda:99 here"):
        record_script.main([*command, "--device", "cuda:99"])
    assert not (tmp_path / "runs").exists()


def test_chinese_is_compared_by_characters(record_script):
    """With the 13a tokenizer, a Chinese sentence is a single word that is either right or wrong as a whole."""
    references = ["两个男人在街上走。", "一个女人在看书。"] * 10
    old, new = [line.replace("个", "只") for line in references], list(references)
    found = record_script.paired_bootstrap([("old", old), ("new", new)], references, "zh")
    assert "tok:zh" in found.replace("tokenize", "tok")
    assert "(100.00)" in found
    assert "(0.00)" not in found


def test_a_record_is_no_better_than_itself(record_script, results, two_runs, tiny_corpus, tmp_path):
    folder = only_record(results)
    answer = record_script.compare(folder, folder, None)
    assert "p = 0.5000" in answer  # the means are the same
    assert "not a new record: that takes 5 seeds and p < 0.05" in answer
    assert answer.splitlines()[2].endswith("the translations are the same")

    better = tmp_path / "better"  # a record in which every seed is perfect
    references = (tiny_corpus / "test.en").read_text(encoding="utf-8")
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    record["seeds"] = [
        record["seeds"][0] | {"seed": seed, "scores": {"test": {"bleu": 100.0 - 0.1 * seed}}} for seed in range(5)
    ]
    for seed in range(5):
        (better / f"seed_{seed}").mkdir(parents=True)
        (better / f"seed_{seed}" / "test.txt").write_text(references, encoding="utf-8")
    (better / "record.json").write_text(json.dumps(record), encoding="utf-8")
    answer = record_script.compare(better, folder, None)
    assert answer.endswith("a new record")
    assert "(100.00)" in answer  # sacreBLEU's own score of the files in the folder
    assert "bs:1000" in answer


@pytest.mark.parametrize(
    ("t", "freedom", "expected"),
    [(0, 3, 0.5), (1, 1, 0.25), (2.132, 4, 0.05), (-2.132, 4, 0.95), (2.920, 2, 0.05), (3.365, 5, 0.01)],
)
def test_the_tail_of_students_t_is_that_of_the_tables(record_script, t, freedom, expected):
    assert record_script.upper_tail(t, freedom) == pytest.approx(expected, abs=2e-5)  # printed tables have three digits


def test_welch_is_the_one_computed_by_hand(record_script):
    """With means 3 and 1, variances 1 and 4, and three seeds each, error² is 5 / 3, with 2.94 degrees of freedom."""
    new, old = [2.0, 3.0, 4.0], [-1.0, 1.0, 3.0]
    freedom = (5 / 3) ** 2 / ((1 / 3) ** 2 / 2 + (4 / 3) ** 2 / 2)
    expected = record_script.upper_tail(2 / math.sqrt(5 / 3), freedom)
    assert freedom == pytest.approx(2.941, abs=1e-3)
    assert record_script.better_by_chance(new, old) == pytest.approx(expected)
    assert record_script.better_by_chance(old, new) == pytest.approx(1 - expected)
    # Compared with a single figure, it is a one-sample t-test: t = 1 / √(1 / 3), 2 degrees of freedom.
    assert record_script.better_by_chance(new, [2.0]) == pytest.approx(record_script.upper_tail(math.sqrt(3), 2))
    assert record_script.better_by_chance([3.0], old) is None


def test_options_bring_back_a_recorded_preset(record_script):
    """A preset may have changed since it was recorded and may have fields that the record lacks."""
    recorded = record_script.as_recorded(replace(PRESETS["gpu"], dropout=0.3, train_limit=7, tie=False))
    del recorded["consistency"]
    options = record_script.training_options(recorded)
    assert options == ["--train-limit=7", "--dropout=0.3", "--tie=False", "--consistency=0.0"]


def test_a_preset_and_the_options_that_make_it_are_of_one_kind(record_script):
    """`train laptop --consistency 5 …` is the same as `train gpu`, so that run may be a seed in the record of `gpu`."""
    gpu = PRESETS["gpu"]
    options = replace(
        PRESETS["laptop"], **{name: getattr(gpu, name) for name in ("epochs", "consistency", "validate_every")}
    )
    kinds = [record_script.kind_of({"preset": record_script.as_recorded(one)}) for one in (gpu, options)]
    older = {"preset": record_script.as_recorded(gpu)}
    assert record_script.kind_of(older) == record_script.kind_of(older | {"validation_sha256": "written down since"})
    assert kinds[0] == kinds[1] != record_script.kind_of({"preset": record_script.as_recorded(PRESETS["laptop"])})


def test_what_makes_no_record_is_refused(record_script, two_runs, tiny_preset, tmp_path):
    def collect(*runs):
        return record_script.main(["collect", *map(str, runs), "--results", str(tmp_path)])

    with pytest.raises(SystemExit, match="the seeds are 1, 1: each can be used only once"):
        collect(two_runs[0], two_runs[0])
    with pytest.raises(SystemExit, match="has no training run: give the --output folder of"):
        collect(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    training = json.loads((two_runs[1] / "training.json").read_text(encoding="utf-8"))
    training["configuration"]["preset"]["dropout"] = 0.3
    (other / "training.json").write_text(json.dumps(training), encoding="utf-8")
    with pytest.raises(SystemExit, match="differ in more than the seed: make two records"):
        collect(two_runs[0], other)
    training["configuration"]["preset"]["dropout"] = 0.1
    training["configuration"]["validation_sha256"] = "others"
    (other / "training.json").write_text(json.dumps(training), encoding="utf-8")
    with pytest.raises(SystemExit, match="have different validation pairs: make two records"):
        collect(two_runs[0], other)
    del training["result"]
    (other / "training.json").write_text(json.dumps(training), encoding="utf-8")
    with pytest.raises(SystemExit, match="is not finished: continue it with --resume"):
        collect(other)
    with pytest.raises(InputError, match="has no records: name a preset with --preset"):
        record_script.best_record(tmp_path)


def test_the_record_with_the_highest_mean_is_the_best(record_script, tmp_path):
    """A later experiment with a lower score must not be what `replay` reruns."""
    for name, bleu in (("a", 41.5), ("b", 43.5), ("c", 42.5)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "record.json").write_text(
            json.dumps({"mean": {"test": {"bleu": bleu}, "other": {"bleu": 50}}})
        )
    assert record_script.best_record(tmp_path).name == "b"
