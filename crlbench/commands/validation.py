"""The examinations of one ``crlbench validate``, each shown as soon as it is done."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.commands.console import count, note, out
from crlbench.commands.validate_paths import Subject, subjects
from crlbench.errors import OK, CrlbenchError, EnvironmentUnfit, ValidationError

if TYPE_CHECKING:
    from crlbench.contribute.results.changes import Base


class Validation:
    """One command's examinations; each report is printed as soon as it is there."""

    def __init__(self, options: Namespace, catalog: Catalog) -> None:
        self.options = options
        self.catalog = catalog
        self.reports: list[Any] = []
        self.unfit = False
        """Whether this machine, not what was given, is why something was not tried."""

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

    def paths(self, given: Iterable[str]) -> None:
        """Everything that the paths mean: results, then tasks, then models."""
        paths = [*given]
        found = subjects(paths, self.catalog, self.options.kind)
        self._foreign(paths, [one.folder for one in found if one.kind == "result"])
        self.results([one.folder for one in found if one.kind == "result"])
        self._tasks([one for one in found if one.kind == "task"])
        self._models([one for one in found if one.kind == "model"])

    def _foreign(self, given: Sequence[str], folders: Sequence[Path]) -> None:
        """Of a folder of all results also what belongs to none of them."""
        from crlbench.contribute.results.layout import check_places
        from crlbench.contribute.results.report import Examined

        homes = {folder.absolute().parents[2] for folder in folders}
        for path in map(Path, given):
            if path.absolute() in homes and (strange := check_places(path)):
                self.add(Examined("results", str(path), "foreign files", tuple(strange)))

    def results(self, folders: Sequence[Path], base: Base | None = None) -> None:
        """Submitted entries, with every other entry beside them known.

        ``base`` is what they are new since; by default as git tells it.
        """
        if not folders:
            return
        from crlbench.contribute.results.changes import base_of
        from crlbench.contribute.results.copies import Known
        from crlbench.contribute.results.layout import find_entries
        from crlbench.contribute.results.result import Examiner
        from crlbench.verdict.agreement import Peers

        homes = dict.fromkeys(folder.absolute().parents[2] for folder in folders)
        entries = [entry for home in homes for entry in find_entries(home)]
        models = {folder.absolute().parts[-2] for folder in folders}
        peers = Peers.of(entry for entry in entries if entry.absolute().parts[-2] in models)
        base = base or base_of(folders[0])
        examiner = Examiner(self.catalog, Known.of(entries), base, peers)
        for folder in folders:
            note(self.options, f"{'/'.join(folder.absolute().parts[-3:])}...")
            self.add(examiner.examine(folder))

    def _tasks(self, found: Sequence[Subject]) -> None:
        """Tasks through the gauntlet."""
        if not found:
            return
        from crlbench.suite.gauntlet.duplicates import search
        from crlbench.suite.gauntlet.examine import examine

        effort = "quick" if self.options.quick else "full"
        whole = [*_loadable(subject.folder for subject in found)]
        entries = self.catalog.entries("task").values() if whole else ()
        others = [*_loadable(entry.path for entry in entries)]
        if whole:
            note(self.options, f"looking for near-duplicates in {count(len(others), 'task')}...")
        duplicates = search(whole, others, effort) if whole else {}
        for subject in found:
            note(self.options, f"{subject.folder.name}...")
            own = duplicates.get(subject.folder.resolve().name)
            known = {"near-duplicates": own} if own else {}
            self._tried(subject, examine(subject.folder, effort, others, known))

    def _models(self, found: Sequence[Subject]) -> None:
        """Entries of models through their rules."""
        if not found:
            return
        from crlbench.contribute.models.examine import examine
        from crlbench.run.board import load_track

        options = self.options
        conditions = load_track(self.catalog, "mini").conditions
        silence = cache(lambda: _silence(options.offline))
        for subject in found:
            note(options, f"{subject.folder.name}...")
            report = examine(subject.folder, conditions, options.home, silence, options.full)
            self._tried(subject, report)

    def _tried(self, subject: Subject, report: Any) -> None:
        self.add(report)
        self.unfit |= bool(report.unfit and (subject.named or report.ran))


def _silence(offline: bool) -> str:
    """Why the hub is not to be asked; "" where it answers."""
    from crlbench.doctor.machine import ask_hub

    if offline:
        return "the hub was not asked (--offline)"
    hub = ask_hub(offline)
    return "" if hub.state == "answers" else f"the hub does not answer ({hub.detail})"


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
