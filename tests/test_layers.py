"""The dependency rule: imports run downward only, and each heavy library has one door."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "crlbench"

LEAVES = {
    "added",
    "errors",
    "explain",
    "seeding",
    "types",
    "dynamics",
    "events",
    "files",
    "conditions",
    "record_files",
    "records",
    "stored",
    "study",
    "attempts",
    "chain",
    "verification",
    "retractions",
    "cards",
    "hashing",
    "json_schema",
    "line_ends",
    "locks",
    "machine",
    "npz",
    "packed",
    "parallel",
    "pinned",
    "proportion",
    "reading",
    "rowfiles",
    "seal",
    "side_files",
    "switches",
}
"""Plain data and pure functions; they import one another at most."""
CATALOGUE = LEAVES | {"checkpoint", "frozen", "catalog", "reward"}

MAY_IMPORT: dict[str, set[str]] = {
    "added": set(),
    "errors": set(),
    "explain": set(),
    "seeding": set(),
    "types": set(),
    "dynamics": set(),
    "events": set(),
    "hashing": set(),
    "json_schema": set(),
    "line_ends": {"hashing"},
    "locks": set(),
    "files": {"errors"},
    "machine": {"conditions", "errors"},
    "npz": set(),
    "packed": {"errors", "records"},
    "parallel": set(),
    "pinned": {"cards", "errors", "hashing", "line_ends", "side_files"},
    "proportion": set(),
    "reading": {"errors", "line_ends"},
    "rowfiles": {"errors"},
    "seal": {"errors", "hashing", "line_ends", "reading"},
    "side_files": {"errors", "hashing"},
    "switches": {"errors", "files"},
    "conditions": {"added", "errors", "explain"},
    "records": {"added", "conditions", "errors"},
    "record_files": {"conditions", "errors", "explain", "reading", "records", "stored"},
    "stored": {"errors", "hashing", "line_ends", "packed", "reading", "records"},
    "study": {"attempts", "conditions"},
    "chain": {"conditions", "errors", "reading"},
    "attempts": {"chain", "conditions", "errors", "line_ends"},
    "verification": {"chain", "conditions", "errors"},
    "retractions": {"chain", "errors", "explain", "line_ends", "reading"},
    "cards": {"added", "errors", "explain", "conditions", "reading"},
    "algo": LEAVES,
    "policy": LEAVES,
    "reward": LEAVES,
    "checkpoint": LEAVES,
    "frozen": CATALOGUE - {"catalog"},
    "confine": LEAVES | {"frozen", "reward"},
    "catalog": CATALOGUE,
    "suite": CATALOGUE | {"policy"},
    "retain": LEAVES | {"reward"},
    "gauntlet": CATALOGUE | {"confine", "suite"},
    "archives": {"cards", "errors", "files", "hashing"},
    "fetch": CATALOGUE | {"archives", "policy"},
    "train": LEAVES | {"algo", "policy", "reward"},
    "report": LEAVES,
    "run": CATALOGUE | {"confine", "fetch", "algo", "policy", "retain", "suite", "train"},
    "entry": CATALOGUE | {"fetch", "algo", "gauntlet", "policy", "run", "train"},
    "contribute": CATALOGUE | {"algo", "report", "run"},
    "site": CATALOGUE | {"report", "contribute"},
    "commands": CATALOGUE
    | {"suite", "gauntlet", "fetch", "algo", "retain", "run", "report", "entry", "contribute"}
    | {"site"},
    "cli": {"errors", "files", "switches", "commands"},
    "__main__": {"cli"},
    "__init__": set(),
}
"""A room and the rooms below it. A room may always import itself, and the version."""

DOORS = {
    "transformers": {"policy"},
    "huggingface_hub": {"entry"},
    "peft": {"policy"},
    "bitsandbytes": {"policy"},
    "lightning": {"train"},
    "torchmetrics": {"train"},
    "jinja2": {"policy", "report", "site"},
    "pyarrow": {"site"},
    "scipy": set(),
    "torch": {"types", "algo", "policy", "train", "run", "entry", "commands"},
    "numpy": {"contribute", "npz", "policy", "report", "run", "site", "train"},
}
"""The only rooms that import a heavy library."""


def files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[tuple[str, int]]:
    """Dotted names that a file imports anywhere, with their lines; also lazily by name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {(alias.name, node.lineno) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            found |= {(f"{node.module}.{alias.name}", node.lineno) for alias in node.names}
    return found


def test_every_room_has_its_place() -> None:
    assert {room_of(path) for path in files()} == set(MAY_IMPORT)


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_downward(path: Path) -> None:
    room = room_of(path)
    allowed = MAY_IMPORT[room] | {room, "__version__"}
    for name, line in imports(path):
        parts = name.split(".")
        if parts[0] == "crlbench" and len(parts) > 1:
            assert parts[1] in allowed, f"{path}:{line}: {room} may not import {name}"


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_heavy_libraries_have_one_door(path: Path) -> None:
    room = room_of(path)
    for name, line in imports(path):
        library = name.split(".")[0]
        if library in DOORS:
            assert room in DOORS[library], f"{path}:{line}: {room} may not import {library}"


def test_the_siblings_are_siblings() -> None:
    siblings = {"algo", "policy", "reward"}
    for room in siblings:
        assert not MAY_IMPORT[room] & (siblings - {room})


def tasks() -> list[Path]:
    return sorted(PACKAGE.parent.glob("tasks/*/task.py"))


@pytest.mark.parametrize("path", tasks(), ids=lambda path: path.parent.name)
def test_tasks_import_the_standard_library_and_the_reward_room(path: Path) -> None:
    import sys

    for name, line in imports(path):
        top = name.split(".")[0]
        fine = top in sys.stdlib_module_names or name.startswith("crlbench.reward.")
        assert fine, f"{path}:{line}: a task may not import {name}"


def test_a_wrong_import_would_be_seen(tmp_path: Path) -> None:
    wrong = tmp_path / "x.py"
    wrong.write_text("def f():\n    from crlbench.train import module\n    import torch.nn as nn\n")
    assert imports(wrong) == {("crlbench.train.module", 2), ("torch.nn", 3)}
