"""The ledger of a chain against torch's counter, and Λ_F of stored runs by an independent area."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crlbench.catalog.find import Catalog
from crlbench.contract.ledger import Passes
from crlbench.contract.records import RunRecord, Status
from crlbench.errors import UsageError
from crlbench.proof.bands import BANDS
from crlbench.proof.likeness import Stored, differences
from crlbench.proof.replay import Trace, cell_of, replay_cell
from crlbench.stages import chain as chains
from crlbench.train.module import PolicyOptimization
from crlbench.train.passes import Passes as PolicyPasses
from crlbench.train.supervised import SupervisedTuning
from crlbench.verdict.board import summarise_board
from crlbench.verdict.charged import BUDGET, find_charged
from crlbench.verdict.compare_axis import task_views
from crlbench.verdict.compare_read import read_entry
from crlbench.verdict.load import Runs, load_runs
from crlbench.verdict.run_measures import TaskItems
from tests.policy.test_flops import counter
from tests.stages.test_chain import audit, plan_in, rewritten, run

pytestmark = pytest.mark.slow

TOKENS = 28_000


@dataclass(frozen=True)
class Counted:
    """A run of a chain, and what torch counted in its stages."""

    out: Path
    record: RunRecord
    flops: dict[str, int]


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Counted:
    out, flops = tmp_path_factory.mktemp("counted"), Counter[str]()

    def watched(name: str, do: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*given: Any, **named: Any) -> Any:
            with counter() as count:
                left = do(*given, **named)
            flops[name] += count.get_total_flops()
            return left

        return wrapper

    with pytest.MonkeyPatch.context() as patch:
        for name, place, what in (
            ("sft", SupervisedTuning, "training_step"),
            ("pairs", chains, "collect"),
            ("rm", chains, "make_reward"),
            ("policy", PolicyOptimization, "training_step"),
        ):
            patch.setattr(place, what, watched(name, getattr(place, what)))
        # The fast plan runs less than it is charged: see docs/charges.md.
        settings = ("preference.flops", str(TOKENS)), ("hardware.plan", "plain")
        record = run(plan_in(out, "rlhf", *settings)[0])
    return Counted(out, record, dict(flops))


def test_charges_are_what_torch_counts_but_padding(counted: Counted) -> None:
    """Rows are padded to the longest of a batch, which the counter sees and nobody is charged."""
    record = counted.record
    assert record.ledger is not None
    charged = {stage.name: stage.charges["flops"] for stage in record.lineage or ()}
    charged["policy"] = record.ledger.total.flops
    assert {*charged} == {*counted.flops}
    for name, flops in charged.items():
        assert 1.0 <= counted.flops[name] / flops <= 1.15, name
    assert record.charges is not None and record.charges.flops == sum(charged.values())
    assert record.charges.labels == 160 * 8 and record.charges.demonstrations == 32


def test_the_ledger_follows_the_curve(counted: Counted) -> None:
    record = counted.record
    assert record.ledger is not None and record.ledger.end is None
    spent = record.ledger.spent
    assert [one.updates for one in spent] == [point.updates for point in record.curve]
    assert [one.generated_tokens for one in spent] == [point.tokens for point in record.curve]
    assert [one.labels for one in spent] == [0] * 4  # a reward model pays
    assert {*record.ledger.coefficients} == {"policy", "reference", "reward"}
    assert all(after.flops > before.flops for before, after in pairwise(spent))
    assert audit(counted.out) == []


def forged(record: RunRecord, path: str, factor: int) -> RunRecord:
    """The record with a number of it multiplied, sealed again."""
    data = record.model_dump(mode="json")
    *names, last = path.split("/")
    place = data
    for name in names:
        place = place[int(name) if isinstance(place, list) else name]
    assert place[last] != place[last] * factor
    place[last] *= factor
    return RunRecord.model_validate(data).sealed()


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("charges/flops", "charges"),
        ("lineage/0/charges/flops", "lineage.sft.charges"),
        ("lineage/1/ledger/points/0/models/policy/sampled/contexts", "lineage.pairs.charges"),
        ("lineage/1/ledger/points/0/models/policy/sampled/logits",
         "lineage.pairs.ledger.models.policy.sampled.tokens"),
        ("lineage/2/ledger/points/0/updates", "lineage.rm.ledger.updates"),
        ("lineage/2/ledger/coefficients/reward/token", "lineage.rm.charges"),
        ("ledger/coefficients/policy/token", "ledger.coefficients.policy"),
        ("ledger/points/1/updates", "ledger.points[1].updates"),
        ("ledger/points/2/generated_bytes", "ledger.points[2].generated_bytes"),
        ("ledger/points/3/models/policy/trained/logits", "ledger.trained"),
        ("ledger/points/1/models/reference/read/tokens",
         "ledger.points[2].models.reference.read.tokens"),
        ("ledger/points/3/models/policy/read/contexts", "charges"),
    ],
)  # fmt: skip
def test_a_forged_ledger_is_found(counted: Counted, path: str, field: str) -> None:
    (place,) = counted.out.rglob("record.json")
    with rewritten(place, forged(counted.record, path, 9)):
        assert field in audit(counted.out)


def test_a_ledger_that_was_taken_out_or_put_into_another_recipe_is_found(counted: Counted) -> None:
    (place,) = counted.out.rglob("record.json")
    with rewritten(place, counted.record.model_copy(update={"ledger": None}).sealed()):
        assert "charges" in audit(counted.out)
    with rewritten(place, counted.record.model_copy(update={"lineage": None}).sealed()):
        assert {"lineage", "ledger"} <= {*audit(counted.out)}


def test_a_product_of_before_the_ledger_leaves_a_sound_record_without_a_sum(
    counted: Counted,
) -> None:
    (place,) = counted.out.rglob("record.json")
    lineage = list(counted.record.lineage or ())
    lineage[0] = lineage[0].model_copy(update={"ledger": None})
    older = counted.record.model_copy(update={"lineage": tuple(lineage), "charges": None})
    assert "ledger" not in older.model_dump(mode="json")["lineage"][0]
    with rewritten(place, older.sealed()):
        assert audit(counted.out) == []


def test_a_replay_finds_stages_that_say_less_than_they_consumed(counted: Counted) -> None:
    """Contexts stand nowhere else in a record: whoever changes all of them is found by a replay."""
    record = counted.record
    stored = Stored(record, [], lambda ref, field: np.zeros(0))
    trace = Trace(
        status=record.status, environment=record.environment,
        source=record.crlbench.source_tree_sha256, digests=[], health={"iteration": []},
        curve=[], items={}, lineage=record.lineage or (),
    )  # fmt: skip

    def found(one: RunRecord) -> list[str]:
        beside = replace(stored, record=one)
        band, rows = BANDS[record.fingerprint.leaves["conditions.hardware.precision"]], 32
        return [d.tensor for d in differences(beside, trace, band, rows)]

    assert "lineage.pairs.ledger" not in found(record)
    path = "lineage/1/ledger/points/0/models/policy/sampled/contexts"
    assert "lineage.pairs.ledger" in found(forged(record, path, 2))


def area(spent: list[float], u: list[float], budget: float) -> float:
    """The mean of a path of straight lines, by a sum over many places."""
    places = (np.arange(200_000) + 0.5) * (budget / 200_000)
    return float(np.interp(places, spent, u).mean())


def test_lambda_over_charged_flops_is_the_area_of_the_stored_path(counted: Counted) -> None:
    record = counted.record
    whole = whole_run(counted)
    board = summarise_board(whole, replicates=50)
    score = board.entries[0].axes["efficiency"]
    assert score.charged and score.sign == board.signs["efficiency"] == "Λ_F"
    assert record.ledger is not None and record.lineage is not None
    upstream = sum(stage.charges["flops"] for stage in record.lineage)
    shown = record.lineage[0].charges["flops"]
    span = record.task.ceiling - record.task.floor
    head = (record.splits["id"].start - record.task.floor) / span
    u = [(point.score - record.task.floor) / span for point in record.curve]
    policy = record.ledger.coefficients["policy"]
    budget = TOKENS * (policy.token + policy.head)
    spent = [upstream + one.flops for one in record.ledger.spent]
    assert spent[-1] > budget > shown  # the budget ends within the path
    # The start until sft has ended; from there on its policy, which the curve begins with.
    learned = area([0, shown, shown + 1, *spent], [head, head, u[0], *u], budget) - head
    assert score.value == pytest.approx(learned / max(1 - head, 0.2), abs=1e-5)
    assert board.entries[0].lam.value != score.value  # Λ over completions stands beside it


def whole_run(counted: Counted) -> Runs:
    """The run as if it were whole: a shortened one is measured over what it consumed."""
    runs = load_runs(counted.out)
    status = counted.record.status.model_copy(update={"state": "completed"})
    one = replace(runs.runs[0], record=counted.record.model_copy(update={"status": status}))
    return replace(runs, runs=(one,))


def test_without_a_ledger_there_is_no_rank_and_a_reason(counted: Counted) -> None:
    runs = whole_run(counted)
    bare = runs.runs[0].record.model_copy(update={"ledger": None})
    board = summarise_board(replace(runs, runs=(replace(runs.runs[0], record=bare),)), 50)
    score = board.entries[0].axes["efficiency"]
    assert score.value is None and "has no whole ledger of charges" in str(score.reason)


@pytest.mark.parametrize("by", ["flops", "labels"])
def test_an_entry_is_laid_over_what_its_stages_were_charged(counted: Counted, by: Any) -> None:
    record, (plan,) = counted.record, counted.out.rglob("plan.json")
    loaded = read_entry(plan.parent, replicates=50)
    view = task_views(loaded, ("addition",), by)["addition"]
    sft, pairs, rm = (stage.charges.get(by, 0) for stage in record.lineage or ())
    assert record.ledger is not None
    spent = [sft + pairs + rm + getattr(one, by) for one in record.ledger.spent]
    span = record.task.ceiling - record.task.floor
    points = [(point.score - record.task.floor) / span for point in record.curve]
    start = (record.splits["id"].start - record.task.floor) / span
    (line,) = view.lines
    assert line.x == (0, sft, sft, *spent)
    assert line.u == pytest.approx((start, start, points[0], *points))
    # The start model until demonstrations were shown, then straight lines.
    area = np.trapezoid([start, start, points[0], *points], [0, sft, sft, *spent]) / spent[-1]
    assert view.E == pytest.approx(area) and view.L == pytest.approx(area - start)
    assert view.total == spent[-1] > 0
    if by == "labels":
        assert spent == [1280] * 4
    assert view.arrivals[0].restricted_mean <= spent[-1]


def test_a_record_without_a_ledger_has_no_such_axis(counted: Counted) -> None:
    (place,), (plan,) = counted.out.rglob("record.json"), counted.out.rglob("plan.json")
    bare = counted.record.model_copy(update={"ledger": None, "charges": None}).sealed()
    with rewritten(place, bare):
        loaded = read_entry(plan.parent, replicates=50)
        with pytest.raises(UsageError, match=r"--by flops: .*record.json has no ledger"):
            task_views(loaded, ("addition",), "flops")
        assert task_views(loaded, ("addition",), "bytes")["addition"].n == 1


def test_the_path_holds_its_value_or_falls_where_the_run_failed(counted: Counted) -> None:
    runs = whole_run(counted)
    record = runs.runs[0].record
    leaves = record.fingerprint.leaves | {BUDGET: 10**7}

    def value(**change: Any) -> float:
        fingerprint = record.fingerprint.model_copy(update={"leaves": leaves})
        changed = record.model_copy(update={"fingerprint": fingerprint, **change})
        found = find_charged(TaskItems([replace(runs.runs[0], record=changed)], {}))
        assert found is not None
        return float(found.lam[0])

    span = record.task.ceiling - record.task.floor
    head, last = (
        (score - record.task.floor) / span
        for score in (record.splits["id"].start, record.curve[-1].score)
    )
    # With a budget far beyond what was consumed, the last value is all that counts.
    room = max(1 - head, 0.2)
    assert value() == pytest.approx((last - head) / room, abs=0.02)
    failed = Status(state="failed", rule="kl_cap", at=3)
    assert value(status=failed) == pytest.approx((min(head, 0.0) - head) / room, abs=0.02)


TRUST = "rlvr+policy.recipe=trpo+policy.recipe.step=trust-region:fisher_rows=8,cg_iterations=4"
"""PPO's place taken by steps of which the Fisher matrix has fewer rows than there are."""


