"""Digests of the user's classes and functions: of their source without comments, and of functions of theirs that they call.

Libraries that are installed are known by name. So a comment, a blank line or an update of torchvision changes nothing, and another
``__getitem__``, another helper that it calls or another constant that it reads does.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from pipefix.vocabulary.attributes import names_in
from pipefix.vocabulary.generators import is_generator
from pipefix.vocabulary.user_modules import is_users

_MOST, _LONGEST = 256, 1024
"""Functions and classes that are looked at, and elements of what they name."""
_DEEPEST = 4
_PLAIN = (bool, int, float, str, bytes, type(None))


def digest(value: Any) -> str:
    """Of a class or a function; empty where it is not the user's."""
    words = list(_words(value))
    return hashlib.sha256("\n".join(words).encode("utf-8", "surrogateescape")).hexdigest()[:16] if words else ""


def _words(value: Any) -> Iterator[str]:
    waiting, visited_ids = [value], set[int]()
    while waiting and len(visited_ids) < _MOST:
        code = waiting.pop()
        if isinstance(code, functools.partial):
            yield _repr(tuple(argument for argument in (*code.args, *sorted(code.keywords.items())) if _is_plain(argument)))
            code = code.func
        code = code.__func__ if isinstance(code, (MethodType, staticmethod, classmethod)) else inspect.unwrap(code)
        if id(code) in visited_ids:
            continue
        visited_ids.add(id(code))
        if isinstance(code, type):
            for base in code.__mro__:
                if _is_users(base):
                    yield f"class {base.__qualname__}"
                    for name, held in sorted(vars(base).items()):
                        if isinstance(held, property):
                            waiting += [held.fget] if held.fget is not None else []
                        elif isinstance(held, (FunctionType, staticmethod, classmethod)):
                            waiting.append(held)
                        elif _is_plain(held) and not name.startswith("__"):
                            yield f"{name} = {_repr(held)}"
        elif isinstance(code, FunctionType) and _is_users(code):
            source, reassigned = _source(code.__code__)
            yield f"def {code.__qualname__}: {source}"
            yield _repr(tuple(defaults for defaults in (code.__defaults__ or (), code.__kwdefaults__ or {}) if _is_plain(defaults)))
            for name, held in _named(code):
                if name in reassigned:
                    continue
                if _is_plain(held):
                    yield f"{name} = {_repr(held)}"
                elif isinstance(held, (FunctionType, type, functools.partial)):
                    waiting.append(held)


def _named(function: FunctionType) -> list[tuple[str, Any]]:
    """What a function's code names outside of itself: globals, what it closes over, and functions of the user's modules."""
    names = sorted(set(names_in(function.__code__)))
    outside_names = [(name, function.__globals__[name]) for name in names if name in function.__globals__]
    for _, module in list(outside_names):
        if isinstance(module, ModuleType) and _is_users(module):
            outside_names += [(name, vars(module)[name]) for name in names if name in vars(module)]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        with suppress(ValueError):  # not bound yet
            outside_names.append((name, cell.cell_contents))
    return [(name, held) for name, held in outside_names if not isinstance(held, (ModuleType, BuiltinFunctionType))]


def holds_generator(value: Any, depth: int = 0) -> bool:
    """Whether an operation, or what it holds, names or calls, has a generator of random numbers of its own."""
    if isinstance(value, Random) or is_generator(value):
        return True
    if depth > _DEEPEST or isinstance(value, (*_PLAIN, type, ModuleType)):
        return False
    if isinstance(value, functools.partial):
        inner = [value.func, *value.args, *value.keywords.values()]
    elif isinstance(value, MethodType):
        inner = [value.__self__, value.__func__]
    elif isinstance(value, FunctionType):
        inner = [*(value.__defaults__ or ()), *(held for _, held in _named(value))] if _is_users(value) else []
    elif isinstance(value, (dict, list, tuple)):
        inner = list(value.values() if isinstance(value, dict) else value)[:_MOST]
    else:
        inner = list(getattr(value, "__dict__", {}).values())
        inner += [vars(base)["__call__"] for base in type(value).__mro__ if isinstance(vars(base).get("__call__"), FunctionType)]
    return any(holds_generator(held, depth + 1) for held in inner)


@functools.lru_cache(maxsize=1024)
def _source(code: CodeType) -> tuple[str, frozenset[str]]:
    """Its source without comments and docstrings, or its byte code; and names of globals that it assigns to."""
    try:
        if code.co_name == "<lambda>":
            raise OSError  # its lines hold more than itself
        tree = ast.parse(textwrap.dedent("".join(inspect.getsourcelines(code)[0])))
    except (OSError, TypeError, SyntaxError, ValueError, IndexError):
        return "".join(_bytecode(code)), frozenset()
    reassigned = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and ast.get_docstring(node, clean=False):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree), frozenset(reassigned)


def _bytecode(code: CodeType) -> Iterator[str]:
    yield f"{code.co_code.hex()} {code.co_names} {code.co_varnames}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _bytecode(constant)
        else:
            yield _repr(constant)


def _repr(value: Any) -> str:
    """As `repr` has it, but for sets of texts, whose order is another in every process, and for arrays, which it cuts short."""
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(_repr, value)))}}}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_repr, value))})"
    if type(value) is dict:
        return f"{{{', '.join(f'{_repr(key)}: {_repr(held)}' for key, held in value.items())}}}"
    return f"{value.dtype}{value.tolist()}" if _is_array(value) else repr(value)


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list, set, frozenset)):
        return len(value) <= _LONGEST and all(map(_is_plain, value))
    if type(value) is dict:
        return len(value) <= _LONGEST and all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    return type(value) in _PLAIN or _is_array(value)


def _is_array(value: Any) -> bool:
    """A few numbers of NumPy's, such as a mean and a deviation."""
    is_numpys = type(value).__module__ == "numpy" and hasattr(value, "tolist")
    return is_numpys and bool(value.size <= _LONGEST and value.dtype.kind in "biuf")


def _is_users(value: Any) -> bool:
    """Whether it is code that people edit: neither of Python, nor installed, nor of this library."""
    if isinstance(value, FunctionType):
        return is_users(value.__globals__.get("__name__"), value.__code__.co_filename)
    if isinstance(value, ModuleType):
        return is_users(value.__name__, getattr(value, "__file__", None))
    if getattr(sys.modules.get(value.__module__), "__file__", None) is not None:
        return is_users(value.__module__)
    methods = [held.__code__.co_filename for held in vars(value).values() if isinstance(held, FunctionType)]
    return is_users(value.__module__, next((name for name in methods if not name.startswith("<s")), None))
