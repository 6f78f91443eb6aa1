"""One episode of a model, for people: what it was told and what it said, as in an evaluation."""

from __future__ import annotations

from crlbench.catalog.frozen import Task
from crlbench.catalog.rows import Row
from crlbench.contract.conditions import PROTOCOL
from crlbench.play.loop import play
from crlbench.play.record import Described, describe, sayings
from crlbench.play.seats import Table, reading_of, visits
from crlbench.policy.decode.loop import DrawKey
from crlbench.policy.weights.load import build_policy
from crlbench.run.subject import CAP_TEXTS, Subject, decoder_of, dialogue_of
from crlbench.seeding import seed_value


def play_once(subject: Subject, task: Task, split: str, row: Row, draw: int) -> Described:
    """The episode that a model plays from a row's start; each ``draw`` is another one.

    Raises:
        ValidationError: an episode does not fit into the model's context.
    """
    reader = subject.reader
    texts = [m["content"] for row in task.rows(split)[:CAP_TEXTS] for m in row["messages"]]
    table = Table(
        environment=task.environment,
        dialogue=(dialogue := dialogue_of(task, reader)),
        sampler=decoder_of(reader, texts, task.card.max_completion_bytes),
        context=reader.context,
        reading=reading_of(task.environment, dialogue),
        name=task.name,
    )
    seed = seed_value(PROTOCOL, f"{task.name}/shown", draw)
    policy = build_policy(
        subject.card, subject.backbone, value_head=False, reference=False, seed=seed
    )
    key = DrawKey(seed, "shown")
    uid = f"{task.name}/{split}/{row['id']}"
    starts = visits([uid], [row["answer"]], 1, key, trains=False)
    (episode,) = play(policy, table, starts, key, "cpu")
    return describe(task.environment, episode.start, sayings(episode))
