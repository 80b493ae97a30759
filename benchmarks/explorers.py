"""How long an explorer takes to answer: from a control's new value to the new picture.

    python benchmarks/explorers.py [--rounds 7]

The goal: 0.150 s for sentences up to 30 tokens with the model that comes with the package. Every control is moved, back
and forth; a control's figure is the median, and an explorer's that of its slowest control. A new sentence has to be
translated first, so it stands for itself. Prints the figures and writes them to `results/explorers.json`.
"""

import argparse
import json
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

from environment import describe_machine
from ipywidgets import Widget

from transformer_lab.data import learn_bpe
from transformer_lab.decoding import load_pretrained
from transformer_lab.plots import (
    explore_attention,
    explore_beam,
    explore_byte_pairs,
    explore_heads,
    explore_label_smoothing,
    explore_masks,
    explore_positions,
    explore_scores,
    explore_warmup,
)

RESULT = Path(__file__).resolve().parent.parent / "results" / "explorers.json"
SENTENCE = (
    "Ein brauner Hund rennt über die grüne Wiese, während zwei Kinder in roten Jacken mit einem Ball im Park spielen."
)


def controls_of(widget: Any) -> list[Widget]:
    """The widgets inside with a value that can be moved."""
    inside = [control for child in getattr(widget, "children", ()) for control in controls_of(child)]
    movable = hasattr(widget, "min") or hasattr(widget, "options") or isinstance(getattr(widget, "value", None), bool)
    return [*inside, widget] if movable else inside


def other_value(control: Any) -> Any:
    """A value next to the one it has."""
    if isinstance(control.value, bool):
        return not control.value
    if hasattr(control, "options"):
        option = control.options[(control.index + 1) % len(control.options)]
        return option[1] if isinstance(option, tuple) else option
    step = control.step or 1
    lowest = 10**control.min if "Log" in type(control).__name__ else control.min
    return control.value - step if control.value - step >= lowest else control.value + step


def seconds_of(control: Any, rounds: int) -> float:
    before, taken = control.value, []
    for number in range(2 * rounds):
        value = other_value(control) if number % 2 == 0 else before
        start = time.perf_counter()
        control.value = value
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds

    translator = load_pretrained()
    tokens = len(translator.tokenizer.encode_source(SENTENCE))
    texts = {"German": "ein hund rennt und ein hund spielt", "English": "a dog runs and a dog plays"}
    counts = {language: Counter(text.split()) for language, text in texts.items()}
    merges = learn_bpe(sum(counts.values(), Counter()), 30)
    explorers = {
        "attention": explore_attention(translator, SENTENCE),
        "beam": explore_beam(translator, SENTENCE),
        "byte pairs": explore_byte_pairs(merges, texts, counts),
        "heads, sentence only": explore_heads(translator, SENTENCE, [(SENTENCE, "A dog runs.")]),
        "label smoothing": explore_label_smoothing(),
        "masks": explore_masks(),
        "positions": explore_positions(),
        "scores": explore_scores(),
        "warm-up": explore_warmup(),
    }
    slowest = {}
    for name, explorer in explorers.items():
        figures = {
            str(control.description): round(seconds_of(control, rounds), 3) for control in controls_of(explorer)[:12]
        }
        description = max(figures, key=figures.get)
        slowest[name] = {"seconds": figures[description], "control": description, "controls": figures}
        print(f"{name:22} {figures[description]:.3f} s ({description})")
    result = {
        "what": "seconds from a control's new value to the new picture: the slowest control of each explorer",
        "goal": 0.150,
        "sentence_tokens": tokens,
        "explorers": slowest,
        "command": f"python benchmarks/explorers.py --rounds {rounds}",
        "machine": describe_machine(),
    }
    RESULT.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"wrote {RESULT.name}")


if __name__ == "__main__":
    main()
