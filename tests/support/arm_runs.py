"""Real runs of a bundled model under protocol CRL-2, with all arms, and forged ones among them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.contract.record_files import read_record
from crlbench.contract.records import RunRecord
from crlbench.disk.toml import dump_toml, read_toml
from tests.support.shared import made_once
from tests.support.tampering import seal
from tests.support.tracks import MINI_1

TRACK = "arms"
MODEL = "tiny-llama"
TASK = "counting"
"""The start model answers three in ten of its items wrongly when it decodes greedily."""


def write_track(root: Path) -> Path:
    """A --catalog with a small track of protocol CRL-2."""
    track = read_toml(MINI_1)
    track = {name: track[name] for name in ("version", "summary", "conditions")}
    track |= {"id": TRACK, "protocol": "CRL-2", "ranked": False, "tasks": [TASK]}
    conditions = track["conditions"]
    conditions["budget"] |= {"prompts": 16, "completions": 4, "grid": 3}
    conditions["evaluation"] |= {"curve_items": 96, "end_items": 24, "pass_draws": 32}
    conditions["evaluation"] |= {"retain": ["copy"], "retain_items": 8}
    path = root / "leaderboard" / "tracks" / f"{TRACK}.toml"
    path.parent.mkdir(parents=True)
    path.write_text(dump_toml(track))
    return root


def train(catalog: Path, out: Path, *arms: str, seeds: int = 2) -> Path:
    """The folder of an entry, trained from scratch."""
    where = ["--track", TRACK, "--model", MODEL, "--out", str(out), "--jobs", "1", "-q"]
    how = ["--arm", ",".join(arms), "--seeds", str(seeds), "--logger", "none"]
    assert cli.main(["--catalog", str(catalog), "evaluate", *where, *how]) == 0
    (plan,) = out.rglob("plan.json")
    return plan.parent


def forge(run: Path, catalog: Path, place: Path) -> RunRecord:
    """Make a stored run again in this process, as whatever was patched in it would, and put it in
    the place of the honest one with every digest right."""
    # Every test process imports this file, and few of them train.
    from crlbench.proof.replay import cell_of
    from crlbench.run.execute import run_cell

    record = read_record(run / "record.json", own=True)
    cell = cell_of(record, MODEL, [TASK], Catalog([str(catalog)]), place, None)
    cell = cell.model_copy(update={"confined": False})
    forged = run_cell(cell, lambda _: None, lambda: False)
    for name in [*record.files, "record.json"]:
        shutil.copyfile(Path(cell.folder) / name, run / name)
    body = json.loads((run / "record.json").read_text())
    body["volatile"] = record.volatile
    (run / "record.json").write_text(json.dumps(body))
    seal(run)
    return forged


@pytest.fixture(scope="session")
def arms_catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "arms-catalog", write_track)


@pytest.fixture(scope="session")
def trained_arms(arms_catalog: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An entry with two seeds of each arm; only to be read."""

    def run(home: Path) -> Path:
        return train(arms_catalog, home / "runs", "real", "placebo", "mode", "stress", "wrong")

    return made_once(tmp_path_factory, "trained-arms", run)
