"""Split files from the problems of a published dataset.

Which problem belongs to which split is the dataset's own decision. The key of a problem is a
hash of its words; training loses the problems whose key is in evaluation, and every key comes
once. Within a split the problems of a level are ordered by a hash, and levels come in turn as
long as all last, so that a short prefix is a balanced sample.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from crlbench.errors import unknown_name
from crlbench.reward.splits import (
    FORMAT_ITEMS,
    FORMAT_TEMPLATES,
    SPLITS,
    TRAIN_FIXED_COUNT,
)


@dataclass(frozen=True)
class Problem:
    """One problem of a dataset, not yet worded as a prompt."""

    text: str
    answer: str
    """Its bare answer, before a template's format is put around it."""
    level: int
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """16 hexadecimal digits of the hash of its words: letters and digits, case apart."""
        words = " ".join(re.findall(r"\w+", self.text.casefold()))
        return hashlib.sha256(words.encode()).hexdigest()[:16]


Tell = Callable[[Problem, int], tuple[list[dict[str, str]], str]]
"""``tell(problem, template)``: the messages and the gold completion."""


def build_published(
    split: str, rng: random.Random, problems: Mapping[str, Sequence[Problem]], tell: Tell
) -> list[dict[str, Any]]:
    """All rows of a split, in order, ready to be written as JSON lines.

    ``problems`` holds the dataset's problems under "id" and, where the task has them, "train"
    and "hard". ``train_fixed`` and ``format`` take problems of ``train`` and ``id``, drawn with
    ``rng``; nothing else is drawn.
    """
    if split == "train_fixed":
        chosen = _subset(_ordered("train", problems), TRAIN_FIXED_COUNT, rng)
        told = [(0, problem, f"train-{i:05d}") for i, problem in chosen]
    elif split == "format":
        chosen = _subset(_ordered("id", problems), FORMAT_ITEMS, rng)
        told = [(t, problem, f"id-{i:05d}") for i, problem in chosen for t in FORMAT_TEMPLATES]
    elif split in problems:
        told = [(0, problem, "") for problem in _ordered(split, problems)]
    else:
        raise unknown_name("split", split, SPLITS)
    return [
        _row(f"{split}-{i:05d}", problem, template, source, tell)
        for i, (template, problem, source) in enumerate(told)
    ]


def _row(name: str, problem: Problem, template: int, source: str, tell: Tell) -> dict[str, Any]:
    messages, answer = tell(problem, template)
    return {
        "id": name,
        "messages": messages,
        "answer": answer,
        "level": problem.level,
        "template": template,
        "key": problem.key,
        "meta": {**problem.meta, **({"source": source} if source else {})},
    }


def _ordered(split: str, problems: Mapping[str, Sequence[Problem]]) -> list[Problem]:
    """The problems of a split by a hash of their keys, the levels in turn."""
    levels: dict[int, list[Problem]] = {}
    for problem in sorted(_owned(split, problems), key=lambda one: _hash(one.key)):
        levels.setdefault(problem.level, []).append(problem)
    return _in_turn([levels[level] for level in sorted(levels)])


def _owned(split: str, problems: Mapping[str, Sequence[Problem]]) -> list[Problem]:
    """The problems of a split, each key once, without those that an earlier owner has."""
    taken: set[str] = set()
    for owner in ("id", "hard", "train"):
        own: list[Problem] = []
        for problem in problems.get(owner, ()):
            if problem.key not in taken:
                taken.add(problem.key)
                own.append(problem)
        if owner == split:
            return own
    raise unknown_name("split", split, ("id", "hard", "train"))


def _subset(problems: list[Problem], count: int, rng: random.Random) -> list[tuple[int, Problem]]:
    """``count`` problems with their places, as many of each level; all where there are fewer."""
    levels = sorted({problem.level for problem in problems})
    own = [[pair for pair in enumerate(problems) if pair[1].level == level] for level in levels]
    share = count // len(levels)
    return _in_turn([rng.sample(pairs, min(share, len(pairs))) for pairs in own])


def _in_turn(lists: Sequence[Sequence[Any]]) -> list[Any]:
    """One of each list in turn, as long as it lasts."""
    turns = zip_longest(*lists)
    return [one for turn in turns for one in turn if one is not None]


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
