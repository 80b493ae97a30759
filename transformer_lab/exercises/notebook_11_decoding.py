"""Notebook 11, decoding: greedy decoding, beam search with its length penalty, and the cache."""

import math
from collections.abc import Callable
from itertools import pairwise

import torch

from transformer_lab.data import pad_batch
from transformer_lab.decoding import CachedAttention, beam_search, greedy_decode, length_penalty
from transformer_lab.decoding.table_model import TableModel
from transformer_lab.exercises.exercise import Exercise, Probe, Property
from transformer_lab.exercises.harnesses import build, class_of_its_own, model_with_known_translations, modes_afterwards
from transformer_lab.exercises.rules import mode_is_restored, requirement, same_results
from transformer_lab.exercises.sampling import InputSampler
from transformer_lab.model import MultiHeadAttention

# --- models with known sentences ---------------------------------------------------------------------------------

Rows = dict[str, str]  # prefix to next tokens, as letters and probabilities: {"ab": "c.7 $.3"}; _ pad, ^ bos, $ eos
LETTERS = "abcde"


def special_ids(sampler: InputSampler, other_ids: bool) -> tuple[dict[str, int], list[int]]:
    """Return the ids of pad, bos, and eos. If they are unusual, also return the usual ids, which are used as words."""
    ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2}
    if not other_ids:
        return ids, []
    return dict(zip(ids, [3 + i for i in sampler.order(5)], strict=False)), sampler.order(3)


def spoken_inputs(
    sampler: InputSampler,
    sentences: list[Rows],
    default: str = "$1",
    vocab: int = 12,
    other_ids: bool = False,
    training: bool = False,
    **search,
) -> dict:
    """Return a `TableModel` as data, with one table per source sentence. The words' ids differ from seed to seed."""
    ids, first_words = special_ids(sampler, other_ids)
    taken = {*ids.values(), *first_words}
    free = [token for token in range(vocab) if token not in taken]
    words = dict(zip(LETTERS, [*first_words, *sampler.shuffled(free)], strict=False))
    words |= {"_": ids["pad_id"], "^": ids["bos_id"], "$": ids["eos_id"]}

    def chances(text: str) -> dict[int, float]:
        return {words[choice[0]]: float(choice[1:]) for choice in text.split()}

    source_words = [token for token in range(9, -1, -1) if token not in ids.values()]
    table = {
        first: {" ".join(str(words[letter]) for letter in prefix): chances(text) for prefix, text in rows.items()}
        for first, rows in zip(source_words, sentences, strict=False)
    }
    model = {"table": table, "default": chances(default), "target_vocab": vocab}
    model |= {"training": True} if training else {}
    model |= ids if other_ids else {}
    fillers = [
        source_words[-1:] * count for count in reversed(range(len(sentences)))
    ]  # the first source is the longest
    sources = [[first, *filler, ids["eos_id"]] for first, filler in zip(source_words, fillers, strict=False)]
    return {"model": model, "source": pad_batch(sources, ids["pad_id"])} | search


def sentence(sampler: InputSampler, letters: str) -> Rows:
    """Return the rows of a model that generates `letters` and then eos. Nothing else is as likely."""
    rows = {}
    for end, letter in enumerate(letters + "$"):
        other = sampler.shuffled(LETTERS.replace(letter, ""))[0]
        rows[letters[:end]] = f"{letter}.9 {other}.1"
    return rows


def led_in(sampler: InputSampler, rows: Rows) -> Rows:
    """Return the same rows, preceded by a nearly certain word."""
    letter = any_letters(sampler, 1, 1)
    return {"": f"{letter}.999 $.001"} | {letter + prefix: chances for prefix, chances in rows.items()}


def any_letters(sampler: InputSampler, low: int, high: int) -> str:
    """Return `low` to `high` random letters, possibly with repetitions."""
    return "".join(LETTERS[sampler.integer(0, len(LETTERS) - 1)] for _ in range(sampler.integer(low, high)))


def with_specials(sampler: InputSampler) -> Rows:
    """Return a sentence of three words in which pad and bos are predicted before the last word."""
    letters = any_letters(sampler, 3, 3)
    other = next(letter for letter in LETTERS if letter not in letters)
    for special in "_^" if sampler.integer(0, 1) else "^_":
        place = sampler.integer(0, len(letters) - 1)
        letters = letters[:place] + special + letters[place:]
    return {letters[:end]: f"{letter}.95 {other}.05" for end, letter in enumerate(letters + "$")}


