"""Check the captions grammar against German grammar rules, which are written out here independently, as in a textbook.

Nothing in these tables comes from the generator: genders, plurals, and endings are spelled out, and sentences are
parsed only from their words.
"""

import lzma
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from sentences import generate_captions
from write_captions import corpus_text

from transformer_lab.data.captions import FILE, Caption, load_captions

# Article, noun, plural, English singular, English plural. "-" marks a missing form, "*" the n-declension.
NOUNS = """
der Mann Männer man men
die Frau Frauen woman women
der Junge* Jungen boy boys
das Mädchen Mädchen girl girls
das Kind Kinder child children
das Baby Babys baby babies
der Student* Studenten student students
der Tourist* Touristen tourist tourists
der Polizist* Polizisten police_officer police_officers
der Koch Köche chef chefs
der Bauarbeiter Bauarbeiter construction_worker construction_workers
der Musiker Musiker musician musicians
die Sängerin Sängerinnen singer singers
die Tänzerin Tänzerinnen dancer dancers
die Lehrerin Lehrerinnen teacher teachers
die Kellnerin Kellnerinnen waitress waitresses
die Künstlerin Künstlerinnen artist artists
der Bauer* Bauern farmer farmers
der Fußballspieler Fußballspieler soccer_player soccer_players
der Feuerwehrmann Feuerwehrleute firefighter firefighters
der Radfahrer Radfahrer cyclist cyclists
der Läufer Läufer runner runners
die Großmutter Großmütter grandmother grandmothers
der Großvater Großväter grandfather grandfathers
die Mutter Mütter mother mothers
der Vater Väter father fathers
der Sohn Söhne son sons
die Tochter Töchter daughter daughters
der Freund Freunde friend friends
der Hund Hunde dog dogs
der Welpe* Welpen puppy puppies
die Katze Katzen cat cats
das Pferd Pferde horse horses
die Kuh Kühe cow cows
das Schaf Schafe sheep sheep
die Ziege Ziegen goat goats
der Esel Esel donkey donkeys
das Huhn Hühner chicken chickens
die Ente Enten duck ducks
der Vogel Vögel bird birds
das Kaninchen Kaninchen rabbit rabbits
der Affe* Affen monkey monkeys
der Elefant* Elefanten elephant elephants
der Bär* Bären bear bears
der Löwe* Löwen lion lions
der Hut Hüte hat hats
die Mütze Mützen cap caps
die Wollmütze Wollmützen wool_cap wool_caps
die Jacke Jacken jacket jackets
die Lederjacke Lederjacken leather_jacket leather_jackets
die Winterjacke Winterjacken winter_jacket winter_jackets
der Regenmantel Regenmäntel raincoat raincoats
der Mantel Mäntel coat coats
das Hemd Hemden shirt shirts
der Pullover Pullover sweater sweaters
das Kleid Kleider dress dresses
das Sommerkleid Sommerkleider summer_dress summer_dresses
der Rock Röcke skirt skirts
die Hose Hosen pants pants
der Anzug Anzüge suit suits
die Krawatte Krawatten tie ties
der Schal Schals scarf scarves
der Stiefel Stiefel boot boots
der Handschuh Handschuhe glove gloves
die Sonnenbrille Sonnenbrillen sunglasses sunglasses
der Strohhut Strohhüte straw_hat straw_hats
der Helm Helme helmet helmets
die Weste Westen vest vests
die Schürze Schürzen apron aprons
die Uniform Uniformen uniform uniforms
der Badeanzug Badeanzüge swimsuit swimsuits
der Rucksack Rucksäcke backpack backpacks
der Bart Bärte beard beards
das Haar Haare hair hair
der Ball Bälle ball balls
der Luftballon Luftballons balloon balloons
die Puppe Puppen doll dolls
der Teddybär* Teddybären teddy_bear teddy_bears
das Spielzeugauto Spielzeugautos toy_car toy_cars
der Stock Stöcke stick sticks
der Schneeball Schneebälle snowball snowballs
der Schneemann Schneemänner snowman snowmen
der Schlitten Schlitten sled sleds
die Sandburg Sandburgen sandcastle sandcastles
das Loch Löcher hole holes
das Buch Bücher book books
die Zeitung Zeitungen newspaper newspapers
der Brief Briefe letter letters
die Geschichte Geschichten story stories
der Stadtplan Stadtpläne city_map city_maps
das Bild Bilder picture pictures
das Gemälde Gemälde painting paintings
die Statue Statuen statue statues
das Lied Lieder song songs
der Apfel Äpfel apple apples
die Banane Bananen banana bananas
die Karotte Karotten carrot carrots
das Eis - ice_cream ice_cream
die Pizza Pizzas pizza pizzas
der Kuchen Kuchen cake cakes
die Suppe Suppen soup soups
der Salat Salate salad salads
das Brot Brote bread breads
das Obst - fruit fruit
das Gemüse - vegetables vegetables
der Käse - cheese cheese
der Fisch Fische fish fish
das Heu - hay hay
das Gras - grass grass
das Wasser - water water
der Kaffee - coffee coffee
der Tee - tea tea
die Milch - milk milk
der Saft - juice juice
das Geschirr - dishes dishes
der Regenschirm Regenschirme umbrella umbrellas
der Korb Körbe basket baskets
der Eimer Eimer bucket buckets
der Koffer Koffer suitcase suitcases
die Tasche Taschen bag bags
die Kiste Kisten box boxes
die Blume Blumen flower flowers
der Blumenstrauß Blumensträuße bouquet_of_flowers bouquets_of_flowers
das Blatt Blätter leaf leaves
der Stein Steine stone stones
das Brett Bretter board boards
die Leiter Leitern ladder ladders
die Fahne Fahnen flag flags
das Schild Schilder sign signs
das Geschenk Geschenke present presents
die Vase Vasen vase vases
die Lampe Lampen lamp lamps
die Tasse Tassen cup cups
das Fenster Fenster window windows
die Tür Türen door doors
die Wand Wände wall walls
die Mauer Mauern wall walls
der Zaun Zäune fence fences
das Auto Autos car cars
der Bus Busse bus buses
der Zug Züge train trains
der Lastwagen Lastwagen truck trucks
das Motorrad Motorräder motorcycle motorcycles
das Fahrrad Fahrräder bicycle bicycles
der Traktor Traktoren tractor tractors
das Boot Boote boat boats
der Kinderwagen Kinderwagen stroller strollers
der Wagen Wagen wagon wagons
die Schubkarre Schubkarren wheelbarrow wheelbarrows
der Park Parks park parks
der Garten Gärten garden gardens
der Wald Wälder forest forests
die Wiese Wiesen meadow meadows
der Spielplatz Spielplätze playground playgrounds
der See Seen lake lakes
der Teich Teiche pond ponds
der Fluss Flüsse river rivers
das Meer Meere sea seas
der Strand Strände beach beaches
der Sand - sand sand
der Schnee - snow snow
die Pfütze Pfützen puddle puddles
die Welle Wellen wave waves
der Baum Bäume tree trees
die Bank Bänke bench benches
die Decke Decken blanket blankets
das Handtuch Handtücher towel towels
der Berg Berge mountain mountains
der Hügel Hügel hill hills
der Felsen Felsen rock rocks
das Feld Felder field fields
der Stall Ställe barn barns
das Haus Häuser house houses
die Kirche Kirchen church churches
der Turm Türme tower towers
die Brücke Brücken bridge bridges
der Brunnen Brunnen fountain fountains
die Straße Straßen street streets
der Gehweg Gehwege sidewalk sidewalks
der Marktplatz Marktplätze market_square market_squares
die Bushaltestelle Bushaltestellen bus_stop bus_stops
der Bahnhof Bahnhöfe train_station train_stations
die Stadt Städte city cities
der Markt Märkte market markets
das Geschäft Geschäfte store stores
das Café Cafés café cafés
das Restaurant Restaurants restaurant restaurants
das Museum Museen museum museums
die Bibliothek Bibliotheken library libraries
die Schule Schulen school schools
das Klassenzimmer Klassenzimmer classroom classrooms
die Tafel Tafeln board boards
das Wort Wörter word words
die Küche Küchen kitchen kitchens
das Wohnzimmer Wohnzimmer living_room living_rooms
das Sofa Sofas sofa sofas
der Tisch Tische table tables
der Stuhl Stühle chair chairs
das Bett Betten bed beds
der Teppich Teppiche carpet carpets
der Boden Böden floor floors
die Treppe Treppen stairs stairs
das Dach Dächer roof roofs
die Baustelle Baustellen construction_site construction_sites
die Bühne Bühnen stage stages
der Fußballplatz Fußballplätze soccer_field soccer_fields
das Schwimmbad Schwimmbäder swimming_pool swimming_pools
das Tor Tore goal goals
das Rennen Rennen race races
der Zoo Zoos zoo zoos
der Morgen - morning morning
der Nachmittag - afternoon afternoon
der Abend - evening evening
der Sonntag - Sunday Sunday
der Tag Tage day days
der Sommertag Sommertage summer_day summer_days
der Wintertag Wintertage winter_day winter_days
die Gruppe Gruppen group groups
das Glas Gläser glass glasses
die Sonne Sonnen sun suns
die Arbeit Arbeiten work work
der Weg Wege way ways
"""
# Nouns in set phrases, which take neither an article nor an adjective
SET_PHRASES = """
Gitarre Flöte Geige Trompete Klavier Fußball Basketball Volleyball Tennis Schach Karten Pause Hunger Durst Fahrrad Ski
Spielen Kochen Lesen Malen Schwimmen Fressen
"""
SET_PHRASES = set(SET_PHRASES.split())
ADJECTIVES = """
rot blau grün gelb schwarz weiß braun grau blond klein groß jung alt neu freundlich kräftig berühmt schön elegant bunt
dick warm kalt heiß frisch süß trocken tief hoh lang kurz schwer leer schmutzig sonnig
"""

