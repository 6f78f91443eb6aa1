"""How many cells this machine can run at once: its cores, and its memory where a need is known."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from crlbench.records import Cell
from crlbench.run.environment import cores
from crlbench.run.plan import RECORD_NAME, read_record

PROCESS_BYTES = 500_000_000
"""Of a worker without any model: its libraries, and its prompts."""
LEARNED_BYTES = 16
"""A parameter that learns: itself, its gradient and two optimizer moments, in float32."""
FROZEN_BYTES = 2
"""A parameter of the start model."""


def jobs_for(
    wanted: str | int,
    threads: int,
    cells: int,
    device: str = "cpu",
    need: int | None = None,
    free: int | None = None,
) -> int:
    """How many cells run at once: at least 1, never more than there are cells.

    ``auto`` is the number of whole cells that fit on the cores this process may use and, where
    both figures are known, in memory; one on an accelerator.

    Args:
        wanted: ``auto`` or a number, which is taken as it is.
        threads: Of a cell.
        cells: How many there are to run.
        device: Where they train.
        need: Bytes of memory of a cell.
        free: Bytes of memory that are available.
    """
    if wanted == "auto":
        wanted = cores() // threads if device == "cpu" else 1
        if need and free is not None:
            wanted = min(wanted, free // need)
    return max(1, min(int(wanted), cells))


def least_bytes(total: int, learned: int) -> int:
    """Memory that a cell of a model takes before it has any activations.

    Args:
        total: Parameters of the model.
        learned: Those that learn.
    """
    return PROCESS_BYTES + FROZEN_BYTES * total + LEARNED_BYTES * learned


def seen_bytes(done: Iterable[Cell]) -> int:
    """The largest peak that the records of finished cells tell of; 0 without any."""
    records = (read_record(Path(cell.folder) / RECORD_NAME) for cell in done)
    return max((record.volatile.get("peak_memory_bytes", 0) for record in records), default=0)


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes that processes started now can have without swapping; None where nobody says.

    The least of what the system and the control group of this process leave; ``root`` is where
    /proc and /sys are.
    """
    found = [_of_system(root / "proc/meminfo"), _of_group(root / "sys/fs/cgroup")]
    return min((size for size in found if size is not None), default=None)


def _of_system(path: Path) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    sizes = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(sizes[0]) * 1024 if sizes else None


def _of_group(folder: Path) -> int | None:
    """Of a container: its limit less what it holds, file cache aside; None without a limit."""
    try:
        limit = int((folder / "memory.max").read_text())
        held = int((folder / "memory.current").read_text())
        statistics = dict(
            line.split() for line in (folder / "memory.stat").read_text().splitlines()
        )
    except (OSError, ValueError):
        return None
    return max(0, limit - held + int(statistics.get("inactive_file", 0)))
