"""What a replay may differ in, and between which machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crlbench.contract.machine import BEGUN_ON, machine_class
from crlbench.proof.bands import UNTAUGHT_LOSS, Band, band_of
from crlbench.proof.likeness import Difference, Stored, differences, other_class
from crlbench.proof.replay import Trace, whole_trace
from crlbench.verdict.load import load_runs
from crlbench.verdict.runs import Run

FP32, BF16, SOLVED = band_of("fp32", False), band_of("bf16", False), band_of("fp32", True)
ROWS = 8
NEAR, FAR = [1e-6, 1e-6], [1e-2, 1e-2]


@pytest.fixture(scope="module")
def run(finished: Path) -> Run:
    return load_runs(next(finished.rglob("record.json"))).runs[0]


def stored(run: Run, **health: list[Any]) -> Stored:
    """The run as if half of its prompts taught something in every iteration."""
    columns = run.record.health | {"uniform_groups": [0.5, 0.5]} | health
    return Stored(run.record.model_copy(update={"health": columns}), run.digests(), run.items)


def replayed(run: Run, **changes: Any) -> Trace:
    """The replay of a first part: ``health`` changes columns, the rest fields."""
    trace = whole_trace(run.folder)
    columns = trace.health | {"uniform_groups": [0.5, 0.5]} | changes.pop("health", {})
    part = {"health": columns, "files": {}, "whole": {}, "closest": FAR}
    return trace.model_copy(update=part | changes)


def whole(run: Run, **changes: Any) -> Trace:
    """The replay of all of it."""
    trace = whole_trace(run.folder)
    columns = trace.health | {"uniform_groups": [0.5, 0.5]} | changes.pop("health", {})
    return trace.model_copy(update={"health": columns, "closest": FAR} | changes)


def digests(run: Run, update: int, **changes: Any) -> dict[str, Any]:
    rows = list(whole_trace(run.folder).digests)
    rows[update - 1] = rows[update - 1].model_copy(update=changes)
    return {"digests": rows}


def beside(one: Stored, trace: Trace, band: Band = FP32) -> dict[str, Difference]:
    return {d.tensor: d for d in differences(one, trace, band, ROWS)}


def column(run: Run, name: str, by: float, place: int = 1) -> dict[str, list[Any]]:
    """A figure that is another one in the iteration at ``place``."""
    values = list(run.record.health[name])
    values[place] = (values[place] or 0.0) + by
    return {name: values}


@pytest.mark.slow
def test_the_same_is_no_difference(run: Run) -> None:
    assert beside(stored(run), replayed(run)) == {}
    assert beside(stored(run), whole(run)) == {}
    assert other_class(stored(run), replayed(run)) == {}


def apart(run: Run, by: float) -> list[str]:
    """The losses of the second update, the third of them somewhere else."""
    losses = list(run.digests()[1].losses)
    losses[2] = (float.fromhex(losses[2]) + by).hex()
    return losses


@pytest.mark.parametrize(
    ("by", "uniform", "moved", "within"),
    [
        (1e-6, 0.5, False, True),
        (1e-3, 0.5, False, False),
        (0.05, 0.5, True, True),
        (0.5, 0.5, True, False),
        (0.5, 0.6, False, True),
        (2 * UNTAUGHT_LOSS, 0.6, False, False),
    ],
)
def test_losses(run: Run, by: float, uniform: float, moved: bool, within: bool) -> None:
    """How far they may be apart is what the replay's own figures say."""
    changes = {"losses": apart(run, by)} | ({"completions": "0" * 64} if moved else {})
    health = {"uniform_groups": [uniform, 0.5]}
    trace = replayed(run, **digests(run, 2, **changes), health=health, closest=NEAR)
    found = beside(stored(run, **health), trace)
    assert found["losses[2]"].gap == pytest.approx(by, rel=1e-6)
    assert found["losses[2]"].within is within
    assert set(found) == {"losses[2]"} | ({"sampled token ids"} if moved else set())


@pytest.mark.parametrize("share", [0.0, 0.7, 1.0, None])
def test_what_a_run_says_of_itself_loosens_nothing(run: Run, share: float | None) -> None:
    trace = replayed(run, **digests(run, 2, losses=apart(run, 0.5)))
    found = beside(stored(run, uniform_groups=[share, share]), trace)
    assert not found["losses[2]"].within and not found["health.uniform_groups"].within


