"""Measure a preset's scores over several seeds, and test whether they beat the previous record.

    python benchmarks/record.py replay [--data-dir FOLDER]                    rerun the best record, with 5 seeds
    python benchmarks/record.py replay --preset gpu --set dropout=0.2         measure a preset, with or without changes
    python benchmarks/record.py collect RUN RUN RUN --name laptop             make a record from finished runs
    python benchmarks/record.py collect results/OLD/seed_* RUN --name laptop  … and from the seeds of an earlier one
    python benchmarks/record.py compare results/NEW results/OLD

`replay` trains a model in `runs/` for each seed, with the command a reader would type. It skips finished runs and
resumes interrupted ones. `replay` and `collect` then translate every test set and write a new folder in `results/`:
`record.json` and `README.md` with the figures, and for each seed its log, metrics, full configuration, and
translations. `compare` tests whether the new mean beats the old one (Welch's t-test over seeds) and whether the new
translations beat the old ones (sacreBLEU's paired bootstrap, on the middle seed of each).
"""

import argparse
import math
import os
import shlex
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from machine import RESULTS, ROOT, describe_machine, timed

from transformer_lab.data import Corpus, load_corpus
from transformer_lab.decoding import DEFAULT_ALPHA, Translator
from transformer_lab.errors import InputError
from transformer_lab.evaluation import score_translations
from transformer_lab.evaluation.scores import bleu_tokenizer
from transformer_lab.training import Preset, find_preset, override, read_metrics
from transformer_lab.training.distributed import choose_device
from transformer_lab.training.records import configuration, read_json, write_json

SEEDS_THAT_COUNT = 5
SIGNIFICANT = 0.05


# --- training ---


def best_record(results: Path) -> Path:
    """Return the folder of the record with the highest mean BLEU on its first test set.

    Raises:
        InputError: There is no record.
    """
    records = list(results.glob("*/record.json"))
    if not records:
        raise InputError(f"{results} has no records: name a preset with --preset")
    return max(records, key=lambda path: next(iter(read_json(path)["mean"].values()))["bleu"]).parent


def training_options(preset: Mapping[str, Any]) -> list[str]:
    """Return the options that turn the current preset of that name into `preset`, which may lack newer fields.

    Raises:
        InputError: There is no preset with that name.
    """
    standard, defaults = as_recorded(find_preset(preset["name"])), as_recorded(Preset(name=""))
    return [
        f"--{field.replace('_', '-')}={','.join(map(str, value)) if isinstance(value, list) else value}"
        for field, value in (defaults | dict(preset)).items()
        if field not in ("name", "seed") and value != standard[field]
    ]


def as_recorded(preset: Preset) -> dict[str, Any]:
    return configuration(preset, Corpus("", "", "", [], [], {}))["preset"]


def train_seed(
    preset: Mapping[str, Any],
    languages: tuple[str, str],
    seed: int,
    folder: Path,
    data_dir: Path | None,
    device: str | None,
) -> None:
    """Train with one seed, as a reader would, and save the command's output and run time in the run's folder.

    Raises:
        InputError: The folder contains a different kind of run, or the command failed. If it failed, the message ends
            with the last line of its output.
    """
    begun = (folder / "training.json").exists()
    if begun and "result" in (earlier := read_json(folder / "training.json")):
        of_folder = kind_of(earlier["configuration"])
        wanted = kind_of(earlier["configuration"] | {"preset": preset, "source": languages[0], "target": languages[1]})
        if of_folder != wanted or earlier["configuration"]["preset"]["seed"] != seed:
            raise InputError(f"{folder} has a different kind of run: choose a different --name or --runs")
        print(f"{folder}: already finished", flush=True)
        return
    command = ["transformer-lab", "train", preset["name"], f"--output={folder}", f"--seed={seed}"]
    command += [f"--source={languages[0]}", f"--target={languages[1]}"] * (languages != ("de", "en"))
    command += training_options(preset) + [f"--device={device}"] * bool(device) + ["--resume"] * begun
    print(shlex.join(command), flush=True)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    if data_dir:  # as an environment variable, because an option would end up in the record
        environment["TRANSFORMER_LAB_DATA"] = str(data_dir)
    folder.mkdir(parents=True, exist_ok=True)
    started = [sys.executable, "-m", "transformer_lab", *command[1:]]
    with open(folder / "log.txt", "a", encoding="utf-8") as log:
        seconds, ended = timed(subprocess.run, started, stdout=log, stderr=subprocess.STDOUT, env=environment)
    if ended.returncode:
        last_lines = (folder / "log.txt").read_text(encoding="utf-8").strip().splitlines()[-1:]
        raise InputError(f"{folder}: {' '.join(last_lines)}")
    write_json(folder / "command.json", {"seconds": None if begun else round(seconds, 1)})


