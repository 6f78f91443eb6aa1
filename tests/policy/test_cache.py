"""The cache with room against the one that grows."""

from __future__ import annotations

import pytest
import torch
from transformers import DynamicCache

from crlbench.policy.decode.rows import RoomyLayer, roomy_cache
from crlbench.policy.forward import extend, positions, prefill
from tests.support.checkpoints import CONFIGS, random_model


@pytest.mark.parametrize("family", sorted(CONFIGS))
@torch.no_grad()
def test_it_gives_what_a_growing_cache_gives(family):
    model = random_model(family).eval()
    ids = torch.randint(0, 128, (3, 6))
    mask = torch.arange(6) >= torch.tensor([[0], [2], [4]])
    found = []
    for cache in (DynamicCache(config=model.config), roomy_cache(model.config, 12)):
        torch.manual_seed(0)
        states, cache = prefill(model, ids, mask, cache)
        seen, parts = mask, [states]
        for rows in [[0, 0, 1, 1, 2, 2], [0, 1, 3, 5], [3, 0], [0, 1]]:
            rows = torch.tensor(rows)
            cache.batch_select_indices(rows)
            seen = torch.cat([seen[rows], torch.ones(len(rows), 1, dtype=torch.bool)], dim=1)
            tokens = torch.randint(0, 128, (len(rows), 1))
            parts.append(extend(model, tokens, seen, cache, positions(seen)[:, -1:]))
        found.append(parts)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)


@torch.no_grad()
def test_a_token_is_written_into_space_that_is_held():
    model = random_model().eval()
    cache = roomy_cache(model.config, 9)
    layer = cache.layers[0]
    assert isinstance(layer, RoomyLayer)
    ids = torch.randint(0, 128, (2, 6))
    prefill(model, ids, torch.ones_like(ids, dtype=torch.bool), cache)
    place = layer.key_store.data_ptr()
    for t in range(3):
        seen = torch.ones(2, 7 + t, dtype=torch.bool)
        extend(model, ids[:, :1], seen, cache, positions(seen)[:, -1:])
        assert cache.get_seq_length() == 7 + t
        assert layer.key_store.data_ptr() == layer.keys.data_ptr() == place


@pytest.mark.parametrize("family", sorted(CONFIGS))
@torch.no_grad()
def test_under_autocast_tokens_are_held_as_attention_reads_them_with_the_same_numbers(family):
    model = random_model(family).eval()
    ids, seen = torch.randint(0, 128, (3, 6)), torch.ones(3, 9, dtype=torch.bool)
    found = []
    with torch.autocast("cpu", torch.bfloat16):
        for cache in (DynamicCache(config=model.config), roomy_cache(model.config, 9)):
            states, cache = prefill(model, ids, seen[:, :6], cache)
            parts = [states]
            for t in range(3):
                now = seen[:, : 7 + t]
                parts.append(extend(model, ids[:, t : t + 1], now, cache, positions(now)[:, -1:]))
            found.append(parts)
    roomy = [layer for layer in cache.layers if isinstance(layer, RoomyLayer)]
    assert {layer.keys.dtype for layer in roomy} <= {torch.float32}
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
