"""A second judge of IFEval's instructions, written apart from the checkers of ``ifeval``.

It scans lines and words instead of matching patterns, reads a language from its script or a few
of its words, and asks for one thing more: that a long text does not merely repeat a few words.
Only prompts on which both judges agree say that a model follows instructions.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

LONG = 50
"""Words from which on a text must show variety."""
VARIETY = 0.2
"""Least share of different words in a long text."""
SCRIPTS = {
    "ar": "ARABIC",
    "fa": "ARABIC",
    "ur": "ARABIC",
    "bg": "CYRILLIC",
    "ru": "CYRILLIC",
    "uk": "CYRILLIC",
    "bn": "BENGALI",
    "el": "GREEK",
    "gu": "GUJARATI",
    "he": "HEBREW",
    "hi": "DEVANAGARI",
    "mr": "DEVANAGARI",
    "ne": "DEVANAGARI",
    "ja": ("HIRAGANA", "KATAKANA", "CJK"),
    "zh": "CJK",
    "kn": "KANNADA",
    "ko": "HANGUL",
    "pa": "GURMUKHI",
    "ta": "TAMIL",
    "te": "TELUGU",
    "th": "THAI",
}
"""How the Unicode names of a language's letters begin; LATIN where it is not listed."""

COMMON = {
    "de": frozenset("der die das und ist nicht zu ein mit für".split()),
    "fi": frozenset("on ja ei se että oli myös tai kun joka".split()),
    "it": frozenset("di che il la un una non per sono con".split()),
    "pt": frozenset("de que o do da não um uma para com".split()),
    "sw": frozenset("na ya wa kwa ni za katika la kuwa hii".split()),
    "vi": frozenset("là và của có không được cho những tôi bạn".split()),
}
"""Words without which a language in Latin letters is hardly written."""
COMMON_SHARE = 0.05
"""Least share of such words in a text of the language."""
FOREIGN_SHARE = 0.3
"""Share of such words above which a text is not English."""


def obeys(
    text: str, instructions: Sequence[str], arguments: Sequence[Mapping[str, Any]]
) -> list[bool]:
    """Whether a text follows each instruction, in this judge's opinion; total on any text."""
    words = _words(text)
    varied = len(words) < LONG or len({*words}) >= VARIETY * len(words)
    return [
        bool(words) and varied and _JUDGES[name](text, given)
        for name, given in zip(instructions, arguments, strict=True)
    ]


def _words(text: str) -> list[str]:
    """Runs of letters and digits of a text, in small letters."""
    return "".join(c if c.isalnum() else " " for c in text.lower()).split()


def _compared(found: int, relation: str, asked: int) -> bool:
    return {"at least": found >= asked, "less than": found < asked}[relation]


def _letters_of(text: str, scripts: str | tuple[str, ...]) -> bool:
    """Whether most letters of a text belong to a script."""
    letters = [c for c in text if c.isalpha()]
    own = sum(unicodedata.name(c, "").startswith(scripts) for c in letters)
    return bool(letters) and 2 * own > len(letters)


def _in_language(text: str, language: str) -> bool:
    """The language's script and, where words of it are known here, enough of these."""
    if language in COMMON:
        return _share(text, language) >= COMMON_SHARE
    return _letters_of(text, SCRIPTS.get(language, "LATIN"))


def _share(text: str, language: str) -> float:
    words = _words(text)
    return sum(word in COMMON[language] for word in words) / max(len(words), 1)


def _occurrences(text: str, piece: str) -> int:
    return len(text.lower().split(piece.strip().lower())) - 1


def _forbidden(text: str, words: Sequence[str]) -> bool:
    spaced = f" {''.join(c if c.isalnum() or c == '_' else ' ' for c in text.lower())} "
    return not any(
        f" {' '.join(word.lower().split())} " in " ".join(spaced.split(" ")) for word in words
    )


def _sentences(text: str) -> int:
    """Ends of sentences: a word that closes with a mark and is no short form."""
    count, open_words = 0, False
    for word in text.split():
        bare = word.rstrip("\"'\u201d\u2019)]*")
        open_words = open_words or any(c.isalnum() for c in word)
        inner = bare[:-1].strip("(\"'\u201c[*")
        short = bare.endswith(".") and (
            "." in inner
            or inner.lower() in ("mr", "mrs", "ms", "dr", "st", "vs", "prof", "etc")
            or (len(inner) == 1 and inner.isalpha() and inner != "I")
            or (inner.isdecimal() and not open_words)
        )
        if open_words and bare.endswith((".", "!", "?", "\u3002", "\u0964")) and not short:
            count, open_words = count + 1, False
    return count + open_words


def _highlights(text: str) -> int:
    """Passages between stars on one line, a doubled star counting as one mark."""
    marked = [line.replace("**", "*").split("*")[1:-1:2] for line in text.splitlines()]
    return sum(bool(passage.strip()) for passages in marked for passage in passages)


def _placeholders(text: str) -> int:
    found, opened = 0, False
    for character in text:
        if character == "[":
            opened = True
        elif character == "]":
            found, opened = found + opened, False
        elif character == "\n":
            opened = False
    return found


def _bullets(text: str) -> int:
    lines = [line.strip() for line in text.split("\n")]
    return sum(
        len(line) > 1 and (line[0] == "-" or (line[0] == "*" and line[1] != "*")) for line in lines
    )


def _postscript(text: str, marker: str) -> bool:
    def bare(given: str) -> str:
        return given.lower().replace(" ", "").replace("\n", " ").rstrip(".")

    return any(
        bare(line).startswith(bare(marker)) or f". {bare(marker)}" in bare(line)
        for line in text.lower().replace("p. s", "p.s").replace("p. p", "p.p").split("\n")
    ) or bare(marker) in [word.rstrip(".:,") for word in text.lower().split()]


