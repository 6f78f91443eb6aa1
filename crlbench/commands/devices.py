"""What is refused before several devices are asked to train one cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from crlbench.commands.settings import Settings
from crlbench.contract.model_card import ModelCard
from crlbench.errors import EnvironmentUnfit, UsageError
from crlbench.run.plan import Board

if TYPE_CHECKING:
    from crlbench.algo.recipe import Recipe


def check_devices(
    settings: Settings, board: Board, cards: Sequence[ModelCard], recipe: Recipe
) -> None:
    """Refuse what cannot be trained on the devices that were asked for.

    Raises:
        UsageError: settings that do not go together.
        EnvironmentUnfit: this machine has fewer devices.
    """
    ranks = settings.devices * settings.num_nodes
    if ranks == 1:
        if settings.strategy != "auto":
            raise UsageError(
                f"--strategy {settings.strategy} says how several devices hold the weights, and "
                "there is one. Add --devices N, or leave --strategy out."
            )
        return
    _check_present(settings)
    prompts = board.conditions.budget.prompts
    if ranks > prompts:
        raise UsageError(
            f"{ranks} devices, and an iteration has {prompts} prompts (budget.prompts), which they "
            f"share. Use at most {prompts} devices."
        )
    if settings.num_nodes > 1 and settings.jobs not in ("auto", "1"):
        raise UsageError(
            f"--jobs {settings.jobs}: with --num-nodes the machines do one run after the other. "
            "Leave --jobs out."
        )
    from crlbench.algo.step import TrustRegion

    if isinstance(recipe.step, TrustRegion):
        raise UsageError(
            f"recipe '{recipe.name}' takes trust-region steps, which run on one device. Leave "
            "--devices and --num-nodes out, or choose another recipe."
        )
    quantised = [card.slug for card in cards if card.quantisation != "none"]
    if settings.strategy == "fsdp" and quantised:
        raise UsageError(
            f"--strategy fsdp cannot divide quantised weights (model '{quantised[0]}'). Use "
            "--strategy ddp: under an adapter only the small adapter is exchanged."
        )


def _check_present(settings: Settings) -> None:
    """Refuse more accelerators than there are; processes on the CPU are not counted."""
    if settings.device == "cpu":
        return
    import torch

    found = torch.cuda.device_count()
    if not (found == 0 and settings.device == "auto") and settings.devices > found:
        raise EnvironmentUnfit(
            f"--devices {settings.devices}: torch finds {found} CUDA "
            f"device{'' if found == 1 else 's'} here. Use --devices {max(found, 1)} at most."
        )
