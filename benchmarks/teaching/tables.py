"""The study's page of results and its figures, from the records alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import numpy as np

from crlbench.base.wording import number
from crlbench.pages.dots import Dot, interval_plot
from teaching.design import DESIGN, Design
from teaching.estimates import learned, learned_new, passed
from teaching.exploratory import exploratory, span
from teaching.hypotheses import DRAWS, Records, Verdict, judge, latent

PAGE = "teach-or-elicit-results.md"
COMMAND = "python benchmarks/teach.py report"
SIGNS = {"holds": "■", "refuted": "▼", "undecided": "○", "not tested": "–"}


def write(records: Records, design: Design, left_out: tuple[int, ...], docs: Path) -> list[Path]:
    """The page in ``docs/studies`` and a figure of each hypothesis in ``docs/images``."""
    verdicts = judge(records, design)
    written = [docs / "studies" / PAGE]
    for folder in ("studies", "images"):
        (docs / folder).mkdir(parents=True, exist_ok=True)
    written[0].write_text("\n".join(_page(records, design, left_out, verdicts)) + "\n", "utf-8")
    for verdict in verdicts:
        if verdict.lines:
            written.append(docs / "images" / _figure(verdict))
            dots = [
                Dot(line.label.partition(":")[0], line.contrast.estimate, line.contrast.these())
                for line in verdict.lines
            ]
            written[-1].write_text(interval_plot(dots, verdict.claim), "utf-8")
    return written


def _figure(verdict: Verdict) -> str:
    return f"teach-{verdict.name.lower()}.svg"


def _page(
    records: Records, design: Design, left_out: tuple[int, ...], verdicts: list[Verdict]
) -> Iterator[str]:
    cells = sum(len(one.cells) for one in records.values())
    yield "# Does RL teach or elicit? The records"
    yield ""
    if design != DESIGN:
        yield "**A trial at another size than the study's. Its numbers say nothing.**"
        yield ""
    yield f"`{COMMAND}` writes this page from {cells} records of {len(records)} starts."
    yield "[teach-or-elicit.md](teach-or-elicit.md) says what was fixed before the first run, what"
    yield "every column is, and what the verdicts cannot show."
    if left_out:
        yield ""
        yield "Left out before they ran, for processor time: the moments at"
        yield f"{', '.join(map(str, left_out))} updates."
    yield ""
    yield "| | claim | verdict |"
    yield "|---|---|---|"
    for verdict in verdicts:
        yield f"| {verdict.name} | {verdict.claim} | {SIGNS[verdict.call]} {verdict.call} |"
    for verdict in verdicts:
        yield ""
        yield f"## {verdict.name}: {verdict.call}"
        yield ""
        yield verdict.claim + (f" {verdict.note}" if verdict.note else "")
        if not verdict.lines:
            continue
        yield ""
        yield f"![{verdict.claim}](../images/{_figure(verdict)})"
        yield ""
        yield "| contrast | estimate | these tasks, 95 % | similar tasks, 95 % | |"
        yield "|---|---|---|---|---|"
        for line in verdict.lines:
            found = line.contrast
            value = number(found.estimate, signed=True)
            ends = f"{span(found.these())} | {span(found.others())}"
            yield f"| {line.label} | {value} | {ends} | {SIGNS[line.call]} |"
    yield ""
    yield from exploratory(records, design)
    yield ""
    yield "## Every start"
    yield ""
    yield "Means over seeds. L and L_new are areas in u; pass is pass@64 on ID items."
    yield ""
    arms = " | ".join(f"L {arm}" for arm in design.arms)
    ends = "L_new real | L_new mode | greedy, end | pass, end | failed"
    yield f"| noise | updates | task | sampled | greedy | pass | {arms} | {ends} |"
    yield "|" + "---|" * (11 + len(design.arms))
    for start in sorted(records):
        for task in design.tasks:
            yield _row(records, design, start.noise, start.updates, task)


def _row(records: Records, design: Design, noise: float, updates: int, task: str) -> str:
    kept = next(r for s, r in records.items() if (s.noise, s.updates) == (noise, updates))
    start = kept.starts[task]
    cells = {arm: [kept.cells[task, arm, i] for i in range(design.seeds)] for arm in design.arms}
    greedy = float(start.greedy.mean())
    known = [start.draws.mean(), greedy, greedy + latent(start)]
    areas = [fmean(learned(start, cell).mean() for cell in cells[arm]) for arm in design.arms]
    new = [
        fmean(learned_new(start, cell).mean() for cell in cells[arm]) for arm in ("real", "mode")
    ]
    ends = [0.0 if c.greedy is None else c.greedy.mean() for c in cells["real"]]
    rises = [passed(start, cell, DRAWS, DRAWS).mean() for cell in cells["real"]]
    last = [fmean(ends), known[2] + float(np.mean(rises))]
    failed = sum(cell.state == "failed" for every in cells.values() for cell in every)
    figures = [number(float(v)) for v in (*known, *areas, *new, *last)]
    return f"| {noise} | {updates} | {task} | {' | '.join(figures)} | {failed} |"
