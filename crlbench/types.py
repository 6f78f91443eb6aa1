"""The tensors that flow through one iteration.

P prompts, G completions per prompt, B = P * G rows; L prompt length (left padded), T
completion length (right padded). Every mask is True where the position is real.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

X = TypeVar("X")

CHECKED = os.environ.get("CRLBENCH_CHECK_SHAPES") == "1"
"""Whether rollouts and experience check their shapes and types when they are made."""


@dataclass(frozen=True)
class PromptBatch:
    """What the prompt stream hands to one iteration."""

    iteration: int
    uids: list[str]
    """P names, ``task/split/id``: the identity every keyed draw uses."""
    prompt_ids: Tensor
    """(P, L) int64, left padded."""
    prompt_mask: Tensor
    """(P, L) bool."""
    answers: list[Any]
    """P, opaque to everyone but the verifier."""
    completions_per_prompt: int = 1
    """G."""

    def to(self, device: torch.device | str, **_: Any) -> PromptBatch:
        """The same batch on a device; Lightning moves batches by this method."""
        ids, mask = self.prompt_ids.to(device), self.prompt_mask.to(device)
        return replace(self, prompt_ids=ids, prompt_mask=mask)

    def part(self, places: range) -> PromptBatch:
        """The prompts at some consecutive places, padded as all are."""
        some = slice(places.start, places.stop)
        return replace(
            self,
            uids=self.uids[some],
            prompt_ids=self.prompt_ids[some],
            prompt_mask=self.prompt_mask[some],
            answers=self.answers[some],
        )


@dataclass(frozen=True)
class Rollout:
    """Sampled completions; rows of one prompt stand together in prompt order.

    They lie on the host, as all that is computed of them does but the passes of a model.
    """

    prompt_ids: Tensor
    """(B, L) int64, left padded."""
    prompt_mask: Tensor
    """(B, L) bool."""
    completion_ids: Tensor
    """(B, T) int64, right padded."""
    completion_mask: Tensor
    """(B, T) bool, the end token included."""
    action_mask: Tensor
    """(B, T) bool: tokens that the policy chose. The others of a completion were put there by an
    environment: they are read, and nothing is learned from them."""
    behavior_logprobs: Tensor
    """(B, T) float32, at the sampling temperature; 0 outside ``completion_mask``."""
    group: Tensor
    """(B,) int64 in [0, P): the rows that are compared with one another."""
    finished: Tensor
    """(B,) bool: ended by an end token, not cut off."""
    texts: list[str]
    """B completion texts, without special tokens. Of a row with several turns a JSON list of what
    was said in them."""
    behavior_values: Tensor | None = None
    """(B, T) float32 critic estimates of the state before each token, as decoding saw it; 0
    outside ``completion_mask``. None without a critic."""
    prompt: Tensor | None = None
    """(B,) int64: the distinct prompt that a row reads. None where that is its group."""
    trajectory: Tensor | None = None
    """(B,) int64: rows of one agent's way through an episode; they stand together, in order. None
    where every row is one."""
    episode: Tensor | None = None
    """(B,) int64: the episode of a row. None where every row is one."""
    seat: Tensor | None = None
    """(B,) int64: who acts in a row. None where there is one actor."""
    turn: Tensor | None = None
    """(B, T) int16: the turn of each action token, -1 elsewhere. None where there is one turn."""
    state: Tensor | None = None
    """(B, T) int64: a digest of the state in which the turn of each action token was said, 0 or
    more; -1 elsewhere, and where nobody knows it. None where no row has one."""

    def __post_init__(self) -> None:
        if CHECKED:
            _check_rollout(self)

    @property
    def prompts(self) -> Tensor:
        """(B,) int64: which distinct prompt each row reads."""
        return self.group if self.prompt is None else self.prompt

    @property
    def episodes(self) -> int:
        """How many episodes the rows are of: what a budget counts."""
        return len(self.texts if self.episode is None else self.episode.unique())

    def stated(self, names: Collection[str] | None = None) -> Rollout:
        """The same rows with what None stands for written, in the fields of these names (all)."""
        rows = torch.arange(len(self.texts), device=self.group.device)
        turn = torch.where(self.action_mask, 0, -1).to(torch.int16)
        unknown = torch.full_like(self.completion_ids, -1)
        defaults: dict[str, Any] = {
            "prompt": self.group, "trajectory": rows, "episode": rows,
            "seat": torch.zeros_like(rows), "turn": turn, "state": unknown,
        }  # fmt: skip
        chosen = defaults.keys() if names is None else names
        absent = {name for name in chosen if getattr(self, name) is None}
        return replace(self, **{name: defaults[name] for name in absent})

    def rows(self, index: Tensor) -> Rollout:
        """The sub-rollout of the given rows; ``index`` is int64 (b,)."""
        picked = {
            f.name: getattr(self, f.name)[index]
            for f in fields(self)
            if isinstance(getattr(self, f.name), Tensor)
        }
        return replace(self, texts=[self.texts[i] for i in index.tolist()], **picked)

    @staticmethod
    def concatenate(rollouts: Sequence[Rollout], pad: int = 0) -> Rollout:
        """The rows of several rollouts, each of at least one row; their groups, prompts,
        trajectories and episodes are counted on, so that they stay apart.

        ``pad`` stands where a rollout is narrower than another.

        Raises:
            ValueError: some of them have ``behavior_values``, and others have not.
        """
        known = {name for r in rollouts for name in _OPTIONAL if getattr(r, name) is not None}
        names = known & {"state"} | ({*_NUMBERS} if known & {*_NUMBERS} else set())
        rollouts = [r.stated(names) for r in rollouts]
        columns = {
            name: all_or_none(f"Rollout.{name}", [getattr(r, name) for r in rollouts])
            for name in _ROLLOUT_FIELDS - {"texts"}
        }
        present = {name: tensors for name, tensors in columns.items() if tensors is not None}
        left = {"prompt_ids", "prompt_mask"}
        fill = {"prompt_ids": pad, "completion_ids": pad} | dict.fromkeys(_ABSENT, -1)
        wide: dict[str, Any] = {
            name: joined(present[name], left=name in left, pad=fill.get(name, 0))
            for name in ("prompt_ids", "prompt_mask", *sorted(_PER_TOKEN & present.keys()))
        }
        counted = {name: _counted_on(present[name]) for name in _NUMBERED & present.keys()}
        plain = {name: torch.cat(present[name]) for name in {"finished", "seat"} & present.keys()}
        texts = [text for r in rollouts for text in r.texts]
        return Rollout(**wide, **counted, **plain, texts=texts)

    def trimmed(self, width: int) -> Rollout:
        """The same rows with completions cut to their first ``width`` columns."""
        return replace(self, **_columns(self, width))

    def longer(self) -> Rollout:
        """The same rows with one real token more, of id 0, that is no action.

        A critic estimates the state before each token: at this one, the state after the last.
        """
        wide: dict[str, Any] = {
            name: torch.nn.functional.pad(tensor, (0, 1), value=-1 if name in _ABSENT else 0)
            for name in _PER_TOKEN & _ROLLOUT_FIELDS
            if (tensor := getattr(self, name)) is not None
        }
        lengths = self.completion_mask.sum(1, keepdim=True)
        mask = wide.pop("completion_mask").scatter(1, lengths, True)
        return replace(self, completion_mask=mask, **wide)


@dataclass(frozen=True)
class Experience:
    """A rollout with everything the loss needs; sliced into minibatches by row."""

    rollout: Rollout
    rewards: Tensor
    """(B,) float32, the outcome reward; NaN where undefined."""
    token_rewards: Tensor
    """(B, T) float32: outcome on the last valid token, step rewards, KL in the reward."""
    old_logprobs: Tensor
    """(B, T) float32, the learner's before the first update of the iteration."""
    ref_logprobs: Tensor | None
    """(B, T) float32 of the frozen reference, or None without KL."""
    values: Tensor | None
    """(B, T) float32 critic estimates of the state before each token, or None."""
    returns: Tensor | None
    """(B, T) float32 value targets, or None."""
    advantages: Tensor
    """(B, T) float32, exactly 0 outside the action mask."""
    keep: Tensor
    """(B,) bool: the sample filter's verdict; rows with NaN are dropped here and counted."""
    value_mask: Tensor | None = None
    """(B, T) bool: tokens at which the critic learns. None: all that the policy chose."""

    def __post_init__(self) -> None:
        if CHECKED:
            _check(self, "Experience", self.rollout.completion_ids.shape, _OF_EXPERIENCE)

    def rows(self, index: Tensor) -> Experience:
        """The sub-experience of the given rows; ``index`` is int64 (b,)."""
        picked = {
            f.name: getattr(self, f.name)[index]
            for f in fields(self)
            if isinstance(getattr(self, f.name), Tensor)
        }
        return replace(self, rollout=self.rollout.rows(index), **picked)

    def trimmed(self) -> Experience:
        """The same rows without the columns that are padding in all of them."""
        width = max(1, int(self.rollout.completion_mask.sum(dim=1).max()))
        return replace(self, rollout=self.rollout.trimmed(width), **_columns(self, width))


