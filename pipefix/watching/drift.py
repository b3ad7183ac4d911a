"""Finds lasting changes in the figures of a job: windows in, notices out. Pure: it knows no clock, no file and no loader.

Each figure (seconds a sample of a stage, bytes a sample, seconds to start an epoch) is held against its `level`. What all stages
that compute show alike is the machine's doing, and a figure of its own (`SharedPace`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import median

import msgspec

from pipefix.vocabulary.stage import Stage
from pipefix.watching import sentences
from pipefix.watching.window import Notice, Window

CHANGE = 0.20
"""A lasting rise by this much is to be found."""
LAST = 20
"""Windows that teach a level, and whose median is held against it."""
LEAST_LOOKS = 2
"""A window's figure rests on so many batches, or it is left out."""
PATIENCE = 60
"""Windows after which storage is held against a baseline though the first epoch still runs: until then the cache may be cold."""
STARTS_CHANGE, STARTS_LAST = 0.5, 6
"""The same of the starts of epochs."""
LEAST = 1e-12
"""Seconds or bytes below which a figure says nothing."""
_SAME_WORK = 0.4
"""Where processor time rose by less than this part of what a stage's time rose by, the machine is busier; the stage is not."""
_LARGER = 0.5
"""Where bytes a sample rose by at least this part of what a stage's time rose by, larger samples are why."""
WATCHED = (Stage.STORAGE, Stage.DECODE, Stage.AUGMENT, Stage.COLLATE, Stage.IPC, Stage.STEP)
BYTES, STARTS, CPU, MACHINE = "bytes", "starts", "cpu", "machine"
BAR = 0.85
"""Part of the change that is to be found by which the median must have risen: noise and waves may hide the rest."""
SPREADS = 1.5
"""Standard deviations of single values by which it must have risen at least: of a noisy figure only larger changes are found."""
WAVE = 0.10
"""How far the level may follow slow waves from where it began."""
SLOWNESS = 120
"""Values in which it follows most of a lasting change, within `WAVE`."""
_MAD = 1.4826
"""Median absolute deviation to standard deviation, for a normal distribution."""
COMPUTING = (Stage.DECODE.value, Stage.AUGMENT.value, Stage.COLLATE.value)
FELT = (*COMPUTING, Stage.IPC.value)
"""Whose figures the machine's load is taken out of."""
LEAST_OTHERS = 2
"""Other stages that must agree before anything is thought to be shared."""
BY_CHANCE, BELIEVED = 0.03, 0.07
"""What all of them show is chance up to the one, and the machine's from the other on; between the two a part of it is."""


@dataclass(frozen=True)
class Baseline:
    """Levels to hold figures against. Figures that it lacks are learned from the job's own beginning."""

    name: str
    levels: Mapping[str, float]


