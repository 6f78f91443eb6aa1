"""Where the time of one iteration goes: by phase, and by kind of operation.

    python benchmarks/iteration.py [--work grpo] [--model NAME] [--precision bf16] [--plan fast]
        [--threads N] [--device cuda] [--prompts P] [--completions G] [--tokens T]

The work is that of `peers.py`. After iterations that are not counted (one, on a GPU two), one is
timed by phase and the next is run under torch's profiler, which tells kinds of operations apart by
their own time on the processor. On a GPU the phases wait for it. A third iteration is timed whole,
with nothing watched; its share of the card's peak (MFU) is that of the operations that `floor.py`
counts. Kernels, launches and waits of the program for the GPU are counted. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import date
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

PEER = Path(__file__).parent / "peer"
sys.path.insert(0, str(PEER))

from clock import Clock, prepare  # noqa: E402  (runners lie beside, not in a package)
from ours import as_a_worker, conditions_of, fit, module_of  # noqa: E402
from work import KINDS, Work, find_model, prompts_for  # noqa: E402

PHASES = {
    "crlbench.policy.decode.loop:DecodeLoop.sample": "decoding",
    "crlbench.train.passes:Passes.of_reference": "reference",
    "crlbench.train.passes:Passes.of_learner": "old log-probabilities",
    "crlbench.train.surrogate:Surrogate.losses": "update: forward",
    "crlbench.train.learner:Learner.manual_backward": "update: backward",
    "crlbench.train.optimizer:TracedAdamW.step": "update: optimizer",
    "crlbench.train.optimizer:Displacement.measure": "update: norms of the step",
    "crlbench.train.metrics:RolloutMetrics.of": "figures of completions",
}
REST = "the rest"
OPERATIONS = (
    ("attention", ("scaled_dot_product",)),
    ("matrix products", ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")),
    ("copies, casts, concatenations", ("copy", "cat", "index", "clone", "repeat", "gather")),
    ("filling with zeros", ("fill_", "zero_")),
    ("element by element, sums", ("aten::",)),
)
"""Kinds by parts of the operations' names; the first that fits."""
OUTSIDE = "Python, autograd and dispatch"
ON_CARD = {
    "launches": ("LaunchKernel", "GraphLaunch"),
    "waits": ("Synchronize",),
    "copies": ("cudaMemcpy",),
}
"""Calls of the CUDA runtime by parts of their names."""
WARM = {"cpu": 1, "cuda": 2}
"""Iterations before the timed one; graphs of a GPU are recorded in them."""
WATCHED = 3
"""Iterations after them: timed by phase, profiled, timed whole."""
SHOWN = 12


