"""Finds lasting changes in the figures of a job: windows in, notices out. Pure: it knows no clock, no file and no loader.

Each figure (seconds a sample of a stage, bytes a sample, seconds to start an epoch) is watched on a logarithmic scale by a test of
its own for a lasting rise (`cusum`). Its level is a baseline's, or what the first windows showed; the level follows slow waves,
such as a day's, within `WAVE` of where it began. A figure that falls for good (a page cache that has warmed) is learned anew.
What all stages that compute show alike is the machine's doing, and a figure of its own (`pace`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from pipefix.vocabulary.stage import Stage
from pipefix.watching import sentences
from pipefix.watching.cusum import Rise, limit_for, noise
from pipefix.watching.pace import SharedPace
from pipefix.watching.window import Notice, Window

CHANGE = 0.20
"""A lasting rise by this much is to be found."""
FALSE_ALARMS = 0.1
"""A day, from all figures together, where the noise of windows is as it was while levels were learned."""
LEARN = 20
"""Windows that teach a level and its noise."""
RELEARN = 10
"""Windows that teach a level that fell."""
WAVE = 0.10
"""Part of its first level by which a level may follow slow waves."""
SLOWNESS = 120
"""Windows in which a level follows most of a lasting change, within `WAVE`."""
MEMORY = 240
"""Windows from which the noise is learned in the long run."""
REFINE = 20
"""Windows between two estimates of it."""
LEAST_LOOKS = 2
"""A window's figure rests on so many batches, or it is left out."""
PATIENCE = 60
"""Windows after which storage is held against a baseline though the first epoch still runs: until then the cache may be cold."""
STARTS_CHANGE = 0.5
STARTS_LEARN = 4
LEAST = 1e-12
"""Seconds or bytes below which a figure says nothing."""
_DAY = 86_400.0
_SAME_WORK = 0.4
"""Where processor time rose by less than this part of what a stage's time rose by, the machine is busier; the stage is not."""
_LARGER = 0.5
"""Where bytes a sample rose by at least this part of what a stage's time rose by, larger samples are why."""
WATCHED = (Stage.STORAGE, Stage.DECODE, Stage.AUGMENT, Stage.COLLATE, Stage.IPC, Stage.STEP)
BYTES, STARTS, CPU, MACHINE = "bytes", "starts", "cpu", "machine"


@dataclass(frozen=True)
class Baseline:
    """Levels to hold figures against. Figures that it lacks are learned from the job's own beginning."""

    name: str
    levels: Mapping[str, float]


