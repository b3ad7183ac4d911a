"""Memory that calls read from and write to: held for as long as they run, and refused where it is not what it seems."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

from pipefix.kernels.errors import BadRequest
from pipefix.kernels.kernel import Kernel
from pipefix.kernels.request import UINT8, Box, PictureCut, Target
from tests.kernels.conftest import Encode

CUT = PictureCut(Box(0, 0, 90, 70), (16, 16), Box(0, 0, 16, 16))


def test_bytes_cannot_be_resized_while_they_are_decoded(native_kernel: Any, encoded: Encode) -> None:
    """`BufferError` is what whoever owns memory raises while somebody looks at it: a mapped file that is closed does the same."""

    data = bytearray(encoded(1600, 1200))
    target = Target(torch.zeros((1, 3, 16, 16), dtype=torch.uint8))
    cut = PictureCut(Box(0, 0, 1600, 1200), (16, 16), Box(0, 0, 16, 16))
    refused = threading.Event()

    def decode_until_refused() -> None:
        for _ in range(500):  # the other thread may be kept waiting while a picture is decoded, not while hundreds are
            if refused.is_set():
                return
            native_kernel.jpeg_into(data, cut, UINT8, target, 0)

    decoding = threading.Thread(target=decode_until_refused)
    decoding.start()
    while decoding.is_alive() and not refused.is_set():
        try:
            data[-1:] = data[-1:] + b"\0"  # resized, and as long again
            del data[-1:]
        except BufferError:
            refused.set()
    decoding.join()
    assert refused.is_set()


def test_a_batch_cannot_lose_its_memory() -> None:
    batch = torch.zeros((2, 3, 8, 8))
    target = Target(batch)
    with pytest.raises(RuntimeError, match="not resizable"):
        batch.untyped_storage().resize_(0)
    assert target.tensor.sum() == 0


def test_a_tensor_whose_storage_was_resized_is_no_batch() -> None:
    batch = torch.zeros((2, 3, 8, 8))
    batch.untyped_storage().resize_(64)
    with pytest.raises(BadRequest, match="memory for all of its elements"):
        Target(batch)


def test_memory_that_cannot_be_written_to_is_no_batch() -> None:
    array = np.zeros((2, 3, 8, 8), dtype=np.float32)
    array.flags.writeable = False
    with pytest.raises(BadRequest, match="this array is read-only"):
        Target(array)


def test_a_tensor_with_a_gradient_is_written_to_as_any(kernel: Kernel, encoded: Encode) -> None:
    batch = torch.zeros((1, 3, 16, 16), dtype=torch.uint8)
    kernel.jpeg_into(encoded(), CUT, UINT8, Target(batch), 0)
    assert batch.any()
    assert Target(torch.zeros((1, 3, 8, 8), requires_grad=True)).is_float


class TestTheModuleItself:
    """Whatever it is called with, it looks at the sizes of the buffers that it is given."""

    REQUEST = ((0, 0, 90, 70), (16, 16), (0, 0, 16, 16), False, False, 0, False, False, 1, 3.0)

    @pytest.fixture
    def native(self, native_kernel: Any) -> Any:
        from pipefix.kernels import _native

        return _native

    @pytest.mark.parametrize("address", [0, 1, 2**62, -1, 3.5, None, "text"])
    def test_addresses_are_not_taken(self, native: Any, encoded: Encode, address: Any) -> None:
        batch = np.zeros((1, 3, 16, 16), dtype=np.uint8)
        with pytest.raises((TypeError, ValueError, BufferError)):
            native.resampled(address, self.REQUEST, batch, 0, None, None, False)
        with pytest.raises((TypeError, ValueError, BufferError)):
            native.resampled(encoded(), self.REQUEST, address, 0, None, None, False)
        with pytest.raises((TypeError, ValueError, BufferError)):
            native.jpeg_region(encoded(), (0, 0, 9, 9), address)

    @pytest.mark.parametrize(
        ("batch", "index", "table", "ramp"),
        [
            (np.zeros((1, 3, 16, 15), dtype=np.uint8), 0, None, None),
            (np.zeros((1, 3, 15, 16), dtype=np.uint8), 0, None, None),
            (np.zeros((1, 1, 16, 16), dtype=np.uint8), 0, None, None),
            (np.zeros((3, 16, 16), dtype=np.uint8), 0, None, None),
            (np.zeros((1, 3, 16, 16), dtype=np.uint8), 1, None, None),
            (np.zeros((1, 3, 16, 16), dtype=np.uint8), -1, None, None),
            (np.zeros((1, 3, 16, 16), dtype=np.float64), 0, None, None),
            (np.zeros((1, 3, 16, 16), dtype=np.float32), 0, None, None),
            (np.zeros((1, 3, 16, 16), dtype=np.float32), 0, np.zeros((3, 255), np.float32), None),
            (np.zeros((1, 3, 16, 16), dtype=np.float32), 0, np.zeros((3, 256), np.float32), np.zeros(8, np.float32)),
            (np.zeros((1, 3, 16, 16), dtype=np.uint8), 0, np.zeros((3, 256), np.float32), None),
        ],
    )  # fmt: skip
    def test_buffers_that_do_not_fit(self, native: Any, encoded: Encode, batch: Any, index: int, table: Any, ramp: Any) -> None:
        with pytest.raises(ValueError, match="not of the size"):
            native.resampled(encoded(), self.REQUEST, batch, index, table, ramp, False)

    def test_a_batch_that_is_read_only(self, native: Any, encoded: Encode) -> None:
        batch = np.zeros((1, 3, 16, 16), dtype=np.uint8)
        batch.flags.writeable = False
        with pytest.raises((ValueError, BufferError), match="read-only"):
            native.resampled(encoded(), self.REQUEST, batch, 0, None, None, False)

    @pytest.mark.parametrize(
        "pixels", [np.zeros((70, 90, 4), np.uint8), np.zeros((70, 90, 3), np.uint16), np.zeros((70, 90, 3), np.uint8)[:, ::-1]]
    )
    def test_pixels_of_another_shape(self, native: Any, pixels: Any) -> None:
        with pytest.raises(ValueError, match="not of the size"):
            native.resampled(pixels, self.REQUEST, np.zeros((1, 3, 16, 16), np.uint8), 0, None, None, False)

    def test_a_region_that_does_not_fit(self, native: Any, encoded: Encode) -> None:
        for box in ((0, 0, 90, 70), (0, 0, -9, -9), (0, 0, 0, 0), (0, 0, 2**31 - 1, 2**31 - 1)):
            with pytest.raises(ValueError, match="not of the size"):
                native.jpeg_region(encoded(), box, np.zeros((40, 60, 3), np.uint8))
