"""What runs cost and what they ran on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from crlbench.base import wording
from crlbench.contract.conditions import leaves
from crlbench.contract.records import RunRecord
from crlbench.pages import page_stages
from crlbench.verdict.runs import Run

COSTS = ("completions", "generated_tokens", "trained_tokens", "flops_estimate")
"""Fields of a record's ``cost``, equal for equal runs."""
MOST_NAMED = 3
"""Number of runs named for a value in which environments differ."""


def costs(runs: Sequence[Run]) -> dict[str, Any]:
    """Per task and in all what the runs of one entry and arm cost, every run by itself, and the
    stages of a chain."""
    pairs = [(run.record, measure_cost(run.record)) for run in runs]
    apart = [(record, cost | {"energy": None}) for record, cost in pairs]
    summed = apart if _overlap([record for record, _ in pairs]) else pairs
    tasks = groupby(summed, key=lambda pair: pair[0].task.name)
    return {
        "tasks": [_cost_row(task, [cost for _, cost in group]) for task, group in tasks],
        "total": _cost_row("All runs", [cost for _, cost in summed]),
        "measures_energy": any(cost["energy"] is not None for _, cost in pairs),
        "runs": [
            _cost_row(f"{record.task.name} seed-{record.seed.index:02d}", [cost])
            for record, cost in pairs
        ],
        "hosts": _hosts(runs),
        "stages": page_stages.stages(runs),
    }


def measure_cost(record: RunRecord) -> dict[str, float | None]:
    """What one run cost: counts, peak memory in bytes, wall time in seconds, energy in joules;
    None where unknown."""
    last = record.curve[-1] if record.curve else None
    deterministic = {name: _number(record.cost.get(name)) for name in COSTS}
    return deterministic | {
        "bytes": None if last is None else float(last.bytes),
        "updates": None if last is None else float(last.updates),
        "memory": _number(record.volatile.get("peak_memory_bytes")),
        "wall": _wall(record),
        "energy": _energy(record),
    }


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _wall(record: RunRecord) -> float | None:
    """Seconds from the first iteration to the last evaluation, all attempts together."""
    seconds = record.volatile.get("wall_s")
    if not isinstance(seconds, list) or not seconds:
        return None
    numbers = [s for s in seconds if isinstance(s, int | float)]
    return float(max(numbers)) if len(numbers) == len(seconds) else None


def _energy(record: RunRecord) -> float | None:
    """Joules of all kinds that counters saw; None where none was read."""
    kinds = record.volatile.get("energy_j")
    if not isinstance(kinds, dict) or not kinds:
        return None
    numbers = [_number(joules) for joules in kinds.values()]
    return sum(n for n in numbers if n is not None) if None not in numbers else None


def _overlap(records: Sequence[RunRecord]) -> bool:
    """Whether two runs with energy may have trained at one time on one machine: each then counts
    what both took."""
    spans: dict[Any, list[tuple[float, float]]] = {}
    for record in records:
        if _energy(record) is None:
            continue
        attempts = record.volatile.get("attempts")
        for one in attempts if isinstance(attempts, list) else [None]:
            ends = [_number(one.get(n)) for n in ("start", "end")] if isinstance(one, dict) else []
            if len(ends) != 2 or None in ends:
                return True
            spans.setdefault(str(one.get("host")), []).append((ends[0], ends[1]))
    ordered = [sorted(times) for times in spans.values()]
    return any(a[1] > b[0] for times in ordered for a, b in zip(times, times[1:], strict=False))


def _cost_row(label: str, parts: Sequence[dict[str, float | None]]) -> dict[str, Any]:
    """Sums of what is spent, the largest of what is held; a dash where a run does not say."""

    def total(name: str) -> float | None:
        values = [part[name] for part in parts]
        return None if any(v is None for v in values) else sum(values)

    peaks = [part["memory"] for part in parts if part["memory"] is not None]
    return {
        "label": label,
        "runs": len(parts),
        "completions": wording.grouped(total("completions")),
        "generated": wording.grouped(total("generated_tokens")),
        "bytes": wording.grouped(total("bytes")),
        "trained": wording.grouped(total("trained_tokens")),
        "updates": wording.grouped(total("updates")),
        "flops": wording.power(total("flops_estimate")),
        "memory": wording.memory(max(peaks, default=None)),
        "wall": wording.duration(total("wall")),
        "energy": wording.energy(total("energy")),
    }


def _hosts(runs: Sequence[Run]) -> int:
    """Machines by their pseudonyms, as the attempts that finished name them."""
    hosts = set()
    for run in runs:
        attempts = run.record.volatile.get("attempts")
        for attempt in attempts if isinstance(attempts, list) else []:
            if isinstance(attempt, dict) and isinstance(attempt.get("host"), str):
                hosts.add(attempt["host"])
    return len(hosts)


def environment_panel(runs: Sequence[Run]) -> dict[str, Any]:
    """What all runs share and what differs, leaf by leaf, with the source that ran."""
    flat = [_surroundings(run.record) for run in runs]
    names = sorted({name for one in flat for name in one})
    equal, differing = [], []
    for name in names:
        values = [leaf(one[name]) if name in one else "(not stated)" for one in flat]
        if len(set(values)) == 1:
            equal.append((name, values[0]))
        else:
            differing.append((name, _groups(values, runs)))
    return {"shared": equal, "differing": differing, "runs": len(runs)}


def _surroundings(record: RunRecord) -> dict[str, Any]:
    source = record.crlbench.model_dump(mode="json")
    return leaves(record.environment) | {f"crlbench.{name}": v for name, v in source.items()}


def _groups(values: Sequence[str], runs: Sequence[Run]) -> list[dict[str, str]]:
    """Every value with the runs that have it, the most frequent first."""
    counts = Counter(values)
    groups = []
    for value in sorted(counts, key=lambda v: (-counts[v], v)):
        having = [run.name for run, one in zip(runs, values, strict=True) if one == value]
        rest = f" and {len(having) - MOST_NAMED} more" if len(having) > MOST_NAMED else ""
        names = ", ".join(having[:MOST_NAMED]) + rest
        groups.append({"value": value, "runs": wording.count(len(having), "run"), "named": names})
    return groups


def leaf(value: Any) -> str:
    """A value of a record as text."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
