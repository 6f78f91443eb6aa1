"""The corpus of episodes: what it leaves out, what it holds; models read it as they play."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from itertools import islice

import corpus
import episodes
import pytest
from episodes import HISTORIES, LONGEST, PLAYED, PlayDocument, PlayMix
from games import GAMES
from pretrain import PLAY, PLAYING, rows_of
from scoring import read_split
from teams import TEAMS
from tokenizer import BOS, EOS, build, configuration
from training import collate
from transformers import PreTrainedTokenizerFast
from worlds import WORLDS

from crlbench.policy.text.dialogue import Dialogue
from crlbench.reward.env import read_start
from crlbench.reward.splits import held_out

MIX = PlayMix()
FIRST_200 = "36531adaf7f048ff442d145e25095879161d8c270d4c306c523aa3cb85ee3e6f"
EVEN = PlayMix(episodes=1.0, worlds=dict.fromkeys(PLAYED, 1 / len(PLAYED)))
"""All worlds alike, so that few documents show each of them."""


@pytest.fixture(scope="module")
def sample() -> list[PlayDocument]:
    made = islice(episodes.documents(0, EVEN), 1600)
    return [document for document in made if isinstance(document, PlayDocument)]


def test_no_evaluation_key_is_met_in_an_episode(sample: list[PlayDocument]) -> None:
    met = {key for document in sample for turn in document.turns for key in turn.keys}
    assert {task for task, _ in met} == {*PLAYED, "addition"}
    assert not any(held_out(*key) for key in met)
    for task in (*WORLDS, "addition"):
        frozen = {
            row["key"] for split in ("id", "hard", "format") for row in read_split(task, split)
        }
        assert frozen and not frozen & {key for name, key in met if name == task}


@pytest.mark.parametrize("task", WORLDS)
def test_a_start_has_the_key_that_its_task_gives_it(task: str) -> None:
    """The rule that leaves keys out would otherwise leave out others."""
    for split in ("id", "train"):
        for row in read_split(task, split)[:40]:
            state = json.loads(read_start(row["answer"]).state)
            assert (task, row["key"]) in WORLDS[task].keys(state)


def test_every_world_and_history_occurs(sample: list[PlayDocument]) -> None:
    assert len(sample) == 1600
    found = Counter((document.world, document.history) for document in sample)
    assert {*found} == {(world, history) for world in PLAYED for history in HISTORIES}
    assert all(len(d.turns) == 1 for d in sample if d.history == "restate")
    assert any(len(d.turns) > 2 for d in sample)
    assert max(len(d.tokens()[0]) for d in sample) <= LONGEST
    seats = {world: {turn.seat for d in sample if d.world == world for turn in d.turns}
             for world in PLAYED}  # fmt: skip
    counts = {world: one.environment.seats for world, one in PLAYED.items()}
    assert seats == {world: {*range(count)} for world, count in counts.items()}


def test_few_turns_are_faults(sample: list[PlayDocument]) -> None:
    faults = [bool(turn.fault) for document in sample for turn in document.turns]
    assert 0 < sum(faults) < 0.06 * len(faults)


@pytest.mark.parametrize("name", PLAYED)
def test_best_and_blunders_are_legal_and_slips_are_faults(name: str) -> None:
    world = PLAYED[name]

    def faults(way: str, blunders: float) -> list[bool]:
        rng, found = random.Random(3), list[bool]()
        for level in (1, 2, 3) * 8:
            illegal = 1.0 if way == "illegal" else 0.0
            turns = episodes.play(rng, world, level, 0, blunders, illegal)
            found += [bool(turn.fault) for turn in turns]
        return found

    assert faults("best", 0.0) and not any(faults("best", 0.0))
    assert not any(faults("blunder", 1.0))
    assert any(faults("illegal", 0.0))


@pytest.mark.parametrize("name", {**GAMES, **TEAMS})
def test_a_game_ends_by_its_rules(name: str) -> None:
    """Also where only blunders are said; and who says what is not legal loses."""
    world, rng = PLAYED[name], random.Random(5)
    for blunders in (0.0, 0.5):
        for level in (1, 2, 3) * 10:
            turns = episodes.play(rng, world, level, 0, blunders, 0.0)
            assert len(turns) <= world.environment.max_turns


def test_shares_sum_to_one_and_name_worlds() -> None:
    assert sum(MIX.worlds.values()) == pytest.approx(1.0)
    assert {*MIX.worlds} == {*PLAYED} >= {*MIX.blunders}
    assert MIX.blunders_of("take") == 0.5


def test_a_document_is_what_a_model_reads_in_play(sample: list[PlayDocument]) -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=build(), **configuration())
    dialogue = Dialogue(tokenizer, "terse", (EOS,))
    for document in [d for d in sample if d.history == "append"][:60]:
        ids, places = document.tokens()
        assert not isinstance(places, int)
        messages: list[dict[str, str]] = []
        for number, (turn, place) in enumerate(zip(document.turns, places, strict=True)):
            messages.append({"role": "user", "content": turn.news if number else turn.view})
            assert ids[: place.start] == [*dialogue.open_row(messages).ids]
            assert ids[place.start : place.stop] == [*turn.said.encode(), EOS]
            messages.append({"role": "assistant", "content": turn.said})
        assert ids[0] == BOS and places[-1].stop == len(ids)


def test_only_what_was_said_has_full_weight() -> None:
    row = ([BOS, *b"a\nb", EOS, *b"c\nd", EOS], (range(3, 5), range(7, 9)))
    ids, weights, answer = collate([row, ([BOS, *b"a\n", EOS], 3)], 0.1)
    assert ids.shape == (2, 9)
    assert answer.tolist() == [[False, False, True, True, False, False, True, True],
                               [False, False, True, *[False] * 5]]  # fmt: skip
    assert weights[0].tolist() == pytest.approx([0.1, 0.1, 1, 1, 0.1, 0.1, 1, 1])
    assert weights[1].tolist() == pytest.approx([0.1, 0.1, 1, 0, 0, 0, 0, 0])


def test_a_document_depends_on_seed_and_number_alone() -> None:
    straight = list(islice(episodes.documents(0, MIX), 30))
    assert straight[17] == episodes.document(0, 17, MIX)
    assert straight != list(islice(episodes.documents(1, MIX), 30))
    single = [d for d in islice(episodes.documents(0, MIX), 200) if isinstance(d, corpus.Document)]
    assert 0.05 < len(single) / 200 < 0.3
    assert all(d == corpus.document(0, n, MIX.single) for n, d in enumerate(straight)
               if isinstance(d, corpus.Document))  # fmt: skip


def test_the_first_documents_never_change() -> None:
    digest = hashlib.sha256()
    for row in islice(rows_of(PLAY[0], 0), 200):
        digest.update(repr(row).encode())
    assert digest.hexdigest() == FIRST_200
    assert PLAYING.updates == 800
