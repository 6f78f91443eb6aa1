r"""The place of a mathematical answer and its LaTeX made plain: for the audit, written apart.

Texts are split and joined here, where :mod:`crlbench.reward.notation` has patterns. Commas stay:
what they mean is decided when elements are compared.
"""

from __future__ import annotations

from crlbench.reward.answers_audit import (
    boxed_pieces,
    breaks_off,
    closing,
    says_nothing,
    spoken,
    tagged_pieces,
)
from crlbench.reward.line_tokens import PARTS, RAISED, SEPARATORS, WIDE_SPACES
from crlbench.reward.measures import MEASURES
from crlbench.reward.numerals import SIGNS

LONGEST = 400
"""Characters of an answer that is evaluated."""
_DRAWN = {
    "\u00d7": "\\times ", "\u00b7": "\\cdot ", "\u00f7": "/", "\u2264": "\\le ", "\u2265": "\\ge ",
    "\u2260": "\\ne ", "\u221e": "\\infty ", "\u222a": "\\cup ", "\u2208": "\\in ",
    "\u03c0": "\\pi ", "\u00b0": "^\\circ ", "\u2248": "\\approx ", "\u00b1": "\\pm ",
}  # fmt: skip
_FONTS = tuple(
    f"\\{name}{{"
    for name in (
        "textbf textit textsf texttt textrm mathbf mathit mathsf mathtt boldsymbol bm emph"
        " underline"
    ).split()
)
_NOT_UNITS = {*"or and not if to than more less plus minus times hundred thousand million".split()}
_SHORT_UNITS = {"cm", "mm", "km", "kg", "mg", "ml", "km/h", "m/s", "mph"}
_LONE_UNITS = _SHORT_UNITS | {
    *"m g s h min minute minutes hour hours day days degrees dollars cents units feet".split()
}


def place_of(text: str, gold: str) -> str | None:
    """What stands where the gold's format asks for the answer; None where nothing does."""
    text = spoken(text)
    if gold.startswith("\\boxed"):
        pieces = [] if breaks_off(text) else boxed_pieces(text)
    elif gold.startswith("<answer>"):
        pieces = tagged_pieces(text)
    else:
        return _line(text, gold.startswith("Answer:"))
    return next((one for _, one in reversed(pieces) if one and not says_nothing(one)), None)


def _line(text: str, labelled: bool) -> str | None:
    lines = [line.strip() for line in text.splitlines() if line.strip()][-2:]
    if not lines or not labelled:
        return lines[-1] if lines else None
    label, found, rest = lines[-1].partition(":")
    if found and _is_label(label):
        return rest.strip("* ")
    label, found, rest = lines[0].partition(":")
    return lines[-1] if found and _is_label(label) and not rest.strip("* ") else None


def _is_label(label: str) -> bool:
    words = label.strip("#*_ ").lower().split()
    return words[-1:] == ["answer"] and {*words[:-1]} <= {"the", "final"}


def plain_answer(found: str) -> tuple[str, str]:
    """An answer without its dress, and its unit; not in ASCII where its signs are unknown."""
    found = _undressed(found.strip())
    if found.startswith("\\boxed{") and closing(found[7:]) == len(found) - 8:
        found = _undressed(found[7:-1])
    if found.startswith("\\text{") and closing(found[6:]) == len(found) - 7:
        found = found[6:-1].strip() if found[6:].strip()[:1].isdigit() else found
    for separator in (*SEPARATORS, *WIDE_SPACES):
        found = _ungrouped(found, separator)
    found = _spelled(found)
    for font in _FONTS:
        found = _without_font(found, font)
    for space in ("\\,", "\\;", "\\:", "\\!", "\\ ", "~", "\\quad", "\\left", "\\right"):
        found = found.replace(space, " ")
    for written in ("\\displaystyle", "\\large"):
        found = found.replace(written, " ")
    found = found.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    found = " ".join(found.split())
    found = _apart(_without_relation(found))
    return _measured(found)


def _undressed(found: str) -> str:
    dollar = found.replace("\\$", " ").replace("$", "").replace("**", "").replace("`", "")
    for bracket in ("\\(", "\\)", "\\[", "\\]"):
        if dollar.startswith(bracket) or dollar.endswith(bracket):
            dollar = dollar.replace(bracket, "")
    return dollar.strip().rstrip(".").strip()


