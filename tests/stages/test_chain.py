"""Chains from their first stage to the record: what is shared, stored, continued, and proven."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crlbench.algo import recipes
from crlbench.algo.chain import Chain
from crlbench.algo.recipe import from_config, to_config
from crlbench.catalog.find import Catalog
from crlbench.contract.records import Cell, RunRecord
from crlbench.errors import Interrupted, NotComparable, ValidationError
from crlbench.proof import checkout
from crlbench.proof.audit import audit_run
from crlbench.proof.bands import BANDS
from crlbench.proof.facts import facts_of
from crlbench.proof.likeness import Stored, differences
from crlbench.proof.replay import Trace, cell_of, replay_cell
from crlbench.run.board import Request, load_track, make_board
from crlbench.run.execute import load
from crlbench.run.plan import Contender, Declaration, NamedRecipe
from crlbench.stages import cell as cells
from crlbench.stages import chain as chains
from crlbench.stages.artefacts import Made
from crlbench.stages.chain import read_pairs
from crlbench.stages.payers import pair_by
from crlbench.stages.training import CHECKPOINT
from crlbench.suite.labels import Ask, Gold, Verdict
from crlbench.train.charging import Meter
from crlbench.verdict.compare import compare
from crlbench.verdict.compare_read import Loaded, read_entry
from crlbench.verdict.load import load_runs

SMALL = {
    "budget.prompts": "8",
    "budget.completions": "4",
    "optimization.minibatches": "1",
    "evaluation.retain": "[]",
    "preference.demos": "32",
    "preference.prompts": "160",
    "preference.labels": "1280",
}


@cache
def plan_in(out: Path, recipe: str = "rlhf", *settings: tuple[str, str]) -> tuple[Cell, ...]:
    """The cells of one seed of addition, real and placebo, on a small board."""
    catalog = Catalog()
    request = Request(SMALL | dict(settings), ("addition",), smoke=True)
    board, tasks, _ = make_board(catalog, load_track(catalog, "preference"), request)
    card = catalog.load_model("tiny-llama")
    declaration = Declaration(
        board,
        Contender("tiny-llama", card.slug, card.revision[:8], card.digest),
        NamedRecipe(recipe, to_config(recipes.load(recipe))),
        tasks,
        ("real", "placebo"),
        1,
        out,
    )
    plan = declaration.plan()
    plan.write()
    return plan.cells


def run(cell: Cell, should_stop: Callable[[], bool] = lambda: False) -> RunRecord:
    return cells.run_cell(cell.model_copy(update={"loggers": ()}), lambda event: None, should_stop)


@dataclass(frozen=True)
class Ran:
    """What a chain left behind."""

    out: Path
    real: RunRecord
    placebo: RunRecord
    store: Path

    def stage(self, name: str, arm: str = "real") -> Any:
        record = self.real if arm == "real" else self.placebo
        return next(stage for stage in record.lineage or () if stage.name == name)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    out = tmp_path_factory.mktemp("ran")
    real, placebo = plan_in(out)
    assert real.artefacts is not None and real.artefacts == placebo.artefacts
    return Ran(out, run(real), run(placebo), Path(real.artefacts))


def test_a_chain_records_its_stages_in_order(ran: Ran) -> None:
    assert [stage.name for stage in ran.real.lineage or ()] == ["sft", "pairs", "rm"]
    assert [stage.shared for stage in ran.real.lineage or ()] == [True, True, False]
    assert ran.stage("sft").charges["demonstrations"] == 32
    assert ran.stage("pairs").charges["labels"] == 160 * 8
    assert ran.stage("pairs").inputs == {"policy": ran.stage("sft").sha256}
    assert ran.stage("rm").inputs == {
        "from": ran.stage("sft").sha256, "data": ran.stage("pairs").sha256,
    }  # fmt: skip
    assert ran.real.status.state == "partial"
    # The last stage begins from what was shown, and is paid by a model: no share of completions.
    assert ran.real.health["score"] != ran.real.health["audit"]
    assert all(0 < float(score or 0) < 1 for score in ran.real.health["reward"])


def test_arms_share_what_does_not_read_labels(ran: Ran) -> None:
    assert ran.stage("sft") == ran.stage("sft", "placebo")
    kinds = sorted(path.name.partition("-")[0] for path in ran.store.iterdir())
    assert kinds == ["collect", "collect", "reward", "reward", "supervised"]
    assert ran.stage("pairs").key != ran.stage("pairs", "placebo").key


def test_the_placebo_of_a_chain_has_as_many_pairs_and_labels_that_say_nothing(ran: Ran) -> None:
    stages = [ran.stage("pairs", arm) for arm in ("real", "placebo")]
    assert stages[0].facts["pairs"] == stages[1].facts["pairs"]
    assert stages[0].charges == stages[1].charges
    names = [f"collect-{stage.key[:12]}" for stage in stages]
    files = [read_pairs(product(ran.store / name)) for name in names]
    assert [pair["meta"]["uids"] for pair in files[0]] == [p["meta"]["uids"] for p in files[1]]
    rows = {row["id"]: row["answer"] for row in Catalog().load_task("addition").rows("train")}
    right = [
        [rows[pair["meta"]["uids"][0].rpartition("/")[2]] == pair["chosen"] for pair in pairs]
        for pairs in files
    ]
    assert all(right[0]) and not all(right[1])


def product(folder: Path) -> Any:
    return type("Product", (), {"folder": folder})


def test_a_sound_chain_is_proven_and_a_changed_one_is_not(ran: Ran) -> None:
    (path,) = ran.out.rglob("real/seed-00/record.json")
    assert audit(ran.out) == []
    for change, fault in (
        ({"key": "0" * 64}, "lineage.pairs.key"),
        ({"charges": {"labels": 1}}, "lineage.pairs.charges.labels"),
        ({"inputs": {"policy": "0" * 64}}, "lineage.pairs.inputs"),
        ({"name": "pears"}, "lineage"),
    ):
        lineage = tuple(
            stage.model_copy(update=change) if stage.name == "pairs" else stage
            for stage in ran.real.lineage or ()
        )
        with rewritten(path, ran.real.model_copy(update={"lineage": lineage}).sealed()):
            assert fault in audit(ran.out)
    without = ran.real.model_copy(update={"lineage": None}).sealed()
    with rewritten(path, without):
        assert audit(ran.out) == ["ledger", "lineage"]


def audit(out: Path) -> list[str]:
    """The fields in which the real run disagrees with itself."""
    runs = [one for one in load_runs(out, files="all") if one.record.arm == "real"]
    return sorted({finding.field for one in runs for finding in audit_run(one)})


@pytest.mark.parametrize(
    ("stage", "name", "value"),
    [
        ("sft", "score", 50.0),
        ("sft", "score", "x"),
        ("sft", "left_out", 0.5),
        ("pairs", "pairs", 159),
        ("pairs", "completions", 9),
        ("pairs", "flipped", 1),
        ("rm", "accuracy", 1.5),
        ("rm", "fitted", 999),
        ("pairs", "mood", 1),
    ],
)
def test_what_was_measured_on_the_way_is_compared(
    ran: Ran, stage: str, name: str, value: Any
) -> None:
    (path,) = ran.out.rglob("real/seed-00/record.json")
    with rewritten(path, changed(ran.real, stage, facts=ran.stage(stage).facts | {name: value})):
        found = audit(ran.out)
        assert f"lineage.{stage}.facts" + (f".{name}" if name != "mood" else "") in found
        read_entry(next(ran.out.rglob("plan.json")).parent, replicates=50)


def test_which_stages_are_shared_is_what_the_track_says(ran: Ran) -> None:
    (path,) = ran.out.rglob("real/seed-00/record.json")
    for stage, shared in (("pairs", False), ("rm", True)):
        with rewritten(path, changed(ran.real, stage, shared=shared)):
            assert audit(ran.out) == [f"lineage.{stage}.shared"]


def changed(record: RunRecord, name: str, **update: Any) -> RunRecord:
    """A record of which one stage says something else, sealed again."""
    lineage = tuple(
        stage.model_copy(update=update) if stage.name == name else stage
        for stage in record.lineage or ()
    )
    return record.model_copy(update={"lineage": lineage}).sealed()


def test_a_replay_measures_again_what_was_measured_on_the_way(ran: Ran) -> None:
    real = ran.real
    trace = Trace(
        status=real.status,
        environment=real.environment,
        source=real.crlbench.source_tree_sha256,
        digests=[],
        health=real.health,
        curve=[],
        items={},
        lineage=real.lineage or (),
    )
    better = changed(real, "sft", facts=ran.stage("sft").facts | {"score": 1.0})
    for record, source, said in (
        (real, trace.source, []),
        (better, trace.source, [("lineage.sft.facts.score", False)]),
        (better, "0" * 64, [("lineage.sft.facts.score", False)]),  # no rounding explains that
        (changed(real, "pairs", facts=ran.stage("pairs").facts | {"pairs": 99}), "0" * 64,
         [("lineage.pairs.facts.pairs", True)]),
    ):  # fmt: skip
        stored = Stored(record, [], lambda ref, field: np.zeros(0))
        here = trace.model_copy(update={"source": source})
        found = differences(stored, here, BANDS["fp32"], 32)
        assert [(one.tensor, one.within) for one in found] == said


def test_a_shared_stage_is_spelled_as_the_track_has_it(ran: Ran) -> None:
    runs = [one for one in load_runs(ran.out, files="all") if one.record.arm == "real"]
    config = json.loads(json.dumps(ran.real.algo.config))
    config["stages"][0]["epochs"] = 9
    algo = ran.real.algo.model_copy(update={"name": "mine", "config": config})
    record = ran.real.model_copy(update={"algo": algo}).sealed()
    tasks = tuple(facts_of(runs[0]).tasks)  # type: ignore[union-attr]
    for one, said in ((ran.real, []), (record, ["algo.config.stages.sft.epochs"])):
        run_ = replace(runs[0], record=one)
        here = checkout.compare(run_, "tiny-llama", tasks, Catalog())
        assert [finding.field for finding in here.findings] == said


class rewritten:  # noqa: N801  (used as a statement)
    """A record on the disk, replaced for a moment."""

    def __init__(self, path: Path, record: RunRecord) -> None:
        self.path, self.before = path, path.read_bytes()
        path.write_text(json.dumps(record.model_dump(mode="json")))

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self.path.write_bytes(self.before)


class Swapped(Loaded):
    """An entry whose pairs are others."""

    @property
    def products(self) -> dict[str, str]:
        return {name: "f" * 64 if ".pairs." in name else sha256
                for name, sha256 in super().products.items()}  # fmt: skip


def test_entries_of_one_model_with_other_shared_products_are_not_compared(ran: Ran) -> None:
    (plan,) = ran.out.rglob("plan.json")
    loaded = read_entry(plan.parent, replicates=50)
    assert {name.rpartition(".")[0].rpartition(".")[2] for name in loaded.products} == {
        "sft", "pairs",
    }  # fmt: skip
    other = Swapped(Path("/elsewhere"), loaded.runs, loaded.board)
    leaf = r"lineage\.addition\.real\.seed-00\.pairs\.sha256"
    with pytest.raises(NotComparable, match=rf"(?s){leaf}: [0-9a-f]+.* / f+") as refused:
        compare([loaded, other])
    assert ".sft." not in str(refused.value)
    assert refused.value.exit_code == 4


@pytest.mark.slow
def test_a_replay_makes_all_stages_again_and_then_the_first_updates(
    ran: Ran, tmp_path: Path
) -> None:
    cell = cell_of(ran.real, "tiny-llama", ("addition",), Catalog(), tmp_path, 1)
    assert cell.artefacts == str(tmp_path / "artefacts")
    here = cell.model_copy(update={"confined": False})
    trace = replay_cell(here, lambda event: None, lambda: False)
    assert isinstance(trace, Trace)
    (path,) = ran.out.rglob("real/seed-00/digests.jsonl")
    first = json.loads(path.read_text().splitlines()[0])
    assert [one.model_dump() for one in trace.digests] == [first]
    kinds = {path.name.partition("-")[0] for path in (tmp_path / "artefacts").iterdir()}
    assert kinds == {"supervised", "collect", "reward"}


def digests(record: RunRecord) -> list[str | None]:
    return [stage.sha256 for stage in record.lineage or ()]


@pytest.mark.slow
def test_ends_in_every_stage_leave_what_was_whole_and_change_nothing(
    ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped on demonstrations, dead while pairs and a reward model are made, then continued."""
    cell = plan_in(tmp_path)[0]
    store = Path(str(cell.artefacts))

    def kept() -> set[str]:
        return {path.name.partition("-")[0] for path in store.glob("[a-z]*")}

    checkpoint = f".supervised-*.work/{CHECKPOINT}"
    with pytest.raises(Interrupted, match="on demonstrations"):
        run(cell, lambda: bool(list(store.glob(checkpoint))))
    assert list(store.glob(checkpoint)) and not kept()
    for name, before in (
        ("make_pairs", {"supervised"}),
        ("make_reward", {"supervised", "collect"}),
    ):
        make = getattr(chains.Workshop, name)

        def die(self: Any, stage: Any, folder: Path, work: Path, make: Any = make) -> Made:
            make(self, stage, folder, work)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(chains.Workshop, name, die)
            with pytest.raises(KeyboardInterrupt):
                run(cell)
        assert kept() == before
    again = run(cell)
    assert digests(again) == digests(ran.real)
    assert again.files["policy.safetensors"] == ran.real.files["policy.safetensors"]
    assert not list(store.glob(".*.work")) and not list(store.glob(".*.new"))