def _sections(text: str, label: str) -> int:
    """Places where the label is followed by a digit, with at most one space between."""
    pieces = text.split(label.strip())[1:]
    return sum(
        piece[:1].isdecimal() or (piece[:1].isspace() and piece[1:2].isdecimal())
        for piece in pieces
    )


def _json(text: str) -> bool:
    body = text.strip()
    if body.startswith("```"):
        body = body.removeprefix("```").removesuffix("```").lstrip()
        body = body[4:] if body[:4].lower() == "json" else body
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return not isinstance(found, float) or found == found


def _title(text: str) -> bool:
    lines = [line.partition("<<")[2].rpartition(">>")[0] for line in text.splitlines()]
    return any(line.strip("<> \t") for line in lines)


def _parts(text: str, separator: str) -> list[str] | None:
    """The parts of a text, without blank ends; None where a part between is blank."""
    parts = [part.strip() for part in text.strip().split(separator)]
    parts = parts[1:] if not parts[0] else parts
    parts = parts[:-1] if parts and not parts[-1] else parts
    return parts if all(parts) else None


def _paragraphs(text: str, count: int) -> bool:
    parts = _parts(text, "***")
    return parts is not None and len(parts) == count


def _two(text: str) -> bool:
    parts = _parts(text, "*" * 6)
    return parts is not None and len(parts) == 2 and parts[0] != parts[1]


def _first_word(text: str, given: Mapping[str, Any]) -> bool:
    parts = [part.strip() for part in text.split("\n\n") if part.strip()]
    place = given["nth_paragraph"] - 1
    if len(parts) != given["num_paragraphs"] or not 0 <= place < len(parts):
        return False
    opening = parts[place].split()[0].lower().lstrip("\"'\u201c\u2018*_")
    kept = ""
    for character in opening:
        if character in ".,!?\"'\u201d\u2019*_:;":
            break
        kept += character
    return kept == given["first_word"].strip().lower()


def _capitals(text: str) -> int:
    """Words without small letters and with a capital."""
    spaced = "".join(c if c.isalnum() or c in "_'\u2019.-" else " " for c in text)
    return sum(word == word.upper() and word != word.lower() for word in spaced.split())


def _cased(text: str, small: bool) -> bool:
    same = text == (text.lower() if small else text.upper())
    foreign = any(_share(text, language) > FOREIGN_SHARE for language in COMMON)
    return same and _letters_of(text, "LATIN") and not foreign


_JUDGES: dict[str, Callable[[str, Mapping[str, Any]], bool]] = {
    "change_case:capital_word_frequency": lambda t, g: _compared(
        _capitals(t), g["capital_relation"], g["capital_frequency"]
    ),
    "change_case:english_capital": lambda t, g: _cased(t, small=False),
    "change_case:english_lowercase": lambda t, g: _cased(t, small=True),
    "combination:repeat_prompt": lambda t, g: (
        t.strip().lower()[: len(g["prompt_to_repeat"].strip())]
        == g["prompt_to_repeat"].strip().lower()
    ),
    "combination:two_responses": lambda t, g: _two(t),
    "detectable_content:number_placeholders": lambda t, g: (
        _placeholders(t) >= g["num_placeholders"]
    ),
    "detectable_content:postscript": lambda t, g: _postscript(t, g["postscript_marker"]),
    "detectable_format:constrained_response": lambda t, g: any(
        f"My answer is {word}." in t for word in ("yes", "no", "maybe")
    ),
    "detectable_format:json_format": lambda t, g: _json(t),
    "detectable_format:multiple_sections": lambda t, g: (
        _sections(t, g["section_spliter"]) >= g["num_sections"]
    ),
    "detectable_format:number_bullet_lists": lambda t, g: _bullets(t) == g["num_bullets"],
    "detectable_format:number_highlighted_sections": lambda t, g: (
        _highlights(t) >= g["num_highlights"]
    ),
    "detectable_format:title": lambda t, g: _title(t),
    "keywords:existence": lambda t, g: all(_occurrences(t, word) > 0 for word in g["keywords"]),
    "keywords:forbidden_words": lambda t, g: _forbidden(t, g["forbidden_words"]),
    "keywords:frequency": lambda t, g: _compared(
        _occurrences(t, g["keyword"]), g["relation"], g["frequency"]
    ),
    "keywords:letter_frequency": lambda t, g: _compared(
        sum(c == g["letter"].lower() for c in t.lower()), g["let_relation"], g["let_frequency"]
    ),
    "language:response_language": lambda t, g: _in_language(t, g["language"]),
    "length_constraints:nth_paragraph_first_word": _first_word,
    "length_constraints:number_paragraphs": lambda t, g: _paragraphs(t, g["num_paragraphs"]),
    "length_constraints:number_sentences": lambda t, g: _compared(
        _sentences(t), g["relation"], g["num_sentences"]
    ),
    "length_constraints:number_words": lambda t, g: _compared(
        len(_words(t.replace("_", ""))), g["relation"], g["num_words"]
    ),
    "punctuation:no_comma": lambda t, g: all(c != "," for c in t),
    "startend:end_checker": lambda t, g: (
        t.strip().strip('"').strip().lower()[-len(g["end_phrase"].strip()) :]
        == g["end_phrase"].strip().lower()
    ),
    "startend:quotation": lambda t, g: (
        len(t.strip()) > 1 and t.strip().startswith('"') and t.strip().endswith('"')
    ),
}
"""This judge's opinion by the identifier of an instruction in the public data."""
