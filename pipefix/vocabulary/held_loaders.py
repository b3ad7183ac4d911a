"""Finds the DataLoader inside a wrapper that a framework put around it, without running the wrapper's code.

Classes are told by name, so that nothing is imported that the user did not import.
"""

from __future__ import annotations

from typing import Any

from pipefix.vocabulary.attributes import own

_NAMES = ("loader", "dataloader", "_dataloader", "_loader", "data_loader", "base_dataloader")
"""What wrappers call it: timm's PrefetchLoader, Fabric, Accelerate."""
_DEEPEST = 8


def is_dataloader(kind: type) -> bool:
    return is_named(kind, "torch.utils.data.dataloader.DataLoader")


def is_named(kind: type, name: str) -> bool:
    """Whether a class is, or is derived from, that of this full name."""
    return any(f"{base.__module__}.{base.__qualname__}" == name for base in kind.__mro__)


def held_loader(value: Any) -> Any:
    """The DataLoader whose batches one gets by iterating ``value``: itself, or one that it holds; None where there is none."""
    for _ in range(_DEEPEST):
        if value is None or isinstance(value, type):
            return None
        if is_dataloader(type(value)):
            # Accelerate's dispatching loader is one itself, and iterates another.
            inner = own(value, "base_dataloader")
            return value if inner is None or not is_dataloader(type(inner)) else inner
        value = _inside(value)
    return None


def _inside(value: Any) -> Any:
    kind = type(value)
    if not hasattr(kind, "__iter__"):
        return None
    if is_named(kind, "torch.utils.data.dataset.Dataset"):
        # WebLoader is a stream whose first stage is the loader.
        stages = own(value, "pipeline")
        return stages[0] if type(stages) is list and stages and is_dataloader(type(stages[0])) else None
    held = (own(value, name) for name in _NAMES)
    return next((inner for inner in held if inner is not None and hasattr(type(inner), "__iter__")), None)
