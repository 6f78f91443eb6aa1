"""``crlbench fetch``: models and datasets that do not travel with the package."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path

from crlbench.commands.console import note, print_result
from crlbench.errors import OK, UsageError

NEEDS_TEMPORARY = False

EXAMPLES = """\
examples:
  crlbench fetch smollm2-135m-instruct
  crlbench fetch gemma-3-270m --from downloads
  crlbench fetch --task gsm8k
"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="*", help="model entries")
    parser.add_argument(
        "--task", metavar="T", action="append",
        help="external task: its rows are made from a published dataset (repeatable)",
    )
    parser.add_argument(
        "--from", dest="source", metavar="DIR",
        help="folder with the package or the dataset, instead of the network",
    )


def run(options: Namespace) -> int:
    """Put models and the rows of tasks into CRLBENCH_HOME and print their folders."""
    from crlbench.catalog.fetch import fetch_model
    from crlbench.catalog.find import Catalog
    from crlbench.suite.external import fetch_task

    sources: list[tuple[str, Callable[..., Path]]] = [
        *((name, fetch_model) for name in options.names),
        *((name, fetch_task) for name in options.task or ()),
    ]
    if not sources:
        raise UsageError(
            "nothing to fetch: give the names of models, or --task T. See: crlbench list tasks"
        )
    catalog = Catalog(options.catalog)
    echo = partial(note, options)
    source = Path(options.source) if options.source else None
    folders = {
        name: str(
            fetch(name, options.home, catalog, echo, source_dir=source, offline=options.offline)
        )
        for name, fetch in sources
    }
    print_result(options, folders, folders.values())
    return OK
