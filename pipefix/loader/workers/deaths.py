"""Explains the death of a worker: which one, how, what likely killed it, and what to do about it."""

from __future__ import annotations

import glob
import os
import re
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipefix.system.resources import out_of_memory_kills, shared_memory
from pipefix.vocabulary import files
from pipefix.vocabulary.quantity import size
from pipefix.vocabulary.worker_exit import CAUSES, describe_exit


class WorkerDied(RuntimeError):
    """Torch's error, and what is known beside it."""


def lies_behind(error: BaseException) -> bool:
    """Whether iteration goes on after the batch that raised this: no worker died, and the batch is not waited for any more."""
    if type(error) is RuntimeError:  # of another, the user's own, the text may be anything
        return not str(error).startswith(("DataLoader timed out", "Pin memory thread exited", "Too many open files"))
    return isinstance(error, Exception) and not isinstance(error, WorkerDied)


DYING_S = 2.0
"""In which the end of a process whose sockets are closed is seen."""


def check(workers: Sequence[Any], error: Exception) -> None:
    """Raise as torch does where ``error`` comes of a worker's death: its tensors are fetched from it, and once killed it
    refuses that before it counts as dead. (A sentinel too is closed before that.)
    One of a stream that has come to its end has left as it should."""
    until = time.monotonic() + DYING_S
    while not (dead := [worker.pid for worker in workers if worker.exitcode]) and time.monotonic() < until:
        time.sleep(0.005)
    if dead:
        raise RuntimeError(f"DataLoader worker (pid(s) {', '.join(map(str, dead))}) exited unexpectedly") from error


_SHARED = re.compile(r"torch_\d+_")
NAMED = "/dev/shm/torch_{pid}_*"
"""Memory that torch, in process ``pid``, is about to share: it goes by a name until it is mapped."""


def remove_leftovers(workers: Sequence[Any]) -> None:
    """Names of shared memory that killed workers had no time to take back. What has been written to may be somebody's."""
    for worker in workers:
        for path in glob.glob(NAMED.format(pid=worker.pid)) if (worker.exitcode or 0) < 0 else ():
            with suppress(OSError):
                status = os.lstat(path)
                if status.st_uid == os.getuid() and not status.st_blocks:
                    files.remove(Path(path), _SHARED)


_NEXT = {
    signal.SIGKILL: "Use fewer workers, a smaller batch or a smaller prefetch_factor.",
    signal.SIGSEGV: "Run with num_workers=0 under python -X faulthandler to see where.",
    signal.SIGABRT: "Run with num_workers=0 to see where.",
    signal.SIGBUS: "Make /dev/shm larger (docker run --shm-size=2g), or use fewer workers, a smaller prefetch_factor or smaller "
    "batches.",
}
_ALONE = "Run with num_workers=0 to see the error itself."


def describe_death(error: RuntimeError, workers: Sequence[Any], kills_before: int | None) -> WorkerDied:
    """``kills_before``: how often the kernel had killed for want of memory when the workers were started."""
    torch_message = str(error).splitlines()[0].rstrip(". ")
    dead = next((worker for worker in workers if worker.exitcode), None)
    if dead is None:
        return WorkerDied(f"{torch_message}. {_ALONE}")
    code = dead.exitcode
    known = signal.Signals(-code) if code < 0 and -code in set(signal.Signals) else None
    why = _cause(known, kills_before)
    what_next = _NEXT.get(known, _ALONE) if known is not None else _ALONE
    if code > 0:
        why = "Something in it calls os._exit() or sys.exit(), or it could not start"
        if (method := getattr(dead, "_start_method", None)) in ("spawn", "forkserver"):
            why += (
                f": under {method!r} a worker imports the dataset's class, and finds none that was typed in (a notebook, python -i)"
                " or run by exec(). Put such a class into a .py file, or start workers by multiprocessing_context='fork'"
            )
    parts = [f"{torch_message}: of worker process {dead.pid}, {describe_exit(code)}", why, what_next.rstrip(".")]
    return WorkerDied(". ".join(part for part in parts if part) + ".")


def _cause(known: signal.Signals | None, kills_before: int | None) -> str:
    cause = CAUSES.get(known, "") if known is not None else ""
    if known is signal.SIGKILL and kills_before is not None:
        if (out_of_memory_kills() or 0) > kills_before:
            return "The kernel killed it because memory was short: it says so itself"
        return f"{cause}, though it counts no such case here since the workers began; or somebody sent the signal"
    left = shared_memory()[1] if known is signal.SIGBUS else None
    return cause if left is None else f"{cause}: /dev/shm has {size(left)} free"
