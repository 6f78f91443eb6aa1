"""The task's code in another process: other hash seed, locale and time zone.

The process is confined, and its answers are data: the bytes of split files, or verdicts.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
from collections.abc import Sequence

from crlbench.catalog.frozen import Task
from crlbench.confine.room import Room
from crlbench.confine.task import ConfinedTask
from crlbench.errors import EnvironmentUnfit, ValidationError
from crlbench.suite.gauntlet.asking import judged, made

ELSEWHERE = {"PYTHONHASHSEED": "4711", "TZ": "CHAST-12:45", "LC_ALL": "C", "LANG": "C"}
"""What the other process starts with. The zone is that of Chatham, in winter."""


def digests_elsewhere(task: Task, splits: Sequence[str]) -> dict[str, str]:
    """SHA-256 of split files, made from a task's code in another process."""
    with _elsewhere(task) as other:
        try:
            files = made(other, splits)
        except EnvironmentUnfit:
            raise
        except ValidationError as error:
            raise ValidationError(f"in another process: {error}") from None
    return {split: hashlib.sha256(data).hexdigest() for split, data in files.items()}


def verdicts_elsewhere(task: Task, cases: Sequence[tuple[str, str]]) -> list[float]:
    """What the verifier says in another process to pairs of completion and answer."""
    with _elsewhere(task) as other:
        try:
            return judged(other, "verify", [t for t, _ in cases], [a for _, a in cases])
        except ValidationError as error:
            raise ValidationError(f"in another process: {error}") from None


def _elsewhere(task: Task) -> ConfinedTask:
    home = task.rows_folder.parents[1] if task.card.source is not None else None
    return ConfinedTask(task.folder, home, _room(os.getpid()))


@functools.cache
def _room(process: int) -> Room:
    room = Room(ELSEWHERE)
    atexit.register(room.close)
    return room
