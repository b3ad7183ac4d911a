"""Compiles functions of the user's again with some expressions handed to a callable: calls, subscripts, attributes, sums.

``orjson.loads(raw)["x"]`` becomes ``site(getitem, site(orjson.loads, raw), "x")``. What is evaluated, and in which order, stays as
it was; so do line numbers, names and the function itself, which gets another code object. The callables are among its constants,
so that no name of the user's module is taken.
"""

from __future__ import annotations

import ast
import copy
import linecache
import operator
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from types import CodeType, FunctionType
from typing import Any

LONGEST_SOURCE = 20_000
"""Lines: of a longer file, compiling it would take as long as a measurement."""
LONGEST_TEXT = 40
_MARK = "\0pipefix "
_OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.MatMult: operator.matmul,
}  # fmt: skip
FOR_SYNTAX = (operator.getitem, getattr, *_OPERATORS.values())
"""Functions that do what subscripts, attributes and operators do to their first argument."""
_LEFT_ALONE = {
    "super", "locals", "globals", "vars", "dir", "exec", "eval", "print", "len", "range", "isinstance", "issubclass", "getattr",
    "setattr", "hasattr", "delattr", "id", "type", "iter", "next", "enumerate", "zip", "map", "filter", "repr", "callable", "open",
    "input", "breakpoint", "reversed", "slice", "object",
}  # fmt: skip
"""Built-in functions that look at who calls them, or do no work by themselves."""
_BY_NAME = {"query", "eval", "evaluate", "sql"}
"""Functions of pandas, NumExpr and DuckDB that look up the variables of their caller which a text names (``"patient == @id"``)."""
_NOT_COMPILED = (SyntaxError, ValueError, RecursionError, MemoryError)
"""Of code that is nested too deep, say: it stays as it is."""
_NOT_IN_A_LAMBDA = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
_OF_THE_FUNCTION = ("super", "locals", "vars", "dir", "exec", "eval")
"""Names that mean another thing inside a lambda. (From Python 3.12 on a comprehension is no function of its own.)"""

Place = tuple[int, int, int, int, str]
"""Where an expression begins and ends, and what kind it is."""


@dataclass(frozen=True)
class Expression:
    place: Place
    text: str
    """As the code has it, shortened."""


MakeSite = Callable[[FunctionType, Expression], Any]
IsWanted = Callable[[FunctionType, Place], bool]


class ParsedFile:
    """The file of a function, parsed."""

    def __init__(self, file: str, lines: Sequence[str]) -> None:
        self.file, self.lines = file, lines
        self.tree = ast.parse("".join(lines))
        nodes = [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)]
        first_lines = [min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) for node in nodes]
        self.definitions = {(node.name, line): node for node, line in zip(nodes, first_lines, strict=True)}
        """By name and first line, decorators included."""
        self.codes = self.compiled()

    def compiled(self) -> dict[tuple[str, int], CodeType]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a text is called, it says
            whole: CodeType = compile(self.tree, self.file, "exec", dont_inherit=True)
        return {_key(code): code for code in _codes(whole)}


def with_sites(functions: Iterable[FunctionType], site: MakeSite, wanted: IsWanted) -> dict[FunctionType, CodeType]:
    """The code of functions with those of their expressions that are ``wanted`` handed to what ``site`` makes for each. A function
    is left out that has none of these, or whose file is not what it was made from."""
    by_file: dict[str, list[FunctionType]] = {}
    for function in functions:
        by_file.setdefault(function.__code__.co_filename, []).append(function)
    codes: dict[FunctionType, CodeType] = {}
    for file, held in by_file.items():
        source = _source_of(file)
        if source is not None:
            with suppress(*_NOT_COMPILED):
                codes |= _rewritten(source, held, site, wanted)
    return codes


def _rewritten(
    source: ParsedFile, functions: Iterable[FunctionType], site: MakeSite, wanted: IsWanted
) -> dict[FunctionType, CodeType]:
    constants: dict[str, Any] = {}
    bodies: dict[FunctionType, tuple[ast.FunctionDef, list[ast.stmt]]] = {}
    for function in functions:
        code = function.__code__
        node = source.definitions.get(_key(code))
        if node is None or source.codes.get(_key(code)) != code or any(isinstance(inner, ast.Match) for inner in ast.walk(node)):
            continue
        left_alone = _LEFT_ALONE - function.__globals__.keys()
        rewriter = _Rewriter(partial(site, function), partial(wanted, function), left_alone, source.lines, constants)
        body = [rewriter.visit(copy.deepcopy(statement)) for statement in node.body]
        if rewriter.handed:
            bodies[function] = node, node.body
            node.body = [ast.fix_missing_locations(statement) for statement in body]
    if not bodies:
        return {}
    try:
        rewritten = source.compiled()
    finally:
        for node, body in bodies.values():
            node.body = body
    codes = {}
    for function in bodies:
        again = rewritten.get(_key(function.__code__))
        if again is not None and again.co_freevars == function.__code__.co_freevars:
            codes[function] = _filled(again, constants)
    return codes


@cache
def _source_of(file: str) -> ParsedFile | None:
    lines = linecache.getlines(file)
    with suppress(*_NOT_COMPILED):
        return ParsedFile(file, lines) if 0 < len(lines) < LONGEST_SOURCE else None
    return None


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _key(code: CodeType) -> tuple[str, int]:
    return code.co_name, code.co_firstlineno


