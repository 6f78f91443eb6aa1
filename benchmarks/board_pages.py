"""What docs/findings.md and docs/choosing.md say of the board of `mini`, from its stored entries.

    python benchmarks/board_pages.py             # write the tables of both pages
    python benchmarks/board_pages.py --check     # compare; exit code 1 where one differs
    python benchmarks/board_pages.py study       # docs/studies/pretraining-seed-results.md

A table stands between two comments of a page, ``<!-- board: NAME -->`` and ``<!-- end board -->``;
what stands around it is written by people. A board with fewer designs than the zoo has says so.
``study`` refuses while a checkpoint is missing: nobody looks before the last run.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from board_runs import BOARD, DESIGNS
from board_tables import pretraining
from board_tables.tables import BLOCKS, Stored, block

from crlbench.base.wording import listed
from crlbench.errors import CrlbenchError, Incomplete, UsageError
from crlbench.verdict.board import summarise_board
from crlbench.verdict.load import load_runs

ROOT = Path(__file__).resolve().parents[1]
COMMAND = "python benchmarks/board_pages.py"
PAGES = ("findings.md", "choosing.md")
STUDY = "pretraining-seed-results.md"
MODELS = tuple(f"tiny2-{design}" for design in DESIGNS)
BLOCK = re.compile(r"<!-- board: (\S+) -->\n.*?<!-- end board -->", re.DOTALL)
EMPTY = (
    f"**Not complete yet: 0 of {len(MODELS)} designs.** No entry of this board is stored, so "
    "nothing is known."
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("pages", "study"), default="pages")
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    parser.add_argument("--board", type=Path, default=BOARD, help="folder of the entries")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the pages")
    options = parser.parse_args(arguments)
    try:
        stored = read(options.board)
        make = study if options.what == "study" else pages
        return update(make(stored, options.docs), options.check)
    except CrlbenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def read(folder: Path) -> Stored | None:
    """The stored entries of the designs; None where there is none yet."""
    if not folder.is_dir():
        return None
    runs = load_runs(folder, "used")
    stored = Stored(summarise_board(runs), runs.runs, MODELS)
    return stored if stored.first else None


def pages(stored: Stored | None, docs: Path) -> dict[Path, str]:
    """The pages with their tables made again.

    Raises:
        UsageError: a page asks for a table that there is not, or for none.
    """
    return {docs / name: filled(docs / name, stored) for name in PAGES}


def filled(page: Path, stored: Stored | None) -> str:
    """A page with its tables made again.

    Raises:
        UsageError: it asks for a table that there is not, or for none.
    """
    text = page.read_bytes().decode("utf-8")
    names = BLOCK.findall(text)
    if unknown := [name for name in names if name not in BLOCKS]:
        raise UsageError(f"{page}: no table is called {unknown[0]}; there are {listed([*BLOCKS])}")
    if not names or len(names) != text.count("<!-- board: "):
        raise UsageError(
            f"{page}: needs tables between <!-- board: NAME --> and <!-- end board -->, each on a "
            "line of its own"
        )
    return BLOCK.sub(partial(_block, stored), text)


def _block(stored: Stored | None, match: re.Match[str]) -> str:
    name = match[1]
    empty = EMPTY if name == "status" else ""
    body = empty if stored is None else block(name, stored)
    return "\n".join([f"<!-- board: {name} -->", *filter(None, [body]), "<!-- end board -->"])


def study(stored: Stored | None, docs: Path) -> dict[Path, str]:
    """The page of results of the study on pretraining seeds.

    Raises:
        Incomplete: a checkpoint is missing.
    """
    if stored is None:
        raise Incomplete(
            "no entry of this board is stored, and the plan allows no look before the last run. "
            "Run: python benchmarks/board_runs.py"
        )
    board = stored.board
    found = pretraining.read_study(board.entries, MODELS, pretraining.LABELS, board.tasks)
    return {docs / "studies" / STUDY: pretraining.page(found)}


def update(contents: Mapping[Path, str], check: bool, command: str = COMMAND) -> int:
    """Write files, or name those that differ from what they should hold."""
    stale = [
        path
        for path, content in contents.items()
        if not path.exists() or path.read_bytes() != content.encode("utf-8")
    ]
    for path in stale:
        if check:
            print(f"{path}: differs from the results. Run: {command}")
        else:
            path.write_bytes(contents[path].encode("utf-8"))
            print(f"{path}: written")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
