"""The hand-over: batches cross as they did, and each side says what it cost."""

from __future__ import annotations

import multiprocessing.connection
import multiprocessing.queues

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from pipefix.seams import handover


class Numbers(Dataset):
    """Each batch also says what its worker's side had counted by then."""

    def __init__(self, report):
        self.report = report

    def __len__(self):
        return 8

    def __getitem__(self, index):
        counters = handover.attach().take() if self.report and get_worker_info() is not None else handover.Counters()
        return torch.full((1000,), index), counters.dumps_ns, counters.send_ns, counters.bytes, counters.count


@pytest.fixture
def attached():
    side = handover.attach()
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
    assert counters.bytes > 0
    assert attached.take() == handover.Counters()


def test_the_worker_counts_pickling_and_sending(attached):
    loader = DataLoader(Numbers(True), batch_size=None, num_workers=1)
    told = [row[1:] for row in loader]
    later = [sum(column) for column in zip(*told, strict=True)]
    assert all(value > 0 for value in later), later


def test_put_back_when_nobody_looks():
    before = (
        multiprocessing.connection.Connection.poll,
        multiprocessing.connection.Connection.send_bytes,
        multiprocessing.connection.Connection.recv_bytes,
        multiprocessing.queues._ForkingPickler,
    )
    first, second = handover.attach(), handover.attach()
    assert multiprocessing.queues._ForkingPickler is not before[3]
    first.detach()
    assert multiprocessing.queues._ForkingPickler is not before[3]
    second.detach()
    after = (
        multiprocessing.connection.Connection.poll,
        multiprocessing.connection.Connection.send_bytes,
        multiprocessing.connection.Connection.recv_bytes,
        multiprocessing.queues._ForkingPickler,
    )
    assert after == before


class Shared(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        samples = [torch.zeros(10), torch.zeros(10)]
        with handover.plain_memory():
            inside = torch.utils.data.default_collate(samples).is_shared()
        return inside, torch.utils.data.default_collate(samples).is_shared(), get_worker_info().id


def test_plain_memory_inside_a_worker():
    for inside, outside, worker in DataLoader(Shared(), batch_size=None, num_workers=1):
        assert (inside, outside, worker) == (False, True, 0)
