"""What a process and all that it started use now, read from /proc: memory by PSS, shared memory, open files, CPU seconds.

Summed resident sizes count every shared page once a process; the proportional size counts it once. Shared memory that was unlinked
while it is in use (as torch's batches are) is in no directory, so it is counted by what is mapped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from pipefix.system.resources import rollup
from pipefix.tuning.limits import Usage

PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def group(leader: int) -> list[int]:
    """Processes of a session, its leader among them: whatever a trial started, also where its parent has died."""
    members = [pid for pid in map(int, filter(str.isdigit, _listed(PROC))) if _session(pid) == leader]
    return [pid for pid in members if (fields := _stat(pid)) is not None and fields[0] != "Z"]


def _session(pid: int) -> int | None:
    """Asked of the kernel: of thousands of processes that a machine may have, no file is read."""
    try:
        return os.getsid(pid)
    except OSError:
        return None


def read(processes: Iterable[int]) -> Usage:
    """What processes take together, but for CPU; those that end meanwhile count nothing."""
    memory = shm = 0.0
    files = 0
    for pid in processes:
        sizes = rollup(pid)
        memory += sizes.get("Pss", 0)
        shm += sizes.get("Pss_Shmem", 0)
        files = max(files, len(_listed(PROC / str(pid) / "fd")))
    return Usage(memory, shm, files)


def cpu_seconds(processes: Iterable[int]) -> float:
    """Of processes that live, since they began."""
    fields = [stat_fields for pid in processes if (stat_fields := _stat(pid)) is not None]
    return sum(int(stat_fields[11]) + int(stat_fields[12]) for stat_fields in fields) / _TICKS


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name, which may hold blanks and brackets: state, parent, group, session, …"""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
