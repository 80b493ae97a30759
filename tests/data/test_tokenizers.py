"""Decoding IDs must restore the sentences, and no text may turn into a special token."""

import json
import os
import re
import sys
import unicodedata
from collections import Counter
from itertools import product
from math import prod
from pathlib import Path

import pytest

from transformer_lab.data import BpeTokenizer, SpacyTokenizer, Tokenizer, load_tokenizer, train_tokenizer
from transformer_lab.data.corpora import _read_text
from transformer_lab.data.tokenizers import BytePairs, normalize
from transformer_lab.errors import InputError

PAIRS = [
    ("Ein kleines Mädchen spielt draußen.", "A little girl is playing outside."),
    ("Der Hund läuft (schnell) im Park.", "The dog isn't running (fast) in the park."),
    ('Er sagt "hallo", oder?', 'He says "hello", doesn\'t he?'),
    ("Das T-Shirt des Mannes ist rot.", "The man's t-shirt is red."),
] * 4


SPECIALS = {0, 1, 2}  # pad, bos, eos

# --- all tokenizers ---


@pytest.fixture(scope="module")
def small_bpe() -> BpeTokenizer:
    return BpeTokenizer.train(PAIRS, vocab_size=600)


@pytest.fixture(scope="module")
def small_spacy() -> SpacyTokenizer:
    return SpacyTokenizer.train(PAIRS)


@pytest.fixture(scope="module", params=["bpe", "separate", "spacy"])
def tokenizer(request, small_bpe, small_spacy) -> Tokenizer:
    separate = BpeTokenizer.train(PAIRS, vocab_size=600, shared_vocabulary=False)
    return {"bpe": small_bpe, "separate": separate, "spacy": small_spacy}[request.param]


def test_bos_and_eos_are_where_the_model_expects_them(tokenizer):
    """The encoder does not read bos. The decoder starts with bos and must learn to end with eos."""
    german, english = PAIRS[0]
    source, target = tokenizer.encode_source(german), tokenizer.encode_target(english)
    assert source[-1] == tokenizer.eos_id == 2
    assert (target[0], target[-1]) == (tokenizer.bos_id, tokenizer.eos_id) == (1, 2)
    assert not SPECIALS & set(source[:-1] + target[1:-1])
    assert max(source) < tokenizer.source_size
    assert max(target) < tokenizer.target_size


def test_decoding_returns_the_sentence(tokenizer):
    for _, english in PAIRS[:4]:
        assert tokenizer.decode(tokenizer.encode_target(english)) == english


def test_each_id_has_a_readable_token(tokenizer):
    """Heat maps use each ID's token as an axis label."""
    ids = tokenizer.encode_source("Ein kleines Mädchen")
    tokens = tokenizer.source_tokens(ids)
    assert len(tokens) == len(ids)
    assert tokens[-1] == "<eos>"
    assert "Mädchen" in "".join(tokens)
    assert tokenizer.target_tokens([0, 1, 2, 3]) == ["<pad>", "<bos>", "<eos>", "<unk>"]


@pytest.mark.parametrize("typed", ["<eos>", "<pad> <bos>", "a <unk> b", "<0x41>"])
def test_special_tokens_typed_in_a_sentence_are_only_text(tokenizer, typed: str):
    """Typing `eos` or `pad` must not end the sentence or turn part of it into padding."""
    assert not SPECIALS & set(tokenizer.encode_source(typed)[:-1])
    assert not SPECIALS & set(tokenizer.encode_target(typed)[1:-1])


def test_special_tokens_in_the_training_text_stay_text():
    """A corpus may contain many such strings, but no merge or word may get the ID of a special token."""
    pairs = [("<eos> <unk><eos>", "<bos> x <0x41> <0x41>")] * 50
    for kind in ("bpe", "spacy"):
        tokenizer = train_tokenizer(kind, pairs, vocab_size=600)
        assert not SPECIALS & set(tokenizer.encode_source(pairs[0][0])[:-1])
        assert not SPECIALS & set(tokenizer.encode_target(pairs[0][1])[1:-1])


