"""Whether workers started in another way are worth a trial, and whether they are better. Pure.

How workers start says nothing of the pace: it decides when an epoch's first batch is there, and what a worker begins with. The one
method that is tried is the fork server with modules loaded beforehand: it starts nearly as quickly as a fork, and from a process
that has no threads. `fork` is never proposed in the place of another method: whoever chose one may have had to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from pipefix.vocabulary.quantity import percent, seconds

SERVER = "forkserver"
VISIBLE = 0.01
"""Part of an epoch that starting the workers takes, above which it is worth a trial."""
LATE = 3.0
"""Seconds to the first batch above which it is worth one whatever an epoch takes."""
HELD_UP = 1.0
"""Seconds to the first batch above which trials themselves are held up."""
SLOW_FORK = 0.15
"""Seconds for each worker; forks that take less have nothing to gain."""
QUICKER = 0.7
"""Another way must start in at most this part of the time: a start is measured once, and two of them differ."""
WORTH_S, WORTH = 1.0, 0.005
"""Seconds, or the part of an epoch, that it must save besides."""
SAME_PACE, DOUBTFUL_PACE = 0.02, 0.1
"""What the pace may be lower by and be the same: more than the first only as far as it is not known better, up to the second."""


class Started(Protocol):
    """What is known of settings that ran."""

    @property
    def rate(self) -> float: ...
    @property
    def doubt(self) -> float: ...
    @property
    def starting(self) -> float | None:
        """Seconds to the first batch, without making it."""


@dataclass(frozen=True)
class Starting:
    """How workers are started as the code has it."""

    method: str
    preloaded: bool = False
    """Modules are loaded by the fork server already."""
    threads: tuple[str, ...] = ()
    """Python threads that the user's file starts, by name: locks that they hold in the moment of a fork stay locked in workers."""
    epoch: int | None = None
    """Samples; None where the dataset tells no length."""
    available: bool = True
    """This system has fork servers."""

    def never(self) -> str | None:
        """Why no other way can be tried; None where one can."""
        if not self.available:
            return f"this system has no fork server, and {self.method} stays"
        if self.method == SERVER and self.preloaded:
            return "workers come from a fork server that has modules loaded already"
        return None

    def hint(self, started: Started, workers: int) -> str | None:
        """Why the fork server is worth a trial; None where it is not."""
        late = started.starting
        if self.never() is not None or not workers or late is None:
            return None
        if self._unsafe:
            return f"fork copies a process in which {self._threads()}"
        if self.method == "fork" and late < SLOW_FORK * workers:
            return None
        share = self._share(late, started.rate)
        if late < LATE and share < VISIBLE:
            return None
        return f"by {self.method} the first batch is {seconds(late)} late{self._of_epoch(share)}"

    def urgent(self, started: Started) -> bool:
        """Whether trials themselves are held up, so that it comes before them."""
        return (started.starting or 0.0) >= HELD_UP

    def left(self, started: Started, workers: int) -> str:
        """Why nothing was tried."""
        never, late = self.never(), started.starting
        if never is not None:
            return never
        if not workers or late is None:
            return "there are no workers to start"
        if self.method == "fork" and late < SLOW_FORK * workers:
            return f"forked workers are there after {seconds(late)}, and no other way is quicker"
        return f"by {self.method} the first batch is {seconds(late)} late{self._of_epoch(self._share(late, started.rate))}"

    def no_better(self, now: Started, other: Started) -> str | None:
        """Why ``other``, the same settings with workers from the fork server, is not kept; None where it is better."""
        if now.starting is None or other.starting is None:
            return "how long it takes to start could not be told"
        lower = min(DOUBTFUL_PACE, max(SAME_PACE, math.hypot(now.doubt, other.doubt)))
        if other.rate < (1 - lower) * now.rate:
            return f"it delivers {percent(1 - other.rate / now.rate)} less"
        before, after = now.starting, other.starting
        told = f"the first batch is {seconds(after)} late instead of {seconds(before)}"
        if self._unsafe:
            price = after - before
            return None if price <= LATE or self._share(price, now.rate) <= VISIBLE else told
        saved = before - after
        worth = saved >= WORTH_S or self._share(saved, now.rate) >= WORTH
        return None if after <= QUICKER * before and worth else told

    @property
    def _unsafe(self) -> bool:
        return self.method == "fork" and bool(self.threads)

    def _threads(self) -> str:
        named = ", ".join(self.threads[:3])
        return f"{'threads run' if len(self.threads) > 1 else 'a thread runs'} ({named}): a lock that one holds then stays locked"

    def _share(self, late: float, rate: float) -> float:
        return late * rate / self.epoch if self.epoch else 0.0

    def _of_epoch(self, share: float) -> str:
        return f", {percent(share)} of an epoch's time" if self.epoch else ""
