"""The user's own code is cut at the right stage under the right name, does what it did, and is put back as it was."""

from __future__ import annotations

import copy
import functools
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import ConcatDataset, Dataset, Subset

from pipefix.hooks.install import install_all
from pipefix.hooks.patches import Patches
from pipefix.hooks.sample_timer import SampleTimer
from pipefix.subject.user_code import UserCodeHooks

PIXELS = np.arange(48, dtype=np.float32).reshape(4, 4, 3)
RAW = bytes(range(48))


def half(pixels: Any) -> Any:
    return pixels / 2


def parse(raw: bytes) -> Any:
    return np.frombuffer(raw, dtype=np.uint8).reshape(4, 4, 3).copy()


def clean(text: str) -> str:
    return text.lower()


def length_of(text: str) -> int:
    return len(text)


def halve_twice(pixels: Any) -> Any:
    return half(half(pixels))


def depth(pixels: Any, left: int) -> Any:
    return pixels if left == 0 else depth(pixels, left - 1)


def lazily(pixels: Any) -> Iterator[Any]:
    yield half(pixels)


def counted(pixels: Any) -> Any:
    counted.calls = getattr(counted, "calls", 0) + 1  # type: ignore[attr-defined]
    return pixels


def outer(*operations: Callable[[Any], Any]) -> Any:
    class Outer:
        def __init__(self) -> None:
            self.transforms = list(operations)

        def __call__(self, value: Any) -> Any:
            for operation in self.transforms:
                value = operation(value)
            return value

    return Outer()


class Add:
    def __init__(self, amount: float = 1) -> None:
        self.amount = amount

    def __call__(self, pixels: Any) -> Any:
        return pixels + self.amount


class Slotted:
    __slots__ = ("amount", "empty", "inner")

    def __init__(self) -> None:
        self.amount, self.inner = 2, Add()

    def __call__(self, pixels: Any) -> Any:
        return self.inner(pixels) * self.amount


