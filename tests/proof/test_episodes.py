"""Stored episodes are played again: whatever was changed in one is found."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.contract.verification import Finding
from crlbench.disk.names import EPISODES
from crlbench.proof.episodes import check_played, check_read, check_spoken
from crlbench.proof.facts import Facts, facts_of
from crlbench.proof.rescore import reader_of, rescore
from crlbench.proof.scores import check_splits
from crlbench.run.subject import confined_task, load_task
from crlbench.stats.measures import BLIND
from crlbench.verdict.archive import Archive
from crlbench.verdict.entry import make_entry
from crlbench.verdict.load import load_runs
from crlbench.verdict.runs import Run
from tests.support.shared import made_once

pytestmark = pytest.mark.slow

SHORT = {
    "budget.prompts": 4,
    "budget.completions": 4,
    "budget.grid": 1,
    "budget.iterations_per_point": 1,
    "evaluation.curve_items": 8,
    "evaluation.end_items": 8,
    "evaluation.end_draws": 2,
    "evaluation.blind_draws": 3,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a short command on an environment; nothing may change it."""

    def run(out: Path) -> Path:
        pairs = [part for name, value in SHORT.items() for part in ("--set", f"{name}={value}")]
        where = ["--model", "tiny-llama", "--tasks", "relay-sum", "--out", str(out)]
        assert cli.main(["evaluate", *where, "--seeds", "1", *pairs, "-q"]) == 0
        (plan,) = out.rglob("plan.json")
        return plan.parent

    return made_once(tmp_path_factory, "episodes", run)


@pytest.fixture
def played(folder: Path) -> Facts:
    (run,) = load_runs(folder)
    facts = facts_of(run)
    assert isinstance(facts, Facts) and EPISODES in run.record.files
    return facts


def rows_of(facts: Facts) -> list[dict[str, Any]]:
    return [asdict(sample) for sample in facts.run.samples()]


def findings(facts: Facts, confined: bool = False) -> list[Finding]:
    rows = rows_of(facts)
    task = (confined_task if confined else load_task)("relay-sum", ())
    spoken = [*check_spoken(facts, rows, "environment")]
    return spoken or [*check_played(facts, rows, task)]


@pytest.mark.parametrize("confined", [False, True])
def test_a_run_keeps_its_episodes(played: Facts, confined: bool) -> None:
    rows, episodes = rows_of(played), played.run.episodes()
    assert len(rows) == len(episodes) == 16
    assert findings(played, confined) == []
    assert {row["x"] for row in rows} == {0, 16}
    assert [*rescore(played, rows, load_task("relay-sum", ()))] == []
    turns = [turn for episode in episodes for turn in episode["turns"]]
    assert len(turns) > 16 and any(sum(turn["paid"]) > 0 for turn in turns)
    assert all(turn["tokens"] > 0 and turn["observation"] for turn in turns)


def test_a_run_stores_what_it_scored_blind(played: Facts, folder: Path) -> None:
    """Both ends, as the conditions ask; a changed number is found, and the share is published."""
    stored = played.record.splits[BLIND]
    start, end = (played.run.split_items(BLIND, end=side) for side in (False, True))
    assert start is not None and end is not None and start.shape == end.shape == (3, 8)
    assert stored.start == start.mean() and stored.draws == 3
    assert [*check_splits(played)] == []
    without = {k: v for k, v in played.record.splits.items() if k != BLIND}
    forged = played.record.model_copy(update={"splits": without})
    assert [*check_splits(replace(played, run=replace(played.run, record=forged)))]
    entry = make_entry([played.run], ["relay-sum"], Archive(load_runs(folder)), None, count=20)
    assert entry.blind is not None
    assert entry.blind["relay-sum"].blind == pytest.approx(end.mean() - start.mean())


def changed(path: list[Any], value: Any) -> Callable[[list[Any]], object]:
    def change(episodes: list[Any]) -> None:
        place = episodes[3]
        for name in path[:-1]:
            place = place[name]
        assert place[path[-1]] != value
        place[path[-1]] = value

    return change


