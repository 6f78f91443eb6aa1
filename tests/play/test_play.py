"""Token truth: only sampled ids are trained, behind exactly the tokens they were sampled behind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from crlbench.errors import ValidationError
from crlbench.play.assemble import assemble
from crlbench.play.loop import Episode, play
from crlbench.play.room import check_room, reached
from crlbench.play.seats import Table, Visit, turn_uniforms, visits
from crlbench.policy.decode.loop import DecodeLoop, DrawKey, row_uniforms
from crlbench.policy.policy import Policy
from crlbench.policy.text.dialogue import Dialogue
from crlbench.reward.env import Environment, Said, Start, Step, digest, read_start
from crlbench.reward.playing import open_episode, replay
from crlbench.types import PromptBatch, Rollout
from tests.policy.test_dialogue import PLAIN, TRIMS
from tests.support.checkpoints import ascii_tokenizer, random_model
from tests.support.environments import COUNTDOWN, DUEL, DUEL_START, LENIENT, countdown_start

ENDS = (130, *range(64, 128))
"""Half of what a random model says ends a turn, so that most turns end before their cap."""
KEY = DrawKey(5, "rollout", 3)


def table(
    environment: Environment = COUNTDOWN,
    *,
    history: str = "restate",
    frame: str = "terse",
    template: str | None = None,
    ends: tuple[int, ...] = ENDS,
    max_tokens: int = 6,
    context: int = 256,
) -> Table:
    tokenizer = ascii_tokenizer(template)
    return Table(
        environment=replace(environment, history=history),
        dialogue=Dialogue(tokenizer, frame, ends),
        sampler=DecodeLoop(tokenizer, 1.0, max_tokens, ends=ends, pad=128),
        context=context,
        name="toy",
    )


def policy_of(family: str = "llama", critic: bool = False) -> Policy:
    policy = Policy(random_model(family), value_head=critic, reference=None)
    if policy.value_head is not None:
        torch.nn.init.normal_(policy.value_head.weight)
    return policy


def starts(count: int, episodes: int) -> list[Visit]:
    return [
        Visit(f"toy/train/{i}", read_start(countdown_start(3 + i, str(i))), episodes)
        for i in range(count)
    ]


def assert_true(policy: Policy, episodes: Sequence[Episode]) -> Rollout:
    """Rows hold what was sampled, with the log-probabilities that a pass over them finds."""
    rollout = assemble(episodes, 128).rollout
    spoken = [turn for episode in episodes for turn in episode.spoken]
    assert int(rollout.action_mask.sum()) == sum(len(turn.ids) for turn in spoken)
    whole = rollout.stated()
    assert whole.turn is not None and whole.episode is not None and whole.seat is not None
    for number, episode in enumerate(episodes):
        for turn in episode.spoken:
            rows = (whole.episode == number) & (whole.seat == turn.seat)
            place = rows[:, None] & whole.action_mask
            if rollout.turn is not None:
                place &= whole.turn == turn.turn
            assert whole.completion_ids[place].tolist() == [*turn.ids]
            assert torch.equal(whole.behavior_logprobs[place], turn.logprobs)
            assert set(whole.state[place].tolist()) == {int(turn.state[:15], 16)}
            # The row up to the turn is what the policy read when it said it.
            (row,) = {int(r) for r in place.nonzero()[:, 0]}
            first = int(place[row].nonzero()[0])
            read = whole.prompt_ids[row][whole.prompt_mask[row]].tolist()
            read += whole.completion_ids[row, :first].tolist()
            assert read[len(read) - len(turn.before) :] == [*turn.before]
    outside = ~rollout.action_mask
    assert not rollout.behavior_logprobs[outside].any()
    group = torch.arange(len(rollout.texts))
    policy.eval()
    with torch.no_grad():
        found = policy(
            rollout.prompt_ids, rollout.prompt_mask, rollout.completion_ids,
            rollout.completion_mask, group, 1.0,
        )  # fmt: skip
    mask = rollout.action_mask
    assert torch.allclose(found.logprobs[mask], rollout.behavior_logprobs[mask], atol=1e-4)
    if rollout.behavior_values is not None:
        assert torch.allclose(found.values[mask], rollout.behavior_values[mask], atol=1e-4)
    return rollout


@pytest.mark.parametrize("family", ["llama", "qwen2", "mistral", "deepseek"])
@pytest.mark.parametrize("history", ["restate", "append"])
def test_every_action_token_was_sampled_behind_its_row(family: str, history: str) -> None:
    policy = policy_of(family, critic=True)
    episodes = play(policy, table(history=history), starts(3, 4), KEY, "cpu")
    rollout = assert_true(policy, episodes)
    turns = sorted({len(episode.spoken) for episode in episodes})
    assert turns[-1] >= 3, turns
    rows = sum(len(e.spoken) if history == "restate" else 1 for e in episodes)
    assert len(rollout.texts) == rows
    told = rollout.completion_mask & ~rollout.action_mask
    assert bool(told.any()) is (history == "append")


@pytest.mark.parametrize("frame", ["chat", "plain"])
def test_templates_that_append_and_turns_that_fork(frame: str) -> None:
    """Under TRIMS a turn with white space at an end forks; plain lines append behind a newline."""
    ends = (130,) if frame == "chat" else (10,)
    model = random_model()
    with torch.no_grad():  # ends and spaces are likely, so that both ways occur
        for token in (*ends, 32, 49):
            model.lm_head.weight[token] *= 4.0
    policy = Policy(model, value_head=False, reference=None)
    seats = table(history="append", frame=frame, template=TRIMS, ends=ends, max_tokens=24)
    episodes = play(policy, seats, starts(4, 8), KEY, "cpu")
    rollout = assert_true(policy, episodes)
    longest = max(len(episode.spoken) for episode in episodes)
    assert longest >= 3
    appended = [turn for e in episodes for turn in e.spoken[1:] if not turn.opens]
    assert appended
    if frame == "chat":
        forked = [turn for e in episodes for turn in e.spoken[1:] if turn.opens]
        assert forked and len(rollout.texts) == len(episodes) + len(forked)
        for episode in episodes:
            for before, turn in zip(episode.spoken, episode.spoken[1:], strict=False):
                # What was sampled, special tokens included, and what the template makes of it.
                sampled = seats.dialogue.tokenizer.decode(before.ids[:-1])
                assert turn.opens is (sampled != before.said.text.strip())


class Scripted:
    """A sampler that says given ids, whatever the policy."""

    def __init__(self, turns: Sequence[Sequence[int]], tokenizer: Any) -> None:
        self.turns, self.tokenizer = [*turns], tokenizer
        self.max_tokens, self.pad = max(map(len, turns)), 128
        self.prompts: list[list[int]] = []

    def sample(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Rollout:
        raise AssertionError("turns are completed from draws")

    def complete(self, policy: Policy, batch: PromptBatch, draws: Tensor) -> Rollout:
        count = len(draws)
        said = [self.turns.pop(0) for _ in range(count)]
        groups = torch.arange(len(batch.uids)).repeat_interleave(batch.completions_per_prompt)
        ids = torch.full((count, self.max_tokens), self.pad)
        mask = torch.zeros(ids.shape, dtype=torch.bool)
        for row, tokens in enumerate(said):
            ids[row, : len(tokens)], mask[row, : len(tokens)] = torch.tensor(tokens), True
            prompt = batch.prompt_ids[groups[row]][batch.prompt_mask[groups[row]]]
            self.prompts.append(prompt.tolist())
        texts = [self.tokenizer.decode(t, skip_special_tokens=True) for t in said]
        return Rollout(
            batch.prompt_ids[groups], batch.prompt_mask[groups], ids, mask, mask,
            torch.zeros(ids.shape), groups, torch.tensor([t[-1] == 130 for t in said]), texts,
        )  # fmt: skip


def test_no_sampled_token_is_tokenised_again() -> None:
    """Two ways to write "12": the row keeps the one that was sampled, turn by turn."""

    class Twice:
        """Writes 12 as one token where it is asked, and reads it as two where it is sampled."""

        def __init__(self) -> None:
            self.plain = ascii_tokenizer()
            self.bos_token_id, self.unk_token, self.added_tokens_decoder = 129, None, {}

        def __len__(self) -> int:
            return len(self.plain)

        def __call__(self, text: str, **options: Any) -> dict[str, list[int]]:
            joined = text.replace("12", "\x01")
            return {"input_ids": self.plain(joined, add_special_tokens=False)["input_ids"]}

        def decode(self, ids: Sequence[int], **options: Any) -> str:
            return self.plain.decode(ids, **options).replace("\x01", "12")

    tokenizer = Twice()
    rare, usual = [ord("1"), ord("2"), 130], [1, 130]
    sampler = Scripted([rare, usual, rare, usual, rare], tokenizer)
    dialogue = Dialogue(tokenizer, "terse", (130,))
    seats = replace(table(history="append"), sampler=sampler, dialogue=dialogue, context=10**6)
    (episode,) = play(policy_of(), seats, [Visit("u", read_start(countdown_start(12)), 1)],
                      KEY, "cpu")  # fmt: skip
    assert [turn.said.text for turn in episode.spoken] == ["12"] * 5
    rollout = assemble([episode], 128).rollout
    assert rollout.prompt_ids[0].tolist() == [129, 1, 10]
    news = [1, 10]
    assert rollout.completion_ids[0].tolist() == [
        *rare, *news, *usual, *news, *rare, *news, *usual, *news, *rare
    ]  # fmt: skip
    assert rollout.action_mask[0].tolist() == [
        *[True] * 3, *[False] * 2, *[True] * 2, *[False] * 2, *[True] * 3, *[False] * 2,
        *[True] * 2, *[False] * 2, *[True] * 3,
    ]  # fmt: skip
    assert sampler.prompts[-1] == [129, 1, 10, *rollout.completion_ids[0, :-3].tolist()]
    for name in ("completion_mask", "behavior_logprobs", "turn", "state"):
        assert getattr(rollout, name).shape == rollout.completion_ids.shape


def test_a_cut_turn_ends_its_episode_and_gains_no_token() -> None:
    tokenizer = ascii_tokenizer()
    turns = [[ord("x"), 130], [ord("2"), 130], [ord("1"), ord("1")], [ord("1"), 130],
             [ord("2"), 130]]  # fmt: skip
    for history in ("restate", "append"):
        sampler = Scripted(turns, tokenizer)
        seats = replace(table(history=history), sampler=sampler)
        some = [Visit("a", read_start(countdown_start(9)), 1),
                Visit("b", read_start(countdown_start(5)), 1)]  # fmt: skip
        first, second = play(policy_of(), seats, some, KEY, "cpu")
        assert [turn.ids for turn in first.spoken] == [(ord("x"), 130), (49, 49)]
        assert first.said[-1] == Said("11", cut=True) and first.scores == (0.0,)
        assert second.scores == (1.0,) and len(second.spoken) == 3
        whole = assemble([first, second], 128).rollout.stated()
        assert whole.finished.tolist() == [number == 1 for number in whole.episode.tolist()]
        assert replay(COUNTDOWN, first.start, first.said) == first.position


def test_seats_of_the_policy_have_rows_and_groups_of_their_own() -> None:
    start = Start(read_start(DUEL_START).state, 0, (), "7")  # nobody is scripted
    policy = policy_of()
    for history in ("restate", "append"):
        some = [Visit("a", start, 3), Visit("b", start, 3)]
        episodes = play(policy, table(DUEL, history=history), some, KEY, "cpu")
        rows = assemble(episodes, 128)
        assert_true(policy, episodes)
        rollout = rows.rollout
        assert rollout.trajectory is not None and rollout.seat is not None
        for row, number in enumerate(rows.episode):
            seat = int(rollout.seat[row])
            assert rows.score[row] == episodes[number].scores[seat]
        pairs = {*zip(rollout.group.tolist(), rollout.seat.tolist(), strict=True)}
        assert len(pairs) == len({group for group, _ in pairs}) == 4
        assert rollout.group.tolist() == sorted(rollout.group.tolist())
        both = zip(rows.last.tolist(), rollout.trajectory.tolist(), strict=True)
        ended = [trajectory for is_last, trajectory in both if is_last]
        assert ended == [*range(12)]


def test_turns_are_numbered_and_paid_where_they_end() -> None:
    episodes = play(policy_of(), table(history="append"), starts(2, 3), KEY, "cpu")
    rows = assemble(episodes, 128)
    for row, episode in enumerate(episodes):
        ends, place = [], 0
        for turn in episode.spoken:
            place += (0 if turn.opens else len(turn.before)) + len(turn.ids)
            ends.append(place - 1)
        counts = rows.turn_ends[row]
        assert [t for t, (a, b) in enumerate(zip([0, *counts], counts, strict=False)) if b > a] == (
            ends
        )
        assert rows.earned[row] == [turn.paid[0] for turn in episode.position.turns]
        texts = [turn.said.text for turn in episode.spoken]
        said = json.loads(rows.rollout.texts[row]) if len(texts) > 1 else [rows.rollout.texts[row]]
        assert said == texts


# -- draws ---------------------------------------------------------------------------------------


def test_the_first_turn_has_the_draws_of_a_completion_and_all_others_their_own() -> None:
    assert turn_uniforms(KEY, "u", 2, 0, 0, 5) == row_uniforms(KEY, "u", 2, 5)
    keys = [(uid, index, seat, turn) for uid in "uv" for index in (0, 1) for seat in (0, 1)
            for turn in (0, 1, 2)]  # fmt: skip
    drawn = {tuple(turn_uniforms(KEY, *key, 4)) for key in keys}
    for other in (replace(KEY, iteration=4), replace(KEY, purpose="end"), replace(KEY, seed=6)):
        drawn |= {tuple(turn_uniforms(other, *key, 4)) for key in keys}
    assert len(drawn) == 4 * len(keys)
    assert turn_uniforms(KEY, "u", 0, 0, 1, 9)[:4] == turn_uniforms(KEY, "u", 0, 0, 1, 4)
    assert all(n != n for n in turn_uniforms(DrawKey(None, "e"), "u", 0, 1, 1, 3))


def test_a_group_shares_dice_and_every_visit_has_its_own() -> None:
    answers = [countdown_start(4, "aa"), countdown_start(4, "aa")]

    def dice(key: DrawKey, trains: bool) -> list[str]:
        return [v.start.chance for v in visits(["u", "v"], answers, 3, key, trains)]

    assert dice(KEY, trains=False) == ["aa", "aa"]
    first = dice(KEY, trains=True)
    assert (
        len({*first, *dice(replace(KEY, iteration=4), True), *dice(DrawKey(6, "r", 3), True)}) == 6
    )
    assert first == dice(replace(KEY, purpose="another"), True)


def test_what_is_played_beside_an_episode_has_no_influence() -> None:
    policy, seats = policy_of(), table(history="append")
    together = play(policy, seats, starts(4, 3), KEY, "cpu")
    apart = [e for visit in starts(4, 3)[::-1] for e in play(policy, seats, [visit], KEY, "cpu")]
    found = {(e.visit.uid, e.number): e.said for e in apart}
    assert {(e.visit.uid, e.number): e.said for e in together} == found


# -- what is refused -----------------------------------------------------------------------------


def test_a_context_that_is_too_small_is_named_with_its_numbers() -> None:
    with pytest.raises(ValidationError, match=r"task 'toy', toy/train/0: turn 0: its row has 3 "
                       r"tokens and a turn may have 6; the model's context is 8"):  # fmt: skip
        play(policy_of(), table(context=8), starts(1, 1), KEY, "cpu")


@pytest.mark.parametrize("frame", ["terse", "chat"])
@pytest.mark.parametrize("history", ["restate", "append"])
def test_no_episode_needs_more_room_than_is_asked_for(history: str, frame: str) -> None:
    """The bound is refused with its numbers where it does not fit, and no turn comes above it."""
    ends = ENDS if frame == "terse" else (130,)
    seats = table(history=history, frame=frame, template=PLAIN, ends=ends)
    view = [{"role": "user", "content": "9"}]
    ids = seats.dialogue.open_row(view).ids
    frames = {"terse": 4, "chat": len("<assistant>x<eos>\n<user>x<eos>\n") - 8}[frame]
    first = len(ids) - 1 + 8 + 6
    most = first if history == "restate" else first + 4 * (frames + 8 + 6)
    check_room(replace(seats, context=most), [("id/id-00000", view)])
    with pytest.raises(ValidationError, match=rf"id/id-00000: an episode may need {most} tokens "
                       rf".*; the model's context is {most - 1}\."):  # fmt: skip
        check_room(replace(seats, context=most - 1), [("id/id-00000", view)])
    episodes = play(policy_of(), seats, starts(2, 6), KEY, "cpu")
    rollout = assemble(episodes, 128).rollout
    read = rollout.prompt_mask.sum(1) + rollout.completion_mask.sum(1)
    assert int(read.max()) <= most


@pytest.mark.parametrize("history", ["restate", "append"])
def test_frames_and_system_texts_of_later_views_are_counted(history: str) -> None:
    """A context that the first view alone would fit into is refused before the first token."""

    def observe(state: dict[str, Any], seat: int) -> list[dict[str, str]]:
        told = COUNTDOWN.observe(state, seat)
        if state["left"] == 3:
            return told
        return [{"role": "system", "content": "s" * 70}, *told, {"role": "user", "content": ""}]

    environment = replace(LENIENT, observe=observe, news=None)
    (visit,) = starts(1, 6)
    ends = ENDS if history == "restate" else (130,)
    seats = table(environment, history=history, frame="chat", template=PLAIN, ends=ends)
    positions = [*reached(seats, visit.start, [[Said("1")]])]
    views = [("id/0", p.view) for p in positions]
    with pytest.raises(ValidationError, match="may need") as raised:
        check_room(replace(seats, context=1), views, [("id/0", p.news) for p in positions])
    need = int(str(raised.value).partition("may need ")[2].split()[0])
    with pytest.raises(ValidationError, match="may need") as raised:
        check_room(replace(seats, context=1), views[:1])
    first = int(str(raised.value).partition("may need ")[2].split()[0])
    assert first <= need - 70
    said = Policy(random_model(), value_head=False, reference=None)
    rollout = assemble(play(said, replace(seats, context=need), [visit], KEY, "cpu"), 128).rollout
    read = rollout.prompt_mask.sum(1) + rollout.completion_mask.sum(1)
    assert int(read.max()) <= need
    if history == "restate":  # the first view alone would have let a run begin, and stop
        assert int(read.max()) > first


def test_no_row_hides_behind_one_with_more_characters() -> None:
    """The limit bounds what is told, and not the system text before it."""
    seats = table(frame="plain", ends=(10,))
    short = [{"role": "system", "content": "s" * 40}, {"role": "user", "content": "9"}]
    long = [{"role": "system", "content": "s"}, {"role": "user", "content": "9" * 8}]
    most = 1 + 40 + 1 + 8 + 1 + 6  # the first is the beginning token
    with pytest.raises(ValidationError, match=f"id/1: an episode may need {most} tokens"):
        check_room(replace(seats, context=most - 1), [("id/0", long), ("id/1", short)])
    check_room(replace(seats, context=most), [("id/0", long), ("id/1", short)])


def test_an_environment_that_fails_is_not_the_fault_of_the_context() -> None:
    def observe(state: dict[str, Any], seat: int) -> list[dict[str, str]]:
        if state["left"] == 3:
            return COUNTDOWN.observe(state, seat)
        raise KeyError("late")

    seats = table(replace(COUNTDOWN, observe=observe))
    assert len([*reached(seats, starts(1, 1)[0].start, [[Said("1")], [Said("2")]])]) == 2


@dataclass(frozen=True)
class Fault:
    changes: dict[str, Any]
    words: str


@pytest.mark.parametrize(
    "fault",
    [
        Fault({"step": lambda s, said, c: 1 / 0}, "step raised ZeroDivisionError"),
        Fault({"observe": lambda s, seat: []}, "observe returned"),
        Fault({"score": lambda s: (2.0,), "max_turns": 1}, "score returned"),
    ],
)
def test_a_broken_environment_stops_the_run_and_is_named(fault: Fault) -> None:
    seats = table(replace(COUNTDOWN, **fault.changes))
    with pytest.raises(ValidationError, match=f"task 'toy', toy/train/0: {fault.words}"):
        play(policy_of(), seats, starts(2, 2), KEY, "cpu")


def test_an_episode_in_which_nothing_is_said_is_refused() -> None:
    over = replace(DUEL, step=lambda s, said, c: Step(s, over=True))
    with pytest.raises(ValidationError, match="over before the policy has said anything"):
        play(policy_of(), table(over), [Visit("u", read_start(DUEL_START), 1)], KEY, "cpu")


def test_states_are_told_apart_by_their_digests() -> None:
    (episode,) = play(policy_of(), table(), starts(1, 1), KEY, "cpu")
    position = open_episode(COUNTDOWN, episode.start)
    assert episode.spoken[0].state == digest(position.state)
    rollout = assemble([episode], 128).rollout
    assert rollout.state is not None
    number = int(digest(position.state)[:15], 16)
    assert rollout.state[0, 0] == number and 0 <= number < 2**63
