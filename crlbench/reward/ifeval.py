"""Checkers for the 25 kinds of instructions of IFEval (Zhou et al. 2023, arXiv:2311.07911).

Written for this project from the paper and the published prompts; arguments have the names of
the public data. Every checker is pure and total: any text gives True or False. Where the
published checkers lean on trained models (sentences, words in capitals, languages), these use
plain rules, so scores may differ on single items from those that other tools print.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crlbench.errors import ValidationError, unknown_name
from crlbench.reward.languages import language

RELATIONS = ("less than", "at least")
CONSTRAINED = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
ABBREVIATIONS = frozenset(
    (
        "mr mrs ms dr prof sr jr st mt vs e.g i.e u.s u.k ph.d fig inc ltd co corp gen rev hon "
        "capt col sgt approx dept jan feb apr jun jul aug sep sept oct nov dec"
    ).split()
)
"""Words whose full stop does not end a sentence."""


def compared(found: int, relation: str | None, asked: int) -> bool:
    """``found`` "less than" or "at least" ``asked``; "at least" where none is given."""
    if relation not in (*RELATIONS, None):
        raise unknown_name("relation", str(relation), RELATIONS)
    return found < asked if relation == "less than" else found >= asked


def keyword_existence(text: str, keywords: Sequence[str]) -> bool:
    """Every keyword occurs, in any case, also inside longer words."""
    lowered = text.lower()
    return all(keyword.lower() in lowered for keyword in keywords)


def keyword_frequency(text: str, keyword: str, frequency: int, relation: str | None = None) -> bool:
    """The number of places where the keyword occurs, in any case, also inside words."""
    return compared(text.lower().count(keyword.strip().lower()), relation, frequency)


def forbidden_words(text: str, forbidden_words: Sequence[str]) -> bool:
    """No forbidden word occurs as a whole word, in any case."""
    return not any(
        re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE)
        for word in forbidden_words
    )


def letter_frequency(
    text: str, letter: str, let_frequency: int, let_relation: str | None = None
) -> bool:
    """The number of times that one character occurs, in either case."""
    return compared(text.lower().count(letter.lower()), let_relation, let_frequency)


def response_language(text: str, language: str) -> bool:
    """The text is written in the language of an ISO 639-1 code."""
    return _language(text) == language


_language = language


def sentences(text: str) -> list[str]:
    """The sentences of a text: cut after ``.``, ``!``, ``?`` and their closing quotes.

    A full stop within a number, after an abbreviation, an initial or the number of a list, or
    before a small letter cuts nothing. A rest without a closing mark counts as a sentence.

    >>> len(sentences('Dr. Lee paid 3.50 today. "Why?" she asked. No idea'))
    4
    """
    found, start = [], 0
    for mark in _MARKS.finditer(text):
        if not _WORD.search(text, start, mark.start()):
            start = mark.end()
        elif _ends_sentence(text, start, mark):
            found.append(text[start : mark.end()].strip())
            start = mark.end()
    rest = text[start:].strip()
    return [*found, rest] if _WORD.search(rest) else found


_WORD = re.compile(r"\w")
_MARKS = re.compile(r"[.!?\u2026\u3002\u0964]+[\"'\u201d\u2019)\]*]*(?=\s|$)")
_NEXT = re.compile(r"\s*(\S?)")
_WINDOW = 40
"""Characters before a full stop that say what it stands after."""


def _ends_sentence(text: str, start: int, mark: re.Match[str]) -> bool:
    following = _NEXT.match(text, mark.end())[1]  # type: ignore[index]
    if mark[0] == "." and following:
        before = text[max(start, mark.start() - _WINDOW) : mark.start()]
        word = re.split(r"[\s(\[\"']", before)[-1].lower()
        initial = len(word) == 1 and word.isalpha() and word != "i"
        listed = re.search(r"(?:\A|\n)\s*[0-9]+\Z", before) is not None
        if word in ABBREVIATIONS or initial or listed:
            return False
    return not following.islower()


def number_sentences(text: str, num_sentences: int, relation: str | None = None) -> bool:
    """The number of sentences (see :func:`sentences`)."""
    return compared(len(sentences(text)), relation, num_sentences)


def number_words(text: str, num_words: int, relation: str | None = None) -> bool:
    """The number of runs of letters, digits and underscores."""
    return compared(sum(1 for _ in re.finditer(r"\w+", text)), relation, num_words)


def number_paragraphs(text: str, num_paragraphs: int) -> bool:
    """Paragraphs separated by ``***``; only the first and the last may be blank."""
    parts = [part.strip() for part in text.split("***")]
    if not all(parts[1:-1]):
        return False
    return sum(map(bool, parts)) == num_paragraphs


def paragraph_first_word(
    text: str, num_paragraphs: int, nth_paragraph: int, first_word: str
) -> bool:
    """Paragraphs separated by blank lines: their number, and the first word of one of them."""
    parts = [part.strip() for part in re.split(r"\n\n", text) if part.strip()]
    if len(parts) != num_paragraphs or not 1 <= nth_paragraph <= len(parts):
        return False
    opening = re.match(
        r"[\"'\u201c\u2018*_]*([^\s.,!?\"'\u201d\u2019*_:;]+)", parts[nth_paragraph - 1]
    )
    return opening is not None and opening[1].lower() == first_word.strip().lower()


def number_placeholders(text: str, num_placeholders: int) -> bool:
    """At least so many pairs of square brackets, as in ``[address]``."""
    return len(re.findall(r"\[[^\n\[\]]*\]", text)) >= num_placeholders


def postscript(text: str, postscript_marker: str) -> bool:
    """A postscript opened by the marker; case, a space after a stop and the last stop are free."""
    letters = [part for part in re.split(r"[.\s]+", postscript_marker) if part]
    marker = r"\.\s?".join(map(re.escape, letters))
    return re.search(rf"(?<![\w.]){marker}(?!\w)", text, re.IGNORECASE) is not None


def number_bullets(text: str, num_bullets: int) -> bool:
    """Exactly so many lines that open with ``*`` or ``-`` and hold more than marks."""
    lines = [line.strip() for line in text.splitlines()]
    points = [line for line in lines if re.match(r"\*[^*]|-.", line)]
    return len(points) == num_bullets


def constrained_response(text: str) -> bool:
    """One of the three allowed answers occurs, letter by letter."""
    return any(answer in text for answer in CONSTRAINED)


def number_highlights(text: str, num_highlights: int) -> bool:
    """At least so many passages between single or double stars on one line."""
    double = re.findall(r"\*\*([^\n*]+)\*\*", text)
    single = re.findall(r"\*([^\n*]+)\*", re.sub(r"\*\*[^\n*]+\*\*", " ", text))
    return sum(bool(found.strip()) for found in (*double, *single)) >= num_highlights


def multiple_sections(text: str, num_sections: int, section_spliter: str) -> bool:
    """At least so many labels of the form ``Section 1``."""
    label = rf"(?<!\w){re.escape(section_spliter.strip())}\s?[0-9]+"
    return len(re.findall(label, text)) >= num_sections


def json_format(text: str) -> bool:
    """The whole text is strict JSON, in a code fence or not."""
    body = re.sub(r"\A```(?:json)?\s|```\Z", "", text.strip(), flags=re.IGNORECASE)
    try:
        json.loads(body, parse_constant=_refused)
    except (ValueError, RecursionError):
        return False
    return True


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def title(text: str) -> bool:
    """A title in double angular brackets on one line, as in ``<<Song of Joy>>``."""
    for line in text.split("\n"):
        start, end = line.find("<<"), line.rfind(">>")
        if -1 < start < end and line[start:end].strip("<> \t\r"):
            return True
    return False


def two_responses(text: str) -> bool:
    """Two different answers separated by ``******``; nothing blank between two separators."""
    parts = [part.strip() for part in text.split("******")]
    given = [part for part in parts if part]
    return all(parts[1:-1]) and len(given) == 2 and given[0] != given[1]


def repeat_prompt(text: str, prompt_to_repeat: str) -> bool:
    """The text begins with the request, case apart."""
    return text.strip().lower().startswith(prompt_to_repeat.strip().lower())


def end_checker(text: str, end_phrase: str) -> bool:
    """The text ends with the phrase, case and closing double quotes apart."""
    return text.strip().strip('"').rstrip().lower().endswith(end_phrase.strip().lower())


def quotation(text: str) -> bool:
    """Double quotes open and close the text."""
    inside = text.strip()
    return len(inside) > 1 and inside[0] == inside[-1] == '"'


def capital_words(text: str, capital_frequency: int, capital_relation: str | None = None) -> bool:
    """The number of words, hyphens and apostrophes included, wholly in capitals."""
    words = re.findall(r"\w+(?:['\u2019.-]\w+)*", text)
    return compared(sum(word.isupper() for word in words), capital_relation, capital_frequency)


def english_capital(text: str) -> bool:
    """No small letter, and nothing that tells another language than English."""
    return text.isupper() and _english(text)


def english_lowercase(text: str) -> bool:
    """No capital letter, and nothing that tells another language than English."""
    return text.islower() and _english(text)


def _english(text: str) -> bool:
    return _language(text) in ("en", None)


def no_comma(text: str) -> bool:
    """No comma anywhere."""
    return "," not in text


CHECKERS: dict[str, Callable[..., bool]] = {
    "change_case:capital_word_frequency": capital_words,
    "change_case:english_capital": english_capital,
    "change_case:english_lowercase": english_lowercase,
    "combination:repeat_prompt": repeat_prompt,
    "combination:two_responses": two_responses,
    "detectable_content:number_placeholders": number_placeholders,
    "detectable_content:postscript": postscript,
    "detectable_format:constrained_response": constrained_response,
    "detectable_format:json_format": json_format,
    "detectable_format:multiple_sections": multiple_sections,
    "detectable_format:number_bullet_lists": number_bullets,
    "detectable_format:number_highlighted_sections": number_highlights,
    "detectable_format:title": title,
    "keywords:existence": keyword_existence,
    "keywords:forbidden_words": forbidden_words,
    "keywords:frequency": keyword_frequency,
    "keywords:letter_frequency": letter_frequency,
    "language:response_language": response_language,
    "length_constraints:nth_paragraph_first_word": paragraph_first_word,
    "length_constraints:number_paragraphs": number_paragraphs,
    "length_constraints:number_sentences": number_sentences,
    "length_constraints:number_words": number_words,
    "punctuation:no_comma": no_comma,
    "startend:end_checker": end_checker,
    "startend:quotation": quotation,
}
"""Checker by the identifier of an instruction in the public data."""


def follows(text: str, instruction: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a text follows one instruction; a blank text follows none.

    Arguments that are None count as absent. Raises :class:`UsageError` for an unknown
    instruction or relation and :class:`ValidationError` for arguments that it does not take,
    never because of the text.
    """
    if instruction not in CHECKERS:
        raise unknown_name("instruction", instruction, CHECKERS)
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        return bool(text.strip()) and CHECKERS[instruction](text, **given)
    except TypeError:
        raise ValidationError(
            f"instruction '{instruction}': does not take the arguments {sorted(given)}."
        ) from None


def strict(
    text: str, instructions: Sequence[str], arguments: Sequence[Mapping[str, Any]]
) -> list[bool]:
    """Whether a text as it stands follows each instruction of a prompt."""
    pairs = zip(instructions, arguments, strict=True)
    return [follows(text, name, given) for name, given in pairs]


def loose(
    text: str, instructions: Sequence[str], arguments: Sequence[Mapping[str, Any]]
) -> list[bool]:
    """The same, where any of eight variants of the text may follow an instruction.

    The variants leave out the first line, the last line or both, each with and without stars.
    """
    lines = text.split("\n")
    cuts = ["\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])]
    variants = [text, *cuts]
    variants += [variant.replace("*", "") for variant in variants]
    verdicts = [strict(variant, instructions, arguments) for variant in variants]
    return [any(column) for column in zip(*verdicts, strict=True)]
