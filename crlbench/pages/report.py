"""The report: one HTML file that needs nothing else, for a folder of runs.

Equal records give equal bytes: nothing of the moment or the machine that renders enters the
page. What may differ between two runs of one command (wall time, memory, machines) is marked as
varying where it stands. Every text of a record is escaped by the template; figures are the only
markup that is passed through, and they escape their own texts.
"""

from __future__ import annotations

from itertools import groupby
from types import CodeType
from typing import Any

from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket

from crlbench.base import wording
from crlbench.contract.conditions import leaves
from crlbench.pages import (
    page_arrival,
    page_axes,
    page_costs,
    page_episodes,
    page_failures,
    page_goodhart,
    page_health,
    page_novelty,
    page_results,
    page_samples,
    page_splits,
    page_stability,
    words,
)
from crlbench.pages.reproduce import changed_conditions, command
from crlbench.verdict.board import Board
from crlbench.verdict.entry import Entry
from crlbench.verdict.load import Runs
from crlbench.verdict.resources import leaderboard_folder
from crlbench.verdict.runs import Run

TEMPLATE = "report.html.j2"


def render_page(runs: Runs, board: Board) -> str:
    """The whole page as text.

    Args:
        runs: what :func:`load_runs` returned.
        board: ``summarise_board(runs)``.
    """
    return environment().get_template(TEMPLATE).render(page=page_data(runs, board))


class _Compiled(BytecodeCache):
    """The code of templates: compiling them takes longer than rendering a page."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self.kept.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        self.kept[bucket.key, bucket.checksum] = bucket.code


_compiled = _Compiled()
"""Compiled templates of this process, for all environments."""


def environment() -> Environment:
    """The templates of every page, with what they share."""
    folder = leaderboard_folder()
    templates = Environment(
        loader=FileSystemLoader([folder / "templates", folder / "static"]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
        bytecode_cache=_compiled,
    )
    templates.filters |= {
        "number": wording.number,
        "measured": words.measured,
        "span": words.span,
        "visible": wording.visible,
    }
    return templates


def page_data(runs: Runs, board: Board) -> dict[str, Any]:
    """Everything that the template shows, figures included."""
    by_entry = {key: list(group) for key, group in groupby(runs, key=lambda run: run.order[:3])}
    # A control follows what it controls.
    by_control = sorted(board.arms, key=lambda e: (e.model, e.recipe, e.arm != "real"))
    entries = [
        _entry(entry, by_entry[entry.model, entry.recipe, entry.arm], board)
        | {"anchor": f"entry-{number}", "folds": entry.arm != "real" or len(board.entries) > 1}
        for number, entry in enumerate(by_control, start=1)
    ]
    anchors = {item["board"].name: item["anchor"] for item in entries if item["board"]}
    return {
        "title": _title(board),
        "single": len(board.arms) == 1,
        "board": board,
        "unranked": board.unranked,
        "entries": entries,
        "rankings": page_axes.rankings(board, anchors),
        "commands": _commands(runs),
        "subjects": _subjects(runs),
        "conditions": _leaves(board.conditions),
        "changed": {**changed_conditions(runs.runs[0].record)},
        "environment": page_costs.environment_panel(runs.runs),
        "versions": ", ".join(board.crlbench),
        "bootstrap": board.resampling(),
        "records": [_cell_row(run) for run in runs],
    }


def _title(board: Board) -> str:
    first = board.arms[0]
    if len({arm.name for arm in board.arms}) == 1:
        return f"{first.display_name} · {first.recipe}"
    return f"{len(board.arms)} entries on {board.track}"


def _entry(entry: Entry, runs: list[Run], board: Board) -> dict[str, Any]:
    """One article: a model, a recipe and an arm. Only the real arm is an entry of the board."""
    ranked = entry if entry.arm == "real" else None
    tasks = [task.task for task in entry.tasks]
    return {
        "entry": entry,
        "board": ranked,
        "standing": entry.standing,
        "badge": words.STANDINGS[entry.standing].capitalize()
        if entry.arm == "real"
        else entry.arm.capitalize(),
        "lead": page_results.lead(entry),
        "sentences": sentences(entry, board),
        "tiles": page_results.tiles(entry, with_lam=ranked is None),
        "cards": [] if ranked is None else page_axes.cards(ranked, board),
        "arrivals": None if ranked is None else page_arrival.arrivals(ranked),
        "stability": None if ranked is None else page_stability.stability(ranked),
        "splits": page_splits.split_panels(entry),
        "generalization": page_splits.generalization(entry),
        "transfer": page_splits.transfer_matrix(entry),
        "honesty": page_splits.honesty(entry),
        "novelty": None if ranked is None else page_novelty.novelty(ranked),
        "placebo": None if ranked is None else page_axes.placebo(ranked),
        "mode": None if ranked is None else page_axes.mode(ranked),
        "wrong": None if ranked is None else page_axes.wrong(ranked),
        "goodhart": page_goodhart.panels(tasks, runs),
        "health": [page_health.health_panel(task.task, runs) for task in entry.tasks],
        "samples": page_samples.sample_panels(tasks, runs),
        "episodes": page_episodes.episode_panels(tasks, runs),
        "failures": page_failures.failures(entry, runs),
        "costs": page_costs.costs(runs),
        **page_results.results(entry),
    }


def sentences(entry: Entry, board: Board) -> list[str]:
    """What can be said of an entry, and why nothing on its board ranks."""
    remarks = words.standing(entry, board)
    if entry.arm != "real":
        return remarks
    evident = board.division == "open" or board.track_version == 0
    silent = board.unranked is None or evident
    return [*remarks, *entry.notes, *([] if silent else [wording.sentence(board.unranked)])]


def _commands(runs: Runs) -> list[str]:
    groups = groupby(runs, key=lambda run: run.order[:2])
    return [command(list(group)) for _, group in groups]


def _subjects(runs: Runs) -> list[tuple[str, list[tuple[str, str]]]]:
    """Per model its leaves, without the digests of single files."""
    by_model: dict[str, list[tuple[str, str]]] = {}
    for run in runs:
        subject = run.record.subject.model_dump(mode="json")
        by_model.setdefault(run.model, _leaves(leaves(subject)))
    return sorted(by_model.items())


def _leaves(values: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, page_costs.leaf(value)) for name, value in sorted(values.items())]


def _cell_row(run: Run) -> dict[str, Any]:
    record = run.record
    return {
        "name": run.name,
        "state": record.status.state,
        "rule": record.status.rule or "",
        "completions": f"{record.curve[-1].x:,}",
        "record_id": record.record_id[:12],
        "digest_root": record.digest_root[:12],
        "plan": record.plan_hash[:12],
    }
