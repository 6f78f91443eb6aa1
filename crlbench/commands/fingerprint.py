"""``crlbench fingerprint``: what is held fixed, of a run or a track, and in what two differ."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from crlbench.commands.console import out, out_json, print_result
from crlbench.disk.names import PLAN_NAME, RECORD_NAME
from crlbench.errors import OK, NotComparable, UsageError
from crlbench.pages.table import tabulate

NEEDS_TEMPORARY = False

EXAMPLES = """\
examples:
  crlbench fingerprint --track mini
  crlbench fingerprint --track mini@1
  crlbench fingerprint runs/mini-0123456789ab/my-model@89abcdef/ppo --diff mini

mini@1 is mini at version 1, the current version or an archived one: docs/task-versions.md.
Exit code 4: they differ. Each leaf that differs is named.
"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", nargs="?", help="a run folder or a record.json")
    parser.add_argument("--track", metavar="T", help="a track instead of a run, or T@version")
    parser.add_argument("--set", metavar="K=V", action="append", help="change this condition")
    parser.add_argument("--tasks", metavar="A,B", help="use only these tasks")
    parser.add_argument(
        "--diff", metavar="OTHER", help="run or track to compare with; exit code 4 if they differ"
    )


def run(options: Namespace) -> int:
    """Print a fingerprint and its leaves, or the leaves in which two differ (exit 4)."""
    if bool(options.run) == bool(options.track):
        raise UsageError("fingerprint needs either RUN or --track T.")
    leaves = _of_track(options, options.track) if options.track else _of_run(Path(options.run))
    if options.diff is None:
        _print_leaves(options, leaves)
        return OK
    return _compare(options, leaves, _of_any(options, options.diff))


def _of_any(options: Namespace, name: str) -> dict[str, Any]:
    """Leaves of a run if there is such a file or folder, else of a track."""
    if Path(name).exists():
        return _of_run(Path(name))
    plain = Namespace(**(vars(options) | {"set": None, "tasks": None}))
    return _of_track(plain, name)


def _of_track(options: Namespace, name: str) -> dict[str, Any]:
    from crlbench.catalog.find import Catalog
    from crlbench.commands.settings import assignments
    from crlbench.run.archive import open_board
    from crlbench.run.board import Request, make_board

    tasks = [task.strip() for task in options.tasks.split(",")] if options.tasks else []
    start = open_board(Catalog(options.catalog), name, tasks)
    request = Request(assignments(options.set), start.tasks or None, replaced=start.replaced)
    board, _, _ = make_board(start.catalog, start.track, request)
    return board.control


def _of_run(path: Path) -> dict[str, Any]:
    """Leaves that a plan or a record states."""
    from crlbench.contract.conditions import fingerprint as short
    from crlbench.run.store import read_json

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
    from crlbench.contract.conditions import fingerprint as short

    lines = [] if options.quiet else [f"  {name} = {v}" for name, v in sorted(leaves.items())]
    print_result(
        options, {"fingerprint": short(leaves), "leaves": leaves}, [short(leaves), *lines]
    )


def _compare(options: Namespace, a: dict[str, Any], b: dict[str, Any]) -> int:
    from crlbench.contract.conditions import diff
    from crlbench.contract.conditions import fingerprint as short

    different = diff(a, b)
    if options.json:
        pairs = {name: {"a": x, "b": y} for name, (x, y) in different.items()}
        out_json({"a": short(a), "b": short(b), "diff": pairs})
    elif not different:
        out(f"equal: {short(a)}")
    else:
        rows = [{"leaf": n, short(a): x, short(b): y} for n, (x, y) in different.items()]
        out(tabulate(rows, ["leaf", short(a), short(b)]).to_text())
    return NotComparable.exit_code if different else OK
