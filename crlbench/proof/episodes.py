"""Stored episodes: what was said is what was scored, and every turn happens again.

An episode follows from the start of its item and from what the policy said. So the states, what
was told, what was paid and the scores of a stored one are found by playing it again. The numbers
of tokens alone do not follow; they are bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from crlbench.catalog.frozen import Task
from crlbench.contract.verification import Finding
from crlbench.disk.names import EPISODES
from crlbench.errors import ValidationError
from crlbench.play.record import describe, sayings_in, transcript_of
from crlbench.play.seats import reading_of
from crlbench.policy.weights.load import Reader
from crlbench.proof.facts import Facts
from crlbench.reward.env import read_said, read_start, said_value
from crlbench.run.subject import dialogue_of, played_environment

TOKENS_PER_BYTE = 2
"""Most tokens that a byte of a turn's cap becomes."""
Rows = Sequence[Mapping[str, Any]]
"""Stored samples of a run, in order."""


def check_spoken(facts: Facts, rows: Rows, kind: str) -> Iterator[Finding]:
    """An environment has an episode for each sample, with its transcript; no other task has any.

    No code of the task runs.

    Args:
        rows: The stored samples, in order.
        kind: Of the task.
    """
    has, needs = EPISODES in facts.record.files, kind == "environment"
    yield from facts.differs("files", has, needs, f"lists {EPISODES}")
    episodes = facts.run.episodes()
    expected = len(rows) if needs else 0
    yield from facts.differs("(whole)", len(episodes), expected, "lines", EPISODES)
    if len(episodes) != expected:
        return
    for number, (episode, row) in enumerate(zip(episodes, rows, strict=False), start=1):
        field = f"line {number}: "
        for name in ("uid", "x"):
            why = "as in the samples"
            yield from facts.differs(field + name, episode.get(name), row[name], why, EPISODES)
        said = _sayings(episode)
        if said is None:
            yield facts.finding(f"{field}turns", "no turns", "turns", file=EPISODES)
            continue
        why = "the completion in the samples"
        stored, completion = transcript_of(said), row["completion"]
        yield from facts.differs(f"{field}said", stored, completion, why, EPISODES)
        most = TOKENS_PER_BYTE * facts.conditions.sampling.max_completion_bytes + 1
        for turn, (_, count) in enumerate(said):
            if type(count) is not int or not 1 <= count <= most:
                allowed = f"1 to {most}"
                yield facts.finding(f"{field}turn {turn}: tokens", count, allowed, file=EPISODES)


def check_played(facts: Facts, rows: Rows, task: Task) -> Iterator[Finding]:
    """Play every stored episode again, and compare each turn.

    Args:
        rows: The stored samples, in order; their transcripts are those of the episodes.
        task: The environment, at the digest that the record states.
    """
    environment = played_environment(task, facts.conditions)
    for number, (episode, row) in enumerate(zip(facts.run.episodes(), rows, strict=True), start=1):
        field, said = f"line {number}: ", _sayings(episode)
        assert said is not None
        start = read_start(row["answer"])
        try:
            again = describe(environment, start, said)
        except ValidationError as error:
            yield facts.finding(f"{field}said", str(error), "a whole episode", file=EPISODES)
            continue
        again |= {"uid": row["uid"], "x": row["x"]}
        yield from _differences(facts, field, episode, again)
        score, why = again["scores"][start.seat], f"played again; {EPISODES}"
        yield from facts.differs(f"{field}score", row["score"], score, why)


def check_read(facts: Facts, task: Task, reader: Reader) -> Iterator[Finding]:
    """Read the text of every stored turn again: its calls are those that the model wrote.

    Args:
        reader: the model's, because families write calls in forms of their own.
    """
    read = reading_of(task.environment, dialogue_of(task, reader))
    for number, episode in enumerate(facts.run.episodes(), start=1):
        for place, (value, _) in enumerate(_sayings(episode)):
            said = read_said(value)
            again, why = said_value(read(said.text, said.cut)), "read from its text"
            field = f"line {number}: turn {place}: said"
            yield from facts.differs(field, value, again, why, EPISODES)


def _sayings(episode: Mapping[str, Any]) -> Any:
    """What the policy said; None where the line is no episode."""
    try:
        return sayings_in(dict(episode))
    except (KeyError, TypeError):
        return None


def _differences(facts: Facts, field: str, stored: Any, again: Any) -> Iterator[Finding]:
    """Where two values of JSON data differ, down to the leaves."""
    if isinstance(stored, dict) and isinstance(again, dict):
        for name in sorted(stored.keys() | again.keys(), key=str):
            inner = stored.get(name), again.get(name)
            yield from _differences(facts, f"{field}{name} ", *inner)
    elif isinstance(stored, list) and isinstance(again, list) and len(stored) == len(again):
        for place, inner in enumerate(zip(stored, again, strict=True)):
            yield from _differences(facts, f"{field}{place} ", *inner)
    elif stored != again or type(stored) is not type(again):
        why = "found by playing the episode again"
        yield facts.finding(field.strip(), stored, again, why, EPISODES)
