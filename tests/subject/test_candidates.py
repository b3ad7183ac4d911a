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
    assert load(path).target == f"{path}:{name}"


def test_an_instance_of_a_class_without_dataset(write: Write) -> None:
    text = """
        class Duck:
            def __init__(self, n):
                self.n = n
            def __len__(self):
                return self.n
            def __getitem__(self, i):
                return i
        duck = Duck(3)
    """
    path = write("train.py", text, bare=True)
    assert load(path).target == f"{path}:duck"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a = Numbers()\nb = Numbers()", ["a", "b"]),
        ("def train_loader(): ...\ndef val_loader(): ...\ndel Numbers", ["train_loader", "val_loader"]),
        ("from torch.utils.data import random_split\ntrain, val = random_split(Numbers(), [6, 2])", ["train", "val"]),
        ("class Other(Numbers): ...", ["Numbers", "Other"]),
    ],
)
def test_several(write: Write, text: str, names: list[str]) -> None:
    path = write("train.py", text)
    with pytest.raises(TargetError) as raised:
        load(path)
    assert [line.split()[0] for line in str(raised.value).splitlines()[1:]] == [f"{path}:{name}" for name in names]
    assert raised.value.advice == "Name the one you mean, as listed above."


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