ADJECTIVE_FORMS = {stem + end: end for stem in ADJECTIVES.split() for end in ("e", "er", "es", "en", "em")}

# Every article and pronoun that can precede a noun: (case, gender or plural, ending of a following adjective)
NOM, ACC, DAT = "nominative", "accusative", "dative"
DER_WORDS = {
    "der": {(NOM, "m", "e"), (DAT, "f", "en")},
    "die": {(NOM, "f", "e"), (ACC, "f", "e"), (NOM, "pl", "en"), (ACC, "pl", "en")},
    "das": {(NOM, "n", "e"), (ACC, "n", "e")},
    "den": {(ACC, "m", "en"), (DAT, "pl", "en")},
    "dem": {(DAT, "m", "en"), (DAT, "n", "en")},
    "im am beim vom zum": {(DAT, "m", "en"), (DAT, "n", "en")},
    "ins ans": {(ACC, "n", "e")},
    "zur": {(DAT, "f", "en")},
}
EIN_WORDS = {
    "": {(NOM, "m", "er"), (NOM, "n", "es"), (ACC, "n", "es")},
    "e": {(NOM, "f", "e"), (ACC, "f", "e"), (NOM, "pl", "en"), (ACC, "pl", "en")},
    "en": {(ACC, "m", "en"), (DAT, "pl", "en")},
    "em": {(DAT, "m", "en"), (DAT, "n", "en")},
    "er": {(DAT, "f", "en")},
}
NO_ARTICLE = {
    (NOM, "m", "er"), (NOM, "f", "e"), (NOM, "n", "es"), (NOM, "pl", "e"),
    (ACC, "m", "en"), (ACC, "f", "e"), (ACC, "n", "es"), (ACC, "pl", "e"),
    (DAT, "m", "em"), (DAT, "f", "er"), (DAT, "n", "em"), (DAT, "pl", "en"),
}  # fmt: skip
NUMBERS = {reading for reading in NO_ARTICLE if reading[1] == "pl"}
DETERMINERS = {word: readings for words, readings in DER_WORDS.items() for word in words.split()}
DETERMINERS |= {stem + end: rows for stem in ("kein", "sein", "ihr") for end, rows in EIN_WORDS.items()}
DETERMINERS |= {"ein" + end: {row for row in rows if row[1] != "pl"} for end, rows in EIN_WORDS.items()}
DETERMINERS |= dict.fromkeys(("zwei", "drei", "vier", "einige", "mehrere", "viele"), NUMBERS)
CONTRACTIONS = {"im": "in", "ins": "in", "am": "an", "ans": "an", "beim": "bei", "vom": "von", "zum": "zu", "zur": "zu"}
ONLY_DATIVE = {"mit", "von", "zu", "aus", "bei"}
ONLY_ACCUSATIVE = {"durch", "um"}
TWO_WAY = {"in", "an", "auf", "über", "unter", "vor", "hinter", "neben"}
PREPOSITIONS = ONLY_DATIVE | ONLY_ACCUSATIVE | TWO_WAY
DIRECTIONS = {"into", "onto", "up", "across", "over", "through", "around"}  # English prepositions of direction

