"""Over-optimisation in words and tables: best-of-n of a reward model, and fits of gold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crlbench.base import wording
from crlbench.pages.table import Column, Table, rows_of
from crlbench.pages.words import estimate
from crlbench.stats.over_optimisation import FORMULAS, Figure, OverOptimisation

BEST_OF = (
    Column("n", "whole", "completions that one is chosen from"),
    Column("proxy", "number", "what the reward model pays the chosen completion"),
    Column("gold", "number", "the verifier's score of the chosen completion"),
    Column("low", "number", "lower end of the 95 % interval of gold", path="interval.low"),
    Column("high", "number", "upper end", path="interval.high"),
    Column("majority", "number", "gold of the answer that most of n give"),
    Column("weighted", "number", "gold of the answer with the largest sum of rewards"),
    Column("oracle", "number", "whether any of n is right (pass@n)"),
    Column("kl", "number", "KL of best-of-n from the completions sampled, nats"),
    Column("bound", "number", "log n − (n − 1) / n", path="kl_bound"),
)
"""Columns of the table of best-of-n, read from :class:`crlbench.run.best_of.BestOf`."""


QUALITY = (
    Column("pairs", "number", "share of held-out pairs in the right order", path="pairs.id"),
    Column("low", "number", "lower end of its 95 % interval", path="pairs.id_low"),
    Column("high", "number", "upper end", path="pairs.id_high"),
    Column("auc", "number", "chance that a right completion of an item is paid more than a wrong"),
    Column("variance", "number", "mean variance of the reward within an item"),
    Column("wrong_at_top", "number", "share of wrong ones in the eighth that is paid most"),
)
"""Columns of a reward model, read from :class:`crlbench.run.best_of.RewardQuality`."""


def quality_table(quality: Any) -> Table:
    """What a reward model does on held-out pairs and on sampled completions."""
    return Table(QUALITY, [*rows_of(QUALITY, [quality])], title="Reward model")


def best_of_table(title: str, rows: Iterable[Any], notes: Iterable[str]) -> Table:
    """The table of best-of-n with its notes."""
    return Table(BEST_OF, [*rows_of(BEST_OF, rows)], title=title, notes=(tuple(notes),))


def curve_sentences(curve: OverOptimisation | None, lack: str) -> list[str]:
    """The fit and its finding, then peak and loss; ``lack`` says why there is no fit."""
    if curve is None:
        return [wording.sentence(f"no fit: {lack}")]
    a, b, peak, at, loss = map(figure_text, curve.figures().values())
    return [
        f"Fit of gold: R(d) = {FORMULAS[curve.form]}, d = √KL, a = {a}, b = {b}: {curve.finding}.",
        f"Gold is highest at d = {at}: {peak}. The last point is lower by {loss}.",
    ]


def figure_text(figure: Figure) -> str:
    """A number and, where there is one, its interval."""
    return estimate(figure)
