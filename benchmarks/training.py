"""Measure how much faster a preset trains than the same model trained in a simpler way.

    python benchmarks/training.py [--data-dir FOLDER] [--rounds 8] [--updates 6]
    python benchmarks/training.py --preset gpu --against plain-loop --device cuda

`--against default-kernel`, the default, is the same model in float32 with torch's default attention kernel, on the same
batches. `--against nn-transformer` and `--against marian` are `torch.nn.Transformer` and Hugging Face's `MarianMTModel`
(`pip install transformers`). Both match the preset in size, use its batches, and are trained with torch's fused Adam,
in float32 or, with `--autocast`, in bfloat16. `--against plain-loop` is the loop in most tutorials: attention computed
step by step as in its formula, masks built in every step, float32 without TF32, Adam in a Python loop over the
parameters, 128 random sentences per batch regardless of their length, and `loss.item()` after each step. With
consistency training, the preset makes two passes for each pass of the plain loop.

The two models alternate, so that any other load on the machine affects both. Prints target tokens per second for each
and the ratio, and writes them to `results/training_throughput.json`, together with the operations that take most of the
time in the preset's updates. On a GPU, or against anything but the default kernel, the file has a different name.
"""

import argparse
import random
import statistics
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import ClassVar

import torch
import torch.nn.functional as F
from machine import RESULTS, run_script, timed, write_result
from torch import Tensor, nn

from transformer_lab.data import load_corpus
from transformer_lab.data.batches import Batch, bucketed_batches, pad_batch
from transformer_lab.data.tokenizers import Tokenizer, train_tokenizer
from transformer_lab.errors import InputError
from transformer_lab.model import Transformer, fused_attention, set_attention, sinusoidal_encoding
from transformer_lab.presets import Preset, find_preset
from transformer_lab.training.distributed import WorkerGroup, choose_device
from transformer_lab.training.loss import shift_target
from transformer_lab.training.records import peak_memory_mib
from transformer_lab.training.steps import (
    build_optimizer,
    computing_precision,
    prepare_gradients,
    train_step,
    update_weights,
)
from transformer_lab.training.trainer import EncodedPairs, encode_pairs, new_model, reusing_freed_memory

SENTENCES_OF_PLAIN_BATCH = 128


class AsTrained:
    """The preset as `transformer-lab train` runs it. The learning rate is zero."""

    def __init__(
        self, preset: Preset, tokenizer: Tokenizer, device: torch.device, workers: WorkerGroup | None = None
    ) -> None:
        torch.manual_seed(preset.seed)
        self.preset, self.device, self.workers = preset, device, workers or WorkerGroup()
        self.model = new_model(preset, tokenizer, Transformer).to(device)
        self.optimizer = build_optimizer(self.model, preset)
        self.precision = computing_precision(preset, device)
        self.fast = prepare_gradients(self.model, preset, self.precision)

    def update(self, batch: Batch) -> None:
        update_weights(self.model, [batch], self.optimizer, self.preset, self.precision, self.workers, self.fast)


class PlainLoop:
    """The same model in the training loop that most tutorials use."""

    what = f"in a plain loop: explicit attention, float32, {SENTENCES_OF_PLAIN_BATCH} random sentences, .item() a step"
    adam: ClassVar = {"foreach": False, "fused": False}

    def __init__(self, preset: Preset, tokenizer: Tokenizer, device: torch.device) -> None:
        self.preset, self.device = preset, device
        self.model = self.build(preset, tokenizer).to(device)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=0.0, betas=preset.betas, eps=preset.eps, **self.adam
        )

    def build(self, preset: Preset, tokenizer: Tokenizer) -> nn.Module:
        return new_model(replace(preset, attention="explicit"), tokenizer, Transformer)

    def update(self, batch: Batch) -> None:
        batch = batch.to(self.device)
        train_step(self.model, batch, self.optimizer, self.preset.label_smoothing, self.preset.clip_norm)


class DefaultKernel(PlainLoop):
    """The same model in float32, with `F.scaled_dot_product_attention` free to choose its kernel."""

    what = "with F.scaled_dot_product_attention's default kernel in float32"
    adam: ClassVar = {}

    def build(self, preset: Preset, tokenizer: Tokenizer) -> nn.Module:
        model = super().build(preset, tokenizer)
        set_attention(model, fused_attention)
        return model


