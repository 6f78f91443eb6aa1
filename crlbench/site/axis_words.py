"""What the page of a board says of each axis, and what its figures always show."""

from __future__ import annotations

from collections.abc import Mapping

from crlbench.verdict.axes import AXIS_SIGNS, CHARGED_SIGN, Axis

QUESTIONS: dict[Axis, str] = {
    "efficiency": "Learns fastest",
    "stability": "Most stable",
    "generalization": "Generalizes best",
}
"""What the leader of an axis answers."""
MEANINGS: dict[Axis, str] = {
    "efficiency": "Λ: how much of the possible improvement the model made, averaged over training. "
    "1 = solved at once, 0 = no improvement. A high start earns no credit.",
    "stability": "Stab: do seeds agree, do gains last, how bad are the worst seeds, how often do "
    "runs fail? 1 = no sign of instability.",
    "generalization": "Gen: how much of the possible improvement was made on fresh items, harder "
    "ones, other wordings and other tasks, minus what was forgotten. 1 = all of it, 0 = none.",
}
"""What the number of an axis says, in two sentences."""
MEANINGS_2: dict[Axis, str] = {
    "efficiency": "Λ_new: how much of the possible improvement the model made on items that its "
    "start answers wrongly when greedy, averaged over training. 1 = solved at once, 0 = none.",
    "stability": "Stab: do seeds agree, do gains last, how often do runs fail, in calm runs and at "
    "three times the learning rate? 1 = no sign of instability.",
    "generalization": "Gen: how much of the possible improvement was made on harder items, other "
    "wordings and other tasks, minus what was forgotten. 1 = all of it, 0 = none.",
}
"""The same under protocol CRL-2."""
CHARGED = (
    "Λ_F: how much of the possible improvement the model made, averaged over the FLOPs that all "
    "stages of a chain were charged. 1 = solved at once, 0 = no improvement."
)
"""What Λ_F says, where chains are ranked by it."""


def meanings(signs: Mapping[Axis, str]) -> Mapping[Axis, str]:
    """What the numbers say of a board whose axes have these symbols."""
    if signs == AXIS_SIGNS:
        return MEANINGS
    if signs["efficiency"] == CHARGED_SIGN:
        return {**MEANINGS, "efficiency": CHARGED}
    return MEANINGS_2



ANCHORS: dict[Axis, float] = {"efficiency": 0.0, "stability": 1.0, "generalization": 0.0}
"""What every figure of an axis shows: nothing learned, or no sign of instability."""
