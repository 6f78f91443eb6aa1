"""Freezing a task: its split files, its floors and its ``frozen.toml``, byte for byte.

Everything is a function of the task's code, its version and the names of its splits, so
freezing twice gives the same bytes; ``check=True`` proves it without writing.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, get_args

from crlbench import seeding
from crlbench.base.addition import sum_in_order
from crlbench.catalog import frozen
from crlbench.catalog.code import entry_point, generator_digest, load_code, verifier_digest
from crlbench.catalog.find import Catalog
from crlbench.catalog.rows import parse_rows, read_bytes, read_rows
from crlbench.contract.card import validate_card
from crlbench.contract.fields import TaskKind
from crlbench.contract.task_card import DataSource, TaskCard, unknown_kind
from crlbench.disk import line_ends, rowfiles
from crlbench.disk.files import write_all, write_bytes
from crlbench.disk.hashing import sha256_bytes
from crlbench.disk.names import CODE, FROZEN
from crlbench.disk.toml import dump_toml
from crlbench.errors import EnvironmentUnfit, ValidationError
from crlbench.reward import policies
from crlbench.reward.limited import bounded
from crlbench.reward.score import outcomes
from crlbench.suite import external, learned, pairs, rehearsal, versions
from crlbench.suite.golds import gold_scores, rejected, require_null_texts
from crlbench.suite.sources import given_sources

NULL_ROWS = 512
"""Rows of a split that the null policies are measured on: all but a training split's rest."""
HEAVY_ROWS = 64
"""Rows where one verification takes long (``heavy`` in CARD)."""
HEAVY_CONSTANTS = 8
"""Most frequent answers that are then tried as the best single one."""
DRAWS = 8
"""Random answers per item for the policy that knows only the shape of an answer."""
PLACES = 6
"""Decimals of a frozen score."""


def freeze(
    task: str | Path,
    check: bool = False,
    catalog: Catalog | None = None,
    source_dir: Path | None = None,
    against: Path | None = None,
    allow: Callable[[TaskCard], object] = lambda card: None,
) -> TaskCard:
    """Write a task's split files and ``frozen.toml``; with ``check`` only compare them.

    ``task`` is a name of the catalogue or a task's folder. An external task is made from the
    dataset's files in ``source_dir``, else from those of an earlier fetch, and its split files
    go where fetching puts them. A task that was frozen at version 1.0.0 or later is written
    again only under the version that its changes ask for. ``against`` is what the version is
    judged by (see :func:`versions.baseline`); with ``check`` it is judged only if this is given.
    ``allow`` gets the card before anything is written, and may refuse it by an error.

    Raises :class:`ValidationError` when the code breaks a rule, when the version does not fit what
    changed or, with ``check``, when a file differs from what the code makes;
    :class:`EnvironmentUnfit` when a file cannot be written.
    """
    folder = task if isinstance(task, Path) else (catalog or Catalog()).find("task", task).path
    files, card = regenerate(folder, source_dir)
    old = None if check and against is None else versions.baseline(folder, against)
    if check:
        _compare(folder, files, card)
    if old is not None:
        versions.check(folder, old, card)
    if not check:
        allow(card)
        _put(folder, files, card, source_dir)
    return card


def freeze_raised(
    folder: Path,
    source_dir: Path | None = None,
    against: Path | None = None,
    allow: Callable[[TaskCard], object] = lambda card: None,
) -> tuple[TaskCard, str]:
    """Raise the version in a task's code as its changes demand, freeze it, and say why.

    A task that was never frozen, and a draft, keep the version they have. When freezing fails
    the code is as it was. Raises as :func:`freeze` does.
    """
    old = versions.baseline(folder, against)
    if old is None:
        return freeze(folder, source_dir=source_dir, allow=allow), "first frozen"
    if versions.is_draft(old.card.version):
        card = freeze(folder, source_dir=source_dir, against=against, allow=allow)
        return card, "a draft changes freely"
    _, candidate = regenerate(folder, source_dir, old.card.version)
    decision = versions.judge(folder, old, candidate)
    before = read_bytes(folder / CODE)
    versions.set_version(folder, versions.raise_version(old.card.version, decision.level))
    try:
        card = freeze(folder, source_dir=source_dir, against=against, allow=allow)
        return card, decision.why
    except BaseException:
        write_bytes(folder / CODE, before)
        raise


def _put(folder: Path, files: dict[str, bytes], card: TaskCard, source_dir: Path | None) -> None:
    frozen_toml = {folder / FROZEN: files.pop(FROZEN)}
    if card.source is not None:
        sources = _sources(card.source, card.name, source_dir)
        external.put_in_place(frozen.rows_folder(card, folder), files, sources)
        write_all(frozen_toml)
        return
    written = dict(_packed(folder / name, data) for name, data in files.items())
    write_all(written | frozen_toml)
    _delete({form for name in files for form in rowfiles.forms(folder / name)} - written.keys())


