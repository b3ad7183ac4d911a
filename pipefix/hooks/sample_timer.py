"""`SampleTimer`, which every hook calls: it times, records or replays the call, or lets it pass.

A hook is a place where a library's function is replaced by a wrapper that calls `SampleTimer.timed_call`. What happens there
depends on the timer's mode: nothing (the call goes straight on), timing, recording the result, or answering with a recorded result.
"""

from __future__ import annotations

import os
import weakref
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from threading import get_ident
from time import perf_counter_ns, thread_time_ns
from typing import Any, TypeVar

from pipefix.hooks.charges import BITS, OWN_BEFORE, OWN_DECODED, OWN_RAW, Charges
from pipefix.hooks.chunk_reads import ChunkReads
from pipefix.hooks.result_store import MISSING, READS, Reads, ResultStore
from pipefix.hooks.snapshot import force
from pipefix.vocabulary.stage import AUGMENT, DECODE, STORAGE, Stage

T = TypeVar("T")

_NESTED = 1 << 20
"""Room for the ordinals of calls inside one recorded call."""

_timers: weakref.WeakSet[SampleTimer] = weakref.WeakSet()


def _forked() -> None:
    """What a sample forks, a pool of the dataset's, is not under the clock: no sample ends there, and what it records is lost."""
    for timer in _timers:
        timer.live = timer.active = False


os.register_at_fork(after_in_child=_forked)


