"""Stored episodes: what was said is what was scored, and every turn happens again.

An episode follows from the start of its item and from the texts that the policy said. So the calls
that were read in them, the states, what was told, what was paid and the scores of a stored one are
found by playing it again. The numbers of tokens alone do not follow; they are bounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from crlbench.catalog.frozen import Task
from crlbench.contract.verification import Finding
from crlbench.disk.names import EPISODES
from crlbench.errors import ValidationError
from crlbench.play.record import Sayings, describe, sayings_in, transcript_of
from crlbench.play.seats import reading_of
from crlbench.policy.weights.load import Reader
from crlbench.proof.facts import Facts
from crlbench.proof.figures import ROUNDED, is_whole
from crlbench.proof.files import longest_text
from crlbench.reward.env import read_said, read_start, said_value
from crlbench.reward.tools import read_text
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
    yield from _check_turns(facts)
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
        for turn, (value, count) in enumerate(said):
            if type(count) is not int or not 1 <= count <= most:
                allowed = f"1 to {most}"
                yield facts.finding(f"{field}turn {turn}: tokens", count, allowed, file=EPISODES)
            text, longest = _text(value), longest_text(facts)
            if len(text.encode("utf-8", "replace")) > longest:
                size, why = f"{len(text)} characters", "the cap of the conditions"
                where = f"{field}turn {turn}: said"
                yield facts.finding(where, size, f"at most {longest} bytes", why, EPISODES)


def _check_turns(facts: Facts) -> Iterator[Finding]:
    """Turns of the iterations, and those with a fault, are whole numbers; an illegal turn is a
    fault."""
    health, rows = facts.record.health, facts.conditions.budget.rows
    names = ("turns", "faults", "illegal", "malformed")
    columns = [health.get(name, ()) for name in names]
    for i, (turns, *shares) in enumerate(zip(*columns, strict=False)):
        total = (turns or 0.0) * rows
        counts = [total, *((share or 0.0) * total for share in shares)]
        for name, count in zip(names, counts, strict=True):
            if not math.isfinite(count) or not is_whole(count):
                expected = f"a whole number of turns in {rows} episodes"
                yield facts.finding(f"health.{name}[{i}]", health[name][i], expected)
        if counts[2] > counts[1] * (1 + ROUNDED):
            expected = f"at most health.faults[{i}]"
            yield facts.finding(f"health.illegal[{i}]", health["illegal"][i], expected)


def check_played(facts: Facts, rows: Rows, task: Task) -> Iterator[Finding]:
    """Read and play every stored episode again, and compare each turn.

    Args:
        rows: The stored samples, in order; their transcripts are those of the episodes.
        task: The environment, at the digest that the record states.
    """
    environment = played_environment(task, facts.conditions)
    for number, (episode, row) in enumerate(zip(facts.run.episodes(), rows, strict=True), start=1):
        field, said = f"line {number}: ", _sayings(episode)
        assert said is not None
        if facts.record.subject.frame != "chat":
            yield from _misread(facts, field, said, task)
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


def _misread(facts: Facts, field: str, said: Sayings, task: Task) -> Iterator[Finding]:
    """Turns with other calls or another fault of form than their text has, of a model that writes
    calls on one line; a chat model may have another form (:func:`check_read`)."""
    for turn, (value, _) in enumerate(said):
        cut = isinstance(value, dict) and value.get("cut") is True
        again = said_value(read_text(task.environment, _text(value), cut))
        why = "read in the text again"
        yield from facts.differs(f"{field}turn {turn}: said", value, again, why, EPISODES)


def _text(value: Any) -> str:
    """The text of a turn; that of something else is empty."""
    text = value.get("text") if isinstance(value, dict) else value
    return text if isinstance(text, str) else ""
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
    """Where two values of JSON data differ, down to the leaves, in their spelling too: 0 is not 0.0
    and not -0.0, and a field that is null is not one that is absent."""
    if isinstance(stored, dict) and isinstance(again, dict):
        for name in sorted(stored.keys() | again.keys()):
            if name in stored and name in again:
                yield from _differences(facts, f"{field}{name} ", stored[name], again[name])
            else:
                has, needs = (value.get(name, "absent") for value in (stored, again))
                yield facts.finding(f"{field}{name}", has, needs, "no such field", EPISODES)
    elif isinstance(stored, list) and isinstance(again, list) and len(stored) == len(again):
        for place, inner in enumerate(zip(stored, again, strict=True)):
            yield from _differences(facts, f"{field}{place} ", *inner)
    elif repr(stored) != repr(again):
        why = "found by playing the episode again"
        yield facts.finding(field.strip(), stored, again, why, EPISODES)
