"""How soon an entry gets somewhere: samples to threshold, speed, and other summaries of Λ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from crlbench.base import wording
from crlbench.pages.curves import profile_plot, speed_plot
from crlbench.pages.dots import ArrivalRow, arrival_plot
from crlbench.stats.profiles import Profile
from crlbench.stats.thresholds import Arrival
from crlbench.verdict.efficiency import Efficiency, Speed, TaskEfficiency, times
from crlbench.verdict.entry import Entry
from crlbench.verdict.task_runs import X_AXES


def arrivals(entry: Entry) -> dict[str, Any]:
    """Samples to threshold of every task, as figures and as rows."""
    tasks = entry.efficiency.tasks
    return {
        "figures": [
            {"task": task, "figure": figure(task, efficiency)}
            for task, efficiency in tasks.items()
            if efficiency.arrivals.get("completions")
        ],
        "rows": [row for task, efficiency in tasks.items() for row in _rows(task, efficiency)],
        "areas": [_area(task, efficiency) for task, efficiency in tasks.items()],
        "speed": _speed(entry.name, entry.efficiency.speed),
        "beside": _beside(entry.efficiency),
        "profiles": _profiles(entry.efficiency),
    }


def figure(task: str, efficiency: TaskEfficiency) -> Markup:
    """When every seed reaches each threshold."""
    reached = times(efficiency.curves)
    seeds = [curve.seed for curve in efficiency.curves]
    rows = [
        ArrivalRow(
            arrival.tau,
            list(zip(seeds, map(float, reached[arrival.tau]), strict=True)),
            arrival.restricted_mean,
        )
        for arrival in efficiency.arrivals["completions"]
    ]
    return Markup(arrival_plot(task, rows, efficiency.budget))


def _rows(task: str, efficiency: TaskEfficiency) -> list[dict[str, Any]]:
    by_axis = [efficiency.arrivals[axis] for axis in X_AXES if efficiency.arrivals.get(axis)]
    return [_row(task, efficiency, parts) for parts in zip(*by_axis, strict=True)]


def _row(task: str, efficiency: TaskEfficiency, parts: Sequence[Arrival]) -> dict[str, Any]:
    """One threshold on every axis: shares are those of completions, means each in its unit."""
    first = parts[0]
    pairs = zip(efficiency.curves, first.censored, strict=True)
    late = [str(curve.seed) for curve, censored in pairs if censored]
    return {
        "task": task,
        "tau": first.tau,
        "arrived": f"{first.arrived} of {first.n}",
        "share": first.share,
        "interval": first.interval,
        "means": [wording.grouped(part.restricted_mean) for part in parts],
        "censored": _seeds(late),
    }


def _seeds(indices: Sequence[str]) -> str:
    if not indices:
        return "none"
    return f"{'seed' if len(indices) == 1 else 'seeds'} {', '.join(indices)}"


def _area(task: str, efficiency: TaskEfficiency) -> dict[str, Any]:
    return {
        "task": task,
        "parts": [efficiency.E, efficiency.H, efficiency.L],
        "areas": [efficiency.areas.get(axis) for axis in X_AXES],
        "totals": [wording.grouped(efficiency.totals.get(axis)) for axis in X_AXES],
    }


def _speed(entry: str, speed: Speed) -> dict[str, Any]:
    if speed.score is None or not speed.a:
        return {"lack": speed.reason or "no reference is frozen", "figure": ""}
    if speed.reference == entry:
        return {"lack": "this entry is the reference that all others are measured against"}
    reference = speed.reference or "the reference"
    return {
        "lack": "",
        "score": speed.score,
        "reference": reference,
        "thresholds": speed.thresholds,
        "figure": Markup(speed_plot(speed.a, speed.share, reference)),
    }


def _beside(efficiency: Efficiency) -> list[tuple[str, str, float | None]]:
    """Name, meaning and value of what is printed beside the headline."""
    return [
        (
            "Pooled IQM",
            "middle half of all runs of all tasks, as rliable has it",
            efficiency.pooled_iqm,
        ),
        ("Mean Λ", "over tasks, of the plain mean over seeds", efficiency.mean),
        ("Median Λ", "over tasks, of the plain mean over seeds", efficiency.median),
        ("Optimality gap", "1 minus the mean of min(E, 1)", efficiency.optimality_gap),
    ]


def _profiles(efficiency: Efficiency) -> list[dict[str, Any]]:
    titles = [
        ("Runs with Λ above", "Λ", efficiency.lam_profile),
        ("Runs that end with u above", "u at the end", efficiency.end_profile),
    ]
    return [
        {"title": title, "figure": Markup(_profile(title, profile, unit))}
        for title, unit, profile in titles
        if profile is not None
    ]


def _profile(title: str, profile: Profile, unit: str) -> str:
    band = None
    if profile.low is not None and profile.high is not None:
        band = (profile.low.tolist(), profile.high.tolist())
    thresholds, share = profile.thresholds.tolist(), profile.share.tolist()
    return profile_plot(f"{title} a threshold", thresholds, share, band, unit)
