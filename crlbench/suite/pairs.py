"""Preference pairs of a task: on one prompt a better completion and a worse one.

They are frozen like rows: a task's code makes them in ``pairs(split, rng)``, their digests
stand in ``frozen.toml``, and their files stand where the task's rows do.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from crlbench.catalog.code import entry_point
from crlbench.catalog.frozen import Task, fetch_command
from crlbench.catalog.rows import Message, kinds_of, parse_lines, read_rows
from crlbench.contract.task_card import PairsCard, TaskCard
from crlbench.disk import line_ends, rowfiles
from crlbench.disk.hashing import sha256_bytes
from crlbench.disk.names import FROZEN
from crlbench.errors import EnvironmentUnfit, UsageError, ValidationError
from crlbench.reward.splits import freeze_rng
from crlbench.seeding import rng

Split = Literal["train", "id", "audit"]
SPLITS: tuple[Split, ...] = ("train", "id")
"""Pairs to fit on, and held-out pairs, which share no key with them."""
ALL: tuple[Split, ...] = (*SPLITS, "audit")
"""Also, in PAIR_SPLITS of a task's code: pairs of another source that no model is fitted on. The
``fault`` in the meta of such a pair names what preferring its worse completion is."""
HELD_OUT = 8
"""Of pairs without a held-out file one prompt in so many is held out."""
LEAST_PAIRS = 64
"""Fewer pairs teach nothing that could be told from noise."""


class Pair(TypedDict):
    """One line of a pairs file."""

    id: str
    """``pairs_<split>-<five digits>``."""
    messages: list[Message]
    chosen: str
    rejected: str
    level: int
    key: str
    """Semantic key: pairs with one key are about the same problem."""
    meta: dict[str, Any]


FIELDS = kinds_of(Pair)


def file_name(split: Split) -> str:
    """``pairs_train.jsonl``, ``pairs_id.jsonl``."""
    return f"pairs_{split}.jsonl"


def pair_files(
    code: types.ModuleType, files: Mapping[str, bytes] | None = None
) -> dict[str, bytes]:
    """The pair files that a task's code makes, by name; none where it defines no ``pairs``.

    ``files`` are the uncompressed files of its source by name, for an external task.

    Raises:
        ValidationError: a pair is malformed, or a key is on both sides.
    """
    module = getattr(getattr(code, "pairs", None), "__module__", None)
    if module != code.__name__:  # tasks import a function of this name from crlbench.reward.verify
        return {}
    make, facts = entry_point(code, "pairs"), code.CARD
    contents, owners = {}, {}
    for split in getattr(code, "PAIR_SPLITS", SPLITS):
        rng = freeze_rng(facts["name"], facts["version"], f"pairs_{split}")
        rows = make(split, rng) if files is None else make(split, rng, dict(files))
        pairs = [{"id": f"pairs_{split}-{i:05d}", **row} for i, row in enumerate(rows)]
        data = "".join(json.dumps(pair, ensure_ascii=True) + "\n" for pair in pairs).encode()
        for row in parse_pairs(data, Path(str(code.__file__)).parent / file_name(split)):
            if owners.setdefault(row["key"], split) != split:
                raise ValidationError(
                    f"{code.__file__}: pairs: the key {row['key']!r} is in two files; held-out "
                    "pairs must be about other problems than those a model is fitted on."
                )
        contents[file_name(split)] = data
    return contents


def pairs_content(files: Mapping[str, bytes]) -> dict[str, dict[str, Any]] | None:
    """The table ``[pairs]`` of a ``frozen.toml``; None where there are no files."""
    names = {split: file_name(split) for split in ALL if file_name(split) in files}
    table = {
        split: {
            "file": name,
            "sha256": sha256_bytes(files[name]),
            "count": files[name].count(b"\n"),
        }
        for split, name in names.items()
    }
    return table or None


def load_pairs(task: Task, split: Split) -> list[Pair]:
    """The frozen pairs of a task.

    Raises:
        UsageError: the task has none.
        EnvironmentUnfit: they belong to an external task that was not fetched.
        ValidationError: the file is missing, malformed or was changed.
    """
    return frozen_pairs(task.card, split, task.rows_folder)


def pairs_file(task: Task, split: Split) -> Path:
    """Where the frozen pairs of a task stand, once they are proven to be those that it froze.

    Raises:
        As :func:`load_pairs`.
    """
    load_pairs(task, split)
    return rowfiles.standing(task.rows_folder / pairs_card(task.card, split).file)


def frozen_pairs(card: TaskCard, split: Split, place: Path) -> list[Pair]:
    """The pairs in the folder ``place`` of a task's rows; raises as :func:`load_pairs` does."""
    expected = pairs_card(card, split)
    path = rowfiles.standing(place / expected.file)
    if card.source is not None and not path.is_file():
        raise EnvironmentUnfit(
            f"task '{card.name}': its pairs are not on this machine; run: "
            f"{fetch_command(card.name)} (looked for {path})"
        )
    again = f"crlbench freeze {card.name}" if card.source is None else fetch_command(card.name)
    data = read_rows(place / expected.file, f"Restore it with: {again}")
    line_ends.require_digest(path, data, expected.sha256, FROZEN, f"Restore it with: {again}")
    return parse_pairs(data, path)


def pairs_card(card: TaskCard, split: Split) -> PairsCard:
    """What ``frozen.toml`` says about a file of pairs; a task without is a usage error."""
    if card.pairs is None or split not in card.pairs:
        raise UsageError(
            f"task '{card.name}' has no preference pairs (no [pairs] in its frozen.toml)."
        )
    return card.pairs[split]


def held_out(pairs: Sequence[Pair], seed: int) -> dict[Split, list[Pair]]:
    """Pairs to fit on, and pairs of other prompts to measure on, by a keyed draw of prompts."""
    prompts = sorted({pair["key"] for pair in pairs})
    rng(seed, "rm", "held out").shuffle(prompts)
    kept = set(prompts[: len(prompts) // HELD_OUT])
    return {
        "train": [pair for pair in pairs if pair["key"] not in kept],
        "id": [pair for pair in pairs if pair["key"] in kept],
    }


def parse_pairs(data: bytes, path: Path) -> list[Pair]:
    """The pairs of a JSON-lines file; a bad line is named by file, line and field."""
    pairs: list[Pair] = parse_lines(data, path, FIELDS)
    for number, pair in enumerate(pairs, start=1):
        if pair["chosen"] == pair["rejected"]:
            raise ValidationError(
                f"{path}:{number}: field rejected: equals chosen; a tie teaches nothing."
            )
    return pairs
