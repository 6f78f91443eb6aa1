r"""One table of signs, and how digits are grouped: for all verifiers of numbers and mathematics.

Digits are ASCII's: the prompts are English, and digits of other scripts disguise answers.
"""

from __future__ import annotations

import re

SIGNS = str.maketrans(
    {
        **dict.fromkeys("\u2212\ufe63\uff0d\u2010\u2011\u2012\u2013\u2014\u2796", "-"),
        **dict.fromkeys("\uff0b\ufe62\u2795", "+"),
        **dict.fromkeys("\u2715\u2716\u2a2f", "\u00d7"),
        "\u2797": "\u00f7",
        **dict.fromkeys("\u2044\u2215\uff0f", "/"),
        **dict.fromkeys("\u22c5\u2219", "\u00b7"),
        **dict.fromkeys("\u2217\uff0a", "*"),
        **dict.fromkeys("\u2248\u2243\u2245", "\u2248"),
        "\uff1d": "=",
        "\uff0c": ",",
        "\uff0e": ".",
        "\uff05": "%",
        "\uff04": "$",
        "\u2019": "'",
        "\ufe0f": None,
    }
)
"""Signs that people and models write, and the one that is meant. A dash is a minus where an ASCII
hyphen in its place would be one; a sign that only asks for colours is none."""
VULGAR = {
    sign: (int(upper), int(lower))
    for sign, (upper, _, lower) in {
        "\u00bc": "1/4", "\u00bd": "1/2", "\u00be": "3/4", "\u2150": "1/7", "\u2151": "1/9",
        "\u2153": "1/3", "\u2154": "2/3", "\u2155": "1/5", "\u2156": "2/5", "\u2157": "3/5",
        "\u2158": "4/5", "\u2159": "1/6", "\u215a": "5/6", "\u215b": "1/8", "\u215c": "3/8",
        "\u215d": "5/8", "\u215e": "7/8",
    }.items()
}  # fmt: skip
"""Fractions of one character."""
CURRENCIES = ("USD", "EUR", "GBP", "INR", "CAD", "AUD", "CHF", "JPY", "CNY")
"""Currencies by their codes, which stand before or behind a number."""
CURRENCY = "$\u20ac\u00a3\u00a5\u20b9"
_SEPARATOR = (
    r"\\[ ,;:!]|\{,\}|\{\\,\}|,\\!|\\thinspace |~|'|[\u00a0\u2007\u2009\u200a\u202f\u2008\u205f]"
)
_GROUPS = re.compile(
    rf"(?<![\w.,'])[1-9][0-9]{{0,2}}(?P<by>{_SEPARATOR})[0-9]{{3}}(?:(?P=by)[0-9]{{3}})*"
    rf"(?![0-9]|(?P=by)[0-9])"
)
_INDIAN = re.compile(r"(?<![\w.,])[1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3}(?![0-9]|,[0-9])")
_POINTS = re.compile(
    r"(?<![\w.,])[1-9][0-9]{0,2}(?:(?:\.[0-9]{3}){2,}(?![0-9]|[.,][0-9])"
    r"|(?:\.[0-9]{3})+,[0-9]{1,2}(?![0-9]|[.,][0-9]))"
)
_CONTINENTAL = re.compile(
    r"(?<![\w.,])[1-9][0-9]{0,2}([\u00a0\u2009\u202f])[0-9]{3}(?:\1[0-9]{3})*,[0-9]{1,2}"
    r"(?![0-9]|[.,][0-9])"
)
_SPACED = re.compile(
    rf"(\s*[-+]?[{CURRENCY}]?[1-9][0-9]{{0,2}})((?: [0-9]{{3}})+)(\.[0-9]+)?(?=[^0-9]*\Z)"
)


def join_groups(text: str) -> str:
    r"""The text with grouped digits joined, where the separator can only group.

    Those are LaTeX's spaces and braces, apostrophes, and spaces that do not break; always one
    kind of separator, and groups of exactly three digits. Commas and plain spaces separate other
    things too: they stay.

    >>> join_groups(r"1\,234 and 1{,}000 and 12\,34")
    '1234 and 1000 and 12\\,34'
    """
    return _GROUPS.sub(lambda match: re.sub("[^0-9]|thinspace", "", match[0]), text)


def join_foreign(text: str) -> str:
    """The text with Indian (1,00,000) and continental groups (1.234.567, 1.234,50) joined.

    They are known by what no English number looks like. Groups apart by spaces that do not break
    may have a decimal comma too.
    """
    text = _CONTINENTAL.sub(
        lambda match: match[0].replace(match[1], "").replace(",", "."), text
    )
    text = _INDIAN.sub(lambda match: match[0].replace(",", ""), text)
    return _POINTS.sub(lambda match: match[0].replace(".", "").replace(",", "."), text)


def join_spaced(text: str) -> str:
    """A text of one answer, with the plain spaces between its thousands removed.

    >>> join_spaced("$10 000.50"), join_spaced("4 5")
    ('$10000.50', '4 5')
    """
    match = _SPACED.match(text)
    if match is None:
        return text
    joined = match[1] + match[2].replace(" ", "") + (match[3] or "")
    return joined + text[match.end() :]
