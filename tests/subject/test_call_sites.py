"""Calls of libraries that no hook knows are cut where they stand in the user's code, once a look shows that they take long."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from pipefix.hooks.patches import Patches
from pipefix.hooks.recording import Recording
from pipefix.hooks.sample_timer import SampleTimer
from pipefix.hooks.simple_calls import install
from pipefix.subject.call_sites import CallSites
from pipefix.subject.user_code import UserCodeHooks
from pipefix.vocabulary.stage import Stage
from tests.doubles.ticks import MEASUREMENT, Ticks

MS = 1e-3


class Library:
    """Stands for a package that no hook knows."""

    def __init__(self) -> None:
        self.passes: Any = None

    def read(self, path: str) -> bytes:
        self.passes(MS)
        return path.encode()

    def unpack(self, data: bytes) -> np.ndarray:
        self.passes(5 * MS)
        return np.frombuffer(data, np.uint8).reshape(2, 2)

    def blur(self, picture: np.ndarray) -> np.ndarray:
        self.passes(3 * MS)
        return picture + 1

    def scale(self, pictures: list[np.ndarray]) -> None:
        self.passes(2 * MS)
        pictures[0] *= 2


library = Library()


def helper(data: bytes) -> np.ndarray:
    return library.blur(library.unpack(data))


class Inline:
    def __getitem__(self, index: int) -> Any:
        raw = library.read("abcd")
        values = library.unpack(raw).astype("f4")[:, ::-1]
        held = [values, index]
        library.scale([values])
        return library.blur(values), [library.blur(part) for part in held[:1]]


def noted(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


class Decorated:
    @noted
    def __getitem__(self, index: int) -> Any:
        return library.unpack(b"abcd")


class Batched:
    def __getitem__(self, index: int) -> Any:
        return [self.made[at] for at in range(2)]

    def __init__(self) -> None:
        self.made = Part()


class Part:
    def __getitem__(self, index: int) -> Any:
        library.passes(4 * MS)
        return library.unpack(b"abcd")


class Helped:
    def __getitem__(self, index: int) -> Any:
        return helper(library.read("abcd"))


class Cut:
    """A dataset's code with its hooks, samples of which can be made."""

    def __init__(self, dataset: Any) -> None:
        self.timer, self.patches, self.dataset = SampleTimer(), Patches(), dataset
        self.timer.active = True
        code = UserCodeHooks(self.timer, self.patches)
        code.dataset(dataset)
        self.sites = CallSites(self.timer, self.patches, code.evidence)
        self.sites.observe(code.functions)

    def sample(self) -> Any:
        self.timer.clear()
        self.timer.begin(0)
        self.sites.begin()
        try:
            return self.dataset[0]
        finally:
            self.sites.end()
            self.timer.end()

    def look(self, *, mixed: str = "") -> None:
        self.sample()
        self.timer.mixed.add(mixed)
        self.sample()
        self.sites.choose()

    def costs_ms(self) -> dict[tuple[str, str], float]:
        spent = zip(self.timer.names, self.timer.wall, strict=True)
        return {(str(stage), op.partition(" at ")[0]): round(wall / 1e6, 1) for (stage, op), wall in spent if stage and wall > 1e5}


def costs_of(dataset: Any, *, mixed: str = "") -> dict[tuple[str, str], float]:
    """What operations of a sample cost, after a look at others."""
    cut = Cut(dataset)
    try:
        cut.look(mixed=mixed)
        cut.sample()
        return cut.costs_ms()
    finally:
        cut.patches.undo()


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Ticks:
    clock = Ticks(1e-7).given_to(MEASUREMENT, monkeypatch)
    monkeypatch.setattr(library, "passes", clock.passes)
    return clock


@pytest.fixture
def inline(ticks: Ticks) -> Iterator[Cut]:
    cut = Cut(Inline())
    yield cut
    cut.patches.undo()


