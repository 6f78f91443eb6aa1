"""Who answers signals while a Trainer fits: the process, as before, and not Lightning.

Lightning puts a handler of its own over SIGTERM for the time of a fit; it ends the fit with a
``SystemExit``, where a worker stops after its iteration, with a checkpoint. Under SLURM it also
takes SIGUSR1, writes a checkpoint of its own and queues the whole job again.
"""

from __future__ import annotations

import signal
import threading

import lightning as L
from lightning.pytorch.callbacks import Callback

ANSWERED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


class KeepSignals(Callback):
    """Puts the handlers back that the process had when this was made.

    Lightning sets its own behind ``on_fit_start``; the first hooks after that are these.
    """

    def __init__(self) -> None:
        found = {number: signal.getsignal(number) for number in ANSWERED}
        # None: a handler that was not set from Python, which Lightning does not replace.
        self.handlers = {n: handler for n, handler in found.items() if handler is not None}

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self._restore()

    def on_validation_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self._restore()

    def _restore(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number, handler in self.handlers.items():
                signal.signal(number, handler)
