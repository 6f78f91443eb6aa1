"""``crlbench watch``: runs while they are made, as a page that follows them or as text."""

from __future__ import annotations

import dataclasses
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crlbench.commands.console import note, print_result
from crlbench.commands.flags import port
from crlbench.errors import OK, CrlbenchError, UsageError

if TYPE_CHECKING:
    from crlbench.verdict.under_way import FolderUnderWay, Watcher

POLL_SECONDS = 2.0
NEEDS_TEMPORARY = False

EXAMPLES = """\
examples:
  crlbench watch runs/mini-0123456789ab/my-model@89abcdef/ppo
  crlbench watch runs --port 8080
  crlbench watch runs/mini-0123456789ab --once
  crlbench watch runs/mini-0123456789ab --write

Start it in a second terminal while evaluate or ablate runs. The page is served on 127.0.0.1 alone
and follows the runs until Ctrl-C. --write ends with the command that makes the runs.
"""


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("run", metavar="RUN", help="folder of a run, of several runs, or of a study")
    add("--port", metavar="N", type=port, help="a port of 127.0.0.1 (any free one)")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--once", action="store_true", help="print the state of the runs and stop")
    way.add_argument("--write", action="store_true",
        help="serve nothing; write report.html again whenever a run has ended")


def run(options: Namespace) -> int:
    """Show the runs below a folder in one of three ways."""
    from crlbench.verdict.under_way import Watcher

    if options.port is not None and (options.once or options.write):
        flag = "--once" if options.once else "--write"
        raise UsageError(f"--port is for the page that is served, and {flag} serves none.")
    watcher = Watcher(Path(options.run))
    folders = watcher.look()
    if options.once:
        _print(options, folders)
    elif options.write:
        with suppress(KeyboardInterrupt):
            _follow(options, watcher)
    else:
        _serve(options, watcher)
    return OK


def _print(options: Namespace, folders: tuple[FolderUnderWay, ...]) -> None:
    print_result(
        options,
        [dataclasses.asdict(folder) | {"folder": str(folder.folder)} for folder in folders],
        (line for folder in folders for line in _lines(folder)),
    )


def _lines(folder: FolderUnderWay) -> Iterator[str]:
    """A head, and a line for each run with its curve as blocks."""
    from crlbench.pages.watch import name_of, score_of, status_of, words_of
    from crlbench.run.progress import sparkline

    yield f"{folder.board}/{folder.name}: {status_of([folder])}"
    rows = [(name_of(run), words_of(run), run) for run in folder.runs]
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    for name, words, one in rows:
        blocks = sparkline([score for _, score in one.curve])
        parts = (name.ljust(widths[0]), words.ljust(widths[1]), blocks, score_of(one))
        yield ("  " + "  ".join(parts)).rstrip()


def _follow(options: Namespace, watcher: Watcher) -> None:
    """Write the report of each folder, or of the study, when a run of it has ended, until no
    command runs any."""
    from crlbench.commands.publish import write_page, write_study
    from crlbench.contract.study import STUDY_NAME

    study = (watcher.root / STUDY_NAME).is_file()
    write = write_study if study else write_page
    written: dict[Path, Any] = {}
    while True:
        folders = watcher.look()
        ended = {folder.folder: folder.ended for folder in folders if folder.ended}
        whole = {watcher.root: ended} if study and ended else ended
        for place, runs in whole.items():
            if written.get(place) != runs:
                page = write(place)[-1]
                written[place] = runs
                print_result(options, {"report": str(page)}, [str(page)])
                sys.stdout.flush()
        if not any(folder.running for folder in folders):
            if not ended:
                note(options, "No run has ended, and no command makes any: nothing was written.")
            return
        time.sleep(POLL_SECONDS)


def _serve(options: Namespace, watcher: Watcher) -> None:
    """The live page until Ctrl-C."""
    from crlbench.commands.watch_server import server
    from crlbench.site.serve import HOST

    pages = Live(watcher)
    with server({"/": pages.runs, "/report": pages.report}, options.port) as listening:
        url = f"http://{HOST}:{listening.server_port}/"
        print_result(options, {"url": url}, [url])
        note(options, "Ctrl-C stops it.")
        sys.stdout.flush()
        with suppress(KeyboardInterrupt):
            listening.serve_forever()


@dataclasses.dataclass
class Live:
    """The two pages, made anew when they are asked for. A fault becomes a page that names it."""

    watcher: Watcher
    _reported: tuple[Any, str] | None = None
    """The runs that had ended, and the report of them."""

    def runs(self) -> str:
        """All runs and their curves."""
        from crlbench.pages.watch import render_watch

        try:
            return render_watch(self.watcher.look())
        except CrlbenchError as error:
            return render_watch((), str(error))

    def report(self) -> str:
        """The report of the runs that have ended, as :mod:`crlbench.commands.report` writes it."""
        from crlbench.commands.publish import page_of
        from crlbench.pages.watch import render_watch

        try:
            ended = {folder.folder: folder.ended for folder in self.watcher.look()}
            if not any(ended.values()):
                return render_watch((), "No run has ended yet. Come back when one has.")
            if self._reported is None or self._reported[0] != ended:
                self._reported = ended, page_of(self.watcher.root)
            return self._reported[1]
        except CrlbenchError as error:
            return render_watch((), str(error))
