"""The forked processes that make the parts of a cache: datasets that cannot be pickled work too, and only numbers are shared.

Memory is bounded by what one part holds back before writing, times the processes. A worker whose parent is gone leaves.

Torch's DataLoader over parts would not do: it tells nothing of a part before all of it is made, nor on which sample a worker died,
and the user's code would find itself in a loader's worker. A ProcessPoolExecutor can neither end its workers nor say how one ended.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import sys
import tempfile
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from multiprocessing.connection import wait
from typing import Any, NamedTuple

from pipefix.caches.pictures import forget_threads
from pipefix.caches.writer import Facts, Moved, SampleCounts, program_ended
from pipefix.system.forks import lost_by_fork
from pipefix.vocabulary.errors import PipefixError, TargetError
from pipefix.vocabulary.garbage import existing_objects_skipped
from pipefix.vocabulary.tracebacks import frames, summary
from pipefix.vocabulary.worker_exit import signal_name

Make = Callable[[int, SampleCounts], Facts]
Ready = Callable[[], AbstractContextManager[Make]]
_TELL_SECONDS = 0.1


class PartDone(NamedTuple):
    number: int
    facts: Facts


def run(numbers: Iterable[int], make: Ready, workers: int) -> Iterator[Moved | PartDone]:
    """Make these parts; yields what happened as it happens. ``make`` is entered once in every process, and gives what makes a part.

    Whatever a worker raises is raised here, after the others were ended. Leaving early ends them too.
    """
    if workers < 1 or not can_fork():
        yield from _here(numbers, make)
        return
    waiting = deque(numbers)
    crew: dict[Any, _Worker] = {}
    try:
        for _ in range(min(workers, len(waiting))):
            worker = _Worker(make, [member.connection for member in crew.values()])
            crew[worker.connection] = worker
            worker.give(waiting)
        while crew:
            heard = wait(list(crew), _TELL_SECONDS)
            for connection, worker in list(crew.items()):
                event = worker.made() if connection in heard else None
                yield worker.counts.moved()
                if event is not None:
                    worker.give(waiting)
                    yield event
                elif connection in heard:
                    crew.pop(connection).end()
    finally:
        for worker in crew.values():
            worker.end()


def can_fork() -> bool:
    """Whether a forked child could work: where a library's threads are missing in it, their user waits for ever."""
    return not lost_by_fork()


def apart(work: Callable[[Any], Any]) -> Any:
    """What ``work`` gives in a forked process; what it raises there is raised here. Its argument it tells which sample it is at.

    Where nothing can be forked it is done here, and has nobody to tell.
    """
    if not can_fork():
        return work(None)
    process = _Process(_work_apart, work, [])
    try:
        return process.hear()
    except (EOFError, ConnectionError):
        raise TargetError(
            f"The process that looked at some samples {process.ended()}.",
            advice="Run that sample by itself: the dataset's code, or a library that it calls, ends the process.",
            user_traceback=process.last_words(),
        ) from None
    finally:
        process.end(patience=2.0)


def _work_apart(connection: Any, work: Callable[[Any], Any], counts: SampleCounts) -> None:
    try:
        answer = work(counts.at)
    except ConnectionError as error:
        raise TargetError(f"A sample cannot be read: {summary(error)}", user_traceback=frames(error)) from error
    connection.send(answer)


class _Process:
    """A forked process and the pipe to it."""

    def __init__(self, run: Callable[[Any, Any, Any], None], work: Any, others: list[Any]) -> None:
        context = multiprocessing.get_context("fork")
        self.connection, inner = context.Pipe()
        self.counts = SampleCounts(context.RawArray("q", (-1, 0, 0, 0)), os.getpid())
        self._last_frames = tempfile.TemporaryFile()  # noqa: SIM115 - a crash writes here, and it is read after the process's end
        sys.stdout.flush()
        sys.stderr.flush()
        arguments = (run, inner, [self.connection, *others], work, self.counts, self._last_frames)
        self._process = context.Process(target=_inside, args=arguments, daemon=True)
        try:
            with existing_objects_skipped():
                self._process.start()
        except OSError as error:
            raise TargetError(
                f"A worker process cannot be started: {error.strerror or error}.",
                advice="Ask for fewer, --workers 1, or none, --workers 0. What is done is kept.",
            ) from error
        inner.close()

    def hear(self) -> Any:
        """What it said; raises what it raised, and EOFError or OSError where it is gone."""
        message = self.connection.recv()
        if isinstance(message, BaseException):
            raise message
        return message

    def ended(self) -> str:
        """How it ended, and at which sample."""
        self._process.join()
        code, sample = self._process.exitcode or 0, self.counts.cells[0]
        how = f"was ended by signal {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        return f"{how} while it made sample {sample}" if sample >= 0 else f"{how} before it made its first sample"

    def last_words(self) -> str | None:
        self._last_frames.seek(0)
        return self._last_frames.read().decode(errors="replace") or None

    def end(self, patience: float = 0.0) -> None:
        self._process.join(patience)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(2.0)
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self.connection.close()
        self._last_frames.close()


def _inside(
    run: Callable[[Any, Any, Any], None], connection: Any, others: list[Any], work: Any, counts: SampleCounts, last_frames: Any
) -> None:
    """The life of a process."""
    faulthandler.enable(last_frames, all_threads=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for inherited in others:
        inherited.close()
    try:
        forget_threads()
        run(connection, work, counts)
    except (EOFError, ConnectionError):
        os._exit(1)  # the parent is gone
    except BaseException as error:  # noqa: BLE001 - handed to the parent, which raises it
        with contextlib.suppress(ConnectionError):
            connection.send(sendable(error))
    connection.close()
    os._exit(0)


def _here(numbers: Iterable[int], make: Ready) -> Iterator[Moved | PartDone]:
    """In this process, where nothing can be forked or nobody wants it."""
    counts = SampleCounts([-1, 0, 0, 0])
    with make() as make_part:
        for number in numbers:
            facts = make_part(number, counts)
            yield counts.moved()
            yield PartDone(number, facts.brief())


class _Worker(_Process):
    """A process that makes parts, one after the other."""

    def __init__(self, make: Ready, others: list[Any]) -> None:
        super().__init__(_work, make, others)
        self._busy = True

    def give(self, waiting: deque[int]) -> None:
        self._busy = bool(waiting)
        with contextlib.suppress(ConnectionError):  # it ended: that is heard next
            self.connection.send(waiting.popleft() if waiting else None)

    def made(self) -> PartDone | None:
        """The part that it made; None once it left after its last one."""
        try:
            made: PartDone = self.hear()
            return made
        except (EOFError, ConnectionError):
            how = self.ended()
            if not self._busy:
                return None
            raise TargetError(
                f"A worker process {how}.",
                advice="Signal 9 is often the kernel's, out of memory: fewer --workers need less. Otherwise look at that sample. "
                "What is done is kept.",
                user_traceback=self.last_words(),
            ) from None


def _work(connection: Any, make: Ready, counts: SampleCounts) -> None:
    """It takes numbers until there are none."""
    with make() as make_part:
        while (number := connection.recv()) is not None:
            connection.send(PartDone(number, make_part(number, counts).brief()))


def sendable(error: BaseException) -> BaseException:
    """The same error with all that pickling an exception would lose."""
    if not isinstance(error, Exception):
        error = program_ended(error, "The dataset")
    if isinstance(error, PipefixError):
        return error
    if isinstance(error, OSError):
        return OSError(error.errno, error.strerror or str(error), error.filename)
    return RuntimeError(f"{type(error).__name__}: {error}\n" + "".join(traceback.format_exception(error)))
