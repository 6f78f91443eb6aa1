"""Runs the rows: board by board, each from draws of its own, so that no order matters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import numpy as np

import crlbench.stats
import crlbench.verdict
from crlbench.seeding import derive

from . import measures, nulls
from .protocol2 import MEASURES
from .rows import Row

CHUNK = 10
"""Boards that a process takes at a time."""
OWN = ("setting", "truth", "world", "scores", "measures", "nulls", "spreads", "protocol2", "arms")

Columns = dict[str, np.ndarray]
"""(boards,) per thing that was counted."""


def one(row: Row, board: int, seed: int, count: int) -> dict[str, float]:
    """What board number ``board`` of a row says."""
    generator = np.random.Generator(np.random.PCG64(derive(seed, row.name, board)))
    if row.kind == "nulls":
        return nulls.bias(row.shape, row.grid, generator, board % 40)
    if row.kind == "forgetting":
        return nulls.forgetting_bias(generator, board % 40)
    if row.kind in MEASURES:
        scene, draws = row.scene or row.world, derive(seed, row.name, board, "draws")
        return MEASURES[row.kind](scene, generator, draws, count)
    measure = measures.intervals if row.kind == "intervals" else measures.wins
    return measure(row.world, generator, derive(seed, row.name, board, "draws"), count)


def _some(row: Row, first: int, last: int, seed: int, count: int) -> list[dict[str, float]]:
    return [one(row, board, seed, count) for board in range(first, last)]


def simulate_row(
    row: Row, boards: int, seed: int, count: int, pool: ProcessPoolExecutor | None
) -> Columns:
    """All boards of a row; the same for any number of processes."""
    starts = range(0, boards, CHUNK)
    ends = [min(boards, start + CHUNK) for start in starts]
    rest = [[value] * len(ends) for value in (seed, count)]
    run = map if pool is None else pool.map
    found = [board for part in run(_some, [row] * len(ends), starts, ends, *rest) for board in part]
    keys = sorted({key for board in found for key in board})
    return {key: np.array([board.get(key, np.nan) for board in found]) for key in keys}


def simulate_rows(
    rows: Sequence[tuple[Row, int]],
    seed: int,
    count: int,
    jobs: int = 1,
    kept: Path | None = None,
) -> Iterator[tuple[Row, Columns]]:
    """Each row, with its number of boards, as it is done.

    Rows that ``kept`` holds for the same code are read from there.
    """
    with ProcessPoolExecutor(jobs) if jobs > 1 else nullcontext() as pool:
        for row, boards in rows:
            path = None if kept is None else kept / f"{_key(row, boards, seed, count)}.json"
            if path is not None and path.exists():
                stored = json.loads(path.read_text(encoding="utf-8"))["values"]
                yield row, {name: np.array(column) for name, column in stored.items()}
                continue
            found = simulate_row(row, boards, seed, count, pool)
            if path is not None:
                kept.mkdir(parents=True, exist_ok=True)
                plain = {name: column.tolist() for name, column in found.items()}
                partial = path.with_suffix(".part")
                content = {"row": row.name, "boards": boards, "values": plain}
                partial.write_text(json.dumps(content), "utf-8")
                partial.replace(path)
            yield row, found


def _key(row: Row, boards: int, seed: int, count: int) -> str:
    """Of a stored row: what was asked for and the code that answers."""
    rooms = [Path(room.__file__).parent for room in (crlbench.stats, crlbench.verdict)]
    files = sorted(path for room in rooms for path in room.glob("*.py"))
    files += [Path(__file__).with_name(f"{name}.py") for name in OWN]
    code = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    return hashlib.sha256(f"{row}|{boards}|{seed}|{count}|{code}".encode()).hexdigest()[:16]
