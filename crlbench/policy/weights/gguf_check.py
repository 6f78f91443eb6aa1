"""Whether a GGUF file holds what it states, and whether a model made of it uses all its numbers.

gguf's own reader walks as many elements as a file states, past the end of the file. Layout: the
specification of GGUF, versions 2 and 3, at https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
transformers takes the tensors that it has a place for and leaves the others, without a report.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from crlbench.errors import ValidationError

_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a value of each plain type."""
_TEXT, _LIST = 8, 9
_MOST_NESTED = 4
_MOST_AXES = 8


class _Walk:
    """A position in the bytes of a file, which may not pass their end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def take(self, form: str) -> int:
        (value,) = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return value

    def skip(self, size: int) -> None:
        self.at += size
        if self.at > len(self.data):
            raise ValueError("it ends before what it states")

    def value(self, kind: int, depth: int = 0) -> None:
        if kind == _TEXT:
            self.skip(self.take("Q"))
        elif kind == _LIST and depth < _MOST_NESTED:
            inner, count = self.take("I"), self.take("Q")
            if inner in _SIZES:
                self.skip(count * _SIZES[inner])
            else:
                for _ in range(self.counted(count)):
                    self.value(inner, depth + 1)
        elif kind in _SIZES:
            self.skip(_SIZES[kind])
        else:
            raise ValueError(f"a value of the type {kind}")

    def counted(self, count: int) -> int:
        """A number of elements, each of which takes a byte at least."""
        if count > len(self.data) - self.at:
            raise ValueError(f"it states {count} elements, more than it has bytes")
        return count


def check_gguf(file: Path) -> None:
    """Refuse a file whose header states more than the file holds.

    Raises:
        ValidationError: it does, or it is no GGUF file.
    """
    try:
        with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as data:
            if data[:4] != b"GGUF":
                raise ValueError("it does not begin with GGUF")
            _check(_Walk(data))
    except (OSError, ValueError, struct.error) as error:
        raise ValidationError(f"{file.name}: is not a GGUF file: {error}.") from None


def _check(walk: _Walk) -> None:
    walk.skip(4)
    version, tensors, fields = walk.take("I"), walk.take("Q"), walk.take("Q")
    if version not in (2, 3):
        raise ValueError(f"version {version}; versions 2 and 3 in little-endian order are read")
    for _ in range(walk.counted(fields)):
        walk.value(_TEXT)
        walk.value(walk.take("I"))
    for _ in range(walk.counted(tensors)):
        walk.value(_TEXT)
        axes = walk.take("I")
        if axes > _MOST_AXES:
            raise ValueError(f"a tensor of {axes} axes")
        walk.skip(8 * axes + 4 + 8)


BLOCK = re.compile(r"blk\.(\d+)\.")
FACTORS = re.compile(r"rope_(freqs|factors_long|factors_short)\.weight$")
"""Factors of rotary frequencies, which transformers does not read; ones change nothing."""
OUTPUT = "output.weight"
SCALED = "rope.scaling.type"
UNSCALED = ("none", "")


def check_rest(file: Path, model: Any, tied: bool) -> None:
    """Refuse a file that holds more weights, or another rotary scaling, than the model.

    ``tied``: whether the model's two embeddings are one matrix, of which some files have a copy.

    Raises:
        ValidationError: names what would be left out.
    """
    from gguf import GGUFReader

    read = GGUFReader(file)
    config = model.config
    _check_scaling(file, read.fields, config)
    for tensor in read.tensors:
        if FACTORS.search(tensor.name) and not np.all(np.asarray(tensor.data) == 1):
            _refuse(file, f"{tensor.name}, the factors of its rotary frequencies,")
    counts = {
        tensor.name: int(tensor.n_elements)
        for tensor in read.tensors
        if not FACTORS.search(tensor.name) and not (tied and tensor.name == OUTPUT)
    }
    layers = config.get_text_config().num_hidden_layers
    for name in counts:
        if (place := BLOCK.match(name)) and int(place[1]) >= layers:
            _refuse(file, f"{name}, of a layer beyond the {layers} that it states,")
    used = sum(p.numel() for p in model.parameters())
    if sum(counts.values()) > used:
        _refuse(file, f"{sum(counts.values()) - used:,} weights more than its {used:,}")


def _check_scaling(file: Path, fields: Mapping[str, Any], config: Any) -> None:
    field = fields.get(f"{fields['general.architecture'].contents()}.{SCALED}")
    kind = "" if field is None else str(field.contents())
    read = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if kind not in UNSCALED and read == "default":
        _refuse(file, f"{SCALED} = {kind:.40}")


def _refuse(file: Path, what: str) -> None:
    raise ValidationError(
        f"{file.name}: holds {what} which transformers would leave out: the model would not be the "
        "one that the file holds. Take the checkpoint that it was made from, as safetensors."
    )
