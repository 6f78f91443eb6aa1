"""What the runners of one process share: the work, the clock, and the line of figures.

Imported by scripts of this folder in environments that have torch and transformers, not crlbench.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any


class UnequalWork(RuntimeError):
    """The process did other work than it was asked for, so its times compare nothing."""


def read_work(text: str) -> dict[str, Any]:
    """The work of a run: the JSON that `peers.py` hands over.

    Its keys: recipe, card (a catalog name or folder), model (the folder of the weights), prompts
    (texts), prompt_ids, completions (of each prompt), rows, tokens (of each completion),
    precision, device, threads, warmup (from 1), iterations, seed, kl, learning_rate, betas,
    options (the peer's own).
    """
    return json.loads(text)


def prepare(work: dict[str, Any]) -> None:
    """Threads and the network switches, before anything heavy is imported."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(work["threads"])
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "WANDB_MODE": "off"}
    import torch

    torch.set_num_threads(work["threads"])


class Clock:
    """Marks of one process: ends of iterations, time in decoding and in scoring.

    On the wall clock in seconds, a GPU waited for at every mark; at the ends of iterations the
    processor time as well, which tells settings apart on a machine that others use.
    """

    def __init__(self, work: dict[str, Any]) -> None:
        self.work = work
        self.marks: list[float] = []
        self.cpu: list[float] = []
        self.decode: list[float] = []
        self.score: list[float] = []
        self.decoded: list[int] = []
        self._decode = self._score = 0.0
        self._decoded = 0

    def now(self) -> float:
        """Seconds, once the device has done everything it was given."""
        if self.work["device"] != "cpu":
            import torch

            torch.cuda.synchronize()
        return time.perf_counter()

    def end_iteration(self) -> None:
        """Close an iteration.

        Raises:
            UnequalWork: it did not decode every row to its full length.
        """
        expected = self.work["rows"] * self.work["tokens"]
        if self._decoded != expected:
            raise UnequalWork(
                f"this iteration decoded {self._decoded} tokens; the work asks for {expected} "
                f"({self.work['rows']} completions of {self.work['tokens']} tokens)."
            )
        self.marks.append(self.now())
        self.cpu.append(time.process_time())
        self.decode.append(self._decode)
        self.score.append(self._score)
        self.decoded.append(self._decoded)
        self._decode = self._score = 0.0
        self._decoded = 0

    def decoding(self, generate: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, timed as decoding, its prompts and new tokens checked.

        The function takes ``input_ids`` (B, L) and returns ids (B, L + T), or an object that has
        them as ``sequences``.
        """

        def timed(*args: Any, **kwargs: Any) -> Any:
            begun = self.now()
            output = generate(*args, **kwargs)
            self._decode += self.now() - begun
            sequences = getattr(output, "sequences", output)
            ids, mask = kwargs["input_ids"], kwargs["attention_mask"]
            self.check_prompts([row[m.bool()].tolist() for row, m in zip(ids, mask, strict=True)])
            self.count_tokens(len(sequences), sequences.shape[1] - ids.shape[1])
            return output

        return timed

    def scored(self, score: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, timed as scoring."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            begun = self.now()
            output = score(*args, **kwargs)
            self._score += self.now() - begun
            return output

        return timed

    def add_decoding(self, seconds: float, rows: int, tokens: int) -> None:
        """Count a decoding that was timed elsewhere."""
        self._decode += seconds
        self.count_tokens(rows, tokens)

    def count_tokens(self, rows: int, tokens: int) -> None:
        """Count ``rows`` completions of ``tokens`` tokens each."""
        self._decoded += rows * tokens

    def check_prompts(self, rows: Sequence[Sequence[int]]) -> None:
        """Raise :class:`UnequalWork` unless every row is one of the work's prompts."""
        known = {tuple(ids) for ids in self.work["prompt_ids"]}
        for row in rows:
            if tuple(row) not in known:
                raise UnequalWork(
                    f"a prompt was read as {len(row)} tokens {list(row)[:8]}..., which is none of "
                    "the work's prompts: the two sides would not run the same tokens."
                )

    def callback(self) -> Any:
        """A transformers callback that ends an iteration at every optimizer step."""
        from transformers import TrainerCallback

        clock = self

        class EndOfIteration(TrainerCallback):
            def on_step_end(self, *_: Any, **__: Any) -> None:
                clock.end_iteration()

        return EndOfIteration()


def figures(clock: Clock, **more: Any) -> None:
    """Print the figures of the timed iterations as one JSON line.

    Raises:
        UnequalWork: another number of iterations ran than was asked for.
    """
    work = clock.work
    warmup, wanted = work["warmup"], work["warmup"] + work["iterations"]
    if len(clock.marks) != wanted:
        raise UnequalWork(f"{len(clock.marks)} iterations ran; the work asks for {wanted}.")
    times = [b - a for a, b in pairwise(clock.marks[warmup - 1 :])]
    decode, score = clock.decode[warmup:], clock.score[warmup:]
    line = {
        "iteration_s": times,
        "decode_s": decode,
        "score_s": score,
        "update_s": [t - d - s for t, d, s in zip(times, decode, score, strict=True)],
        "cpu_s": [b - a for a, b in pairwise(clock.cpu[warmup - 1 :])],
        "tokens": clock.decoded[warmup:],
        "peak_rss_bytes": peak_rss(),
        "peak_device_bytes": device_peak(work),
        "versions": versions(),
        **more,
    }
    sys.stdout.flush()
    print(json.dumps(line), flush=True)


def peak_rss() -> int:
    """Bytes of memory that the process held at most.

    ``VmHWM`` where there is a /proc: ``ru_maxrss`` would count the parent's memory at the fork.
    """
    try:
        with open("/proc/self/status", encoding="utf-8") as status:
            high = next(line for line in status if line.startswith("VmHWM:"))
        return int(high.split()[1]) * 1024
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def device_peak(work: dict[str, Any]) -> int | None:
    """Bytes of device memory that the process held at most; None on a CPU."""
    if work["device"] == "cpu":
        return None
    import torch

    return torch.cuda.max_memory_reserved()


def versions() -> dict[str, str]:
    """Versions of what decides the speed, by distribution."""
    from importlib import metadata

    found = {}
    for name in ("torch", "transformers", "trl", "accelerate", "lightning"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
