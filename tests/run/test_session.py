"""A sitting needs of its launcher no more than names and plain data."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from crlbench.contract.attempts import LEDGER_NAME, declarations, histories, planned, read
from crlbench.contract.record_files import read_record
from crlbench.contract.records import Cell
from crlbench.disk.hashing import canonical_json
from crlbench.disk.linked_lines import linked
from crlbench.errors import EnvironmentUnfit
from crlbench.run.launcher import Outcome, StopLevel
from crlbench.run.ledger import Ledger
from crlbench.run.mend import identity
from crlbench.run.plan import Plan, label
from crlbench.run.progress import Progress
from crlbench.run.session import StopSwitch, opened, run_missing, survey
from crlbench.run.store import write_json
from crlbench.verdict.attempts import read_attempts
from tests.run.test_plan import finish

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


# -- --fresh takes nothing back ------------------------------------------------------------


def fresh(plan: Plan) -> list[dict[str, Any]]:
    """What the ledger says once the plan was opened with --fresh."""
    with opened([plan], "test", fresh=True, shard=None):
        return read(plan.folder / LEDGER_NAME)


@pytest.fixture
def twenty(plan_of: PlanOf) -> Plan:
    """Twenty seeds were declared, and two runs began."""
    plan = plan_of(tasks=("addition",), seeds=20)
    with opened([plan], "test", fresh=False, shard=None) as work:
        for cell in plan.cells[:2]:
            work.ledger(cell).append("start", label(cell), plan_hash=plan.hash)
    return plan


def damage(path: Path, line: int) -> bytes:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:line], b'{"n":0}\n', *lines[line + 1 :]]))
    return path.read_bytes()


@pytest.mark.parametrize("kept", ["plan", "ledger", "both"])
def test_a_damaged_ledger_is_kept_and_what_it_declared_holds(
    twenty: Plan, plan_of: PlanOf, kept: str
) -> None:
    ledger = twenty.folder / LEDGER_NAME
    content = damage(ledger, 0 if kept == "plan" else 1)
    if kept == "ledger":
        twenty.path.unlink()
    entries = fresh(plan_of(tasks=("addition",), seeds=5))
    assert (twenty.folder / "ledger.damaged-1.jsonl").read_bytes() == content
    (event,) = (entry for entry in entries if entry["event"] == "rebuilt")
    assert event["cell"] == LEDGER_NAME and event["detail"]["kept"] == "ledger.damaged-1.jsonl"
    assert f"{1 if kept == 'plan' else 2}" in event["detail"]["reason"]
    assert planned(declarations(entries)) == {("addition", "real"): 20}
    assert not list(twenty.folder.glob("*.new.*"))
    read_attempts(twenty.folder)
    damage(ledger, 0)
    fresh(twenty)
    assert (twenty.folder / "ledger.damaged-2.jsonl").exists()
    assert (twenty.folder / "ledger.damaged-1.jsonl").read_bytes() == content


def test_a_damaged_plan_is_kept_and_stays_declared(twenty: Plan, plan_of: PlanOf) -> None:
    twenty.path.write_text("{")
    entries = fresh(plan_of(tasks=("addition",), seeds=5))
    assert (twenty.folder / "plan.damaged-1.json").read_text() == "{"
    event = next(entry for entry in entries if entry["event"] == "rebuilt")
    assert (event["cell"], event["detail"]["kept"]) == ("plan.json", "plan.damaged-1.json")
    assert planned(declarations(entries)) == {("addition", "real"): 20}
    read_attempts(twenty.folder)


def test_a_stored_plan_stays_declared_where_the_ledger_is_gone(
    twenty: Plan, plan_of: PlanOf
) -> None:
    (twenty.folder / LEDGER_NAME).unlink()
    with opened([plan_of(tasks=("addition",), seeds=5)], "test", fresh=False, shard=None):
        entries = read(twenty.folder / LEDGER_NAME)
    assert planned(declarations(entries)) == {("addition", "real"): 20}
    read_attempts(twenty.folder)


def test_a_ledger_and_a_plan_may_both_be_damaged(twenty: Plan) -> None:
    damage(twenty.folder / LEDGER_NAME, 1)
    twenty.path.write_text("{")
    entries = fresh(twenty)
    assert [e["cell"] for e in entries if e["event"] == "rebuilt"] == [LEDGER_NAME, "plan.json"]
    assert planned(declarations(entries)) == {("addition", "real"): 20}
    read_attempts(twenty.folder)


@pytest.fixture
def dies_before(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Lets a command die when it is about to put a file somewhere."""
    import os

    replace = os.replace

    def arm(last: Path) -> None:
        def dies(source: Path, target: Path) -> None:
            if Path(target) == last:
                raise OSError("power cut")
            replace(source, target)

        monkeypatch.setattr(os, "replace", dies)

    return arm


