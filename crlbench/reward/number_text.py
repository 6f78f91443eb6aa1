r"""Text around numbers, made plain: LaTeX, Markdown, HTML and units become what they say.

One line in, one line out. What is a number in it, and which one concludes, is decided by
:mod:`crlbench.reward.final_number`.
"""

from __future__ import annotations

import re

from crlbench.reward.numerals import (
    CURRENCIES,
    CURRENCY,
    SIGNS,
    VULGAR,
    join_foreign,
    join_groups,
)

_DRESS = re.compile(
    r"\\(?:text(?:bf|it|sf|tt|rm|normal)?|math(?:rm|bf|it|sf|tt)|boldsymbol|operatorname|bm|mbox"
    r"|underline|emph)\s?\{([^{}]*)\}"
)
_FRACTION = re.compile(
    r"(?:(?P<whole>[0-9])\s?)?\\[dt]?frac\s?(?:\{([^{}]*)\}\s?\{([^{}]*)\}|([0-9])([0-9]))"
)
_LATEX = {
    r"\$": "$", r"\%": "%", r"\times": "\u00d7", r"\cdot": "\u00b7", r"\div": "\u00f7",
    r"\pm": "\u00b1", r"\approx": "\u2248", r"\simeq": "\u2248", r"\le": "\u2264",
    r"\leq": "\u2264", r"\lt": "<", r"\ge": "\u2265", r"\geq": "\u2265", r"\gt": ">",
    r"\ne": "\u2260", r"\neq": "\u2260", r"\to": "\u2192", r"\rightarrow": "\u2192",
    r"\circ": "\u00b0", r"\degree": "\u00b0", r"\Rightarrow": "\u2192", r"\implies": "\u2192",
}  # fmt: skip
_SPACES = {
    "\\" + name
    for name in (
        "boxed fbox left right displaystyle textstyle quad qquad small normalsize large Large LARGE"
        " huge Huge bf rm it therefore because checkmark"
    ).split()
}
_COLOUR = re.compile(r"\\(?:text|math)?color\s?\{[A-Za-z]{1,20}\}")
_COMMAND = re.compile(r"\\(?:[A-Za-z]+|.)")
_SUPERSCRIPT = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u2079\u207b]+")
_RAISED_TAG = re.compile(r"<sup>\s?(-?[0-9]{1,3})\s?</sup>", re.IGNORECASE)
_TAG = re.compile(r"</?[A-Za-z|][^<>\n]{0,40}>")
_EMPHASIS = re.compile(
    r"(?<![\w*])(\*{1,3})(?=[^\s*])([^*\n]{1,200}?)(?<=\S)\1(?![\w*])"
    r"|(?<!\w)(_{1,3})(?=[^\s_])([^_\n]{1,200}?)(?<=\S)\3(?!\w)"
)
_POWER = re.compile(r"(?<=[A-Za-z\u00b0])\.?\s?(?:\^|\*\*)\s?[-+]?[0-9]{1,3}(?![0-9]|\.[0-9])")
"""An exponent of a letter: of a unit, or of a variable, and in neither case an answer."""
_RUPEES = re.compile(r"\bRs\.\s?(?=[0-9])", re.IGNORECASE)
_CODE = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(CURRENCIES)})\s?(?=[-+]?\.?[0-9])")
_SCIENTIFIC = re.compile(
    r"(?<![\w.,/])([1-9](?:\.[0-9]{1,20})?)\s?[\u00d7\u00b7*x]\s?10\s?(?:\^|\*\*)\s?\(?"
    r"([-+]?[0-9]{1,3})\)?(?![0-9]|\.[0-9])"
)
_APART = re.compile(rf"([=\u2248\u2192(\[]\s*|\$)-\s+(?=[{CURRENCY}]?\.?[0-9])")
"""A minus apart from its number, where no number before it could be what it takes from."""
_BEFORE_BRACKET = re.compile(rf"(?<![\w)\]])-\(\s?([{CURRENCY}]?[0-9][0-9.,]{{0,60}})\s?\)")
_NEGATIVE = re.compile(
    r"(?:(?<![\w-])negative"
    r"|(?P<lead>(?<=[=:(\u2248\u2192])\s*|\b(?:is|was|be|equals|of|to|by)\s+|\A\s*)minus)"
    rf"\s+(?=[{CURRENCY}]?\.?[0-9])",
    re.IGNORECASE,
)
"""A minus in a word, where it could not join two numbers."""
_LABEL = re.compile(r"[^0-9:=\u2248]{0,60}(?:[:=\u2248]|\bis\b|\bare\b)")
_NUMBERED_LABEL = re.compile(r"[^:=\u2248]{0,60}?(?:[:=\u2248]|\b(?:is|are)\b)")
_ANSWER = re.compile(
    r"[\W_]*(?:(?:the|so|thus|hence|therefore|final|numerical|correct|overall|grand|answer|result"
    r"|total|conclusion|is|are)\b[\W_]*)+",
    re.IGNORECASE,
)
"""A label of the answer of the whole, and of no part of it."""
_PART = re.compile(
    r"\b(?:given|known|data|facts?|information|find|step|part|case|first|then|next|note|check"
    r"|verification|calculation|formula|plan|example|problem|question|let|assum\w*)\b",
    re.IGNORECASE,
)
"""A label of what is given or of a step."""
_ENUMERATOR = re.compile(
    r"(?:[0-9]{1,3}[.):]\s*|[0-9]{1,2}(?:\.[0-9]{1,2}){1,3}[.):]?\s+(?=[A-Z][a-z]{2}))(?=[A-Za-z])"
)
_SYMBOLS = re.compile("[\u2600-\u27bf\U0001f000-\U0001faff\\s]+")
_STARTS = re.compile(
    rf"(?:\(?[a-z]\)\s*)?"
    rf"(?:(?:the|final|answer|total|result|about|roughly|around|usd|eur|gbp|inr|us)\b\s*)*"
    rf"[-+=~\u2248(\s]*[{CURRENCY}]?[-+]?\.?[0-9]",
    re.IGNORECASE,
)
MOST_WORDS = 2
"""Words of a unit, as in "square feet"; more of them tell a story."""
_SECOND = re.compile(r"[0-9]\s[^0-9=]*[A-Za-z]{2}[^0-9=]*\s[0-9]")
"""A second number behind words, as in "3 boxes of 12"."""
_FILLING = frozenset("per is are answer final total result usd eur gbp inr".split())
HEADING = re.compile(r"\s{0,3}#{1,6}\s+(?P<text>.*)")
"""A Markdown heading, or the marker ``#### 18``."""


