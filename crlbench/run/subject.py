"""What a run works on: its model, its tasks, and the prompts as the model reads them.

Loaded once per worker process and shared by all its cells; a run that trains gets its own
copy of the weights that learn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from torch import nn

from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.catalog.retain_panel import Panel, find_panel
from crlbench.catalog.rows import Row
from crlbench.confine.task import ConfinedTask
from crlbench.contract.conditions import Conditions
from crlbench.contract.model_card import ModelCard
from crlbench.contract.records import Cell
from crlbench.contract.task_card import unknown_kind
from crlbench.errors import ValidationError
from crlbench.play.room import Told, check_room, reached
from crlbench.play.seats import Table, against, calling_of, reading_of, under
from crlbench.policy.decode.loop import DecodeLoop
from crlbench.policy.text.chat import completion_cap, render, template_file, turn_end
from crlbench.policy.text.dialogue import Dialogue
from crlbench.policy.weights.load import Location, Reader, load_backbone
from crlbench.reward.env import Environment, Position, Said, read_start, read_transcript
from crlbench.reward.score import score
from crlbench.run.admission import admit
from crlbench.run.reward_model import ask, learned_scorer
from crlbench.train.collect import Answers, Collector, Play
from crlbench.train.reward import Scorer
from crlbench.train.stream import Prompt

EVALUATION_TEMPERATURE = 1.0
"""Temperature of every evaluation, whatever a run trains at (protocol CRL-1)."""
CAP_TEXTS = 256
"""Training rows whose texts convert the completion cap from bytes to tokens; ID rows of a task
that is only measured."""


@dataclass(frozen=True)
class Subject:
    """A model entry with everything needed to read prompts and to build policies."""

    card: ModelCard
    location: Location
    reader: Reader
    backbone: nn.Module
    """The frozen start model, which all runs share."""


@lru_cache(maxsize=2)
def load_subject(model: str, catalog: tuple[str, ...], precision: str = "bf16") -> Subject:
    """The subject of a ``--model`` name, for runs of a precision."""
    model_files = admit(Catalog(catalog).load_model(model), whole=True)
    backbone = load_backbone(model_files.card, model_files.location, precision)
    return Subject(model_files.card, model_files.location, model_files.reader, backbone)


@lru_cache(maxsize=2)
def load_panel(catalog: tuple[str, ...]) -> Panel:
    """The retain panel, whose digests were checked."""
    return find_panel(Catalog(catalog).roots)


@lru_cache(maxsize=64)
def load_task(name: str, catalog: tuple[str, ...]) -> Task:
    """A frozen task whose digests were checked."""
    return Catalog(catalog).load_task(name)


@lru_cache(maxsize=64)
def confined_task(name: str, catalog: tuple[str, ...]) -> ConfinedTask:
    """The same task with its code in a confined process, for who examines what others made."""
    task = ConfinedTask(Catalog(catalog).find("task", name).path)
    task.require_rows()
    return task


def task_of(cell: Cell, name: str) -> Task:
    """A task of a cell's board: in this process, or confined where the cell says so."""
    return (confined_task if cell.confined else load_task)(name, cell.catalog)


@lru_cache(maxsize=64)
def make_sampler(task: Task, reader: Reader, conditions: Conditions) -> DecodeLoop:
    """The decode loop that a run trains with; the byte cap becomes tokens of this model."""
    split = "train" if "train" in task.card.splits else "id"
    texts = [m["content"] for row in task.rows(split)[:CAP_TEXTS] for m in row["messages"]]
    cap = min(conditions.sampling.max_completion_bytes, task.card.max_completion_bytes)
    return decoder_of(reader, texts, cap, conditions.sampling.temperature)


def decoder_of(
    reader: Reader, texts: Sequence[str], cap: int, temperature: float = EVALUATION_TEMPERATURE
) -> DecodeLoop:
    """The decode loop of a model; the cap in bytes becomes tokens as in ``texts``."""
    return DecodeLoop(
        tokenizer=reader.tokenizer,
        temperature=temperature,
        max_tokens=completion_cap(reader.tokenizer, texts, cap),
        ends=reader.ends,
        pad=reader.pad,
    )


