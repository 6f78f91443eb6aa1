"""The decoder of a model, layer by layer, without the modules' own passes.

Which families are served is said by :mod:`crlbench.policy.families`. Tokens of prompts and
completions are run as a tree, each distinct beginning once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from crlbench.policy.families import family_of, linear_modules
from crlbench.policy.fused_layers import Map, Past, Place
from crlbench.policy.head import at_least_float32
from crlbench.policy.state_space import (
    Stretch,
    add_skip,
    final_state,
    read_inputs,
    scan,
    scan_rows,
    tails,
)
from crlbench.policy.token_tree import TokenTree

ROPE = ("default", "linear", "llama3")
"""Kinds of positions whose angles do not depend on the longest row."""


def serves(backbone: Any) -> bool:
    """Whether :func:`decoder_states` computes what a backbone computes.

    Its layers must be of one family, on the CPU and not quantised, with a sliding window only where
    the family's are served; its linear layers must be plain ones, with an adapter of plain ones at
    most.
    """
    decoder = backbone.get_decoder()
    family, config = family_of(decoder), backbone.config.get_text_config()
    rotary = getattr(decoder, "rotary_emb", None)
    return (
        family is not None
        and config._attn_implementation == family.attention
        and all(family.fits(config, layer) for layer in decoder.layers)
        and (family.windows or getattr(config, "sliding_window", None) is None)
        and (rotary is None or rotary.rope_type in ROPE)
        and getattr(backbone, "hf_quantizer", None) is None
        and not any(hasattr(module, "unshard") for module in backbone.modules())  # FSDP2
        and all(p.device.type == "cpu" for p in backbone.parameters())
        and all(_is_plain(m) for layer in decoder.layers for m in linear_modules(layer).values())
    )


def _is_plain(module: Any) -> bool:
    if type(module) is nn.Linear:
        return True
    if type(getattr(module, "base_layer", None)) is not nn.Linear:
        return False
    return (
        len(module.active_adapters) == 1
        and not module.merged
        and not module.lora_variant
        and not any(module.lora_bias.values())
        and all(type(dropout) is nn.Identity for dropout in module.lora_dropout.values())
    )


def apply_linear(_: int, _name: str, module: Any, x: Tensor) -> Tensor:
    """A linear layer, with its adapter if that is on: the change is added by the product."""
    if type(module) is nn.Linear:
        return module(x)
    out = module.base_layer(x)
    small = adapted(module, x)
    if small is None:
        return out
    wide = lora_out(module)
    return torch.addmm(out.flatten(0, -2), small.flatten(0, -2), wide.t()).view_as(out)


def adapted(module: Any, x: Tensor) -> Tensor | None:
    """(..., rank), scaled: what an adapter that is on makes of an input; None without one."""
    if type(module) is nn.Linear or module.disable_adapters:
        return None
    (name,) = module.active_adapters
    return module.lora_A[name](x) * module.scaling[name]


def lora_out(module: Any) -> Tensor:
    """(out, rank): the second matrix of an adapter."""
    (name,) = module.active_adapters
    return module.lora_B[name].weight


def decoder_states(
    backbone: Any,
    ids: Tensor,
    places: Tensor,
    past: Past,
    apply: Map = apply_linear,
    predictors: Tensor | None = None,
) -> Tensor:
    """(rows, n, H): the states of tokens (rows, t) at positions (rows, t), after the last norm.

    ``past`` says what a token sees; ``apply`` runs the linear layers. States are those of the
    tokens at ``predictors`` (n,) of a row, or of all: the last layer runs for the others only as
    far as these read them.
    """
    decoder = backbone.get_decoder()
    family = family_of(decoder)
    assert family is not None  # it is served
    x, angles = family.embed(decoder, ids), ()
    if (rotary := decoder.rotary_emb) is not None:
        # Angles are in the type of what they are made for: attention reads float32.
        made = rotary(at_least_float32(x[..., :1]), position_ids=places)
        angles = tuple(angle.unsqueeze(2) for angle in made)
    last = len(decoder.layers) - 1
    for number, layer in enumerate(decoder.layers):
        place = Place(number, apply, past, angles, predictors if number == last else None)
        x = family.run(layer, x, place)
    return family.norm(decoder, x)


Look = Callable[[int, Tensor, Tensor], None]


ALL_TOKENS = -1
"""The number of a last layer that runs for every token."""


class TreePast:
    """What the tokens of a tree see: :class:`crlbench.policy.fused_layers.Past`.

    ``look`` is shown each attention's keys and values, (1, key heads, N, width), and
    ``look_at_state`` each mixer's states at the ends of prompts, (P, groups, n, h * width), with
    the last inputs of its convolution (P, tails, channels).
    """

    def __init__(
        self, tree: TokenTree, last: int, look: Look | None, look_at_state: Look | None
    ) -> None:
        """``last`` is the number of the last layer, which runs for the predictors alone, or
        :data:`ALL_TOKENS`."""
        self.tree, self.last = tree, last
        self.look, self.look_at_state = look, look_at_state

    def attend(self, number: int, module: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See :class:`crlbench.policy.fused_layers.Past`."""
        if self.look is not None:
            self.look(number, key, value)
        read = self.tree.attend_predictors if number == self.last else self.tree.attend
        return read(module, query, key, value)

    @torch.autocast("cpu", enabled=False)
    def mix(self, number: int, module: Any, inputs: Tensor, step: Tensor) -> Tensor:
        """See :class:`crlbench.policy.fused_layers.Past`.

        The recurrence runs over whole prompts. Completions go on from their ends.
        """
        tree, before = self.tree, tails(module)
        path, real, firsts = tree.paths
        (prompts, length), padded = path.shape, not bool(real.all())
        some, steps = (
            x[0].index_select(0, path.flatten()).unflatten(0, (prompts, length))
            for x in (inputs, step)
        )
        if padded:
            some = some * real.unsqueeze(-1)
        window = pad(some, (0, 0, before, 0))
        stretch = read_inputs(module, window, steps, real if padded else None)
        state, reads = self._prompts(number, module, stretch, firsts)
        if self.look_at_state is not None:
            self.look_at_state(number, state, window[:, length:])
        if tree.ids.shape[1]:
            own, steps = (x[0, tree.stem :].unflatten(0, tree.ids.shape) for x in (inputs, step))
            shared = window[:, length:].repeat_interleave(tree.each, dim=0)
            rows = read_inputs(module, torch.cat([shared, own], dim=1), steps)
            reads.append(add_skip(module, scan_rows(rows, state), rows.x).flatten(0, 1))
        return torch.cat(reads).unsqueeze(0)

    def _prompts(
        self, number: int, module: Any, stretch: Stretch, firsts: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """States at the ends of prompts, and what is put out, (n, inner), for the tokens of the
        stem, or in the last layer for the last ones of prompts."""
        if number == self.last:
            state, end = final_state(stretch, None), stretch.x[:, -1:]
            read = (stretch.look[:, -1].unsqueeze(2) @ state).reshape(end.shape)
            return state, [add_skip(module, read, end)[:, 0]]
        read, state = scan(stretch, None)
        return state, [add_skip(module, read, stretch.x).flatten(0, 1).index_select(0, firsts)]


def tree_states(
    backbone: Any,
    tree: TokenTree,
    apply: Map = apply_linear,
    look: Look | None = None,
    look_at_state: Look | None = None,
) -> Tensor:
    """(1, n, H): the states of a tree's tokens at :attr:`TokenTree.predictors`; ``apply`` runs the
    linear layers. See :class:`TreePast` for what looks on.
    """
    last = backbone.config.get_text_config().num_hidden_layers - 1
    past = TreePast(tree, last, look, look_at_state)
    places = tree.in_one_row(tree.places)
    return decoder_states(backbone, tree.row, places, past, apply, tree.predictors)


def tree_of(prompt_ids: Tensor, prompt_mask: Tensor, ids: Tensor, mask: Tensor) -> TokenTree:
    """What is run of prompts (P, L) and completions (P * G, T): all but their last tokens, which
    count as padding in shorter rows."""
    run = torch.arange(ids.shape[1] - 1) < mask.sum(1, keepdim=True) - 1
    return TokenTree.of(prompt_ids, prompt_mask, ids[:, :-1], run)


def fused_states(backbone: Any, *batch: Tensor) -> Tensor:
    """As :func:`crlbench.policy.forward.states_packed`."""
    tree = tree_of(*batch)
    return tree.states_of_rows(tree_states(backbone, tree))


def merged_states(
    backbone: Any, prompt_ids: Tensor, prompt_mask: Tensor, ids: Tensor, mask: Tensor, group: Tensor
) -> Tensor:
    """(B, T, H) as :func:`crlbench.policy.forward.states_shared`: what any rows begin with alike,
    prompts and completions, is run once, and no padding of completions is run."""
    prompts, read = prompt_mask[group], mask.sum(1) - 1
    run = torch.arange(ids.shape[1]) < read[:, None]
    # Left-padded whole rows: real tokens keep their order, padding comes first.
    real = torch.cat([prompts, run], dim=1)
    order = real.long().argsort(dim=1, stable=True)
    rows = torch.cat([prompt_ids[group], ids], dim=1).gather(1, order)
    nothing = ids[:, :0]
    tree = TokenTree.of(rows, real.gather(1, order), nothing, nothing.bool())
    past = TreePast(tree, ALL_TOKENS, None, None)
    states = decoder_states(backbone, tree.row, tree.in_one_row(tree.places), past)[0]
    paths, _, _ = tree.paths
    columns = paths.shape[1] - 1 - read[:, None] + torch.arange(ids.shape[1])
    return states[paths.gather(1, columns.clamp(0, paths.shape[1] - 1))]
