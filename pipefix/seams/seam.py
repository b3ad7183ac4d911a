"""What a seam file is: one small module per library that says where its calls can be cut.

A module in this package becomes a seam by defining

    LIBRARY = "PIL"                      # the import that must have happened; "" for the standard library
    OPAQUE = {"call": "why"}             # optional: what of this library cannot be cut
    def stand_in(tap, value): ...        # optional: wrap an object that was made before the seams came
    def install(tap, patches): ...       # call patches.replace(owner, "name", wrapper) for every function to cut

Nothing else has to be registered: `install_all` finds the modules by walking the package.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from types import ModuleType
from typing import Any, Protocol, cast

import pipefix.seams as package
from pipefix.seams.patches import Patches
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

_NO_SEAMS = (
    "charges", "extents", "fresh", "from_memory", "handover", "objects", "patches", "seam", "tap", "tape", "taped_files",
    "torch_internals", "whole_files",
)  # fmt: skip
"""Modules of this package that are not seams themselves."""


class SeamModule(Protocol):
    LIBRARY: str

    def install(self, tap: Tap, patches: Patches) -> None: ...


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

    ``counts`` tells from its result how many bytes a storage call read (where no seam below it counts them). What this release of
    the library does not have stays uncut, and so does a method of a class written in C that lets nothing be replaced.
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

    _replace(patches, owner, name, wrapper)


def cut_each(
    tap: Tap, patches: Patches, owner: Any, names: Iterable[str], stage: Stage, prefix: str, *, replayable: bool = True
) -> None:
    """Several functions or methods of one owner that are operations of one stage, named ``prefix.name``."""
    for name in names:
        cut(tap, patches, owner, name, stage, f"{prefix}.{name}", replayable=replayable)


def cut_iterator(tap: Tap, patches: Patches, owner: Any, name: str, stage: Stage, op: str) -> None:
    """A method that gives its results one by one (and never None): each step is an operation, recorded by itself."""
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        iterator = original(*args, **kwargs)
        return _timed_steps(tap, stage, op, iter(iterator)) if tap.live else iterator

    _replace(patches, owner, name, wrapper)


def _timed_steps(tap: Tap, stage: Stage, op: str, steps: Iterator[Any]) -> Iterator[Any]:
    while (value := tap.through(stage, op, next, (steps, None))) is not None:
        yield value


def cut_making(tap: Tap, patches: Patches, module: ModuleType, name: str, stage: Stage) -> None:
    """A class written in C whose constructor works: in its place in the module stands a class that makes the original's objects."""
    original: type = getattr(module, name)

    class Meta(type):
        def __new__(meta, made: str, bases: tuple[type, ...], members: dict[str, Any]) -> Any:
            if not bases:
                return super().__new__(meta, made, (), members)
            # Who derives from the class meanwhile derives from the original.
            return type(original)(made, tuple(original if isinstance(base, Meta) else base for base in bases), members)

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return tap.through(stage, f"{module.__name__}.{name}", original, args, kwargs, replayable=False)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, original)

        def __getattr__(cls, attribute: str) -> Any:
            return getattr(original, attribute)

    patches.replace(module, name, Meta(name, (), {"__module__": module.__name__, "__doc__": original.__doc__}), everywhere=True)


def _replace(patches: Patches, owner: Any, name: str, wrapper: Any) -> None:
    with contextlib.suppress(TypeError):  # an immutable class
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


def loaded_libraries() -> list[str]:
    """Libraries with a seam that this process has imported by now."""
    known = (importlib.import_module(f"{package.__name__}.{name}").LIBRARY for name in names())
    return sorted(library for library in known if library in sys.modules)


def install_all(tap: Tap, patches: Patches, only: Collection[str] | None = None) -> list[str]:
    """Install the seams of every library imported by now, or ``only`` these; call again when more have been imported.

    Returns what was added.
    """
    added = []
    for name in names() if only is None else only:
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
