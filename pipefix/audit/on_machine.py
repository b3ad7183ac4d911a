"""Audit rules about the machine: cores that cannot really be had, a GPU that is not used, native code that is missing."""

from __future__ import annotations

from pipefix.audit.facts import AuditFacts, Message, rule
from pipefix.system.machine import Machine
from pipefix.vocabulary.quantity import core_count, percent

CROWDED = 1.25
"""Runnable threads a core above which they queue for it. A quarter is left for workers that wait for a file now and then."""
THROTTLED = 0.10
"""Part of the scheduling periods (100 ms each) in which the quota ran out. Below it a sample is rarely held up; at 0.1 about
every tenth one is, by up to a period."""
NO_DRIVER = ("Not Found", "Driver Not Loaded", "not installed")
"""How NVML says that there simply is no NVIDIA driver, which is no mistake."""
RAISE_QUOTA = "Raise the quota (docker run --cpus N, or resources.limits.cpu in Kubernetes)"


def cores(machine: Machine) -> str:
    """How many cores are available, and why not more."""
    had = core_count(machine.effective_cores)
    if machine.quota_cores is not None and machine.quota_cores <= machine.effective_cores:
        return f"{had} (a CPU quota of the control group; os.cpu_count() says {machine.logical_cores})"
    if machine.affinity_cores is not None and machine.affinity_cores < machine.logical_cores:
        return f"{had} (the CPU affinity of this process; os.cpu_count() says {machine.logical_cores})"
    return had


@rule("cpu-quota", "warning",
      f"CPU-bound workers > {CROWDED:g} x the cores that are available, or a quota that nothing shows or that ran out in more than "
      f"{percent(THROTTLED)} of the run's scheduling periods")  # fmt: skip
def cpu_quota(facts: AuditFacts) -> Message | None:
    machine, workers = facts.machine, facts.num_workers or 0
    if machine is None or facts.cpu_share is None:
        before = _hidden_quota(machine, facts.settings is not None) or _crowded(machine, workers) if machine is not None else None
        return _throttled(facts) or before
    demand = workers * min(1.0, facts.cpu_share)
    if demand <= CROWDED * machine.effective_cores or workers <= 1:
        return _throttled(facts)
    found = f"{workers} workers would keep {demand:.1f} cores busy, and this process may use {cores(machine)}."
    raising = f"{RAISE_QUOTA}, or let" if machine.quota_cores is not None else "Let"
    return Message(found, f"{raising} pipefix tune TARGET find how many workers are best")


def _throttled(facts: AuditFacts) -> Message | None:
    share, machine = facts.throttled_share, facts.machine
    if share is None or share <= THROTTLED:
        return None
    quota = machine.quota_cores if machine is not None else None
    limit = "the control group's quota" if quota is None else core_count(quota)
    return Message(
        f"The CPU quota ({limit}) ran out in {percent(share)} of the scheduling periods; everything stood still until the next.",
        f"{RAISE_QUOTA}, or use fewer workers: pipefix tune TARGET",
    )


def _hidden_quota(machine: Machine, has_loader: bool) -> Message | None:
    if machine.quota_cores is None or machine.quota_cores >= (machine.affinity_cores or machine.logical_cores):
        return None
    count = max(1, int(machine.effective_cores))
    workers = "pipefix tune TARGET finds how many workers are best" if has_loader else f"DataLoader(..., num_workers={count})"
    hidden = "a CPU quota, which os.cpu_count() and os.sched_getaffinity() do not show."
    found = f"Only {core_count(machine.quota_cores)} of {machine.logical_cores} can be used: {hidden}"
    return Message(found, f"export OMP_NUM_THREADS={count}; where samples are CPU work: {workers}", "note")


def _crowded(machine: Machine, workers: int) -> Message | None:
    """Before anything ran: what workers do is not known."""
    if workers <= max(1.0, CROWDED * machine.effective_cores):
        return None
    found = f"{workers} workers share {cores(machine)}; if they decode or transform, they only get in each other's way."
    return Message(found, "pipefix tune TARGET finds how many workers are best", "note")


@rule("gpu", "warning", "an NVIDIA driver does not answer, or the installed torch was built without CUDA beside a GPU")
def gpu(facts: AuditFacts) -> Message | None:
    if (machine := facts.machine) is None:
        return None
    if machine.gpus and machine.versions.get("torch", "").endswith("+cpu"):
        return Message(
            f"There is a {machine.gpus[0].name}, and the installed torch {machine.versions['torch']} cannot use it.",
            "Install a build with CUDA: pip uninstall torch torchvision, then what https://pytorch.org/get-started shows",
        )
    reason = machine.gpu_declined
    if reason is None or any(word in reason for word in NO_DRIVER):
        return None
    return Message(
        f"The GPU cannot be asked: {reason}.",
        "See what nvidia-smi says. After a driver update a restart is due; in a container: docker run --gpus all ...",
    )


@rule("native-kernel", "note", "the native kernel of the fused path is absent")
def native_kernel(facts: AuditFacts) -> Message | None:
    if facts.no_kernel is None:
        return None
    why, advice = facts.no_kernel
    return Message(f"{why} Fused pictures are made by its twin, at about two thirds of the speed.", advice)
