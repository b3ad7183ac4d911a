"""A process that has the fake device's libraries, torch and pipefix loaded: functions are called in processes forked from it.

    python -m tests.gpu.fake.host       reads requests, one JSON object a line, and answers each with one

Each call has a driver that nobody has used yet, and settings of its own in the environment.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from typing import Any

LIBRARIES = (
    "pipefix.loader",
    "pipefix.api.probe",
    "pipefix.api.tune",
    "pipefix.augment.module",
    "pipefix.tuning.usage",
    "pynvml",
)


def serve() -> None:
    import torch

    for name in LIBRARIES:
        importlib.import_module(name)
    torch.set_num_threads(1)
    owner = ctypes.CDLL(None).fake_owner()
    print(json.dumps({"owner": owner}), flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), flush=True)


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as result:
        child = os.fork()
        if child == 0:
            _be(asked, said.fileno(), result)
        code = _ended(child, asked["timeout"])
        said.seek(0)
        result.seek(0)
        answer = result.read()
        return {"code": code, "said": said.read()[-20000:], "answer": json.loads(answer) if answer else None}


def _ended(child: int, timeout: float) -> int | None:
    """Its exit code; None: it was ended because it took too long."""
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _be(asked: dict[str, Any], said: int, result: Any) -> None:
    """The process that the function is called in: it leaves as any interpreter does."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, place in ((0, nothing), (1, said), (2, said)):
        os.dup2(place, number)
    os.environ.update(asked["environment"])
    tempfile.tempdir = None
    code = 1
    try:
        module, _, name = asked["function"].rpartition(".")
        json.dump(getattr(importlib.import_module(module), name)(*asked["arguments"]), result)
        result.flush()
        code = 0
    except BaseException:  # noqa: BLE001 - told to the test
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    _end_children()
    os._exit(code)


def _end_children() -> None:
    import multiprocessing

    for process in multiprocessing.active_children():
        process.terminate()
        process.join(5)


if __name__ == "__main__":
    serve()
