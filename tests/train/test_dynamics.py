"""What is recorded about an iteration, against computations by hand."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from crlbench.algo.clip import PpoClip
from crlbench.algo.recipes import load
from crlbench.catalog.find import Catalog
from crlbench.contract.conditions import override
from crlbench.contract.dynamics import UPDATE_STATS
from crlbench.reward.score import Score
from crlbench.run.record import clipped_tokens, health_columns
from crlbench.run.subject import evaluation_sampler, load_subject, make_sampler
from crlbench.train.buffer import Sampled
from crlbench.train.callbacks import RunRecorder
from crlbench.train.metrics import RolloutMetrics, repetition
from crlbench.train.reward import Reward
from crlbench.types import Rollout
from tests.support.checkpoints import ascii_tokenizer
from tests.train.loop import TRACK, conditions, fit, make, watch_steps

CLIP = PpoClip(low=0.02, high=0.03)


def half(texts, answers):
    """Pays for about every second completion of an untrained model."""
    return [Score(float(ord(text[:1] or "0") % 2)) for text in texts]


class Watched:
    """Weights around every update, and the tokens that it holds back, found one by one."""

    def __init__(self, module) -> None:
        self.module = module
        self.steps: list[torch.Tensor] = []
        self.low, self.high = Counter(), Counter()

        watch_steps(module, before=self.begin, after=self.end)

    def begin(self, surrogate) -> None:
        self.count(surrogate.minibatch)
        self.before = self.flat()

    def end(self, done) -> None:
        self.steps.append(self.flat() - self.before)

    def flat(self) -> torch.Tensor:
        weights = self.module.policy.trainable().values()
        return torch.cat([w.detach().double().flatten() for w in weights])

    @torch.no_grad()
    def count(self, minibatch) -> None:
        rollout = minibatch.rollout
        new = self.module.policy(*self.module.passes.inputs(rollout)).logprobs
        ratio = (new - minibatch.old_logprobs).exp()
        for row, column in rollout.action_mask.nonzero().tolist():
            token = int(rollout.completion_ids[row, column])
            advantage, r = float(minibatch.advantages[row, column]), float(ratio[row, column])
            self.low[token] += advantage < 0 and r < 1 - CLIP.low
            self.high[token] += advantage > 0 and r > 1 + CLIP.high


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run with narrow clip bounds, so that many tokens are clipped."""
    folder = tmp_path_factory.mktemp("run")
    module = make(conditions(budget__grid="2"), recipe=replace(load("ppo"), clip=CLIP), score=half)
    watched = Watched(module)
    recorder = fit(module, folder, loggers=("tensorboard",))
    return SimpleNamespace(recorder=recorder, watched=watched, folder=folder)


@pytest.mark.slow
def test_one_list_of_names_for_record_and_tensorboard(run):
    columns = health_columns(run.recorder.health)
    assert set(columns) == {"iteration", *UPDATE_STATS}
    assert columns["iteration"] == [1, 2, 3, 4]
    events = EventAccumulator(str(run.folder / "tb")).Reload()
    tags = {t.removeprefix("train/") for t in events.Tags()["scalars"] if t.startswith("train/")}
    known = {n for n, c in columns.items() if any(v is not None for v in c)} - {"iteration"}
    assert tags == known and len(known) > 35
    for name in known:
        logged = [event.value for event in events.Scalars(f"train/{name}")]
        assert logged == pytest.approx([v for v in columns[name] if v is not None], rel=1e-5)


def test_norm_and_angle_of_the_steps(run):
    steps = run.watched.steps
    norms = [float(step.norm()) for step in steps]
    cosines = [float(a @ b / (a.norm() * b.norm())) for a, b in zip(steps, steps[1:], strict=False)]
    health = run.recorder.health
    assert [h["update_norm"] for h in health] == pytest.approx(
        [(norms[i] + norms[i + 1]) / 2 for i in (0, 2, 4, 6)], rel=1e-5
    )
    expected = [cosines[0], *((cosines[i] + cosines[i + 1]) / 2 for i in (1, 3, 5))]
    assert [h["update_cosine"] for h in health] == pytest.approx(expected, abs=1e-5)


def test_clipped_tokens_are_counted_one_by_one(run):
    low, high = run.watched.low, run.watched.high
    assert run.recorder.clipped == {"low": dict(+low), "high": dict(+high)}
    assert low.total() > 5 and high.total() > 5
    subject = SimpleNamespace(reader=SimpleNamespace(tokenizer=ascii_tokenizer()))
    shown = clipped_tokens(run.recorder, subject)
    order = sorted(+low + high, key=lambda token: (-(low + high)[token], token))[:20]
    names = {128: "<pad>", 129: "<bos>", 130: "<eos>"}
    assert [t.text for t in shown] == [names.get(token, chr(token)) for token in order]
    assert [(t.low, t.high) for t in shown] == [(low[token], high[token]) for token in order]


def test_columns_keep_seven_digits_and_holes():
    rows = [{"iteration": 1, "loss": 0.123456789}, {"iteration": 2, "loss": None}]
    assert health_columns(rows) == {"iteration": [1, 2], "loss": [0.1234568, None]}
    assert health_columns([]) == {}


