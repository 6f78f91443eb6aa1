"""The policy: log-probabilities, values and the frozen reference on one backbone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from crlbench.policy.device import to_device, to_host
from crlbench.policy.forward import (
    sparse_lookups,
    states_packed,
    states_plain,
    states_shared,
)
from crlbench.policy.fused import (
    apply_linear,
    fused_states,
    merged_states,
    serves,
    tree_of,
    tree_states,
)
from crlbench.policy.fused_head import fused_statistics
from crlbench.policy.head import (
    BlockStatistics,
    at_least_float32,
    block_statistics,
    distribution_statistics,
    next_token_logits,
    state_statistics,
)
from crlbench.policy.precision import widened
from crlbench.policy.recording import Recording


class TokenOutputs(NamedTuple):
    """Per completion token, each (B, T) float32, the distribution (B, T, V).

    What is not real holds no meaning.
    """

    logprobs: Tensor
    """Log-probability of the token taken, at the sampling temperature."""
    entropy: Tensor
    """Entropy of the distribution that the token was drawn from, in nats."""
    values: Tensor | None
    """Critic estimate of the state before the token; None without a value head."""
    distribution: Tensor | None = None
    """Log-probabilities of the whole vocabulary at the sampling temperature; None unless asked."""

    def on_host(self) -> TokenOutputs:
        """The same on the host, with gradients; a distribution stays where it is."""
        logprobs, entropy, values = to_host([self.logprobs, self.entropy, self.values])
        assert logprobs is not None and entropy is not None, "what is a tensor stays one"
        return TokenOutputs(logprobs, entropy, values, self.distribution)


class Policy(nn.Module):
    """A causal LM with an optional value head and a frozen reference, on one backbone.

    The reference is the start model: under an adapter the backbone with the adapter switched
    off, under full fine-tuning the module ``reference``, which is never changed here and may be
    shared with other policies, in whatever type it is stored. None means that nobody will ask.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        value_head: bool,
        reference: nn.Module | None = None,
        fast: bool = False,
    ) -> None:
        """``fast``: the same numbers up to rounding, by passes with less traffic through memory
        (:mod:`crlbench.policy.fused`), where these serve the model."""
        super().__init__()
        self.model: Any = model
        self.fast = fast
        self._recording = Recording()
        self.recorder: Recording | None = None
        """Takes down what linear layers put out in decoding; None while nothing is recorded."""
        self.value_head: nn.Linear | None = None
        if value_head:
            self.value_head = nn.Linear(self.width, 1, dtype=torch.float32)
            nn.init.zeros_(self.value_head.weight)
            nn.init.zeros_(self.value_head.bias)
        frozen = None if self.adapted else reference
        self.reference = None if frozen is None else frozen.requires_grad_(False)

    @property
    def adapted(self) -> bool:
        """Whether the model is wrapped by peft (asked without importing it, which is slow)."""
        return hasattr(self.model, "get_base_model")

    @property
    def backbone(self) -> Any:
        """The transformers model, adapters included."""
        return self.model.get_base_model() if self.adapted else self.model

    @property
    def config(self) -> Any:
        """The text configuration of the backbone."""
        return self.backbone.config.get_text_config()

    @property
    def width(self) -> int:
        """H of the states that the head reads; a few models (OPT) have wider layers."""
        head = self.backbone.get_output_embeddings()
        return getattr(head, "in_features", self.config.hidden_size)

    @cached_property
    def fused(self) -> bool:
        """Whether its passes are those of :mod:`crlbench.policy.fused`."""
        return self.fast and serves(self.backbone)

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """What is sampled inside is taken down, so that the next pass need not repeat it."""
        if self.fused:
            self._recording.expect(self.backbone)
            self.recorder = self._recording
        try:
            yield
        finally:
            self.recorder = None

    @contextlib.contextmanager
    def unrecorded(self) -> Iterator[None]:
        """What is sampled inside is not taken down: no pass could look it up."""
        recorder, self.recorder = self.recorder, None
        try:
            yield
        finally:
            self.recorder = recorder

    def forget_recording(self) -> None:
        """Nothing that was recorded counts any more: the weights change."""
        self._recording.forget()

    def _fused_states(self, *batch: Tensor) -> Tensor:
        """:func:`crlbench.policy.forward.states_packed`, by the products that are recorded."""
        tree = tree_of(*batch[1:])
        apply = self._recording.find(self.backbone, tree) or apply_linear
        return tree.states_of_rows(tree_states(self.backbone, tree, apply))

    def _by_blocks(self, states: Tensor) -> BlockStatistics:
        fused = self.fused and states.dtype == torch.float32
        return fused_statistics if fused else block_statistics

    def trainable(self) -> dict[str, nn.Parameter]:
        """Parameters that learn, by name."""
        return {n: p for n, p in self.named_parameters() if p.requires_grad}

    def forward(
        self,
        prompt_ids: Tensor,
        prompt_mask: Tensor,
        completion_ids: Tensor,
        completion_mask: Tensor,
        group: Tensor,
        temperature: float,
        shared_prefix: bool = True,
        distribution: bool = False,
        actions: Tensor | None = None,
        merge_rows: bool = False,
    ) -> TokenOutputs:
        """Log-probabilities, entropies and values of completion tokens.

        Args:
            prompt_ids: (P, L) int64, one row per distinct prompt, left padded. It and all others
                may lie on the host: what is read of them there needs no wait for the device.
            prompt_mask: (P, L) bool.
            completion_ids: (B, T) int64, right padded.
            completion_mask: (B, T) bool.
            group: (B,) int64 in [0, P): the prompt of each row.
            temperature: sampling temperature.
            shared_prefix: run each prompt once and branch its cache (default), or run every
                row whole; equal up to rounding.
            actions: (B, T) bool, the tokens whose log-probabilities and entropies are wanted; all
                completion tokens by default.
            merge_rows: run what any rows begin with alike once, completions too, where passes are
                fused; for rows that stand by no prompt in equal numbers. Equal up to rounding.
            distribution: also return the whole distribution, V floats per token; needed too
                for what is to be differentiated twice.
        """
        batch = (prompt_ids, prompt_mask, completion_ids, completion_mask, group)
        with contextlib.nullcontext() if distribution else sparse_lookups(self.backbone):
            if merge_rows and shared_prefix and self.fused and not distribution:
                states = merged_states(self.backbone, *batch)
            elif shared_prefix:
                packed = self._fused_states if self.fused and not distribution else states_packed
                states = states_shared(self.backbone, *batch, packed)
            else:
                states = states_plain(self.backbone, *batch)
        values = None if self.value_head is None else self.values(states)
        if distribution:
            logits = next_token_logits(self.backbone, states, temperature)
            whole = torch.log_softmax(logits, dim=-1)
            taken = to_device(completion_ids, whole.device)
            return TokenOutputs(*distribution_statistics(whole, taken), values, whole)
        mask = completion_mask if actions is None else actions
        statistics = state_statistics(
            self.backbone, states, completion_ids, mask, temperature, self._by_blocks(states)
        )
        return TokenOutputs(*statistics, values)

    @property
    def has_reference(self) -> bool:
        """Whether the start model can be asked."""
        return self.adapted or self.reference is not None

    @torch.no_grad()
    def reference_logprobs(
        self,
        prompt_ids: Tensor,
        prompt_mask: Tensor,
        completion_ids: Tensor,
        completion_mask: Tensor,
        group: Tensor,
        temperature: float,
        actions: Tensor | None = None,
        merge_rows: bool = False,
    ) -> Tensor:
        """(B, T) float32 log-probabilities under the frozen start model; arguments as
        :meth:`forward` has them."""
        with self._as_reference() as backbone:
            batch = (prompt_ids, prompt_mask, completion_ids, completion_mask, group)
            if merge_rows and self.fused:
                states = merged_states(backbone, *batch)
            else:
                packed = fused_states if self.fused else states_packed
                states = states_shared(backbone, *batch, packed)
            mask, by_blocks = (
                completion_mask if actions is None else actions,
                self._by_blocks(states),
            )
            return state_statistics(backbone, states, completion_ids, mask, temperature, by_blocks)[
                0
            ]

    @torch.no_grad()
    def reference_distribution(
        self,
        prompt_ids: Tensor,
        prompt_mask: Tensor,
        completion_ids: Tensor,
        completion_mask: Tensor,
        group: Tensor,
        temperature: float,
    ) -> Tensor:
        """(B, T, V) float32 log-probabilities of all tokens under the frozen start model; arguments
        as :meth:`forward` has them."""
        batch = (prompt_ids, prompt_mask, completion_ids, completion_mask, group)
        with self._as_reference() as backbone:
            logits = next_token_logits(backbone, states_shared(backbone, *batch), temperature)
        return torch.log_softmax(logits, dim=-1)

    def values(self, states: Tensor) -> Tensor:
        """(...) float32 critic estimates from hidden states (..., H), in full precision."""
        with torch.autocast(states.device.type, enabled=False):
            assert self.value_head is not None  # asked only of a policy that has one
            return self.value_head(at_least_float32(states)).squeeze(-1)

    @contextlib.contextmanager
    def gradient_checkpointing(self) -> Iterator[None]:
        """Passes inside keep the input of every layer alone, and go without a cache."""
        self.backbone.activation_checkpointing_enable({"use_reentrant": False})
        try:
            yield
        finally:
            self.backbone.activation_checkpointing_disable()

    @contextlib.contextmanager
    def _as_reference(self) -> Iterator[Any]:
        if self.adapted:
            with self.model.disable_adapter():
                yield self.backbone
        elif self.reference is not None:
            with widened(self.reference):
                yield self.reference
        else:
            raise RuntimeError("the policy was built without a reference")


@contextlib.contextmanager
def twice_differentiable() -> Iterator[None]:
    """Attention by plain matrix products: the fused kernels have no second derivative.

    Costs the memory of the attention weights, rows * heads * (L + T) * T floats per layer.
    """
    with sdpa_kernel(SDPBackend.MATH):
        yield
