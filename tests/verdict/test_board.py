"""The verdict on a board: what ranks, what is said instead, and what an entry can not move."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from crlbench.errors import NotComparable, UsageError, ValidationError
from crlbench.stats.intervals import Replicates
from crlbench.stats.resampling import wider_interval
from crlbench.verdict.board import AXES, Board, paired_axes, plain, summarise_board
from crlbench.verdict.load import Runs, load_runs
from crlbench.verdict.runs import Run
from tests.support.clock import cpu_seconds
from tests.support.simulate import Plan, replace_items, rewrite, write_board, write_run

SMALL = {"items": 16, "track_version": 1, "placebo": 3}
MODELS = ("tiny-a", "tiny-b", "tiny-c")


def board_of(root: Path, *plans: Plan, count: int = 200) -> Board:
    return summarise_board(load_runs(write_board(root, *plans)), replicates=count)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A strong, a weak and a failing model, five seeds each and three of the placebo."""
    plans = [
        Plan(model=MODELS[0], slope=2.0, **SMALL),
        Plan(model=MODELS[1], slope=0.3, **SMALL),
        Plan(model=MODELS[2], slope=1.6, failed=(("addition", 1, 10),), **SMALL),
    ]
    return write_board(tmp_path_factory.mktemp("three"), *plans)


@pytest.fixture(scope="module")
def ranked(three: Path) -> Board:
    return summarise_board(load_runs(three), replicates=1000)


def test_every_axis_has_a_score_or_a_reason(ranked: Board):
    assert [entry.name for entry in ranked.entries] == [f"{m}/ppo" for m in MODELS]
    for entry in ranked.entries:
        assert list(entry.axes) == list(AXES)
        for score in entry.axes.values():
            assert (score.value is None) == (score.reason is not None)
            if score.value is not None:
                assert score.interval.low < score.interval.high
                assert (score.wider is None) == (len(score.by_task) < 4)
            if score.wider is not None:
                assert score.wider.low <= score.interval.low
                assert score.wider.high >= score.interval.high


def test_a_vector_that_was_changed_stops_the_board(three: Path):
    shutil.copytree(three, broken := three.parent / "broken")
    replace_items(next(broken.rglob("seed-02")), curve__0=np.ones(16, dtype=np.uint8))
    with pytest.raises(ValidationError, match="One of the two was changed"):
        summarise_board(load_runs(broken), replicates=200)


def test_ranks_and_tiers(ranked: Board):
    rankings = ranked.rankings["ppo"]
    lam = {s.model: s for s in rankings["efficiency"].ranking.standings}
    assert lam["tiny-a/ppo"].tier == 1 and lam["tiny-b/ppo"].tier > 1
    assert lam["tiny-b/ppo"].ranks[1] == 3
    assert "tiny-a/ppo" in lam["tiny-b/ppo"].better
    survival = rankings["generalization"].survival
    assert set(survival) == {f"{m}/ppo" for m in MODELS}
    assert all(0 <= share <= 1 for share in survival.values())
    assert rankings["efficiency"].survival is None
    chances = ranked.improvement["ppo"]
    assert chances.share[0][1] > 0.9 and chances.share[0][1] + chances.share[1][0] == 1


def test_chances_of_few_seeds_are_not_given(tmp_path: Path):
    board = board_of(tmp_path, Plan(**SMALL), Plan(model="other", **(SMALL | {"seeds": 2})))
    share = board.improvement["ppo"].share
    assert share[0][1] is None and share[1][0] is None and share[0][0] == share[1][1] == 0.5


def test_a_model_that_does_not_learn_has_no_stability(tmp_path: Path):
    board = board_of(tmp_path, Plan(slope=0.0, **SMALL), Plan(model="other", **SMALL))
    flat = board.entry("tiny-llama/ppo")
    assert flat.axes["stability"].value is None
    assert "of 4 tasks, half are needed" in flat.axes["stability"].reason
    ranking = board.rankings["ppo"]["stability"].ranking
    assert "tiny-llama/ppo" in ranking.unrated and ranking.standings == ()
    assert "one model has a headline estimate" in ranking.reason


