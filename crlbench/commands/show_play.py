"""``crlbench show task NAME --play``: an episode in the terminal, by hand or with a model."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from crlbench.commands.console import out, out_json
from crlbench.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from crlbench.catalog.find import Catalog
    from crlbench.catalog.frozen import Task
    from crlbench.catalog.rows import Row
    from crlbench.reward.env import Message, Turn


def show_episode(options: Namespace, catalog: Catalog) -> None:
    """Play one item of an environment and print every turn.

    Raises:
        UsageError: the task is no environment, it has no such item, or nothing more can be read.
    """
    task = catalog.load_task(options.name)
    if task.card.kind != "environment":
        raise UsageError(
            f"--play: task '{task.name}' is answered once; only environments are played."
        )
    split, row = _row(task, options.item)
    if options.model is None:
        _by_hand(task, row)
        return
    described = _by_model(options, catalog, task, split, row)
    if options.json:
        out_json({"task": task.name, "model": options.model, "item": row["id"], **described})
        return
    for number, turn in enumerate(described["turns"]):
        _say_told(number, turn.get("observation", ()))
        text = turn["said"] if isinstance(turn["said"], str) else turn["said"]["text"]
        out(f"  says: {text!r}")
        _say_turn(turn["seat"], turn["paid"], turn["fault"])
    _say_end(described["scores"])


def _row(task: Task, name: str) -> tuple[str, Row]:
    split = name.rpartition("-")[0]
    if split not in task.card.splits:
        raise unknown_name(f"split of task '{task.name}'", split, task.card.splits)
    for row in task.rows(split):
        if row["id"] == name:
            return split, row
    last = task.rows(split)[-1]["id"]
    raise UsageError(f"--item {name}: task '{task.name}' has {split}-00000 to {last}.")


def _by_model(
    options: Namespace, catalog: Catalog, task: Task, split: str, row: Row
) -> dict[str, Any]:
    import torch

    from crlbench.commands.job import require_fetched
    from crlbench.run.played import play_once
    from crlbench.run.subject import load_subject

    require_fetched([catalog.load_model(options.model)], options.home)
    torch.set_num_threads(1)  # sums in another order have other bits, and draws other tokens
    subject = load_subject(options.model, tuple(map(str, catalog.extra)))
    return play_once(subject, task, split, row, options.draw)


def _by_hand(task: Task, row: Row) -> None:
    from crlbench.reward.checked import opened, taken
    from crlbench.reward.env import read_start
    from crlbench.reward.tools import read_text

    environment, start = task.environment, read_start(row["answer"])
    position = opened(environment, start)
    _say_turns(position.turns)
    while position.scores is None:
        number = len(position.turns)
        _say_told(number, position.view)
        try:
            text = input("  say: ")
        except EOFError:
            raise UsageError(
                f"--play: the input ended before turn {number}; the episode goes on."
            ) from None
        position = taken(environment, start, position, read_text(environment, text))
        _say_turns(position.turns[number:])
    _say_end(position.scores)


def _say_told(number: int, view: Any) -> None:
    out(f"turn {number}")
    messages: list[Message] = [*view]
    for message in messages:
        out(f"  {message['role']}: {message['content']}")


def _say_turns(turns: tuple[Turn, ...]) -> None:
    for turn in turns:
        _say_turn(turn.seat, turn.paid, turn.fault)


def _say_turn(seat: int, paid: Any, fault: str) -> None:
    notes = [f"fault: {fault}"] if fault else []
    notes += [f"paid {paid[seat]:g}"] if paid[seat] else []
    if notes:
        out(f"  {', '.join(notes)}")


def _say_end(scores: Any) -> None:
    out(f"over; score {', '.join(f'{score:g}' for score in scores)}")