@pytest.mark.parametrize(
    ("update", "closest", "band", "within"),
    [
        (1, NEAR, FP32, True),
        (1, FAR, FP32, False),
        (1, [], FP32, False),
        (1, [None, None], FP32, False),
        (1, [5e-5, 5e-5], FP32, False),
        (2, [5e-5, 5e-5], FP32, True),
        (2, FAR, FP32, False),
        (1, FAR, SOLVED, False),
        (2, FAR, SOLVED, True),
        (1, FAR, BF16, True),
    ],
)
def test_another_draw_needs_one_on_an_edge(
    run: Run, update: int, closest: list[float | None], band: Band, within: bool
) -> None:
    changed = digests(run, update, completions="0" * 64)
    found = beside(stored(run), replayed(run, **changed, closest=closest), band)
    assert found["sampled token ids"].within is within


def test_a_draw_moves_those_after_it(run: Run) -> None:
    rows = [
        row.model_copy(update={"completions": "0" * 64}) for row in whole_trace(run.folder).digests
    ]
    found = differences(stored(run), replayed(run, digests=rows, closest=[1e-6, 0.5]), FP32, ROWS)
    assert [(d.update, d.within) for d in found] == [(1, True), (2, True)]


@pytest.mark.parametrize("band", [FP32, BF16, SOLVED])
def test_prompts_may_never_differ(run: Run, band: Band) -> None:
    trace = replayed(run, **digests(run, 1, prompts="0" * 64))
    assert not beside(stored(run), trace, band)["prompt ids"].within


def test_the_same_completions_are_paid_the_same(run: Run) -> None:
    changed = digests(run, 2, rewards="0" * 64)
    assert not beside(stored(run), replayed(run, **changed))["rewards"].within
    learned = differences(stored(run), replayed(run, **changed), FP32, ROWS, learned=True)
    assert [d.within for d in learned] == [True]


@pytest.mark.parametrize("update", [1, 2])
def test_other_weights_round_something_otherwise(run: Run, update: int) -> None:
    """Weights that differ show in a loss or a figure; a digest alone was invented."""
    changed = digests(run, update, parameters="0" * 64)
    assert not beside(stored(run), replayed(run, **changed))["parameters"].within
    rounded = column(run, "entropy", 1e-7)
    assert beside(stored(run), replayed(run, **changed, health=rounded))["parameters"].within


@pytest.mark.parametrize(
    ("name", "by", "within"),
    [
        ("score", 0.01, False),
        ("bytes", 1.0, False),
        ("truncated", 0.125, False),
        ("entropy", 1e-5, True),
        ("entropy", 0.1, False),
        ("reference_kl", 0.1, False),
        ("grad_norm", 5.0, False),
    ],
)
def test_figures_of_the_same_tokens(run: Run, name: str, by: float, within: bool) -> None:
    found = beside(stored(run), replayed(run, health=column(run, name, by)))
    assert found[f"health.{name}"].within is within


@pytest.mark.parametrize(
    ("name", "by", "within"),
    [
        ("entropy", 0.1, True),
        ("entropy", 2.0, False),
        ("ratio_max", 0.25, True),
        ("grad_norm", 2e-3, False),
        ("score", 0.01, False),
    ],
)
def test_a_solved_step_rounds_more_than_what_is_known_before_it(
    run: Run, name: str, by: float, within: bool
) -> None:
    trace = replayed(run, health=column(run, name, by, place=0))
    assert beside(stored(run), trace, SOLVED)[f"health.{name}"].within is within
    assert not beside(stored(run), trace, FP32)[f"health.{name}"].within


@pytest.mark.parametrize(("by", "within"), [(0.02, True), (0.05, False)])
def test_the_loss_of_a_solved_step(run: Run, by: float, within: bool) -> None:
    losses = list(run.digests()[0].losses)
    losses[0] = (float.fromhex(losses[0]) + by).hex()
    trace = replayed(run, **digests(run, 1, losses=losses))
    assert beside(stored(run), trace, SOLVED)["losses[0]"].within is within
    assert not beside(stored(run), trace, FP32)["losses[0]"].within


