"""OpenCV: imread split without a pixel's difference."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from PIL import Image

from pipefix.vocabulary.stage import Stage

READ = {"open": "storage", "read": "storage", "cv2.imread": "decode"}
PIXELS = np.random.default_rng(3).integers(0, 255, (40, 50, 3), dtype=np.uint8)
FLAGS = [cv2.IMREAD_COLOR, cv2.IMREAD_GRAYSCALE, cv2.IMREAD_REDUCED_COLOR_2, cv2.IMREAD_IGNORE_ORIENTATION]


@pytest.fixture
def drawn(tmp_path):
    """Makes a picture of this name."""

    def draw(name):
        path = tmp_path / name
        exif = Image.Exif()
        exif[0x0112] = 6
        match name:
            case "turned.jpg":
                Image.fromarray(PIXELS).save(path, exif=exif)
            case "alpha.png":
                cv2.imwrite(str(path), np.dstack([PIXELS, PIXELS[..., 0]]))
            case "deep.png":
                cv2.imwrite(str(path), PIXELS.astype(np.uint16) * 257)
            case _:
                cv2.imwrite(str(path), PIXELS)
        return path

    return draw


@pytest.fixture
def picture(drawn):
    return drawn("turned.jpg")


@pytest.mark.parametrize("name", ["a.jpg", "turned.jpg", "a.png", "alpha.png", "deep.png", "a.bmp", "a.webp", "a.tif"])
def test_imread(hooks, drawn, name):
    path = drawn(name)
    hooks.contract(lambda: [cv2.imread(str(path)), cv2.imread(str(path), cv2.IMREAD_UNCHANGED)], "files", "cv2", ops=READ)


def test_imread_as_its_flags_say_by_name_and_path(hooks, picture):
    def read():
        flagged = [cv2.imread(str(picture), flag) for flag in FLAGS]
        return [*flagged, cv2.imread(filename=str(picture), flags=0), cv2.imread(picture)]

    hooks.contract(read, "files", "cv2", ops=READ)


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


def test_videos(hooks, tmp_path):
    path = str(tmp_path / "v.avi")
    writer = cv2.VideoWriter(path, cv2.VideoWriter_fourcc(*"MJPG"), 25, (64, 48))
    for shade in range(4):
        writer.write(np.full((48, 64, 3), 40 * shade, np.uint8))
    writer.release()

    def frames():
        capture, decoded = cv2.VideoCapture(path), []
        while (read := capture.read())[0]:
            decoded.append(read[1].tobytes())
        return decoded

    bare = frames()
    hooks.install("cv2")
    for how in ({}, {"record": True}):
        assert hooks.run(frames, **how) == bare and len(bare) == 4
        assert hooks.charged() == {"cv2.VideoCapture": "decode", "cv2.VideoCapture.read": "decode"}
    assert hooks.run(frames, replace=list(Stage)) == bare
    assert hooks.charged() == {"cv2.VideoCapture": "decode"}
