"""The standings of one recipe on a board: three axes, and what a reader needs beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from markupsafe import Markup

from crlbench.base import wording
from crlbench.pages import words
from crlbench.pages.page_axes import correlations, place, rank_words
from crlbench.pages.table import Cell, Column
from crlbench.site import figures
from crlbench.site.axis_words import ANCHORS, MEANINGS, MEANINGS_2, QUESTIONS
from crlbench.site.facets import Facets, choices, facets, model_size, parameters
from crlbench.site.reach import (
    DECODED,
    describe_decoding,
    describe_other_tasks,
    describe_start,
    mean_scores,
)
from crlbench.site.source import StoredBoard
from crlbench.stats.tiers import Leader, Standing
from crlbench.verdict.axes import AXES, AXIS_SIGNS, AXIS_WORDS, Axis, AxisScore
from crlbench.verdict.entry import Entry
from crlbench.verdict.ranking import AxisRanking

COLUMNS: dict[Axis | None, tuple[Column, ...]] = {
    "efficiency": (
        Column("head", "number", "Head start: 0 at a task's floor, 1 at its ceiling", title="H"),
        Column("learned", "number", "Area that learning added; E = H + L", title="L"),
        Column(
            "known",
            "number",
            "Share of L on items that the start model answers rightly when greedy",
            title="Known",
            visible=True,
        ),
        Column("whole", "number", "Λ over all items, known ones included", title="Λ, all items"),
        Column("net", "number", "Λ minus Λ under a reward without content", title="Λ*"),
        Column("taught", "number", "Λ minus Λ paid for agreeing with the start", title="Taught"),
        Column("sampled", "number", "Sampled score, before → after", title="Sampled"),
        Column("greedy", "number", "Greedy score, before → after", title="Greedy"),
    ),
    "generalization": (
        Column("id", "number", "Gain on fresh items of the task", title="ID"),
        Column("hard", "number", "Gain on harder items", title="Hard"),
        Column("format", "number", "Gain in other wordings", title="Format"),
        Column("transfer", "number", "Gain on the other tasks", title="Transfer"),
        Column("forgot", "number", "Loss on what training never touched", title="Forgot"),
    ),
    None: (
        Column("size", "whole", "All weights of the model", title="Parameters", visible=True),
        Column("seeds", "whole", "Of every task, real arm", title="Seeds", visible=True),
        Column("failed", "whole", "Runs that failed by a rule or vanished", title="Failed"),
        Column("badge", about="What the maintainers have proven", title="Badge", visible=True),
        Column("precision", about="Weights, and what of them is trained", title="Precision"),
        Column("hardware", about="Class of machine", title="Hardware"),
        Column("submitter", about="Who answers questions", title="Submitted by"),
    ),
}
"""Columns that a reader may show or hide, of the table of one axis; None for those of all three."""
OPTIONAL = ("whole", "taught")
"""Columns that are left out where no entry fills them: those of protocol CRL-2."""


@dataclass(frozen=True)
class Flag:
    """What a reader must know beside the number of an entry."""

    label: str
    about: str


Cells = dict[str, Cell]
"""The cells of an entry by the keys of the columns."""


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
    why: str
    """Why there is no rank; empty where there is one."""
    provisional: bool
    """Ranked with fewer seeds than a full rank takes."""
    flags: tuple[Flag, ...]
    score: AxisScore
    figure: Markup
    facets: Facets
    cells: Cells


@dataclass(frozen=True)
class Panel:
    """One axis."""

    axis: Axis
    sign: str
    title: str
    question: str
    meaning: str
    rows: tuple[Row, ...]
    """Ranked entries, by tier, then by name."""
    unranked: tuple[Row, ...]
    """Entries without a rank, by name."""
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


@dataclass(frozen=True)
class _Profile:
    """What is said of an entry in all three tables."""

    facets: Facets
    cells: Cells


def standings(stored: StoredBoard, recipe: str) -> Standings:
    """The three axes of one recipe."""
    entries = stored.entries(recipe)
    profiles = {entry.name: _describe(stored, entry) for entry in entries}
    filters = [one for one in choices(t.facets for t in profiles.values()) if len(one[2]) > 1]
    common = _find_common([one.cells for one in profiles.values()])
    blank = {k for k in OPTIONAL if all(one.cells[k].order is None for one in profiles.values())}
    columns = {
        axis: tuple(c for c in group if c not in common and c.key not in blank)
        for axis, group in COLUMNS.items()
    }
    panels = tuple(_panel(stored, recipe, axis, entries, profiles, columns) for axis in AXES)
    labels = [(column.title, text) for column, text in common.items()]
    every_column = tuple(chain.from_iterable(columns.values()))
    briefs = [stored.brief(entry) for entry in entries]
    lams = [brief["lam"] for brief in briefs]
    start, decoding = describe_start(briefs, lams), describe_decoding(briefs)
    alike = correlations(stored.board, recipe)
    return Standings(
        stored, recipe, panels, filters, every_column, labels, start, alike, decoding
    )


def _describe(stored: StoredBoard, entry: Entry) -> _Profile:
    run, badge = stored.by_entry[entry.name][0], stored.badges[entry.name]
    entry_facets = facets(run, badge, words.STANDINGS[entry.standing])
    return _Profile(entry_facets, _cells(stored, entry, entry_facets))


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
    entries: Sequence[Entry],
    profiles: dict[str, _Profile],
    columns: Mapping[Axis | None, tuple[Column, ...]],
) -> Panel:
    axis_ranking = stored.board.rankings[recipe][axis]
    ranked = {standing.model: standing for standing in axis_ranking.ranking.standings}
    x = figures.score_scale([entry.axes[axis] for entry in entries], ANCHORS[axis])
    rows = [
        _row(stored, entry, axis, ranked.get(entry.name), axis_ranking, profiles[entry.name], x)
        for entry in entries
    ]
    rows.sort(key=lambda row: (row.tier or 0, row.name))
    leaders = tuple(row for row in rows if row.tier == 1)
    claim, answer = _answer(leaders, len(ranked))
    first, behind = leader_and_others(stored, recipe, axis)
    signs = stored.board.signs
    elsewhere = describe_other_tasks(axis, first, behind, stored.pairs) if first else ""
    return Panel(
        axis=axis,
        sign=signs[axis],
        title=AXIS_WORDS[axis].capitalize(),
        question=QUESTIONS[axis],
        meaning=(MEANINGS if signs == AXIS_SIGNS else MEANINGS_2)[axis],
        rows=tuple(row for row in rows if row.tier is not None),
        unranked=tuple(row for row in rows if row.tier is None),
        columns=(*columns.get(axis, ()), *columns[None]),
        scale=Markup(figures.score_axis(f"Axis of {AXIS_WORDS[axis]}", x)),
        grid=figures.score_grid(x),
        reason=wording.sentence(stored.board.unranked or axis_ranking.ranking.reason),
        tiers=len(axis_ranking.ranking.anchors),
        leaders=leaders,
        luck=_luck(signs[axis], axis_ranking.ranking.leader, rows),
        claim=claim,
        all_tie=1 < len(leaders) == len(ranked),
        answer=answer,
        elsewhere=elsewhere,
    )


def leader_and_others(
    stored: StoredBoard, recipe: str, axis: Axis
) -> tuple[Entry | None, list[Entry]]:
    """The entry that leads, if there is one, and those of lower tiers, by tier, then by name."""
    ranking, known = stored.board.rankings[recipe][axis].ranking, stored.entries(recipe)
    by_name = {entry.name: entry for entry in known}
    places = sorted((standing.tier, standing.model) for standing in ranking.standings)
    leads = (name for tier, name in places if tier == 1 and name in ranking.anchors)
    first = next(leads, None)
    behind = [by_name[name] for tier, name in places if tier > 1]
    return None if first is None else by_name[first], behind


def _luck(sign: str, leader: Leader | None, rows: Sequence[Row]) -> str:
    if leader is None or leader.shrunken is None:
        return ""
    first = next(row for row in rows if row.name == leader.model)
    if wording.number(leader.shrunken) == wording.number(first.score.value):
        return ""
    return (
        f"The top estimate is partly luck. Corrected for that, the {sign} of "
        f"{first.display_name} is {wording.number(leader.shrunken)}."
    )


def _row(
    stored: StoredBoard,
    entry: Entry,
    axis: Axis,
    standing: Standing | None,
    axis_ranking: AxisRanking,
    profile: _Profile,
    x: figures.Scale,
) -> Row:
    score = entry.axes[axis]
    tier = None if standing is None else standing.tier
    label = f"{entry.display_name}, {AXIS_WORDS[axis]}"
    return Row(
        name=entry.name,
        model=entry.model,
        slug=stored.by_entry[entry.name][0].subject.slug,
        display_name=entry.display_name,
        tier=tier,
        leads=entry.name in axis_ranking.ranking.anchors,
        ranks="" if standing is None else rank_words(standing.ranks).split(" ", 1)[1],
        why="" if standing is not None else _why(stored, entry, axis),
        provisional=entry.standing == "provisional",
        flags=tuple(_flags(entry, axis)),
        score=score,
        figure=Markup(figures.score_row(label, score, x, strong=tier == 1)),
        facets=profile.facets,
        cells=profile.cells,
    )


def _why(stored: StoredBoard, entry: Entry, axis: Axis) -> str:
    """What keeps an entry from a rank, in sentences; at length in the first table alone."""
    score = entry.axes[axis]
    lack = [wording.sentence(score.reason)] if score.reason else []
    if stored.board.unranked is None and entry.ranks:
        return " ".join((*place(entry, stored.board, axis), *lack))
    kind = wording.sentence(words.STANDINGS[entry.standing])
    return " ".join((kind, *(entry.why if axis == AXES[0] else ()), *lack))


def _flags(entry: Entry, axis: Axis) -> Iterator[Flag]:
    failures = len(entry.failed) + len(entry.vanished)
    if failures:
        about = "It stays in: from the failure on it counts as the floor, as knowing nothing"
        names = wording.listed((*entry.failed, *entry.vanished))
        yield Flag(f"{failures} failed", f"{names}. {about}")
    if axis == "efficiency" and entry.placebo is not None and entry.placebo.elicitation:
        yield Flag("mostly elicitation", "A reward without content brings more than a quarter of Λ")


def _cells(stored: StoredBoard, entry: Entry, entry_facets: Facets) -> Cells:
    subject = stored.by_entry[entry.name][0].subject
    net = None if entry.placebo is None else entry.placebo.net.value
    failures = len(entry.failed) + len(entry.vanished)
    brief, novelty = stored.brief(entry), entry.novelty
    numbers = brief["numbers"]
    scores = {"head": numbers["H"], "learned": numbers["L"], "net": net}
    scores["whole"] = brief["lam"] if entry.axes["efficiency"].new else None
    scores["taught"] = entry.mode and entry.mode.net.value
    scores["known"] = novelty and novelty.known_share
    scores |= {**brief["parts"], "forgot": numbers["forgot"]}
    ends = {key: mean_scores([brief], split) for key, split in DECODED.items()}
    texts = {
        "badge": entry_facets.badge,
        "precision": entry_facets.precision,
        "hardware": entry_facets.hardware,
        "submitter": stored.submitters[entry.name],
    }
    return {
        **{key: Cell(wording.number(value), value) for key, value in scores.items()},
        **{key: Cell(_arrow(pair), pair and pair[1]) for key, pair in ends.items()},
        **{key: Cell(text, text) for key, text in texts.items()},
        "size": Cell(parameters(subject), model_size(subject)),
        "seeds": Cell(str(entry.n), entry.n),
        "failed": Cell(str(failures), failures),
    }


def _arrow(ends: tuple[float, float] | None) -> str:
    return "–" if ends is None else " → ".join(map(wording.number, ends))


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
        return f"All {ranked} tie", "Nobody is significantly worse than the highest on these tasks."
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
