"""Parts that learn from pairs: by loops over plain numbers, by theorems, by their rules."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from crlbench.algo import recipes
from crlbench.algo.describe import objective, terms
from crlbench.algo.flip import flipped
from crlbench.algo.masked import masked_mean
from crlbench.algo.pairs.anchor import Anchor, Nll, NoAnchor
from crlbench.algo.pairs.loss import ConservativeDpo, Dpo, Ipo, PairLogprobs, PairLoss, RobustDpo
from crlbench.algo.pairs.pairing import AllOrdered, BestWorst, Pairing, RandomMixed
from crlbench.algo.pairs.recipe import PairRecipe
from crlbench.algo.part import parts_of
from crlbench.algo.recipe import Recipe, from_config, to_config
from crlbench.algo.reference import Ema, Reference, Round, Start
from crlbench.algo.supervised import SequenceNll, SupervisedRecipe, TokenNll
from crlbench.errors import UsageError

DPO = recipes.load("dpo")
ROOM = "crlbench.algo."


def sigma(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def plain_dpo(part, c, r, rc, rr, nc, nr):
    return -math.log(sigma(part.beta * ((c - rc) - (r - rr))))


def plain_ipo(part, c, r, rc, rr, nc, nr):
    nc, nr = (max(nc, 1), max(nr, 1)) if part.average else (1, 1)
    return ((c - rc) / nc - (r - rr) / nr - 1 / (2 * part.beta)) ** 2


def plain_conservative(part, c, r, rc, rr, nc, nr):
    h, s = part.beta * ((c - rc) - (r - rr)), part.label_smoothing
    return -(1 - s) * math.log(sigma(h)) - s * math.log(sigma(-h))


def plain_robust(part, c, r, rc, rr, nc, nr):
    h, s = part.beta * ((c - rc) - (r - rr)), part.label_smoothing
    return (-(1 - s) * math.log(sigma(h)) + s * math.log(sigma(-h))) / (1 - 2 * s)


PLAIN = {
    "Dpo": plain_dpo,
    "Ipo": plain_ipo,
    "ConservativeDpo": plain_conservative,
    "RobustDpo": plain_robust,
}
SETTINGS = [
    Dpo(), Dpo(0.7), Ipo(), Ipo(0.3), Ipo(0.3, average=False), ConservativeDpo(),
    ConservativeDpo(0.4, 0.2), RobustDpo(), RobustDpo(0.4, 0.2),
]  # fmt: skip


def own_parts(axis: type) -> set[str]:
    return {name for name, cls in parts_of(axis).items() if cls.__module__.startswith(ROOM)}


def drawn(seed: int, n: int = 7) -> PairLogprobs:
    """Pairs whose answers have 0 to 9 tokens."""
    generator = torch.Generator().manual_seed(seed)

    def numbers() -> Tensor:
        return -20 * torch.rand(n, generator=generator, dtype=torch.float64)

    counts = torch.randint(0, 10, (2, n), generator=generator).double()
    return PairLogprobs(numbers(), numbers(), numbers(), numbers(), counts[0], counts[1])


def rows(pairs: PairLogprobs):
    return zip(*(getattr(pairs, name).tolist() for name in pairs.__dataclass_fields__), strict=True)


@pytest.mark.parametrize("part", SETTINGS, ids=repr)
def test_a_loss_is_that_of_a_loop_over_plain_numbers(part: PairLoss) -> None:
    pairs = drawn(1)
    expected = [PLAIN[part.part](part, *row) for row in rows(pairs)]
    torch.testing.assert_close(
        part(pairs), torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("part", SETTINGS, ids=repr)
def test_a_gradient_is_that_of_differences(part: PairLoss) -> None:
    pairs, step = drawn(2), 1e-6
    sides = [pairs.chosen.clone().requires_grad_(), pairs.rejected.clone().requires_grad_()]
    part(replace(pairs, chosen=sides[0], rejected=sides[1])).sum().backward()
    for name, side in zip(("chosen", "rejected"), sides, strict=True):
        up, down = (
            part(replace(pairs, **{name: getattr(pairs, name) + sign * step})) for sign in (1, -1)
        )
        torch.testing.assert_close(side.grad, (up - down) / (2 * step), rtol=1e-6, atol=1e-7)


def test_every_part_has_a_plain_form_a_formula_and_a_source() -> None:
    assert own_parts(PairLoss) == set(PLAIN)
    for axis, kind in PairRecipe.axes.items():
        for cls in (parts_of(kind)[name] for name in own_parts(kind)):
            assert cls.formula, cls
            assert cls.source or cls is NoAnchor, (axis, cls)


def test_at_the_reference_dpo_loses_ln_2_and_nothing_is_extreme_at_the_edge() -> None:
    zeros = torch.zeros(3, dtype=torch.float64)
    same = PairLogprobs(zeros - 5, zeros - 9, zeros - 5, zeros - 9, zeros + 4, zeros + 6)
    assert Dpo()(same).tolist() == [math.log(2)] * 3
    far = replace(same, chosen=zeros - 1e5, rejected=zeros)
    for part in SETTINGS:
        side = far.chosen.clone().requires_grad_()
        loss = part(replace(far, chosen=side)).sum()
        loss.backward()
        assert torch.isfinite(loss) and torch.isfinite(side.grad).all()


def test_robust_dpo_expects_the_loss_of_dpo_under_flips() -> None:
    """The theorem it is made for, with a share of flips equal to the smoothing."""
    pairs, share = drawn(3), 0.3
    flipped_pairs = PairLogprobs(
        pairs.rejected, pairs.chosen, pairs.ref_rejected, pairs.ref_chosen,
        pairs.rejected_tokens, pairs.chosen_tokens,
    )  # fmt: skip
    robust = RobustDpo(0.2, share)
    expected = (1 - share) * robust(pairs) + share * robust(flipped_pairs)
    torch.testing.assert_close(expected, Dpo(0.2)(pairs), rtol=1e-12, atol=1e-12)


def test_the_anchor_is_the_likelihood_of_the_preferred_answer_per_token() -> None:
    pairs = drawn(4)
    expected = [-2 * c / max(nc, 1) for c, _, _, _, nc, _ in rows(pairs)]
    torch.testing.assert_close(Nll(2.0)(pairs), torch.tensor(expected, dtype=torch.float64))
    anchored = flipped(DPO, "anchor=nll:weight=2")
    torch.testing.assert_close(anchored.losses(pairs), Dpo()(pairs) + Nll(2.0)(pairs))
    assert flipped(anchored, "anchor=none").anchor == NoAnchor()
    assert own_parts(Anchor) == {"Nll", "NoAnchor"}


# -- which answers make pairs ----------------------------------------------------------------


@pytest.mark.parametrize("rule", [BestWorst(), RandomMixed(), AllOrdered()])
def test_equal_scores_make_no_pair_and_a_pair_is_always_better_and_worse(rule: Pairing) -> None:
    draw = random.Random(0)
    assert rule([], draw) == rule([0.5], draw) == rule([1.0, 1.0, 1.0], draw) == []
    assert rule([1.0, 0.0], draw) == [(0, 1)] and rule([0.0, 1.0], draw) == [(1, 0)]
    for _ in range(200):
        scores = [draw.choice([0.0, 0.5, 1.0]) for _ in range(draw.randint(0, 6))]
        pairs = rule(scores, draw)
        assert all(scores[i] > scores[j] for i, j in pairs)
        assert bool(pairs) == (len(set(scores)) > 1)
        assert len({*pairs}) == len(pairs)


def test_pairings_by_hand() -> None:
    scores = [0.5, 1.0, 0.0, 1.0, 0.0]
    draw = random.Random(1)
    assert BestWorst()(scores, draw) == [(1, 2)]
    everything = [(0, 2), (0, 4), (1, 0), (1, 2), (1, 4), (3, 0), (3, 2), (3, 4)]
    assert AllOrdered()(scores, draw) == everything
    counts = dict.fromkeys(everything, 0)
    for _ in range(4000):
        (pair,) = RandomMixed()(scores, draw)
        counts[pair] += 1
    # Each is drawn 500 times on average, with a standard deviation of 21.
    assert all(400 < count < 600 for count in counts.values())
    assert own_parts(Pairing) == {"BestWorst", "RandomMixed", "AllOrdered"}


# -- the reference ---------------------------------------------------------------------------


def test_when_a_round_begins() -> None:
    begins = [i for i in range(10) if Round(4).round_begins(i, 10)]
    assert begins == [2, 5, 7]
    assert not any(Round(1).round_begins(i, 10) for i in range(10))
    assert [i for i in range(3) if Round(9).round_begins(i, 3)] == [1, 2]
    assert not any(part.round_begins(5, 10) for part in (Start(), Ema()))
    assert (Start().kept, Round().kept, Ema(0.9).kept) == (1.0, 1.0, 0.9)
    assert own_parts(Reference) == {"Start", "Round", "Ema"}


# -- recipes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", recipes.names_of(PairRecipe) + recipes.names_of(SupervisedRecipe))
def test_a_recipe_goes_to_plain_data_and_back(name: str) -> None:
    recipe = recipes.load(name)
    assert from_config(to_config(recipe)) == recipe
    assert not isinstance(recipe, Recipe)
    assert objective(recipe).startswith("L = ")
    assert [term.part for term in terms(recipe)] == [getattr(recipe, axis) for axis in recipe.roles]
    assert all(term.formula for term in terms(recipe))


def test_flips_change_one_axis() -> None:
    derived = recipes.load("dpo+reference=ema:decay=0.9")
    assert derived.reference == Ema(0.9) and derived.differs_by(DPO) == {"reference"}
    assert recipes.load(derived.name) == derived
    assert recipes.load("dpo+pair_loss.beta=0.3").pair_loss == Dpo(0.3)
    assert recipes.load("sft+likelihood=sequence-nll").likelihood == SequenceNll()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dpo+clip.high=0.3", "unknown axis 'clip'. Known: anchor, pair_loss, pairing, reference"),
        ("dpo+pair_loss=dppo", "unknown part of axis 'pair_loss' 'dppo'. Did you mean dpo"),
        ("dpo+pair_loss.beta=0", "Dpo.beta must be above 0"),
        ("robust-dpo+pair_loss.label_smoothing=0.5", "label_smoothing must be from 0, below 0.5"),
        ("dpo+reference=ema:decay=1", "Ema.decay must be from 0, below 1"),
        ("dpo+reference=round:rounds=0", "Round.rounds must be at least 1"),
        ("dpo+anchor=nll:weight=0", "Nll.weight must be above 0"),
        ("grpo+pair_loss=dpo", "unknown axis 'pair_loss'"),
    ],
)
def test_impossible_settings_are_refused(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        recipes.load(name)


def test_a_toml_file_may_build_on_a_recipe_of_pairs(tmp_path) -> None:
    home = tmp_path / "recipes"
    home.mkdir()
    (home / "soft.toml").write_text('base = "dpo"\n[pair_loss]\nbeta = 0.01\n')
    (home / "whole.toml").write_text('pair_loss = "ipo"\nanchor = "nll"\n')
    assert recipes.load("soft", [tmp_path]) == PairRecipe("soft", Dpo(0.01))
    assert recipes.load("whole", [tmp_path]) == PairRecipe("whole", Ipo(), anchor=Nll())


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected one \(N,\)"):
        replace(drawn(5), chosen=torch.zeros(3))


# -- demonstrations --------------------------------------------------------------------------


def test_likelihoods_are_those_of_a_loop_over_tokens() -> None:
    generator = torch.Generator().manual_seed(6)
    logprobs = -torch.rand(4, 5, generator=generator, dtype=torch.float64)
    mask = torch.arange(5) < torch.tensor([5, 2, 0, 3])[:, None]
    kept = [
        [x for x, m in zip(*row, strict=True) if m]
        for row in zip(logprobs.tolist(), mask.tolist(), strict=True)
    ]
    tokens = [x for row in kept for x in row]
    by_token, by_row = TokenNll(), SequenceNll()
    assert float(by_token(logprobs, mask, 4, 10)) == pytest.approx(-sum(tokens) / 10, rel=1e-12)
    means = [sum(row) / max(1, len(row)) for row in kept]
    assert float(by_row(logprobs, mask, 4, 10)) == pytest.approx(-sum(means) / 4, rel=1e-12)
    for part in (by_token, by_row):  # parts of a step add up
        halves = [part(logprobs[r], mask[r], 4, 10) for r in (slice(0, 2), slice(2, 4))]
        torch.testing.assert_close(sum(halves), part(logprobs, mask, 4, 10))
    torch.testing.assert_close(-masked_mean(logprobs, mask), by_token(logprobs, mask, 4, 10))


# -- the theorem and the failure -------------------------------------------------------------

REWARD = torch.tensor([1.0, 0.2, -0.3, 0.6, -1.0], dtype=torch.float64)
BETA = 0.5


def optimum(reference: Tensor) -> Tensor:
    """pi* of the KL-regularised problem: proportional to pi_ref exp(r / beta)."""
    return torch.softmax(torch.log_softmax(reference, 0) + REWARD / BETA, 0)


def descend(loss_of, start: Tensor, steps: int = 1000) -> Tensor:
    """Logits after gradient steps on a loss."""
    logits = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=0.03)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(logits).backward()
        optimizer.step()
    return logits.detach()


def test_dpo_and_kl_regularised_rl_end_at_one_policy() -> None:
    """One prompt, five answers of one token, labels by Bradley-Terry under a known reward."""
    generator = torch.Generator().manual_seed(7)
    start = torch.randn(5, generator=generator, dtype=torch.float64)
    reference = torch.log_softmax(start, 0)
    first, second = (
        x.flatten() for x in torch.meshgrid(torch.arange(5), torch.arange(5), indexing="ij")
    )
    apart = first != second
    first, second = first[apart], second[apart]
    chance = torch.sigmoid(REWARD[first] - REWARD[second])
    ones = torch.ones(len(first), dtype=torch.float64)

    def dpo(logits: Tensor) -> Tensor:
        policy = torch.log_softmax(logits, 0)
        pairs = PairLogprobs(
            policy[first], policy[second], reference[first], reference[second], ones, ones
        )
        return (chance * flipped(DPO, f"pair_loss.beta={BETA}").losses(pairs)).sum()

    def regularised(logits: Tensor) -> Tensor:
        policy = torch.log_softmax(logits, 0)
        return -(policy.exp() * (REWARD - BETA * (policy - reference))).sum()

    by_pairs, by_reward = (torch.softmax(descend(loss, start), 0) for loss in (dpo, regularised))
    torch.testing.assert_close(by_pairs, by_reward, rtol=0, atol=1e-3)
    torch.testing.assert_close(by_pairs, optimum(start), rtol=0, atol=1e-3)
