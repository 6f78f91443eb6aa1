"""The standings of one recipe on a board: three axes, and what a reader needs beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Any

from markupsafe import Markup

from crlbench.base import wording
from crlbench.pages import words
from crlbench.pages.page_axes import correlations
from crlbench.pages.table import Column
from crlbench.site import figures
from crlbench.site.axis_words import ANCHORS, QUESTIONS, meanings
from crlbench.site.board_columns import COLUMNS, OPTIONAL, Cells
from crlbench.site.briefs import merge_briefs
from crlbench.site.design_standings import (
    answer,
    axis_designs,
    elsewhere,
    in_the_mean,
    known_beyond,
    lines,
    of_designs,
    of_several,
)
from crlbench.site.facets import choices
from crlbench.site.reach import (
    describe_decoding,
    describe_leads,
    describe_other_tasks,
    describe_sharpening,
    describe_start,
)
from crlbench.site.source import StoredBoard
from crlbench.site.standing_rows import Profile, Row, Unit, describe, make_row, rows_of
from crlbench.stats.tiers import Leader
from crlbench.verdict.axes import AXES, AXIS_WORDS, Axis
from crlbench.verdict.entry import Entry

MOST_COMPARED = 25
"""Ranked entries of a recipe: for more, all pairs are too many to compare for one sentence."""


@dataclass(frozen=True)
class Panel:
    """One axis."""

    axis: Axis
    sign: str
    title: str
    question: str
    meaning: str
    rows: tuple[Row, ...]
    """Ranked entries, by tier, then by estimate."""
    unranked: tuple[Row, ...]
    """Entries without a rank, by estimate."""
    incomplete: tuple[Row, ...]
    """Entries without some of the tasks that others have: their scores are not comparable."""
    columns: tuple[Column, ...]
    scale: Markup
    """The ticks above the rows."""
    grid: str
    """Their lines behind the rows, in CSS."""
    reason: str
    """Why there is no ranking; empty where there is one."""
    tiers: int
    leaders: tuple[Row, ...]
    """Tier 1."""
    best: Row | None
    """The row with the best estimate where nothing ranks; None without an estimate."""
    luck: str
    """What is left of the leader's estimate after the winner's curse; empty where it has one."""
    claim: str
    """How far the leader is ahead, in two words."""
    all_tie: bool
    """Nobody can be told apart from the leader."""
    answer: str
    """The same in a sentence: who leads, and who cannot be told apart from it."""
    elsewhere: str
    """How many of the leader's differences exclude 0 over other tasks; empty where unknown."""
    lines: Sequence[str]
    """The false-discovery line and ranks over other tasks, under protocol CRL-2."""


@dataclass(frozen=True)
class Standings:
    """All that the page of a board and recipe shows."""

    stored: StoredBoard
    recipe: str
    panels: tuple[Panel, ...]
    filters: Sequence[tuple[str, str, Sequence[str]]]
    columns: tuple[Column, ...]
    shared: Sequence[tuple[str, str]]
    """Columns that are the same in every row, which stand nowhere else: label and text."""
    start: str
    """Whether Λ follows the greedy score before training; empty for few entries."""
    alike: Sequence[str]
    """How alike the axes order the entries, in sentences; empty for few entries."""
    decoding: str
    """Scores before and after training, sampled and greedy; empty where one is not known."""
    sharpening: tuple[str, str]
    """Greedy score before and after, and what that says of the gain; empty where not known."""
    row: tuple[str, str]
    """What a row is, of one and of several."""
    known_beyond: Sequence[str]
    """What rows of designs are about; empty under protocol CRL-1."""
    preview: Sequence[str]
    """Why no row without a rank has one, in sentences that are true of all of them."""


def standings(stored: StoredBoard, recipe: str) -> Standings:
    """The three axes of one recipe."""
    units = rows_of(stored, recipe)
    profiles = {name: describe(stored, unit) for name, unit in units.items()}
    filters = [one for one in choices(t.facets for t in profiles.values()) if len(one[2]) > 1]
    common = _find_common([one.cells for one in profiles.values()])
    blank = {k for k in OPTIONAL if all(one.cells[k].value is None for one in profiles.values())}
    columns = {
        axis: tuple(c for c in group if c not in common and c.key not in blank)
        for axis, group in COLUMNS.items()
    }
    panels = tuple(_panel(stored, recipe, axis, units, profiles, columns) for axis in AXES)
    labels = [(column.title, text) for column, text in common.items()]
    every_column = tuple(chain.from_iterable(columns.values()))
    counted = [in_the_mean(stored.board, unit) for unit in units.values()]
    briefs = [merge_briefs([stored.brief(entry) for entry in unit]) for unit in counted]
    front = panels[0]
    several = of_several(stored.board, recipe)
    values = {
        row.name: row.score.value
        for row in chain(front.rows, front.unranked, front.incomplete)
        # One checkpoint is no design.
        if not (several and row.opened and row.opened.alone)
    }
    what = "entries" if axis_designs(stored.board, recipe, AXES[0]) is None else "designs"
    start = describe_start(briefs, [values.get(name) for name in units], front.sign, what)
    decoding = describe_decoding(briefs, what)
    alike = correlations(stored.board, recipe)
    row = ("design", "designs") if several else ("entry", "entries")
    beyond, shared = known_beyond(stored.board, recipe), _shared_reasons(panels[0])
    return Standings(
        stored=stored,
        recipe=recipe,
        panels=tuple(_without(panel, shared) for panel in panels),
        filters=filters,
        columns=every_column,
        shared=labels,
        start=start,
        alike=alike,
        decoding=decoding,
        sharpening=describe_sharpening(briefs, row[1]),
        row=row,
        known_beyond=beyond,
        preview=shared,
    )


