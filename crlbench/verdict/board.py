"""The verdict on a board (protocol CRL-1): entries, their three axes, tiers and pairs.

:func:`summarise_board` takes loaded runs of one fingerprint and gives a :class:`Board`: one
:class:`Entry` per model and recipe, each with its scores on three axes, and per recipe and axis
a ranking of the entries that rank. An entry's numbers are a function of its own runs alone.
:func:`paired_axes` compares two entries over the seeds and tasks that both have.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal, NamedTuple

from crlbench.base.parallel import on_one_thread
from crlbench.contract.arms import ARMS, CONTROLS, Arm
from crlbench.contract.conditions import Reference, Track
from crlbench.contract.records import RunRecord
from crlbench.errors import ValidationError, unknown_name
from crlbench.stats.correlations import Correlation, correlations
from crlbench.stats.intervals import LEVEL, REPLICATES, ROOT_SEED, RULE_WORDS
from crlbench.stats.swaps import SWAP_SEED
from crlbench.stats.tiers import ALPHA
from crlbench.verdict.archive import Archive
from crlbench.verdict.axes import (
    AXES,
    AXIS_SIGNS,
    AXIS_WORDS,
    CHARGED_SIGN,
    IN_MEMORY,
    MARGIN,
    NEW_SIGN,
    Axis,
    AxisScore,
    Estimate,
    Evidence,
    Generalization,
)
from crlbench.verdict.board_conditions import board_tasks, same_conditions
from crlbench.verdict.census import Standing
from crlbench.verdict.charged import ranks_charged
from crlbench.verdict.design_ranking import DesignRanking, draw_lines, rank_designs
from crlbench.verdict.design_rows import ranks_new
from crlbench.verdict.efficiency import Efficiency, Speed, TaskEfficiency
from crlbench.verdict.entry import Control, Entry, as_own, make_entry
from crlbench.verdict.improvements import Improvement, improvement_of
from crlbench.verdict.load import Runs
from crlbench.verdict.pairs import AxisPair, paired_axes
from crlbench.verdict.plain_data import plain
from crlbench.verdict.protocols import Rules, rules_of
from crlbench.verdict.ranking import AxisRanking, Contestant, Tests, rank_axis
from crlbench.verdict.resources import known_track
from crlbench.verdict.runs import Run
from crlbench.verdict.task_runs import X_AXES, SeedCurve, XAxis

__all__ = [
    "AXES",
    "AXIS_SIGNS",
    "AXIS_WORDS",
    "IN_MEMORY",
    "MARGIN",
    "X_AXES",
    "Axis",
    "AxisPair",
    "AxisRanking",
    "AxisScore",
    "Board",
    "Control",
    "Efficiency",
    "Entry",
    "Estimate",
    "Evidence",
    "Generalization",
    "Improvement",
    "SeedCurve",
    "Speed",
    "Standing",
    "TaskEfficiency",
    "XAxis",
    "paired_axes",
    "plain",
    "summarise_board",
]


class Ranked(NamedTuple):
    """What a ranking is made of, as :func:`rank_entries` takes it."""

    axis: Axis
    recipe: str
    entries: Sequence[Entry]
    unranked: str | None
    replicates: int
    declared: tuple[str, ...] = ()

    def rank(self, tests: Tests | None = None) -> AxisRanking:
        """The ranking; ``tests`` as for :func:`crlbench.verdict.ranking.rank_axis`."""
        return rank_entries(*self, tests)


@dataclass(frozen=True)
class Board:
    """One fingerprint, one class of hardware."""

    track: str
    track_version: int
    division: Literal["closed", "open"]
    fingerprint: str
    hardware: str | None
    tasks: tuple[str, ...]
    entries: tuple[Entry, ...]
    """Real arms, by recipe, then name."""
    controls: tuple[Entry, ...] = field(metadata=IN_MEMORY)
    """Control arms, by model, recipe and arm."""
    placebo_only: tuple[str, ...]
    """``model/recipe`` with runs of control arms and none of the real one: no entries."""
    rankings: dict[str, dict[Axis, AxisRanking]]
    """By recipe; every recipe that has an entry."""
    improvement: dict[str, Improvement]
    """By recipe, over the entries with a Λ."""
    correlations: dict[str, tuple[Correlation, ...]]
    """By recipe: how alike the three axes order its entries."""
    unranked: str | None
    """Why nothing on this board ranks, whoever takes part; None where something may."""
    margin: float
    alpha: float
    bootstrap: dict[str, Any]
    crlbench: tuple[str, ...] = field(metadata=IN_MEMORY)
    """Versions that wrote the records."""
    conditions: dict[str, Any] = field(metadata=IN_MEMORY)
    """Everything that was held fixed, by its path in the fingerprint."""
    rules: Rules = field(metadata=IN_MEMORY)
    """What the protocol decides for the board's tasks."""

    @property
    def arms(self) -> tuple[Entry, ...]:
        """Entries and controls, by model, recipe and arm."""
        arms = (*self.entries, *self.controls)
        return tuple(sorted(arms, key=lambda e: (e.model, e.recipe, e.arm)))

    @property
    def signs(self) -> dict[Axis, str]:
        """The symbol of each axis under the board's protocol and conditions."""
        if ranks_charged(self.conditions):
            return AXIS_SIGNS | {"efficiency": CHARGED_SIGN}
        return AXIS_SIGNS | ({"efficiency": NEW_SIGN} if self.rules.ranks_new else {})

    def entry(self, name: str) -> Entry:
        """The entry of that name.

        Raises:
            UsageError: there is none (names the nearest).
        """
        for entry in self.entries:
            if entry.name == name:
                return entry
        raise unknown_name("entry", name, [entry.name for entry in self.entries])

    def plain(self) -> dict[str, Any]:
        """Only what JSON knows: in-memory fields left out, arrays as lists, NaN as None."""
        return plain(self)

    def summary(self) -> dict[str, Any]:
        """What ``summary.json`` holds: every arm, and under ``board`` the verdict."""
        return {
            "crlbench": list(self.crlbench),
            "track": self.track,
            "track_version": self.track_version,
            "division": self.division,
            "fingerprint": self.fingerprint,
            "conditions": self.conditions,
            "tasks": list(self.tasks),
            "entries": [entry.summary() for entry in self.arms],
            "bootstrap": self.resampling(),
            "board": self.plain(),
        }

    def resampling(self) -> dict[str, Any]:
        """How the intervals of every arm's numbers were made."""
        return {
            "seed": self.bootstrap["seed"],
            "replicates": self.bootstrap["replicates"],
            "level": LEVEL,
            "method": f"{RULE_WORDS[self.rules.interval]}; tasks are strata, seeds and items are "
            "resampled, the noise of single answers is counted once",
        }

    def to_json(self) -> str:
        """Canonical, indented JSON; floats in full precision."""
        return json.dumps(self.plain(), indent=1, sort_keys=True, allow_nan=False) + "\n"


