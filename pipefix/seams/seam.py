"""What a seam file is: one small module per library that says where its calls can be cut.

A module in this package becomes a seam by defining

    LIBRARY = "PIL"                      # the import that must have happened; "" for the standard library
    OPAQUE = {"call": "why"}             # optional: what of this library cannot be cut
    def stand_in(tap, value): ...        # optional: wrap an object that was made before the seams came
    def install(tap, patches): ...       # call patches.replace(owner, "name", wrapper) for every function to cut

Nothing else has to be registered: `install_all` finds the modules by walking the package.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol, cast

import pipefix.seams as package
from pipefix.seams.tap import Tap
from pipefix.vocabulary.attributes import own
from pipefix.vocabulary.stage import Stage

_ABSENT = object()
_NO_SEAMS = ("seam", "tap", "fresh", "extents", "from_memory", "handover")
"""Modules of this package that are not seams themselves."""


class SeamModule(Protocol):
    LIBRARY: str

    def install(self, tap: Tap, patches: Patches) -> None: ...


class Patches:
    """Replaced attributes, and the way back."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []
        self._renamed: dict[int, tuple[Any, Any]] = {}
        self._followed: list[tuple[Any, Any]] = []
        self._callbacks: list[Callable[[], object]] = []
        self._paused: list[tuple[Any, str, Any]] | None = None
        """While paused: what is to be put back where."""
        self.installed: set[str] = set()

    def replace(self, owner: Any, name: str, replacement: Any, *, everywhere: bool = False) -> None:
        """Put ``replacement`` at ``owner.name``. With ``everywhere`` also where modules imported the function by name."""
        original = owner.__dict__.get(name, _ABSENT) if isinstance(owner, (type, ModuleType)) else own(owner, name, _ABSENT)
        setattr(owner, name, replacement)
        self._undo.append((owner, name, original))
        if everywhere and original is not _ABSENT:
            self._renamed[id(original)] = (original, replacement)

    def follow_names(self) -> None:
        """Rebind ``from library import function`` copies in every loaded module."""
        _rebind(self._renamed)
        self._followed += self._renamed.values()
        self._renamed.clear()

    def on_undo(self, callback: Callable[[], object]) -> None:
        """For what is changed other than by an attribute."""
        self._callbacks.append(callback)

    def pause(self) -> None:
        """Put the originals back for a while, wherever they are looked up on their owners: seams that are not needed cost nothing.

        Names by which modules imported a function go on meaning its wrapper, which passes straight through.
        """
        if self._paused is None:
            self._paused = [(owner, name, owner.__dict__[name]) for owner, name, _ in self._undo]
            for owner, name, original in reversed(self._undo):
                _put(owner, name, original)

    def resume(self) -> None:
        """What `pause` took out is back."""
        if self._paused is not None:
            for owner, name, replacement in self._paused:
                _put(owner, name, replacement)
            self._paused = None

    def undo(self) -> None:
        self._paused = None
        for callback in reversed(self._callbacks):
            callback()
        self._callbacks.clear()
        for owner, name, original in reversed(self._undo):
            _put(owner, name, original)
        # Also in modules that were imported, and so took our wrapper by name, while it was in place.
        _rebind({id(replacement): (replacement, original) for original, replacement in self._followed})
        self._undo.clear()
        self._renamed.clear()
        self._followed.clear()
        self.installed.clear()


def _put(owner: Any, name: str, value: Any) -> None:
    if value is not _ABSENT:
        setattr(owner, name, value)
    elif name in owner.__dict__:
        delattr(owner, name)


def _rebind(swaps: dict[int, tuple[Any, Any]]) -> None:
    """In every loaded module but ours: names bound to the first of a pair get the second."""
    if not swaps:
        return
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if not isinstance(module, ModuleType) or names is None or module.__name__.startswith("pipefix"):
            continue
        if swaps.keys().isdisjoint(map(id, list(names.values()))):
            continue  # nearly every module: hundreds of them, with a hundred thousand names
        for name, value in list(names.items()):
            found = swaps.get(id(value))
            if found is not None and found[0] is value:
                names[name] = found[1]


