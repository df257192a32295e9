"""Languages: which one texts are in, by their most frequent words, and the Snowball stemmer of each."""

from collections import Counter
from collections.abc import Callable, Iterable

from labelfield.text.letters import words_of

# The languages that have a Snowball stemmer, by their ISO 639-1 codes.
STEMMERS = {
    "ar": "arabic",
    "ca": "catalan",
    "cs": "czech",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "eo": "esperanto",
    "es": "spanish",
    "et": "estonian",
    "eu": "basque",
    "fa": "persian",
    "fi": "finnish",
    "fr": "french",
    "ga": "irish",
    "hi": "hindi",
    "hu": "hungarian",
    "hy": "armenian",
    "id": "indonesian",
    "it": "italian",
    "lt": "lithuanian",
    "ne": "nepali",
    "nl": "dutch",
    "no": "norwegian",
    "pl": "polish",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sr": "serbian",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
    "yi": "yiddish",
}
# Languages that have the stemmer of another.
_ALIKE = {"nb": "no", "nn": "no"}
# Words that hardly any text of the language does without.
_FREQUENT = {
    "ar": "في من على إلى أن عن التي الذي هذا هذه ما لا كان بين",
    "ca": "de la el els les i que amb per una és del dels als més aquest seva",
    "cs": "se na je že to jsou jako pro ale podle který která které byl do od nebo také",
    "da": "og det er en af til på med der som ikke den har et fra efter blev også jeg",
    "de": "der die und das ist von den mit für auf eine nicht im dem des sich auch werden wird ein zu",
    "el": "και το της του η να που για με από είναι την στο των τα",
    "en": "the of and to in is that for on with as was by are be this it from or which",
    "eo": "la kaj de estas en por kun al ne kiu ke ĝi sed pri oni",
    "es": "de la que el en los del las por con una para es se su al lo como más pero",
    "et": "ja on ei et ta see ning kui oli mis ka aga tema või selle",
    "eu": "eta da ez du dira bat zen izan baina dute ere hau zuen",
    "fa": "در به از که این را است با برای آن یک خود تا بر",
    "fi": "ja on ei se että oli joka ovat myös tai sekä kuin hän mutta sen jotka voi kun kanssa olivat ole niin tämä",
    "fr": "de la le et les des en un une du que est pour dans par qui sur pas au avec ce",
    "ga": "agus an na is ar go bhí le sé ag atá don iad chun",
    "hi": "के है में की को से का और हैं पर ने यह भी कि",
    "hu": "a az és hogy nem is egy meg volt ez csak mint már de vagy",
    "hy": "և է որ են մեջ համար ու այս իր նա",
    "id": "yang dan di dengan untuk dari ini dalam tidak pada adalah itu dapat oleh ke",
    "it": "di che la il un per in una sono non del è con si della le gli dei nel alla più",
    "lt": "ir yra kad tai su iš į bet kaip jis buvo apie ar",
    "nl": "de het een van en in is dat op te voor met zijn niet aan ook er die bij door",
    "no": "og i det er en til på som med av for ikke den har et fra ble også jeg å være",
    "pl": "nie na się to że jest do jak od ale przez oraz dla są po który także",
    "pt": "de que do da em um para com não uma os no se na por mais as dos ao das é são",
    "ro": "și în de la cu pe este care din pentru nu sau mai sunt o un prin după",
    "ru": "и в не на что с по как это он из от для его но все за",
    "sr": "и у је да се на од за су што са би али не као",
    "sv": "och att det som en på är av för med till den har inte ett om var jag från också",
    "ta": "மற்றும் ஒரு என்று இந்த அது என இருந்து",
    "tr": "ve bir bu için ile da de olarak daha çok en gibi olan ne kadar sonra",
    "yi": "און די איז פֿון אין דער צו מיט אַז ער",
}
_WORDS = {code: frozenset(words.split()) for code, words in _FREQUENT.items()}
# The least share of words that must be among the frequent ones: in running text of the language it is 0.2 to 0.4.
_LEAST_SHARE = 0.06
_MOST_LETTERS, _LETTERS_PER_TEXT = 200_000, 2_000

Stem = Callable[[list[str]], list[str]]


def detect_language(texts: Iterable[str]) -> str | None:
    """Return the language that most words of these texts belong to, by its frequent words; None if that is not clear.

    The first 200,000 characters decide, of each text the first 2,000, so that one long text does not decide for all.
    """
    counts: Counter[str] = Counter()
    n_letters = 0
    for text in texts:
        if n_letters > _MOST_LETTERS:
            break
        start = text[:_LETTERS_PER_TEXT]
        counts.update(words_of(start))
        n_letters += len(start)
    total = sum(counts.values())
    shares = {code: sum(counts[word] for word in words) / max(total, 1) for code, words in _WORDS.items()}
    best = max(shares, key=lambda code: shares[code])
    return best if shares[best] >= _LEAST_SHARE else None


def normalise(language: str) -> str:
    """Return a language as its two-letter code: "fi" for "fi", "FI", "fi-FI" and "finnish"."""
    code = language.strip().lower().replace("_", "-").split("-")[0]
    by_name = {name: code for code, name in STEMMERS.items()}
    return by_name.get(code, _ALIKE.get(code, code))


def stemmer(language: str | None) -> Stem:
    """Return a function from words to stems, for one thread; words stay as they are if no stemmer is known."""
    if language is None or language not in STEMMERS:
        return lambda words: words
    import Stemmer

    stem: Stem = Stemmer.Stemmer(STEMMERS[language], 0).stemWords
    return stem
