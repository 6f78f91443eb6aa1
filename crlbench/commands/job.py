"""A job that is ready to run, made of what is typed: models, recipes, plans, and their checks."""

from __future__ import annotations

import contextlib
import os
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crlbench.catalog.fetch import fetched_folder
from crlbench.catalog.find import Catalog
from crlbench.commands.console import count, warn
from crlbench.commands.frozen_answers import check_frozen
from crlbench.commands.other_sources import check_source, check_vocabulary_of
from crlbench.commands.own_data import check_own, keep_own, own_file, place_of
from crlbench.commands.pace import is_absent, unreachable
from crlbench.commands.running import (
    Ending,
    Job,
    carry_out,
    checked_memory,
    say_division,
    say_preview,
)
from crlbench.commands.settings import Settings, resolve
from crlbench.contract.arms import why_unstressed
from crlbench.contract.experience import FROZEN, OwnAnswers, leaves_of, source_of, why_open
from crlbench.contract.model_card import ModelCard
from crlbench.disk import switches
from crlbench.disk.files import expanded
from crlbench.doctor.preflight import at_hand, check_board, check_models, check_readers
from crlbench.errors import EnvironmentUnfit, UsageError
from crlbench.launch.devices import Place, follow, hosting
from crlbench.run.archive import open_board
from crlbench.run.board import Request, make_board, trainable
from crlbench.run.former import check_entry_unchanged, former_runs
from crlbench.run.plan import Board, Contender, Declaration, Execution, NamedRecipe, Plan

if TYPE_CHECKING:
    from crlbench.algo.recipe import BaseRecipe
    from crlbench.run.admission import Admitted


SHORT_TASKS = 3
"""Tasks of ``--short``."""


@dataclass(frozen=True)
class TrainingRequest:
    """What the options ask for: settings, and the board that they make."""

    settings: Settings
    catalog: Catalog
    track: str
    board: Board
    tasks: Sequence[str]
    """Tasks to train on."""
    reasons: Sequence[str]
    """Why the board is in the open division; empty for the closed one."""


def read_request(options: Namespace) -> TrainingRequest:
    """Settings and board of the options."""
    settings, conditions = resolve(options)
    catalog = Catalog(options.catalog)
    start = open_board(catalog, settings.track, settings.tasks)
    track, catalog, names = start.track, start.catalog, start.tasks
    if settings.short:
        names = trainable(catalog, track.tasks)[:SHORT_TASKS]
        settings = replace(settings, tasks=names)
    request = Request(conditions, names or None, settings.limit, settings.smoke, start.replaced)
    board, tasks, reasons = make_board(catalog, track, request)
    return TrainingRequest(settings, catalog, track.id, board, tasks, reasons)


def declare(options: Namespace, request: TrainingRequest) -> Job:
    """The plans of every model, after the checks that need no weights; says what is special.

    Raises:
        UsageError: no model, or an unknown one.
        ValidationError: a model or a task that cannot be used.
        EnvironmentUnfit: this machine lacks something.
    """
    settings, catalog, board, tasks = (
        request.settings,
        request.catalog,
        request.board,
        request.tasks,
    )
    if not settings.model:
        raise UsageError(
            "evaluate needs --model X: a name of crlbench list models, a folder, or a hub id with "
            "its commit."
        )
    check_board(board, tasks, catalog)
    cards = cards_of(settings.model, catalog)
    recipe = choose(settings.recipe, catalog)
    require_fetched(cards.values(), options.home)
    cards, admitted = admit_unlisted(cards, download=not settings.dry_run)
    check_readers(cards.values(), board, catalog, admitted)
    plans = [plan_of(board, model, recipe, tasks, settings, catalog) for model in cards.items()]
    _check_devices(settings, board, list(cards.values()), recipe.recipe)
    opened = opening(recipe, settings.data is not None)
    say_division(request.track, [*request.reasons, *opened], settings)
    unstressed = why_unstressed(recipe.config)
    kinds = [catalog.task_card(name).kind for name in tasks]
    say_preview(settings, cards.values(), board.track, kinds, unstressed)
    return Job(settings, catalog, board, plans, [*cards.values()], admitted)


