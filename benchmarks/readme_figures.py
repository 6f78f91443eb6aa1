"""The learning curves and the findings of README.md, from the present board of `mini`.

    python benchmarks/readme_figures.py            # write both
    python benchmarks/readme_figures.py --check    # compare; exit code 1 where one differs

The curves are docs/images/learning-curves.svg. The findings are the lines of README.md between two
comments.
"""

from __future__ import annotations

import argparse
import math
import sys
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from board_pages import read as read_board
from board_runs import BOARD
from board_tables.tables import Stored, fastest, mean_score, passes

from crlbench.base.wording import number, percent
from crlbench.pages import svg
from crlbench.pages.curves import SeedCurve, mean_curve
from crlbench.pages.frame import budget_ticks, number_ticks, x_axis, y_axis
from crlbench.pages.svg import BOLD, Scale, color, element, figure, text
from crlbench.stats.novelty import known_share
from crlbench.verdict.run_curve import full_curve
from crlbench.verdict.runs import Run

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PICTURE = ROOT / "docs" / "images" / "learning-curves.svg"
FIRST, LAST = "<!-- python benchmarks/readme_figures.py -->\n", "<!-- end -->"

COLUMNS, PANEL_WIDTH, PANEL_HEIGHT = 4, 214, 206
HEAD, LEGEND = 38, 24
NAME_WIDTH = 104
"""Room of a design's name in the legend."""

