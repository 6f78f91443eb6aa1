"""``crlbench freeze`` and ``crlbench fetch``: keeping what runs need in place."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from crlbench.catalog import Catalog
from crlbench.commands.console import note, out, out_json
from crlbench.errors import OK


def freeze(options: Namespace) -> int:
    """Write or check the files of tasks; stops at the first that breaks a rule."""
    from crlbench import freeze as freezing

    catalog = Catalog(options.catalog)
    results = []
    for name in options.tasks or catalog.list("task"):
        folder = Path(name)
        subject = folder if (folder / "task.py").is_file() else catalog.find("task", name).path
        card = freezing.freeze(subject, check=options.check, catalog=catalog)
        results.append({"task": card.name, "version": card.version, "digest": card.digest})
        if not options.json:
            done = "unchanged" if options.check else "frozen"
            out(f"{card.name} {card.version} {done}, digest {card.digest[:12]}")
    if options.json:
        out_json(results)
    return OK


def fetch(options: Namespace) -> int:
    """Put models into CRLBENCH_HOME and print their folders."""
    from crlbench.fetch import fetch_model

    catalog = Catalog(options.catalog)
    folders = {}
    for name in options.names:
        folders[name] = str(
            fetch_model(
                name,
                options.home,
                catalog,
                lambda line: note(options, line),
                source_dir=Path(options.source) if options.source else None,
                offline=options.offline,
            )
        )
    if options.json:
        out_json(folders)
    else:
        for folder in folders.values():
            out(folder)
    return OK
