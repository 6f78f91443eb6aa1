r"""The final number of a worked solution, as published word problems ask for it.

A gold completion is the number alone, or the number in one of three wrappings: ``#### 18``,
``\boxed{18}`` and ``<answer>18</answer>``. Thoughts are left out first
(:mod:`crlbench.reward.answers`). A wrapping that the gold has is required, and the last one that
holds a number counts. Without one the last wrapping counts that holds a number, else the last
number of all. A Markdown heading is no wrapping: ``#### Step 1`` and ``#### 1. Add`` hold none.

Numbers are compared as decimals, never as floats: "1,234.50" is "1234.5", "007" is no number.
Signs, grouped thousands, currency marks, units, dress, quotients ("9/2"), mixed numbers ("4 1/2")
and the LaTeX of all of these are read; digits of other scripts are not. A sum, a product, a range,
a bound or a list is no conclusion, however it is spaced, and a quotient is a number only in lowest
terms.

This file is part of the digest of every frozen verifier that uses it.
"""

from __future__ import annotations

import re
from decimal import Context, Decimal
from functools import lru_cache
from math import gcd

from crlbench.reward.answers import Marked, boxes, outside_thoughts, tags
from crlbench.reward.number_text import HEADING, heading_number, plain
from crlbench.reward.numerals import CURRENCY, VULGAR, join_spaced

WRAPPINGS = ("#### {}", r"\boxed{{{}}}", "<answer>{}</answer>")
"""How a number may be wrapped, for templates."""
LONGEST = 40
"""Digits above which a text is nobody's number."""

_NUMBER = re.compile(
    rf"(?P<sign>(?<![\w.)\]}}%])-)?[{CURRENCY}]?(?P<inner>(?<=[{CURRENCY}])-)?"
    r"(?<![\w.])(?P<digits>(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
    r"(?P<power>[eE][+-]?[0-9]{1,3})?(?!\d|\.[0-9]|[eE][+-]?[0-9])"
)
_DIGIT = re.compile(r"[0-9]")
_NUMERAL = re.compile(f"[0-9{''.join(VULGAR)}]")
"""What a line with a number holds: a digit or a fraction of one character."""
_TAIL = re.compile(
    r"\S*?[0-9]|\s*[x*/^\u00d7\u00f7\u00b7]\s*\.?[0-9]|\s*(?:\u03c0|\\pi(?![A-Za-z]))"
    r"|\s*(?:[<>]=?|[\u2264\u2265\u2260])\s*[A-Za-z]"
    r"|\s+and\s+(?:an?|one|two|three|four|five|six|seven|eight|nine)[\s-]+"
    r"(?:half|halves|(?:quarter|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth)s?)\b"
)
"""What may not follow a number: more digits in its word, another factor or part, or a letter that
it bounds."""
_OR_MORE = re.compile(r"\s*or (?:more|fewer|less)\b")
_CONCLUDES = re.compile(r"(?<![!<>])=|[\u2248\u2192]|->|>>")
"""Behind what a number is a result though another one stands before it in its word; ">>" closes
the calculations that GSM8K's own solutions hold, as in "9 * 2 = <<9*2=18>>18"."""
_UNDONE = re.compile(r"[-+*/^x%\u00d7\u00f7\u00b7]+")
"""All that stands between two numbers that are still to be worked out."""
_TERM = re.compile(r"[^.;:!?=\u2248]*(?:\s[+*/\u00d7\u00f7\u00b7]\s*|[+*/\u00d7\u00f7\u00b7]\s+)")
"""The same with a word after the first number, as in "17 apples + 18"; a hyphen there is none."""
_WORDS = re.compile(
    r"[^.;:!?=]{0,24}\b(?:or|plus|minus|times|mod|modulo|divided by|multiplied by)\s*",
    re.IGNORECASE,
)
_BOUND = re.compile(r"(?:(?<![-=>])>|<|[<>!]=|[\u2264\u2265\u2260\u00b1\u221a])[\s(\[$]*\Z")
_SIGN_APART = re.compile(rf"\A((?:[^0-9:]{{0,40}}:)?)\s*-\s+(?=[{CURRENCY}]?\.?[0-9])")
"""A minus apart from its number at the start of a wrapping, where no list can begin."""

_LOOSE = str.maketrans("", "", f' \t\u00a0\u2009\u202f(){{}}[]\\"{CURRENCY}')
"""What may stand around an operator without a meaning."""
_HASHES = re.compile(r"####[ \t]+([^\n]*)")
_QUOTED = re.compile(r"\s*(?:>\s*)+")
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
    answer = answer.strip()
    openings = {"#### ": "hashes", "<answer>": "tag", "\\boxed{": "box"}
    form = next((form for mark, form in openings.items() if answer.startswith(mark)), None)
    return form, _only(_wrapped(answer, form)) if form else _only(answer)


