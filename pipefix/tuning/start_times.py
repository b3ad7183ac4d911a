"""How long settings take to start, by what others took: a tuning keeps its budget. Pure."""

from __future__ import annotations

from dataclasses import dataclass

UNTRIED = 0.1
"""Seconds that each worker is thought to take to start while none was ever seen."""
QUICK = 0.02
"""Seconds that a start takes at least, whatever else was part of what was measured."""
LIKE_SEEN = 1.25
"""Times the longest start so far that another may take where that is longer than a trial."""


@dataclass(frozen=True)
class StartTimes:
    """Seconds from the start of a trial's workers to its first batch, by number of workers."""

    cores: float
    """Workers beyond these start one after the other."""
    batch_s: float
    """Making the first batch, which the seconds hold too."""
    seen: tuple[tuple[int, float], ...] = ()

    def with_start(self, workers: int, seconds: float) -> StartTimes:
        return StartTimes(self.cores, self.batch_s, (*self.seen, (workers, seconds))) if workers else self

    def predict(self, workers: int) -> float:
        """Seconds to the first batch."""
        return self._alone(workers) + self.batch_s if workers else 0.0

    def _alone(self, workers: int) -> float:
        """Seconds of the start, less making the batch, which is made without workers too; by the most that were started yet."""
        known, seconds = max(self.seen, default=(1, UNTRIED + self.batch_s))
        return max(QUICK, seconds - self.batch_s) * max(self.cores, workers) / max(self.cores, known) if workers else 0.0

    def too_long(self, workers: int, most: float) -> str | None:
        """Why so many are not started where a start should take ``most`` seconds; None where they may be."""
        seconds = self._alone(workers)
        if seconds <= max(most, LIKE_SEEN * max((took for _, took in self.seen), default=0.0)):
            return None
        return f"starting its workers would take about {seconds:.2g} s, and the budget has {most:.2g} s for each trial"

    def longest_trial(self, workers: int, each: float, left: float) -> float:
        """Seconds after which a trial of so many workers is ended: ``each`` are meant for one, and ``left`` are left for all."""
        return min(max(left / 2, 2 * (self.predict(workers) + each)), max(each, left - each))

    def needed(self, workers: int, own: int, each: float) -> float:
        """Seconds for a trial of so many, and for holding the winner against the user's ``own`` once more."""
        confirming = max(2 * each, self.predict(own) + each)
        return max(1.2 * each, self.predict(workers) + 0.5 * each) + confirming
