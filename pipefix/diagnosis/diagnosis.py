"""The result of a diagnosis: seconds of a delivered sample by stage, what a stage's end would gain, and the verdict.

`Verdict` and `OpCost` stand in the run file as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from pipefix.vocabulary.gain import Bounded, MeasuredGain, NotTried
from pipefix.vocabulary.quantity import Interval
from pipefix.vocabulary.stage import IN_SAMPLE, Stage


class OpCost(msgspec.Struct, frozen=True):
    """One named operation inside a stage."""

    name: str
    wall_s: float
    """Seconds a sample, own time only (nested ops are counted under their own names)."""
    cpu_s: float | None = None
    calls: float = 1.0
    """Calls a sample."""
    opaque: str | None = None
    """Why this could not be cut further, where it could not."""


@dataclass(frozen=True)
class StageCost:
    """One stage in seconds a sample, in whichever process runs it."""

    stage: Stage
    wall: Interval
    cpu: Interval | None
    share: float
    """Part of the delivered time; 0 where hidden."""
    hidden: bool
    gain: MeasuredGain | Bounded | NotTried
    """What its disappearance would be worth: throughput with it replaced over throughput as it is."""
    bytes: float | None = None
    ops: tuple[OpCost, ...] = ()
    waiting: float | None = None
    """Seconds a sample that it neither computes nor queues for a CPU: waiting for a disk, a network, a lock. None: not known."""


@dataclass(frozen=True)
class Stations:
    """What runs side by side, in seconds a sample each. With no workers there is only `main`."""

    pool: Interval | None
    """Workers busy, divided by their number."""
    main: Interval
    """The training process: taking batches over and the step."""
    supply_over_main: Interval | None
    """Above 1: the consumer waits for batches. Below 1: batches wait for the consumer."""
    border: Interval | None = None
    """Handing over batches that are ready: making them free would make the loader no faster than this."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    """input-bound, step-bound, balanced or inconclusive."""
    stage: str | None
    """The stage to work on; None where no single one dominates."""
    sentence: str
    """What a person reads first."""
    confidence: float
    """0 to 1: how often the same verdict came out when the evidence was resampled. Of fewer than five blocks it says little."""
    blocks: int = 0
    """Blocks of the pipeline as it is that the verdict rests on; 0 where an older version did not say."""
    by_arms: bool = False
    """The arms alone decided: `confidence` is then how often draws from their intervals agree."""
    rule: str | None = None
    """The rule that decided, with its thresholds."""


@dataclass
class Diagnosis:
    verdict: Verdict
    sample: Interval
    """Delivered seconds a sample, without clocks running."""
    stages: dict[Stage, StageCost]
    """Those of a sample and collating in any case, others where they were measured."""
    declined: dict[Stage, str]
    unattributed: float
    """Seconds a delivered sample that belong to no stage."""
    closure: float
    """(attributed + unattributed) / measured - 1, the two sides measured apart."""
    stations: Stations
    sampler: Interval
    """Seconds a sample that the user's sampler takes in the training process."""
    demand: Interval | None = None
    """Samples/s the consumer takes when data are free."""
    fed: float | None = None
    """Part of the loop that the consumer was not waiting for data."""
    loader_wait: float | None = None
    """Seconds a batch that it waits for the loader itself, however little the data cost; not counted in `fed`."""
    starved: float = 0.0
    """Part of the making of batches in which the maker was ready to run and had no CPU."""
    sampler_gain: MeasuredGain | None = None
    """Of the pipeline without it; None where it takes too little for an arm of its own, or there was no time."""
    slowdown: float = 1.0
    """Timed over untimed seconds a sample."""
    calls_per_sample: float = 0.0
    tail: dict[str, float] = field(default_factory=dict)
    """Seconds of samples by percentile; of those that the dataset makes ``together`` (a batch, by ``__getitems__``), their mean."""
    arms: dict[str, Interval] = field(default_factory=dict)
    """Throughput of every arm over the real one's."""
    caveats: list[tuple[str, str]] = field(default_factory=list)
    lead: Interval | None = None
    """The named stage's cost over the next one's, where clocks named it."""
    contradictions: list[str] = field(default_factory=list)
    """What the figures say against the verdict that they would have given; it is left open then."""
    wanting: tuple[str, ...] = ()
    """Arms of which more blocks may settle an inconclusive verdict."""

    def part_of_making(self, *stages: Stage) -> float:
        """Part of the time that making samples and collating them takes which these stages take."""
        costs = {stage: self.stages[stage].wall.value for stage in (*IN_SAMPLE, Stage.COLLATE)}
        whole = sum(costs.values())
        return sum(costs.get(stage, 0.0) for stage in stages) / whole if whole else 0.0
