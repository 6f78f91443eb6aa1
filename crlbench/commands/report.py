"""``crlbench report``: one page of the runs below a folder, or of a study."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from crlbench.commands.console import print_result
from crlbench.commands.flags import file_target
from crlbench.disk.packed import PACKED
from crlbench.errors import OK, UsageError

NEEDS_TEMPORARY = False

EXAMPLES = """\
examples:
  crlbench report runs/mini-0123456789ab/my-model@89abcdef/ppo
  crlbench report leaderboard/results/mini-0123456789ab --out board.html
"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", help="folder of a run, of several runs, or of a study"
    )
    parser.add_argument("--out", metavar="F.html", help="file of the page (RUN/report.html)")


def run(options: Namespace) -> int:
    """Write the page of the runs below a folder and print its path."""
    from crlbench.commands.publish import write_page, write_study
    from crlbench.contract.study import STUDY_NAME

    folder = Path(options.run)
    target = file_target("--out", options.out) if options.out else None
    if target is None and next(folder.rglob(PACKED), None) is not None:
        raise UsageError(f"{folder} holds submitted results, and nothing else goes there: --out F.")
    write = write_study if (folder / STUDY_NAME).is_file() else write_page
    page = write(folder, target)[-1]
    print_result(options, {"report": str(page)}, [str(page)])
    return OK
