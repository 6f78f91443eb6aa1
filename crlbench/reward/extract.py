"""Reading an answer out of a completion. Every function is pure and total on any string.

This file is part of the digest of every frozen verifier that uses it: a new kind of
extraction belongs in a file of its own.
"""

from __future__ import annotations

import re

_NUMBER = re.compile(r"(?<![0-9A-Za-z_.])-?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?(?![0-9A-Za-z_])")
_BRACKETED = re.compile(r"<([^<>]*)>")


def squeeze(text: str) -> str:
    """The text without outer whitespace and with single spaces inside."""
    return " ".join(text.split())


def last_line(text: str) -> str:
    """The last line that holds more than whitespace, squeezed; "" if there is none."""
    lines = [line for line in text.splitlines() if line.strip()]
    return squeeze(lines[-1]) if lines else ""


def numbers(text: str) -> list[str]:
    """All ASCII numbers of a text as written, without thousands commas.

    >>> numbers("1,098 apples, not 41.")
    ['1098', '41']
    """
    return [found.replace(",", "") for found in _NUMBER.findall(text)]


def bracketed(text: str) -> list[str]:
    """The contents of all ``<...>`` of a text, squeezed.

    >>> bracketed("so it is < 41 >.")
    ['41']
    """
    return [squeeze(found) for found in _BRACKETED.findall(text)]
