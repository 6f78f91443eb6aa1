r"""How mathematicians spell one answer: the spelling that a library parses, for all of them.

Groups of digits, signs beyond ASCII, fonts, dollar signs, a relation before the value, and units.
Nothing here decides whether two answers are equal (:mod:`crlbench.reward.equivalence`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from crlbench.reward.measures import MEASURES, NOT_UNITS
from crlbench.reward.numerals import SIGNS, VULGAR, join_groups, join_spaced

_LATEX = {
    "\u00d7": r"\times ", "\u00b7": r"\cdot ", "\u00f7": "/", "\u2264": r"\le ",
    "\u2265": r"\ge ", "\u2260": r"\neq ", "\u221e": r"\infty ", "\u222a": r"\cup ",
    "\u2229": r"\cap ", "\u2208": r"\in ", "\u2205": r"\emptyset ", "\u03c0": r"\pi ",
    "\u00b1": r"\pm ", "\u00b0": r"^{\circ}", "\u211d": r"\mathbb{R}", "\u2248": r"\approx ",
    "\u03b8": r"\theta ", "\u03b1": r"\alpha ",
    "\u00a0": " ", "\u2009": " ", "\u202f": " ",
    **{sign: rf"\frac{{{upper}}}{{{lower}}}" for sign, (upper, lower) in VULGAR.items()},
}  # fmt: skip
_RAISED = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u2079\u207b]+")
_DIGITS = str.maketrans(
    "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b", "0123456789-"
)
_ROOT = re.compile("([\u221a\u221b])" + r"\s*(\d+|[A-Za-z]|\([^()]*\)|\{[^{}]*\})")
_SIZE = re.compile(
    r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|textstyle|small|normalsize|large|Large|LARGE|huge"
    r"|Huge|bf|rm|it|[tdc]frac|lbrace|rbrace|varnothing|degree|therefore|because|checkmark)"
    r"(?![A-Za-z])"
    r"|(?<=\\\\)\[[0-9.]+(?:pt|ex|em|mm)\]|\\(?:text)?color\s?\{[A-Za-z]{1,20}\}"
)
_PLAIN = {
    r"\tfrac": r"\frac", r"\dfrac": r"\frac", r"\cfrac": r"\frac", r"\lbrace": r"\{",
    r"\rbrace": r"\}", r"\varnothing": r"\emptyset ", r"\degree": r"^{\circ}",
}  # fmt: skip
_LOOSE_FRACTION = re.compile(r"\\frac\s+([0-9])\s+([0-9])(?![0-9])")
_PERCENT = re.compile(r"(?<=[0-9])(?:\\[,;: ]|~|\s)*(?:\\text\s?\{\s*(?:\\?%|percent)\s*\}|\\?%)")
_LEADS = re.compile(
    r"(?:\\(?:Rightarrow|implies|to|rightarrow)(?![A-Za-z])"
    r"|\\text\s?\{(?![^{}]*(?:n't|\bat (?:least|most)|\b(?:not?|never|neither|nor|cannot|wrong"
    r"|false|incorrect|than|unless|except|if|half|twice|double|triple)\b))"
    r"[^{}0-9]{0,60}(?::|=|\b(?:is|are|equals))\s*\})\s*",
    re.IGNORECASE,
)
"""What only says that an answer comes: an arrow, or a text such as "the minimum is"; none that
denies it, bounds it or tells of another value."""
_UPRIGHT = re.compile(r"\\(?:mathrm|operatorname|text)\s?\{\s?([eixyz])\s?\}")
"""A constant or an unknown in letters that stand upright."""
_REPEATING = re.compile(
    r"(?<![0-9.])([0-9]{0,9})\.([0-9]{0,9})\\(?:overline|bar|dot)\s?\{([0-9]{1,9})\}"
)
_NAMED = re.compile(r"(?<![A-Za-z\\])(?:pi|infinity|Infinity)(?![A-Za-z])")
_STARS = re.compile(r"(?<=[0-9A-Za-z)}])\*\*\s?(-?[0-9]+|(?=[A-Za-z({]))")
_TURNED = re.compile(r"([-+]?[0-9][0-9.,]*|\\frac\{[0-9]+\}\{[0-9]+\})\s*=\s*([A-Za-z])")
"""An equation with the value first."""
_UNSEEN = "\u200b\u200e\u200f\u2060\ufeff"
_FONT = re.compile(
    r"\\(?:mathbf|mathsf|mathtt|mathit|boldsymbol|bm|textbf|textit|textsf|texttt|textrm|emph"
    r"|underline)"
    r"\s?\{((?:[^{}]|\{[^{}]*\})*)\}"
)
_TEXT_NUMBER = re.compile(r"\\(?:text|mathrm)\{\s*([-+]?[0-9][0-9.,]*)(\s[A-Za-z/ ]+)?\s*\}")
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

_POWER = r"(?:\s?\^\s?\{?(?P<power>-?[1-4])\}?)?"
_TEXT = (
    r"\\(?:text|mathrm|operatorname|textrm|mbox)\s?\{(?:[^{}]|\{-?[1-4]\}){0,60}\}"
    r"(?:\s?\^\s?\{?-?[1-4]\}?)?"
)
_TEXT_UNIT = re.compile(
    rf"(?<=[0-9}})!a-z])\s*(?:\\[,;:! ]|~)?\s*(?P<text>\\frac\s?\{{{_TEXT}\}}\s?\{{{_TEXT}\}}"
    rf"|{_TEXT}(?:\s?(?:\\[,;:! ]|~|\\cdot\s?|/)?\s?{_TEXT}){{0,3}})\s*\Z"
)
_UNIT_DRESS = re.compile(r"\\(?:text|mathrm|operatorname|textrm|mbox|frac)\s?(?=\{)|[{}]")
_UNIT_POWER = re.compile(r"\s*\^\s*(-?[1-4])")
_PLAIN_UNIT = re.compile(
    r"(?<=[0-9}])(?:(?:\s|\\[,;: ]|~)+(?P<word>[A-Za-z]+(?:/[a-z]+)?)"
    r"|(?P<glued>[a-z]{2,3}(?:/[a-z])?))"
    + _POWER
    + r"\Z"
)
_WORDS_ALONE = frozenset(
    "cm mm km m kg g s min minute minutes hour hours day days year years degree degrees dollar "
    "dollars cent cents unit units inch inches foot feet km/h m/s mph meter meters".split()
)
_GLUED = frozenset("cm mm km kg mg ml min mph ft".split())


_END = re.compile(r"(?<!\\)[.,;]\s*\Z|\\text\s?\{\s*\.\s*\}\s*\Z")
"""A mark that ends a sentence behind the answer."""


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
    found = _END.sub("", found.strip(_UNSEEN + " \t\n\"\u201c\u201d\u201e"))
    if found[:1] in "$*`\\" or found[-1:] in "$*`)]":
        found = _DRESS.sub("", found)
    found = _END.sub("", found.strip("$ \t\n")).strip()
    box = _BOX.fullmatch(found)
    return box[1].strip() if box and "\\boxed" not in box[1] else found


def tidy(found: str, letter: str = "") -> Spelling:
    r"""The spelling that is compared, and the unit; the gold ends with ``letter``, which is none.

    >>> tidy(r"= 1\,000\text{ cm}^2")
    Spelling(value='1000', unit='cm^2')
    """
    found = join_groups(undress(found).translate(SIGNS))
    for sign, latex in _LATEX.items():
        if sign in found:
            found = found.replace(sign, latex)
    found = _RAISED.sub(lambda match: f"^{{{match[0].translate(_DIGITS)}}}", found)
    found = _ROOT.sub(_rooted, found)
    found = found.replace(r"\text{\$}", "").replace(":=", "=")
    found = _SIZE.sub(lambda match: _PLAIN.get(match[0], ""), found)
    found = _TEXT_NUMBER.sub(_out_of_text, _FONT.sub(r"\1", found))
    found = _UPRIGHT.sub(_slanted, found)
    found = _PERCENT.sub(lambda _: r"\%", _LOOSE_FRACTION.sub(r"\\frac{\1}{\2}", found))
    found = _REPEATING.sub(_repeated, _STARS.sub(_starred, found))
    found = _NAMED.sub(lambda match: r"\pi " if match[0] == "pi" else r"\infty ", found)
    found = join_spaced(" ".join(found.strip("~ ").split()))
    leads = _LEADS.match(found)
    found = found[leads.end() :] if leads else found
    found = _LOG_OVER.sub(r"\1(\2)", found.replace(r"\log_e", r"\ln"))
    found = _LOG.sub(r"\\log_{\1} ", found)
    found = _IN_DEGREES.sub(r"\1(\\frac{\2\\pi}{180})", found)
    relation = _RELATION.match(found)
    found = _ROUGHLY.sub("=", found[relation.end() if relation else 0 :])
    turned = _TURNED.fullmatch(found)
    found = turned[1] if turned else found
    found = found.replace(",", "") if _INDIAN.fullmatch(found) else found
    mixed = _MIXED.fullmatch(found)
    found = rf"{mixed[1]}\frac{{{mixed[2]}}}{{{mixed[3]}}}" if mixed else found
    return _measured(found, letter)


def _out_of_text(match: re.Match[str]) -> str:
    return match[1] + (rf"\text{{{match[2]}}}" if match[2] else "")


def _slanted(match: re.Match[str]) -> str:
    glued = match.string[: match.start()][-1:].isalpha()
    return f" {match[1]}" if glued else match[1]


def _rooted(match: re.Match[str]) -> str:
    degree = "" if match[1] == "\u221a" else "[3]"
    return rf"\sqrt{degree}{{{match[2].strip('{}')}}}"


def _starred(match: re.Match[str]) -> str:
    return f"^{{{match[1]}}}" if match[1] else "^"


def _repeated(match: re.Match[str]) -> str:
    """A decimal with digits that repeat, as a fraction."""
    whole, first, again = match[1] or "0", match[2], match[3]
    ones = 10 ** len(first) * (10 ** len(again) - 1)
    return rf"\frac{{{int(whole + first + again) - int(whole + first)}}}{{{ones}}}"


def _measured(found: str, letter: str) -> Spelling:
    unit = _TEXT_UNIT.search(found)
    if unit:
        name = _unit_name(unit["text"])
        if not name or _is_unit(name):
            return Spelling(found[: unit.start()], _measure(name))
    unit = _PLAIN_UNIT.search(found)
    plain = unit and (unit["glued"] in _GLUED or unit["word"] in _WORDS_ALONE)
    if unit and plain and unit["word"] != letter:
        name = unit["glued"] or unit["word"]
        power = f"^{unit['power']}" if unit["power"] else ""
        return Spelling(found[: unit.start()], _measure(name + power))
    return Spelling(found)


def _unit_name(text: str) -> str:
    r"""A unit without its LaTeX: m/s^2 for \mathrm{m/s^{2}} and for \frac{\text{m}}{\text{s}^2}."""
    if text.startswith(r"\frac"):
        upper, _, lower = text.removeprefix(r"\frac").rpartition("}{\\")
        text = f"{upper}/{lower and chr(92) + lower}"
    text = _UNIT_DRESS.sub("", text).replace("~", " ").replace(r"\cdot", " ")
    text = re.sub(r"\\[,;:! ]", " ", text)
    return " ".join(_UNIT_POWER.sub(r"^\1", text).split())


def _is_unit(text: str) -> bool:
    words = re.findall("[a-z]+", text.lower())
    bare = re.sub(r"\^-?[1-4]", "", text)
    return 0 < len(words) <= 4 and not NOT_UNITS & {*words} and not re.search("[0-9]", bare)


def _measure(text: str) -> str:
    whole = re.sub(r"\s*/\s*", "/", text.strip(" .").lower())
    name, _, power = whole.partition("^")
    if " " in power or "/" in power:
        return whole.replace(" ", "")  # of several units
    name = name.strip(" .")
    squared = {"square ": "2", "sq ": "2", "cubic ": "3"}
    for word, exponent in squared.items():
        if name.startswith(word):
            name, power = name.removeprefix(word), exponent
    known = MEASURES.get(name) or MEASURES.get(name.removesuffix("s"), "")
    if not known and "/" in name:
        known = name
    return f"{known}^{power}" if known and power else known


_COMMA = re.compile(r"(?<![0-9.])([1-9][0-9]{0,2}(?:,[0-9]{3})+)(?![0-9])")
_ZEROS = re.compile(r"(?<![0-9.])0[0-9]")
_SEMICOLON = re.compile(r"(?<!\\);")
MAX_JOINS = 12
"""Most commas of one answer that are tried as separators of thousands."""
MAX_READINGS = 4


def readings(given: str, gold: str) -> Iterator[str]:
    """What the commas of an answer can mean where the gold has so many.

    A comma before three digits may separate thousands or elements. So many are taken to separate
    thousands as the answer has more commas than the gold; a number that begins with 0 is none, and
    decides. In brackets commas separate elements unless such a zero says otherwise. Where
    semicolons separate elements commas separate thousands. At most ``MAX_READINGS``.

    >>> [*readings("1,234", "1234")], [*readings("1,234", "1, 234")]
    (['1234'], ['1,234'])
    >>> [*readings("(1,000,2,000)", "(1000,2000)")]
    ['(1000,2000)']
    """
    if _SEMICOLON.search(given) and not _SEMICOLON.search(gold):
        given = _SEMICOLON.sub(", ", _COMMA.sub(lambda match: match[0].replace(",", ""), given))
    places = [
        found.start(1) + offset
        for found in _COMMA.finditer(given)
        for offset, sign in enumerate(found[1])
        if sign == ","
    ]
    needed = given.count(",") - gold.count(",")
    listed = given.startswith(("(", "[", r"\{")) and "," not in gold and not _ZEROS.search(given)
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
