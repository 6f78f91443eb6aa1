"""What results are named by, computed from the code and the catalogue of today.

``python -m tests.identities.pinned`` writes the file that ``test_pinned.py`` compares with. A line
of it that changes takes the name from results that have it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from crlbench.algo import recipes
from crlbench.algo.recipe import Recipe, to_config
from crlbench.catalog.find import Catalog
from crlbench.commands.job import cards_of, choose, plan_of
from crlbench.commands.settings import Settings
from crlbench.contract.records import RunRecord
from crlbench.contribute.results.layout import find_entries
from crlbench.disk.names import RECORD_NAME
from crlbench.disk.packed import PACKED, unpack
from crlbench.run.archive import open_board
from crlbench.run.board import Request, make_board

ROOT = Path(__file__).parents[2]
PINNED = Path(__file__).with_name("pinned.json")
RESULTS = ROOT / "leaderboard" / "results"
TRACKS = ("mini@1", "mini@2", "small@1", "core@0", "preference@1", "play@2")
MINI = "mini@1"
"""The track of the plans, at the version that the stored results have."""
MODEL = "tiny-llama"


def fingerprints() -> dict[str, str]:
    """Of every pinned version of a bundled track, with all its tasks."""
    opened = {spec: open_board(Catalog(), spec) for spec in TRACKS}
    return {
        spec: make_board(one.catalog, one.track, Request())[0].fingerprint
        for spec, one in opened.items()
    }


def configurations() -> dict[str, str]:
    """SHA-256 of the JSON text of every recipe's configuration, in the order of its fields."""
    texts = {name: json.dumps(to_config(recipes.load(name))) for name in recipes.names()}
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}


def plans() -> dict[str, str]:
    """By recipe on rewards, the plan hash of ``evaluate --model tiny-llama --track mini@1``."""
    opened = open_board(Catalog(), MINI)
    catalog = opened.catalog
    board, tasks, _ = make_board(catalog, opened.track, Request())
    (model,) = cards_of([MODEL], catalog).items()
    asked = Settings(fresh=True, out="no-such-folder")
    return {
        name: plan_of(board, model, choose(name, catalog), tasks, asked, catalog).hash
        for name in recipes.names_of(Recipe)
    }


def entries() -> dict[str, str]:
    """Of each stored entry, SHA-256 over the ids of its records as they are computed today."""
    return {
        entry.relative_to(RESULTS).as_posix(): digest_of_ids(name_ids(entry))
        for entry in find_entries(RESULTS)
    }


def digest_of_ids(ids: Mapping[str, str]) -> str:
    """Over the sorted names and ids of the records of an entry."""
    return hashlib.sha256("\n".join(sorted(map(" ".join, ids.items()))).encode()).hexdigest()


def name_ids(entry: Path) -> dict[str, str]:
    """The ids of an entry's records, as they are computed today, by name in its archive.

    Raises:
        AssertionError: a record states another one.
    """
    found = {}
    for name, record in records(entry):
        found[name] = record.content_id()
        assert record.record_id == found[name], f"{entry}: {name}"
    return found


def records(entry: Path) -> Iterator[tuple[str, RunRecord]]:
    """The records of an entry by their names in its archive."""
    for name, content in unpack((entry / PACKED).read_bytes()).items():
        if name.endswith(f"/{RECORD_NAME}"):
            yield name, RunRecord.model_validate_json(content)


def found() -> dict[str, Any]:
    """Everything that is pinned."""
    return {
        "fingerprints": fingerprints(),
        "configurations": configurations(),
        "plans": plans(),
        "entries": entries(),
    }


if __name__ == "__main__":
    PINNED.write_text(json.dumps(found(), indent=1, sort_keys=True) + "\n")
