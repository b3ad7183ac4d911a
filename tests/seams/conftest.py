"""The contract every seam keeps: the same result off, timed, recorded and replayed; charged to the right operation; undone."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from pipefix.seams import simple_calls
from pipefix.seams.extents import Extents
from pipefix.seams.fresh import Uncopyable, fresh
from pipefix.seams.patches import Patches, held
from pipefix.seams.seam import MODULES
from pipefix.seams.tap import Tap
from pipefix.seams.tape import MISSING
from pipefix.vocabulary.stage import Stage

EVERY = frozenset((Stage.STORAGE, Stage.DECODE, Stage.AUGMENT))


class DictTape:
    """The smallest tape that keeps the protocol."""

    def __init__(self) -> None:
        self.files = Extents()
        self.values: dict[tuple[object, str, int], Any] = {}
        self.stages: dict[str, Stage] = {}
        self.refused: list[str] = []

    def keep(self, unit: object, op: str, ordinal: int, stage: Stage, value: Any) -> None:
        try:
            self.values[(unit, op, ordinal)] = fresh(value)
            self.stages[op] = stage
        except Uncopyable as error:
            self.refused.append(f"{op}: {error}")

    def find(self, unit: object, op: str, ordinal: int) -> Any:
        value = self.values.get((unit, op, ordinal), MISSING)
        return value if value is MISSING else fresh(value)


def same(one: Any, other: Any) -> bool:
    """Equal in value and kind, arrays and images to the last bit."""
    if hasattr(one, "mode") and hasattr(one, "tobytes") and hasattr(one, "getbands"):
        return (one.mode, one.size, one.info, one.tobytes()) == (other.mode, other.size, other.info, other.tobytes())
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if type(one).__module__.startswith(("torch", "torchvision")):
        import torch

        return one.dtype == other.dtype and torch.equal(one, other)
    if hasattr(one, "equals"):
        return bool(one.equals(other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


class Seams:
    """Installs seam modules, runs a call under each mode, and looks at what was charged."""

    def __init__(self) -> None:
        self.tap = Tap()
        self.patches = Patches()
        self.tape = DictTape()
        self._before: list[tuple[Any, str, Any]] = []

    def install(self, *names: str) -> None:
        """Modules of the room, and rows of these libraries."""
        for name in set(names) & set(MODULES):
            importlib.import_module(f"pipefix.seams.{name}").install(self.tap, self.patches)
        simple_calls.install(self.tap, self.patches, {name.partition("_")[0] or name for name in names})
        self.patches.follow_names()

    def undo(self) -> None:
        """Undo, and check that every attribute is the very object it was."""
        replaced = list(self.patches.replaced)
        self.patches.undo()
        seen = set()
        for one in replaced:
            if (id(one.owner), one.name) in seen:
                continue
            seen.add((id(one.owner), one.name))
            assert held(one.owner, one.name) is one.original, f"{one.owner}.{one.name} was not restored"

    def run(self, call: Callable[[], Any], *, unit: object = 0, record: bool = False, replace: Any = ()) -> Any:
        tap = self.tap
        tap.clear()
        tap.active = True
        tap.recording = self.tape if record else None
        tap.playing = self.tape if replace else None
        tap.replaced = frozenset(replace)
        tap.begin(unit)
        try:
            return call()
        finally:
            tap.end()
            tap.active = False
            tap.recording = tap.playing = None
            tap.replaced = frozenset()

    def charged(self) -> dict[str, str]:
        """Operations that were really called in the last run, and their stage."""
        return {name: str(stage) for (stage, name), calls in zip(self.tap.names, self.tap.calls, strict=True) if calls and stage}

    def contract(self, call: Callable[[], Any], *names: str, ops: dict[str, str], replace: Any = EVERY) -> None:
        """``call`` gives the same in every mode; timed it is charged to exactly ``ops``; replayed it calls none of them."""
        bare = call()
        self.install(*names)
        try:
            assert same(call(), bare), "off"
            assert same(self.run(call), bare), "timed"
            assert self.charged() == ops
            assert same(self.run(call, record=True), bare), "recorded"
            assert self.charged() == ops
            assert not self.tape.refused
            assert same(self.run(call, replace=replace), bare), "replayed"
            left = {name: stage for name, stage in self.charged().items() if stage in replace}
            assert not left, f"still called: {left}"
            assert self.tap.misses == 0
        finally:
            self.undo()
        assert same(call(), bare), "undone"


@pytest.fixture
def seams() -> Iterator[Seams]:
    one = Seams()
    yield one
    one.undo()


@pytest.fixture(scope="session")
def make_seams() -> type[Seams]:
    return Seams
