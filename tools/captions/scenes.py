"""The scenes that captions describe, each with its people, animals, things, and places.

Scenes keep captions sensible: no tractors in the living room, no dogs that play the guitar, no swimming in a suit. Each
line of a scene is an event, which `sentences` puts into German and English.
"""

from dataclasses import dataclass

from lexicon import NOUNS, PLACES_BY_NAME, VERBS_BY_NAME, Noun, Place, Verb


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """A complement with a noun: an object, or a prepositional phrase that belongs to the verb.

    Determiners are those of `phrases`, plus two that depend on the subject: "his" is the possessive that fits, and
    "each" is "a" for one subject and a plural for several, because several people wear hats rather than a hat.
    """

    nouns: tuple[Noun, ...]
    determiners: tuple[str, ...]
    case: str
    preposition: str = ""
    english: tuple[str, ...] = ()
    with_verb: bool = False  # the preposition has no English equivalent: "reitet auf einem Pferd", "is riding a horse"
    last_in_english: bool = False  # "liest dem Kind ein Buch vor", "is reading a book to the child"


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    """A phrase that never changes: "Gitarre" in "spielt Gitarre", "is playing the guitar"."""

    german: tuple[str, ...]
    english: tuple[str, ...]
    links: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A single event: the verb, who does it, to what, where, and how."""

    verb: Verb
    subjects: tuple[Noun, ...]
    slots: tuple[Slot | Fixed, ...]
    places: tuple[Place | Fixed, ...]
    manners: tuple[str, ...]
    postures: tuple[str, ...]  # postures in which people do it: "sitzen" in "sitzt auf einer Bank und liest ein Buch"
    dressed: bool  # may mention the subject's clothes; False for swimming
    number: str  # of the subject: "both", "singular" or "plural"


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    frames: tuple[Frame, ...]
    clothes: tuple[Noun, ...]
    times: tuple[Fixed, ...]
    watchers: tuple[Noun, ...]  # people who see, notice, or enjoy what happens


def fixed(phrase: str) -> Fixed:
    """Parse "beim_Spielen:play": two German words for one in English. Groups have the same order in both languages."""
    german, english, links = [], [], []
    for group in phrase.split():
        left, right = (side.split("_") for side in group.split(":"))
        links += [(len(german) + i, len(english) + j) for i in range(len(left)) for j in range(len(right))]
        german += left
        english += right
    return Fixed(tuple(german), tuple(english), tuple(links))


def nouns(names: str) -> tuple[Noun, ...]:
    return tuple(NOUNS[name] for name in names.split())


def accusative(names: str, determiners: str) -> Slot:
    return Slot(nouns(names), tuple(determiners.split()), "accusative")


def dative(names: str, determiners: str, to: bool = False) -> Slot:
    return Slot(nouns(names), tuple(determiners.split()), "dative", english=("to",) if to else (), last_in_english=to)


def phrase(preposition: str, case: str, english: str, names: str, determiners: str) -> Slot:
    """Return a prepositional complement. If the English is "", the German preposition belongs to the verb."""
    words = tuple(english.split())
    return Slot(nouns(names), tuple(determiners.split()), case, preposition, words, with_verb=not words)


def happens(
    verb: str,
    subjects: str,
    *slots: Slot | Fixed,
    at: str = "",
    how: str = "",
    posture: str = "",
    dressed: bool = True,
    number: str = "both",
) -> Frame:
    return Frame(
        verb=VERBS_BY_NAME[verb],
        subjects=nouns(subjects),
        slots=slots,
        places=tuple(fixed(name) if ":" in name else PLACES_BY_NAME[name] for name in at.split(", ") if name),
        manners=tuple(how.split()),
        postures=tuple(posture.split()),
        dressed=dressed,
        number=number,
    )


ACC, DAT = "accusative", "dative"
KIDS = "Junge Mädchen Kind "
GROWN = "Mann Frau "
PEOPLE = KIDS + GROWN
PARENTS = "Mutter Vater "
OLD = "Großmutter Großvater "
FAMILY = PARENTS + OLD
OUTSIDE = "draußen:outside"

MORNING, AFTERNOON, EVENING, SUNDAY, SUNNY, SUMMER, WINTER = map(fixed, (
    "am:in_the Morgen:morning",
    "am:in_the Nachmittag:afternoon",
    "am:in_the Abend:evening",
    "am:on Sonntag:Sunday",
    "an:on einem:a sonnigen:sunny Tag:day",
    "an:on einem:a warmen:warm Sommertag:summer_day",
    "an:on einem:a kalten:cold Wintertag:winter_day",
))  # fmt: skip

PARK = Scene(
    clothes=nouns(
        "Hut Mütze Jacke Hemd Pullover Kleid Sommerkleid Rock Hose Sonnenbrille Strohhut Rucksack Mantel"
    ),
    times=(MORNING, AFTERNOON, EVENING, SUNDAY, SUNNY),
    watchers=nouns(GROWN + FAMILY),
    frames=(
        happens("spielen", KIDS, phrase("mit", DAT, "with", "Ball Luftballon", "a a the his"),
                at="in Park, auf Wiese, in Garten, auf Spielplatz, " + OUTSIDE, how="zusammen fröhlich"),
        happens("spielen", PEOPLE, phrase("mit", DAT, "with", "Hund Welpe", "a the his"),
                at="in Park, auf Wiese, in Garten"),
        happens("spielen", KIDS, at="in Park, auf Wiese, auf Spielplatz, in Garten, unter Baum, " + OUTSIDE,
                how="zusammen allein fröhlich"),
        happens("spielen", "Hund Welpe", phrase("mit", DAT, "with", "Ball Stock", "a a the"),
                at="in Park, auf Wiese, in Garten, in Gras"),
        happens("rennen", KIDS + "Hund Welpe", phrase("durch", ACC, "through", "Park Garten Gras", "the"),
                how="schnell"),
        happens("rennen", KIDS + "Hund Läufer", phrase("über", ACC, "across", "Wiese Brücke", "the the a"),
                how="schnell"),
        happens("rennen", KIDS + "Hund", phrase("um", ACC, "around", "Baum Bank", "a the")),
        happens("rennen", KIDS, phrase("zu", DAT, "to", "Spielplatz See Teich Brücke", "the"), how="schnell"),
        happens("sitzen", PEOPLE + OLD + "Student", at="auf Bank, unter Baum, auf Wiese, in Gras, auf Decke, an See",
                how="zusammen allein"),
        happens("sitzen", "Hund Katze Kaninchen", at="in Gras, unter Baum, neben Bank, neben Baum"),
        happens("stehen", GROWN + "Student", at="neben Baum, an See, auf Brücke, neben Bank"),
        happens("liegen", PEOPLE + "Student", at="auf Wiese, in Gras, unter Baum, auf Decke"),
        happens("liegen", "Hund Katze", at="in Gras, unter Baum, neben Bank"),
        happens("schlafen", "Hund Katze Welpe", at="in Gras, unter Baum, auf Wiese", how="friedlich"),
        happens("schlafen", GROWN + "Student Baby", at="in Gras, unter Baum, auf Decke", how="friedlich"),
        happens("lesen", GROWN + OLD + "Student", accusative("Buch Zeitung", "each each the"),
                at="auf Bank, unter Baum, in Park, auf Decke, in Gras, an See, " + OUTSIDE, posture="sitzen liegen"),
        happens("lesen", KIDS, accusative("Buch", "each each the"), at="unter Baum, in Garten, auf Decke, " + OUTSIDE,
                posture="sitzen liegen"),
        happens("füttern", PEOPLE + OLD, accusative("Ente Vogel", "+ the+"), at="an See, an Teich, in Park",
                posture="sitzen stehen"),
        happens("füttern", PEOPLE + OLD, accusative("Ente Vogel", "+ the+"), fixed("mit:with altem:old Brot:bread")),
        happens("streicheln", PEOPLE + OLD, accusative("Hund Katze Welpe", "a a the his"), at="in Park, in Garten",
                posture="sitzen"),
        happens("schieben", GROWN + FAMILY, accusative("Kinderwagen", "a a the"),
                phrase("durch", ACC, "through", "Park", "the"), how="langsam"),
        happens("spielen", GROWN + "Student Mädchen Musiker", fixed("Gitarre:the_guitar"),
                at="in Park, auf Bank, unter Baum, auf Wiese, an See, in Gras", posture="sitzen stehen"),
        happens("spielen", "Student Mädchen Musiker Frau", fixed("Flöte:the_flute"),
                at="in Park, auf Bank, unter Baum, an See", posture="sitzen stehen"),
        happens("werfen", PEOPLE, accusative("Ball Stock", "a a the"), at="in Park, auf Wiese"),
        happens("werfen", PEOPLE, accusative("Ball Stock Stein", "a the"),
                phrase("in", ACC, "into", "See Teich", "the")),
        happens("fangen", KIDS + "Hund", accusative("Ball", "a a the"), at="in Park, auf Wiese, in Garten"),
        happens("klettern", KIDS + "Katze", phrase("auf", ACC, "up", "Baum", "a a the"), how="vorsichtig schnell",
                number="singular"),
        happens("gehen", GROWN + OLD + "Student", phrase("durch", ACC, "through", "Park Garten", "the"),
                how="langsam zusammen allein"),
        happens("gehen", PEOPLE + OLD, phrase("über", ACC, "across", "Brücke Wiese", "the the a"),
                how="langsam zusammen allein"),
        happens("gehen", GROWN + OLD, phrase("um", ACC, "around", "See Teich", "the"), how="langsam zusammen"),
        happens("vorbei|gehen", GROWN + OLD + "Student", phrase("an", DAT, "past", "Bank Brunnen Teich", "a the")),
        happens("joggen", GROWN + "Student Läufer", phrase("durch", ACC, "through", "Park Wald", "the"),
                how="langsam zusammen"),
        happens("joggen", GROWN + "Student Läufer", phrase("um", ACC, "around", "See", "the"), how="langsam zusammen"),
        happens("fotografieren", GROWN + "Student Künstlerin", accusative("Ente Vogel Blume Baum", "a the +"),
                at="in Park, an See, in Garten"),
        happens("an|lächeln", GROWN + OLD, accusative("Junge Mädchen Baby Hund", "a the")),
        happens("zu|schauen", GROWN + FAMILY, dative("Kind Junge", "the+ two"), fixed("beim_Spielen:play"),
                at="auf Spielplatz, in Park, in Garten"),
        happens("zu|schauen", PEOPLE, dative("Vogel Ente", "the+ a the")),
        happens("zu|hören", PEOPLE + OLD + "Student", dative("Musiker", "a a the two"), at="in Park"),
        happens("zu|winken", KIDS, dative("Mutter Vater Freund", "his his the")),
        happens("zu|winken", GROWN + OLD, dative("Kind Junge Mädchen", "a the the+")),
        happens("sich_aus|ruhen", GROWN + OLD + "Student Läufer", at="auf Bank, unter Baum, in Gras, auf Decke"),
        happens("sich_unterhalten", GROWN + "Student Kind Mädchen Junge", at="auf Bank, in Park, unter Baum",
                how="leise", posture="sitzen stehen", number="plural"),
        happens("auf|heben", KIDS + GROWN, accusative("Ball Stock Blatt Stein", "a a the"), at="in Park, in Garten"),
        happens("pflücken", KIDS + "Frau Großmutter", accusative("Blume", "+ + a"), at="auf Wiese, in Garten"),
        happens("gießen", GROWN + OLD, accusative("Blume", "+ the+"), at="in Garten"),
        happens("fahren:ride", PEOPLE + "Student", fixed("Fahrrad:a_bicycle"),
                at="in Park, auf Spielplatz, " + OUTSIDE, number="singular"),
        happens("fahren:ride", PEOPLE + "Student", fixed("Fahrrad:bicycles"), at="in Park, auf Spielplatz, " + OUTSIDE,
                number="plural"),
        happens("fahren:ride", "Radfahrer", phrase("durch", ACC, "through", "Park Wald", "the"),
                how="langsam schnell"),
        happens("springen", KIDS + "Hund", phrase("über", ACC, "over", "Pfütze Bank Mauer Zaun", "a a the")),
        happens("springen", KIDS + "Hund Welpe", phrase("in", ACC, "into", "Pfütze See Teich", "the"), dressed=False),
        happens("schwimmen", "Ente", at="auf See, auf Teich", how="langsam"),
        happens("schwimmen", "Hund", at="in See, in Teich"),
        happens("fliegen", "Vogel Ente", phrase("über", ACC, "over", "See Wiese Park", "the")),
        happens("sitzen", "Vogel", at="auf Baum, auf Bank, auf Mauer"),
        happens("singen", "Vogel", at="auf Baum, in Garten", how="laut"),
        happens("fressen", "Kaninchen", accusative("Karotte", "each"), at="in Garten, auf Wiese"),
        happens("folgen", "Hund Welpe", dative("Mann Frau Junge Mädchen", "a the the"),
                phrase("durch", ACC, "through", "Park", "the")),
        happens("weg|rennen", "Katze Kaninchen", phrase("vor", DAT, "from", "Hund", "a the"), number="singular"),
        happens("bellen", "Hund Welpe", at="in Park, in Garten, hinter Zaun", how="laut"),
        happens("tragen:carry", GROWN + KIDS, accusative("Korb Kiste Eimer", "each each the"),
                phrase("durch", ACC, "through", "Garten", "the")),
        happens("essen", PEOPLE + "Student", accusative("Apfel Eis Banane", "each"),
                at="auf Bank, in Park, unter Baum, auf Decke, in Gras", posture="sitzen"),
        happens("lachen", KIDS + "Baby", how="laut fröhlich"),
        happens("tanzen", KIDS, at="auf Wiese, in Garten, " + OUTSIDE, how="zusammen fröhlich"),
        happens("an|schauen", PEOPLE + OLD, accusative("Blume Ente Vogel", "the+ the a")),
    ),
)  # fmt: skip

HOME = Scene(
    clothes=nouns("Hemd Pullover Kleid Rock Hose Schürze"),
    times=(MORNING, AFTERNOON, EVENING, SUNDAY),
    watchers=nouns(GROWN + FAMILY),
    frames=(
        happens("schlafen", PEOPLE + OLD + "Baby", at="in Bett, auf Sofa", how="friedlich", number="singular",
                dressed=False),
        happens("schlafen", "Hund Katze Welpe", at="auf Sofa, auf Teppich, unter Tisch, vor Tür", how="friedlich"),
        happens("schlafen", "Katze", at="auf Stuhl, auf Bett", how="friedlich", number="singular"),
        happens("liegen", "Hund Katze Welpe", at="auf Teppich, auf Sofa, unter Tisch, auf Boden"),
        happens("sitzen", PEOPLE + OLD, at="auf Sofa, an Tisch, an Fenster, in Wohnzimmer", how="allein zusammen"),
        happens("sitzen", KIDS + "Baby", at="auf Boden, auf Teppich", how="allein zusammen"),
        happens("sitzen", "Katze Hund", at="neben Sofa, vor Tür, auf Teppich, vor Fenster"),
        happens("sitzen", GROWN + OLD + "Katze", at="auf Stuhl", number="singular"),
        happens("stehen", GROWN + FAMILY, at="in Küche, an Fenster, auf Treppe"),
        happens("liegen", PEOPLE, at="auf Sofa, auf Bett", number="singular"),
        happens("liegen", "Baby", at="in Bett, auf Teppich, auf Decke"),
        happens("lesen", GROWN + OLD, accusative("Buch Zeitung Brief", "each each the"),
                at="auf Sofa, an Tisch, in Küche, an Fenster, auf Stuhl", posture="sitzen liegen stehen"),
        happens("lesen", KIDS, accusative("Buch", "each each the"), at="auf Sofa, in Bett, an Tisch",
                posture="sitzen liegen"),
        happens("kochen", GROWN + FAMILY + "Koch", accusative("Suppe Gemüse", "mass"), at="in Küche",
                posture="stehen"),
        happens("kochen", GROWN + FAMILY + "Koch", at="in Küche", how="zusammen allein"),
        happens("backen", GROWN + FAMILY + "Mädchen Junge", accusative("Kuchen Pizza", "a"), at="in Küche"),
        happens("backen", GROWN + FAMILY, accusative("Brot", "mass"), at="in Küche"),
        happens("um|rühren", GROWN + OLD + "Koch", accusative("Suppe", "the"), at="in Küche", how="langsam",
                posture="stehen", number="singular"),
        happens("essen", PEOPLE + FAMILY, accusative("Apfel Kuchen Pizza Banane", "each each the"),
                at="an Tisch, in Küche", posture="sitzen"),
        happens("essen", PEOPLE + FAMILY, accusative("Suppe Obst Salat Brot Käse Kuchen", "mass"),
                at="an Tisch, in Küche", posture="sitzen"),
        happens("trinken", GROWN + FAMILY, accusative("Kaffee Tee Wasser", "mass"), at="an Tisch, in Küche, auf Sofa",
                posture="sitzen stehen"),
        happens("trinken", GROWN + FAMILY, fixed("eine:a Tasse:cup_of Tee:tea"), at="an Tisch, in Küche, auf Sofa",
                posture="sitzen stehen", number="singular"),
        happens("trinken", GROWN + FAMILY, fixed("eine:a Tasse:cup_of Kaffee:coffee"), at="an Tisch, in Küche",
                posture="sitzen stehen", number="singular"),
        happens("trinken", KIDS, accusative("Milch Saft Wasser", "mass"), at="an Tisch, in Küche", posture="sitzen"),
        happens("trinken", KIDS, fixed("ein:a Glas:glass_of Milch:milk"), at="an Tisch, in Küche", posture="sitzen",
                number="singular"),
        happens("trinken", "Katze Welpe", accusative("Milch Wasser", "mass"), at="in Küche"),
        happens("spielen", KIDS + "Baby", phrase("mit", DAT, "with", "Puppe Spielzeugauto Teddybär Ball", "a a the"),
                at="auf Teppich, in Wohnzimmer, auf Boden", how="zusammen allein"),
        happens("spielen", "Katze", phrase("mit", DAT, "with", "Ball", "a a the"),
                at="auf Teppich, in Wohnzimmer, auf Boden, unter Tisch"),
        happens("spielen", GROWN + "Mädchen Junge Großmutter", fixed("Klavier:the_piano"), at="in Wohnzimmer",
                number="singular"),
        happens("spielen", PEOPLE + OLD, fixed("Karten:cards"), at="an Tisch, in Wohnzimmer, in Küche",
                number="plural", posture="sitzen"),
        happens("spielen", GROWN + "Junge Mädchen Großvater", fixed("Schach:chess"), at="an Tisch, in Wohnzimmer",
                number="plural", posture="sitzen"),
        happens("an|ziehen", PEOPLE, accusative("Jacke Mantel Hemd Pullover", "each each his"), dressed=False),
        happens("aus|ziehen", PEOPLE, accusative("Jacke Mantel Pullover Stiefel", "each his"), dressed=False),
        happens("auf|setzen", PEOPLE, accusative("Mütze Hut Sonnenbrille", "each his"), dressed=False),
        happens("putzen", GROWN + FAMILY, accusative("Fenster Küche Tür", "the")),
        happens("auf|räumen", PEOPLE + FAMILY, accusative("Küche Wohnzimmer", "the")),
        happens("ab|trocknen", GROWN + FAMILY + "Junge Mädchen", accusative("Geschirr", "the"), at="in Küche",
                posture="stehen"),
        happens("vor|lesen", FAMILY + GROWN, dative("Kind Mädchen Junge", "the the+ a two", to=True),
                accusative("Buch Geschichte", "a"), at="auf Sofa, in Wohnzimmer", posture="sitzen"),
        happens("erzählen", FAMILY, dative("Kind Mädchen Junge", "the the+ a two"), accusative("Geschichte", "a"),
                posture="sitzen"),
        happens("zeigen", GROWN + OLD, dative("Kind Mädchen Junge", "the the+ a"), accusative("Bild Brief Buch", "a")),
        happens("geben", GROWN + FAMILY, dative("Kind Mädchen Junge", "the a"),
                accusative("Apfel Geschenk Banane", "a"), number="singular"),
        happens("geben", KIDS, dative("Mutter Großmutter", "the his"), accusative("Blume Blumenstrauß Geschenk", "a"),
                number="singular"),
        happens("bringen", KIDS, dative("Großvater Vater", "the his his"), accusative("Zeitung", "the")),
        happens("helfen", KIDS + "Mann", dative("Großmutter Mutter", "the his his"), fixed("beim_Kochen:cook"),
                at="in Küche"),
        happens("helfen", FAMILY, dative("Kind Mädchen Junge", "the the+ a"), fixed("beim_Lesen:read")),
        happens("malen", KIDS + "Künstlerin", accusative("Bild", "each"), at="an Tisch, in Wohnzimmer, in Küche",
                posture="sitzen"),
        happens("schreiben", GROWN + OLD + "Mädchen Junge", accusative("Brief", "a a the"), at="an Tisch, in Küche",
                posture="sitzen"),
        happens("schneiden", GROWN + FAMILY + "Koch", accusative("Brot Käse Gemüse Obst", "mass mass the"),
                at="in Küche", how="vorsichtig", posture="stehen"),
        happens("schneiden", GROWN + FAMILY, accusative("Kuchen Apfel Pizza", "a a the"), at="in Küche",
                how="vorsichtig"),
        happens("hängen", GROWN + "Vater Großvater Künstlerin", accusative("Bild Gemälde", "a a the"),
                phrase("an", ACC, "on", "Wand", "the")),
        happens("stellen", GROWN + FAMILY, accusative("Vase Lampe Tasse", "a a the"),
                phrase("auf", ACC, "on", "Tisch", "the the a"), how="vorsichtig"),
        happens("legen", PEOPLE + FAMILY, accusative("Buch Brief Zeitung", "a a the"),
                phrase("auf", ACC, "on", "Tisch Stuhl Sofa", "the")),
        happens("legen", PARENTS + OLD + "Frau", accusative("Baby", "the"), phrase("in", ACC, "in", "Bett", "the"),
                how="vorsichtig"),
        happens("nehmen", PEOPLE + OLD, accusative("Buch Tasse Zeitung", "a a the"),
                phrase("von", DAT, "from", "Tisch Stuhl", "the")),
        happens("sich_setzen", GROWN + OLD, phrase("auf", ACC, "on", "Sofa Stuhl", "the the a"), number="singular"),
        happens("sich_setzen", GROWN + OLD + "Junge Mädchen", phrase("an", ACC, "at", "Tisch Fenster", "the")),
        happens("springen", "Katze Hund", phrase("auf", ACC, "onto", "Tisch Sofa Stuhl Bett", "the"),
                number="singular"),
        happens("springen", "Katze", phrase("von", DAT, "off", "Tisch Sofa Stuhl Bett", "the"), number="singular"),
        happens("öffnen", PEOPLE + OLD, accusative("Tür Fenster", "the the a"), how="langsam vorsichtig",
                number="singular"),
        happens("aus|packen:present", KIDS + GROWN, accusative("Geschenk", "each each the"),
                at="in Wohnzimmer, auf Sofa", posture="sitzen"),
        happens("aus|packen", GROWN + "Tourist Student", accusative("Koffer Rucksack", "a his his"),
                at="in Wohnzimmer", number="singular"),
        happens("gehen", PEOPLE + OLD, phrase("in", ACC, "into", "Küche Wohnzimmer", "the"), how="langsam"),
        happens("gehen", PEOPLE + OLD, phrase("an", ACC, "to", "Fenster", "the"), how="langsam"),
        happens("rennen", KIDS + "Hund Katze", phrase("durch", ACC, "through", "Wohnzimmer Küche", "the"),
                how="schnell"),
        happens("telefonieren", GROWN + "Student Großmutter", at="auf Sofa, in Küche, an Fenster",
                posture="sitzen stehen", number="singular"),
        happens("tanzen", GROWN + KIDS, at="in Wohnzimmer, in Küche", how="zusammen fröhlich"),
        happens("singen", KIDS + "Mutter Frau", accusative("Lied", "a"), at="in Küche, in Wohnzimmer"),
        happens("hoch|heben", PARENTS + GROWN + OLD, accusative("Baby Kind", "the the a")),
        happens("füttern", PARENTS + GROWN + OLD, accusative("Baby", "the the a"), at="in Küche"),
        happens("füttern", PEOPLE + OLD, accusative("Katze Hund", "the a his his"), at="in Küche"),
        happens("streicheln", PEOPLE + OLD, accusative("Katze Hund", "the a a his"), at="auf Sofa, auf Teppich",
                posture="sitzen liegen"),
        happens("streichen", GROWN, accusative("Wand Tür", "a the"), at="in Küche, in Wohnzimmer"),
        happens("lachen", KIDS + "Baby", how="laut fröhlich"),
        happens("weinen", "Baby", at="in Bett", how="laut", number="singular"),
        happens("stehen", "Vase Lampe Tasse", at="auf Tisch"),
        happens("liegen", "Buch Zeitung Brief", at="auf Tisch, auf Sofa, auf Boden"),
        happens("hängen", "Bild Gemälde", at="an Wand, über Sofa"),
        happens("hängen", "Lampe", at="über Tisch"),
    ),
)

BEACH = Scene(
    clothes=nouns("Hut Strohhut Sonnenbrille Hemd Sommerkleid Badeanzug Hose"),
    times=(MORNING, AFTERNOON, EVENING, SUNNY, SUMMER),
    watchers=nouns(GROWN + FAMILY),
    frames=(
        happens("bauen", KIDS + "Vater", accusative("Sandburg", "a a a two"), at="an Strand, in Sand"),
        happens("graben", KIDS + "Hund", accusative("Loch", "a"), at="in Sand, an Strand"),
        happens("schwimmen", PEOPLE + "Tourist Student", at="in Meer, in Wasser", how="zusammen allein",
                dressed=False),
        happens("schwimmen", "Hund", at="in Meer, in Wasser"),
        happens("springen", PEOPLE + "Student", phrase("in", ACC, "into", "Wasser Meer", "the"), how="fröhlich",
                dressed=False),
        happens("springen", KIDS + "Mann Student", phrase("über", ACC, "over", "Welle", "a the"), dressed=False),
        happens("springen", "Junge Student Mann", phrase("von", DAT, "off", "Felsen", "a the"), dressed=False),
        happens("rennen", PEOPLE, phrase("in", ACC, "into", "Wasser Meer", "the"), how="schnell", dressed=False),
        happens("rennen", KIDS + "Hund Läufer", phrase("über", ACC, "across", "Strand Sand", "the"), how="schnell"),
        happens("spielen", "Mann Frau Junge Mädchen Student", fixed("Volleyball:volleyball"), at="an Strand, in Sand",
                number="plural", how="zusammen"),
        happens("spielen", KIDS, phrase("mit", DAT, "with", "Ball Eimer", "a a the"),
                at="an Strand, in Sand, in Wasser", how="zusammen fröhlich"),
        happens("spielen", "Hund Welpe", phrase("mit", DAT, "with", "Ball Stock", "a a the"), at="an Strand, in Sand"),
        happens("spielen", KIDS, at="in Sand, an Strand, an Meer", how="zusammen allein fröhlich"),
        happens("liegen", GROWN + "Tourist Student", at="an Strand, in Sand"),
        happens("liegen", GROWN + "Tourist", at="auf Handtuch", number="singular"),
        happens("liegen", "Hund", at="in Sand, neben Handtuch, an Strand"),
        happens("schlafen", GROWN + "Tourist", at="an Strand, in Sand, auf Handtuch", how="friedlich",
                number="singular"),
        happens("sitzen", PEOPLE + "Tourist", at="in Sand, an Strand, an Meer, auf Felsen", how="allein zusammen"),
        happens("stehen", PEOPLE + "Tourist", at="an Strand, in Wasser, auf Felsen"),
        happens("gehen", GROWN + OLD + "Tourist", phrase("zu", DAT, "to", "Strand", "the"), how="langsam zusammen"),
        happens("entlang|gehen", GROWN + OLD + "Tourist", accusative("Strand", "the"), how="langsam"),
        happens("joggen", GROWN + "Läufer Student", phrase("über", ACC, "across", "Strand", "the"),
                how="langsam zusammen"),
        happens("kommen", GROWN + KIDS, phrase("aus", DAT, "out of", "Wasser", "the"), how="langsam", dressed=False),
        happens("essen", PEOPLE + "Tourist", accusative("Eis Apfel", "each"),
                at="an Strand, in Sand, an Meer, auf Felsen", posture="sitzen stehen"),
        happens("lesen", GROWN + "Tourist Student", accusative("Buch Zeitung", "each"),
                at="an Strand, auf Handtuch, in Sand", posture="sitzen liegen", number="singular"),
        happens("trinken", PEOPLE + "Tourist", accusative("Wasser Saft", "mass"), at="an Strand",
                posture="sitzen stehen"),
        happens("fotografieren", GROWN + "Tourist", accusative("Boot Sandburg", "the the a"), at="an Strand"),
        happens("fotografieren", GROWN + "Tourist", accusative("Meer", "the")),
        happens("werfen", PEOPLE, accusative("Stein Ball Stock", "a a the"),
                phrase("in", ACC, "into", "Wasser Meer", "the")),
        happens("fangen", KIDS + "Hund", accusative("Ball", "a a the"), at="an Strand"),
        happens("holen", "Hund", accusative("Stock Ball", "a the"), phrase("aus", DAT, "from", "Wasser Meer", "the"),
                number="singular"),
        happens("tragen:carry", PEOPLE, accusative("Handtuch Eimer Korb Tasche", "each each the"),
                phrase("zu", DAT, "to", "Strand", "the")),
        happens("ziehen", GROWN, accusative("Boot", "a the"), phrase("aus", DAT, "out of", "Wasser", "the")),
        happens("schieben", GROWN, accusative("Boot", "a the"), phrase("in", ACC, "into", "Wasser", "the")),
        happens("zu|schauen", PARENTS + GROWN, dative("Kind Junge", "the+ two"), fixed("beim_Schwimmen:swim")),
        happens("zu|schauen", PARENTS + GROWN + OLD, dative("Kind Mädchen", "the+ two"), fixed("beim_Spielen:play"),
                at="an Strand"),
        happens("zu|winken", KIDS, dative("Vater Mutter", "the his his")),
        happens("reiten", GROWN + "Mädchen", phrase("auf", DAT, "", "Pferd", "each each the"), at="an Strand"),
        happens("segeln", "Boot", at="auf Meer", how="langsam"),
        happens("rudern", GROWN + "Student", phrase("über", ACC, "across", "See Fluss", "the"),
                how="langsam zusammen"),
        happens("angeln", GROWN + "Großvater Junge", at="an Meer, an Fluss, an See, in Boot", how="allein zusammen",
                posture="sitzen stehen"),
        happens("sitzen", GROWN + OLD + "Junge Mädchen", at="in Boot", how="zusammen allein"),
        happens("sich_aus|ruhen", GROWN + OLD + "Tourist", at="an Strand, in Sand"),
        happens("sich_unterhalten", GROWN + "Tourist Student", at="an Strand, in Sand", number="plural",
                posture="sitzen stehen"),
        happens("fliegen", "Vogel", phrase("über", ACC, "over", "Meer Strand", "the")),
        happens("liegen", "Boot Handtuch Ball Eimer", at="an Strand, in Sand"),
    ),
)

FARM = Scene(
    clothes=nouns("Hut Strohhut Hemd Jacke Stiefel Hose Mütze Pullover"),
    times=(MORNING, AFTERNOON, EVENING, SUNNY),
    watchers=nouns(GROWN + OLD + "Bauer"),
    frames=(
        happens("füttern", PEOPLE + OLD + "Bauer", accusative("Kuh Pferd Ziege Esel Huhn Schaf", "a the the+ + his"),
                at="in Stall, auf Wiese"),
        happens("füttern", GROWN + "Bauer Mädchen", accusative("Kuh Pferd Esel", "the the+"),
                fixed("mit:with trockenem:dry Heu:hay")),
        happens("bürsten", GROWN + "Mädchen Junge Bauer", accusative("Pferd Esel", "a the his"),
                at="in Stall, vor Stall", how="vorsichtig"),
        happens("streicheln", PEOPLE + OLD, accusative("Pferd Esel Schaf Ziege Kaninchen", "a a the"),
                at="in Stall, auf Wiese"),
        happens("stehen", "Kuh Pferd Schaf Ziege Esel", at="auf Wiese, in Stall, hinter Zaun, unter Baum"),
        happens("liegen", "Kuh Schaf Ziege Hund", at="auf Wiese, in Gras, in Stall, unter Baum"),
        happens("schlafen", "Kuh Schaf Katze Hund Ziege", at="in Stall, in Gras, unter Baum", how="friedlich"),
        happens("fressen", "Kuh Pferd Schaf Ziege Esel", accusative("Gras", "mass"), at="auf Wiese"),
        happens("fressen", "Kuh Pferd Ziege Esel", accusative("Heu", "mass"), at="in Stall"),
        happens("fressen", "Pferd Ziege Esel", accusative("Apfel Karotte", "each")),
        happens("trinken", "Kuh Pferd Esel Ziege", accusative("Wasser", "mass"), at="an Fluss, in Stall, an See"),
        happens("arbeiten", GROWN + "Bauer", at="auf Feld, in Stall", how="zusammen allein"),
        happens("fahren:drive", "Bauer Mann Frau", phrase("mit", DAT, "", "Traktor", "a the"),
                phrase("über", ACC, "across", "Feld", "the the a"), how="langsam", number="singular"),
        happens("reparieren", "Bauer Mann", accusative("Traktor Zaun Wagen", "a a the"), at="vor Stall, neben Haus"),
        happens("reiten", GROWN + "Mädchen Junge Bauer", phrase("auf", DAT, "", "Pferd", "each each the"),
                phrase("durch", ACC, "through", "Wald", "the")),
        happens("reiten", GROWN + "Mädchen Junge", phrase("auf", DAT, "", "Pferd Esel", "each each the"),
                phrase("über", ACC, "across", "Wiese Feld", "the the a")),
        happens("steigen", GROWN + "Mädchen Junge", phrase("von", DAT, "off", "Pferd Esel", "the a his"),
                number="singular"),
        happens("ziehen", "Pferd Esel", accusative("Wagen", "a a the"), phrase("über", ACC, "across", "Feld", "the")),
        happens("ziehen", "Pferd Esel", accusative("Wagen", "a a the"), phrase("durch", ACC, "through", "Wald", "the"),
                how="langsam"),
        happens("springen", "Pferd Ziege Hund", phrase("über", ACC, "over", "Zaun Mauer", "a a the")),
        happens("rennen", "Pferd Hund Ziege Schaf", phrase("über", ACC, "across", "Wiese Feld", "the"), how="schnell"),
        happens("rennen", "Pferd Schaf", phrase("in", ACC, "into", "Stall", "the"), how="schnell"),
        happens("folgen", "Schaf Hund Ziege", dative("Bauer Mädchen Frau", "a the the"),
                phrase("über", ACC, "across", "Wiese", "the")),
        happens("tragen:carry", GROWN + "Bauer Mädchen Junge", accusative("Eimer Korb", "each each the"),
                phrase("in", ACC, "into", "Stall", "the")),
        happens("tragen:carry", "Bauer Mann", accusative("Kiste", "each each the"),
                phrase("zu", DAT, "to", "Haus Stall", "the"), how="langsam"),
        happens("schieben", "Bauer Mann", accusative("Schubkarre", "a the"), phrase("in", ACC, "into", "Stall", "the"),
                number="singular"),
        happens("schieben", "Bauer Mann", accusative("Schubkarre", "a the"),
                phrase("über", ACC, "across", "Feld", "the"), number="singular", how="langsam"),
        happens("pflücken", PEOPLE + OLD + "Bauer", accusative("Apfel", "+"), at="in Garten"),
        happens("sägen", "Bauer Mann", accusative("Brett", "a a the"), at="vor Stall, hinter Haus", number="singular"),
        happens("streichen", "Bauer Mann", accusative("Zaun", "a the the"), at="neben Straße, hinter Haus"),
        happens("sitzen", "Bauer Mann", phrase("auf", DAT, "on", "Traktor Wagen", "a a the his"), number="singular"),
        happens("stehen", "Bauer Mann Frau Mädchen", at="in Stall, auf Feld, neben Zaun"),
        happens("sitzen", "Katze Huhn", at="auf Mauer, vor Stall"),
        happens("rennen", "Huhn", phrase("durch", ACC, "through", "Garten", "the"), how="schnell"),
        happens("öffnen", "Bauer Mann Frau", accusative("Tür", "the"), how="langsam", number="singular"),
        happens("helfen", KIDS, dative("Bauer Großvater", "the"), fixed("bei:with der:the Arbeit:work"),
                at="in Stall, auf Feld"),
        happens("zeigen", "Bauer Großvater", dative("Kind Mädchen Junge", "the the+ a"),
                accusative("Kuh Pferd Esel", "a the")),
        happens("geben", KIDS + "Frau", dative("Pferd Ziege Esel", "the a"), accusative("Apfel Karotte", "a"),
                number="singular"),
        happens("an|schauen", KIDS + "Tourist", accusative("Kuh Pferd Schaf", "a the the+")),
        happens("bellen", "Hund", at="hinter Zaun, vor Stall", how="laut"),
        happens("stehen:parked", "Traktor Wagen", at="vor Stall, neben Haus, auf Feld"),
    ),
)

CITY = Scene(
    clothes=nouns(
        "Hut Mütze Jacke Lederjacke Mantel Hemd Kleid Rock Hose Anzug Krawatte Schal Sonnenbrille Rucksack Uniform"
    ),
    times=(MORNING, AFTERNOON, EVENING, SUNDAY, SUNNY),
    watchers=nouns(GROWN + "Polizist Tourist"),
    frames=(
        happens("gehen", GROWN + KIDS + OLD + "Tourist Student",
                phrase("über", ACC, "across", "Straße Brücke Marktplatz", "the"), how="langsam zusammen allein"),
        happens("gehen", GROWN + "Tourist Student", phrase("durch", ACC, "through", "Stadt", "the"),
                how="langsam zusammen allein"),
        happens("gehen", GROWN + OLD + "Tourist Student", phrase("zu", DAT, "to", "Bahnhof Bushaltestelle", "the"),
                how="langsam zusammen"),
        happens("gehen", GROWN + "Tourist", phrase("in", ACC, "into", "Geschäft Museum Café Restaurant", "the a"),
                how="zusammen"),
        happens("vorbei|gehen", GROWN + "Tourist Student Polizist",
                phrase("an", DAT, "past", "Geschäft Kirche Café Brunnen", "a the")),
        happens("rennen", PEOPLE + "Student", phrase("über", ACC, "across", "Straße Brücke", "the"), how="schnell"),
        happens("rennen", GROWN + "Student Tourist", phrase("zu", DAT, "to", "Bushaltestelle Bahnhof", "the"),
                how="schnell"),
        happens("warten", GROWN + OLD + "Student Tourist", phrase("auf", ACC, "for", "Bus", "the"),
                at="an Bushaltestelle", posture="sitzen stehen", how="allein"),
        happens("warten", GROWN + OLD + "Student Tourist", phrase("auf", ACC, "for", "Zug", "the"), at="an Bahnhof",
                posture="sitzen stehen"),
        happens("stehen", GROWN + "Tourist Student",
                at="an Bushaltestelle, vor Kirche, auf Brücke, vor Museum, auf Marktplatz, auf Gehweg"),
        happens("stehen", "Polizist", at="auf Straße, vor Geschäft, auf Marktplatz, auf Brücke"),
        happens("sitzen", GROWN + OLD + "Tourist Student", at="in Café, auf Bank, vor Café, auf Treppe, an Brunnen",
                how="allein zusammen"),
        happens("spielen", "Musiker Mann Frau Student", fixed("Gitarre:the_guitar"),
                at="auf Straße, auf Marktplatz, vor Kirche, auf Brücke, auf Treppe, an Brunnen",
                posture="sitzen stehen"),
        happens("spielen", "Musiker Mann Frau Mädchen", fixed("Geige:the_violin"),
                at="auf Straße, auf Marktplatz, vor Museum", posture="stehen"),
        happens("spielen", "Musiker Mann Junge", fixed("Trompete:the_trumpet"),
                at="auf Straße, auf Marktplatz, vor Kirche", posture="stehen"),
        happens("singen", "Sängerin Student Mädchen", accusative("Lied", "a"), at="auf Straße, auf Marktplatz"),
        happens("zu|hören", GROWN + KIDS + "Tourist Polizist", dative("Musiker Sängerin", "a a the two"),
                at="auf Marktplatz, auf Straße"),
        happens("zu|schauen", GROWN + KIDS + "Tourist", dative("Tänzerin Musiker", "a a the two"),
                at="auf Marktplatz"),
        happens("tanzen", "Tänzerin Frau Mädchen Kind", at="auf Straße, auf Marktplatz",
                how="fröhlich zusammen allein"),
        happens("fotografieren", "Tourist Frau Mann", accusative("Kirche Brunnen Turm Brücke Statue", "a the the")),
        happens("an|schauen", "Tourist Frau Mann", accusative("Stadtplan", "a a his"), posture="sitzen stehen",
                number="singular", at="auf Marktplatz, an Bahnhof"),
        happens("an|schauen", "Tourist Student Kind", accusative("Turm Kirche Statue Brunnen", "a the the")),
        happens("fahren:ride", GROWN + "Student Junge Mädchen", fixed("Fahrrad:a_bicycle"),
                at="auf Straße, in Stadt, auf Gehweg", number="singular"),
        happens("fahren:ride", GROWN + "Student Junge Mädchen", fixed("Fahrrad:bicycles"),
                at="auf Straße, in Stadt, auf Gehweg", number="plural"),
        happens("fahren:ride", "Radfahrer", phrase("durch", ACC, "through", "Stadt", "the"), how="schnell langsam"),
        happens("fahren:ride", "Radfahrer", phrase("über", ACC, "across", "Brücke Marktplatz", "the"),
                how="schnell langsam"),
        happens("vorbei|fahren", "Bus Lastwagen Auto", phrase("an", DAT, "past", "Kirche Geschäft Museum", "a the"),
                number="singular"),
        happens("fahren:drive", "Auto Bus Lastwagen Motorrad", phrase("durch", ACC, "through", "Stadt", "the"),
                how="langsam schnell"),
        happens("fahren:drive", "Auto Bus Lastwagen Motorrad", phrase("über", ACC, "across", "Brücke", "the the a"),
                how="langsam schnell"),
        happens("stehen:parked", "Auto Bus Lastwagen Motorrad Fahrrad",
                at="vor Haus, neben Haus, auf Straße, vor Geschäft, hinter Haus"),
        happens("ziehen", GROWN + "Tourist", accusative("Koffer", "each each his"),
                phrase("über", ACC, "across", "Straße Brücke", "the")),
        happens("ziehen", GROWN + "Tourist", accusative("Koffer", "each each his"),
                phrase("durch", ACC, "through", "Bahnhof", "the")),
        happens("tragen:carry", GROWN + "Tourist Student", accusative("Tasche Koffer Rucksack", "each each his"),
                phrase("zu", DAT, "to", "Bahnhof", "the")),
        happens("tragen:carry", GROWN + "Mädchen Junge", accusative("Tasche Korb Blumenstrauß", "each each the"),
                phrase("über", ACC, "across", "Straße", "the")),
        happens("ein|steigen", GROWN + OLD + "Tourist Student", phrase("in", ACC, "on", "Bus Zug", "a the the"),
                how="schnell langsam"),
        happens("aus|steigen", GROWN + OLD + "Tourist Student", phrase("aus", DAT, "off", "Bus Zug", "a the the"),
                how="schnell langsam"),
        happens("steigen", GROWN + "Polizist", phrase("in", ACC, "into", "Auto", "a the his"), number="singular",
                how="schnell"),
        happens("steigen", "Radfahrer", phrase("von", DAT, "off", "Fahrrad", "the his his"), number="singular",
                how="langsam"),
        happens("reparieren", GROWN + "Junge Student", accusative("Fahrrad Motorrad Auto", "a a the his"),
                at="auf Straße, vor Haus, neben Haus"),
        happens("waschen", GROWN + "Junge", accusative("Auto Motorrad", "a the his"), at="vor Haus, hinter Haus"),
        happens("putzen", GROWN, accusative("Fenster", "a the")),
        happens("halten", GROWN + KIDS + "Tourist", accusative("Regenschirm Fahne Schild Luftballon", "each each the"),
                at="auf Straße", posture="stehen"),
        happens("verkaufen", "Frau Mann", accusative("Blume Luftballon", "+"),
                at="auf Straße, auf Marktplatz, an Bahnhof, vor Kirche"),
        happens("kaufen", GROWN + "Student Tourist", accusative("Zeitung Blumenstrauß", "a"),
                at="an Bahnhof, in Geschäft", number="singular"),
        happens("essen", PEOPLE + "Tourist Student", accusative("Eis Pizza", "each"),
                at="auf Bank, vor Café, auf Marktplatz, auf Treppe, an Brunnen, auf Brücke", posture="sitzen stehen"),
        happens("trinken", GROWN + "Tourist Student", accusative("Kaffee Tee", "mass"), at="in Café, vor Café",
                posture="sitzen"),
        happens("helfen", "Polizist Student Junge Mädchen", dative("Frau Mann Großmutter", "a the")),
        happens("zeigen", "Polizist Frau Mann Student", dative("Tourist", "the a two the+"), fixed("den:the Weg:way")),
        happens("an|halten", "Polizist", accusative("Auto Lastwagen Motorrad Radfahrer", "a a the"), at="auf Straße",
                number="singular"),
        happens("folgen", "Hund", dative("Mann Frau Junge", "a the"), phrase("über", ACC, "across", "Straße", "the")),
        happens("sich_unterhalten", GROWN + "Tourist Student Polizist Musiker",
                at="auf Straße, vor Café, an Bushaltestelle, auf Gehweg, vor Kirche, auf Treppe, auf Bank",
                number="plural", posture="sitzen stehen"),
        happens("telefonieren", GROWN + "Student Tourist", at="auf Straße, an Bushaltestelle, vor Haus, in Café",
                posture="sitzen stehen", number="singular"),
        happens("lesen", GROWN + OLD + "Student", accusative("Zeitung Buch", "each each the"),
                at="in Café, an Bushaltestelle, auf Bank, auf Treppe, an Brunnen", posture="sitzen stehen"),
        happens("auf|setzen", "Radfahrer Polizist", accusative("Helm", "each his"), dressed=False),
        happens("schlafen", "Hund Katze", at="vor Geschäft, auf Gehweg, auf Treppe, unter Bank", how="friedlich"),
        happens("sitzen", "Hund Katze", at="vor Geschäft, auf Treppe, auf Mauer, vor Café"),
        happens("gehen", "Feuerwehrmann Polizist", phrase("in", ACC, "into", "Haus", "the a"),
                how="vorsichtig schnell"),
        happens("klettern", "Feuerwehrmann", phrase("auf", ACC, "up", "Leiter", "a the"), number="singular",
                how="schnell vorsichtig"),
        happens("helfen", "Feuerwehrmann", dative("Frau Kind Katze Mann", "a the")),
        happens("rennen", "Feuerwehrmann", phrase("aus", DAT, "out of", "Haus", "the a"), how="schnell"),
        happens("waschen", "Feuerwehrmann", accusative("Lastwagen", "the a"), at="auf Straße"),
        happens("fliegen", "Vogel", phrase("über", ACC, "over", "Stadt Kirche", "the")),
        happens("sitzen", "Vogel", at="auf Dach, auf Turm"),
    ),
)

MARKET = Scene(
    clothes=nouns("Hut Mütze Jacke Schürze Hemd Kleid Rock Schal Mantel Hose"),
    times=(MORNING, SUNDAY, SUNNY),
    watchers=nouns(GROWN),
    frames=(
        happens("verkaufen", GROWN + "Bauer", accusative("Obst Gemüse Käse Fisch Brot", "mass"), at="auf Markt"),
        happens("verkaufen", GROWN + "Bauer", accusative("Apfel Blume Kuchen Karotte", "+"), at="auf Markt"),
        happens("kaufen", GROWN + OLD + "Koch Student Tourist", accusative("Obst Gemüse Käse Fisch Brot", "mass"),
                at="auf Markt"),
        happens("kaufen", GROWN + OLD + "Koch Student Tourist", accusative("Apfel Blume Banane Karotte", "+"),
                at="auf Markt"),
        happens("kaufen", GROWN + OLD, accusative("Blumenstrauß Kuchen Korb Hut", "a"), at="auf Markt",
                number="singular"),
        happens("ein|kaufen", GROWN + FAMILY + "Koch Student", at="auf Markt", how="zusammen allein"),
        happens("tragen:carry", PEOPLE + "Bauer Koch", accusative("Korb Kiste Tasche", "each each the"),
                phrase("über", ACC, "across", "Markt", "the")),
        happens("tragen:carry", GROWN + "Bauer", accusative("Korb Kiste", "each each the"),
                phrase("zu", DAT, "to", "Auto", "the his")),
        happens("stehen", GROWN + "Bauer Koch Tourist", at="auf Markt, neben Brunnen, vor Kirche"),
        happens("gehen", GROWN + FAMILY + "Tourist Koch", phrase("über", ACC, "across", "Markt", "the"),
                how="langsam zusammen allein"),
        happens("gehen", GROWN + FAMILY, phrase("zu", DAT, "to", "Markt", "the"), how="zusammen allein langsam"),
        happens("geben", "Bauer", dative("Kind Mädchen Junge", "the a"), accusative("Apfel Banane", "a"),
                number="singular"),
        happens("zeigen", "Bauer", dative("Koch Frau", "the a"), accusative("Gemüse Obst Fisch Käse", "the")),
        happens("essen", PEOPLE + "Tourist", accusative("Apfel Eis Banane", "each"), at="auf Markt, neben Brunnen",
                posture="stehen"),
        happens("fotografieren", "Tourist Künstlerin", accusative("Obst Gemüse Markt", "the")),
        happens("ziehen", "Esel", accusative("Wagen", "a a the"), phrase("über", ACC, "across", "Markt", "the"),
                number="singular", how="langsam"),
        happens("schieben", "Bauer Mann", accusative("Schubkarre", "a a the"),
                phrase("über", ACC, "across", "Markt", "the"), number="singular"),
        happens("sich_unterhalten", GROWN + "Bauer", at="auf Markt, neben Brunnen, vor Kirche", number="plural",
                posture="stehen"),
        happens("spielen", "Musiker", fixed("Gitarre:the_guitar"), at="auf Markt, neben Brunnen", posture="stehen"),
        happens("warten", "Hund Kind", phrase("vor", DAT, "in front of", "Geschäft", "a the"), how="allein"),
        happens("aus|packen", "Bauer", accusative("Kiste", "a the"), at="auf Markt"),
    ),
)

SPORT = Scene(
    clothes=nouns("Mütze Jacke Hemd Hose Pullover"),
    times=(MORNING, AFTERNOON, EVENING, SUNDAY, SUNNY),
    watchers=nouns(GROWN + FAMILY),
    frames=(
        happens("spielen", "Junge Mädchen Kind Mann Frau Student Fußballspieler", fixed("Fußball:soccer"),
                at="auf Fußballplatz, in Park, auf Wiese, auf Straße", number="plural", how="zusammen"),
        happens("spielen", "Junge Mädchen Mann Frau Student", fixed("Basketball:basketball"),
                at="auf Straße, auf Spielplatz, hinter Haus", number="plural", how="zusammen"),
        happens("spielen", "Junge Mädchen Mann Frau Student", fixed("Tennis:tennis"), how="zusammen", number="plural"),
        happens("schießen", "Fußballspieler Junge Mädchen Student", accusative("Ball", "the the a"),
                phrase("in", ACC, "into", "Tor", "the"), number="singular"),
        happens("fangen", "Fußballspieler Junge Mädchen", accusative("Ball", "the the a"), at="auf Fußballplatz",
                number="singular"),
        happens("werfen", "Fußballspieler Junge Mädchen", accusative("Ball", "the a"),
                phrase("über", ACC, "over", "Zaun", "the a"), number="singular"),
        happens("rennen", "Fußballspieler Junge Hund", phrase("über", ACC, "across", "Fußballplatz", "the"),
                how="schnell"),
        happens("rennen", "Läufer", phrase("durch", ACC, "through", "Stadt Park Wald", "the"), how="schnell"),
        happens("stehen", "Fußballspieler Mann", at="auf Fußballplatz"),
        happens("sitzen", "Fußballspieler Student", at="auf Bank, auf Fußballplatz, in Gras"),
        happens("jubeln", "Fußballspieler Kind Student", at="auf Fußballplatz, vor Tor", how="laut", number="plural"),
        happens("an|feuern", PEOPLE + "Student", accusative("Fußballspieler Läufer Radfahrer", "the the+ a")),
        happens("zu|schauen", PEOPLE + OLD, dative("Fußballspieler Läufer Radfahrer", "the the+ two")),
        happens("zu|winken", "Fußballspieler Läufer", dative("Kind Junge", "the+ a the")),
        happens("teil|nehmen", "Läufer Radfahrer Student Frau Mann", phrase("an", DAT, "in", "Rennen", "a a the")),
        happens("schwimmen", PEOPLE + "Student", at="in Schwimmbad, in See", how="schnell allein zusammen",
                dressed=False),
        happens("springen", KIDS + "Student", phrase("in", ACC, "into", "Wasser Schwimmbad", "the"), dressed=False),
        happens("trinken", "Läufer Fußballspieler Radfahrer", accusative("Wasser", "mass"), posture="sitzen stehen"),
        happens("sich_aus|ruhen", "Läufer Fußballspieler Radfahrer", at="in Gras, auf Bank, unter Baum"),
        happens("fahren:ride", "Radfahrer", phrase("über", ACC, "over", "Berg Hügel", "a the"), how="schnell langsam"),
        happens("fahren:ride", "Radfahrer", phrase("durch", ACC, "through", "Wald", "the"), how="schnell langsam"),
        happens("joggen", GROWN + "Läufer Student", phrase("über", ACC, "across", "Brücke", "the a"),
                how="langsam zusammen"),
        happens("halten", "Kind Junge Mädchen Mann Frau", accusative("Fahne", "each each the"), at="auf Fußballplatz",
                posture="stehen"),
        happens("wandern", GROWN + "Tourist Student", phrase("durch", ACC, "through", "Wald", "the"),
                how="zusammen allein langsam"),
        happens("wandern", GROWN + "Tourist Student", phrase("über", ACC, "over", "Berg Hügel", "the"),
                how="zusammen allein langsam"),
        happens("klettern", GROWN + "Student Tourist", phrase("auf", ACC, "up", "Berg", "a the"),
                how="langsam vorsichtig"),
        happens("aus|ziehen", "Läufer Fußballspieler", accusative("Jacke Pullover", "each his"), dressed=False),
        happens("auf|heben", "Fußballspieler Junge Mädchen", accusative("Ball", "the a"), at="auf Fußballplatz",
                number="singular"),
    ),
)

WINTER_SCENE = Scene(
    clothes=nouns("Wollmütze Mütze Winterjacke Mantel Schal Handschuh Stiefel Pullover"),
    times=(MORNING, AFTERNOON, WINTER),
    watchers=nouns(GROWN + FAMILY),
    frames=(
        happens("spielen", KIDS + "Hund Welpe", at="in Schnee", how="zusammen fröhlich"),
        happens("bauen", PEOPLE + "Vater", accusative("Schneemann", "a a a two"),
                at="in Garten, in Schnee, vor Haus, auf Wiese"),
        happens("werfen", KIDS + "Student", accusative("Schneeball", "each")),
        happens("werfen", KIDS + "Student", accusative("Schneeball", "a"),
                phrase("über", ACC, "over", "Zaun Mauer", "the a"), number="singular"),
        happens("ziehen", PEOPLE + PARENTS, accusative("Schlitten", "a a the"),
                phrase("durch", ACC, "through", "Schnee", "the")),
        happens("ziehen", "Pferd", accusative("Schlitten Wagen", "a the"),
                phrase("durch", ACC, "through", "Schnee", "the")),
        happens("sitzen", KIDS, phrase("auf", DAT, "on", "Schlitten", "a a the"), how="zusammen"),
        happens("rennen", KIDS + "Hund Pferd", phrase("durch", ACC, "through", "Schnee", "the"),
                how="schnell fröhlich"),
        happens("gehen", PEOPLE + OLD, phrase("durch", ACC, "through", "Schnee", "the"),
                how="langsam zusammen allein"),
        happens("Ski||fahren", PEOPLE + "Student", at="auf Berg, auf Hügel", how="zusammen allein"),
        happens("hin|fallen", KIDS + "Mann Student", at="in Schnee"),
        happens("liegen", KIDS, at="in Schnee", how="zusammen"),
        happens("stehen", PEOPLE + "Student", at="in Schnee, auf Hügel, vor Haus"),
        happens("stehen", "Schneemann", at="in Garten, vor Haus, auf Wiese, auf Hügel"),
        happens("fotografieren", GROWN + "Tourist", accusative("Schneemann Berg", "a the the")),
        happens("springen", KIDS + "Hund", phrase("in", ACC, "into", "Schnee", "the"), how="fröhlich"),
        happens("tragen:carry", PEOPLE, accusative("Schlitten", "each each the"),
                phrase("auf", ACC, "up", "Hügel", "a the")),
        happens("an|ziehen", PEOPLE, accusative("Winterjacke Mantel Handschuh Stiefel", "each his"), dressed=False),
        happens("auf|setzen", PEOPLE, accusative("Wollmütze Mütze", "each his"), dressed=False),
        happens("zu|schauen", PARENTS + OLD + "Mann Frau", dative("Kind Junge Mädchen", "the+ two"),
                fixed("beim_Spielen:play"), at="in Schnee"),
        happens("sich_unterhalten", GROWN + "Student", at="in Schnee, vor Haus", number="plural", posture="stehen"),
        happens("trinken", GROWN + "Student", accusative("Tee Kaffee", "mass"), at="in Schnee, vor Haus",
                posture="stehen"),
        happens("lachen", KIDS, how="laut fröhlich"),
        happens("bellen", "Hund Welpe", at="in Schnee", how="laut"),
        happens("liegen", "Hund", at="in Schnee, vor Haus"),
        happens("graben", "Hund Kind", accusative("Loch", "a"), at="in Schnee", number="singular"),
    ),
)

ZOO = Scene(
    clothes=nouns("Hut Mütze Jacke Hemd Kleid Sonnenbrille Rucksack Rock"),
    times=(MORNING, AFTERNOON, SUNDAY, SUNNY),
    watchers=nouns(GROWN + FAMILY + "Kind Junge Mädchen"),
    frames=(
        happens("fressen", "Affe Elefant", accusative("Banane", "each"), at="in Zoo"),
        happens("fressen", "Elefant", accusative("Heu Gras", "mass"), at="in Zoo"),
        happens("fressen", "Bär", accusative("Fisch", "a the"), at="auf Felsen, in Wasser", number="singular"),
        happens("schlafen", "Löwe Bär Affe", at="auf Felsen, unter Baum, in Gras", how="friedlich"),
        happens("liegen", "Löwe Bär", at="auf Felsen, in Gras, unter Baum, neben Baum"),
        happens("sitzen", "Affe Vogel", at="auf Baum, auf Mauer, auf Felsen"),
        happens("stehen", "Elefant", at="in Wasser, hinter Zaun, unter Baum, neben Baum"),
        happens("schwimmen", "Bär Ente", at="in Wasser", how="langsam"),
        happens("klettern", "Affe Bär", phrase("auf", ACC, "up", "Baum", "a a the"), how="schnell langsam",
                number="singular"),
        happens("springen", "Affe", phrase("von", DAT, "off", "Baum Felsen", "a the"), number="singular"),
        happens("springen", "Bär", phrase("in", ACC, "into", "Wasser", "the"), number="singular"),
        happens("spielen", "Affe Bär Elefant", phrase("mit", DAT, "with", "Ball Stock", "a a the"),
                at="in Zoo, auf Felsen", how="zusammen"),
        happens("trinken", "Elefant Löwe Bär", accusative("Wasser", "mass"), at="in Zoo"),
        happens("an|schauen", PEOPLE + OLD + "Tourist", accusative("Affe Elefant Bär Löwe", "a the the+ two"),
                at="in Zoo"),
        happens("fotografieren", GROWN + "Tourist Junge Mädchen",
                accusative("Affe Elefant Bär Löwe", "a the the+ two"), at="in Zoo"),
        happens("zu|schauen", PEOPLE + OLD, dative("Affe Elefant Bär", "the+"), fixed("beim_Fressen:eat")),
        happens("zu|schauen", PEOPLE + OLD, dative("Affe Bär", "the+ two"), fixed("beim_Spielen:play"), at="in Zoo"),
        happens("zeigen", PARENTS + OLD, dative("Kind Junge Mädchen", "the the+ a"),
                accusative("Elefant Löwe Affe Bär", "a the")),
        happens("zeigen", PARENTS, dative("Sohn Tochter", "his"), accusative("Elefant Löwe Affe Bär", "a the"),
                number="singular"),
        happens("füttern", PEOPLE + OLD, accusative("Elefant Affe Ziege Kaninchen", "a the the+"), at="in Zoo"),
        happens("gehen", GROWN + FAMILY + "Tourist", phrase("durch", ACC, "through", "Zoo", "the"),
                how="langsam zusammen"),
        happens("sitzen", PEOPLE + OLD, at="auf Bank, auf Mauer", how="allein zusammen"),
        happens("essen", PEOPLE + "Tourist", accusative("Eis Banane", "each"), at="auf Bank, in Zoo",
                posture="sitzen"),
        happens("zu|winken", KIDS, dative("Affe Elefant", "the a")),
        happens("folgen", "Affe Elefant", dative("Mann Frau", "the a"), phrase("durch", ACC, "through", "Zoo", "the")),
        happens("hoch|heben", PARENTS, accusative("Sohn Tochter", "his"), number="singular"),
        happens("putzen", GROWN, accusative("Fenster", "a the"), at="in Zoo"),
    ),
)

CULTURE = Scene(
    clothes=nouns("Anzug Kleid Hemd Krawatte Rock Hut Jacke Schal Pullover Hose"),
    times=(MORNING, AFTERNOON, EVENING, SUNDAY),
    watchers=nouns(GROWN + "Lehrerin"),
    frames=(
        happens("singen", "Sängerin Frau Kind Mädchen", accusative("Lied", "a a the"), at="auf Bühne",
                posture="stehen"),
        happens("singen", "Sängerin Kind", at="auf Bühne", how="laut leise zusammen"),
        happens("tanzen", "Tänzerin Kind Mädchen Frau", at="auf Bühne", how="zusammen allein"),
        happens("spielen", "Musiker Frau Mann Student", fixed("Gitarre:the_guitar"), at="auf Bühne",
                posture="sitzen stehen"),
        happens("spielen", "Musiker Frau Mann", fixed("Klavier:the_piano"), at="auf Bühne", number="singular"),
        happens("spielen", "Musiker Frau Mädchen", fixed("Geige:the_violin"), at="auf Bühne", posture="stehen"),
        happens("spielen", "Musiker Mann Junge", fixed("Trompete:the_trumpet"), at="auf Bühne", posture="stehen"),
        happens("stehen", "Sängerin Tänzerin Musiker", at="auf Bühne", how="allein zusammen"),
        happens("sitzen", "Musiker", at="auf Stuhl, auf Bühne", number="singular"),
        happens("zu|hören", PEOPLE + OLD + "Student", dative("Sängerin Musiker", "the the a two")),
        happens("zu|schauen", PEOPLE + OLD, dative("Tänzerin", "the the a two the+")),
        happens("zu|winken", "Sängerin Musiker", dative("Kind", "the+ a the")),
        happens("geben", PEOPLE, dative("Sängerin Tänzerin", "the"), accusative("Blumenstrauß Blume", "a"),
                number="singular"),
        happens("malen", "Künstlerin", accusative("Bild", "a a the"), at="an Fenster, in Garten, an Strand, an See",
                number="singular"),
        happens("malen", "Künstlerin", accusative("Baum Blume Kirche Pferd", "a"), number="singular"),
        happens("an|schauen", GROWN + OLD + "Tourist Künstlerin Student",
                accusative("Gemälde Statue Bild", "a the two"), at="in Museum"),
        happens("fotografieren", "Tourist Student", accusative("Gemälde Statue", "a the"), at="in Museum"),
        happens("gehen", GROWN + "Tourist Student", phrase("durch", ACC, "through", "Museum", "the"),
                how="langsam zusammen allein"),
        happens("stehen", GROWN + "Tourist Student", phrase("vor", DAT, "in front of", "Gemälde Statue", "a the")),
        happens("hängen", "Gemälde Bild", at="an Wand, in Museum"),
        happens("stehen", "Statue", at="in Museum, vor Museum, in Park"),
        happens("lesen", GROWN + "Student Lehrerin", accusative("Buch Zeitung", "each each the"), at="in Bibliothek",
                posture="sitzen"),
        happens("lernen", "Student", at="in Bibliothek", how="zusammen allein", posture="sitzen"),
        happens("schlafen", "Student", at="in Bibliothek", number="singular", how="friedlich"),
        happens("sitzen", "Student Lehrerin Kind", at="in Bibliothek, in Klassenzimmer, an Tisch",
                how="allein zusammen"),
        happens("arbeiten", "Student Lehrerin Frau", at="in Bibliothek", how="leise allein zusammen"),
        happens("stehen", "Lehrerin", at="in Klassenzimmer, an Fenster, an Tafel"),
        happens("schreiben", "Lehrerin Kind Mädchen Junge", accusative("Wort", "a a two"),
                phrase("an", ACC, "on", "Tafel", "the")),
        happens("vor|lesen", "Lehrerin", dative("Kind", "the the+", to=True), accusative("Buch Geschichte Brief", "a"),
                at="in Klassenzimmer", posture="sitzen stehen"),
        happens("erzählen", "Lehrerin Großvater", dative("Kind", "the+"), accusative("Geschichte", "a")),
        happens("zeigen", "Lehrerin", dative("Kind Mädchen Junge", "the the+"), accusative("Bild Buch", "a")),
        happens("zeigen", "Künstlerin", dative("Tourist Kind Frau", "the the+ a"),
                accusative("Bild Gemälde", "a the")),
        happens("helfen", "Lehrerin", dative("Kind Mädchen Junge", "the the+ a"), fixed("beim_Lesen:read"),
                at="in Klassenzimmer"),
        happens("helfen", "Lehrerin", dative("Kind Mädchen Junge", "the the+ a"), fixed("beim_Malen:paint"),
                at="in Klassenzimmer"),
        happens("zu|hören", KIDS, dative("Lehrerin", "the"), at="in Klassenzimmer"),
        happens("malen", KIDS, accusative("Bild", "each each"), at="in Klassenzimmer, in Schule", posture="sitzen"),
        happens("lesen", KIDS, accusative("Buch", "each"), at="in Klassenzimmer, in Schule, in Bibliothek",
                posture="sitzen"),
        happens("singen", "Kind Junge Mädchen", accusative("Lied", "a"), at="in Schule, in Klassenzimmer",
                number="plural"),
        happens("öffnen", "Lehrerin Student", accusative("Fenster Tür", "the"), how="leise langsam",
                number="singular"),
    ),
)

WORK = Scene(
    clothes=nouns("Helm Weste Jacke Hemd Stiefel Handschuh Schürze Mütze Uniform Hose"),
    times=(MORNING, AFTERNOON, SUNNY),
    watchers=nouns("Mann Frau Junge"),
    frames=(
        happens("arbeiten", "Bauarbeiter", at="auf Baustelle, auf Dach, auf Straße", how="zusammen allein"),
        happens("tragen:carry", "Bauarbeiter", accusative("Leiter Brett Kiste Eimer Stein", "a a the two"),
                phrase("über", ACC, "across", "Baustelle Straße", "the")),
        happens("tragen:carry", "Bauarbeiter", accusative("Leiter Brett", "a the"),
                phrase("in", ACC, "into", "Haus", "the")),
        happens("bauen", "Bauarbeiter", accusative("Mauer Haus", "a"), at="neben Straße, in Stadt, neben Kirche"),
        happens("schieben", "Bauarbeiter", accusative("Schubkarre", "each each the"),
                phrase("über", ACC, "across", "Baustelle", "the"), how="langsam"),
        happens("klettern", "Bauarbeiter", phrase("auf", ACC, "up", "Leiter", "a a the"), number="singular",
                how="vorsichtig langsam"),
        happens("stehen", "Bauarbeiter", at="auf Leiter", number="singular"),
        happens("stehen", "Bauarbeiter", at="auf Dach, auf Baustelle, auf Straße"),
        happens("sitzen", "Bauarbeiter", at="auf Mauer, auf Dach", how="allein zusammen"),
        happens("trinken", "Bauarbeiter Koch Kellnerin", accusative("Kaffee Wasser Tee", "mass"),
                posture="sitzen stehen"),
        happens("machen", "Bauarbeiter", fixed("Pause:a_break"), at="auf Baustelle, auf Mauer"),
        happens("reparieren", "Bauarbeiter", accusative("Dach Mauer Zaun Straße", "a the the")),
        happens("sägen", "Bauarbeiter", accusative("Brett", "a a the two"), at="auf Baustelle", how="vorsichtig"),
        happens("graben", "Bauarbeiter", accusative("Loch", "a"), at="auf Straße, auf Baustelle"),
        happens("streichen", "Bauarbeiter", accusative("Wand Haus Tür", "a the")),
        happens("hoch|heben", "Bauarbeiter", accusative("Stein Kiste Brett", "a a the")),
        happens("fahren:drive", "Bauarbeiter", phrase("mit", DAT, "", "Lastwagen", "a the"),
                phrase("über", ACC, "across", "Baustelle Brücke", "the"), number="singular", how="langsam"),
        happens("kochen", "Koch", accusative("Suppe Gemüse Fisch", "mass"), at="in Restaurant, in Küche"),
        happens("backen", "Koch", accusative("Kuchen Pizza", "a"), at="in Restaurant, in Küche"),
        happens("schneiden", "Koch", accusative("Gemüse Fisch Käse Obst", "mass the"), at="in Küche",
                how="vorsichtig schnell"),
        happens("bringen", "Kellnerin", dative("Mann Frau Tourist", "a the"),
                accusative("Suppe Pizza Salat Kuchen", "a the")),
        happens("bringen", "Kellnerin", dative("Mann Frau Tourist", "a the"),
                fixed("eine:a Tasse:cup_of Kaffee:coffee")),
        happens("an|lächeln", "Kellnerin", accusative("Mann Junge Tourist Koch", "a the")),
        happens("zeigen", "Koch", dative("Kellnerin Student", "the a"), accusative("Fisch Kuchen", "a the")),
        happens("bestellen", GROWN + "Tourist Student", accusative("Suppe Salat Pizza Kuchen", "a"),
                at="in Restaurant", posture="sitzen", number="singular"),
        happens("bestellen", GROWN + "Tourist Student", accusative("Kaffee Tee Fisch", "mass"),
                at="in Café, in Restaurant", posture="sitzen"),
        happens("sitzen", GROWN + OLD + "Tourist", at="in Restaurant, in Café, an Tisch", how="allein zusammen"),
        happens("essen", GROWN + OLD + "Tourist", accusative("Fisch Suppe Salat Gemüse", "mass"), at="in Restaurant",
                posture="sitzen"),
        happens("essen", GROWN + KIDS + "Tourist", accusative("Pizza", "each"), at="in Restaurant", posture="sitzen"),
        happens("stehen", "Koch Kellnerin", at="vor Restaurant, in Küche"),
        happens("putzen", "Kellnerin", accusative("Tisch", "a the the+"), at="in Restaurant, in Café"),
    ),
)

SCENES = (PARK, HOME, BEACH, FARM, CITY, MARKET, SPORT, WINTER_SCENE, ZOO, CULTURE, WORK)

# Subordinate clauses whose reason fits what happens

IS_TIRED, IS_HUNGRY, IS_THIRSTY = (("müde", "ist", "sind", "tired"), ("Hunger", "hat", "haben", "hungry"),
                                   ("Durst", "hat", "haben", "thirsty"))  # fmt: skip
RAIN = Fixed(("es", "regnet"), ("it", "is", "raining"), ((0, 0), (1, 1), (1, 2)))
SNOW = Fixed(("es", "schneit"), ("it", "is", "snowing"), ((0, 0), (1, 1), (1, 2)))
COLD = Fixed(("es", "kalt", "ist"), ("it", "is", "cold"), ((0, 0), (1, 2), (2, 1)))
HOT = Fixed(("es", "heiß", "ist"), ("it", "is", "hot"), ((0, 0), (1, 2), (2, 1)))
SUNSHINE = Fixed(("die", "Sonne", "scheint"), ("the", "sun", "is", "shining"), ((0, 0), (1, 1), (2, 2), (2, 3)))

WALKERS = "Mann Frau Junge Mädchen Student Tourist "

BECAUSE = (
    (IS_TIRED, happens("schlafen", WALKERS + OLD + "Baby", at="in Bett, auf Sofa")),
    (IS_TIRED, happens("sich_aus|ruhen", WALKERS + OLD + "Läufer Bauarbeiter Radfahrer",
                at="auf Bank, unter Baum, in Gras")),
    (IS_TIRED, happens("sich_setzen", WALKERS + OLD + "Läufer Bauarbeiter",
                phrase("auf", ACC, "on", "Bank", "a a the"))),
    (IS_TIRED, happens("weinen", "Junge Mädchen Baby")),
    (IS_TIRED, happens("liegen", WALKERS + "Hund Katze", at="auf Sofa")),
    (IS_TIRED, happens("trinken", "Mann Frau Student Polizist Lehrerin", accusative("Kaffee", "mass"))),
    (IS_TIRED, happens("schlafen", "Hund Katze Welpe Esel Löwe Bär", at="unter Baum, in Gras")),
    (IS_HUNGRY, happens("essen", WALKERS + OLD + "Bauarbeiter Läufer", accusative("Pizza Apfel Banane", "each"))),
    (IS_HUNGRY, happens("essen", WALKERS + OLD + "Bauarbeiter", accusative("Brot Suppe Käse Salat", "mass"))),
    (IS_HUNGRY, happens("bestellen", "Mann Frau Student Tourist Musiker", accusative("Suppe Pizza", "a"))),
    (IS_HUNGRY, happens("weinen", "Baby")),
    (IS_HUNGRY, happens("fressen", "Pferd Kuh Esel Schaf Ziege Kaninchen", accusative("Gras Heu", "mass"))),
    (IS_HUNGRY, happens("bellen", "Hund Welpe")),
    (IS_THIRSTY, happens("trinken", WALKERS + "Läufer Bauarbeiter Radfahrer Fußballspieler",
                accusative("Wasser Saft", "mass"))),
    (IS_THIRSTY, happens("trinken", "Hund Pferd Kuh Esel Elefant", accusative("Wasser", "mass"))),
    (COLD, happens("tragen", PEOPLE + OLD + "Student Tourist",
                accusative("Mantel Schal Wollmütze Winterjacke Handschuh", "each"))),
    (COLD, happens("an|ziehen", PEOPLE + "Student", accusative("Pullover Mantel Jacke", "each his"))),
    (COLD, happens("trinken", "Mann Frau Student Tourist Polizist", accusative("Tee", "mass"))),
    (COLD, happens("gehen", PEOPLE + OLD + "Tourist", phrase("in", ACC, "into", "Haus Café", "the"))),
    (RAIN, happens("tragen", PEOPLE + "Tourist Student Radfahrer", accusative("Regenmantel", "each"))),
    (RAIN, happens("halten", PEOPLE + OLD + "Tourist Student Lehrerin", accusative("Regenschirm", "each"))),
    (RAIN, happens("rennen", PEOPLE + "Hund Katze", phrase("in", ACC, "into", "Haus", "the"))),
    (RAIN, happens("stehen", PEOPLE + "Kuh Pferd Schaf", at="unter Baum")),
    (RAIN, happens("warten", PEOPLE + "Tourist", phrase("in", DAT, "in", "Café Museum Bahnhof", "the"))),
    (SNOW, happens("tragen", PEOPLE + OLD, accusative("Stiefel Winterjacke Wollmütze Handschuh", "each"))),
    (SNOW, happens("sich_freuen", KIDS)),
    (SUNSHINE, happens("sich_freuen", PEOPLE + OLD + "Bauer Tourist")),
    (SUNSHINE, happens("tragen", PEOPLE + OLD + "Tourist Bauer", accusative("Strohhut Sonnenbrille", "each"))),
    (SUNSHINE, happens("sitzen", PEOPLE + OLD + "Student", at="in Garten, auf Wiese, vor Haus")),
    (HOT, happens("essen", PEOPLE + "Tourist Student", accusative("Eis", "each"))),
    (HOT, happens("schwimmen", PEOPLE + "Tourist Student Hund", at="in See, in Meer", dressed=False)),
    (HOT, happens("springen", KIDS + "Student Hund", phrase("in", ACC, "into", "Wasser See", "the"), dressed=False)),
    (HOT, happens("liegen", "Hund Katze Löwe Kuh", at="unter Baum")),
    (HOT, happens("aus|ziehen", PEOPLE + "Student Tourist", accusative("Jacke Pullover", "each his"))),
)

ALTHOUGH = (
    (COLD, happens("tragen", PEOPLE + "Student Tourist", accusative("Jacke Mantel Schal Mütze Handschuh", "not"))),
    (SNOW, happens("tragen", PEOPLE + "Student", accusative("Handschuh Mantel Mütze Schal", "not"))),
    (RAIN, happens("tragen", PEOPLE + "Tourist Radfahrer", accusative("Regenmantel", "not"))),
    (RAIN, happens("haben", PEOPLE + "Tourist Student", accusative("Regenschirm", "not"))),
    (SUNSHINE, happens("tragen", PEOPLE + "Tourist Bauer", accusative("Hut Sonnenbrille", "not"))),
    (COLD, happens("spielen", KIDS, at=OUTSIDE + ", in Garten, in Park")),
    (RAIN, happens("spielen", KIDS, at=OUTSIDE + ", auf Spielplatz, in Park")),
    (RAIN, happens("spielen", "Kind Junge Mädchen Student", fixed("Fußball:soccer"), number="plural")),
    (COLD, happens("schwimmen", GROWN + "Student", at="in See, in Meer", dressed=False)),
    (COLD, happens("essen", KIDS + "Student", accusative("Eis", "each"))),
    (RAIN, happens("fahren:ride", GROWN + "Student", fixed("Fahrrad:a_bicycle"), number="singular")),
    (SNOW, happens("fahren:ride", GROWN + "Student", fixed("Fahrrad:a_bicycle"), number="singular")),
    (RAIN, happens("fahren:ride", PEOPLE, fixed("Fahrrad:bicycles"), number="plural")),
    (RAIN, happens("gehen", GROWN + "Tourist Student", phrase("durch", ACC, "through", "Stadt Park Wald", "the"))),
    (RAIN, happens("arbeiten", "Bauer", at="auf Feld")),
    (RAIN, happens("arbeiten", "Bauarbeiter", at="auf Straße, auf Dach")),
    (HOT, happens("arbeiten", "Bauer Mann Frau", at="auf Feld")),
    (HOT, happens("arbeiten", "Bauarbeiter", at="auf Straße, auf Dach")),
    (HOT, happens("tragen", GROWN + "Musiker Tourist", accusative("Mantel Schal Pullover", "each"))),
    (IS_TIRED, happens("arbeiten", "Bauarbeiter Bauer Koch Lehrerin Kellnerin")),
    (IS_TIRED, happens("spielen", "Junge Mädchen")),
    (IS_TIRED, happens("tanzen", "Tänzerin Frau Mädchen")),
    (IS_TIRED, happens("joggen", "Läufer Mann Frau Student", phrase("durch", ACC, "through", "Park Wald", "the"))),
    (IS_TIRED, happens("lesen", "Student Großvater Großmutter Frau Mann", accusative("Buch", "a the"),
                number="singular")),
)

BENDS_DOWN = happens("sich_bücken", PEOPLE + OLD + "Tourist")
STOPS = happens("stehen||bleiben", PEOPLE + OLD + "Tourist Polizist Radfahrer")
SITS_DOWN = happens("sich_setzen", PEOPLE + OLD + "Student Tourist", phrase("auf", ACC, "on", "Bank", "a a the"))
TO_THE_CAFE = happens("gehen", GROWN + OLD + "Student Tourist", phrase("in", ACC, "into", "Café", "a the"))
TO_THE_RESTAURANT = happens("gehen", GROWN + OLD + "Student Tourist", phrase("in", ACC, "into", "Restaurant", "a the"))
TO_THE_KITCHEN = happens("gehen", GROWN + FAMILY, phrase("in", ACC, "into", "Küche", "the"))
TO_THE_MARKET = happens("gehen", GROWN + FAMILY + "Koch", phrase("zu", DAT, "to", "Markt", "the"))
TO_THE_GARDEN = happens("gehen", PEOPLE + FAMILY, phrase("in", ACC, "into", "Garten", "the"))
TO_THE_BARN = happens("gehen", GROWN + "Bauer Mädchen", phrase("in", ACC, "into", "Stall", "the"))
TO_THE_MUSEUM = happens("gehen", GROWN + "Student Tourist Künstlerin", phrase("in", ACC, "into", "Museum", "the a"))
TO_THE_LIBRARY = happens("gehen", GROWN + "Student Lehrerin", phrase("in", ACC, "into", "Bibliothek", "the"))
UP_A_LADDER = happens("klettern", GROWN + "Bauarbeiter", phrase("auf", ACC, "up", "Leiter", "a the"), number="singular")
INTO_THE_WATER = happens("springen", KIDS + "Mann Hund", phrase("in", ACC, "into", "Wasser See Teich", "the"),
                         number="singular", dressed=False)  # fmt: skip
TO_THE_BUS = happens("rennen", WALKERS, phrase("zu", DAT, "to", "Bushaltestelle", "the"))
TO_THE_TRAIN = happens("rennen", WALKERS, phrase("zu", DAT, "to", "Bahnhof", "the"))

PURPOSES = (
    (BENDS_DOWN, happens("auf|heben", "", accusative("Ball Stock Blatt Stein", "a a the"))),
    (BENDS_DOWN, happens("pflücken", "", accusative("Blume", "a +"))),
    (BENDS_DOWN, happens("streicheln", "", accusative("Hund Katze Kaninchen Welpe", "a a the"))),
    (STOPS, happens("fotografieren", "", accusative("Kirche Brunnen Statue Brücke Turm Vogel", "a the"))),
    (STOPS, happens("zu|hören", "", dative("Musiker Sängerin", "a the"))),
    (STOPS, happens("streicheln", "", accusative("Hund Katze Pferd", "a a the"))),
    (STOPS, happens("an|schauen", "", accusative("Kirche Brunnen Statue Turm", "a the"))),
    (SITS_DOWN, happens("lesen", "", accusative("Buch", "each each the"))),
    (SITS_DOWN, happens("essen", "", accusative("Apfel Eis Banane", "each"))),
    (SITS_DOWN, happens("sich_aus|ruhen", "")),
    (SITS_DOWN, happens("zu|schauen", "", dative("Kind Ente Vogel", "the+"))),
    (TO_THE_CAFE, happens("trinken", "", accusative("Kaffee Tee", "mass"))),
    (TO_THE_CAFE, happens("lesen", "", accusative("Zeitung", "each the"))),
    (TO_THE_CAFE, happens("essen", "", accusative("Kuchen Eis", "mass"))),
    (TO_THE_RESTAURANT, happens("essen", "", accusative("Pizza", "each"))),
    (TO_THE_RESTAURANT, happens("essen", "", accusative("Fisch Suppe", "mass"))),
    (TO_THE_KITCHEN, happens("kochen", "", accusative("Suppe Gemüse", "mass"))),
    (TO_THE_KITCHEN, happens("backen", "", accusative("Kuchen Pizza", "a"))),
    (TO_THE_KITCHEN, happens("trinken", "", accusative("Kaffee Tee", "mass"))),
    (TO_THE_KITCHEN, happens("ab|trocknen", "", accusative("Geschirr", "the"))),
    (TO_THE_MARKET, happens("kaufen", "", accusative("Obst Gemüse Käse Fisch Brot", "mass"))),
    (TO_THE_MARKET, happens("kaufen", "", accusative("Apfel Blume Karotte", "+"))),
    (TO_THE_MARKET, happens("ein|kaufen", "")),
    (TO_THE_GARDEN, happens("pflücken", "", accusative("Apfel Blume", "+ a"))),
    (TO_THE_GARDEN, happens("gießen", "", accusative("Blume", "the+"))),
    (TO_THE_GARDEN, happens("spielen", "", phrase("mit", DAT, "with", "Hund Welpe Katze", "the"))),
    (TO_THE_BARN, happens("füttern", "", accusative("Pferd Kuh Ziege Esel", "the the+"))),
    (TO_THE_BARN, happens("bürsten", "", accusative("Pferd Esel", "the a"))),
    (TO_THE_MUSEUM, happens("an|schauen", "", accusative("Gemälde Statue", "a two"))),
    (TO_THE_LIBRARY, happens("lesen", "", accusative("Buch Zeitung", "each"))),
    (TO_THE_LIBRARY, happens("lernen", "")),
    (UP_A_LADDER, happens("pflücken", "", accusative("Apfel", "+"))),
    (UP_A_LADDER, happens("putzen", "", accusative("Fenster", "a the"))),
    (UP_A_LADDER, happens("reparieren", "", accusative("Dach", "the a"))),
    (UP_A_LADDER, happens("streichen", "", accusative("Wand Haus", "a the"))),
    (INTO_THE_WATER, happens("holen", "", accusative("Ball Stock", "a the"))),
    (TO_THE_BUS, happens("erreichen", "", accusative("Bus", "the"))),
    (TO_THE_TRAIN, happens("erreichen", "", accusative("Zug", "the"))),
)

# How many subjects fit, because a chair holds only one
ROOM = {
    **dict.fromkeys(("Stuhl", "Handtuch", "Leiter", "Bett"), 1),
    **dict.fromkeys(("Schlitten", "Wagen"), 2),
    **dict.fromkeys(("Bank", "Sofa", "Decke", "Boot", "Fenster"), 3),
    "Tisch": 4,
}
COUPLES = frozenset(  # "ein Mann und eine Frau"
    pair
    for couple in (
        "Mann Frau", "Mann Junge", "Mann Mädchen", "Mann Kind", "Frau Junge", "Frau Mädchen", "Frau Kind",
        "Junge Mädchen", "Hund Katze", "Pferd Esel", "Kuh Pferd", "Schaf Ziege", "Vogel Ente", "Affe Elefant",
    )
    for pair in (tuple(couple.split()), tuple(couple.split()[::-1]))
)  # fmt: skip
COMPANIONS = {"Mutter": nouns("Sohn Tochter"), "Vater": nouns("Sohn Tochter"), "Junge": nouns("Freund")}
FEATURES = {
    "Mann": nouns("Haar Bart Bart"),
    "Musiker": nouns("Haar Bart"),
    "Bauer": nouns("Bart"),
    "Frau": nouns("Haar"),
    "Mädchen": nouns("Haar"),
    "Sängerin": nouns("Haar"),
    "Tänzerin": nouns("Haar"),
}
SINGLE = frozenset(nouns(FAMILY + "Koch Sohn Tochter Freund Lehrerin Kellnerin Künstlerin"))  # rarely seen in groups
PAIRED = frozenset(nouns("Handschuh Stiefel"))
UNISEX = frozenset(nouns("Hut Mütze Wollmütze Jacke Winterjacke Pullover Hose Schal Stiefel Handschuh Sonnenbrille "
                         "Strohhut Regenmantel Rucksack Mantel Hemd"))  # fmt: skip
FOR_WOMEN = frozenset(nouns("Kleid Sommerkleid Rock Badeanzug"))
FOR_MEN = frozenset(nouns("Anzug Krawatte"))
FOR_WORK = {  # worn at work
    "Polizist": "Uniform Mütze Sonnenbrille",
    "Feuerwehrmann": "Uniform Helm Jacke Stiefel",
    "Bauarbeiter": "Helm Weste Stiefel Handschuh Jacke Hose",
    "Koch": "Schürze Mütze",
    "Kellnerin": "Schürze Rock",
    "Radfahrer": "Helm Jacke Sonnenbrille",
    "Läufer": "Mütze Hose Sonnenbrille",
    "Fußballspieler": "Hose",
    "Bauer": "Strohhut Hut Hemd Stiefel Jacke Hose",
    "Baby": "Mütze",
    "Tänzerin": "Kleid Rock",
    "Sängerin": "Kleid Rock Hut",
}
EXTRAS = frozenset(nouns(  # worn in addition to a shirt, a coat, or a dress
    "Hut Mütze Wollmütze Strohhut Helm Schal Handschuh Stiefel Sonnenbrille Rucksack Krawatte Schürze"
))  # fmt: skip
WORN_IN = frozenset(nouns(  # "in einem roten Hemd", but "mit einem roten Hut"
    "Jacke Lederjacke Winterjacke Regenmantel Mantel Hemd Pullover Kleid Sommerkleid Rock Hose Anzug Weste Uniform "
    "Badeanzug Stiefel Schürze"
))  # fmt: skip


def wears(person: Noun, garment: Noun) -> bool:
    if person.singular in FOR_WORK:
        return garment.singular in FOR_WORK[person.singular].split()
    if person.kind != "person":
        return False
    grown_man = person.pronoun == "he" and person.singular != "Junge"
    woman = person.pronoun == "she"
    return (
        garment in UNISEX
        or (garment in FOR_WOMEN and woman)
        or (garment in FOR_MEN and grown_man)
        or (garment.singular == "Lederjacke" and person.singular in ("Mann", "Frau"))
    )
