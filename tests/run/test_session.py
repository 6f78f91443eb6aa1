"""A sitting needs of its launcher no more than names and plain data."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from typing import Any

from crlbench.records import Cell
from crlbench.run.grid import Outcome, StopLevel
from crlbench.run.plan import LEDGER_NAME, Plan, label
from crlbench.run.progress import Progress
from crlbench.run.session import StopSwitch, opened, run_missing

PlanOf = Callable[..., Plan]


class ElsewhereLauncher:
    """Stands for a cluster: text goes there, text comes back."""

    def __init__(self, states: dict[str, str]) -> None:
        self.states = states

    def run(
        self,
        cells: Sequence[Cell],
        on_event: Callable[[Cell, dict[str, Any]], None],
        stop_level: Callable[[], StopLevel],
    ) -> Generator[Outcome, None, None]:
        sent = [cell.model_dump_json() for cell in cells]
        for text, cell in zip(sent, cells, strict=True):
            if stop_level() > 0:
                return
            assert Cell.model_validate_json(text) == cell
            on_event(cell, {"kind": "start", "attempt": 1})
            answer = {"kind": "progress", "phase": "train", "iteration": 1, "reward": 0.5}
            on_event(cell, json.loads(json.dumps(answer | {"score": None})))
            yield Outcome(cell, self.states[cell.task], message="why")  # type: ignore[arg-type]


def test_any_launcher_keeps_the_ledger_and_the_progress(plan_of: PlanOf) -> None:
    plan = plan_of(seeds=2)
    with opened([plan], "test", fresh=False, shard=None) as work:
        launcher = ElsewhereLauncher({"addition": "done", "list-ops": "lost"})
        progress = Progress(work.missing, quiet=True)
        outcomes = run_missing(work, launcher, progress, StopSwitch())
    assert [(o.cell.task, o.state) for o in outcomes] == 2 * [
        ("addition", "done"),
        ("list-ops", "lost"),
    ]
    lines = [json.loads(line) for line in (plan.folder / LEDGER_NAME).read_text().splitlines()]
    assert [line["event"] for line in lines] == ["plan", *2 * ["start", "done", "start", "lost"]]
    assert lines[1]["cell"] == label(plan.cells[0]) and lines[4]["detail"] == {"reason": "why"}
    assert progress.tally.done == 2


def test_a_launcher_is_told_to_stop(plan_of: PlanOf) -> None:
    switch = StopSwitch(signals=1)
    with opened([plan_of()], "test", fresh=False, shard=None) as work:
        launcher = ElsewhereLauncher({})
        assert run_missing(work, launcher, Progress([], quiet=True), switch) == []
