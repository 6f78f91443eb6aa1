"""What this machine has, what a cell needs of it, and how many cells it can run at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from crlbench.catalog.fetch import gguf_dir, model_dir
from crlbench.catalog.retain_panel import Member
from crlbench.contract.conditions import Conditions
from crlbench.contract.model_card import ModelCard
from crlbench.contract.record_files import read_record
from crlbench.contract.records import Cell
from crlbench.contract.task_card import TaskCard
from crlbench.disk.names import RECORD_NAME
from crlbench.errors import EnvironmentUnfit
from crlbench.launch.memory import FORMS, SHARE, Estimate, estimate, form_of, shape_of
from crlbench.launch.workload import work_by_bytes
from crlbench.run.environment import cores


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


def stated_config(card: ModelCard, home: Path | None) -> dict[str, Any] | None:
    """The config of a model as its entry or its checkpoint on this machine states it.

    None where neither does: a hub id without an entry, a checkpoint that was not fetched, a GGUF
    file that was not converted.
    """
    if card.config:
        return dict(card.config)
    if card.source.kind == "hub":
        return None
    try:
        folder = card.weights_dir or model_dir(card, home)
        if (file := card.source.gguf_file) is not None:
            folder = gguf_dir(card, file, card.weights_sha256.get(file, ""), home)
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, EnvironmentUnfit):
        return None
    return config if isinstance(config, dict) else None


def estimate_forms(
    card: ModelCard,
    conditions: Conditions,
    tasks: Sequence[TaskCard],
    members: Sequence[Member],
    home: Path | None,
    device: str = "cpu",
) -> dict[str, Estimate]:
    """What a cell of a model takes, by form: the entry's own first, then the others.

    Empty where its config cannot be read here, or is of an unknown kind.
    """
    config = stated_config(card, home)
    try:
        shape = shape_of(config or {}, card.params_total)
    except (KeyError, TypeError):
        return {}
    work = work_by_bytes(conditions, tasks, members, shape.vocabulary, device)
    work = replace(work, card=card_memory(device))
    entry_form = form_of(card, conditions.hardware.precision)
    forms = {form.name: form for form in (entry_form, *FORMS)} | {entry_form.name: entry_form}
    return {name: estimate(shape, form, work) for name, form in forms.items()}


def require_memory(name: str, estimates: dict[str, Estimate], free: int | None, what: str) -> None:
    """Refuse a model whose cell clearly needs more than there is.

    Args:
        estimates: By form, that of the model's entry first; empty where nothing is known.
        free: Bytes that are available; None where nobody says.
        what: Whose memory it is, in words.

    Raises:
        EnvironmentUnfit: says what is needed, what there is, and which forms would fit.
    """
    if not estimates or free is None:
        return
    entry, *others = estimates.values()
    if entry.peak * SHARE <= free:
        return
    fitting = [e for e in others if e.peak <= free]
    least = min(fitting, key=lambda e: e.peak, default=None)
    would = (
        "no other form of it would fit either"
        if least is None
        else f"{least.form.name} would need {gigabytes(least.peak)} (another entry)"
    )
    raise EnvironmentUnfit(
        f"model '{name}': a cell ({entry.form.name}) needs about {gigabytes(entry.peak)} of "
        f"{what}, {gigabytes(free)} are available; {would}. See: crlbench doctor --model {name}. "
        "--ignore-memory runs it all the same."
    )


def gigabytes(size: float) -> str:
    """``1.9 GB``."""
    return f"{size / 1e9:.1f} GB"


def seen_bytes(cells: Iterable[Cell]) -> int:
    """The largest peak that the records of finished cells tell of; 0 without any."""
    records = (read_record(Path(cell.folder) / RECORD_NAME, own=True) for cell in cells)
    return max((record.volatile.get("peak_memory_bytes", 0) for record in records), default=0)


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes that processes started now can have without swapping; None where nobody says.

    The least of what the system and the control group of this process leave; ``root`` is where
    /proc and /sys are.
    """
    sizes = [_of_system(root / "proc/meminfo"), _of_group(root / "sys/fs/cgroup")]
    return min((size for size in sizes if size is not None), default=None)


def _of_system(path: Path) -> int | None:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    sizes = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(sizes[0]) * 1024 if sizes else None


def _of_group(folder: Path) -> int | None:
    """Memory of a container: limit less what it holds, file cache aside; None without a limit."""
    try:
        limit = int((folder / "memory.max").read_text(encoding="utf-8"))
        used = int((folder / "memory.current").read_text(encoding="utf-8"))
        statistics = dict(
            line.split() for line in (folder / "memory.stat").read_text("utf-8").splitlines()
        )
    except (OSError, ValueError):
        return None
    return max(0, limit - used + int(statistics.get("inactive_file", 0)))


def card_memory(device: str) -> int | None:
    """Bytes of memory of the GPU where a cell trains; None on the CPU and where there is none."""
    if device == "cpu":
        return None
    import torch

    available = torch.cuda.is_available()
    return torch.cuda.get_device_properties(0).total_memory if available else None


def free_memory(device: str) -> tuple[int | None, str]:
    """Bytes that a cell can have where it trains, and whose they are in words."""
    if device == "cpu":
        return available_memory(), "memory"
    import torch

    what = "the GPU's memory"
    return (torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else None), what
