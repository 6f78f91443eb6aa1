"""crlbench against TRL's trainers, on the same work, each in its own process and environment.

    python benchmarks/peers.py --work all --model smollm2-135m-instruct --precision fp32 --markdown

The two sides run in turn, a round each, and every process reports its own iterations: seconds,
decoding and update apart, tokens and peak memory. A process that did other work than asked for is
an error. The table has medians, ratios of the same round, and the ratio to the floor, which is
counted and measured on this machine (`floor.py`). The peers are GRPOTrainer of the newest TRL and
PPOTrainer of TRL 1.12, the last version that has it; their environments are made once.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from floor import Operations, iteration_operations, shape_of
from peer.compare import ON_GPU, Figures, table, values
from peer.environments import Peer, environment
from peer.work import KINDS, RANDOM, Work, find_model, prompts_for

from crlbench import __version__
from crlbench.errors import CrlbenchError, RunFailed, UsageError

HERE = Path(__file__).parent
RUNNERS = HERE / "peer"
GPU_MODEL = "random-0.5b"
PLAIN = {"gradient_checkpointing": False}
PEERS = {
    "grpo": Peer(
        "GRPOTrainer",
        "1.16.0",
        "trl_grpo.py",
        (
            ("", PLAIN),
            ("with gradient checkpointing", PLAIN | {"gradient_checkpointing": True}),
        ),
    ),
    "ppo": Peer(
        "PPOTrainer",
        "1.12.0",
        "trl_ppo.py",
        (
            ("", PLAIN | {"rollout_rows": 64, "rollout_autocast": False}),
            ("with autocast rollouts", PLAIN | {"rollout_rows": 64, "rollout_autocast": True}),
        ),
    ),
}


def main() -> None:
    options = parser().parse_args()
    try:
        run(options)
    except CrlbenchError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        print("stopped; what was measured is in --out", file=sys.stderr)
        raise SystemExit(130) from None


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument("--work", default="all", choices=(*KINDS, "all"))
    made.add_argument(
        "--model",
        default="smollm2-135m-instruct",
        help=f"an entry, tiny (1M parameters), {', '.join(RANDOM)} or a folder",
    )
    made.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    made.add_argument("--plan", default="plain", choices=("plain", "fast"), help="our passes")
    made.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    made.add_argument("--rounds", type=positive, default=3, help="processes of each side")
    made.add_argument("--warmup", type=positive, default=1, help="iterations before the timed ones")
    made.add_argument("--iterations", type=positive, default=2, help="timed iterations a process")
    made.add_argument("--threads", type=positive, default=os.cpu_count() or 1)
    made.add_argument(
        "--rows", type=positive, default=64, help="completions in a forward pass of the peer"
    )
    made.add_argument("--envs", type=Path, help="folder of the peers' environments")
    made.add_argument("--out", type=Path, help="JSON file of every figure, written as they come")
    made.add_argument("--markdown", action="store_true", help="print the tables for README.md")
    made.add_argument("--one-setting", action="store_true", help="only the peer's first setting")
    made.add_argument(
        "--sweep",
        type=counts,
        metavar="ROWS,ROWS",
        help="compare the peer's settings instead, with these rows a forward pass",
    )
    return made


def positive(text: str) -> int:
    """A count from 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def counts(text: str) -> tuple[int, ...]:
    """Counts from 1, separated by commas."""
    return tuple(positive(part) for part in text.split(","))


def run(options: argparse.Namespace) -> None:
    """Everything that was asked for, one device after another."""
    kinds = KINDS if options.work == "all" else (options.work,)
    model = find_model(options.model)
    pythons = {kind: environment(PEERS[kind], options.envs, say) for kind in kinds}
    store = Store(options.out)
    places = devices(options.device)
    for device, name in places:
        work = Work(
            model if name is None else find_model(name),
            precision=options.precision,
            device=device,
            threads=options.threads,
            warmup=options.warmup,
            iterations=options.iterations,
        )
        if options.sweep:
            for kind in kinds:
                lines = sweep(kind, work, pythons[kind], options, store)
                print("\n".join(lines), flush=True)
            continue
        counted = {kind: operations_of(kind, work) for kind in kinds}
        peak = measured_peak(work)
        store.add({"device": device, "peak": peak})
        for kind in kinds:
            runs = compare(kind, work, pythons[kind], options, store)
            lines = report(kind, work, runs, counted[kind], peak, options)
            print("\n".join(lines), flush=True)
    if not options.sweep and "cuda" not in dict(places):
        print("\n".join(without_gpu(kinds)))


