"""What a process does that trains a small model together with others, in tests."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from multiprocessing import get_context

import torch

from crlbench.reward.score import Score
from crlbench.train.callbacks import RunStopped
from crlbench.train.ranks import join_ranks, leave
from tests.train.frozen_loop import make as make_frozen
from tests.train.frozen_loop import train as train_on_lessons
from tests.train.loop import conditions, digits, fit, make, watch_steps

CASES = {
    # Under seed 3 a draw lies 5e-8 from a boundary of the CDF: rounding decides that token.
    "ppo": {"recipe": "ppo", "seed": 5},
    # Under seed 3 one first gradient of 3,712 is nearly 0: Adam makes a long step of its rounding.
    "ppo-lora": {"recipe": "ppo", "lora": True, "seed": 5},
    "grpo-lora": {"recipe": "grpo", "lora": True},
    "dapo": {"recipe": "dapo", "score": digits},  # some groups are paid alike and sampled again
    # A minibatch of three prompts, of which one rank has two; and of one, of which one has none.
    "grpo-uneven": {"recipe": "grpo", "changes": {"budget__prompts": "6"}},
    "ppo-idle": {"recipe": "ppo", "changes": {"budget__prompts": "2"}},
    "placebo": {"recipe": "ppo", "arm": "placebo"},
    "grpo-bf16": {"recipe": "grpo", "changes": {"hardware__precision": "bf16"}},
}
"""What is trained, as :func:`tests.train.loop.make` takes it."""
NEAR = {"ddp": 1e-6, "fsdp": 1e-5}
"""How far all weights after an update may be off, relative to their norm."""
STOPPED_AT = 3
"""Iterations after which a run is interrupted, to be continued by others."""


def checksum(texts, answers):
    """Pays differently for almost any two completions.

    Where all are paid alike a gradient is nothing but rounding, which Adam makes a step of.
    """
    return [Score(sum(text.encode()) % 7 / 6) for text in texts]


def module_of(case, **options):
    given = dict(CASES[case])
    changes = {"budget__grid": "2"} | given.pop("changes", {})
    return make(conditions(**changes), **{"score": checksum} | given, **options)


def trace(case, folder, **options):
    """Train a case; all learned weights after each update, and what was recorded."""
    module, after = module_of(case, **options), []

    def trace_weights(_):
        after.append({name: weight.clone() for name, weight in module.learned().items()})

    watch_steps(module, after=trace_weights)
    recorder = fit(module, folder)
    return {"weights": after} | recorder.state_dict()


def begin(folder, **options):
    """Train the first iterations of a run, up to its checkpoint."""
    module = module_of("ppo", **options)
    with suppress(RunStopped):
        fit(module, folder, stop=lambda: module.iterations_done >= STOPPED_AT)


def go_on(folder, **options):
    """Continue a run that was begun; its learned weights and what was recorded."""
    module = module_of("ppo", **options)
    recorder = fit(module, folder, resume=True)
    learned = {name: weight.clone() for name, weight in module.learned().items()}
    return {"weights": [learned]} | recorder.state_dict()


def distance(a, b):
    """The norm of the difference of all weights, relative to the norm of ``a``."""
    assert a.keys() == b.keys()
    whole = [torch.cat([weights[name].double().flatten() for name in a]) for weights in (a, b)]
    return float((whole[0] - whole[1]).norm() / whole[0].norm())


def together(function, size, *given):
    """Run ``function(rank, *given)`` in as many processes, each of which knows the others."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = get_context("spawn")
    processes = [
        context.Process(target=_begin, args=(function, rank, size, port, *given))
        for rank in range(size)
    ]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join(timeout=400)
        assert [process.exitcode for process in processes] == [0] * size
    finally:
        for process in processes:
            process.kill()


def _begin(function, rank, size, port, *given):
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    function(rank, *given)


def train_cases(rank, strategy, cases, folder):
    """By two ranks: every case, the end of ``one-began`` and the beginning of ``two-began``.

    What they found goes into ``folder/<name>-<rank>.pt``.
    """
    ranks = join_ranks("cpu", 1, strategy)
    for case in cases:
        found = trace(case, folder / case, ranks=ranks)
        torch.save(found, folder / f"{case}-{rank}.pt")
    torch.save(go_on(folder / "one-began", ranks=ranks), folder / f"one-began-{rank}.pt")
    begin(folder / "two-began", ranks=ranks)
    leave()


NEAR_FROZEN = 1e-6
"""How far all weights after an update on frozen answers may be off, relative to their norm."""


def frozen_trace(recipe, folder, **options):
    """Train on frozen answers; all learned weights after each update, and what was recorded."""
    module = make_frozen(recipe, c=conditions(budget__grid="2"), **options)
    after = []
    watch_steps(
        module, after=lambda _: after.append({n: w.clone() for n, w in module.learned().items()})
    )
    recorder = train_on_lessons(module, folder)
    return {"weights": after} | recorder.state_dict()


def train_frozen(rank, recipe, folder):
    """By two ranks; what each found goes into ``folder/rank-<rank>.pt``."""
    ranks = join_ranks("cpu", 1, "ddp")
    found = frozen_trace(recipe, folder / "together", ranks=ranks)
    torch.save(found, folder / f"rank-{rank}.pt")
    leave()
