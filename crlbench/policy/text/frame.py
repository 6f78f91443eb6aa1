"""The frame of a prompt: what a chat template writes around messages, whatever these say."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crlbench.errors import ValidationError

Message = Mapping[str, Any]
"""``role`` and ``content``, both texts: a dict, or a row's typed one."""
Draw = Callable[[list[Message]], str]
"""Messages to text: a chat template."""
Shape = tuple[tuple[str, str | None], ...]
"""Role of every message; beside it the content where that is blank, which a template may ask."""

RULE = "rule frame"
"""How messages name what this module asks for."""
ROOM = "\n \t"
"""White space before a marker, and turned round behind it; it shows what a template trims."""
TRIMS: tuple[Callable[[str], str], ...] = (
    str,
    str.strip,
    str.lstrip,
    str.rstrip,
    lambda text: text.strip("\n"),
    lambda text: text.lstrip("\n"),
    lambda text: text.rstrip("\n"),
)
"""What templates do to a message before they write it."""
SHORT = 4
"""Characters below which a question may stand in a template by chance."""
LONG = 12
"""The same of letters and digits alone, without the spaces and signs between them."""
SHOWN = 60
"""Characters of a prompt in an error message."""


class LeftOut(Exception):
    """A template does not write one of the messages."""


@dataclass(frozen=True)
class Frame:
    """A template's text around messages of one shape."""

    pieces: tuple[str, ...]
    """Before, between and behind the messages; one more than ``slots``."""
    slots: tuple[int, ...]
    """Place in the prompt -> index of the message that stands there."""
    trims: tuple[Callable[[str], str], ...]
    """What the template does to the message of each slot."""

    def text(self, contents: Sequence[str]) -> str:
        """The prompt that holds these contents in this frame."""
        parts = [self.pieces[0]]
        for slot, trim, piece in zip(self.slots, self.trims, self.pieces[1:], strict=True):
            parts += [trim(contents[slot]), piece]
        return "".join(parts)

    def check(self, text: str, contents: Sequence[str], where: str) -> None:
        """Refuse a prompt whose text around the contents is not this frame.

        Args:
            text: the prompt as the template wrote it.
            contents: of the messages.
            where: names the template in the error.

        Raises:
            ValidationError: the frame depends on a content, or it holds the question itself.
        """
        expected = self.text(contents)
        if text != expected:
            raise ValidationError(f"{RULE}: {where}: {_difference(text, expected, contents[-1])}")
        question = contents[-1].strip()
        bare = _bare(question)
        if question.isalpha():
            return
        if len(question) >= SHORT:
            self._leave_out(question, str, where)
        if len(bare) >= (LONG if bare.isalnum() else SHORT):
            self._leave_out(bare, _bare, where)

    def _leave_out(self, question: str, form: Callable[[str], str], where: str) -> None:
        """Refuse a question that stands in the text around the contents, in a form of both."""
        piece = next((p for p in map(form, self.pieces) if question in p), None)
        if piece is not None:
            place = max(piece.index(question) - SHOWN // 4, 0)
            raise ValidationError(
                f"{RULE}: {where}: it holds a question of the task: the text around "
                f"{question!r:.{SHOWN}} reads {piece[place : place + SHOWN]!r}. A template "
                "may write nothing of what is asked or answered: leave it out."
            )


def _bare(text: str) -> str:
    """A text without white space, case and the signs that end a question: 23 + 6 = is 23+6."""
    return "".join(text.split()).casefold().rstrip("=?.:!")


def shape_of(messages: Sequence[Message]) -> Shape:
    """What a frame may depend on: the roles, and which messages are blank."""
    return tuple((m["role"], None if m["content"].strip() else m["content"]) for m in messages)


def measure(draw: Draw, shape: Shape, where: str) -> Frame:
    """The frame that a template puts around messages of a shape, read off markers.

    Raises:
        LeftOut: a message is not in the prompt.
        ValidationError: two sets of markers get different frames.
        Exception: what the template raises.
    """
    first, second = (_marks(shape, letter) for letter in "qz")
    text = draw(_filled(shape, first))
    pieces, slots = _split(text, first)
    missing = {i for i, mark in enumerate(first) if mark} - {*slots}
    if missing:
        raise LeftOut
    bare = Frame(pieces, slots, (str,) * len(slots))
    bare.check(draw(_filled(shape, second)), second, where)
    wide = [f"{ROOM}{mark}{ROOM[::-1]}" if mark else "" for mark in first]
    return _trimmed(bare, draw(_filled(shape, wide)), wide)


def _marks(shape: Shape, letter: str) -> list[str]:
    """A word for every message that is not blank; no word is a part of another."""
    return [f"{letter}x{i}{letter}w" if blank is None else "" for i, (_, blank) in enumerate(shape)]


def _filled(shape: Shape, contents: Sequence[str]) -> list[Message]:
    return [
        {"role": role, "content": content if blank is None else blank}
        for (role, blank), content in zip(shape, contents, strict=True)
    ]


def _split(text: str, marks: Sequence[str]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    indices = {mark: i for i, mark in enumerate(marks) if mark}
    if not indices:
        return (text,), ()
    parts = re.split(f"({'|'.join(map(re.escape, indices))})", text)
    return tuple(parts[::2]), tuple(indices[mark] for mark in parts[1::2])


def _trimmed(bare: Frame, text: str, wide: Sequence[str]) -> Frame:
    """The frame with what it does to white space at the ends of each message."""
    trims = []
    rest = text.removeprefix(bare.pieces[0])
    for slot, piece in zip(bare.slots, bare.pieces[1:], strict=True):
        fits = [trim for trim in TRIMS if rest.startswith(trim(wide[slot]) + piece)]
        # The longest one: a trimmed end and a frame that begins with white space look alike.
        trim = max(fits, key=lambda trim: len(trim(wide[slot])), default=str)
        rest = rest.removeprefix(trim(wide[slot]) + piece)
        trims.append(trim)
    return Frame(bare.pieces, bare.slots, tuple(trims))


def _difference(text: str, expected: str, question: str) -> str:
    """What a prompt has where its frame has something else."""
    start = next(
        (i for i, pair in enumerate(zip(text, expected, strict=False)) if pair[0] != pair[1]),
        min(len(text), len(expected)),
    )
    end = 0
    while end < min(len(text), len(expected)) - start and text[-1 - end] == expected[-1 - end]:
        end += 1
    here, there = text[start : len(text) - end], expected[start : len(expected) - end]
    return (
        f"its text around a message depends on what the message says: for the question "
        f"{question!r:.{SHOWN}} it writes {here!r:.{SHOWN}} where other questions get "
        f"{there!r:.{SHOWN}}. Write the same text around every message."
    )
