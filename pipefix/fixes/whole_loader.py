"""A loader run as it is, block by block: in the place of a pool, with nothing of ours inside it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from time import perf_counter
from typing import Any

from torch.utils.data import Sampler

from pipefix.hooks.torch_internals import end_workers, processes_of
from pipefix.measurement import failing
from pipefix.measurement.consumer import Consumer
from pipefix.measurement.experiments import Experiment
from pipefix.measurement.measurement import Block
from pipefix.measurement.replay import LONGEST_REST, abandon
from pipefix.measurement.time_limit import BatchTimeLimit
from pipefix.subject.subject import Subject

_ENDED = object()


def suits(subject: Subject) -> bool:
    """Whether such a loader's epochs can be strung together: it asks for lists of indices."""
    return not subject.iterable and subject.auto_collation


class WholeLoader:
    """The loader's own iterator, over the user's own order, epoch after epoch."""

    def __init__(self, subject: Subject, consumer: Consumer) -> None:
        self.consumer = consumer
        self._subject = subject
        self._loader = subject.loader_to_run()
        self._asked: deque[int] = deque()
        vars(self._loader)["batch_sampler"] = _Endless(subject, self._asked)
        self._iterator: Any = None
        self._time_limit = BatchTimeLimit()
        self._each = 0.0
        """Seconds a batch, in the last block."""

    @property
    def processes(self) -> list[Any]:
        return processes_of(self._iterator)

    def block(self, experiment: Experiment, seconds: float, *, most: float = 30.0) -> Block:
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
        self._time_limit.begin()
        try:
            batch = next(self._iterator, _ENDED)
            if batch is _ENDED:  # an iterator of their own may end before the sampler does
                self.close()
                self._asked.clear()
                self._start()
                self._time_limit.begin()
                batch = next(self._iterator)
        except StopIteration as error:
            raise failing.nothing_came(self._subject) from error
        except KeyboardInterrupt as interrupt:
            if not self._time_limit.fired:
                raise
            raise failing.nothing_handed_over(self._time_limit.limit) from interrupt
        except (Exception, SystemExit) as error:
            raise failing.raised("The loader", error, self.processes) from error
        finally:
            self._time_limit.end()
        if consume and self.consumer.present:
            self.consumer(batch)
        return self._asked.popleft()


class _Endless(Sampler[Any]):
    """The user's own order, epoch after epoch, and how many samples were asked for with each batch."""

    def __init__(self, subject: Subject, asked: deque[int]) -> None:
        self._subject, self._asked = subject, asked

    def __iter__(self) -> Iterator[Any]:
        for order in self._subject.orders():
            self._asked.append(len(order))
            yield order
