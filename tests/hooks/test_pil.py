"""Pillow: decoding is charged where it happens, and recorded images are the images."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from pipefix.hooks.snapshot import force
from pipefix.vocabulary.stage import Stage

OPEN = {"PIL.Image.open": "decode", "open": "storage", "read": "storage"}
LOAD = {**OPEN, "PIL.Image.load": "decode"}
CONVERT = {**LOAD, "PIL.Image.convert": "decode"}
IMAGE_KINDS = ["rgb.jpg", "gray.jpg", "rgba.png", "palette.png", "bits16.png", "rgb.webp", "rgb.bmp", "rgb.tif", "cmyk.jpg"]


def draw(name, path, size=(90, 70)):
    pixels = np.random.default_rng(7).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    image = Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC)
    match name:
        case "gray.jpg":
            image = image.convert("L")
        case "rgba.png":
            image.putalpha(100)
        case "palette.png":
            image = image.convert("P", palette=Image.Palette.ADAPTIVE)
        case "bits16.png":
            image = Image.fromarray(pixels[..., 0].astype(np.uint16) * 257)
        case "cmyk.jpg":
            image = image.convert("CMYK")
    exif = Image.Exif()
    exif[0x0112] = 6
    how = {"exif": exif} if name.endswith("jpg") else {}
    if name == "anim.gif":
        image.save(path, save_all=True, append_images=[image.rotate(90), image.rotate(180)])
    else:
        image.save(path, **how)
    return path


@pytest.fixture(params=IMAGE_KINDS)
def picture(request, tmp_path):
    return draw(request.param, tmp_path / request.param)


@pytest.fixture
def jpeg(tmp_path):
    return draw("rgb.jpg", tmp_path / "rgb.jpg")


def pil_loader(path):
    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


def test_the_usual_loader(hooks, picture):
    hooks.contract(lambda: pil_loader(picture), "files", "pil", ops=CONVERT)


def test_from_memory(hooks, jpeg):
    data = jpeg.read_bytes()
    hooks.contract(
        lambda: np.asarray(Image.open(io.BytesIO(data))),
        "files",
        "pil",
        ops={"PIL.Image.open": "decode", "PIL.Image.load": "decode"},
    )


def test_what_the_file_told_survives(hooks, picture):
    def facts():
        with Image.open(picture) as image:
            image.load()
            exif = dict(image.getexif())
            return (
                image.format,
                image.mode,
                image.size,
                {k: v for k, v in image.info.items() if k != "exif"},
                exif,
                str(image.filename),
            )

    bare = facts()
    hooks.install("files", "pil")
    assert hooks.run(facts) == bare
    assert hooks.run(facts, record=True) == bare
    again = hooks.run(facts, replace=[Stage.DECODE, Stage.STORAGE])
    if picture.suffix == ".tif":
        assert again[:3] == bare[:3]
        assert again[4].get(0x0112) == bare[4].get(0x0112)
    else:
        assert again == bare


def test_a_lazy_image_is_decoded_inside_the_resize_that_needs_it(hooks, jpeg):
    hooks.contract(
        lambda: Image.open(jpeg).resize((20, 30)),
        "files",
        "pil",
        ops={**LOAD, "PIL.Image.resize": "augment"},
    )


def test_replacing_decode_alone_still_reads_the_file(hooks, jpeg):
    hooks.install("files", "pil")
    for load in (pil_loader, lambda path: Image.open(path).convert("RGB")):
        hooks.run(lambda load=load: load(jpeg), record=True)
        hooks.run(lambda load=load: load(jpeg), replace=[Stage.DECODE])
        assert hooks.charged() == {"open": "storage", "read": "storage"}
        assert hooks.timer.bytes_read == jpeg.stat().st_size


def test_replacing_augment_alone_still_decodes(hooks, jpeg):
    hooks.install("files", "pil")

    def resized():
        return Image.open(jpeg).resize((20, 30))

    bare = hooks.run(resized, record=True)
    assert hooks.run(resized, replace=[Stage.AUGMENT]).tobytes() == bare.tobytes()
    assert hooks.charged() == LOAD


def test_replacing_storage_alone_still_decodes(hooks, jpeg):
    hooks.install("files", "pil")
    bare = hooks.run(lambda: pil_loader(jpeg), record=True)
    jpeg.unlink()
    assert hooks.run(lambda: pil_loader(jpeg), replace=[Stage.STORAGE]).tobytes() == bare.tobytes()
    assert hooks.charged() == {name: stage for name, stage in CONVERT.items() if stage == "decode"}


def test_two_images_in_one_sample_keep_apart(hooks, tmp_path):
    first, second = (draw("rgb.jpg", tmp_path / "a.jpg"), draw("gray.jpg", tmp_path / "b.jpg", (31, 17)))
    hooks.contract(lambda: [pil_loader(first), pil_loader(second)], "files", "pil", ops=CONVERT)


def test_an_animation_is_timed_but_stays_live(hooks, tmp_path):
    path = draw("anim.gif", tmp_path / "x.gif")

    def frames():
        with Image.open(path) as image:
            return [(image.seek(i), np.asarray(image.convert("RGB")))[1].tobytes() for i in range(3)]

    bare = frames()
    hooks.install("files", "pil")
    assert hooks.run(frames, record=True) == bare
    assert hooks.run(frames, replace=[Stage.STORAGE]) == bare


def test_a_decoded_image_that_is_converted_again_is_augmented(hooks, jpeg):
    image = pil_loader(jpeg)
    hooks.contract(lambda: image.convert("L"), "pil", ops={"PIL.Image.convert": "augment"})


def test_force_decodes_what_is_lazy(jpeg):
    image, second_image = Image.open(jpeg), Image.open(jpeg)
    force(((image, {"more": [second_image]}), 1, "x"), {"key": None})
    assert image.tile == []
    assert second_image.tile == []


def test_torn_files_raise_the_same(hooks, jpeg):
    data = jpeg.read_bytes()
    jpeg.write_bytes(data[: len(data) // 2])

    def error():
        with pytest.raises(OSError) as caught:
            pil_loader(jpeg)
        return str(caught.value)

    bare = error()
    hooks.install("files", "pil")
    assert hooks.run(error) == bare
    assert hooks.run(error, record=True) == bare
    assert hooks.run(error, replace=[Stage.DECODE, Stage.STORAGE]) == bare


def test_a_lazy_image_loaded_inside_an_entry_recorded_whole_is_kept(hooks, jpeg):
    hooks.install("files", "pil")

    def sample():
        image = Image.open(jpeg)
        return hooks.timer.timed_call(Stage.AUGMENT, "to array", lambda: np.asarray(image).copy(), own=True)

    bare = hooks.run(sample, record=True)
    assert hooks.timer.mixed == set()
    for replace in ([Stage.DECODE], [Stage.AUGMENT], [Stage.STORAGE], [Stage.DECODE, Stage.STORAGE]):
        assert (hooks.run(sample, replace=replace) == bare).all()
        assert not set(hooks.charged().values()) & {str(stage) for stage in replace}
        assert hooks.timer.misses == 0