@pytest.fixture(scope="module")
def natural(tmp_path_factory: pytest.TempPathFactory) -> Counted:
    """A chain that ends in a trust region; torch's count leaves out the KL that only watches."""
    out, flops = tmp_path_factory.mktemp("natural"), Counter[str]()

    def watched(sign: int, do: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*given: Any) -> Any:
            with counter() as count:
                left = do(*given)
            flops["policy"] += sign * count.get_total_flops()
            return left

        return wrapper

    with pytest.MonkeyPatch.context() as patch:
        for place, what, sign in (
            (PolicyOptimization, "training_step", 1),
            (PolicyPasses, "of_reference", -1),
        ):
            patch.setattr(place, what, watched(sign, getattr(place, what)))
        record = run(plan_in(out, TRUST, ("hardware.plan", "plain"))[0])
    return Counted(out, record, dict(flops))


def test_steps_in_a_trust_region_are_charged_as_torch_counts_them(natural: Counted) -> None:
    record = natural.record
    assert record.ledger is not None and record.charges is not None
    flops = record.ledger.total.flops
    assert 1.0 <= natural.flops["policy"] / flops <= 1.15
    work = record.ledger.points[-1].models["policy"]
    assert record.ledger.coefficients.keys() == {"policy"}  # nothing asks for the reference
    assert work.trained == Passes() and work.products.logits > 0
    # Every completion is traced for the gradient, 8 of 32 once more for the Fisher matrix.
    fisher = work.traced.logits - record.cost["trained_tokens"]
    assert 0 < fisher < record.cost["trained_tokens"] / 2
    assert work.products.logits == 4 * fisher
    # Before a step one pass reads all, the line search two at least: before and after a try.
    assert work.read.logits >= 3 * record.cost["trained_tokens"]
    assert [point.updates for point in record.ledger.points] == [0, 1, 2, 3]
    alone = work.model_copy(update={"products": Passes(), "traced": Passes()})
    model = record.ledger.coefficients["policy"]
    assert work.flops(model) > 2 * alone.flops(model)  # what a step costs beside its passes
    assert record.charges.flops == flops + sum(s.charges["flops"] for s in record.lineage or ())
    assert audit(natural.out) == []


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("ledger/points/3/models/policy/products/logits", "ledger.products"),
        ("ledger/points/3/models/policy/products/contexts", "charges"),
        ("ledger/points/3/models/policy/traced/logits", "ledger.traced"),
        ("ledger/points/2/models/policy/traced/tokens",
         "ledger.points[3].models.policy.traced.tokens"),
        ("algo/config/stages/1/recipe/step/cg_iterations", "ledger.products"),
        ("algo/config/stages/1/recipe/step/part", "ledger.traced"),
    ],
)  # fmt: skip
def test_a_forged_trust_region_is_found(natural: Counted, path: str, field: str) -> None:
    (place,) = natural.out.rglob("record.json")
    factor = 0 if path.startswith("algo") else 9
    with rewritten(place, forged(natural.record, path, factor)):
        assert field in audit(natural.out)


def test_a_replay_makes_the_ledger_of_a_trust_region_again(
    natural: Counted, tmp_path: Path
) -> None:
    cell = cell_of(natural.record, "tiny-llama", ("addition",), Catalog(), tmp_path, 2)
    trace = replay_cell(
        cell.model_copy(update={"confined": False}), lambda event: None, lambda: False
    )
    assert isinstance(trace, Trace) and natural.record.ledger is not None
    assert len(trace.spent) == 3 and trace.spent == natural.record.ledger.points[:3]
