"""The rate of each size: which pretrainings a model needs, and that a stop repeats none."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import pretrain
import pytest
import rates
from rates import GRID, next_rate, winner

from benchmarks import sizes


def test_the_study_of_sizes_has_the_rates_and_the_moment_of_the_models() -> None:
    for design, (size, ending) in product(sizes.DESIGNS, sizes.SIZES.items()):
        assert sizes.RATES[size] == pretrain.RATES[f"tiny2-{design}{ending}"]
    assert sizes.MOMENT == pretrain.MOMENT


def losses(best: float) -> dict[float, float]:
    """Of every rate of the grid, smallest at one of them."""
    return {rate: abs(math.log(rate / best)) for rate in GRID}


def test_the_grid_comes_first_and_goes_on_where_its_end_wins() -> None:
    assert [next_rate(dict.fromkeys(GRID[:n], 1.0)) for n in range(4)] == list(GRID)
    assert next_rate(losses(1e-3)) is None and winner(losses(1e-3)) == 1e-3
    assert next_rate(losses(1e-4)) == 2.5e-4 and next_rate(losses(1e-1)) == 8e-3
    assert next_rate(losses(1e-1) | {8e-3: 9.0}) is None
    assert next_rate(losses(1e-1) | {8e-3: 0.0, 1.6e-2: -1.0}) is None, "beyond the ends"


def test_ties_go_to_the_smaller_rate_and_what_diverged_never_wins() -> None:
    assert winner({2e-3: 0.5, 1e-3: 0.5, 4e-3: math.inf}) == 1e-3


def test_every_size_has_an_entry_of_the_second_generation() -> None:
    assert set(rates.MODELS) <= set(pretrain.SECOND) and len(set(rates.MODELS)) == 6
    assert all(name[len("tiny2-llama"):] in rates.UPDATE_S for name in rates.MODELS)


def test_a_stopped_tuning_goes_on_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    short = replace(pretrain.PRETRAINING, updates=3, batch=4, warmup=1)
    monkeypatch.setattr(rates, "PRETRAINING", short)
    monkeypatch.setattr(rates, "MOMENT", 2)
    monkeypatch.setattr(rates, "MODELS", ("tiny2-llama-0.3m",))
    monkeypatch.setattr(rates, "ENDS", (5e-4, 4e-3))
    monkeypatch.setattr(rates, "GRID", GRID[:2])
    path = tmp_path / "rates.jsonl"
    assert rates.main(["--out", str(tmp_path), "--max-hours", "0"]) == 8
    assert "stopped before tiny2-llama-0.3m at 0.0005" in capsys.readouterr().out
    row = {"model": "tiny2-llama-0.3m", "rate": 5e-4, "loss": 0.0}
    path.write_text(f"{json.dumps(row)}\n", encoding="utf-8")
    assert rates.main(["--out", str(tmp_path), "--dry-run"]) == 0
    assert "1 pretraining of 2 updates" in capsys.readouterr().out
    assert rates.main(["--out", str(tmp_path)]) == 0
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [row["rate"] for row in rows] == [5e-4, 1e-3] and rows[1]["loss"] > 0
    assert "| `tiny2-llama-0.3m` | **0.0000** |" in capsys.readouterr().out
    assert rates.pretrain_once("tiny2-llama-0.3m", 1e-3) == rows[1]["loss"], "bit for bit"
