"""A picture whose decoding is put off is to its user the picture that Pillow would have given."""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps
from PIL.JpegImagePlugin import JpegImageFile

from pipefix.kernels.kernel import native
from pipefix.loader.fusing.deferral import Deferral, DeferredReads
from pipefix.loader.fusing.deferred_picture import DeferredFile, DeferredPicture
from pipefix.loader.fusing.recognise import pillow_order

Use = Callable[[Image.Image], Any]
FLIP, UP = Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.FLIP_TOP_BOTTOM
BILINEAR, BICUBIC, LANCZOS = Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.LANCZOS


@pytest.fixture(scope="module")
def deferral() -> Deferral:
    kernel, arithmetic = native(), pillow_order()
    if kernel is None:
        pytest.skip("there is no native kernel here")
    assert arithmetic is not None
    return Deferral(kernel, arithmetic)


def seen(value: Any) -> Any:
    """What can be compared of what a use gives."""
    if isinstance(value, Image.Image):
        return value.mode, value.size, value.info, np.asarray(value).tobytes()
    if isinstance(value, (list, tuple)):
        return [seen(member) for member in value]
    return value.tobytes() if isinstance(value, np.ndarray) else value


def both(deferral: Deferral, data: bytes, use: Use) -> None:
    own = seen(use(Image.open(io.BytesIO(data))))
    with deferral.sample():
        result = use(Image.open(io.BytesIO(data)))
    assert seen(result) == own


USES: dict[str, Use] = {
    "converted": lambda picture: picture.convert("RGB"),
    "as it is": lambda picture: picture.crop((3, 4, 60, 50)),
    "twice converted": lambda picture: picture.convert("RGB").convert("RGB"),
    "grey": lambda picture: picture.convert("L"),
    "cropped": lambda picture: picture.convert("RGB").crop((3.4, 4.5, 60.6, 50.5)),
    "cropped beyond its edge": lambda picture: picture.convert("RGB").crop((-5, -5, 200, 60)),
    "cropped to all": lambda picture: picture.convert("RGB").crop(),
    "resized": lambda picture: picture.convert("RGB").resize((40, 30), BILINEAR),
    "resized by default": lambda picture: picture.convert("RGB").resize((40, 30)),
    "resized another way": lambda picture: picture.convert("RGB").resize((40, 30), LANCZOS),
    "resized to a line": lambda picture: picture.convert("RGB").resize((70_000, 1), BILINEAR).crop((0, 0, 50, 1)),
    "resized to its size": lambda picture: picture.convert("RGB").resize(picture.size, BILINEAR).resize((33, 44), BILINEAR),
    "a part resized": lambda picture: picture.convert("RGB").resize((40, 30), BILINEAR, box=(2.5, 2.5, 70, 60)),
    "resized in steps": lambda picture: picture.convert("RGB").resize((20, 15), BILINEAR, reducing_gap=2.0),
    "resized twice": lambda picture: picture.convert("RGB").resize((60, 60), BICUBIC).resize((30, 20), BILINEAR),
    "cropped and resized, cropped": lambda picture: picture.crop((5, 6, 90, 80)).resize((50, 40), BICUBIC).crop((3, 2, 43, 38)),
    "flipped": lambda picture: picture.transpose(FLIP).crop((0, 0, 30, 20)).transpose(UP),
    "flipped, then resized": lambda picture: picture.transpose(FLIP).resize((31, 23), BILINEAR),
    "turned": lambda picture: picture.convert("RGB").transpose(Image.Transpose.ROTATE_90),
    "rotated": lambda picture: picture.convert("RGB").crop((2, 2, 60, 60)).rotate(20, BILINEAR, fillcolor=(1, 2, 3)),
    "loaded first": lambda picture: (picture.load(), picture.crop((3, 4, 60, 50)))[1],
    "a pixel": lambda picture: (picture.getpixel((3, 4)), picture.convert("RGB").load()[5, 6]),
    "a pixel of what was loaded": lambda picture: picture.load()[5, 6],
    "a changed pixel": lambda picture: (picture.load().__setitem__((5, 6), 0 if picture.mode == "L" else (1, 2, 3)), picture)[1],
    "drawn on": lambda picture: (drawn := picture.convert("RGB"), drawn.paste((9, 9, 9), (0, 0, 9, 9)))[0],
    "the first stays": lambda picture: (whole := picture.convert("RGB"), whole.crop((0, 0, 9, 9)).paste(0, (0, 0, 9, 9)), whole)[2],
    "an array": lambda picture: np.array(picture.crop((1, 1, 20, 30))),
    "what is asked of it": lambda file: (file.format, file.size, file.mode, file.getbands(), file.info, dict(file.getexif())),
    "upright": lambda picture: ImageOps.exif_transpose(picture).convert("RGB").resize((33, 22), BILINEAR),
    "drafted": lambda picture: (picture.draft("RGB", (30, 20)), picture.convert("RGB"))[1],
    "a thumbnail": lambda picture: (small := picture.convert("RGB"), small.thumbnail((40, 40)))[0],
    "a thumbnail of the file": lambda picture: (picture.thumbnail((40, 40)), picture)[1],
    "pickled": lambda picture: pickle.loads(pickle.dumps(picture.convert("RGB").crop((1, 1, 9, 9)))),
    "its file pickled": lambda picture: pickle.loads(pickle.dumps(picture)),
    "several views": lambda picture: [picture.convert("RGB").crop((k, k, 50, 50)).resize((32, 32), BILINEAR) for k in range(3)],
    "statistics": lambda picture: (picture.convert("RGB").getextrema(), picture.histogram()),
    "split": lambda picture: Image.merge("RGB", picture.convert("RGB").split()[::-1]),
    "left with": lambda picture: _left(picture),
}  # fmt: skip


