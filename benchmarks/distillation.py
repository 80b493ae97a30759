"""Write a training set for sequence-level distillation (Kim and Rush 2016).

    python benchmarks/distillation.py --output distilled
    transformer-lab train laptop --data-dir distilled --epochs 8

A trained model, the teacher, translates all source sentences of the training set. The new training set contains every
source sentence twice: once with its reference and once with the teacher's translation. The validation set and the test
sets are copied. The default teacher is the model that comes with the course.
"""

import argparse
from pathlib import Path

from machine import run_script, timed
from tqdm import tqdm

from transformer_lab.data import Corpus, load_corpus
from transformer_lab.data.corpora import Pairs
from transformer_lab.decoding.translator import Translator, load_pretrained
from transformer_lab.errors import InputError
from transformer_lab.files import creating


def distilled(pairs: Pairs, teacher: Translator, beam_size: int) -> Pairs:
    """Return the pairs, followed by the same sources with the teacher's translations."""
    sources = [source for source, _ in pairs]
    with tqdm(total=len(sources), unit=" sentences") as bar:
        translations = teacher.translate(sources, beam_size=beam_size, advance=bar.update)
    return pairs + list(zip(sources, translations, strict=True))


def write_split(folder: Path, split: str, corpus: Corpus, pairs: Pairs) -> None:
    for language, lines in zip((corpus.source, corpus.target), zip(*pairs, strict=True), strict=True):
        (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="folder for the new training set")
    parser.add_argument("--corpus", default="multi30k", help="as in transformer-lab train; default: multi30k")
    parser.add_argument("--data-dir", type=Path, help="folder with Multi30k; downloaded if omitted")
    parser.add_argument("--teacher", type=Path, metavar="RUN", help="default: the model that comes with the course")
    parser.add_argument("--beam", type=int, default=4, metavar="N", help="beam size of the teacher; default: 4")
    arguments = parser.parse_args()

    if arguments.output.exists():
        raise InputError(f"{arguments.output} already exists: choose a new folder, or remove this one first")
    corpus = load_corpus(arguments.corpus, data_dir=arguments.data_dir)
    teacher = Translator.load(arguments.teacher) if arguments.teacher else load_pretrained()
    seconds, pairs = timed(distilled, corpus.train, teacher, arguments.beam)
    with creating(arguments.output) as unfinished:
        for split, its_pairs in {"train": pairs, "val": corpus.validation, **corpus.tests}.items():
            write_split(unfinished, split, corpus, its_pairs)
    new = pairs[len(corpus.train) :]
    same = sum(pair == other for pair, other in zip(corpus.train, new, strict=True))
    print(f"{len(new):,} translations in {seconds:.0f} s; {same:,} are the same as the reference: {arguments.output}")


if __name__ == "__main__":
    run_script(main)
