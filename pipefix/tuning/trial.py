"""A trial: settings run in a process of their own, watched while they run, and gone without a trace when they are done with."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec

from pipefix.measurement.gpu import forks_without_cuda
from pipefix.tuning import usage as reading
from pipefix.tuning.block_figures import TrialBlock
from pipefix.tuning.child import LONGEST_BLOCK, TrialWork, serve
from pipefix.tuning.limits import BatchCost, Usage
from pipefix.tuning.results import FAILED
from pipefix.tuning.space import Settings
from pipefix.tuning.usage import Vram
from pipefix.vocabulary import worker_exit
from pipefix.vocabulary.errors import TargetError
from pipefix.vocabulary.garbage import existing_objects_skipped

LOOK_EVERY = 0.05
"""Seconds between two looks at what a trial takes; more where looking itself takes long."""
PATIENCE = 45.0
"""Seconds beyond the longest block that a trial may keep silent: workers start slowly under spawn."""
LEAVING = 2.0
"""Seconds that a trial has to end by itself."""
CLEANING = 30.0
"""Seconds that processes which clean up after others have to end by themselves when the others are gone."""

ROLLUP = Path("/proc/self/smaps_rollup")
"""Where Linux tells what a process takes."""

Watch = Callable[[Usage], "str | None"]
"""Told what the trial takes; why it must be ended, or None."""


class TrialEnded(Exception):
    """A trial was ended, or ended itself, before it told what was asked."""

    def __init__(self, why: str, *, limit: bool = False, error: TargetError | None = None) -> None:
        super().__init__(why)
        self.limit = limit
        """It came near a limit."""
        self.error = error


class TrialProcess:
    """Settings that run. ``close`` leaves no process behind, and removes no shared memory by its name: that of a killed process
    goes with the descriptors and maps that held it, or is removed by torch's own manager, which was told of it."""

    def __init__(self, work: TrialWork, settings: Settings, lot: int, watch: Watch, vram: Vram | None = None) -> None:
        context = multiprocessing.get_context("fork")
        self.settings, self._watch, self._vram = settings, watch, vram
        self._ours, child_end = context.Pipe()
        self._process = context.Process(target=serve, args=(child_end, work, settings, lot, os.getpid()), name="pipefix-trial")
        self._cpu: tuple[float, float] | None = None
        self.used = Usage()
        """The most of each figure so far."""
        self.now = Usage()
        self._closed = threading.Event()
        with existing_objects_skipped():
            _in_a_new_thread(self._process.start, self._closed)
        child_end.close()

    def block(self, seconds: float) -> TrialBlock:
        """The next batches; `TrialEnded` where it came near a limit or failed."""
        block: TrialBlock = self._ask(seconds, LONGEST_BLOCK + seconds + PATIENCE)
        return block

    def look(self) -> BatchCost:
        batch: BatchCost = self._ask("look", LONGEST_BLOCK + PATIENCE)
        return batch

    def _ask(self, request: Any, patience: float) -> Any:
        until = time.perf_counter() + patience
        try:
            self._ours.send(request)
            while not self._ours.poll(self._look()):
                if time.perf_counter() > until:
                    raise TrialEnded(f"it gave no batch within {patience:.0f} s")
            answer = self._ours.recv()
        except (EOFError, OSError):
            raise TrialEnded(self._died()) from None
        self._look()
        if isinstance(answer, tuple):
            message, advice, shown = answer
            error = TargetError(message, advice=advice, user_traceback=shown)
            raise TrialEnded(f"{FAILED}{message.rstrip('.')}", error=error)
        return answer

    def _died(self) -> str:
        self._process.join(1.0)
        code = self._process.exitcode
        return "its process ended" + (f": {worker_exit.describe_exit(code)}" if code is not None and code < 0 else "")

    def _look(self) -> float:
        """Hold what it takes against the limits; seconds until the next look is due."""
        begun = time.perf_counter()
        processes = self._processes()
        used, spent = reading.read(processes), reading.cpu_seconds(processes)
        since, before = self._cpu = self._cpu or (begun, spent)
        cores = max(0.0, spent - before) / max(begun - since, 1.0)
        vram = self._vram.of(self._process.pid or 0, processes) if self._vram is not None else 0.0
        self.now = msgspec.structs.replace(used, cores=cores, vram_bytes=vram)
        self.used = self.used.most(self.now)
        why = self._watch(self.now)
        if why is not None:
            self.close(at_once=True)
            raise TrialEnded(why, limit=True)
        return max(LOOK_EVERY, 15 * (time.perf_counter() - begun))

    def _processes(self) -> list[int]:
        pid = self._process.pid
        return reading.group(pid) if pid is not None else []

    def close(self, *, at_once: bool = False) -> None:
        """End it: asked first, unless it must go at once; then whatever it left is killed."""
        if self._ours.closed:
            return
        if not at_once and self._process.is_alive():
            with suppress(OSError):
                self._ours.send(None)
            self._process.join(LEAVING)
        _end([pid for pid in self._processes() if not _cleans_up(pid)])
        self._process.join(LEAVING)
        until = time.monotonic() + CLEANING
        while (left := self._processes()) and time.monotonic() < until:
            _end([pid for pid in left if not _cleans_up(pid)])
            time.sleep(0.01)
        _end(left)
        self._ours.close()
        self._closed.set()


def _in_a_new_thread(start: Callable[[], None], until: threading.Event) -> None:
    """Fork where nothing was computed: a process forked by a thread that has OpenMP's threads waits for these without end as soon
    as it computes. The thread stays ``until`` the process is gone, which the kernel would end with it (`die_with_parent`)."""
    begun: Future[None] = Future()

    def forking() -> None:
        try:
            start()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            begun.set_exception(error)
        else:
            begun.set_result(None)
            until.wait()

    threading.Thread(target=forking, name="pipefix-forks", daemon=True).start()
    try:
        begun.result()
    except BaseException:
        until.set()
        raise


def _end(processes: list[int]) -> None:
    for pid in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _cleans_up(pid: int) -> bool:
    """Python's resource tracker and torch's shared-memory manager remove what killed processes left in /dev/shm."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"resource_tracker" in command or b"torch_shm_manager" in command


class TrialProcesses:
    """What trials run on: this machine."""

    def __init__(self, work: TrialWork, vram: Vram | None = None) -> None:
        self.work, self.vram, self._lot = work, vram, 0

    def own(self) -> Usage:
        """What this process takes: a trial begins as a copy of it."""
        return reading.read([os.getpid()])

    def look(self, settings: Settings, watch: Watch) -> BatchCost:
        """A few batches without workers."""
        with closing(self.start(settings, watch)) as trial:
            return trial.look()

    def start(self, settings: Settings, watch: Watch) -> TrialProcess:
        """Run settings, on samples that no other trial reads."""
        self._lot += 1
        return TrialProcess(self.work, settings, self._lot - 1, watch, self.vram)


def can_fork() -> str | None:
    """Why trials cannot be run in processes of their own here; None where they can."""
    if not ROLLUP.exists():
        return "this system does not tell what a process takes (/proc/PID/smaps_rollup), by which trials are kept within limits"
    if forks_without_cuda():
        return "CUDA is awake in this process already, and a forked process cannot use it"
    return None
