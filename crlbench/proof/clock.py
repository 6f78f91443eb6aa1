"""How long a run says that it took: rising seconds, in which its work could have been done.

The seconds stand outside of a record's hash, and a forger is free to invent better ones. What is
refused is what no machine of the stated class could have done.
"""

from __future__ import annotations

from collections.abc import Iterator

from crlbench.contract.verification import Finding
from crlbench.proof.facts import Facts
from crlbench.verdict.task_runs import rising_seconds

FASTEST_THREAD = 1e13
"""FLOP a second of one CPU thread: more than twice what a core with AMX does in bfloat16."""
FASTEST_GPU = 1e16
"""FLOP a second of one GPU: more than twice the dense 8-bit peak of any that is sold."""


def clock(facts: Facts) -> Iterator[Finding]:
    """Seconds rise with the curve, and its tokens could be generated in them."""
    record = facts.record
    wall = rising_seconds(record)
    if wall is None:
        expected = f"{len(record.curve)} rising seconds, one for each evaluation"
        yield facts.finding("volatile.wall_s", record.volatile.get("wall_s"), expected)
        return
    if len(wall) < 2:
        return
    # Two operations a parameter and token, and training on top of it: less than was done.
    work = 2 * record.subject.params_total * (record.curve[-1].tokens - record.curve[0].tokens)
    rate, most = work / (wall[-1] - wall[0]), _fastest(facts)
    if rate > most:
        why = f"no machine of class {record.environment.get('hardware_class')} is so fast"
        yield facts.finding(
            "volatile.wall_s",
            f"{rate:.1e} FLOP a second for generating alone",
            f"at most {most:.0e}",
            why,
        )


def _fastest(facts: Facts) -> float:
    """FLOP a second that the stated devices cannot exceed."""
    environment = facts.record.environment
    devices = environment.get("devices")
    devices = devices if isinstance(devices, int) and devices > 0 else 1
    if environment.get("hardware_class") == "cpu":
        return FASTEST_THREAD * facts.conditions.hardware.threads * devices
    return FASTEST_GPU * devices
