"""``crlbench fit-reward``: a reward model from a task's preference pairs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from crlbench.commands.console import note, print_result
from crlbench.commands.flags import DEVICES, MODEL, require_positive
from crlbench.disk.files import expanded
from crlbench.errors import OK, UsageError, require_known

if TYPE_CHECKING:
    from crlbench.catalog.find import Catalog
    from crlbench.catalog.frozen import Task
    from crlbench.contract.task_card import RewardCard
    from crlbench.suite.own_answers import OwnFile

STEPS = 10
"""Lines of progress."""
READS_MODELS = True

EXAMPLES = """\
examples:
  crlbench fit-reward --model tiny-llama --pairs judged --out reward-model
  crlbench fit-reward --model tiny-llama --pairs ./pairs.jsonl --out reward-model
"""


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", metavar="X", help=MODEL)
    add("--pairs", metavar="T",
        help="task with the preference pairs to learn from; or FILE.jsonl with your own")
    add("--out", metavar="DIR", help="folder of the reward model; must not exist")
    add("--set", metavar="K=V", action="append",
        help="change a setting: epochs, batch, accumulate, learning_rate, warmup, weight_decay, "
        "centering, max_grad_norm, max_tokens, seed, store")
    add("--limit", metavar="N", type=int, help="only the first N pairs of each file")
    add("--threads", metavar="N", type=int, default=1, help="CPU threads (1)")
    add("--device", metavar="D", default="cpu", help=f"{', '.join(DEVICES)} (cpu)")


def run(options: Namespace) -> int:
    """Fit, write and describe one reward model."""
    from crlbench.catalog.find import Catalog
    from crlbench.commands.job import device, require_fetched
    from crlbench.commands.settings import assignments

    _check(options)
    place = device(options.device)
    catalog = Catalog(options.catalog)
    named = _open_pairs(options.pairs, catalog)
    model = catalog.load_model(options.model)
    require_fetched([model], options.home)

    import torch

    from crlbench.run.store import check_new
    from crlbench.stages import fit_reward as fitting

    config = fitting.settings(assignments(options.set))
    check_new(Path(options.out))
    torch.set_num_threads(options.threads)
    torch.use_deterministic_algorithms(True)
    card = fitting.fit_reward(
        model,
        fitting.FittingPairs.of(named, options.limit, config.seed),
        Path(options.out),
        config,
        device=place,
        report=lambda done, batches, loss: _progress(options, done, batches, loss),
    )
    value = {"folder": options.out, **card.model_dump(mode="json", by_alias=True)}
    print_result(options, value, _lines(card, options.out))
    return OK


def _open_pairs(name: str, catalog: Catalog) -> Task | OwnFile:
    """A person's own file, where the name ends in .jsonl or holds a slash; else a task."""
    from crlbench.suite.own_answers import read_own

    if name.endswith(".jsonl") or "/" in name:
        return read_own(expanded(name).absolute()).require_pairs()
    return catalog.open_task(name)


def _check(options: Namespace) -> None:
    missing = [flag for flag in ("model", "pairs", "out") if not getattr(options, flag)]
    if missing:
        flags = " ".join(f"--{name}" for name in missing)
        raise UsageError(f"fit-reward needs {flags}. See: crlbench fit-reward --help")
    require_known("device", options.device, DEVICES)
    require_positive(limit=options.limit, threads=options.threads)


def _progress(options: Namespace, batch: int, batches: int, loss: float) -> None:
    if batch == batches or batch % max(1, batches // STEPS) == 0:
        note(options, f"batch {batch}/{batches}, loss {loss:.3f}")


def _lines(card: RewardCard, folder: str) -> list[str]:
    a, p = card.accuracy, card.pairs
    rest = f", {p.left_out} left out as too long" if p.left_out else ""
    return [
        f"{folder}: reward model from {card.base}, fitted on {p.train:,} pairs of {p.task}{rest}",
        f"pair accuracy: held-out {a.id:.3f} [{a.id_low:.3f}, {a.id_high:.3f}] ({p.id:,} pairs, "
        f"95 %), train {a.train:.3f}",
        *(f"audit: {fault} {share:.3f}" for fault, share in (card.faults or {}).items()),
        f"reward = sigmoid((score - {card.map.center:.4g}) / {card.map.scale:.4g})",
    ]