class Watch:
    """Seconds by phase of the timed iteration."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.now: Callable[[], float] = time.perf_counter

    def timed(self, phase: str, run: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, its time added to a phase."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            begun = self.now()
            found = run(*args, **kwargs)
            self.seconds[phase] += self.now() - begun
            return found

        return watched


def iterations(watch: Watch, clock: Clock, found: dict[str, Any]) -> Any:
    """A Lightning callback that times one iteration by phase, profiles the next, and times one."""
    import torch
    from lightning.pytorch.callbacks import Callback

    device = clock.work["device"]
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device != "cpu":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    profiler = torch.profiler.profile(activities=activities)
    by_phase, profiled, plain = range(WARM[device], WARM[device] + WATCHED)

    class Iterations(Callback):
        def on_train_batch_start(self, *args: Any, **_: Any) -> None:
            index = args[-1]
            watch.seconds.clear()
            watch.now = clock.now if index == by_phase else time.perf_counter
            if index == profiled:
                profiler.start()
            self.begun = clock.now()

        def on_train_batch_end(self, *args: Any, **_: Any) -> None:
            whole, index = clock.now() - self.begun, args[-1]
            if index == by_phase:
                rest = whole - sum(watch.seconds.values())
                found["phases"] = dict(watch.seconds) | {REST: rest}
            if index == profiled:
                profiler.stop()
                found["events"] = profiler.key_averages()
                found["operations"] = kinds(found["events"], whole)
            if index == plain:
                found["seconds"] = whole

    return Iterations()


def kinds(events: Any, whole: float) -> dict[str, float]:
    """Seconds of each kind of operation of an iteration of ``whole`` seconds."""
    seconds: dict[str, float] = defaultdict(float)
    for event in events:
        for kind, parts in OPERATIONS:
            if event.key.startswith("aten::") and any(part in event.key for part in parts):
                seconds[kind] += event.self_cpu_time_total / 1e6
                break
    return dict(seconds) | {OUTSIDE: max(0.0, whole - sum(seconds.values()))}


def on_card(events: Any) -> dict[str, float]:
    """What the GPU was given in the profiled iteration: seconds of its kernels, and counts."""
    found: dict[str, float] = defaultdict(float)
    for event in events:
        if event.device_type.name == "CUDA" and not event.key.startswith("Mem"):
            found["kernels"] += event.count
            found["seconds"] += event.self_device_time_total / 1e6
        for name, parts in ON_CARD.items():
            if event.key.startswith("cu") and any(part in event.key for part in parts):
                found[name] += event.count
    return found


def card_lines(work: Work, kind: str, found: dict[str, Any]) -> list[str]:
    """Markdown lines of what there is on a GPU alone."""
    import torch
    from floor import iteration_operations, measure, shape_of
    from transformers import AutoConfig

    events, seconds = found["events"], found["seconds"]
    memory = torch.cuda.max_memory_reserved()
    counts = on_card(events)
    shape = shape_of(AutoConfig.from_pretrained(work.model.folder))
    lengths = [len(ids) for _, ids in prompts_for(work.model, work.prompts)]
    operations = iteration_operations(
        shape, lengths, work.completions, work.tokens, critic=kind == "ppo"
    )
    rate = measure(work.device).flops[work.precision]
    phases = found["phases"]
    update = sum(value for name, value in phases.items() if name.startswith("update"))
    mfu = {
        "iteration": operations.total / seconds / rate,
        "decoding": operations.decode / phases["decoding"] / rate,
        "update": operations.update / update / rate,
    }
    slowest = sorted(events, key=lambda event: -event.self_cpu_time_total)[:SHOWN]
    return [
        f"| {torch.cuda.get_device_name()} | |",
        "|---|---|",
        f"| iteration, s | {seconds:.3f} |",
        *(f"| MFU, {name} | {share:.2%} |" for name, share in mfu.items()),
        f"| peak, TFLOP/s | {rate / 1e12:.0f} |",
        f"| TFLOP an iteration | {operations.total / 1e12:.2f} |",
        f"| peak memory, GB | {memory / 1e9:.2f} |",
        f"| seconds of kernels | {counts.pop('seconds', 0.0):.3f} |",
        *(f"| {name} | {count:.0f} |" for name, count in counts.items()),
        "",
        "| operation | count | own time on the processor, ms | on the GPU, ms |",
        "|---|---|---|---|",
        *(
            f"| {event.key} | {event.count} | {event.self_cpu_time_total / 1e3:.1f} | "
            f"{event.self_device_time_total / 1e3:.1f} |"
            for event in slowest
        ),
    ]


def table(head: str, seconds: dict[str, float]) -> list[str]:
    """Markdown lines, the largest first."""
    whole = sum(seconds.values())
    lines = [f"| {head} | seconds | share |", "|---|---|---|"]
    for name, value in sorted(seconds.items(), key=lambda entry: -entry[1]):
        lines.append(f"| {name} | {value:.2f} | {value / whole:.0%} |")
    return lines


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument("--work", default="grpo", choices=KINDS)
    made.add_argument("--model", default="smollm2-135m-instruct")
    made.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    made.add_argument("--plan", default="plain", choices=("plain", "fast"))
    made.add_argument("--threads", type=int, default=1)
    made.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    made.add_argument("--prompts", type=int, default=8)
    made.add_argument("--completions", type=int, default=8)
    made.add_argument("--tokens", type=int, default=32)
    options = made.parse_args()
    as_a_worker(options.threads)
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    described = Work(
        find_model(options.model),
        prompts=options.prompts,
        completions=options.completions,
        tokens=options.tokens,
        precision=options.precision,
        device=options.device,
        threads=options.threads,
        warmup=WARM[options.device],
        iterations=WATCHED,
    )
    work = described.plan(options.work, {"plan": options.plan})
    prepare(work)
    clock, watch, found = Clock(work), Watch(), {}
    conditions = conditions_of(work)
    module, reader = module_of(work, conditions, clock)
    for place, phase in PHASES.items():
        owner, _, method = place.rpartition(".")
        owner = resolve_name(owner)
        setattr(owner, method, watch.timed(phase, getattr(owner, method)))
    fit(work, conditions, module, reader, clock, [iterations(watch, clock, found)])
    print("\n".join(table("phase", found["phases"])), end="\n\n")
    print("\n".join(table("operation", found["operations"])), end="\n\n")
    if options.device != "cpu":
        print("\n".join(card_lines(described, options.work, found)), end="\n\n")
    arguments = " ".join(f"--{name} {value}" for name, value in vars(options).items())
    print(f"{date.today()}, `python benchmarks/iteration.py {arguments}`")


if __name__ == "__main__":
    main()
