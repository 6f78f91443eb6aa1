from __future__ import annotations

import json
import sys
from dataclasses import FrozenInstanceError, dataclass, replace
from subprocess import run
from typing import ClassVar

import pytest
from torch import Tensor

from crlbench.algo import recipes
from crlbench.algo.advantage import AdvantageEstimator, Gae, GroupMean, LeaveOneOut
from crlbench.algo.aggregate import SequenceMean, TokenMean
from crlbench.algo.clip import NoClip, PpoClip, Sapo
from crlbench.algo.kl import Adaptive, KlInLoss, NoKl
from crlbench.algo.normalize import BatchStd, GroupStd
from crlbench.algo.part import parts_of
from crlbench.algo.ratio import NoRatio
from crlbench.algo.recipe import AXES, from_config, to_config
from crlbench.algo.select import DropUniformGroups, DynamicSampling
from crlbench.algo.signal import Signal
from crlbench.algo.step import TrustRegion
from crlbench.algo.value import Critic
from crlbench.errors import UsageError

PPO = recipes.load("ppo")


def test_names_and_files_agree() -> None:
    assert "ppo" in recipes.names()
    for name in recipes.names():
        assert recipes.load(name).name == name


@pytest.mark.slow
def test_listing_recipes_imports_none() -> None:
    code = (
        "import sys; from crlbench.algo import recipes; recipes.names();"
        "print([m for m in sys.modules if m.startswith('crlbench.algo.recipes.')])"
    )
    done = run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown recipe 'dap'. Did you mean dapo"):
        recipes.load("dap")


@pytest.mark.parametrize("name", recipes.names())
def test_config_round_trip(name: str) -> None:
    recipe = recipes.load(name)
    config = to_config(recipe)
    assert from_config(json.loads(json.dumps(config))) == recipe
    for axis in recipe.axes:
        part = getattr(recipe, axis)
        assert config[axis] is None if part is None else config[axis]["part"] == type(part).__name__


def test_nested_parts_survive_the_round_trip() -> None:
    recipe = replace(PPO, kl=KlInLoss(Adaptive(0.1, 6.0, 10_000), "k2"))
    config = to_config(recipe)
    assert config["kl"]["coefficient"]["part"] == "Adaptive"
    assert config["kl"]["estimator"]["part"] == "K2"
    assert from_config(config) == recipe


def test_whole_numbers_and_fractions_hash_alike() -> None:
    assert to_config(replace(PPO, clip=PpoClip(1, 1))) == to_config(
        replace(PPO, clip=PpoClip(1.0, 1.0))
    )
    assert json.dumps(to_config(replace(PPO, clip=PpoClip(1, 1)))["clip"]).count("1.0") == 2


def test_differs_by_names_the_flipped_axes() -> None:
    assert PPO.differs_by(PPO) == set()
    assert replace(PPO, name="other").differs_by(PPO) == set()
    assert replace(PPO, aggregate=SequenceMean()).differs_by(PPO) == {"aggregate"}
    assert replace(PPO, clip=PpoClip(0.2, 0.28)).differs_by(PPO) == {"clip"}
    both = replace(PPO, kl=NoKl(), entropy_bonus=0.01)
    assert both.differs_by(PPO) == {"kl", "entropy_bonus"} == PPO.differs_by(both)


