"""Real training of a small random model on frozen answers, as a run does it."""

from __future__ import annotations

from functools import partial

from crlbench.algo.pairs.recipe import PairRecipe
from crlbench.algo.recipes import load
from crlbench.contract.experience import prompts_of
from crlbench.policy.adapters import add_lora
from crlbench.policy.decode.loop import DecodeLoop
from crlbench.policy.policy import Policy
from crlbench.train.collect import Answers
from crlbench.train.lessons import Answer, Lesson, LessonStream, blind
from crlbench.train.preference import PreferenceOptimization
from crlbench.train.supervised import SupervisedTuning
from tests.support.checkpoints import ascii_tokenizer, random_model
from tests.train.loop import conditions, digits, fit

END = 130


def answer(text: str, finished: bool = True) -> Answer:
    return Answer((*text.encode(), *([END] if finished else [])), text, finished)


PAIRS = [
    Lesson(
        f"t/pairs-{i}",
        (129, *f"{i}+1=".encode()),
        (answer(str(i + 1)), answer("x" * (i % 4), finished=i % 5 > 0)),
    )
    for i in range(19)
]
"""Right numbers against rows of x of other lengths, one of them empty, some cut off."""
DEMONSTRATIONS = [Lesson(one.uid, one.ids, one.answers[:1]) for one in PAIRS]


def make(recipe="dpo", *, c=None, lora=False, seed=3, model=random_model, **options):
    """A learner as :func:`tests.train.loop.make` makes one."""
    c = c or conditions()
    recipe = load(recipe) if isinstance(recipe, str) else recipe
    learner = model()
    if lora:
        adapter = {"rank": 4, "alpha": 8, "targets": "all-linear"}
        learner = add_lora(learner.requires_grad_(False), adapter, seed)
    kind = PreferenceOptimization if isinstance(recipe, PairRecipe) else SupervisedTuning
    sampler = DecodeLoop(ascii_tokenizer(), 1.0, 4, ends=(END,), pad=128)
    return kind(
        recipe=recipe,
        build=partial(Policy, learner, value_head=False, reference=model()),
        collector=Answers(sampler, digits),
        conditions=c,
        seed=seed,
        **options,
    )


def stream_of(module, arm="real"):
    lessons = PAIRS if module.source == "pairs" else DEMONSTRATIONS
    if arm == "placebo":
        lessons = blind(lessons, module.seed)
    budget = module.conditions.budget
    count = prompts_of(module.source, budget)
    return LessonStream(lessons, module.seed, module.source, count, budget.iterations, 128)


def train(module, folder, arm="real", **options):
    """Train a module to its end, or until it is stopped; returns the recorder."""
    return fit(module, folder, stream=stream_of(module, arm), **options)
