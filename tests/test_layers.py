"""Imports run downward only, in no circle, and a heavy library comes in by few doors."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "crlbench"

WORDS = {"errors", "seeding", "types"}
"""Three files that every room knows."""
BELOW = WORDS | {"base", "disk", "contract"}
"""What every room stands on."""
MODELS = BELOW | {"algo", "policy", "reward", "catalog"}

MAY_IMPORT: Mapping[str, set[str]] = {
    "errors": set(),
    "seeding": set(),
    "types": set(),
    "base": WORDS,
    "disk": WORDS | {"base"},
    "contract": WORDS | {"base", "disk"},
    "algo": BELOW,
    "policy": BELOW,
    "reward": WORDS,
    "catalog": BELOW | {"policy", "reward"},
    "confine": BELOW | {"catalog", "reward"},
    "suite": BELOW | {"catalog", "confine", "policy", "reward"},
    "stats": WORDS | {"base"},
    "verdict": BELOW | {"stats"},
    "pages": BELOW | {"stats", "verdict"},
    "play": BELOW | {"policy", "reward"},
    "train": BELOW | {"algo", "play", "policy", "reward"},
    "run": MODELS | {"confine", "play", "stats", "suite", "train"},
    "launch": MODELS | {"run"},
    "stages": MODELS | {"run", "stats", "suite", "train"},
    "doctor": MODELS | {"launch", "run", "suite"},
    "proof": MODELS | {"launch", "play", "run", "stages", "stats", "suite", "train", "verdict"},
    "contribute": MODELS | {"pages", "proof", "run", "suite", "train", "verdict"},
    "site": BELOW | {"catalog", "contribute", "pages", "stats", "verdict"},
    "commands": MODELS
    | {"confine", "contribute", "doctor", "launch", "pages", "proof", "run", "site", "stages"}
    | {"stats", "suite", "verdict"},
    "cli": {"commands", "disk", "errors"},
    "notebook": BELOW | {"catalog", "cli", "commands", "launch", "pages", "site", "verdict"},
    "__main__": {"cli"},
    "__init__": set(),
}
"""A room and the rooms below it. A room may always import itself, and the version."""

INWARDS: Mapping[str, set[str]] = {
    "algo/pairs": {"algo"},
    "algo/recipes": {"algo", "algo/pairs"},
    "policy/decode": {"policy", "policy/text"},
    "policy/weights": {"policy", "policy/decode", "policy/text"},
    "suite/gauntlet": {"suite"},
    "contribute/review": {"contribute/results"},
}
"""A part of a room and the other parts of it that it may import; without an entry, none."""

DOORS = {
    "transformers": {"policy"},
    "huggingface_hub": {"contribute"},
    "peft": {"policy"},
    "bitsandbytes": {"policy"},
    "lightning": {"train"},
    "torchmetrics": {"train"},
    "jinja2": {"policy", "pages", "site"},
    "pandas": {"notebook"},
    "pyarrow": {"site"},
    "scipy": {"stats"},
    "torch": {"types", "algo", "policy", "train", "run", "launch", "doctor", "stages", "proof"}
    | {"contribute", "commands", "play"},
    "numpy": {"contribute", "disk", "pages", "policy", "proof", "run", "site", "stats", "train"}
    | {"play", "verdict"},
}
"""The only rooms that import a heavy library."""


@cache
def files() -> tuple[Path, ...]:
    return tuple(sorted(PACKAGE.rglob("*.py")))


def name_of(path: Path) -> str:
    return "/".join(path.relative_to(PACKAGE).parts).removesuffix(".py").removesuffix("/__init__")


def room_of(path: Path) -> str:
    return name_of(path).partition("/")[0]


def part_of(name: str) -> str:
    """The folder of a file, below the package."""
    if (PACKAGE / name).is_dir():
        return name
    return name.rpartition("/")[0] or name


@cache
def imports(path: Path) -> set[tuple[str, int]]:
    """Dotted names that a file imports anywhere, with their lines; also lazily by name."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {(alias.name, node.lineno) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            names |= {(f"{node.module}.{alias.name}", node.lineno) for alias in node.names}
    return names


