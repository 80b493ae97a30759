"""Measure how well the `laptop` preset does in other languages, in about 20 minutes each on two CPU cores.

    python benchmarks/languages.py en_fr
    python benchmarks/languages.py en_zh
    python benchmarks/languages.py ted

Each call runs `transformer-lab train` with the options below in a subfolder of `--runs`, and then translates the test
sets with `transformer-lab evaluate`. The corpora are read from `TRANSFORMER_LAB_DATA`; Multi30k is downloaded if it is
missing. The measurements go to `results/DATE_languages/NAME.json`, which does not contain any sentences from a corpus.
An interrupted run continues after its last finished epoch.

The goals: 50 BLEU for `en_fr` on test2016, and 20 for `en_zh` on its 1,000 held-out pairs. There is no goal for the TED
sample, which has 20,000 pairs from talks on all kinds of topics. It is too small to train a usable translator, and its
score shows how far the translator falls short.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

from machine import RESULTS, run_script, timed, write_result

from transformer_lab.data import load_corpus
from transformer_lab.training import read_metrics

ADAM = "--optimizer adam --peak-rate 3e-3 --weight-decay 0"  # the preset's optimizer when these runs were recorded
RUNS = {
    "en_fr": {
        "goal": {"test": "test_2016_flickr", "bleu": 50},
        "corpus": "multi30k",
        "languages": ("en", "fr"),
        "options": f"--epochs 15 {ADAM}",
        "tests": ["test_2016_flickr", "test_2017_flickr", "test_2017_mscoco"],
    },
    "en_zh": {
        "goal": {"test": "test", "bleu": 20},
        "corpus": "tatoeba_en_zh/cmn.txt.gz",
        "languages": ("en", "zh"),
        "options": "--chinese characters --vocab-size 5000 --dropout 0.2 --max-tokens 1600 --warmup-steps 400 "
        f"--epochs 24 {ADAM}",
        "tests": ["test"],
    },
    "ted": {
        "goal": None,
        "corpus": "ted_de_en",
        "languages": ("de", "en"),
        "options": f"--dropout 0.2 --epochs 13 --validate-every 1 {ADAM}",
        "tests": ["tst2010", "tst2012"],
    },
}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "transformer_lab", *arguments]


def train(name: str, folder: Path) -> None:
    """Train or resume a run. Its output goes to `log.txt`."""
    run = RUNS[name]
    source, target = run["languages"]
    arguments = ["train", "laptop", "--corpus", run["corpus"], "--source", source, "--target", target]
    arguments += [*shlex.split(run["options"]), "--output", str(folder)]
    if (folder / "training.json").exists():
        arguments.append("--resume")
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "log.txt", "a", encoding="utf-8") as log:
        subprocess.run(command(*arguments), stdout=log, stderr=log, check=True)


def evaluate(name: str, folder: Path) -> dict[str, Any]:
    """Return the scores on each test set, and BLEU for the same translations with sacreBLEU's other tokenizers."""
    from sacrebleu.metrics import BLEU

    run = RUNS[name]
    corpus = load_corpus(run["corpus"], *run["languages"])
    scores = {}
    for test in run["tests"]:
        hypotheses = folder / f"{test}.txt"
        printed = subprocess.run(
            command(
                *("evaluate", "--model", str(folder), "--corpus", run["corpus"]),
                *("--split", test, "--output", str(hypotheses)),
            ),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
        print(f"{name}, {test}\n{printed}", flush=True)
        translations = hypotheses.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        references = [reference for _, reference in corpus.tests[test]]
        scores[test] = {
            "pairs": len(references),
            "scores": {
                title: {"score": float(score), "signature": signature}
                for title, score, signature in re.findall(r"^(\S.*?) +([\d.]+)  (\S+)$", printed, re.MULTILINE)
            },
            "bleu_by_tokenizer": {
                tokenizer: round(BLEU(tokenize=tokenizer).corpus_score(translations, [references]).score, 2)
                for tokenizer in ("13a", "intl", "zh", "char", "none")
            },
        }
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=RUNS)
    parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="FOLDER", help="where to save the model")
    arguments = parser.parse_args()

    name, folder = arguments.name, arguments.runs / arguments.name
    is_finished = (folder / "weights.safetensors").exists()  # a finished run only needs scoring
    seconds = None if is_finished else round(timed(train, name, folder)[0], 1)
    training = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    result = {
        "what": f"transformer-lab train laptop {RUNS[name]['options']}, {' to '.join(RUNS[name]['languages'])}, "
        "and sacreBLEU on held-out sets",
        "goal": RUNS[name]["goal"],
        "seconds_of_the_command": seconds,
        "tests": evaluate(name, folder),
        "training": training,
        "epochs": [record for record in read_metrics(folder / "metrics.jsonl") if record["kind"] == "epoch"],
    }
    path = RESULTS / f"{date.today().isoformat()}_languages" / f"{name}.json"
    write_result(path, result)
    print(f"{path}: {training['result']['seconds'] / 60:.1f} minutes of training")


if __name__ == "__main__":
    run_script(main)
