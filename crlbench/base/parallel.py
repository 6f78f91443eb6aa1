"""One function over many things, by as many processes as there are cores."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

T, R = TypeVar("T"), TypeVar("R")

on_one_thread = threadpool_limits.wrap(limits=1, user_api="blas")
"""Decorator: one BLAS thread, so results are bitwise equal on any number of cores."""

FEW = 8
"""Fewer things are not worth a process."""

_work: Callable[[Any], Any]
_things: Sequence[Any]
"""The work and the things of a process that was forked for them."""


def spread(work: Callable[[T], R], things: Sequence[T], jobs: int | None = None) -> list[R]:
    """``work`` of each thing, in their order; of several errors the first.

    Processes are forked, so that they share what was read and nothing but results is sent; where
    a system cannot fork, and in a process that was forked here, one process does it all.

    Args:
        jobs: processes; as many as there are cores where it is None.
    """
    return [*each_of(work, things, jobs)]


def each_of(
    work: Callable[[T], R], things: Sequence[T], jobs: int | None = None, few: int = FEW
) -> Iterator[R]:
    """The same, one result after the other as they come, in the order of the things.

    Args:
        few: with fewer things one process does it all.
    """
    count = jobs or os.cpu_count() or 1
    alone = multiprocessing.current_process().daemon
    alone = alone or "fork" not in multiprocessing.get_all_start_methods()
    if alone or count < 2 or len(things) < few:
        yield from map(work, things)
        return
    context = multiprocessing.get_context("fork")
    with context.Pool(count, _remember, (work, things)) as pool:
        yield from pool.imap(_nth, range(len(things)))


def _remember(work: Callable[[Any], Any], things: Sequence[Any]) -> None:
    global _work, _things
    _work, _things = work, things
    # Processes have the cores already: threads of theirs would fight one another for them.
    threadpool_limits(1)
    # What was read before stays shared: the collector would write into all of it.
    gc.freeze()


def _nth(index: int) -> Any:
    return _work(_things[index])