def _packed(path: Path, content: bytes) -> tuple[Path, bytes]:
    place = rowfiles.written(path, content)
    try:
        return place, content if place == path else rowfiles.packed(content)
    except ValueError as error:
        raise ValidationError(f"{path}: {error}.") from None


def _delete(paths: Iterable[Path]) -> None:
    """Take the other forms of files away, which would stand beside those that were written."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise EnvironmentUnfit(f"{path}: cannot be deleted: {error.strerror}.") from error


def regenerate(
    folder: Path, source_dir: Path | None = None, version: str | None = None
) -> tuple[dict[str, bytes], TaskCard]:
    """All files that freezing a folder makes, by name, and the card among them.

    The split files of an external task are made from ``source_dir``, else from the dataset's
    files of an earlier fetch. ``version`` stands in for the one that the code states.
    """
    code = load_code(folder / CODE)
    facts = _facts(code)
    if version is not None:
        facts = code.CARD = {**facts, "version": version}
    source = external.source_of(code)
    spec = frozen.spec_of(folder, facts["name"], facts["version"])
    sources = None if source is None else _sources(source, spec, source_dir)
    rows = external.split_rows(code, sources)
    files = {f"{split}.jsonl": external.lines(rows[split]) for split in rows}
    for name, data in files.items():
        parse_rows(data, folder / name)
    files |= pairs.pair_files(code, sources)
    paying = learned.reward_model_of(code, folder)
    content = {
        "schema": 1,
        **facts,
        "generator": {
            "module": CODE,
            "seed": 0,
            "sha256": generator_digest(folder / CODE),
        },
        "source": source and source.model_dump(exclude_none=True),
        "verifier": {
            "entry": "verify",
            "audit": "audit",
            "reward_range": [0.0, 1.0],
            "partial_credit": bool(getattr(code, "PARTIAL_CREDIT", False)),
            "sha256": verifier_digest(folder / CODE),
            **({"steps": True} if getattr(code, "STEPS", False) else {}),
        },
        "environment": _environment(code),
        "pairs": pairs.pairs_content(files),
        "reward_model": paying and paying.table(),
        "splits": {
            split: _split_facts(code, split, rows[split], files[f"{split}.jsonl"], paying)
            for split in rows
        },
    }
    card = validate_card(TaskCard, content, folder / CODE)
    if card.name != folder.name:
        raise ValidationError(
            f"{folder / CODE}: CARD names '{card.name}', the folder '{folder.name}'."
        )
    return {**files, FROZEN: dump_toml(content).encode()}, card


def null_scores(
    pay: Callable[[Sequence[str], Sequence[str]], list[float]],
    rows: list[dict[str, Any]],
    task: str,
    texts: Sequence[str] = (),
    heavy: bool = False,
) -> dict[str, float]:
    """Mean scores of the policies that know nothing, over the first rows of a split.

    ``pay`` gives the outcomes of completions with the answers of their rows. ``empty`` says
    nothing, ``constant`` gives the one answer of the split that scores best over it, ``echo``
    repeats the user text, ``random_format`` gives another item's answer. ``texts`` are said
    instead of answers where an answer is no completion (NULL_TEXTS of a task's code). ``heavy``
    looks at fewer rows, and as constants at the most frequent answers.
    """
    rows = rows[: HEAVY_ROWS if heavy else NULL_ROWS]
    answers = [row["answer"] for row in rows]
    counts = Counter(answers)
    replies = list(texts) or answers

    def mean(texts: list[str]) -> float:
        return round(sum_in_order(pay(texts, answers)) / len(rows), PLACES)

    def constant(text: str) -> float:
        scores = pay([text] * len(counts), [*counts])
        total = sum_in_order(n * score for n, score in zip(counts.values(), scores, strict=True))
        return round(total / len(rows), PLACES)

    draws = [
        seeding.rng(0, "null", task, len(rows), draw).choices(replies, k=len(rows))
        for draw in range(1 if heavy else DRAWS)
    ]
    common = Counter(replies).most_common(HEAVY_CONSTANTS if heavy else None)
    return {
        "empty": mean([""] * len(rows)),
        "constant": max(constant(text) for text, _ in common),
        "echo": mean([row["messages"][-1]["content"] for row in rows]),
        "random_format": round(sum_in_order(map(mean, draws)) / len(draws), PLACES),
    }


def _facts(code: types.ModuleType) -> dict[str, Any]:
    card = getattr(code, "CARD", None)
    if not isinstance(card, dict) or not {"name", "version"} <= card.keys():
        raise ValidationError(f"{code.__file__}: CARD must be a dict with name and version.")
    _kind(code)
    return dict(card)


def _kind(code: types.ModuleType) -> TaskKind:
    """The kind that a task's code names."""
    kind = code.CARD.get("kind", TaskCard.model_fields["kind"].default)
    if kind not in get_args(TaskKind):
        raise ValidationError(f"{code.__file__}: field kind: {unknown_kind(kind)}.")
    rehearsal.require_kind(code, kind)
    return kind


def _environment(code: types.ModuleType) -> dict[str, Any] | None:
    """The table [environment]; None for tasks of other kinds."""
    return frozen.environment_of(code).table() if _kind(code) == "environment" else None


def _sources(source: DataSource, task: str, source_dir: Path | None) -> dict[str, bytes]:
    if source_dir is not None:
        return given_sources(source, task, source_dir)
    return external.stored_sources(source, task)


def _split_facts(
    code: types.ModuleType,
    split: str,
    rows: list[dict[str, Any]],
    data: bytes,
    paying: learned.RewardFacts | None,
) -> dict[str, Any]:
    verify, name = entry_point(code, "verify"), code.CARD["name"]
    answers, kind = [row["answer"] for row in rows], _kind(code)
    if kind == "environment":
        verify = bounded(verify)
    completions = _completions(code, rows)
    with _placed(code, split):
        gold = gold_scores(kind, verify, completions, answers, name)
        nulls = _nulls(code, rows, completions)
    wrong = [row["id"] for row, one in zip(rows, gold, strict=True) if rejected(kind, one)]
    if wrong:
        raise ValidationError(
            f"{code.__file__}: {wrong[0]}: the verifier rejects the item's own answer"
            f" ({len(wrong)} of {len(rows)} items of {split})."
        )
    ceiling = round(sum_in_order(gold) / len(gold), PLACES)
    if paying is not None:
        nulls, ceiling = paying.nulls(rows, name, DRAWS), paying.ceiling(rows)
    if max(nulls.values()) >= 1.0:
        raise ValidationError(
            f"{code.__file__}: a policy that knows nothing is always right on {split}: {nulls}."
        )
    return {
        "file": f"{split}.jsonl",
        "sha256": sha256_bytes(data),
        "count": len(rows),
        "levels": sorted({row["level"] for row in rows}),
        "max_prompt_bytes": max(len(row["messages"][-1]["content"].encode()) for row in rows),
        "max_answer_bytes": max(len(answer.encode()) for answer in answers),
        "floor": max(nulls.values()),
        "ceiling": ceiling,
        "nulls": nulls,
    }


@contextmanager
def _placed(code: types.ModuleType, split: str) -> Iterator[None]:
    """Names the file and the split in what is wrong with a task's functions."""
    try:
        yield
    except ValidationError as error:
        raise ValidationError(f"{code.__file__}: {split}: {error}") from error


def _completions(code: types.ModuleType, rows: Sequence[dict[str, Any]]) -> Sequence[str | None]:
    """The gold completion of each row; None where the task says none."""
    if _kind(code) == "environment":
        return rehearsal.golds_of(code, rows)
    said = code.CARD.get("golds", True)
    return [row["answer"] if said else None for row in rows]


def _nulls(
    code: types.ModuleType, rows: list[dict[str, Any]], golds: Sequence[str | None]
) -> dict[str, float]:
    """What policies that know nothing score on a split."""
    name, heavy = code.CARD["name"], bool(code.CARD.get("heavy", False))
    if _kind(code) == "environment":
        count = HEAVY_ROWS if heavy else NULL_ROWS
        answers = [row["answer"] for row in rows][:count]
        played = [gold or "" for gold in golds][:count]
        return policies.null_scores(frozen.environment_of(code), answers, played, name)
    said = code.CARD.get("golds", True)
    texts = [] if said else require_null_texts(getattr(code, "NULL_TEXTS", ()), code.__file__)
    pay = partial(outcomes, entry_point(code, "verify"), task=name)
    return null_scores(pay, rows, name, texts, heavy)


def _compare(folder: Path, files: dict[str, bytes], card: TaskCard) -> None:
    rows_folder = frozen.rows_folder(card, folder)
    problems = []
    for name, data in files.items():
        path = (folder if name == FROZEN else rows_folder) / name
        # Rows in CRLBENCH_HOME weigh on no checkout: they are plain, whatever their length.
        form = rowfiles.written(path, data) if rows_folder == folder else path
        problems += _differences(path, data, form)
    if problems:
        keep = f"\nRestore them, or keep the change: crlbench freeze {folder.name} --bump"
        raise ValidationError(
            "the frozen files are not what the code makes:\n  "
            + "\n  ".join(problems)
            + ("" if all(line_ends.CAUSE in problem for problem in problems) else keep)
        )


def _differences(path: Path, expected: bytes, form: Path) -> Iterator[str]:
    """How a file differs from the content that the code makes and the form that it belongs in."""
    place = rowfiles.standing(path)
    if not place.exists():
        yield f"{form}: the file is missing"
        return
    content = read_rows(path)
    if content == expected:
        if place != form:
            yield f"{place}: its {len(expected)} bytes belong in {form.name}"
        return
    here, there = content.split(b"\n"), expected.split(b"\n")
    pairs = zip(here, there, strict=False)
    line = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(here), len(there)))
    has, makes = (sha256_bytes(data) for data in (content, expected))
    differs = f"{place}:{line + 1}: differs; the file has sha256 {has}, the code makes {makes}."
    yield f"{differs} {line_ends.rewritten(place, content, makes)}".removesuffix(". ")