def test_an_empty_sentence_is_eos_alone(tokenizer):
    assert tokenizer.encode_sources(["", "  \t "]) == [[2], [2]]
    assert tokenizer.decode([1, 2, 0, 0]) == ""


def assert_comes_back(tokenizer: Tokenizer, folder: Path) -> None:
    tokenizer.save(folder)
    loaded = load_tokenizer(folder)
    assert type(loaded) is type(tokenizer)
    for name in ("kind", "source", "target", "joint", "source_size", "target_size"):
        assert getattr(loaded, name) == getattr(tokenizer, name)
    for source, target in [*PAIRS, *CHINESE_PAIRS, ("Ganz Unbekanntes 😀", "(quite) unknown")]:
        assert loaded.encode_source(source) == tokenizer.encode_source(source)
        assert loaded.encode_target(target) == tokenizer.encode_target(target)
        assert loaded.decode(loaded.encode_target(target)) == tokenizer.decode(tokenizer.encode_target(target))


def test_a_loaded_tokenizer_does_the_same(tokenizer, tmp_path: Path):
    assert_comes_back(tokenizer, tmp_path)


def test_a_damaged_file_is_named(tokenizer, tmp_path: Path):
    file = tmp_path / "tokenizer.json"
    with pytest.raises(InputError, match=r"tokenizer\.json cannot be read"):
        load_tokenizer(tmp_path)
    tokenizer.save(tmp_path)
    whole = file.read_text(encoding="utf-8")
    contents = [whole[: len(whole) // 2], "", "[]", "{}", '{"kind": "bpe"}', '{"kind": "gpt"}']
    state = json.loads(whole)
    contents.append(json.dumps(dict(list(state.items())[:-1])))
    if tokenizer.kind == "bpe":
        damages = {"merges": [["no", "such"]]}, {"tokens": state["tokens"][1:]}, {"tokens": [1, 2]}
        contents += [json.dumps(state | damage) for damage in damages]
    for content in contents:
        file.write_text(content, encoding="utf-8")
        with pytest.raises(InputError, match=r"tokenizer\.json is damaged or from another program") as raised:
            load_tokenizer(tmp_path)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(OSError(28, "No space left on device"), InputError), (KeyboardInterrupt(), KeyboardInterrupt)],
)
def test_a_failed_save_leaves_the_old_file(raised, expected, small_bpe, tmp_path: Path, monkeypatch):
    small_bpe.save(tmp_path)
    before = (tmp_path / "tokenizer.json").read_bytes()

    def fail(file):
        raise raised

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(expected):
        small_bpe.save(tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]


def test_a_lone_surrogate_is_refused(tokenizer):
    with pytest.raises(InputError, match="character 3 of the sentence is not valid Unicode"):
        tokenizer.encode_source("ab\ud800c")


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("words", {}, "no tokenizer 'words': choose bpe or spacy"),
        ("bpe", {"vocab_size": 300}, "vocab_size is 300"),
        ("bpe", {"chinese": "words"}, "chinese is 'words', but must be one of: byte_pairs, characters"),
        ("spacy", {"target": "qq"}, "spaCy has no rules for the language 'qq'"),
    ],
)
def test_options_that_cannot_work_are_refused(kind, options, message):
    with pytest.raises(InputError, match=message):
        train_tokenizer(kind, PAIRS, **options)


# --- byte pairs ---


def stripped(sentence: str) -> str:
    return "".join(unicodedata.normalize("NFC", sentence).split())


def test_sentences_of_multi30k_come_back(real_data: Path, bpe: BpeTokenizer):
    """Test every fifth sentence of all 15 files, including French files, which were not used to train the tokenizer."""
    assert bpe.source_size == bpe.target_size == len(set(bpe.source_side.tokens)) == 8000
    files = sorted((real_data / "multi30k").glob("*.gz"))
    assert len(files) == 15
    for file in files:
        sentences = _read_text(file).split("\n")[::5]
        decoded = [bpe.decode(ids) for ids in bpe.encode_targets(sentences)]
        assert list(map(stripped, decoded)) == list(map(stripped, sentences)), file.name


