"""Replaces attributes of modules and classes, and puts them back, also where others (tracers, profilers, mocks) replace them too.

An attribute is put back only where it still holds what was put there. Where somebody has wrapped our wrapper, it stays inside
theirs and passes every call straight through: all wrappers do that while their timer is not live. If they later take their own
away, ours comes to light again, and is put away the next time anything of this module runs.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from pipefix.vocabulary.attributes import own

_ABSENT = object()


@dataclass(slots=True)
class ReplacedAttribute:
    owner: Any
    name: str
    original: Any
    """`_ABSENT` where the owner inherited the attribute: it is deleted to put it back."""
    replacement: Any
    names: Mapping[str, Any] | None
    """What the owner itself holds, kept up to date by the interpreter; None of an instance, whose dict is better not asked for."""
    out: bool = False
    """Whether the original is in place for a while (`Patches.pause`)."""

    def put_back(self) -> bool:
        """Put the original in place, if the replacement is there now."""
        if self.there() is not self.replacement:
            return False
        if self.original is _ABSENT:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.original)
        return True

    def there(self) -> Any:
        """What is in place now."""
        return held(self.owner, self.name) if self.names is None else self.names.get(self.name, _ABSENT)


_covered: list[ReplacedAttribute] = []
"""Undone while somebody else's wrapper was in the place: they hold ours, and may put it there again."""


class Patches:
    """Attributes replaced together, and the way back."""

    def __init__(self) -> None:
        put_away_uncovered()
        self.replaced: list[ReplacedAttribute] = []
        self._renamed: dict[int, tuple[Any, Any]] = {}
        self._followed: list[tuple[Any, Any]] = []
        self._callbacks: list[Callable[[], object]] = []
        self.installed: set[str] = set()
        self.left_out: set[str] = set()
        """Libraries that have no hooks, or not all: their releases lack what those need."""

    def replace(self, owner: Any, name: str, replacement: Any, *, everywhere: bool = False) -> ReplacedAttribute:
        """Put ``replacement`` at ``owner.name``. With ``everywhere`` also where modules imported the function by name."""
        original = held(owner, name)
        setattr(owner, name, replacement)
        names = owner.__dict__ if isinstance(owner, (type, ModuleType)) else None
        attribute = ReplacedAttribute(owner, name, original, replacement, names)
        self.replaced.append(attribute)
        if everywhere and original is not _ABSENT:
            self._renamed[id(original)] = (original, replacement)
            self._enter_beside(original, replacement)
        return attribute

    def withdraw(self, attribute: ReplacedAttribute) -> None:
        """Put one back before all others."""
        attribute.put_back()
        self.replaced.remove(attribute)

    def _enter_beside(self, original: Any, replacement: Any) -> None:
        """Where functions are looked up by which they are: ``os.stat in os.supports_fd``, torchvision's kernels by function."""
        for known in (os.supports_dir_fd, os.supports_effective_ids, os.supports_fd, os.supports_follow_symlinks):
            if original in known:
                known.add(replacement)
                self.on_undo(functools.partial(known.discard, replacement))
        kernels = getattr(sys.modules.get("torchvision.transforms.v2.functional._utils"), "_KERNEL_REGISTRY", {})
        if original in kernels:
            kernels[replacement] = kernels[original]
            self.on_undo(functools.partial(kernels.pop, replacement, None))

    def follow_names(self) -> None:
        """Rebind ``from library import function`` copies in every loaded module."""
        _rebind(self._renamed)
        self._followed += self._renamed.values()
        self._renamed.clear()

    def on_undo(self, callback: Callable[[], object]) -> None:
        """For what is changed other than by an attribute."""
        self._callbacks.append(callback)

    def pause(self) -> None:
        """Put the originals back for a while, wherever they are looked up on their owners: hooks that are not needed cost nothing.

        Wrappers that somebody wrapped, and names by which modules imported a function, stay: wrappers pass straight through.
        """
        for attribute in reversed(self.replaced):
            if attribute.put_back():
                attribute.out = True

    def resume(self) -> None:
        """What `pause` took out is back, but where somebody has put something of theirs meanwhile: that stays what is called."""
        for attribute in self.replaced:
            if attribute.out and attribute.there() is attribute.original:
                setattr(attribute.owner, attribute.name, attribute.replacement)
                attribute.out = False

    def undo(self) -> None:
        """Put everything back that is still ours."""
        for callback in reversed(self._callbacks):
            callback()
        self._callbacks.clear()
        for attribute in reversed(self.replaced):
            # Of instances it is not asked what is there: they would be kept alive.
            if not attribute.put_back() and attribute.names is not None and attribute.there() is not attribute.original:
                _covered.append(attribute)
        # Also in modules that were imported, and so took our wrapper by name, while it was in place.
        _rebind({id(replacement): (replacement, _behind(original)) for original, replacement in self._followed})
        self.replaced.clear()
        self._renamed.clear()
        self._followed.clear()
        self.installed.clear()
        put_away_uncovered()


def put_away_uncovered() -> None:
    """Put away wrappers that were undone inside somebody else's, and have come to light since."""
    while any(attribute.put_back() for attribute in reversed(_covered)):
        pass  # under a wrapper that was put away another may have lain


def _behind(function: Any) -> Any:
    """What a function stands for: itself, or the original of a wrapper that was undone inside this one's."""
    for attribute in reversed(_covered):
        if attribute.replacement is function:
            function = attribute.original
    return function


def held(owner: Any, name: str) -> Any:
    """What the owner itself has under this name, descriptors as they are; `_ABSENT` where it inherits or lacks it."""
    if isinstance(owner, FunctionType) and name == "__code__":
        return owner.__code__  # in no dict of its own
    return owner.__dict__.get(name, _ABSENT) if isinstance(owner, (type, ModuleType)) else own(owner, name, _ABSENT)


def _rebind(swaps: dict[int, tuple[Any, Any]]) -> None:
    """In every loaded module but ours: names bound to the first of a pair get the second. That takes some 15 ms."""
    for module in list(sys.modules.values()) if swaps else ():
        # By its type: libraries of cffi stand among modules, and call themselves one.
        if not issubclass(type(module), ModuleType):
            continue
        names = ModuleType.__getattribute__(module, "__dict__")  # asked otherwise, one of importlib's LazyLoader would load
        if not names or str(names.get("__name__")).partition(".")[0] == "pipefix":
            continue
        if swaps.keys().isdisjoint(map(id, list(names.values()))):
            continue
        for name, value in list(names.items()):
            swap = swaps.get(id(value))
            if swap is not None and swap[0] is value:
                names[name] = swap[1]
