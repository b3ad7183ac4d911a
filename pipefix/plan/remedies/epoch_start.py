"""The remedy for epochs that take long to begin: workers kept between them."""

from __future__ import annotations

from pipefix.plan import commands
from pipefix.plan.case import Case
from pipefix.plan.plan import Proposed, Step
from pipefix.plan.planfile import LoaderChange
from pipefix.plan.remedy import Remedy
from pipefix.vocabulary.quantity import Interval, percent, seconds
from pipefix.vocabulary.stage import Stage

RESTART_SPREAD = 0.3
"""Two restarts of the same loader differ by about so much."""


def epoch(case: Case, restart: float) -> float | None:
    """Seconds of an epoch that begins with ``restart`` seconds without a batch."""
    if case.epoch is None:
        return None
    return restart + case.epoch * case.diagnosis.sample.value


def first_batch(case: Case) -> float:
    """Seconds until a batch is there once workers are up."""
    making = sum(float(part.wall[0]) for part in case.model.making.values())
    return making * case.batch


def shorter_restart(case: Case, restart: float, left: Interval) -> Interval:
    """The speed-up of whole epochs when ``left`` replaces ``restart``."""
    assert case.epoch is not None
    steady = case.epoch * case.diagnosis.sample.value

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
    change = LoaderChange(persistent_workers=True)

    def answer(self, case: Case) -> Step:
        restart = case.measurement.epoch_restart
        if not case.measurement.workers:
            return self.declined("no workers: there is none to start anew for each epoch")
        if case.measurement.settings.persistent_workers:
            return self.declined("persistent_workers=True is set already")
        if restart is None:
            return self.declined("how long an epoch takes to begin was not measured: the time budget was spent")
        if case.epoch is None:
            return self.declined(f"an epoch takes {seconds(restart)} to begin, but the dataset tells no length to compare it with")
        left = Interval(first_batch(case), 0.5 * first_batch(case), 1.5 * first_batch(case))
        whole = epoch(case, restart)
        assert whole is not None
        return self.kept_up(restart, whole, shorter_restart(case, restart, left))

    def kept_up(self, restart: float, whole: float, gain: Interval) -> Proposed:
        """``restart``: seconds of ``whole``, an epoch, that pass before its first batch."""
        return self.proposed(
            f"Every epoch waits {seconds(restart)} for its first batch, {percent(restart / whole)} of its {seconds(whole)}",
            gain,
            commands.loader(persistent_workers=True),
            risk="Workers keep their copy of the dataset: changes made to it between epochs in the training process do not reach "
            "them.",
        )
