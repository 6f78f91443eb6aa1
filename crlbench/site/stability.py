"""The stability lab: what Stab is made of, entry by entry, with every seed's end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from crlbench.base import wording
from crlbench.pages.dots import ends_strip
from crlbench.pages.page_stability import LABELS
from crlbench.site.families import by_recipe
from crlbench.site.pages import Page, model_slug
from crlbench.site.source import Site, StoredBoard
from crlbench.stats.stability import PARTS
from crlbench.stats.stress import STRESS_PARTS
from crlbench.verdict.axes import AxisScore
from crlbench.verdict.entry import Entry

FRONT = "stability.html"
NUMBERS = {3: "three", 4: "four"}
ABOUT = {
    "dispersion": "how near to each other the seeds end; 1 is all at one place",
    "drawdown": "how much of the highest gain is kept; 1 is all of it",
    "risk": "what the worst three tenths of the seeds gain, as a share of the median seed's gain",
    "failure": "how likely a run does not fail; never quite 1, because few runs prove little",
}
"""What each share says."""
ABOUT_2 = ABOUT | {"failure": "the share of runs that no rule ends"}
"""The same under protocol CRL-2, where a share is the mean of the calm and of the stress runs."""


@dataclass(frozen=True)
class Row:
    """One entry."""

    name: str
    model: str
    slug: str
    tier: int | None
    score: AxisScore
    shares: dict[str, float | None]
    """Mean share over rated tasks, by label."""
    drawdown: float | None
    """Mean drawdown over tasks and runs, less what noise alone would show."""
    figure: Markup
    """Figure of the final score of every seed, by task."""
    failures: tuple[tuple[str, int], ...]
    """Rules and how many runs they ended; ``no record`` for runs that vanished."""
    runs: int
    left_out: str
    """Tasks with failed runs that Stab leaves out; empty where there is none."""
    failing: str
    """What its share of runs without a failure says; empty where that is not known."""


@dataclass(frozen=True)
class Lab:
    """The entries of one recipe on one board."""

    stored: StoredBoard
    recipe: str
    rows: tuple[Row, ...]

    @property
    def parts(self) -> list[tuple[str, str]]:
        """Label and meaning of each share that its protocol has."""
        return _parts(self.stored)

    @property
    def has_failures(self) -> bool:
        """Whether any run failed."""
        return any(row.failures for row in self.rows)


def pages(site: Site) -> Iterator[Page]:
    """The one page."""
    boards = by_recipe(site, _lab)
    of_labs = [lab.parts for board in boards for lab in board] or [[]]
    counts = sorted({len(parts) for parts in of_labs}, reverse=True)
    yield Page(
        path=FRONT,
        template="stability.html.j2",
        title="Stability lab: what makes a run stable?",
        about=f"The {_number(counts)} shares of stability of every entry, the end of every seed, "
        "drawdowns, and failed runs by rule.",
        data={
            "boards": boards,
            "parts": list(dict.fromkeys(part for parts in of_labs for part in parts)),
            "number": _number(counts),
            "failure": LABELS["failure"],
            "stressed": any(lab.stored.board.rules.stressed for board in boards for lab in board),
        },
        section="stability",
    )


def _parts(stored: StoredBoard) -> list[tuple[str, str]]:
    if stored.board.rules.stressed:
        return [(LABELS[part], ABOUT_2[part]) for part in STRESS_PARTS]
    return [(LABELS[part], ABOUT[part]) for part in PARTS]


def _number(counts: Sequence[int]) -> str:
    """How many shares there are, in words; two protocols have two numbers of them."""
    return " or ".join(NUMBERS[count] for count in counts if count) or NUMBERS[len(PARTS)]


def _lab(stored: StoredBoard, recipe: str) -> Lab | None:
    """The entries by tier, then by name; None where nothing can be said of any."""
    labs = [(entry, stored.brief(entry)["lab"]) for entry in stored.entries(recipe)]
    rows = [_row(stored, entry, lab) for entry, lab in labs if lab is not None]
    rows.sort(key=lambda row: (row.tier is None, row.tier or 0))
    return Lab(stored, recipe, tuple(rows)) if rows else None


def _row(stored: StoredBoard, entry: Entry, lab: dict[str, Any]) -> Row:
    standing = stored.board.rankings[entry.recipe]["stability"].standing_of(entry.name)
    failures = _failures(stored, entry)
    return Row(
        name=entry.name,
        model=entry.full_name,
        slug=model_slug(entry.model),
        tier=None if standing is None else standing.tier,
        score=entry.axes["stability"],
        shares={label: lab["shares"][label] for label, _ in _parts(stored)},
        drawdown=lab["drawdown"],
        figure=Markup(ends_strip(f"Ends of the seeds of {entry.full_name}", lab["ends"])),
        failures=failures,
        runs=lab["runs"],
        left_out=wording.listed(entry.failures_beside("stability")),
        failing="" if stored.board.rules.stressed else _failing(lab, failures),
    )


def _failing(lab: dict[str, Any], failures: Sequence[tuple[str, int]]) -> str:
    """What the share of runs without a failure is an estimate of; empty where it is not known."""
    share = lab["shares"][LABELS["failure"]]
    if share is None:
        return ""
    seen = sum(count for _, count in failures)
    rate = wording.percent(1 - share)
    return f"estimated failure rate {rate} ({seen} of {lab['runs']} seen)"


def _failures(stored: StoredBoard, entry: Entry) -> tuple[tuple[str, int], ...]:
    rules = Counter(
        run.status.rule or "no rule stated"
        for run in stored.by_entry[entry.name]
        if run.arm == "real" and run.status.state == "failed"
    )
    rules.update(["no record"] * len(entry.vanished))
    return tuple(sorted(rules.items(), key=lambda rule: (-rule[1], rule[0])))
