"""The scores that are reported: sacreBLEU's, each with the signature that says how it was computed."""

from collections.abc import Sequence
from dataclasses import dataclass

from transformer_lab.data.chinese import is_chinese
from transformer_lab.errors import InputError


@dataclass(frozen=True)
class Scores:
    """Scores of one set of translations, each from 0 to 100, and what a reader needs to compare them with others.

    `str(scores)` is three lines, one a score, each with its signature.
    """

    bleu: float  # cased, tokenized as in the WMT campaigns: "13a", or for Chinese "zh"
    bleu_lowercased: float
    chrf: float  # character n-grams: Popović 2015
    brevity_penalty: float  # of the cased BLEU: below 1.0 the translations are shorter than the references
    signatures: dict[str, str]  # "bleu", "bleu_lowercased", "chrf" to sacreBLEU's signature

    def __str__(self) -> str:
        rows = [("BLEU, cased", "bleu"), ("BLEU, lowercased", "bleu_lowercased"), ("chrF", "chrf")]
        return "\n".join(f"{title:<17}{getattr(self, name):6.2f}  {self.signatures[name]}" for title, name in rows)


def bleu_tokenizer(language: str) -> str:
    """The tokenizer of sacreBLEU for text in a language: `zh`, which takes Chinese characters apart, or `13a`.

    13a cuts at spaces and at punctuation of ASCII. To it a Chinese sentence is one word, right or wrong as a whole.
    """
    return "zh" if is_chinese(language) else "13a"


def score_translations(hypotheses: Sequence[str], references: Sequence[str], target: str = "en") -> Scores:
    """Score whole sentences, as they would be printed, with sacreBLEU (Post 2018).

    Args:
        hypotheses: the translations.
        references: one for each translation, in the same order.
        target: language code of both, which decides how BLEU cuts them.

    Raises:
        InputError: there is nothing to score, or not one reference for each translation.
    """
    from sacrebleu.metrics import BLEU, CHRF

    if isinstance(hypotheses, str) or isinstance(references, str):
        raise InputError("one string was given where a list of sentences is scored: put it into a list")
    if len(hypotheses) != len(references):
        raise InputError(
            f"{len(hypotheses)} translations, but {len(references)} references: each translation needs its reference"
        )
    if not hypotheses:
        raise InputError("no translations to score: give at least one, with its reference")
    tokenize = bleu_tokenizer(target)
    metrics = {
        "bleu": BLEU(tokenize=tokenize),
        "bleu_lowercased": BLEU(tokenize=tokenize, lowercase=True),
        "chrf": CHRF(),
    }
    results = {name: metric.corpus_score(list(hypotheses), [list(references)]) for name, metric in metrics.items()}
    return Scores(
        **{name: result.score for name, result in results.items()},
        brevity_penalty=results["bleu"].bp,
        signatures={name: str(metric.get_signature()) for name, metric in metrics.items()},
    )