@dataclass
class Figure:
    """One figure's level and its test."""

    name: str
    change: float
    learn: int
    per_alarm: float
    """Windows between two false alarms of this figure that are allowed."""
    fixed: float | None = None
    """A baseline's level."""
    taught: list[float] = field(default_factory=list)
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=MEMORY))
    """Values while nothing drifted."""
    fed: int = 0
    level: float | None = None
    first: float = 0.0
    noise: float = 0.0
    rise: Rise | None = None
    fall: Rise | None = None
    drifting: bool = False
    fell: bool = False
    """It lies below its baseline's level for good, and that was said."""

    def feed(self, value: float) -> str | None:
        """``up`` where a rise became certain, ``over`` where it ended, ``down`` where the figure fell for good."""
        if self.rise is None or self.fall is None or self.level is None:
            return self._learn(value)
        excess = value - self.level
        self._refine(value)
        high, low = self.rise.feed(excess), self.fall.feed(-excess)
        if not self.drifting and high:
            self.drifting = True
            return "up"
        if self.drifting and self.rise.sum == 0.0:
            self.drifting = False
            return "over"
        if low and not self.drifting and not self.fell:
            self.fall.clear()
            self.fell = self.fixed is not None
            if self.fixed is None:
                self.taught, self.learn, self.rise = [], RELEARN, None
            return "down"
        if self.rise.sum < self.rise.limit / 2:
            self._follow(excess)
        return None

    def _learn(self, value: float) -> str | None:
        self.taught.append(value)
        if len(self.taught) < self.learn:
            return None
        self.level = self.first = median(self.taught) if self.fixed is None else self.fixed
        self.noise = max(noise(self.taught), self.noise)
        limit = self._limit()
        self.rise, self.fall = Rise(self.slack, limit), Rise(self.slack, limit)
        self.recent = deque(self.taught, maxlen=MEMORY)
        if self.fixed is None:
            return None
        # The level was known all the time: what taught the noise is tested as well.
        events = [self.feed(value) for value in self.taught]
        return next((event for event in events if event), None)

    def _refine(self, value: float) -> None:
        """A few windows teach little about noise; as more come, the limit is set by them."""
        if self.drifting:
            return
        self.recent.append(value)
        self.fed += 1
        if self.fed % REFINE == 0:
            self.noise = noise(self.recent)
            limit = self._limit()
            for test in (self.rise, self.fall):
                if test is not None:
                    test.limited(limit)

    def _limit(self) -> float:
        return limit_for(self.per_alarm, self.slack, self.noise)

    @property
    def slack(self) -> float:
        return math.log1p(self.change) / 2

    def _follow(self, excess: float) -> None:
        assert self.level is not None
        step = max(-3 * self.noise, min(3 * self.noise, excess)) / SLOWNESS
        self.level = max(self.first - WAVE, min(self.first + WAVE, self.level + step))

    @property
    def ratio(self) -> float | None:
        """Where the values since the rise began lie, over the level."""
        if self.rise is None or not self.rise.above or self.level is None:
            return None
        return math.exp(median(self.rise.above) + self.level - self.first)


