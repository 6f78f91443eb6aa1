"""The first half of ``crlbench verify``: what is stored is computed and verified again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from crlbench.proof.entry import Home, audit_home, audit_in
from crlbench.proof.facts import Facts, facts_of
from crlbench.proof.files import config_of
from crlbench.proof.rescore import check_payable, check_prompts, reader_of, rescore
from crlbench.verdict.agreement import Peers
from crlbench.verdict.runs import Run, Runs


@dataclass
class Recomputed:
    """What came of computing results again."""

    findings: dict[str, list[Finding]] = field(default_factory=dict)
    """By the name of the run; a sound run has an empty list."""
    comparisons: dict[str, Comparison] = field(default_factory=dict)
    """With this checkout, by the name of the run."""
    gaps: list[str] = field(default_factory=list)
    """What could not be checked here; sentences, each once."""
    absent: list[str] = field(default_factory=list)
    """Those of them that name a model or a recipe which is not here."""
    refused: list[str] = field(default_factory=list)
    """What this checkout does not know of runs that never stood; sentences, each once."""
    samples: int = 0
    """Completions that were verified again."""
    prompts: int = 0
    """Of those, how many stand under the prompt that the model reads."""
    verifiers: set[str] = field(default_factory=set)
    """Tasks whose verifiers judged them, with versions."""

    @property
    def all_findings(self) -> list[Finding]:
        return [finding for found in self.findings.values() for finding in found]


def check_bytes(homes: Mapping[Path, Home]) -> None:
    """Refuse submitted entries whose bytes say more than their runs.

    Raises:
        ValidationError: names the file.
    """
    for folder in {home.folder: None for home in homes.values() if (home.folder / PACKED).exists()}:
        for fault in check_canonical(folder):
            raise ValidationError(f"{folder / fault}")


def recompute(
    runs: Runs, homes: Mapping[Path, Home], catalog: Catalog, base: Base | None = None
) -> Recomputed:
    """Compute every run again from its own files, and compare it with this checkout.

    Args:
        runs: what is examined.
        homes: entries by the folder of a run.
        catalog: of the checkout.
        base: what stood before; of that alone something may be not checked any more.

    Raises:
        ValidationError: a file is malformed.
        EnvironmentUnfit: a verifier cannot run here.
    """
    done, readers = Recomputed(), _Readers()
    for home in {home.folder: home for home in homes.values()}.values():
        if faults := list(audit_home(home)):
            done.findings[faults[0].run] = faults
    for run in runs:
        try:
            _recompute_run(done, run, homes.get(run.folder), catalog, base, readers)
        except UNREADABLE as error:
            raise ValidationError(
                f"{run.folder}: cannot be checked: {type(error).__name__}: {error!s:.99}"
            ) from None
    for finding in Peers().disagreements(runs):
        done.findings.setdefault(finding.run, []).append(finding)
    if any(run.folder not in homes for run in runs):
        done.gaps.append("attempts: no folder above these runs has a plan. No ledger was compared.")
    done.gaps += readers.gaps
    return done


def _recompute_run(
    done: Recomputed,
    run: Run,
    home: Home | None,
    catalog: Catalog,
    base: Base | None,
    readers: _Readers,
) -> None:
    """One run from its own files, its entry and this checkout."""
    found = done.findings.setdefault(run.name, [])
    found += check_payable(run, catalog)
    found += audit_run(run)
    if home is not None:
        found += audit_in(home, run)
    facts = facts_of(run)
    if isinstance(facts, Facts):
        here = compare(run, model_of(run), tuple(facts.tasks), catalog)
        done.comparisons[run.name] = here
        found += here.findings
        _sort(done, run, here, base)
        found += _samples(done, facts, here, readers)


def _sort(done: Recomputed, run: Run, here: Comparison, base: Base | None) -> None:
    """Note what could not be checked of a run, and what therefore is refused."""
    stood = base is not None and base.holds(run)
    gaps = [*here.gaps, *(here.outdated if stood else [])]
    refused = [*here.unknown, *([] if stood else here.outdated)]
    done.gaps += [gap for gap in gaps if gap not in done.gaps]
    done.absent += [gap for gap in here.gaps if gap not in done.absent]
    done.refused += [sentence for sentence in refused if sentence not in done.refused]


def model_of(run: Run) -> str:
    """The name under which the run's model was asked for, as far as it is known."""
    config = config_of(run) or {}
    return str(config.get("model", run.record.subject.slug))


class _Readers:
    """How models read prompts, each loaded once; what is not here is noted."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}
        self.gaps: list[str] = []

    def of(self, here: Comparison) -> Any:
        if here.card is None:
            return None
        if here.card.digest not in self.known:
            try:
                self.known[here.card.digest] = reader_of(here.card)
            except EnvironmentUnfit as error:
                self.known[here.card.digest] = None
                self.gaps.append(f"prompts: {error}")
        return self.known[here.card.digest]


def _samples(
    done: Recomputed, facts: Facts, here: Comparison, readers: _Readers
) -> Iterator[Finding]:
    """The stored completions, verified again."""
    if here.task is None:
        return
    rows = [asdict(sample) for sample in facts.run.samples()]
    found = [*rescore(facts, rows, here.task)]
    done.samples += len(rows)
    done.verifiers.add(f"{here.task.name} {here.task.card.version}")
    reader = readers.of(here)
    if reader is not None and not found:
        found += check_prompts(facts, rows, here.task, reader)
        done.prompts += len(rows)
    yield from found
