"""Measure how fast this package and CTranslate2 translate test2016 with the same float32 weights on the same CPU.

    python benchmarks/export.py [MODEL_FOLDER] [--data-dir FOLDER] [--beam 4] [--threads 2] [--rounds 3]

The script exports the model. Then both engines translate the 1,000 sentences, including tokenization, with the same
beam size and the same batches: first the batches of `Translator.translate`, then smaller ones. They alternate within
each round, so that any other load on the machine affects both. Prints the times, the ratio for each batch size, the
number of greedy translations on which the two agree, and the BLEU score of each beam search, and writes them to
`results/export.json`. Progress goes to stderr. On a busy machine, two threads can be many times slower than one,
because after each small matrix product, one thread waits for the other to get a core. For a quick look, use
`--sentences 50`.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import ctranslate2
import torch
from machine import RESULTS, run_script, timed, write_result
from tokenizers import Tokenizer

from transformer_lab.data import load_corpus, token_batches
from transformer_lab.decoding import Translator
from transformer_lab.decoding.ctranslate2_export import PATIENCE, export_ctranslate2
from transformer_lab.decoding.translator import BATCH_CELLS, PRETRAINED
from transformer_lab.evaluation import score_translations

SMALL_BATCH = 512  # source tokens, about 30 sentences

Translate = Callable[[list[str], int], list[str]]


def open_service(folder: Path, threads: int) -> Translate:
    """Load what a service would use: CTranslate2 and the model's tokenizer file, but nothing from this package."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    engine = ctranslate2.Translator(str(folder), inter_threads=1, intra_threads=threads, compute_type="float32")

    def translate(sentences: list[str], beam_size: int) -> list[str]:
        tokens = [encoding.tokens for encoding in tokenizer.encode_batch(sentences)]
        found = engine.translate_batch(tokens, beam_size=beam_size, patience=PATIENCE)
        return tokenizer.decode_batch([[tokenizer.token_to_id(token) for token in one.hypotheses[0]] for one in found])

    return translate


def translate_in(batches: list[list[int]], translate: Translate, sentences: list[str], beam_size: int) -> list[str]:
    """Return the translations in the order of the sentences."""
    translations = [""] * len(sentences)
    for batch in batches:
        found = translate([sentences[index] for index in batch], beam_size)
        for index, translation in zip(batch, found, strict=True):
            translations[index] = translation
    return translations


def tell(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, nargs="?", default=PRETRAINED, help="folder with a trained model")
    parser.add_argument("--data-dir", type=Path, help="folder with Multi30k; downloaded if omitted")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentences", type=int, help="use only this many sentences, evenly spaced, for a quick look")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    translator = Translator.load(arguments.model)
    pairs = load_corpus("multi30k", data_dir=arguments.data_dir).test
    if arguments.sentences:
        pairs = pairs[:: max(1, len(pairs) // arguments.sentences)]
    sentences, references = [source for source, _ in pairs], [target for _, target in pairs]
    lengths = [len(source) for source in translator.tokenizer.encode_sources(sentences)]
    tell(f"exporting, then translating {len(sentences)} sentences with {arguments.threads} threads")
    with tempfile.TemporaryDirectory() as folder:
        export_ctranslate2(translator, Path(folder, "service"))
        service = open_service(Path(folder, "service"), arguments.threads)
    engines: dict[str, Translate] = {"ours": translator.translate, "ctranslate2": service}

    for translate in engines.values():  # a warm-up, which compiles kernels and allocates memory
        translate(sentences[:2], arguments.beam)
    rows, translations = [], {}
    for tokens in (BATCH_CELLS // arguments.beam, SMALL_BATCH):
        batches = token_batches(lengths, max(tokens, *lengths))
        seconds: dict[str, list[float]] = {name: [] for name in engines}
        for number in range(arguments.rounds):
            for name, translate in engines.items():
                taken, translations[name] = timed(translate_in, batches, translate, sentences, arguments.beam)
                seconds[name].append(taken)
                tell(f"{len(batches)} batches, round {number + 1}: {name} {taken:.2f} s")
        ours, theirs = (statistics.median(seconds[name]) for name in ("ours", "ctranslate2"))
        rows.append(
            {
                "source_tokens_a_batch": tokens,
                "batches": len(batches),
                "seconds": round(ours, 2),
                "ctranslate2_seconds": round(theirs, 2),
                "speed_against_ctranslate2": round(theirs / ours, 2),
                "seconds_of_each_round": {name: [round(one, 2) for one in times] for name, times in seconds.items()},
            }
        )
        print(
            f"beam {arguments.beam}, {len(batches)} batches of up to {tokens} source tokens: {ours:.2f} s, "
            f"CTranslate2 {theirs:.2f} s, {theirs / ours:.2f} times its speed",
            flush=True,
        )
    fastest = {name: min(row[name] for row in rows) for name in ("seconds", "ctranslate2_seconds")}
    tell("greedy translations by both engines")
    greedy = [translate_in(batches, translate, sentences, 1) for translate in engines.values()]
    agree = sum(one == other for one, other in zip(*greedy, strict=True))
    bleu = {name: round(score_translations(found, references).bleu, 2) for name, found in translations.items()}
    result = {
        "what": f"test2016, German to English, from text to text, beam {arguments.beam}: Translator.translate and "
        "CTranslate2 in float32, same weights, same batches",
        "batches": rows,
        "speed_against_ctranslate2_each_at_its_fastest": round(fastest["ctranslate2_seconds"] / fastest["seconds"], 2),
        "same_greedy_translations": f"{agree} of {len(sentences)}",
        "bleu": bleu,
        "ctranslate2": version("ctranslate2"),
    }
    if not arguments.sentences:
        write_result(RESULTS / "export.json", result)
    print(f"each at its fastest: {result['speed_against_ctranslate2_each_at_its_fastest']} times CTranslate2's speed")
    print(f"same greedy translation for {agree} of {len(sentences)} sentences; BLEU with a beam: {bleu}")


if __name__ == "__main__":
    run_script(main)
