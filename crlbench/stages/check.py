"""What a chain needs of its track, its model and its tasks, asked before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from crlbench.algo import recipes
from crlbench.algo.chain import DEMOS, Chain, Stage, differing_field
from crlbench.algo.chain_files import read_stage
from crlbench.algo.recipe import BaseRecipe
from crlbench.contract.conditions import Conditions, Preference
from crlbench.contract.experience import FROZEN, reads_file, source_of
from crlbench.contract.model_card import ModelCard
from crlbench.contract.task_card import TaskCard
from crlbench.errors import UsageError, ValidationError
from crlbench.suite.labels import check_labeller
from crlbench.suite.own_answers import OwnFile

ARMS = ("real", "placebo")
"""Arms that chains have."""


def check_recipe(
    recipe: BaseRecipe,
    track: str,
    conditions: Conditions,
    card: ModelCard,
    tasks: Sequence[TaskCard],
    arms: Sequence[str],
    ranks: int,
    load: Callable[[str], BaseRecipe],
    own: OwnFile | None = None,
) -> None:
    """Refuse a chain on a track without stages, and what no chain can do; and the reverse.

    Args:
        track: name of the track.
        ranks: processes that would train a run together.
        load: gives the recipe of a name.
        own: a person's own file of answers, which stages read; None without one.

    Raises:
        UsageError: what does not fit, and what to do.
        ValidationError: the track states a stage that cannot be, or a setting is out of range.
    """
    preference = conditions.preference
    if not isinstance(recipe, Chain):
        if preference is not None:
            raise UsageError(
                f"track '{track}' is for chains of stages, and recipe '{recipe.name}' is none. "
                f"Take one of {', '.join(_likely_chains(recipe.name))}, or another track."
            )
        return
    if preference is None:
        raise UsageError(
            f"recipe '{recipe.name}' is a chain of stages, and track '{track}' has no "
            "[conditions.preference], which says what they learn from. Take --track preference."
        )
    check_labeller(preference.labeller)
    _check_run(recipe, card, tasks, arms, ranks, conditions)
    _check_labels(recipe, conditions, preference, own)
    _check_answers(recipe, conditions, preference, arms, own)
    for stage in recipe.stages:
        _check_stage(stage, conditions, own)
    for table in preference.shared:
        _check_shared(recipe, table, track, load)


def _likely_chains(recipe: str) -> list[str]:
    """Names of the chains; those whose name ends in that of the recipe first."""
    return sorted(recipes.chain_names(), key=lambda name: not name.endswith(recipe))


def _check_run(
    chain: Chain,
    card: ModelCard,
    tasks: Sequence[TaskCard],
    arms: Sequence[str],
    ranks: int,
    conditions: Conditions,
) -> None:
    if card.adapter is not None:
        raise UsageError(
            f"model '{card.slug}' learns in an adapter, and the stages of chain '{chain.name}' "
            "hand whole weights on. Take an entry without an adapter."
        )
    if ranks > 1:
        raise UsageError(
            f"chain '{chain.name}' runs on one device. Leave --devices and --num-nodes out."
        )
    if unknown := [arm for arm in arms if arm not in ARMS]:
        raise UsageError(
            f"--arm {unknown[0]}: chain '{chain.name}' has the arms {', '.join(ARMS)}."
        )
    if conditions.data.reward != "outcome":
        raise UsageError(f"chain '{chain.name}' judges whole completions: set data.reward=outcome.")
    for task in tasks:
        if task.kind != "single-turn" or task.reward_model is not None:
            raise UsageError(
                f"task '{task.name}' has no verifier that judges a single answer, which chain "
                f"'{chain.name}' needs. Leave it out of --tasks."
            )


def _check_labels(
    chain: Chain, conditions: Conditions, preference: Preference, own: OwnFile | None
) -> None:
    """No chain sees more verdicts than the track allows."""
    asked = chain.collects * preference.prompts * preference.per_prompt
    if own is not None and own.holds == "pairs":
        asked = chain.collects * len(own.examples)
        if asked > preference.labels:
            raise UsageError(
                f"{own.path}: each of its {len(own.examples)} pairs is a verdict, and "
                f"preference.labels allows {preference.labels}. Raise it: --set "
                f"preference.labels={asked}."
            )
    online = conditions.budget.total if chain.paid_by_gold or chain.judges_own else 0
    if asked + online > preference.labels:
        raise UsageError(
            f"chain '{chain.name}' would have {asked + online} completions judged, and "
            f"preference.labels allows {preference.labels}. Lower budget.grid or "
            "preference.prompts, or raise preference.labels."
        )


def _check_answers(
    chain: Chain,
    conditions: Conditions,
    preference: Preference,
    arms: Sequence[str],
    own: OwnFile | None,
) -> None:
    """A last stage that reads answers can read them, and enough of them."""
    source, budget = source_of(chain.plain()), conditions.budget
    if source == "rewards":
        return
    if "placebo" in arms and not chain.asks_labeller:
        raise UsageError(
            f"--arm placebo: chain '{chain.name}' asks no labeller and nothing pays it, so no "
            "label can be made blind. Leave placebo out of --arm."
        )
    if source == "teacher":  # both distributions are taken at the temperature of sampling
        return
    if (temperature := conditions.sampling.temperature) != 1.0:
        raise UsageError(
            f"chain '{chain.name}' takes the log-probabilities of answers at temperature 1, and "
            f"sampling.temperature is {temperature:g}. Set sampling.temperature=1."
        )
    if source in FROZEN and budget.rows % FROZEN[source]:
        raise UsageError(
            f"chain '{chain.name}' reads pairs, 2 answers each, and an iteration has "
            f"{budget.rows} completions (budget.prompts * budget.completions). Make that an even "
            "number."
        )
    there = preference.demos if chain.last.reads("data") == DEMOS else preference.prompts
    who_has = f"the track has {there} (preference.demos or preference.prompts)"
    if own is not None and reads_file(chain.last.plain(), own.holds):
        there = len(own.examples)
        who_has = f"--data has {there}"
    if source == "demonstrations" and there < budget.rows:
        raise UsageError(
            f"an iteration of chain '{chain.name}' reads {budget.rows} answers (budget.prompts * "
            f"budget.completions), and {who_has}. Lower budget.prompts or budget.completions."
        )


def _check_stage(stage: Stage, conditions: Conditions, own: OwnFile | None) -> None:
    """Settings that only the code of a stage can judge; it is loaded for chains alone."""
    if stage.kind == "supervised":
        from crlbench.stages.supervised import conditions_of

        assert conditions.preference is not None  # tracks without it refuse chains
        reads_own = own is not None and reads_file(stage.plain(), own.holds)
        there = conditions.preference.demos
        if reads_own:  # what reads the file tells where its lines are too few
            there = max(there, stage.setting("batch"))
        try:
            conditions_of(stage, conditions, there)
        except ValidationError as error:
            raise UsageError(str(error)) from None
    if stage.kind == "collect":
        from crlbench.stages.jury import pairing_of

        pairing_of(stage.setting("pairing"))
    if stage.kind == "distill":
        from crlbench.stages.distill import plan_of

        plan_of(dict(stage.settings), stage.name, conditions)
    if stage.kind == "reward":
        from crlbench.stages.reward import reward_training

        try:
            reward_training(stage.settings, seed=0)
        except ValidationError as error:
            raise UsageError(f"stage '{stage.name}': {error}") from None


def _check_shared(
    chain: Chain, table: dict[str, object], track: str, load: Callable[[str], BaseRecipe]
) -> None:
    """A stage that the track shares is spelled as there, if the chain has it."""
    try:
        shared = read_stage(table, load)
    except UsageError as error:
        raise ValidationError(f"track '{track}': conditions.preference.shared: {error}") from None
    own = next((stage for stage in chain.stages if stage.name == shared.name), None)
    if own is None:
        return
    field = differing_field(own.plain(), shared.plain())
    if field is not None:
        ours, theirs = own.plain().get(field), shared.plain().get(field)
        if field == "recipe" and own.recipe is not None and shared.recipe is not None:
            ours, theirs = own.recipe.name, shared.recipe.name
        raise UsageError(
            f"chain '{chain.name}': {shared.name}.{field} is {ours!r}, and track '{track}' shares "
            f"the stage '{shared.name}' among all contenders with {theirs!r} "
            f"(conditions.preference.shared). Call the stage otherwise, or spell it so."
        )
