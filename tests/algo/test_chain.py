"""Chains: what files may say, what fits together, what flips change, and how they are stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crlbench.algo import recipes
from crlbench.algo.chain import DEFAULTS, KINDS, Chain, differing_field
from crlbench.algo.flip import changes
from crlbench.algo.recipe import from_config, to_config
from crlbench.errors import UsageError, ValidationError
from crlbench.train.reward_modeling import RewardTraining

LEAST = """
[[stage]]
name = "pairs"
kind = "collect"
policy = "start"

[[stage]]
name = "rm"
kind = "reward"
from = "start"
data = "pairs"

[[stage]]
name = "policy"
kind = "policy"
start = "start"
reference = "start"
reward = "rm"
recipe = "ppo"
"""


def own(folder: Path, text: str, name: str = "mine") -> Chain:
    """A chain of a person's catalogue folder."""
    (folder / "chains").mkdir(exist_ok=True)
    (folder / "chains" / f"{name}.toml").write_text(text)
    chain = recipes.load(name, [folder])
    assert isinstance(chain, Chain)
    return chain


def bundled(name: str) -> Chain:
    chain = recipes.load(name)
    assert isinstance(chain, Chain)
    return chain


@pytest.mark.parametrize("name", recipes.chain_names())
def test_every_bundled_chain_comes_back_from_its_configuration(name: str) -> None:
    chain = bundled(name)
    config = json.loads(json.dumps(to_config(chain)))
    assert from_config(config) == chain and hash(from_config(config)) == hash(chain)
    assert config["name"] == name
    assert recipes.docstring(name)


def test_names_of_recipes_are_no_chains() -> None:
    assert not {*recipes.names()} & {*recipes.chain_names()}


def test_a_persons_chain_is_found_in_their_folder_and_has_the_defaults(tmp_path: Path) -> None:
    chain = own(tmp_path, LEAST)
    assert [stage.name for stage in chain.upstream] == ["pairs", "rm"]
    assert chain.last.recipe == recipes.load("ppo")
    assert chain.stages[0].setting("pairing") == DEFAULTS["collect"]["pairing"]
    assert chain.asks_labeller and not chain.paid_by_gold
    assert bundled("rlvr").paid_by_gold and not bundled("rlvr").asks_labeller


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('kind = "collect"', 'kind = "colect"', "kind of stage 'pairs' 'colect'.*collect"),
        ('policy = "start"', 'police = "start"', "field of the collect stage 'pairs' 'police'"),
        ('policy = "start"\n', "", "stage 'pairs' .collect. needs the field policy"),
        ('policy = "start"', 'policy = "rm"', "policy of stage 'pairs' in chain 'mine' 'rm'"),
        ('data = "pairs"', 'data = "demos"', "data of stage 'rm'.*Known: pairs"),
        ('reward = "rm"', 'reward = "gold"', "nobody reads what stage 'rm' leaves"),
        ('recipe = "ppo"', 'recipe = "pppo"', "unknown recipe 'pppo'"),
        ('recipe = "ppo"', 'recipe = "dpo"', "cannot train by recipe 'dpo'.*no axis advantage"),
        ('recipe = "ppo"', "recipe = 3", "3 is no name of a recipe"),
        ('name = "rm"', 'name = "pairs"', "two stages 'pairs'"),
        ('name = "rm"', 'name = "gold"', "stands for an input"),
        ('name = "rm"', 'name = "R M"', "lower-case words"),
        ('data = "pairs"', 'data = "pairs"\nepochs = 1.5', "epochs must be int; got 1.5"),
        ("[[stage]]", "stages = 1\n[[stage]]", "unknown field of a chain 'stages'"),
    ],
)
def test_what_a_file_may_not_say(tmp_path: Path, old: str, new: str, fault: str) -> None:
    assert old in LEAST
    with pytest.raises(ValidationError, match=rf"(?s)mine\.toml: .*{fault}"):
        own(tmp_path, LEAST.replace(old, new, 1))


