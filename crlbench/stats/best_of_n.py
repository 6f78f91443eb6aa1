"""Best-of-n, votes and their KL from N draws of each item, without drawing again.

Of N draws of an item, n are taken without replacement. Best-of-n keeps the one with the highest
proxy (what a reward model pays); equal proxies are drawn from at random. The expectation over all
subsets has a closed form, as pass@k has (Chen et al. 2021, equation 1). Votes have none that is
cheap: they are averaged over keyed subsets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln

from crlbench.errors import ValidationError
from crlbench.seeding import rng

SUBSETS = 64
"""Keyed subsets that votes are averaged over, at least."""


def best_of_n(proxy: np.ndarray, value: np.ndarray, n: int) -> np.ndarray:
    """(I,) expected value of the draw with the highest proxy among n.

    Args:
        proxy: (I, N) what the choice is made by.
        value: (I, N) what is wanted of the chosen draw.
        n: at most N.

    Raises:
        ValidationError: n lies outside 1 ... N.
    """
    return (chosen_shares(proxy, n) * value).sum(axis=1)


def chosen_shares(proxy: np.ndarray, n: int) -> np.ndarray:
    """(I, N) the chance that each draw is the best of n; rows sum to 1.

    Draws of one proxy share the chance that the highest of n is theirs: with ``below`` draws of
    a lower proxy and ``upto`` of no higher one it is (C(upto, n) - C(below, n)) / C(N, n).

    Raises:
        ValidationError: n lies outside 1 ... N.
    """
    proxy = np.asarray(proxy)
    draws = proxy.shape[1]
    if not 1 <= n <= draws:
        raise ValidationError(f"best of {n} of {draws} draws: n must be from 1 to {draws}")
    below, upto = _ranks(proxy)
    held = _subsets_within(draws, n)
    return (held[upto] - held[below]) / (upto - below)


def kl_of_best(proxy: np.ndarray, texts: Sequence[Sequence[str]], n: int) -> np.ndarray:
    """(I,) KL in nats of best-of-n from the distribution of an item's distinct texts.

    That distribution is the empirical one, p. Best-of-n draws n texts of it *with* replacement:
    a text whose proxy has the distribution function F has the chance F^n - F_below^n, divided
    among texts of equal proxy as p is. Ties make it smaller than log n - (n - 1) / n, which is
    a bound (Beirami et al. 2024, arXiv 2401.01879, theorem 1): see :func:`kl_bound`.

    Args:
        proxy: (I, N); equal texts of an item have equal proxies.
        texts: I of N texts.
    """
    proxy = np.asarray(proxy)
    draws = proxy.shape[1]
    below, upto = _ranks(proxy)
    # A text's chance over its probability is one number for all texts of a proxy. So the sum over
    # texts is a sum over draws, and which texts are distinct within a proxy does not matter.
    _require_one_proxy(proxy, texts)
    mass = ((upto / draws) ** n - (below / draws) ** n) * draws / (upto - below)
    logs = np.log(mass, out=np.zeros_like(mass), where=mass > 0)
    return (mass * logs).mean(axis=1)


def kl_bound(n: int) -> float:
    """log n - (n - 1) / n: the KL of best-of-n where no two draws have equal proxies."""
    return math.log(n) - (n - 1) / n


def majority(
    answers: Sequence[Sequence[str]],
    value: np.ndarray,
    n: int,
    weights: np.ndarray | None = None,
    key: str = "votes",
) -> np.ndarray:
    """(I,) expected value of the answer that most of n draws give.

    Ties are drawn from at random: their values are averaged. An answer's value is the mean over
    its draws in the subset.

    Args:
        answers: I of N answers; a vote is counted for equal ones.
        value: (I, N).
        n: at most N.
        weights: (I, N) what the vote of each draw weighs; 1 where it is None.
        key: names the subsets; another key draws others.

    Raises:
        ValidationError: n lies outside 1 ... N.
    """
    value = np.asarray(value, dtype=np.float64)
    items, draws = value.shape
    if not 1 <= n <= draws:
        raise ValidationError(f"votes of {n} of {draws} draws: n must be from 1 to {draws}")
    weights = np.ones_like(value) if weights is None else np.asarray(weights, dtype=np.float64)
    rows = zip(answers, value, weights, strict=True)
    return np.array(
        [_voted(*row, _subsets(key, item, draws, n)) for item, row in enumerate(rows)]
    ).reshape(items)


def within_variance(proxy: np.ndarray) -> float:
    """Mean over items of the variance (divided by N) of their proxies.

    Low variance stalls learning whatever the accuracy (Razin et al. 2025, arXiv 2503.15477).
    """
    return float(np.asarray(proxy, dtype=np.float64).var(axis=1).mean())


def auc(proxy: np.ndarray, gold: np.ndarray) -> float | None:
    """Chance that a right draw has a higher proxy than a wrong one of the same item, ties half.

    Mean over all such pairs of all items; None where no item has both.

    Args:
        proxy, gold: (I, N); a draw is right where its gold is at least one half.
    """
    wins, pairs = 0.0, 0
    for paid, right in zip(np.asarray(proxy), np.asarray(gold) >= 0.5, strict=True):
        difference = paid[right][:, None] - paid[~right][None, :]
        wins += float((difference > 0).sum()) + 0.5 * float((difference == 0).sum())
        pairs += difference.size
    return wins / pairs if pairs else None


def wrong_at_top(proxy: np.ndarray, gold: np.ndarray, share: float = 1 / 8) -> float:
    """Mean share of wrong draws among the ``share`` of all draws with the highest proxies.

    Draws of the proxy at the border count by the part of them that fits.
    """
    paid, wrong = np.asarray(proxy).ravel(), (np.asarray(gold) < 0.5).ravel().astype(float)
    room = share * len(paid)
    total = 0.0
    for level in np.unique(paid)[::-1]:
        at = paid == level
        part = min(float(at.sum()), room)
        total += part * float(wrong[at].mean())
        room -= part
        if room <= 0:
            break
    return total / (share * len(paid))


def _ranks(proxy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(I, N) int64 each: draws of an item with a lower proxy, and with no higher one."""
    ordered = np.sort(proxy, axis=1)
    pairs = list(zip(ordered, proxy, strict=True))
    below = np.stack([np.searchsorted(row, values, "left") for row, values in pairs])
    upto = np.stack([np.searchsorted(row, values, "right") for row, values in pairs])
    return below, upto


