"""How long epochs take to begin: workers kept, and started in another way."""

from __future__ import annotations

from collections.abc import Iterable

from pipefix.plan import commands
from pipefix.plan.plan import Step
from pipefix.plan.remedy import Remedy
from pipefix.plan.situation import Situation
from pipefix.vocabulary.quantity import Interval, percent, seconds
from pipefix.vocabulary.stage import Stage

FORK_SECONDS = Interval(0.035, 0.015, 0.08)
"""Starting one worker by forking, from the training process or from a fork server that has the libraries loaded."""
RESTART_SPREAD = 0.3
"""Two restarts of the same loader differ by about so much."""


def epoch(at: Situation, restart: float) -> float | None:
    """Seconds of an epoch that begins with ``restart`` seconds without a batch."""
    if at.epoch is None:
        return None
    return restart + at.epoch * at.diagnosis.sample.value


def first_batch(at: Situation) -> float:
    """Seconds until a batch is there once workers are up."""
    making = sum(float(one.wall[0]) for one in at.line.making.values())
    return making * at.batch


def shorter_restart(at: Situation, restart: float, left: Interval) -> Interval:
    """The speed-up of whole epochs when ``left`` replaces ``restart``."""
    assert at.epoch is not None
    steady = at.epoch * at.diagnosis.sample.value

    def gain(before: float, after: float) -> float:
        return (before + steady) / (min(before, after) + steady)

    low = gain(restart * (1 - RESTART_SPREAD), left.high)
    high = gain(restart * (1 + RESTART_SPREAD), left.low)
    return Interval(gain(restart, left.value), low, high)


class PersistentWorkers(Remedy):
    """Workers that stay up between epochs."""

    id = "persistent-workers"
    stage = Stage.IPC
    title = "Keep workers between epochs"
    every_epoch = True

    def judge(self, at: Situation) -> Iterable[Step]:
        yield self._judge(at)

    def _judge(self, at: Situation) -> Step:
        restart = at.found.epoch_restart
        if not at.found.workers:
            return self.declined("no workers: there is none to start anew for each epoch")
        if at.found.settings.persistent_workers:
            return self.declined("persistent_workers=True is set already")
        if restart is None:
            return self.declined("how long an epoch takes to begin was not measured: the time budget was spent")
        if at.epoch is None:
            return self.declined(f"an epoch takes {seconds(restart)} to begin, but the dataset tells no length to compare it with")
        left = Interval(first_batch(at), 0.5 * first_batch(at), 1.5 * first_batch(at))
        whole = epoch(at, restart)
        assert whole is not None
        return self.proposed(
            f"Every epoch waits {seconds(restart)} for its first batch, {percent(restart / whole)} of its {seconds(whole)}",
            shorter_restart(at, restart, left),
            commands.loader(persistent_workers=True),
            risk="Workers keep their copy of the dataset: changes made to it between epochs in the training process do not reach "
            "them.",
        )


class StartMethod(Remedy):
    """Workers forked from a server that has the libraries loaded, instead of started from nothing."""

    id = "start-method"
    stage = Stage.IPC
    title = "Start workers from a preloaded fork server"
    every_epoch = True

    def judge(self, at: Situation) -> Iterable[Step]:
        yield self._judge(at)

    def _judge(self, at: Situation) -> Step:
        method = at.start_method
        if not at.found.workers:
            return self.declined("no workers: there is none to start")
        first = at.found.first_batch
        if first is None:
            return self.declined("how long the first batch takes was not measured: the time budget was spent")
        if method == "fork":
            return self.declined(f"workers are forked already: the first batch was there after {seconds(first)}")
        if at.machine is not None and at.machine.system == "Windows":
            return self.declined("Windows can only spawn processes")
        if at.epoch is None:
            return self.declined(f"the first batch takes {seconds(first)}, but the dataset tells no length to compare it with")
        workers = at.found.workers
        left = Interval(*(workers * each + first_batch(at) for each in (FORK_SECONDS.value, FORK_SECONDS.low, FORK_SECONDS.high)))
        again = "once, since workers are kept" if at.found.settings.persistent_workers else "at every epoch"
        return self.proposed(
            f"{workers} workers started by {method} took {seconds(first)} to the first batch, {again}; forked from a server that "
            "has torch loaded "
            f"it would be about {seconds(left.value)}",
            shorter_restart(at, first, left),
            "import multiprocessing; multiprocessing.set_forkserver_preload(['torch', 'torchvision']) at the program's start, and "
            + commands.loader(multiprocessing_context="forkserver"),
            risk="The dataset is still pickled to every worker; a large one (lists of paths) is better packed into arrays.",
        )
