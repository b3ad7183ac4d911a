"""An epoch gone on with by other ranks, or in other batches: every sample of it once, but for torch's own padding."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from torch.utils.data import BatchSampler, DistributedSampler, Sampler

from pipefix.loader.fast_loader import FastLoader
from tests.loader import pipelines
from tests.loader.test_resume import through_a_file

WORLDS = some.integers(1, 7)


def places(samples: int) -> Any:
    """A dataset whose samples are their indices."""
    return list(range(samples))


def ranks_of(world: int, samples: int, batch_size: int | None, *, epoch: int = 0, **options: Any) -> list[FastLoader[Any]]:
    """The loaders of a job of ``world`` ranks."""
    loaders = []
    dataset = pipelines.Drawing() if options.get("rng") == "sample" else places(samples)
    rank_options = {name: options.pop(name) for name in ("shuffle", "drop_last") if name in options}
    for rank in range(world):
        sampler = DistributedSampler(range(samples), num_replicas=world, rank=rank, seed=3, **rank_options)
        sampler.set_epoch(epoch)
        loaders.append(FastLoader(dataset, batch_size=batch_size, sampler=sampler, **options))
    return loaders


def taken(iterators: list[Any], steps: int) -> list[int]:
    """The samples that all ranks consume in so many steps; each rank takes one batch a step."""
    samples = []
    for _ in range(steps):
        for iterator in iterators:
            batch = next(iterator, None)
            if batch is not None:
                samples += batch.tolist() if isinstance(batch, torch.Tensor) else batch[0].tolist()
    return samples


def all_of(iterators: list[Any]) -> list[int]:
    return [sample for iterator in iterators for batch in iterator for sample in batch.tolist()]


@given(
    some.integers(1, 60),
    some.lists(some.tuples(WORLDS, some.integers(1, 5), some.integers(0, 6)), min_size=2, max_size=4),
    some.integers(0, 2),
    some.booleans(),
)
def test_nothing_is_lost_and_nothing_doubled_but_for_padding(
    samples: int, jobs: list[tuple[int, int, int]], epoch: int, shuffle: bool
) -> None:
    """Each job: ranks, batch size, and the steps after which it is stopped. The last one runs to the end."""
    consumed, state, ahead = Counter[int](), None, True
    for number, (world, batch_size, steps) in enumerate(jobs):
        loaders = ranks_of(world, samples, batch_size, epoch=epoch if number == 0 else 0, shuffle=shuffle)
        if state is not None:
            for loader in loaders:
                loader.load_state_dict(state)
        iterators = [iter(loader) for loader in loaders]
        if number == len(jobs) - 1:
            consumed.update(all_of(iterators))
            break
        consumed.update(taken(iterators, steps))
        ahead = len(consumed) < samples
        state = through_a_file(loaders[-1].state_dict())
        if not ahead:
            break
    assert set(consumed) == set(range(samples))
    extra = sum(consumed.values()) - samples
    assert 0 <= extra < max(world for world, _, _ in jobs) + (0 if ahead else max(size for _, size, _ in jobs))


@given(WORLDS, some.sampled_from([12, 24, 60]), some.integers(0, 4), some.data())
def test_the_same_global_batch_gives_the_same_global_batches(before: int, global_batch: int, steps: int, data: Any) -> None:
    divisors = [world for world in range(1, 13) if global_batch % world == 0]
    before, after = data.draw(some.sampled_from(divisors)), data.draw(some.sampled_from(divisors))
    samples = global_batch * 6

    def steps_of(loaders: list[Any]) -> list[list[int]]:
        iterators = [iter(loader) for loader in loaders]
        return [sorted(taken(iterators, 1)) for _ in range(6 - steps)]

    whole = ranks_of(before, samples, global_batch // before)
    taken([iter(loader) for loader in whole], steps)
    state = whole[0].state_dict()
    expected = ranks_of(before, samples, global_batch // before)
    others = ranks_of(after, samples, global_batch // after)
    for loader in (*expected, *others):
        loader.load_state_dict(state)
    assert steps_of(others) == steps_of(expected)


@pytest.mark.parametrize(("before", "after", "by"), [(4, 6, {}), (1, 2, {"num_workers": 1}), (3, 1, {"threads_per_worker": 3})])
def test_each_way_of_making_batches_goes_on(before: int, after: int, by: dict[str, Any]) -> None:
    loaders = ranks_of(before, 40, 2)
    behind = taken([iter(loader) for loader in loaders], 3)
    others = ranks_of(after, 40, 2, **by)
    for loader in others:
        loader.load_state_dict(loaders[0].state_dict())
    rest = all_of([iter(loader) for loader in others])
    assert set(behind + rest) == set(range(40))
    assert len(behind + rest) == 6 * before + math.ceil((40 - 6 * before) / after) * after
    # The epoch after it is the sampler's own again.
    for loader in others:
        loader.sampler.set_epoch(1)
    assert len(all_of([iter(loader) for loader in others])) == math.ceil(40 / after) * after


def test_pixels_with_numbers_of_their_own_stay_the_same() -> None:
    torch.manual_seed(5)
    whole = ranks_of(2, 40, 5, rng="sample")
    of_each = {int(i): n for loader in whole for batch in loader for i, n in zip(batch[0], batch[1], strict=True)}
    torch.manual_seed(5)
    first = ranks_of(2, 40, 5, rng="sample")
    taken([iter(loader) for loader in first], 2)
    torch.manual_seed(77)
    others = ranks_of(3, 40, 1, rng="sample")
    for loader in others:
        loader.load_state_dict(first[1].state_dict())
        for batch in loader:
            assert all(torch.equal(of_each[int(i)], n) for i, n in zip(batch[0], batch[1], strict=True))


def test_a_position_after_a_change_of_ranks_is_gone_on_with_by_the_same_ranks() -> None:
    first = ranks_of(4, 50, 2)
    behind = taken([iter(loader) for loader in first], 2)
    second = ranks_of(3, 50, 2)
    for loader in second:
        loader.load_state_dict(first[0].state_dict())
    iterators = [iter(loader) for loader in second]
    behind += taken(iterators, 2)
    states = [loader.state_dict() for loader in second]
    assert [state["consumed"] for state in states] == [28, 28, 28]
    third = ranks_of(3, 50, 2)
    for loader, state in zip(third, states, strict=True):
        loader.load_state_dict(state)
    assert [all_of([iter(loader)]) for loader in third] == [all_of([iterator]) for iterator in iterators]


@pytest.mark.parametrize("shuffle", [False, True])
def test_one_process_may_change_its_batch_size(shuffle: bool) -> None:
    def loader(batch_size: int) -> FastLoader[Any]:
        return FastLoader(places(40), batch_size=batch_size, shuffle=shuffle)

    torch.manual_seed(3)
    first, second = loader(4), loader(5)
    iterator = iter(first)
    behind = taken([iterator], 3)
    state = first.state_dict()
    rest = all_of([iterator])
    torch.manual_seed(9)
    second.load_state_dict(state)
    assert len(behind) == state["consumed"] == 12
    assert all_of([iter(second)]) == rest
    assert "goes on after 12 samples" in second.explain()


class Endless(Sampler[int]):
    """It has no length."""

    def __iter__(self) -> Any:
        return itertools.cycle(range(40))


def test_a_sampler_without_a_length_goes_on_in_batches_of_another_size() -> None:
    """The state was taken over, and the first batch was a TypeError."""
    first, second = (FastLoader(places(40), batch_size=size, sampler=Endless()) for size in (4, 5))
    taken([iter(first)], 3)
    second.load_state_dict(first.state_dict())
    assert taken([iter(second)], 2) == list(range(12, 22))
    assert "goes on after 12 samples" in second.explain()


class AtOnce(Sampler[int]):
    """It draws its order where it is asked for an iterator, as many of users' own do."""

    def __len__(self) -> int:
        return 40

    def __iter__(self) -> Any:
        return iter(torch.randperm(40).tolist())