def devices(asked: str) -> list[tuple[str, str | None]]:
    """Devices to measure on, each with its model; None is the one that was asked for.

    On a GPU a model of 0.5B parameters with random weights is measured as well.

    Raises:
        UsageError: a GPU was asked for and there is none.
    """
    import torch

    present = torch.cuda.is_available()
    if asked == "cuda" and not present:
        raise UsageError("--device cuda: torch sees no GPU here. Allowed here: cpu.")
    found: list[tuple[str, str | None]] = [] if asked == "cuda" else [("cpu", None)]
    if present and asked != "cpu":
        found += [("cuda", None), ("cuda", GPU_MODEL)]
    return found


def without_gpu(kinds: tuple[str, ...]) -> list[str]:
    """The rows of a GPU on a machine that has none."""
    lines = []
    for kind in kinds:
        lines += [f"#### {kind.upper()}, {GPU_MODEL}, GPU", ""]
        lines += [*table([], {PEERS[kind].title: []}, ON_GPU), ""]
    return lines


def compare(
    kind: str, work: Work, python: Path, options: argparse.Namespace, store: Store
) -> dict[str, list[Figures]]:
    """Our runs and the peer's by setting, each side's rounds in turn.

    Where the peer has several settings, one process of each tells which is the fastest; that one
    is compared, and the others keep their single run.
    """
    peer = PEERS[kind]
    tried = {
        title: setting | {"rows_per_pass": options.rows}
        for title, setting in settings(kind, work.precision)
    }
    if options.one_setting:
        tried = dict([*tried.items()][:1])
    once: dict[str, list[Figures]] = {}
    for title, setting in tried.items() if len(tried) > 1 else ():
        say(f"{kind}, once: {title}")
        once[title] = [one_process(python, peer.runner, work.plan(kind, setting))]
        store.add({"kind": kind, "side": title, "round": None, **once[title][0]})
    fastest = min(tried, key=lambda title: _seconds(once[title]) if once else 0.0)
    runs: dict[str, list[Figures]] = {"ours": [], fastest: []}
    sides = (
        ("ours", Path(sys.executable), "ours.py", {"plan": options.plan}),
        (fastest, python, peer.runner, tried[fastest]),
    )
    for number in range(options.rounds):
        for side, program, runner, setting in sides:
            say(f"{kind}, round {number + 1} of {options.rounds}: {side}")
            figures = one_process(program, runner, work.plan(kind, setting))
            runs[side].append(figures)
            store.add({"kind": kind, "side": side, "round": number, **figures})
    return runs | {title: found for title, found in once.items() if title != fastest}


def _seconds(runs: list[Figures]) -> float:
    return median(runs[0]["iteration_s"])


