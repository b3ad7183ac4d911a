"""What a loader tells of its epochs: figures and one line, from a meter that is felt by nobody."""

from __future__ import annotations

import logging
from itertools import count
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, SequentialSampler

from pipefix.loader import fast_loader
from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.metering.meter import FEW, Course, Meter, Stats
from tests.loader import pipelines
from tests.loader.test_meter import Clock


def course(pace: int, batches: int = FEW) -> Course:
    """Every batch is waited for and worked on for ``pace`` nanoseconds each."""
    clock = Clock()
    meter = Meter(clock=clock)
    course = Course(meter, 2)
    for _ in range(batches):
        meter.asked()
        clock.now += pace
        meter.got(8)
        clock.now += pace
    meter.asked()
    meter.ended()
    return course


def test_an_epoch_is_told_in_a_line() -> None:
    assert (
        str(course(10_000_000, 3).stats())
        == "Epoch 2: 3 batches of 24 samples in 60.0 ms, 40 % of the time waiting for them, the first after 10.0 ms."
    )
    assert (  # these were 4.13e+03 s and 1.3e+02 s
        str(Stats(3, 1250, 80_000, 130.0, 400.0, 3600.0))
        == "Epoch 3: 1,250 batches of 80,000 samples in 68.8 min, 10 % of the time waiting for them, the first after 2.2 min."
    )


def test_before_the_first_batch_there_is_nothing_to_tell() -> None:
    loader: Any = FastLoader(pipelines.Tensors())
    assert str(loader.stats()) == "No batch has been loaded yet."


def test_the_epochs_start_is_no_waiting() -> None:
    assert Stats(0, 4, 8, 0.1, 0.1, 0.3).waiting == pytest.approx(0.25)


@pytest.mark.parametrize(("pace", "quick"), [(50_000, True), (500_000, False)])
def test_batches_in_quick_succession_are_known(pace: int, quick: bool) -> None:
    assert course(pace).quick() is quick


@pytest.mark.parametrize("workers", [0, 2])
def test_the_latest_epoch_is_counted(workers: int, caplog: pytest.LogCaptureFixture) -> None:
    loader: Any = FastLoader(pipelines.Tensors(24), batch_size=4, num_workers=workers, persistent_workers=workers > 0)
    with caplog.at_level(logging.INFO, "pipefix.loader"):
        list(loader)
        for number, _ in enumerate(loader):
            if number == 2:
                break
    stats = loader.stats()
    assert (stats.epoch, stats.batches, stats.samples) == (1, 3, 12)
    assert stats.start_s > 0 and stats.metered
    assert loader.meter.batches == 9 and loader.meter.epochs == 2
    assert [message.split(" samples")[0] for message in caplog.messages] == ["Epoch 0: 6 batches of 24"]


@pytest.mark.parametrize(("workers", "drop_last", "samples"), [(0, True, 24), (1, False, 26)])
def test_a_smaller_last_batch_is_counted_as_it_is(workers: int, drop_last: bool, samples: int) -> None:
    loader: Any = FastLoader(pipelines.Tensors(26), batch_size=4, num_workers=workers, drop_last=drop_last)
    list(loader)
    assert loader.stats().samples == samples
    list(loader)
    assert loader.meter.samples == 2 * samples
    resumed: Any = FastLoader(pipelines.Tensors(26), batch_size=4, num_workers=workers, drop_last=drop_last)
    for number, _ in enumerate(loader):
        if number == 2:
            break
    resumed.load_state_dict(loader.state_dict())
    list(resumed)
    assert resumed.stats().samples == samples - 12


def test_pictures_that_are_not_stacked_are_counted() -> None:
    """As detection has them, with a batch sampler: each batch counted as three samples, the channels of its first picture."""
    pictures: Any = [(torch.zeros(3, 5, 7), {"boxes": torch.zeros(2, 4)})] * 24
    batches = BatchSampler(SequentialSampler(pictures), 4, False)
    loader: Any = FastLoader(pictures, batch_sampler=batches, collate_fn=lambda samples: tuple(zip(*samples, strict=True)))
    list(loader)
    assert loader.stats().samples == 24


@pytest.mark.parametrize("workers", [0, 2])
def test_the_last_batches_of_a_stream_are_counted_as_they_are(workers: int) -> None:
    """Each worker's."""
    loader: Any = FastLoader(pipelines.Stream(21), batch_size=4, num_workers=workers)
    assert len(list(loader)) == 6
    assert loader.stats().samples == 21


def test_without_workers_quick_batches_are_metered_only_while_somebody_reads(caplog: pytest.LogCaptureFixture) -> None:
    loader: Any = FastLoader(pipelines.Tensors(400), batch_size=2)
    loader._meter = Meter(clock=count(0, 10_000).__next__)  # each look at it is 10 µs after the one before
    with caplog.at_level(logging.INFO, "pipefix.loader"):
        list(loader)
    assert caplog.messages == [str(loader.stats())], "the end of such an epoch was not logged"
    assert (loader.stats().batches, loader.stats().metered) == (FEW, False)
    assert "too quick to be metered each" in str(loader.stats())
    loader.meter.read = True
    list(loader)
    assert (loader.stats().batches, loader.stats().metered) == (200, True)


def test_an_epoch_made_by_plain_means_is_counted_and_logged_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing was logged, and a smaller last batch counted as a whole one."""
    monkeypatch.setattr(fast_loader, "why_plain", lambda: "this torch is another")
    loader: Any = FastLoader(pipelines.Tensors(10), batch_size=4)
    with caplog.at_level(logging.INFO, "pipefix.loader"):
        list(loader)
    assert loader.stats().samples == 10
    assert caplog.messages == [str(loader.stats())]
