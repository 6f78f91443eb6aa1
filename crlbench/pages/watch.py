"""The page of runs that go on: their states and curves, without any verdict."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

from crlbench.base.wording import count, number, one_line
from crlbench.pages.curves import LOWER, UPPER, Curve, SeedCurve, draw_panel, mean_curve
from crlbench.pages.frame import budget_ticks
from crlbench.pages.report import environment
from crlbench.pages.svg import DASHES, Scale, figure, series_color
from crlbench.verdict.under_way import FolderUnderWay, RunUnderWay

TEMPLATE = "watch.html.j2"
SCRIPT = "watch.js"


def render_watch(folders: Sequence[FolderUnderWay], fault: str = "") -> str:
    """The whole page as text.

    Args:
        folders: what :meth:`~crlbench.verdict.under_way.Watcher.look` found.
        fault: why nothing could be read; empty where everything was.
    """
    templates = environment()
    script = templates.get_template(SCRIPT).render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    heading = folders[0].name if len(folders) == 1 else count(len(folders), "run folder")
    status = "Nothing can be shown." if fault else status_of(folders)
    page = {
        "title": status,
        "heading": heading if folders else "Runs",
        "status": status,
        "fault": fault,
        "folders": [_folder(folder, len(folders) > 1) for folder in folders],
        "script": script,
        "script_digest": f"sha256-{digest}",
    }
    return templates.get_template(TEMPLATE).render(page=page)


def status_of(folders: Sequence[FolderUnderWay]) -> str:
    """How far some folders are, in one sentence."""
    total = sum(len(folder.runs) for folder in folders)
    ended = sum(folder.count("done", "failed") for folder in folders)
    parts = [f"{ended} of {count(total, 'run')} done"]
    if failed := sum(folder.count("failed") for folder in folders):
        parts.append(f"{failed} of them failed")
    if going := sum(folder.count("running") for folder in folders):
        parts.append(f"{going} running")
    left = [f.seconds_left for f in folders if f.seconds_left is not None]
    if left:
        minutes = round(max(left) / 60)
        parts.append(f"about {minutes} min left" if minutes else "less than a minute left")
    elif not any(folder.running for folder in folders):
        parts.append("no command is running them" if ended < total else "all have ended")
    return ", ".join(parts) + "."


def words_of(run: RunUnderWay) -> str:
    """The state of a run with its note."""
    return f"{run.state}: {one_line(run.note)}" if run.note else run.state


def score_of(run: RunUnderWay) -> str:
    """First and last score of a curve; empty without one."""
    if not run.curve:
        return ""
    first, last = number(run.curve[0][1]), number(run.curve[-1][1])
    return first if len(run.curve) == 1 else f"{first} → {last}"


def name_of(run: RunUnderWay) -> str:
    """A run beside others of its folder: ``addition seed-00``, with the arm of a control."""
    arm = "" if run.arm == "real" else f"{run.arm} "
    return f"{run.task} {arm}seed-{run.seed:02d}"


def _folder(folder: FolderUnderWay, several: bool) -> dict[str, Any]:
    """A section of the page; the head of the page has the status where it is the only one."""
    by_task: dict[str, list[RunUnderWay]] = {}
    for run in folder.runs:
        if run.curve:
            by_task.setdefault(run.task, []).append(run)
    return {
        "name": folder.name,
        "board": folder.board,
        "status": status_of([folder]) if several else "",
        "figures": [(task, _curves(task, runs, folder.budget)) for task, runs in by_task.items()],
        "runs": [
            {
                "name": name_of(run),
                "state": words_of(run),
                "percent": round(100 * run.share),
                "score": score_of(run),
            }
            for run in folder.runs
        ],
    }


def _curves(task: str, runs: Sequence[RunUnderWay], budget: int) -> str:
    """Scores over completions, every arm with a hue and a dash."""
    arms: dict[str, list[SeedCurve]] = {}
    for run in runs:
        xs, ys = zip(*run.curve, strict=True)
        arms.setdefault(run.arm, []).append(SeedCurve(run.seed, xs, ys, len(xs)))
    curves = [
        Curve(
            label=arm,
            seeds=seeds,
            mean=mean_curve(seeds),
            hue=series_color(index),
            dash=DASHES[index % len(DASHES)],
            key=arm if len(arms) > 1 else "",
        )
        for index, (arm, seeds) in enumerate(arms.items())
    ]
    x, y = Scale(0, budget, 34, 290), Scale(0, 1, LOWER, UPPER)
    panel = draw_panel(curves, x, y, budget_ticks(budget), "completions")
    words = ". ".join(f"{name_of(run)}: {score_of(run)}" for run in runs)
    return figure(f"Scores on {task} so far", f"{words}.", y.start + 42, *panel)
