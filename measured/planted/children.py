"""Runs one piece of work in a forked process of its own, so that nothing it leaves behind reaches the next one.

The libraries are imported before, once; a child that hangs is ended with all the processes it started.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any


def in_child(work: Callable[[], dict[str, Any]], *, timeout: float) -> dict[str, Any]:
    """What ``work`` returned, or ``{"error": …}``."""
    handle, name = tempfile.mkstemp(prefix="planted-result-")
    os.close(handle)
    path = Path(name)
    pid = os.fork()
    if pid == 0:
        _child(work, path)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # as it does itself, later perhaps than it is to be ended; where it has ended already there is no need
    try:
        deadline = time.monotonic() + timeout
        while os.waitpid(pid, os.WNOHANG)[0] == 0:
            if time.monotonic() > deadline:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                pid = 0
                return {"error": f"no answer within {timeout:.0f} s", "log": _tail(path)}
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        pid = 0
        text = path.read_text()
        if not text:
            return {"error": "the process died without an answer", "log": _tail(path)}
        found: dict[str, Any] = json.loads(text)
        return found
    finally:
        if pid:  # interrupted
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        path.unlink(missing_ok=True)
        Path(f"{path}.log").unlink(missing_ok=True)


def _child(work: Callable[[], dict[str, Any]], path: Path) -> None:
    os.setpgid(0, 0)
    code = 1
    try:
        log = os.open(f"{path}.log", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        from measured.planted import ledger

        ledger.own_book()
        try:
            found = work()
        except Exception as error:  # noqa: BLE001 - whatever a case raises is its outcome
            found = {"error": f"{type(error).__name__}: {error}", "log": traceback.format_exc()[-3000:]}
        ledger.close_book()
        path.write_text(json.dumps(found))
        code = 0
    finally:
        sys.stdout.flush()
        os._exit(code)


def _tail(path: Path) -> str:
    log = Path(f"{path}.log")
    return log.read_text(errors="replace")[-3000:] if log.exists() else ""
