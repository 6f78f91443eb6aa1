"""Chains of cells over several sittings, with real workers; and what is said of them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from crlbench.commands.running import Ending, verdict
from crlbench.contract.attempts import LEDGER_NAME, read
from crlbench.contract.records import Cell
from crlbench.errors import UsageError, ValidationError
from crlbench.launch.local import LocalLauncher
from crlbench.run.launcher import Outcome
from crlbench.run.needs import check_needs, folders_of, unable
from crlbench.run.plan import Plan, label
from crlbench.run.progress import Progress
from crlbench.run.session import StopSwitch, opened, run_missing
from crlbench.verdict.attempts import read_attempts
from tests.run.test_plan import finish
from tests.support.launcher_contract import begun, needing

PlanOf = Callable[..., Plan]
Shard = tuple[int, int] | None


@pytest.fixture
def chain(plan_of: PlanOf) -> Callable[..., Plan]:
    """A plan of as many cells as fates, each of which needs the one before."""

    def build(*fates: str) -> Plan:
        plan = plan_of(tasks=("addition", "list-ops", "counting")[: len(fates)], seeds=1)
        cells: list[Cell] = []
        for cell, fate in zip(plan.cells, fates, strict=True):
            cells.append(needing(cell, *cells[-1:], fate=fate))
        return replace(plan, cells=tuple(cells))

    return build


class Sitting:
    """One command: what it ran, what it said, and how it ended."""

    def __init__(
        self, plan: Plan, shard: Shard = None, repeat: bool = False, fresh: bool = False
    ) -> None:
        stream = io.StringIO()
        launcher = LocalLauncher(2, threads=1, function="tests.support.cells:stored", warm=None)
        with opened([plan], "test", fresh=fresh, shard=shard, repeat=repeat) as work:
            shown = Progress(work.missing, bar=False, stream=stream)
            self.outcomes: Sequence[Outcome] = run_missing(work, launcher, shown, StopSwitch())
            ending = Ending(work, self.outcomes, stopped=False, expired=False)
        self.code, self.sentences = verdict(ending, verbose=False)
        self.said = stream.getvalue()
        self.states = [outcome.state for outcome in self.outcomes]


def ledger(plan: Plan) -> list[tuple[str, str | None]]:
    """Events, each with the task of its cell."""
    lines = read(plan.folder / LEDGER_NAME)
    return [(line["event"], line["cell"] and line["cell"].split("/")[2]) for line in lines]


def test_a_chain_runs_in_its_order_in_one_command(chain: Callable[..., Plan]) -> None:
    plan = chain("done", "done", "done")
    sitting = Sitting(replace(plan, cells=plan.cells[::-1]))
    assert (sitting.code, sitting.states) == (0, ["done"] * 3)
    tasks = ("addition", "list-ops", "counting")
    assert ledger(plan)[1:] == [(event, task) for task in tasks for event in ("start", "done")]
    assert Sitting(plan).outcomes == []


@pytest.mark.slow
@pytest.mark.parametrize(("fate", "code"), [("lost", 8), ("error", 3)])
def test_the_same_command_continues_behind_a_need_that_broke_off(
    chain: Callable[..., Plan], fate: str, code: int
) -> None:
    first = Sitting(plan := chain("done", fate, "done"))
    assert (first.code, first.states) == (code, ["done", fate, "blocked"])
    assert any("not begun: it needs" in sentence for sentence in first.sentences)
    assert first.sentences[-1].startswith(("1 of 3", "incomplete: 1 of 3"))
    assert "counting" not in {task for _, task in ledger(plan)}
    assert begun(plan.cells[2]) == 0
    second = Sitting(chain("done", "done", "done"))
    assert (second.code, second.states) == (0, ["done", "done"])
    assert begun(plan.cells[0]) == 1
    assert [event for event, task in ledger(plan) if task == "counting"] == ["start", "done"]


@pytest.mark.slow
def test_a_need_that_broke_a_rule_fails_what_needs_it(chain: Callable[..., Plan]) -> None:
    plan = chain("failed", "done", "done")
    for states in (["failed", "blocked", "blocked"], ["blocked", "blocked"]):
        sitting = Sitting(plan)
        assert (sitting.code, sitting.states) == (7, states)
        assert "kl_cap" in sitting.sentences[0] and "1 run failed" in sitting.sentences[0]
        assert [("upstream" in s, "addition" in s) for s in sitting.sentences[1:]] == 2 * [
            (True, True)
        ]
    assert ledger(plan)[1:] == [("start", "addition"), ("failed", "addition")]
    found = read_attempts(plan.folder)
    assert found is not None and not found.vanished(("list-ops", "real", 0))
    again = Sitting(chain("done", "done", "done"), fresh=True)
    assert (again.code, again.states) == (0, ["done"] * 3)


@pytest.mark.slow
def test_a_need_of_another_shard_is_waited_for(chain: Callable[..., Plan]) -> None:
    plan = chain("done", "done")
    early = Sitting(plan, shard=(2, 2))
    assert (early.code, early.outcomes) == (8, [])
    assert "another --shard" in early.said and label(plan.cells[0]) in early.said
    assert ledger(plan) == [("plan", None)]
    assert Sitting(plan, shard=(1, 2)).states == ["done"]
    late = Sitting(plan, shard=(2, 2))
    assert (late.code, late.states) == (0, ["done"])


@pytest.mark.slow
def test_a_need_whose_record_is_gone_is_not_made_in_silence(chain: Callable[..., Plan]) -> None:
    plan = chain("done", "lost", "done")
    Sitting(plan)
    (Path(plan.cells[0].folder) / "record.json").unlink()
    plan = chain("done", "done", "done")
    sitting = Sitting(plan)
    assert (sitting.code, sitting.outcomes) == (8, [])
    assert "--repeat makes both" in sitting.said
    assert f"needs {label(plan.cells[1])}, which is not begun either" in sitting.said
    assert Sitting(plan, repeat=True).states == ["done", "done", "done"]


def test_a_damaged_record_of_a_need_is_refused(chain: Callable[..., Plan]) -> None:
    plan = chain("done", "done")
    Sitting(plan, shard=(1, 2))
    path = Path(plan.cells[0].folder) / "record.json"
    path.write_text(path.read_text().replace('"completed"', '"partial"'))
    with pytest.raises(ValidationError, match="record_id"):
        Sitting(plan, shard=(2, 2))
    assert begun(plan.cells[1]) == 0


def test_a_record_of_another_board_is_no_need(chain: Callable[..., Plan]) -> None:
    plan = chain("done", "done")
    finish(plan.cells[0].model_copy(update={"fingerprint": "f" * 12}))
    with pytest.raises(ValidationError, match="another board"):
        Sitting(plan, shard=(2, 2))


def test_a_plan_that_cannot_end_is_refused_before_a_folder_is_made(
    chain: Callable[..., Plan], plan_of: PlanOf
) -> None:
    plan = chain("done", "done")
    first, second = plan.cells
    circle = replace(plan, cells=(needing(first, second), second))
    unknown = replace(plan, cells=(second,))
    for bad, word in ((circle, "circle"), (unknown, "no cell of its plan")):
        with pytest.raises(UsageError, match=word):
            Sitting(bad)
    assert not plan.folder.exists()


def test_needs_change_no_cell_that_has_none(plan_of: PlanOf) -> None:
    cell, other, *_ = plan_of().cells
    assert "needs" not in cell.model_dump(mode="json")
    assert "needs" not in json.loads(cell.model_dump_json())
    chained = needing(other, cell)
    assert chained.model_dump(mode="json")["needs"] == [label(cell)]
    assert Cell.model_validate_json(chained.model_dump_json()) == chained
    assert folders_of(chained) == {label(cell): cell.folder}
    assert folders_of(cell) == {} == unable([cell, other])
    check_needs([chained, cell])
