"""The state of a loop since its last note, and of the iterator that it goes through."""

from __future__ import annotations

import statistics
import threading
import time
import weakref
from collections import deque
from typing import Any

from .batches import checksum, level_of_samples, samples_in
from .samples import cpu_seconds, queued_seconds
from .timed_batches import summed

clock = time.perf_counter
QUICK = 1e-3
"""Seconds of a batch whose CPU time costs too much to be looked at each time."""
FIRST_NOTE, LATER_NOTES = 0.05, 0.5
"""Seconds of a loop that are noted as one line: few at first, so that a program of a second tells enough for an interval."""
PART_NOTED = 400
"""Of the time since a loop began later notes are such a part, where that is longer: those of weeks can be read in seconds."""
LONGER = 1.5
"""Times longer that each note is than the one before."""
RECORDS = 8
"""Iterators of a loop whose batches are looked at."""
_TIMED = 200
"""Steps by which it is known what one costs."""


class Loop:
    """The batches of the loaders that one line of the program made and one line goes through, since the last note."""

    def __init__(self, number: int, loader: str) -> None:
        self.number, self.loader = number, loader
        self.begun = 0
        self.going = 0
        """Which of its epochs gave the latest batch."""
        self.turns = 0
        """How often that was another one than before."""
        self.trains = False
        """Whether gradients were ever computed for one of its batches, or an optimizer took a step."""
        self.passes = 0
        """Backward passes while one of its iterators was gone through."""
        self.passes_by_end = 0
        """Those of the loops in turn with it as well, when its latest epoch ended."""
        self.from_memory = False
        """Whether it was told that the program trained on with batches of it that it kept."""
        self.kind: Any = None
        """Of its loaders, where others are made and gone through by the same lines; and when the latest was first asked."""
        self.asked = 0.0
        self.latest: Epoch | None = None
        """Of its epochs."""
        self.ended: tuple[float, float] | None = None
        """When its latest epoch ended, and the seconds of all epochs by then."""
        self.saved_since = 0.0
        """Seconds of checkpoints since then."""
        self.records: deque[Any] = deque(maxlen=RECORDS)
        """Where the makers of its batches write what these take by stage."""
        self.model_looks = 0
        """Steps in which it was looked how a model is called."""
        self.optimizer = 0
        """Which took its latest step, by its `id`."""
        self.in_turn: set[Loop] = set()
        """Loops whose batches its steps work on as well: of two loaders, one batch each in turn."""
        self.waited_s = 0.0
        self.durations: list[float] = []
        """Seconds of its steps by the CPU's clock, while something waits for it to be warm."""
        self.on_device_durations: list[float] = []
        """The same by the device's, to which the CPU hands steps over long before they are done."""
        self.trained_s = 0.0
        """Seconds of those steps and of the waits after them."""
        self._made = clock()
        self.noted_after = FIRST_NOTE
        """Seconds of the present note."""
        self._own = {*vars(self), "_own", "since"}
        """What is not noted: all but the sums since the last note, which `clear` begins anew."""
        self.clear()

    def passes_in_turn(self) -> int:
        return sum(loop.passes for loop in (self, *self.in_turn))

    def step_seconds(self) -> tuple[float, float | None]:
        """Of a warm step, by the device where there is one; and those of them in which the CPU is busy with it (None: in all)."""
        on_cpu = _of_warm(self.durations)
        if not self.on_device_durations:
            return on_cpu, None
        on_device = _of_warm(self.on_device_durations)
        return on_device, min(on_cpu, on_device)

    def add(self, record: Any) -> None:
        """Where makers of its batches write what these take, if anywhere."""
        if record is not None and record not in self.records:
            self.records.append(record)

    def noted(self) -> None:
        self.noted_after = max(min(LATER_NOTES, LONGER * self.noted_after), (clock() - self._made) / PART_NOTED)
        self.clear()

    def clear(self) -> None:
        self.steps = self.samples = self.optimizer_steps = self.steps_in_thread = self.without_gradients = 0
        self.wait_s = self.step_s = self.forward_s = self.backward_s = self.optimizer_s = self.inner_s = 0.0
        self.making_cpu_s = self.making_s = self.between_s = self.device_wait_s = 0.0
        self.watched_s = self.queued_s = self.workers_queued_s = 0.0
        self.looked_into_s = self.outside_s = self.saved_s = self.saved_outside_s = self.saved_between_s = 0.0
        self.device_steps = self.on_device_steps = self.optimizers_changed = self.calls_without_gradients = 0
        self.on_device: dict[str, float] = {}
        """Seconds of the parts of `on_device_steps` steps, by the device's clock."""
        self.first_s: list[float] = []
        self.since = clock()

    def figures(self) -> dict[str, Any]:
        """As they are noted."""
        known = {name: value for name, value in vars(self).items() if name not in self._own} | {"epoch": self.going}
        looked = summed(self.records)
        if looked:
            known["looked"] = looked
        return {name: round(value, 7) if isinstance(value, float) else value for name, value in known.items()}


