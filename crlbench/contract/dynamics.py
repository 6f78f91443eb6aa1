"""What is watched while a policy learns: one list of names for record, TensorBoard and docs.

A figure without a value in an iteration (no update was made, no answer was wrong, there is no
critic) is NaN while it flows and null in the record. An answer is *right* if its score is at
least one half.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, TypedDict, get_type_hints

from crlbench.contract.experience import Source


class StepStats(TypedDict, total=False):
    """One optimizer step, over the valid tokens of its minibatch; averaged over the iteration."""

    loss: Annotated[float, "the minimised scalar"]
    policy_loss: Annotated[float, "aggregated surrogate of the policy"]
    value_loss: Annotated[float, "aggregated value loss before its coefficient; 0 without critic"]
    entropy: Annotated[float, "token mean entropy of the policy, nats"]
    approx_kl: Annotated[float, "token mean of k3 of the sampling and the present policy, nats"]
    approx_kl_k1: Annotated[float, "token mean of k1 of the sampling and the present policy, nats"]
    approx_kl_k2: Annotated[float, "token mean of k2 of the sampling and the present policy, nats"]
    clip_fraction: Annotated[float, "share of tokens held back by the clip rule"]
    clip_low: Annotated[float, "share of tokens held back at the lower bound (A < 0)"]
    clip_high: Annotated[float, "share of tokens held back at the upper bound (A > 0)"]
    ratio_p01: Annotated[float, "1 % quantile of the tokens' importance ratio"]
    ratio_p50: Annotated[float, "median of the tokens' importance ratio"]
    ratio_p99: Annotated[float, "99 % quantile of the tokens' importance ratio"]
    ratio_max: Annotated[float, "largest importance ratio of a token in the iteration"]
    ess: Annotated[float, "effective sample size of the ratios, (sum r)^2 / (n sum r^2), 0 to 1"]
    grad_norm: Annotated[float, "global norm of the gradient before clipping"]
    update_norm: Annotated[float, "norm of the step that the trainable weights made"]
    update_cosine: Annotated[float, "cosine between this step and the one before it"]


class RolloutStats(TypedDict, total=False):
    """One iteration's completions, before any filter and any shaping of the reward."""

    reward: Annotated[float, "mean reward paid"]
    score: Annotated[float, "mean score of the verifier, 0 to 1"]
    audit: Annotated[float, "mean score of the audit, the second verifier that is never trained on"]
    length: Annotated[float, "mean tokens of a completion"]
    length_right: Annotated[float, "mean tokens of a right completion"]
    length_wrong: Annotated[float, "mean tokens of a wrong completion"]
    truncated: Annotated[float, "share of completions cut off by the cap"]
    truncated_right: Annotated[float, "share of right completions cut off by the cap"]
    truncated_wrong: Annotated[float, "share of wrong completions cut off by the cap"]
    repetition: Annotated[float, "mean share of token 4-grams that stand earlier in the completion"]
    repetition_right: Annotated[float, "the same over right completions"]
    repetition_wrong: Annotated[float, "the same over wrong completions"]
    group_variance: Annotated[float, "mean over prompts of the variance of their scores"]
    uniform_groups: Annotated[float, "share of prompts whose completions all score the same"]
    behavior_gap: Annotated[float, "mean |log-prob of decoding - log-prob of the learner|, nats"]
    explained_variance: Annotated[float, "1 - Var(return - value) / Var(return) of the critic"]
    kept_fraction: Annotated[float, "share of completions that the sample filters keep"]
    reference_kl: Annotated[float, "token mean of k1 of the policy and the start model, nats"]
    reference_kl_k2: Annotated[float, "token mean of k2 of the policy and the start model, nats"]
    reference_kl_k3: Annotated[float, "token mean of k3 of the policy and the start model, nats"]
    kl_per_completion: Annotated[float, "mean over completions of the summed k1, nats"]
    kl_coefficient: Annotated[float, "weight of the KL term in this iteration"]
    tokens: Annotated[float, "tokens generated"]
    bytes: Annotated[float, "UTF-8 bytes generated"]


class UpdateStats(StepStats, RolloutStats, total=False):
    """Everything that is watched in one iteration of policy optimisation."""


class FrozenStats(TypedDict, total=False):
    """An iteration on frozen answers; figures of completions are those of the evaluation before it,
    and have no value in iterations without one."""

    loss: Annotated[float, "the minimised scalar"]
    grad_norm: Annotated[float, "global norm of the gradient before clipping"]
    update_norm: Annotated[float, "norm of the step that the trainable weights made"]
    update_cosine: Annotated[float, "cosine between this step and the one before it"]
    score: Annotated[float, "mean score of the evaluation's completions"]
    length: Annotated[float, "mean tokens of the evaluation's completions"]
    truncated: Annotated[float, "share of the evaluation's completions cut off by the cap"]
    repetition: Annotated[float, "mean share of repeated token 4-grams in these completions"]
    entropy: Annotated[float, "token mean entropy of the policy on these completions, nats"]
    reference_kl: Annotated[float, "token mean of k1 of the policy and the start, nats"]
    reference_kl_k2: Annotated[float, "token mean of k2 of the policy and the start, nats"]
    reference_kl_k3: Annotated[float, "token mean of k3 of the policy and the start, nats"]
    tokens: Annotated[float, "tokens of the frozen answers, end tokens included"]
    bytes: Annotated[float, "UTF-8 bytes of the frozen answers"]


