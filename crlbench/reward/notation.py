r"""How mathematicians spell one answer: the spelling that a library parses, for all of them.

Groups of digits, signs beyond ASCII, fonts, dollar signs, a relation before the value, and units.
Nothing here decides whether two answers are equal (:mod:`crlbench.reward.equivalence`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from crlbench.reward.measures import MEASURES
from crlbench.reward.numerals import SIGNS, join_groups, join_spaced

_LATEX = {
    "\u00d7": r"\times ", "\u00b7": r"\cdot ", "\u00f7": "/", "\u2264": r"\le ",
    "\u2265": r"\ge ", "\u2260": r"\neq ", "\u221e": r"\infty ", "\u222a": r"\cup ",
    "\u2229": r"\cap ", "\u2208": r"\in ", "\u2205": r"\emptyset ", "\u03c0": r"\pi ",
    "\u00b1": r"\pm ", "\u00b0": r"^{\circ}", "\u211d": r"\mathbb{R}", "\u2248": r"\approx ",
    "\u00bd": r"\frac{1}{2}", "\u00bc": r"\frac{1}{4}", "\u00be": r"\frac{3}{4}",
    "\u2153": r"\frac{1}{3}", "\u2154": r"\frac{2}{3}", "\u03b8": r"\theta ", "\u03b1": r"\alpha ",
    "\u00a0": " ", "\u2009": " ", "\u202f": " ",
}  # fmt: skip
_RAISED = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u2079\u207b]+")
_DIGITS = str.maketrans(
    "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b", "0123456789-"
)
_ROOT = re.compile("\u221a" + r"\s*(\d+|[A-Za-z]|\([^()]*\)|\{[^{}]*\})")
_SIZE = re.compile(
    r"\\(?:left|right|displaystyle|large|Large|small|tfrac|dfrac)(?![A-Za-z])"
    r"|(?<=\\\\)\[[0-9.]+(?:pt|ex|em|mm)\]"
)
_PLAIN = {r"\tfrac": r"\frac", r"\dfrac": r"\frac"}
_FONT = re.compile(
    r"\\(?:mathbf|mathsf|mathtt|mathit|boldsymbol|bm|textbf|textit|textsf|texttt|textrm|emph"
    r"|underline)"
    r"\s?\{((?:[^{}]|\{[^{}]*\})*)\}"
)
_TEXT_NUMBER = re.compile(r"\\(?:text|mathrm)\{\s*([-+]?[0-9][0-9.,]*(?:\s[A-Za-z/ ]+)?)\s*\}")
_LOG = re.compile(r"\\log_\s?([0-9])(?=[\s0-9A-Za-z(\\])\s?")
"""A logarithm whose base is one digit: its argument may follow as another digit."""
_LOG_OVER = re.compile(r"(\\(?:ln|log))\s+([0-9]+)(?=\s?/)")
"""Without parentheses the library divides before it takes the logarithm."""
_IN_DEGREES = re.compile(
    r"(\\(?:sin|cos|tan|cot|sec|csc))\s?[({]?\s?([0-9]+(?:\.[0-9]+)?)\s?\^\s?"
    r"(?:\{\s?\\circ\s?\}|\\circ)\s?[)}]?"
)
_RELATION = re.compile(r"\s*(?:=|\\(?:approx|simeq|doteq|equiv)(?![A-Za-z]))\s*")
_ROUGHLY = re.compile(r"\\(?:approx|simeq|doteq)(?![A-Za-z])")
_MIXED = re.compile(r"([-+]?[0-9]+) ([0-9]+)/([0-9]+)")
_INDIAN = re.compile(r"[-+]?[1-9][0-9]?(?:,[0-9]{2})*,0[0-9](?:,[0-9]{2})*,[0-9]{3}")
_BOX = re.compile(r"\\boxed\s?\{(.*)\}", re.DOTALL)
_DRESS = re.compile(r"(?<!\\)\\[()\[\]]|\*\*|`|(?<!\\)\$")

_NO_UNIT = frozenset(
    "or and not no if to than more less least most plus minus times hundred thousand million "
    "billion trillion dozen percent is are".split()
)
"""Words that make a text behind a number something else than its unit."""
_POWER = r"(?:\s?\^\s?\{?(?P<power>-?[1-4])\}?)?"
_TEXT_UNIT = re.compile(
    r"(?<=[0-9})!a-z])\s*(?:\\[,;:! ]|~)?\s*\\(?:text|mathrm|operatorname|textrm|mbox)\s?"
    r"\{(?P<text>[^{}]{0,60})\}" + _POWER + r"\s*\Z"
)
_PLAIN_UNIT = re.compile(
    r"(?<=[0-9}])(?:\s+(?P<word>[A-Za-z]+(?:/[a-z]+)?)|(?P<glued>[a-z]{2,3}(?:/[a-z])?))"
    + _POWER
    + r"\Z"
)
_WORDS_ALONE = frozenset(
    "cm mm km m kg g s min minute minutes hour hours day days year years degree degrees dollar "
    "dollars cent cents unit units inch inches foot feet km/h m/s mph meter meters".split()
)
_GLUED = frozenset("cm mm km kg mg ml min mph ft".split())


class Spelling(NamedTuple):
    """An answer without what only dresses it."""

    value: str
    """LaTeX in ASCII where its signs are known."""
    unit: str = ""
    """The unit that measures, with its exponent; "" for none or one that only counts."""


def undress(found: str) -> str:
    r"""An answer without dollar signs, bold, a closing full stop, and a box around the whole.

    >>> undress(r"**$\boxed{5}$.**")
    '5'
    """
    found = found.strip().removesuffix(".")
    if found[:1] in "$*`\\" or found[-1:] in "$*`)]":
        found = _DRESS.sub("", found)
    found = found.strip("$ \t\n").removesuffix(".").strip()
    box = _BOX.fullmatch(found)
    return box[1].strip() if box and "\\boxed" not in box[1] else found


def tidy(found: str) -> Spelling:
    r"""The spelling that is compared, and the unit.

    >>> tidy(r"= 1\,000\text{ cm}^2")
    Spelling(value='1000', unit='cm^2')
    """
    found = join_groups(undress(found).translate(SIGNS))
    for sign, latex in _LATEX.items():
        if sign in found:
            found = found.replace(sign, latex)
    found = _RAISED.sub(lambda match: f"^{{{match[0].translate(_DIGITS)}}}", found)
    found = _ROOT.sub(lambda match: r"\sqrt{" + match[1].strip("{}") + "}", found)
    found = _SIZE.sub(lambda match: _PLAIN.get(match[0], ""), found)
    found = _TEXT_NUMBER.sub(r"\1", _FONT.sub(r"\1", found))
    found = join_spaced(" ".join(found.split()))
    found = _LOG_OVER.sub(r"\1(\2)", found.replace(r"\log_e", r"\ln"))
    found = _LOG.sub(r"\\log_{\1} ", found)
    found = _IN_DEGREES.sub(r"\1(\\frac{\2\\pi}{180})", found)
    relation = _RELATION.match(found)
    found = _ROUGHLY.sub("=", found[relation.end() if relation else 0 :])
    found = found.replace(",", "") if _INDIAN.fullmatch(found) else found
    mixed = _MIXED.fullmatch(found)
    found = rf"{mixed[1]}\frac{{{mixed[2]}}}{{{mixed[3]}}}" if mixed else found
    return _measured(found)


def _measured(found: str) -> Spelling:
    unit = _TEXT_UNIT.search(found)
    if unit and (not unit["text"].strip() or _is_unit(unit["text"])):
        return Spelling(found[: unit.start()], _measure(unit["text"], unit["power"]))
    unit = _PLAIN_UNIT.search(found)
    if unit and (unit["glued"] in _GLUED or unit["word"] in _WORDS_ALONE):
        name = unit["glued"] or unit["word"]
        return Spelling(found[: unit.start()], _measure(name, unit["power"]))
    return Spelling(found)


def _is_unit(text: str) -> bool:
    words = re.findall("[a-z]+", text.lower())
    return 0 < len(words) <= 4 and not _NO_UNIT & {*words} and not re.search("[0-9]", text)


def _measure(text: str, power: str | None) -> str:
    name = text.replace("~", " ").strip(" .").lower()
    squared = {"square ": "2", "sq ": "2", "cubic ": "3"}
    for word, exponent in squared.items():
        if name.startswith(word):
            name, power = name.removeprefix(word), exponent
    known = MEASURES.get(name) or MEASURES.get(name.removesuffix("s"), "")
    return f"{known}^{power}" if known and power else known


_COMMA = re.compile(r"(?<![0-9.])([1-9][0-9]{0,2}(?:,[0-9]{3})+)(?![0-9])")
_ZEROS = re.compile(r"(?<![0-9.])0[0-9]")
MAX_JOINS = 12
"""Most commas of one answer that are tried as separators of thousands."""
MAX_READINGS = 4


def readings(given: str, gold: str) -> Iterator[str]:
    """What the commas of an answer can mean where the gold has so many.

    A comma before three digits may separate thousands or elements. So many are taken to separate
    thousands as the answer has more commas than the gold; a number that begins with 0 is none, and
    decides. In brackets commas separate elements unless such a zero says otherwise. At most
    ``MAX_READINGS``.

    >>> [*readings("1,234", "1234")], [*readings("1,234", "1, 234")]
    (['1234'], ['1,234'])
    >>> [*readings("(1,000,2,000)", "(1000,2000)")]
    ['(1000,2000)']
    """
    places = [
        found.start(1) + offset
        for found in _COMMA.finditer(given)
        for offset, sign in enumerate(found[1])
        if sign == ","
    ]
    needed = given.count(",") - gold.count(",")
    listed = given[:1] in ("(", "[", "\\") and "," not in gold and not _ZEROS.search(given)
    if not places or listed or not 0 <= needed <= len(places) <= MAX_JOINS:
        yield given
        return
    count = 0
    for joined in itertools.combinations(places, needed):
        found = "".join(sign for place, sign in enumerate(given) if place not in joined)
        if count < MAX_READINGS and not _ZEROS.search(found) and _sound(given, joined):
            count += 1
            yield found
    if not count:
        yield given


def _sound(given: str, joined: tuple[int, ...]) -> bool:
    """Whether commas that separate thousands stand behind one to three digits, or each other."""
    for place in joined:
        first = place
        while first > 0 and given[first - 1].isdigit():
            first -= 1
        size = place - first
        grouped = first > 0 and first - 1 in joined
        if not (size == 3 if grouped else 0 < size <= 3 and given[first] != "0"):
            return False
    return True
