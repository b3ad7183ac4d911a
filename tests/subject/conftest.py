"""Targets written for one test, imported and forgotten again."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Write = Callable[..., Path]

DATASET = """
    import torch
    from torch.utils.data import DataLoader, Dataset, IterableDataset

    class Numbers(Dataset):
        def __init__(self, count=8):
            self.count = count
        def __len__(self):
            return self.count
        def __getitem__(self, index):
            return torch.tensor([index])
"""


@pytest.fixture(autouse=True)
def forgets_imports() -> Iterator[None]:
    """What a target brought into the interpreter leaves with its test."""
    modules, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if "pytest-" in file or not file:
            del sys.modules[name]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file below the test's folder: the class ``Numbers`` first, unless told ``bare=True``."""

    def write(name: str, text: str, *, bare: bool = False) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(("" if bare else textwrap.dedent(DATASET)) + textwrap.dedent(text), encoding="utf-8")
        return path

    return write