def test_calls_that_take_long_are_operations_of_the_stage_that_their_data_tells(inline: Cut) -> None:
    inline.look()
    inline.sample()
    assert inline.costs_ms() == {
        ("storage", "library.read"): 1.0,
        ("decode", "library.unpack"): 5.0,
        ("augment", "library.scale"): 2.0,
        ("augment", "library.blur"): 3.0,
        ("augment", "[library.blur(part) for part in held[:1…"): 3.0,
    }
    first = Inline.__getitem__.__code__.co_firstlineno
    places = {op.partition(" at ")[::2] for stage, op in inline.timer.names if stage is not None}
    assert ("library.unpack", f"test_call_sites.py:{first + 2}") in places


def test_afterwards_and_while_the_hooks_are_out_the_code_is_the_users_own(ticks: Ticks) -> None:
    original = Inline.__getitem__.__code__
    cut = Cut(Inline())
    assert Inline.__getitem__.__code__ is not original
    cut.look()
    assert Inline.__getitem__.__code__ is not original
    cut.patches.pause()
    assert Inline.__getitem__.__code__ is original
    cut.patches.resume()
    assert Inline.__getitem__.__code__ is not original
    cut.patches.undo()
    assert Inline.__getitem__.__code__ is original


def test_where_nothing_takes_long_the_code_stays_as_it_was_compiled(monkeypatch: pytest.MonkeyPatch, ticks: Ticks) -> None:
    monkeypatch.setattr(library, "passes", lambda seconds: ticks.passes(seconds / 1e4))
    original = Inline.__getitem__.__code__
    cut = Cut(Inline())
    cut.look()
    assert Inline.__getitem__.__code__ is original
    cut.patches.undo()


class Packed:
    """A library's call inside which another, that a hook knows, does the work of another stage."""

    def __getitem__(self, index: int) -> Any:
        return library.turn(library.unpack(b"abcd"))


def test_what_is_handed_pixels_augments_whatever_it_calls(ticks: Ticks, monkeypatch: pytest.MonkeyPatch) -> None:
    def turn(picture: np.ndarray) -> np.ndarray:
        packed = zlib.compress(picture.tobytes())
        ticks.passes(4 * MS)
        return np.frombuffer(zlib.decompress(packed), np.uint8).reshape(picture.shape)

    turn.__module__ = "library"
    monkeypatch.setattr(library, "turn", turn, raising=False)
    cut = Cut(Packed())
    install(cut.timer, cut.patches)
    cut.look()
    cut.sample()
    assert cut.costs_ms() == {("decode", "library.unpack"): 5.0, ("augment", "library.turn"): 4.0}
    assert cut.timer.live is False
    cut.patches.undo()


class Looping:
    def __getitem__(self, index: int) -> Any:
        values = library.unpack(b"abcd")
        for _ in range(200):
            values = library.nudge(values)
        return values


@pytest.mark.parametrize(("step_ms", "costs"), [(0.02, {}), (0.1, {("augment", "library.nudge"): 20.0})])
def test_every_step_of_a_loop_is_an_operation_only_where_it_takes_long(
    step_ms: float, costs: dict[tuple[str, str], float], ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "nudge", lambda values: ticks.passes(step_ms * MS) or values + 1, raising=False)
    assert costs_of(Looping()) == pytest.approx({("decode", "library.unpack"): 5.0} | costs, abs=0.3)


class Computing:
    """A loop of Python code, as those are that make features of text, graphs and tables."""

    table = (1, 2, 3, 4, 5, 6, 7)

    def __getitem__(self, index: int) -> Any:
        values, total = library.unpack(library.read("abcd")), 0
        for step in range(20_000):
            total = total % 7 + self.table[step % 7] + step
        return values, total


