"""OpenCV: imread split without a pixel's difference."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from PIL import Image

from pipefix.vocabulary.stage import Stage

READ = {"open": "storage", "read": "storage", "cv2.imread": "decode"}
PIXELS = np.random.default_rng(3).integers(0, 255, (40, 50, 3), dtype=np.uint8)
FLAGS = [cv2.IMREAD_COLOR, cv2.IMREAD_GRAYSCALE, cv2.IMREAD_UNCHANGED, cv2.IMREAD_REDUCED_COLOR_2, cv2.IMREAD_IGNORE_ORIENTATION]


@pytest.fixture(params=["a.jpg", "turned.jpg", "a.png", "alpha.png", "deep.png", "a.bmp", "a.webp", "a.tif"])
def picture(request, tmp_path):
    path = tmp_path / request.param
    exif = Image.Exif()
    exif[0x0112] = 6
    match request.param:
        case "turned.jpg":
            Image.fromarray(PIXELS).save(path, exif=exif)
        case "alpha.png":
            cv2.imwrite(str(path), np.dstack([PIXELS, PIXELS[..., 0]]))
        case "deep.png":
            cv2.imwrite(str(path), PIXELS.astype(np.uint16) * 257)
        case _:
            cv2.imwrite(str(path), PIXELS)
    return path


@pytest.mark.parametrize("flags", [(), *((flag,) for flag in FLAGS)], ids=str)
def test_imread(hooks, picture, flags):
    hooks.contract(lambda: cv2.imread(str(picture), *flags), "files", "cv2", ops=READ)


def test_imread_by_name_and_path(hooks, picture):
    hooks.contract(lambda: cv2.imread(filename=str(picture), flags=0), "files", "cv2", ops=READ)
    hooks.contract(lambda: cv2.imread(picture), "files", "cv2", ops=READ)


def test_imread_counts_its_bytes(hooks, picture):
    hooks.install("files", "cv2")
    hooks.run(lambda: cv2.imread(str(picture)))
    assert hooks.timer.bytes_read == picture.stat().st_size


def test_replacing_decode_alone_still_reads(hooks, picture):
    hooks.install("files", "cv2")
    hooks.run(lambda: cv2.imread(str(picture)), record=True)
    hooks.run(lambda: cv2.imread(str(picture)), replace=[Stage.DECODE])
    assert hooks.charged() == {"open": "storage", "read": "storage"}
    assert hooks.timer.bytes_read == picture.stat().st_size


def test_what_cannot_be_read_is_none_as_before(hooks, tmp_path):
    (tmp_path / "text.jpg").write_text("no picture")
    (tmp_path / "empty.jpg").write_text("")
    hooks.install("files", "cv2")
    for name in ("text.jpg", "empty.jpg", "missing.jpg"):
        assert hooks.run(lambda name=name: cv2.imread(str(tmp_path / name))) is None


def test_imread_taken_by_name(hooks, module_with, tmp_path):
    cv2.imwrite(str(tmp_path / "a.png"), PIXELS)
    module = module_with("from cv2 import imread")
    hooks.contract(lambda: module.imread(str(tmp_path / "a.png")), "files", "cv2", ops=READ)


def test_a_module_loaded_meanwhile_gets_the_original_back(hooks, module_with):
    original = cv2.imread
    hooks.install("cv2")
    module = module_with("from cv2 import imread")
    assert module.imread is not original
    hooks.undo()
    assert module.imread is original
