"""A run goes on from no checkpoint but the one that its own attempt wrote."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crlbench.contract.attempts import read
from crlbench.contract.records import Cell
from crlbench.errors import ValidationError
from crlbench.run import checkpoints
from crlbench.run.checkpoints import Stating, Worthless, attempts_of, path_of, standing
from crlbench.run.launcher import Outcome
from crlbench.run.plan import Plan, label
from crlbench.run.progress import Progress
from crlbench.run.session import StopSwitch, Work, opened, run_missing

PlanOf = Callable[..., Plan]


def write(cell: Cell, *contents: bytes, attempt: str | None = None) -> Path:
    """Checkpoints one after another, each written as a run does it."""
    path = path_of(cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    stating = Stating(attempt or attempts_of(cell)[-1])
    for iteration, content in enumerate(contents, start=1):
        temporary = path.with_name(".last.ckpt.tmp")
        temporary.write_bytes(content)
        stating(temporary, path, iteration)
        os.replace(temporary, path)
    return path


@pytest.fixture
def plan(plan_of: PlanOf) -> Plan:
    """Two runs have begun, and each has written two checkpoints."""
    plan = plan_of(seeds=1)
    begin(plan)
    for number, cell in enumerate(plan.cells):
        write(cell, b"first" * 50, bytes([number]) * 300)
    return plan


class Dying:
    """Begins every cell and never ends one."""

    def run(self, cells: Any, on_event: Any, stop_level: Any) -> Any:
        for cell in cells:
            on_event(cell, {"kind": "start", "attempt": 1})
        yield from ()


def begin(plan: Plan) -> list[Outcome]:
    """What a command does before its cells run; it dies then."""
    with opened([plan], "test", fresh=False, shard=None) as work:
        return run_missing(work, Dying(), Progress([]), StopSwitch())


def last_events(plan: Plan) -> list[dict[str, Any]]:
    return read(plan.folder / "ledger.jsonl")[-len(plan.cells) :]


def test_a_sound_checkpoint_is_continued_and_the_ledger_states_it(plan: Plan) -> None:
    found = standing(path_of(plan.cells[0]), attempts_of(plan.cells[0]))
    assert found is not None and (found.iteration, found.bytes) == (2, 300)
    begin(plan)
    events = last_events(plan)
    assert [event["event"] for event in events] == ["resume", "resume"]
    assert events[0]["detail"]["checkpoint"] == found.sha256
    write(plan.cells[0], b"third")  # under the line that says that it goes on
    assert len(attempts_of(plan.cells[0])) == 2
    assert standing(path_of(plan.cells[0]), attempts_of(plan.cells[0])) is not None


def test_the_checkpoint_before_a_kill_is_known(plan: Plan) -> None:
    path = path_of(plan.cells[0])
    old = path.read_bytes()
    write(plan.cells[0], old, b"new")
    path.write_bytes(old)  # the statement was written, the file not yet renamed
    assert standing(path, attempts_of(plan.cells[0])) is not None
    path.unlink()
    assert standing(path, attempts_of(plan.cells[0])) is None


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def swap(path: Path) -> None:
    """With the folder of another cell, whose digest is right."""
    other = path.parents[4] / "list-ops" / "real" / "seed-00" / "ckpt"
    shutil.rmtree(path.parent)
    shutil.copytree(other, path.parent)


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "bit": (flip, "was changed since it was written"),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-1]), "299 bytes"),
    "empty": (lambda path: path.write_bytes(b""), "0 bytes"),
    "appended": (lambda path: path.write_bytes(path.read_bytes() + b"x"), "301 bytes"),
    "zeros": (lambda path: path.write_bytes(bytes(299) + b"x"), "was changed"),
    "stale": (lambda path: path.write_bytes(b"older" * 60), "was changed"),
    "another cell's": (swap, "belongs to no attempt"),
    "no digest": (lambda path: (path.parent / "last.json").unlink(), "no digest beside it"),
    "damaged digest": (lambda path: flip(path.parent / "last.json"), "last.json is damaged|was"),
    "digest of something": (lambda path: (path.parent / "last.json").write_text("[]"), "damaged"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_any_other_is_given_up_and_the_run_begins_again(
    plan: Plan, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    act, why = DAMAGES[damage]
    path = path_of(plan.cells[0])
    act(path)
    with pytest.raises(Worthless, match=why):
        standing(path, attempts_of(plan.cells[0]))
    begin(plan)
    first, second = last_events(plan)
    assert (first["event"], second["event"]) == ("start", "resume")
    assert first["cell"] == label(plan.cells[0]) and "ckpt/last." in first["detail"]["reason"]
    assert str(plan.folder.parent) not in first["detail"]["reason"]
    assert "begins again" in capsys.readouterr().err
    assert not path.parent.exists()


def test_a_checkpoint_of_another_ledger_is_worth_nothing(plan: Plan, plan_of: PlanOf) -> None:
    """As of weights that were trained elsewhere, with a digest that is right."""
    from dataclasses import replace

    elsewhere = replace(plan)
    cell = elsewhere.cells[0]
    write(cell, b"trained elsewhere", attempt="ab" * 32)
    with pytest.raises(Worthless, match="belongs to no attempt"):
        standing(path_of(cell), attempts_of(cell))


def test_a_worker_refuses_what_was_damaged_after_the_launcher_looked(plan: Plan) -> None:
    from crlbench.run.execute import read_checkpoint

    path = path_of(plan.cells[0])
    flip(path)
    with pytest.raises(ValidationError, match=r"last\.ckpt was changed .* Delete .*ckpt"):
        read_checkpoint(path, attempts_of(plan.cells[0]))


def test_without_a_ledger_a_run_knows_its_own(plan_of: PlanOf) -> None:
    cell = plan_of().cells[0]
    path = write(cell, b"content")
    assert json.loads((path.parent / "last.json").read_text())["attempt"] == "0" * 64
    assert standing(path, checkpoints.attempts_of(cell)) is not None


def test_work_names_what_was_said(plan: Plan) -> None:
    with opened([plan], "test", fresh=False, shard=None) as work:
        assert isinstance(work, Work) and work.said == []
