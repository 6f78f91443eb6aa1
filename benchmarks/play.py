"""What an iteration of an environment costs, and how much of it is play outside decoding.

    python benchmarks/play.py [--model tiny-llama] [--tasks addition,guess,relay-sum,lookup]
        [--iterations N] [--track mini] [--recipe ppo] [--profile]

Iterations of 32 prompts with 8 completions are trained, one after the other of each task in turns.
Time is that of this process's processor, so that other work on a machine adds little; the first
iteration of a task is not counted. "Outside" is what bringing experience takes beside decoding:
observations, turns, rows. Prints Markdown; with --profile also the functions that take most of it.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from crlbench.algo.recipes import load
from crlbench.catalog.find import Catalog
from crlbench.policy.decode.loop import DecodeLoop
from crlbench.policy.weights.load import build_policy
from crlbench.run.board import load_track
from crlbench.run.subject import collector_of, load_subject, load_task, training_prompts
from crlbench.train.module import PolicyOptimization
from crlbench.train.stream import PromptStream
from crlbench.train.trainer import build_trainer, quiet

SHOWN = 14
"""Functions of a profile."""


@dataclass
class Clock:
    """Seconds of the processor by part, summed over the counted iterations of a task."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    now: Callable[[], float] = time.process_time

    def timed(self, part: str, run: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, its time kept under a part."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            begun = self.now()
            try:
                return run(*args, **kwargs)
            finally:
                self.seconds.setdefault(part, []).append(self.now() - begun)

        return watched


def measure(options: argparse.Namespace, name: str) -> dict[str, float]:
    """Mean seconds an iteration of a task: ``whole``, ``collect``, ``decode``."""
    from lightning.pytorch.callbacks import Callback

    conditions = load_track(Catalog(), options.track).conditions
    count = options.iterations + 1
    budget = {"prompts": 32, "completions": 8, "grid": count, "iterations_per_point": 1}
    conditions = conditions.model_copy(
        update={
            "budget": conditions.budget.model_copy(update=budget),
            "sampling": conditions.sampling.model_copy(update={"max_completion_bytes": 1024}),
        }
    )
    subject, task = load_subject(options.model, (), "fp32"), load_task(name, ())
    recipe, clock = load(options.recipe), Clock()
    module = PolicyOptimization(
        build=partial(
            build_policy,
            subject.card,
            subject.backbone,
            value_head=recipe.critic is not None,
            reference=recipe.needs_reference,
            seed=0,
            fast=conditions.hardware.plan == "fast",
        ),
        collector=collector_of(task, subject.reader, conditions, "cpu"),
        recipe=recipe,
        conditions=conditions,
        seed=0,
    )
    module.configure_model()
    prompts = training_prompts(
        task, subject.reader, module.collector.max_tokens, conditions.data.levels, 32
    )
    stream = PromptStream(
        prompts, seed=0, per_iteration=32, completions=8, iterations=count, pad=subject.reader.pad
    )

    class Iterations(Callback):
        def on_train_batch_start(self, *args: Any, **_: Any) -> None:
            if args[-1] == 1:
                clock.seconds.clear()
            self.begun = clock.now()

        def on_train_batch_end(self, *args: Any, **_: Any) -> None:
            clock.seconds.setdefault("whole", []).append(clock.now() - self.begun)

    decode, collector = DecodeLoop.complete, type(module.collector)
    collect = collector.collect
    profile = cProfile.Profile() if options.profile else None
    DecodeLoop.complete = clock.timed("decode", decode)  # type: ignore[method-assign]
    collector.collect = clock.timed(  # type: ignore[method-assign]
        "collect", collect if profile is None else partial(_profiled, profile, collect)
    )
    try:
        with tempfile.TemporaryDirectory() as scratch, quiet():
            trainer = build_trainer(
                conditions,
                device="cpu",
                callbacks=[Iterations()],
                loggers=[],
                folder=Path(scratch),
                ranks=module.ranks,
            )
            trainer.fit(module, stream)
    finally:
        DecodeLoop.complete, collector.collect = decode, collect  # type: ignore[method-assign]
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(SHOWN)
    return {part: sum(times) / options.iterations for part, times in clock.seconds.items()}


def _profiled(profile: cProfile.Profile, run: Callable[..., Any], *args: Any) -> Any:
    return profile.runcall(run, *args)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="tiny-llama")
    parser.add_argument("--track", default="mini")
    parser.add_argument("--recipe", default="ppo")
    parser.add_argument("--tasks", default="addition,guess,relay-sum,lookup")
    parser.add_argument("--iterations", type=int, default=5, metavar="N")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args(arguments)
    names = options.tasks.split(",")
    print("| task | iteration, s | of the first | decoding | outside it | outside / iteration |")
    print("|---|---|---|---|---|---|")
    first = None
    for name in names:
        found = measure(options, name)
        whole, decode = found["whole"], found["decode"]
        outside = found["collect"] - decode
        first = whole if first is None else first
        print(
            f"| {name} | {whole:.3f} | {whole / first:.2f} | {decode:.3f} | {outside:.3f}"
            f" | {outside / whole:.1%} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
