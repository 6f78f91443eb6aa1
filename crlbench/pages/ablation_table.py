"""A study on a terminal, as plain text and as Markdown: one row per arm."""

from __future__ import annotations

import textwrap

from rich import box
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from crlbench.base import wording
from crlbench.pages import words
from crlbench.verdict.ablation import Ablation, ArmSummary, ComparisonSummary

COLUMNS = ("Arm", "Λ", "ΔΛ [95 %]", "Verdict", "r", "More seeds")
LEFT = (0, 3)
"""Columns that stand left."""


def terminal_table(ablation: Ablation) -> Group:
    """A rich renderable: a table per comparison with its notes, then how to read them."""
    parts = []
    for comparison in ablation.comparisons:
        parts.append(_table(comparison))
        parts += [Padding(Text(line), (0, 1)) for line in _after(comparison)]
        parts.append(Text())
    parts.append(Padding(Text(legend(ablation), style="dim"), (0, 1)))
    return Group(*parts)


def plain_table(ablation: Ablation) -> str:
    """The same as plain text, for logs and pipes."""
    blocks = []
    for comparison in ablation.comparisons:
        rows = [COLUMNS, *_rows(comparison)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
        lines = [_title(comparison), wording.line(COLUMNS, widths, LEFT)]
        lines += ["-" * (sum(widths) + 2 * (len(widths) - 1))]
        lines += [wording.line(row, widths, LEFT) for row in rows[1:]]
        blocks.append("\n".join([*lines, *_after(comparison)]))
    return "\n\n".join([*blocks, textwrap.fill(legend(ablation), 88)]) + "\n"


def markdown_table(ablation: Ablation) -> str:
    """The same as Markdown, for documents."""
    blocks = []
    for comparison in ablation.comparisons:
        lines = [f"**{_cell(_title(comparison))}**", ""]
        lines.append(f"| {' | '.join(COLUMNS)} |")
        lines.append("|---|--:|--:|---|--:|--:|")
        lines += [f"| {' | '.join(map(_cell, row))} |" for row in _rows(comparison)]
        after = [_cell(line) for line in _after(comparison)]
        blocks.append("\n".join([*lines, *(["", "  \n".join(after)] if after else [])]))
    return "\n\n".join([*blocks, _cell(legend(ablation))]) + "\n"


def legend(ablation: Ablation) -> str:
    """What the columns and the verdicts mean."""
    margin = wording.number(ablation.margin, 2)
    arms = sum(ablation.verdicts.values())
    several = ""
    if arms > 1:
        chance = words.chance_of_a_false_verdict(arms)
        several = (
            f" Each verdict stands alone: were all {arms} changes without effect, the chance "
            f"that at least one is called better or worse would be about {chance:.0%}."
        )
    return (
        "Λ: share of the available head-room captured, averaged over the budget. ΔΛ: arm minus "
        "base on the same tasks, seeds and items. equivalent: the 90 % interval lies inside "
        f"±{margin}, so that whatever difference there is does not matter. better, worse: not "
        "equivalent, and the 95 % interval excludes 0. undecided: neither. r: correlation of the "
        f"paired seeds. More seeds: how many would likely settle an undecided verdict.{several}"
    )


def _table(comparison: ComparisonSummary) -> Table:
    table = Table(
        title=Text(_title(comparison), style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for name in COLUMNS:
        left = name in ("Arm", "Verdict")
        justify = "left" if left else "right"
        table.add_column(name, justify=justify, no_wrap=name != "Arm", overflow="fold")
    for row in _rows(comparison):
        table.add_row(*(Text(cell) for cell in row))
    return table


def _title(comparison: ComparisonSummary) -> str:
    parts = [comparison.model, *([comparison.setting] if comparison.setting else [])]
    seeds = sorted({len(found) for found in comparison.seeds.values()})
    counts = "–".join(map(str, seeds[:1] + seeds[1:][-1:])) or "0"
    tasks = ", ".join(comparison.seeds) or "no task yet"
    return wording.clean(
        f"{comparison.name}: {', '.join(parts)} ({tasks}; {counts} of {comparison.planned} seeds)"
    )


def _rows(comparison: ComparisonSummary) -> list[tuple[str, ...]]:
    base = comparison.base
    rows = [(wording.clean(f"{base.label} (base)"), wording.number(base.lam.value), "", "", "", "")]
    return rows + [_row(arm) for arm in comparison.arms]


def _row(arm: ArmSummary) -> tuple[str, ...]:
    effect = arm.effect
    correlation = None if effect is None else effect.correlation
    return (
        wording.clean(arm.label),
        wording.number(arm.lam.value),
        words.difference(effect),
        words.verdict(effect),
        wording.number(correlation, 2),
        words.more_seeds(effect),
    )


def _after(comparison: ComparisonSummary) -> list[str]:
    """Sensitivity, failures and notes."""
    lines = []
    found = comparison.sensitivity
    if found is not None:
        lines.append(
            f"Sensitivity S {wording.number(found.S)} {words.span(found.interval)} over "
            f"{wording.count(found.arms, 'arm')}; worst: {found.worst} "
            f"(E {wording.number(found.worst_area)}, base {wording.number(found.base)})."
        )
    for arm in (comparison.base, *comparison.arms):
        if arm.failed:
            lines.append(f"{arm.label}: failed, counted with u = 0 at most from there on: "
                         f"{'; '.join(arm.failed)}.")
    return [wording.clean(line) for line in [*lines, *comparison.notes]]


def _cell(content: str) -> str:
    """Text that Markdown must not read as its own signs or as HTML."""
    for sign, written in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|")):
        content = content.replace(sign, written)
    for sign in "*_`[]":
        content = content.replace(sign, f"\\{sign}")
    return content