def settings(kind: str, precision: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The peer's settings with their titles; autocast rollouts exist in bf16 only."""
    for name, chosen in PEERS[kind].settings:
        if precision == "bf16" or not chosen.get("rollout_autocast"):
            yield f"{PEERS[kind].title}{' ' if name else ''}{name}", chosen


def one_process(python: Path, runner: str, plan: dict[str, Any]) -> Figures:
    """Run one side in a fresh process and read its line of figures.

    Raises:
        RunFailed: it ended with an error, or without figures.
    """
    environment_of = dict(os.environ)
    if runner != "ours.py":
        environment_of.pop("PYTHONPATH", None)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        environment_of[name] = str(plan["threads"])
    if plan["device"] == "cpu":
        environment_of["CUDA_VISIBLE_DEVICES"] = ""
    done = subprocess.run(
        [str(python), str(RUNNERS / runner), json.dumps(plan)],
        capture_output=True,
        encoding="utf-8", errors="replace",
        check=False,
        env=environment_of,
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        try:
            return json.loads(lines[-1])
        except ValueError:
            pass
    if done.returncode == -signal.SIGKILL:
        raise RunFailed(
            f"{runner} on {plan['model']} was killed by the system, most likely for memory. Close "
            "other programs, or give the peer smaller passes with --rows."
        )
    reason = done.stderr.strip().splitlines()[-5:] or ["no message"]
    raise RunFailed(
        f"{runner} on {plan['model']} ended with {done.returncode} and no figures. Its last lines: "
        + " / ".join(reason)
    )


def sweep(
    kind: str, work: Work, python: Path, options: argparse.Namespace, store: Store
) -> list[str]:
    """A table of the peer's settings, one process each; medians of its iterations."""
    lines = [f"{PEERS[kind].title}, {work.precision}, {work.model.name}", ""]
    lines += ["| rows a pass | setting | s | processor s | GB |", "|---|---|---|---|---|"]
    chosen = [*settings(kind, work.precision)][: 1 if options.one_setting else None]
    for rows in options.sweep:
        for title, setting in chosen:
            name = title.removeprefix(PEERS[kind].title).strip() or "plain"
            say(f"{kind}: {rows} rows a pass, {name}")
            used = setting | {"rows_per_pass": rows}
            figures = one_process(python, PEERS[kind].runner, work.plan(kind, used))
            store.add({"kind": kind, "sweep": used, **figures})
            seconds, cpu = (median(figures[part]) for part in ("iteration_s", "cpu_s"))
            memory = figures["peak_rss_bytes"] / 1e9
            lines.append(f"| {rows} | {name} | {seconds:.2f} | {cpu:.2f} | {memory:.2f} |")
    return lines


def measured_peak(work: Work) -> dict[str, Any]:
    """The machine's peak with the work's threads, measured in a process of its own."""
    say(f"measuring the peak of {work.device} with {work.threads} threads")
    command = [sys.executable, str(HERE / "floor.py"), "--peak-only"]
    command += ["--threads", str(work.threads), "--device", work.device]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise RunFailed(f"floor.py ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def operations_of(kind: str, work: Work) -> Operations:
    """The floor's operations of one iteration."""
    from transformers import AutoConfig

    lengths = [len(ids) for _, ids in prompts_for(work.model, work.prompts)]
    shape = shape_of(AutoConfig.from_pretrained(work.model.folder))
    return iteration_operations(shape, lengths, work.completions, work.tokens, critic=kind == "ppo")


def report(
    kind: str,
    work: Work,
    runs: dict[str, list[Figures]],
    counted: Operations,
    peak: dict[str, Any],
    options: argparse.Namespace,
) -> list[str]:
    """The section of one table."""
    rate = peak["flops"][work.precision]
    rows = work.prompts * work.completions
    of = {
        side: [values(figures, rows, counted, rate) for figures in found]
        for side, found in runs.items()
    }
    ours = of.pop("ours")
    lengths = [len(ids) for _, ids in prompts_for(work.model, work.prompts)]
    lines = [
        f"{'####' if options.markdown else ''} {kind.upper()}, {work.model.name}, "
        f"{'float32' if work.precision == 'fp32' else 'bf16 autocast'}, {work.device}".strip(),
        "",
        *table(ours, of),
        "",
        f"{machine(work)}; {versions(runs)}; {date.today().isoformat()}. "
        f"{work.prompts} prompts of {min(lengths)} to {max(lengths)} tokens x {work.completions} "
        f"completions of {work.tokens} tokens; {options.rows} rows a pass of the peer; "
        f"{many(options.rounds, 'round')}, {work.warmup} + {work.iterations} iterations a process. "
        f"Floor: {counted.total / rate:.2f} s ({counted.total / 1e12:.2f} TFLOP at "
        f"{rate / 1e9:.0f} GFLOP/s). `{command_line()}`",
        "",
    ]
    return lines


def machine(work: Work) -> str:
    """The processor or GPU, and the threads."""
    from verifiers import processor

    if work.device == "cpu":
        return f"{processor()}, {many(work.threads, 'thread')}"
    import torch

    return f"{torch.cuda.get_device_name()}, {many(work.threads, 'thread')}"


def many(count: int, what: str) -> str:
    """A count and what is counted."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def versions(runs: dict[str, list[Figures]]) -> str:
    """Versions on both sides."""
    ours, peer = (found[0]["versions"] for found in list(runs.values())[:2])
    both = ", ".join(f"{name} {version}" for name, version in ours.items() if name in peer)
    return f"Python {platform.python_version()}, crlbench {__version__}, TRL {peer['trl']}, {both}"


def command_line() -> str:
    """The command as it was given, without the folders of this machine."""
    words, skip = ["python", "benchmarks/peers.py"], False
    for word in sys.argv[1:]:
        hidden = word.split("=")[0] in ("--envs", "--out")
        if not skip and not hidden:
            words.append(word)
        skip = hidden and "=" not in word
    return shlex.join(words)


class Store:
    """The JSON file of ``--out``, whole after every process; without a file nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.entries: list[dict[str, Any]] = []

    def add(self, entry: dict[str, Any]) -> None:
        """Keep one entry."""
        self.entries.append(entry)
        if self.path is not None:
            partial = self.path.with_name(self.path.name + ".partial")
            partial.write_text(json.dumps(self.entries, indent=1) + "\n", encoding="utf-8")
            partial.replace(self.path)


def say(line: str) -> None:
    """Progress, apart from what is printed as the result."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
