"""A proxy of an object with some attributes replaced: a module with another function, a loader with another sampler."""

from __future__ import annotations

from typing import Any


class Overlaid:
    """Another object, with other values in the place of some of its attributes."""

    def __init__(self, below: Any, **others: Any) -> None:
        self.__dict__.update(others, _below=below)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)