def decoded(subject, model, source, **search):
    return subject(model_with_known_translations(model), source, *search.values())


def modes_after_decoding(subject, model, source, **search):
    known = model_with_known_translations(model)
    return modes_afterwards(known, lambda translator: subject(translator, source, *search.values()))


def work_done(subject, model, source, **search):
    class WithHeads(TableModel):
        """A model with seven heads that, like a real model, requires a mask that fits its heads."""

        masks_fit = True

        def decode(self, target, memory, source_mask):
            if source_mask is not None:
                wanted = (len(target), 7, target.size(1), memory.size(1))
                pairs = zip(reversed(source_mask.shape), reversed(wanted), strict=False)
                self.masks_fit &= source_mask.ndim <= 4 and all(size in (1, full) for size, full in pairs)
            return super().decode(target, memory, source_mask)

    table_model = WithHeads(**model)
    subject(table_model, source, *search.values())
    names = "with_gradients", "sentences_encoded", "times_decoded", "saw_padding", "masks_fit"
    return {name: getattr(table_model, name) for name in names}


NEVER_DECODES = "it never calls `model.decode`"


def no_gradients(never: str):
    """Return a rule that requires gradients to be off. If the code never takes a step, the rule reports `never`."""

    def rule(inputs, received):
        if not received["times_decoded"]:
            return never
        if received["with_gradients"]:
            return "the model runs with gradients switched on, which uses memory for every token but isn't needed"
        return None

    return rule


def encoded_once(inputs, received):
    if not received["sentences_encoded"]:
        return "it never calls `model.encode`"
    if received["sentences_encoded"] > len(inputs["source"]) * inputs.get("beam_size", 1):
        return "a sentence is encoded more than once, although its memory doesn't change while the translation grows"
    return None


def padding_stays_hidden(inputs, received):
    if not received["times_decoded"]:
        return NEVER_DECODES
    if received["saw_padding"]:
        return "`decode` gets a mask that doesn't hide the padding of the source: pass on the one from `encode`"
    if not received["masks_fit"]:
        return "`decode` gets a mask that doesn't broadcast to `(batch, heads, target, source)`, so a real model fails"
    return None


def steps_taken(subject, model, source, max_length):
    steps = {}
    for name, some in (("one sentence", source[:1]), ("a batch", source)):
        translator = model_with_known_translations(model)
        subject(translator, some, max_length)
        steps[name] = translator.times_decoded
    return steps


def stops_in_time(never: str):
    """Return a rule that requires decoding to stop early. If the code never takes a step, the rule reports `never`.

    The rule is lenient, because decoding sentences one by one takes more steps than decoding a batch.
    """

    def rule(inputs, received):
        if not all(received.values()):
            return never
        for name, steps in received.items():
            if steps >= inputs["max_length"]:
                return f"with {name}, it continues up to `max_length`, although every sentence ended long before that"
        return None

    return rule


# --- greedy_decode ----------------------------------------------------------------------------------------------------


def three_sentences_inputs(sampler: InputSampler, max_length: int = 7) -> dict:
    """Return a medium-length sentence, followed by a short sentence and a long one in random order."""
    middle, others = any_letters(sampler, 2, 3), [any_letters(sampler, 1, 1), any_letters(sampler, 5, 5)]
    first = sampler.integer(0, 1)
    sentences = [sentence(sampler, letters) for letters in (middle, others[first], others[1 - first])]
    return spoken_inputs(sampler, sentences, max_length=max_length)


def one_sentence_inputs(sampler: InputSampler, max_length: int = 7, **others) -> dict:
    return spoken_inputs(sampler, [sentence(sampler, any_letters(sampler, 2, 4))], max_length=max_length, **others)


def empty_and_longer_inputs(sampler: InputSampler) -> dict:
    return spoken_inputs(sampler, [sentence(sampler, ""), sentence(sampler, any_letters(sampler, 3, 4))], max_length=6)


