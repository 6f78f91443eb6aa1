"""What the stages of a chain will be charged, before any of them runs.

What a stage reads is known: prompts, gold answers, the lines of a person's own file. What it will
sample is not: the start model answers some of its prompts, and all others are taken to be answered
as these were. So are the pairs that come of them. The last stage is counted while two of its
iterations are timed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import cycle, islice
from typing import NamedTuple

from crlbench.algo.chain import GOLD, START, Stage
from crlbench.catalog.frozen import Task
from crlbench.contract.charges import Charges, Group, forward_flops
from crlbench.contract.conditions import Conditions
from crlbench.contract.events import StageForecast
from crlbench.contract.ledger import Ledger
from crlbench.contract.records import Cell
from crlbench.policy.decode.loop import DrawKey
from crlbench.run.cost import DECODED
from crlbench.run.subject import Subject, make_sampler
from crlbench.stages.chain import Workshop
from crlbench.stages.collect import Completion, Question, sample
from crlbench.stages.distill import plan_of
from crlbench.stages.fit_reward import token_pairs
from crlbench.stages.jury import Jury, pairing_of
from crlbench.stages.reward import reward_training
from crlbench.stages.stand_in import PURPOSE, workshop
from crlbench.stages.supervised import conditions_of
from crlbench.suite.labels import Ask, Gold
from crlbench.suite.pairs import HELD_OUT, SPLITS, Pair, held_out
from crlbench.train.charging import Meter
from crlbench.train.reward_modeling import RewardTraining

PROBES = 32
"""Prompts that the start model answers."""
TIMED = 2
"""Iterations of the last stage that are timed (:func:`crlbench.run.execute.calibrate`)."""
Row = tuple[int, ...]


class Forecast(NamedTuple):
    """What a stage will be charged, and how long it will take."""

    charges: Charges
    effort: float
    """FLOPs of its passes, those of decoding weighted by what they take longer."""
    evaluations: int
    """How often it is scored on the items of the curve."""


@dataclass
class Forecaster:
    """Foresees the stages of one run before the last one."""

    shop: Workshop
    pairs: dict[str, list[tuple[Row, Row]]] = field(default_factory=dict)
    """Pairs that stages are taken to leave, as rows of tokens."""
    copied: dict[str, list[Pair]] = field(default_factory=dict)
    """Pairs of a person's own file that stages will leave."""

    def stages(self) -> Iterator[tuple[str, Forecast]]:
        """Each stage by its name, in order."""
        for stage in self.shop.chain.upstream:
            meter, evaluations = {
                "supervised": self._supervised,
                "collect": self._collect,
                "reward": self._reward,
                "choose": self._choose,
                "distill": self._distill,
            }[stage.kind](stage)
            ledger = meter.ledger()
            yield stage.name, Forecast(ledger.total, effort_of(ledger), evaluations)

    def last(self, measured: Meter, iterations: int) -> Forecast:
        """The last stage.

        Args:
            measured: what some iterations were charged; a reward model that pays is not in it.
            iterations: how many these were.
        """
        shop, stage = self.shop, self.shop.chain.last
        budget = shop.conditions.budget
        paid = dict(stage.inputs).get("reward", GOLD)
        meter = measured
        if paid != GOLD:
            meter = shop.meters.of_last()
            meter.totals = measured.totals
            some = list(islice(cycle(shop.questions[1]), budget.prompts))
            for _ in range(iterations):
                meter.score(self._rows(some, budget.completions))
        ledger = meter.ledger()
        share = budget.iterations / iterations
        charges = {name: round(share * amount) for name, amount in ledger.total}
        charges["demonstrations"] = ledger.total.demonstrations  # shown once
        return Forecast(Charges(**charges), share * effort_of(ledger), 0)

    @cached_property
    def probes(self) -> tuple[list[Question], list[list[Completion]]]:
        """Some prompts, and what the start model answers to each."""
        shop = self.shop
        some = shop.questions[1][:PROBES]
        sampler = make_sampler(shop.task, shop.subject.reader, shop.conditions)
        key, each = DrawKey(shop.seed, PURPOSE), shop.preference.per_prompt
        return some, sample(shop.policy(START), sampler, some, each, key, shop.cell.device)

    def _answered(
        self, questions: Sequence[Question], each: int
    ) -> list[tuple[Question, list[Completion]]]:
        """Prompts with ``each`` completions, which are those of the probes again and again."""
        answers = cycle(self.probes[1])
        return [(one, list(islice(cycle(next(answers)), each))) for one in questions]

    def _rows(self, questions: Sequence[Question], each: int) -> list[Row]:
        """The same as a reward model reads them."""
        return [
            (*one.prompt.ids, *answer.tokens)
            for one, answers in self._answered(questions, each)
            for answer in answers
        ]

    def _sample(self, meter: Meter, each: int) -> list[Group]:
        """Charge ``each`` completions of every prompt."""
        answered = self._answered(self.shop.questions[1], each)
        groups = [
            Group(len(one.prompt.ids), tuple(len(answer.tokens) for answer in answers))
            for one, answers in answered
        ]
        meter.sample_groups(groups, [a.text for _, answers in answered for a in answers])
        return groups

    def _supervised(self, stage: Stage) -> tuple[Meter, int]:
        meter, lessons = self.shop.meters.of(), self.shop.shown.lessons
        budget = conditions_of(stage, self.shop.conditions, len(lessons)).budget
        read = islice(cycle(lessons), budget.iterations * budget.prompts)
        meter.train_groups(
            [Group(len(one.ids), (len(one.answers[one.preferred].ids),)) for one in read]
        )
        meter.update(budget.iterations)
        meter.show(len(lessons))
        return meter, budget.grid + 1

    def _collect(self, stage: Stage) -> tuple[Meter, int]:
        shop, meter = self.shop, self.shop.meters.of()
        if shop.copies(stage):
            lessons = shop.own_lessons.lessons
            self.pairs[stage.name] = [
                ((*one.ids, *one.answers[0].ids), (*one.ids, *one.answers[1].ids))
                for one in lessons
            ]
            self.copied[stage.name] = shop.copied().pairs
            meter.judge(len(lessons))
            return meter, 0
        each = shop.preference.per_prompt
        self._sample(meter, each)
        meter.judge(each * len(shop.questions[1]))
        self.pairs[stage.name] = self._paired(stage)
        return meter, 0

    def _paired(self, stage: Stage) -> list[tuple[Row, Row]]:
        """Pairs of all prompts: each gives those that the verifier makes of a probe's answers."""
        shop, each = self.shop, self.shop.preference.per_prompt
        asks = [
            Ask(one.prompt.uid, index, answer.text, one.prompt.answer)
            for one, answers in zip(*self.probes, strict=True)
            for index, answer in enumerate(answers)
        ]
        jury = Jury(Gold(shop.gold), pairing_of(stage.setting("pairing")), shop.seed)
        by_probe: list[list[tuple[int, int]]] = [[] for _ in self.probes[0]]
        for pair in jury.judge(asks, each).pairs:
            by_probe[pair.better // each].append((pair.better % each, pair.worse % each))
        places = cycle(range(len(by_probe)))
        return [
            (self._row(one, place, better), self._row(one, place, worse))
            for one, place in zip(shop.questions[1], places, strict=False)
            for better, worse in by_probe[place]
        ]

    def _row(self, question: Question, place: int, number: int) -> Row:
        """A prompt with an answer of a probe."""
        return (*question.prompt.ids, *self.probes[1][place][number].tokens)

    def _reward(self, stage: Stage) -> tuple[Meter, int]:
        meter = self.shop.meters.of_reward(stage.name)
        config = reward_training(stage.settings, self.shop.seed)
        fitted, held = self._parted(stage, config)
        batches = config.epochs * -(-len(fitted) // config.batch)
        updates = -(-batches // config.accumulate)
        meter.fit([row for pair in fitted for row in pair], epochs=config.epochs, updates=updates)
        for part in (fitted, held):
            meter.score([row for pair in part for row in pair])
        return meter, 0

    def _parted(
        self, stage: Stage, config: RewardTraining
    ) -> tuple[Sequence[tuple[Row, Row]], Sequence[tuple[Row, Row]]]:
        """Pairs that a reward model is fitted to, and those that are held out: those of a person's
        own file are known, of others one in so many is."""
        data = stage.reads("data")
        if data not in self.copied:
            pairs = self.pairs[data]
            count = len(pairs) - len(pairs) // HELD_OUT
            return pairs[:count], pairs[count:]
        reader = self.shop.meters.base(stage.name).reader
        parts = held_out(self.copied[data], config.seed)
        fitted, held = (token_pairs(parts[n], reader, config.max_tokens) for n in SPLITS)
        return fitted, held

    def _choose(self, stage: Stage) -> tuple[Meter, int]:
        meter, each = self.shop.meters.of(stage.reads("reward")), self.shop.preference.per_prompt
        self._sample(meter, each)
        meter.score(self._rows(self.shop.questions[1], each))
        return meter, 0

    def _distill(self, stage: Stage) -> tuple[Meter, int]:
        meter = self.shop.meters.of_distilling(stage)
        conditions = plan_of(dict(stage.settings), stage.name, self.shop.conditions)
        budget, steps = conditions.budget, conditions.optimization
        for _ in range(budget.grid):
            groups = self._sample(meter, budget.completions)
            for _ in range(steps.epochs):
                meter.read_groups(groups, "teacher")
                meter.train_groups(groups)
        meter.update(budget.iterations * steps.epochs * min(steps.minibatches, budget.prompts))
        return meter, budget.grid + 1


def foresee_stages(
    cell: Cell, subject: Subject, task: Task, measured: Meter
) -> dict[str, StageForecast]:
    """What each stage of a cell's chain will be charged, by name in order.

    Args:
        measured: what two iterations of the last stage were charged.
    """
    shop = workshop(cell, Conditions.model_validate(cell.conditions), subject, task)
    assert shop is not None  # what is no chain has no meter
    one = Forecaster(shop)
    found = {**dict(one.stages()), shop.chain.last.name: one.last(measured, TIMED)}
    return {
        name: StageForecast(
            charges=stage.charges.model_dump(), effort=stage.effort, evaluations=stage.evaluations
        )
        for name, stage in found.items()
    }


def effort_of(ledger: Ledger) -> float:
    """FLOPs of all passes; those that decode, one token after another, weigh more."""
    last, models = ledger.end or ledger.points[-1], ledger.coefficients
    decoding = sum(
        forward_flops(work.sampled.work, models[role], values=work.sampled.values)
        for role, work in last.models.items()
    )
    return ledger.total.flops + (DECODED - 1) * decoding
