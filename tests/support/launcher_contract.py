"""What every launcher has to do, as tests: subclass :class:`LauncherContract` to run them.

The cells are real processes of the launcher that run the small functions of
:mod:`tests.support.cells`. Nothing here asks where they run: what a cell did is read from its
folder.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from crlbench.contract.events import Event
from crlbench.contract.records import Cell, Status
from crlbench.errors import UsageError
from crlbench.run.launcher import Launcher, Outcome, StopLevel
from crlbench.run.plan import Plan, label
from tests.run.test_plan import finish

PlanOf = Callable[..., Plan]


def read_when_there(path: Path, seconds: float = 30.0) -> str:
    """The content of a file, as soon as there is any."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):
            if text := path.read_text():
                return text
        time.sleep(0.02)
    raise AssertionError(f"{path} did not appear")


def needing(cell: Cell, *needed: Cell, fate: str = "done") -> Cell:
    """A cell that needs others, and what :func:`tests.support.cells.fated` makes of it."""
    changed = {"needs": tuple(map(label, needed)), "recipe_config": {"fate": fate}}
    return cell.model_copy(update=changed)


def begun(cell: Cell) -> int:
    """How many attempts a fated cell saw."""
    path = Path(cell.folder) / "begun"
    return len(path.read_text()) if path.exists() else 0


def still_beats(cell: Cell) -> bool:
    """Whether the process of a deaf cell lives."""
    beat = Path(cell.folder) / "beat"
    before = beat.read_text()
    time.sleep(0.3)
    return beat.read_text() != before


