"""The contract every hook keeps: the same result off, timed, recorded and replayed; charged to the right operation; undone."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from pipefix.hooks import simple_calls
from pipefix.hooks.calls import Calls, install_row
from pipefix.hooks.install import MODULES
from pipefix.hooks.patches import Patches, held
from pipefix.hooks.recording import Recording
from pipefix.hooks.sample_timer import SampleTimer
from pipefix.vocabulary.stage import Stage

EVERY = frozenset((Stage.STORAGE, Stage.DECODE, Stage.AUGMENT))


def library_of(row: Calls) -> str:
    return row.module.partition(".")[0].lower()


def same(value: Any, expected: Any) -> bool:
    """Equal in value and kind, arrays and images to the last bit."""
    if hasattr(value, "mode") and hasattr(value, "tobytes") and hasattr(value, "getbands"):
        same_kind = (value.mode, value.size, value.info) == (expected.mode, expected.size, expected.info)
        return same_kind and value.tobytes() == expected.tobytes()
    if type(value) is not type(expected):
        return False
    if isinstance(value, np.ndarray):
        return value.dtype == expected.dtype and value.shape == expected.shape and value.tobytes() == expected.tobytes()
    if type(value).__module__.startswith(("torch", "torchvision")):
        import torch

        return value.dtype == expected.dtype and torch.equal(value, expected)
    if hasattr(value, "equals"):
        return bool(value.equals(expected))
    if isinstance(value, dict):
        return value.keys() == expected.keys() and all(same(value[key], expected[key]) for key in value)
    if isinstance(value, (list, tuple)):
        return len(value) == len(expected) and all(map(same, value, expected))
    return bool(value == expected)


class Hooks:
    """Installs hook modules, runs a call under each mode, and looks at what was charged."""

    def __init__(self) -> None:
        self.timer = SampleTimer()
        self.patches = Patches()
        self.store = Recording(1 << 30)

    def install(self, *names: str) -> None:
        """Modules of the room, and rows of these libraries."""
        for name in set(names) & set(MODULES):
            importlib.import_module(f"pipefix.hooks.{name}").install(self.timer, self.patches)
        wanted = {name.partition("_")[0] or name for name in names}
        for row in simple_calls.TABLE:
            if row.module in sys.modules and library_of(row) in wanted:
                install_row(row, self.timer, self.patches)
        self.patches.follow_names()

    def undo(self) -> None:
        """Undo, and check that every attribute is the very object it was."""
        replaced = list(self.patches.replaced)
        self.patches.undo()
        restored = set()
        for patch in replaced:
            if (id(patch.owner), patch.name) in restored:
                continue
            restored.add((id(patch.owner), patch.name))
            assert held(patch.owner, patch.name) is patch.original, f"{patch.owner}.{patch.name} was not restored"

    def run(self, call: Callable[[], Any], *, unit: object = 0, record: bool = False, replace: Any = ()) -> Any:
        timer = self.timer
        timer.clear()
        timer.active = True
        timer.recording = self.store if record else None
        timer.playing = self.store if replace else None
        timer.replaced = frozenset(replace)
        timer.begin(unit)
        try:
            return call()
        finally:
            timer.end()
            timer.active = False
            timer.recording = timer.playing = None
            timer.replaced = frozenset()

    def charged(self) -> dict[str, str]:
        """Operations that were really called in the last run, and their stage."""
        return {
            name: str(stage) for (stage, name), calls in zip(self.timer.names, self.timer.calls, strict=True) if calls and stage
        }

    def contract(self, call: Callable[[], Any], *names: str, ops: dict[str, str], recorded: Any = None) -> None:
        """``call`` gives the same in every mode; timed it is charged to exactly ``ops``; replayed it calls none of them.

        ``recorded``: what it is charged to while it is recorded, where that differs.
        """
        bare = call()
        self.install(*names)
        try:
            assert same(call(), bare), "off"
            assert same(self.run(call), bare), "timed"
            assert self.charged() == ops
            assert same(self.run(call, record=True), bare), "recorded"
            assert self.charged() == (recorded or ops)
            assert not self.store.refused
            assert same(self.run(call, replace=EVERY), bare), "replayed"
            assert not self.charged(), "still called"
            assert self.timer.misses == 0
        finally:
            self.undo()
        assert same(call(), bare), "undone"


@pytest.fixture
def hooks() -> Iterator[Hooks]:
    installed = Hooks()
    yield installed
    installed.undo()


@pytest.fixture
def module_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Makes a loaded module that has run a text: what it took by name (``from json import loads``) is replaced in it as well."""

    def made(text: str) -> Any:
        module = types.ModuleType("took_by_name")
        exec(text, vars(module))
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return module

    return made


@pytest.fixture(scope="session")
def make_hooks() -> type[Hooks]:
    return Hooks
