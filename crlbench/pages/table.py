"""The result on a terminal: one table per entry and what it allows to say."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich import box
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from crlbench.base import wording
from crlbench.pages import words
from crlbench.pages.board_table import Block, blocks
from crlbench.verdict.axes import Estimate
from crlbench.verdict.board import Board
from crlbench.verdict.entry import Entry
from crlbench.verdict.task_summary import TaskSummary

COLUMNS = ("Task", "Start", "End", "Gain", "Λ")
LEGEND = (
    "Start, End: mean score on held-out prompts (the share answered correctly, where a reward is "
    "0 or 1). Λ: share of the available head-room captured, averaged over the budget. Headline: "
    "its task-balanced interquartile mean. [low, high]: 95 % interval over seeds and items; on "
    "other tasks: over tasks of the kind too; it needs four tasks."
)


def terminal_table(board: Board) -> Group:
    """A rich renderable: a table per model, recipe and arm, plain sentences, then the verdict."""
    parts = []
    for entry in board.arms:
        parts.append(_table(entry, board))
        parts += [Padding(Text(wording.clean(s)), (0, 1)) for s in words.standing(entry, board)]
        parts.append(Text())
    for block in blocks(board):
        parts += [*([_block_table(block)] if block.rows else [_bold(block.title)])]
        parts += [Padding(Text(wording.clean(s)), (0, 1)) for s in block.sentences]
        parts.append(Text())
    parts.append(Padding(Text(LEGEND, style="dim"), (0, 1)))
    return Group(*parts)


def plain_table(board: Board) -> str:
    """The same as plain text, for logs and pipes."""
    shown = []
    for entry in board.arms:
        rows = [COLUMNS, *_rows(entry)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
        lines = [_title(entry, board), wording.line(COLUMNS, widths), _rule(widths)]
        tasks, totals = rows[1 : 1 + len(entry.tasks)], rows[1 + len(entry.tasks) :]
        lines += [wording.line(row, widths) for row in tasks]
        lines += [_rule(widths)] if totals else []
        lines += [wording.line(row, widths) for row in totals]
        lines += [wording.clean(sentence) for sentence in words.standing(entry, board)]
        shown.append("\n".join(lines))
    shown += ["\n".join(_block_lines(block)) for block in blocks(board)]
    return "\n\n".join([*shown, textwrap.fill(LEGEND, 88)]) + "\n"


def _bold(title: str) -> Text:
    return Text(wording.clean(title), style="bold")


def _block_table(block: Block) -> Table:
    table = Table(
        title=_bold(block.title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for index, name in enumerate(block.header):
        first = index == 0
        table.add_column(name, justify="left" if first else "right", no_wrap=not first)
    for row in block.rows:
        table.add_row(*(Text(wording.clean(cell)) for cell in row))
    return table


def _block_lines(block: Block) -> list[str]:
    lines = [wording.clean(block.title)]
    if block.rows:
        rows = [block.header, *(tuple(map(wording.clean, row)) for row in block.rows)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(block.header))]
        head, *body = (wording.line(row, widths) for row in rows)
        lines += [head, _rule(widths), *body]
    return lines + [wording.clean(sentence) for sentence in block.sentences]


def _table(entry: Entry, board: Board) -> Table:
    table = Table(
        title=Text(_title(entry, board), style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for name in COLUMNS:
        first = name == "Task"
        table.add_column(name, justify="left" if first else "right", no_wrap=not first)
    rows = _rows(entry)
    for index, row in enumerate(rows):
        last = index + 1 == len(entry.tasks) and len(rows) > len(entry.tasks)
        bold = "bold" if index >= len(entry.tasks) else ""
        table.add_row(*(Text(cell) for cell in row), end_section=last, style=bold)
    return table


def _title(entry: Entry, board: Board) -> str:
    arm = "" if entry.arm == "real" else f", {entry.arm} arm"
    return wording.clean(
        f"{entry.model} with {entry.recipe}{arm} on {board.track} v{board.track_version} "
        f"({board.division} division, {board.fingerprint})"
    )


def _rows(entry: Entry) -> list[tuple[str, ...]]:
    rows = [_task_row(task, entry) for task in entry.tasks]
    if len(entry.tasks) > 1:
        rows.append(_row("Mean", entry.start, entry.end, entry.gain, entry.lam_mean))
        rows.append(("Headline", "", "", "", words.estimate(entry.lam)))
    return rows


def _task_row(task: TaskSummary, entry: Entry) -> tuple[str, ...]:
    seeds = len(task.seeds)
    notes = [wording.count(seeds, "seed")] if seeds != entry.n else []
    notes += ["saturated"] if task.saturated else []
    mark = f" ({', '.join(notes)})" if notes else ""
    return _row(task.task + mark, task.start, task.end, task.gain, task.lam)


def _row(
    name: str, start: float, end: float | None, gain: Estimate, lam: Estimate
) -> tuple[str, ...]:
    gained, captured = words.estimate(gain, signed=True), words.estimate(lam)
    return (wording.clean(name), wording.number(start), wording.number(end), gained, captured)


def _rule(widths: Sequence[int]) -> str:
    return "-" * (sum(widths) + 2 * (len(widths) - 1))
