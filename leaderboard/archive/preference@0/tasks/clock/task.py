"""Adding to a time of day, 24 hours: "10:45+30=" -> "11:15".

Level 1 adds a multiple of five minutes and stays within the hour, level 2 adds 2-59 minutes and
reaches the next hour of the same day, level 3 adds hours and minutes and crosses midnight. The
key is the time and what is added.
"""

from __future__ import annotations

import random
import re
from typing import Any

from crlbench.reward.splits import build_split
from crlbench.reward.verify import exact

CARD = {
    "name": "clock",
    "version": "1.0.0",
    "tags": ["mini", "arithmetic"],
    "summary": "Add minutes, or hours and minutes, to a time of day.",
    "max_completion_bytes": 64,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-b9274ccf-clock-f66949704f67",
    "contact": "crlbench maintainers",
}
LONGEST_TEXT = 64
"""Characters. A list of many answers, one a line, is longer."""

TEMPLATES = (
    "{time}+{added}=",
    "{span} after {time}:",
    "add {span} to {time}:",
    "it is {time}; in {span}:",
    "{time}+{added}= as <>:",
    "{time}+{added}= with h:",
)
ANSWERS = ("{}", "{}", "{}", "{}", "<{}>", "{}")
MARKS = (":", ":", ":", ":", ":", "h")
REPLIES = (
    "the new time only, like 09:05",
    "the new time only, like 09:05",
    "the new time only, like 09:05",
    "the new time only, like 09:05",
    "the new time in angle brackets, like <09:05>",
    "the new time only, with h between hour and minute, like 09h05",
)
SYSTEM = "Add to a time of day, which runs from 00:00 to 23:59. Reply with {}."
HOUR, DAY = 60, 24 * 60
"""Minutes."""


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id; ``template`` changes the words, never the draws."""
    start, added = DRAWS[level](rng)
    hours, minutes = divmod(added, HOUR)
    fields = {
        "time": _clock(start, ":"),
        "added": f"{hours}:{minutes:02d}" if hours else f"{minutes}",
        "span": f"{hours} hours {minutes} minutes" if hours else f"{minutes} minutes",
    }
    answer = _clock((start + added) % DAY, MARKS[template])
    return {
        "messages": [
            {"role": "system", "content": SYSTEM.format(REPLIES[template])},
            {"role": "user", "content": TEMPLATES[template].format(**fields)},
        ],
        "answer": ANSWERS[template].format(answer),
        "level": level,
        "template": template,
        "key": f"{fields['time']}+{fields['added']}",
        "meta": {},
    }


def _within_the_hour(rng: random.Random) -> tuple[int, int]:
    """A start and what is added, both in minutes."""
    added = 5 * rng.randint(1, 11)
    return HOUR * rng.randrange(24) + rng.randrange(HOUR - added), added


def _into_the_next_hour(rng: random.Random) -> tuple[int, int]:
    added = rng.randint(2, 59)
    return HOUR * rng.randrange(23) + rng.randrange(HOUR - added, HOUR), added


def _over_midnight(rng: random.Random) -> tuple[int, int]:
    added = HOUR * rng.randint(2, 11) + rng.randint(2, 59)
    return rng.randrange(DAY - added, DAY), added


DRAWS = {1: _within_the_hour, 2: _into_the_next_hour, 3: _over_midnight}


def _clock(minutes: int, mark: str) -> str:
    return f"{minutes // HOUR:02d}{mark}{minutes % HOUR:02d}"


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng)


def verify(text: str, answer: str) -> float:
    """1.0 iff the last non-empty line is the new time as asked.

    A text of more than ``LONGEST_TEXT`` characters gets 0.0.
    """
    return exact(text, answer) if len(text) <= LONGEST_TEXT else 0.0


_TIME = re.compile(r"\s*(<?)([0-9][0-9])([:h])([0-9][0-9])(>?)\s*")


def audit(text: str, answer: str) -> float:
    """1.0 iff the completion is one time, with hour, minute and marks of the answer."""
    found, right = _TIME.fullmatch(text), _TIME.fullmatch(answer)
    return float(bool(found and right and found.groups() == right.groups()))
