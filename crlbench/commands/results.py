"""``crlbench report`` and ``crlbench fingerprint``: reading what runs stored."""

from __future__ import annotations

import dataclasses
import json
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from crlbench.catalog.find import Catalog
from crlbench.commands.console import out, out_json, table
from crlbench.contract.conditions import diff
from crlbench.contract.conditions import fingerprint as short
from crlbench.contract.study import STUDY_NAME
from crlbench.disk.names import PLAN_NAME, RECORD_NAME
from crlbench.disk.packed import PACKED
from crlbench.errors import OK, NotComparable, UsageError
from crlbench.run.archive import open_board
from crlbench.run.board import Request, make_board
from crlbench.run.store import read_json, write_json, write_text

PAGE_NAME = "report.html"
SUMMARY_NAME = "summary.json"
ABLATION_NAME = "ablation.json"
ABLATION_TABLE = "ablation.md"
ABLATION_PAGE = "ablation.html"


def report(options: Namespace) -> int:
    """Write the page of the runs below a folder and print its path."""
    folder, target = Path(options.run), Path(options.out) if options.out else None
    if target is not None and target.is_dir():
        raise UsageError(f"--out {options.out}: is a folder; give the name of a file.")
    if target is None and next(folder.rglob(PACKED), None) is not None:
        raise UsageError(f"{folder} holds submitted results, and nothing else goes there: --out F.")
    written = _written_study if (folder / STUDY_NAME).is_file() else _written
    page = written(folder, target)[-1]
    out_json({"report": str(page)}) if options.json else out(str(page))
    return OK


def publish(options: Namespace, folders: Sequence[Path]) -> Path:
    """Write summary.json and report.html of run folders; print what they say.

    Several folders with records (several models on one board) also get one page together.

    Returns:
        The page that holds everything.
    """
    summary, board, page = write_pages(folders)
    if options.json:
        out_json(_stored(summary, board))
    else:
        _print_table(summary, board, colour=not options.no_color)
    return page


def write_pages(folders: Sequence[Path]) -> tuple[Any, Any, Path]:
    """Write summary.json and report.html of run folders, and of several those of their board.

    Args:
        folders: run folders of one board; at least one of them has a record.

    Returns:
        The summary, the board and the page that hold everything.
    """
    filled = [folder for folder in folders if any(folder.rglob(RECORD_NAME))]
    written = [_written(folder) for folder in filled]
    return _written(filled[0].parents[1]) if len(filled) > 1 else written[0]


def _written(folder: Path, page: Path | None = None) -> tuple[Any, Any, Path]:
    """The summary and the board of the runs below a folder, written beside their page."""
    from crlbench.pages.report import render_page
    from crlbench.verdict.board import summarise_board
    from crlbench.verdict.runs import load_runs
    from crlbench.verdict.summary import summarise

    runs = load_runs(folder)
    summary, board = summarise(runs), summarise_board(runs)
    home = folder if folder.is_dir() else folder.parent
    if page is None:
        write_json(home / SUMMARY_NAME, _stored(summary, board))
    page = write_text(page or home / PAGE_NAME, render_page(runs, summary, board))
    return summary, board, page


def _stored(summary: Any, board: Any) -> dict[str, Any]:
    """What summary.json holds: every entry and arm, and under ``board`` the verdict."""
    return _plain(dataclasses.asdict(summary)) | {"board": board.plain()}


def publish_study(options: Namespace, folder: Path) -> Path:
    """Write ablation.json, .md and .html beside a study; print its table.

    Returns:
        The page.
    """
    ablation, page = _written_study(folder)
    if options.json:
        out_json(_plain(dataclasses.asdict(ablation)))
        return page
    from crlbench.pages.ablation_table import plain_table, terminal_table

    _print(ablation, plain_table, terminal_table, colour=not options.no_color)
    return page


def _written_study(folder: Path, page: Path | None = None) -> tuple[Any, Path]:
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


def _print_table(summary: Any, board: Any, colour: bool) -> None:
    from crlbench.pages.table import plain_table, terminal_table

    _print(
        summary,
        lambda content: plain_table(content, board),
        lambda content: terminal_table(content, board),
        colour,
    )


def _print(
    content: Any, as_text: Callable[[Any], str], as_rich: Callable[[Any], Any], colour: bool
) -> None:
    """A table for people at a terminal, and one for files and pipes."""
    if not sys.stdout.isatty():
        out(as_text(content))
        return
    from rich.console import Console

    Console(no_color=not colour).print(as_rich(content))


def fingerprint(options: Namespace) -> int:
    """Print a fingerprint and its leaves, or the leaves in which two differ (exit 4)."""
    if bool(options.run) == bool(options.track):
        raise UsageError("fingerprint needs either RUN or --track T.")
    mine = _of_track(options, options.track) if options.track else _of_run(Path(options.run))
    if options.diff is None:
        _print_leaves(options, mine)
        return OK
    return _compare(options, mine, _of_any(options, options.diff))


def _of_any(options: Namespace, name: str) -> dict[str, Any]:
    """Leaves of a run if there is such a file or folder, else of a track."""
    if Path(name).exists():
        return _of_run(Path(name))
    plain = Namespace(**(vars(options) | {"set": None, "tasks": None}))
    return _of_track(plain, name)


def _of_track(options: Namespace, name: str) -> dict[str, Any]:
    from crlbench.commands.settings import assignments

    tasks = [task.strip() for task in options.tasks.split(",")] if options.tasks else []
    opened = open_board(Catalog(options.catalog), name, tasks)
    request = Request(assignments(options.set), opened.tasks or None, replaced=opened.replaced)
    board, _, _ = make_board(opened.catalog, opened.track, request)
    return board.control


def _of_run(path: Path) -> dict[str, Any]:
    """Leaves that a plan or a record states."""
    if not path.exists():
        raise UsageError(f"no such run: {path}. Give a run folder or a record.json.")
    candidates = [path] if path.is_file() else [
        *sorted(path.rglob(PLAN_NAME)), *sorted(path.rglob(RECORD_NAME))
    ]
    if not candidates:
        raise UsageError(f"{path}: no {PLAN_NAME} and no {RECORD_NAME} below it.")
    content = read_json(candidates[0])
    try:
        leaves = content["control"] if "control" in content else content["fingerprint"]["leaves"]
        short(leaves)
    except (KeyError, TypeError, ValueError):
        leaves = None
    if not isinstance(leaves, dict):
        raise UsageError(f"{candidates[0]}: is neither a plan nor a record.")
    return leaves


def _print_leaves(options: Namespace, leaves: dict[str, Any]) -> None:
    if options.json:
        out_json({"fingerprint": short(leaves), "leaves": leaves})
        return
    out(short(leaves))
    if not options.quiet:
        for name, value in sorted(leaves.items()):
            out(f"  {name} = {value}")


def _compare(options: Namespace, a: dict[str, Any], b: dict[str, Any]) -> int:
    different = diff(a, b)
    if options.json:
        pairs = {name: {"a": x, "b": y} for name, (x, y) in different.items()}
        out_json({"a": short(a), "b": short(b), "diff": pairs})
    elif not different:
        out(f"equal: {short(a)}")
    else:
        rows = [{"leaf": n, short(a): x, short(b): y} for n, (x, y) in different.items()]
        out(table(rows, ["leaf", short(a), short(b)]))
    return NotComparable.exit_code if different else OK
