"""What crosses from worker to training process and on to the device, and how."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pipefix.measurement import experiments
from pipefix.plan import commands
from pipefix.plan.model import FLOOR_MAKING, FLOOR_TAKING, Line, Part, draws, part
from pipefix.plan.plan import Step
from pipefix.plan.remedy import Remedy
from pipefix.plan.situation import NO_CUDA, Situation
from pipefix.plan.wording import span
from pipefix.vocabulary.quantity import Interval, seconds, size
from pipefix.vocabulary.stage import Stage

NO_WORKERS = "no workers: nothing crosses a process border"
SLOT_RATE = Interval(5.5e9, 3e9, 9e9)
"""Bytes a second into shared memory that was used before: no page faults."""
SLOT_MAKING, SLOT_TAKING = 60e-6, 100e-6
"""Seconds a batch to pass a slot's number on, in the worker and in the training process."""
STACK_RATE = Interval(6e9, 3e9, 10e9)
"""Bytes a second of copying samples to where they belong in a batch, and nothing else."""
FLOAT_BYTES = 4


class Uint8Wire(Remedy):
    """Pixels cross as bytes and become floats on the device: a quarter of the data to collate, hand over and copy."""

    id = "uint8-wire"
    stage = Stage.IPC
    title = "Send images as uint8 and make them float on the GPU"

    def judge(self, at: Situation) -> Iterable[Step]:
        yield self._judge(at)

    def _judge(self, at: Situation) -> Step:
        if not at.found.workers:
            return self.declined(NO_WORKERS)
        facts = at.found.facts
        if "batch.largest_is_float" not in facts:
            return self.declined("what a batch is made of could not be looked at")
        if not facts["batch.largest_is_float"]:
            return self.declined(
                f"the largest tensor of a batch ({size(facts.get('batch.largest_bytes', 0.0))}) does not hold floats"
            )
        if not at.operations.pictures and not at.operations.floating:
            return self.declined("nothing that decodes pictures was seen, so the floats in a batch may be more than bytes can hold")
        gain = at.predicted(self._line(at, facts.get("batch.largest_bytes", 0.0)))
        if not at.cuda:
            return self.declined(f"{NO_CUDA} to make them float on; beside one it would gain at most {span(gain)}", gain)
        return self.proposed(
            f"{size(at.batch_bytes)} cross for each batch; as bytes it would be "
            f"{size(at.batch_bytes - 0.75 * facts['batch.largest_bytes'])}",
            gain,
            "In the transform, replace ToTensor()/ToDtype(float32)/Normalize by PILToTensor(); in the step: "
            "batch = batch.to('cuda', non_blocking=True).float().div_(255) and normalise there.",
            risk="Float augmentations that run before collating must move to the GPU too.",
        )

    def _line(self, at: Situation, floats: float) -> Line:
        part_left = 1 - (1 - 1 / FLOAT_BYTES) * floats / at.batch_bytes if at.batch_bytes else 1.0
        line = _with_less(at, part_left)
        casting = sum(op.wall for op in at.operations.augment if op.name in at.operations.floating)
        return line.scaled(Stage.COLLATE, part_left).shortened(Stage.AUGMENT, 0.5 * casting)


def _with_less(at: Situation, part_left: float) -> Line:
    """The hand-over with fewer bytes: what each batch costs however small it is stays."""
    making = _left(at.line.making[Stage.IPC.value], FLOOR_MAKING / at.batch, part_left)
    taking = _left(at.line.taking[Stage.IPC.value], FLOOR_TAKING / at.batch, part_left)
    return replace(
        at.line,
        making={**at.line.making, Stage.IPC.value: making},
        taking={**at.line.taking, Stage.IPC.value: taking},
    )


def _left(whole: Part, floor: float, part_left: float) -> Part:
    spent = float(whole.wall[0])
    fixed = min(floor, spent)
    return whole.scaled((fixed + (spent - fixed) * part_left) / spent if spent else 1.0)


