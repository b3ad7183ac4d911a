"""Does work inside the program that the command asked for: once, on the loader of its training loop, when that is warm.

It runs in a process forked from the program's, which waits meanwhile. Random numbers, samplers, iterators and memory of the program
stay as they were, whatever is done. Signals are the program's, and none is lost: its handlers write checkpoints or ask a job to be
queued again, which that process must not do a second time.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

from .lines import OURS
from .notes import known_rank
from .samples import processes_of

STEPS, SECONDS = 10, 1.0
"""A loop is warm after so many steps and seconds."""
ENOUGH = ".pipefix-enough"
"""The file that is made when the optimizer has taken the steps that were asked for, or the work is done."""
_LOOK = 0.02
"""Seconds between two looks whether the work is done."""
_PATIENCE = 30.0
"""Seconds that the work has to write what it knows once Ctrl-C was pressed."""


HOOK = "pipefix-hook"
"""How the name of the folder begins that `launch` puts on ``PYTHONPATH``."""


def without_hooks(path: str) -> str:
    """A ``PYTHONPATH`` as it is for programs that nobody looks into."""
    return os.pathsep.join(place for place in path.split(os.pathsep) if not os.path.basename(place).startswith(HOOK))


def is_importable() -> bool:
    """Whether the program's own Python finds a pipefix, and no folder that only is called so, as a checkout or results are."""
    spec = find_spec("pipefix")
    return spec is not None and spec.origin is not None


def make_importable() -> None:
    """The pipefix that started the program, where the program's own Python finds none."""
    if not is_importable():
        sys.path.append(os.path.dirname(OURS))


ELSEWHERE = "Not probed: the program trains on another machine than pipefix. Start it there: srun pipefix run --probe train.py"
_ENDING = (signal.SIGINT, signal.SIGTERM)
_ASKING = (*_ENDING, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""By which a program is asked for something."""


class Inside:
    def __init__(self, file: str, folder: str = "") -> None:
        self.job: dict[str, Any] = {}
        with contextlib.suppress(FileNotFoundError), open(file, encoding="utf-8") as job:  # of a pipefix on another machine
            self.job = json.load(job)
        self.file = file
        if self.job.get("ends"):  # of each process: of parents, too
            sys.excepthook = without_words(sys.excepthook, folder)

    def due(self, steps: int, seconds: float) -> bool:
        """Whether a training loop that took so many steps in so long is warm, so that the work can be done now."""
        return steps >= STEPS and seconds >= SECONDS

    def claim(self) -> bool:
        """Whether this process is to do it: rank 0, and no other one of the program does."""
        first = known_rank() in (None, "", "0")
        if not self.job:
            return first  # and `do` says why it cannot be done
        with contextlib.suppress(FileExistsError):
            os.close(os.open(f"{self.file}.{'taken' if first else 'left'}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            return first
        return False

    def do(self, loader: Any, place: str, step: tuple[float, float | None], iterators: list[tuple[Any, Any]]) -> str | None:
        """Wait for the work. What kept it from being done, where something did.

        ``step``: seconds of one, and of those the seconds in which the CPU is busy with it (None: in all); ``iterators``: those
        that the program has, each with its loader.
        """
        if not self.job:
            return ELSEWHERE
        if threading.current_thread() is not threading.main_thread():
            return "Not probed: batches are taken in a thread of the program's, where no signals would be heard meanwhile."
        # No signal is delivered meanwhile: one that falls among what Python calls at a fork is printed there, and lost.
        before, program = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()), os.getpid()
        try:
            process = os.fork()
        except BaseException:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            raise
        if process == 0:
            self._work(loader, place, step, iterators, before, program)
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            late = self._wait(process)
        except BaseException:
            _end(process)
            raise
        if late or os.path.exists(self.job["answer"]):
            return late
        return "The process in which the program's loader was to be probed ended without an answer."

    def _wait(self, process: int) -> str | None:
        until = time.monotonic() + float(self.job["patience"])
        with hearing() as asked:
            while not _has_ended(process):
                if asked():  # a handler of the program's may have told it to end at its next step
                    _end(process)
                    return None
                if time.monotonic() > until:
                    _end(process)
                    return f"The work in the program was ended: it was not done after {self.job['patience']:.0f} s."
                time.sleep(_LOOK)
        return None

    def _work(
        self, loader: Any, place: str, step: tuple[float, float | None], iterators: list[tuple[Any, Any]], before: Any, program: int
    ) -> None:
        """In the forked process."""
        try:
            gc.freeze()  # what the program has, such as threads of libraries, is not to be freed where it cannot be
            leave_to_the_program()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            with open(f"{self.file}.log", "ab") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            if path := without_hooks(os.environ.pop("PYTHONPATH", "")):  # what is started from here is none of the program's
                os.environ["PYTHONPATH"] = path
            torch: Any = sys.modules.get("torch")
            if hasattr(torch, "cuda") and torch.cuda._is_in_bad_fork():
                # There is no device for torch any more, or for those who ask it: loaders would pin memory, and fail.
                torch.cuda.is_available = torch.accelerator.is_available = lambda: False
            self.kept = _renewed(iterators)
            _forget_fork_server()
            make_importable()
            from importlib import import_module

            import_module("pipefix.system.forks").die_with_parent()
            if os.getppid() != program:
                return  # it was killed meanwhile
            import_module(self.job["module"]).work(loader, place, step, self.job)
        except BaseException:  # noqa: BLE001 - the program's frames are below this one, and are not this process's to end
            with contextlib.suppress(BaseException), open(f"{self.file}.log", "a", encoding="utf-8") as log:
                traceback.print_exc(file=log)
        finally:
            os._exit(0)


def _renewed(iterators: list[tuple[Any, Any]]) -> list[Any]:
    """A loader that keeps its iterator and hands out from it would take the program's own batches here: it gets another iterator.

    Returns:
        What must not be collected while this process lives: with it workers would end.
    """
    plain = sys.modules["torch.utils.data.dataloader"].DataLoader
    kept_alive = []
    for iterator, loader in iterators:
        owns = any("__iter__" in vars(kind) for kind in type(loader).__mro__[: -len(plain.__mro__)])
        if owns and processes_of(iterator):
            fresh = loader._get_iterator()
            kept_alive += [fresh, dict(vars(iterator))]
            vars(iterator).clear()
            vars(iterator).update(vars(fresh))
    return kept_alive


def _forget_fork_server() -> None:
    """The program's is no child of this process, which may not wait for it: workers of its own are started by one of its own."""
    module = sys.modules.get("multiprocessing.forkserver")
    server = getattr(module, "_forkserver", None)
    if server is not None:
        preloaded = server._preload_modules
        server.__init__()
        server._preload_modules = preloaded


def leave_to_the_program() -> None:
    """In the forked process: what ends a program interrupts what is done here, and no handler of the program's is called."""
    for number in _ASKING:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number in _ENDING else signal.SIG_IGN)