@pytest.mark.parametrize(
    "kept",
    [
        (1,),
        (0, 2),
        *(pytest.param(kept, marks=pytest.mark.slow) for kept in ((0,), (2,), (0, 1), (1, 2))),
    ],
)
def test_an_entry_moves_no_other_entry(three: Path, ranked: Board, kept: tuple[int, ...]):
    runs = load_runs(three)
    names = [MODELS[i] for i in kept]
    some = Runs(runs.folder, tuple(r for r in runs if r.model in names), runs.plans)
    found = summarise_board(some, replicates=1000)
    assert [entry.model for entry in found.entries] == names
    for entry in found.entries:
        together = ranked.entry(entry.name)
        assert (
            dataclasses.replace(found, entries=(entry,)).plain()["entries"]
            == (dataclasses.replace(ranked, entries=(together,)).plain()["entries"])
        )


def test_the_order_of_runs_changes_nothing(three: Path, ranked: Board):
    runs = load_runs(three)
    again = summarise_board(Runs(runs.folder, runs.runs[::-1], runs.plans), replicates=1000)
    assert again.to_json() == ranked.to_json()


def test_json_is_strict_and_holds_no_evidence(ranked: Board):
    data = json.loads(ranked.to_json())
    assert "NaN" not in ranked.to_json()
    entry = data["entries"][0]
    assert "evidence" not in entry and "drawn" not in entry["axes"]["efficiency"]
    assert "curves" not in entry["efficiency"]["tasks"]["addition"]
    assert len(entry["generalization"]["model"]["matrix"]) == 4
    assert data["rankings"]["ppo"]["efficiency"]["ranking"]["alpha"] == data["alpha"]


def test_the_summary_and_the_board_say_the_same(three: Path, ranked: Board):
    data = ranked.summary()
    real = [entry for entry in data["entries"] if entry["arm"] == "real"]
    for old, new in zip(real, ranked.entries, strict=True):
        score = new.axes["efficiency"]
        assert (old["lam"]["value"], old["lam"]["interval"]) == (score.value, plain(score.interval))
        assert old["standing"] == new.standing == "provisional"
        assert [t["E"] for t in old["tasks"]] == [t.E for t in new.efficiency.tasks.values()]


def test_one_entry_has_no_rank(tmp_path: Path):
    board = board_of(tmp_path, Plan(**SMALL))
    for axis in AXES:
        ranking = board.rankings["ppo"][axis].ranking
        assert ranking.standings == () and "a rank needs two" in ranking.reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"track_version": 0}, "not frozen yet"), ({"division": "open"}, "open division")],
)
def test_boards_on_which_nothing_ranks(tmp_path: Path, changes: dict, reason: str):
    plans = [Plan(model=m, **(SMALL | changes)) for m in MODELS[:2]]
    board = board_of(tmp_path, *plans)
    assert reason in board.unranked
    assert reason in board.rankings["ppo"]["efficiency"].ranking.reason
    assert all(entry.axes["efficiency"].interval is not None for entry in board.entries)


def test_previews_take_no_part(tmp_path: Path):
    plans = [Plan(model=m, **SMALL) for m in MODELS[:2]]
    board = board_of(tmp_path, *plans, Plan(model=MODELS[2], seeds=3, **SMALL))
    assert board.entry("tiny-c/ppo").standing == "preview"
    for axis in AXES:
        found = board.rankings["ppo"][axis]
        assert found.left_out == ("tiny-c/ppo",)
        assert {s.model for s in found.ranking.standings} == {"tiny-a/ppo", "tiny-b/ppo"}


def test_five_and_ten_seeds_share_a_board(tmp_path: Path):
    board = board_of(tmp_path, Plan(model="a", seeds=10, **SMALL), Plan(model="b", **SMALL))
    assert [e.standing for e in board.entries] == ["ranked", "provisional"]
    assert len(board.rankings["ppo"]["efficiency"].ranking.standings) == 2


def test_one_seed_has_numbers_and_no_interval(tmp_path: Path):
    (entry,) = board_of(tmp_path, Plan(seeds=1, **SMALL)).entries
    score = entry.axes["efficiency"]
    assert score.value is not None and score.interval is None and score.wider is None
    assert score.silence == "1 seed: how much seeds differ is not known."
    assert entry.axes["stability"].value is None
    assert entry.efficiency.lam_profile.low is None
    assert entry.standing == "preview"


def test_one_task_alone(tmp_path: Path):
    plan = Plan(tasks=("addition",), board=("addition",), **SMALL)
    (entry,) = board_of(tmp_path, plan).entries
    assert entry.axes["efficiency"].interval is not None
    assert entry.axes["efficiency"].wider is None
    assert entry.axes["generalization"].value is None
    assert "not scored at both ends on transfer" in entry.axes["generalization"].reason


