"""The scores that are reported are sacreBLEU's, and say how they were computed."""

import pytest
from sacrebleu import corpus_bleu, corpus_chrf

from transformer_lab.errors import InputError
from transformer_lab.evaluation import score_translations

HYPOTHESES = ["A man, who rides a Horse.", "Two dogs are running in the snow.", "The boy doesn't play football !"]
REFERENCES = ["A man who rides a horse.", "Two dogs run through the snow.", "The boy isn't playing football!"]


def test_each_score_is_the_one_its_signature_names():
    """Cased and lowercased BLEU are easily mixed up; here they differ, because of the Horse."""
    scores = score_translations(HYPOTHESES, REFERENCES)
    cased = corpus_bleu(HYPOTHESES, [REFERENCES])
    assert scores.bleu == cased.score
    assert scores.bleu_lowercased == corpus_bleu(HYPOTHESES, [REFERENCES], lowercase=True).score > scores.bleu
    assert scores.chrf == corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert scores.brevity_penalty == cased.bp
    for name, case in (("bleu", "case:mixed"), ("bleu_lowercased", "case:lc")):
        assert {case, "tok:13a", "nrefs:1", "smooth:exp"} <= set(scores.signatures[name].split("|"))
    assert "nc:6" in scores.signatures["chrf"].split("|")


def test_printed_scores_carry_their_signatures():
    """A score that is copied without its signature cannot be compared with another."""
    scores = score_translations(HYPOTHESES, REFERENCES)
    lines = str(scores).splitlines()
    assert len(lines) == 3
    for line, name in zip(lines, ("bleu", "bleu_lowercased", "chrf"), strict=True):
        assert f"{getattr(scores, name):.2f}" in line
        assert scores.signatures[name] in line


def test_short_brevity_penalty_is_reported():
    """Short translations are the first thing to look for when BLEU is low."""
    assert score_translations([line[:12] for line in REFERENCES], REFERENCES).brevity_penalty < 0.9


@pytest.mark.parametrize(
    ("hypotheses", "references", "named"),
    [
        (["a", "b"], ["a"], ("2 translations", "1 references")),
        ([], [], ("no translations",)),
        ("a sentence", ["a sentence"], ("list",)),
        (["a sentence"], "a sentence", ("list",)),
    ],
)
def test_what_cannot_be_scored_is_one_clear_line(hypotheses, references, named):
    """sacreBLEU itself would score the first sentences of the longer side, or each letter of a string."""
    with pytest.raises(InputError) as caught:
        score_translations(hypotheses, references)
    message = str(caught.value)
    assert "\n" not in message
    assert all(name in message for name in named)