@on_one_thread
def summarise_board(
    runs: Runs,
    replicates: int = REPLICATES,
    seed: int = ROOT_SEED,
    unranked: str | None = None,
    own: Collection[str] = (),
) -> Board:
    """The verdict on the runs below one folder.

    Args:
        runs: of one fingerprint and one class of hardware.
        replicates: of the bootstrap.
        seed: of its draws.
        unranked: why nothing may rank, where whoever asks knows more than the records say.
        own: names of entries that are the reader's own, which never rank.

    Raises:
        ValidationError: there is no run, a stored score does not agree with its item vector, a
            value is no number, or a ledger is damaged.
        NotComparable: the runs were made under different conditions or on different hardware.
    """
    if not runs.runs:
        raise ValidationError(f"{runs.folder}: no runs, so nothing can be said")
    first = same_conditions(runs)
    track = _track(first)
    tasks = board_tasks(first) or tuple(sorted({run.record.task.name for run in runs}))
    entries, controls = _entries(runs, tasks, track and track.reference, replicates, seed)
    entries = [as_own(entry) if entry.name in own else entry for entry in entries]
    return board_of(runs, entries, controls, tasks, replicates, seed, unranked)


@on_one_thread
def board_of(
    runs: Runs,
    entries: Sequence[Entry],
    controls: Sequence[Entry],
    tasks: tuple[str, ...],
    replicates: int = REPLICATES,
    seed: int = ROOT_SEED,
    unranked: str | None = None,
    rank: Callable[[Sequence[Ranked]], Sequence[AxisRanking]] | None = None,
    improve: Callable[[Sequence[Entry]], Improvement] | None = None,
) -> Board:
    """The verdict on entries that were made already: rankings, and what is common to all.

    Args:
        runs: of all entries, of one fingerprint and one class of hardware.
        entries: of the real arm, in any order.
        controls: of the control arms.
        tasks: of the board.
        replicates, seed, unranked: as for :func:`summarise_board`.
        rank: makes all rankings; None: one after the other.
        improve: gives what :func:`improvement_of` gives; None: that.
    """
    first = runs.runs[0].record
    improve = improve or improvement_of
    entries = tuple(sorted(entries, key=lambda entry: (entry.recipe, entry.name)))
    controls = tuple(sorted(controls, key=lambda e: (e.model, e.recipe, ARMS.index(e.arm))))
    names = {entry.name for entry in entries}
    track, rules = _track(first), rules_of(first)
    unranked = unranked or _why_unranked(first, track)
    recipes = sorted({entry.recipe for entry in entries})
    by_recipe = {recipe: [e for e in entries if e.recipe == recipe] for recipe in recipes}
    declared = () if track is None else track.designs
    wanted = [
        Ranked(axis, recipe, recipe_entries, unranked, replicates, declared)
        for recipe, recipe_entries in by_recipe.items()
        for axis in AXES
    ]
    ranked = [one.rank() for one in wanted] if rank is None else rank(wanted)
    rankings = {
        recipe: with_lines({one.axis: one for one in ranked if one.recipe == recipe})
        for recipe in by_recipe
    }
    return Board(
        track=first.protocol.track,
        track_version=first.protocol.track_version,
        division=first.protocol.division,
        fingerprint=first.fingerprint.hash,
        hardware=first.environment.get("hardware_class"),
        tasks=tasks,
        entries=entries,
        controls=controls,
        placebo_only=tuple(
            dict.fromkeys(one.name for one in controls if one.name not in names)
        ),
        rankings=rankings,
        improvement={
            recipe: improve(recipe_entries) for recipe, recipe_entries in by_recipe.items()
        },
        correlations={
            recipe: correlate_axes(recipe_entries, rankings[recipe])
            for recipe, recipe_entries in by_recipe.items()
        },
        unranked=unranked,
        margin=MARGIN,
        alpha=ALPHA,
        bootstrap={
            "seed": seed,
            "swap_seed": SWAP_SEED,
            "replicates": replicates,
            "level": LEVEL,
            "method": f"{RULE_WORDS[rules.interval]}; tasks are strata, seeds and items are "
            "resampled (stability: seeds), the noise of single answers is counted once",
            "rank_method": "label swaps of all pairs, adjusted step-down",
        },
        crlbench=tuple(sorted({run.version for run in runs})),
        conditions=first.fingerprint.leaves,
        rules=rules,
    )


