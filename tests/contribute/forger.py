"""A forger with every tool: whatever is edited, all hashes are made to fit again."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from crlbench.contract.attempts import LEDGER_NAME, plan_hash
from crlbench.contract.conditions import fingerprint
from crlbench.contract.records import RunRecord
from crlbench.disk.hashing import canonical_json, digest
from crlbench.disk.linked_lines import GENESIS, linked
from crlbench.disk.names import PLAN_NAME
from crlbench.disk.packed import PACKED, pack, unpack
from crlbench.run.store import packed_arrays
from crlbench.seeding import seed_value

Json = dict[str, Any]
QUICK = 1
"""The level of a forged archive's compression, which no reader looks at."""


class Forger:
    """An entry taken apart; :meth:`write` puts it together, consistent by every hash."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan: Json = json.loads((folder / PLAN_NAME).read_text())
        self.ledger: list[Json] = [
            json.loads(line) for line in (folder / LEDGER_NAME).read_text().splitlines()
        ]
        files = unpack((folder / PACKED).read_bytes())
        self.runs: dict[str, dict[str, bytes]] = {}
        for name, content in files.items():
            cell, _, file = name.rpartition("/")
            self.runs.setdefault(cell, {})[file] = content

    def record(self, cell: str) -> Json:
        return json.loads(self.runs[cell]["record.json"])

    def edit(self, cell: str, change: Callable[[Json], Any]) -> None:
        """Change a record's fields."""
        record = self.record(cell)
        change(record)
        self.runs[cell]["record.json"] = f"{canonical_json(record)}\n".encode()

    def items(self, cell: str) -> dict[str, np.ndarray]:
        with np.load(io.BytesIO(self.runs[cell]["items.npz"])) as stored:
            return {name: stored[name] for name in stored.files}

    def put_items(self, cell: str, arrays: dict[str, np.ndarray]) -> None:
        """Exchange the item vectors, and the scores that follow from them."""
        self.runs[cell]["items.npz"] = packed_arrays(arrays)

        def rescore(record: Json) -> None:
            for point in record["curve"]:
                point["score"] = float(arrays[point["items_ref"]].astype(float).mean())
            for split in record["splits"].values():
                for side in ("start", "end"):
                    if split[f"{side}_ref"]:
                        vector = arrays[split[f"{side}_ref"]]
                        split[side] = float(vector.astype(float).mean())

        self.edit(cell, rescore)

    def lines(self, cell: str, name: str) -> list[Json]:
        content = self.runs[cell][name]
        if name.endswith(".zst"):
            content = zstandard.ZstdDecompressor().decompressobj().decompress(content)
        return [json.loads(line) for line in content.splitlines()]

    def put_lines(self, cell: str, name: str, rows: list[Json]) -> None:
        content = "".join(canonical_json(row) + "\n" for row in rows).encode()
        self.runs[cell][name] = zstandard.compress(content) if name.endswith(".zst") else content

    def drop(self, cell: str) -> None:
        """Remove a run and every word of the ledger about it."""
        del self.runs[cell]
        self.ledger = [e for e in self.ledger if not (e["cell"] or "").endswith(f"/{cell}")]

    def declare(self, **changes: Any) -> None:
        """Change the plan everywhere: beside the runs, in the ledger, in the records."""
        self.plan |= changes
        for event in self.ledger:
            if event["event"] == "plan":
                event["detail"] = dict(self.plan)

    def write(self, folder: Path | None = None) -> Path:
        """Make every hash fit and write the entry."""
        target = folder or self.folder
        self.plan["plan_hash"] = plan_hash(self.plan)
        for event in self.ledger:
            if event["event"] == "plan":
                event["detail"]["plan_hash"] = plan_hash(event["detail"])
        for cell in self.runs:
            self.edit(cell, lambda record, cell=cell: self._sealed(cell, record))
        self._rechain()
        target.mkdir(parents=True, exist_ok=True)
        (target / PLAN_NAME).write_text(canonical_json(self.plan) + "\n")
        text = "".join(canonical_json(event) + "\n" for event in self.ledger)
        (target / LEDGER_NAME).write_text(text)
        files = {f"{c}/{n}": content for c, run in self.runs.items() for n, content in run.items()}
        (target / PACKED).write_bytes(pack(files, QUICK))
        if target != self.folder:
            (target / "submission.json").write_bytes((self.folder / "submission.json").read_bytes())
        return target

    def _sealed(self, cell: str, record: Json) -> None:
        record["plan_hash"] = self.plan["plan_hash"]
        record["fingerprint"]["hash"] = fingerprint(record["fingerprint"]["leaves"])
        for name, content in self.runs[cell].items():
            if name != "record.json":
                stated = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
                record["files"][name] = stated
        record["digest_root"] = record["files"]["digests.jsonl"]["sha256"]
        body = RunRecord.model_validate(record)
        record["record_id"] = body.content_id()

    def _rechain(self) -> None:
        previous = GENESIS
        for number, event in enumerate(self.ledger):
            cell = "/".join((event["cell"] or "").split("/")[-3:])
            if event["event"] in ("start", "resume"):
                event["detail"]["plan_hash"] = self.plan["plan_hash"]
            if event["event"] in ("done", "failed") and cell in self.runs:
                record = self.record(cell)
                event["detail"]["record_id"] = record["record_id"]
                event["detail"]["items_sha256"] = record["files"]["items.npz"]["sha256"]
                written = self.runs[cell]["record.json"]
                event["detail"]["record_sha256"] = hashlib.sha256(written).hexdigest()
            event |= {"n": number, "previous": previous}
            event.pop("hash", None)
            event["hash"] = previous = digest(event)