def _ungrouped(found: str, separator: str) -> str:
    """The text with one separator of thousands removed, where all groups have three digits."""
    separator = "\\thinspace " if separator == "\\thinspace " else separator
    first, *others = found.split(separator)
    merged = first
    inside = False
    for number, piece in enumerate(others):
        size = _digits(merged[::-1])
        head = merged[len(merged) - size : len(merged) - size + 1]
        before = merged[: len(merged) - size][-1:]
        opens = inside or (0 < size <= 3 and head != "0" and before not in (".", ","))
        whole = _digits(piece) == len(piece)
        last = number + 1 == len(others)
        ends = not whole or last or _digits(others[number + 1]) in (0, 3)
        joins = opens and _digits(piece) == 3 and ends
        merged = merged + piece if joins else merged + separator + piece
        inside = joins and whole
    return merged


def _digits(text: str) -> int:
    """How many digits a text begins with."""
    return next((i for i, one in enumerate(text) if not "0" <= one <= "9"), len(text))


def _spelled(found: str) -> str:
    """The text with signs beyond ASCII as LaTeX."""
    if found.isascii():
        return found
    found = found.translate(SIGNS)
    pieces: list[str] = []
    for sign in found:
        raised = RAISED.find(sign)
        if raised >= 0 or sign == "\u207b":
            digit = str(raised) if raised >= 0 else "-"
            joins = pieces and pieces[-1].startswith("^{")
            pieces.append(pieces.pop()[:-1] + digit + "}" if joins else f"^{{{digit}}}")
        elif sign in PARTS:
            upper, lower = PARTS[sign]
            pieces.append(f"\\frac{{{upper}}}{{{lower}}}")
        elif sign == "\u221a":
            pieces.append("\\sqrt ")
        else:
            pieces.append(_DRAWN.get(sign, sign))
    return "".join(pieces)


def _without_font(found: str, font: str) -> str:
    while font in found:
        before, _, rest = found.partition(font)
        end = closing(rest)
        found = before + rest[:end] + rest[end + 1 :] if end >= 0 else before + rest
    return found


def _without_relation(found: str) -> str:
    for written in ("\\approx", "\\simeq", "\\doteq"):
        found = found.replace(written, "=")
    return found.removeprefix("=").strip()


def _apart(found: str) -> str:
    """Numbers apart by plain spaces, where they make one: 10 000, and 1 1/2."""
    words = found.split(" ")
    digits = [word.isdigit() for word in words]
    if len(words) > 1 and all(digits) and len(words[0]) <= 3 and words[0][0] != "0":
        return "".join(words) if all(len(word) == 3 for word in words[1:]) else found
    upper, bar, lower = words[-1].partition("/")
    if len(words) == 2 and digits[0] and bar and upper.isdigit() and lower.isdigit():
        return f"{words[0]}\\frac{{{upper}}}{{{lower}}}"
    return found


def _measured(found: str) -> tuple[str, str]:
    """The text without a unit at its end, and the unit that measures, with its exponent."""
    bare, power = found, ""
    head, caret, tail = found.rpartition("^")
    exponent = tail.strip("{} ").removeprefix("-")
    if caret and exponent.isdigit() and len(exponent) == 1 and head and not head[-1].isdigit():
        bare, power = head.rstrip(), tail.strip("{} ")
    for command in ("\\text{", "\\mathrm{", "\\operatorname{", "\\mbox{"):
        before, opens, name = bare.rpartition(command)
        if opens and name.endswith("}") and "}" not in name[:-1] and before.strip():
            words = {*name[:-1].lower().replace("~", " ").split()}
            if not words & _NOT_UNITS and not any(one.isdigit() for one in name):
                return before.strip(), _unit(name[:-1], power)
            return found, ""
    before, _, name = bare.rpartition(" ")
    if name in _LONE_UNITS and before[-1:].isdigit():
        return before, _unit(name, power)
    cut = len(bare) - next((i for i, one in enumerate(bare[::-1]) if one.isdigit()), len(bare))
    if bare[cut:] in _SHORT_UNITS and cut:
        return bare[:cut], _unit(bare[cut:], power)
    return found, ""


def _unit(name: str, power: str) -> str:
    words = name.replace("~", " ").strip(" .").lower()
    if words.startswith(("square ", "cubic ")):
        power = "2" if words[0] == "s" else "3"
        words = words.partition(" ")[2]
    known = MEASURES.get(words, MEASURES.get(words.rstrip("s"), ""))
    return known and known + power
