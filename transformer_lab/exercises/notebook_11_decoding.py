"""Notebook 11, decoding: greedy, beam search and its length penalty, the cache, and BLEU."""

import math
from collections import Counter
from contextlib import contextmanager
from itertools import pairwise

import torch

from transformer_lab.decoding import CachedAttention, beam_search, greedy_decode, length_penalty
from transformer_lab.decoding.greedy import evaluation_mode, translated_tokens
from transformer_lab.evaluation import bleu, brevity_penalty, ngram_precision
from transformer_lab.exercises.draw import Draw
from transformer_lab.exercises.exercise import Exercise, Misconception, Probe, Property
from transformer_lab.exercises.notebook_02_multi_head_attention import split_without_transpose
from transformer_lab.exercises.recipes import build, raised
from transformer_lab.model import MultiHeadAttention, combine_heads, scaled_dot_product_attention, split_heads

# --- models whose sentences are known ---------------------------------------------------------------------------------

Rows = dict[str, str]  # what was written, in letters, to what comes next: {"ab": "c.7 $.3"}; _ pad, ^ bos, $ eos

USUAL_IDS = {"pad_id": 0, "bos_id": 1, "eos_id": 2}
OTHER_IDS = {"pad_id": 4, "bos_id": 3, "eos_id": 6}


def spoken_inputs(draw: Draw, sentences: list[Rows], default: str = "$1", ids: dict[str, int] | None = None,
                  training: bool = False, **search) -> dict:  # fmt: skip
    """A `TableModel` as data, which says for each source what its rows tell; the words have other ids for each seed."""
    ids = ids or USUAL_IDS
    free = [token for token in range(8) if token not in ids.values()]
    words = dict(zip("abcde", [free[i] for i in draw.order(5)], strict=True))
    words |= {"_": ids["pad_id"], "^": ids["bos_id"], "$": ids["eos_id"]}

    def chances(text: str) -> dict[int, float]:
        return {words[choice[0]]: float(choice[1:]) for choice in text.split()}

    firsts = [token for token in (9, 8, *free) if token not in ids.values()][: len(sentences)]
    table = {
        first: {" ".join(str(words[letter]) for letter in prefix): chances(text) for prefix, text in rows.items()}
        for first, rows in zip(firsts, sentences, strict=True)
    }
    model = {"table": table, "default": chances(default)}
    model |= {"training": True} if training else {}
    model |= ids if ids != USUAL_IDS else {}
    longest = len(sentences) + 1
    source = torch.full((len(sentences), longest), ids["pad_id"])
    for row, first in enumerate(firsts):
        source[row, 0] = first
        source[row, 1 : longest - row - 1] = free[-1]
        source[row, longest - row - 1 if row < longest - 2 else 1] = ids["eos_id"]
    return {"model": model, "source": source} | search


def decoded(subject, model, source, **search):
    from transformer_lab.decoding.table_model import TableModel

    return subject(TableModel(**model), source, *search.values())


def modes_afterwards(subject, model, source, **search):
    from transformer_lab.decoding.table_model import TableModel

    result = {}
    for name, training in (("training", True), ("evaluation", False)):
        table_model = TableModel(**model).train(training)
        subject(table_model, source, *search.values())
        result[name] = table_model.training
    return result


def mode_is_restored(inputs, received):
    if received["training"] is not True:
        return "a model that was in training mode is in evaluation mode afterwards: training would lack its dropout"
    return "a model that was in evaluation mode is in training mode afterwards" if received["evaluation"] else None


def work_done(subject, model, source, **search):
    from transformer_lab.decoding.table_model import TableModel

    table_model = TableModel(**model)
    subject(table_model, source, *search.values())
    return {
        "with gradients": table_model.with_gradients,
        "sentences encoded": table_model.sentences_encoded,
        "times decoded": table_model.times_decoded,
        "padding seen": table_model.saw_padding,
    }


def no_gradients(inputs, received):
    if received["with gradients"]:
        return "the model computes with gradients switched on, which costs memory for every token and serves nobody"
    return None


def encoded_once(inputs, received):
    if received["sentences encoded"] > len(inputs["source"]) * inputs.get("beam_size", 1):
        return "a sentence is encoded more than once, though its memory does not change while the translation grows"
    return None


def padding_stays_hidden(inputs, received):
    if received["padding seen"]:
        return "`decode` gets a mask that lets it see the padding of the source: hand on the one that `encode` gives"
    return None


def ends_with_the_sentence(inputs, received):
    if received["times decoded"] >= inputs["max_length"]:
        return f"the only sentence has its eos after two tokens, and the model is asked for all {inputs['max_length']}"
    return None


def batch_and_alone(subject, model, source, **search):
    from transformer_lab.decoding.table_model import TableModel

    together = subject(TableModel(**model), source, *search.values())
    alone = [subject(TableModel(**model), source[row : row + 1], *search.values())[0] for row in range(len(source))]
    return {"in a batch": together, "each alone": alone}


def the_batch_changes_nothing(inputs, received):
    if received["in a batch"] != received["each alone"]:
        return "a sentence is translated in another way in a batch than alone"
    return None


ONE_SENTENCE = {"": "a.7 b.3", "a": "c.6 $.4", "ac": "b.8 a.2", "acb": "$.9 a.1"}
SHORT_SENTENCE = {"": "b.8 a.2", "b": "$.7 c.3"}
LONG_SENTENCE = {"": "c.6 a.4", "c": "a.9 b.1", "ca": "d.7 $.3", "cad": "$.8 b.2"}
WITH_SPECIALS = {"": "_.8 a.2", "_": "c.7 b.3", "_c": "^.6 a.4", "_c^": "d.9 a.1", "_c^d": "$.8 a.2"}


def with_no_grad_only(model):
    return torch.no_grad()


@contextmanager
def with_eval_only(model):
    was_training = model.training
    model.eval()
    yield
    model.train(was_training)


@contextmanager
def with_eval_left(model):
    model.eval()
    with torch.no_grad():
        yield


@contextmanager
def with_train_afterwards(model):
    model.eval()
    with torch.no_grad():
        yield
    model.train()


def without_bos_and_eos(row, config):
    """What `translated_tokens` gives for a row that begins with bos."""
    return translated_tokens(row[1:], config)


def until_eos(row, config):
    return row[: row.index(config.eos_id)] if config.eos_id in row else row


def everything(row, config):
    return row


def bos_kept(row, config):
    return [config.bos_id, *without_bos_and_eos(row, config)]


def eos_kept(row, config):
    return without_bos_and_eos(row, config) + [config.eos_id] * (config.eos_id in row)


def both_kept(row, config):
    return [config.bos_id, *eos_kept(row, config)]


def specials_dropped_anywhere(row, config):
    return [token for token in row if token not in (config.pad_id, config.bos_id, config.eos_id)]


def predicted_specials_kept(row, config):
    return until_eos(row[1:], config)


def until_pad(row, config):
    row = until_eos(row[1:], config)
    row = row[: row.index(config.pad_id)] if config.pad_id in row else row
    return [token for token in row if token != config.bos_id]


SAYS_EOS_KEPT = (
    "Eos is in the result. It says where the translation ends and is no word of it: cut the tokens off there."
)
SAYS_KEPT = (
    "Bos and eos are in the result. They are signals between the decoder and you, no words: return what stands between "
    "them."
)
SAYS_RUNS_ON = (
    "Eos is taken out, but not what comes after it. A finished sentence stays in the batch until the last one ends, "
    "and the model goes on to say something: cut the tokens off at the first eos."
)
SAYS_SPECIALS = (
    "A pad or a bos that the model predicted in the middle of a sentence is in the result. It is fed back like any "
    "token, but it is no word: leave it out."
)
SAYS_UNTIL_PAD = (
    "A translation is cut off at the first pad that the model predicts. Only eos ends a sentence: a pad is fed back "
    "like any token and left out of the result."
)
SAYS_NO_EVAL = (
    "Dropout is still on: the model translates in training mode, so the same sentence comes out differently each time. "
    "Call `model.eval()` first, or use `evaluation_mode`."
)
SAYS_EVAL_LEFT = (
    "The model is left in evaluation mode. Validation translates in the middle of a training, which then goes on "
    "without dropout (section 5.4) and nobody is told: put the mode back."
)
SAYS_TRAIN_AFTERWARDS = (
    "The model is in training mode afterwards, whatever it was in before. Put back what it was: "
    "`model.train(was_training)`."
)
SAYS_GRADIENTS = (
    "Gradients are on while it decodes. Every step then keeps its numbers for a backward pass that never comes, until "
    "memory is full: `with torch.no_grad():`, or `evaluation_mode`."
)
SAYS_ENCODES_AGAIN = (
    "The encoder runs again for every token. The source does not change while the translation grows: encode once, "
    "before the loop, and keep `memory` and `source_mask`."
)
SAYS_BOS_COUNTED = (
    "A translation ends one token too early. `max_length` counts what is generated, eos included: bos is given, so it "
    "does not count."
)
SAYS_ONE_MORE = (
    "A translation may have one token more than `max_length` allows. It counts what is generated, eos included: as "
    "many steps as `max_length`."
)
SAYS_FIXED_IDS = (
    "The ids 0, 1 and 2 are written into the code. Another tokenizer numbers its tokens otherwise: take `pad_id`, "
    "`bos_id` and `eos_id` from `model.config`."
)
SAYS_FIRST_ONLY = (
    "Only the first sentence of the batch is translated. One list for each row of `source` is expected, in their order."
)

# --- greedy_decode ----------------------------------------------------------------------------------------------------


def greedy_with(start="bos_id", ended=torch.all, fed=lambda target: target, position=-1, cleaned=without_bos_and_eos,
                steps=lambda max_length: max_length, mode=evaluation_mode, encodes_again=False, see=lambda mask: mask,
                choose=lambda logits, config: logits.argmax(dim=-1, keepdim=True)):  # fmt: skip
    """A `greedy_decode` with one thing changed."""

    def decode(model, source, max_length):
        config = model.config
        with mode(model):
            memory, source_mask = model.encode(source)
            target = torch.full_like(source[:, :1], getattr(config, start))
            for _ in range(steps(max_length)):
                if encodes_again:
                    memory, source_mask = model.encode(source)
                logits = model.decode(fed(target), memory, see(source_mask))[:, position]
                target = torch.cat([target, choose(logits, config)], dim=1)
                if ended((target[:, 1:] == config.eos_id).any(dim=1)):
                    break
        return [cleaned(row, config) for row in target.tolist()]

    return decode


def without_pad_and_bos(logits, config):
    logits = logits.clone()
    logits[:, [config.pad_id, config.bos_id]] = -math.inf
    return logits.argmax(dim=-1, keepdim=True)


def greedy_with_fixed_ids(model, source, max_length):
    with evaluation_mode(model):
        memory, source_mask = model.encode(source)
        target = torch.full_like(source[:, :1], 1)
        finished = torch.zeros_like(target, dtype=torch.bool)
        for _ in range(max_length):
            token = model.decode(target, memory, source_mask)[:, -1].argmax(dim=-1, keepdim=True)
            target = torch.cat([target, token], dim=1)
            finished |= token == 2
            if finished.all():
                break
    rows = [row[: row.index(2)] if 2 in row else row for row in target[:, 1:].tolist()]
    return [[token for token in row if token not in (0, 1)] for row in rows]


