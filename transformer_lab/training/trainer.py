"""From sentence pairs to a trained model (section 5 of the paper)."""

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn
from tqdm import tqdm

from transformer_lab.data.batches import Batch, bucketed_batches
from transformer_lab.data.corpora import Corpus, load_corpus
from transformer_lab.data.tokenizers import Tokenizer, load_tokenizer, train_tokenizer
from transformer_lab.decoding.translator import Translator
from transformer_lab.decoding.weights import load_weights, model_weights
from transformer_lab.errors import InputError
from transformer_lab.evaluation.scores import score_translations
from transformer_lab.files import writing
from transformer_lab.model import Transformer, TransformerConfig, fused_attention, set_attention
from transformer_lab.presets import Preset, find_preset
from transformer_lab.training.checkpoints import (
    average_checkpoints,
    load_tensors,
    load_training_state,
    save_tensors,
    save_training_state,
)
from transformer_lab.training.distributed import Processes, choose_device, join_processes
from transformer_lab.training.records import (
    Metrics,
    configuration,
    environment,
    peak_memory_mib,
    read_json,
    write_json,
)
from transformer_lab.training.steps import (
    build_optimizer,
    computing_precision,
    evaluate,
    learning_rate,
    prepare_gradients,
    update_weights,
)


class DivergedError(InputError):
    """A loss or a gradient was not finite. With other numbers, a lower rate above all, the training may go well."""


class DoesNotFitError(InputError, MemoryError):
    """The model is larger than the memory where it was to be."""


def train(
    preset: Preset | str,
    output: str | Path,
    data_dir: str | Path | None = None,
    resume: bool = False,
    source: str = "de",
    target: str = "en",
    build_model: Callable[[TransformerConfig], nn.Module] = Transformer,
    on_log: Callable[[dict[str, Any]], None] | None = None,
    device: str | None = None,
) -> dict[str, Any]:
    """Train a model and save it, with everything that says how it came about.

    At the end `output` is a folder for `Translator.load`, and also holds `training.json` and `metrics.jsonl` (see
    `records`) and the checkpoints. Every epoch ends with a checkpoint that replaces the one before in one step, so that
    an interruption, of whatever kind, loses one epoch at most. A run that was interrupted and resumed gives the same
    weights as one that was not: bit for bit on a CPU.

    Under torchrun, the processes share every batch, and each draws its own dropout: without dropout the result is that
    of one process but for rounding, with it that of another seed. Torch's global seed is set from `preset.seed` in
    every epoch.

    Args:
        preset: what to train, or the name of one of `PRESETS`.
        output: a new folder; with `resume`, the folder of the run to continue.
        data_dir: where the corpus lies, if it is not to be downloaded; as in `load_corpus`.
        resume: continue the run in `output` after its last finished epoch. Its configuration must be the same. Of a run
            that is finished, and whose checkpoints are gone, there is nothing to do.
        source: language to translate from.
        target: language to translate into.
        build_model: makes the model from its configuration; your own parts can be in it.
        on_log: is called with every record of `metrics.jsonl` as it is written.
        device: such as `"cpu"` or `"cuda:1"`; without, a GPU if there is one.

    Returns:
        What `training.json` says, or in a process that is not the first, nothing.

    Raises:
        InputError: something that was given cannot work, or the folder cannot be written.
        DivergedError: an InputError too: the loss or the gradient is not finite.
        DoesNotFitError: likewise: the model is larger than the memory.
    """
    preset = find_preset(preset) if isinstance(preset, str) else preset
    output = Path(output)
    # oneDNN keeps the 1,024 kernels that it made last, one for each shape: a third of the memory of a run, in which the
    # shapes of a batch hardly come again.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    where = choose_device(device)
    processes = join_processes(where)
    try:
        if processes.first:
            look_at_folder(output, resume)  # before the corpus, which may be downloaded
        corpus = load_corpus(preset.corpus, source, target, data_dir)
        if resume and is_finished(output):
            record, now = read_json(output / "training.json"), configuration_of(preset, corpus)
            compare_configurations(record.get("configuration"), now, output)
            return record if processes.first else {}
        run = Run(preset, corpus, output, resume, build_model, on_log, where, processes)
        for epoch in range(run.progress.epoch + 1, preset.epochs + 1):
            run.train_epoch(epoch)
        return run.finish() if processes.first else {}
    finally:
        processes.leave()


