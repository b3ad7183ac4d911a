"""The account of a timer: nanoseconds by operation, charged to the innermost one whenever that changes.

One clock reading closes the operation before and opens the next, so the charges of a sample add up to its duration by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import get_ident
from time import perf_counter_ns, thread_time_ns
from typing import Any, TypeVar

from pipefix.vocabulary.stage import STORAGE, Stage

T = TypeVar("T")

OWN_BEFORE, OWN_RAW, OWN_DECODED = 0, 1, 2
"""Ids of the user's own code inside a sample: before any read, between read and decode, on decoded values."""
BITS = {stage: 1 << at for at, stage in enumerate(Stage)}
"""A set of stages is a sum of these."""
OWN_NAMES = ("own code before reading", "own code on raw bytes", "own code on decoded values")


class Charges:
    """The account of one process's samples, kept by the thread that makes them."""

    def __init__(self) -> None:
        self.active = False
        """Whether samples are to be put under the clock at all."""
        self.live = False
        """Whether one is just now: between `begin` and `end` of an active timer. At other times every hook passes straight through:
        what collating or a worker's own housekeeping calls is neither charged to a sample nor taken for a recorded part of one."""
        self.cpu = False
        """Also read the thread's CPU clock at each border (about 1 µs a reading, so it is done for some samples only)."""
        self.owner = get_ident()
        self.names: list[tuple[Stage | None, str]] = [(None, name) for name in OWN_NAMES]
        self._ids: dict[tuple[Stage | None, str], int] = {}
        self.wall: list[int] = []
        self.cpu_wall: list[int] = []
        """Wall time of those borders where CPU time was read too: the base of the CPU share."""
        self.cpu_time: list[int] = []
        self.calls: list[int] = []
        self.entered: list[int] = []
        """Calls by what was on top when they were made: it pays for their clocks."""
        self._columns = self.wall, self.cpu_wall, self.cpu_time, self.calls, self.entered
        for column in self._columns:
            column.extend([0] * len(self.names))
        self._inner: dict[int, int] = {}
        """By other thread: nanoseconds of the calls inside the one that it is in."""
        self.clear()
        self.events: list[tuple[int, int, int]] | None = None
        """(op id, begin ns, end ns) where a trace was asked for."""
        self._crossed = 0
        """Stages met so far, a bit each."""
        self.phase = OWN_BEFORE
        """What the sample's own code works on just now: one of the ``OWN_`` ids."""
        self._top = OWN_BEFORE
        self.stage: Stage | None = None
        """Of the operation on top; None in the sample's own code."""
        self._last = 0
        self._last_cpu = 0
        self._paused = 0
        """How many `pause`s are to be resumed."""

    def clear(self) -> None:
        """Forget all charges; operations keep their ids."""
        for column in self._columns:
            for key in range(len(column)):  # in place: another thread may be adding an operation
                column[key] = 0
        self.foreign: dict[int, int] = {}
        self.bytes_read = 0
        self.replay_ns = 0
        """Time spent answering from recordings: the instrument's own, to be subtracted."""

    def op_id(self, stage: Stage | None, op: str) -> int:
        key = self._ids.get((stage, op))
        if key is None:
            # Threads may add at the same time: what has a name has its columns, and the place of its name tells the id.
            for column in self._columns:
                column.append(0)
            self.names.append((stage, op))
            key = self._ids[(stage, op)] = self.names.index((stage, op))
        return key

    @property
    def owns(self) -> bool:
        """Whether the caller is the thread whose sample is under the clock."""
        return get_ident() == self.owner

    @property
    def on_top(self) -> str:
        """The operation that runs now, of any kind; empty in the sample's own code."""
        return self.names[self._top][1] if self._top > OWN_DECODED else ""

    def own_ns(self) -> int:
        """Charged so far to the code that runs now: that of the sample, or the user's function that is an operation itself."""
        self._charge()
        return sum(self.wall[: OWN_DECODED + 1]) if self._top <= OWN_DECODED else self.wall[self._top]

    @contextmanager
    def crossings(self) -> Iterator[Callable[[], int]]:
        """The stages of the hooks that are met inside, a bit each."""
        before, self._crossed = self._crossed, 0
        inside = 0
        try:
            yield lambda: inside
        finally:
            inside = self._crossed
            self._crossed |= before

    def pause(self) -> None:
        """What follows, up to `resume`, is the instrument's own: it stands in for something replaced. No call in it is timed."""
        if get_ident() == self.owner:
            if not self._paused:
                self._charge()
            self._paused += 1

    def resume(self, stage: Stage | None = None) -> None:
        """Back to the sample; ``stage`` says that what was stood in for belongs to it."""
        if get_ident() == self.owner:
            if stage is not None:
                self._passed(stage)
            self._paused -= 1
            if not self._paused:
                self.replay_ns += perf_counter_ns() - self._last
                self._restart()

    def aside(self, stage: Stage, op: str, fn: Callable[..., T], *args: Any) -> T:
        """Call ``fn`` and charge it to ``op``, as no call of its own. It says nothing of what the own code works on: a file
        is closed whenever the last name for it goes."""
        if not self.live or self.stage is stage or get_ident() != self.owner:
            return fn(*args)
        key = self.op_id(stage, op)
        self._charge()
        top, self._top = self._top, key
        self.entered[top] += 1
        try:
            return fn(*args)
        finally:
            self._charge()
            self._top = top

    def _charge(self) -> None:
        now = perf_counter_ns()
        spent = now - self._last
        self.wall[self._top] += spent
        self._last = self._charge_cpu(self._top, spent) if self.cpu else now

    def _charge_cpu(self, top: int, spent: int) -> int:
        """The processor time of ``spent``; returns the time after the clock was read, which is nobody's."""
        cpu = thread_time_ns()
        self.cpu_time[top] += cpu - self._last_cpu
        self.cpu_wall[top] += spent
        self._last_cpu = cpu
        return perf_counter_ns()

    def _restart(self) -> None:
        """Leave out what the instrument itself just did."""
        if self.cpu:
            self._last_cpu = thread_time_ns()
        self._last = perf_counter_ns()

    def _passed(self, stage: Stage) -> None:
        """After a hook the sample's own code works on something else than before it."""
        own = self._top <= OWN_DECODED
        if stage is not STORAGE:
            self.phase = OWN_DECODED
        elif own or self.phase == OWN_BEFORE:
            # The next sample of a batched fetch, or another file of the same sample: what was read is raw again.
            self.phase = OWN_RAW
        if own:
            self._top = self.phase
        self._crossed |= BITS[stage]

    def _beside(self, stage: Stage, op: str, fn: Callable[..., T], args: Sequence[Any], kwargs: Mapping[str, Any]) -> T:
        key, thread = self.op_id(stage, op), get_ident()
        around, self._inner[thread] = self._inner.get(thread), 0
        begun = perf_counter_ns()
        try:
            return fn(*args, **kwargs)
        finally:
            spent = perf_counter_ns() - begun
            self.foreign[key] = self.foreign.get(key, 0) + spent - self._inner.pop(thread)
            if around is not None:
                self._inner[thread] = around + spent
