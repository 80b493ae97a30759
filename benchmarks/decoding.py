"""Measure how much faster test2016 is translated in batches with a cache than in a plain loop.

    python benchmarks/decoding.py [MODEL_FOLDER] [--data-dir FOLDER] [--sample 60 | --all] [--threads 2] [--device cuda]

The plain loop runs `beam_search` on one sentence at a time, without a cache. The fast version is
`Translator.translate`. Both use the same weights, the same attention kernel, a beam of 4, and the same limits, and they
should produce the same translations. The plain loop translates an evenly spaced sample of the test set (with `--all`,
the whole set). Its mean time per sentence is compared with that of `translate` on all 1,000 sentences. The two
versions alternate, so that any other load on the machine affects both. Prints both times and their ratio, and writes
them to `results/decoding.json`, or to `results/decoding_cuda.json` on a GPU.
"""

import argparse
import statistics
from functools import partial
from pathlib import Path

import torch
from machine import RESULTS, run_script, timed, write_result

from transformer_lab.data import load_corpus
from transformer_lab.decoding import DEFAULT_ALPHA, Translator, beam_search
from transformer_lab.decoding.translator import PRETRAINED
from transformer_lab.training.distributed import choose_device

BEAM_SIZE = 4
ROUNDS = 3


def plain_loop(translator: Translator, sentences: list[str]) -> list[str]:
    """Produce the same translations as `Translator.translate`, but with the simplest possible code."""
    device = next(translator.model.parameters()).device
    translations = []
    for sentence in sentences:
        source = torch.tensor([translator.tokenizer.encode_source(sentence)], device=device)  # (1, source)
        limit = min(source.size(1) + 50, translator.model.config.max_length)
        ids = beam_search(translator.model, source, BEAM_SIZE, DEFAULT_ALPHA, limit)[0]
        translations.append(translator.tokenizer.decode(ids))
    return translations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, nargs="?", default=PRETRAINED, help="folder with a trained model")
    parser.add_argument("--data-dir", type=Path, help="folder with Multi30k; downloaded if omitted")
    parser.add_argument("--sample", type=int, default=60, help="number of sentences for the plain loop")
    parser.add_argument("--all", action="store_true", help="run the plain loop on all sentences, which takes minutes")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="cpu", help="device to run on, such as cuda")
    parser.add_argument("--result", type=Path, help="file to write, instead of the default for the device")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    device = choose_device(arguments.device)
    translator = Translator.load(arguments.model)
    translator.model.to(device)
    sentences = [source for source, _ in load_corpus("multi30k", data_dir=arguments.data_dir).test]
    step = 1 if arguments.all else max(1, len(sentences) // arguments.sample)
    sample = sentences[::step]
    plain = partial(plain_loop, translator)
    for translate in (plain, translator.translate):  # a warm-up, which compiles kernels and allocates memory
        translate(sample[:2])
    plain_seconds, plain_translations, fast_seconds = 0.0, {}, []
    for number in range(ROUNDS):
        part = sample[number::ROUNDS]
        seconds, translations = timed(plain, part)
        plain_seconds += seconds
        plain_translations |= dict(zip(part, translations, strict=True))
        seconds, fast_translations = timed(translator.translate, sentences)
        fast_seconds.append(seconds)
        print(f"round {number + 1}: {seconds:.2f} s for {len(sentences)} sentences in batches", flush=True)
    fast = dict(zip(sentences, fast_translations, strict=True))
    same = sum(fast[sentence] == translation for sentence, translation in plain_translations.items())

    plain_milliseconds = 1000 * plain_seconds / len(sample)
    fast_milliseconds = 1000 * statistics.median(fast_seconds) / len(sentences)
    config = translator.model.config
    result = {
        "what": f"test2016, German to English, beam {BEAM_SIZE}, alpha {DEFAULT_ALPHA}: Translator.translate (batches, "
        "cache) and the plain loop (one sentence at a time, no cache), same weights",
        "seconds": round(statistics.median(fast_seconds), 2),
        "seconds_of_each_round": [round(seconds, 2) for seconds in fast_seconds],
        "sentences": len(sentences),
        "milliseconds_a_sentence": round(fast_milliseconds, 2),
        "plain_milliseconds_a_sentence": round(plain_milliseconds, 2),
        "plain_sentences": len(sample),
        "ratio": round(plain_milliseconds / fast_milliseconds, 1),
        "same_translations": f"{same} of {len(plain_translations)}",
        "model": {
            "folder": arguments.model.name,
            "parameters": sum(parameter.numel() for parameter in translator.model.parameters()),
            **{size: getattr(config, size) for size in ("n_layers", "d_model", "d_ff", "target_vocab")},
        },
        "device": device.type,
    }
    of_device = RESULTS / ("decoding.json" if device.type == "cpu" else f"decoding_{device.type}.json")
    write_result(arguments.result or of_device, result)
    print(f"batches and cache: {result['seconds']} s for {len(sentences)} sentences, {fast_milliseconds:.2f} ms each")
    print(f"plain loop: {plain_milliseconds:.1f} ms per sentence, measured on {len(sample)} sentences")
    print(f"ratio {result['ratio']}; {result['same_translations']} sentences have the same translation")


if __name__ == "__main__":
    run_script(main)
