"""Slots: a batch is the caller's for as long as anything looks at it, and nothing is left of them afterwards."""

from __future__ import annotations

import copy
import gc
import io
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from torch.utils.data import Dataset

from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.slots import arena as arenas
from pipefix.loader.slots import batch_in_slot
from pipefix.loader.slots.arena import FREE, LENT, SPARE, Arena
from tests.loader import pipelines

ROOT = Path(__file__).resolve().parents[2]


def first_value(batch: torch.Tensor) -> float:
    return float(batch.flatten()[0])


def kept(batch: torch.Tensor, how: int) -> Any:
    """Something of a batch that a caller may keep."""
    ways = [
        lambda: batch,
        lambda: batch[0],
        lambda: batch.numpy(),
        lambda: batch.view(-1)[:1],
        lambda: batch.untyped_storage(),
        lambda: memoryview(batch.numpy())[:1],
    ]
    return ways[how]()


def value_of(part: Any) -> float:
    if isinstance(part, torch.UntypedStorage):
        return float(torch.empty(0).set_(part)[0])
    return float(np.asarray(part).ravel()[0])


@settings(max_examples=3)  # each starts workers; scripts/nightly draws many more
@given(some.lists(some.tuples(some.booleans(), some.integers(0, 5)), min_size=30, max_size=60), some.integers(1, 2))
def test_what_the_caller_keeps_never_changes(choices: list[tuple[bool, int]], workers: int) -> None:
    loader = FastLoader(pipelines.Tensors(4 * len(choices)), batch_size=4, num_workers=workers, prefetch_factor=1)
    held = []
    for number, (batch, (keep, how)) in enumerate(zip(loader, choices, strict=True)):
        if keep:
            held.append((4.0 * number, kept(batch, how)))
        assert all(value_of(part) == value for value, part in held)
    del batch
    gc.collect()
    assert all(value_of(part) == value for value, part in held)


def test_keeping_every_batch_is_right_and_told() -> None:
    loader = FastLoader(pipelines.Tensors(400), batch_size=4, num_workers=1, prefetch_factor=1, engine="processes")
    batches = list(loader)
    assert [first_value(batch) for batch in batches] == [4.0 * number for number in range(100)]
    slots = 1 + 2 + SPARE
    assert f"{100 - slots} of 100 batches went torch's way" in loader.explain()


def test_a_caller_that_drops_batches_is_always_served_from_slots() -> None:
    loader = FastLoader(pipelines.Tensors(800), batch_size=4, num_workers=2, engine="processes")
    assert [first_value(batch) for batch in loader] == [4.0 * number for number in range(200)]
    assert loader.explain() == "2 worker processes, batches handed over through reusable shared memory."


def test_a_batch_outlives_its_loader() -> None:
    loader = FastLoader(pipelines.Tensors(64, (1000,)), batch_size=4, num_workers=2)
    iterator = iter(loader)
    batch = next(iterator)
    del loader, iterator
    gc.collect()
    batch += 1
    assert torch.equal(batch, torch.arange(4.0).repeat_interleave(1000).view(4, 1000) + 1)


def test_numbers_may_be_numpys() -> None:
    """As tuners of hyperparameters draw them: no slots were made, and 4 threads were no whole number."""
    loader: Any = FastLoader(pipelines.Tensors(16), batch_size=4, num_workers=np.int64(1), threads_per_worker=np.int64(4))
    assert [first_value(batch) for batch in loader] == [0.0, 4.0, 8.0, 12.0]
    assert "through reusable shared memory" in loader.explain()


def test_batches_too_large_for_a_slot_go_torchs_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arenas, "LARGEST", 1 << 12)
    loader = FastLoader(pipelines.Tensors(16, (1000,)), batch_size=4, num_workers=1)
    assert [first_value(batch) for batch in loader] == [0.0, 4.0, 8.0, 12.0]
    assert "4 of 4 batches went torch's way" in loader.explain()


