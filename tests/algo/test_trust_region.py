"""The natural-gradient step: its linear algebra, its bound, and a peer's whole updates."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch

from crlbench.algo.masked import masked_whiten
from crlbench.algo.recipes import load
from crlbench.algo.step import AdamStep, TrustRegion, UpdateRule
from crlbench.algo.trust_region import (
    Measure,
    conjugate_gradient,
    flatten,
    kl_product,
    natural_step,
    token_kl,
    trust_region_step,
    unflatten,
)
from crlbench.errors import UsageError

GOLDEN = Path(__file__).parents[1] / "golden" / "trpo_step.json.gz"
CASES = json.loads(gzip.decompress(GOLDEN.read_bytes()))["cases"]


class Table:
    """A tabular softmax policy: logits (S, A), one row per state, and a batch of actions."""

    def __init__(self, logits, states, actions, advantages, direction="old-new"):
        self.logits = logits.clone().requires_grad_()
        self.states, self.actions, self.advantages = states, actions, advantages
        self.direction = direction
        self.old = self.distribution().detach()

    def distribution(self):
        return torch.log_softmax(self.logits, -1)[self.states]

    def surrogate(self):
        taken = self.actions.unsqueeze(-1)
        ratio = (self.distribution() - self.old).gather(-1, taken).squeeze(-1).exp()
        return (ratio * self.advantages).mean()

    def kl(self):
        return token_kl(self.distribution(), self.old, self.direction).mean()

    @torch.no_grad()
    def measure(self):
        return Measure(float(self.surrogate()), float(self.kl()))

    def step(self, rule, product=None):
        (gradient,) = torch.autograd.grad(self.surrogate(), [self.logits])
        product = product or kl_product(self.kl(), [self.logits])
        return trust_region_step([self.logits], gradient.flatten(), product, self.measure, rule)


def trpo_step(params, x):
    """A golden case through our options: its outputs under the peer's names."""
    if "H" in x:
        solution, _ = conjugate_gradient(lambda v: x["H"] @ v, x["b"], params["max_iter"])
        return {"x": solution}
    advantages = x["advantages"]
    if params["normalize_advantage"]:
        everywhere = torch.ones_like(advantages).bool()
        advantages = masked_whiten(advantages, everywhere, eps=1e-8, eps_place="std")
    table = Table(x["logits"], x["states"], x["actions"], advantages, "new-old")
    rule = TrustRegion(
        max_kl=params["target_kl"],
        damping=params["cg_damping"],
        cg_iterations=params["cg_max_steps"],
        backtrack=params["line_search_shrinking_factor"],
        tries=params["line_search_max_iter"],
    )
    result = table.step(rule)
    return {
        "new_logits": table.logits.detach(),
        "policy_objective": table.surrogate().detach(),
        "kl_new_old": torch.tensor(result.kl),
        "line_search_success": torch.tensor(float(result.accepted)),
    }


