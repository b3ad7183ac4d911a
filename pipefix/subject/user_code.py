"""Hooks in the user's own code: callables that the dataset holds, its methods, and functions of its file that it calls.

Libraries are cut by `pipefix.hooks`. Here the stage is not known beforehand: a callable that is handed pixels augments, one that is
handed bytes decodes, and for anything else it depends on what the sample has been through so far (`staging`).

Cutting must not change what the code does. So a wrapper keeps the kind of thing that it replaces (a function, a bound method, a
partial), one function has one wrapper wherever it is held, and objects are looked into without running their code.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from types import FunctionType, MethodType, ModuleType
from typing import Any

from torch.utils.data import Dataset

from pipefix.hooks.install import stand_in
from pipefix.hooks.patches import Patches
from pipefix.hooks.sample_timer import SampleTimer
from pipefix.subject.staging import UNKNOWN, StageEvidence, is_lazy, is_users_function
from pipefix.vocabulary.attributes import attributes, names_in
from pipefix.vocabulary.user_modules import is_users

_DEPTH = 4
_LONGEST_LIST = 64
"""A longer list holds samples, not operations."""
_DEEPER = 4
"""A wrapper adds frames: so many times more recursion is let through while functions are wrapped."""
_MAKES_SAMPLES = ("__getitem__", "__getitems__", "__iter__", "__next__")
_FUNCTIONS = (FunctionType, MethodType, functools.partial)
_PLUMBING = ("enum", "random", "builtins", "functools", "logging", "weakref", "typing", "_thread", "threading", "types")
"""Callable, but no operations on samples."""


class UserCodeHooks:
    """Cuts one dataset (and all that it wraps). Everything it replaces is put back by ``patches.undo()``."""

    def __init__(self, timer: SampleTimer, patches: Patches) -> None:
        self.timer = timer
        self.patches = patches
        self.evidence = StageEvidence()
        self._seen: dict[int, Any] = {}
        """By id: objects, and the lists and dicts whose functions were replaced."""
        self._originals: dict[int, tuple[Any, Any]] = {}
        """By the id of what stands in for a function: itself (so that its id stays its own), and the function."""
        self._types: set[type] = set()
        self._codes: set[int] = set()
        self.functions: set[FunctionType] = set()
        """Of the user's own."""
        self._wrappers: dict[int, tuple[Any, Any]] = {}
        """By the function's id: the function (so that its id stays its own) and its wrapper."""

    def dataset(self, dataset: Any) -> None:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, limit * _DEEPER))
        self.patches.on_undo(lambda: sys.setrecursionlimit(limit))
        self.patches.on_undo(self._put_back)
        self._object(dataset, 0, dataset=True)

    # -- objects -------------------------------------------------------------------------------------------------

    def _object(self, value: Any, depth: int, *, dataset: bool = False) -> None:
        if id(value) in self._seen or depth > _DEPTH:
            return
        self._seen[id(value)] = value
        if dataset or is_users(type(value).__module__):
            self._methods(type(value))
        for name, held in attributes(value).items():
            opened = stand_in(self.timer, held)
            if opened is not None:
                self._replace(value, name, opened)
            elif isinstance(held, _FUNCTIONS):
                self._held_function(value, name, held)
            else:
                self._member(held, depth, dataset=name in ("dataset", "datasets"))

    def _member(self, held: Any, depth: int, *, dataset: bool = False) -> None:
        """Something that an object holds, or an element of a list or dict that it holds."""
        if isinstance(held, (type, ModuleType, str)):
            return
        if isinstance(held, Dataset) or (dataset and not callable(held) and not isinstance(held, (list, tuple, dict))):
            self._object(held, depth, dataset=True)
        elif type(held) in (list, tuple, dict) and len(held) <= _LONGEST_LIST:
            self._listed(held, depth, dataset=dataset)
        elif callable(held) and not _is_plumbing(held):
            self._operation(held, depth)
        elif is_users(type(held).__module__):
            self._object(held, depth + 1)

    def _listed(self, held: Any, depth: int, *, dataset: bool = False) -> None:
        if depth > _DEPTH:
            return
        for place, member in list(held.items() if isinstance(held, dict) else enumerate(held)):
            opened = stand_in(self.timer, member) if type(held) is not tuple else None  # in a tuple nothing can be replaced
            if opened is not None:
                self._swap_in(held, place, member, opened)
            elif not isinstance(member, _FUNCTIONS):
                self._member(member, depth + 1, dataset=dataset)
            elif type(held) is not tuple and not is_lazy(member):
                self._swap_in(held, place, member, self._stand_in_for(member))

    def _held_function(self, owner: Any, name: str, function: Any) -> None:
        """``self.transform = a_function``: replaced on the object itself."""
        if is_lazy(function) or (isinstance(function, MethodType) and function.__self__ is owner):
            return
        if type(inspect.getattr_static(type(owner), name, None)).__name__ != "member_descriptor":
            object.__setattr__(owner, name, self._stand_in_for(function))  # without any code of its class
        self._called_by(function, 0)

    def _swap_in(self, held: Any, place: Any, original: Any, replacement: Any) -> None:
        """In a list or a dict."""
        self._seen[id(held)] = held
        self._originals.setdefault(id(replacement), (replacement, original))
        held[place] = replacement

    def _stand_in_for(self, function: Any) -> Any:
        if self._is_wrapper(function):  # of a list that is held twice
            return function
        wrapper = self._in_kind(function)
        self._originals[id(wrapper)] = wrapper, function
        return wrapper

    def _put_back(self) -> None:
        """The functions, wherever they are held by then: the user's code may shuffle its operations, or keep the one it drew."""
        for holder in self._seen.values():
            listed = type(holder) in (list, dict)
            places = holder if type(holder) is dict else dict(enumerate(holder)) if listed else attributes(holder)
            for place, held in list(places.items()):
                if not self._is_wrapper(held):
                    continue
                if listed:
                    holder[place] = self._originals[id(held)][1]
                else:
                    object.__setattr__(holder, place, self._originals[id(held)][1])
        self._seen.clear()  # else the user's objects would live until a garbage collection

    def _operation(self, operation: Any, depth: int) -> None:
        """A callable object: a transform, or a list of them. Its class's ``__call__`` is cut, so every instance is."""
        if id(operation) in self._seen or depth > 2 * _DEPTH:
            return
        self._seen[id(operation)] = operation
        composed = self._inside(operation, depth)
        kind = type(operation)
        original = inspect.getattr_static(kind, "__call__", None)
        if kind in self._types or kind.__module__ == "builtins" or is_lazy(original):
            return
        self._types.add(kind)
        if not isinstance(original, FunctionType):  # written in C, or made when it is asked for
            return
        # What a Lambda holds differs from one to the next; every other operation bears its type's name.
        holds = not composed and "lambd" in attributes(operation)
        self._note(original)
        timer, timed = self.timer, self._timed

        @functools.wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not timer.live:
                return original(self, *args, **kwargs)
            return timed(_label(self) if holds else type(self).__name__, original, (self, *args), kwargs, args, leaf=not composed)

        self._replace(kind, "__call__", call)

    def _inside(self, operation: Any, depth: int) -> bool:
        """Cut what a Compose, a RandomApply, a StandardTransform, an albumentations list … holds. True where that is anything."""
        holds_any = False
        for name, held in attributes(operation).items():
            many = type(held) in (list, tuple) or name == "_modules"
            if type(held) is list and len(held) <= _LONGEST_LIST and name == "transforms":
                for place, member in enumerate(held):
                    if isinstance(member, _FUNCTIONS) and not is_lazy(member):
                        self._swap_in(held, place, member, self._stand_in_for(member))
                        self._called_by(member, 0)
                        holds_any = True
            for member in (list(held.values()) if isinstance(held, dict) else list(held)) if many else [held]:
                if isinstance(member, FunctionType):
                    self._called_by(member, 0)
                elif callable(member) and not isinstance(member, (type, ModuleType, *_FUNCTIONS)) and not _is_plumbing(member):
                    self._operation(member, depth + 1)
                    holds_any = True
        return holds_any

    def _timed(
        self, label: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], handed: tuple[Any, ...], *, leaf: bool
    ) -> Any:
        """Call it as an operation of the stage that what it is ``handed`` tells, or what it gave the first time."""
        stage = self.evidence.of(label, handed, kwargs, self.timer.phase)
        if stage is None:
            return function(*args, **kwargs)
        if stage is UNKNOWN:
            phase = self.timer.phase
            result = function(*args, **kwargs)
            self.evidence.learn(label, handed, kwargs, phase, result)
            return result
        return self.timer.timed_call(stage, label, function, args, kwargs, own=True, leaf=leaf)

    # -- methods and functions -------------------------------------------------------------------------------------

    def _methods(self, kind: type) -> None:
        for owner in kind.__mro__:
            if not is_users(owner.__module__) or owner in self._types:
                continue
            self._types.add(owner)
            for name, member in list(vars(owner).items()):
                static = isinstance(member, staticmethod)
                function = member.fget if isinstance(member, property) else member
                if isinstance(member, (staticmethod, classmethod)):
                    function = member.__func__
                if not isinstance(function, FunctionType):
                    continue
                self._called_by(function, 0)
                if name.startswith("__") or is_lazy(function) or not (static or function is member):
                    if name in _MAKES_SAMPLES or not name.startswith("__"):
                        self._note(function)
                    continue  # properties and class methods stay what they are; what they call is cut
                wrapped = self._wrapped(function, f"{owner.__name__}.{name}", skip=0 if static else 1)
                self._replace(owner, name, staticmethod(wrapped) if static else wrapped)

    def _note(self, function: FunctionType) -> None:
        function = inspect.unwrap(function, stop=_has_no_way_down)
        if is_users(function.__module__):
            self.functions.add(function)

    def _replace(self, owner: Any, name: str, replacement: Any) -> None:
        with suppress(AttributeError, TypeError):  # its class does not let it be replaced
            self.patches.replace(owner, name, replacement)

    def _called_by(self, function: Any, depth: int) -> None:
        """Cut the functions of the user's own modules that ``function`` names, and those they name."""
        function = inspect.unwrap(getattr(function, "func", function), stop=_has_no_way_down)
        code = getattr(function, "__code__", None)
        if code is None or id(code) in self._codes or depth > _DEPTH or not is_users(function.__module__):
            return
        self._codes.add(id(code))
        scope, names = function.__globals__, set(names_in(code))
        for name in names:
            called = scope.get(name)
            if is_users_function(called):
                self._global(scope, name, called, depth)
            elif isinstance(called, ModuleType) and is_users(called.__name__):
                for inner in names:
                    if is_users_function(vars(called).get(inner)):
                        self._global(vars(called), inner, vars(called)[inner], depth)

    def _global(self, scope: dict[str, Any], name: str, function: Any, depth: int) -> None:
        module = sys.modules.get(scope.get("__name__", ""))
        if module is None or vars(module) is not scope or self._is_wrapper(function):
            return
        self._called_by(function, depth + 1)
        self.patches.replace(module, name, self._known(function))

    def _is_wrapper(self, function: Any) -> bool:
        return id(function) in self._originals

    def _known(self, function: Any) -> Any:
        """The one wrapper of this function. Where its own module holds it by name it is replaced there too, so that it stays the
        same object for whoever compares, and can be pickled by that name."""
        if self._is_wrapper(function):
            return function
        if id(function) not in self._wrappers:
            wrapper = self._wrapped(function, _label(function))
            self._wrappers[id(function)] = (function, wrapper)
            self._originals[id(wrapper)] = (wrapper, function)
            home = sys.modules.get(getattr(function, "__module__", None) or "")
            name = getattr(function, "__qualname__", "")
            if home is not None and vars(home).get(name) is function:
                self.patches.replace(home, name, wrapper)
        return self._wrappers[id(function)][1]

    def _in_kind(self, function: Any) -> Any:
        """What stands in for a held function: a function for a function, a bound method or a partial for those."""
        if isinstance(function, MethodType):
            inner = function.__func__
            return MethodType(self._wrapped(inner, _label(function), skip=1), function.__self__) if callable(inner) else function
        if type(function) is functools.partial:
            wrapped = self._wrapped(function.func, _label(function), skip=len(function.args))
            swapped = functools.partial(wrapped, *function.args, **function.keywords)
            vars(swapped).update(vars(function))
            return swapped
        return self._known(function)

    def _wrapped(self, function: Any, label: str, *, skip: int = 0) -> Callable[..., Any]:
        """``skip``: leading arguments that say nothing about the sample (self, what a partial holds)."""
        timer = self.timer
        inside = False

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if not timer.live or inside or get_ident() != timer.owner:
                return function(*args, **kwargs)
            inside = True
            try:
                return self._timed(label, function, args, kwargs, args[skip:] if skip else args, leaf=False)
            finally:
                inside = False

        if isinstance(function, FunctionType):
            self._note(function)
            functools.update_wrapper(wrapper, function)
            self.patches.on_undo(lambda: _give_back(wrapper, function))
        return wrapper


def _give_back(wrapper: Any, function: Any) -> None:
    """Attributes that the user's code has meanwhile set on its function, by a name that meant the wrapper."""
    vars(function).update({name: value for name, value in vars(wrapper).items() if name != "__wrapped__"})


def _is_plumbing(member: Any) -> bool:
    """Enumerations, random generators and the like."""
    return str(type(member).__module__).partition(".")[0] in _PLUMBING


def _has_no_way_down(function: Any) -> bool:
    return not isinstance(getattr(function, "__wrapped__", None), FunctionType)


def _label(operation: Any) -> str:
    if isinstance(operation, functools.partial):
        return _label(operation.func)
    if isinstance(operation, (FunctionType, MethodType)):
        return operation.__qualname__.replace("<locals>.", "")
    held = attributes(operation).get("lambd")
    return f"Lambda({_label(held)})" if isinstance(held, _FUNCTIONS) else str(type(operation).__name__)