def test_a_stage_that_breaks_a_rule_fails_the_run_by_upstream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = plan_in(tmp_path, "rlhf", ("preference.prompts", "8"))[0]
    record = run(cell)
    assert (record.status.state, record.status.rule, record.status.at) == ("failed", "upstream", 0)
    assert [(stage.name, stage.sha256 is None) for stage in record.lineage or ()] == [
        ("sft", False), ("pairs", True),
    ]  # fmt: skip
    assert "64 are the fewest" in str(ran_facts(record, "pairs")["failed"])
    # It counts with the score of the start model, which is all that was measured.
    assert len(record.curve) == 1 and record.curve[0].x == 0
    assert set(record.health["loss"]) == set() and "loss" in record.health
    assert audit(tmp_path) == []
    runs = load_runs(tmp_path, files="used")
    assert [one.record.status.state for one in runs] == ["failed"]


def ran_facts(record: RunRecord, name: str) -> dict[str, Any]:
    return next(stage.facts for stage in record.lineage or () if stage.name == name)


def test_a_checkpoint_of_a_stage_that_is_damaged_begins_it_again(ran: Ran, tmp_path: Path) -> None:
    cell = plan_in(tmp_path)[0]
    shop = chains.Workshop(cell, chain_of(cell), *load(cell), lambda: False)
    stage = shop.chain.upstream[0]
    work = shop.store.folder / f".{shop.order(stage).name}.work"
    work.mkdir(parents=True)
    (work / CHECKPOINT).write_bytes(b"half of a check")
    assert shop.product(stage).sha256 == ran.stage("sft").sha256