FORGED: dict[str, tuple[Callable[[list[Any]], object], str]] = {
    "another state": (changed(["turns", 0, "state"], "0" * 16), "turns 0 state"),
    "another last state": (changed(["end"], "0" * 16), "line 4: end"),
    "another observation": (
        changed(["turns", 0, "observation", 1, "content"], "1+1="),
        "turns 0 observation 1 content",
    ),
    "another text": (changed(["turns", 0, "said"], "1"), "said"),
    "another payment": (changed(["turns", 0, "paid", 0], 0.25), "turns 0 paid 0"),
    "a fault that was none": (changed(["turns", 0, "fault"], "no legs"), "turns 0 fault"),
    "another score": (changed(["scores", 0], 0.5), "line 4: scores 0"),
    "no tokens": (changed(["turns", 0, "tokens"], 0), "turn 0: tokens"),
    "a number that is true": (changed(["turns", 0, "tokens"], True), "turn 0: tokens"),
    "another item": (changed(["uid"], "relay-sum/id/id-00009"), "line 4: uid"),
    "another time": (changed(["x"], 5), "line 4: x"),
    "a field more": (lambda episodes: episodes[3].update(more=1), "line 4: more"),
    "no turns": (lambda episodes: episodes[3].pop("turns"), "line 4: turns"),
    "a turn less": (lambda episodes: episodes[3]["turns"].pop(), "line 4: said"),
    "two change places": (lambda e: e.__setitem__(slice(3, 5), [e[4], e[3]]), "line 4: uid"),
    "an episode less": (lambda episodes: episodes.pop(), "(whole)"),
    "no episodes": (lambda episodes: episodes.clear(), "(whole)"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_episode_is_found(
    played: Facts, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, field = FORGED[name]
    episodes = copy.deepcopy([*played.run.episodes()])
    change(episodes)
    monkeypatch.setattr(Run, "episodes", lambda run: tuple(episodes))
    found = findings(played)
    assert found and all(finding.file == EPISODES for finding in found)
    assert any(field in finding.field for finding in found), found


def test_a_forged_transcript_that_both_files_hold_is_found(
    played: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples and episodes agree on a text that was never said: states and scores do not follow."""
    episodes, rows = copy.deepcopy([*played.run.episodes()]), rows_of(played)
    place = next(i for i, row in enumerate(rows) if row["score"] == 0.0)
    for turn in episodes[place]["turns"]:
        left, right = turn["observation"][1]["content"].rstrip("=").split("+")
        turn["said"] = str(int(left) + int(right))
    texts = [turn["said"] for turn in episodes[place]["turns"]]
    rows[place]["completion"] = "[" + ",".join(f'"{text}"' for text in texts) + "]"
    monkeypatch.setattr(Run, "episodes", lambda run: tuple(episodes))
    assert not [*check_spoken(played, rows, "environment")]
    assert [*check_played(played, rows, load_task("relay-sum", ()))]


@pytest.fixture(scope="module")
def tools_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a short command on an environment with tools; nothing may change it."""

    def run(out: Path) -> Path:
        pairs = [part for name, value in SHORT.items() for part in ("--set", f"{name}={value}")]
        where = ["--model", "tiny-llama", "--tasks", "lookup", "--out", str(out)]
        assert cli.main(["evaluate", *where, "--seeds", "1", *pairs, "-q"]) == 0
        (plan,) = out.rglob("plan.json")
        return plan.parent

    return made_once(tmp_path_factory, "tool-episodes", run)


def test_calls_are_read_again_from_what_was_said(
    tools_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that stands in no text was not made, though the episode that it leads to is one."""
    (run,) = load_runs(tools_folder)
    facts, task = facts_of(run), load_task("lookup", ())
    assert isinstance(facts, Facts)
    reader = reader_of(Catalog().load_model("tiny-llama"))
    assert [*check_read(facts, task, reader)] == []
    episodes = copy.deepcopy([*facts.run.episodes()])
    turn = episodes[2]["turns"][0]
    text = turn["said"] if isinstance(turn["said"], str) else turn["said"]["text"]
    call = {"name": "get", "arguments": {"key": "zz"}}
    turn["said"] = {"text": text, "calls": [call], "malformed": "", "cut": False}
    monkeypatch.setattr(Run, "episodes", lambda run: tuple(episodes))
    (found,) = check_read(facts, task, reader)
    assert found.field == "line 3: turn 0: said" and found.file == EPISODES


def test_two_jobs_play_what_one_does(folder: Path, tmp_path: Path) -> None:
    """The run of the first seed beside another one, each in a process of its own: bit by bit."""
    pairs = [part for name, value in SHORT.items() for part in ("--set", f"{name}={value}")]
    where = ["--model", "tiny-llama", "--tasks", "relay-sum", "--out", str(tmp_path)]
    pairs += ["--set", "rules.score_drop=1"]  # so short a run may end below its start
    assert cli.main(["evaluate", *where, "--seeds", "2", "--jobs", "2", *pairs, "-q"]) == 0
    first, *_ = sorted(folder.rglob("digests.jsonl"))
    both = sorted(tmp_path.rglob("digests.jsonl"))
    assert len(both) == 2 and both[0].read_bytes() == first.read_bytes() != both[1].read_bytes()
    for name in (EPISODES, "curve.csv"):
        assert (both[0].parent / name).read_bytes() == (first.parent / name).read_bytes()


def test_a_run_in_another_history_verifies(tmp_path: Path, capsys: Any) -> None:
    pairs = [part for name, value in SHORT.items() for part in ("--set", f"{name}={value}")]
    where = ["--model", "tiny-llama", "--tasks", "relay-sum", "--out", str(tmp_path)]
    other = ["--set", "play.history=append"]
    assert cli.main(["evaluate", *where, "--seeds", "1", *pairs, *other, "-q"]) == 0
    assert "play.history = append" in capsys.readouterr().err
    (plan,) = tmp_path.rglob("plan.json")
    assert cli.main(["verify", str(plan.parent), "--recompute-only"]) == 0


def test_other_tasks_have_no_episodes(played: Facts) -> None:
    listed, lines = check_spoken(played, rows_of(played), "single-turn")
    assert (listed.field, listed.stored, listed.expected) == ("files", True, False)
    assert (lines.file, lines.stored, lines.expected) == (EPISODES, 16, 0)


def test_verify_plays_them_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", str(folder), "--recompute-only"]) == 0
    text = capsys.readouterr().out
    assert "verified again: 16 stored completions (relay-sum 1.0.0)" in text
    assert "played again: 16 stored episodes, turn by turn" in text
