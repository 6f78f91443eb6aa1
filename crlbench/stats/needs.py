"""How much a board must hold before an axis or an interval is given. Numbers alone, no arrays."""

from __future__ import annotations

MIN_TASKS = 4
"""Fewer tasks have no interval over tasks: their spread is not known."""
LEAST_NEW = 64
"""Fewer new items give no Λ_new: the cell is saturated."""
STRICT_DRAWS = 32
"""Sampled answers of the start model that the strict set needs."""
