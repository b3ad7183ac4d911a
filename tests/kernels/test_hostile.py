"""Pictures that are not what they should be: the right pixels or a named error, from every kernel, and never a crash."""

from __future__ import annotations

import io
import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from pipefix.kernels.errors import BadPicture
from pipefix.kernels.kernel import Kernel
from pipefix.kernels.request import UINT8, Box, PictureCut, Target
from tests.kernels.conftest import Encode

SMALL = PictureCut(Box(0, 0, 60, 40), (16, 16), Box(0, 0, 16, 16))


def made(kernel: Kernel, jpeg: bytes, cut: PictureCut = SMALL) -> torch.Tensor:
    batch = torch.zeros((1, 3, 16, 16), dtype=torch.uint8)
    kernel.jpeg_into(jpeg, cut, UINT8, Target(batch), 0)
    return batch[0]


def refused(kernel: Kernel, jpeg: bytes, cut: PictureCut = SMALL) -> BadPicture:
    with pytest.raises(BadPicture) as caught:
        made(kernel, jpeg, cut)
    return caught.value


def frame_at(jpeg: bytes) -> int:
    """Where the frame header's precision byte is."""
    return next(jpeg.index(bytes((0xFF, kind))) + 4 for kind in (0xC0, 0xC2) if bytes((0xFF, kind)) in jpeg)


@pytest.mark.parametrize("junk", [b"", b"\xff", b"\xff\xd8", b"GIF89a" + bytes(100), b"\x89PNG\r\n\x1a\n" + bytes(50), bytes(1000)])
def test_not_a_jpeg(kernel: Kernel, junk: bytes) -> None:
    assert refused(kernel, junk).reason in ("not-jpeg", "truncated")


def test_the_sentence_names_what_was_found(kernel: Kernel) -> None:
    assert str(refused(kernel, b"GIF89a....")) == "This is not a JPEG: it begins with no JPEG marker."
    assert str(refused(kernel, b"")) == "This is not a JPEG: it is empty."


@pytest.mark.parametrize("progressive", [False, True])
def test_cut_off_anywhere(kernel: Kernel, encoded: Encode, progressive: bool) -> None:
    jpeg = encoded(progressive=progressive)
    for end in range(2, len(jpeg) - 1, 61):
        assert refused(kernel, jpeg[:end]).reason in ("truncated", "corrupt", "not-jpeg")
    assert refused(kernel, jpeg[:-2]).reason == "truncated"


def test_bytes_after_the_end_do_no_harm(kernel: Kernel, encoded: Encode) -> None:
    jpeg = encoded()
    assert torch.equal(made(kernel, jpeg + b"trailing" * 20), made(kernel, jpeg))


def test_cmyk_is_left_to_others(kernel: Kernel, encoded: Encode) -> None:
    assert refused(kernel, encoded(mode="CMYK")).reason == "unsupported"


def test_12_bits_are_left_to_others(kernel: Kernel, encoded: Encode) -> None:
    jpeg = bytearray(encoded())
    jpeg[frame_at(bytes(jpeg))] = 12
    assert refused(kernel, bytes(jpeg)).reason == "unsupported"


@pytest.mark.parametrize(("height", "reason"), [(13_765, "too-large"), (13_764, None)])
def test_pixels_are_bounded_where_pillow_bounds_them(kernel: Kernel, encoded: Encode, height: int, reason: str | None) -> None:
    """13,001 x 13,765 is one row more than twice Pillow's ``MAX_IMAGE_PIXELS``. Nothing of that size is set aside."""
    jpeg = bytearray(encoded())
    at = frame_at(bytes(jpeg))
    jpeg[at + 1 : at + 5] = height.to_bytes(2, "big") + (13_001).to_bytes(2, "big")
    with pytest.raises(Image.DecompressionBombError) if reason else pytest.warns(Image.DecompressionBombWarning):
        Image.open(io.BytesIO(bytes(jpeg)))
    if reason:
        error = refused(kernel, bytes(jpeg))
        assert error.reason == reason and "13001 x 13765" in str(error)
        with pytest.raises(BadPicture):
            kernel.jpeg_region(bytes(jpeg), Box(0, 0, 13_001, height))
    else:
        kernel.header(bytes(jpeg)).refuse()


def test_no_pixels_at_all(kernel: Kernel, encoded: Encode) -> None:
    jpeg = bytearray(encoded())
    at = frame_at(bytes(jpeg))
    jpeg[at + 1 : at + 5] = bytes(4)
    assert refused(kernel, bytes(jpeg)).reason == "corrupt"


def test_a_picture_larger_than_its_data(native_kernel: Kernel, encoded: Encode) -> None:
    """It claims more rows than there are: the decoder would make them up."""
    jpeg = bytearray(encoded())
    at = frame_at(bytes(jpeg))
    jpeg[at + 1 : at + 3] = (700).to_bytes(2, "big")
    cut = PictureCut(Box(0, 300, 90, 400), (16, 16), Box(0, 0, 16, 16))
    assert refused(native_kernel, bytes(jpeg), cut).reason in ("corrupt", "truncated")


def test_damage_within_the_crop_is_named(native_kernel: Kernel, encoded: Encode) -> None:
    """A marker that does not belong there: the decoder goes on, and what it makes is grey."""
    jpeg = bytearray(encoded(restart_marker_blocks=2))
    middle = len(jpeg) // 2
    jpeg[middle : middle + 40] = bytes((0xFF, 0xD3)) * 20
    cut = PictureCut(Box(0, 0, 90, 70), (16, 16), Box(0, 0, 16, 16))
    assert refused(native_kernel, bytes(jpeg), cut).reason == "corrupt"


def test_too_many_scans_are_not_followed(native_kernel: Kernel, encoded: Encode) -> None:
    """A progressive file may ask for any number of passes over the picture with a few bytes each."""
    jpeg = encoded(progressive=True)
    last = jpeg.rindex(b"\xff\xda")
    bomb = jpeg[:last] + jpeg[last:-2] * 600 + jpeg[-2:]
    assert refused(native_kernel, bomb).reason in ("too-large", "corrupt")


def test_exif_orientation_is_ignored_as_decoders_do(kernel: Kernel, encoded: Encode) -> None:
    exif = Image.Exif()
    exif[0x112] = 6
    turned = encoded(exif=exif)
    pixels = np.asarray(Image.open(io.BytesIO(turned)).convert("RGB"))
    assert np.array_equal(kernel.jpeg_region(turned, Box(0, 0, 90, 70)), pixels)


def test_errors_travel_between_processes() -> None:
    error = BadPicture("truncated", "the end of the picture is missing")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.reason, again.detail) == (str(error), error.reason, error.detail)