class SampleTimer(Charges):
    """One per process. Calls from other threads than the owner's are timed apart (`foreign`), since they run beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.recording: ResultStore | None = None
        self.playing: ResultStore | None = None
        self.replaced: frozenset[Stage] = frozenset()
        """Stages whose calls are answered from `playing`."""
        self.misses = 0
        """Calls that should have been answered from a recording and were not in it."""
        self.unit: object = None
        self.reread: Callable[[Reads], None] | None = None
        """Set by the file hook: reads file ranges again, so that replacing a decode keeps the storage cost inside it."""
        self.trail: Reads | None = None
        """While a decode is recorded: the file ranges read inside it."""
        self._ordinals: dict[tuple[str, int], int] = {}
        self._scope = ""
        self._base = 0
        self._hushed = False
        """Inside code of the user's that is recorded as a whole: what it is made of is not recorded apart."""
        self.chunk_reads: defaultdict[str, ChunkReads] = defaultdict(ChunkReads)
        """By array or table: what was unpacked while samples were recorded."""
        self.mixed: set[str] = set()
        """Operations of the user's own found to hold work of several stages."""
        if type(self) is SampleTimer:
            _timers.add(self)

    # -- samples ---------------------------------------------------------------------------------------------------

    def begin(self, unit: object, *, cpu: bool = False) -> None:
        """A sample starts: its own code is on top until a hook is crossed."""
        self.owner = get_ident()
        self.unit = unit
        self.cpu = cpu
        self._ordinals.clear()
        self._scope, self._base, self._hushed, self.trail = "", 0, False, None
        self._crossed = self._paused = 0
        self.phase = OWN_BEFORE
        self._top = OWN_BEFORE
        self.stage = None
        self.live = self.active
        if cpu:
            self._last_cpu = thread_time_ns()
        self._last = perf_counter_ns()

    def end(self) -> None:
        self._charge()
        self.live = False
        self._top = OWN_BEFORE
        self.stage = None
        self.unit = None
        self.cpu = False

    # -- hooks -----------------------------------------------------------------------------------------------------

    def timed_call(
        self,
        stage: Stage,
        op: str,
        fn: Callable[..., T],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] = {},
        *,
        replayable: bool = True,
        deferred: bool = False,
        own: bool = False,
        leaf: bool = True,
    ) -> T:
        """Call ``fn`` as operation ``op`` of ``stage``: timed, recorded or replaced as the mode says.

        Inside an operation of the same stage the call belongs to that operation and is neither timed nor recorded apart.

        Args:
            replayable: Whether a recorded result can stand for the call; else it is neither recorded nor replaced.
            deferred: Work that an earlier call put off (PIL's lazy load); it does not make the user's code around it mixed.
            own: Of the user's own code, which is one piece of ``stage``: it is recorded and replaced as a whole, unless it was
                found to hold work of other stages (`mixed`): then its hooks are.
            leaf: Whether calls of the same stage inside are part of it; else they are timed under their own names.
        """
        if not self.live or self.stage is stage:
            return fn(*args, **kwargs)
        if get_ident() != self.owner:
            return fn(*args, **kwargs) if own else self._beside(stage, op, fn, args, kwargs)
        if (self.recording is not None or self.replaced) and replayable:
            return self._recorded(stage, op, fn, args, kwargs, own, leaf)
        key = self._ids.get((stage, op), -1)
        if key < 0:
            key = self.op_id(stage, op)
        top, above, crossed = self._top, self.stage, self._crossed
        # `_charge` and `_passed` in line: this is the path that every call of every sample takes.
        now = perf_counter_ns()
        spent = now - self._last
        self.wall[top] += spent
        begun = self._last = self._charge_cpu(top, spent) if self.cpu else now
        self.calls[key] += 1
        self.entered[top] += 1
        self._top = key
        if leaf:
            self.stage = stage
        if own:
            self._crossed = 0
        value: Any = MISSING
        try:
            value = fn(*args, **kwargs)
            return value  # type: ignore[no-any-return]
        finally:
            now = perf_counter_ns()
            spent = now - self._last
            self.wall[self._top] += spent
            self._last = self._charge_cpu(self._top, spent) if self.cpu else now
            if own:
                if self._crossed & ~BITS[stage] or value is None:
                    # Without a result it works on its arguments or its object: a recording could not stand in for that.
                    self.mixed.add(op)
                self._crossed |= crossed
            self._crossed = crossed if deferred else self._crossed | BITS[stage]
            self.stage = above
            if self.events is not None:
                self.events.append((key, begun, self._last))
            if stage is not STORAGE:
                self.phase = OWN_DECODED
            elif top <= OWN_DECODED or self.phase == OWN_BEFORE:
                self.phase = OWN_RAW
            self._top = top if top > OWN_DECODED else self.phase

    def _recorded(
        self, stage: Stage, op: str, fn: Callable[..., T], args: Sequence[Any], kwargs: Mapping[str, Any], own: bool, leaf: bool
    ) -> T:
        """A call while recording or replaying. The user's own code is one piece, unless it is mixed."""
        whole = not own or op not in self.mixed
        label, ordinal = self.place(op)
        if whole and stage in self.replaced:
            value: Any = self.answer(stage, label, ordinal, args, kwargs)
            if value is not MISSING:
                return value  # type: ignore[no-any-return]
        recording, before = self.open_recording, (self._scope, self._base, self._hushed, self.trail)
        if whole:
            self._scope, self._base, self._hushed = f"{label}/", (ordinal + 1) * _NESTED, self._hushed or own
        reads: Reads | None = [] if recording is not None and stage is DECODE and not own else None
        if reads is not None:
            self.trail = reads
        try:
            value = self.timed_call(stage, op, fn, args, kwargs, replayable=False, own=own, leaf=leaf)
        finally:
            self._scope, self._base, self._hushed, self.trail = before
        if recording is not None and (not own or op not in self.mixed):  # which it may be by now
            self.keep(stage, label, ordinal, value, reads)
        return value  # type: ignore[no-any-return]

    # -- recordings ------------------------------------------------------------------------------------------------

    def place(self, op: str) -> tuple[str, int]:
        """Where a call belongs on the recording: its label and how many times it was called before.

        Counted inside the recorded call around it, if any, so that what is replaced outside never shifts the numbers.
        """
        label = self._scope + op
        slot = (label, self._base)
        count = self._ordinals.get(slot, 0)
        self._ordinals[slot] = count + 1
        return label, self._base + count

    def answer(
        self, stage: Stage, label: str, ordinal: int, args: Sequence[Any] = (), kwargs: Mapping[str, Any] = {},
        *, reread: bool = True,
    ) -> Any:  # fmt: skip
        """The recorded result of a call, or `MISSING`. What the call would have caused besides is still done: lazy arguments are
        decoded, and files read inside a decode are read (unless those stages are replaced too)."""
        if self.playing is None:
            return MISSING
        if stage is AUGMENT and DECODE not in self.replaced:
            force(args, kwargs)
        self._charge()
        value = self.playing.find(self.unit, label, ordinal)
        self.replay_ns += perf_counter_ns() - self._last
        self._restart()
        if value is MISSING:
            self.misses += 1
            return value
        if reread and stage is DECODE and STORAGE not in self.replaced and self.reread is not None:
            ranges = self.playing.find(self.unit, label + READS, ordinal)
            self._restart()
            if ranges is not MISSING:
                self.reread(ranges)
        self._passed(stage)
        return value

    def keep(self, stage: Stage, label: str, ordinal: int, value: Any, reads: Reads | None = None) -> None:
        """Record a result; the time that takes is nobody's."""
        if self.recording is None:
            return
        self.recording.keep(self.unit, label, ordinal, stage, value)
        if reads:
            self.recording.keep(self.unit, label + READS, ordinal, STORAGE, tuple(reads))
            if self.trail is not None:
                self.trail.extend(reads)
        self._restart()

    def tapes(self, stage: Stage) -> bool:
        """Whether calls of a stage are kept just now, or answered from what was kept."""
        return self.recording is not None or stage in self.replaced

    @property
    def counts_chunks(self) -> bool:
        """Whether to count what is unpacked just now: for samples that are recorded, in their thread."""
        return self.recording is not None and get_ident() == self.owner

    @property
    def open_recording(self) -> ResultStore | None:
        """Where a hook that records by itself keeps its results now; None also inside a call that is recorded as a whole."""
        return None if self._hushed else self.recording


class UntimedTimer(SampleTimer):
    """Answers from recorded files without a clock: for samples that a training program reads from a cache."""

    def begin(self, unit: object, *, cpu: bool = False) -> None:
        self.owner, self.unit, self.stage, self.live = get_ident(), unit, None, self.active
        self._ordinals.clear()

    def end(self) -> None:
        self.live, self.unit, self.stage = False, None, None

    def pause(self) -> None:
        """There is no clock to stop."""

    def resume(self, stage: Stage | None = None) -> None:
        """There is no clock to start."""

    def timed_call(
        self, stage: Stage, op: str, fn: Callable[..., T], args: Sequence[Any] = (), kwargs: Mapping[str, Any] = {}, **how: Any
    ) -> T:
        if not self.live or self.stage is stage or get_ident() != self.owner:
            return fn(*args, **kwargs)
        if self.playing is not None and stage in self.replaced and how.get("replayable", True):
            self.misses += 1
        above, self.stage = self.stage, stage
        try:
            return fn(*args, **kwargs)
        finally:
            self.stage = above
