"""Measures how many times faster the changed pipeline is: both run in turn, as they are, block by block."""

from __future__ import annotations

import statistics
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from time import perf_counter
from typing import Any

import torch
from torch.utils.data import Sampler

from pipefix.fixes.cache_process import Say
from pipefix.fixes.outcome import Measured
from pipefix.hooks.torch_internals import end_workers, hands_out_of_one, processes_of
from pipefix.measurement import experiments, failing
from pipefix.measurement.consumer import Consumer
from pipefix.measurement.measurement import Block
from pipefix.measurement.probe_task import ProbeOptions
from pipefix.measurement.run_arms import LONGEST_REST, Pool
from pipefix.measurement.statistics import in_turn, interval, ratio, spread_around
from pipefix.measurement.time_limit import BatchTimeLimit
from pipefix.measurement.worker_endings import abandon
from pipefix.plan.plan import Proposed
from pipefix.plan.remedies.scheduling import PersistentWorkers
from pipefix.subject.subject import Subject
from pipefix.vocabulary import worker_exit
from pipefix.vocabulary.garbage import existing_objects_skipped
from pipefix.vocabulary.generators import untouched
from pipefix.vocabulary.quantity import Interval, counted

FEWEST_PAIRS, MOST_PAIRS = 3, 24
SHORTEST = 0.08
"""Seconds of a block."""
READ_FIRST = 2
"""Times as long as a block: batches that are made again and again are made for the first time."""
STARTS = 3
"""Epochs whose beginning is timed."""
EPOCH_BATCHES = 3
"""Of such an epoch, for each worker."""
LEAST_SAVED = 0.5
"""Part of an epoch's start that workers that are up save at least."""
_ENDED = object()


@dataclass(frozen=True)
class Pipeline:
    """A subject and what consumes its batches."""

    subject: Subject
    consumer: Consumer


def faster(
    before: Pipeline, after: Pipeline, *, seconds: float, epochs: bool = False, from_memory: bool = False, say: Say | None = None
) -> Measured:
    """Run both in turn, every second time in the other order, until the difference is clear or the time is spent.

    ``epochs``: the start of each epoch counts. ``from_memory``: both make a few batches again and again, so that files are read as
    they are from the second epoch on.
    """
    pools: dict[str, Any] = {}
    rates: dict[str, list[float]] = {"before": [], "after": []}
    begun = perf_counter()
    length = max(SHORTEST, seconds / (2 * 8))
    calm = False
    try:
        for name, pipeline in (("before", before), ("after", after)):
            pools[name] = _pool(pipeline)
        # A full collection takes as long as several blocks where the heap is large, and this heap is not that of a training run.
        # Not torch.manual_seed: that would also seed CUDA, now or when it wakes up.
        with untouched(before.subject.loader), untouched(after.subject.loader), existing_objects_skipped():
            torch.default_generator.manual_seed(0)
            for pool in pools.values():
                if from_memory and isinstance(pool, WholeLoader):
                    pool.repeat(READ_FIRST * length, most=max(2.0, seconds))
            for pair in in_turn(*(partial(_rate_of, pools[name], length, max(2.0, seconds)) for name in rates)):
                for name, rate in zip(rates, pair, strict=True):
                    rates[name].append(rate)
                done, spent = len(rates["before"]), perf_counter() - begun
                if say is not None:
                    say(f"verifying: {counted(done, 'pair')} so far", min(1.0, spent / seconds))
                if done < FEWEST_PAIRS:
                    continue
                gain = ratio(rates["after"], rates["before"])
                if done >= MOST_PAIRS or spent >= seconds * (1 if gain.low > 1.0 or gain.high < 1.0 else 2):
                    calm = True
                    break
    except RuntimeError as error:
        if not worker_exit.is_worker_death(error):
            raise
        raise failing.raised("The loader", error, [process for pool in pools.values() for process in pool.processes]) from error
    finally:
        for pool in pools.values():
            pool.close(at_once=not calm)
    if epochs:
        return _whole_epochs(before, after, rates)
    return _measured(rates["before"], rates["after"])


def _rate_of(pool: Pool | WholeLoader, length: float, most: float) -> float:
    rate = pool.block(experiments.PLAIN, length, most=most).rate
    pool.rest()
    return rate


def _measured(before: Sequence[float], after: Sequence[float], *, epochs: bool = False) -> Measured:
    first, second = (interval(spread_around(rates), statistics.median(rates)) for rates in (before, after))
    return Measured(gain=ratio(after, before), before=first, after=second, pairs=len(before), epochs=epochs)


def _pool(pipeline: Pipeline) -> Pool | WholeLoader:
    if suits(pipeline.subject):
        return WholeLoader(pipeline.subject, pipeline.consumer)
    return Pool(pipeline.subject, ProbeOptions(0, pipeline.subject.loader.num_workers, cut=False), pipeline.consumer)


def _whole_epochs(before: Pipeline, after: Pipeline, rates: dict[str, list[float]]) -> Measured:
    """Samples a second of epochs with their beginnings, each timed in turn; the rest of an epoch runs at the steady rate."""
    length = before.subject.epoch
    if length is None:
        return _measured(rates["before"], rates["after"])
    starts = {"before": epoch_starts(before.subject), "after": epoch_starts(after.subject)}
    whole = ([length / (statistics.median(starts[name]) + length / rate) for rate in rates[name]] for name in ("before", "after"))
    return _measured(*whole, epochs=True)


