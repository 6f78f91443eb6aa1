"""Published problems whose answers cannot be judged, by id: what a task's LEFT_OUT must hold.

    python benchmarks/left_out.py deepmath [--from DIR] [--check]

An answer can be judged when it is a word, or when the library of ``crlbench.reward.equivalence``
parses it within the limits and finds it equal to itself. Every answer of the dataset is tried, in
one or two minutes; DIR holds the dataset's file, which is otherwise that of an earlier
``crlbench fetch``. ``--check`` ends with 1 where the task's code leaves out others.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from crlbench.catalog.code import load_code
from crlbench.catalog.find import Catalog
from crlbench.errors import CrlbenchError
from crlbench.reward.equivalence import judgeable
from crlbench.reward.published import Problem
from crlbench.suite import external
from crlbench.suite.sources import given_sources

TASKS = ("deepmath", "olympiadbench")


def left_out(problems: Iterable[Problem]) -> Iterator[Problem]:
    """The problems whose answers cannot be judged, in order."""
    known = functools.cache(lambda answer: judgeable(f"\\boxed{{{answer}}}"))
    return (problem for problem in problems if not known(problem.answer))


def main() -> int:
    options = _options()
    code = load_code(Catalog().find("task", options.task).path / "task.py")
    source = external.source_of(code)
    assert source is not None
    if options.folder is None:
        files = external.stored_sources(source, options.task)
    else:
        files = given_sources(source, options.task, options.folder)
    found = [*left_out(code.published(files))]
    for problem in found:
        print(f"{problem.meta['origin_id']}\t{problem.answer}")
    ids = {problem.meta["origin_id"] for problem in found}
    if options.check and ids != code.LEFT_OUT:
        print(f"LEFT_OUT differs in {sorted(ids ^ code.LEFT_OUT)}", file=sys.stderr)
        return 1
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--from", dest="folder", type=Path, help="folder with the dataset's file")
    parser.add_argument("--check", action="store_true", help="compare with the task's code")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CrlbenchError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
