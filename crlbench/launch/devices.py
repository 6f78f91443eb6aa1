"""A cell on several devices: a process for each of them, and one that looks after these.

The processes of a cell find one another by torch's environment variables and live as long as the
cell. Where one dies or fails the others would wait for it: they are ended, and the reason is told.

Several machines: the command on the first one runs as ever and tells the others, through a store
at MASTER_ADDR:MASTER_PORT, which cell comes next. Theirs run no plan of their own.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import connection
from pathlib import Path
from typing import Any

from crlbench.contract.events import Emit
from crlbench.contract.record_files import read_record
from crlbench.contract.records import Cell, RunRecord
from crlbench.disk.names import RECORD_NAME
from crlbench.errors import (
    INTERNAL,
    CrlbenchError,
    EnvironmentUnfit,
    Incomplete,
    Interrupted,
    UsageError,
)
from crlbench.launch.worker import RUN_CELL, spawn
from crlbench.run.launcher import Report
from crlbench.run.plan import LOG_NAME, label

RUN_ON_DEVICES = "crlbench.launch.devices:run_on_devices"
"""What a worker runs on a cell that has several devices."""
LOCALHOST = "127.0.0.1"

_POLL_SECONDS = 0.2
_GRACE_SECONDS = 3.0
"""How long, after a failure, the other processes may tell of theirs, which may be the reason."""
_FAREWELL_SECONDS = 2.0
"""How long the first machine stays after its last cell, so that the others hear of the end."""
_END = "end"
_PATIENCE = timedelta(minutes=30)
"""How long a machine waits for the first one."""


class _Remote(Exception):  # noqa: N818  (it stands in a traceback, and is never raised)
    """The traceback of another process."""


@dataclass(frozen=True)
class Place:
    """A machine among those that train together."""

    node: int = 0
    address: str = LOCALHOST
    """Address of the first machine."""
    port: int = 0
    """Port of its store."""

    @staticmethod
    def of(environment: Mapping[str, str]) -> Place:
        """The machine that this is, by the variables that Lightning reads.

        Raises:
            UsageError: a variable is missing or malformed.
        """
        node = environment.get("NODE_RANK", "")
        address, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
        if not (node.isdigit() and address and port.isdigit()):
            raise UsageError(
                "--num-nodes: every machine runs this command and must know its number and the "
                "first machine. Set NODE_RANK (0 on the first), MASTER_ADDR and MASTER_PORT, e.g. "
                "NODE_RANK=1 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 crlbench evaluate ..."
            )
        return Place(int(node), address, int(port))


def run_on_devices(cell: Cell, emit: Emit, should_stop: Callable[[], bool]) -> RunRecord:
    """As :func:`crlbench.run.execute.run_cell`, in a process for each device.

    Raises:
        Interrupted: as there.
        Incomplete: a process died; the checkpoint is as it was.
        CrlbenchError: what one of them raised.
    """
    place = Place.of(os.environ) if cell.nodes > 1 else Place()
    port = free_port()
    if cell.nodes > 1:
        _invite(place, cell, port)
    run_ranks(cell, place, port, emit, should_stop)
    return read_record(Path(cell.folder) / RECORD_NAME, own=True)


def run_ranks(
    cell: Cell,
    place: Place,
    port: int,
    emit: Emit,
    should_stop: Callable[[], bool],
    function: str = RUN_CELL,
) -> None:
    """Run this machine's ranks of a cell to their end; ``port`` is where all ranks meet.

    ``function`` is the import path of what each of them runs.

    Raises:
        CrlbenchError: as :func:`run_on_devices`.
    """
    ranks: list[_Rank] = []
    try:
        for local in range(cell.devices):
            ranks.append(_start(cell, place, local, port, function))
        _attend(cell, ranks, emit, should_stop)
    finally:
        for rank in ranks:
            rank.process.kill()
            rank.process.join()
            rank.pipe.close()


def free_port() -> int:
    """A port that nobody listens to."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


@dataclass
class _Rank:
    """One process of a cell and its pipe."""

    number: int
    process: Any
    pipe: connection.Connection


def _start(cell: Cell, place: Place, local: int, port: int, function: str) -> _Rank:
    number, threads = place.node * cell.devices + local, cell.conditions["hardware"]["threads"]
    ours, theirs = multiprocessing.Pipe()
    names = {
        "RANK": number,
        "WORLD_SIZE": cell.ranks,
        "LOCAL_RANK": local,
        "NODE_RANK": place.node,
        "MASTER_ADDR": place.address,
        "MASTER_PORT": port,
    }
    extra = {name: str(value) for name, value in names.items()}
    process = spawn(theirs, function, threads, extra)
    theirs.close()
    ours.send(("run", cell.model_dump(mode="json")))
    return _Rank(number, process, ours)


