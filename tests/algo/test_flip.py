"""From the text of a flip to a recipe in which exactly one axis has changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crlbench.algo import recipes
from crlbench.algo.aggregate import TokenMean
from crlbench.algo.clip import PpoClip
from crlbench.algo.describe import nearest, objective, terms
from crlbench.algo.flip import changes, flipped
from crlbench.algo.kl import K1, Fixed, KlInLoss, KlInReward, NoKl
from crlbench.algo.normalize import NoNorm
from crlbench.algo.recipe import from_config, to_config
from crlbench.errors import UsageError

GRPO = recipes.load("grpo")
PPO = recipes.load("ppo")


@pytest.mark.parametrize(
    ("text", "axis", "part", "name"),
    [
        ("aggregate=token_mean", "aggregate", TokenMean(), "aggregate=token-mean"),
        ("aggregate=TokenMean", "aggregate", TokenMean(), "aggregate=token-mean"),
        ("clip=ppo_clip:low=0.2,high=0.28", "clip", PpoClip(0.2, 0.28),
         "clip=ppo-clip:high=0.28,low=0.2"),
        ("clip.high=0.28", "clip", PpoClip(0.2, 0.28), "clip.high=0.28"),
        ("clip.dual=3", "clip", PpoClip(0.2, 0.2, 3.0), "clip.dual=3"),
        ("normalize=none", "normalize", NoNorm(), "normalize=no-norm"),
        ("kl=none", "kl", NoKl(), "kl=no-kl"),
        ("kl=kl_in_loss:coefficient=0.1,estimator=k1", "kl", KlInLoss(Fixed(0.1), K1()),
         "kl=kl-in-loss:coefficient=0.1,estimator=k1"),
        ("kl=kl-in-reward:coefficient=0.1", "kl", KlInReward(Fixed(0.1)),
         "kl=kl-in-reward:coefficient=0.1"),
        ("entropy_bonus=0.01", "entropy_bonus", 0.01, "entropy_bonus=0.01"),
        ("entropy-bonus=0.01", "entropy_bonus", 0.01, "entropy_bonus=0.01"),
    ],
)
def test_a_flip_changes_one_axis(text: str, axis: str, part: object, name: str) -> None:
    derived = flipped(GRPO, text)
    assert derived == replace(GRPO, name=f"grpo+{name}", **{axis: part})
    assert derived.differs_by(GRPO) == {axis}
    assert from_config(to_config(derived)) == derived


def test_a_field_of_a_part_within_a_part() -> None:
    derived = flipped(GRPO, "kl.coefficient.value=0.1")
    assert derived.kl.coefficient == Fixed(0.1) and derived.kl.estimator == GRPO.kl.estimator


def test_a_derived_name_loads_the_derived_recipe() -> None:
    for texts in (["clip.high=0.28"], ["kl=none", "aggregate=token_mean"]):
        derived = GRPO
        for text in texts:
            derived = flipped(derived, text)
        assert recipes.load(derived.name) == derived


@pytest.mark.parametrize(
    ("base", "text", "message"),
    [
        (GRPO, "agregate=token-mean", "unknown axis 'agregate'. Did you mean aggregate"),
        (GRPO, "aggregate=token-men", "unknown part of axis 'aggregate' 'token-men'. Did you mean "
                                      "token-mean"),
        (GRPO, "aggregate=none", "Known: .*token-mean"),
        (GRPO, "clip.hi=0.3", "unknown field of PpoClip 'hi'. Did you mean high"),
        (GRPO, "clip=ppo-clip:hig=0.3", "unknown field of PpoClip 'hig'. Did you mean high"),
        (GRPO, "clip.high=wide", "PpoClip.high must be a finite number"),
        (GRPO, "clip.low=3", "PpoClip.low must be above 0 and at most 1"),
        (GRPO, "clip", "Write AXIS=PART"),
        (GRPO, "clip=ppo-clip:0.3", "must be field=value"),
        (GRPO, "critic.clip=0.2", "there is no critic"),
        (GRPO, "critic=none:clip=2", "none takes no fields"),
        (GRPO, "entropy_bonus.x=2", "is a number"),
        (GRPO, "entropy_bonus=much", "entropy_bonus must be a number"),
        (GRPO, "clip=ppo-clip", "changes nothing: grpo already has clip = PpoClip"),
        (GRPO, "clip.high=0.20", "changes nothing: grpo already has"),
        (GRPO, "critic=none", "changes nothing: grpo already has critic = none"),
        (GRPO, "advantage=gae", "Gae needs a critic"),
        (PPO, "critic=none", "Gae needs a critic"),
        (PPO, "advantage=group-mean", "no use for a critic"),
    ],
)
def test_bad_flips_are_refused(base: object, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        flipped(base, text)


def test_changes_are_told_field_by_field_where_the_part_is_the_same() -> None:
    assert changes(GRPO, flipped(GRPO, "clip.high=0.28")) == [("clip.high", "0.2", "0.28")]
    assert changes(GRPO, flipped(GRPO, "kl.coefficient=0.1")) == [("kl.coefficient", "0.04", "0.1")]
    (change,) = changes(GRPO, flipped(GRPO, "aggregate=token-mean"))
    assert (change[0], change[2]) == ("aggregate", "TokenMean()")


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_can_be_read_as_formulas(name: str) -> None:
    recipe = recipes.load(name)
    shown = {term.role: term.formula for term in terms(recipe)}
    assert {"advantage", "loss of a token", "agg, over tokens", "update"} <= set(shown)
    assert ("value loss" in objective(recipe)) == (recipe.critic is not None)
    assert ("agg(KL)" in objective(recipe)) == (recipe.kl.place == "loss")
    assert ("token reward" in shown) == (recipe.kl.place == "reward")


def test_formulas_hold_the_recipes_own_numbers() -> None:
    recipe = flipped(flipped(GRPO, "clip.high=0.28"), "entropy_bonus=0.01")
    assert objective(recipe) == "L = agg(l) + 0.04 agg(KL) - 0.01 mean(H)"
    (clip,) = [t.formula for t in terms(recipe) if t.role == "loss of a token"]
    assert clip == "-min(rho A, clip(rho, 1 - 0.2, 1 + 0.28) A)"
    (dual,) = [t.formula for t in terms(flipped(GRPO, "clip.dual=3")) if "loss of" in t.role]
    assert "3 c and A < 0" in dual


def test_the_nearest_recipe_differs_in_the_fewest_axes() -> None:
    others = [PPO, GRPO, flipped(GRPO, "kl=none")]
    mine = replace(flipped(GRPO, "clip.high=0.28"), name="mine")
    assert nearest(mine, others) == ("grpo", ["clip"])
    assert nearest(GRPO, [GRPO]) is None
