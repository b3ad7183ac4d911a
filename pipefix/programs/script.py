"""Whether a Python file trains, told from its source: such a file is run as a program, and not imported for what it defines."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pipefix.vocabulary.files import read_regular

_TRAINERS = ("trainer", "learner")
"""Part of the name of what trains by ``.fit()``, ``.train()`` or ``.run()``, or of its maker: a model's ``train()`` sets a mode."""
_ENGINE = "Engine"
"""Of ignite: what it makes trains by ``.run()``."""
_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def trains_when_imported(path: Path) -> bool:
    """Whether code outside of functions and of ``if __name__ == "__main__"`` computes gradients, by itself or by what it calls."""
    body = _body_of(path)
    at_import = [statement for statement in body if not _is_main_guard(statement)]
    # What is called for the values of names, anywhere in the file: ``tr = Engine(step)``.
    assigned = [node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Assign)]
    calls = [(target, node.value) for node in assigned if isinstance(node.value, ast.Call) for target in node.targets]
    makers = {ast.unparse(target): ast.unparse(call.func) for target, call in calls}
    return _trains(at_import, _functions(body, path.parent), makers, set())


def is_program(path: Path) -> bool:
    """Whether running the file does more than importing it does."""
    return any(_is_main_guard(statement) for statement in _body_of(path))


def _body_of(path: Path) -> list[ast.stmt]:
    with suppress(OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.parse(read_regular(path)).body
    return []  # importing it will tell


def _is_main_guard(statement: ast.stmt) -> bool:
    names = [node.id for node in ast.walk(statement.test) if isinstance(node, ast.Name)] if isinstance(statement, ast.If) else []
    return "__name__" in names


def _functions(body: list[ast.stmt], folder: Path | None) -> dict[str, list[ast.stmt]]:
    """Functions and methods by their names, those of files beside it that it imports from included."""
    functions: dict[str, list[ast.stmt]] = {}
    for statement in body:
        if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level and folder is not None:
            functions |= _functions(_body_of(folder / f"{statement.module}.py"), None)
    for statement in body:
        for node in statement.body if isinstance(statement, ast.ClassDef) else [statement]:
            if isinstance(node, _Function):
                functions[node.name] = node.body
    return functions


def _trains(statements: Iterable[ast.AST], functions: dict[str, list[ast.stmt]], makers: dict[str, str], visited: set[str]) -> bool:
    for call in _calls(statements):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if isinstance(call.func, ast.Attribute) and (name == "backward" or _is_a_trainers(name, call.func.value, makers)):
            return True
        if name in functions and name not in visited:
            visited.add(name)
            if _trains(functions[name], functions, makers, visited):
                return True
    return False


def _calls(nodes: Iterable[ast.AST]) -> Iterator[ast.Call]:
    """Calls that are made when these run: what is only defined does not run."""
    for node in nodes:
        if isinstance(node, (*_Function, ast.Lambda)):
            continue
        if isinstance(node, ast.Call):
            yield node
        yield from _calls(ast.iter_child_nodes(node))


def _is_a_trainers(method: str, value: ast.expr, makers: dict[str, str]) -> bool:
    whose = ast.unparse(value)
    maker = makers.get(whose, "")
    of_engine = method == "run" and maker.rpartition(".")[2] == _ENGINE
    return of_engine or (method in ("fit", "train", "run") and any(part in f"{whose} {maker}".lower() for part in _TRAINERS))
