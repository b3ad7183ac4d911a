"""Blocks of Python on the pages are Python, and name what there is (commands are held to the parser by scripts/check_readme.py)."""

from __future__ import annotations

import ast
import importlib.util
import re
import textwrap
from pathlib import Path

import pytest

import pipefix

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^( *)```python\n(.*?)^ *```$", re.M | re.S)
SIGNATURES = "python.md"
"""Its blocks are signatures, and made of the code."""


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != SIGNATURES], ids=lambda page: page.name)
def test_names_of_ours_are_there(page: Path) -> None:
    for _, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        for node in ast.walk(ast.parse(textwrap.dedent(block))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pipefix":
                assert hasattr(pipefix, node.attr) or importlib.util.find_spec(f"pipefix.{node.attr}"), node.attr
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pipefix":
                assert importlib.util.find_spec(node.module or ""), node.module
                if node.module == "pipefix":
                    assert all(hasattr(pipefix, name.name) for name in node.names)


def test_an_agent_finds_the_skill() -> None:
    """By a name and a description, each a line of its own: rewrapped, they were one line that is no YAML."""
    head = (ROOT / "skills" / "pipefix" / "SKILL.md").read_text(encoding="utf-8").split("---\n")[1]
    assert [line.split(": ")[0] for line in head.splitlines()] == ["name", "description"]