@pytest.mark.parametrize(
    "sentence",
    [
        "😀 👩‍👩‍👧",
        "مرحبا بالعالم",
        "▁ der Unterstrich a▁b der Wortgrenze ▁▁",
        "a\0b",
        "我爱你。",
        "x" * 5000,
        " ".join(["Wort"] * 10_000),
        "e\u0301 \u00a0 no-break",
        "a\u2028b\u0085c",
        "<eos><0x41>",
        "�",
    ],
    ids=lambda sentence: ascii(sentence[:12]),
)
def test_any_text_comes_back(small_bpe, sentence: str):
    ids = small_bpe.encode_target(sentence)
    assert small_bpe.unk_id not in ids
    assert small_bpe.decode(ids) == " ".join(unicodedata.normalize("NFC", sentence).split())


def test_tokens_show_word_starts_and_umlauts(bpe):
    tokens = bpe.source_tokens(bpe.encode_source("Ein Mädchen lacht über 😀."))
    assert tokens[:2] == ["▁Ein", "▁Mädchen"]
    assert "<0xF0>" in tokens, "characters outside the alphabet are shown as their bytes"
    assert tokens[-2:] == [".", "<eos>"]


def test_training_is_deterministic(multi30k):
    """If the vocabulary were in a different order, the weights of an earlier run would belong to the wrong tokens."""
    one, other = (BpeTokenizer.train(multi30k.train[:3000], vocab_size=4000).source_side for _ in range(2))
    assert (one.tokens, one.merges) == (other.tokens, other.merges)


def test_rare_characters_are_left_out_in_the_same_way_every_time():
    """A corpus, such as a Chinese one, may have more characters than fit. The choice must not depend on a hash."""
    text = "".join(chr(0x4E00 + number) for number in range(2000))
    tokenizers = [BpeTokenizer.train([(text, text + text[:100])], vocab_size=600) for _ in range(3)]
    assert len({tuple(tokenizer.source_side.tokens) for tokenizer in tokenizers}) == 1
    assert tokenizers[0].source_size <= 600
    assert tokenizers[0].decode(tokenizers[0].encode_target(text)) == text


def test_dropout_splits_words_differently_but_loses_nothing(multi30k, bpe):
    sentences = [german for german, _ in multi30k.train[:500]]
    usual, split = bpe.encode_sources(sentences), bpe.encode_sources(sentences, dropout=0.2, seed=1)
    assert sum(map(len, split)) > 1.2 * sum(map(len, usual))
    assert [bpe.decode(ids) for ids in split] == sentences
    assert bpe.encode_sources(sentences, dropout=0.2, seed=1) == split, "a run must be repeatable"
    assert bpe.encode_sources(sentences, dropout=0.2, seed=2) != split


def test_a_tiny_dropout_gives_the_tokens_of_the_library(multi30k, bpe):
    """The package has its own code for seeded encoding.

    When no merge is skipped, this code must agree with the library.
    """
    sentences = [german for german, _ in multi30k.train[:500]] + ["😀 <eos> ▁"]
    assert bpe.encode_sources(sentences, dropout=1e-12) == bpe.encode_sources(sentences)


# The merges are in the order they were learned.
TOY_MERGES = [("a", "b"), ("b", "c"), ("ab", "c"), ("abc", "ab")]


@pytest.fixture(scope="module")
def toy_bpe(small_bpe) -> BpeTokenizer:
    specials_and_bytes = small_bpe.source_side.tokens[:260]
    side = BytePairs([*specials_and_bytes, *" abc", "ab", "bc", "abc", "abcab"], TOY_MERGES)
    return BpeTokenizer("de", "en", side, side)


