"""Walks and copies nested batches and samples: mappings, sequences, named tuples, dataclasses; anything else is a leaf.

``torch.utils._pytree`` knows exact types only: a subclass of dict or list, a user's Mapping and a dataclass are leaves to it.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

_LEAVES = frozenset((int, float, bool, str, bytes, type(None)))
DEEPEST = 32
"""Levels that are looked into: a value that holds itself has an end."""


def members(value: Any) -> list[tuple[Any, Any]] | None:
    """What a container holds, each with its key, position or field name; None where ``value`` is a leaf."""
    kind = type(value)
    if kind in _LEAVES:  # nearly all that annotations hold: quicker than to ask what else it might be
        return None
    if kind is dict or isinstance(value, Mapping):
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


def at(value: Any, path: Sequence[Any]) -> Any:
    """What lies in ``value`` where these keys and positions lead."""
    for key in path:
        value = value[key]
    return value


def with_at(value: Any, path: Sequence[Any], new: Any) -> Any:
    """A copy of ``value`` with ``new`` where these keys and positions lead."""
    if not path:
        return new
    inner = members(value) or []
    return with_members(value, [(key, with_at(member, path[1:], new) if key == path[0] else member) for key, member in inner])


Renew = Callable[[], Any]


def renewer(renew: Callable[[Any], Renew | None], value: Any, *, containers: bool = False, depth: int = 0) -> Renew | None:
    """What makes a value like ``value`` again and again, at a fraction of what `map_leaves` takes.

    Args:
        renew: given a leaf, what makes it anew each time; None where it is shared.
        value: what is walked through, once.
        containers: containers are new each time even where all that they hold is shared.

    Returns:
        None where all of ``value`` is shared.
    """
    inner = members(value) if depth < DEEPEST else None
    if inner is None:
        return renew(value)
    renewers = [(key, member, renewer(renew, member, containers=containers, depth=depth + 1)) for key, member in inner]
    if all(anew is None for _, _, anew in renewers):
        if not containers or type(value) is tuple:
            return None
        return value.copy if type(value) in (dict, list) else lambda: with_members(value, inner)
    return lambda: with_members(value, [(key, member if anew is None else anew()) for key, member, anew in renewers])


def with_members(value: Any, inner: list[tuple[Any, Any]]) -> Any:
    """A container like ``value``, which is left as it is, that holds ``inner`` (as `members` gives it)."""
    kind: Any = type(value)
    if kind is dict:
        return dict(inner)
    if kind in (list, tuple):
        return kind(member for _, member in inner)
    if isinstance(value, tuple) or (isinstance(value, Mapping) and not isinstance(value, MutableMapping)):
        plain: Any = tuple(member for _, member in inner) if isinstance(value, tuple) else dict(inner)
        try:
            return getattr(kind, "_make", kind)(plain)
        except TypeError:  # such as a torch.Size of what are no numbers any more
            return plain
    copied = copy.copy(value)
    for key, member in inner:
        if isinstance(value, (Mapping, list)):
            copied[key] = member
        else:
            object.__setattr__(copied, key, member)  # a frozen dataclass as well
    return copied
