"""A conversion that is killed at random moments until it gets through, and the same one left alone."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

from pipefix.caches import pool
from pipefix.caches.dataset import CachedDataset
from pipefix.vocabulary.errors import UnreadableFile

ROOT = Path(__file__).resolve().parents[2]
CODE = """
import json, os, sys, traceback
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.caches.sources import Files
from pipefix.caches import lmdb, parquet, survey, verify
from pipefix.caches.convert import convert, recipe_of

def one(job):
    os.setsid()
    survey._part_samples = lambda samples, record_bytes: job["each"]
    paths = sorted(Path(job["pictures"]).rglob("*.jpg"))
    convert(Files(paths), recipe_of(store=job["store"]), Path(job["out"]), target="kills", workers=2)

print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if not child:
        code = 1
        try:
            one(json.loads(line))
            code = 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Nursery:
    """A process that has everything imported and forks one conversion after the other, so that a kill costs no start of Python."""

    def __enter__(self) -> Nursery:
        code = CODE.format(root=str(ROOT))
        self._process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._line() == "ready"
        return self

    def __exit__(self, *why: object) -> None:
        self._process.terminate()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def begin(self, **job: Any) -> int:
        """Start a conversion in a session of its own; its process."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job, default=str).encode() + b"\n")
        self._process.stdin.flush()
        return int(self._line())

    def code(self, within: float | None = None) -> int | None:
        """How it ended; None where it is still running after so many seconds."""
        assert self._process.stdout is not None
        if within is not None and not select.select([self._process.stdout], [], [], within)[0]:
            return None
        return int(self._line())

    def _line(self) -> str:
        """Byte by byte: what a buffer held, `select` would not see."""
        assert self._process.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            got = os.read(self._process.stdout.fileno(), 1)
            assert got, "the process that starts conversions is gone"
            line += got
        return line.decode().strip()


def whole(nursery: Nursery, out: Path, **job: Any) -> float:
    """Left alone; the seconds that it took."""
    begun = time.perf_counter()
    nursery.begin(out=out, **job)
    assert nursery.code() == 0
    return time.perf_counter() - begun


def killed(nursery: Nursery, out: Path, within: float, random: random.Random, **job: Any) -> tuple[int, list[str]]:
    """Kill it, all its processes or only the first, some time after it began, again and again until it is done before that.

    It is given longer each time: however slow the machine, it gets through. Returns how often it was killed, and what went wrong.
    """
    kills, wrong = 0, []
    while True:
        process = nursery.begin(out=out, **job)
        code = nursery.code(random.uniform(0, within * (1 + kills / 4)))
        if code is not None:
            if code != 0:
                wrong.append(f"ended with {code}")
            return kills, wrong
        kills += 1
        with suppress(ProcessLookupError):  # it ends at this very moment
            (os.killpg if random.random() < 0.7 else os.kill)(process, signal.SIGKILL)
        code = nursery.code()
        if code == 0:
            return kills - 1, wrong  # it was done in the moment before
        if code != -signal.SIGKILL:
            wrong.append(f"ended with {code}")
        if not (out / "manifest.json").exists():
            try:
                CachedDataset(out)
                wrong.append("a half-built cache was opened")
            except UnreadableFile:
                pass


class Killed(BaseException):
    """The process is gone: nothing of it runs any more."""


@contextmanager
def interrupted_after(parts: int) -> Iterator[None]:
    """A conversion without workers is interrupted when it has made so many parts."""
    real = pool._here

    def interrupted(numbers: Any, ready: Any) -> Iterator[Any]:
        done = 0
        for event in real(numbers, ready):
            yield event
            done += isinstance(event, pool.PartDone)
            if done == parts:
                raise KeyboardInterrupt

    with mock.patch.object(pool, "_here", interrupted):
        yield


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }
