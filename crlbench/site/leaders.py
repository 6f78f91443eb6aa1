"""Who leads in each class of size, over all boards: the answer of the first screen.

A class without a ranked entry shows its best preview, and says that it is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from crlbench.base import wording
from crlbench.pages import words
from crlbench.site.costs import entry_cost
from crlbench.site.design_standings import UNCOMPARED, axis_designs, of_designs, uncompared
from crlbench.site.facets import brief_name, model_size
from crlbench.site.models import Model, models
from crlbench.site.reach import DECODED, MIN_ENTRIES, mean_scores
from crlbench.site.source import Site, StoredBoard
from crlbench.stats.correlations import spearman
from crlbench.stats.tiers import Standing
from crlbench.verdict.axes import AXES, AxisScore
from crlbench.verdict.declared_designs import declared_designs
from crlbench.verdict.design_ranking import AxisDesigns
from crlbench.verdict.design_rows import DesignRow
from crlbench.verdict.entry import Entry

CLASSES = (
    (3.05e6, "Up to 3M"),
    (0.1e9, "3M to 100M"),
    (0.55e9, "100M to 0.5B"),
    (1e9, "0.6B to 1B"),
    (float("inf"), "1B and more"),
)
"""Upper ends of the classes, in parameters; half a billion is a name for up to 0.55."""


class Member(NamedTuple):
    """A row of a class, on the board that speaks for it: an entry, or a design."""

    stored: StoredBoard
    entry: Entry
    """Of a design its first checkpoint that counts."""
    row: DesignRow | None = None

    @property
    def standing(self) -> Standing | None:
        """Where it stands on sample efficiency; None without a rank."""
        rankings = self.stored.board.rankings[self.entry.recipe]
        return rankings["efficiency"].ranking.standing(self.entry.name)

    @property
    def tier(self) -> int | None:
        """Its tier on sample efficiency; None without a rank."""
        return None if self.standing is None else self.standing.tier

    @property
    def score(self) -> AxisScore:
        """On sample efficiency."""
        return self.entry.axes["efficiency"] if self.row is None else self.row.score

    @property
    def name(self) -> str:
        """For people."""
        return self.entry.display_name if self.row is None else self.row.display_name

    @property
    def lam(self) -> float:
        return float("-inf") if self.score.value is None else self.score.value


def size_class(parameters: int) -> str:
    """The class of a number of parameters."""
    return next(label for most, label in CLASSES if parameters <= most)


def size_leaders(site: Site) -> list[dict[str, Any]]:
    """A card for each class that has a result, and one for the models of the catalogue that are
    larger than all of them, as plain text."""
    cards, last = list[dict[str, Any]](), 0
    for place, (_, label) in enumerate(CLASSES, start=1):
        if members := _members(site, label):
            cards.append({"label": label, **_leader(members)})
            last = place
    beyond = [label for _, label in CLASSES[last:]]
    waiting = [m for m in models(site).values() if m.size and size_class(m.size) in beyond]
    if waiting:
        least = beyond[0].partition(" to ")[0].removesuffix(" and more")
        label = f"{least} and more" if last else "All sizes"
        empty = {"entry": "", "ranked": False, "ahead": False}
        cards.append({"label": label, **empty, "waiting": _waiting(waiting)})
    return cards


def describe_carrying(site: Site) -> str:
    """Whether the order of families at one size holds at the next, in a sentence; empty where
    only one class has results."""
    by_class = [(label, _by_family(_members(site, label))) for _, label in CLASSES]
    (small, first), (large, second) = ([one for one in by_class if one[1]] + [("", {})] * 2)[:2]
    if not second:
        return ""
    common = sorted(first.keys() & second.keys())
    question = f"Does the order at {_lower(small)} hold at {_lower(large)}?"
    rho = None
    if len(common) >= MIN_ENTRIES:
        rho = spearman([first[name] for name in common], [second[name] for name in common])
    if rho is None:
        have = "family has" if len(common) == 1 else "families have"
        return (
            f"{question} Not known: {len(common) or 'no'} {have} results at both sizes, and a "
            f"comparison needs {MIN_ENTRIES}."
        )
    return f"{question} Rank correlation {wording.number(rho, 2)} over {len(common)} families."


def _lower(label: str) -> str:
    return label[:1].lower() + label[1:]


def _members(site: Site, label: str) -> list[Member]:
    """The rows of a class on the first board that has some, with that board's first recipe."""
    for stored in site.boards:
        if stored.is_open or stored.track == "unknown":
            continue
        members = [
            member
            for member in _rows(stored, stored.recipes[0])
            if size_class(model_size(stored.by_entry[member.entry.name][0].subject)) == label
        ]
        if members:
            return members
    return []


