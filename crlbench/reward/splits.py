"""Split membership and the split builder that every generated task shares.

Membership is stateless: a semantic key is held out for evaluation iff a hash of it falls in
a fixed share, so any program (a training-set builder, the pretraining corpus) can tell on
its own which items it may use, without reading a file.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from crlbench import seeding
from crlbench.errors import ValidationError, unknown_name

EVALUATION_SHARE = 0.35
"""Share of all semantic keys that only evaluation splits may use."""

Item = Callable[[random.Random, int, int], dict[str, Any]]
"""``item(rng, level, template)``; the draws from ``rng`` must not depend on ``template``."""


@dataclass(frozen=True)
class Plan:
    """How a drawn split is filled: its size, its levels in turn, and its side of the fence."""

    count: int
    levels: tuple[int, ...]
    held_out: bool


PLANS = {
    "train": Plan(2048, (1, 2), held_out=False),
    "id": Plan(512, (1, 2), held_out=True),
    "hard": Plan(256, (3,), held_out=True),
}
PARENTS = {"train_fixed": "train", "format": "id"}
"""Splits made of another split's items."""
TRAIN_FIXED_COUNT = 256
FORMAT_ITEMS = 64
FORMAT_TEMPLATES = (1, 2, 3, 4, 5)
SPLITS = ("train", "train_fixed", "id", "hard", "format")
PATIENCE = 20_000
"""Draws in a row without a new item after which a level counts as exhausted."""


def held_out(task: str, key: str) -> bool:
    """Whether a semantic key of a task belongs to evaluation (and to nothing else)."""
    digest = hashlib.sha256(f"{task}|{key}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < EVALUATION_SHARE * 2**64


def content_hash(messages: list[dict[str, str]]) -> str:
    """SHA-256 of what a model is shown: the messages as canonical JSON."""
    text = json.dumps(messages, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def freeze_rng(task: str, version: str, split: str) -> random.Random:
    """The generator that fills a split of a task version: derived from names, never chosen.

    Of the version MAJOR alone counts, so that a change of words keeps every byte and a change
    of rules redraws all rows.
    """
    return seeding.rng(0, "freeze", task, f"{version.split('.')[0]}.0.0", split)


def build_split(
    task: str, version: str, item: Item, split: str, rng: random.Random
) -> list[dict[str, Any]]:
    """All rows of a split, in order, ready to be written as JSON lines.

    Levels alternate, so every prefix is balanced. Evaluation splits hold each key once;
    the training splits hold each text once. ``train_fixed`` and ``format`` take items of
    ``train`` and ``id``, which are rebuilt here from their own generators.

    Raises :class:`ValidationError` when a level holds too few distinct items.
    """
    if split == "train_fixed":
        rows = _subset(_parent_rows(task, version, item, split), TRAIN_FIXED_COUNT, rng)
    elif split == "format":
        chosen = _subset(_parent_rows(task, version, item, split), FORMAT_ITEMS, rng)
        rows = [_retell(item, row, seed, t) for row, seed in chosen for t in FORMAT_TEMPLATES]
    elif split in PLANS:
        rows = _draw(task, item, split, rng)
    else:
        raise unknown_name("split", split, SPLITS)
    return [_numbered(split, i, row) for i, (row, _) in enumerate(rows)]


Drawn = tuple[dict[str, Any], int]
"""A row and the seed of the generator that made it, which remakes it in another template."""


def _draw(task: str, item: Item, split: str, rng: random.Random) -> list[Drawn]:
    plan = PLANS[split]
    found: list[Drawn] = []
    taken: set[str] = set()
    for i in range(plan.count):
        level = plan.levels[i % len(plan.levels)]
        for row, seed in _candidates(item, level, rng):
            name = row["key"] if plan.held_out else content_hash(row["messages"])
            if held_out(task, row["key"]) == plan.held_out and name not in taken:
                taken.add(name)
                found.append((row, seed))
                break
        else:
            raise ValidationError(
                f"task '{task}': level {level} is exhausted: the split '{split}' needs"
                f" {plan.count} items and {PATIENCE} draws in a row gave nothing new after"
                f" {i}. Widen the ranges of level {level} in the task's item()."
            )
    return found


def _candidates(item: Item, level: int, rng: random.Random) -> Iterator[Drawn]:
    for _ in range(PATIENCE):
        seed = rng.getrandbits(63)
        yield item(random.Random(seed), level, 0), seed


def _parent_rows(task: str, version: str, item: Item, split: str) -> list[Drawn]:
    parent = PARENTS[split]
    drawn = _draw(task, item, parent, freeze_rng(task, version, parent))
    return [
        ({**row, "meta": {**row["meta"], "source": f"{parent}-{i:05d}"}}, seed)
        for i, (row, seed) in enumerate(drawn)
    ]


def _subset(rows: list[Drawn], count: int, rng: random.Random) -> list[Drawn]:
    """``count`` rows, the same number of each level, levels in turn."""
    levels = sorted({row["level"] for row, _ in rows})
    share = count // len(levels)
    per_level = [
        rng.sample([drawn for drawn in rows if drawn[0]["level"] == level], share)
        for level in levels
    ]
    return [drawn for turn in zip(*per_level, strict=True) for drawn in turn]


def _retell(item: Item, row: dict[str, Any], seed: int, template: int) -> Drawn:
    told = item(random.Random(seed), row["level"], template)
    return {**told, "meta": {**told["meta"], "source": row["meta"]["source"]}}, seed


def _numbered(split: str, index: int, row: dict[str, Any]) -> dict[str, Any]:
    names = ("messages", "answer", "level", "template", "key", "meta")
    return {"id": f"{split}-{index:05d}", **{name: row[name] for name in names}}