def _track(record: RunRecord) -> Track | None:
    """The track of a record where this installation knows it at that version."""
    return known_track(record.protocol.track, record.protocol.track_version)


def _why_unranked(record: RunRecord, track: Track | None) -> str | None:
    protocol = record.protocol
    if protocol.division == "open":
        return "open division: something differs from the track, so nothing on this board ranks"
    if protocol.track_version == 0:
        return f"track {protocol.track} is at version 0: not frozen yet, so nothing on it ranks"
    if track is not None and not track.ranked:
        return f"track {protocol.track} is not ranked"
    return None


def _entries(
    runs: Runs, board: Sequence[str], reference: Reference | None, count: int, seed: int
) -> tuple[list[Entry], list[Entry]]:
    """Entries of the real arm, and of the control arms."""
    archive, entries, controls = Archive(runs), list[Entry](), list[Entry]()
    for _, group in groupby(runs, key=lambda run: (run.model, run.recipe)):
        arms: dict[Arm, list[Run]] = {arm: [] for arm in ARMS}
        for run in group:
            arms[run.record.arm].append(run)
        beside: dict[Arm, Entry] = {}
        for arm in CONTROLS:
            if not arms[arm]:
                continue
            control = make_entry(arms[arm], board, archive, reference, count, seed)
            controls.append(control)
            if archive.counted(arms[arm]):
                beside[arm] = control
        if arms["real"]:
            entries.append(
                make_entry(arms["real"], board, archive, reference, count, seed, beside)
            )
    return entries, controls


