"""The hand-over: batches cross as they did, and each side says what it cost."""

from __future__ import annotations

import multiprocessing.connection
import multiprocessing.queues

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from pipefix.hooks import ipc_timer, torch_internals


class Numbers(Dataset):
    """Each batch also says what its worker's side had counted by then."""

    def __init__(self, report):
        self.report = report

    def __len__(self):
        return 8

    def __getitem__(self, index):
        counters = ipc_timer.attach().take() if self.report and get_worker_info() is not None else ipc_timer.Counters()
        return torch.full((1000,), index), counters.dumps_ns, counters.send_ns, counters.count


@pytest.fixture
def attached():
    side = ipc_timer.attach()
    side.take()
    yield side
    side.detach()


def test_batches_are_the_same(attached):
    loader = DataLoader(Numbers(False), batch_size=2, num_workers=2)
    rows = [batch[0] for batch in loader]
    assert torch.equal(torch.cat(rows)[:, 0], torch.arange(8))
    counters = attached.take()
    assert counters.poll_ns > 0
    assert counters.recv_ns > 0
    assert counters.loads_ns > 0
    assert attached.take() == ipc_timer.Counters()


def test_the_worker_counts_pickling_and_sending(attached):
    loader = DataLoader(Numbers(True), batch_size=None, num_workers=1)
    rows = [row[1:] for row in loader]
    later = [sum(column) for column in zip(*rows, strict=True)]
    assert all(value > 0 for value in later), later


def replaced_here():
    """What the classes themselves hold: inherited methods are to be inherited again."""
    return dict(vars(multiprocessing.connection.Connection)), multiprocessing.queues._ForkingPickler


def test_put_back_when_nobody_looks():
    before = replaced_here()
    assert "poll" not in before[0], "the methods are inherited, as nobody has replaced them so far"
    first, second = ipc_timer.attach(), ipc_timer.attach()
    assert replaced_here()[1] is not before[1]
    first.detach()
    assert replaced_here()[1] is not before[1]
    second.detach()
    assert replaced_here() == before
    second.detach()
    assert replaced_here() == before


def test_what_is_counted_while_it_is_taken_is_not_lost():
    side = ipc_timer.IpcTimer(clock=lambda: 0)
    side._sums.count = 3
    assert side.take().count == 3
    side._sums.count += 2
    assert side.take() == ipc_timer.Counters(count=2)
    assert side.take() == ipc_timer.Counters()


class Shared(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        samples = [torch.zeros(10), torch.zeros(10)]
        with torch_internals.not_a_worker():
            inside = torch.utils.data.default_collate(samples).is_shared()
        return inside, torch.utils.data.default_collate(samples).is_shared(), get_worker_info().id


def test_ordinary_memory_inside_a_worker():
    for inside, outside, worker in DataLoader(Shared(), batch_size=None, num_workers=1):
        assert (inside, outside, worker) == (False, True, 0)


def test_what_rebuilding_reads_is_counted_once(monkeypatch):
    """Rebuilding a tensor fetches its file through a connection of its own."""
    now = [0]
    reader, writer = multiprocessing.Pipe(duplex=False)
    side = ipc_timer.IpcTimer(lambda: now[0])

    class Rebuilt:
        @staticmethod
        def dumps(value, protocol=None):
            return value

        @staticmethod
        def loads(data):
            now[0] += 100
            return reader.recv_bytes()

    def receive(self, maxlength=None):
        now[0] += 7
        return b"a descriptor"

    monkeypatch.setattr(multiprocessing.connection.Connection, "recv_bytes", receive)
    monkeypatch.setattr(multiprocessing.queues, "_ForkingPickler", Rebuilt)
    side.attach()
    try:
        multiprocessing.queues._ForkingPickler.loads(b"")
        counters = side.take()
    finally:
        side.detach()
        reader.close()
        writer.close()
    assert (counters.recv_ns, counters.loads_ns) == (7, 100)
