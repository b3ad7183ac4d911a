"""Where the bytes lie: in memory, or packed into one file."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pipefix.measurement import experiments
from pipefix.plan.model import Line, Part, draws
from pipefix.plan.plan import Step
from pipefix.plan.remedy import Remedy
from pipefix.plan.situation import Situation
from pipefix.plan.wording import span
from pipefix.vocabulary.quantity import Interval, seconds, size
from pipefix.vocabulary.stage import Stage

OPEN_SECONDS = Interval(20e-6, 5e-6, 60e-6)
"""Opening and closing a file that lies in memory."""
COPY_RATE = Interval(5e9, 2.5e9, 10e9)
"""Bytes a second out of the page cache."""
SMALL = 0.02


class StorageMemory(Remedy):
    """Files copied to a file system in memory, or read once into the process."""

    id = "storage-memory"
    stage = Stage.STORAGE
    title = "Keep the dataset in memory"

    def judge(self, at: Situation) -> Iterable[Step]:
        yield self._judge(at)

    def _judge(self, at: Situation) -> Step:
        reading = at.wall(Stage.STORAGE)
        if not reading:
            return self.declined("nothing is read from storage while samples are made")
        needed, room = at.dataset_bytes, at.memory
        if needed is not None and room is not None and needed > room:
            return self.declined(f"the dataset's {size(needed)} do not fit into the {size(room)} of memory that are free")
        gain = self.worth(at)
        if at.share(Stage.STORAGE) < SMALL or gain.value < 1.03:
            return self.declined(self._in_cache(at, reading), gain)
        return self.proposed(
            f"Reading takes {seconds(reading)} a sample{_waiting(at)}; from memory it would take about "
            f"{seconds(self._reading(at).wall[0])}",
            gain,
            "Copy the data once to memory (cp -r DATA /dev/shm/) and point the dataset there, or read it into a dict before the "
            "workers start.",
            seconds=at.length * reading if at.length is not None else None,
            risk=f"It takes {size(needed)} of memory for as long as training runs." if needed is not None else None,
        )

    def _in_cache(self, at: Situation, reading: float) -> str:
        cold = at.slow_disk
        if cold is not None and cold.low > 1.03:
            fits = " and fits there" if at.dataset_bytes is not None and at.memory is not None else ""
            return (
                f"the data come from the page cache{fits}: reading takes {seconds(reading)} a sample; only an epoch that finds it "
                "empty "
                f"runs {span(cold)} slower"
            )
        return f"reading takes {seconds(reading)} a sample, about what memory itself takes"

    def worth(self, at: Situation) -> Interval:
        return at.after(experiments.NO_STORAGE, _reading_from(at, self._reading(at)), name=self.id)

    def _reading(self, at: Situation) -> Part:
        return memory_read(at, OPEN_SECONDS)


def memory_read(at: Situation, each: Interval) -> Part:
    """Reading a sample's bytes out of memory; never more than it takes now."""
    wall = draws(each, "open") + at.source_bytes / draws(COPY_RATE, "copy")
    wall = np.minimum(wall, at.line.wall(Stage.STORAGE))
    return Part(wall, wall)


def _reading_from(at: Situation, read: Part) -> Line:
    return at.line.replacing(Stage.STORAGE, read)


def _waiting(at: Situation) -> str:
    return ", mostly waiting" if at.waits(Stage.STORAGE) else ""
