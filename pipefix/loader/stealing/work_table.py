"""The work table: which batches are under way, who makes them, and which of their samples nobody makes yet; in memory that the
training process and its workers share.

The training process posts batches. A worker takes the first that nobody has begun, and makes its samples one by one; a worker that
has nothing to do may make samples of another's. Both happen under a lock of the kernel's on the file itself, which goes with the
process that holds it, so that a worker which is killed holds up nobody. Every other word has one writer.
"""

from __future__ import annotations

import fcntl
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any, NamedTuple

from pipefix.loader.slots.anonymous_memory import AnonymousMemory
from pipefix.loader.workers.parent import Parent

WORDS = 8
"""Words of 8 bytes that a worker and a batch have."""
ROOM = 1 << 24
"""Bytes for what a batch is asked for by: its indices."""
ERA = 0
PLACE, SINCE, USUAL, IDLE, RESUMED, ENDED, HELPED = range(7)
"""Of a worker: where its batch is, since when it makes its sample, what one usually takes, and what it is told."""
NUMBER, OF_ERA, STATE, COUNT, CLAIMED, OWNER, LENGTH = range(7)
"""Of a batch."""
EMPTY, POSTED, BEGUN = range(3)
STATUS, SLOT, BEGIN, SIZE = range(4)
"""Of a sample that another made: where it lies."""
NOT_YET, MADE, FAILED = range(3)
NOWHERE = -1
FACTOR, LEAST = 4, 2_000_000
"""A sample holds up its neighbours when it takes so many times what is usual, and so many nanoseconds."""


class Task(NamedTuple):
    """One sample of another worker's batch."""

    place: int
    number: int
    """Of the sample within its batch."""
    asked: Any


