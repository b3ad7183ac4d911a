"""Mistakes about the GPU that make a program run without it."""

from __future__ import annotations

from pipefix.audit.finding import AuditFacts, Said, rule

ABSENT = ("Not Found", "Driver Not Loaded", "not installed")
"""How NVML says that there simply is no NVIDIA driver, which is no mistake."""


@rule("gpu-driver", "warning", "an NVIDIA driver is there and does not answer")
def gpu_driver(facts: AuditFacts) -> Said | None:
    reason = facts.machine.gpu_declined if facts.machine else None
    if reason is None or any(word in reason for word in ABSENT):
        return None
    return Said(
        f"The GPU cannot be asked: {reason}.",
        "See what nvidia-smi says. After a driver update a restart is due; in a container: docker run --gpus all ...",
    )


@rule("cpu-build", "warning", "a GPU is there and the installed torch was built without CUDA")
def cpu_build(facts: AuditFacts) -> Said | None:
    machine = facts.machine
    if machine is None or not machine.gpus or not machine.versions.get("torch", "").endswith("+cpu"):
        return None
    return Said(
        f"There is a {machine.gpus[0].name}, and the installed torch {machine.versions['torch']} cannot use it.",
        "Install a build with CUDA: pip uninstall torch torchvision, then the command that https://pytorch.org/get-started shows",
    )
