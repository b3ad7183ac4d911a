"""pipefix: what is slow in a PyTorch data pipeline, and what is each fix worth?

The names for users are resolved on first use, so ``import pipefix`` stays cheap and never loads torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pipefix.vocabulary.version import VERSION as __version__

if TYPE_CHECKING:
    from pipefix.api import convert, doctor, fix, forecast, probe, swap, undo, verify
    from pipefix.caches.dataset import CachedDataset
    from pipefix.caches.table import GroupSampler

_HOMES = {
    **dict.fromkeys(("probe", "doctor", "convert", "forecast", "verify", "swap", "fix", "undo"), "pipefix.api"),
    "CachedDataset": "pipefix.caches.dataset",
    "GroupSampler": "pipefix.caches.table",
}
"""Where each public name lives."""

__all__ = [
    "probe",
    "doctor",
    "convert",
    "forecast",
    "verify",
    "swap",
    "fix",
    "undo",
    "CachedDataset",
    "GroupSampler",
    "__version__",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pipefix' has no attribute {name!r}; it offers {', '.join(__all__)}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
