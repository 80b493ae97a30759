"""Train a model on sentence pairs (section 5 of the paper)."""

import ctypes
import math
import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import nn
from tqdm import tqdm

from transformer_lab.data.batches import Batch, bucketed_batches
from transformer_lab.data.corpora import Corpus, load_corpus
from transformer_lab.data.tokenizers import Tokenizer, load_tokenizer, train_tokenizer
from transformer_lab.decoding.translator import Translator
from transformer_lab.decoding.weights import load_weights, model_weights
from transformer_lab.errors import InputError
from transformer_lab.evaluation.scores import cased_bleu
from transformer_lab.files import writing
from transformer_lab.model import Transformer, TransformerConfig, fused_attention, set_attention
from transformer_lab.presets import Preset, find_preset
from transformer_lab.training.checkpoints import (
    MODEL_HAS_CHANGED,
    average_checkpoints,
    load_tensors,
    load_training_state,
    save_tensors,
    save_training_state,
)
from transformer_lab.training.distributed import WorkerGroup, choose_device, join_workers
from transformer_lab.training.records import (
    Metrics,
    configuration,
    differing_values,
    environment,
    peak_memory_mib,
    read_json,
    write_json,
)
from transformer_lab.training.steps import (
    UpdateResult,
    build_optimizer,
    computing_precision,
    evaluate,
    learning_rate,
    prepare_gradients,
    update_weights,
)

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # options of glibc's mallopt, from malloc.h


class DivergedError(InputError):
    """A loss or a gradient was not finite. Different hyperparameters may help, especially a lower learning rate."""


class DoesNotFitError(InputError, MemoryError):
    """The model does not fit into the memory of its device."""


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
    """Train a model and save it, together with a record of how it was trained.

    Afterward, `Translator.load` can load the model from `output`, which also holds `training.json`, `metrics.jsonl`
    (see `records`), and the checkpoints. Every epoch ends with a checkpoint that replaces the previous one atomically,
    so any interruption costs at most one epoch. A run that is interrupted and resumed produces the same weights as an
    uninterrupted run. On a CPU, the weights are identical bit for bit.

    With torchrun, the processes share every batch, and each has its own dropout. Without dropout, the result is the
    same as with one process, except for rounding. With dropout, the result differs as it would with a different seed.
    Torch's global seed is set from `preset.seed` at the start of every epoch.

    Args:
        preset: The hyperparameters, or the name of one of `PRESETS`.
        output: A new folder or, with `resume`, the folder of the run to continue.
        data_dir: The folder that contains the corpus, as in `load_corpus`. If given, nothing is downloaded.
        resume: Continue the run in `output` after its last finished epoch. The configuration must be the same. If the
            run is finished and its checkpoints were removed, return its record.
        source: The code of the language to translate from.
        target: The code of the language to translate into.
        build_model: A function that builds the model from its configuration, for example with your own parts.
        on_log: A function that is called with each record of `metrics.jsonl` when the record is written.
        device: The name of a device, such as `"cpu"` or `"cuda:1"`. The default is a GPU if there is one; otherwise, it
            is the CPU.

    Returns:
        The content of `training.json`. In every process except the first, the result is an empty dictionary.

    Raises:
        InputError: An argument is unusable, or the folder cannot be written.
        DivergedError: The loss or the gradient is not finite. This is an InputError.
        DoesNotFitError: The model does not fit into memory. This is an InputError.
    """
    preset = find_preset(preset) if isinstance(preset, str) else preset
    output = Path(output)
    # By default, oneDNN caches the last 1,024 kernels, one for each shape. They would take up a third of a run's
    # memory, even though batches rarely have the same shape.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    where = choose_device(device)
    workers = join_workers(where)
    try:
        with locking(output, resume) if workers.first else nullcontext():
            if workers.first:
                check_output_folder(output, resume)  # before a corpus is downloaded
            if not resume:
                check_sizes(preset, build_model)
            corpus = load_corpus(preset.corpus, source, target, data_dir)
            if resume and is_finished(output):
                record = read_json(output / "training.json")
                compare_configurations(record, configuration(preset, corpus), output)
                return record if workers.first else {}
            run = TrainingRun(preset, corpus, output, resume, build_model, on_log, where, workers)
            with reusing_freed_memory():
                for epoch in range(run.progress.epoch + 1, preset.epochs + 1):
                    run.train_epoch(epoch)
            return run.finish() if workers.first else {}
    finally:
        workers.leave()