def test_a_partial_board_says_that_it_shows_nothing(tmp_path: Path):
    board = board_of(tmp_path, Plan(seeds=1, partial=True, division="open", items=16))
    (entry,) = board.entries
    assert entry.standing == "partial" and not entry.ranks
    assert entry.axes["efficiency"].value is not None


def test_bad_input_is_refused_with_a_reason(tmp_path: Path):
    board = write_board(tmp_path, Plan(seeds=2, tasks=("addition",), **SMALL))
    with pytest.raises(ValidationError, match="no runs, so nothing can be said"):
        summarise_board(Runs(board, ()))
    other = Plan(model="other", seeds=1, tasks=("addition",), **SMALL | {"items": 8})
    write_run(board / "other@0" / "ppo", other)
    with pytest.raises(NotComparable, match=r"evaluation\.curve_items"):
        summarise_board(load_runs(board))
    shutil.rmtree(board / "other@0")
    cell = next(board.rglob("real/seed-01"))
    record = json.loads((cell / "record.json").read_text())
    (cell / "record.json").write_text(json.dumps(record | {"schema_version": 2}))
    with pytest.raises(ValidationError, match=r"schema_version: 2, this version"):
        load_runs(board)
    (cell / "record.json").write_text(json.dumps(record))
    size = len(np.load(cell / "items.npz")["curve/0"])
    replace_items(cell, **{"curve__512": np.full(size, np.nan, dtype=np.float32)})
    with pytest.raises(ValidationError, match="scores must be between 0 and 1"):
        summarise_board(load_runs(board))


def test_only_a_placebo_is_no_entry(tmp_path: Path):
    board = board_of(tmp_path, Plan(arm="placebo", seeds=3, items=16))
    assert board.entries == () and board.placebo_only == ("tiny-llama/ppo",)
    assert json.loads(board.to_json())["rankings"] == {}


def test_unknown_entries_are_named(ranked: Board):
    with pytest.raises(UsageError, match="unknown entry 'tiny-z/ppo'. Did you mean tiny-"):
        ranked.entry("tiny-z/ppo")


def test_the_placebo_stands_beside_its_entry(tmp_path: Path):
    folder = write_board(tmp_path, Plan(**SMALL))
    (entry,) = summarise_board(load_runs(folder), replicates=200).entries
    found = entry.placebo
    assert entry.standing == "provisional"
    assert found.n == 3 and found.elicitation is False and found.failed == ()
    assert found.net.value == pytest.approx(entry.axes["efficiency"].value - found.lam.value)
    assert found.net.interval.low > 0
    gone = next(folder.rglob("addition/placebo/seed-01"))
    shutil.rmtree(gone)
    (entry,) = summarise_board(load_runs(folder), replicates=200).entries
    assert entry.placebo.missing == ("addition seed-01",)
    assert entry.placebo.n == 2 and entry.standing == "preview"
    (why,) = entry.why
    assert "A rank needs 3 seeds of the placebo arm (1 of 12 runs missing), which" in why


def test_losing_score_is_no_failure_of_a_placebo(tmp_path: Path):
    folder = write_board(tmp_path, Plan(**SMALL))
    cell = next(folder.rglob("addition/placebo/seed-01"))
    rewrite(cell, status={"state": "failed", "rule": "score_drop", "at": 40})
    (entry,) = summarise_board(load_runs(folder), replicates=200).entries
    assert entry.placebo.failed == ()
    rewrite(cell, status={"state": "failed", "rule": "kl_cap", "at": 40})
    (entry,) = summarise_board(load_runs(folder), replicates=200).entries
    assert entry.placebo.failed == ("addition seed-01: kl_cap at iteration 40",)


def test_the_interval_of_a_pair_over_other_tasks_is_that_of_the_plain_path(ranked: Board):
    """From the differences of every replicate, resampled anew."""
    a, b = (ranked.entries[i].evidence for i in (0, 1))
    pairs = paired_axes(*ranked.entries[:2])
    compared = 0
    for axis, pair in pairs.items():
        differences = []
        for task in pair.tasks:
            x, y = (e.replicates(axis, task, pair.seeds[task]) for e in (a, b))
            fields = ("values", "location", "drawn", "seeds", "items")
            bounds = (-1.0, 1.0) if axis == "stability" else None
            parts = (getattr(y, f) - getattr(x, f) for f in fields)
            differences.append(Replicates(*parts, bounds))
        plain = wider_interval(differences, b.count, b.seed)
        if plain is not None and pair.effect.interval is not None:
            plain = plain.union(pair.effect.interval)
        assert pair.wider == plain
        compared += plain is not None
    assert compared


