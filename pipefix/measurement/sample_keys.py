"""What a sample is kept under: samplers also ask for lists, tensors and whatever else their dataset understands."""

from __future__ import annotations

import operator
from typing import Any


class SampleKeys:
    """Keys of samples, and what the sampler said where that is something else."""

    def __init__(self) -> None:
        self._originals: dict[Any, Any] = {}

    def of(self, unit: Any) -> Any:
        key = _hashable(unit)
        if key is not unit:
            self._originals[key] = unit
        return key

    def originals(self, keys: list[Any]) -> list[Any]:
        """What the dataset is to be asked for, key by key."""
        return [key if isinstance(key, list) else self._originals.get(key, key) for key in keys] if self._originals else keys


def _hashable(unit: Any) -> Any:
    """The unit itself where it can be a key; else an equal value that can."""
    if isinstance(unit, (list, tuple)):
        inner = tuple(_hashable(element) for element in unit)
        return unit if type(unit) is tuple and all(map(operator.is_, inner, unit)) else inner
    if hasattr(unit, "tolist"):
        return _hashable(unit.tolist())
    try:
        hash(unit)
    except TypeError:
        return repr(unit)
    return unit
