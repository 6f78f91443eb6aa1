"""Units that measure, by every name: one table for all verifiers."""

from __future__ import annotations

MEASURES = {
    name: measure
    for measure, names in {
        "mm": "millimeter millimetre", "cm": "centimeter centimetre", "m": "meter metre",
        "km": "kilometer kilometre", "mi": "mile", "in": "inch inche", "ft": "foot feet",
        "yd": "yard", "mg": "milligram", "g": "gram", "kg": "kilogram", "lb": "pound",
        "s": "sec second", "min": "minute", "h": "hr hour", "d": "day", "wk": "week", "mo": "month",
        "yr": "year", "km/h": "kph", "m/s": "", "mph": "", "l": "liter litre", "ml": "",
        "n": "newton", "j": "joule", "w": "watt", "v": "volt", "pa": "pascal", "hz": "hertz",
        "cent": "", "dollar": "usd", "euro": "eur", "degree": "deg", "rad": "radian",
    }.items()
    for name in (measure, *names.split())
}  # fmt: skip
"""Units that measure, by their names in the singular: two of them that differ are two answers."""
NOT_UNITS = frozenset(
    "or and not no never if unless except when otherwise to than more fewer less least most plus "
    "minus times hundred thousand million billion trillion dozen hundreds thousands millions "
    "billions dozens percent is are squared cubed factorial half halves third thirds quarter "
    "quarters tenths hundredths e i x y z".split()
)
"""Words, constants and unknowns that make a text behind a number something else than its unit."""