class HandoverSlots(Remedy):
    """Batches written into shared memory that is used again and again, instead of fresh pages for each."""

    id = "handover-slots"
    stage = Stage.IPC
    title = "Hand batches over through reused shared memory"

    def judge(self, at: Situation) -> Iterable[Step]:
        yield self._judge(at)

    def _judge(self, at: Situation) -> Step:
        if not at.found.workers:
            return self.declined(NO_WORKERS)
        if not at.batch_bytes:
            return self.declined("how large a batch is could not be looked at")
        if at.found.facts.get("batch.piped_bytes", 0.0) > 0.5 * at.batch_bytes:
            return self.declined(
                "batches are not tensors but arrays or bytes, which go through a pipe: return tensors from collate_fn first"
            )
        gain = at.predicted(self._line(at))
        each = at.wall(Stage.IPC) * at.batch
        slot = SLOT_MAKING + SLOT_TAKING + at.batch_bytes / SLOT_RATE.value
        return self.proposed(
            f"Handing over {size(at.batch_bytes)} takes {seconds(each)} a batch; through memory that was used before about "
            f"{seconds(slot)}",
            gain,
            "Put pipefix.FastLoader(..., engine='processes') in DataLoader's place: it takes the same arguments and gives the same "
            "batches.",
        )

    def _line(self, at: Situation) -> Line:
        wall = (SLOT_MAKING + at.batch_bytes / draws(SLOT_RATE, "slot")) / at.batch
        made = at.line.making[Stage.IPC.value]
        taken = at.line.taking[Stage.IPC.value]
        quick = Part(wall.clip(max=made.wall), wall.clip(max=made.cpu))
        passed = part(min(SLOT_TAKING / at.batch, float(taken.wall[0])))
        return replace(
            at.line,
            making={**at.line.making, Stage.IPC.value: quick},
            taking={**at.line.taking, Stage.IPC.value: passed},
        )


class CollateFaster(Remedy):
    """Samples stacked with one copy each."""

    id = "collate-faster"
    stage = Stage.COLLATE
    title = "Collate with one copy a sample"

    def judge(self, at: Situation) -> Iterable[Step]:
        yield self._judge(at)

    def _judge(self, at: Situation) -> Step:
        spent = at.wall(Stage.COLLATE) * at.batch
        if not spent:
            return self.declined("collating takes no time")
        if not at.batch_bytes:
            return self.declined("how large a batch is could not be looked at, so how fast it could be collated is not known")
        wall = (at.batch_bytes / draws(STACK_RATE, "stack")) / at.batch
        least = wall.clip(max=at.line.wall(Stage.COLLATE))
        gain = at.after(experiments.NO_COLLATE, at.line.replacing(Stage.COLLATE, Part(least, least)), name=self.id)
        return self.proposed(
            f"Collating takes {seconds(spent)} a batch; copying its {size(at.batch_bytes)} once takes about "
            f"{seconds(float(least[0]) * at.batch)}",
            gain,
            _collate_advice(at),
        )


def _collate_advice(at: Situation) -> str:
    small = at.found.facts.get("batch.small_tensors", 0.0)
    if small >= 16:
        return (
            f"Return one tensor a field instead of {small:.0f} small ones a batch: pack the small fields of a sample into one "
            "array in __getitem__."
        )
    if at.found.settings.collate != "default_collate":
        return (
            f"In {at.found.settings.collate}, allocate the batch once (torch.empty) and copy every sample to its place, or use "
            "default_collate."
        )
    return (
        "Return arrays of one shape and dtype from __getitem__ (no lists of numbers, no nested dicts), and keep batches below "
        "32 MB."
    )


class Pinning(Remedy):
    """Page-locked batches, whose copy to the device needs no staging."""

    id = "pinning"
    stage = Stage.TRANSFER
    title = "Pin batches in memory"

    def judge(self, at: Situation) -> Iterable[Step]:
        yield self._judge(at)

    def _judge(self, at: Situation) -> Step:
        copies = at.found.transfer
        if at.found.settings.pin_memory:
            return self.declined("pin_memory=True is set already")
        if not at.cuda:
            return self.declined(f"{NO_CUDA}: pinned memory only speeds up copies to one")
        if "pinned" not in copies or "pageable" not in copies:
            return self.declined("the copy of a batch to the device could not be measured")
        pinned, pageable = copies["pinned"], copies["pageable"]
        if pageable <= pinned:
            return self.declined(f"a batch is copied as fast without: {seconds(pageable)} against {seconds(pinned)} pinned")
        shorter = (pageable - pinned) / at.batch
        before = replace(at.line, taking=_with_copy(at, pageable / at.batch))
        after = replace(before, taking={**before.taking, _copy_key(at): _less(before.taking[_copy_key(at)], shorter)})
        return self.proposed(
            f"Copying a batch of {size(copies.get('bytes', at.batch_bytes))} takes {seconds(pageable)} from ordinary memory and "
            f"{seconds(pinned)} from pinned",
            at.predicted(after, before),
            commands.loader(pin_memory=True) + " and batch.to('cuda', non_blocking=True) in the step",
            risk="Pinned memory cannot be swapped; it is taken for the batches in flight.",
        )


def _copy_key(at: Situation) -> str:
    """The step holds the copy where there is one; otherwise it stands for itself."""
    return Stage.STEP.value if Stage.STEP.value in at.line.taking else Stage.TRANSFER.value


def _with_copy(at: Situation, copying: float) -> dict[str, Part]:
    known = dict(at.line.taking)
    if Stage.STEP.value not in known:
        known[Stage.TRANSFER.value] = part(copying, 0.0)
    return known


def _less(whole: Part, by: float) -> Part:
    spent = float(whole.wall[0])
    return whole.scaled(max(0.0, 1 - by / spent) if spent else 1.0)
