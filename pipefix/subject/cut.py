"""Where the user's own pipeline is cut: callables held by the dataset, its methods, and the functions of its file that it calls.

Libraries are cut by `pipefix.seams`. Here the stage is not known beforehand: a callable that is handed pixels augments, one that is
handed bytes decodes, and for anything else it depends on what the sample has been through so far.
"""

from __future__ import annotations

import functools
import inspect
import io
import sys
import sysconfig
from collections.abc import Callable
from types import FunctionType, MethodType, ModuleType
from typing import Any

from pipefix.seams.fresh import force
from pipefix.seams.seam import Patches
from pipefix.seams.tap import OWN_DECODED, OWN_RAW, Tap
from pipefix.vocabulary.stage import Stage

_LIBRARY_FOLDERS = tuple({sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")})
_RAW = (bytes, bytearray, memoryview, io.BytesIO)
_DEPTH = 4
_LOOK_AT = 8
"""How many elements of a list or dict decide what it holds."""


def is_users(name: str) -> bool:
    """Whether a module is the user's own: neither a library's, nor ours, nor built in."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if name == "__main__":
        return True
    return file is not None and not file.startswith(_LIBRARY_FOLDERS) and name.partition(".")[0] != "pipefix"


def stage_of(values: Any, phase: int) -> Stage | None:
    """What a call that is handed ``values`` does; None where it can't be told (an index, a path)."""
    for value in values:
        stage = _stage_of_one(value)
        if stage is not None:
            return stage
    return Stage.DECODE if phase == OWN_RAW else Stage.AUGMENT if phase == OWN_DECODED else None


def _stage_of_one(value: Any, nested: bool = False) -> Stage | None:
    kind = type(value)
    if kind in (int, str, float, bool, type(None)):
        return None
    if isinstance(value, _RAW):
        return Stage.DECODE
    module = kind.__module__.partition(".")[0]
    if module in ("numpy", "torch", "torchvision") and hasattr(value, "dtype") and hasattr(value, "ndim"):
        raw = value.ndim == 1 and str(value.dtype).endswith("uint8")
        return Stage.DECODE if raw else Stage.AUGMENT if value.ndim else None
    if module == "PIL" and hasattr(value, "size"):
        return Stage.AUGMENT
    if not nested and isinstance(value, (list, tuple, dict)):
        inner = list(value.values() if isinstance(value, dict) else value)[:_LOOK_AT]
        return next((stage for one in inner if (stage := _stage_of_one(one, nested=True)) is not None), None)
    return None


class Cutter:
    """Cuts one dataset (and all that it wraps). Everything it replaces is put back by ``patches.undo()``."""

    def __init__(self, tap: Tap, patches: Patches) -> None:
        self.tap = tap
        self.patches = patches
        self.opaque: dict[str, str] = {}
        """What could not be cut, and why."""
        self._seen: set[int] = set()
        self._types: set[type] = set()
        self._functions: set[int] = set()

    def dataset(self, dataset: Any) -> None:
        self._object(dataset, 0, dataset=True)

    # -- objects -------------------------------------------------------------------------------------------------

    def _object(self, value: Any, depth: int, *, dataset: bool = False) -> None:
        if id(value) in self._seen or depth > _DEPTH:
            return
        self._seen.add(id(value))
        if dataset or is_users(type(value).__module__):
            self._methods(type(value), value)
        for name, held in _attributes(value):
            if name in ("dataset", "datasets") and not callable(held):
                for part in held if isinstance(held, (list, tuple)) else [held]:
                    self._object(part, depth, dataset=True)
            elif isinstance(held, (FunctionType, MethodType, functools.partial)):
                self._held_function(value, name, held)
            elif callable(held) and not isinstance(held, (type, ModuleType)):
                self._operation(held, depth)
            elif is_users(type(held).__module__):
                self._object(held, depth + 1)

    def _held_function(self, owner: Any, name: str, function: Any) -> None:
        """``self.transform = a_function``: replaced on the object itself."""
        if isinstance(function, MethodType) and function.__self__ is owner:
            return
        label = _label(function)
        try:
            self.patches.replace(owner, name, self._wrapped(function, label))
        except (AttributeError, TypeError) as error:
            self.opaque[f"{type(owner).__name__}.{name}"] = f"the attribute cannot be replaced ({error})"
        self._called_by(getattr(function, "func", function), 0)

    def _operation(self, operation: Any, depth: int) -> None:
        """A callable object: a transform, or a list of them. Its class's ``__call__`` is cut, so every instance is."""
        if id(operation) in self._seen or depth > 2 * _DEPTH:
            return
        self._seen.add(id(operation))
        children = _children(operation)
        for child in children:
            if isinstance(child, FunctionType):
                self._list_function(operation, child)
            else:
                self._operation(child, depth + 1)
        kind = type(operation)
        if kind in self._types or kind.__module__ == "builtins" or "__call__" not in dir(kind):
            return
        self._types.add(kind)
        original = kind.__call__
        tap = self.tap

        if children:

            @functools.wraps(original)
            def outer(self: Any, *args: Any, **kwargs: Any) -> Any:
                stage = stage_of(args, tap.phase) if tap.active else None
                if stage is None:
                    return original(self, *args, **kwargs)
                return tap.entry(stage, type(self).__name__, original, (self, *args), kwargs, force=force)

            wrapper = outer
        else:

            @functools.wraps(original)
            def leaf(self: Any, *args: Any, **kwargs: Any) -> Any:
                stage = stage_of(args, tap.phase) if tap.active else None
                if stage is None:
                    return original(self, *args, **kwargs)
                return tap.entry(stage, _label(self), original, (self, *args), kwargs, force=force, leaf=True)

            wrapper = leaf
        try:
            self.patches.replace(kind, "__call__", wrapper)
        except TypeError:
            self.opaque[kind.__name__] = "its class is written in C and cannot be patched"

    def _list_function(self, operation: Any, function: FunctionType) -> None:
        """A plain function inside a transform list: replaced in the list for the time of the probe."""
        listed = getattr(operation, "transforms", None)
        if not isinstance(listed, list) or function not in listed:
            self.opaque[_label(function)] = "a plain function held where it cannot be replaced"
            return
        swapped = [self._wrapped(one, _label(one)) if isinstance(one, FunctionType) else one for one in listed]
        self.patches.replace(operation, "transforms", swapped)

    # -- methods and functions -------------------------------------------------------------------------------------

    def _methods(self, kind: type, instance: Any) -> None:
        for owner in kind.__mro__:
            if not is_users(owner.__module__) or owner in self._types:
                continue
            self._types.add(owner)
            for name, member in list(vars(owner).items()):
                static = isinstance(member, staticmethod)
                function = member.__func__ if static else member
                if not isinstance(function, FunctionType):
                    continue
                self._called_by(function, 0)
                if name.startswith("__") or _is_lazy(function):
                    continue
                wrapped = self._wrapped(function, f"{kind.__name__}.{name}", skip_first=not static)
                self.patches.replace(owner, name, staticmethod(wrapped) if static else wrapped)

    def _called_by(self, function: Any, depth: int) -> None:
        """Cut the functions of the user's own modules that ``function`` names, and those they name."""
        code = getattr(function, "__code__", None)
        if code is None or id(code) in self._functions or depth > _DEPTH:
            return
        self._functions.add(id(code))
        scope = function.__globals__
        for name in _names(code):
            called = scope.get(name)
            if not isinstance(called, FunctionType) or not is_users(called.__module__ or "") or _is_lazy(called):
                continue
            if getattr(called, "__wrapped__", None) is not None and getattr(called, "__pipefix__", False):
                continue
            self._called_by(called, depth + 1)
            module = sys.modules.get(scope.get("__name__", ""))
            if module is not None and vars(module) is scope:
                self.patches.replace(module, name, self._wrapped(called, name))

    def _wrapped(self, function: Any, label: str, *, skip_first: bool = False) -> Callable[..., Any]:
        tap = self.tap
        start = 1 if skip_first else 0

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if not tap.active:
                return function(*args, **kwargs)
            stage = stage_of((*args[start:], *kwargs.values()), tap.phase)
            if stage is None:
                return function(*args, **kwargs)
            return tap.entry(stage, label, function, args, kwargs, force=force)

        with_name = wrapper
        try:
            with_name = functools.wraps(function)(wrapper)
        except AttributeError:
            wrapper.__wrapped__ = function  # type: ignore[attr-defined]
        with_name.__pipefix__ = True  # type: ignore[attr-defined]
        return with_name


def _attributes(value: Any) -> list[tuple[str, Any]]:
    return list(vars(value).items()) if hasattr(value, "__dict__") else []


def _children(operation: Any) -> list[Any]:
    """The operations inside a Compose, a RandomApply, a StandardTransform, an albumentations list …"""
    found: list[Any] = []
    for name, held in _attributes(operation):
        members = held if isinstance(held, (list, tuple)) else held.values() if name == "_modules" else [held]
        for member in members:
            if callable(member) and not isinstance(member, (type, ModuleType, MethodType)) and not _is_plumbing(member):
                found.append(member)
    return found


def _is_plumbing(member: Any) -> bool:
    """Enumerations, random generators and the like: callable, but no operation on samples."""
    if isinstance(member, FunctionType):
        return not is_users(member.__module__ or "")
    return type(member).__module__.partition(".")[0] in ("enum", "random", "builtins", "functools", "logging", "weakref", "typing")


def _names(code: Any) -> set[str]:
    inner = (constant for constant in code.co_consts if inspect.iscode(constant))
    return set(code.co_names).union(*(_names(one) for one in inner))


def _is_lazy(function: Any) -> bool:
    """Generators and coroutines return before they work, so timing the call would say nothing."""
    return inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function)


def _label(operation: Any) -> str:
    if isinstance(operation, functools.partial):
        return _label(operation.func)
    if isinstance(operation, (FunctionType, MethodType)):
        return operation.__qualname__.replace("<locals>.", "")
    held = getattr(operation, "lambd", None)
    return f"Lambda({_label(held)})" if held is not None else type(operation).__name__
