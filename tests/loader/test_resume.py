"""An epoch gone on with: the same batches as if it had never stopped, and nothing read again."""

from __future__ import annotations

import copy
import io
import pickle
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, Sampler, SequentialSampler, WeightedRandomSampler

from pipefix.hooks.torch_internals import WorkersIterator
from pipefix.loader.fast_loader import FastLoader
from pipefix.vocabulary.nested import map_leaves
from tests.loader import pipelines
from tests.loader.likeness import assert_same
from tests.loader.ways import made_by

SAMPLERS: dict[str, Any] = {
    "in order": lambda: {"batch_size": 4},
    "shuffled": lambda: {"batch_size": 4, "shuffle": True},
    "a generator": lambda: {"batch_size": 4, "shuffle": True, "generator": torch.Generator().manual_seed(5)},
    "weights": lambda: {"batch_size": 4, "sampler": WeightedRandomSampler([0.1, 0.9] * 20, 36)},
    "with replacement": lambda: {"batch_size": 4, "sampler": RandomSampler(range(40), replacement=True, num_samples=40)},
    "a rank": lambda: {"batch_size": 4, "sampler": DistributedSampler(range(40), num_replicas=2, rank=1, seed=3)},
    "batches": lambda: {"batch_sampler": BatchSampler(SequentialSampler(range(40)), 3, True)},
    "single samples": lambda: {"batch_size": None, "shuffle": True},
}


def indices(batches: Any) -> list[Any]:
    return [torch.as_tensor(batch[0]).reshape(-1).tolist() for batch in batches]


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return dict(torch.load(file, weights_only=True))


@given(
    some.sampled_from(sorted(SAMPLERS)),
    some.integers(0, 11),
    some.integers(0, 1),
    some.sampled_from(["torch", "sample"]),
    some.sampled_from([(0, 0)] * 8 + [(0, 1), (2, 0)]),
)
def test_a_cut_anywhere_changes_nothing(name: str, cut: int, epoch: int, rng: str, workers: tuple[int, int]) -> None:
    """The sampler's order for ``rng="torch"``; every number drawn as well for ``rng="sample"``, whatever the workers."""
    look = list if rng == "sample" else indices
    before, after = ({"rng": rng, "num_workers": number} for number in workers)
    gone_on_with(pipelines.Drawing(), look, name, cut, epoch, before, after)


def gone_on_with(dataset: Any, look: Any, name: str, cut: int, epoch: int, before: Any, after: Any) -> None:
    torch.manual_seed(11)
    whole = FastLoader(dataset, **before, **SAMPLERS[name]())
    for _ in range(epoch):
        list(whole)
    iterator = iter(whole)
    for _ in range(min(cut, len(whole))):
        next(iterator)
    state = through_a_file(whole.state_dict())
    rest = list(iterator)

    torch.manual_seed(99)
    resuming = FastLoader(dataset, **after, **SAMPLERS[name]())
    resuming.load_state_dict(state)
    process = torch.get_rng_state()
    resumed = iter(resuming)
    if after["num_workers"]:
        assert torch.equal(torch.get_rng_state(), process)
    assert_same(look(resumed), look(rest))


@made_by(0, 2)
def test_nothing_that_lies_behind_is_read(by: dict[str, Any], tmp_path: Any) -> None:
    note = tmp_path / "read"
    whole = FastLoader(pipelines.Tensors(40), batch_size=4, shuffle=True, **by)
    iterator = iter(whole)
    behind = [next(iterator) for _ in range(6)]
    resumed = FastLoader(pipelines.Noting(str(note), 40), batch_size=4, shuffle=True, **by)
    resumed.explain()  # what is looked at before threads begin
    note.write_text("")
    resumed.load_state_dict(whole.state_dict())
    list(resumed)
    read = sorted(map(int, note.read_text().split()))
    assert len(read) == 16
    assert sorted(read + [int(sample[0]) for batch in behind for sample in batch]) == list(range(40))


