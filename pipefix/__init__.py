"""pipefix: what is slow in a PyTorch data pipeline, and what is each fix worth?

The names for users are resolved on first use, so ``import pipefix`` stays cheap and never loads torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pipefix.vocabulary.version import VERSION as __version__

if TYPE_CHECKING:
    from pipefix.api.convert import Converted as Converted
    from pipefix.api.convert import Forecast as Forecast
    from pipefix.api.convert import convert as convert
    from pipefix.api.convert import forecast as forecast
    from pipefix.api.doctor import Finding as Finding
    from pipefix.api.doctor import doctor as doctor
    from pipefix.api.fix import FixReport as FixReport
    from pipefix.api.fix import Undone as Undone
    from pipefix.api.fix import fix as fix
    from pipefix.api.fix import undo as undo
    from pipefix.api.probe import Run as Run
    from pipefix.api.probe import probe as probe
    from pipefix.api.run_files import Comparison as Comparison
    from pipefix.api.run_files import compare as compare
    from pipefix.api.run_files import load as load
    from pipefix.api.swap import Swapped as Swapped
    from pipefix.api.swap import swap as swap
    from pipefix.api.tune import Tuned as Tuned
    from pipefix.api.tune import tune as tune
    from pipefix.api.verify import Checked as Checked
    from pipefix.api.verify import verify as verify
    from pipefix.caches.dataset import CachedDataset as CachedDataset
    from pipefix.loader.fast_loader import FastLoader as FastLoader
    from pipefix.loader.slots.portable import prepare as prepare
    from pipefix.watching.watch import Watch as Watch
    from pipefix.watching.watch import watch as watch

_NAMES = {
    "pipefix.loader.fast_loader": ("FastLoader",),
    "pipefix.caches.dataset": ("CachedDataset",),
    "pipefix.api.probe": ("probe", "Run"),
    "pipefix.api.run_files": ("load", "compare", "Comparison"),
    "pipefix.api.doctor": ("doctor", "Finding"),
    "pipefix.api.convert": ("convert", "forecast", "Converted", "Forecast"),
    "pipefix.api.verify": ("verify", "Checked"),
    "pipefix.api.swap": ("swap", "Swapped"),
    "pipefix.api.tune": ("tune", "Tuned"),
    "pipefix.api.fix": ("fix", "undo", "FixReport", "Undone"),
    "pipefix.watching.watch": ("watch", "Watch"),
    "pipefix.loader.slots.portable": ("prepare",),
}
"""Public names by their module. It is loaded when one of them is first used: `load` and `compare` need no PyTorch."""
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = [*sorted(_HOMES, key=lambda name: name[0].isupper()), "__version__"]  # noqa: PLE0604 - they are strings
"""Functions first: the order of the documentation."""


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pipefix' has no attribute {name!r}; it offers {', '.join(__all__)}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
