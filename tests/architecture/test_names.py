"""Rooms and files are named for what they hold; files and functions stay readable."""

from __future__ import annotations

import ast

import pytest

import pipefix
from tests.architecture import house

NAMELESS = {"utils", "util", "common", "helpers", "helper", "misc", "core", "shared", "tools", "stuff", "base"}
LONGEST_FILE = 500
LONGEST_FUNCTION = 100


@pytest.mark.parametrize("name", sorted(house.modules()))
def test_no_name_says_nothing(name: str) -> None:
    assert not NAMELESS & {part.strip("_") for part in name.split(".")}


@pytest.mark.parametrize("name", sorted(house.modules()))
def test_every_module_says_what_it_is(name: str) -> None:
    module = house.modules()[name]
    if module.path.read_text(encoding="utf-8").strip():
        assert ast.get_docstring(module.tree), f"{name} has no docstring"


@pytest.mark.parametrize("name", sorted(house.modules()))
def test_nothing_grows_out_of_hand(name: str) -> None:
    """About 350 lines a file and 60 a function are meant; this is where a smell becomes a fault."""
    module = house.modules()[name]
    assert len(module.path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE
    long = [
        f"{node.name}: {(node.end_lineno or 0) - node.lineno} lines"
        for node in ast.walk(module.tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and (node.end_lineno or 0) - node.lineno > LONGEST_FUNCTION
    ]
    assert not long


def test_no_name_for_users_is_a_module_as_well() -> None:
    """``import pipefix.watch.cusum`` would find a function where it looks for a package."""
    assert not [name for name in pipefix.__all__ if f"pipefix.{name}" in house.modules()]
