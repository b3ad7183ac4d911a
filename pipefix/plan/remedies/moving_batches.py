"""Remedies for moving batches to the training process and the device: slots, one copy a sample, pinning, early copies."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from pipefix.diagnosis.throughput import PipelineModel, StageTime, draws, stage_time
from pipefix.measurement import experiments
from pipefix.plan.case import NO_CUDA, Case
from pipefix.plan.plan import Step
from pipefix.plan.planfile import LoaderChange
from pipefix.plan.remedy import Remedy
from pipefix.vocabulary.gain import Modelled
from pipefix.vocabulary.quantity import Interval, seconds, size
from pipefix.vocabulary.stage import Stage

SLOT_RATE = Interval(5.5e9, 3e9, 9e9)
"""Bytes a second into shared memory that was used before: no page faults."""
SLOT_MAKING, SLOT_TAKING = 60e-6, 100e-6
"""Seconds a batch to pass a slot's number on, in the worker and in the training process."""
STACK_RATE = Interval(6e9, 3e9, 10e9)
"""Bytes a second of copying samples to where they belong in a batch, and nothing else."""
MANY_SMALL = 16.0
"""Tensors of a few kilobytes in a batch from which on putting them together takes longer than copying them."""
LARGEST_REUSED = 32e6
"""Bytes of a batch above which its memory is fetched from the system anew each time."""
COMPUTES = 200.0
"""A collate function of the user's own that takes so many times a copy does more than to put samples together."""


class HandoverSlots(Remedy):
    """Batches written into reusable shared memory and again, instead of fresh pages for each."""

    id = "handover-slots"
    stage = Stage.IPC
    title = "Hand batches over through reused shared memory"
    change: ClassVar[LoaderChange] = LoaderChange(engine="processes")

    def answer(self, case: Case) -> Step:
        if not case.measurement.workers:
            return self.declined("no workers: nothing crosses a process border")
        if case.measurement.reuses_memory:
            return self.declined("the loader hands batches over through reused memory already")
        if not case.batch_bytes:
            return self.declined("how large a batch is could not be looked at")
        if case.measurement.facts.get("batch.piped_bytes", 0.0) > 0.5 * case.batch_bytes:
            piped = "batches are not tensors but arrays or bytes, which go through a pipe"
            return self.declined(f"{piped}: return tensors from collate_fn first")
        tried = case.measurement.handover
        modelled = Modelled(case.after(experiments.NO_HANDOVER, self._changed(case), name=self.id))
        each = case.wall(Stage.IPC) * case.batch
        slot = SLOT_MAKING + SLOT_TAKING + case.batch_bytes / SLOT_RATE.value
        return self.proposed(
            f"Handing over {size(case.batch_bytes)} takes {seconds(each)} a batch; through memory that was used before about "
            f"{seconds(slot)}" + (", and the loader was run with it" if tried is not None else ""),
            tried or modelled,
            "Put pipefix.FastLoader(..., engine='processes') in DataLoader's place: it takes the same arguments and gives the same "
            f"batches.{case.passed_on}",
        )

    def _changed(self, case: Case) -> PipelineModel:
        wall = (SLOT_MAKING + case.batch_bytes / draws(SLOT_RATE, "slot")) / case.batch
        made, taken = case.model.making[Stage.IPC.value], case.model.taking[Stage.IPC.value]
        quick = StageTime(wall.clip(max=made.wall), wall.clip(max=made.cpu))
        passed = stage_time(min(SLOT_TAKING / case.batch, float(taken.wall[0])))
        crossing, slow = quick.wall + passed.wall, np.maximum(case.model.crossing, made.wall + taken.wall)
        changed = case.model.scaled(Stage.IPC, np.minimum(1.0, crossing / np.maximum(slow, 1e-12)))
        making, taking = {**changed.making, Stage.IPC.value: quick}, {**changed.taking, Stage.IPC.value: passed}
        return replace(changed, making=making, taking=taking)


class CollateFaster(Remedy):
    """Samples stacked with one copy each."""

    id = "collate-faster"
    stage = Stage.COLLATE
    title = "Collate with one copy a sample"
    by_hand = "collate_fn, or what the dataset returns, is your code"

    def answer(self, case: Case) -> Step:
        if not (spent := case.wall(Stage.COLLATE) * case.batch):
            return self.declined("collating takes no time")
        collate = case.measurement.settings.collate
        if collate == "default_convert":
            return self.declined("with batch_size=None samples are passed on as they are: nothing is put together")
        if library := case.measurement.settings.collate_library:
            return self.declined(f"{collate} is a part of {library}: only its authors can change how it puts samples together")
        if not case.batch_bytes:
            return self.declined("how large a batch is could not be looked at, so how fast it could be collated is not known")
        wall = (case.batch_bytes / draws(STACK_RATE, "stack")) / case.batch
        least = wall.clip(max=case.model.wall(Stage.COLLATE))
        copied = float(least[0]) * case.batch
        small = case.measurement.facts.get("batch.small_tensors", 0.0)
        if collate == "default_collate" and small < MANY_SMALL and case.batch_bytes <= LARGEST_REUSED:
            return self.declined("default_collate copies every sample once already")
        if collate != "default_collate" and spent > COMPUTES * copied:
            takes = f"{seconds(spent)} a batch, where a copy of its {size(case.batch_bytes)} takes {seconds(copied)}"
            return self.declined(f"{collate} takes {takes}: it computes, and what of that can go only its author knows")
        gain = case.after(experiments.NO_COLLATE, case.model.replacing(Stage.COLLATE, StageTime(least, least)), name=self.id)
        once = f"copying its {size(case.batch_bytes)} once takes about {seconds(copied)}"
        return self.proposed(f"Collating takes {seconds(spent)} a batch; {once}", gain, _collate_advice(collate, small))


