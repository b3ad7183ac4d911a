"""A dataset that is asked for one sample after the other, though it could be asked for whole batches (``__getitems__``)."""

from __future__ import annotations

from typing import Any

from torch.utils.data import Dataset


class OneByOne(Dataset[Any]):
    """The dataset in all else: its attributes are read and set through this."""

    dataset: Any

    def __init__(self, dataset: Any) -> None:
        vars(self)["dataset"] = dataset

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[index]

    def __len__(self) -> int:
        return len(self.dataset)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "dataset" not in vars(self):
            raise AttributeError(name)  # __getitems__ among others; and whoever copies this asks before there is anything
        return getattr(self.dataset, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "dataset":
            vars(self)[name] = value
        else:
            setattr(self.dataset, name, value)

    def __reduce__(self) -> Any:
        return OneByOne, (self.dataset,)
