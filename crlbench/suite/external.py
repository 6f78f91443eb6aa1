"""External tasks: rows made on the user's machine from a published dataset.

The task's code, its ``frozen.toml`` and the digests in it are in the catalogue; the rows are
not. Fetching makes the split files from the dataset's files, checks each against its digest and
puts them, with the dataset's files, into ``<home>/tasks/<task>/`` by renames under a lock, so
that such a folder is always whole. What a kill between two renames leaves, the next call restores.
"""

from __future__ import annotations

import gzip
import json
import shutil
import types
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crlbench.catalog import frozen
from crlbench.catalog.code import entry_point, load_code
from crlbench.catalog.find import Catalog
from crlbench.contract.card import validate_card
from crlbench.contract.task_card import DataSource, TaskCard
from crlbench.disk import switches
from crlbench.disk.files import refusal
from crlbench.disk.hashing import sha256_bytes
from crlbench.disk.locks import alone
from crlbench.disk.names import CODE
from crlbench.errors import (
    CrlbenchError,
    EnvironmentUnfit,
    Interrupted,
    UsageError,
    ValidationError,
)
from crlbench.reward.splits import SPLITS, freeze_rng
from crlbench.suite.pairs import load_pairs, pair_files
from crlbench.suite.sources import (
    by_hand,
    downloaded_sources,
    file_problem,
    given_sources,
    read_source,
)

SOURCES = "sources"
"""Folder of the dataset's own files, compressed, beside the split files made from them."""

Rows = list[dict[str, Any]]


def fetch_task(
    name: str,
    home: Path | None,
    catalog: Catalog,
    echo: Callable[[str], Any] = print,
    *,
    source_dir: Path | None = None,
    offline: bool | None = None,
) -> Path:
    """The folder of an external task's rows, made unless it is there already and whole.

    The dataset's files come from ``source_dir``, else from an earlier fetch, else from the
    network.

    Args:
        home: None for CRLBENCH_HOME; the folder is ``home/tasks/<task>``.
        echo: is given one line for each step.
        offline: refuse the network; None reads CRLBENCH_OFFLINE.

    Raises:
        UsageError: unknown name, a task whose rows travel with it, a wrong ``source_dir``.
        ValidationError: the files, or the rows made from them, have other digests.
        EnvironmentUnfit: no network, no space, no permission.
        Interrupted: stopped; nothing is left behind.
    """
    folder = catalog.find_at("task", name).path
    task = frozen.Task(folder, home)
    source, target = task.card.source, task.rows_folder
    if source is None:
        raise UsageError(f"task '{name}': its rows travel with it; there is nothing to fetch.")
    offline = switches.offline() if offline is None else offline
    try:
        if _whole(task):
            echo(f"{name}: already in {target}, every file verified.")
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with alone(target, echo):
            _recover(target)
            if _whole(frozen.Task(folder, home)):
                echo(f"{name}: already in {target}, every file verified.")
                return target
            files = _sources(source, task, source_dir, offline, echo)
            splits = split_files(load_code(folder / task.card.generator.module), files)
            _check_splits(task.card, splits, folder)
            _replace(target, splits, files)
            echo(f"{name}: {len(splits)} splits, in {target}")
    except OSError as error:
        raise EnvironmentUnfit(f"task '{name}': {refusal(error, target.parent)}") from error
    except KeyboardInterrupt:
        raise Interrupted(f"task '{name}': fetching was stopped; run it again.") from None
    return target


def source_of(code: types.ModuleType) -> DataSource | None:
    """SOURCE of a task's code, checked; None for a task that makes its rows itself."""
    source = getattr(code, "SOURCE", None)
    return None if source is None else validate_card(DataSource, source, f"{code.__file__}: SOURCE")


def stored_sources(source: DataSource, task: str) -> dict[str, bytes]:
    """The dataset's files as an earlier fetch left them, uncompressed.

    Raises :class:`EnvironmentUnfit` when one is missing and :class:`ValidationError` when one
    was changed; both name the command that restores it.
    """
    return sources_in(frozen.external_folder(task), source, task)


def sources_in(rows: Path, source: DataSource, task: str) -> dict[str, bytes]:
    """:func:`stored_sources` beside the split files in the folder ``rows``."""
    places = {name: rows / SOURCES / f"{name}.gz" for name in source.files}
    return {name: _read_source(places[name], file, task) for name, file in source.files.items()}


def split_rows(
    code: types.ModuleType,
    files: Mapping[str, bytes] | None = None,
    only: Collection[str] | None = None,
) -> dict[str, Rows]:
    """The rows of every split that a task's code makes, by split; or of those in ``only``.

    ``files`` are the uncompressed files of its source by name, for an external task.
    """
    build = entry_point(code, "build")
    name, version = code.CARD["name"], code.CARD["version"]
    rows = {}
    for split in split_names(code):
        if only is not None and split not in only:
            continue
        rng = freeze_rng(name, version, split)
        with building(code.__file__, split):
            rows[split] = build(split, rng, *(() if files is None else (dict(files),)))
    return rows


