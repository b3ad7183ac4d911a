"""What every kernel gives equals what torchvision and Pillow give, to the bit."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as tv

from pipefix.kernels import twin
from pipefix.kernels.errors import BadRequest
from pipefix.kernels.kernel import Kernel
from pipefix.kernels.request import UINT8, Arithmetic, Box, Filter, Finish, PictureCut, Ramp, Target
from pipefix.loader.fusing.recognise import resizes_bytes
from tests.kernels.conftest import Draw, Encode, normalised, patient

IMAGENET = normalised((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@st.composite
def boxes(draw: st.DrawFn, width: int, height: int) -> Box:
    x, y = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
    return Box(x, y, draw(st.integers(1, width - x)), draw(st.integers(1, height - y)))


@st.composite
def cuts(draw: st.DrawFn, width: int, height: int) -> PictureCut:
    full = draw(st.integers(1, 130)), draw(st.integers(1, 130))
    return PictureCut(
        draw(boxes(width, height)), full, draw(boxes(*full)), draw(st.booleans()), draw(st.booleans()),
        draw(st.sampled_from(Filter)), draw(st.sampled_from(Arithmetic)),
    )  # fmt: skip


def resized_by_its_library(pixels: np.ndarray[Any, Any], cut: PictureCut) -> np.ndarray[Any, Any]:
    """3 x H x W, by calls that users make."""
    box, window = cut.box, cut.window
    part = np.ascontiguousarray(pixels[box.y : box.y + box.height, box.x : box.x + box.width])
    if cut.arithmetic is Arithmetic.TORCH:
        mode = InterpolationMode.BILINEAR if cut.filter is Filter.BILINEAR else InterpolationMode.BICUBIC
        tensor, size = torch.from_numpy(part).permute(2, 0, 1), [cut.full[1], cut.full[0]]
        if resizes_bytes(cut.filter):
            whole = tv.resize(tensor, size, interpolation=mode, antialias=True).numpy()
        else:  # torchvision asks torch for floats here: torch's bytes are what is promised
            whole = torch.nn.functional.interpolate(tensor[None], size=size, mode=mode.value, antialias=True)[0].numpy()
    else:
        filter = Image.Resampling.BILINEAR if cut.filter is Filter.BILINEAR else Image.Resampling.BICUBIC
        middle = (box.width, cut.full[1]) if cut.down_first else (cut.full[0], box.height)
        whole = np.asarray(Image.fromarray(part).resize(middle, filter).resize(cut.full, filter)).transpose(2, 0, 1)
    wanted = whole[:, window.y : window.y + window.height, window.x : window.x + window.width]
    return wanted[:, :: -1 if cut.upside_down else 1, :: -1 if cut.mirrored else 1]


def made(
    kernel: Kernel, source: bytes | np.ndarray[Any, Any], cut: PictureCut, finish: Finish = UINT8, *, last: bool = False
) -> torch.Tensor:
    shape = (2, 3, cut.window.height, cut.window.width)
    batch = torch.zeros(shape, dtype=torch.uint8 if finish.table is None else torch.float32)
    if last:
        batch = batch.to(memory_format=torch.channels_last)
    target = Target(batch)
    if isinstance(source, bytes):
        kernel.jpeg_into(source, cut, finish, target, 1)
    else:
        kernel.pixels_into(source, cut, finish, target, 1)
    assert not batch[0].any(), "it wrote beyond its sample"
    return batch[1]


@patient
@given(data=st.data(), width=st.integers(1, 150), height=st.integers(1, 150))
def test_pixels_are_resized_as_the_library_does(kernel: Kernel, drawn: Draw, data: st.DataObject, width: int, height: int) -> None:
    pixels = drawn(width, height)
    cut = data.draw(cuts(width, height))
    assert np.array_equal(made(kernel, pixels, cut).numpy(), resized_by_its_library(pixels, cut))


@patient
@given(data=st.data(), width=st.integers(1, 120), height=st.integers(1, 120))
def test_a_jpeg_equals_its_pixels_decoded_first(
    kernel: Kernel, encoded: Encode, data: st.DataObject, width: int, height: int
) -> None:
    options = {"subsampling": data.draw(st.integers(0, 2)), "progressive": data.draw(st.booleans())}
    options |= {"restart_marker_blocks": data.draw(st.integers(0, 9)), "quality": data.draw(st.integers(20, 99))}
    mode = data.draw(st.sampled_from(["RGB", "L"]))
    jpeg = encoded(width, height, mode, **options)
    pixels = np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB"))
    cut = data.draw(cuts(width, height))
    assert np.array_equal(made(kernel, jpeg, cut).numpy(), resized_by_its_library(pixels, cut))
    box = data.draw(boxes(width, height))
    region = pixels[box.y : box.y + box.height, box.x : box.x + box.width]
    assert np.array_equal(kernel.jpeg_region(jpeg, box), region)


@pytest.mark.parametrize("divides", [True, False])
@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels_last"])
def test_floats_are_those_of_torch(kernel: Kernel, drawn: Draw, last: bool, divides: bool) -> None:
    finish = normalised((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), divides=divides)
    cut = PictureCut(Box(3, 5, 70, 60), (37, 41), Box(2, 1, 33, 35), mirrored=True)
    pixels = drawn(80, 70)
    levels = torch.from_numpy(resized_by_its_library(pixels, cut).copy())
    scaled = levels.float().div(255) if divides else levels.float().mul_(1 / 255)
    mean, deviation = (torch.tensor(each)[:, None, None] for each in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    assert torch.equal(made(kernel, pixels, cut, finish, last=last), scaled.sub(mean).div_(deviation))


def test_a_table_without_arithmetic_is_looked_up(kernel: Kernel, drawn: Draw) -> None:
    table = np.random.default_rng(0).normal(size=(3, 256)).astype(np.float32)
    cut = PictureCut(Box(0, 0, 50, 40), (31, 30), Box(0, 0, 31, 30), upside_down=True)
    pixels = drawn(50, 40)
    levels = resized_by_its_library(pixels, cut)
    expected = np.stack([table[channel][levels[channel]] for channel in range(3)])
    wrong = Ramp(255.0, True, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    finish = Finish(table, wrong)
    assert finish.ramp is None, "arithmetic that does not give the table must not be used"
    assert np.array_equal(made(kernel, pixels, cut, finish).numpy(), expected)


def test_bytes_in_any_memory_order(kernel: Kernel, drawn: Draw) -> None:
    cut = PictureCut(Box(0, 0, 50, 40), (31, 30), Box(0, 0, 31, 30))
    pixels = drawn(50, 40)
    assert torch.equal(made(kernel, pixels, cut, last=True), made(kernel, pixels, cut))
    turned = np.asfortranarray(pixels)
    assert torch.equal(made(kernel, turned, cut), made(kernel, pixels, cut))
    frozen = pixels.copy()
    frozen.flags.writeable = False
    assert torch.equal(made(kernel, frozen, cut), made(kernel, pixels, cut))


def test_encoded_pictures_come_as_any_bytes(kernel: Kernel, encoded: Encode) -> None:
    jpeg = encoded()
    cut = PictureCut(Box(4, 4, 60, 50), (24, 24), Box(0, 0, 24, 24))
    expected = made(kernel, jpeg, cut)
    for other in (bytearray(jpeg), memoryview(jpeg), np.frombuffer(jpeg, dtype=np.uint8)):
        batch = torch.zeros((1, 3, 24, 24), dtype=torch.uint8)
        kernel.jpeg_into(other, cut, UINT8, Target(batch), 0)
        assert torch.equal(batch[0], expected)


@patient
@given(data=st.data())
def test_native_loops_and_twin_give_one_answer(native_kernel: Any, encoded: Encode, data: st.DataObject) -> None:
    from pipefix.kernels import _native

    jpeg = encoded(200, 150)
    cut = data.draw(cuts(200, 150))
    answers = [made(twin.TwinKernel(), jpeg, cut, IMAGENET)]
    before = _native.loops()
    try:
        for loops in ("baseline", "avx2"):
            if _native.choose_loops(loops):
                answers.append(made(native_kernel, jpeg, cut, IMAGENET))
    finally:
        assert _native.choose_loops(before)
    assert len(answers) > 1
    assert all(torch.equal(answers[0], other) for other in answers[1:])


def test_scaling_while_decoding_stays_close(native_kernel: Any) -> None:
    """Only where every output is made of several scaled pixels, and within the bars of `close`."""
    from pipefix.loader.fusing.pixel_difference import _drawn

    jpeg = _drawn(900, 800, 1)
    box = Box(8, 5, 880, 790)
    whole = made(native_kernel, jpeg, PictureCut(box, (128, 128), Box(0, 0, 128, 128)))
    scaled = made(native_kernel, jpeg, PictureCut(box, (128, 128), Box(0, 0, 128, 128), coarsest=8))
    apart = (whole.int() - scaled.int()).abs().float()
    assert apart.max() > 0, "the decoder did not scale"
    assert apart.mean() <= 1
    assert apart.flatten().quantile(0.99) <= 2
    small = PictureCut(box, (400, 400), Box(0, 0, 400, 400), coarsest=8)
    assert torch.equal(
        made(native_kernel, jpeg, small), made(native_kernel, jpeg, PictureCut(box, (400, 400), Box(0, 0, 400, 400)))
    )


class TestRefused:
    """What does not fit is said before anything is written."""

    def test_a_box_beyond_the_picture(self, kernel: Kernel, encoded: Encode) -> None:
        with pytest.raises(BadRequest, match=r"the box at \(40, 0\) of 60 x 70 does not lie in the picture of 90 x 70"):
            made(kernel, encoded(), PictureCut(Box(40, 0, 60, 70), (20, 20), Box(0, 0, 20, 20)))

    @pytest.mark.parametrize(
        ("window", "index", "dtype", "words"),
        [
            (Box(0, 0, 9, 8), 0, torch.uint8, "The window is 9 x 8, the samples of the batch buffer are 8 x 8"),
            (Box(0, 0, 8, 8), 2, torch.uint8, "has 2 samples; there is no number 2"),
            (Box(0, 0, 8, 8), 0, torch.float32, "needs a table from bytes to floats"),
            (Box(3, 0, 8, 8), 0, torch.uint8, "does not lie in the picture of 10 x 8|of which 8 from 3 on are wanted"),
        ],
    )
    def test_what_does_not_fit_the_batch(
        self, kernel: Kernel, drawn: Draw, window: Box, index: int, dtype: torch.dtype, words: str
    ) -> None:
        target = Target(torch.zeros((2, 3, 8, 8), dtype=dtype))
        with pytest.raises(BadRequest, match=words):
            kernel.pixels_into(drawn(20, 20), PictureCut(Box(0, 0, 20, 20), (10, 8), window), UINT8, target, index)

    @pytest.mark.parametrize(
        "batch",
        [
            torch.zeros(3, 8, 8), torch.zeros(1, 1, 8, 8), torch.zeros(1, 3, 8, 8, dtype=torch.float64),
            torch.zeros((2, 3, 8, 8), device="meta"), torch.zeros((2, 3, 8, 8)).to_sparse(),
        ],
    )  # fmt: skip
    def test_a_buffer_of_another_kind(self, batch: torch.Tensor) -> None:
        with pytest.raises(BadRequest, match=r"A batch buffer (is N x 3 x H x W of float32 or uint8 in main memory|has memory)"):
            Target(batch)

    def test_pixels_of_another_kind(self, kernel: Kernel) -> None:
        target = Target(torch.zeros((1, 3, 8, 8), dtype=torch.uint8))
        with pytest.raises(BadRequest, match="Pixels are height x width x 3 of uint8"):
            kernel.pixels_into(np.zeros((9, 9), np.uint8), PictureCut(Box(0, 0, 8, 8), (8, 8), Box(0, 0, 8, 8)), UINT8, target, 0)


def region_equals(kernel: Kernel, jpeg: bytes) -> None:
    pixels = np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB"))
    for box in (Box(0, 0, 90, 70), Box(31, 17, 20, 33), Box(48, 32, 16, 16), Box(89, 69, 1, 1)):
        expected = pixels[box.y : box.y + box.height, box.x : box.x + box.width]
        assert np.array_equal(kernel.jpeg_region(jpeg, box), expected)


def test_a_jpeg_that_holds_rgb(kernel: Kernel, encoded: Encode) -> None:
    region_equals(kernel, encoded(keep_rgb=True))


@pytest.mark.parametrize("sampling", [0x411111, 0x221111, 0x211111, 0x121111, 0x111111], ids=hex)
def test_every_usual_sampling_of_chroma(kernel: Kernel, drawn: Draw, sampling: int) -> None:
    import cv2

    fine, jpeg = cv2.imencode(".jpg", drawn(90, 70), [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling])
    assert fine
    region_equals(kernel, jpeg.tobytes())
