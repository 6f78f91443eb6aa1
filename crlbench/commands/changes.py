"""``crlbench validate --since``: everything that a pull request changes, by one command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crlbench.commands.validation import Validation
from crlbench.errors import UsageError


def since(validation: Validation) -> None:
    """What changed since a commit: the changes themselves, and each thing that they touch.

    With ``--only`` a change of another kind ends it before any file of the change is opened.
    """
    from crlbench.contribute.results.changes import Base, changes_since, check_links, check_only
    from crlbench.contribute.results.layout import RESULTS, find_entries

    options = validation.options
    changes = changes_since(options.since, Path.cwd())
    if options.only:
        beyond = [*check_only(changes.scopes, options.only), *check_links(changes)]
        if beyond:
            validation.add(_report(changes, beyond))
            return
    validation.add(_examined(changes, options))
    refused = validation.reports[-1].broken
    touched = [changes.root / entry for entry in changes.entries()]
    base = Base(changes.root, changes.base, named=True)
    validation.results([entry for entry in touched if entry.is_dir()], base)
    # What stands was made with the entry that stood: it must still agree with what is there now.
    slugs = {Path(path).stem for path in changes.scopes.get("models", ()) if "/" in path}
    standing = find_entries(changes.root / RESULTS)
    validation.results([e for e in standing if e.parts[-2].rpartition("@")[0] in slugs], base)
    if not refused:  # what already broke a rule is looked at no further
        things = _things(changes.root, changes.scopes)
        validation.paths([str(changes.root / path) for path in things])
    _write(options, changes, validation.reports)


def _examined(changes: Any, options: Any) -> Any:
    """What the changes alone say, before anything that they touch is opened."""
    from crlbench.contribute.results.changes import check_kinds, check_links, check_strays
    from crlbench.contribute.review.growth import (
        added_retractions,
        check_results,
        check_tracks,
        check_versions,
    )
    from crlbench.contribute.review.people import author_of, check_author
    from crlbench.contribute.review.published import check_archives
    from crlbench.contribute.review.pull_request import check_boxes

    author = author_of(changes, options.author)
    links = check_links(changes)
    findings, notes = [*check_kinds(changes.scopes), *links], ()
    if not author.keeps:  # whose code and tasks may belong together
        findings += check_strays(changes)
    if not links:  # else nothing is read that may lead elsewhere
        retracted, wrong = added_retractions(changes)
        refusals, notes = check_author(changes, author, retracted)
        findings += [*wrong, *refusals, *check_versions(changes), *check_results(changes)]
        findings += [*check_tracks(changes), *check_archives(changes)]
    if options.body:
        findings += check_boxes(_read(Path(options.body)))
    return _report(changes, findings, notes)


def _report(changes: Any, findings: list[str], notes: tuple[str, ...] = ()) -> Any:
    from crlbench.contribute.results.report import Examined

    files = sorted(changes.scopes.items())
    counted = ", ".join(f"{len(paths)} {kind}" for kind, paths in files) or "nothing changed"
    name = f"since {changes.base[:12]}"
    return Examined("changes", name, counted, tuple(findings), notes, changes.unjudged)


def _things(root: Path, scopes: dict[Any, tuple[str, ...]]) -> list[str]:
    """Model entries and folders of tasks that were touched and are still there."""
    models = [
        path
        for path in scopes.get("models", ())
        if path.startswith("models/") and path.endswith(".toml")
    ]
    tasks = {"/".join(p.split("/")[:2]) for p in scopes.get("tasks", ()) if p.startswith("tasks/")}
    return [path for path in (*models, *sorted(tasks)) if (root / path).exists()]


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--body {path}: cannot be read: {error}") from None


def _write(options: Any, changes: Any, reports: list[Any]) -> None:
    """The comment, and the findings from which another process makes it."""
    if not options.comment and not options.findings:
        return
    import json

    from crlbench.contribute.review.comment import verdict_of
    from crlbench.contribute.review.posting import render
    from crlbench.run.store import write_text

    verdict = verdict_of(changes, reports)
    if options.findings:
        write_text(Path(options.findings), json.dumps(verdict, ensure_ascii=True) + "\n")
    if options.comment:
        write_text(Path(options.comment), render(verdict))
