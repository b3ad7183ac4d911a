"""A torch that has none of the private names that the package looks for: imported before pipefix, or given to pytest as ``-p``."""

from __future__ import annotations

import importlib
import types
from typing import Any

import torch
from torch.utils.data import DataLoader

imported = importlib.import_module


def public_only(name: str, package: str | None = None) -> Any:
    """What begins with an underscore is there for torch itself only."""
    if not name.startswith("torch"):
        return imported(name, package)
    if any(part.startswith("_") for part in name.split(".")):
        raise ModuleNotFoundError(f"No module named {name!r}")
    return types.SimpleNamespace(**{key: value for key, value in vars(imported(name, package)).items() if not key.startswith("_")})


importlib.import_module = public_only
make = DataLoader._get_iterator
del DataLoader._get_iterator
DataLoader.__iter__ = lambda self: make(self)  # type: ignore[method-assign]
assert torch is not None


def pytest_configure(config: Any) -> None:
    """Options that stand on torch's own names are left with a warning, and not more is asked of them here."""
    config.addinivalue_line("filterwarnings", "ignore:.*cannot be had:RuntimeWarning")
