"""How sure a share of independent trials is."""

from __future__ import annotations

import math
from statistics import NormalDist

Z = NormalDist().inv_cdf(0.975)
"""Quantile of a two-sided 95 % interval."""


def wilson(share: float, count: int) -> tuple[float, float]:
    """95 % interval of a share of ``count`` independent trials (Wilson 1927)."""
    centre = share + Z**2 / (2 * count)
    half = Z * math.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2))
    whole = 1 + Z**2 / count
    return max(0.0, (centre - half) / whole), min(1.0, (centre + half) / whole)
