"""Finds lasting changes in the figures of a job: windows in, notices out. Pure: it knows no clock, no file and no loader.

Each figure (seconds a sample of a stage, bytes a sample, seconds to start an epoch) is held against its `level`. What all stages
that compute show alike is the machine's doing, and a figure of its own (`pace`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from pipefix.vocabulary.stage import Stage
from pipefix.watching import sentences
from pipefix.watching.level import Level
from pipefix.watching.pace import SharedPace
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


@dataclass(frozen=True)
class Baseline:
    """Levels to hold figures against. Figures that it lacks are learned from the job's own beginning."""

    name: str
    levels: Mapping[str, float]


class Drift:
    """Feed it every window of one job, in order."""

    def __init__(self, baseline: Baseline | None = None) -> None:
        self.baseline = baseline
        self.levels: dict[str, Level] = {}
        self._cpu: list[float] = []
        self._cpu_level: float | None = None
        self._pace = SharedPace(LAST)
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
        notices = [sentences.with_sentence(Notice(kind="died", stage=None, cause=how)) for how in window.died]
        for start in window.starts:
            notices += self._fed(STARTS, math.log(start), window, cpu) if start > LEAST else []
        self._pace.feed(values)
        for name, value in values.items():
            if not self._excused(name, window):
                notices += self._fed(name, value - self._pace.felt_by(name), window, cpu)
        if self._pace.all is not None:
            notices += self._fed(MACHINE, self._pace.all, window, cpu)
        return _without_echoes(notices)

    def _excused(self, name: str, window: Window) -> bool:
        """In its first epoch a job reads from a cold cache, which is no drift against a baseline that was warm."""
        known = self.baseline is not None and name in self.baseline.levels
        return known and name == Stage.STORAGE and window.epochs < 2 and self._windows <= PATIENCE

    def _fed(self, name: str, value: float, window: Window, cpu: float | None) -> list[Notice]:
        if name not in self.levels:
            self.levels[name] = self._level_of(name)
        level = self.levels[name]
        change = level.feed(value)
        if change == "up":
            return [self._alarm(name, level, cpu)]
        if change == "over":
            return [self._note("over", name, level)]
        return [self._note("cheaper", name, level)] if change == "down" and name not in (BYTES, MACHINE) else []

    def _level_of(self, name: str) -> Level:
        known = self.baseline.levels.get(name) if self.baseline is not None else None
        fixed = math.log(known) if known else None
        return Level(STARTS_CHANGE, STARTS_LAST, fixed) if name == STARTS else Level(CHANGE, LAST, fixed)

    # -- notices -------------------------------------------------------------------------------------------------------

    def _alarm(self, name: str, level: Level, cpu: float | None) -> Notice:
        ratio = level.ratio or 1.0
        before = math.exp(level.first)
        if name == MACHINE:
            before *= sum(map(math.exp, self._pace.usual.values()))
        since = self._times[-min(len(self._times), level.raised if name != STARTS else 1)]
        kind, stage = _KINDS.get(name, ("slower", name))
        notice = Notice(
            kind=kind, stage=stage, ratio=ratio, before=before, after=before * ratio, since=since,
            against=self._against(level), cause=self._cause(name, ratio, cpu),
        )  # fmt: skip
        return sentences.with_sentence(notice)

    def _note(self, kind: str, name: str, level: Level) -> Notice:
        _, stage = _KINDS.get(name, ("", name))
        cause = {BYTES: "larger-samples", MACHINE: MACHINE}.get(name)
        return sentences.with_sentence(Notice(kind=kind, stage=stage, against=self._against(level), cause=cause))

    def _against(self, level: Level) -> str:
        return self.baseline.name if self.baseline is not None and level.fixed is not None else "the job's own beginning"

    def _cause(self, name: str, ratio: float, cpu: float | None) -> str | None:
        if name not in (Stage.STORAGE, Stage.DECODE, Stage.AUGMENT, Stage.COLLATE, MACHINE):
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
        others = [self._ratio_of(stage) for stage in (Stage.DECODE, Stage.AUGMENT, Stage.COLLATE) if stage in self.levels]
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
    """Figures that rise in one window because samples became larger are one alarm: that they did."""
    larger = any(notice.kind == "larger" for notice in notices)
    return [notice for notice in notices if not (larger and notice.cause == "larger-samples")]
