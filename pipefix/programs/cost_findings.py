"""Finds what a loop pays beside its batches: workers started anew or idle, idle pools, checkpoints, batches in many pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from pipefix.programs.loop_notes import LoopNotes
from pipefix.vocabulary.finding import Finding
from pipefix.vocabulary.quantity import percent, seconds

PAID = 0.05
"""Part of a loop's time from which what it pays is told."""
LEAST_PAID = 0.5
"""Seconds below which it is not."""
LEAST_EPOCHS = 3
A_WORKER_ENDS = 4.0
"""Seconds of a program's end for each kept worker from which torch is taken to have waited for it: it waits 5 s, in vain."""
TENSOR_S = 1e-4
"""That a tensor takes at least to come from a worker, however small: a block of shared memory, and a connection that hands its
descriptor over. Taken low: on two crowded cores it was nine times that."""
_END_THEM = " With pinned batches and a torch before 2.13, del loader when training is over: else it waits 5 s for each of them."
MANY_ANEW = 10
"""Iterators of one batch each from which it is told that each batch has one."""
MANY_TENSORS, HANDED = 64, 0.2
"""Tensors of a batch, and part of a batch's time that handing them over takes, from which that is told."""


def findings(loops: Sequence[LoopNotes]) -> Iterator[Finding]:
    """``loops``: over the loaders that one line made, one of each process. What ranks have in common is told once."""
    for look in (_a_batch_an_iterator, _from_memory, _workers_anew, _idle_workers, _idle_pools, _blocking_saves, _slow_end,
                 _many_tensors):  # fmt: skip
        yield from islice((finding for notes in loops for finding in look(notes)), 1)


def _a_batch_an_iterator(notes: LoopNotes) -> Iterator[Finding]:
    """``next(iter(loader))`` in each step."""
    workers, firsts = notes.workers, len(notes.first_s)
    ended = any(epoch.get("event") == "epoch ended" for epoch in notes.epochs)
    if workers and not notes.facts.get("persistent") and not ended and MANY_ANEW <= firsts == notes.total("steps"):
        found = f"each of {firsts} batches is the first of an iterator of its own, as of next(iter(loader)), and {workers} "
        found += f"{'worker starts and ends' if workers == 1 else 'workers start and end'} for it (loader made at {notes.loader})"
        advice = "Make the iterator once, before the loop: for batch in loader, or batches = iter(loader) and next(batches)."
        yield Finding(id="a-batch-an-iterator", severity="warning", found=found, advice=advice)


def _from_memory(notes: LoopNotes) -> Iterator[Finding]:
    """``itertools.cycle(loader)``, which asks the loader for one epoch only."""
    if notes.from_memory:
        found = f"the loader made at {notes.loader} was gone through once, and training went on for longer without asking it "
        found += "again: if with batches that it gave, as of itertools.cycle(loader), all epochs have the order and augmentation "
        found += "of the first"
        advice = "Go through it anew in each epoch: a generator of while True: yield from loader in place of cycle(loader)."
        yield Finding(id="batches-from-memory", severity="warning", found=found, advice=advice)


def _workers_anew(notes: LoopNotes) -> Iterator[Finding]:
    """Beyond what persistent workers take to make a first batch as well: each of them a batch, at the loop's own pace."""
    workers, firsts = notes.workers, notes.first_s
    others = notes.total("steps") - len(firsts)
    if not workers or notes.facts.get("persistent") is not False or len(firsts) < LEAST_EPOCHS or others <= 0:
        return
    each = max(0.0, notes.seconds - sum(firsts)) / others
    if paid := _paid(sum(max(0.0, spent - (workers + 1) * each) for spent in firsts[1:]), notes):
        found = f"{workers} {'worker starts' if workers == 1 else 'workers start'} anew in each of {len(firsts)} epochs: {paid} "
        found += f"until first batches come (loader made at {notes.loader})"
        advice = "Keep them: DataLoader(..., persistent_workers=True)." + (_END_THEM if notes.process.get("cuda") else "")
        yield Finding(id="workers-anew", severity="warning", found=found, advice=advice)


def _idle_workers(notes: LoopNotes) -> Iterator[Finding]:
    if notes.idle_workers:
        found = f"the stream has no part, or a short one, for {notes.idle_workers} of {notes.workers} workers: it ended while the "
        found += f"others were still at their fourth batch (loader made at {notes.loader})"
        advice = "Split the stream into as many even parts as there are workers, or use fewer workers."
        yield Finding(id="idle-workers", severity="warning", found=found, advice=advice)


def _idle_pools(notes: LoopNotes) -> Iterator[Finding]:
    """Workers of an evaluation that live on, with the batches they hold, while this loop trains."""
    held = {where: workers for epoch in notes.epochs for where, workers in epoch.get("idle_pools", ())}
    if held and notes.role == "training":
        whose = "; ".join(f"{workers} of the loader made at {where}" for where, workers in held.items())
        found = f"while the loop over the loader made at {notes.loader} trains, other workers wait with their memory: {whose}"
        advice = "Where memory is short, leave persistent_workers out there: they start anew for each evaluation then."
        yield Finding(id="idle-pools", severity="note", found=found, advice=advice)


def _blocking_saves(notes: LoopNotes) -> Iterator[Finding]:
    """Without those after its last epoch, that no training waits for."""
    waited = notes.total("saved_s") - notes.total("saved_outside_s") + notes.total("saved_between_s")
    if notes.role == "training" and (paid := _paid(waited, notes)):
        found = f"the training loop waits for calls of torch.save: {paid} (loader made at {notes.loader})"
        advice = "Save less often, or beside the training: copy the state to host memory and write it in a thread, or use "
        advice += "torch.distributed.checkpoint.async_save."
        yield Finding(id="blocking-saves", severity="warning", found=found, advice=advice)


def _slow_end(notes: LoopNotes) -> Iterator[Finding]:
    """Torch before 2.13 waits for kept workers that it has not told to end, where batches are pinned (pytorch#81794)."""
    ending = notes.process.get("ending_s", 0.0)
    if notes.role == "training" and notes.workers and notes.facts.get("persistent") and ending >= A_WORKER_ENDS * notes.workers:
        found = f"after its last line the program took {seconds(ending)} to end: torch waits 5 s for each worker that is kept "
        found += f"and whose batches are pinned (loader made at {notes.loader})"
        advice = "End them yourself when training is over, with del loader and whatever else holds it. From 2.13 on torch "
        advice += "ends them by itself."
        yield Finding(id="slow-end", severity="warning", found=found, advice=advice)


def _many_tensors(notes: LoopNotes) -> Iterator[Finding]:
    steps = notes.total("steps")
    handing, each = notes.tensors * TENSOR_S, notes.seconds / max(1.0, steps)
    if notes.workers and notes.tensors >= MANY_TENSORS and steps and handing >= HANDED * each:
        found = f"a batch is {notes.tensors} tensors, and each comes from its worker by itself, which takes {seconds(handing)} "
        found += f"or more; a batch takes {seconds(each)} (loader made at {notes.loader})"
        advice = "Collate into few tensors: stack what has one shape, or put all values into one tensor with its offsets. "
        advice += "Pinning many small ones costs again."
        yield Finding(id="many-tensors", severity="warning", found=found, advice=advice)


def _paid(paid: float, notes: LoopNotes) -> str:
    """These seconds in words; empty where they are few."""
    whole = notes.seconds + notes.total("between_s")
    return f"{seconds(paid)}, {percent(paid / whole)} of its time" if paid >= max(LEAST_PAID, PAID * whole) else ""
