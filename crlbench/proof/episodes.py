"""Stored episodes: what was said is what was scored, and every turn happens again.

An episode follows from the start of its item and from the texts that the policy said. So the calls
that were read in them, the states, what was told, what was paid and the scores of a stored one are
found by playing it again. The numbers of tokens alone do not follow; they are bounded. A turn is
cut off at the cap of tokens and nowhere else, which the model's tokenizer says exactly.
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
from crlbench.policy.text.counts import fewest_tokens
from crlbench.policy.weights.load import Reader
from crlbench.proof.facts import Facts
from crlbench.proof.figures import ROUNDED, is_whole
from crlbench.proof.files import TOKEN_BYTES, longest_text
from crlbench.reward.env import Environment, read_said, read_start, said_value
from crlbench.reward.tools import read_text
from crlbench.run.subject import dialogue_of, evaluation_sampler, played_environment

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
        for turn, (value, count) in enumerate(said):
            yield from _check_turn(facts, f"{field}turn {turn}: ", value, count)
    yield from _check_cuts(facts)


def _check_turn(facts: Facts, field: str, value: Any, count: Any) -> Iterator[Finding]:
    """The tokens of a turn are within the cap of the conditions, and its text within them."""
    most, text = _most_tokens(facts), _text(value)
    size = len(text.encode("utf-8", "replace"))
    if type(count) is not int or not 1 <= count <= most:
        yield facts.finding(f"{field}tokens", count, f"1 to {most}", file=EPISODES)
    elif size > TOKEN_BYTES * _spelled(value, count):
        why = f"{size} bytes of text, and a token that ends the turn"
        yield facts.finding(f"{field}tokens", count, "more", why, EPISODES)
    if size > longest_text(facts):
        stored, why = f"{len(text)} characters", "the cap of the conditions"
        expected = f"at most {longest_text(facts)} bytes"
        yield facts.finding(f"{field}said", stored, expected, why, EPISODES)


def _most_tokens(facts: Facts) -> int:
    """Most tokens of a turn, whatever the tokenizer."""
    return TOKENS_PER_BYTE * facts.conditions.sampling.max_completion_bytes + 1


def _spelled(value: Any, count: int) -> int:
    """How many tokens of a turn may be text: one that was not cut off has a token that ends it."""
    return count if _is_cut(value) else count - 1


def _is_cut(value: Any) -> bool:
    return isinstance(value, dict) and value.get("cut") is True


def _check_cuts(facts: Facts) -> Iterator[Finding]:
    """Turns are cut off at one cap: cut turns have equally many tokens, and no turn has more."""
    turns = [
        (f"line {number}: turn {turn}: tokens", _is_cut(value), count)
        for number, episode in enumerate(facts.run.episodes(), start=1)
        for turn, (value, count) in enumerate(_sayings(episode) or ())
        if type(count) is int
    ]
    cap = max((count for _, _, count in turns), default=0)
    for field, cut, count in turns:
        if cut and count != cap:
            why = "a turn is cut off at its cap, and another turn has so many"
            yield facts.finding(field, count, cap, why, EPISODES)


def _check_turns(facts: Facts) -> Iterator[Finding]:
    """Figures of the iterations are counts of turns, of calls and of rows; an illegal turn is a
    fault, a malformed one is another, and a turn has tokens."""
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
        _, faults, *kinds = counts
        if sum(kinds) > faults * (1 + ROUNDED) + ROUNDED:
            name = "illegal" if kinds[0] > faults * (1 + ROUNDED) else "malformed"
            expected = f"with the other kinds of faults at most health.faults[{i}]"
            yield facts.finding(f"health.{name}[{i}]", health[name][i], expected)
    for name, what in (("forked_rows", "rows"), ("tool_calls", "calls")):
        for i, mean in enumerate(health.get(name, ())):
            count = (mean or 0.0) * rows
            if not math.isfinite(count) or not is_whole(count):
                expected = f"a whole number of {what} in {rows} episodes"
                yield facts.finding(f"health.{name}[{i}]", mean, expected)


def _check_limits(facts: Facts, environment: Environment) -> Iterator[Finding]:
    """No figure of an iteration is more than the environment allows."""
    health, rows = facts.record.health, facts.conditions.budget.rows
    cap = _most_tokens(facts)
    chat = facts.record.subject.frame == "chat"
    calls, broken = 0, 0
    if environment.tools:  # one call a line; in a form of its own, each has a token at least
        calls, broken = (cap, 1) if chat else (1, 0)
    for i, turns in enumerate(health.get("turns", ())):
        mean = turns or 0.0
        forks = mean - 1 if environment.history == "append" else 0
        limits: dict[str, tuple[float, float, str]] = {
            "turns": (1, environment.max_turns, "max_turns of the environment"),
            "tool_calls": (0, calls * mean, f"{mean:g} turns of an episode"),
            "malformed": (0, broken, "the form of calls that the model has"),
            "forked_rows": (0, forks, f'history = "{environment.history}"'),
            "tokens": (mean * rows, cap * mean * rows, f"{mean:g} turns of {rows} episodes"),
        }
        for name, (low, high, why) in limits.items():
            column = health.get(name, ())
            value = (column[i] if i < len(column) else None) or 0.0
            if not low * (1 - ROUNDED) - ROUNDED <= value <= high * (1 + ROUNDED) + ROUNDED:
                yield facts.finding(f"health.{name}[{i}]", value, f"{low:g} to {high:g}", why)


def check_played(facts: Facts, rows: Rows, task: Task) -> Iterator[Finding]:
    """Read and play every stored episode again, and compare each turn; the figures of the
    iterations are within the limits of the environment.

    Args:
        rows: The stored samples, in order; their transcripts are those of the episodes.
        task: The environment, at the digest that the record states.
    """
    environment = played_environment(task, facts.conditions)
    yield from _check_limits(facts, environment)
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
        again = said_value(read_text(task.environment, _text(value), _is_cut(value)))
        why = "read in the text again"
        yield from facts.differs(f"{field}turn {turn}: said", value, again, why, EPISODES)


def _text(value: Any) -> str:
    """The text of a turn; that of something else is empty."""
    text = value.get("text") if isinstance(value, dict) else value
    return text if isinstance(text, str) else ""


def check_read(facts: Facts, task: Task, reader: Reader) -> Iterator[Finding]:
    """Read the text of every stored turn again: its calls are those that the model wrote, and its
    tokens are enough to spell it. A turn that was cut off has as many as the cap allows.

    Args:
        reader: the model's, because families write calls in forms of their own.
    """
    dialogue = dialogue_of(task, reader)
    read = reading_of(task.environment, dialogue)
    cap = evaluation_sampler(task, reader, facts.conditions).max_tokens
    for number, episode in enumerate(facts.run.episodes(), start=1):
        for place, (value, count) in enumerate(_sayings(episode)):
            said = read_said(value)
            again, why = said_value(read(said.text, said.cut)), "read from its text"
            field = f"line {number}: turn {place}: "
            yield from facts.differs(f"{field}said", value, again, why, EPISODES)
            least = fewest_tokens(reader.tokenizer, said.text, dialogue.calling is None)
            low, why = (cap, "cut off") if said.cut else (least + 1, "its text and its end")
            if not max(low, least) <= count <= cap:
                expected = f"{low} to {cap}"
                yield facts.finding(f"{field}tokens", count, expected, why, EPISODES)


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