def greedy_of_one_sentence(model, source, max_length):
    config = model.config
    with evaluation_mode(model):
        memory, source_mask = model.encode(source)
        target = torch.full_like(source[:, :1], config.bos_id)
        for _ in range(max_length):
            token = model.decode(target, memory, source_mask)[:, -1].argmax(dim=-1, keepdim=True)
            target = torch.cat([target, token], dim=1)
            if token == config.eos_id:
                break
    return [translated_tokens(row, config) for row in target[:, 1:].tolist()]


def greedy_of_first_sentence(model, source, max_length):
    return greedy_decode(model, source[:1], max_length)


def greedy_as_tensor(model, source, max_length):
    config = model.config
    with evaluation_mode(model):
        memory, source_mask = model.encode(source)
        target = torch.full_like(source[:, :1], config.bos_id)
        for _ in range(max_length):
            token = model.decode(target, memory, source_mask)[:, -1].argmax(dim=-1, keepdim=True)
            target = torch.cat([target, token], dim=1)
            if (target == config.eos_id).any(dim=1).all():
                break
    return target[:, 1:]


GREEDY_DECODE = Exercise(
    answer=greedy_decode,
    points=2,
    minutes=20,
    returns=("translations",),
    axes={"source": "batch source"},
    probes=[
        Probe("one sentence", lambda draw: spoken_inputs(draw, [ONE_SENTENCE], max_length=6), decoded),
        Probe(
            "three sentences that end at different times",
            lambda draw: spoken_inputs(draw, [ONE_SENTENCE, SHORT_SENTENCE, LONG_SENTENCE], max_length=6),
            decoded,
        ),
        Probe(
            "a sentence that never ends",
            lambda draw: spoken_inputs(draw, [{"": "b.9 a.1"}], default="a.6 c.4", max_length=draw.integer(3, 5)),
            decoded,
        ),
        Probe(
            "a pad and a bos that the model predicts",
            lambda draw: spoken_inputs(draw, [WITH_SPECIALS], max_length=6),
            decoded,
        ),
        Probe(
            "a model in training mode",
            lambda draw: spoken_inputs(draw, [ONE_SENTENCE], training=True, max_length=5),
            decoded,
        ),
        Probe(
            "other ids for pad, bos and eos",
            lambda draw: spoken_inputs(draw, [LONG_SENTENCE, SHORT_SENTENCE], ids=OTHER_IDS, max_length=6),
            decoded,
        ),
    ],
    properties=[
        Property(
            "the model is left in the mode it was in",
            lambda draw: spoken_inputs(draw, [SHORT_SENTENCE], max_length=3),
            mode_is_restored,
            modes_afterwards,
        ),
        Property(
            "no gradients",
            lambda draw: spoken_inputs(draw, [SHORT_SENTENCE], max_length=3),
            no_gradients,
            work_done,
        ),
        Property(
            "each sentence is encoded once",
            lambda draw: spoken_inputs(draw, [ONE_SENTENCE, LONG_SENTENCE], max_length=6),
            encoded_once,
            work_done,
        ),
        Property(
            "padding of the source stays hidden",
            lambda draw: spoken_inputs(draw, [SHORT_SENTENCE, LONG_SENTENCE], max_length=4),
            padding_stays_hidden,
            work_done,
        ),
        Property(
            "it ends when every sentence has its eos",
            lambda draw: spoken_inputs(draw, [SHORT_SENTENCE], max_length=draw.integer(7, 12)),
            ends_with_the_sentence,
            work_done,
            costs=0.5,
        ),
        Property(
            "the other sentences of a batch change nothing",
            lambda draw: spoken_inputs(draw, [SHORT_SENTENCE, LONG_SENTENCE], max_length=6),
            the_batch_changes_nothing,
            batch_and_alone,
        ),
    ],
    misconceptions=[
        Misconception(
            "stops_with_the_first",
            greedy_with(ended=torch.any),
            "The whole batch stops as soon as one sentence has ended, and the longer ones are cut off. Go on until "
            "every sentence has its eos: `finished.all()`, not `finished.any()`.",
        ),
        Misconception(
            "never_stops",
            greedy_with(ended=lambda rows: False),
            "The translations are right, but every one takes `max_length` steps: when all sentences have their eos, "
            "the rest is thrown away. Sentences of 12 tokens and a `max_length` of 256 make that 20 times the work.",
        ),
        Misconception(
            "keeps_everything",
            greedy_with(cleaned=everything),
            "The rows are returned as they were decoded: bos in front, eos, and whatever a finished sentence went on "
            "to say while it waited for the others. A translation is what stands between bos and the first eos.",
        ),
        Misconception("keeps_bos_and_eos", greedy_with(cleaned=both_kept), SAYS_KEPT),
        Misconception(
            "keeps_bos",
            greedy_with(cleaned=bos_kept),
            "Bos is in the result. You gave it to the decoder so that it could begin; it is no word of the "
            "translation.",
        ),
        Misconception("keeps_eos", greedy_with(cleaned=eos_kept), SAYS_EOS_KEPT),
        Misconception(
            "runs_on",
            greedy_with(cleaned=specials_dropped_anywhere),
            SAYS_RUNS_ON,
        ),
        Misconception(
            "runs_on_to_max_length",
            greedy_with(cleaned=specials_dropped_anywhere, ended=lambda rows: False),
            SAYS_RUNS_ON,
        ),
        Misconception("keeps_predicted_specials", greedy_with(cleaned=predicted_specials_kept), SAYS_SPECIALS),
        Misconception("pad_ends", greedy_with(cleaned=until_pad), SAYS_UNTIL_PAD),
        Misconception(
            "pad_and_bos_forbidden",
            greedy_with(choose=without_pad_and_bos),
            "Pad and bos are never chosen. Greedy decoding takes the likeliest token, whichever it is; they are only "
            "left out of the result.",
        ),
        Misconception(
            "no_history",
            greedy_with(fed=lambda target: target[:, -1:]),
            "The decoder gets the newest token alone. It has no memory of its own: each step needs everything that was "
            "written so far, bos first. (With a cache one token is enough; that comes later.)",
        ),
        Misconception(
            "first_position",
            greedy_with(position=0),
            "The logits of the first position are read at every step: they always say the first word. The next token "
            "is predicted at the last one, `[:, -1]`.",
        ),
        Misconception(
            "wrong_start",
            greedy_with(start="pad_id"),
            "Decoding does not begin with bos. The model has only ever seen translations that begin with it, so after "
            "anything else it knows nothing: `torch.zeros` begins with pad, for example.",
        ),
        Misconception("bos_counted", greedy_with(steps=lambda max_length: max_length - 1), SAYS_BOS_COUNTED),
        Misconception("one_token_more", greedy_with(steps=lambda max_length: max_length + 1), SAYS_ONE_MORE),
        Misconception(
            "one_sentence_only",
            greedy_of_one_sentence,
            "`if token == eos` asks a question with one answer for a batch with several: torch cannot tell. Keep a "
            "boolean for each sentence and stop when all are True.",
        ),
        Misconception("first_sentence", greedy_of_first_sentence, SAYS_FIRST_ONLY),
        Misconception(
            "returns_tensor",
            greedy_as_tensor,
            "A tensor is returned. Translations have different lengths, and a tensor's rows cannot: return a list of "
            "lists, each without bos, eos and pad.",
        ),
        Misconception("fixed_ids", greedy_with_fixed_ids, SAYS_FIXED_IDS),
        Misconception("no_eval", greedy_with(mode=with_no_grad_only), SAYS_NO_EVAL),
        Misconception("eval_left", greedy_with(mode=with_eval_left), SAYS_EVAL_LEFT),
        Misconception("train_afterwards", greedy_with(mode=with_train_afterwards), SAYS_TRAIN_AFTERWARDS),
        Misconception("with_gradients", greedy_with(mode=with_eval_only), SAYS_GRADIENTS),
        Misconception("encodes_again", greedy_with(encodes_again=True), SAYS_ENCODES_AGAIN),
        Misconception(
            "padding_seen",
            greedy_with(see=torch.ones_like),
            "`decode` is given a mask of ones, so that it sees the padding of the shorter sentences, and translates "
            "them in another way in another batch. `encode` returns the mask beside the memory: hand it on.",
        ),
        Misconception(
            "first_sentence_decides",
            greedy_with(ended=lambda finished: finished[0]),
            "The loop stops when the first sentence of the batch has its eos, and the others are cut off there. Go on "
            "until every one has: `finished.all()`.",
        ),
    ],
    hints=[
        "Encode once. Then go round: decode everything that is written so far, look at the logits of the last "
        "position, take the greatest, write it behind. When may you stop, and what of each row is the translation?",
        "`target` begins as a column of bos, `(batch, 1)`. `model.decode(target, memory, source_mask)[:, -1]` is "
        "`(batch, vocab)`; `argmax(dim=-1, keepdim=True)` gives a new column for `torch.cat`. Remember for each row "
        "whether eos has come.",
        "`finished |= token == config.eos_id`, then `if finished.all(): break`; in the end "
        "`[translated_tokens(row, config) for row in target[:, 1:].tolist()]`, all of it inside "
        "`with evaluation_mode(model):`.",
    ],
)

# --- length_penalty ---------------------------------------------------------------------------------------------------


def penalties(subject, length, alphas):
    return {f"alpha {alpha}": subject(length, alpha) for alpha in alphas}


def penalty_without_effect(subject, length, alpha):
    return {"alpha 0": subject(length, 0.0), "length 1": subject(1, alpha)}


def one_without_effect(inputs, received):
    if abs(received["alpha 0"] - 1) > 1e-9:
        return "with alpha 0 it is not 1: then the length should make no difference"
    return "for one token it is not 1" if abs(received["length 1"] - 1) > 1e-9 else None


def growing_penalties(subject, length, alpha):
    return [subject(length + more, alpha) for more in range(4)]


def grows_with_length(inputs, received):
    if any(after <= before for before, after in pairwise(received)):
        return "it does not grow with the length: the log-probability of a longer sentence must be divided by more"
    return None


