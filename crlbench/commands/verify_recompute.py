"""The first half of ``crlbench verify``: what is stored is computed and verified again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from crlbench.catalog.find import Catalog
from crlbench.contract.verification import Finding
from crlbench.contribute.results.changes import Base
from crlbench.contribute.results.packing import check_canonical
from crlbench.disk.packed import PACKED
from crlbench.disk.reading import UNREADABLE
from crlbench.errors import EnvironmentUnfit, ValidationError
from crlbench.proof.audit import audit_run
from crlbench.proof.checkout import Comparison, compare
from crlbench.proof.completeness import absent_runs, as_finding
from crlbench.proof.entry import Home, audit_home, audit_in
from crlbench.proof.episodes import check_played, check_read, check_spoken
from crlbench.proof.facts import Facts, facts_of
from crlbench.proof.files import config_of
from crlbench.proof.rescore import check_payable, check_prompts, reader_of, rescore
from crlbench.verdict.agreement import Peers
from crlbench.verdict.archive import Archive
from crlbench.verdict.load import Runs
from crlbench.verdict.runs import Run


@dataclass
class Recomputed:
    """What came of computing results again."""

    findings: dict[str, list[Finding]] = field(default_factory=dict)
    """Faults by the name of the run; a sound run has an empty list."""
    comparisons: dict[str, Comparison] = field(default_factory=dict)
    """Comparisons with this checkout, by the name of the run."""
    gaps: list[str] = field(default_factory=list)
    """What could not be checked here; sentences, each once."""
    absent: list[str] = field(default_factory=list)
    """Gaps that name a model or a recipe which is not here."""
    refused: list[str] = field(default_factory=list)
    """What this checkout does not know of new runs; sentences, each once."""
    samples: int = 0
    """Completions that were verified again."""
    episodes: int = 0
    """Episodes among them that were played again, turn by turn."""
    prompts: int = 0
    """How many of them stand under the prompt that the model reads."""
    verifiers: set[str] = field(default_factory=set)
    """Tasks whose verifiers judged them, with versions."""

    @property
    def all_findings(self) -> list[Finding]:
        return [finding for findings in self.findings.values() for finding in findings]


def check_bytes(homes: Mapping[Path, Home]) -> None:
    """Refuse submitted entries whose bytes say more than their runs."""
    for folder in {home.folder: None for home in homes.values() if (home.folder / PACKED).exists()}:
        for fault in check_canonical(folder):
            raise ValidationError(f"{folder / fault}")


def recompute(
    runs: Runs, homes: Mapping[Path, Home], catalog: Catalog, base: Base | None = None
) -> Recomputed:
    """Compute every run again from its own files, and compare it with this checkout.

    Args:
        homes: entries by the folder of a run.
        base: the results before a change; only those may be outdated.

    Raises:
        ValidationError: a file is malformed.
        EnvironmentUnfit: a verifier cannot run here.
    """
    recomputed = Recomputed()
    readers: dict[str, Any] = {}
    """How each model reads prompts, by the digest of its card; why not, where it is not here."""
    for home in {home.folder: home for home in homes.values()}.values():
        if faults := list(audit_home(home)):
            recomputed.findings[faults[0].run] = faults
    for run in runs:
        try:
            _recompute_run(recomputed, run, homes.get(run.folder), catalog, base, readers)
        except UNREADABLE as error:
            raise ValidationError(
                f"{run.folder}: cannot be checked: {type(error).__name__}: {error!s:.99}"
            ) from None
    for finding in Peers().disagreements(runs):
        recomputed.findings.setdefault(finding.run, []).append(finding)
    _check_complete(recomputed, runs, homes)
    if any(run.folder not in homes for run in runs):
        gap = "attempts: no folder above these runs has a plan. No ledger was compared."
        recomputed.gaps.append(gap)
    missing = [reader for reader in readers.values() if isinstance(reader, EnvironmentUnfit)]
    recomputed.gaps += [f"prompts: {error}" for error in missing]
    return recomputed


def _check_complete(recomputed: Recomputed, runs: Runs, homes: Mapping[Path, Home]) -> None:
    """Name declared runs that are not there, of entries that were given whole.

    An entry that was not submitted may still be under way: what it has not run yet is a gap. Of
    runs that contradict their plan or ledger nothing is counted.
    """
    if recomputed.all_findings:
        return
    archive = Archive(runs)
    given = {runs.folder / name for name in runs.plans}
    for home in {home.folder: home for home in homes.values()}.values():
        for absence in absent_runs(runs, home, archive) if home.folder in given else ():
            if absence.has_ended or (home.folder / PACKED).exists():
                finding = as_finding(home, absence)
                recomputed.findings.setdefault(finding.run, []).append(finding)
            else:
                recomputed.gaps.append(f"{home.folder}: {absence}.")


def _recompute_run(
    recomputed: Recomputed,
    run: Run,
    home: Home | None,
    catalog: Catalog,
    base: Base | None,
    readers: dict[str, Any],
) -> None:
    """One run from its own files, its entry and this checkout."""
    findings = recomputed.findings.setdefault(run.name, [])
    findings += check_payable(run, catalog)
    findings += audit_run(run)
    if home is not None:
        findings += audit_in(home, run)
    facts = facts_of(run)
    if isinstance(facts, Facts):
        here = compare(run, model_of(run), tuple(facts.tasks), catalog)
        recomputed.comparisons[run.name] = here
        findings += here.findings
        _sort(recomputed, run, here, base)
        findings += _samples(recomputed, facts, here, readers)


def _sort(recomputed: Recomputed, run: Run, here: Comparison, base: Base | None) -> None:
    """Note what could not be checked of a run, and what therefore is refused."""
    is_old = base is not None and base.holds(run)
    gaps = [*here.gaps, *(here.outdated if is_old else [])]
    refused = [*here.unknown, *([] if is_old else here.outdated)]
    recomputed.gaps += [gap for gap in gaps if gap not in recomputed.gaps]
    recomputed.absent += [gap for gap in here.gaps if gap not in recomputed.absent]
    recomputed.refused += [sentence for sentence in refused if sentence not in recomputed.refused]


def model_of(run: Run) -> str:
    """The name under which the run's model was asked for, as far as it is known."""
    config = config_of(run) or {}
    return str(config.get("model", run.record.subject.spec))


def _samples(
    recomputed: Recomputed, facts: Facts, here: Comparison, readers: dict[str, Any]
) -> list[Finding]:
    """The faults of stored completions, which are verified again."""
    if here.task is None:
        return []
    rows = [asdict(sample) for sample in facts.run.samples()]
    # A verifier may fail on what nobody can have said, so that is looked for first.
    findings = [*check_spoken(facts, rows, here.task.card.kind)]
    findings = findings or [*rescore(facts, rows, here.task)]
    if here.task.card.kind == "environment" and not findings:
        findings += check_played(facts, rows, here.task)
        recomputed.episodes += len(rows)
    recomputed.samples += len(rows)
    recomputed.verifiers.add(f"{here.task.name} {here.task.card.version}")
    if here.card is not None and here.card.digest not in readers:
        try:
            readers[here.card.digest] = reader_of(here.card)
        except EnvironmentUnfit as error:
            readers[here.card.digest] = error
    reader = None if here.card is None else readers[here.card.digest]
    if not (reader is None or isinstance(reader, EnvironmentUnfit) or findings):
        findings += check_prompts(facts, rows, here.task, reader)
        if here.task.card.kind == "environment":
            findings += check_read(facts, here.task, reader)
        recomputed.prompts += len(rows)
    return findings
