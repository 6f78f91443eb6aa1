"""One row of the standings on an axis: an entry, or the checkpoints of a design."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from markupsafe import Markup

from crlbench.base import wording
from crlbench.contract.verification import PROOFS, Proof
from crlbench.pages import words
from crlbench.pages.page_axes import place, rank_words
from crlbench.site import figures
from crlbench.site.board_columns import Cells, make_cells
from crlbench.site.design_standings import Opened, in_the_mean, opened
from crlbench.site.facets import Facets, facets
from crlbench.site.source import StoredBoard
from crlbench.stats.novelty import STRICT_GAP
from crlbench.stats.tiers import Standing
from crlbench.verdict.axes import AXES, AXIS_WORDS, Axis, AxisScore
from crlbench.verdict.design_rows import group_entries
from crlbench.verdict.entry import Entry
from crlbench.verdict.ranking import AxisRanking

Unit = Sequence[Entry]
"""The entries of a row: one, or the checkpoints of a design, the one that ranks first."""


@dataclass(frozen=True)
class Flag:
    """What a reader must know beside the number of an entry."""

    label: str
    about: str


@dataclass(frozen=True)
class Row:
    """One entry on one axis."""

    name: str
    """``model/recipe``."""
    model: str
    slug: str
    display_name: str
    tier: int | None
    leads: bool
    ranks: str
    """``1 to 3``; empty where it has none."""
    standing: str
    """``preview`` and its like for a row without a rank; empty where it has one."""
    why: tuple[str, ...]
    """Why there is no rank, in sentences; empty where there is one."""
    only: str
    """``addition only``: the tasks of a row that lacks some which others have; empty for all."""
    own: bool
    """Whether it is the reader's own, which was not submitted."""
    provisional: bool
    """Ranked with fewer seeds than a full rank takes."""
    flags: tuple[Flag, ...]
    score: AxisScore
    figure: Markup
    """Empty for a row that lacks tasks: its score is on another scale."""
    curve: Markup
    """Learning curve; on sample efficiency alone."""
    facets: Facets
    cells: Cells
    opened: Opened | None
    """Its checkpoints, under protocol CRL-2."""
    compared: str
    """The entry that a comparison takes for the row; empty for a mean over several checkpoints."""
    checked: str
    """The entry whose score a browser computes again: of several checkpoints the first."""


@dataclass(frozen=True)
class Profile:
    """What is said of an entry in all three tables."""

    facets: Facets
    cells: Cells


def rows_of(stored: StoredBoard, recipe: str) -> dict[str, Unit]:
    """The rows of a recipe by name."""
    return {
        group.name: sorted(group.whole, key=lambda entry: not entry.ranks)
        for group in group_entries(stored.entries(recipe))
    }


def describe(stored: StoredBoard, unit: Unit) -> Profile:
    """What is said of a row in all three tables."""
    entry = unit[0]
    run = stored.by_entry[entry.name][0]
    # A row is proven as far as the least proven of its checkpoints.
    badge = min((stored.badges[one.name] for one in unit), key=_proven)
    entry_facets = facets(run, badge, words.STANDINGS[entry.standing])
    return Profile(entry_facets, make_cells(stored, unit, entry_facets))


def _proven(badge: Proof | None) -> int:
    """How much a badge proves, from 0 for none."""
    return 0 if badge is None else 1 + PROOFS.index(badge)


def make_row(
    stored: StoredBoard,
    name: str,
    unit: Unit,
    score: AxisScore,
    standing: Standing | None,
    axis_ranking: AxisRanking,
    profile: Profile,
    x: figures.Scale | None,
) -> Row:
    """A row of the table of one axis.

    Args:
        x: of the figures; None for a row that lacks tasks.
    """
    entry, designs, axis = unit[0], axis_ranking.designs, axis_ranking.axis
    of_designs = None if designs is None else designs.row(name)
    display_name = entry.display_name if of_designs is None else of_designs.display_name
    tier = None if standing is None else standing.tier
    label = f"{display_name}, {AXIS_WORDS[axis]}"
    return Row(
        name=name,
        model=entry.model,
        slug=stored.by_entry[entry.name][0].subject.slug,
        display_name=display_name,
        tier=tier,
        leads=name in axis_ranking.ranking.anchors,
        ranks="" if standing is None else rank_words(standing.ranks).split(" ", 1)[1],
        standing="" if standing is not None else words.STANDINGS[entry.standing],
        why=() if standing is not None else _why(stored, entry, axis),
        only="" if x is not None else f"{wording.listed(list(entry.task_names))} only",
        own=any(one.name in stored.own for one in unit),
        provisional=entry.standing == "provisional",
        flags=tuple(_flags(unit, axis)),
        score=score,
        figure=Markup("" if x is None else figures.score_row(label, score, x, tier == 1)),
        curve=_curve(stored, in_the_mean(stored.board, unit)) if axis == AXES[0] else Markup(),
        facets=profile.facets,
        cells=profile.cells,
        opened=None if designs is None or of_designs is None else opened(of_designs, designs),
        compared=entry.name if len(unit) == 1 else "",
        checked=entry.name,
    )


def _curve(stored: StoredBoard, unit: Unit) -> Markup:
    """The learning curve of an entry: the range of its seeds behind their mean; of several
    checkpoints the mean of theirs, and the whole range."""
    curves = [curve for one in unit if (curve := stored.brief(one)["curve"]) is not None]
    if not curves:
        return Markup()
    merged = {
        name: [over(values) for values in zip(*(curve[name] for curve in curves), strict=True)]
        for name, over in (("mean", fmean), ("low", min), ("high", max))
    }
    return Markup(figures.curve_row(merged))


def _why(stored: StoredBoard, entry: Entry, axis: Axis) -> tuple[str, ...]:
    """What keeps an entry from a rank, in sentences; at length in the first table alone."""
    score = entry.axes[axis]
    lack = [wording.sentence(score.reason)] if score.reason else []
    if stored.board.unranked is None and entry.ranks:
        return (*place(entry, stored.board, axis), *lack)
    return (*(entry.why if axis == AXES[0] else ()), *lack)


def _flags(unit: Unit, axis: Axis) -> Iterator[Flag]:
    failed = [
        cell if len(unit) == 1 else f"{entry.checkpoint}: {cell}"
        for entry in unit
        for cell in (*entry.failed, *entry.vanished)
    ]
    if failed:
        yield Flag(f"{len(failed)} failed", wording.listed(failed))
    second = [
        task if len(unit) == 1 else f"{entry.checkpoint}: {task}"
        for entry in unit
        if entry.novelty is not None
        for task in entry.novelty.flagged
    ]
    if axis == "efficiency" and second:
        about = (
            f"Without second choices of the start model Λ_new differs by more than "
            f"{wording.number(STRICT_GAP, 1)} on {wording.listed(second)}"
        )
        yield Flag("second choices", about)
    beside = unit[0].failures_beside(axis)
    if axis == "stability" and beside:
        where = wording.listed(beside)
        about = f"Runs failed on {where}, which Stab leaves out: no gain is shown there"
        yield Flag("failures not counted", about)
    placebo = unit[0].placebo
    if axis == "efficiency" and placebo is not None and placebo.elicitation:
        lam = "Λ over all items" if unit[0].axes[axis].new else "Λ"
        about = f"A reward without content brings more than a quarter of {lam}"
        yield Flag("mostly elicitation", about)
