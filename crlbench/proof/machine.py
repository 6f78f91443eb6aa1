"""The machine that a record names: one that can be."""

from __future__ import annotations

from collections.abc import Iterator

from crlbench.contract.machine import contradiction
from crlbench.contract.verification import Finding
from crlbench.proof.facts import Facts


def machine(facts: Facts) -> Iterator[Finding]:
    """Processor, kernels, device and class of hardware are those of one machine."""
    if (found := contradiction(facts.record.environment)) is not None:
        field, stored, expected = found
        yield facts.finding(f"environment.{field}", stored, expected)
