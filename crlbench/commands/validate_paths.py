"""What a path given to ``crlbench validate`` means: results, tasks, or entries of models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from crlbench.catalog.find import Catalog
from crlbench.disk.names import CODE, FROZEN
from crlbench.errors import UsageError

Kind = Literal["result", "task", "model"]
WHAT = (
    "A task is a folder with a task.py, a model a file models/<slug>.toml, a result a folder with "
    "runs.tar.zst; names of tasks and models do too."
)


@dataclass(frozen=True)
class Subject:
    """One thing to validate, and whether it was named or found inside a folder that was."""

    folder: Path
    """Of a task or a result; of a model its file."""
    named: bool
    kind: Kind


def subjects(paths: Iterable[str], catalog: Catalog, kind: str) -> list[Subject]:
    """What the arguments mean, each once, in the order given.

    Raises:
        UsageError: a path holds nothing of the kind, or a name is unknown.
    """
    found: dict[Path, Subject] = {}
    for given in paths:
        for subject in _meant(given, catalog, kind):
            found.setdefault(subject.folder.resolve(), subject)
    return [*found.values()]


def _meant(given: str, catalog: Catalog, kind: str) -> Iterator[Subject]:
    from crlbench.contribute.models.examine import entries_in, is_entry
    from crlbench.contribute.results.layout import find_entries

    path = Path(given)
    result, task, model = (kind in ("auto", one) for one in ("result", "task", "model"))
    if result and (inside := list(find_entries(path))):
        yield from (Subject(folder, folder == path, "result") for folder in inside)
    elif kind == "result":
        raise UsageError(
            f"{given}: holds no submitted result (runs.tar.zst). `crlbench submit RUN` makes one."
        )
    elif task and _is_task(path):
        yield Subject(path, True, "task")
    elif model and is_entry(path):
        yield Subject(path, True, "model")
    elif task and path.is_dir() and (inside := sorted(filter(_is_task, path.iterdir()))):
        yield from (Subject(folder, False, "task") for folder in inside)
    elif model and (path.name == "models" or not task) and (files := entries_in(path)):
        yield from (Subject(file, False, "model") for file in files)
    elif path.exists() and not (model and given in catalog.entries("model")):
        raise UsageError(f"{given}: holds nothing to validate. {WHAT}")
    elif "/" in given or given.endswith(".toml"):
        raise UsageError(f"{given}: no such file or folder. {WHAT}")
    elif model and (not task or given in catalog.entries("model")):
        yield Subject(catalog.find("model", given).path, True, "model")
    else:
        yield Subject(catalog.find_at("task", given).path, True, "task")


def _is_task(path: Path) -> bool:
    return (path / CODE).is_file() or (path / FROZEN).is_file()
