"""How far the order of a board reaches: what the start explains, and what other tasks leave of it.

A tier is about these checkpoints on these tasks. Both sentences here are computed from the same
stored results as the tiers, and appear where the data bear them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from crlbench.base import wording
from crlbench.site.briefs import SPLITS, Brief
from crlbench.site.pairs import Pairs
from crlbench.stats.correlations import spearman
from crlbench.stats.intervals import student_cdf
from crlbench.verdict.axes import Axis
from crlbench.verdict.entry import Entry

DECODED = dict(zip(("sampled", "greedy"), SPLITS, strict=True))
"""Splits by the columns that show their scores."""
MIN_ENTRIES = 5
"""Fewer entries have no rank correlation worth a sentence."""
SHARPENED = 0.25
"""A greedy gain below this share of the sampled one: samples were sharpened, little was added."""
ERROR = 0.05
"""Level of the two-sided test of a rank correlation against 0."""


def mean_scores(entries: Sequence[Brief], split: str) -> tuple[float, float] | None:
    """Mean score on a split before and after training; None where one was not scored."""
    by_entry = [entry["scores"][split] for entry in entries]
    if None in by_entry:
        return None
    parts = [part for parts in by_entry for part in parts]
    return fmean(start for start, _ in parts), fmean(end for _, end in parts)


def describe_start(
    entries: Sequence[Brief], lams: Sequence[float | None], sign: str = "Λ", rows: str = "entries"
) -> str:
    """Whether what ranks follows the greedy score before training, in a sentence; empty for few.

    Args:
        lams: sample efficiency of each, as it ranks.
        sign: its sign.
        rows: what they are.
    """
    pairs = []
    for entry, lam in zip(entries, lams, strict=True):
        scores = mean_scores([entry], DECODED["greedy"])
        if scores is not None and lam is not None:
            pairs.append((scores[0], lam))
    if len(pairs) < MIN_ENTRIES:
        return ""
    rho = spearman(*zip(*pairs, strict=True))
    if rho is None:
        return ""
    evidence = f"rank correlation {wording.number(rho, 2)} over {len(pairs)} {rows}"
    if rho > 0 and _excludes_zero(rho, len(pairs)):
        return (
            f"{rows.capitalize()} with a higher greedy score before training have a higher {sign} "
            f"({evidence})."
        )
    return f"The greedy score before training is not shown to order {sign} ({evidence})."


def describe_decoding(entries: Sequence[Brief], rows: str = "entries") -> str:
    """Mean scores before and after training, sampled and greedy; empty where one is not known.

    Args:
        rows: what they are.
    """
    sampled, greedy = (mean_scores(entries, split) for split in DECODED.values())
    if sampled is None or greedy is None:
        return ""
    mean = f"on average over these {rows} " if len(entries) > 1 else ""
    ends = tuple(map(wording.number, (*sampled, *greedy)))
    return (
        "Scores are of completions that were sampled at temperature 1, as in training: "
        f"{mean}{ends[0]} before it and {ends[1]} after. Decoded greedily: {ends[2]} and {ends[3]}."
    )


def describe_other_tasks(
    axis: Axis, leader: Entry, behind: Sequence[Entry], pairs: Pairs | None = None
) -> str:
    """How many of the leader's differences exclude 0 over other tasks, in a sentence.

    Args:
        behind: the entries that are significantly worse on the board's own tasks.
        pairs: compares them; None: nothing is known of them yet.

    Returns:
        Empty where nobody is behind, or no difference has an interval over tasks.
    """
    compare = (pairs or Pairs()).compare
    effects = {e.full_name: compare(leader, e).axes[axis].effect for e in behind}
    wider = {name: effect and effect.wider for name, effect in effects.items()}
    if not any(interval is not None for interval in wider.values()):
        return ""
    ahead = [
        name
        for name, wider_interval in wider.items()
        if wider_interval is not None and wider_interval.high < 0
    ]
    total = wording.count(len(wider), "interval")
    if not ahead:
        return f"Over similar tasks that were not run, none of {total} excludes 0."
    verb = "excludes" if len(ahead) == 1 else "exclude"
    return (
        f"Over similar tasks that were not run, {len(ahead)} of {total} {verb} 0: "
        f"{wording.listed(ahead, 4)}."
    )


def describe_leads(axis: Axis, ranked: Sequence[tuple[Entry, Entry]], pairs: Pairs) -> str:
    """How many of all leads would be undecided on a new task, in a sentence.

    Args:
        ranked: all pairs of ranked entries.

    Returns:
        Empty where no pair has a lead, or none has an interval over tasks.
    """
    effects = [pairs.compare(*pair).axes[axis] for pair in ranked]
    leads = [one.effect for one in effects if one.call in ("better", "worse") and one.effect]
    if not any(one.wider is not None for one in leads):
        return ""
    known = [one.wider for one in leads if one.wider is not None]
    undecided = len(leads) - sum(one.low > 0 or one.high < 0 for one in known)
    if not undecided:
        return f"All {wording.count(len(leads), 'lead')} hold over similar tasks that were not run."
    return (
        f"On a new task the order may differ: {undecided} of {wording.count(len(leads), 'lead')} "
        f"{'is' if undecided == 1 else 'are'} undecided there."
    )


def describe_sharpening(entries: Sequence[Brief], what: str = "entries") -> tuple[str, str]:
    """The greedy score before and after training, and what it says of the gain; empty texts where
    a score is not known.

    Args:
        what: the entries are, as a plural.
    """
    sampled, greedy = (mean_scores(entries, split) for split in DECODED.values())
    if sampled is None or greedy is None:
        return "", ""
    change = " → ".join(map(wording.number, greedy))
    gain, new = sampled[1] - sampled[0], greedy[1] - greedy[0]
    of = f"mean of {len(entries)} {what}, " if len(entries) > 1 else ""
    about = f"Sampled score, {of}{' → '.join(map(wording.number, sampled))}. "
    if gain > 0 and new < SHARPENED * gain:
        return change, f"{about}RL here mostly sharpens what these models already know."
    return change, f"{about}RL here also changes what these models find likeliest."


def _excludes_zero(rho: float, n: int) -> bool:
    """Student's test of a rank correlation, with n - 2 degrees of freedom."""
    unexplained = 1.0 - rho * rho
    if unexplained < 1e-12:
        return True
    t = abs(rho) * math.sqrt((n - 2) / unexplained)
    return 2 * (1 - student_cdf(t, n - 2)) < ERROR
