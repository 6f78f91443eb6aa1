"""Training on a GPU (-m gpu): the CPU's update, and passes that never wait for the device."""

from __future__ import annotations

import pytest
import torch

from crlbench.policy.decode.loop import DrawKey
from crlbench.train.optimizer import TracedAdamW
from crlbench.train.stream import make_batch
from tests.train.loop import PROMPTS, conditions, fit, make, weights


@pytest.mark.gpu
@pytest.mark.parametrize("recipe", ["ppo", "grpo", "trpo"])
def test_an_iteration_is_that_of_the_cpu(cuda, recipe, tmp_path):
    c = conditions(budget__grid="1", budget__iterations_per_point="1")
    ends = {}
    for device in ("cpu", cuda):
        module = make(c, recipe=recipe)
        fit(module, tmp_path / device, device=device)
        done = module.iteration
        assert done.rollout.completion_ids.is_cpu and done.reward.paid.is_cpu
        ends[device] = done, {n: w.cpu() for n, w in weights(module).items()}
    (plain, wanted), (done, found) = ends["cpu"], ends[cuda]
    assert torch.equal(plain.rollout.completion_ids, done.rollout.completion_ids)
    assert done.losses == pytest.approx(plain.losses, abs=1e-4)
    off = sum(float((found[n] - wanted[n]).double().square().sum()) for n in wanted)
    assert off < 1e-6 * sum(float(w.double().square().sum()) for w in wanted.values())


@pytest.mark.gpu
def test_the_passes_of_an_update_never_wait_for_the_device(cuda):
    module = make(recipe="ppo")
    module.configure_model()
    module.to(cuda)
    batch = make_batch(PROMPTS[:5], 128, completions=4).to(cuda)
    rollout = module.collector.sampler.sample(module.policy, batch, DrawKey(1, "t"))
    inputs = module.passes.inputs(rollout)

    def run():
        outputs = module.policy(*inputs, actions=rollout.action_mask)
        module.policy.reference_logprobs(*inputs, actions=rollout.action_mask)
        (outputs.logprobs.sum() + outputs.values.sum()).backward()

    run()  # what is made once may wait
    torch.cuda.set_sync_debug_mode("error")
    try:
        run()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_the_optimizer_leaves_its_step_as_on_the_cpu(cuda):
    found = []
    for device in ("cpu", cuda):
        torch.manual_seed(0)
        weights = [torch.nn.Parameter(torch.randn(n).to(device)) for n in (1000, 3, 70)]
        optimizer = TracedAdamW(weights, lr=1e-2, fused=True)
        before = [w.detach().clone() for w in weights]
        for w in weights:
            w.grad = w.detach().sign() * 0.5
        optimizer.step()
        for old, w in zip(before, weights, strict=True):
            assert torch.equal(w.grad, w.detach() - old)
        found.append([w.grad.cpu() for w in weights])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-4)
