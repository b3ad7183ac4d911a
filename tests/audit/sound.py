"""Configurations with nothing wrong, up to the edge of every limit: no rule may fire."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader

from pipefix.audit.facts import REUSED, AuditFacts, BatchFacts, DatasetFacts, MemoryGrowth
from pipefix.audit.loader_facts import loader_facts
from pipefix.loader.fast_loader import FastLoader
from pipefix.measurement.measurement import Unpacked
from pipefix.system.machine import Filesystem, Gpu
from tests.audit import pipelines
from tests.audit.case import GB, IMAGES, MIB, Calls, Case, described, loader, machine, under_quota, unpacking
from tests.audit.mistakes import held
from tests.audit.pipelines import observed


def array_dataset() -> AuditFacts:
    made = DataLoader(pipelines.PathArray(500_000), batch_size=2000, num_workers=2, shuffle=True, multiprocessing_context="fork")
    return observed(made, machine=machine())


def preloaded() -> AuditFacts:
    return AuditFacts(machine=machine(python="3.14.0"), settings=loader(), preload=["__main__", "torch"], first_batch_s=0.3)


def fast_loader_from_a_server() -> AuditFacts:
    made: FastLoader[torch.Tensor] = FastLoader(pipelines.Arrays(), num_workers=2, multiprocessing_context="forkserver")
    return AuditFacts(machine=machine(), settings=loader(num_workers=2), **loader_facts(made) | {"start_method": "forkserver"})


HEALTHY = [
    Case("nothing known at all", AuditFacts),
    Case("chunks of three samples", lambda: unpacking(Unpacked("x", "3 x 64 x 64", 8192.0, 24_576.0))),
    Case("small chunks of 50", lambda: unpacking(Unpacked("y", "50", 8.0, 400.0))),
    Case("row groups of which nobody knows what is used", lambda: unpacking(Unpacked("rows", "", 0.0, 1e8), sample_bytes=0.0)),
    Case("all frames of a clip", lambda: unpacking(operations=[Calls("av.decode", 17.0), Calls("av.VideoFrame.to_ndarray", 16.0)])),
    Case("sound machine alone", described()),
    Case("8 workers on 16 cores, images", described(settings=loader(), batch=IMAGES, cpu_share=1.0)),
    Case(
        "as many CPU-bound workers as the quota's cores, now and then throttled",
        described(machine=under_quota(8.0), settings=loader(), cpu_share=1.0, throttled_share=0.05),
    ),
    Case("32 workers that mostly wait, on 16 cores", described(settings=loader(num_workers=32), cpu_share=0.2)),
    Case(
        "no workers, docker's 64 MB of /dev/shm",
        described(machine=machine(shm_bytes=64 * MIB), settings=loader(num_workers=0), batch=IMAGES),
    ),
    Case(
        "/dev/shm exactly twice what is needed",
        described(machine=machine(shm_bytes=34 * IMAGES.bytes, shm_free_bytes=34 * IMAGES.bytes), settings=loader(), batch=IMAGES),
    ),
    Case(
        "small batches in docker's 64 MB of /dev/shm",
        described(
            machine=machine(shm_bytes=64 * MIB, shm_free_bytes=64 * MIB),
            settings=loader(),
            batch=BatchFacts(bytes=400_000, tensors=2),
        ),
    ),
    Case(
        "descriptors exactly at the limit",
        described(machine=machine(fd_soft=40 + 16 * 20), settings=loader(), batch=BatchFacts(bytes=8, tensors=20)),
    ),
    Case(
        "many tensors through file_system",
        described(
            settings=loader(num_workers=16, prefetch_factor=8),
            batch=BatchFacts(bytes=8, tensors=30, small_tensors=30),
            sharing_strategy="file_system",
        ),
    ),
    Case(
        "many small tensors in memory that is used again",
        described(
            machine=machine(fd_soft=256),
            settings=loader(),
            batch=BatchFacts(bytes=8, tensors=90, small_tensors=90),
            sharing_strategy=REUSED,
        ),
    ),
    Case(
        "12 small tensors of a detector",
        described(settings=loader(), batch=BatchFacts(bytes=5_000_000, tensors=12, small_tensors=11)),
    ),
    Case(
        "many small tensors, no workers",
        described(settings=loader(num_workers=0), batch=BatchFacts(bytes=9000, tensors=90, small_tensors=90)),
    ),
    Case("paths in arrays, looked at", lambda: held(pipelines.PathArray(400_000))),
    Case("list of 20,000 tuples", lambda: held(pipelines.PathList(20_000))),
    Case("paths in arrays", array_dataset, real=True, long=True),
    Case(
        "a million-entry list, no workers",
        described(
            settings=loader(num_workers=0), dataset=DatasetFacts(objects=3_000_000, bytes=200_000_000, where="dataset.samples")
        ),
    ),
    Case(
        "memory that grows while caches fill",
        described(settings=loader(), growth=MemoryGrowth(before_bytes=200 * MIB, after_bytes=260 * MIB, samples=300)),
    ),
    Case(
        "memory that stays",
        described(settings=loader(), growth=MemoryGrowth(before_bytes=200 * MIB, after_bytes=205 * MIB, samples=20_000)),
    ),
    Case("forkserver with preload", preloaded),
    Case(
        "spawn on macOS, quick start",
        described(
            machine=machine(system="Darwin", shm_bytes=None, shm_free_bytes=None),
            settings=loader(),
            start_method="spawn",
            first_batch_s=0.8,
        ),
    ),
    Case("spawn, no workers", described(settings=loader(num_workers=0), start_method="spawn")),
    Case(
        "local disks", described(settings=loader(), filesystems={"/": Filesystem("ext4", "/"), "/data": Filesystem("xfs", "/data")})
    ),
    Case(
        "overlay of a container, and mergerfs",
        described(settings=loader(), filesystems={"/": Filesystem("overlay", "/"), "/pool": Filesystem("fuse.mergerfs", "/pool")}),
    ),
    Case(
        "GPU, driver and CUDA build",
        described(machine=machine(gpus=[Gpu("H200", 141 * GB)], driver="570.1", gpu_declined=None, versions={"torch": "2.9.0"})),
    ),
    Case(
        "laptop: 4 cores, 3 workers, CPU-bound",
        described(
            machine=machine(
                logical_cores=4, affinity_cores=4, effective_cores=4.0, memory_bytes=8 * GB, memory_available_bytes=4 * GB
            ),
            settings=loader(num_workers=3),
            batch=IMAGES,
            cpu_share=1.0,
        ),
    ),
    Case(
        "64 MiB of uint8 in two tensors, default_collate",
        described(settings=loader(), batch=BatchFacts(bytes=64 * MIB, tensors=2)),
    ),
    Case("FastLoader under forkserver, which loads modules by itself", fast_loader_from_a_server),
    Case("no workers, ulimit -n 256", described(machine=machine(fd_soft=256), settings=loader(num_workers=0))),
]
