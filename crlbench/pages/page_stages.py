"""The stages of a chain: what each one left, what it was charged, and all of them together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crlbench.base import wording
from crlbench.contract.charges import Charges, add_up
from crlbench.contract.records import RunRecord, StageRecord
from crlbench.verdict.runs import Run

NAMES = ("labels", "demonstrations", "generated_tokens", "read_tokens", "updates", "flops")
DIGITS = 12
"""Of a product's digest."""


def stages(runs: Sequence[Run]) -> dict[str, Any] | None:
    """The stages of the runs of one entry and arm; None where its recipe is no chain."""
    records = [run.record for run in runs if run.record.lineage is not None]
    if not records:
        return None
    names = list(dict.fromkeys(stage.name for one in records for stage in one.lineage or ()))
    lines = [_stage_row(name, [_stage(one, name) for one in records]) for name in names]
    whole = [record.charges for record in records]
    return {
        "rows": [*lines, _last_row(records)],
        "total": _row("All stages", _sum(whole)),
        "runs": len(records),
        "lacking": sum(one is None for one in whole),
    }


def _stage(record: RunRecord, name: str) -> StageRecord | None:
    return next((stage for stage in record.lineage or () if stage.name == name), None)


def _stage_row(name: str, found: Sequence[StageRecord | None]) -> dict[str, Any]:
    made = [stage for stage in found if stage is not None]
    charges = [
        Charges() if stage.sha256 is None else None if stage.ledger is None else stage.ledger.total
        for stage in made
    ]
    products = sorted({stage.sha256[:DIGITS] for stage in made if stage.sha256 is not None})
    return _row(
        name,
        _sum(charges),
        kind=made[0].kind,
        shared=all(stage.shared for stage in made),
        product=products[0] if len(products) == 1 else f"{len(products)} products",
        failed=sum(stage.sha256 is None for stage in made),
    )


def _last_row(records: Sequence[RunRecord]) -> dict[str, Any]:
    """The stage whose policy is measured."""
    table = records[0].algo.config["stages"][-1]
    ledgers = [one.ledger for one in records]
    total = _sum([None if ledger is None else ledger.total for ledger in ledgers])
    return _row(str(table["name"]), total, kind=str(table["kind"]), product="measured")


def _sum(parts: Sequence[Charges | None]) -> Charges | None:
    counted = [part for part in parts if part is not None]
    return add_up(counted) if len(counted) == len(parts) else None


def _row(
    label: str,
    charges: Charges | None,
    *,
    kind: str = "",
    shared: bool = False,
    product: str = "",
    failed: int = 0,
) -> dict[str, Any]:
    numbers = {name: None if charges is None else getattr(charges, name) for name in NAMES}
    return {
        "label": label,
        "kind": kind,
        "shared": shared,
        "product": product,
        "failed": failed,
        **{name: wording.grouped(numbers[name]) for name in NAMES if name != "flops"},
        "flops": wording.power(numbers["flops"]),
    }
