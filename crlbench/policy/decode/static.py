"""Decoding in tensors of fixed shape at fixed addresses, so that CUDA graphs can replay a step.

A step's shape is (rows, capacity), both powers of two. It stays the same from token to token:
the cache holds room for the whole completion, the attention mask spans all of it and causality
hides what is not filled. Rows that have ended stay as ballast until the others fit into half
the rows; those are then moved to the front of the same memory. So a rollout of B rows has at
most log2(B / :data:`FEWEST_ROWS`) + 1 graphs, and a run has that many for each capacity it meets.

The weights are read where they are: an update in place needs no new graph. Weights that are
cast for decoding keep their addresses too, see :attr:`StaticDecoder.narrow`.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import tempfile
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import Cache
from transformers.cache_utils import StaticLayer, get_layer_types_and_kwargs

from crlbench.disk.switches import COMPILER_FOLDER
from crlbench.policy.decode.rows import held_type
from crlbench.policy.forward import extend, prefill
from crlbench.policy.precision import Kept
from crlbench.types import PromptBatch

FEWEST_ROWS = 8
"""Fewer rows are padded to this many: a smaller step costs no less, and would be one more graph."""
FEWEST_TOKENS = 64
"""The smallest capacity of a cache."""

Compiler = Callable[[Callable[..., Tensor]], Callable[..., Tensor]]


def cuda_graph(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Compile for one shape; the kernels are recorded once and replayed.

    No kernel is chosen by timing it: the same command gives the same numbers.
    """
    if os.environ.get(COMPILER_FOLDER) == tempfile.gettempdir():
        del os.environ[COMPILER_FOLDER]  # what is compiled goes into a folder of torch's own
    graph = torch.compile(  # type: ignore[call-overload]  # stub
        function,
        fullgraph=True,
        dynamic=False,
        options={"triton.cudagraphs": True, "deterministic": True},
        isolate_recompiles=True,
    )

    def replayed(*args: Any) -> Tensor:
        torch.compiler.cudagraph_mark_step_begin()
        with free_writes():
            return graph(*args)

    return replayed


@contextlib.contextmanager
def free_writes() -> Iterator[None]:
    """Writes to many places go the short way, whatever the process asks of algorithms.

    The long way sorts the places, for two writes may meet in one. In a decode step none do: every
    token has its place in the cache.
    """
    asked = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(asked, warn_only=warns)


def power_of_two(least: int, smallest: int) -> int:
    """The smallest power of two that is at least ``least`` and ``smallest``."""
    return 1 << (max(least, smallest) - 1).bit_length()


def has_static_step(backbone: Any) -> bool:
    """Whether a decode step of a model can run in fixed shapes and be compiled as one graph.

    It needs transformers' word for it, full or sliding-window attention in every layer with a
    mask made from the cache, weights that are plain tensors in one place, experts whose routes stay
    on the device, and positions whose frequencies do not depend on the longest row.
    """
    if not getattr(backbone, "_can_compile_fullgraph", False):
        return False
    config = backbone.config.get_text_config(decoder=True)
    return (
        set(get_layer_types_and_kwargs(config)[0]) <= {"full_attention", "sliding_attention"}
        and config._attn_implementation in ("sdpa", "eager")
        and getattr(backbone, "hf_quantizer", None) is None
        and not any(hasattr(module, "unshard") for module in backbone.modules())  # FSDP2
        and not _reads_routes_on_the_host(backbone)
        and not any("dynamic" in kind or "longrope" in kind for kind in _rope_kinds(backbone))
    )


