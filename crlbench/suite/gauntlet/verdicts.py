"""Rules about verifier and audit: what they pay, where they agree, that they are functions."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from functools import partial

from crlbench.catalog.frozen import ANSWER_OF, Task
from crlbench.catalog.rows import Row
from crlbench.confine.room import Stopped
from crlbench.errors import ValidationError
from crlbench.reward.score import outcomes
from crlbench.suite import freeze
from crlbench.suite.gauntlet.asking import (
    Level,
    ask,
    defines,
    draw_rows,
    draw_texts,
    effort_of,
    judge,
    null_texts,
    verdicts_elsewhere,
)
from crlbench.suite.gauntlet.items import all_rows
from crlbench.suite.gauntlet.report import Finding
from crlbench.suite.gauntlet.texts import ATTACKS, battery, mutants, random_texts
from crlbench.suite.golds import gold_scores, rejected

AGREEMENT = 0.99
"""Least share of golds and mutants on which verifier and audit agree."""
ADVERSARIAL_SLACK = 0.02
"""How far above the floor an adversarial text may score."""
PURE_ROWS = 64
WRONG_ANSWERS = 8
"""Wrong answers of other rows that an attack on a row may use."""
LEARNED = "paid by a reward model, which can be gamed: its floors are frozen with it"
NO_GOLDS = "an answer says what a completion must obey and is no completion"

JUDGES = ("verify", "audit")
Case = tuple[str, str]
"""A completion and the answer of the row that it is judged by."""


def check_gold(task: Task, level: Level = "full") -> Finding:
    """Verifier and audit give every gold completion 1."""
    if not task.card.golds and not defines(task, "gold"):
        return Finding(skipped=NO_GOLDS)
    rows = _rows(task, effort_of(task, level).golds, "gold")
    finding = Finding(figures={"golds": len(rows)})
    golds, answers = [task.gold(row) or "" for row in rows], [row["answer"] for row in rows]
    for function in JUDGES:
        ask_judge = task.judge_of(function, golds, answers)
        scores = gold_scores(task.card.kind, ask_judge, golds, answers, task.name)
        finding.problems += [
            f"{row['id']}: {function} gives its own answer {row['answer']!r} less than 1"
            for row, score in zip(rows, scores, strict=True)
            if rejected(task.card.kind, score)
        ]
    return finding


def check_mutants(task: Task, level: Level = "full") -> Finding:
    """The verifier gives less than 1 to a gold completion with one slip in it."""
    if not task.card.golds:
        return Finding(skipped=NO_GOLDS)
    cases = _mutant_cases(task, level)
    scores = _judge_cases(task, "verify", cases)
    finding = Finding(figures={"mutants": len(cases)})
    finding.problems = [
        f"the wrong completion {text!r} is paid in full; right is {answer!r}"
        for (text, answer), outcome in zip(cases, scores, strict=True)
        if outcome >= 1.0
    ]
    return finding


def check_agreement(task: Task, level: Level = "full") -> Finding:
    """Verifier and audit agree on at least 99 % of golds and of golds with a slip."""
    cases = _mutant_cases(task, level) + [
        (text, row["answer"])
        for row in _rows(task, effort_of(task, level).golds, "gold")
        for text in _golds(task, row)
    ]
    if not cases:
        return Finding(skipped="there is no gold completion and no mutant to judge")
    pairs = zip(*(_judge_cases(task, function, cases) for function in JUDGES), strict=True)
    share = sum(a == b for a, b in pairs) / len(cases)
    finding = Finding(figures={"cases": len(cases), "agreement": share})
    if share < AGREEMENT:
        finding.problems.append(
            f"verifier and audit agree on {share:.4f} of the cases; least: {AGREEMENT}"
        )
    return finding


def check_floor(task: Task, level: Level = "full") -> Finding:
    """No policy that knows nothing scores above the frozen floor."""
    if task.card.reward_model is not None:
        return Finding(skipped=LEARNED)
    effort = effort_of(task, level)
    splits = ["id"] if level == "quick" else [*task.card.splits]
    finding = Finding()
    for split in splits:
        rows = task.rows(split)[: freeze.NULL_ROWS]
        if task.card.heavy:
            rows = draw_rows(rows, effort.attacks, task.name, "floor")
        limit = task.card.splits[split].floor + _luck(task, split, rows)
        scores = _nulls(task, rows, effort.constants)
        finding.figures[split] = scores
        finding.problems += [
            f"{split}: the policy '{policy}' scores {score}, above the floor {limit}"
            for policy, score in scores.items()
            if score > limit
        ]
    return finding


def check_adversarial(task: Task, level: Level = "full") -> Finding:
    """No text that tries to please every item, or only looks right, scores above floor + 0.02."""
    if task.card.reward_model is not None:
        return Finding(skipped=LEARNED)
    effort = effort_of(task, level)
    finding = Finding()
    worst = (-1.0, "", 0.0)
    count = 0
    for split in (name for name in ("id", "hard", "format") if name in task.card.splits):
        rows = draw_rows(task.rows(split), effort.attacks, task.name, "adversarial")
        limit = task.card.splits[split].floor + ADVERSARIAL_SLACK + _luck(task, split, rows)
        for name, texts in _attacks(task, split, rows).items():
            cases = [
                (t, row["answer"]) for t, row in zip(texts, rows, strict=True) if t is not None
            ]
            scores = _judge_cases(task, "verify", cases)
            mean = sum(scores) / max(len(cases), 1)
            count += len(cases)
            worst = max(worst, (mean, f"{name}, on {split}", round(limit, 4)))
            if mean > limit:
                text, answer = cases[max(range(len(scores)), key=scores.__getitem__)]
                finding.problems.append(
                    f"{split}: {name} scores {mean:.3f}, above {limit:.3f}; for instance"
                    f" {text[:60]!r} for the answer {answer[:60]!r}"
                )
    finding.figures = {"texts": count, "best": worst[0], "allowed": worst[2], "by": worst[1]}
    return finding


def check_total(task: Task, level: Level = "full") -> Finding:
    """Verifier and audit return a number from 0 to 1 for any text whatever, and a task's canonical
    form is a text, the same again."""
    answers = {row["template"]: row["answer"] for row in all_rows(task)}
    noise = [*itertools.islice(random_texts(task.name), effort_of(task, level).texts)]
    phrases = [*battery([row["answer"] for row in task.rows("id")]).values()]
    texts = noise + (phrases[:: len(phrases) // 6] if task.card.heavy else phrases)
    finding = Finding(figures={"texts": len(texts), "answers": len(answers)})
    cases = [*itertools.product(texts, answers.values())]
    for function in JUDGES:
        say = task.judge_of(function, [t for t, _ in cases], [a for _, a in cases])
        for text, answer in cases:
            try:
                outcomes(say, [text], [answer], task.name)
            except Stopped:
                raise
            except ValidationError as error:
                finding.problems.append(f"{function}: {error}")
    finding.problems += _check_forms(task, texts)
    return finding


def _check_forms(task: Task, texts: Sequence[str]) -> list[str]:
    """What is wrong with the canonical forms of a task that defines them."""
    if ANSWER_OF not in ask(task, "facts")["functions"]:
        return []
    try:
        first, again = task.answers_of(texts), task.answers_of(texts[::-1])[::-1]
    except Stopped:
        raise
    except Exception as error:
        return [f"{ANSWER_OF}: {type(error).__name__}: {error}"]
    return [
        f"{ANSWER_OF} made {a!r} and then {b!r} of {text!r}"
        for text, a, b in zip(texts, first, again, strict=True)
        if a != b
    ]


def check_pure(task: Task, level: Level = "full") -> Finding:
    """A verdict depends on text and answer alone: the same again, in another order, and in
    another process; verify and audit take nothing else."""
    finding = Finding()
    functions = ask(task, "facts")["functions"]
    for function in JUDGES:
        names = functions.get(function)
        if names != ["text", "answer"]:
            finding.problems.append(
                f"{function}({', '.join(names or ())}): must take exactly (text, answer), the"
                " completion and the frozen answer"
            )
    if finding.problems:
        return finding
    cases = _pure_cases(task, level)
    first = _judge_cases(task, "verify", cases)
    again = _judge_cases(task, "verify", cases[::-1])[::-1]
    elsewhere = verdicts_elsewhere(task, cases)
    for (text, answer), a, b, c in zip(cases, first, again, elsewhere, strict=True):
        if a != b:
            finding.problems.append(
                f"the verifier said {a} and then {b} to {text!r} for {answer!r}"
            )
        elif a != c:
            finding.problems.append(
                f"the verifier said {a} here and {c} in another process to {text!r} for {answer!r}"
            )
    finding.figures["cases"] = len(cases)
    return finding


def _pure_cases(task: Task, level: Level) -> list[Case]:
    effort = effort_of(task, level)
    rows = draw_rows(task.rows("id")[:PURE_ROWS], effort.attacks, task.name, "pure")
    return [
        (text, row["answer"])
        for row in rows
        for text in (
            *_golds(task, row),
            row["messages"][-1]["content"],
            *draw_texts(mutants(row["answer"]), 4 if task.card.golds else 0, task.name, "pure"),
        )
    ]


def _rows(task: Task, count: int | None, purpose: str) -> list[Row]:
    """Rows of all splits, each answer of a split once, at most ``count`` of a split."""
    rows: list[Row] = []
    answers: set[tuple[int, str]] = set()
    for split in task.card.splits:
        fresh = {}
        for row in task.rows(split):
            if (row["template"], row["answer"]) not in answers:
                fresh.setdefault(row["answer"], row)
        drawn = draw_rows([*fresh.values()], count, task.name, purpose)
        answers |= {(row["template"], row["answer"]) for row in drawn}
        rows += drawn
    return rows


def _mutant_cases(task: Task, level: Level) -> list[Case]:
    effort = effort_of(task, level)
    if not task.card.golds:
        return []
    return [
        (text, row["answer"])
        for row in _rows(task, effort.items, "mutants")
        for text in draw_texts(_mutants(task, row), effort.mutants, task.name, "mutants")
    ]


def _mutants(task: Task, row: Row) -> list[str]:
    """Wrong completions one slip away; a task that compares to a tolerance says them itself."""
    if not defines(task, "mutants"):
        return mutants(row["answer"])
    (texts,) = ask(task, "texts", "mutants", [row["answer"]])
    return texts


def _golds(task: Task, row: Row) -> list[str]:
    """The completions that a row is tried with: its gold, else those of who knows nothing."""
    gold = task.gold(row)
    return null_texts(task) if gold is None else [gold]


def _nulls(task: Task, rows: list[Row], constants: int | None) -> dict[str, float]:
    """The scores of the null policies; with ``constants``, only so many answers are tried as
    the best single one, and no random ones."""
    texts = null_texts(task) if not task.card.golds else ()
    if constants is None:
        return freeze.null_scores(partial(judge, task, "verify"), rows, task.name, texts)
    replies = list(texts) or [row["answer"] for row in rows]
    frequent = [text for text, _ in Counter(replies).most_common(constants // 2)]
    others = [text for text in dict.fromkeys(replies) if text not in frequent]
    replies = frequent + draw_texts(others, constants - len(frequent), task.name, "constant")
    return {
        "empty": _mean(task, [""] * len(rows), rows),
        "constant": max(_mean(task, [text] * len(rows), rows) for text in replies),
        "echo": _mean(task, [row["messages"][-1]["content"] for row in rows], rows),
    }


def _luck(task: Task, split: str, rows: Sequence[Row]) -> float:
    """What two items more add to a mean over a part of the rows that the floor was measured on."""
    count = min(task.card.splits[split].count, freeze.NULL_ROWS)
    return 2 / len(rows) if len(rows) < count else 0.0


def _mean(task: Task, texts: Sequence[str], rows: Sequence[Row]) -> float:
    scores = judge(task, "verify", texts, [row["answer"] for row in rows])
    return round(sum(scores) / len(rows), freeze.PLACES)


def _attacks(task: Task, split: str, rows: Sequence[Row]) -> dict[str, list[str | None]]:
    """Every text of the battery by name, one for each row; None where it is no attack."""
    answers = [row["answer"] for row in task.rows(split)]
    phrases = battery(answers if task.card.golds else null_texts(task))
    attacks: dict[str, list[str | None]] = {
        name: [text] * len(rows) for name, text in phrases.items()
    }
    if not task.card.golds:
        return attacks
    wrong = [_wrong_answers(task, row, task.rows(split)) for row in rows]
    for name, attack in ATTACKS.items():
        texts = (
            attack(row["answer"], row, others) if others else row["answer"]
            for row, others in zip(rows, wrong, strict=True)
        )
        attacks[name] = [
            None if text == row["answer"] else text for text, row in zip(texts, rows, strict=True)
        ]
    return attacks


def _wrong_answers(task: Task, row: Row, rows: Sequence[Row]) -> list[str]:
    """Answers of other rows in the same format that the verifier does not pay for this one."""
    answers = [one["answer"] for one in rows if one["template"] == row["template"]]
    others = [answer for answer in dict.fromkeys(answers) if answer != row["answer"]]
    count = 2 if task.card.heavy else WRONG_ANSWERS
    drawn = draw_texts(others, count, task.name, row["id"])
    scores = judge(task, "verify", drawn, [row["answer"]] * len(drawn))
    return [answer for answer, score in zip(drawn, scores, strict=True) if score < 1.0]


def _judge_cases(task: Task, function: str, cases: Sequence[Case]) -> list[float]:
    return judge(task, function, [text for text, _ in cases], [answer for _, answer in cases])