def decode(value):
    return torch.tensor(value["data"], dtype=getattr(torch, value["dtype"])).view(value["shape"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_peers_updates_are_reproduced(case):
    found = trpo_step(case["params"], {n: decode(v) for n, v in case["inputs"].items()})
    for name, value in case["outputs"].items():
        expected = decode(value).double()
        torch.testing.assert_close(
            found[name].double(), expected, rtol=case["rtol"], atol=case["atol"], msg=name
        )


def a_table(seed=0, advantages=None, **options):
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randn(4, 5, generator=draw, dtype=torch.float64)
    states = torch.randint(0, 4, (30,), generator=draw)
    actions = torch.randint(0, 5, (30,), generator=draw)
    drawn = torch.randn(30, generator=draw, dtype=torch.float64)
    return Table(logits, states, actions, drawn if advantages is None else advantages, **options)


@pytest.mark.parametrize("size", [1, 5, 40])
def test_conjugate_gradient_solves_a_linear_system(size):
    draw = torch.Generator().manual_seed(size)
    root = torch.randn(size, size, generator=draw, dtype=torch.float64)
    matrix = root @ root.T + torch.eye(size, dtype=torch.float64)
    b = torch.randn(size, generator=draw, dtype=torch.float64)
    x, image = conjugate_gradient(lambda v: matrix @ v, b, 5 * size, tolerance=1e-24)
    torch.testing.assert_close(x, torch.linalg.solve(matrix, b))
    torch.testing.assert_close(image, matrix @ x)


def test_conjugate_gradient_stops_where_it_is_done():
    calls = []
    b = torch.tensor([3.0, -4.0])
    x, _ = conjugate_gradient(lambda v: calls.append(v) or 2.0 * v, b, 50)
    assert len(calls) == 1 and torch.equal(x, b / 2)
    assert not conjugate_gradient(lambda v: v, torch.zeros(3), 10)[0].any()
    assert not conjugate_gradient(lambda v: -v, b, 10)[0].any()


@pytest.mark.parametrize("direction", ["old-new", "new-old"])
def test_the_product_is_that_of_the_explicit_fisher_matrix(direction):
    table = a_table(direction=direction)
    p = table.old.exp()
    fisher = torch.zeros(20, 20, dtype=torch.float64)
    for state, q in zip(table.states, p, strict=True):
        at = slice(5 * int(state), 5 * int(state) + 5)
        fisher[at, at] += (torch.diag(q) - torch.outer(q, q)) / len(p)
    product = kl_product(table.kl(), [table.logits])
    columns = [product(v) for v in torch.eye(20, dtype=torch.float64)]
    torch.testing.assert_close(torch.stack(columns, 1), fisher)


def test_kl_of_known_distributions_by_direction():
    old = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64).log()
    new = torch.tensor([0.25, 0.5, 0.25], dtype=torch.float64).log()
    assert token_kl(new, old).item() == pytest.approx(0.5 * 0.6931471805599453)
    assert token_kl(new, old, "new-old") > 1e100  # what the old policy could never say
    assert token_kl(old, old).item() == 0.0


def test_the_full_step_spends_the_bound_by_the_quadratic_model():
    table, rule = a_table(), TrustRegion(max_kl=0.02, damping=0.1, cg_iterations=50)
    (gradient,) = torch.autograd.grad(table.surrogate(), [table.logits])
    product = kl_product(table.kl(), [table.logits])
    step = natural_step(product, gradient.flatten(), rule)
    spent = 0.5 * step.dot(product(step) + rule.damping * step)
    assert spent.item() == pytest.approx(rule.max_kl)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("max_kl", [1e-3, 0.05, 1.0])
def test_a_step_improves_within_the_bound(seed, max_kl):
    table = a_table(seed)
    before = table.measure()
    result = table.step(TrustRegion(max_kl=max_kl, damping=1e-3))
    after = table.measure()
    assert result.accepted and 0 < after.kl <= max_kl and after.objective > before.objective
    assert result.kl == after.kl
    assert result.improvement == pytest.approx(after.objective - before.objective)
    assert 0 < result.fraction <= 1


def test_a_rejected_step_restores_every_bit():
    table = a_table()
    start = table.logits.detach().clone()
    looks = []

    def never_better():
        looks.append(table.logits.detach().clone())
        return Measure(0.0, 0.0)

    (gradient,) = torch.autograd.grad(table.surrogate(), [table.logits])
    product = kl_product(table.kl(), [table.logits])
    result = trust_region_step(
        [table.logits], gradient.flatten(), product, never_better, TrustRegion(tries=4)
    )
    assert result.reason == "line search failed" and result.kl == result.fraction == 0.0
    assert len(looks) == 5 and not torch.equal(looks[1], start)
    assert torch.equal(table.logits, start)


@pytest.mark.parametrize("kl", [0.011, float("nan"), float("inf")])
def test_the_bound_is_hard_whatever_the_improvement(kl):
    weights = torch.zeros(3)
    result = trust_region_step(
        [weights],
        torch.ones(3),
        lambda v: v,
        lambda: Measure(float(weights.sum()), kl if weights.any() else 0.0),
        TrustRegion(max_kl=0.01),
    )
    assert result.reason == "line search failed" and not weights.any()


@pytest.mark.parametrize("size", [0.0, 1e-12])
def test_no_advantage_no_step(size):
    table = a_table(advantages=torch.full((30,), size, dtype=torch.float64))
    start = table.logits.detach().clone()
    assert table.step(TrustRegion()).reason == "no gradient"
    assert torch.equal(table.logits, start)


def test_negative_curvature_and_numbers_that_are_none():
    table = a_table()
    start = table.logits.detach().clone()
    assert table.step(TrustRegion(), product=lambda v: -v).reason == "negative curvature"
    assert table.step(TrustRegion(), product=lambda v: v * torch.nan).reason == "negative curvature"
    lost = a_table(advantages=torch.full((30,), torch.nan, dtype=torch.float64))
    assert lost.step(TrustRegion()).reason == "not finite"
    assert torch.equal(table.logits, start)


def test_flat_vectors_and_missing_slopes():
    like = [torch.zeros(2, 3), torch.zeros(4)]
    vector = flatten([torch.arange(6.0).view(2, 3), None], like)
    assert vector.tolist() == [0, 1, 2, 3, 4, 5, 0, 0, 0, 0]
    first, second = unflatten(vector, like)
    assert first.shape == (2, 3) and not second.any()


def test_the_axis_and_its_ranges():
    assert isinstance(AdamStep(), UpdateRule) and TrustRegion().max_kl == 0.01
    for part in (AdamStep, TrustRegion):
        assert part.formula and part.source
    wrong = {
        "max_kl": 0.0,
        "damping": -0.1,
        "cg_iterations": 0,
        "backtrack": 1.0,
        "tries": 0,
        "fisher_rows": 0,
    }
    for name, value in wrong.items():
        with pytest.raises(UsageError, match=name):
            TrustRegion(**{name: value})


def test_the_recipe_differs_from_grpo_where_it_says():
    trpo = load("trpo")
    assert trpo.differs_by(load("grpo")) == {"step", "clip", "kl", "aggregate"}
    assert trpo.step == TrustRegion() and not trpo.needs_reference