@contextlib.contextmanager
def hearing() -> Iterator[Callable[[], bool]]:
    """What tells whether the program was asked for something since that was last told; its handlers are called as ever."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    theirs = signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def asked() -> bool:
        try:
            numbers = os.read(read, 4096)
        except BlockingIOError:
            return False
        if theirs >= 0:
            with contextlib.suppress(OSError):
                os.write(theirs, numbers)
        return any(number in _ASKING for number in numbers)

    try:
        yield asked
    finally:
        signal.set_wakeup_fd(theirs)
        os.close(read)
        os.close(write)


def _end(process: int) -> None:
    """The program is interrupted: so is the work, which then tells what it knows."""
    until = time.monotonic() + _PATIENCE
    with contextlib.suppress(OSError):
        os.kill(process, signal.SIGINT)
        while time.monotonic() < until:
            if _has_ended(process):
                return
            time.sleep(0.05)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def _has_ended(process: int) -> bool:
    with contextlib.suppress(ChildProcessError):  # the program ignores SIGCHLD: nobody is told how its children end
        return bool(os.waitpid(process, os.WNOHANG)[0])
    return True


def end_program(folder: str) -> None:
    """The launcher looks for this file, and ends the program as Ctrl-C would."""
    with contextlib.suppress(OSError), open(os.path.join(folder, ENOUGH), "w", encoding="utf-8"):
        pass  # where the folder is gone, or the disk full, the program goes on


def without_words(otherwise: Any, folder: str) -> Any:
    """Of a program that is ended because all is known: nobody pressed Ctrl-C."""

    def told(kind: Any, error: Any, frames: Any) -> None:
        if not (issubclass(kind, KeyboardInterrupt) and os.path.exists(os.path.join(folder, ENOUGH))):
            otherwise(kind, error, frames)

    return told
