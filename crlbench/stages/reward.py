"""A reward model from collected pairs: what ``crlbench fit-reward`` does, with pairs of a stage.

A reward model reads texts, when it is fitted and when it pays: it may have another tokenizer than
the policy. One in eight prompts is held out, to say how often the model is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from crlbench.contract.card import validate_card
from crlbench.contract.model_card import ModelCard
from crlbench.disk.hashing import sha256_bytes
from crlbench.errors import ValidationError
from crlbench.policy.weights.files import Location
from crlbench.policy.weights.load import Reader
from crlbench.policy.weights.reward_model import ScalarModel, load_scalar_model
from crlbench.seeding import derive
from crlbench.stages.artefacts import Made
from crlbench.stages.failure import StageFailed
from crlbench.stages.fit_reward import describe, fill, fit_rows, token_pairs
from crlbench.suite.pairs import Pair, held_out
from crlbench.train.charging import Meter
from crlbench.train.reward_modeling import PairStream, RewardTraining


def reward_training(settings: Iterable[tuple[str, Any]], seed: int) -> RewardTraining:
    """How a reward model is fitted, from what a stage states. For which seeds it is fitted changes
    nothing of that.

    Raises:
        ValidationError: a value out of range.
    """
    stated = {name: value for name, value in settings if name != "seeds"}
    values = {**stated, "seed": derive(seed, "rm")}
    return validate_card(RewardTraining, values, "a reward stage")


def make_reward(
    folder: Path,
    base: tuple[ModelCard, Location, Reader],
    weights: Mapping[str, Tensor] | None,
    pairs: Sequence[Pair],
    data: bytes,
    task: str,
    config: RewardTraining,
    meter: Meter,
    device: str,
) -> Made:
    """Fit a reward model and write it into ``folder``.

    Args:
        base: the model that it is fitted from, where its weights are, and how it reads.
        weights: what a stage learned from that model; None for the model itself.
        pairs: those of the file ``data``.
        task: name of the task that the pairs are about.

    Raises:
        StageFailed: its loss is not finite, it learned nothing, or no pair fits into its context.
    """
    card, location, reader = base
    model = load_scalar_model(location, f"model '{card.slug}'", new_head=True)
    if weights is not None:
        put_weights(model, weights, card.slug)
    parts = held_out(pairs, config.seed)
    rows = {split: token_pairs(part, reader, config.max_tokens) for split, part in parts.items()}
    if not all(rows.values()):
        raise StageFailed(
            f"{len(pairs)} pairs of {len({pair['key'] for pair in pairs})} problems leave none to "
            "fit on, or none to hold out, that fits into the context of the reward model"
        )
    sha256 = sha256_bytes(data)
    counts: dict[str, Any] = {
        "task": task,
        "train_sha256": sha256,
        "id_sha256": sha256,
        **{split: len(fitting) for split, fitting in rows.items()},
        "left_out": len(pairs) - sum(map(len, rows.values())),
        "limited": False,
    }
    try:
        model, scores = fit_rows(model.to(device), rows, config, reader, device)
        content = describe(card, reader, scores, None, counts, config)
    except ValidationError as error:
        raise StageFailed(str(error)) from None
    made = fill(folder, model, reader, content, getattr(torch, config.store))
    updates = -(-len(PairStream(rows["train"], config, reader.pad)) // config.accumulate)
    fitted = [row for pair in rows["train"] for row in pair]
    meter.fit(fitted, epochs=config.epochs, updates=updates)
    for part in rows.values():
        meter.score([row for pair in part for row in pair])
    facts = {
        "accuracy": made.accuracy.id,
        "held_out": len(rows["id"]),
        "fitted": len(rows["train"]),
    }
    return Made(meter.ledger(), facts)


def put_weights(model: ScalarModel, weights: Mapping[str, Tensor], slug: str) -> None:
    """Give a scalar model the weights that a policy learned, all but those of its head.

    Raises:
        ValidationError: the policy has no weights of that name.
    """
    learned = {name.removeprefix("model."): tensor for name, tensor in weights.items()}
    with torch.no_grad():
        for name, parameter in model.model.named_parameters():
            if name.startswith(("score.", "classifier.")):
                continue
            if name not in learned:
                raise ValidationError(
                    f"model '{slug}': a reward model of it has the weights {name}, which its "
                    "policy has not. Fit the reward model from another model: from = NAME."
                )
            parameter.copy_(learned[name])
