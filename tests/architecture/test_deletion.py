"""Files and folders are removed, renamed and replaced by `vocabulary/files.py` and `caches/folder.py` alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture import house

ALLOWED = {
    "pipefix.vocabulary.files",
    "pipefix.caches.folder",
    "pipefix.kernels.build",  # imports nothing of ours, and puts what it compiled in the place of what it compiled before
}

ALWAYS = {"unlink", "rmtree", "rmdir", "removedirs", "renames"}
OF_OS = {"remove", "rename", "replace"}
"""Of ``os``, ``shutil`` and paths; lists, text and our patches have methods of the same names."""


def removals(nodes: tuple[ast.AST, ...]) -> Iterator[str]:
    """Calls that take a file or a folder away, or put another in its place."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module in ("os", "shutil"):
            names = [alias.name for alias in node.names if alias.name in ALWAYS | OF_OS | {"move"}]
            yield from (f"from {node.module} import {name}" for name in names)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner, name = ast.unparse(node.func.value), node.func.attr
        if name in ALWAYS or (owner in ("os", "shutil") and name in OF_OS | {"move"}):
            yield ast.unparse(node)
        elif name in ("rename", "replace") and [type(one) is ast.Starred for one in (*node.args, *node.keywords)] == [False]:
            yield ast.unparse(node)  # of a path: text and dataclasses are given more


def test_what_removes_is_found() -> None:
    tree = ast.parse(
        "import os\nfrom shutil import rmtree\nos.replace(a, b)\npath.rename(other)\ntext.replace('a', 'b')\nlines.remove(x)\n"
        "path.unlink(missing_ok=True)\nshutil.rmtree(folder)\npatches.replace(owner, 'name', new)\nshutil.move(a, b)"
    )
    assert list(removals(tuple(ast.walk(tree)))) == [
        "from shutil import rmtree", "os.replace(a, b)", "path.rename(other)", "path.unlink(missing_ok=True)",
        "shutil.rmtree(folder)", "shutil.move(a, b)",
    ]  # fmt: skip


def test_nothing_is_removed_elsewhere() -> None:
    found = {name: list(removals(module.nodes)) for name, module in house.modules().items() if name not in ALLOWED}
    more = {name: calls for name, calls in found.items() if calls}
    assert not more, (
        "caches: pipefix.caches.folder; files: drafted, write_whole, write_new, remove or move of pipefix.vocabulary.files"
    )
