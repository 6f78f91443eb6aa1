"""What a real run says while it runs is what the types of events declare."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints, is_typeddict

import pytest
from pydantic import TypeAdapter

from crlbench.algo import recipes
from crlbench.algo.recipe import to_config
from crlbench.contract import events
from crlbench.contract.conditions import override
from crlbench.contract.records import Cell
from crlbench.run.plan import Board, Contender, Declaration, Execution, NamedRecipe
from tests.support.commands import SHORT

KINDS = {get_args(get_type_hints(form)["kind"])[0]: form for form in get_args(events.Event)}


def check_form(value: Any, form: Any) -> None:
    """Exactly the fields, each of its type; a whole number is a float, a bool is no number."""
    if not is_typeddict(form):
        TypeAdapter(form).validate_python(value, strict=True)
        return
    fields = get_type_hints(form)
    assert set(value) == set(fields), form
    for name, kind in fields.items():
        check_form(value[name], kind)


def brief_cell(board: Board, model: Path, folder: Path) -> Cell:
    """A run of a second."""
    settings = {name: str(value) for name, value in SHORT.items()}
    settings |= {"budget.iterations_per_point": "1", "evaluation.retain": "[]"}
    conditions = override(board.conditions, settings)
    brief = replace(board, conditions=conditions, tasks=("addition",), division="open")
    contender = Contender(str(model), "very-tiny", "0a1b2c3d", "e" * 64)
    recipe = NamedRecipe("ppo", to_config(recipes.load("ppo")))
    quiet = Execution(loggers=())
    plan = Declaration(brief, contender, recipe, ("addition",), ("real",), 1, folder, quiet).plan()
    return plan.cells[0].model_copy(update={"entry_sha256": None, "control": {}})


@pytest.fixture
def cell(board: Board, model: Path, tmp_path: Path) -> Cell:
    return brief_cell(board, model, tmp_path)


@pytest.mark.slow
def test_a_run_says_what_is_declared(cell: Cell) -> None:
    from crlbench.run.execute import run_cell

    said: list[Any] = []
    run_cell(cell, lambda event: said.append(json.loads(json.dumps(event))), lambda: False)
    for event in said:
        check_form(event, KINDS[event["kind"]])
    budget = cell.conditions["budget"]
    whole = budget["grid"] * budget["iterations_per_point"]
    assert [e["phase"] for e in (said[0], said[-1])] == ["start", "end"]
    assert {event["iterations"] for event in said} == {whole}
    steps = [event["iteration"] for event in said]
    assert steps == sorted(steps) and set(steps) == set(range(whole + 1))
    train = [event for event in said if event["phase"] == "train"]
    assert train[0]["reward"] is None and train[0]["score"] is not None
    assert all(isinstance(event["reward"], float) for event in train[1:])
    assert 0 <= said[-1]["score"] == train[-1]["score"] <= 1


@pytest.mark.slow
def test_energy_stands_in_a_record_outside_of_its_id(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crlbench.proof.forms import Volatile
    from crlbench.run.execute import run_cell
    from crlbench.train import energy

    domain = tmp_path / "powercap" / "intel-rapl:0"
    domain.mkdir(parents=True)
    for name, content in (("name", "package-0"), ("max_energy_range_uj", "262143328850")):
        (domain / name).write_text(content)
    shown = [0]

    def spend(event: Any) -> None:
        """Every event costs a joule."""
        shown[0] += 1_000_000
        (domain / "energy_uj").write_text(str(shown[0]))

    spend(None)
    monkeypatch.setattr(energy, "POWERCAP", tmp_path / "powercap")
    measured = run_cell(cell, spend, lambda: False)
    monkeypatch.setattr(energy, "POWERCAP", tmp_path / "away")
    folder = cell.folder.replace("seed-00", "again")
    plain = run_cell(cell.model_copy(update={"folder": folder}), lambda _: None, lambda: False)
    assert measured.record_id == plain.record_id and measured.fingerprint == plain.fingerprint
    assert "energy_j" not in plain.volatile
    ((kind, joules),) = measured.volatile["energy_j"].items()
    assert kind == "cpu" and 1.0 <= joules <= shown[0] / 1e6 - 1
    for record in (measured, plain):
        check = TypeAdapter(Volatile).validate_python
        check(record.volatile)
        with pytest.raises(ValueError, match="energy_j"):
            check(record.volatile | {"energy_j": {"sun": 1.0}})


def test_a_calibration_says_what_is_declared(cell: Cell) -> None:
    from crlbench.commands.dry_run import report_calibration

    said: list[Any] = []
    report_calibration(cell, said.append, lambda: False)
    (event,) = json.loads(json.dumps(said))
    check_form(event, KINDS["calibration"])
    assert all(figure >= 0 for figure in event["figures"].values())


def test_what_a_mode_arm_asks_its_start_is_no_part_of_starting_up(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked once for all runs of a model and task; the start-up is paid by each."""
    from crlbench.run import execute

    passed = [0.0]
    agreement = execute.StartScores.agreement

    def slow(*given: Any) -> Any:
        passed[0] += 1000.0
        return agreement(*given)

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0], time=time.time)
    monkeypatch.setattr(execute, "time", clock)
    monkeypatch.setattr(execute.StartScores, "agreement", slow)
    figures = execute.calibrate(cell.model_copy(update={"arm": "mode"}))
    assert passed == [1000.0] and figures["startup_s"] < 1000
    per_item = figures["evaluation_s"] / cell.conditions["evaluation"]["curve_items"]
    assert figures["greedy_s"] == pytest.approx(2048 * per_item)


@pytest.mark.parametrize(
    "event",
    [
        {"kind": "start", "attempt": 1},
        {"kind": "rebuilt", "file": "start/addition.npz", "reason": "damaged"},
    ],
)
def test_forms_refuse_what_is_more_less_or_another_type(event: dict[str, Any]) -> None:
    """The check itself is no rubber stamp."""
    form = KINDS[event["kind"]]
    check_form(event, form)
    wrong: list[Callable[[], dict[str, Any]]] = [
        lambda: event | {"more": 1},
        lambda: {"kind": event["kind"]},
        lambda: event | {name: [] for name in event if name != "kind"},
    ]
    for change in wrong:
        with pytest.raises((AssertionError, ValueError)):
            check_form(change(), form)