def run_job(
    options: Namespace, job: Job, publish: Callable[[], Path]
) -> tuple[Ending, Path | None] | None:
    """Run the missing cells of a job.

    Args:
        publish: shows what is stored and returns its page.

    Returns:
        How it ended, and the page; None on a machine that only helped another one.
    """
    settings = job.settings
    keep_own(options, settings, job.catalog)
    if settings.num_nodes > 1:
        place = Place.of(os.environ)
        if place.node > 0:
            follow(place, warn)
            return None
    with hosting(place) if settings.num_nodes > 1 else contextlib.nullcontext():
        estimates = checked_memory(options, job)
        if switches.offline() and (absent := [*filter(is_absent, job.cards)]):
            raise unreachable(absent[0])
        check_models(job.cards, job.board, job.catalog, job.admitted)
        return carry_out(options, job, estimates, publish)


def _check_devices(
    settings: Settings, board: Board, cards: Sequence[ModelCard], recipe: BaseRecipe
) -> None:
    """Refuse what cannot be trained on the devices that were asked for."""
    ranks = settings.devices * settings.num_nodes
    if ranks == 1:
        if settings.strategy != "auto":
            raise UsageError(
                f"--strategy {settings.strategy} says how several devices hold the weights, and "
                "there is one. Add --devices N, or leave --strategy out."
            )
        return
    _check_present(settings)
    prompts = board.conditions.budget.prompts
    if ranks > prompts:
        raise UsageError(
            f"{ranks} devices, and an iteration has {prompts} prompts (budget.prompts), which they "
            f"share. Use at most {prompts} devices."
        )
    if settings.num_nodes > 1 and settings.jobs not in ("auto", "1"):
        raise UsageError(
            f"--jobs {settings.jobs}: with --num-nodes the machines do one run after the other. "
            "Leave --jobs out."
        )
    from crlbench.algo.pairs.recipe import PairRecipe
    from crlbench.algo.recipe import Recipe
    from crlbench.algo.step import TrustRegion

    references = {
        "reference": isinstance(recipe, PairRecipe) and recipe.reference.moves,
        "kl.reference": isinstance(recipe, Recipe) and recipe.kl.reference.moves,
    }
    for name, moves in references.items():
        if settings.strategy == "fsdp" and moves:
            raise UsageError(
                f"recipe '{recipe.name}' moves its reference, whose weights every device holds "
                f"whole: --strategy fsdp divides them. Use --strategy ddp, or {name}=start."
            )
    if isinstance(recipe, Recipe) and isinstance(recipe.step, TrustRegion):
        raise UsageError(
            f"recipe '{recipe.name}' takes trust-region steps, which run on one device. Leave "
            "--devices and --num-nodes out, or choose another recipe."
        )
    quantised = [card.slug for card in cards if card.quantisation != "none"]
    if settings.strategy == "fsdp" and quantised:
        raise UsageError(
            f"--strategy fsdp cannot divide quantised weights (model '{quantised[0]}'). Use "
            "--strategy ddp: under an adapter only the small adapter is exchanged."
        )


def _check_present(settings: Settings) -> None:
    """Refuse more accelerators than there are; processes on the CPU are not counted."""
    if settings.device == "cpu":
        return
    import torch

    present = torch.cuda.device_count()
    if not (present == 0 and settings.device == "auto") and settings.devices > present:
        raise EnvironmentUnfit(
            f"--devices {settings.devices}: torch finds {count(present, 'CUDA device')} here. "
            f"Use --devices {max(present, 1)} at most."
        )


def cards_of(models: Sequence[str], catalog: Catalog) -> dict[str, ModelCard]:
    """The cards of models by the name that was given; of the folder of an entry by its name."""
    names = {model: catalog.model_name(model) for model in models}
    for model, name in names.items():
        if model != name:
            warn(f"model '{model}' is the folder of the entry '{name}', and runs as that")
    return {name: catalog.load_model(name) for name in names.values()}