def other_ids_inputs(sampler: InputSampler) -> dict:
    """Return inputs in which the first translation contains words with the usual ids of pad, bos, and eos."""
    letters = "".join(LETTERS[i] for i in sampler.order(3))
    sentences = [sentence(sampler, letters + any_letters(sampler, 1, 2)), sentence(sampler, any_letters(sampler, 1, 2))]
    return spoken_inputs(sampler, sentences, other_ids=True, max_length=7)


GREEDY_DECODE = Exercise(
    answer=greedy_decode,
    points=2,
    minutes=20,
    returns=("translations",),
    axes={"source": "batch source"},
    call=decoded,
    probes=[
        Probe("one sentence", one_sentence_inputs),
        Probe("three sentences that end at different times", three_sentences_inputs),
        Probe(
            "a sentence that never ends",
            lambda sampler: spoken_inputs(
                sampler, [{"": "b.9 a.1"}], default="a.6 c.4", max_length=sampler.integer(3, 6)
            ),
        ),
        Probe(
            "a pad and a bos that the model predicts",
            lambda sampler: spoken_inputs(sampler, [with_specials(sampler)], max_length=8),
        ),
        Probe("an empty translation next to a longer one", empty_and_longer_inputs),
        Probe("a model in training mode", lambda sampler: one_sentence_inputs(sampler, 6, training=True)),
        Probe("other ids for pad, bos, and eos", other_ids_inputs),
    ],
    properties=[
        Property("the model stays in the mode it was in", one_sentence_inputs, mode_is_restored, modes_after_decoding),
        Property("gradients are switched off", one_sentence_inputs, no_gradients(NEVER_DECODES), work_done),
        Property("each sentence is encoded once", three_sentences_inputs, encoded_once, work_done),
        Property("the padding of the source stays hidden", three_sentences_inputs, padding_stays_hidden, work_done),
        Property(
            "decoding stops once every sentence has its eos",
            lambda sampler: three_sentences_inputs(sampler, max_length=sampler.integer(15, 20)),
            stops_in_time(NEVER_DECODES),
            steps_taken,
            penalty=0.5,
        ),
    ],
)

# --- length_penalty ---------------------------------------------------------------------------------------------------


def penalty_without_effect(subject, length, alpha):
    return {"alpha 0": subject(length, 0.0), "length 1": subject(1, alpha)}


def one_without_effect(inputs, received):
    if abs(received["alpha 0"] - 1) > 1e-9:
        return "with alpha 0, the penalty isn't 1, although the length shouldn't matter then"
    return "for a single token, the penalty isn't 1" if abs(received["length 1"] - 1) > 1e-9 else None


def growing_penalties(subject, length, alpha):
    return [subject(length + more, alpha) for more in range(4)]


