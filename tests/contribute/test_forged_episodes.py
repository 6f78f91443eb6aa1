"""Forged episodes, in an entry whose every hash fits: each is refused, and its field is named.

``submit`` refuses the runs, ``validate`` the entry with exit code 3, ``verify`` with 5.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crlbench.catalog.find import Catalog
from crlbench.disk.names import EPISODES, SAMPLES
from crlbench.play.record import describe, sayings_in, transcript_of
from crlbench.reward.env import read_start
from tests.contribute.forger import Forger
from tests.contribute.honest import TRACK, copied, crlbench, evaluated, submitted
from tests.support.shared import made_once

pytestmark = pytest.mark.slow

TASKS = ("relay-sum", "lookup")


@pytest.fixture(scope="session")
def played_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalogue whose track ``nano`` has an environment of sums and one with a tool."""
    tracks = tmp_path_factory.mktemp("played-catalog") / "leaderboard" / "tracks"
    tracks.mkdir(parents=True)
    text = TRACK.replace('"addition", "counting"', ", ".join(f'"{task}"' for task in TASKS))
    (tracks / "nano.toml").write_text(text)
    return tracks.parents[1]


@pytest.fixture(scope="session")
def played_runs(played_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One seed of each task."""

    def run(out: Path) -> Path:
        return evaluated(out, played_home, model="tiny-llama", arms="real")

    return made_once(tmp_path_factory, "played-runs", run)


@pytest.fixture(scope="session")
def played_entry(
    played_home: Path, played_runs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The same, submitted."""
    return made_once(
        tmp_path_factory, "played-entry", lambda out: submitted(played_runs, out, played_home)
    )


def cell(task: str) -> str:
    return f"{task}/real/seed-00"


Json = dict[str, Any]
Change = Callable[[list[Json], list[Json]], object]
"""Of the episodes and the samples of a run."""


def turn_of(episodes: list[Json], number: int = 0) -> Json:
    found: Json = episodes[2]["turns"][number]
    return found


def retold(episodes: list[Json], samples: list[Json], number: int) -> None:
    """The sample says what the episode says, so that both files agree."""
    samples[number]["completion"] = transcript_of(sayings_in(episodes[number]))


def other_text(episodes: list[Json], samples: list[Json]) -> None:
    turn_of(episodes)["said"] = "77777"
    retold(episodes, samples, 2)


def other_order(episodes: list[Json], samples: list[Json]) -> None:
    place = next(n for n, one in enumerate(episodes) if len({t["said"] for t in one["turns"]}) > 1)
    episodes[place]["turns"].reverse()
    retold(episodes, samples, place)


def without_last_turn(episodes: list[Json], samples: list[Json]) -> None:
    place = next(n for n, one in enumerate(episodes) if len(one["turns"]) > 1)
    episodes[place]["turns"].pop()
    retold(episodes, samples, place)


def longer(episodes: list[Json], samples: list[Json]) -> None:
    turn_of(episodes)["said"] = "7" * 99_999
    retold(episodes, samples, 2)


def called(episodes: list[Json], samples: list[Json]) -> None:
    """A call that the text does not hold, played as if it did."""
    calls = [{"name": "get", "arguments": {"key": "a"}}]
    turn_of(episodes)["said"] = {"text": "x", "calls": calls, "malformed": "", "cut": False}
    retold(episodes, samples, 2)


def other_start(episodes: list[Json], samples: list[Json]) -> None:
    for one in samples:
        one["answer"] = samples[3]["answer"]


def put(*path: Any, value: Any) -> Change:
    def change(episodes: list[Json], samples: list[Json]) -> None:
        place: Any = episodes[2]
        for name in path[:-1]:
            place = place[name]
        assert repr(place[path[-1]]) != repr(value)
        place[path[-1]] = value

    return change


def cut_at(count: int, text: str = "?") -> Change:
    """A failed episode becomes one turn that was cut off, played as it would be."""

    def change(episodes: list[Json], samples: list[Json]) -> None:
        place = next(n for n, sample in enumerate(samples) if sample["score"] == 0.0)
        start, episode = read_start(samples[place]["answer"]), episodes[place]
        environment = Catalog().load_task(episode["uid"].partition("/")[0]).environment
        said = {"text": text, "calls": [], "malformed": "", "cut": True}
        episode.update(describe(environment, start, [(said, count)]))
        assert episode["scores"] == [0.0]
        retold(episodes, samples, place)

    return change


def tokens(count: int) -> Change:
    """So many tokens of a turn of five characters or more that was not cut off."""

    def change(episodes: list[Json], samples: list[Json]) -> None:
        turns = [turn for episode in episodes for turn in episode["turns"]]
        turn = next(t for t in turns if isinstance(t["said"], str) and len(t["said"]) > 4)
        assert turn["tokens"] != count
        turn["tokens"] = count

    return change


FIRST = ("turns", 0)
FORGED: dict[str, tuple[str, Change, str]] = {
    "said": ("relay-sum", other_text, "line 3: "),
    "said in one file": ("relay-sum", put(*FIRST, "said", value="77777"), "line 3: said"),
    "observation": (
        "relay-sum",
        put(*FIRST, "observation", 1, "content", value="1+1="),
        "line 3: turns 0 observation 1 content",
    ),
    "state": ("relay-sum", put(*FIRST, "state", value="0" * 16), "line 3: turns 0 state"),
    "last state": ("relay-sum", put("end", value="0" * 16), "line 3: end"),
    "outcome": ("relay-sum", put("scores", 0, value=0.5), "line 3: scores 0"),
    "order of turns": ("relay-sum", other_order, r"line \d+: "),
    "a turn less": ("relay-sum", without_last_turn, r"line \d+: said: .*the episode goes on"),
    "start": ("relay-sum", other_start, "line 1: answer"),
    "item": ("relay-sum", put("uid", value="relay-sum/id/id-00009"), "line 3: uid"),
    "time": ("relay-sum", put("x", value=7), "line 3: x"),
    "paid": ("relay-sum", put(*FIRST, "paid", 0, value=0.25), "line 3: turns 0 paid 0"),
    "a zero with a sign": ("lookup", put(*FIRST, "paid", 0, value=-0.0), "line 3: turns 0 paid 0"),
    "fault": ("relay-sum", put(*FIRST, "fault", value="no legs"), "line 3: turns 0 fault"),
    "seat": ("relay-sum", put(*FIRST, "seat", value=False), "line 3: turns 0 seat"),
    "tool reply": (
        "lookup",
        put(*FIRST, "observation", -1, "content", value="get a"),
        r"line 3: turns 0 observation \d content",
    ),
    "calls": ("lookup", called, r"line 3: turn 0: said|line 3: turns 0"),
    "tokens": ("relay-sum", put(*FIRST, "tokens", value=9_999), "line 3: turn 0: tokens"),
    "a turn that is cut off anywhere": ("relay-sum", cut_at(1), r"turn 0: tokens: stored 1"),
    "a text of no token": ("lookup", tokens(1), r"turn \d: tokens: stored 1"),
    "a long turn": ("relay-sum", longer, "line 3: turn 0: said: .*99999 characters"),
    "a field that is null": (
        "relay-sum",
        lambda episodes, _: turn_of(episodes).update(more=None),
        "line 3: turns 0 more",
    ),
    "no episodes": ("relay-sum", lambda episodes, _: episodes.clear(), r"\(whole\)"),
}


def forged(entry: Path, results: Path, task: str, change: Change) -> Path:
    """The entry with changed episodes, every hash made to fit."""
    forger = Forger(copied(entry, results))
    files = [forger.lines(cell(task), name) for name in (EPISODES, SAMPLES)]
    change(*files)
    for name, rows in zip((EPISODES, SAMPLES), files, strict=True):
        forger.put_lines(cell(task), name, rows)
    return forger.write()


def loose(folder: Path, runs: Path, out: Path, task: str) -> Path:
    """The forged files as a run folder, as somebody would submit it."""
    target = out.joinpath(*runs.parts[-3:])
    shutil.copytree(runs, target)
    forger = Forger(folder)
    for name, content in forger.runs[cell(task)].items():
        (target / cell(task) / name).write_bytes(content)
    for name in ("plan.json", "ledger.jsonl"):
        shutil.copy(folder / name, target / name)
    return target


COUNTED: dict[str, tuple[str, Change, str]] = {
    "cut off below the cap": ("relay-sum", cut_at(16), r"turn 0: tokens: .*16.*17"),
    "cut off above the cap": ("relay-sum", cut_at(18), r"turn 0: tokens: .*18.*17"),
    "more text than tokens": ("relay-sum", cut_at(17, "7" * 18), r"turn 0: tokens: .*17"),
    "fewer tokens than text": ("lookup", tokens(3), r"turn \d: tokens: .*3"),
    "more tokens than the cap": ("lookup", tokens(26), r"turn \d: tokens: .*26.*25"),
}
"""Forgeries that are known by the model's tokenizer, which ``verify`` loads. Bundled models have a
token for each byte: 17 in a turn of ``relay-sum``, the end token included, and 25 in ``lookup``."""


@pytest.mark.parametrize("name", COUNTED)
def test_tokens_are_counted_by_the_tokenizer(
    name: str, played_entry: Path, played_home: Path, tmp_path: Path
) -> None:
    task, change, words = COUNTED[name]
    folder = forged(played_entry, tmp_path / "results", task, change)
    done = crlbench("--quiet", "verify", folder, "--recompute-only", catalog=played_home)
    text = done.stdout + done.stderr
    assert done.returncode == 5 and re.search(words, text), text
    assert "Traceback" not in text


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_episode_is_refused_by_its_field(
    name: str, played_entry: Path, played_runs: Path, played_home: Path, tmp_path: Path
) -> None:
    task, change, words = FORGED[name]
    folder = forged(played_entry, tmp_path / "results", task, change)
    run = loose(folder, played_runs, tmp_path / "runs", task)
    commands: dict[tuple[object, ...], int] = {
        ("submit", run, "--to", tmp_path / "new", "--submitter", "@someone", "--no-pr"): 3,
        ("validate", folder): 3,
        ("verify", folder, "--recompute-only"): 5,
    }
    for command, code in commands.items():
        done = crlbench("--quiet", *command, catalog=played_home)
        text = done.stdout + done.stderr
        assert done.returncode == code, (command[0], text)
        assert re.search(words, text), (command[0], text)
        assert "Traceback" not in text


FAULTLESS = {name: [0.0] * 3 for name in ("faults", "illegal", "malformed")}
FIGURES: dict[str, tuple[str, Callable[[Json], object], str]] = {
    "columns left out": ("relay-sum", lambda h: h.pop("turns"), "names that are missing"),
    "half a turn": ("relay-sum", lambda h: h["turns"].__setitem__(0, 1.53), r"health.turns\[0\]"),
    "more illegal turns than faults": (
        "relay-sum",
        lambda h: (h["faults"].__setitem__(0, 0.0), h["illegal"].__setitem__(0, 1.0)),
        r"health.illegal\[0\]",
    ),
    "more turns than an episode has": (
        "relay-sum",
        lambda h: h.update(FAULTLESS, turns=[4.5] * 3),
        r"health.turns\[0\].*1 to 4",
    ),
    "more turns than tokens": (
        "lookup",
        lambda h: h.update(FAULTLESS, turns=[6.0] * 3, tokens=[32.0] * 3),
        r"health.tokens\[0\]",
    ),
    "half a row": ("lookup", lambda h: h["forked_rows"].__setitem__(0, 0.3), "forked_rows"),
    "half a call": ("lookup", lambda h: h["tool_calls"].__setitem__(0, 0.3), "tool_calls"),
    "forks of rows that all are new": (
        "relay-sum",
        lambda h: h["forked_rows"].__setitem__(0, 1.0),
        r"health.forked_rows\[0\].*0 to 0",
    ),
    "calls without tools": (
        "relay-sum",
        lambda h: h["tool_calls"].__setitem__(0, 1.0),
        r"health.tool_calls\[0\].*0 to 0",
    ),
    "more calls than turns": (
        "lookup",
        lambda h: h["tool_calls"].__setitem__(0, 50.0),
        r"health.tool_calls\[0\]",
    ),
    "malformed without tools": (
        "relay-sum",
        lambda h: h.update(FAULTLESS, faults=[1.0] * 3, malformed=[1.0] * 3),
        r"health.malformed\[0\].*0 to 0",
    ),
    "malformed calls that are no faults": (
        "lookup",
        lambda h: h.update(FAULTLESS, malformed=[1.0] * 3),
        r"health.malformed\[0\].*health.faults\[0\]",
    ),
    "a share above 1": ("lookup", lambda h: h["malformed"].__setitem__(0, 2.0), "malformed"),
}


@pytest.mark.parametrize("name", FIGURES)
def test_forged_figures_of_episodes_are_refused(
    name: str, played_entry: Path, played_home: Path, tmp_path: Path
) -> None:
    task, change, words = FIGURES[name]
    forger = Forger(copied(played_entry, tmp_path / "results"))
    forger.edit(cell(task), lambda record: change(record["health"]))
    done = crlbench("--quiet", "validate", forger.write(), catalog=played_home)
    assert done.returncode == 3 and re.search(words, done.stdout + done.stderr), done.stdout


def test_honest_episodes_are_accepted(played_entry: Path, played_home: Path) -> None:
    for command in (("validate",), ("verify", "--recompute-only")):
        done = crlbench("--quiet", *command, played_entry, catalog=played_home)
        assert done.returncode == 0, done.stdout + done.stderr
    forger = Forger(played_entry)
    for task in TASKS:
        health = forger.record(cell(task))["health"]
        assert all(turns >= 1.0 for turns in health["turns"])
        assert health["forked_rows"] == [0.0] * 3 or task == "lookup"
