"""Families of whole policy updates."""

from __future__ import annotations

from tests.algo.test_trust_region import trpo_step
from tests.golden.cases import Case, Computed, Family


def run_trpo(case: Case) -> Computed:
    return trpo_step(case.params, case.x), None


UPDATES: dict[str, Family] = {"trpo_step": run_trpo}
