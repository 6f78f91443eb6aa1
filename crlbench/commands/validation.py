"""The examinations of one ``crlbench validate``: what is examined, each shown when it is done."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.commands.console import count, note, out
from crlbench.contract.model_card import ModelCard, read_model_card
from crlbench.contribute.results.changes import (
    Base,
    base_of,
    changes_since,
    check_kinds,
    check_links,
    check_only,
    check_strays,
)
from crlbench.contribute.results.copies import Known
from crlbench.contribute.results.layout import RESULTS, check_places, find_entries
from crlbench.contribute.results.report import Examined
from crlbench.contribute.results.result import Examiner
from crlbench.contribute.review.comment import verdict_of
from crlbench.contribute.review.growth import (
    added_retractions,
    check_results,
    check_tracks,
    check_versions,
)
from crlbench.contribute.review.people import author_of, check_author
from crlbench.contribute.review.posting import render
from crlbench.contribute.review.published import check_archives
from crlbench.contribute.review.pull_request import check_boxes
from crlbench.disk.names import CODE, FROZEN
from crlbench.errors import OK, CrlbenchError, EnvironmentUnfit, UsageError, ValidationError
from crlbench.run.store import write_text
from crlbench.verdict.agreement import Peers

WHAT = (
    "A task is a folder with a task.py, a model a file models/<slug>.toml, a result a folder with "
    "runs.tar.zst; names of tasks and models do too."
)


@dataclass(frozen=True)
class Subject:
    """One thing to validate, and whether it was named or found inside a folder that was."""

    folder: Path
    """The folder of a task or a result; the file of a model."""
    named: bool
    kind: Literal["result", "task", "model"]


def subjects(paths: Iterable[str], catalog: Catalog, kind: str) -> list[Subject]:
    """What the arguments mean, each once, in the order given."""
    by_folder: dict[Path, Subject] = {}
    for path in paths:
        for subject in _subjects_of(path, catalog, kind):
            by_folder.setdefault(subject.folder.resolve(), subject)
    return [*by_folder.values()]


def _subjects_of(name: str, catalog: Catalog, kind: str) -> Iterator[Subject]:
    from crlbench.contribute.models.examine import entries_in, is_entry

    path = Path(name)
    result, task, model = (kind in ("auto", one) for one in ("result", "task", "model"))
    if result and (inside := list(find_entries(path))):
        yield from (Subject(folder, folder == path, "result") for folder in inside)
    elif kind == "result":
        raise UsageError(
            f"{name}: holds no submitted result (runs.tar.zst). `crlbench submit RUN` makes one."
        )
    elif task and _is_task(path):
        yield Subject(path, True, "task")
    elif model and is_entry(path):
        yield Subject(path, True, "model")
    elif task and path.is_dir() and (inside := sorted(filter(_is_task, path.iterdir()))):
        yield from (Subject(folder, False, "task") for folder in inside)
    elif model and (path.name == "models" or not task) and (files := entries_in(path)):
        yield from (Subject(file, False, "model") for file in files)
    elif path.exists() and not (model and name in catalog.entries("model")):
        raise UsageError(f"{name}: holds nothing to validate. {WHAT}")
    elif "/" in name or name.endswith(".toml"):
        raise UsageError(f"{name}: no such file or folder. {WHAT}")
    elif model and (not task or name in catalog.entries("model")):
        yield Subject(catalog.find("model", name).path, True, "model")
    else:
        yield Subject(catalog.find_at("task", name).path, True, "task")


def _is_task(path: Path) -> bool:
    return (path / CODE).is_file() or (path / FROZEN).is_file()


class Validation:
    """One command's examinations; each report is printed as soon as it is there."""

    def __init__(self, options: Namespace, catalog: Catalog) -> None:
        self.options = options
        self.catalog = catalog
        self.reports: list[Any] = []
        self.unfit = False
        """Whether something was not tried because of this machine."""

    def add(self, report: Any) -> None:
        """Keep a report, and show it to a person."""
        self.reports.append(report)
        for line in () if self.options.json else report.lines():
            out(line)

    @property
    def exit_code(self) -> int:
        """3 where a rule is broken, 6 where this machine cannot try one."""
        if any(report.broken for report in self.reports):
            return ValidationError.exit_code
        return EnvironmentUnfit.exit_code if self.unfit else OK

    def paths(self, paths: Sequence[str]) -> None:
        """Everything that the paths mean: results, then tasks, then models."""
        things = subjects(paths, self.catalog, self.options.kind)
        results = [one.folder for one in things if one.kind == "result"]
        self._foreign(paths, results)
        self.results(results)
        self._tasks([one for one in things if one.kind == "task"])
        self._models([one for one in things if one.kind == "model"])

    def _foreign(self, paths: Sequence[str], folders: Sequence[Path]) -> None:
        """Report what stands in a folder of all results and belongs to none of them."""

        homes = {folder.absolute().parents[2] for folder in folders}
        for path in map(Path, paths):
            if path.absolute() in homes and (strange := check_places(path)):
                self.add(Examined("results", str(path), "foreign files", tuple(strange)))

    def results(self, folders: Sequence[Path], base: Base | None = None) -> None:
        """Submitted entries, with every other entry beside them known.

        ``base`` is what they are new since; by default as git tells it.
        """
        if not folders:
            return

        homes = dict.fromkeys(folder.absolute().parents[2] for folder in folders)
        entries = [entry for home in homes for entry in find_entries(home)]
        models = {folder.absolute().parts[-2] for folder in folders}
        peers = Peers.of(entry for entry in entries if entry.absolute().parts[-2] in models)
        base = base or base_of(folders[0])
        examiner = Examiner(self.catalog, Known.of(entries), base, peers)
        for folder in folders:
            note(self.options, f"{'/'.join(folder.absolute().parts[-3:])}...")
            self.add(examiner.examine(folder))

    def _tasks(self, tasks: Sequence[Subject]) -> None:
        """Tasks through the gauntlet."""
        if not tasks:
            return
        from crlbench.suite.gauntlet.duplicates import search
        from crlbench.suite.gauntlet.examine import examine

        effort = "quick" if self.options.quick else "full"
        whole = [*_loadable(subject.folder for subject in tasks)]
        entries = self.catalog.entries("task").values() if whole else ()
        others = [*_loadable(entry.path for entry in entries)]
        if whole:
            note(self.options, f"looking for near-duplicates in {count(len(others), 'task')}...")
        duplicates = search(whole, others, effort) if whole else {}
        for subject in tasks:
            note(self.options, f"{subject.folder.name}...")
            twins = duplicates.get(subject.folder.resolve().name)
            findings = {"near-duplicates": twins} if twins else {}
            self._add_trial(subject, examine(subject.folder, effort, others, findings))

    def _models(self, models: Sequence[Subject]) -> None:
        """Entries of models through their rules."""
        if not models:
            return
        from crlbench.contribute.models.examine import examine
        from crlbench.run.board import load_track

        options = self.options
        conditions = load_track(self.catalog, "mini").conditions
        silence = cache(lambda: _silence(options.offline))
        others = [*_readable(self.catalog)]
        for subject in models:
            note(options, f"{subject.folder.name}...")
            report = examine(
                subject.folder, conditions, options.home, silence, options.full, others
            )
            self._add_trial(subject, report)

    def _add_trial(self, subject: Subject, report: Any) -> None:
        self.add(report)
        self.unfit |= bool(report.unfit and (subject.named or report.ran))


