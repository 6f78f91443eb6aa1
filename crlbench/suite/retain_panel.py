"""Freezing the panel: generated members, the hand-written ones, digests and floors.

``follow``, ``copy`` and ``arithmetic`` are functions of their names and of seeds derived from
them; ``qa.jsonl`` and ``text.txt`` are written by hand and only checked and digested here.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crlbench.base.addition import sum_in_order
from crlbench.catalog.retain_panel import (
    CARD_NAME,
    TEXT,
    Item,
    PanelCard,
    parse_items,
    parse_text,
    read,
    verifier_digest,
)
from crlbench.contract.card import validate_card
from crlbench.disk import line_ends
from crlbench.disk.files import write_all
from crlbench.disk.hashing import sha256_bytes
from crlbench.disk.toml import dump_toml
from crlbench.errors import ValidationError
from crlbench.reward.retain import VERIFIERS
from crlbench.seeding import rng

VERSION = "1.0.0"
ITEMS = 64
"""Items of every member but the text."""
CAPS = {"follow": 256, "qa": 48, "copy": 32, "arithmetic": 12}
"""Most bytes of a completion."""
DRAWS = 8
"""Random answers per item for the policy that knows only the shape of an answer."""
PLACES = 6

TOPICS = (
    "rain", "bread", "trains", "bridges", "winter", "honey", "rivers", "music",
    "apples", "clocks", "boats", "gardens", "letters", "mountains", "lamps", "horses",
)  # fmt: skip
OPENERS = ("today", "many", "people", "once")
CLOSERS = ("That is all.", "The end.", "Thank you.")
FILLERS = ("are", "known", "to", "all", "of", "us", "here")
NOUNS = (
    "river", "stone", "lamp", "door", "field", "cloud", "spoon", "paper",
    "wheel", "garden", "button", "window", "candle", "ladder", "pocket", "bottle",
)  # fmt: skip
SUMS = (((1, 9), (1, 9)), ((10, 99), (1, 9)), ((10, 99), (10, 99)), ((100, 999), (10, 99)))
"""Ranges of both operands, taken in turn."""

Row = dict[str, str]


def freeze(folder: Path, check: bool = False) -> PanelCard:
    """Write the panel's files into ``folder``; with ``check`` only compare them.

    Raises:
        ValidationError: a hand-written file is malformed, a verifier rejects a gold completion,
            or, with ``check``, a file differs from what the code makes.
        EnvironmentUnfit: a file cannot be written.
    """
    files, card = _regenerate(folder)
    if not check:
        write_all({folder / name: data for name, data in files.items()})
        return card
    for name, data in files.items():
        path = folder / name
        if (content := read(path)) != data:
            restore = "Restore it with git, or run: crlbench freeze --retain"
            raise ValidationError(
                f"{path}: is not what the code makes. "
                f"{line_ends.rewritten(path, content, sha256_bytes(data)) or restore}"
            )
    return card


def _regenerate(folder: Path) -> tuple[dict[str, bytes], PanelCard]:
    files = {f"{name}.jsonl": _lines(generate(name)) for name in GENERATED}
    by_hand = {"qa.jsonl": read(folder / "qa.jsonl"), "text.txt": read(folder / "text.txt")}
    members = {
        name: _item_facts(name, (files | by_hand)[f"{name}.jsonl"], folder / f"{name}.jsonl")
        for name in VERIFIERS
    }
    members[TEXT] = _text_facts(by_hand["text.txt"], folder / "text.txt")
    content = {
        "schema": 1,
        "version": VERSION,
        "verifier": verifier_digest(),
        "members": members,
    }
    card = validate_card(PanelCard, content, folder / CARD_NAME)
    return {**files, CARD_NAME: dump_toml(content).encode()}, card


def generate(member: str) -> list[Row]:
    """The rows of a generated member; no two have the same prompt."""
    rows: list[Row] = []
    prompts: set[str] = set()
    draw = 0
    while len(rows) < ITEMS:
        row = GENERATED[member](rng(0, "retain", member, draw), len(rows))
        draw += 1
        if row["prompt"] not in prompts:
            prompts.add(row["prompt"])
            rows.append({"id": f"{member}-{len(rows):02d}", **row})
    return rows


def _arithmetic(draw: random.Random, index: int) -> Row:
    a, b = (draw.randint(*limits) for limits in SUMS[index % len(SUMS)])
    return {"prompt": f"{a} + {b} =", "answer": str(a + b), "gold": f" {a + b}"}


def _copy(draw: random.Random, index: int) -> Row:
    one, two, three = draw.sample(NOUNS, 3)
    text = (
        f"{one} {two}",
        f"{draw.choice('bdfgk')}{draw.randint(2, 9)}-{draw.randint(10, 99)}{draw.choice('mnrst')}",
        ", ".join(str(draw.randint(1, 99)) for _ in range(4)),
        f"The {one.title()} and {three}.",
    )[index % 4]
    prompt = f"Repeat the following text exactly and write nothing else: {text}"
    return {"prompt": prompt, "answer": text, "gold": text}


def _follow(draw: random.Random, index: int) -> Row:
    """A topic that must be named, and one further constraint in turn."""
    topic = draw.choice(TOPICS)
    kind = list(CONSTRAINTS)[index % len(CONSTRAINTS)]
    value, instruction, gold = CONSTRAINTS[kind](draw, topic)
    return {
        "prompt": f'Write a short text that has the word "{topic}" in it. {instruction}',
        "answer": json.dumps([["keyword", topic], [kind, value]]),
        "gold": gold,
    }


def _filler(draw: random.Random) -> str:
    """Some words, so that golds differ."""
    return " ".join(draw.sample(FILLERS, 4))


def _forbidden(draw: random.Random, topic: str) -> tuple[Any, str, str]:
    word = draw.choice([other for other in TOPICS if other != topic])
    return word, f'Do not use the word "{word}".', f"{topic} {_filler(draw)}"


def _most_words(draw: random.Random, topic: str) -> tuple[Any, str, str]:
    most = draw.randint(5, 12)
    return most, f"Use at most {most} words.", f"{topic} {_filler(draw)}"


def _line_count(draw: random.Random, topic: str) -> tuple[Any, str, str]:
    count = draw.randint(2, 5)
    lines = [f"{topic} {_filler(draw)}" for _ in range(count)]
    return count, f"Write exactly {count} lines.", "\n".join(lines)


def _bullets(draw: random.Random, topic: str) -> tuple[Any, str, str]:
    count = draw.randint(2, 4)
    lines = [f"* {topic} {_filler(draw)}" for _ in range(count)]
    instruction = f'Write exactly {count} bullet points and nothing else; each begins with "* ".'
    return count, instruction, "\n".join(lines)


def _case(draw: random.Random, topic: str) -> tuple[Any, str, str]:
    text = f"{topic} {_filler(draw)}"
    if draw.random() < 0.5:
        return "lower", "Use lower-case letters only.", text
    return "upper", "Use CAPITAL letters only.", text.upper()


def _starts(draw: random.Random, topic: str) -> tuple[Any, str, str]:
    word = draw.choice(OPENERS)
    return word, f'Begin with the word "{word.title()}".', f"{word.title()} {topic} {_filler(draw)}"


def _ends(draw: random.Random, topic: str) -> tuple[Any, str, str]:
    closing = draw.choice(CLOSERS)
    instruction = f'End with exactly this sentence and nothing after it: "{closing}"'
    return closing, instruction, f"{topic} {_filler(draw)}. {closing}"


def _json(draw: random.Random, topic: str) -> tuple[Any, str, str]:
    keys = draw.sample(("title", "text", "place", "year", "author"), 2)
    instruction = (
        f'Answer with one JSON object that has exactly the keys "{keys[0]}" and "{keys[1]}" '
        "and nothing around it."
    )
    return sorted(keys), instruction, json.dumps({keys[0]: topic, keys[1]: _filler(draw)})


Constraint = Callable[[random.Random, str], tuple[Any, str, str]]
CONSTRAINTS: dict[str, Constraint] = {
    "most-words": _most_words,
    "lines": _line_count,
    "bullets": _bullets,
    "case": _case,
    "starts": _starts,
    "ends": _ends,
    "json": _json,
    "forbidden": _forbidden,
}
"""Kind -> (value, the instruction, a text that keeps it)."""

GENERATED: dict[str, Callable[[random.Random, int], Row]] = {
    "follow": _follow,
    "copy": _copy,
    "arithmetic": _arithmetic,
}


def null_scores(member: str, items: tuple[Item, ...]) -> dict[str, float]:
    """Mean scores of the policies that know nothing.

    ``empty`` says nothing, ``constant`` gives the one gold completion that scores best over all
    items, ``echo`` repeats the prompt, ``random_format`` gives another item's gold completion.
    """
    verify = VERIFIERS[member]

    def mean(texts: list[str]) -> float:
        right = sum_in_order(verify(t, item.answer) for t, item in zip(texts, items, strict=True))
        return round(right / len(items), PLACES)

    golds = [item.gold for item in items]
    draws = [rng(0, "retain", "null", member, d).choices(golds, k=len(items)) for d in range(DRAWS)]
    return {
        "empty": mean([""] * len(items)),
        "constant": max(mean([gold] * len(items)) for gold in golds),
        "echo": mean([item.prompt for item in items]),
        "random_format": round(sum_in_order(map(mean, draws)) / DRAWS, PLACES),
    }


def _item_facts(member: str, data: bytes, path: Path) -> dict[str, Any]:
    items = parse_items(data, path)
    for item in items:
        size = len(item.gold.encode())
        if VERIFIERS[member](item.gold, item.answer) < 1.0 or size > CAPS[member]:
            raise ValidationError(
                f"{path}: {item.id}: the verifier rejects its gold completion, or it is longer "
                f"than {CAPS[member]} bytes: {item.gold!r}."
            )
    nulls = null_scores(member, items)
    return {
        **_file_facts(path, data, len(items)),
        "floor": max(nulls.values()),
        "ceiling": 1.0,
        "max_completion_bytes": CAPS[member],
        "nulls": nulls,
    }


def _text_facts(data: bytes, path: Path) -> dict[str, Any]:
    count = len(parse_text(data, path))
    return {**_file_facts(path, data, count), "floor": 0.0, "ceiling": 1.0}


def _file_facts(path: Path, data: bytes, count: int) -> dict[str, Any]:
    return {"file": path.name, "sha256": sha256_bytes(data), "count": count}


def _lines(rows: list[Row]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
