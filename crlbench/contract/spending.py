"""What a whole chain was charged: its stages in order, and the run that is measured."""

from __future__ import annotations

from collections.abc import Sequence

from crlbench.contract.charges import Charges, add_up
from crlbench.contract.ledger import Ledger
from crlbench.contract.records import StageRecord


def sum_charges(lineage: Sequence[StageRecord], ledger: Ledger | None) -> Charges | None:
    """The charges of all stages together; None where one was not counted.

    A stage that failed left nothing, and no charges.

    Args:
        ledger: of the last stage; it has none where a stage before it failed.
    """
    stages = before_last(lineage)
    if stages is None or (ledger is None and not has_failed(lineage)):
        return None
    return add_up([*stages, *([] if ledger is None else [ledger.total])])


def before_last(lineage: Sequence[StageRecord]) -> list[Charges] | None:
    """The charges of each stage before the last one that left something; None where one was not
    counted."""
    ledgers = [stage.ledger for stage in lineage if stage.sha256 is not None]
    counted = [ledger.total for ledger in ledgers if ledger is not None]
    return counted if len(counted) == len(ledgers) else None


def has_failed(lineage: Sequence[StageRecord]) -> bool:
    """Whether a stage before the last one failed."""
    return any(stage.sha256 is None for stage in lineage)