def test_a_long_loop_is_not_looked_at_to_its_end_and_hides_no_operation(ticks: Ticks, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    observed = CallSites.observed
    monkeypatch.setattr(CallSites, "observed", lambda *args: looks.append(1) or observed(*args))
    assert costs_of(Computing()) == {("storage", "library.read"): 1.0, ("decode", "library.unpack"): 5.0}
    assert len(looks) < 2_000


@pytest.mark.parametrize(("mixed", "cut_apart"), [("", False), ("helper", True)])
def test_a_function_is_cut_apart_where_it_does_the_work_of_several_stages(mixed: str, cut_apart: bool, ticks: Ticks) -> None:
    costs = costs_of(Helped(), mixed=mixed)
    assert ({("decode", "library.unpack"), ("augment", "library.blur")} <= costs.keys()) is cut_apart


def test_what_gives_nothing_works_on_its_arguments_and_is_called_all_the_same(inline: Cut) -> None:
    inline.look()
    inline.timer.recording = recording = Recording(1 << 20)
    recorded = inline.sample()
    inline.timer.recording, inline.timer.playing = None, recording
    inline.timer.replaced = frozenset({Stage.AUGMENT})
    again = inline.sample()
    assert again[0].tolist() == recorded[0].tolist()
    assert inline.costs_ms() == {
        ("storage", "library.read"): 1.0, ("decode", "library.unpack"): 5.0, ("augment", "library.scale"): 2.0,
    }  # fmt: skip


class Scan:
    """An object of a library's, neither bytes nor pixels."""

    __module__ = "library"

    def pixels(self) -> np.ndarray:
        library.passes(2 * MS)
        return np.ones((2, 2), np.uint8)


class Opened:
    def __getitem__(self, index: int) -> Any:
        return library.opened("scan.nii").pixels()


def test_what_reads_a_file_and_gives_back_an_object_of_its_library_decodes(ticks: Ticks, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `nibabel.load` does, which takes a file's head apart: for longer than the pixels take."""
    cut = Cut(Opened())

    def opened(path: str) -> Scan:
        cut.timer.timed_call(Stage.STORAGE, "read", library.passes, (MS,))
        library.passes(4 * MS)
        return Scan()

    opened.__module__ = "library"
    monkeypatch.setattr(library, "opened", opened, raising=False)
    cut.look()
    cut.sample()
    assert cut.costs_ms() == {
        ("storage", "read"): 1.0, ("decode", "library.opened"): 4.0, ("decode", 'library.opened("scan.nii").pixels'): 2.0,
    }  # fmt: skip
    cut.patches.undo()


class Graph:
    def __init__(self, nodes: np.ndarray) -> None:
        self.nodes = nodes


class Indexed:
    """As datasets of torch_geometric are: the library's `__getitem__` calls a method of the user's."""

    def __getitem__(self, index: int) -> Any:
        return self.get(index)

    def get(self, index: int) -> Graph:
        return Graph(library.blur(library.unpack(b"abcd")))


@pytest.mark.parametrize(
    ("dataset", "costs"),
    [
        (Decorated(), {("decode", "library.unpack"): 5.0}),
        (Batched(), {("decode", "library.unpack"): 10.0}),
        (Indexed(), {("decode", "library.unpack"): 5.0, ("augment", "library.blur"): 3.0}),
    ],
    ids=["under a decorator", "what runs code of the user's is no operation itself", "a method that no stage is known of"],
)
def test_what_the_users_code_is_cut_into(dataset: Any, costs: dict[tuple[str, str], float], ticks: Ticks) -> None:
    assert costs_of(dataset) == costs


class Rows:
    def __getitem__(self, index: int) -> Any:
        return library.row(index)


@pytest.mark.parametrize(
    ("value", "waits", "costs"),
    [
        ([0.5, 1.5], False, {("decode", "library.row"): 4.0}),
        ("a text", False, {("decode", "library.row"): 4.0}),
        ("a text", True, {("storage", "library.row"): 4.0}),
        ([torch.zeros(3, 4)], False, {("decode", "library.row"): 4.0}),
        ([torch.zeros(3, 4)], True, {("storage", "library.row"): 4.0}),
        (7, False, {}),
    ],
)
def test_values_that_own_code_makes_of_an_index_are_decoded_or_waited_for(
    value: Any, waits: bool, costs: dict[tuple[str, str], float], ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = ticks.process_time_ns  # fake clock
    monkeypatch.setattr("pipefix.subject.call_sites.process_time_ns", lambda: 0 if waits else computed())
    monkeypatch.setattr(library, "row", lambda index: ticks.passes(4 * MS) or value, raising=False)
    assert costs_of(Rows()) == costs


class Keyed:
    def __getitem__(self, index: int) -> Any:
        return library.get(b"%08d" % index)


@pytest.mark.parametrize(("value", "stage"), [(b"x" * 3000, "storage"), (np.zeros((3, 4)), "decode"), (b"x" * 5, "decode")])
def test_bytes_that_are_looked_up_by_a_key_are_read(value: Any, stage: str, ticks: Ticks, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `get` of LevelDB (plyvel) or RocksDB was taken for decoding, since it is handed bytes."""
    monkeypatch.setattr(library, "get", lambda key: ticks.passes(4 * MS) or value, raising=False)
    assert costs_of(Keyed()) == {(stage, "library.get"): 4.0}


class Draws(np.random.RandomState):
    def normal(self, *args: Any) -> Any:
        library.passes(4 * MS)
        return super().normal(*args)


draws = Draws(0)


class Noisy:
    def __getitem__(self, index: int) -> Any:
        row = library.row(index)
        return row + draws.normal(0.0, 0.1, (3, 4))


@pytest.mark.parametrize(("row", "stage"), [(np.zeros((3, 4)), "augment"), (0.5, "decode")])
def test_random_numbers_drawn_for_data_augment_and_else_are_the_data(
    row: Any, stage: str, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "row", lambda index: row, raising=False)
    assert costs_of(Noisy()) == {(stage, "draws.normal"): 4.0}


def test_a_row_that_a_library_gives_first_of_all_is_decoded(ticks: Ticks, monkeypatch: pytest.MonkeyPatch) -> None:
    def row(index: int) -> Scan:
        ticks.passes(4 * MS)
        return Scan()

    row.__module__ = "library"
    monkeypatch.setattr(library, "row", row, raising=False)
    assert costs_of(Rows()) == {("decode", "library.row"): 4.0}


class Crops:
    """Several crops of one picture, as DINO and SwAV make them."""

    def __getitem__(self, index: int) -> Any:
        picture = library.unpack(library.read("abcd"))
        return [library.blur(picture)] + [library.crop(picture) for _ in range(6)]


class CropsOfMemory:
    def __init__(self) -> None:
        self.pictures = [np.zeros((2, 2))]

    def __getitem__(self, index: int) -> Any:
        return [library.crop(self.pictures[index]) for _ in range(6)]


@pytest.mark.parametrize(
    ("dataset", "costs"),
    [
        (Crops(), {("storage", "library.read"): 1.0, ("decode", "library.unpack"): 5.0, ("augment", "library.blur"): 3.0,
                   ("augment", "[library.crop(picture) for _ in range(6)]"[:39] + "…"): 12.0}),
        (CropsOfMemory(), {("augment", "crop"): 6.0}),
    ],
    ids=["by its name in the code around", "of what the dataset holds"],
)  # fmt: skip
def test_a_comprehension_that_crops_a_picture_augments(
    dataset: Any, costs: dict[tuple[str, str], float], ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = Cut(dataset)

    def crop(picture: np.ndarray) -> np.ndarray:
        """Of a library that has hooks for a part of it."""
        ticks.passes(MS)
        return cut.timer.timed_call(Stage.AUGMENT, "crop", lambda: ticks.passes(MS) or picture[:1])

    monkeypatch.setattr(library, "crop", crop, raising=False)
    try:
        cut.look()
        cut.sample()
        spent = cut.costs_ms()
    finally:
        cut.patches.undo()
    assert spent == costs