def a_length(sampler: InputSampler, longest: int) -> int:
    """Return a length for which (5 + length) / 6 is not a whole number."""
    return 6 * sampler.integer(1, longest // 6 - 1) + sampler.integer(2, 6)


LENGTH_PENALTY = Exercise(
    answer=length_penalty,
    points=1,
    minutes=5,
    returns=("penalty",),
    probes=[
        Probe("alpha 1", lambda sampler: {"length": a_length(sampler, 150), "alpha": 1.0}),
        Probe("alpha 0.6, as in the paper", lambda sampler: {"length": a_length(sampler, 150), "alpha": 0.6}),
        Probe(
            "alpha above 1", lambda sampler: {"length": a_length(sampler, 60), "alpha": sampler.integer(11, 30) / 10}
        ),
    ],
    properties=[
        Property(
            "alpha 0 and a single token give 1",
            lambda sampler: {"length": sampler.integer(8, 20), "alpha": sampler.integer(7, 15) / 10},
            one_without_effect,
            penalty_without_effect,
        ),
        requirement(
            "it grows with the length",
            lambda sampler: {"length": sampler.integer(2, 9), "alpha": sampler.integer(7, 15) / 10},
            lambda inputs, received: all(before < after for before, after in pairwise(received)),
            "one more token doesn't make the penalty larger, but it has to grow with the length",
            growing_penalties,
        ),
    ],
)

# --- beam_search ------------------------------------------------------------------------------------------------------

# a c end: .24, b e end: .36
GARDEN_PATH = {"": "a.6 b.4", "a": "c.4 d.33 e.27", "b": "e.9 $.1"}
# a c end: .252, b e end: .24, even though .3 + .8 is more than .7 + .36
NEARLY_EQUAL = {"": "a.7 b.3", "a": "c.36 d.34 e.3", "b": "e.8 d.2"}
# After two words, the best two hypotheses start with the same word, and the second becomes the best sentence.
SAME_FIRST_WORD = {"": "a.7 b.3", "a": "c.4 d.35 e.25", "ac": "a.25 b.24 c.2 d.17 e.14", "ad": "e.95 $.05",
                   "b": "c.5 d.4 $.1"}  # fmt: skip
# a end: .4, a c d e end: .308
SHORT_OR_LONG = {"": "a.8 b.2", "a": "$.5 c.45 d.05", "ac": "d.9 e.1", "acd": "e.95 $.05"}
# a end: .4275, a c d e end: .4716
LONG_IS_BETTER = {"": "a.95 b.05", "a": "c.55 $.45", "ac": "d.95 b.05", "acd": "e.95 b.05"}
# If log-probabilities are multiplied by the penalty, the short sentence wins the first case, except with lengths that
# are one too large. It wins the second case with lengths that are one too small.
LONG_IS_MUCH_BETTER = [LONG_IS_BETTER | {"a": "c.625 $.375"}, LONG_IS_BETTER | {"a": "c.638 $.362"}]
# c end: .2375, a end: .2, b end: .175
THIRD_WORD = {"": "a.4 b.35 c.25", "a": "$.5 d.3 e.2", "b": "$.5 d.3 e.2", "c": "$.95 e.05"}
# A finished hypothesis occupies one of two beams. This pushes out a d e and a c b e, which would have won in the end.
PLACE_TAKEN = {"": "a.9 b.1", "a": "$.4 c.35 d.25", "ac": "a.52 b.48", "acb": "e.98 $.02", "ad": "e.98 $.02"}
# b end: .31. But a c and a d are both more probable, so a correct search drops b. Yet they end in worse sentences.
PUSHED_OUT = {"": "a.69 b.31", "a": "c.53 d.47", "ac": "a.3 b.25 c.2 d.15 e.1", "ad": "e.28 d.24 c.2 b.16 a.12"}
# Ranking by log-probability over length penalty would drop the finished hypothesis, which should win.
LOST_BY_LENGTH = {"": "a.98 b.02", "a": "c.6 $.38 d.02", "ac": "d.52 e.48"}
# a c d end: .41, b c d end: .39. Dividing by the penalty again in each step makes late steps cost most, so b c d wins.
LATE_DOUBT = {"": "a.6 b.4", "a": "c.99 e.01", "ac": "d.99 e.01", "acd": "$.7 e.3", "b": "c.99 e.01", "bc": "d.99 e.01",
              "bcd": "$.99 e.01"}  # fmt: skip
# At max_length, a c d d … has a probability of at least .46 but isn't finished; a end has .18.
CUT_OFF = {"": "a.9 b.1", "a": "c.8 $.2", "b": "a.18 b.17 c.17 d.16 e.16 $.16"}
NO_END = {"": "a.7 b.3"}
LONG_WINDED = "d.8 e.15 $.05"
GOES_ON = "a.22 b.21 c.2 d.19 e.18"


# end: .37, a end: .349, b c d end: .184. The first is best with alpha 0, the second with 1, and the third with 3.
THREE_LENGTHS = {"": "$.37 a.36 b.27", "a": "$.97 c.03", "b": "c.68 d.2 e.12"}


def nearly_tied(sampler: InputSampler, miscounted: int) -> Rows:
    """Return a short sentence and a longer one. With alpha 1, the wrong one wins if lengths are off by `miscounted`."""
    lead, short = 2 * math.log(0.999), math.log(0.4)  # two nearly certain words at the start of both, and the rest

    def tie(extra: int) -> float:
        """Return the probability that the longer sentence needs for the scores to be equal."""
        shorter = 5 + 3 + extra
        return math.exp((lead + short) * (shorter + 3) / shorter - lead)

    chance = round(math.sqrt((tie(0) + tie(miscounted)) / 2 / 0.6), 4)
    rest = round(1 - chance, 4)
    rows = {"": "a.999 b.001", "a": "c.6 $.4", "ac": f"d{chance} e{rest}", "acd": f"e{chance} b{rest}"}
    return led_in(sampler, rows)


def beam_inputs(
    sampler: InputSampler, *sentences: Rows, beam_size: int = 2, alpha: float = 0.0, max_length: int = 7, **others
):
    search = {"beam_size": beam_size, "alpha": alpha, "max_length": max_length}
    return spoken_inputs(sampler, list(sentences), **others, **search)


def beam_probe(name: str, *sentences: Rows | Callable[[InputSampler], Rows], **search) -> Probe:
    """Return a probe with these sentences, which may include random ones."""

    def inputs(sampler: InputSampler) -> dict:
        return beam_inputs(sampler, *[one(sampler) if callable(one) else one for one in sentences], **search)

    return Probe(name, inputs)


def some_sentence(sampler: InputSampler) -> Rows:
    return sentence(sampler, any_letters(sampler, 3, 3))


def with_alphas(subject, model, source, beam_size, alphas, max_length):
    return {
        f"translations with alpha {alpha}": subject(TableModel(**model), source, beam_size, alpha, max_length)
        for alpha in alphas
    }


def three_lengths_inputs(sampler: InputSampler) -> dict:
    rows = THREE_LENGTHS | {"bc": "d.99 a.01", "bcd": "$.99 a.01"}
    return spoken_inputs(sampler, [rows], beam_size=3, alphas=[0.0, 1.0, 3.0], max_length=6)


def one_short_sentence(sampler: InputSampler) -> dict:
    return beam_inputs(sampler, sentence(sampler, any_letters(sampler, 1, 2)))


def short_and_long(sampler: InputSampler) -> dict:
    return beam_inputs(
        sampler, sentence(sampler, any_letters(sampler, 1, 1)), sentence(sampler, any_letters(sampler, 3, 4))
    )


BEAM_SEARCH = Exercise(
    answer=beam_search,
    points=4,
    minutes=45,
    returns=("translations",),
    axes={"source": "batch source"},
    builds_on=("length_penalty",),
    call=decoded,
    probes=[
        beam_probe("the likeliest first word doesn't start the likeliest sentence", GARDEN_PATH),
        beam_probe("probabilities multiply, they don't add up", NEARLY_EQUAL),
        beam_probe("a beam of one is greedy decoding", GARDEN_PATH, beam_size=1),
        beam_probe("a beam of three keeps three", THIRD_WORD, beam_size=3, max_length=2),
        beam_probe("the best two may begin with the same tokens", SAME_FIRST_WORD),
        beam_probe(
            "a finished hypothesis stays as it is",
            lambda sampler: led_in(sampler, SHORT_OR_LONG),
            max_length=8,
        ),
        beam_probe(
            "a finished hypothesis keeps its place in the beam",
            lambda sampler: led_in(sampler, PLACE_TAKEN),
            alpha=2.0,
        ),
        beam_probe(
            "a finished hypothesis can lose its place to better ones", lambda sampler: led_in(sampler, PUSHED_OUT)
        ),
        beam_probe("a longer sentence can be the more probable one", LONG_IS_BETTER, alpha=1.5),
        beam_probe("the length penalty puts a longer sentence first", SHORT_OR_LONG, alpha=1.5),
        Probe("the larger alpha is, the longer the translation", three_lengths_inputs, with_alphas),
        beam_probe("eos counts toward the length", lambda sampler: nearly_tied(sampler, -1), alpha=1.0, max_length=8),
        beam_probe(
            "bos doesn't count toward the length", lambda sampler: nearly_tied(sampler, +1), alpha=1.0, max_length=8
        ),
        beam_probe(
            "the beam is chosen without the length penalty",
            lambda sampler: led_in(sampler, LOST_BY_LENGTH),
            default=GOES_ON,
            alpha=3.0,
            max_length=6,
        ),
        beam_probe("the length penalty is applied once, at the end", LATE_DOUBT, alpha=1.0),
        Probe(
            "an unfinished hypothesis can win",
            lambda sampler: beam_inputs(
                sampler, CUT_OFF, NO_END, default=LONG_WINDED, alpha=0.6, max_length=sampler.integer(3, 5)
            ),
        ),
        beam_probe("a batch", GARDEN_PATH, some_sentence, SHORT_OR_LONG, beam_size=3, alpha=0.6),
        Probe(
            "a beam wider than the vocabulary",
            lambda sampler: beam_inputs(
                sampler, GARDEN_PATH, vocab=10, beam_size=sampler.integer(11, 13), alpha=0.6, max_length=3
            ),
        ),
        beam_probe("a longer sentence can be far more probable", *LONG_IS_MUCH_BETTER, alpha=1.5),
        beam_probe("a pad and a bos that the model predicts", with_specials, max_length=8),
        beam_probe("a model in training mode", GARDEN_PATH, training=True),
        beam_probe("other ids for pad, bos, and eos", GARDEN_PATH, some_sentence, other_ids=True),
    ],
    properties=[
        Property("the model stays in the mode it was in", one_short_sentence, mode_is_restored, modes_after_decoding),
        Property("gradients are switched off", one_short_sentence, no_gradients(NEVER_DECODES), work_done),
        Property("each sentence is encoded once", short_and_long, encoded_once, work_done),
        Property("the padding of the source stays hidden", short_and_long, padding_stays_hidden, work_done),
    ],
)

# --- CachedAttention --------------------------------------------------------------------------------------------------


def cache_inputs(
    sampler: InputSampler, batch: int, length: int, d_model: int, n_heads: int, dropout: float = 0.0
) -> dict:
    arguments = {"d_model": d_model, "n_heads": n_heads}
    weights = sampler.weights(MultiHeadAttention(d_model, n_heads), scale=1.0)
    arguments |= {"dropout": dropout} if dropout else {}
    return {"arguments": arguments, "weights": weights, "x": sampler.numbers(batch, length, d_model)}


def step_by_step(subject, arguments, weights, x, visible=None):
    cached = class_of_its_own(subject)(build(MultiHeadAttention, arguments, weights), arguments["n_heads"])
    outputs = []
    for t in range(x.size(1)):
        mask = None if visible is None else visible[:, None, None, : t + 1]  # (batch, 1, 1, length)
        outputs.append(cached.step(x[:, t : t + 1].clone(), *([] if mask is None else [mask])))
    return torch.cat(outputs, dim=1)


def two_at_once(subject, arguments, weights, x, mask):
    cached = class_of_its_own(subject)(build(MultiHeadAttention, arguments, weights), arguments["n_heads"])
    first = cached.step(x[:, :2].clone(), mask[None, None, :2, :2])
    return torch.cat([first, cached.step(x[:, 2:].clone(), mask[None, None, 2:])], dim=1)


def with_rows_moved(subject, arguments, weights, x, orders, rows):
    """Take two steps with `rows` rows, and then one more after each reordering."""
    cached = class_of_its_own(subject)(build(MultiHeadAttention, arguments, weights), arguments["n_heads"])
    cached.step(x[:rows, 0:1].clone())
    cached.step(x[:rows, 1:2].clone())
    outputs = {}
    for number, order in enumerate(orders, 1):
        cached.reorder(torch.tensor(order))
        position = 1 + number
        outputs[f"output after reorder {number}"] = cached.step(x[: len(order), position : position + 1].clone())
    return outputs


def positions_projected(subject, arguments, weights, x):
    attention = build(MultiHeadAttention, arguments, weights)
    counts = {name: [] for name in ("w_q", "w_k", "w_v", "w_o")}
    for name, count in counts.items():
        projection = getattr(attention, name)
        projection.register_forward_hook(lambda _, inputs, __, count=count: count.append(inputs[0].size(1)))
    cached = class_of_its_own(subject)(attention, arguments["n_heads"])
    for t in range(x.size(1)):
        cached.step(x[:, t : t + 1].clone())
    return counts


def newest_alone_is_projected(inputs, received):
    for name, counts in received.items():
        if any(count > 1 for count in counts):
            return f"`{name}` is applied to earlier tokens again, which is the work that a cache should save"
    return None


def two_caches(subject, arguments, weights, x):
    attention, one = build(MultiHeadAttention, arguments, weights), class_of_its_own(subject)
    first, second = one(attention, arguments["n_heads"]), one(attention, arguments["n_heads"])
    first.step(x[:, 0:1].clone())
    alone = class_of_its_own(subject)(build(MultiHeadAttention, arguments, weights), arguments["n_heads"])
    return {"next to another": second.step(x[:, 1:2].clone()), "alone": alone.step(x[:, 1:2].clone())}


def in_both_modes(subject, arguments, weights, x):
    outputs, is_training = {}, {}
    for mode in ("training", "evaluation"):
        attention = build(MultiHeadAttention, arguments, weights).train(mode == "training")
        cached = class_of_its_own(subject)(attention, arguments["n_heads"])
        outputs[mode] = torch.cat([cached.step(x[:, t : t + 1].clone()) for t in range(x.size(1))], dim=1)
        is_training[mode] = attention.training
    return {"outputs": outputs, "is training afterward": is_training}


def mode_makes_no_difference(inputs, received):
    if not torch.allclose(*received["outputs"].values()):
        return "dropout acts in training mode, so the same sentence would be translated differently every time"
    return mode_is_restored(inputs, received["is training afterward"])


def several_heads_inputs(sampler: InputSampler) -> dict:
    n_heads = sampler.integer(2, 3)
    return cache_inputs(sampler, 2, sampler.integer(3, 5), 2 * n_heads, n_heads)


def masked_cache_inputs(sampler: InputSampler) -> dict:
    """Return two sentences of four tokens. A different token is hidden in each, but never the first one."""
    hidden = sampler.integer(1, 2)
    visible = torch.ones(2, 4, dtype=torch.bool)
    visible[0, hidden] = visible[1, 3 - hidden] = False
    return cache_inputs(sampler, 2, 4, 4, 2) | {"visible": visible}


def siblings_inputs(sampler: InputSampler) -> dict:
    """Return two pairs of tokens. The first two do not see each other; the others see themselves and one of those."""
    mask = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1]], dtype=torch.bool)
    return cache_inputs(sampler, 1, 4, 6, 2) | {"mask": mask}