def look_at_folder(output: Path, resume: bool) -> None:
    """See that a run can go on in the folder with `resume`, or start there without it.

    Raises:
        InputError: the folder holds a run and `resume` was not asked for, or the other way round; the run is finished
            and has neither weights nor checkpoints any more; the folder cannot be written.
    """
    if resume:
        if not (output / "training.json").exists():
            raise InputError(f"{output} holds no training run to resume: leave out --resume to start one")
        if is_finished(output):
            if not (output / "weights.safetensors").exists():
                raise InputError(
                    f"{output} holds a finished run without weights and checkpoints: train in another folder"
                )
            return
        with writing(output):
            (output / "checkpoints").mkdir(exist_ok=True)  # without a checkpoint the run starts anew
        return
    for file in ("training.json", "weights.safetensors"):
        if (output / file).exists():
            raise InputError(
                f"{output} already holds a training run ({file}): continue it with --resume, "
                "or give a new folder with --output"
            )
    for file in ("config.json", "tokenizer.json", "metrics.jsonl"):
        if (output / file).exists() and not (output / "checkpoints").is_dir():  # which a run that was refused has left
            raise InputError(f"{output} already holds a {file} of something else: give a new folder with --output")
    with writing(output):
        (output / "checkpoints").mkdir(parents=True, exist_ok=True)


def is_finished(output: Path) -> bool:
    """Whether the run in the folder is finished, and its checkpoints, which are large, have been removed."""
    without = not (output / "checkpoints" / "latest.safetensors").exists()
    return without and "result" in read_json(output / "training.json")


def configuration_of(preset: Preset, corpus: Corpus) -> dict[str, Any]:
    train_pairs = corpus.train[: preset.train_limit]
    return configuration(preset, corpus.source, corpus.target, train_pairs, corpus.validation)


@dataclass
class Progress:
    """How far a run has come. Saved with the weights, in the same file."""

    epoch: int = 0  # finished epochs
    step: int = 0  # finished updates
    seconds: float = 0.0
    best_epoch: int = 0  # the best by validation BLEU; 0: none was scored yet
    best_bleu: float = -1.0

    @classmethod
    def of(cls, facts: dict[str, Any], path: Path) -> Self:
        """What was saved with the weights in `path`.

        Raises:
            InputError: the facts are others.
        """
        kinds = {"epoch": int, "step": int, "seconds": float, "best_epoch": int, "best_bleu": (int, float)}
        try:
            if facts.keys() == kinds.keys() and all(isinstance(facts[name], kind) for name, kind in kinds.items()):
                return cls(**facts)
        except AttributeError:  # no object
            pass
        raise InputError(f"{path} is damaged (it does not say how far the run came): start this run again elsewhere")


@dataclass
class EncodedPairs:
    """The pairs that fit into the model, as text and as token ids, and where each stood in the corpus."""

    pairs: list[tuple[str, str]]
    sources: list[list[int]]
    targets: list[list[int]]
    numbers: list[int]  # from 1


def encode_pairs(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], split: str, preset: Preset) -> EncodedPairs:
    """Token ids of both sides, without the pairs that are longer than the model's `max_length`.

    Raises:
        InputError: none is left, or the longest does not fit into a batch.
    """
    sources = tokenizer.encode_sources([source for source, _ in pairs])
    targets = tokenizer.encode_targets([target for _, target in pairs])
    lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
    fitting = [index for index, length in enumerate(lengths) if length <= preset.max_length]
    if not fitting:
        raise InputError(
            f"none of the {len(pairs)} {split} pairs has {preset.max_length} tokens or fewer on both "
            "sides: raise max_length"
        )
    longest = max(lengths[index] for index in fitting)
    if longest > preset.max_tokens:
        raise InputError(
            f"a {split} pair has {longest} tokens, but a batch only {preset.max_tokens}: "
            f"raise max_tokens, or lower max_length to leave such pairs out"
        )
    return EncodedPairs(
        [pairs[index] for index in fitting],
        [sources[index] for index in fitting],
        [targets[index] for index in fitting],
        [index + 1 for index in fitting],
    )


