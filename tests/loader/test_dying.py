"""A worker that died is named, with how, why and what next."""

from __future__ import annotations

import gc
import glob
import multiprocessing
import os
import re
import signal
import subprocess
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.workers import deaths
from pipefix.loader.workers.deaths import NAMED, WorkerDied, describe_death
from pipefix.loader.workers.start import UnpicklableError
from tests.doubles.of_one_process import Collecting
from tests.loader import pipelines
from tests.loader.likeness import assert_same


@pytest.mark.parametrize(
    ("code", "kills", "words"),
    [
        (
            -9,
            (3, 4),
            "it was killed by signal 9 (SIGKILL). The kernel killed it because memory was short: it says so itself. Use fewer",
        ),
        (-9, (3, 3), "The kernel does so where memory is short, though it counts no such case here since the workers began"),
        (
            -9,
            (None, None),
            "The kernel does so where memory is short. Use fewer workers, a smaller batch or a smaller prefetch",
        ),
        (-11, (0, 0), "(SIGSEGV). A native library crashed. Run with num_workers=0 under python -X faulthandler to see where."),
        (-7, (0, 0), "/dev/shm has 64.0 MB free. Make /dev/shm larger (docker run --shm-size=2g)"),
        (3, (0, 0), "it left with exit code 3. Something in it calls os._exit() or sys.exit()"),
        (-15, (0, 0), "it was killed by signal 15 (SIGTERM). Run with num_workers=0"),
    ],
)
def test_the_sentence(code: int, kills: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deaths, "out_of_memory_kills", lambda: kills[1])
    monkeypatch.setattr(deaths, "shared_memory", lambda: (None, 64_000_000))
    error = describe_death(
        RuntimeError("DataLoader worker (pid(s) 7) exited unexpectedly"), [SimpleNamespace(pid=7, exitcode=code)], kills[0]
    )
    assert str(error).startswith("DataLoader worker (pid(s) 7) exited unexpectedly: of worker process 7, ")
    assert words in str(error)


@pytest.mark.parametrize(("method", "told"), [("spawn", True), ("forkserver", True), ("fork", False), (None, False)])
def test_a_class_that_was_typed_in_is_named_as_a_cause_where_workers_import_it(method: str | None, told: bool) -> None:
    """With num_workers=0, as the advice had it, there is no error to see."""
    worker = SimpleNamespace(pid=7, exitcode=1, _start_method=method)
    error = describe_death(RuntimeError("DataLoader worker (pid(s) 7) exited unexpectedly"), [worker], 0)
    assert ("Put such a class into a .py file" in str(error)) is told


KILLED = """
import os, signal, sys
sys.path.insert(0, {root!r})
from pipefix.loader.fast_loader import FastLoader
from tests.loader import pipelines
try:
    iterator = iter(FastLoader(pipelines.Tensors(4000), batch_size=1, num_workers=2, rng={rng!r}))
    next(iterator)
    victim = iterator._workers[0]
    {unheard}
    class Gone:
        def get(self, timeout):
            os.kill(victim.pid, signal.SIGKILL)
            victim.join()
            raise ConnectionResetError(104, "Connection reset by peer")
    iterator._data_queue = Gone()
    list(iterator)
except RuntimeError as error:
    print(victim.pid, type(error).__name__, str(error).replace(chr(10), " "), flush=True)
for worker in iterator._workers:
    worker.kill()
os._exit(0)
"""


