"""Mistakes planted one at a time. Each case makes the facts, and one rule must fire, alone.

Where a mistake can be made here for real it is made (`real`); where it takes another machine, that machine is described.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
from torch.utils.data import DataLoader

from pipefix.audit.dataset_scan import scan_dataset
from pipefix.audit.facts import AuditFacts, BatchFacts, MemoryGrowth, ObjectStoreFacts, StepFacts
from pipefix.audit.loader_facts import loader_facts
from pipefix.audit.storage_facts import store_in
from pipefix.system.machine import Filesystem, Gpu
from pipefix.vocabulary.settings import LoaderSettings
from tests.audit import pipelines
from tests.audit.case import (
    CHUNKS,
    FRAMES,
    GB,
    IMAGES,
    MIB,
    ROOT,
    ROW_GROUPS,
    Case,
    Impossible,
    described,
    loader,
    machine,
    under_quota,
    unpacking,
)
from tests.audit.pipelines import observed, settings_of
from tests.doubles.named_threads import named_thread


def zip_before_fork() -> AuditFacts:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "archive.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("0", b"0" * 100)
        dataset = pipelines.Zipped(path)
        made = DataLoader(dataset, num_workers=2, multiprocessing_context="fork")
        facts = AuditFacts(**loader_facts(made), settings=settings_of(made))
        dataset.archive.close()
    return facts


def threads_before_fork() -> AuditFacts:
    with named_thread("polars-0"):
        made = DataLoader([1, 2], num_workers=2, multiprocessing_context="fork")  # type: ignore[arg-type]
        return AuditFacts(**loader_facts(made), settings=settings_of(made))


def one_shard() -> AuditFacts:
    made = DataLoader(pipelines.Sharded(["part-0.tar"]), batch_size=4, num_workers=2)
    return AuditFacts(**loader_facts(made), settings=loader(num_workers=2, kind="iterable", length=None))


IN_SMALL_SHM = """
import sys
import msgspec
from torch.utils.data import DataLoader
from pipefix.system.machine import look
from tests.audit import pipelines
machine = look()
facts = pipelines.observed(DataLoader(pipelines.Arrays(24, (3, 224, 224)), batch_size=8, num_workers=2))
sys.stdout.buffer.write(msgspec.json.encode([machine.shm_bytes, machine.shm_free_bytes, facts.batch, facts.settings]))
"""


def small_shm() -> AuditFacts:
    """A worker's 4.8 MB batches in a container's 20 MB of /dev/shm: mounted for one child process only."""
    mount = f'mount -t tmpfs -o size={20 * MIB} tmpfs /dev/shm && exec "$0" "$@"'
    command = ["unshare", "--mount", "sh", "-c", mount, sys.executable, "-c", IN_SMALL_SHM]
    try:
        done = subprocess.run(command, capture_output=True, cwd=ROOT)
    except OSError as error:
        raise Impossible(f"no unshare: {error}") from error
    if done.returncode != 0 and (b"mount" in done.stderr or b"unshare" in done.stderr) and b"Traceback" not in done.stderr:
        raise Impossible("mounting needs rights that this process has not")
    done.check_returncode()
    total, free, batch, settings = json.loads(done.stdout)
    seen = machine(shm_bytes=total, shm_free_bytes=free)
    return AuditFacts(machine=seen, batch=msgspec.convert(batch, BatchFacts), settings=msgspec.convert(settings, LoaderSettings))


def list_dataset() -> AuditFacts:
    made = DataLoader(pipelines.PathList(500_000), batch_size=2000, num_workers=2, shuffle=True, multiprocessing_context="fork")
    return observed(made, machine=machine())


def hoarding() -> AuditFacts:
    made = DataLoader(pipelines.Hoard(3000, 100_000), batch_size=100, num_workers=1, multiprocessing_context="fork")
    return observed(made, machine=machine(memory_available_bytes=2 * GB, memory_bytes=4 * GB))


def looked_at(collate: Any = None, dataset: Any = None, **options: Any) -> AuditFacts:
    """Looked at without an epoch."""
    made: DataLoader[Any] = DataLoader(dataset or pipelines.Arrays(), batch_size=4, num_workers=2, collate_fn=collate, **options)
    return AuditFacts(machine=machine(), settings=settings_of(made), **loader_facts(made))


def fork_server() -> AuditFacts:
    """Of which no other test has asked that it load anything."""
    with mock.patch.object(forkserver._forkserver, "_preload_modules", ["__main__"]):  # type: ignore[attr-defined]
        return looked_at(multiprocessing_context="forkserver")


def held(dataset: Any) -> AuditFacts:
    return AuditFacts(machine=machine(), settings=loader(num_workers=2), dataset=scan_dataset(dataset))


def many_pieces() -> AuditFacts:
    return observed(DataLoader(pipelines.Pieces(64), batch_size=4, num_workers=1), machine=machine(fd_soft=65536))


def numpy_batches() -> AuditFacts:
    made: DataLoader[Any] = DataLoader(pipelines.Raw(32, (512, 512)), batch_size=8, num_workers=1, collate_fn=list)
    return observed(made, machine=machine())


class Urls:
    def __init__(self) -> None:
        self.paths = [f"s3://bucket/{index}.jpg" for index in range(20)]


def network(kind: str) -> Callable[[], AuditFacts]:
    return described(settings=loader(), filesystems={"/data": Filesystem(kind, "/data", "server:/export")})


MISTAKES = [
    Case(
        "quota of 2 cores, 8 CPU-bound workers",
        described(machine=under_quota(2.0), settings=loader(), cpu_share=0.95),
        "cpu-quota",
    ),
    Case("quota that os.cpu_count does not show, machine alone", described(machine=under_quota(4.0)), "cpu-quota"),
    Case(
        "affinity of 2 cores, 8 workers",
        described(machine=machine(affinity_cores=2, effective_cores=2.0), settings=loader()),
        "cpu-quota",
    ),
    Case(
        "quota ran out in half of the periods",
        described(machine=under_quota(8.0), settings=loader(num_workers=6), cpu_share=0.9, throttled_share=0.5),
        "cpu-quota",
    ),
    Case("batches of 4.8 MB in 20 MB of /dev/shm", small_shm, "shm-size", real=True, long=True),
    Case(
        "float32 images in docker's 64 MB of /dev/shm",
        described(machine=machine(shm_bytes=64 * MIB, shm_free_bytes=64 * MIB), settings=loader(), batch=IMAGES),
        "shm-size",
    ),
    Case("docker's 64 MB of /dev/shm, machine alone", described(machine=machine(shm_bytes=64 * MIB)), "shm-size"),
    Case(
        "ulimit -n 256, 12 batches of 24 tensors in flight",
        described(
            machine=machine(fd_soft=256), settings=loader(num_workers=2, prefetch_factor=6), batch=BatchFacts(bytes=400, tensors=24)
        ),
        "fd-limit",
    ),
    Case("ulimit -n 256, machine alone", described(machine=machine(fd_soft=256)), "fd-limit"),
    Case("list of 500,000 (path, label) tuples in 2 forked workers", list_dataset, "memory-growth", real=True, long=True),
    Case("dataset that keeps what it made", hoarding, "memory-growth", real=True, long=True),
    Case("forkserver without preload, untimed", fork_server, "start-method"),
    Case("spawn, untimed", lambda: looked_at(multiprocessing_context="spawn"), "start-method"),
    Case(
        "forkserver without preload, 5 s to the first batch",
        described(settings=loader(), start_method="forkserver", preload=["__main__"], first_batch_s=5.0),
        "start-method",
    ),
    Case("list of 400,000 (path, label) tuples, 2 workers", lambda: held(pipelines.PathList(400_000)), "memory-growth"),
    Case(
        "memory that grows by the size of each sample",
        described(
            machine=machine(memory_available_bytes=2 * GB, memory_bytes=4 * GB),
            settings=loader(num_workers=1, length=3000),
            growth=MemoryGrowth(before_bytes=100 * MIB, after_bytes=350 * MIB, samples=2500),
        ),
        "memory-growth",
    ),
    Case("ZipFile opened in __init__, 2 forked workers", zip_before_fork, "handle-before-fork", real=True),
    Case("polars in the training process, 2 forked workers", threads_before_fork, "threads-before-fork", real=True),
    Case(
        "kept workers with pinned batches, torch 2.11",
        described(
            machine=machine(gpus=[Gpu("H200", 140 * GB)], gpu_declined=None, versions={"torch": "2.11.0+cu130"}),
            settings=loader(num_workers=4, persistent_workers=True, pin_memory=True),
        ),
        "slow-end",
    ),
    Case("2 workers for a stream of one shard", one_shard, "few-shards", real=True),
    Case("batch of 64 small tensors", many_pieces, "batch-parts", real=True),
    Case("batch of NumPy arrays", numpy_batches, "batch-parts", real=True),
    Case("NFS", network("nfs4"), "network-files"),
    Case("object store through FUSE", network("fuse.gcsfuse"), "network-files"),
    Case(
        "objects over HTTP",
        described(settings=loader(), store=ObjectStoreFacts(name="https://host", request_s=0.02, requests=1)),
        "network-files",
    ),
    Case("URLs in a list", lambda: AuditFacts(machine=machine(), store=store_in(Urls())), "network-files"),
    Case("Lustre", network("lustre"), "network-files"),
    Case("one row of chunks of 50", lambda: unpacking(CHUNKS), "read-amplification"),
    Case("one row of row groups of 100,000", lambda: unpacking(ROW_GROUPS), "read-amplification"),
    Case("one frame of 30", lambda: unpacking(operations=FRAMES), "read-amplification"),
    Case(
        "driver that does not answer",
        described(machine=machine(gpu_declined="the NVIDIA driver does not answer: Driver/library version mismatch")),
        "gpu",
    ),
    Case(
        "CPU build beside a GPU",
        described(machine=machine(gpus=[Gpu("H100", 80 * GB)], versions={"torch": "2.9.0+cpu"})),
        "gpu",
    ),
    Case("loss.item() in each step", described(step=StepFacts(waits={"train_step at train.py:9": 1})), "step-waits"),
    Case("a copy that is waited for", described(step=StepFacts(blocking={"train_step at train.py:4": 2})), "blocking-copies"),
    Case(
        "non_blocking from ordinary memory", described(step=StepFacts(pageable={"train_step at train.py:4": 2})), "blocking-copies"
    ),
    Case("batches of a few numbers", described(step=StepFacts(), batch=BatchFacts(bytes=2048, tensors=2)), "tiny-batches"),
    Case("float32 without TF32", described(step=StepFacts(full_precision=12_000_000)), "full-precision"),
    Case(
        "no headers of libjpeg-turbo",
        described(no_kernel=("The native kernel has not been built: jpeglib.h cannot be compiled with.", "apt install ...")),
        "native-kernel",
    ),
    Case(
        "docker's 64 MB of /dev/shm, a loader that has not run",
        described(machine=machine(shm_bytes=64 * MIB), settings=loader()),
        "shm-size",
    ),
    Case("ulimit -n 256, a loader that has not run", described(machine=machine(fd_soft=256), settings=loader()), "fd-limit"),
    Case(
        "hidden quota, a loader that has not run", described(machine=under_quota(4.0), settings=loader(num_workers=4)), "cpu-quota"
    ),
]
