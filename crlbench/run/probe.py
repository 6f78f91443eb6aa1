"""How hard a task is: correct counts out of several rollouts, per level and model.

Completions are sampled at temperature 1 in float32 with keyed draws, so that the same command
gives the same table on machines of one kind. The table stands in the task's README between two
markers; nothing else holds it.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crlbench.catalog.fetch import model_dir
from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.catalog.rows import read_bytes
from crlbench.contract.conditions import PROTOCOL, Conditions, Sampling
from crlbench.contract.sizes import DECODE_ROWS
from crlbench.contract.task_card import NullScores, SplitCard, TaskCard
from crlbench.errors import ValidationError
from crlbench.policy.decode.loop import DrawKey
from crlbench.policy.policy import Policy
from crlbench.policy.weights.load import learning_copy
from crlbench.run.board import load_track
from crlbench.run.subject import (
    EVALUATION_TEMPERATURE,
    Subject,
    collector_of,
    prompts_of,
)
from crlbench.seeding import seed_value
from crlbench.stats.proportion import wilson
from crlbench.suite.twin import twin_of
from crlbench.train.collect import Collector
from crlbench.train.stream import EvalPrompts, Prompt
from crlbench.types import Rollout

BUNDLED = ("tiny-llama", "tiny-qwen2", "tiny-mistral", "tiny-deepseek")
"""Models that read the tasks tagged mini or calibration."""
REAL = ("smollm2-135m-instruct",)
"""Models that read all others."""
BUNDLED_TAGS = frozenset({"mini", "calibration"})
SPLITS = ("id", "hard")
"""Splits that a level's items are taken from, in this order."""
ROLLOUTS, ITEMS = 8, 64
FEW = 8
"""Fewer fresh items of a level say nothing."""
TRIVIAL = 0.95
"""Mean score above which a level teaches a model nothing."""
WIDTH = 100
"""Longest line of the block's prose."""
BEGIN, END = "<!-- probe: begin -->", "<!-- probe: end -->"


@dataclass(frozen=True)
class Plan:
    """What is sampled: ``rollouts`` completions of the first ``items`` items of every level."""

    rollouts: int = ROLLOUTS
    items: int = ITEMS


@dataclass(frozen=True)
class LevelProbe:
    """What one model reaches at one level of a task."""

    task: str
    model: str
    revision: str
    level: int
    mean: float
    """Mean score of all completions."""
    counts: tuple[int, ...]
    """Entry k: items of which k rollouts were solved; rollouts + 1 entries.

    Solved is a score of 1 or, where a reward model pays, an audit of 1: a learned reward
    approaches 1 and says nothing about being right.
    """
    truncated: float
    """Share of completions, or episodes, that were cut off at the task's longest completion."""
    floor: float = 0.0
    """What a policy without knowledge scores; a mean above it is something to learn from."""
    audited: bool = False
    """Whether the audit says what is solved."""
    ceiling: float = 1.0
    """What the golds score: below 1 where an environment cannot always be won."""

    @property
    def items(self) -> int:
        """Items sampled."""
        return sum(self.counts)

    @property
    def shares(self) -> tuple[float, float, float]:
        """Shares of the items solved in no rollout, in some, in all."""
        never, always = self.counts[0] / self.items, self.counts[-1] / self.items
        return never, 1.0 - never - always, always

    @property
    def solved(self) -> float:
        """Share of the completions that are solved."""
        rollouts = len(self.counts) - 1
        return sum(k * n for k, n in enumerate(self.counts)) / (rollouts * self.items)

    @property
    def verdict(self) -> str:
        """``trivial``, ``impossible`` or nothing: a finding about this model, not an error."""
        if (self.solved if self.audited else self.mean) > TRIVIAL:
            return "trivial"
        return "impossible" if self.solved == 0.0 and self.mean <= self.floor else ""

    def as_json(self) -> dict[str, Any]:
        """Every field and what follows from it."""
        names = ("task", "model", "revision", "level", "items", "mean", "floor", "ceiling")
        shares = dict(zip(("never", "some", "always"), self.shares, strict=True))
        rest = {"truncated": self.truncated, "verdict": self.verdict}
        return self.named(*names) | {"counts": list(self.counts)} | shares | rest

    def named(self, *names: str) -> dict[str, Any]:
        """Some fields by their names."""
        return {name: getattr(self, name) for name in names}


def default_models(card: TaskCard, catalog: Catalog, home: Path | None) -> tuple[str, ...]:
    """The models whose probe says something: the bundled ones where they can read the task.

    They also stand in for models whose weights are not on this machine.
    """
    if BUNDLED_TAGS & {*card.tags} or missing_defaults(catalog, home):
        return BUNDLED
    return REAL


def missing_defaults(catalog: Catalog, home: Path | None) -> list[str]:
    """The models of ``REAL`` whose weights are not on this machine."""
    cards = map(catalog.load_model, REAL)
    return [card.slug for card in cards if not model_dir(card, home).is_dir()]