def splits_by_enumeration(symbols: tuple[str, ...], dropout: float) -> Counter:
    """Return the probability of each result by trying every way to skip merges at each step."""
    places = [index for index in range(len(symbols) - 1) if symbols[index : index + 2] in TOY_MERGES]
    if not places:
        return Counter({symbols: 1.0})
    splits: Counter = Counter()
    for skipped in product([True, False], repeat=len(places)):
        probability = prod(dropout if out else 1 - dropout for out in skipped)
        left = [place for place, out in zip(places, skipped, strict=True) if not out]
        if not left:
            splits[symbols] += probability
            continue
        place = min(left, key=lambda place: (TOY_MERGES.index(symbols[place : place + 2]), place))
        merged = (*symbols[:place], symbols[place] + symbols[place + 1], *symbols[place + 2 :])
        for split, after in splits_by_enumeration(merged, dropout).items():
            splits[split] += probability * after
    return splits


@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_dropout_gives_each_split_as_often_as_the_algorithm(toy_bpe, dropout):
    """Skipping a merge for the whole word, or sampling only for the best merge, would produce different frequencies."""
    expected = splits_by_enumeration(tuple("abcab"), dropout)
    count = 20_000
    drawn = Counter(
        tuple(toy_bpe.source_side.tokens[index] for index in ids[1:-1])  # without the leading space and eos
        for ids in toy_bpe.encode_sources(["abcab"] * count, dropout, seed=4)
    )
    assert sum(expected.values()) == pytest.approx(1.0)
    assert drawn.keys() <= expected.keys()
    for split, probability in expected.items():
        five_deviations = 5 * (count * probability * (1 - probability)) ** 0.5
        assert abs(drawn[split] - count * probability) <= five_deviations, split


def test_dropout_of_one_leaves_characters_and_of_zero_every_merge(toy_bpe, small_bpe):
    def tokens(tokenizer, sentences, dropout):
        return [tokenizer.target_tokens(ids[1:-1]) for ids in tokenizer.encode_targets(sentences, dropout)]

    assert tokens(toy_bpe, ["abcab"], 1.0) == [["▁", *"abcab"]]
    assert tokens(toy_bpe, ["abcab"], 0.0) == [["▁", "abcab"]]
    sentences = [english for _, english in PAIRS[:4]]
    assert tokens(small_bpe, sentences, 1.0) == [["▁", *sentence.replace(" ", "▁")] for sentence in sentences]
    assert small_bpe.encode_targets(sentences, 0.0, seed=3) == small_bpe.encode_targets(sentences)


# --- words by spaCy ---


def test_spacy_vocabulary_counts_words_of_the_training_pairs_only(small_spacy):
    assert small_spacy.source_side.counts()["Mädchen"] == 4
    assert small_spacy.source_tokens(small_spacy.encode_source("Ein Pinguin spielt.")) == [
        "Ein", "<unk>", "spielt", ".", "<eos>",
    ]  # fmt: skip
    assert "Mädchen" not in small_spacy.target_side.tokens


def test_spacy_leaves_rare_words_out():
    tokenizer = train_tokenizer("spacy", [("ein Hund", "a dog"), ("ein Ball", "a ball")], min_frequency=2)
    assert tokenizer.source_side.tokens[4:] == ["ein"]


def test_spacy_restores_real_sentences(multi30k):
    """The rules for spaces around punctuation are learned. A wrong rule would lower BLEU in every sentence."""
    tokenizer = SpacyTokenizer.train(multi30k.train[:5000])
    english = [english for _, english in multi30k.validation]
    encoded = tokenizer.encode_targets(english)
    known = [(ids, sentence) for ids, sentence in zip(encoded, english, strict=True) if tokenizer.unk_id not in ids]
    right = sum(tokenizer.decode(ids) == sentence for ids, sentence in known)
    assert right >= 0.98 * len(known)  # measured: 99.8%; the rest are typos in the corpus, such as "walkway,, some"


def test_spacy_joins_chinese_without_spaces():
    tokenizer = train_tokenizer("spacy", [("I love you.", "我爱你。"), ("I see you.", "我看你。")] * 3, "en", "zh")
    assert tokenizer.decode(tokenizer.encode_target("我爱你。")) == "我爱你。"


# --- Chinese ---

CHINESE_PAIRS = [
    ("I like Python 3 very much.", "我很喜欢Python 3。"),
    ("We like apples.", "我们喜欢苹果。"),
    ("They like apples, too.", "他们也喜欢苹果。"),
    ("Tom said: “Hello!”", "汤姆说：“你好！”"),
] * 5


