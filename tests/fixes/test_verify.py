from __future__ import annotations

import random
import time

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, get_worker_info

from pipefix.fixes import same_samples, speedup
from pipefix.measurement.consumer import Consumer
from pipefix.subject.load import load
from pipefix.vocabulary.errors import TargetError


class Numbers(Dataset):
    """Sample i is i, plus noise of torch's, and takes ``seconds``."""

    def __init__(self, shift=0.0, noise=True, count=64, seconds=0.0):
        self.shift, self.noise, self.count, self.seconds = shift, noise, count, seconds
        self.generator = np.random.default_rng(0)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(self.seconds)
        noise = torch.rand(4) + float(self.generator.random()) if self.noise else torch.zeros(4)
        return {"x": index + noise + self.shift, "name": f"n{index}"}


def subject(dataset, **options):
    return load(DataLoader(dataset, batch_size=4, **options))


class TestSame:
    def test_random_numbers_are_fixed_and_left_as_they_were(self):
        data = Numbers()
        state, own = torch.get_rng_state(), data.generator.bit_generator.state
        found = same_samples.same(subject(data), subject(Numbers()))
        assert found.kind == "equal" and found.samples == same_samples.SAMPLES
        assert torch.equal(state, torch.get_rng_state()) and data.generator.bit_generator.state == own

    def test_how_far_values_lie_apart_is_told(self):
        found = same_samples.same(subject(Numbers()), subject(Numbers(shift=0.5)), alters="pictures are smaller")
        assert found.kind == "different"
        assert found.sentence.startswith("pictures are smaller: in 24 samples compared, values differ by 0.5 on average")

    def test_another_shape_is_more_than_another_value(self):
        class Longer(Numbers):
            def __getitem__(self, index):
                return {**super().__getitem__(index), "x": torch.zeros(5)}

        found = same_samples.same(subject(Numbers()), subject(Longer()), alters="pictures are smaller")
        assert (found.kind, found.sentence) == ("unlike", "the sample['x'] is float32 5 instead of float32 4")

    def test_what_cannot_be_fixed_cannot_be_compared(self):
        class Clock(Numbers):
            def __getitem__(self, index):
                return time.perf_counter_ns()

        assert same_samples.same(subject(Clock()), subject(Clock())).kind == "unchecked"

    def test_another_length(self):
        assert same_samples.same(subject(Numbers()), subject(Numbers(count=60))).sentence == "60 samples instead of 64"

    def test_the_same_dataset_needs_no_look(self):
        data = Numbers()
        assert same_samples.same(subject(data), subject(data)).kind == "equal"
        assert same_samples.same(subject(data), subject(data, in_order=False)).kind == "order"


class Stream(IterableDataset):
    def __init__(self, shards):
        self.shards = shards

    def __iter__(self):
        worker = get_worker_info()
        first, each = (worker.id, worker.num_workers) if worker is not None and self.shards else (0, 1)
        for number in range(first, 400, each):
            yield torch.tensor([number]), torch.rand(2)


class Shuffled(IterableDataset):
    """All of a long stream, in an order of each worker's own."""

    def __iter__(self):
        worker = get_worker_info()
        numbers = list(range(100_000))
        random.Random(worker.seed if worker is not None else 0).shuffle(numbers)
        yield from numbers


class Short(IterableDataset):
    def __iter__(self):
        yield from range(5)


class TestStreams:
    def test_workers_that_all_run_the_whole_stream_are_found_out(self):
        one, three = (load(DataLoader(Stream(shards=False), batch_size=4, num_workers=count)) for count in (0, 3))
        found = same_samples.same(one, three)
        assert found.kind == "unlike" and "every worker runs the whole stream" in found.sentence

    def test_workers_that_run_it_in_orders_of_their_own_are_found_out(self):
        """Of the first samples of a long stream none may have come twice yet."""
        one, three = (load(DataLoader(Shuffled(), batch_size=4, num_workers=count)) for count in (0, 3))
        assert same_samples.same(one, three).kind == "unlike"

    def test_a_slow_stream_is_looked_at_for_a_while(self, monkeypatch):
        """192 samples of a minute each were waited for, twice."""
        monkeypatch.setattr(same_samples, "STREAMING", -1.0)
        one, three = (load(DataLoader(Stream(shards=False), batch_size=4, num_workers=count)) for count in (0, 3))
        assert "4 of 6 samples came again" in same_samples.same(one, three).sentence

    def test_samples_of_a_short_stream_are_counted_as_they_are(self):
        """They were said to be 192."""
        one, two = (load(DataLoader(Short(), batch_size=4, num_workers=count)) for count in (0, 2))
        assert same_samples.same(one, two).samples == 5

    def test_a_stream_that_shards_itself_is_the_same_in_another_order(self):
        one, three = (load(DataLoader(Stream(shards=True), batch_size=4, num_workers=count)) for count in (0, 3))
        assert same_samples.same(one, three).kind == "order"

    def test_no_more_workers_is_no_question(self):
        one = load(DataLoader(Stream(shards=False), batch_size=4))
        assert same_samples.same(one, one).kind == "equal"


