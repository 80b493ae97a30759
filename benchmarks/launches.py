"""Count the operations in an update and in decoding, because they determine the speed of a small model on a GPU.

    python benchmarks/launches.py [--data-dir FOLDER]

When a model is small, a GPU finishes each operation before the next one is launched, and a launch takes a few
microseconds. The number of operations therefore determines how long a step takes on a GPU, and it can be counted on any
machine. Only operations that compute or move data are counted; a view of a tensor does not launch anything. Dropout and
fused attention are several operations on a CPU but one on a GPU, so the counts are, if anything, too high. For an
update, the operations of the `gpu-sprint` model are counted three times: in a plain loop (`benchmarks/training.py`),
with autocast alone, and as the model is actually trained. For decoding, the included model translates test2016 with a
beam of 4, with batches sized for a CPU and with batches sized for a GPU.

Prints the counts and writes them to `results/launches.json`.
"""

import argparse
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from unittest import mock

import torch
from machine import RESULTS, run_script, write_result
from torch.utils._python_dispatch import TorchDispatchMode
from training import AsTrained, PlainLoop, batches_for

from transformer_lab.data import load_corpus
from transformer_lab.data.tokenizers import train_tokenizer
from transformer_lab.decoding import incremental, translator
from transformer_lab.presets import find_preset
from transformer_lab.training.fast_gradients import FastGradients, OutputLayerLoss
from transformer_lab.training.trainer import encode_pairs

PAIRS = 3000  # enough for batches of every length
LAUNCH_NOTHING = {
    "aten::_unsafe_view",
    "aten::detach",
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::new_empty",
    "aten::scalar_tensor",
}


class Launches(TorchDispatchMode):
    """Count the operations computed inside the `with` block, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: Counter[str] = Counter()

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        name = operation._schema.name
        if name.startswith("aten::") and name not in LAUNCH_NOTHING and not operation.is_view:
            self.counted[name] += 1
        return operation(*arguments, **(options or {}))


def counted(run: Callable[[], object]) -> int:
    with Launches() as launches:
        run()
    return launches.counted.total()


def of_an_update(data_dir: Path | None) -> dict[str, int]:
    """Count the operations in the second update; the first one also creates the optimizer's state."""
    pairs = load_corpus("multi30k", data_dir=data_dir).train[:PAIRS]
    plain = replace(find_preset("gpu-sprint"), fast=False, precision="bf16")  # as it would be on a GPU
    tokenizer = train_tokenizer("bpe", pairs, vocab_size=plain.vocab_size)
    encoded, cpu = encode_pairs(tokenizer, pairs, "training", plain), torch.device("cpu")
    as_on_gpu = AsTrained(plain, tokenizer, cpu)
    as_on_gpu.fast = FastGradients(as_on_gpu.model, as_on_gpu.precision, device_type="cuda")
    contenders = {
        "plain_loop": PlainLoop(plain, tokenizer, cpu),
        "autocast": AsTrained(plain, tokenizer, cpu),
        "as_trained": as_on_gpu,
    }
    found = {}
    for name, contender in contenders.items():
        first, batch = islice(batches_for(contender, tokenizer, encoded), 2)
        contender.update(first)
        found[name] = counted(lambda contender=contender, batch=batch: contender.update(batch))
        print(f"one update, {name}: {found[name]} operations for {batch.target_tokens} tokens", flush=True)
    return found


def of_decoding(data_dir: Path | None) -> dict[str, int]:
    """Count the operations for decoding all of test2016, in CPU batches and in GPU batches."""
    sentences = [source for source, _ in load_corpus("multi30k", data_dir=data_dir).test]
    included = translator.load_pretrained()
    found = {"processor": counted(lambda: included.translate(sentences))}
    with (
        mock.patch.object(translator, "BATCH_CELLS", translator.BATCH_CELLS_ON_GPU),
        mock.patch.object(incremental, "ROWS_AT_ONCE", incremental.ROWS_AT_ONCE_ON_GPU),
        mock.patch.object(incremental, "top_indices", lambda x, k: x.topk(k).indices),
    ):
        found["gpu"] = counted(lambda: included.translate(sentences))
    for name, number in found.items():
        print(f"test2016, {name}: {number} operations", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, help="folder with Multi30k; downloaded if omitted")
    parser.add_argument("--result", type=Path, default=RESULTS / "launches.json", help="file to write")
    arguments = parser.parse_args()
    with mock.patch.object(OutputLayerLoss, "tokens_at_a_time", OutputLayerLoss.tokens_at_a_time_on_gpu):
        update = of_an_update(arguments.data_dir)
    result = {
        "what": "operations that launch work on a GPU, counted on a CPU: in one update of gpu-sprint, and in decoding "
        "test2016 with a beam of 4",
        "update": update,
        "decoding": of_decoding(arguments.data_dir),
    }
    write_result(arguments.result, result)


if __name__ == "__main__":
    run_script(main)
