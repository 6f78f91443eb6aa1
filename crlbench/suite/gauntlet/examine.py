"""All rules that every task keeps, each tried on the task itself, however broken its folder is.

``CHECKS`` holds one check per rule, ``run`` puts a task through all of them, ``examine`` does the
same for a folder that may be too broken to load: nothing is raised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from crlbench.catalog import frozen
from crlbench.catalog.code import generator_digest, rewritten_code, verifier_digest
from crlbench.catalog.frozen import Task
from crlbench.catalog.rows import Row, parse_rows, read_bytes, read_rows
from crlbench.confine.room import Code
from crlbench.confine.task import ConfinedTask, facts_of, judge_of
from crlbench.contract.task_card import TaskCard, read_task_card
from crlbench.disk import line_ends, rowfiles
from crlbench.disk.hashing import sha256_bytes
from crlbench.disk.names import FROZEN
from crlbench.errors import CrlbenchError, EnvironmentUnfit, ValidationError
from crlbench.reward.splits import FORMAT_TEMPLATES, SPLITS
from crlbench.suite import pairs
from crlbench.suite.gauntlet import code, duplicates, episodes, items, verdicts
from crlbench.suite.gauntlet.asking import Level
from crlbench.suite.gauntlet.report import Finding, Outcome, Report
from crlbench.suite.golds import gold_scores, rejected

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


def checks_of(card: TaskCard) -> dict[str, Callable[..., Finding]]:
    """The checks of a task of a kind, by rule."""
    if card.kind != "environment":
        return CHECKS
    shared = {rule: check for rule, check in CHECKS.items() if rule not in episodes.LEFT_OUT}
    return shared | episodes.CHECKS



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
BROKEN = "the files are broken: see above"


def meaning_of(card: TaskCard | None, rule: str) -> str:
    """What a rule asks of a task."""
    own = episodes.MEANINGS if card is not None and card.kind == "environment" else {}
    return own.get(rule) or MEANINGS[rule]


def examine(
    folder: Path,
    effort: Level = "full",
    others: Iterable[Task] = (),
    known: Mapping[str, Finding] | None = None,
) -> Report:
    """The report on a task's folder.

    A folder whose files are whole goes through every rule. Of any other the report names each
    broken file, line and field, and answers that their own verifier rejects; the other rules
    are marked as not run. The files are read first. The task's code runs confined, after that,
    and only if it has the digests that its card states. ``known`` holds findings that need no
    second try, by rule.
    """
    start = time.perf_counter()
    try:
        card = read_task_card(folder / FROZEN)
    except CrlbenchError as error:
        return _unreadable(folder, effort, [str(error)], start)
    if card.source is not None and not frozen.has_rows(card, folder):
        return _not_fetched(card, effort)
    problems = [*_file_problems(card, folder)]
    digests = [*_digest_problems(card, folder)]
    if digests:
        return _unreadable(folder, effort, [*problems, *digests], start, card)
    path = folder / card.generator.module
    confined = Code(read_bytes(path), path)
    try:
        problems += _code_problems(card, confined)
        if problems:
            return _unreadable(folder, effort, problems, start, card, confined)
    finally:
        confined.close()
    with ConfinedTask(folder) as task:
        return run(task, effort, others, known)


def _not_fetched(card: TaskCard, effort: Level) -> Report:
    reason = f"not fetched: crlbench fetch --task {card.name}"
    outcomes = tuple(not_run((FILES, *checks_of(card)), reason, unfit=True, card=card))
    return Report(card.name, card.version, effort, outcomes)


def _unreadable(
    folder: Path,
    effort: Level,
    problems: list[str],
    start: float,
    card: TaskCard | None = None,
    confined: Code | None = None,
) -> Report:
    """The report on broken files; ``confined`` is the code where it may run."""
    seconds = time.perf_counter() - start
    files = Outcome(FILES, MEANINGS[FILES], "broken", tuple(problems), seconds=seconds)
    gold = _gold_outcome(card, folder, confined) if card and confined else None
    rules = CHECKS if card is None else checks_of(card)
    rest = not_run((rule for rule in rules if not (gold and rule == "gold")), BROKEN, card=card)
    outcomes = (files, *([gold] if gold else []), *rest)
    return Report(folder.name, card.version if card else "", effort, outcomes)


def _file_problems(card: TaskCard, folder: Path) -> Iterator[str]:
    """Everything that keeps a task's files from being read as they were frozen."""
    place = frozen.rows_folder(card, folder)
    for path in sorted([*place.glob("*.jsonl"), *place.glob(f"*.jsonl{rowfiles.SUFFIX}")]):
        name = path.name.removesuffix(rowfiles.SUFFIX)
        if Path(name).stem not in card.splits and not _is_pairs(card, name):
            names = ", ".join(SPLITS)
            yield f"{path}: no split of frozen.toml has this file; a task's splits: {names}"
    for name, split in card.splits.items():
        if name not in SPLITS:
            yield f"{folder / FROZEN}: field splits.{name}: is unknown. Known: {SPLITS}"
        try:
            path = rowfiles.standing(place / split.file)
            data = read_rows(place / split.file)
        except CrlbenchError as error:
            yield str(error)
            continue
        inside = list(_line_problems(data, path, name, split.levels))
        yield from inside
        sha256 = sha256_bytes(data)
        if sha256 != split.sha256 and not inside:
            yield (
                f"{path}: was changed: its sha256 is {sha256}, frozen.toml says {split.sha256}. "
                f"{line_ends.rewritten(path, data, split.sha256)}"
            ).removesuffix(". ")
    yield from _pairs_problems(card, place)


def _pairs_problems(card: TaskCard, place: Path) -> Iterator[str]:
    for name in card.pairs or {}:
        try:
            pairs.frozen_pairs(card, name, place)
        except CrlbenchError as error:
            yield str(error)


