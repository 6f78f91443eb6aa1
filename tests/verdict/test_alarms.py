"""Alarms fire at their thresholds and never on a calm run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from crlbench.contract.dynamics import ALL_STATS
from crlbench.pages.page_health import PANELS
from crlbench.verdict.alarms import Alarm, alarms


def raised(health: dict[str, list], **counts: int) -> list[Alarm]:
    return alarms(SimpleNamespace(health=health, counts=counts))


def fired(health: dict[str, list], **counts: int) -> list[tuple[str, int | None]]:
    return [(a.name, a.iteration) for a in raised(health, **counts)]


def run(**figures: list[float | None]) -> dict[str, list]:
    length = max(len(values) for values in figures.values())
    return {"iteration": list(range(1, length + 1))} | figures


CALM = {
    "reference_kl": [0.01, 0.02, 0.02, 0.03, 0.03, 0.04, 0.04],
    "entropy": [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4],
    "clip_fraction": [0.1] * 7,
    "truncated": [0.2] * 7,
    "grad_norm": [1.0, 2.0, 1.0, 1.0, 3.0, 1.0, 1.0],
    "length": [5.0, 5, 5, 6, 6, 7, 8],
    "behavior_gap": [1e-5] * 7,
    "ess": [None, 1.0, 0.99, 0.98, 0.9, 0.8, 0.7],
    "explained_variance": [-0.5, -0.2, 0.1, 0.1, 0.2, 0.2, 0.2, 0.3, 0.1, -0.2],
    "kept_mass": [1.0, 1.4, 1.1, 0.9, 0.8, 0.6, 0.5],
}

RAISED = [
    ("reference_kl", [0.01] * 6 + [0.11], ("KL spike", 7)),
    ("entropy", [1.0] * 5 + [0.09, 0.2], ("entropy collapse", 6)),
    ("clip_fraction", [0.1, 0.35] + [0.1] * 5, ("clip share", 2)),
    ("truncated", [0.1] * 6 + [0.97], ("truncation", 7)),
    ("grad_norm", [1.0] * 6 + [10.5], ("gradient spike", 7)),
    ("length", [5.0] * 6 + [10.1], ("length growth", 7)),
    ("behavior_gap", [0.0] * 6 + [0.2], ("decode gap", 7)),
    ("ess", [1.0] * 5 + [0.4, 0.9], ("few effective samples", 6)),
    ("explained_variance", [0.4] * 5 + [-0.1] * 5, ("useless critic", 10)),
    ("kept_mass", [1.0] * 4 + [0.49, 0.6, 0.2], ("lost probability", 5)),
]


def test_a_calm_run_and_an_empty_one_have_no_alarm():
    assert fired(run(**CALM), dropped_rows=0) == []
    assert fired({}) == []


@pytest.mark.parametrize(("name", "values", "alarm"), RAISED)
def test_each_alarm(name: str, values: list[float], alarm: tuple[str, int]):
    assert fired(run(**CALM | {name: values})) == [alarm]


@pytest.mark.parametrize(("name", "values", "alarm"), RAISED)
def test_each_names_its_figure_its_value_there_and_its_threshold(name, values, alarm):
    (found,) = raised(run(**CALM | {name: values}))
    assert found.figure == name and name in ALL_STATS and name in PANELS
    assert found.value == values[found.iteration - 1]
    assert "(alarm " in found.text


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("reference_kl", [0.01] * 6 + [0.1]),
        ("entropy", [1.0] * 5 + [0.1, 0.2]),
        ("clip_fraction", [0.1, 0.29] + [0.1] * 5),
        ("truncated", [0.1] * 6 + [0.94]),
        ("grad_norm", [1.0] * 6 + [10.0]),
        ("length", [5.0] * 6 + [10.0]),
        ("behavior_gap", [0.0] * 6 + [0.049]),
        ("ess", [1.0] * 5 + [0.5, 0.9]),
        ("explained_variance", [-0.4] * 5 + [-0.1, 0.1, 0.0, 0.0, 0.0]),
    ],
)
def test_none_fires_at_or_before_its_threshold(name: str, values: list[float]):
    assert fired(run(**CALM | {name: values})) == []


def test_the_gradient_is_judged_by_its_99_percent_quantile_not_its_maximum():
    rare = [1.0] * 299 + [50.0]
    assert fired({"iteration": list(range(300)), "grad_norm": rare}) == []
    often = [1.0] * 290 + [50.0] * 10
    assert fired({"iteration": list(range(300)), "grad_norm": often}) == [("gradient spike", 296)]


def test_the_highest_spike_is_named_and_all_are_counted():
    (found,) = raised(run(reference_kl=[0.01] * 6 + [0.2, 0.01, 0.5, 0.01]))
    assert found.iteration == 9 and found.value == 0.5
    assert "2 iterations are that high" in found.text


def test_values_that_are_missing_are_passed_over():
    assert fired(run(**CALM | {"reference_kl": [None] * 7, "entropy": [None] * 6 + [0.5]})) == []


def test_events_are_counted():
    found = raised(run(**CALM), dropped_rows=2, skipped_updates=1)
    assert [alarm.name for alarm in found] == ["rows dropped for NaN", "updates skipped"]
    assert [alarm.figure for alarm in found] == [None, None]
