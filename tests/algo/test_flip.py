"""From the text of a flip to a recipe in which exactly one axis has changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crlbench.algo import recipes
from crlbench.algo.aggregate import TokenMean
from crlbench.algo.clip import PpoClip
from crlbench.algo.describe import nearest, objective, terms
from crlbench.algo.flip import changes, flipped
from crlbench.algo.kl import K1, Adaptive, Fixed, KlInLoss, KlInReward, NoKl
from crlbench.algo.normalize import NoNorm
from crlbench.algo.recipe import Recipe, from_config, to_config
from crlbench.errors import UsageError

GRPO = recipes.load("grpo")
PPO = recipes.load("ppo")


@pytest.mark.parametrize(
    ("text", "axis", "part", "name"),
    [
        ("aggregate=token_mean", "aggregate", TokenMean(), "aggregate=token-mean"),
        ("aggregate=TokenMean", "aggregate", TokenMean(), "aggregate=token-mean"),
        (
            "clip=ppo_clip:low=0.2,high=0.28",
            "clip",
            PpoClip(0.2, 0.28),
            "clip=ppo-clip:high=0.28,low=0.2",
        ),
        ("clip.high=0.28", "clip", PpoClip(0.2, 0.28), "clip.high=0.28"),
        ("clip.dual=3", "clip", PpoClip(0.2, 0.2, 3.0), "clip.dual=3"),
        ("normalize=none", "normalize", NoNorm(), "normalize=no-norm"),
        ("kl=none", "kl", NoKl(), "kl=no-kl"),
        (
            "kl=kl_in_loss:coefficient=0.1,estimator=k1",
            "kl",
            KlInLoss(Fixed(0.1), K1()),
            "kl=kl-in-loss:coefficient=0.1,estimator=k1",
        ),
        (
            "kl=kl-in-reward:coefficient=0.1",
            "kl",
            KlInReward(Fixed(0.1)),
            "kl=kl-in-reward:coefficient=0.1",
        ),
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
        (
            GRPO,
            "aggregate=token-men",
            "unknown part of axis 'aggregate' 'token-men'. Did you mean token-mean",
        ),
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


@pytest.mark.parametrize("name", recipes.names_of(Recipe))
def test_every_recipe_can_be_read_as_formulas(name: str) -> None:
    recipe = recipes.load(name)
    shown = {term.role: term.formula for term in terms(recipe)}
    assert {"advantage", "loss of a token", "agg, over tokens", "update"} <= set(shown)
    assert ("value loss" in objective(recipe)) == (recipe.critic is not None)
    assert ("agg(KL)" in objective(recipe)) == (recipe.kl.place == "loss")
    assert ("token reward" in shown) == (recipe.kl.place == "reward")


def test_formulas_hold_the_recipes_own_numbers() -> None:
    recipe = flipped(flipped(GRPO, "clip.high=0.28"), "entropy_bonus=0.01")
    assert objective(recipe) == "L = agg(loss) + 0.04 agg(KL) - 0.01 agg(H)"
    (clip,) = [t.formula for t in terms(recipe) if t.role == "loss of a token"]
    assert clip == "-min(rho A, clip(rho, 1 - 0.2, 1 + 0.28) A)"
    (dual,) = [t.formula for t in terms(flipped(GRPO, "clip.dual=3")) if "loss of" in t.role]
    assert "if A < 0: at most -3 A" in dual


@pytest.mark.parametrize(
    ("base", "text", "role", "ending"),
    [
        (GRPO, "advantage.penalty=token", "advantage", "R_j   (penalty = token)"),
        (PPO, "normalize.divide=false", "normalised advantage", "   (divide = false)"),
        (GRPO, "normalize=batch-std:of=centred", "normalised advantage", "   (of = centred)"),
        (PPO, "critic.clip=none", "value loss of a token", "   (clip = none)"),
        (GRPO, "clip.high=0.28", "loss of a token", "1 + 0.28) A)"),
    ],
)
def test_what_a_formula_does_not_say_stands_behind_it(
    base: Recipe, text: str, role: str, ending: str
) -> None:
    shown = {term.role: term.formula for term in terms(flipped(base, text))}
    assert shown[role].endswith(ending)


def test_flips_that_need_each_other_are_made_together() -> None:
    both = ["critic=none", "advantage=reward-to-go"]
    for name in ("+".join(["ppo", *order]) for order in (both, both[::-1])):
        made = recipes.load(name)
        assert made.name == name and not made.differs_by(recipes.load("reinforce-pp"))
    assert recipes.load("grpo+ratio=none+clip=none").differs_by(GRPO) == {"ratio", "clip"}
    with pytest.raises(UsageError, match="Gae needs a critic"):
        recipes.load("ppo+critic=none+kl=none")
    with pytest.raises(UsageError, match="changes nothing: ppo.advantage.lam=0.9 already"):
        recipes.load("ppo+advantage.lam=0.9+advantage.lam=0.9")
    with pytest.raises(UsageError, match="write a flip behind each"):
        recipes.load("grpo+")


def test_a_part_within_a_part_takes_fields() -> None:
    derived = flipped(GRPO, "kl.coefficient=adaptive:initial=0.04,target=1,horizon=10000")
    assert derived.kl.coefficient == Adaptive(0.04, 1.0, 10000.0)
    assert derived.name.endswith("+kl.coefficient=adaptive:horizon=10000,initial=0.04,target=1")
    assert recipes.load(derived.name) == derived
    assert objective(derived) == "L = agg(loss) + beta (Adaptive, from 0.04) agg(KL)"
    (rule,) = [term.formula for term in terms(derived) if term.role == "KL coefficient"]
    assert rule.startswith("beta <- beta (1 + clip(KL / 1 - 1") and "n / 10000)" in rule
    for text, message in {
        "kl.coefficient=adaptiv:initial=1": "unknown part of KlInLoss.coefficient 'adaptiv'. Did",
        "kl.coefficient=adaptive:initial=1": "missing field of Adaptive 'target'",
        "clip.high=ppo-clip:low=1": "PpoClip.high is no part",
        "kl.coefficient.value.x=1": "there is no kl.coefficient.value",
    }.items():
        with pytest.raises(UsageError, match=message):
            flipped(GRPO, text)


def test_the_nearest_recipe_differs_in_the_fewest_axes() -> None:
    others = [PPO, GRPO, flipped(GRPO, "kl=none")]
    mine = replace(flipped(GRPO, "clip.high=0.28"), name="mine")
    assert nearest(mine, others) == ("grpo", ["clip"])
    assert nearest(GRPO, [GRPO]) is None
