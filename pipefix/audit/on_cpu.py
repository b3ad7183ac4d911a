"""Mistakes about CPU time: more workers or threads than cores that can really be had."""

from __future__ import annotations

from pipefix.audit.finding import AuditFacts, Said, WorkerFacts, rule
from pipefix.system.machine import Machine
from pipefix.vocabulary.quantity import percent

CROWDED = 1.25
"""Runnable threads a core above which they queue for it. A quarter is left for workers that wait for a file now and then."""
THROTTLED = 0.10
"""Part of the scheduling periods (100 ms each) in which the quota ran out. Below it a sample is rarely held up; at 0.1 about
every tenth one is, by up to a period."""
IDLE_INPUT = 0.20
"""Part of the loop spent waiting for input, above which more hands would be felt."""
CPU_BOUND = 0.5
BUSY_LOAD = 1.5
"""Runnable processes a core, averaged over a minute, before anything of ours ran."""


def cores(machine: Machine) -> str:
    """How many cores are available, and why not more."""
    had = f"{machine.effective_cores:g}"
    if machine.quota_cores is not None and machine.quota_cores <= machine.effective_cores:
        return f"{had} (a CPU quota of the control group; os.cpu_count() says {machine.logical_cores})"
    if machine.affinity_cores is not None and machine.affinity_cores < machine.logical_cores:
        return f"{had} (the CPU affinity of this process; os.cpu_count() says {machine.logical_cores})"
    return had


def whole_cores(machine: Machine) -> int:
    return max(1, int(machine.effective_cores))


@rule("cpu-quota", "warning", f"CPU-bound workers > {CROWDED:g} x the cores that are available")
def cpu_quota(facts: AuditFacts) -> Said | None:
    machine, workers = facts.machine, facts.num_workers
    if machine is None:
        return None
    if workers is None:
        return _hidden_quota(machine)
    demand = workers * (1.0 if facts.cpu_share is None else min(1.0, facts.cpu_share))
    if demand <= CROWDED * machine.effective_cores or workers <= 1:
        return None
    found = f"{workers} workers keep {demand:.1f} cores busy, and {cores(machine)} are available."
    if facts.cpu_share is None:
        found = f"{workers} workers share {cores(machine)} cores; if they decode or transform, they only get in each other's way."
    advice = f"DataLoader(..., num_workers={whole_cores(machine)})"
    return Said(found, advice, severity="note" if facts.cpu_share is None else None)


def _hidden_quota(machine: Machine) -> Said | None:
    if machine.quota_cores is None or machine.quota_cores >= (machine.affinity_cores or machine.logical_cores):
        return None
    count = whole_cores(machine)
    return Said(
        f"Only {machine.quota_cores:g} of the {machine.logical_cores} cores are available: a CPU quota, "
        "which os.cpu_count() and os.sched_getaffinity() do not show.",
        f"Set DataLoader(..., num_workers={count}) where samples are CPU work, and: export OMP_NUM_THREADS={count}",
        severity="note",
    )


@rule("cpu-throttled", "warning", f"the CPU quota ran out in more than {percent(THROTTLED)} of the run's scheduling periods")
def cpu_throttled(facts: AuditFacts) -> Said | None:
    share = facts.throttled_share
    if share is None or share <= THROTTLED:
        return None
    machine = facts.machine
    limit = (
        f"{machine.quota_cores:g} cores" if machine is not None and machine.quota_cores is not None else "the control group's quota"
    )
    fewer = f"num_workers={whole_cores(machine)}" if machine is not None else "fewer workers"
    return Said(
        f"The CPU quota ({limit}) ran out in {percent(share)} of the scheduling periods; everything stood still until the next.",
        f"Raise the quota (docker run --cpus N, or resources.limits.cpu in Kubernetes) or use DataLoader(..., {fewer})",
    )