def extended(folder: Path, seeds: int) -> Path:
    """Add runs to an entry that nobody made, by a plan of more seeds; what stands stays.

    Each is another run of its task with two points of its curve exchanged, losses of its own,
    digests of nothing, and every hash right.
    """
    plan: Json = json.loads((folder / PLAN_NAME).read_text())
    ledger = [json.loads(line) for line in (folder / LEDGER_NAME).read_text().splitlines()]
    files = unpack((folder / PACKED).read_bytes())
    before = plan["arms"]["real"]
    plan["arms"] = plan["arms"] | {"real": seeds}
    plan["seeds"] = {
        task: [{"index": i, "value": seed_value(plan["protocol"], task, i)} for i in range(seeds)]
        for task in plan["seeds"]
    }
    plan["plan_hash"] = plan_hash(plan)
    head = {"cell": None, "event": "plan", "detail": plan}
    events: list[Json] = [head]
    model = f"{plan['model']['name']}@{plan['model']['revision8']}/{plan['recipe']['name']}"
    for task in plan["tasks"]:
        for index in range(before, seeds):
            cell = f"{task}/real/seed-{index:02d}"
            run = _invented(files, f"{task}/real/seed-{index - before:02d}", plan, task, index)
            run["record.json"] = _worked_at(run["record.json"], ledger[-1]["time"])
            files |= {f"{cell}/{name}": content for name, content in run.items()}
            record = json.loads(run["record.json"])
            name = f"{model}/{cell}"
            cited = {"attempt": 1, "plan_hash": plan["plan_hash"]}
            ended = {
                "items_sha256": record["files"]["items.npz"]["sha256"],
                "record_id": record["record_id"],
            }
            events.append({"cell": name, "event": "start", "detail": cited})
            events.append({"cell": name, "event": "done", "detail": ended})
    for event in events:
        body = event | {"time": ledger[-1]["time"], "host": ledger[-1]["host"]}
        ledger.append(linked(ledger, body))
    (folder / PLAN_NAME).write_text(canonical_json(plan) + "\n")
    (folder / LEDGER_NAME).write_text("".join(canonical_json(e) + "\n" for e in ledger))
    (folder / PACKED).write_bytes(pack(files, QUICK))
    return folder


def _worked_at(content: bytes, time: str) -> bytes:
    """A record that says that its run was made at a time of the ledger."""
    record, moment = json.loads(content), datetime.fromisoformat(time).timestamp()
    record["volatile"]["attempts"][0] |= {"start": moment - 50, "end": moment + 50}
    return (canonical_json(record) + "\n").encode()


def _invented(
    files: dict[str, bytes], source: str, plan: Json, task: str, index: int
) -> dict[str, bytes]:
    """The files of a run like ``source``, of another seed."""
    run = {
        name: files[f"{source}/{name}"]
        for name in ("record.json", "items.npz", "digests.jsonl", "samples.jsonl.zst")
    }
    with np.load(io.BytesIO(run["items.npz"])) as stored:
        arrays = {name: stored[name] for name in stored.files}
    record = json.loads(run["record.json"])
    one, other = (point["items_ref"] for point in record["curve"][-2:])
    arrays[one], arrays[other] = arrays[other], arrays[one]
    run["items.npz"] = packed_arrays(arrays)
    rows = [json.loads(line) for line in run["digests.jsonl"].splitlines()]
    for number, row in enumerate(rows):
        row |= {name: digest([task, index, number, name]) for name in ("completions", "parameters")}
    run["digests.jsonl"] = "".join(canonical_json(row) + "\n" for row in rows).encode()
    for point in record["curve"]:
        point["score"] = float(arrays[point["items_ref"]].astype(float).mean())
    losses = record["health"]["loss"]
    # Those of the first iterations are also in the digests.
    losses[len(rows) :] = [loss and loss * (1 + 1e-6 * index) for loss in losses[len(rows) :]]
    record["seed"] = {"index": index, "value": seed_value(plan["protocol"], task, index)}
    record["plan_hash"] = plan["plan_hash"]
    for name, held in run.items():
        if name != "record.json":
            stated = {"sha256": hashlib.sha256(held).hexdigest(), "bytes": len(held)}
            record["files"][name] = stated
    record["digest_root"] = record["files"]["digests.jsonl"]["sha256"]
    record["record_id"] = RunRecord.model_validate(record).content_id()
    run["record.json"] = (canonical_json(record) + "\n").encode()
    return run