class WorkTable(AnonymousMemory):
    """For ``workers`` workers and ``places`` batches under way. ``bells``: a semaphore each worker waits at."""

    fields = ("workers", "places", "bells", "exchange")

    def __init__(self, workers: int, places: int, bells: list[Any], exchange: Any = None) -> None:
        self.workers, self.places, self.bells = workers, places, bells
        self.exchange = exchange
        """An `Arena` through which samples go from worker to worker."""
        self.reader: Any = None
        """What reads samples, in a worker."""
        self.parent: Parent | None = None
        """In a worker."""
        self._make("pipefix-work-table", self._start + places * ROOM)
        self._view()
        for worker in range(workers):
            self.words[self._of(worker) + PLACE] = NOWHERE

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "reader": None, "parent": None})
        self._view()

    def _view(self) -> None:
        self.words = memoryview(self._map).cast("q")
        workers, batches, end = self._of(0), self._at(0), self._at(self.places)
        # The same word of each, as it is at the time of asking.
        self._states = self.words[batches + STATE : end : WORDS]
        self._at_work = self.words[workers + PLACE : batches : WORDS]
        self._usual = self.words[workers + USUAL : batches : WORDS]

    @property
    def _start(self) -> int:
        return (1 + self.workers + self.places) * WORDS * 8

    def _of(self, worker: int) -> int:
        return (1 + worker) * WORDS

    def _at(self, place: int) -> int:
        return (1 + self.workers + place) * WORDS

    def _sample(self, place: int, number: int) -> int:
        return (self._start + place * ROOM) // 8 + number * 4

    def _payload(self, place: int, count: int) -> int:
        return self._sample(place, count) * 8

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self._fd, fcntl.LOCK_EX, 1)
        try:
            yield
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1)

    def count_of(self, worker: int, what: int) -> int:
        return self.words[self._of(worker) + what]

    # -- in the training process -------------------------------------------------------------------------------------------

    def post(self, number: int, asked: Any, count: int) -> None:
        """A batch of ``count`` samples is to be made."""
        payload = pickle.dumps(asked, pickle.HIGHEST_PROTOCOL)
        if self._payload(0, count) - self._payload(0, 0) + len(payload) > ROOM:
            raise ValueError(
                f"A batch of {count} samples takes {len(payload):,} bytes to ask for, more than scheduling='sample' has room for. "
                "Use FastLoader(..., scheduling='batch')."
            )
        place = self._states.tolist().index(EMPTY)
        base, begin = self._at(place), self._payload(place, count)
        self._map[self._payload(place, 0) : begin] = bytes(count * 32)
        self._map[begin : begin + len(payload)] = payload
        for word, value in ((NUMBER, number), (OF_ERA, self.words[ERA]), (COUNT, count), (CLAIMED, 0), (LENGTH, len(payload))):
            self.words[base + word] = value
        with self._locked():
            self.words[base + STATE] = POSTED
            idle = self._idle_worker()
        if idle is not None:
            self.bells[idle].release()

    def withdraw(self) -> None:
        """What nobody has begun is not made any more, and nobody helps with what is begun."""
        with self._locked():
            self.words[ERA] += 1
            for place in self._in_state(POSTED):
                self._states[place] = EMPTY

    def notify(self, worker: int, what: int) -> None:
        self.words[self._of(worker) + what] += 1
        self.bells[worker].release()

    def _idle_worker(self) -> int | None:
        """One that is idle, and counts as such no more: its bell is to be rung. Called under the lock."""
        for worker in range(self.workers):
            if self.words[self._of(worker) + IDLE]:
                self.words[self._of(worker) + IDLE] = 0
                return worker
        return None

    def helped(self) -> int:
        """Samples that were made for another worker's batch."""
        return sum(self.count_of(worker, HELPED) for worker in range(self.workers))

    # -- in a worker ---------------------------------------------------------------------------------------------------------

    def _in_state(self, state: int) -> list[int]:
        """Places whose batch is in it."""
        states = self._states.tolist()
        return [place for place, one in enumerate(states) if one == state] if state in states else []

    def _posted(self) -> list[tuple[int, int]]:
        """Number and place of batches that nobody has begun, the first of them first."""
        words, era = self.words, self.words[ERA]
        bases = ((place, self._at(place)) for place in self._in_state(POSTED))
        return sorted((words[at + NUMBER], place) for place, at in bases if words[at + OF_ERA] == era)

    def take(self, worker: int) -> int | None:
        """The first batch that nobody has begun is this worker's."""
        if not self._posted():
            return None
        with self._locked():
            waiting = self._posted()
            if not waiting:
                return None
            place = waiting[0][1]
            base = self._at(place)
            self.words[base + OWNER] = worker
            self.words[base + STATE] = BEGUN
            self.words[self._of(worker) + IDLE] = 0
            # Whoever was woken for the next one may have begun this one instead.
            idle = self._idle_worker() if len(waiting) > 1 else None
        self.begins(worker)
        self.words[self._of(worker) + PLACE] = place
        if idle is not None:
            self.bells[idle].release()
        return place

    def asked(self, place: int) -> tuple[int, Any, int]:
        """The number of a batch, what it is asked for by, and how many samples it has."""
        base = self._at(place)
        count = self.words[base + COUNT]
        begin = self._payload(place, count)
        return self.words[base + NUMBER], pickle.loads(self._map[begin : begin + self.words[base + LENGTH]]), count

    def claim(self, place: int) -> int | None:
        """The next sample of a batch that nobody makes yet."""
        base = self._at(place)
        with self._locked():
            number = self.words[base + CLAIMED]
            if number >= self.words[base + COUNT]:
                return None
            self.words[base + CLAIMED] = number + 1
        return number

    def close(self, place: int) -> int:
        """Nobody begins another sample of it. How many were begun."""
        base = self._at(place)
        with self._locked():
            begun = self.words[base + CLAIMED]
            self.words[base + CLAIMED] = self.words[base + COUNT]
        return begun

    def leave(self, worker: int) -> None:
        """Its batch is done with."""
        mine = self._of(worker) + PLACE
        place = self.words[mine]
        if place != NOWHERE:
            self.words[mine] = NOWHERE
            self.words[self._at(place) + STATE] = EMPTY

    def begins(self, worker: int) -> int:
        """A sample of its own batch."""
        now = self.words[self._of(worker) + SINCE] = perf_counter_ns()
        return now

    def made(self, worker: int, since: int) -> None:
        mine = self._of(worker) + USUAL
        took, usual = perf_counter_ns() - since, self.words[mine]
        # What is far out of the ordinary is no measure of it.
        self.words[mine] = usual + (min(took, FACTOR * usual) - usual) // 16 if usual else took

    def patience(self) -> int | None:
        """Nanoseconds after which a sample holds up its neighbours; None before any was made."""
        known = [usual for usual in self._usual.tolist() if usual]
        return max(LEAST, FACTOR * sum(known) // len(known)) if known else None

    def _begun(self, worker: int) -> list[tuple[int, int, int]]:
        """Others' batches with samples that nobody makes: number, place, and since when their worker is at its sample."""
        words, era, found = self.words, self.words[ERA], []
        for other, place in enumerate(self._at_work.tolist()):
            if other == worker or place == NOWHERE:
                continue
            base = self._at(place)
            if words[base + STATE] == BEGUN and words[base + OF_ERA] == era and words[base + CLAIMED] < words[base + COUNT]:
                found.append((words[base + NUMBER], place, words[self._of(other) + SINCE]))
        return sorted(found)

    def open_elsewhere(self, worker: int) -> bool:
        """Whether a batch might come to be held up."""
        return bool(self._begun(worker))

    def task(self, worker: int) -> Task | None:
        """A sample of the first batch that is held up by another of its samples."""
        patience = self.patience()
        if patience is None:
            return None
        now = perf_counter_ns()
        for batch, place, since in self._begun(worker):
            if now - since < patience:
                continue
            base = self._at(place)
            with self._locked():
                same = self.words[base + NUMBER] == batch and self.words[base + STATE] == BEGUN
                number = self.words[base + CLAIMED]
                if not same or number >= self.words[base + COUNT]:
                    continue
                self.words[base + CLAIMED] = number + 1
            return Task(place, number, self.asked(place)[1])
        return None

    def deliver(self, worker: int, task: Task, where: tuple[int, int, int] | None) -> None:
        """The sample lies there (slot, begin, size) in the exchange, or could not be made: its batch's worker is to see to it."""
        at = self._sample(task.place, task.number)
        if where is not None:
            self.words[at + SLOT], self.words[at + BEGIN], self.words[at + SIZE] = where
            self.words[self._of(worker) + HELPED] += 1
        owner = self.words[self._at(task.place) + OWNER]
        self.words[at + STATUS] = FAILED if where is None else MADE
        self.bells[owner].release()

    def delivered(self, place: int, number: int) -> tuple[int, int, int, int]:
        at = self._sample(place, number)
        status, slot, begin, size = self.words[at : at + 4]
        return status, slot, begin, size

    def idle(self, worker: int, *, now: bool) -> None:
        """Who is idle has its bell rung when there is something to do: it says so before it looks for the last time.

        That is said, and a batch posted, under the same lock. Without it each could write its word and read the other's as it was
        before (processors put a write behind a later read), and the worker would sleep beside a batch.
        """
        with self._locked():
            self.words[self._of(worker) + IDLE] = int(now)

    def rest(self, worker: int, seconds: float) -> bool:
        """Until this worker's bell rings, or so long. Whether it rang."""
        return bool(self.bells[worker].acquire(timeout=seconds))

    def is_over(self, worker: int) -> bool:
        """Whether there is nobody left to make batches for."""
        return bool(self.count_of(worker, ENDED)) or (self.parent is not None and self.parent.has_gone())

    def here(self) -> None:
        """This process is a worker."""
        self.parent = Parent()
        if self.exchange is not None:
            self.exchange.receive()
