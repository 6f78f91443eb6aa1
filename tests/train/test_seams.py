"""Another objective and another collector, each in sixty lines, beside the code as it stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from crlbench.catalog.find import Catalog
from crlbench.contract.conditions import Conditions
from crlbench.policy.decode.loop import DecodeLoop, DrawKey
from crlbench.policy.policy import Policy
from crlbench.policy.weights.load import build_policy
from crlbench.reward.score import Score
from crlbench.run.subject import collector_of, load_subject, training_prompts
from crlbench.train.buffer import Sampled
from crlbench.train.callbacks import LastCheckpoint, RunStopped, StopOnRequest
from crlbench.train.collect import Answers, Collected, Collector
from crlbench.train.evaluation import score_requests
from crlbench.train.learner import Group, Learner
from crlbench.train.passes import Passes
from crlbench.train.requests import Examination, Request
from crlbench.train.stream import PromptStream, make_batch
from crlbench.train.trainer import build_trainer, quiet
from crlbench.types import PromptBatch, Rollout, joined
from tests.train.loop import PROMPTS, assert_same, conditions, fit, make, weights

# -- supervised learning of right answers --------------------------------------------------------


class Likelihood:
    """Minus the mean log-probability of given tokens."""

    def __init__(self, rows: Rollout, passes: Passes) -> None:
        self.rows, self.passes = rows, passes
        self.tokens = int(rows.action_mask.sum())

    def parts(self) -> list[tuple[Tensor, bool]]:
        return self.passes.micro_batches(self.rows, torch.arange(len(self.rows.texts)))

    def losses(self, rows: Tensor) -> tuple[dict[str, Tensor], float]:
        part = self.rows.rows(rows)
        logprobs = self.passes.with_graph(part).logprobs
        loss = -logprobs[part.action_mask].sum() / self.tokens
        return {"likelihood": loss}, float(loss.detach())

    def figures(self, shown: Sequence[float]) -> dict[str, float]:
        return {"loss": sum(shown)}


class Supervised(Learner):
    """Learns the answers of its prompts by heart."""

    def __init__(self, tokenizer: Any, end: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.tokenizer, self.end = tokenizer, end
        self.losses: list[float] = []

    def training_step(self, batch: PromptBatch, _: int) -> None:
        self.set_learning_rate(batch.iteration)
        step = self.step(Likelihood(self.rows(batch), self.passes))
        self.losses.append(step["loss"])
        self.iterations_done = batch.iteration + 1

    def rows(self, batch: PromptBatch) -> Rollout:
        texts = [str(answer) for answer in batch.answers]
        ids = [[*self.tokenizer(t, add_special_tokens=False)["input_ids"], self.end] for t in texts]
        tokens = torch.nn.utils.rnn.pad_sequence([torch.tensor(i) for i in ids], True, self.end)
        mask = torch.arange(tokens.shape[1]) < torch.tensor([[len(i)] for i in ids])
        return Rollout(
            batch.prompt_ids, batch.prompt_mask, tokens, mask, mask, torch.zeros(mask.shape),
            torch.arange(len(texts)), mask.any(1), texts,
        )  # fmt: skip


def supervised(
    c: Conditions, kind: type[Supervised] = Supervised
) -> tuple[Supervised, PromptStream]:
    """The learner on a bundled model, and its stream of sums."""
    subject, task = load_subject("tiny-llama", ()), Catalog().load_task("addition")
    collector = collector_of(task, subject.reader, c, "cpu")
    build = partial(
        build_policy, subject.card, subject.backbone, value_head=False, reference=False, seed=3
    )
    (end, *_) = subject.reader.ends
    module = kind(
        subject.reader.tokenizer, end, build=build, collector=collector, conditions=c, seed=3
    )
    prompts = training_prompts(task, subject.reader, collector.max_tokens, (1,), 64)[:8]
    stream = PromptStream(
        prompts, seed=3, per_iteration=8, completions=1, iterations=c.budget.iterations,
        pad=collector.pad,
    )  # fmt: skip
    return module, stream


def train(made: tuple[Learner, PromptStream], folder: Path, stop: Callable[[], bool]) -> None:
    """As a run does, from the checkpoint where there is one."""
    module, stream = made
    path = folder / "last.ckpt"
    keeper = LastCheckpoint(path)
    with quiet():
        trainer = build_trainer(
            module.conditions, device="cpu", callbacks=[keeper, StopOnRequest(stop, keeper)],
            loggers=[], folder=folder,
        )  # fmt: skip
        trainer.fit(module, stream, ckpt_path=path if path.exists() else None)


@pytest.mark.slow
def test_another_objective_learns_and_continues_to_the_same_bits(tmp_path: Path) -> None:
    c = conditions(
        budget__prompts="8", budget__grid="1", budget__iterations_per_point="24",
        optimization__learning_rate="3e-4",
    )  # fmt: skip
    whole, parts = supervised(c), (supervised(c), supervised(c))
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
    train(whole, tmp_path / "whole", lambda: False)
    assert whole[0].losses[-1] < 0.5 * whole[0].losses[0]
    with pytest.raises(RunStopped):
        train(parts[0], tmp_path / "cut", lambda: parts[0][0].iterations_done == 9)
    train(parts[1], tmp_path / "cut", lambda: False)
    assert parts[0][0].losses + parts[1][0].losses == whole[0].losses
    assert_same(weights(parts[1][0]), weights(whole[0]))


# -- two critics beside the policy, and a target that follows the first --------------------------


class Criticised(Likelihood):
    """Beside the likelihood, two critics that are drawn to one above a target."""

    def __init__(self, rows: Rollout, passes: Passes, critics: nn.ModuleList, target: nn.Linear):
        super().__init__(rows, passes)
        self.critics, self.target = critics, target

    def losses(self, rows: Tensor) -> tuple[dict[str, Tensor], float]:
        losses, shown = super().losses(rows)
        share = len(rows) / len(self.rows.texts)
        aim = self.target(torch.ones(1)).detach() + 1
        for number, critic in enumerate(self.critics):
            losses[f"critic {number}"] = share * (critic(torch.ones(1)) - aim).square().sum()
        return losses, shown


class TwoCritics(Supervised):
    """Weights of three rates in one step, and frozen ones that a checkpoint has to keep."""

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self.critics = nn.ModuleList(nn.Linear(1, 1) for _ in range(2))
        self.target = nn.Linear(1, 1).requires_grad_(False)
        for number, p in enumerate([*self.critics.parameters(), *self.target.parameters()]):
            nn.init.constant_(p, 0.1 * number)

    def groups(self) -> list[Group]:
        critics = {f"critics.{name}": p for name, p in self.critics.named_parameters()}
        return [*super().groups(), Group(critics, 0.05)]

    def training_step(self, batch: PromptBatch, _: int) -> None:
        self.set_learning_rate(batch.iteration)
        rows = self.rows(batch)
        self.step(Criticised(rows, self.passes, self.critics, self.target))
        for mine, first in zip(
            self.target.parameters(), self.critics[0].parameters(), strict=True
        ):
            mine.lerp_(first.detach(), 0.1)
        self.iterations_done = batch.iteration + 1


@pytest.mark.slow
def test_further_networks_are_stepped_watched_and_stored(tmp_path: Path) -> None:
    c = conditions(budget__prompts="8", budget__grid="1", budget__iterations_per_point="6")
    whole, parts = supervised(c, TwoCritics), [supervised(c, TwoCritics) for _ in range(2)]
    before = {n: p.clone() for n, p in whole[0].critics.named_parameters()}
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
    train(whole, tmp_path / "whole", lambda: False)
    with pytest.raises(RunStopped):
        train(parts[0], tmp_path / "cut", lambda: parts[0][0].iterations_done == 3)
    train(parts[1], tmp_path / "cut", lambda: False)
    done, again = whole[0], parts[1][0]
    assert all(not torch.equal(p, before[n]) for n, p in done.critics.named_parameters())
    for network in ("critics", "target"):
        assert_same(getattr(again, network).state_dict(), getattr(done, network).state_dict())
    assert "critics.0.weight" in done.learned() and not any("target" in n for n in done.learned())
    assert done.weights_finite()
    with torch.no_grad():
        done.critics[1].weight.fill_(float("nan"))
    assert not done.weights_finite()


# -- two turns, with a text between them that nobody chose ---------------------------------------


@dataclass(frozen=True)
class TwoTurns:
    """Every prompt is answered, told the same sentence, and answered again; the last one counts."""

    answers: Answers
    between: tuple[int, ...]

    @property
    def pad(self) -> int:
        return self.answers.pad

    @property
    def max_tokens(self) -> int:
        return 2 * self.answers.max_tokens

    def collect(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Collected:
        first = self.answers.sampler.sample(policy, batch, key)
        told = self.told(batch, first)
        later = replace(key, purpose=f"{key.purpose}/second")
        second = self.answers.sampler.sample(policy, told, later)
        return Collected(self.joined(first, second), self.answers.reward(second, told))

    def examine(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Examination:
        found = self.collect(policy, batch, key)
        return Examination(found.rollout, found.reward.score)

    def audit(self, rollout: Rollout, batch: PromptBatch) -> Tensor | None:
        return self.answers.audit(rollout, batch)

    def told(self, batch: PromptBatch, first: Rollout) -> PromptBatch:
        """One prompt for each row: what was read and said, and the sentence."""
        rows = zip(first.prompt_ids, first.prompt_mask, first.completion_ids,
                   first.completion_mask, strict=True)  # fmt: skip
        ids = [torch.cat([p[pm], c[cm], torch.tensor(self.between)]) for p, pm, c, cm in rows]
        width = max(map(len, ids))
        padded = [torch.nn.functional.pad(i, (width - len(i), 0), value=self.pad) for i in ids]
        mask = torch.arange(width) >= torch.tensor([[width - len(i)] for i in ids])
        groups = first.group.tolist()
        return replace(
            batch, prompt_ids=torch.stack(padded), prompt_mask=mask, completions_per_prompt=1,
            uids=[f"{batch.uids[g]}/{i}" for i, g in enumerate(groups)],
            answers=[batch.answers[g] for g in groups],
        )  # fmt: skip

    def joined(self, first: Rollout, second: Rollout) -> Rollout:
        """The rows of both turns as one completion each; the sentence is no action."""
        real = list(zip(first.completion_mask, second.completion_mask, strict=True))

        def both(name: str, middle: Tensor) -> list[Tensor]:
            turns = zip(getattr(first, name), getattr(second, name), real, strict=True)
            return [torch.cat([a[am], middle, b[bm]])[None] for a, b, (am, bm) in turns]

        sentence = torch.tensor(self.between)
        ids = both("completion_ids", sentence)
        return replace(
            first,
            completion_ids=joined(ids, pad=self.pad),
            completion_mask=joined([torch.ones_like(i, dtype=torch.bool) for i in ids]),
            action_mask=joined(both("action_mask", torch.zeros_like(sentence).bool())),
            behavior_logprobs=joined(both("behavior_logprobs", torch.zeros(len(sentence)))),
            finished=second.finished,
            texts=second.texts,
        )


def odd(texts: Sequence[str], answers: Sequence[Any]) -> list[Score]:
    return [Score(sum(text.encode()) % 5 / 4) for text in texts]


def even(texts: Sequence[str], answers: Sequence[Any]) -> list[Score]:
    return [Score(float(len(text) % 2 == 0)) for text in texts]


def two_turns(recipe: str = "grpo") -> Any:
    module = make(conditions(budget__grid="2"), recipe=recipe, score=odd)
    module.collector = TwoTurns(module.collector, between=tuple(b"\nagain:"))
    collector: Collector = module.collector
    assert collector.max_tokens == 8
    return module


@pytest.mark.slow
def test_another_collector_trains_and_continues_to_the_same_bits(tmp_path: Path) -> None:
    whole, first, second = two_turns(), two_turns(), two_turns()
    expected = fit(whole, tmp_path / "whole")
    # Decoding and the pass over both turns agree: what was sampled is what is trained.
    assert all(h["behavior_gap"] < 1e-5 for h in expected.health)
    assert all(h["update_norm"] > 0 for h in expected.health)
    with pytest.raises(RunStopped):
        fit(first, tmp_path / "cut", stop=lambda: first.iterations_done == 2)
    found = fit(second, tmp_path / "cut", resume=True)
    assert found.health == expected.health and found.digests == expected.digests
    assert_same(weights(second), weights(whole))


def test_what_an_environment_said_is_read_and_not_learned(tmp_path: Path) -> None:
    module = two_turns()
    recorder = fit(module, tmp_path)
    rollout = module.last_iteration.rollout
    told = rollout.completion_mask & ~rollout.action_mask
    assert told.sum(1).tolist() == [len("\nagain:")] * len(rollout.texts)
    assert recorder.health[-1]["tokens"] == int(rollout.action_mask.sum())
    assert module.last_iteration.trained_tokens == int(rollout.action_mask.sum())
    # The log-probs of told tokens are not even computed.
    logprobs, _ = module.passes.of_learner(rollout)
    assert (logprobs[told] == 0).all() and (logprobs[rollout.action_mask] < 0).all()


def test_two_turns_are_examined_through_the_requests_of_any_evaluation(tmp_path: Path) -> None:
    module = two_turns()
    fit(module, tmp_path)
    turns = module.collector = replace(
        module.collector, answers=replace(module.collector.answers, auditor=even)
    )
    policy, key = module.learning, DrawKey(module.seed, "end")
    other = DrawKey(None, "end")
    requests: list[Request[Collector]] = [
        Request(turns.answers, PROMPTS, key, draws=3),
        Request(turns, PROMPTS, key, draws=3, audited=True),
        Request(turns, PROMPTS[:5], other),
        Request(turns.answers, PROMPTS, other),
    ]
    found = score_requests(policy, requests)
    assert [r.scores.shape for r in found] == [(3, 9), (3, 9), (1, 5), (1, 9)]
    assert [r.audit is None for r in found] == [True, False, True, True]
    examined = turns.examine(policy, make_batch(PROMPTS, turns.pad, completions=3), key)
    assert np.array_equal(found[1].scores, examined.scores.view(9, 3).T)
    assert found[1].texts == examined.rollout.texts[::3]
    audits = [score.outcome for score in even(examined.rollout.texts, [None] * 27)]
    assert found[1].audit is not None and found[1].audit.T.ravel().tolist() == audits
    # What is answered once is decoded as it is without the others.
    for one in (0, 3):
        (alone,) = score_requests(policy, [requests[one]])
        assert np.array_equal(found[one].scores, alone.scores) and found[one].texts == alone.texts
    assert not np.array_equal(found[0].scores, found[1].scores)


def test_a_rollout_of_two_trajectories_stays_apart_when_joined() -> None:
    batch = make_batch(PROMPTS[:2], 128, completions=2)
    module = make()
    module.configure_model()
    sampler: DecodeLoop = module.collector.sampler
    rollout = sampler.sample(module.policy, batch, DrawKey(1, "t"))
    numbers = torch.tensor([0, 0, 1, 1])
    turn = torch.where(rollout.action_mask, 0, -1).to(torch.int16)
    rollout = replace(
        rollout, prompt=numbers, trajectory=numbers, episode=numbers, seat=numbers, turn=turn
    )
    wide = replace(
        rollout, **{
            name: torch.nn.functional.pad(getattr(rollout, name), (0, 2))
            for name in ("completion_ids", "completion_mask", "action_mask", "behavior_logprobs")
        }, turn=torch.nn.functional.pad(turn, (0, 2), value=-1), behavior_values=None,
    )  # fmt: skip
    both = Rollout.concatenate([replace(rollout, behavior_values=None), wide], 128)
    for name in ("group", "prompt", "trajectory", "episode"):
        assert getattr(both, name).tolist() == [0, 0, 1, 1, 2, 2, 3, 3], name
    assert both.seat is not None and both.seat.tolist() == [0, 0, 1, 1] * 2
    assert both.turn is not None and (both.turn[:4, -2:] == -1).all()
    assert both.prompts is both.prompt


def test_a_rollout_of_single_turns_beside_one_of_several_keeps_what_it_means() -> None:
    module = make()
    module.configure_model()
    batch = make_batch(PROMPTS[:2], 128, completions=2)
    plain = module.collector.sampler.sample(module.policy, batch, DrawKey(1, "t"))
    views = replace(plain, prompt=torch.tensor([0, 1, 2, 2]), episode=torch.tensor([0, 0, 1, 1]))
    both = Rollout.concatenate([plain, views], 128)
    assert both.prompt is not None and both.episode is not None and both.turn is not None
    assert both.prompt.tolist() == [0, 0, 1, 1, 2, 3, 4, 4]
    assert both.episode.tolist() == [0, 1, 2, 3, 4, 4, 5, 5]
    assert both.trajectory is not None and both.trajectory.tolist() == [*range(8)]
    assert torch.equal(both.turn == 0, both.action_mask)
    assert (plain.episodes, views.episodes, both.episodes) == (4, 2, 6)
    again = Rollout.concatenate([plain, plain], 128)
    assert again.prompt is again.episode is again.turn is None and again.episodes == 8


def test_what_only_some_parts_have_is_not_joined() -> None:
    module = make(score=odd)
    module.configure_model()
    batch = make_batch(PROMPTS[:2], 128, completions=2)
    rollout = module.collector.sampler.sample(module.policy, batch, DrawKey(1, "t"))
    bare = replace(rollout, behavior_values=None)
    assert rollout.behavior_values is not None
    with pytest.raises(ValueError, match="Rollout.behavior_values: 1 of 3 parts"):
        Rollout.concatenate([bare, rollout, bare])
    both = Rollout.concatenate([rollout, rollout])
    assert both.behavior_values is not None
    assert torch.equal(both.behavior_values, rollout.behavior_values.repeat(2, 1))
    assert Rollout.concatenate([bare, bare]).behavior_values is None

    reward = module.collector.reward(bare, batch)
    plain, audited = Collected(bare, reward), Collected(bare, reward, reward.score)
    with pytest.raises(ValueError, match="Collected.audit: 1 of 2 parts"):
        Collected.joined([plain, audited], 128)
    joined_audit = Collected.joined([audited, audited], 128).audit
    assert joined_audit is not None and torch.equal(joined_audit, reward.score.repeat(2))

    logprobs = bare.behavior_logprobs
    sampled = Sampled(bare, reward, logprobs, ref=logprobs, start=logprobs, values=logprobs)
    with pytest.raises(ValueError, match="Sampled.values: 1 of 2 parts"):
        Sampled.concatenate([sampled, replace(sampled, values=None)])
    with pytest.raises(ValueError, match="Sampled.final_values: 1 of 2 parts"):
        Sampled.concatenate([sampled, replace(sampled, final_values=reward.score)])
    # The start model is watched only where an interval of the grid ends.
    assert Sampled.concatenate([sampled, replace(sampled, start=None)]).start is None
    with pytest.raises(ValueError, match="Sampled.ref: 1 of 2 parts"):
        Sampled.concatenate([sampled, replace(sampled, ref=None)])
    together = Sampled.concatenate([sampled, sampled])
    assert together.values is not None
    for found in (together.ref, together.start):
        assert found is not None and torch.equal(found, logprobs.repeat(2, 1))


class Fickle:
    """Its second verifier says nothing of the first batch."""

    def __init__(self, answers: Any) -> None:
        self.answers, self.pad, self.max_tokens = answers, answers.pad, answers.max_tokens
        self.collect, self.examine = answers.collect, answers.examine
        self.batches = 0

    def audit(self, rollout: Rollout, batch: PromptBatch) -> Tensor | None:
        self.batches += 1
        return None if self.batches == 1 else self.answers.audit(rollout, batch)


def test_an_audit_of_some_items_is_none_of_a_split() -> None:
    module = make(score=odd, audit=even)
    module.configure_model()
    request = Request(Fickle(module.collector), PROMPTS, DrawKey(1, "end"), draws=60, audited=True)
    with pytest.raises(ValueError, match="SplitResult.audit: . of . parts"):
        score_requests(module.learning, [request])


class Views:
    """Each completion is an episode of two rows, which a budget pays once."""

    def __init__(self, answers: Any) -> None:
        self.answers, self.pad, self.max_tokens = answers, answers.pad, answers.max_tokens
        self.examine = answers.examine

    def collect(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Collected:
        found = self.answers.collect(policy, batch, key)
        count = len(found.rollout.texts)
        rows = torch.arange(count).repeat_interleave(2)
        rollout = replace(found.rollout.rows(rows), episode=rows, trajectory=rows)
        return Collected(rollout, found.reward.rows(rows))


def test_a_placebo_pays_the_rows_of_an_episode_alike(tmp_path: Path) -> None:
    """By the draws that the same completions have as rows of their own."""
    paid = []
    for name in ("answers", "views"):
        module: Any = make(conditions(budget__grid="1"), recipe="grpo", score=odd, arm="placebo")
        if name == "views":
            module.collector = Views(module.collector)
        fit(module, tmp_path / name)
        paid.append(module.iteration.reward.outcome)
    assert torch.equal(paid[0].repeat_interleave(2), paid[1])
    assert 0 < paid[0].sum() < len(paid[0])


@pytest.mark.slow
def test_the_budget_counts_episodes_and_not_rows(tmp_path: Path) -> None:
    totals = []
    for name in ("answers", "views"):
        module: Any = make(conditions(budget__grid="2"), recipe="grpo", score=odd)
        if name == "views":
            module.collector = Views(module.collector)
        recorder = fit(module, tmp_path / name)
        totals.append(recorder.totals)
        assert [point["x"] for point in recorder.curve] == [0, 32, 64]
    assert totals[0]["completions"] == totals[1]["completions"] == 64
    assert totals[1]["tokens"] > totals[0]["tokens"]


def test_what_does_not_fit_together_is_refused_when_it_is_made() -> None:
    module = make()
    module.configure_model()
    batch = make_batch(PROMPTS[:2], 128, completions=2)
    rollout = module.collector.sampler.sample(module.policy, batch, DrawKey(1, "t"))
    wrong: dict[str, tuple[Any, str]] = {
        "behavior_logprobs": (rollout.behavior_logprobs[:, :-1], "expected \\(B, T\\)"),
        "completion_mask": (rollout.completion_mask.float(), "torch.bool"),
        "group": (rollout.group[:, None], "expected \\(B\\)"),
        "turn": (torch.zeros(rollout.action_mask.shape), "torch.int16"),
        "turn ": (torch.zeros(rollout.action_mask.shape, dtype=torch.int16), "0 or more in"),
        " turn": (torch.full(rollout.action_mask.shape, -1, dtype=torch.int16), "0 or more in"),
        "state": (torch.zeros_like(rollout.completion_ids), "-1 outside action_mask"),
        "texts": (["one"], "1 texts of 4 rows"),
        "action_mask": (torch.ones_like(rollout.action_mask), "completion_mask has not"),
        "completion_ids": (rollout.completion_ids[0], "expected \\(B, T\\)"),
    }
    short = replace(rollout, completion_mask=rollout.completion_mask & (torch.arange(4) < 1),
                    action_mask=rollout.action_mask & (torch.arange(4) < 1))  # fmt: skip
    for name, (value, words) in wrong.items():
        with pytest.raises(ValueError, match=words):
            replace(short, **{name.strip(): value})