def plain(line: str) -> str:
    r"""The line without what only dresses its numbers.

    >>> plain(r"**\boxed{1{,}200\text{ cm}^2}**").strip()
    '1200 cm'
    """
    if not line.isascii():
        line = line.translate(SIGNS)
    line = join_groups(join_foreign(line))
    if "\\" in line or "{" in line:
        line = _without_latex(line)
    if not line.isascii():
        line = _SUPERSCRIPT.sub(_power, line)
        for sign, (upper, lower) in VULGAR.items():
            if sign in line:
                fraction = f"{upper}/{lower}"
                line = re.sub(rf"(?<=[0-9]){sign}", f" {fraction}", line).replace(sign, fraction)
    if "<" in line:
        line = _TAG.sub(" ", _RAISED_TAG.sub(r"^\1", line))
    if "*" in line or "_" in line:
        line = _EMPHASIS.sub(lambda match: match[2] or match[4], line)
    if "^" in line or "**" in line:
        line = _SCIENTIFIC.sub(r"\1e\2", _POWER.sub("", line))
    line = _CODE.sub("$", _RUPEES.sub("", line))
    line = _NEGATIVE.sub(lambda match: f"{match['lead'] or ''}-", line)
    if "-" not in line:
        return line
    return _BEFORE_BRACKET.sub(r"-\1", _APART.sub(r"\1-", line))


def _without_latex(line: str) -> str:
    line = _COLOUR.sub("", line)
    for _ in range(2):
        line = _DRESS.sub(r"\1", line)
    line = _FRACTION.sub(_quotient, line)
    line = _COMMAND.sub(_meaning, line)
    return line.replace("^{\u00b0}", "\u00b0").replace("^\u00b0", "\u00b0").translate(_BRACES)


_BRACES = str.maketrans("~", " ", "{}")


def _quotient(match: re.Match[str]) -> str:
    upper, lower = match[2] or match[4] or "", match[3] or match[5] or ""
    return f"{match['whole']} {upper}/{lower}" if match["whole"] else f"{upper}/{lower}"


def _meaning(match: re.Match[str]) -> str:
    command = match[0]
    if command in _SPACES or command[1] in " ,;:!()[]\\":
        return " "
    return _LATEX.get(command, command)


def _power(match: re.Match[str]) -> str:
    digits = "".join("-" if sign == "\u207b" else _DIGITS[sign] for sign in match[0])
    return f"^{digits}"


_DIGITS = dict(
    zip("\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079", "0123456789", strict=True)
)


def heading_number(heading: str, followed: bool, counted: bool, alone: bool = True) -> str:
    """What a heading says as an answer; "" where it is the heading of a part.

    It says one that begins with a number, also behind "Answer:" or another label without
    digits. "1. Add" over further text (``followed``) begins with its own number, and "3 boxes of
    a kind" over further numbers (``counted``) with more than a unit behind it. Over further
    numbers a label of what is given does not count, nor, where other headings have numbers too
    (not ``alone``), any label but that of the answer. With nothing below it one with digits
    counts too ("Total of 3 pens: 18").

    >>> heading_number("Answer: **18**", True, True), heading_number("Step 1", True, True)
    (' 18', '')
    """
    text = plain(heading).strip()
    symbols = _SYMBOLS.match(text)
    text = text[symbols.end() :] if symbols else text
    part = _ENUMERATOR.match(text)
    if part and followed:
        return ""
    if part and heading_number(text[part.end() :], False, False):
        text = text[part.end() :]
    if _STARTS.match(text):
        words = {*re.findall("[a-z]+", text.lower())} - _FILLING
        story = len(words) > MOST_WORDS or _SECOND.search(text)
        return "" if counted and story else text
    label = _LABEL.match(text) or (None if followed else _NUMBERED_LABEL.match(text))
    rest = text[label.end() :] if label else ""
    if not label or not _STARTS.match(rest):
        return ""
    whole = _ANSWER.fullmatch(label[0]) or (alone and not _PART.search(label[0]))
    return rest if whole or not counted else ""
