"""Prompts as a model reads them, for people: every token id beside its text."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from crlbench.catalog.frozen import Task
from crlbench.catalog.rows import Row
from crlbench.contract.model_card import ModelCard
from crlbench.policy.text.chat import token_text
from crlbench.policy.weights.load import Reader
from crlbench.run.admission import admit
from crlbench.run.subject import ids_of


@dataclass(frozen=True)
class Token:
    """One id of a prompt."""

    id: int
    text: str
    """What the id decodes to by itself; the vocabulary's own word where that is no text."""
    special: bool


@dataclass(frozen=True)
class Rendered:
    """One row as token ids."""

    id: str
    level: int
    template: int
    frame: str
    """chat, plain or terse."""
    tokens: tuple[Token, ...]
    text: str
    """All ids decoded together, special tokens included."""

    def as_json(self) -> dict[str, Any]:
        """Every field, the ids also as a plain list."""
        return asdict(self) | {"ids": [token.id for token in self.tokens]}


def rendered_prompts(card: ModelCard, task: Task, count: int) -> dict[str, list[Rendered]]:
    """The first ``count`` prompts of every split, by split; the model's weights stay unread.

    Raises:
        EnvironmentUnfit: the model, or the rows of the task, have to be fetched first.
        ValidationError: the tokenizer cannot be loaded.
    """
    reader = admit(card).reader
    return {
        split: [_rendered(task, row, reader) for row in task.rows(split)[:count]]
        for split in task.card.splits
    }


def _rendered(task: Task, row: Row, reader: Reader) -> Rendered:
    ids = ids_of(task, row, reader)
    special = {*reader.tokenizer.all_special_ids}
    return Rendered(
        id=row["id"],
        level=row["level"],
        template=row["template"],
        frame=reader.frame,
        tokens=tuple(Token(i, token_text(reader.tokenizer, i), i in special) for i in ids),
        text=reader.tokenizer.decode(list(ids)),
    )
