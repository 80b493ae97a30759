"""Write a training set for sequence-level distillation (Kim and Rush 2016).

    python benchmarks/distillation.py --output distilled
    transformer-lab train laptop --data-dir distilled --epochs 8

A trained model, the teacher, translates all source sentences of the training set. The new training set contains every
source sentence twice: once with its reference and once with the teacher's translation. The validation set and the test
sets are copied. The default teacher is the model that comes with the course. If `--teacher` is given several runs, they
translate together, as an ensemble.
"""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from machine import run_script, timed
from torch import Tensor, nn
from tqdm import tqdm

from transformer_lab.data import Corpus, load_corpus
from transformer_lab.data.corpora import Pairs
from transformer_lab.data.tokenizers import FILE
from transformer_lab.decoding.incremental import IncrementalDecoder
from transformer_lab.decoding.translator import Translator, load_pretrained
from transformer_lab.errors import InputError
from transformer_lab.files import creating
from transformer_lab.model import Transformer
from transformer_lab.presets import DEFAULT_ALPHA


class Ensemble(nn.Module):
    """Several Transformers with one vocabulary. A token's probability is the mean of the members' probabilities."""

    def __init__(self, members: Sequence[Transformer]) -> None:
        super().__init__()
        self.members, self.config = nn.ModuleList(members), members[0].config

    def incremental_decoder(self, source: Tensor) -> "EnsembleDecoder":
        return EnsembleDecoder(self.members, source)


class EnsembleDecoder:
    """The members' decoders, run step by step on the same hypotheses."""

    def __init__(self, members: Iterable[Transformer], source: Tensor) -> None:
        self.decoders = [IncrementalDecoder(member, source) for member in members]

    def step(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the logarithm of the sum of the members' probabilities, `(batch, new, vocab)`."""
        logits = (decoder.model.output(decoder.step(tokens, mask)) for decoder in self.decoders)
        return torch.stack([member.log_softmax(dim=-1) for member in logits]).logsumexp(dim=0)

    def reorder(self, parents: Tensor) -> None:
        for decoder in self.decoders:
            decoder.reorder(parents)

    def select(self, sentences: Tensor) -> None:
        for decoder in self.decoders:
            decoder.select(sentences)


def load_teacher(runs: Sequence[Path]) -> Translator:
    """Return the teacher: one run, an ensemble of several, or the model that comes with the course if there is none.

    Raises:
        InputError: A run cannot be loaded, or two runs have different vocabularies.
    """
    if not runs:
        return load_pretrained()
    first, *others = (Translator.load(run) for run in runs)
    vocabulary = (runs[0] / FILE).read_bytes()
    for run in runs[1:]:
        if (run / FILE).read_bytes() != vocabulary:
            raise InputError(f"{run} and {runs[0]} have different vocabularies: choose runs trained on the same data")
    return Translator(Ensemble([first.model, *(other.model for other in others)]), first.tokenizer) if others else first


def distilled(pairs: Pairs, teacher: Translator, beam_size: int, alpha: float) -> Pairs:
    """Return the pairs, followed by the same sources with the teacher's translations."""
    sources = [source for source, _ in pairs]
    with tqdm(total=len(sources), unit=" sentences") as bar:
        translations = teacher.translate(sources, beam_size=beam_size, alpha=alpha, advance=bar.update)
    return pairs + list(zip(sources, translations, strict=True))


def write_split(folder: Path, split: str, corpus: Corpus, pairs: Pairs) -> None:
    for language, lines in zip((corpus.source, corpus.target), zip(*pairs, strict=True), strict=True):
        (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="folder for the new training set")
    parser.add_argument("--corpus", default="multi30k", help="as in transformer-lab train; default: multi30k")
    parser.add_argument("--data-dir", type=Path, help="folder with Multi30k; downloaded if omitted")
    default = "default: the model that comes with the course"
    parser.add_argument("--teacher", type=Path, nargs="+", default=[], metavar="RUN", help=default)
    parser.add_argument("--beam", type=int, default=4, metavar="N", help="beam size of the teacher; default: 4")
    parser.add_argument("--alpha", type=float, default=DEFAULT_ALPHA, metavar="X", help="the teacher's length penalty")
    arguments = parser.parse_args()

    if arguments.output.exists():
        raise InputError(f"{arguments.output} already exists: choose a new folder, or remove this one first")
    corpus = load_corpus(arguments.corpus, data_dir=arguments.data_dir)
    teacher = load_teacher(arguments.teacher)
    seconds, pairs = timed(distilled, corpus.train, teacher, arguments.beam, arguments.alpha)
    with creating(arguments.output) as unfinished:
        for split, its_pairs in {"train": pairs, "val": corpus.validation, **corpus.tests}.items():
            write_split(unfinished, split, corpus, its_pairs)
    new = pairs[len(corpus.train) :]
    same = sum(pair == other for pair, other in zip(corpus.train, new, strict=True))
    print(f"{len(new):,} translations in {seconds:.0f} s; {same:,} are the same as the reference: {arguments.output}")


if __name__ == "__main__":
    run_script(main)
