"""What in a run's health deserves a look (protocol CRL-1, A.2: alarms are shown, not ranked).

An alarm never changes a number. Each is one sentence with its threshold, so that a reader can
judge it; the rules that fail a run belong to the track and stand in the record's status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from crlbench.records import RunRecord

KL_SPIKE = 10.0
ENTROPY_SHARE = 0.10
CLIP_SHARE = 0.30
TRUNCATED_SHARE = 0.95
GRADIENT_RATIO = 10.0
LENGTH_RATIO = 2.0
DECODING_GAP = 0.05
SAMPLE_SHARE = 0.5
MIN_HISTORY = 5
"""Values before a running median, or a first-to-last comparison, says something."""

Health = Mapping[str, Sequence[float | int | None]]
"""Columns of equal length: ``iteration`` and the figures of ``crlbench.dynamics``."""


@dataclass(frozen=True)
class Alarm:
    """One observation, for people."""

    name: str
    iteration: int | None
    text: str


def alarms(record: RunRecord) -> list[Alarm]:
    """Every alarm of one run, in a fixed order."""
    found = [check(record.health) for check in CHECKS]
    return [alarm for alarm in found if alarm is not None] + _counted(record)


def series(health: Health, name: str) -> list[tuple[int, float]]:
    """(iteration, value) of one figure where it is finite."""
    pairs = zip(health.get("iteration", ()), health.get(name, ()), strict=False)
    return [(int(i or 0), float(value)) for i, value in pairs if isinstance(value, int | float)]


def _kl_spike(health: Health) -> Alarm | None:
    points = series(health, "reference_kl")
    worst: tuple[float, int] | None = None
    for index in range(MIN_HISTORY, len(points)):
        usual = median(abs(value) for _, value in points[:index])
        iteration, value = points[index]
        if usual > 0 and value > KL_SPIKE * usual and (worst is None or value / usual > worst[0]):
            worst = (value / usual, iteration)
    if worst is None:
        return None
    text = f"KL to the reference {worst[0]:.0f} times its running median (alarm above 10)"
    return Alarm("KL spike", worst[1], text)


def _entropy(health: Health) -> Alarm | None:
    points = series(health, "entropy")
    low = [p for p in points if p[1] < ENTROPY_SHARE * points[0][1]]
    if not low:
        return None
    share = low[0][1] / points[0][1]
    text = f"token entropy at {share:.0%} of its first value (alarm below 10 %)"
    return Alarm("entropy collapse", low[0][0], text)


def _above(name: str, label: str, words: str, limit: float) -> Callable[[Health], Alarm | None]:
    """An alarm on the largest value of a share."""

    def check(health: Health) -> Alarm | None:
        points = series(health, name)
        iteration, value = max(points, key=lambda p: p[1], default=(0, 0.0))
        if value < limit:
            return None
        return Alarm(label, iteration, f"{words} {value:.2f} (alarm from {limit:.2f})")

    return check


def _sample_size(health: Health) -> Alarm | None:
    iteration, value = min(series(health, "ess"), key=lambda p: p[1], default=(0, 1.0))
    if value >= SAMPLE_SHARE:
        return None
    text = f"effective sample size {value:.0%} of the tokens (alarm below {SAMPLE_SHARE:.0%})"
    return Alarm("few effective samples", iteration, text)


def _gradient(health: Health) -> Alarm | None:
    points = series(health, "grad_norm")
    usual = median(value for _, value in points) if points else 0.0
    iteration, value = max(points, key=lambda p: p[1], default=(0, 0.0))
    if len(points) < MIN_HISTORY or usual <= 0 or value <= GRADIENT_RATIO * usual:
        return None
    text = f"gradient norm {value / usual:.0f} times its median (alarm above 10)"
    return Alarm("gradient spike", iteration, text)


def _length(health: Health) -> Alarm | None:
    points = series(health, "length")
    if len(points) < MIN_HISTORY or points[0][1] <= 0:
        return None
    iteration, value = points[-1]
    if value <= LENGTH_RATIO * points[0][1]:
        return None
    text = f"completions {value / points[0][1]:.1f} times as long as at first (alarm above 2)"
    return Alarm("length growth", iteration, text)


CHECKS: tuple[Callable[[Health], Alarm | None], ...] = (
    _kl_spike,
    _entropy,
    _above("clip_fraction", "clip share", "share of clipped tokens", CLIP_SHARE),
    _above("truncated", "truncation", "share of completions cut at the cap", TRUNCATED_SHARE),
    _sample_size,
    _gradient,
    _length,
    _above(
        "behavior_gap",
        "decode gap",
        "mean log-prob gap between decoding and learning",
        DECODING_GAP,
    ),
)


def _counted(record: RunRecord) -> list[Alarm]:
    """Events that a healthy run has none of."""
    names = {"dropped_rows": "rows dropped for NaN", "skipped_updates": "updates skipped"}
    return [
        Alarm(label, None, f"{record.counts[name]} {label}")
        for name, label in names.items()
        if record.counts.get(name, 0) > 0
    ]