# --- measuring ---


def recorded_seed(folder: Path, corpus: Corpus, alpha: float) -> tuple[dict[str, Any], dict[str, list[str]]] | None:
    """Return the figures and translations of a record's seed, or None if the folder does not belong to a record.

    Raises:
        InputError: The record was decoded with a different length penalty.
    """
    if not (folder.parent / "record.json").exists():
        return None
    record = read_json(folder.parent / "record.json")
    if record["decoding"]["alpha"] != alpha:
        raise InputError(f"{folder.parent} has alpha {record['decoding']['alpha']}: use --alpha to choose the same")
    [figures] = (figures for figures in record["seeds"] if folder.name == f"seed_{figures['seed']}")
    return figures, {name: recorded_translations(folder, name) for name in corpus.tests}


def recorded_translations(folder: Path, test: str) -> list[str]:
    return (folder / f"{test}.txt").read_text(encoding="utf-8").split("\n")[:-1]


def measure_run(
    folder: Path, corpus: Corpus, alpha: float, device: str | None, reach: float | None
) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Return a finished run's figures for `record.json`, and its translations of each test set."""
    training = read_json(folder / "training.json")
    translator = Translator.load(folder)
    translator.model.to(choose_device(device))
    beam_size = training["configuration"]["preset"]["beam_size"]
    scores, translations = {}, {}
    for name, pairs in corpus.tests.items():
        sources, references = (list(side) for side in zip(*pairs, strict=True))
        translations[name] = translator.translate(sources, beam_size=beam_size, alpha=alpha)
        found = score_translations(translations[name], references, training["configuration"]["target"])
        scores[name] = {metric: round(getattr(found, metric), 2) for metric in ("bleu", "bleu_lowercased", "chrf")}
        scores[name]["signature"] = found.signatures["bleu"]
    result, environment = training["result"], training["environment"]
    whole_command = folder / "command.json"
    seconds = read_json(whole_command)["seconds"] if whole_command.exists() else None
    figures = {
        "seed": training["configuration"]["preset"]["seed"],
        "scores": scores,
        "validation_bleu": round(result["validation_bleu"], 2),
        "chosen": result["chosen"],
        "parameters": result["parameters"],
        "training_seconds": result["seconds"],
        "command_seconds": seconds,
        "peak_memory_mib": result["peak_memory_mib"],
        **{name: environment[name] for name in ("device", "precision", "commit")},
    }
    if reach is not None:
        before_training = seconds - result["seconds"] if seconds else 0.0  # program start and reading the corpus
        figures["seconds_to_reach"] = {"bleu": reach, "seconds": seconds_to_reach(folder, reach, before_training)}
    return figures, translations


def configuration_of(run: Path) -> dict[str, Any]:
    """Return a finished run's configuration.

    Raises:
        InputError: The folder does not contain a finished run.
    """
    if not (run / "training.json").exists():
        raise InputError(f"{run} has no training run: give the --output folder of transformer-lab train")
    training = read_json(run / "training.json")
    if "result" not in training:
        raise InputError(f"the run in {run} is not finished: continue it with --resume")
    return training["configuration"]