class Run:
    """A training run between two epochs: everything that `train` works with."""

    def __init__(
        self,
        preset: Preset,
        corpus: Corpus,
        output: Path,
        resume: bool,
        build_model: Callable[[TransformerConfig], nn.Module],
        on_log: Callable[[dict[str, Any]], None] | None,
        device: torch.device,
        processes: Processes,
    ) -> None:
        started = time.perf_counter()
        self.preset, self.output, self.device, self.processes = preset, output, device, processes
        self.precision = computing_precision(preset, device)
        train_pairs = corpus.train[: preset.train_limit]
        if processes.first:
            this_configuration = configuration_of(preset, corpus)
            if resume:
                compare_configurations(read_json(self.record).get("configuration"), this_configuration, output)
            else:
                self.make_tokenizer(corpus, train_pairs)
        processes.wait_for_all()
        self.tokenizer = load_tokenizer(output)
        self.train_pairs = encode_pairs(self.tokenizer, train_pairs, "training", preset)
        self.left_out = len(train_pairs) - len(self.train_pairs.pairs)  # too long
        self.validation_pairs = encode_pairs(self.tokenizer, corpus.validation, "validation", preset)
        self.left_out_of_validation = len(corpus.validation) - len(self.validation_pairs.pairs)
        if processes.first and self.left_out_of_validation:
            print(
                f"{self.left_out_of_validation} of {len(corpus.validation)} validation pairs have more than max_length "
                f"({preset.max_length}) tokens and are not scored: compare the scores with no run that has them",
                file=sys.stderr,
            )
        self.validation_batches = [
            batch.to(device)
            for batch in bucketed_batches(
                self.validation_pairs.sources, self.validation_pairs.targets, preset.max_tokens, self.tokenizer.pad_id
            )
        ]
        torch.manual_seed(preset.seed)  # every process starts from the same weights
        try:
            self.model = new_model(preset, self.tokenizer, build_model).to(device)
            self.fast = prepare_gradients(self.model, preset, self.precision)
        except ValueError as error:  # sizes that do not go together, or a model that `fast` cannot copy
            raise InputError(str(error)) from None
        except RuntimeError as error:
            if "allocate" not in str(error):
                raise
            reason = str(error).splitlines()[0]
            raise DoesNotFitError(f"the model does not fit into memory ({reason}): make it smaller") from None
        self.optimizer = build_optimizer(self.model, preset)
        self.progress = Progress()
        if resume and self.checkpoint.exists():
            facts = load_training_state(self.checkpoint, self.model, self.optimizer)
            self.progress = Progress.of(facts, self.checkpoint)
            if self.fast:
                self.fast.sync_weights()
        self.started = started - self.progress.seconds
        if processes.first and not resume:
            # The record comes last: a folder that has one can be resumed, and what was refused has left none.
            started_as = environment(preset, device, self.precision, processes.world_size)
            write_json(self.record, {"configuration": this_configuration, "environment": started_as})
        if processes.first:
            self.metrics = Metrics(output / "metrics.jsonl", self.progress.step, on_log)

    @property
    def record(self) -> Path:
        return self.output / "training.json"

    @property
    def checkpoint(self) -> Path:
        return self.output / "checkpoints" / "latest.safetensors"

    def weights_of_epoch(self, epoch: int) -> Path:
        return self.output / "checkpoints" / f"epoch_{epoch:03}.safetensors"

    def make_tokenizer(self, corpus: Corpus, train_pairs: list[tuple[str, str]]) -> None:
        """Train the tokenizer of this run and save it.

        Raises:
            InputError: the folder cannot be written.
        """
        preset = self.preset
        train_tokenizer(
            preset.tokenizer,
            train_pairs,
            corpus.source,
            corpus.target,
            vocab_size=preset.vocab_size,
            shared_vocabulary=preset.shared_vocabulary,
            chinese=preset.chinese,
        ).save(self.output)

    def train_epoch(self, epoch: int) -> None:
        """Go through the training pairs once, in an order of this epoch's own, then validate and save.

        Raises:
            InputError: a file cannot be written.
            DivergedError: a loss or a gradient is not finite.
        """
        preset, progress = self.preset, self.progress
        # Seeds of its own make the epoch the same whether or not the run was interrupted before it.
        shuffle = torch.Generator().manual_seed(seed_of(preset.seed, epoch, 0))
        torch.manual_seed(seed_of(preset.seed, epoch, 1 + self.processes.rank))  # dropout differs between processes
        sources, targets = self.encode_epoch(epoch)
        batches = bucketed_batches(sources, targets, preset.max_tokens, self.tokenizer.pad_id, shuffle)
        groups = [batches[start : start + preset.accumulation] for start in range(0, len(batches), preset.accumulation)]
        total_steps = progress.step + len(groups) * (preset.epochs - epoch + 1)
        if self.processes.first and epoch == 1 and preset.schedule == "paper" and total_steps < preset.warmup_steps:
            print(
                f"the run ends after {total_steps:,} updates, inside its warm-up of {preset.warmup_steps:,}: "
                "with more epochs or fewer warmup_steps the rate gets to its peak",
                file=sys.stderr,
            )
        total_loss, total_tokens = 0.0, 0
        epoch_start = time.perf_counter()
        with self.bar(epoch, total_steps) as bar:
            for group in groups:
                step = progress.step + 1
                rate = learning_rate(preset, step, total_steps)
                for parameters in self.optimizer.param_groups:
                    parameters["lr"] = rate
                losses, norm = self.update(group)
                loss, tokens = sum(losses), sum(batch.target_tokens for batch in group)
                if not (math.isfinite(loss) and math.isfinite(norm)):
                    raise DivergedError(self.not_finite(epoch, step, group, losses, norm))
                progress.step = step
                total_loss += loss * tokens
                total_tokens += tokens
                speed = total_tokens / (time.perf_counter() - epoch_start)
                if self.processes.first:
                    self.metrics.write(
                        kind="step",
                        step=step,
                        epoch=epoch,
                        loss=loss,
                        rate=rate,
                        gradient_norm=norm,
                        tokens_per_second=speed,
                        seconds=self.seconds(),
                    )
                    bar.set_postfix_str(f"loss {loss:.3f}, rate {rate:.1e}, {speed:,.0f} tokens/s", refresh=False)
                    bar.update()
        progress.epoch = epoch
        if self.processes.first:
            self.validate(total_loss / total_tokens, speed)
            self.save()

    def update(self, group: list[Batch]) -> tuple[list[float], float]:
        """`update_weights` with what this run has.

        Raises:
            InputError: the model was to be compiled, and cannot be.
        """
        try:
            return update_weights(
                self.model, group, self.optimizer, self.preset, self.precision, self.processes, self.fast
            )
        except RuntimeError as error:
            if type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                reason = " ".join(str(error).split("\n")[:2])  # the backend, and what it says
                raise InputError(f"cannot compile the model ({reason}): train without compiled") from error
            raise

    def encode_epoch(self, epoch: int) -> tuple[list[list[int]], list[list[int]]]:
        """Token ids of both sides; with BPE-dropout, spelled as in no epoch before (Provilkov et al. 2020).

        A pair that would not fit into the model or a batch in its new spelling keeps the usual one.
        """
        preset, usual = self.preset, self.train_pairs
        if not preset.bpe_dropout:
            return usual.sources, usual.targets
        sources, targets = list(usual.sources), list(usual.targets)
        # Every process spells alike, since they share the batches.
        seeds = [seed_of(preset.seed, epoch, stream) for stream in (SOURCE_SPELLING, TARGET_SPELLING)]
        texts = [list(side) for side in zip(*usual.pairs, strict=True)]
        if preset.bpe_dropout_on != "target":
            sources = self.tokenizer.encode_sources(texts[0], preset.bpe_dropout, seeds[0])
        if preset.bpe_dropout_on != "source":
            targets = self.tokenizer.encode_targets(texts[1], preset.bpe_dropout, seeds[1])
        limit = min(preset.max_length, preset.max_tokens)
        for index, (source, target) in enumerate(zip(sources, targets, strict=True)):
            if max(len(source), len(target)) > limit:
                sources[index], targets[index] = usual.sources[index], usual.targets[index]
        return sources, targets

    def bar(self, epoch: int, total_steps: int) -> tqdm:
        """The progress bar of the whole run; in a log file it prints a line now and then."""
        return tqdm(
            desc=f"epoch {epoch}/{self.preset.epochs}",
            total=total_steps,
            initial=self.progress.step,
            unit="step",
            file=sys.stderr,
            disable=not self.processes.first,
            dynamic_ncols=True,
            leave=False,
            mininterval=0.5 if sys.stderr.isatty() else 30,
        )

    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def not_finite(self, epoch: int, step: int, group: list[Batch], losses: list[float], norm: float) -> str:
        """The message for a step that has no number: which step, which sentence pairs, what is left."""
        bad = [batch for batch, loss in zip(group, losses, strict=True) if not math.isfinite(loss)]
        what = f"the loss is {sum(losses)}" if bad else f"the gradient's norm is {norm}"
        numbers = [self.train_pairs.numbers[index] for batch in bad or group for index in batch.indices]
        shown = ", ".join(str(number) for number in numbers[:10])
        more = f" and {len(numbers) - 10} more" if len(numbers) > 10 else ""
        left = f"the checkpoint of epoch {epoch - 1} is intact" if epoch > 1 else "no epoch was finished yet"
        rate = "learning_rate_scale" if self.preset.schedule == "paper" else "peak_rate"
        return (
            f"{what} at step {step} (epoch {epoch}), in the batch of the training pairs {shown}{more}: "
            f"lower {rate} or look at these pairs; {left}"
        )

    def validate(self, train_loss: float, speed: float) -> None:
        """Measure the model on the validation pairs and remember the epoch if it is the best so far."""
        progress = self.progress
        loss, perplexity = evaluate(self.model, self.validation_batches)
        bleu = None
        if progress.epoch % self.preset.validate_every == 0 or progress.epoch == self.preset.epochs:
            bleu = self.validation_bleu(beam_size=1)
            if bleu > progress.best_bleu:
                progress.best_epoch, progress.best_bleu = progress.epoch, bleu
        self.metrics.write(
            kind="epoch",
            epoch=progress.epoch,
            step=progress.step,
            train_loss=train_loss,
            validation_loss=loss,
            validation_perplexity=perplexity,
            validation_bleu=bleu,
            seconds=self.seconds(),
            tokens_per_second=speed,
            peak_memory_mib=peak_memory_mib(self.device),
        )
        scored = f", BLEU {bleu:.2f}" if bleu is not None else ""
        print(
            f"epoch {progress.epoch}: loss {train_loss:.3f}, validation loss {loss:.3f}, perplexity {perplexity:.2f}"
            f"{scored}, {speed:,.0f} tokens/s, {self.seconds():.0f} s",
            file=sys.stderr,
        )

    def validation_bleu(self, beam_size: int) -> float:
        translator = Translator(self.model, self.tokenizer)
        sources, references = zip(*self.validation_pairs.pairs, strict=True)
        translations = translator.translate(list(sources), beam_size=beam_size, alpha=self.preset.alpha)
        return score_translations(translations, list(references), self.tokenizer.target).bleu

    def save(self) -> None:
        """Save the epoch's weights, then the state from which the run can go on, then drop what is needed no more."""
        progress = self.progress
        progress.seconds = self.seconds()
        save_tensors(self.weights_of_epoch(progress.epoch), model_weights(self.model), {"epoch": progress.epoch})
        save_training_state(self.checkpoint, self.model, self.optimizer, asdict(progress))
        needed = {self.weights_of_epoch(epoch) for epoch in [*self.last_epochs(), progress.best_epoch]}
        for path in self.checkpoint.parent.glob("epoch_*.safetensors"):
            if path not in needed:
                with writing(path):
                    path.unlink()

    def last_epochs(self) -> range:
        """The finished epochs whose weights are averaged at the end."""
        return range(max(1, self.progress.epoch - self.preset.average + 1), self.progress.epoch + 1)

    def finish(self) -> dict[str, Any]:
        """Choose between the average of the last epochs and the best epoch, by validation BLEU, and save the model."""
        last, best = self.last_epochs(), self.progress.best_epoch
        candidates = {f"epoch {best}": [best]}
        averaged = f"average of the epochs {last[0]} to {last[-1]}" if len(last) > 1 else f"epoch {last[0]}"
        candidates[averaged] = list(last)
        bleu = {}
        for name, epochs in candidates.items():
            self.load_average(epochs)
            bleu[name] = self.validation_bleu(self.preset.beam_size)
        chosen = max(bleu, key=bleu.get)
        self.load_average(candidates[chosen])
        Translator(self.model, self.tokenizer).save(self.output)
        result = {
            "chosen": chosen,
            "validation_bleu": bleu[chosen],
            "validation_bleu_of_candidates": bleu,
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "left_out_training_pairs": self.left_out,
            "left_out_validation_pairs": self.left_out_of_validation,
            "steps": self.progress.step,
            "seconds": round(self.seconds(), 1),
            "peak_memory_mib": round(peak_memory_mib(self.device)),
        }
        self.metrics.write(kind="end", chosen=chosen, validation_bleu=bleu[chosen], seconds=self.seconds())
        record = read_json(self.record) | {"result": result}
        write_json(self.record, record)
        return record

    def load_average(self, epochs: list[int]) -> None:
        paths = [self.weights_of_epoch(epoch) for epoch in epochs]
        load_weights(self.model, average_checkpoints([load_tensors(path)[0] for path in paths]), paths[-1])