@contextmanager
def building(code: object, split: str) -> Iterator[None]:
    """What the code of a task raises while it builds a split, in words."""
    try:
        yield
    except CrlbenchError:
        raise
    except Exception as error:  # the task's own code may raise anything
        problem = f"{type(error).__name__}: {error}"
        raise ValidationError(
            f"{code}: build('{split}') failed: {problem}. Rows hold messages, answer,"
            " level (1, 2 or 3), template, key and meta."
        ) from error


def split_names(code: types.ModuleType) -> tuple[str, ...]:
    """The splits that a task has: all five, or those of its SPLITS."""
    names = tuple(getattr(code, "SPLITS", SPLITS))
    if "id" not in names or names != tuple(split for split in SPLITS if split in names):
        raise ValidationError(
            f"{code.__file__}: SPLITS is {names}; allowed: some of {SPLITS} in this order, "
            "with 'id' among them."
        )
    return names


def split_files(
    code: types.ModuleType, files: Mapping[str, bytes] | None = None
) -> dict[str, bytes]:
    """The split files that a task's code makes, by file name."""
    splits = {f"{name}.jsonl": lines(rows) for name, rows in split_rows(code, files).items()}
    return splits | pair_files(code, files)


def lines(rows: Rows) -> bytes:
    """Rows as a split file holds them.

    Raises:
        ValidationError: one of them is no JSON data.
    """
    return "".join(map(_line, rows)).encode()


def _line(row: Mapping[str, Any]) -> str:
    try:
        return json.dumps(row, ensure_ascii=True) + "\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise ValidationError(
            f"{row['id']}: a row is JSON data, and {error}. It holds messages, answer, level, "
            "template, key and meta."
        ) from error


def put_in_place(target: Path, splits: Mapping[str, bytes], files: Mapping[str, bytes]) -> None:
    """Replace a task's folder of rows by these split files and sources, or leave it as it is.

    Waits while another process does the same. Raises :class:`EnvironmentUnfit` when the folder
    cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with alone(target):
            _recover(target)
            _replace(target, splits, files)
    except OSError as error:
        where = error.filename or target
        raise EnvironmentUnfit(f"{where}: cannot be written: {error.strerror or error}.") from error


def _replace(target: Path, splits: Mapping[str, bytes], files: Mapping[str, bytes]) -> None:
    partial = target.parent / f".{target.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    try:
        (partial / SOURCES).mkdir(parents=True)
        for name, data in splits.items():
            (partial / name).write_bytes(data)
        for name, data in files.items():
            place = partial / SOURCES / f"{name}.gz"
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(gzip.compress(data, mtime=0))
        if target.exists():
            target.rename(_set_aside(target))
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        _recover(target)


def _recover(target: Path) -> None:
    """Put the folder that was set aside back, or delete it where the new one has arrived."""
    old = _set_aside(target)
    if not old.exists():
        return
    if target.exists():
        shutil.rmtree(old, ignore_errors=True)
    else:
        old.rename(target)


def _set_aside(target: Path) -> Path:
    return target.parent / f".{target.name}.old"


def _whole(task: frozen.Task) -> bool:
    """Whether rows, pairs and sources are all there and right."""
    assert task.card.source is not None
    try:
        task.require_rows()
        for split in task.card.pairs or {}:
            load_pairs(task, split)
        sources_in(task.rows_folder, task.card.source, task.spec)
    except (EnvironmentUnfit, ValidationError):
        return False
    return True


def _sources(
    source: DataSource,
    task: frozen.Task,
    source_dir: Path | None,
    offline: bool,
    echo: Callable[[str], Any],
) -> dict[str, bytes]:
    """The dataset's files; an archived version also takes those of the current one."""
    name = task.spec
    if source_dir is not None:
        return given_sources(source, name, source_dir)
    for place in (task.rows_folder, task.rows_folder.with_name(task.name)):
        try:
            return sources_in(place, source, name)
        except (EnvironmentUnfit, ValidationError):
            pass
    if offline:
        raise EnvironmentUnfit(
            f"task '{name}': its rows are not on this machine and the network is switched off "
            f"(--offline or CRLBENCH_OFFLINE). {by_hand(source, name)}"
        )
    echo(f"{name}: downloading {', '.join(source.files)} from {source.origin}...")
    return downloaded_sources(source, name)


def _read_source(path: Path, file: Any, task: str) -> bytes:
    again = f"Restore it with: {frozen.fetch_command(task)}"
    try:
        data = read_source(path, file)
    except FileNotFoundError:
        raise EnvironmentUnfit(f"{path}: is not on this machine. {again}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise ValidationError(f"{path}: cannot be read: {error}. {again}") from None
    problem = file_problem(data, file)
    if problem:
        raise ValidationError(f"{path}: was changed: it {problem}. {again}")
    return data


def _check_splits(card: TaskCard, files: Mapping[str, bytes], folder: Path) -> None:
    for expected in (*card.splits.values(), *(card.pairs or {}).values()):
        sha256 = sha256_bytes(files.get(expected.file, b""))
        if sha256 != expected.sha256:
            raise ValidationError(
                f"task '{card.name}': {expected.file.removesuffix('.jsonl')}: the rows made from "
                f"the dataset have the sha256 {sha256}, frozen.toml says {expected.sha256}: "
                f"{folder / CODE} was changed since it was frozen. Nothing was kept."
            )
