"""Numbers and names as text, the same in the terminal, in files and on pages."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

NONE = "–"


PLACES = 2
"""Decimals of a number whose interval is not known."""
NARROW = 0.02
"""Width of an interval below which a third decimal says something."""


def places(low: float, high: float) -> int:
    """Decimals that an interval supports: this is the rule for all pages, reports and tables.

    Two, and three where the interval is narrower than ±0.01. Three also where two would show an
    end as 0 that is not 0: whether 0 lies inside decides verdicts.
    """
    hidden = any(0 < abs(end) < 0.5 * 10**-PLACES for end in (low, high))
    return PLACES + (high - low < NARROW or hidden)


def number(value: float | None, digits: int = PLACES, signed: bool = False) -> str:
    """Fixed decimals with a real minus sign; a dash for None; never a negative zero."""
    if value is None:
        return NONE
    text = f"{abs(value):.{digits}f}"
    if float(text) == 0.0:
        return text
    return ("−" if value < 0 else "+" if signed else "") + text


def percent(share: float | None, digits: int = 0) -> str:
    """A share of 1 in per cent; a dash for None."""
    return NONE if share is None else f"{number(100 * share, digits)}\u00a0%"


def grouped(value: float | None) -> str:
    """A whole number with its thousands apart; a dash for None."""
    if value is None:
        return NONE
    text = f"{abs(round(value)):,}"
    return text if value > -0.5 else f"−{text}"


def short(value: float | None) -> str:
    """About three significant digits; a dash for None."""
    if value is None:
        return NONE
    size = abs(value)
    if size == 0:
        return "0"
    if size < 0.001:
        return f"{value:.0e}".replace("-", "−")
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 else 4
    return number(value, digits)


SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def power(value: float | None) -> str:
    """A large count as ``1.24 × 10¹⁵``; a dash for None."""
    if value is None:
        return NONE
    if abs(value) < 1e6:
        return grouped(value)
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa.replace('-', '−')} × 10{str(int(exponent)).translate(SUPERSCRIPTS)}"


def memory(size: float | None) -> str:
    """A number of bytes as ``1.24 GB`` (10⁹ bytes); a dash for None."""
    if size is None:
        return NONE
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            scaled = size / factor
            return f"{number(scaled, 0 if scaled >= 100 else 1 if scaled >= 10 else 2)} {unit}"
    return f"{size:.0f} bytes"


def energy(joules: float | None) -> str:
    """Joules as ``1.24 kJ``; a dash for None."""
    if joules is None:
        return NONE
    unit, factor = ("MJ", 1e6) if joules >= 1e6 else ("kJ", 1e3) if joules >= 1e3 else ("J", 1.0)
    scaled = joules / factor
    return f"{number(scaled, 0 if scaled >= 100 else 1 if scaled >= 10 else 2)} {unit}"


def duration(seconds: float | None) -> str:
    """A stretch of time as ``42 s``, ``12 min 5 s`` or ``3 h 20 min``; a dash for None."""
    if seconds is None:
        return NONE
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min"


def count(n: int, noun: str, plural: str | None = None) -> str:
    """``1 seed``, ``5 seeds``."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def all_tie(n: int) -> str:
    """``Both tie``, ``All 3 tie``."""
    return "Both tie" if n == 2 else f"All {n} tie"


def sentence(text: str | None) -> str:
    """A clause with a capital and a full stop; empty for None."""
    if not text:
        return ""
    whole = text[0].upper() + text[1:]
    return whole if whole.endswith(".") else f"{whole}."


def visible(text: str, limit: int | None = None) -> str:
    """A stranger's text with its control and direction characters made visible, cut to ``limit``.

    Line feeds stay. Everything else that would be invisible or reorder its surroundings
    becomes ``\\uXXXX``.
    """
    if text.isprintable() and (limit is None or len(text) <= limit):
        return text
    hidden = len(text) - limit if limit is not None and len(text) > limit else 0
    note = f" … ({hidden:,} more characters)"
    if hidden <= len(note):  # a cut that says more than it hides
        hidden, note = 0, ""
    kept = text[:limit] if hidden else text
    escaped = "".join(c if c == "\n" or _printable(c) else f"\\u{ord(c):04x}" for c in kept)
    return escaped + note


def clean(text: str) -> str:
    """One line of a stranger's text: no control characters reach the terminal."""
    return visible(text).replace("\n", " ")


def one_line(text: object, most: int = 300) -> str:
    """What an error of a library says, on one line and not without an end."""
    return " ".join(str(text).split())[:most]


def line(cells: Sequence[str], widths: Sequence[int], left: Sequence[int] = (0,)) -> str:
    """A row of a plain table; the columns in ``left`` stand left, the others right."""
    placed = [
        cell.ljust(width) if i in left else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(placed).rstrip()


def _printable(character: str) -> bool:
    return unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def listed(names: Sequence[str], most: int = 6, separator: str = ", ") -> str:
    """The first few names, and how many more there are; empty for none."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + rest


def first_of(names: Sequence[str], most: int) -> str:
    """The first few names, and dots where there are more."""
    return ", ".join(names[:most]) + (" ..." if len(names) > most else "")