@rule("thread-pools", "warning", f"workers x busy threads of each > {CROWDED:g} x the cores that are available")
def thread_pools(facts: AuditFacts) -> Said | None:
    machine, workers = facts.machine, facts.num_workers
    if machine is None or workers is None or not facts.workers:
        return None
    widest = max(facts.workers, key=_width)
    width, processes = _width(widest), max(1, workers)
    if width <= 1 or processes * width <= CROWDED * machine.effective_cores:
        return None
    where = (
        f"each of {workers} worker processes: {workers * width} threads"
        if workers
        else "the training process, which loads its data itself,"
    )
    found = f"{width} threads compute in {where} on {cores(machine)} cores."
    threads = 1 if workers else whole_cores(machine)
    return Said(found, _fewer_threads(widest, threads, in_worker=workers > 0))


def _width(worker: WorkerFacts) -> int:
    """Threads of this process that compute at the same time."""
    if worker.busy_threads is not None:
        return 1 + worker.busy_threads
    pools = [threads for threads in (worker.cv2_threads, worker.torch_threads) if threads is not None and threads > 1]
    # Without CPU times only the number of threads tells whether a pool was really started.
    started = [threads for threads in pools if worker.os_threads is not None and worker.os_threads >= threads]
    return max(started, default=1)


def _fewer_threads(worker: WorkerFacts, threads: int, *, in_worker: bool) -> str:
    cures = []
    if (worker.cv2_threads or 0) > threads:
        cures.append(f"cv2.setNumThreads({threads if threads > 1 else 0})")
    if (worker.torch_threads or 0) > threads:
        cures.append(f"torch.set_num_threads({threads})")
    now = f" (now OMP_NUM_THREADS={worker.omp_num_threads})" if (worker.omp_num_threads or 0) > threads else ""
    environment = f"export OMP_NUM_THREADS={threads} OPENBLAS_NUM_THREADS={threads} MKL_NUM_THREADS={threads}{now}"
    if not cures:
        return f"Before starting the program: {environment}"
    where = "in worker_init_fn" if in_worker else "at the top of the program"
    return f"Call {' and '.join(cures)} {where}; for other pools, before starting the program: {environment}"


@rule("omp-threads", "note", "OMP_NUM_THREADS is above the cores that are available")
def omp_threads(facts: AuditFacts) -> Said | None:
    machine = facts.machine
    value = machine.environment.get("OMP_NUM_THREADS", "").split(",")[0].strip() if machine else ""
    if machine is None or not value.isdigit() or int(value) <= max(1.0, machine.effective_cores):
        return None
    return Said(
        f"OMP_NUM_THREADS is {value}, and {cores(machine)} cores are available: OpenMP pools queue for them.",
        f"export OMP_NUM_THREADS={whole_cores(machine)}",
    )


@rule(
    "no-workers",
    "note",
    f"no workers, several cores, samples that are CPU work, and more than {percent(IDLE_INPUT)} of the loop waiting for them",
)
def no_workers(facts: AuditFacts) -> Said | None:
    machine = facts.machine
    if machine is None or facts.num_workers != 0 or facts.cpu_share is None or facts.input_share is None:
        return None
    if machine.effective_cores < 2 or facts.cpu_share < CPU_BOUND or facts.input_share <= IDLE_INPUT:
        return None
    return Said(
        f"Samples are made in the training process itself, one after the other, for {percent(facts.input_share)} of the loop, "
        f"and {cores(machine)} cores are available.",
        f"DataLoader(..., num_workers={whole_cores(machine)}, persistent_workers=True)",
    )


@rule("busy-machine", "note", f"load average > {BUSY_LOAD:g} x the machine's cores")
def busy_machine(facts: AuditFacts) -> Said | None:
    machine = facts.machine
    if machine is None or machine.load_1m is None or machine.load_1m <= BUSY_LOAD * machine.logical_cores:
        return None
    return Said(
        f"{machine.load_1m:.1f} processes were running or waiting for a core in the last minute, on {machine.logical_cores} cores.",
        "Stop what else is running (see: top), or expect wide intervals and slower figures.",
    )
