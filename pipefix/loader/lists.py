"""Long lists of a dataset, as forked workers read them: from one copy that is never written to.

Reading an element of a Python list writes to it: the count of its references. So each page of a list of a million paths comes to be
copied, by each worker for itself. In workers such a list is therefore another sequence, of equal elements that are made when they
are asked for; where the dataset's own code does with it only what any sequence can.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import index as as_index
from operator import is_
from typing import Any, NamedTuple

from torch.utils.data import Subset

LEAST = 100_000
"""Elements below which a copy for each worker is a few megabytes at most."""
LONGEST_END = 16
"""Characters that are looked for at the end of all strings: an extension."""
_NUMBERS: dict[type, str] = {int: "q", float: "d"}
_PASSING = {"len", "enumerate", "zip", "iter", "reversed", "sorted"}
"""Functions that do with a list what they do with any sequence."""
_HIDING = {"getattr", "setattr", "vars", "delattr", "__dict__"}
"""With these, code may do anything with an attribute."""


class Strings(Sequence[str]):
    """One after the other in one string, without what all of them begin and end with."""

    def __init__(self, strings: list[str]) -> None:
        first, last = min(strings), max(strings)
        begin = next((place for place, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
        self._before = first[:begin]
        self._after = _common_end(strings, min(map(len, strings)) - begin)
        cut = len(self._after)
        self._text = "".join([one[begin : len(one) - cut] for one in strings])
        ends = accumulate(map(len, strings), lambda end, length: end + length - begin - cut, initial=0)
        self._ends = array("I" if len(self._text) < 1 << 32 else "Q", ends)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: Any) -> Any:
        return f"{self._before}{self._text[self._ends[number] : self._ends[number + 1]]}{self._after}"


def _common_end(strings: list[str], most: int) -> str:
    end = strings[0][len(strings[0]) - min(most, LONGEST_END) :]
    while end and not all(one.endswith(end) for one in strings):
        end = end[1:]
    return end


class Shared(Sequence[Any]):
    """Equal to a list, element by element. Each element is made anew: of columns, where elements are tuples."""

    def __init__(self, columns: tuple[Sequence[Any], ...], *, tuples: bool) -> None:
        self._columns, self._tuples, self._length = columns, tuples, len(columns[0])
        self._one = columns[0]

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(self._length))]
        number = as_index(place)
        if number < 0:
            number += self._length
        if not 0 <= number < self._length:
            raise IndexError("list index out of range")
        return tuple([column[number] for column in self._columns]) if self._tuples else self._one[number]

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(self._length))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (list, Shared)) and len(self) == len(other) and all(map(_equal, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other)


class Place(NamedTuple):
    """An attribute that is another in workers."""

    owner: Any
    name: str
    shared: Shared


class Lists:
    """Those of one dataset. What was made for a list serves until the list is another."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[list[Any], Shared | None]] = {}

    def of(self, dataset: Any) -> list[Place]:
        kept, self._made = self._made, {}
        found = []
        for owner in _owners(dataset):
            for name, value in list(vars(owner).items()):
                if type(value) is not list or len(value) < LEAST or not only_read(type(owner), name):  # type: ignore[arg-type]
                    continue
                before = kept.get(id(value)) or self._made.get(id(value))
                if before is None or len(before[0]) != len(value) or not all(map(is_, before[0], value)):
                    before = (value[:], shared(value))
                self._made[id(value)] = before
                if before[1] is not None:
                    found.append(Place(owner, name, before[1]))
        return found


_left: list[Any] = []
"""Lists that are not looked at any more. Letting go of them would write to each element."""


def read_shared(places: Sequence[Place]) -> None:
    """In a worker: from here on the dataset has its lists from the one copy."""
    for owner, name, made in places:
        _left.append(vars(owner)[name])
        vars(owner)[name] = made


def _owners(dataset: Any) -> Iterator[Any]:
    """The dataset, and what it is a subset of."""
    while True:
        if hasattr(dataset, "__dict__"):
            yield dataset
        if type(dataset) is not Subset:
            return
        dataset = dataset.dataset


def shared(values: list[Any]) -> Shared | None:
    """None where elements are of other kinds, or not all alike."""
    first = values[0]
    if type(first) is not tuple:
        column = _column(values)
        return None if column is None else Shared((column,), tuples=False)
    width = len(first)
    if not width or set(map(type, values)) != {tuple} or set(map(len, values)) != {width}:
        return None
    columns = [_column([value[number] for value in values]) for number in range(width)]
    known = tuple(column for column in columns if column is not None)
    return Shared(known, tuples=True) if len(known) == width else None


def _column(values: list[Any]) -> Sequence[Any] | None:
    kind = type(values[0])
    if (kind is not str and kind not in _NUMBERS) or set(map(type, values)) != {kind}:
        return None
    if kind is str:
        return Strings(values)
    try:
        return array(_NUMBERS[kind], values)
    except OverflowError:
        return None


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
