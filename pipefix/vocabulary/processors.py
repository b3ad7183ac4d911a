"""CPU seconds a second that this process may use: its CPUs, or less where a control group limits it."""

from __future__ import annotations

import os
from pathlib import Path

_V2 = Path("/sys/fs/cgroup")
_V1 = Path("/sys/fs/cgroup/cpu")


def cores() -> float:
    """CPU seconds a second: those of the CPUs that this process may run on, or less where a control group limits it."""
    allowed = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else float(os.cpu_count() or 1)
    return min([allowed, *_quotas()])


def _quotas() -> list[float]:
    found = []
    for group in (_V2, *own_groups()):
        try:
            most, period = (group / "cpu.max").read_text(encoding="ascii").split()
            found.append(int(most) / int(period))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    quota, period_us = _figure(_V1 / "cpu.cfs_quota_us"), _figure(_V1 / "cpu.cfs_period_us")
    if quota and period_us and quota > 0:
        found.append(quota / period_us)
    return found


def own_groups() -> list[Path]:
    """This process's group and those that it lies in."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    for line in lines:
        number, _, path = line.split(":", 2)
        if number == "0":
            group = _V2 / path.lstrip("/")
            return [one for one in (group, *group.parents) if _V2 in one.parents]
    return []


def _figure(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
