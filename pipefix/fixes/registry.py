"""Every fixer, and which one a remedy is for. Found by walking the package."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from pipefix.fixes.by_hand import ByHand
from pipefix.fixes.fixer import Fixer, kind_of


@cache
def all_fixers() -> tuple[Fixer, ...]:
    import pipefix.fixes as package

    for found in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{found.name}")
    return tuple(kind() for kind in sorted(Fixer.__subclasses__(), key=lambda kind: kind.__name__) if kind is not ByHand)


def fixer_for(id: str) -> Fixer:
    """The fixer of a remedy; one that says how to do it by hand where there is none."""
    return next((fixer for fixer in all_fixers() if kind_of(id, fixer.remedies) is not None), ByHand())