class OnADevice(torch.Tensor):
    """As ``torch.load(..., map_location="cuda")`` leaves it."""

    here: torch.Tensor

    def cpu(self) -> torch.Tensor:  # type: ignore[override]
        return self.here


def on_a_device(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    moved = torch.empty_like(leaf, device="meta").as_subclass(OnADevice)
    moved.here = leaf
    return moved


@pytest.mark.parametrize("batches", [0, 2])
def test_a_state_may_have_been_loaded_onto_a_device(batches: int) -> None:
    def loader() -> Any:
        return FastLoader(pipelines.Tensors(16), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(5))

    whole, resumed = loader(), loader()
    iterator = iter(whole if batches else range(0))
    for _ in range(batches):
        next(iterator)
    resumed.load_state_dict(map_leaves(on_a_device, whole.state_dict()))
    assert_same(list(resumed), list(iterator if batches else whole))


def test_after_an_epoch_the_next_one_begins() -> None:
    generator = torch.Generator().manual_seed(5)
    whole = FastLoader(pipelines.Tensors(16), batch_size=4, shuffle=True, generator=generator)
    list(whole)
    state = whole.state_dict()
    assert (state["epoch"], state["batches"]) == (1, 0)
    following = list(whole)
    resumed = FastLoader(pipelines.Tensors(16), batch_size=4, shuffle=True, generator=torch.Generator())
    resumed.load_state_dict(state)
    assert_same(list(resumed), following)


@pytest.mark.parametrize("own", [{"generator": 5}, {}])
@pytest.mark.parametrize("workers", [0, 1])
def test_between_epochs_no_seed_is_drawn_for_workers_that_would_have_lived_on(own: dict[str, int], workers: int) -> None:
    """The order came from the generator after one draw too many."""

    def loader(workers: int = 1) -> Any:
        options: dict[str, Any] = {name: torch.Generator().manual_seed(seed) for name, seed in own.items()}
        options |= {"num_workers": workers, "persistent_workers": workers > 0}
        return FastLoader(pipelines.Tensors(16), batch_size=4, shuffle=True, **options)

    whole = loader()
    list(whole)
    state, numbers = whole.state_dict(), torch.get_rng_state()
    expected = [list(whole), list(whole)]
    resumed = loader(workers)
    torch.set_rng_state(numbers)  # of the user's checkpoint
    resumed.load_state_dict(state)
    resumed.load_state_dict(resumed.state_dict())
    assert_same(list(resumed), expected[0])
    if workers:
        assert_same(list(resumed), expected[1])


def test_epochs_after_the_one_gone_on_with_are_the_same() -> None:
    def loader() -> Any:
        generator = torch.Generator().manual_seed(5)
        options: dict[str, Any] = {"num_workers": 2, "persistent_workers": True, "generator": generator, "shuffle": True}
        return FastLoader(pipelines.Tensors(16), batch_size=4, **options)

    whole = loader()
    list(whole)
    iterator = iter(whole)
    next(iterator)
    state = whole.state_dict()
    expected = [list(iterator), list(whole), list(whole)]
    resumed = loader()
    resumed.load_state_dict(state)
    assert_same([list(resumed) for _ in range(3)], expected)


def test_a_loop_that_was_left_stands_where_it_was_left() -> None:
    loader = FastLoader(pipelines.Tensors(40), batch_size=4, num_workers=1)
    for number, _ in enumerate(loader):
        if number == 2:
            break
    assert loader.state_dict()["batches"] == 3
    loader.load_state_dict(loader.state_dict())
    assert loader.state_dict()["batches"] == 3
    assert float(next(iter(loader))[0, 0]) == 12.0


@pytest.mark.parametrize(("workers", "batch_size"), [(0, 2), (2, 2), (0, None), (1, None)])
def test_a_stream_is_read_up_to_where_it_stood(workers: int, batch_size: int | None) -> None:
    whole = FastLoader(pipelines.Stream(), batch_size=batch_size, num_workers=workers)
    iterator = iter(whole)
    for _ in range(4):
        next(iterator)
    resuming = FastLoader(pipelines.Stream(), batch_size=batch_size, num_workers=workers)
    resuming.load_state_dict(whole.state_dict())
    resumed = iter(resuming)
    assert resuming.state_dict()["batches"] == 4
    rest = [batch[0] for batch in iterator]
    assert rest
    assert_same([batch[0] for batch in resumed], rest)


class Shuffling(pipelines.Stream):
    """Without workers it draws from this process."""

    def __iter__(self) -> Any:
        yield from torch.randperm(self.length)


def test_a_stream_that_shuffles_itself_goes_on_in_its_order() -> None:
    """It was read again by other numbers, in another order: samples were lost and came twice."""
    whole, resumed = (FastLoader(Shuffling(), batch_size=2) for _ in range(2))
    torch.manual_seed(3)
    iterator = iter(whole)
    behind = [next(iterator) for _ in range(4)]
    resumed.load_state_dict(whole.state_dict())
    process = torch.get_rng_state()
    rest = list(resumed)
    assert torch.equal(torch.get_rng_state(), process)
    assert sorted(torch.cat(behind + rest).tolist()) == list(range(21))


class Stumbling(pipelines.Stream):
    """One of its samples raises, and it goes on behind it."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def __iter__(self) -> Any:
        return map(self._read, range(self.length))

    def _read(self, index: int) -> torch.Tensor:
        if index == self.at:
            raise KeyError(f"sample {index}")
        return torch.tensor(index)


@pytest.mark.parametrize(("workers", "plain"), [(0, False), (1, False), (0, True)])
def test_a_stream_is_read_again_past_a_batch_that_raised(workers: int, plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error was raised again by each `iter`: there was no way to go on."""
    if plain:
        monkeypatch.setattr("pipefix.loader.fast_loader.why_plain", lambda: "told so")
    whole, resumed, other = (FastLoader(Stumbling(at), batch_size=2, num_workers=workers) for at in (5, 5, 3))
    iterator = iter(whole)
    next(iterator), next(iterator)
    with pytest.raises(KeyError):
        next(iterator)
    next(iterator)
    resumed.load_state_dict(whole.state_dict())
    state = through_a_file(resumed.state_dict())
    resumed.load_state_dict(state)
    assert_same(list(resumed), list(iterator))
    other.load_state_dict({**state, "missed": 0})  # what raises only now is told
    with pytest.raises(KeyError):
        iter(other)


class IndexByIndex(Sampler[int]):
    """Draws each index when it is asked for it."""

    def __len__(self) -> int:
        return 30

    def __iter__(self) -> Any:
        return (int(torch.randint(1000, ())) for _ in range(30))


def test_a_sampler_that_draws_index_by_index_goes_on_with_the_processs_numbers() -> None:
    def loader() -> Any:
        return FastLoader(list(range(1000)), batch_size=2, sampler=IndexByIndex())  # type: ignore[arg-type]

    whole = loader()
    iterator = iter(whole)
    for _ in range(4):
        next(iterator)
        torch.rand(())  # as a training step draws
    state, process = whole.state_dict(), torch.get_rng_state()
    expected = list(iterator)
    torch.manual_seed(99)
    resumed = loader()
    torch.set_rng_state(process)
    resumed.load_state_dict(state)
    assert_same(list(resumed), expected)


class Through(Sampler[Any]):
    """Passes on what another one gives."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Any:
        return iter(self.sampler)


class AnyIndices(pipelines.Tensors):
    """One sample of several indices, too."""

    def __getitem__(self, index: Any) -> torch.Tensor:
        return torch.as_tensor(index)


def drawn_by(seed: int, batch_size: int = 3) -> BatchSampler:
    return BatchSampler(RandomSampler(range(40), generator=torch.Generator().manual_seed(seed)), batch_size, False)


@pytest.mark.parametrize(
    "given_as",
    [
        lambda seed: {"sampler": drawn_by(seed), "batch_size": None},
        lambda seed: {"batch_sampler": Through(drawn_by(seed))},
        lambda seed: {"sampler": Through(drawn_by(seed).sampler), "batch_size": 3},
    ],
    ids=["batches without collating", "batches passed on", "indices passed on"],
)
def test_a_generator_is_found_in_a_sampler_that_goes_through_another(given_as: Any) -> None:
    whole, resumed = (FastLoader(AnyIndices(40), **given_as(seed)) for seed in (5, 6))
    iterator = iter(whole)
    for _ in range(4):
        next(iterator)
    resumed.load_state_dict(whole.state_dict())
    assert_same([list(resumed), list(resumed)], [list(iterator), list(whole)])


class DrawnAtOnce(Sampler[list[int]]):
    """Shuffles where it is asked for an iterator, as many batch samplers of users' own do."""

    def __iter__(self) -> Any:
        batches = [list(range(first, first + 4)) for first in range(0, 40, 4)]
        random.shuffle(batches)
        return iter(batches)


@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 0)])
def test_batches_that_are_drawn_at_once_go_on_with_and_without_workers(before: int, after: int) -> None:
    """With workers torch asks for an iterator twice: batches of another order were passed over, and samples lost."""
    random.seed(5)
    whole, resumed = (
        FastLoader(pipelines.Tensors(40), batch_sampler=DrawnAtOnce(), num_workers=workers) for workers in (before, after)
    )
    iterator = iter(whole)
    for _ in range(4):
        next(iterator)
    resumed.load_state_dict(through_a_file(whole.state_dict()))
    assert_same(list(resumed), list(iterator))


