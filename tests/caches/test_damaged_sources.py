"""Every odd file has an outcome: it is stored as what it is, or it is named as damaged. Nothing becomes silent garbage."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image, ImageFile, ImageOps
from torchvision.transforms import v2

from pipefix.caches import pictures
from pipefix.caches.dataset import CachedDataset
from pipefix.vocabulary.errors import TargetError
from tests.caches.sources import Files, ReadBy, draw

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def one(path: Path, tmp_path: Path, convert: str | None = None) -> Files:
    """The odd file among good ones."""
    return Files([*(draw(tmp_path / f"good-{index}.jpg", index) for index in range(3)), path], convert=convert)


def equal(picture, other) -> bool:
    return np.array_equal(np.asarray(picture), np.asarray(other))


def stored(path: Path, tmp_path: Path, make, store: str, convert: str | None = None, **recipe):
    return CachedDataset(make(one(path, tmp_path, convert), store, **recipe).folder)[3][0]


KINDS = {
    "jpeg": ({"suffix": "jpg"}, "JPEG", "RGB"),
    "grey jpeg": ({"suffix": "jpg", "mode": "L"}, "JPEG", "L"),
    "cmyk jpeg": ({"suffix": "jpg", "mode": "CMYK"}, "JPEG", "CMYK"),
    "png": ({"suffix": "png"}, "PNG", "RGB"),
    "grey png": ({"suffix": "png", "mode": "L"}, "PNG", "L"),
    "alpha png": ({"suffix": "png", "mode": "RGBA"}, "PNG", "RGBA"),
    "grey alpha png": ({"suffix": "png", "mode": "LA"}, "PNG", "LA"),
    "palette png": ({"suffix": "png", "mode": "P"}, "PNG", "P"),
    "palette png, one colour transparent": ({"suffix": "png", "mode": "P", "transparency": 3}, "PNG", "P"),
    "bit png": ({"suffix": "png", "mode": "1"}, "PNG", "1"),
    "16-bit png": ({"suffix": "png", "mode": "I;16"}, "PNG", "I;16"),
    "webp": ({"suffix": "webp"}, "WEBP", "RGB"),
    "bmp": ({"suffix": "bmp"}, "PNG", "RGB"),
    "gif": ({"suffix": "gif", "mode": "P"}, "PNG", "P"),
    "tiff": ({"suffix": "tiff"}, "PNG", "RGB"),
    "cmyk tiff": ({"suffix": "tiff", "mode": "CMYK"}, "JPEG", "CMYK"),
    "wrong suffix": ({"suffix": "jpg", "format": "PNG"}, "PNG", "RGB"),
}


def test_kind_and_mode_are_kept(tmp_path, make):
    drawn = []
    for name, (how, _, _) in KINDS.items():
        options = {key: value for key, value in how.items() if key != "suffix"}
        drawn.append(draw(tmp_path / f"{name}.{how['suffix']}", 3, **options))
    small = CachedDataset(make(Files(drawn, convert=None), "resized", name="small", size=22).folder)
    folder = make(Files(drawn, convert=None), "decoded").folder
    exact, bits = CachedDataset(folder), CachedDataset(folder, images="array")[list(KINDS).index("bit png")][0]
    assert set(np.unique(bits)) == {0, 255} and bits.dtype == np.uint8
    for index, (path, (_, kind, mode)) in enumerate(zip(drawn, KINDS.values(), strict=True)):
        picture, pixels, image = small[index][0], exact[index][0], Image.open(path)
        assert (picture.format, picture.mode, picture.size) == (kind, mode, (30, 22)), path.name
        assert (pixels.mode, pixels.size) == (image.mode, image.size), path.name
        assert equal(pixels, image) and equal(pixels.convert("RGBA"), image.convert("RGBA")), path.name


def test_the_colours_of_a_cmyk_picture_stay(tmp_path, make):
    path = draw(tmp_path / "odd.jpg", 3, mode="CMYK")
    small = stored(path, tmp_path, make, "resized", size=44)
    near = np.abs(np.asarray(small.convert("RGB"), float) - np.asarray(Image.open(path).convert("RGB"), float)).mean()
    assert near < 6


@pytest.mark.parametrize("mode", ["I", "I;16B", "F"])
def test_depths_keep_their_mode_in_a_cache_of_smaller_pictures(mode, make):
    """Those of 32 bits came back with 16, of which torchvision's ToTensor makes negative numbers; others were refused."""
    values = np.arange(39_999, 40_059).reshape(6, 10).astype({"I": np.int32, "I;16B": ">u2", "F": np.float32}[mode])
    depths = Image.frombytes(mode, (10, 6), values.tobytes())
    folder = make([(depths, 1)] * 3, "resized", size=6).folder
    held = CachedDataset(folder)[2][0]
    assert held.mode == mode and equal(held, values)
    assert equal(CachedDataset(folder, images="tensor")[2][0][0], values), "torch refused numbers of the other byte order"


