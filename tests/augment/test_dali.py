"""DALI's loader: from files to batches, held against torchvision with the same random numbers; and what it hands on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torchvision import transforms as v1
from torchvision.datasets.folder import default_loader
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

pytest.importorskip("nvidia.dali")

from pipefix.augment import dali, parity
from pipefix.augment.dali_front import front_of
from pipefix.augment.split import split
from pipefix.augment.swap import dali_loader
from pipefix.augment.transforms import parts_of
from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.random_state import RandomState
from tests.augment.lists import ALL, pictures

CROP = v2.CenterCrop(40)
UNIT = v2.ToDtype(torch.float32, scale=True)
IMAGENET = [v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize((0.4,) * 3, (0.2,) * 3)]
LISTS: dict[str, tuple[Any, int]] = {
    "imagenet": (IMAGENET, 4),
    "validation": ([v1.Resize(45), v1.CenterCrop(40), v1.ToTensor()], 3),
    "window": ([v2.RandomCrop(30), v2.RandomHorizontalFlip(), v2.ToImage(), UNIT], 4),
    "resized": ([v2.RandomShortestSize([50, 60]), v2.RandomCrop(44), v2.ColorJitter(0.4, 0.4, 0.4), v2.ToImage(), UNIT], 2),
    "larger": ([v2.CenterCrop(80), v2.RandomInvert()], 1),
    "bytes": ([CROP, v2.RandomHorizontalFlip()], 2),
    "holes": ([CROP, v2.ToImage(), UNIT, v2.Normalize((0.5,) * 3, (0.2,) * 3), v2.RandomErasing(0.6, value=0.3)], 4),
    "handed on": ([CROP, v2.RandomHorizontalFlip(), v2.ColorJitter(0.3), v2.RandomAutocontrast(), v2.ToImage(), UNIT], 2),
}
"""Lists, and how many transforms of each DALI does."""


@pytest.fixture(scope="module")
def images() -> list[torch.Tensor]:
    return [pictures(1, 50 + place, 70 - place, seed=place)[0] for place in range(12)]


@pytest.mark.parametrize("name", LISTS)
def test_as_the_users_own_list(name: str, images: list[torch.Tensor]) -> None:
    listed, natively = LISTS[name]
    front = front_of(parts_of(listed))
    assert not isinstance(front, str), front
    assert front.count == natively
    cut = split(listed, "dali")
    assert not cut.reasons
    result = parity.check(cut, [tv.to_pil_image(image) for image in images], seed=5, progress=lambda *_: None)
    assert result.holds, result.whole


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, images: list[torch.Tensor]) -> list[Path]:
    folder = tmp_path_factory.mktemp("jpegs")
    paths = []
    for place, image in enumerate(images):
        paths.append(folder / f"{place} ä.jpg")
        tv.to_pil_image(image).save(paths[-1], quality=90)
    return paths


def epoch(loader: Any) -> tuple[torch.Tensor, list[int]]:
    batches = [(images.clone(), labels) for images, labels in loader]
    return torch.cat([images for images, _ in batches]), [int(label) for _, labels in batches for label in labels]


def test_files_and_bytes_give_the_same_whatever_the_batch_and_draw_from_nobodys_generator(files: list[Path]) -> None:
    labels = list(range(12))
    settings = {"labels": labels, "shuffle": True, "seed": 3}
    before = RandomState()
    first, order = epoch(dali_loader(files, IMAGENET, batch_size=4, **settings))
    assert not before.changed()
    second, again = epoch(dali_loader(lambda item: files[item].read_bytes(), IMAGENET, batch_size=5, threads=1, **settings))
    assert order == again
    assert sorted(order) == labels != order
    assert torch.equal(first, second)
    assert first.dtype == torch.float32


def test_epochs_differ_and_can_be_chosen(files: list[Path]) -> None:
    loader = dali_loader(files, IMAGENET, labels=range(12), batch_size=4, shuffle=True)
    whole, second = epoch(loader), epoch(loader)
    assert whole[1] != second[1]
    loader.set_epoch(0)
    assert torch.equal(epoch(loader)[0], whole[0])
    fresh = dali_loader(files, IMAGENET, labels=range(12), batch_size=4, shuffle=True)
    fresh.set_epoch(1)
    assert torch.equal(epoch(fresh)[0], second[0])


def test_batches_come_in_the_order_that_is_asked_for(files: list[Path]) -> None:
    loader = dali_loader(files, IMAGENET, labels=range(12), batch_size=5, seed=3)
    whole, _ = epoch(loader)
    orders = [[7, 2], [0, 11, 3, 4, 9], [5]]
    batches = list(loader.in_order(orders, 0))
    assert [labels.tolist() for _, labels in batches] == orders
    same = [torch.equal(images, whole[labels]) for images, labels in batches]
    assert all(same), "a sample's numbers are its own, whatever the order"
    assert list(loader.in_order([], 0)) == []
    (again,) = loader.in_order([[7, 2]], 1)
    assert not torch.equal(again[0], batches[0][0])
    first = loader.in_order([[1], [2], [3]], 0)
    assert next(first)[1].tolist() == [1]
    assert [labels.tolist() for _, labels in loader.in_order(iter([[4], [5]]), 0)] == [[4], [5]]
    with pytest.raises(RuntimeError, match="Another epoch of this loader has begun"):
        next(first)
    loader.set_epoch(0)
    assert torch.equal(epoch(loader)[0], whole)


def test_an_epoch_left_early_does_not_disturb_the_next(files: list[Path]) -> None:
    loader = dali_loader(files, IMAGENET, batch_size=2)
    for _ in loader:
        break
    loader.set_epoch(0)
    assert len(epoch(loader)[0]) == 12


def test_a_batch_is_the_callers_for_ever_unless_it_is_lent(files: list[Path]) -> None:
    handed_over, copies = [], []
    for images, _ in dali_loader(files, IMAGENET, batch_size=2):
        handed_over.append(images)
        copies.append(images.clone())
    assert all(torch.equal(first, second) for first, second in zip(handed_over, copies, strict=True))
    lent = dali_loader(files, IMAGENET, batch_size=2, lend=True)
    assert torch.equal(torch.cat([images.clone() for images, _ in lent]), torch.cat(copies))


def test_mistakes_are_told() -> None:
    with pytest.raises(ValueError, match="give length"):
        dali_loader(lambda item: b"", IMAGENET)
    with pytest.raises(ValueError, match="3 samples cannot fill a batch of 8"):
        dali_loader(["a", "b", "c"], IMAGENET, batch_size=8, drop_last=True)
    with pytest.raises(BadUsage, match="leaves pictures of several sizes"):
        dali_loader(["a"], [v2.RandomInvert()])
    with pytest.raises(BadUsage, match="Lambda: a function cannot be looked into"):
        dali_loader(["a"], [CROP, v2.Lambda(abs)])


def test_pictures_of_16_bits_are_refused(tmp_path: Path) -> None:
    """PIL and DALI make other bytes of them."""
    Image.new("I;16", (40, 30), 20_000).save(tmp_path / "depth.png")
    with pytest.raises(BadUsage, match="The picture of sample 0 has more than 8 bits a value, of which DALI leaves 8"):
        next(iter(dali_loader([tmp_path / "depth.png"], [CROP], batch_size=1)))


def test_a_file_whose_name_is_not_utf_8(files: list[Path], tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"\xff.jpg")
    odd.write_bytes(files[0].read_bytes())
    ((images, _),) = list(dali_loader([odd], [CROP], batch_size=1))
    assert images.shape == (1, 3, 40, 40)


def test_decoders_agree(files: list[Path]) -> None:
    ((images, _),) = list(dali_loader(files, [CROP], batch_size=12))
    expected = torch.stack([CROP(tv.pil_to_tensor(default_loader(str(file)))) for file in files])
    gap = (images.int() - expected.int()).abs()
    assert gap.float().mean() < 0.5


# -- on a GPU, without one -----------------------------------------------------------------------------------------------------


def test_every_graph_is_made_for_a_gpu_and_its_operators_are_registered_there() -> None:
    """As far as that goes without a driver: all but ``build()``."""
    from nvidia.dali import backend

    known = {"cpu": backend.RegisteredCPUOps(), "gpu": backend.RegisteredGPUOps(), "mixed": backend.RegisteredMixedOps()}
    registered = {device: set(names) for device, names in known.items()}
    lists = [listed for listed, _ in LISTS.values()] + [[transform] for transform in ALL.values()]
    fronts = {front for front in map(front_of, map(parts_of, lists)) if not isinstance(front, str)}
    assert len(fronts) >= 8
    decoders, odd = set(), []
    for front in fronts:
        pipe = dali.pipeline(front, lambda: (), True, "mixed", batch_size=4, num_threads=2, device_id=None)
        pipe._build_graph()
        pipe._init_pipeline_backend()
        assert pipe.serialize()
        for node in pipe._ops:
            operator = getattr(node._op, "schema_name", None) or node._op._schema.Name()
            device = node._op.device
            decoders |= {(operator, device)} if "mage" in operator and "ecode" in operator else set()
            odd += [] if operator in registered[device] else [(front, operator, device)]
    assert odd == []
    assert {device for _, device in decoders} == {"mixed"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_driver_it_says_so(files: list[Path]) -> None:
    loader = dali_loader(files, IMAGENET, device="cuda:0")
    with pytest.raises(BadUsage, match="DALI cannot use the device 'cuda:0': ") as raised:
        next(iter(loader))
    assert "nvidia-smi" in raised.value.advice
    assert len(str(raised.value)) < 300