Line = list[tuple[float, float]]
"""Completions and accuracy at each point."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    options = parser.parse_args(arguments)
    stored = load_board(BOARD)
    contents = {README: with_findings(README, stored), PICTURE: draw_curves(stored.runs)}
    return update(contents, options.check)


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


def load_board(folder: Path) -> Stored:
    """The stored entries of the board.

    Raises:
        SystemExit: there are none.
    """
    stored = read_board(folder)
    if stored is None:
        raise SystemExit(f"{folder}: no entry of the board is stored")
    return stored


# -- findings ------------------------------------------------------------------------------------


def with_findings(page: Path, stored: Stored) -> str:
    """The page with its findings computed again.

    Raises:
        SystemExit: the page lacks the comments that the findings stand between.
    """
    before, opening, rest = read(page).partition(FIRST)
    _, closing, after = rest.partition(LAST)
    if not (opening and closing):
        raise SystemExit(f"{page}: needs the lines {FIRST.strip()} and {LAST}, each once")
    return before + FIRST + words(stored) + LAST + after


def words(stored: Stored) -> str:
    """The findings as a Markdown list; means over designs and tasks."""
    parts = [p for e in stored.first if e.novelty for p in e.novelty.tasks.values()]
    known = known_share(parts)
    greedy = [number(stored.mean("id_greedy", end)) for end in (False, True)]
    arms = [
        number(mean_score(scores))
        for scores in (
            [e.lam for e in stored.first],
            [e.mode.lam for e in stored.first if e.mode],
            [e.placebo.lam for e in stored.first if e.placebo],
        )
    ]
    most, first, last = passes(stored.first, "id")[-1]
    fourth = textwrap.fill(
        f"4. **Who learns fastest**: {fastest(stored)}", 118, subsequent_indent="   ",
        break_on_hyphens=False,
    )  # fmt: skip
    return (
        f"1. **{percent(None if known is None else 1 - known, 0)} of what is learned is new.** It "
        "comes from problems that the start model answers\n"
        f"   wrongly when decoded greedily. Greedy accuracy goes from {greedy[0]} to {greedy[1]}. "
        "Some of these\n   problems it solved now and then when sampled "
        "([new is partly old](docs/findings.md#the-present-board-mini-version-2)).\n"
        f"2. **The labels teach it.** Λ is {arms[0]} with the task's rewards, {arms[1]} when the "
        "model is paid for its own\n"
        f"   likeliest answers, and {arms[2]} when rewards ignore the answer.\n"
        "3. **On the mean, no more problems come within reach.** At least one of "
        f"{most} samples is right for\n"
        f"   {number(first)} of the problems before training, and for {number(last)} after.\n"
        f"{fourth}\n"
    )


# -- learning curves -----------------------------------------------------------------------------


def draw_curves(runs: Sequence[Run]) -> str:
    """One panel a task, one line a design, as the text of an SVG file."""
    lines = compute_lines(runs)
    panels = sorted({task for task, _ in lines})
    models = sorted({model for _, model in lines})
    width = COLUMNS * PANEL_WIDTH
    per_row = width // NAME_WIDTH
    head = HEAD + LEGEND * math.ceil(len(models) / per_row)
    height = head + PANEL_HEIGHT * math.ceil(len(panels) / COLUMNS)
    title = "Sampled accuracy during training with PPO: mean of the seeds of each model"
    paper = f"fill:{color('paper')}"
    parts = [element("rect", x=0, y=0, width=width, height=height, style=paper)]
    parts.append(text(12, 22, title, style=f"{BOLD};font-size:15px"))
    for index, model in enumerate(models):
        x, y = 12 + index % per_row * NAME_WIDTH, HEAD + index // per_row * LEGEND
        parts.append(svg.polyline([(x, y + 6), (x + 18, y + 6)], stroke_of(index)))
        name = model.removeprefix("tiny2-")
        parts.append(text(x + 23, y + 10, name, style="font-size:12px"))
    for place, task in enumerate(panels):
        x, y = place % COLUMNS * PANEL_WIDTH, head + place // COLUMNS * PANEL_HEIGHT
        panel = draw_panel(task, [lines[task, model] for model in models], models)
        parts.append(element("g", *panel, transform=f"translate({x} {y})"))
    described = " ".join(
        f"{task}: " + ", ".join(f"{m} {number(lines[task, m][-1][1], 2)}" for m in models) + "."
        for task in panels
    )
    return figure(title, f"Ends. {described}", height, *parts, width=width) + "\n"


def compute_lines(runs: Sequence[Run]) -> dict[tuple[str, str], Line]:
    """The mean learning curve of each task and model; a run that failed counts as its score does.

    Raises:
        SystemExit: the seeds of one model were measured at different points.
    """
    seeds: dict[tuple[str, str], list[SeedCurve]] = defaultdict(list)
    for run in runs:
        record = run.record
        if record.arm == "real":
            whole = full_curve(run, run.curve_items())
            curve = SeedCurve(record.seed.index, whole.x, whole.score, whole.measured)
            seeds[record.task.name, record.subject.slug].append(curve)
    lines = {key: mean_curve(curves) for key, curves in seeds.items()}
    uneven = [" on ".join(reversed(key)) for key, line in lines.items() if not line]
    if uneven:
        raise SystemExit(f"curves on different grids have no mean: {', '.join(uneven)}")
    return lines


def draw_panel(task: str, lines: Sequence[Line], models: Sequence[str]) -> list[str]:
    """The axes of a task, and a line for each model."""
    left, right, upper, lower = 36, 186, 26, 150
    budget = lines[0][-1][0]
    x, y = Scale(0, budget, left, right), Scale(0, 1, lower, upper)
    return [
        text(left, 15, task, style=BOLD),
        y_axis(y, left, right, number_ticks(0, 1)),
        x_axis(x, lower, budget_ticks(budget), caption="completions"),
        *(
            svg.polyline([(x(a), y(b)) for a, b in points], stroke_of(index), model)
            for index, (model, points) in enumerate(zip(models, lines, strict=True))
        ),
    ]


def stroke_of(index: int) -> str:
    """The style of a design's line. The next dash pattern tells lines of one colour apart."""
    dash = svg.DASHES[index // len(svg.SERIES) % len(svg.DASHES)]
    hue = svg.series_color(index)
    return f"stroke:{hue};stroke-width:2;stroke-linejoin:round;stroke-dasharray:{dash or 'none'}"


if __name__ == "__main__":
    sys.exit(main())
