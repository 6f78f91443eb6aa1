"""Reading many stored records: seconds and milliseconds a record, by part.

    python benchmarks/loading.py RUN [--records 10000]

The first run stored below RUN is copied to a temporary folder under other models and seeds, sealed
as a run seals it, and read as ``crlbench compare`` reads it: records with their digests, then every
item vector. ``plain`` reads a few of them through numpy's own reader and each record's canonical
form instead; it checks the same and serves as the yardstick. Both wall time and the process's own
processor time are printed: other work on the machine changes the second little.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from crlbench.contract.record_files import read_record
from crlbench.contract.records import RunRecord
from crlbench.disk.hashing import canonical_json
from crlbench.disk.names import ITEMS, RECORD_NAME
from crlbench.verdict.load import load_runs
from crlbench.verdict.runs import Run

SEEDS = 10
PLAIN = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--records", type=int, default=10_000)
    options = parser.parse_args()
    stored = min(options.run.rglob(RECORD_NAME), default=None)
    if stored is None:
        parser.error(f"{options.run}: holds no stored run; make one with crlbench evaluate")
    source = stored.parent
    with tempfile.TemporaryDirectory(prefix="crlbench-loading-") as folder:
        paths = multiply(source, Path(folder), options.records)
        names = (RECORD_NAME, ITEMS)
        size = sum((path.parent / name).stat().st_size for path in paths for name in names)
        print(f"{len(paths)} records, {size / len(paths) / 1000:.1f} kB each with their vectors")
        runs, records = timed(lambda: load_runs(folder, files="used"))
        show("records", records, len(paths))
        count, vectors = timed(lambda: sum(map(read_vectors, runs)))
        show("vectors", vectors, len(paths), f"{count // len(paths)} a record")
        show("total", (records[0] + vectors[0], records[1] + vectors[1]), len(paths))
        few = paths[:PLAIN]
        _, slow = timed(lambda: [plain(path) for path in few])
        show("plain", slow, len(few), f"of {len(few)}")


def multiply(source: Path, out: Path, count: int) -> list[Path]:
    """``count`` cells that are copies of one but for model and seed; their records."""
    record = read_record(source / RECORD_NAME)
    paths = []
    for number in range(count):
        index, model = number % SEEDS, f"{record.subject.slug}-{number // SEEDS:04d}"
        folder = out / model / record.task.name / record.arm / f"seed-{index:02d}"
        folder.mkdir(parents=True)
        shutil.copyfile(source / ITEMS, folder / ITEMS)
        subject = record.subject.model_copy(update={"slug": model})
        seed = record.seed.model_copy(update={"index": index})
        copy = record.model_copy(update={"subject": subject, "seed": seed}).sealed()
        paths.append(folder / RECORD_NAME)
        paths[-1].write_text(canonical_json(copy.model_dump(mode="json")) + "\n", encoding="utf-8")
    return paths


def read_vectors(run: Run) -> int:
    """Read every vector that a record refers to; how many."""
    found = [*run.curve_items()]
    found += [run.split_items(split, end) for split in run.record.splits for end in (False, True)]
    return len(found)


def plain(path: Path) -> RunRecord:
    """A record and its vectors without any of the shortcuts."""
    record = RunRecord.model_validate_json(path.read_bytes())
    assert record.record_id == record.content_id()
    items = path.parent / ITEMS
    assert hashlib.sha256(items.read_bytes()).hexdigest() == record.files[ITEMS].sha256
    with np.load(items, allow_pickle=False) as archive:
        for name in archive.files:
            vector = archive[name].astype(np.float64)
            assert vector.min() >= 0 and vector.max() <= 1
    return record


Seconds = tuple[float, float]
"""Wall time and processor time."""


def timed(work: Callable[[], Any]) -> tuple[Any, Seconds]:
    wall, processor = time.perf_counter(), time.process_time()
    result = work()
    return result, (time.perf_counter() - wall, time.process_time() - processor)


def show(part: str, seconds: Seconds, records: int, note: str = "") -> None:
    wall, processor = seconds
    each = 1000 * processor / records
    line = f"{part:8} {wall:7.2f} s, processor {processor:7.2f} s: {each:6.3f} ms a record  {note}"
    print(line.rstrip(), flush=True)


if __name__ == "__main__":
    main()
