"""The machine a pipeline runs on, as this process may use it. Nothing is started or changed.

A field is None where the system does not say: much of this is Linux only.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import os
import platform
import resource
from typing import Any

import msgspec
import psutil

from pipefix.system.cgroups import limits
from pipefix.system.mounts import Filesystem, filesystem, filesystems, text_of
from pipefix.system.resources import cores, shared_memory

__all__ = ["Filesystem", "Gpu", "Machine", "filesystem", "filesystems", "look"]

PACKAGES = [
    "pipefix", "torch", "torchvision", "torchaudio", "torchcodec", "numpy", "pillow", "pillow-simd", "opencv-python",
    "opencv-python-headless", "opencv-contrib-python", "albumentations", "kornia", "imageio", "h5py", "lmdb", "pyarrow",
    "pandas", "tokenizers", "transformers", "datasets", "webdataset", "fsspec", "nvidia-ml-py", "nvidia-dali-cuda110",
    "nvidia-dali-cuda120", "nvidia-dali-cuda130",
]  # fmt: skip
"""Packages whose version can change a pipeline's speed."""

THREAD_VARIABLES = [
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
    "OMP_WAIT_POLICY", "KMP_BLOCKTIME", "KMP_AFFINITY", "GOMP_CPU_AFFINITY", "OPENCV_FOR_THREADS_NUM",
    "TOKENIZERS_PARALLELISM", "PYTORCH_NVML_BASED_CUDA_CHECK", "CUDA_VISIBLE_DEVICES", "PYTHONGIL", "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
]  # fmt: skip
"""Environment variables that change how many threads run or how memory is had. Only these are kept."""


class Gpu(msgspec.Struct, frozen=True):
    """One device, as the driver names it."""

    name: str
    memory_bytes: int


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What there is, and how much of it this process may have."""

    system: str
    """Linux or Darwin."""
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
    def memory_room_bytes(self) -> int | None:
        """Bytes that can still be taken: what the kernel has, and no more than the control group leaves."""
        rooms = [] if self.memory_available_bytes is None else [self.memory_available_bytes]
        if self.memory_limit_bytes is not None:
            rooms.append(max(0, self.memory_limit_bytes - (self.memory_limit_used_bytes or 0)))
        return min(rooms, default=None)

    def as_dict(self) -> dict[str, Any]:
        """For the run file: plain values only."""
        return dict(msgspec.to_builtins(self))


def look() -> Machine:
    memory, groups, (soft, hard), (shm, shm_free) = psutil.virtual_memory(), limits(), _fd_limits(), shared_memory()
    gpus, driver, declined = gpus_here()
    return Machine(
        system=platform.system(), kernel=platform.release(), cpu_model=_cpu_model(), load_1m=os.getloadavg()[0],
        logical_cores=os.cpu_count() or 1,
        affinity_cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        quota_cores=groups.quota_cores, effective_cores=cores(),
        memory_bytes=memory.total, memory_available_bytes=memory.available,
        # A limit above what the machine has is no limit.
        memory_limit_bytes=groups.memory_bytes if groups.memory_bytes is not None and groups.memory_bytes < memory.total else None,
        memory_limit_used_bytes=groups.memory_used_bytes, shm_bytes=shm, shm_free_bytes=shm_free,
        fd_soft=soft, fd_hard=hard,
        fd_open=len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None,
        gpus=gpus, driver=driver, gpu_declined=declined, python=platform.python_version(), versions=versions(),
        environment={name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
    )  # fmt: skip


def versions() -> dict[str, str]:
    """Installed packages of `PACKAGES` and their versions. Nothing is imported to find out."""
    versions = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _cpu_model() -> str | None:
    facts = [line.partition(":") for line in text_of("/proc/cpuinfo").splitlines()]
    known = {name.strip(): value.strip() for name, _, value in facts}
    otherwise = platform.machine() if known else platform.processor()
    return next((known[name] for name in ("model name", "Model", "Hardware") if known.get(name)), otherwise or None)


def _fd_limits() -> tuple[int | None, int | None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    infinite = resource.RLIM_INFINITY
    return (None if soft == infinite else soft), (None if hard == infinite else hard)


def gpus_here() -> tuple[list[Gpu], str | None, str | None]:
    """The devices, the driver's version, and why there are none. Nothing is begun on a device."""
    nvml: Any = importlib.import_module("pynvml")
    try:
        nvml.nvmlInit()
        try:
            devices = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
            gpus = [Gpu(nvml.nvmlDeviceGetName(device), _memory_of(device, nvml)) for device in devices]
            return gpus, nvml.nvmlSystemGetDriverVersion(), None
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        return [], None, f"the NVIDIA driver does not answer: {error}"


def _memory_of(device: Any, nvml: Any) -> int:
    """That of the machine where the two share it (DGX Spark, Jetson): the driver tells none then."""
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(device).total)
    except nvml.NVMLError:
        return int(psutil.virtual_memory().total)
