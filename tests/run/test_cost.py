"""What stages of chains cost where they learn from a file of one's own: runs are ordered by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from crlbench.contract.conditions import Conditions
from crlbench.run.cost import Workpiece, cost, own_texts, stage_costs
from tests.stages.test_chain import plan_in
from tests.support.own_files import demonstrations, pairs, write


def test_what_stages_cost_follows_a_file_of_ones_own(tmp_path: Path) -> None:
    """Pairs that are there cost nothing to collect; what reads them costs what they hold."""
    cell = plan_in(tmp_path)[0]
    work = Workpiece("tiny-llama", "addition", (), Conditions.model_validate(cell.conditions))

    def costs(name: str, lines: list[dict[str, str]]) -> dict[str, float]:
        own = own_texts(cell.model_copy(update={"answers": str(write(tmp_path / name, lines))}))
        assert own is not None and own.lines == len(lines) and 0 < own.size < work.text
        return stage_costs(cell.recipe_config, work, own)

    plain = stage_costs(cell.recipe_config, work, own_texts(cell))
    few, many = costs("few", pairs(70)), costs("many", pairs(140))
    assert [*plain] == [*few] == ["sft", "pairs", "rm"]
    assert plain["sft"] == few["sft"] and plain["pairs"] > few["pairs"] == many["pairs"] == 0
    assert many["rm"] == pytest.approx(2 * few["rm"], rel=0.1)
    few, many = costs("few-shown", demonstrations(70)), costs("many-shown", demonstrations(140))
    assert many["sft"] > few["sft"]
    assert {**many, "sft": 0} == {**plain, "sft": 0}


def test_a_file_that_is_gone_stops_no_order(tmp_path: Path) -> None:
    cell = plan_in(tmp_path)[0]
    gone = cell.model_copy(update={"answers": str(tmp_path / "away.jsonl")})
    assert own_texts(gone) is None and cost(gone) == cost(cell) > 0
