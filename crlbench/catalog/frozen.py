"""A frozen task: its card, its rows and its verifier, each checked against its digest.

Rows are plain data and read without executing anything. The task's code runs only when its
verifier is first used, and then exactly the bytes whose digest was checked.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from crlbench.catalog.code import entry_point, load_code, rewritten_code, verifier_digest
from crlbench.catalog.rows import Row, parse_rows, read_rows
from crlbench.contract.task_card import TaskCard, read_task_card
from crlbench.disk import line_ends, rowfiles, switches
from crlbench.disk.names import FROZEN
from crlbench.disk.seal import is_sealed
from crlbench.errors import EnvironmentUnfit, ValidationError, unknown_name
from crlbench.reward.declared import check_fields
from crlbench.reward.env import Environment
from crlbench.reward.extract import last_line
from crlbench.reward.limited import bounded, limited

ANSWER_OF = "answer_of"
"""Optional function of a task's code: a completion to its canonical form."""


class Task:
    """One frozen task.

    Its split files stand beside its code and pass their digests at once. Those of an external
    task, whose card has a source, stand in CRLBENCH_HOME and pass them when they are first read.
    """

    def __init__(self, folder: Path, home: Path | None = None) -> None:
        """``home`` is CRLBENCH_HOME unless given."""
        self.folder = folder
        self.card: TaskCard = read_task_card(folder / FROZEN)
        self._home = home
        self._bytes: dict[str, bytes] = {}
        self._rows: dict[str, list[Row]] = {}
        if self.card.source is None:
            self.require_rows()

    @property
    def name(self) -> str:
        """The task's name, which is its folder's."""
        return self.card.name

    @property
    def spec(self) -> str:
        """What a person calls it: its name, of an archived version ``name@version``."""
        return spec_of(self.folder, self.name, self.card.version)

    @cached_property
    def rows_folder(self) -> Path:
        """Where the split files are, or belong."""
        return rows_folder(self.card, self.folder, self._home)

    @property
    def digest(self) -> str:
        """SHA-256 over everything that decides a score."""
        return self.card.digest

    def rows(self, split: str) -> list[Row]:
        """All rows of a split, in file order."""
        if split not in self.card.splits:
            raise unknown_name(f"split of task '{self.name}'", split, self.card.splits)
        if split not in self._rows:
            path = rowfiles.standing(self.rows_folder / self.card.splits[split].file)
            self._rows[split] = parse_rows(self._split_bytes(split), path)
        return self._rows[split]

    def with_rows(self, rows: Mapping[str, list[Row]]) -> Task:
        """This task with other rows in some splits, which no digest names."""
        other = copy.copy(self)
        other._rows = {**self._rows, **rows}
        return other

    def require_rows(self) -> None:
        """Read every split file and check its digest.

        Raises :class:`EnvironmentUnfit` when the rows of an external task were never fetched
        and :class:`ValidationError` when a file is missing or changed.
        """
        for split in self.card.splits:
            self._split_bytes(split)

    def gold(self, row: Row) -> str | None:
        """A completion of a row that is right; None where the task does not say one.

        The answer itself, unless the card says that answers are no completions; then what the
        function ``gold(answer)`` of the task's code makes of it, where there is one.
        """
        if self.card.golds:
            return row["answer"]
        make = getattr(self.code, "gold", None)
        if make is not None and self.card.kind == "environment":
            make = bounded(make)
        return None if make is None else make(row["answer"])

    def verify(self, text: str, answer: str) -> Any:
        """The reward of a completion: a float in [0, 1], or a Score with step rewards."""
        return self._verify(text, answer)

    def audit(self, text: str, answer: str) -> float:
        """The second, stricter opinion, never trained on."""
        return self._audit(text, answer)

    def answers_of(self, texts: Sequence[str]) -> list[str]:
        """The canonical form of completions: what two of them must share to be one answer.

        What the function ``answer_of(text)`` of the task's code makes of each, where there is one;
        else the last line that holds more than whitespace, with single spaces inside.

        Raises:
            ValidationError: the task's function fails, or returns something that is no text.
        """
        make = getattr(self.code, ANSWER_OF, None)
        if make is None:
            return list(map(last_line, texts))
        return self._canonical(self._form(make, text) for text in texts)

    def _form(self, make: Callable[[str], Any], text: str) -> Any:
        try:
            return make(text)
        except Exception as error:  # the code is its author's
            raise ValidationError(
                f"task '{self.name}': {ANSWER_OF}({text!r:.80}) fails: "
                f"{type(error).__name__}: {error}."
            ) from error

    def _canonical(self, forms: Iterable[Any]) -> list[str]:
        checked = list(forms)
        for form in checked:
            if not isinstance(form, str):
                raise ValidationError(
                    f"task '{self.name}': {ANSWER_OF} returns {type(form).__name__}, and the "
                    "canonical form of a completion is a text."
                )
        return checked

    def judge_of(
        self, name: str, texts: Sequence[str], answers: Sequence[str]
    ) -> Callable[[str, str], Any]:
        """``verify`` or ``audit``, to be called with these pairs in this order."""
        return self.verify if name == "verify" else self.audit

    @cached_property
    def code(self) -> types.ModuleType:
        """The task's code, executed once after its digest was checked."""
        return load_code(checked_code(self))

    @cached_property
    def environment(self) -> Environment:
        """What is played, of a task of that kind.

        Raises:
            ValidationError: the code defines none, or another one than ``frozen.toml`` states.
        """
        return self._checked_environment(environment_of(self.code))

    def _checked_environment(self, environment: Environment) -> Environment:
        stated = self.card.environment
        table = None if stated is None else stated.model_dump(mode="json")
        if table != environment.table():
            raise ValidationError(
                f"{self.folder / FROZEN}: [environment] is {table}, and the code says"
                f" {environment.table()}. {_advice(self.folder, str(self.folder / FROZEN))}"
            )
        return environment

    @cached_property
    def _verify(self) -> Callable[[str, str], Any]:
        return self._judge(self.card.verifier.entry)

    @cached_property
    def _audit(self) -> Callable[[str, str], float]:
        return self._judge(self.card.verifier.audit)

    def _judge(self, name: str) -> Callable[[str, str], Any]:
        function = entry_point(self.code, name)
        return bounded(function) if self.card.kind == "environment" else function

    def _split_bytes(self, split: str) -> bytes:
        if split not in self._bytes:
            self._bytes[split] = self._checked_bytes(split)
        return self._bytes[split]

    def _checked_bytes(self, split: str) -> bytes:
        if self.card.source is not None and not self.rows_folder.is_dir():
            raise EnvironmentUnfit(
                f"task '{self.name}': its rows are not on this machine; run: "
                f"{fetch_command(self.spec)} (looked in {self.rows_folder})"
            )
        expected = self.card.splits[split]
        path = self.rows_folder / expected.file
        every = f"'{path}*'"  # whichever form was committed
        advice = _advice(self.folder, every) if self.card.source is None else _again(self.spec)
        data = read_rows(path, advice)
        place = rowfiles.standing(path)
        line_ends.require_digest(place, data, expected.sha256, FROZEN, advice)
        return data