PRONOUNS = {  # relative pronouns: (case, gender or plural of the antecedent)
    "der": {(NOM, "m"), (DAT, "f")},
    "die": {(NOM, "f"), (ACC, "f"), (NOM, "pl"), (ACC, "pl")},
    "das": {(NOM, "n"), (ACC, "n")},
    "den": {(ACC, "m")},
    "dem": {(DAT, "m"), (DAT, "n")},
    "denen": {(DAT, "pl")},
}
# Finite verbs, singular and plural, and the separable prefixes
VERBS = """
spielt spielen, sitzt sitzen, steht stehen, liegt liegen, schläft schlafen, tanzt tanzen, singt singen, rennt rennen,
geht gehen, joggt joggen, wandert wandern, schwimmt schwimmen, springt springen, klettert klettern, fliegt fliegen,
wartet warten, lacht lachen, weint weinen, jubelt jubeln, bellt bellen, arbeitet arbeiten, lernt lernen, angelt
angeln, rudert rudern, segelt segeln, liest lesen, schreibt schreiben, malt malen, streicht streichen, kocht kochen,
backt backen, isst essen, frisst fressen, trinkt trinken, bestellt bestellen, hält halten, trägt tragen, wirft werfen,
fängt fangen, schießt schießen, schiebt schieben, zieht ziehen, wäscht waschen, putzt putzen, repariert reparieren,
sägt sägen, fotografiert fotografieren, füttert füttern, streichelt streicheln, bürstet bürsten, reitet reiten, fährt
fahren, verkauft verkaufen, kauft kaufen, schneidet schneiden, baut bauen, gräbt graben, gießt gießen, pflückt
pflücken, hilft helfen, folgt folgen, gibt geben, zeigt zeigen, bringt bringen, erzählt erzählen, öffnet öffnen, legt
legen, stellt stellen, hängt hängen, nimmt nehmen, holt holen, steigt steigen, kommt kommen, macht machen, erreicht
erreichen, telefoniert telefonieren, hebt heben, setzt setzen, räumt räumen, lächelt lächeln, schaut schauen, feuert
feuern, hört hören, winkt winken, packt packen, trocknet trocknen, rührt rühren, fällt fallen, bleibt bleiben, ruht
ruhen, unterhält unterhalten, bückt bücken, freut freuen, sieht sehen, bemerkt bemerken, hat haben, ist sind, regnet
-, schneit -, scheint scheinen
"""
SINGULAR, PLURAL = zip(*(pair.split() for pair in VERBS.replace("\n", " ").split(",")), strict=True)
FINITE = {*SINGULAR, *PLURAL} - {"-"}
PREFIXES = {"auf", "hoch", "an", "aus", "zu", "vor", "vorbei", "entlang", "ein", "ab", "um", "weg", "hin", "teil"}
SEPARABLE = {prefix + verb for prefix in PREFIXES for verb in FINITE}
VERB_FORMS = FINITE | SEPARABLE
CONJUNCTIONS = {"während": "while", "weil": "because", "obwohl": "although", "dass": "that"}