_PER_TOKEN = {
    "completion_ids",
    "completion_mask",
    "action_mask",
    "behavior_logprobs",
    "behavior_values",
    "token_rewards",
    "old_logprobs",
    "ref_logprobs",
    "values",
    "returns",
    "advantages",
    "value_mask",
    "turn",
    "state",
}
"""Fields of shape (B, T)."""
_ABSENT = {"turn", "state"}
"""Those of them that are -1 where there is nothing."""
_NUMBERED = {"group", "prompt", "trajectory", "episode"}
"""Fields (B,) that number things of one rollout."""
_NUMBERS = ("prompt", "trajectory", "episode", "seat", "turn")
"""Fields that a rollout of single turns leaves out: where one is stated, all are."""
_OPTIONAL = (*_NUMBERS, "state")
_ROLLOUT_FIELDS = {f.name for f in fields(Rollout)}


def _columns(record: Rollout | Experience, width: int) -> dict[str, Any]:
    """The (B, T) fields of a record, each cut to (B, width)."""
    names = _PER_TOKEN & {f.name for f in fields(record)}
    return {n: v[:, :width] for n in names if (v := getattr(record, n)) is not None}


def joined(tensors: Sequence[Tensor], left: bool = False, pad: int = 0) -> Tensor:
    """Rows of several (b, t) tensors below one another, padded with ``pad`` to the widest.

    ``left`` puts the padding in front.
    """
    width = max(tensor.shape[1] for tensor in tensors)
    padded = [
        torch.nn.functional.pad(
            t, (width - t.shape[1], 0) if left else (0, width - t.shape[1]), value=pad
        )
        for t in tensors
    ]
    return torch.cat(padded)


