"""The policy: log-probabilities, values and the frozen reference on one backbone."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import DynamicCache


class TokenOutputs(NamedTuple):
    """Per completion token, each (B, T) float32, the distribution (B, T, V)."""

    logprobs: Tensor
    """Of the token taken, at the sampling temperature."""
    entropy: Tensor
    """Of the distribution the token was drawn from, in nats."""
    values: Tensor | None
    """Critic estimate of the state before the token; None without a value head."""
    distribution: Tensor | None = None
    """Log-probabilities of the whole vocabulary at the sampling temperature; None unless asked."""


class Policy(nn.Module):
    """A causal LM with an optional value head and a frozen reference.

    The reference is the start model: the backbone with its adapter switched off, or, under
    full fine-tuning, a frozen copy that exists only where the recipe needs one.
    """

    def __init__(self, model: nn.Module, *, value_head: bool, reference: bool) -> None:
        super().__init__()
        self.model = model
        self.value_head: nn.Linear | None = None
        if value_head:
            self.value_head = nn.Linear(self.config.hidden_size, 1, dtype=torch.float32)
            nn.init.zeros_(self.value_head.weight)
            nn.init.zeros_(self.value_head.bias)
        self.reference: nn.Module | None = None
        if reference and not self.adapted:
            self.reference = copy.deepcopy(model).requires_grad_(False).eval()

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
    ) -> TokenOutputs:
        """Log-probabilities, entropies and values of completion tokens.

        Args:
            prompt_ids: (P, L) int64, one row per distinct prompt, left padded.
            prompt_mask: (P, L) bool.
            completion_ids: (B, T) int64, right padded.
            completion_mask: (B, T) bool.
            group: (B,) int64 in [0, P): the prompt of each row.
            temperature: sampling temperature.
            shared_prefix: run each prompt once and branch its cache (default), or run every
                row whole; equal up to rounding.
            distribution: also return the whole distribution, V floats per token.
        """
        run = _states_shared if shared_prefix else _states_plain
        states = run(self.backbone, prompt_ids, prompt_mask, completion_ids, completion_mask, group)
        logits = next_token_logits(self.backbone, states, temperature)
        whole = torch.log_softmax(logits, dim=-1)
        logprobs, entropy = distribution_statistics(whole, completion_ids)
        values = None if self.value_head is None else self._values(states)
        return TokenOutputs(logprobs, entropy, values, whole if distribution else None)

    @torch.no_grad()
    def reference_logprobs(
        self,
        prompt_ids: Tensor,
        prompt_mask: Tensor,
        completion_ids: Tensor,
        completion_mask: Tensor,
        group: Tensor,
        temperature: float,
    ) -> Tensor:
        """(B, T) float32 log-probabilities under the frozen start model."""
        with self._as_reference() as backbone:
            states = _states_shared(
                backbone, prompt_ids, prompt_mask, completion_ids, completion_mask, group
            )
            logits = next_token_logits(backbone, states, temperature)
        return token_statistics(logits, completion_ids)[0]

    @contextlib.contextmanager
    def _as_reference(self) -> Iterator[Any]:
        if self.adapted:
            with self.model.disable_adapter():
                yield self.backbone
        elif self.reference is not None:
            yield self.reference
        else:
            raise RuntimeError("the policy was built without a reference")

    def _values(self, states: Tensor) -> Tensor:
        with torch.autocast(states.device.type, enabled=False):
            return self.value_head(at_least_float32(states)).squeeze(-1)


@contextlib.contextmanager
def twice_differentiable() -> Iterator[None]:
    """Attention by plain matrix products: the fused kernels have no second derivative.

    Costs the memory of the attention weights, rows * heads * (L + T) * T floats per layer.
    """
    with sdpa_kernel(SDPBackend.MATH):
        yield


def next_token_logits(backbone: Any, states: Tensor, temperature: float) -> Tensor:
    """(..., V) logits over temperature from hidden states (..., H), never in half precision."""
    logits = at_least_float32(backbone.get_output_embeddings()(states))
    cap = getattr(backbone.config.get_text_config(), "final_logit_softcapping", None)
    if cap is not None:
        logits = torch.tanh(logits / cap) * cap
    return logits / temperature


def at_least_float32(x: Tensor) -> Tensor:
    """Half precision widened to float32; float32 and float64 as they are."""
    return x if x.dtype == torch.float64 else x.float()


def token_statistics(logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities of ``tokens`` (...) and entropies (...) under ``logits`` (..., V)."""
    return distribution_statistics(torch.log_softmax(logits, dim=-1), tokens)


def distribution_statistics(logprobs: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """As :func:`token_statistics`, of a log-distribution (..., V)."""
    taken = logprobs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    # 0 * -inf would be NaN where a token has no probability at all.
    entropy = -(logprobs.exp() * logprobs.clamp(min=torch.finfo(logprobs.dtype).min)).sum(-1)
    return taken, entropy


def positions(mask: Tensor) -> Tensor:
    """(B, L) int64 position ids that count real tokens only; (B, L) bool ``mask``."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)


def prefill(backbone: Any, ids: Tensor, mask: Tensor) -> tuple[Tensor, DynamicCache]:
    """Run prompts (P, L) once: hidden state of the last token (P, 1, H) and the cache."""
    cache = DynamicCache(config=backbone.config)
    output = backbone.get_decoder()(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions(mask),
        past_key_values=cache,
        use_cache=True,
    )
    return output.last_hidden_state[:, -1:], cache


def extend(
    backbone: Any, ids: Tensor, mask: Tensor, cache: DynamicCache, position_ids: Tensor
) -> Tensor:
    """Run the next tokens (B, t) over the cache: their hidden states (B, t, H)."""
    output = backbone.get_decoder()(
        input_ids=ids,
        attention_mask=mask,
        position_ids=position_ids,
        past_key_values=cache,
        use_cache=True,
    )
    return output.last_hidden_state


def _states_shared(
    backbone: Any, prompt_ids: Tensor, prompt_mask: Tensor, ids: Tensor, mask: Tensor, group: Tensor
) -> Tensor:
    """(B, T, H): the state that predicts each completion token; each prompt is run once."""
    last, cache = prefill(backbone, prompt_ids, prompt_mask)
    first = last[group]
    if ids.shape[1] == 1:
        return first
    cache.batch_select_indices(group)
    whole = torch.cat([prompt_mask[group], mask], dim=1)[:, :-1]
    places = positions(whole)[:, prompt_ids.shape[1] :]
    return torch.cat([first, extend(backbone, ids[:, :-1], whole, cache, places)], dim=1)


def _states_plain(
    backbone: Any, prompt_ids: Tensor, prompt_mask: Tensor, ids: Tensor, mask: Tensor, group: Tensor
) -> Tensor:
    """(B, T, H) as :func:`_states_shared`, by one pass over whole rows."""
    whole = torch.cat([prompt_mask[group], mask], dim=1)
    output = backbone.get_decoder()(
        input_ids=torch.cat([prompt_ids[group], ids], dim=1),
        attention_mask=whole,
        position_ids=positions(whole),
        use_cache=False,
    )
    # A slice would make the head copy its weight matrix once per row.
    return output.last_hidden_state[:, prompt_ids.shape[1] - 1 : -1].contiguous()