class StaticDecoder:
    """Starts decoding in fixed shapes; holds the memory and the compiled steps of each model.

    The memory is that of the largest batch so far, and is held between rollouts.
    """

    def __init__(
        self, devices: tuple[str, ...] = ("cuda",), compiler: Compiler | None = cuda_graph
    ) -> None:
        """
        Args:
            devices: types of device that it serves.
            compiler: what makes a step fast; None runs it as it is.
        """
        self.devices = devices
        self.compiler = compiler
        self.narrow: Kept = WeakKeyDictionary()
        """Weights cast for decoding, for :func:`crlbench.policy.precision.cast_once`."""
        self._engines: MutableMapping[nn.Module, Engine] = WeakKeyDictionary()

    def serves(self, backbone: nn.Module, device: torch.device) -> bool:
        """Whether :meth:`start` can be used; otherwise the plain loop must be."""
        return device.type in self.devices and has_static_step(backbone)

    def start(
        self, backbone: Any, batch: PromptBatch, group: Tensor, max_tokens: int
    ) -> StaticRows:
        """Run each prompt once and branch it into its rows; ``group`` (B,) names the prompts."""
        if backbone not in self._engines:
            self._engines[backbone] = Engine(self.compiler)
            # It leaves an attribute at the layers; one that came later would compile all again.
            backbone.activation_checkpointing_disable()
        return StaticRows(backbone, self._engines[backbone], batch, group, max_tokens)


class FixedLayer(StaticLayer):
    """Keys and values (rows, heads, capacity, width) of a layer, filled in place.

    Under autocast they are held in its type, to which attention would cast them at every token.
    All layers share ``place`` (1,) int64, where the next token goes; the owner moves it. A layer
    with a sliding window keeps all tokens as well: the model's mask hides those out of sight.
    """

    keys: Tensor
    values: Tensor

    def __init__(self, keys: Tensor, values: Tensor, place: Tensor) -> None:
        super().__init__(keys.shape[2])
        self.keys, self.values, self.cumulative_length = keys, values, place
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **options: Any
    ) -> tuple[Tensor, Tensor]:
        """Write one token (rows, heads, 1, width) and return everything."""
        for store, token in ((self.keys, key_states), (self.values, value_states)):
            store.index_copy_(2, self.cumulative_length, token.to(store.dtype))
        return self.keys, self.values


class StaticRows:
    """Rows in decoding whose step has a fixed shape: :class:`crlbench.policy.decode.rows.Rows`."""

    def __init__(
        self, backbone: Any, engine: Engine, batch: PromptBatch, group: Tensor, max_tokens: int
    ) -> None:
        self.backbone, self.engine = backbone, engine
        count, length = len(group), batch.prompt_ids.shape[1]
        states, prompts = prefill(backbone, batch.prompt_ids, batch.prompt_mask)
        self.states = states[group, -1]
        self.slots = torch.arange(count, device=group.device)
        """(b,): where the rows stand in the step's tensors."""
        self.takers: Tensor
        """(rows,): which row's token a place takes; any where no row stands."""
        self.capacity = power_of_two(length + max_tokens, FEWEST_TOKENS)
        self._lay_out(power_of_two(count, FEWEST_ROWS), prompts)
        for tensor in self._per_row():
            tensor.zero_()  # what is hidden has no weight, but a weight of 0 leaves NaN NaN
        self.mask.fill_(True)
        self.mask[:count, :length] = batch.prompt_mask[group]
        self.positions[:count] = batch.prompt_mask[group].sum(1, keepdim=True)
        self.place.fill_(length)
        for layer, prompt in zip(_layers(self.cache), _layers(prompts), strict=True):
            first = length - prompt.keys.shape[2]  # a sliding window drops old tokens
            layer.keys[:count, :, first:length] = prompt.keys[group]
            layer.values[:count, :, first:length] = prompt.values[group]
        self._find_takers()

    def keep(self, left: Tensor) -> None:
        """See :class:`crlbench.policy.decode.rows.Rows`."""
        self.slots = self.slots[left]
        rows = power_of_two(len(left), FEWEST_ROWS)
        if rows < len(self.ids):
            for tensor in self._per_row():
                tensor[: len(left)] = tensor[self.slots]
            self.slots = torch.arange(len(left), device=left.device)
            self._lay_out(rows, self.cache)
        self._find_takers()

    def append(self, taken: Tensor) -> None:
        """See :class:`crlbench.policy.decode.rows.Rows`."""
        self.ids.copy_(taken[self.takers].unsqueeze(1))
        step = self.engine.step(*self.mask.shape)
        states = step(self.backbone, self.ids, self.mask, self.cache, self.positions)
        self.states = states[self.slots, -1]  # a copy: the next step writes over its result
        self.positions.add_(1)
        self.place.add_(1)

    def _find_takers(self) -> None:
        rows = torch.arange(len(self.slots), device=self.slots.device)
        self.takers = rows.new_zeros(len(self.ids)).index_copy_(0, self.slots, rows)

    def _lay_out(self, rows: int, cache: Cache) -> None:
        """The step's tensors for ``rows`` rows; their first rows are those of larger ones."""
        tensor = functools.partial(self.engine.tensor, device=self.slots.device)
        self.ids = tensor("ids", (rows, 1), torch.int64)
        self.positions = tensor("positions", (rows, 1), torch.int64)
        self.place = tensor("place", (1,), torch.int64)
        self.mask = tensor("mask", (rows, self.capacity), torch.bool)
        layers = []
        for i, layer in enumerate(_layers(cache)):
            keys, values = (
                tensor(f"{name} {i}", (rows, x.shape[1], self.capacity, x.shape[3]), held_type(x))
                for name, x in (("keys", layer.keys), ("values", layer.values))
            )
            layers.append(FixedLayer(keys, values, self.place))
        self.cache = Cache(layers=[*layers])

    def _per_row(self) -> list[Tensor]:
        tensors = [self.ids, self.positions, self.mask]
        return tensors + [x for layer in _layers(self.cache) for x in (layer.keys, layer.values)]


