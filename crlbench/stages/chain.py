"""What comes before the last stage of a chain: its products, found or made, in order.

Every stage reads products by digest and leaves one, so what a run begins from depends on its
chain, the conditions, the model and the seed alone. A stage that breaks a rule ends the chain: the
run has failed by the rule ``upstream`` and counts as any failed run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor, nn

from crlbench.algo.chain import DEMOS, GOLD, OWN, START, TEACHER, Chain, Stage
from crlbench.algo.pairs.pairing import Pairing
from crlbench.algo.pairs.recipe import PairRecipe
from crlbench.algo.recipe import from_config
from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.contract.conditions import PROTOCOL, Conditions, Preference
from crlbench.contract.events import Emit
from crlbench.contract.experience import OwnAnswers, own_answers, prompts_of, reads_file
from crlbench.contract.records import Cell, StageRecord
from crlbench.disk import switches
from crlbench.disk.names import POLICY_NAME
from crlbench.errors import ValidationError
from crlbench.policy.policy import Policy
from crlbench.policy.weights.load import build_policy, with_weights
from crlbench.policy.weights.reward_model import load_reward_model
from crlbench.run.learners import Inputs
from crlbench.run.lessons import Read
from crlbench.run.origin import Origin
from crlbench.run.own_lessons import read_copy
from crlbench.run.subject import Subject, make_sampler, scorer_of
from crlbench.seeding import seed_value
from crlbench.stages.artefacts import Made, Product, Store
from crlbench.stages.choose import choose, read_answers
from crlbench.stages.collect import (
    CollectSettings,
    Question,
    collect,
    draw_questions,
    training_questions,
)
from crlbench.stages.distill import make_distilled
from crlbench.stages.failure import StageFailed
from crlbench.stages.jury import Jury, pairing_of
from crlbench.stages.meters import Meters
from crlbench.stages.orders import ANSWERS, Order, order_of, permutes
from crlbench.stages.own_pairs import Copied, copy_pairs
from crlbench.stages.payers import asked, pair_by, pay_by
from crlbench.stages.reward import make_reward, reward_training
from crlbench.stages.supervised import demonstrations, make_supervised
from crlbench.suite.labels import Labeller, Score, read_labeller
from crlbench.suite.own_answers import read_own
from crlbench.suite.pairs import Pair, parse_pairs
from crlbench.train.charging import Meter
from crlbench.train.lessons import Answer, Lesson
from crlbench.train.reward import Scorer
from crlbench.train.stream import Prompt

PAIRS_NAME = "pairs.jsonl"
VERDICTS = "verdicts"
"""Folder below CRLBENCH_HOME that holds files of verdicts."""


def begin_chain(
    cell: Cell,
    conditions: Conditions,
    subject: Subject,
    task: Task,
    emit: Emit,
    should_stop: Callable[[], bool],
) -> Origin:
    """What the last stage of a cell's chain begins from.

    Raises:
        Interrupted: ``should_stop()`` turned true; finished stages are stored.
    """
    chain = from_config(cell.recipe_config)
    assert isinstance(chain, Chain)
    return Workshop(cell, chain, conditions, subject, task, should_stop).origin()


@dataclass
class Workshop:
    """What the stages of one run are made with."""

    cell: Cell
    chain: Chain
    conditions: Conditions
    subject: Subject
    task: Task
    should_stop: Callable[[], bool]
    products: dict[str, Product] = field(default_factory=dict)
    """Of the stages that are done, by name."""

    @property
    def seed(self) -> int:
        """The seed of the run, which all its stages draw by."""
        return seed_value(PROTOCOL, self.cell.task, self.cell.seed_index)

    @property
    def preference(self) -> Preference:
        """The conditions of chains."""
        assert self.conditions.preference is not None  # other tracks refuse chains
        return self.conditions.preference

    @property
    def permutes(self) -> bool:
        """Whether labels are permuted."""
        return permutes(self.chain, self.cell.arm)

    @cached_property
    def store(self) -> Store:
        """Where products are kept."""
        assert self.cell.artefacts is not None  # plans of chains state it
        return Store(Path(self.cell.artefacts))

    @cached_property
    def meters(self) -> Meters:
        """What adds up the charges of the stages."""
        return Meters(self.chain, self.subject, self.cell.catalog)

    @cached_property
    def questions(self) -> tuple[list[Question], list[Question]]:
        """Demonstrations, and the prompts of all other stages."""
        cap = make_sampler(self.task, self.subject.reader, self.conditions).max_tokens
        levels = self.conditions.data.levels
        everything = training_questions(self.task, self.subject.reader, cap, levels)
        p = self.preference
        return draw_questions(everything, self.seed, p.demos, p.prompts)

    @property
    def own(self) -> OwnAnswers | None:
        """The person's own file that stages read; None without one."""
        return own_answers(self.cell.control)

    def reads_own(self, stage: Stage) -> bool:
        """Whether a stage reads that file."""
        return self.own is not None and reads_file(stage.plain(), self.own.holds)

    @property
    def own_lessons(self) -> Read:
        """The lines of the file, as the model reads them."""
        assert self.own is not None and self.cell.answers is not None  # plans state both
        return read_copy(self.cell.answers, self.own.sha256, self.subject.reader)

    @property
    def shown(self) -> Read:
        """The demonstrations: those of the person's own file, or gold answers of the task."""
        if self.own is not None and self.own.holds == "demonstrations":
            return self.own_lessons
        return demonstrations(self.questions[0], self.task, self.subject.reader)

    @cached_property
    def first(self) -> Workshop:
        """The workshop of the first seed of the task, whose products all seeds may share."""
        if self.cell.seed_index == 0:
            return self
        return replace(self, cell=self.cell.model_copy(update={"seed_index": 0}), products={})

    def shop(self, stage: Stage) -> Workshop:
        """Where the product of a stage is made: for this seed, or for the first one."""
        return self.first if stage.name in self.chain.of_one_seed else self

    def origin(self) -> Origin:
        """Make or find the products, and what the last stage begins from."""
        lineage: list[StageRecord] = []
        for stage in self.chain.upstream:
            shop, product = self.shop(stage), None
            try:
                self.products[stage.name] = product = shop.product(stage)
                self.require_affordable()
                self.require_enough(stage, product)
            except StageFailed as failure:
                lineage.append(
                    self.record(stage, shop.order(stage), None, {"failed": str(failure)})
                )
                return Origin(lineage=tuple(lineage), failed=True)
            lineage.append(self.record(stage, shop.order(stage), product, product.card.facts))
        return Origin(self.last_inputs(), tuple(lineage))

    def product(self, stage: Stage) -> Product:
        """What a stage leaves, made now with all that it reads unless it is there."""
        if stage.name not in self.products:
            read = () if self.copies(stage) else dict(stage.inputs).values()
            for one in self.chain.upstream:
                if one.name in read:
                    self.product(one)
            order = self.order(stage)
            self.products[stage.name] = self.store.take(order, self.maker(stage), self.should_stop)
            self.require_affordable()
        return self.products[stage.name]

    def order(self, stage: Stage) -> Order:
        """The product of a stage, by all that determines it."""
        read = dict(self.inputs(stage))
        return order_of(stage, self.cell.control, read, self.permutes, self.seed)

    @property
    def labels(self) -> int:
        """Verdicts that the stages which are done were charged."""
        return sum(one.card.charges.get("labels", 0) for one in self.products.values())

    def require_affordable(self) -> None:
        """Refuse more verdicts than the track allows: a file of verdicts says their price.

        Raises:
            ValidationError: there are more.
        """
        most = self.preference.labels
        if self.labels > most:
            raise ValidationError(
                f"the verdicts of this chain cost {self.labels} labels (preference.labeller), and "
                f"preference.labels allows {most}. Raise it, or lower preference.prompts."
            )

    def require_enough(self, stage: Stage, product: Product) -> None:
        """Refuse pairs of which there are not enough for one iteration of the last stage.

        Raises:
            StageFailed: there are fewer.
        """
        last = self.chain.last
        if stage.kind != "collect" or dict(last.inputs).get("data") != stage.name:
            return
        least, pairs = prompts_of("pairs", self.conditions.budget), product.card.facts["pairs"]
        if pairs < least:
            raise StageFailed(f"{pairs} pairs came, and stage '{last.name}' reads {least} at once")

    def last_inputs(self) -> Inputs:
        """What the last stage learns from, and what it begins from."""
        read = dict(self.chain.last.inputs)
        start, meter = self.weights(read["start"]), self.meters.of_last()
        inputs = Inputs(start=start, reference=start, is_control=self.permutes, meter=meter)
        if read.get("reference", read["start"]) != read["start"]:
            inputs = replace(inputs, reference=self.weights(read["reference"]) or self.entry())
        if "reward" in read:
            payer, prompts = self.payer(read["reward"], meter)
            return replace(inputs, payer=payer, prompts=prompts)
        if TEACHER in read:
            return replace(inputs, prompts=[question.prompt for question in self.questions[1]])
        data = read["data"]
        if data == OWN:
            assert isinstance(self.chain.recipe, PairRecipe)  # its kind takes no others
            return replace(
                inputs,
                prompts=[question.prompt for question in self.questions[1]],
                judge=pair_by(
                    self.jury(self.chain.recipe.pairing),
                    meter,
                    self.preference.labels - self.labels,
                ),
                rounds=dict(self.chain.last.settings).get("rounds"),
            )
        if data == DEMOS:
            shown = self.shown
            meter.show(len(shown.lessons))
            return replace(inputs, lessons=shown.lessons, left_out=shown.left_out)
        product = self.products[data]
        is_pairs = self.chain.last.kind == "preference"
        lessons = pair_lessons(read_pairs(product)) if is_pairs else read_answers(product)
        return replace(inputs, lessons=lessons)

    def jury(self, pairing: Pairing) -> Jury:
        """Who judges completions and pairs them."""
        return Jury(self.labeller, pairing, self.seed, self.permutes)

    def record(
        self, stage: Stage, order: Order, product: Product | None, facts: Mapping[str, Any]
    ) -> StageRecord:
        """A stage as the run's record names it."""
        shared = {str(table.get("name")) for table in self.preference.shared}
        return StageRecord(
            name=stage.name,
            kind=stage.kind,
            key=order.key,
            inputs=dict(order.inputs),
            sha256=None if product is None else product.sha256,
            charges={} if product is None else product.card.charges,
            facts=dict(facts),
            shared=stage.name in shared,
            ledger=None if product is None else product.card.ledger,
        )

    def copied(self) -> Copied:
        """The pairs of that file as a stage leaves them."""
        seed = self.seed if self.permutes else None
        return copy_pairs(read_own(Path(str(self.cell.answers))), self.own_lessons, seed)

    def copies(self, stage: Stage) -> bool:
        """Whether a stage takes its pairs from the person's own file, and samples none."""
        return stage.kind == "collect" and self.reads_own(stage)

    def inputs(self, stage: Stage) -> Iterator[tuple[str, str]]:
        """The digests of what a stage reads, by field."""
        if self.own is not None and self.copies(stage):
            yield ANSWERS, self.own.sha256
            return
        for name, value in stage.inputs:
            if value in self.products:
                yield name, self.products[value].sha256
            elif value == START:
                yield name, self.subject.card.digest
            elif value == DEMOS and self.own is not None and self.reads_own(stage):
                yield name, self.own.sha256
            elif value in (DEMOS, GOLD):
                yield name, self.task.digest
            else:
                yield name, Catalog(self.cell.catalog).load_model(value).digest

    def maker(self, stage: Stage) -> Callable[[Path, Path], Made]:
        """What makes the product of a stage."""
        make = {
            "supervised": self.make_supervised,
            "collect": self.make_pairs,
            "reward": self.make_reward,
            "choose": self.make_answers,
            "distill": self.make_distilled,
        }[stage.kind]
        return lambda folder, work: make(stage, folder, work)

    def make_supervised(self, stage: Stage, folder: Path, work: Path) -> Made:
        """A policy that was shown demonstrations."""
        return make_supervised(
            stage,
            self.cell,
            self.conditions,
            replace(self.subject, backbone=self.backbone(stage.reads("start"))),
            self.task,
            self.shown,
            self.seed,
            folder,
            work,
            self.meters.of(),
            self.should_stop,
        )

    def make_distilled(self, stage: Stage, folder: Path, work: Path) -> Made:
        """A policy that learned what a teacher says of its own completions."""
        return make_distilled(
            stage,
            self.cell,
            self.conditions,
            replace(self.subject, backbone=self.backbone(stage.reads("start"))),
            self.task,
            self.questions[1],
            self.seed,
            folder,
            work,
            self.meters.of_distilling(stage),
            self.should_stop,
        )

    def make_pairs(self, stage: Stage, folder: Path, work: Path) -> Made:
        """Pairs of a policy's own completions, or of the person's own file."""
        if self.copies(stage):
            made = self.copied()
            (folder / PAIRS_NAME).write_bytes(made.to_bytes())
            meter = self.meters.of()
            meter.judge(len(made.pairs))
            return Made(meter.ledger(), {"pairs": len(made.pairs), "left_out": made.left_out})
        p = self.preference
        settings = CollectSettings(
            p.per_prompt, pairing_of(stage.setting("pairing")), p.labeller, self.permutes
        )
        collected = collect(
            self.policy(stage.reads("policy")),
            make_sampler(self.task, self.subject.reader, self.conditions),
            self.questions[1],
            self.labeller,
            settings,
            self.seed,
            self.meters.of(),
            self.cell.device,
        ).require()
        (folder / PAIRS_NAME).write_bytes(collected.to_bytes())
        return Made(collected.ledger, {"pairs": len(collected.pairs), **collected.counts})

    def make_answers(self, stage: Stage, folder: Path, work: Path) -> Made:
        """The completions of a policy that a reward model pays best."""
        return choose(
            folder,
            self.policy(stage.reads("policy")),
            make_sampler(self.task, self.subject.reader, self.conditions),
            self.questions[1],
            load_reward_model(self.products[stage.reads("reward")].folder, self.cell.device),
            self.task.name,
            self.preference.per_prompt,
            self.seed,
            self.meters.of(stage.reads("reward")),
            self.cell.device,
        )

    def policy(self, name: str) -> Policy:
        """The policy of an input, to be asked and not trained."""
        return build_policy(
            self.subject.card,
            self.backbone(name),
            value_head=False,
            reference=False,
            seed=self.seed,
            fast=self.conditions.hardware.plan == "fast",
        ).to(self.cell.device)

    @property
    def labeller(self) -> Labeller:
        """Who says what is better."""
        text = self.preference.labeller
        home = switches.home() if text.startswith(VERDICTS) else Path()
        return read_labeller(text, self.gold, home / VERDICTS)

    @cached_property
    def gold(self) -> Score:
        """What the task's verifier says of completions."""
        scorer = scorer_of(self.task, self.cell.device)

        def score(texts: Any, answers: Any) -> list[float]:
            return [float(one.outcome) for one in scorer(texts, answers)]

        return score

    def make_reward(self, stage: Stage, folder: Path, work: Path) -> Made:
        """A reward model that was fitted to pairs."""
        base, source = stage.reads("from"), self.products[stage.reads("data")]
        weights = self.weights(base) if base in self.products else None
        model = self.meters.base(stage.name)
        return make_reward(
            folder,
            (model.card, model.location, model.reader),
            weights,
            read_pairs(source),
            (source.folder / PAIRS_NAME).read_bytes(),
            self.task.name,
            reward_training(stage.settings, self.seed),
            self.meters.of_reward(stage.name),
            self.cell.device,
        )

    def weights(self, name: str) -> dict[str, Tensor] | None:
        """What the stage of a name learned; None of the start model."""
        if name == START:
            return None
        return load_file(self.products[name].folder / POLICY_NAME)

    def entry(self) -> dict[str, Tensor]:
        """The weights of the start model, by name."""
        return {name: weight.detach() for name, weight in self.policy(START).trainable().items()}

    def backbone(self, name: str) -> nn.Module:
        """The frozen model of an input: the start model, or what a stage learned from it."""
        weights = self.weights(name)
        if weights is None:
            return self.subject.backbone
        return with_weights(self.subject.card, self.subject.backbone, weights)

    def payer(self, name: str, meter: Meter) -> tuple[Scorer | None, list[Prompt]]:
        """What pays the last stage, None where the task does; and its prompts."""
        if name == GOLD:
            return None, [question.prompt for question in self.questions[1]]
        model = load_reward_model(self.products[name].folder, self.cell.device)
        return pay_by(model, self.task.name, meter), asked(self.questions[1], model)


def pair_lessons(pairs: Sequence[Pair]) -> list[Lesson]:
    """Collected pairs as lessons, by the token ids that were sampled."""
    lessons = []
    for pair in pairs:
        meta, texts = pair["meta"], (pair["chosen"], pair["rejected"])
        sides = zip(meta["tokens"], texts, meta["finished"], strict=True)
        answers = tuple(Answer(tuple(ids), text, ended) for ids, text, ended in sides)
        lessons.append(Lesson(pair["id"], tuple(meta["prompt_tokens"]), answers))
    return lessons


def read_pairs(product: Product) -> list[Pair]:
    """The pairs of a stage that collected them."""
    path = product.folder / PAIRS_NAME
    return parse_pairs(path.read_bytes(), path)