@cache
def is_place(name: str) -> bool:
    """Whether ``room/file`` is a file or a folder of the package."""
    return (PACKAGE / f"{name}.py").is_file() or (PACKAGE / name).is_dir()


def imported_files(path: Path) -> Iterator[tuple[str, int]]:
    """Files of the package that a file imports, as ``room/file``, with the lines."""
    for name, line in imports(path):
        parts = name.split(".")[1:] if name.startswith("crlbench.") else []
        for end in range(len(parts), 0, -1):
            if is_place("/".join(parts[:end])):
                yield "/".join(parts[:end]), line
                break


def test_every_room_has_its_place() -> None:
    assert {room_of(path) for path in files()} == set(MAY_IMPORT)


def test_imports_run_downward() -> None:
    wrong = []
    for path in files():
        room = room_of(path)
        allowed = MAY_IMPORT[room] | {room, "__version__"}
        for name, line in imports(path):
            parts = name.split(".")
            if parts[0] == "crlbench" and len(parts) > 1 and parts[1] not in allowed:
                wrong.append(f"{path}:{line}: {room} may not import {name}")
    assert not wrong


def test_imports_run_downward_inside_a_room() -> None:
    wrong = []
    for path in files():
        part, room = part_of(name_of(path)), room_of(path)
        allowed = INWARDS.get(part, set()) | {part}
        for name, line in imported_files(path):
            other = part_of(name)
            if other.partition("/")[0] == room and other not in allowed:
                wrong.append(f"{path}:{line}: {part} may not import {name}")
    assert not wrong


def test_no_rule_leads_back() -> None:
    order: list[str] = []
    for rules in (MAY_IMPORT, INWARDS):
        waiting = {room: set(below) & set(rules) for room, below in rules.items()}
        while waiting:
            free = [room for room, below in waiting.items() if not below & set(waiting)]
            assert free, f"these import one another: {sorted(waiting)}"
            order += free
            for room in free:
                del waiting[room]


def test_no_file_imports_itself_by_way_of_others() -> None:
    below = {name_of(path): {name for name, _ in imported_files(path)} for path in files()}
    while free := [name for name, others in below.items() if not others & set(below) - {name}]:
        for name in free:
            del below[name]
    assert not below, f"in a circle, or above one: {sorted(below)}"


def test_heavy_libraries_have_few_doors() -> None:
    wrong = []
    for path in files():
        room = room_of(path)
        for name, line in imports(path):
            library = name.split(".")[0]
            if library in DOORS and room not in DOORS[library]:
                wrong.append(f"{path}:{line}: {room} may not import {library}")
    assert not wrong


def test_the_siblings_are_siblings() -> None:
    siblings = {"algo", "policy", "reward"}
    for room in siblings:
        assert not MAY_IMPORT[room] & (siblings - {room})


def test_numbers_do_not_know_words_and_words_do_not_decide() -> None:
    rooms = ["stats", "verdict", "pages", "site"]
    for place, room in enumerate(rooms):
        assert not MAY_IMPORT[room] & set(rooms[place:])


def test_tasks_import_the_standard_library_and_the_reward_room() -> None:
    wrong = []
    for path in sorted(PACKAGE.parent.glob("tasks/*/task.py")):
        for name, line in imports(path):
            top = name.split(".")[0]
            if top not in sys.stdlib_module_names and not name.startswith("crlbench.reward."):
                wrong.append(f"{path}:{line}: a task may not import {name}")
    assert not wrong


def test_a_wrong_import_would_be_seen(tmp_path: Path) -> None:
    wrong = tmp_path / "x.py"
    wrong.write_text("def f():\n    from crlbench.train import module\n    import torch.nn as nn\n")
    assert imports(wrong) == {("crlbench.train.module", 2), ("torch.nn", 3)}
    assert list(imported_files(wrong)) == [("train/module", 2)]
