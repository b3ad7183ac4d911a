"""The processes that make parts. They are forked, so that datasets which cannot be pickled work too, and share nothing but numbers.

Memory is bounded by what one part holds back before writing, times the processes. A worker whose parent is gone leaves.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from multiprocessing.connection import wait
from typing import Any, NamedTuple

import msgspec

from pipefix.caches.pictures import forget_threads
from pipefix.caches.writer import Facts, Tell
from pipefix.vocabulary.errors import PipefixError, TargetError

Make = Callable[[int, Tell], Facts]
Ready = Callable[[], AbstractContextManager[Make]]
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Of mallopt(3)."""
_TELL_SECONDS = 0.1
_WATCH_PARENT_SECONDS = 1.0


class Moved(NamedTuple):
    """How far a worker came."""

    samples: int
    read: int
    written: int


class Done(NamedTuple):
    number: int
    facts: Facts


class _Told:
    """Sums up what a part tells, and passes it on ten times a second."""

    def __init__(self, send: Callable[[Any], None], place: Any) -> None:
        self._send, self._place = send, place
        self._next = time.monotonic() + _TELL_SECONDS
        self._watch = time.monotonic() + _WATCH_PARENT_SECONDS
        self._parent = os.getppid()
        self._from: int | None = None
        self._at = self._read = self._written = 0

    def begin(self) -> None:
        self._from = None

    def __call__(self, index: int, read: int, written: int) -> None:
        self._place.value = index
        if self._from is None:
            self._from = index
        self._at, self._read, self._written = index, self._read + read, self._written + written
        if read or written:
            now = time.monotonic()
            if now >= self._next:
                self.flush()
                self._next = now + _TELL_SECONDS
            if now >= self._watch:
                self._watch = now + _WATCH_PARENT_SECONDS
                if os.getppid() != self._parent:
                    os._exit(1)

    def flush(self) -> None:
        if self._from is not None:
            self._send(Moved(self._at - self._from, self._read, self._written))
            self._from, self._read, self._written = self._at, 0, 0


def run(numbers: Iterable[int], make: Ready, workers: int) -> Iterator[Moved | Done]:
    """Make these parts; yields what happened as it happens. ``make`` is entered once in every process, and gives what makes a part.

    Whatever a worker raises is raised here, after the others were ended. Leaving early ends them too.
    """
    if workers < 1 or "fork" not in multiprocessing.get_all_start_methods():
        yield from _here(numbers, make)
        return
    context = multiprocessing.get_context("fork")
    waiting = deque(numbers)
    crew: dict[Any, _Worker] = {}
    try:
        for _ in range(min(workers, len(waiting))):
            worker = _Worker(context, make, [one.connection for one in crew.values()])
            crew[worker.connection] = worker
            worker.give(waiting)
        while crew:
            for connection in wait(list(crew)):
                worker = crew[connection]
                said = worker.hear()
                if said is None:
                    del crew[connection]
                    continue
                if isinstance(said, Done):
                    worker.give(waiting)
                yield said
    finally:
        for worker in crew.values():
            worker.end()


def _here(numbers: Iterable[int], make: Ready) -> Iterator[Moved | Done]:
    """In this process, where nothing can be forked or nobody wants it."""
    said: list[Moved] = []
    told = _Told(said.append, _Place())
    with make() as one:
        for number in numbers:
            told.begin()
            facts = one(number, told)
            told.flush()
            yield from said
            said.clear()
            yield Done(number, facts.brief())


class _Place:
    value = 0


class _Worker:
    def __init__(self, context: Any, make: Ready, others: list[Any]) -> None:
        self.connection, inner = context.Pipe()
        self._place = context.RawValue("q", -1)
        self._busy = True
        sys.stdout.flush()
        sys.stderr.flush()
        self._process = context.Process(target=_work, args=(inner, [self.connection, *others], make, self._place), daemon=True)
        self._process.start()
        inner.close()

    def give(self, waiting: deque[int]) -> None:
        self._busy = bool(waiting)
        self.connection.send(waiting.popleft() if waiting else None)

    def hear(self) -> Moved | Done | None:
        """What it said; None once it left after its last part."""
        try:
            said = self.connection.recv()
        except (EOFError, OSError):
            self._process.join()
            if not self._busy:
                return None
            raise self._died() from None
        if isinstance(said, _Carried):
            raise said.unpacked()
        if isinstance(said, BaseException):
            raise said
        if isinstance(said, tuple) and said and said[0] == "done":
            return Done(said[1], msgspec.msgpack.decode(said[2], type=Facts))
        return said  # type: ignore[no-any-return]

    def _died(self) -> TargetError:
        code = self._process.exitcode or 0
        how = f"was ended by signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"ended with exit code {code}"
        return TargetError(
            f"A worker process {how} while it made sample {self._place.value}.",
            advice="Signal 9 is often the kernel's, out of memory: fewer --workers need less. Otherwise look at that sample. "
            "What is done is kept.",
        )

    def end(self) -> None:
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(2.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self.connection.close()


def _work(connection: Any, others: list[Any], make: Ready, place: Any) -> None:
    """The life of a worker: it takes numbers until there are none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:
        other.close()
    try:
        forget_threads()
        _keep_freed_memory()
        told = _Told(connection.send, place)
        with make() as one:
            while (number := connection.recv()) is not None:
                told.begin()
                facts = one(number, told)
                told.flush()
                connection.send(("done", number, msgspec.msgpack.encode(facts.brief())))
    except (EOFError, ConnectionError):
        os._exit(1)  # the parent is gone
    except BaseException as error:  # noqa: BLE001 - handed to the parent, which raises it
        with contextlib.suppress(ConnectionError):
            connection.send(_sendable(error))
    connection.close()
    os._exit(0)


def _keep_freed_memory() -> None:
    """Memory is taken and freed a few megabytes at a time; given back to the system, it would cost page faults each time."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return  # not the GNU C library
    mallopt(_TRIM_THRESHOLD, 64 << 20)
    mallopt(_MMAP_THRESHOLD, 32 << 20)


def _sendable(error: BaseException) -> BaseException:
    """The same error with all that pickling an exception would lose."""
    if isinstance(error, PipefixError):
        return _Carried(type(error), str(error), error.advice, error.user_traceback)
    if isinstance(error, OSError):
        return OSError(error.errno, error.strerror or str(error), error.filename)
    return RuntimeError(f"{type(error).__name__}: {error}\n" + "".join(traceback.format_exception(error)))


class _Carried(Exception):
    """One of our errors on its way out of a worker."""

    def __init__(self, kind: type[PipefixError], what: str, advice: str, frames: str | None) -> None:
        super().__init__(kind, what, advice, frames)

    def unpacked(self) -> PipefixError:
        kind, what, advice, frames = self.args
        found: PipefixError = kind(what, advice=advice, user_traceback=frames)
        return found
