"""A learned reward: a language model with one scalar head that scores whole completions.

The score of a completion is read at its end token, so it depends on nothing behind it. A
reward is a fixed increasing map of the score into [0, 1], stored beside the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from crlbench.base.wording import one_line
from crlbench.contract.card import validate_card
from crlbench.contract.task_card import RewardCard
from crlbench.disk.hashing import sha256_file
from crlbench.disk.toml import read_toml
from crlbench.errors import EnvironmentUnfit, ValidationError
from crlbench.policy.text.chat import Message, render
from crlbench.policy.weights.files import is_out_of_reach
from crlbench.policy.weights.load import Location, Reader, without_dropout
from crlbench.policy.weights.tensors import silent

CARD = "reward.toml"
WEIGHTS = "model.safetensors"
ROWS = 64
"""Rows scored at once; they are sorted by length first, so few of their tokens are padding."""


class ScalarModel(nn.Module):
    """A sequence classifier with one output, read at the last real token of each row."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model: Any = without_dropout(model)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B,) float32 scores of right padded rows: (B, S) int64 ids, (B, S) bool mask.

        Decoders are read at the last position of the mask: transformers would look for the
        padding id instead, and miss the end token where both are one. Encoders, which attend
        in both directions, keep their own pooling.
        """
        head = getattr(self.model, "score", None)
        attention = mask.long()
        if head is None:
            return self.model(input_ids=ids, attention_mask=attention).logits.squeeze(-1).float()
        states = self.model.base_model(input_ids=ids, attention_mask=attention).last_hidden_state
        last = (mask.sum(1) - 1).clamp(min=0)
        return head(states[torch.arange(len(ids), device=ids.device), last]).squeeze(-1).float()


def load_scalar_model(location: Location, what: str, *, new_head: bool) -> ScalarModel:
    """A checkpoint as a float32 scalar model.

    ``new_head`` takes a language model's weights and puts a head of zeros on them; otherwise
    the head must be in the checkpoint. ``what`` names the model in messages. Only safetensors
    are read.

    Raises:
        ValidationError: the checkpoint cannot be loaded, is no safetensors file, or lacks weights.
    """
    options = {"num_labels": 1, "dtype": torch.float32, "use_safetensors": True}
    try:
        with silent():
            model, report = AutoModelForSequenceClassification.from_pretrained(
                location.name,
                revision=location.revision,
                output_loading_info=True,
                trust_remote_code=False,
                **options,
            )
    except Exception as error:
        if is_out_of_reach(error):
            raise EnvironmentUnfit(
                f"{what}: {location.name} cannot be had: the hub is out of reach and nothing is "
                "cached. Give a local folder."
            ) from error
        raise ValidationError(
            f"{what}: {location.name} cannot be loaded as a sequence classifier: {one_line(error)}"
        ) from error
    heads = {name for name in report["missing_keys"] if name.startswith(("score.", "classifier."))}
    missing = sorted(set(report["missing_keys"]) - (heads if new_head else set()))
    if missing:
        raise ValidationError(
            f"{what}: {location.name} lacks weights for {', '.join(missing[:3])}"
            f"{' and more' if len(missing) > 3 else ''}: "
            + ("it is no language model." if new_head else "it is no trained reward model.")
        )
    if new_head:
        for name, parameter in model.named_parameters():
            if name in heads:
                nn.init.zeros_(parameter)
    return ScalarModel(model).eval()


@dataclass(frozen=True)
class RewardMap:
    """sigmoid((score - center) / scale): increasing, and within [0, 1]."""

    center: float
    scale: float

    def __call__(self, scores: Tensor) -> Tensor:
        """Float64 rewards of the shape of ``scores``."""
        return torch.sigmoid((scores.double() - self.center) / self.scale)

    @staticmethod
    def of(scores: Tensor) -> RewardMap:
        """The map under which ``scores`` (N,) are centred at 1/2 and one standard deviation
        above the mean earns sigmoid(2) = 0.88.

        Raises:
            ValidationError: all scores are equal, or one is not finite.
        """
        spread = scores.double().std(correction=0)
        if not torch.isfinite(scores).all() or not spread > 0:
            raise ValidationError(
                "the reward model learned nothing: its scores of the training pairs are "
                f"{'all equal' if spread == 0 else 'not finite'}. Change learning_rate or epochs."
            )
        return RewardMap(float(scores.double().mean()), float(spread) / 2)


@dataclass(frozen=True, eq=False)
class RewardModel:
    """A scalar model with its tokenizer and its map; deterministic, without gradients."""

    model: ScalarModel
    reader: Reader
    map: RewardMap

    def rewards(self, prompts: Sequence[Sequence[int]], texts: Sequence[str]) -> list[float]:
        """Rewards in [0, 1] of completions as text; ``prompts`` as :func:`prompt_ids` makes."""
        pairs = zip(prompts, texts, strict=True)
        rows = [completion_row(prompt, text, self.reader) for prompt, text in pairs]
        return self.map(self.scores(rows)).tolist()

    def scores(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """(N,) float32 scores of token rows on the CPU, before the map."""
        return score_rows(self.model, rows, self.reader.pad)


def prompt_ids(messages: Sequence[Message], reader: Reader) -> tuple[int, ...]:
    """Token ids of a prompt in the frame the reward model was trained with.

    Raises:
        ValidationError: the prompt alone fills the model's context.
    """
    ids = tuple(render(messages, reader.frame, reader.tokenizer, reader.thinking))
    if len(ids) >= reader.context:
        raise ValidationError(
            f"a prompt has {len(ids)} tokens; the reward model's context is {reader.context}, and "
            "a prompt is never cut."
        )
    return ids


def completion_row(prompt: Sequence[int], text: str, reader: Reader) -> tuple[int, ...]:
    """Prompt, completion and end token; a completion beyond the context is cut."""
    ids = reader.tokenizer(text, add_special_tokens=False)["input_ids"]
    room = reader.context - len(prompt) - 1
    return (*prompt, *ids[:room], reader.ends[0])


def right_pad(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """(B, S) int64 ids and (B, S) bool mask, real tokens at the left."""
    width = max(len(row) for row in rows)
    ids = torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows], dtype=torch.int64)
    lengths = torch.tensor([len(row) for row in rows])
    return ids, torch.arange(width) < lengths[:, None]


@torch.no_grad()
def score_rows(model: ScalarModel, rows: Sequence[Sequence[int]], pad: int) -> Tensor:
    """(N,) float32 scores on the CPU; equal rows are scored once.

    In float32 whatever autocast is active around the call: rewards are part of what is
    compared, the precision of the policy is not theirs.
    """
    device = next(model.parameters()).device
    distinct = sorted(set(map(tuple, rows)), key=lambda row: (len(row), row))
    by_row: dict[tuple[int, ...], float] = {}
    model.eval()
    with torch.autocast(device.type, enabled=False):
        for start in range(0, len(distinct), ROWS):
            part = distinct[start : start + ROWS]
            ids, mask = right_pad(part, pad)
            scores = model(ids.to(device), mask.to(device)).cpu().tolist()
            by_row |= dict(zip(part, scores, strict=True))
    return torch.tensor([by_row[tuple(row)] for row in rows], dtype=torch.float32)


def read_card(folder: Path) -> RewardCard:
    """What a reward model's folder says about itself."""
    if not (folder / CARD).is_file():
        raise ValidationError(
            f"{folder}: no reward model: {CARD} is missing. Make one: crlbench fit-reward"
            " --model X --pairs T --out DIR"
        )
    return validate_card(RewardCard, read_toml(folder / CARD), folder / CARD)