def _attend(
    cell: Cell, ranks: Sequence[_Rank], emit: Emit, should_stop: Callable[[], bool]
) -> None:
    """Hand events on until every rank has ended; soon after a failure, tell it."""
    going = {rank.pipe: rank for rank in ranks}
    stopping = False
    troubles: list[CrlbenchError] = []
    deadline = float("inf")
    while going and time.monotonic() < deadline:
        if not stopping and should_stop():
            stopping = True  # the first rank decides for all, by the next iteration
            with contextlib.suppress(BrokenPipeError):
                ranks[0].pipe.send(("stop", None))
        for pipe in connection.wait(list(going), timeout=_POLL_SECONDS):
            rank = going[pipe]  # type: ignore[index]
            try:
                kind, content = rank.pipe.recv()
            except (EOFError, ConnectionResetError):
                kind, content = "dead", None
            if kind == "event" and rank.number == 0:
                emit(content)
            if kind not in ("end", "dead"):
                continue
            del going[pipe]  # type: ignore[arg-type]
            trouble = _died(cell, rank) if kind == "dead" else _told(content)
            if trouble is not None:
                troubles.append(trouble)
                if not isinstance(trouble, Interrupted):
                    deadline = min(deadline, time.monotonic() + _GRACE_SECONDS)
    if troubles:
        raise min(troubles, key=_remoteness)


def _remoteness(error: CrlbenchError) -> int:
    """How far an error is from the reason: whoever loses another process has an internal one."""
    if isinstance(error, Incomplete):
        return 0
    return 2 if error.exit_code == INTERNAL else 1


def _died(cell: Cell, rank: _Rank) -> CrlbenchError:
    rank.process.join()
    code = rank.process.exitcode
    how = f"ended with exit code {code}" if code >= 0 else f"was killed by signal {-code}"
    hint = " (often the system is out of memory)" if code == -signal.SIGKILL else ""
    return Incomplete(
        f"{label(cell)}: the process of rank {rank.number} of {cell.ranks} {how}{hint}, and the "
        "others were ended. The same command continues from the last checkpoint; their output: "
        f"{Path(cell.folder) / LOG_NAME}"
    )


def _told(outcome: Report) -> CrlbenchError | None:
    """The error of a rank that has ended, or None."""
    if outcome["state"] == "interrupted":
        return Interrupted(outcome["message"])
    if outcome["state"] != "error":
        return None
    error = CrlbenchError(outcome["message"])
    error.exit_code = outcome["exit_code"]
    error.__cause__ = _Remote("\n" + outcome["traceback"])
    return error


# -- several machines --------------------------------------------------------------------------


@contextlib.contextmanager
def hosting(place: Place) -> Iterator[None]:
    """Inside, the other machines can ask the first one, which this is, what comes next."""
    from torch.distributed import TCPStore

    store = TCPStore(place.address, place.port, is_master=True, wait_for_workers=False)
    try:
        yield
    finally:
        store.set(_END, "")
        time.sleep(_FAREWELL_SECONDS)  # the store ends with this process


def _invite(place: Place, cell: Cell, port: int) -> None:
    """Tell the other machines which cell comes next, and where its ranks meet."""
    from torch.distributed import TCPStore

    store = TCPStore(place.address, place.port, is_master=False)
    number = store.add("cells", 1)
    store.set(f"cell-{number}", f"{port} {cell.model_dump_json()}")


def follow(place: Place, say: Callable[[str], None]) -> None:
    """Run this machine's ranks of every cell that the first machine runs, until it has ended.

    Args:
        say: Told what fails; the first machine decides how it goes on.

    Raises:
        EnvironmentUnfit: the first machine does not come.
        Incomplete: it vanished, or the ranks of a cell failed here.
    """
    from torch.distributed import DistError, TCPStore

    try:
        store = TCPStore(place.address, place.port, is_master=False, timeout=_PATIENCE)
    except DistError as error:
        raise EnvironmentUnfit(
            f"--num-nodes: nobody at {place.address}:{place.port} ({error}). Start the command "
            "with NODE_RANK=0 on that machine, with the same MASTER_ADDR and MASTER_PORT."
        ) from None
    failures = 0
    for number in itertools.count(1):
        name = f"cell-{number}"
        try:
            # Asked again and again: a call that waits would not hear Ctrl-C.
            while not store.check([name]):
                if store.check([_END]):
                    break
                time.sleep(_POLL_SECONDS)
            else:
                port, text = store.get(name).decode().split(" ", 1)
            ended = not store.check([name])
        except (DistError, RuntimeError):
            raise Incomplete(
                f"the first machine ({place.address}) is gone. Start the command on all machines "
                "again: it continues."
            ) from None
        if ended:
            break
        try:
            # Events and the stop come from the first rank, which is not here.
            run_ranks(
                Cell.model_validate_json(text), place, int(port), lambda _: None, lambda: False
            )
        except CrlbenchError as error:
            failures += 1
            say(str(error))
    if failures:
        raise Incomplete(f"{failures} runs ended early on this machine; see the first machine.")
