"""What stands in for the products of stages while a short piece of a chain's last stage is timed.

Answers are sampled from the start model: they are as long as those of a run, and cost no stage. A
reward model is stood in for by the verifier.
"""

from __future__ import annotations

from itertools import cycle, islice

from crlbench.algo.chain import START, Chain
from crlbench.algo.pairs.pairing import BestWorst
from crlbench.algo.recipe import from_config
from crlbench.catalog.frozen import Task
from crlbench.contract.conditions import Conditions
from crlbench.contract.experience import FROZEN, prompts_of, source_of
from crlbench.contract.records import Cell
from crlbench.policy.decode.loop import DrawKey
from crlbench.run.learners import ENTRY, Inputs
from crlbench.run.subject import Subject, make_sampler
from crlbench.stages.chain import Workshop
from crlbench.stages.collect import sample
from crlbench.stages.payers import pair_by
from crlbench.train.lessons import Answer, Lesson

PURPOSE = "calibrate"
"""Name of the stream of draws that answers are sampled by."""


def stand_in(cell: Cell, conditions: Conditions, subject: Subject, task: Task) -> Inputs:
    """Inputs of the last stage of a cell's chain; nothing beyond the cell where it is no chain."""
    if cell.artefacts is None:
        return ENTRY
    chain = from_config(cell.recipe_config)
    assert isinstance(chain, Chain)  # cells of other recipes name no artefacts
    shop = Workshop(cell, chain, conditions, subject, task, lambda: False)
    source, questions = source_of(cell.recipe_config), shop.questions[1]
    prompts = [question.prompt for question in questions]
    if source not in FROZEN:
        judge = pair_by(shop.jury(BestWorst()), None) if chain.judges_own else None
        return Inputs(prompts=prompts, judge=judge)
    sides, count = FROZEN[source], prompts_of(source, conditions.budget)
    sampler = make_sampler(task, subject.reader, conditions)
    key, policy = DrawKey(shop.seed, PURPOSE), shop.policy(START)
    some = questions[:count]
    drawn = sample(policy, sampler, some, sides, key, cell.device)
    lessons = [
        Lesson(
            f"{one.prompt.uid}#{number}",
            one.prompt.ids,
            tuple(Answer(tuple(side.tokens), side.text, side.finished) for side in own),
        )
        for number, (one, own) in enumerate(islice(cycle(zip(some, drawn, strict=True)), count))
    ]
    return Inputs(lessons=lessons)
