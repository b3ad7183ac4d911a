"""Samples given to whichever worker is free: a slow one does not hold up its batch's neighbours, and order is kept.

A worker takes the first batch that nobody has begun, whoever's turn it would have been. Where one of its samples takes long,
workers that have nothing to do make the rest of them, and hand them to the batch's worker, which collates: the collate function
sees the whole list, in one process. Batches leave in their order, and a bound on those that are under way bounds memory.

To torch's iterator this is its index queues (`TableQueue`), to the dataset's reader what a batch is asked for by (`SharedBatch`).
"""

from __future__ import annotations

import io
import pickle
import queue
import time
from collections.abc import Callable
from typing import Any

from pipefix.loader.policy.read_policy import Asked, Outcome
from pipefix.loader.slots.arena import Arena, room
from pipefix.loader.slots.batch_in_slot import Packer, SlotPage, opening
from pipefix.loader.stealing.work_table import ENDED, FAILED, MADE, NOT_YET, RESUMED, Task, WorkTable
from pipefix.seams.torch_internals import ResumeIteration

LONGEST = 0.1
"""Seconds that an idle worker rests without looking around."""
SHORTEST = 1e-3


def make_work_table(context: Any, workers: int, batches: int) -> WorkTable:
    """Room for ``batches`` under way. Raises OSError or AttributeError where this system cannot give it."""
    exchange = Arena(workers, 0, room(workers * 16))
    return WorkTable(workers, batches + workers, [context.Semaphore(0) for _ in range(workers)], exchange)


class TableQueue:
    """One worker's queue of indices, as torch uses it."""

    def __init__(self, table: WorkTable, worker: int) -> None:
        self.table, self.worker = table, worker
        self._resumed = 0
        self._begun = False

    # -- in the training process -------------------------------------------------------------------------------------------

    def put(self, message: Any) -> None:
        if message is None:
            self.table.notify(self.worker, ENDED)
        elif isinstance(message, ResumeIteration):
            self.table.notify(self.worker, RESUMED)
        else:
            number, asked = message
            indices = list(asked.index)
            self.table.post(number, Asked(asked.epoch, indices), len(indices))

    def cancel_join_thread(self) -> None:
        """There is no thread."""

    def close(self) -> None:
        """The table's memory goes with its last process."""

    # -- in the worker -------------------------------------------------------------------------------------------------------

    def get(self, timeout: float) -> Any:
        table, worker = self.table, self.worker
        if not self._begun:
            table.here()
            self._begun = True
        table.leave(worker)
        deadline = time.monotonic() + timeout
        while True:
            found = self._message() or self._batch()
            if found is None and not self.help():
                table.idle(worker, now=True)
                found = self._message() or self._batch()
                if found is None:
                    table.rest(worker, self._patience())
            if found is not None:
                table.idle(worker, now=False)
                return found[0]
            if time.monotonic() > deadline:
                raise queue.Empty

    def _message(self) -> tuple[Any] | None:
        if self.table.count_of(self.worker, RESUMED) > self._resumed:
            self._resumed += 1
            return (ResumeIteration(None),)
        return (None,) if self.table.count_of(self.worker, ENDED) else None

    def _batch(self) -> tuple[Any] | None:
        place = self.table.take(self.worker)
        if place is None:
            return None
        number, asked, count = self.table.asked(place)
        return ((number, Asked(asked.epoch, asked.index, SharedBatch(self, place, count))),)

    def _patience(self) -> float:
        usual = self.table.patience()
        if usual is None or not self.table.open_elsewhere(self.worker):
            return LONGEST
        return min(LONGEST, max(SHORTEST, usual / 2e9))

    def help(self) -> bool:
        """Make one sample of another worker's batch that is held up. Whether there was one."""
        table, worker = self.table, self.worker
        slot = next((slot for slot in table.exchange.slots_of(worker) if table.exchange.is_free(slot)), None)
        if slot is None or table.reader is None:
            return False
        task = table.task(worker)
        if task is None:
            return False
        table.deliver(worker, task, self._packed(task, slot))
        return True

    def _packed(self, task: Task, slot: int) -> tuple[int, int, int] | None:
        """Where the sample lies now; None where the batch's own worker is to make it: it meets the same error, and tells it."""
        exchange = self.table.exchange
        try:
            sample = self.table.reader.one(task.asked.epoch, task.asked.index[task.number])
            file, page = io.BytesIO(), SlotPage(exchange.window(slot))
            Packer(file, page).dump(sample)
            payload = file.getbuffer()
            begin = page.reserve(len(payload))
            if begin is None:
                return None
            memoryview(page.window).cast("B")[begin : begin + len(payload)] = payload
        except Exception:  # noqa: BLE001 - the user's code, or a sample that cannot be pickled
            return None
        exchange.lend(slot)
        return slot, begin, len(payload)


class SharedBatch:
    """A batch that others may make samples of."""

    def __init__(self, line: TableQueue, place: int, count: int) -> None:
        self.line, self.place, self.count = line, place, count

    def outcomes(self, make: Callable[[int], Any], *, go_on: bool) -> list[Outcome]:
        """Every sample of the batch, in their order. ``go_on``: an error is an outcome too, and not the end of it."""
        table, worker = self.line.table, self.line.worker
        known: dict[int, Outcome] = {}
        mine: set[int] = set()
        try:
            while (number := table.claim(self.place)) is not None:
                mine.add(number)
                since = table.begins(worker)
                known[number] = Outcome.of(make, number)
                table.made(worker, since)
                if known[number].error is not None and not go_on:
                    return [known[number]]
        finally:
            begun = table.close(self.place)
            # Whatever ends this, another worker that makes a sample of it still writes to its place.
            arrived = {number: self._arrived(number) for number in range(begun) if number not in mine}
        for number, outcome in arrived.items():
            known[number] = outcome or Outcome.of(make, number)
        table.leave(worker)
        return [known[number] for number in range(self.count)]

    def _arrived(self, number: int) -> Outcome | None:
        """A sample that another worker makes; None where it is to be made here."""
        table, worker = self.line.table, self.line.worker
        while True:
            status, slot, begin, size = table.delivered(self.place, number)
            if status == MADE:
                return Outcome(_opened(table.exchange, slot, begin, size))
            if status == FAILED or table.is_over(worker):
                return None
            if status == NOT_YET and not self.line.help():
                table.rest(worker, LONGEST)


def _opened(exchange: Arena, slot: int, begin: int, size: int) -> Any:
    lease = exchange.lease(slot)
    exchange.opened(lease)
    with opening(lease):
        return pickle.loads(memoryview(lease).cast("B")[begin : begin + size])
