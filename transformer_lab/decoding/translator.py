"""Translate sentences with a model and its tokenizer, loaded from a folder or saved to one."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Self

import torch
from safetensors.torch import save_file
from torch import Tensor

from transformer_lab.data import Tokenizer, load_tokenizer, pad_batch, token_batches
from transformer_lab.decoding.greedy import evaluation_mode
from transformer_lab.decoding.incremental import cached_beam_search
from transformer_lab.decoding.weights import load_weights, model_weights, read_weights
from transformer_lab.errors import InputError
from transformer_lab.files import replacing_together, writing
from transformer_lab.model import Transformer, TransformerConfig, record_attention
from transformer_lab.presets import DEFAULT_ALPHA, LARGEST_BEAM

PRETRAINED = Path(__file__).resolve().parents[1] / "pretrained"
BATCH_CELLS = 24576  # hypotheses times source tokens per batch: enough work per step without large caches
BATCH_CELLS_ON_GPU = 4 * BATCH_CELLS  # larger, because kernel launches dominate a step regardless of the batch size


class Translator:
    """A trained Transformer and the tokenizer it was trained with.

    The model runs in evaluation mode, and its own mode is restored afterward.
    """

    def __init__(self, model: Transformer, tokenizer: Tokenizer) -> None:
        self.model = model
        self.tokenizer = tokenizer

    @classmethod
    def load(cls, folder: str | Path, build_model: Callable[[TransformerConfig], Transformer] = Transformer) -> Self:
        """Load the translator saved in `folder`, on the CPU, in float32 and evaluation mode.

        Args:
            folder: Folder that contains a trained model.
            build_model: Function that builds the model from its configuration, for example with your own parts.

        Raises:
            InputError: A file is missing or damaged, the files do not belong together, or the model cannot be built.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise InputError(f"there is no folder {folder}: give the folder of a trained model")
        config = read_config(folder / "config.json")
        tokenizer = load_tokenizer(folder)
        expected = {"source_vocab": tokenizer.source_size, "target_vocab": tokenizer.target_size}
        expected |= {name: getattr(tokenizer, name) for name in ("pad_id", "bos_id", "eos_id")}
        for name, value in expected.items():
            if getattr(config, name) != value:
                raise InputError(
                    f"{folder / 'tokenizer.json'} has {name} {value}, but config.json says {getattr(config, name)}: "
                    "take both files from the same run"
                )
        try:
            model = build_model(config)
        except (TypeError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"{folder / 'config.json'} describes a model that cannot be built: {reason}") from None
        weights = folder / "weights.safetensors"
        load_weights(model, read_weights(weights), weights)
        return cls(model.eval(), tokenizer)

    def save(self, folder: str | Path, half: bool = False) -> None:
        """Write `weights.safetensors`, `config.json`, and `tokenizer.json` into `folder`.

        Args:
            folder: The folder to write to. It is created if it does not exist. Existing files are either all replaced
                or all kept.
            half: Save the weights in half precision. This halves the size and changes scores in the second decimal
                place.

        Raises:
            InputError: The folder cannot be written, or the disk is full.
        """
        folder = Path(folder)
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        weights = {name: tensor.cpu().contiguous() for name, tensor in model_weights(self.model).items()}
        if half:
            weights = {name: tensor.half() for name, tensor in weights.items()}
        with replacing_together(folder, ("weights.safetensors", "config.json", "tokenizer.json")) as unfinished:
            save_file(weights, unfinished / "weights.safetensors")
            config = json.dumps(asdict(self.model.config), indent=2) + "\n"
            (unfinished / "config.json").write_text(config, encoding="utf-8")
            self.tokenizer.save(unfinished)

    def translate(
        self,
        sentences: Sequence[str],
        beam_size: int = 4,
        alpha: float = DEFAULT_ALPHA,
        max_length: int | None = None,
        advance: Callable[[int], object] | None = None,
    ) -> list[str]:
        """Translate sentences. Each translation is independent of the other sentences.

        Args:
            sentences: Sentences in the source language, of any length and in any order.
            beam_size: Number of hypotheses to keep for each sentence; 1 is greedy decoding.
            alpha: Exponent of the length penalty; larger values favor longer translations.
            max_length: Maximum number of tokens per translation. The default is the length of the source plus 50
                (section 6.1), capped at the model's own `max_length`.
            advance: Called after each batch with the number of sentences in it, to show progress.

        Returns:
            One translation per sentence, in the same order.

        Raises:
            InputError: An option is out of range, or a sentence is empty, too long for the model, or not valid text.
                The message gives the number of the sentence, counted from 1.
        """
        if isinstance(sentences, str):
            raise InputError("expected a list of sentences; got a single string: put it into a list")
        return [self.tokenizer.decode(ids) for ids in self.search(sentences, beam_size, alpha, max_length, advance)]

    def search(
        self,
        sentences: Sequence[str],
        beam_size: int,
        alpha: float,
        max_length: int | None,
        advance: Callable[[int], object] | None = None,
    ) -> list[list[int]]:
        """Search for translations as `translate` does, but return their token IDs.

        Raises:
            InputError: For the same reasons as in `translate`.
        """
        config = self.model.config
        if not 1 <= beam_size <= LARGEST_BEAM:
            raise InputError(f"`beam_size` must be from 1 to {LARGEST_BEAM}; got {beam_size}")
        if not math.isfinite(alpha):
            raise InputError(f"`alpha` must be a finite number; got {alpha}")
        if max_length is not None and not 1 <= max_length <= config.max_length:
            raise InputError(f"`max_length` must be from 1 to {config.max_length}, the model's own; got {max_length}")
        sources = self.encode(sentences)
        lengths = [len(source) for source in sources]
        limits = [max_length or min(length + 50, config.max_length) for length in lengths]
        device = next(self.model.parameters()).device
        translations: list[list[int]] = [[] for _ in sources]
        cells = BATCH_CELLS if device.type == "cpu" else BATCH_CELLS_ON_GPU
        for batch in token_batches(lengths, max(cells // beam_size, *lengths, 0)):
            source = pad_batch([sources[index] for index in batch], config.pad_id).to(device)  # (batch, source)
            limit = torch.tensor([limits[index] for index in batch], device=device)  # (batch,)
            decoded = cached_beam_search(self.model, source, beam_size, alpha, limit)
            for index, ids in zip(batch, decoded, strict=True):
                translations[index] = ids
            if advance:
                advance(len(batch))
        return translations

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the token IDs of each source sentence.

        Raises:
            InputError: For the same reasons as in `translate`.
        """
        longest = self.model.config.max_length
        for number, sentence in enumerate(sentences, 1):
            check_text(sentence, f"sentence {number}")
        sources = self.tokenizer.encode_sources(sentences)
        for number, source in enumerate(sources, 1):
            if len(source) > longest:
                raise InputError(
                    f"sentence {number} has {len(source)} tokens, but this model reads at most {longest}: "
                    "split it into shorter sentences, or train with a larger max_length"
                )
        return sources

    def attention(
        self, sentence: str, translation: str | None = None
    ) -> tuple[dict[str, Tensor], list[str], list[str]]:
        """Return all attention weights for a sentence and its translation.

        Args:
            sentence: A sentence in the source language.
            translation: A sentence in the target language to use in place of the model's own translation.

        Returns:
            `(weights, source_tokens, target_tokens)`. The weights are keyed by module name, as in `record_attention`,
            and each is `(1, heads, query, key)`. The tokens label the axes. The target tokens are the decoder's inputs,
            starting with bos.

        Raises:
            InputError: For the same reasons as in `translate`.
        """
        config = self.model.config
        source = self.encode([sentence])[0]
        if translation is None:
            target = [config.bos_id, *self.search([sentence], 4, DEFAULT_ALPHA, None)[0]]
            target = target[: config.max_length]  # the decoder never read the last token of a truncated translation
        else:
            check_text(translation, "the translation")
            target = self.tokenizer.encode_target(translation)[:-1]  # the final eos is predicted but never read
            if len(target) > config.max_length:
                raise InputError(
                    f"the translation has {len(target)} tokens, but this model reads at most {config.max_length}: "
                    "give a shorter one"
                )
        device = next(self.model.parameters()).device
        with evaluation_mode(self.model), record_attention(self.model) as weights:
            self.model(torch.tensor([source], device=device), torch.tensor([target], device=device))
        return dict(weights), self.tokenizer.source_tokens(source), self.tokenizer.target_tokens(target)


def load_pretrained() -> Translator:
    """Return the small German–English model that comes with the package.

    Raises:
        InputError: The model's files are missing.
    """
    return Translator.load(PRETRAINED)


def read_config(path: Path) -> TransformerConfig:
    """Return the configuration stored in a JSON file.

    Raises:
        InputError: The file cannot be read, or it does not contain a configuration.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return TransformerConfig(**values)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): give the folder of a trained model") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a model configuration ({error}): take the file of its run") from None


def check_text(sentence: str, name: str) -> None:
    """Check that a sentence is valid text.

    Raises:
        InputError: The sentence is blank, is not a string, or contains a NUL byte or a lone surrogate. The message
            starts with `name`.
    """
    if not isinstance(sentence, str):
        raise InputError(f"{name} is {sentence!r}, but must be a string")
    if not sentence.strip():
        raise InputError(f"{name} is empty: give at least one word")
    if "\0" in sentence:
        position = sentence.index("\0") + 1
        raise InputError(f"{name} has a NUL byte at character {position}: is this UTF-8 text?")
    try:
        sentence.encode("utf-8")
    except UnicodeEncodeError as error:
        position = error.start + 1
        raise InputError(f"{name} is not valid Unicode at character {position}: give it as UTF-8") from None
