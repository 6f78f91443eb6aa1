"""Copies of bundled tasks that a test may change: digests are stated anew."""

from __future__ import annotations

import hashlib
import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crlbench.catalog.rows import read_rows
from crlbench.disk import rowfiles
from crlbench.disk.toml import dump_toml

TASKS = Path(__file__).parents[2] / "tasks"


def copied(root: Path, task: str, change: Callable[[Path, dict[str, Any]], None]) -> Path:
    """The task in ``root/tasks``, after ``change(folder, frozen)``; ``root`` is a --catalog."""
    folder = root / "tasks" / task
    shutil.copytree(TASKS / task, folder)
    frozen = tomllib.loads((folder / "frozen.toml").read_text())
    change(folder, frozen)
    for split in frozen["splits"].values():
        split["sha256"] = hashlib.sha256(read_rows(folder / split["file"])).hexdigest()
    (folder / "frozen.toml").write_text(dump_toml(frozen))
    return root


def edit_row(folder: Path, split: str, index: int, **fields: Any) -> None:
    """Change fields of one row of a split file."""
    path = plain(folder / f"{split}.jsonl")
    lines = path.read_text().splitlines()
    lines[index] = json.dumps(json.loads(lines[index]) | fields)
    path.write_text("\n".join(lines) + "\n")


def plain(path: Path) -> Path:
    """A split file, plain from now on whichever form it stood in."""
    data = read_rows(path)
    rowfiles.standing(path).unlink()
    path.write_bytes(data)
    return path


def without(*splits: str) -> Callable[[Path, dict[str, Any]], None]:
    """A change that takes split files away."""

    def change(folder: Path, frozen: dict[str, Any]) -> None:
        for split in splits:
            rowfiles.standing(folder / frozen["splits"].pop(split)["file"]).unlink()

    return change
