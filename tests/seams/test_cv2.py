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


def test_imdecode(seams):
    data = cv2.imencode(".png", PIXELS)[1]
    seams.contract(lambda: cv2.imdecode(data, cv2.IMREAD_COLOR), "cv2", ops={"cv2.imdecode": "decode"})


AUGMENTS = {
    "resize": lambda: cv2.resize(PIXELS, (20, 20)),
    "cvtColor": lambda: cv2.cvtColor(PIXELS, cv2.COLOR_BGR2RGB),
    "flip": lambda: cv2.flip(PIXELS, 1),
    "GaussianBlur": lambda: cv2.GaussianBlur(PIXELS, (3, 3), 0),
    "warpAffine": lambda: cv2.warpAffine(PIXELS, np.eye(2, 3), (20, 20)),
    "LUT": lambda: cv2.LUT(PIXELS, np.arange(256, dtype=np.uint8)[::-1].copy()),
}


@pytest.mark.parametrize("name", AUGMENTS)
def test_pixels_augment(seams, name):
    seams.contract(AUGMENTS[name], "cv2", ops={f"cv2.{name}": "augment"})


def test_results_written_in_place_are_never_answered(seams):
    seams.install("cv2")

    def into():
        out = np.zeros((20, 20, 3), np.uint8)
        cv2.resize(PIXELS, (20, 20), dst=out)
        cv2.flip(out, 0, out)
        cv2.rectangle(out, (1, 1), (5, 5), (1, 2, 3), -1)
        return out.tobytes()

    bare = seams.run(into, record=True)
    assert seams.run(into, replace=[Stage.AUGMENT]) == bare


def test_frames_of_a_video_are_decoded(seams, monkeypatch):
    class Capture:
        """As OpenCV's own, which this build may be without a codec for."""

        def __init__(self, path: str = "") -> None:
            self.left = 2

        def read(self, image=None):
            self.left -= 1
            if image is not None:
                image[:] = 7
            return self.left >= 0, PIXELS.copy()

        grab = retrieve = open = set = read

    monkeypatch.setattr(cv2, "VideoCapture", Capture)
    seams.install("cv2")

    def frames():
        capture, shapes = cv2.VideoCapture("v.mp4"), []
        while (got := capture.read())[0]:
            shapes.append(got[1].shape)
        return shapes

    assert seams.run(frames, record=True) == [PIXELS.shape] * 2
    assert seams.charged() == {"cv2.VideoCapture": "decode", "cv2.VideoCapture.read": "decode"}
    assert seams.run(frames, replace=[Stage.DECODE]) == [PIXELS.shape] * 2
    assert seams.charged() == {"cv2.VideoCapture": "decode"}
    assert (
        isinstance(Capture(), cv2.VideoCapture) and issubclass(Capture, cv2.VideoCapture) and cv2.VideoCapture.read is Capture.read
    )

    def into():
        out = np.zeros((2, 2), np.uint8)
        cv2.VideoCapture("v.mp4").read(out)
        return out.sum()

    assert seams.run(into, record=True) == seams.run(into, replace=[Stage.DECODE]) == 28
    seams.undo()
    assert cv2.VideoCapture is Capture
