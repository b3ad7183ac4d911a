"""DALI's graph: from files to batches, held against torchvision; and what it hands on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision import transforms as v1
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

pytest.importorskip("nvidia.dali")

from pipefix.augment import dali_pipeline, dali_plan, hold, kornia
from pipefix.augment.encoded import decoded
from pipefix.augment.translate import translate
from pipefix.vocabulary.errors import BadUsage
from tests.augment.lists import ALL, pictures

BILINEAR = v2.InterpolationMode.BILINEAR
CROP = v2.CenterCrop(40)
UNIT = v2.ToDtype(torch.float32, scale=True)
LISTS: dict[str, Any] = {
    "imagenet": [v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize((0.4,) * 3, (0.2,) * 3)],
    "validation": [v1.Resize(45), v1.CenterCrop(40), v1.ToTensor()],
    "pads": [v2.RandomCrop(60, padding=5, pad_if_needed=True, fill=7), v2.Pad(3, fill=(1, 2, 3)), v2.RandomVerticalFlip()],
    "turns": [CROP, v2.RandomAffine(30, (0.1, 0.2), (0.8, 1.2), 5, BILINEAR, 9), v2.RandomRotation(9, BILINEAR)],
    "colours": [CROP, v2.ColorJitter(0.4, 0.4, 0.4), v2.RandomGrayscale(0.4), v2.RandomChannelPermutation(), v2.RandomInvert()],
    "levels": [CROP, v2.RandomPosterize(3), v2.RandomSolarize(128), v2.RandomAutocontrast()],
    "neighbours": [CROP, v2.GaussianBlur((5, 9)), v2.JPEG((30, 90))],
    "holes": [CROP, v2.ToImage(), UNIT, v2.Normalize((0.5,) * 3, (0.2,) * 3), v2.RandomErasing(0.6, value=0.3)],
    "choices": [CROP, v2.RandomApply([v2.GaussianBlur(5), v2.ColorJitter(0.3)]),
                v2.RandomChoice([v2.RandomInvert(1.0), v2.Identity()]),
                v2.RandomOrder([v2.RandomInvert(), v2.RandomSolarize(99)])],
    "sizes": [v2.RandomZoomOut(fill=4), v2.RandomShortestSize([50, 60]), v2.CenterCrop(44)],
    "handed on": [CROP, v2.RandomHorizontalFlip(), v2.ColorJitter(hue=0.2), v2.RandAugment(), UNIT],
}  # fmt: skip


@pytest.fixture(scope="module")
def images() -> list[torch.Tensor]:
    return [pictures(1, 50 + place, 70 - place, seed=place)[0] for place in range(12)]


@pytest.mark.parametrize("name", LISTS)
def test_as_torchvision(name: str, images: list[torch.Tensor]) -> None:
    found = hold.through(translate(LISTS[name]).ops, images, [hold._png(one) for one in images], seed=5)
    assert found is not None
    assert found[0].within, found[0]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, images: list[torch.Tensor]) -> list[Path]:
    folder = tmp_path_factory.mktemp("jpegs")
    made = []
    for place, one in enumerate(images):
        made.append(folder / f"{place} ä.jpg")
        tv.to_pil_image(one).save(made[-1], quality=90)
    return made


def epoch(loader: Any) -> tuple[torch.Tensor, list[int]]:
    batches = [(images.clone(), labels) for images, labels in loader]
    return torch.cat([images for images, _ in batches]), [int(one) for _, labels in batches for one in labels]


def test_files_and_bytes_give_the_same_whatever_the_batch(files: list[Path]) -> None:
    listed, labels = translate(LISTS["imagenet"]).ops, list(range(12))
    settings = {"labels": labels, "shuffle": True, "seed": 3}
    first, order = epoch(dali_plan.loader(files, listed, batch_size=4, **settings))
    other, again = epoch(dali_plan.loader(lambda one: files[one].read_bytes(), listed, batch_size=5, threads=1, **settings))
    assert order == again
    assert sorted(order) == labels != order
    assert torch.equal(first, other)
    assert first.dtype == torch.float32


def test_epochs_differ_and_can_be_taken_up_in_the_middle(files: list[Path]) -> None:
    loader = dali_plan.loader(files, translate(LISTS["imagenet"]).ops, labels=range(12), batch_size=4, shuffle=True)
    whole, second = epoch(loader), epoch(loader)
    assert whole[1] != second[1]
    loader.set_epoch(0)
    rest = [(images.clone(), labels.tolist()) for images, labels in loader.batches(start=1)]
    assert torch.equal(torch.cat([images for images, _ in rest]), whole[0][4:])
    fresh = dali_plan.loader(files, translate(LISTS["imagenet"]).ops, labels=range(12), batch_size=4, shuffle=True)
    fresh.set_epoch(1)
    assert torch.equal(epoch(fresh)[0], second[0])


def test_batches_come_in_the_order_that_is_asked_for(files: list[Path]) -> None:
    listed = translate(LISTS["imagenet"]).ops
    loader = dali_plan.loader(files, listed, labels=range(12), batch_size=5, seed=3)
    whole, _ = epoch(loader)
    asked = [[7, 2], [0, 11, 3, 4, 9], [5]]
    found = list(loader.in_order(asked, 0))
    assert [labels.tolist() for _, labels in found] == asked
    assert all(torch.equal(images, whole[labels]) for images, labels in found), "a sample's numbers are its own, whatever the order"
    assert list(loader.in_order([], 0)) == []
    (again,) = loader.in_order([[7, 2]], 1)
    assert not torch.equal(again[0], found[0][0])
    first = loader.in_order([[1], [2], [3]], 0)
    assert next(first)[1].tolist() == [1]
    assert [labels.tolist() for _, labels in loader.in_order(iter([[4], [5]]), 0)] == [[4], [5]]
    with pytest.raises(RuntimeError, match="Another epoch of this loader has begun"):
        next(first)
    loader.set_epoch(0)
    assert torch.equal(epoch(loader)[0], whole)


def test_an_epoch_left_early_does_not_disturb_the_next(files: list[Path]) -> None:
    loader = dali_plan.loader(files, translate(LISTS["imagenet"]).ops, batch_size=2)
    for _ in loader:
        break
    loader.set_epoch(0)
    assert len(epoch(loader)[0]) == 12


def test_a_batch_is_the_callers_for_ever(files: list[Path]) -> None:
    loader = dali_plan.loader(files, translate(LISTS["imagenet"]).ops, batch_size=2)
    kept, copies = [], []
    for images, _ in loader:
        kept.append(images)
        copies.append(images.clone())
    assert all(torch.equal(one, other) for one, other in zip(kept, copies, strict=True))


def test_a_lent_batch_is_the_same_without_a_copy(files: list[Path]) -> None:
    listed = translate(LISTS["imagenet"]).ops
    lent = dali_plan.loader(files, listed, batch_size=4, lend=True)
    found = torch.cat([images.clone() for images, _ in lent])
    assert torch.equal(found, epoch(dali_plan.loader(files, listed, batch_size=4))[0])


def test_the_rest_is_done_by_the_module(files: list[Path]) -> None:
    listed = translate(LISTS["handed on"]).ops
    made = dali_plan.plan(listed)
    assert [type(op).__name__ for op in made.rest] == ["ColorJitter", "RandAugment", "ToDtype"]
    assert "YIQ" in made.why
    with pytest.raises(ValueError, match=r"DALI does not compute ColorJitter .*YIQ.*give rest"):
        dali_plan.loader(files, listed)
    rest = kornia.augmentation(made.rest, first=len(made.listed))
    found, _ = epoch(dali_plan.loader(files, listed, rest=rest, batch_size=3))
    assert found.shape == (12, 3, 40, 40)
    assert 0 <= found.min() <= found.max() <= 1


def test_mistakes_are_told() -> None:
    listed = translate(LISTS["imagenet"]).ops
    with pytest.raises(ValueError, match="give length"):
        dali_plan.loader(lambda one: b"", listed)
    with pytest.raises(ValueError, match="3 samples make no batch of 8"):
        dali_plan.loader(["a", "b", "c"], listed, batch_size=8, drop_last=True)


def test_decoders_agree(files: list[Path]) -> None:
    loader = dali_plan.loader(files, translate([v2.CenterCrop(40)]).ops, batch_size=12)
    ((found, _),) = list(loader)
    expected = torch.stack([v2.CenterCrop(40)(decoded(file)) for file in files])
    assert torch.equal(found, expected)
    assert np.array_equal(expected[0], v2.CenterCrop(40)(tv.pil_to_tensor(tv.to_pil_image(decoded(files[0])))))


# -- on a GPU, without one -----------------------------------------------------------------------------------------------------


def graphs() -> dict[str, Any]:
    """Every list that swap covers, alone and behind a crop to one size, as a graph with something in it."""
    from tests.augment import coverage

    examples = {name: coverage.example(name, **coverage._DALI.get(name, {})) for name in coverage.names()}
    crop = v2.RandomResizedCrop(64)
    named: dict[str, list[Any]] = dict(LISTS)
    for name, transform in {**ALL, **examples}.items():
        named |= {name: [transform], f"{name}, cropped": [crop, transform, UNIT]}
    found = {}
    for name, listed in named.items():
        try:
            found[name] = dali_plan.plan(translate(listed).ops)
        except ValueError:  # a list that no target takes
            continue
    return {name: one for name, one in found.items() if one.listed}


@pytest.mark.filterwarnings("ignore:The transform")
def test_every_graph_is_made_for_a_gpu_and_its_operators_are_registered_there() -> None:
    """As far as that goes without a driver: all but ``build()``."""
    from nvidia.dali import backend

    known = {"cpu": backend.RegisteredCPUOps(), "gpu": backend.RegisteredGPUOps(), "mixed": backend.RegisteredMixedOps()}
    registered = {device: set(names) for device, names in known.items()}
    found = graphs()
    assert len(found) >= 100
    decoders, odd = set(), []
    for name, graph in found.items():
        pipe = dali_pipeline.made(graph, lambda: None, True, "mixed", build=False, batch_size=4, num_threads=2, device_id=None)  # type: ignore[arg-type,return-value]
        pipe._build_graph()
        pipe._init_pipeline_backend()
        assert pipe.serialize()
        for node in pipe._ops:
            operator = getattr(node._op, "schema_name", None) or node._op._schema.Name()
            device = node._op.device
            decoders |= {(operator, device)} if "mage" in operator and "ecode" in operator else set()
            odd += [] if operator in registered[device] else [(name, operator, device)]
    assert odd == []
    assert {device for _, device in decoders} == {"mixed"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_driver_it_says_so(files: list[Path]) -> None:
    loader = dali_plan.loader(files, translate(LISTS["imagenet"]).ops, device="cuda:0")
    with pytest.raises(BadUsage, match="DALI cannot use the device 'cuda:0': ") as told:
        next(iter(loader))
    assert "nvidia-smi" in told.value.advice
    assert len(str(told.value)) < 300