@contextmanager
def locking(output: Path, resume: bool) -> Iterator[None]:
    """Let no other process train in `output` during the `with` block. If this process dies, the system ends the lock.

    Raises:
        InputError: Another process is training there, there is no run to resume, or the folder cannot be written.
    """
    if resume and not (output / "training.json").exists():
        raise InputError(f"{output} holds no training run to resume: leave out --resume to start one")
    path = output / "training.lock"
    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock(path).acquire(timeout=0)
        except Timeout:
            raise InputError(f"{output} is in use by another training process: wait for it, or stop it") from None
    with lock:
        try:
            yield
        finally:
            with suppress(PermissionError):  # on Windows, only the release can remove the file
                path.unlink(missing_ok=True)


@contextmanager
def reusing_freed_memory() -> Iterator[None]:
    """Keep freed memory for the next update inside the `with` block, and give it back to the system at the end.

    By default, glibc gives large blocks back at once. Getting them again, page by page, takes 5 to 10% of the time of
    an update on a CPU. With other C libraries, this does nothing.
    """
    glibc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if not hasattr(glibc, "mallopt"):
        yield
        return
    glibc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    glibc.mallopt(M_MMAP_THRESHOLD, 32 * 2**20)  # the largest value that every version of glibc accepts
    try:
        yield
    finally:
        glibc.mallopt(M_TRIM_THRESHOLD, 64 * 2**20)  # glibc itself raises it to this value for blocks of 32 MiB
        glibc.malloc_trim(0)


def check_sizes(preset: Preset, build_model: Callable[[TransformerConfig], nn.Module]) -> None:
    """Build a model with one layer and a tiny vocabulary, to reject invalid sizes before a tokenizer is trained."""
    tiny = SimpleNamespace(source_size=4, target_size=4, pad_id=0, bos_id=1, eos_id=2)
    with errors_of_building():
        new_model(replace(preset, n_layers=1), tiny, build_model)


@contextmanager
def errors_of_building() -> Iterator[None]:
    """Replace errors from building a model with an InputError that fits on one line."""
    try:
        yield
    except ValueError as error:  # d_model is odd, or not divisible by n_heads
        raise InputError(re.sub(r"(?<!`)\b(d_model|n_heads)\b", r"`\1`", str(error))) from None
    except RuntimeError as error:
        if "allocate" not in str(error):
            raise
        reason = str(error).splitlines()[0]
        raise DoesNotFitError(f"the model does not fit into memory ({reason}): make it smaller") from None


def check_output_folder(output: Path, resume: bool) -> None:
    """Prepare the folder for a new run or, with `resume`, for continuing the run in it."""
    if resume:
        if not is_finished(output):
            with writing(output):
                (output / "checkpoints").mkdir(exist_ok=True)  # if there is no checkpoint, the run starts over
        elif not (output / "weights.safetensors").exists():
            raise InputError(f"{output} holds a finished run without weights and checkpoints: train in another folder")
        return
    for file in ("training.json", "weights.safetensors"):
        if (output / file).exists():
            raise InputError(
                f"{output} already holds a training run ({file}): continue it with --resume, "
                "or give a new folder with --output"
            )
    for file in ("config.json", "tokenizer.json", "metrics.jsonl"):
        if (output / file).exists() and not (output / "checkpoints").is_dir():  # unless a rejected run left both
            raise InputError(f"{output} already holds a {file} from something else: give a new folder with --output")
    with writing(output):
        (output / "checkpoints").mkdir(parents=True, exist_ok=True)


def is_finished(output: Path) -> bool:
    """Return whether the run in the folder is finished and its large checkpoints have been removed."""
    without = not (output / "checkpoints" / "latest.safetensors").exists()
    return without and "result" in read_json(output / "training.json")


@dataclass
class Progress:
    """The progress of a run, saved in the same file as the weights."""

    epoch: int = 0  # finished epochs
    step: int = 0  # finished updates
    earlier_steps: int = 0  # those on both directions, before the learning rate started over
    seconds: float = 0.0
    best_epoch: int = 0  # the epoch with the highest validation BLEU; 0 if none has been scored yet
    best_bleu: float = -1.0