class Level:
    """The level of one figure, fed value by value, and whether the figure has risen above it, or fallen below it, for good.

    On a logarithmic scale, the median of the last values is held against the level: a baseline's, or the median of the first
    values. So half of the last values must have changed, and no outlier and no short burst is a drift. The level follows slow
    waves, such as a day's, within `WAVE` of where it began. One that fell for good (a page cache that has warmed) gets another.
    """

    def __init__(self, change: float, count: int, fixed: float | None = None) -> None:
        self.count = count
        """Values that teach the level, and whose median is held against it from then on."""
        self.fixed = fixed
        """A baseline's level."""
        self.last: deque[float] = deque(maxlen=count)
        self.first = 0.0
        """The level as it began."""
        self.drifting = False
        self._level: float | None = None
        self._bar = BAR * math.log1p(change)
        self._fell = False
        """It lies below a baseline's level for good, and that was said."""

    def feed(self, value: float) -> str | None:
        """``up`` where a rise became certain, ``over`` where it ended, ``down`` where the figure fell for good."""
        self.last.append(value)
        if len(self.last) < self.count:
            return None
        middle = median(self.last)
        if self._level is None:
            self._level = self.first = middle if self.fixed is None else self.fixed
            self._bar = max(self._bar, SPREADS * _MAD * median(abs(value - middle) for value in self.last))
        excess = middle - self._level
        if self.drifting:
            self.drifting = excess > self._bar / 2
            return None if self.drifting else "over"
        if excess > self._bar:
            self.drifting = True
            return "up"
        if excess < -self._bar and not self._fell:
            self._fell = self.fixed is not None
            if not self._fell:
                self.last = deque(self._latest, maxlen=self.count)
                self._level = self.first = median(self.last)
            return "down"
        if abs(excess) < self._bar / 2:
            self._level = max(self.first - WAVE, min(self.first + WAVE, self._level + excess / SLOWNESS))
        return None

    @property
    def _latest(self) -> list[float]:
        """Those that have changed by when a change is certain."""
        return list(self.last)[-(self.count // 2) :]

    @property
    def ratio(self) -> float | None:
        """Where the latest values lie, over the level as it began; None while there is none."""
        return None if self._level is None else math.exp(median(self._latest) - self.first)

    @property
    def raised(self) -> int:
        """How many of the last values lie above the level."""
        return sum(value > (self._level or 0.0) + self._bar / 2 for value in self.last)


class SharedPace:
    """The slow-down that all computing stages share, as on a busier or slower machine, by the logarithms of each window's figures.

    A stage's figure is held against its level without that part, so that a neighbour's load is no drift of the stage, and hides
    none. The part itself is a figure of its own.
    """

    def __init__(self) -> None:
        self._taught: dict[str, list[float]] = {}
        self._excess: dict[str, float] = {}

    def feed(self, values: Mapping[str, float]) -> None:
        self._excess = {}
        for name in COMPUTING:
            if name in values:
                taught = self._taught.setdefault(name, [])
                if len(taught) < LAST:
                    taught.append(values[name])
                self._excess[name] = values[name] - median(taught)

    def felt_by(self, name: str) -> float:
        """The part of a stage's figure that all others which compute show too."""
        others = [excess for figure, excess in self._excess.items() if figure != name]
        if name not in FELT or len(others) < LEAST_OTHERS:
            return 0.0
        agreed = _agreed(others)
        return agreed * max(0.0, min(1.0, (abs(agreed) - BY_CHANCE) / (BELIEVED - BY_CHANCE)))

    @property
    def all(self) -> float | None:
        """Their middle, as far as all of them agree; None where too few have figures."""
        if len(self._excess) <= LEAST_OTHERS:
            return None
        most = 2 * abs(_agreed(self._excess.values()))
        return max(-most, min(most, median(self._excess.values())))

    @property
    def usual(self) -> Mapping[str, float]:
        """Logarithms of seconds a sample, as they were in the job's beginning."""
        return {name: median(self._taught[name]) for name in self._excess}


def _agreed(excesses: Collection[float]) -> float:
    """As much as every one of them lies above, or below: one that drifts by itself says nothing of the others."""
    return max(0.0, min(excesses)) + min(0.0, max(excesses))


class Drift:
    """Feed it every window of one job, in order."""

    def __init__(self, baseline: Baseline | None = None) -> None:
        self.baseline = baseline
        self.levels: dict[str, Level] = {}
        self._cpu: list[float] = []
        self._cpu_level: float | None = None
        self._pace = SharedPace()
        self._windows = 0
        self._times: deque[float] = deque(maxlen=256)

    @property
    def drifting(self) -> list[str]:
        return [name for name, level in self.levels.items() if level.drifting]

    def feed(self, window: Window) -> list[Notice]:
        """What this window makes certain."""
        self._windows += 1
        self._times.append(window.time)
        values = figures_of(window)
        cpu = values.pop(CPU, None)
        if cpu is not None and self._cpu_level is None:
            self._cpu.append(cpu)
            if len(self._cpu) >= LAST:
                self._cpu_level = median(self._cpu)
        notices = [Notice(kind="died", stage=None, cause=how) for how in window.died]
        for start in window.starts:
            notices += self._fed(STARTS, math.log(start), cpu) if start > LEAST else []
        self._pace.feed(values)
        for name, value in values.items():
            # In its first epoch a job reads from a cold cache, which is no drift against a baseline that was warm.
            cold = name == Stage.STORAGE and window.epochs < 2 and self._windows <= PATIENCE
            if not (cold and self.baseline is not None and name in self.baseline.levels):
                notices += self._fed(name, value - self._pace.felt_by(name), cpu)
        if self._pace.all is not None:
            notices += self._fed(MACHINE, self._pace.all, cpu)
        # Figures that rise in one window because samples became larger are one alarm: that they did.
        larger = any(notice.kind == "larger" for notice in notices)
        told = [notice for notice in notices if not (larger and notice.cause == "larger-samples")]
        return [msgspec.structs.replace(notice, sentence=sentences.sentence(notice)) for notice in told]

    def _fed(self, name: str, value: float, cpu: float | None) -> list[Notice]:
        if name not in self.levels:
            known = self.baseline.levels.get(name) if self.baseline is not None else None
            rise, count = (STARTS_CHANGE, STARTS_LAST) if name == STARTS else (CHANGE, LAST)
            self.levels[name] = Level(rise, count, math.log(known) if known else None)
        level = self.levels[name]
        change = level.feed(value)
        if change == "up":
            return [self._alarm(name, level, cpu)]
        if change == "over":
            return [self._note("over", name, level)]
        return [self._note("cheaper", name, level)] if change == "down" and name not in (BYTES, MACHINE) else []

    def _alarm(self, name: str, level: Level, cpu: float | None) -> Notice:
        ratio = level.ratio or 1.0
        before = math.exp(level.first)
        if name == MACHINE:
            before *= sum(map(math.exp, self._pace.usual.values()))
        since = self._times[-min(len(self._times), level.raised if name != STARTS else 1)]
        kind, stage = _KINDS.get(name, ("slower", name))
        return Notice(
            kind=kind, stage=stage, ratio=ratio, before=before, after=before * ratio, since=since,
            against=self._against(level), cause=self._cause(name, ratio, cpu),
        )  # fmt: skip

    def _note(self, kind: str, name: str, level: Level) -> Notice:
        _, stage = _KINDS.get(name, ("", name))
        cause = {BYTES: "larger-samples", MACHINE: MACHINE}.get(name)
        return Notice(kind=kind, stage=stage, against=self._against(level), cause=cause)

    def _against(self, level: Level) -> str:
        return self.baseline.name if self.baseline is not None and level.fixed is not None else "the job's own beginning"

    def _cause(self, name: str, ratio: float, cpu: float | None) -> str | None:
        if name not in (Stage.STORAGE, *COMPUTING, MACHINE):
            return None
        size = self._ratio_of(BYTES)
        if size > 1 and math.log(size) >= _LARGER * math.log(ratio):
            return "larger-samples"
        if cpu is None or self._cpu_level is None or name == Stage.STORAGE:
            return None
        same_work = cpu - self._cpu_level < _SAME_WORK * math.log(ratio)
        if name == MACHINE:
            return "busy-machine" if same_work else "more-work"
        # Where too few stages compute to tell what they share, those that rise together say it.
        others = [self._ratio_of(stage) for stage in COMPUTING if stage in self.levels]
        together = len(others) > 1 and all(other > 1 + (ratio - 1) / 2 for other in others)
        return "busy-machine" if together and same_work else None

    def _ratio_of(self, name: str) -> float:
        """Of a figure's latest values to what it was; 1 where it is not known."""
        return (self.levels[name].ratio or 1.0) if name in self.levels else 1.0


_KINDS: dict[str, tuple[str, str | None]] = {
    Stage.DECODE.value: ("costlier", "decode"),
    Stage.AUGMENT.value: ("costlier", "augment"),
    Stage.COLLATE.value: ("costlier", "collate"),
    BYTES: ("larger", "storage"),
    STARTS: ("restarts", None),
    MACHINE: (MACHINE, None),
}
"""Kind of alarm and stage of a figure; any other is of the stage that bears its name, which is slower."""


def figures_of(window: Window) -> dict[str, float]:
    """The logarithms of what a window tells, where it rests on enough batches."""
    costs = {stage.value: window.stages.get(stage.value) for stage in WATCHED}
    values = {name: cost.s for name, cost in costs.items() if cost is not None and cost.batches >= LEAST_LOOKS}
    values |= {BYTES: window.bytes or 0.0, CPU: window.cpu or 0.0}
    return {name: math.log(value) for name, value in values.items() if value > LEAST}
