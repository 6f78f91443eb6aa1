"""What a model writes before and after training, prompt by prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crlbench.base import wording
from crlbench.disk.names import EPISODES
from crlbench.verdict.runs import Run
from crlbench.verdict.samples import Sample

SHOWN_SAMPLES = 4
SAMPLE_CHARACTERS = 600


def sample_panels(tasks: Sequence[str], runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One panel per task with samples of both ends; an environment's episodes have their own."""
    panels = [sample_panel(task, runs) for task in tasks]
    return [panel for panel in panels if panel is not None]


def sample_panel(task: str, runs: Sequence[Run]) -> dict[str, Any] | None:
    """Prompts with the completion before and after, from the first seed that has both."""
    for run in runs:
        if run.record.task.name == task and EPISODES not in run.record.files:
            both = ends_of(run.samples())
            if both:
                return {
                    "task": task,
                    "seed": run.record.seed.index,
                    "pairs": [_pair(before, after) for before, after in both[:SHOWN_SAMPLES]],
                    "moves": moves(both, "prompt"),
                }
    return None


def ends_of(samples: Sequence[Sample]) -> list[tuple[Sample, Sample]]:
    """First and last sample of each prompt that has both, in stored order."""
    stages = sorted({sample.x for sample in samples})
    if len(stages) < 2:
        return []
    before, after = (_by_uid(samples, x) for x in (stages[0], stages[-1]))
    return [(before[uid], after[uid]) for uid in before if uid in after]


def _by_uid(samples: Sequence[Sample], x: int) -> dict[str, Sample]:
    first: dict[str, Sample] = {}
    for sample in samples:
        if sample.x == x:
            first.setdefault(sample.uid, sample)
    return first


def moves(both: Sequence[tuple[Sample, Sample]], what: str) -> str:
    """How the verdicts on the stored prompts changed, in words; ``what`` is what one is called."""
    better = sum(after.score > before.score for before, after in both)
    worse = sum(after.score < before.score for before, after in both)
    return (
        f"{wording.count(len(both), what)} stored: {better} scored higher after training, "
        f"{worse} lower, {len(both) - better - worse} the same"
    )


def _pair(before: Sample, after: Sample) -> dict[str, Any]:
    return {
        "prompt": _readable(before.prompt),
        "answer": _readable(before.answer),
        "before": _completion(before),
        "after": _completion(after),
    }


def _completion(sample: Sample) -> dict[str, Any]:
    return {
        "text": _readable(sample.completion),
        "score": wording.number(sample.score, 2),
        "right": sample.score >= 1.0,
        "x": wording.grouped(sample.x),
    }


def _readable(text: str) -> str:
    return wording.visible(text.strip("\n"), SAMPLE_CHARACTERS)