@lru_cache(maxsize=64)
def evaluation_sampler(task: Task, reader: Reader, conditions: Conditions) -> DecodeLoop:
    """The decode loop of every evaluation."""
    return replace(make_sampler(task, reader, conditions), temperature=EVALUATION_TEMPERATURE)


@lru_cache(maxsize=256)
def prompts_of(
    task: Task, split: str, reader: Reader, max_tokens: int, count: int | None = None
) -> tuple[Prompt, ...]:
    """The first ``count`` rows of a split as this model reads them (all by default)."""
    rows = task.rows(split)[:count]
    return tuple(_prompt(task, split, row, reader, max_tokens) for row in rows)


PLAYED = 4
"""Starts of each split from which episodes are played to see what seats are told."""


def check_context(task: Task, reader: Reader, conditions: Conditions) -> None:
    """Refuse a context that the longest prompt of a split and a completion do not fit into, or the
    longest episode.

    Raises:
        ValidationError: the prompt, its tokens and the context.
    """
    collector = collector_of(task, reader, conditions, "cpu")
    for split in task.card.splits:
        rows = task.rows(split)
        longest = max(rows, key=lambda row: sum(len(m["content"]) for m in row["messages"]))
        _prompt(task, split, longest, reader, collector.max_tokens)
        if isinstance(collector, Play):
            later = [
                (f"{split}/{row['id']}", position)
                for row in rows[:PLAYED]
                for position in _reached(task, collector.table, row)
            ]
            views: list[Told] = [
                *((f"{split}/{row['id']}", row["messages"]) for row in rows),
                *((name, position.view) for name, position in later),
            ]
            news = [(name, position.news) for name, position in later]
            check_room(collector.table, views, news)


def _reached(task: Task, table: Table, row: Row) -> list[Position]:
    """Positions of the episodes from a row's start in which the gold, or always one text, is said;
    under the rivals of training too."""
    try:
        gold = read_transcript(task.gold(row) or "") or []
    except Exception:  # strangers' code: the rules of environments try it
        gold = []
    scripts = [script for script in (gold, [Said("x")], [Said("")]) if script]
    start = read_start(row["answer"])
    starts = {start, against(start, table.rivals, table.environment.seats)}
    return [position for one in starts for position in reached(table, one, scripts)]


def training_prompts(
    task: Task, reader: Reader, max_tokens: int, levels: Sequence[int], at_least: int
) -> list[Prompt]:
    """The training rows of the wanted levels.

    Raises:
        ValidationError: fewer rows than one iteration needs.
    """
    pairs = zip(prompts_of(task, "train", reader, max_tokens), task.rows("train"), strict=True)
    prompts = [prompt for prompt, row in pairs if row["level"] in levels]
    if len(prompts) < at_least:
        raise ValidationError(
            f"task '{task.name}' has {len(prompts)} training prompts at levels {list(levels)}; one "
            f"iteration needs {at_least}. Its levels: {list(task.card.splits['train'].levels)}."
        )
    return prompts


def shown_prompt(prompt: Prompt, reader: Reader) -> str:
    """A prompt as text, special tokens included, for people."""
    return reader.tokenizer.decode(list(prompt.ids))


def _prompt(task: Task, split: str, row: Row, reader: Reader, max_tokens: int) -> Prompt:
    ids = ids_of(task, row, reader)
    if len(ids) + max_tokens > reader.context:
        raise ValidationError(
            f"task '{task.name}', {split}/{row['id']}: the prompt has {len(ids)} tokens and a "
            f"completion may have {max_tokens}; the model's context is {reader.context}. A prompt "
            "is never cut: choose a model with a longer context."
        )
    answer = row["answer"] if task.card.reward_model is None else ask(task, row)
    return Prompt(uid_of(task, split, row), ids, answer)


def ids_of(task: Task, row: Row, reader: Reader) -> tuple[int, ...]:
    """The prompt of a row as a model reads it; of an environment, its first view."""
    if task.card.kind == "environment":
        return dialogue_of(task, reader).open_row(row["messages"]).ids
    return tuple(render(row["messages"], reader.frame, reader.tokenizer, reader.thinking))


def uid_of(task: Task, split: str, row: Row) -> str:
    """The name of a row among all prompts of all tasks."""
    return f"{task.name}/{split}/{row['id']}"