def repeated_rows_inputs(sampler: InputSampler) -> dict:
    """Return three rows. At first, one is repeated while another is dropped; later, two are swapped."""
    repeated, other = [(2, 0), (2, 1), (1, 2)][sampler.integer(0, 2)]
    return cache_inputs(sampler, 3, 4, 4, 2) | {"orders": [[repeated, other, repeated], [1, 0]], "rows": 3}


CACHED_ATTENTION = Exercise(
    answer=CachedAttention,
    blank=("__init__", "step", "reorder"),
    points=3,
    minutes=30,
    axes={"x": "batch length d_model", "output": "batch length d_model"},
    builds_on=("split_heads", "combine_heads", "scaled_dot_product_attention"),
    call=step_by_step,
    probes=[
        Probe("the first token", lambda sampler: cache_inputs(sampler, 1, 1, 2, 1)),
        Probe("three tokens, one after the other", lambda sampler: cache_inputs(sampler, 1, 3, 2, 1)),
        Probe("several heads and a batch", several_heads_inputs),
        Probe("a mask hides a token in the cache", masked_cache_inputs),
        Probe("two tokens in one step", siblings_inputs, two_at_once),
        Probe(
            "two rows are swapped",
            lambda sampler: cache_inputs(sampler, 2, 3, 4, 2) | {"orders": [[1, 0]], "rows": 2},
            with_rows_moved,
        ),
        Probe("rows are swapped, repeated, or dropped", repeated_rows_inputs, with_rows_moved),
    ],
    properties=[
        Property(
            "no earlier token is projected again",
            lambda sampler: cache_inputs(sampler, 2, 3, 4, 2),
            newest_alone_is_projected,
            positions_projected,
        ),
        Property(
            "two caches share nothing",
            lambda sampler: cache_inputs(sampler, 1, 2, 4, 2),
            same_results("a new cache already contains what another cache was given"),
            two_caches,
        ),
        Property(
            "the mode makes no difference",
            lambda sampler: cache_inputs(sampler, 1, 4, 8, 2, dropout=0.5),
            mode_makes_no_difference,
            in_both_modes,
        ),
    ],
)

EXERCISES = [GREEDY_DECODE, LENGTH_PENALTY, BEAM_SEARCH, CACHED_ATTENTION]