def subclass_in_place(patches: Patches, module: ModuleType, name: str) -> type:
    """Put a subclass where a library offers a class written in C, whose methods cannot be replaced on the class itself.

    Only for classes that free their objects as Python does (many C extensions do not, and crash). Objects made before are still
    instances of it, as far as ``isinstance`` can tell.
    """
    original: type = getattr(module, name)

    class Meta(type(original)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, original)

    told = {key: getattr(original, key) for key in ("__module__", "__qualname__", "__doc__")}
    made = Meta(name, (original,), told)
    patches.replace(module, name, made, everywhere=True)
    return cast(type, made)


def cut(
    tap: Tap,
    patches: Patches,
    owner: Any,
    name: str,
    stage: Stage,
    op: str | None = None,
    *,
    replayable: bool = True,
    counts: Callable[[Any], int] | None = None,
) -> None:
    """The common case: a function that is one operation of one stage.

    ``counts`` tells from its result how many bytes a storage call read (where no seam below it counts them).
    """
    original = getattr(owner, name, None)
    if original is None:
        return
    label = op or f"{getattr(owner, '__name__', owner)}.{name}"
    called = original if counts is None else _counted(tap, original, counts)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not tap.live:
            return original(*args, **kwargs)
        return tap.through(stage, label, called, args, kwargs, replayable=replayable)

    patches.replace(owner, name, wrapper, everywhere=isinstance(owner, ModuleType))


def _counted(tap: Tap, original: Callable[..., Any], counts: Callable[[Any], int]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        value = original(*args, **kwargs)
        tap.bytes_read += counts(value)
        return value

    return call


def cut_stream(tap: Tap, patches: Patches, owner: Any, name: str, op: str | None = None) -> None:
    """A decoder whose first argument is a file object or a path: a recorded result also leaves the file where the call would."""
    original = getattr(owner, name)
    label = op or f"{owner.__name__}.{name}"

    def and_where(file: Any, *args: Any, **kwargs: Any) -> Any:
        return original(file, *args, **kwargs), file.tell()

    @functools.wraps(original)
    def wrapper(file: Any, *args: Any, **kwargs: Any) -> Any:
        if not tap.live:
            return original(file, *args, **kwargs)
        taping = tap.recording is not None or bool(tap.replaced)
        if not taping or not hasattr(file, "tell"):
            return tap.through(Stage.DECODE, label, original, (file, *args), kwargs)
        if not file.seekable():
            return tap.through(Stage.DECODE, label, original, (file, *args), kwargs, replayable=False)
        value, end = tap.through(Stage.DECODE, label, and_where, (file, *args), kwargs)
        if end != file.tell():
            file.seek(end)
        return value

    patches.replace(owner, name, wrapper, everywhere=isinstance(owner, ModuleType))


def opaque_reasons() -> dict[str, str]:
    """Calls of loaded libraries that cannot be cut (or not between storage and decode), and why."""
    reasons: dict[str, str] = {}
    for name in names():
        module = importlib.import_module(f"{package.__name__}.{name}")
        if not module.LIBRARY or module.LIBRARY in sys.modules:
            reasons.update(getattr(module, "OPAQUE", {}))
    return reasons


def stand_in(tap: Tap, value: Any) -> Any:
    """What behaves as ``value``, which was made before the seams were installed, but is timed; None where nothing does."""
    for name in names():
        wrap = getattr(sys.modules.get(f"{package.__name__}.{name}"), "stand_in", None)
        made = wrap(tap, value) if wrap is not None else None
        if made is not None:
            return made
    return None


def names() -> list[str]:
    """Every seam module of this package."""
    return [info.name for info in pkgutil.iter_modules(package.__path__) if info.name not in _NO_SEAMS]


def install_all(tap: Tap, patches: Patches) -> list[str]:
    """Install the seams of every library imported by now; call again when more have been. Returns what was added."""
    added = []
    for name in names():
        if name in patches.installed:
            continue
        module = cast(SeamModule, importlib.import_module(f"{package.__name__}.{name}"))
        if module.LIBRARY and module.LIBRARY not in sys.modules:
            continue
        patches.installed.add(name)
        module.install(tap, patches)
        added.append(name)
    if added:
        patches.follow_names()
    return added


Undo = Callable[[], None]
