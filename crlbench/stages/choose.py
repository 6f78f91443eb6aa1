"""Answers that a reward model chose: the best of several completions of each prompt.

Imitating them distils best-of-n into the policy. The file ``answers.jsonl`` holds token ids as they
were sampled, so nobody turns a text into tokens again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crlbench.disk.hashing import canonical_json
from crlbench.policy.decode.loop import DrawKey, Sampler
from crlbench.policy.policy import Policy
from crlbench.policy.weights.reward_model import RewardModel, completion_row, prompt_ids
from crlbench.run.reward_model import check_rewards
from crlbench.stages.artefacts import Made, Product
from crlbench.stages.collect import Question, charge_samples, sample
from crlbench.train.charging import Meter
from crlbench.train.lessons import Answer, Lesson

ANSWERS_NAME = "answers.jsonl"
PURPOSE = "choose"
"""Name of the stream of draws that completions are sampled by."""


def choose(
    folder: Path,
    policy: Policy,
    sampler: Sampler,
    questions: Sequence[Question],
    model: RewardModel,
    task: str,
    per_prompt: int,
    seed: int,
    meter: Meter,
    device: str = "cpu",
) -> Made:
    """Sample completions of all prompts and write of each prompt the one that ``model`` pays best.

    Of equally paid ones the first is chosen. Completions that were cut off take part, and end
    without an end token.

    Raises:
        ValidationError: a reward is no finite number.
    """
    key = DrawKey(seed, PURPOSE)
    samples = sample(policy, sampler, questions, per_prompt, key, device)
    lines, paid, mean = [], 0.0, 0.0
    for question, own in zip(questions, samples, strict=True):
        texts = [one.text for one in own]
        prompt = prompt_ids(question.row["messages"], model.reader)
        meter.score([completion_row(prompt, text, model.reader) for text in texts])
        rewards = [
            float(score.outcome)
            for score in check_rewards(model.rewards([prompt] * len(own), texts), texts, task)
        ]
        best = rewards.index(max(rewards))
        paid, mean = paid + rewards[best], mean + sum(rewards) / len(rewards)
        row: dict[str, Any] = {
            "uid": question.prompt.uid,
            "index": best,
            "reward": rewards[best],
            "text": own[best].text,
            "prompt_tokens": list(question.prompt.ids),
            "tokens": own[best].tokens,
            "finished": own[best].finished,
        }
        lines.append(canonical_json(row) + "\n")
    (folder / ANSWERS_NAME).write_bytes("".join(lines).encode())
    everything = [one for own in samples for one in own]
    charge_samples(meter, questions, samples)
    facts = {
        "answers": len(lines),
        "completions": len(everything),
        "reward_chosen": paid / len(lines),
        "reward_mean": mean / len(lines),
    }
    return Made(meter.ledger(), facts)


def read_answers(product: Product) -> list[Lesson]:
    """The answers of a stage that chose them, as lessons."""
    lines = (product.folder / ANSWERS_NAME).read_text(encoding="utf-8").splitlines()
    return [_lesson(json.loads(line)) for line in lines]


def _lesson(row: dict[str, Any]) -> Lesson:
    answer = Answer(tuple(row["tokens"]), row["text"], row["finished"])
    return Lesson(row["uid"], tuple(row["prompt_tokens"]), (answer,))
