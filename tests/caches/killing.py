"""A conversion that is killed at random moments until it gets through, and the same one left alone."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

from pipefix.caches import pool, survey
from pipefix.caches.convert import convert, recipe_of
from pipefix.caches.dataset import CachedDataset
from pipefix.vocabulary.errors import UnreadableFile
from tests.caches.sources import Files


class Nursery:
    """A process that has everything imported and forks one conversion after the other, so that a kill costs no start of Python."""

    def __enter__(self) -> Nursery:
        context = multiprocessing.get_context("spawn")
        self._jobs, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,))
        self._process.start()
        theirs.close()
        return self

    def __exit__(self, *why: object) -> None:
        self._process.terminate()
        self._process.join()
        self._jobs.close()

    def begin(self, **job: Any) -> int:
        """Start a conversion in a session of its own; its process."""
        self._jobs.send(job)
        return int(self._jobs.recv())

    def code(self, within: float | None = None) -> int | None:
        """How it ended; None where it is still running after so many seconds."""
        return int(self._jobs.recv()) if self._jobs.poll(within) else None


def _serve(jobs: Connection) -> None:
    """Tells of each conversion its process, and then how it ended."""
    with suppress(EOFError):
        while True:
            job = jobs.recv()
            child = os.fork()
            if not child:
                os._exit(_converted(**job))
            jobs.send(child)
            jobs.send(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _converted(pictures: Path, store: str, out: Path, each: int, **_: Any) -> int:
    os.setsid()
    survey._part_samples = lambda samples, record_bytes: each
    try:
        convert(Files(sorted(pictures.rglob("*.jpg"))), recipe_of(store=store), out, target="kills", workers=2)
    except BaseException:  # noqa: BLE001 - told by its exit code
        traceback.print_exc()
        return 1
    return 0


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
