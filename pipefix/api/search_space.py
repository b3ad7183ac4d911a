"""What a tuning may try on this machine: settings to start from, those that may change, limits, and how samples are dealt out.

Of a machine that several ranks of a training job share, each has its part; workers are each rank's own.
"""

from __future__ import annotations

import os

from torch.utils.data import DataLoader

from pipefix.subject.subject import Subject
from pipefix.system.machine import Machine
from pipefix.tuning.limits import ResourceLimits
from pipefix.tuning.space import Settings, Space, most_workers
from pipefix.tuning.usage import read
from pipefix.vocabulary import launched

LOTS = 16
"""Trials that batches are dealt out to."""
FEW_BATCHES = 8
"""A trial reads at least so many batches before its samples come again, or they are not dealt out."""


def start(subject: Subject) -> Settings:
    now = subject.settings
    return Settings(
        workers=now.num_workers, prefetch=now.prefetch_factor or 2, in_order=now.in_order, pin_memory=now.pin_memory,
        persistent_workers=now.persistent_workers,
    ).normal()  # fmt: skip


def space(subject: Subject, machine: Machine, most: int | None, keep_order: bool, *, ranks: int = 1) -> Space:
    now, cores = subject.settings, machine.effective_cores / ranks
    engine = getattr(subject.loader, "engine", None)
    slots = getattr(subject.loader, "another", DataLoader) is DataLoader and engine != "torch"
    real = subject.consumer is not None or subject.model is not None
    declined = {}
    if not machine.gpus:
        declined["pin_memory"] = "no CUDA device is present, so there is nothing to copy to"
    elif not real:
        declined["pin_memory"] = "no step of yours copies batches to the device"
    if keep_order:
        declined["in_order"] = "--keep-order was given"
    if subject.iterable:
        declined["in_order"] = "a stream's order is its own"
    part = "it is part of the training; --batch-sizes shows what others would deliver"
    declined["batch_size"] = part if now.batch_size else "your own sampler decides it"
    if not slots:
        already = "batches are handed over through reusable shared memory already"
        declined["engine"] = "engine='torch' was chosen" if engine == "torch" else already
    return Space(
        most_workers=most_workers(cores, now.num_workers) if most is None else most, cores=cores,
        reorder=not keep_order and not subject.iterable, pin=bool(machine.gpus) and real, slots=slots,
        declined=declined, open=most is None,
    )  # fmt: skip


def limits(
    machine: Machine, memory: float | None, shm: float | None, files: int | None, cores: float | None, vram: float | None, *,
    ranks: int = 1,
) -> ResourceLimits:  # fmt: skip
    """What was asked for, and no more than there is: for each rank its part."""
    room, free = machine.memory_room_bytes, machine.shm_free_bytes
    if room is not None:
        room = room // ranks + int(read([os.getpid()]).memory_bytes)
    return ResourceLimits(
        memory_bytes=least(memory, room), shm_bytes=least(shm, free // ranks if free is not None else None),
        files=least(files, machine.fd_soft), cores=cores, vram_bytes=vram,
    )  # fmt: skip


def least(*values: float | None) -> float | None:
    return min((value for value in values if value is not None), default=None)


def lots(subject: Subject) -> int:
    """How many trials the batches of an epoch are dealt out to."""
    now = subject.settings
    if subject.iterable or not now.epoch:
        return 1
    return LOTS if now.epoch // now.samples_a_batch >= LOTS * FEW_BATCHES else 1


def ranks_here() -> int:
    """How many ranks run on this machine, as ``torchrun`` and other launchers say; 1 where nobody does."""
    return launched.number("LOCAL_WORLD_SIZE") or 1


def own_cpus(cores: float, ranks: int) -> tuple[int, ...]:
    """The CPUs that this rank's trials run on, while other ranks would keep the rest busy; empty where there are no others.

    ``cores``: CPU seconds a second that all ranks together may use.
    """
    if ranks == 1 or not hasattr(os, "sched_getaffinity"):
        return ()
    allowed = sorted(os.sched_getaffinity(0))
    each = max(1, min(int(cores), len(allowed)) // ranks)
    first = (launched.number("LOCAL_RANK") or 0) * each % len(allowed)
    return tuple((allowed + allowed)[first : first + each])
