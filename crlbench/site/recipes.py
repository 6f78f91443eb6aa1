"""The recipes board: which technique helps which model, and at which learning rate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from crlbench.base import wording
from crlbench.pages import words
from crlbench.pages.compare_words import SIGNS
from crlbench.site import techniques
from crlbench.site.effects import Drawing, Effects, drawings
from crlbench.site.families import Family, families
from crlbench.site.pages import Page, model_slug, recipes_path
from crlbench.site.source import Site, StoredBoard
from crlbench.verdict.ablation import FieldChange
from crlbench.verdict.axes import AXES, AXIS_WORDS, Axis, AxisScore
from crlbench.verdict.compare import score_on
from crlbench.verdict.entry import Entry
from crlbench.verdict.pairs import Call

FRONT = "recipes.html"
OUTCOMES: tuple[Call, ...] = ("better", "equivalent", "worse", "undecided", "preview")
"""Verdicts in the order of the counts."""
CONCLUSIONS = {
    "better": "Better than {base}, by {extent}",
    "equivalent": "Tied with {base}, within {extent}",
    "worse": "Behind {base}, by {extent}",
    "": "Mixed or undecided, by up to {extent}",
}
"""What is said of recipes by the verdict that all models share; the last of all others."""


@dataclass(frozen=True)
class Cell:
    """One recipe with one model, against its base."""

    entry: Entry
    base: Entry | None
    """None where the model has no result of the base."""
    effects: Effects
    """Empty without a base."""


@dataclass(frozen=True)
class Row:
    """One recipe with all models."""

    recipe: str
    changes: tuple[FieldChange, ...]
    cells: dict[str, Cell]
    """Cells by model."""

    def calls(self, axis: Axis) -> list[Call | None]:
        """Its verdicts, one for each model with a base."""
        return [cell.effects[axis].call for cell in self.cells.values() if cell.effects]

    def counts(self, axis: Axis) -> dict[Call, int]:
        return count_calls(self.calls(axis))


def count_calls(calls: Sequence[Call | None]) -> dict[Call, int]:
    """How often each verdict was given; those that nobody got are left out."""
    return {name: calls.count(name) for name in OUTCOMES if name in calls}


@dataclass(frozen=True)
class Group:
    """The recipes that are measured against one base."""

    base: str
    bases: dict[str, Entry]
    """Its entries by model."""
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Answer:
    """One axis in a few words."""

    axis: Axis
    sign: str
    title: str
    counts: dict[Call, int]
    helpful: tuple[tuple[str, str, str], ...]
    """Whole recipe, its base, and the models that it is better for; the most helpful first."""
    repairs: tuple[tuple[str, str, str], ...]
    """The same of recipes with a changed part, which are measured against what they change."""


@dataclass(frozen=True)
class RateCell:
    """A model and recipe at one learning rate."""

    scores: dict[Axis, AxisScore]
    """Scores over the tasks that it has at every rate."""
    effects: Effects
    """Effects against the rate of the board; empty for that rate itself."""
    bases: Effects
    """Effects against the base of the recipe at this rate; empty without one."""
    best: bool
    """Highest sample efficiency of its row, which was seen before it was named."""
    failed: int
    """Runs that ended by a failure rule or vanished, of these tasks."""
    runs: int


@dataclass(frozen=True)
class RateRow:
    """A model and recipe at several learning rates."""

    model: str
    recipe: str
    base: str | None
    """What the recipe is measured against; None for a base."""
    tasks: tuple[str, ...]
    cells: tuple[RateCell | None, ...]


@dataclass(frozen=True)
class Rates:
    """Learning rate by recipe."""

    rates: tuple[float, ...]
    home: float
    rows: tuple[RateRow, ...]
    answers: tuple[str, ...]
    """What every rate but the board's did."""
    absent: tuple[str, ...]
    """Recipes of these models that were run at the board's rate alone."""


@dataclass(frozen=True)
class Techniques:
    """Everything that the board says of one set of conditions."""

    stored: StoredBoard
    models: dict[str, str]
    """Display names by model."""
    slugs: dict[str, str]
    groups: tuple[Group, ...]
    answers: tuple[Answer, ...]
    verdicts: int
    """Number of verdicts on one axis."""
    chance: str
    """Chance of a false verdict among them if no model differed."""
    rates: Rates | None
    sentence: str
    """What the results say of whole recipes, in sentences; empty without a verdict on one."""