def _left(picture: Image.Image) -> Image.Image:
    with picture:
        return picture.convert("RGB")


def files(photo: Callable[..., bytes]) -> dict[str, bytes]:
    exif = Image.Exif()
    exif[0x112] = 6
    return {
        "plain": photo(),
        "progressive": photo(progressive=True),
        "grey": photo(mode="L"),
        "CMYK": photo(mode="CMYK"),
        "a PNG": photo(format="PNG"),
        "turned": photo(exif=exif, dpi=(72, 72)),
        "fine": photo(subsampling=0, quality=97),
    }


@pytest.mark.parametrize("name", USES)
def test_whatever_is_done_with_it(name: str, deferral: Deferral, photo: Callable[..., bytes]) -> None:
    for data in files(photo).values():
        both(deferral, data, USES[name])


STEP = st.tuples(st.sampled_from(["crop", "resize", "flip", "up"]), *[st.integers(-3, 80)] * 4)


@settings(deadline=None)
@given(st.integers(1, 70), st.integers(1, 70), st.lists(STEP, max_size=5))
def test_any_row_of_crops_resizes_and_flips(deferral: Deferral, width: int, height: int, steps: list[tuple[Any, ...]]) -> None:
    pixels = np.random.default_rng(width * 100 + height).integers(0, 256, (height, width, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=90)

    def use(picture: Image.Image) -> Image.Image:
        for step, a, b, c, d in steps:
            if step == "crop":
                picture = picture.crop((a, b, a + max(1, c), b + max(1, d)))
            elif step == "resize":
                picture = picture.resize((max(1, a), max(1, b)), BILINEAR if c % 2 else BICUBIC)
            else:
                picture = picture.transpose(FLIP if step == "flip" else UP)
        return picture.convert("RGB")

    both(deferral, file.getvalue(), use)


class TestFiles:
    def test_a_path_and_a_file_of_the_users(self, deferral: Deferral, photo: Callable[..., bytes], tmp_path: Path) -> None:
        path = tmp_path / "a.jpg"
        path.write_bytes(photo())
        own = np.asarray(Image.open(path))
        with deferral.sample(), warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)
            picture = Image.open(path)
            assert isinstance(picture, JpegImageFile) and type(picture) is DeferredFile and picture.filename == str(path)
            assert np.array_equal(np.asarray(picture.convert("RGB")), own)
            with Image.open(path) as left:
                left.load()
            assert np.array_equal(np.asarray(left), own)
            with path.open("rb") as file:
                converted = Image.open(file).convert("RGB")
                assert not file.closed
            assert type(converted) is DeferredPicture and np.array_equal(np.asarray(converted), own)
        assert type(Image.open(path)) is JpegImageFile

    def test_what_a_sample_puts_in_the_place_of_open_stays_there(
        self, deferral: Deferral, photo: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As a library does that the first sample imports."""
        before, asked = Image.open, []
        monkeypatch.setattr(Image, "open", before)
        with deferral.sample():
            found = Image.open
            Image.open = theirs = lambda *args, **named: (asked.append(1), found(*args, **named))[1]
        for _ in range(2):
            assert Image.open is theirs and type(Image.open(io.BytesIO(photo()))) is JpegImageFile
            with deferral.sample():
                assert type(Image.open(io.BytesIO(photo()))) is DeferredFile
        assert len(asked) == 4
        Image.open = before
        with deferral.sample():
            assert type(Image.open(io.BytesIO(photo()))) is DeferredFile
        assert Image.open is before

    def test_what_is_kept_of_a_sample_has_its_pixels(self, deferral: Deferral, photo: Callable[..., bytes]) -> None:
        with deferral.sample():
            picture = Image.open(io.BytesIO(photo())).convert("RGB")
            assert type(picture) is DeferredPicture
        assert type(picture) is Image.Image

    def test_a_file_that_is_cut_off_is_noted_where_pixels_are_looked_at(
        self, deferral: Deferral, photo: Callable[..., bytes]
    ) -> None:
        with deferral.sample() as put_off:
            picture = Image.open(io.BytesIO(photo()[:1500])).convert("RGB")
            with pytest.raises(OSError, match="image file is truncated"):
                picture.getpixel((0, 0))
            del picture
        assert put_off.failed

    def test_what_another_thread_makes_meanwhile_is_another_sample(self, deferral: Deferral, photo: Callable[..., bytes]) -> None:
        class Brave:
            """Lives with a file that cannot be decoded, where Pillow says so."""

            files = (photo()[:1500], photo())

            def __getitem__(self, index: int) -> Any:
                try:
                    picture = Image.open(io.BytesIO(self.files[index])).convert("RGB")
                except OSError:
                    return "torn"
                try:
                    return picture.getpixel((0, 0))
                except OSError:
                    with ThreadPoolExecutor(1) as pool:
                        assert pool.submit(reads.__getitem__, 1).result() != "torn"
                    raise

        reads = DeferredReads(Brave(), deferral)
        assert reads[0] == "torn"

    def test_views_of_one_file_are_decoded_once(self, deferral: Deferral, photo: Callable[..., bytes]) -> None:
        for views in (3, 3, 1, 1):
            with deferral.sample():
                whole = Image.open(io.BytesIO(photo())).convert("RGB")
                pixels = [whole.crop((0, 0, 9 + k, 9)).getpixel((1, 1)) for k in range(views)]
                assert (whole._encoded.pixels is not None) == (views > 1 or deferral.views > 1)
            assert len(set(pixels)) == 1 and deferral.views == views
