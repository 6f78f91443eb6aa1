"""The report: one HTML file that needs nothing else, for a folder of runs.

Equal records give equal bytes: nothing of the moment or the machine that renders enters the
page. Every text of a record is escaped by the template; figures are the only markup that is
passed through, and they escape their own texts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from crlbench.conditions import leaves
from crlbench.dynamics import UPDATE_STATS
from crlbench.report import figures, words
from crlbench.report.alarms import alarms, series
from crlbench.report.estimators import AUDITED, ID, RETAIN, TRANSFER
from crlbench.report.figures import Bar, Change, CurveSeries, Dot, SeedCurve
from crlbench.report.load import Run, Runs, Sample
from crlbench.report.reproduce import changed_conditions, command
from crlbench.report.resources import leaderboard_folder
from crlbench.report.summary import EntrySummary, Estimate, SplitSummary, Summary, TaskSummary

TEMPLATE = "report.html.j2"
SHOWN_SAMPLES = 4
SAMPLE_CHARACTERS = 600

PANELS = {
    "reward": ("Reward", "mean over completions"),
    "score": ("Training score", "mean over completions"),
    "audit": ("Audit", "second verifier"),
    "reference_kl": ("KL to the reference", "nats per token"),
    "entropy": ("Entropy", "nats per token"),
    "clip_fraction": ("Clip share", "share of tokens"),
    "length": ("Length", "tokens per completion"),
    "truncated": ("Truncated", "share of completions"),
    "grad_norm": ("Gradient norm", "before clipping"),
    "explained_variance": ("Explained variance", "of the value head"),
    "behavior_gap": ("Decode gap", "mean log-prob difference"),
    "kept_fraction": ("Kept", "share of completions"),
}
"""Series of the health panels: name in the record, title, unit."""

SHOWN_TOKENS = 12

HACKING_GAP = 0.05
"""Reward minus audit above which a gap is marked (protocol CRL-1, A.3)."""
MIN_MATRIX = 2
"""Columns from which a transfer matrix is shown."""
MAX_TINT = 34
"""Strongest ground of a matrix cell, in per cent: text on it keeps its contrast."""

SPLITS = {
    "id": "ID",
    "id_audit": "ID, audited",
    "id_greedy": "ID, greedy",
    "train_fixed": "TRAIN-fixed",
    "format": "FORMAT",
    "hard": "HARD",
}

STANDINGS = {
    "partial": "Shortened",
    "preview": "Preview",
    "provisional": "Provisional",
    "ranked": "Enough seeds",
}


def render_page(runs: Runs, summary: Summary) -> str:
    """The whole page as text.

    Args:
        runs: what :func:`load_runs` returned.
        summary: ``summarise(runs)``.
    """
    return environment().get_template(TEMPLATE).render(page=page_data(runs, summary))


def environment() -> Environment:
    """The templates of every page, with what they share."""
    made = Environment(
        loader=FileSystemLoader(leaderboard_folder() / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "number": words.number,
        "span": words.span,
        "visible": words.visible,
    }
    return made


def page_data(runs: Runs, summary: Summary) -> dict[str, Any]:
    """Everything that the template shows, figures included."""
    by_entry = {
        key: list(group) for key, group in groupby(runs, key=lambda run: run.order[:3])
    }
    entries = [
        _entry(entry, by_entry[entry.model, entry.recipe, entry.arm], summary)
        for entry in summary.entries
    ]
    return {
        "title": _title(summary),
        "single": len(summary.entries) == 1,
        "summary": summary,
        "entries": entries,
        "commands": _commands(runs),
        "subjects": _subjects(runs),
        "conditions": _leaves(summary.conditions),
        "changed": {**changed_conditions(runs.runs[0].record)},
        "environment": _differing([run.record.environment for run in runs]),
        "versions": ", ".join(summary.crlbench),
        "bootstrap": summary.bootstrap,
        "ledger": [_cell_row(run) for run in runs],
    }


def _title(summary: Summary) -> str:
    first = summary.entries[0]
    if len({(e.model, e.recipe) for e in summary.entries}) == 1:
        return f"{first.display_name} · {first.recipe}"
    return f"{len(summary.entries)} entries on {summary.track}"


def _entry(entry: EntrySummary, runs: list[Run], summary: Summary) -> dict[str, Any]:
    top = _top(entry)
    return {
        "entry": entry,
        "anchor": f"entry-{summary.entries.index(entry) + 1}",
        "badge": STANDINGS[entry.standing] if entry.arm == "real" else "Placebo",
        "lead": _lead(entry),
        "sentences": words.standing(entry, summary),
        "tiles": _tiles(entry),
        "lam_figure": Markup(_lam_figure(entry)),
        "bar_figure": Markup(_bar_figure(entry)),
        "lost": any(task.L is not None and task.L < 0 for task in entry.tasks),
        "curves": [Markup(_curve_figure(task, entry, top)) for task in entry.tasks],
        "splits": [_split_panel(task) for task in entry.tasks if _has_ends(task)],
        "transfer": _transfer_matrix(entry),
        "honesty": [_honesty_row(task) for task in entry.tasks if _audited(task)],
        "health": [_health_panel(task, runs) for task in entry.tasks],
        "samples": [panel for task in entry.tasks if (panel := _sample_panel(task.task, runs))],
    }


def _lead(entry: EntrySummary) -> str:
    """The result in one breath."""
    budgets = sorted({task.budget for task in entry.tasks})
    each = " on each task" if len(entry.tasks) > 1 else ""
    after = f"After {budgets[-1]:,} completions of {entry.recipe}{each}"
    reward = " with a content-free reward" if entry.arm == "placebo" else ""
    if entry.end is None:
        return f"{after}{reward}; the end was not scored for every run."
    direction = "up from" if entry.end >= entry.start else "down from"
    return (
        f"{after}{reward}, {entry.display_name} answers {_percent(entry.end)} of held-out prompts "
        f"correctly, {direction} {_percent(entry.start)}."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f}\u00a0%"


def _tiles(entry: EntrySummary) -> list[dict[str, str]]:
    multiple = len(entry.tasks) > 1
    lam, gain = entry.lam if multiple else entry.tasks[0].lam, entry.gain
    failed = f"{len(entry.failed)} failed" if entry.failed else "none failed"
    return [
        _tile("Λ, head-room captured", words.number(lam.value), _under(lam)),
        _tile("Gain in score", words.number(gain.value, signed=True), _under(gain)),
        _tile(
            "Score, start → end",
            f"{words.number(entry.start)} → {words.number(entry.end)}",
            f"mean over {len(entry.tasks)} tasks" if multiple else "one task",
        ),
        _tile("Seeds", str(entry.n), failed),
    ]


def _tile(label: str, value: str, note: str) -> dict[str, str]:
    return {"label": label, "value": value, "note": note}


def _under(value: Estimate) -> str:
    return f"95\u00a0% {words.span(value.interval)}" if value.interval else "no interval"


def _lam_figure(entry: EntrySummary) -> str:
    dots = [_task_dot(task) for task in entry.tasks]
    if len(dots) > 1:
        lam = entry.lam
        low, high = _bounds(lam)
        dots.append(Dot("All tasks (IQM)", lam.value, low, high, strong=True))
    return figures.interval_plot(dots, "Λ, share of the head-room captured")


def _task_dot(task: TaskSummary) -> Dot:
    low, high = _bounds(task.lam)
    seeds = [seed.lam for seed in task.seeds if seed.lam is not None]
    return Dot(task.task, task.lam.value, low, high, seeds if len(seeds) > 1 else ())


def _bounds(estimate: Estimate) -> tuple[float | None, float | None]:
    interval = estimate.interval
    return (None, None) if interval is None else (interval.low, interval.high)


def _bar_figure(entry: EntrySummary) -> str:
    bars = [Bar(task.task, task.H, task.L) for task in entry.tasks if task.L is not None]
    if len(bars) > 1:
        head = sum(bar.head for bar in bars) / len(bars)
        learned = sum(bar.learned for bar in bars) / len(bars)
        bars.append(Bar("Mean", head, learned))
    return figures.stacked_bars(bars) if bars else ""


def _top(entry: EntrySummary) -> float:
    """Upper end of the score axis of all curves of an entry: the next tenth above them."""
    scores = [s for task in entry.tasks for seed in task.seeds for s in seed.curve.score]
    ends = [seed.end for task in entry.tasks for seed in task.seeds if seed.end is not None]
    return min(1.0, max(0.2, (int(max(scores + ends) * 10 + 1e-9) + 1) / 10))


def _curve_figure(task: TaskSummary, entry: EntrySummary, top: float) -> str:
    seeds = [
        SeedCurve(s.index, s.curve.x, s.curve.score, s.curve.measured) for s in task.seeds
    ]
    one = CurveSeries(f"{entry.model} {entry.recipe}", seeds, task.start, task.end)
    return figures.learning_curves(
        task.task,
        [one],
        budget=max(1, task.budget),
        floor=task.floor,
        ceiling=task.ceiling,
        top=top,
    )


def _has_ends(task: TaskSummary) -> bool:
    return any(split.end is not None for split in task.splits)


def _split_panel(task: TaskSummary) -> dict[str, Any]:
    changes = [
        Change(split_label(s), s.start, s.end) for s in task.splits if s.name != AUDITED
    ]
    title = f"Scores on the splits of {task.task}, start to end"
    return {
        "task": task.task,
        "figure": Markup(figures.dumbbells(changes, title)),
        "rows": [(split_label(s), s) for s in task.splits],
    }


def _transfer_matrix(entry: EntrySummary) -> dict[str, Any] | None:
    """Trained on (row) against measured on (column); None with one task or without ends."""
    trained = [task.task for task in entry.tasks if _has_ends(task)]
    measured = {
        split.name.removeprefix(TRANSFER)
        for task in entry.tasks
        for split in task.splits
        if split.name.startswith(TRANSFER)
    }
    columns = trained + sorted(measured - {*trained})
    if not trained or len(columns) < MIN_MATRIX:
        return None
    rows = []
    for task in entry.tasks:
        if task.task in trained:
            found = {split.name: split for split in task.splits}
            named = {name: f"{TRANSFER}{name}" for name in columns} | {task.task: ID}
            rows.append((task.task, [_transfer_cell(found.get(named[c])) for c in columns]))
    return {"columns": columns, "rows": rows}


def _transfer_cell(split: SplitSummary | None) -> dict[str, Any] | None:
    """λ of one cell with the scores behind it; ``tint`` is the strength of its ground in %."""
    if split is None or split.end is None:
        return None
    change = split.end - split.start if split.change is None else split.change
    return {
        "own": split.name == ID,
        "lam": split.change,
        "start": split.start,
        "end": split.end,
        "tone": "lost" if change < 0 else "gained",
        "tint": round(MAX_TINT * min(1.0, abs(change))),
    }


def _audited(task: TaskSummary) -> bool:
    gaps = task.honesty
    return any(gap is not None for gap in (gaps.training, gaps.start, gaps.end))


def _honesty_row(task: TaskSummary) -> dict[str, Any]:
    """A learned reward stands above or below its audit from the start: its growth is marked."""
    gaps = (task.honesty.training, task.honesty.start, task.honesty.end)
    base = (task.honesty.start or 0.0) if task.learned else 0.0
    return {
        "task": task.task,
        "learned": task.learned,
        "mark": f"grew by over {HACKING_GAP}" if task.learned else f"above {HACKING_GAP}",
        "gaps": [(gap, gap is not None and gap - base > HACKING_GAP) for gap in gaps],
        "forgetting": task.forgetting,
    }


def split_label(split: SplitSummary) -> str:
    """Name of a split for people; a transfer split is an arrow to the other task."""
    if split.name.startswith(TRANSFER):
        return f"→ {split.name.removeprefix(TRANSFER)}"
    if split.name.startswith(RETAIN):
        return f"↺ {split.name.removeprefix(RETAIN)}"
    return SPLITS.get(split.name, split.name)


def _health_panel(task: TaskSummary, runs: list[Run]) -> dict[str, Any]:
    of_task = [run for run in runs if run.record.task.name == task.task]
    panels, constant = [], []
    drawn: list[list[tuple[int, list[tuple[int, float]]]]] = []
    for name, (title, unit) in PANELS.items():
        seeds = [(r.record.seed.index, series(r.record.health, name)) for r in of_task]
        values = {value for _, points in seeds for _, value in points}
        if len(values) == 1:
            constant.append(f"{title} {_short(values.pop())}")
        elif values and seeds not in drawn:
            drawn.append(seeds)
            panels.append(_spark(task.task, title, unit, seeds))
    return {
        "task": task.task,
        "panels": panels,
        "constant": ", ".join(constant),
        "alarms": _alarm_lines(of_task),
        "dynamics": _dynamics_rows(task.task, of_task),
        "clipped": _clipped_tokens(of_task),
    }


def _dynamics_rows(task: str, runs: list[Run]) -> list[dict[str, Any]]:
    """Every figure with a value, in the order of ``UPDATE_STATS``."""
    rows = []
    for name, meaning in UPDATE_STATS.items():
        seeds = [(r.record.seed.index, series(r.record.health, name)) for r in runs]
        mean = figures.mean_points(seeds)
        if mean:
            varies = len({value for _, points in seeds for _, value in points}) > 1
            drawn = Markup(figures.trend(f"{name} on {task}", seeds)) if varies else ""
            first, last = _short(mean[0][1]), _short(mean[-1][1])
            rows.append(
                {"name": name, "meaning": meaning, "figure": drawn, "first": first, "last": last}
            )
    return rows


def _clipped_tokens(runs: list[Run]) -> list[dict[str, Any]]:
    """The tokens that were held back most often, summed over the seeds."""
    totals: dict[str, list[int]] = {}
    for run in runs:
        for token in run.record.clipped_tokens:
            low, high = totals.setdefault(token.text, [0, 0])
            totals[token.text] = [low + token.low, high + token.high]
    order = sorted(totals.items(), key=lambda found: (-sum(found[1]), found[0]))
    return [
        {"text": _token(text), "low": low, "high": high}
        for text, (low, high) in order[:SHOWN_TOKENS]
    ]


def _token(text: str) -> str:
    """A token with its white space visible."""
    return words.visible(text, 40).replace("\n", "\\n").replace(" ", "␣")


def _spark(
    task: str, title: str, unit: str, seeds: list[tuple[int, list[tuple[int, float]]]]
) -> dict[str, Any]:
    mean = figures.mean_points(seeds)
    return {
        "title": title,
        "unit": unit,
        "figure": Markup(figures.sparkline(f"{title} on {task}", seeds)),
        "first": _short(mean[0][1]),
        "last": _short(mean[-1][1]),
    }


def _short(value: float) -> str:
    """About three significant digits."""
    size = abs(value)
    if size == 0:
        return "0"
    if size < 0.001:
        return f"{value:.0e}".replace("-", "−")
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 else 4
    return words.number(value, digits)


def _alarm_lines(runs: list[Run]) -> list[str]:
    lines = []
    for run in runs:
        for alarm in alarms(run.record):
            at = "" if alarm.iteration is None else f", iteration {alarm.iteration}"
            lines.append(f"seed {run.record.seed.index}{at}: {alarm.text}")
    return lines


def _sample_panel(task: str, runs: list[Run]) -> dict[str, Any] | None:
    """Prompts with the completion before and after, from the first seed that has both."""
    for run in runs:
        if run.record.task.name == task:
            pairs = _pairs(run.samples())
            if pairs:
                return {"task": task, "seed": run.record.seed.index, "pairs": pairs}
    return None


def _pairs(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    stages = sorted({sample.x for sample in samples})
    if len(stages) < 2:
        return []
    before, after = (_by_uid(samples, x) for x in (stages[0], stages[-1]))
    shared = [uid for uid in before if uid in after][:SHOWN_SAMPLES]
    return [
        {
            "prompt": _readable(before[uid].prompt),
            "answer": _readable(before[uid].answer),
            "before": _completion(before[uid]),
            "after": _completion(after[uid]),
        }
        for uid in shared
    ]


def _by_uid(samples: Sequence[Sample], x: int) -> dict[str, Sample]:
    found: dict[str, Sample] = {}
    for sample in samples:
        if sample.x == x:
            found.setdefault(sample.uid, sample)
    return found


def _completion(sample: Sample) -> dict[str, Any]:
    return {
        "text": _readable(sample.completion),
        "score": words.number(sample.score, 2),
        "right": sample.score >= 1.0,
    }


def _readable(text: str) -> str:
    return words.visible(text.strip("\n"), SAMPLE_CHARACTERS)


def _commands(runs: Runs) -> list[str]:
    groups = groupby(runs, key=lambda run: run.order[:2])
    return [command(list(group)) for _, group in groups]


def _subjects(runs: Runs) -> list[tuple[str, list[tuple[str, str]]]]:
    """Per model its leaves, without the digests of single files."""
    found: dict[str, list[tuple[str, str]]] = {}
    for run in runs:
        subject = run.record.subject.model_dump(mode="json")
        found.setdefault(run.model, _leaves(leaves(subject)))
    return sorted(found.items())


def _leaves(values: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, _leaf(value)) for name, value in sorted(values.items())]


def _leaf(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _differing(objects: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Leaves of several objects; where they differ, every value that occurs."""
    flat = [leaves(one) for one in objects]
    names = sorted({name for one in flat for name in one})
    rows = []
    for name in names:
        values = sorted({_leaf(one[name]) for one in flat if name in one})
        rows.append((name, " / ".join(values)))
    return rows


def _cell_row(run: Run) -> dict[str, Any]:
    record = run.record
    return {
        "name": run.name,
        "state": record.status.state,
        "rule": record.status.rule or "",
        "completions": f"{record.curve[-1].x:,}",
        "record_id": record.record_id[:12],
        "digest_root": record.digest_root[:12],
        "plan": record.plan_hash[:12],
    }


def write_page(runs: Runs, summary: Summary, path: str | Path) -> Path:
    """Render the page into ``path``; the folder must exist."""
    target = Path(path)
    target.write_text(render_page(runs, summary), encoding="utf-8", newline="\n")
    return target
