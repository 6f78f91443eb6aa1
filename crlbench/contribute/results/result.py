"""``crlbench validate`` on a result: whole, consistent, made under the conditions of its track?

Everything here reads: no model is loaded, no code of a contribution runs. What holds together can
still have been invented; ``crlbench verify`` trains again, which shows that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.contract.arms import ARMS
from crlbench.contract.stored import exists
from crlbench.contract.verification import Finding
from crlbench.contribute.results.changes import Base
from crlbench.contribute.results.copies import Known
from crlbench.contribute.results.layout import SUBMISSION, check_folder, read_submission
from crlbench.contribute.results.packing import check_canonical
from crlbench.contribute.results.report import Examined
from crlbench.disk.names import RUN_FILES
from crlbench.disk.reading import UNREADABLE
from crlbench.errors import CrlbenchError, EnvironmentUnfit
from crlbench.proof.audit import audit_run
from crlbench.proof.checkout import RELEASES, Comparison, compare
from crlbench.proof.completeness import absences_in, absent_arm
from crlbench.proof.effort import MINUTES, Extent, out_of_reach, replay_seconds
from crlbench.proof.entry import audit_home, audit_in, homes_of
from crlbench.proof.episodes import check_played, check_spoken
from crlbench.proof.facts import facts_of
from crlbench.proof.rescore import check_items, check_payable
from crlbench.run.archive import catalog_of
from crlbench.run.progress import duration
from crlbench.verdict.agreement import Peers
from crlbench.verdict.archive import Archive
from crlbench.verdict.board_conditions import board_tasks, same_conditions
from crlbench.verdict.census import Census, take_census
from crlbench.verdict.load import Runs, load_runs
from crlbench.verdict.runs import Run

Findings = Iterator[str]


@dataclass(frozen=True)
class Examiner:
    """Examines results against what this checkout holds: tracks, tasks, models, recipes."""

    catalog: Catalog
    known: Known = field(default_factory=Known)
    """The runs of all entries, to tell copies by."""
    base: Base | None = None
    """What stood before; None: everything is new."""
    peers: Peers = field(default_factory=Peers)
    """The runs of all entries, which agree where they began alike."""

    def examine(self, folder: Path, stands: Path | None = None) -> Examined:
        """Every rule on one submitted entry.

        Args:
            folder: of the entry.
            stands: where it will stand, if that is another folder.
        """
        findings = [f"{folder / line}" for line in check_folder(folder)]
        name = "/".join(folder.absolute().parts[-3:])
        try:
            runs = load_runs(folder)
        except CrlbenchError as error:
            return Examined("result", name, "unreadable", (*findings, str(error)))
        entry = _Entry(folder, runs, self, stands or folder)
        for rule in entry.rules:
            try:
                findings += rule()
            except CrlbenchError as error:
                findings.append(str(error))
            except UNREADABLE as error:
                kind = type(error).__name__
                findings.append(f"{folder}: cannot be checked: {kind}: {error!s:.99}")
        summary = f"{len(runs)} runs, {entry.standing}"
        return Examined("result", name, summary, tuple(dict.fromkeys(findings)), tuple(entry.notes))


class _Entry:
    """One submitted entry under examination."""

    def __init__(self, folder: Path, runs: Runs, examiner: Examiner, stands: Path) -> None:
        self.folder = folder
        self.stands = stands
        self.runs = runs
        self.examiner = examiner
        self.first = runs.runs[0]
        self.notes: list[str] = []
        self._tasks: dict[str, Task | None] = {}
        """Tasks by name, those that this checkout has as the runs had them."""
        self.standing = "unknown"

    @property
    def rules(self) -> tuple[Callable[[], Findings], ...]:
        """All rules, in the order in which a person wants to read what they find."""
        return (
            self._submitter,
            self._bytes,
            self._one_entry,
            self._place,
            self._attempts,
            self._history,
            self._checkout,
            self._replay,
            self._numbers,
            self._copies,
            self._agreement,
        )

    def _submitter(self) -> Findings:
        version = read_submission(self.folder).crlbench
        if version not in RELEASES:
            yield (
                f"{self.folder / SUBMISSION}: crlbench: {version}, and this checkout knows "
                f"{', '.join(RELEASES)}"
            )

    def _bytes(self) -> Findings:
        """The files hold what they say and nothing else."""
        yield from (f"{self.folder / fault}" for fault in check_canonical(self.folder))

    def _one_entry(self) -> Findings:
        """One model, one recipe, one fingerprint, one class of hardware; nothing shortened."""
        same_conditions(self.runs)
        first = self.first.record
        for run in self.runs:
            entry = (run.record.subject, run.record.algo.name, run.record.algo.config)
            if entry != (first.subject, first.algo.name, first.algo.config):
                yield f"{run.folder}: another model or recipe than that of {self.first.folder}"
        if any(run.record.status.state == "partial" for run in self.runs):
            yield f"{self.folder}: holds shortened runs (--smoke, --limit), which nobody may submit"

    def _place(self) -> Findings:
        """The folders say what the records say; so do the names in the archive."""
        record = self.first.record
        board = f"{record.protocol.track}-{record.fingerprint.hash}"
        expected = (board, self.first.model, self.first.recipe)
        if self.folder.absolute().parts[-3:] != expected:
            yield f"{self.folder}: belongs into {'/'.join(expected)}"
        for run in self.runs:
            absent = [name for name in RUN_FILES if not exists(run.folder / name)]
            if absent:
                yield f"{run.folder}: without {', '.join(absent)}"
            r = run.record
            place = (r.task.name, r.arm, f"seed-{r.seed.index:02d}")
            if run.folder.parts[-3:] != place:
                yield f"{run.folder}: holds the record of {'/'.join(place)}"

    def _attempts(self) -> Findings:
        """Each run is one that the plan declared and that the ledger says ended so."""
        homes = homes_of(self.runs)
        for home in {home.folder: home for home in homes.values()}.values():
            yield from map(str, audit_home(home))
        for run in self.runs:
            if run.folder in homes:
                yield from map(str, audit_in(homes[run.folder], run))

    def _history(self) -> Findings:
        """Every planned run is there, and the ledger knows how it came to be."""
        archive = Archive(self.runs)
        board = board_tasks(self.first.record)
        for arm in ARMS:
            runs = [run for run in self.runs if run.record.arm == arm]
            if not runs:
                absent = absent_arm(archive.attempts(self.first), arm)
                yield from (f"{self.folder}: {absence}" for absence in absent)
            if not runs and arm == "real":
                yield f"{self.folder}: holds no run of the real arm"
            if runs:
                census = take_census(runs, board, archive)
                yield from self._check_census(census, arm)
                if arm == "real":
                    self.standing, why = census.standing()
                    self.notes += why

    def _check_census(self, census: Census, arm: str) -> Findings:
        yield from (f"{self.folder}: {absence}" for absence in absences_in(census, arm))
        beyond = {t: len(r) for t, r in census.runs.items() if len(r) > census.declared.get(t, 0)}
        if beyond:
            yield f"{self.folder}: {arm} arm: more seeds than any plan declares: {beyond}"
        yield from (f"{self.folder}: {doubt}" for doubt in census.doubts)

    def _checkout(self) -> Findings:
        """Track, model and recipe are what this checkout has under their names."""
        record, catalog = self.first.record, self.examiner.catalog
        slug = record.subject.slug
        if not record.subject.listed or slug not in catalog.entries("model"):
            yield (
                f"{self.folder}: model '{slug}' has no entry in models/: bring it first "
                "(crlbench add model)"
            )
            return
        here = compare(self.first, slug, board_tasks(record), catalog)
        self._tasks[record.task.name] = here.task
        for run in self._others():
            other = compare(run, slug, board_tasks(run.record), catalog)
            self._tasks.setdefault(run.record.task.name, other.task)
            here.findings += other.findings
            here.unknown += other.unknown
            here.outdated += other.outdated
        yield from map(str, here.findings)
        yield from (f"{self.folder}: {gap}" for gap in here.gaps)
        yield from self._unknown(here)
        if record.protocol.division == "open":
            self.notes.append("Open division: shown apart, never ranked.")
        if here.card is None:
            self.notes.append(f"models/{slug}.toml says more or less than when the runs were made.")

    def _replay(self) -> Findings:
        """Somebody else can make the first updates again."""
        catalog = self.examiner.catalog
        first = self.first.record.seed.index
        records = [run.record for run in self.runs if run.record.seed.index == first]
        reason = out_of_reach(records, catalog)
        if reason is not None:
            yield f"{self.folder}: {reason}"
            return
        extra = tuple(map(str, catalog_of(self.first.record, catalog).extra))
        seconds = sum(
            replay_seconds(r, r.subject.spec, Extent().of(r), extra) for r in records
        )
        if seconds > 60 * MINUTES:
            self.notes.append(
                f"A replay takes about {duration(seconds)} on one core, and those who keep a "
                f"leaderboard give it {MINUTES:g} minutes unless they allow more: it may stay "
                "without the badge."
            )

    def _others(self) -> list[Run]:
        """A run of each further task, protocol and version of crlbench."""
        kinds: dict[Any, Run] = {}
        for run in self.runs:
            r = run.record
            kinds.setdefault((r.task.model_dump_json(), r.protocol, r.crlbench.version), run)
        return [run for run in kinds.values() if run is not self.first]

    def _unknown(self, here: Comparison) -> Findings:
        """What cannot be checked is refused, but of what stood: that was checked when it came."""
        base = self.examiner.base
        passed = [*here.outdated, *(here.unknown if base is not None and base.named else [])]
        for sentence in dict.fromkeys((*here.unknown, *here.outdated)):
            yield from self._unchecked(sentence, sentence in passed)

    def _unchecked(self, sentence: str, passes: bool = True) -> Findings:
        """What was not checked: a note where it ``passes`` and the entry stood, else a finding."""
        base = self.examiner.base
        if passes and base is not None and all(base.holds(run, self.stands) for run in self.runs):
            note = f"not checked any more: {sentence}"
            self.notes += [] if note in self.notes else [note]
        else:
            yield f"{self.folder}: {sentence} What is new is checked, or it is not taken."

    def _agreement(self) -> Findings:
        """Runs that began alike, here or in other entries, say the same of how they began."""
        yield from map(str, self.examiner.peers.disagreements(self.runs))

    def _numbers(self) -> Findings:
        """Every number of every record belongs to its item vectors and its conditions."""
        for run in self.runs:
            yield from map(str, check_payable(run, self.examiner.catalog))
            yield from map(str, audit_run(run))
            yield from map(str, self._samples(run))

    def _samples(self, run: Run) -> Iterator[Finding | str]:
        """What completions are of; and episodes played again, which follow from what was said.

        Other verdicts need the task's verifier, which does not run here. Episodes that this
        machine cannot play are not checked.
        """
        record, facts = run.record, facts_of(run)
        task = self._tasks.get(record.task.name)
        if task is None or isinstance(facts, Finding):
            return
        rows = [asdict(sample) for sample in run.samples()]
        try:
            problems = [*check_items(facts, rows, task)]
            problems += check_spoken(facts, rows, task.card.kind)
            yield from problems
            if task.card.kind == "environment" and not problems:
                yield from check_played(facts, rows, task)
        except EnvironmentUnfit as error:
            if task.card.kind == "environment":
                name = record.task.name
                yield from self._unchecked(f"The episodes of {name} were not played again: {error}")
                return
            note = f"What the samples of {record.task.name} are of was not compared: {error}"
            if note not in self.notes:
                self.notes.append(note)

    def _copies(self) -> Findings:
        """No run is another entry's under a new name."""
        for run in self.runs:
            for fault in self.examiner.known.faults(run):
                yield f"{run.folder}: {fault}: one was copied"
