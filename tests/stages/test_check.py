"""What a chain needs of its track, its model and its tasks; refused before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crlbench.algo import recipes
from crlbench.catalog.find import Catalog
from crlbench.contract.conditions import Conditions
from crlbench.errors import UsageError, ValidationError
from crlbench.run.board import load_track
from crlbench.stages.check import check_recipe

CATALOG = Catalog()


def check(recipe: str = "rlhf", *, track: str = "preference", folder: Path | None = None,
          model: str = "tiny-llama", tasks: tuple[str, ...] = ("addition",),
          arms: tuple[str, ...] = ("real",), ranks: int = 1, **changed: Any) -> None:  # fmt: skip
    data = load_track(CATALOG, track).conditions.model_dump(mode="json")
    for group, values in changed.items():
        data[group] |= values
    folders = [folder] if folder else []
    check_recipe(
        recipes.load(recipe, folders),
        track,
        Conditions.model_validate(data),
        CATALOG.load_model(model),
        [CATALOG.task_card(name) for name in tasks],
        arms,
        ranks,
        lambda name: recipes.load(name, folders),
    )


@pytest.mark.parametrize("recipe", recipes.chain_names())
def test_bundled_chains_fit_the_track(recipe: str) -> None:
    tasks = load_track(CATALOG, "preference").tasks
    unlabelled = recipe in ("sft-only", "sft-distill")
    arms = ("real",) if unlabelled else ("real", "placebo")
    check(recipe, arms=arms, tasks=tasks)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"track": "mini"}, r"track 'mini' has no \[conditions.preference\].*--track preference"),
        ({"recipe": "ppo"}, "recipe 'ppo' is none. Take one of bon, .*rlhf, rlvr"),
        ({"model": "smollm2-135m-instruct"}, "learns in an adapter"),
        ({"ranks": 2}, "runs on one device"),
        ({"arms": ("real", "mode")}, "--arm mode: .*has the arms real, placebo"),
        ({"tasks": ("addition", "guess")}, "task 'guess' has no verifier"),
        ({"tasks": ("judged",)}, "task 'judged' has no verifier"),
        ({"data": {"reward": "process"}}, "set data.reward=outcome"),
        ({"recipe": "rlvr", "budget": {"grid": 32}}, "8192 completions judged.*allows 4096"),
        ({"recipe": "online-dpo", "budget": {"grid": 32}}, "8192 completions judged.*allows 4096"),
        ({"recipe": "sft-only", "arms": ("placebo",)}, "--arm placebo: .*asks no labeller"),
        ({"recipe": "sft-distill", "arms": ("placebo",)}, "--arm placebo: .*asks no labeller"),
        ({"recipe": "sft-dpo", "sampling": {"temperature": 0.8}}, "Set sampling.temperature=1"),
        ({"recipe": "sft-dpo", "budget": {"prompts": 4, "completions": 1, "grid": 1},
          "optimization": {"minibatches": 1}, "data": {"reward": "process"}}, "outcome"),
        ({"recipe": "sft-dpo", "budget": {"prompts": 5, "completions": 1},
          "optimization": {"minibatches": 1}}, "5 completions .*Make that an even number"),
        ({"recipe": "bon", "budget": {"prompts": 128, "grid": 4}},
         "reads 1024 answers .*track has 512"),
        ({"recipe": "rlhf+pairs.pairing=best-worst"},
         "pairs.pairing is 'best-worst'.*shares the stage 'pairs'.*'random-mixed'"),
        ({"recipe": "rlhf+sft.recipe=sft+sft.epochs=3"}, "changes nothing"),
        ({"recipe": "rlhf+sft.epochs=3"}, "sft.epochs is 3, and track 'preference' shares"),
        ({"recipe": "rlhf+sft.recipe.likelihood=sequence-nll"}, "sft.recipe is 'sft.likelihood"),
        ({"recipe": "rlhf+rm.epochs=0"}, "stage 'rm': .*epochs"),
        *(({"preference": {"shared": []}, "recipe": f"rlhf+sft.{change}"}, f"stage 'sft': .*{part}")
          for change, part in (("epochs=0", "epochs = 0"), ("batch=9999", "batch = 9999"),
                               ("batch=0", "batch = 0"), ("learning_rate=-1.0", "rate = -1"),
                               ("learning_rate=0.0", "rate = 0"), ("learning_rate=1e9", "1e"))),
        ({"recipe": "dpo"}, "Take one of iterative-dpo, online-dpo, sft-dpo, "),
        ({"preference": {"shared": []}, "recipe": "rlhf+pairs.pairing=best-wrost"}, "best-worst"),
        ({"preference": {"labeller": "gold:flip=0.9"}}, "labeller 'gold:flip=0.9'|flip = 0.9"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_a_usage_error(given: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        check(**given)


def test_a_chain_may_leave_a_shared_stage_out_or_call_its_own_otherwise(tmp_path: Path) -> None:
    (tmp_path / "chains").mkdir()
    own = Path(recipes.path_of("rlhf")).read_text()
    own = own.replace('"pairs"', '"more"').replace("random-mixed", "all-ordered")
    (tmp_path / "chains" / "mine.toml").write_text(own)
    check("mine", folder=tmp_path)
    check("rlvr")


def test_a_track_that_shares_what_is_no_stage_is_refused() -> None:
    with pytest.raises(ValidationError, match="track 'preference': .*shared: .*kind of stage"):
        check(preference={"shared": [{"name": "sft", "kind": "magic"}]})
