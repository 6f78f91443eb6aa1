"""Baselines of roles in self-play: a seat that wins more often than another is no better for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def above_role_baseline(
    returns: Sequence[float],
    roles: Sequence[tuple[str, int]],
    baselines: Mapping[tuple[str, int], float],
    decay: float = 0.95,
) -> tuple[list[float], dict[tuple[str, int], float]]:
    """The return of each trajectory above a running mean of its role, and the means afterwards.

    b <- decay b + (1 - decay) R, A = R - b with b before the update, in the order given. That is
    the order of SPIRAL's code; its algorithm 1 subtracts after the update, which multiplies A by
    ``decay`` (arXiv 2506.24119). A role is a task and a seat of it; one that is new starts at 0.

    Args:
        returns: R of each trajectory.
        roles: Its task and seat.
        baselines: b of the roles that were seen before; stays as it is.
        decay: From 0 to below 1.
    """
    means = dict(baselines)
    advantages = []
    for earned, role in zip(returns, roles, strict=True):
        baseline = means.get(role, 0.0)
        advantages.append(earned - baseline)
        means[role] = decay * baseline + (1.0 - decay) * earned
    return advantages, means
