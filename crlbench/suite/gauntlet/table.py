"""The suite as a table of Markdown, from the cards: ``python -m crlbench.suite.gauntlet.table``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path

from crlbench.catalog.find import Catalog
from crlbench.contract.task_card import TaskCard
from crlbench.disk.files import write_bytes
from crlbench.errors import ValidationError

BEGIN, END = "<!-- table: crlbench.suite.gauntlet.table -->", "<!-- end of table -->"
COLUMNS = ("task", "tags", "levels", "floor", "what it asks")


def table(cards: Iterable[TaskCard]) -> str:
    """One line per task: name, tags, levels of all splits, floor of ID, summary."""
    lines = [COLUMNS, ["---"] * len(COLUMNS), *map(_line, cards)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _line(card: TaskCard) -> list[str]:
    levels = sorted({level for split in card.splits.values() for level in split.levels})
    source = " (external)" if card.source is not None else ""
    return [
        f"`{card.name}`{source}",
        ", ".join(tag for tag in card.tags if tag != "external"),
        ", ".join(map(str, levels)),
        f"{card.floor:.3f}",
        card.summary.removesuffix("."),
    ]


def cards(catalog: Catalog) -> list[TaskCard]:
    """The cards of all tasks that are frozen."""
    names = catalog.list("task")
    return [catalog.task_card(name) for name in names if catalog.rows_state(name) != "draft"]


def replace_table(text: str, new: str) -> str:
    """A page with its table replaced.

    Raises:
        ValidationError: the page does not hold the table's two marks once, in order.
    """
    pattern = re.escape(BEGIN) + ".*?" + re.escape(END)
    page, count = re.subn(pattern, lambda _: f"{BEGIN}\n{new}{END}", text, flags=re.DOTALL)
    if count != 1:
        raise ValidationError(
            f"the page holds {count} tables; it needs each of the lines '{BEGIN}' and '{END}' "
            "once, in this order."
        )
    return page


def main() -> None:
    """Print the table, or write it into a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", metavar="F.md", type=Path, help="page that holds the table")
    page = parser.parse_args().write
    new = table(cards(Catalog()))
    if page is None:
        print(new, end="")
    else:
        try:
            write_bytes(page, replace_table(page.read_text(encoding="utf-8"), new).encode())
        except ValidationError as error:
            parser.exit(error.exit_code, f"{page}: {error}\n")


if __name__ == "__main__":
    main()
