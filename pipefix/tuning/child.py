"""The process of a trial: runs the subject's loader with other settings, a block of batches at a time, as it is asked.

The process leads a session of its own, and the kernel ends it with the process that started it; its workers end with it likewise.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.planning import as_planned
from pipefix.loader.workers import dataset_once
from pipefix.loader.workers.start import FirstInWorker
from pipefix.measurement.consumer import Consumer
from pipefix.measurement.experiments import PLAIN
from pipefix.measurement.gpu import NvmlWatch
from pipefix.measurement.measurement import Block
from pipefix.measurement.probe_task import ProbeOptions
from pipefix.measurement.run_arms import Pool
from pipefix.measurement.worker_probe import WorkerProbe
from pipefix.system.forks import die_with_parent, start_method_of
from pipefix.tuning.block_figures import BatchTimes, TrialBlock, turns
from pipefix.tuning.limits import BatchCost
from pipefix.tuning.space import Settings
from pipefix.tuning.usage import read
from pipefix.vocabulary.errors import PipefixError
from pipefix.vocabulary.nested import leaves

LONGEST_BLOCK = 30.0
LATE_FIRST_STEP = 0.3
"""Seconds of a first step from which it is asked whether others take as long."""
LOOK_SECONDS, LOOK_BATCHES = 1.0, 12


@dataclass(frozen=True)
class TrialWork:
    """What every trial runs, whatever its settings."""

    subject: Any
    """The pipeline under test; only its loader's settings are changed, on a copy."""
    consumer: Callable[[Any], Consumer]
    """Makes the consumer for a subject, in the trial's own process."""
    lots: int
    """Batches are dealt out in turn to so many trials, so that none reads what another has warmed; 1 where there are too few."""
    seed: int = 0
    threads: int = 1
    """Of torch in the training process."""
    cpus: tuple[int, ...] = ()
    """CPUs that a trial runs on, where other ranks have the rest; empty for all."""


class EveryNth:
    """A subject with every n-th of its batches."""

    def __init__(self, subject: Any, number: int, lots: int) -> None:
        self._subject = subject
        self._number, self._lots = number % lots, lots

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subject, name)

    def orders(self) -> Iterator[Any]:
        orders = self._subject.orders()
        return orders if self._lots == 1 or self._subject.iterable else itertools.islice(orders, self._number, None, self._lots)


def pool_of(work: TrialWork, settings: Settings, lot: int) -> Pool:
    user_loader = work.subject.loader
    served = start_method_of(user_loader) == "forkserver"
    if settings.workers and served and isinstance(user_loader, FastLoader):
        # As it does itself; and the probe is not to be loaded by every worker either.
        dataset_once.preload(user_loader.dataset, user_loader.collate_fn, WorkerProbe)
    loader = as_planned.with_settings(user_loader, **settings.arguments())
    loader.worker_init_fn = FirstInWorker(die_with_parent, loader.worker_init_fn)
    subject = dataclasses.replace(work.subject, loader=loader)
    own: Any = EveryNth(subject, lot, work.lots)
    return Pool(own, ProbeOptions(0, settings.workers, cut=False), work.consumer(subject))


def serve(connection: Connection, work: TrialWork, settings: Settings, lot: int, parent: int) -> None:
    """Answer what the tuner asks, until it asks no more."""
    os.setsid()
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    dataset_once.forget_server()
    if work.cpus:
        os.sched_setaffinity(0, work.cpus)
    torch.set_num_threads(min(work.threads, len(work.cpus)) if work.cpus else work.threads)
    torch.default_generator.manual_seed(work.seed)
    pool: Pool | None = None
    try:
        pool = pool_of(work, settings, lot)
        started = 0.0
        while True:
            request = connection.recv()
            if request is None:
                break
            if request == "look":
                connection.send(look(pool))
                continue
            late = 0.0
            if not started:
                started, late = _start(pool)
            pool.resume()
            with NvmlWatch() as device:
                block = pool.block(PLAIN, request, most=LONGEST_BLOCK)
            # What it was asked for ahead would be made at the cost of the settings whose turn is next.
            pool.halt()
            connection.send(dataclasses.replace(trial_block(block, pool, started), nvml=device.figures, late_s=late))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        pass
    except PipefixError as error:
        connection.send((str(error), error.advice, error.user_traceback))
    except MemoryError:
        connection.send(("Memory ran out", "Give it less with a smaller batch.", None))
    except Exception as error:  # noqa: BLE001 - told by the tuner, and not as a traceback between its lines
        advice = "Use the loader with these settings in your own code: what it raises there comes with its frames."
        connection.send((f"its process raised {type(error).__name__}: {error}", advice, None))
    finally:
        if pool is not None:
            pool.resume()
            pool.close(at_once=True)