@pytest.mark.parametrize(("share", "within"), [(0.2, True), (0.5, False)])
def test_scores_of_few_completions(run: Run, share: float, within: bool) -> None:
    moved = digests(run, 2, completions="0" * 64)
    trace = replayed(run, **moved, health=column(run, "score", share), closest=NEAR)
    assert beside(stored(run), trace)["health.score"].within is within


def test_another_end_is_a_difference(run: Run) -> None:
    status = run.record.status.model_copy(update={"state": "failed", "rule": "kl_cap", "at": 2})
    assert not beside(stored(run), replayed(run, status=status))["status"].within
    dropped = status.model_copy(update={"rule": "score_drop", "at": run.record.status.at})
    assert beside(stored(run), whole(run, status=dropped))["status"].within is (
        run.record.status.rule is None
    )


def later(run: Run) -> tuple[Stored, Trace]:
    """The run, and its whole replay, as if no iteration of theirs had been digested."""
    one, trace = stored(run), whole(run)
    return Stored(one.record, [], one.vector), trace.model_copy(update={"digests": []})


@pytest.mark.parametrize("ref", ["start/id", "end/id", "end/hard"])
def test_ends_have_a_band(run: Run, ref: str) -> None:
    trace = whole(run)
    found = beside(stored(run), trace.model_copy(update={"items": flipped(trace, ref, 1)}))
    (difference,) = found.values()
    assert difference.within and f"items of {ref}, 1 of" in difference.tensor
    items = flipped(trace, ref, 8)
    (difference,) = beside(stored(run), trace.model_copy(update={"items": items})).values()
    assert not difference.within


def flipped(trace: Trace, ref: str, count: int) -> dict[str, list[Any]]:
    """The items with the first ``count`` scores of a vector turned round."""
    vector = np.asarray(trace.items[ref]).copy()
    vector.flat[:count] = 1 - vector.flat[:count]
    return trace.items | {ref: vector.tolist()}


GREEDY = (np.arange(96) < 48).astype(np.uint8)[None]
"""Answers of a start model that is right on the first half of 96 items."""
DRAWS = np.tile(np.where(GREEDY, np.arange(96) % 2 == 0, np.arange(96) % 4 == 0), (4, 1))
DRAWS = DRAWS.astype(np.uint8)
"""(4, 96): it is right on half of these when sampled, and on a quarter of the others."""


def moved(vector: np.ndarray, count: int) -> np.ndarray:
    """As many right answers turned wrong among the last items as wrong ones right among the first:
    no mean changes."""
    other = vector.copy()
    for row in other:
        row[np.flatnonzero(row[48:] == 1)[:count] + 48] = 0
        row[np.flatnonzero(row[:48] == 0)[:count]] = 1
    assert other.sum() == vector.sum() and not np.array_equal(other, vector)
    return other


def start_of(run: Run, ref: str, vector: np.ndarray, band: Band) -> Difference:
    """How a stored vector of the start model differs from the replay's, both of 96 items."""
    answers = {"start/id_greedy": GREEDY, "start/train_greedy": GREEDY, "start/id": DRAWS}
    answers |= {"start/id_pass": np.tile(DRAWS, (8, 1))}
    trace = replayed(run)
    trace = trace.model_copy(
        update={"items": trace.items | {name: v.tolist() for name, v in answers.items()}}
    )
    known = answers | {ref: vector}
    one = stored(run)
    read = Stored(one.record, one.digests, lambda r, f: known[r] if r in known else run.items(r, f))
    (difference,) = beside(read, trace, band).values()
    assert difference.tensor.startswith(f"items of {ref}, ")
    return difference


@pytest.mark.parametrize("ref", ["start/id_greedy", "start/train_greedy"])
def test_items_that_change_between_known_and_new(run: Run, ref: str) -> None:
    """Their number is bounded, and not their mean alone."""
    vector = GREEDY.copy()
    vector[0, :20], vector[0, 60:80] = 0, 1
    assert vector.sum() == GREEDY.sum()
    assert not start_of(run, ref, vector, BF16).within
    few = GREEDY.copy()
    few[0, :3], few[0, 60:63] = 0, 1
    assert start_of(run, ref, few, BF16).within
    assert not start_of(run, ref, few, FP32).within


