"""Test the elective on other languages: its split has no leakage, and its Chinese BLEU matches sacreBLEU's."""

import json
import random
import sys

import pytest
from sacrebleu.metrics import BLEU
from sacrebleu.tokenizers.tokenizer_zh import TokenizerZh

from transformer_lab.data import load_corpus
from transformer_lab.data.corpora import letters_and_digits, related_pairs
from transformer_lab.electives.language_records import recorded_languages
from transformer_lab.electives.leakage import split_without_leakage
from transformer_lab.electives.other_languages import chinese_bleu, is_chinese_character, split_chinese
from transformer_lab.electives.small_chinese import small_chinese_pairs


def shared_sentences(one, other):
    """Return the sentences that appear in both sets, as source or as target.

    Only their `letters_and_digits` are compared.
    """
    one, other = ([set(map(letters_and_digits, side)) for side in zip(*pairs, strict=True)] for pairs in (one, other))
    return (one[0] & other[0]) | (one[1] & other[1])


def check_split(pairs, held_out, seed):
    train, validation, test = split_without_leakage(pairs, held_out, seed)
    assert sorted([*train, *validation, *test]) == sorted(pairs)
    assert len(validation) == len(test) == held_out
    for one, other in ((train, validation), (train, test), (validation, test)):
        assert not shared_sentences(one, other)
    return train, validation, test


def test_nothing_leaks_through_random_tables():
    """Many pairs share a few sentences. The resulting chains of related pairs cannot be found in a single pass."""
    generator = random.Random(0)
    for seed in range(50):
        pairs = [(f"{generator.choice('aA')}{number}", f"b{generator.randrange(60)}.")
                 for number in generator.choices(range(60), k=30)]  # fmt: skip
        pairs += [(f"Single {number}", f"Alone {number}") for number in range(10)]
        sets = check_split(pairs, 5, seed)
        place = {pair: number for number, one in enumerate(sets) for pair in one}
        assert all(len({place[pairs[index]] for index in group}) == 1 for group in related_pairs(pairs))


def test_nothing_leaks_through_a_real_table(real_data):
    corpus = load_corpus("tatoeba_en_zh/cmn.txt.gz", "en", "zh", data_dir=real_data)
    check_split([*corpus.train, *corpus.validation, *corpus.test], 1000, 0)


def test_near_duplicates_leak_through_a_random_split():
    """As the notebook says, most near-duplicates have a copy in the training set if pairs are split individually."""
    pairs = small_chinese_pairs()
    pairs += [(english[:-1] + "!", chinese[:-1] + "！") for english, chinese in pairs[::2]]
    mixed = random.Random(0).sample(pairs, len(pairs))
    assert len(shared_sentences(mixed[200:], mixed[:100])) > 50
    check_split(pairs, 100, 0)


def test_chinese_characters_are_those_of_sacrebleu():
    """This test covers all of Unicode, including sacreBLEU's mistake with curly quotation marks."""
    characters = [chr(code) for code in range(sys.maxunicode + 1)]
    expected = {character for character in characters if TokenizerZh._is_chinese_char(character)}
    assert {character for character in characters if is_chinese_character(character)} == expected
    assert "“" in expected
    assert "𠀀" not in expected


def test_split_chinese_is_sacrebleus_tokenizer():
    """The random sentences contain everything that can go wrong at a boundary, such as a number before a period."""
    generator = random.Random(0)
    pieces = [*"我你好，。“”（）.,!?-3 ", "Tom", "New York", "3.5", "1,000", "don't", "＄", "…", "𠀀", "5."]
    tokenize = TokenizerZh()
    for _ in range(2000):
        text = "".join(generator.choices(pieces, k=generator.randint(0, 12)))
        assert split_chinese(text) == tokenize(text).split(), text


def test_chinese_bleu_is_sacrebleus(real_data):
    """The hypotheses are truncated versions of real references."""
    pairs = load_corpus("tatoeba_en_zh/cmn.txt.gz", "en", "zh", data_dir=real_data).test
    references = [chinese for _, chinese in pairs]
    hypotheses = [text[: max(1, len(text) * 3 // 4)] + "。" for text in references]
    expected = BLEU(tokenize="zh", smooth_method="none").corpus_score(hypotheses, [references]).score
    assert chinese_bleu(hypotheses, references) == pytest.approx(expected, abs=1e-9)
    assert 20 < expected < 90


def test_the_small_corpus_has_no_sentence_twice():
    pairs = small_chinese_pairs()
    assert len(pairs) == len({english for english, _ in pairs}) == len({chinese for _, chinese in pairs}) == 1680
    assert ("Tom does not eat fish today.", "汤姆今天不吃鱼。") in pairs


def test_the_newest_record_of_each_run_is_shown(tmp_path):
    for day, bleu in (("2026-01-01", 1), ("2026-02-01", 2)):
        for name in ("en_zh", "other"):
            (tmp_path / f"{day}_languages").mkdir(exist_ok=True)
            (tmp_path / f"{day}_languages" / f"{name}.json").write_text(json.dumps({"bleu": bleu}), encoding="utf-8")
    assert recorded_languages(tmp_path) == {"English–Chinese": {"bleu": 2}}
    assert recorded_languages(tmp_path / "nowhere") == {}
