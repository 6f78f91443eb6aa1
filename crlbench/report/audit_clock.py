"""How long a run says that it took: rising seconds, in which its work could have been done.

The seconds stand outside of a record's hash, and a forger is free to invent better ones. What is
refused is what no machine of the stated class could have done.
"""

from __future__ import annotations

from collections.abc import Iterator

from crlbench.records import RunRecord
from crlbench.report.audit_facts import Facts
from crlbench.verification import Finding

FASTEST_THREAD = 1e13
"""FLOP a second of one CPU thread: more than twice what a core with AMX does in bfloat16."""
FASTEST_GPU = 1e16
"""FLOP a second of one GPU: more than twice the dense 8-bit peak of any that is sold."""


def rising_seconds(record: RunRecord) -> list[float] | None:
    """Seconds since the start of training at each evaluation; None where they are none."""
    wall = record.volatile.get("wall_s")
    sound = isinstance(wall, list) and len(wall) == len(record.curve) and all(map(_seconds, wall))
    if not sound or any(b <= a for a, b in zip(wall, wall[1:], strict=False)):
        return None
    return [float(t) for t in wall]


def _seconds(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value < float("inf")


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
