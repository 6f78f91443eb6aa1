"""What watches a run: the recorder, the checkpoint, the failure rules, the stop request."""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from crlbench.contract.conditions import Rules
from crlbench.contract.events import Emit, progress
from crlbench.contract.records import DIGESTED_ITERATIONS
from crlbench.train.energy import Counter, Meter
from crlbench.train.learner import Learner
from crlbench.train.loggers import SCORE
from crlbench.train.requests import Examination, Truth
from crlbench.types import all_or_none

TOTALS = ("prompts", "completions", "updates", "tokens", "bytes", "trained_tokens")


class RunStopped(Exception):
    """Leaves ``Trainer.fit`` early: a failure rule fired, or a stop was asked for."""

    def __init__(self, rule: str | None, iteration: int) -> None:
        super().__init__(rule or "stop requested")
        self.rule = rule
        self.iteration = iteration


class RunRecorder(Callback):
    """Collects what the run record needs; its state travels in the checkpoint."""

    def __init__(
        self,
        emit: Emit,
        machine: Mapping[str, Any] | None = None,
        counters: Sequence[Counter] = (),
    ) -> None:
        """
        Args:
            machine: of which class this one is; a continued run keeps its first one.
            counters: those of energy that are read while it trains.
        """
        self.emit = emit
        self._counters = counters
        self._meter = Meter(counters)
        self.energy: dict[str, float] = self._meter.read()
        self.machine = dict(machine or {})
        self.health: list[dict[str, Any]] = []
        self.counts: dict[str, int] = {}
        self.curve: list[dict[str, Any]] = []
        self.digests: list[dict[str, Any]] = []
        self.clipped: dict[str, dict[int, int]] = {"low": {}, "high": {}}
        self.totals = dict.fromkeys(TOTALS, 0)
        self.wall: list[float] = []
        self.charged: list[dict[str, Any]] = []
        """Totals of the ledger at each point of the curve, of the stages of chains."""
        self._pending: list[Examination] = []
        self._started = time.monotonic()

    def state_dict(self) -> dict[str, Any]:
        names = (
            "machine",
            "health",
            "counts",
            "clipped",
            "curve",
            "digests",
            "totals",
            "wall",
            "charged",
            "energy",
        )
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.energy = {}  # of an attempt that measured none
        for name, value in state_dict.items():
            setattr(self, name, value)
        self._meter = Meter(self._counters, self.energy)
        self._started = time.monotonic() - (self.wall[-1] if self.wall else 0.0)

    def on_train_batch_end(
        self, trainer: L.Trainer, module: Any, outputs: Any, batch: Any, index: int
    ) -> None:
        done = module.iteration
        figures = {n: v if math.isfinite(v) else None for n, v in done.health.items()}
        self.health.append({"iteration": module.iterations_done} | figures)
        for name, count in done.counts.items():
            self.counts[name] = self.counts.get(name, 0) + int(count)
        for side, tokens in done.clipped.items():
            counts = self.clipped[side]
            counts |= {token: counts.get(token, 0) + n for token, n in tokens.items()}
        self.totals["prompts"] += len(batch.uids)
        self.totals["completions"] += done.rollout.episodes
        self.totals["updates"] += len(done.losses)
        self.totals["tokens"] += int(done.health["tokens"])
        self.totals["bytes"] += int(done.health["bytes"])
        self.totals["trained_tokens"] += done.trained_tokens
        if module.iterations_done <= DIGESTED_ITERATIONS:
            self.digests.append(iteration_digest(module))
        self.energy = self._meter.read()
        self._log(trainer, {f"train/{n}": v for n, v in figures.items() if v is not None})
        self._progress(module)

    def on_validation_batch_end(
        self, trainer: L.Trainer, pl_module: Any, *_: Any, **__: Any
    ) -> None:
        self._pending.append(pl_module.last_examination)

    def on_validation_end(self, trainer: L.Trainer, module: Any) -> None:
        scores = torch.cat([e.scores for e in self._pending])
        truth = beyond([e.truth for e in self._pending])
        self._pending = []
        counts = {name: self.totals[name] for name in ("prompts", "bytes", "tokens", "updates")}
        score = float(scores.double().mean())
        point = {"score": score, "items": scores.tolist()}
        self.curve.append({"x": self.totals["completions"], **counts, **point, **truth})
        self.wall.append(time.monotonic() - self._started)
        if module.meter is not None:
            self.charged.append(module.meter.state())
        self.energy = self._meter.read()
        self._log(trainer, {SCORE: score})
        self._progress(module)

    def _log(self, trainer: L.Trainer, figures: Mapping[str, float]) -> None:
        for logger in trainer.loggers:
            logger.log_metrics(dict(figures), self.totals["completions"])

    def _progress(self, module: Learner) -> None:
        reward = self.health[-1].get("reward") if self.health else None
        point = self.curve[-1] if self.curve else {}
        score, completions = point.get("score"), point.get("x")
        iterations = module.conditions.budget.iterations
        self.emit(progress("train", module.iterations_done, iterations, reward, score, completions))


def beyond(parts: Sequence[Truth | None]) -> dict[str, float]:
    """What a point of the curve says beyond a learned reward; nothing where a verifier pays."""
    truths = all_or_none("Examination.truth", parts)
    if truths is None:
        return {}
    truth = Truth.joined(truths)
    error = truth.kl.std(correction=1) / math.sqrt(len(truth.kl)) if len(truth.kl) > 1 else 0.0
    return {
        "gold": float(truth.gold.double().mean()),
        "audit": float(truth.audit.double().mean()),
        "kl": float(truth.kl.mean()),
        "kl_se": float(error),
    }


