"""From what a study asks to the runs it needs: boards, recipes, plans, and what is compared.

Every arm is a plan like those of ``evaluate``: the same folders, so that what ran already is
not run again, and the same arm in two comparisons runs once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from crlbench.algo import recipes
from crlbench.algo.flip import changes, flipped, plain
from crlbench.algo.recipe import Recipe
from crlbench.catalog.find import Catalog
from crlbench.commands import study_file as asked
from crlbench.commands.running import Chosen, choose, plan_of
from crlbench.commands.settings import Settings
from crlbench.commands.star import star
from crlbench.commands.study_file import changed
from crlbench.contract.conditions import Conditions, diff
from crlbench.contract.model_card import ModelCard
from crlbench.contract.study import Arm, Change, Comparison, Study
from crlbench.doctor.preflight import check_board
from crlbench.errors import UsageError, unknown_name
from crlbench.run.archive import Opened
from crlbench.run.board import Request, make_board
from crlbench.run.plan import Board, Plan

STUDIES = "ablations"
"""Folder of all studies, below the folder of all runs."""
_NO_SETTING = asked.Setting(name="as the track says")


@dataclass(frozen=True)
class Design:
    """A study with everything that it needs looked up and checked."""

    study: Study
    folder: Path
    """Where the study is written."""
    plans: list[Plan]
    """Each once, in the order of the study."""
    cards: list[ModelCard]
    reasons: dict[str, list[str]]
    """Why boards of base arms are open, by fingerprint."""
    board: Board
    """The first; all have its tasks."""


def design(
    wanted: asked.StudyFile,
    cards: Mapping[str, ModelCard],
    opened: Opened,
    conditions: Mapping[str, str],
    settings: Settings,
) -> Design:
    """All plans and comparisons of a study.

    Args:
        wanted: What to compare.
        cards: The models by the names given.
        opened: The conditions to start from, the tasks, and where tasks and recipes are.
        conditions: Conditions changed for everything, after those of the study.
        settings: The seeds, device and folder of every plan.

    Raises:
        UsageError: an unknown name, an impossible combination, an arm that is there twice.
    """
    return _Builder(wanted, cards, opened, conditions, settings).build()


@dataclass
class _Builder:
    wanted: asked.StudyFile
    cards: Mapping[str, ModelCard]
    opened: Opened
    conditions: Mapping[str, str]
    settings: Settings
    boards: dict[tuple[tuple[str, str], ...], tuple[Board, list[str], list[str]]] = field(
        default_factory=dict
    )
    known: dict[Recipe, Chosen] = field(default_factory=dict)
    """Recipes of the study by what they are, whatever they are called."""
    plans: dict[str, Plan] = field(default_factory=dict)
    """By folder."""
    reasons: dict[str, list[str]] = field(default_factory=dict)

    @property
    def catalog(self) -> Catalog:
        return self.opened.catalog

    def build(self) -> Design:
        self._name_recipes()
        comparisons = [
            comparison
            for one in self.wanted.comparisons
            for setting in self._settings_of(one)
            for model in self._models_of(one)
            for comparison in self._compared(one, setting, model)
        ]
        if not comparisons:
            raise UsageError("nothing is left to compare. Widen --only or --model.")
        study = Study(
            title=self.wanted.title,
            about=self.wanted.about.strip(),
            track=self.opened.track.id,
            margin=self.wanted.margin,
            comparisons=comparisons,
        ).identified()
        folder = Path(self.settings.out) / STUDIES / study.id
        cards = [*self.cards.values()]
        board = next(iter(self.boards.values()))[0]
        return Design(study, folder, [*self.plans.values()], cards, self.reasons, board)

    def _name_recipes(self) -> None:
        """Learn the named recipes first, so that a flip that makes one shares its runs."""
        for one in self.wanted.comparisons:
            for name in (one.base, *one.versus):
                chosen = choose(name, self.catalog)
                self.known.setdefault(_nameless(chosen.recipe), chosen)

    def _settings_of(self, one: asked.Comparison) -> list[asked.Setting]:
        if not self.wanted.settings:
            return [_NO_SETTING]
        return [s for s in self.wanted.settings if s.name in one.settings or not one.settings]

    def _models_of(self, one: asked.Comparison) -> list[str]:
        for name in one.models:
            if name not in self.wanted.models:
                raise unknown_name("model of the study", name, self.wanted.models)
        return [name for name in self.cards if name in one.models or not one.models]

    def _board(
        self, more: Mapping[str, str], setting: asked.Setting
    ) -> tuple[Board, list[str], list[str]]:
        """The board of a setting with further conditions changed.

        What a person changes by ``--set`` wins over the study, but a point of a grid is where
        the grid says.
        """
        request = changed(self.wanted.conditions) | changed(setting.set) | {**self.conditions}
        request |= {**more}
        key = tuple(sorted(request.items()))
        if key not in self.boards:
            opened = self.opened
            whole = Request(request, opened.tasks or None, replaced=opened.replaced)
            found = make_board(self.catalog, opened.track, whole)
            check_board(*found[:2], self.catalog)
            self.boards[key] = found
        return self.boards[key]

    def _compared(
        self, one: asked.Comparison, setting: asked.Setting, model: str
    ) -> Iterator[Comparison]:
        """The comparison of arms by their recipe, and that of a grid, if there are such arms."""
        board, _, reasons = self._board({}, setting)
        self.reasons[board.fingerprint] = reasons
        recipe = choose(one.base, self.catalog).recipe
        base = self._arm("base", recipe.name, recipe, {}, setting, model, recipe, board)
        conditional = [text for text in one.flips if _flips_condition(text)]
        parts = [text for text in one.flips if text not in conditional]
        by_flip = {o.name.removeprefix(f"{recipe.name}+"): o
                   for o in (flipped(recipe, text) for text in parts)}
        by_name = {name: choose(name, self.catalog).recipe for name in one.versus}
        given = [*(flipped(recipe, text).name for text in parts), *conditional, *one.versus]
        if len(set(given)) < len(given):
            twice = next(name for name in given if given.count(name) > 1)
            raise UsageError(f"comparison '{one.name}': {twice} is given twice.")
        flips, versus = (
            [self._arm(kind, label, other, {}, setting, model, recipe, board)
             for label, other in named.items()]
            for kind, named in (("flip", by_flip), ("versus", by_name))
        )
        flips += [
            self._arm("condition", text, recipe, dict([_setting(text)]), setting, model, recipe,
                      board)
            for text in conditional
        ]
        points = star(recipe, board.conditions) if one.grid == "star" else one.grid
        grid = [self._point(point, setting, model, recipe, board) for point in points]
        if not (flips or versus or grid):
            raise UsageError(
                f"comparison '{one.name}' has nothing to compare {one.base} with: give at least "
                "one --flip, --versus or --grid."
            )
        for arms, is_grid in (([*flips, *versus], False), (grid, True)):
            if arms:
                _refuse_twins(one.name, base, arms)
                both = is_grid and bool(flips or versus)
                yield Comparison(
                    name=f"{one.name}, sensitivity" if both else one.name,
                    note=one.note,
                    setting="" if setting is _NO_SETTING else _told(setting),
                    model=self.cards[model].slug,
                    base=base,
                    arms=arms,
                    tasks=list(self._board({}, setting)[1]),
                    seeds=self.settings.seeds,
                    grid=is_grid,
                )

    def _point(
        self,
        point: asked.GridArm,
        setting: asked.Setting,
        model: str,
        base: Recipe,
        board: Board,
    ) -> Arm:
        if not (point.set or point.flip):
            raise UsageError(f"grid variant '{point.name}' changes nothing. Give it set or flip.")
        recipe = flipped(base, point.flip) if point.flip else base
        kind = "condition" if point.set else "flip"
        return self._arm(kind, point.name, recipe, changed(point.set), setting, model, base, board)

    def _arm(
        self,
        kind: str,
        label: str,
        recipe: Recipe,
        more: Mapping[str, str],
        setting: asked.Setting,
        model: str,
        base: Recipe,
        base_board: Board,
    ) -> Arm:
        """An arm and, once, its plan."""
        chosen = self._shared(recipe)
        board, tasks, _ = self._board(more, setting)
        card = self.cards[model]
        plan = plan_of(board, (model, card), chosen, tasks, self.settings, self.catalog)
        self.plans.setdefault(str(plan.folder), plan)
        if more and board.fingerprint == base_board.fingerprint:
            raise UsageError(f"variant '{label}' changes nothing: the base has these conditions.")
        # The depth of a study's folder is fixed, so the path does not depend on its name.
        home = Path(self.settings.out) / STUDIES / "id"
        return Arm(
            label=label,
            kind=kind,
            changes=_changes(base, recipe, base_board, board),
            run=Path(os.path.relpath(plan.folder, home)).as_posix(),
            recipe=chosen.name,
            fingerprint=board.fingerprint,
        )

    def _shared(self, recipe: Recipe) -> Chosen:
        """The first recipe of the study that is the same but for its name."""
        return self.known.setdefault(_nameless(recipe), Chosen(recipe, self._file(recipe)))

    def _file(self, recipe: Recipe) -> Path | None:
        """The person's own file behind a derived recipe: its base's, or that of its new part."""
        files = recipes.defining_files(recipe)
        if base := recipes.python_file(recipe.name, self.catalog.extra):
            files.add(base)
        if len(files) > 1:
            names = ", ".join(map(str, sorted(files)))
            raise UsageError(f"{recipe.name} has parts of several files ({names}): use one file.")
        return files.pop() if files else None


def _flips_condition(text: str) -> bool:
    """Whether a flip names a condition (``data.reward=process``) and no axis of a recipe."""
    return text.partition(".")[0].strip() in Conditions.model_fields


def _setting(text: str) -> tuple[str, str]:
    name, _, value = (piece.strip() for piece in text.partition("="))
    return name, value


def _nameless(recipe: Recipe) -> Recipe:
    return replace(recipe, name="any")


def _told(setting: asked.Setting) -> str:
    """``easy (data.levels = [1])``."""
    inner = ", ".join(f"{name} = {value}" for name, value in changed(setting.set).items())
    return f"{setting.name} ({inner})" if inner else setting.name


def _changes(base: Recipe, recipe: Recipe, base_board: Board, board: Board) -> list[Change]:
    """What an arm has that its base has not: axes first, then conditions."""
    found = changes(base, recipe)
    before, after = (b.conditions.values() for b in (base_board, board))
    found += [(name, plain(a), plain(b)) for name, (a, b) in diff(before, after).items()]
    return [Change(field=name, before=a, after=b) for name, a, b in found]


def _refuse_twins(name: str, base: Arm, arms: list[Arm]) -> None:
    """Two arms with the same runs would be one arm counted twice."""
    seen = {base.run: base.label}
    for arm in arms:
        if arm.run in seen:
            raise UsageError(
                f"comparison '{name}': {arm.label} is the same as {seen[arm.run]}. Leave one out."
            )
        seen[arm.run] = arm.label
