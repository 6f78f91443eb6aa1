"""Where tensors lie: copies between host and device keep values, types and gradients."""

from __future__ import annotations

import pytest
import torch

from crlbench.policy.device import card_bytes, to_device, to_host
from crlbench.policy.policy import TokenOutputs

CPU = torch.device("cpu")


def test_on_the_cpu_nothing_is_copied_and_no_card_is_known():
    x = torch.randn(3, requires_grad=True)
    assert to_device(x, CPU) is x
    found, nothing = to_host([x, None])
    assert found is x and nothing is None
    assert to_host([]) == []
    assert card_bytes(CPU) is None


def test_outputs_on_the_host_leave_the_distribution_where_it_is():
    far = torch.empty((2, 3, 5), device="meta")
    outputs = TokenOutputs(torch.randn(2, 3), torch.randn(2, 3), None, far)
    found = outputs.on_host()
    assert found.distribution is far and found.values is None
    assert torch.equal(found.logprobs, outputs.logprobs)
    assert torch.equal(found.entropy, outputs.entropy)


@pytest.mark.gpu
def test_copies_to_a_card_and_back_keep_values_and_gradients(cuda):
    x = torch.randn(64, 7, requires_grad=True)
    y = torch.arange(5)
    card = torch.device(cuda)
    far = [to_device(x, card), to_device(y, card)]
    assert all(z.is_cuda for z in far)
    near, again, nothing = to_host([far[0] * 2, far[1], None])
    assert near.is_cpu and torch.equal(near, 2 * x) and torch.equal(again, y)
    near.sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 2.0)) and nothing is None
    assert card_bytes(card) > 1 << 30
