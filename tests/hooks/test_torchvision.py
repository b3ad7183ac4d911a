"""torchvision: paths split into read and decode; functional transforms augment."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.v2.functional import _utils

from pipefix.vocabulary.stage import Stage

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
READ = {"torchvision.io.read_file": "storage"}
OPENED = {"open": "storage", "read": "storage"}
DECODED = {"torchvision.io.decode_image": "decode"}
PIXELS = np.random.default_rng(3).integers(0, 255, (40, 50, 3), dtype=np.uint8)
TENSOR = torch.from_numpy(PIXELS.transpose(2, 0, 1).copy())
RGB = torchvision.io.ImageReadMode.RGB


@pytest.fixture(params=["jpg", "png"])
def picture(request, tmp_path):
    path = str(tmp_path / f"a.{request.param}")
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(PIXELS).save(path, exif=exif)
    return path


PATHS = {
    "read_image": lambda path: torchvision.io.read_image(path),
    "read_image rgb": lambda path: torchvision.io.read_image(path, RGB, apply_exif_orientation=True),
    "decode_image": lambda path: torchvision.io.decode_image(path, mode="RGB"),
}


@pytest.mark.parametrize("name", PATHS)
def test_paths_are_split(hooks, picture, name):
    hooks.contract(lambda: PATHS[name](picture), "files", "torchvision_io", ops={**READ, **DECODED}, recorded={**OPENED, **DECODED})


def test_read_file(hooks, picture):
    hooks.contract(lambda: torchvision.io.read_file(picture), "files", "torchvision_io", ops=READ, recorded=OPENED)
    hooks.install("torchvision_io")
    hooks.run(lambda: torchvision.io.read_file(picture))
    assert hooks.timer.bytes_read == len(open(picture, "rb").read())  # noqa: SIM115


def test_replacing_decode_alone_still_reads(hooks, picture):
    hooks.install("torchvision_io")
    hooks.run(lambda: torchvision.io.read_image(picture), record=True)
    hooks.run(lambda: torchvision.io.read_image(picture), replace=[Stage.DECODE])
    assert hooks.charged() == READ


def test_warnings_are_the_same(hooks, picture):
    def messages():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torchvision.io.read_image(picture)
        return [str(warning.message) for warning in caught]

    bare = messages()
    hooks.install("torchvision_io")
    assert hooks.run(messages) == bare


def test_an_image_folder(hooks, tmp_path):
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for shift in range(2):
            Image.fromarray(np.roll(PIXELS, shift)).save(tmp_path / label / f"{shift}.jpg")
    steps = torchvision.transforms.Compose([torchvision.transforms.Resize(16), torchvision.transforms.ToTensor()])
    folder = torchvision.datasets.ImageFolder(tmp_path, steps)
    ops = {
        "open": "storage",
        "read": "storage",
        "PIL.Image.open": "decode",
        "PIL.Image.load": "decode",
        "PIL.Image.convert": "decode",
        "F.resize": "augment",
        "F.to_tensor": "augment",
    }
    hooks.contract(lambda: [folder[i] for i in range(4)], "files", "pil", "torchvision_io", "torchvision_functional", ops=ops)


def test_transform_objects_still_find_their_kernels(hooks):
    both = v2.Compose([v2.Resize((20, 20)), v2.RandomHorizontalFlip(1.0), v2.ToDtype(torch.float32, scale=True)])
    bare, kernels = both(TENSOR), list(_utils._KERNEL_REGISTRY)
    hooks.install("torchvision_functional")
    for how in ({}, {"record": True}, {"replace": [Stage.AUGMENT]}):
        assert torch.equal(hooks.run(lambda: both(TENSOR), **how), bare)
        assert hooks.charged() == ({} if "replace" in how else dict.fromkeys(hooks.charged(), "augment"))
    hooks.undo()
    assert torch.equal(both(TENSOR), bare)
    assert list(_utils._KERNEL_REGISTRY) == kernels
