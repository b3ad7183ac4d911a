"""How a loader starts its workers, which threads and pools here forked ones would lack, and who ends with their parent."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import re
import signal
import threading
from pathlib import Path
from typing import Any

from pipefix.system.mounts import text_of

_PR_SET_PDEATHSIG = 1
POLARS = "polars"
_THREADS = {POLARS: re.compile(r"polars-\d"), "tokio (obstore, lance, deltalake)": re.compile(r"tokio")}
"""By library: what its threads are called; polars, which runs tokio itself, comes first.
Those of OpenMP, BLAS and OpenCV are started anew after a fork, or mended there."""


def start_method_of(loader: Any) -> str:
    """fork, forkserver or spawn: the loader's own or, without fixing it by asking, the program's."""
    context = getattr(loader, "multiprocessing_context", None)
    if context is not None:
        return str(context.get_start_method())
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def lost_by_fork() -> str | None:
    """The library whose threads run here now. Cannot see them where the system has no /proc."""
    names = {text_of(path).strip() for path in Path("/proc/self/task").glob("*/comm")}
    return next((library for library, named in _THREADS.items() if any(map(named.match, names))), None)


def pool_of_processes() -> str | None:
    """The kind of pool that has processes here now. A worker of a DataLoader can neither use it, for its threads are not forked,
    nor start one, for a daemon may have no children."""
    if any("PoolWorker" in child.name for child in multiprocessing.active_children()):
        return "multiprocessing.Pool"
    managers = [thread for thread in threading.enumerate() if type(thread).__name__ == "_ExecutorManagerThread"]
    return "ProcessPoolExecutor" if managers else None


def lost_by_workers_of(loader: Any) -> str | None:
    """polars, where its threads run here and the loader's workers are forked. Threads of tokio are often those of a download that
    is over, which no worker waits for."""
    return POLARS if start_method_of(loader) == "fork" and lost_by_fork() == POLARS else None


def die_with_parent() -> None:
    """The kernel kills this process when the one that started it ends. Linux only; elsewhere workers notice by themselves."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