def epoch_starts(subject: Subject) -> list[float]:
    """Seconds to the first batch of epochs after the first one. The epochs are short: a few batches for each worker. A loader that
    hands out of one iterator for ever begins none."""
    if hands_out_of_one(subject.loader):
        return [0.0] * STARTS
    loader = subject.loader_to_run()
    batches = max(2, EPOCH_BATCHES * max(1, loader.num_workers))
    own = vars(loader)
    starts = []
    iterator: Any = None
    with warnings.catch_warnings(), untouched(subject.loader):
        warnings.simplefilter("ignore")
        if not subject.iterable:
            name = "batch_sampler" if subject.auto_collation else "sampler"
            own[name] = list(islice(own[name], batches))
        try:
            for number in range(STARTS + 1):
                begun = perf_counter()
                iterator = iter(loader)
                next(iterator)
                if number:
                    starts.append(perf_counter() - begun)
                for _ in islice(iterator, batches):
                    continue
        except (Exception, SystemExit) as error:
            raise failing.raised("The loader", error, processes_of(iterator)) from error
        finally:
            end_workers(iterator)
    return starts


def workers_kept_up(subject: Subject, rate: float) -> Proposed | None:
    """``rate``: samples a second once an epoch has begun. None where there is nothing to keep up.

    Proposed without a probe, from how long an epoch takes to begin: steps that were kept meanwhile may have made the rest of an
    epoch much shorter, or cannot be seen into by a probe.
    """
    loader: Any = subject.loader
    if not loader.num_workers or loader.persistent_workers or subject.epoch is None:
        return None
    start = statistics.median(epoch_starts(subject))
    steady = subject.epoch / rate
    whole = start + steady
    first = min(start, subject.settings.samples_a_batch / rate)
    gain = Interval(whole / (steady + first), whole / (whole - LEAST_SAVED * (start - first)), whole / steady)
    return PersistentWorkers().kept_up(start, whole, gain)


def suits(subject: Subject) -> bool:
    """Whether such a loader's epochs can be strung together: it asks for lists of indices."""
    return not subject.iterable and subject.auto_collation


class WholeLoader:
    """The loader's own iterator, over the user's own order, epoch after epoch."""

    def __init__(self, subject: Subject, consumer: Consumer) -> None:
        self.consumer, self._subject, self._loader = consumer, subject, subject.loader_to_run()
        self._asked: deque[int] = deque()
        self._orders = _Endless(subject, self._asked)
        vars(self._loader)["batch_sampler"] = self._orders
        self._iterator: Any = None
        self._time_limit = BatchTimeLimit()
        self._each = 0.0
        """Seconds a batch, in the last block."""

    @property
    def processes(self) -> list[Any]:
        return processes_of(self._iterator)

    def block(self, experiment: experiments.Experiment, seconds: float, *, most: float = 30.0) -> Block:
        """Batches for about ``seconds``, in whole rounds of all workers; left out are those made before, and a first round.

        What was made before is consumed by nobody: while a step took its time for it, workers would make another stock, which hides
        how slow they are.
        """
        round_size = max(1, self._loader.num_workers)
        for _ in range(self._ahead()):
            self._next(consume=False)
        for _ in range(round_size):
            self._next()
        self.consumer.settle()
        begun, batches, samples = perf_counter(), 0, 0
        while batches < 2 * round_size or batches % round_size or perf_counter() - begun < min(seconds, most):
            samples += self._next()
            batches += 1
            if perf_counter() - begun > most:
                break
        self.consumer.settle()
        spent = perf_counter() - begun
        self._each = spent / batches
        return Block(experiment.name, (), spent, samples)

    def repeat(self, seconds: float, *, most: float) -> None:
        """Make batches for about so long, and from then on these again and again."""
        self._orders.kept = []
        self.block(experiments.PLAIN, seconds, most=most)
        self._orders.repeats = True
        self.rest()

    def rest(self) -> None:
        """Wait until what was asked for ahead is made: what is measured next shares the machine with its workers."""
        time.sleep(min(LONGEST_REST, self._ahead() * self._each))

    def close(self, *, at_once: bool = False) -> None:
        """End its threads, or its workers; ``at_once`` does not wait for the batches that they are making."""
        iterator, self._iterator = self._iterator, None
        self._time_limit.close()
        if at_once:
            abandon(iterator)
        end = getattr(iterator, "_end", None)  # of threads
        if end is not None:
            end()
        else:
            end_workers(iterator)

    def _ahead(self) -> int:
        """Batches that may lie ready: those that were made while something else ran."""
        self._start()
        fallback = self._loader.num_workers * (self._loader.prefetch_factor or 1)
        return int(getattr(self._iterator, "_ahead_by", fallback))

    def _start(self) -> None:
        if self._iterator is None:
            self._time_limit = BatchTimeLimit()
            self._iterator = failing.iterator_of(self._loader)

    def _next(self, *, consume: bool = True) -> int:
        batch = failing.next_of(self._iterator, self._subject, self._time_limit, _ENDED)
        if batch is _ENDED:  # an iterator of their own may end before the sampler does
            self.close()
            self._asked.clear()
            self._start()
            batch = failing.next_of(self._iterator, self._subject, self._time_limit)
        if consume and self.consumer.present:
            self.consumer(batch)
        return self._asked.popleft()


class _Endless(Sampler[Any]):
    """The user's own order, epoch after epoch, and how many samples were asked for with each batch."""

    def __init__(self, subject: Subject, sizes: deque[int]) -> None:
        self._subject, self._asked = subject, sizes
        self.kept: list[Any] | None = None
        """What was asked for, where it is to be asked for again."""
        self.repeats = False

    def __iter__(self) -> Iterator[Any]:
        for order in self._in_turn():
            self._asked.append(len(order))
            yield order

    def _in_turn(self) -> Iterator[Any]:
        for order in self._subject.orders():
            if self.repeats:
                yield from cycle(self.kept or ())
            if self.kept is not None:
                self.kept.append(order)
            yield order
