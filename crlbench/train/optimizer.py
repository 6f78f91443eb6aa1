"""AdamW that remembers its last step, and the path of the weights: how far steps go and turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from crlbench.contract.sizes import PART_FLOATS, REMEMBERED


class TracedAdamW(torch.optim.AdamW):
    """AdamW that leaves the step of every weight in the place of its gradient.

    A step needs a copy of the weights before it; only a part of them is copied at a time, and
    the gradient, which is of no use any more, gives its memory to the step.
    """

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; afterwards ``grad`` of every weight is new - old."""
        loss = None if closure is None else closure()
        groups = self.param_groups
        try:
            for group in groups:
                for part in _parts(group["params"]):
                    before = copies(part)
                    self.param_groups = [{**group, "params": part}]
                    super().step()
                    # The fused kernel writes past autograd: who keeps products must see it.
                    torch.autograd.graph.increment_version(part)
                    subtract(part, before)
        finally:
            self.param_groups = groups
        return loss


def copies(part: list[nn.Parameter]) -> list[Tensor]:
    """The values of weights as they are."""
    values = [p.detach() for p in part]
    if not on_cards(values):
        return [value.clone() for value in values]
    made = [torch.empty_like(value) for value in values]
    torch._foreach_copy_(made, values)
    return made


def subtract(part: list[nn.Parameter], before: list[Tensor]) -> None:
    """Let the gradient of every weight be its value minus the one before."""
    values = [p.detach() for p in part]
    grads = [p.grad for p in part if p.grad is not None]
    if on_cards(values):
        torch._foreach_copy_(grads, values)
        torch._foreach_sub_(grads, before)
        return
    for value, old, grad in zip(values, before, grads, strict=True):
        torch.sub(value, old, out=grad)


def on_cards(tensors: Sequence[Tensor]) -> bool:
    """Whether kernels for many tensors at once take these: whole ones on GPUs.

    A GPU waits for the program where every tensor has a kernel of its own.
    """
    return all(type(x) is Tensor and x.is_cuda for x in tensors)


def _parts(parameters: list[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Parameters with a gradient, in parts of at most PART_FLOATS or of one parameter."""
    part: list[nn.Parameter] = []
    size = 0
    for parameter in parameters:
        if parameter.grad is None:
            continue
        if part and size + parameter.numel() > PART_FLOATS:
            yield part
            part, size = [], 0
        part.append(parameter)
        size += parameter.numel()
    if part:
        yield part


Weights = dict[str, Tensor]


class Displacement:
    """Norms of the steps of all trainable weights, and cosines between successive ones.

    Holds the last step that moved anything. Of a model of more than REMEMBERED weights it holds
    every k-th weight of every tensor, and the cosine is that of those weights.
    """

    def __init__(self) -> None:
        self.last: Weights | None = None

    def measure(self, step: Weights) -> dict[str, float]:
        """``update_norm`` and ``update_cosine`` of a step; weights that have none were not moved.

        The cosine is NaN for the first step, and for one that moved nothing, which is passed
        over: the next step is compared with the one before it.
        """
        sample, last = thin(step), self.last
        pairs = [(step, step)]
        if last is not None:
            pairs += [(sample, sample), (last, last), (sample, last)]
        squared, *others = dots(pairs)
        figures = {"update_norm": math.sqrt(squared), "update_cosine": math.nan}
        if not 0.0 < squared < math.inf:
            return figures
        if others:
            size, size_of_last, inner = others
            product = math.sqrt(size * size_of_last)
            cosine = inner / product if product else math.nan
            figures["update_cosine"] = max(-1.0, min(1.0, cosine))
        self.last = sample
        return figures

    def load(self, last: Weights | None, device: torch.device | str) -> None:
        """Continue after ``last``."""
        self.last = None if last is None else {n: t.to(device) for n, t in last.items()}


def thin(step: Weights) -> Weights:
    """Every k-th entry of every tensor, with the smallest k that leaves at most REMEMBERED."""
    stride = math.ceil(sum(t.numel() for t in step.values()) / REMEMBERED)
    return {name: t.flatten()[::stride].clone() for name, t in step.items()}


def dots(pairs: Sequence[tuple[Weights, Weights]]) -> list[float]:
    """Inner products over the weights that both of a pair have, by one wait for the device."""
    products = [dot(a, b) for a, b in pairs]
    numbers = iter(torch.stack([x for x in products if x is not None] or [NOTHING]).tolist())
    return [0.0 if x is None else next(numbers) for x in products]


NOTHING = torch.zeros((), dtype=torch.float64)


def dot(a: Weights, b: Weights) -> Tensor | None:
    """Scalar float64: the inner product over the weights of both; None where there are none.

    Sums are float32 within a tensor and float64 across tensors.
    """
    names = [n for n in a if n in b]
    if not names:
        return None
    if on_cards([x[n] for x in (a, b) for n in names]):
        return fused_dot([a[n] for n in names], [b[n] for n in names])
    parts = [torch.dot(a[n].flatten(), b[n].flatten()) for n in names]
    return torch.stack(parts).double().sum()


def fused_dot(a: list[Tensor], b: list[Tensor]) -> Tensor:
    """Scalar float64: the inner product of the tensors, in few kernels for all of them.

    A tensor's own square is that of its norm, which needs no copy. Other products join the
    tensors, as long as all of them together.
    """
    if all(x is y for x, y in zip(a, b, strict=True)):
        return torch.stack(torch._foreach_norm(a)).double().square().sum()
    whole_a, whole_b = (torch.cat([x.flatten() for x in tensors]) for tensors in (a, b))
    return torch.dot(whole_a, whole_b).double()
