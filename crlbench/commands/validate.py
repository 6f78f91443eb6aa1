"""``crlbench validate``: contributed tasks, models and results through every rule."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from crlbench.commands.console import out_json
from crlbench.errors import UsageError

KINDS = ("auto", "task", "model", "result")
SCOPES = ("results", "retractions", "models", "tasks", "code")

EXAMPLES = """\
examples:
  crlbench validate tasks/my-task --quick
  crlbench validate models/my-model.toml
  crlbench validate leaderboard/results/mini-0123456789ab/my-model@89abcdef/ppo
  crlbench validate --since origin/main

Exit code 3: a rule is broken. 6: this machine cannot check one.
"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "paths", metavar="PATH", nargs="*",
        help="task folders, models/<slug>.toml, names of either, folders of one or more results",
    )
    add = parser.add_argument
    add("--kind", metavar="K", choices=KINDS, default="auto",
        help=f"what the paths are: {', '.join(KINDS)} (auto)")
    add("--since", metavar="COMMIT",
        help="everything that this checkout changes since COMMIT: one kind of change, and "
        "results only grow")
    add("--only", metavar="KIND", choices=SCOPES,
        help=f"with --since: refuse a change of any other kind at once: {', '.join(SCOPES)}")
    add("--body", metavar="FILE", help="with --since: a pull request's text; its boxes are read")
    add("--author", metavar="@HANDLE",
        help="with --since: the author; only the submitter or a maintainer extends an entry")
    add("--comment", metavar="FILE", help="with --since: write what changes on the boards")
    add("--findings", metavar="FILE", help="with --since: write the same as JSON")
    add("--quick", action="store_true",
        help="of tasks, check a part of the rows, chosen by hashing: seconds a task")
    add("--full", action="store_true",
        help="of models, check the weights too: sampled against recomputed log-probabilities")


def run(options: Namespace) -> int:
    """Put what the paths mean, or what changed since a commit, through every rule.

    Returns 0 when every rule is kept, 3 when one is broken, and 6 when this machine cannot try
    one: a task that was named is not fetched, or its sandbox cannot be built here.
    """
    from crlbench.catalog.find import Catalog
    from crlbench.commands.validation import Validation, since

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
