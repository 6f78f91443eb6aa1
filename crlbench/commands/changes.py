"""``crlbench validate --since``: everything that a pull request changes, by one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from crlbench.errors import CrlbenchError, UsageError

if TYPE_CHECKING:
    from crlbench.commands.validate import Validation


def since(validation: Validation) -> None:
    """What changed since a commit: the changes themselves, and each thing that they touch.

    With ``--only`` a change of another kind ends it before any file of the change is opened.
    """
    from crlbench.contribute.boxes import unticked
    from crlbench.contribute.changes import besides, changes_since, code_unread, mixed, rewritten
    from crlbench.contribute.report import Examined

    options = validation.options
    changes = changes_since(options.since, Path.cwd())
    scopes = changes.scopes
    beyond = besides(scopes, options.only)
    findings = beyond or [*mixed(scopes), *rewritten(changes)]
    if options.body:
        findings += unticked(_read(Path(options.body)))
    counted = ", ".join(f"{len(files)} {kind}" for kind, files in sorted(scopes.items()))
    name, summary = f"since {changes.base[:12]}", counted or "nothing changed"
    notes = code_unread(scopes)
    validation.add(Examined("changes", name, summary, tuple(findings), notes))
    if beyond:
        return
    touched = [changes.root / entry for entry in changes.entries()]
    validation.results([entry for entry in touched if entry.is_dir()])
    if options.comment:
        _comment(Path(options.comment), changes, validation.reports)
    validation.paths([str(changes.root / path) for path in _things(changes.root, scopes)])


def _things(root: Path, scopes: dict[Any, tuple[str, ...]]) -> list[str]:
    """Model entries and folders of tasks that were touched and are still there."""
    models = [path for path in scopes.get("models", ()) if path.startswith("models/")]
    tasks = {"/".join(p.split("/")[:2]) for p in scopes.get("tasks", ()) if p.startswith("tasks/")}
    return [path for path in (*models, *sorted(tasks)) if (root / path).exists()]


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--body {path}: cannot be read: {error}") from None


def _comment(path: Path, changes: Any, reports: list[Any]) -> None:
    from crlbench.contribute.comment import comment
    from crlbench.run.store import write_text

    try:
        text = comment(changes, reports)
    except CrlbenchError as error:
        text = f"The boards could not be compared: {error}\n"
    write_text(path, text)
