"""A catalogue of forgeries. A forger can make every hash fit; each one is caught all the same.

``crlbench validate`` reads and leaves with 3; ``crlbench verify`` scores and trains again, and
leaves with 5.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from crlbench.disk.packed import PACKED
from tests.contribute.catalogue import CELL, moved
from tests.contribute.forged_ledgers import event
from tests.contribute.forgeries import ALWAYS, FORGERIES, REPLAYED
from tests.contribute.honest import copied, crlbench


def tried(name: str) -> Any:
    """A forgery with the marks of its test."""
    if name in ALWAYS.values():
        return name
    rare = "--updates" in FORGERIES[name][1] and name not in REPLAYED
    return pytest.param(name, marks=(pytest.mark.slow, *[pytest.mark.full] * rare))


@pytest.mark.parametrize("name", [tried(name) for name in FORGERIES])
def test_a_forgery_is_caught(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    forge, command, words = FORGERIES[name]
    longer = "long_" if "--updates all" in command else ""
    entry, home = (request.getfixturevalue(f"{longer}{what}") for what in ("entry", "home"))
    folder = copied(entry, tmp_path / "results")
    forge(folder)
    verb, *flags = command.split()
    if name.startswith("anothers_curve_is_copied"):
        (folder,) = [p.parent for p in folder.parents[1].rglob(PACKED) if p.parent != folder]
    else:
        folder = moved(folder)
    done = crlbench("--quiet", verb, folder, *flags, catalog=home)
    assert done.returncode == {"validate": 3, "verify": 5}[verb], done.stdout + done.stderr
    assert re.search(words, done.stdout + done.stderr), done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_there_are_enough() -> None:
    assert len(FORGERIES) >= 200
    assert {*ALWAYS.values(), *REPLAYED} <= {*FORGERIES}


def test_the_honest_entry_is_accepted(entry: Path, home: Path) -> None:
    done = crlbench("--quiet", "validate", entry, catalog=home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "keeps every rule" in done.stdout


def test_files_that_were_made_again_are_accepted(entry: Path, home: Path, tmp_path: Path) -> None:
    folder = copied(entry, tmp_path / "results")
    start = "0123456789ab"
    for name in (f"{start}/addition_id.npz", f"{start}/_retain.npz", f"{CELL}/curve.csv"):
        event("rebuilt", name, reason="it was damaged")(folder)
    done = crlbench("--quiet", "validate", folder, catalog=home)
    assert done.returncode == 0, done.stdout + done.stderr
