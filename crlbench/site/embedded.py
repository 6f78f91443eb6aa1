"""Data as classic scripts, which a page that is opened from a disk may load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def literal(data: Any) -> str:
    """JSON in ASCII without a sign that ends a script: a literal, whatever a stranger wrote."""
    text = json.dumps(data, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return text.replace("<", "\\u003c")


def object_of(values: Mapping[str, str]) -> str:
    """What :func:`literal` writes for an object, from what it wrote for its values."""
    return "{" + ",".join(f"{literal(key)}:{values[key]}" for key in sorted(values)) + "}"


def script(name: str, data: Any, key: str | None = None) -> bytes:
    """``crlbench.<name> = data``, or with a key ``crlbench.<name>[key] = data``."""
    return script_of(name, literal(data), key)


def script_of(name: str, text: str, key: str | None = None) -> bytes:
    """The same of data that :func:`literal` has written."""
    target = f"crlbench.{name}"
    lines = ["window.crlbench = window.crlbench || {};"]
    if key is not None:
        lines.append(f"{target} = {target} || {{}};")
        target += f"[{literal(key)}]"
    return "\n".join([*lines, f"{target} = {text};", ""]).encode()
