"""A stored run, changed by somebody who hashes everything again as it was."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from crlbench.contract.conditions import fingerprint
from crlbench.contract.records import RunRecord
from crlbench.disk.hashing import canonical_json
from crlbench.disk.linked_lines import linked
from crlbench.run.store import packed_arrays, write_bytes

Edit = Callable[[dict[str, Any]], None]


def edit_record(run: Path, edit: Edit) -> None:
    """Change the record of a run, and seal everything again."""
    record = json.loads((run / "record.json").read_text())
    edit(record)
    (run / "record.json").write_text(canonical_json(record))
    seal(run)


def edit_items(run: Path, edit: Callable[[dict[str, np.ndarray]], None]) -> None:
    """Change the item vectors of a run, and seal everything again."""
    with np.load(io.BytesIO((run / "items.npz").read_bytes())) as archive:
        vectors = {name: archive[name] for name in archive.files}
    edit(vectors)
    write_bytes(run / "items.npz", packed_arrays(vectors))
    seal(run)


def edit_samples(run: Path, edit: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the stored completions of a run, and seal everything again."""
    path = run / "samples.jsonl.zst"
    with zstandard.ZstdDecompressor().stream_reader(path.read_bytes()) as stream:
        rows = [json.loads(line) for line in stream.read().splitlines()]
    edit(rows)
    text = "".join(canonical_json(row) + "\n" for row in rows)
    path.write_bytes(zstandard.ZstdCompressor().compress(text.encode()))
    seal(run)


def edit_digests(run: Path, edit: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the digests of a run, and seal everything again."""
    path = run / "digests.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    edit(rows)
    path.write_text("".join(canonical_json(row) + "\n" for row in rows))
    seal(run)


def seal(run: Path) -> None:
    """Make files, record, plan and ledger fit together again."""
    data = json.loads((run / "record.json").read_text())
    for name, stated in data["files"].items():
        content = (run / name).read_bytes()
        stated |= {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    data["digest_root"] = data["files"]["digests.jsonl"]["sha256"]
    data["fingerprint"]["hash"] = fingerprint(data["fingerprint"]["leaves"])
    record = RunRecord.model_validate(data).sealed()
    text = canonical_json(record.model_dump(mode="json")) + "\n"
    (run / "record.json").write_text(text)
    ledger = run.parents[2] / "ledger.jsonl"
    entries: list[dict[str, Any]] = []
    for line in ledger.read_text().splitlines():
        entry = json.loads(line)
        if entry["event"] == "done" and entry["cell"].endswith("/".join(run.parts[-3:])):
            entry["detail"] |= {
                "record_id": record.record_id,
                "record_sha256": hashlib.sha256(text.encode()).hexdigest(),
                "items_sha256": data["files"]["items.npz"]["sha256"],
            }
            entry["event"] = "failed" if record.status.state == "failed" else "done"
        rest = {name: value for name, value in entry.items() if name not in ("hash", "previous")}
        entries.append(linked(entries, rest))
    ledger.write_text("".join(canonical_json(entry) + "\n" for entry in entries))
