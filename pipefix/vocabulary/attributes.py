"""Reads what an object holds without touching its ``__dict__``, which would make its attributes slower for ever.

In CPython 3.11 and 3.12 an instance keeps its attributes in an array until somebody asks for its ``__dict__``. From then on it has
a dictionary, and the interpreter reads every attribute of it more slowly, for ever: code that looks up ``self.something`` in a loop
was measured to take 1.7 times as long. Looking at somebody's pipeline must not change how fast it is, so names are taken from the
code of the object's class, and the collector is asked whether that was all.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from contextlib import suppress
from types import CodeType, FunctionType, MethodType
from typing import Any

_KEPT_IN_AN_ARRAY = 1 << 4
"""Py_TPFLAGS_MANAGED_DICT: instances have no dictionary until it is asked for."""
_MADE_IN_PYTHON = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: slots of other types are the interpreter's own (a function's globals, say)."""
_LOOKING_COSTS = (3, 11) <= sys.version_info < (3, 13) and sys.implementation.name == "cpython"
_ABSENT: Any = object()
_KNOWN: weakref.WeakKeyDictionary[type, tuple[str, ...]] = weakref.WeakKeyDictionary()


def attributes(value: Any) -> dict[str, Any]:
    """What the instance holds in its dict and its slots, without running any code of its class.

    Not weak proxies: they answer with what somebody else holds, and any question to one whose object is gone raises.
    """
    held = dict(in_dict(value))
    for kind in type(value).__mro__:
        if not kind.__flags__ & _MADE_IN_PYTHON:
            continue
        for name, member in vars(kind).items():
            if type(member).__name__ == "member_descriptor" and name not in held:
                with suppress(AttributeError):  # a slot that was never filled
                    held[name] = member.__get__(value, kind)
    return {name: what for name, what in held.items() if type(what) not in weakref.ProxyTypes}


def has_any(value: Any) -> bool:
    """Whether instances of its type may have attributes of their own, beside slots."""
    kind = type(value)
    return bool(kind.__flags__ & _KEPT_IN_AN_ARRAY or kind.__dictoffset__)


def own(value: Any, name: str, default: Any = None) -> Any:
    """One attribute of the instance itself."""
    return in_dict(value).get(name, default)


def in_dict(value: Any) -> dict[str, Any]:
    """What the instance holds beside slots."""
    if _LOOKING_COSTS and type(value).__flags__ & _KEPT_IN_AN_ARRAY:
        named = _by_name(value)
        if named is not None:
            return named
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return held if isinstance(held, dict) else {}


def _by_name(value: Any) -> dict[str, Any] | None:
    """Attributes that the class's code names; None where the instance holds others too, or has its dictionary already."""
    named, accounted = {}, {id(type(value))}
    for name in _names(type(value)):
        try:
            held = object.__getattribute__(value, name)
        except AttributeError:
            continue
        accounted.add(id(held))
        inherited = _of_class(type(value), name)
        if isinstance(inherited, staticmethod):
            inherited = inherited.__func__
        bound = type(held) is MethodType and (held.__self__ is value or held.__self__ is type(value))
        if held is not inherited and not bound:
            named[name] = held
    return named if all(id(referent) in accounted for referent in gc.get_referents(value)) else None


def _names(kind: type) -> tuple[str, ...]:
    """Names in the code of a class and of those it inherits from.

    Without those whose look-up runs code: a property, a slot, a cached property answer in the instance's place.
    """
    known = _KNOWN.get(kind)
    if known is not None:
        return known
    names: set[str] = set()
    for base in kind.__mro__:
        names.update(vars(base).get("__annotations__", ()))
        for member in vars(base).values():
            of_property = (member.fget, member.fset, member.fdel) if isinstance(member, property) else ()
            for function in of_property or (getattr(member, "__func__", member),):
                names.update(names_in(function.__code__) if isinstance(function, FunctionType) else ())
    known = _KNOWN[kind] = tuple(name for name in sorted(names) if _harmless(_of_class(kind, name)))
    return known


def _of_class(kind: type, name: str) -> Any:
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), _ABSENT)


def _harmless(inherited: Any) -> bool:
    answers = hasattr(type(inherited), "__get__") or hasattr(type(inherited), "__set__")
    return isinstance(inherited, (FunctionType, classmethod, staticmethod)) or not answers


def names_in(code: CodeType) -> Iterator[str]:
    """What a function's code names: attributes and globals, those of functions inside it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)
