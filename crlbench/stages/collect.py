"""Pairs from a policy's own samples: sampled by keys, judged by a labeller, paired by a rule.

The file that is made has the form of a task's frozen pairs (:mod:`crlbench.suite.pairs`), in the
order of its prompts. What a learner needs of the samples stands in ``meta``: a pair carries the
token ids that were sampled, so nobody turns its text into tokens again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crlbench.algo.pairs.pairing import Pairing
from crlbench.catalog.frozen import Task
from crlbench.catalog.rows import Row
from crlbench.contract.charges import Group
from crlbench.contract.ledger import Ledger
from crlbench.contract.sizes import decode_rows
from crlbench.disk.hashing import canonical_json
from crlbench.errors import ValidationError
from crlbench.policy.decode.loop import DrawKey, Sampler
from crlbench.policy.policy import Policy
from crlbench.policy.weights.load import Reader
from crlbench.run.subject import prompts_of
from crlbench.seeding import rng
from crlbench.stages.failure import StageFailed
from crlbench.stages.jury import PURPOSE, Jury
from crlbench.suite.labels import Ask, Labeller
from crlbench.suite.pairs import LEAST_PAIRS, Pair
from crlbench.train.charging import Meter
from crlbench.train.stream import Prompt, make_batch


@dataclass(frozen=True)
class Question:
    """A prompt as a policy reads it, and the row of the task that it was made of."""

    prompt: Prompt
    row: Row


@dataclass(frozen=True)
class CollectSettings:
    """How pairs are collected."""

    per_prompt: int
    """Completions sampled of each prompt."""
    pairing: Pairing
    """Which completions of a prompt become pairs."""
    labeller: str
    """How the labeller is written; it stands in every pair."""
    permute: bool = False
    """Whether verdicts are dealt out among the completions of a prompt: the control arm."""


@dataclass(frozen=True)
class Collection:
    """Pairs, and what they came from."""

    pairs: list[Pair]
    counts: dict[str, int]
    """``prompts``, ``without_pair`` (prompts that gave none), ``completions``, ``abstained``
    (completions without a verdict), ``unfinished`` (sides of pairs that were cut off),
    ``flipped``."""
    ledger: Ledger
    """All that was sampled and judged."""

    def to_bytes(self) -> bytes:
        """The file: canonical JSON lines."""
        return "".join(canonical_json(pair) + "\n" for pair in self.pairs).encode()

    def require(self, least: int = LEAST_PAIRS) -> Collection:
        """The same collection, if it has enough pairs.

        Raises:
            StageFailed: it has fewer: the run has failed, and nobody made a mistake.
        """
        if len(self.pairs) < least:
            raise StageFailed(
                f"{len(self.pairs)} pairs came of {self.counts['prompts']} prompts with "
                f"{self.counts['completions']} completions, and {least} are the fewest that are "
                "learned from: most completions of a prompt have equal scores"
            )
        return self


@dataclass(frozen=True)
class Completion:
    """What one sample is."""

    text: str
    tokens: list[int]
    logprob: float
    """Sum over its tokens, the end token included, under the policy that sampled it."""
    finished: bool


def collect(
    policy: Policy,
    sampler: Sampler,
    questions: Sequence[Question],
    labeller: Labeller,
    settings: CollectSettings,
    seed: int,
    meter: Meter,
    device: str = "cpu",
) -> Collection:
    """Sample completions of all prompts, have them judged, and pair them.

    A draw depends on the seed, the prompt and the number of the completion alone. All completions
    are charged, whether they come into a pair or not.

    Raises:
        ValidationError: a labeller that reads a file has no verdict on a completion.
    """
    samples = sample(
        policy, sampler, questions, settings.per_prompt, DrawKey(seed, PURPOSE), device
    )
    asks = [
        Ask(question.prompt.uid, index, one.text, question.prompt.answer)
        for question, own in zip(questions, samples, strict=True)
        for index, one in enumerate(own)
    ]
    jury = Jury(labeller, settings.pairing, seed, settings.permute)
    judged = jury.judge(asks, settings.per_prompt)
    pairs: list[Pair] = []
    for pair in judged.pairs:
        place, better = divmod(pair.better, settings.per_prompt)
        scores = [judged.scores[number] for number in (pair.better, pair.worse)]
        order = (better, pair.worse % settings.per_prompt)
        drawn = _Drawn(questions[place], samples[place], scores, order)
        pairs.append(drawn.line(pair.name, pair.flipped, settings.labeller))
    charge_samples(meter, questions, samples)
    meter.judge(judged.labels)
    everything = [one for own in samples for one in own]
    return Collection(
        pairs,
        counts={
            "prompts": len(questions),
            "without_pair": judged.without_pair,
            "completions": len(everything),
            "abstained": sum(score is None for score in judged.scores),
            "unfinished": sum(not ended for pair in pairs for ended in pair["meta"]["finished"]),
            "flipped": sum(pair["meta"]["flipped"] for pair in pairs),
        },
        ledger=meter.ledger(),
    )


def charge_samples(
    meter: Meter, questions: Sequence[Question], samples: Sequence[Sequence[Completion]]
) -> None:
    """Charge the completions of each prompt."""
    groups = [
        Group(len(question.prompt.ids), tuple(len(one.tokens) for one in own))
        for question, own in zip(questions, samples, strict=True)
    ]
    meter.sample_groups(groups, [one.text for own in samples for one in own])


def sample(
    policy: Policy,
    sampler: Sampler,
    questions: Sequence[Question],
    per_prompt: int,
    key: DrawKey,
    device: str,
) -> list[list[Completion]]:
    """The completions of each prompt; a draw depends on the key, the prompt and the number of the
    completion alone."""
    at_once = max(1, decode_rows(policy.config.vocab_size) // per_prompt)
    completions: list[Completion] = []
    for start in range(0, len(questions), at_once):
        prompts = [question.prompt for question in questions[start : start + at_once]]
        batch = make_batch(prompts, sampler.pad, completions=per_prompt).to(device)
        rollout = sampler.sample(policy, batch, key)
        sums = rollout.behavior_logprobs.double().sum(1).tolist()
        tokens = [
            ids[mask].tolist()
            for ids, mask in zip(rollout.completion_ids, rollout.completion_mask, strict=True)
        ]
        finished = rollout.finished.tolist()
        completions += map(Completion, rollout.texts, tokens, sums, finished)
    groups = range(0, len(completions), per_prompt)
    return [completions[start : start + per_prompt] for start in groups]


@dataclass(frozen=True)
class _Drawn:
    """Two completions of a prompt, the preferred one first."""

    question: Question
    samples: Sequence[Completion]
    scores: Sequence[float | None]
    """Of the two."""
    places: tuple[int, int]
    """Their numbers among those of the prompt."""

    def line(self, name: str, flipped: bool, labeller: str) -> Pair:
        """One line of the file."""
        sides = [self.samples[place] for place in self.places]
        meta: dict[str, Any] = {
            "uids": [self.question.prompt.uid] * 2,
            "indices": list(self.places),
            "scores": list(self.scores),
            "labeller": labeller,
            "flipped": flipped,
            "logprobs": [side.logprob for side in sides],
            "finished": [side.finished for side in sides],
            "prompt_tokens": list(self.question.prompt.ids),
            "tokens": [side.tokens for side in sides],
        }
        row = self.question.row
        return Pair(
            id=name,
            messages=row["messages"],
            chosen=sides[0].text,
            rejected=sides[1].text,
            level=row["level"],
            key=row["key"],
            meta=meta,
        )


def training_questions(
    task: Task, reader: Reader, max_tokens: int, levels: Sequence[int]
) -> list[Question]:
    """The training prompts of a task at some of its levels, with their rows."""
    prompts = prompts_of(task, "train", reader, max_tokens)
    pairs = zip(prompts, task.rows("train"), strict=True)
    return [Question(prompt, row) for prompt, row in pairs if row["level"] in levels]


def draw_questions(
    questions: Sequence[Question], seed: int, demos: int, prompts: int
) -> tuple[list[Question], list[Question]]:
    """Prompts to demonstrate, and others to learn from, by a keyed draw.

    No problem is in both parts, whatever its wording. Each part keeps the order of the draw, so a
    smaller number takes a prefix.

    Raises:
        ValidationError: there are too few.
    """
    order = list(range(len(questions)))
    rng(seed, "demos").shuffle(order)
    shown = [questions[place] for place in order[:demos]]
    keys = {question.row["key"] for question in shown}
    others = [questions[place] for place in order[demos:]]
    others = [question for question in others if question.row["key"] not in keys]
    if len(shown) < demos or len(others) < prompts:
        raise ValidationError(
            f"{len(questions)} training prompts are there: too few for preference.demos = {demos} "
            f"and preference.prompts = {prompts}, which share no problem. Lower one of them."
        )
    return shown, others[:prompts]
