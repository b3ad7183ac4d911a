"""`watch`: a meter on a loader while a job trains, a window of figures every half minute, and word of what changes.

It costs the training thread some microseconds a step. Windows are made and written by a thread of its own; whatever fails there is
told once and never reaches the training.
"""

from __future__ import annotations

import atexit
import inspect
import logging
import os
import reprlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any

import msgspec

from pipefix.loader.metering.meter import Meter
from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.held_loaders import held_loader
from pipefix.watching import baseline as baselines
from pipefix.watching import sentences
from pipefix.watching.attach import Attachment
from pipefix.watching.drift import Baseline, Drift
from pipefix.watching.exporter import Exporter, opened, rank
from pipefix.watching.gather import LOOK_EVERY, Gatherer, MachineFigures
from pipefix.watching.window import Notice, Window

EVERY = 30.0
PATIENCE = 10.0
"""Seconds that the end of a watch waits for a window that is being written."""
log = logging.getLogger("pipefix.watch")


def _iterated(loader: Any) -> Any:
    """The DataLoader that gives the batches, where ``loader`` is a framework's wrapper around one; else itself."""
    inner = held_loader(loader)
    return loader if inner is None else inner


class Watch:
    """Iterate it, or the loader itself: it is watched until `close`, and then as it was found."""

    def __init__(
        self, loader: Any, *, exporters: Sequence[Exporter] = (), baseline: Baseline | None = None, every: float = EVERY,
        stages: bool = True, on_drift: Callable[[Notice], object] | None = None, labels: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.loader = loader
        inner = _iterated(loader)
        own = getattr(inner, "meter", None)
        self.meter = own if isinstance(own, Meter) else Meter()
        self._attachment = Attachment(inner, self.meter, stages=stages)
        self._exporters = list(exporters)
        self.drift = Drift(baseline)
        self.every, self._on_drift = every, on_drift
        self._gatherer = Gatherer(self.meter, labels)
        self._machine = MachineFigures()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._dead: set[int] = set()
        self._told: set[int] = set()
        """Outputs, by identity, whose place could not be had: told once."""
        self._owner = os.getpid()
        self.window: Window | None = None
        self.closed = self._failed = self._hangs = False

    # -- its life ------------------------------------------------------------------------------------------------------

    def start(self, *, thread: bool = True) -> Watch:
        """Hang the meter on. Without a thread, whoever started it calls `pulse`."""
        self._attachment.attach()
        if thread:
            self._thread = threading.Thread(target=self._run, name="pipefix-watch", daemon=True)
            self._thread.start()
            atexit.register(self.close)
        return self

    def turn_to(self, loader: Any, iterators: Sequence[Any] = ()) -> None:
        """Watch this loader instead, the same job going on; ``iterators`` of it run already."""
        if loader is not self.loader:
            self._attachment.detach()
            self.loader = loader
            self._attachment = Attachment(_iterated(loader), self.meter, stages=self._attachment.stages)
            self._attachment.attach()
        for iterator in iterators:
            self._attachment.adopt(iterator)

    def close(self) -> None:
        """The last window is written, and the loader is as it was."""
        if self.closed or os.getpid() != self._owner:
            return
        self.closed = True
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=PATIENCE)
        atexit.unregister(self.close)
        if not self._failed:
            self._pulse_safely(ended=True)
        self._attachment.detach()
        self._machine.close()
        for exporter in () if self._hangs else list(self._exporters):
            self._guarded(exporter, exporter.close)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- as a loader -----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        if self.closed or self.loader is not self._attachment.loader:
            return iter(self.loader)
        return self._attachment.around()

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)

    def pulse(self, *, ended: bool = False) -> Window:
        """Close the window that is open, tell it to the exporters and to whoever waits for drift."""
        if not self._lock.acquire(timeout=PATIENCE if ended else -1):
            raise TimeoutError("one of its outputs hangs: the last window is not written")  # the one before still is
        try:
            processes = self._attachment.processes
            alive = sum(_exit_code(process) is None for process in processes)
            died = self._died(processes)
            window = self._gatherer.window(time=time.time(), workers=alive, makers=len(processes), died=died, ended=ended)
            notices, machine = self.drift.feed(window), self._machine.take()
            self.window = window = msgspec.structs.replace(window, notices=notices, drifting=self.drift.drifting, machine=machine)
            for exporter in list(self._exporters):
                self._guarded(exporter, lambda exporter=exporter: exporter.write(window))  # type: ignore[misc]
        finally:
            self._lock.release()
        for notice in notices:
            self._tell(notice)
        return window

    def _run(self) -> None:
        while not self._failed and not self._waited():
            self._pulse_safely()

    def _waited(self) -> bool:
        """Until the next window, with looks at the machine meanwhile; True where the watch was closed."""
        until = time.monotonic() + self.every
        while (left := until - time.monotonic()) > 0:
            if self._stop.wait(min(left, LOOK_EVERY)):
                return True
            self._machine.look()
        return False

    def _pulse_safely(self, *, ended: bool = False) -> None:
        """A watch that fails, or whose output hangs, says so once and ends; the training goes on."""
        try:
            self.pulse(ended=ended)
        except TimeoutError as error:
            self._hangs = True
            log.warning("pipefix.watch has stopped: %s; the training goes on.", error)
        except Exception:
            self._failed = True
            log.exception("pipefix.watch has stopped: this is a bug in pipefix, not in your training.")

    def _guarded(self, exporter: Exporter, call: Callable[[], object]) -> None:
        """Whatever an exporter raises, SummaryWriters of the user's own among them, is told once."""
        name = type(exporter).__name__
        try:
            call()
        except OSError as error:
            if id(exporter) not in self._told:
                self._told.add(id(exporter))
                log.warning("pipefix.watch: %s could not write a window: %s. The next ones are tried.", name, error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the border: an output never ends the watch, nor the watch the training
            log.warning("pipefix.watch: %s gets no more windows: %s: %s", name, type(error).__name__, error)
            if exporter in self._exporters:
                self._exporters.remove(exporter)

    def _tell(self, notice: Notice) -> None:
        if notice.alarm:
            log.warning("pipefix.watch: %s %s", notice.sentence, sentences.advice(notice) or "")
        else:
            log.info("pipefix.watch: %s", notice.sentence)
        if self._on_drift is not None and notice.alarm:
            try:
                self._on_drift(notice)
            except (Exception, SystemExit):
                log.exception("pipefix.watch: on_drift raised; the training and the watch go on.")

    def _died(self, processes: Sequence[Any]) -> list[str]:
        deaths = []
        for number, process in enumerate(processes):
            code = _exit_code(process)
            # Torch itself terminates workers that do not leave in time.
            if code and code != -signal.SIGTERM and process.pid not in self._dead:
                self._dead.add(process.pid)
                how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
                deaths.append(f"worker {number} (pid {process.pid}) {how}")
        return deaths


def _exit_code(process: Any) -> int | None:
    """How a process ended; None while it runs, or where that cannot be told.

    Without reaping it: torch asks the kernel the same question to say why a worker died, and who asks second is not told.
    """
    known = getattr(getattr(process, "_popen", None), "returncode", None)
    if known is not None or not hasattr(os, "waitid"):
        return known
    try:
        state = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except OSError:  # somebody else's child, or one that was reaped just now
        return None
    if state is None:
        return None
    return -state.si_status if state.si_code in (os.CLD_KILLED, os.CLD_DUMPED) else state.si_status


@contextmanager
def training_goes_on(failed: str = "this loader could not be watched") -> Iterator[None]:
    """For callbacks of trainers: what fails inside is told, and the training goes on; an option that makes no sense is raised."""
    try:
        yield
    except BadUsage:
        raise
    except Exception:
        log.exception("pipefix.watch: %s; the training goes on.", failed)


def watch(
    loader: Any,
    *,
    jsonl: str | Path | None = None,
    prometheus: int | str | None = None,
    textfile: str | Path | None = None,
    tensorboard: Any = None,
    baseline: str | Path | Baseline | None = None,
    every: float = EVERY,
    stages: bool = True,
    on_drift: Callable[[Notice], object] | None = None,
    labels: dict[str, str] | None = None,
) -> Watch:
    """Watch any loader while a job runs: waits, steps, rates, the cost of each stage, and what drifts.

    Args:
        loader: a DataLoader, a FastLoader, or anything else that can be iterated.
        jsonl: a file that gets one line of JSON a window; rank 1 of a distributed job writes ``NAME.rank1.jsonl``, and so on.
        prometheus: a port, or "host:port", to serve metrics on; each further rank of a machine serves on the port after it.
        textfile: a .prom file for the node exporter.
        tensorboard: a directory, or a SummaryWriter of your own.
        baseline: a run file of the probe, or the jsonl of an earlier job, that this one is held against.
        every: seconds of a window.
        stages: whether to look into some batches for what each stage costs.
        on_drift: called with each alarm; alarms are also logged as warnings by the logger "pipefix.watch".
        labels: names and values that tell this process from others (default: its rank, where it is one of several).

    Returns:
        The watch: iterate it, or the loader itself. `close`, or leaving its ``with`` block, ends it.
    """
    if not hasattr(type(loader), "__iter__"):
        problem = f"pipefix.watch needs something that can be iterated, such as a DataLoader; this is a {type(loader).__name__}."
        raise BadUsage(problem, advice="Give it the loader itself: with pipefix.watch(loader) as batches: ...")
    path, is_number = (str, os.PathLike, NoneType), isinstance(every, (int, float)) and not isinstance(every, bool)
    is_board = isinstance(tensorboard, path) or hasattr(tensorboard, "add_scalar")
    for name, given, right, what, such_as in (
        ("every", every, is_number and every > 0, "a number of seconds above zero", "30"),
        ("jsonl", jsonl, isinstance(jsonl, path), "the path of a file", "'watch.jsonl'"),
        ("textfile", textfile, isinstance(textfile, path), "the path of a file", "'pipefix.prom'"),
        ("tensorboard", tensorboard, is_board, "a folder or a SummaryWriter", "'runs'"),
        ("baseline", baseline, isinstance(baseline, (*path, Baseline)), "the path of a file", "'watch.jsonl'"),
        ("on_drift", on_drift, on_drift is None or callable(on_drift), "a function of a notice", "print"),
        ("labels", labels, labels is None or isinstance(labels, Mapping), "a dict of names and values", "{'job': 'night'}"),
    ):
        if not right:
            raise BadUsage(f"{name}={reprlib.repr(given)} is not {what}.", advice=f"Write {name}={such_as}")
    held = baselines.read(Path(baseline)) if isinstance(baseline, (str, os.PathLike)) else baseline
    exporters, here = opened(jsonl, prometheus, textfile, tensorboard), rank()
    if labels is None:
        labels = {"rank": str(here)} if here is not None else {}
    labels = {str(name): str(value) for name, value in labels.items()}
    return Watch(loader, exporters=exporters, baseline=held, every=every, stages=stages, on_drift=on_drift, labels=labels).start()


def checked(options: dict[str, Any]) -> dict[str, Any]:
    """For callbacks: a name that is no option of `watch` is refused where it is written, not logged once training has begun."""
    inspect.signature(watch).bind(None, **options)
    return options