@dataclass
class EncodedPairs:
    """The pairs that fit into the model, as text and as token IDs, with their numbers in the corpus."""

    pairs: list[tuple[str, str]]
    sources: list[list[int]]
    targets: list[list[int]]
    numbers: list[int]  # counted from 1
    left_out: int  # how many pairs are too long

    def __add__(self, other: "EncodedPairs") -> "EncodedPairs":
        return EncodedPairs(
            self.pairs + other.pairs,
            self.sources + other.sources,
            self.targets + other.targets,
            self.numbers + other.numbers,
            self.left_out + other.left_out,
        )


def encode_pairs(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], split: str, preset: Preset) -> EncodedPairs:
    """Encode both sides of each pair, skipping pairs that are longer than the model's `max_length`.

    Raises:
        InputError: No pair is short enough, or the longest one does not fit into a batch.
    """
    sources = tokenizer.encode_sources([source for source, _ in pairs])
    targets = tokenizer.encode_targets([target for _, target in pairs])
    rows = zip(pairs, sources, targets, range(1, len(pairs) + 1), strict=True)
    fitting = [row for row in rows if max(len(row[1]), len(row[2])) <= preset.max_length]
    if not fitting:
        raise InputError(
            f"none of the {len(pairs)} {split} pairs has {preset.max_length} tokens or fewer on both "
            "sides: raise max_length",
            parameter="max_length",
        )
    longest = max(max(len(source), len(target)) for _, source, target, _ in fitting)
    if longest > preset.max_tokens:
        raise InputError(
            f"a {split} pair has {longest} tokens, but a batch holds only {preset.max_tokens}: "
            "raise max_tokens, or lower max_length to leave such pairs out",
            parameter="max_tokens",
        )
    return EncodedPairs(*map(list, zip(*fitting, strict=True)), left_out=len(pairs) - len(fitting))


@dataclass
class EpochTotals:
    """Sums over the recorded steps of an epoch."""

    started: float = field(default_factory=time.perf_counter)
    loss: float = 0.0  # summed over all target tokens
    tokens: int = 0

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / (time.perf_counter() - self.started)


@dataclass
class Step:
    """An update that is finished or that a GPU is still computing."""

    number: int
    epoch: int
    rate: float
    batches: list[Batch]
    result: UpdateResult


