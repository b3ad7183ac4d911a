"""The machine, what others use of it, and which threads a forked worker would lack; control groups and mounts as read from trees
that stand for other machines."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.pool import ThreadPool
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from torch.utils.data import DataLoader

from pipefix.caches import pool
from pipefix.system import forks, resources
from pipefix.system import machine as machine_file
from pipefix.system.cgroups import Limits, limits, memory_left, throttle, throttled_share
from pipefix.system.forks import lost_by_fork, lost_by_workers_of, pool_of_processes
from pipefix.system.machine import Machine, filesystem, filesystems, look
from pipefix.system.resources import childrens_cpu_ns
from tests.doubles.driver import GIB, Driver
from tests.doubles.named_threads import named_thread

V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def grouped(root: Path, group: str, mounts: str, files: dict[str, str]) -> Path:
    """A process in that control group, and what lies under /sys/fs/cgroup."""
    own = {"proc/self/cgroup": group, "proc/self/mountinfo": mounts}
    return tree(root, own | {f"sys/fs/cgroup/{name}": f"{text}\n" for name, text in files.items()})


QUOTA = {"cpu.max": "250000 100000"}


@pytest.mark.parametrize(
    ("group", "mounted", "files", "cores"),
    [
        pytest.param("/", "/", QUOTA, 2.5, id="a container's own group is the root"),
        pytest.param("/", "/", {"cpu.max": "max 100000"}, None, id="no quota"),
        pytest.param("/", "/", {}, None, id="no file"),
        pytest.param(
            "/pods/pod1/box",
            "/",
            {
                "pods/cpu.max": "700000 100000",
                "pods/pod1/cpu.max": "300000 100000",
                "pods/pod1/box/cpu.max": "max 100000",
            },
            3.0,
            id="the lowest of all levels",
        ),
        pytest.param(
            "/outer/inner/leaf",
            "/outer",
            {"inner/cpu.max": "50000 100000", "inner/leaf/cgroup.procs": "1"},
            0.5,
            id="a nested namespace is walked from inside",
        ),
        # A group of another namespace: what is mounted counts.
        pytest.param("/../../other", "/", QUOTA, 2.5, id="above the namespace"),
        pytest.param("/elsewhere/box", "/docker/abc", QUOTA, 2.5, id="beside the mount"),
        pytest.param("/docker/abcdef", "/docker/abc", QUOTA, 2.5, id="a name that begins alike"),
        pytest.param("/gone/long/ago", "/", QUOTA, 2.5, id="a group that is gone"),
    ],
)
def test_quota_v2(tmp_path: Path, group: str, mounted: str, files: dict[str, str], cores: float | None) -> None:
    mount = f"30 23 0:26 {mounted} /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    assert limits(grouped(tmp_path, f"0::{group}\n", mount, files)).quota_cores == cores


def mounted_v1(of: str) -> str:
    return "".join(f"31 30 0:27 {of} /sys/fs/cgroup/{kind} rw - cgroup cgroup rw,{kind}\n" for kind in ("cpu,cpuacct", "memory"))


def test_quota_v1_where_the_container_sees_its_own_group_as_the_root(tmp_path: Path) -> None:
    files = {
        "cpu,cpuacct/cpu.cfs_quota_us": "200000",
        "cpu,cpuacct/cpu.cfs_period_us": "100000",
        "memory/memory.limit_in_bytes": str(2 * GIB),
        "memory/memory.usage_in_bytes": str(GIB),
        "memory/memory.stat": f"total_inactive_file {GIB // 4}\ntotal_active_file {GIB // 4}",
    }
    group = "4:cpu,cpuacct:/docker/abc\n3:memory:/docker/abc\n"
    assert limits(grouped(tmp_path, group, mounted_v1("/docker/abc"), files)) == Limits(2.0, 2 * GIB, GIB // 2)


def test_v1_unlimited_memory_and_quota_are_none(tmp_path: Path) -> None:
    files = {
        "cpu,cpuacct/cpu.cfs_quota_us": "-1",
        "cpu,cpuacct/cpu.cfs_period_us": "100000",
        "memory/memory.limit_in_bytes": "9223372036854771712",
    }
    found = limits(grouped(tmp_path, "4:cpu,cpuacct:/\n3:memory:/\n", mounted_v1("/"), files))
    assert (found.quota_cores, found.memory_bytes) == (None, None)


@pytest.mark.parametrize(("limit", "told"), [(2 * GIB, 2 * GIB), (1 << 59, None)])
def test_a_memory_limit_above_the_machine_is_no_limit(limit: int, told: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_file, "limits", lambda: Limits(memory_bytes=limit, memory_used_bytes=GIB))
    assert look().memory_limit_bytes == told


def test_the_room_that_memory_leaves() -> None:
    plain: dict[str, Any] = {"system": "Linux", "kernel": "6"}
    assert Machine(**plain).memory_room_bytes is None
    assert Machine(**plain, memory_available_bytes=GIB).memory_room_bytes == GIB
    limited = Machine(**plain, memory_available_bytes=GIB, memory_limit_bytes=GIB, memory_limit_used_bytes=GIB // 4)
    assert limited.memory_room_bytes == 3 * GIB // 4


@pytest.mark.parametrize(
    ("group", "mounts", "folder", "limit", "used", "prefix"),
    [
        ("0::/job/step\n", V2_MOUNT, "", "memory.max", "memory.current", ""),
        ("3:memory:/job/step\n", mounted_v1("/"), "memory/", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ],
)
def test_what_every_level_leaves_and_the_page_cache_is_part_of_it(
    group: str, mounts: str, folder: str, limit: str, used: str, prefix: str, tmp_path: Path
) -> None:
    files = {
        f"{folder}job/step/{limit}": str(10 * GIB),
        f"{folder}job/step/{used}": str(9 * GIB),
        f"{folder}job/step/memory.stat": f"anon 1\n{prefix}inactive_file {5 * GIB}\n{prefix}active_file {2 * GIB}",
        f"{folder}job/{limit}": "4096",
        f"{folder}job/{used}": "1024",
    }
    assert memory_left(grouped(tmp_path, group, mounts, files)) == [8 * GIB, 3072]
    assert resources.memory_left() > 0


def test_of_memory_limits_the_one_that_leaves_least_is_told(tmp_path: Path) -> None:
    files = {
        "job/step/memory.max": str(2 * GIB), "job/step/memory.current": str(GIB // 2), "job/step/memory.stat": "",
        "job/memory.max": str(4 * GIB), "job/memory.current": str(3 * GIB), "job/memory.stat": "",
    }  # fmt: skip
    found = limits(grouped(tmp_path, "0::/job/step\n", V2_MOUNT, files))
    assert (found.memory_bytes, found.memory_used_bytes) == (4 * GIB, 3 * GIB)


def test_throttling_is_the_difference_of_two_readings(tmp_path: Path) -> None:
    def read(periods: int, throttled: int) -> dict[str, tuple[int, int]]:
        stat = f"usage_usec 9\nnr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec 500000"
        return throttle(grouped(tmp_path, "0::/\n", V2_MOUNT, {"cpu.max": "100000 100000", "cpu.stat": stat}))

    before, after = read(100, 10), read(200, 60)
    assert throttled_share(before, after) == 0.5
    assert throttled_share(before, before) == 0.0


def test_throttling_without_a_quota_is_unknown_and_the_worst_level_counts() -> None:
    assert throttled_share({}, {}) is None
    assert throttled_share({"a": (0, 0), "b": (0, 0)}, {"a": (100, 1), "b": (10, 9), "new": (5, 5)}) == 0.9


MOUNTS = """\
1 0 8:1 / / rw - ext4 /dev/sda1 rw
2 1 0:40 / /data rw - nfs4 server:/export rw
3 1 8:2 / /data/local\\040disk rw - xfs /dev/sdb rw
4 1 0:41 / /bucket rw - fuse.gcsfuse bucket rw
5 1 0:42 / /merged rw - fuse.mergerfs a:b rw
6 1 0:43 / /twice rw - nfs server:/a rw
7 1 8:3 / /twice rw - ext4 /dev/sdc rw
8 1 0:44 / /pool rw - zfs tank rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/home/me/x.jpg", "ext4", False),
        ("/data/x.jpg", "nfs4", True),
        ("/database/x.jpg", "ext4", False),
        ("/data/local disk/x.jpg", "xfs", False),
        ("/bucket/x.jpg", "fuse.gcsfuse", True),
        ("/merged/x.jpg", "fuse.mergerfs", False),
        ("/twice/x.jpg", "ext4", False),
        ("/pool/x", "zfs", False),
    ],
)
def test_the_file_system_of_a_path(tmp_path: Path, path: str, kind: str, network: bool) -> None:
    mount = filesystem(path, tree(tmp_path, {"proc/self/mountinfo": MOUNTS}))
    assert mount is not None
    assert (mount.kind, mount.network) == (kind, network)


