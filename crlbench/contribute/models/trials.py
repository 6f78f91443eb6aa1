"""Trials of a model: a random toy of it learns, and its real weights know what they sampled."""

from __future__ import annotations

import copy
import math
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from crlbench.algo import recipes
from crlbench.contract.conditions import Conditions, override
from crlbench.contract.model_card import Adapter, ModelCard
from crlbench.policy.adapters import add_lora
from crlbench.policy.decode.loop import DecodeLoop, DrawKey
from crlbench.policy.policy import Policy
from crlbench.policy.text.chat import render
from crlbench.policy.weights.load import Location, Reader, build_policy, load_backbone
from crlbench.policy.weights.served import BEGIN, END, PAD, toy
from crlbench.reward.score import Score
from crlbench.train.callbacks import RunRecorder
from crlbench.train.collect import Answers
from crlbench.train.module import PolicyOptimization
from crlbench.train.sampling import MAX_GAP
from crlbench.train.stream import Prompt, PromptStream, make_batch
from crlbench.train.trainer import build_trainer, quiet

RECIPE = "ppo"
SEED = 0
SETTINGS = {
    "budget.prompts": "4",
    "budget.completions": "4",
    "budget.grid": "2",
    "budget.iterations_per_point": "1",
    "evaluation.curve_every": "1",
    "optimization.minibatches": "2",
    "optimization.learning_rate": "3e-3",
    "optimization.warmup_iterations": "0",
    "hardware.precision": '"fp32"',
}
TOKENS = 8
"""Longest completion."""
PROMPTS = tuple(
    Prompt(f"toy/train/{i}", (BEGIN, *f"{i}+1=".encode()), str(i + 1)) for i in range(8)
)
QUESTIONS = ("What is 12 + 34?", "Sort: 10, 9, 8", "Say yes.")
SAMPLED_TOKENS = 16
DRAWS = 2
"""Completions a question."""
TOLERANCE = MAX_GAP["fp32"]
"""Nats; what a run itself allows in its first update."""


class Ascii:
    """What the toy's tokens stand for: characters, and nothing for those beyond."""

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        """The text of one row."""
        return "".join(chr(int(i)) for i in ids if int(i) < PAD)

    def batch_decode(self, rows: Sequence[Sequence[int]], **_: Any) -> list[str]:
        """The texts of several."""
        return [self.decode(row) for row in rows]


def two_updates(
    config: Any, adapter: Adapter | None, conditions: Conditions
) -> tuple[list[str], dict[str, Any]]:
    """Train a toy of ``config`` for two iterations, with its entry's kind of adapter.

    Returns:
        What is wrong, and figures: the gap between decoding and learning in nats a token, and the
        share of the weights that learn which have moved.

    Raises:
        CrlbenchError: the loop itself refuses the architecture.
    """
    start = toy(config)
    model = copy.deepcopy(start)
    if adapter is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers' old names
            model = add_lora(model.requires_grad_(False), adapter.model_dump(), SEED)
    conditions = override(conditions, SETTINGS)
    recipe = recipes.load(RECIPE)
    module = PolicyOptimization(
        build=lambda: Policy(model, value_head=recipe.critic is not None, reference=start),
        collector=Answers(DecodeLoop(Ascii(), 1.0, TOKENS, ends=(END,), pad=PAD), _odd),
        recipe=recipe,
        conditions=conditions,
        seed=SEED,
    )
    module.configure_model()
    before = {name: p.detach().clone() for name, p in module.policy.trainable().items()}
    health = _fit(module, conditions)
    after = module.policy.trainable()
    learners = [name for name in after if not torch.equal(before[name], after[name])]
    problems = []
    if not all(bool(weight.isfinite().all()) for weight in after.values()):
        problems.append("two updates left weights that are not finite")
    if not any("value_head" not in name for name in learners):
        problems.append("two updates moved no weight of the model")
    gap = health[0]["behavior_gap"]
    if not math.isfinite(gap):
        problems.append("the log-probabilities of what was sampled are not finite")
    return problems, {"gap": f"{gap:.1e} nats", "weights that moved": len(learners) / len(after)}


def _fit(module: PolicyOptimization, conditions: Conditions) -> list[dict[str, Any]]:
    """One iteration after the other, as a run trains; its figures of health."""
    budget = conditions.budget
    stream = PromptStream(
        PROMPTS,
        seed=SEED,
        per_iteration=budget.prompts,
        completions=budget.completions,
        iterations=budget.iterations,
        pad=PAD,
    )
    recorder = RunRecorder(lambda event: None)
    with quiet(), tempfile.TemporaryDirectory() as folder:
        trainer = build_trainer(
            conditions, device="cpu", callbacks=[recorder], loggers=[], folder=Path(folder)
        )
        trainer.fit(module, stream)
    return recorder.health


def _odd(texts: Sequence[str], answers: Sequence[str]) -> list[Score]:
    """Pays the share of characters with an odd number: few completions are paid alike."""
    return [Score(sum(ord(c) % 2 for c in text) / max(len(text), 1)) for text in texts]


@torch.no_grad()
def largest_gap(card: ModelCard, place: Location, reader: Reader) -> tuple[float, int]:
    """The gap in nats between sampled and recomputed log-probabilities, and the tokens compared.

    The largest one, in float32 on the CPU, with prompts run once for all rows and with whole rows.

    Raises:
        ValidationError: the weights cannot be loaded.
    """
    start = load_backbone(card, place, "fp32")
    policy = build_policy(card, start, value_head=False, reference=False, seed=0).eval()
    questions = [[{"role": "user", "content": text}] for text in QUESTIONS]
    prompts = [
        Prompt(f"entry/{i}", tuple(render(m, reader.frame, reader.tokenizer, reader.thinking)), "")
        for i, m in enumerate(questions)
    ]
    batch = make_batch(prompts, reader.pad, completions=DRAWS)
    loop = DecodeLoop(reader.tokenizer, 1.0, SAMPLED_TOKENS, ends=reader.ends, pad=reader.pad)
    rollout = loop.sample(policy, batch, DrawKey(0, "entry"))
    real = rollout.completion_mask
    rows = (rollout.completion_ids, real, rollout.group)
    gaps = []
    for prefix in (True, False):
        again = policy(batch.prompt_ids, batch.prompt_mask, *rows, 1.0, shared_prefix=prefix)
        gaps.append(float((again.logprobs - rollout.behavior_logprobs)[real].abs().max()))
    return max(gaps), int(real.sum())
