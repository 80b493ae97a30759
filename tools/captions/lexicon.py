"""The vocabulary of the captions corpus: German and English words, with the information that the grammar needs.

Four tables, with one entry per line: nouns, adjectives, verbs, places.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    singular: str
    gender: str  # "m", "f" or "n"
    plural: str  # nominative plural
    weak: bool  # n-declension: every case but the nominative singular looks like the plural
    english: tuple[str, ...]
    english_plural: tuple[str, ...]
    always_plural: bool  # in English: "sunglasses", "pants", "stairs"
    kind: str  # "person", "animal" or "thing"
    pronoun: str  # English subject pronoun: "he", "she", "it"; "" where German and English would sound odd
    outer: tuple[str, ...]  # adjectives of size and age, which come first
    inner: tuple[str, ...]  # adjectives of color, which come next to the noun


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    name: str
    singular: str  # finite third person, without the prefix
    plural: str
    prefix: str  # of a separable verb, or ""
    apart: bool  # written separately even at the end of a clause: "stehen bleibt", "Ski fährt"
    reflexive: bool
    progressive: tuple[str, ...]  # after "is" or "are"
    base: tuple[str, ...]  # after "to"
    simple: bool  # a state, expressed in the simple present: "sees"


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    preposition: str
    noun: Noun
    english: tuple[str, ...]
    determiners: tuple[str, ...]
    english_article: bool  # False: "im Bett" is "in bed"


# singular, gender (* n-declension), plural, English singular (= has no singular), English plural, pronoun
# | adjectives of size and age / of color, where COLOR means every color.
PEOPLE = """
Mann m Männer man men he | jung alt groß / blond
Frau f Frauen woman women she | jung alt groß / blond
Junge m* Jungen boy boys he | klein / blond
Mädchen n Mädchen girl girls she | klein / blond
Kind n Kinder child children - | klein / blond
Baby n Babys baby babies it | klein /
Student m* Studenten student students he | jung groß / blond
Tourist m* Touristen tourist tourists he | jung alt groß /
Polizist m* Polizisten police_officer police_officers he | jung groß freundlich /
Koch m Köche chef chefs he | jung alt freundlich /
Bauarbeiter m Bauarbeiter construction_worker construction_workers he | jung alt kräftig /
Musiker m Musiker musician musicians he | jung alt berühmt / blond
Sängerin f Sängerinnen singer singers she | jung berühmt / blond
Tänzerin f Tänzerinnen dancer dancers she | jung berühmt / blond
Lehrerin f Lehrerinnen teacher teachers she | jung freundlich /
Kellnerin f Kellnerinnen waitress waitresses she | jung freundlich / blond
Künstlerin f Künstlerinnen artist artists she | jung alt berühmt /
Bauer m* Bauern farmer farmers he | jung alt kräftig /
Fußballspieler m Fußballspieler soccer_player soccer_players he | jung groß /
Feuerwehrmann m Feuerwehrleute firefighter firefighters he | jung kräftig /
Radfahrer m Radfahrer cyclist cyclists he | jung alt /
Läufer m Läufer runner runners he | jung groß /
Großmutter f Großmütter grandmother grandmothers she | alt freundlich /
Großvater m Großväter grandfather grandfathers he | alt freundlich /
Mutter f Mütter mother mothers she | jung /
Vater m Väter father fathers he | jung /
Sohn m Söhne son sons he | klein /
Tochter f Töchter daughter daughters she | klein /
Freund m Freunde friend friends he | /
"""
ANIMALS = """
Hund m Hunde dog dogs it | klein groß jung / schwarz weiß braun
Welpe m* Welpen puppy puppies it | klein / schwarz weiß braun
Katze f Katzen cat cats it | klein dick / schwarz weiß grau
Pferd n Pferde horse horses it | groß jung alt / schwarz weiß braun
Kuh f Kühe cow cows it | groß alt / schwarz weiß braun
Schaf n Schafe sheep sheep it | klein jung dick / schwarz weiß
Ziege f Ziegen goat goats it | klein jung alt / weiß braun
Esel m Esel donkey donkeys it | klein alt / grau
Huhn n Hühner chicken chickens it | klein dick / weiß braun
Ente f Enten duck ducks it | klein / weiß braun
Vogel m Vögel bird birds it | klein bunt / schwarz blau
Kaninchen n Kaninchen rabbit rabbits it | klein / weiß braun grau
Affe m* Affen monkey monkeys it | klein jung alt / braun schwarz
Elefant m* Elefanten elephant elephants it | groß jung alt / grau
Bär m* Bären bear bears it | groß jung alt / braun
Löwe m* Löwen lion lions it | groß jung alt /
"""
THINGS = """
Hut m Hüte hat hats it | groß alt elegant / COLOR
Mütze f Mützen cap caps it | alt dick / COLOR
Wollmütze f Wollmützen wool_cap wool_caps it | dick warm / COLOR
Jacke f Jacken jacket jackets it | alt neu warm / COLOR
Lederjacke f Lederjacken leather_jacket leather_jackets it | alt neu / schwarz braun
Winterjacke f Winterjacken winter_jacket winter_jackets it | dick neu warm / COLOR
Regenmantel m Regenmäntel raincoat raincoats it | lang neu / gelb blau grün
Mantel m Mäntel coat coats it | lang alt warm elegant / schwarz braun grau rot
Hemd n Hemden shirt shirts it | alt neu / COLOR
Pullover m Pullover sweater sweaters it | dick alt warm / COLOR
Kleid n Kleider dress dresses it | lang neu schön elegant / COLOR
Sommerkleid n Sommerkleider summer_dress summer_dresses it | bunt neu schön / gelb weiß blau rot
Rock m Röcke skirt skirts it | lang bunt neu / COLOR
Hose f Hosen =pants pants it | lang alt neu / schwarz blau braun grau weiß
Anzug m Anzüge suit suits it | elegant neu alt / schwarz blau grau
Krawatte f Krawatten tie ties it | bunt neu / rot blau grün schwarz
Schal m Schals scarf scarves it | lang dick warm bunt / COLOR
Stiefel m Stiefel boot boots it | alt neu hoch / schwarz braun gelb
Handschuh m Handschuhe glove gloves it | dick warm neu / COLOR
Sonnenbrille f Sonnenbrillen =sunglasses sunglasses it | groß neu elegant / schwarz rot
Strohhut m Strohhüte straw_hat straw_hats it | groß alt /
Helm m Helme helmet helmets it | neu alt / gelb weiß rot blau
Weste f Westen vest vests it | alt neu / gelb rot grün
Schürze f Schürzen apron aprons it | lang neu / weiß blau rot
Uniform f Uniformen uniform uniforms it | neu / blau grün schwarz
Badeanzug m Badeanzüge swimsuit swimsuits it | neu / rot blau grün schwarz
Rucksack m Rucksäcke backpack backpacks it | groß klein schwer / COLOR
Bart m Bärte beard beards it | lang dick / schwarz grau weiß
Haar n Haare hair hair it | lang kurz / blond braun schwarz
Ball m Bälle ball balls it | klein groß neu / COLOR
Luftballon m Luftballons balloon balloons it | groß bunt / COLOR
Puppe f Puppen doll dolls it | klein schön alt /
Teddybär m* Teddybären teddy_bear teddy_bears it | klein groß alt / braun weiß
Spielzeugauto n Spielzeugautos toy_car toy_cars it | klein neu / rot blau grün gelb
Stock m Stöcke stick sticks it | lang kurz dick /
Schneeball m Schneebälle snowball snowballs it | groß klein /
Schneemann m Schneemänner snowman snowmen it | groß klein dick /
Schlitten m Schlitten sled sleds it | alt neu groß / rot blau
Sandburg f Sandburgen sandcastle sandcastles it | groß klein schön /
Loch n Löcher hole holes it | groß klein /
Buch n Bücher book books it | dick alt neu / rot blau grün
Zeitung f Zeitungen newspaper newspapers it | /
Brief m Briefe letter letters it | lang kurz /
Geschichte f Geschichten story stories it | lang kurz schön /
Stadtplan m Stadtpläne city_map city_maps it | groß neu /
Bild n Bilder picture pictures it | groß klein schön bunt /
Gemälde n Gemälde painting paintings it | groß klein schön berühmt /
Statue f Statuen statue statues it | groß alt berühmt /
Lied n Lieder song songs it | schön alt /
Apfel m Äpfel apple apples it | frisch süß / rot grün
Banane f Bananen banana bananas it | / gelb
Karotte f Karotten carrot carrots it | frisch /
Eis n - ice_cream - it | /
Pizza f Pizzas pizza pizzas it | heiß groß /
Kuchen m Kuchen cake cakes it | frisch süß groß /
Suppe f Suppen soup soups it | heiß /
Salat m Salate salad salads it | frisch /
Brot n Brote bread breads it | frisch warm /
Obst n - fruit - it | frisch /
Gemüse n - =vegetables vegetables it | frisch /
Käse m - cheese - it | frisch /
Fisch m Fische fish fish it | frisch /
Heu n - hay - it | frisch trocken /
Gras n - grass - it | hoch /  grün
Wasser n - water - it | kalt /
Kaffee m - coffee - it | heiß /
Tee m - tea - it | heiß /
Milch f - milk - it | kalt warm /
Saft m - juice - it | kalt /
Geschirr n - =dishes dishes it | /
Regenschirm m Regenschirme umbrella umbrellas it | groß klein bunt / COLOR
Korb m Körbe basket baskets it | groß klein schwer leer /
Eimer m Eimer bucket buckets it | groß klein schwer leer / blau rot
Koffer m Koffer suitcase suitcases it | groß schwer alt / schwarz braun rot blau
Tasche f Taschen bag bags it | groß schwer / schwarz braun rot blau
Kiste f Kisten box boxes it | groß schwer leer /
Blume f Blumen flower flowers it | schön frisch / rot blau gelb weiß
Blumenstrauß m Blumensträuße bouquet_of_flowers bouquets_of_flowers it | groß bunt schön /
Blatt n Blätter leaf leaves it | groß / gelb rot braun
Stein m Steine stone stones it | groß klein schwer / weiß grau
Brett n Bretter board boards it | lang schwer dick /
Leiter f Leitern ladder ladders it | hoch lang /
Fahne f Fahnen flag flags it | groß bunt / rot blau weiß
Schild n Schilder sign signs it | groß bunt / rot weiß gelb
Geschenk n Geschenke present presents it | groß klein schön /
Vase f Vasen vase vases it | groß schön alt / weiß blau
Lampe f Lampen lamp lamps it | groß alt / gelb weiß rot
Tasse f Tassen cup cups it | groß klein leer / weiß blau rot
Fenster n Fenster window windows it | groß klein schmutzig /
Tür f Türen door doors it | alt groß / rot grün blau
Wand f Wände wall walls it | / weiß gelb
Mauer f Mauern wall walls it | alt hoch lang /
Zaun m Zäune fence fences it | alt hoch lang / weiß braun
Auto n Autos car cars it | alt neu klein schmutzig / rot blau schwarz weiß grün
Bus m Busse bus buses it | alt neu / rot gelb blau grün
Zug m Züge train trains it | alt lang neu / rot blau
Lastwagen m Lastwagen truck trucks it | groß alt schwer / rot blau weiß
Motorrad n Motorräder motorcycle motorcycles it | alt neu schwer / rot schwarz
Fahrrad n Fahrräder bicycle bicycles it | alt neu / rot blau grün schwarz
Traktor m Traktoren tractor tractors it | alt groß neu / rot grün
Boot n Boote boat boats it | klein alt / weiß blau rot
Kinderwagen m Kinderwagen stroller strollers it | alt neu / blau rot schwarz
Wagen m Wagen wagon wagons it | alt schwer groß /
Schubkarre f Schubkarren wheelbarrow wheelbarrows it | schwer alt leer /
Park m Parks park parks it | groß schön /
Garten m Gärten garden gardens it | groß klein schön /
Wald m Wälder forest forests it | /
Wiese f Wiesen meadow meadows it | groß / grün
Spielplatz m Spielplätze playground playgrounds it | groß neu /
See m Seen lake lakes it | groß klein /
Teich m Teiche pond ponds it | klein /
Fluss m Flüsse river rivers it | /
Meer n Meere sea seas it | /
Strand m Strände beach beaches it | schön /
Sand m - sand - it | warm /
Schnee m - snow - it | tief /
Pfütze f Pfützen puddle puddles it | groß tief /
Welle f Wellen wave waves it | groß hoch /
Baum m Bäume tree trees it | groß alt /
Bank f Bänke bench benches it | alt klein / grün rot weiß
Decke f Decken blanket blankets it | groß warm bunt / rot blau
Handtuch n Handtücher towel towels it | groß bunt / rot blau weiß gelb
Berg m Berge mountain mountains it | hoch /
Hügel m Hügel hill hills it | klein hoch /
Felsen m Felsen rock rocks it | groß hoch /
Feld n Felder field fields it | groß / grün gelb
Stall m Ställe barn barns it | groß alt /
Haus n Häuser house houses it | groß alt klein schön / weiß gelb rot
Kirche f Kirchen church churches it | alt groß schön /
Turm m Türme tower towers it | alt hoch /
Brücke f Brücken bridge bridges it | alt lang /
Brunnen m Brunnen fountain fountains it | alt groß /
Straße f Straßen street streets it | /
Gehweg m Gehwege sidewalk sidewalks it | /
Marktplatz m Marktplätze market_square market_squares it | groß alt /
Bushaltestelle f Bushaltestellen bus_stop bus_stops it | /
Bahnhof m Bahnhöfe train_station train_stations it | /
Stadt f Städte city cities it | groß alt /
Markt m Märkte market markets it | /
Geschäft n Geschäfte store stores it | klein neu /
Café n Cafés café cafés it | klein /
Restaurant n Restaurants restaurant restaurants it | klein /
Museum n Museen museum museums it | /
Bibliothek f Bibliotheken library libraries it | /
Schule f Schulen school schools it | /
Klassenzimmer n Klassenzimmer classroom classrooms it | /
Tafel f Tafeln board boards it | groß /
Wort n Wörter word words it | lang kurz /
Küche f Küchen kitchen kitchens it | groß klein /
Wohnzimmer n Wohnzimmer living_room living_rooms it | /
Sofa n Sofas sofa sofas it | groß alt / rot blau braun grau
Tisch m Tische table tables it | groß klein alt /
Stuhl m Stühle chair chairs it | alt klein / rot weiß
Bett n Betten bed beds it | groß /
Teppich m Teppiche carpet carpets it | dick bunt alt / rot blau
Boden m Böden floor floors it | /
Treppe f Treppen =stairs stairs it | /
Dach n Dächer roof roofs it | hoch /
Baustelle f Baustellen construction_site construction_sites it | groß /
Bühne f Bühnen stage stages it | groß /
Fußballplatz m Fußballplätze soccer_field soccer_fields it | /
Schwimmbad n Schwimmbäder swimming_pool swimming_pools it | /
Tor n Tore goal goals it | /
Rennen n Rennen race races it | lang /
Zoo m Zoos zoo zoos it | /
"""

# German, English, and the English used only with certain nouns: "groß" is "tall" for a person
ADJECTIVES = """
rot red
blau blue
grün green
gelb yellow
schwarz black
weiß white
braun brown
grau gray
rosa pink
blond blond
klein small little:child
groß big tall:person
jung young
alt old
neu new
freundlich friendly
kräftig strong
berühmt famous
schön beautiful
elegant elegant
bunt colorful
dick thick fat:animal,Schneemann
warm warm
kalt cold
heiß hot
frisch fresh
süß sweet
trocken dry
tief deep
hoch high tall:Turm,Leiter,Gras
lang long
kurz short
schwer heavy
leer empty
schmutzig dirty
"""

# infinitive (prefix|verb separable, prefix||verb written apart, sich_ reflexive), third person singular,
# English after "is", English after "to"; ~ marks the simple present.  A colon names a second sense.
VERBS = """
spielen spielt playing play
sitzen sitzt sitting sit
stehen steht standing stand
stehen:parked steht parked park
liegen liegt lying lie
schlafen schläft sleeping sleep
tanzen tanzt dancing dance
singen singt singing sing
rennen rennt running run
gehen geht walking walk
joggen joggt jogging jog
wandern wandert hiking hike
schwimmen schwimmt swimming swim
springen springt jumping jump
klettern klettert climbing climb
fliegen fliegt flying fly
warten wartet waiting wait
lachen lacht laughing laugh
weinen weint crying cry
jubeln jubelt cheering cheer
bellen bellt barking bark
arbeiten arbeitet working work
lernen lernt studying study
angeln angelt fishing fish
rudern rudert rowing row
segeln segelt sailing sail
lesen liest reading read
schreiben schreibt writing write
malen malt painting paint
streichen streicht painting paint
kochen kocht cooking cook
backen backt baking bake
essen isst eating eat
fressen frisst eating eat
trinken trinkt drinking drink
bestellen bestellt ordering order
halten hält holding hold
tragen trägt wearing wear
tragen:carry trägt carrying carry
werfen wirft throwing throw
fangen fängt catching catch
schießen schießt kicking kick
schieben schiebt pushing push
ziehen zieht pulling pull
waschen wäscht washing wash
putzen putzt cleaning clean
reparieren repariert repairing repair
sägen sägt sawing saw
fotografieren fotografiert photographing photograph
füttern füttert feeding feed
streicheln streichelt petting pet
bürsten bürstet brushing brush
reiten reitet riding ride
fahren:ride fährt riding ride
fahren:drive fährt driving drive
Ski||fahren fährt skiing ski
verkaufen verkauft selling sell
kaufen kauft buying buy
schneiden schneidet cutting cut
bauen baut building build
graben gräbt digging dig
gießen gießt watering water
pflücken pflückt picking pick
helfen hilft helping help
folgen folgt following follow
geben gibt giving give
zeigen zeigt showing show
bringen bringt bringing bring
erzählen erzählt telling tell
öffnen öffnet opening open
legen legt putting put
stellen stellt putting put
hängen hängt hanging hang
nehmen nimmt taking take
holen holt fetching fetch
steigen steigt getting get
kommen kommt coming come
machen macht taking take
erreichen erreicht catching catch
telefonieren telefoniert talking_on_the_phone talk_on_the_phone
auf|heben hebt picking_up pick_up
hoch|heben hebt lifting lift
auf|setzen setzt putting_on put_on
auf|räumen räumt tidying tidy
an|ziehen zieht putting_on put_on
aus|ziehen zieht taking_off take_off
an|lächeln lächelt smiling_at smile_at
an|schauen schaut looking_at look_at
an|feuern feuert cheering_on cheer_on
an|halten hält stopping stop
zu|schauen schaut watching watch
zu|hören hört listening_to listen_to
zu|winken winkt waving_to wave_to
vor|lesen liest reading read
vorbei|gehen geht walking walk
vorbei|fahren fährt driving drive
entlang|gehen geht walking_along walk_along
ein|kaufen kauft shopping shop
ein|steigen steigt getting get
aus|steigen steigt getting get
aus|packen packt unpacking unpack
aus|packen:present packt unwrapping unwrap
ab|trocknen trocknet drying dry
um|rühren rührt stirring stir
weg|rennen rennt running_away run_away
hin|fallen fällt falling_down fall_down
teil|nehmen nimmt taking_part take_part
stehen||bleiben bleibt stopping stop
sich_aus|ruhen ruht resting rest
sich_unterhalten unterhält talking talk
sich_setzen setzt sitting_down sit_down
sich_bücken bückt bending_down bend_down
sich_freuen freut happy be_happy
sehen sieht ~sees see
bemerken bemerkt ~notices notice
haben hat ~has have
"""

# German preposition and noun (static: dative), English preposition, determiners; 0 is no article in English
PLACES = """
in Park in the
in Garten in the the a
auf Wiese in the the a
auf Spielplatz on the
an See by the a
an Teich by the a
an Fluss by the
auf See on the
auf Teich on the
in Wasser in the
unter Baum under a the
neben Baum next_to a the
auf Baum in a the
auf Bank on a the
neben Bank next_to a the
in Gras in the
auf Decke on a the
an Strand on the
in Sand in the
in Meer in the
an Meer by the
auf Handtuch on a the
auf Feld in the the a
in Stall in the
vor Stall in_front_of the
hinter Zaun behind a the
neben Zaun next_to a the
vor Haus in_front_of the the a
hinter Haus behind the the a
neben Haus next_to the the a
auf Straße on the
auf Gehweg on the
auf Marktplatz in the
an Bushaltestelle at the the a
an Bahnhof at the
auf Brücke on the the a
in Stadt in the
auf Treppe on the
an Brunnen by the the a
vor Kirche in_front_of the a
vor Museum in_front_of the
vor Café in_front_of the a
vor Geschäft in_front_of the a
neben Straße next_to the
in Café in a the
in Restaurant in a the
in Museum in the
in Bibliothek in the
in Klassenzimmer in the
in Schule at 0
auf Markt at the
in Küche in the
in Wohnzimmer in the
auf Sofa on the the a
neben Sofa next_to the
an Tisch at the the a
auf Tisch on the the a
unter Tisch under the the a
auf Boden on the
auf Teppich on the the a
an Fenster at the
vor Fenster in_front_of the
vor Tür in_front_of the
an Wand on the
über Tisch above the
über Sofa above the
in Bett in 0
auf Bett on the
auf Stuhl on a the
auf Dach on the
auf Leiter on a the
auf Mauer on a the
auf Baustelle at the the a
auf Bühne on the
auf Fußballplatz on the
in Schwimmbad in the
in Schnee in the
auf Hügel on a the
auf Berg on a the
in Zoo at the
auf Felsen on a the
in Boot in a the
auf Meer on the
in See in the
in Teich in the
an Tafel at the
auf Turm on a the
vor Tor in_front_of the
unter Bank under a the
neben Handtuch next_to a the
neben Kirche next_to the a
neben Brunnen next_to the a
in Geschäft in a the
vor Restaurant in_front_of a the
"""


def _read_nouns() -> dict[str, Noun]:
    colors = "rot blau grün gelb schwarz weiß braun grau rosa"
    nouns = {}
    for kind, table in (("person", PEOPLE), ("animal", ANIMALS), ("thing", THINGS)):
        for line in table.strip().splitlines():
            forms, adjectives = line.split("|")
            singular, gender, plural, english, english_plural, pronoun = forms.split()
            outer, inner = adjectives.replace("COLOR", colors).split("/")
            nouns[singular] = Noun(
                singular=singular,
                gender=gender[0],
                plural=plural,
                weak=gender.endswith("*"),
                english=tuple(english.lstrip("=").split("_")),
                english_plural=tuple(english_plural.split("_")),
                always_plural=english.startswith("="),
                kind=kind,
                pronoun=pronoun.strip("-"),
                outer=tuple(outer.split()),
                inner=tuple(inner.split()),
            )
    return nouns


def _read_verbs() -> dict[str, Verb]:
    verbs = {}
    for line in VERBS.strip().splitlines():
        name, singular, progressive, base = line.split()
        infinitive = name.split(":")[0]
        reflexive = infinitive.startswith("sich_")
        prefix, _, plural = infinitive.removeprefix("sich_").replace("||", "|").rpartition("|")
        verbs[name] = Verb(
            name=name,
            singular=singular,
            plural=plural,
            prefix=prefix,
            apart="||" in name,
            reflexive=reflexive,
            progressive=tuple(progressive.lstrip("~").split("_")),
            base=tuple(base.split("_")),
            simple=progressive.startswith("~"),
        )
    return verbs


def _read_places() -> dict[str, Place]:
    places = {}
    for line in PLACES.strip().splitlines():
        preposition, noun, english, *determiners = line.split()
        places[f"{preposition} {noun}"] = Place(
            preposition=preposition,
            noun=NOUNS[noun],
            english=tuple(english.split("_")),
            determiners=("the",) if determiners == ["0"] else tuple(determiners),
            english_article=determiners != ["0"],
        )
    return places


CHILDREN = ("Junge", "Mädchen", "Kind", "Baby", "Sohn", "Tochter")


def _read_adjectives() -> dict[str, tuple[str, dict[str, str]]]:
    adjectives = {}
    for line in ADJECTIVES.strip().splitlines():
        german, english, *exceptions = line.split()
        adjectives[german] = english, {}
        for exception in exceptions:
            word, _, kinds = exception.partition(":")
            adjectives[german][1].update(dict.fromkeys(kinds.split(","), word))
    return adjectives


NOUNS = _read_nouns()
VERBS_BY_NAME = _read_verbs()
PLACES_BY_NAME = _read_places()
ENGLISH_ADJECTIVES = _read_adjectives()


def english_adjective(adjective: str, noun: Noun) -> str:
    """Return the English adjective for a noun: "groß" is "tall" for a person and "big" for a dog."""
    english, exceptions = ENGLISH_ADJECTIVES[adjective]
    kind = "child" if noun.singular in CHILDREN else noun.kind
    return exceptions.get(noun.singular) or exceptions.get(kind) or english
