"""An entry in full, over all its tasks: what its own page and its model's page show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crlbench.pages import (
    page_arrival,
    page_axes,
    page_costs,
    page_failures,
    page_novelty,
    page_results,
    page_splits,
    page_stability,
    report,
    words,
)
from crlbench.pages.reproduce import command
from crlbench.site import techniques
from crlbench.site.badges import badge_snippet, badge_words
from crlbench.site.citing import cite_result
from crlbench.site.pages import Page, badge_path, entry_json_path, entry_path
from crlbench.site.runs import entry_facts, machine
from crlbench.site.samples import has_samples
from crlbench.site.source import StoredBoard
from crlbench.verdict.axes import AXIS_WORDS, Axis
from crlbench.verdict.entry import Entry
from crlbench.verdict.pairs import PairAxis

NEAREST = 2
"""Number of nearest entries that one is compared with."""


def entry_page(content: Mapping[str, Any]) -> Page:
    """The page of an entry, from its :func:`article`."""
    entry, stored = content["entry"], content["stored"]
    about = f"{entry.full_name} with {entry.recipe} on {stored.label}"
    return Page(
        path=entry_path(stored.id, entry.model, entry.recipe),
        template="entry.html.j2",
        title=about,
        about=f"{about}: sample efficiency, stability and generalization on every task, with "
        "intervals, failures, costs and the command that makes it again.",
        data=content,
        section="board",
        scripts=("static/digits.js", "static/recompute.js"),
        document=entry_json_path(stored.id, entry.model, entry.recipe),
    )


def article(
    stored: StoredBoard, entry: Entry, anchor: str, url: str = ""
) -> dict[str, Any]:
    """All that is shown of an entry.

    Args:
        anchor: what the ids of its parts begin with.
        url: of the site, with a slash at its end; empty where it is not known.
    """
    board = stored.board
    return Content(
        {
            **entry_facts(stored, entry),
            "standing": words.STANDINGS[entry.standing].capitalize(),
            "citation": cite_result(stored, entry, url),
            "badge_words": badge_words(stored, entry),
            "badge_path": badge_path(stored.id, entry.model, entry.recipe),
            "snippet": badge_snippet(stored, entry, url),
            "rivals": [_rival(stored, entry, other) for other in rivals(stored, entry)],
            "item": Content(
                {
                    "anchor": anchor,
                    "folds": True,
                    "lead": page_results.lead(entry),
                    "sentences": report.sentences(entry, board),
                    "cards": page_axes.cards(entry, board),
                },
                {
                    ("tiles",): lambda: {"tiles": page_results.tiles(entry, with_lam=False)},
                    RESULTS: lambda: page_results.results(entry),
                    NOVELTY: lambda: {"novelty": page_novelty.novelty(entry)},
                    REST: lambda: _rest(stored, entry),
                },
            ),
        },
        {OF_RECORDS: lambda: {name: panels_of_records(stored, entry)[name] for name in OF_RECORDS}},
    )


OF_RECORDS = ("machine", "samples")
"""What the article itself shows of :func:`panels_of_records`."""
RESULTS = ("curves", "lam_figure", "bar_figure", "lost")
"""What :func:`crlbench.pages.page_results.results` gives."""
NOVELTY = ("novelty",)
"""What :func:`crlbench.pages.page_novelty.novelty` gives."""
REST = (
    *("arrivals", "stability", "splits", "generalization", "transfer", "honesty", "placebo"),
    *("mode", "wrong", "failures", "costs"),
)
"""What the lower half of an article shows; it rests on the entry alone."""


def _rest(stored: StoredBoard, entry: Entry) -> dict[str, Any]:
    panels = panels_of_records(stored, entry)
    return {
        "arrivals": page_arrival.arrivals(entry),
        # Pages of tasks have every run.
        "stability": _without_runs(page_stability.stability(entry)),
        "splits": page_splits.split_panels(entry),
        "generalization": page_splits.generalization(entry),
        "transfer": page_splits.transfer_matrix(entry),
        "honesty": page_splits.honesty(entry),
        "placebo": page_axes.placebo(entry),
        "mode": page_axes.mode(entry),
        "wrong": page_axes.wrong(entry),
        "failures": panels["failures"],
        "costs": panels["costs"],
    }


class Content(dict[str, Any]):
    """What a page shows; some of it is made when the page asks for it."""

    def __init__(
        self,
        known: Mapping[str, Any],
        later: Mapping[tuple[str, ...], Callable[[], Mapping[str, Any]]],
    ) -> None:
        """
        Args:
            later: by the names of several values what makes them.
        """
        super().__init__(known)
        self._later = {name: make for names, make in later.items() for name in names}

    def __missing__(self, name: str) -> Any:
        self.update(self._later[name]())
        return self[name]


def panels_of_records(stored: StoredBoard, entry: Entry) -> dict[str, Any]:
    """What of an article is made of the records of all runs; only what JSON knows."""
    if (shelf := stored.shelves.get(entry.name)) is not None:
        return shelf.panels
    real = stored.arm(entry.name, "real")
    return {
        "again": command(stored.by_entry[entry.name]),
        "machine": machine(stored.by_entry[entry.name]),
        "samples": has_samples(stored.by_entry[entry.name]),
        "failures": page_failures.failures(entry, real),
        "costs": _without_runs(page_costs.costs(real)),
    }


def _without_runs(panel: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if panel is None else panel | {"runs": ()}


def rivals(stored: StoredBoard, entry: Entry) -> Sequence[Entry]:
    """The same model with the recipe that this one is measured against, then the nearest."""
    everyone = {(other.model, other.recipe): other for other in stored.board.entries}
    main = techniques.main_base([*everyone])
    recipes = sorted({recipe for _, recipe in everyone})
    base = None if main is None else techniques.base_of(entry.recipe, recipes, main)
    same_model = everyone.get((entry.model, base)) if base is not None else None
    return [*([same_model] if same_model is not None else []), *nearest(stored, entry)]


def nearest(stored: StoredBoard, entry: Entry) -> Sequence[Entry]:
    """The entries of the same recipe whose Λ is nearest, from above and from below in turn; other
    checkpoints of the same design are none."""
    lam = entry.axes["efficiency"].value
    if lam is None:
        return ()
    others = [
        (abs(other.axes["efficiency"].value - lam), other.name, other)
        for other in stored.entries(entry.recipe)
        if other is not entry
        and other.axes["efficiency"].value is not None
        and not _is_sibling(entry, other)
    ]
    return [other for _, _, other in sorted(others, key=lambda candidate: candidate[:2])[:NEAREST]]


def _is_sibling(entry: Entry, other: Entry) -> bool:
    """Whether two entries are checkpoints of one design, which is no rival of itself."""
    return entry.checkpoint is not None and entry.slug == other.slug


def _rival(stored: StoredBoard, entry: Entry, other: Entry) -> dict[str, Any]:
    """The verdict on every axis, as this entry minus the other."""
    pairs = stored.pairs.compare(other, entry).axes
    signs = stored.board.signs
    verdicts = [_verdict(signs[axis], axis, pair) for axis, pair in pairs.items()]
    return {"entry": other, "verdicts": verdicts}


def _verdict(sign: str, axis: Axis, pair: PairAxis) -> dict[str, str]:
    """One axis; without a verdict where one of the two may not bear one."""
    effect, more = pair.effect, words.more_seeds(pair.effect)
    preview = pair.call == "preview"
    call = "a preview, no verdict" if preview else words.verdict(effect)
    return {
        "sign": sign,
        "title": AXIS_WORDS[axis].capitalize(),
        "call": "no number" if effect is None else call,
        "tone": effect.call if effect is not None and not preview else "",
        "difference": words.difference(effect),
        "note": pair.reason or (f"{more} seeds more would settle it" if more else ""),
    }