def probe(task: Task, subject: Subject, plan: Plan, catalog: Catalog) -> list[LevelProbe]:
    """Sample every level of a task with one model.

    Raises:
        ValidationError: a prompt does not fit into the model's context.
    """
    collector = collector_of(task, subject.reader, decoding(task, catalog), "cpu")
    policy = Policy(in_float32(subject), value_head=False)
    return [
        _probe_level(task, subject, policy, collector, level, plan)
        for level in sorted({row["level"] for _, row in _rows(task)})
    ]


@dataclass(frozen=True)
class Gap:
    """What one model reaches on a level as it is published, and on a fresh twin of it."""

    published: LevelProbe
    fresh: LevelProbe

    @property
    def gap(self) -> float:
        """Mean score on the published items minus that on the fresh ones."""
        return self.published.mean - self.fresh.mean

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the gap (Newcombe 1998, method 10).

        An item's mean score counts as one trial, whose spread is at most that of a coin: the
        interval is too wide rather than too narrow.
        """
        (a, low), (b, high) = (
            (p.mean, [abs(p.mean - end) for end in wilson(p.mean, p.items)])
            for p in (self.published, self.fresh)
        )
        return a - b - math.hypot(low[0], high[1]), a - b + math.hypot(low[1], high[0])

    @property
    def finding(self) -> str:
        """``seen?`` where the published items are easier for the model than their twins."""
        return "seen?" if self.interval[0] > 0 else ""

    def as_json(self) -> dict[str, Any]:
        """Every field and what follows from it."""
        low, high = self.interval
        return self.published.named("task", "model", "revision", "level") | {
            "published_items": self.published.items,
            "published": self.published.mean,
            "fresh_items": self.fresh.items,
            "fresh": self.fresh.mean,
            "gap": self.gap,
            "low": low,
            "high": high,
            "finding": self.finding,
        }


def gaps(task: Task, subject: Subject, plan: Plan, catalog: Catalog, salt: int) -> list[Gap]:
    """Sample the levels of a task, and of its twin under ``salt``, with one model.

    Levels of which the twin has fewer than :data:`FEW` items are left out.

    Raises:
        UsageError, ValidationError: as :func:`probe` and :func:`crlbench.suite.twin.twin_of`.
    """
    twin = twin_of(task, salt)
    counts = Counter(row["level"] for _, row in _rows(twin))
    published = {
        level_probe.level: level_probe for level_probe in probe(task, subject, plan, catalog)
    }
    fresh = {level_probe.level: level_probe for level_probe in probe(twin, subject, plan, catalog)}
    return [
        Gap(published[level], fresh[level])
        for level in sorted(published.keys() & fresh.keys())
        if counts[level] >= FEW
    ]


def _probe_level(
    task: Task, subject: Subject, policy: Policy, collector: Collector, level: int, plan: Plan
) -> LevelProbe:
    prompts = level_prompts(task, subject, collector.max_tokens, level, plan.items)
    key = DrawKey(seed_value(PROTOCOL, f"{task.name}/probe", 0), "probe")
    audited = task.card.reward_model is not None
    scores: list[float] = []
    right: list[float] = []
    finished: list[bool] = []
    for batch in EvalPrompts(prompts, pad=collector.pad, rows=DECODE_ROWS, draws=plan.rollouts):
        examination = collector.examine(policy, batch, key)
        audit = collector.audit(examination.rollout, batch) if audited else None
        scores += examination.scores.tolist()
        right += (examination.scores if audit is None else audit).tolist()
        finished += finished_episodes(examination.rollout)
    return LevelProbe(
        task=task.name,
        model=subject.card.slug,
        revision=subject.card.revision,
        level=level,
        mean=sum(scores) / len(scores),
        counts=correct_counts(right, plan.rollouts),
        truncated=1.0 - sum(finished) / len(finished),
        floor=max(split.floor for split in _splits_of(task.card, level)),
        audited=audited,
        ceiling=max(split.ceiling for split in _splits_of(task.card, level)),
    )


def finished_episodes(rollout: Rollout) -> list[bool]:
    """Whether each episode ended by itself; a completion is an episode of its own."""
    episodes = rollout.stated({"episode"}).episode
    assert episodes is not None
    cut = {*episodes[~rollout.finished].tolist()}
    return [episode not in cut for episode in episodes.unique().tolist()]


def _splits_of(card: TaskCard, level: int) -> list[SplitCard]:
    """The evaluation splits that hold a level; the highest floor and ceiling of them count."""
    splits = [card.splits[name] for name in SPLITS if name in card.splits]
    return [split for split in splits if level in split.levels]


def level_prompts(
    task: Task, subject: Subject, max_tokens: int, level: int, count: int
) -> list[Prompt]:
    """The first ``count`` items of a level in the evaluation splits, as the model reads them."""
    places = [(split, row["id"]) for split, row in _rows(task) if row["level"] == level][:count]
    uids = {f"{task.name}/{split}/{name}" for split, name in places}
    splits = dict.fromkeys(split for split, _ in places)
    rendered = (prompts_of(task, split, subject.reader, max_tokens) for split in splits)
    return [prompt for prompts in rendered for prompt in prompts if prompt.uid in uids]


def correct_counts(scores: Sequence[float], rollouts: int) -> tuple[int, ...]:
    """How many items have 0, 1, ... ``rollouts`` scores of 1; an item's scores stand together."""
    per_item = [
        sum(score >= 1.0 for score in scores[i : i + rollouts])
        for i in range(0, len(scores), rollouts)
    ]
    return tuple(per_item.count(k) for k in range(rollouts + 1))


