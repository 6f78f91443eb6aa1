"""``crlbench validate``: the whole gauntlet on tasks, with a report that a person can act on."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from crlbench.catalog import Catalog
from crlbench.commands.console import count, note, out, out_json
from crlbench.errors import OK, CrlbenchError, EnvironmentUnfit, UsageError, ValidationError
from crlbench.frozen import Task

KINDS = ("auto", "task")
ONLY_TASKS = "Only tasks are validated so far: their folders or their names."


@dataclass(frozen=True)
class Subject:
    """A task's folder, and whether it was named or found inside a folder that was."""

    folder: Path
    named: bool


def validate(options: Namespace) -> int:
    """Put tasks through the gauntlet.

    Returns 0 when every rule is kept, 3 when one is broken, and 6 when this machine cannot try
    one: a task that was named is not fetched, or its sandbox cannot be built here.
    """
    from crlbench import gauntlet
    from crlbench.gauntlet.duplicates import search

    catalog = Catalog(options.catalog)
    subjects = _subjects(options.paths, catalog, options.kind)
    effort = "quick" if options.quick else "full"
    whole = [*_loadable(subject.folder for subject in subjects)]
    entries = catalog.entries("task").values() if whole else ()
    others = [*_loadable(entry.path for entry in entries)]
    if whole:
        note(options, f"looking for near-duplicates in {count(len(others), 'task')}...")
    duplicates = search(whole, others, effort) if whole else {}
    reports = []
    for subject in subjects:
        note(options, f"{subject.folder.name}...")
        own = duplicates.get(subject.folder.resolve().name)
        known = {"near-duplicates": own} if own else {}
        report = gauntlet.examine(subject.folder, effort, others, known)
        reports.append(report)
        for line in () if options.json else report.lines():
            out(line)
    if options.json:
        out_json([report.to_dict() for report in reports])
    if any(report.broken for report in reports):
        return ValidationError.exit_code
    pairs = zip(subjects, reports, strict=True)
    unfit = any(report.unfit and (subject.named or report.ran) for subject, report in pairs)
    return EnvironmentUnfit.exit_code if unfit else OK


def _subjects(paths: Iterable[str], catalog: Catalog, kind: str) -> list[Subject]:
    """The task folders that the arguments mean, each once."""
    found: dict[Path, Subject] = {}
    for given in paths:
        for subject in _meant(given, catalog, kind):
            found.setdefault(subject.folder.resolve(), subject)
    return [*found.values()]


def _meant(given: str, catalog: Catalog, kind: str) -> Iterator[Subject]:
    path = Path(given)
    if _is_task(path):
        yield Subject(path, named=True)
    elif path.is_dir() and (inside := sorted(filter(_is_task, path.iterdir()))):
        yield from (Subject(folder, named=False) for folder in inside)
    elif path.exists() or (kind == "auto" and given in catalog.entries("model")):
        raise UsageError(f"{given}: holds no task.py and no frozen.toml. {ONLY_TASKS}")
    else:
        yield Subject(catalog.find("task", given).path, named=True)


def _is_task(path: Path) -> bool:
    return (path / "task.py").is_file() or (path / "frozen.toml").is_file()


def _loadable(folders: Iterable[Path]) -> Iterator[Task]:
    """The tasks of those folders that can be read; the report on the others says why not."""
    for folder in folders:
        try:
            task = Task(folder)
            task.require_rows()
            for split in task.card.splits:
                task.rows(split)
        except CrlbenchError:
            continue
        yield task
