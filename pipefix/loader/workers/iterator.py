"""The iterator with worker processes, whose batches are handed over through slots.

Who makes which batch, seeds, order, watchdogs and the way processes end are torch's own, in a subclass of its iterator.
"""

from __future__ import annotations

import os
import queue
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from multiprocessing.util import get_temp_dir
from typing import Any

from torch import multiprocessing
from torch.utils.data import IterDataPipe, MapDataPipe

from pipefix.hooks.torch_internals import STATUS_CHECK_S, DatasetKind, WorkersIterator, end_workers_at_exit, in_order, processes_of
from pipefix.loader.fusing.fusion import users_init
from pipefix.loader.iterator import LoaderIterator
from pipefix.loader.overlaid import Overlaid
from pipefix.loader.resume import restore_generators
from pipefix.loader.slots.batch_in_slot import Arrival, Assembler
from pipefix.loader.slots.portable import Portable
from pipefix.loader.workers import deaths
from pipefix.loader.workers.dataset_once import pack, preload
from pipefix.loader.workers.start import FirstInWorker, start_worker
from pipefix.system.forks import start_method_of
from pipefix.system.resources import out_of_memory_kills
from pipefix.vocabulary import sockets, worker_exit
from pipefix.vocabulary.garbage import existing_objects_skipped

AHEAD = 2
"""Where a batch is waited for while later ones have arrived, so many times as many may be under way."""


