"""The learning curves and the findings of README.md, from the committed results.

    python benchmarks/readme_figures.py            # write both
    python benchmarks/readme_figures.py --check    # compare; exit code 1 where one differs

The curves are docs/images/learning-curves.svg. The findings are the lines of README.md between two
comments.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean

from scipy.stats import spearmanr

from crlbench.base.wording import number
from crlbench.pages import svg
from crlbench.pages.curves import SeedCurve, mean_curve
from crlbench.pages.frame import budget_ticks, number_ticks, x_axis, y_axis
from crlbench.pages.svg import BOLD, Scale, color, element, figure, line, text
from crlbench.verdict.board import Board, summarise_board
from crlbench.verdict.pairs import paired_axes
from crlbench.verdict.runs import Run, Runs, load_runs

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "leaderboard" / "results" / "mini-543da47d0c99"
README = ROOT / "README.md"
PICTURE = ROOT / "docs" / "images" / "learning-curves.svg"
FIRST, LAST = "<!-- python benchmarks/readme_figures.py -->\n", "<!-- end -->"

PANEL_WIDTH, PANEL_HEIGHT = 400, 262
HEAD = 38
LABEL_GAP = 14

Line = list[tuple[float, float]]
"""Completions and accuracy at each point."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    options = parser.parse_args(arguments)
    runs = load_ppo_runs(RESULTS)
    return update({README: with_findings(README, runs), PICTURE: draw_curves(runs)}, options.check)


def update(contents: Mapping[Path, str], check: bool) -> int:
    """Write files, or name those that differ from what they should hold."""
    stale = [p for p, content in contents.items() if not p.exists() or read(p) != content]
    for path in stale:
        if check:
            print(f"{path}: differs from the results. Run: python benchmarks/readme_figures.py")
        else:
            path.write_text(contents[path], encoding="utf-8", newline="\n")
            print(f"{path}: written")
    return 1 if check and stale else 0


def read(path: Path) -> str:
    return path.read_bytes().decode("utf-8")


def load_ppo_runs(folder: Path) -> Runs:
    """The runs that rank models: recipe PPO, on one board."""
    runs = load_runs(folder, "used")
    return replace(runs, runs=tuple(run for run in runs if run.recipe == "ppo"))


# -- findings ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Findings:
    """The figures that the README states."""

    models: int
    tasks: int
    correlation: float
    """Spearman's rank correlation of Λ with the greedy score before training."""
    sampled: tuple[float, float]
    """Sampled score before and after training, mean over models and tasks."""
    greedy: tuple[float, float]
    pairs: int
    decided: int
    """Pairs with a verdict better or worse on Λ."""
    uncertain: int
    """Those among them with an interval over tasks that includes 0."""


def with_findings(page: Path, runs: Runs) -> str:
    """The page with its findings computed again.

    Raises:
        SystemExit: the page lacks the comments that the findings stand between.
    """
    before, opening, rest = read(page).partition(FIRST)
    _, closing, after = rest.partition(LAST)
    if not (opening and closing):
        raise SystemExit(f"{page}: needs the lines {FIRST.strip()} and {LAST}, each once")
    return before + FIRST + words(compute_findings(runs)) + LAST + after


def compute_findings(runs: Runs) -> Findings:
    real = [run for run in runs if run.record.arm == "real"]
    board = summarise_board(runs)
    efficiency = {entry.model: entry.axes["efficiency"].value for entry in board.entries}
    starts = mean_by_model(real, "id_greedy", end=False)
    pairs = len(board.entries) * (len(board.entries) - 1) // 2
    decided, uncertain = count_verdicts(board)
    return Findings(
        models=len(efficiency),
        tasks=len(board.tasks),
        correlation=spearmanr([starts[m] for m in efficiency], list(efficiency.values()))[0],
        sampled=start_and_end(real, "id"),
        greedy=start_and_end(real, "id_greedy"),
        pairs=pairs,
        decided=decided,
        uncertain=uncertain,
    )


def start_and_end(runs: Sequence[Run], split: str) -> tuple[float, float]:
    """Scores of a split before and after training, every model and task weighing the same."""
    start, end = (fmean(mean_by_model(runs, split, end).values()) for end in (False, True))
    return start, end


def mean_by_model(runs: Sequence[Run], split: str, end: bool) -> dict[str, float]:
    """Mean score of each model, over the means of its tasks."""
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        measured = run.record.splits[split]
        scores[run.model][run.record.task.name].append(measured.end if end else measured.start)
    return {model: fmean(map(fmean, tasks.values())) for model, tasks in scores.items()}