def _shared_reasons(panel: Panel) -> tuple[str, ...]:
    """Sentences that every row without a rank has; none where there is a single one."""
    rows = (*panel.unranked, *panel.incomplete)
    if len(rows) < 2:
        return ()
    return tuple(one for one in rows[0].why if all(one in row.why for row in rows))


def _without(panel: Panel, sentences: Sequence[str]) -> Panel:
    """The panel, its rows without reasons that stand elsewhere."""

    def shorter(rows: Sequence[Row]) -> tuple[Row, ...]:
        return tuple(
            replace(row, why=tuple(one for one in row.why if one not in sentences)) for row in rows
        )

    return replace(panel, unranked=shorter(panel.unranked), incomplete=shorter(panel.incomplete))


def _find_common(rows: Sequence[Cells]) -> dict[Column, str]:
    """What a column of all tables says of every entry alike; nothing of a single one."""
    if len(rows) < 2:
        return {}
    return {
        column: rows[0][column.key].text
        for column in COLUMNS[None]
        if len({cells[column.key] for cells in rows}) == 1
    }


def _panel(
    stored: StoredBoard,
    recipe: str,
    axis: Axis,
    units: Mapping[str, Unit],
    profiles: dict[str, Profile],
    columns: Mapping[Axis | None, tuple[Column, ...]],
) -> Panel:
    axis_ranking = stored.board.rankings[recipe][axis]
    ranked = {standing.model: standing for standing in axis_ranking.ranking.standings}
    designs = axis_ranking.designs
    scores = {
        name: unit[0].axes[axis] if designs is None else designs.row(name).score
        for name, unit in units.items()
    }
    tasks = {name: set(unit[0].task_names) for name, unit in units.items()}
    most = max(tasks.values(), key=len)
    lacking = {name for name, having in tasks.items() if having < most and name not in ranked}
    drawn = [score for name, score in scores.items() if name not in lacking]
    x = figures.score_scale(drawn, ANCHORS[axis])
    rows = [
        make_row(
            *(stored, name, unit, scores[name], ranked.get(name), axis_ranking, profiles[name]),
            None if name in lacking else x,
        )
        for name, unit in units.items()
    ]
    order = {name: place for place, name in enumerate(ranked)} if designs is not None else {}
    rows.sort(key=lambda row: (row.tier or 0, order.get(row.name, 0), *_by_estimate(row)))
    incomplete = [row for row in rows if row.only]
    leaders = tuple(row for row in rows if row.tier == 1)
    claim, sentence, other = _answers(stored, recipe, axis, leaders)
    signs = stored.board.signs
    return Panel(
        axis=axis,
        sign=signs[axis],
        title=AXIS_WORDS[axis].capitalize(),
        question=QUESTIONS[axis],
        meaning=meanings(signs)[axis],
        rows=tuple(row for row in rows if row.tier is not None),
        unranked=tuple(row for row in rows if row.tier is None and not row.only),
        incomplete=tuple(incomplete),
        columns=(*columns.get(axis, ()), *columns[None]),
        scale=Markup(figures.score_axis(f"Axis of {AXIS_WORDS[axis]}", x)),
        grid=figures.score_grid(x),
        reason=wording.sentence(stored.board.unranked or axis_ranking.ranking.reason),
        tiers=len(axis_ranking.ranking.anchors),
        leaders=leaders,
        best=next((row for row in rows if not row.only and row.score.value is not None), None),
        luck=_luck(signs[axis], axis_ranking.ranking.leader, rows),
        claim=claim,
        all_tie=1 < len(leaders) == len(ranked) and not axis_ranking.ranking.beside_leader()[1],
        answer=sentence,
        elsewhere=other,
        lines=() if designs is None else lines(designs),
    )


def _by_estimate(row: Row) -> tuple[float, str]:
    """The highest first; what has none comes last; names among equals."""
    value = row.score.value
    return (float("inf") if value is None else -value, row.name)


