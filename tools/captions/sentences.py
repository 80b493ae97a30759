"""Picture captions in German and English, written by a grammar, with their word alignments.

`lexicon` has the words, `scenes` has what makes sense, and `phrases` has the forms of words and phrases. This file puts
them in order. `write_captions` writes the corpus that the package ships.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from lexicon import Noun, Place, english_adjective
from phrases import (
    RELATIVE,
    Layout,
    Piece,
    VerbForm,
    infinitive,
    is_plural,
    noun_phrase,
    prepositional_phrase,
    verb_form,
)
from scenes import (
    ALTHOUGH,
    BECAUSE,
    COMPANIONS,
    COUPLES,
    EXTRAS,
    FEATURES,
    PAIRED,
    PURPOSES,
    ROOM,
    SCENES,
    SINGLE,
    WORN_IN,
    Fixed,
    Frame,
    Scene,
    Slot,
    happens,
    nouns,
    wears,
)

from transformer_lab.data.captions import Caption


def generate_captions(count: int, seed: int = 0) -> list[Caption]:
    """Return `count` captions. No sentence of either language occurs twice, and a higher count only adds to the end."""
    captions: list[Caption] = []
    seen: set[str] = set()
    source = _captions(seed)
    while len(captions) < count:
        caption = next(source)
        if caption.german not in seen and caption.english not in seen:
            seen.add(caption.german)
            seen.add(caption.english)
            captions.append(caption)
    return captions


# Clauses

Choose = Callable[[], float]  # `random.Random.random`: its sequence is the same on every Python

MANNERS = {
    german: Piece((german,), (english,), ((0, 0),), (german,))
    for german, english in (
        ("allein", "alone"),
        ("fröhlich", "cheerfully"),
        ("friedlich", "peacefully"),
        ("langsam", "slowly"),
        ("laut", "loudly"),
        ("leise", "quietly"),
        ("schnell", "quickly"),
        ("vorsichtig", "carefully"),
        ("zusammen", "together"),
    )
}
HEADCOUNT = {"two": 2, "both": 2, "three": 3, "the+": 3, "+": 3, "four": 4, "some": 4, "several": 5, "many": 9}
SUBJECT_DETERMINERS = (
    *("a",) * 11, *("the",) * 8, *("two",) * 3, "three", "four", "some", "several", "many", "+", "the+", "the+", "both",
)  # fmt: skip
PLURAL_DETERMINERS = tuple(determiner for determiner in SUBJECT_DETERMINERS if is_plural(determiner))
SINGULAR_DETERMINERS = ("a", "a", "the")
A_GROUP_OF = Piece(("eine", "Gruppe", "von"), ("a", "group", "of"), ((0, 0), (1, 1), (2, 2)))
AND, AND_THEN = (Piece(("und",), ("and",), ((0, 0),)) for _ in range(2))  # of nouns, of verbs
HAIR = nouns("Haar")[0]
DULL_CLOTHES = nouns("Hose Hemd")  # not worth a word unless they are red, or new
NEEDS_PLACE = frozenset(("sitzen", "stehen", "liegen", "hängen", "stehen:parked"))


@dataclass(frozen=True, slots=True)
class Subject:
    pieces: tuple[Piece, ...]
    noun: Noun
    group: str  # "m", "f", "n" or "plural": what a relative pronoun agrees with
    plural: bool  # the number of the German verb
    english_plural: bool
    headcount: int
    owner: str  # the possessive that points back: "his", "her", "their"; "" where German and English disagree


@dataclass(slots=True)
class Clause:
    """A subject and what it does, before either language has put the words in order."""

    subject: Subject
    verb: VerbForm
    early: Layout  # definite objects, which stand before the place
    late: Layout
    place: Piece | None
    manner: Piece | None
    english: Layout
    adverb_at: str  # where English puts the manner: "before" the verb, "after" it, or at the "end"
    negation: Piece | None

    def _middle(self) -> Layout:
        """German between the finite verb and the prefix: known things, manner, place, new things."""
        between = [(piece, piece.german) for piece in (self.manner, self.place) if piece]
        return self.early + between + self.late

    def verb_second(self, front: Piece | None = None) -> Layout:
        """Main clause: the subject first or, behind something else that is first, after the verb."""
        verb, subject = self.verb, _german(*self.subject.pieces)
        start = [(verb.piece, verb.finite), (verb.piece, verb.reflexive)]
        opening = [(front, front.german), *start, *subject] if front else [*subject, *start]
        return [*opening, *self._middle(), (verb.piece, verb.prefix)]

    def place_first(self) -> Layout:
        place, self.place = self.place, None
        german = self.verb_second(place)
        self.place = place
        return german

    def verb_first(self) -> Layout:
        """Main clause behind a subordinate clause, or behind a subject that is told already."""
        verb = self.verb
        subject = _german(*self.subject.pieces)
        start = [(verb.piece, verb.finite), (verb.piece, verb.reflexive)]
        return [*start, *subject, *self._middle(), (verb.piece, verb.prefix)]

    def verb_last(self) -> Layout:
        """Subordinate clause. In a relative clause the pronoun is the subject, and `subject.pieces` is empty."""
        verb = self.verb
        return [(verb.piece, verb.reflexive), *_german(*self.subject.pieces), *self._middle(), (verb.piece, verb.final)]

    def infinitive(self) -> Layout:
        """ "um … zu" without a subject."""
        piece, final = infinitive(self.verb.verb)
        return [(piece, piece.german[: -len(final)]), *self._middle(), (piece, final)]

    def predicate(self, auxiliary: bool = True) -> Layout:
        """English after the subject."""
        verb = self.verb
        words: Layout = [(verb.piece, verb.auxiliary)] if auxiliary else []
        if self.negation:
            words.append((self.negation, self.negation.english[:1]))
        adverb = [(self.manner, self.manner.english)] if self.manner else []
        if self.adverb_at == "before":  # "is slowly pushing a stroller"
            words += [*adverb, (verb.piece, verb.main), *self.english]
        elif self.adverb_at == "after":  # "is walking slowly through the park"
            words += [(verb.piece, verb.main), *adverb, *self.english]
        else:  # "are playing soccer together"
            words += [(verb.piece, verb.main), *self.english, *adverb]
        if self.place:
            words.append((self.place, self.place.english))
        return words

    def in_english(self) -> Layout:
        return [*_english(*self.subject.pieces), *self.predicate()]


def _german(*pieces: Piece) -> Layout:
    return [(piece, piece.german) for piece in pieces]


def _english(*pieces: Piece) -> Layout:
    return [(piece, piece.english) for piece in pieces]


def _pick(choose: Choose, among: Sequence):
    return among[int(choose() * len(among))]


def _adjectives(choose: Choose, noun: Noun, rate: float) -> tuple[str, ...]:
    luck = choose()
    if luck > rate:
        return ()
    if luck < rate / 7 and noun.outer and noun.inner:
        outer, inner = _pick(choose, noun.outer), _pick(choose, noun.inner)
        return (outer,) if outer == "bunt" or (outer, inner) == ("alt", "blond") else (outer, inner)
    among = noun.outer * (2 if noun.kind == "person" else 1) + noun.inner
    return (_pick(choose, among),) if among else ()


# Who


@cache
def _one(noun: Noun, determiner: str, adjectives: tuple[str, ...] = ()) -> Subject:
    plural = is_plural(determiner)
    owner = "their" if plural else {"m": "his", "f": "her", "n": ""}[noun.gender]
    return Subject(
        pieces=(noun_phrase(noun, determiner, adjectives, "nominative"),),
        noun=noun,
        group="plural" if plural else noun.gender,
        plural=plural,
        english_plural=plural or noun.always_plural,
        headcount=HEADCOUNT.get(determiner, 9 if plural else 1),
        owner=owner if noun.kind == "person" else "",
    )


def _silent(subject: Subject) -> Subject:
    """The same subject where a pronoun, or nothing, stands for it."""
    return Subject(
        (), subject.noun, subject.group, subject.plural, subject.english_plural, subject.headcount, subject.owner
    )


def _simple_subject(choose: Choose, among: Sequence[Noun], number: str = "both") -> Subject:
    """One noun with its determiner and adjectives, so that a relative clause may follow."""
    noun = _pick(choose, among)
    if number == "singular" or noun in SINGLE or noun.kind == "thing":
        determiner = _pick(choose, SINGULAR_DETERMINERS)
    else:
        determiner = _pick(choose, PLURAL_DETERMINERS if number == "plural" else SUBJECT_DETERMINERS)
    return _one(noun, determiner, _adjectives(choose, noun, 0.5))


def _subject(choose: Choose, scene: Scene, frame: Frame, among: Sequence[Noun] = ()) -> Subject:
    """ "ein Junge", "zwei alte Männer in schwarzen Mänteln", "ein Mann und eine Frau", "eine Gruppe von Kindern"."""
    luck = choose()
    among = among or frame.subjects
    noun = _pick(choose, among)
    if frame.number != "singular" and luck < 0.15 and noun.kind != "thing":
        if luck < 0.06:
            others = [other for other in among if (noun.singular, other.singular) in COUPLES]
            if others:
                other = _pick(choose, others)
                first = noun_phrase(noun, "a", _adjectives(choose, noun, 0.3), "nominative")
                second = noun_phrase(other, "a", _adjectives(choose, other, 0.3), "nominative")
                owner = "their" if noun.kind == "person" else ""
                return Subject((first, AND, second), noun, "plural", True, True, 2, owner)
        elif luck < 0.12 and noun.singular in COMPANIONS:
            companion = _pick(choose, COMPANIONS[noun.singular])
            first = noun_phrase(noun, _pick(choose, ("a", "the")), (), "nominative")
            owner = "his" if noun.gender == "m" else "her"
            second = noun_phrase(companion, owner, _adjectives(choose, companion, 0.5), "nominative")
            return Subject((first, AND, second), noun, "plural", True, True, 2, "their")
        elif luck >= 0.12 and noun.kind == "person" and noun not in SINGLE:
            members = noun_phrase(noun, "+", _adjectives(choose, noun, 0.5), "dative")
            return Subject((A_GROUP_OF, members), noun, "f", False, False, 9, "")
    subject = _simple_subject(choose, (noun,), frame.number)
    if frame.dressed and luck > 0.82 and noun.kind == "person":
        return replace(subject, pieces=subject.pieces + _look(choose, scene, noun, subject.plural))
    return subject


def _look(choose: Choose, scene: Scene, noun: Noun, plural: bool) -> tuple[Piece, ...]:
    """ "in einem roten Hemd", "mit langen Haaren"."""
    if choose() < 0.25 and noun.singular in FEATURES:
        feature = _pick(choose, FEATURES[noun.singular])
        if feature is HAIR:
            return (prepositional_phrase("mit", ("with",), HAIR, "+", (_pick(choose, ("lang", "kurz")),), "dative"),)
        adjectives = _adjectives(choose, feature, 0.7)
        return (prepositional_phrase("mit", ("with",), feature, "+" if plural else "a", adjectives, "dative"),)
    clothes = wardrobe(scene, noun)
    if not clothes:
        return ()
    garment = _pick(choose, clothes)
    preposition, english = ("in", "in") if garment in WORN_IN else ("mit", "with")
    determiner = "+" if plural or garment in PAIRED else "a"
    adjectives = _adjectives(choose, garment, 1)
    return (prepositional_phrase(preposition, (english,), garment, determiner, adjectives, "dative"),)


@cache
def wardrobe(scene: Scene, person: Noun) -> tuple[Noun, ...]:
    return tuple(garment for garment in scene.clothes if wears(person, garment))


# What


@cache
def _fixed_piece(phrase: Fixed) -> Piece:
    return Piece(phrase.german, phrase.english, phrase.links, phrase.german[-1:])


@cache
def _with_to(noun: Noun, determiner: str, adjectives: tuple[str, ...]) -> Piece:
    """ "dem Kind", "to the child"."""
    inner = noun_phrase(noun, determiner, adjectives, "dative")
    links = ((0, 0), *((i, j + 1) for i, j in inner.links))
    return Piece(inner.german, ("to", *inner.english), links, inner.content)


def _determiner(choose: Choose, slot: Slot, noun: Noun, subject: Subject) -> str:
    determiner = _pick(choose, slot.determiners)
    several = subject.headcount > 1
    one_each = "each" in slot.determiners
    if determiner == "his" or (determiner == "each" and several and "his" in slot.determiners):
        if not subject.owner or (subject.headcount > 3 and not one_each):
            determiner = "each" if one_each else "the+" if noun in PAIRED else "the"
        else:
            return subject.owner + ("+" if noun in PAIRED or (several and one_each) else "")
    if determiner == "each" or (one_each and several):
        determiner = "+" if several else "a"
    if determiner in ("a", "not") and (noun in PAIRED or (several and determiner == "not")):
        determiner = {"a": "+", "not": "not+"}[determiner]
    return "mass" if determiner == "+" and noun.plural == "-" else determiner


def _place(choose: Choose, place: Place | Fixed) -> Piece:
    if isinstance(place, Fixed):
        return _fixed_piece(place)
    adjectives = _adjectives(choose, place.noun, 0.2) if place.english_article else ()
    determiner = _pick(choose, place.determiners)
    return prepositional_phrase(
        place.preposition, place.english, place.noun, determiner, adjectives, "dative", place.english_article
    )


def _fits(place: Place | Fixed, headcount: int) -> bool:
    return isinstance(place, Fixed) or headcount <= ROOM.get(place.noun.singular, 9)


def _clause(
    choose: Choose,
    frame: Frame,
    subject: Subject,
    place_rate: float = 0.85,
    manner_rate: float = 0.25,
    adjective_rate: float = 0.4,
) -> Clause | None:
    """What `frame` says of `subject`; None where the two do not go together."""
    verb = verb_form(frame.verb, subject.plural, subject.english_plural)
    early, late, english, postponed = [], [], [], []
    adverb_at = "before" if verb.main[0] == "getting" else "after"  # "is quickly getting off the train"
    negation = place = manner = None
    for slot in frame.slots:
        if isinstance(slot, Fixed):
            piece = _fixed_piece(slot)
            late.append((piece, piece.german))
            english.append((piece, piece.english))
            adverb_at = "end"
            continue
        noun = _pick(choose, slot.nouns)
        if slot.preposition and subject.headcount > ROOM.get(noun.singular, 9):
            return None
        determiner = _determiner(choose, slot, noun, subject)
        adjectives = _adjectives(choose, noun, 1 if noun in DULL_CLOTHES else adjective_rate)
        if slot.preposition and not slot.with_verb:
            piece = prepositional_phrase(slot.preposition, slot.english, noun, determiner, adjectives, slot.case)
            late.append((piece, piece.german))
            english.append((piece, piece.english))
        elif slot.with_verb:
            piece = noun_phrase(noun, determiner, adjectives, slot.case)
            late += [(verb.piece, (slot.preposition,)), (piece, piece.german)]
            english.append((piece, piece.english))
            adverb_at = "before"
        elif slot.last_in_english:
            piece = _with_to(noun, determiner, adjectives)
            early.append((piece, piece.german))
            postponed.append((piece, piece.english))
        elif determiner in ("not", "not+"):
            adjectives = ("warm",) if adjectives and "warm" in noun.outer else ()
            negation = piece = noun_phrase(noun, determiner, adjectives, slot.case)
            verb = verb_form(frame.verb, subject.plural, subject.english_plural, negated=True)
            late.append((piece, piece.german))
            english.append((piece, piece.english[1:]))
        else:
            piece = noun_phrase(noun, determiner, adjectives, slot.case)
            known = slot.case == "dative" or determiner.rstrip("+") in ("the", "his", "her", "their")
            known = known and frame.verb.prefix != "entlang"  # "langsam den Strand entlang"
            (early if known else late).append((piece, piece.german))
            english.append((piece, piece.english))
            adverb_at = "before" if slot.case == "accusative" else adverb_at
    if frame.places and (choose() < place_rate or frame.verb.name in NEEDS_PLACE):
        where = _pick(choose, frame.places)
        if not _fits(where, subject.headcount):
            return None
        place = _place(choose, where)
    if frame.manners and choose() < manner_rate:
        name = _pick(choose, frame.manners)
        if (name == "zusammen" and not subject.plural) or (name == "allein" and subject.headcount > 1):
            return None
        manner = MANNERS[name]
    return Clause(subject, verb, early, late, place, manner, english + postponed, adverb_at, negation)


# Sentences: each pattern gives the German and the English, both in order, or None where chance led nowhere

Sentence = tuple[Layout, Layout]

PERIOD = Piece((".",), (".",), ((0, 0),))
COMMA = Piece((",",), (",",), ((0, 0),))
GERMAN_COMMA = (Piece((",",), (), ()), (",",))  # where English writes none
ENGLISH_COMMA = (Piece((), (",",), ()), (",",))
WHILE_, BECAUSE_, ALTHOUGH_, THAT_ = (
    Piece((german,), (english,), ((0, 0),))
    for german, english in (("während", "while"), ("weil", "because"), ("obwohl", "although"), ("dass", "that"))
)
TO_WEAR, TO_SEE, TO_NOTICE, TO_ENJOY = (happens(verb, "") for verb in ("tragen", "sehen", "bemerken", "sich_freuen"))


def _plain(choose: Choose, scene: Scene) -> Sentence | None:
    """ "Ein Junge spielt im Park mit einem Ball.": subject, place or time first."""
    frame = _pick(choose, scene.frames)
    clause = _clause(choose, frame, _subject(choose, scene, frame))
    if not clause:
        return None
    luck = choose()
    if luck < 0.4 and clause.place:
        return clause.place_first(), clause.in_english()
    if luck > 0.82 and frame.subjects[0].kind != "thing":
        time = _fixed_piece(_pick(choose, scene.times))
        return clause.verb_second(time), [(time, time.english), ENGLISH_COMMA, *clause.in_english()]
    return clause.verb_second(), clause.in_english()


def _nobody(choose: Choose, scene: Scene) -> Sentence | None:
    """ "Auf dem Spielplatz spielen keine Kinder."."""
    frames = _crowded(scene)
    if not frames:
        return None
    frame, noun = _pick(choose, frames)
    clause = _clause(choose, frame, _one(noun, "no+"), place_rate=1, manner_rate=0)
    return clause and (clause.place_first(), clause.in_english())


@cache
def _crowded(scene: Scene) -> tuple[tuple[Frame, Noun], ...]:
    """What many people may be doing in a place, or none."""
    verbs = ("spielen", "sitzen", "stehen", "schwimmen", "tanzen", "arbeiten", "liegen")
    crowds = nouns("Kind Student Tourist Bauarbeiter")
    found = []
    for frame in scene.frames:
        places = tuple(replace(place, determiners=("the",)) for place in frame.places if isinstance(place, Place))
        if frame.verb.name in verbs and places and not frame.slots and frame.number == "both":
            found += [(replace(frame, places=places), noun) for noun in frame.subjects if noun in crowds]
    return tuple(found)


@cache
def _wearing(clothes: tuple[Noun, ...]) -> Frame:
    return replace(TO_WEAR, slots=(Slot(clothes, ("each",), "accusative"),))


def _dressed(choose: Choose, scene: Scene) -> Sentence | None:
    """ "Der alte Mann trägt einen langen Mantel und einen schwarzen Hut."."""
    frame = _pick(choose, scene.frames)
    subject = _simple_subject(choose, frame.subjects, frame.number)
    extras = tuple(garment for garment in wardrobe(scene, subject.noun) if garment in EXTRAS)
    clothes = tuple(garment for garment in wardrobe(scene, subject.noun) if garment not in EXTRAS)
    if not extras or not clothes:
        return None
    both = choose() < 0.4
    clause = _clause(choose, _wearing(clothes if both else clothes + extras), subject, adjective_rate=0.75)
    german, english = clause.verb_second(), clause.in_english()
    if both:
        more = _clause(choose, _wearing(extras), subject, adjective_rate=0.75)
        german += [(AND, AND.german), *more.late]
        english += [(AND, AND.english), *more.english]
    return german, english


def _two_actions(choose: Choose, scene: Scene) -> Sentence | None:
    """ "Ein Mann sitzt auf einer Bank und liest ein Buch."."""
    pairs = _postures(scene)
    if not pairs:
        return None
    posture, action, both = _pick(choose, pairs)
    subject = _subject(choose, scene, _narrower(posture, action), both)
    first = _clause(choose, posture, subject, manner_rate=0.1)
    second = _clause(choose, action, _silent(subject), place_rate=0, manner_rate=0.1)
    if not first or not second:
        return None
    german = first.place_first() if choose() < 0.35 else first.verb_second()
    german += [*_german(AND_THEN), *second.verb_first()]
    return german, [*first.in_english(), *_english(AND_THEN), *second.predicate(auxiliary=False)]


def _narrower(first: Frame, second: Frame) -> Frame:
    """The one that allows fewer subjects."""
    return second if first.number == "both" else first


@cache
def _postures(scene: Scene) -> tuple[tuple[Frame, Frame, tuple[Noun, ...]], ...]:
    """A posture, something to do in it, and those who do both."""
    pairs = []
    for posture in scene.frames:
        if posture.verb.name in ("sitzen", "stehen", "liegen") and not posture.slots:
            for action in scene.frames:
                both = tuple(noun for noun in posture.subjects if noun in action.subjects)
                agree = posture.number == action.number or "both" in (posture.number, action.number)
                places = tuple(place for place in posture.places if place in action.places or not action.places)
                if posture.verb.name in action.postures and both and agree and places:
                    pairs.append((replace(posture, places=places), action, both))
    return tuple(pairs)


@cache
def _relative_pronoun(group: str, case: str, english: str) -> Piece:
    return Piece((RELATIVE[case][group],), (english,), ((0, 0),))


def _who(subject: Subject) -> Piece:
    """The pronoun of a relative clause in which `subject` does something."""
    return _relative_pronoun(subject.group, "nominative", "who" if subject.noun.kind == "person" else "that")


def _subject_relative(choose: Choose, scene: Scene) -> Sentence | None:
    """ "Eine Frau, die einen roten Hut trägt, liest auf einer Bank ein Buch."."""
    pairs = _postures(scene)
    if pairs and choose() < 0.5:
        posture, action, among = _pick(choose, pairs)
        subject = _simple_subject(choose, among, _narrower(posture, action).number)
        inner = _clause(choose, posture, _silent(subject), manner_rate=0.1)
        outer = _clause(choose, action, _silent(subject), place_rate=0)
    else:
        action = _pick(choose, scene.frames)
        subject = _simple_subject(choose, action.subjects, action.number)
        clothes = wardrobe(scene, subject.noun) if action.dressed else ()
        if not clothes or action.verb.plural == TO_WEAR.verb.plural:
            return None
        inner = _clause(choose, _wearing(clothes), _silent(subject), adjective_rate=0.75)
        outer = _clause(choose, action, _silent(subject), place_rate=0.6)
    if not inner or not outer:
        return None
    who = _who(subject)
    german = [*_german(*subject.pieces), GERMAN_COMMA, *_german(who), *inner.verb_last(), GERMAN_COMMA]
    english = [*_english(*subject.pieces), *_english(who), *inner.predicate()]
    return german + outer.verb_first(), english + outer.predicate()


# What someone who is petted, watched, ... may be doing meanwhile
REST = frozenset(("sitzen", "stehen", "liegen"))
MOVE = frozenset(
    ("rennen", "springen", "spielen", "tanzen", "klettern", "singen", "malen", "joggen", "fahren:ride", "fressen")
)
ENCOUNTERS = {
    "streicheln": REST | {"schlafen"},
    "füttern": {"sitzen", "stehen"},
    "bürsten": {"stehen"},
    "fotografieren": REST | MOVE | {"schlafen", "schwimmen", "trinken", "gehen", "fliegen"},
    "an|schauen": REST | MOVE | {"schlafen", "schwimmen", "trinken"},
    "an|lächeln": REST | {"spielen", "singen", "tanzen", "lachen"},
    "an|feuern": {"rennen", "fahren:ride", "spielen"},
    "zu|schauen": MOVE | {"schwimmen", "arbeiten"},
    "zu|hören": {"singen", "spielen"},
    "zu|winken": REST | {"spielen", "tanzen"},
}


@cache
def _encounters(scene: Scene) -> tuple[tuple[Frame, Noun, tuple[Frame, ...]], ...]:
    """Somebody meets a person, an animal or a thing that does something too."""
    found = []
    for frame in scene.frames:
        if frame.verb.name in ENCOUNTERS and len(frame.slots) == 1:
            fitting = [doing for doing in scene.frames if doing.verb.name in ENCOUNTERS[frame.verb.name]]
            for noun in frame.slots[0].nouns:
                doings = tuple(doing for doing in fitting if noun in doing.subjects)
                if doings and noun not in SINGLE:
                    found.append((frame, noun, doings))
    return tuple(found)


def _object_relative(choose: Choose, scene: Scene) -> Sentence | None:
    """ "Ein Kind streichelt eine Katze, die auf dem Sofa liegt."."""
    encounters = _encounters(scene)
    if not encounters:
        return None
    frame, noun, doings = _pick(choose, encounters)
    slot = frame.slots[0]
    determiner = _pick(choose, [one for one in slot.determiners if one not in ("his", "each")])
    doing = _pick(choose, doings)
    if doing.number == ("singular" if is_plural(determiner) else "plural"):
        return None
    met = _silent(_one(noun, determiner))
    slots = (replace(slot, nouns=(noun,), determiners=(determiner,)),)
    outer = _clause(choose, replace(frame, slots=slots, places=()), _subject(choose, scene, frame), manner_rate=0)
    inner = _clause(choose, doing, met, place_rate=0.5 if doing.slots else 1)
    if not outer or not inner:
        return None
    who = _who(met)
    german = [*outer.verb_second(), GERMAN_COMMA, *_german(who), *inner.verb_last()]
    return german, [*outer.in_english(), *_english(who), *inner.predicate()]


def _met_relative(choose: Choose, scene: Scene) -> Sentence | None:
    """ "Der Musiker, dem die Kinder zuhören, spielt Gitarre."."""
    encounters = _encounters(scene)
    if not encounters:
        return None
    frame, noun, doings = _pick(choose, encounters)
    doing = _pick(choose, doings)
    met = _simple_subject(choose, (noun,), doing.number)
    subject = _simple_subject(choose, frame.subjects, frame.number)
    *direct, last = frame.verb.progressive
    stranded = last in ("to", "at")
    if stranded and noun.kind != "person":
        return None
    case = frame.slots[0].case
    if case == "accusative" and "m" not in (met.group, subject.group):
        return None  # "die Katze, die das Kind anschaut": who looks at whom?
    inner = _clause(choose, replace(frame, slots=(), places=()), subject)
    outer = _clause(choose, doing, _silent(met), place_rate=0.5 if doing.slots else 1)
    if not inner or not outer:
        return None
    pronoun = _relative_pronoun(met.group, case, "whom" if noun.kind == "person" else "that")
    german = [*_german(*met.pieces), GERMAN_COMMA, *_german(pronoun), *inner.verb_last(), GERMAN_COMMA]
    english = _english(*met.pieces)
    verb = inner.verb
    if stranded:  # "to whom the children are listening"
        english += [(verb.piece, (last,)), *_english(pronoun, *subject.pieces)]
        english += [(verb.piece, (*verb.auxiliary, *direct))]
    else:
        english += [*_english(pronoun), *inner.in_english()]
    return german + outer.verb_first(), english + outer.predicate()


@cache
def _is(plural: bool, english_plural: bool) -> Piece:
    return Piece(("sind" if plural else "ist",), ("are" if english_plural else "is",), ((0, 0),))


@cache
def _quality(adjective: str, noun: Noun) -> Piece:
    return Piece((adjective,), (english_adjective(adjective, noun),), ((0, 0),), (adjective,))


def _thing_relative(choose: Choose, scene: Scene) -> Sentence | None:
    """ "Der Ball, den der Junge wirft, ist rot."."""
    if choose() < 0.2:
        frame = _pick(choose, scene.frames)
        subject = _simple_subject(choose, frame.subjects, "singular")
        clothes = wardrobe(scene, subject.noun)
        if not clothes:
            return None
        noun = _pick(choose, clothes)
        frame, several = TO_WEAR, noun in PAIRED
    else:
        frame, index, noun = _pick(choose, _handled(scene))
        slot = frame.slots[index]
        subject = _simple_subject(choose, frame.subjects, frame.number)
        one_each = subject.plural and "each" in slot.determiners
        several = noun in PAIRED or ((one_each or "+" in slot.determiners) and noun.plural != "-")
        frame = replace(frame, slots=frame.slots[:index] + frame.slots[index + 1 :])
    thing = _one(noun, "the+" if several else "the")
    inner = _clause(choose, frame, subject, place_rate=0.25)
    if not inner:
        return None
    inner.adverb_at = "before"
    that = _relative_pronoun(thing.group, "accusative", "that")
    end = _is(thing.plural, thing.english_plural), _quality(_pick(choose, noun.outer + noun.inner), noun)
    german = [*_german(*thing.pieces), GERMAN_COMMA, *_german(that), *inner.verb_last(), GERMAN_COMMA, *_german(*end)]
    return german, [*_english(*thing.pieces, that), *inner.in_english(), *_english(*end)]


@cache
def _handled(scene: Scene) -> tuple[tuple[Frame, int, Noun], ...]:
    """Actions, and the things they are done to."""
    return tuple(
        (frame, index, noun)
        for frame in scene.frames
        if frame.verb.name not in ("bauen", "bestellen", "verkaufen")
        for index, slot in enumerate(frame.slots)
        if isinstance(slot, Slot) and slot.case == "accusative" and not slot.preposition
        for noun in slot.nouns
        if noun.kind == "thing" and noun.outer + noun.inner
    )


def _place_relative(choose: Choose, scene: Scene) -> Sentence | None:
    """ "Die Bank, auf der der alte Mann sitzt, ist grün."."""
    frame = _pick(choose, scene.frames)
    places = [place for place in frame.places if isinstance(place, Place) and place.noun.outer + place.noun.inner]
    if frame.slots or not places:
        return None
    place = _pick(choose, places)
    subject = _simple_subject(choose, frame.subjects, frame.number)
    inner = _clause(choose, replace(frame, places=()), subject)
    if not inner or not _fits(place, subject.headcount):
        return None
    noun = place.noun
    preposition = Piece((place.preposition,), place.english, tuple((0, i) for i in range(len(place.english))))
    start = *_one(noun, "the").pieces, preposition, _relative_pronoun(noun.gender, "dative", "which")
    end = _is(False, noun.always_plural), _quality(_pick(choose, noun.outer + noun.inner), noun)
    german = [*_german(start[0]), GERMAN_COMMA, *_german(*start[1:]), *inner.verb_last(), GERMAN_COMMA, *_german(*end)]
    return german, [*_english(*start), *inner.in_english(), *_english(*end)]


def _subordinate(conjunction: Piece, main: Clause, other: Clause, fronted: bool = False) -> Sentence:
    german = [*_german(conjunction), *other.verb_last()]
    english = [*_english(conjunction), *other.in_english()]
    if fronted:
        return [*german, (COMMA, (",",)), *main.verb_first()], [*english, (COMMA, (",",)), *main.in_english()]
    return [*main.verb_second(), GERMAN_COMMA, *german], main.in_english() + english


def _meanwhile(choose: Choose, scene: Scene) -> Sentence | None:
    """ "Eine Frau liest ein Buch, während ein Hund schläft.", in either order."""
    first, second = _pick(choose, scene.frames), _pick(choose, scene.frames)
    if first.verb.plural == second.verb.plural or "thing" in (first.subjects[0].kind, second.subjects[0].kind):
        return None
    main = _clause(choose, first, _subject(choose, scene, first), place_rate=0.5)
    other = _clause(choose, second, _simple_subject(choose, second.subjects, second.number), place_rate=0.5)
    if not main or not other:
        return None
    return _subordinate(WHILE_, main, other, fronted=choose() < 0.3)


ENJOYED = frozenset(("spielen", "singen", "tanzen", "malen", "lachen", "lesen"))


def _noticed(choose: Choose, scene: Scene) -> Sentence | None:
    """ "Die Mutter sieht, dass die Kinder im Garten spielen."."""
    frame = _pick(choose, scene.frames)
    among = _noticeable(frame)
    if not among:
        return None
    verbs = (TO_SEE, TO_SEE, TO_NOTICE, TO_ENJOY) if frame.verb.name in ENJOYED else (TO_SEE, TO_SEE, TO_NOTICE)
    main = _clause(choose, _pick(choose, verbs), _simple_subject(choose, scene.watchers, "singular"))
    other = _clause(choose, frame, _simple_subject(choose, among, frame.number), manner_rate=0.1)
    return other and _subordinate(THAT_, main, other)


@cache
def _noticeable(frame: Frame) -> tuple[Noun, ...]:
    young = nouns("Junge Mädchen Kind Baby")
    return tuple(noun for noun in frame.subjects if noun.kind == "animal" or noun in young)


def _with_reason(choose: Choose, scene: Scene) -> Sentence | None:
    """ "Das Baby weint, weil es Hunger hat.", "Obwohl es kalt ist, trägt der Junge keine Jacke."."""
    conjunction, reasons = (BECAUSE_, BECAUSE) if choose() < 0.6 else (ALTHOUGH_, ALTHOUGH)
    reason, frame = _pick(choose, reasons)
    subject = _simple_subject(choose, frame.subjects, frame.number)
    main = _clause(choose, frame, subject, place_rate=0.9, manner_rate=0)
    if not main:
        return None
    if isinstance(reason, Fixed):
        clause = _fixed_piece(reason)
        if choose() < 0.35:
            start = conjunction, clause, COMMA
            return [*_german(*start), *main.verb_first()], [*_english(*start), *main.in_english()]
    else:
        pronoun = "they" if subject.plural else subject.noun.pronoun
        if not pronoun:
            return None
        clause = _state(reason, {"m": "er", "f": "sie", "n": "es", "plural": "sie"}[subject.group], pronoun)
    german = [*main.verb_second(), GERMAN_COMMA, *_german(conjunction, clause)]
    return german, [*main.in_english(), *_english(conjunction, clause)]


@cache
def _state(reason: tuple[str, str, str, str], german_pronoun: str, pronoun: str) -> Piece:
    """ "sie müde sind", "they are tired"; "er Hunger hat", "he is hungry"."""
    word, singular, plural, english = reason
    german_verb, verb = (plural, "are") if pronoun == "they" else (singular, "is")
    return Piece((german_pronoun, word, german_verb), (pronoun, verb, english), ((0, 0), (1, 2), (2, 1)))


def _with_purpose(choose: Choose, scene: Scene) -> Sentence | None:
    """ "Ein Kind bückt sich, um einen roten Ball aufzuheben."."""
    frame, purpose = _pick(choose, PURPOSES)
    subject = _subject(choose, scene, frame)
    main = _clause(choose, frame, subject)
    aim = _clause(choose, purpose, _silent(subject))
    if not main or not aim:
        return None
    to = infinitive(purpose.verb)[0]
    return [*main.verb_second(), GERMAN_COMMA, *aim.infinitive()], [*main.in_english(), *_english(to), *aim.english]


PATTERNS = (
    *(_plain,) * 36,
    *(_meanwhile,) * 12,
    *(_subject_relative,) * 10,
    *(_two_actions,) * 8,
    *(_object_relative,) * 8,
    *(_noticed,) * 8,
    *(_with_reason,) * 8,
    *(_with_purpose,) * 6,
    *(_thing_relative,) * 6,
    *(_met_relative,) * 3,
    *(_place_relative,) * 3,
    *(_dressed,) * 3,
    _nobody,
)
ANY_SCENE = tuple(scene for scene in SCENES for _ in range(len(scene.frames) // 10))  # the richer, the more often


# Pairs

LINKS = [f"{i}-{j}" for i in range(64) for j in range(64)]  # each made once: a corpus has half a million of them


def _captions(seed: int) -> Iterator[Caption]:
    """Captions without end; some come more than once."""
    choose = random.Random(seed).random
    while True:
        sentence = _pick(choose, PATTERNS)(choose, _pick(choose, ANY_SCENE))
        caption = sentence and _caption(*sentence)
        if caption and 6 <= len(caption.german_tokens) <= 21:  # five to twenty words
            yield caption


def _caption(german: Layout, english: Layout) -> Caption | None:
    """The words of both languages and the links between them; None if a noun or an adjective comes twice."""
    german.append((PERIOD, PERIOD.german))
    english.append((PERIOD, PERIOD.english))
    german_words: list[str] = []
    content: list[str] = []
    starts: dict[Piece, int] = {}  # of pieces whose German words stand together
    german_parts: dict[Piece, list[int]] = {}  # of the others
    for piece, words in german:
        if words:
            start = len(german_words)
            german_words += words
            content += piece.content
            if words is piece.german:
                starts[piece] = start
            else:
                german_parts.setdefault(piece, []).extend(range(start, len(german_words)))
    if len(set(content)) < len(content):
        return None
    english_words: list[str] = []
    english_parts: dict[Piece, list[int]] = {}
    links = []  # numbers in LINKS
    for piece, words in english:
        if words:
            start = len(english_words)
            english_words += words
            if words is piece.english and piece in starts:
                corner = 64 * starts[piece] + start
                links += [corner + 64 * i + j for i, j in piece.links]
            else:
                english_parts.setdefault(piece, []).extend(range(start, len(english_words)))
    for piece, there in english_parts.items():
        here = german_parts.get(piece) or range(starts.get(piece, 0), starts.get(piece, 0) + len(piece.german))
        if piece.links is None:
            links += [64 * i + j for i in here for j in there]
        else:
            links += [64 * here[i] + there[j] for i, j in piece.links]
    links.sort()
    german_words[0] = german_words[0][0].upper() + german_words[0][1:]
    english_words[0] = english_words[0][0].upper() + english_words[0][1:]
    return Caption(
        german=" ".join(german_words).replace(" ,", ",").replace(" .", "."),
        english=" ".join(english_words).replace(" ,", ",").replace(" .", "."),
        links=" ".join([LINKS[link] for link in links]),
    )
