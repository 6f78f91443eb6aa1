"""``crlbench fetch``: models and datasets that do not travel with the package."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crlbench.catalog.find import Catalog
from crlbench.commands.console import note, out, out_json
from crlbench.errors import OK, UsageError


def fetch(options: Namespace) -> int:
    """Put models and the rows of tasks into CRLBENCH_HOME and print their folders."""
    from crlbench.catalog.fetch import fetch_model
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