def admit_unlisted(
    cards: dict[str, ModelCard], download: bool
) -> tuple[dict[str, ModelCard], list[Admitted]]:
    """The cards as plans name them: those of models without an entry follow from their files.

    Args:
        download: whether to get, or to convert, what cannot be looked at without; else such a
            card stays as it is.

    Returns:
        The cards by the name that was given, and what is known of models without an entry.

    Raises:
        ValidationError: a checkpoint that cannot be used.
        EnvironmentUnfit: the hub is out of reach, or something to convert it is missing.
    """
    unlisted = [n for n, card in cards.items() if card.unlisted and (download or at_hand(card))]
    if not unlisted:
        return cards, []
    from crlbench.run.admission import admit

    models = {name: admit(cards[name], whole=download) for name in unlisted}
    for model in models.values():
        for word in model.words:
            warn(word)
    return cards | {name: model.card for name, model in models.items()}, [*models.values()]


def require_fetched(cards: Iterable[ModelCard], home: Path | None) -> None:
    """Refuse models of packages that have not been downloaded.

    Raises:
        EnvironmentUnfit: names the command that downloads, or a model of the hub has no place.
    """
    for card in cards:
        if card.source.kind == "hub" and not switches.hub_placed():
            switches.home()
        if card.source.kind == "package":
            fetched_folder(card, home)


@dataclass(frozen=True)
class Chosen:
    """A recipe, and the person's own file that a worker must import before it can make it."""

    recipe: BaseRecipe
    file: Path | None

    @property
    def name(self) -> str:
        """The identifier."""
        return self.recipe.name

    @property
    def config(self) -> dict[str, Any]:
        """The recipe as records and plans hold it."""
        from crlbench.algo.recipe import to_config

        return to_config(self.recipe)


def choose(name: str, catalog: Catalog) -> Chosen:
    """The recipe called ``name``."""
    from crlbench.algo import recipes

    recipe = recipes.load(name, catalog.extra)
    return Chosen(recipe, recipes.python_file(name, catalog.extra))


def opening(chosen: Chosen, has_file: bool = False) -> list[str]:
    """Why a recipe moves its runs to the open division; empty where it does not.

    Args:
        has_file: whether ``--data`` names a file to learn from.
    """
    why = why_open(chosen.config, has_file)
    return [f"recipe '{chosen.name}': {why}"] if why else []


def plan_of(
    board: Board,
    model: tuple[str, ModelCard],
    chosen: Chosen,
    tasks: Sequence[str],
    settings: Settings,
    catalog: Catalog,
) -> Plan:
    """The plan of one model under one recipe on a board.

    Raises:
        UsageError: the recipe is a chain and the track is for none, or the reverse; it needs
            several completions a prompt and the board has one, it cannot use the step rewards that
            the board pays, it or a task has not the arm, or it learns from frozen answers and a
            task has none, or from a teacher or a replay where that cannot be, or not from what the
            person's own file holds.
        ValidationError: the model's tokens are not those of a teacher, or too many for a critic; or
            nothing can be learned from a line of the person's own file.
    """
    from crlbench.algo import recipes
    from crlbench.algo.chain import Chain
    from crlbench.run.teacher_entry import pinned
    from crlbench.stages.check import check_recipe

    own = own_file(settings, catalog)
    check_recipe(
        chosen.recipe,
        board.track.id,
        board.conditions,
        model[1],
        [catalog.task_card(name) for name in tasks],
        settings.arm,
        settings.devices * settings.num_nodes,
        lambda name: recipes.load(name, catalog.extra),
        own,
    )
    chosen.recipe.check_group(board.conditions.budget.completions)
    chosen = replace(chosen, recipe=pinned(chosen.recipe, catalog))
    if own is not None:
        check_own(own, chosen.name, chosen.config, board, model[1], catalog)
    if opening(chosen, own is not None):
        file = None if own is None else OwnAnswers(own.sha256, own.holds)
        control = board.control | leaves_of(chosen.config, file)
        board = replace(board, division="open", control=control)
        ranks = settings.devices * settings.num_nodes
        if source_of(chosen.config) in FROZEN and not isinstance(chosen.recipe, Chain):
            has_own = own is not None
            check_frozen(chosen.name, chosen.config, board, tasks, settings.arm, catalog, has_own)
        elif not isinstance(chosen.recipe, Chain):
            check_source(
                chosen.name, chosen.config, board, model[1], tasks, settings.arm, ranks, catalog
            )
        check_vocabulary_of(chosen.recipe, model[1], catalog)
    if board.conditions.data.reward == "process":
        _require_credit_of_steps(chosen.recipe, tasks, catalog)
    _check_arms(settings.arm, chosen, tasks, catalog)
    return Declaration(
        board,
        _contender(*model, Path(settings.out) / board.folder, chosen.name, settings.fresh),
        NamedRecipe(chosen.name, chosen.config, chosen.file),
        tasks,
        settings.arm,
        settings.seeds,
        settings.out,
        _execution(settings, catalog, place_of(own, settings)),
    ).plan()