LENGTH_PENALTY = Exercise(
    answer=length_penalty,
    points=1,
    minutes=5,
    returns=("penalty",),
    probes=[
        Probe("alpha 1", lambda draw: {"length": draw.integer(7, 20), "alpha": 1.0}),
        Probe("alpha 0.6, as in the paper", lambda draw: {"length": draw.integer(7, 20), "alpha": 0.6}),
        Probe("alpha 2", lambda draw: {"length": 6 * draw.integer(2, 3) + 1, "alpha": 2.0}),
        Probe(
            "several alphas",
            lambda draw: {"length": draw.integer(30, 50), "alphas": [0.5, 1.5]},
            penalties,
        ),
    ],
    properties=[
        Property(
            "it is 1 with alpha 0, and for one token",
            lambda draw: {"length": draw.integer(8, 20), "alpha": draw.integer(6, 15) / 10},
            one_without_effect,
            penalty_without_effect,
        ),
        Property(
            "it grows with the length",
            lambda draw: {"length": draw.integer(2, 9), "alpha": draw.integer(6, 15) / 10},
            grows_with_length,
            growing_penalties,
        ),
    ],
    misconceptions=[
        Misconception(
            "inverted",
            lambda length, alpha: (6 / (5 + length)) ** alpha,
            "The fraction is upside down. Log-probabilities are negative and are *divided* by the penalty: it must "
            "grow with the length, or long translations are punished twice (Wu et al. 2016, equation 14).",
        ),
        Misconception(
            "plain_length",
            lambda length, alpha: float(length) ** alpha,
            "The length itself is raised to alpha. Equation 14 of Wu et al. (2016) adds 5 first and divides by 6, so "
            "that a word more makes less of a difference to a short sentence.",
        ),
        Misconception(
            "six_not_raised",
            lambda length, alpha: (5 + length) ** alpha / 6,
            "Only the numerator is raised to alpha. In equation 14 of Wu et al. (2016) the denominator is 6 to the "
            "power of alpha too, so that one token has the penalty 1: raise the whole fraction.",
        ),
        Misconception(
            "power_of_length",
            lambda length, alpha: (5 + length**alpha) / 6,
            "Only the length is raised to alpha, before 5 is added. Equation 14 of Wu et al. (2016) raises the whole "
            "fraction.",
        ),
        Misconception(
            "length_over_six",
            lambda length, alpha: (5 + length / 6) ** alpha,
            "Brackets: only the length is divided by 6. It is 5 and the length together.",
        ),
        Misconception(
            "multiplied_by_alpha",
            lambda length, alpha: alpha * (5 + length) / 6,
            "The fraction is multiplied by alpha. Then alpha scales all hypotheses alike and decides nothing: it is an "
            "exponent (Wu et al. 2016, equation 14).",
        ),
        Misconception(
            "whole_division",
            lambda length, alpha: float((5 + length) // 6) ** alpha,
            "`//` cuts the fraction down to a whole number, so that lengths from 7 to 12 all count the same: `/` is "
            "meant.",
        ),
        Misconception(
            "alpha_ignored",
            lambda length, alpha: ((5 + length) / 6) ** 0.6,
            "Alpha is always 0.6, as in the paper. It is an argument: what is best depends on the model, and is chosen "
            "on validation sentences.",
        ),
        Misconception(
            "fraction_only",
            lambda length, alpha: (5 + length) / 6,
            "Alpha is not used. It is the exponent of the fraction: `** alpha`.",
        ),
        Misconception(
            "one_too_short",
            lambda length, alpha: ((4 + length) / 6) ** alpha,
            "One is taken off the length. Eos counts as a generated token: take the length as it is given.",
        ),
    ],
    hints=[
        "One line: equation 14 of Wu et al. (2016), also given in the text above. Which part of it is raised to alpha?",
        "A fraction with 5 plus the length above and 5 plus 1 below, and alpha as its exponent.",
        "`((5 + length) / 6)`, all of it `** alpha`.",
    ],
)

# --- beam_search ------------------------------------------------------------------------------------------------------

# a c end: .24, b e end: .36
GARDEN_PATH = {"": "a.6 b.4", "a": "c.4 d.33 e.27", "b": "e.9 $.1"}
# The best two hypotheses after two words begin with the same word, and the second leads to the best sentence.
SAME_FIRST_WORD = {"": "a.7 b.3", "a": "c.4 d.35 e.25", "ac": "a.25 b.24 c.2 d.17 e.14", "ad": "e.95 $.05",
                   "b": "c.5 d.4 $.1"}  # fmt: skip
# a end: .4, a c d e end: .308
SHORT_OR_LONG = {"": "a.8 b.2", "a": "$.5 c.45 d.05", "ac": "d.9 e.1", "acd": "e.95 $.05"}
# a end: .4275, a c d e end: .4716
LONG_IS_BETTER = {"": "a.95 b.05", "a": "c.55 $.45", "ac": "d.95 b.05", "acd": "e.95 b.05"}
# A finished hypothesis takes one of two places, so that a d e and a c b e, which would win in the end, are lost.
PLACE_TAKEN = {"": "a.9 b.1", "a": "$.4 c.35 d.25", "ac": "a.52 b.48", "acb": "e.98 $.02", "ad": "e.98 $.02"}
# Ranked by log-probability over length penalty, the finished hypothesis would be lost on the way, and win in the end.
LOST_BY_LENGTH = {"": "a.98 b.02", "a": "c.6 $.38 d.02", "ac": "d.52 e.48"}
# At max_length a c d d … has .46 or more and is not finished; a end has .18.
CUT_OFF = {"": "a.9 b.1", "a": "c.8 $.2"}
LONG_WINDED = "d.8 e.15 $.05"
GOES_ON = "a.22 b.21 c.2 d.19 e.18"


def nearly_tied(chance: float) -> Rows:
    """A short sentence of probability .4 and a longer one of .6 · chance²: how the length is counted decides."""
    rest = round(1 - chance, 3)
    return {"": "a.999 b.001", "a": "c.6 $.4", "ac": f"d{chance} e{rest}", "acd": f"e{chance} b{rest}"}


def searched_with(gains=lambda logits: logits.log_softmax(dim=-1), rank=lambda score, n, alpha: score,
                  final=lambda score, n, alpha: score / length_penalty(n, alpha), children=lambda width: width,
                  first_children=lambda width: width, accumulate=lambda score, gain: score + gain,
                  steps=lambda max_length: max_length, cleaned=without_bos_and_eos, mode=evaluation_mode,
                  extends_finished=False, sets_aside=False, refills=True, stops=all, width=lambda beam_size: beam_size,
                  finished_first=False, encodes_again=False, per_parent=None, begin=0.0, start="bos_id",
                  see=lambda mask: mask):  # fmt: skip
    """A `beam_search` with one thing changed."""

    def search(model, source, beam_size, alpha, max_length):
        config = model.config
        bos, eos = getattr(config, start), config.eos_id
        found = []
        beam_size = width(beam_size)
        with mode(model):
            for sentence in source:
                memory, source_mask = model.encode(sentence[None])
                beam, aside = [([], begin)], []
                for step in range(steps(max_length)):
                    ended = [hypothesis for hypothesis in beam if eos in hypothesis[0]]
                    going_on = beam if extends_finished else [one for one in beam if eos not in one[0]]
                    if not going_on or (step and stops(eos in tokens for tokens, _ in beam)):
                        break
                    if encodes_again:
                        memory, source_mask = model.encode(sentence[None])
                    target = torch.tensor([[bos, *tokens] for tokens, _ in going_on])
                    values, tokens = gains(model.decode(target, memory, see(source_mask))[:, -1].double()).sort(
                        dim=-1, descending=True
                    )
                    candidates = [] if extends_finished else list(ended)
                    for (written, score), row, ids in zip(going_on, values.tolist(), tokens.tolist(), strict=True):
                        count = (children if written else first_children)(beam_size)
                        candidates += [
                            ([*written, token], accumulate(score, gain))
                            for token, gain in list(zip(ids, row, strict=True))[:count]
                        ]
                    candidates.sort(key=lambda one: rank(one[1], len(one[0]), alpha), reverse=True)
                    if sets_aside:
                        aside += [one for one in candidates[:beam_size] if eos in one[0]]
                        left = candidates if refills else candidates[:beam_size]
                        candidates = [one for one in left if eos not in one[0]]
                    beam = candidates[:beam_size]
                beam = aside + beam
                if finished_first:
                    beam = [one for one in beam if eos in one[0]] or beam
                best = max(beam, key=lambda one: final(one[1], len(one[0]), alpha))
                found.append(cleaned([bos, *best[0]], config))
        return found

    return search


SAYS_SET_ASIDE = (
    "A finished hypothesis is put aside, and another takes its place in the beam. Many programs do so; in this course "
    "the beam holds `beam_size` hypotheses, finished or not, and ends when all have finished."
)


def beam_larger_than_vocabulary(model, source, beam_size, alpha, max_length):
    if beam_size > model.config.target_vocab:
        torch.zeros(1, model.config.target_vocab).topk(beam_size)
    return beam_search(model, source, beam_size, alpha, max_length)


def beam_with_fixed_ids(model, source, beam_size, alpha, max_length):
    class Fixed:
        pad_id, bos_id, eos_id, target_vocab = 0, 1, 2, model.config.target_vocab

    class View:
        config, training = Fixed, model.training
        encode, decode, eval, train = model.encode, model.decode, model.eval, model.train

    return beam_search(View, source, beam_size, alpha, max_length)


def beam_of_first_sentence(model, source, beam_size, alpha, max_length):
    return beam_search(model, source[:1], beam_size, alpha, max_length)


def beam_inputs(draw: Draw, *sentences: Rows, beam_size: int = 2, alpha: float = 0.0, max_length: int = 7, **others):
    search = {"beam_size": beam_size, "alpha": alpha, "max_length": max_length}
    return spoken_inputs(draw, list(sentences), **others, **search)


BEAM_SEARCH = Exercise(
    answer=beam_search,
    points=4,
    minutes=45,
    returns=("translations",),
    axes={"source": "batch source"},
    builds_on=("length_penalty",),
    probes=[
        Probe(
            "the likeliest first word does not begin the likeliest sentence",
            lambda draw: beam_inputs(draw, GARDEN_PATH),
            decoded,
        ),
        Probe("a beam of one is greedy", lambda draw: beam_inputs(draw, GARDEN_PATH, beam_size=1), decoded),
        Probe("the best two may begin alike", lambda draw: beam_inputs(draw, SAME_FIRST_WORD), decoded),
        Probe("a finished hypothesis stays as it is", lambda draw: beam_inputs(draw, SHORT_OR_LONG), decoded),
        Probe(
            "a finished hypothesis keeps its place in the beam",
            lambda draw: beam_inputs(draw, PLACE_TAKEN, alpha=2.0),
            decoded,
        ),
        Probe(
            "a longer sentence that is more probable as well",
            lambda draw: beam_inputs(draw, LONG_IS_BETTER, alpha=1.5),
            decoded,
        ),
        Probe(
            "the length penalty brings a longer sentence forward",
            lambda draw: beam_inputs(draw, SHORT_OR_LONG, alpha=1.5),
            decoded,
        ),
        Probe("eos counts as a token", lambda draw: beam_inputs(draw, nearly_tied(0.661), alpha=1.0), decoded),
        Probe("bos does not count", lambda draw: beam_inputs(draw, nearly_tied(0.683), alpha=1.0), decoded),
        Probe(
            "the beam is chosen without the length penalty",
            lambda draw: beam_inputs(draw, LOST_BY_LENGTH, default=GOES_ON, alpha=3.0, max_length=5),
            decoded,
        ),
        Probe(
            "an unfinished hypothesis may win",
            lambda draw: beam_inputs(draw, CUT_OFF, default=LONG_WINDED, alpha=0.6, max_length=draw.integer(3, 5)),
            decoded,
        ),
        Probe(
            "a batch",
            lambda draw: beam_inputs(draw, GARDEN_PATH, SHORT_SENTENCE, SHORT_OR_LONG, beam_size=3, alpha=0.6),
            decoded,
        ),
        Probe(
            "a beam wider than the vocabulary",
            lambda draw: beam_inputs(draw, GARDEN_PATH, beam_size=12, alpha=0.6, max_length=3),
            decoded,
        ),
        Probe("a pad and a bos that the model predicts", lambda draw: beam_inputs(draw, WITH_SPECIALS), decoded),
        Probe("a model in training mode", lambda draw: beam_inputs(draw, GARDEN_PATH, training=True), decoded),
        Probe(
            "other ids for pad, bos and eos",
            lambda draw: beam_inputs(draw, GARDEN_PATH, SHORT_SENTENCE, ids=OTHER_IDS),
            decoded,
        ),
    ],
    properties=[
        Property(
            "the model is left in the mode it was in",
            lambda draw: beam_inputs(draw, SHORT_SENTENCE),
            mode_is_restored,
            modes_afterwards,
        ),
        Property("no gradients", lambda draw: beam_inputs(draw, SHORT_SENTENCE), no_gradients, work_done),
        Property(
            "each sentence is encoded once",
            lambda draw: beam_inputs(draw, SHORT_OR_LONG, LONG_SENTENCE),
            encoded_once,
            work_done,
        ),
        Property(
            "padding of the source stays hidden",
            lambda draw: beam_inputs(draw, SHORT_SENTENCE, LONG_SENTENCE),
            padding_stays_hidden,
            work_done,
        ),
        Property(
            "the other sentences of a batch change nothing",
            lambda draw: beam_inputs(draw, SHORT_OR_LONG, GARDEN_PATH, alpha=0.6),
            the_batch_changes_nothing,
            batch_and_alone,
        ),
    ],
    misconceptions=[
        Misconception(
            "greedy",
            searched_with(width=lambda beam_size: 1),
            "Only one hypothesis is kept: this is greedy decoding, whatever `beam_size` says. (So is a beam that "
            "begins with `beam_size` copies of bos, whose extensions are the same ones again: begin with one.)",
        ),
        Misconception(
            "one_child_each",
            searched_with(children=lambda width: 1),
            "After the first word each hypothesis goes its own way, with its own best token. The best hypotheses may "
            "all begin alike: extend each by every token, and let all of these compete for the `beam_size` places.",
        ),
        Misconception(
            "probabilities_added",
            searched_with(gains=lambda logits: logits.softmax(dim=-1)),
            "Probabilities are added up. The probability of a sentence is the product of those of its tokens: add "
            "their logarithms, `log_softmax`.",
        ),
        Misconception(
            "logits_added",
            searched_with(gains=lambda logits: logits),
            "Logits are added up. Within one prediction they rank the tokens, but each prediction has a level of its "
            "own: take their `log_softmax` before you add or compare.",
        ),
        Misconception(
            "last_token_only",
            searched_with(accumulate=lambda score, gain: gain),
            "A hypothesis is judged by its newest token alone. Its log-probability is the sum over all its tokens: add "
            "the new one to what it had.",
        ),
        Misconception(
            "finished_extended",
            searched_with(extends_finished=True),
            "Finished hypotheses are extended as well. The model was never trained to say anything after eos: such a "
            "hypothesis loses probability with nonsense. It stays as it is and keeps its score.",
        ),
        Misconception(
            "finished_set_aside",
            searched_with(sets_aside=True, children=lambda width: 99),
            SAYS_SET_ASIDE,
        ),
        Misconception("finished_give_room", searched_with(sets_aside=True, refills=False), SAYS_SET_ASIDE),
        Misconception(
            "stops_at_first",
            searched_with(stops=any),
            "The search stops as soon as one hypothesis has finished. One that is still going on may come out better: "
            "stop when all in the beam have finished.",
        ),
        Misconception(
            "finished_preferred",
            searched_with(finished_first=True),
            "At `max_length` only finished hypotheses are looked at. Here the whole beam is compared, finished or not: "
            "one that was cut off may be far more probable than one that ended too early.",
        ),
        Misconception(
            "no_length_penalty",
            searched_with(final=lambda score, n, alpha: score),
            "`alpha` is not used, or makes no difference, as where all hypotheses are padded to one length and the "
            "padding counts: the most probable one wins. Every token makes a sentence less probable, so short ones win "
            "too often. Section 6.1 divides by the length penalty of Wu et al. (2016), of a hypothesis's own length.",
        ),
        Misconception(
            "penalty_multiplied",
            searched_with(final=lambda score, n, alpha: score * length_penalty(n, alpha)),
            "The log-probability is multiplied by the length penalty. It is negative, so long sentences are pushed "
            "back even further: divide.",
        ),
        Misconception(
            "divided_by_length",
            searched_with(final=lambda score, n, alpha: score / n**alpha),
            "The log-probability is divided by the length to the power of alpha. Use `length_penalty`, which adds 5 to "
            "the length first (Wu et al. 2016, equation 14).",
        ),
        Misconception(
            "eos_not_counted",
            searched_with(final=lambda score, n, alpha: score / length_penalty(n - 1, alpha)),
            "The length is one too small. Eos was generated, and its log-probability is in the sum: it counts.",
        ),
        Misconception(
            "bos_counted_in_length",
            searched_with(final=lambda score, n, alpha: score / length_penalty(n + 1, alpha)),
            "The length is one too large: bos counts in it. It was given, not generated.",
        ),
        Misconception(
            "ranked_by_penalty",
            searched_with(rank=lambda score, n, alpha: score / length_penalty(n, alpha)),
            "The beam is chosen by log-probability over length penalty. That favours whatever goes on over what has "
            "finished. Here the sum alone decides who stays in the beam; the penalty chooses among those at the end.",
        ),
        Misconception("bos_counted", searched_with(steps=lambda max_length: max_length - 1), SAYS_BOS_COUNTED),
        Misconception("one_token_more", searched_with(steps=lambda max_length: max_length + 1), SAYS_ONE_MORE),
        Misconception("keeps_eos", searched_with(cleaned=eos_kept), SAYS_EOS_KEPT),
        Misconception("keeps_bos_and_eos", searched_with(cleaned=both_kept), SAYS_KEPT),
        Misconception("keeps_predicted_specials", searched_with(cleaned=predicted_specials_kept), SAYS_SPECIALS),
        Misconception("pad_ends", searched_with(cleaned=until_pad), SAYS_UNTIL_PAD),
        Misconception("fixed_ids", beam_with_fixed_ids, SAYS_FIXED_IDS),
        Misconception(
            "more_than_there_is",
            beam_larger_than_vocabulary,
            "`topk` is asked for more tokens than there are. A beam may be wider than the vocabulary: "
            "`min(beam_size, logits.size(-1))`.",
        ),
        Misconception("first_sentence", beam_of_first_sentence, SAYS_FIRST_ONLY),
        Misconception("no_eval", searched_with(mode=with_no_grad_only), SAYS_NO_EVAL),
        Misconception("eval_left", searched_with(mode=with_eval_left), SAYS_EVAL_LEFT),
        Misconception("with_gradients", searched_with(mode=with_eval_only), SAYS_GRADIENTS),
        Misconception("encodes_again", searched_with(encodes_again=True), SAYS_ENCODES_AGAIN),
        Misconception(
            "stops_with_the_best",
            searched_with(stops=next),
            "The search stops as soon as the most probable hypothesis has finished. With a length penalty one that is "
            "still going on may come out better: stop when all in the beam have finished.",
        ),
        Misconception(
            "padding_seen",
            searched_with(see=torch.ones_like),
            "`decode` is given a mask of ones, so that it sees the padding of a shorter sentence, and translates it "
            "in another way in another batch. `encode` returns the mask beside the memory: hand it on.",
        ),
    ],
    hints=[
        "A hypothesis is a list of tokens and a number, its log-probability. The beam is a list of them, at first one "
        "empty list with 0. What happens to a finished one in a step, what to an unfinished one, and who stays?",
        "One sentence at a time is fine. Feed all unfinished hypotheses as one batch, `(n, length)`, with `memory` and "
        "`source_mask` expanded to n rows; add the `log_softmax` of the last position to each score; put the finished "
        "ones beside the extended ones; sort by score; keep `beam_size`.",
        "`beam = sorted(finished + extended, key=lambda hypothesis: hypothesis[1], reverse=True)[:beam_size]`, and at "
        "the end `max(beam, key=lambda hypothesis: hypothesis[1] / length_penalty(len(hypothesis[0]), alpha))`, where "
        "the tokens hold eos but not bos.",
    ],
)

# --- ngram_precision --------------------------------------------------------------------------------------------------

WORDS = ["a", "dog", "runs", "over", "the", "green", "field", "and", "two", "men", "sit", "there", "in", "snow"]


def some_words(draw: Draw, count: int) -> list[str]:
    """Different words, in any order."""
    return [WORDS[i] for i in draw.order(len(WORDS))[:count]]


def one_sentence_inputs(draw: Draw, n: int) -> dict:
    """Two of five words are missing from the reference, which has the same three, in the same order, and two others."""
    a, b, c, d, e, f, g = some_words(draw, 7)
    return {"hypotheses": [[d, a, b, c, e]], "references": [[f, g, a, b, c, g]], "n": n}


def repeated_word_inputs(draw: Draw) -> dict:
    word, other, more, missing = some_words(draw, 4)
    return {
        "hypotheses": [[*[word] * draw.integer(4, 6), missing]],
        "references": [[word, other, more, word, other]],
        "n": 1,
    }


def uneven_sentences_inputs(draw: Draw) -> dict:
    a, b, c, d, e = some_words(draw, 5)
    return {"hypotheses": [[a, b, c], [d]], "references": [[a, b, c, c], [e, e]], "n": 1}


def swapped_sentences_inputs(draw: Draw) -> dict:
    a, b, c = some_words(draw, 3)
    return {"hypotheses": [[a, c], [b, c]], "references": [[b, c], [a, c]], "n": 1}


def short_sentence_inputs(draw: Draw) -> dict:
    a, b, c, d, e = some_words(draw, 5)
    return {"hypotheses": [[a, b], [a, b, c, d]], "references": [[a, b], [e, b, c, d]], "n": 3}


def shared_letters_inputs(draw: Draw) -> dict:
    first, second = some_words(draw, 2)
    return {
        "hypotheses": [[first + "x", second, first], [first, second]],
        "references": [[first, "x" + second, first], [first, second]],
        "n": 2,
    }


def capital_inputs(draw: Draw) -> dict:
    first, second = some_words(draw, 2)
    return {"hypotheses": [[first.capitalize(), second]], "references": [[first, second]], "n": 1}


def permuted_sentences(subject, hypotheses, references, n, order):
    again = subject([hypotheses[i] for i in order], [references[i] for i in order], n)
    return {"as they are": subject(hypotheses, references, n), "in another order": again}


def order_of_sentences_does_not_matter(inputs, received):
    if abs(received["as they are"] - received["in another order"]) > 1e-9:
        return "the same pairs of sentences in another order give another number"
    return None


def without_ngrams(subject, hypotheses, references, n):
    return [subject(hypotheses, references, n), subject([], [], 1)]


def zero_without_ngrams(inputs, received):
    return None if received == [0, 0] else "where the hypotheses have no n-gram, it is not 0.0"


def unequal_sides(subject, hypotheses, references):
    return [raised(subject, hypotheses, references[:-1], 1), raised(subject, hypotheses[:-1], references, 1)]


def unequal_sides_are_refused(inputs, received):
    if "nothing" in received:
        return "with another number of references than hypotheses it scores the first ones and says nothing"
    return None


def all_ngrams(tokens, n):
    return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


def precision_with(ngrams=all_ngrams, found=lambda hypothesis, reference: (hypothesis & reference).total(),
                   total=lambda hypothesis, reference: hypothesis.total(), count=Counter, order=lambda n: n,
                   factor=1.0, strict=True, word=str):  # fmt: skip
    """An `ngram_precision` with one thing changed."""

    def precision(hypotheses, references, n):
        matches = all_there_are = 0
        for hypothesis, reference in zip(hypotheses, references, strict=strict):
            ours, theirs = (count(ngrams([*map(word, side)], order(n))) for side in (hypothesis, reference))
            matches += found(ours, theirs)
            all_there_are += total(ours, theirs)
        return factor * matches / all_there_are if all_there_are else 0.0

    return precision


def precision_of_whole_corpus(hypotheses, references, n):
    if len(hypotheses) != len(references):
        raise ValueError("not as many references as hypotheses")
    ours, theirs = (Counter(g for tokens in side for g in all_ngrams(tokens, n)) for side in (hypotheses, references))
    return (ours & theirs).total() / ours.total() if ours else 0.0


def precision_by_sentence(hypotheses, references, n):
    each = [ngram_precision([hypothesis], [reference], n)
            for hypothesis, reference in zip(hypotheses, references, strict=True)]  # fmt: skip
    return sum(each) / len(each) if each else 0.0


def precision_without_looking(hypotheses, references, n):
    matches = total = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        ours, theirs = Counter(all_ngrams(hypothesis, n)), Counter(all_ngrams(reference, n))
        matches, total = matches + (ours & theirs).total(), total + ours.total()
    return matches / total


def precision_of_one_long_text(hypotheses, references, n):
    if len(hypotheses) != len(references):
        raise ValueError("not as many references as hypotheses")
    return ngram_precision([[token for tokens in hypotheses for token in tokens]],
                           [[token for tokens in references for token in tokens]], n)  # fmt: skip


def joined_ngrams(tokens, n):
    return ["".join(gram) for gram in all_ngrams(tokens, n)]


def mean_up_to_n(hypotheses, references, n):
    return sum(ngram_precision(hypotheses, references, order) for order in range(1, n + 1)) / n


def precision_by_place(hypotheses, references, n):
    matches = total = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        ours, theirs = all_ngrams(hypothesis, n), all_ngrams(reference, n)
        matches += sum(one == other for one, other in zip(ours, theirs, strict=False))
        total += len(ours)
    return matches / total if total else 0.0


NGRAM_PRECISION = Exercise(
    answer=ngram_precision,
    points=2,
    minutes=20,
    returns=("precision",),
    banned=("nltk.", "sacrebleu.", "torchtext.data."),
    probes=[
        Probe("the words of one sentence", lambda draw: one_sentence_inputs(draw, 1)),
        Probe("pairs of words", lambda draw: one_sentence_inputs(draw, 2)),
        Probe("a word that is repeated", repeated_word_inputs),
        Probe("a long and a short sentence: one fraction", uneven_sentences_inputs),
        Probe("a word that another reference has", swapped_sentences_inputs),
        Probe("a sentence shorter than n", short_sentence_inputs),
        Probe("words, not letters", shared_letters_inputs),
        Probe("capital letters", capital_inputs),
    ],
    properties=[
        Property(
            "no n-gram: 0.0",
            lambda draw: {"hypotheses": [some_words(draw, 2), []], "references": [some_words(draw, 4)] * 2, "n": 3},
            zero_without_ngrams,
            without_ngrams,
        ),
        Property(
            "the order of the sentences does not matter",
            lambda draw: uneven_sentences_inputs(draw) | {"order": [1, 0]},
            order_of_sentences_does_not_matter,
            permuted_sentences,
        ),
        Property(
            "a reference for each hypothesis",
            lambda draw: {"hypotheses": [some_words(draw, 2)] * 2, "references": [some_words(draw, 2)] * 2},
            unequal_sides_are_refused,
            unequal_sides,
        ),
    ],
    misconceptions=[
        Misconception(
            "unclipped",
            precision_with(found=lambda ours, theirs: sum(c for gram, c in ours.items() if gram in theirs)),
            "An n-gram counts as often as the hypothesis has it. Then “the the the the” is perfect as soon as the "
            "reference holds one “the”. It counts at most as often as in the reference (Papineni et al. 2002, section "
            "2.1): the smaller of the two counts.",
        ),
        Misconception(
            "each_once",
            precision_with(count=lambda grams: Counter(set(grams))),
            "Each different n-gram counts once. A word that both sentences have twice is twice right: count, do not "
            "collect into sets.",
        ),
        Misconception(
            "recall",
            precision_with(total=lambda ours, theirs: theirs.total()),
            "The matches are divided by the n-grams of the reference. That is recall; precision asks how much of what "
            "the *hypothesis* says is right.",
        ),
        Misconception(
            "mean_of_sentences",
            precision_by_sentence,
            "Each sentence gets its own fraction, and these are averaged. BLEU adds up matches and n-grams over the "
            "corpus and divides once (Papineni et al. 2002, section 2.1.1): a sentence of one word does not weigh as "
            "much as one of twenty.",
        ),
        Misconception(
            "clipped_over_corpus",
            precision_of_whole_corpus,
            "All sentences are poured together before they are compared, so a word is right when any other reference "
            "has it. Match within each pair, then add up.",
        ),
        Misconception(
            "one_long_text",
            precision_of_one_long_text,
            "All sentences are put together into one before the n-grams are taken. Then some of them begin in one "
            "sentence and end in the next, and a word is right when any other reference has it. Match within each "
            "pair, then add up.",
        ),
        Misconception(
            "last_one_missing",
            precision_with(ngrams=lambda tokens, n: all_ngrams(tokens, n)[:-1]),
            "The last n-gram of each sentence is missing: there are `len(tokens) - n + 1` of them.",
        ),
        Misconception(
            "shorter_at_the_end",
            precision_with(ngrams=lambda tokens, n: [tuple(tokens[i : i + n]) for i in range(len(tokens))]),
            "At the end of a sentence, slices that hold fewer than n words are counted too. The last n-gram begins n "
            "words before the end: `range(len(tokens) - n + 1)`.",
        ),
        Misconception(
            "whole_sentence_for_ngram",
            precision_with(ngrams=lambda t, n: all_ngrams(t, n) if len(t) >= n else [tuple(t)]),
            "A sentence with fewer than n words counts as one n-gram. It has none, and adds nothing.",
        ),
        Misconception(
            "joined",
            precision_with(ngrams=joined_ngrams),
            "The words of an n-gram are joined to one string, so that “ab c” and “a bc” are the same. Compare tuples "
            "of words.",
        ),
        Misconception(
            "lowercased",
            precision_with(word=str.lower),
            "Capital letters are made small. Tokens are compared as they are: whoever wants a score without case "
            "lowers both sides before and says so.",
        ),
        Misconception(
            "same_place",
            precision_by_place,
            "An n-gram counts only where the reference has it in the very same place. One word more at the start, and "
            "nothing would be right: it may stand anywhere in the sentence.",
        ),
        Misconception(
            "n_ignored",
            precision_with(order=lambda n: 1),
            "Single words are counted whatever n is. An n-gram is n words in a row: `tokens[i : i + n]`.",
        ),
        Misconception(
            "mean_up_to_n",
            mean_up_to_n,
            "The precisions for 1 to n are averaged. Only n-grams of the one length n are asked for; `bleu` combines "
            "the four.",
        ),
        Misconception(
            "counted_up_to_n",
            precision_with(ngrams=lambda tokens, n: [gram for m in range(1, n + 1) for gram in all_ngrams(tokens, m)]),
            "N-grams of every length up to n are counted together. Only those of the one length n are asked for; "
            "`bleu` combines the four.",
        ),
        Misconception(
            "per_cent",
            precision_with(factor=100.0),
            "It is given in per cent. A fraction from 0 to 1 is asked for; `bleu` multiplies by 100 at the end.",
        ),
        Misconception(
            "division_by_zero",
            precision_without_looking,
            "Where no hypothesis has n words it divides by zero. Then there is nothing right, and the precision is "
            "0.0.",
        ),
        Misconception(
            "sides_unchecked",
            precision_with(strict=False),
            "With another number of references than hypotheses it goes on with the shorter list. Such a score means "
            "nothing, and nobody would notice: `zip(..., strict=True)` raises a ValueError.",
        ),
        Misconception(
            "at_least_one",
            precision_with(total=lambda ours, theirs: max(1, ours.total())),
            "A sentence too short for an n-gram adds 1 to the denominator, as in NLTK's corpus BLEU. It has no n-gram "
            "that could be wrong, so it adds 0.",
        ),
    ],
    hints=[
        "Count the n-grams of the hypothesis and those of its reference. How many of the first are covered by the "
        "second, if each may be used once? Add that up over all pairs, and divide once, at the end.",
        "`Counter` of tuples: `tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)`. Two Counters have an "
        "`&`: what does it give?",
        "`matches += (found & wanted).total()` and `total += found.total()` for each pair, then "
        "`return matches / total if total else 0.0`.",
    ],
)

# --- brevity_penalty --------------------------------------------------------------------------------------------------


def factors(subject, lengths):
    return [subject(hypothesis_length, reference_length) for hypothesis_length, reference_length in lengths]


def never_above_one(inputs, received):
    if any(not 0 <= factor <= 1 for factor in received):
        return "it is not always between 0 and 1: it is to punish short translations, and to reward none"
    return None


def longer_is_no_worse(inputs, received):
    if any(after < before for before, after in pairwise(received)):
        return "a longer translation gets a smaller factor: only short ones are punished"
    return None


def brevity_with(factor, of_nothing=0.0):
    """A `brevity_penalty` by a formula of hypothesis and reference length."""

    def penalty(hypothesis_length, reference_length):
        return of_nothing if hypothesis_length == 0 else factor(hypothesis_length, reference_length)

    return penalty


def ascending_lengths(draw: Draw) -> dict:
    reference = draw.integer(10, 20)
    return {"lengths": [[length, reference] for length in (1, reference // 2, reference, reference + 4, 3 * reference)]}


BREVITY_PENALTY = Exercise(
    answer=brevity_penalty,
    points=1,
    minutes=10,
    returns=("factors",),
    probes=[
        Probe(
            "a little short, and as long",
            lambda draw: {"lengths": [[r - draw.integer(1, 3), r] for r in [draw.integer(10, 20)]] + [[12, 12]]},
            factors,
        ),
        Probe("half as long, and longer", lambda draw: {"lengths": [[6 + draw.integer(0, 3), 14], [15, 11]]}, factors),
        Probe("very short, and very long", lambda draw: {"lengths": [[2, draw.integer(7, 9)], [50, 10]]}, factors),
        Probe(
            "no token at all",
            lambda draw: {"lengths": [[0, draw.integer(5, 9)], [8, 9], [0, 0]]},
            factors,
        ),
    ],
    properties=[
        Property("it is between 0 and 1", ascending_lengths, never_above_one, factors),
        Property("more tokens never cost", ascending_lengths, longer_is_no_worse, factors),
    ],
    misconceptions=[
        Misconception(
            "inverted",
            brevity_with(lambda h, r: math.exp(min(0.0, 1 - h / r))),
            "Long translations are punished and short ones are not. Precision already punishes words too many; the "
            "brevity penalty is for the opposite: exp(1 - reference / hypothesis) where the hypothesis is shorter.",
        ),
        Misconception(
            "ratio_inverted",
            brevity_with(lambda h, r: 1.0 if h >= r else math.exp(1 - h / r)),
            "The ratio is upside down: for a short translation the factor is above 1, a reward. It is exp(1 - "
            "reference / hypothesis) (Papineni et al. 2002, section 2.3).",
        ),
        Misconception(
            "ratio_inverted_twice",
            brevity_with(lambda h, r: 1.0 if h >= r else math.exp(h / r - 1)),
            "The exponent is hypothesis / reference - 1. That is a penalty, but too mild a one: the paper has 1 - "
            "reference / hypothesis, so that very short translations are left with next to nothing.",
        ),
        Misconception(
            "rewards_length",
            brevity_with(lambda h, r: math.exp(1 - r / h)),
            "Translations longer than their references get a factor above 1. It ends at 1: "
            "`min(0.0, 1 - reference_length / hypothesis_length)` in the exponent.",
        ),
        Misconception(
            "greater_for_less",
            brevity_with(lambda h, r: max(1.0, math.exp(1 - r / h))),
            "`max` stands where `min` is meant: short translations pay nothing, and long ones get a factor above 1.",
        ),
        Misconception(
            "both_ways",
            brevity_with(lambda h, r: math.exp(-abs(1 - r / h))),
            "Long translations are punished too. Precision does that already, since each word too many is an n-gram "
            "that does not match: from the reference's length on the factor is 1.",
        ),
        Misconception(
            "linear",
            brevity_with(lambda h, r: min(1.0, h / r)),
            "The factor is the plain ratio of the lengths. BLEU's falls faster: exp(1 - reference / hypothesis).",
        ),
        Misconception(
            "whole_division",
            brevity_with(lambda h, r: math.exp(min(0.0, 1.0 - r // h))),
            "`//` cuts the ratio down to a whole number, so that a translation a little too short pays nothing: `/` is "
            "meant.",
        ),
        Misconception(
            "power_forgotten",
            brevity_with(lambda h, r: max(0.0, min(1.0, 2 - r / h))),
            "The exponential is missing, or replaced by its first two terms. At half the length nothing would be left; "
            "exp(1 - reference / hypothesis) leaves a third.",
        ),
        Misconception(
            "division_by_zero",
            lambda h, r: math.exp(min(0.0, 1 - r / h)),
            "Without a single token it divides by zero. Whoever says nothing gets 0.0.",
        ),
        Misconception(
            "nothing_is_perfect",
            brevity_with(lambda h, r: math.exp(min(0.0, 1 - r / h)), of_nothing=1.0),
            "Without a single token the factor is 1. Saying nothing is the shortest translation of all: 0.0.",
        ),
        Misconception(
            "both_sides",
            brevity_with(lambda h, r: math.exp(1 - max(h, r) / min(h, r)) if r else 1.0),
            "Translations that are too long are punished as well. Precision does that already, for every word too "
            "many; this is for short ones alone, and 1.0 for the others.",
        ),
        Misconception(
            "bracket_around_the_difference",
            brevity_with(lambda h, r: math.exp(min(0.0, (1 - r) / h))),
            "A bracket: (1 - reference) / hypothesis is computed. The ratio comes first, and is taken from 1: `1 - "
            "reference_length / hypothesis_length`.",
        ),
    ],
    hints=[
        "Two cases, and a third where you would divide by zero: at least as long as the references, and shorter.",
        "Shorter: exp(1 - reference / hypothesis). What is the exponent where both are of one length? So what is the "
        "least of it and 0?",
        "After the case of length 0: `math.exp(min(0.0, 1 - reference_length / hypothesis_length))`.",
    ],
)

# --- bleu -------------------------------------------------------------------------------------------------------------


def replaced_word_inputs(draw: Draw) -> dict:
    """All but one of eight words are right: precisions 7/8, 6/7, 5/6, 4/5."""
    words = some_words(draw, 9)
    return {"hypotheses": [[*words[:7], words[8]]], "references": [words[:8]]}


def too_short_inputs(draw: Draw) -> dict:
    words = some_words(draw, 9)
    cut = draw.integer(5, 7)
    return {"hypotheses": [words[:cut]], "references": [words]}


def too_long_inputs(draw: Draw) -> dict:
    words = some_words(draw, 10)
    return {"hypotheses": [words], "references": [words[1:7]]}


def two_sentences_inputs(draw: Draw) -> dict:
    """A long one that is nearly right, and one that is not."""
    words, others = some_words(draw, 10), some_words(draw, 7)
    wrong = [*others[:4], others[6], others[5], others[4]]
    return {"hypotheses": [words[:8], wrong], "references": [words, others]}


def short_beside_long_inputs(draw: Draw) -> dict:
    """One hypothesis is longer than its reference and one is shorter; the shorter has not even four words."""
    words, others = some_words(draw, 9), some_words(draw, 8)
    return {"hypotheses": [words, others[:3]], "references": [words[2:8], others]}


def repeated_inputs(draw: Draw) -> dict:
    words = some_words(draw, 8)
    return {"hypotheses": [[*words[:6], words[0], words[0]]], "references": [words]}


def as_it_is_and_without_a_4gram(subject, hypotheses, references):
    three_in_a_row = [*hypotheses[0][:3], "else", *hypotheses[0][4:7]]
    return {"as it is": subject(hypotheses, references), "three in a row": subject([three_in_a_row], references[:1])}


def score_of_references(subject, references):
    return [subject(references, references), subject(references[:1], references[:1])]


def the_same_is_100(inputs, received):
    return None if all(abs(score - 100) < 1e-6 for score in received) else "the references themselves do not score 100"


def scores_both_ways(subject, hypotheses, references, order):
    again = subject([hypotheses[i] for i in order], [references[i] for i in order])
    return {"as they are": subject(hypotheses, references), "in another order": again}


def refused_sides(subject, hypotheses, references):
    return [raised(subject, hypotheses, references[:-1]), raised(subject, hypotheses[:-1], references)]


def bleu_with(precision=ngram_precision, orders=(1, 2, 3, 4), penalty=brevity_penalty, factor=100.0,
              lengths=lambda hypotheses, references: (sum(map(len, hypotheses)), sum(map(len, references))),
              combine=lambda precisions: math.exp(sum(map(math.log, precisions)) / len(precisions)),
              nothing=lambda precisions: 0.0):  # fmt: skip
    """A `bleu` with one thing changed."""

    def score(hypotheses, references):
        precisions = [precision(hypotheses, references, n) for n in orders]
        if min(precisions) == 0.0:
            return factor * nothing(precisions)
        return factor * penalty(*lengths(hypotheses, references)) * combine(precisions)

    return score


def mean_of_sentence_scores(hypotheses, references):
    scores = [bleu([one], [other]) for one, other in zip(hypotheses, references, strict=True)]
    return sum(scores) / len(scores)


def letters(sentences):
    return [list(" ".join(sentence)) for sentence in sentences]


def bleu_of_letters(hypotheses, references):
    return bleu(letters(hypotheses), letters(references))


def bleu_that_cannot_take_zero(hypotheses, references):
    precisions = [ngram_precision(hypotheses, references, n) for n in range(1, 5)]
    lengths = sum(map(len, hypotheses)), sum(map(len, references))
    return 100 * brevity_penalty(*lengths) * math.exp(sum(math.log(one) for one in precisions) / 4)


def precision_plus_one(hypotheses, references, n):
    precision = ngram_precision(hypotheses, references, n)
    count = sum(max(0, len(tokens) - n + 1) for tokens in hypotheses)
    return precision if n == 1 else (precision * count + 1) / (count + 1)


def mean_of_penalties(hypotheses, references):
    each = [brevity_penalty(len(one), len(other)) for one, other in zip(hypotheses, references, strict=True)]
    precisions = [ngram_precision(hypotheses, references, n) for n in range(1, 5)]
    if min(precisions) == 0.0:
        return 0.0
    return 100 * sum(each) / len(each) * math.exp(sum(map(math.log, precisions)) / 4)


def unclipped_lengths(hypotheses, references):
    """Where a hypothesis is longer than its reference, only the reference's length counts."""
    total = sum(map(len, references))
    return sum(min(len(one), len(other)) for one, other in zip(hypotheses, references, strict=True)), total


SAYS_UP_TO_THREE = "Only n-grams up to three words are counted: `range(1, 4)` ends at 3. BLEU goes up to 4."


def zero_for_a_zero(subject, hypotheses, references):
    return subject([[*hypotheses[0][:3], "else", *hypotheses[0][4:7]]], references)


def a_zero_stays(inputs, received):
    if received != 0:
        return "no four words in a row are right, so one of the precisions is 0, and yet the score is not"
    return None


BLEU = Exercise(
    answer=bleu,
    points=2,
    minutes=15,
    returns=("score",),
    builds_on=("ngram_precision", "brevity_penalty"),
    banned=("nltk.", "sacrebleu.", "torchtext.data."),
    probes=[
        Probe("one word of eight is wrong", replaced_word_inputs),
        Probe("a translation that is too short", too_short_inputs),
        Probe("a translation that is too long", too_long_inputs),
        Probe("two sentences", two_sentences_inputs),
        Probe("a sentence of three words beside a longer one", short_beside_long_inputs),
        Probe("a word said too often", repeated_inputs),
        Probe("no four words in a row", replaced_word_inputs, as_it_is_and_without_a_4gram),
    ],
    properties=[
        Property(
            "the references themselves score 100",
            lambda draw: {"references": [some_words(draw, 6), some_words(draw, 9)]},
            the_same_is_100,
            score_of_references,
        ),
        Property("0 as soon as one precision is 0", replaced_word_inputs, a_zero_stays, zero_for_a_zero),
        Property(
            "the order of the sentences does not matter",
            lambda draw: two_sentences_inputs(draw) | {"order": [1, 0]},
            order_of_sentences_does_not_matter,
            scores_both_ways,
        ),
        Property(
            "a reference for each hypothesis",
            two_sentences_inputs,
            unequal_sides_are_refused,
            refused_sides,
        ),
    ],
    misconceptions=[
        Misconception(
            "arithmetic_mean",
            bleu_with(combine=lambda precisions: sum(precisions) / 4),
            "The four precisions are averaged arithmetically. Long n-grams are rare, so their small numbers would "
            "hardly matter. BLEU takes the geometric mean (Papineni et al. 2002, section 2.1.3): the fourth root of "
            "the product.",
        ),
        Misconception(
            "product_without_root",
            bleu_with(combine=math.prod),
            "The precisions are multiplied, but the fourth root is missing: half of everything right would give 6 "
            "instead of 50. Divide the sum of the logarithms by 4.",
        ),
        Misconception(
            "mean_of_sentences",
            mean_of_sentence_scores,
            "Each sentence is scored, and the scores are averaged. BLEU is one number of a whole corpus: matches and "
            "lengths are added up first. A single sentence often has no four words in a row right, and would count 0.",
        ),
        Misconception(
            "no_brevity_penalty",
            bleu_with(penalty=lambda *lengths: 1.0),
            "The brevity penalty does nothing: it is missing, or it is given the numbers of sentences, which are "
            "equal, and not those of tokens. Whoever translates only the words that are certain would get 100.",
        ),
        Misconception(
            "lengths_swapped",
            bleu_with(lengths=lambda hypotheses, references: (sum(map(len, references)), sum(map(len, hypotheses)))),
            "The two lengths are handed over in the wrong order, so that long translations are punished and short ones "
            "are not: the hypothesis's length comes first.",
        ),
        Misconception(
            "penalty_by_sentence",
            mean_of_penalties,
            "Each sentence gets its own brevity penalty, and these are averaged. In BLEU a translation may be short "
            "here and long there: one penalty, of the lengths of the whole corpus.",
        ),
        Misconception(
            "lengths_clipped",
            bleu_with(lengths=unclipped_lengths),
            "Of a hypothesis that is longer than its reference only the reference's length is counted, so that a short "
            "one elsewhere is always punished. The length of the hypotheses is that of all their tokens.",
        ),
        Misconception(
            "fraction",
            bleu_with(factor=1.0),
            "The result is a fraction. Scores go from 0 to 100 here, as sacreBLEU's do: multiply by 100.",
        ),
        Misconception(
            "up_to_three",
            bleu_with(orders=(1, 2, 3)),
            SAYS_UP_TO_THREE,
        ),
        Misconception(
            "up_to_three_by_four",
            bleu_with(orders=(1, 2, 3), combine=lambda p: math.exp(sum(map(math.log, p)) / 4)),
            SAYS_UP_TO_THREE,
        ),
        Misconception(
            "up_to_five",
            bleu_with(orders=(1, 2, 3, 4, 5)),
            "N-grams of five words are counted too. BLEU goes from 1 to 4 (Papineni et al. 2002, section 2.3).",
        ),
        Misconception(
            "four_only",
            bleu_with(orders=(4,)),
            "Only four words in a row are counted. BLEU is the geometric mean over n-grams of 1, 2, 3 and 4 words.",
        ),
        Misconception(
            "sides_swapped",
            lambda hypotheses, references: bleu(references, hypotheses),
            "Hypotheses and references have changed places. The precision is that of the hypotheses, and it is they "
            "that may be too short.",
        ),
        Misconception(
            "letters",
            bleu_of_letters,
            "Letters are counted instead of words: were the tokens joined to a string? Each sentence is a list of "
            "tokens already.",
        ),
        Misconception(
            "smoothed",
            bleu_with(precision=precision_plus_one),
            "One is added to the counts from two words on. Such smoothing makes single sentences comparable, but the "
            "scores are others: here a precision of 0 makes the score 0, as sacreBLEU does with "
            '`smooth_method="none"`.',
        ),
        Misconception(
            "zeros_left_out",
            bleu_with(nothing=lambda p: math.exp(sum(math.log(one) for one in p if one) / max(1, sum(map(bool, p))))),
            "A precision of 0 is left out of the mean, or a small number stands in for it, so that its logarithm can "
            "be taken. Left out, it does less harm than a small one, and a number in its place decides the score: a "
            "precision of 0 makes the score 0.0.",
        ),
        Misconception(
            "logarithm_of_zero",
            bleu_that_cannot_take_zero,
            "`math.log(0)` is an error. Where one of the four precisions is 0 the geometric mean is 0: look for that "
            "first.",
        ),
        Misconception(
            "penalty_under_the_root",
            bleu_with(penalty=lambda h, r: brevity_penalty(h, r) ** 0.25),
            "The brevity penalty stands under the fourth root with the precisions, so that a translation half as long "
            "loses far too little. It multiplies the mean of the four, outside of the root.",
        ),
    ],
    hints=[
        "Four precisions, their geometric mean, the brevity penalty of the summed lengths, times 100. You have written "
        "the first and the third already.",
        "The geometric mean of four numbers is exp of the mean of their logarithms, and 0 where one of them is 0. The "
        "lengths are numbers of tokens: `sum(map(len, hypotheses))`.",
        "`precisions = [ngram_precision(hypotheses, references, n) for n in range(1, 5)]`; 0.0 if `min(precisions)` is "
        "0; else `100 * brevity_penalty(...) * math.exp(sum(math.log(p) for p in precisions) / 4)`.",
    ],
)

# --- CachedAttention --------------------------------------------------------------------------------------------------


def cache_inputs(draw: Draw, batch: int, length: int, d_model: int, n_heads: int, dropout: float = 0.0) -> dict:
    arguments = {"d_model": d_model, "n_heads": n_heads}
    weights = draw.weights(MultiHeadAttention(d_model, n_heads), scale=1.0)
    arguments |= {"dropout": dropout} if dropout else {}
    return {"arguments": arguments, "weights": weights, "x": draw.numbers(batch, length, d_model)}


def step_by_step(subject, arguments, weights, x):
    from transformer_lab.model import MultiHeadAttention

    cached = subject(build(MultiHeadAttention, arguments, weights).eval(), arguments["n_heads"])
    return torch.cat([cached.step(x[:, t : t + 1].clone()) for t in range(x.size(1))], dim=1)


def step_by_step_with_hidden(subject, arguments, weights, x, visible):
    from transformer_lab.model import MultiHeadAttention

    cached = subject(build(MultiHeadAttention, arguments, weights).eval(), arguments["n_heads"])
    outputs = []
    for t in range(x.size(1)):
        mask = visible[:, None, None, : t + 1]  # (batch, 1, 1, length)
        outputs.append(cached.step(x[:, t : t + 1].clone(), mask))
    return torch.cat(outputs, dim=1)


def two_at_once(subject, arguments, weights, x, mask):
    from transformer_lab.model import MultiHeadAttention

    cached = subject(build(MultiHeadAttention, arguments, weights).eval(), arguments["n_heads"])
    first = cached.step(x[:, :2].clone(), mask[None, None, :2, :2])
    return torch.cat([first, cached.step(x[:, 2:].clone(), mask[None, None, 2:])], dim=1)


def with_rows_moved(subject, arguments, weights, x, orders):
    from transformer_lab.model import MultiHeadAttention

    cached = subject(build(MultiHeadAttention, arguments, weights).eval(), arguments["n_heads"])
    cached.step(x[:, 0:1].clone())
    cached.step(x[:, 1:2].clone())
    outputs = {}
    for number, order in enumerate(orders, 1):
        cached.reorder(torch.tensor(order))
        position = 1 + number
        outputs[f"output after reorder {number}"] = cached.step(x[: len(order), position : position + 1].clone())
    return outputs


def positions_projected(subject, arguments, weights, x):
    from transformer_lab.model import MultiHeadAttention

    attention = build(MultiHeadAttention, arguments, weights).eval()
    counts = {name: [] for name in ("w_q", "w_k", "w_v", "w_o")}
    for name, count in counts.items():
        projection = getattr(attention, name)
        projection.register_forward_hook(lambda _, inputs, __, count=count: count.append(inputs[0].size(1)))
    cached = subject(attention, arguments["n_heads"])
    for t in range(x.size(1)):
        cached.step(x[:, t : t + 1].clone())
    return counts


def newest_alone_is_projected(inputs, received):
    for name, counts in received.items():
        if any(count > 1 for count in counts):
            return f"`{name}` is applied to earlier tokens again: that is what the cache is to save"
    return None


def two_caches(subject, arguments, weights, x):
    from transformer_lab.model import MultiHeadAttention

    attention = build(MultiHeadAttention, arguments, weights).eval()
    first, second = subject(attention, arguments["n_heads"]), subject(attention, arguments["n_heads"])
    first.step(x[:, 0:1].clone())
    alone = subject(attention, arguments["n_heads"]).step(x[:, 1:2].clone())
    return {"beside another": second.step(x[:, 1:2].clone()), "alone": alone}


def caches_are_apart(inputs, received):
    if not torch.allclose(received["beside another"], received["alone"], atol=1e-8):
        return "two caches share what they remember"
    return None


def in_both_modes(subject, arguments, weights, x):
    from transformer_lab.model import MultiHeadAttention

    outputs = {}
    for mode in ("training", "evaluation"):
        attention = build(MultiHeadAttention, arguments, weights).train(mode == "training")
        cached = subject(attention, arguments["n_heads"])
        outputs[mode] = torch.cat([cached.step(x[:, t : t + 1].clone()) for t in range(x.size(1))], dim=1)
    return outputs


def no_dropout_in_either(inputs, received):
    if not torch.allclose(received["training"], received["evaluation"], atol=1e-8):
        return "dropout acts on the weights: a translation would change from call to call"
    return None


class StepByStep:
    """A right cache without a buffer, whose parts can be replaced."""

    def __init__(self, attention, n_heads):
        self.attention, self.n_heads = attention, n_heads
        self.keys, self.values = [], []

    def project(self, name, x):
        return split_heads(getattr(self.attention, name)(x), self.n_heads)

    def remember(self, x):
        self.keys.append(self.project("w_k", x))
        self.values.append(self.project("w_v", x))

    def attend(self, query, keys, values, mask):
        return scaled_dot_product_attention(query, keys, values, mask)[0]

    def step(self, x, mask=None):
        self.remember(x)
        keys, values = torch.cat(self.keys, dim=2), torch.cat(self.values, dim=2)
        return self.attention.w_o(combine_heads(self.attend(self.project("w_q", x), keys, values, mask)))

    def reorder(self, indices):
        self.keys = [keys[indices] for keys in self.keys]
        self.values = [values[indices] for values in self.values]


class CacheThatOverwrites(StepByStep):
    def remember(self, x):
        self.keys, self.values = [self.project("w_k", x)], [self.project("w_v", x)]


class CacheOfKeysAlone(StepByStep):
    def remember(self, x):
        super().remember(x)
        self.values = self.values[-1:]


class CacheWithoutTheNewest(StepByStep):
    def step(self, x, mask=None):
        query = self.project("w_q", x)
        if not self.keys:
            self.remember(x)
            keys, values = self.keys[0], self.values[0]
        else:
            keys, values = torch.cat(self.keys, dim=2), torch.cat(self.values, dim=2)
            self.remember(x)
        mask = None if mask is None else mask[..., : keys.size(2)]
        return self.attention.w_o(combine_heads(self.attend(query, keys, values, mask)))


class CacheOfInputs(StepByStep):
    """Keeps what came in and projects all of it again."""

    def step(self, x, mask=None):
        self.keys.append(x)
        everything = torch.cat(self.keys, dim=1)
        keys, values = self.project("w_k", everything), self.project("w_v", everything)
        return self.attention.w_o(combine_heads(self.attend(self.project("w_q", x), keys, values, mask)))


class CacheThatGrowsInFront(StepByStep):
    def remember(self, x):
        self.keys.insert(0, self.project("w_k", x))
        self.values.insert(0, self.project("w_v", x))


class CacheWithoutMask(StepByStep):
    def attend(self, query, keys, values, mask):
        return super().attend(query, keys, values, None)


class CacheOfHeads(StepByStep):
    """Puts the tokens beside one another along the axis of the heads."""

    def step(self, x, mask=None):
        self.remember(x)
        keys, values = torch.cat(self.keys, dim=1), torch.cat(self.values, dim=1)
        return self.attention.w_o(combine_heads(self.attend(self.project("w_q", x), keys, values, mask)))


class CacheOfOneHead(StepByStep):
    def project(self, name, x):
        return getattr(self.attention, name)(x)[:, None]


class CacheWithoutOutput(StepByStep):
    def step(self, x, mask=None):
        self.remember(x)
        keys, values = torch.cat(self.keys, dim=2), torch.cat(self.values, dim=2)
        return combine_heads(self.attend(self.project("w_q", x), keys, values, mask))


class CacheThatReturnsWeights(StepByStep):
    def step(self, x, mask=None):
        self.remember(x)
        keys, values = torch.cat(self.keys, dim=2), torch.cat(self.values, dim=2)
        output, weights = scaled_dot_product_attention(self.project("w_q", x), keys, values, mask)
        return self.attention.w_o(combine_heads(output)), weights


class CacheOfQueriesToo(StepByStep):
    """Keeps the queries as well, so that each step answers all of them."""

    def __init__(self, attention, n_heads):
        super().__init__(attention, n_heads)
        self.queries = []

    def attend(self, query, keys, values, mask):
        self.queries.append(query)
        return super().attend(torch.cat(self.queries, dim=2), keys, values, mask)

    def reorder(self, indices):
        super().reorder(indices)
        self.queries = [queries[indices] for queries in self.queries]


class CacheWithoutScale(StepByStep):
    def attend(self, query, keys, values, mask):
        return super().attend(query * math.sqrt(query.size(-1)), keys, values, mask)


class CacheWithDropout(StepByStep):
    def attend(self, query, keys, values, mask):
        return scaled_dot_product_attention(query, keys, values, mask, self.attention.dropout)[0]


class CacheOfUnprojected(StepByStep):
    def remember(self, x):
        self.keys.append(split_heads(x, self.n_heads))
        self.values.append(split_heads(x, self.n_heads))


class CacheWithKeysForValues(StepByStep):
    def remember(self, x):
        self.keys.append(self.project("w_k", x))
        self.values.append(self.project("w_k", x))


class CacheOfTheModule(StepByStep):
    """Keeps keys and values on the attention itself, where a second cache finds them."""

    def __init__(self, attention, n_heads):
        self.attention, self.n_heads = attention, n_heads
        if not hasattr(attention, "kept"):
            attention.kept = [], []
        self.keys, self.values = attention.kept


class CacheThatMovesKeys(StepByStep):
    def reorder(self, indices):
        self.keys = [keys[indices] for keys in self.keys]
        if len(indices) != len(self.values[0]):
            self.values = [values[: len(indices)] for values in self.values]


class CacheThatStays(StepByStep):
    def reorder(self, indices):
        self.keys = [keys[: len(indices)] for keys in self.keys]
        self.values = [values[: len(indices)] for values in self.values]


class CacheThatMovesBack(StepByStep):
    """Row `indices[i]` becomes what row i was."""

    def reorder(self, indices):
        for kept in (self.keys, self.values):
            for number, old in enumerate(kept):
                new = old[: len(indices)].clone()
                for row, place in enumerate(indices.tolist()):
                    if place < len(new):
                        new[place] = old[row]
                kept[number] = new


class CacheThatMovesHeads(StepByStep):
    def reorder(self, indices):
        self.keys = [keys[:, indices] for keys in self.keys]
        self.values = [values[:, indices] for values in self.values]


class CacheThatMovesTheNewest(StepByStep):
    def reorder(self, indices):
        self.keys = [*(keys[: len(indices)] for keys in self.keys[:-1]), self.keys[-1][indices]]
        self.values = [*(values[: len(indices)] for values in self.values[:-1]), self.values[-1][indices]]


def masked_cache_inputs(draw: Draw) -> dict:
    """In each of two sentences another token of four is hidden; the first never is, so that each sees something."""
    hidden = draw.integer(1, 2)
    visible = torch.ones(2, 4, dtype=torch.bool)
    visible[0, hidden] = visible[1, 3 - hidden] = False
    return cache_inputs(draw, 2, 4, 4, 2) | {"visible": visible}


def siblings_inputs(draw: Draw) -> dict:
    """Two tokens in a step, which do not see each other; then two more, each of which sees one of them and itself."""
    mask = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1]], dtype=torch.bool)
    return cache_inputs(draw, 1, 4, 4, 2) | {"mask": mask}


class CacheWithACornerMask(StepByStep):
    def attend(self, query, keys, values, mask):
        causal = torch.ones(query.size(2), keys.size(2), dtype=torch.bool).tril()
        return super().attend(query, keys, values, causal if mask is None else causal & mask)


class CacheSplitByView(StepByStep):
    def project(self, name, x):
        return split_without_transpose(getattr(self.attention, name)(x), self.n_heads)


CACHED_ATTENTION = Exercise(
    answer=CachedAttention,
    blank=("__init__", "step", "reorder"),
    points=3,
    minutes=30,
    axes={"x": "batch length d_model", "output": "batch length d_model"},
    builds_on=("split_heads", "combine_heads", "scaled_dot_product_attention"),
    probes=[
        Probe("the first token", lambda draw: cache_inputs(draw, 1, 1, 2, 1), step_by_step),
        Probe("three tokens, one after the other", lambda draw: cache_inputs(draw, 1, 3, 2, 1), step_by_step),
        Probe("several heads and a batch", lambda draw: cache_inputs(draw, 2, 4, 6, 3), step_by_step),
        Probe("a mask hides a token in the cache", masked_cache_inputs, step_by_step_with_hidden),
        Probe("two tokens in one step", siblings_inputs, two_at_once),
        Probe(
            "rows that move, are repeated and left out",
            lambda draw: cache_inputs(draw, 3, 4, 4, 2) | {"orders": [[2, 0, 2], [1, 0]]},
            with_rows_moved,
        ),
        Probe("a row more", lambda draw: cache_inputs(draw, 3, 3, 4, 2) | {"orders": [[1, 2, 0]]}, with_rows_moved),
    ],
    properties=[
        Property(
            "a step projects the newest token alone",
            lambda draw: cache_inputs(draw, 2, 3, 4, 2),
            newest_alone_is_projected,
            positions_projected,
        ),
        Property("two caches are apart", lambda draw: cache_inputs(draw, 1, 2, 4, 2), caches_are_apart, two_caches),
        Property(
            "no dropout, whatever the mode",
            lambda draw: cache_inputs(draw, 1, 4, 8, 2, dropout=0.5),
            no_dropout_in_either,
            in_both_modes,
        ),
    ],
    misconceptions=[
        Misconception(
            "overwrites",
            CacheThatOverwrites,
            "Each step replaces the keys and values of the one before, so that every token sees itself alone. Append "
            "them to what is there.",
        ),
        Misconception(
            "values_forgotten",
            CacheOfKeysAlone,
            "The keys of all steps are kept, but only the newest value. Every key needs its value beside it: the "
            "weights mix the values.",
        ),
        Misconception(
            "newest_missing",
            CacheWithoutTheNewest,
            "The newest token attends to those before it, not to itself. Under the causal mask (section 3.2.3) a "
            "position sees itself too: append first, then attend.",
        ),
        Misconception(
            "projects_again",
            CacheOfInputs,
            "The vectors that came in are kept, and all of them are projected again in each step. The result is right, "
            "but the work is what it was without a cache: keep the keys and values.",
        ),
        Misconception(
            "grows_in_front",
            CacheThatGrowsInFront,
            "New keys and values are put in front of the old ones. Without a mask nobody notices, because attention "
            "does not know an order; a mask does: its last column belongs to the newest token.",
        ),
        Misconception(
            "mask_ignored",
            CacheWithoutMask,
            "The mask is not used. It hides a padding token that was fed, or a token of another hypothesis: hand it to "
            "the attention.",
        ),
        Misconception(
            "along_the_heads",
            CacheOfHeads,
            "Keys are put together along the axis of the heads. Split into heads they are (batch, heads, length, d_k): "
            "new tokens belong on axis 2.",
        ),
        Misconception(
            "one_head",
            CacheOfOneHead,
            "Nothing is split into heads, so one great head attends. Split query, keys and values as "
            "`MultiHeadAttention` does (section 3.2.2), and combine at the end.",
        ),
        Misconception(
            "no_output_projection",
            CacheWithoutOutput,
            "`w_o` is missing: it mixes what the heads have found (section 3.2.2).",
        ),
        Misconception(
            "returns_weights",
            CacheThatReturnsWeights,
            "`step` gives back the weights as well. `scaled_dot_product_attention` returns two things; only the output "
            "is asked for.",
        ),
        Misconception(
            "queries_kept",
            CacheOfQueriesToo,
            "The queries are kept too, so that each step answers all tokens again. Only the newest one asks: keep keys "
            "and values alone.",
        ),
        Misconception(
            "missing_scale",
            CacheWithoutScale,
            "The scores are not divided by √d_k. The result has to be the one that the attention gives without a "
            "cache: call `scaled_dot_product_attention`.",
        ),
        Misconception(
            "unprojected",
            CacheOfUnprojected,
            "The incoming vectors themselves serve as keys and values. They have to go through `w_k` and `w_v` first.",
        ),
        Misconception(
            "keys_for_values",
            CacheWithKeysForValues,
            "The values are projected by `w_k`. They have a matrix of their own, `w_v`.",
        ),
        Misconception(
            "dropout",
            CacheWithDropout,
            "Dropout acts on the weights when the model is in training mode. Decoding never drops out: hand over None.",
        ),
        Misconception(
            "shared",
            CacheOfTheModule,
            "Two caches share their memory, so that one sentence sees the words of another. Each object needs lists of "
            "its own, made in `__init__`; nothing may be kept in the class or on the attention.",
        ),
        Misconception(
            "reorder_keys_only",
            CacheThatMovesKeys,
            "`reorder` moves the keys and leaves the values where they are. A hypothesis then reads the words of "
            "another one: both have to move.",
        ),
        Misconception(
            "reorder_does_nothing",
            CacheThatStays,
            "`reorder` cuts off rows at the end, but moves none. Row i has to go on from where row `indices[i]` "
            "stands: `keys[indices]`.",
        ),
        Misconception(
            "reorder_backwards",
            CacheThatMovesBack,
            "`reorder` moves row i to place `indices[i]`. It is the other way round: row i becomes what row "
            "`indices[i]` was.",
        ),
        Misconception(
            "reorder_newest_only",
            CacheThatMovesTheNewest,
            "`reorder` moves the keys and values of the newest token alone. The whole history of a hypothesis moves.",
        ),
        Misconception(
            "reorder_heads",
            CacheThatMovesHeads,
            "`reorder` takes the heads by `indices`, not the rows: the batch is the first axis.",
        ),
        Misconception(
            "corner_mask",
            CacheWithACornerMask,
            "A causal triangle that begins in the upper left corner, as `is_causal=True` makes it, lets the first of "
            "the new queries see the first key alone. The newest token sees everything in the cache: attend without "
            "such a mask.",
        ),
        Misconception(
            "split_by_view",
            CacheSplitByView,
            "The heads are cut with `view(batch, n_heads, length, d_k)`. For a single token that is right; with two, "
            "words and features are mixed. Split the last axis, then `transpose(1, 2)`: your `split_heads` does it.",
        ),
    ],
    hints=[
        "What of the earlier tokens does the newest one need? Not their queries: those have been answered. Keep the "
        "rest from step to step, in the object.",
        "`__init__` makes an empty memory for keys and one for values. `step` projects `x` three times, splits into "
        "heads, puts the new key and value behind the old ones on axis 2, attends with the mask and no dropout, "
        "combines, and applies `w_o`. `reorder` takes rows of both memories.",
        "`keys = split_heads(self.attention.w_k(x), self.n_heads)`, and from the second step on "
        "`keys = torch.cat([self.keys, keys], dim=2)` (or `self.keys.append(keys)` with a `Cache`), kept in `self`; in "
        "`reorder`, `self.keys = self.keys[indices]`. The values likewise.",
    ],
)

EXERCISES = [GREEDY_DECODE, LENGTH_PENALTY, BEAM_SEARCH, NGRAM_PRECISION, BREVITY_PENALTY, BLEU, CACHED_ATTENTION]
