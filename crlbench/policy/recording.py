"""What linear layers put out while completions were sampled, so that an update need not repeat it.

Sampling runs every token through the policy; the first pass of the update after it would run the
same tokens through the same weights. Its products are looked up here, and only what is cheap is
computed again. Backward it multiplies as ever.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from crlbench.contract.sizes import RECORDED_BYTES
from crlbench.policy.fused import adapted, apply_linear, lora_out
from crlbench.policy.fused_layers import OF_ALL, Map, linear_modules
from crlbench.policy.head import product_dtype
from crlbench.policy.token_tree import TokenTree

Name = tuple[int, str]
"""A linear layer: the number of its decoder layer, and its name there."""
Tokens = tuple[int, ...]


class Recording:
    """Outputs of linear layers for the prompts and completions of one batch.

    It holds while no weight changes. Its memory is kept for the next batch.
    """

    def __init__(self) -> None:
        self._memory: dict[Name, Tensor] = {}
        self.forget()

    def forget(self) -> None:
        """Hold nothing."""
        self._backbone: Any = None
        self._versions: tuple[int, ...] = ()
        self._stores: dict[Name, Tensor] = {}
        self._tree: TokenTree | None = None
        self._room = 0
        self._prompts: list[Tokens] = []
        self._tokens: list[list[int]] = []

    def expect(self, backbone: Any) -> None:
        """Be ready for a batch of a backbone; its weights as they are now are those recorded."""
        self.forget()
        self._backbone, self._versions = backbone, _versions(backbone)

    def begin(self, tree: TokenTree, tokens: int) -> None:
        """Make room for a tree without tokens of completions, and for ``tokens`` of each row.

        The first layers are recorded, as many as fit into :data:`RECORDED_BYTES`.
        """
        self._tree, self._room = tree, tokens
        trunk, pairs = tree.trunk_ids.tolist(), zip(tree.prompt_ids, tree.prompt_mask, strict=True)
        self._prompts = [(*trunk, *row[real].tolist()) for row, real in pairs]
        self._tokens = [[] for _ in tree.ids]
        count = tree.stem + len(tree.ids) * tokens
        layers = self._backbone.get_decoder().layers
        dtype = product_dtype(layers[0].input_layernorm.weight)
        self._stores, left = {}, RECORDED_BYTES
        for number, layer in enumerate(layers):
            widths = {name: m.out_features for name, m in linear_modules(layer).items()}
            left -= count * dtype.itemsize * sum(widths.values())
            if left < 0:
                break
            for name, width in widths.items():
                store = self._memory_of((number, name), count * width, dtype)
                self._stores[number, name] = store.view(count, width)
        self._memory = {name: self._memory[name] for name in self._stores}

    @property
    def bytes(self) -> int:
        """Memory of what is recorded now."""
        return sum(store.nbytes for store in self._stores.values())

    def _memory_of(self, name: Name, count: int, dtype: torch.dtype) -> Tensor:
        """Memory that holds finite numbers: padding is read."""
        memory = self._memory.get(name)
        if memory is None or len(memory) < count or memory.dtype != dtype:
            memory = self._memory[name] = torch.zeros(count, dtype=dtype)
        return memory[:count]

    def of_stem(self, number: int, name: str, module: Any, x: Tensor) -> Tensor:
        """As :func:`apply_linear` for trunk and prompts (1, N, in); what it gives is recorded."""
        out = apply_linear(number, name, module, x)
        if (store := self._stores.get((number, name))) is not None:
            assert self._tree is not None  # begun
            where = self._tree.ends if self._of_predictors(number, name) else slice(self._tree.stem)
            store[where] = out[0]
        return out

    def _of_predictors(self, number: int, name: str) -> bool:
        """Whether a linear layer runs for the tokens alone whose states predict others."""
        return number == len(self._backbone.get_decoder().layers) - 1 and name not in OF_ALL

    def of_tokens(self, rows: Tensor, ids: Tensor) -> Map:
        """The same for the next tokens (b,) of some completions: for inputs (b, 1, in)."""
        assert self._tree is not None  # begun
        stem, place = self._tree.stem, len(self._tokens[int(rows[0])])
        for row, token in zip(rows.tolist(), ids.tolist(), strict=True):
            self._tokens[row].append(token)
        index: Tensor | slice = stem + rows * self._room + place
        if len(rows) == len(self._tokens):
            index = slice(stem + place, None, self._room)

        def apply(number: int, name: str, module: Any, x: Tensor) -> Tensor:
            out = apply_linear(number, name, module, x)
            if (store := self._stores.get((number, name))) is not None:
                store[index] = out[:, 0]
            return out

        return apply

    def find(self, backbone: Any, tree: TokenTree) -> Map | None:
        """How linear layers run on a tree.

        None unless all its tokens were recorded under the present weights.
        """
        if not self._stores or self._tree is None or backbone is not self._backbone:
            return None
        if self._versions != _versions(backbone):
            self.forget()
            return None
        prompts = {tokens: number for number, tokens in enumerate(self._prompts)}
        each = self._tree.each
        rows = {
            (prompts[self._prompts[number // each]], *tokens): number
            for number, tokens in enumerate(self._tokens)
        }
        trunk = tuple(tree.trunk_ids.tolist())
        of_prompts = [
            prompts.get((*trunk, *row[real].tolist()), -1)
            for row, real in zip(tree.prompt_ids, tree.prompt_mask, strict=True)
        ]
        of_rows = [
            rows.get((of_prompts[number // tree.each], *row[real].tolist()), -1)
            for number, (row, real) in enumerate(zip(tree.ids, tree.mask, strict=True))
        ]
        if min(of_prompts) < 0 or min(of_rows) < 0:
            return None
        index = self._index(tree, torch.tensor(of_prompts), torch.tensor(of_rows))
        predictors = index[tree.predictors]

        def apply(number: int, name: str, module: Any, x: Tensor) -> Tensor:
            some = predictors if self._of_predictors(number, name) else index
            return _look_up(self._stores.get((number, name)), some, number, name, module, x)

        return apply

    def _index(self, tree: TokenTree, prompts: Tensor, rows: Tensor) -> Tensor:
        """(N,) int64: where the tokens of a tree were recorded, any place for padding."""
        assert self._tree is not None  # begun
        trunk, width = self._tree.trunk, self._tree.nodes.shape[1]
        nodes = self._tree.nodes[prompts]
        lengths = torch.tensor([len(tokens) for tokens in self._prompts])[prompts]

        def stem(places: Tensor, prompt: Tensor) -> Tensor:
            """Of places in prompts: on the trunk, or counted from the end of the prompt."""
            own = nodes[prompt, (width - lengths[prompt] + places).clamp(min=0)]
            return torch.where(places < trunk, places, trunk + own)

        of_trunk, of_nodes, _ = tree.places
        tokens = torch.arange(tree.ids.shape[1])
        parts = (
            stem(of_trunk, torch.zeros_like(of_trunk)),
            stem(of_nodes, tree.firsts // tree.nodes.shape[1]),
            self._tree.stem + rows[:, None] * self._room + tokens,
        )
        return tree.in_one_row(parts)[0]


def _look_up(
    store: Tensor | None, index: Tensor, number: int, name: str, module: Any, x: Tensor
) -> Tensor:
    """A linear layer whose product was recorded in ``store`` at ``index``, if it was."""
    if store is None or store.dtype != product_dtype(x):
        return apply_linear(number, name, module, x)
    base, small = getattr(module, "base_layer", module), adapted(module, x)
    wide = None if small is None else lora_out(module)
    known = store.index_select(0, index).unsqueeze(0)
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
