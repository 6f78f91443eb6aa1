"""Cards of tasks: the fields of ``frozen.toml`` and what each may hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import pydantic
from pydantic import Field

from crlbench.base.added import added
from crlbench.contract.card import Card, check_name, validate_card
from crlbench.contract.fields import (
    Address,
    Commit,
    Count,
    FileName,
    Inside,
    Sha256,
    Share,
    Slug,
    TaskKind,
    Text,
    Thinking,
    Version,
)
from crlbench.disk.hashing import digest
from crlbench.disk.names import CODE
from crlbench.disk.toml import read_toml
from crlbench.errors import ValidationError


class NullScores(Card):
    """Mean verifier score over a split of policies that know nothing."""

    empty: Share
    """No text at all."""
    constant: Share
    """The single answer that scores best over the split."""
    echo: Share
    """The user text itself."""
    random_format: Share
    """The answer of another item, drawn at random: the right shape, the wrong content."""
    random_legal: Share | None = added(None)
    """Of environments that list them: a legal text, drawn at random in each turn."""
    open_loop: Share | None = added(None)
    """Of environments: the best texts that are said in their order, whatever is observed."""


class SplitCard(Card):
    """One split file and what scores mean on it (protocol A.0: floor f, ceiling c)."""

    file: FileName
    sha256: Sha256
    count: Count
    levels: tuple[int, ...]
    max_prompt_bytes: Count
    """Longest user text."""
    max_answer_bytes: Count
    """Longest gold completion."""
    floor: Share
    """f: the best of the null policies."""
    ceiling: Share
    """c: the mean score of the gold completions."""
    nulls: NullScores


class GeneratorCard(Card):
    """What makes the split files: regenerating from it gives the same bytes."""

    module: FileName
    seed: int
    sha256: Sha256
    """Digest of the task's code and of the sources of crlbench that building uses."""


class VerifierCard(Card):
    """What scores a completion, and the independent second opinion."""

    entry: Text
    audit: Text
    reward_range: tuple[float, float]
    partial_credit: bool
    sha256: Sha256
    """Digest of the task's code and of the sources of crlbench.reward that verifying uses."""
    steps: bool = False
    """Whether it judges the steps of a completion, so that ``data.reward = "process"`` can be."""


class EnvironmentCard(Card):
    """The limits of an environment, as its code states them."""

    seats: Count
    max_turns: Count
    history: Literal["restate", "append"]
    max_observation_bytes: Count
    max_state_bytes: Count
    on_illegal: Literal["fault", "forfeit"]
    tools: tuple[Text, ...] = ()
    """Names of the declared tools."""
    panel: tuple[Text, ...] = ()
    """Names of the scripted seats."""


class SourceFile(Card):
    """One file of a published dataset."""

    sha256: Sha256
    """Digest of the uncompressed file."""
    bytes: Count
    """Size of the uncompressed file."""
    path: Text
    """Inside the origin; a path ending in ``.gz`` is uncompressed after its download."""
    origin: Address | None = None
    """Another repository than the source's."""
    commit: Commit | None = None
    """That repository's commit."""

    @pydantic.model_validator(mode="after")
    def _with_commit(self) -> SourceFile:
        if bool(self.origin) != bool(self.commit):
            raise ValueError("origin and commit belong together")
        return self


class DataSource(Card):
    """The published dataset that a task's split files are made from, away from the checkout."""

    origin: Address
    """Address of the repository."""
    commit: Commit
    licence: Text
    files: Annotated[dict[str, SourceFile], Field(min_length=1)]
    """Files by the names that the task's ``build`` uses."""

    @pydantic.field_validator("files")
    @classmethod
    def _plain_names(cls, files: dict[str, SourceFile]) -> dict[str, SourceFile]:
        for name in files:
            if not re.fullmatch(r"(?:\w[\w.-]*/)?\w[\w.-]*", name) or name.endswith(".gz"):
                raise ValueError(
                    f"'{name}' is not a plain file name without .gz, in one folder at most"
                )
        return files


class PairsCard(Card):
    """A file of preference pairs: on one prompt a better completion and a worse one."""

    file: FileName
    sha256: Sha256
    count: Count


class MapCard(Card):
    """The increasing map of a reward model's score into [0, 1]: sigmoid((s - center) / scale)."""

    center: float
    scale: Annotated[float, Field(gt=0.0)]


class LearnedRewardCard(Card):
    """The reward model that a task pays by, in place of its verifier."""

    path: Inside
    """Its folder, relative to the task's."""
    files: Annotated[dict[Inside, Sha256], Field(min_length=1)]
    """SHA-256 of every file of the folder: tokenizer, frame and end token decide rewards too."""
    map: MapCard


