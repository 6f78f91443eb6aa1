"""What a check found: problems in words, and the figures it measured on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Finding:
    """No problems mean that the rule is kept."""

    problems: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    skipped: str = ""
    """Why the rule does not apply; "" when it does."""
    warning: str = ""
    """What breaks no rule and has to be known."""