def test_batches_of_another_size_go_on_where_they_are_not_collated() -> None:
    whole, resumed = (FastLoader(AnyIndices(40), sampler=drawn_by(5, size), batch_size=None) for size in (3, 4))
    iterator = iter(whole)
    behind = [next(iterator) for _ in range(4)]
    resumed.load_state_dict(whole.state_dict())
    rest = list(resumed)
    assert [len(batch) for batch in rest] == [4] * 7
    assert sorted(torch.cat(behind + rest).tolist()) == list(range(40))


def test_batches_that_were_left_out_count() -> None:
    options: dict[str, Any] = {"num_workers": 1, "batch_size": 4, "on_bad": "skip", "max_bad": 1.0, "quarantine": None}
    whole = FastLoader(pipelines.Torn(16, bad=(0, 1, 2, 3)), **options)
    iterator = iter(whole)
    next(iterator)
    assert whole.state_dict()["batches"] == 2
    resumed = FastLoader(pipelines.Torn(16, bad=(0, 1, 2, 3)), **options)
    resumed.load_state_dict(whole.state_dict())
    assert_same(list(resumed), list(iterator))


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"format": "else"}, "This dict is no state of a FastLoader: its format is 'else'"),
        (None, "This NoneType is no state of a FastLoader"),
        ({"world_size": 4}, "taken with 4 ranks, and this loader is one of 1: where it stands in the epoch is not known"),
        ({"length": 12}, "taken with 12 samples in the dataset, and this loader has 40"),
    ],
)
def test_a_state_of_another_loader_is_refused(state: dict[str, Any] | None, words: str) -> None:
    loader = FastLoader(pipelines.Tensors(40), batch_size=4)
    next(iter(loader))
    with pytest.raises(ValueError, match=words):
        loader.load_state_dict(state and {**loader.state_dict(), **state})  # type: ignore[arg-type]


