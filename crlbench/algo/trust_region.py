"""One natural-gradient step under a hard bound on the divergence.

Schulman et al. 2015 (arXiv 1502.05477), section 6 and appendix C: maximise J to first order
under a second-order model of the mean KL, then shrink the step until the true KL obeys the
bound and the true J improves. Everything here works on closures over the present weights, so
it knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from crlbench.algo.step import TrustRegion

Product = Callable[[Tensor], Tensor]
"""A symmetric matrix, given by what it does to a vector (n,)."""
Direction = Literal["old-new", "new-old"]

NO_GRADIENT = 1e-8
"""Gradient norms up to this are rounding: the step's length does not shrink with them."""

Reason = Literal[
    "accepted", "no gradient", "not finite", "negative curvature", "line search failed"
]


class Measure(NamedTuple):
    """What the line search looks at, at the present weights."""

    objective: float
    """J, the surrogate to maximise."""
    kl: float
    """Mean KL to the policy before the step, in nats."""


@dataclass(frozen=True)
class StepResult:
    """What became of one step."""

    reason: Reason
    kl: float = 0.0
    """Mean KL of the step taken, in nats; 0 if none was."""
    improvement: float = 0.0
    """J after minus J before; 0 if no step was taken."""
    fraction: float = 0.0
    """Share of the full step that was taken."""

    @property
    def accepted(self) -> bool:
        return self.reason == "accepted"


def token_kl(new: Tensor, old: Tensor, direction: Direction = "old-new") -> Tensor:
    """KL over the whole vocabulary of each token (...), differentiable, in nats.

    ``new`` and ``old`` are log-distributions (..., V). ``old-new`` is KL(old || new), the
    paper's; ``new-old`` is that of stable-baselines3-contrib. Where the two distributions are
    equal, both have the same Hessian.
    """
    p, q = (old, new) if direction == "old-new" else (new, old)
    # A token that p cannot produce adds nothing, but 0 * (-inf - x) would be NaN.
    floor = torch.finfo(p.dtype).min
    return (p.exp() * (p.clamp(min=floor) - q.clamp(min=floor))).sum(-1)


def conjugate_gradient(
    product: Product, b: Tensor, iterations: int, tolerance: float = 1e-10
) -> tuple[Tensor, Tensor]:
    """An approximate solution x (n,) of A x = b from x = 0, for a positive definite A; and A x.

    Ends early once |b - A x|^2 is at most ``tolerance`` |b|^2, or where A turns out not to be
    positive along a search direction: what was found before is returned, 0 at worst.
    """
    x, image = torch.zeros_like(b), torch.zeros_like(b)
    residual, direction = b.clone(), b.clone()
    square = residual.dot(residual)
    enough = tolerance * square
    for _ in range(iterations):
        if not square > enough:
            break
        turned = product(direction)
        curvature = direction.dot(turned)
        if not curvature > 0:
            break
        alpha = square / curvature
        x, image = x + alpha * direction, image + alpha * turned
        residual = residual - alpha * turned
        square, previous = residual.dot(residual), square
        direction = residual + (square / previous) * direction
    return x, image


def natural_step(product: Product, gradient: Tensor, rule: TrustRegion) -> Tensor | None:
    """The full step sqrt(2 max_kl / x^T A x) x (n,) with A x = gradient, A damped.

    ``product`` is the undamped curvature of the mean KL. None where x^T A x is not positive.
    """
    x, image = conjugate_gradient(
        lambda v: product(v) + rule.damping * v, gradient, rule.cg_iterations
    )
    curvature = x.dot(image)
    return (2.0 * rule.max_kl / curvature).sqrt() * x if curvature > 0 else None


def trust_region_step(
    parameters: Sequence[Tensor],
    gradient: Tensor,
    product: Product,
    measure: Callable[[], Measure],
    rule: TrustRegion,
) -> StepResult:
    """Move ``parameters`` in place, or leave them bit for bit as they are.

    Args:
        parameters: leaves that the closures read; their order is that of the flat vectors.
        gradient: (n,) of J at the present weights.
        product: v (n,) -> H v (n,), H the Hessian of the mean KL at the present weights.
        measure: J and mean KL to the policy before the step, at the present weights.
        rule: bound, damping and budget of the search.
    """
    norm = gradient.norm()
    if not torch.isfinite(norm):
        return StepResult("not finite")
    if norm <= NO_GRADIENT:
        return StepResult("no gradient")
    step = natural_step(product, gradient, rule)
    if step is None:
        return StepResult("negative curvature")
    return line_search(parameters, step, measure, rule)


@torch.no_grad()
def line_search(
    parameters: Sequence[Tensor],
    step: Tensor,
    measure: Callable[[], Measure],
    rule: TrustRegion,
) -> StepResult:
    """Take the largest of the shrinking steps that keeps the KL bound and improves J."""
    before = measure().objective
    start = [p.detach().clone() for p in parameters]
    moves = unflatten(step, parameters)
    fraction = 1.0
    for _ in range(rule.tries):
        for p, origin, move in zip(parameters, start, moves, strict=True):
            p.copy_(origin + fraction * move)
        now = measure()
        if now.kl <= rule.max_kl and now.objective > before:
            return StepResult("accepted", now.kl, now.objective - before, fraction)
        fraction *= rule.backtrack
    for p, origin in zip(parameters, start, strict=True):
        p.copy_(origin)
    return StepResult("line search failed")


def flatten(tensors: Sequence[Tensor | None], like: Sequence[Tensor]) -> Tensor:
    """One vector (n,) of all entries; 0 for a missing tensor, in the shape of its ``like``."""
    pairs = zip(tensors, like, strict=True)
    return torch.cat([(torch.zeros_like(p) if t is None else t).reshape(-1) for t, p in pairs])


def unflatten(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Inverse of :func:`flatten`: views of ``vector`` in the shapes of ``like``."""
    parts = vector.split([p.numel() for p in like])
    return [part.view(p.shape) for part, p in zip(parts, like, strict=True)]


def kl_product(kl: Tensor, parameters: Sequence[Tensor]) -> Product:
    """v -> (Hessian of ``kl``) v, by differentiating twice; ``kl`` keeps its graph."""
    slopes = torch.autograd.grad(kl, parameters, create_graph=True, allow_unused=True)
    flat = flatten(slopes, parameters)

    def product(v: Tensor) -> Tensor:
        again = torch.autograd.grad(
            flat, parameters, grad_outputs=v, retain_graph=True, allow_unused=True
        )
        return flatten(again, parameters).detach()

    return product