class ProcessesLoaderIterator(LoaderIterator, WorkersIterator):
    """With worker processes."""

    _pins_apart = _asks_twice = True
    _shutdown = True
    """Until torch has begun: where that fails there is nothing to end."""

    def __init__(self, loader: Any) -> None:
        self._prepare(loader)
        self._kills, self._ordered = out_of_memory_kills(), in_order(loader)
        method = start_method_of(loader)
        first = partial(start_worker, self._work.threads, forked=method == "fork")
        arguments: dict[str, Any] = {"worker_init_fn": FirstInWorker(first, loader.worker_init_fn)}
        reads = self._under_rules()
        if method == "forkserver":
            preload(loader.dataset, loader.collate_fn)
        if method != "fork" and not isinstance(loader.dataset, (IterDataPipe, MapDataPipe)):
            arguments["dataset"] = pack(reads, loader.collate_fn, users_init(loader)) or reads
        if self._work.shared_queue:
            arguments["multiprocessing_context"] = with_one_queue(loader.multiprocessing_context or multiprocessing)
        sockets.settle()
        if self._work.arena is None:
            # Torch's way makes a folder of sockets in each process, which stays where a worker is killed: as the last ones are when
            # the program ends. This process's own is its workers' too, and goes with it.
            get_temp_dir()
        # Marking garbage writes to every object, and in a forked worker each page that is written to is copied.
        with existing_objects_skipped() if method == "fork" else nullcontext():
            super().__init__(self._seen_by_torch(loader, **arguments))
        if loader.persistent_workers and self._pin_memory:
            end_workers_at_exit(self)
        self._dataset = reads
        self._profile_name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        if not first_iter:
            if self._work.shared_queue:
                self._drop_what_is_under_way()
            self._start(loader)
        elif self.begin.again and not self.begin.fresh:
            # A seed for workers has been drawn, which those that lived on did not need.
            restore_generators(loader, self.begin.generators)
        super()._reset(loader, first_iter)

    def _drop_what_is_under_way(self) -> None:
        """Batches of an epoch that was left. A worker that still makes one would hand it over as the next epoch's: where all have
        one queue, another may have answered for it that it goes on."""
        under_way = sum(len(known) == 1 for known in self._task_info.values())
        shared = self._index_queues[0]
        while under_way:
            try:
                shared.get_nowait()
            except queue.Empty:
                with self._deaths_told():
                    super()._get_data()  # type: ignore[no-untyped-call]
            under_way -= 1

    def _made_by(self, collate_fn: Any) -> Any:
        if isinstance(collate_fn, Portable) and self._work.arena is not None:
            collate_fn = collate_fn.collate_fn
        collates, arena = super()._made_by(collate_fn), self._work.arena
        return collates if arena is None else Assembler(collates, arena)

    def _next_usable(self) -> Any:
        with self._deaths_told():
            return super()._next_usable()

    @contextmanager
    def _deaths_told(self) -> Iterator[None]:
        """A worker's death is told with how and why."""
        try:
            yield
        except RuntimeError as error:
            if worker_exit.is_worker_death(error) and not isinstance(error, deaths.WorkerDied):
                raise deaths.describe_death(error, self._workers, self._kills) from error
            raise

    def _next_made(self) -> Any:
        batch = super()._next_made()
        by_slot = isinstance(batch, Arrival)
        self._work.handed["slots" if by_slot else "torch"] += 1
        if not by_slot:
            return batch
        try:
            return batch.open()
        except (OSError, EOFError) as error:  # what only torch can send was to be fetched from a worker that is gone, perhaps
            deaths.check(self._workers, error)
            raise

    # -- how many are under way ----------------------------------------------------------------------------------------------

    def _try_get_data(self, timeout: float = STATUS_CHECK_S) -> Any:
        try:
            return super()._try_get_data(timeout)  # type: ignore[no-untyped-call]
        except (OSError, EOFError) as error:
            deaths.check(self._workers, error)
            raise

    def _get_data(self) -> Any:
        number, data = super()._get_data()  # type: ignore[no-untyped-call]
        if self._work.shared_queue and self._ordered and isinstance(number, int) and number != self._rcvd_idx:
            # The batch that is waited for holds up the order, and this one has come before it: workers go on meanwhile.
            # (Where an epoch is begun anew, batches of the one before are still coming in.)
            begun = number < self._send_idx
            if begun and self._send_idx - self._rcvd_idx < AHEAD * self._prefetch_factor * self._num_workers:
                self._tasks_outstanding -= 1
                try:
                    super()._try_put_index()
                except BaseException:  # the sampler raised, or Ctrl-C came: this batch is there all the same
                    self._task_info[number] += (data,)
                    raise
                self._tasks_outstanding += 1
        return number, data

    def _try_put_index(self) -> None:
        if not (self._ordered and self._work.shared_queue):
            super()._try_put_index()
            return
        usual, sent = self._prefetch_factor * self._num_workers, -1
        while sent != self._send_idx and self._send_idx - self._rcvd_idx < usual * (AHEAD if self._idle else 1):
            sent = self._send_idx
            super()._try_put_index()

    @property
    def _idle(self) -> bool:
        """Whether a batch is waited for, and there is a worker that has none to make."""
        return len(self._task_info.get(self._rcvd_idx, ())) == 1 and self._tasks_outstanding < self._num_workers

    def _mark_worker_as_unavailable(self, worker_id: int, shutdown: bool = False) -> None:
        if self._work.shared_queue and not shutdown:
            self._workers_status[worker_id] = False  # it died; what it would be told another would read, and die of
        else:
            super()._mark_worker_as_unavailable(worker_id, shutdown)

    def _has_arrived(self) -> bool:
        if self._rcvd_idx >= self._send_idx:
            return False
        if self._num_workers == 1 or not self._ordered:
            return len(self._task_info.get(self._rcvd_idx, ())) == 2 or not self._data_queue.empty()
        if self._dataset_kind == DatasetKind.Map:
            # What has arrived is taken from the queue until the next batch is among it: its copy to the device may begin.
            with self._deaths_told():
                while len(self._task_info.get(self._rcvd_idx, ())) == 1 and not self._data_queue.empty():
                    number, data = self._get_data()  # which has workers go on
                    self._tasks_outstanding -= 1
                    self._task_info[number] += (data,)
        return len(self._task_info.get(self._rcvd_idx, ())) == 2

    def _shutdown_workers(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if ending():
            return  # modules are being taken apart; torch's own does nothing then either
        if os.getpid() != self._owner:
            return  # a forked process drops its copy: the workers are not its own, and would be told to end
        work = getattr(self, "_work", None)
        if work is not None and work.shared_queue and any(not worker.is_alive() for worker in processes_of(self)):
            # One that was killed while it waited for a batch still holds the queue: nobody would read that it is to end.
            for worker in processes_of(self):
                worker.terminate()
        super()._shutdown_workers()
        deaths.remove_leftovers(processes_of(self))
        if work is not None and work.arena is not None:
            work.arena.close()


def with_one_queue(context: Any) -> Any:
    """A multiprocessing context, by which torch makes a queue of results, then one of batches for each worker: all of these are the
    same one. Whichever worker is free takes the next batch, so that a slow one holds up nobody's but its own."""
    queues: list[Any] = []

    def queue() -> Any:
        if len(queues) < 2:
            queues.append(context.Queue())
        return queues[-1]

    return Overlaid(context, Queue=queue)
