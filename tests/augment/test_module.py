"""The module finds the pictures of a batch, groups like calls, and gives the batch as it was with others in their place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision import tv_tensors
from torchvision.transforms import v2

from pipefix.augment.batched import BY_NAME
from pipefix.augment.module import Augment, run, run_packed
from pipefix.vocabulary.random_state import seeded
from tests.augment.calls import calls_of
from tests.augment.lists import pictures

INVERT = v2.RandomInvert(1.0)


def expected_of(transform: Any, images: Any) -> list[torch.Tensor]:
    samples = []
    for seed, image in enumerate(images):
        with seeded(seed):
            samples.append(transform(image))
    return samples


@dataclass
class Target:
    image: Any
    label: Any


def test_pictures_are_found_wherever_they_lie() -> None:
    images, mask = pictures(3), tv_tensors.Mask(torch.zeros(3, 1, 40, 48))
    calls = calls_of(INVERT, images)
    module = Augment()
    labels = torch.arange(3)
    batch = module([images, labels], calls)
    assert torch.equal(batch[0], 255 - images)
    assert batch[1] is labels
    batch = module({"mask": mask, "x": {"image": images}}, calls)
    assert torch.equal(batch["x"]["image"], 255 - images)
    assert batch["mask"] is mask
    assert torch.equal(module(Target(images, labels), calls).image, 255 - images)
    apart = module([(image, label) for image, label in zip(images, labels, strict=True)], calls)
    assert torch.equal(torch.stack([image for image, _ in apart]), 255 - images)
    together = module((list(images), [{"boxes": torch.zeros(1, 4)}] * 3), calls)
    assert torch.equal(torch.stack(together[0]), 255 - images)
    both = module([images, images.clone()], calls_of(INVERT, images, leaves=2))
    assert torch.equal(both[0], 255 - both[1])
    with pytest.raises(ValueError, match="2 tensors of a batch may be the pictures"):
        module([images, images.clone(), labels], calls)
    assert torch.equal(module([[images, labels], calls])[0], 255 - images)
    with pytest.raises(ValueError, match="comes without the calls"):
        module([images, labels])
    with pytest.raises(ValueError, match="no pictures of 3 samples"):
        module([labels], calls)


def test_pictures_of_several_sizes_are_each_done_as_their_own() -> None:
    images = [pictures(1, 30 + place % 2, 40)[0] for place in range(6)]
    listed = v2.Compose([v2.RandomHorizontalFlip(), v2.RandomCrop(24), v2.RandomPosterize(3)])
    augmented = Augment()((images,), calls_of(listed, images))[0]
    assert all(torch.equal(first, second) for first, second in zip(augmented, expected_of(listed, images), strict=True))
    with pytest.raises(ValueError, match="differ in size"):
        ragged = v2.RandomResize(20, 40)
        Augment()(pictures(6), calls_of(ragged, pictures(6)))


def test_pictures_of_several_sizes_have_displacements_of_theirs() -> None:
    images = [pictures(1, 30 + place % 2, 40)[0] for place in range(4)]
    listed = v2.Compose([v2.ElasticTransform(20.0, 3.0), v2.CenterCrop(24)])
    augmented = Augment()((images,), calls_of(listed, images))[0]
    for first, second in zip(augmented, expected_of(listed, images), strict=True):
        assert (first.float() - second.float()).abs().mean() <= 1


def test_grey_pictures_normalised_by_three_numbers_have_three_channels() -> None:
    """torchvision's function makes them so, and what comes after it draws for three."""
    images = pictures(3)[:, :1]
    normal = v2.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
    listed = v2.Compose([v2.ToDtype(torch.float32, scale=True), normal, v2.RandomErasing(1.0, value="random")])
    augmented = Augment()(images, calls_of(listed, images))
    assert torch.allclose(augmented, torch.stack(expected_of(listed, images)), atol=1e-5)


@pytest.mark.parametrize("first", [[], [v2.CenterCrop(30)]])
def test_a_batch_is_not_written_to(first: list[Any]) -> None:
    images = pictures(6)
    before = images.clone()
    listed = v2.Compose([*first, v2.RandomHorizontalFlip(), v2.RandomInvert(), v2.RandomErasing(0.5)])
    augmented = Augment()(images, calls_of(listed, images))
    assert torch.equal(images, before)
    assert torch.equal(augmented, torch.stack(expected_of(listed, images)))


def test_like_calls_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    counted: list[int] = []
    row = BY_NAME["adjust_brightness"]

    def batched(images: torch.Tensor, **arguments: Any) -> torch.Tensor:
        counted.append(len(images))
        return row.batched(images, **arguments)

    monkeypatch.setitem(BY_NAME, "adjust_brightness", dataclasses.replace(row, batched=batched))
    images = pictures(8)
    listed = v2.Compose([v2.RandomHorizontalFlip(), v2.ColorJitter(0.5)])
    Augment()(images, calls_of(listed, images))
    assert counted == [8]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_and_channels_last(dtype: torch.dtype) -> None:
    images = pictures(4)
    listed = v2.Compose([v2.ColorJitter(0.2), v2.ToDtype(torch.float32, scale=True)])
    calls = calls_of(listed, images)
    half, whole = Augment(dtype=dtype, channels_last=True)(images, calls), Augment()(images, calls)
    assert half.dtype == dtype
    assert (half.float() - whole).abs().max() <= (0.001 if dtype == torch.float16 else 0.004)
    assert half.is_contiguous(memory_format=torch.channels_last)


def test_it_works_beside_a_compiled_model_and_under_autocast() -> None:
    images = pictures(4, 32, 32)
    listed = v2.Compose([v2.RandomRotation(20), v2.ToDtype(torch.float32, scale=True), v2.Normalize((0.5,) * 3, (0.2,) * 3)])
    calls, module = calls_of(listed, images), Augment()
    expected = module(images, calls)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(module(images, calls), expected)

    @torch.compile(backend="eager")
    def step(images_in: torch.Tensor) -> torch.Tensor:
        return module(images_in, calls).mean()

    assert torch.equal(step(images), expected.mean())


def test_a_batch_of_no_samples_comes_back() -> None:
    nothing = torch.zeros(0, 3, 8, 8)
    assert Augment()((nothing, [])) is nothing


def test_an_empty_program_leaves_a_picture_alone() -> None:
    images = pictures(2)
    assert run(images, [[], []]) is images


class WithoutFloat64(TorchDispatchMode):
    """Stands in for a GPU of Apple's or Intel's, which raises where a tensor of 64-bit floating point is to be made on it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        assert not (isinstance(made, torch.Tensor) and made.is_meta and made.dtype == torch.float64), func
        return made


def test_numbers_go_where_the_pictures_are_whatever_device_that_is() -> None:
    """On Apple's mps and Intel's xpu they stayed on the CPU, and the first batch raised."""
    listed = v2.Compose([v2.RandomHorizontalFlip(), v2.ColorJitter(contrast=0.3, saturation=0.3), v2.RandomRotation(20)])
    images = pictures(6)
    calls, elsewhere = calls_of(listed, images), images.to("meta")
    with WithoutFloat64():
        augmented = run_packed(elsewhere, calls)
    assert isinstance(augmented, torch.Tensor) and augmented.is_meta and augmented.shape == images.shape
