"""Entries between processes that hold the same runs: a run is sent as its place among them."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

from crlbench.verdict.runs import Run


def sent(thing: Any, places: Mapping[int, int]) -> bytes:
    """A thing as bytes.

    Args:
        places: of the runs that the receiver has, by their identity.
    """
    text = io.BytesIO()
    _Sender(text, places).dump(thing)
    return text.getvalue()


def received(data: bytes, runs: Sequence[Run]) -> Any:
    """The thing, with the runs of this process in place of those that were sent."""
    return _Receiver(io.BytesIO(data), runs).load()


class _Sender(pickle.Pickler):
    def __init__(self, file: io.BytesIO, places: Mapping[int, int]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._places = places

    def persistent_id(self, thing: Any) -> int | None:
        return self._places.get(id(thing)) if isinstance(thing, Run) else None


class _Receiver(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, runs: Sequence[Run]) -> None:
        super().__init__(file)
        self._runs = runs

    def persistent_load(self, place: int) -> Run:
        return self._runs[place]