@pytest.mark.parametrize(
    ("text", "share"),
    [("", 0), ("aaaa", 0), ("aaaaa", 1 / 2), ("abcdabcd", 1 / 5), ("abcdefgh", 0), ("a" * 13, 0.9)],
)
def test_repetition_is_the_share_of_repeated_four_grams(text, share):
    ids = torch.tensor([[*text.encode(), *[97] * (16 - len(text))]])
    mask = torch.arange(16)[None] < len(text)
    assert repetition(ids, mask).tolist() == pytest.approx([share])


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("abcd..abcd", 1 / 2),
        ("ab..cdab..cd", 0),
        ("..aaaaa", 1 / 2),
        ("aaaaa.aaaa.a", 2 / 3),
        ("abc.d", 0),
    ],
)
def test_no_four_gram_reaches_across_what_an_environment_said(text, share):
    """A point is a token that nobody chose."""
    ids = torch.tensor([[*text.encode()]])
    assert repetition(ids, ids != ord(".")).tolist() == pytest.approx([share])


def rollout(texts, group, finished) -> Rollout:
    width = max(map(len, texts))
    ids = torch.tensor([[*t.encode(), *[128] * (width - len(t))] for t in texts])
    mask = ids != 128
    return Rollout(
        prompt_ids=torch.ones(len(texts), 1, dtype=torch.int64),
        prompt_mask=torch.ones(len(texts), 1, dtype=torch.bool),
        completion_ids=ids,
        completion_mask=mask,
        action_mask=mask,
        behavior_logprobs=torch.zeros(ids.shape),
        group=torch.tensor(group),
        finished=torch.tensor(finished),
        texts=list(texts),
    )


def test_figures_of_a_rollout_by_hand():
    sampled = rollout(["aaaaa", "b", "ab", "abc"], [0, 0, 1, 1], [False, True, True, False])
    score = torch.tensor([1.0, 0.0, 0.5, 0.5])
    reward = Reward(score, 2 * score, None, None)
    old = torch.full((4, 5), -0.25)
    kept = Sampled(sampled, reward, old, None, start=old - 0.5)
    audit = torch.tensor([1.0, 0.0, 0.0, 0.0])
    gap = torch.tensor([0.125, 0.375])
    figures = RolloutMetrics().of(sampled, reward, kept, None, gap, audit)
    assert figures == pytest.approx(
        {
            "reward": 1.0,
            "score": 0.5,
            "audit": 0.25,
            "length": 11 / 4,
            "length_right": 10 / 3,
            "length_wrong": 1.0,
            "truncated": 1 / 2,
            "truncated_right": 2 / 3,
            "truncated_wrong": 0.0,
            "repetition": 1 / 8,
            "repetition_right": 1 / 6,
            "repetition_wrong": 0.0,
            "group_variance": 1 / 8,
            "uniform_groups": 1 / 2,
            "behavior_gap": 0.25,
            "explained_variance": math.nan,
            "kept_fraction": 1.0,
            "reference_kl": 0.5,
            "reference_kl_k2": 0.125,
            "reference_kl_k3": math.exp(-0.5) + 0.5 - 1,
            "tokens": 11.0,
            "bytes": 11.0,
        },
        nan_ok=True,
    )


def test_figures_without_a_wrong_answer_have_no_value():
    sampled = rollout(["a", "b"], [0, 0], [True, True])
    # One third in float32 is not its own mean of two: the variance must be 0 all the same.
    reward = Reward(torch.full((2,), 1 / 3), torch.ones(2), None, None)
    figures = RolloutMetrics().of(sampled, reward, None, None, torch.zeros(0))
    assert math.isnan(figures["length_right"]) and figures["length_wrong"] == 1.0
    assert math.isnan(figures["behavior_gap"]) and math.isnan(figures["reference_kl"])
    assert figures["kept_fraction"] == 0.0
    assert math.isnan(figures["audit"])  # there is no second verifier
    assert figures["uniform_groups"] == 1.0 and figures["group_variance"] == 0.0


def test_figures_are_computed_on_the_host_wherever_the_learner_goes():
    learner = torch.nn.ModuleDict({"figures": RolloutMetrics(), "weights": torch.nn.Linear(1, 1)})
    learner.to("meta")
    assert learner["weights"].weight.is_meta
    assert all(metric.device.type == "cpu" for metric in learner["figures"].values())


def test_an_evaluation_decodes_at_temperature_one(tmp_path):
    subject, task = load_subject("tiny-llama", ()), Catalog(()).load_task("addition")
    warm = override(TRACK.conditions, {"sampling.temperature": "0.7"})
    assert make_sampler(task, subject.reader, warm).temperature == 0.7
    assert evaluation_sampler(task, subject.reader, warm).temperature == 1.0

    plain = make(conditions(budget__grid="1", budget__iterations_per_point="1"))
    one = fit(plain, tmp_path / "one")
    warm = make(
        conditions(budget__grid="1", budget__iterations_per_point="1", sampling__temperature="0.7"),
    )
    cool = plain.collector.sampler
    warm.collector = replace(
        warm.collector, sampler=replace(cool, temperature=0.7), evaluation=cool
    )
    other = fit(warm, tmp_path / "other")
    assert one.curve[0] == other.curve[0]
    assert one.digests[0]["completions"] != other.digests[0]["completions"]


def test_a_resumed_recorder_counts_on():
    first = RunRecorder(lambda event: None)
    first.clipped = {"low": {7: 2}, "high": {}}
    first.machine = {"cpu": "the first"}
    second = RunRecorder(lambda event: None, {"cpu": "the second"})
    second.load_state_dict(first.state_dict())
    assert second.clipped == first.clipped and second.machine == {"cpu": "the first"}
