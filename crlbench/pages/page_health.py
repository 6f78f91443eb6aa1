"""Dynamics on the page: small charts with their alarms, every figure, the clipped tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from crlbench.base import wording
from crlbench.contract.dynamics import ALL_STATS
from crlbench.pages.sparks import Flag, Seeds, Spread, combine_seeds, sparkline, trend
from crlbench.verdict.alarms import Alarm, alarms, series
from crlbench.verdict.runs import Run

PANELS = {
    "reward": ("Reward", "mean over completions"),
    "score": ("Training score", "mean over completions"),
    "audit": ("Audit", "second verifier"),
    "reference_kl": ("KL to the reference", "nats per token"),
    "entropy": ("Entropy", "nats per token"),
    "clip_fraction": ("Clip share", "share of tokens"),
    "ess": ("Effective samples", "of the ratios, share of tokens"),
    "length": ("Length", "tokens per completion"),
    "truncated": ("Truncated", "share of completions"),
    "turns": ("Turns", "per episode"),
    "faults": ("Faults", "share of turns"),
    "tool_calls": ("Tool calls", "per episode"),
    "grad_norm": ("Gradient norm", "before clipping"),
    "explained_variance": ("Explained variance", "of the value head"),
    "behavior_gap": ("Decode gap", "mean log-prob difference"),
    "kept_fraction": ("Kept", "share of completions"),
}
"""Series of the health panels: name in the record, title, unit. Every alarm's figure is one."""

SHOWN_TOKENS = 12

Raised = list[tuple[int, Alarm]]
"""Seed index and alarm."""


def health_panel(task: str, runs: Sequence[Run]) -> dict[str, Any]:
    """The dynamics of one task over all seeds of an entry.

    Args:
        runs: of the entry, all tasks.
    """
    of_task = [run for run in runs if run.record.task.name == task]
    by_seed = [(r.record.seed.index, alarm) for r in of_task for alarm in alarms(r.record)]
    figures = {
        name: combine_seeds([(r.record.seed.index, series(r.record.health, name)) for r in of_task])
        for name in {**PANELS, **ALL_STATS}
    }
    panels, constant = _panels(task, figures, by_seed)
    return {
        "task": task,
        "panels": panels,
        "constant": ", ".join(constant),
        "alarms": [_line(seed, alarm) for seed, alarm in by_seed],
        "dynamics": _dynamics_rows(task, figures),
        "clipped": _clipped_tokens(of_task),
    }


def _panels(
    task: str, figures: Mapping[str, Spread], by_seed: Raised
) -> tuple[list[dict[str, Any]], list[str]]:
    """Charts of what moves or raised an alarm, and a word on what stays as it was."""
    panels, constant = [], []
    visible: list[Seeds] = []
    for name, (title, unit) in PANELS.items():
        seeds, values = figures[name].seeds, figures[name].values
        flags = [_flag(seed, alarm) for seed, alarm in by_seed if alarm.figure == name]
        if len(values) == 1 and not flags:
            constant.append(f"{title} {wording.short(min(values))}")
        elif values and (flags or seeds not in visible):
            visible.append(seeds)
            panels.append(_spark(task, title, unit, figures[name], flags))
    return panels, constant


def _flag(seed: int, alarm: Alarm) -> Flag:
    return Flag(seed, alarm.iteration or 0, alarm.value or 0.0, alarm.limit)


def _line(seed: int, alarm: Alarm) -> dict[str, str]:
    """Seed, figure and text of an alarm, for the list above the charts."""
    at = "" if alarm.iteration is None else f", iteration {alarm.iteration}"
    title = PANELS[alarm.figure][0] if alarm.figure else "Whole run"
    return {"where": f"seed {seed}{at}", "figure": title, "text": alarm.text}


def _spark(task: str, title: str, unit: str, spread: Spread, flags: list[Flag]) -> dict[str, Any]:
    return {
        "title": title,
        "unit": unit,
        "figure": Markup(sparkline(f"{title} on {task}", spread, flags)),
        "first": wording.short(spread.mean[0][1]),
        "last": wording.short(spread.mean[-1][1]),
        "alarmed": wording.count(len(flags), "alarm") if flags else "",
    }


def _dynamics_rows(task: str, figures: Mapping[str, Spread]) -> list[dict[str, Any]]:
    """Every figure with a value, in the order of ``ALL_STATS``."""
    rows = []
    for name, meaning in ALL_STATS.items():
        spread = figures[name]
        if spread.mean:
            figure = Markup(trend(f"{name} on {task}", spread)) if len(spread.values) > 1 else ""
            first, last = (wording.short(spread.mean[at][1]) for at in (0, -1))
            rows.append(
                {"name": name, "meaning": meaning, "figure": figure, "first": first, "last": last}
            )
    return rows


def _clipped_tokens(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The tokens that were held back most often, summed over the seeds."""
    totals: dict[str, list[int]] = {}
    for run in runs:
        for token in run.record.clipped_tokens:
            low, high = totals.setdefault(token.text, [0, 0])
            totals[token.text] = [low + token.low, high + token.high]
    order = sorted(totals.items(), key=lambda total: (-sum(total[1]), total[0]))
    return [
        {"text": _token(text), "low": low, "high": high}
        for text, (low, high) in order[:SHOWN_TOKENS]
    ]


def _token(text: str) -> str:
    """A token with its white space visible."""
    return wording.visible(text, 40).replace("\n", "\\n").replace(" ", "␣")
