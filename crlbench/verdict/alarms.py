"""What in a run's health deserves a look (protocol CRL-1, A.2: alarms are shown, not ranked).

An alarm never changes a number. Each names its figure, its iteration and its threshold, so that
a reader can judge it; the rules that fail a run belong to the track and stand in the record's
status.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from crlbench.base.wording import number, percent
from crlbench.contract.records import RunRecord

KL_SPIKE = 10.0
ENTROPY_SHARE = 0.10
CLIP_SHARE = 0.30
TRUNCATED_SHARE = 0.95
GRADIENT_RATIO = 10.0
GRADIENT_QUANTILE = (99, 100)
"""As whole numbers, because .99 n rounds."""
LENGTH_RATIO = 2.0
DECODING_GAP = 0.05
SAMPLE_SHARE = 0.5
KEPT_MASS = 0.5
"""Share of the start's probability of the compared answers, below which it went elsewhere."""
EXPLAINED = 0.0
"""A critic below this is worse than one that always says the mean."""
MIN_HISTORY = 5
"""Values before a running median, a first-to-last comparison or an end says something."""

Health = Mapping[str, Sequence[float | int | None]]
"""Columns of equal length: ``iteration`` and the figures of ``crlbench.contract.dynamics``."""

Points = list[tuple[int, float]]
"""(iteration, value)."""


@dataclass(frozen=True)
class Alarm:
    """One observation, for people. Its text leaves the figure's name to whoever shows it."""

    name: str
    iteration: int | None
    text: str
    figure: str | None = None
    """Name in the record's health; None for an event that is counted over the whole run."""
    value: float | None = None
    """Of the figure at the iteration."""
    limit: float | None = None
    """The threshold, where it is a value of the figure itself."""


def alarms(record: RunRecord) -> list[Alarm]:
    """Every alarm of one run, in a fixed order."""
    results = [check(record.health) for check in CHECKS]
    return [alarm for alarm in results if alarm is not None] + _count_alarms(record)


def series(health: Health, name: str) -> Points:
    """(iteration, value) of one figure where it is finite."""
    iterations, values = health.get("iteration", ()), health.get(name, ())
    if None in iterations or None in values:
        pairs = zip(iterations, values, strict=False)
        return [(int(i or 0), float(value)) for i, value in pairs if value is not None]
    return list(zip(map(int, iterations), map(float, values), strict=False))


def _kl_spike(health: Health) -> Alarm | None:
    """The highest of the spikes above the running median, and how many there are."""
    points = series(health, "reference_kl")
    spikes, before = [], sorted(abs(value) for _, value in points[:MIN_HISTORY])
    for iteration, value in points[MIN_HISTORY:]:
        usual = median(before)
        if usual > 0 and value > KL_SPIKE * usual:
            spikes.append((value / usual, -iteration, value))
        insort(before, abs(value))
    if not spikes:
        return None
    ratio, negative, value = max(spikes)
    more = f"; {len(spikes)} iterations are that high" if len(spikes) > 1 else ""
    text = (
        f"{value:.3g} nats per token, {ratio:.0f} times its running median "
        f"(alarm above {KL_SPIKE:.0f}){more}"
    )
    return Alarm("KL spike", -negative, text, "reference_kl", value)


def _entropy(health: Health) -> Alarm | None:
    points = series(health, "entropy")
    limit = ENTROPY_SHARE * points[0][1] if points else 0.0
    low = [p for p in points if p[1] < limit]
    if not low:
        return None
    iteration, value = low[0]
    text = (
        f"{value:.3g} nats, {percent(value / points[0][1], 1)} of its first value "
        f"(alarm below {percent(ENTROPY_SHARE, 0)}){_more(low)}"
    )
    return Alarm("entropy collapse", iteration, text, "entropy", value, limit)


def _above(name: str, label: str, unit: str, limit: float) -> Callable[[Health], Alarm | None]:
    """An alarm on the largest value of a share."""

    def check(health: Health) -> Alarm | None:
        high = [p for p in series(health, name) if p[1] >= limit]
        if not high:
            return None
        iteration, value = max(high, key=lambda p: p[1])
        text = f"{value:.2f} {unit} (alarm from {limit:.2f}){_more(high)}"
        return Alarm(label, iteration, text, name, value, limit)

    return check