def test_file_systems_of_many_paths_are_keyed_by_mount(tmp_path: Path) -> None:
    mounts = filesystems(["/data/a/1", "/data/a/2", "/home/x"], tree(tmp_path, {"proc/self/mountinfo": MOUNTS}))
    assert {mount: under.kind for mount, under in mounts.items()} == {"/data": "nfs4", "/": "ext4"}


def test_no_mountinfo_means_unknown(tmp_path: Path) -> None:
    assert filesystem("/data", tmp_path) is None


class Unified(Driver):
    """As of DGX Spark, which was told to have no GPU."""

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        raise self.NVMLError("Not Supported")


@pytest.mark.parametrize(
    ("nvml", "gpus", "driver", "why"),
    [
        (Driver(), [("Test GPU", 8 * GIB)], "999.1", None),
        (Unified(), [("Test GPU", psutil.virtual_memory().total)], "999.1", None),
        (Driver("Driver/library version mismatch"), [], None, "the NVIDIA driver does not answer: Driver/library version mismatch"),
    ],
)
def test_gpus_are_named_by_the_driver(nvml: Any, gpus: list[Any], driver: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    machine = look()
    assert [(gpu.name, gpu.memory_bytes) for gpu in machine.gpus] == gpus
    assert (machine.driver, machine.gpu_declined) == (driver, why) and not getattr(nvml, "open", 0)


def test_off_linux_what_cannot_be_known_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.delattr(os, "statvfs")
    monkeypatch.setattr(machine_file, "limits", Limits)
    machine = look()
    assert (machine.affinity_cores, machine.quota_cores, machine.shm_bytes) == (None, None, None)
    assert 0 < machine.effective_cores <= float(os.cpu_count() or 1)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the real /proc")
class TestHere:
    def test_the_real_machine(self) -> None:
        machine = look()
        assert machine.logical_cores == os.cpu_count()
        assert machine.affinity_cores == len(os.sched_getaffinity(0))
        assert 0 < machine.effective_cores <= machine.logical_cores
        assert machine.fd_soft == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert machine.memory_bytes is not None
        assert abs(machine.memory_bytes - os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) < 1 << 20
        assert "torch" in machine.versions
        assert json.loads(json.dumps(machine.as_dict())) == machine.as_dict(), "what goes into the run file is plain"

    def test_a_narrowed_affinity_is_seen(self) -> None:
        code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        code += "from pipefix.system.machine import look; print(look().effective_cores)"
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert 0 < float(ran.stdout) <= 1, "one core, or what a quota leaves of it"


def test_what_others_used_and_what_a_hypervisor_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now = SimpleNamespace(time=100.0, own=5.0, books={"user": 50.0, "idle": 0.0, "steal": 0.0})
    used = {resource.RUSAGE_SELF: lambda: now.own, resource.RUSAGE_CHILDREN: lambda: 0.0}
    monkeypatch.setattr(resources.time, "monotonic", lambda: now.time)
    monkeypatch.setattr(resources.resource, "getrusage", lambda who: SimpleNamespace(ru_utime=used[who](), ru_stime=0.0))
    monkeypatch.setattr(resources.psutil, "cpu_times", lambda: SimpleNamespace(**now.books))
    watch = resources.Neighbours()
    assert watch.cores() == 0.0, "no time has passed"
    now.time, now.own, now.books = 110.0, 12.0, {"user": 65.0, "idle": 90.0, "steal": 2.0}
    assert watch.cores() == pytest.approx((15 + 2 - 7) / 10)
    now.own = 23.0
    assert watch.cores() == 0.0, "all of it was this process's"


class TestForks:
    """Threads are seen by their names, and nothing is forked that would wait for them."""

    @pytest.fixture(autouse=True)
    def no_tokio(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Tests of object stores leave threads of it in this process."""
        monkeypatch.setattr(forks, "_THREADS", {forks.POLARS: forks._THREADS[forks.POLARS]})

    @pytest.mark.parametrize(
        ("name", "library"), [("polars-1", "polars"), ("polars-ooc-clea", None), ("python", None), ("OpenBLAS-1", None)]
    )
    def test_a_librarys_threads_are_seen_while_they_run(self, name: str, library: str | None) -> None:
        with named_thread(name):
            assert lost_by_fork() == library
        assert lost_by_fork() is None

    def test_threads_of_a_download_are_no_matter_for_workers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.undo()
        with named_thread("tokio-rt-worker"):
            assert lost_by_fork() is not None
            assert lost_by_workers_of(DataLoader([1], num_workers=1, multiprocessing_context="fork")) is None  # type: ignore[arg-type]
            with named_thread("polars-1"):
                assert lost_by_fork() == "polars", "which runs such threads itself"

    @pytest.mark.parametrize(("method", "lost"), [("fork", "polars"), ("forkserver", None), ("spawn", None)])
    def test_only_forked_workers_lack_them(self, method: str, lost: str | None) -> None:
        with named_thread("polars-0"):
            assert lost_by_workers_of(DataLoader([1], num_workers=1, multiprocessing_context=method)) == lost  # type: ignore[arg-type]

    def test_a_pool_of_processes_is_seen_while_it_runs(self) -> None:
        context = multiprocessing.get_context("forkserver")
        with ThreadPool(1) as threads, context.Manager():
            threads.map(abs, [1])
            assert pool_of_processes() is None, "threads are forked by nobody, and a manager answers workers too"
            with context.Pool(1) as processes:
                processes.map(abs, [1])
                assert pool_of_processes() == "multiprocessing.Pool"
            with ProcessPoolExecutor(1, mp_context=context) as processes:
                assert list(processes.map(abs, [1])) == [1]
                assert pool_of_processes() == "ProcessPoolExecutor"
        assert pool_of_processes() is None

    def test_a_cache_is_made_in_this_process_then(self) -> None:
        with named_thread("polars-0"):
            assert not pool.can_fork()
            assert pool.apart(lambda sample: b"made here") == b"made here"


BUSY = "for number in range(5_000_000): pass"


def test_what_children_compute_counts_while_they_live_and_when_they_have_ended() -> None:
    """A sample that waits for an ffmpeg, or for a pool of processes, keeps the cores busy."""
    begun = childrens_cpu_ns()
    subprocess.run([sys.executable, "-S", "-c", BUSY], check=True)
    ended = childrens_cpu_ns()
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()

    def computes() -> None:
        exec(BUSY, {})
        there.send("computed")
        there.recv()

    child = context.Process(target=computes)
    child.start()
    assert here.recv() == "computed"
    alive = childrens_cpu_ns()
    here.send("end")
    child.join()
    assert begun < ended < alive <= childrens_cpu_ns()
    assert childrens_cpu_ns() == childrens_cpu_ns(), "nobody computes any more"
