"""The house as its files describe it: every module of the package, its room, and what it imports. Nothing is executed."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "pipefix"


@dataclass(frozen=True)
class Module:
    name: str
    """Dotted, ``pipefix.hooks.sample_timer``; a package bears its own name."""
    path: Path
    tree: ast.Module

    @property
    def room(self) -> str:
        """``hooks`` for ``pipefix.hooks.sample_timer``; ``api`` for ``pipefix.api``; empty for the top package."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else ""

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of its tree, walked once for all who ask."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")


@cache
def modules() -> dict[str, Module]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path, ast.parse(path.read_text(encoding="utf-8"), str(path)))
    return found


def rooms() -> set[str]:
    return {module.room for module in modules().values()} - {"", "__main__"}


@cache
def imports(name: str) -> frozenset[str]:
    """Our modules that a module imports, wherever in the file: lazily and for types count too."""
    module = modules()[name]
    found: set[str] = set()
    for node in module.nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update(_imported_from(node, module))
        elif isinstance(node, ast.Call):
            found.update(_imported_by_name(node))
    ours = {_ours(target) for target in found if target.split(".")[0] == "pipefix"}
    return frozenset(target for target in ours if target is not None and target != name)


def _imported_from(node: ast.ImportFrom, module: Module) -> set[str]:
    base = node.module or ""
    if node.level:
        parts = module.name.split(".")
        depth = node.level - (1 if module.path.name == "__init__.py" else 0)
        base = ".".join([*parts[: len(parts) - depth], *([node.module] if node.module else [])])
    return {f"{base}.{alias.name}" for alias in node.names}


def _imported_by_name(node: ast.Call) -> set[str]:
    """``importlib.import_module("pipefix.x")`` with a literal name."""
    function = node.func
    called = function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    if called not in ("import_module", "__import__") or not node.args or not isinstance(node.args[0], ast.Constant):
        return set()
    return {str(node.args[0].value)}


def _ours(target: str) -> str | None:
    """The module that a dotted name lies in: ``pipefix.hooks.sample_timer.SampleTimer`` is in ``pipefix.hooks.sample_timer``."""
    while target and target not in modules():
        target = target.rpartition(".")[0]
    return target or None


@cache
def classes() -> dict[str, tuple[Module, ast.ClassDef]]:
    return {
        f"{module.name}.{node.name}": (module, node)
        for module in modules().values()
        for node in module.nodes
        if isinstance(node, ast.ClassDef)
    }


@cache
def subclasses(of: str) -> dict[str, tuple[Module, ast.ClassDef]]:
    """Classes whose bases lead to the class of that (last) name."""
    known = {of}
    while True:
        more = {node.name for _, node in classes().values() if any(_last(base) in known for base in node.bases)} - known
        if not more:
            break
        known |= more
    return {name: pair for name, pair in classes().items() if pair[1].name in known - {of}}


def _last(base: ast.expr) -> str:
    return base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""
