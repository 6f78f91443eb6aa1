"""The ledger is a chain: what was tried cannot be taken back unseen."""

from __future__ import annotations

from pathlib import Path

import pytest

from crlbench.disk.linked_lines import GENESIS
from crlbench.errors import ValidationError
from crlbench.run.ledger import Ledger, read


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append("plan", tasks=["addition"], arms={"real": 5})
    ledger.append("start", "m/ppo/addition/real/seed-00", attempt=1)
    ledger.append("failed", "m/ppo/addition/real/seed-00", rule="kl_cap")
    return ledger


def test_entries_form_a_chain_that_survives_reopening(ledger: Ledger) -> None:
    again = Ledger(ledger.path)
    assert again.entries == ledger.entries
    assert again.entries[0]["previous"] == GENESIS
    later = again.append("resume", "m/ppo/addition/real/seed-00")
    assert later["previous"] == ledger.entries[-1]["hash"] and later["n"] == 3


@pytest.mark.parametrize("line", [0, 1])
def test_a_removed_attempt_shows(ledger: Ledger, line: int) -> None:
    lines = ledger.path.read_text().splitlines(keepends=True)
    del lines[line]
    ledger.path.write_text("".join(lines))
    with pytest.raises(ValidationError, match=rf"ledger\.jsonl:{line + 1}: .*begins a new ledger"):
        read(ledger.path)


def test_a_changed_attempt_shows(ledger: Ledger) -> None:
    ledger.path.write_text(ledger.path.read_text().replace("kl_cap", "nothing"))
    with pytest.raises(ValidationError, match=r"ledger\.jsonl:3"):
        Ledger(ledger.path)


def test_a_torn_last_line_is_cut_off(ledger: Ledger) -> None:
    with open(ledger.path, "ab") as file:
        file.write(b'{"n":3,"event":"do')
    again = Ledger(ledger.path)
    assert len(again.entries) == 3
    again.append("done", "m/ppo/addition/real/seed-00")
    assert [entry["event"] for entry in read(ledger.path)] == ["plan", "start", "failed", "done"]


def test_the_host_is_a_pseudonym(ledger: Ledger) -> None:
    import socket

    assert socket.gethostname() not in ledger.path.read_text()
    assert len(ledger.entries[0]["host"]) == 12


def test_an_absent_ledger_is_empty(tmp_path: Path) -> None:
    assert read(tmp_path / "ledger.jsonl") == []


@pytest.mark.parametrize(
    ("event", "detail", "message"),
    [
        ("gone", {}, "event 'gone', expected one of"),
        ("plan", {"tasks": "addition"}, "detail.tasks"),
        ("plan", {"arms": {"real": 10**12}}, "detail.arms"),
        ("plan", {"tasks": [], "plan_hash": "ab"}, "detail.plan_hash is of another plan"),
        ("start", {}, "cell is missing"),
    ],
)
def test_a_sound_chain_of_what_are_no_events_is_refused(
    ledger: Ledger, event: str, detail: dict, message: str
) -> None:
    ledger.append(event, None, **detail)
    with pytest.raises(ValidationError, match=rf"ledger\.jsonl:4: no event of a ledger: {message}"):
        read(ledger.path)


@pytest.mark.parametrize("number", ["NaN", "1e999"])
def test_numbers_that_json_does_not_know_are_damage(ledger: Ledger, number: str) -> None:
    lines = ledger.path.read_text().splitlines()
    lines[2] = lines[2].replace('"n":2', f'"n":{number}')
    ledger.path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValidationError, match=r"ledger\.jsonl:3"):
        read(ledger.path)