def _start(pool: Pool) -> tuple[float, float]:
    """Seconds to the first batch, and those that the first step took beside a step."""
    begun = time.perf_counter()
    pool.turn_to(PLAIN)
    kept_batch = pool.keep_batch()
    spent = time.perf_counter() - begun
    pool.consumer.try_on(kept_batch())
    late = pool.consumer.first_seconds(kept_batch, LATE_FIRST_STEP) if pool.consumer.present else 0.0
    return max(1e-6, spent), late


def trial_block(block: Block, pool: Pool, started: float) -> TrialBlock:
    rows = block.rows
    made = [BatchTimes(row.trace.worker, row.room / 1e9, row.trace.begun / 1e9, row.trace.ended / 1e9) for row in rows]
    worked = sum(row.trace.ended - row.trace.begun for row in rows)
    # CPU seconds of all threads of a worker in a second of its work; of little work that says nothing.
    threads = sum(row.trace.process_made for row in rows) / worked if worked > 50_000_000 else None
    busy, waits, hidden = [], [], 0.0
    for row in rows:
        fetching = (row.got - row.asked) / 1e9
        if not pool.consumer.present:
            waits.append(fetching)
        elif row.idle is not None:
            waits.append(min(fetching, row.idle / 1e9))
        else:
            # What the device still computes after the step's call returned hides that much of the next wait.
            waits.append(max(0.0, fetching - hidden))
        hidden = max(0.0, (row.device - (row.done - row.got)) / 1e9)
        # On a device that has a backlog, the time in which the call returned is not time that it took.
        spent = row.device if row.idle is not None else max(row.done - row.got, row.device)
        busy.append(spent / 1e9 if pool.consumer.present else 0.0)
    return TrialBlock(
        seconds=block.seconds, samples=block.samples, waits=tuple(waits), steps=tuple(busy),
        making=tuple((row.trace.ended - row.trace.begun) / 1e9 for row in rows),
        process_cpu_s=threads if pool.workers else None, workers=pool.serving if pool.workers else 0,
        started_s=started, turns=turns(made) if pool.workers else (),
    )  # fmt: skip


def look(pool: Pool) -> BatchCost:
    """A few batches made in this process: what one takes, and how large it is."""
    pool.turn_to(PLAIN)
    kept_batch = pool.keep_batch()
    pool.consumer.try_on(kept_batch())
    begun = time.perf_counter()
    rows = [pool.next(consume=False)]
    while len(rows) < LOOK_BATCHES and time.perf_counter() - begun < LOOK_SECONDS:
        rows.append(pool.next(consume=False))
    reading = read([os.getpid()])
    sizes = [leaf.nbytes for leaf in leaves(kept_batch.value) if isinstance(leaf, torch.Tensor)]
    making = sum(row.trace.ended - row.trace.begun for row in rows) / 1e9
    return BatchCost(
        bytes=float(sum(sizes)), storages=len(sizes), process_bytes=reading.memory_bytes, process_files=reading.files,
        cpu_s=sum(row.trace.cpu for row in rows) / 1e9 / len(rows), seconds=making / len(rows),
        samples=sum(row.trace.samples for row in rows) / len(rows), why_none=pool.consumer.why_none,
        starved_s=sum(row.trace.starved for row in rows) / 1e9 / len(rows),
    )  # fmt: skip
