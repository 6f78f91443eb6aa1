"""The kind that a task's card names decides who collects its experience, in every place."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest

from crlbench import cli
from crlbench.algo import recipes
from crlbench.algo.recipe import to_config
from crlbench.contract.conditions import control_leaves, override
from crlbench.contract.fields import TaskKind
from crlbench.errors import ValidationError
from crlbench.policy.decode.loop import DrawKey
from crlbench.policy.policy import Policy
from crlbench.proof.facts import Facts, facts_of
from crlbench.proof.rescore import rescore
from crlbench.run import store, subject
from crlbench.run.execute import run_cell
from crlbench.run.plan import Board, Contender, Declaration, Execution, NamedRecipe
from crlbench.run.subject import answers_of, collector_of, load_subject, load_task
from crlbench.train import reward
from crlbench.train.collect import Answers, Collected
from crlbench.train.requests import Examination
from crlbench.types import PromptBatch, Rollout
from crlbench.verdict.load import load_runs
from tests.support.entries import copied

SHORT = {
    "budget.prompts": "4",
    "budget.completions": "4",
    "budget.grid": "1",
    "budget.iterations_per_point": "1",
    "evaluation.curve_items": "8",
    "evaluation.end_items": "8",
    "evaluation.end_draws": "2",
    "evaluation.retain": "[]",
    "hardware.precision": "fp32",
}


class Apart:
    """What answers do, by a collector that shares no batches; counts what it is asked for."""

    def __init__(self, answers: Answers, asked: Counter[str]) -> None:
        self.answers, self.asked = answers, asked
        self.pad, self.max_tokens = answers.pad, answers.max_tokens

    def collect(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Collected:
        self.asked["collect"] += 1
        return self.answers.collect(policy, batch, key)

    def examine(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Examination:
        self.asked[key.purpose] += 1
        return self.answers.examine(policy, batch, key)

    def audit(self, rollout: Rollout, batch: PromptBatch) -> Any:
        self.asked["audit"] += 1
        return self.answers.audit(rollout, batch)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What the only kind's collector is asked for, while another one stands in for it."""
    counts: Counter[str] = Counter()
    monkeypatch.setitem(
        subject.COLLECTORS, "single-turn", lambda *given: Apart(answers_of(*given), counts)
    )
    return counts


def run(board: Board, folder: Path) -> dict[str, Any]:
    """What one short run stores: scores, samples, and digests of its iterations."""
    conditions = override(board.conditions, SHORT)
    control = control_leaves(board.track, conditions, {})
    short = replace(board, conditions=conditions, control=control, division="open")
    recipe = NamedRecipe("grpo", to_config(recipes.load("grpo")))
    contender = Contender("tiny-llama", "tiny-llama", "0a1b2c3d", "e" * 64)
    tasks, quiet = ("addition", "counting"), Execution(loggers=())
    plan = Declaration(short, contender, recipe, tasks, ("real",), 1, folder, quiet).plan()
    cell = plan.cells[0].model_copy(update={"entry_sha256": None, "control": {}})
    record = run_cell(cell, lambda event: None, lambda: False)
    assert record.status.state == "completed"
    place = Path(cell.folder)
    return {
        "items": store.read_npz(place / "items.npz"),
        "samples": store.rows_of((place / "samples.jsonl.zst").read_bytes()),
        "digests": (place / "digests.jsonl").read_bytes(),
        "curve": (place / "curve.csv").read_bytes(),
    }


@pytest.mark.slow
def test_a_whole_run_goes_through_the_collector_of_its_kind(
    board: Board, tmp_path: Path, asked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run(board, tmp_path / "apart")
    assert asked["collect"] == 1 and asked["curve"] == 2
    assert asked["start"] >= 6 and asked["end"] >= 6 and asked["audit"] >= 3
    before = Counter(asked)
    monkeypatch.setitem(subject.COLLECTORS, "single-turn", answers_of)
    expected = run(board, tmp_path / "usual")
    assert asked == before
    assert found["items"].keys() == expected["items"].keys()
    for name, scores in expected["items"].items():
        assert np.array_equal(found["items"][name], scores), name
    for name in ("samples", "digests", "curve"):
        assert found[name] == expected[name], name


def test_every_kind_of_a_card_has_its_collector() -> None:
    assert subject.COLLECTORS.keys() == {*get_args(TaskKind)}
    reader, task = load_subject("tiny-llama", ()).reader, load_task("addition", ())
    assert task.card.kind == "single-turn" and "kind" not in task.card.model_dump()
    conditions = SimpleNamespace()
    card = task.card.model_copy(update={"kind": "maze"})
    other = SimpleNamespace(name="addition", card=card)
    with pytest.raises(ValidationError, match="task 'addition': 'maze' is no kind of task"):
        collector_of(other, reader, conditions, "cpu")


def test_stored_samples_are_verified_as_the_text_that_their_kind_reads(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = load_runs(finished)
    rows, task = [asdict(sample) for sample in run.samples()], load_task("addition", ())
    facts = facts_of(run)
    assert isinstance(facts, Facts)

    def findings() -> list[str]:
        return [str(finding) for finding in rescore(facts, rows, task)]

    assert len(rows) == 16 and findings() == []
    monkeypatch.setitem(reward.READ, "single-turn", lambda sample: sample["answer"])
    changed = sum(row["score"] < 1.0 for row in rows)
    assert sum("score" in finding for finding in findings()) >= changed > 0


@pytest.mark.parametrize("kind", ["maze", "", 7, ["single-turn"], "Single-Turn"])
@pytest.mark.parametrize("command", ["evaluate", "validate", "probe", "freeze"])
def test_an_unknown_kind_is_refused_before_anything_runs(
    kind: object, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(folder: Path, frozen: dict[str, Any]) -> None:
        frozen["kind"] = kind
        code = (folder / "task.py").read_text()
        changed = code.replace('"name": "counting",', f'"name": "counting", "kind": {kind!r},')
        (folder / "task.py").write_text(changed)

    root = copied(tmp_path, "counting", change)
    folder, out = root / "tasks" / "counting", root / "runs"
    model = ["--model", "tiny-llama", "--catalog", str(root)]
    arguments = {
        "evaluate": [*model, "--tasks", "counting", "--seeds", "1", "--out", str(out)],
        "validate": [str(folder)],
        "probe": ["counting", *model, "--items", "4", "--rollouts", "2"],
        "freeze": [str(folder)],
    }
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert cli.main([command, *arguments[command]]) == 3
    said = "".join(capsys.readouterr())
    assert f"field kind: {kind!r} is no kind of task that this crlbench knows" in said
    assert "known: single-turn" in said and "Traceback" not in said
    assert not out.exists()
    assert before == {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_the_usual_kind_may_be_said_and_changes_no_digest(tmp_path: Path) -> None:
    def change(folder: Path, frozen: dict[str, Any]) -> None:
        frozen["kind"] = "single-turn"

    root = copied(tmp_path, "counting", change)
    card = load_task("counting", (str(root),)).card
    assert card.digest == load_task("counting", ()).card.digest
    assert "kind" not in card.model_dump()