def _conclusion(text: str, form: str | None) -> Decimal | None:
    """The number that a completion ends on; None where it names none, or several at once."""
    text = outside_thoughts(text)
    inside = _wrapped(text, form)
    if inside or form is not None:
        return _only(inside)
    return _last(text)


def _wrapped(text: str, form: str | None) -> str:
    """The last content of a wrapping (of this form, or any) that holds a digit; else ""."""
    marks: list[Marked] = []
    if form in (None, "box") and ("\\boxed" in text or "\\fbox" in text):
        marks += boxes(text)
        if form and marks and marks[-1].content is None:
            return ""
    if form in (None, "tag") and "<" in text:
        marks += tags(text)
    if form in (None, "hashes") and "####" in text:
        end = len(text.rstrip())
        digit = max((found.start() for found in _NUMERAL.finditer(text)), default=-1)
        headings = [*_HASHES.finditer(text)]
        alone = sum(_NUMERAL.search(found[1]) is not None for found in headings) == 1
        for found in headings:
            followed, counted = found.end() < end, found.end() < digit
            content = heading_number(found[1], followed, counted, alone)
            marks.append(Marked(found.start(), content))
    filled = (mark for mark in marks if mark.content and _NUMERAL.search(mark.content))
    last = max(filled, key=lambda mark: mark.start, default=None)
    return last.content or "" if last else ""


def _only(text: str) -> Decimal | None:
    """The single number of a short text, or the one behind its last "=" if it is a calculation."""
    line = _SIGN_APART.sub(r"\1-", join_spaced(" ".join(plain(text).split())))
    found = [*_NUMBER.finditer(line)]
    if not found:
        return None
    value, used = _value(line, found)
    if used == len(found):
        return None if _OR_MORE.match(line, found[-1].end()) else value
    whole = "=" in line and not re.search(r"[,;]\s|\b(?:or|and)\b", line)
    return value if whole and "=" in line[found[-used - 1].end() : found[-used].start()] else None


def _last(text: str) -> Decimal | None:
    """The last number of the last line that holds one; no number runs over a plain space."""
    followed = False
    for line in reversed(text.splitlines()):
        if not _NUMERAL.search(line):
            followed = followed or bool(line.strip())
            continue
        heading = HEADING.match(line)
        line = heading_number(heading["text"], followed, False) if heading else plain(line)
        followed = True
        line = _QUOTED.sub("", line, count=1) if line.lstrip().startswith(">") else line
        found = [*_NUMBER.finditer(line)]
        if found:
            return _value(line, found)[0]
    return None


def _value(line: str, found: list[re.Match[str]]) -> tuple[Decimal | None, int]:
    """The last number found, or the quotient or mixed number that it closes, and how many numbers
    of those found it takes; None where something makes it no conclusion."""
    value, used = _decimal(found[-1]), 1
    if len(found) > 1 and line[found[-2].end() : found[-1].start()] == "/":
        value, used = _quotient(_decimal(found[-2]), value), 2
        if len(found) > 2 and line[found[-3].end() : found[-2].start()] == " ":
            mixed = _mixed(_decimal(found[-3]), value)
            value, used = (mixed, 3) if mixed is not None else (value, used)
    first = found[-used]
    alone = _concludes(line, first) and not _TAIL.match(line, found[-1].end())
    later = re.search(r"(?<!\w)[0-9]", line[found[-1].end() :])
    return value if alone and not later else None, used


def _concludes(line: str, first: re.Match[str]) -> bool:
    """Whether what stands before a number on its line leaves it a conclusion."""
    digits = [match.end() for match in _DIGIT.finditer(line, 0, first.start())]
    gap = line[digits[-1] if digits else 0 : first.start()]
    if _BOUND.search(gap):
        return False
    if not digits:
        return True
    if not gap[:1].isspace() and not re.search(r"\s", gap):
        return bool(_CONCLUDES.search(gap))
    core = gap.translate(_LOOSE)
    if not core:
        return first["sign"] is None
    signed = gap.endswith("+") and len(core) > 1
    before = gap.rstrip(f"{CURRENCY}([\"'")
    undone = _UNDONE.fullmatch(core) or (_TERM.fullmatch(before) and not signed)
    return not undone and not _WORDS.fullmatch(before)


def _mixed(whole: Decimal | None, part: Decimal | None) -> Decimal | None:
    """A whole number with a proper quotient behind it."""
    if whole is None or part is None or whole != whole.to_integral_value():
        return None
    if not whole or not 0 < part < 1:
        return None
    return _EXACT.add(whole, part if whole > 0 else -part)


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


def _rounded(number: Decimal, places: int) -> Decimal:
    if number.adjusted() > LONGEST:
        return number
    return _EXACT.quantize(number, Decimal(1).scaleb(-places))
