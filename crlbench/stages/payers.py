"""Who pays or pairs the completions of a chain's last stage; what they are asked is charged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crlbench.errors import ValidationError
from crlbench.policy.weights.reward_model import RewardModel, completion_row, prompt_ids
from crlbench.reward.score import Score
from crlbench.run.reward_model import AskedAnswer, check_rewards
from crlbench.stages.collect import Question
from crlbench.stages.jury import Jury
from crlbench.train.charging import Meter
from crlbench.train.own_pairs import PairMaker
from crlbench.train.reward import Scorer
from crlbench.train.stream import Prompt
from crlbench.types import PromptBatch


def pay_by(model: RewardModel, task: str, meter: Meter) -> Scorer:
    """A reward model as what pays completions of :func:`asked` prompts."""

    def pay(texts: Any, answers: Any) -> list[Score]:
        prompts = [answer.prompt for answer in answers]
        pairs = zip(prompts, texts, strict=True)
        meter.score([completion_row(prompt, text, model.reader) for prompt, text in pairs])
        return check_rewards(model.rewards(prompts, texts), texts, task)

    return pay


def asked(questions: Sequence[Question], model: RewardModel) -> list[Prompt]:
    """Prompts whose answers say how a reward model reads them."""
    prompts = []
    for question in questions:
        answer = AskedAnswer(question.row["answer"])
        answer.prompt = prompt_ids(question.row["messages"], model.reader)
        prompts.append(Prompt(question.prompt.uid, question.prompt.ids, answer))
    return prompts


def pair_by(jury: Jury, meter: Meter, most: int) -> PairMaker:
    """A jury as what pairs the completions of an iteration.

    Args:
        most: labels that its verdicts may cost in a whole run. A pair maker refuses more with a
            :class:`~crlbench.errors.ValidationError`.
    """

    def pair(batch: PromptBatch, texts: Sequence[str]) -> list[tuple[int, int]]:
        pairs, labels = jury.pairs(batch, texts)
        meter.judge(labels)
        if (asked := meter.totals.labels) > most:
            raise ValidationError(
                f"verdicts cost {asked} labels after iteration {batch.iteration + 1} "
                f"(preference.labeller), and {most} of preference.labels are left for this stage. "
                "Raise it, or lower budget.grid."
            )
        return pairs

    return pair
