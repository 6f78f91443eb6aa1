"""A study as tables, one row per arm: on a terminal, as plain text and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group

from crlbench.base import wording
from crlbench.pages import words
from crlbench.pages.table import (
    Row,
    Table,
    escape,
    headings,
    plain_sheet,
    terminal_sheet,
)
from crlbench.verdict.ablation import Ablation, ArmSummary, ComparisonSummary

LAMBDA = "Λ: how much of the possible improvement was made, averaged over training."
LAMBDA_NEW = (
    "Λ_new: how much of the possible improvement was made, averaged over training, on the items "
    "that the start model answers wrongly when greedy."
)
LAMBDA_CHARGED = (
    "Λ_F: how much of the possible improvement was made, averaged over the FLOPs that all stages "
    "of a chain were charged."
)


def terminal_table(ablation: Ablation) -> Group:
    """A rich renderable: a table per comparison with its notes, then how to read them."""
    return terminal_sheet(_tables(ablation), legend(ablation), fold=True)


def plain_table(ablation: Ablation) -> str:
    """The same as plain text, for logs and pipes."""
    return plain_sheet(_tables(ablation), legend(ablation))


def markdown_table(ablation: Ablation) -> str:
    """The same as Markdown, for documents."""
    tables = [
        table.to_markdown("**{}**", escape_headings=False) for table in _tables(ablation)
    ]
    return "\n\n".join([*tables, escape(legend(ablation))]) + "\n"


def legend(ablation: Ablation) -> str:
    """What the columns and the verdicts mean."""
    margin = wording.number(ablation.margin, 2)
    meaning = LAMBDA_NEW if ablation.new else LAMBDA
    if ablation.charged:
        meaning = LAMBDA_CHARGED
    arms = sum(ablation.verdicts.values())
    several = ""
    if arms > 1:
        chance = words.chance_of_a_false_verdict(arms)
        several = (
            f" Each verdict stands alone: were all {arms} changes without effect, the chance "
            f"that at least one is called better or worse would be about {chance:.0%}."
        )
    return (
        f"{meaning} Δ{ablation.sign}: arm minus "
        "base on the same tasks, seeds and items. equivalent: the 90 % interval lies inside "
        f"±{margin}: any difference is too small to matter. better, worse: not "
        "equivalent, and the 95 % interval excludes 0. undecided: neither. r: correlation of the "
        f"paired seeds. More seeds: how many would likely settle an undecided verdict.{several}"
    )


def _tables(ablation: Ablation) -> Iterator[Table]:
    for comparison in ablation.comparisons:
        yield _table(comparison, ablation.sign)


def _table(comparison: ComparisonSummary, sign: str) -> Table:
    parts = [comparison.model, *([comparison.setting] if comparison.setting else [])]
    seeds = sorted({len(indices) for indices in comparison.seeds.values()})
    counts = "–".join(map(str, seeds[:1] + seeds[1:][-1:])) or "0"
    tasks = ", ".join(comparison.seeds) or "no task yet"
    title = (
        f"{comparison.name}: {', '.join(parts)} ({tasks}; {counts} of {comparison.planned} seeds)"
    )
    base = comparison.base
    first = (wording.clean(f"{base.label} (base)"), words.value(base.lam), "", "", "", "")
    rows = [Row(first), *(Row(_cells(arm)) for arm in comparison.arms)]
    notes = tuple(wording.clean(line) for line in [*_findings(comparison), *comparison.notes])
    columns = headings("Arm", sign, f"Δ{sign} [95 %]", "Verdict", "r", "More seeds", left=(0, 3))
    return Table(columns, rows, wording.clean(title), (notes,) if notes else ())


def _cells(arm: ArmSummary) -> tuple[str, ...]:
    effect = arm.effect
    correlation = None if effect is None else effect.correlation
    return (
        wording.clean(arm.label),
        words.value(arm.lam),
        words.difference(effect),
        words.verdict(effect),
        wording.number(correlation, 2),
        words.more_seeds(effect),
    )


def _findings(comparison: ComparisonSummary) -> Iterator[str]:
    """Sensitivity and failures."""
    sensitivity = comparison.sensitivity
    if sensitivity is not None:
        yield (
            f"Sensitivity S {words.measured(sensitivity.S, sensitivity.interval)} "
            f"{words.span(sensitivity.interval)} over {wording.count(sensitivity.arms, 'arm')}; "
            f"worst: {sensitivity.worst} (E {wording.number(sensitivity.worst_area)}, base "
            f"{wording.number(sensitivity.base)})."
        )
    for arm in (comparison.base, *comparison.arms):
        if arm.failed:
            failures = "; ".join(arm.failed)
            yield f"{arm.label}: failed, counted with u = 0 at most from there on: {failures}."