class PairCounts(Card):
    """Which pairs a reward model was fitted on."""

    task: Text
    train_sha256: Sha256
    id_sha256: Sha256
    train: Count
    """Pairs that were trained on; longer ones than ``max_tokens`` are left out."""
    id: Count
    """Held-out pairs that were scored."""
    left_out: Annotated[int, Field(ge=0)]
    """Pairs of both files that were too long."""
    limited: bool
    """Whether ``--limit`` shortened the files."""


class PairAccuracy(Card):
    """Share of pairs whose better completion has the higher score."""

    train: Share
    id: Share
    id_low: Share
    """Lower end of the 95 % Wilson interval of ``id``."""
    id_high: Share


class RewardCard(Card):
    """``reward.toml`` of a reward model, written by ``crlbench fit-reward``."""

    schema_version: Literal[1] = Field(alias="schema")
    base: Text
    """The model that it was fitted from."""
    base_revision: Text
    frame: Literal["terse", "plain", "chat"]
    thinking: Thinking = "n/a"
    context: Count
    """Longest sequence in tokens."""
    end_token: int
    pad_token: int
    weights_sha256: Sha256
    map: MapCard
    accuracy: PairAccuracy
    faults: dict[str, Share] | None = None
    """Share of audit pairs whose worse completion has the higher score, by fault."""
    pairs: PairCounts
    training: dict[str, Any]
    """The settings of ``fit-reward``."""


def unknown_kind(kind: object) -> str:
    """What is said of a kind of task that does not exist."""
    return (
        f"{kind!r:.80} is no kind of task that this crlbench knows; known: "
        f"{', '.join(get_args(TaskKind))}. Correct it, or update crlbench"
    )


class TaskCard(Card):
    """``tasks/<name>/frozen.toml``, written by ``crlbench freeze``."""

    schema_version: Literal[1] = Field(alias="schema")
    name: Slug
    version: Version
    tags: tuple[str, ...]
    summary: Text
    kind: TaskKind = added("single-turn")
    max_completion_bytes: Count
    licence: Text
    canary: Text
    contact: Text
    generator: GeneratorCard
    golds: bool = True
    """False where an answer says what a completion must obey and is no completion itself."""
    heavy: bool = False
    """Whether one verdict takes more than about a millisecond, so that checks sample rows."""
    relative: Slug | None = None
    """A task that shares items with this one on purpose: no board holds both."""
    source: DataSource | None = None
    """Set where the split files are made on the user's machine from a published dataset."""
    verifier: VerifierCard
    environment: EnvironmentCard | None = added(None)
    """Set where ``kind`` is ``environment``."""
    pairs: dict[Literal["train", "id", "audit"], PairsCard] | None = None
    """Preference pairs to fit reward models on, held-out ones, and ones of another source."""
    reward_model: LearnedRewardCard | None = None
    """Set where a learned reward is paid; ``verifier`` then only labelled the pairs."""
    splits: dict[str, SplitCard]

    @pydantic.field_validator("kind", mode="before")
    @classmethod
    def _known_kind(cls, kind: object) -> object:
        if kind not in get_args(TaskKind):
            raise ValueError(unknown_kind(kind))
        return kind

    @pydantic.field_validator("splits")
    @classmethod
    def _has_id(cls, splits: dict[str, SplitCard]) -> dict[str, SplitCard]:
        if "id" not in splits:
            raise ValueError("the split id is missing, which every task is measured on")
        return splits

    @pydantic.model_validator(mode="after")
    def _with_limits(self) -> TaskCard:
        if (self.kind == "environment") != (self.environment is not None):
            raise ValueError("the kind 'environment' and the table [environment] belong together")
        return self

    @property
    def floor(self) -> float:
        """f of the ID split."""
        return self.splits["id"].floor

    @property
    def ceiling(self) -> float:
        """c of the ID split."""
        return self.splits["id"].ceiling

    @property
    def digest(self) -> str:
        """SHA-256 over all that decides a score: prompts, answers, verifier, f, c, length."""
        splits = {
            name: [split.sha256, split.floor, split.ceiling] for name, split in self.splits.items()
        }
        leaves = [self.name, self.version, splits, self.verifier.sha256, self.max_completion_bytes]
        if self.reward_model is not None:
            leaves.append(self.reward_model.model_dump(mode="json"))
        return digest(leaves)


def read_task_card(path: Path) -> TaskCard:
    """The card of a ``frozen.toml``; its name must be that of its folder."""
    if not path.exists() and path.with_name(CODE).is_file():
        raise ValidationError(
            f"{path}: the file does not exist: the task was never frozen. Run: crlbench freeze"
            f" {path.parent}"
        )
    card = validate_card(TaskCard, read_toml(path), path)
    check_name(path, "name", card.name, path.parent.name, "its folder")
    return card