class LauncherContract:
    """The tests; a subclass says how its launcher is made."""

    def launcher(self, function: str, jobs: int) -> Launcher:
        """A launcher of at most ``jobs`` cells at once; ``function`` is an import path."""
        raise NotImplementedError

    def run(
        self,
        cells: Sequence[Cell],
        function: str,
        jobs: int = 2,
        stop: Callable[[], StopLevel] = lambda: 0,
    ) -> tuple[list[Outcome], list[tuple[str, Event]]]:
        """All outcomes, and all events with the folders of their cells."""
        events: list[tuple[str, Event]] = []
        launcher = self.launcher(f"tests.support.cells:{function}", jobs)
        running = launcher.run(
            cells, lambda cell, event: events.append((cell.folder, event)), stop
        )
        return list(running), events

    # -- order and events ---------------------------------------------------------------------

    def test_the_first_seeds_run_first(self, plan_of: PlanOf) -> None:
        cells = plan_of(seeds=3).cells
        outcomes, _ = self.run(tuple(reversed(cells)), "work", jobs=1)
        assert [o.cell.seed_index for o in outcomes] == [0, 0, 1, 1, 2, 2]

    def test_every_event_is_handed_on_and_the_start_comes_first(self, plan_of: PlanOf) -> None:
        cells = plan_of().cells
        outcomes, events = self.run(cells, "work")
        assert {o.state for o in outcomes} == {"done"}
        for cell in cells:
            mine = [event for folder, event in events if folder == cell.folder]
            assert mine[0] == {"kind": "start", "attempt": 1}
            assert [event["iteration"] for event in mine[1:]] == [1, 2, 3]
            assert all(event["kind"] == "progress" for event in mine[1:])

    def test_events_come_while_the_cell_runs(self, plan_of: PlanOf) -> None:
        (cell,) = plan_of(tasks=("addition",), seeds=1).cells

        def answer(cell: Cell, event: Event) -> None:
            if event["kind"] == "progress":
                (Path(cell.folder) / "answer").write_text("heard")

        launcher = self.launcher("tests.support.cells:until_answered", 1)
        running = launcher.run((cell,), answer, lambda: 0)
        assert [o.state for o in running] == ["done"]

    def test_only_json_crosses(self, plan_of: PlanOf) -> None:
        cell, other = plan_of(tasks=("addition", "list-ops"), seeds=1).cells
        other = needing(other, cell)
        outcomes, events = self.run((cell, other), "plain")
        assert {o.state for o in outcomes} == {"done"}
        for sent in (cell, other):
            arrived = Cell.model_validate_json((Path(sent.folder) / "cell").read_text())
            assert arrived == sent
            event = next(e for folder, e in events if folder == sent.folder and len(e) == 3)
            assert event == json.loads(json.dumps(event)) and type(event) is dict
            assert event["values"] == [1, [2, None]]  # type: ignore[typeddict-item]

    def test_an_event_that_json_does_not_hold_is_an_error(self, plan_of: PlanOf) -> None:
        (outcome,), _ = self.run(plan_of().cells[:1], "not_plain", jobs=1)
        assert (outcome.state, outcome.exit_code) == ("error", 1)
        assert "set" in outcome.message

    # -- ends ---------------------------------------------------------------------------------

    def test_one_bad_cell_keeps_the_others_going(self, plan_of: PlanOf) -> None:
        cells = plan_of(tasks=("addition", "list-ops", "counting"), seeds=1).cells
        outcomes = {o.cell.task: o for o in self.run(cells, "bad_in_addition")[0]}
        assert outcomes["list-ops"].state == "done"
        assert (outcomes["addition"].state, outcomes["addition"].exit_code) == ("error", 3)
        assert outcomes["addition"].message == "id.jsonl was changed"
        assert outcomes["counting"].exit_code == 1
        assert outcomes["counting"].message == "internal error: KeyError: 'bug'"
        assert "cells.py" in outcomes["counting"].traceback

    def test_a_run_that_breaks_a_rule_is_finished(self, plan_of: PlanOf) -> None:
        (outcome,), _ = self.run(plan_of().cells[:1], "fail_by_rule", jobs=1)
        assert outcome.state == "failed"
        assert "kl_cap" in outcome.message and "3" in outcome.message

    def test_what_a_cell_prints_goes_to_its_own_log(
        self, plan_of: PlanOf, capfd: pytest.CaptureFixture[str]
    ) -> None:
        cells = plan_of().cells[:2]
        self.run(cells, "chatty", jobs=1)
        captured = capfd.readouterr()
        assert "chat" not in captured.out + captured.err
        for cell in cells:
            lines = (Path(cell.folder) / "attempt.log").read_text().splitlines()
            assert sorted(lines) == sorted(
                [f"chat {cell.task} out", f"chat {cell.task} err", f"chat {cell.task} child"]
            )

    def test_a_killed_cell_is_begun_once_more_from_its_checkpoint(self, plan_of: PlanOf) -> None:
        cells = plan_of().cells[:2]
        outcomes, events = self.run(cells, "die_once")
        assert [o.state for o in outcomes] == ["done", "done"]
        for cell in cells:
            mine = [event for folder, event in events if folder == cell.folder]
            assert [e["attempt"] for e in mine if e["kind"] == "start"] == [1, 2]
            assert [e["iteration"] for e in mine if e["kind"] == "progress"] == [1, 2]

    def test_a_cell_killed_twice_is_lost(self, plan_of: PlanOf) -> None:
        (outcome,), events = self.run(plan_of().cells[:1], "die_always")
        assert outcome.state == "lost" and outcome.exit_code == 8
        assert "memory" in outcome.message and label(outcome.cell) in outcome.message
        assert "attempt.log" in outcome.message
        assert [event["kind"] for _, event in events] == ["start", "start"]

    def test_every_cell_that_began_has_exactly_one_outcome(self, plan_of: PlanOf) -> None:
        fates = ("lost", "failed", "error", "done")
        cells = [
            needing(cell, fate=fate)
            for cell, fate in zip(plan_of(seeds=2).cells, fates, strict=True)
        ]
        outcomes, events = self.run(cells, "fated")
        assert sorted(o.cell.folder for o in outcomes) == sorted(cell.folder for cell in cells)
        assert {o.cell.recipe_config["fate"]: o.state for o in outcomes} == {f: f for f in fates}
        assert {folder for folder, _ in events} == {cell.folder for cell in cells}

    # -- stops --------------------------------------------------------------------------------

    def test_stop_lets_running_cells_checkpoint_and_starts_no_others(self, plan_of: PlanOf) -> None:
        cells = plan_of(seeds=3).cells
        running: set[str] = set()

        def note(cell: Cell, event: Event) -> None:
            if event["kind"] == "progress":
                running.add(cell.folder)

        launcher = self.launcher("tests.support.cells:until_stopped", 2)
        outcomes = list(launcher.run(cells, note, lambda: 1 if len(running) == 2 else 0))
        assert [o.state for o in outcomes] == ["interrupted", "interrupted"]
        assert {o.exit_code for o in outcomes} == {130}
        assert all((Path(o.cell.folder) / "checkpoint").exists() for o in outcomes)
        assert sum(Path(cell.folder).exists() for cell in cells) == 2

    def test_the_second_stop_kills(self, plan_of: PlanOf) -> None:
        (cell,) = plan_of(tasks=("addition",), seeds=1).cells
        beat = Path(cell.folder) / "beat"
        began = time.monotonic()
        outcomes, _ = self.run((cell,), "deaf", stop=lambda: 2 if beat.exists() else 0)
        assert outcomes == [] and time.monotonic() - began < 30
        assert not still_beats(cell)

    def test_leaving_early_kills_what_runs(self, plan_of: PlanOf) -> None:
        deaf, quick = plan_of(seeds=1).cells
        cells = [needing(deaf, fate="deaf"), needing(quick)]
        launcher = self.launcher("tests.support.cells:fated", 2)
        with contextlib.closing(launcher.run(cells, lambda *_: None, lambda: 0)) as running:
            assert next(running).cell.folder == quick.folder
            read_when_there(Path(deaf.folder) / "beat")
        assert not still_beats(deaf)

    # -- needs --------------------------------------------------------------------------------

    def test_a_cell_begins_after_all_that_it_needs(self, plan_of: PlanOf) -> None:
        """A diamond and a chain through two seeds, handed over with the last ones first."""
        a, b, c, d = plan_of(tasks=("addition", "list-ops"), seeds=2).cells
        cells = [needing(d, b, c), needing(c, a), needing(b, a), a]
        outcomes, events = self.run(cells, "fated")
        assert [(o.state, o.message) for o in outcomes] == 4 * [("done", "")]
        starts = [folder for folder, event in events if event["kind"] == "start"]
        assert starts[0] == a.folder and starts[-1] == d.folder

    def test_a_need_that_dies_once_is_waited_for(self, plan_of: PlanOf) -> None:
        first, second = plan_of(seeds=1).cells
        cells = [needing(second, first), needing(first, fate="once")]
        outcomes, events = self.run(cells, "fated")
        assert [o.state for o in outcomes] == ["done", "done"]
        starts = [folder for folder, event in events if event["kind"] == "start"]
        assert starts == [first.folder, first.folder, second.folder]

    @pytest.mark.parametrize(
        ("fate", "exit_code", "words"),
        [
            ("failed", 7, ("upstream", "--fresh")),
            ("error", 8, ("error", "same command continues")),
            ("lost", 8, ("lost", "same command continues")),
        ],
    )
    def test_what_needs_a_bad_cell_has_one_outcome_and_is_not_begun(
        self, plan_of: PlanOf, fate: str, exit_code: int, words: tuple[str, ...]
    ) -> None:
        a, b, c, other = plan_of(tasks=("addition", "list-ops"), seeds=2).cells
        cells = [needing(a, fate=fate), needing(b, a), needing(c, a, b), needing(other)]
        outcomes, events = self.run(cells, "fated")
        ends = {o.cell.folder: o for o in outcomes}
        assert len(outcomes) == len(ends) == 4
        assert (ends[a.folder].state, ends[other.folder].state) == (fate, "done")
        for cell in (b, c):
            outcome = ends[cell.folder]
            assert (outcome.state, outcome.exit_code) == ("blocked", exit_code)
            assert label(a) in outcome.message
            assert all(word in outcome.message for word in words)
            assert begun(cell) == 0 and cell.folder not in {folder for folder, _ in events}

    def test_a_need_that_has_a_record_need_not_run(self, plan_of: PlanOf) -> None:
        first, second = plan_of(seeds=1).cells
        finish(first)
        outcomes, events = self.run([needing(second, first)], "fated")
        assert [(o.cell.folder, o.state) for o in outcomes] == [(second.folder, "done")]
        assert {folder for folder, _ in events} == {second.folder}

    def test_a_need_whose_record_says_failed_blocks(self, plan_of: PlanOf) -> None:
        first, second, third, _ = plan_of(seeds=2).cells
        finish(first, status=Status(state="failed", rule="kl_cap", at=3))
        cells = [needing(second, first), needing(third, second)]
        outcomes, events = self.run(cells, "fated")
        assert [(o.state, o.exit_code) for o in outcomes] == 2 * [("blocked", 7)]
        assert all(label(first) in o.message for o in outcomes)
        assert label(second) in outcomes[1].message and events == []

    def test_after_a_stop_what_waits_has_no_outcome(self, plan_of: PlanOf) -> None:
        first, second, third, _ = plan_of(seeds=2).cells
        cells = [needing(first), needing(second, first), needing(third, second)]
        running = Path(first.folder) / "running"
        outcomes, _ = self.run(cells, "until_stopped", stop=lambda: 1 if running.exists() else 0)
        assert [(o.cell.folder, o.state) for o in outcomes] == [(first.folder, "interrupted")]
        assert not Path(second.folder).exists() and not Path(third.folder).exists()

    def test_a_need_that_nobody_has_is_refused_before_anything_starts(
        self, plan_of: PlanOf
    ) -> None:
        first, second = plan_of(seeds=1).cells
        for wanted in (
            label(first),  # neither handed over nor finished
            label(second).replace("seed-00", "seed-07"),
            "other@0a1b2c3d/ppo/addition/real/seed-00",
            f"{label(second)}/../seed-00",
            "addition/real/seed-00",
            "",
        ):
            cell = second.model_copy(update={"needs": (wanted,)})
            with pytest.raises(UsageError) as refused:
                self.run([cell], "fated")
            assert label(second) in str(refused.value) and f"'{wanted}'" in str(refused.value)
        assert begun(second) == 0

    def test_a_finished_cell_of_another_plan_is_no_need(self, plan_of: PlanOf) -> None:
        (cell,) = plan_of(tasks=("addition",), seeds=1).cells
        model = Path(cell.folder).parents[3]
        elsewhere = model / "grpo" / Path(*Path(cell.folder).parts[-3:])
        other = cell.model_copy(update={"recipe": "grpo", "folder": str(elsewhere)})
        finish(other)
        with pytest.raises(UsageError, match="no cell of its plan"):
            self.run([needing(cell, other), other], "fated")
        assert begun(cell) == begun(other) == 0

    @pytest.mark.parametrize("length", [1, 2, 3])
    def test_a_circle_is_refused_before_anything_starts(
        self, plan_of: PlanOf, length: int
    ) -> None:
        cells = plan_of(seeds=2).cells
        circle = [needing(cells[i], cells[(i + 1) % length]) for i in range(length)]
        with pytest.raises(UsageError, match="circle") as refused:
            self.run([*cells[length:], *circle], "fated")
        message = str(refused.value)
        names = [label(cell) for cell in circle]
        turns = [names[i:] + names[: i + 1] for i in range(length)]
        assert any(" needs ".join(turn) in message for turn in turns)
        assert not any(map(begun, cells))

