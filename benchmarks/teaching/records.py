"""The study's records: a compressed file of lines for each start, whose cells are kept one by one.

A line ``start`` says what the start model answers on a task, all other lines what one cell did.
Answers are right or wrong, so vectors are bits as hexadecimal digits; counts of right draws are
bytes. Everything that the analysis reads is here, and the weights are not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crlbench.disk.names import RECORD_NAME
from crlbench.disk.rowfiles import packed, unpacked
from crlbench.disk.unpacking import BadArchive
from crlbench.errors import ValidationError
from crlbench.stats.measures import GREEDY, ID, PASS, PASS_SPLITS
from crlbench.verdict.load import load_runs
from crlbench.verdict.run_curve import before_failure
from crlbench.verdict.runs import Run

Key = tuple[str, str, int]
"""Task, arm and seed."""


@dataclass(frozen=True)
class StartScores:
    """What a start model answers on one task, before any run."""

    task: str
    weights: str
    """SHA-256 over the digests of the weight files."""
    fingerprint: str
    floor: float
    ceiling: float
    greedy: np.ndarray
    """(N,) bool. Whether the greedy answer of each ID item is right."""
    draws: np.ndarray
    """(D, N) bool. The draws of the start score."""
    passes: Mapping[str, np.ndarray]
    """(N,) right ones of the many draws, by split."""


@dataclass(frozen=True)
class CellScores:
    """What one run did."""

    key: Key
    state: str
    rule: str
    grid: int
    """Intervals of a whole curve."""
    curve: np.ndarray
    """(points, N) bool. Fewer than ``grid`` + 1 points where the run failed."""
    greedy: np.ndarray | None
    """(N,) bool. At the end; None of control arms and of failed runs."""
    passes: Mapping[str, np.ndarray]
    """As of the start, at the end; empty like ``greedy``."""
    record: str
    """SHA-256 of the record that it was taken from."""


@dataclass(frozen=True)
class StartRecords:
    """All that is kept of one start."""

    starts: dict[str, StartScores]
    cells: dict[Key, CellScores]


def read_records(path: Path) -> StartRecords:
    """The records of a start; empty where there are none yet.

    Raises:
        ValidationError: a line is malformed (says which).
    """
    found = StartRecords({}, {})
    try:
        lines = unpacked(path.read_bytes()).decode("utf-8").splitlines() if path.exists() else []
    except (BadArchive, UnicodeDecodeError) as error:
        again = "Take the file from the repository again."
        raise ValidationError(f"{path}: {error}. {again}") from None
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            if row["kind"] == "start":
                found.starts[row["task"]] = _start_of(row)
            else:
                cell = _cell_of(row)
                found.cells[cell.key] = cell
        except (KeyError, TypeError, ValueError) as error:
            raise ValidationError(
                f"{path}:{number}: no line of this study: {error!r}. Take the file from the "
                "repository again."
            ) from None
    return found


def write_records(path: Path, records: StartRecords) -> None:
    """Write a file of lines in one step."""
    rows = [_start_row(one) for _, one in sorted(records.starts.items())]
    rows += [_cell_row(one) for _, one in sorted(records.cells.items())]
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.with_suffix(".part")
    whole.write_bytes(packed(text.encode("utf-8")))
    whole.replace(path)


def collect(folder: Path, into: StartRecords) -> StartRecords:
    """The records with those of all runs below a folder that are not kept yet.

    Raises:
        ValidationError: a run is of other weights or conditions than what is kept, or one of its
            scores is neither 0 nor 1.
    """
    starts, cells = dict(into.starts), dict(into.cells)
    for run in load_runs(folder) if any(folder.rglob(RECORD_NAME)) else ():
        key = (run.task, run.arm, run.seed)
        if key in cells:
            continue
        start = start_scores(run)
        kept = starts.setdefault(run.task, start)
        _require_same(kept, start, run)
        cells[key] = cell_scores(run)
    return StartRecords(starts, cells)


def start_scores(run: Run) -> StartScores:
    """What the start model of a run answers on its task."""
    record = run.record
    files = json.dumps(record.subject.weights_sha256, sort_keys=True)
    return StartScores(
        task=run.task,
        weights=hashlib.sha256(files.encode()).hexdigest(),
        fingerprint=record.fingerprint.hash,
        floor=record.task.floor,
        ceiling=record.task.ceiling,
        greedy=_bits(run, GREEDY, end=False)[0],
        draws=_bits(run, ID, end=False),
        passes=_passes(run, end=False),
    )


def cell_scores(run: Run) -> CellScores:
    """What a run did."""
    record = run.record
    scored = record.splits[GREEDY].end is not None
    leaves = record.fingerprint.leaves
    points = leaves["conditions.budget.grid"] // leaves["conditions.evaluation.curve_every"]
    return CellScores(
        key=(run.task, run.arm, run.seed),
        state=record.status.state,
        rule=record.status.rule or "",
        grid=points,
        curve=_checked(run, run.curve_items()[: before_failure(record)]),
        greedy=_bits(run, GREEDY, end=True)[0] if scored else None,
        passes=_passes(run, end=True) if scored else {},
        record=hashlib.sha256((run.folder / RECORD_NAME).read_bytes()).hexdigest(),
    )


def _passes(run: Run, end: bool) -> dict[str, np.ndarray]:
    return {split: _bits(run, split + PASS, end).sum(axis=0) for split in PASS_SPLITS}


def _bits(run: Run, split: str, end: bool) -> np.ndarray:
    found = run.split_items(split, end=end)
    assert found is not None
    return _checked(run, found)


def _checked(run: Run, scores: np.ndarray) -> np.ndarray:
    if not np.isin(scores, (0.0, 1.0)).all():
        raise ValidationError(
            f"{run.name}: this study keeps answers that are right or wrong, and a score lies "
            "between 0 and 1. Choose another task."
        )
    return scores.astype(bool)


def _require_same(kept: StartScores, other: StartScores, run: Run) -> None:
    same = (kept.weights, kept.fingerprint) == (other.weights, other.fingerprint)
    vectors = ((kept.greedy, other.greedy), (kept.draws, other.draws))
    if not same or not all(np.array_equal(a, b) for a, b in vectors):
        raise ValidationError(
            f"{run.name}: its start or its conditions are not those of the records that are kept "
            f"(weights {other.weights[:12]} and {kept.weights[:12]}, conditions "
            f"{other.fingerprint} and {kept.fingerprint}). Runs of one start are made on one class "
            "of machine: continue there, or delete the file of this start and its runs."
        )


def _hex(bits: np.ndarray) -> str:
    return np.packbits(bits).tobytes().hex()


def _unhex(text: str, n: int) -> np.ndarray:
    return np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8), count=n).astype(bool)


def _counts(counts: Mapping[str, np.ndarray]) -> dict[str, str]:
    return {split: values.astype(np.uint8).tobytes().hex() for split, values in counts.items()}


def _uncounts(rows: Mapping[str, str]) -> dict[str, np.ndarray]:
    return {s: np.frombuffer(bytes.fromhex(t), np.uint8).astype(int) for s, t in rows.items()}


def _rows_of(texts: Iterable[str], n: int) -> np.ndarray:
    return np.stack([_unhex(text, n) for text in texts])


def _start_row(one: StartScores) -> dict[str, Any]:
    return {
        "kind": "start",
        "task": one.task,
        "weights": one.weights,
        "fingerprint": one.fingerprint,
        "floor": one.floor,
        "ceiling": one.ceiling,
        "items": len(one.greedy),
        "greedy": _hex(one.greedy),
        "draws": [_hex(row) for row in one.draws],
        "passes": _counts(one.passes),
    }


def _start_of(row: Mapping[str, Any]) -> StartScores:
    n = row["items"]
    return StartScores(
        task=row["task"],
        weights=row["weights"],
        fingerprint=row["fingerprint"],
        floor=row["floor"],
        ceiling=row["ceiling"],
        greedy=_unhex(row["greedy"], n),
        draws=_rows_of(row["draws"], n),
        passes=_uncounts(row["passes"]),
    )


def _cell_row(one: CellScores) -> dict[str, Any]:
    task, arm, seed = one.key
    row = {"kind": "cell", "task": task, "arm": arm, "seed": seed, "state": one.state}
    row |= {"rule": one.rule, "grid": one.grid, "items": one.curve.shape[1]}
    row |= {"curve": [_hex(point) for point in one.curve], "record": one.record}
    if one.greedy is not None:
        row |= {"greedy": _hex(one.greedy), "passes": _counts(one.passes)}
    return row


def _cell_of(row: Mapping[str, Any]) -> CellScores:
    n = row["items"]
    return CellScores(
        key=(row["task"], row["arm"], row["seed"]),
        state=row["state"],
        rule=row["rule"],
        grid=row["grid"],
        curve=_rows_of(row["curve"], n),
        greedy=_unhex(row["greedy"], n) if "greedy" in row else None,
        passes=_uncounts(row.get("passes", {})),
        record=row["record"],
    )