@pytest.fixture(scope="module")
def corpus() -> list[Caption]:
    return load_captions()


@pytest.fixture(scope="module")
def sample() -> list[Caption]:
    return generate_captions(8000, seed=11)


def noun_forms() -> tuple[dict[str, set[tuple[str, str]]], dict[str, set[str]]]:
    """Return every form of every noun with its readings (case, gender or plural), and with its translations."""
    readings, translations = defaultdict(set), defaultdict(set)
    for line in NOUNS.strip().splitlines():
        article, noun, plural, one, many = line.split()
        gender = {"der": "m", "die": "f", "das": "n"}[article]
        singular = noun.rstrip("*")
        for case in (NOM, ACC, DAT):
            oblique = plural if noun.endswith("*") and case != NOM else singular
            dative = plural if plural[-1] in "ns" or case != DAT else plural + "n"
            for form, group, english in ((oblique, gender, one), (dative, "pl", many)):
                if not form.startswith("-"):
                    readings[form].add((case, group))
                    translations[form].add(english)
    return dict(readings), dict(translations)


FORMS, TRANSLATIONS = noun_forms()


def capital(word: str) -> bool:
    return word[0].isupper()


def words_of(caption: Caption) -> list[str]:
    """Return the German words, with the first word in lowercase unless it is a noun."""
    first, *rest = caption.german_tokens
    noun = first in FORMS and not capital(rest[0]) and rest[0] not in ADJECTIVE_FORMS  # but "Junge blonde Männer"
    return [first if noun else first[0].lower() + first[1:], *rest]


