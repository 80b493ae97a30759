"""The reported scores are sacreBLEU's and say how they were computed."""

import numpy as np
import pytest
from sacrebleu import corpus_bleu, corpus_chrf
from sacrebleu.metrics import BLEU

from transformer_lab.errors import InputError
from transformer_lab.evaluation import bleu_difference, cased_bleu, score_translations

HYPOTHESES = ["A man, who rides a Horse.", "Two dogs are running in the snow.", "The boy doesn't play football !"]
REFERENCES = ["A man who rides a horse.", "Two dogs run through the snow.", "The boy isn't playing football!"]


def test_each_score_is_the_one_its_signature_names():
    """Cased and lowercased BLEU are easily mixed up. In this test, they differ because one hypothesis has "Horse"."""
    scores = score_translations(HYPOTHESES, REFERENCES)
    cased = corpus_bleu(HYPOTHESES, [REFERENCES])
    assert scores.bleu == cased.score
    assert scores.bleu_lowercased == corpus_bleu(HYPOTHESES, [REFERENCES], lowercase=True).score > scores.bleu
    assert scores.chrf == corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert scores.brevity_penalty == cased.bp
    for name, case in (("bleu", "case:mixed"), ("bleu_lowercased", "case:lc")):
        assert {case, "tok:13a", "nrefs:1", "smooth:exp"} <= set(scores.signatures[name].split("|"))
    assert "nc:6" in scores.signatures["chrf"].split("|")


@pytest.mark.parametrize("code", ["zh", "zh-TW", "zh_cn", "cmn", "ZH"])
def test_chinese_is_scored_character_by_character(code):
    """With the 13a tokenizer, a Chinese sentence is a single word, so a good translation would score almost nothing."""
    hypotheses, references = ["我们今天买苹果。", "他喜欢Python。"], ["我们今天吃苹果。", "他喜欢Python。"]
    scores = score_translations(hypotheses, references, code)
    assert cased_bleu(hypotheses, references, code) == scores.bleu
    assert scores.bleu == corpus_bleu(hypotheses, [references], tokenize="zh").score > 60
    assert scores.bleu > 2 * score_translations(hypotheses, references, "en").bleu
    for name in ("bleu", "bleu_lowercased"):
        assert "tok:zh" in scores.signatures[name].split("|")


@pytest.mark.parametrize("code", ["de", "fr", "en"])
def test_european_languages_are_scored_by_13a(code):
    assert score_translations(HYPOTHESES, REFERENCES, code) == score_translations(HYPOTHESES, REFERENCES)


def test_printed_scores_carry_their_signatures():
    """A score without its signature cannot be compared with another."""
    scores = score_translations(HYPOTHESES, REFERENCES)
    lines = str(scores).splitlines()
    assert len(lines) == 3
    for line, name in zip(lines, ("bleu", "bleu_lowercased", "chrf"), strict=True):
        assert f"{getattr(scores, name):.2f}" in line
        assert scores.signatures[name] in line


def test_short_brevity_penalty_is_reported():
    """Translations that are too short are the first thing to check for when BLEU is low."""
    assert score_translations([line[:12] for line in REFERENCES], REFERENCES).brevity_penalty < 0.9


@pytest.mark.parametrize("score", [score_translations, cased_bleu])
@pytest.mark.parametrize(
    ("hypotheses", "references", "named"),
    [
        (["a", "b"], ["a"], ("2 translations", "1 references")),
        ([], [], ("no translations",)),
        ("a sentence", ["a sentence"], ("list",)),
        (["a sentence"], "a sentence", ("list",)),
    ],
)
def test_what_cannot_be_scored_is_one_clear_line(hypotheses, references, named, score):
    """sacreBLEU itself would score only part of the longer side, or would score each character of a string."""
    with pytest.raises(InputError) as caught:
        score(hypotheses, references)
    message = str(caught.value)
    assert "\n" not in message
    assert all(name in message for name in named)


def test_a_difference_comes_with_an_interval():
    """The difference is between corpus scores. One worse sentence is not evidence, but thirty copies of it are."""
    worse = [*HYPOTHESES[:2], "Nobody is here."]
    expected = score_translations(HYPOTHESES, REFERENCES).bleu - score_translations(worse, REFERENCES).bleu
    difference, low, high = bleu_difference(HYPOTHESES, worse, REFERENCES)
    assert difference == pytest.approx(expected)
    assert low == 0.0 < high  # some samples omit that sentence, so both sides are equal
    many = bleu_difference(30 * HYPOTHESES, 30 * worse, 30 * REFERENCES)
    assert 0 < many[1] < many[0] < many[2]
    assert many[2] - many[1] < high - low
    assert bleu_difference(worse, worse, REFERENCES) == (0.0, 0.0, 0.0)


def test_the_interval_holds_95_percent_of_the_resampled_differences():
    """An interval of 90% would call differences real that another test set could reverse."""
    hypotheses, references = 5 * HYPOTHESES, 5 * REFERENCES
    others = [" ".join(text.split()[:-1]) if index % 3 else text for index, text in enumerate(hypotheses)]
    _, low, high = bleu_difference(hypotheses, others, references)
    rows = np.random.default_rng(0).integers(len(references), size=(1000, len(references)))
    metric = BLEU(effective_order=True)

    def scored(texts, chosen):
        return metric.corpus_score([texts[i] for i in chosen], [[references[i] for i in chosen]]).score

    differences = np.array([scored(hypotheses, chosen) - scored(others, chosen) for chosen in rows])
    within, inside = ((low - slack <= differences) & (differences <= high + slack) for slack in (1e-9, -1e-9))
    assert inside.sum() <= 950 <= within.sum()  # the two differ in the resamples at an end of the interval
