"""A few of the kills and damaged files of :mod:`tests.support.disturb`, with real runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import disturb

KILLS, DAMAGES = 3, 5

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


@pytest.mark.slow
@pytest.mark.full  # minutes; kills and stops have tests of their own in tests/run and tests/stages
@pytest.mark.timeout(1800)
def test_what_was_disturbed_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    found = list(disturb.trials(KILLS, DAMAGES, seed=1, work=tmp_path))
    assert [trial for trial in found if trial.outcome == "FAULT"] == []
    assert len(found) == KILLS + DAMAGES and all(trial.done for trial in found)
    again = disturb.trials(KILLS, DAMAGES, seed=1, work=tmp_path)
    assert list(again) == []  # goes on where it stopped
    assert disturb.summary(tmp_path)[-2:] == [
        f"kill: {KILLS} trials, {{'equal': {KILLS}}}",
        f"damage: {DAMAGES} trials, {dict(disturb.outcomes(tmp_path, 'damage'))}",
    ]


def test_a_file_that_differs_is_found_and_times_are_not(tmp_path: Path) -> None:
    whole, other = tmp_path / "whole", tmp_path / "other"
    for home in (whole, other):
        (home / "seed-00" / "tb").mkdir(parents=True)
        (home / "seed-00" / "items.npz").write_bytes(b"scores")
        (home / "seed-00" / "record.json").write_text('{"a":1,"volatile":{}}')
    (other / "seed-00" / "record.json").write_text('{"a":1,"volatile":{"wall_s":[1]}}')
    (other / "seed-00" / "tb" / "events").write_text("x")
    (other / "ledger.jsonl").write_text("x")
    assert disturb.difference(other, disturb.state(whole)) == []
    (other / "seed-00" / "items.npz").write_bytes(b"scorez")
    assert disturb.difference(other, disturb.state(whole)) == ["seed-00/items.npz"]
    (other / "seed-00" / "record.json").write_text('{"a":2,"volatile":{}}')
    (other / "extra").write_text("x")
    assert len(disturb.difference(other, disturb.state(whole))) == 3