def test_stages_are_tables(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"write each stage as a table \[\[stage\]\]"):
        own(tmp_path, '[stage]\nname = "x"\n')


def test_a_chain_ends_with_a_policy(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="stage 'rm' .reward. is at the wrong place"):
        own(tmp_path, LEAST.rpartition("[[stage]]")[0])
    again = LEAST + LEAST.rpartition("[[stage]]\n")[2].replace('"policy"', '"more"', 1).join(
        ["[[stage]]\n", ""]
    )
    with pytest.raises(ValidationError, match="stage 'policy' .policy. is at the wrong place"):
        own(tmp_path, again)
    with pytest.raises(ValidationError, match="has no stage"):
        own(tmp_path, 'about = "nothing"')


def test_flips_reach_into_stages_and_name_the_chain() -> None:
    text = (
        "rlhf+policy.recipe=grpo+policy.recipe.kl.coefficient=0.02+pairs.pairing=best-worst"
        "+rm.from=tiny-llama-0.3m+rm.epochs=3"
    )
    chain, base = recipes.load(text), bundled("rlhf")
    assert isinstance(chain, Chain) and chain.name == text
    assert changes(base, chain) == [
        ("pairs.pairing", "random-mixed", "best-worst"),
        ("rm.from", "sft", "tiny-llama-0.3m"),
        ("rm.epochs", "2", "3"),
        ("policy.recipe", "ppo", "grpo+kl.coefficient=0.02"),
    ]
    assert chain.recipe == recipes.load("grpo+kl.coefficient=0.02")
    assert from_config(to_config(chain)) == chain
    assert base.differs_by(chain) == {"pairs.pairing", "rm.from", "rm.epochs", "policy.recipe"}


@pytest.mark.parametrize(
    ("flip", "fault"),
    [
        ("policy.recipe=grppo", "unknown recipe 'grppo'"),
        ("policy.recipe=dpo", "cannot train by recipe 'dpo'"),
        ("plicy.recipe=grpo", "stage of chain 'rlhf' 'plicy'. Did you mean policy"),
        ("pairs.pair=x", "'pair'. Did you mean pairing"),
        ("rm.epochs=many", "epochs must be int"),
        ("rm.epochs=2", "changes nothing"),
        ("rm=2", "Write STAGE.FIELD=VALUE"),
        ("policy.reward=pairs", "unknown reward of stage 'policy'"),
        ("sft.recipe.likelihood=none", "likelihood"),
    ],
)
def test_impossible_flips_are_usage_errors(flip: str, fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        recipes.load(f"rlhf+{flip}")


def test_chains_differ_in_stages_that_only_one_has() -> None:
    assert bundled("rlhf").differs_by(bundled("rlvr")) == {"pairs", "rm", "policy.reward"}


def test_the_first_differing_field_of_a_stage_is_named() -> None:
    a, b = (bundled(name).stages[1].plain() for name in ("rlhf", "rlhf+pairs.pairing=best-worst"))
    assert differing_field(a, b) == "pairing" and differing_field(a, a) is None


def test_settings_of_a_reward_stage_are_those_of_its_training() -> None:
    decided_elsewhere = {"max_tokens", "seed", "store"}
    own = {*KINDS["reward"].settings} - {"seeds"}
    assert own == {*RewardTraining.model_fields} - decided_elsewhere


def test_a_recipe_of_a_persons_python_file_is_imported_for_the_chain(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    file = tmp_path / "recipes" / "my_ppo.py"
    file.write_text(
        "from dataclasses import replace\nfrom crlbench.algo import recipes\n"
        'RECIPE = replace(recipes.load("ppo"), name="my-ppo", entropy_bonus=0.01)\n'
    )
    chain = own(tmp_path, LEAST.replace('"ppo"', '"my-ppo"'))
    assert recipes.python_file("mine", [tmp_path]) == file
    assert chain.recipe.name == "my-ppo"
    assert recipes.python_file("rlhf") is None