def _silence(offline: bool) -> str:
    """Why the hub is not to be asked; "" where it answers."""
    from crlbench.doctor.machine import ask_hub

    if offline:
        return "the hub was not asked (--offline)"
    hub = ask_hub(offline)
    return "" if hub.state == "answers" else f"the hub does not answer ({hub.detail})"


def _readable(catalog: Catalog) -> Iterator[ModelCard]:
    """The entries of a catalogue that can be read; the report on the others says why not."""
    for entry in catalog.entries("model").values():
        try:
            yield read_model_card(entry.path)
        except CrlbenchError:
            continue


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


def since(validation: Validation) -> None:
    """What changed since a commit: the changes themselves, and each thing that they touch.

    With ``--only`` a change of another kind ends it before any file of the change is opened.
    """
    options = validation.options
    changes = changes_since(options.since, Path.cwd())
    if options.only:
        beyond = [*check_only(changes.scopes, options.only), *check_links(changes)]
        if beyond:
            validation.add(_report(changes, beyond))
            return
    validation.add(_examine_changes(changes, options))
    is_refused = validation.reports[-1].broken
    entries = [changes.root / entry for entry in changes.entries()]
    base = Base(changes.root, changes.base, named=True)
    validation.results([entry for entry in entries if entry.is_dir()], base)
    # What stands was made with the entry that stood: it must still agree with what is there now.
    slugs = {Path(path).stem for path in changes.scopes.get("models", ()) if "/" in path}
    standing = find_entries(changes.root / RESULTS)
    validation.results([e for e in standing if e.parts[-2].rpartition("@")[0] in slugs], base)
    if not is_refused:  # what already broke a rule is looked at no further
        things = _things(changes.root, changes.scopes)
        validation.paths([str(changes.root / path) for path in things])
    _write(options, changes, validation.reports)


def _examine_changes(changes: Any, options: Any) -> Any:
    """What the changes alone say, before anything that they touch is opened."""
    author = author_of(changes, options.author)
    links = check_links(changes)
    findings, notes = [*check_kinds(changes.scopes), *links], ()
    if not author.keeps:  # whose code and tasks may belong together
        findings += check_strays(changes)
    if not links:  # else nothing is read that may lead elsewhere
        retractions, wrong = added_retractions(changes)
        refusals, notes = check_author(changes, author, retractions)
        findings += [*wrong, *refusals, *check_versions(changes), *check_results(changes)]
        findings += [*check_tracks(changes), *check_archives(changes)]
    if options.body:
        findings += check_boxes(_read(Path(options.body)))
    return _report(changes, findings, notes)


def _report(changes: Any, findings: list[str], notes: tuple[str, ...] = ()) -> Any:
    files = sorted(changes.scopes.items())
    counts = ", ".join(f"{len(paths)} {kind}" for kind, paths in files) or "nothing changed"
    name = f"since {changes.base[:12]}"
    return Examined("changes", name, counts, tuple(findings), notes, changes.unjudged)


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
    verdict = verdict_of(changes, reports)
    if options.findings:
        write_text(Path(options.findings), json.dumps(verdict, ensure_ascii=True) + "\n")
    if options.comment:
        write_text(Path(options.comment), render(verdict))
