"""What the gauntlet tries on an environment, wherever its code runs: plain data in and out."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from crlbench import seeding
from crlbench.errors import ValidationError
from crlbench.reward.checked import opened, refused, scored, taken
from crlbench.reward.env import (
    Draw,
    Environment,
    Position,
    Said,
    Start,
    Step,
    canonical,
    read_said,
    read_start,
    said_value,
    transcript,
)
from crlbench.reward.policies import (
    Policy,
    echo,
    legal_texts,
    null_scores,
    random_legal,
    recite,
    repeat,
    texts_of,
)
from crlbench.reward.shapes import MARK, turns
from crlbench.reward.tools import read_text, tools_of

DICE = "a trial"
"""The key of everything that is drawn in a trial."""
STUBBORN = 16
"""Legal texts that are said again and again."""
SHOWN = 300
"""Characters of what a function raised."""
COMPARED = 80
"""Characters of what a function returned; a digest says the rest."""
ODD = 0.5
"""Share of the turns that are of an odd shape, where odd ones are mixed with a gold's."""
LEAST_QUOTED = 9
"""Characters of a text that stands in no fixed sentence by chance."""
MOST_QUOTED = 40
"""Characters of a text that are looked for in a fault."""

Turn = str | dict[str, Any]
"""A text that is read as a model's without a form of its own for calls, or a turn as
:func:`crlbench.reward.env.said_value` writes it."""


def recited(
    environment: Environment, answers: Sequence[str], said: Sequence[Sequence[str]]
) -> list[list[Any]]:
    """[score of the start's seat, faults, transcript] where the policy says these texts in order.

    After them it says nothing.
    """
    ends = []
    for answer, texts in zip(answers, said, strict=True):
        start = read_start(answer)
        position, spoken = _played(environment, start, recite(texts))
        assert position.scores is not None
        faults = sum(bool(turn.fault) for turn in position.turns)
        ends.append([position.scores[start.seat], faults, transcript(spoken)])
    return ends


def reached(
    environment: Environment, answers: Sequence[str], golds: Sequence[str], count: int, name: str
) -> list[list[Any]]:
    """[state, seat, what the gold says there] of at most ``count`` positions, in canonical JSON.

    They are reached by gold transcripts, and by the texts of other starts.
    """
    draw = seeding.rng(0, "reached", name)
    found: dict[str, list[Any]] = {}
    for answer, gold in zip(answers, golds, strict=True):
        for own in (True, False):
            texts = texts_of(gold if own else draw.choice(golds))
            start, turn = read_start(answer), 0
            position = opened(environment, start)
            while position.scores is None:
                text = texts[turn] if turn < len(texts) else ""
                right = text if own else ""
                found.setdefault(position.state, [position.state, position.seat, right])
                said = read_text(environment, text)
                position, turn = taken(environment, start, position, said), turn + 1
    states = [found[state] for state in sorted(found)]
    return draw.sample(states, min(count, len(states)))


def reached_oddly(
    environment: Environment, answers: Sequence[str], golds: Sequence[str], count: int, name: str
) -> list[list[Any]]:
    """[state, seat, a turn that was said there] of positions behind turns of odd shapes, mixed with
    a gold's.

    Those at which a turn broke the environment are among them, whatever the count.
    """
    draw = seeding.rng(0, "reached oddly", name)
    odd = [one for one in turns(tools_of(environment), "", 0, 1) if not _is_cut(one)]
    found: dict[str, list[Any]] = {}
    ends: list[list[Any]] = []
    for answer, gold in zip(answers, golds, strict=True):
        start, left = read_start(answer), texts_of(gold)
        position = opened(environment, start)
        while position.scores is None:
            is_odd = not left or draw.random() < ODD
            turn = draw.choice(odd) if is_odd else left.pop(0)
            case = [position.state, position.seat, turn]
            found.setdefault(position.state, case)
            try:
                position = taken(environment, start, position, _said(environment, turn))
            except ValidationError:  # which whoever tries the turn there finds again
                ends.append(case)
                break
    states = [found[state] for state in sorted(found)]
    return ends + draw.sample(states, min(count, len(states)))


def _is_cut(turn: Turn) -> bool:
    return isinstance(turn, dict) and bool(turn["cut"])


def _said(environment: Environment, turn: Turn) -> Said:
    return read_text(environment, turn) if isinstance(turn, str) else read_said(turn)


def place_of(state: str, turn: Turn) -> str:
    """Where something is wrong, as a message says it."""
    shown = f"{turn[:40]!r}" if isinstance(turn, str) else f"{turn!r:.160}"
    return f"for {shown} in {state[:120]}"