def _check_arms(
    arms: Sequence[str], recipe: Chosen, tasks: Sequence[str], catalog: Catalog
) -> None:
    """Refuse a stress arm without a learning rate, and arms of answers where a task has none."""
    if "stress" in arms and (why := why_unstressed(recipe.config)):
        raise UsageError(
            f"--arm stress: recipe '{recipe.name}' has no stress arm: {why}. Leave stress out of "
            "--arm."
        )
    cards = [catalog.task_card(name) for name in tasks]
    for card in cards:
        if "mode" in arms and card.kind != "single-turn":
            raise UsageError(
                f"--arm mode: task '{card.name}' is not single-turn, and an episode has no greedy "
                "answer to agree with. Leave mode out of --arm."
            )
        if "wrong" in arms and (card.kind != "single-turn" or card.reward_model is not None):
            raise UsageError(
                f"--arm wrong: task '{card.name}' has no verifier that compares a completion with "
                "an answer, so no answer is wrong. Leave wrong out of --arm."
            )


def _execution(settings: Settings, catalog: Catalog, answers: str | None) -> Execution:
    return Execution(
        catalog=[str(folder) for folder in catalog.extra],
        device=device(settings.device),
        devices=settings.devices,
        nodes=settings.num_nodes,
        strategy="fsdp" if settings.strategy == "fsdp" else "ddp",
        loggers=[name for name in settings.logger if name != "none"],
        answers=answers,
    )


def _require_credit_of_steps(recipe: BaseRecipe, tasks: Sequence[str], catalog: Catalog) -> None:
    """Refuse a recipe that loses where in a completion, or in an episode, a step was."""
    from crlbench.algo import recipes
    from crlbench.algo.recipe import Recipe

    single = any(catalog.task_card(name).kind == "single-turn" for name in tasks)

    def blind(one: BaseRecipe) -> str | None:
        return one.blind_to_steps if single else one.blind_to_turns

    if part := blind(recipe):
        able = [name for name in recipes.names_of(Recipe) if not blind(recipes.load(name))]
        raise UsageError(
            f"data.reward = process: recipe '{recipe.name}' cannot use step rewards, because of "
            f"{part}. Recipes that can: {', '.join(able)}. Or set data.reward=outcome."
        )


def device(name: str) -> str:
    """``cpu`` or ``cuda``; torch is asked only when an accelerator was asked for."""
    if name == "cpu":
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if name == "auto":
        return "cpu"
    raise EnvironmentUnfit("--device cuda: torch finds no CUDA device here. Use --device cpu.")


def _contender(
    name: str, card: ModelCard, board: Path, recipe: str, fresh: bool = False
) -> Contender:
    """A model as the plan names it: as before, where runs from before can go on."""
    spec = str(expanded(name).resolve()) if card.source.kind == "path" and card.unlisted else name
    if not fresh:
        check_entry_unchanged(card, board)
    former = former_runs(card, board, recipe)
    if former is not None and not former.changed:
        card = former.card
    elif former is not None:
        warn(f"model '{card.slug}': the runs in {former.folder} cannot continue: {former.changed}")
    return Contender(spec, card.slug, card.revision[:8], card.digest)
