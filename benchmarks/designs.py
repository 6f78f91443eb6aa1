"""Processor seconds of an iteration of the track ``mini``, for each bundled design.

    python benchmarks/designs.py [--designs llama,gemma] [--plans plain,fast] [--task addition]
        [--recipe grpo] [--rounds 3] [--markdown]

A design is a bundled model, ``tiny2-<design>``. Prompts, completions, reward, recipe and optimizer
are those of a run on the task. The first iteration is not counted; the median of the others is
shown, with decoding, the update and one point of the curve apart. All numbers are the process's own
processor time, on one thread: other work on the machine changes them less than seconds on the
clock, and still by up to 40 %. Plans take turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

PEER = Path(__file__).parent / "peer"
sys.path.insert(0, str(PEER))

from ours import as_a_worker  # noqa: E402  (runners lie beside, not in a package)

ROOT = Path(__file__).parents[1]
DESIGNS = "llama,mistral,qwen2,gemma,neox,phi,deepseek,granite-hybrid"
ITERATIONS = 4
PHASES = {
    "crlbench.policy.decode.loop:DecodeLoop.sample": "decoding",
    "crlbench.train.module:PolicyOptimization.learn": "update",
    "crlbench.train.learner:Learner.validation_step": "evaluation",
}
"""Functions by the phase that they are. An iteration is measured without the evaluation after it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--designs", default=DESIGNS)
    parser.add_argument("--plans", default="plain,fast")
    parser.add_argument("--task", default="addition")
    parser.add_argument("--recipe", default="grpo")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    as_a_worker(1)
    designs, plans = options.designs.split(","), options.plans.split(",")
    parts = ["iteration", *PHASES.values()]
    if options.markdown:
        print("| design | plan | " + " | ".join(parts) + " |")
        print("|---|---|" + "---|" * len(parts))
    for design in designs:
        found: dict[str, list[dict[str, float]]] = defaultdict(list)
        for _ in range(options.rounds):
            for plan in plans:
                found[plan] += measure(design, plan, options.task, options.recipe)
        for plan, rows in found.items():
            medians = [statistics.median(row[part] for row in rows) for part in parts]
            if options.markdown:
                print(f"| {design} | {plan} | " + " | ".join(f"{x:.2f}" for x in medians) + " |")
            else:
                cells = (f"{part} {x:.3f}" for part, x in zip(parts, medians, strict=True))
                least = min(row["iteration"] for row in rows)
                print(f"{design}, {plan}: {', '.join(cells)} (least {least:.3f})", flush=True)


def measure(design: str, plan: str, task: str, recipe: str) -> list[dict[str, float]]:
    """Processor seconds of each iteration after the first, and of its phases."""
    from lightning.pytorch.callbacks import Callback

    seconds: dict[str, float] = defaultdict(float)
    found = []

    class Iterations(Callback):
        def on_train_batch_start(self, *_: Any, **__: Any) -> None:
            if "begun" in seconds:
                found.append(dict(seconds))
            seconds.clear()
            seconds["begun"] = time.process_time()

        def on_train_batch_end(self, *_: Any, **__: Any) -> None:
            seconds["iteration"] = time.process_time() - seconds["begun"]

        def on_train_end(self, *_: Any, **__: Any) -> None:
            found.append(dict(seconds))

    with Watch(seconds), tempfile.TemporaryDirectory() as folder:
        train(f"tiny2-{design}", plan, task, recipe, Path(folder), Iterations())
    return found[1:]


class Watch:
    """Adds the processor seconds of the phases' functions while it is open."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds = seconds
        self.plain: list[tuple[Any, str, Callable[..., Any]]] = []

    def __enter__(self) -> None:
        for name, phase in PHASES.items():
            owner, _, function = name.rpartition(".")
            of = resolve_name(owner)
            plain = getattr(of, function)
            self.plain.append((of, function, plain))
            setattr(of, function, self._timed(phase, plain))

    def __exit__(self, *_: object) -> None:
        for of, function, plain in self.plain:
            setattr(of, function, plain)

    def _timed(self, phase: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            begun = time.process_time()
            result = run(*args, **kwargs)
            self.seconds[phase] += time.process_time() - begun
            return result

        return watched


def train(model: str, plan: str, task_name: str, recipe_name: str, folder: Path, watch: Any) -> None:
    """A few iterations of a run, with an evaluation after each."""
    import torch

    from crlbench.algo.recipes import load
    from crlbench.catalog.find import Catalog
    from crlbench.contract.conditions import Track, override
    from crlbench.contract.sizes import DECODE_ROWS
    from crlbench.policy.weights.load import build_policy
    from crlbench.run.subject import collector_of, load_subject, prompts_of, training_prompts
    from crlbench.train.module import PolicyOptimization
    from crlbench.train.stream import EvalPrompts, PromptStream
    from crlbench.train.trainer import build_trainer, quiet

    path = ROOT / "leaderboard" / "tracks" / "mini.toml"
    track = Track.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    settings = {"budget.grid": str(ITERATIONS), "budget.iterations_per_point": "1"}
    conditions = override(track.conditions, settings | {"hardware.plan": plan})
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    subject = load_subject(model, (), conditions.hardware.precision)
    task, recipe = Catalog().load_task(task_name), load(recipe_name)
    build = partial(
        build_policy,
        subject.card,
        subject.backbone,
        value_head=recipe.critic is not None,
        reference=True,
        seed=1,
        fast=plan == "fast",
    )
    collector = collector_of(task, subject.reader, conditions, "cpu")
    module = PolicyOptimization(
        build=build, collector=collector, recipe=recipe, conditions=conditions, seed=1
    )
    module.configure_model()
    cap, budget = collector.max_tokens, conditions.budget
    stream = PromptStream(
        training_prompts(task, subject.reader, cap, conditions.data.levels, budget.prompts),
        seed=1,
        per_iteration=budget.prompts,
        completions=budget.completions,
        iterations=budget.iterations,
        pad=subject.reader.pad,
    )
    items = prompts_of(task, "id", subject.reader, cap, conditions.evaluation.curve_items)
    curve = EvalPrompts(items, pad=subject.reader.pad, rows=DECODE_ROWS)
    with quiet():
        trainer = build_trainer(
            conditions, device="cpu", callbacks=[watch], loggers=[], folder=folder
        )
        trainer.fit(module, stream, curve)


if __name__ == "__main__":
    main()