def correlate_axes(
    entries: Sequence[Entry], rankings: Mapping[Axis, AxisRanking] | None = None
) -> tuple[Correlation, ...]:
    """Spearman's correlation of every pair of axes over the entries of a recipe.

    Args:
        rankings: of the recipe by axis. Where they have rows of designs, these are correlated; a
            row of one checkpoint stands for none.
    """
    designs = {axis: one.designs for axis, one in (rankings or {}).items() if one.designs}
    if designs:
        return correlations(
            {
                axis: [None if one.is_aside(row) else row.score.value for row in one.rows]
                for axis, one in designs.items()
            }
        )
    return correlations({axis: [entry.axes[axis].value for entry in entries] for axis in AXES})


def rank_entries(
    axis: Axis,
    recipe: str,
    entries: Sequence[Entry],
    unranked: str | None,
    replicates: int,
    declared: Sequence[str] = (),
    tests: Tests | None = None,
) -> AxisRanking:
    """Rank the entries of one recipe.

    Args:
        unranked: why nothing may be ranked; None where something may.
        declared: the designs that the track names.
        tests: as for :func:`crlbench.verdict.ranking.rank_axis`.
    """
    if any(map(ranks_new, entries)):
        return _of_rows(axis, recipe, rank_designs(axis, entries, unranked, declared))
    taking = [entry for entry in entries if entry.ranks]
    with_score = [entry for entry in taking if entry.axes[axis].value is not None]
    return rank_axis(
        axis,
        recipe,
        [_contestant(axis, entry) for entry in with_score],
        unrated=[entry.name for entry in taking if entry.axes[axis].value is None],
        left_out=[entry.name for entry in entries if not entry.ranks],
        reason=unranked,
        replicates=replicates,
        tests=tests,
    )


def with_lines(rankings: Mapping[Axis, AxisRanking]) -> dict[Axis, AxisRanking]:
    """The rankings of a recipe, those of designs with the false-discovery line of their page."""
    known = {axis: one.designs for axis, one in rankings.items() if one.designs is not None}
    lines = dict(zip(known, draw_lines(list(known.values())), strict=True))
    return {
        axis: replace(one, designs=lines[axis]) if axis in lines else one
        for axis, one in rankings.items()
    }


def _of_rows(axis: Axis, recipe: str, found: DesignRanking) -> AxisRanking:
    return AxisRanking(
        axis=axis,
        recipe=recipe,
        ranking=found.ranking,
        left_out=found.left_out,
        survival=found.survival,
        designs=found.designs,
    )


def _contestant(axis: Axis, entry: Entry) -> Contestant:
    score, evidence = entry.axes[axis], entry.evidence
    by_task = {task: evidence.seeds(axis, task) for task in score.by_task}
    parts = None
    if axis == "generalization":
        parts = {task: evidence.seeds("parts", task) for task in score.by_task}
    drawn = score.drawn, score.spread
    return Contestant(entry.name, score.value, by_task, *drawn, parts, evidence.weights)