def kind_of(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration that the runs of a record must share.

    This leaves out the seed. It also leaves out the preset's name, because options may have turned a different preset
    into this one, and the length penalty used to choose the final weights, because the record has its own. A field that
    was added after the run gets its default, which is what the run used.
    """
    preset = as_recorded(Preset(name="")) | configuration["preset"] | {"name": None, "seed": None, "alpha": None}
    return {**configuration, "preset": preset, "validation_sha256": None}  # missing in older runs


def seconds_to_reach(folder: Path, bleu: float, before_training: float) -> float | None:
    """Return the seconds from the start of the command until validation BLEU reached `bleu`.

    If it never did, return None. After each epoch, BLEU is measured with greedy decoding; at the end, with beam search.
    """
    for record in read_metrics(folder / "metrics.jsonl"):
        if record["kind"] != "step" and (record["validation_bleu"] or 0.0) >= bleu:
            return round(before_training + record["seconds"], 1)
    return None


def record_folder(arguments: argparse.Namespace, preset: str) -> Path:
    """Return the folder for a new record.

    Raises:
        InputError: There is a record with that name.
    """
    folder = arguments.results / f"{datetime.now():%Y-%m-%d}_{arguments.name or preset}"
    if folder.exists():
        raise InputError(f"{folder} already exists: choose a different --name (for finished runs, use collect)")
    return folder


def write_record(runs: Sequence[Path], arguments: argparse.Namespace, alpha: float = DEFAULT_ALPHA) -> Path:
    """Measure runs that differ only in their seed, with this length penalty or the one in the arguments.

    Returns:
        The new folder with their record.

    Raises:
        InputError: The runs have different configurations, one is not finished, or the folder already exists.
    """
    configurations = [configuration_of(run) for run in runs]
    one = configurations[0]
    alpha = alpha if arguments.alpha is None else arguments.alpha
    folder = record_folder(arguments, one["preset"]["name"])
    for run, other in zip(runs, configurations, strict=True):
        if kind_of(other) != kind_of(one):
            raise InputError(f"{run} and {runs[0]} differ in more than the seed: make two records")
    if len({other["validation_sha256"] for other in configurations if "validation_sha256" in other}) > 1:
        raise InputError("the runs have different validation pairs: make two records")
    seeds = [other["preset"]["seed"] for other in configurations]
    if len(set(seeds)) < len(seeds):
        raise InputError(f"the seeds are {', '.join(map(str, seeds))}: each can be used only once")
    corpus = load_corpus(one["preset"]["corpus"], one["source"], one["target"], arguments.data_dir)
    command = shlex.join(["python", "benchmarks/record.py", *arguments.typed])
    if arguments.data_dir:
        command = command.replace(str(arguments.data_dir), "DATA")

    unfinished = folder.with_name(folder.name + ".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    measured = []
    for run in runs:
        figures, translations = recorded_seed(run, corpus, alpha) or measure_run(
            run, corpus, alpha, arguments.device, arguments.reach
        )
        measured.append(figures)
        kept = unfinished / f"seed_{figures['seed']}"
        kept.mkdir(parents=True)
        for name in ("training.json", "metrics.jsonl"):
            shutil.copyfile(run / name, kept / name)
        if (run / "log.txt").exists():
            (kept / "log.txt").write_text(without_progress_bars(run / "log.txt"), encoding="utf-8")
        for name, lines in translations.items():
            (kept / f"{name}.txt").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        print(f"seed {figures['seed']}: " + ", ".join(f"{n} {s['bleu']:.2f}" for n, s in figures["scores"].items()))
    measured.sort(key=lambda figures: figures["seed"])
    record = {
        "what": f"preset {one['preset']['name']}, {one['source']} to {one['target']}, {len(runs)} seed(s): "
        f"cased sacreBLEU ({bleu_tokenizer(one['target'])}) on each test set",
        "written": datetime.now().isoformat(timespec="seconds"),
        "command": command,
        "preset": one["preset"],
        "source": one["source"],
        "target": one["target"],
        "decoding": {"beam_size": one["preset"]["beam_size"], "alpha": alpha},
        "mean": {name: summary([run["scores"][name]["bleu"] for run in measured]) for name in corpus.tests},
        "seeds": measured,
        "machine": describe_machine(),
    }
    write_json(unfinished / "record.json", record)
    (unfinished / "README.md").write_text(readme(folder.name, record), encoding="utf-8")
    unfinished.replace(folder)
    return folder


def without_progress_bars(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8").splitlines()]  # a progress bar ends in \r
    return "".join(line + "\n" for line in lines if line and "%|" not in line)


def summary(scores: Sequence[float]) -> dict[str, float | None]:
    deviation = round(statistics.stdev(scores), 2) if len(scores) > 1 else None
    return {"bleu": round(statistics.mean(scores), 2), "standard_deviation": deviation}


def readme(title: str, record: Mapping[str, Any]) -> str:
    """Return a page with a record's figures. Their interpretation is written by hand."""
    tests, seeds, machine = list(record["mean"]), record["seeds"], record["machine"]
    rows = [["seed", *tests, "validation", "chosen weights", "training time", "total time", "peak memory"]]
    for seed in seeds:
        whole = f"{seed['command_seconds']:,.0f} s" if seed["command_seconds"] else ""
        rows.append(
            [str(seed["seed"])]
            + [f"{seed['scores'][name]['bleu']:.2f}" for name in tests]
            + [f"{seed['validation_bleu']:.2f}", seed["chosen"], f"{seed['training_seconds']:,.0f} s", whole]
            + [f"{seed['peak_memory_mib']:,} MiB"]
        )
    means = [f"{record['mean'][name]['bleu']:.2f}" for name in tests]
    rows.append(["**mean**", *(f"**{mean}**" for mean in means), *[""] * 5])
    if len(seeds) > 1:
        deviations = [f"{record['mean'][name]['standard_deviation']:.2f}" for name in tests]
        rows.append(["standard deviation", *deviations, *[""] * 5])
    table = ["| " + " | ".join(row) + " |" for row in rows]
    table.insert(1, "| " + " | ".join(["---"] * len(rows[0])) + " |")
    reached = [seed["seconds_to_reach"] for seed in seeds if "seconds_to_reach" in seed]
    lines = [f"# {title}", "", f"Preset `{record['preset']['name']}`. Recorded with this command:", ""]
    lines += [f"    {record['command']}", "", *table]
    if reached:
        times = ", ".join(f"{one['seconds']} s" if one["seconds"] else "never" for one in reached)
        lines += ["", f"From the start of the command to a validation BLEU of {reached[0]['bleu']}: {times}."]
    lines += [
        "",
        f"sacreBLEU `{seeds[0]['scores'][tests[0]]['signature']}`, beam {record['decoding']['beam_size']}, length "
        f"penalty {record['decoding']['alpha']}. Trained on {seeds[0]['device']} in {seeds[0]['precision']}; measured "
        f"on {machine['processor']}, {machine['cores']} cores, torch {machine['torch']}.",
        "",
        "`record.json` has every figure. Each seed's folder has its log, metrics, full configuration, and "
        "translations.",
    ]
    return "\n".join(lines) + "\n"


# --- comparing ---


def upper_tail(t: float, freedom: float) -> float:
    """Return the probability that Student's t with `freedom` degrees of freedom exceeds `t`.

    With t = √freedom · tan θ, the density becomes a power of cos θ, which is summed at the midpoints of small steps.
    """
    steps = 20_000
    start = math.atan(t / math.sqrt(freedom))
    width = (math.pi / 2 - start) / steps
    area = width * math.fsum(math.cos(start + (step + 0.5) * width) ** (freedom - 1) for step in range(steps))
    return area * math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)


