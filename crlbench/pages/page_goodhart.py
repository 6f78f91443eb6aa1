"""Runs paid by a reward model on the page: proxy, gold and audit over the distance, and the fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from crlbench.base import wording
from crlbench.pages.curves import Curve, distance_plot
from crlbench.pages.over_optimisation import curve_sentences
from crlbench.pages.svg import DASHES, color, series_color
from crlbench.verdict.goodhart import PaidByModel, paid_by_model
from crlbench.verdict.runs import Run

FIT_POINTS = 60


def panels(tasks: Sequence[str], runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One panel of each task whose runs store what is right; none where a verifier pays.

    Args:
        runs: of one entry and arm.
    """
    paid = (paid_by_model(task, runs) for task in tasks)
    return [_panel(one) for one in paid if one is not None]


def _panel(paid: PaidByModel) -> dict[str, Any]:
    rows = [(p.x, p.proxy, p.gold, p.audit, max(0.0, p.kl) ** 0.5, p.kl) for p in paid.points]
    return {
        "task": paid.task,
        "sentences": _sentences(paid),
        "figure": Markup(_figure(paid)),
        "rows": rows,
    }


def _sentences(paid: PaidByModel) -> list[str]:
    said = curve_sentences(paid.curve) if paid.curve else [wording.sentence(f"no fit: {paid.lack}")]
    if paid.curve and paid.curve.b.interval is None:
        said.append(f"{wording.count(paid.runs, 'run')}; an interval needs five.")
    if paid.left_out:
        said.append(f"{wording.count(paid.left_out, 'run')} ended early and are left out.")
    return said


def _figure(paid: PaidByModel) -> str:
    distances = [math.sqrt(max(0.0, point.kl)) for point in paid.points]
    order = sorted(range(len(distances)), key=distances.__getitem__)
    curves = [
        Curve(
            label=name,
            key=name,
            hue=series_color(place),
            dash=DASHES[place],
            mean=[(distances[i], getattr(paid.points[i], name)) for i in order],
            weight=2,
        )
        for place, name in enumerate(("proxy", "gold", "audit"))
    ]
    if paid.curve is not None:
        far = max(distances)
        steps = [far * i / FIT_POINTS for i in range(FIT_POINTS + 1)]
        fitted = [(d, paid.curve.fitted(d)) for d in steps]
        curves.append(
            Curve("fit of gold", mean=fitted, hue=color("muted"), dash=DASHES[1], weight=1.5)
        )
    first, last = paid.points[0], paid.points[-1]
    description = (
        f"From start to end proxy {wording.number(first.proxy)} to {wording.number(last.proxy)}, "
        f"gold {wording.number(first.gold)} to {wording.number(last.gold)}, audit "
        f"{wording.number(first.audit)} to {wording.number(last.audit)}, d up to "
        f"{wording.number(max(distances))}."
    )
    return distance_plot(f"Proxy, gold and audit on {paid.task}", description, curves)