class TrainingRun:
    """The state of a training run between epochs: everything that `train` works with."""

    def __init__(
        self,
        preset: Preset,
        corpus: Corpus,
        output: Path,
        resume: bool,
        build_model: Callable[[TransformerConfig], nn.Module],
        on_log: Callable[[dict[str, Any]], None] | None,
        device: torch.device,
        workers: WorkerGroup,
    ) -> None:
        self.started = time.perf_counter()
        self.preset, self.output, self.device, self.workers = preset, output, device, workers
        self.preset_of_both = replace(preset, consistency=0.0)  # for the epochs on both directions
        self.record, self.checkpoint = output / "training.json", output / "checkpoints" / "latest.safetensors"
        self.precision = computing_precision(preset, device)
        # A GPU computes the next step while the CPU reads the results of this one, so the GPU never waits for the CPU.
        self.unread_steps = 1 if device.type == "cuda" else 0
        self.progress = Progress()
        run_configuration = configuration(preset, corpus)
        if workers.first:
            if resume:
                compare_configurations(read_json(self.record), run_configuration, output)
            else:
                train_tokenizer(
                    preset.tokenizer,
                    corpus.train[: preset.train_limit],
                    corpus.source,
                    corpus.target,
                    vocab_size=preset.vocab_size,
                    shared_vocabulary=preset.shared_vocabulary,
                    chinese=preset.chinese,
                ).save(output)
        workers.wait_for_all()
        self.tokenizer = load_tokenizer(output)
        self.encode_corpus(corpus)
        self.make_model(build_model)
        if resume and self.checkpoint.exists():
            self.load_checkpoint()
        if workers.first:
            if not resume:
                # Write the record last: it marks the folder as resumable, so a rejected run must not leave a record.
                started_as = environment(preset, device, self.precision, workers.world_size)
                write_json(self.record, {"configuration": run_configuration, "environment": started_as})
            self.metrics = Metrics(output / "metrics.jsonl", self.progress.step, on_log)

    def weights_of_epoch(self, epoch: int) -> Path:
        return self.output / "checkpoints" / f"epoch_{epoch:03}.safetensors"

    def encode_corpus(self, corpus: Corpus) -> None:
        """Encode the training and validation pairs, and warn if some validation pairs are too long to be scored."""
        preset, tokenizer = self.preset, self.tokenizer
        self.train_pairs = encode_pairs(tokenizer, corpus.train[: preset.train_limit], "training", preset)
        if preset.both_directions:
            self.reversed_pairs = encode_pairs(
                tokenizer, [pair[::-1] for pair in corpus.train[: preset.train_limit]], "training", preset
            )
        self.validation_pairs = pairs = encode_pairs(tokenizer, corpus.validation, "validation", preset)
        if self.workers.first and pairs.left_out:
            print(
                f"{pairs.left_out} of {len(corpus.validation)} validation pairs have more than max_length "
                f"({preset.max_length}) tokens and are not scored: don't compare these scores with those of a run that "
                "scores them",
                file=sys.stderr,
            )
        batches = bucketed_batches(pairs.sources, pairs.targets, preset.max_tokens, tokenizer.pad_id)
        self.validation_batches = [batch.to(self.device) for batch in batches]

    def pairs_of(self, epoch: int) -> EncodedPairs:
        """Return the pairs of an epoch. In the first `both_directions` epochs, they include the reversed pairs.

        Ding et al. (2021) found that a model translates better if it starts by learning both directions.
        """
        if epoch > self.preset.both_directions:
            return self.train_pairs
        return self.train_pairs + self.reversed_pairs

    def make_model(self, build_model: Callable[[TransformerConfig], nn.Module]) -> None:
        """Create the model with its initial weights, the copy that computes its gradients, and the optimizer."""
        torch.manual_seed(self.preset.seed)  # every process starts from the same weights
        with errors_of_building():
            self.model = new_model(self.preset, self.tokenizer, build_model).to(self.device)
            self.fast = prepare_gradients(self.model, self.preset, self.precision)
        if self.preset.fast and not self.fast and self.workers.first:
            print(
                "the model trains more slowly, because its logits don't come straight from its output layer: the "
                "faster copy of the model would ignore what happens after that layer",
                file=sys.stderr,
            )
        self.optimizer = build_optimizer(self.model, self.preset)

    def load_checkpoint(self) -> None:
        """Load the state at the end of the last finished epoch."""
        facts = load_training_state(self.checkpoint, self.model, self.optimizer)
        numbers = isinstance(facts, dict) and all(type(value) in (int, float) for value in facts.values())
        if not (numbers and facts.keys() | {"earlier_steps"} == asdict(self.progress).keys()):  # older ones lack it
            raise InputError(
                f"{self.checkpoint} is damaged (it does not say how far the run got): start this run again elsewhere"
            )
        self.progress = Progress(**facts)
        self.started -= self.progress.seconds
        if self.fast:
            self.fast.sync_weights()

    def train_epoch(self, epoch: int) -> None:
        """Train on every pair once, in an order that depends only on the seed and epoch, and then validate and save.

        Raises:
            DivergedError: A loss or a gradient norm is not finite.
            InputError: A file cannot be written, or the model cannot be compiled.
        """
        preset, progress, groups = self.preset, self.progress, self.batches_of_epoch(epoch)
        # The learning rate falls to zero twice: at the end of the epochs on both directions, and at the end of the run.
        last = preset.both_directions if epoch <= preset.both_directions else preset.epochs
        if epoch == preset.both_directions + 1:
            progress.earlier_steps = progress.step
        left = len(groups) * (last - epoch + 1)
        scheduled_steps = progress.step - progress.earlier_steps + left
        if epoch == 1 and self.workers.first:
            warn_of_unfinished_warm_up(preset, scheduled_steps)
        left += len(groups) // 2 * (preset.epochs - last)  # with one direction, an epoch has half as many updates
        totals, unread = EpochTotals(), deque()
        with self.bar(epoch, progress.step + left) as bar:
            for batches in groups:
                unread.append(self.take_step(epoch, batches, scheduled_steps))
                if len(unread) > self.unread_steps:
                    self.record_step(unread.popleft(), totals, bar)
            for step in unread:
                self.record_step(step, totals, bar)
        progress.epoch = epoch
        if self.workers.first:
            self.validate(totals.loss / totals.tokens, totals.tokens_per_second)
            self.save()

    def batches_of_epoch(self, epoch: int) -> list[list[Batch]]:
        """Return the batches of each update, and seed dropout.

        The seeds are derived from the epoch, so an epoch is the same whether or not the run was interrupted before it.
        """
        preset = self.preset
        shuffle = torch.Generator().manual_seed(seed_of(preset.seed, epoch, 0))
        torch.manual_seed(seed_of(preset.seed, epoch, 1 + self.workers.rank))  # dropout differs between processes
        sources, targets = self.encode_epoch(epoch)
        batches = bucketed_batches(sources, targets, preset.max_tokens, self.tokenizer.pad_id, shuffle)
        return [batches[start : start + preset.accumulation] for start in range(0, len(batches), preset.accumulation)]

    def take_step(self, epoch: int, batches: list[Batch], scheduled_steps: int) -> Step:
        step_number = self.progress.step + 1
        preset = self.preset_of_both if epoch <= self.preset.both_directions else self.preset
        rate = learning_rate(preset, step_number - self.progress.earlier_steps, scheduled_steps)
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = rate
        try:
            result = update_weights(
                self.model, batches, self.optimizer, preset, self.precision, self.workers, self.fast
            )
        except RuntimeError as error:
            if type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                reason = " ".join(str(error).split("\n")[:2])  # the backend and its message
                raise InputError(f"cannot compile the model ({reason}): set `compiled` to false") from error
            raise
        self.progress.step = step_number
        return Step(step_number, epoch, rate, batches, result)

    def record_step(self, step: Step, totals: EpochTotals, bar: tqdm) -> None:
        """Read the measurements of an update, waiting for them if necessary, and log them.

        Raises:
            DivergedError: The loss or the gradient norm is not finite.
        """
        losses, norm = step.result.read()
        loss = sum(losses)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise DivergedError(self.not_finite(step, losses, norm))
        tokens = sum(batch.target_tokens for batch in step.batches)
        totals.loss += loss * tokens
        totals.tokens += tokens
        if not self.workers.first:
            return
        speed = totals.tokens_per_second
        self.metrics.write(
            kind="step",
            step=step.number,
            epoch=step.epoch,
            loss=loss,
            rate=step.rate,
            gradient_norm=norm,
            tokens_per_second=speed,
            seconds=self.seconds(),
        )
        bar.set_postfix_str(f"loss {loss:.3f}, rate {step.rate:.1e}, {speed:,.0f} tokens/s", refresh=False)
        bar.update()

    def encode_epoch(self, epoch: int) -> tuple[list[list[int]], list[list[int]]]:
        """Return the token IDs of both sides.

        With BPE-dropout (Provilkov et al. 2020), the pairs are tokenized differently in every epoch. If a pair's new
        tokens would not fit into the model or a batch, the pair keeps its usual tokens.
        """
        preset, usual = self.preset, self.pairs_of(epoch)
        if not preset.bpe_dropout:
            return usual.sources, usual.targets
        sources, targets = list(usual.sources), list(usual.targets)
        # The seeds are the same in every process, because the processes share the batches.
        seeds = [seed_of(preset.seed, epoch, stream) for stream in (SOURCE_BPE_DROPOUT, TARGET_BPE_DROPOUT)]
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
        """Return a progress bar for the whole run. In a log file, it prints a line at most every 30 seconds."""
        return tqdm(
            desc=f"epoch {epoch}/{self.preset.epochs}",
            total=total_steps,
            initial=self.progress.step,
            unit="step",
            file=sys.stderr,
            disable=not self.workers.first,
            dynamic_ncols=True,
            leave=False,
            mininterval=0.5 if sys.stderr.isatty() else 30,
        )

    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def not_finite(self, step: Step, losses: list[float], norm: float) -> str:
        """Return the error message for a step whose loss or gradient is not finite."""
        bad = [batch for batch, loss in zip(step.batches, losses, strict=True) if not math.isfinite(loss)]
        what = f"the loss is {sum(losses)}" if bad else f"the gradient's norm is {norm}"
        all_numbers = self.pairs_of(step.epoch).numbers
        numbers = [all_numbers[index] for batch in bad or step.batches for index in batch.indices]
        shown = ", ".join(str(number) for number in numbers[:10])
        more = f" and {len(numbers) - 10} more" if len(numbers) > 10 else ""
        rate = "learning_rate_scale" if self.preset.schedule == "paper" else "peak_rate"
        return (
            f"{what} at step {step.number} (epoch {step.epoch}), in the batch with the training pairs {shown}{more}: "
            f"train in a new folder with a lower `{rate}`, or look at these pairs"
        )

    def validate(self, train_loss: float, speed: float) -> None:
        """Evaluate the model on the validation pairs and log the results.

        If the epoch is the best so far, record its number.
        """
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
        return cased_bleu(translations, list(references), self.tokenizer.target)

    def save(self) -> None:
        """Save the epoch's weights and then the training state. Finally, delete weights that are no longer needed."""
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
        """Return the last finished epochs. Their weights would be averaged if the run ended now."""
        first = max(self.preset.both_directions + 1, self.progress.epoch - self.preset.average + 1)
        return range(min(first, self.progress.epoch), self.progress.epoch + 1)

    def finish(self) -> dict[str, Any]:
        """Compare the average of the last epochs with the best epoch by validation BLEU, and save the better model."""
        last, best = self.last_epochs(), self.progress.best_epoch
        averaged = f"average of epochs {last[0]} to {last[-1]}" if len(last) > 1 else f"epoch {last[0]}"
        candidates = {f"epoch {best}": [best], averaged: list(last)}
        bleu = {}
        for name, epochs in candidates.items():
            self.load_average(epochs)
            is_scored = epochs == [best] and self.preset.beam_size == 1  # greedily, at the end of its epoch
            bleu[name] = self.progress.best_bleu if is_scored else self.validation_bleu(self.preset.beam_size)
        chosen = max(bleu, key=bleu.get)
        self.load_average(candidates[chosen])
        Translator(self.model, self.tokenizer).save(self.output)
        result = {
            "chosen": chosen,
            "validation_bleu": bleu[chosen],
            "validation_bleu_of_candidates": bleu,
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "left_out_training_pairs": self.train_pairs.left_out,
            "left_out_validation_pairs": self.validation_pairs.left_out,
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
        averaged = average_checkpoints([load_tensors(path)[0] for path in paths])
        load_weights(self.model, averaged, paths[-1], MODEL_HAS_CHANGED)


def new_model(preset: Preset, tokenizer: Tokenizer, build_model: Callable[[TransformerConfig], nn.Module]) -> nn.Module:
    """Build a model with the preset's hyperparameters for the tokenizer's vocabularies.

    Raises:
        ValueError: The hyperparameters do not fit together.
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


def warn_of_unfinished_warm_up(preset: Preset, total_steps: int) -> None:
    if preset.schedule == "paper" and total_steps < preset.warmup_steps:
        print(
            f"the run ends after {total_steps:,} updates, during its warm-up of {preset.warmup_steps:,}: "
            "use more epochs or fewer warmup_steps, so that the learning rate reaches its peak",
            file=sys.stderr,
        )


SOURCE_BPE_DROPOUT, TARGET_BPE_DROPOUT = 1_007, 1_008  # streams; others: 0 for pair order, 1 + rank for dropout


def seed_of(seed: int, epoch: int, stream: int) -> int:
    """Return a different seed for each epoch and each stream of random numbers."""
    return (seed * 100_003 + epoch) * 1_009 + stream


def compare_configurations(record: dict[str, Any], now: dict[str, Any], output: Path) -> None:
    """Make sure that the run with this record can be resumed with the current configuration.

    Raises:
        InputError: They differ, or the record is damaged. The message names the values that differ.
    """
    earlier = record.get("configuration")
    if not (isinstance(earlier, dict) and isinstance(earlier.get("preset"), dict)):
        raise InputError(f"{output / 'training.json'} is damaged (no configuration): start this run again elsewhere")
    # If the record lacks a field, the field was added after the run. The run used what is now the default value.
    earlier = {"validation_sha256": now["validation_sha256"]} | earlier | asdict(Preset(name="")) | earlier["preset"]
    if differing := differing_values(earlier | {"preset": None}, now | now["preset"] | {"preset": None}):
        raise InputError(
            f"{output} was started with another configuration ({differing}): "
            "give the same values, or a new folder with --output"
        )