@pytest.mark.parametrize("had", [True, False])
def test_a_state_whose_order_another_generator_drew_is_refused(had: bool) -> None:
    """The epoch went on in another order: samples came twice, and others never."""

    def made(own: bool) -> Any:
        return FastLoader(pipelines.Tensors(40), batch_size=4, shuffle=True, generator=torch.Generator() if own else None)

    whole = made(had)
    next(iter(whole))
    with pytest.raises(ValueError, match="no generator"):
        made(not had).load_state_dict(whole.state_dict())
    made(had).load_state_dict(whole.state_dict())


@pytest.mark.parametrize("before", [None, 21])
def test_a_length_that_is_not_known_refuses_nothing(before: int | None) -> None:
    """A stream was given a length, or lost it, since the state was taken: that was a TypeError of ours, or another order."""
    loader = FastLoader(pipelines.Stream(), batch_size=2)
    iterator = iter(loader)
    next(iterator)
    state = {**loader.state_dict(), "length": before}
    resumed = FastLoader(pipelines.Stream() if before is None else Lengthless(), batch_size=2)
    resumed.load_state_dict(state)
    assert_same([batch[0] for batch in resumed], [batch[0] for batch in iterator])


class Lengthless(pipelines.Stream):
    def __len__(self) -> int:
        raise TypeError("it has no length")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sample_that_comes_again_in_an_epoch_draws_anew(workers: int) -> None:
    """As from a WeightedRandomSampler, or the endless samplers of timm, ultralytics and detectron2."""

    def drawn(order: list[int]) -> list[float]:
        loader: Any = FastLoader(pipelines.Drawing(), batch_size=3, sampler=order, rng="sample", num_workers=workers)
        return [float(number) for batch in loader for number in batch[1]]

    numbers = drawn([5, 5, 7, 5])
    assert len(set(numbers)) == 4
    assert [numbers[0], numbers[2]] == drawn([5, 7])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sample_that_came_before_draws_anew_also_in_batches_of_another_size(workers: int) -> None:
    """Its first time after the state counted as the first of the epoch: it drew the same numbers again."""

    def loader(size: int) -> Any:
        order = [5, 5, 7, 5, 7, 5]
        return FastLoader(pipelines.Drawing(), batch_size=size, sampler=order, rng="sample", num_workers=workers)

    def drawn(batches: Any) -> list[float]:
        return [float(number) for batch in batches for number in batch[1]]

    whole, resumed = loader(2), loader(3)
    iterator = iter(whole)
    next(iterator)
    resumed.load_state_dict(whole.state_dict())
    assert drawn(resumed) == drawn(iterator)


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_that_live_on_draw_by_the_seed_that_each_epoch_began_with(workers: int) -> None:
    """Programs seed anew for each epoch; a state names the new seed, and whoever goes on with it draws by that."""

    def drawn(**options: Any) -> list[Any]:
        generator, epochs = torch.Generator(), []
        loader: Any = FastLoader(pipelines.Drawing(), batch_size=7, generator=generator, rng="sample", **options)
        for seed in (5, 6):
            generator.manual_seed(seed)
            epochs.append(list(loader))
        return epochs

    assert_same(drawn(num_workers=workers, persistent_workers=True), drawn())


