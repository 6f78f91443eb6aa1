"""The result of one entry and arm: in one sentence, in numbers, as curves and as E = H + L."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean as mean
from typing import Any

from markupsafe import Markup

from crlbench.base import wording
from crlbench.contract.arms import Arm
from crlbench.pages import words
from crlbench.pages.bars import Bar, stacked_bars
from crlbench.pages.curves import Curve, SeedCurve, learning_curves
from crlbench.pages.dots import Dot, interval_plot
from crlbench.stats.measures import GREEDY
from crlbench.verdict.axes import Estimate
from crlbench.verdict.entry import Entry
from crlbench.verdict.task_summary import TaskSummary

HOW: dict[Arm, str] = {
    "real": "",
    "placebo": " with a content-free reward",
    "mode": " paid for agreeing with the start model",
    "stress": " at three times the learning rate",
    "wrong": " paid for wrong answers",
}
"""How an arm was trained, after the name of its recipe."""


def lead(entry: Entry) -> str:
    """The result in one breath."""
    budgets = sorted({task.budget for task in entry.tasks})
    each = " on each task" if len(entry.tasks) > 1 else ""
    after = f"After {budgets[-1]:,} completions of {entry.recipe}{each}"
    reward = HOW[entry.arm]
    if entry.end is None:
        control = "a control, whose end is not scored"
        reason = "the end was not scored for every run" if entry.arm == "real" else control
        return f"{after}{reward}; {reason}."
    direction = "up from" if entry.end >= entry.start else "down from"
    digits = words.places(entry.gain.interval) - wording.PLACES
    end, start = (wording.percent(share, digits) for share in (entry.end, entry.start))
    return (
        f"{after}{reward}, {entry.display_name} answers {end} of held-out prompts correctly, "
        f"{direction} {start}{_greedily(entry)}."
    )


def _greedily(entry: Entry) -> str:
    """The same with the likeliest token at every step; empty where a task was not scored so.

    Learning may sharpen samples without changing what the model holds likeliest.
    """
    splits = [split for task in entry.tasks for split in task.splits if split.name == GREEDY]
    ends = [split.end for split in splits if split.end is not None]
    if len(ends) < len(entry.tasks):
        return ""
    before, after = mean([split.start for split in splits]), mean(ends)
    start, end = wording.percent(before), wording.percent(after)
    way = "up" if after > before else "down"
    change = f"{end} as before" if start == end else f"{end}, {way} from {start}"
    return f" (sampled; greedily decoded: {change})"


def tiles(entry: Entry, with_lam: bool) -> list[dict[str, str]]:
    """The numbers under the sentence.

    Args:
        with_lam: whether Λ is a tile too: an entry of the board has a card for it.
    """
    multiple = len(entry.tasks) > 1
    lam, gain = entry.lam if multiple else entry.tasks[0].lam, entry.gain
    failures = f"{len(entry.failed)} failed" if entry.failed else "none failed"
    label = "Λ, headroom captured" if multiple else "Mean Λ, headroom captured"
    head = [tile(label, words.value(lam), interval_note(lam))]
    return (head if with_lam else []) + [
        tile("Gain in score", words.value(gain, signed=True), interval_note(gain)),
        tile(
            "Score, start → end",
            f"{wording.number(entry.start)} → {wording.number(entry.end)}",
            f"mean over {len(entry.tasks)} tasks" if multiple else "one task",
        ),
        tile("Seeds", str(entry.n), failures),
    ]


def tile(label: str, value: str, note: str) -> dict[str, str]:
    """A number with what it is and a remark."""
    return {"label": label, "value": value, "note": note}


def interval_note(value: Estimate | None) -> str:
    """The interval of a number, or that it has none."""
    if value is None or value.interval is None:
        return "no interval"
    return f"95\u00a0% {words.span(value.interval)}"


def lam_figure(entry: Entry) -> Markup:
    """Mean Λ of every task with its seeds, and the headline, which is trimmed."""
    dots = [_task_dot(task) for task in entry.tasks]
    if len(dots) > 1:
        dots.append(Dot("Λ, all tasks", entry.lam.value, entry.lam.interval, strong=True))
    return Markup(interval_plot(dots, "Λ, share of the headroom captured"))


def _task_dot(task: TaskSummary) -> Dot:
    seeds = [seed.lam for seed in task.seeds if seed.lam is not None]
    return Dot(task.task, task.lam.value, task.lam.interval, seeds if len(seeds) > 1 else ())


def bar_figure(entry: Entry) -> Markup:
    """E = H + L of every task and their mean; empty without an area."""
    bars = [Bar(task.task, task.H, task.L) for task in entry.tasks if task.L is not None]
    if len(bars) > 1:
        head = sum(bar.head for bar in bars) / len(bars)
        learned = sum(bar.learned for bar in bars) / len(bars)
        bars.append(Bar("Mean", head, learned))
    return Markup(stacked_bars(bars) if bars else "")


def curve_figures(entry: Entry) -> list[Markup]:
    """Learning curves of every task on one score axis."""
    top = score_top(entry.tasks)
    label = f"{entry.model} {entry.recipe}"
    return [curve_figure(task, curve_series(task, label), top) for task in entry.tasks]


def score_top(tasks: Sequence[TaskSummary]) -> float:
    """Upper end of the score axis of all curves of an entry: the next tenth above them."""
    scores = [s for task in tasks for seed in task.seeds for s in seed.curve.score]
    ends = [seed.end for task in tasks for seed in task.seeds if seed.end is not None]
    return next_tenth(scores + ends)


def next_tenth(scores: Sequence[float]) -> float:
    """The next tenth above all scores, from 0.2 to 1."""
    return min(1.0, max(0.2, (int(max(scores) * 10 + 1e-9) + 1) / 10))


def curve_series(task: TaskSummary, label: str) -> Curve:
    """Every seed of a task."""
    seeds = [SeedCurve(s.index, s.curve.x, s.curve.score, s.curve.measured) for s in task.seeds]
    return Curve(label, seeds, task.start, task.end)


def curve_figure(task: TaskSummary, series: Curve, top: float) -> Markup:
    """The curves of runs on a task, which may be those of another arm than its summary's."""
    svg = learning_curves(
        task.task,
        [series],
        budget=max(1, task.budget),
        floor=task.floor,
        ceiling=task.ceiling,
        top=top,
    )
    return Markup(svg)


def results(entry: Entry) -> dict[str, Any]:
    """What the template shows of the result."""
    return {
        "lam_figure": lam_figure(entry),
        "bar_figure": bar_figure(entry),
        "lost": any(task.L is not None and task.L < 0 for task in entry.tasks),
        "curves": curve_figures(entry),
    }
