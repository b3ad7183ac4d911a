"""Decoding and transforming by one call a sample, straight into the batch."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from pipefix.measurement.measurement import FusedCall
from pipefix.plan.case import Case
from pipefix.plan.model import PipelineModel, StageTime, draws
from pipefix.plan.plan import Step
from pipefix.plan.remedy import WORTH_TRYING, Remedy
from pipefix.vocabulary.gain import span
from pipefix.vocabulary.quantity import Interval, percent, seconds
from pipefix.vocabulary.stage import Stage

LEAST_BUDGET = 8.0
"""Seconds of a probe below which it is not tried."""
COLLATING_LEFT = 0.1
"""Share of collating that remains: labels, and whatever else is no picture."""
AS_MUCH = 1.05
"""Pixels that differ must gain more than this beyond equal ones."""
DRAWN = "random numbers are drawn anew for each sample, by seed, epoch and index"


class FusedCalls(Remedy):
    """FastLoader's fused path."""

    stage = Stage.DECODE
    relieves = (Stage.AUGMENT, Stage.COLLATE)
    mode: ClassVar[str]

    def answer(self, case: Case) -> Step:
        if case.measurement.settings.kind == "iterable":
            return self.declined("an IterableDataset is not asked for indices, so its samples cannot be made by one call each")
        call = case.measurement.fused.get(self.mode)
        if call is None:
            return self.declined(
                f"whether one call can make a sample was not tried: that takes a budget of {LEAST_BUDGET:g} s, and decoding and "
                f"transforming that are {percent(WORTH_TRYING)} of a sample's making"
            )
        if call.why_not:
            return self.declined(f"one call cannot make these samples: {call.why_not}")
        gain = case.predicted(with_calls(case, call))
        why = self.superfluous(case, gain)
        if why is not None:
            return self.declined(why, gain)
        spent = case.wall(Stage.DECODE) + case.wall(Stage.AUGMENT)
        return self.proposed(
            f"Decoding and transforming take {seconds(spent)} a sample; on {call.pictures} of its pictures one call took "
            f"{percent(call.left.value)} of their code's time, and {call.apart}",
            gain,
            f"Put pipefix.FastLoader(..., fuse={self.mode!r}) in DataLoader's place: it takes the same arguments.",
            risk=self.changes(call),
        )

    def superfluous(self, case: Case, gain: Interval) -> str | None:
        """Why another way is to be preferred."""
        return None

    def changes(self, call: FusedCall) -> str | None:
        return DRAWN if call.draws else None


def with_calls(case: Case, call: FusedCall) -> PipelineModel:
    """The pipeline with one call in the place of decoding and transforming."""
    left = draws(call.left, "fused")
    after = case.model.scaled(Stage.DECODE, left).scaled(Stage.AUGMENT, left).scaled(Stage.COLLATE, COLLATING_LEFT)
    if call.processes:
        return after
    after = after.without(Stage.IPC)
    # Calls beside each other share caches, memory and Python's lock: the loader was seen to be no quicker than this.
    least = draws(call.pace, "fused pace") if call.pace is not None else 0.0
    if case.model.workers:
        return replace(after, crossing=np.maximum(after.crossing, least))
    # Without workers as many threads as there are cores make a batch.
    shared = max(1.0, float(int(case.model.cores)))
    after = replace(after, making={name: StageTime(one.wall / shared, one.cpu) for name, one in after.making.items()})
    lacking = np.maximum(0.0, least - sum(one.wall for one in after.making.values()))
    return after.adding(Stage.DECODE, StageTime(lacking, np.zeros_like(lacking)))


class FuseExact(FusedCalls):
    """Pixels equal the dataset's own to the bit."""

    id = "fuse-exact"
    title = "Make pictures by one call each, equal to the bit"
    mode = "exact"


class FuseClose(FusedCalls):
    """Pixels may differ a little where that is quicker."""

    id = "fuse-close"
    title = "Make pictures by one call each, close to the dataset's own"
    mode = "close"

    def superfluous(self, case: Case, gain: Interval) -> str | None:
        exact = case.measurement.fused.get("exact")
        if exact is None or exact.why_not:
            return None
        other = case.predicted(with_calls(case, exact))
        if gain.value > AS_MUCH * other.value:
            return None
        return f"fuse-exact gains {span(other)}, this {span(gain)}, and changes no pixel"

    def changes(self, call: FusedCall) -> str | None:
        return "; ".join([call.apart, *([DRAWN] if call.draws else [])])
