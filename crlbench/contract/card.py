"""What every card is: frozen, strict, and read with all its mistakes named at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import pydantic
from pydantic import BaseModel, ConfigDict

from crlbench.base.explain import explain
from crlbench.contract.fields import RULES
from crlbench.errors import ValidationError


class Card(BaseModel):
    """Frozen, strict about unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


AnyCard = TypeVar("AnyCard", bound=Card)


def validate_card(model: type[AnyCard], data: dict[str, Any], where: str | Path) -> AnyCard:
    """A card from a dict; every wrong field is named together with what is allowed."""
    try:
        return model.model_validate(data)
    except pydantic.ValidationError as error:
        raise ValidationError(explain(error, where, model, RULES)) from None


def check_name(path: Path, field: str, name: str, expected: str, what: str) -> None:
    """Refuse a field that differs from the name of ``what``, where the card was read."""
    if name != expected:
        raise ValidationError(
            f"{path}: field {field}: '{name}' must equal the name of {what}, '{expected}'."
        )
