"""Where the time of one iteration goes: by phase, and by kind of operation.

    python benchmarks/iteration.py [--work grpo] [--model NAME] [--precision bf16] [--plan fast]
        [--threads N]

The work is that of `peers.py`. After one iteration that is not counted, one is timed by phase and
the next is run under torch's profiler, which tells kinds of operations apart by their own time on
the processor. Prints Markdown.
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
from work import KINDS, Work, find_model  # noqa: E402

PHASES = {
    "crlbench.policy.decode.loop:DecodeLoop.sample": "decoding",
    "crlbench.train.passes:Passes.of_reference": "reference",
    "crlbench.train.passes:Passes.of_learner": "old log-probabilities",
    "crlbench.train.surrogate:Surrogate.losses": "update: forward",
    "crlbench.train.learner:Learner.manual_backward": "update: backward",
}
REST = "optimizer and the rest"
OPERATIONS = (
    ("attention", ("scaled_dot_product",)),
    ("matrix products", ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")),
    ("copies, casts, concatenations", ("copy", "cat", "index", "clone", "repeat", "gather")),
    ("filling with zeros", ("fill_", "zero_")),
    ("element by element, sums", ("aten::",)),
)
"""Kinds by parts of the operations' names; the first that fits."""
OUTSIDE = "Python, autograd and dispatch"
WARM, TIMED, PROFILED = range(3)


class Watch:
    """Seconds by phase of the timed iteration."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def timed(self, phase: str, run: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, its time added to a phase."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            begun = time.perf_counter()
            found = run(*args, **kwargs)
            self.seconds[phase] += time.perf_counter() - begun
            return found

        return watched


def iterations(watch: Watch, found: dict[str, Any]) -> Any:
    """A Lightning callback that times one iteration and profiles the next."""
    import torch
    from lightning.pytorch.callbacks import Callback

    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])

    class Iterations(Callback):
        def on_train_batch_start(self, *args: Any, **_: Any) -> None:
            index = args[-1]
            watch.seconds.clear()
            if index == PROFILED:
                profiler.start()
            self.begun = time.perf_counter()

        def on_train_batch_end(self, *args: Any, **_: Any) -> None:
            whole, index = time.perf_counter() - self.begun, args[-1]
            if index == TIMED:
                rest = whole - sum(watch.seconds.values())
                found["phases"] = dict(watch.seconds) | {REST: rest}
            if index == PROFILED:
                profiler.stop()
                found["operations"] = kinds(profiler.key_averages(), whole)

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
    options = made.parse_args()
    as_a_worker(options.threads)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    work = Work(
        find_model(options.model),
        precision=options.precision,
        threads=options.threads,
        warmup=TIMED,
        iterations=PROFILED,
    ).plan(options.work, {"plan": options.plan})
    prepare(work)
    clock, watch, found = Clock(work), Watch(), {}
    conditions = conditions_of(work)
    module, reader = module_of(work, conditions, clock)
    for place, phase in PHASES.items():
        owner, _, method = place.rpartition(".")
        owner = resolve_name(owner)
        setattr(owner, method, watch.timed(phase, getattr(owner, method)))
    fit(work, conditions, module, reader, clock, [iterations(watch, found)])
    print("\n".join(table("phase", found["phases"])), end="\n\n")
    print("\n".join(table("operation", found["operations"])), end="\n\n")
    arguments = " ".join(f"--{name} {value}" for name, value in vars(options).items())
    print(f"{date.today()}, `python benchmarks/iteration.py {arguments}`")


if __name__ == "__main__":
    main()
