"""Episodes are trained on and evaluated as completions are; one of one turn is a completion."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from crlbench.algo import recipes
from crlbench.algo.recipe import Recipe, to_config
from crlbench.algo.token_rewards import place_steps
from crlbench.catalog.frozen import Task
from crlbench.contract.conditions import control_leaves, override
from crlbench.play.loop import play
from crlbench.play.seats import Table, visits
from crlbench.play.single import as_environment, start_of
from crlbench.policy.decode.loop import DecodeLoop, DrawKey
from crlbench.policy.policy import Policy
from crlbench.policy.text.dialogue import Dialogue
from crlbench.reward.env import read_transcript
from crlbench.reward.playing import replayed
from crlbench.reward.score import score
from crlbench.run import store, subject
from crlbench.run.execute import run_cell
from crlbench.run.plan import Board, Contender, Declaration, Execution, NamedRecipe
from crlbench.run.subject import answers_of
from crlbench.train.callbacks import RunStopped
from crlbench.train.collect import Collected, Play
from crlbench.train.evaluation import score_requests
from crlbench.train.metrics import RolloutMetrics
from crlbench.train.module import PolicyOptimization
from crlbench.train.passes import Passes
from crlbench.train.ranks import ALONE, Ranks, join_ranks, leave
from crlbench.train.requests import Examination, Request
from crlbench.train.reward import Reward, placebo_reward
from crlbench.train.stream import Prompt, PromptStream, make_batch
from crlbench.types import PromptBatch, Rollout
from tests.support.checkpoints import ascii_tokenizer, random_model
from tests.support.environments import LENIENT, countdown_start
from tests.train.loop import fit, make, weights
from tests.train.rank import NEAR, distance, together

ENDS = (130, *range(64, 128))
VERIFY = replayed(LENIENT)
STARTS = [
    Prompt(f"t/train/{i}", (129, *f"{2 + i}\n".encode()), countdown_start(2 + i, str(i)))
    for i in range(9)
]


def scorer(texts: Any, answers: Any) -> Any:
    return score(VERIFY, texts, answers, "countdown")


def collector(history: str = "restate", **more: Any) -> Play:
    tokenizer = ascii_tokenizer()
    environment = replace(LENIENT, history=history)
    seats = Table(
        environment,
        Dialogue(tokenizer, "terse", ENDS),
        DecodeLoop(tokenizer, 1.0, 6, ends=ENDS, pad=128),
        context=256,
        name="countdown",
    )
    return Play(seats, **{"auditor": scorer, **more})


def policy(valued: bool = False) -> Policy:
    return Policy(random_model(), value_head=valued, reference=None)


def module_of(history: str, recipe: str = "ppo", **more: Any) -> PolicyOptimization:
    module = make(recipe=recipe, **more)
    module.collector = collector(history)
    return module


# -- A1: one turn is a completion ----------------------------------------------------------------

SHORT = {
    "budget.prompts": "4",
    "budget.completions": "4",
    "budget.grid": "3",
    "budget.iterations_per_point": "1",
    "evaluation.curve_items": "8",
    "evaluation.end_items": "8",
    "evaluation.end_draws": "2",
    "evaluation.retain": "[]",
    "hardware.precision": "fp32",
}


FILES = ("digests.jsonl", "curve.csv", "samples.jsonl.zst")


class Wrapped:
    """A single-turn task, played as an environment of one turn."""

    def __init__(self, task: Task, play: Play) -> None:
        self.task, self.play = task, play
        self.pad, self.max_tokens = play.pad, play.max_tokens

    def started(self, batch: PromptBatch) -> PromptBatch:
        rows = {f"{self.task.name}/{split}/{row['id']}": row for split in self.task.card.splits
                for row in self.task.rows(split)}  # fmt: skip
        return replace(batch, answers=[start_of(rows[uid]) for uid in batch.uids])

    def collect(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Collected:
        found = self.play.collect(policy, self.started(batch), key)
        assert found.tally is not None and found.tally.turns == found.tally.episodes
        # Nor has it figures of episodes.
        return replace(found, tally=None)

    def examine(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Examination:
        # Such a task stores no episodes: its completion is the one turn's text.
        return replace(self.play.examine(policy, self.started(batch), key), episodes=None)

    def audit(self, rollout: Rollout, batch: PromptBatch) -> Tensor | None:
        return self.play.audit(rollout, self.started(batch))


def wrap(task: Task, reader: Any, conditions: Any, device: str) -> Wrapped:
    plain = answers_of(task, reader, conditions, device)
    verify = replayed(as_environment(task.audit))

    def audit(texts: Any, answers: Any) -> Any:
        return score(verify, texts, answers, task.name)

    seats = Table(
        as_environment(task.verify),
        Dialogue(reader.tokenizer, reader.frame, reader.ends, reader.thinking),
        plain.sampler,
        reader.context,
    )
    return Wrapped(task, Play(seats, audit, plain.evaluation, plain.scale, plain.kind))


def run(board: Board, folder: Path, recipe: str) -> dict[str, Any]:
    conditions = override(board.conditions, SHORT)
    control = control_leaves(board.track, conditions, {})
    short = replace(board, conditions=conditions, control=control, division="open")
    named = NamedRecipe(recipe, to_config(recipes.load(recipe)))
    contender = Contender("tiny-llama", "tiny-llama", "0a1b2c3d", "e" * 64)
    quiet = Execution(loggers=())
    declared = Declaration(short, contender, named, ("addition",), ("real",), 1, folder, quiet)
    cell = declared.plan().cells[0].model_copy(update={"entry_sha256": None, "control": {}})
    record = run_cell(cell, lambda event: None, lambda: False)
    assert record.status.state == "completed"
    place = Path(cell.folder)
    return {
        "items": store.read_npz(place / "items.npz"),
        "health": record.health,
        **{name: (place / name).read_bytes() for name in FILES},
        "policy": next(place.glob("policy*")).read_bytes(),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "recipe", ["ppo", *(pytest.param(one, marks=pytest.mark.full) for one in ("grpo", "dapo"))]
)
def test_a_task_as_an_environment_is_the_task(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str
) -> None:
    """Prompts, ids, rewards, losses and weights of three iterations, and every evaluation."""
    usual = run(board, tmp_path / "usual", recipe)
    monkeypatch.setitem(subject.COLLECTORS, "single-turn", wrap)
    found = run(board, tmp_path / "played", recipe)
    assert len(usual["digests.jsonl"].splitlines()) == 3
    for name in (*FILES, "policy", "health"):
        assert found[name] == usual[name], name
    assert found["items"].keys() == usual["items"].keys()
    for name, scores in usual["items"].items():
        assert np.array_equal(found["items"][name], scores), name


# -- rewards -------------------------------------------------------------------------------------


def collected(history: str, **more: Any) -> Collected:
    batch = make_batch(STARTS[:3], 128, completions=4, iteration=2)
    return collector(history, **more).collect(policy(), batch, DrawKey(3, "rollout", 2))


@pytest.mark.parametrize("history", ["restate", "append"])
def test_an_outcome_is_paid_once_at_the_end_of_a_trajectory(history: str) -> None:
    got = collected(history, scale=2.0)
    rollout, reward = got.rollout.stated(), got.reward
    assert rollout.trajectory is not None and rollout.episodes == 12
    assert 0 < reward.score.mean() < 1
    for number in rollout.trajectory.unique():
        rows = (rollout.trajectory == number).nonzero()[:, 0]
        assert torch.equal(rows, torch.arange(int(rows[0]), int(rows[-1]) + 1))
        paid, scores = reward.outcome[rows], reward.score[rows]
        assert scores.unique().numel() == 1
        assert paid.tolist() == [0.0] * (len(rows) - 1) + [2.0 * float(scores[0])]
    assert got.audit is not None and torch.equal(got.audit, reward.score)


@pytest.mark.parametrize("history", ["restate", "append"])
def test_a_turn_is_paid_at_its_last_token(history: str) -> None:
    got = collected(history, kind="process", scale=0.5)
    rollout, reward = got.rollout.stated(), got.reward
    assert reward.steps is not None and reward.token_ends is not None
    placed = place_steps(reward.steps, reward.token_ends, rollout.action_mask).float()
    last = rollout.action_mask.long().cumsum(1).argmax(1)
    placed[torch.arange(len(last)), last] += reward.outcome
    batch = make_batch(STARTS[:3], 128, completions=4, iteration=2)
    key = DrawKey(3, "rollout", 2)
    plan = visits(batch.uids, batch.answers, 4, key, trains=True)
    episodes = play(policy(), collector(history).table, plan, key, "cpu")
    assert rollout.episode is not None and rollout.turn is not None
    seen = 0
    for number, episode in enumerate(episodes):
        rows = rollout.episode == number
        for turn in episode.spoken:
            tokens = rows[:, None] & (rollout.turn == turn.turn)
            values = placed[tokens].tolist()
            earned = episode.position.turns[turn.turn].paid[0]
            assert values == [0.0] * (len(values) - 1) + [0.5 * earned]
            seen += earned > 0
    assert seen > 6
    assert float(placed.sum()) == pytest.approx(float(reward.paid.sum()))
    sums = reward.of_trajectories[reward.is_last]
    assert sums.tolist() == [
        pytest.approx(0.5 * sum(t.paid[0] for t in e.position.turns)) for e in episodes
    ]


@pytest.mark.parametrize("kind", ["outcome", "process"])
def test_the_placebo_pays_episodes_and_its_mean_is_theirs(kind: Any) -> None:
    got = collected("restate", kind=kind)
    prompts = [Prompt(f"u/{i}", STARTS[i % 3].ids, "") for i in range(300)]
    batch = make_batch(prompts, 128, completions=4, iteration=1)
    rows = Reward.concatenate([got.reward] * 100, got.rollout.completion_ids.shape[1])
    many = Rollout.concatenate([got.rollout] * 100)
    blind = placebo_reward(rows, batch, 5, 1.0, kind, many.episode)
    last = rows.is_last
    assert not blind.outcome[~last].any() and torch.equal(blind.is_last, last)
    paid = rows.score if kind == "outcome" else rows.of_trajectories
    mean = min(float(paid[last].mean()), 1.0)
    assert abs(float(blind.outcome[last].mean()) - mean) < 0.05


def test_figures_count_an_episode_once() -> None:
    """An episode of three rows weighs as much as one of one row."""
    got = collected("restate")
    rollout, reward = got.rollout.stated(), got.reward
    figures = RolloutMetrics().of(rollout, reward, None, None, torch.zeros(0), got.audit)
    last = reward.is_last
    assert int(last.sum()) == 12 < len(rollout.texts)
    assert figures["score"] == pytest.approx(float(reward.score[last].mean()))
    assert figures["score"] != pytest.approx(float(reward.score.mean()))
    assert figures["audit"] == figures["score"] == figures["reward"]
    assert figures["length"] == pytest.approx(float(rollout.action_mask.sum()) / 12)
    assert figures["tokens"] == float(rollout.action_mask.sum())


@pytest.mark.parametrize("history", ["restate", "append"])
@pytest.mark.parametrize("kind", ["outcome", "process"])
def test_two_ranks_collect_what_one_process_does(history: str, kind: Any) -> None:
    """Every field of the rows, what they earn and what is audited; log-probabilities but for the
    rounding of narrower batches, as in tasks of a single turn."""
    starts = [*STARTS[:4], STARTS[8]]  # the views of one rank are wider
    batch, key = make_batch(starts, 128, completions=4, iteration=2), DrawKey(3, "rollout", 2)
    plays = collector(history, kind=kind)
    whole = plays.collect(policy(), batch, key)
    parts = [plays.collect(policy(), batch.part(Ranks(r, 2).share(5)), key) for r in (0, 1)]
    joined = Collected.joined(parts, plays.pad)
    for found, expected in ((joined.rollout, whole.rollout), (joined.reward, whole.reward)):
        for field in fields(expected):
            left, right = getattr(found, field.name), getattr(expected, field.name)
            if field.name == "behavior_logprobs":
                assert torch.allclose(left, right, atol=1e-6)
                continue
            if field.name == "token_ends" and right is not None:  # padding has no meaning
                left, right = (
                    place_steps(one.reward.steps, one.reward.token_ends, one.rollout.action_mask)
                    for one in (joined, whole)
                )
                assert bool(right.any())
            same = torch.equal(left, right) if isinstance(right, Tensor) else left == right
            assert same, field.name
    assert joined.audit is not None and torch.equal(joined.audit, whole.audit)


# -- evaluation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("history", ["restate", "append"])
def test_an_evaluation_scores_transcripts_that_verify(history: str) -> None:
    request = Request(collector(history), STARTS, DrawKey(4, "end"), draws=3, audited=True)
    (result,) = score_requests(policy(), [request])
    assert result.scores.shape == (3, 9) and 0 < result.scores.mean() < 1
    assert result.audit is not None and np.array_equal(result.audit, result.scores)
    answers = [start.answer for start in STARTS]
    again = [one.outcome for one in scorer(result.texts, answers)]
    assert again == result.scores[0].tolist()
    assert result.episodes is not None and len(result.episodes) == 9
    for text, turns in zip(result.texts, result.episodes, strict=True):
        assert json.loads(text) == [value for value, _ in turns]
        assert read_transcript(text) is not None and all(count > 0 for _, count in turns)
    (greedy,) = score_requests(policy(), [replace(request, key=DrawKey(None, "end"))])
    assert np.array_equal(greedy.scores[0], greedy.scores[2])


# -- training ------------------------------------------------------------------------------------


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.train.loop.PROMPTS", STARTS)


@pytest.mark.slow
@pytest.mark.parametrize("history", ["restate", "append"])
def test_runs_count_episodes_and_resume_in_the_middle(
    started: None, tmp_path: Path, history: str
) -> None:
    whole = module_of(history)
    recorder = fit(whole, tmp_path / "whole")
    assert recorder.totals["completions"] == 8 * 16
    parts = module_of(history)
    with pytest.raises(RunStopped):
        fit(parts, tmp_path / "parts", stop=lambda: parts.iterations_done == 3)
    again = module_of(history)
    resumed = fit(again, tmp_path / "parts", resume=True)
    assert resumed.digests == recorder.digests and resumed.curve == recorder.curve
    for name, weight in weights(whole).items():
        assert torch.equal(weight, weights(again)[name]), name


def train_with(ranks: Ranks, history: str, folder: Path) -> dict[str, Any]:
    """Train on episodes; the learned weights and what was recorded."""
    module = module_of(history, ranks=ranks)
    budget = module.conditions.budget
    stream = PromptStream(
        STARTS,
        seed=module.seed,
        per_iteration=budget.prompts,
        completions=budget.completions,
        iterations=3,
        pad=128,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.train.loop.PROMPTS", STARTS)
        recorder = fit(module, folder, stream=stream)
    learned = {name: weight.clone() for name, weight in module.learned().items()}
    return {"weights": learned} | recorder.state_dict()


def train_as_rank(rank: int, strategy: str, histories: tuple[str, ...], folder: Path) -> None:
    """One of two processes; what it found goes into ``folder/<history>-<rank>.pt``."""
    ranks = join_ranks("cpu", 1, strategy)
    for history in histories:
        found = train_with(ranks, history, folder / history)
        torch.save(found, folder / f"{history}-{rank}.pt")
    leave()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "histories"),
    [
        ("ddp", ("restate", "append")),
        pytest.param("fsdp", ("append",), marks=pytest.mark.full),
    ],
)
def test_two_processes_train_on_episodes_as_one(
    tmp_path: Path, strategy: str, histories: tuple[str, ...]
) -> None:
    """Both ranks hold the same weights to the last bit; those of one process but for rounding.
    Tokens, rewards and digests are those of one process."""
    together(train_as_rank, 2, strategy, histories, tmp_path)
    for history in histories:
        one = train_with(ALONE, history, tmp_path / f"{history}-alone")
        first, second = (
            torch.load(tmp_path / f"{history}-{rank}.pt", weights_only=False) for rank in (0, 1)
        )
        assert one["totals"] == first["totals"] == second["totals"]
        assert first["digests"] == second["digests"]
        for ours, theirs in zip(one["digests"], first["digests"], strict=True):
            assert all(ours[n] == theirs[n] for n in ("prompts", "completions", "rewards"))
        assert distance(first["weights"], second["weights"]) == 0.0
        assert distance(one["weights"], first["weights"]) < NEAR[strategy]


@pytest.mark.parametrize("recipe", recipes.names_of(Recipe))
def test_observations_teach_nothing(
    started: None, recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What log-probabilities are claimed for observation tokens has no influence on an update."""

    def learned(spoil: Callable[[Rollout], Rollout]) -> dict[str, Tensor]:
        module = module_of("append", recipe)
        module.configure_model()
        batch = make_batch(STARTS[:4], 128, completions=4)
        got = module.collector.collect(module.learning, batch, DrawKey(3, "rollout", 0))
        assert bool((got.rollout.completion_mask & ~got.rollout.action_mask).any())
        sampled = module.keep(replace(got, rollout=spoil(got.rollout)), 0)
        assert sampled is not None
        experience, _ = module.prepare(sampled)
        kept = experience.rollout  # all rows, unless the recipe samples some groups again
        assert not experience.advantages[~kept.action_mask].any()
        assert bool((kept.completion_mask & ~kept.action_mask).any())
        rows = torch.arange(len(experience.keep))
        objective = module.surrogate(experience.rows(rows))
        losses, _ = objective.losses(rows)
        torch.stack(list(losses.values())).sum().backward()
        return {n: p.grad.clone() for n, p in module.trainable().items() if p.grad is not None}

    def garbage(rollout: Rollout) -> Rollout:
        told = rollout.completion_mask & ~rollout.action_mask
        return replace(rollout, behavior_logprobs=rollout.behavior_logprobs.masked_fill(told, -1e4))

    clean, spoiled = learned(lambda rollout: rollout), learned(garbage)
    assert clean.keys() == spoiled.keys() and any(g.abs().sum() > 0 for g in clean.values())
    for name, gradient in clean.items():
        assert torch.equal(gradient, spoiled[name]), name