def test_samples_draw_anew_each_epoch_and_leave_the_process_alone() -> None:
    loader = FastLoader(pipelines.Drawing(), batch_size=40, rng="sample")
    state = torch.get_rng_state()
    first, second = next(iter(loader)), next(iter(loader))
    assert not torch.equal(first[1], second[1])
    torch.set_rng_state(state)
    torch.empty((), dtype=torch.int64).random_()
    torch.empty((), dtype=torch.int64).random_()
    after = torch.get_rng_state()
    torch.set_rng_state(state)
    list(loader)
    torch.empty((), dtype=torch.int64).random_()
    assert torch.equal(torch.get_rng_state(), after)


def test_where_an_epoch_could_not_begin_its_place_is_kept() -> None:
    """As where Ctrl-C ends the start of the workers, and the cell of the notebook is run again."""
    whole = FastLoader(pipelines.Tensors(40), batch_size=4)
    iterator = iter(whole)
    next(iterator), next(iterator)
    resumed = FastLoader(pipelines.Tensors(40), batch_size=4)
    resumed.load_state_dict(whole.state_dict())
    resumed.on_bad = "ignore"
    with pytest.raises(ValueError, match="on_bad"):
        iter(resumed)
    resumed.on_bad = "raise"
    assert resumed.state_dict()["batches"] == 2
    assert_same(list(resumed), list(iterator))


