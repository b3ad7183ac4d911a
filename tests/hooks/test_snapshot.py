"""Fresh copies: equal, of the same kind, and sharing nothing that can be changed."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import io
import pathlib

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import tv_tensors

from pipefix.hooks.snapshot import NotCopyable, nbytes, snapshot


class Colour(enum.Enum):
    RED = 1


Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Record:
    pixels: np.ndarray
    label: int


@dataclasses.dataclass(frozen=True)
class Frozen:
    values: list


class Plain:
    def __init__(self):
        self.inner = [1]


@pytest.mark.parametrize(
    "value",
    [None, True, -3, 1e300, "ü\0", b"\xff", [], [[1, "a"], ()], ("a", (None, [2.5])), {"k": {"": [b""]}}, Colour.RED,
     datetime.date(2020, 1, 1), pathlib.Path("x"), np.float32(3), torch.float32, torch.device("cpu"), range(3), frozenset([1])],
    ids=str,
)  # fmt: skip
def test_plain_and_unchangeable_values(value):
    copy = snapshot(value)
    assert copy == value
    assert type(copy) is type(value)
    assert nbytes(value) > 0


def test_containers_are_copied_inside():
    value = {
        "a": [np.zeros(3)],
        "b": (torch.zeros(2), Point([1], 2)),
        "c": {1, 2},
        "d": bytearray(b"x"),
        "e": collections.deque([[1]]),
    }
    copy = snapshot(value)
    copy["a"][0][0] = 7
    copy["b"][0][0] = 7
    copy["b"][1].x.append(7)
    copy["c"].add(7)
    copy["d"][0] = 7
    copy["e"][0].append(7)
    assert value["a"][0].sum() == 0
    assert value["b"][0].sum() == 0
    assert value["b"][1] == Point([1], 2)
    assert type(copy["b"][1]) is Point
    assert value["c"] == {1, 2}
    assert value["d"] == bytearray(b"x")
    assert value["e"][0] == [1]


def test_objects():
    record = Record(np.arange(3), 1)
    copy = snapshot(record)
    copy.pixels[0] = 9
    assert record.pixels[0] == 0
    assert type(copy) is Record
    frozen = Frozen([1])
    snapshot(frozen).values.append(2)
    assert frozen.values == [1]
    plain = Plain()
    snapshot(plain).inner.append(2)
    assert plain.inner == [1]


@pytest.mark.parametrize(
    "array", [np.arange(6).reshape(2, 3).T, np.asfortranarray(np.ones((2, 3))), np.array("x"), np.arange(9)[::-2]]
)
def test_arrays(array):
    copy = snapshot(array)
    assert (copy == array).all()
    assert copy.dtype == array.dtype
    assert not np.shares_memory(copy, array)


def test_arrays_keep_their_kind():
    frozen = np.arange(3)
    frozen.flags.writeable = False
    assert not snapshot(frozen).flags.writeable
    masked = np.ma.masked_array([1, 2], [True, False])
    assert snapshot(masked).mask.tolist() == [True, False]
    objects = np.array([[1], [2, 3]], dtype=object)
    snapshot(objects)[0].append(9)
    assert objects[0] == [1]


TENSORS = {
    "transposed": torch.arange(6).reshape(2, 3).t(),
    "grad": torch.ones(2, requires_grad=True),
    "channels last": torch.ones(1, 3, 4, 4).to(memory_format=torch.channels_last),
    "sparse": torch.eye(3).to_sparse(),
    "image": tv_tensors.Image(torch.zeros(3, 4, 4)),
    "boxes": tv_tensors.BoundingBoxes([[1, 2, 3, 4]], format="XYXY", canvas_size=(9, 9)),
}


@pytest.mark.parametrize("tensor", TENSORS.values(), ids=TENSORS)
def test_tensors(tensor):
    copy = snapshot(tensor)
    assert type(copy) is type(tensor)
    assert copy.requires_grad == tensor.requires_grad
    assert torch.equal(copy.to_dense(), tensor.to_dense()) if tensor.is_sparse else torch.equal(copy, tensor)
    if not tensor.is_sparse:
        assert copy.stride() == tensor.stride()
        assert copy.data_ptr() != tensor.data_ptr()


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "CMYK", "I;16", "F", "LA"])
def test_images(mode):
    image = Image.new("RGB", (9, 7), (1, 2, 3)).convert(mode) if mode not in ("I;16", "LA") else Image.new(mode, (9, 7))
    image.info["dpi"] = (72, 72)
    image.format = "PNG"
    copy = snapshot(image)
    assert (copy.mode, copy.size, copy.info, copy.format, copy.tobytes()) == (mode, (9, 7), image.info, "PNG", image.tobytes())
    assert copy.getpalette() == image.getpalette()
    assert type(copy) is Image.Image
    copy.putpixel((0, 0), 0 if mode in ("1", "L", "P", "I;16", "F") else (0,) * len(copy.getbands()))
    assert nbytes(image) >= 63


def test_streams_in_memory_are_values():
    stream = io.BytesIO(b"abc")
    stream.read(1)
    copy = snapshot(stream)
    assert copy.read() == b"bc"
    assert stream.read() == b"bc"
    assert bytes(snapshot(memoryview(b"abc"))) == b"abc"


class Stubborn:
    def __deepcopy__(self, memo):
        raise TypeError("no")


def in_itself():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: open(__file__), "is a handle, not a value"),  # noqa: SIM115
        (lambda: (i for i in []), "is a handle, not a value"),
        (lambda: memoryview(np.zeros((2, 2))), "is a handle, not a value"),
        (in_itself, "contains itself"),
        (Stubborn, "Stubborn cannot be copied: no"),
    ],
)
def test_what_cannot_be_copied_is_refused_with_a_reason(make, why):
    value = make()
    with pytest.raises(NotCopyable, match=why):
        snapshot({"nested": [value]})
    if hasattr(value, "close"):
        value.close()


def test_what_does_not_tell_its_size_is_refused():
    class Sealed(list):
        def __iter__(self):
            raise TypeError("no")

    with pytest.raises(NotCopyable, match="Sealed does not tell its size: no"):
        nbytes([Sealed([1])])


def test_bytes_are_counted():
    assert 4000 <= nbytes(np.zeros(1000, np.float32)) <= 4100
    assert 4000 <= nbytes(torch.zeros(1000)) <= 4100
    assert 30_000 <= nbytes(Image.new("RGB", (100, 100))) <= 40_100
    assert 8000 <= nbytes({"x": [np.zeros(1000)], "y": 1}) <= 8500
    assert 8000 <= nbytes(Record(np.zeros(1000), 1)) <= 8700
    assert 1000 <= nbytes(io.BytesIO(bytes(1000))) <= 1100