def better_by_chance(new: Sequence[float], old: Sequence[float]) -> float | None:
    """Return the probability that `new` would lead by at least this much if both had the same mean.

    This is Welch's one-sided t-test. If `old` has a single seed, its score is treated as exact. Return None if `new`
    has a single seed.
    """
    if len(new) < 2:
        return None
    lead = statistics.mean(new) - statistics.mean(old)
    measured = [scores for scores in (new, old) if len(scores) > 1]
    errors = [statistics.variance(scores) / len(scores) for scores in measured]
    error = sum(errors)
    if not error:
        return 0.0 if lead > 0 else 1.0
    # Welch–Satterthwaite
    freedom = error**2 / sum(one**2 / (len(scores) - 1) for one, scores in zip(errors, measured, strict=True))
    return upper_tail(lead / math.sqrt(error), freedom)


def middle_seed(record: Mapping[str, Any], test: str) -> int:
    """Return the seed with the median BLEU; for an even number of seeds, the lower of the middle two."""
    ranked = sorted(record["seeds"], key=lambda run: run["scores"][test]["bleu"])
    return ranked[(len(ranked) - 1) // 2]["seed"]


def paired_bootstrap(systems: Sequence[tuple[str, list[str]]], references: list[str], target: str) -> str:
    """Run sacreBLEU's paired test on two systems, old and new, each given as a name and its translations."""
    from sacrebleu.metrics import BLEU
    from sacrebleu.significance import PairedTest

    (old_name, old), (new_name, new) = systems
    if old == new:  # otherwise, sacreBLEU would report its smallest p, because no resample's difference exceeds zero
        return f"paired bootstrap of {new_name} and {old_name}: the translations are the same"
    bleu = BLEU(tokenize=bleu_tokenizer(target))
    signatures, found = PairedTest(systems, {"BLEU": bleu}, [references], test_type="bs")()
    of_old, of_new = found["BLEU"]
    return (
        f"paired bootstrap of {new_name} ({of_new.score:.2f}) and {old_name} ({of_old.score:.2f}): "
        f"p = {of_new.p_value:.4f}, {signatures['BLEU']}"
    )


def compare(new_folder: Path, old_folder: Path, data_dir: Path | None) -> str:
    """Return lines of text that say whether the new record beats the old one.

    Raises:
        InputError: A folder has no record, or the two records have different corpora or directions.
    """
    for folder in (new_folder, old_folder):
        if not (folder / "record.json").exists():
            raise InputError(f"{folder} has no record: make one with replay or collect")
    new, old = read_json(new_folder / "record.json"), read_json(old_folder / "record.json")
    tasks = [(record["preset"]["corpus"], record["source"], record["target"]) for record in (new, old)]
    if tasks[0] != tasks[1]:
        raise InputError(f"{new_folder} is for {' '.join(tasks[0])}, but {old_folder} is for {' '.join(tasks[1])}")
    corpus = load_corpus(*tasks[0], data_dir)
    test = next(iter(corpus.tests))
    scores = [[run["scores"][test]["bleu"] for run in record["seeds"]] for record in (new, old)]
    chance = better_by_chance(*scores)

    systems = []
    for folder, record in ((old_folder, old), (new_folder, new)):
        seed = middle_seed(record, test)
        systems.append((f"{folder.name}, seed {seed}", recorded_translations(folder / f"seed_{seed}", test)))
    lines = [
        f"{test}, mean BLEU: {statistics.mean(scores[0]):.2f} over {len(scores[0])} seeds; "
        f"previously {statistics.mean(scores[1]):.2f} over {len(scores[1])}",
        "Welch's t-test, one-sided: " + ("needs at least two seeds" if chance is None else f"p = {chance:.4f}"),
        paired_bootstrap(systems, [reference for _, reference in corpus.tests[test]], new["target"]),
    ]
    enough = len(scores[0]) >= SEEDS_THAT_COUNT
    if chance is not None and chance < SIGNIFICANT and enough:
        lines.append("a new record")
    else:
        lines.append(f"not a new record: that takes {SEEDS_THAT_COUNT} seeds and p < {SIGNIFICANT}")
    return "\n".join(lines)


# --- the command ---


def replay(arguments: argparse.Namespace) -> Path:
    """Train the requested preset, and write its record. By default, use the best record's preset."""
    alpha = DEFAULT_ALPHA
    if arguments.preset:
        if wrong := [change for change in arguments.set if "=" not in change]:
            raise InputError(f"--set takes FIELD=VALUE, but was given {wrong[0]!r}")
        changes = dict(change.split("=", 1) for change in arguments.set)
        preset, languages = as_recorded(override(find_preset(arguments.preset), changes)), ("de", "en")
    else:
        if arguments.set:
            raise InputError("--set changes a preset: name one with --preset")
        record = read_json(best_record(arguments.results) / "record.json")
        preset, alpha = record["preset"], record["decoding"]["alpha"]
        languages = record["source"], record["target"]
    record_folder(arguments, preset["name"])  # fail now, not after hours of training
    choose_device(arguments.device)
    runs = {
        seed: arguments.runs / f"{arguments.name or preset['name']}_seed_{seed}"
        for seed in range(1, arguments.seeds + 1)
    }
    for seed, run in runs.items():
        train_seed(preset, languages, seed, run, arguments.data_dir, arguments.device)
    return write_record([*runs.values()], arguments, alpha)


def at_least_one(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {text}")
    return int(text)


def main(typed: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--data-dir", type=Path, help="folder with Multi30k; downloaded if omitted")
    measuring = argparse.ArgumentParser(add_help=False, parents=[common])
    measuring.add_argument("--name", help="name of the folder, after the date; default: the preset's")
    measuring.add_argument("--results", type=Path, default=RESULTS, help="folder that contains all records")
    measuring.add_argument("--alpha", type=float, help=f"length penalty; default: {DEFAULT_ALPHA} or the record's")
    measuring.add_argument("--device", help="device, such as cpu; default: a GPU if there is one")
    measuring.add_argument("--reach", type=float, metavar="BLEU", help="report when this validation BLEU was reached")
    replaying = commands.add_parser("replay", parents=[measuring], help="train, measure, and write the record")
    replaying.add_argument("--preset", help="default: the best record's")
    replaying.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="change the preset")
    replaying.add_argument("--seeds", type=at_least_one, default=SEEDS_THAT_COUNT, help="train seeds 1 to this number")
    replaying.add_argument("--runs", type=Path, default=Path("runs"), help="where the training runs go")
    collecting = commands.add_parser("collect", parents=[measuring], help="measure finished runs and write the record")
    collecting.add_argument("run", type=Path, nargs="+", help="folder of a finished run, or of a record's seed")
    comparing = commands.add_parser("compare", parents=[common], help="does the new record beat the old one?")
    comparing.add_argument("new", type=Path)
    comparing.add_argument("old", type=Path)
    arguments = parser.parse_args(typed)
    arguments.typed = sys.argv[1:] if typed is None else list(typed)

    try:
        if arguments.command == "compare":
            print(compare(arguments.new, arguments.old, arguments.data_dir))
            return
        folder = replay(arguments) if arguments.command == "replay" else write_record(arguments.run, arguments)
    except InputError as error:
        sys.exit(f"record.py: {error}")
    for test, figures in read_json(folder / "record.json")["mean"].items():
        print(f"{test}: {figures['bleu']:.2f}, standard deviation {figures['standard_deviation']}")
    print(folder)


if __name__ == "__main__":
    main()
