"""Rooms and files are named for what they hold; files and functions stay readable."""

from __future__ import annotations

import ast

import pipefix
from tests.architecture import house

NAMELESS = {"utils", "util", "common", "helpers", "helper", "misc", "core", "shared", "tools", "stuff", "base"}
LONGEST_FILE = 500
LONGEST_FUNCTION = 100


def test_no_name_says_nothing() -> None:
    assert not [name for name in house.modules() if NAMELESS & {part.strip("_") for part in name.split(".")}]


def test_every_module_says_what_it_is() -> None:
    modules = house.modules().items()
    silent = [name for name, module in modules if module.text.strip() and not ast.get_docstring(module.tree)]
    assert not silent, "these have no docstring"


def test_no_file_grows_out_of_hand() -> None:
    """About 350 lines a file are meant; this is where a smell becomes a fault."""
    lengths = {name: len(module.text.splitlines()) for name, module in house.modules().items()}
    assert not {name: length for name, length in lengths.items() if length > LONGEST_FILE}


def test_no_function_grows_out_of_hand() -> None:
    """About 60 lines are meant."""
    lengths = {
        f"{name}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno
        for name, module in house.modules().items()
        for node in module.nodes
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    assert not {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION}


def test_no_name_for_users_is_a_module_as_well() -> None:
    """``import pipefix.watch.level`` would find a function where it looks for a package."""
    assert not [name for name in pipefix.__all__ if f"pipefix.{name}" in house.modules()]
