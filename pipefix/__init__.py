"""pipefix: what is slow in a PyTorch data pipeline, and what is each fix worth?

The names for users are resolved on first use, so ``import pipefix`` stays cheap and never loads torch.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pipefix.vocabulary.version import VERSION as __version__

if TYPE_CHECKING:
    from pipefix.api import convert, doctor, fix, forecast, probe, swap, tune, undo, verify, watch
    from pipefix.caches.dataset import CachedDataset
    from pipefix.caches.table import GroupSampler
    from pipefix.loader.fast_loader import FastLoader
    from pipefix.loader.portable import prepare

_VERBS = ("probe", "doctor", "convert", "forecast", "verify", "swap", "tune", "fix", "undo")
_HOMES = {
    **dict.fromkeys(_VERBS, "pipefix.api"),
    # Straight from its verb: a training job does not pay for loading the others.
    "watch": "pipefix.verbs.watch",
    "CachedDataset": "pipefix.caches.dataset",
    "FastLoader": "pipefix.loader.fast_loader",
    "GroupSampler": "pipefix.caches.table",
    "prepare": "pipefix.loader.portable",
}
"""Where each public name lives."""

__all__ = [
    "probe",
    "doctor",
    "convert",
    "forecast",
    "verify",
    "swap",
    "tune",
    "fix",
    "undo",
    "watch",
    "prepare",
    "FastLoader",
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


class _Package(ModuleType):
    """`pipefix.watch` is a verb, and a room bears its name too: importing the room does not hide the verb."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