def _answers(
    stored: StoredBoard, recipe: str, axis: Axis, leaders: Sequence[Row]
) -> tuple[str, str, str]:
    """How far the leader is ahead: in two words, in a sentence, and over other tasks."""
    axis_ranking = stored.board.rankings[recipe][axis]
    standings, designs = axis_ranking.ranking.standings, axis_ranking.designs
    if designs is None:
        first, behind = leader_and_others(stored, recipe, axis)
        other = describe_other_tasks(axis, first, behind, stored.pairs) if first else ""
        other = describe_leads(axis, ranked_pairs(stored, recipe, axis), stored.pairs) or other
        return (*_answer(leaders, len(standings)), other)
    lower = [standing.model for standing in standings if standing.tier > 1]
    other = elsewhere(designs, leaders[0].name, lower) if leaders else ""
    if leaders and axis == AXES[0]:
        other = f"{of_designs(designs)} {other}".strip()
    elif leaders and designs.kind == "checkpoints" and of_several(stored.board, recipe):
        other = f"Verdicts are about one checkpoint of each. {other}".strip()
    if leaders and (beside := _beside(stored, recipe, axis, leaders[0].checked)):
        other = f"{beside} {other}".strip()
    return (*answer(axis_ranking), other)


def _beside(stored: StoredBoard, recipe: str, axis: Axis, name: str) -> str:
    """That the highest score leaves out tasks on which runs failed; empty where it does not."""
    entry = next(one for one in stored.entries(recipe) if one.name == name)
    tasks = entry.failures_beside(axis) if axis == "stability" else ()
    where = wording.listed(tasks)
    return f"Its failed runs on {where} are not counted: no gain is shown there." if tasks else ""


def leader_and_others(
    stored: StoredBoard, recipe: str, axis: Axis
) -> tuple[Entry | None, list[Entry]]:
    """The entry that leads, if there is one, and those of lower tiers, by tier, then by name; none
    where rows are designs, whose pairs are known."""
    ranking, known = stored.board.rankings[recipe][axis].ranking, stored.entries(recipe)
    if stored.board.rankings[recipe][axis].designs is not None:
        return None, []
    by_name = {entry.name: entry for entry in known}
    places = sorted((standing.tier, standing.model) for standing in ranking.standings)
    leads = (name for tier, name in places if tier == 1 and name in ranking.anchors)
    first = next(leads, None)
    behind = [by_name[name] for tier, name in places if tier > 1]
    return None if first is None else by_name[first], behind


def ranked_pairs(stored: StoredBoard, recipe: str, axis: Axis) -> list[tuple[Entry, Entry]]:
    """All pairs of ranked entries, which say how far an order reaches; none where rows are
    designs, or where they are too many to compare."""
    found = stored.board.rankings[recipe][axis]
    names = {standing.model for standing in found.ranking.standings}
    if found.designs is not None or len(names) > MOST_COMPARED:
        return []
    return [*combinations([e for e in stored.entries(recipe) if e.name in names], 2)]


def _luck(sign: str, leader: Leader | None, rows: Sequence[Row]) -> str:
    if leader is None or leader.shrunken is None:
        return ""
    first = next(row for row in rows if row.name == leader.model)
    estimate, corrected = (
        words.measured(value, first.score.interval)
        for value in (first.score.value, leader.shrunken)
    )
    if corrected == estimate:
        return ""
    return (
        f"The top estimate is partly luck. Corrected for that, the {sign} of "
        f"{first.display_name} is {corrected}."
    )


def _answer(leaders: Sequence[Row], ranked: int) -> tuple[str, str]:
    """How far the leader is ahead: in two words, and in a sentence."""
    if not leaders:
        return "", ""
    first = next(row for row in leaders if row.leads)
    others = [row.display_name for row in leaders if row is not first]
    if not others:
        alone = "Every other ranked entry is significantly worse on these tasks."
        return "alone ahead on these tasks", alone
    if len(leaders) == ranked:
        tie = "Nobody is significantly worse than the highest on these tasks."
        return wording.all_tie(ranked), tie
    sentence = (
        "It has the best estimate on these tasks; not significantly worse: "
        f"{wording.listed(others, 4)}."
    )
    return f"tie of {len(leaders)}", sentence


def facts(stored: StoredBoard, recipe: str) -> list[tuple[str, Any]]:
    """The conditions of one recipe's standings in a line: label and value."""
    board, recipe_runs = stored.board, [run for run in stored.runs if run.recipe == recipe]
    return [
        ("Track", f"{board.track} v{board.track_version}, {board.division} division"),
        ("Tasks", wording.listed(board.tasks)),
        ("Training", f"{wording.grouped(completions_of(stored))} completions per run"),
        ("Hardware", board.hardware or "not stated"),
        ("Records", f"{len(recipe_runs):,}"),
        ("Fingerprint", board.fingerprint),
    ]


def completions_of(stored: StoredBoard) -> int:
    """What a whole run of the board is trained on."""
    return max(run.completions for run in stored.runs)