class PairStats(FrozenStats, total=False):
    """An iteration on pairs; means over its pairs as its steps met them."""

    margin: Annotated[float, "implicit reward of the preferred answer minus that of the other"]
    pair_accuracy: Annotated[float, "share of pairs with a positive margin; 0 counts one half"]
    chosen_logp: Annotated[float, "log-probability of a preferred answer, nats"]
    rejected_logp: Annotated[float, "log-probability of the other answer, nats"]
    kept_mass: Annotated[float, "geometric mean of pi(chosen) + pi(rejected), over its start value"]


class TeacherStats(TypedDict, total=False):
    """An iteration of distillation, beside the figures of its completions; means over the tokens
    that its steps met."""

    loss: Annotated[float, "the minimised scalar"]
    entropy: Annotated[float, "token mean entropy of the policy, nats"]
    teacher_kl: Annotated[float, "token mean of the exact KL of the policy from its teacher, nats"]
    teacher_agreement: Annotated[float, "share of tokens at which both prefer the same next token"]
    grad_norm: Annotated[float, "global norm of the gradient before clipping"]
    update_norm: Annotated[float, "norm of the step that the trainable weights made"]
    update_cosine: Annotated[float, "cosine between this step and the one before it"]


class ReplayStats(TypedDict, total=False):
    """An iteration of soft actor-critic, beside the figures of its completions; means over the
    states that its steps met. Steps of the policy alone have norms and a cosine."""

    loss: Annotated[float, "mean of what the steps minimised, those of critics and policy alike"]
    actor_loss: Annotated[float, "minus the soft value of the policy"]
    critic_loss: Annotated[float, "squared errors of both critics together"]
    q_value: Annotated[float, "smaller Q of the tokens taken"]
    q_target: Annotated[float, "what the critics are fitted to"]
    temperature: Annotated[float, "alpha, the price of a nat of entropy"]
    entropy: Annotated[float, "mean entropy of the policy over the states of the replay, nats"]
    replay_rows: Annotated[float, "completions that the replay holds"]
    grad_norm: Annotated[float, "global norm of the policy's gradient before clipping"]
    critic_grad_norm: Annotated[float, "the same of the critics"]
    update_norm: Annotated[float, "norm of the step that the policy made"]
    update_cosine: Annotated[float, "cosine between this step and the one before it"]


class OwnPairStats(PairStats, total=False):
    """An iteration on pairs of the policy's own completions; tokens and bytes are those of all
    completions, in a pair or not."""

    pairs: Annotated[float, "pairs that the iteration's completions gave"]


class EpisodeStats(TypedDict, total=False):
    """One iteration's episodes, of a task of several turns; absent where there are none."""

    turns: Annotated[float, "mean turns of the policy in an episode"]
    faults: Annotated[float, "share of its turns that were a fault"]
    illegal: Annotated[float, "share of its turns that the rules refuse, though well-formed"]
    malformed: Annotated[float, "share of its turns that try to call a tool and are no call"]
    forked_rows: Annotated[float, "mean rows of an episode that a turn could not continue"]
    tool_calls: Annotated[float, "mean calls of tools in an episode"]


def meanings(stats: type) -> dict[str, str]:
    """Name -> what it is and its unit."""
    hints = get_type_hints(stats, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


STEP_STATS = meanings(StepStats)
ROLLOUT_STATS = meanings(RolloutStats)
UPDATE_STATS = STEP_STATS | ROLLOUT_STATS
FROZEN_STATS = meanings(FrozenStats)
PAIR_STATS = meanings(PairStats)
OWN_PAIR_STATS = meanings(OwnPairStats)
TEACHER_STATS = meanings(TeacherStats)
REPLAY_STATS = meanings(ReplayStats)
_OF_RECIPES = ("explained_variance", "kl_per_completion", "kl_coefficient")
SAMPLED_STATS = {name: text for name, text in ROLLOUT_STATS.items() if name not in _OF_RECIPES}
"""Figures of completions that are no part of a recipe of rewards."""
STATS: Mapping[Source, Mapping[str, str]] = {
    "rewards": UPDATE_STATS,
    "pairs": PAIR_STATS,
    "demonstrations": FROZEN_STATS,
    "teacher": TEACHER_STATS | SAMPLED_STATS,
    "replay": REPLAY_STATS | SAMPLED_STATS,
    "own-pairs": OWN_PAIR_STATS,
}
"""The figures of an iteration, by what is learned from."""
EPISODE_STATS = meanings(EpisodeStats)
"""Columns that the records of environments have besides."""
_OF_OTHERS = {
    name: text
    for stats in (OWN_PAIR_STATS, TEACHER_STATS, REPLAY_STATS)
    for name, text in stats.items()
    if name not in UPDATE_STATS
}
ALL_STATS = UPDATE_STATS | _OF_OTHERS | EPISODE_STATS
"""Every column that any record has."""


def mean_stats(
    steps: Sequence[Mapping[str, float]], names: Iterable[str] = STEP_STATS
) -> dict[str, float]:
    """Mean over the optimizer steps of an iteration; NaN where there was none.

    All have these names. ``ratio_max`` keeps the largest; a step without a cosine or a norm is left
    out of theirs.
    """
    averaged: dict[str, float] = {}
    for name in names:
        values = [step[name] for step in steps]
        if name in ("update_norm", "update_cosine"):
            values = [value for value in values if not math.isnan(value)]
        averaged[name] = sum(values) / len(values) if values else math.nan
    if "ratio_max" in averaged:
        averaged["ratio_max"] = max((step["ratio_max"] for step in steps), default=math.nan)
    return averaged
