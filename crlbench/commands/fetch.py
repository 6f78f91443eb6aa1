"""``crlbench fetch``: models and datasets that do not travel with the package."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crlbench.commands.console import note, out, out_json
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

    wanted: list[tuple[str, Callable[..., Path]]] = [
        *((name, fetch_model) for name in options.names),
        *((name, fetch_task) for name in options.task or ()),
    ]
    if not wanted:
        raise UsageError(
            "nothing to fetch: give the names of models, or --task T. See: crlbench list tasks"
        )
    catalog = Catalog(options.catalog)
    given: dict[str, Any] = {
        "source_dir": Path(options.source) if options.source else None,
        "offline": options.offline,
    }
    folders = {
        name: str(bring(name, options.home, catalog, lambda line: note(options, line), **given))
        for name, bring in wanted
    }
    if options.json:
        out_json(folders)
    else:
        for folder in folders.values():
            out(folder)
    return OK