def _is_pairs(card: TaskCard, name: str) -> bool:
    return name in [one.file for one in (card.pairs or {}).values()]


def _line_problems(data: bytes, path: Path, split: str, levels: tuple[int, ...]) -> Iterator[str]:
    """Malformed lines, then rows that name another split, level or template than there is."""
    try:
        rows = parse_rows(data, path)
    except ValidationError as error:
        yield str(error)
        return
    for number, row in enumerate(rows, start=1):
        place = f"{path}:{number}: field"
        if row["id"].rpartition("-")[0] != split:
            yield f"{place} id: '{row['id']}' names another split than '{split}', the file's"
        if row["level"] not in items.LEVELS:
            yield f"{place} level: {row['level']} is unknown; allowed: 1, 2, 3"
        elif row["level"] not in levels:
            yield f"{place} level: frozen.toml gives {split} the levels {[*levels]} only"
        if row["template"] not in (0, *FORMAT_TEMPLATES):
            yield f"{place} template: {row['template']} is unknown; allowed: 0 to 5"


def _digest_problems(card: TaskCard, folder: Path) -> Iterator[str]:
    """Why the code may not run: its sources are not those that the card was frozen with."""
    path = folder / card.generator.module
    try:
        sha256 = verifier_digest(path)
        if sha256 != card.verifier.sha256:
            yield (
                f"{path}: the verifier changed since the task was frozen: its sources have sha256"
                f" {sha256}, frozen.toml says {card.verifier.sha256}."
                f" {rewritten_code(path, card.verifier.sha256)}"
            ).removesuffix(". ")
        sha256 = generator_digest(path)
        if sha256 != card.generator.sha256:
            yield (
                f"{path}: the sources that make the rows have sha256 {sha256}, frozen.toml says"
                f" {card.generator.sha256}."
                f" {rewritten_code(path, card.generator.sha256, generator_digest)}"
            ).removesuffix(". ")
    except CrlbenchError as error:
        yield str(error)


def _code_problems(card: TaskCard, confined: Code) -> Iterator[str]:
    """Functions that the code lacks, or why it cannot be loaded; none where nothing can run."""
    try:
        functions = facts_of(confined)["functions"]
    except EnvironmentUnfit:
        return
    except CrlbenchError as error:
        yield str(error)
        return
    for name in (card.verifier.entry, card.verifier.audit):
        if name not in functions:
            yield f"{confined.path}: defines no function '{name}'."


def _gold_outcome(card: TaskCard, folder: Path, confined: Code) -> Outcome | None:
    """Answers of readable split files that their own verifier rejects; None if it cannot run."""
    if not card.golds:
        return None
    try:
        places = [place for split in card.splits for place in _readable(card, folder, split)]
        answers = [row["answer"] for _, row in places]
        judge = judge_of(confined, card.verifier.entry, answers, answers)
        scores = gold_scores(card.kind, judge, answers, answers, card.name)
    except EnvironmentUnfit:
        return None
    except CrlbenchError as error:
        return Outcome("gold", MEANINGS["gold"], "broken", (str(error),))
    except Exception as error:  # the task's own code may raise anything
        problem = f"{type(error).__name__}: {error}"
        return Outcome("gold", MEANINGS["gold"], "broken", (problem,))
    problems = tuple(
        f"{where}: field answer: {row['id']}: its own verifier rejects {row['answer']!r}"
        for (where, row), score in zip(places, scores, strict=True)
        if rejected(card.kind, score)
    )
    status = "broken" if problems else "ok"
    return Outcome("gold", MEANINGS["gold"], status, problems, {"golds": len(places)})


def _readable(card: TaskCard, folder: Path, split: str) -> list[tuple[str, Row]]:
    """The rows of a split file, each with its file and line; none where a line is malformed."""
    file = frozen.rows_folder(card, folder) / card.splits[split].file
    try:
        path = rowfiles.standing(file)
        rows = parse_rows(read_rows(file), path)
    except CrlbenchError:
        return []
    return [(f"{path}:{line}", row) for line, row in enumerate(rows, start=1)]


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
    rules = checks_of(task.card)
    outcomes += [try_rule(rule, task, effort, others, known.get(rule)) for rule in rules]
    return Report(task.name, task.card.version, effort, tuple(outcomes))


def try_rule(
    rule: str,
    task: Task,
    effort: Level,
    others: Iterable[Task] = (),
    finding: Finding | None = None,
) -> Outcome:
    """One rule on a task. What a check or the task's code raises becomes part of the outcome."""
    start = time.perf_counter()
    extra = {"others": others} if rule == "near-duplicates" else {}
    unfit, reason = False, ""
    problems: tuple[str, ...] = ()
    figures: dict[str, Any] = {}
    try:
        finding = finding or checks_of(task.card)[rule](task, effort, **extra)
        problems, figures, reason = tuple(finding.problems), finding.figures, finding.skipped
    except EnvironmentUnfit as error:
        unfit, reason = True, str(error)
    except CrlbenchError as error:
        problems = (str(error),)
    except Exception as error:  # the task's own code may raise anything
        problems = (f"{type(error).__name__}: {error}",)
    return Outcome(
        rule,
        meaning_of(task.card, rule),
        "broken" if problems else "not run" if unfit else "does not apply" if reason else "ok",
        problems,
        figures,
        reason,
        unfit,
        time.perf_counter() - start,
    )


def not_run(
    rules: Iterable[str], reason: str, unfit: bool = False, card: TaskCard | None = None
) -> Iterator[Outcome]:
    """Outcomes of rules that could not be tried."""
    for rule in rules:
        yield Outcome(rule, meaning_of(card, rule), "not run", reason=reason, unfit=unfit)