def pages(site: Site) -> Iterator[Page]:
    """The board of recipes, and a page for each model that has several."""
    boards = [techniques_of(family) for family in families(site)]
    visible = [one for one in boards if one.groups or one.rates]
    yield Page(
        path=FRONT,
        template="recipes.html.j2",
        title="Which recipe helps which model?",
        about="Reinforcement learning recipes measured against a base, model by model: effects "
        "on sample efficiency, stability and generalization with intervals and verdicts.",
        data={
            "boards": visible,
            "silent": [one.stored for one in boards if one not in visible],
            "signs": SIGNS,
            "axes": [(axis, AXIS_WORDS[axis].capitalize()) for axis in AXES],
        },
        section="recipes",
    )
    for one in visible:
        with_page = list_compared_models(one.stored)
        yield from (_model_page(one, model) for model in one.models if model in with_page)


def list_compared_models(stored: StoredBoard) -> set[str]:
    """The models of a board with a recipe and its base: each has a page."""
    entries = {(entry.model, entry.recipe): entry for entry in stored.board.entries}
    main = techniques.main_base([*entries])
    if main is None:
        return set()
    recipes = sorted({recipe for _, recipe in entries})
    bases = {recipe: techniques.base_of(recipe, recipes, main) for recipe in recipes}
    return {model for model, recipe in entries if (model, bases[recipe]) in entries}


def _model_page(one: Techniques, model: str) -> Page:
    name = one.models[model]
    where = one.stored.label
    return Page(
        path=recipes_path(one.stored.id, model),
        template="model_recipes.html.j2",
        title=f"{name}: what each recipe changes",
        about=f"Every recipe of {name} against its base on {where}: paired effects on three axes.",
        data={
            "board": one,
            "model": model,
            "name": name,
            "groups": _groups_of(one, model),
            "axes": AXES,
        },
        section="recipes",
    )


def _groups_of(one: Techniques, model: str) -> list[dict[str, Any]]:
    """The groups of one model that have something to show, with their figures."""
    panels = []
    for group in one.groups:
        base = group.bases.get(model)
        rows = [row for row in group.rows if model in row.cells and row.cells[model].effects]
        if base is not None and rows:
            by_recipe = [(row.recipe, row.cells[model].effects) for row in rows]
            signs = one.stored.board.signs
            figures: dict[Axis, Drawing] = drawings(by_recipe, signs)
            panels.append({"group": group, "base": base, "rows": rows, "drawings": figures})
    return panels


def techniques_of(family: Family) -> Techniques:
    """The recipes of one board, and of the same board at other learning rates."""
    stored = family.home
    entries = {(entry.model, entry.recipe): entry for entry in stored.board.entries}
    groups = tuple(_groups(stored, entries))
    rates = _rates(family)
    names = {model for group in groups for row in group.rows for model in row.cells}
    names |= {row.model for row in rates.rows} if rates else set()
    everyone = [e for one in family.by_rate.values() for e in one.board.entries]
    everyone.sort(key=attrgetter("model"))
    verdicts = sum(len(row.cells) for group in groups for row in group.rows)
    return Techniques(
        stored=stored,
        models={e.model: e.full_name for e in everyone if e.model in names},
        slugs={e.model: model_slug(e.model) for e in everyone},
        groups=groups,
        answers=tuple(_answer(axis, stored.board.signs[axis], groups) for axis in AXES)
        if groups else (),
        verdicts=verdicts,
        chance=f"{words.chance_of_a_false_verdict(verdicts):.0%}" if verdicts > 1 else "",
        rates=rates,
        sentence=_conclude(groups, rates),
    )


