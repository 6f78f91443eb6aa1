"""Names in a record that this version has no meaning for: nothing unknown passes as fine."""

from __future__ import annotations

from collections.abc import Iterator

from crlbench.dynamics import UPDATE_STATS
from crlbench.machine import contradiction
from crlbench.report.audit_facts import Facts
from crlbench.verification import Finding


def known(facts: Facts) -> Iterator[Finding]:
    """The machine is one that can be, and every figure has a meaning."""
    if (found := contradiction(facts.record.environment)) is not None:
        field, stored, expected = found
        yield facts.finding(f"environment.{field}", stored, expected)
    unknown = sorted(set(facts.record.health) - {"iteration", *UPDATE_STATS})
    for name in unknown[:1]:
        yield facts.finding(f"health.{name:.40}", "a figure", "no figure of that name")
