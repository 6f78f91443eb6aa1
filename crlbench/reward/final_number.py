r"""The final number of a worked solution, as published word problems ask for it.

A gold completion is the number alone, or the number in one of three wrappings: ``#### 18``,
``\boxed{18}`` and ``<answer>18</answer>``. A wrapping that the gold has is required, and the last
one counts. Without one the last wrapping counts if there is any, else the last number of all.
Numbers are compared as decimals, never as floats: "1,234.50" is "1234.5", "007" is no number.
Signs, thousands commas, currency marks, units, stars, quotients ("9/2") and the LaTeX of money,
commas and fractions are read; digits of other scripts are not. A sum, a product, a range or a list
is no conclusion: a number in one word with another counts only behind "=", "5 * 18" counts no more
than "5*18", and a quotient is a number only in lowest terms.

This file is part of the digest of every frozen verifier that uses it.
"""

from __future__ import annotations

import re
from decimal import Context, Decimal
from functools import lru_cache
from math import gcd

WRAPPINGS = ("#### {}", r"\boxed{{{}}}", "<answer>{}</answer>")
"""How a number may be wrapped, for templates."""
LONGEST = 40
"""Digits above which a text is nobody's number."""

_NUMBER = re.compile(
    r"(?P<sign>(?<![\w.)\]}%])[-\u2212])?[$\u20ac\u00a3]?(?P<inner>(?<=[$\u20ac\u00a3])-)?"
    r"(?<![\w.])(?P<digits>(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
    r"(?P<power>[eE][+-]?[0-9]{1,3})?(?![0-9]|\.[0-9]|[eE][+-]?[0-9])"
)
_DIGIT = re.compile(r"[0-9]")
_GLUE = re.compile(r"[0-9]([^0-9\s]*)\Z")
_TAIL = re.compile(r"\S*?[0-9]")
_CONCLUDES = re.compile(r"(?<![!<>])=|[\u2248\u2192]|->|>>")
"""Behind what a number is a result though another one stands before it in its word; ">>" closes
the calculations that GSM8K's own solutions hold, as in "9 * 2 = <<9*2=18>>18"."""
_OPERATORS = {*"+-*/^x\u2212\u2013\u00d7\u00f7\u00b7", "**", r"\times", r"\cdot", r"\div"}
_WRAPPED = re.compile(
    r"####[ \t]+(?P<hashes>[^\n]*)|<answer>(?P<tag>[^<]*)</answer>|\\boxed\{(?P<box>"
    r"(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"
)
_FRACTION = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
_SPACES = re.compile(r"\\[!,;:]")
_EXACT = Context(prec=3 * LONGEST)


def final_number(text: str, answer: str) -> float:
    """1.0 iff the completion concludes with the number of the gold completion.

    >>> final_number("3 + 15 = 18, so she makes **$18.00** a day.", "18")
    1.0
    >>> final_number("The answer is 18.", "#### 18")
    0.0
    """
    form, gold = _gold(answer)
    return float(gold is not None and _conclusion(text, form) == gold)


def final_number_to(text: str, answer: str, places: int) -> float:
    """The same where numbers are equal that round to the same so many decimals (half to even).

    >>> final_number_to("about 10.6667", "10.667", 3)
    1.0
    """
    form, gold = _gold(answer)
    found = _conclusion(text, form)
    if found is None or gold is None:
        return 0.0
    return float(_rounded(found, places) == _rounded(gold, places))


@lru_cache(maxsize=4096)
def _gold(answer: str) -> tuple[str | None, Decimal | None]:
    """The wrapping of a gold completion, None for a bare number, and its number."""
    wrapped = _WRAPPED.fullmatch(answer.strip())
    if wrapped:
        return wrapped.lastgroup, _only(wrapped[wrapped.lastgroup or 0])
    return None, _only(answer)


def _conclusion(text: str, form: str | None) -> Decimal | None:
    """The number that a completion ends on; None where it names none, or several at once."""
    if form is not None or "####" in text or "<answer>" in text or "\\boxed{" in text:
        inside = [
            found[found.lastgroup or 0]
            for found in _WRAPPED.finditer(text)
            if form in (None, found.lastgroup)
        ]
        if inside:
            return _only(inside[-1])
        if form is not None:
            return None
    return _last(text)


def _only(text: str) -> Decimal | None:
    """The single number of a short text."""
    cleaned = _plain(text)
    found = [*_NUMBER.finditer(cleaned)]
    quotient = len(found) == 2 and cleaned[found[0].end() : found[1].start()] == "/"
    return _value(cleaned, found) if len(found) == 1 or quotient else None


def _last(text: str) -> Decimal | None:
    """The number of the last word that holds one; no number runs over a space."""
    for line in reversed(_plain(text).splitlines()):
        words = line.split() if _DIGIT.search(line) else []
        for place in range(len(words) - 1, -1, -1):
            word = words[place]
            found = [*_NUMBER.finditer(word)] if _DIGIT.search(word) else []
            if found:
                return None if _operand(words, place) else _value(word, found)
    return None


def _operand(words: list[str], place: int) -> bool:
    """Whether an operator stands between a word that states no result and a number before it."""
    sign = place > 1 and words[place - 1] in _OPERATORS and not _CONCLUDES.search(words[place])
    return sign and _DIGIT.search(words[place - 2]) is not None


def _value(text: str, found: list[re.Match[str]]) -> Decimal | None:
    """The last number found, or the quotient that it closes, if nothing else touches it."""
    first = last = found[-1]
    value = _decimal(last)
    if len(found) > 1 and text[found[-2].end() : last.start()] == "/":
        first = found[-2]
        value = _quotient(_decimal(first), value)
    before = _GLUE.search(text, 0, first.start())
    loose = (not before or _CONCLUDES.search(before[1])) and not _TAIL.match(text, last.end())
    return value if loose else None


def _quotient(upper: Decimal | None, lower: Decimal | None) -> Decimal | None:
    """A quotient of whole numbers in lowest terms; any other is a division left undone."""
    if upper is None or lower is None or lower <= 1:
        return None
    if any(part != part.to_integral_value() for part in (upper, lower)):
        return None
    return _EXACT.divide(upper, lower) if gcd(int(upper), int(lower)) == 1 else None


def _decimal(found: re.Match[str]) -> Decimal | None:
    digits = found["digits"].replace(",", "")
    whole = digits.partition(".")[0]
    if len(digits) > LONGEST or (len(whole) > 1 and whole[0] == "0"):
        return None
    sign = "-" if bool(found["sign"]) != bool(found["inner"]) else ""
    return Decimal(f"{sign}{digits}{found['power'] or ''}")


def _plain(text: str) -> str:
    """The text without the LaTeX that stands inside and around numbers."""
    if "\\" not in text and "{,}" not in text:
        return text
    text = _SPACES.sub("", text.replace("{,}", ",")).replace("\\$", "$").replace("\\%", "%")
    return _FRACTION.sub(r" \1/\2", text)


def _rounded(number: Decimal, places: int) -> Decimal:
    if number.adjusted() > LONGEST:
        return number
    return _EXACT.quantize(number, Decimal(1).scaleb(-places))
