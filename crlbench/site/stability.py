"""The stability lab: what Stab is made of, entry by entry, with every seed's end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from crlbench.pages.dots import ends_strip
from crlbench.pages.page_stability import LABELS
from crlbench.site.families import families
from crlbench.site.pages import Page
from crlbench.site.source import Site, StoredBoard
from crlbench.stats.stability import PARTS
from crlbench.verdict.axes import AxisScore
from crlbench.verdict.entry import Entry

FRONT = "stability.html"
ABOUT = {
    "dispersion": "how near to each other the seeds end; 1 is all at one place",
    "drawdown": "how much of the highest gain is kept; 1 is all of it",
    "risk": "what the worst three tenths of the seeds gain, as a share of the median seed's gain",
    "failure": "how likely a run does not fail; never quite 1, because few runs prove little",
}
"""What each share says."""


@dataclass(frozen=True)
class Row:
    """One entry."""

    name: str
    model: str
    slug: str
    tier: int | None
    score: AxisScore
    shares: dict[str, float | None]
    """By label, mean over rated tasks."""
    drawdown: float | None
    """Mean over tasks and runs, what noise alone would show subtracted."""
    figure: Markup
    """F of every seed, by task."""
    failures: tuple[tuple[str, int], ...]
    """Rules and how many runs they ended; ``no record`` for runs that vanished."""
    runs: int


@dataclass(frozen=True)
class Lab:
    """The entries of one recipe on one board."""

    stored: StoredBoard
    recipe: str
    rows: tuple[Row, ...]

    @property
    def failed(self) -> bool:
        """Whether any run did."""
        return any(row.failures for row in self.rows)


def pages(site: Site) -> Iterator[Page]:
    """The one page."""
    homes = [family.home for family in families(site)]
    labs = [[_lab(stored, recipe) for recipe in stored.recipes] for stored in homes]
    found = [[lab for lab in of_board if lab.rows] for of_board in labs]
    yield Page(
        path=FRONT,
        template="stability.html.j2",
        title="Stability lab: what makes a run stable?",
        about="The four shares of stability of every entry, the end of every seed, drawdowns, and "
        "failed runs by the rule that ended them.",
        data={
            "boards": [of_board for of_board in found if of_board],
            "parts": [(LABELS[part], ABOUT[part]) for part in PARTS],
        },
        section="stability",
    )


def _lab(stored: StoredBoard, recipe: str) -> Lab:
    found = stored.board.rankings[recipe]["stability"].ranking
    tiers = {standing.model: standing.tier for standing in found.standings}
    entries = [entry for entry in stored.entries(recipe) if entry.stability.tasks]
    rows = [_row(stored, entry, tiers.get(entry.name)) for entry in entries]
    rows.sort(key=lambda row: (row.tier is None, row.tier or 0, row.name))
    return Lab(stored, recipe, tuple(rows))


def _row(stored: StoredBoard, entry: Entry, tier: int | None) -> Row:
    tasks = entry.stability.tasks
    rated = [tasks[name].shares for name in entry.stability.rated]
    known = [share for share in rated if share is not None]
    ends = {task: [(run.final, run.failed) for run in found.runs] for task, found in tasks.items()}
    drawdowns = [found.drawdown for found in tasks.values() if found.drawdown is not None]
    return Row(
        name=entry.name,
        model=entry.display_name,
        slug=entry.model.partition("@")[0],
        tier=tier,
        score=entry.axes["stability"],
        shares={
            LABELS[part]: float(np.mean([share[part] for share in known])) if known else None
            for part in PARTS
        },
        drawdown=float(np.mean(drawdowns)) if drawdowns else None,
        figure=Markup(ends_strip(f"Ends of the seeds of {entry.display_name}", ends)),
        failures=_failures(stored, entry),
        runs=sum(len(found.runs) for found in tasks.values()),
    )


def _failures(stored: StoredBoard, entry: Entry) -> tuple[tuple[str, int], ...]:
    rules = Counter(
        run.record.status.rule or "no rule stated"
        for run in stored.by_entry[entry.name]
        if run.record.arm == "real" and run.record.status.state == "failed"
    )
    rules.update(["no record"] * len(entry.vanished))
    return tuple(sorted(rules.items(), key=lambda rule: (-rule[1], rule[0])))
