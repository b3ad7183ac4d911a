from __future__ import annotations

import random
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, get_worker_info

from pipefix.fixes import same_samples, speedup
from pipefix.fixes.same_samples import differences, fingerprint
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


class TestStreams:
    def test_workers_that_all_run_the_whole_stream_are_found_out(self):
        one, three = (load(DataLoader(Stream(shards=False), batch_size=4, num_workers=count)) for count in (0, 3))
        found = same_samples.same(one, three)
        assert found.kind == "unlike" and "every worker runs the whole stream" in found.sentence

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


PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=5))
TREES = st.recursive(
    PLAIN, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3))
)


class TestDifferences:
    @given(TREES)
    def test_a_value_equals_itself(self, tree):
        assert not list(differences(tree, tree))
        assert fingerprint(tree) == fingerprint(tree)

    @pytest.mark.parametrize(
        ("one", "other", "said"),
        [
            (torch.zeros(2), torch.zeros(3), "is float32 3 instead of float32 2"),
            (torch.zeros(2), torch.ones(2), "holds other values"),
            ([1, 2], [1], "has 1 parts instead of 2"),
            ({"a": 1}, {"b": 1}, "has other keys"),
            ({"a": 1}, {"a": 2}, "['a'] is 2 instead of 1"),
            (1, "1", "is a str instead of a int"),
            (np.array(["a"]), np.array(["b"]), "holds other values"),
        ],
    )
    def test_differences_are_named(self, one, other, said):
        assert said in next(differences(one, other)).what

    def test_pictures_are_compared_by_their_pixels(self):
        black, grey = (Image.new("L", (4, 4), value) for value in (0, 3))
        assert next(differences(black, grey)).mean == 3
        assert not list(differences(black, Image.new("L", (4, 4), 0)))

    def test_nan_equals_nan(self):
        assert not list(differences([float("nan"), torch.tensor([float("nan")])], [float("nan"), torch.tensor([float("nan")])]))
