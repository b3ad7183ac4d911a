"""The walk over a nested batch or sample: mappings, sequences, named tuples, dataclasses; anything else is a leaf.

``torch.utils._pytree`` knows exact types only: a subclass of dict or list, a user's Mapping and a dataclass are leaves to it.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

DEEPEST = 32
"""Levels that are looked into: a value that holds itself has an end."""


def members(value: Any) -> list[tuple[Any, Any]] | None:
    """What a container holds, each with its key, position or field name; None where ``value`` is a leaf."""
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value) if hasattr(value, field.name)]
    return None


def leaves(value: Any, depth: int = 0) -> Iterator[Any]:
    """Everything in ``value`` that is not a container, in order."""
    inner = members(value) if depth < DEEPEST else None
    if inner is None:
        yield value
        return
    for _, member in inner:
        yield from leaves(member, depth + 1)


def map_leaves(change: Callable[[Any], Any], value: Any, depth: int = 0) -> Any:
    """A copy of ``value`` with ``change(leaf)`` in place of every leaf; containers keep their types, and what else they carry."""
    inner = members(value) if depth < DEEPEST else None
    if inner is None:
        return change(value)
    return with_members(value, [(key, map_leaves(change, member, depth + 1)) for key, member in inner])


def renewer(kind: type, renew: Callable[[Any], Any], value: Any, depth: int = 0) -> Callable[[], Any] | None:
    """What makes a value like ``value`` again and again, each time with ``renew(leaf)`` in place of its leaves of one ``kind``.

    What holds none of them is shared, not walked through each time; None where that is all of ``value``.
    """
    inner = members(value) if depth < DEEPEST else None
    if inner is None:
        return (lambda: renew(value)) if isinstance(value, kind) else None
    renewers = [(key, member, renewer(kind, renew, member, depth + 1)) for key, member in inner]
    if all(made is None for _, _, made in renewers):
        return None
    return lambda: with_members(value, [(key, member if made is None else made()) for key, member, made in renewers])


def with_members(value: Any, inner: list[tuple[Any, Any]]) -> Any:
    """A container like ``value``, which is left as it is, that holds ``inner`` (as `members` gives it)."""
    if type(value) is dict:
        return dict(inner)
    if type(value) in (list, tuple):
        return type(value)(member for _, member in inner)
    if isinstance(value, tuple):
        return _tuple_like(value, [member for _, member in inner])
    if isinstance(value, Mapping) and not isinstance(value, MutableMapping):
        return _mapping_like(value, dict(inner))
    made = copy.copy(value)
    for key, member in inner:
        if isinstance(value, (Mapping, list)):
            made[key] = member
        else:
            object.__setattr__(made, key, member)  # a frozen dataclass as well
    return made


def _tuple_like(value: Any, inner: list[Any]) -> Any:
    if hasattr(value, "_make"):
        return value._make(inner)
    try:
        return type(value)(inner)
    except TypeError:  # such as a torch.Size of what are no numbers any more
        return tuple(inner)


def _mapping_like(value: Any, inner: dict[Any, Any]) -> Any:
    try:
        return type(value)(inner)
    except TypeError:
        return inner
