"""Record notebook 21's training runs: a character model, a byte-pair model, and one that averages over positions.

    python benchmarks/language_model.py [--steps 500] [--text captions]

All three are trained on the same text and evaluated on the same characters from its validation split. The text is the
English side of `captions` unless you name a file. Prints the scores and writes them to `results/language_model.json`,
along with the loss curves and some samples.
"""

import argparse
import time

import torch
import torch.nn.functional as F
from machine import RESULTS, run_script, write_result
from torch import Tensor, nn

from transformer_lab.data import load_text
from transformer_lab.decoding.greedy import evaluation_mode
from transformer_lab.electives.language_model import (
    LanguageModel,
    causal_language_model_loss,
    next_token_pairs,
    sample,
    score_language_model,
    train_language_model,
)
from transformer_lab.electives.text_tokenizer import TextTokenizer
from transformer_lab.model import causal_mask

SIZES = {"d_model": 96, "n_heads": 4, "n_layers": 2, "d_ff": 384}
LENGTHS = {"characters": 128, "byte pairs": 64}
MERGES = {"characters": 0, "byte pairs": 500}
SETTINGS = [{"temperature": 0}, {"temperature": 0.5}, {}, {"temperature": 1.5}, {"top_k": 5}, {"top_p": 0.9}]


def averaged_loss(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """Compute the averaging model's loss. Its mean over positions predicts only the token after the window."""
    logits = model(inputs, ~causal_mask(inputs.size(1))[0, 0]).mean(dim=1)
    return F.cross_entropy(logits, labels[:, -1])


def accuracy_behind_windows(model: LanguageModel, tokens: Tensor, averaged: bool) -> float:
    """Return how often the most likely token is the one that follows the window."""
    inputs, labels = next_token_pairs(tokens, model.max_length)
    hidden, right = ~causal_mask(model.max_length)[0, 0], 0
    with evaluation_mode(model):
        for some, answers in zip(inputs.split(32), labels[:, -1].split(32), strict=True):
            logits = model(some, hidden)
            guessed = (logits.mean(dim=1) if averaged else logits[:, -1]).argmax(dim=-1)
            right += int((guessed == answers).sum())
    return right / len(inputs)


def train(kind: str, train_text: str, steps: int, averaged: bool = False):
    tokenizer = TextTokenizer.train(train_text, MERGES[kind])
    torch.manual_seed(1)
    model = LanguageModel(len(tokenizer), **SIZES, max_length=LENGTHS[kind])
    loss = averaged_loss if averaged else causal_language_model_loss
    tokens, start = tokenizer.encode(train_text), time.process_time()
    records = list(train_language_model(model, tokens, steps, batch_size=16, loss=loss))
    seconds = time.process_time() - start
    run = {
        "steps": steps,
        "vocabulary": len(tokenizer),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "train_tokens": len(tokens),
        "processor_seconds": round(seconds, 1),
        "losses": [[record["step"], round(record["loss"], 4)] for record in records if record["step"] % 5 == 1],
    }
    return tokenizer, model, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--text", default="captions", help="`captions`, or the path of a UTF-8 text file")
    arguments = parser.parse_args()
    text = load_text(arguments.text)

    runs = {}
    for kind in LENGTHS:
        tokenizer, model, run = train(kind, text.train, arguments.steps)
        score = score_language_model(model, tokenizer, text.validation)
        run["validation"] = {
            "characters": score.characters,
            "tokens": score.tokens,
            "loss": round(score.loss, 4),
            "perplexity": round(score.perplexity, 3),
            "bits_per_character": round(score.bits_per_character, 4),
        }
        run["samples"] = []
        for settings in SETTINGS:
            generator = torch.Generator().manual_seed(21)
            count = 160 if kind == "characters" else 45
            written = sample(model, tokenizer.encode("\n"), count, **settings, generator=generator)
            run["samples"].append({"settings": settings, "text": tokenizer.decode(written)})
        if kind == "characters":
            validation = tokenizer.encode(text.validation)
            run["accuracy_behind_windows"] = round(accuracy_behind_windows(model, validation, averaged=False), 4)
            answers = next_token_pairs(validation, LENGTHS[kind])[1][:, -1]
            run["most_frequent_answer"] = round(float(answers.bincount().max() / len(answers)), 4)
        runs[kind] = run
        print(kind, run["validation"], flush=True)
    tokenizer, model, run = train("characters", text.train, arguments.steps, averaged=True)
    validation = tokenizer.encode(text.validation)
    run["accuracy_behind_windows"] = round(accuracy_behind_windows(model, validation, averaged=True), 4)
    runs["characters, positions averaged"] = run
    print("positions averaged", run["accuracy_behind_windows"], flush=True)

    result = {
        "what": "Language models built from PyTorch's own classes: nats per token in training, bits per character in "
        "validation",
        "text": text.name,
        "command": f"python benchmarks/language_model.py --steps {arguments.steps} --text {text.name}",
        "sizes": SIZES | {"batch_size": 16, "windows": LENGTHS, "merges": MERGES, "seed": 1},
        "runs": runs,
    }
    write_result(RESULTS / "language_model.json", result)


if __name__ == "__main__":
    run_script(main)