CHECKPOINT_SHARE = 0.02
"""Most of a run's time that its checkpoints take."""


class LastCheckpoint(Callback):
    """Keeps one whole checkpoint: written beside the old one, then renamed over it.

    Written at the end of an evaluation, as the last callback, so that the recorder's point is
    in it. After the first one a run goes on for :data:`CHECKPOINT_SHARE` of its time: a kill loses
    no more than fifty times what a checkpoint takes to write, and the points of the curve since.

    Args:
        path: Where it stands.
        state: Called with the new file, its place and the iteration before it is renamed.
    """

    def __init__(
        self, path: Path, state: Callable[[Path, Path, int], None] = lambda new, path, done: None
    ) -> None:
        self.path = path
        self.state = state
        self._iteration = -1
        self._due = -math.inf

    def on_validation_end(self, trainer: L.Trainer, module: Any) -> None:
        if trainer.state.fn == "fit" and module.ranks.agreed(time.monotonic() >= self._due):
            self.save(trainer, module)

    def save(self, trainer: L.Trainer, module: Learner) -> None:
        """Replace the checkpoint by the trainer's present state, unless it is that already."""
        if module.iterations_done == self._iteration:
            return
        began = time.monotonic()
        self._write(trainer, module)
        self._iteration, ended = module.iterations_done, time.monotonic()
        self._due = ended + (ended - began) / CHECKPOINT_SHARE

    def _write(self, trainer: L.Trainer, module: Learner) -> None:
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        trainer.save_checkpoint(temporary)  # by all ranks; the first one writes
        if not trainer.is_global_zero:
            return
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        self.state(temporary, self.path, module.iterations_done)
        os.replace(temporary, self.path)


class StopOnRequest(Callback):
    """Ends the fit after the current iteration, and the evaluation that is due then, when asked to.

    ``checkpoint`` is written first.
    """

    def __init__(
        self, should_stop: Callable[[], bool], checkpoint: LastCheckpoint | None = None
    ) -> None:
        self.should_stop = should_stop
        self.checkpoint = checkpoint

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, *_: Any, **__: Any) -> None:
        # At a point of the grid the evaluation comes first: on_validation_end stops then.
        if self.should_stop() and not evaluation_due(trainer, pl_module):
            self._stop(trainer, pl_module)

    def on_validation_end(self, trainer: L.Trainer, module: Any) -> None:
        if trainer.state.fn == "fit" and self.should_stop():
            self._stop(trainer, module)

    def _stop(self, trainer: L.Trainer, module: Learner) -> None:
        if self.checkpoint is not None:
            self.checkpoint.save(trainer, module)
        raise RunStopped(None, module.iterations_done)


class StopOnDivergence(Callback):
    """Applies the track's failure rules after every iteration (protocol CRL-1, A.2)."""

    def __init__(self, rules: Rules, recorder: RunRecorder) -> None:
        self.rules = rules
        self.recorder = recorder

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, *_: Any, **__: Any) -> None:
        rule = pl_module.ranks.agreed(self.broken(pl_module))
        if rule is not None:
            raise RunStopped(rule, pl_module.iterations_done)

    def broken(self, module: Learner) -> str | None:
        """The name of the first rule that the run breaks now, or None."""
        rules, health = self.rules, self.recorder.health
        if module.longest_skip >= rules.skipped_updates:
            return "skipped_updates"
        if not module.weights_finite():
            return "non_finite_weights"
        if self.always("reference_kl", lambda row: row["reference_kl"] > rules.kl_cap):
            return "kl_cap"
        # A task with one right answer is mastered with no entropy left: what fails is a policy
        # that collapsed without becoming better than it was.
        first = next((row for row in health if row["entropy"] is not None), None)
        if first is not None and self.always(
            "entropy",
            lambda row: (
                row["entropy"] < rules.entropy_floor * first["entropy"]
                and (row["score"] or 0.0) <= (first["score"] or 0.0)
            ),
        ):
            return "entropy_floor"
        if self.always("truncated", lambda row: row["truncated"] >= rules.truncated_share):
            return "truncated_share"
        return None

    def always(self, name: str, broken: Callable[[dict[str, Any]], bool]) -> bool:
        """Whether a rule was broken in each of the last iterations in which ``name`` has a value.

        An iteration without an update has no KL and no entropy, and so decides nothing.
        """
        rows = [row for row in self.recorder.health if row[name] is not None]
        recent = rows[-self.rules.patience :]
        return len(recent) == self.rules.patience and all(map(broken, recent))


def evaluation_due(trainer: L.Trainer, module: Learner) -> bool:
    """Whether the iteration that just ended is followed by an evaluation."""
    assert trainer.val_check_batch is not None
    return module.iterations_done % trainer.val_check_batch == 0


def iteration_digest(module: Learner) -> dict[str, Any]:
    """Digests of an iteration's tensors, of its losses to the last bit and of the weights."""
    done = module.iteration
    rollout = done.rollout
    weights = module.learned()
    completions = [rollout.completion_ids, rollout.completion_mask]
    completions += [] if rollout.turn is None else [rollout.action_mask]
    return {
        "iteration": module.iterations_done,
        "prompts": _sha256(rollout.prompt_ids, rollout.prompt_mask),
        "completions": _sha256(*completions),
        "rewards": _sha256(done.reward.paid),
        "losses": [loss.hex() if math.isfinite(loss) else str(loss) for loss in done.losses],
        "parameters": _sha256(*(weights[name] for name in sorted(weights))),
    }


def _sha256(*tensors: Tensor) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{plain.dtype}{tuple(plain.shape)}".encode())
        digest.update(plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
    return digest.hexdigest()
