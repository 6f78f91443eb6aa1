"""From the figures of single processes to medians, paired ratios and a table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from floor import Operations

Figures = dict[str, Any]
"""What a runner printed."""

NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    name: str
    unit: str
    lower_is_better: bool
    digits: int
    times: bool = True
    """The ratio is how many times we are better, or else our share of the peer's."""


SECONDS = Figure("seconds an iteration", "s", True, 2)
SAMPLES = Figure("samples a second", "1/s", False, 2)
DECODE = Figure("decode tokens a second", "1/s", False, 0)
UPDATE = Figure("update tokens a second", "1/s", False, 0)
MEMORY = Figure("peak resident memory", "GB", True, 2, times=False)
DEVICE = Figure("peak device memory", "GB", True, 2, times=False)
SHARE = Figure("share of time in decode", "", True, 2, times=False)
FLOOR = Figure("ratio to the FLOP floor", "", True, 2, times=False)
MFU = Figure("MFU of the update", "", False, 3, times=False)
FIGURES = (SECONDS, SAMPLES, DECODE, UPDATE, MEMORY, DEVICE, SHARE, FLOOR, MFU)
ON_GPU = (DECODE, UPDATE, DEVICE, SHARE, MFU)
"""What is reported of a GPU where there is none to measure."""
WITHOUT_RATIO = (SHARE, FLOOR, MFU)


def values(figures: Figures, rows: int, operations: Operations, peak: float) -> dict[str, float]:
    """The table's figures of one process; medians over its timed iterations.

    Args:
        rows: completions of an iteration.
        operations: of an iteration at the floor.
        peak: operations a second of this machine in the run's precision.
    """
    middle = {name: statistics.median(figures[name]) for name in ("iteration_s", "tokens")}
    decode, update = (statistics.median(figures[name]) for name in ("decode_s", "update_s"))
    found = {
        SECONDS.name: middle["iteration_s"],
        SAMPLES.name: rows / middle["iteration_s"],
        DECODE.name: middle["tokens"] / decode,
        UPDATE.name: middle["tokens"] / update,
        MEMORY.name: figures["peak_rss_bytes"] / 1e9,
        SHARE.name: decode / middle["iteration_s"],
        FLOOR.name: middle["iteration_s"] / (operations.total / peak),
        MFU.name: (operations.reference + operations.update) / update / peak,
    }
    if figures["peak_device_bytes"] is not None:
        found[DEVICE.name] = figures["peak_device_bytes"] / 1e9
    return found


def paired_ratios(
    figure: Figure, ours: Sequence[dict[str, float]], peer: Sequence[dict[str, float]]
) -> list[float]:
    """One ratio a round, ours and the peer's of the same round; empty where not measured."""
    ratios = []
    for mine, other in zip(ours, peer, strict=True):
        if figure.name in mine and figure.name in other:
            a, b = mine[figure.name], other[figure.name]
            ratios.append(b / a if figure.times and figure.lower_is_better else a / b)
    return ratios


def table(
    ours: Sequence[dict[str, float]],
    peers: dict[str, Sequence[dict[str, float]]],
    figures: Sequence[Figure] = FIGURES,
) -> list[str]:
    """Markdown lines; ``peers`` by title, the first is the one that ratios are made with.

    A ratio is the median of the rounds', with the smallest and the largest.
    """
    first = next(iter(peers.values()))
    head = ["figure", "crlbench", *peers, "ratio"]
    lines = [_row(head), _row(["---"] * len(head))]
    for figure in figures:
        cells = [_median(figure, runs) for runs in (ours, *peers.values())]
        lines.append(_row([_label(figure), *cells, _ratio(figure, ours, first)]))
    return lines


def _label(figure: Figure) -> str:
    return f"{figure.name}, {figure.unit}" if figure.unit == "GB" else figure.name


def _median(figure: Figure, runs: Sequence[dict[str, float]]) -> str:
    found = [run[figure.name] for run in runs if figure.name in run]
    return f"{statistics.median(found):,.{figure.digits}f}" if found else NOT_MEASURED


def _ratio(figure: Figure, ours: Sequence[dict[str, float]], peer: Sequence[Any]) -> str:
    if figure in WITHOUT_RATIO:
        return ""
    ratios = paired_ratios(figure, ours, peer)
    if not ratios:
        return NOT_MEASURED
    said = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return f"{said} times" if figure.times else f"{said} of the peer's"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
