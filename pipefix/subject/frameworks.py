"""Unwraps loaders of frameworks: wrapped, several at once (or datasets), in a LightningDataModule, a graph of torchdata's nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset

from pipefix.subject import failure
from pipefix.vocabulary.held_loaders import held_loader, is_named

_LIGHTNING = "core.datamodule.LightningDataModule"
_ARROW = "datasets.arrow_dataset.Dataset"
_MANY = 64
"""A longer list holds samples, not loaders or datasets."""


class NodeStream(IterableDataset[Any]):
    """What a graph of nodes yields, from its beginning each time."""

    has_own_workers = True
    """Threads and processes of its nodes: no loader is there to give it others."""

    def __init__(self, node: Any) -> None:
        self.node = node

    def __iter__(self) -> Iterator[Any]:
        if is_node(self.node) and not _is_nodes_loader(self.node):
            self.node.reset()
        yield from self.node


def unwrapped(whole: Any, label: str) -> tuple[Any, str]:
    """The loader that ``whole`` comes down to, or ``whole`` itself where it holds none; and in words how the two differ."""
    if isinstance(whole, DataLoader):
        return whole, ""
    if is_data_module(whole):
        with failure.as_target_error(f"Setting up {label}"):  # as Lightning asks for it
            whole.prepare_data()
            whole.setup("fit")
            loader = whole.train_dataloader()
        inner, words = unwrapped(loader, label)
        return inner, f"{label} is a LightningDataModule: what its train_dataloader() gives is probed. {words}".strip()
    several = _several(whole)
    if several:
        return _first(whole, several, label)
    if is_node(whole):
        words = "each thing that it yields counts as one sample, made by its own threads or processes."
        return DataLoader(NodeStream(whole), batch_size=None), f"{label} is a graph of nodes: {words}"
    loader = held_loader(whole)
    if loader is None:
        return whole, ""
    kind = type(whole).__name__
    words = f"{label} is a {kind} around a DataLoader: the loader is probed, what {kind} does to its batches is not in the figures."
    return loader, words


def is_data_module(value: Any) -> bool:
    """A LightningDataModule, under either name of the package."""
    return is_module_class(type(value))


def is_module_class(kind: type) -> bool:
    return any(f"{base.__module__}.{base.__qualname__}".endswith(_LIGHTNING) for base in kind.__mro__)


def is_node(value: Any) -> bool:
    return is_named(type(value), "torchdata.nodes.base_node.BaseNode") or _is_nodes_loader(value)


def _is_nodes_loader(value: Any) -> bool:
    return is_named(type(value), "torchdata.nodes.loader.Loader")


def _several(whole: Any) -> list[tuple[Any, Any]]:
    """What a short list or dict holds, or Lightning's CombinedLoader, each with its name."""
    if type(whole).__name__ == "CombinedLoader":
        whole = list(getattr(whole, "flattened", ()))
    if type(whole) is dict or is_named(type(whole), "datasets.dataset_dict.DatasetDict"):
        return list(whole.items()) if len(whole) <= _MANY else []
    return list(enumerate(whole)) if type(whole) in (list, tuple) and len(whole) <= _MANY else []


def _first(whole: Any, several: list[tuple[Any, Any]], label: str) -> tuple[Any, str]:
    """Of several loaders, or of nothing but datasets, the first, or the one that is called train."""
    kind, held = "loaders", [(name, loader) for name, value in several if (loader := held_loader(value)) is not None]
    if not held:
        kind = "datasets"
        held = [(name, value) for name, value in several if is_named(type(value), _ARROW) or isinstance(value, Dataset)]
        if len(held) < len(several):
            return whole, ""
    name, value = next((pair for pair in held if str(pair[0]).startswith("train")), held[0])
    other = "a function of your file that returns another one alone is probed in its place by its name."
    return value, f"{label} gives {len(held)} {kind}, and [{name!r}] was taken; {other}" if len(held) > 1 else ""
