"""Designs side by side, each over its checkpoints (``compare --designs``)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from crlbench.base.parallel import on_one_thread
from crlbench.base.wording import listed
from crlbench.contract.conditions import PROTOCOL_2, protocol_name
from crlbench.errors import UsageError
from crlbench.stats.correlations import Correlation
from crlbench.verdict.axes import AXES, MARGIN, Axis
from crlbench.verdict.board import correlate_axes, rank_entries, with_lines
from crlbench.verdict.compare_read import Loaded
from crlbench.verdict.compare_unequal import refuse, unequal
from crlbench.verdict.plain_data import plain
from crlbench.verdict.ranking import AxisRanking


@dataclass(frozen=True)
class DesignComparison:
    """Everything that the tables and the JSON say."""

    schema_version: Literal[1]
    track: str
    track_version: int
    division: Literal["closed", "open"]
    fingerprint: str
    hardware: str | None
    recipe: str
    entries: tuple[str, ...]
    """Every checkpoint that was read."""
    axes: dict[Axis, AxisRanking]
    signs: dict[Axis, str]
    correlations: tuple[Correlation, ...]
    """Between the axes, over the rows."""
    margin: float
    crlbench: tuple[str, ...]
    bootstrap: dict[str, Any]

    def to_json(self) -> str:
        """Canonical, indented JSON; floats in full precision."""
        return json.dumps(plain(self), indent=1, sort_keys=True, allow_nan=False) + "\n"


@on_one_thread
def compare_designs(loaded: Sequence[Loaded], axes: Sequence[Axis] = AXES) -> DesignComparison:
    """The designs of some entries, as they would stand on a board of these entries alone.

    Raises:
        UsageError: a track of protocol CRL-1, several recipes, or an entry twice.
        NotComparable: unequal conditions or hardware.
    """
    first = loaded[0]
    _check(loaded)
    others = [(one.entry.name, one.board, one.leaves) for one in loaded]
    if differing := tuple(unequal(others)):
        refuse(differing, force=False, by="completions")
    entries = [one.entry for one in loaded]
    board = first.board
    reason = next((one.board.unranked for one in loaded if one.board.unranked), None)
    count = board.bootstrap["replicates"]
    rankings = with_lines(
        {axis: rank_entries(axis, first.entry.recipe, entries, reason, count) for axis in axes}
    )
    return DesignComparison(
        schema_version=1,
        track=board.track,
        track_version=board.track_version,
        division=board.division,
        fingerprint=board.fingerprint,
        hardware=board.hardware,
        recipe=first.entry.recipe,
        entries=tuple(sorted(entry.name for entry in entries)),
        axes=rankings,
        signs=board.signs,
        correlations=correlate_axes(entries, rankings) if len(axes) > 1 else (),
        margin=MARGIN,
        crlbench=tuple(sorted({run.version for one in loaded for run in one.runs})),
        bootstrap=board.bootstrap,
    )


def _check(loaded: Sequence[Loaded]) -> None:
    for one in loaded:
        if (name := protocol_name(one.leaves)) != PROTOCOL_2:
            raise UsageError(
                f"{one.folder}: its track is under protocol {name}, whose boards compare entries. "
                f"--designs needs a track of protocol {PROTOCOL_2}: crlbench compare A B."
            )
    if len(recipes := sorted({one.entry.recipe for one in loaded})) > 1:
        raise UsageError(
            f"--designs compares designs with one recipe, and these have {listed(recipes, 4)}. "
            "Name designs with their recipe: tiny-llama/ppo."
        )
    names = [one.entry.name for one in loaded]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"{listed(twice, 4)}: read from two folders. Name one of them.")
