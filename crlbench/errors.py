"""Errors that a person can act on, each with its documented exit code.

Every error raised for bad input, a bad environment or an interrupted run derives from
:class:`CrlbenchError`. The command line prints its message without a traceback and
leaves with its ``exit_code``; anything else is an internal error (exit code 1).
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Collection, Iterable

OK = 0
INTERNAL = 1

LONGEST = 8_000
"""Most characters of a message."""
_JOINERS = "\u200c\u200d"
"""Characters without a width that some scripts and emoji need."""


def printable(text: str) -> str:
    """A text as a terminal may show it: what moves the cursor or turns lines around is escaped.

    >>> printable("a\\x1b[2J\\u202eb")
    'a\\\\x1b[2J\\\\u202eb'
    """
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(map(_escape, text))


def _escape(character: str) -> str:
    if character.isprintable() or character in "\n\t" or character in _JOINERS:
        return character
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    return character.encode("unicode_escape").decode() if hidden else character


class CrlbenchError(Exception):
    """Base class: one message for a person (what, where, allowed values, what to do).

    It may quote what a stranger wrote, so that it is made printable, and cut where it has no end.
    """

    exit_code = INTERNAL

    def __init__(self, message: object = "") -> None:
        text = printable(str(message))
        if len(text) > LONGEST:
            text = f"{text[: LONGEST // 2]} [...] {text[-LONGEST // 4 :]}"
        super().__init__(text)


class UsageError(CrlbenchError):
    """The command was called wrongly: unknown name, impossible value (exit 2)."""

    exit_code = 2


class ValidationError(CrlbenchError):
    """A file is malformed, was changed, or breaks a rule (exit 3)."""

    exit_code = 3


class NotComparable(CrlbenchError):
    """Results were made under different conditions (exit 4)."""

    exit_code = 4


class Mismatch(CrlbenchError):
    """A result is not what its conditions, or a repetition, make of it (exit 5)."""

    exit_code = 5


class EnvironmentUnfit(CrlbenchError):
    """This machine lacks something: space, permission, memory, an extra (exit 6)."""

    exit_code = 6


class RunFailed(CrlbenchError):
    """Everything finished, and at least one run failed the stability rules (exit 7)."""

    exit_code = 7


class Incomplete(CrlbenchError):
    """Some cells are missing; the same command continues (exit 8)."""

    exit_code = 8


class Interrupted(CrlbenchError):
    """Stopped by a signal; the same command continues (exit 130)."""

    exit_code = 130


_LONGEST_NAME = 200
"""Comparing two names takes the product of their lengths."""
MOST_NAMES = 12
"""A message lists no more names than this where a command lists them."""


def unknown_name(
    kind: str, name: str, known: Iterable[str], hint: str = "", listing: str = ""
) -> UsageError:
    """The error for a name that does not exist, with the nearest names first.

    Args:
        listing: the command that lists the names. It stands in for more than a few of them.

    >>> print(unknown_name("model", "tiny-lama", ["tiny-llama", "tiny-qwen2"]))
    unknown model 'tiny-lama'. Did you mean tiny-llama? Known: tiny-llama, tiny-qwen2.
    """
    names = sorted(known)
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}..."
    comparable = [other for other in names if len(other) <= _LONGEST_NAME]
    near = difflib.get_close_matches(name, comparable, n=3, cutoff=0.5)
    message = f"unknown {kind} '{name}'."
    if near:
        message += f" Did you mean {' or '.join(near)}?"
    if listing and len(names) > MOST_NAMES:
        message += f"\nAll {len(names)} names: {listing}"
        return UsageError(message + (f"\n{hint}" if hint else ""))
    if names:
        message += f" Known: {', '.join(names)}."
    return UsageError(message + (f" {hint}" if hint else ""))


def require_known(kind: str, name: str, known: Collection[str]) -> None:
    """Refuse a name that does not exist.

    Raises:
        UsageError: with the nearest names.
    """
    if name not in known:
        raise unknown_name(kind, name, known)
