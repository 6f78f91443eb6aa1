"""What a result cost, in words: measured on the machine that made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized

from crlbench.base import wording
from crlbench.contract.arms import CONTROL_SEEDS
from crlbench.site.source import StoredBoard
from crlbench.verdict.census import PROVISIONAL_SEEDS, RANKED_SEEDS
from crlbench.verdict.entry import Entry

Cost = Mapping[str, float | None]
"""``seconds`` of one seed of all tasks, and ``memory`` of a run, of an entry's brief."""


def cost_words(cost: Cost) -> str:
    """``21 min, 2.41 GB``: of one seed of all tasks, and of a run; a dash where nothing is known.

    Args:
        cost: of an entry, as its brief has it.
    """
    return ", ".join(_parts(cost)) or wording.NONE


def seed_cost(cost: Cost, measured: Sequence[str], tasks: int, hardware: str | None) -> str:
    """``One seed of all 8 tasks: 5.7 min on cpu, 1.06 GB of memory.``; empty where nothing is
    known.

    Args:
        cost: of an entry, as its brief has it.
        measured: names of the tasks that the entry has results of.
        tasks: of the board.
        hardware: class of the machine that made the result.
    """
    seconds, memory = cost["seconds"], cost["memory"]
    if seconds is None and memory is None:
        return ""
    of = _every(tasks)
    if len(measured) < tasks:
        of = f"{wording.listed(measured, 3)} alone, {len(measured)} of {tasks} tasks"
    time = "" if seconds is None else f"{_time(seconds)}{_on(hardware)}"
    room = "" if memory is None else f"{wording.memory(memory)} of memory"
    return f"One seed of {of}: {', '.join(filter(None, (time, room)))}."


def rank_cost(cost: Cost, measured: int, tasks: int, controls: Sized) -> str:
    """What a provisional and a full rank on all axes take, one run after the other; empty where no
    time is known. Tasks without a result are taken to cost as much as the others.

    Args:
        measured: tasks that the entry has results of.
        tasks: of the board.
        controls: arms that they need beside the real one.
    """
    seconds = cost["seconds"]
    if seconds is None:
        return ""
    seconds *= tasks / measured
    alike = f", if {_every(tasks)} cost alike" if measured < tasks else ""
    least, full = (n + CONTROL_SEEDS * len(controls) for n in (PROVISIONAL_SEEDS, RANKED_SEEDS))
    arms = "the control arm" if len(controls) == 1 else f"each of {len(controls)} control arms"
    return (
        f"In total{alike}: {_time(seconds * least)} for a provisional rank, {PROVISIONAL_SEEDS} "
        f"seeds and {CONTROL_SEEDS} of {arms}; {_time(seconds * full)} for a full one, with "
        f"{RANKED_SEEDS} seeds."
    )


def full_cost(
    cost: Cost, measured: Sequence[str], tasks: int, hardware: str | None, controls: Sized
) -> str:
    """What a seed takes, and what the ranks do; empty where nothing is known."""
    seed = seed_cost(cost, measured, tasks, hardware)
    return f"{seed} {rank_cost(cost, len(measured), tasks, controls)}".strip()


def entry_cost(stored: StoredBoard, entry: Entry) -> str:
    """What a seed of an entry took, and what a rank on its board would; empty where nothing is
    known."""
    board = stored.board
    cost, controls = stored.brief(entry)["cost"], board.rules.arms[1:]
    return full_cost(cost, entry.task_names, len(board.tasks), board.hardware, controls)


def _every(tasks: int) -> str:
    return {1: "its task", 2: "both tasks"}.get(tasks, f"all {tasks} tasks")


def _on(hardware: str | None) -> str:
    return "" if hardware is None else " on a CPU" if hardware == "cpu" else f" on {hardware}"


def _parts(cost: Cost) -> list[str]:
    seconds, memory = cost["seconds"], cost["memory"]
    parts = [] if seconds is None else [_time(seconds)]
    return parts if memory is None else [*parts, wording.memory(memory)]


def _time(seconds: float) -> str:
    """Seconds, minutes, or hours from two of them on."""
    minutes = seconds / 60
    if minutes < 1:
        return f"{wording.number(seconds, 0)} s"
    if minutes >= 120:
        return f"{wording.number(minutes / 60, 1)} h"
    return f"{wording.number(minutes, 0 if minutes >= 10 else 1)} min"
