"""The table in ``docs/models.md``; ``python -m tests.models.entry_table`` writes it anew."""

from __future__ import annotations

from pathlib import Path

from crlbench.catalog.find import Catalog
from crlbench.contract.model_card import ModelCard

PAGE = Path(__file__).resolve().parents[2] / "docs" / "models.md"
FIRST, LAST = "<!-- python -m tests.models.entry_table -->\n", "<!-- end -->"


def table() -> str:
    """One row an entry, smallest first within a family."""
    cards = [Catalog().load_model(name) for name in Catalog().list("model")]
    hub = sorted(
        (card for card in cards if card.source.kind == "hub"),
        key=lambda card: (card.family, card.params_total, card.slug),
    )
    lines = [
        "| entry | weights | architecture | kind | parameters | precision | licence | commit |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *map(_row, hub)]) + "\n"


def _row(card: ModelCard) -> str:
    active = card.params_active != card.params_total
    cells = (
        f"`{card.slug}`",
        f"[{card.source.hf_id}](https://huggingface.co/{card.source.hf_id})",
        card.config["model_type"],
        card.kind,
        f"{card.params_total:,}" + (f" ({card.params_active:,} active)" if active else ""),
        card.dtype if card.quantisation == "none" else card.quantisation,
        f"[{card.licence}]({card.licence_url})" + (", gated" if card.gated else ""),
        card.revision[:8],
    )
    return f"| {' | '.join(cells)} |"


def written() -> str:
    """The table as the page has it."""
    return PAGE.read_text().partition(FIRST)[2].partition(LAST)[0]


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(FIRST)
    PAGE.write_text(before + FIRST + table() + LAST + rest.partition(LAST)[2])
