"""How much faster the `laptop` preset trains than the same model with torch's default attention kernel in float32.

    python benchmarks/training.py [--data-dir FOLDER] [--rounds 8] [--updates 6]

Both train on the same batches of Multi30k, in turn, so that whatever else the machine does meets both. Prints target
tokens a second of each and the ratio, and writes them to `results/training_throughput.json`.
"""

import argparse
import json
import statistics
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch
from environment import describe_machine

from transformer_lab.data import load_corpus
from transformer_lab.data.batches import Batch, bucketed_batches
from transformer_lab.data.tokenizers import Tokenizer, train_tokenizer
from transformer_lab.model import Transformer, fused_attention, set_attention
from transformer_lab.training.distributed import Processes
from transformer_lab.training.fast import FastGradients
from transformer_lab.training.presets import Preset, find_preset
from transformer_lab.training.steps import build_optimizer, computing_precision, train_step, update_weights
from transformer_lab.training.trainer import encode_pairs, new_model

RESULT = Path(__file__).resolve().parent.parent / "results" / "training_throughput.json"


class AsTrained:
    """The preset as `transformer-lab train` runs it."""

    def __init__(self, preset: Preset, tokenizer: Tokenizer) -> None:
        self.preset = preset
        self.model = new_model(preset, tokenizer, Transformer)
        self.optimizer = build_optimizer(self.model, preset)
        self.precision = computing_precision(preset, torch.device("cpu"))
        self.fast = FastGradients(self.model, self.precision) if preset.fast else None

    def update(self, batch: Batch) -> None:
        update_weights(self.model, [batch], self.optimizer, self.preset, self.precision, Processes(), self.fast)


class DefaultKernel:
    """The same model in float32, with `F.scaled_dot_product_attention` left to choose its kernel."""

    def __init__(self, preset: Preset, tokenizer: Tokenizer) -> None:
        self.preset = preset
        self.model = new_model(replace(preset, attention="explicit"), tokenizer, Transformer)
        set_attention(self.model, fused_attention)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.0, betas=preset.betas, eps=preset.eps)

    def update(self, batch: Batch) -> None:
        train_step(self.model, batch, self.optimizer, self.preset.label_smoothing, self.preset.clip_norm)


def tokens_per_second(contender: AsTrained | DefaultKernel, batches: list[Batch]) -> float:
    start = time.perf_counter()
    for batch in batches:
        contender.update(batch)
    return sum(batch.target_tokens for batch in batches) / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, help="where Multi30k lies, if it is not to be downloaded")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--updates", type=int, default=6, help="of each contender in a round")
    arguments = parser.parse_args()

    preset = find_preset("laptop")
    train_pairs = load_corpus(preset.corpus, data_dir=arguments.data_dir).train
    tokenizer = train_tokenizer(preset.tokenizer, train_pairs, vocab_size=preset.vocab_size)
    encoded = encode_pairs(tokenizer, train_pairs, "training", preset)
    shuffle = torch.Generator().manual_seed(0)
    batches = bucketed_batches(encoded.sources, encoded.targets, preset.max_tokens, tokenizer.pad_id, shuffle)
    ours, default = AsTrained(preset, tokenizer), DefaultKernel(preset, tokenizer)

    for contender in (ours, default):  # the first updates build kernels and touch memory
        tokens_per_second(contender, batches[:2])
    rounds = []
    for number in range(arguments.rounds):
        chosen = [batches[(number * arguments.updates + index) % len(batches)] for index in range(arguments.updates)]
        pair = (ours, default) if number % 2 == 0 else (default, ours)
        speeds = {contender: tokens_per_second(contender, chosen) for contender in pair}
        rounds.append((speeds[ours], speeds[default]))
        print(f"round {number + 1}: {speeds[ours]:,.0f} and {speeds[default]:,.0f} tokens/s", flush=True)
    ratios = [fast / slow for fast, slow in rounds]
    result = {
        "what": "target tokens a second in training, the laptop preset and the same model with "
        "F.scaled_dot_product_attention's default kernel in float32",
        "laptop": round(statistics.median(fast for fast, _ in rounds)),
        "default_kernel_float32": round(statistics.median(slow for _, slow in rounds)),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_of_each_round": [round(ratio, 3) for ratio in ratios],
        "updates_a_round": arguments.updates,
        "preset": asdict(preset),
        "machine": describe_machine(),
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(
        f"laptop {result['laptop']:,} tokens/s, default kernel in float32 {result['default_kernel_float32']:,} tokens/s"
    )
    print(f"ratio {result['ratio']}, from {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main()
