"""The corpus of the models ``tiny-*-play``: single turns, and episodes played by scripts.

Most documents are of one seat's part of an episode, in one of two histories: *restate*, one turn
alone behind all that the seat must know; *append*, all its turns in one document, each behind what
is new. The others are those of the second mix (:mod:`corpus`). Scripts blunder, so that a model
that samples what it has read has something to learn.

A document is a pure function of its number. No evaluation key occurs: an episode is told up to the
first turn in which a seat meets one, as a start or as an item of another task.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import corpus
from games import GAMES
from teams import TEAMS
from tokenizer import BOS, EOS, encode
from training import Row
from worlds import WORLDS, Key, World

from crlbench import seeding
from crlbench.reward.env import Message, Start, canonical
from crlbench.reward.playing import open_episode, take_turn
from crlbench.reward.splits import held_out
from crlbench.reward.tools import read_text

PLAYED: dict[str, World] = {**WORLDS, **GAMES, **TEAMS}
HISTORIES = ("restate", "append")
LONGEST = 256
"""Most tokens of a document; an episode that needs more is drawn again."""


@dataclass(frozen=True)
class PlayMix:
    """Shares of the corpus; worlds sum to 1."""

    single: corpus.Mix = corpus.SECOND
    episodes: float = 0.85
    """Share of the documents that are episodes."""
    worlds: dict[str, float] = field(
        default_factory=lambda: {
            "guess": 0.34,
            "relay-sum": 0.15,
            "lookup": 0.16,
            "calc": 0.15,
            "shop": 0.01,
            "take": 0.05,
            "tictactoe": 0.05,
            "kuhn": 0.02,
            "bargain": 0.02,
            "whisper": 0.03,
            "crew": 0.02,
        }
    )
    blunders: dict[str, float] = field(
        default_factory=lambda: {
            "guess": 0.25,
            "relay-sum": 0.05,
            "lookup": 0.05,
            "calc": 0.1,
            "shop": 0.2,
        }
    )
    """Share of a world's turns that are drawn from the legal ones; half where it is not named."""
    illegal: float = 0.0625
    """Share of the episodes with one illegal turn."""

    def blunders_of(self, world: str) -> float:
        """Share of a world's turns that are drawn."""
        return self.blunders.get(world, 0.5)


@dataclass(frozen=True)
class Taken:
    """One turn of an episode."""

    seat: int
    view: str
    """All that the seat must know, as a document shows it."""
    news: str
    """What is new to it."""
    said: str
    fault: str
    keys: frozenset[Key]
    """Items that the seat met."""


@dataclass(frozen=True)
class PlayDocument:
    """One document of an episode and where it came from."""

    world: str
    history: str
    level: int
    template: int
    turns: tuple[Taken, ...]
    """The turns that it shows."""

    def tokens(self) -> Row:
        """The token ids, and the places of what was said, each with its end."""
        ids, places = [BOS], []
        for number, turn in enumerate(self.turns):
            ids += encode((turn.news if number else turn.view) + "\n")
            said = [*encode(turn.said), EOS]
            places.append(range(len(ids), len(ids) + len(said)))
            ids += said
        return ids, tuple(places)


def lines(messages: Sequence[Message]) -> str:
    """An observation as a document shows it: the system's part is left out."""
    return "\n".join(m["content"] for m in messages if m["role"] != "system")


def play(
    rng: random.Random, world: World, level: int, template: int, blunders: float, illegal: float
) -> list[Taken]:
    """The turns of an episode in which scripts speak for every seat, up to an evaluation key."""
    start = Start(canonical(world.start(rng, level, template)), chance=f"{rng.getrandbits(64):x}")
    position, taken = open_episode(world.environment, start), list[Taken]()
    slip = rng.randrange(3) if rng.random() < illegal else -1
    while position.scores is None:
        state, turn = json.loads(position.state), len(taken)
        keys = frozenset(world.keys(state))
        if any(held_out(*key) for key in keys):
            break
        way = world.illegal if turn == slip else world.best
        way = world.blunder if turn != slip and rng.random() < blunders else way
        said = way(state, rng)
        met = position
        position = take_turn(world.environment, start, met, read_text(world.environment, said))
        fault = position.turns[turn].fault
        taken.append(Taken(met.seat, lines(met.view), lines(met.news), said, fault, keys))
    return taken


def document(seed: int, number: int, mix: PlayMix) -> corpus.Document | PlayDocument:
    """Document ``number`` of the corpus under ``seed``."""
    rng = seeding.rng(seed, "episodes", number)
    if rng.random() >= mix.episodes:
        return corpus.document(seed, number, mix.single)
    name = corpus.pick(rng, mix.worlds)
    level, template = corpus.pick(rng, mix.single.levels), corpus.pick(rng, mix.single.templates)
    history = rng.choice(HISTORIES)
    while True:
        turns = play(rng, PLAYED[name], level, template, mix.blunders_of(name), mix.illegal)
        if not turns:
            continue
        seat = rng.choice(sorted({turn.seat for turn in turns}))
        own = [turn for turn in turns if turn.seat == seat]
        shown = tuple(own) if history == "append" else (rng.choice(own),)
        made = PlayDocument(name, history, level, template, shown)
        if len(made.tokens()[0]) <= LONGEST:
            return made


def documents(seed: int, mix: PlayMix, start: int = 0) -> Iterator[corpus.Document | PlayDocument]:
    """The corpus from document ``start`` on; it has no end."""
    number = start
    while True:
        yield document(seed, number, mix)
        number += 1
