"""Our wrappers and somebody else's on the same attribute: nothing of theirs is lost, and nothing of ours stays."""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipefix.hooks import patches
from pipefix.hooks.calls import hook
from pipefix.hooks.patches import Patches, held
from pipefix.hooks.sample_timer import SampleTimer


class Place:
    """An attribute that is wrapped: how it is called, and how a wrapper is put around what is there."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

        class Base:
            def method(self) -> str:
                return "method"

            @staticmethod
            def static() -> str:
                return "static"

            @classmethod
            def of_class(cls) -> str:
                return "class"

            @property
            def prop(self) -> str:
                return "property"

        class Child(Base):
            pass

        module = types.ModuleType("theirs")
        module.__dict__.update(function=lambda: "function", builtin="BUILT IN".lower)
        child = Child()
        self.owner, self.name, self.call = {
            "function": (module, "function", lambda: module.function()),
            "builtin": (module, "builtin", lambda: module.builtin()),
            "method": (Base, "method", lambda: child.method()),
            "inherited": (Child, "method", lambda: child.method()),
            "static": (Base, "static", lambda: child.static()),
            "class method": (Base, "of_class", lambda: Child.of_class()),
            "property": (Base, "prop", lambda: child.prop),
        }[kind]

    def wrapped(self, log: Callable[[], object]) -> Any:
        """A wrapper around what is there now, of its kind."""
        owner, name = self.owner, self.name
        there = held(owner, name)
        if self.kind == "property":
            return property(lambda instance: (log(), there.fget(instance))[1])
        if self.kind == "class method":
            return classmethod(lambda kind: (log(), there.__func__(kind))[1])
        function = getattr(owner, name)
        wrapper = lambda *args: (log(), function(*args))[1]  # noqa: E731
        return staticmethod(wrapper) if self.kind == "static" else wrapper


class Stranger:
    """Wraps the attribute and puts back what was there, naively: whatever is there by then."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.calls: list[int] = []
        self._saved: dict[int, Any] = {}

    def wrap(self, number: int) -> None:
        if number not in self._saved:
            self._saved[number] = held(self.place.owner, self.place.name)
            setattr(self.place.owner, self.place.name, self.place.wrapped(lambda: self.calls.append(number)))

    def unwrap(self, number: int) -> None:
        saved = self._saved.pop(number, patches._ABSENT)
        if saved is not patches._ABSENT:
            setattr(self.place.owner, self.place.name, saved)
        elif held(self.place.owner, self.place.name) is not patches._ABSENT and self.place.kind == "inherited":
            delattr(self.place.owner, self.place.name)

    def observed(self) -> tuple[Any, list[int]]:
        self.calls.clear()
        return self.place.call(), list(self.calls)


def install(place: Place, user: Patches) -> None:
    """One hook of ours, which comes and goes."""
    if place.kind in ("property", "class method", "static"):
        user.replace(place.owner, place.name, place.wrapped(lambda: None))
    else:
        hook(SampleTimer(), user, place.owner, place.name)(lambda *_: None)


KINDS = ["function", "builtin", "method", "inherited", "static", "class method", "property"]
ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["wrap", "unwrap"]), st.integers(0, 2)),
    st.tuples(st.sampled_from(["install", "pause", "resume", "undo"]), st.integers(0, 1)),
)


@given(kind=st.sampled_from(KINDS), actions=st.lists(ACTIONS, max_size=14))
def test_any_interleaving_leaves_what_a_world_without_us_would_have(kind: str, actions: list[tuple[str, int]]) -> None:
    place, twin = Place(kind), Place(kind)
    users = [Patches(), Patches()]
    stranger, alone = Stranger(place), Stranger(twin)
    before = held(place.owner, place.name)
    wrapping: set[int] = set()
    for action, number in actions:
        if action in ("wrap", "unwrap"):
            if (action == "wrap") == (number in wrapping):
                continue
            wrapping ^= {number}
            getattr(stranger, action)(number)
            getattr(alone, action)(number)
        elif action == "install":
            install(place, users[number])
        else:
            getattr(users[number], action)()
        assert stranger.observed() == alone.observed(), f"after {action} {number}"
    for user in users:
        user.undo()
    assert stranger.observed() == alone.observed()
    for number in sorted(wrapping, reverse=True):
        stranger.unwrap(number)
        alone.unwrap(number)
        assert stranger.observed() == alone.observed()
    patches.put_away_uncovered()
    if not wrapping and not any(action == "wrap" for action, _ in actions):
        assert held(place.owner, place.name) is before
    if alone.observed()[1] == []:
        assert held(place.owner, place.name) is before, "nothing of ours is left"


def test_what_is_wrapped_while_paused_is_not_lost_by_resuming() -> None:
    place = Place("function")
    ours, stranger = Patches(), Stranger(place)
    install(place, ours)
    ours.pause()
    stranger.wrap(1)
    ours.resume()
    assert stranger.observed() == ("function", [1])
    stranger.unwrap(1)
    installed = ours.replaced[0].replacement
    ours.resume()
    assert place.owner.function is installed, "it is timed again as soon as it can be"
    ours.undo()


class Library:
    """A module with a function, and modules that took it by name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.module = self.imported("a_library")
        exec("def read(): return 1", vars(self.module))
        self.before = vars(self.module)["read"]

    def imported(self, name: str, **names: object) -> types.ModuleType:
        module = types.ModuleType(name)
        vars(module).update(names)
        self.monkeypatch.setitem(sys.modules, name, module)
        return module

    def now(self) -> Callable[[], int]:
        return vars(self.module)["read"]

    def hooked(self) -> Patches:
        user, inner = Patches(), self.now()
        user.replace(self.module, "read", lambda: inner(), everywhere=True)
        user.follow_names()
        return user


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    return Library(monkeypatch)


def test_names_that_modules_imported_are_pythons_again_in_any_order(library: Library) -> None:
    """Two users cut the same function; modules took the second one's wrapper by name. The first leaves first."""
    consumer = library.imported("pipefix_experiments", mine=library.before)
    users = []
    for _ in range(2):
        users.append(library.hooked())
        assert vars(consumer)["mine"] is library.now() is not library.before, "a module of the user's, whatever it is called"
    users[0].undo()
    assert vars(consumer)["mine"]() == 1
    users[1].undo()
    assert library.now() is vars(consumer)["mine"] is library.before


def test_what_modules_take_while_hooks_are_in_place_is_put_back(library: Library) -> None:
    user = library.hooked()
    late = library.imported("a_late_one", mine=library.now())
    user.undo()
    assert vars(late)["mine"] is library.before


def test_a_module_that_is_loaded_when_it_is_first_used_stays_unloaded(library: Library, tmp_path: Path) -> None:
    """All that a LazyLoader of importlib's stood for was loaded, and what cannot be loaded ended the probe."""
    (tmp_path / "lazily.py").write_text("raise ImportError('loaded')")
    specification: Any = importlib.util.spec_from_file_location("lazily", tmp_path / "lazily.py")
    specification.loader = importlib.util.LazyLoader(specification.loader)
    module = importlib.util.module_from_spec(specification)
    library.monkeypatch.setitem(sys.modules, "lazily", module)
    specification.loader.exec_module(module)
    library.hooked().undo()