def count_verdicts(board: Board) -> tuple[int, int]:
    """Pairs with a decided verdict on Λ, and how many may turn around on other tasks."""
    pairs = [paired_axes(a, b)["efficiency"] for a, b in combinations(board.entries, 2)]
    decided = [pair for pair in pairs if pair.effect.verdict in ("better", "worse")]
    return len(decided), sum(pair.wider.low <= 0 <= pair.wider.high for pair in decided)


def words(found: Findings) -> str:
    """The findings as a Markdown list."""
    sampled, greedy = ("{:.3f} to {:.3f}".format(*pair) for pair in (found.sampled, found.greedy))
    return (
        "1. **The start predicts the ranking.** Greedy accuracy before training orders the\n"
        f"   {found.models} models by Λ: rank correlation {found.correlation:.2f}.\n"
        "2. **Training raises sampled accuracy, not greedy accuracy.** Sampled accuracy goes from\n"
        f"   {sampled}, greedy accuracy from {greedy}.\n"
        f"3. **The order may not hold on other tasks.** {found.decided} of {found.pairs} pairs of "
        "models differ in Λ, each pair\n"
        f"   tested alone on these {found.tasks} tasks. "
        f"For {found.uncertain} of the {found.decided}, the 95 % interval for similar tasks\n"
        "   that were not run includes 0.\n"
    )


# -- learning curves -----------------------------------------------------------------------------


def draw_curves(runs: Runs) -> str:
    """One panel a task, one line a model, as the text of an SVG file."""
    lines = compute_lines(runs)
    panels = sorted({task for task, _ in lines})
    models = sorted({model for _, model in lines})
    height = HEAD + PANEL_HEIGHT * math.ceil(len(panels) / 2)
    title = "Sampled accuracy during training with PPO: mean of the seeds of each model"
    paper = f"fill:{color('paper')}"
    parts = [element("rect", x=0, y=0, width=2 * PANEL_WIDTH, height=height, style=paper)]
    parts.append(text(12, 22, title, style=f"{BOLD};font-size:15px"))
    for place, task in enumerate(panels):
        x, y = place % 2 * PANEL_WIDTH, HEAD + place // 2 * PANEL_HEIGHT
        panel = draw_panel(task, [lines[task, model] for model in models], models)
        parts.append(element("g", *panel, transform=f"translate({x} {y})"))
    described = " ".join(
        f"{task}: " + ", ".join(f"{m} {number(lines[task, m][-1][1], 2)}" for m in models) + "."
        for task in panels
    )
    picture = figure(title, f"Ends. {described}", height, *parts, width=2 * PANEL_WIDTH)
    return picture + "\n"


def compute_lines(runs: Runs) -> dict[tuple[str, str], Line]:
    """The mean learning curve of each task and model.

    Raises:
        SystemExit: the seeds of one model were measured at different points.
    """
    seeds: dict[tuple[str, str], list[SeedCurve]] = defaultdict(list)
    for run in runs:
        record = run.record
        if record.arm == "real":
            x, y = zip(*((point.x, point.score) for point in record.curve), strict=True)
            curve = SeedCurve(record.seed.index, x, y, len(x))
            seeds[record.task.name, record.subject.slug].append(curve)
    lines = {key: mean_curve(curves) for key, curves in seeds.items()}
    uneven = [" on ".join(reversed(key)) for key, line in lines.items() if not line]
    if uneven:
        raise SystemExit(f"curves on different grids have no mean: {', '.join(uneven)}")
    return lines


def draw_panel(task: str, lines: Sequence[Line], models: Sequence[str]) -> list[str]:
    """The axes of a task, and a labelled line for each model."""
    left, right, upper, lower = 40, 270, 26, 204
    budget = lines[0][-1][0]
    x, y = Scale(0, budget, left, right), Scale(0, 1, lower, upper)
    parts = [
        text(left, 15, task, style=BOLD),
        y_axis(y, left, right, number_ticks(0, 1)),
        x_axis(x, lower, budget_ticks(budget), caption="completions"),
    ]
    ends = [y(points[-1][1]) for points in lines]
    labels = svg.spread(ends, LABEL_GAP, upper, lower)
    for index, (model, points) in enumerate(zip(models, lines, strict=True)):
        hue = svg.series_color(index)
        stroke = f"stroke:{hue};stroke-width:2;stroke-linejoin:round"
        # The next dash pattern tells lines of one colour apart.
        dash = svg.DASHES[index // len(svg.SERIES) % len(svg.DASHES)]
        stroke += f";stroke-dasharray:{dash or 'none'}"
        parts.append(svg.polyline([(x(a), y(b)) for a, b in points], stroke, model))
        parts.append(line(right, ends[index], right + 14, labels[index], f"stroke:{hue}"))
        label = model.removeprefix("tiny-")
        parts.append(text(right + 17, labels[index] + 4, label, style=f"fill:{hue};font-size:12px"))
    return parts


if __name__ == "__main__":
    sys.exit(main())