PATHS = ("shared prompts", "whole rows, checkpointed", "fast plan")


@pytest.mark.parametrize("recipe", recipes.names_of(Recipe))
@pytest.mark.parametrize("path", PATHS)
def test_no_path_gives_an_observation_a_gradient(
    started: None, recipe: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that a pass finds at tokens that were told, or at padding, is in the loss."""
    found: list[tuple[Tensor, Any]] = []
    run = Passes.with_graph

    def watched(passes: Passes, rollout: Rollout) -> Any:
        outputs = run(passes, rollout)
        for tensor in (outputs.logprobs, outputs.entropy, outputs.values):
            if tensor is not None and tensor.requires_grad:
                tensor.retain_grad()
        found.append((rollout.action_mask, outputs))
        return outputs

    monkeypatch.setattr(Passes, "with_graph", watched)
    if path == "whole rows, checkpointed":
        monkeypatch.setattr("crlbench.train.passes.budget_of", lambda *_: 1)
    module = module_of("append", recipe, fast=path == "fast plan")
    module.configure_model()
    assert module.policy.fused is (path == "fast plan")
    batch = make_batch(STARTS[:4], 128, completions=4)
    got = module.collector.collect(module.learning, batch, DrawKey(3, "rollout", 0))
    sampled = module.keep(got, 0)
    assert sampled is not None
    experience, _ = module.prepare(sampled)
    surrogate = module.surrogate(experience)
    for rows, _ in surrogate.parts():
        losses, _ = surrogate.losses(rows)
        torch.stack(list(losses.values())).sum().backward()
    assert len(found) > 1 or path != "whole rows, checkpointed"
    told = trained = 0.0
    for acted, outputs in found:
        for tensor in (outputs.logprobs, outputs.entropy, outputs.values):
            if tensor is None or tensor.grad is None:
                continue
            assert not tensor.grad[~acted].any()
            told += float((~acted).sum())
            trained += float(tensor.grad[acted].abs().sum())
    assert told > 0 and trained > 0


@pytest.mark.parametrize("history", ["restate", "append"])
@pytest.mark.parametrize("recipe", ["ppo", "step-ppo"])
def test_a_fast_update_of_episodes_is_a_plain_one(history: str, recipe: str) -> None:
    """Rows that begin alike are run once; losses and gradients are those of the plain plan."""
    found = []
    for fast in (False, True):
        module = module_of(history, recipe, fast=fast)
        module.configure_model()
        batch = make_batch(STARTS[:4], 128, completions=4)
        got = collector(history).collect(policy(valued=True), batch, DrawKey(3, "r", 0))
        assert got.rollout.prompt is not None
        sampled = module.keep(got, 0)
        assert sampled is not None
        experience, _ = module.prepare(sampled)
        surrogate = module.surrogate(experience)
        ((rows, _),) = surrogate.parts()
        losses, _ = surrogate.losses(rows)
        total = torch.stack(list(losses.values())).sum()
        total.backward()
        weights = module.trainable()
        found.append((total, {n: p.grad for n, p in weights.items() if p.grad is not None}))
    (loss, expected), (other, gradients) = found
    assert torch.allclose(loss, other, rtol=1e-5, atol=1e-7)
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    assert largest > 0 and expected.keys() == gradients.keys()
    for name, gradient in expected.items():
        assert torch.allclose(gradients[name], gradient, rtol=1e-4, atol=1e-5 * largest), name
