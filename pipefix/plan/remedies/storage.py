"""Where the bytes lie: held in memory instead of read each time."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pipefix.measurement import experiments
from pipefix.plan.model import Part, draws
from pipefix.plan.plan import Step
from pipefix.plan.remedy import Remedy
from pipefix.plan.situation import Situation
from pipefix.plan.wording import span
from pipefix.vocabulary.quantity import Interval, seconds, size
from pipefix.vocabulary.stage import Stage

FIND_SECONDS = Interval(2e-6, 1e-6, 5e-6)
"""Looking bytes up that the process holds; nothing is copied."""
WORTH = 1.03


class StorageMemory(Remedy):
    """Every file's bytes read once and held by the process, which forked workers share."""

    id = "storage-memory"
    stage = Stage.STORAGE
    title = "Hold the dataset's bytes in memory"

    def judge(self, at: Situation) -> Iterable[Step]:
        yield self._judge(at)

    def _judge(self, at: Situation) -> Step:
        if at.nothing_to_keep:
            return self.declined(at.nothing_to_keep)
        reading = at.wall(Stage.STORAGE)
        needed, copies, gain = self._needed(at), self._copies(at), self.worth(at)
        if needed is not None and at.memory is not None and needed > at.memory:
            times = f" in {copies} processes" if copies > 1 else ""
            return self.declined(f"the dataset would take {size(needed)}{times}, and {size(at.memory)} of memory are free", gain)
        if gain.value < WORTH:
            return self.declined(self._already(at, gain), gain)
        return self.proposed(
            f"Reading takes {seconds(reading)} a sample{', mostly waiting' if at.waits(Stage.STORAGE) else ''}",
            gain,
            "Read every file once into a dict of path to bytes in the dataset's __init__, and decode from io.BytesIO(held[path]).",
            seconds=at.length * reading if at.length is not None else None,
            risk=f"It takes {size(needed)} of memory for as long as training runs." if needed is not None else None,
        )

    def _copies(self, at: Situation) -> int:
        """Forked workers share what they do not change; others get a copy each."""
        return 1 if at.start_method == "fork" else at.found.workers + 1

    def _needed(self, at: Situation) -> float | None:
        return at.dataset_bytes * self._copies(at) if at.dataset_bytes is not None else None

    def _already(self, at: Situation, gain: Interval) -> str:
        cold = at.slow_disk
        text = f"reading takes {seconds(at.wall(Stage.STORAGE))} a sample from the page cache; without it: {span(gain)}"
        if cold is not None and cold.low > WORTH:
            text += f" (an epoch that finds the cache empty is {span(cold)} slower)"
        return text

    def worth(self, at: Situation) -> Interval:
        """The speed-up with every byte in memory."""
        wall = np.minimum(draws(FIND_SECONDS, "held"), at.line.wall(Stage.STORAGE))
        return at.after(experiments.NO_STORAGE, at.line.replacing(Stage.STORAGE, Part(wall, wall)), name=self.id)
