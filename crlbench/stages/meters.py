"""What adds up the charges of the stages of one chain: the FLOPs of each model that they run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from crlbench.algo.chain import GOLD, START, TEACHER, Chain, Stage
from crlbench.catalog.find import Catalog
from crlbench.contract.charges import Coefficients
from crlbench.contract.ledger import Role
from crlbench.policy.weights.flops import measure_flops
from crlbench.policy.weights.shape import config_of
from crlbench.run.admission import Admitted, admit
from crlbench.run.subject import Subject
from crlbench.train.charging import Meter


@dataclass
class Meters:
    """Makes the meter of each stage of a chain."""

    chain: Chain
    subject: Subject
    """The start model."""
    catalog: tuple[str, ...]

    def base(self, stage: str) -> Subject | Admitted:
        """The model that a reward stage fits from: that of the entry, or one of the catalogue."""
        name = next(one for one in self.chain.upstream if one.name == stage).reads("from")
        if name in (START, *(one.name for one in self.chain.upstream)):
            return self.subject
        return admit(Catalog(self.catalog).load_model(name), whole=True)

    @cached_property
    def policy(self) -> Coefficients:
        """FLOPs of the policy, and of its references."""
        return measure_flops(config_of(self.subject.card, self.subject.location))

    def of(
        self, reward: str | None = None, label_price: int = 0, teacher: str | None = None
    ) -> Meter:
        """The meter of a stage that runs the policy.

        Args:
            reward: name of the stage whose reward model takes part.
            label_price: verdicts that a sampled completion costs.
            teacher: name of the entry that teaches.
        """
        models: dict[Role, Coefficients] = {"policy": self.policy, "reference": self.policy}
        if reward is not None:
            models |= self.of_reward(reward).coefficients
        if teacher is not None:
            models["teacher"] = self.flops_of(teacher)
        return Meter(models, label_price)

    def of_reward(self, stage: str) -> Meter:
        """The meter of a reward stage."""
        base = self.base(stage)
        if base is self.subject:
            return Meter({"reward": self.policy})
        return Meter({"reward": measure_flops(config_of(base.card, base.location))})

    def of_distilling(self, stage: Stage) -> Meter:
        """The meter of a stage that distils, the last one or another."""
        return self.of(teacher=stage.reads(TEACHER))

    def flops_of(self, entry: str) -> Coefficients:
        """FLOPs of a model of the catalogue."""
        model = admit(Catalog(self.catalog).load_model(entry), whole=True)
        return measure_flops(config_of(model.card, model.location))

    def of_last(self) -> Meter:
        """The meter of the last stage."""
        if TEACHER in dict(self.chain.last.inputs):
            return self.of_distilling(self.chain.last)
        paid = dict(self.chain.last.inputs).get("reward")
        return self.of(None if paid in (None, GOLD) else paid, int(self.chain.paid_by_gold))
