"""Remedies for augmentation: on the GPU, alone or with the decoding before it."""

from __future__ import annotations

from pipefix.measurement import experiments
from pipefix.plan.case import NO_CUDA, Case
from pipefix.plan.plan import Step
from pipefix.plan.planfile import AugmentationChange
from pipefix.plan.remedy import Remedy
from pipefix.vocabulary.commands import command
from pipefix.vocabulary.quantity import Interval, percent, seconds, times_between
from pipefix.vocabulary.stage import Stage


class AugmentGpu(Remedy):
    """Whole batches augmented on the GPU, after they were copied there."""

    id = "augment-gpu"
    stage = Stage.AUGMENT
    title = "Augment on the GPU"
    change = AugmentationChange(backend="kornia")

    def answer(self, case: Case) -> Step:
        spent = case.wall(Stage.AUGMENT)
        if not spent:
            return self.declined("nothing is done to samples after decoding")
        if case.operations.tokenisers and not case.operations.pictures:
            return self.declined("samples are text: tokens are not augmented on a GPU")
        stays = _stays(case)
        gain = case.after(experiments.NO_AUGMENT, case.model.scaled(Stage.AUGMENT, stays), name=self.id)
        top = case.operations.augment and max(case.operations.augment, key=lambda op: op.wall_s).name
        costly = f" ({top} most)" if top else ""
        if not case.cuda:
            return self.declined(
                f"{NO_CUDA}; augmentation takes {seconds(spent)} a sample{costly}, so beside a GPU with time to spare it would "
                f"gain {times_between(gain)}",
                gain,
            )
        if case.diagnosis.verdict.kind == "step-bound":
            return self.declined("the training step limits already: work moved to the GPU would slow it down", gain)
        if case.moving is not None and not case.moving.names:
            return self.declined(case.moving.why_none, gain)
        part = f", of which {percent(stays)} stays on the CPU" if stays else ""
        return self.proposed(
            f"Augmentation takes {seconds(spent)} a sample{costly}{part}; the GPU's own share of it is not in the figure",
            gain,
            command("pipefix", "swap", case.target, "--to", "kornia"),
            risk="Random numbers differ from those on the CPU: check that their distribution is the one you want.",
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
        model = case.model
        for stage in (self.stage, *self.relieves):
            model = model.without(stage)
        most = case.predicted(model)
        # How quickly a device decodes is not known before it is tried: it may bring nothing.
        gain = Interval(most.value, min(1.0, most.low), most.high)
        if not case.cuda:
            return self.declined(
                f"{NO_CUDA}; decoding and augmenting take {seconds(spent)} a sample, so beside a GPU with time to spare it would "
                f"gain at most {times_between(most)}",
                gain,
            )
        if case.diagnosis.verdict.kind == "step-bound":
            return self.declined("the training step limits already: work moved to the GPU would slow it down", gain)
        if case.whole is None:
            return self.declined("whether DALI can make these samples could not be told", gain)
        if case.whole.why_none:
            return self.declined(f"DALI cannot make these samples: {case.whole.why_none}", gain)
        return self.proposed(
            f"Decoding and augmenting take {seconds(spent)} a sample, which DALI would do from the files; what that takes the "
            "GPU is not in the figure, which is the most that it can bring",
            gain,
            command("pipefix", "swap", case.target, "--to", "dali"),
            risk="Pictures are decoded by another library, which rounds in another way, and random numbers are drawn anew.",
        )


def _stays(case: Case) -> float:
    """The part of the augmentation's time that does not move; 0 where it is not known which operations do."""
    if case.moving is None:
        return 0.0
    walls = {op.name: op.wall_s for op in case.operations.augment}
    moved = sum(wall for name, wall in walls.items() if name.rpartition(".")[2] in case.moving.names)
    return 1 - moved / sum(walls.values()) if moved else 0.0
