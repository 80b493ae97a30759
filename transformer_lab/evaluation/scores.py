"""Scores to report, computed with sacreBLEU and labeled with its signatures."""

from collections.abc import Sequence
from dataclasses import dataclass

from transformer_lab.data.chinese import is_chinese
from transformer_lab.errors import InputError


@dataclass(frozen=True)
class Scores:
    """Scores of one set of translations, from 0 to 100, with the signatures that make them comparable.

    `str(scores)` has three lines, each with a score and its signature.
    """

    bleu: float  # cased, tokenized as in the WMT campaigns: "13a", or for Chinese "zh"
    bleu_lowercased: float
    chrf: float  # character n-grams: Popović 2015
    brevity_penalty: float  # for cased BLEU; below 1.0 if the translations are shorter than the references
    signatures: dict[str, str]  # sacreBLEU's signature by score: "bleu", "bleu_lowercased", "chrf"

    def __str__(self) -> str:
        rows = [("BLEU, cased", "bleu"), ("BLEU, lowercased", "bleu_lowercased"), ("chrF", "chrf")]
        return "\n".join(f"{title:<17}{getattr(self, name):6.2f}  {self.signatures[name]}" for title, name in rows)


def bleu_tokenizer(language: str) -> str:
    """Return the name of sacreBLEU's tokenizer for a language: `zh` for Chinese and `13a` for all others.

    `13a` splits at spaces and ASCII punctuation, so it would treat a whole Chinese sentence as one word. `zh` treats
    every Chinese character as a word.
    """
    return "zh" if is_chinese(language) else "13a"


def score_translations(hypotheses: Sequence[str], references: Sequence[str], target: str = "en") -> Scores:
    """Score whole sentences with sacreBLEU (Post 2018). Pass them as plain text, not as tokens.

    Args:
        hypotheses: The translations.
        references: One for each translation, in the same order.
        target: Language code of the translations and references. It determines how BLEU tokenizes them.

    Raises:
        InputError: There is nothing to score, `hypotheses` and `references` differ in length, or one of them is a
            single string.
    """
    from sacrebleu.metrics import BLEU, CHRF

    _refuse_unmatched(hypotheses, references)
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


def cased_bleu(hypotheses: Sequence[str], references: Sequence[str], target: str = "en") -> float:
    """Return only `score_translations(...).bleu`, but in a third of the time.

    Raises:
        InputError: For the same reasons as in `score_translations`.
    """
    from sacrebleu.metrics import BLEU

    _refuse_unmatched(hypotheses, references)
    return BLEU(tokenize=bleu_tokenizer(target)).corpus_score(list(hypotheses), [list(references)]).score


def _refuse_unmatched(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise InputError("expected a list of sentences; got a single string: put it into a list")
    if len(hypotheses) != len(references):
        raise InputError(
            f"{len(hypotheses)} translations, but {len(references)} references: each translation needs a reference"
        )
    if not hypotheses:
        raise InputError("no translations to score: give at least one, with its reference")


def bleu_difference(
    hypotheses: Sequence[str],
    others: Sequence[str],
    references: Sequence[str],
    target: str = "en",
    samples: int = 1000,
) -> tuple[float, float, float]:
    """Return how much higher BLEU is for `hypotheses` than for `others`, with a 95% confidence interval.

    The interval comes from paired bootstrap resampling (Koehn 2004): sentences are sampled with replacement, and the
    same sentences are used for both sides. If the interval includes 0, another test set of this size could have
    reversed the comparison.

    Args:
        hypotheses: Translations of some sentences.
        others: Different translations of the same sentences.
        references: One reference for each sentence.
        target: Language code of all three lists.
        samples: Number of resampled test sets.

    Returns:
        `(difference, low, high)`, in BLEU points from -100 to 100.

    Raises:
        ValueError: The lists have different lengths.
    """
    import numpy as np
    from sacrebleu.metrics import BLEU

    metric = BLEU(tokenize=bleu_tokenizer(target), effective_order=True)  # required by sacreBLEU for single sentences

    def counts_of(translations: Sequence[str]) -> np.ndarray:  # (sentences, 10)
        scores = [metric.sentence_score(*pair) for pair in zip(translations, [[r] for r in references], strict=True)]
        return np.array([[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in scores])

    def bleu_of(sums: np.ndarray) -> float:
        correct, total, (length, reference_length) = sums[:4].tolist(), sums[4:8].tolist(), sums[8:].tolist()
        return BLEU.compute_bleu(correct, total, length, reference_length, metric.smooth_method).score

    sides = counts_of(hypotheses), counts_of(others)
    resampled = np.random.default_rng(0).integers(len(references), size=(samples, len(references)))
    differences = [bleu_of(sides[0][rows].sum(0)) - bleu_of(sides[1][rows].sum(0)) for rows in resampled]
    low, high = np.quantile(differences, (0.025, 0.975)).tolist()
    return bleu_of(sides[0].sum(0)) - bleu_of(sides[1].sum(0)), low, high
