"""One stage of a chain without the run that it is for: its product is kept, and found by runs."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from crlbench.algo.chain import Chain
from crlbench.algo.recipe import from_config
from crlbench.contract.events import Emit
from crlbench.contract.records import Cell, Status
from crlbench.errors import RunFailed
from crlbench.run.execute import load
from crlbench.stages.chain import Workshop
from crlbench.stages.failure import StageFailed


def make_stage_alone(cell: Cell, emit: Emit, should_stop: Callable[[], bool]) -> SimpleNamespace:
    """Make the product of a cell's stage, and those that it reads, unless they are there.

    Raises:
        RunFailed: the stage broke a rule, as it would in a run.
        Interrupted: ``should_stop()`` turned true; finished stages are stored.
        ValidationError: as :meth:`crlbench.stages.artefacts.Store.find`.
    """
    conditions, subject, task = load(cell)
    chain = from_config(cell.recipe_config)
    assert isinstance(chain, Chain)  # the command refuses others
    shop = Workshop(cell, chain, conditions, subject, task, should_stop)
    stage = next(one for one in chain.upstream if one.name == cell.stage)
    try:
        product = shop.shop(stage).product(stage)
    except StageFailed as failure:
        raise RunFailed(f"stage '{stage.name}' failed: {failure}.") from None
    emit({"kind": "product", "folder": str(product.folder)})
    return SimpleNamespace(status=Status(state="completed"))