def _collate_advice(collate: str, small: float) -> str:
    """``small``: how many small tensors a batch holds."""
    if small >= MANY_SMALL:
        pack = "pack the small fields of a sample into one array in __getitem__."
        return f"Return one tensor a field instead of {small:.0f} small ones a batch: {pack}"
    if collate != "default_collate":
        return f"In {collate}, allocate the batch once (torch.empty) and copy every sample to its place, or use default_collate."
    return f"Keep batches below {size(LARGEST_REUSED)}: the memory of larger ones is fetched from the system anew each time."


class Pinning(Remedy):
    """Page-locked batches, whose copy to the device needs no staging."""

    id = "pinning"
    stage = Stage.TRANSFER
    title = "Pin batches in memory"
    change = LoaderChange(pin_memory=True)

    def answer(self, case: Case) -> Step:
        copies = case.measurement.transfer
        if case.measurement.settings.pin_memory:
            return self.declined("pin_memory=True is set already")
        if case.measurement.copies_early:
            return self.declined("the loader copies batches to the device from pinned memory already")
        if not case.cuda:
            return self.declined(f"{NO_CUDA}: pinned memory only speeds up copies to one")
        if "pinned" not in copies or "pageable" not in copies:
            return self.declined("the copy of a batch to the device could not be measured")
        pinned, pageable = copies["pinned"], copies["pageable"]
        if pageable <= pinned:
            return self.declined(f"a batch is copied as fast without: {seconds(pageable)} against {seconds(pinned)} pinned")
        # The step holds the copy where there is one and its part is not known; without a step it stands for itself.
        taking = dict(case.model.taking)
        if Stage.STEP.value not in taking:
            taking[Stage.TRANSFER.value] = stage_time(pageable / case.batch, 0.0)
        holder = Stage.TRANSFER.value if Stage.TRANSFER.value in taking else Stage.STEP.value
        spent = float(taking[holder].wall[0])
        left = max(0.0, 1 - (pageable - pinned) / case.batch / spent) if spent else 1.0
        before = replace(case.model, taking=taking)
        after = replace(before, taking={**taking, holder: taking[holder].scaled(left)})
        return self.proposed(
            f"Copying a batch of {size(copies.get('bytes', case.batch_bytes))} takes {seconds(pageable)} from ordinary memory and "
            f"{seconds(pinned)} from pinned",
            case.predicted(after, before),
            "Give DataLoader(..., pin_memory=True), and have the step call batch.to('cuda', non_blocking=True).",
            risk="Pinned memory cannot be swapped; it is taken for the batches in flight.",
        )


class EarlyCopy(Remedy):
    """Copies that begin while the step before runs, from pinned memory."""

    id = "early-copy"
    stage = Stage.TRANSFER
    title = "Start copies to the device earlier"
    by_hand = "which device batches go to is said in your code: pipefix.FastLoader(..., device='cuda')"

    def answer(self, case: Case) -> Step:
        copies, taking = case.measurement.transfer, case.model.taking
        if not case.cuda:
            return self.declined(f"{NO_CUDA}: nothing is copied to one")
        if case.measurement.copies_early:
            return self.declined("the loader copies batches to the device beside the step before already")
        if "exposed" not in copies or "pinned" not in copies:
            return self.declined("how long a step waits for its copy could not be measured")
        if not copies["exposed"]:
            return self.declined("the step waits for no copy: it is hidden behind other work already")
        # Beside the step before, a copy is felt as far as it takes longer than that step.
        step = float(taking[Stage.STEP.value].wall[0]) if Stage.STEP.value in taking else 0.0
        left = max(0.0, copies["pinned"] / case.batch - step) * case.batch
        if left >= copies["exposed"]:
            times = f"{seconds(copies['pinned'])} and the step {seconds(step * case.batch)}"
            return self.declined(f"a copy from pinned memory takes {times}: too little to hide it behind")
        shorter = taking[Stage.TRANSFER.value].scaled(left / copies["exposed"])
        after = replace(case.model, taking={**taking, Stage.TRANSFER.value: shorter})
        waits, pinned = seconds(copies["exposed"]), seconds(copies["pinned"])
        return self.proposed(
            f"Each step waits {waits} for its copy, which takes {pinned} from pinned memory and could run beside the step before "
            f"({seconds(step * case.batch)})",
            case.predicted(after),
            "Put pipefix.FastLoader(..., device='cuda') in DataLoader's place: batches come on the device, pinned and copied "
            f"ahead, and .to('cuda') in the step does nothing then.{case.passed_on}",
            risk="One more batch lies in the device's memory.",
        )
