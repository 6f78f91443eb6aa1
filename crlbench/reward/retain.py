"""Verifiers of the retain panel: did training cost the model what it could do before?

All are pure and total, see nothing but the completion and pay 1.0 or 0.0. A model that was
not taught to stop writes on, so a short answer is looked for in the first line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

MOST_WORDS = 12
"""Longest first line in which a short answer is looked for: listing answers earns nothing."""
FEWEST_WORDS = 3
"""A shorter text follows no instruction."""

_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_NUMBER = re.compile(r"\s*([0-9]{1,12})(?![0-9.,]*[0-9])")


def copy(text: str, answer: str) -> float:
    """1.0 iff the first non-empty line is the answer, spaces around it aside."""
    return float(first_line(text) == answer)


def arithmetic(text: str, answer: str) -> float:
    """1.0 iff the continuation begins with the answer's number and no other digit follows it."""
    found = _NUMBER.match(text)
    return float(found is not None and found.group(1) == answer)


def qa(text: str, answer: str) -> float:
    """1.0 iff the first non-empty line says one of the answer's words (``|`` between them).

    Case and punctuation do not count; the line has at most :data:`MOST_WORDS` words.
    """
    said = words(first_line(text))
    if not 0 < len(said) <= MOST_WORDS:
        return 0.0
    line = f" {' '.join(said)} "
    return float(any(f" {' '.join(words(one))} " in line for one in answer.split("|")))


def follow(text: str, answer: str) -> float:
    """1.0 iff the text keeps every constraint of the answer, a JSON list of [kind, value]."""
    text = text.strip()
    if len(words(text)) < FEWEST_WORDS:
        return 0.0
    return float(all(KINDS[kind](text, value) for kind, value in json.loads(answer)))


VERIFIERS: dict[str, Callable[[str, str], float]] = {
    "follow": follow,
    "qa": qa,
    "copy": copy,
    "arithmetic": arithmetic,
}
"""By member; the member ``text`` is scored by its loss."""


def first_line(text: str) -> str:
    """The first line that holds anything, stripped."""
    return next((line.strip() for line in text.split("\n") if line.strip()), "")


def words(text: str) -> list[str]:
    """The words and numbers of a text in lower case."""
    return _WORD.findall(text.lower())


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


def _keyword(text: str, value: str) -> bool:
    return value in words(text)


def _forbidden(text: str, value: str) -> bool:
    return value not in words(text)


def _most_words(text: str, value: int) -> bool:
    return len(words(text)) <= value


def _lines_exactly(text: str, value: int) -> bool:
    return len(_lines(text)) == value


def _bullets(text: str, value: int) -> bool:
    """Every line is a bullet and there are ``value`` of them."""
    lines = _lines(text)
    return len(lines) == value and all(line.startswith("* ") for line in lines)


def _case(text: str, value: str) -> bool:
    return text == (text.lower() if value == "lower" else text.upper())


def _starts(text: str, value: str) -> bool:
    return words(text)[:1] == [value]


def _ends(text: str, value: str) -> bool:
    return text.endswith(value)


def _json_keys(text: str, value: list[str]) -> bool:
    """A JSON object with exactly these keys."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and sorted(found) == sorted(value)


KINDS: dict[str, Callable[[str, Any], bool]] = {
    "keyword": _keyword,
    "forbidden": _forbidden,
    "most-words": _most_words,
    "lines": _lines_exactly,
    "bullets": _bullets,
    "case": _case,
    "starts": _starts,
    "ends": _ends,
    "json": _json_keys,
}
"""Constraint kinds: (stripped text, value) -> whether it is kept."""
