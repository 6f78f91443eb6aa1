"""Reading the panel: ``leaderboard/retain/panel.toml`` and its files, each digest checked.

The members ``follow``, ``qa``, ``copy`` and ``arithmetic`` hold prompts with answers that are
verified; ``text`` holds passages whose language-model loss is measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from crlbench.contract.card import Card, validate_card
from crlbench.contract.fields import Count, FileName, Sha256, Share, Version
from crlbench.contract.task_card import NullScores
from crlbench.disk import line_ends
from crlbench.disk.hashing import sha256_file
from crlbench.disk.reading import Malformed, json_value, read_bytes
from crlbench.disk.toml import read_toml
from crlbench.errors import CrlbenchError, ValidationError, unknown_name
from crlbench.reward import retain as verifiers

MEMBERS = ("follow", "qa", "copy", "arithmetic", "text")
TEXT = "text"
FOLDER = Path("leaderboard") / "retain"
"""Path below a root of the catalogue."""
CARD_NAME = "panel.toml"
MAX_PASSAGE_BYTES = 240
"""Longest passage: it fits the bundled models' context of 256 bytes."""
FIELDS = ("id", "prompt", "answer", "gold")

_RESTORE = "Restore it with git, or, if the change is meant, run: crlbench freeze --retain"


class MemberCard(Card):
    """One member: its file and what its scores mean (floor f, ceiling c)."""

    file: FileName
    sha256: Sha256
    count: Count
    floor: Share
    ceiling: Share
    max_completion_bytes: Count | None = None
    nulls: NullScores | None = None
    """Null scores; none for ``text``, whose u is no share of right answers."""


class PanelCard(Card):
    """``panel.toml``, written by ``crlbench freeze --retain``."""

    schema_version: Literal[1] = Field(alias="schema")
    version: Version
    verifier: Sha256
    """Digest of the sources that verify."""
    members: dict[str, MemberCard]


@dataclass(frozen=True)
class Item:
    """A prompt, as one user text, with what is expected."""

    id: str
    prompt: str
    answer: str
    gold: str
    """A completion that is right."""


@dataclass(frozen=True)
class Member:
    """One part of the panel."""

    name: str
    card: MemberCard
    items: tuple[Item, ...] = ()
    passages: tuple[str, ...] = ()
    """Passages, of ``text`` alone."""

    def verify(self, text: str, answer: str) -> float:
        """1.0 or 0.0, for a completion."""
        return verifiers.VERIFIERS[self.name](text, answer)


@dataclass(frozen=True)
class Panel:
    """The whole panel."""

    card: PanelCard
    members: dict[str, Member]

    def choose(self, names: Iterable[str]) -> list[Member]:
        """The members of these names, in their order.

        Raises:
            UsageError: there is no such member; with the nearest names.
        """
        members = []
        for name in dict.fromkeys(names):
            if name not in self.members:
                raise unknown_name("member of the retain panel", name, self.members)
            members.append(self.members[name])
        return members

    def content(self, names: Iterable[str]) -> dict[str, Any]:
        """What of the chosen members enters the fingerprint."""
        facts = {
            member.name: {
                "sha256": member.card.sha256,
                "floor": member.card.floor,
                "ceiling": member.card.ceiling,
                "max_completion_bytes": member.card.max_completion_bytes,
            }
            for member in self.choose(names)
        }
        return {"verifier": self.card.verifier, **facts} if facts else {}


def find_panel(roots: Iterable[Path]) -> Panel:
    """The panel of the first root that has one.

    Raises:
        ValidationError: none has, or a file was changed since the panel was frozen.
    """
    folders = [root / FOLDER for root in roots]
    for folder in folders:
        if (folder / CARD_NAME).is_file():
            return load_panel(folder)
    raise ValidationError(f"there is no retain panel: {folders[-1] / CARD_NAME} does not exist.")


def load_panel(folder: Path) -> Panel:
    """The panel in ``folder``.

    Raises:
        ValidationError: a file is missing, malformed or not the one that was frozen.
    """
    card = validate_card(PanelCard, read_toml(folder / CARD_NAME), folder / CARD_NAME)
    if card.verifier != verifier_digest():
        raise ValidationError(
            f"{verifiers.__file__}: changed since the retain panel was frozen: its sha256 is "
            f"{verifier_digest()}, {folder / CARD_NAME} says {card.verifier}. "
            f"{line_ends.rewritten_file(Path(verifiers.__file__), card.verifier) or _RESTORE}"
        )
    return Panel(card, {name: _member(folder, name, one) for name, one in card.members.items()})


def verifier_digest() -> str:
    """SHA-256 of the sources that verify."""
    return sha256_file(Path(verifiers.__file__))


def _member(folder: Path, name: str, card: MemberCard) -> Member:
    path = folder / card.file
    data = read(path)
    line_ends.require_digest(path, data, card.sha256, CARD_NAME, _RESTORE)
    if name == TEXT:
        return Member(name, card, passages=parse_text(data, path))
    return Member(name, card, items=parse_items(data, path))


def read(path: Path) -> bytes:
    """A file's bytes; one that cannot be read is a :class:`ValidationError`."""
    try:
        return read_bytes(path)
    except CrlbenchError as error:
        raise ValidationError(f"{error}. {_RESTORE}") from None


def parse_text(data: bytes, path: Path) -> tuple[str, ...]:
    """The passages of a text: what stands between blank lines, line ends read as spaces."""
    try:
        parts = line_ends.plain(data).decode().strip().split("\n\n")
    except UnicodeDecodeError as error:
        raise ValidationError(f"{path}: not UTF-8 text (byte {error.start}).") from None
    passages = tuple(" ".join(part.split()) for part in parts)
    for number, passage in enumerate(passages, start=1):
        size = len(passage.encode())
        if size > MAX_PASSAGE_BYTES:
            raise ValidationError(
                f"{path}: passage {number} has {size} bytes; at most {MAX_PASSAGE_BYTES} are "
                "allowed. Put a blank line into it."
            )
    return passages


def parse_items(data: bytes, path: Path) -> tuple[Item, ...]:
    """The items of a JSON-lines file; a bad line is named by file, line and field."""
    items: dict[str, Item] = {}
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"), start=1):
        item = _parse_item(line, f"{path}:{number}")
        if item.id in items:
            raise ValidationError(f"{path}:{number}: field id: '{item.id}' is already used.")
        items[item.id] = item
    return tuple(items.values())


def _parse_item(line: bytes, where: str) -> Item:
    try:
        row = json_value(line)
    except Malformed as error:
        raise ValidationError(f"{where}: {error}.") from None
    if not isinstance(row, dict) or sorted(row) != sorted(FIELDS):
        raise ValidationError(f"{where}: must be an object with the fields {', '.join(FIELDS)}.")
    for field in FIELDS:
        if not isinstance(row[field], str) or not row[field]:
            raise ValidationError(f"{where}: field {field}: must be a text that is not empty.")
    return Item(**row)
