"""A fused transform list makes the pictures that the list itself makes, with the same random choices."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torchvision import transforms as v1
from torchvision.transforms import v2

from pipefix.kernels.kernel import Kernel, native
from pipefix.kernels.request import Filter, Target
from pipefix.kernels.twin import TwinKernel
from pipefix.loader.fusing.errors import CannotFollow, NotFused
from pipefix.loader.fusing.fuse import Fused, fuse
from pipefix.loader.fusing.picture_loading import PictureLoading
from pipefix.loader.fusing.recognise import resizes_bytes
from pipefix.loader.fusing.sample_random import SampleNumbers, sample_key
from tests.kernels.jpegs import DHT, DQT, first_scans, scans_in, with_filling, without

Photo = Callable[..., bytes]
M, S = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CUBIC = v2.InterpolationMode.BICUBIC
FLOAT = v2.ToDtype(torch.float32, scale=True)
NORM1, NORM2 = v1.Normalize(M, S), v2.Normalize(M, S)

EXACT: dict[str, tuple[str, Any]] = {
    "v1 train": ("pil", v1.Compose([v1.RandomResizedCrop(48), v1.RandomHorizontalFlip(), v1.ToTensor(), NORM1])),
    "v1 eval": ("pil", v1.Compose([v1.Resize(56), v1.CenterCrop(48), v1.ToTensor(), NORM1])),
    "v1 eval, bicubic": ("pil", v1.Compose([v1.Resize(52, CUBIC), v1.CenterCrop(48), v1.ToTensor(), NORM1])),
    "v2 train, Pillow": ("pil", v2.Compose([v2.RandomResizedCrop(48), v2.RandomHorizontalFlip(), v2.ToImage(), FLOAT, NORM2])),
    "v2 eval, tensors": ("tensor", v2.Compose([v2.Resize(56, CUBIC), v2.CenterCrop(48), FLOAT, NORM2, v2.ToPureTensor()])),
    "resize, random crop": ("pil", v1.Compose([v1.Resize(60), v1.RandomCrop(48), v1.RandomHorizontalFlip(0.3), v1.ToTensor()])),
    "random crop, no resize": ("pil", v1.Compose([v1.RandomCrop(48), v1.RandomHorizontalFlip(), v1.ToTensor()])),
    "random crop, then resize": ("pil", v1.Compose([v1.RandomCrop((70, 80)), v1.Resize((48, 40)), v1.ToTensor()])),
    "nested": ("pil", v1.Compose([v1.Compose([v1.Resize(56), v1.CenterCrop(48)]), torch.nn.Sequential(), v1.ToTensor()])),
    "a plain list": ("pil", [v1.Resize((48, 48)), v1.ToTensor()]),
    "flip after all": ("pil", v1.Compose([v1.Resize((48, 40)), v1.ToTensor(), NORM1, v1.RandomHorizontalFlip()])),
}
CLOSE: dict[str, tuple[str, Any]] = {
    "floats resized": ("tensor", v2.Compose([FLOAT, v2.RandomResizedCrop(48), v2.RandomHorizontalFlip(), NORM2])),
    "flip first": (
        "pil",
        v1.Compose([v1.RandomHorizontalFlip(), v1.RandomVerticalFlip(), v1.RandomResizedCrop(48), v1.ToTensor()]),
    ),
    "v1 on tensors": ("tensor", v1.Compose([v1.RandomResizedCrop(48), v1.ConvertImageDtype(torch.float32), NORM1])),
    "v1, values first": ("pil", v1.Compose([v1.PILToTensor(), v1.RandomResizedCrop(48), v1.ConvertImageDtype(torch.float)])),
    "ToTensor first": ("pil", v1.Compose([v1.ToTensor(), v1.Resize(56), v1.CenterCrop(48), NORM1])),
}

OF_BYTES: dict[str, tuple[str, Any]] = {
    "v2 train, tensors": ("tensor", v2.Compose([v2.RandomResizedCrop(48), v2.RandomHorizontalFlip(), FLOAT, NORM2])),
    "v2, not normalised": ("pil", v2.Compose([v2.ToImage(), v2.RandomResizedCrop((40, 56)), v2.RandomVerticalFlip()])),
    "resize, random crop, v2": ("tensor", v2.Compose([v2.Resize((60, 64)), v2.RandomCrop((48, 64)), FLOAT])),
}
"""Exact where torchvision resizes bytes as bytes, as its newer versions do on any CPU."""
(EXACT if resizes_bytes(Filter.BILINEAR) else CLOSE).update(OF_BYTES)


def called(transform: Any) -> Any:
    return v1.Compose(transform) if isinstance(transform, list) else transform


def compiled(transform: Any, source: str = "pil", **options: Any) -> Fused:
    return fuse(called(transform), PictureLoading(source, options.pop("upright", False)), **options)


@pytest.fixture(params=["native", "twin"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    kernel = native() if request.param == "native" else TwinKernel()
    if kernel is None:
        pytest.skip("there is no native kernel here")
    return kernel


def entering(jpeg: bytes, source: str) -> Any:
    picture = Image.open(io.BytesIO(jpeg)).convert("RGB")
    return picture if source == "pil" else torch.from_numpy(np.array(picture)).permute(2, 0, 1)


@pytest.mark.parametrize("name", EXACT)
def test_exact_is_what_the_list_makes_when_torch_is_seeded_alike(name: str, kernel: Kernel, photo: Photo) -> None:
    source, transform = EXACT[name]
    fused = compiled(transform, source, mode="exact", kernel=kernel)
    assert fused.difference is not None
    assert fused.difference.max == 0
    for size in ((120, 90), (83, 141), (300, 90)):
        for index in range(2):
            jpeg, key = photo(*size), sample_key(1, 2, index)
            torch.manual_seed(key)
            wanted = called(transform)(entering(jpeg, source))
            sample = fused.sample(jpeg, key)
            assert sample.dtype == wanted.dtype
            assert torch.equal(sample, wanted.as_subclass(torch.Tensor))


@pytest.mark.parametrize("name", ["v1 train", *CLOSE])
def test_close_is_within_its_bars_and_says_why_it_cannot_be_exact(name: str, kernel: Kernel) -> None:
    source, transform = (EXACT | CLOSE)[name]
    fused = compiled(transform, source, mode="close", kernel=kernel)
    assert fused.difference is not None
    assert fused.difference.mean <= 1 and fused.difference.p99 <= 2
    if name in CLOSE:
        with pytest.raises(NotFused, match=r"so that pixels would not be equal to the bit$"):
            compiled(transform, source, mode="exact", kernel=kernel)


class TestLeftToTheList:
    """What the kernel does not decode or follow: the list's pixels, or its own error."""

    def into(self, fused: Fused, data: bytes, key: int = 4) -> torch.Tensor:
        target = Target(torch.zeros((1, 3, 48, 48)))
        fused.jpeg_into(data, target, 0, key)
        return target.tensor[0]

    def test_a_crop_beyond_the_picture_is_for_the_list(self, kernel: Kernel, photo: Photo) -> None:
        """One that pads, and one that raises: from a file as from pixels."""
        jpeg, target = photo(90, 80), Target(torch.zeros((1, 3, 100, 100)))
        for crop in (v1.CenterCrop(100), v1.RandomCrop(100)):
            fused = compiled(v1.Compose([crop, v1.ToTensor()]), mode="exact", kernel=kernel)
            with pytest.raises(CannotFollow, match="reaches beyond 90 x 80"):
                fused.jpeg_into(jpeg, target, 0, 4)
            with pytest.raises(CannotFollow, match="reaches beyond 90 x 80"):
                fused.pixels_into(np.asarray(Image.open(io.BytesIO(jpeg))), target, 0, 4)

    def test_pictures_to_be_turned_upright(self, kernel: Kernel, photo: Photo) -> None:
        exif = Image.Exif()
        exif[0x112] = 6
        jpeg = photo(exif=exif)
        fused = compiled(EXACT["v1 train"][1], mode="exact", kernel=kernel, upright=True)
        torch.manual_seed(8)
        wanted = fused.transform(ImageOps.exif_transpose(Image.open(io.BytesIO(jpeg))))
        assert torch.equal(self.into(fused, jpeg, 8), wanted)

    def test_pictures_of_16_bits(self, kernel: Kernel) -> None:
        levels = np.random.default_rng(0).integers(0, 2**16, (60, 70), dtype=np.uint16)
        file = io.BytesIO()
        Image.fromarray(levels).save(file, "PNG")
        transform = v2.Compose([v2.CenterCrop(48), v2.ToDtype(torch.float32, scale=True)])
        fused = compiled(transform, "tensor", mode="exact", kernel=kernel)
        with pytest.raises(CannotFollow, match="more than 8 bits"):
            self.into(fused, file.getvalue())