def _of_warm(durations: list[float]) -> float:
    return statistics.median(durations[len(durations) // 4 :])


class Epoch:
    """One iterator of a loop."""

    def __init__(self, loop: Loop, loader: Any, batch_size: int, starting_s: float, pids: tuple[int, ...] = ()) -> None:
        self.loop, self.batch_size, self.starting_s = loop, batch_size, starting_s
        self.number = loop.begun
        self.trains = False
        """Whether gradients were computed for one of its batches, or an optimizer took a step."""
        self.loader = weakref.ref(loader)
        self.pids = pids
        self.inner_s = 0.0
        """Seconds of loops inside its present step."""
        self.inner_by_mark = 0.0
        """Of those, seconds before `marked`."""
        self.saved_s = 0.0
        """Seconds of checkpoints since `marked`."""
        self.cpu_s, self.queued_s, self.workers_queued_s = cpu_seconds(pids), queued_seconds(), queued_seconds(pids)
        """CPU that they had used, and how long its thread and they had waited for one, when it was looked last."""
        self.cpu_at = clock()
        self.begun = clock() - starting_s
        self.thread = threading.get_ident()
        """That goes through it."""
        self.delivered = 0.0
        """When the latest batch was handed out; 0 before the first."""
        self.marked = 0.0
        """When what precedes a backward pass began: with the batch, or where the pass or the optimizer's step before it ended."""
        self.makers: dict[Loop, tuple[Any, Epoch]] = {}
        """Of a wrapper around other loaders, by their loops: a reference to the iterator that it asked last, and its epoch."""
        self.outer: Epoch | None = None
        """On whose batch the program worked when this one began: evaluation inside a training loop."""
        self.left: tuple[float, Epoch | None] | None = None
        """When a batch was asked for of another one that is not inside this one, and `outer` then: that one's time begins here."""
        self.others_waited = 0.0
        """Seconds of all loops' waits when the latest batch was handed out."""
        self.waited = 0.0
        """Seconds until the latest batch was there."""
        self.batches = self.samples = 0
        self.level: int | None = None
        """Of what holds a sample by each item in its batches, where no tensor holds them all."""
        self.checksums: list[int | None] | None = None
        """Of its first batches, while they are told apart."""

    def looks_at_cpu(self) -> bool:
        """Whether the CPU is looked at that the next batch takes, if this thread makes it: one in eight where they are quick."""
        return not self.pids and (self.waited > QUICK or not self.loop.steps & 7)

    def look_at_cpu(self) -> None:
        """Add what its workers used of CPUs, and how long they and its thread waited for one, to its loop."""
        loop, now = self.loop, clock()
        if self.pids:
            spent, queued_s = cpu_seconds(self.pids), queued_seconds(self.pids)
            if spent >= self.cpu_s:  # else they have ended
                loop.making_cpu_s += spent - self.cpu_s
                loop.making_s += now - self.cpu_at
                loop.workers_queued_s += max(0.0, queued_s - self.workers_queued_s)
            self.cpu_s, self.workers_queued_s = spent, queued_s
        if threading.get_ident() == self.thread:
            queued_s = queued_seconds()
            loop.queued_s += queued_s - self.queued_s
            loop.watched_s += now - self.cpu_at
            self.queued_s = queued_s
        self.cpu_at = now

    def count(self, batch: Any) -> int:
        """One more batch; its samples."""
        if not self.batches:
            self.level = level_of_samples(batch, self.batch_size)
        samples = samples_in(batch, self.batch_size, self.level)
        self.samples += samples
        self.batches += 1
        if self.checksums is not None:
            self.checksums.append(checksum(batch))
        return samples


def cost_of_a_step(twin: Any) -> float:
    """Seconds that noting one costs the program, timed now with an `Observer` that sees nothing else.

    Nothing is imported for it: a program that Ctrl-C ended would then end with another exit code.
    """
    loop = Loop(0, "")
    epoch = Epoch(loop, loop, 1, 0.0)
    epoch.delivered = clock()
    twin.epochs[loop] = epoch
    twin.notes.silent = True  # else a slow machine would find that it is time for a note
    begun = clock()
    for _ in range(_TIMED):  # what `patches` does around a batch as well
        twin.epochs.get(loop)
        used = time.thread_time() if epoch.looks_at_cpu() else None
        requested = clock()
        twin.took(loop, epoch, requested, clock(), None, False, None if used is None else time.thread_time() - used)
    return (clock() - begun) / _TIMED
