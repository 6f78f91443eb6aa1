"""Rules about environments: that they are functions, end, hide what they must, and reward looking.

Floors and ceilings are measured by play: by policies that know nothing, and by the gold of each
start.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from crlbench.catalog.frozen import Task
from crlbench.catalog.rows import Row
from crlbench.errors import ValidationError
from crlbench.reward.declared import check_start
from crlbench.reward.policies import texts_of
from crlbench.reward.shapes import turns
from crlbench.reward.tools import tools_of
from crlbench.reward.trials import place_of
from crlbench.suite import freeze
from crlbench.suite.gauntlet.asking import Level, ask, ask_elsewhere, defines, draw_rows, draw_texts
from crlbench.suite.gauntlet.asking import judge as judged
from crlbench.suite.gauntlet.report import Finding
from crlbench.suite.gauntlet.texts import battery, mutants, random_texts
from crlbench.suite.gauntlet.verdicts import AGREEMENT

ROWS: dict[Level, int] = {"quick": 16, "full": 64}
"""Starts of each split that a rule plays from."""
STATES = 50
"""Reached states that are looked at."""
TEXTS = 200
"""Random texts that an environment must survive."""
ODD_ROWS = 4
"""One of so many starts is played with odd turns."""
PARTS = 8
"""Of the calls with one odd argument, a state meets one of so many."""
LEAST_LOSS = 0.05
"""How much a wrong turn costs at least, on average."""
LEAST_ROOM = 0.2
"""How far the floor lies below the ceiling at least."""
BLIND_SHARE = 0.2
"""Share of the way from floor to ceiling that texts may go which are said without looking."""


def check_step_purity(task: Task, level: Level = "full", elsewhere: bool = True) -> Finding:
    """A function of the environment says the same again, in another order and in another process,
    and leaves its arguments as they were.

    Args:
        elsewhere: whether another process is asked too.
    """
    cases = _cases(task, level, [*battery(["1"]).values()][:: 4 if level == "full" else 16])
    cases += _odd_cases(task, level, 1 if level == "full" else 3)
    first, again = _try(task, "steps", cases), _try(task, "steps", cases[::-1])[::-1]
    others = [again, *([ask_elsewhere(task, "tried", "steps", cases)] if elsewhere else [])]
    finding = Finding(figures={"cases": len(cases)})
    for number, ((state, _, turn), a) in enumerate(zip(cases, first, strict=True)):
        place = place_of(state, turn)
        for name in a[1]:
            finding.problems.append(f"{name} changes its argument, {place}")
        finding.problems += [
            f"{name}: {one!r:.80} and then {other!r:.80}, {place}"
            for there in (other[number] for other in others)
            for (name, one), (_, other) in zip(a[0], there[0], strict=True)
            if one != other
        ]
    return finding


def check_step_totality(task: Task, level: Level = "full") -> Finding:
    """Any turn in any reached state makes a step of the right types, within all caps, and every
    such state has its scores."""
    if problems := _broken_starts(task):
        return Finding(problems)
    noise = [*itertools.islice(random_texts(task.name), 40 if level == "quick" else TEXTS)]
    cases = _cases(task, level, [*battery(["1"]).values(), *noise])
    cases += _odd_cases(task, level)
    problems = _try(task, "faults", cases)
    return Finding(
        [
            f"{problem}, {place_of(state, turn)}"
            for (state, _, turn), problem in zip(cases, problems, strict=True)
            if problem
        ],
        {"cases": len(cases)},
    )


def _broken_starts(task: Task) -> list[str]:
    """What is wrong with the starts of all splits, each with its row."""
    problems = []
    for split in task.card.splits:
        for row in task.rows(split):
            try:
                check_start(task.environment, row["answer"])
            except ValidationError as error:
                problems.append(f"{row['id']}: {error}")
    return problems


def check_endings(task: Task, level: Level = "full") -> Finding:
    """Every episode ends by its own rules within the turns that the card states, and lets the
    policy speak."""
    rows = _rows(task, level, "ends")
    texts = [*itertools.islice(random_texts(task.name), TEXTS)]
    answers = [row["answer"] for row in rows]
    problems = _try(task, "endings", answers, texts, _golds(task, rows))
    return Finding(list(dict.fromkeys(problems)), {"starts": len(rows)})


def check_golds(task: Task, level: Level = "full") -> Finding:
    """The gold of each start is a whole episode, and their mean score is the frozen ceiling."""
    if not defines(task, "gold"):
        return Finding(["task.py defines no function 'gold': the ceiling is measured by it"])
    finding = Finding()
    for split, card in task.card.splits.items():
        rows = task.rows(split)
        golds, answers = _golds(task, rows), [row["answer"] for row in rows]
        ends = _try(task, "recited", answers, [texts_of(gold) for gold in golds])
        finding.problems += [
            f"{row['id']}: the gold {gold[:80]!r} is no whole episode: {played[:80]!r} is"
            for row, gold, (_, _, played) in zip(rows, golds, ends, strict=True)
            if gold != played
        ]
        finding.problems += [
            f"{row['id']}: the gold has {faults} faults"
            for row, (_, faults, _) in zip(rows, ends, strict=True)
            if faults
        ]
        mean = round(sum(score for score, _, _ in ends) / len(rows), freeze.PLACES)
        finding.figures[split] = mean
        if mean != card.ceiling:
            finding.problems.append(f"{split}: golds score {mean}, the ceiling is {card.ceiling}")
    return finding


def check_judges(task: Task, level: Level = "full") -> Finding:
    """Verifier and audit agree on 99 % of golds and of episodes with a wrong turn."""
    rows = _rows(task, level, "agreement")
    golds, answers = _golds(task, rows), [row["answer"] for row in rows]
    cases = [*zip(golds, answers, strict=True)]
    slips = _try(task, "slips", answers, golds, task.name)
    cases += [(played, answers[number]) for number, _, played in slips]
    texts, starts = [text for text, _ in cases], [answer for _, answer in cases]
    pairs = zip(*(judged(task, name, texts, starts) for name in ("verify", "audit")), strict=True)
    share = sum(a == b for a, b in pairs) / len(cases)
    finding = Finding(figures={"cases": len(cases), "agreement": share})
    if share < AGREEMENT:
        finding.problems.append(
            f"verifier and audit agree on {share:.4f} of the episodes; least: {AGREEMENT}"
        )
    return finding


def check_floor(task: Task, level: Level = "full") -> Finding:
    """No policy that knows nothing scores above the frozen floor, which random legal texts are part
    of: those that are listed are legal."""
    finding = Finding(_try(task, "listed", _places(task, level)))
    for split in ["id"] if level == "quick" else [*task.card.splits]:
        rows = task.rows(split)[: freeze.NULL_ROWS]
        answers = [row["answer"] for row in rows]
        scores = _try(task, "null_scores", answers, _golds(task, rows), task.name)
        finding.figures[split] = scores
        limit = task.card.splits[split].floor
        finding.problems += [
            f"{split}: the policy '{policy}' scores {score}, above the floor {limit}"
            for policy, score in scores.items()
            if score > limit
        ]
    return finding


def check_looking(task: Task, level: Level = "full") -> Finding:
    """Who does not look scores near the floor, and the floor lies well below the ceiling."""
    finding = Finding()
    for split, card in task.card.splits.items():
        room = card.ceiling - card.floor
        finding.figures[split] = round(room, freeze.PLACES)
        if room < LEAST_ROOM:
            finding.problems.append(
                f"{split}: the floor {card.floor} lies {room:.3f} below the ceiling"
                f" {card.ceiling}; least: {LEAST_ROOM}"
            )
    rows = task.rows("id")
    blind = _blind(task, rows)
    if blind:
        answers = [rows[number]["answer"] for number, _ in blind]
        ends = _try(task, "recited", answers, [texts for _, texts in blind])
        mean = sum(score for score, _, _ in ends) / len(ends)
        floor, ceiling = task.card.floor, task.card.ceiling
        limit = floor + BLIND_SHARE * (ceiling - floor)
        finding.figures["blind"] = mean
        if mean > limit:
            finding.problems.append(
                f"id: the golds of other starts with the same first view score {mean:.3f}, above"
                f" {limit:.3f}: nothing that is told later matters"
            )
    return finding


def _blind(task: Task, rows: Sequence[Row]) -> list[tuple[int, list[str]]]:
    """Rows with the gold texts of another row that begins with the same view."""
    by_view: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        by_view.setdefault(row["messages"][-1]["content"], []).append(number)
    pairs = [
        (number, numbers[(place + 1) % len(numbers)])
        for numbers in by_view.values()
        if len(numbers) > 1
        for place, number in enumerate(numbers)
    ]
    golds = _golds(task, [rows[other] for _, other in pairs])
    return [(number, texts_of(gold)) for (number, _), gold in zip(pairs, golds, strict=True)]


def check_slips(task: Task, level: Level = "full") -> Finding:
    """A wrong turn costs something, and a turn with a slip is a fault or another move."""
    rows = _rows(task, level, "slips")
    golds = _golds(task, rows)
    answers = [row["answer"] for row in rows]
    full = _try(task, "recited", answers, [texts_of(gold) for gold in golds])
    slips = _try(task, "slips", answers, golds, task.name)
    finding = Finding(figures={"episodes": len(slips)})
    losses = [full[number][0] - score for number, score, _ in slips]
    loss = sum(losses) / max(len(losses), 1)
    finding.figures["loss"] = loss
    if loss < LEAST_LOSS:
        finding.problems.append(
            f"golds with one wrong turn score {loss:.3f} below golds on average; least:"
            f" {LEAST_LOSS}"
        )
    positions = [case for case in _positions(task, level) if case[2]]
    pairs = [
        (case, [case[0], case[1], slip])
        for case in positions
        for slip in draw_texts(mutants(case[2]), 6, task.name, case[0])
    ]
    before = _try(task, "moves", [case for case, _ in pairs])
    after = _try(task, "moves", [slip for _, slip in pairs])
    finding.problems += [
        f"{slip[2]!r} is taken for {case[2]!r} in {case[0][:120]}"
        for (case, slip), one, other in zip(pairs, before, after, strict=True)
        if not other[1] and one[0] == other[0]
    ]
    return finding


def check_leaks(task: Task, level: Level = "full") -> Finding:
    """States that differ in hidden fields alone tell a seat the same."""
    if task.environment.hidden is None:
        return Finding(skipped="the environment names no hidden fields")
    positions = _positions(task, level)
    states = [state for state, _, _ in positions]
    cases = [
        [state, seat, other]
        for number, (state, seat, _) in enumerate(positions)
        for other in (states[number - 1], states[number - len(states) // 2])
    ]
    problems = _try(task, "leaks", cases)
    return Finding(problems, {"pairs": len(cases)})


def check_panel(task: Task, level: Level = "full") -> Finding:
    """Every scripted seat says what is legal, in every reached state."""
    if not task.environment.panel:
        return Finding(skipped="no seat is scripted")
    places = _places(task, level)
    return Finding(_try(task, "scripted", places), {"states": len(places)})


CHECKS = {
    "gold": check_golds,
    "agreement": check_judges,
    "floor": check_floor,
    "episode-pure": check_step_purity,
    "episode-total": check_step_totality,
    "terminates": check_endings,
    "needs-looking": check_looking,
    "slips": check_slips,
    "no-leak": check_leaks,
    "panel": check_panel,
}
"""Rules by name; three of them stand in for rules of single-turn tasks."""
LEFT_OUT = ("mutants", "adversarial", "near-duplicates", "answer-formats")
"""Rules of single-turn tasks that say nothing of episodes."""
MEANINGS = {
    "gold": "golds are whole episodes without a fault, and reach the frozen ceiling",
    "agreement": "verifier and audit agree on 99 % of golds and of episodes with a wrong turn",
    "episode-pure": "the environment's functions are functions, and change no argument",
    "episode-total": "any turn in any state makes a sound step within all caps, and has scores",
    "terminates": "every episode ends by its own rules, in time",
    "needs-looking": "texts said without looking score near the floor, far below the ceiling",
    "slips": "a wrong turn costs something, and a slip is a fault or another move",
    "no-leak": "nobody is told what the state hides",
    "panel": "scripted seats say what is legal",
}


def _rows(task: Task, level: Level, purpose: str) -> list[Row]:
    """Starts of all splits."""
    return [
        row
        for split in task.card.splits
        for row in draw_rows(task.rows(split), ROWS[level], task.name, purpose)
    ]


def _golds(task: Task, rows: Sequence[Row]) -> list[str]:
    """The gold transcript of each row."""
    return ask(task, "texts", "gold", [row["answer"] for row in rows]) if rows else []


def _positions(task: Task, level: Level) -> list[list[Any]]:
    """[state, seat, what the gold says there] of states that episodes reach."""
    rows = _rows(task, "quick", "states")
    count = STATES if level == "full" else STATES // 3
    answers = [row["answer"] for row in rows]
    return _try(task, "reached", answers, _golds(task, rows), count, task.name)


def _odd_positions(task: Task, level: Level) -> list[list[Any]]:
    """[state, seat, a turn] of half as many states, which episodes with odd turns reach."""
    rows = _rows(task, "quick", "states")[::ODD_ROWS]
    count = (STATES if level == "full" else STATES // 3) // 2
    answers = [row["answer"] for row in rows]
    return _try(task, "reached_oddly", answers, _golds(task, rows), count, task.name)


def _places(task: Task, level: Level) -> list[list[Any]]:
    """[state, seat] that episodes reach."""
    return [[state, seat] for state, seat, _ in _positions(task, level)]


def _cases(task: Task, level: Level, texts: Sequence[str]) -> list[list[Any]]:
    """[state, seat, text] of all texts, and of what the gold says, in reached states."""
    return [
        [state, seat, text]
        for state, seat, right in _positions(task, level)
        for text in (right, *texts)
    ]


def _odd_cases(task: Task, level: Level, share: int = 1) -> list[list[Any]]:
    """[state, seat, turn] of turns of every shape, in states that golds and such turns reach.

    Args:
        share: each state meets one of so many, the next state others.
    """
    tools = tools_of(task.environment)
    oddly = _odd_positions(task, level)
    positions = [*_positions(task, level), *([state, seat, ""] for state, seat, _ in oddly)]
    return oddly + [
        [state, seat, turn]
        for number, (state, seat, right) in enumerate(positions)
        for turn in turns(tools, right, number, PARTS)[number % share :: share]
    ]


def _try(task: Task, name: str, *arguments: Any) -> Any:
    """What a trial of :mod:`crlbench.reward.trials` finds."""
    return ask(task, "tried", name, *arguments)