def outcome(make: Callable[[], torch.Tensor]) -> tuple[Any, ...]:
    """Pixels, or the error."""
    try:
        return ("made", make().numpy().tobytes())
    except Exception as error:  # noqa: BLE001 - any that a user would meet
        return type(error).__name__, re.sub("0x[0-9a-f]+", "", str(error))


class TestAnyFile:
    """Whole, broken, abbreviated or cut short: what the list's own library makes of a file, whatever came before it."""

    @pytest.fixture
    def files(self, photo: Photo) -> dict[str, bytes]:
        plain, progressive, optimised = photo(), photo(progressive=True), photo(121, 90, optimize=True)
        cut_short = {
            f"{count} scans of a progressive file": first_scans(progressive, count) for count in range(1, scans_in(progressive))
        }
        return cut_short | {
            "plain": plain,
            "progressive": progressive,
            "optimised": optimised,
            "fine": photo(quality=99),
            "a frame of Motion-JPEG": without(plain, DHT),
            "without its own Huffman tables": without(optimised, DHT),
            "without quantisation tables": without(plain, DQT),
            "without any tables": without(plain, DQT, DHT),
            "progressive, without Huffman tables": without(progressive, DHT),
            "its tables alone": plain[:300] + b"\xff\xd9",
            "cut off": plain[:1500],
            "its end is missing": plain[:-2],
            "damaged": plain[:1300] + bytes(60) + plain[1360:],
            "a restart too many": plain[:1300] + b"\xff\xd3" + plain[1300:],
            "a false frame": with_filling(plain),
            "grey": photo(mode="L"),
            "CMYK": photo(mode="CMYK"),
            "a PNG": photo(format="PNG"),
            "another format": photo(format="WEBP", lossless=True),
            "nothing": b"",
        }

    def both(self, fused: Fused, data: bytes, key: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        target = Target(torch.zeros((1, 3, 48, 48)))

        def make() -> torch.Tensor:
            try:
                fused.jpeg_into(data, target, 0, key)
            except CannotFollow:
                return fused.own(data, key)
            return target.tensor[0]

        return outcome(make), outcome(lambda: fused.own(data, key))

    @pytest.mark.parametrize("source", ["pil", "tensor"])
    def test_exact_is_exact_for_each(self, kernel: Kernel, source: str, files: dict[str, bytes]) -> None:
        if source == "tensor" and "v2 train, tensors" not in EXACT:
            pytest.skip("this torchvision resizes floats on this CPU")
        fused = compiled(EXACT["v1 train" if source == "pil" else "v2 train, tensors"][1], source, mode="exact", kernel=kernel)
        for name, data in files.items():
            for key in range(4):
                sample, own = self.both(fused, data, key)
                assert sample == own, name

    def test_what_pillow_takes_for_a_bomb(self, kernel: Kernel, photo: Photo, monkeypatch: pytest.MonkeyPatch) -> None:
        """The user's own limit counts."""
        fused = compiled(EXACT["v1 train"][1], mode="exact", kernel=kernel)
        data = photo(120, 90)
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 120 * 90 // 2 - 1)
        assert self.both(fused, data, 1)[0][0] == "DecompressionBombError"
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 120 * 90 - 1)
        with pytest.warns(Image.DecompressionBombWarning):
            self.both(fused, data, 1)
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
        sample, own = self.both(fused, data, 1)
        assert sample == own


