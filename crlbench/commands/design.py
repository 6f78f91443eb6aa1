"""The runs that a study needs: boards, recipes, plans, and what is compared.

Every arm is a plan like those of ``evaluate``: the same folders, so that what ran already is
not run again, and the same arm in two comparisons runs once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from crlbench.algo import recipes
from crlbench.algo.flip import changes, plain
from crlbench.algo.recipe import BaseRecipe
from crlbench.catalog.find import Catalog
from crlbench.commands import study_file
from crlbench.commands.job import Chosen, choose, opening, plan_of
from crlbench.commands.settings import Settings
from crlbench.contract.conditions import Conditions, diff
from crlbench.contract.model_card import ModelCard
from crlbench.contract.study import Arm, Change, Comparison, Study
from crlbench.doctor.preflight import check_board
from crlbench.errors import UsageError, require_known
from crlbench.run.archive import Opened
from crlbench.run.board import Request, make_board
from crlbench.run.plan import Board, Plan

STUDIES = "ablations"
"""Folder of all studies, below the folder of all runs."""
_NO_SETTING = study_file.Setting(name="as the track says")


@dataclass(frozen=True)
class Design:
    """A study with everything that it needs looked up and checked."""

    study: Study
    folder: Path
    """The folder that the study is written to."""
    plans: list[Plan]
    """Each once, in the order of the study."""
    cards: list[ModelCard]
    reasons: dict[str, list[str]]
    """Why boards of base arms are open, by fingerprint."""
    board: Board
    """The first; all have its tasks."""


def design(
    request: study_file.StudyFile,
    cards: Mapping[str, ModelCard],
    opened: Opened,
    conditions: Mapping[str, str],
    settings: Settings,
) -> Design:
    """All plans and comparisons of a study.

    Args:
        request: What to compare.
        cards: The models by the names given.
        opened: The conditions to start from, the tasks, and where tasks and recipes are.
        conditions: Conditions changed for everything, after those of the study.
        settings: The seeds, device and folder of every plan.

    Raises:
        UsageError: an unknown name, an impossible combination, an arm that is there twice.
    """
    return _Builder(request, cards, opened, conditions, settings).build()


@dataclass
class _Builder:
    request: study_file.StudyFile
    cards: Mapping[str, ModelCard]
    opened: Opened
    conditions: Mapping[str, str]
    settings: Settings
    boards: dict[tuple[tuple[str, str], ...], tuple[Board, list[str], list[str]]] = field(
        default_factory=dict
    )
    known: dict[BaseRecipe, Chosen] = field(default_factory=dict)
    """Recipes of the study by what they are, whatever they are called."""
    plans: dict[str, Plan] = field(default_factory=dict)
    """The plans by their folders."""
    reasons: dict[str, list[str]] = field(default_factory=dict)

    @property
    def catalog(self) -> Catalog:
        return self.opened.catalog

    def build(self) -> Design:
        self._name_recipes()
        comparisons = [
            comparison
            for one in self.request.comparisons
            for setting in self._settings_of(one)
            for model in self._models_of(one)
            for comparison in self._compare(one, setting, model)
        ]
        if not comparisons:
            raise UsageError("nothing is left to compare. Widen --only or --model.")
        study = Study(
            title=self.request.title,
            about=self.request.about.strip(),
            track=self.opened.track.id,
            margin=self.request.margin,
            comparisons=comparisons,
        ).identified()
        folder = Path(self.settings.out) / STUDIES / study.id
        cards = [*self.cards.values()]
        board = next(iter(self.boards.values()))[0]
        return Design(study, folder, [*self.plans.values()], cards, self.reasons, board)

    def _name_recipes(self) -> None:
        """Learn the named recipes first, so that a flip that makes one shares its runs."""
        for one in self.request.comparisons:
            for name in (one.base, *one.versus):
                chosen = choose(name, self.catalog)
                self.known.setdefault(_nameless(chosen.recipe), chosen)

    def _settings_of(self, one: study_file.Comparison) -> list[study_file.Setting]:
        if not self.request.settings:
            return [_NO_SETTING]
        return [s for s in self.request.settings if s.name in one.settings or not one.settings]

    def _models_of(self, one: study_file.Comparison) -> list[str]:
        for name in one.models:
            require_known("model of the study", name, self.request.models)
        return [name for name in self.cards if name in one.models or not one.models]

    def _board(
        self, more: Mapping[str, str], setting: study_file.Setting
    ) -> tuple[Board, list[str], list[str]]:
        """The board of a setting with further conditions changed.

        What a person changes by ``--set`` wins over the study, but a point of a grid is where
        the grid says.
        """
        request = {
            **study_file.changed(self.request.conditions),
            **study_file.changed(setting.set),
            **self.conditions,
            **more,
        }
        key = tuple(sorted(request.items()))
        if key not in self.boards:
            start = self.opened
            whole = Request(request, start.tasks or None, replaced=start.replaced)
            board, tasks, reasons = make_board(self.catalog, start.track, whole)
            check_board(board, tasks, self.catalog)
            self.boards[key] = board, tasks, reasons
        return self.boards[key]

    def _compare(
        self, one: study_file.Comparison, setting: study_file.Setting, model: str
    ) -> Iterator[Comparison]:
        """The comparison of arms by their recipe, and that of a grid, if there are such arms."""
        board, _, reasons = self._board({}, setting)
        self.reasons[board.fingerprint] = [*reasons]
        recipe = choose(one.base, self.catalog).recipe
        arm = partial(self._arm, setting, model, recipe, board)
        base = arm("base", recipe.name, recipe)
        conditional = [text for text in one.flips if _flips_condition(text)]
        folders = self.catalog.extra
        parts = [
            recipes.flip(recipe, text, folders=folders)
            for text in one.flips
            if text not in conditional
        ]
        others = [(name, choose(name, self.catalog).recipe) for name in one.versus]
        labels = [*(other.name for other in parts), *conditional, *one.versus]
        if len(set(labels)) < len(labels):
            twice = next(name for name in labels if labels.count(name) > 1)
            raise UsageError(f"comparison '{one.name}': {twice} is given twice.")
        flips = [arm("flip", other.name.removeprefix(f"{recipe.name}+"), other) for other in parts]
        versus = [arm("versus", name, other) for name, other in others]
        flips += [arm("condition", text, recipe, dict([_setting(text)])) for text in conditional]
        is_star = one.grid == "star"
        points = [*study_file.star(recipe, board.conditions)] if is_star else one.grid
        grid = [_point(arm, point, recipe) for point in points]
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
                    setting="" if setting is _NO_SETTING else _describe(setting),
                    model=self.cards[model].slug,
                    base=base,
                    arms=arms,
                    tasks=list(self._board({}, setting)[1]),
                    seeds=self.settings.seeds,
                    grid=is_grid,
                )

    def _arm(
        self,
        setting: study_file.Setting,
        model: str,
        base: BaseRecipe,
        base_board: Board,
        kind: str,
        label: str,
        recipe: BaseRecipe,
        conditions: Mapping[str, str] | None = None,
    ) -> Arm:
        """An arm and, once, its plan; ``conditions`` are those that it alone changes."""
        chosen = self._shared(recipe)
        board, tasks, _ = self._board(conditions or {}, setting)
        card = self.cards[model]
        plan = plan_of(board, (model, card), chosen, tasks, self.settings, self.catalog)
        said = self.reasons.setdefault(board.fingerprint, [])
        opened = opening(chosen, self.settings.data is not None)
        said += [reason for reason in opened if reason not in said]
        self.plans.setdefault(str(plan.folder), plan)
        if conditions and board.fingerprint == base_board.fingerprint:
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

    def _shared(self, recipe: BaseRecipe) -> Chosen:
        """The first recipe of the study that is the same but for its name."""
        return self.known.setdefault(_nameless(recipe), Chosen(recipe, self._file(recipe)))

    def _file(self, recipe: BaseRecipe) -> Path | None:
        """The person's own file behind a derived recipe: its base's, or that of its new part."""
        files = recipes.defining_files(recipe)
        if base := recipes.python_file(recipe.name, self.catalog.extra):
            files.add(base)
        if len(files) > 1:
            names = ", ".join(map(str, sorted(files)))
            raise UsageError(f"{recipe.name} has parts of several files ({names}): use one file.")
        return files.pop() if files else None


def _point(arm: Callable[..., Arm], point: study_file.GridArm, base: BaseRecipe) -> Arm:
    if not (point.set or point.flip):
        raise UsageError(f"grid variant '{point.name}' changes nothing. Give it set or flip.")
    recipe = recipes.flip(base, point.flip) if point.flip else base
    kind = "condition" if point.set else "flip"
    return arm(kind, point.name, recipe, study_file.changed(point.set))


def _flips_condition(text: str) -> bool:
    """Whether a flip names a condition (``data.reward=process``) and no axis of a recipe."""
    return text.partition(".")[0].strip() in Conditions.model_fields


def _setting(text: str) -> tuple[str, str]:
    name, _, value = (piece.strip() for piece in text.partition("="))
    return name, value


def _nameless(recipe: BaseRecipe) -> BaseRecipe:
    return replace(recipe, name="any")


def _describe(setting: study_file.Setting) -> str:
    """``easy (data.levels = [1])``."""
    conditions = study_file.changed(setting.set)
    inner = ", ".join(f"{name} = {value}" for name, value in conditions.items())
    return f"{setting.name} ({inner})" if inner else setting.name


def _changes(base: BaseRecipe, recipe: BaseRecipe, base_board: Board, board: Board) -> list[Change]:
    """What an arm has that its base has not: axes first, then conditions."""
    before, after = (b.conditions.values() for b in (base_board, board))
    conditions = [(name, plain(a), plain(b)) for name, (a, b) in diff(before, after).items()]
    fields = [*changes(base, recipe), *conditions]
    return [Change(field=name, before=a, after=b) for name, a, b in fields]


def _refuse_twins(name: str, base: Arm, arms: list[Arm]) -> None:
    """Two arms with the same runs would be one arm counted twice."""
    labels = {base.run: base.label}
    for arm in arms:
        if arm.run in labels:
            raise UsageError(
                f"comparison '{name}': {arm.label} is the same as {labels[arm.run]}. Leave one out."
            )
        labels[arm.run] = arm.label
