"""What a replay costs is estimated before it starts, and refused above a limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from crlbench.catalog.find import Catalog
from crlbench.contract.conditions import stated_conditions
from crlbench.contract.records import RunRecord
from crlbench.errors import EnvironmentUnfit
from crlbench.proof.effort import (
    ETERNITY,
    MAX_ROWS,
    Extent,
    out_of_reach,
    replay_seconds,
    require_within,
)
from crlbench.verdict.load import load_runs
from tests.contribute.honest import crlbench

RESULTS = Path(__file__).parents[2] / "leaderboard/results"
TINY = RESULTS / "mini-543da47d0c99/tiny-llama-0.3m@24af9561/ppo"


@pytest.fixture(scope="module")
def record() -> RunRecord:
    return load_runs(TINY, files="used").runs[0].record


def under(record: RunRecord, **changes: int) -> RunRecord:
    leaves = {f"conditions.{name.replace('__', '.')}": value for name, value in changes.items()}
    fingerprint = record.fingerprint.model_copy(
        update={"leaves": record.fingerprint.leaves | leaves}
    )
    assert stated_conditions(fingerprint.leaves)
    return record.model_copy(update={"fingerprint": fingerprint})


def seconds(record: RunRecord, updates: int | None = 3) -> float:
    return replay_seconds(record, record.subject.slug, updates, ())


def test_it_follows_the_conditions(record: RunRecord) -> None:
    assert 3 < seconds(record) < 60
    assert seconds(record, 1) < seconds(record) < seconds(record, None)
    assert seconds(record, 10**6) <= seconds(record, None)
    for more in (
        {"budget__prompts": 3200}, {"budget__completions": 800}, {"optimization__epochs": 1000},
        {"evaluation__curve_items": 25_600}, {"optimization__minibatches": 3200,
                                             "budget__prompts": 3200},
    ):
        assert seconds(under(record, **more)) > 5 * seconds(record), more
    assert seconds(under(record, optimization__epochs=10**400)) == ETERNITY


@pytest.mark.parametrize(
    ("changes", "updates"),
    [
        ({}, 3),  # an evaluation after each iteration
        ({"budget__iterations_per_point": 4}, 4),
        ({"budget__iterations_per_point": 2, "evaluation__curve_every": 5}, 10),
        ({"budget__grid": 2}, 2),
        ({"budget__grid": 1, "budget__iterations_per_point": 2}, 2),
    ],
)
def test_a_replay_reaches_the_first_evaluation_after_the_start(
    record: RunRecord, changes: dict[str, int], updates: int
) -> None:
    assert Extent().of(under(record, **changes)) == updates
    assert Extent(1).of(under(record, **changes)) == 1
    assert Extent(is_whole=True).of(under(record, **changes)) is None


def test_a_mode_arm_asks_its_start_for_the_training_prompts(record: RunRecord) -> None:
    """Whatever number of them its record states."""
    mode = record.model_copy(update={"arm": "mode"})
    prompts = Catalog(()).task_card(record.task.name).splits["train"].count
    more = under(record, evaluation__curve_items=256 + prompts // 4)  # at four evaluations
    assert seconds(mode) - seconds(record) == pytest.approx(seconds(more) - seconds(record))
    split = record.splits["id_greedy"].model_copy(update={"n": 10 * prompts})
    stated = mode.model_copy(update={"splits": record.splits | {"train_greedy": split}})
    asked = seconds(mode) - seconds(record)
    assert seconds(stated) - seconds(record) == pytest.approx(10 * asked)


def test_a_larger_model_takes_longer(record: RunRecord) -> None:
    assert replay_seconds(record, "llama-3.1-8b-instruct-nf4", 3, ()) > 100 * seconds(record)


def test_a_checkpoint_of_a_design_is_as_large_as_its_design(record: RunRecord) -> None:
    named = replay_seconds(record, "tiny2-llama", 3, ())
    assert replay_seconds(record, "tiny2-llama@i0o0", 3, ()) == named
    assert replay_seconds(record, f"org/name@{'0' * 40}", 3, ()) > named


def test_what_nobody_can_replay(record: RunRecord) -> None:
    catalog = Catalog(())
    assert out_of_reach([record] * 8, catalog) is None
    rows = under(record, budget__prompts=MAX_ROWS // 8)
    assert out_of_reach([rows], catalog) is None
    assert "65,544 completions" in out_of_reach(
        [under(record, budget__prompts=MAX_ROWS // 8 + 1, optimization__minibatches=1)], catalog
    )
    assert "on one core" in out_of_reach([under(record, optimization__epochs=10**9)], catalog)
    assert "conditions are none" in out_of_reach([under(record, budget__prompts=0)], catalog)


@pytest.mark.slow
def test_a_replay_above_the_limit_is_refused_with_what_allows_it() -> None:
    require_within(3600, 60, "m/ppo")
    with pytest.raises(EnvironmentUnfit, match=r"m/ppo: a replay takes about 2.0 h .* --max-minu"):
        require_within(7200, 60, "m/ppo")
    done = crlbench("verify", TINY, "--seed-index", 0, "--max-minutes", 0.01)
    assert done.returncode == 6
    assert "a replay takes about" in done.stderr and "--max-minutes 2 allows it" in done.stderr
    assert "recomputed: 52 runs" in done.stdout and "replayed" not in done.stdout


@pytest.mark.parametrize("text", ["0", "-1", "x", "inf", "nan"])
def test_a_limit_is_a_number(text: str) -> None:
    done = crlbench("verify", TINY, f"--max-minutes={text}")
    assert done.returncode == 2 and f"--max-minutes {text}: a number above 0" in done.stderr