def test_an_epoch_whose_beginning_was_broken_off_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by Ctrl-C that kept workers did not hear of: they answered for both beginnings, and the next batch was a KeyError."""

    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    loader = FastLoader(pipelines.Tensors(8), batch_size=4, num_workers=2, persistent_workers=True)
    batches = list(loader)
    with monkeypatch.context() as ctrl_c:
        ctrl_c.setattr(WorkersIterator, "_get_data", interrupted)
        with pytest.raises(KeyboardInterrupt):
            iter(loader)
    assert_same(list(loader), batches)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_that_raised_lies_behind(workers: int) -> None:
    whole = FastLoader(pipelines.Faulty(24), batch_size=4, num_workers=workers)
    iterator = iter(whole)
    for _ in range(2):
        next(iterator)
    with pytest.raises(KeyError):
        next(iterator)
    assert whole.state_dict()["batches"] == 3
    next(iterator)
    resumed = FastLoader(pipelines.Faulty(24), batch_size=4)
    resumed.load_state_dict(whole.state_dict())
    assert [float(batch[0, 0]) for batch in resumed] == [16.0, 20.0]


@pytest.mark.parametrize("told", ["DataLoader timed out after 5 seconds", "Pin memory thread exited", "Too many open files"])
def test_a_batch_that_did_not_arrive_does_not_lie_behind(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> None:
        raise RuntimeError(told)

    loader = FastLoader(pipelines.Tensors(16), batch_size=4, num_workers=1)
    iterator = iter(loader)
    next(iterator)
    monkeypatch.setattr(WorkersIterator, "_get_data", broken)
    with pytest.raises(RuntimeError, match=told):
        next(iterator)
    assert loader.state_dict()["batches"] == 1


def test_a_batch_whose_augmenting_raised_lies_behind() -> None:
    def augment(batch: Any) -> Any:
        if float(batch[0, 0]) == 4.0:
            raise KeyError
        return batch

    whole = FastLoader(pipelines.Tensors(24), batch_size=4, augment=augment)
    iterator = iter(whole)
    next(iterator)
    with pytest.raises(KeyError):
        next(iterator)
    assert whole.state_dict()["batches"] == 2
    next(iterator)
    assert whole.state_dict()["batches"] == 3


def test_a_loader_that_was_used_can_be_copied_and_pickled() -> None:
    loader = FastLoader(pipelines.Tensors(40), batch_size=4, num_workers=1, threads_per_worker=2)
    next(iter(loader))
    for again in (copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        assert again.meter.batches == 0, "the meter stays with its loader"
        assert len(list(again)) == 10
        assert again.state_dict()["epoch"] == 2


@pytest.mark.parametrize("bits", [np.random.PCG64, np.random.Philox, np.random.SFC64])
def test_numpys_generator_may_stand_on_bits_of_the_users_choice(bits: Any) -> None:
    before = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(bits(3))
        loader = FastLoader(pipelines.Drawing(), batch_size=8)
        iterator = iter(loader)
        next(iterator)
        state = through_a_file(loader.state_dict())
        at_the_cut = np.random.get_state(legacy=False)
        expected = list(iterator)
        np.random.set_state(at_the_cut)
        again = FastLoader(pipelines.Drawing(), batch_size=8)
        again.load_state_dict(state)
        assert [numbers[3].tolist() for numbers in again] == [numbers[3].tolist() for numbers in expected]
    finally:
        np.random.set_bit_generator(before)
