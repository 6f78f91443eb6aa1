"""``crlbench archive``: the present version of a track or a task, kept beside those to come."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from crlbench.commands.console import note, print_result
from crlbench.errors import OK, UsageError

KINDS = ("track", "task")

EXAMPLES = """\
examples:
  crlbench archive track mini
  crlbench archive task addition
  crlbench archive --check

Exit code 3: an archive, or a part of it, differs from what was archived or frozen.
Archive a version before you raise it. Both then stay usable: docs/task-versions.md.
"""


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("what", choices=KINDS, metavar="WHAT", nargs="?", help=", ".join(KINDS))
    add("name", metavar="NAME", nargs="?",
        help="a track (archived with its tasks and the retain panel), or a task")
    add("--check", action="store_true",
        help="only check that every archive is whole, unchanged and usable; write nothing")


def run(options: Namespace) -> int:
    """Archive one version, or prove that what is archived is whole and unchanged."""
    from crlbench.catalog.find import Catalog
    from crlbench.contribute.review.published import require_as_published
    from crlbench.run import archive

    catalog = Catalog(options.catalog)
    if options.check:
        if options.what is not None:
            raise UsageError("--check looks at every archive. Leave the rest out.")
        names = [folder.name for folder in archive.check(catalog)]
        print_result(options, names, (f"{name} unchanged" for name in names))
        if not names and not options.json:
            note(options, "nothing is archived here")
        return OK
    if options.name is None:
        raise UsageError("archive needs a kind and a name: crlbench archive track mini.")
    require_as_published(catalog, catalog.find_at(options.what, options.name))
    folder = archive.archive(catalog, options.what, options.name)
    print_result(options, {"archive": str(folder)}, [str(folder)])
    if not options.json:
        name = folder.name.partition("@")[0]
        step = (
            "change the track or its tasks, and raise the version in "
            f"leaderboard/tracks/{name}.toml"
            if options.what == "track"
            else f"change the task, then: crlbench freeze {name} --bump"
        )
        note(options, f"{folder.name} is archived. Commit it; now {step}.")
    return OK
