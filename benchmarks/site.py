"""Building the site of many results: wall time, processor time and peak memory.

    python benchmarks/site.py [--records 10000] [--results DIR] [--keep DIR] [--once]

Entries are made from the committed ones, in turn: their item vectors are moved by as much as
models differ, scores and digests follow, and plan, ledger and records are sealed as a run seals
them. Then ``crlbench leaderboard build`` runs in a process of its own, three times: cold, with all
entries but one; again, from what was kept of them; and with that entry. Memory is that of the
process itself, of its largest worker, and of all together with shared pages counted once (PSS).
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from crlbench.base.parallel import spread
from crlbench.contract.attempts import LEDGER_NAME, plan_hash
from crlbench.contract.records import RunRecord
from crlbench.contribute.results.layout import SUBMISSION, find_entries
from crlbench.disk.arrays import read_arrays
from crlbench.disk.hashing import canonical_json
from crlbench.disk.linked_lines import linked
from crlbench.disk.names import ITEMS, PLAN_NAME, RECORD_NAME
from crlbench.disk.packed import PACKED, members, pack
from crlbench.seeding import derive
from crlbench.verdict.resources import leaderboard_folder

LEVEL = 9
"""Of the compression: that of a submission takes a second for each entry, and reads alike."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--results", type=Path, help="build these results; none are made")
    parser.add_argument("--keep", type=Path, help="where results are made, and stay")
    parser.add_argument("--once", action="store_true", help="build all results once, cold")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="crlbench-site-") as folder:
        results = options.results or (options.keep or Path(folder)) / "results"
        if options.results is None:
            print(f"{multiply(results, options.records)} records", flush=True)
        if options.once:
            measure("cold", results, Path(folder, "site"), "--no-cache")
        else:
            measure_thrice(Path(shutil.copytree(results, Path(folder, "copy"))), Path(folder))


def multiply(results: Path, records: int) -> int:
    """Make entries of committed ones until there are about so many records; how many."""
    bases = list(find_entries(leaderboard_folder() / "results"))
    sizes = [sum(name.endswith(RECORD_NAME) for name in members(base / PACKED)) for base in bases]
    wanted, count = [], 0
    while count + sizes[len(wanted) % len(bases)] <= records:
        count += sizes[len(wanted) % len(bases)]
        wanted.append((len(wanted), bases[len(wanted) % len(bases)]))
    spread(lambda each: write_entry(results, *each), wanted)
    return count


def write_entry(results: Path, number: int, base: Path) -> None:
    """One entry like ``base``, of another model."""
    slug = f"{base.parent.name.partition('@')[0]}-{number:04d}"
    stored = members(base / PACKED)
    generator = np.random.Generator(np.random.PCG64(derive(0, "benchmark", number)))
    skill = float(generator.normal(0.0, 0.04))
    plan = json.loads((base / PLAN_NAME).read_text(encoding="utf-8"))
    plan["model"]["name"] = slug
    plan["plan_hash"] = plan_hash(plan)
    files, ends = dict(stored), {}
    for name in stored:
        if not name.endswith(RECORD_NAME):
            continue
        cell = name.removesuffix(f"/{RECORD_NAME}")
        items, vectors = _moved(stored[f"{cell}/{ITEMS}"], skill, number, cell)
        record = _record(json.loads(stored[name]), slug, plan["plan_hash"], items, vectors)
        files[f"{cell}/{ITEMS}"] = items
        files[name] = f"{canonical_json(record.model_dump(mode='json'))}\n".encode()
        ends[cell] = (record.record_id, record.files[ITEMS].sha256)
    revision = base.parent.name.partition("@")[2]
    place = results / base.parts[-3] / f"{slug}@{revision}" / base.name
    place.mkdir(parents=True)
    (place / PACKED).write_bytes(pack(files, LEVEL))
    (place / PLAN_NAME).write_text(canonical_json(plan), encoding="utf-8")
    (place / SUBMISSION).write_bytes((base / SUBMISSION).read_bytes())
    ledger = _ledger(base / LEDGER_NAME, f"{slug}@{revision}", plan, ends)
    text = "".join(f"{canonical_json(line)}\n" for line in ledger)
    (place / LEDGER_NAME).write_text(text, "utf-8")


def _moved(
    packed: bytes, skill: float, number: int, cell: str
) -> tuple[bytes, dict[str, np.ndarray]]:
    """The vectors of a run with some answers turned; those of the start alike in all its seeds."""
    vectors = dict(read_arrays(packed))
    task = cell.partition("/")[0]
    for name, vector in vectors.items():
        if vector.dtype != np.uint8:
            continue
        of = task if name.startswith("start/") else cell
        if name.startswith("start/retain/"):
            of = "retain"
        draws = np.random.Generator(np.random.PCG64(derive(1, number, of, name)))
        draw = draws.random(vector.shape)
        share = 0.02 if name.startswith("start/") else 0.02 + abs(skill)
        vectors[name] = np.where(draw < share, skill > 0, vector).astype(np.uint8)
    text = io.BytesIO()
    np.savez(text, **vectors)
    return text.getvalue(), vectors


