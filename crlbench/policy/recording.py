"""What linear layers put out while completions were sampled, so that an update need not repeat it.

Sampling runs every token through the policy; the first pass of the update after it would run the
same tokens through the same weights. Its products are looked up here, and only what is cheap is
computed again. Backward it multiplies as ever.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from crlbench.policy.fused import (
    Map,
    adapted,
    apply_linear,
    linear_modules,
    lora_out,
    product_dtype,
)

MOST_BYTES = 768 << 20
"""Most memory of a recording; layers that do not fit are computed again."""

Name = tuple[int, str]
"""A linear layer: the number of its decoder layer, and its name there."""
Tokens = tuple[int, ...]


class Recording:
    """Outputs of linear layers for the prompts and completions of one batch.

    It holds while no weight changes. Its memory is kept for the next batch.
    """

    def __init__(self) -> None:
        self._memory: dict[tuple[Name, bool], Tensor] = {}
        self.forget()

    def forget(self) -> None:
        """Hold nothing."""
        self._backbone: Any = None
        self._versions: tuple[int, ...] = ()
        self._stores: dict[Name, tuple[Tensor, Tensor]] = {}
        self._prompts: list[Tokens] = []
        self._prompt_of: list[int] = []
        self._tokens: list[list[int]] = []

    def open(self, backbone: Any) -> None:
        """Be ready for a batch of a backbone; its weights as they are now are those recorded."""
        self.forget()
        self._backbone, self._versions = backbone, _versions(backbone)

    def begin(self, prompt_ids: Tensor, prompt_mask: Tensor, group: Tensor, tokens: int) -> None:
        """Make room for prompts (P, L), and for ``tokens`` tokens of each row of ``group`` (B,).

        The first layers are recorded, as many as fit into :data:`MOST_BYTES`.
        """
        self._prompts = _real(prompt_ids, prompt_mask)
        self._prompt_of, self._tokens = group.tolist(), [[] for _ in group]
        (prompts, length), rows = prompt_ids.shape, len(group)
        layers = self._backbone.get_decoder().layers
        dtype = product_dtype(layers[0].input_layernorm.weight)
        self._stores, left = {}, MOST_BYTES
        for number, layer in enumerate(layers):
            modules = linear_modules(layer)
            widths = {name: module.out_features for name, module in modules.items()}
            left -= (prompts * length + rows * tokens) * dtype.itemsize * sum(widths.values())
            if left < 0:
                break
            for name, width in widths.items():
                self._stores[number, name] = (
                    self._room(((number, name), True), (prompts, length, width), dtype),
                    self._room(((number, name), False), (rows, tokens, width), dtype),
                )

    def _room(self, key: tuple[Name, bool], shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Memory that holds finite numbers: padding is read."""
        count, memory = math.prod(shape), self._memory.get(key)
        if memory is None or len(memory) < count or memory.dtype != dtype:
            memory = self._memory[key] = torch.zeros(count, dtype=dtype)
        return memory[:count].view(shape)

    def of_prompts(self, number: int, name: str, module: Any, x: Tensor) -> Tensor:
        """As :func:`apply_linear` for the batch's prompts (P, L, in); what it gives is recorded."""
        out = apply_linear(number, name, module, x)
        if (stores := self._stores.get((number, name))) is not None:
            stores[0].copy_(out)
        return out

    def of_tokens(self, rows: Tensor, ids: Tensor) -> Map:
        """The same for the next tokens (b,) of some completions: for inputs (b, 1, in)."""
        place = len(self._tokens[int(rows[0])])
        for row, token in zip(rows.tolist(), ids.tolist(), strict=True):
            self._tokens[row].append(token)
        whole = len(rows) == len(self._tokens)
        index = slice(None) if whole else rows

        def apply(number: int, name: str, module: Any, x: Tensor) -> Tensor:
            out = apply_linear(number, name, module, x)
            if (stores := self._stores.get((number, name))) is not None:
                stores[1][index, place] = out[:, 0]
            return out

        return apply

    def find(
        self, backbone: Any, prompt_ids: Tensor, prompt_mask: Tensor, ids: Tensor, mask: Tensor
    ) -> Map | None:
        """How linear layers run on rows that hold a prompt (P, L) and its completions (P * G, T).

        None unless all of them were recorded under the present weights.
        """
        if not self._stores or backbone is not self._backbone:
            return None
        if self._versions != _versions(backbone):
            self.forget()
            return None
        prompts = {tokens: number for number, tokens in enumerate(self._prompts)}
        told = zip(self._prompt_of, self._tokens, strict=True)
        rows = {(prompt, *tokens): number for number, (prompt, tokens) in enumerate(told)}
        of_prompts = [prompts.get(tokens, -1) for tokens in _real(prompt_ids, prompt_mask)]
        each = len(ids) // len(of_prompts)
        of_rows = [
            # The last token of a completion is not run.
            rows.get((of_prompts[number // each], *tokens[:-1]), -1)
            for number, tokens in enumerate(_real(ids, mask))
        ]
        if min(of_prompts) < 0 or min(of_rows) < 0:
            return None
        places = torch.tensor(of_prompts), torch.tensor(of_rows)
        return _Replay(self._stores, *places, prompt_ids.shape[1], ids.shape[1] - 1).apply


@dataclass(frozen=True)
class _Replay:
    """Rows of a pass, and where they were recorded."""

    stores: dict[Name, tuple[Tensor, Tensor]]
    prompts: Tensor
    rows: Tensor
    length: int
    """Tokens of a prompt, padding on the left included."""
    tokens: int
    """Tokens of a completion that the pass runs."""

    def apply(self, number: int, name: str, module: Any, x: Tensor) -> Tensor:
        """A linear layer whose product is looked up."""
        stores = self.stores.get((number, name))
        if stores is None or stores[0].dtype != product_dtype(x):
            return apply_linear(number, name, module, x)
        prompts, rows = stores
        known = x.new_empty((*x.shape[:2], prompts.shape[2]), dtype=prompts.dtype)
        known[:, : self.length] = prompts[self.prompts, -self.length :]
        after = known[:, self.length :].unflatten(1, (-1, self.tokens))
        after[:] = rows[self.rows, : self.tokens].unflatten(0, (len(known), -1))
        small = adapted(module, x)
        base = module if small is None and not hasattr(module, "base_layer") else module.base_layer
        wide = None if small is None else lora_out(module)
        return _KnownLinear.apply(x, base.weight, base.bias, small, wide, known)


class _KnownLinear(torch.autograd.Function):
    """x W' + b + small wide', whose value is known."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        small: Tensor | None,
        wide: Tensor | None,
        known: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, bias, small, wide)
        return known.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, small, wide = ctx.saved_tensors
        wants = ctx.needs_input_grad
        slope = grad.flatten(0, -2)
        d_x = (slope @ weight.to(grad.dtype)).view_as(x) if wants[0] else None
        d_weight = (slope.t() @ x.flatten(0, -2)).to(weight.dtype) if wants[1] else None
        d_bias = slope.sum(0, dtype=bias.dtype) if wants[2] else None
        d_small = (slope @ wide.to(grad.dtype)).view_as(small) if wants[3] else None
        d_wide = (slope.t() @ small.flatten(0, -2)).to(wide.dtype) if wants[4] else None
        return d_x, d_weight, d_bias, d_small, d_wide, None


def _versions(backbone: Any) -> tuple[int, ...]:
    return tuple(parameter._version for parameter in backbone.parameters())


def _real(ids: Tensor, mask: Tensor) -> list[Tokens]:
    """The tokens of each row that are no padding."""
    return [tuple(row[real].tolist()) for row, real in zip(ids, mask, strict=True)]