def _conclude(groups: Sequence[Group], rates: Rates | None) -> str:
    """Which whole recipes tie with the base, lead or trail on sample efficiency, and by how much;
    what another learning rate costs."""
    if not groups:
        return ""
    base = groups[0].base
    gaps: dict[str, dict[str, list[float]]] = {}
    for row in groups[0].rows:
        effects = [cell.effects["efficiency"] for cell in row.cells.values() if cell.effects]
        calls = {str(one.call) for one in effects if one.effect}
        if calls:
            call = calls.pop() if len(calls) == 1 else ""
            sizes = [abs(one.effect.value) for one in effects if one.effect]
            gaps.setdefault(call if call in CONCLUSIONS else "", {})[row.recipe] = sizes
    sentences = []
    for call, words_of_call in CONCLUSIONS.items():
        if found := gaps.get(call):
            every = [size for sizes in found.values() for size in sizes]
            one = call in ("equivalent", "")
            extent = wording.number(max(every)) if one else _between(every)
            what = words_of_call.format(base=base, extent=extent)
            sentences.append(f"{what}: {wording.listed([*found], 12)}.")
    return " ".join(filter(None, (*sentences, _rate_cost(rates))))


def _between(sizes: Sequence[float]) -> str:
    """``0.033 to 0.287``, the smallest and the largest."""
    return " to ".join(dict.fromkeys(map(wording.number, (min(sizes), max(sizes)))))


def _rate_cost(rates: Rates | None) -> str:
    """What the other learning rates cost where every verdict on them is a loss, in a sentence."""
    if rates is None:
        return ""
    effects = [
        cell.effects["efficiency"] for row in rates.rows for cell in row.cells
        if cell is not None and cell.effects
    ]
    losses = [-one.effect.value for one in effects if one.effect and one.call == "worse"]
    if len(losses) < 2 or any(one.call == "better" for one in effects):
        return ""
    others = " or ".join(techniques.rate_words(one) for one in rates.rates if one != rates.home)
    return (
        f"A learning rate of {others} instead of {techniques.rate_words(rates.home)} costs "
        f"{_between(losses)} in {len(losses)} of {len(effects)} cases."
    )


def _groups(stored: StoredBoard, entries: dict[tuple[str, str], Entry]) -> Iterator[Group]:
    main = techniques.main_base([*entries])
    if main is None:
        return
    recipes = sorted({recipe for _, recipe in entries})
    bases = {recipe: techniques.base_of(recipe, recipes, main) for recipe in recipes}
    order = sorted({base for base in bases.values() if base is not None})
    for base in sorted(order, key=lambda name: (name != main, name)):
        rows = [_row(stored, recipe, base, entries) for recipe in recipes if bases[recipe] == base]
        base_entries = {
            model: entry for (model, recipe), entry in entries.items() if recipe == base
        }
        yield Group(base, dict(sorted(base_entries.items())), tuple(rows))


def _row(stored: StoredBoard, recipe: str, base: str, entries: dict[tuple[str, str], Entry]) -> Row:
    cells = {}
    for (model, name), entry in sorted(entries.items()):
        if name == recipe:
            against = entries.get((model, base))
            by_axis = {} if against is None else stored.pairs.compare(against, entry).axes
            cells[model] = Cell(entry, against, by_axis)
    return Row(recipe, techniques.changes(_config(stored, base), _config(stored, recipe)), cells)


def _config(stored: StoredBoard, recipe: str) -> dict[str, Any]:
    """The configuration of a recipe; runs of one name have one, or would not be comparable."""
    return next(run.record.algo.config for run in stored.runs if run.recipe == recipe)


def _answer(axis: Axis, sign: str, groups: Sequence[Group]) -> Answer:
    calls = [name for group in groups[:1] for row in group.rows for name in row.calls(axis)]
    return Answer(
        axis=axis,
        sign=sign,
        title=AXIS_WORDS[axis].capitalize(),
        counts=count_calls(calls),
        helpful=_helpful(axis, groups[:1]),
        repairs=_helpful(axis, groups[1:]),
    )


def _helpful(axis: Axis, groups: Sequence[Group]) -> tuple[tuple[str, str, str], ...]:
    """Recipe, base and models of every better verdict; the most helpful recipe first."""
    helpful = []
    for base, row in ((group.base, row) for group in groups for row in group.rows):
        models = [
            cell.entry.full_name
            for cell in row.cells.values()
            if cell.effects and cell.effects[axis].call == "better"
        ]
        if models:
            helpful.append((-len(models), row.recipe, base, wording.listed(models)))
    return tuple((recipe, base, models) for _, recipe, base, models in sorted(helpful))