@pytest.mark.parametrize(("ref", "times"), [("start/id", 1), ("start/id_pass", 8)])
def test_right_answers_that_move_from_new_items_to_known_ones(
    run: Run, ref: str, times: int
) -> None:
    vector = np.tile(DRAWS, (times, 1))
    assert not start_of(run, ref, moved(vector, 8), BF16).within
    assert start_of(run, ref, moved(vector, 1), BF16).within
    assert not start_of(run, ref, moved(vector, 1), FP32).within


def test_a_whole_run_has_a_band(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the digested iterations an evaluation, and what was captured, keep to a band."""
    monkeypatch.setattr("crlbench.proof.likeness.DIGESTED_ITERATIONS", 0)
    one, trace = later(run)
    for by, within in ((0.1, True), (0.9, False)):
        curve = [
            p if not p.x else p.model_copy(update={"score": p.score + by}) for p in trace.curve
        ]
        items = trace.items | {p.items_ref: [float(p.score)] * p.n_items for p in curve[1:]}
        found = beside(one, trace.model_copy(update={"curve": curve, "items": items}))
        scores = [d.within for name, d in found.items() if name.startswith("items of curve")]
        assert scores == [within] * (len(curve) - 1)
        assert not found["captured (Λ)"].within


@pytest.mark.parametrize(("count", "within"), [(40, False), (2, True)])
def test_right_answers_that_move_to_new_items_on_the_later_curve(
    run: Run, monkeypatch: pytest.MonkeyPatch, count: int, within: bool
) -> None:
    """Every mean stays, and Λ_new rises."""
    monkeypatch.setattr("crlbench.proof.likeness.DIGESTED_ITERATIONS", 0)
    one, trace = later(run)
    places = np.arange(160)
    right = (places % 2 == 0).astype(np.uint8)
    answers = {p.items_ref: right for p in one.record.curve}
    answers |= {"start/id_greedy": (places < 80)[None].astype(np.uint8)}
    answers |= {"start/id": np.tile(right, (4, 1))}
    forged = right.copy()
    forged[np.flatnonzero(right[:80] == 1)[:count]] = 0
    forged[80 + np.flatnonzero(right[80:] == 0)[:count]] = 1
    assert forged.sum() == right.sum()
    known = answers | {p.items_ref: forged for p in one.record.curve[1:]}
    leaves = one.record.fingerprint.leaves | {"protocol_name": "CRL-2"}
    written = one.record.fingerprint.model_copy(update={"leaves": leaves})
    record = one.record.model_copy(update={"fingerprint": written})
    items = trace.items | {name: vector.tolist() for name, vector in answers.items()}
    read = Stored(record, [], lambda r, f: known[r] if r in known else run.items(r, f))
    found = beside(read, trace.model_copy(update={"items": items}))
    assert found["captured (Λ_new)"].within is within and "captured (Λ)" not in found
    assert all(d.within for name, d in found.items() if name != "captured (Λ_new)")


def test_an_evaluation_that_was_left_out(run: Run) -> None:
    one = stored(run)
    short = one.record.model_copy(update={"curve": one.record.curve[:-1]})
    found = beside(Stored(short, one.digests, one.vector), replayed(run))
    assert [d.within for d in found.values()] == [False]


def test_what_makes_a_class(run: Run) -> None:
    trace = replayed(run)
    other = trace.environment | {"cpu_capability": "another", "cores": 999, "os": "another"}
    assert set(other_class(stored(run), replayed(run, environment=other))) == {"cpu_capability"}
    assert set(other_class(stored(run), replayed(run, source="0" * 64))) == {"source"}


def test_a_run_that_was_continued_elsewhere_is_of_the_class_that_began_it(run: Run) -> None:
    trace = replayed(run)
    here = machine_class(trace.environment, trace.source)
    ended = run.record.environment | {"cpu": "another", BEGUN_ON: here}
    record = run.record.model_copy(update={"environment": ended})
    assert other_class(Stored(record, [], run.items), trace) == {}