@pytest.mark.parametrize(("rng", "heard"), [("torch", True), ("sample", False)])
def test_a_killed_worker_is_told_with_its_signal(heard: bool, rng: str, preloaded: str) -> None:
    """Whether torch's signal handler says so first, or its tensors can be fetched no more. In a process of its own: that handler
    raises wherever the main thread happens to be."""
    root = str(Path(__file__).resolve().parents[2])
    code = KILLED.format(root=root, rng=rng, unheard="pass" if heard else "signal.signal(signal.SIGCHLD, signal.SIG_DFL)")
    process = subprocess.run([*preloaded.split(), "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    victim, kind, words = process.stdout.split(" ", 2)
    assert re.match(rf"DataLoader worker \(pid(\(s\))? {victim}\)", words), process
    assert kind == WorkerDied.__name__ and "SIGKILL" in words, process


@pytest.mark.parametrize("rng", ["torch", "sample"])
def test_workers_that_are_kept_are_started_anew_where_one_is_gone(rng: str) -> None:
    """Ctrl-C in a terminal ends them all. From then on each epoch was an error, or waited for ever."""
    loader: Any = FastLoader(pipelines.Tensors(16), batch_size=4, num_workers=2, persistent_workers=True, rng=rng)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        batches = list(loader)
    finally:
        signal.signal(signal.SIGINT, before)
    worker = loader._iterator._workers[0]
    os.kill(worker.pid, signal.SIGINT)
    worker.join()
    assert_same(list(loader), batches)
    assert all(worker.is_alive() for worker in loader._iterator._workers)


def refused() -> Any:
    raise ConnectionRefusedError(111, "Connection refused")


class FromWorker:
    """As a sparse tensor whose maker is gone."""

    def __reduce__(self) -> Any:
        return refused, ()


def in_part(samples: list[torch.Tensor]) -> Any:
    return torch.stack(samples), FromWorker()


@pytest.mark.parametrize(("code", "error"), [(-9, WorkerDied), (0, ConnectionRefusedError)])
def test_a_batch_that_a_worker_sent_in_part_is_told_as_its_death(code: int, error: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest was to be fetched from it: that was a ConnectionRefusedError. A stream's worker that has left as it should is no
    death."""
    monkeypatch.setattr(deaths, "DYING_S", 0.0)
    iterator: Any = iter(FastLoader(pipelines.Tensors(8), batch_size=4, num_workers=1, collate_fn=in_part))
    assert iterator._data_queue._reader.poll(60)
    with monkeypatch.context() as gone:
        gone.setattr(iterator, "_workers", [SimpleNamespace(pid=7, exitcode=code, is_alive=lambda: False)])
        with pytest.raises(error):
            next(iterator)


class LeavesNames(Dataset[Any]):
    """Killed as torch's worker may be: between making shared memory and taking its name back, or with some that was written to."""

    def __init__(self) -> None:
        self.awaited = multiprocessing.Event()

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        if index == 5:
            self.awaited.wait()
            for name, content in (("new", b""), ("written", b"somebody's")):
                path = Path(NAMED.format(pid=os.getpid()).replace("*", name))
                path.write_bytes(content)
                os.truncate(path, 4096)
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.zeros(4)


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="shared memory has no names in a folder here")
def test_names_of_shared_memory_that_a_killed_worker_left_are_taken_back() -> None:
    dataset = LeavesNames()
    iterator = iter(FastLoader(dataset, batch_size=2, num_workers=1))
    worker = iterator._workers[0].pid
    left = NAMED.format(pid=worker)
    try:
        with pytest.raises(RuntimeError, match=f"worker .*{worker}"):
            next(iterator), next(iterator)
            dataset.awaited.set()  # from here on torch's signal handler raises
            list(iterator)
        iterator._shutdown_workers()
        del iterator
        gc.collect()
        assert glob.glob(left) == [left.replace("*", "written")]
    finally:
        for path in glob.glob(left):
            os.unlink(path)


LEFT = """
import os, sys, time
from pipefix.loader.fast_loader import FastLoader
from tests.loader import pipelines
dataset = pipelines.Noting({note!r}, 40)
iterator = iter(FastLoader(dataset, batch_size=1, num_workers=2, rng={rng!r}, multiprocessing_context={method!r}))
iterator._worker_result_queue._wlock.acquire()
while open({note!r}).read().count("\\n") < 4:  # as many as are asked for ahead
    time.sleep(0.01)
os._exit(0)
"""
"""The training process goes while a lock that workers need to send their batches is held, as by one killed while it sent."""


def test_workers_go_when_the_training_process_has_gone(tmp_path: Path, preloaded: str) -> None:
    workers_go("fork", "sample", tmp_path, preloaded.split())


def workers_go(method: str, rng: str, tmp_path: Path, python: list[str]) -> None:
    """Each of them holds the output that is read here to its end."""
    root = str(Path(__file__).resolve().parents[2])
    note = tmp_path / "made"
    note.touch()
    code = LEFT.format(rng=rng, method=method, note=str(note))
    left = subprocess.run([*python, "-c", code], capture_output=True, text=True, cwd=root, check=False)
    assert left.returncode == 0
    assert len(note.read_text().split()) >= 4
    assert "Traceback" not in left.stderr, left.stderr


class MadeAtRunTime(Dataset[Any]):
    """Raises as botocore does: a class that no process can find by its name."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        if index == 5:
            raise type("NoSuchKey", (Exception,), {})("samples/5.jpg is gone")
        return torch.tensor([index])


@pytest.mark.parametrize("options", [{"engine": "torch"}, {"threads_per_worker": 2}, {"rng": "sample"}])
def test_an_error_whose_class_cannot_be_sent_is_told(options: dict[str, Any]) -> None:
    batches = iter(FastLoader(MadeAtRunTime(), batch_size=2, num_workers=2, **options))
    batches_taken = [next(batches).tolist() for _ in range(2)]
    with pytest.raises(UnpicklableError, match=r"(?s)NoSuchKey.*in DataLoader worker process.*__getitem__.*samples/5\.jpg is gone"):
        next(batches)
    assert [*batches_taken, next(batches).tolist()] == [[[0], [1]], [[2], [3]], [[6], [7]]]


class Quoting(Dataset[Any]):
    """A loader inside of it loses a worker."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        if index == 1:
            raise RuntimeError("DataLoader worker (pid(s) 7) exited unexpectedly")
        return index


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_a_loader_inside_the_dataset_is_the_datasets(workers: int) -> None:
    loader = FastLoader(Quoting(), batch_size=None, num_workers=workers)
    iterator = iter(loader)
    assert next(iterator) == 0
    with pytest.raises(RuntimeError, match="exited unexpectedly") as caught:
        next(iterator)
    assert type(caught.value) is RuntimeError
    assert not workers or "__getitem__" in str(caught.value)
    assert loader.state_dict()["batches"] == 2
    assert next(iterator) == 2


def test_a_worker_does_not_free_what_was_garbage_when_it_was_forked() -> None:
    """Torch's does, where a collection comes by: of memory of a CUDA device it dies."""
    with closing(Collecting()) as dataset:
        assert len(list(FastLoader(dataset, num_workers=1))) == 4
        with pytest.raises(RuntimeError, match="exited unexpectedly"):
            list(DataLoader(dataset, num_workers=1))
