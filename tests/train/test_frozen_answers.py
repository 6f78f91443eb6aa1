"""Learning from frozen answers: by closed forms, by the start, by resuming and by ranks."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from crlbench.algo.pairs.loss import Dpo
from crlbench.algo.pairs.recipe import PairRecipe
from crlbench.contract.dynamics import FROZEN_STATS, PAIR_STATS
from crlbench.contract.records import RunRecord
from crlbench.train import passes as passes_file
from crlbench.train.callbacks import RunStopped
from crlbench.train.frozen import StartModel
from crlbench.train.lessons import LessonStream, as_rollout, blind
from crlbench.train.passes import divide
from crlbench.train.preference import KEPT, Known, PairObjective
from crlbench.verdict.alarms import alarms
from tests.support.checkpoints import random_model
from tests.train.frozen_loop import DEMONSTRATIONS, END, PAIRS, make, stream_of, train
from tests.train.loop import assert_same, conditions, watch_steps, weights
from tests.train.rank import NEAR_FROZEN, frozen_trace, together, train_frozen

ITERATIONS = 8


def plain_sums(policy, lessons):
    """(lessons, answers) log-probabilities of whole answers, one row at a time."""
    sums = []
    for lesson in lessons:
        rows = []
        for one in lesson.answers:
            ids = torch.tensor([[*lesson.ids, *one.ids]])
            with torch.no_grad():
                logits = policy.model(input_ids=ids).logits[0].double()
            steps = torch.log_softmax(logits, -1)[len(lesson.ids) - 1 : -1]
            rows.append(float(sum(row[i] for row, i in zip(steps, one.ids, strict=True))))
        sums.append(rows)
    return torch.tensor(sums)


# -- lessons ---------------------------------------------------------------------------------


def test_rows_are_the_answers_of_each_lesson_in_order():
    rollout = as_rollout(PAIRS[:6], 128)
    assert rollout.group.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    for row, one in enumerate(a for lesson in PAIRS[:6] for a in lesson.answers):
        ids = rollout.completion_ids[row][rollout.completion_mask[row]].tolist()
        assert ids == [*one.ids] and rollout.texts[row] == one.text
        assert bool(rollout.finished[row]) == one.finished == (ids.count(END) == 1)
    for row, lesson in enumerate(PAIRS[:6]):
        prompt = rollout.prompt_ids[2 * row][rollout.prompt_mask[2 * row]].tolist()
        assert prompt == [*lesson.ids]


def test_the_order_is_keyed_and_a_pass_meets_every_lesson_once():
    stream = LessonStream(PAIRS, 7, "pairs", 6, 9, 128)
    batches = [*stream]
    first_pass = [uid for batch in batches[:3] for uid in batch.uids]
    assert len(batches) == 9 and len({*first_pass}) == 18
    again = LessonStream(PAIRS, 7, "pairs", 6, 9, 128)
    again.load_state_dict({"position": 4})
    assert [batch.uids for batch in again] == [batch.uids for batch in batches[4:]]
    other = LessonStream(PAIRS, 8, "pairs", 6, 9, 128)
    assert [b.uids for b in other] != [b.uids for b in batches]


def test_a_placebo_prefers_by_a_coin_and_moves_no_row():
    coins = [blind([lesson], seed)[0].preferred for lesson in PAIRS for seed in range(40)]
    assert 0.4 < sum(coins) / len(coins) < 0.6  # 760 coins: two standard deviations are .036
    assert blind(PAIRS, 5) == blind(PAIRS, 5) != blind(PAIRS, 6)
    module = make()
    real, placebo = (next(iter(stream_of(module, arm))) for arm in ("real", "placebo"))
    assert torch.equal(real.rollout.completion_ids, placebo.rollout.completion_ids)
    assert real.uids == placebo.uids and not torch.equal(real.preferred, placebo.preferred)
    assert placebo.preferred.reshape(-1, 2).sum(1).tolist() == [1] * len(placebo.uids)


# -- pairs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", ["dpo", "ipo", "robust-dpo", "rpo", "dpo+reference=ema"])
def test_the_first_loss_is_that_of_the_start_and_the_next_is_another(tmp_path, recipe):
    c = conditions(
        optimization__minibatches="1", budget__grid="2", budget__iterations_per_point="1"
    )
    module = make(recipe, c=c)
    recorder = train(module, tmp_path)
    first, second = recorder.health
    if "dpo" in recipe and "robust" not in recipe:
        assert first["loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert abs(first["margin"]) < 1e-5 and first["pair_accuracy"] == pytest.approx(0.5, abs=0.5)
    assert first["kept_mass"] == pytest.approx(1.0, abs=1e-5)
    assert abs(second["loss"] - first["loss"]) > 1e-4 and second["margin"] > 1e-3
    assert [*first] == ["iteration", *PAIR_STATS]


@pytest.mark.parametrize("lora", [False, True])
def test_a_step_is_that_of_whole_rows_one_by_one(tmp_path, lora):
    """Loss, log-probabilities and the mass against plain passes of transformers."""
    c = conditions(
        optimization__minibatches="1", budget__grid="1", budget__iterations_per_point="3",
    )  # fmt: skip
    module, seen = make(c=c, lora=lora), []

    def look(objective):
        batch = stream_of(module).batch(module.iterations_done)
        lessons = [next(one for one in PAIRS if one.uid == uid) for uid in batch.uids]
        seen.append(plain_sums(module.policy, lessons))

    def start_sums(iteration):
        lessons = [
            next(one for one in PAIRS if one.uid == uid)
            for uid in stream_of(module).batch(iteration).uids
        ]
        if not lora:
            return plain_sums(SimpleNamespace(model=module.policy.reference), lessons)
        with module.policy.model.disable_adapter():
            return plain_sums(module.policy, lessons)

    watch_steps(module, before=look)
    recorder = train(module, tmp_path)
    for iteration, (row, new) in enumerate(zip(recorder.health, seen, strict=True)):
        old = start_sums(iteration)
        h = 0.1 * ((new - old)[:, 0] - (new - old)[:, 1])
        expected = {
            "loss": -torch.nn.functional.logsigmoid(h).mean(),
            "margin": h.mean(),
            "chosen_logp": new[:, 0].mean(),
            "rejected_logp": new[:, 1].mean(),
            KEPT: (new.logsumexp(1) - old.logsumexp(1)).mean().exp(),
        }
        for name, value in expected.items():
            assert row[name] == pytest.approx(float(value), rel=1e-4, abs=2e-5), name


@pytest.mark.slow
def test_pairs_are_never_divided_and_small_passes_change_nothing(tmp_path, monkeypatch):
    rollout = as_rollout(PAIRS, 128)
    parts = divide(rollout, torch.arange(38), 20, whole_prompts=True)
    assert len(parts) > 5 and sorted(i for p in parts for i in p.tolist()) == [*range(38)]
    assert all(len({i // 2 for i in p.tolist()}) * 2 == len(p) for p in parts)
    whole, small = make(), make()
    one = train(whole, tmp_path / "whole")
    monkeypatch.setattr(passes_file, "budget_of", lambda *_: 3)
    two = train(small, tmp_path / "small")
    for a, b in zip(one.health, two.health, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)
    for name, weight in weights(whole).items():
        assert torch.linalg.norm(weight - weights(small)[name]) < 1e-3 * torch.linalg.norm(weight)


@pytest.mark.slow
def test_learned_pairs_are_told_apart(tmp_path):
    c = conditions(budget__grid="12")
    recorder = train(make(c=c), tmp_path)
    last = recorder.health[-1]
    assert last["pair_accuracy"] == 1.0 and last["margin"] > 0.1 and last["loss"] < 0.62


# -- the reference ---------------------------------------------------------------------------


def test_the_start_stays_what_it_was(tmp_path):
    """After training, the reference says of the pairs what the untrained model says, to the bit."""
    module = make()
    rollout = as_rollout(PAIRS, 128)
    module.configure_model()
    before = StartModel().logprobs(module.passes, rollout)
    train(module, tmp_path)
    assert torch.equal(module.reference.policy.logprobs(module.passes, rollout), before)
    now = module.passes.of_learner(rollout)[0]
    assert not torch.allclose(now[rollout.action_mask], before[rollout.action_mask], atol=1e-3)


def test_given_weights_are_where_a_run_begins_and_what_it_is_measured_against(tmp_path):
    tuned = make("sft")
    train(tuned, tmp_path / "sft")
    start = {name: tensor.clone() for name, tensor in tuned.learned().items()}
    c = conditions(
        optimization__minibatches="1", budget__grid="1", budget__iterations_per_point="1"
    )
    module = make(c=c, start=start)
    module.configure_model()
    assert_same(weights(module), start)
    (first,) = train(module, tmp_path / "dpo").health
    assert first["loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert first["reference_kl"] == pytest.approx(0.0, abs=1e-6)
    other = make(c=c, start=start, reference=make_weights(seed=9))
    (apart,) = train(other, tmp_path / "apart").health
    assert abs(apart["loss"] - math.log(2)) > 1e-3


def make_weights(seed):
    module = make(model=lambda: random_model(seed=seed))
    module.configure_model()
    return module.learned()


@pytest.mark.slow
def test_a_round_takes_the_policy_and_an_average_follows_it(tmp_path):
    """Against weights that are copied, or averaged, by hand after every step."""
    rounds, averaged = make("dpo+reference=round:rounds=2"), make("dpo+reference=ema:decay=0.9")
    states, found = {}, {}
    for module in (rounds, averaged):
        after = states[module] = []
        watch_steps(module, after=lambda _, m=module, s=after: s.append(weights(m)))
        start = {name: w.clone() for name, w in make_weights(seed=0).items()}
        train(module, tmp_path / module.recipe.name.replace("+", "-"))
        found[module] = module.reference.policy.weights
        assert len(after) == ITERATIONS * 2
        if module is averaged:
            expected = start
            for step in after:
                expected = {n: 0.9 * expected[n] + 0.1 * step[n] for n in expected}
        else:
            expected = after[ITERATIONS - 1]  # two steps an iteration, and half of the iterations
        for name, weight in expected.items():
            torch.testing.assert_close(found[module][name], weight, rtol=1e-5, atol=1e-7)


def test_epochs_ask_the_reference_once_and_keep_the_order(tmp_path, monkeypatch):
    asked, orders = [], []
    plain = StartModel.logprobs

    def counted(self, passes, rollout):
        asked.append(len(rollout.texts))
        return plain(self, passes, rollout)

    c = conditions(optimization__epochs="3", budget__grid="1", budget__iterations_per_point="1")
    module = make(c=c)
    monkeypatch.setattr(StartModel, "logprobs", counted)
    monkeypatch.setattr(type(module), "watch", lambda self, examination: {})
    watch_steps(module, before=lambda objective: orders.append(objective.rows.tolist()))
    train(module, tmp_path)
    rows = c.budget.rows
    assert sum(asked) == rows and len(orders) == 6
    assert all(
        sorted(a + b) == [*range(rows)] for a, b in zip(orders[::2], orders[1::2], strict=True)
    )
    again, seen = make(c=c), []  # nothing that was stored moves the order
    monkeypatch.setattr(
        PairObjective, "frozen", lambda self, part, places: (torch.zeros(len(places)),) * 2
    )
    watch_steps(again, before=lambda objective: seen.append(objective.rows.tolist()))
    train(again, tmp_path / "again")
    assert seen == orders


# -- demonstrations --------------------------------------------------------------------------


def test_supervised_tuning_minimises_the_likelihood_of_tokens(tmp_path):
    c = conditions(
        optimization__minibatches="1", budget__grid="6", budget__iterations_per_point="1"
    )
    module, seen = make("sft", c=c), []

    def look(objective):
        batch = stream_of(module).batch(module.iterations_done)
        lessons = [next(one for one in DEMONSTRATIONS if one.uid == uid) for uid in batch.uids]
        tokens = sum(len(one.answers[0].ids) for one in lessons)
        seen.append(-float(plain_sums(module.policy, lessons).sum()) / tokens)

    watch_steps(module, before=look)
    recorder = train(module, tmp_path)
    for row, expected in zip(recorder.health, seen, strict=True):
        assert row["loss"] == pytest.approx(expected, rel=1e-5)
    assert recorder.health[-1]["loss"] < recorder.health[0]["loss"] - 0.1
    assert [*recorder.health[0]] == ["iteration", *FROZEN_STATS]
    assert recorder.totals["completions"] == 6 * c.budget.rows == recorder.totals["prompts"]


# -- what all share --------------------------------------------------------------------------


def test_figures_of_completions_are_those_of_the_evaluation_before(tmp_path):
    module = make()
    recorder = train(module, tmp_path)
    every = module.conditions.budget.iterations_per_point
    for place, row in enumerate(recorder.health):
        evaluated = place % every == 0
        for name in ("score", "entropy", "reference_kl", "truncated", "length"):
            assert (row[name] is not None) == evaluated
        if evaluated:
            assert row["score"] == pytest.approx(recorder.curve[place // every]["score"])
    assert recorder.health[0]["reference_kl"] == pytest.approx(0.0, abs=1e-6)
    assert recorder.health[-every]["reference_kl"] > 1e-4


RESUMED = ["dpo", "sft", "dpo+reference=round:rounds=3", "dpo+reference=ema:decay=0.9"]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RESUMED)
def test_a_run_that_is_stopped_in_every_iteration_ends_with_the_same_bytes(tmp_path, recipe):
    straight = make(recipe)
    expected = train(straight, tmp_path / "straight").state_dict()
    for stopped_at in range(1, ITERATIONS):
        module = make(recipe)
        with suppress(RunStopped):
            train(
                module,
                tmp_path / "run",
                resume=stopped_at > 1,
                stop=lambda m=module, last=stopped_at: m.iterations_done >= last,
            )
        assert module.iterations_done == stopped_at
    resumed = make(recipe)
    found = train(resumed, tmp_path / "run", resume=True).state_dict()
    assert_same(weights(straight), weights(resumed))
    for name in ("health", "curve", "counts", "digests", "totals"):
        assert found[name] == expected[name], name
    if "reference=" in recipe:
        assert_same(straight.reference.policy.weights, resumed.reference.policy.weights)


@pytest.mark.slow
@pytest.mark.parametrize(
    "recipe",
    [
        "dpo",
        pytest.param("sft", marks=pytest.mark.full),
        pytest.param("dpo+reference=ema:decay=0.9", marks=pytest.mark.full),
    ],
)
def test_two_ranks_are_one(tmp_path, recipe):
    expected = frozen_trace(recipe, tmp_path / "alone")
    together(train_frozen, 2, recipe, tmp_path)
    for rank in (0, 1):
        found = torch.load(tmp_path / f"rank-{rank}.pt", weights_only=False)
        assert len(found["weights"]) == len(expected["weights"])
        for ours, theirs in zip(found["weights"], expected["weights"], strict=True):
            gap = math.sqrt(sum(float((ours[n] - theirs[n]).square().sum()) for n in theirs))
            size = math.sqrt(sum(float(w.square().sum()) for w in theirs.values()))
            assert gap <= NEAR_FROZEN * size
        for ours, theirs in zip(found["health"], expected["health"], strict=True):
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
        assert [p["items"] for p in found["curve"]] == [p["items"] for p in expected["curve"]]


# -- the planted failure ---------------------------------------------------------------------


class Toy:
    """One prompt with three answers of one token; logits are a start and weights of features."""

    START = torch.tensor([0.46, 0.46, 0.08], dtype=torch.float64).log()

    def __init__(self, features):
        self.features = torch.tensor(features, dtype=torch.float64)
        self.theta = torch.zeros(self.features.shape[1], dtype=torch.float64, requires_grad=True)

    def micro_batches(self, rollout, rows, whole_prompts):
        return [(rows, True)]

    def with_graph(self, rollout):
        policy = torch.log_softmax(self.START + self.features @ self.theta, 0)
        return SimpleNamespace(logprobs=policy[rollout.completion_ids])

    def logprobs(self, passes, rollout):
        return torch.log_softmax(self.START, 0)[rollout.completion_ids]


def descend(features, steps=400):
    """The health of gradient descent on one pair of the answers 0 and 1; answer 2 is in none."""
    toy = Toy(features)
    rollout = as_rollout(
        [replace(PAIRS[0], answers=tuple(replace(PAIRS[0].answers[0], ids=(i,)) for i in (0, 1)))],
        0,
    )
    recipe = PairRecipe("toy", Dpo(beta=0.1))
    columns = {name: [] for name in ("iteration", "margin", "pair_accuracy", KEPT)}
    for step in range(steps + 1):
        sides, places = torch.tensor([True, False]), torch.arange(2)
        known = Known(*(torch.full((2,), math.nan, dtype=torch.float64) for _ in range(2)))
        objective = PairObjective(rollout, sides, places, toy, recipe, toy, toy, known)
        losses, shown = objective.losses(places)
        figures = objective.figures([shown])
        figures[KEPT] = math.exp(figures[KEPT])
        for name in columns:
            columns[name].append(step if name == "iteration" else figures[name])
        (gradient,) = torch.autograd.grad(losses["pairs"], toy.theta)
        with torch.no_grad():
            toy.theta -= gradient
    return columns, torch.softmax(toy.START + toy.features @ toy.theta.detach(), 0)


def alarms_of(health):
    record = RunRecord.model_construct(health=health, counts={})
    return {alarm.figure: alarm for alarm in alarms(record)}


def test_mass_that_moves_to_an_answer_nobody_compared_raises_the_alarm():
    """A feature that both the preferred answer and an unseen one have (Xu et al. 2024)."""
    health, policy = descend([[1.0], [0.0], [2.0]])
    alarm = alarms_of(health)[KEPT]
    assert alarm.iteration <= 60 and alarm.value < 0.5
    assert health["pair_accuracy"][1:] == [1.0] * 400
    assert health["margin"] == sorted(health["margin"]) and health["margin"][-1] > 1.0
    assert policy[2] > 0.99 and health[KEPT][-1] < 0.01


def test_the_same_pair_does_no_harm_to_free_logits():
    health, policy = descend([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]])
    assert KEPT not in alarms_of(health)
    assert min(health[KEPT]) > 0.95 and policy[2] < 0.08
