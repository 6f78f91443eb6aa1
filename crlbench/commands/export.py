"""``crlbench export``: the model that a run trained, as files for other programs."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from crlbench.catalog.find import Catalog
from crlbench.commands.console import note, out, out_json
from crlbench.errors import OK, UsageError


def export(options: Namespace) -> int:
    """Write an adapter or a checkpoint and print its folder."""
    if options.to is None:
        raise UsageError("export needs --to DIR, a folder that does not exist yet.")
    run, target = Path(options.run), Path(options.to)

    from crlbench.stages.export import export_run

    kind = export_run(run, Catalog(options.catalog), target, options.merge)
    if kind == "adapter":
        note(options, "a peft adapter; --merge writes a whole checkpoint, for --model DIR")
    else:
        note(options, f"a whole checkpoint in float32: crlbench evaluate --model {target}")
    out_json({"folder": str(target), "kind": kind}) if options.json else out(str(target))
    return OK