class OnAClock(Numbers):
    """Takes its ``seconds``, a fifth more or less, by a clock that nothing else moves on."""

    now = 0.0
    chance = random.Random(0)

    def __getitem__(self, index):
        OnAClock.now += self.seconds * self.chance.uniform(0.8, 1.2)
        return index


class OnADisk(OnAClock):
    """Takes ten times its ``seconds`` where a sample is read for the first time."""

    def __init__(self, seconds):
        super().__init__(seconds=seconds, count=4000)
        self.read = set()

    def __getitem__(self, index):
        OnAClock.now += 0.0 if index in self.read else 9 * self.seconds
        self.read.add(index)
        return super().__getitem__(index)


class TestFaster:
    def test_where_the_second_pipeline_cannot_start_the_first_is_closed(self, monkeypatch):
        closed = []

        class One:
            def close(self, *, at_once):
                closed.append(at_once)

        def pool(pipeline):
            if pipeline is after:
                raise TargetError("no")
            return One()

        monkeypatch.setattr(speedup, "_pool", pool)
        before, after = (speedup.Pipeline(subject(Numbers(4)), Consumer()) for _ in range(2))
        with pytest.raises(TargetError):
            speedup.faster(before, after, seconds=100.0)
        assert closed == [True]

    def test_the_faster_pipeline_is_told_from_the_slower(self, monkeypatch):
        monkeypatch.setattr(speedup, "perf_counter", lambda: OnAClock.now)
        slow, quick = (speedup.Pipeline(subject(OnAClock(seconds=each)), Consumer()) for each in (0.006, 0.002))
        up, down = (speedup.faster(*pair, seconds=0.4) for pair in ((slow, quick), (quick, slow)))
        assert up.faster and up.gain.value > 1.5 and up.pairs >= speedup.FEWEST_PAIRS
        assert down.slower and not down.faster
        assert up.after.value > up.before.value

    def test_what_is_read_from_memory_later_is_not_read_from_the_disk_alone(self, monkeypatch):
        """A cache's few records lie in memory, and files of samples that come for the first time do not."""
        monkeypatch.setattr(speedup, "perf_counter", lambda: OnAClock.now)
        pair = [speedup.Pipeline(subject(dataset), Consumer()) for dataset in (OnADisk(0.006), OnAClock(seconds=0.002))]
        assert speedup.faster(*pair, seconds=0.4, from_memory=True).gain.value == pytest.approx(3.0, rel=0.1)
        assert speedup.faster(*pair, seconds=0.4).gain.value > 10

    def test_looking_at_starts_of_epochs_draws_nothing_of_the_users_generator(self):
        generator = torch.Generator()
        loader = DataLoader(Numbers(count=48), batch_size=4, sampler=RandomSampler(Numbers(count=48), generator=generator))
        state, global_state = generator.get_state(), torch.get_rng_state()
        assert len(speedup.epoch_starts(load(loader))) == speedup.STARTS
        assert torch.equal(generator.get_state(), state) and torch.equal(torch.get_rng_state(), global_state)

    def test_the_starts_of_epochs_count_where_they_are_asked_for(self, monkeypatch):
        """48 samples, 1,000 in a second, and half a second until the first comes."""
        monkeypatch.setattr(speedup, "epoch_starts", lambda loader, *_: [0.5] * 3 if loader is anew.subject else [0.0] * 3)
        anew, kept = (speedup.Pipeline(subject(Numbers(count=48)), Consumer()) for _ in range(2))
        found = speedup._whole_epochs(anew, kept, {"before": [1000.0] * 5, "after": [1000.0] * 5})
        assert found.epochs and found.faster
        assert found.before.value == pytest.approx(48 / 0.548) and found.after.value == pytest.approx(1000.0)

    def test_starts_are_spread_over_what_the_sampler_draws(self, monkeypatch):
        monkeypatch.setattr(speedup, "epoch_starts", lambda *_: [0.5] * 3)
        data = Numbers(count=48)
        often = RandomSampler(data, replacement=True, num_samples=48_000_000)
        anew = speedup.Pipeline(subject(data, num_workers=1, sampler=often), Consumer())
        rates = {"before": [1000.0] * 5, "after": [1000.0] * 5}
        assert speedup._whole_epochs(anew, anew, rates).before.value == pytest.approx(1000.0, rel=1e-3)