class _Rewriter(ast.NodeTransformer):
    """Rewrites the statements of one function; functions inside it stay as they are."""

    def __init__(
        self, site: Callable[[Expression], Any], wanted: Callable[[Place], bool], left_alone: Collection[str],
        lines: Sequence[str], constants: dict[str, Any],
    ) -> None:  # fmt: skip
        self.handed = 0
        """Expressions."""
        self._site, self._wanted, self._left_alone = site, wanted, left_alone
        self._lines, self._constants = lines, constants

    def _as_it_is(self, node: ast.AST) -> ast.AST:
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _as_it_is  # noqa: N815
    visit_JoinedStr = _as_it_is  # noqa: N815 - before Python 3.12 what is inside does not know where it stands

    def visit_Call(self, node: ast.Call) -> ast.expr:
        called = node.func
        text = self._text(called)
        if (isinstance(called, ast.Name) and called.id in self._left_alone) or _looks_up_names(node):
            self.generic_visit(node)
            return node
        if isinstance(called, ast.Attribute):  # a method is looked up as it was
            called.value = self.visit(called.value)
        else:
            called = self.visit(called)
        node.args = [self.visit(argument) for argument in node.args]
        for keyword in node.keywords:
            keyword.value = self.visit(keyword.value)
        return self._handed(node, text, called, node.args, node.keywords) or node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        text = self._text(node)
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load) or any(isinstance(part, ast.Starred) for part in ast.walk(node.slice)):
            return node
        return self._handed(node, text, self._constant(operator.getitem), [node.value, self._index(node.slice)]) or node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        text = self._text(node)
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load) or node.attr.startswith("__"):
            return node
        return self._handed(node, text, self._constant(getattr), [node.value, ast.Constant(node.attr)]) or node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        text = self._text(node)
        self.generic_visit(node)
        function = _OPERATORS.get(type(node.op))
        if function is None or (isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant)):
            return node
        return self._handed(node, text, self._constant(function), [node.left, node.right]) or node

    def _comprehension(self, node: Any) -> ast.expr:
        """Its first iterable is evaluated where it stands, and all else inside a function, as ever."""
        text = self._text(node)
        first = node.generators[0]
        first.iter = self.visit(first.iter)
        for inner in ast.walk(node):
            of_the_function = getattr(inner, "is_async", False) or getattr(inner, "id", "") in _OF_THE_FUNCTION
            if of_the_function or isinstance(inner, _NOT_IN_A_LAMBDA) or _looks_up_names(inner):
                return node  # type: ignore[no-any-return]
        name = "pipefix_iterable"
        taken = ast.arguments(posonlyargs=[], args=[ast.arg(name)], kwonlyargs=[], kw_defaults=[], defaults=[])
        iterable, first.iter = first.iter, ast.Name(name, ast.Load())
        handed = self._handed(node, text, ast.Lambda(taken, node), [iterable])
        if handed is None:
            first.iter = iterable
        return handed or node

    visit_ListComp = visit_SetComp = visit_DictComp = _comprehension  # noqa: N815

    def _handed(
        self, node: ast.expr, text: str, called: ast.expr, args: list[ast.expr], keywords: list[ast.keyword] | None = None
    ) -> ast.expr | None:
        place = (node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0, type(node).__name__)
        if not self._wanted(place):
            return None
        self.handed += 1
        site = self._constant(self._site(Expression(place, text)))
        return ast.copy_location(ast.Call(site, [called, *args], keywords or []), node)

    def _text(self, node: ast.expr) -> str:
        """As the file has it, of the first line."""
        ends_there = node.end_lineno == node.lineno
        line = self._lines[node.lineno - 1].encode()[node.col_offset : node.end_col_offset if ends_there else None]
        text = line.decode().strip()
        return text if ends_there and len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"

    def _index(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Slice):
            ends = [end or ast.Constant(None) for end in (node.lower, node.upper, node.step)]
            return ast.Call(self._constant(slice), ends, [])
        if isinstance(node, ast.Tuple):
            node.elts = [self._index(element) for element in node.elts]
        return node

    def _constant(self, value: Any) -> ast.Constant:
        mark = f"{_MARK}{len(self._constants)}"
        self._constants[mark] = value
        return ast.Constant(mark)


def _looks_up_names(node: ast.AST) -> bool:
    """Whether it calls one of `_BY_NAME` with a text."""
    if not isinstance(node, ast.Call) or getattr(node.func, "attr", getattr(node.func, "id", "")) not in _BY_NAME:
        return False
    handed = [*node.args, *(keyword.value for keyword in node.keywords)]
    return any(isinstance(value, ast.JoinedStr) or isinstance(getattr(value, "value", None), str) for value in handed)


def _filled(code: CodeType, constants: dict[str, Any]) -> CodeType:
    """The code with its constants in the place of their marks."""

    def held(constant: Any) -> Any:
        if isinstance(constant, CodeType):
            return _filled(constant, constants)
        return constants.get(constant, constant) if isinstance(constant, str) else constant

    return CodeType.replace(code, co_consts=tuple(map(held, code.co_consts)))