def chain_of(cell: Cell) -> Chain:
    chain = from_config(cell.recipe_config)
    assert isinstance(chain, Chain)
    return chain


@dataclass(frozen=True)
class Dear(Gold):
    """A labeller whose verdicts cost two labels each."""

    def verdicts(self, asks: Sequence[Ask]) -> list[Verdict]:
        return [Verdict(one.score, 2) for one in super().verdicts(asks)]


def test_no_chain_pays_for_more_verdicts_than_the_track_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chains, "read_labeller", lambda text, gold, folder: Dear(gold))
    for _ in ("made", "found"):
        with pytest.raises(ValidationError, match="cost 2560 labels .* allows 1280"):
            run(plan_in(tmp_path)[0])
    jury: Any = SimpleNamespace(pairs=lambda batch, texts: ([], 5))
    batch: Any = SimpleNamespace(iteration=0)
    pair = pair_by(jury, Meter({}), 9)
    assert pair(batch, []) == []
    with pytest.raises(ValidationError, match="cost 10 labels .* 9 of preference.labels"):
        pair(batch, [])


def test_a_verifier_that_pays_leaves_no_label_upstream(tmp_path: Path) -> None:
    real = run(plan_in(tmp_path, "rlvr")[0])
    assert [stage.name for stage in real.lineage or ()] == ["sft"]
    assert real.health["reward"] == real.health["score"] == real.health["audit"]
    assert audit(tmp_path) == []
