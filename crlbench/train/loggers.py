"""Where a run's curves go while it trains: TensorBoard, CSV files, Weights & Biases, Trackio.

The axis is completions, as on every page: the start model stands at 0. :class:`RunRecorder
<crlbench.train.callbacks.RunRecorder>` writes them, so that they are the record's own figures.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

PROJECT = "crlbench"
SCORE = "eval/score"
"""Mean score of the curve's items at each evaluation."""


@contextmanager
def open_loggers(
    names: Sequence[str], folder: Path, run: str, settings: Mapping[str, Any], done: int
) -> Iterator[list[Logger]]:
    """Loggers by name, which are closed at the end.

    Args:
        folder: of the run; ``tb`` and ``csv`` lie in it, and what Weights & Biases keeps.
        run: its name, for people.
        settings: what tells it from other runs: the table of hyper-parameters.
        done: completions of a run that is continued. TensorBoard drops later points; a new CSV
            file begins.
    """
    makers: dict[str, Callable[[], Logger]] = {
        "tensorboard": lambda: OneFile(
            folder, name="tb", version="", purge_step=done + 1 if done else None
        ),
        "csv": lambda: CSVLogger(folder, name="csv", version=f"from-{done}"),
        "wandb": lambda: weights_and_biases(run, folder),
        "trackio": lambda: TrackioLogger(run),
    }
    loggers = [make() for name, make in makers.items() if name in names]
    try:
        for logger in loggers:
            logger.log_hyperparams(dict(settings))
        yield loggers
    finally:
        for logger in loggers:
            close(logger)


def close(logger: Logger) -> None:
    """Write what is left. Lightning ends a logger with every fit and validation; a run has both."""
    if isinstance(logger, OneFile):
        logger.experiment.close()
    elif isinstance(logger, WandbLogger):
        logger.experiment.finish()
    elif isinstance(logger, TrackioLogger):
        logger.finish()


def weights_and_biases(run: str, folder: Path) -> WandbLogger:
    """Its files lie in the run's folder; WANDB_MODE and its login say whether they leave it."""
    import wandb

    silent = wandb.Settings(silent=True)
    return WandbLogger(run, folder, project=PROJECT, dir=folder, settings=silent)


class OneFile(TensorBoardLogger):
    """TensorBoard with one file of events a run, and its table of hyper-parameters."""

    @rank_zero_only
    def log_hyperparams(
        self,
        params: dict[str, Any] | Namespace,
        metrics: dict[str, Any] | None = None,
        step: int | None = None,
    ) -> None:
        """A row of the table. Its score is the last one of the curve."""
        from torch.utils.tensorboard.summary import hparams

        writer = self.experiment._get_file_writer()
        for part in hparams(vars_of(params), {SCORE: 0.0}):
            writer.add_summary(part)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Nothing ends here: a later fit writes into the same file."""
        if self._experiment is not None:
            self.experiment.flush()

    @rank_zero_only
    def save(self) -> None:
        """The settings stand in the events; no further file is written."""


class TrackioLogger(Logger):
    """Trackio, which keeps runs on this machine: ``trackio show --project crlbench``."""

    def __init__(self, run: str) -> None:
        super().__init__()
        self._run = run

    @property
    def name(self) -> str:
        return PROJECT

    @property
    def version(self) -> str:
        return self._run

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *_: Any, **__: Any) -> None:
        """Begins the run, or goes on with it."""
        import trackio

        with redirect_stdout(StringIO()):
            trackio.init(
                PROJECT,
                self._run,
                resume="allow",
                config=vars_of(params),
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """One point of several curves."""
        import trackio

        trackio.log(dict(metrics), step)

    @rank_zero_only
    def finish(self) -> None:
        """Write what is left."""
        import trackio

        with redirect_stdout(StringIO()):
            trackio.finish()


def vars_of(params: dict[str, Any] | Namespace) -> dict[str, Any]:
    """Settings by name."""
    return dict(params) if isinstance(params, dict) else vars(params)