class Drift:
    """Feed it every window of one job, in order."""

    def __init__(
        self,
        baseline: Baseline | None = None,
        *,
        false_alarms: float = FALSE_ALARMS,
        learn: int = LEARN,
    ) -> None:
        self.baseline, self.false_alarms, self.learn = baseline, false_alarms, learn
        self.figures: dict[str, Figure] = {}
        self._cpu: list[float] = []
        self._cpu_level: float | None = None
        self._pace = SharedPace(learn)
        self._windows = 0
        self._times: deque[float] = deque(maxlen=256)
        self.alarms: list[Notice] = []
        """Every alarm so far."""

    @property
    def drifting(self) -> list[str]:
        return [name for name, figure in self.figures.items() if figure.drifting]

    def feed(self, window: Window) -> list[Notice]:
        """What this window makes certain."""
        self._windows += 1
        self._times.append(window.time)
        values = figures_of(window)
        cpu = values.pop(CPU, None)
        if cpu is not None and self._cpu_level is None:
            self._cpu.append(cpu)
            if len(self._cpu) >= self.learn:
                self._cpu_level = median(self._cpu)
        notices = [sentences.with_sentence(Notice(kind="died", stage=None, cause=how)) for how in window.died]
        for start in window.starts:
            notices += self._fed(STARTS, math.log(start), window, cpu) if start > LEAST else []
        self._pace.feed(values)
        for name, value in values.items():
            if not self._excused(name, window):
                notices += self._fed(name, value - self._pace.felt_by(name), window, cpu)
        if self._pace.all is not None:
            notices += self._fed(MACHINE, self._pace.all, window, cpu)
        notices = _without_echoes(notices)
        self.alarms += [notice for notice in notices if notice.alarm]
        return notices

    def _excused(self, name: str, window: Window) -> bool:
        """In its first epoch a job reads from a cold cache, which is no drift against a baseline that was warm."""
        known = self.baseline is not None and name in self.baseline.levels
        return known and name == Stage.STORAGE and window.epochs < 2 and self._windows <= PATIENCE

    def _fed(self, name: str, value: float, window: Window, cpu: float | None) -> list[Notice]:
        figure = self.figures.get(name)
        if figure is None:
            figure = self.figures[name] = self._figure(name, window.seconds)
        change = figure.feed(value)
        if change == "up":
            return [self._alarm(figure, cpu)]
        if change == "over":
            return [self._note("over", figure)]
        return [self._note("cheaper", figure)] if change == "down" and name not in (BYTES, MACHINE) else []

    def _figure(self, name: str, seconds: float) -> Figure:
        starts = name == STARTS
        level = self.baseline.levels.get(name) if self.baseline is not None else None
        # Each figure has its share of the false alarms; epochs start at most once a window.
        windows = _DAY / max(seconds, 1e-3) / self.false_alarms * (len(WATCHED) + 3)
        return Figure(
            name, STARTS_CHANGE if starts else CHANGE, STARTS_LEARN if starts else self.learn, windows,
            fixed=math.log(level) if level else None,
        )  # fmt: skip

    # -- notices -------------------------------------------------------------------------------------------------------

    def _alarm(self, figure: Figure, cpu: float | None) -> Notice:
        ratio = figure.ratio or 1.0
        before = math.exp(figure.first)
        if figure.name == MACHINE:
            before *= sum(map(math.exp, self._pace.usual.values()))
        rise = figure.rise
        ran = rise.run if rise is not None and figure.name != STARTS else 1
        since = self._times[-max(1, min(len(self._times), ran))]
        kind, stage = _KINDS.get(figure.name, ("slower", figure.name))
        notice = Notice(
            kind=kind, stage=stage, ratio=ratio, before=before, after=before * ratio, since=since,
            against=self._against(figure), cause=self._cause(figure, ratio, cpu),
        )  # fmt: skip
        return sentences.with_sentence(notice)

    def _note(self, kind: str, figure: Figure) -> Notice:
        _, stage = _KINDS.get(figure.name, ("", figure.name))
        cause = {BYTES: "larger-samples", MACHINE: MACHINE}.get(figure.name)
        return sentences.with_sentence(Notice(kind=kind, stage=stage, against=self._against(figure), cause=cause))

    def _against(self, figure: Figure) -> str:
        return self.baseline.name if self.baseline is not None and figure.fixed is not None else "the job's own beginning"

    def _cause(self, figure: Figure, ratio: float, cpu: float | None) -> str | None:
        if figure.name not in (Stage.STORAGE, Stage.DECODE, Stage.AUGMENT, Stage.COLLATE, MACHINE):
            return None
        size = self.figures.get(BYTES)
        if size is not None and (size.ratio or 1.0) > 1 and math.log(size.ratio or 1.0) >= _LARGER * math.log(ratio):
            return "larger-samples"
        if cpu is None or self._cpu_level is None or figure.name == Stage.STORAGE:
            return None
        same_work = cpu - self._cpu_level < _SAME_WORK * math.log(ratio)
        if figure.name == MACHINE:
            return "busy-machine" if same_work else "more-work"
        # Where too few stages compute to tell what they share, those that rise together say it.
        others = [self.figures[stage] for stage in (Stage.DECODE, Stage.AUGMENT, Stage.COLLATE) if stage in self.figures]
        together = len(others) > 1 and all((neighbour.ratio or 1.0) > 1 + (ratio - 1) / 2 for neighbour in others)
        return "busy-machine" if together and same_work else None


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
    values: dict[str, float] = {
        stage.value: window.stages[stage.value].s
        for stage in WATCHED
        if stage.value in window.stages and window.stages[stage.value].batches >= LEAST_LOOKS
    }
    if window.bytes:
        values[BYTES] = window.bytes
    if window.cpu:
        values[CPU] = window.cpu
    return {name: math.log(value) for name, value in values.items() if value > LEAST}


def _without_echoes(notices: list[Notice]) -> list[Notice]:
    """Several figures that rise in one window for the same reason are one alarm: the one with most seconds."""
    larger = [notice for notice in notices if notice.kind == "larger"]
    if not larger:
        return notices
    return [notice for notice in notices if notice.cause != "larger-samples"]
