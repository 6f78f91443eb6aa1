"""The sound inputs that are mutated: made anew for each campaign, the same bytes every time."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crlbench.contract.attempts import LEDGER_NAME
from crlbench.contract.records import RunRecord
from crlbench.disk import rowfiles
from crlbench.disk.hashing import canonical_json, digest
from crlbench.disk.linked_lines import GENESIS

ROOT = Path(__file__).resolve().parents[2]
EVALUATE = (
    *("evaluate", "--model", "tiny-llama", "--tasks", "addition", "--seeds", "1", "--smoke"),
    *("--limit", "8", "--logger", "none", "--no-progress", "--quiet", "--jobs", "1"),
)


def part(corpus: Path, name: str, make: Callable[[Path], object]) -> Path:
    """The part of the corpus with this name, made where it is not there yet."""
    path = corpus / name
    if not path.exists():
        partial = corpus / f".{name}.{os.getpid()}"
        partial.mkdir()
        make(partial)
        partial.rename(path)
    return path


def runs(corpus: Path) -> Path:
    """The run folder of one real run: plan, ledger, one cell and the scores of the start."""
    (plan,) = part(corpus, "runs", _evaluate).glob("*/*/*/plan.json")
    return plan.parent


def cell(corpus: Path) -> Path:
    """The folder of the one cell."""
    (record,) = runs(corpus).rglob("record.json")
    return record.parent


def study(corpus: Path) -> Path:
    """The folder of a study beside the runs that it names."""
    (stored,) = part(corpus, "study", _simulate).rglob("study.json")
    return stored.parent


def _evaluate(folder: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "crlbench", *EVALUATE, "--out", str(folder)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    for weights in folder.rglob("*.safetensors"):
        weights.unlink()
    for record in folder.rglob("record.json"):
        _settle_record(record)
    for ledger in folder.rglob(LEDGER_NAME):
        _settle_ledger(ledger)
    for page in [*folder.rglob("report.html"), *folder.rglob("summary.json")]:
        page.unlink()


def _settle_record(path: Path) -> None:
    """Without what no two runs share, and without the machine."""
    data = json.loads(path.read_text()) | {"volatile": {}}
    data["environment"] = {"hardware_class": data["environment"].get("hardware_class")}
    data["crlbench"] |= {"git": None, "dirty": None}
    path.write_text(canonical_json(RunRecord.model_validate(data).sealed().model_dump(mode="json")))


def _settle_ledger(path: Path) -> None:
    """The same events at a fixed time, without the records' names, chained anew."""
    previous, lines = GENESIS, []
    for line in path.read_text().splitlines():
        entry = json.loads(line) | {"time": "2026-01-01T00:00:00Z", "host": "h"}
        entry["detail"].pop("record_id", None)
        entry.pop("hash")
        entry["previous"] = previous
        previous = digest(entry)
        lines.append(canonical_json(entry | {"hash": previous}) + "\n")
    path.write_text("".join(lines))


def _simulate(folder: Path) -> None:
    from tests.support.simulate import Plan, Trial, write_study

    base = Plan(tasks=("addition",), seeds=2, items=8)
    flip = Plan(tasks=("addition",), seeds=2, items=8, recipe="ppo+clip.high=0.3")
    write_study(folder, Trial(base, (flip,), seeds=2))


def task(corpus: Path) -> Path:
    """A --catalog folder with one frozen task of few rows, a model, a track and recipes."""
    return part(corpus, "catalog", _catalogue)


ROWS = 12


def _catalogue(folder: Path) -> None:
    from crlbench.catalog.rows import read_rows
    from crlbench.disk.toml import dump_toml, read_toml

    target = folder / "tasks" / "judged"
    target.mkdir(parents=True)
    source = ROOT / "tasks" / "judged"
    card = read_toml(source / "frozen.toml")
    for entry in (*card["splits"].values(), *card["pairs"].values()):
        rows = read_rows(source / entry["file"]).splitlines(keepends=True)[:ROWS]
        (target / entry["file"]).write_bytes(b"".join(rows))
        entry |= {"sha256": hashlib.sha256(b"".join(rows)).hexdigest(), "count": len(rows)}
    (target / "frozen.toml").write_text(dump_toml(card))
    shutil.copy(source / "task.py", target)
    shutil.copytree(ROOT / "leaderboard" / "tracks", folder / "leaderboard" / "tracks")
    (folder / "recipes").mkdir()
    for name, text in RECIPES.items():
        (folder / "recipes" / name).write_text(text)


RECIPES = {
    "wide.toml": 'name = "wide"\nabout = "A wider clip."\nbase = "grpo+clip.high=0.4"\n'
    'entropy_bonus = 0.01\n[kl]\npart = "kl-in-loss"\ncoefficient = 0.1\n',
    "small.toml": 'base = "ppo"\naggregate = "token-mean"\n[clip]\nhigh = 0.3\n',
}


def texts(*names: str) -> list[bytes]:
    """Files of the checkout, as patterns name them."""
    return [path.read_bytes() for name in names for path in sorted(ROOT.glob(name))]


def first_lines(path: Path, count: int = ROWS) -> bytes:
    """The first lines of a split file, which may stand compressed."""
    place = rowfiles.standing(path)
    data = place.read_bytes()
    text = data if place == path else rowfiles.unpacked(data)
    return b"".join(text.splitlines(keepends=True)[:count])


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file_entry(data: bytes) -> dict[str, Any]:
    """What a record says of a file."""
    return {"sha256": sha256(data), "bytes": len(data)}
