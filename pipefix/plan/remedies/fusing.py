"""The remedy of decoding and transforming by one fused call a sample."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipefix.diagnosis.throughput import PipelineModel, StageTime, draws
from pipefix.measurement.measurement import FusedCall
from pipefix.plan.case import Case
from pipefix.plan.plan import Step
from pipefix.plan.planfile import LoaderChange
from pipefix.plan.remedy import WORTH_TRYING, Remedy
from pipefix.vocabulary.quantity import percent, seconds
from pipefix.vocabulary.stage import Stage

LEAST_BUDGET = 8.0
"""Seconds of a probe below which it is not tried."""
COLLATING_LEFT = 0.1
"""Share of collating that remains: labels, and whatever else is no picture."""
EXACT = "exact"
"""The mode of `FastLoader(fuse=...)` in which pixels are equal to the bit."""
AS_MUCH = 1.05
"""Pixels that differ must gain more than this beyond equal ones."""
DRAWN = "random numbers are drawn anew for each sample, by seed, epoch and index"


class FuseCalls(Remedy):
    """FastLoader's fused path, with pixels equal to the bit, or close to the dataset's own where that is clearly quicker."""

    id = "fuse"
    stage = Stage.DECODE
    relieves = (Stage.AUGMENT, Stage.COLLATE)
    title = "Make pictures by one call each"

    def answer(self, case: Case) -> Step:
        if case.measurement.settings.kind == "iterable":
            return self.declined("an IterableDataset is not asked for indices, so its samples cannot be made by one call each")
        calls = case.measurement.fused
        if not calls:
            return self.declined(
                f"whether one call can make a sample was not tried: that takes a budget of {LEAST_BUDGET:g} s, or more where "
                f"samples take long to make, and decoding and transforming that are {percent(WORTH_TRYING)} of a sample's making"
            )
        gains = {mode: case.predicted(with_calls(case, call)) for mode, call in calls.items() if not call.why_not}
        if not gains:
            return self.declined(f"one call cannot make these samples: {next(iter(calls.values())).why_not}")
        mode = max(gains, key=lambda mode: gains[mode].value * (AS_MUCH if mode == EXACT else 1.0))
        call, changes_pixels = calls[mode], mode != EXACT
        equal = "close to the dataset's own" if changes_pixels else "equal to the bit"
        spent = case.wall(Stage.DECODE) + case.wall(Stage.AUGMENT)
        return self.proposed(
            f"Decoding and transforming take {seconds(spent)} a sample; on {call.pictures} of its pictures one call took "
            f"{percent(call.left.value)} of their code's time, and {call.apart}",
            gains[mode],
            f"Put pipefix.FastLoader(..., fuse={mode!r}) in DataLoader's place: it takes the same arguments.",
            risk="; ".join([*([call.apart] if changes_pixels else []), *([DRAWN] if call.draws else [])]) or None,
            id=f"{self.id}-{mode}",
            title=f"{self.title}, {equal}",
            change=LoaderChange(fuse="close" if changes_pixels else "exact"),
        )


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
    after = replace(after, making={name: StageTime(part.wall / shared, part.cpu) for name, part in after.making.items()})
    lacking = np.maximum(0.0, least - sum(part.wall for part in after.making.values()))
    return after.adding(Stage.DECODE, StageTime(lacking, np.zeros_like(lacking)))
