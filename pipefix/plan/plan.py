"""The plan: proposed steps with what each is worth, and declined ones with the reason. Pure data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from pipefix.plan.planfile import Change
from pipefix.vocabulary.gain import Bounded, Gain, MeasuredGain, NotTried, Told
from pipefix.vocabulary.quantity import Interval
from pipefix.vocabulary.stage import Stage

UNKNOWN = NotTried()


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a remedy says of one change."""

    id: str
    stage: Stage
    title: str
    why: str
    """What it changes and where the figure comes from; or why it is declined, in one sentence with its figures."""
    gain: Gain = UNKNOWN
    """Throughput afterwards over throughput as it is, or what it could be at most, where that is known."""
    command: str | None = None
    """Exactly what to type or to change."""
    disk_bytes: float | None = None
    """What it takes on disk; None for nothing, or where there was no time to see it."""
    seconds: float | None = None
    """What it takes once, before the first batch; None for nothing."""
    relieves: tuple[Stage, ...] = ()
    """Stages besides its own that cost less with it."""

    @property
    def measured(self) -> bool:
        return isinstance(self.gain, MeasuredGain)


@dataclass(frozen=True, kw_only=True)
class Proposed(Step):
    """A change worth making."""

    gain: Told
    command: str
    risk: str | None = None
    """What may change besides speed."""
    every_epoch: bool = False
    """It shortens the start of epochs, which a slow training step does not hide."""
    change: Change | None = None
    """What it merges into a plan file; None for what only the user's own code can change."""
    by_hand: str = ""
    """Why only that can."""

    @property
    def speedup(self) -> Interval:
        return self.gain.told

    def declined(self, why: str) -> Declined:
        return Declined(**{field.name: getattr(self, field.name) for field in fields(Step)} | {"why": why})


@dataclass(frozen=True, kw_only=True)
class Declined(Step):
    """A change that does not apply, or is not worth its price here."""

    @property
    def speedup(self) -> Interval | None:
        return None if isinstance(self.gain, NotTried | Bounded) else self.gain.told


@dataclass(frozen=True)
class Plan:
    """Proposed steps, the best first, then the declined ones."""

    steps: tuple[Step, ...]

    @property
    def proposed(self) -> tuple[Proposed, ...]:
        return tuple(step for step in self.steps if isinstance(step, Proposed))

    @property
    def declined(self) -> tuple[Declined, ...]:
        return tuple(step for step in self.steps if isinstance(step, Declined))

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)