def _layers(cache: Cache) -> list[Any]:
    """Those of a model with a static step: all of them hold keys and values."""
    return cache.layers


class Engine:
    """The memory and the compiled steps of one model."""

    def __init__(self, compiler: Compiler | None) -> None:
        self.compiler = compiler
        self.memory: dict[str, Tensor] = {}
        self.steps: dict[tuple[int, int], Callable[..., Tensor]] = {}

    def tensor(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """The first part of the memory of that name.

        Its address changes only when it must grow; graphs are then recorded again.
        """
        count = math.prod(shape)
        whole = self.memory.get(name)
        if whole is None or len(whole) < count or (whole.dtype, whole.device) != (dtype, device):
            whole = self.memory[name] = torch.zeros(count, dtype=dtype, device=device)
        part = whole[:count].view(shape)
        if self.compiler is not None:
            torch._dynamo.mark_static_address(part)
        return part

    def step(self, rows: int, capacity: int) -> Callable[..., Tensor]:
        """:func:`crlbench.policy.forward.extend` for that shape."""
        if self.compiler is None:
            return extend
        if (rows, capacity) not in self.steps:
            self.steps[rows, capacity] = self.compiler(extend)
        return self.steps[rows, capacity]


def _reads_routes_on_the_host(backbone: Any) -> bool:
    """Whether a compiled step asks how many tokens every expert gets, which no graph can record.

    transformers compiles grouped products of bfloat16 weights alone. For others it loops over the
    experts, as its ``eager`` experts always do.
    """
    config = backbone.config.get_text_config(decoder=True)
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    if not any(getattr(config, name, None) for name in names):
        return False
    if config._experts_implementation == "grouped_mm":
        stacked = [p for p in backbone.parameters() if p.dim() == 3]
        return any(p.dtype != torch.bfloat16 for p in stacked)
    return config._experts_implementation != "batched_mm"


def _rope_kinds(backbone: nn.Module) -> set[str]:
    kinds: list[Any] = [m.rope_type for m in backbone.modules() if hasattr(m, "rope_type")]
    return {kind for x in kinds for kind in (x.values() if isinstance(x, dict) else (x,))}