def _rates(family: Family) -> Rates | None:
    """Scores by learning rate, of what was run at two rates or more."""
    rates, names = tuple(family.by_rate), family.names
    main, recipes = techniques.main_base(names), sorted({recipe for _, recipe in names})
    rows = []
    for model, recipe in names:
        by_rate = family.entries(model, recipe)
        base = None if main is None else techniques.base_of(recipe, recipes, main)
        if (
            len(by_rate) > 1
            and (row := _rate_row(family, model, recipe, base, by_rate)) is not None
        ):
            rows.append(row)
    if not rows:
        return None
    pairs = {(row.model, row.recipe) for row in rows}
    models = {model for model, _ in pairs}
    absent = {recipe for model, recipe in names if model in models and (model, recipe) not in pairs}
    signs = family.home.board.signs
    answers = [_rate_answer(i, rates, family.rate, rows, signs) for i in range(len(rates))]
    sentences = tuple(filter(None, answers))
    return Rates(rates, family.rate, tuple(rows), sentences, tuple(sorted(absent)))


def _rate_answer(
    i: int,
    rates: Sequence[float],
    home: float,
    rows: Sequence[RateRow],
    signs: Mapping[Axis, str],
) -> str:
    """What a rate did to the recipes, and whether it changed their order; empty for the board's."""
    here = [(row, cell) for row in rows if (cell := row.cells[i]) is not None]
    if rates[i] == home or not here:
        return ""
    tally = _tallies([cell.effects for _, cell in here], signs)
    parts = [
        f"At {techniques.rate_words(rates[i])}, against the same recipe at "
        f"{techniques.rate_words(home)}: {tally}."
    ]
    if against := [(row.base, cell.bases) for row, cell in here if row.base and cell.bases]:
        names = wording.listed(sorted({base for base, _ in against}))
        tallies = _tallies([by_axis for _, by_axis in against], signs)
        parts.append(f"Against {names} at this rate: {tallies}.")
    several = len({row.model for row in rows}) > 1
    failures = sorted((-cell.failed, _recipe_label(row, several), cell.runs) for row, cell in here)
    if lines := [f"{name} {-minus} of {runs}" for minus, name, runs in failures if minus]:
        parts.append(f"Runs that failed: {', '.join(lines)}.")
    return " ".join(parts)


def _recipe_label(row: RateRow, several: bool) -> str:
    """The recipe; with its model where a board has several."""
    return f"{row.recipe} of {model_slug(row.model)}" if several else row.recipe


def _tallies(every: Sequence[Effects], signs: Mapping[Axis, str]) -> str:
    """``Λ 1 equivalent, 8 worse; Stab 9 equivalent; Gen 9 equivalent``."""
    parts = []
    for axis in AXES:
        numbers = count_calls([one[axis].call for one in every if one])
        if tally := ", ".join(f"{number} {call}" for call, number in numbers.items()):
            parts.append(f"{signs[axis]} {tally}")
    return "; ".join(parts) or "no number"


def common_tasks(by_rate: dict[float, Entry]) -> list[str]:
    """The tasks that a model and recipe have at every rate."""
    return sorted(set.intersection(*(set(entry.task_names) for entry in by_rate.values())))


def _rate_row(
    family: Family, model: str, recipe: str, base: str | None, by_rate: dict[float, Entry]
) -> RateRow | None:
    tasks, pairs = common_tasks(by_rate), family.home.pairs
    scores = {
        rate: {axis: score_on(entry, axis, tasks) for axis in AXES}
        for rate, entry in by_rate.items()
    }
    lams = {rate: by_axis["efficiency"].value for rate, by_axis in scores.items()}
    with_lam = {rate: lam for rate, lam in lams.items() if lam is not None}
    if len(with_lam) < 2:
        return None
    best = max(with_lam, key=lambda rate: (with_lam[rate], -rate))
    home, bases = by_rate.get(family.rate), family.entries(model, base) if base is not None else {}
    cells = []
    for rate in family.by_rate:
        entry = by_rate.get(rate)
        if entry is None:
            cells.append(None)
            continue
        against = None if home is None or rate == family.rate else home
        by_axis = {} if against is None else pairs.compare(against, entry, tasks).axes
        beside = pairs.compare(bases[rate], entry).axes if rate in bases else {}
        ends = [run.failed for task in tasks for run in entry.evidence.tasks[task].measures]
        cells.append(RateCell(scores[rate], by_axis, beside, rate == best, sum(ends), len(ends)))
    return RateRow(model, recipe, base, tuple(tasks), tuple(cells))
