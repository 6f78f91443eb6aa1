"""What stored runs say: written beside them as pages and files, and printed as a table."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from crlbench.commands.console import out, out_json
from crlbench.contract.study import STUDY_NAME
from crlbench.disk.names import RECORD_NAME
from crlbench.errors import CrlbenchError
from crlbench.run.store import write_json, write_text

PAGE_NAME = "report.html"
SUMMARY_NAME = "summary.json"
ABLATION_NAME = "ablation.json"
ABLATION_TABLE = "ablation.md"
ABLATION_PAGE = "ablation.html"


def publish(options: Namespace, folders: Sequence[Path]) -> Path:
    """Write summary.json and report.html of run folders; print what they say.

    Several folders with records (several models on one board) also get one page together.

    Returns:
        The page that holds everything.
    """
    from crlbench.pages.board_table import plain_table, terminal_table

    board, page = write_pages(folders)
    if options.json:
        out_json(board.summary())
    else:
        _print(board, plain_table, terminal_table, colour=not options.no_color)
        for line in place_lines(board, folders):
            out(line)
    return page


def place_lines(board: Any, folders: Sequence[Path], results: Path | None = None) -> list[str]:
    """Where the runs of some folders stand among the stored entries of their board.

    Args:
        board: of the runs of all ``folders``, and perhaps of others beside them.
        folders: run folders.
        results: folder of stored results; None: the leaderboard's.

    Returns:
        A sentence for each entry, and the command that compares it with the nearest one; empty
        where no results are stored for the board, or where the runs were shortened.
    """
    from crlbench.verdict.board import summarise_board
    from crlbench.verdict.load import load_runs
    from crlbench.verdict.place import find_place
    from crlbench.verdict.resources import leaderboard_folder

    by_name = {}
    for folder in folders:
        model, recipe = folder.absolute().parts[-2:]
        # A model whose card states no revision has none in its name.
        by_name |= {f"{name}/{recipe}": folder for name in (model, model.partition("@")[0])}
    entries = [e for e in board.entries if e.name in by_name and e.standing != "partial"]
    home = (results or leaderboard_folder() / "results") / folders[0].absolute().parts[-3]
    if not entries or not home.is_dir():
        return []
    try:
        stored = summarise_board(load_runs(home, files="used"))
    except CrlbenchError as error:
        return [f"No place among the stored entries: {error}"]
    if stored.hardware != board.hardware:
        return [
            f"No place among the stored entries: they ran on {stored.hardware}, these runs on "
            f"{board.hardware}."
        ]
    lines = []
    for entry in entries:
        place = find_place(entry, stored)
        if isinstance(place, str):
            lines.append(place)
            continue
        lines.append(place.sentence(entry.name))
        command = shlex.join(["crlbench", "compare", str(by_name[entry.name]), place.nearest])
        lines.append(f"  {command}")
    return list(dict.fromkeys(lines))


def write_pages(folders: Sequence[Path]) -> tuple[Any, Path]:
    """Write summary.json and report.html of run folders, and of several those of their board.

    Args:
        folders: run folders of one board; at least one of them has a record.

    Returns:
        The board and the page that hold everything.
    """
    with_records = [folder for folder in folders if any(folder.rglob(RECORD_NAME))]
    pages = [write_page(folder) for folder in with_records]
    return write_page(with_records[0].parents[1]) if len(with_records) > 1 else pages[0]


def page_of(folder: Path) -> str:
    """The page of the runs below a folder, or of a study, as text; nothing is written."""
    if (folder / STUDY_NAME).is_file():
        from crlbench.pages.study import render_ablation
        from crlbench.verdict.ablation import summarise_study

        return render_ablation(folder, summarise_study(folder))
    return _board_page(folder)[1]


def _board_page(folder: Path) -> tuple[Any, str]:
    """The board of the runs below a folder, and its page."""
    from crlbench.pages.report import render_page
    from crlbench.verdict.board import summarise_board
    from crlbench.verdict.load import load_runs

    runs = load_runs(folder)
    board = summarise_board(runs)
    return board, render_page(runs, board)


def write_page(folder: Path, page: Path | None = None) -> tuple[Any, Path]:
    """The board of the runs below a folder, its numbers written beside their page."""
    board, text = _board_page(folder)
    home = folder if folder.is_dir() else folder.parent
    if page is None:
        write_json(home / SUMMARY_NAME, board.summary())
    return board, write_text(page or home / PAGE_NAME, text)


def publish_study(options: Namespace, folder: Path) -> Path:
    """Write ablation.json, .md and .html beside a study; print its table.

    Returns:
        The page.
    """
    ablation, page = write_study(folder)
    if options.json:
        out_json(_plain(dataclasses.asdict(ablation)))
        return page
    from crlbench.pages.ablation_table import plain_table, terminal_table

    _print(ablation, plain_table, terminal_table, colour=not options.no_color)
    return page


def write_study(folder: Path, page: Path | None = None) -> tuple[Any, Path]:
    """What a study's stored runs say so far, written beside it."""
    from crlbench.pages.ablation_table import markdown_table
    from crlbench.pages.study import render_ablation
    from crlbench.verdict.ablation import summarise_study

    ablation = summarise_study(folder)
    if page is None:
        write_json(folder / ABLATION_NAME, _plain(dataclasses.asdict(ablation)))
        write_text(folder / ABLATION_TABLE, markdown_table(ablation))
    page = write_text(page or folder / ABLATION_PAGE, render_ablation(folder, ablation))
    return ablation, page


def _plain(value: Any) -> Any:
    """Only what JSON knows."""
    return json.loads(json.dumps(value))


def _print(
    content: Any, as_text: Callable[[Any], str], as_rich: Callable[[Any], Any], colour: bool
) -> None:
    """A table for people at a terminal, and one for files and pipes."""
    if not sys.stdout.isatty():
        out(as_text(content))
        return
    from rich.console import Console

    Console(no_color=not colour).print(as_rich(content))
