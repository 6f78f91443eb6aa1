r"""Which text of a reply counts as its answer: decided here, once, for all extractors.

1. A thought is no answer. Marks of thoughts are those of ``OPENING`` and ``CLOSING``, in either
   case, wherever they stand, also inside ``<answer>``. Any closing mark ends a thought, and an
   opening mark inside a thought is part of it.
2. Where a thought ends that never began (the prompt opened it), all before it was the thought.
3. A reply that ends inside a thought has no answer at all.
4. Of markers (``\boxed{18}``, ``<answer>18</answer>``, ``#### 18``) the last one with content
   counts. Content is more than spaces, dots, or the words with which prompts show a marker.

Every function is pure, total on any string, and linear in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

NAMES = (
    "think|thinking|thoughts?|thought_process|reasoning|rationale|analysis|reflection|scratchpad"
    "|inner_(?:monologue|thoughts?)|cot|seed:think"
)
"""Names of tags around thoughts, in angle brackets; ``[THINK]`` stands in square ones."""
_REST = r"(?:\s[^<>\n]{0,80})?\|?>"
"""Attributes, and the bar of special tokens."""
OPENING = (
    rf"<\|?(?:{NAMES}){_REST}|\[think\]|\u25c1think\u25b7|<\|begin_of_thought\|>|<\|start_thinking\|>"
    r"|<\|channel\|>(?!\s*final)"
)
CLOSING = (
    rf"<\|?/\s{{0,3}}(?:{NAMES}){_REST}|\[/think\]|\u25c1/think\u25b7|<\|end_of_thought\|>|<\|end_thinking\|>"
    r"|<\|channel\|>\s*final(?:<\|message\|>)?|assistantfinal"
)
"""The last is what is left of a channel's mark where special tokens are dropped."""

_THOUGHT = re.compile(rf"(?P<opens>{OPENING})|(?P<closes>{CLOSING})", re.IGNORECASE)
_ENDING = re.compile(
    r"(?:\s|<\|(?:im_end|eot_id|endoftext|end|return|end_of_solution)\|>|</s>|<end_of_turn>)+\Z"
)
"""Tokens that end a turn, which some decoders leave in."""
_BRACE = re.compile(r"(?P<box>\\(?:boxed|fbox)\s{0,3}\{)|\\.|[{}]", re.DOTALL)
_TAG = re.compile(r"<answer>([^<]*(?:<(?!/?answer>)[^<]*)*)</answer>", re.IGNORECASE)
_NOTHING = re.compile(
    r"(?:[\s._?~\u2026]|\\(?:ldots|dots|cdots|quad|square|[ ,;:!])|\\text\{\s*\}|\$"
    r"|\b(?:and|or|the|your|final|answer|here|number)\b)*",
    re.IGNORECASE,
)
ENDING_CHARS = 200
"""How far from its end a reply is searched for tokens that end a turn."""


def outside_thoughts(text: str) -> str:
    """The reply without its thoughts; "" where it ends inside one.

    >>> outside_thoughts("<think>17?</think> The answer is 18.")
    ' The answer is 18.'
    >>> outside_thoughts("<think>it is 18")
    ''
    """
    spoken: list[str] = []
    thinks, after = False, 0
    for mark in _THOUGHT.finditer(text):
        if mark["opens"] is not None:
            if not thinks:
                spoken.append(text[after : mark.start()])
            thinks = True
        else:
            if not thinks:
                spoken.clear()
            thinks, after = False, mark.end()
    return "" if thinks else without_ending("".join(spoken) + text[after:])


def without_ending(text: str) -> str:
    """The text without tokens at its end that only end a turn, and without white space there."""
    cut = max(0, len(text) - ENDING_CHARS)
    return text[:cut] + _ENDING.sub("", text[cut:])


def is_blank(content: str) -> bool:
    r"""Whether a marker holds no answer: nothing, dots, or "answer", as in ``\boxed{...}``."""
    return len(content) < ENDING_CHARS and _NOTHING.fullmatch(content) is not None


class Marked(NamedTuple):
    """What a marker holds, and where the marker starts."""

    start: int
    content: str | None
    """None where the marker never closes."""


def boxes(text: str) -> list[Marked]:
    r"""All ``\boxed{...}`` and ``\fbox{...}`` of a text, by their starts."""
    found: list[Marked] = []
    opened: list[tuple[int, int]] = []
    for mark in _BRACE.finditer(text):
        if mark["box"]:
            opened.append((len(found), mark.end()))
            found.append(Marked(mark.start(), None))
        elif mark[0] == "{":
            opened.append((-1, mark.end()))
        elif mark[0] == "}" and opened:
            place, start = opened.pop()
            if place >= 0:
                found[place] = found[place]._replace(content=text[start : mark.start()])
    return found


def tags(text: str) -> list[Marked]:
    """All ``<answer>...</answer>`` of a text, in order."""
    return [Marked(tag.start(), tag[1]) for tag in _TAG.finditer(text)]


def last_filled(marks: Sequence[Marked]) -> str:
    """The last content that is not blank; "" where there is none or the last marker is open."""
    if marks and marks[-1].content is None:
        return ""
    contents = (mark.content for mark in reversed(marks))
    return next((one for one in contents if one and not is_blank(one)), "")
