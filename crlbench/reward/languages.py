"""Which language a text is written in: its script, then its commonest little words.

Made for whole answers, not for single words: a text is judged by the script of most of its
letters and, where languages share that script, by words that one of them uses all the time.
"""

from __future__ import annotations

import re
from collections import Counter

SCRIPTS = {
    "latin": ((0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x24F), (0x1E00, 0x1EFF)),
    "greek": ((0x370, 0x3FF),),
    "cyrillic": ((0x400, 0x52F),),
    "hebrew": ((0x590, 0x5FF),),
    "arabic": ((0x600, 0x6FF), (0x750, 0x77F)),
    "devanagari": ((0x900, 0x97F),),
    "bengali": ((0x980, 0x9FF),),
    "gurmukhi": ((0xA00, 0xA7F),),
    "gujarati": ((0xA80, 0xAFF),),
    "tamil": ((0xB80, 0xBFF),),
    "telugu": ((0xC00, 0xC7F),),
    "kannada": ((0xC80, 0xCFF),),
    "thai": ((0xE00, 0xE7F),),
    "kana": ((0x3040, 0x30FF),),
    "han": ((0x4E00, 0x9FFF),),
    "hangul": ((0x1100, 0x11FF), (0xAC00, 0xD7AF)),
}
"""Code point ranges, both ends included."""
ALONE = {
    "greek": "el",
    "hebrew": "he",
    "bengali": "bn",
    "gurmukhi": "pa",
    "gujarati": "gu",
    "tamil": "ta",
    "telugu": "te",
    "kannada": "kn",
    "thai": "th",
    "kana": "ja",
    "han": "zh",
    "hangul": "ko",
}
"""Scripts that mean one language here."""
WORDS = {
    "latin": {
        "en": "the of and to in is that it for was with as are this be have you not they from i "
        "a no do so what your can at on or if but will my me we he she how when there would about",
        "de": "der die das und ist nicht ich zu den mit ein eine auf für von dem sich auch wir",
        "fr": "le la les des et est une un du que dans pour pas qui sur avec vous nous ce au",
        "es": "el la los las de que y en un una por con para es del se no su al como",
        "it": "il di che la e un una per non è sono con del della gli nel anche alla più",
        "pt": "o a os as de que e do da em um uma para com não é por mais dos são",
        "nl": "de het een en van is dat niet op te zijn voor met ik die aan ook er maar",
        "fi": "ja on ei se että oli hän mutta joka ovat niin kuin tämä myös olla sen kun ole",
        "sv": "och att det som en på är av för med till den inte om ett har jag de vi",
        "tr": "bir ve bu için ile da de çok ne gibi daha olan en olarak var ama ki değil",
        "vi": "là và của có không được cho một những này với các trong người đã để tôi như bạn",
        "sw": "ya na wa kwa ni katika la za kuwa hii cha yake kama au hiyo watu lakini si sana",
        "id": "yang dan di untuk dengan ini itu dari tidak pada adalah ke akan dalam juga saya",
        "pl": "i w na się nie że z do jest to jak o co za ale od po tak przez dla",
    },
    "cyrillic": {
        "ru": "и в не на что с как это по но он она они мы вы из все был для от есть",
        "bg": "и в на не да се за с от е че си са по като но ще това или който бъде",
        "uk": "і в не на що з як це та до він вона ми ви є для від його але по",
    },
    "arabic": {
        "ar": "في من على أن إلى هذا هذه التي الذي عن مع كان لا ما هو هي أو كل قد كما",
        "fa": "و در به از که این را با است برای آن یک خود تا بر هم می های شد کرد",
        "ur": "کے میں کی ہے اور سے کا کو اس کہ ہیں پر نے یہ بھی ہو تھا جو گیا نہیں",
    },
    "devanagari": {
        "hi": "के है में की और का को से यह हैं नहीं पर इस एक कि भी हो लिए था तो",
        "mr": "आहे आणि या च्या ते हे नाही मी आहेत व तर केले होते त्या आपण असे झाले मला साठी ही",
        "ne": "छ र को हो मा छन् यो गर्न भएको लागि पनि छैन तपाईं हुन् थियो गरेको मेरो भने हुन्छ गर्छ",
    },
}
"""Per shared script and language, words that make up much of its texts; ties go to the first."""
LETTERS = {
    "cyrillic": {"ru": "ыэё", "uk": "іїєґ", "bg": "ъ"},
    "arabic": {"fa": "پچژگ", "ur": "ٹڈڑںےہھ", "ar": "ةىإأ"},
    "devanagari": {"mr": "ळ"},
    "latin": {"vi": "ăđơưạảấầẩậắếềểệịọốồộớờợụủứừựỳ"},
}
"""Per shared script and language, letters that the others of the script hardly use."""
LETTER_WEIGHT = 0.5
"""What such a letter counts beside a word."""

LANGUAGES = tuple(sorted({*ALONE.values(), *(name for words in WORDS.values() for name in words)}))
"""ISO 639-1 codes that :func:`language` can return."""

_COMMON = {
    script: {name: frozenset(words.split()) for name, words in languages.items()}
    for script, languages in WORDS.items()
}
_SEPARATORS = re.compile(r"[\s\d_.,;:!?\"'()\[\]{}<>*#/\\|\u2010-\u201f\u060c\u061f\u0964\u06d4]+")


def script(text: str) -> str | None:
    """The script of most letters of a text; None if it has no letter of a known one.

    A twentieth of kana among Chinese characters makes a text Japanese.
    """
    counts: Counter[str] = Counter()
    for character, number in Counter(text).items():
        found = _script_of(ord(character))
        if found:
            counts[found] += number
    if not counts:
        return None
    if counts["kana"] * 20 >= counts["han"] > 0:
        counts["kana"] += counts["han"]
    return max(counts, key=lambda name: (counts[name], name))


def _script_of(point: int) -> str | None:
    for name, ranges in SCRIPTS.items():
        if any(low <= point <= high for low, high in ranges):
            return name
    return None


def language(text: str) -> str | None:
    """The ISO 639-1 code of a text's language; None where nothing tells it.

    >>> language("Das ist nicht der Weg, den ich meine.")
    'de'
    """
    found = script(text)
    if found is None or found in ALONE:
        return ALONE.get(found or "")
    lowered = text.lower()
    words = Counter(_SEPARATORS.split(lowered))
    points = {
        name: float(sum(words[word] for word in common)) for name, common in _COMMON[found].items()
    }
    for name, letters in LETTERS.get(found, {}).items():
        points[name] += LETTER_WEIGHT * sum(map(lowered.count, letters))
    best = max(points, key=lambda name: points[name])
    return best if points[best] > 0 else None