def test_what_no_file_has_pixels_for_is_refused_and_kept_as_pixels(tmp_path, make):
    """What was no RGB became it."""

    class Deep(Files):
        def __getitem__(self, index):
            return Image.new("YCbCr", (9, 8), (70, 80, index)), index

    dataset = Deep([tmp_path] * 3)
    with pytest.raises(TargetError, match="cannot be stored as resized: a picture of mode YCbCr"):
        make(dataset, "resized", size=4)
    picture = CachedDataset(make(dataset, "decoded").folder)[2][0]
    assert picture.mode == "YCbCr" and equal(picture, dataset[2][0])


@pytest.mark.parametrize("palette", [[], [0, 0, 0, 255, 0, 0]])
def test_labels_beyond_their_palette_stay(palette) -> None:
    """PIL writes as many bits as colours need."""
    labels = np.arange(60, dtype=np.uint8).reshape(6, 10)
    image = Image.fromarray(labels, mode="P")
    if palette:
        image.putpalette(palette)
    assert equal(pictures.decoder_to("as-was").picture(pictures.encoded(image, "png", 90, "image", labels=True)), labels)


def test_a_palette_keeps_its_labels(tmp_path, make):
    path = draw(tmp_path / "odd.png", 3, mode="P")
    small = stored(path, tmp_path, make, "resized", size=22)
    assert set(np.unique(small)) <= set(np.unique(Image.open(path))) and small.getpalette() == Image.open(path).getpalette()


@pytest.mark.parametrize("store", ["resized", "decoded"])
@pytest.mark.parametrize("way", ["drawn", "before the photo", "beside grey"])
def test_labels_of_masks_stay_labels(way, store, tmp_path, make):
    """A mask that was drawn from an annotation beside a JPEG was scaled smoothly, and became a JPEG."""
    labels = np.zeros((44, 60), np.uint8)
    labels[:, 13:], labels[:, 31:] = 7, 255
    drawn = Image.fromarray(labels)
    drawn.save(tmp_path / "mask.png")

    class Masked(Files):
        def __getitem__(self, index):
            photo = Image.open(self.paths[index]).convert("L" if way == "beside grey" else "RGB")
            return {"mask": Image.open(tmp_path / "mask.png") if way == "before the photo" else drawn, "photo": photo}

    dataset = Masked([draw(tmp_path / f"{index}.jpg", index) for index in range(3)])
    mask = CachedDataset(make(dataset, store, size=22).folder)[1]["mask"]
    assert mask.size == (30, 22) and set(np.unique(mask)) == {0, 7, 255}


