"""What was known before on the page: E = H + L_known + L_new, Λ of new items, pass@k."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from crlbench.base import wording
from crlbench.pages.bars import PartedBar, parted_bars
from crlbench.stats.novelty import LEAST_NEW, STRICT_DRAWS, STRICT_GAP, Novelty
from crlbench.stats.pass_at_k import PassAtK
from crlbench.verdict.entry import Entry
from crlbench.verdict.entry_novelty import EntryNovelty


def novelty(entry: Entry) -> dict[str, Any] | None:
    """The panel of an entry; None where its runs do not say what was known."""
    known = entry.novelty
    if known is None or entry.efficiency is None:
        return None
    strict = any(part.strict_items is not None for part in known.tasks.values())
    heads = {task: entry.efficiency.tasks[task].H for task in known.tasks}
    bars = [
        PartedBar(task, heads[task], part.known, part.new) for task, part in known.tasks.items()
    ]
    if len(bars) > 1:
        bars.append(PartedBar("Mean", sum(heads.values()) / len(heads), known.known, known.new))
    return {
        "sentences": sentences(known),
        "figure": Markup(parted_bars(bars)),
        "lost": any(min(bar.known, bar.new) < 0 for bar in bars),
        "strict": strict,
        "rows": _rows(entry, known),
        "passes": [
            _pass_row(task, part) for task, parts in known.passes.items() for part in parts
        ],
        "ks": [f"k = {k}" for k in sorted(_ks(known))],
    }


def sentences(known: EntryNovelty) -> list[str]:
    """What the split says, and what it cannot."""
    found = []
    if known.known_share is not None:
        found.append(
            f"{wording.percent(known.known_share, 0)} of what was learned lies on items that the "
            "start model already answers correctly when it decodes greedily (L_known / L)."
        )
    if known.lam_new is not None:
        found.append(f"On the other items alone Λ is {wording.number(known.lam_new)} (Λ_new).")
    if known.saturated:
        counts = [f"{task} ({known.tasks[task].new_items})" for task in known.saturated]
        found.append(
            f"Saturated, with fewer than {LEAST_NEW} new items: {wording.listed(counts)}."
        )
    if known.second_share is not None:
        found.append(
            f"{wording.percent(known.second_share, 0)} of the items are wrong greedily and right "
            f"in two or more of {STRICT_DRAWS} draws of the start model: a second choice."
        )
    if unchecked := [name for name, part in known.tasks.items() if part.unchecked]:
        counts = [
            f"{name} ({known.tasks[name].strict_items} of {known.tasks[name].new_items})"
            for name in unchecked
        ]
        found.append(
            f"Λ_new may be of old knowledge: fewer than {LEAST_NEW} of the new items are no second "
            f"choice on {wording.listed(counts)}."
        )
    if known.flagged:
        found.append(
            f"Flagged: without second choices Λ_new differs by more than "
            f"{wording.number(STRICT_GAP, 1)} on {wording.listed(known.flagged)}."
        )
    return found


def _note(part: Novelty) -> str:
    if part.saturated:
        return "saturated"
    return "flagged" if part.flagged else "second choices" if part.unchecked else ""


def _rows(entry: Entry, known: EntryNovelty) -> list[dict[str, Any]]:
    rows = [
        {
            "task": task,
            "new": f"{part.new_items} of {part.items}",
            "note": _note(part),
            "values": [
                ("L_known", part.known),
                ("L_new", part.new),
                ("L_known / L", part.known_share),
                ("Λ", entry.efficiency.tasks[task].lam.value),
                ("Λ_new", part.lam_new),
            ],
            "strict": [("Strict Λ_new", part.lam_strict), ("Second choice", part.second_share)],
        }
        for task, part in known.tasks.items()
    ]
    if len(rows) > 1:
        values = [
            ("L_known", known.known),
            ("L_new", known.new),
            ("L_known / L", known.known_share),
            ("Λ", entry.lam.value),
            ("Λ_new", known.lam_new),
        ]
        strict = [("Strict Λ_new", known.lam_strict), ("Second choice", known.second_share)]
        rows.append(
            {"task": "All tasks", "new": "", "note": "", "values": values, "strict": strict}
        )
    return rows


def _ks(known: EntryNovelty) -> set[int]:
    return {k for parts in known.passes.values() for part in parts for k in part.start}


def _pass_row(task: str, part: PassAtK) -> dict[str, Any]:
    """pass@k of one split, start and end, by k."""
    end = part.end or {}
    return {
        "task": task,
        "split": part.split.upper(),
        "draws": part.draws,
        "pairs": [(k, part.start[k], end.get(k)) for k in part.start],
    }
