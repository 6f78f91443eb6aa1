"""``crlbench validate``: contributed tasks, models and results through every rule."""

from __future__ import annotations

from argparse import Namespace

from crlbench.catalog.find import Catalog
from crlbench.commands.console import out_json
from crlbench.commands.validation import Validation
from crlbench.errors import UsageError


def validate(options: Namespace) -> int:
    """Put what the paths mean, or what changed since a commit, through every rule.

    Returns 0 when every rule is kept, 3 when one is broken, and 6 when this machine cannot try
    one: a task that was named is not fetched, or its sandbox cannot be built here.
    """
    from crlbench.commands.changes import since

    if bool(options.since) == bool(options.paths):
        raise UsageError("validate needs either PATH, one or more, or --since COMMIT.")
    for flag in ("only", "author", "body", "comment", "findings"):
        if getattr(options, flag) and not options.since:
            raise UsageError(f"--{flag} belongs to --since COMMIT.")
    validation = Validation(options, Catalog(options.catalog))
    if options.since:
        since(validation)
    else:
        validation.paths(options.paths)
    if options.json:
        out_json([report.to_dict() for report in validation.reports])
    return validation.exit_code

