"""The machine a pipeline runs on, as this process may use it. Read from /proc and /sys; nothing is imported, started or changed.

A field is None where the system does not say: much of this is Linux only.
"""

from __future__ import annotations

import importlib
import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pipefix.system.cgroups import Throttle, limits, throttle
from pipefix.system.mounts import Filesystem, filesystem, filesystems
from pipefix.system.software import thread_environment, versions

__all__ = ["Filesystem", "Gpu", "Machine", "Throttle", "filesystem", "filesystems", "look", "throttle"]


class Gpu(msgspec.Struct, frozen=True):
    """One device, as the driver names it."""

    name: str
    memory_bytes: int


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What there is, and how much of it this process may have."""

    system: str
    """Linux, Darwin or Windows."""
    kernel: str
    cpu_model: str | None = None
    logical_cores: int = 1
    """What ``os.cpu_count()`` says: every CPU of the machine, allowed or not."""
    affinity_cores: int | None = None
    """CPUs this process may run on (taskset, cpuset)."""
    quota_cores: float | None = None
    """CPU seconds a second that the control group allows (``docker --cpus``, a Kubernetes limit); None without a quota."""
    effective_cores: float = 1.0
    """The smaller of affinity and quota: CPU seconds that can really be had each second."""
    cgroup: str | None = None
    """v1, v2 or hybrid."""
    throttle: Throttle = Throttle()
    """The quota's counters when this was read."""
    memory_bytes: int | None = None
    memory_available_bytes: int | None = None
    """What can be had without swapping, as the kernel estimates it."""
    memory_limit_bytes: int | None = None
    """The control group's limit. Pages in /dev/shm and the file cache count against it."""
    memory_limit_used_bytes: int | None = None
    shm_bytes: int | None = None
    """Size of /dev/shm, through which worker processes hand over batches."""
    shm_free_bytes: int | None = None
    fd_soft: int | None = None
    """Files this process may have open now (``ulimit -n``); None for no limit."""
    fd_hard: int | None = None
    """How far it may raise that itself."""
    fd_open: int | None = None
    load_1m: float | None = None
    """Processes running or waiting, averaged over a minute. Above ``affinity_cores`` the figures are disturbed."""
    gpus: list[Gpu] = []
    driver: str | None = None
    gpu_declined: str | None = None
    """Why no GPU could be asked about."""
    python: str = ""
    versions: dict[str, str] = {}
    """Installed packages that matter here."""
    environment: dict[str, str] = {}
    """Variables that set thread counts and the like."""

    @property
    def start_method(self) -> str:
        """How this Python starts worker processes where nobody says: fork, forkserver or spawn."""
        if self.system != "Linux":
            return "spawn"
        version = self.python.split(".")[:2]
        newer = len(version) == 2 and all(number.isdigit() for number in version) and tuple(map(int, version)) >= (3, 14)
        return "forkserver" if newer else "fork"

    @property
    def memory_room_bytes(self) -> int | None:
        """Bytes that can still be taken: what the kernel has, and no more than the control group leaves."""
        rooms = [] if self.memory_available_bytes is None else [self.memory_available_bytes]
        if self.memory_limit_bytes is not None:
            rooms.append(max(0, self.memory_limit_bytes - (self.memory_limit_used_bytes or 0)))
        return min(rooms, default=None)

    def as_dict(self) -> dict[str, Any]:
        """For the run file: plain values only."""
        plain = msgspec.to_builtins(self)
        assert isinstance(plain, dict)
        return plain


def look(
    root: str | Path = "/",
    *,
    environ: Mapping[str, str] | None = None,
    statvfs: Callable[[Path], Any] | None = None,
) -> Machine:
    """Look at this machine. ``root`` stands in for ``/``, so that another machine's /proc and /sys can be read as well."""
    base = Path(root)
    env = os.environ if environ is None else environ
    # A root other than "/" holds a Linux tree, whatever this system is.
    system = platform.system() if base == Path("/") else "Linux"
    known: dict[str, Any] = _linux(base, statvfs) if system == "Linux" else _elsewhere()
    gpus, driver, declined = gpus_here()
    return Machine(
        system=system,
        kernel=platform.release(),
        gpus=gpus,
        driver=driver,
        gpu_declined=declined,
        python=platform.python_version(),
        versions=versions(),
        environment=thread_environment(env),
        **known,
    )


