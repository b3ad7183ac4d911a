"""Augmentation moved to the device that trains."""

from __future__ import annotations

from collections.abc import Iterable

from pipefix.measurement import experiments
from pipefix.plan import commands
from pipefix.plan.plan import Step
from pipefix.plan.remedy import Remedy
from pipefix.plan.situation import NO_CUDA, Situation
from pipefix.plan.wording import span
from pipefix.vocabulary.quantity import seconds
from pipefix.vocabulary.stage import Stage


class AugmentGpu(Remedy):
    """Whole batches augmented on the GPU, after they were copied there."""

    id = "augment-gpu"
    stage = Stage.AUGMENT
    title = "Augment on the GPU"

    def judge(self, at: Situation) -> Iterable[Step]:
        yield self._judge(at)

    def _judge(self, at: Situation) -> Step:
        spent = at.wall(Stage.AUGMENT)
        if not spent:
            return self.declined("nothing is done to samples after decoding")
        if at.operations.tokenisers and not at.operations.pictures:
            return self.declined("samples are text: tokens are not augmented on a GPU")
        gain = at.after(experiments.NO_AUGMENT, at.line.without(Stage.AUGMENT), name=self.id)
        top = at.operations.augment and max(at.operations.augment, key=lambda op: op.wall).name
        costly = f" ({top} most)" if top else ""
        if not at.cuda:
            return self.declined(
                f"{NO_CUDA}; augmentation takes {seconds(spent)} a sample{costly}, so beside a GPU with time to spare it would "
                f"gain {span(gain)}",
                gain,
            )
        if at.diagnosis.verdict.kind == "step-bound":
            return self.declined("the training step limits already: work moved to the GPU would slow it down", gain)
        return self.proposed(
            f"Augmentation takes {seconds(spent)} a sample{costly}; the GPU's own share of it is not in the figure",
            gain,
            commands.augmentation(at.target, at.verbs),
            risk="Random numbers differ from those on the CPU: check that their distribution is the one you want.",
        )
