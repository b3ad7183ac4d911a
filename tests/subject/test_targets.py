"""TARGET in all its forms, and what the file beside it brings."""

from __future__ import annotations

import functools
import importlib
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Subset,
    WeightedRandomSampler,
)

from pipefix.subject.load import load
from pipefix.subject.naming import with_arguments
from pipefix.vocabulary import user_modules
from pipefix.vocabulary.errors import BadUsage, TargetError
from tests.subject.conftest import Write


class Numbers(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index])


class Stream(IterableDataset[int]):
    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(range(8))


class Duck:
    """Neither a Dataset nor an heir of one."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index


def make() -> Dataset[torch.Tensor]:
    return Numbers()


def sized(count: int, *, offset: int = 0) -> Dataset[torch.Tensor]:
    return Numbers()


# -- forms -------------------------------------------------------------------------------------------------------------


def test_a_file_with_one_candidate(write: Write) -> None:
    path = write("train.py", "data = Numbers()")
    subject = load(path)
    assert subject.settings.dataset == "Numbers"
    assert subject.target == f"{path}:data"
    assert subject.assumed == ("batch_size=32", "num_workers=0", "shuffle=True")


@pytest.mark.parametrize(
    ("files", "target", "label", "length"),
    [
        ({"train.py": "first = Numbers(2)\nsecond = Numbers(3)"}, "train.py:second", "train.py:second", 3),
        ({"train.py": "class Config:\n    data = Numbers(5)"}, "train.py:Config.data", "train.py:Config.data", 5),
        ({"market/__init__.py": "", "market/stock.py": "data = Numbers(6)"}, "market.stock:data", "market.stock:data", 6),
        ({"stockroom.py": "data = Numbers(7)"}, "stockroom:", "stockroom:data", 7),
    ],
    ids=["a file and a name", "a name in an object", "a module on the path", "a module whose only candidate is not named"],
)
def test_names(
    files: dict[str, str], target: str, label: str, length: int, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        write(name, text)
    monkeypatch.chdir(tmp_path)
    subject = load(target)
    assert (subject.target, subject.settings.length) == (label, length)
    assert ".py" in target or "" in sys.path, "a spawned worker must find the module where we did"


def test_an_installed_package_that_the_target_names_is_the_users_own(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("lab", "other"):
        write(f"site-packages/{package}/__init__.py", "", bare=True)
        write(f"site-packages/{package}/stock.py", "data = Numbers(6)")
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    monkeypatch.setattr(user_modules, "_installed_of_users", set())
    importlib.import_module("other.stock")
    assert load("lab.stock:data").package == "lab"
    assert (user_modules.is_users("lab.stock"), user_modules.is_users("other.stock")) == (True, False)
    assert load("torchvision.datasets:FakeData").package == "torchvision"
    assert not user_modules.is_users("torchvision.datasets"), "its calls are known by themselves"
    assert not user_modules.is_users("_pipefix_observing.patches", "/src/pipefix/patches.py"), "ours in a program"


def test_a_module_whose_only_candidate_is_not_named(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("stockroom.py", "data = Numbers(7)")
    monkeypatch.chdir(tmp_path)
    assert load("stockroom:").target == "stockroom:data"


def test_a_directory_of_class_folders(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name / "1.png")
    subject = load(str(tmp_path))
    assert (subject.settings.dataset, subject.settings.length) == ("ImageFolder", 2)
    assert subject.target == str(tmp_path), "whole: half of all datasets have a folder called train"
    assert subject.assumed[-1] == "the ImageNet training transforms (RandomResizedCrop 224, flip, normalise)"
    image, label = subject.dataset[1]
    assert image.shape == (3, 224, 224) and label == 1


@pytest.mark.parametrize(
    ("value", "kind", "length"),
    [
        (Numbers(), "map", 8),
        (Stream(), "iterable", None),
        (Duck(), "map", 8),
        ([1, 2, 3], "map", 3),
        (DataLoader(Numbers(), batch_size=2), "map", 8),
        (make, "map", 8),
        (Numbers, "map", 8),
        (Duck, "map", 8),
        (functools.partial(sized, 3, offset=1), "map", 8),
        (lambda: DataLoader(Stream(), batch_size=2), "iterable", None),
        (Subset(Numbers(), [1, 2, 3]), "map", 3),
        (ConcatDataset([Numbers(), Numbers()]), "map", 16),
    ],
    ids=["Dataset", "IterableDataset", "duck", "list", "DataLoader", "function", "class", "class of a duck", "partial", "lambda",
         "Subset", "ConcatDataset"],
)  # fmt: skip
def test_live_objects(value: object, kind: str, length: int | None) -> None:
    subject = load(value)
    assert (subject.settings.kind, subject.settings.length) == (kind, length)
    assert subject.target.startswith("<")


@pytest.mark.parametrize(
    ("loader", "epoch"),
    [
        (DataLoader(Numbers(), batch_size=2), 8),
        (DataLoader(Numbers(), batch_size=None), 8),
        (DataLoader(Numbers(), sampler=RandomSampler(Numbers(), replacement=True, num_samples=500)), 500),
        (DataLoader(Numbers(), sampler=WeightedRandomSampler([1.0] * 8, 3)), 3),
        (DataLoader(Numbers(), sampler=DistributedSampler(Numbers(), num_replicas=4, rank=1)), 2),
        (DataLoader(Numbers(), batch_sampler=[[1, 2], [3]]), 8),
        (DataLoader(Stream(), batch_size=2), None),
    ],
    ids=["as many as there are", "without batches", "more", "fewer", "a rank's", "a batch sampler's are not known", "a stream"],
)
def test_samples_an_epoch(loader: DataLoader[Any], epoch: int | None) -> None:
    subject = load(loader)
    assert subject.epoch == subject.settings.epoch == epoch


def test_fetching_batches_is_told_from_a_subset_that_only_could() -> None:
    class Batched(Numbers):
        def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
            return [torch.tensor([index]) for index in indices]

    assert load(Batched()).settings.kind == "batched"
    assert load(Subset(Batched(), [1, 2])).settings.kind == "batched"
    assert load(Subset(Numbers(), [1, 2])).settings.kind == "map"
    assert load(DataLoader(Batched(), batch_size=None)).settings.kind == "map"


# -- what goes wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "message", "advice"),
    [
        (7, "is of type int, not a Dataset", "FILE.py"),
        ("no/such/thing", "no file or directory 'no/such/thing'", "FILE.py"),
        ("thing.yaml", "There is no file 'thing.yaml'", "FILE.py"),
        (sized, "takes arguments: (count: 'int'", "functools.partial"),
        ((number for number in ()), "is of type generator, not a Dataset", "IterableDataset"),
        (lambda: None, "is None", "return what it makes"),
        ("nosuchpackage.inner:name", "no module 'nosuchpackage'", "package"),
        ("not a module:name", "neither a file nor the name of a module", "FILE.py"),
        (":name", "neither a file nor the name of a module", "FILE.py"),
    ],
)
def test_a_target_that_is_none(value: object, message: str, advice: str) -> None:
    with pytest.raises(TargetError) as raised:
        load(value)
    assert message in str(raised.value) and advice in raised.value.advice


def test_a_missing_file_names_those_beside_it(write: Write) -> None:
    near = write("trian.py", "data = Numbers()")
    with pytest.raises(TargetError) as raised:
        load(near.with_name("train.py"))
    assert str(near) in raised.value.advice


def test_a_name_whose_look_up_raises(write: Write) -> None:
    path = write("train.py", "class Config:\n    @property\n    def data(self):\n        return {}['root']\nconfig = Config()")
    with pytest.raises(TargetError, match=r"Looking up .*:config\.data raised KeyError: 'root'") as raised:
        load(f"{path}:config.data")
    assert "in data" in (raised.value.user_traceback or "")


def test_a_name_that_the_file_lacks_lists_what_it_has(write: Write) -> None:
    path = write("train.py", "data = Numbers()")
    with pytest.raises(TargetError, match="has no name 'dtaa'") as raised:
        load(f"{path}:dtaa")
    assert f"{path}:data" in raised.value.advice


@pytest.mark.parametrize("form", ["file", "file and name", "module"])
def test_a_function_that_parses_arguments_sees_the_file_alone(
    form: str, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
        import argparse, sys

        def make_loader():
            options = argparse.ArgumentParser()
            options.add_argument("--batch-size", type=int, default=3)
            loader = DataLoader(Numbers(), batch_size=options.parse_args().batch_size)
            loader.seen = list(sys.argv)
            return loader
    """
    path = write("parses.py", text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pipefix", "probe", "parses.py", "--quick"])
    loader: Any = load({"file": path, "file and name": f"{path}:make_loader", "module": "parses:make_loader"}[form]).loader
    assert loader.batch_size == 3
    assert [Path(word).name for word in loader.seen] == ["parses.py"]
    assert sys.argv == ["pipefix", "probe", "parses.py", "--quick"]


def test_no_candidate(write: Write) -> None:
    path = write("train.py", "def loader_of(path): ...\nx = 1", bare=True)
    with pytest.raises(TargetError, match="defines no Dataset") as raised:
        load(path)
    assert f"{path}:NAME" in raised.value.advice


@pytest.mark.parametrize(
    ("loader", "options", "message"),
    [
        (DataLoader(Numbers()), {"batch_size": 0}, "batch of 0"),
        (DataLoader(Numbers()), {"workers": -1}, "-1 workers"),
        (DataLoader(Numbers(), batch_sampler=[[0, 1], [2]]), {"batch_size": 4}, "--batch-size 4 cannot replace it"),
        (
            DataLoader(Numbers(), batch_size=100, drop_last=True),
            {},
            "yields no batch: 8 samples, batch_size 100 and drop_last=True",
        ),
    ],
)
def test_numbers_that_cannot_be(loader: Any, options: dict[str, int], message: str) -> None:
    with pytest.raises(BadUsage, match=message) as raised:
        load(loader, **options)
    assert raised.value.exit_code == 2 and ("--batch-size" in raised.value.advice or "--workers" in raised.value.advice)


@pytest.mark.parametrize("length", [0, 1])
def test_too_short(length: int) -> None:
    with pytest.raises(TargetError, match=f"length is {length}"):
        load(Subset(Numbers(), range(length)))


class Uncounted(list[list[int]]):
    def __len__(self) -> int:
        raise ValueError("not before set_epoch()")


def test_a_batch_sampler_that_does_not_tell_its_length() -> None:
    """Its error was called a bug in pipefix."""
    assert load(DataLoader(Numbers(), batch_sampler=Uncounted([[0, 1], [2]]))).settings.length == 8


class Endless:
    def __getitem__(self, index: int) -> int:
        return index


def test_no_length() -> None:
    with pytest.raises(TargetError, match="has no length") as raised:
        load(Endless())
    assert "__len__" in raised.value.advice
    sampled = DataLoader(Endless(), sampler=[3, 1, 2], batch_size=2)  # type: ignore[arg-type]
    assert load(sampled).settings.length is None, "with a sampler of its own it needs none"


@pytest.mark.parametrize("length", ["raise ValueError('not yet')", "return 2.5", "return -1"])
def test_a_length_that_raises(write: Write, length: str) -> None:
    path = write(
        "train.py",
        f"""
        class Odd(Numbers):
            def __len__(self):
                {length}
        data = Odd()
        """,
    )
    with pytest.raises(TargetError, match=r"len\(\) of .*raised") as raised:
        load(path)
    assert raised.value.user_traceback and "pipefix/" not in raised.value.user_traceback


def test_a_stream_may_have_whatever_length_it_likes() -> None:
    class Lying(Stream):
        def __len__(self) -> int:
            raise NotImplementedError

    assert load(Lying()).settings.length is None


# -- what the file brings ------------------------------------------------------------------------------------------------


def test_a_step_and_a_model_beside_the_target(write: Write) -> None:
    path = write(
        "train.py",
        """
        data = Numbers()
        model = torch.nn.Linear(1, 1)
        criterion = torch.nn.MSELoss()
        def train_step(batch):
            return batch
        """,
    )
    nothing = load(write("bare.py", "data = Numbers()\nmodel = 'resnet'\ntrain_step = None"))
    assert nothing.consumer is None and nothing.model is None
    subject = load(path)
    assert subject.consumer is not None and subject.consumer(3) == 3
    assert isinstance(subject.model, torch.nn.Linear)
    assert isinstance(subject.criterion, torch.nn.MSELoss)


@pytest.mark.parametrize("arguments", ["model, batch, optimizer", "", "*, batch"])
def test_a_step_that_takes_no_batch_alone_is_none(write: Write, arguments: str) -> None:
    """A probe failed at it after it had recorded, and advised to mend the sample."""
    path = write("train.py", f"data = Numbers()\nmodel = torch.nn.Linear(1, 1)\ndef train_step({arguments}): ...")
    subject = load(path)
    assert subject.consumer is None and subject.model is not None
    assert f"train_step takes ({arguments}), and not a batch alone" in subject.wrapper
    assert load(write("batch_alone.py", "data = Numbers()\ndef train_step(batch, scale=1.0, **others): ...")).consumer is not None


class TestArguments:
    """Classes that need some: in the target's name, or with --arg, which is put into it."""

    FILE = """
        from torch.utils.data import Dataset

        class Rows(Dataset):
            def __init__(self, root, count=4, scale=1.0):
                self.root, self.count, self.scale = root, count, scale

            def __len__(self):
                return self.count

            def __getitem__(self, index):
                return index * self.scale

        made = Rows("there")
    """

    @pytest.fixture
    def file(self, tmp_path: Path) -> str:
        path = tmp_path / "rows_with_arguments.py"
        path.write_text(textwrap.dedent(self.FILE), encoding="utf-8")
        return str(path)

    def test_they_are_given_in_the_name(self, file: str) -> None:
        subject = load(f"{file}:Rows('a b', count=8)")
        assert (subject.dataset.root, subject.dataset.count) == ("a b", 8)
        assert subject.target == f"{file}:Rows('a b', count=8)"

    def test_or_one_by_one(self, file: str) -> None:
        target = with_arguments(f"{file}:Rows", ["root=/data/it's", "count=8", "scale=0.5"])
        dataset = load(target).dataset
        assert (dataset.root, dataset.count, dataset.scale) == ("/data/it's", 8, 0.5)

    def test_a_class_that_needs_some_says_which(self, file: str) -> None:
        with pytest.raises(TargetError) as caught:
            load(f"{file}:Rows")
        assert caught.value.advice.startswith(f"Give them: {file}:Rows --arg root=VALUE;")

    def test_a_file_of_nothing_else_names_it(self, file: str) -> None:
        Path(file).write_text(Path(file).read_text(encoding="utf-8").replace('made = Rows("there")', ""), encoding="utf-8")
        with pytest.raises(TargetError) as caught:
            load(file)
        assert "Rows (root, count=4, scale=1.0)" in str(caught.value)
        assert caught.value.advice == f"Give them: {file}:Rows --arg root=VALUE"

    @pytest.mark.parametrize(
        ("target", "written", "message"),
        [
            ("data.py:Rows", "root", "--arg 'root' is not NAME=VALUE."),
            ("data.py:Rows", "a b=1", "--arg 'a b=1' is not NAME=VALUE."),
            ("data.py", "root=1", "--arg root=1 is an argument of a class or a function, and 'data.py' names none."),
        ],
    )
    def test_what_is_no_argument(self, target: str, written: str, message: str) -> None:
        with pytest.raises(BadUsage) as caught:
            with_arguments(target, [written])
        assert str(caught.value) == message

    def test_code_in_a_name_is_not_run(self, file: str) -> None:
        with pytest.raises(BadUsage, match="are no literals of Python"):
            load(f"{file}:Rows(__import__('os').getcwd())")

    def test_what_was_made_already_takes_none(self, file: str) -> None:
        with pytest.raises(BadUsage, match="is of type Rows, which takes no arguments"):
            load(f"{file}:made(1)")