def scorer_of(task: Task, device: str = "cpu") -> Scorer:
    """What a task pays, as the training room calls it: (texts, answers) -> scores.

    Its verifier or, where it has one, its reward model, which runs on ``device``.
    """
    if task.card.reward_model is not None:
        return learned_scorer(task, device)
    return verifier_of(task)


def verifier_of(task: Task) -> Scorer:
    """The task's verifier, as :func:`scorer_of`; where a reward model pays, what is right."""
    return lambda texts, answers: score(
        task.judge_of("verify", texts, answers), texts, answers, task.name
    )


def auditor_of(task: Task) -> Scorer:
    """The task's second verifier, as :func:`scorer_of`."""
    return lambda texts, answers: score(
        task.judge_of("audit", texts, answers), texts, answers, f"{task.name}, audit"
    )


def collector_of(task: Task, reader: Reader, conditions: Conditions, device: str) -> Collector:
    """Where a run on a task has its experience from, by the kind that the task's card names.

    Raises:
        ValidationError: there is no such kind.
    """
    make = COLLECTORS.get(task.card.kind)
    if make is None:
        raise ValidationError(f"task '{task.name}': {unknown_kind(task.card.kind)}.")
    return make(task, reader, conditions, device)


def row_cap(task: Task, reader: Reader, conditions: Conditions) -> int:
    """Most tokens that a policy may add to a prompt of a task."""
    return collector_of(task, reader, conditions, "cpu").max_tokens


def answers_of(task: Task, reader: Reader, conditions: Conditions, device: str) -> Answers:
    """The collector of a single-turn task."""
    return Answers(
        sampler=make_sampler(task, reader, conditions),
        scorer=scorer_of(task, device),
        auditor=auditor_of(task),
        evaluation=evaluation_sampler(task, reader, conditions),
        scale=conditions.data.reward_scale,
        kind=conditions.data.reward,
        gold=None if task.card.reward_model is None else verifier_of(task),
    )


def played_environment(task: Task, conditions: Conditions) -> Environment:
    """The environment of a task as the conditions have it played.

    Raises:
        ValidationError: see :func:`crlbench.play.seats.under`.
    """
    return under(conditions.play, task.environment, task.name)


@lru_cache(maxsize=64)
def dialogue_of(task: Task, reader: Reader) -> Dialogue:
    """How a model reads the episodes of an environment, and calls its tools.

    Raises:
        ValidationError: no token that is sampled ends a turn; or there are tools, and the chat
            template drops calls or has no known form of them.
    """
    calling = None
    if reader.frame == "chat" and turn_end(reader.tokenizer, reader.thinking) is None:
        if {*reader.ends} <= {reader.tokenizer.eos_token_id}:
            raise ValidationError(
                f"task '{task.name}' has several turns, and {template_file(reader.tokenizer)} "
                "ends a turn with no token of its own, so no turn would end before its cap. Name "
                "the tokens that end one under stop_tokens in the model's entry."
            )
    if reader.frame == "chat" and reader.calls != "line":
        try:
            calling = calling_of(task.environment, reader.tokenizer, reader.thinking)
        except ValidationError as error:
            raise ValidationError(
                f"task '{task.name}' has tools. {error} To let it, write [calls] with form = "
                '"line" into the model\'s entry.'
            ) from None
    return Dialogue(reader.tokenizer, reader.frame, reader.ends, reader.thinking, calling)


def play_of(task: Task, reader: Reader, conditions: Conditions, device: str) -> Play:
    """The collector of an environment."""
    environment, dialogue = played_environment(task, conditions), dialogue_of(task, reader)
    return Play(
        table=Table(
            environment=environment,
            dialogue=dialogue,
            sampler=make_sampler(task, reader, conditions),
            context=reader.context,
            reading=reading_of(environment, dialogue),
            name=task.name,
            rivals=conditions.play.rivals,
        ),
        auditor=auditor_of(task),
        evaluation=evaluation_sampler(task, reader, conditions),
        scale=conditions.data.reward_scale,
        kind=conditions.data.reward,
    )


COLLECTORS: Mapping[str, Callable[[Task, Reader, Conditions, str], Collector]] = {
    "single-turn": answers_of,
    "environment": play_of,
}
"""What makes the collector of a task, by the kind of the task."""