def test_recipes_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        PPO.clip.low = 0.5  # type: ignore[misc]
    assert len({PPO, replace(PPO), replace(PPO, kl=NoKl())}) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"critic": None}, "Gae needs a critic"),
        ({"clip": TokenMean()}, "clip must be one of the parts Cispo, NoClip, PpoClip, Sapo"),
        ({"kl": None}, "kl must be one of"),
        ({"name": "My Recipe"}, "lower-case words"),
        ({"entropy_bonus": -1.0}, "entropy_bonus"),
        ({"entropy_bonus": float("nan")}, "entropy_bonus"),
    ],
)
def test_impossible_recipes_are_refused(change: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(PPO, **change)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("grpo", {"critic": Critic()}, "GroupMean has no use for a critic"),
        ("rloo", {"advantage": Gae()}, "Gae needs a critic"),
        ("grpo", {"ratio": NoRatio()}, "NoRatio leaves nothing to clip. Set clip=NoClip"),
        ("reinforce", {"clip": Sapo()}, "NoRatio leaves nothing to clip"),
        ("rloo", {"step": TrustRegion()}, "it needs a ratio, clip=NoClip"),
        ("reinforce", {"step": TrustRegion()}, "it needs a ratio"),
        ("ppo", {"step": TrustRegion(), "clip": NoClip()}, "no critic, KL in the loss or entropy"),
        ("grpo", {"step": TrustRegion(), "clip": NoClip()}, "no critic, KL in the loss or entropy"),
        (
            "rloo",
            {"step": TrustRegion(), "clip": NoClip(), "entropy_bonus": 0.1},
            "no critic, KL in the loss or entropy",
        ),
    ],
)
def test_impossible_combinations_are_refused(name: str, change: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(recipes.load(name), **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"advantage": GroupMean()}, "advantage=GroupMean compares"),
        ({"advantage": LeaveOneOut()}, "advantage=LeaveOneOut compares"),
        ({"normalize": GroupStd()}, "normalize=GroupStd compares"),
        ({"normalize": BatchStd(of="centred")}, "normalize=BatchStd compares"),
        ({"normalize": BatchStd(of="leave_one_out")}, "normalize=BatchStd compares"),
        ({"select": DropUniformGroups()}, "select=DropUniformGroups compares"),
        ({"select": DynamicSampling()}, "select=DynamicSampling compares"),
    ],
)
def test_parts_that_compare_need_several_completions(change: dict, message: str) -> None:
    recipe = replace(recipes.load("reinforce"), **change)
    recipe.check_group(2)
    with pytest.raises(UsageError, match=f"{message}.*budget.completions is 1"):
        recipe.check_group(1)


def test_one_completion_is_enough_for_parts_that_do_not_compare() -> None:
    for name in ("ppo", "reinforce", "reinforce-pp"):
        recipes.load(name).check_group(1)
    replace(recipes.load("reinforce"), normalize=BatchStd(of="raw")).check_group(1)


def edited(path: str, value: object) -> dict:
    """The config of ppo with the entry at a dotted path replaced, or removed if value is ..."""
    config = json.loads(json.dumps(to_config(PPO)))
    *parents, last = path.split(".")
    place = config
    for parent in parents:
        place = place[parent]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return config


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("clip.part", "PpoClap", "unknown part 'PpoClap'. Did you mean PpoClip.*axis 'clip'"),
        ("clip.part", ..., "axis 'clip' needs a key 'part'"),
        ("clip.lo", 0.1, "unknown field of PpoClip 'lo'. Did you mean low.*axis 'clip'"),
        ("clip.low", "wide", "PpoClip.low must be a finite number; got 'wide'"),
        ("clip.low", 7, "PpoClip.low must be above 0 and at most 1; got 7.0"),
        ("aggregate", "token mean", "axis 'aggregate' must be one of the parts FixedLength"),
        ("kl", {"part": "KlInLoss"}, "missing field of KlInLoss 'coefficient'"),
        ("aggregate", {"part": "SequenceMean", "row": "max"}, "'mean', 'sum'"),
        ("normalize.shift_mean", 1, "true or false"),
        ("kl.coefficient.part", "Fixd", "Did you mean Fixed"),
        ("advantag", {}, "Did you mean advantage"),
        ("advantage", ..., "missing recipe field 'advantage'"),
        ("critic", None, "Gae needs a critic"),
        ("advantage.part", {"a": 1}, "unknown part"),
    ],
)
def test_bad_configs_are_refused_with_the_allowed_names(path, value, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        from_config(edited(path, value))


def test_a_part_from_anywhere_joins_its_axis() -> None:
    @dataclass(frozen=True)
    class PlainReward(AdvantageEstimator):
        scale: float = 1.0
        formula: ClassVar[str] = "scale R"

        def __call__(self, signal: Signal) -> tuple[Tensor, None]:
            return self.scale * signal.rewards[:, None] * signal.mask, None

    recipe = replace(PPO, name="plain", advantage=PlainReward(2), critic=None)
    assert from_config(to_config(recipe)) == recipe
    with pytest.raises(UsageError, match="no use for a critic"):
        replace(recipe, critic=Critic())


@pytest.mark.parametrize("axis", AXES)
def test_every_part_documents_itself(axis: str) -> None:
    known = parts_of(AXES[axis])
    assert axis == "critic" or AXES[axis].__name__ not in known  # an axis is no part of itself
    for cls in known.values():
        assert cls.__doc__ and cls.formula, cls.__name__