def test_pairs_on_every_axis(ranked: Board):
    weak, strong = ranked.entry("tiny-b/ppo"), ranked.entry("tiny-a/ppo")
    pairs = paired_axes(weak, strong)
    lam = pairs["efficiency"]
    assert lam.effect.verdict == "better" and lam.tasks == weak.task_names
    gap = strong.axes["efficiency"].value - weak.axes["efficiency"].value
    assert lam.effect.value == pytest.approx(gap)
    assert lam.wider.low <= lam.effect.interval.low
    assert set(lam.seeds.values()) == {5} and lam.left_out == ()
    stab = pairs["stability"]
    both = {*weak.stability.rated} & {*strong.stability.rated}
    rated = [task for task in weak.task_names if task in both]
    assert stab.tasks == tuple(rated)
    mirrored = paired_axes(strong, weak)["efficiency"].effect
    assert mirrored.value == pytest.approx(-lam.effect.value) and mirrored.verdict == "worse"
    one = paired_axes(weak, strong, tasks=["addition"])["efficiency"]
    assert one.tasks == ("addition",) and one.effect.value == one.by_task["addition"].value


def test_an_entry_is_equivalent_to_itself(ranked: Board):
    entry = ranked.entry("tiny-a/ppo")
    for pair in paired_axes(entry, entry).values():
        assert pair.effect.value == 0 and pair.effect.verdict == "equivalent"


def test_pairs_use_the_common_prefix_of_seeds(tmp_path: Path):
    long, short = Plan(model="a", seeds=10, **SMALL), Plan(model="b", **SMALL)
    board = board_of(tmp_path, long, short)
    a, b = board.entries
    pair = paired_axes(a, b)["efficiency"]
    assert set(pair.seeds.values()) == {5} and pair.effect.n == 5
    first = [a.evidence.tasks[t].lam[:5] for t in pair.tasks]
    own = np.mean([np.sort(values)[1:4].mean() for values in first])
    assert pair.effect.value == pytest.approx(b.axes["efficiency"].value - own)


def test_entries_without_a_common_task(tmp_path: Path):
    board = board_of(
        tmp_path,
        Plan(model="a", tasks=("addition",), **SMALL),
        Plan(model="b", tasks=("counting",), **SMALL),
    )
    for pair in paired_axes(*board.entries).values():
        assert pair.effect is None and pair.reason == "The two have no task in common."


def test_two_names_of_one_model_stand_in_one_tier(tmp_path: Path):
    """A/A: the same learner with other seeds."""
    plans = [Plan(model=f"twin-{i}", slope=1.3, **SMALL) for i in (1, 2)]
    board = board_of(tmp_path, *plans, count=1000)
    for found in board.rankings["ppo"].values():
        assert {s.tier for s in found.ranking.standings} == {1}
        assert {s.ranks for s in found.ranking.standings} == {(1, 2)}


def renamed(run: Run, name: str) -> Run:
    subject = run.record.subject.model_copy(update={"slug": name})
    made = Run(run.record.model_copy(update={"subject": subject}), run.folder)
    # The limit is for runs that are read and checked already.
    made.curve_items()
    for split in run.record.splits:
        for end in (False, True):
            made.split_items(split, end=end)
    return made


@pytest.mark.slow
def test_a_board_of_thirty_models_takes_seconds(tmp_path: Path):
    """30 models x 6 tasks x 10 seeds and 3 placebo seeds, 10,000 replicates, the items of mini."""
    tasks = ("addition", "counting", "key-value", "list-ops", "sorting", "maze")
    plans = [
        Plan(
            model=f"m{i}",
            slope=0.4 + 0.3 * i,
            seeds=10,
            tasks=tasks,
            board=tasks,
            **SMALL | {"items": 256},
        )
        for i in range(3)
    ]
    runs = load_runs(write_board(tmp_path, *plans))
    many = [renamed(run, f"{run.record.subject.slug}-{k}") for k in range(10) for run in runs]
    loaded = Runs(runs.folder, tuple(sorted(many, key=lambda run: run.order)), runs.plans)
    assert len(loaded) == 2340
    started = cpu_seconds()
    board = summarise_board(loaded)
    took = cpu_seconds() - started
    assert len(board.entries) == 30
    assert all(len(r.ranking.standings) == 30 for r in board.rankings["ppo"].values())
    assert took < 20.0, f"{took:.2f} s"
