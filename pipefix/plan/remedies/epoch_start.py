"""The remedy for epochs that take long to begin: workers kept between them."""

from __future__ import annotations

from pipefix.plan.case import Case
from pipefix.plan.plan import Proposed, Step
from pipefix.plan.planfile import LoaderChange
from pipefix.plan.remedy import Remedy
from pipefix.vocabulary.quantity import Interval, percent, seconds
from pipefix.vocabulary.stage import Stage

RESTART_SPREAD = 0.3
"""Two restarts of the same loader differ by about so much."""


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
        steady = case.epoch * case.diagnosis.sample.value
        first = case.batch * sum(float(part.wall[0]) for part in case.model.making.values())

        def gain(before: float, after: float) -> float:
            """Of whole epochs, where ``after`` seconds without a batch replace ``before``."""
            return (before + steady) / (min(before, after) + steady)

        low = gain(restart * (1 - RESTART_SPREAD), 1.5 * first)
        high = gain(restart * (1 + RESTART_SPREAD), 0.5 * first)
        return self.kept_up(restart, restart + steady, Interval(gain(restart, first), low, high))

    def kept_up(self, restart: float, whole: float, gain: Interval) -> Proposed:
        """``restart``: seconds of ``whole``, an epoch, that pass before its first batch."""
        return self.proposed(
            f"Every epoch waits {seconds(restart)} for its first batch, {percent(restart / whole)} of its {seconds(whole)}",
            gain,
            "DataLoader(..., persistent_workers=True)",
            risk="Workers keep their copy of the dataset: changes made to it between epochs in the training process do not reach "
            "them.",
        )