def all_or_none(name: str, parts: Sequence[X | None]) -> list[X] | None:
    """What each of several parts has of one thing; None where none has it.

    Raises:
        ValueError: some have it and others have not; joined, it would belong to the wrong rows.
    """
    present = [part for part in parts if part is not None]
    if present and len(present) < len(parts):
        raise ValueError(
            f"{name}: {len(present)} of {len(parts)} parts that are joined have it; expected all "
            "or none"
        )
    return present or None


def _counted_on(numbers: Sequence[Tensor]) -> Tensor:
    """(B,) int64: numbers (b,) of several rollouts, each from 0 and counted on from the last."""
    moved, count = [], 0
    for part in numbers:
        _, compact = torch.unique(part, return_inverse=True)
        moved.append(compact + count)
        count += int(compact.max()) + 1
    return torch.cat(moved)


def as_bool(mask: Tensor) -> Tensor:
    """A mask as bool, whatever numeric dtype it came in."""
    return mask if mask.dtype == torch.bool else mask != 0


_OF_ROLLOUT: dict[str, tuple[str, torch.dtype | None]] = {
    "prompt_mask": ("BL", torch.bool),
    "prompt_ids": ("BL", torch.int64),
    "completion_ids": ("BT", torch.int64),
    "completion_mask": ("BT", torch.bool),
    "action_mask": ("BT", torch.bool),
    "behavior_logprobs": ("BT", None),
    "behavior_values": ("BT", None),
    "group": ("B", torch.int64),
    "finished": ("B", torch.bool),
    "prompt": ("B", torch.int64),
    "trajectory": ("B", torch.int64),
    "episode": ("B", torch.int64),
    "seat": ("B", torch.int64),
    "turn": ("BT", torch.int16),
    "state": ("BT", torch.int64),
}
"""Dimensions and type by field; None is any floating-point type."""
_OF_EXPERIENCE: dict[str, tuple[str, torch.dtype | None]] = {
    "rewards": ("B", None),
    "token_rewards": ("BT", None),
    "old_logprobs": ("BT", None),
    "ref_logprobs": ("BT", None),
    "values": ("BT", None),
    "returns": ("BT", None),
    "advantages": ("BT", None),
    "keep": ("B", torch.bool),
    "value_mask": ("BT", torch.bool),
}


def _check_rollout(rollout: Rollout) -> None:
    if rollout.completion_ids.dim() != 2:
        shape = tuple(rollout.completion_ids.shape)
        raise ValueError(f"Rollout.completion_ids: {shape}, expected (B, T)")
    _check(rollout, "Rollout", rollout.completion_ids.shape, _OF_ROLLOUT)
    if len(rollout.texts) != len(rollout.group):
        raise ValueError(f"Rollout: {len(rollout.texts)} texts of {len(rollout.group)} rows")
    if bool((as_bool(rollout.action_mask) & ~as_bool(rollout.completion_mask)).any()):
        raise ValueError("Rollout: action_mask has tokens that completion_mask has not")
    if rollout.turn is not None:
        expected = torch.where(as_bool(rollout.action_mask), rollout.turn.clamp(min=0), -1)
        if not torch.equal(rollout.turn, expected):
            raise ValueError("Rollout.turn: expected 0 or more in action_mask, -1 elsewhere")
    if rollout.state is not None and bool(
        (torch.where(as_bool(rollout.action_mask), -1, rollout.state) != -1).any()
    ):
        raise ValueError("Rollout.state: expected -1 outside action_mask")


def _check(
    record: Any, name: str, shape: torch.Size, wanted: Mapping[str, tuple[str, torch.dtype | None]]
) -> None:
    """Raise ValueError for a field of another shape or type; a number per dimension's name."""
    sizes = {"B": shape[0], "T": shape[1]}
    for field_name, (dimensions, dtype) in wanted.items():
        tensor = getattr(record, field_name)
        if tensor is None:
            continue
        lengths = list(tensor.shape)
        expected = [sizes.setdefault(d, n) for d, n in zip(dimensions, lengths, strict=False)]
        typed = tensor.is_floating_point() if dtype is None else tensor.dtype == dtype
        if lengths != expected or len(lengths) != len(dimensions) or not typed:
            raise ValueError(
                f"{name}.{field_name}: {tuple(lengths)} {tensor.dtype}, expected "
                f"({', '.join(dimensions)}) = {tuple(expected)} {dtype or 'of floats'}"
            )