def _rows(stored: StoredBoard, recipe: str) -> Iterator[Member]:
    entries = {entry.name: entry for entry in stored.entries(recipe)}
    designs = axis_designs(stored.board, recipe, AXES[0])
    if designs is None:
        yield from (Member(stored, entry) for entry in entries.values())
        return
    for row in designs.rows:
        yield Member(stored, entries[row.first.entry], row)


def _by_family(members: Iterable[Member]) -> dict[str, float]:
    """The highest Λ of each family."""
    best: dict[str, float] = {}
    for member in members:
        family = member.entry.family
        best[family] = max(member.lam, best.get(family, float("-inf")))
    return best


def _leader(members: Sequence[Member]) -> dict[str, Any]:
    """The row of the best tier with the best estimate, or the best preview with most tasks."""
    ranked = [one for one in members if one.tier is not None]
    most = max(len(one.entry.task_names) for one in members)
    previews = [one for one in members if len(one.entry.task_names) == most]
    first = max(ranked or previews, key=lambda one: (-(one.tier or 0), one.lam))
    tied = [one for one in ranked if not _is_worse(one, first)]
    stored, entry, _ = first
    return {
        "entry": entry.name,
        "model": entry.model,
        "recipe": entry.recipe,
        "board": stored.id,
        "title": stored.label,
        "slug": stored.by_entry[entry.name][0].subject.slug,
        "name": first.name,
        "chip": _chip(first, len(tied), len(ranked), members),
        "ranked": bool(ranked),
        "ahead": bool(ranked) and len(tied) == 1,
        "score": f"{first.score.sign} {words.estimate(first.score)}".strip(),
        "lines": [*_unranked(ranked, previews), *_beyond(stored, entry), *_lines(first)],
        "waiting": "",
    }


def _is_worse(one: Member, first: Member) -> bool:
    """Whether a ranked member is shown to be worse than the first; a tier may hold both."""
    assert one.standing is not None and first.standing is not None
    return one.standing.model in first.standing.worse


def _unranked(ranked: Sequence[Member], previews: Sequence[Member]) -> Iterator[str]:
    """What a class without a rank shows."""
    if not ranked:
        of = "The only preview" if len(previews) == 1 else f"Highest of {len(previews)} previews"
        yield f"{of}: not a rank, and no choice between models."


def _chip(first: Member, tied: int, ranked: int, members: Sequence[Member]) -> str:
    if first.tier is None:
        return words.STANDINGS[first.entry.standing]
    designs = axis_designs(first.stored.board, first.entry.recipe, AXES[0])
    if designs is not None and uncompared(designs):
        return UNCOMPARED
    of = f"{ranked} ranked" if ranked < len(members) else str(ranked)
    if designs is not None and 1 < tied == ranked and _differ(designs, members):
        return f"highest of {of}, not clearly ahead"
    return f"tie of {tied} of {of}" if tied > 1 else f"first of {of}"


def _differ(designs: AxisDesigns, members: Sequence[Member]) -> bool:
    """Whether two rows of a class differ, each pair taken alone."""
    names = {one.row.name for one in members if one.row is not None}
    return any(
        {pair.first, pair.second} <= names and pair.call in ("better", "worse")
        for pair in designs.pairs
    )


def _beyond(stored: StoredBoard, entry: Entry) -> Iterator[str]:
    """Whether a lead says anything of designs; nothing on a board of protocol CRL-1."""
    designs = axis_designs(stored.board, entry.recipe, AXES[0])
    if designs is not None and stored.board.rankings[entry.recipe][AXES[0]].ranking.standings:
        yield of_designs(designs)
    declared = declared_designs(stored.board, entry.recipe)
    if declared is not None and declared.missing:
        yield f"Results so far: {declared.present} of {len(declared.designs)} designs."


def _lines(first: Member) -> Iterator[str]:
    """Scores before and after training, what they are over, and what they cost: of a design those
    of one checkpoint."""
    stored, entry, row = first
    brief = stored.brief(entry)
    ends = {name: mean_scores([brief], split) for name, split in DECODED.items()}
    parts = [
        f"{name} {' → '.join(wording.number(end, 2) for end in pair)}"
        for name, pair in ends.items()
        if pair is not None
    ]
    tasks = list(entry.task_names)
    over = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
    on = "On" if row is None or row.alone else f"Checkpoint {entry.checkpoint} on"
    yield f"{on} {over}, {wording.count(entry.n, 'seed')}: {', '.join(parts) or 'no score'}."
    yield from filter(None, [entry_cost(stored, entry)])


def _waiting(waiting: Sequence[Model]) -> str:
    smallest = sorted(waiting, key=lambda model: (model.size or 0, model.slug))
    names = wording.listed([brief_name(model.identity.display_name) for model in smallest], 3)
    return f"No result yet. Ready to run: {names}."
