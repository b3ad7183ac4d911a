"""What a case is, and what cases are made of: a sound machine, sound settings, operations that a sample makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pipefix.audit.facts import AuditFacts, BatchFacts
from pipefix.audit.storage_facts import amplified
from pipefix.measurement.measurement import Unpacked
from pipefix.system.machine import Machine
from pipefix.vocabulary.settings import LoaderSettings

ROOT = Path(__file__).resolve().parents[2]
GB = 10**9
MIB = 1 << 20


class Impossible(Exception):
    """This machine does not allow the mistake to be made."""


@dataclass(frozen=True)
class Case:
    """Facts of one configuration."""

    name: str
    make: Callable[[], AuditFacts]
    expect: str | None = None
    """The rule that must fire, alone; None for a configuration with nothing wrong."""
    real: bool = False
    """Observed on running processes rather than described."""
    long: bool = False
    """Takes seconds, a clock, threads that compute or memory of this machine: run by tests/system, and described beside it."""


def machine(**fields: Any) -> Machine:
    """A sound machine of 16 cores."""
    plain: dict[str, Any] = {
        "system": "Linux",
        "kernel": "6.8",
        "python": "3.12.4",
        "logical_cores": 16,
        "affinity_cores": 16,
        "effective_cores": 16.0,
        "memory_bytes": 64 * GB,
        "memory_available_bytes": 48 * GB,
        "shm_bytes": 32 * GB,
        "shm_free_bytes": 32 * GB,
        "fd_soft": 1024,
        "fd_hard": 1_048_576,
        "fd_open": 40,
        "load_1m": 1.0,
        "gpu_declined": "the NVIDIA driver does not answer: NVML Shared Library Not Found",
    }
    return Machine(**plain | fields)


def under_quota(cores: float) -> Machine:
    """Which os.cpu_count does not show."""
    return machine(quota_cores=cores, effective_cores=cores)


def loader(**fields: Any) -> LoaderSettings:
    plain = {"batch_size": 32, "num_workers": 8, "prefetch_factor": 2, "persistent_workers": True, "length": 100_000}
    return LoaderSettings(**plain | fields)


IMAGES = BatchFacts(bytes=19_300_000, tensors=2, small_tensors=1)


def described(**facts: Any) -> Callable[[], AuditFacts]:
    return lambda: AuditFacts(**{"machine": machine(), **facts})


class Calls(NamedTuple):
    """An operation that a sample makes so many times."""

    name: str
    calls: float
    wall_s: float = 1e-3


CHUNKS = Unpacked("/x in a.h5", "50 x 64 x 64", 8192.0, 409_600.0)
ROW_GROUPS = Unpacked("row groups of Parquet", "", 0.0, 16e6)
FRAMES = [Calls("av.decode", 30.0), Calls("av.VideoFrame.to_ndarray", 1.0)]


def unpacking(*reads: Unpacked, operations: Sequence[Calls] = (), sample_bytes: float = 4e5) -> AuditFacts:
    return AuditFacts(machine=machine(), unpacked=amplified(reads, operations, sample_bytes))
