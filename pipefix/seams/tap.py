"""The tap: what every seam reports to.

A seam is a place where a library's function is replaced by a wrapper that calls `Tap.through`. What happens there depends on the
tap's mode: nothing (the call goes straight on), timing, recording the result, or answering with a recorded result instead.

Time is charged to whichever operation is on top, at every border between two operations. One clock reading closes the operation
before and opens the next, so the charges of a sample add up to its duration by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import get_ident
from time import perf_counter_ns, thread_time_ns
from typing import Any, Protocol, TypeVar

from pipefix.vocabulary.stage import Stage

T = TypeVar("T")

OWN_BEFORE, OWN_RAW, OWN_DECODED = 0, 1, 2
"""Ids of the user's own code inside a sample: before any read, between read and decode, on decoded values."""
_STORAGE, _DECODE, _AUGMENT = Stage.STORAGE, Stage.DECODE, Stage.AUGMENT
"""Looked up once: an enum member costs more to fetch than a clock reading."""
_BITS = {stage: 1 << at for at, stage in enumerate(Stage)}
OWN_NAMES = ("own code before reading", "own code on raw bytes", "own code on decoded values")


class FileTape(Protocol):
    """The bytes of files that were read, by path (`pipefix.seams.extents.Extents`)."""

    def put(self, path: str, offset: int, data: bytes | bytearray | memoryview, size: int) -> None: ...
    def get(self, path: str, offset: int, count: int) -> bytes | None: ...
    def whole(self, path: str) -> bytes | None: ...
    def knows(self, path: str) -> bool: ...
    def size(self, path: str) -> int: ...
    def wants_whole(self, path: str) -> bool:
        """Whether to keep all of a file that is mapped into memory or whose descriptor is asked for: what is read of it that way
        cannot be seen."""
        ...


class Tape(Protocol):
    """Where recorded results are kept and found again. ``unit`` is a sample (or the batch a ``__getitems__`` asked for).

    ``keep`` may refuse a value; it must not raise. ``files`` holds what file seams read: they replay bytes, not results.
    """

    @property
    def files(self) -> FileTape | None: ...

    def keep(self, unit: object, op: str, ordinal: int, stage: Stage, value: Any) -> None: ...
    def find(self, unit: object, op: str, ordinal: int) -> Any:
        """A fresh copy of the recorded value, or `MISSING`."""
        ...


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()
READS = ":reads"
"""Suffix of the label under which a recorded decode keeps which file ranges were read inside it."""
_NESTED = 1 << 20
"""Room for the ordinals of calls inside one recorded call."""

Reads = list[tuple[str, int, int]]
"""(path, offset, count)"""


