"""Audit rules about batches on their way from worker to training process: shared memory, open files, tiny tensors, arrays."""

from __future__ import annotations

from pipefix.audit.facts import REUSED, AuditFacts, Message, rule
from pipefix.vocabulary.quantity import counted, size

SHM_SAFETY = 2
"""A second loader (validation) or a slow consumer may double what lies in /dev/shm."""
DOCKER_SHM = 64 << 20
"""What docker gives a container that does not ask for more: two float32 batches of 32 images."""
LOW_FDS = 1024
"""The usual soft limit of Linux. macOS starts programs with 256."""
SMALL_BYTES = 64 << 10
"""Copying this much takes some 10 µs, a fraction of what its crossing costs."""
MANY_SMALL = 32
"""A tensor that crosses costs 0.4 to 0.8 ms however small it is (a descriptor, a socket message, a mapping): 32 cost a batch
10 to 25 ms."""
PIPED = 1 << 20
"""Arrays and byte strings cross a pipe at about 0.25 GB/s; a megabyte costs what a tensor of ten does."""
FALLBACK_FDS = 64
"""Descriptors a Python program with torch has open anyway, where they were not counted."""


def _power_of_two(value: int) -> int:
    return 1 << max(0, value - 1).bit_length()


@rule("shm-size", "problem", f"workers x prefetch_factor x batch bytes x {SHM_SAFETY} > what is free in /dev/shm")
def shm_size(facts: AuditFacts) -> Message | None:
    machine = facts.machine
    if machine is None or machine.shm_bytes is None or facts.num_workers == 0:
        return None
    if facts.batch is None or facts.in_flight is None or facts.settings is None:
        if machine.shm_bytes > DOCKER_SHM:
            return None
        fills = "a few batches from workers fill it, and the program dies of a bus error."
        found = f"/dev/shm holds {size(machine.shm_bytes)}: {fills}"
        return Message(found, "Start the container with: docker run --shm-size=8g ... (or --ipc=host)", severity="warning")
    shared = facts.batch.bytes - facts.batch.piped_bytes
    need = facts.in_flight * shared
    free = machine.shm_bytes if machine.shm_free_bytes is None else machine.shm_free_bytes
    if need * SHM_SAFETY <= free:
        return None
    workers, prefetch = facts.settings.num_workers, facts.settings.prefetch_factor or 2
    fitting = int(free / SHM_SAFETY / shared - 1) // prefetch
    settings = f", or use DataLoader(..., num_workers={fitting})" if 0 < fitting < workers else ""
    enough = _power_of_two(-(-need * SHM_SAFETY // (1 << 30)))
    return Message(
        f"Up to {facts.in_flight} batches of {size(shared)} lie in /dev/shm ({counted(workers, 'worker')} x prefetch_factor "
        f"{prefetch}, and the one in use): {size(need)}, and {size(free)} is free.",
        f"Start the container with: docker run --shm-size={enough}g ... (or --ipc=host){settings}",
        severity="problem" if need > free else "warning",
    )


@rule("fd-limit", "problem", "open files + workers x prefetch_factor x tensors a batch > the soft limit on open files")
def fd_limit(facts: AuditFacts) -> Message | None:
    machine = facts.machine
    if machine is None or machine.fd_soft is None or facts.num_workers == 0 or facts.sharing_strategy in ("file_system", REUSED):
        return None
    if facts.batch is None or facts.in_flight is None:
        if machine.fd_soft >= LOW_FDS:
            return None
        found = f"This program may have {machine.fd_soft} files open; every tensor in flight from a worker is one."
        return Message(found, _raise_fds(facts, LOW_FDS * 4), "note")
    ahead = facts.in_flight - 1
    need = (FALLBACK_FDS if machine.fd_open is None else machine.fd_open) + ahead * facts.batch.tensors
    if need <= machine.fd_soft:
        return None
    found = f"Up to {counted(ahead, 'batch')} of {counted(facts.batch.tensors, 'tensor')} in flight, one open file each"
    limit = f"with those already open, {need}, and the limit is {machine.fd_soft}."
    return Message(f"{found}: {limit}", _raise_fds(facts, _power_of_two(2 * need)))


def _raise_fds(facts: AuditFacts, wanted: int) -> str:
    hard = facts.machine.fd_hard if facts.machine else None
    if hard is None or hard >= wanted:
        return f"Before starting the program: ulimit -n {wanted}"
    return f'At the top of the program: torch.multiprocessing.set_sharing_strategy("file_system") (the hard limit is {hard})'


@rule("batch-parts", "warning", f"{MANY_SMALL} tensors below 64 KiB, or over 1 MiB of arrays or bytes, in a batch from a worker")
def batch_parts(facts: AuditFacts) -> Message | None:
    batch = facts.batch
    if batch is None or not facts.num_workers or facts.sharing_strategy == REUSED:
        return None
    sentences, advice = [], []
    if batch.small_tensors >= MANY_SMALL:
        each = "each crosses with a descriptor, a message and a mapping."
        sentences.append(f"A batch has {batch.small_tensors} tensors below 64 KiB; {each}")
        advice.append(
            "join them and keep the lengths: torch.cat(parts), torch.tensor([len(part) for part in parts]); "
            "undo it in the training loop: joined.split(lengths.tolist())"
        )
    if batch.piped_bytes > PIPED:
        piped = f"{size(batch.piped_bytes)} in NumPy arrays or byte strings, pickled and sent through a pipe."
        sentences.append(f"A batch carries {piped}")
        advice.append(
            "wrap arrays so that they cross in shared memory: torch.from_numpy(array), or "
            "torch.frombuffer(bytearray(data), dtype=torch.uint8)"
        )
    return Message(" ".join(sentences), f"In collate_fn, {'; and '.join(advice)}") if sentences else None