def new_model(preset: Preset, tokenizer: Tokenizer, build_model: Callable[[TransformerConfig], nn.Module]) -> nn.Module:
    """A model of the preset's sizes for the tokenizer's vocabularies.

    Raises:
        ValueError: the sizes do not go together.
    """
    config = TransformerConfig(
        source_vocab=tokenizer.source_size,
        target_vocab=tokenizer.target_size,
        d_model=preset.d_model,
        n_heads=preset.n_heads,
        n_layers=preset.n_layers,
        d_ff=preset.d_ff,
        dropout=preset.dropout,
        norm_first=preset.norm_first,
        tie=preset.tie,
        max_length=preset.max_length,
        pad_id=tokenizer.pad_id,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
    )
    model = build_model(config)
    if preset.attention == "fused":
        set_attention(model, fused_attention)
    return model


SOURCE_SPELLING, TARGET_SPELLING = 1_007, 1_008  # streams; 0 is the order of the pairs, 1 + rank a process's dropout


def seed_of(seed: int, epoch: int, stream: int) -> int:
    """A different seed for each epoch and stream of random numbers of a run."""
    return (seed * 100_003 + epoch) * 1_009 + stream


def compare_configurations(earlier: Any, now: dict[str, Any], output: Path) -> None:
    """Make sure that a run can go on with the configuration of now.

    Raises:
        InputError: it was started with another, and the message names what differs; or `earlier` is none.
    """
    if not (isinstance(earlier, dict) and isinstance(earlier.get("preset"), dict)):
        raise InputError(f"{output / 'training.json'} is damaged (no configuration): start this run again elsewhere")
    # What the earlier run does not know is younger than it; a field of the preset had its default's effect.
    earlier = {"validation_sha256": now["validation_sha256"]} | earlier | asdict(Preset(name="")) | earlier["preset"]
    now = now | now["preset"]
    differing = "; ".join(
        f"{name} was {earlier.get(name)}, now {value}"
        for name, value in now.items()
        if name != "preset" and earlier.get(name) != value
    )
    if differing:
        raise InputError(
            f"{output} was started with another configuration ({differing}): "
            "give the same values, or a new folder with --output"
        )
