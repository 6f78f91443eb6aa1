"""Checkpoints that differ in design, size or fine-tuning, one each: controlled comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from crlbench.base import wording
from crlbench.pages import words
from crlbench.site.design_standings import UNCOMPARED, uncompared
from crlbench.site.effects import Drawing, Effects, drawings
from crlbench.site.facets import parameters
from crlbench.site.pages import Page, model_slug
from crlbench.site.source import Site, StoredBoard
from crlbench.site.zoo import Animal, Zoo, differences, find_bundled, zoos
from crlbench.stats.measures import ID
from crlbench.verdict.ablation import FieldChange
from crlbench.verdict.axes import AXES, AXIS_WORDS, MARGIN, Axis
from crlbench.verdict.board import rank_entries
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
    start: float | None
    """Share of held-out prompts answered before training, mean over tasks."""
    starts: dict[str, float]
    """Score before training by task."""
    tiers: dict[Axis, int | None]
    """Tier among the designs of equal budget."""


@dataclass(frozen=True)
class Contrast:
    """Models that differ in one thing, each against the same base."""

    key: str
    question: str
    about: str
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
    answers: tuple[tuple[Axis, str, str, str], ...]
    """Axis, its title, who leads, and how sure that is."""
    contrasts: tuple[Contrast, ...]


def pages(site: Site) -> Iterator[Page]:
    """The one page."""
    exhibits = [_exhibit(zoo, site) for zoo in zoos(find_bundled(site.catalog))]
    yield Page(
        path=FRONT,
        template="architectures.html.j2",
        title="Architectures: one checkpoint each under reinforcement learning",
        about="Models of equal size, pretrained on the same documents, one checkpoint of each "
        "design: sample efficiency, stability and generalization under RL, with intervals.",
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
    entries = _one_each(stored.entries(recipe))
    design_entries = [entries[one.slug] for one in zoo.designs if one.slug in entries]
    board = stored.board
    rankings = {
        axis: rank_entries(
            axis, recipe, design_entries, board.unranked, board.bootstrap["replicates"]
        )
        for axis in AXES
    }
    everyone = (*zoo.designs, *zoo.sizes, *(one for pair in zoo.tuned_pairs for one in pair))
    learners = {one.slug: _learner(one, entries, stored, rankings) for one in everyone}
    return Exhibit(
        zoo=zoo,
        stored=stored,
        recipe=recipe,
        tasks=board.tasks,
        designs=tuple(learners[one.slug] for one in zoo.designs),
        answers=tuple(
            _answer(axis, board.signs[axis], rankings[axis], design_entries) for axis in AXES
        ),
        contrasts=tuple(_contrasts(zoo, stored, learners)),
    )


def _one_each(entries: Sequence[Entry]) -> dict[str, Entry]:
    """An entry of each model by slug; of several checkpoints the first by label, which has all
    arms."""
    by_label = sorted(entries, key=lambda entry: entry.checkpoint or "", reverse=True)
    return {model_slug(entry.model): entry for entry in by_label}


def _learner(
    one: Animal,
    entries: dict[str, Entry],
    stored: StoredBoard,
    rankings: dict[Axis, AxisRanking],
) -> Learner:
    entry = entries.get(one.slug)
    starts = {} if entry is None else _starts(stored, entry)
    subject = None if entry is None else stored.by_entry[entry.name][0].subject
    return Learner(
        animal=one,
        size=wording.grouped(one.params) if subject is None else parameters(subject),
        active=wording.grouped(one.card.params_active),
        entry=entry,
        start=float(np.mean([*starts.values()])) if starts else None,
        starts=starts,
        tiers={
            axis: ranked.ranking.tier(entry.name) if entry else None
            for axis, ranked in rankings.items()
        },
    )


def _starts(stored: StoredBoard, entry: Entry) -> dict[str, float]:
    """Raw score of the start model on new prompts of each task; the same for every seed."""
    scores = {}
    for run in stored.by_entry[entry.name]:
        split = run.record.splits.get(ID)
        if split is not None:
            scores.setdefault(run.record.task.name, split.start)
    return dict(sorted(scores.items()))


def _answer(
    axis: Axis, sign: str, axis_ranking: AxisRanking, entries: Sequence[Entry]
) -> tuple[Axis, str, str, str]:
    title = f"{AXIS_WORDS[axis].capitalize()} {sign}"
    displayed = {entry.name: entry.display_name for entry in entries}
    ranking = axis_ranking.ranking
    if not ranking.anchors:
        return axis, title, "No ranking yet", wording.sentence(ranking.reason)
    designs = axis_ranking.designs
    if designs is not None and uncompared(designs):
        return axis, title, UNCOMPARED.capitalize(), "Every difference of two rows is refused."
    leader = displayed[ranking.first_member(ranking.anchors[0])]
    close, behind = (
        [displayed[ranking.first_member(s.model)] for s in part] for part in ranking.beside_leader()
    )
    worse = "significantly worse"
    if designs is not None:
        worse = f"worse by more than {wording.number(MARGIN, 2)}"
    if not close and not behind:
        return axis, title, leader, f"Every other checkpoint is {worse} on these tasks."
    if 1 + len(close) == len(ranking.standings):
        sure = f"Highest: {leader}; no checkpoint is {worse} on these tasks."
        return axis, title, wording.all_tie(1 + len(close)), sure
    sure = f"Tie of {1 + len(close)} on these tasks, with {wording.listed(close)}."
    return axis, title, leader, sure


def _contrasts(zoo: Zoo, stored: StoredBoard, learners: dict[str, Learner]) -> Iterator[Contrast]:
    designs = [learners[one.slug] for one in zoo.designs]
    middle = _reference(stored, designs)
    if middle is None:
        return
    yield _contrast(
        stored,
        "designs",
        f"Do checkpoints of other designs differ from {middle.animal.card.display_name}?",
        "Equal size, the same documents in the same order: the design differs, with one checkpoint "
        "of each.",
        middle,
        [one for one in designs if one is not middle],
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


def _reference(stored: StoredBoard, designs: Sequence[Learner]) -> Learner | None:
    """The model that the track names as its reference, else the first that was run."""
    ran = [one for one in designs if one.entry is not None]
    track = known_track(stored.board.track, stored.board.track_version)
    reference = track.reference.model if track is not None and track.reference is not None else ""
    return next((one for one in ran if one.entry.model == reference), next(iter(ran), None))


def _contrast(
    stored: StoredBoard,
    key: str,
    question: str,
    about: str,
    base: Learner,
    others: Sequence[Learner],
) -> Contrast:
    ran = [one for one in others if one.entry is not None and base.entry is not None]
    by_slug = {one.animal.slug: stored.pairs.compare(base.entry, one.entry).axes for one in ran}
    labels = [(one.animal.card.display_name, by_slug[one.animal.slug]) for one in ran]
    return Contrast(
        key=key,
        question=question,
        about=about,
        base=base,
        others=tuple(others),
        changes={one.animal.slug: differences(base.animal, one.animal) for one in others},
        effects=by_slug,
        drawings=drawings(labels, stored.board.signs) if labels else {},
        sentences=tuple(_sentence(name, by_axis) for name, by_axis in labels),
    )


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
