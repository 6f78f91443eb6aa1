"""The table of a chain's stages: sums over runs, products, and what was not counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from crlbench.contract.charges import Charges, Coefficients
from crlbench.contract.ledger import Ledger, ModelWork, Passes, Totals
from crlbench.contract.records import StageRecord
from crlbench.contract.spending import sum_charges
from crlbench.pages.page_stages import stages

MODEL = Coefficients(token=1_000, context=0, head=10, source="counter")


def ledger(tokens: int, labels: int = 0) -> Ledger:
    work = ModelWork(read=Passes(tokens=tokens))
    return Ledger(
        coefficients={"policy": MODEL}, points=(Totals(labels=labels, models={"policy": work}),)
    )


def stage(name: str, sha: str | None, counted: Ledger | None, shared: bool = True) -> StageRecord:
    return StageRecord(
        name=name, kind="collect", key="0" * 64, inputs={}, sha256=sha and sha * 64, charges={},
        facts={}, shared=shared, ledger=counted,
    )  # fmt: skip


def run(lineage: tuple[StageRecord, ...] | None, last: Ledger | None = None) -> Any:
    config = {"stages": [{"name": "pairs"}, {"name": "policy", "kind": "preference"}]}
    charges = None if lineage is None else sum_charges(lineage, last)
    record = SimpleNamespace(
        lineage=lineage, ledger=last, charges=charges, algo=SimpleNamespace(config=config)
    )
    return SimpleNamespace(record=record)


def test_stages_add_up_over_runs_and_to_the_whole() -> None:
    runs = [run((stage("pairs", sha, ledger(5, labels=1_000)),), ledger(7)) for sha in ("a", "b")]
    assert runs[0].record.charges == Charges(labels=1_000, read_tokens=12, flops=12_000)
    found = stages(runs)
    assert found is not None and found["runs"] == 2 and found["lacking"] == 0
    first, last = found["rows"]
    assert (first["label"], first["labels"], first["read_tokens"]) == ("pairs", "2,000", "10")
    assert first["shared"] and first["product"] == "2 products"
    assert (last["label"], last["kind"], last["product"]) == ("policy", "preference", "measured")
    assert last["read_tokens"] == "14" and found["total"]["read_tokens"] == "24"


def test_one_product_is_named_and_a_failed_stage_counted() -> None:
    found = stages([run((stage("pairs", "a", ledger(5), shared=False),), ledger(7))])
    assert found is not None
    assert found["rows"][0]["product"] == "a" * 12 and not found["rows"][0]["shared"]
    failed = stages([run((stage("pairs", None, None),))])
    assert failed is not None and failed["rows"][0]["failed"] == 1
    assert failed["total"]["read_tokens"] == "0" and failed["lacking"] == 0


def test_what_was_not_counted_is_a_dash_and_other_recipes_have_no_table() -> None:
    found = stages([run((stage("pairs", "a", None),), ledger(7))])
    assert found is not None and found["lacking"] == 1
    assert found["rows"][0]["flops"] == found["total"]["flops"] == "–"
    assert found["rows"][1]["flops"] != "–"
    assert stages([run(None)]) is None