def steps(environment: Environment, cases: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """[what the functions return, names of those that changed an argument] for (state, seat, turn).

    A function that raises returns what it raised. What was said is an argument of ``step``, with
    all that its calls hold.
    """
    return [_step(environment, *case) for case in cases]


def _step(environment: Environment, state: str, seat: int, turn: Turn) -> list[Any]:
    found, changed = [], []
    said = _said(environment, turn)
    before = canonical(said_value(said))
    arguments: dict[str, tuple[Any, ...]] = {
        "mover": (),
        "observe": (seat,),
        "news": (seat,),
        "legal": (),
        "score": (),
        "step": (said, Draw(DICE, "step", 0)),
    }
    for name, rest in arguments.items():
        function, given = getattr(environment, name), json.loads(state)
        if function is None:
            continue
        try:
            value = function(given, *rest)
            found.append([name, _comparable(repr(_sorted(value)))])
        except Exception as error:  # the task's own code may raise anything
            found.append([name, f"raised {type(error).__name__}: {error}"[:SHOWN]])
        if _text_of(given) != state or _text_of(said_value(said)) != before:
            changed.append(name)
    return [found, changed]


def _comparable(text: str) -> str:
    """A text of bounded length for each text."""
    if len(text) <= COMPARED:
        return text
    return f"{text[:COMPARED]} {hashlib.sha256(text.encode(errors='replace')).hexdigest()[:16]}"


def _text_of(value: Any) -> str:
    """The canonical text of an argument after a call; "" where it is JSON data no more."""
    try:
        return canonical(value)
    except (TypeError, ValueError, RecursionError):
        return ""


def _sorted(value: Any) -> Any:
    """A step's state as its canonical text: the order of its keys is no difference."""
    if isinstance(value, Step):
        return (canonical(value.state), value.paid, value.over, value.fault)
    return value


def faults(environment: Environment, cases: Sequence[Sequence[Any]]) -> list[str]:
    """What is wrong with a turn in (state, seat, turn), by the rules of every episode; "" if
    nothing.

    ``score`` must know each of these states and those behind them: a turn that is cut off, or the
    last one, ends an episode anywhere.
    """
    return [_fault(environment, *case) for case in cases]


def _fault(environment: Environment, state: str, seat: int, turn: Turn) -> str:
    said = _said(environment, turn)
    try:
        scored(environment, state)
        start = Start(state, chance=DICE)
        after = taken(environment, start, Position(state, seat=seat), said)
        scored(environment, after.state)
    except ValidationError as error:
        return str(error)[:SHOWN]
    fault = after.turns[0].fault
    if _is_quoted(said.text.strip(), fault):
        return (
            f"step says the fault {fault!r:.120}, which holds what was said; allowed: one of a few "
            "fixed sentences"
        )
    return ""


def _is_quoted(text: str, fault: str) -> bool:
    """Whether a fault holds what was said."""
    is_long = len(text) >= LEAST_QUOTED
    return MARK.lower() in fault.lower() or (is_long and text[:MOST_QUOTED] in fault)


def moves(environment: Environment, cases: Sequence[Sequence[Any]]) -> list[list[str]]:
    """[state after, fault] of a turn in (state, seat, text)."""
    found = []
    for state, _, text in cases:
        said = read_text(environment, text)
        step = environment.step(json.loads(state), said, Draw(DICE, "step", 0))
        found.append([canonical(step.state), step.fault])
    return found


def endings(
    environment: Environment, answers: Sequence[str], texts: Sequence[str], golds: Sequence[str]
) -> list[str]:
    """What keeps episodes from ending by their own rules in time; "" where nothing does.

    Each start is played by the policies that know nothing, by its gold, by one of the texts, and
    by each of the first texts that are legal at its beginning, said in every turn. Where there are
    tools, each is called with each of the words that are told first, and the gold's last text
    follows.
    """
    longer = replace(environment, max_turns=environment.max_turns + 1)
    problems = []
    for number, (answer, gold) in enumerate(zip(answers, golds, strict=True)):
        start = read_start(answer)
        policies = [repeat(""), echo, recite(texts_of(gold)), repeat(texts[number % len(texts)])]
        calls = _calls_with_words(environment, opened(environment, start))
        policies += [recite([call, *texts_of(gold)[-1:]]) for call in calls]
        if environment.legal is not None:
            listed = legal_texts(environment, opened(environment, start).state)
            policies += [random_legal(f"ends/{number}"), *map(repeat, listed[:STUBBORN])]
        problems += [_ending(longer, start, policy, environment.max_turns) for policy in policies]
    return [problem for problem in problems if problem]


def _calls_with_words(environment: Environment, position: Position) -> Iterator[str]:
    """Calls of every tool, on one line, whose arguments are words of what a seat is told last."""
    tools = tools_of(environment)
    if not tools:
        return
    told = environment.observe(json.loads(position.state), position.seat)[-1:]
    words = dict.fromkeys(word for one in told for word in re.findall(r"\w+", one["content"]))
    for tool, word in itertools.product(tools, list(words)[:STUBBORN]):
        yield " ".join([tool.name, *[word] * len(tool.properties)])


def _ending(environment: Environment, start: Start, policy: Policy, most: int) -> str:
    try:
        position, spoken = _played(environment, start, policy)
    except ValidationError as error:
        return str(error)[:SHOWN]
    said = f"after {transcript(spoken)[:SHOWN]}"
    if len(position.turns) > most:
        return f"the episode goes on after {most} turns, {said}"
    return "" if spoken else "the episode is over before the policy has said anything"


def slips(
    environment: Environment, answers: Sequence[str], golds: Sequence[str], name: str
) -> list[list[Any]]:
    """[number of the start, score, transcript] of golds in which one turn is another legal text.

    Where legal texts are not listed, it is a text of another gold.
    """
    pool = sorted({text for gold in golds for text in texts_of(gold)})
    found = []
    for number, (answer, gold) in enumerate(zip(answers, golds, strict=True)):
        start, texts = read_start(answer), texts_of(gold)
        for turn in range(len(texts)):
            draw = seeding.rng(0, "slip", name, number, turn)
            policy = _slipping(texts, turn, pool, draw)
            position, spoken = _played(environment, start, policy)
            assert position.scores is not None
            found.append([number, position.scores[start.seat], transcript(spoken)])
    return found


def _slipping(texts: Sequence[str], place: int, pool: Sequence[str], draw: random.Random) -> Policy:
    """Says the texts, but in one place another legal one, or one of the pool."""

    def policy(environment: Environment, position: Position, turn: int) -> str:
        right = texts[turn] if turn < len(texts) else ""
        if turn != place:
            return right
        listed = pool
        if environment.legal is not None:
            listed = legal_texts(environment, position.state)
        others = [text for text in listed if text != right]
        return draw.choice(others) if others else right

    return policy


def _played(environment: Environment, start: Start, policy: Policy) -> tuple[Position, list[Said]]:
    position = opened(environment, start)
    spoken: list[Said] = []
    while position.scores is None:
        spoken.append(read_text(environment, policy(environment, position, len(spoken))))
        position = taken(environment, start, position, spoken[-1])
    return position, spoken


def leaks(environment: Environment, cases: Sequence[Sequence[Any]]) -> list[str]:
    """Fields that a seat may not see and that change what it is told, for (state, seat, other).

    Each hidden field takes the value that it has in the other state. A field that no state has
    hides nothing, and is named too.
    """
    problems, absent = [], {}
    for state, seat, other in cases:
        here, there = json.loads(state), json.loads(other)
        for name in _hidden(environment, state, seat):
            absent[name] = absent.get(name, True) and name not in here
            changed = here | ({name: there[name]} if name in there else {})
            for function in (environment.observe, environment.news):
                if function is None:
                    continue
                before = function(json.loads(state), seat)
                after = function(json.loads(canonical(changed)), seat)
                if before != after:
                    told = _difference(before, after)
                    problems.append(f"{name!r} is hidden and told in {state:.{SHOWN}}: {told}")
    fields = [name for name, is_absent in absent.items() if is_absent]
    return problems + [f"{name!r} is hidden, and no reached state has it" for name in fields]


def _difference(before: Any, after: Any) -> str:
    """The first message that differs, of two observations; both whole where none does."""
    if isinstance(before, list) and isinstance(after, list):
        for one, other in zip(before, after, strict=False):
            if one != other:
                before, after = one, other
                break
    return f"{before!r:.{SHOWN}} and {after!r:.{SHOWN}}"


def _hidden(environment: Environment, state: str, seat: int) -> tuple[str, ...]:
    """The fields of a state that a seat may not see.

    Raises:
        ValidationError: ``hidden`` returned something else than names.
    """
    assert environment.hidden is not None
    names = environment.hidden(json.loads(state), seat)
    if not isinstance(names, tuple) or not all(type(name) is str for name in names):
        raise refused("hidden", names, "a tuple of names of fields")
    return names


def scripted(environment: Environment, cases: Sequence[Sequence[Any]]) -> list[str]:
    """What scripted seats say in (state, seat) that is not legal there."""
    problems = []
    for state, _ in cases:
        for name in environment.panel:
            assert environment.rival is not None
            text = environment.rival(name, json.loads(state), Draw(DICE, "rival", 0))
            step = environment.step(json.loads(state), Said(text), Draw(DICE, "step", 0))
            listed = environment.legal is None or text in legal_texts(environment, state)
            if step.fault or not listed:
                why = step.fault or "it is not in the list of legal texts"
                problems.append(f"{name} says {text!r} in {state:.{SHOWN}}: {why}")
    return problems


def listed(environment: Environment, cases: Sequence[Sequence[Any]]) -> list[str]:
    """Texts that are listed as legal in (state, seat) and are a fault there."""
    problems = []
    for state, _ in cases:
        for text in legal_texts(environment, state):
            said = read_text(environment, text)
            step = environment.step(json.loads(state), said, Draw(DICE, "step", 0))
            if step.fault:
                problems.append(f"{text!r} is listed as legal in {state:.{SHOWN}}: {step.fault}")
    return problems


TRIALS: Mapping[str, Callable[..., Any]] = {
    trial.__name__: trial
    for trial in (
        *(endings, faults, leaks, listed, moves, null_scores, reached, reached_oddly, recited),
        *(scripted, slips, steps),
    )
}
"""Everything that can be tried, by name."""
