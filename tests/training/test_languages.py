"""Training to translate into Chinese uses the same trainer with different tokens and scores."""

from dataclasses import replace

import pytest
from sacrebleu.metrics import BLEU

from transformer_lab.data import load_corpus
from transformer_lab.decoding import Translator
from transformer_lab.training import train

PEOPLE = {"I": "我", "We": "我们", "They": "他们", "You": "你"}
VERBS = {"eat": "吃", "buy": "买", "need": "需要"}
THINGS = {"apples": "苹果", "bread": "面包", "fish": "鱼", "rice": "米饭", "tea": "茶"}
PAIRS = [
    (f"{who} {verb} {what}.", f"{a}{b}{c}。")
    for who, a in PEOPLE.items()
    for verb, b in VERBS.items()
    for what, c in THINGS.items()
]


@pytest.mark.parametrize(("shared", "chinese"), [(True, "byte_pairs"), (False, "characters")])
def test_a_run_into_chinese(tiny_preset, tmp_path, shared, chinese):
    table = tmp_path / "small.tsv"
    table.write_text("".join(f"{english}\t{text}\n" for english, text in PAIRS), encoding="utf-8")
    preset = replace(
        tiny_preset, corpus=str(table), shared_vocabulary=shared, tie=shared, chinese=chinese, vocab_size=540
    )
    record = train(preset, tmp_path / "run", source="en", target="zh", device="cpu")
    translator = Translator.load(tmp_path / "run")
    assert translator.tokenizer.joint is shared
    assert translator.model.config.target_vocab == translator.tokenizer.target_size
    translations = translator.translate([english for english, _ in PAIRS])
    assert not any(" " in text for text in translations)
    # The BLEU that decides which weights to keep is sacreBLEU's Chinese BLEU on the validation pairs.
    validation = load_corpus(table, "en", "zh").validation
    found = translator.translate([english for english, _ in validation], beam_size=2, alpha=preset.alpha)
    expected = BLEU(tokenize="zh").corpus_score(found, [[text for _, text in validation]]).score
    assert record["result"]["validation_bleu"] == pytest.approx(expected)