@pytest.fixture(params=[("byte_pairs", True), ("byte_pairs", False), ("characters", True), ("characters", False)])
def chinese_bpe(request) -> BpeTokenizer:
    chinese, shared = request.param
    return train_tokenizer("bpe", CHINESE_PAIRS, "en", "zh", vocab_size=600, chinese=chinese, shared_vocabulary=shared)


@pytest.mark.parametrize("text", ["我们也喜欢Python。", "Python 3", "龘！", "我 Tom 3说", "", "我", "𠀀𠀁"])
def test_chinese_comes_back_without_extra_spaces(chinese_bpe, text):
    assert chinese_bpe.decode(chinese_bpe.encode_target(text)) == text
    assert chinese_bpe.decode(chinese_bpe.encode_targets([text], dropout=0.5, seed=1)[0]) == text


def test_chinese_is_split_as_requested(chinese_bpe):
    side = chinese_bpe.target_side
    tokens = chinese_bpe.target_tokens(chinese_bpe.encode_target("我们喜欢苹果。"))[1:-1]
    if side.chinese == "characters":
        assert tokens == list("我们喜欢苹果。")
        assert not [token for token in side.tokens if len(re.findall("[\u4e00-\u9fff]", token)) > 1]
    else:
        assert len(tokens) < 7
        assert any(len(token) > 1 for token in tokens)
    chinese_tokens = [token for token in side.tokens if re.search("[\u4e00-\u9fff]", token)]
    assert all(re.fullmatch("[\u4e00-\u9fff]+", token) for token in chinese_tokens)  # no spaces or Latin letters


def test_the_chinese_zero_is_a_character_and_not_a_digit():
    """Years are written like 二〇〇八, but Unicode classifies 〇 as a number."""
    pairs = [("a", "二〇〇八年，二〇1年")] * 9
    tokenizer = train_tokenizer("bpe", pairs, "en", "zh", vocab_size=520, chinese="characters")
    assert tokenizer.target_tokens(tokenizer.encode_target("二〇〇八年，二〇1年"))[1:-1] == list("二〇〇八年，二〇1年")


def test_a_loaded_chinese_tokenizer_does_the_same(chinese_bpe, tmp_path):
    assert_comes_back(chinese_bpe, tmp_path)


def test_separate_vocabularies_have_not_seen_the_other_language():
    tokenizer = train_tokenizer("bpe", CHINESE_PAIRS, "en", "zh", vocab_size=600, shared_vocabulary=False)
    assert not any(re.search("[\u4e00-\u9fff]", token) for token in tokenizer.source_side.tokens)
    assert not any("apple" in token for token in tokenizer.target_side.tokens)
    assert tokenizer.source_size == len(tokenizer.source_side.tokens) != tokenizer.target_size


def test_a_space_between_chinese_characters_means_nothing():
    """Programs that segment words leave spaces between Chinese characters. Scores must not depend on these spaces."""
    assert normalize("我们 喜欢 苹果 。") == "我们喜欢苹果。"
    assert normalize("他\u3000说： “好” ， Tom 。") == "他说：“好”，Tom。"
    assert normalize("我 用 Python 3 。") == "我用 Python 3。"
    for unchanged in ("Ein Satz, mit Komma .", "« Bonjour ! »", "“a” b", "ひらがな と カタカナ"):
        assert normalize(unchanged) == unchanged


def test_other_languages_are_saved_as_before(small_bpe, tmp_path):
    """The tokenizer files of models trained on other languages must not change."""
    small_bpe.save(tmp_path)
    assert list(json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))) == [
        *("kind", "source", "target", "tokens", "merges")
    ]


def test_a_missing_library_is_not_reported_as_damage(tmp_path, monkeypatch):
    """A server without spaCy cannot load a spaCy tokenizer. Training the tokenizer again would not help."""
    train_tokenizer("spacy", PAIRS).save(tmp_path)
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(InputError, match=r"tokenizer\.json needs a library that cannot be imported here .*spacy"):
        load_tokenizer(tmp_path)
