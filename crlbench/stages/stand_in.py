"""What stands in for the products of stages while a short piece of a chain's last stage is timed.

Demonstrations, and the lines of a person's own file, are what they are. Other answers are sampled
from the start model: they are as long as those of a run, and cost no stage. A reward model is stood
in for by the verifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice

from crlbench.algo.chain import DEMOS, START, Chain
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


def workshop(cell: Cell, conditions: Conditions, subject: Subject, task: Task) -> Workshop | None:
    """Where the stages of a cell's chain are made; None where its recipe is no chain."""
    if cell.artefacts is None:
        return None
    chain = from_config(cell.recipe_config)
    assert isinstance(chain, Chain)  # cells of other recipes name no artefacts
    return Workshop(cell, chain, conditions, subject, task, lambda: False)


def stand_in(cell: Cell, conditions: Conditions, subject: Subject, task: Task) -> Inputs:
    """Inputs of the last stage of a cell's chain; nothing beyond the cell where it is no chain."""
    shop = workshop(cell, conditions, subject, task)
    if shop is None:
        return ENTRY
    source, meter = source_of(cell.recipe_config), shop.meters.of_last()
    prompts = [question.prompt for question in shop.questions[1]]
    if source not in FROZEN:
        most = shop.preference.labels
        judge = pair_by(shop.jury(BestWorst()), meter, most) if shop.chain.judges_own else None
        return Inputs(prompts=prompts, judge=judge, meter=meter)
    count = prompts_of(source, conditions.budget)
    given = known_lessons(shop)
    if given is None:
        lessons = drawn_lessons(shop, FROZEN[source], count)
    else:
        lessons = [
            replace(one, uid=f"{one.uid}#{number}")
            for number, one in enumerate(islice(cycle(given), count))
        ]
    if shop.chain.last.reads("data") == DEMOS:
        meter.show(len(shop.shown.lessons))
    return Inputs(lessons=lessons, meter=meter)


def known_lessons(shop: Workshop) -> Sequence[Lesson] | None:
    """What the last stage reads, where it is there before any stage: demonstrations, or the pairs
    of a person's own file."""
    data = shop.chain.last.reads("data")
    if data == DEMOS:
        return shop.shown.lessons
    source = next(stage for stage in shop.chain.upstream if stage.name == data)
    return shop.own_lessons.lessons if shop.copies(source) else None


def drawn_lessons(shop: Workshop, sides: int, count: int) -> list[Lesson]:
    """``count`` lessons of ``sides`` answers each, sampled from the start model."""
    cell, subject, task, questions = shop.cell, shop.subject, shop.task, shop.questions[1]
    sampler = make_sampler(task, subject.reader, shop.conditions)
    key, policy = DrawKey(shop.seed, PURPOSE), shop.policy(START)
    some = questions[:count]
    drawn = sample(policy, sampler, some, sides, key, cell.device)
    return [
        Lesson(
            f"{one.prompt.uid}#{number}",
            one.prompt.ids,
            tuple(Answer(tuple(side.tokens), side.text, side.finished) for side in own),
        )
        for number, (one, own) in enumerate(islice(cycle(zip(some, drawn, strict=True)), count))
    ]