def _elsewhere() -> dict[str, Any]:
    """macOS and Windows: no control groups, no /dev/shm, no affinity to read."""
    psutil: Any = importlib.import_module("psutil")
    memory = psutil.virtual_memory()
    cores = os.cpu_count() or 1
    soft, hard = _own_fd_limits()
    return {
        "cpu_model": platform.processor() or None,
        "logical_cores": cores,
        "effective_cores": float(cores),
        "memory_bytes": memory.total,
        "memory_available_bytes": memory.available,
        "fd_soft": soft,
        "fd_hard": hard,
        "load_1m": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def _linux(base: Path, statvfs: Callable[[Path], Any] | None) -> dict[str, Any]:
    online = _cpu_list(_read(base / "sys/devices/system/cpu/online"))
    model, listed = _cpuinfo(base)
    if base == Path("/"):
        logical, allowed = os.cpu_count() or 1, len(os.sched_getaffinity(0))
    else:
        logical = len(online) or listed or 1
        mask = _cpu_list(_field(_read(base / "proc/self/status"), "Cpus_allowed_list"))
        # The mask may name CPUs that are not there; only those that are online can be run on.
        allowed = len(mask & online if mask & online else mask) or logical
    groups = limits(base)
    memory = _meminfo(base)
    shm = _shm(base, statvfs)
    soft, hard = _fd_limits(base)
    return {
        "cpu_model": model,
        "logical_cores": logical,
        "affinity_cores": allowed,
        "quota_cores": groups.quota_cores,
        "effective_cores": float(min(allowed, groups.quota_cores or allowed)),
        "cgroup": groups.version,
        "throttle": throttle(base),
        "memory_bytes": memory.get("MemTotal"),
        "memory_available_bytes": memory.get("MemAvailable"),
        "memory_limit_bytes": _real_limit(groups.memory_bytes, memory.get("MemTotal")),
        "memory_limit_used_bytes": groups.memory_used_bytes,
        "shm_bytes": shm[0],
        "shm_free_bytes": shm[1],
        "fd_soft": soft,
        "fd_hard": hard,
        "fd_open": _count(base / "proc/self/fd"),
        "load_1m": _first_float(_read(base / "proc/loadavg")),
    }


def _real_limit(limit: int | None, total: int | None) -> int | None:
    """A limit above what the machine has is no limit."""
    return None if limit is None or (total is not None and limit >= total) else limit


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _field(text: str, name: str) -> str:
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _cpu_list(text: str) -> set[int]:
    """``0-3,8`` -> {0, 1, 2, 3, 8}."""
    cores: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            cores.update(range(int(first), int(last if last.isdigit() else first) + 1))
    return cores


def _cpuinfo(base: Path) -> tuple[str | None, int]:
    text = _read(base / "proc/cpuinfo")
    count = sum(line.startswith("processor") for line in text.splitlines())
    model = _field(text, "model name") or _field(text, "Model") or _field(text, "Hardware")
    return model or platform.machine() or None, count


def _meminfo(base: Path) -> dict[str, int]:
    sizes = {}
    for line in _read(base / "proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            sizes[name] = int(words[0]) * (1024 if words[-1] == "kB" else 1)
    return sizes


def _shm(base: Path, statvfs: Callable[[Path], Any] | None) -> tuple[int | None, int | None]:
    try:
        statistics = (statvfs or os.statvfs)(base / "dev/shm")
    except OSError:
        return None, None
    return statistics.f_blocks * statistics.f_frsize, statistics.f_bavail * statistics.f_frsize


def _fd_limits(base: Path) -> tuple[int | None, int | None]:
    for line in _read(base / "proc/self/limits").splitlines():
        if line.startswith("Max open files"):
            words = line.removeprefix("Max open files").split()
            values = [int(word) if word.isdigit() else None for word in words[:2]]
            return (values[0], values[1]) if len(values) == 2 else (None, None)
    return _own_fd_limits() if base == Path("/") else (None, None)


def _own_fd_limits() -> tuple[int | None, int | None]:
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return None, None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    infinite = resource.RLIM_INFINITY
    return (None if soft == infinite else soft), (None if hard == infinite else hard)


def _count(folder: Path) -> int | None:
    try:
        return len(os.listdir(folder))
    except OSError:
        return None


def _first_float(text: str) -> float | None:
    words = text.split()
    try:
        return float(words[0]) if words else None
    except ValueError:
        return None


def gpus_here() -> tuple[list[Gpu], str | None, str | None]:
    """The devices, the driver's version, and why there are none. Nothing is begun on a device."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return [], None, "the package nvidia-ml-py is not installed"
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return [], None, f"the NVIDIA driver does not answer: {error}"
    try:
        gpus = []
        for index in range(nvml.nvmlDeviceGetCount()):
            device = nvml.nvmlDeviceGetHandleByIndex(index)
            gpus.append(Gpu(_string(nvml.nvmlDeviceGetName(device)), int(nvml.nvmlDeviceGetMemoryInfo(device).total)))
        return gpus, _string(nvml.nvmlSystemGetDriverVersion()), None
    except nvml.NVMLError as error:
        return [], None, f"the NVIDIA driver does not answer: {error}"
    finally:
        nvml.nvmlShutdown()


def _string(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
