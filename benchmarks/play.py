"""What an iteration of an environment costs, and how much of it is play outside decoding.

    python benchmarks/play.py [--model tiny-llama] [--tasks addition,guess,relay-sum,lookup]
        [--iterations N] [--track mini] [--recipe ppo] [--plan plain|fast] [--profile TASK]

Iterations of 32 prompts with 8 completions are trained, one of each task in turn. Time is that of
this process's processor, so that other work on a machine adds little; the first iteration of a
task is not counted. "Outside" is what bringing experience takes beside decoding: observations,
turns, rows. Prints Markdown; with --profile also the functions that take most of a task's time.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

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
class Turns:
    """Tasks train in turns, an iteration each: whoever shares the machine meets all of them alike.

    Each task has a thread, and one thread at a time goes on.
    """

    waiting: list[str]
    """Tasks in the order of their turns."""
    changed: threading.Condition = field(default_factory=threading.Condition)

    def take(self, name: str) -> None:
        """Wait for the turn of a task."""
        with self.changed:
            self.changed.wait_for(lambda: self.waiting[0] == name)

    def pass_on(self, name: str) -> None:
        """Let the next task go on, and wait for the turn again."""
        with self.changed:
            self.waiting.append(self.waiting.pop(0))
            self.changed.notify_all()
        self.take(name)

    def leave(self, name: str) -> None:
        """Take no turn any more."""
        with self.changed:
            self.waiting.remove(name)
            self.changed.notify_all()


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


def measure(options: argparse.Namespace, name: str, turns: Turns) -> dict[str, list[float]]:
    """Seconds of each iteration of a task by part: ``whole``, ``collect``, ``decode``, ``rows``.

    ``decode`` and ``rows`` are sums over an iteration; ``rows`` counts, and is no time.
    """
    from lightning.pytorch.callbacks import Callback

    conditions = load_track(Catalog(), options.track).conditions
    count = options.iterations + 1
    budget = {"prompts": 32, "completions": 8, "grid": count, "iterations_per_point": 1}
    plan = options.plan or conditions.hardware.plan
    conditions = conditions.model_copy(
        update={
            "budget": conditions.budget.model_copy(update=budget),
            "sampling": conditions.sampling.model_copy(update={"max_completion_bytes": 1024}),
            "hardware": conditions.hardware.model_copy(update={"plan": plan}),
        }
    )
    subject, task = load_subject(options.model, (), "fp32"), load_task(name, ())
    recipe, clock = load(options.recipe), Clock()
    collector = collector_of(task, subject.reader, conditions, "cpu")
    prompts = training_prompts(
        task, subject.reader, collector.max_tokens, conditions.data.levels, 32
    )
    module = PolicyOptimization(
        build=partial(
            build_policy,
            subject.card,
            subject.backbone,
            value_head=recipe.critic is not None,
            reference=recipe.needs_reference,
            seed=0,
            fast=plan == "fast",
        ),
        collector=Watched(collector, clock),
        recipe=recipe,
        conditions=conditions,
        seed=0,
    )
    module.configure_model()
    stream = PromptStream(
        prompts, seed=0, per_iteration=32, completions=8, iterations=count, pad=subject.reader.pad
    )
    profile = cProfile.Profile() if options.profile == name else None
    found: dict[str, list[float]] = {}

    class Iterations(Callback):
        def on_train_batch_start(self, *args: Any, **_: Any) -> None:
            turns.take(name)
            clock.seconds.clear()
            self.begun = clock.now()
            if profile is not None and args[-1]:
                profile.enable()

        def on_train_batch_end(self, *args: Any, **_: Any) -> None:
            whole = clock.now() - self.begun
            if profile is not None:
                profile.disable()
            if args[-1]:  # the first iteration is not counted
                found.setdefault("whole", []).append(whole)
                for part, seconds in clock.seconds.items():
                    found.setdefault(part, []).append(sum(seconds))
            turns.pass_on(name)

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
    if profile is not None:
        pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(SHOWN)
    return found


class Watched:
    """A collector whose time is taken, and that of the sampler in it."""

    def __init__(self, collector: Any, clock: Clock) -> None:
        self.collector, self.clock = collector, clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self.collector, name)

    def collect(self, *args: Any) -> Any:
        """As the collector does."""
        decode, clock = DecodeLoop.complete, self.clock
        DecodeLoop.complete = clock.timed("decode", decode)  # type: ignore[method-assign]
        try:
            found = clock.timed("collect", self.collector.collect)(*args)
        finally:
            DecodeLoop.complete = decode  # type: ignore[method-assign]
        clock.seconds["rows"] = [float(len(found.rollout.texts))]
        return found


def in_turns(options: argparse.Namespace, names: list[str]) -> dict[str, dict[str, list[float]]]:
    """What :func:`measure` finds of every task."""
    turns, found = Turns([*names]), {}

    def run(name: str) -> None:
        turns.take(name)
        try:
            found[name] = measure(options, name, turns)
        finally:
            turns.leave(name)

    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="tiny-llama")
    parser.add_argument("--track", default="mini")
    parser.add_argument("--recipe", default="ppo")
    parser.add_argument("--plan", choices=("plain", "fast"), help="(that of the track)")
    parser.add_argument("--tasks", default="addition,guess,relay-sum,lookup")
    parser.add_argument("--iterations", type=int, default=5, metavar="N")
    parser.add_argument("--profile", metavar="TASK", help="its functions that take most")
    options = parser.parse_args(arguments)
    names = options.tasks.split(",")
    found = in_turns(options, names)
    if found.keys() != {*names}:
        return 1  # a thread has said why
    print(
        "| task | iteration, s | of the first | in each iteration | rows | decoding | the rest"
        " | play outside decoding | its share |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    base = np.array(found[names[0]]["whole"])
    for name in names:
        parts = {part: np.array(values) for part, values in found[name].items()}
        whole, collect = parts["whole"], parts["collect"]
        outside, ratios = collect - parts["decode"], whole / base
        print(
            f"| {name} | {whole.mean():.3f} | {whole.mean() / base.mean():.2f}"
            f" | {ratios.min():.2f} to {ratios.max():.2f} | {parts['rows'].mean():.0f}"
            f" | {parts['decode'].mean():.3f} | {(whole - collect).mean():.3f}"
            f" | {outside.mean():.3f} | {(outside / whole).mean():.1%} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