def test_a_system_without_nameless_files_goes_torchs_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    loader = FastLoader(pipelines.Tensors(16), batch_size=4, num_workers=1)
    assert len(list(loader)) == 4
    assert loader.explain().startswith("As DataLoader does it: this system has no memory to share without a name")


def test_a_system_that_takes_no_memory_back_goes_torchs_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """As gVisor, under which many clouds run containers: the epoch ended with an OSError."""
    monkeypatch.setattr(arenas, "REMOVE", 9999)
    loader = FastLoader(pipelines.Tensors(16), batch_size=4, num_workers=1)
    assert len(list(loader)) == 4
    assert "this system has no memory to share without a name" in loader.explain()


@pytest.mark.parametrize(("options", "why"), [({"engine": "torch", "num_workers": 1}, "asks for it"), ({}, "without workers")])
def test_why_torchs_way_is_taken_is_told(options: dict[str, Any], why: str) -> None:
    """Also before the first epoch, as the pages say: nothing was told then but that nothing had been loaded."""
    loader = FastLoader(pipelines.Tensors(8), **options)
    before = loader.explain()
    assert why in before
    list(loader)
    assert loader.explain() == before


class TestArena:
    @pytest.mark.parametrize("closed", [True, False])
    def test_what_is_lent_at_a_fork_is_not_written_as_long_as_the_child_lives(self, closed: bool) -> None:
        arena = Arena(1, 2, 1 << 16)
        for slot in (0, 1):
            arena.window(slot)[:] = b"x" * (1 << 16)
            arena.lend(slot)
        known_slot, unseen = arena.lease(0), arena.lease(1)
        arena.opened(0)
        before = len(os.listdir("/proc/self/fd"))
        until, tell = os.pipe()
        answered, tells = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(tell)
            os.read(until, 1)
            os.write(tells, bytes(known_slot[:1]))
            del known_slot, unseen
            os._exit(0)
        assert (arena._map[0], arena._map[1]) == (LENT, LENT), "a child gives nothing back"
        del known_slot, unseen
        assert (arena._map[0], arena._map[1]) == (LENT, FREE)
        arena.lease(1)
        assert arena._map[0] == LENT
        if closed:
            arena.close()
        os.close(tell)
        os.waitpid(child, 0)
        assert os.read(answered, 1) == b"x", "the child's batch is as it was"
        for fd in (until, answered, tells):
            os.close(fd)
        arena.lease(1)
        assert closed or arena._map[0] == FREE, "the child has ended"
        assert len(os.listdir("/proc/self/fd")) == before, "a descriptor of the fork is left"

    def test_memory_goes_back_when_it_is_closed(self) -> None:
        arena = Arena(1, 2, 1 << 20)
        for slot in range(3):
            arena.window(slot)[:] = b"x" * (1 << 20)
            arena.lend(slot)
        lease = arena.lease(1)
        arena.opened(1)
        assert os.fstat(arena._fd).st_blocks * 512 >= 3 << 20
        arena.close()
        assert os.fstat(arena._fd).st_blocks * 512 < (1 << 20) + (1 << 14)
        assert bytes(lease[:3]) == b"xxx"
        del lease
        assert os.fstat(arena._fd).st_blocks * 512 < 1 << 14

    @pytest.mark.parametrize(("pins", "state"), [(copy.deepcopy, FREE), (lambda batch: batch, LENT)], ids=["all", "nothing"])
    def test_what_pinning_does_not_copy_stays_the_callers_after_the_epoch(
        self, pins: Any, state: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Torch passes over arrays, dataclasses and types of the user's own: they were zeros once the workers had ended."""
        monkeypatch.setattr(batch_in_slot, "pin_memory", pins)
        arena, rows = Arena(1, 2, 1 << 16), np.arange(5000.0)
        file = io.BytesIO()
        batch_in_slot.Packer(file, batch_in_slot.SlotPage(arena.window(0))).dump([rows])
        arena.lend(0)
        arrival = batch_in_slot.Arrival(arena, 0, file.getvalue()).pin_memory()
        assert arena._map[0] == state
        batch = arrival.open()
        del arrival
        arena.close()
        assert np.array_equal(batch[0], rows)
        del batch
        gc.collect()
        assert os.fstat(arena._fd).st_blocks * 512 < 1 << 14

    def test_slots_take_at_most_a_quarter_of_the_memory_that_is_free(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(arenas, "memory_left", lambda: 4 << 30)
        assert arenas.room(16) == 1 << 26
        assert arenas.room(1) == arenas.LARGEST
        monkeypatch.setattr(arenas, "memory_left", lambda: 0)
        assert arenas.room(16) == arenas.SMALLEST

    def test_what_a_control_group_leaves_counts_as_it_is_measured_everywhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """There the page cache is no memory in use: a group that a dataset fills with it had slots of 64 KiB."""
        monkeypatch.setattr("pipefix.system.cgroups.memory_left", lambda: [256 << 20])
        assert arenas.room(16) == 4 << 20


EPOCHS = """
import gc, os, threading
from pipefix.loader.fast_loader import FastLoader
from tests.loader.pipelines import Tensors
loader = FastLoader(Tensors(64), batch_size=4, num_workers=2)
for _ in range(6):
    list(loader)
    gc.collect()
    for thread in set(threading.enumerate()) - {threading.main_thread()}:
        thread.join()  # a closed queue's thread closes the queue's pipe
    print(len(os.listdir("/proc/self/fd")))
"""


def test_nothing_is_left_open_after_epochs(preloaded: str) -> None:
    """In a process of its own, where no other test opens or closes anything meanwhile; what is opened once is open by then."""
    ran = subprocess.run([*preloaded.split(), "-c", EPOCHS], cwd=ROOT, capture_output=True, text=True, check=True)
    opened = [int(line) for line in ran.stdout.split()]
    assert min(opened[4:]) <= max(opened[:2]), f"descriptors after each epoch: {opened}"


KILLED = """
import os, signal
from pipefix.loader.fast_loader import FastLoader
from tests.loader.pipelines import Tensors
iterator = iter(
    FastLoader(Tensors(4000, (1000,)), batch_size=4, num_workers=2, multiprocessing_context={method!r}, engine="processes")
)
held = [next(iterator) for _ in range(60)]
print(os.getpid(), *[worker.pid for worker in iterator._workers], flush=True)
signal.pause()
"""


@pytest.mark.system
def test_nothing_is_left_behind_when_all_is_killed(preloaded: str) -> None:
    nothing_is_left_behind("fork", preloaded.split())


def nothing_is_left_behind(method: str, python: list[str]) -> None:
    """No file in /dev/shm, and no worker."""
    with subprocess.Popen([*python, "-c", KILLED.format(method=method)], cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        killed, *workers = [int(word) for word in child.stdout.readline().split()]
        assert len(workers) == 2
        os.kill(killed, signal.SIGKILL)
        child.communicate()
    while any(_runs(worker) for worker in workers):
        time.sleep(0.02)
    pids = {str(pid) for pid in (killed, *workers)}
    assert not [name for name in os.listdir("/dev/shm") if pids & set(name.replace("-", "_").split("_"))]


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


class TextFirst(Dataset[Any]):
    """Its first samples have nothing for a slot."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> Any:
        return "text" if index < 6 else torch.full((64, 64), index, dtype=torch.float32)


def test_batches_of_text_at_the_beginning_do_not_end_the_use_of_slots() -> None:
    loader = FastLoader(TextFirst(), batch_size=1, num_workers=1, engine="processes")
    batches = list(loader)
    assert batches[0] == ["text"] and first_value(batches[-1]) == 59.0
    assert loader._latest is not None and loader._latest.handed["slots"] > 0
