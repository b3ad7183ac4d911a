"""What is not torch's public interface is used in one file, which says what is done where a torch does not have it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from tests.architecture import house

HOME = "pipefix.hooks.torch_internals"
BESIDE_PROGRAMS = tuple(f"pipefix.programs.observing.{name}" for name in ("inside", "model_calls", "timed_batches"))
"""They are loaded into programs whose Python may not find the rest of pipefix."""
LIGHTNING = "pipefix.watching.lightning"
"""Of whose loaders an attribute has the same name as of torch's."""
OF_ANY_LOADER = {"_iterator", "_dataset_kind", "_workers", "_shutdown_workers", "_get_iterator", "_index_sampler"}
"""Torch's private attributes of loaders and iterators; the loader's own iterators, which are subclasses, go by them."""


def private_names_of_torch(nodes: Iterable[ast.AST]) -> list[str]:
    found = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            found += [name] if re.fullmatch(r"[\w.]+", name) else []
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("torch."):
            found.append(node.value)
    return sorted({name for name in found if is_private(name)})


def others(*homes: str) -> list[tuple[str, house.Module]]:
    return [(name, module) for name, module in house.modules().items() if name not in homes]


def is_private(name: str) -> bool:
    first, *rest = name.split(".")
    return first == "torch" and any(part.startswith("_") and not part.startswith("__") for part in rest)


def test_private_names_of_torch_are_used_in_one_file() -> None:
    used = {name: private_names_of_torch(module.nodes) for name, module in others(HOME, *BESIDE_PROGRAMS)}
    assert not {name: some for name, some in used.items() if some}, f"ask {HOME}"


def test_iterators_are_asked_for_their_insides_in_one_file() -> None:
    """By name, as for loaders of any kind; subclasses of torch's iterators have those attributes for their own."""
    asked = [
        f"{name}: {ast.unparse(node)}"
        for name, module in others(HOME, LIGHTNING)
        for node in module.nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr", "setattr")
        if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) and node.args[1].value in OF_ANY_LOADER
    ]
    assert not asked, f"ask {HOME}"


def test_private_names_are_found() -> None:
    tree = ast.parse(
        "import torch\nfrom torch._utils import A\nfrom torch.utils.data import _B, C\ntorch._C.d(torch.e)\nx = 'torch._F'"
    )
    assert private_names_of_torch(ast.walk(tree)) == ["torch._C", "torch._C.d", "torch._F", "torch._utils.A", "torch.utils.data._B"]