def test_a_damaged_ledger_stands_until_the_new_one_is_whole(
    twenty: Plan, dies_before: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = twenty.folder / LEDGER_NAME
    content = damage(ledger, 1)
    dies_before(ledger)
    with pytest.raises(EnvironmentUnfit, match="power cut"):
        fresh(twenty)
    assert ledger.read_bytes() == content
    monkeypatch.undo()
    entries = fresh(twenty)
    assert [e["cell"] for e in entries if e["event"] == "rebuilt"] == [LEDGER_NAME]
    assert len(list(twenty.folder.glob("ledger.damaged-*"))) == 1


def test_a_plan_is_set_aside_after_the_ledger_says_so(
    twenty: Plan, dies_before: Callable[[Path], None]
) -> None:
    twenty.path.write_text("{")
    dies_before(twenty.folder / "plan.damaged-1.json")
    with pytest.raises(EnvironmentUnfit, match="power cut"):
        fresh(twenty)
    assert read(twenty.folder / LEDGER_NAME)[-1]["cell"] == "plan.json"
    assert twenty.path.read_text() == "{"


# -- a ledger that is gone, cut or another --------------------------------------------------------


def open_again(plan: Plan) -> tuple[list[dict[str, Any]], list[str]]:
    """The same command again: its ledger then, and what it said."""
    with opened([plan], "test", fresh=False, shard=None) as work:
        return read(plan.folder / LEDGER_NAME), list(work.said)


@pytest.fixture
def ended(plan_of: PlanOf) -> Plan:
    """One of two runs has ended, with a record and without a checkpoint."""
    plan = plan_of(tasks=("addition",), seeds=2)
    with opened([plan], "test", fresh=False, shard=None) as work:
        cell = plan.cells[0]
        work.ledger(cell).append("start", label(cell), plan_hash=plan.hash, attempt=1)
        path = finish(cell)
        known = identity(path, read_record(path))
        work.ledger(cell).append("done", label(cell), **known)
    return plan


def cut_at_a_line(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def cut_in_a_line(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def another(path: Path) -> None:
    """A sound ledger of the same length that was never written here."""
    entries: list[dict[str, Any]] = []
    for line in path.read_text().splitlines():
        body = {k: v for k, v in json.loads(line).items() if k not in ("hash", "previous", "n")}
        entries.append(linked(entries, body | {"host": "0" * 12}))
    path.write_text("".join(canonical_json(entry) + "\n" for entry in entries))


def cut_with_its_end(path: Path) -> None:
    """Only the first line is left, and nothing that says that there were more."""
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    path.with_suffix(".head.json").unlink()


def cut_with_a_damaged_end(path: Path) -> None:
    cut_with_its_end(path)
    path.with_suffix(".head.json").write_bytes(b"{}")


@pytest.mark.parametrize(
    ("damaging", "why"),
    [
        (Path.unlink, "gone beside"),
        (cut_with_its_end, "it knows no attempt of"),
        (cut_with_a_damaged_end, "it knows no attempt of"),
        (cut_at_a_line, "the last ones are gone"),
        (cut_in_a_line, "the last ones are gone"),
        (another, "is another"),
        (lambda path: path.write_bytes(b""), "the last ones are gone"),
        (lambda path: path.write_bytes(bytes(500)), "the last ones are gone"),
        (lambda path: path.write_bytes(path.read_bytes() + b"noise\n"), "does not follow"),
        (lambda path: damage(path, 1), "does not follow"),
    ],
)
def test_a_ledger_is_never_reset_in_silence(
    ended: Plan, damaging: Callable[[Path], Any], why: str
) -> None:
    ledger = ended.folder / LEDGER_NAME
    (record,) = ended.folder.rglob("record.json")
    content = record.read_bytes()
    damaging(ledger)
    entries, said = open_again(ended)
    (event,) = (entry for entry in entries if entry["event"] == "rebuilt")
    assert event["cell"] == LEDGER_NAME and why in event["detail"]["reason"]
    assert "never rank" in said[0] and str(ledger) in said[0]
    assert [e["cell"] for e in entries if e["event"] == "done"] == [label(ended.cells[0])]
    assert histories(entries)[label(ended.cells[0])].ends == (read_record(record).record_id,)
    assert planned(declarations(entries)) == {("addition", "real"): 2}
    assert record.read_bytes() == content
    found = read_attempts(ended.folder)
    assert found is not None and found.discarded == (LEDGER_NAME,)
    assert open_again(ended) == (entries, [])


@pytest.mark.parametrize("content", [None, b"", b"{}", bytes(90), b'{"lines":9,"hash":"f"}'])
def test_the_end_of_a_ledger_is_stated_again_where_that_was_damaged(
    ended: Plan, content: bytes | None
) -> None:
    head = ended.folder / "ledger.head.json"
    before = head.read_bytes()
    head.unlink() if content is None else head.write_bytes(content)
    entries, said = open_again(ended)
    assert not [entry for entry in entries if entry["event"] == "rebuilt"]
    assert head.read_bytes() == before
    assert len(said) == (content is not None)


def test_a_ledger_may_have_grown_before_its_end_was_stated(ended: Plan) -> None:
    head = ended.folder / "ledger.head.json"
    before = head.read_bytes()
    Ledger(ended.folder / LEDGER_NAME).append("start", label(ended.cells[1]), plan_hash=ended.hash)
    head.write_bytes(before)  # as a kill between the two leaves it
    entries, said = open_again(ended)
    assert entries[-1]["event"] == "start" and said == []


def test_a_ledger_of_an_earlier_version_is_taken_as_it_is(ended: Plan) -> None:
    (ended.folder / "ledger.head.json").unlink()
    assert open_again(ended)[1] == []


@pytest.mark.parametrize(
    "damaging",
    [
        lambda path, other: path.write_text("{"),
        lambda path, other: path.write_bytes(b""),
        lambda path, other: path.write_text(path.read_text().replace('"partial":false', "1")),
        lambda path, other: path.write_bytes(other.read_bytes()),
        lambda path, other: path.write_bytes(path.read_bytes()[:-40]),
    ],
)
def test_a_damaged_plan_is_written_again_from_the_ledger(
    ended: Plan, plan_of: PlanOf, damaging: Callable[[Path, Path], Any], tmp_path: Path
) -> None:
    other = plan_of(recipe=("ppo", {"clip": {"low": 0.1}}))
    foreign = tmp_path / "foreign.json"
    write_json(foreign, other.stored)
    content = ended.path.read_bytes()
    damaging(ended.path, foreign)
    narrower = plan_of(tasks=("addition",), seeds=1)
    entries, said = open_again(narrower)
    assert ended.path.read_bytes() == content
    assert [e["cell"] for e in entries if e["event"] == "rebuilt"] == ["plan.json"]
    assert len(said) == 1 and "written again from the ledger" in said[0]
    found = read_attempts(ended.folder)
    assert found is not None and found.discarded == ()


def test_a_narrower_command_puts_no_narrower_plan_in_the_place_of_one_that_is_gone(
    ended: Plan, plan_of: PlanOf
) -> None:
    content = ended.path.read_bytes()
    ended.path.unlink()
    open_again(plan_of(tasks=("addition",), seeds=1))
    assert ended.path.read_bytes() == content


def test_times_of_a_record_that_were_changed_are_said(ended: Plan) -> None:
    (path,) = ended.folder.rglob("record.json")
    record = json.loads(path.read_text())
    write_json(path, record | {"volatile": {"wall_s": 99.0}})
    _, said = open_again(ended)
    assert len(said) == 1 and "record.json" in said[0] and "volatile" in said[0]


def test_a_lost_run_is_missing_and_not_vanished(plan_of: PlanOf) -> None:
    plan = plan_of(tasks=("addition",), seeds=1)
    (cell,) = plan.cells
    with opened([plan], "test", fresh=False, shard=None) as work:
        for event in ("start", "lost"):
            work.ledger(cell).append(event, label(cell), plan_hash=plan.hash)
    assert survey([plan]).missing == [cell] and survey([plan]).vanished == []
    found = read_attempts(plan.folder)
    assert found is not None and not found.vanished(("addition", "real", 0))