def file_digests(folder: Path) -> dict[str, str]:
    """SHA-256 by name of all files of a reward model's folder; hidden ones are not read."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    return {
        name: sha256_file(path)
        for name, path in sorted(paths.items())
        if path.is_file() and not any(part.startswith(".") for part in name.split("/"))
    }


def load_reward_reader(folder: Path) -> Reader:
    """How a reward model reads prompts and completions, without its weights."""
    card = read_card(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
    return Reader(
        tokenizer, card.frame, (card.end_token,), card.pad_token, card.context, card.thinking
    )


def load_reward_model(folder: Path, device: str = "cpu") -> RewardModel:
    """The reward model in a folder that ``crlbench fit-reward`` wrote.

    Raises:
        ValidationError: the folder is incomplete, or its weights are not those of its card.
    """
    card = read_card(folder)
    weights = folder / WEIGHTS
    if not weights.is_file():
        raise ValidationError(f"{weights} is missing: a reward model's weights are safetensors.")
    if (digest := sha256_file(weights)) != card.weights_sha256:
        raise ValidationError(
            f"{weights} was changed: its sha256 is {digest}, {CARD} says {card.weights_sha256}."
        )
    model = load_scalar_model(Location(str(folder)), f"reward model {folder}", new_head=False)
    reward_map = RewardMap(card.map.center, card.map.scale)
    return RewardModel(model.to(device), load_reward_reader(folder), reward_map)
