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


def bleu_difference(
    hypotheses: Sequence[str],
    others: Sequence[str],
    references: Sequence[str],
    target: str = "en",
    samples: int = 1000,
) -> tuple[float, float, float]:
    """Return how much higher BLEU is for `hypotheses` than for `others`, with a 95 % interval from paired bootstrap.

    The sentences are resampled with replacement, the same ones for both sides (Koehn 2004). An interval that includes 0
    means that another test set of this size could have turned the comparison around.

    Args:
        hypotheses: Translations of some sentences.
        others: Other translations of the same sentences.
        references: One for each sentence.
        target: Language code of all three.
        samples: Number of resampled test sets.

    Returns:
        `(difference, low, high)`.
    """
    import numpy as np
    from sacrebleu.metrics import BLEU

    metric = BLEU(tokenize=bleu_tokenizer(target), effective_order=True)  # says what a score of one sentence is

    def counts_of(translations: Sequence[str]) -> np.ndarray:  # (sentences, 10)
        scores = [metric.sentence_score(*pair) for pair in zip(translations, [[r] for r in references], strict=True)]
        return np.array([[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in scores])

    def bleu_of(sums: np.ndarray) -> float:
        correct, total, (length, reference_length) = sums[:4].tolist(), sums[4:8].tolist(), sums[8:].tolist()
        return BLEU.compute_bleu(correct, total, length, reference_length, metric.smooth_method).score

    sides = counts_of(hypotheses), counts_of(others)
    drawn = np.random.default_rng(0).integers(len(references), size=(samples, len(references)))
    differences = [bleu_of(sides[0][rows].sum(0)) - bleu_of(sides[1][rows].sum(0)) for rows in drawn]
    low, high = np.quantile(differences, (0.025, 0.975)).tolist()
    return bleu_of(sides[0].sum(0)) - bleu_of(sides[1].sum(0)), low, high
