"""What a model does in an environment before and after training, turn by turn."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from crlbench.base import wording
from crlbench.pages.page_samples import ends_of, moves
from crlbench.verdict.episodes import Spoken, StoredEpisode, StoredTurn, stored_episodes
from crlbench.verdict.runs import Run
from crlbench.verdict.samples import Sample

SHOWN_EPISODES = 3
"""Starts of each task, with the episode before and after."""
SHOWN_TURNS = 16
SHOWN_PARTS = 8
"""Messages of one observation, calls and payments of one turn."""
SHOWN_CHARACTERS = 400
"""Of one observation, or of one text that was said."""


def episode_panels(tasks: Sequence[str], runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One panel for each environment with stored episodes of both ends."""
    panels = [_panel(task, runs) for task in tasks]
    return [panel for panel in panels if panel is not None]


def _panel(task: str, runs: Sequence[Run]) -> dict[str, Any] | None:
    """Starts with the episode before and after, from the first seed that has both."""
    for run in runs:
        if run.record.task.name == task and (stored := stored_episodes(run)):
            both = ends_of(run.samples())
            pairs = [
                [(one, stored[one.uid, one.x]) for one in ends if (one.uid, one.x) in stored]
                for ends in both
            ]
            whole = [pair for pair in pairs if len(pair) == 2]
            if whole:
                return {
                    "task": task,
                    "seed": run.record.seed.index,
                    "moves": moves(both, "start"),
                    "pairs": [_pair(*pair) for pair in whole[:SHOWN_EPISODES]],
                }
    return None


Played = tuple[Sample, StoredEpisode]


def _pair(before: Played, after: Played) -> dict[str, Any]:
    rules = _rules(before[1])
    return {
        "start": wording.visible(before[0].uid, 80),
        "rules": [_clean(text) for text in rules],
        "before": _side(*before, {*rules}),
        "after": _side(*after, {*rules}),
    }


def _rules(episode: StoredEpisode) -> list[str]:
    """What the system tells the model first."""
    told = next((turn.observation for turn in episode.turns if turn.observation), [])
    return [one.content for one in told if one.role == "system"][:SHOWN_PARTS]


def _side(sample: Sample, episode: StoredEpisode, rules: set[str]) -> dict[str, Any]:
    return {
        "score": wording.number(sample.score, 2),
        "right": sample.score >= 1.0,
        "x": wording.grouped(sample.x),
        "turns": [*_turns(episode, rules)],
        "more": max(len(episode.turns) - SHOWN_TURNS, 0),
    }


def _turns(episode: StoredEpisode, rules: set[str]) -> Iterator[dict[str, Any]]:
    """The first turns as the page shows them, without the rules that stand above."""
    for number, turn in enumerate(episode.turns[:SHOWN_TURNS], start=1):
        told = [one for one in turn.observation or () if one.content not in rules]
        spoken = turn.spoken
        yield {
            "number": number,
            "who": _who(episode, turn),
            "told": [(_clean(one.role, 20), _clean(one.content)) for one in told[:SHOWN_PARTS]],
            "said": _clean(spoken.text),
            "calls": [_call(call.name, call.arguments) for call in spoken.calls[:SHOWN_PARTS]],
            "notes": [*_notes(turn, spoken)],
        }


def _who(episode: StoredEpisode, turn: StoredTurn) -> str:
    """Who speaks: nothing where the policy has the only seat."""
    seat = f"seat {turn.seat}" if len(episode.scores) > 1 else ""
    who = "script" if turn.observation is None else "model" if seat else ""
    return ", ".join(part for part in (who, seat) if part)


def _notes(turn: StoredTurn, spoken: Spoken) -> Iterator[str]:
    """What was wrong with a turn, and what it earned."""
    if turn.fault:
        yield f"fault: {_clean(turn.fault, 120)}"
    if spoken.malformed:
        yield f"malformed: {_clean(spoken.malformed, 120)}"
    if spoken.cut:
        yield "cut off at the cap"
    for seat, value in enumerate(turn.paid[:SHOWN_PARTS]):
        if value:
            to = f" to seat {seat}" if len(turn.paid) > 1 else ""
            yield f"paid {wording.number(value, 2)}{to}"


def _call(name: str, arguments: dict[str, Any]) -> str:
    return _clean(f"{name}({json.dumps(arguments, ensure_ascii=False, sort_keys=True)})")


def _clean(text: str, most: int = SHOWN_CHARACTERS) -> str:
    return wording.visible(text.strip("\n"), most)
