"""The figures that a job is compared with: from a run file of the probe, or from the windows of an earlier job."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from pipefix.report import runfile
from pipefix.vocabulary import versioned
from pipefix.vocabulary.errors import UnreadableFile
from pipefix.vocabulary.quantity import known, usable
from pipefix.vocabulary.stage import IN_SAMPLE, Stage
from pipefix.watching import window
from pipefix.watching.drift import BYTES, CPU, Baseline, figures_of


def read(path: Path) -> Baseline:
    """By what the file says of itself; of a folder of `pipefix run` its run file."""
    path = path / "run.json" if path.is_dir() else path
    data = versioned.read(path, what="baseline")
    first = data.split(b"\n", 1)[0]
    if b'"pipefix.watch/' in first:
        lines = data[: data.rfind(b"\n") + 1].splitlines()
        return from_windows(list(_windows([line for line in lines if line.strip()], path)), path.name)
    return from_run(runfile.decode(data, origin=str(path)), path.name)


def _windows(lines: Sequence[bytes], path: Path) -> Iterator[window.Window]:
    """Those of a file; a line that was cut, as on a full disk, is passed over."""
    for number, line in enumerate(lines):
        try:
            yield window.decode(line, origin=str(path))
        except UnreadableFile as error:
            if not number and error.__cause__ is None:  # it is of a newer version
                raise


def from_run(run: runfile.Run, name: str) -> Baseline:
    """What the probe and the watch measure in the same way: what happens inside a sample.

    Collating, hand-over and step depend on how the probe ran the loader; those levels are learned from the job itself.
    """
    levels: dict[str, float] = {}
    for figures in run.stages:
        cost = usable(figures.wall_s)
        if figures.stage in IN_SAMPLE and cost is not None and cost.value > 0:
            levels[figures.stage] = cost.value
        if figures.stage == Stage.STORAGE and known(figures.bytes) and figures.bytes > 0:
            levels[BYTES] = figures.bytes
    if not levels:
        raise UnreadableFile(f"The baseline {name} holds no costs of stages to hold a job against.")
    return Baseline(name, levels)


def from_windows(windows: Sequence[window.Window], name: str) -> Baseline:
    """The medians of an earlier job, its cold first epoch left out where it has others."""
    warm = [each for each in windows if each.epochs > 1] or list(windows)
    values: dict[str, list[float]] = {}
    for each in warm:
        for figure, value in figures_of(each).items():
            values.setdefault(figure, []).append(value)
    values.pop(CPU, None)
    if not values:
        problem = f"The baseline {name} holds no window with figures."
        raise UnreadableFile(problem, advice="Let the job run for some minutes, or name another file.")
    return Baseline(name, {figure: math.exp(median(each)) for figure, each in values.items()})
