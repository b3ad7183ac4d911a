"""The machine that figures were taken on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def describe() -> dict[str, Any]:
    import torch

    from pipefix.kernels.kernel import native

    kernel = native()
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "native_kernel": kernel is not None,
    }


def processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def line(machine: dict[str, Any]) -> str:
    """For a page. Results of earlier versions have other names for the same things, and lack some."""

    def first(*names: str) -> Any:
        return next((machine[name] for name in names if machine.get(name) is not None), None)

    cores, model = first("cores", "effective_cores", "cpus"), first("processor", "cpu", "cpu_model")
    memory = machine.get("memory_gb") or round((machine.get("memory_bytes") or 0) / 1e9, 1)
    parts = [
        f"{cores:g} cores{f' ({model})' if model else ''}" if cores else None,
        f"{memory:g} GB" if memory else None,
        machine.get("system"),
        f"Python {machine['python']}" if "python" in machine else None,
        f"torch {machine['torch']}" if machine.get("torch") else None,
        "without the native kernel" if machine.get("native_kernel") is False else None,
    ]
    return ", ".join(part for part in parts if part)
