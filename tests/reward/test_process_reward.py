"""Process rewards as a user meets them: a run, a comparison, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from crlbench import cli
from tests.commands.test_ablate import designed
from tests.commands.test_end_to_end import SHORT

PROCESS = ("--set", "data.reward=process")


@pytest.mark.slow
def test_a_run_with_process_rewards(tmp_path: Path) -> None:
    settings = [part for setting in SHORT for part in ("--set", setting)]
    done = subprocess.run(
        [*(sys.executable, "-m", "crlbench", "evaluate", "--model", "tiny-llama"),
         *("--tasks", "chains", "--seeds", "1", "--logger", "none", "--limit", "8"),
         *("--out", str(tmp_path), *settings, *PROCESS, "--set", "evaluation.retain=[]")],
        capture_output=True, text=True, timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "data.reward = process (track: outcome)" in done.stderr
    (path,) = tmp_path.glob("mini-*/tiny-llama@*/ppo/chains/real/seed-00/record.json")
    record = json.loads(path.read_text())
    assert record["fingerprint"]["leaves"]["conditions.data.reward"] == "process"
    pairs = list(zip(record["health"]["reward"], record["health"]["score"], strict=True))
    assert any(reward > score for reward, score in pairs)
    assert all(reward >= score - 1e-6 for reward, score in pairs)


@pytest.mark.slow
def test_outcome_and_process_are_compared_with_paired_seeds() -> None:
    found = designed("--model", "tiny-llama", "--tasks", "chains", "--seeds", "2",
                     "--base", "ppo", "--flip", "data.reward=process", "--flip", "clip.high=0.3")
    (comparison,) = found.study.comparisons
    assert [arm.kind for arm in comparison.arms] == ["flip", "condition"]
    (change,) = comparison.arms[1].changes
    assert (change.field, change.before, change.after) == ("data.reward", "outcome", "process")
    assert comparison.arms[1].recipe == "ppo" and not comparison.grid
    base, _, process = found.plans
    assert [(c.seed_index, c.task, c.arm) for c in base.cells] == [
        (c.seed_index, c.task, c.arm) for c in process.cells
    ]
    assert base.body["seeds"] == process.body["seeds"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--tasks", "addition", *PROCESS], "of task 'addition' judges no steps. Tasks whose"),
        (["--tasks", "addition", *PROCESS], "chains, relay-sum. Choose them with --tasks"),
        (["--tasks", "chains", "--recipe", "grpo", *PROCESS],
         "recipe 'grpo' cannot use step rewards, because of advantage=GroupMean. "
         "Recipes that can: ppo, reinforce-pp, reinforce-pp-baseline."),
        (["--tasks", "chains", "--set", "data.reward=steps"], "'outcome' or 'process'"),
        (["--tasks", "chains", "--set", "data.rewards=process"], "Did you mean data.reward"),
    ],
)
def test_evaluate_refuses_at_the_start(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    wanted = ["evaluate", "--model", "tiny-llama", "--out", str(tmp_path / "runs"), *arguments]
    assert cli.main(wanted) == 2
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--flip", "data.reward=outcome"], "variant 'data.reward=outcome' changes nothing"),
        (["--flip", "data.reward=process", "--flip", "data.reward=process"], "is given twice"),
        (["--flip", "data.rewad=process"], "unknown condition 'data.rewad'. Did you mean data"),
        (["--base", "grpo", "--flip", "data.reward=process"], "cannot use step rewards"),
    ],
)
def test_ablate_refuses_at_the_start(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    base = [] if "--base" in arguments else ["--base", "ppo"]
    wanted = ["ablate", "--model", "tiny-llama", "--tasks", "chains", *base, *arguments]
    assert cli.main(wanted) == 2
    assert expected in capsys.readouterr().err
