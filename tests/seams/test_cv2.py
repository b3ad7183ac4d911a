"""OpenCV: imread split without a pixel's difference."""

from __future__ import annotations

import sys
import types

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
def test_imread(seams, picture, flags):
    seams.contract(lambda: cv2.imread(str(picture), *flags), "files", "cv2", ops=READ)


def test_imread_by_name_and_path(seams, picture):
    seams.contract(lambda: cv2.imread(filename=str(picture), flags=0), "files", "cv2", ops=READ)
    seams.contract(lambda: cv2.imread(picture), "files", "cv2", ops=READ)


def test_imread_counts_its_bytes(seams, picture):
    seams.install("files", "cv2")
    seams.run(lambda: cv2.imread(str(picture)))
    assert seams.tap.bytes_read == picture.stat().st_size


def test_replacing_decode_alone_still_reads(seams, picture):
    seams.install("files", "cv2")
    seams.run(lambda: cv2.imread(str(picture)), record=True)
    seams.run(lambda: cv2.imread(str(picture)), replace=[Stage.DECODE])
    assert seams.charged() == {"open": "storage", "read": "storage"}
    assert seams.tap.bytes_read == picture.stat().st_size


def test_what_cannot_be_read_is_none_as_before(seams, tmp_path):
    (tmp_path / "text.jpg").write_text("no picture")
    (tmp_path / "empty.jpg").write_text("")
    seams.install("files", "cv2")
    for name in ("text.jpg", "empty.jpg", "missing.jpg"):
        assert seams.run(lambda name=name: cv2.imread(str(tmp_path / name))) is None


def test_imread_taken_by_name(seams, tmp_path):
    cv2.imwrite(str(tmp_path / "a.png"), PIXELS)
    module = types.ModuleType("took_imread_by_name")
    exec("from cv2 import imread", vars(module))
    sys.modules[module.__name__] = module
    try:
        seams.contract(lambda: module.imread(str(tmp_path / "a.png")), "files", "cv2", ops=READ)
    finally:
        del sys.modules[module.__name__]


def test_a_module_loaded_meanwhile_gets_the_original_back(seams):
    original = cv2.imread
    seams.install("cv2")
    module = types.ModuleType("took_imread_late")
    exec("from cv2 import imread", vars(module))
    sys.modules[module.__name__] = module
    try:
        assert module.imread is not original
        seams.undo()
        assert module.imread is original
    finally:
        del sys.modules[module.__name__]