@pytest.mark.parametrize("workers", [0, 1])
def test_an_order_that_is_drawn_at_once_goes_on_in_batches_of_another_size(workers: int) -> None:
    """It was drawn before the workers' seed, and not after it: another order, in which samples were lost and came twice."""
    options: dict[str, Any] = {"sampler": AtOnce(), "num_workers": workers}
    first, second = (FastLoader(places(40), batch_size=size, **options) for size in (4, 5))
    behind = taken([iter(first)], 3)
    second.load_state_dict(first.state_dict())
    assert sorted(behind + all_of([iter(second)])) == list(range(40))


def test_what_is_padded_and_left_out_is_told() -> None:
    first = ranks_of(4, 50, 2)
    taken([iter(loader) for loader in first], 2)
    for loader in (*ranks_of(5, 50, 2), *ranks_of(3, 50, 2, drop_last=True)):
        loader.load_state_dict(first[0].state_dict())
        iter(loader)
        added = "with 1 sample of the epoch once more" if loader.sampler.num_replicas == 5 else "without 1 sample"
        assert f"goes on after 16 samples of all ranks, dealt anew to {loader.sampler.num_replicas}, {added}" in loader.explain()


class TestRefused:
    def test_a_sampler_whose_order_is_not_torchs(self) -> None:
        class Own(DistributedSampler[Any]):
            def __iter__(self) -> Any:
                return iter(range(self.rank, 40, self.num_replicas))

        def loader(world: int) -> FastLoader[Any]:
            return FastLoader(places(40), batch_size=2, sampler=Own(range(40), num_replicas=world, rank=0))

        first = loader(4)
        taken([iter(first)], 2)
        with pytest.raises(ValueError, match=r"taken with 4 ranks, and this loader is one of 3.*only torch's own samplers"):
            loader(3).load_state_dict(first.state_dict())

    def test_batches_of_ones_own(self) -> None:
        class Own(BatchSampler):
            pass

        def loader(size: int, world: int) -> FastLoader[Any]:
            sampler = DistributedSampler(range(40), num_replicas=world, rank=0)
            return FastLoader(places(40), batch_sampler=Own(sampler, size, False))

        first = loader(2, 2)
        taken([iter(first)], 2)
        with pytest.raises(ValueError, match="taken with 2 ranks, and this loader is one of 4"):
            loader(2, 4).load_state_dict(first.state_dict())

    def test_a_state_without_ranks_for_a_rank(self) -> None:
        first = FastLoader(places(40), batch_size=2)
        taken([iter(first)], 2)
        with pytest.raises(ValueError, match="the order of a DistributedSampler is another"):
            ranks_of(2, 40, 2)[0].load_state_dict(first.state_dict())

    def test_batches_that_came_in_any_order(self) -> None:
        first = ranks_of(4, 40, 2, num_workers=2, in_order=False)[0]
        taken([iter(first)], 2)
        with pytest.raises(ValueError, match="with in_order=False"):
            ranks_of(3, 40, 2)[0].load_state_dict(first.state_dict())

    def test_a_stream_in_other_batches(self) -> None:
        first = FastLoader(pipelines.Stream(), batch_size=2)
        next(iter(first))
        with pytest.raises(ValueError, match="taken with 2 as batch size, and this loader has 3"):
            FastLoader(pipelines.Stream(), batch_size=3).load_state_dict(first.state_dict())

    @pytest.mark.parametrize(("before", "after"), [(2, 0), (1, 2), (0, 1)])
    def test_a_stream_with_another_number_of_workers(self, before: int, after: int) -> None:
        """Each has a part of it: samples were lost and came twice. A single one has all of it, and shuffles it
        by other numbers than this process."""
        first = FastLoader(pipelines.Stream(), batch_size=2, num_workers=before)
        next(iter(first))
        with pytest.raises(ValueError, match=r"taken with \d workers? to read the stream, and this loader has \d: "):
            FastLoader(pipelines.Stream(), batch_size=2, num_workers=after).load_state_dict(first.state_dict())
