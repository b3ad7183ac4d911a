"""How far settings may go: memory, shared memory, open files and CPU, predicted before a trial and watched during it; and how long
they take to start, since a tuning keeps its budget. Pure.

A limit is a promise: settings that are predicted to break one are never run, and a trial that comes near one is ended. What a trial
takes is predicted from what earlier ones took; before there is one, from a few batches made in a single process, and with a margin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from pipefix.system.resources import WORKER_BYTES
from pipefix.tuning.space import Settings
from pipefix.vocabulary import quantity

NEAR = 0.92
"""A trial that has taken this share of a limit is ended."""
CAREFUL = 0.85
"""Settings may be predicted to take this share of a limit at most."""
UNTRIED = 1.4
"""Factor on what a worker is predicted to take while none was ever seen."""
TRIED = 1.1
"""The same from trials."""
HANDING_S, FRESH_RATE = 0.0006, 0.9e9
"""Seconds that handing over a batch takes a worker however small it is, and bytes a second into fresh shared memory."""
WORKER_FILES = 12
"""Pipes and queues of a worker."""


@dataclass(frozen=True)
class ResourceLimits:
    """Of everything a trial runs, its training process included. None: no limit."""

    memory_bytes: float | None = None
    """Proportional set size of all its processes, shared memory included."""
    shm_bytes: float | None = None
    files: float | None = None
    """That one process has open."""
    cores: float | None = None
    """CPU seconds a second, on average over a trial."""
    vram_bytes: float | None = None
    """Of the device."""


class Usage(msgspec.Struct, frozen=True):
    """What a trial took, its training process included: at one moment, at most, or predicted."""

    memory_bytes: float = 0.0
    """By PSS."""
    shm_bytes: float = 0.0
    files: float = 0.0
    """Open in one process."""
    cores: float = 0.0
    """CPU seconds a second."""
    vram_bytes: float = 0.0
    """Of the device."""

    def most(self, other: Usage) -> Usage:
        """The greater of both, figure by figure."""
        return Usage(*(max(getattr(self, name), getattr(other, name)) for name in Usage.__struct_fields__))

    def beside(self, others: Sequence[Usage]) -> Usage:
        """What runs side by side takes. CPU is each one's own: they run in turn."""
        every = [self, *others]
        memory, shm, vram = (sum(getattr(usage, f"{what}_bytes") for usage in every) for what in ("memory", "shm", "vram"))
        return Usage(memory, shm, max(usage.files for usage in every), self.cores, vram)


_WORDS = ("of memory", "of /dev/shm", "open files", "CPU cores", "of the device's memory")


def _said(name: str, value: float) -> str:
    number = quantity.size(value) if name.endswith("bytes") else quantity.number(value) if name == "cores" else f"{value:.0f}"
    return f"{number} {_WORDS[Usage.__struct_fields__.index(name)]}"


def above(limits: ResourceLimits, usage: Usage, share: float) -> Iterator[tuple[str, float, float]]:
    """(figure, value, limit) of everything that is above a share of its limit."""
    for name in Usage.__struct_fields__:
        limit, value = getattr(limits, name), getattr(usage, name)
        if limit is not None and value > share * limit:
            yield name, value, limit


def refusal(limits: ResourceLimits, predicted: Usage) -> str | None:
    for name, value, limit in above(limits, predicted, CAREFUL):
        margin = "" if value > limit else f", less a margin of {quantity.percent(1 - CAREFUL)}"
        return f"it would take about {_said(name, value)}, and the limit is {_said(name, limit)}{margin}"
    return None


def ending(limits: ResourceLimits, usage: Usage, before: Usage | None = None) -> str | None:
    """Why a running trial is ended: it is near a limit, or would be beyond it if it grew once more as it did since ``before``."""
    for name, value, limit in above(limits, usage, NEAR):
        return f"it took {_said(name, value)}, which is near the limit of {_said(name, limit)}"
    if before is None:
        return None
    for name, value, limit in above(limits, _grown(before, usage), 1.0):
        if name != "cores":
            return f"it grew towards {_said(name, value)}, and the limit is {_said(name, limit)}"
    return None


def _grown(before: Usage, now: Usage) -> Usage:
    """What comes next if it grows on, half as fast again."""
    growth = {name: getattr(now, name) - getattr(before, name) for name in Usage.__struct_fields__}
    return Usage(**{name: getattr(now, name) + 1.5 * max(0.0, grown) for name, grown in growth.items()})


@dataclass(frozen=True)
class BatchCost:
    """One batch, as a single process made it."""

    bytes: float
    storages: int
    """Tensors that cross each on its own: every one is a file while it is in flight."""
    process_bytes: float
    """Memory of the process that made it."""
    process_files: float
    cpu_s: float
    """CPU seconds that making it took."""
    seconds: float
    samples: float = 1.0
    why_none: str = ""
    """Why the model of the target's file is not the consumer."""
    starved_s: float = 0.0
    """Seconds of making it in which it was ready to run, and other programs had the CPU."""

    @property
    def rate(self) -> float:
        """Samples a second, made in one process."""
        return self.samples / max(self.seconds, 1e-9)

    @property
    def sample_cpu_s(self) -> float:
        """CPU seconds a sample."""
        return self.cpu_s / self.samples

    @property
    def computing(self) -> float:
        """Share of its making that wants a core; the rest waits for storage, a service or other processes."""
        return min(1.0, (self.cpu_s + self.starved_s) / max(self.seconds, 1e-9)) if self.cpu_s else 1.0

    @property
    def handing(self) -> float:
        """Handing it over to another process, as part of its making: every page is a fault in memory that was never used."""
        return (HANDING_S + self.bytes / FRESH_RATE) / max(self.seconds, 1e-9)


