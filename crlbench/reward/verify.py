"""Verifiers: completion text and gold completion in, 1.0 or 0.0 out.

All are pure, total (any string, no exception) and see nothing but the completion. This file
is part of the digest of every frozen verifier that uses it: a new kind of verification
belongs in a file of its own.
"""

from __future__ import annotations

import re

from crlbench.reward.extract import bracketed, last_line, numbers, squeeze

MAX_BYTES = 64
"""Longest completion in which a number is looked for."""
MAX_NUMBERS = 4
"""Most numbers such a completion may hold, so that listing answers earns nothing."""

_WHOLE_NUMBER = re.compile(r"-?[0-9]+")
_SPACED_MARK = re.compile(r" ?([=:;<>]) ?")


def exact(text: str, answer: str) -> float:
    """1.0 iff the last non-empty line equals the answer, whitespace runs counting as one."""
    return float(last_line(text) == squeeze(answer))


def numeric(text: str, answer: str) -> float:
    """1.0 iff the completion gives the number of the answer in the answer's format.

    An answer "41": the last number of the completion counts, as in "The sum is 41.". An
    answer "<41>": the last ``<...>`` counts. Either way the completion holds at most
    ``MAX_BYTES`` bytes and ``MAX_NUMBERS`` numbers, and digits are compared as written
    ("041" is not "41"; "1,098" is "1098"). Any other answer is compared by :func:`exact`
    without regard to spaces.
    """
    gold = squeeze(answer)
    inner = bracketed(gold)
    if not _WHOLE_NUMBER.fullmatch(inner[0] if inner else gold):
        return float(last_line(text).replace(" ", "") == gold.replace(" ", ""))
    found = numbers(text) if len(text.encode("utf-8", "surrogatepass")) <= MAX_BYTES else []
    if not 0 < len(found) <= MAX_NUMBERS:
        return 0.0
    if not inner:
        return float(found[-1] == gold)
    return float(bracketed(text)[-1:] == inner)


def pairs(text: str, answer: str) -> float:
    """1.0 iff the last non-empty line lists the answer's pairs, exactly and in its order.

    Spaces around the separators do not count: "k = 7; a=3" is "k=7;a=3".
    """
    return float(_tight(last_line(text)) == _tight(squeeze(answer)))


def _tight(line: str) -> str:
    return _SPACED_MARK.sub(r"\1", line) if " " in line else line
