"""Models that differ in design, size or fine-tuning alone: controlled comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crlbench.base import wording
from crlbench.pages import design_words as say
from crlbench.pages import words
from crlbench.site import design_standings
from crlbench.site.design_standings import row_of
from crlbench.site.effects import Drawing, Effects, design_effect, drawings
from crlbench.site.facets import parameters
from crlbench.site.pages import Page, model_slug
from crlbench.site.source import Site, StoredBoard
from crlbench.site.zoo import Animal, Zoo, differences, find_bundled, zoos
from crlbench.stats.measures import ID
from crlbench.verdict.ablation import FieldChange
from crlbench.verdict.axes import AXES, AXIS_WORDS, Axis, AxisScore
from crlbench.verdict.board import rank_entries
from crlbench.verdict.design_rows import group_entries
from crlbench.verdict.entry import Entry
from crlbench.verdict.pairs import Effect
from crlbench.verdict.ranking import AxisRanking
from crlbench.verdict.resources import known_track

FRONT = "architectures.html"


@dataclass(frozen=True)
class Learner:
    """A model of the zoo, and how it learned; without an entry it has not been run."""

    animal: Animal
    size: str
    active: str
    entry: Entry | None
    """Of several checkpoints the first by label, which has all arms."""
    checkpoints: str
    """``3 checkpoints``; empty where there is one."""
    start: float | None
    """Share of held-out prompts answered before training, mean over tasks."""
    starts: dict[str, float]
    """Score before training by task, mean over checkpoints."""
    scores: dict[Axis, AxisScore]
    """Over the checkpoints that have the axis; empty where it was not run."""
    tiers: dict[Axis, int | None]
    """Tier among the designs of equal budget."""


@dataclass(frozen=True)
class Contrast:
    """Models that differ in one thing, each against the same base."""

    key: str
    question: str
    about: str
    paired: str
    """How a difference was taken."""
    base: Learner
    others: tuple[Learner, ...]
    changes: dict[str, tuple[FieldChange, ...]]
    """Fields in which the configs differ, by slug."""
    effects: dict[str, Effects]
    """Effects by slug, of the models that were run."""
    drawings: dict[Axis, Drawing]
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Exhibit:
    """One zoo on one board with one recipe."""

    zoo: Zoo
    stored: StoredBoard
    recipe: str
    tasks: tuple[str, ...]
    designs: tuple[Learner, ...]
    with_others: bool
    """Whether models of other zoos stand on the board too."""
    of_designs: bool
    """Whether sample efficiency compares designs over several checkpoints each."""
    scope: str
    """What the comparisons are about, in sentences."""
    answers: tuple[tuple[Axis, str, str, str], ...]
    """Axis, its title, who leads, and how sure that is."""
    contrasts: tuple[Contrast, ...]


def pages(site: Site) -> Iterator[Page]:
    """The one page."""
    exhibits = [_exhibit(zoo, site) for zoo in zoos(find_bundled(site.catalog))]
    yield Page(
        path=FRONT,
        template="architectures.html.j2",
        title="Architectures under reinforcement learning",
        about="Models of equal size, pretrained on the same documents: sample efficiency, "
        "stability and generalization under RL, with intervals.",
        data={
            "exhibits": [one for one in exhibits if one is not None],
            "axes": AXES,
        },
        section="architectures",
    )


def _exhibit(zoo: Zoo, site: Site) -> Exhibit | None:
    """The zoo where most of it was run; None where none of it was."""
    slugs = {one.slug for one in (*zoo.designs, *zoo.sizes)}
    places = [
        (sum(model_slug(entry.model) in slugs for entry in stored.entries(recipe)), stored, recipe)
        for stored in site.boards
        for recipe in stored.recipes
    ]
    count, stored, recipe = max(places, key=lambda place: place[0])
    return _make_exhibit(zoo, stored, recipe) if count else None


def _make_exhibit(zoo: Zoo, stored: StoredBoard, recipe: str) -> Exhibit:
    members = _members(stored.entries(recipe))
    of_designs = [entry for one in zoo.designs for entry in members.get(one.slug, ())]
    board = stored.board
    rankings = {
        axis: rank_entries(axis, recipe, of_designs, board.unranked, board.bootstrap["replicates"])
        for axis in AXES
    }
    everyone = (*zoo.designs, *zoo.sizes, *(one for pair in zoo.tuned_pairs for one in pair))
    learners = {
        one.slug: _learner(one, members.get(one.slug, ()), stored, rankings) for one in everyone
    }
    return Exhibit(
        zoo=zoo,
        stored=stored,
        recipe=recipe,
        tasks=board.tasks,
        designs=tuple(learners[one.slug] for one in zoo.designs),
        with_others=len(of_designs) < len(stored.entries(recipe)),
        of_designs=_is_of_designs(rankings["efficiency"]),
        scope=" ".join(_scope(rankings, board.signs)),
        answers=tuple(
            _answer(axis, board.signs[axis], rankings[axis], of_designs) for axis in AXES
        ),
        contrasts=tuple(_contrasts(zoo, stored, learners, rankings)),
    )


def _members(entries: Sequence[Entry]) -> dict[str, tuple[Entry, ...]]:
    """The entries of each model by slug: the checkpoints of its design, or one alone."""
    by_label = sorted(entries, key=lambda entry: entry.checkpoint or "", reverse=True)
    found = {model_slug(entry.model): (entry,) for entry in by_label}
    for group in group_entries(entries):
        first = group.entries[0]
        if group.name == f"{first.slug}/{first.recipe}":
            found[model_slug(first.model)] = group.entries
    return found


def _is_of_designs(axis_ranking: AxisRanking) -> bool:
    return axis_ranking.designs is not None and axis_ranking.designs.kind == "designs"


def _scope(rankings: Mapping[Axis, AxisRanking], signs: Mapping[Axis, str]) -> Iterator[str]:
    designs = rankings["efficiency"].designs
    if designs is None:
        yield "One checkpoint of each design was trained: whether the designs differ is not known."
        return
    yield design_standings.of_designs(designs)
    if about := say.single_axes(rankings, signs):
        yield about


def _learner(
    one: Animal,
    entries: Sequence[Entry],
    stored: StoredBoard,
    rankings: Mapping[Axis, AxisRanking],
) -> Learner:
    entry = next(iter(entries), None)
    starts = _starts(stored, entries)
    subject = None if entry is None else stored.by_entry[entry.name][0].subject
    rows = {} if entry is None else {axis: row_of(one, entry) for axis, one in rankings.items()}
    row = rows.get("efficiency")
    return Learner(
        animal=one,
        size=wording.grouped(one.params) if subject is None else parameters(subject),
        active=wording.grouped(one.card.params_active),
        entry=entry,
        checkpoints=say.checkpoints(row) if row is not None and len(entries) > 1 else "",
        start=float(np.mean([*starts.values()])) if starts else None,
        starts=starts,
        scores={}
        if entry is None
        else {axis: entry.axes[axis] if row is None else row.score for axis, row in rows.items()},
        tiers={
            axis: ranked.ranking.tier(entry.name) if entry else None
            for axis, ranked in rankings.items()
        },
    )


def _starts(stored: StoredBoard, entries: Sequence[Entry]) -> dict[str, float]:
    """Raw score of the start models on new prompts of each task; the same for every seed."""
    scores: dict[str, dict[str, float]] = {}
    for entry in entries:
        for run in stored.by_entry[entry.name]:
            split = run.record.splits.get(ID)
            if split is not None:
                scores.setdefault(run.record.task.name, {})[entry.name] = split.start
    return {task: float(np.mean([*found.values()])) for task, found in sorted(scores.items())}


def _answer(
    axis: Axis, sign: str, axis_ranking: AxisRanking, entries: Sequence[Entry]
) -> tuple[Axis, str, str, str]:
    title = f"{AXIS_WORDS[axis].capitalize()} {sign}"
    displayed = {entry.name: entry.display_name for entry in entries}
    ranking = axis_ranking.ranking
    if not ranking.anchors:
        return axis, title, "No ranking yet", wording.sentence(ranking.reason)
    if axis_ranking.designs is not None:
        return axis, title, *_answer_of_rows(axis_ranking)
    leader = displayed[ranking.first_member(ranking.anchors[0])]
    close = [displayed[ranking.first_member(s.model)] for s in ranking.beside_leader()[0]]
    if not close:
        return axis, title, leader, "Every other checkpoint is significantly worse on these tasks."
    if 1 + len(close) == len(ranking.standings):
        sure = f"Highest: {leader}; no checkpoint is significantly worse on these tasks."
        return axis, title, wording.all_tie(1 + len(close)), sure
    sure = f"Tie of {1 + len(close)} on these tasks, with {wording.listed(close)}."
    return axis, title, leader, sure


def _answer_of_rows(axis_ranking: AxisRanking) -> tuple[str, str]:
    """Who leads the rows of a board of protocol CRL-2, and how sure that is."""
    designs, ranking = axis_ranking.designs, axis_ranking.ranking
    assert designs is not None
    how, sure = design_standings.answer(axis_ranking)
    leader = designs.row(ranking.anchors[0]).display_name
    if design_standings.uncompared(designs):
        return how.capitalize(), sure
    if 1 + len(ranking.beside_leader()[0]) == len(ranking.standings):
        return how, f"Highest: {leader}. {sure}"
    return leader, sure


def _contrasts(
    zoo: Zoo,
    stored: StoredBoard,
    learners: Mapping[str, Learner],
    rankings: Mapping[Axis, AxisRanking],
) -> Iterator[Contrast]:
    designs = [learners[one.slug] for one in zoo.designs]
    middle = _reference(stored, designs, rankings["efficiency"])
    if middle is None:
        return
    several = _is_of_designs(rankings["efficiency"])
    checkpoints = "several checkpoints" if several else "one checkpoint"
    yield _contrast(
        stored,
        "designs",
        f"Do {'' if several else 'checkpoints of '}other designs differ from "
        f"{middle.animal.card.display_name}?",
        "Equal size, and checkpoints of one number have read the same documents in the same order: "
        f"the design differs, with {checkpoints} of each.",
        middle,
        [one for one in designs if one is not middle],
        rankings,
    )
    if zoo.sizes:
        sizes = [learners[one.slug] for one in zoo.sizes]
        base = next((one for one in sizes if one in designs), sizes[0])
        yield _contrast(
            stored,
            "size",
            "Do checkpoints of other sizes differ?",
            "One design, the same documents: the width differs, one checkpoint for each size.",
            base,
            [one for one in sizes if one is not base],
        )
    for before, after in zoo.tuned_pairs:
        yield _contrast(
            stored,
            f"tuned-{after.slug}",
            "Does fine-tuning first help?",
            "The same checkpoint, with and without supervised fine-tuning on the format of the "
            "tasks. The share of the headroom that is captured makes unequal starts comparable.",
            learners[before.slug],
            [learners[after.slug]],
        )


def _reference(
    stored: StoredBoard, designs: Sequence[Learner], efficiency: AxisRanking
) -> Learner | None:
    """The model that the track names as its reference, else the one that leads on sample
    efficiency, else the first that was run."""
    ran = [one for one in designs if one.entry is not None]
    track = known_track(stored.board.track, stored.board.track_version)
    reference = track.reference.model if track is not None and track.reference is not None else ""
    named = [one for one in ran if one.entry.model == reference]
    leading = [one for one in ran if _leads(efficiency, one.entry)]
    return next(iter((*named, *leading, *ran)), None)


def _leads(axis_ranking: AxisRanking, entry: Entry) -> bool:
    """Whether the row of an entry is the first of the best tier."""
    row = row_of(axis_ranking, entry)
    return (entry.name if row is None else row.name) in axis_ranking.ranking.anchors[:1]


def _contrast(
    stored: StoredBoard,
    key: str,
    question: str,
    about: str,
    base: Learner,
    others: Sequence[Learner],
    rankings: Mapping[Axis, AxisRanking] | None = None,
) -> Contrast:
    ran = [one for one in others if one.entry is not None and base.entry is not None]
    of_designs = {
        axis: ranked for axis, ranked in (rankings or {}).items() if _is_of_designs(ranked)
    }
    by_slug = {one.animal.slug: _effects(stored, of_designs, base, one) for one in ran}
    labels = [(one.animal.card.display_name, by_slug[one.animal.slug]) for one in ran]
    return Contrast(
        key=key,
        question=question,
        about=about,
        paired=_paired([stored.board.signs[axis] for axis in AXES if axis not in of_designs])
        if of_designs
        else "paired by seed",
        base=base,
        others=tuple(others),
        changes={one.animal.slug: differences(base.animal, one.animal) for one in others},
        effects=by_slug,
        drawings=drawings(labels, stored.board.signs) if labels else {},
        sentences=tuple(_sentence(name, by_axis) for name, by_axis in labels),
    )


def _paired(single: Sequence[str]) -> str:
    """How differences of designs were taken, some axes excepted."""
    if not single:
        return "between means over checkpoints"
    return (
        f"between means over checkpoints, and of {wording.listed(single)} between one checkpoint "
        "of each, paired by seed"
    )


def _effects(
    stored: StoredBoard, rankings: Mapping[Axis, AxisRanking], base: Learner, other: Learner
) -> Effects:
    """Other minus base: of designs where an axis ranks them, else of their first checkpoints."""
    assert base.entry is not None and other.entry is not None
    effects = dict(stored.pairs.compare(base.entry, other.entry).axes)
    for axis, ranked in rankings.items():
        rows = [row_of(ranked, one.entry) for one in (base, other)]
        if ranked.designs is not None and rows[0] is not None and rows[1] is not None:
            effects[axis] = design_effect(ranked.designs, rows[0], rows[1])
    return effects


def _sentence(name: str, by_axis: Effects) -> str:
    """``tiny-llama-3m: worse on sample efficiency (−0.206; over other tasks [−0.481, 0.069]).``"""
    parts = [
        f"{effect.call} on {AXIS_WORDS[axis]} ({words.value(effect, signed=True)}"
        f"{_elsewhere(effect)})"
        for axis, pair in by_axis.items()
        if (effect := pair.effect) is not None
    ]
    return f"{name}: {', '.join(parts) or 'no number yet'}."


def _elsewhere(effect: Effect) -> str:
    """The interval over tasks; empty where there are too few tasks for one."""
    wider = effect.wider
    return "" if wider is None else f"; over other tasks {words.span(wider)}"
