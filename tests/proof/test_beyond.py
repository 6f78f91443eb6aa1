"""Figures beyond a learned reward: what a record may state of them, and what a replay compares."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from crlbench.contract.records import CurvePoint
from crlbench.proof.likeness import KL_ROUNDING, _beyond
from crlbench.proof.scores import START_KL, _check_beyond

WHOLE = {"gold": 0.5, "audit": 0.25, "kl": 0.3, "kl_se": 0.1}


def point(x: int = 0, **beyond: float | None) -> CurvePoint:
    return CurvePoint(
        x=x, prompts=x, bytes=x, tokens=x, updates=x, score=0.5, n_items=2, items_ref=f"curve/{x}",
        **beyond,
    )  # fmt: skip


def faults(*points: CurvePoint) -> list[str]:
    """The fields of a curve that the audit finds wrong."""
    facts: Any = SimpleNamespace(
        record=SimpleNamespace(curve=points), finding=lambda where, *_: where
    )
    return [field for j, p in enumerate(points) for field in _check_beyond(facts, j, p)]


def test_a_curve_has_all_of_it_or_nothing() -> None:
    start = WHOLE | {"kl": 1e-6}
    assert faults(point(), point(64)) == []
    assert faults(point(**start), point(64, **WHOLE)) == []
    assert faults(point(**start), point(64)) == [f"curve[1].{name}" for name in WHOLE]
    assert faults(point(), point(64, **WHOLE)) == [f"curve[1].{name}" for name in WHOLE]
    assert faults(point(**start), point(64, **WHOLE | {"kl_se": None})) == ["curve[1].kl_se"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("gold", 1.1), ("audit", -0.1), ("kl", float("inf")), ("kl_se", -1e-9)],
)
def test_impossible_figures_are_found(name: str, value: float) -> None:
    start = WHOLE | {"kl": 0.0}
    assert faults(point(**start), point(64, **WHOLE | {name: value})) == [f"curve[1].{name}"]


def test_an_estimate_below_zero_is_possible_but_the_start_model_is_itself() -> None:
    assert faults(point(**WHOLE | {"kl": 0.0}), point(64, **WHOLE | {"kl": -0.02})) == []
    assert faults(point(**WHOLE | {"kl": 2 * START_KL})) == ["curve[0].kl"]


def test_a_replay_compares_what_was_stored() -> None:
    assert [*_beyond(3, point(64), point(64, **WHOLE))] == [], "an older record is not asked"
    assert [*_beyond(3, point(64, **WHOLE), point(64, **WHOLE))] == []
    moved = WHOLE | {"kl": 0.3 + KL_ROUNDING / 2, "gold": 0.51}
    gold, kl = _beyond(3, point(64, **WHOLE), point(64, **moved))
    assert (gold.tensor, gold.within) == ("gold at x = 64", False)
    assert (kl.tensor, kl.within, kl.gap) == ("kl at x = 64", True, pytest.approx(KL_ROUNDING / 2))
    (far,) = _beyond(3, point(64, **WHOLE), point(64, **WHOLE | {"kl": 0.31}))
    assert not far.within
    (gone,) = _beyond(3, point(64, **WHOLE), point(64, **WHOLE | {"audit": None}))
    assert gone.gap is None and not gone.within
