"""All rules by name: what each means and what tries it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from crlbench.catalog.frozen import Task
from crlbench.errors import CrlbenchError, EnvironmentUnfit
from crlbench.suite.gauntlet import code, duplicates, items, verdicts
from crlbench.suite.gauntlet.effort import Level
from crlbench.suite.gauntlet.finding import Finding
from crlbench.suite.gauntlet.report import Outcome, Report

CHECKS: dict[str, Callable[..., Finding]] = {
    "shape": items.check_shape,
    "card": items.check_card,
    "readme": items.check_readme,
    "disjoint": items.check_disjoint,
    "keys": items.check_keys,
    "subsets": items.check_subsets,
    "answer-formats": items.check_answer_formats,
    "near-duplicates": duplicates.check_duplicates,
    "source": code.check_source,
    "seeds": code.check_seeds,
    "regeneration": code.check_regeneration,
    "gold": verdicts.check_gold,
    "mutants": verdicts.check_mutants,
    "agreement": verdicts.check_agreement,
    "floor": verdicts.check_floor,
    "adversarial": verdicts.check_adversarial,
    "total": verdicts.check_total,
    "pure": verdicts.check_pure,
}
"""``check(task, effort)`` by rule; near-duplicates also takes the other tasks."""

FILES = "files"
"""The rule that a task must keep before any other can be tried."""

MEANINGS = {
    FILES: "every line of every file is well-formed, and the files have their digests",
    "shape": "sizes, levels, templates and lengths are as announced",
    "card": "the facts in frozen.toml are those of the rows",
    "readme": "README.md says what is measured and how replies are judged",
    "disjoint": "training and evaluation share no text and no key",
    "keys": "a key says what is asked: one for all templates of an item",
    "subsets": "train_fixed and format hold items of train and ID",
    "answer-formats": "some paraphrase asks for another answer format",
    "near-duplicates": "no evaluation item stands nearly word for word elsewhere",
    "source": "task.py uses no clock, file, network, address or global state",
    "seeds": "rows are drawn from the generator that build is handed, and nothing else",
    "regeneration": "the code makes the same bytes again, also in another process",
    "gold": "verifier and audit pay every gold completion in full",
    "mutants": "a gold completion with one slip is paid less",
    "agreement": "verifier and audit agree on 99 % of golds and mutants",
    "floor": "policies that know nothing score at most the frozen floor",
    "adversarial": "no text of the battery scores above floor + 0.02",
    "total": "verifier and audit judge any text without failing",
    "pure": "a verdict is the same again, in any order and in another process",
}


def run(
    task: Task,
    effort: Level = "full",
    others: Iterable[Task] = (),
    known: Mapping[str, Finding] | None = None,
) -> Report:
    """Every rule on a task whose rows are here.

    Args:
        effort: ``quick`` looks at a part drawn by hashing, ``full`` at everything.
        others: the tasks whose rows are looked through for near-duplicates.
        known: findings that need no second try, by rule.
    """
    others, known = list(others), known or {}
    outcomes = [Outcome(FILES, MEANINGS[FILES], "ok")]
    outcomes += [tried(rule, task, effort, others, known.get(rule)) for rule in CHECKS]
    return Report(task.name, task.card.version, effort, tuple(outcomes))


def tried(
    rule: str,
    task: Task,
    effort: Level,
    others: Iterable[Task] = (),
    found: Finding | None = None,
) -> Outcome:
    """One rule on a task. What a check or the task's code raises becomes part of the outcome."""
    begun = time.perf_counter()
    extra = {"others": others} if rule == "near-duplicates" else {}
    unfit, reason = False, ""
    problems: tuple[str, ...] = ()
    figures: dict[str, Any] = {}
    try:
        found = found or CHECKS[rule](task, effort, **extra)
        problems, figures, reason = tuple(found.problems), found.figures, found.skipped
    except EnvironmentUnfit as error:
        unfit, reason = True, str(error)
    except CrlbenchError as error:
        problems = (str(error),)
    except Exception as error:  # the task's own code may raise anything
        problems = (f"{type(error).__name__}: {error}",)
    return Outcome(
        rule,
        MEANINGS[rule],
        "broken" if problems else "not run" if unfit else "does not apply" if reason else "ok",
        problems,
        figures,
        reason,
        unfit,
        time.perf_counter() - begun,
    )


def not_run(rules: Iterable[str], reason: str, unfit: bool = False) -> Iterator[Outcome]:
    """Outcomes of rules that could not be tried."""
    for rule in rules:
        yield Outcome(rule, MEANINGS[rule], "not run", reason=reason, unfit=unfit)