def is_pronoun(words: list[str], i: int) -> bool:
    """Return whether this is a relative pronoun, which follows either a comma or a comma and a preposition."""
    if i < 1 or words[i] not in PRONOUNS:
        return False
    return words[i - 1] == "," or (i > 1 and words[i - 2] == "," and words[i - 1] in TWO_WAY)


def describes(words: list[str], i: int) -> bool:
    """Return whether word `i` is an article or adjective, as in "das rote Fahrrad" but not in "fährt Fahrrad"."""
    word = words[i]
    return word in ADJECTIVE_FORMS or (word in DETERMINERS and word != "beim" and not is_pronoun(words, i))


def noun_phrases(words: list[str]) -> list[tuple[int, int, set[tuple[str, str]], str]]:
    """Return the noun phrases: start, position of the noun, readings (case, gender or plural), and preposition."""
    found = []
    for i, word in enumerate(words):
        if not capital(word) or (word in SET_PHRASES and not describes(words, i - 1)):
            continue
        start, endings = i, set()
        while start and (words[start - 1] in ADJECTIVE_FORMS or words[start - 1] == "rosa"):
            start -= 1
            endings.add(ADJECTIVE_FORMS.get(words[start], "rosa"))
        readings, preposition = NO_ARTICLE, ""
        if start and words[start - 1] == "beiden":
            start -= 2
            readings = {row for row in DETERMINERS[words[start]] if row[1] == "pl"}
        elif start and words[start - 1] in DETERMINERS and not is_pronoun(words, start - 1):
            start -= 1
            readings = DETERMINERS[words[start]]
            preposition = CONTRACTIONS.get(words[start], "")
        before = words[start - 1] if start else ""
        if not preposition and before in PREPOSITIONS and words[start - 2] != ",":
            preposition = before
        rows = {
            (case, group)
            for case, group, ending in readings
            if (case, group) in FORMS.get(word, ()) and endings <= {ending, "rosa"}
        }
        found.append((start, i, rows, preposition))
    return found