class Tap:
    """One per process. Calls from other threads than the owner's are timed apart (`foreign`), since they run beside it."""

    def __init__(self) -> None:
        self.active = False
        """Whether samples are to be put under the clock at all."""
        self.live = False
        """Whether one is just now: between `begin` and `end` of an active tap. At other times every seam passes straight through:
        what collating or a worker's own housekeeping calls is neither charged to a sample nor taken for a recorded part of one."""
        self.cpu = False
        """Also read the thread's CPU clock at each border (about 1 µs a reading, so it is done for some samples only)."""
        self.recording: Tape | None = None
        self.playing: Tape | None = None
        self.replaced: frozenset[Stage] = frozenset()
        """Stages whose calls are answered from `playing`."""
        self.owner = get_ident()
        self.names: list[tuple[Stage | None, str]] = [(None, name) for name in OWN_NAMES]
        self._ids: dict[tuple[Stage | None, str], int] = {}
        self.wall: list[int] = [0, 0, 0]
        self.cpu_wall: list[int] = [0, 0, 0]
        """Wall time of those borders where CPU time was read too: the base of the CPU share."""
        self.cpu_time: list[int] = [0, 0, 0]
        self.calls: list[int] = [0, 0, 0]
        self.foreign: dict[int, int] = {}
        self.bytes_read = 0
        self.replay_ns = 0
        """Time spent answering from recordings: the instrument's own, to be subtracted."""
        self.misses = 0
        """Calls that should have been answered from a recording and were not in it."""
        self.events: list[tuple[int, int, int]] | None = None
        """(op id, begin ns, end ns) where a trace was asked for."""
        self.unit: object = None
        self.reread: Callable[[Reads], None] | None = None
        """Set by the file seam: reads file ranges again, so that replacing a decode keeps the storage cost inside it."""
        self.force: Callable[..., None] | None = None
        """Makes lazy values among its arguments real (set by the PIL seam)."""
        self.trail: Reads | None = None
        """While a decode is recorded: the file ranges read inside it."""
        self._ordinals: dict[tuple[str, int], int] = {}
        self._scope = ""
        self._base = 0
        self._hushed = False
        """Inside an entry that is recorded as a whole: what it is made of is not recorded apart."""
        self.mixed: set[str] = set()
        """Entries found to hold work of several stages."""
        self._crossed = 0
        """Stages met so far, a bit each."""
        self._phase = OWN_BEFORE
        self._top = OWN_BEFORE
        self._stage: Stage | None = None
        self._last = 0
        self._last_cpu = 0

    # -- samples ---------------------------------------------------------------------------------------------------

    def begin(self, unit: object, *, cpu: bool = False) -> None:
        """A sample starts: its own code is on top until a seam is crossed."""
        self.owner = get_ident()
        self.unit = unit
        self.cpu = cpu
        self._ordinals.clear()
        self._scope, self._base, self._hushed, self.trail = "", 0, False, None
        self._crossed = 0
        self._phase = OWN_BEFORE
        self._top = OWN_BEFORE
        self._stage = None
        self.live = self.active
        if cpu:
            self._last_cpu = thread_time_ns()
        self._last = perf_counter_ns()

    def end(self) -> None:
        """A sample is complete."""
        self._charge()
        self.live = False
        self._top = OWN_BEFORE
        self._stage = None
        self.unit = None
        self.cpu = False

    def clear(self) -> None:
        """Forget all charges; operations keep their ids."""
        count = len(self.names)
        self.wall = [0] * count
        self.cpu_wall = [0] * count
        self.cpu_time = [0] * count
        self.calls = [0] * count
        self.foreign = {}
        self.bytes_read = 0
        self.replay_ns = 0
        self.misses = 0

    # -- seams -----------------------------------------------------------------------------------------------------

    def through(
        self,
        stage: Stage,
        op: str,
        fn: Callable[..., T],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] = {},
        *,
        replayable: bool = True,
        deferred: bool = False,
        only_timed: bool = False,
    ) -> T:
        """Call ``fn`` as operation ``op`` of ``stage``: timed, recorded or replaced as the mode says.

        Inside an operation of the same stage the call belongs to that operation and is neither timed nor recorded apart.
        ``deferred`` marks work that an earlier call put off (PIL's lazy load): it does not make an `entry` around it mixed.
        """
        if not self.live or self._stage is stage:
            return fn(*args, **kwargs)
        if get_ident() != self.owner:
            return self._beside(stage, op, fn, args, kwargs)
        if (self.recording is not None or self.replaced) and replayable and not only_timed:
            return self._taped(stage, op, fn, args, kwargs, deferred)
        key = self._ids.get((stage, op), -1)
        if key < 0:
            key = self.op_id(stage, op)
        top, above, crossed = self._top, self._stage, self._crossed
        # `_charge` and `_passed` in line: this is the path that every call of every sample takes.
        now = perf_counter_ns()
        spent = now - self._last
        self.wall[top] += spent
        begun = self._last = self._charge_cpu(top, spent) if self.cpu else now
        self.calls[key] += 1
        self._top = key
        self._stage = stage
        try:
            return fn(*args, **kwargs)
        finally:
            now = perf_counter_ns()
            spent = now - self._last
            self.wall[key] += spent
            self._last = self._charge_cpu(key, spent) if self.cpu else now
            self._stage = above
            if self.events is not None:
                self.events.append((key, begun, self._last))
            if stage is not _STORAGE:
                self._phase = OWN_DECODED
            elif top <= OWN_DECODED or self._phase == OWN_BEFORE:
                self._phase = OWN_RAW
            self._top = top if top > OWN_DECODED else self._phase
            self._crossed = crossed if deferred else self._crossed | _BITS[stage]

    def _taped(
        self,
        stage: Stage,
        op: str,
        fn: Callable[..., T],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        deferred: bool,
    ) -> T:
        """A call while recording or replaying."""
        label, ordinal = self.place(op)
        if stage in self.replaced:
            value = self.answer(stage, label, ordinal, args, kwargs)
            if value is not MISSING:
                return value  # type: ignore[no-any-return]
        recording = None if self._hushed else self.recording
        scope, base, trail = self._scope, self._base, self.trail
        self._scope, self._base = f"{label}/", (ordinal + 1) * _NESTED
        reads: Reads | None = [] if recording is not None and stage is _DECODE else None
        if reads is not None:
            self.trail = reads
        try:
            value = self.through(stage, op, fn, args, kwargs, deferred=deferred, only_timed=True)
        finally:
            self._scope, self._base, self.trail = scope, base, trail
        if recording is not None:
            self.keep(stage, label, ordinal, value, reads)
        return value

    # -- recordings ------------------------------------------------------------------------------------------------

    def place(self, op: str) -> tuple[str, int]:
        """Where a call belongs on the tape: its label and how many times it was called before.

        Counted inside the recorded call around it, if any, so that what is replaced outside never shifts the numbers.
        """
        label = self._scope + op
        slot = (label, self._base)
        count = self._ordinals.get(slot, 0)
        self._ordinals[slot] = count + 1
        return label, self._base + count

    def answer(
        self,
        stage: Stage,
        label: str,
        ordinal: int,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] = {},
        *,
        reread: bool = True,
    ) -> Any:
        """The recorded result of a call, or `MISSING`. What the call would have caused besides is still done: lazy arguments are
        decoded, and files read inside a decode are read (unless those stages are replaced too)."""
        if self.playing is None:
            return MISSING
        if stage is _AUGMENT and _DECODE not in self.replaced and self.force is not None:
            self.force(args, kwargs)
        value = self._replay(label, ordinal)
        if value is MISSING:
            return value
        if reread and stage is _DECODE and _STORAGE not in self.replaced and self.reread is not None:
            ranges = self.playing.find(self.unit, label + READS, ordinal)
            self._restart()
            if ranges is not MISSING:
                self.reread(ranges)
        self._passed(stage)
        return value

    def keep(
        self, stage: Stage, label: str, ordinal: int, value: Any, reads: Reads | None = None, tape: Tape | None = None
    ) -> None:
        """Record a result; the time that takes is nobody's."""
        tape = tape or self.recording
        if tape is None:
            return
        tape.keep(self.unit, label, ordinal, stage, value)
        if reads:
            tape.keep(self.unit, label + READS, ordinal, _STORAGE, tuple(reads))
            if self.trail is not None:
                self.trail.extend(reads)
        self._restart()

    def pause(self) -> None:
        """What follows, up to `resume`, is the instrument's own: it stands in for something replaced."""
        if get_ident() == self.owner:
            self._charge()

    def resume(self, stage: Stage | None = None) -> None:
        """Back to the sample; ``stage`` says that what was stood in for belongs to it."""
        if get_ident() == self.owner:
            self.replay_ns += perf_counter_ns() - self._last
            self._restart()
            if stage is not None:
                self._passed(stage)

    @property
    def owns(self) -> bool:
        """Whether the caller is the thread whose sample is under the clock."""
        return get_ident() == self.owner

    @property
    def tape(self) -> Tape | None:
        """Where a seam that records by itself keeps its results now; None also inside a call that is recorded as a whole."""
        return None if self._hushed else self.recording

    @property
    def stage(self) -> Stage | None:
        """The stage of the operation on top; None in the sample's own code."""
        return self._stage

    def entry(
        self,
        stage: Stage,
        op: str,
        fn: Callable[..., T],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] = {},
        *,
        force: Callable[..., None],
        leaf: bool = False,
        only_timed: bool = False,
    ) -> T:
        """Call the user's own code as one piece of ``stage``: seams inside it keep their names, the rest is charged to ``op``.

        Recorded and replaced as a whole, unless it was found to hold work of other stages (`mixed`): then its seams are.
        ``force`` makes lazy values real where the call that would have done so is replaced. A ``leaf`` is one operation:
        calls of its own stage inside it are not timed apart.
        """
        if not self.live or self._stage is stage or get_ident() != self.owner:
            return fn(*args, **kwargs)
        if (self.recording is not None or self.replaced) and not only_timed:
            return self._taped_entry(stage, op, fn, args, kwargs, force, leaf)
        key = self._ids.get((stage, op), -1)
        if key < 0:
            key = self.op_id(stage, op)
        top, above, crossed = self._top, self._stage, self._crossed
        # In line again: every operation of every sample passes here.
        now = perf_counter_ns()
        spent = now - self._last
        self.wall[top] += spent
        begun = self._last = self._charge_cpu(top, spent) if self.cpu else now
        self.calls[key] += 1
        self._top = key
        if leaf:
            self._stage = stage
        self._crossed = 0
        value: Any = MISSING
        try:
            value = fn(*args, **kwargs)
        finally:
            now = perf_counter_ns()
            spent = now - self._last
            self.wall[self._top] += spent
            self._last = self._charge_cpu(self._top, spent) if self.cpu else now
            bit = _BITS[stage]
            if self._crossed & ~bit or value is None:
                # Without a result it works on its arguments or its object: a recording could not stand in for that.
                self.mixed.add(op)
            self._crossed |= crossed | bit
            self._top, self._stage = top, above
            if self.events is not None:
                self.events.append((key, begun, self._last))
            # `_passed`, in line as well.
            own = top <= OWN_DECODED
            if stage is not _STORAGE:
                self._phase = OWN_DECODED
            elif own or self._phase == OWN_BEFORE:
                self._phase = OWN_RAW
            if own:
                self._top = self._phase
        return value  # type: ignore[no-any-return]

    def _taped_entry(
        self,
        stage: Stage,
        op: str,
        fn: Callable[..., T],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        force: Callable[..., None],
        leaf: bool,
    ) -> T:
        """An entry while recording or replaying."""
        whole = op not in self.mixed
        label, ordinal = self.place(op)
        if whole and stage in self.replaced and self.playing is not None:
            if stage is _AUGMENT and _DECODE not in self.replaced:
                force(args, kwargs)
            value = self._replay(label, ordinal)
            if value is not MISSING:
                self._passed(stage)
                return value  # type: ignore[no-any-return]
        recording = None if self._hushed else self.recording
        hushed, scope, base = self._hushed, self._scope, self._base
        if whole:
            self._hushed, self._scope, self._base = True, f"{label}/", (ordinal + 1) * _NESTED
        try:
            value = self.entry(stage, op, fn, args, kwargs, force=force, leaf=leaf, only_timed=True)
        finally:
            self._hushed, self._scope, self._base = hushed, scope, base
        if recording is not None and op not in self.mixed:
            self.keep(stage, label, ordinal, value)
        return value

    @property
    def phase(self) -> int:
        """What the sample's own code works on just now: one of the ``OWN_`` ids."""
        return min(self._phase, OWN_DECODED)

    def op_id(self, stage: Stage | None, op: str) -> int:
        key = self._ids.get((stage, op))
        if key is None:
            key = self._ids[(stage, op)] = len(self.names)
            self.names.append((stage, op))
            for column in (self.wall, self.cpu_wall, self.cpu_time, self.calls):
                column.append(0)
        return key

    def read(self, count: int) -> None:
        """A storage seam moved ``count`` bytes."""
        if self.live:
            self.bytes_read += count

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
        """After a seam the sample's own code works on something else than before it."""
        own = self._top <= OWN_DECODED
        if stage is not _STORAGE:
            self._phase = OWN_DECODED
        elif own or self._phase == OWN_BEFORE:
            # The next sample of a batched fetch, or another file of the same sample: what was read is raw again.
            self._phase = OWN_RAW
        if own:
            self._top = self._phase
        self._crossed |= _BITS[stage]

    def _replay(self, op: str, ordinal: int) -> Any:
        assert self.playing is not None
        self._charge()
        value = self.playing.find(self.unit, op, ordinal)
        self.replay_ns += perf_counter_ns() - self._last
        self._restart()
        if value is MISSING:
            self.misses += 1
        return value

    def _beside(self, stage: Stage, op: str, fn: Callable[..., T], args: Sequence[Any], kwargs: Mapping[str, Any]) -> T:
        key = self.op_id(stage, op)
        begun = perf_counter_ns()
        try:
            return fn(*args, **kwargs)
        finally:
            self.foreign[key] = self.foreign.get(key, 0) + perf_counter_ns() - begun
