"""What in a module can be probed, where the target names nothing in it: datasets and loaders it made, or what makes one."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset

from pipefix.vocabulary.errors import TargetError

_PLAIN = ("builtins", "collections", "numpy", "pandas", "torch", "torchvision", "types", "typing", "array", "pathlib", "h5py")
"""Packages whose containers have a length and items without being a dataset."""
_DEEPEST = 8


def named(module: ModuleType, attribute: str, location: str) -> Any:
    """What ``attribute`` (dotted, perhaps) names in ``module``."""
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            known = [key for key, _ in candidates(module)]
            advice = f"It defines: {', '.join(f'{location}:{key}' for key in known)}." if known else None
            raise TargetError(f"{location!r} has no name {attribute!r}.", advice=advice)
        value = getattr(value, part)
    return value


def only(module: ModuleType, location: str) -> tuple[str, Any]:
    """The only candidate, or an error that lists them all."""
    found = candidates(module)
    if len(found) == 1:
        return found[0]
    if not found:
        raise TargetError(
            f"{location!r} defines no Dataset, no DataLoader and no function without required arguments that makes one.",
            advice=f"Name what to probe: {location}:NAME, where NAME is a dataset, a loader or a callable that returns one.",
        )
    listed = "\n".join(f"  {location}:{key}  ({_kind(value)})" for key, value in found)
    raise TargetError(f"{location!r} defines {len(found)} candidates:\n{listed}", advice="Name the one you mean, as listed above.")


def candidates(module: ModuleType) -> list[tuple[str, Any]]:
    """Datasets and loaders the file made; else functions and dataset classes it defines that make one without arguments."""
    public = [(key, value) for key, value in vars(module).items() if not key.startswith("_")]
    loaders = [(key, value) for key, value in public if isinstance(value, DataLoader)]
    datasets = [(key, value) for key, value in public if isinstance(value, Dataset) and not inspect.isclass(value)]
    # What a loader or another dataset reads from is no candidate of its own, and neither are the leftovers of a split.
    used = {id(part) for _, loader in loaders for part in parts(loader.dataset)}
    datasets = [(key, value) for key, value in datasets if not used & {id(part) for part in parts(value)}]
    inner = {id(part) for _, value in datasets for part in parts(value)[1:] if part is not value}
    datasets = [(key, value) for key, value in datasets if id(value) not in inner]
    found = (
        loaders + datasets
        or [pair for pair in public if _is_maker(pair[1], module)]
        or [pair for pair in public if _looks_like_a_dataset(pair[1])]
    )
    return _once(found)


def parts(dataset: Any) -> list[Any]:
    """A dataset and those it wraps (Subset, ConcatDataset …), the outermost first."""
    return _parts(dataset, 0)


def _parts(dataset: Any, depth: int) -> list[Any]:
    held = getattr(dataset, "datasets", None)
    inner = [*(held if isinstance(held, (list, tuple)) else []), getattr(dataset, "dataset", None)]
    wrapped = [one for one in inner if is_dataset(one)] if depth < _DEEPEST else []
    return [dataset, *(part for one in wrapped for part in _parts(one, depth + 1))]


def is_dataset(value: Any) -> bool:
    """Whether a loader could read from it: subclassing Dataset is a habit, not a condition."""
    return isinstance(value, Dataset) or (hasattr(type(value), "__getitem__") and not isinstance(value, (str, bytes, type)))


def is_stream(value: Any) -> bool:
    return isinstance(value, IterableDataset)


def callable_bare(value: Any) -> bool:
    """Whether it can be called without arguments."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return False
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(p.default is not p.empty or p.kind in optional for p in parameters)


def _once(found: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """One name an object: aliases are no second candidate."""
    seen: dict[int, tuple[str, Any]] = {}
    for pair in found:
        seen.setdefault(id(pair[1]), pair)
    return list(seen.values())


def _is_maker(value: Any, module: ModuleType) -> bool:
    if getattr(value, "__module__", None) != module.__name__:
        return False
    if inspect.isclass(value):
        duck = "__len__" in dir(value) and "__getitem__" in dir(value) and not issubclass(value, (tuple, dict))
        return (issubclass(value, (Dataset, DataLoader)) or duck) and not inspect.isabstract(value) and callable_bare(value)
    if not inspect.isfunction(value) or not callable_bare(value):
        return False
    returned = inspect.signature(value).return_annotation
    if returned is not inspect.Signature.empty:
        if inspect.isclass(returned):
            return issubclass(returned, (Dataset, DataLoader))
        return "Dataset" in str(returned) or "DataLoader" in str(returned)
    name = value.__name__.lower()
    return "dataset" in name or "loader" in name


def _looks_like_a_dataset(value: Any) -> bool:
    kind = type(value)
    return hasattr(kind, "__getitem__") and hasattr(kind, "__len__") and kind.__module__.partition(".")[0] not in _PLAIN


def _kind(value: Any) -> str:
    if inspect.isclass(value):
        return "class"
    return "function" if inspect.isfunction(value) else type(value).__name__
