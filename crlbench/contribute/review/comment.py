"""What a pull request's comment is made of: what was found, and what changes on the boards.

Plain data (:mod:`crlbench.contribute.review.posting` has its form). Whoever posts it makes the
text, in a process that a pull request cannot reach.
"""

from __future__ import annotations

import contextlib
import io
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from crlbench.base.wording import NONE, clean
from crlbench.contribute.results.changes import Changes, git_bytes
from crlbench.contribute.results.layout import RESULTS
from crlbench.contribute.results.report import Examined
from crlbench.contribute.results.retract import RETRACTIONS
from crlbench.contribute.review.posting import MAX_LINES, MAX_WIDTH, SCHEMA
from crlbench.errors import CrlbenchError, UsageError
from crlbench.pages.board_table import rank_span
from crlbench.pages.compare_words import lead
from crlbench.pages.words import estimate
from crlbench.verdict.alarms import alarms
from crlbench.verdict.axes import AXES, AXIS_WORDS, Axis
from crlbench.verdict.board import Board, summarise_board
from crlbench.verdict.compare import compare
from crlbench.verdict.compare_read import read_entry
from crlbench.verdict.load import load_runs
from crlbench.verdict.runs import Run

NEAREST = 2
"""Entries that a new one is laid beside."""
LINES = 40
"""No list of the comment is longer."""


def verdict_of(changes: Changes, examined: Sequence[Examined]) -> dict[str, Any]:
    """What was refused; else the new rows, tiers that moved, the nearest entries, alarms."""
    lines = [_short(line) for report in examined for line in report.lines()]
    refused = sum(report.broken for report in examined)
    return {
        "schema": SCHEMA,
        "examined": len(examined),
        "refused": refused,
        "scopes": {scope: len(paths) for scope, paths in sorted(changes.scopes.items())},
        "unjudged": len(changes.unjudged),
        "lines": lines[:MAX_LINES],
        "boards": [] if refused else [_short(line) for line in _boards(changes)][:MAX_LINES],
    }


def _boards(changes: Changes) -> list[str]:
    """What changes on the boards that a change touches."""
    touched = [entry for entry in changes.entries() if (changes.root / entry).is_dir()]
    lines: list[str] = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            base = _base_results(changes, Path(folder))
            depth = len(RESULTS.parts)
            for name, entries in groupby(touched, key=lambda entry: entry.parts[depth]):
                lines += _board(changes.root, base, name, list(entries))
    except CrlbenchError as error:
        lines.append(f"The boards could not be compared: {error}")
    return lines


def _short(line: str) -> str:
    return clean(line)[:MAX_WIDTH]


def _base_results(changes: Changes, folder: Path) -> Path:
    """The results and retractions as they were at the base, in a folder of their own."""
    for path in (RESULTS, RETRACTIONS):
        with contextlib.suppress(UsageError):  # the base has none
            content = git_bytes(changes.root, "archive", changes.base, "--", str(path))
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                archive.extractall(folder, filter="data")
    return folder / RESULTS


def _board(root: Path, base: Path, name: str, entries: Sequence[Path]) -> Iterator[str]:
    """One board's part of the comment."""
    before = summarise_board(load_runs(base / name)) if (base / name).is_dir() else None
    after = summarise_board(load_runs(root / RESULTS / name))
    yield from (f"{after.track} v{after.track_version}, {name}:", "")
    for entry in entries:
        runs = load_runs(root / entry).runs
        yield from _rows(after, f"{runs[0].model}/{runs[0].recipe}")
        yield from _nearest(root, entry, after)
        yield from _alarms(runs)
    yield from _tier_changes(before, after, {"/".join(entry.parts[-2:]) for entry in entries})


def _rows(board: Board, name: str) -> Iterator[str]:
    entry = board.entry(name)
    yield f"{name}: {entry.standing}, {entry.n} seeds"
    yield "| axis | score | tier | rank |"
    for axis in AXES:
        score = entry.axes[axis]
        value = NONE if score.value is None else estimate(score)
        ranking = board.rankings[entry.recipe][axis]
        tier = ranking.ranking.tier(name) or NONE
        yield (
            f"| {AXIS_WORDS[axis]} ({score.sign}) | {value} | {tier} | "
            f"{rank_span(ranking, name)} |"
        )
    yield ""


def _tiers(board: Board, recipe: str, axis: Axis) -> dict[str, int]:
    rankings = board.rankings.get(recipe)
    standings = rankings[axis].ranking.standings if rankings else ()
    return {standing.model: standing.tier for standing in standings}


def _tier_changes(before: Board | None, after: Board, new: set[str]) -> Iterator[str]:
    """Tiers of entries that were there before, where they changed."""
    changes = []
    for recipe in after.rankings:
        for axis in AXES:
            old = _tiers(before, recipe, axis) if before else {}
            for name, tier in _tiers(after, recipe, axis).items():
                if name in old and old[name] != tier and name not in new:
                    changes.append(f"- {name}, {AXIS_WORDS[axis]}: tier {old[name]} to {tier}")
    yield from changes[:LINES] or ["No other entry changes its tier."]
    yield ""


def _nearest(root: Path, entry: Path, board: Board) -> Iterator[str]:
    """The entries of the same recipe whose sample efficiency is nearest, with each verdict."""
    model, recipe = entry.parts[-2:]
    score = board.entry(f"{model}/{recipe}").axes["efficiency"].value
    others = [
        (abs(other.axes["efficiency"].value - score), other.model)
        for other in board.entries
        if other.recipe == recipe
        and other.model != model
        and score is not None
        and other.axes["efficiency"].value is not None
    ]
    for _, other in sorted(others)[:NEAREST]:
        folder = root / entry.parents[1] / other / recipe
        try:
            comparison = compare([read_entry(folder), read_entry(root / entry)])
        except CrlbenchError as error:
            yield f"- against {other}: {error}"
            continue
        yield f"- {lead(comparison)}"
    if others:
        yield ""


def _alarms(runs: Sequence[Run]) -> Iterator[str]:
    """How many runs rang which alarm."""
    counts = Counter(alarm.name for run in runs for alarm in alarms(run.record))
    failed = [run.name for run in runs if run.record.status.state == "failed"]
    if failed:
        yield f"- failed by rule: {', '.join(failed[:LINES])}"
    if counts:
        names = ", ".join(f"{name} in {n} of {len(runs)} runs" for name, n in counts.most_common())
        yield f"- alarms: {names}"
    yield ""