def _record(
    data: dict[str, Any], slug: str, plan: str, items: bytes, vectors: dict[str, np.ndarray]
) -> RunRecord:
    data["subject"]["slug"], data["subject"]["display_name"] = slug, slug
    data["plan_hash"] = plan
    data["files"][ITEMS] = {"sha256": hashlib.sha256(items).hexdigest(), "bytes": len(items)}
    for point in data["curve"]:
        point["score"] = float(vectors[point["items_ref"]].astype(np.float64).mean())
    for split in data["splits"].values():
        for side in ("start", "end"):
            if split[f"{side}_ref"] is not None:
                split[side] = float(vectors[split[f"{side}_ref"]].astype(np.float64).mean())
    return RunRecord.model_validate(data).sealed()


def _ledger(
    path: Path, model: str, plan: dict[str, Any], ends: dict[str, tuple[str, str]]
) -> list[dict[str, Any]]:
    """The ledger of the base as that of another model."""
    entries: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        body = json.loads(line)
        del body["hash"]
        if body["event"] == "plan":
            body["detail"] = plan
        elif body["cell"] is not None:
            recipe, _, cell = body["cell"].partition("/")[2].partition("/")
            body["cell"] = f"{model}/{recipe}/{cell}"
            if "plan_hash" in body["detail"]:
                body["detail"]["plan_hash"] = plan["plan_hash"]
            if "record_id" in body["detail"]:
                identity, items = ends[cell]
                body["detail"] |= {"record_id": identity, "items_sha256": items}
        entries.append(linked(entries, body))
    return entries


def measure_thrice(results: Path, folder: Path) -> None:
    """Build cold, from the cache, and with an entry that the cache does not know.

    Args:
        results: a copy, from which one entry is taken away for a while.
        folder: for the site and the cache.
    """
    groups: dict[tuple[str, str], list[Path]] = {}
    for entry in find_entries(results):
        groups.setdefault((entry.parts[-3], entry.name), []).append(entry)
    newest = max(groups.values(), key=len)[-1]  # where most must be ranked again
    aside, out, cache = folder / "aside", folder / "site", ("--cache", str(folder / "cache"))
    newest.rename(aside)
    measure("cold", results, out, *cache)
    measure("from the cache", results, out, *cache)
    aside.rename(newest)
    measure("with one new entry", results, out, *cache)


def measure(what: str, results: Path, out: Path, *more: str) -> None:
    """Build in a process of its own, and print what it took."""
    command = [sys.executable, "-m", "crlbench", "leaderboard", "build"]
    command += ["--results", str(results), "--out", str(out), "--quiet", *more]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peaks = {"itself": 0, "a worker": 0, "together": 0}
    watcher = threading.Thread(target=_watch, args=(process, peaks))
    watcher.start()
    code = process.wait()
    wall = time.perf_counter() - began
    watcher.join()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    if code:
        raise SystemExit(f"{' '.join(command)}: exit code {code}")
    pages = [path for path in out.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in pages)
    spent = [getattr(used, name) - getattr(before, name) for name in ("ru_utime", "ru_stime")]
    print(f"{what}: wall {wall:.1f} s, processor {spent[0]:.1f} s + {spent[1]:.1f} s system")
    print("peak memory, MB: " + ", ".join(f"{name} {kb / 1000:.0f}" for name, kb in peaks.items()))
    print(f"{len(pages)} files, {size / 1e6:.0f} MB; {os.cpu_count()} cores", flush=True)


def _watch(process: subprocess.Popen[bytes], peaks: dict[str, int]) -> None:
    """Keep the highest memory in kB of a process and of what it forks."""
    while process.poll() is None:
        together = 0
        for pid in _family(process.pid):
            own, shared = _memory(pid)
            together += shared
            who = "itself" if pid == process.pid else "a worker"
            peaks[who] = max(peaks[who], own)
        peaks["together"] = max(peaks["together"], together)
        time.sleep(0.1)


def _family(pid: int) -> list[int]:
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    except OSError:
        below = []
    return [pid, *(one for child in below for one in _family(int(child)))]


def _memory(pid: int) -> tuple[int, int]:
    """The peak resident set and the present proportional one of a process, kB."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
        return _field(status, "VmHWM:"), _field(rollup, "Pss:")
    except (OSError, ValueError, IndexError):  # it has ended
        return 0, 0


def _field(text: str, name: str) -> int:
    return int(text.partition(name)[2].split()[0])


if __name__ == "__main__":
    main()
