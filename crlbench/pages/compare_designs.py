"""Designs side by side: on a terminal, as plain text, as Markdown and as one HTML file."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from crlbench.base.wording import clean, number
from crlbench.pages.design_panel import design_panel
from crlbench.pages.design_table import axis_tables
from crlbench.pages.design_words import single_axes
from crlbench.pages.page_axes import correlation_sentences
from crlbench.pages.report import environment
from crlbench.pages.table import WRAP, Table, escape, terminal_sheet
from crlbench.verdict.compare_designs import DesignComparison

if TYPE_CHECKING:
    from rich.console import Group

TEMPLATE = "compare_designs.html.j2"


def terminal_designs(comparison: DesignComparison) -> Group:
    """A rich renderable: the tables of each axis, then how to read them."""
    return terminal_sheet(_tables(comparison), legend(comparison), fold=True)


def plain_designs(comparison: DesignComparison) -> str:
    """The same as plain text, for logs and pipes."""
    blocks = [table.to_text(loose=True) for table in _tables(comparison)]
    return "\n\n".join([*blocks, textwrap.fill(legend(comparison), WRAP)]) + "\n"


def markdown_designs(comparison: DesignComparison) -> str:
    """The same as Markdown, for documents."""
    first, *rest = _tables(comparison)
    head = [f"# {escape(first.title)}", *map(escape, first.notes[0])]
    blocks = [*head, *(table.to_markdown() for table in rest), escape(legend(comparison))]
    return "\n\n".join(blocks) + "\n"


def render_designs(comparison: DesignComparison) -> str:
    """The whole page as text; it needs no other file."""
    page = {
        "title": title(comparison),
        "board": board(comparison),
        "panels": [
            design_panel(ranking, comparison.signs[axis])
            for axis, ranking in comparison.axes.items()
        ],
        "alike": _alike(comparison),
        "legend": legend(comparison),
        "versions": ", ".join(comparison.crlbench),
    }
    return environment().get_template(TEMPLATE).render(page=page)


def title(comparison: DesignComparison) -> str:
    """How many designs with how many checkpoints."""
    rows = next(iter(comparison.axes.values())).designs
    assert rows is not None
    names = [row.display_name for row in rows.rows]
    return f"Designs of {clean(comparison.track)} v{comparison.track_version}: " + ", ".join(
        map(clean, names)
    )


def board(comparison: DesignComparison) -> str:
    """Where the checkpoints were made."""
    hardware = f", {comparison.hardware}" if comparison.hardware else ""
    return clean(
        f"{comparison.recipe} on {comparison.track} v{comparison.track_version}, "
        f"{comparison.division} division, {comparison.fingerprint}{hardware}"
    )


def legend(comparison: DesignComparison) -> str:
    """What columns and verdicts mean."""
    margin = number(comparison.margin, 2)
    return (
        "A design is the mean over its checkpoints; its 95 % interval is over checkpoints, seeds "
        "and items, and the one on other tasks over tasks as well. A checkpoint's interval is over "
        f"its seeds and items alone. equivalent: the 90 % interval lies inside ±{margin}; better, "
        "worse: not equivalent, and the 95 % interval excludes 0; undecided: neither. q: the "
        "smallest false-discovery rate at which a verdict stays."
    )


def _tables(comparison: DesignComparison) -> Iterator[Table]:
    alike = _alike(comparison)
    yield Table(title=title(comparison), notes=((board(comparison), *map(clean, alike)),))
    for axis, ranking in comparison.axes.items():
        yield from axis_tables(ranking, comparison.signs[axis])


def _alike(comparison: DesignComparison) -> list[str]:
    """How alike the axes order the designs, in sentences."""
    said = correlation_sentences(comparison.correlations, comparison.signs)
    about = single_axes(comparison.axes, comparison.signs)
    return [*said, about] if said and about else said