def clauses(words: list[str]) -> list[list[str]]:
    """Return the groups of words between commas and the period."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word in (",", "."):
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


def aligned(caption: Caption, german_index: int) -> list[str]:
    return [caption.english_tokens[j] for i, j in caption.alignment if i == german_index]


def test_the_grammar_produces_the_shipped_corpus():
    """Sentences must be traceable to the grammar, so that they can be corrected there. The test compares the text and
    not the file, because another version of the xz library may compress the same text to different bytes."""
    assert corpus_text() == lzma.decompress(FILE.read_bytes()).decode()


def test_every_noun_of_the_corpus_is_in_the_tables(corpus):
    """The other tests skip noun forms that are not in the tables. Therefore, no noun form may be missing."""
    nouns = {word for caption in corpus for word in caption.german_tokens[1:] if capital(word)}
    assert nouns <= set(FORMS) | SET_PHRASES


def test_a_seed_always_gives_the_same_captions(sample):
    assert generate_captions(500, seed=11) == sample[:500]
    assert generate_captions(500, seed=12) != sample[:500]
    assert generate_captions(0) == []


def test_a_german_sentence_has_one_translation_whatever_the_seed(corpus, sample):
    """A model cannot learn a translation that depends on something not stated in the German sentence."""
    english = {caption.german: caption.english for caption in corpus}
    again = [caption for seed in range(20, 24) for caption in generate_captions(3000, seed)] + sample
    shared = [caption for caption in again if caption.german in english]
    assert len(shared) > 500
    assert all(english[caption.german] == caption.english for caption in shared)


def test_sentences_are_their_tokens_with_normal_spacing(sample):
    """A space inside a token or before a comma would teach the tokenizers wrong patterns."""
    for caption in sample:
        for sentence, tokens in ((caption.german, caption.german_tokens), (caption.english, caption.english_tokens)):
            assert sentence.replace(",", " ,").replace(".", " .").split(" ") == list(tokens)
            assert capital(sentence)
            assert tokens[-1] == "."
            assert not any(one == other for one, other in pairwise(tokens) if one not in ("der", "die", "das"))
        assert 5 <= sum(token.isalpha() for token in caption.german_tokens) <= 20


def test_nouns_agree_with_their_articles_adjectives_and_prepositions(sample):
    """This is the main test: endings must agree, as in "dem kleinen Jungen", "mit großen Hunden", "ins alte Haus"."""
    seen = Counter()
    for caption in sample:
        words = words_of(caption)
        for start, at, rows, preposition in noun_phrases(words):
            assert rows, f"{' '.join(words[start : at + 1])!r} in {caption.german!r}"
            cases = {case for case, _ in rows}
            if preposition in ONLY_DATIVE:
                assert DAT in cases, caption.german
            elif preposition in ONLY_ACCUSATIVE:
                assert ACC in cases, caption.german
            seen.update(rows if len(rows) == 1 else ())
    for case in (NOM, ACC, DAT):
        for group in ("m", "f", "n", "pl"):
            if (case, group) not in {(NOM, "f"), (ACC, "f"), (NOM, "n"), (ACC, "n"), (NOM, "pl"), (ACC, "pl")}:
                assert seen[case, group] > 100, (case, group)  # forms that are unique to this case


def test_two_way_prepositions_show_place_and_direction(sample):
    """In German, "in the park" is dative, and "into the park" is accusative.

    With verbs of putting, "on the table" is accusative, too.
    """
    putting = "legt legen stellt stellen hängt hängen setzt setzen schreibt schreiben wartet warten einsteigt ein"
    found = Counter()
    for caption in sample:
        words = words_of(caption)
        for start, at, rows, preposition in noun_phrases(words):
            if preposition not in TWO_WAY:
                continue
            where = start if words[start] in CONTRACTIONS else start - 1
            english = set(aligned(caption, where))
            cases = {case for case, _ in rows}
            if english & DIRECTIONS:
                assert ACC in cases, f"{' '.join(words[where : at + 1])!r} in {caption.german!r}"
                found["direction"] += 1
            elif not set(words) & {*putting.split(), "einsteigen"} and not english & {"to"}:
                assert DAT in cases, f"{' '.join(words[where : at + 1])!r} in {caption.german!r}"
                found["place"] += 1
    assert min(found["direction"], found["place"]) > 500


def test_nouns_are_aligned_with_all_words_of_their_translations(sample):
    """A noun and every word of its translation must be linked: "Bauarbeiter" with "construction" and "worker"."""
    for caption in sample:
        for i, word in enumerate(words_of(caption)):
            if capital(word) and word not in SET_PHRASES:
                translation = "_".join(aligned(caption, i))
                bare = translation.removeprefix("A_").removeprefix("An_")
                known = TRANSLATIONS[word] | {f"{one}_of" for one in TRANSLATIONS[word]}
                assert {translation, bare, bare[:1].lower() + bare[1:]} & known, f"{word}: {translation} in {caption}"


def test_finite_verb_is_second_in_main_clauses_and_last_in_subordinate_ones(sample):
    counts = Counter()
    for caption in sample:
        first, *others = clauses(words_of(caption))
        message = caption.german
        if first[0] in CONJUNCTIONS:
            main, subordinate = others[0], [first, *others[1:]]
            assert finite_verbs(main)[0] == 0, message
            counts["behind a clause"] += 1
        elif not finite_verbs(first):  # "Der Mann, der einen Hut trägt, lacht."
            assert sum(map(capital, first)) >= 1, message
            main, subordinate = others[1], [others[0], *others[2:]]
            assert finite_verbs(main)[0] == 0, message
        else:
            subordinate = others
            verb, *more = finite_verbs(first)
            if first[0] in TWO_WAY or first[0] in CONTRACTIONS:
                assert sum(map(capital, first[:verb])) == 1, f"more than one thing before the verb: {message}"
                counts["place or time first"] += 1
            else:
                _, _, rows, _ = noun_phrases(first)[0]
                assert NOM in {case for case, _ in rows} or first[1] == "Gruppe", message
            assert all(first[i - 1] == "und" for i in more), message
        for part in subordinate:
            kind = kind_of_subordinate_clause(part)
            assert kind, message
            counts[kind] += 1
    for kind in ("um", *CONJUNCTIONS, "relative", "behind a clause", "place or time first"):
        assert counts[kind] > 100, kind


def kind_of_subordinate_clause(part: list[str]) -> str | None:
    """Return "um", a conjunction, or "relative". If the verb is not at the end of such a clause, return None."""
    if part[0] == "um":
        joined = {f"{prefix}zu{verb}" for prefix in PREFIXES for verb in PLURAL}
        return "um" if part[-1] in joined or (part[-2] == "zu" and part[-1] in PLURAL) else None
    if finite_verbs(part) != [len(part) - 1]:
        return None
    if part[0] in CONJUNCTIONS:
        return part[0]
    return "relative" if part[0] in PRONOUNS or part[1] in PRONOUNS else None


def finite_verbs(part: list[str]) -> list[int]:
    """Return the positions of finite verbs in a clause, excluding "stehen" in "bleibt stehen" and the article "ein"."""
    return [
        i
        for i, word in enumerate(part)
        if word in VERB_FORMS and not (word == "stehen" and part[i - 1] in ("bleibt", "bleiben"))
    ]


def test_finite_verbs_agree_with_their_subjects(sample):
    """The word "is" must match a singular German verb, and "are" a plural verb, except for nouns like "sunglasses"."""
    for caption in sample:
        words = words_of(caption)
        for i in finite_verbs(words):
            english = aligned(caption, i)
            if "is" in english:
                assert words[i].endswith(SINGULAR), caption.german
            if "are" in english and words[i] == "ist":
                assert {"Hose", "Sonnenbrille", "Gemüse", "Geschirr", "Treppe"} & set(words), caption.german
            elif "are" in english:
                assert words[i].endswith(PLURAL), caption.german


def test_relative_pronouns_agree_with_their_antecedents(sample):
    counts = Counter()
    for caption in sample:
        words = words_of(caption)
        phrases = {at: rows for _, at, rows, _ in noun_phrases(words)}
        for pronoun in range(len(words)):
            if not is_pronoun(words, pronoun):
                continue
            i = pronoun - 1 if words[pronoun - 1] == "," else pronoun - 2
            noun = max(at for at in phrases if at < i)
            groups = {group for _, group in phrases[noun]}
            matching = {(case, group) for case, group in PRONOUNS[words[pronoun]] if group in groups}
            if pronoun == i + 2:  # "die Bank, auf der"
                matching = {(case, group) for case, group in matching if case == DAT}
            assert matching, caption.german
            english = aligned(caption, pronoun)[0]
            assert english in {"who", "whom", "that", "which"}, caption.german
            if english == "who":
                assert any(case == NOM for case, _ in matching), caption.german
            if english == "which":
                assert {case for case, _ in matching} == {DAT}, caption.german
            counts[words[pronoun]] += 1
    assert set(counts) == set(PRONOUNS)
    assert min(counts.values()) > 20


def test_the_corpus_covers_typical_german_constructions(sample):
    """A model trained on a corpus without "zur" or "denen" would never learn these words."""
    words = Counter(word for caption in sample for word in words_of(caption))
    needed = """
        im am ins ans zum zur beim vom keine keinen seinen ihren denen sich rosa Jungen Studenten Bären Elefanten
        Kindern Haaren Bauarbeiter Winterjacke Bushaltestelle Fußballspieler Wohnzimmer Blumenstrauß
    """
    for word in needed.split():
        assert words[word] > 4, word
    separated = sum(clause[-1] in PREFIXES for caption in sample for clause in clauses(words_of(caption)))
    joined = sum(words[verb] for verb in SEPARABLE)
    assert min(separated, joined) > 150


def test_possessives_point_to_their_owner(sample):
    """The possessive "his" must refer to a male owner, "her" to a female owner, and "their" to several owners.

    German marks the owner's gender, too.
    """
    counts = Counter()
    for caption in sample:
        for i, word in enumerate(words_of(caption)):
            if word.startswith("sein"):
                assert aligned(caption, i) == ["his"], caption.german
                counts["his"] += 1
            elif word.startswith("ihr"):
                assert aligned(caption, i)[0] in ("her", "their"), caption.german
                counts[aligned(caption, i)[0]] += 1
    assert min(counts["his"], counts["her"], counts["their"]) > 20


def test_words_are_aligned_with_words_and_punctuation_with_punctuation(sample):
    """A word missing from the gold alignment would raise error rates unfairly. Only commas may be unaligned."""
    for caption in sample:
        german, english = caption.german_tokens, caption.english_tokens
        assert list(caption.alignment) == sorted(set(caption.alignment))
        for i, j in caption.alignment:
            assert german[i].isalpha() == english[j].isalpha()
            assert german[i].isalpha() or german[i] == english[j]
        assert {i for i, word in enumerate(german) if word != ","} <= {i for i, _ in caption.alignment}
        assert {j for j, word in enumerate(english) if word != ","} <= {j for _, j in caption.alignment}
        assert (len(german) - 1, len(english) - 1) in caption.alignment


def test_contracted_prepositions_and_separable_verbs_have_all_their_links(sample):
    counts = Counter()
    for caption in sample:
        words = words_of(caption)
        for i, word in enumerate(words):
            if word in CONTRACTIONS and words[i + 1] not in {"Bett", "Sonntag"} | SET_PHRASES:
                assert len(aligned(caption, i)) >= 2, caption
                assert "the" in aligned(caption, i), caption
                counts["contraction"] += 1
            if word in PREFIXES and words[i + 1] in (".", ",", "und") and words[i - 1] not in ("ist", "sind"):
                verbs = [j for j in range(i) if aligned(caption, j) == aligned(caption, i)]
                assert any(words[j] in FINITE for j in verbs), caption
                counts["prefix"] += 1
    assert min(counts.values()) > 100


@pytest.mark.parametrize(
    ("german", "links"),
    [
        ("im", {"in", "the"}),
        ("Bushaltestelle", {"bus", "stop"}),
        ("Blumenstrauß", {"bouquet", "of", "flowers"}),
        ("Gitarre", {"the", "guitar"}),
        ("keinen", {"not", "a"}),
        ("rennt", {"is", "running"}),
        ("zuhören", {"are", "listening", "to"}),
    ],
)
def test_a_few_known_links(sample, german, links):
    """Check a few links that are easy to verify at a glance."""
    with_word = [caption for caption in sample if german in caption.german_tokens]
    assert links in [set(aligned(caption, caption.german_tokens.index(german))) for caption in with_word]
