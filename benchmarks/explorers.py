"""Measure how long an explorer takes to respond, from a change to a control until the new picture appears.

    python benchmarks/explorers.py [--rounds 7]

The goal is 0.150 s for sentences of up to 30 tokens with the included model. Every control is moved back and forth as
in a notebook: in an event loop, including the delay while an explorer waits for a slider to settle. A control's time is
the median over its moves, or the time of its first move if that was slower. The first move is slower if its result is
then cached, such as a translation with one head switched off. An explorer's time is that of its slowest control.
Sentence fields are left out, because a new sentence has to be translated first. Prints the times and writes them to
`results/explorers.json`.
"""

import argparse
import asyncio
import gc
import statistics
import time
from collections import Counter
from typing import Any

from ipywidgets import Widget
from machine import RESULTS, run_script, write_result

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

GOAL = 0.150  # seconds
SENTENCE = (
    "Ein brauner Hund rennt über die grüne Wiese, während zwei Kinder in roten Jacken mit einem Ball im Park spielen."
)


def controls_of(widget: Any) -> list[Widget]:
    """Return the widgets inside `widget` whose value can be changed."""
    inside = [control for child in getattr(widget, "children", ()) for control in controls_of(child)]
    movable = hasattr(widget, "min") or hasattr(widget, "options") or isinstance(getattr(widget, "value", None), bool)
    return [*inside, widget] if movable else inside


def other_value(control: Any) -> Any:
    """Return a value adjacent to the control's current one."""
    if isinstance(control.value, bool):
        return not control.value
    if hasattr(control, "options"):
        option = control.options[(control.index + 1) % len(control.options)]
        return option[1] if isinstance(option, tuple) else option
    step = control.step or 1
    lowest = 10**control.min if "Log" in type(control).__name__ else control.min
    return control.value - step if control.value - step >= lowest else control.value + step


async def seconds_of(explorer: Any, control: Any, rounds: int) -> tuple[float, float]:
    """Return the time of the first move and the median of the others, in seconds."""
    before, taken = control.value, []
    for number in range(2 * rounds):
        value = other_value(control) if number % 2 == 0 else before
        drawn = asyncio.Event()
        explorer.picture.observe(lambda _, drawn=drawn: drawn.set(), "value")
        start = time.perf_counter()
        control.value = value
        await asyncio.wait_for(drawn.wait(), 30)
        taken.append(time.perf_counter() - start)
        explorer.picture.unobserve_all("value")
        gc.collect()  # in a notebook, this happens while the reader looks at the picture
    return taken[0], statistics.median(taken[1:])


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
        "heads, sentence only": explore_heads(translator, SENTENCE, [("Ein Hund rennt.", "A dog runs.")]),
        "label smoothing": explore_label_smoothing(),
        "masks": explore_masks(),
        "positions": explore_positions(),
        "scores": explore_scores(),
        "warm-up": explore_warmup(),
    }
    slowest = {}
    for name, explorer in explorers.items():
        figures = {}
        for control in controls_of(explorer)[:12]:
            first, others = asyncio.run(seconds_of(explorer, control, rounds))
            is_cached = name.startswith("heads")
            taken = round(max(first, others) if is_cached else others, 3)
            figures[control.description] = max(taken, figures.get(control.description, 0.0))
        slow = max(figures, key=figures.get)
        slowest[name] = {"seconds": figures[slow], "control": slow, "controls": figures}
        verdict = "" if figures[slow] <= GOAL else f"  above the goal by {figures[slow] - GOAL:.3f} s"
        print(f"{name:22} {figures[slow]:.3f} s ({slow}){verdict}")
    print(f"{'goal':22} {GOAL:.3f} s")
    result = {
        "what": "seconds from a control's new value to the new picture: the slowest control of each explorer",
        "goal": GOAL,
        "sentence_tokens": tokens,
        "explorers": slowest,
        "command": f"python benchmarks/explorers.py --rounds {rounds}",
    }
    write_result(RESULTS / "explorers.json", result)
    print("wrote explorers.json")


if __name__ == "__main__":
    run_script(main)
