"""A task folder, however broken: what can be said about it is said, and nothing is raised."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from crlbench.catalog import frozen
from crlbench.catalog.frozen import Row, Task
from crlbench.confine.room import Code
from crlbench.confine.task import ConfinedTask, facts_of, judge_of
from crlbench.contract.task_card import TaskCard, read_task_card
from crlbench.disk import line_ends, rowfiles
from crlbench.disk.names import FROZEN
from crlbench.errors import CrlbenchError, EnvironmentUnfit, ValidationError
from crlbench.reward.splits import FORMAT_TEMPLATES, SPLITS
from crlbench.suite import pairs
from crlbench.suite.gauntlet.effort import Level
from crlbench.suite.gauntlet.finding import Finding
from crlbench.suite.gauntlet.items import LEVELS
from crlbench.suite.gauntlet.report import Outcome, Report
from crlbench.suite.gauntlet.rules import CHECKS, FILES, MEANINGS, not_run, run
from crlbench.suite.golds import gold_scores, rejected

BROKEN = "the files are broken: see above"


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
    begun = time.perf_counter()
    try:
        card = read_task_card(folder / FROZEN)
    except CrlbenchError as error:
        return _unreadable(folder, effort, [str(error)], begun)
    if card.source is not None and not frozen.has_rows(card, folder):
        return _not_fetched(card, effort)
    problems = [*_file_problems(card, folder)]
    digests = [*_digest_problems(card, folder)]
    if digests:
        return _unreadable(folder, effort, [*problems, *digests], begun, card)
    code = Code(frozen.read_bytes(folder / card.generator.module), folder / card.generator.module)
    try:
        problems += _code_problems(card, code)
        if problems:
            return _unreadable(folder, effort, problems, begun, card, code)
    finally:
        code.close()
    with ConfinedTask(folder) as task:
        return run(task, effort, others, known)


def _not_fetched(card: TaskCard, effort: Level) -> Report:
    reason = f"not fetched: crlbench fetch --task {card.name}"
    outcomes = tuple(not_run((FILES, *CHECKS), reason, unfit=True))
    return Report(card.name, card.version, effort, outcomes)


def _unreadable(
    folder: Path,
    effort: Level,
    problems: list[str],
    begun: float,
    card: TaskCard | None = None,
    code: Code | None = None,
) -> Report:
    """The report on broken files; ``code`` where it may run."""
    seconds = time.perf_counter() - begun
    files = Outcome(FILES, MEANINGS[FILES], "broken", tuple(problems), seconds=seconds)
    gold = _gold_outcome(card, folder, code) if card is not None and code is not None else None
    rest = not_run((rule for rule in CHECKS if not (gold and rule == "gold")), BROKEN)
    found = (files, *([gold] if gold else []), *rest)
    return Report(folder.name, card.version if card else "", effort, found)


def _file_problems(card: TaskCard, folder: Path) -> Iterator[str]:
    """Everything that keeps a task's files from being read as they were frozen."""
    place = frozen.rows_folder(card, folder)
    for path in sorted([*place.glob("*.jsonl"), *place.glob(f"*.jsonl{rowfiles.SUFFIX}")]):
        name = path.name.removesuffix(rowfiles.SUFFIX)
        if Path(name).stem not in card.splits and not _is_pairs(card, name):
            known = ", ".join(SPLITS)
            yield f"{path}: no split of frozen.toml has this file; a task's splits: {known}"
    for name, split in card.splits.items():
        if name not in SPLITS:
            yield f"{folder / FROZEN}: field splits.{name}: is unknown. Known: {SPLITS}"
        try:
            path = rowfiles.standing(place / split.file)
            data = frozen.read_rows(place / split.file)
        except CrlbenchError as error:
            yield str(error)
            continue
        inside = list(_line_problems(data, path, name, split.levels))
        yield from inside
        found = hashlib.sha256(data).hexdigest()
        if found != split.sha256 and not inside:
            yield (
                f"{path}: was changed: its sha256 is {found}, frozen.toml says {split.sha256}. "
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
        rows = frozen.parse_rows(data, path)
    except ValidationError as error:
        yield str(error)
        return
    for number, row in enumerate(rows, start=1):
        place = f"{path}:{number}: field"
        if row["id"].rpartition("-")[0] != split:
            yield f"{place} id: '{row['id']}' names another split than '{split}', the file's"
        if row["level"] not in LEVELS:
            yield f"{place} level: {row['level']} is unknown; allowed: 1, 2, 3"
        elif row["level"] not in levels:
            yield f"{place} level: frozen.toml gives {split} the levels {[*levels]} only"
        if row["template"] not in (0, *FORMAT_TEMPLATES):
            yield f"{place} template: {row['template']} is unknown; allowed: 0 to 5"


def _digest_problems(card: TaskCard, folder: Path) -> Iterator[str]:
    """Why the code may not run: its sources are not those that the card was frozen with."""
    path = folder / card.generator.module
    try:
        found = frozen.verifier_digest(path)
        if found != card.verifier.sha256:
            yield (
                f"{path}: the verifier changed since the task was frozen: its sources have sha256"
                f" {found}, frozen.toml says {card.verifier.sha256}."
                f" {frozen.rewritten_code(path, card.verifier.sha256)}"
            ).removesuffix(". ")
        found = frozen.generator_digest(path)
        if found != card.generator.sha256:
            yield (
                f"{path}: the sources that make the rows have sha256 {found}, frozen.toml says"
                f" {card.generator.sha256}."
                f" {frozen.rewritten_code(path, card.generator.sha256, frozen.generator_digest)}"
            ).removesuffix(". ")
    except CrlbenchError as error:
        yield str(error)


def _code_problems(card: TaskCard, code: Code) -> Iterator[str]:
    """Functions that the code lacks, or why it cannot be loaded; none where nothing can run."""
    try:
        functions = facts_of(code)["functions"]
    except EnvironmentUnfit:
        return
    except CrlbenchError as error:
        yield str(error)
        return
    for name in (card.verifier.entry, card.verifier.audit):
        if name not in functions:
            yield f"{code.path}: defines no function '{name}'."


def _gold_outcome(card: TaskCard, folder: Path, code: Code) -> Outcome | None:
    """Answers of readable split files that their own verifier rejects; None if it cannot run."""
    if not card.golds:
        return None
    try:
        places = [place for split in card.splits for place in _readable(card, folder, split)]
        answers = [row["answer"] for _, row in places]
        judge = judge_of(code, card.verifier.entry, answers, answers)
        paid = gold_scores(card.kind, judge, answers, answers, card.name)
    except EnvironmentUnfit:
        return None
    except CrlbenchError as error:
        return Outcome("gold", MEANINGS["gold"], "broken", (str(error),))
    except Exception as error:  # the task's own code may raise anything
        problem = f"{type(error).__name__}: {error}"
        return Outcome("gold", MEANINGS["gold"], "broken", (problem,))
    problems = tuple(
        f"{where}: field answer: {row['id']}: its own verifier rejects {row['answer']!r}"
        for (where, row), earned in zip(places, paid, strict=True)
        if rejected(card.kind, earned)
    )
    status = "broken" if problems else "ok"
    return Outcome("gold", MEANINGS["gold"], status, problems, {"golds": len(places)})


def _readable(card: TaskCard, folder: Path, split: str) -> list[tuple[str, Row]]:
    """The rows of a split file, each with its file and line; none where a line is malformed."""
    file = frozen.rows_folder(card, folder) / card.splits[split].file
    try:
        path = rowfiles.standing(file)
        rows = frozen.parse_rows(frozen.read_rows(file), path)
    except CrlbenchError:
        return []
    return [(f"{path}:{line}", row) for line, row in enumerate(rows, start=1)]
