"""Stored episodes of simulated runs: real ones of the environment guess, or a stranger's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from crlbench.catalog.find import Catalog
from crlbench.contract.records import RunRecord
from crlbench.disk.names import EPISODES, SAMPLES
from crlbench.play.record import Described, describe, transcript_of
from crlbench.reward.env import read_start
from crlbench.run.store import packed_rows
from tests.support.simulate import rewrite

STARTS = 4
"""Starts that have an episode before and after."""
LAST = 5120
"""Completions at the end of the simulated training."""


def played(task: str = "guess") -> tuple[list[Described], list[dict[str, Any]]]:
    """(episodes, samples) of the first ID starts: those before training say wrong things, those
    after it play as well as one can."""
    environment = Catalog().load_task(task)
    episodes, samples = [], []
    for x in (0, LAST):
        for row in environment.rows("id")[:STARTS]:
            gold = json.loads(environment.code.gold(row["answer"]))
            said = [(text, len(text) + 1) for text in (gold if x else ["7", "what?", *["no"] * 4])]
            start = read_start(row["answer"])
            turns = said if x else said[: json.loads(start.state)["left"]]
            episode = describe(environment.environment, start, turns)
            uid = f"{task}/id/{row['id']}"
            episodes.append({"uid": uid, "x": x} | episode)
            sample = {"prompt": row["messages"][-1]["content"], "answer": row["answer"]}
            sample |= {"completion": transcript_of(turns), "score": episode["scores"][0]}
            samples.append({"uid": uid, "x": x} | sample)
    return episodes, samples


def give_episodes(
    folder: Path,
    change: Callable[[Sequence[Described]], object] = lambda episodes: None,
    task: str = "guess",
) -> None:
    """Let every stored run below a folder have episodes, changed before they are written."""
    episodes, samples = played(task)
    change(episodes)
    files = {EPISODES: packed_rows(episodes), SAMPLES: packed_rows(samples)}
    for path in sorted(folder.rglob("record.json")):
        listed = RunRecord.model_validate_json(path.read_text()).model_dump()["files"]
        for name, content in files.items():
            (path.parent / name).write_bytes(content)
            sha256 = hashlib.sha256(content).hexdigest()
            listed[name] = {"sha256": sha256, "bytes": len(content)}
        rewrite(path.parent, files=listed)


ATTACK = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*7 }}\u202e" + "w" * 120


def spoil(episodes: Sequence[Described]) -> None:
    """A script injection in every text of every episode, and calls and faults that were none."""
    for episode in episodes:
        for turn in episode["turns"]:
            turn["fault"] = ATTACK
            turn["observation"] = [
                {"role": "user" if one["role"] == "user" else ATTACK, "content": ATTACK}
                for one in turn["observation"] * 50
            ]
            calls = [{"name": ATTACK, "arguments": {ATTACK: ATTACK}}] * 50
            turn["paid"] = [1.0] * 500
            turn["said"] = {"text": ATTACK, "calls": calls, "malformed": ATTACK, "cut": True}
        episode["turns"] *= 9
