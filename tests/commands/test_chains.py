"""Chains through the command line: what a dry run says, a smoke run, and its verification."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crlbench import cli
from crlbench.contract.record_files import read_record
from tests.support.marks import first

SMALL = ("--model", "tiny-llama", "--track", "preference", "--tasks", "addition", "--jobs", "1")


def evaluate(out: Path, recipe: str, *more: str) -> int:
    return cli.main(["evaluate", "--recipe", recipe, *SMALL, "--out", str(out), *more])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "stages"),
    [
        # (stage, kind, verdicts, demonstrations)
        ("bon", [
            ("sft", "supervised", 0, 512), ("pairs", "collect", 4096, 0), ("rm", "reward", 0, 0),
            ("best", "choose", 0, 0), ("policy", "imitation", 0, 0),
        ]),
        ("online-dpo", [("sft", "supervised", 0, 512), ("policy", "preference", 4096, 0)]),
        ("sft-only", [("policy", "imitation", 0, 512)]),
        ("sft-distill", [("sft", "supervised", 0, 512), ("policy", "distill", 0, 0)]),
    ],
)  # fmt: skip
def test_a_dry_run_says_what_each_stage_costs(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    recipe: str,
    stages: list[tuple[str, str, int, int]],
) -> None:
    assert evaluate(tmp_path, recipe, "--seeds", "1", "--dry-run", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    names = ("stage", "kind", "verdicts", "demonstrations")
    assert [tuple(row[name] for name in names) for row in said["stages"]] == stages
    assert all(row["seconds"] > 0 and row["flops"] > 0 for row in said["stages"])
    samples = {row["stage"] for row in said["stages"] if row["generated"]}
    expected = {"bon": {"pairs", "best"}, "sft-only": set()}.get(recipe, {"policy"})
    assert samples == expected and all(row["read"] > 0 for row in said["stages"])
    assert said["seconds"] >= sum(row["seconds"] for row in said["stages"])
    assert not list(tmp_path.rglob("record.json")) and not list(tmp_path.rglob("artefacts"))


@pytest.mark.parametrize(
    ("flip", "leaf"),
    [
        ("sft.epochs=3", "sft.epochs is 3"),
        ("sft.batch=8", "sft.batch is 8"),
        ("sft.learning_rate=1e-3", "sft.learning_rate is 0.001"),
        ("sft.recipe.likelihood=sequence-nll", "sft.recipe is 'sft+likelihood=sequence-nll'"),
        ("pairs.policy=start", "pairs.policy is 'start'"),
        ("pairs.pairing=all-ordered", "pairs.pairing is 'all-ordered'"),
    ],
)
def test_a_chain_that_spells_a_shared_stage_otherwise_is_refused_by_the_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flip: str, leaf: str
) -> None:
    assert evaluate(tmp_path / "runs", f"rlhf+{flip}", "--seeds", "1", "-q") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert leaf in said and "(conditions.preference.shared)" in said, said
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize("recipe", first(["online-dpo", "sft-dpo", "bon", "sft-distill"]))
def test_a_smoke_run_is_verified_with_all_its_stages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], recipe: str
) -> None:
    assert evaluate(tmp_path, recipe, "--smoke") == 0
    (path,) = tmp_path.rglob("record.json")
    record = read_record(path)
    assert record.algo.name == recipe and record.lineage
    assert cli.main(["verify", str(path.parents[3])]) == 0
    assert "equal to the last bit" in capsys.readouterr().out
