"""One process of crlbench on the work that `benchmarks/peers.py` describes.

    python benchmarks/peer/ours.py '<JSON of the work>'

The recipe, the loop, the policy and the Trainer are those of every run; only the prompts come from
the work, and completions have no end token, so that all have one length. Prints one JSON line of
figures, the last one.
"""

from __future__ import annotations

import os
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from clock import Clock, figures, prepare, read_work

ROOT = Path(__file__).parents[2]


def main() -> None:
    work = read_work(sys.argv[1])
    prepare(work)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # as a run sets it
    clock = Clock(work)
    conditions = conditions_of(work)
    module, reader = module_of(work, conditions, clock)
    fit(work, conditions, module, reader, clock, [callback(clock)])
    figures(clock)


def fit(
    work: dict[str, Any],
    conditions: Any,
    module: Any,
    reader: Any,
    clock: Clock,
    callbacks: list[Any],
) -> None:
    """Train the module on the work's prompts, in the Trainer of every run."""
    from crlbench.train.stream import Prompt, PromptStream
    from crlbench.train.trainer import build_trainer, quiet

    clock.check_prompts([reader.tokenizer(text)["input_ids"] for text in work["prompts"]])
    prompts = [
        Prompt(f"work/train/{i}", tuple(ids), None) for i, ids in enumerate(work["prompt_ids"])
    ]
    stream = PromptStream(
        prompts,
        seed=work["seed"],
        per_iteration=len(prompts),
        completions=work["completions"],
        iterations=conditions.budget.iterations,
        pad=reader.pad,
    )
    with tempfile.TemporaryDirectory() as scratch, quiet():
        trainer = build_trainer(
            conditions,
            device=work["device"],
            callbacks=callbacks,
            loggers=[],
            folder=Path(scratch),
        )
        trainer.fit(module, stream)


def as_a_worker(threads: int) -> None:
    """Start again in the environment that the launcher gives its workers."""
    from crlbench.launch.worker import environment_of

    wanted = environment_of(threads)
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.environ.update(wanted)
        os.execv(sys.executable, [sys.executable, *sys.argv])


def conditions_of(work: dict[str, Any]) -> Any:
    """The conditions of the track ``small``, with the work's batch, optimizer and machine."""
    from crlbench.contract.conditions import Track

    path = ROOT / "leaderboard" / "tracks" / "small.toml"
    track = Track.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))).conditions
    beta1, beta2 = work["betas"]
    changes = {
        "budget": {
            "prompts": len(work["prompts"]),
            "completions": work["completions"],
            "grid": 1,
            "iterations_per_point": work["warmup"] + work["iterations"],
        },
        "sampling": {"temperature": 1.0},
        "optimization": {
            "learning_rate": work["learning_rate"],
            "value_learning_rate": work["learning_rate"],
            "warmup_iterations": 0,
            "epochs": 1,
            "minibatches": 1,
            "beta1": beta1,
            "beta2": beta2,
            "weight_decay": 0.0,
            "max_grad_norm": 1.0,
        },
        "evaluation": {"curve_every": 1},
        "hardware": {
            "threads": work["threads"],
            "precision": work["precision"],
            "plan": work["options"].get("plan", "plain"),
        },
    }
    groups = {name: getattr(track, name).model_copy(update=new) for name, new in changes.items()}
    return track.model_copy(update=groups)


def module_of(work: dict[str, Any], conditions: Any, clock: Clock) -> tuple[Any, Any]:
    """The module, all weights trained from float32, and the reader of the model."""
    from crlbench.algo.recipes import load
    from crlbench.catalog.find import Catalog
    from crlbench.policy.weights.load import Location, build_policy, load_backbone, load_reader
    from crlbench.train.collect import Answers
    from crlbench.train.module import PolicyOptimization

    card = Catalog().load_model(work["card"]).model_copy(update={"adapter": None})
    location = Location(work["model"])
    reader = load_reader(card, location)
    backbone = load_backbone(card, location)
    recipe = load(work["recipe"])
    build = partial(
        build_policy,
        card,
        backbone,
        value_head=recipe.critic is not None,
        reference=recipe.needs_reference,
        seed=work["seed"],
        fast=conditions.hardware.plan == "fast",
    )
    sampler = timed_loop(clock)(
        tokenizer=reader.tokenizer,
        temperature=conditions.sampling.temperature,
        max_tokens=work["tokens"],
        ends=(),
        pad=reader.pad,
    )
    module = PolicyOptimization(
        build=build,
        collector=Answers(sampler, clock.scored(odd_characters)),
        recipe=recipe,
        conditions=conditions,
        seed=work["seed"],
    )
    return module, reader


def timed_loop(clock: Clock) -> type:
    """The decode loop of every run, timed, its prompts and tokens checked."""
    from crlbench.policy.decode.loop import DecodeLoop

    @dataclass(frozen=True)
    class Timed(DecodeLoop):
        def sample(self, policy: Any, batch: Any, key: Any) -> Any:
            begun = clock.now()
            rollout = super().sample(policy, batch, key)
            rows, tokens = rollout.completion_mask.shape
            if not bool(rollout.completion_mask.all()):
                tokens = 0
            clock.add_decoding(clock.now() - begun, rows, tokens)
            masked = zip(batch.prompt_ids.cpu(), batch.prompt_mask.cpu(), strict=True)
            clock.check_prompts([ids[mask].tolist() for ids, mask in masked])
            return rollout

    return Timed


def odd_characters(texts: Sequence[str], answers: Sequence[Any]) -> list[Any]:
    """A text's share of odd characters: cheap, and different within a group."""
    from crlbench.reward.score import Score

    return [Score(sum(ord(c) % 2 for c in text) / max(len(text), 1)) for text in texts]


def callback(clock: Clock) -> Any:
    """A Lightning callback that ends an iteration with every batch."""
    from lightning.pytorch.callbacks import Callback

    class EndOfIteration(Callback):
        def on_train_batch_end(self, *_: Any, **__: Any) -> None:
            clock.end_iteration()

    return EndOfIteration()


if __name__ == "__main__":
    as_a_worker(read_work(sys.argv[1])["threads"])
    main()
