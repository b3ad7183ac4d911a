"""What counts as a candidate, and what is only a part of one."""

from __future__ import annotations

import pytest

from pipefix.subject.load import load
from pipefix.vocabulary.errors import TargetError
from tests.subject.conftest import Write


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("data = Numbers()\nalias = data", "data"),
        ("data = Numbers()\nloader = DataLoader(data)", "loader"),
        ("data = Numbers()\nfrom torch.utils.data import Subset\nsmall = Subset(data, [0, 1, 2])", "small"),
        (
            "from torch.utils.data import random_split\ntrain, val = random_split(Numbers(), [6, 2])\nloader = DataLoader(train)",
            "loader",
        ),
        ("from torch.utils.data import ConcatDataset\na, b = Numbers(2), Numbers(3)\nboth = ConcatDataset([a, b])", "both"),
        ("_N = Numbers\ndel Numbers\ndef make_loader():\n    return DataLoader(_N())", "make_loader"),
        ("_N = Numbers\ndel Numbers\ndef build() -> 'Dataset':\n    return _N()", "build"),
        ("_hidden = Numbers()\nshown = Numbers()", "shown"),
        ("", "Numbers"),
        ("class Duck:\n    def __len__(self): return 4\n    def __getitem__(self, i): return i\ndel Numbers", "Duck"),
        ("class Stream(IterableDataset):\n    def __iter__(self): return iter(range(9))\nstream = Stream()", "stream"),
        ("del Numbers\nfrom torchvision.datasets import FakeData\nfake = FakeData(4)", "fake"),
        ("class Needs(Dataset):\n    def __init__(self, path): ...\n", "Numbers"),
        ("_N = Numbers\ndel Numbers\ndef it() -> DataLoader:\n    return DataLoader(_N())\ndef my_dataset() -> int: ...", "it"),
    ],
    ids=["alias", "loader over its dataset", "subset over its dataset", "split", "concatenation", "function by name",
         "function by annotation", "private name", "class", "class of a duck", "stream", "imported class", "class with arguments",
         "annotations tell"],
)  # fmt: skip
def test_the_only_candidate(write: Write, text: str, name: str) -> None:
    path = write("train.py", text)
    subject = load(path)
    assert (subject.target, subject.choice) == (f"{path}:{name}", "")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a = Numbers()\nb = Numbers()", ["a", "b"]),
        ("class Other(Numbers): ...", ["Numbers", "Other"]),
        ("one, two = DataLoader(Numbers()), DataLoader(Numbers())\nval_data = Numbers()", ["one", "two", "val_data"]),
    ],
)
def test_several(write: Write, text: str, names: list[str]) -> None:
    path = write("train.py", text)
    with pytest.raises(TargetError) as raised:
        load(path)
    head, *listed = str(raised.value).splitlines()
    assert f"defines {len(names)} candidates" in head
    assert [line.split()[0] for line in listed] == [f"{path}:{name}" for name in names]
    assert raised.value.advice == "Name the one you mean, as listed above."


@pytest.mark.parametrize(
    ("text", "name", "others"),
    [
        ("loader = DataLoader(Numbers())\nother = Numbers()", "loader", ["other (Numbers)"]),
        ("data = Numbers()\ndef get_loader():\n    return DataLoader(Numbers())", "get_loader", ["data (Numbers)"]),
        ("data = Numbers()\ndef image_loader(path=None):\n    return open(path)", "data", ["image_loader (function)"]),
        ("data = Numbers()\ndef make_dataset():\n    return Numbers()", "data", ["make_dataset (function)"]),
        ("def make_loader() -> DataLoader: ...\nloader = DataLoader(Numbers())", "loader", ["make_loader (function)"]),
        ("def val_loader(): return DataLoader(Numbers())\ndef train_loader(): return DataLoader(Numbers())", "train_loader",
         ["val_loader (function)"]),
        ("from torch.utils.data import random_split\nval, train = random_split(Numbers(), [2, 6])", "train", ["val (Subset)"]),
        ("testset, trainset = Numbers(), Numbers()", "trainset", ["testset (Numbers)"]),
        ("test_data, data, device_data = Numbers(), Numbers(), [1]", "data", ["test_data (Numbers)"]),
        ("val_data = Numbers()\nloader = DataLoader(Numbers())", "loader", ["val_data (Numbers)"]),
        ("data = Numbers()\ndef train():\n    return DataLoader(data)", "train", ["data (Numbers)"]),
        ("data = Numbers()\ndef train():\n    for x in DataLoader(data): return x\ndef make():\n    return Numbers(2)", "data",
         ["make (function)"]),
    ],
    ids=["loader before dataset", "function of a loader before dataset", "a name alone makes no loader", "instance before function",
         "loader before its function", "train before val", "split", "words run together", "rest before test", "kind before name",
         "a function by what it returns", "instance before what returns one"],
)  # fmt: skip
def test_the_most_whole_is_taken_and_the_others_are_told(write: Write, text: str, name: str, others: list[str]) -> None:
    path = write("train.py", text)
    subject = load(path)
    assert subject.target == f"{path}:{name}"
    assert subject.choice.startswith(f"{path} holds several targets, and {name}")
    assert subject.choice.endswith(f"name another one with {path}:NAME ({', '.join(others)}).")


def test_a_class_of_ducks_comes_after_its_instance(write: Write) -> None:
    text = """
        class Duck:
            def __len__(self):
                return 4
            def __getitem__(self, i):
                return i
        duck = Duck()
    """
    path = write("train.py", text, bare=True)
    assert load(path).target == f"{path}:duck"


def test_wrappers_that_hold_themselves_do_not_hang(write: Write) -> None:
    text = """
        class Loop(Numbers):
            def __init__(self):
                super().__init__()
                self.dataset = self
        loop = Loop()
    """
    path = write("train.py", text)
    assert load(path).target == f"{path}:loop"
