"""``crlbench leaderboard retract``: take an entry back, in the public log of a checkout."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from crlbench.commands.console import note, print_result
from crlbench.errors import OK, UsageError, require_known

EXAMPLES = """\
examples:
  crlbench leaderboard retract BOARD/MODEL@REVISION/RECIPE --reason 'wrong weights' --by @me
  crlbench leaderboard retract BOARD/MODEL@REVISION/RECIPE --reason R --by @me --record ID
  crlbench leaderboard retract BOARD/MODEL@REVISION/RECIPE --reason R --by @me --personal-data

A line is never taken back. Who may retract, and what stays: docs/promises.md.
Exit code 2: no such entry, or it was taken back already. 3: the log was changed.
"""


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("entry", metavar="ENTRY", help="BOARD/MODEL@REVISION/RECIPE, or its folder")
    add("--reason", metavar="TEXT", required=True, help="a sentence for readers of the board")
    add("--by", metavar="@HANDLE", required=True,
        help="GitHub handle of the person who takes it back: the submitter or a maintainer")
    add("--record", metavar="ID", action="append", default=[],
        help="id of one record that no longer counts (repeatable; all)")
    add("--personal-data", action="store_true",
        help="for maintainers: also remove the files of the entry; the log keeps their digest")


def run(options: Namespace, results: Path) -> int:
    """Add a line to the log, and with ``--personal-data`` remove the files of the entry.

    Args:
        results: ``leaderboard/results`` of a checkout.

    Raises:
        UsageError: no such entry or record, one that was taken back before, or flags that
            contradict each other.
        ValidationError: the log was changed.
    """
    from crlbench.contract.retractions import read_retractions, taken_back
    from crlbench.contribute.results.layout import RESULTS, find_entries
    from crlbench.contribute.results.retract import RETRACTIONS, retract
    from crlbench.contribute.review.people import HANDLE

    results = results.absolute()
    if results.parts[-2:] != RESULTS.parts or not results.is_dir():
        raise UsageError(f"{results}: no {RESULTS} of a checkout. Name one with --results DIR.")
    if not HANDLE.fullmatch(options.by):
        raise UsageError(f"--by {options.by!r:.80}: a GitHub handle, such as @some-name.")
    if options.record and options.personal_data:
        raise UsageError("--record and --personal-data: personal data leaves with the whole entry.")
    root, entry = results.parents[1], _name(options.entry, results)
    if taken_back(read_retractions(results.parent), entry) is None:
        names = ("/".join(folder.parts[-3:]) for folder in find_entries(results))
        require_known("entry", entry, dict.fromkeys(names))
    line = retract(
        root, entry, options.reason, options.by, options.record, options.personal_data
    )
    value = {"log": str(root / RETRACTIONS), "line": line.n + 1, "retraction": line.stored()}
    lines = [f"{RETRACTIONS}:{line.n + 1}: {entry}", line.sentence(_count(results / entry))]
    print_result(options, value, [*lines, *_next(root, entry, options.by)])
    if line.removed:
        note(options, "The history of git still holds the files, and the log keeps --by.")
    return OK


def _name(text: str, results: Path) -> str:
    """The entry that a name or a folder below the results means."""
    folder = Path(text).absolute()
    if folder.is_relative_to(results):
        return folder.relative_to(results).as_posix()
    return text.rstrip("/")


def _count(folder: Path) -> int:
    """How many records an entry has; 0 where its files are gone."""
    from crlbench.verdict.load import load_runs

    return len(load_runs(folder, files="used")) if folder.is_dir() else 0


def _next(root: Path, entry: str, by: str) -> Sequence[str]:
    """The commands that hand the change in."""
    title = shlex.quote(f"Retract {entry}")
    return [
        "\nnext:",
        f"  git -C {shlex.quote(str(root))} add -A leaderboard && git commit -m {title}",
        f"  crlbench validate --since origin/main --author {by}",
    ]
