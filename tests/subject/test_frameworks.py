"""Loaders as frameworks hand them over. Doubles with the frameworks' names and shapes stand for their classes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

import pipefix
from pipefix.subject.load import load
from pipefix.vocabulary.errors import TargetError
from pipefix.vocabulary.held_loaders import held_loader
from tests.subject.conftest import Write


class Numbers(Dataset[Any]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([float(index)])


class PrefetchLoader:
    """timm's."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            yield batch * 2

    @property
    def sampler(self) -> Any:
        return self.loader.sampler


class FabricDataLoader:
    def __init__(self, dataloader: Any) -> None:
        self.__dict__.update(dataloader.__dict__)
        self._dataloader = dataloader

    def __iter__(self) -> Iterator[Any]:
        yield from self._dataloader


class WebLoader(IterableDataset[Any]):
    """WebDataset's: a stream whose first stage is a loader."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.pipeline: list[Any] = [DataLoader(*args, **options)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.pipeline[0])


class DatasetDict(dict[str, Any]):
    """Hugging Face's."""


DatasetDict.__module__ = "datasets.dataset_dict"


class Module:
    """Lightning's LightningDataModule."""

    def __init__(self, given: Any = None) -> None:
        self.asked: list[str] = []
        self.given = given

    def prepare_data(self) -> None:
        self.asked.append("prepare")

    def setup(self, stage: str) -> None:
        self.asked.append(stage)

    def train_dataloader(self) -> Any:
        assert self.asked == ["prepare", "fit"]
        return self.given if self.given is not None else DataLoader(Numbers(), batch_size=4)


Module.__module__, Module.__qualname__ = "lightning.pytorch.core.datamodule", "LightningDataModule"


class Node:
    """torchdata's: an iterator that is reset to begin again."""

    def __init__(self) -> None:
        self.left = iter(())  # type: Iterator[int]

    def reset(self, state: Any = None) -> None:
        self.left = iter(range(40))

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return torch.full((8,), float(next(self.left)))


Node.__module__, Node.__qualname__ = "torchdata.nodes.base_node", "BaseNode"


class NodesLoader:
    def __init__(self, root: Node) -> None:
        self.root = root

    def __iter__(self) -> Any:
        self.root.reset()
        return self.root


NodesLoader.__module__, NodesLoader.__qualname__ = "torchdata.nodes.loader", "Loader"


def plain() -> DataLoader[Any]:
    return DataLoader(Numbers(), batch_size=4, num_workers=1)


@pytest.mark.parametrize(
    ("wrap", "kind"),
    [
        (PrefetchLoader, "PrefetchLoader"),
        (FabricDataLoader, "FabricDataLoader"),
        (lambda loader: PrefetchLoader(FabricDataLoader(loader)), "PrefetchLoader"),
    ],
)
def test_a_wrapper_is_looked_through(wrap: Any, kind: str) -> None:
    inner = plain()
    subject = load(wrap(inner))
    assert subject.loader is inner
    assert f"is a {kind} around a DataLoader: the loader is probed" in subject.wrapper
    assert load(wrap(inner), workers=2).settings.num_workers == 2


def test_a_stream_whose_first_stage_is_a_loader_is_no_dataset() -> None:
    subject = load(WebLoader(Numbers(), batch_size=4, num_workers=1))
    assert (subject.settings.batch_size, subject.settings.num_workers, subject.settings.dataset) == (4, 1, "Numbers")


def test_a_data_module_is_asked_as_lightning_asks() -> None:
    subject = load(Module())
    assert subject.settings.batch_size == 4
    assert "what its train_dataloader() gives is probed" in subject.wrapper
    wrapped = PrefetchLoader(plain())
    assert load(Module(wrapped)).loader is wrapped.loader
    with pytest.raises(TargetError, match="int"):
        load(Module(3))


def test_of_several_loaders_one_is_taken_and_that_is_told() -> None:
    first, second = plain(), plain()
    assert load(lambda: (first, second)).loader is first
    subject = load(lambda: {"val": first, "train": PrefetchLoader(second)})
    assert subject.loader is second
    assert "gives 2 loaders, and ['train'] was taken" in subject.wrapper


def test_of_several_datasets_one_is_taken_and_that_is_told() -> None:
    first, second = Numbers(), Numbers()
    subject = load(lambda: (first, second))
    assert subject.dataset is first and "gives 2 datasets, and [0] was taken" in subject.wrapper
    splits = DatasetDict({"validation": first, "train": second})
    assert load(splits).dataset is second
    assert load(lambda: (first, 3)).dataset == (first, 3), "samples, whatever they are"


@pytest.mark.parametrize("make", [Node, lambda: NodesLoader(Node())])
def test_nodes_are_a_stream_that_begins_again(make: Any) -> None:
    subject = load(make())
    for _ in range(2):
        assert [float(batch[0]) for batch in subject.loader_to_run()] == [float(number) for number in range(40)]
    assert "each thing that it yields counts as one sample" in subject.wrapper


def test_a_wrapper_is_probed_and_the_report_says_of_what() -> None:
    run = pipefix.probe(PrefetchLoader(DataLoader(Numbers(), batch_size=4)), budget=0.5)
    assert run.settings.dataset == "Numbers"
    assert "wrapper" in {caveat.id for caveat in run.caveats}


def test_wrappers_and_modules_of_a_file_are_found(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "doubles", sys.modules[__name__])
    text = """
        from doubles import Module, PrefetchLoader
        inner = DataLoader(Numbers(), batch_size=2)
        train_loader = PrefetchLoader(inner)
    """
    path = write("wraps.py", text)
    assert load(path).target == f"{path}:inner", "both are one loader"
    path = write("module.py", "from doubles import Module\n_it = Module\nclass Data(Module):\n    pass\ndel Module, Numbers")
    assert load(path).target == f"{path}:Data"


def test_what_holds_itself_does_not_hang() -> None:
    loop = PrefetchLoader(None)
    loop.loader = loop
    assert held_loader(loop) is None
    assert held_loader(PrefetchLoader) is None
    assert held_loader(Numbers()) is None
