"""Real training of a small random model, as a run does it."""

from __future__ import annotations

import tomllib
from functools import partial
from pathlib import Path

import torch

from crlbench.algo.recipes import load
from crlbench.contract.conditions import Conditions, Track, override
from crlbench.policy.adapters import add_lora
from crlbench.policy.decode.loop import DecodeLoop
from crlbench.policy.policy import Policy
from crlbench.reward.score import Score
from crlbench.train.callbacks import LastCheckpoint, RunRecorder, StopOnDivergence, StopOnRequest
from crlbench.train.collect import Answers
from crlbench.train.loggers import open_loggers
from crlbench.train.module import PolicyOptimization
from crlbench.train.stream import EvalPrompts, Prompt, PromptStream
from crlbench.train.trainer import build_trainer, quiet
from tests.support.checkpoints import ascii_tokenizer, random_model

TRACK = Track.model_validate(tomllib.loads(Path("leaderboard/tracks/mini.toml").read_text()))
SMALL = {
    "budget.prompts": "4",
    "budget.completions": "4",
    "budget.grid": "4",
    "budget.iterations_per_point": "2",
    "optimization.minibatches": "2",
    "optimization.learning_rate": "3e-3",
    "optimization.warmup_iterations": "0",
    "rules.patience": "100",
}
PROMPTS = [Prompt(f"t/train/{i}", (129, *f"{i}+1=".encode()), str(i + 1)) for i in range(9)]


def conditions(**changes: str) -> Conditions:
    return override(TRACK.conditions, SMALL | {k.replace("__", "."): v for k, v in changes.items()})


def digits(texts, answers):
    """Pays for every completion that starts with a digit."""
    return [Score(float(text[:1].isdigit())) for text in texts]


def make(
    c=None,
    *,
    model=random_model,
    score=digits,
    seed=3,
    arm="real",
    recipe="ppo",
    lora=False,
    audit=None,
    fast=False,
    **options,
) -> PolicyOptimization:
    c = c or conditions()
    recipe = load(recipe) if isinstance(recipe, str) else recipe
    learner = model()
    if lora:
        adapter = {"rank": 4, "alpha": 8, "targets": "all-linear"}
        learner = add_lora(learner.requires_grad_(False), adapter, seed)
    build = partial(
        Policy,
        learner,
        value_head=recipe.critic is not None,
        reference=model(),
        fast=fast,
    )
    sampler = DecodeLoop(ascii_tokenizer(), 1.0, 4, ends=(130,), pad=128)
    data = c.data
    return PolicyOptimization(
        build=build,
        collector=Answers(sampler, score, audit, scale=data.reward_scale, kind=data.reward),
        recipe=recipe,
        conditions=c,
        seed=seed,
        arm=arm,
        **options,
    )


class WatchedUpdate:
    """An update rule, and what looks on around each of its steps."""

    def __init__(self, rule, before, after):
        self.rule, self.before, self.after = rule, before, after
        self.whole_experience, self.attention = rule.whole_experience, rule.attention

    def step(self, learner, objective):
        self.before(objective)
        done = self.rule.step(learner, objective)
        self.after(done)
        return done


def watch_steps(module, before=lambda objective: None, after=lambda done: None):
    """Call something before every step of a module, with its objective, and after it."""
    module.update = WatchedUpdate(module.update, before, after)


def fit(
    module,
    folder,
    *,
    stop=lambda: False,
    resume=False,
    before=None,
    loggers=(),
    device="cpu",
    stream=None,
):
    """Train a module as a run does, on prompts or on a ``stream``; returns the recorder."""
    c, budget = module.conditions, module.conditions.budget
    stream = stream or PromptStream(
        PROMPTS,
        seed=module.seed,
        per_iteration=budget.prompts,
        completions=budget.completions,
        iterations=budget.iterations,
        pad=128,
    )
    items = EvalPrompts(PROMPTS, pad=128, rows=64)
    (folder / "ckpt").mkdir(parents=True, exist_ok=True)
    recorder = RunRecorder(lambda event: None)
    keeper = LastCheckpoint(folder / "ckpt" / "last.ckpt")
    callbacks = [recorder, StopOnDivergence(c.rules, recorder), keeper, StopOnRequest(stop, keeper)]
    logs = open_loggers(loggers, folder, "a run", {"seed": module.seed}, 0)
    with quiet(), logs as opened:
        trainer = build_trainer(
            c,
            device=device,
            callbacks=[*([before] if before else []), *callbacks],
            loggers=opened,
            folder=folder,
            ranks=module.ranks,
        )
        if not resume:
            trainer.validate(module, items, verbose=False)
        trainer.fit(module, stream, items, ckpt_path=keeper.path if resume else None)
    return recorder


def weights(module):
    return {n: p.detach().clone() for n, p in module.policy.trainable().items()}


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name
