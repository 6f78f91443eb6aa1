"""What a command says of the runs that it makes at the moment: ``progress.json`` in a run folder.

It stands for whoever watches, and is gone when the command ends. No result rests on it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic import ValidationError as PydanticError

from crlbench.disk.names import PROGRESS_NAME
from crlbench.disk.reading import Malformed, json_value, read_bytes
from crlbench.errors import CrlbenchError

WRITE_SECONDS = 2.0
"""Least time between two writings."""
ALIVE_SECONDS = 60.0
"""A command that has written nothing for so long has ended without a word."""
MAX_BYTES = 2**22

Phase = Literal["loading", "start", "train", "end"]
"""``start`` scores the start model, ``end`` scores what was learned."""
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class LiveRun(_Part):
    """A run that is being made."""

    name: str
    """``model@rev8/recipe/task/arm/seed-03``, as the ledger names it."""
    phase: Phase
    iteration: Count
    iterations: Count
    reward: float | None
    """Mean reward of the last rollout."""
    curve: tuple[tuple[Count, Share], ...]
    """Completions and mean score of each point so far."""


class Live(_Part):
    """All runs of a folder that are being made."""

    time: float
    """Unix time of the writing."""
    seconds_left: float | None
    """Estimate for everything that the command makes, in this folder and others."""
    runs: tuple[LiveRun, ...]

    @property
    def is_alive(self) -> bool:
        """Whether the command that wrote it was there a moment ago, by this machine's clock."""
        return time.time() - self.time < ALIVE_SECONDS


def read_live(folder: Path) -> Live | None:
    """What is being made in a run folder; None where nothing says so."""
    path = folder / PROGRESS_NAME
    if not path.is_file():
        return None
    try:
        return Live.model_validate(json_value(read_bytes(path, MAX_BYTES)))
    except (CrlbenchError, Malformed, PydanticError):
        return None  # it went, or is none: a run is not stopped for it, and no result rests on it