SEGMENTS = np.arange(60, dtype=np.uint8)[None, :] + np.uint8(60) * (np.arange(44, dtype=np.uint8)[:, None] // 22)
PANOPTIC = Image.fromarray(np.stack([SEGMENTS, SEGMENTS // 2, SEGMENTS * 0], axis=2))
MASKS = {
    "ids": (PANOPTIC, True),
    "with alpha": (PANOPTIC.convert("RGBA"), True),
    "black and white": (Image.fromarray(SEGMENTS).point(lambda value: 255 * (value > 30)).convert("RGB"), True),
    "a photo in greys": (Image.fromarray(SEGMENTS + np.arange(0, 132, 3, dtype=np.uint8)[:, None]).convert("RGB"), False),
}


@pytest.mark.parametrize("kind", MASKS)
def test_masks_whose_colours_are_labels_stay_labels(kind, tmp_path, make):
    """Segments of COCO's panoptic masks became others, which nobody had drawn."""
    (drawn, is_mask), paths = MASKS[kind], [draw(tmp_path / f"{index}.jpg", index) for index in range(3)]
    drawn.save(tmp_path / "mask.png")

    class Masked(Files):
        def __getitem__(self, index):
            return Image.open(self.paths[index]).convert("RGB"), Image.open(tmp_path / "mask.png")

    photo, mask = CachedDataset(make(Masked(paths), "resized", size=31).folder)[1]
    assert equal(mask, drawn.resize(mask.size, Image.Resampling.NEAREST)) == is_mask
    assert (photo.format, mask.format, mask.mode) == ("JPEG", "PNG", drawn.mode)


def test_the_first_frame_of_an_animation(tmp_path, make):
    frames = [Image.new("RGB", (50, 40), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "odd.gif", save_all=True, append_images=frames[1:])
    picture = stored(tmp_path / "odd.gif", tmp_path, make, "resized", "RGB", size=20)
    assert picture.getpixel((3, 3)) == (255, 0, 0)


def test_pictures_that_are_to_be_turned_stay_as_the_dataset_gives_them(tmp_path, make):
    """Boxes and masks beside them lie so; and transforms that turn them by their EXIF still can."""
    paths, exif = [], Image.Exif()
    for orientation in range(1, 9):
        exif[0x0112] = orientation
        paths.append(draw(tmp_path / f"{orientation}.jpg", 3, exif=exif, quality=95))
    dataset, lazy = Files(paths, convert="RGB"), Files(paths, convert=None)
    exact = CachedDataset(make(dataset, "decoded").folder)
    whole = CachedDataset(make(dataset, "sample", name="whole").folder)
    as_png = CachedDataset(make(Files(paths, v2.Resize(22), convert="RGB"), "rows", "parquet", name="png").folder)
    as_file = CachedDataset(make(lazy, "rows", "parquet", name="file").folder)
    small = CachedDataset(make(dataset, "resized", size=22, name="small").folder)
    for index, path in enumerate(paths):
        for cached in (exact, whole):
            assert equal(cached[index][0], dataset[index][0]), path.name
            assert equal(ImageOps.exif_transpose(cached[index][0]), ImageOps.exif_transpose(dataset[index][0])), path.name
        assert equal(ImageOps.exif_transpose(as_file[index][0]), ImageOps.exif_transpose(lazy[index][0])), path.name
        assert as_png[index][0].getexif().get(0x0112, 1) == index + 1, path.name
        picture = small[index][0]
        assert picture.size == (30, 22) and picture.getexif().get(0x0112, 1) == index + 1, path.name


@pytest.mark.parametrize(("mode", "colour"), [("RGB", (10, 20, 30)), ("L", 5), ("1", 0)])
def test_a_colour_that_is_transparent_stays_so(mode, colour, tmp_path, make):
    """PIL keeps it beside the pixels, of a GIF that became RGB as well, and turning it into RGBA asks for it."""
    image = Image.new("RGB", (9, 7), (10, 20, 30)).convert(mode)
    image.putpixel((0, 0), colour)
    image.save(tmp_path / "odd.png", transparency=colour)
    dataset = one(tmp_path / "odd.png", tmp_path)
    for store in ("decoded", "sample"):
        picture = CachedDataset(make(dataset, store, name=store).folder)[3][0]
        assert picture.info["transparency"] == colour and equal(picture.convert("RGBA"), dataset[3][0].convert("RGBA"))


@pytest.mark.parametrize("lenient", [False, True])
def test_damaged_files_are_quarantined(lenient, tmp_path, make, monkeypatch):
    """Also where PIL was told to fill up what is missing with grey."""
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", lenient)
    paths = [draw(tmp_path / f"{index}.jpg", index) for index in range(8)]
    whole = paths[3].read_bytes()
    for path, damaged in zip(paths[3:], (whole[: len(whole) // 2], whole[:200], b"", b"<html>404</html>", bytes(900)), strict=True):
        path.write_bytes(damaged)
    done = make(Files(paths, convert="RGB"), "decoded", on_bad="quarantine", max_bad=1.0)
    quarantined = [json.loads(line) for line in (done.folder / "quarantine.jsonl").read_text().splitlines()]
    assert done.manifest.length == 3 and all(entry["error"] for entry in quarantined)
    assert [(entry["index"], entry["files"]) for entry in quarantined] == [(index, [f"{index}.jpg"]) for index in range(3, 8)]


@pytest.mark.parametrize("library", ["cv2", "torchvision"])
def test_decoders_that_fill_up_with_grey_are_seen_through(library, tmp_path, make):
    paths = [draw(tmp_path / f"{index}.jpg", index) for index in range(4)]
    paths[2].write_bytes(paths[2].read_bytes()[:-200])
    done = make(ReadBy(paths, library), "decoded", on_bad="quarantine")
    assert done.manifest.parts[0].bad == [2]


def test_a_thumbnail_does_not_hide_a_missing_end(tmp_path):
    inner = io.BytesIO()
    Image.new("RGB", (9, 9)).save(inner, "JPEG")
    path = draw(tmp_path / "a.jpg", 1, comment=inner.getvalue())
    data = path.read_bytes()
    pictures.check_whole(data, "jpeg")
    with pytest.raises(pictures.Torn, match="end-of-image"):
        pictures.check_whole(data[:-100], "jpeg")


def test_a_symlink_that_leads_to_itself(tmp_path, make):
    loop = tmp_path / "loop.jpg"
    loop.symlink_to(loop)
    done = make(one(loop, tmp_path, "RGB"), "source", on_bad="quarantine")
    quarantined = json.loads((done.folder / "quarantine.jsonl").read_text())
    assert quarantined["index"] == 3 and quarantined["error"].startswith("OSError: [Errno 40]")
    assert "loop.jpg" in quarantined["files"][0]


@pytest.mark.parametrize(
    "name", ["Ünïcödé 图片 🎈.jpg", "spaces and 'quotes' \"two\".jpg", "line\nbreak.jpg", b"not-utf8-\xff\xfe.jpg"]
)
def test_names_of_any_kind(name, tmp_path, make):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + (name if isinstance(name, bytes) else os.fsencode(name))))
    try:
        path.touch()
    except OSError:
        pytest.skip("this file system refuses the name")
    draw(tmp_path / "plain.jpg", 7).replace(path)
    dataset = one(path, tmp_path, "RGB")
    expected = np.asarray(dataset[3][0])
    cached = CachedDataset(make(dataset, "source").folder, dataset=dataset)
    path.unlink()
    assert np.array_equal(np.asarray(cached[3][0]), expected) and cached.misses == 0


def test_tensors_and_arrays_come_back_as_they_were(tmp_path, make):
    class Tensors(Files):
        def __getitem__(self, index):
            return torchvision.io.decode_image(self.paths[index]), self.labels[index]

    paths = [draw(tmp_path / f"{index}.jpg", index) for index in range(3)]
    cached = CachedDataset(make(Tensors(paths), "decoded").folder)
    assert torch.equal(cached[1][0], Tensors(paths)[1][0])
    small = CachedDataset(make(Tensors(paths), "resized", size=22, name="small").folder)
    assert small[1][0].shape == (3, 22, 30) and small[1][0].dtype == torch.uint8
