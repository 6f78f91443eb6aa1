"""Raising a task's version: what it was before, what changed since, and the edit of its code."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from crlbench.catalog.frozen import read_bytes, verifier_digest
from crlbench.contract.card import validate_card
from crlbench.contract.task_card import TaskCard
from crlbench.disk.files import write_bytes
from crlbench.disk.names import CODE, FROZEN
from crlbench.disk.toml import read_toml
from crlbench.errors import UsageError, ValidationError
from crlbench.suite import versions
from crlbench.suite.versions import Decision


@dataclass(frozen=True)
class Baseline:
    """A task as it was frozen before."""

    card: TaskCard
    code: Path | None
    """The code of that time, where it is at hand."""


def baseline(folder: Path, against: Path | None = None) -> Baseline | None:
    """What a task's folder is compared with: ``against``, else its own ``frozen.toml``.

    ``against`` is a ``frozen.toml``, a task's folder or an older checkout. None when the task
    was never frozen.

    Raises:
        UsageError: ``against`` holds no ``frozen.toml`` of this task.
        ValidationError: the card is malformed or another task's.
    """
    if against is None:
        path = folder / FROZEN
        return Baseline(_card(path, folder.name), None) if path.exists() else None
    places = (against, against / FROZEN, against / "tasks" / folder.name / FROZEN)
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise UsageError(
            f"--against {against}: holds no {FROZEN} of task '{folder.name}'; give that file, its"
            " folder, or an older checkout."
        )
    code = path.with_name(CODE)
    return Baseline(_card(path, folder.name), code if code.is_file() else None)


def _card(path: Path, name: str) -> TaskCard:
    card = validate_card(TaskCard, read_toml(path), path)
    if card.name != name:
        raise ValidationError(f"{path}: field name: is '{card.name}', the task is '{name}'.")
    return card


def judge(folder: Path, old: Baseline, new: TaskCard) -> Decision:
    """The level between a task as it was frozen and as its folder makes it."""
    return versions.decide(old.card, new, _same_verifier(folder / CODE, old))


def check(folder: Path, old: Baseline, new: TaskCard) -> None:
    """Refuse a version that does not fit what changed; see :func:`versions.check_bump`."""
    command = f"crlbench freeze {folder.name} --bump - or undo what changed"
    versions.check_bump(old.card, new, judge(folder, old, new), command)


def _same_verifier(code: Path, old: Baseline) -> bool:
    """Whether the verifier of a folder is known to be the one that was frozen.

    It is when the code with the old facts put back has the frozen digest, or when old code of
    the frozen digest (under the sources of crlbench.reward as they are here) has the same
    verifier part.
    """
    source = read_bytes(code).decode()
    try:
        facts = old.card.model_dump(mode="json", include={*CARD_FACTS})
        present = {name: facts[name] for name in CARD_FACTS if name in versions.facts_of(source)}
        if _digest_of(versions.with_facts(source, present)) == old.card.verifier.sha256:
            return True
    except ValidationError:
        pass
    if old.code is None or verifier_digest(old.code) != old.card.verifier.sha256:
        return False
    then = read_bytes(old.code).decode()
    return versions.verifier_part(then) == versions.verifier_part(source)


CARD_FACTS = ("version", "tags", "summary", "licence", "canary", "contact")
"""Facts of CARD that say nothing about scores."""


def _digest_of(source: str) -> str:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / CODE
        path.write_text(source, encoding="utf-8")
        return verifier_digest(path)


def set_version(folder: Path, version: str) -> None:
    """Write a version into CARD of a task's code.

    Raises:
        ValidationError: CARD is not one dict of literals.
        EnvironmentUnfit: the file cannot be written.
    """
    path = folder / CODE
    try:
        text = versions.with_facts(read_bytes(path).decode(), {"version": version})
    except ValidationError as error:
        raise ValidationError(f"{path}: {error}") from None
    write_bytes(path, text.encode())
