"""Freezing a task: its split files, its floors and its ``frozen.toml``, byte for byte.

Everything is a function of the task's code, its version and the names of its splits, so
freezing twice gives the same bytes; ``check=True`` proves it without writing.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import types
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crlbench import frozen, seeding
from crlbench.cards import TaskCard, dump_toml, validate_card
from crlbench.catalog import Catalog
from crlbench.errors import EnvironmentUnfit, ValidationError
from crlbench.reward.score import outcomes
from crlbench.reward.splits import SPLITS, freeze_rng

NULL_ROWS = 512
"""Rows of a split that the null policies are measured on: all but a training split's rest."""
DRAWS = 8
"""Random answers per item for the policy that knows only the shape of an answer."""
PLACES = 6
"""Decimals of a frozen score."""


def freeze(task: str | Path, check: bool = False, catalog: Catalog | None = None) -> TaskCard:
    """Write a task's split files and ``frozen.toml``; with ``check`` only compare them.

    ``task`` is a name of the catalogue or a task's folder. Raises :class:`ValidationError`
    when the code breaks a rule or, with ``check``, when a file differs from what the code
    makes; :class:`EnvironmentUnfit` when a file cannot be written.
    """
    folder = task if isinstance(task, Path) else (catalog or Catalog()).find("task", task).path
    files, card = regenerate(folder)
    if check:
        _compare(folder, files)
    else:
        for name, data in files.items():
            _write(folder / name, data)
    return card


def regenerate(folder: Path) -> tuple[dict[str, bytes], TaskCard]:
    """All files that freezing a folder makes, by name, and the card among them."""
    code = frozen.load_code(folder / "task.py")
    facts = _facts(code)
    build = frozen.entry_point(code, "build")
    rows = {
        split: build(split, freeze_rng(facts["name"], facts["version"], split))
        for split in SPLITS
    }
    files = {f"{split}.jsonl": _lines(rows[split]) for split in SPLITS}
    for name, data in files.items():
        frozen.parse_rows(data, folder / name)
    content = {
        "schema": 1,
        **facts,
        "generator": {
            "module": "task.py",
            "seed": 0,
            "sha256": frozen.generator_digest(folder / "task.py"),
        },
        "verifier": {
            "entry": "verify",
            "audit": "audit",
            "reward_range": [0.0, 1.0],
            "partial_credit": bool(getattr(code, "PARTIAL_CREDIT", False)),
            "sha256": frozen.verifier_digest(folder / "task.py"),
        },
        "splits": {
            split: _split_facts(code, split, rows[split], files[f"{split}.jsonl"])
            for split in SPLITS
        },
    }
    card = validate_card(TaskCard, content, folder / "task.py")
    if card.name != folder.name:
        raise ValidationError(
            f"{folder / 'task.py'}: CARD names '{card.name}', the folder '{folder.name}'."
        )
    return {**files, "frozen.toml": dump_toml(content).encode()}, card


def null_scores(
    verify: Callable[[str, str], Any], rows: list[dict[str, Any]], task: str
) -> dict[str, float]:
    """Mean scores of the policies that know nothing, over the first rows of a split.

    ``empty`` says nothing, ``constant`` gives the one answer of the split that scores best
    over it, ``echo`` repeats the user text, ``random_format`` gives another item's answer.
    """
    rows = rows[:NULL_ROWS]
    answers = [row["answer"] for row in rows]
    counts = Counter(answers)

    def mean(texts: list[str]) -> float:
        return round(sum(outcomes(verify, texts, answers, task)) / len(rows), PLACES)

    def constant(text: str) -> float:
        found = outcomes(verify, [text] * len(counts), [*counts], task)
        paid = sum(n * one for n, one in zip(counts.values(), found, strict=True))
        return round(paid / len(rows), PLACES)

    draws = [
        seeding.rng(0, "null", task, len(rows), draw).choices(answers, k=len(rows))
        for draw in range(DRAWS)
    ]
    return {
        "empty": mean([""] * len(rows)),
        "constant": max(map(constant, counts)),
        "echo": mean([row["messages"][-1]["content"] for row in rows]),
        "random_format": round(sum(map(mean, draws)) / DRAWS, PLACES),
    }


def _facts(code: types.ModuleType) -> dict[str, Any]:
    card = getattr(code, "CARD", None)
    if not isinstance(card, dict) or not {"name", "version"} <= card.keys():
        raise ValidationError(f"{code.__file__}: CARD must be a dict with name and version.")
    return dict(card)


def _lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=True) + "\n" for row in rows).encode()


def _split_facts(
    code: types.ModuleType, split: str, rows: list[dict[str, Any]], data: bytes
) -> dict[str, Any]:
    verify, name = frozen.entry_point(code, "verify"), code.CARD["name"]
    answers = [row["answer"] for row in rows]
    gold = outcomes(verify, answers, answers, name)
    nulls = null_scores(verify, rows, name)
    rejected = [row["id"] for row, outcome in zip(rows, gold, strict=True) if outcome < 1.0]
    if rejected:
        raise ValidationError(
            f"{code.__file__}: {rejected[0]}: the verifier rejects the item's own answer"
            f" ({len(rejected)} of {len(rows)} items of {split})."
        )
    if max(nulls.values()) >= 1.0:
        raise ValidationError(
            f"{code.__file__}: a policy that knows nothing is always right on {split}: {nulls}."
        )
    return {
        "file": f"{split}.jsonl",
        "sha256": hashlib.sha256(data).hexdigest(),
        "count": len(rows),
        "levels": sorted({row["level"] for row in rows}),
        "max_prompt_bytes": max(len(row["messages"][-1]["content"].encode()) for row in rows),
        "max_answer_bytes": max(len(answer.encode()) for answer in answers),
        "floor": max(nulls.values()),
        "ceiling": round(sum(gold) / len(gold), PLACES),
        "nulls": nulls,
    }


def _compare(folder: Path, files: dict[str, bytes]) -> None:
    problems = [
        problem for name, data in files.items() if (problem := _difference(folder / name, data))
    ]
    if problems:
        raise ValidationError(
            "the frozen files are not what the code makes:\n  "
            + "\n  ".join(problems)
            + f"\nRestore them, or raise the version and run: crlbench freeze {folder.name}"
        )


def _difference(path: Path, expected: bytes) -> str | None:
    if not path.exists():
        return f"{path}: the file is missing"
    found = frozen.read_bytes(path)
    if found == expected:
        return None
    here, there = found.split(b"\n"), expected.split(b"\n")
    pairs = zip(here, there, strict=False)
    line = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(here), len(there)))
    has, makes = (hashlib.sha256(data).hexdigest() for data in (found, expected))
    return f"{path}:{line + 1}: differs; the file has sha256 {has}, the code makes {makes}"


def _write(path: Path, data: bytes) -> None:
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise EnvironmentUnfit(f"{path}: cannot be written: {error.strerror}.") from None
