"""What optimising against a reward model would do, from samples alone: nothing is trained.

N completions of each item are sampled from a model and paid by the reward model: the task's own, or
one that a chain fitted to pairs of the policy that is asked. Choosing
the best of n of them optimises the reward model harder with every n, so gold (what the verifier
that labelled the pairs says) over n is a whole curve of over-optimisation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.contract.conditions import PROTOCOL
from crlbench.contract.sizes import DECODE_ROWS
from crlbench.contract.task_card import PairAccuracy
from crlbench.errors import UsageError, ValidationError
from crlbench.policy.decode.loop import DrawKey
from crlbench.policy.policy import Policy
from crlbench.policy.weights.load import with_weights
from crlbench.policy.weights.reward_model import RewardModel, prompt_ids, read_card
from crlbench.run.probe import Plan, decoding, in_float32
from crlbench.run.reward_model import check_rewards, frozen_folder
from crlbench.run.subject import Subject, collector_of, prompts_of, verifier_of
from crlbench.seeding import seed_value
from crlbench.stats.best_of_n import (
    auc,
    best_of_n,
    kl_bound,
    kl_of_best,
    majority,
    within_variance,
    wrong_at_top,
)
from crlbench.stats.intervals import Interval, student_interval
from crlbench.stats.over_optimisation import OverOptimisation, over_optimisation
from crlbench.stats.pass_at_k import pass_at_k
from crlbench.train.collect import Collector
from crlbench.train.requests import outcomes_of
from crlbench.train.stream import EvalPrompts, Prompt

X = TypeVar("X")

LEAST, MOST = 8, 1024
"""Completions of an item that can be asked for: fewer make no curve."""
SPLIT = "id"
"""The items are those of this split: the reward model was checked on its keys."""


@dataclass(frozen=True)
class Payer:
    """A reward model that pays in place of a task."""

    model: RewardModel
    accuracy: PairAccuracy
    """On the held-out pairs that it was checked on."""


@dataclass(frozen=True)
class Draws:
    """N completions of each of I items."""

    texts: Sequence[Sequence[str]]
    answers: Sequence[Sequence[str]]
    """The canonical forms, which votes are counted by."""
    proxy: np.ndarray
    """(I, N) float64: what the reward model pays."""
    gold: np.ndarray
    """(I, N) float64: what the verifier says that labelled the pairs."""


@dataclass(frozen=True)
class BestOf:
    """The means over the items at one n."""

    n: int
    proxy: float
    """Proxy of the completion with the highest proxy."""
    gold: float
    """Gold of the same completion."""
    interval: Interval
    """95 % of ``gold``, over the items."""
    majority: float
    """Gold of the answer that most of n give."""
    weighted: float
    """The same, each vote weighed by its proxy."""
    oracle: float
    """Whether any of n is right: pass@n."""
    kl: float
    """KL of best-of-n from the distinct completions sampled, in nats."""
    kl_bound: float
    """log n - (n - 1) / n, which ties stay below."""


@dataclass(frozen=True)
class RewardQuality:
    """What a reward model does, beyond ordering the pairs that it was checked on."""

    pairs: PairAccuracy
    """Accuracy on the held-out pairs, with its interval."""
    auc: float | None
    """Chance that a right completion of an item is paid more than a wrong one."""
    variance: float
    """Mean variance of the proxy within items."""
    wrong_at_top: float
    """Share of wrong completions among the eighth that is paid most."""


@dataclass(frozen=True)
class OptimisationProbe:
    """A model and a task's reward model, without training."""

    task: str
    model: str
    revision: str
    items: int
    draws: int
    rows: tuple[BestOf, ...]
    quality: RewardQuality
    curve: OverOptimisation | None
    """The fit of gold; None where the draws do not allow one."""
    lack: str = ""
    """Why there is no fit."""

    def as_json(self) -> dict[str, Any]:
        """Every figure; intervals as [low, high], or null."""
        curve, quality = self.curve, self.quality
        return {
            "task": self.task,
            "model": self.model,
            "revision": self.revision,
            "items": self.items,
            "draws": self.draws,
            "best_of": [
                vars(row) | {"interval": [row.interval.low, row.interval.high]} for row in self.rows
            ],
            "reward_model": vars(quality) | {"pairs": quality.pairs.model_dump(mode="json")},
            "curve": curve and curve.as_json(),
        }


def probe_optimisation(
    task: Task,
    subject: Subject,
    plan: Plan,
    catalog: Catalog,
    payer: Payer | None = None,
    weights: Mapping[str, Tensor] | None = None,
) -> OptimisationProbe:
    """Sample ``plan.rollouts`` completions of the first ID items, ``plan.items`` of each level.

    Args:
        payer: of a task that its verifier pays; the verifier then says what is gold.
        weights: that a policy learned from the subject, which is asked in its place.

    Raises:
        UsageError: the task has no reward model, or two, or too few or many completions.
        ValidationError: a prompt does not fit into the model's context, or the weights are those
            of another model.
    """
    if task.card.reward_model is None and payer is None:
        raise UsageError(
            f"--best-of: task '{task.name}' is paid by its verifier, so nothing can be "
            "over-optimised. Choose a task with a reward model, such as judged, or give one that a "
            "chain fitted: --reward runs/<board>/<model>/artefacts/reward-<key>."
        )
    if task.card.reward_model is not None and payer is not None:
        raise UsageError(
            f"--reward: task '{task.name}' has a reward model of its own. Leave --reward out."
        )
    if not LEAST <= plan.rollouts <= MOST:
        raise UsageError(f"--best-of {plan.rollouts}: a number from {LEAST} to {MOST}.")
    collector = collector_of(task, subject.reader, decoding(task, catalog), "cpu")
    prompts = _items(task, subject, collector.max_tokens, plan.items)
    if len(prompts) < 2:
        raise UsageError(f"--items {plan.items}: task '{task.name}' needs two items for intervals.")
    backbone = in_float32(subject)
    if weights is not None:
        backbone = with_weights(subject.card, subject.backbone, weights)
    draws = _sample(task, Policy(backbone, value_head=False), collector, prompts, plan.rollouts)
    if payer is not None:
        draws = replace(draws, proxy=_paid_by(payer.model, task, prompts, draws.texts))
    return summarise(
        draws,
        read_card(frozen_folder(task)).accuracy if payer is None else payer.accuracy,
        task=task.name,
        model=subject.card.slug,
        revision=subject.card.revision,
    )


