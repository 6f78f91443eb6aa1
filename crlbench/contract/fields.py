"""Types of fields that strangers fill in: what each may hold, and the rule in words."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import pydantic
from pydantic import Field

from crlbench.errors import UsageError

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
CHECKPOINT = r"^i(0|[1-9][0-9]{0,2})o(0|[1-9][0-9]{0,2})$"
PACKAGE_NAME = r"^(@[A-Za-z0-9][A-Za-z0-9._-]*/)?[A-Za-z0-9][A-Za-z0-9._-]*$"
PACKAGE_VERSION = r"^[A-Za-z0-9][A-Za-z0-9.+!_-]*$"
Line = Annotated[str, Field(pattern=LINE, max_length=4000)]
"""Text of one line, as strangers may write it: terminals and tables show it."""
FieldName = Annotated[str, Field(pattern=FIELD_NAME, max_length=100)]
FileName = Annotated[str, Field(pattern=FILE_NAME, max_length=255)]
SideName = Annotated[str, Field(pattern=SIDE_NAME, max_length=255)]
CheckpointName = Annotated[str, Field(pattern=CHECKPOINT)]
"""A pretraining of a design: initialisation and order of the corpus, by number."""
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
    CHECKPOINT: "the initialisation and the corpus order of a pretraining, as i0o1",
    PACKAGE_NAME: "a package as its registry calls it",
    PACKAGE_VERSION: "a version as the registry calls it",
}
"""Patterns in words, for messages."""


def check_slug(name: str, what: str) -> None:
    """Refuse a name that no task can have; ``what`` is how the message calls it.

    Raises:
        UsageError: with what is allowed and the nearest name that is.
    """
    if not re.fullmatch(SLUG, name):
        near = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")
        hint = f" Did you mean {near}?" if near else ""
        raise UsageError(f"{what} is not allowed; allowed: {RULES[SLUG]}.{hint}")


def _inside(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/") or "\\" in path or "\0" in path:
        raise ValueError(f"{path!r:.80} leads out of its folder")
    return path


Inside = Annotated[Text, pydantic.AfterValidator(_inside)]
"""A path below a folder, with forward slashes."""
TaskKind = Literal["single-turn", "environment"]
"""What a policy does in a task: ``single-turn`` answers a prompt once, ``environment`` plays an
episode of several turns."""
