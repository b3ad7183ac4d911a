"""Where the bytes lie: held in memory instead of read each time."""

from __future__ import annotations

import numpy as np

from pipefix.measurement import experiments
from pipefix.plan.case import Case
from pipefix.plan.model import StageTime, draws
from pipefix.plan.plan import Step
from pipefix.plan.remedy import Remedy
from pipefix.vocabulary.gain import span
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

    def answer(self, case: Case) -> Step:
        if case.nothing_to_keep:
            return self.declined(case.nothing_to_keep)
        reading = case.wall(Stage.STORAGE)
        needed, copies, gain = self._needed(case), self._copies(case), self.worth(case)
        if needed is not None and case.memory is not None and needed > case.memory:
            times = f" in {copies} processes" if copies > 1 else ""
            return self.declined(f"the dataset would take {size(needed)}{times}, and {size(case.memory)} of memory are free", gain)
        if gain.value < WORTH:
            return self.declined(self._already(case, gain), gain)
        return self.proposed(
            f"Reading takes {seconds(reading)} a sample{', mostly waiting' if case.waits(Stage.STORAGE) else ''}",
            gain,
            "Read every file once into a dict of path to bytes in the dataset's __init__, and decode from io.BytesIO(held[path]).",
            seconds=case.length * reading if case.length is not None else None,
            risk=f"It takes {size(needed)} of memory for as long as training runs." if needed is not None else None,
        )

    def _copies(self, case: Case) -> int:
        """Forked workers share what they do not change; others get a copy each."""
        return 1 if case.start_method == "fork" else case.measurement.workers + 1

    def _needed(self, case: Case) -> float | None:
        return case.dataset_bytes * self._copies(case) if case.dataset_bytes is not None else None

    def _already(self, case: Case, gain: Interval) -> str:
        cold = case.slow_disk
        text = f"reading takes {seconds(case.wall(Stage.STORAGE))} a sample from the page cache; without it: {span(gain)}"
        if cold is not None and cold.low > WORTH:
            text += f" (an epoch that finds the cache empty is {span(cold)} slower)"
        return text

    def worth(self, case: Case) -> Interval:
        """The speed-up with every byte in memory."""
        wall = np.minimum(draws(FIND_SECONDS, "held"), case.model.wall(Stage.STORAGE))
        return case.after(experiments.NO_STORAGE, case.model.replacing(Stage.STORAGE, StageTime(wall, wall)), name=self.id)