def _more(points: Points) -> str:
    return f"; {len(points)} iterations are beyond it" if len(points) > 1 else ""


def _sample_size(health: Health) -> Alarm | None:
    low = [p for p in series(health, "ess") if p[1] < SAMPLE_SHARE]
    if not low:
        return None
    iteration, value = min(low, key=lambda p: p[1])
    text = f"{percent(value, 1)} of the tokens (alarm below {percent(SAMPLE_SHARE, 0)}){_more(low)}"
    return Alarm("few effective samples", iteration, text, "ess", value, SAMPLE_SHARE)


def _gradient(health: Health) -> Alarm | None:
    """The 99 % quantile against the median; below 101 values the quantile is the largest."""
    points = series(health, "grad_norm")
    usual = median(value for _, value in points) if points else 0.0
    if len(points) < MIN_HISTORY or usual <= 0:
        return None
    part, whole = GRADIENT_QUANTILE
    ordered = sorted(points, key=lambda p: p[1])
    iteration, value = ordered[math.ceil(len(points) * part / whole) - 1]
    if value <= GRADIENT_RATIO * usual:
        return None
    text = (
        f"{value:.3g} before clipping; the 99 % quantile is {value / usual:.0f} "
        f"times the median (alarm above {GRADIENT_RATIO:.0f})"
    )
    return Alarm("gradient spike", iteration, text, "grad_norm", value)


def _length(health: Health) -> Alarm | None:
    points = series(health, "length")
    if len(points) < MIN_HISTORY or points[0][1] <= 0:
        return None
    iteration, value = points[-1]
    limit = LENGTH_RATIO * points[0][1]
    if value <= limit:
        return None
    text = (
        f"{value:.3g} tokens, {value / points[0][1]:.1f} times as long as at first "
        f"(alarm above {LENGTH_RATIO:.0f})"
    )
    return Alarm("length growth", iteration, text, "length", value, limit)


def _critic(health: Health) -> Alarm | None:
    """A critic may start badly; what counts is what it explains at the end."""
    points = series(health, "explained_variance")
    if len(points) < 2 * MIN_HISTORY:
        return None
    last = fmean(value for _, value in points[-MIN_HISTORY:])
    if last >= EXPLAINED:
        return None
    text = (
        f"the critic explains {number(last, 2)} of the variance of the returns, mean of the last "
        f"{MIN_HISTORY} values (alarm below {EXPLAINED:.0f}: worse than always saying the mean)"
    )
    iteration, value = points[-1]
    return Alarm("useless critic", iteration, text, "explained_variance", value, EXPLAINED)


def _kept_mass(health: Health) -> Alarm | None:
    """Both answers of the pairs become unlikely: the policy moves to answers nobody compared."""
    low = [p for p in series(health, "kept_mass") if p[1] < KEPT_MASS]
    if not low:
        return None
    iteration, value = low[0]
    text = (
        f"{value:.2g} of what the start gave the answers of the pairs "
        f"(alarm below {KEPT_MASS:g}){_more(low)}"
    )
    return Alarm("lost probability", iteration, text, "kept_mass", value, KEPT_MASS)


CHECKS: tuple[Callable[[Health], Alarm | None], ...] = (
    _kl_spike,
    _entropy,
    _above("clip_fraction", "clip share", "of the tokens", CLIP_SHARE),
    _above("truncated", "truncation", "of the completions cut at the cap", TRUNCATED_SHARE),
    _sample_size,
    _gradient,
    _length,
    _critic,
    _kept_mass,
    _above("behavior_gap", "decode gap", "nats between decoding and learning", DECODING_GAP),
)


def _count_alarms(record: RunRecord) -> list[Alarm]:
    """Events that a healthy run has none of."""
    names = {"dropped_rows": "rows dropped for NaN", "skipped_updates": "updates skipped"}
    return [
        Alarm(label, None, f"{record.counts[name]} {label} (alarm above 0)")
        for name, label in names.items()
        if record.counts.get(name, 0) > 0
    ]