def _subsets_within(draws: int, n: int) -> np.ndarray:
    """(draws + 1,) entry m: the chance that n of ``draws`` all lie among m given ones."""
    m = np.arange(draws + 1)
    enough = m >= n
    room = np.where(enough, m - n, 0)
    logs = gammaln(m + 1) - gammaln(room + 1) - gammaln(draws + 1) + gammaln(draws - n + 1)
    return np.where(enough, np.exp(logs), 0.0)


def _require_one_proxy(proxy: np.ndarray, texts: Sequence[Sequence[str]]) -> None:
    for item, (paid, said) in enumerate(zip(proxy, texts, strict=True)):
        proxies: dict[str, float] = {}
        for one, text in zip(paid.tolist(), said, strict=True):
            if proxies.setdefault(text, one) != one:
                raise ValidationError(
                    f"item {item}: one text has the proxies {proxies[text]} and {one}; a reward "
                    "model pays equal texts of an item alike."
                )


def _subsets(key: str, item: int, draws: int, n: int) -> np.ndarray:
    """(S, n) keyed subsets of an item's draws: as many orders as needed, each cut into pieces of n.

    So every draw is used about equally often, and the only subset of all draws is one.
    """
    pieces = draws // n
    generator, subsets = rng(0, key, item), []
    for _ in range(1 if n == draws else -(-SUBSETS // pieces)):
        order = list(range(draws))
        generator.shuffle(order)
        subsets += [order[i * n : (i + 1) * n] for i in range(pieces)]
    return np.array(subsets)


def _voted(
    answers: Sequence[str], value: np.ndarray, weights: np.ndarray, subsets: np.ndarray
) -> float:
    """Mean value over subsets (S, n) of the answer that wins the vote of an item."""
    number = {answer: i for i, answer in enumerate(dict.fromkeys(answers))}
    given = np.eye(len(number))[[number[answer] for answer in answers]]
    votes, counts, sums = (
        (given * by[:, None])[subsets].sum(1) for by in (weights, np.ones_like(value), value)
    )
    won = votes > votes.max(1, keepdims=True) - 1e-12
    values = sums / np.maximum(counts, 1.0)
    return float(((values * won).sum(1) / won.sum(1)).mean())
