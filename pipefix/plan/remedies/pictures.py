"""Remedies for pictures: one fused call a sample; augmentation on the GPU, alone or with the decoding before it."""

from __future__ import annotations

from dataclasses import replace

from pipefix.diagnosis.throughput import PipelineModel, StageTime, draws
from pipefix.measurement import experiments
from pipefix.measurement.measurement import FusedCall
from pipefix.plan.case import NO_CUDA, Case
from pipefix.plan.plan import Step
from pipefix.plan.planfile import AugmentationChange, LoaderChange
from pipefix.plan.remedy import WORTH_TRYING, Remedy
from pipefix.vocabulary.commands import on_target
from pipefix.vocabulary.quantity import Interval, percent, seconds, times, times_between
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
WOULD_GAIN = "so beside a GPU with time to spare it would gain"
STEP_LIMITS = "the training step limits already: work moved to the GPU would slow it down"


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
        if not calls and not case.operations.pictures:
            return self.declined("no operation that decodes pictures was seen")
        if not calls:
            return self.declined(
                f"whether one call can make a sample was not tried: that takes a budget of {LEAST_BUDGET:g} s, or more where "
                f"samples take long to make, and decoding and transforming that are {percent(WORTH_TRYING)} of a sample's making"
            )
        chosen = self.chosen(case)
        if chosen is None:
            return self.declined(next(iter(calls.values())).why_not)
        mode, modelled = chosen
        call, changes_pixels = calls[mode], mode != EXACT
        equal = "close to the dataset's own" if changes_pixels else "equal to the bit"
        spent = case.wall(Stage.DECODE) + case.wall(Stage.AUGMENT)
        risks = [*([call.apart] if changes_pixels else []), *([DRAWN] if call.draws else [])]
        return self.proposed(
            f"Decoding and transforming take {seconds(spent)} a sample; on {call.pictures} of its pictures one call took "
            f"{percent(call.left.value)} of their code's time, and {call.apart}"
            + ("; the loader was run with it" if call.gain is not None else ""),
            call.gain or modelled,
            f"Put pipefix.FastLoader(..., fuse={mode!r}) in DataLoader's place: it takes the same arguments.{case.passed_on}",
            id=f"{self.id}-{mode}", title=f"{self.title}, {equal}", risk="; ".join(risks) or None,
            change=LoaderChange(fuse="close" if changes_pixels else "exact"),
        )  # fmt: skip

    def chosen(self, case: Case) -> tuple[str, Interval] | None:
        """The mode that gains most by the model, and how much; None where no mode can make these samples."""
        calls = case.measurement.fused
        gains = {mode: case.predicted(with_calls(case, call)) for mode, call in calls.items() if not call.why_not}
        if not gains:
            return None
        mode = max(gains, key=lambda mode: gains[mode].value * (AS_MUCH if mode == EXACT else 1.0))
        return mode, gains[mode]


def with_calls(case: Case, call: FusedCall) -> PipelineModel:
    """The pipeline with one call in the place of decoding and transforming."""
    left = draws(call.left, "fused")
    after = case.model.scaled(Stage.DECODE, left).scaled(Stage.AUGMENT, left).scaled(Stage.COLLATE, COLLATING_LEFT)
    if call.processes:
        return after
    after = after.without(Stage.IPC)
    if case.model.workers:
        return after
    # Without workers as many threads as there are cores make a batch.
    shared = max(1.0, float(int(case.model.cores)))
    return replace(after, making={name: StageTime(part.wall / shared, part.cpu) for name, part in after.making.items()})


class AugmentGpu(Remedy):
    """Whole batches augmented on the GPU, after they were copied there."""

    id = "augment-gpu"
    stage = Stage.AUGMENT
    title = "Augment on the GPU"
    change = AugmentationChange(backend="kornia")

    def answer(self, case: Case) -> Step:
        if not (spent := case.wall(Stage.AUGMENT)):
            return self.declined("nothing is done to samples after decoding")
        if case.operations.tokenisers and not case.operations.pictures:
            return self.declined("samples are text: tokens are not augmented on a GPU")
        stays = _stays(case)
        gain = case.after(experiments.NO_AUGMENT, case.model.scaled(Stage.AUGMENT, stays), name=self.id)
        top = case.operations.augment and max(case.operations.augment, key=lambda op: op.wall_s).name
        costly = f" ({top} most)" if top else ""
        if not case.cuda:
            takes = f"augmentation takes {seconds(spent)} a sample{costly}"
            return self.declined(f"{NO_CUDA}; {takes}, {WOULD_GAIN} {times_between(gain)}", gain)
        if case.diagnosis.verdict.kind == "step-bound":
            return self.declined(STEP_LIMITS, gain)
        if case.moving is not None and not case.moving.names:
            return self.declined(case.moving.why_none, gain)
        part = f", of which {percent(stays)} stays on the CPU" if stays else ""
        return self.proposed(
            f"Augmentation takes {seconds(spent)} a sample{costly}{part}; the GPU's own share of it is not in the figure",
            gain,
            on_target("swap", case.target, to="kornia"),
            risk="Pixels change by rounding, at most 1/255 on average; random numbers stay as they are.",
        )


class DecodeGpu(Remedy):
    """Files decoded and augmented on the GPU, by DALI."""

    id = "decode-gpu"
    stage = Stage.DECODE
    title = "Decode and augment on the GPU"
    relieves = (Stage.AUGMENT, Stage.COLLATE, Stage.IPC)
    change = AugmentationChange(backend="dali")

    def answer(self, case: Case) -> Step:
        spent = case.wall(Stage.DECODE) + case.wall(Stage.AUGMENT)
        if not case.operations.pictures:
            return self.declined("nothing that decodes pictures was seen")
        most = case.predicted(case.model.without(self.stage, *self.relieves))
        # How quickly a device decodes is not known before it is tried: it may bring nothing.
        gain = Interval(most.value, min(1.0, most.low), most.high)
        if not case.cuda:
            takes = f"decoding and augmenting take {seconds(spent)} a sample"
            return self.declined(f"{NO_CUDA}; {takes}, {WOULD_GAIN} at most {times(most.value)}", gain)
        if case.diagnosis.verdict.kind == "step-bound":
            return self.declined(STEP_LIMITS, gain)
        if case.whole is None:
            return self.declined("whether DALI can make these samples could not be told", gain)
        if case.whole.why_none:
            return self.declined(f"DALI cannot make these samples: {case.whole.why_none}", gain)
        return self.proposed(
            f"Decoding and augmenting take {seconds(spent)} a sample, which DALI would do from the files; what that takes the "
            "GPU is not in the figure, which is the most that it can bring",
            gain,
            on_target("swap", case.target, to="dali"),
            risk="Pictures are decoded by another library, which rounds in another way, and random numbers are drawn anew.",
        )


def _stays(case: Case) -> float:
    """The part of the augmentation's time that does not move; 0 where it is not known which operations do."""
    if case.moving is None:
        return 0.0
    walls = {op.name: op.wall_s for op in case.operations.augment}
    moved = sum(wall for name, wall in walls.items() if name.rpartition(".")[2] in case.moving.names)
    return 1 - moved / sum(walls.values()) if moved else 0.0