def summarise(draws: Draws, pairs: PairAccuracy, **names: str) -> OptimisationProbe:
    """The table of some draws; ``names`` are task, model and revision."""
    items, count = draws.proxy.shape
    ns = numbers(count)
    golds = np.stack([best_of_n(draws.proxy, draws.gold, n) for n in ns], axis=1)
    kls = np.stack([kl_of_best(draws.proxy, draws.texts, n) for n in ns], axis=1)
    right = (draws.gold >= 1.0).sum(axis=1)
    rows = [
        BestOf(
            n=n,
            proxy=float(best_of_n(draws.proxy, draws.proxy, n).mean()),
            gold=float(golds[:, j].mean()),
            interval=student_interval(golds[:, j].tolist()),
            majority=float(majority(draws.answers, draws.gold, n).mean()),
            weighted=float(majority(draws.answers, draws.gold, n, draws.proxy).mean()),
            oracle=float(pass_at_k(right, count, n).mean()),
            kl=float(kls[:, j].mean()),
            kl_bound=kl_bound(n),
        )
        for j, n in enumerate(ns)
    ]
    quality = RewardQuality(
        pairs,
        auc(draws.proxy, draws.gold),
        within_variance(draws.proxy),
        wrong_at_top(draws.proxy, draws.gold),
    )
    curve, lack = None, ""
    try:
        curve = over_optimisation(kls, golds, "best-of-n", f"best-of/{names['task']}")
    except ValidationError as error:  # a policy that always says the same
        lack = str(error)
    return OptimisationProbe(
        **names,
        items=items,
        draws=count,
        rows=tuple(rows),
        quality=quality,
        curve=curve,
        lack=lack,
    )


def numbers(draws: int) -> list[int]:
    """The n of a table: powers of two, and the draws."""
    return sorted({2**k for k in range(draws.bit_length()) if 2**k <= draws} | {draws})


def _items(task: Task, subject: Subject, max_tokens: int, each: int) -> list[Prompt]:
    """The first ``each`` ID items of every level, in the order of the split."""
    taken: dict[int, int] = {}
    chosen = []
    prompts = prompts_of(task, SPLIT, subject.reader, max_tokens)
    for prompt, row in zip(prompts, task.rows(SPLIT), strict=True):
        taken[row["level"]] = taken.get(row["level"], 0) + 1
        if taken[row["level"]] <= each:
            chosen.append(prompt)
    return chosen


def _sample(
    task: Task, policy: Policy, collector: Collector, prompts: Sequence[Prompt], count: int
) -> Draws:
    key = DrawKey(seed_value(PROTOCOL, f"{task.name}/probe", 0), "probe")
    verifier = verifier_of(task)
    texts: list[str] = []
    proxy: list[float] = []
    gold: list[float] = []
    for batch in EvalPrompts(prompts, pad=collector.pad, rows=DECODE_ROWS, draws=count):
        examination = collector.examine(policy, batch, key)
        texts += examination.rollout.texts
        proxy += examination.scores.tolist()
        gold += outcomes_of(verifier, examination.rollout, batch)
    by_item = _rows(texts, count)
    return Draws(
        texts=by_item,
        answers=[task.answers_of(item) for item in by_item],
        proxy=np.array([_paid(*row) for row in zip(by_item, _rows(proxy, count), strict=True)]),
        gold=np.array(_rows(gold, count)),
    )


def _paid_by(
    model: RewardModel, task: Task, prompts: Sequence[Prompt], texts: Sequence[Sequence[str]]
) -> np.ndarray:
    """(I, N) float64: what a reward model pays for the completions of each prompt."""
    asked = {row["id"]: prompt_ids(row["messages"], model.reader) for row in task.rows(SPLIT)}
    paid = []
    for prompt, several in zip(prompts, texts, strict=True):
        question = asked[prompt.uid.rpartition("/")[2]]
        rewards = model.rewards([question] * len(several), several)
        check_rewards(rewards, several, task.name)
        paid.append(_paid(several, rewards))
    return np.array(paid)


def _rows(values: list[X], count: int) -> list[list[X]]:
    return [values[i : i + count] for i in range(0, len(values), count)]


def _paid(texts: Sequence[str], proxy: Sequence[float]) -> list[float]:
    """The proxies of an item; equal texts in two batches may be paid apart in the last bit."""
    first: dict[str, float] = {}
    return [first.setdefault(text, one) for text, one in zip(texts, proxy, strict=True)]
