"""What a record says, computed again from what it stores: scores, curve, figures, status, files.

Pure reading: no model, no task, no track. What needs those stands on the other side, in
:mod:`crlbench.proof.checkout` and :mod:`crlbench.proof.rescore`. Nothing here may refuse a record
that a run wrote: where a stored figure was rounded, only what no rounding explains is a finding.
"""

from __future__ import annotations

from collections.abc import Iterator

from crlbench.contract.conditions import protocol_name
from crlbench.contract.experience import OWN_LEAF, why_open
from crlbench.contract.verification import Finding
from crlbench.proof.charges import check_charges
from crlbench.proof.draws import check_draws
from crlbench.proof.facts import Facts, facts_of
from crlbench.proof.figures import check_cost, check_figures
from crlbench.proof.files import check_digests, check_files, check_samples
from crlbench.proof.forms import check_clock, check_forms, check_machine
from crlbench.proof.lineage import check_lineage
from crlbench.proof.scores import (
    check_curve,
    check_passes,
    check_splits,
    check_vectors,
)
from crlbench.proof.status import check_status
from crlbench.seeding import seed_value
from crlbench.verdict.runs import Run

CHECKS = (
    check_forms,
    check_curve,
    check_splits,
    check_passes,
    check_vectors,
    check_draws,
    check_samples,
    check_figures,
    check_cost,
    check_clock,
    check_status,
    check_digests,
    check_files,
    check_machine,
    check_lineage,
    check_charges,
)


def audit_run(run: Run) -> list[Finding]:
    """Everything in which a run disagrees with itself; empty for a sound one.

    Raises:
        ValidationError: a file is malformed, or is not the one that the record lists.
        EnvironmentUnfit: a file may not be read.
    """
    facts = facts_of(run)
    if isinstance(facts, Finding):
        return [facts]
    return [finding for check in (_identity, *CHECKS) for finding in check(facts)]


def _identity(facts: Facts) -> Iterator[Finding]:
    """The names that stand twice in a record, its seed, and the badge that it may not bring."""
    record, leaves = facts.record, facts.record.fingerprint.leaves
    task = record.task
    twice = {
        "protocol.name": (record.protocol.name, protocol_name(leaves)),
        "protocol.version": (record.protocol.version, leaves.get("protocol")),
        "protocol.track": (record.protocol.track, leaves.get("track")),
        "protocol.track_version": (record.protocol.track_version, leaves.get("track_version")),
        "task.version": (task.version, facts.leaf("version")),
        "task.digests.task": (task.digests.get("task"), facts.leaf("digest")),
        "task.digests.verifier": (task.digests.get("verifier"), facts.leaf("verifier")),
        "task.digests.splits": (task.digests.get("splits"), facts.split_digests),
        "task.floor": (task.floor, facts.leaf("bounds.id.floor")),
        "task.ceiling": (task.ceiling, facts.leaf("bounds.id.ceiling")),
    }
    for field, (stored, leaf) in twice.items():
        yield from facts.differs(field, stored, leaf, "fingerprint.leaves say so")
    value = seed_value(record.protocol.version, task.name, record.seed.index)
    yield from facts.differs("seed.value", record.seed.value, value, "seeds are derived")
    yield from facts.differs(
        "verification", record.verification, [], "a record never brings a badge of its own"
    )
    opened = why_open(record.algo.config, OWN_LEAF in record.fingerprint.leaves)
    if record.status.state == "partial" or opened:
        why = opened or "shortened runs are open"
        yield from facts.differs("protocol.division", record.protocol.division, "open", why)
