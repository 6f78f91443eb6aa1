"""Chains that end in pairs or in answers: sound records, the same bytes after an end, one seed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crlbench.algo import recipes
from crlbench.algo.chain import Chain
from crlbench.contract.dynamics import OWN_PAIR_STATS, PAIR_STATS
from crlbench.contract.experience import why_open
from crlbench.contract.records import RunRecord
from crlbench.errors import Interrupted
from crlbench.stages import chain as chains
from crlbench.stages.artefacts import Made
from tests.stages.test_chain import audit, plan_in, run

PAIRS = ("sft-dpo", "iterative-dpo", "online-dpo")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, RunRecord]]:
    done: dict[str, tuple[Path, RunRecord]] = {}

    def of(name: str) -> tuple[Path, RunRecord]:
        if name not in done:
            out = tmp_path_factory.mktemp(name)
            done[name] = out, run(plan_in(out, name)[0])
        return done[name]

    return of


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PAIRS, "bon"])
def test_a_chain_ends_with_a_sound_record(made: Any, name: str) -> None:
    out, record = made(name)
    chain = recipes.load(name)
    assert isinstance(chain, Chain)
    assert [stage.name for stage in record.lineage] == [stage.name for stage in chain.upstream]
    assert record.status.state == "partial" and len(record.curve) == 4
    # A budget counts what is sampled or read: chains of all kinds stand at equal places.
    assert [point.x for point in record.curve] == [0, 32, 64, 96]
    assert "experience" not in record.fingerprint.leaves
    assert audit(out) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_pairs_are_watched_from_a_margin_of_nothing(made: Any, name: str) -> None:
    _, record = made(name)
    columns = PAIR_STATS if name == "sft-dpo" else OWN_PAIR_STATS
    assert {*record.health} == {"iteration", *columns}
    losses, margins = record.health["loss"], record.health["margin"]
    # One step an iteration: the first one is taken at the reference, where the loss is ln 2.
    assert losses[0] == pytest.approx(0.693147, abs=1e-5) and abs(margins[0]) < 1e-4
    assert losses[1] < losses[0]
    assert record.cost["generated_tokens"] == (0 if name == "sft-dpo" else record.curve[-1].tokens)


def test_a_round_has_one_policy_that_samples(made: Any) -> None:
    """Three iterations: four rounds are three here, so two chains sample alike and are equal."""
    iterative, online = made("iterative-dpo")[1], made("online-dpo")[1]
    assert iterative.files["policy.safetensors"] == online.files["policy.safetensors"]
    assert all(0 < count <= 8 for count in online.health["pairs"])


@pytest.mark.slow
def test_one_round_samples_from_where_it_began(made: Any, tmp_path: Path) -> None:
    cell = plan_in(tmp_path, "iterative-dpo+policy.rounds=1")[0]
    one, (out, online) = run(cell), made("online-dpo")
    rows = [
        [json.loads(line) for line in next(folder.rglob("real/seed-00/digests.jsonl")).open()]
        for folder in (tmp_path, out)
    ]
    # The prompts and the first completions are the same; then another policy samples.
    assert [row["prompts"] for row in rows[0]] == [row["prompts"] for row in rows[1]]
    assert rows[0][0] == rows[1][0]
    assert rows[0][1]["completions"] != rows[1][1]["completions"]
    assert one.lineage == online.lineage
    assert audit(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param("sft-dpo", marks=pytest.mark.full), "iterative-dpo+policy.rounds=1"]
)
def test_a_last_stage_that_is_ended_goes_on_with_the_same_bytes(name: str, tmp_path: Path) -> None:
    whole = run(plan_in(tmp_path / "whole", name)[0])
    cell = plan_in(tmp_path / "ended", name)[0]
    checkpoint = Path(cell.folder) / "ckpt"
    with pytest.raises(Interrupted, match="stopped after iteration 1 of 3"):
        run(cell, lambda: bool(list(checkpoint.glob("*.ckpt"))))
    again = run(cell)
    assert again.files["policy.safetensors"] == whole.files["policy.safetensors"]
    assert (again.digest_root, again.health) == (whole.digest_root, whole.health)


@pytest.mark.slow
def test_a_reference_that_is_not_the_start_shows_in_the_first_margin(
    made: Any, tmp_path: Path
) -> None:
    record = run(plan_in(tmp_path, "sft-dpo+policy.reference=start")[0])
    before = made("sft-dpo")[1]
    # The same pairs and start: the log-probabilities agree, and the margin is no longer nothing.
    assert record.health["chosen_logp"][0] == before.health["chosen_logp"][0]
    assert abs(record.health["margin"][0]) > 1e-3 > abs(before.health["margin"][0])
    assert record.lineage == before.lineage


@pytest.mark.slow
def test_an_end_while_answers_are_chosen_changes_nothing(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = plan_in(tmp_path, "bon")[0]
    choose = chains.Workshop.make_answers

    def die(self: Any, *given: Any) -> Made:
        choose(self, *given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(chains.Workshop, "make_answers", die)
        with pytest.raises(KeyboardInterrupt):
            run(cell)
    again, before = run(cell), made("bon")[1]
    assert again.lineage == before.lineage
    assert again.files["policy.safetensors"] == before.files["policy.safetensors"]
    best = again.lineage[-1]
    assert best.name == "best" and best.facts["answers"] == 160
    # The best of eight by a model is paid more than their mean; it costs no label.
    assert best.facts["reward_chosen"] > best.facts["reward_mean"]
    assert "labels" not in best.charges


def test_the_floor_reads_demonstrations_on_the_grid_and_has_no_stage_before(
    tmp_path: Path,
) -> None:
    record = run(plan_in(tmp_path, "sft-only")[0])
    assert record.lineage == () and record.cost["generated_tokens"] == 0
    assert record.health["loss"][-1] < record.health["loss"][0]
    assert audit(tmp_path) == []


@pytest.mark.slow
def test_a_placebo_of_own_pairs_is_judged_blindly(made: Any, tmp_path: Path) -> None:
    placebo = run(plan_in(tmp_path, "online-dpo")[1])
    real = made("online-dpo")[1]
    assert placebo.health["pairs"][0] == real.health["pairs"][0]
    assert placebo.health["chosen_logp"][0] != real.health["chosen_logp"][0]


@pytest.mark.slow
def test_too_few_pairs_for_an_iteration_fail_the_run(tmp_path: Path) -> None:
    more = (("budget.prompts", "64"), ("preference.labels", "6144"))
    record = run(plan_in(tmp_path, "sft-dpo", *more, ("budget.completions", "8"))[0])
    assert record.status.rule == "upstream"
    assert "reads 256 at once" in record.lineage[-1].facts["failed"]
    assert {*record.health} == {"iteration", *PAIR_STATS}
    assert audit(tmp_path) == []


@pytest.mark.slow
def test_one_reward_model_for_all_seeds_is_that_of_the_first_and_opens_the_division(
    tmp_path: Path,
) -> None:
    cell = plan_in(tmp_path, "rlhf+rm.seeds=one")[0]
    assert cell.recipe_config["stages"][2]["seeds"] == "one"
    chain = recipes.load(cell.recipe)
    assert isinstance(chain, Chain) and chain.of_one_seed == {"pairs", "rm"}
    assert "all seeds share what stage 'rm' leaves" in why_open(cell.recipe_config)
    first = run(cell)
    second = run(cell.model_copy(update={"seed_index": 1, "folder": f"{cell.folder[:-1]}1"}))
    assert first.lineage is not None and second.lineage is not None
    same = [a.sha256 == b.sha256 for a, b in zip(first.lineage, second.lineage, strict=True)]
    assert same == [False, True, True]
    assert [stage.key for stage in first.lineage[1:]] == [s.key for s in second.lineage[1:]]
    assert "lineage" not in " ".join(audit(tmp_path))


@pytest.mark.slow
def test_a_last_stage_trains_at_the_rate_of_its_kind(tmp_path: Path) -> None:
    def margins(name: str, **rates: str) -> list[float | None]:
        groups = {"optimization": "optimization.learning_rate"}
        settings = [
            (groups.get(kind, f"preference.{kind}_learning_rate"), rate)
            for kind, rate in rates.items()
        ]
        record = run(plan_in(tmp_path / name, "sft-dpo", *settings)[0])
        return record.health["margin"]

    own = margins("own", preference="3e-4")
    assert own == margins("of all", preference="null", optimization="3e-4")
    assert own != margins("of another", policy="3e-4")