def _rows(task: Task) -> Iterable[tuple[str, Any]]:
    return (
        (split, row) for split in SPLITS if split in task.card.splits for row in task.rows(split)
    )


def decoding(task: Task, catalog: Catalog) -> Conditions:
    """Conditions of which only the decoding is read: the task's own cap at temperature 1."""
    sampling = Sampling(
        temperature=EVALUATION_TEMPERATURE, max_completion_bytes=task.card.max_completion_bytes
    )
    return load_track(catalog, "mini").conditions.model_copy(update={"sampling": sampling})


def in_float32(subject: Subject) -> Any:
    """The weights as they are, computed with in float32; quantised ones in their own way."""
    if subject.card.quantisation != "none":
        return subject.backbone
    return learning_copy(subject.card.model_copy(update={"adapter": None}), subject.backbone)


def block(card: TaskCard, probes: Sequence[LevelProbe], plan: Plan) -> str:
    """The README's block for a task: command, conditions, floors and the table."""
    models = {p.model: p.revision for p in probes}
    flags = "".join(f" --model {model}" for model in models)
    command = (
        f"crlbench probe {card.name}{flags} --rollouts {plan.rollouts} --items {plan.items} --write"
    )
    revisions = ", ".join(f"`{model}` at `{id[:12]}`" for model, id in models.items())
    conditions = (
        f"Task {card.version}, digest `{card.digest[:12]}`; {revisions}. Per level:"
        f" {plan.rollouts} completions at temperature {EVALUATION_TEMPERATURE:g} of each of the"
        f" first {plan.items} items of ID and HARD, at most {card.max_completion_bytes} bytes"
        " long, in float32 on one CPU thread, before any training. Correct counts: items of"
        f" which 0, 1, ... {plan.rollouts} completions {_solved(card)}."
    )
    return "\n".join(
        [
            BEGIN,
            "## Difficulty probe",
            "",
            "```sh",
            command,
            "```",
            "",
            *textwrap.wrap(conditions, WIDTH, break_on_hyphens=False),
            "",
            *_probe_table(probes, plan),
            "",
            "Beside it, what policies that know nothing score, and the floor made of it:",
            "",
            *_floor_table(card),
            END,
        ]
    )


def _solved(card: TaskCard) -> str:
    """What the correct counts count."""
    if card.reward_model is None:
        return "scored 1"
    return "passed the audit; the mean score is that of the reward model"


def _probe_table(probes: Sequence[LevelProbe], plan: Plan) -> list[str]:
    n = plan.rollouts
    lines = [
        f"| model | level | items | mean score | 0 of {n} | 1 to {n - 1} | {n} of {n} |"
        " correct counts | cut off | finding |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for p in probes:
        shares = " | ".join(f"{share:.3f}" for share in p.shares)
        lines.append(
            f"| {p.model} | {p.level} | {p.items} | {p.mean:.3f} | {shares} |"
            f" {' '.join(map(str, p.counts))} | {p.truncated:.3f} | {p.verdict} |"
        )
    return lines


def _floor_table(card: TaskCard) -> list[str]:
    """Null policies and the floor; of an environment also those of play, and the ceiling."""
    splits = {name: card.splits[name] for name in SPLITS if name in card.splits}
    played = card.environment is not None
    nulls = [
        name
        for name in NullScores.model_fields
        if all(getattr(split.nulls, name) is not None for split in splits.values())
    ]
    heads = [*(name.replace("_", " ") for name in nulls), "floor", *(["ceiling"] * played)]
    lines = [f"| split | {' | '.join(heads)} |", f"|---{'|---' * len(heads)}|"]
    for name, split in splits.items():
        values = [*(getattr(split.nulls, null) for null in nulls), split.floor]
        cells = (f"{value:.3f}" for value in [*values, *([split.ceiling] * played)])
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def with_block(text: str, new: str, path: Path) -> str:
    """A README with its block replaced, or put at the end where it has none.

    Raises:
        ValidationError: the markers are not one pair in order.
    """
    if BEGIN not in text and END not in text:
        return f"{text.rstrip()}\n\n{new}\n"
    before, _, rest = text.partition(BEGIN)
    _, marker, after = rest.partition(END)
    if not marker or any(mark in part for mark in (BEGIN, END) for part in (before, after)):
        raise ValidationError(
            f"{path}: needs each of the lines '{BEGIN}' and '{END}' once, in this order. Remove"
            " them all, and the next probe puts its block at the end."
        )
    return before + new + after


def read_readme(folder: Path) -> str:
    """A task's README.

    Raises:
        ValidationError: it is missing or not UTF-8.
    """
    path = folder / "README.md"
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise ValidationError(f"{path}: not UTF-8 text (byte {error.start}).") from None