class TorchTransformer(nn.Module):
    """`torch.nn.Transformer` between tied embeddings, as torch's own translation tutorial puts it together."""

    def __init__(self, preset: Preset, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.pad_id, width = tokenizer.pad_id, preset.d_model
        self.embedding = nn.Embedding(tokenizer.target_size, width, self.pad_id)
        self.register_buffer("positions", sinusoidal_encoding(preset.max_length, width))
        self.dropout = nn.Dropout(preset.dropout)
        self.transformer = nn.Transformer(
            width,
            preset.n_heads,
            preset.n_layers,
            preset.n_layers,
            preset.d_ff,
            preset.dropout,
            batch_first=True,
            norm_first=preset.norm_first,
        )
        self.output = nn.Linear(width, tokenizer.target_size)
        self.output.weight = self.embedding.weight

    def embed(self, tokens: Tensor) -> Tensor:
        embedded = self.embedding(tokens) * self.embedding.embedding_dim**0.5
        return self.dropout(embedded + self.positions[: tokens.size(1)])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        padding = source == self.pad_id
        causal = nn.Transformer.generate_square_subsequent_mask(target.size(1), dtype=torch.bool)
        hidden = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=causal.to(target.device),
            src_key_padding_mask=padding,
            tgt_key_padding_mask=target == self.pad_id,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return self.output(hidden)


class MarianTransformer(nn.Module):
    """Hugging Face's `MarianMTModel`, the architecture of the OPUS-MT translators, with tied embeddings."""

    def __init__(self, preset: Preset, tokenizer: Tokenizer) -> None:
        super().__init__()
        try:
            from transformers import MarianConfig, MarianMTModel
        except ImportError:
            raise InputError("Marian comes with transformers: pip install transformers") from None
        sizes = {"layers": preset.n_layers, "attention_heads": preset.n_heads, "ffn_dim": preset.d_ff}
        self.pad_id = tokenizer.pad_id
        self.model = MarianMTModel(
            MarianConfig(
                vocab_size=tokenizer.target_size,
                d_model=preset.d_model,
                dropout=preset.dropout,
                attention_dropout=preset.dropout,
                activation_dropout=preset.dropout,
                activation_function="relu",
                max_position_embeddings=preset.max_length,
                scale_embedding=True,
                pad_token_id=tokenizer.pad_id,
                bos_token_id=tokenizer.bos_id,
                eos_token_id=tokenizer.eos_id,
                decoder_start_token_id=tokenizer.bos_id,
                use_cache=False,
                **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()},
            )
        )

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        masks = {"attention_mask": source != self.pad_id, "decoder_attention_mask": target != self.pad_id}
        return self.model(input_ids=source, decoder_input_ids=target, **masks).logits


class OtherModel(PlainLoop):
    """Another library's model of the same size, on the same batches, with torch's own loss and fused Adam."""

    adam: ClassVar = {"fused": True}
    autocast = False

    def update(self, batch: Batch) -> None:
        batch = batch.to(self.device)
        decoder_input, labels = shift_target(batch.target)
        self.optimizer.zero_grad()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            logits = self.model(batch.source, decoder_input)
        loss = F.cross_entropy(
            logits.flatten(0, 1).float(),
            labels.flatten(),
            ignore_index=batch.pad_id,
            label_smoothing=self.preset.label_smoothing,
        )
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.preset.clip_norm)
        self.optimizer.step()


class AgainstTorch(OtherModel):
    what, build = "as torch.nn.Transformer", staticmethod(TorchTransformer)


class AgainstMarian(OtherModel):
    what, build = "as Hugging Face's MarianMTModel", staticmethod(MarianTransformer)


AGAINST = {
    "default-kernel": DefaultKernel,
    "plain-loop": PlainLoop,
    "nn-transformer": AgainstTorch,
    "marian": AgainstMarian,
}


def batches_for(contender: AsTrained | PlainLoop, tokenizer: Tokenizer, encoded: EncodedPairs) -> Iterator[Batch]:
    """Yield batches without end: random pairs for the plain loop, and the preset's batches for all others."""
    if type(contender) is PlainLoop:
        chosen = random.Random(0)
        pairs = range(len(encoded.sources))
        while True:
            indices = chosen.sample(pairs, min(SENTENCES_OF_PLAIN_BATCH, len(pairs)))
            sides = ([side[index] for index in indices] for side in (encoded.sources, encoded.targets))
            yield Batch(*(pad_batch(side, tokenizer.pad_id) for side in sides), tokenizer.pad_id, indices)
    max_tokens, shuffle = contender.preset.max_tokens, torch.Generator().manual_seed(0)
    while True:
        yield from bucketed_batches(encoded.sources, encoded.targets, max_tokens, tokenizer.pad_id, shuffle)


def update_with(contender: AsTrained | PlainLoop, batches: Sequence[Batch]) -> None:
    for batch in batches:
        contender.update(batch)
    if contender.device.type == "cuda":
        torch.cuda.synchronize(contender.device)


