"""pipefix: what is slow in a PyTorch data pipeline, and what is each fix worth?

The names for users are resolved on first use, so ``import pipefix`` stays cheap and never loads torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pipefix.vocabulary.version import VERSION as __version__

if TYPE_CHECKING:
    from pipefix.api import (
        Checked,
        Comparison,
        Converted,
        Finding,
        FixReport,
        Forecast,
        Run,
        Swapped,
        Tuned,
        Undone,
        Watch,
        compare,
        convert,
        doctor,
        fix,
        forecast,
        load,
        probe,
        swap,
        tune,
        undo,
        verify,
        watch,
    )
    from pipefix.caches.dataset import CachedDataset
    from pipefix.caches.table import GroupSampler
    from pipefix.loader.fast_loader import FastLoader
    from pipefix.loader.slots.portable import prepare

_VERBS = ("probe", "doctor", "convert", "forecast", "verify", "swap", "tune", "fix", "undo")
_RESULTS = ("Run", "Finding", "Converted", "Forecast", "Checked", "Swapped", "Tuned", "FixReport", "Undone")
_HOMES = {
    **dict.fromkeys((*_VERBS, *_RESULTS), "pipefix.api"),
    # Straight from their verbs: a training job does not pay for loading the others, and run files need no PyTorch.
    "watch": "pipefix.verbs.watch",
    "load": "pipefix.verbs.runs",
    "compare": "pipefix.verbs.runs",
    "Comparison": "pipefix.verbs.runs",
    "Watch": "pipefix.verbs.watch",
    "CachedDataset": "pipefix.caches.dataset",
    "FastLoader": "pipefix.loader.fast_loader",
    "GroupSampler": "pipefix.caches.table",
    "prepare": "pipefix.loader.slots.portable",
}
"""Where each public name lives."""

__all__ = [
    "probe",
    "load",
    "compare",
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
    "Run",
    "Comparison",
    "Finding",
    "Converted",
    "Forecast",
    "Checked",
    "Swapped",
    "Tuned",
    "FixReport",
    "Undone",
    "Watch",
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