class Eager:
    """Answers to any name, as proxies and mocks do."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.asked.append(name)
        return self

    def __call__(self, value: Any) -> Any:
        return value


class Base(Dataset[Any]):
    shared = functools.partial(np.multiply, 2)

    def __init__(self, **held: Any) -> None:
        vars(self).update(held)
        self.prepared = self.prepare(PIXELS)

    def __len__(self) -> int:
        return 4

    def prepare(self, pixels: Any) -> Any:
        return half(pixels)


def case(read: Callable[[Any, int], Any], **held: Any) -> Base:
    """A dataset whose ``__getitem__`` is ``read``."""
    kind = type("Case", (Base,), {"__getitem__": read, "__module__": __name__})
    return kind(**held)  # type: ignore[no-any-return]


class Watched:
    """One dataset under the clock."""

    def __init__(self, dataset: Any, *libraries: str) -> None:
        self.dataset = dataset
        self.timer, self.patches = SampleTimer(), Patches()
        install_all(self.timer, self.patches, libraries)
        self.user_code = UserCodeHooks(self.timer, self.patches)
        self.user_code.dataset(dataset)
        self.timer.active = True

    def sample(self, index: int = 0) -> Any:
        self.timer.begin(index)
        try:
            return self.dataset[index]
        finally:
            self.timer.end()

    @property
    def ops(self) -> dict[str, str]:
        """Operations that were called, and the stage of each."""
        named = zip(self.timer.names, self.timer.calls, strict=True)
        return {op: str(stage) for (stage, op), calls in named if stage is not None and calls}


@contextmanager
def watched(dataset: Any, *libraries: str) -> Iterator[Watched]:
    watch = Watched(dataset, *libraries)
    try:
        yield watch
    finally:
        watch.timer.active = False
        watch.patches.undo()


def ops_of(dataset: Any) -> dict[str, str]:
    with watched(dataset) as watch:
        for _ in range(3):
            watch.sample()
        return watch.ops


# -- what is cut -------------------------------------------------------------------------------------------------------


def each_in_turn(self: Any, index: int) -> Any:
    value = PIXELS
    for operation in self.operations:
        value = operation(value)
    return self.by_split["train"](value)


@pytest.mark.parametrize(
    ("read", "held", "ops"),
    [
        (lambda self, index: self.second(self.first(self.decode(RAW))), {"first": Add(), "second": half, "decode": parse},
         {"Add": "augment", "half": "augment", "parse": "decode"}),
        (lambda self, index: halve_twice(parse(RAW)), {}, {"halve_twice": "augment", "half": "augment", "parse": "decode"}),
        (lambda self, index: (clean("A Text"), length_of("A Text")), {}, {"clean": "decode"}),
        (each_in_turn, {"operations": [Add(), half], "by_split": {"train": functools.partial(depth, left=0), "val": None}},
         {"Add": "augment", "half": "augment", "depth": "augment"}),
    ],
    ids=["held operations and functions", "functions of the file and those they call", "texts made of texts in memory",
         "lists and dicts of operations"],
)  # fmt: skip
def test_what_is_cut_and_of_which_stage_it_is(read: Any, held: dict[str, Any], ops: dict[str, str]) -> None:
    assert ops_of(case(read, **held)) == ops


def test_functions_of_a_neighbouring_module(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "neighbour_of_mine.py").write_text("def soften(pixels):\n    return pixels * 0.5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import importlib

    neighbour = importlib.import_module("neighbour_of_mine")
    monkeypatch.setattr(sys.modules[__name__], "globals_neighbour", neighbour, raising=False)

    def direct(self: Any, index: int) -> Any:
        return globals_neighbour.soften(PIXELS)  # noqa: F821

    soften = neighbour.soften
    with watched(case(direct)) as watch:
        watch.sample()
        assert watch.ops == {"soften": "augment"}
        assert neighbour.soften is not soften
    assert neighbour.soften is soften


def test_methods_static_methods_and_those_inherited() -> None:
    class Mine(Base):
        def __getitem__(self, index: int) -> Any:
            return self.shift(self.prepare(self.parse(RAW)))

        @staticmethod
        def parse(raw: bytes) -> Any:
            return parse(raw)

        def shift(self, pixels: Any) -> Any:
            return pixels + 1

    dataset = Mine()
    assert ops_of(dataset) == {
        "Mine.parse": "decode", "parse": "decode", "Base.prepare": "augment", "half": "augment", "Mine.shift": "augment",
    }  # fmt: skip
    assert vars(dataset).keys() == vars(Base()).keys(), "what the class holds is no attribute of the object's"


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: Subset(inner, [0, 1]),
        lambda inner: ConcatDataset([inner, inner]),
        lambda inner: case(lambda self, index: self.source[index], source=inner),
    ],
)
def test_what_a_wrapper_holds(wrap: Any) -> None:
    assert ops_of(wrap(case(lambda self, index: self.op(PIXELS), op=Add()))) == {"Add": "augment"}


def test_databases_and_files_that_lists_and_dicts_hold_open_are_storage(tmp_path: Path) -> None:
    """One for each shard, as datasets of Open Catalyst and packed files hold them."""
    lmdb = pytest.importorskip("lmdb")
    path = tmp_path / "shard"
    path.write_bytes(b"data")
    with lmdb.open(str(tmp_path / "db")) as database, open(str(path), "rb") as file:
        with database.begin(write=True) as writing:
            writing.put(b"key", b"value")
        held: Any = {"databases": [database], "files": {"train": file}}
        dataset = case(lambda self, index: (self.databases[0].begin().get(b"key"), self.files["train"].read()), **held)
        with watched(dataset, "files", "lmdb") as watch:
            assert watch.sample() == (b"value", b"data")
            assert watch.ops == {"lmdb.Transaction.get": "storage", "read": "storage"}
        assert held["databases"] == [database] and held["files"]["train"] is file and file.tell() == 0


def test_transform_lists_name_each_operation() -> None:
    composed = outer(Add(), half, lambda pixels: pixels - 1, functools.partial(half), outer(Slotted()))
    ops = ops_of(case(lambda self, index: self.transform(PIXELS), transform=composed))
    assert {"Outer", "Add", "half", "Slotted"} <= set(ops)
    assert any("lambda" in name for name in ops)
    assert set(ops.values()) == {"augment"}


def test_torchvision_transforms_old_and_new() -> None:
    from torchvision import transforms
    from torchvision.transforms import v2

    old = transforms.Compose([
        transforms.RandomApply([transforms.RandomHorizontalFlip(1.0)], p=1.0), transforms.ToTensor(), transforms.Lambda(half),
        transforms.RandomChoice([transforms.Normalize((0.5,) * 3, (0.5,) * 3)]),
    ])  # fmt: skip
    new = v2.Compose([v2.ToImage(), v2.RandomHorizontalFlip(1.0), v2.ToDtype(torch.float32, scale=True)])
    image = Image.new("RGB", (8, 8))
    ops = ops_of(case(lambda self, index: (self.old(image), self.new(image)), old=old, new=new))
    assert {"Compose", "RandomApply", "RandomHorizontalFlip", "ToTensor", "Lambda(half)", "RandomChoice", "Normalize"} <= set(ops)
    assert {"ToImage", "ToDtype"} <= set(ops)
    assert set(ops.values()) == {"augment"}


def test_albumentations() -> None:
    albumentations = pytest.importorskip("albumentations")
    composed = albumentations.Compose([albumentations.HorizontalFlip(p=1.0), albumentations.Normalize()])
    pixels = parse(RAW)
    ops = ops_of(case(lambda self, index: self.transform(image=pixels)["image"], transform=composed))
    assert {"Compose", "HorizontalFlip", "Normalize"} <= set(ops)
    assert set(ops.values()) == {"augment"}


def test_functions_in_slots_and_tuples_stay() -> None:
    class Held:
        __slots__ = ("function",)

        def __init__(self) -> None:
            self.function = half

        def use(self, pixels: Any) -> Any:
            return self.function(pixels)

    with watched(case(lambda self, index: self.held.use(PIXELS), held=Held(), pair=(half, 1))) as watch:
        assert watch.sample() is not None
        assert "Held.function" not in watch.ops


# -- what it does stays the same ------------------------------------------------------------------------------------------


def snapshot() -> dict[tuple[str, str], Any]:
    """Every name of this module and of its classes."""
    module = sys.modules[__name__]
    held = {("", name): value for name, value in vars(module).items()}
    for kind in (Base, Add, Slotted, Eager):
        held |= {(kind.__name__, name): value for name, value in vars(kind).items()}
    return held


def test_everything_is_put_back() -> None:
    from torchvision import transforms
    from torchvision.datasets import folder

    operations, mapping, step = [Add(), half], {"train": half}, transforms.Compose([half, Add()])
    method = Add(3).__call__
    piece = functools.partial(half)
    dataset = case(
        lambda self, index: halve_twice(parse(RAW)), operations=operations, mapping=mapping, step=step, method=method, piece=piece,
        loader=folder.default_loader, function=half, slotted=Slotted(), eager=Eager(),
    )  # fmt: skip
    before, own, kind = snapshot(), dict(vars(dataset)), dict(vars(type(dataset)))
    listed, limit = list(step.transforms), sys.getrecursionlimit()
    loader, compose_call = folder.default_loader, transforms.Compose.__call__
    with watched(dataset) as watch:
        watch.sample()
        assert snapshot() != before and vars(dataset) != own
    assert snapshot() == before
    assert list(vars(dataset)) == list(own), "in the same order"
    assert all(vars(dataset)[name] is value for name, value in own.items())
    assert dict(vars(type(dataset))) == kind
    assert operations == [operations[0], half] and mapping == {"train": half} and step.transforms == listed
    assert folder.default_loader is loader and transforms.Compose.__call__ is compose_call
    assert sys.getrecursionlimit() == limit


def test_what_the_users_code_changes_meanwhile_stays_changed() -> None:
    def read(self: Any, index: int) -> Any:
        self.transform = Add(5)
        self.listed[0] = None
        return counted(PIXELS)

    dataset = case(read, transform=half, listed=[half])
    vars(counted).clear()
    with watched(dataset) as watch:
        watch.sample()
    assert isinstance(dataset.transform, Add) and dataset.listed == [None]  # type: ignore[attr-defined]
    assert counted.calls == 1  # type: ignore[attr-defined]


def test_operations_that_are_shuffled_or_kept_meanwhile_are_put_back_where_they_are() -> None:
    def read(self: Any, index: int) -> Any:
        self.listed.reverse()
        self.drawn = self.listed[-1]
        return self.listed[0](PIXELS)

    listed = [half, Add(), functools.partial(half), counted]
    expected = listed[::-1]
    dataset: Any = case(read, listed=listed, train=listed)
    with watched(dataset) as watch:
        watch.sample()
    assert dataset.drawn is half
    assert all(function is before for function, before in zip(listed, expected, strict=True))


def test_functions_bound_methods_and_partials_stay_the_same_thing_for_whoever_compares() -> None:
    owner = Add(7)

    def read(self: Any, index: int) -> Any:
        same = self.transform is half, self.listed[0] is half, self.transform.__name__
        return same, self.method.__self__, self.method(1.0), self.piece.keywords, self.piece(PIXELS).sum()

    piece = functools.partial(depth, left=0)
    with watched(case(read, transform=half, listed=[half], method=owner.__call__, piece=piece)) as watch:
        assert watch.sample() == ((True, True, "half"), owner, 8.0, {"left": 0}, PIXELS.sum())


def test_properties_class_methods_and_inheritance() -> None:
    class Mine(Base):
        made = 0

        @property
        def scale(self) -> int:
            return 3

        @classmethod
        def build(cls, pixels: Any) -> Any:
            cls.made += 1
            return cls, pixels

        def prepare(self, pixels: Any) -> Any:
            return super().prepare(pixels) * self.scale

        def __getitem__(self, index: int) -> Any:
            return self.build(self.prepare(PIXELS))

    with watched(Mine()) as watch:
        kind, pixels = watch.sample()
        assert kind is Mine and np.array_equal(pixels, PIXELS / 2 * 3)
        assert isinstance(Mine().prepared, np.ndarray), "methods still work outside of samples, and from __init__"
    assert Mine.made == 1


def test_generators_are_left_alone() -> None:
    def read(self: Any, index: int) -> Any:
        return next(self.lazy(PIXELS)), next(lazily(PIXELS)), next(iter(self.stream(PIXELS)))

    class Mine(Base):
        __getitem__ = read

        def stream(self, pixels: Any) -> Iterator[Any]:
            yield pixels

    with watched(Mine(lazy=lazily)) as watch:
        watch.sample()
        assert set(watch.ops) <= {"half"}


def test_proxies_are_not_asked_for_anything() -> None:
    eager = Eager()
    with watched(case(lambda self, index: self.eager(PIXELS), eager=eager, nested=[eager])) as watch:
        watch.sample()
    assert eager.asked == []


def test_dicts_that_load_when_asked_are_not_asked() -> None:
    class Lazy(dict[str, Any]):
        asked = 0

        def values(self) -> Any:
            type(self).asked += 1
            return super().values()

        __getitem__ = __iter__ = keys = items = values  # type: ignore[assignment]

    with watched(case(lambda self, index: self.use(Lazy(image=PIXELS)), use=lambda sample: 1)) as watch:
        watch.sample()
    assert Lazy.asked == 0


def test_errors_pass_through_and_leave_the_clock_in_order() -> None:
    def fail(pixels: Any) -> Any:
        raise ValueError("no")

    def read(self: Any, index: int) -> Any:
        if index:
            return self.fine(PIXELS)
        try:
            return self.fails(PIXELS)
        except ValueError as error:
            return str(error)

    with watched(case(read, fails=fail, fine=half)) as watch:
        assert watch.sample(0) == "no"
        assert np.array_equal(watch.sample(1), PIXELS / 2)
        assert watch.ops["half"] == "augment"


def test_recursion_reaches_as_deep_as_before() -> None:
    deepest = sys.getrecursionlimit() - 200
    with watched(case(lambda self, index: depth(PIXELS, deepest))) as watch:
        assert watch.sample() is PIXELS
        assert watch.timer.calls[watch.timer.op_id(*next(name for name in watch.timer.names if name[1] == "depth"))] == 1


def test_a_dataset_can_be_copied_and_pickled_while_it_is_cut() -> None:
    dataset = Plain(transform=half)
    with watched(dataset) as watch:
        watch.sample()
        for copied in (copy.deepcopy(dataset), pickle.loads(pickle.dumps(dataset))):
            assert np.array_equal(copied[0], PIXELS / 2)
    assert dataset.transform is half  # type: ignore[attr-defined]


class Plain(Base):
    def __getitem__(self, index: int) -> Any:
        return self.transform(PIXELS)  # type: ignore[attr-defined]


def test_frozen_and_self_referring_objects() -> None:
    import dataclasses

    @dataclasses.dataclass(frozen=True)
    class Frozen:
        function: Any
        loop: list[Any]

        def use(self, pixels: Any) -> Any:
            return self.function(pixels)

    loop: list[Any] = []
    loop.append(loop)
    frozen = Frozen(half, loop)
    with watched(case(lambda self, index: self.frozen.use(PIXELS), frozen=frozen)) as watch:
        watch.sample()
        assert watch.ops["half"] == "augment"
    assert frozen.function is half


def test_a_class_that_does_not_let_go_of_its_methods_stays() -> None:
    class Stubborn(type):
        def __setattr__(cls, name: str, value: Any) -> None:
            raise TypeError("sealed")

    class Sealed(metaclass=Stubborn):
        def use(self, pixels: Any) -> Any:
            return pixels

        def __call__(self, pixels: Any) -> Any:
            return pixels

    with watched(case(lambda self, index: self.sealed(PIXELS), sealed=Sealed())) as watch:
        assert watch.sample() is PIXELS


# -- the same samples, with and without -----------------------------------------------------------------------------------

OPERATIONS: list[Callable[[], Any]] = [
    lambda: half, lambda: Add(2), lambda: functools.partial(depth, left=3), lambda: Add(3).__call__, lambda: Slotted(),
    lambda: (lambda pixels: pixels + np.random.rand()), lambda: outer(Add(), half), lambda: outer(outer(half), Noise()),
    lambda: halve_twice, lambda: counted, lambda: np.flip,
]  # fmt: skip


class Noise:
    def __call__(self, pixels: Any) -> Any:
        return pixels + torch.rand(1).item() + np.random.rand()


def _read(self: Any, index: int) -> Any:
    value = parse(RAW).astype(np.float32) + index
    for operation in self.operations:
        value = operation(value)
    return self.last(value)


@given(
    chosen=st.lists(st.sampled_from(range(len(OPERATIONS))), max_size=5),
    last=st.sampled_from(range(len(OPERATIONS))),
    seed=st.integers(0, 99),
)
def test_the_samples_are_the_same(chosen: list[int], last: int, seed: int) -> None:
    dataset = case(_read, operations=[OPERATIONS[number]() for number in chosen], last=OPERATIONS[last]())

    def samples(get: Callable[[int], Any]) -> Any:
        np.random.seed(seed)
        torch.manual_seed(seed)
        return np.array([get(index) for index in (0, 3, 1)])

    plain = samples(dataset.__getitem__)
    with watched(dataset) as watch:
        assert np.array_equal(samples(watch.sample), plain)
        assert np.array_equal(samples(dataset.__getitem__), plain)
    assert np.array_equal(samples(dataset.__getitem__), plain)


def test_a_file_that_the_dataset_opened_before_is_read_under_the_clock_and_put_back(tmp_path: Path) -> None:
    path = tmp_path / "shard"
    path.write_bytes(bytes(range(256)) * 4096)

    class Shard:
        def __init__(self) -> None:
            self.file = path.open("rb")

        def __getitem__(self, index: int) -> bytes:
            self.file.seek(index * 65536)
            return self.file.read(65536)

    shard = Shard()
    opened, expected = shard.file, Shard()[3]
    with watched(shard) as watch:
        assert watch.sample(3) == expected
        assert watch.timer.bytes_read >= 65536
    assert shard.file is opened
    assert shard[3] == expected
