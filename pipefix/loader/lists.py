"""Long lists of a dataset, as forked workers read them: without writing to them.

Taking an element of a Python list writes to it: the count of its references. So each page of a list of a million paths comes to be
copied, by each worker for itself. In workers such a list is therefore another sequence, which copies an element out of the list
when it is asked for, and leaves its count alone; where the dataset's own code does with the list only what any sequence can.
"""

from __future__ import annotations

import ast
import ctypes
import inspect
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from operator import index as as_index
from typing import Any, NamedTuple, TypeAlias

from torch.utils.data import Subset

LEAST = 100_000
"""Elements below which a copy for each worker is a few megabytes at most."""
_PASSING = {"len", "enumerate", "zip", "iter", "reversed", "sorted"}
"""Functions that do with a list what they do with any sequence."""
_HIDING = {"getattr", "setattr", "vars", "delattr", "__dict__"}
"""With these, code may do anything with an attribute."""

Kinds: TypeAlias = "type | tuple[type, ...]"
"""Of a list's elements, all of one kind; of each place, where they are tuples."""


def _call(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A function of Python's own interface for C, given objects by their address: their counts stay as they are."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


if sys.implementation.name == "cpython":
    _element = _call("PyList_GetItem", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ssize_t)
    _part = _call("PyTuple_GetItem", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ssize_t)
    _encoded = _call("PyUnicode_AsUTF8String", ctypes.py_object, ctypes.c_void_p)
    _COPIES: dict[type, Callable[[int], Any]] = {
        str: lambda address: _encoded(address).decode(),
        int: _call("PyLong_AsLongLong", ctypes.c_longlong, ctypes.c_void_p),
        float: _call("PyFloat_AsDouble", ctypes.c_double, ctypes.c_void_p),
    }
    """By kind: another object that is equal to the one at an address."""
else:
    _COPIES = {}


class Shared(Sequence[Any]):
    """Equal to a list, element by element; each is copied out of it."""

    def __init__(self, values: list[Any], kinds: Kinds) -> None:
        self._values, self._kinds = values, kinds
        self._length, self._address = len(values), id(values)
        self._copy = _COPIES[kinds] if isinstance(kinds, type) else None
        self._copies = [] if isinstance(kinds, type) else [_COPIES[kind] for kind in kinds]

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: Any) -> Any:
        if type(place) is not int:
            if isinstance(place, slice):
                return [self[number] for number in range(*place.indices(self._length))]
            place = as_index(place)
        if place < 0:
            place += self._length
        if not 0 <= place < self._length:
            raise IndexError("list index out of range")
        address = _element(self._address, place)
        try:
            if self._copy is not None:
                return self._copy(address)
            return tuple([copy(_part(address, number)) for number, copy in enumerate(self._copies)])
        except (UnicodeEncodeError, OverflowError):
            # A number of more than 64 bits, half of a character: the element itself.
            return self._values[place]

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(self._length))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (list, Shared)) and len(self) == len(other) and all(map(_equal, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def __reduce__(self) -> Any:
        """Where it is sent or copied, it is a list."""
        return list, (list(self),)


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other)


class Place(NamedTuple):
    """An attribute that is another in workers."""

    owner: Any
    name: str
    kinds: Kinds


def places(dataset: Any) -> list[Place]:
    """The long lists of a dataset that workers are to read without writing to them."""
    if not _COPIES or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return []
    found = []
    for owner in _owners(dataset):
        for name, value in vars(owner).items():
            if type(value) is list and len(value) >= LEAST and only_read(type(owner), name):  # type: ignore[arg-type]
                kinds = kinds_of(value)
                if kinds is not None:
                    found.append(Place(owner, name, kinds))
    return found


def read_shared(found: Sequence[Place]) -> None:
    """In a worker: from here on the dataset has its lists so."""
    for owner, name, kinds in found:
        value = vars(owner).get(name)
        if type(value) is list:
            vars(owner)[name] = Shared(value, kinds)


def _owners(dataset: Any) -> Iterator[Any]:
    """The dataset, and what it is a subset of."""
    while True:
        if hasattr(dataset, "__dict__"):
            yield dataset
        if type(dataset) is not Subset:
            return
        dataset = dataset.dataset


def kinds_of(values: list[Any]) -> Kinds | None:
    """None where elements are not all alike, or are such that little is won by it: numbers are small, and of arrays a head alone is
    written to."""
    first = values[0]
    if set(map(type, values)) != {type(first)}:
        return None
    if type(first) is not tuple:
        return str if type(first) is str else None
    if set(map(len, values)) != {len(first)}:
        return None
    kinds = tuple(map(type, first))
    alike = all(kind in _COPIES and {type(value[place]) for value in values} == {kind} for place, kind in enumerate(kinds))
    return kinds if alike and str in kinds else None


# -- what code does with an attribute -------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def only_read(kind: type, name: str) -> bool:
    """Whether all methods of a class, its constructor left out, take single elements of an attribute, go through it, or ask for its
    length, and some do. False where their source is not to be had."""
    uses = 0
    if any("__getattribute__" in vars(one) or name in vars(one) for one in kind.__mro__ if one is not object):
        return False
    for one in kind.__mro__:
        if one.__module__.partition(".")[0] in ("builtins", "typing", "abc", "torch"):
            continue
        found = _uses(one, name)
        if found is None:
            return False
        uses += found
    return uses > 0


def _uses(kind: type, name: str) -> int | None:
    """How often a class's own code reads elements of an attribute; None where it does anything else, or hides what it does."""
    tree = _tree(kind)
    if tree is None:
        return None
    plain = {id(read) for node in ast.walk(tree) for read in _read_by(node)}
    uses = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == name:
            if id(node) not in plain:
                return None
            uses += 1
        hidden = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
        if hidden in _HIDING or (isinstance(node, ast.Constant) and node.value == name):
            return None
    return uses


def _read_by(node: ast.AST) -> Sequence[ast.AST]:
    """What a node takes elements of, or asks for its length."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        return [node.value]
    if isinstance(node, (ast.For, ast.comprehension)):
        return [node.iter]
    passing = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _PASSING
    return node.args if isinstance(node, ast.Call) and passing else []


def _tree(kind: type) -> ast.ClassDef | None:
    """A class as it is written, without its constructor."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.ClassDef):
        return None
    body = tree.body[0]
    body.body = [one for one in body.body if getattr(one, "name", None) != "__init__"]
    # What somebody put into the class since is not what is written there.
    functions = [value for value in vars(kind).values() if inspect.isfunction(value)]
    written = {one.name for one in body.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))} | {"__init__"}
    file = inspect.getsourcefile(kind)
    return body if all(one.__name__ in written and one.__code__.co_filename == file for one in functions) else None
