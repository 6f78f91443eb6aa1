"""How long a run of a model would take, by stored runs of the model nearest in size.

It answers before any weights are on this machine. The runs were made elsewhere, so that it is a
hint: a run's time is scaled by parameters and by completions.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from crlbench.catalog.checkpoint import hub_folder
from crlbench.commands.stored_entries import Stored, stored_entries
from crlbench.contract.model_card import ModelCard
from crlbench.errors import CrlbenchError, EnvironmentUnfit
from crlbench.run.progress import duration
from crlbench.verdict.resources import leaderboard_folder

if TYPE_CHECKING:
    from crlbench.catalog.find import Catalog

FARTHEST = 4.0
"""Parameters of the nearest model, over those of the model asked for, or the reverse: from a model
farther away nothing is said."""


@dataclass(frozen=True)
class Pace:
    """What stored runs of one model took."""

    model: str
    parameters: int
    completions: int
    """Of a run."""
    seconds: float
    """Median over its runs, start to end."""
    runs: int

    def seconds_of(self, parameters: int, completions: int) -> float:
        """Seconds of one run of another model: in proportion to both."""
        return self.seconds * parameters / self.parameters * completions / self.completions

    def sentence(self, model: str, parameters: int, completions: int) -> str:
        """What may be said of a run of a model, and what it rests on."""
        return (
            f"{model}: about {duration(self.seconds_of(parameters, completions))} a run. This is "
            f"an estimate from {self.runs} stored runs of {self.model} "
            f"({self.parameters / 1e6:,.0f}M parameters), made on another machine."
        )


def is_absent(card: ModelCard) -> bool:
    """Whether a model comes from the hub and its weights are not on this machine."""
    return card.source.kind == "hub" and hub_folder(card) is None


def unreachable(card: ModelCard) -> EnvironmentUnfit:
    """What to say of an absent model while the network is switched off."""
    commit = card.revision if card.pinned else "main"
    return EnvironmentUnfit(
        f"model '{card.slug}' is not on this machine, and the network is switched off (--offline "
        f"or CRLBENCH_OFFLINE). With network: hf download {card.source.hf_id} --revision {commit}"
    )


def pace_of(card: ModelCard, catalog: Catalog) -> Pace | None:
    """The pace of the stored model that is nearest to a model in size; None where none is near."""
    if not card.params_total:
        return None
    return nearest_pace(card.params_total, catalog, leaderboard_folder() / "results")


def nearest_pace(parameters: int, catalog: Catalog, results: Path) -> Pace | None:
    """The pace of the stored model that is nearest in size; None where none is near.

    Args:
        parameters: of the model asked for, above 0.
        results: folder of stored results.
    """
    sizes: dict[str, int] = {}
    entries = stored_entries(results)
    for name in {entry.model for entry in entries}:
        try:
            total = catalog.load_model(name).params_total
        except CrlbenchError:  # an entry of somebody else, whose model is not in the catalogue
            continue
        if total and abs(math.log(total / parameters)) <= math.log(FARTHEST):
            sizes[name] = total
    for name in sorted(sizes, key=lambda name: (abs(math.log(sizes[name] / parameters)), name)):
        if (pace := _pace([entry for entry in entries if entry.model == name])) is not None:
            return pace
    return None


def _pace(entries: list[Stored]) -> Pace | None:
    """What the real runs of a model took that were made in one attempt; None without any."""
    from crlbench.verdict.load import load_runs

    records = [
        run.record
        for entry in entries
        for run in load_runs(entry.folder, files="used")
        if run.arm == "real" and run.status.state == "completed"
    ]
    timed = [(record, record.volatile.get("attempts", ())) for record in records]
    spans = [
        (record.cost["completions"], attempts[0]["end"] - attempts[0]["start"])
        for record, attempts in timed
        if len(attempts) == 1
    ]
    if not spans:
        return None
    completions = int(spans[0][0])
    seconds = statistics.median(s * completions / c for c, s in spans)
    subject = records[0].subject
    return Pace(subject.slug, subject.params_total, completions, seconds, len(spans))