def checked_code(task: Task) -> Path:
    """The file of a task's code.

    Raises:
        ValidationError: its verifier changed since the task was frozen.
    """
    path, expected = task.folder / task.card.generator.module, task.card.verifier.sha256
    if (sha256 := verifier_digest(path)) != expected:
        raise ValidationError(
            f"{path}: the verifier changed since the task was frozen: its sources have sha256"
            f" {sha256}, frozen.toml says {expected}."
            f" {rewritten_code(path, expected) or _advice(path.parent, str(path))}"
        )
    return path


def rows_folder(card: TaskCard, folder: Path, home: Path | None = None) -> Path:
    """Where a task's split files are: its folder, or CRLBENCH_HOME for an external task."""
    if card.source is None:
        return folder
    return external_folder(spec_of(folder, card.name, card.version), home)


def is_archived(folder: Path) -> bool:
    """Whether a task's folder is part of an archive."""
    return is_sealed(folder.absolute().parents[1])


def spec_of(folder: Path, name: str, version: str) -> str:
    """The name of a task in a folder; with its version in an archive, beside newer ones."""
    return f"{name}@{version}" if is_archived(folder) else name


def has_rows(card: TaskCard, folder: Path) -> bool:
    """Whether a task's split files are on this machine; their digests are not looked at."""
    try:
        place = rows_folder(card, folder)
    except EnvironmentUnfit:  # without a home nothing was ever fetched
        return False
    return all(
        any(form.is_file() for form in rowfiles.forms(place / split.file))
        for split in card.splits.values()
    )


def external_folder(task: str, home: Path | None = None) -> Path:
    """``home/tasks/<task>``, whether it was fetched yet or not; ``task`` as :func:`spec_of`."""
    return (home or switches.home()) / "tasks" / task


def fetch_command(task: str) -> str:
    """What a person types to get the rows of an external task."""
    return f"crlbench fetch --task {task} [--from DIR]"


def _again(task: str) -> str:
    return f"Restore it with: {fetch_command(task)}"


def _advice(folder: Path, files: str) -> str:
    return (
        f"Restore it with: git checkout -- {files} - or, if the change is meant, run:"
        f" crlbench freeze {folder} --bump"
    )


ENVIRONMENT = "ENVIRONMENT"
"""Name of the environment in a task's code."""


def environment_of(module: types.ModuleType) -> Environment:
    """The environment that a task's code defines; its functions return in time or say where they
    do not.

    Raises:
        ValidationError: it defines none, or one with a field of a wrong kind.
    """
    found = getattr(module, ENVIRONMENT, None)
    if not isinstance(found, Environment):
        raise ValidationError(
            f"{module.__file__}: CARD says kind 'environment', so {ENVIRONMENT} must be an"
            f" Environment of crlbench.reward.env; it is {type(found).__name__}."
        )
    try:
        check_fields(found)
    except ValidationError as error:
        raise ValidationError(f"{module.__file__}: {error}") from error
    return limited(found)