class TestDeclined:
    @pytest.mark.parametrize(
        ("transform", "source", "why"),
        [
            ([v1.RandomResizedCrop(48), v1.ColorJitter(0.2), v1.ToTensor()], "pil", "ColorJitter is no transform that"),
            ([v1.RandomResizedCrop(48), v1.Lambda(lambda x: x), v1.ToTensor()], "pil", "Lambda is no transform that"),
            ([v1.Resize(60), v1.Resize(48), v1.ToTensor()], "pil", "the list resizes twice"),
            ([v1.ToTensor(), NORM1], "pil", "the list crops and resizes nothing: there is nothing to fuse"),
            ([v1.Resize(48)], "pil", "the list ends with a picture of Pillow's, not with a tensor"),
            ([v1.RandomCrop(48, padding=4), v1.ToTensor()], "pil", "RandomCrop with padding is not fused"),
            ([v1.Resize(48, max_size=50), v1.ToTensor()], "pil", "Resize with max_size is not fused"),
            ([v2.Resize(48, antialias=False), FLOAT], "tensor", "Resize resizes tensors without antialiasing"),
            (
                [v1.Resize(48, v1.InterpolationMode.NEAREST), v1.ToTensor()],
                "pil",
                "Resize interpolates by nearest; bilinear and bicubic can be fused",
            ),
            ([v2.Resize(48), v2.ToDtype(torch.float64, scale=True)], "tensor", "the list ends with torch.float64; "),
            ([v1.Resize(48), NORM1, v1.ToTensor()], "pil", "Normalize cannot take what the list hands it: "),
        ],
    )  # fmt: skip
    def test_with_a_reason(self, transform: Any, source: str, why: str) -> None:
        with pytest.raises(NotFused, match=re.escape(why)):
            fuse(transform, PictureLoading(source))

    def test_a_subclass_may_do_anything(self) -> None:
        class Mine(v1.RandomHorizontalFlip):
            pass

        with pytest.raises(NotFused, match=r"<locals>\.Mine \(of tests\) is no transform that can be fused"):
            fuse(v1.Compose([v1.Resize((48, 48)), Mine(), v1.ToTensor()]))

    def test_a_list_whose_draws_are_not_known_is_found_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Were a new torchvision to draw in another order, the trial would tell."""
        monkeypatch.setattr(SampleNumbers, "whole", lambda self, below: 0)
        with pytest.raises(NotFused, match=r"^tried on drawn pictures, pixels differ from the list's own by"):
            fuse(EXACT["v1 train"][1], mode="close")


def test_it_explains_itself(kernel: Kernel, photo: Photo) -> None:
    exact = compiled(EXACT["v1 train"][1], mode="exact", kernel=kernel)
    one_call = f"Decode, resize, crop, flip and normalise in one {kernel.name} call"
    assert exact.explain() == f"{one_call} (exact): pixels equal the list's own."
    exact.jpeg_into(photo(format="WEBP"), Target(torch.zeros((1, 3, 48, 48))), 0, 4)
    assert "own. 1 sample went another way, most of them because: " in exact.explain()
    assert "(close): pixels differ from the list's own by 0." in compiled(CLOSE["floats resized"][1], "tensor").explain()


def test_keys_never_change() -> None:
    """Runs that are resumed rest on them."""
    parts = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (-1, 5, 2**40)]
    assert [sample_key(*each) for each in parts] == [595752380, 791848836, 1155905921, 2978611956, 4022547319]
