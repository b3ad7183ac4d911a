"""What this process may use: memory that is left, and CPU seconds a second. Control groups count, where there are any."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil

from pipefix.vocabulary.processors import cores as cores
from pipefix.vocabulary.processors import own_groups

_V2 = Path("/sys/fs/cgroup")
_V1 = _V2 / "memory"


def memory_left() -> int:
    """Bytes that can be taken before the kernel kills somebody. What the page cache holds of files is given up before that."""
    left = [int(psutil.virtual_memory().available)]
    left += [_left_in(group, "memory.max", "memory.current", "") for group in (_V2, *own_groups())]
    left.append(_left_in(_V1, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"))
    return min(left)


def _left_in(group: Path, limit: str, used: str, prefix: str) -> int:
    """Of a control group's memory; a lot where it has no limit."""
    most, taken = _figure(group / limit), _figure(group / used)
    if most is None or taken is None:
        return 1 << 62
    files = 0
    with contextlib.suppress(OSError, ValueError):
        figures = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
        files = int(figures.get(f"{prefix}active_file", 0)) + int(figures.get(f"{prefix}inactive_file", 0))
    return max(0, most - max(0, taken - files))


def shared_memory_left() -> int | None:
    """Bytes that are free in /dev/shm; None where there is none."""
    try:
        room = os.statvfs("/dev/shm")
    except (AttributeError, OSError):
        return None
    return room.f_bavail * room.f_frsize


def out_of_memory_kills() -> int | None:
    """How often the kernel killed a process here because memory was short; None where it does not say."""
    for path, name in ((_V2 / "memory.events", "oom_kill"), (Path("/proc/vmstat"), "oom_kill")):
        try:
            for line in path.read_text(encoding="ascii").splitlines():
                key, _, value = line.partition(" ")
                if key == name:
                    return int(value)
        except (OSError, ValueError):
            continue
    return None


def _figure(path: str | Path) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):  # no such group, or "max"
        return None