def percent_by_operation(contender: AsTrained, batches: Sequence[Batch], most: int = 10) -> dict[str, float]:
    """Return the operations that take most of the CPU time in some updates, each with its share in percent."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        update_with(contender, batches)
    operations = profile.key_averages()
    total = sum(operation.self_cpu_time_total for operation in operations)
    operations.sort(key=lambda operation: -operation.self_cpu_time_total)
    return {operation.key: round(100 * operation.self_cpu_time_total / total, 1) for operation in operations[:most]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, help="folder of Multi30k; downloaded if left out")
    parser.add_argument("--preset", default="laptop")
    parser.add_argument("--compiled", action="store_true", help="compile the preset's model with torch.compile")
    parser.add_argument("--against", choices=AGAINST, default="default-kernel")
    parser.add_argument("--autocast", action="store_true", help="run the other library's model in bfloat16")
    parser.add_argument("--max-tokens", type=int, help="cells of a batch, padding included; the preset's if left out")
    parser.add_argument("--device", default="cpu", help="device for both, such as cuda")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--updates", type=int, default=6, help="updates of each contender per round")
    parser.add_argument("--pairs", type=int, help="use only this many training pairs, from the start")
    parser.add_argument("--result", type=Path, help="file to write instead of the default")
    arguments = parser.parse_args()

    preset = replace(find_preset(arguments.preset), compiled=arguments.compiled)
    if arguments.max_tokens:
        preset = replace(preset, max_tokens=arguments.max_tokens)
    device = choose_device(arguments.device)
    train_pairs = load_corpus(preset.corpus, data_dir=arguments.data_dir).train[: arguments.pairs]
    tokenizer = train_tokenizer(preset.tokenizer, train_pairs, vocab_size=preset.vocab_size)
    encoded = encode_pairs(tokenizer, train_pairs, "training", preset)
    other = AGAINST[arguments.against]
    if arguments.autocast:
        if not issubclass(other, OtherModel):
            parser.error(f"--autocast is for another library's model: --against {arguments.against} is in float32")
        other.autocast = True
    ours, plain = (kind(preset, tokenizer, device) for kind in (AsTrained, other))
    batches = {contender: batches_for(contender, tokenizer, encoded) for contender in (ours, plain)}

    def tokens_per_second(contender: AsTrained | PlainLoop, updates: int) -> float:
        chosen = list(islice(batches[contender], updates))
        with reusing_freed_memory() if contender is ours else nullcontext():
            seconds, _ = timed(update_with, contender, chosen)
        return sum(batch.target_tokens for batch in chosen) / seconds

    for contender in (ours, plain):  # the first updates compile kernels and touch memory
        tokens_per_second(contender, min(arguments.updates, 5))
    rounds = []
    for number in range(arguments.rounds):
        pair = (ours, plain) if number % 2 == 0 else (plain, ours)
        speeds = {contender: tokens_per_second(contender, arguments.updates) for contender in pair}
        rounds.append((speeds[ours], speeds[plain]))
        print(f"round {number + 1}: {speeds[ours]:,.0f} and {speeds[plain]:,.0f} tokens/s", flush=True)
    ratios = [fast / slow for fast, slow in rounds]
    name = arguments.against.replace("-", "_")
    of_other = f"{name}_{'bfloat16_autocast' if arguments.autocast else 'float32'}"
    result = {
        "what": f"target tokens a second in training on {device.type}: the preset {preset.name}, and the same model "
        + AGAINST[arguments.against].what,
        preset.name: round(statistics.median(fast for fast, _ in rounds)),
        of_other: round(statistics.median(slow for _, slow in rounds)),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_of_each_round": [round(ratio, 3) for ratio in ratios],
        "updates_a_round": arguments.updates,
        "peak_memory_mib": round(peak_memory_mib(device)),  # for both models together
        "percent_of_cpu_time_by_operation": percent_by_operation(ours, list(islice(batches[ours], arguments.updates))),
        "preset": asdict(preset),
    }
    compiled = "_compiled" * preset.compiled
    usual = arguments.against == "default-kernel" and device.type == "cpu" and preset.name == "laptop"
    run = "" if usual else f"_{preset.name}_{name}{'_autocast' * arguments.autocast}_{device.type}"
    of_run = RESULTS / f"training_throughput{run}{compiled}.json"
    write_result(arguments.result or of_run, result)
    print(f"{preset.name} {result[preset.name]:,} tokens/s, {arguments.against} {result[of_other]:,} tokens/s")
    print(f"ratio {result['ratio']}, from {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    run_script(main)
