"""Functions compiled again with their expressions handed to a callable give what they gave, in the order in which they gave it."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from pipefix.subject import recompile
from pipefix.subject.recompile import Expression

LOG: list[str] = []
NONE: dict[str, Any] = {}


def say(value: Any) -> Any:
    LOG.append(str(value))
    return value


class Base:
    def doubled(self, value: int) -> int:
        return 2 * value


class Made(Base):
    __hidden = 7
    table = {"a": [1, 2, 3]}

    def doubled(self, value: int) -> int:
        return super().doubled(value) + self.__hidden

    def closed(self, values: list[int]) -> list[int]:
        return [self.doubled(value) + len(values) for value in values if value % 2]

    def inherited(self, values: list[int]) -> Any:
        return [super().doubled(value) for value in values] if sys.version_info >= (3, 12) else None

    def steps(self, count: int) -> Iterator[int]:
        for number in range(count):
            received = yield self.doubled(number)
            LOG.append(str(received))

    @property
    def first(self) -> int:
        return self.table["a"][0]


def calls(x: int) -> Any:
    return say(say(abs)(*[say(-x)], **NONE) + say(math.sqrt(16)) * say(3))


def subscripts(x: int) -> Any:
    array = np.arange(24).reshape(2, 3, 4)
    return array[x % 2, 1:, ::2].tolist(), array[..., None].shape, "abc"[x % 3 :], {(0, 1): "pair"}[0, 1], [1, 2, 3][-1]


def stores(x: int) -> Any:
    held: Any = {"list": [1, 2, 3]}
    held["list"][0], held["more"] = x, held["list"][1:]
    held["list"][2] += x
    del held["list"][1]
    Base.kept = held  # type: ignore[attr-defined]
    return held


def scopes(x: int) -> Any:
    total = 0

    def add(value: int) -> int:
        nonlocal total
        total += value
        return total

    pairs = {key: [add(inner) for inner in range(key)] for key in range(x)}
    if (found := max(pairs, default=None)) is not None:
        total += found
    last = [y := 2, y**2]
    return total, pairs, last, {c for c in "abc" if c != "b"}, sorted(last, key=lambda v: v - total), locals()["x"]


def errors(x: int) -> Any:
    try:
        with contextlib.suppress(KeyError):
            {}["missing"]
        return [1, 2][x + 5]
    except (IndexError, ValueError) as error:
        return f"{type(error).__name__} at {error.__traceback__.tb_lineno if error.__traceback__ else 0}: {x!r:>4}"
    finally:
        LOG.append("finally")


def spread(x: int) -> Any:
    first, *rest = (*range(x), say("end"))
    return sorted([first, *map(str, rest)], key=str, reverse=x > 1), (lambda *a, **k: (a, k))(*rest, k=first), not x or -x


def closing(outer: int) -> Callable[[int], Any]:
    def inner(x: int) -> Any:
        return [outer + x + value for value in range(outer)], outer * x

    return inner


class Table:
    """As a table of pandas is: a text may name variables of whoever asks."""

    def query(self, text: str) -> Any:
        return sys._getframe(1).f_locals[text]


def by_name(x: int) -> Any:
    mine, table = x + 1, Table()
    return table.query("mine"), [table.query(f"{'mine'}") + mine for _ in range(2)], say(table.query(text="x"))


FUNCTIONS = [calls, subscripts, stores, scopes, errors, spread, by_name, closing(3)]


def handed(site: Any, seen: list[str] | None = None) -> Callable[..., Any]:
    def pass_on(function: Any, /, *args: Any, **kwargs: Any) -> Any:
        if seen is not None:
            seen.append(site.text)
        return function(*args, **kwargs)

    return pass_on


def rewritten(function: Any, seen: list[str] | None = None, only: str = "") -> Any:
    """A function of its own that runs the new code, and what the old one runs untouched."""
    places: dict[Any, str] = {}

    def site(_: FunctionType, expression: Expression) -> Any:
        places[expression.place] = expression.text
        return handed(expression, seen)

    codes = recompile.with_sites([function], site, lambda *_: True)
    if only:
        wanted = {place for place, text in places.items() if text == only}
        codes = recompile.with_sites([function], site, lambda _, place: place in wanted)
    if function not in codes:
        return None
    return FunctionType(codes[function], function.__globals__, function.__name__, function.__defaults__, function.__closure__)


def outcome(function: Callable[[int], Any], x: int) -> Any:
    LOG.clear()
    try:
        return repr(function(x)), list(LOG)
    except Exception as error:  # noqa: BLE001
        return type(error), str(error), list(LOG)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_what_is_compiled_again_gives_the_same_in_the_same_order(function: Callable[[int], Any]) -> None:
    seen: list[str] = []
    again = rewritten(function, seen)
    for x in (0, 1, 2, 5):
        assert outcome(again, x) == outcome(function, x)
    assert seen


def test_methods_keep_their_class_their_hidden_names_and_their_steps() -> None:
    names = ("doubled", "closed", "inherited", "steps", "first")
    functions = {name: member.fget if isinstance(member := vars(Made)[name], property) else member for name in names}
    codes = recompile.with_sites(functions.values(), lambda _, expression: handed(expression), lambda *_: True)
    made = Made()

    def results() -> Any:
        return made.doubled(3), made.closed([1, 2, 3]), made.inherited([1, 2]), made.first, list(made.steps(2))

    before = results()
    originals = {function: function.__code__ for function in functions.values()}
    try:
        for function, code in codes.items():
            function.__code__ = code
        assert len(codes) == len(names)
        assert results() == before
    finally:
        for function, code in originals.items():
            function.__code__ = code


def test_expressions_are_told_as_the_code_has_them_and_one_can_be_chosen() -> None:
    seen: list[str] = []
    rewritten(calls, seen)(1)
    assert seen == [
        "say", "say", "say(abs)", "math.sqrt", "say", "say", "say(math.sqrt(16)) * say(3)",
        "say(abs)(*[say(-x)], **NONE) + say(math…", "say",
    ]  # fmt: skip
    seen.clear()
    rewritten(calls, seen, only="math.sqrt")(1)
    assert seen == ["math.sqrt"]


def test_what_is_built_in_and_looks_at_its_caller_is_left_alone() -> None:
    seen: list[str] = []
    rewritten(scopes, seen)(2)
    assert "locals" not in seen and "range" not in seen and "max" in seen


def test_what_is_nested_too_deep_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "deep.py"
    file.write_text(f"def deep(x):\n    return x{' + x' * 800}\n\ndef flat(x):\n    return abs(x)\n", encoding="utf-8")
    scope: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    assert recompile.with_sites([scope["deep"]], lambda _, expression: handed(expression), lambda *_: True) == {}
    assert scope["deep"](1) == 801


def test_a_file_that_was_changed_since_is_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "changing.py"
    file.write_text("def given(x):\n    return abs(x)\n", encoding="utf-8")
    scope: dict[str, Any] = {}
    exec(compile("def given(x):\n    return abs(x) + 1\n", str(file), "exec"), scope)
    assert recompile.with_sites([scope["given"]], lambda _, expression: handed(expression), lambda *_: True) == {}
    scope["given"].__code__ = scope["given"].__code__.replace(co_filename="<stdin>")
    assert recompile.with_sites([scope["given"]], lambda _, expression: handed(expression), lambda *_: True) == {}