def _times(tried: Settings, settings: Settings) -> float:
    """What a device takes grows with the batch, as long as nobody knows better; it never shrinks below what was seen."""
    return max(1.0, settings.batch_size / tried.batch_size) if settings.batch_size and tried.batch_size else 1.0


@dataclass(frozen=True)
class Footprint:
    """What settings will take, by what others took."""

    batch: BatchCost
    trials: tuple[tuple[Settings, Usage], ...] = ()
    ended: tuple[tuple[Settings, Usage], ...] = ()
    """Those that came too near a limit: they would have taken more still."""

    def with_trial(self, settings: Settings, usage: Usage, *, ended: bool = False) -> Footprint:
        entry = (settings, usage)
        return replace(self, ended=(*self.ended, entry)) if ended else replace(self, trials=(*self.trials, entry))

    def predict(self, settings: Settings) -> Usage:
        batch, workers = self.batch, settings.workers
        tried_size = next((ran.batch_size for ran, _ in self.trials if ran.batch_size), 1)
        grow = settings.batch_size / tried_size if settings.batch_size else 1.0
        slots = settings.engine == "processes"  # of which one a worker lies with the consumer until the next is asked for
        in_flight = (settings.in_flight + workers + 1 + slots * workers) * batch.bytes * grow if workers else 0.0
        crossing = 0 if slots else (settings.in_flight + workers) * batch.storages
        margin, own = TRIED if self._seen() else UNTRIED, batch.process_bytes
        # Private memory of one worker: the most that any trial shows, and never less than seems possible.
        shown = [max(0.0, usage.memory_bytes - own) / ran.workers for ran, usage in self._seen()]
        worker_bytes = max(shown, default=WORKER_BYTES + 0.15 * own + 2 * batch.bytes)
        return Usage(
            memory_bytes=batch.process_bytes + (grow - 1) * batch.bytes + workers * worker_bytes * margin + in_flight,
            shm_bytes=in_flight,
            files=batch.process_files + workers * WORKER_FILES + crossing,
            cores=self._cores(settings),
            vram_bytes=max((usage.vram_bytes * _times(ran, settings) for ran, usage in (*self.trials, *self.ended)), default=0.0),
        )

    def _seen(self) -> list[tuple[Settings, Usage]]:
        return [entry for entry in (*self.trials, *self.ended) if entry[0].workers]

    def _cores(self, settings: Settings) -> float:
        """As many as its processes keep busy: each at most the share of its time that making a batch computes."""
        cores_per_worker = [usage.cores / ran.workers for ran, usage in self._seen() if usage.cores]
        busy = max(cores_per_worker, default=self.batch.computing)
        return max(self.batch.computing, settings.workers * busy)


# -- how long settings take to start --------------------------------------------------------------------------------------------

START_UNTRIED = 0.1
"""Seconds that each worker is thought to take to start while none was ever seen."""
QUICK_START = 0.02
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
        return replace(self, seen=(*self.seen, (workers, seconds))) if workers else self

    def predict(self, workers: int) -> float:
        """Seconds to the first batch."""
        return self._alone(workers) + self.batch_s if workers else 0.0

    def _alone(self, workers: int) -> float:
        """Seconds of the start, less making the batch, which is made without workers too; by the most that were started yet."""
        known, seconds = max(self.seen, default=(1, START_UNTRIED + self.batch_s))
        return max(QUICK_START, seconds - self.batch_s) * max(self.cores, workers) / max(self.cores, known) if workers else 0.0

    def too_long(self, workers: int, most: float) -> str | None:
        """Why so many are not started where a start should take ``most`` seconds; None where they may be."""
        seconds = self._alone(workers)
        if seconds <= max(most, LIKE_SEEN * max((took for _, took in self.seen), default=0.0)):
            return None
        takes, each = quantity.seconds(seconds), quantity.seconds(most)
        return f"starting its workers would take about {takes}, and the budget has {each} for each trial"

    def longest_trial(self, workers: int, each: float, left: float) -> float:
        """Seconds after which a trial of so many workers is ended: ``each`` are meant for one, and ``left`` are left for all."""
        return min(max(left / 2, 2 * (self.predict(workers) + each)), max(each, left - each))

    def needed(self, workers: int, own: int, each: float) -> float:
        """Seconds for a trial of so many, and for holding the winner against the user's ``own`` once more."""
        confirming = max(2 * each, self.predict(own) + each)
        return max(1.2 * each, self.predict(workers) + 0.5 * each) + confirming
