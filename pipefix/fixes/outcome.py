"""What became of each remedy: applied, and what that brought; or refused, and why. Pure data."""

from __future__ import annotations

import math

import msgspec

from pipefix.vocabulary.quantity import Interval


class Sameness(msgspec.Struct, frozen=True, kw_only=True):
    """Samples of the pipeline as it was, held against those of the changed one, with their random numbers fixed."""

    kind: str
    """equal, order (the same samples in another order), different (in their values), unlike (in shape or number) or unchecked."""
    sentence: str
    samples: int = 0
    """How many were compared."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Both pipelines run in turn, block by block."""

    gain: Interval
    """Throughput afterwards over throughput before."""
    before: Interval
    """Samples a second."""
    after: Interval
    pairs: int
    epochs: bool = False
    """The start of each epoch is counted in."""

    @property
    def faster(self) -> bool:
        """More than noise."""
        return self.gain.low > 1.0

    @property
    def slower(self) -> bool:
        return self.gain.high < 1.0


class Applied(msgspec.Struct, frozen=True, kw_only=True, tag="applied", tag_field="outcome"):
    """It is in the plan."""

    id: str
    title: str
    stage: str
    predicted: Interval
    measured: Measured
    same: Sameness
    step: int
    """Its number in the log, and that of the plan's backup."""
    makes: str | None = None
    """What it put on the disk, relative to the plan file."""
    disk_bytes: int | None = None
    seconds: float = 0.0
    """What making it took."""

    @property
    def held(self) -> float | None:
        """What was gained as part of what was predicted to be gained: 1.00x of a predicted 1.10x is none of it."""
        promised = self.predicted.value - 1
        return (self.measured.gain.value - 1) / promised if promised > 0 else None


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused", tag_field="outcome"):
    """It is not in the plan."""

    id: str
    title: str
    stage: str
    why: str
    predicted: Interval | None = None
    measured: Measured | None = None
    """Where it was made, measured and taken back."""
    same: Sameness | None = None
    command: str | None = None
    """What to do by hand, where that is all that is missing."""


Outcome = Applied | Refused


class Fixed(msgspec.Struct, frozen=True, kw_only=True):
    target: str
    program: list[str] = []
    """The program and its arguments, where the target is a loader inside one."""
    folder: str
    """Where plan, log and caches lie."""
    plan: str | None = None
    """The plan file, where there is one now."""
    dry: bool = False
    """Nothing was made: the outcomes are what would be tried, and what would not."""
    went_on: bool = False
    """From a plan that lay there: the whole is more than the steps of this run."""
    interrupted: bool = False
    outcomes: list[Applied | Refused] = []
    ahead: list[Refused] = []
    """Of a dry run: what would be tried, in this order."""
    stopped: str = ""
    """Why it ended."""
    total: Measured | None = None
    """The pipeline without the plan against the one with it."""
    same: Sameness | None = None
    length: int | None = None
    """Samples an epoch."""
    no_longer_read: list[str] = []
    """Caches that only --undo still needs."""
    left_alone: list[str] = []
    """What was to be removed from the disk, and was not: sentences that say why."""

    @property
    def applied(self) -> list[Applied]:
        return [outcome for outcome in self.outcomes if isinstance(outcome, Applied)]

    @property
    def refused(self) -> list[Refused]:
        return [outcome for outcome in self.outcomes if isinstance(outcome, Refused)]

    @property
    def promised(self) -> float | None:
        """What the steps that were kept were predicted to bring together."""
        return math.prod(outcome.predicted.value for outcome in self.applied) if self.applied else None

    @property
    def saved_s(self) -> float | None:
        """Seconds of an epoch that the plan saves."""
        if self.total is None or self.length is None:
            return None
        return self.length * (1 / self.total.before.value - 1 / self.total.after.value)


class Undone(msgspec.Struct, frozen=True, kw_only=True):
    folder: str
    id: str
    """Of its remedy, as the log calls it; empty where that does not say."""
    step: int
    """The backup's number; 0 where no backup was used."""
    finished: bool = True
    """False where no step in effect was taken back: an interrupted one had left something lying about."""
    removed: list[str] = []
    """What was taken from the disk."""
    plan: str | None = None
    """The plan file as it is now; None where none is left."""
    kept_as: str | None = None
    """Where the plan that gave way is kept, edits included."""
    left_alone: list[str] = []
    """What was to be removed from the disk, or written, and was not: sentences that say why."""
