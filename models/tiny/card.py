"""What is written about a model: its catalogue entry and its model card, from measured values."""

from __future__ import annotations

import hashlib
from datetime import date
from pathlib import Path
from typing import Any

from architectures import CONTEXT
from play_scoring import PlayScore
from scoring import Score

from crlbench.contract.model_card import ModelCard
from crlbench.disk.side_files import side_digests
from crlbench.disk.toml import dump_toml

FIRST = ("tiny-llama", "tiny-qwen2", "tiny-mistral", "tiny-deepseek", "tiny-llama-sft")


def weights_digest(folder: Path) -> str:
    """SHA-256 of a folder's weights file."""
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def added(name: str) -> date:
    """The day on which a model of the first generation joined the others."""
    return date(2026, 11, 21) if name in FIRST else date(2026, 11, 22)


def entry(
    name: str,
    folder: Path,
    family: str,
    counts: tuple[int, int],
    data: str,
    former: ModelCard | None,
    context: int = CONTEXT,
) -> str:
    """The text of ``models/<name>.toml``.

    ``former`` is the entry that it replaces: what can be made by number keeps the digests of its
    other pretrainings, and the day on which it joined the others.
    """
    total, active = counts
    several, joined = name.startswith("tiny2-") or name.endswith("-play"), added(name)
    if several:
        joined = date.today() if former is None or former.added is None else former.added
    pretraining = {
        "checkpoint": "i0o0",
        "maker": f"python models/tiny/pretrain.py --model {name}",
    }
    return dump_toml(
        {
            "schema": 1,
            "slug": name,
            "display_name": name,
            "family": family,
            "kind": "instruct" if name.endswith("-sft") else "base",
            "frame": "terse",
            "params_total": total,
            "params_active": active,
            "context": context,
            "dtype": "float32",
            "quantisation": "none",
            "adapter": "none",
            "licence": "Apache-2.0",
            "known_training_data": data,
            "contamination_note": "None: every item that an evaluation split may hold is left"
            " out of the training text by rule, and a test checks it.",
            "contact": "crlbench maintainers",
            "added": joined,
            **(pretraining if several else {}),
            "source": {"path": f"tiny/{folder.name}"},
            "weights_sha256": {"model.safetensors": weights_digest(folder)},
            "side_sha256": side_digests(folder),
            **({"checkpoints": former.checkpoints} if former and former.checkpoints else {}),
        }
    )


def readme(
    name: str,
    design: str,
    counts: tuple[int, int],
    data: str,
    training: dict[str, Any],
    scores: dict[str, dict[str, Score]],
    bundled: bool,
) -> str:
    """The text of the model card ``README.md``."""
    total, active = counts
    kind = "bundled start model" if bundled else "start model"
    rows = "\n".join(f"| {key} | {value} |" for key, value in training.items())
    return f"""# {name}

{design}

A {kind} of crlbench: byte-level, {total:,} parameters ({active:,} active a token),
context {CONTEXT} bytes, stored in bfloat16, trained in float32. It reads
`<bos>{{user text}}\\n` and writes `{{answer}}<eos>`. It is meant for research on reinforcement
learning and knows nothing but the benchmark's task families. Licence: Apache-2.0.

## Data

{data}

## Training

| | |
|---|---|
{rows}

## Start score

Of the stored weights, loaded as float32, on held-out prompts: the share of right completions
sampled at temperature 1 ({_draws(scores)} a prompt), and greedy.

{_score_table(scores)}

## Spread over prompts (split id)

Prompts by the number of right completions among {_draws(scores)} samples. `mixed` is the share of
prompts that are answered neither always nor never rightly.

{_spread_table(scores["id"])}
"""


def play_readme(
    name: str,
    design: str,
    counts: tuple[int, int],
    data: str,
    training: dict[str, Any],
    scores: dict[str, dict[str, PlayScore]],
    context: int,
) -> str:
    """The model card of a model that has read episodes."""
    total, active = counts
    rows = "\n".join(f"| {key} | {value} |" for key, value in training.items())
    return f"""# {name}

{design}

A start model of crlbench that has read episodes: byte-level, {total:,} parameters ({active:,}
active a token), context {context:,} bytes, stored in bfloat16, trained in float32. It reads
`<bos>{{observation}}\\n` and says `{{text}}<eos>`; behind that the next observation and a newline
may follow. It is meant for research on reinforcement learning and knows nothing but the benchmark's
own tasks and games. Licence: Apache-2.0.

## Data

{data}

## Training

| | |
|---|---|
{rows}

## Start score

Of the stored weights, loaded as float32, on held-out starts at temperature 1. `share`: how far the
score is from the split's floor to its ceiling. `legal`: turns without a fault. `blind`: the score
where each episode is told what an episode of another start is told.

{_play_table(scores)}
"""


def _play_table(scores: dict[str, dict[str, PlayScore]]) -> str:
    lines = [
        "| environment | split | sampled | share | legal | turns | blind | by level |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for task in scores["id"]:
        for split, by_task in scores.items():
            s = by_task[task]
            levels = ", ".join(f"{level}: {value:.2f}" for level, value in s.by_level.items())
            lines.append(
                f"| {task} | {split} | {s.sampled:.3f} | {s.share:.2f} | {s.legal:.3f}"
                f" | {s.turns:.1f} | {s.blind:.3f} | {levels} |"
            )
    return "\n".join(lines)


def _draws(scores: dict[str, dict[str, Score]]) -> int:
    return len(next(iter(scores["id"].values())).histogram) - 1


def _score_table(scores: dict[str, dict[str, Score]]) -> str:
    lines = ["| task | split | sampled | greedy | sampled by level |", "|---|---|---|---|---|"]
    for task in scores["id"]:
        for split, by_task in scores.items():
            if task not in by_task:
                continue
            s = by_task[task]
            levels = ", ".join(f"{level}: {value:.2f}" for level, value in s.by_level.items())
            lines.append(f"| {task} | {split} | {s.sampled:.3f} | {s.greedy:.3f} | {levels} |")
    return "\n".join(lines)


def _spread_table(by_task: dict[str, Score]) -> str:
    columns = range(len(next(iter(by_task.values())).histogram))
    lines = [
        f"| task | {' | '.join(map(str, columns))} | mixed |",
        f"|---|{'---|' * len(columns)}---|",
    ]
    for task, s in by_task.items():
        lines.append(f"| {task} | {' | '.join(map(str, s.histogram))} | {s.mixed:.2f} |")
    return "\n".join(lines)
