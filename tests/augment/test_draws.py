"""What is drawn: from torchvision's distributions, for each sample by itself, and the same whatever the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torchvision import transforms as v1
from torchvision.transforms import v2

from pipefix.augment import distribution, kornia, tensor
from pipefix.augment.stream import Stream, keys_of
from pipefix.augment.translate import translate
from tests.augment import overheard
from tests.augment.lists import ALL, pictures

COUNT = 800
OLD = {
    "old crop": v1.RandomResizedCrop(16),
    "old jitter": v1.ColorJitter(0.4, 0.3, 0.2, 0.1),
    "old affine": v1.RandomAffine(20, (0.2, 0.1), (0.5, 2.0), (-3, 3, -4, 4)),
    "old erasing": v1.RandomErasing(),
    "old policy": v1.RandAugment(),
    "old wide policy": v1.TrivialAugmentWide(),
    "old choice": v1.RandomChoice([v1.RandomInvert(1.0), v1.RandomSolarize(100, 1.0)]),
}
MORE = {
    "jpeg": v2.JPEG((20, 80)),
    "zoom": v2.RandomZoomOut(p=0.6),
    "shortest": v2.RandomShortestSize([20, 30, 40], 60),
    "scale": v2.ScaleJitter((30, 40)),
    "resize": v2.RandomResize(10, 30),
    "nested": v2.RandomApply(
        [v2.RandomOrder([v2.RandomInvert(0.4), v2.RandomChoice([v2.RandomPosterize(2, 0.3), v2.Grayscale(3)])])], 0.7
    ),
}
FIELDS = ("AugMix", "ElasticTransform", "GaussianNoise")
DRAWN = {
    name: transform
    for name, transform in {**ALL, **OLD, **MORE}.items()
    if name not in FIELDS and any(op.is_random for op in translate(transform).ops)
}


@pytest.mark.parametrize("name", DRAWN)
def test_as_torchvision_draws(name: str) -> None:
    crops = {"RandomCrop": (3, 30, 40), "RandomCrop padded": (3, 64, 70), "RandomCrop reflected": (3, 44, 52)}
    count = 200 if name == "jpeg" else COUNT  # each is encoded and decoded
    found = overheard.compared(DRAWN[name], translate(DRAWN[name]).ops, count=count, size=crops.get(name, (3, 24, 32)))
    assert found
    # A false alarm in ten thousand, over all parameters together.
    assert all(one.alike(len(found)) for one in found), [one for one in found if not one.alike(len(found))]


@pytest.mark.system
@pytest.mark.parametrize("name", [*DRAWN, *FIELDS])
def test_results_as_torchvisions(name: str) -> None:
    """What a check tells its user, here of every transform: whole results of both sides."""
    transform = {**ALL, **OLD, **MORE}[name]
    crops = {"RandomCrop": (3, 30, 40), "RandomCrop padded": (3, 64, 70), "RandomCrop reflected": (3, 44, 52)}
    found = distribution.compared(transform, translate(transform).ops, count=400, size=crops.get(name, (3, 24, 32)))
    assert all(one.alike(len(found)) for one in found), [one for one in found if not one.alike(len(found))]


@pytest.mark.parametrize("compared", [overheard.compared, pytest.param(distribution.compared, marks=pytest.mark.system)])
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (v2.RandomResizedCrop(16), v2.RandomResizedCrop(16, scale=(0.2, 1.0))),
        (v2.RandomHorizontalFlip(0.5), v2.RandomHorizontalFlip(0.4)),
        (v2.RandomRotation((-20, 20)), v2.RandomRotation((-20, 10))),
        (v2.ColorJitter(0.4, 0.4), v2.ColorJitter(0.4, 0.3)),
        (v2.ColorJitter(hue=0.2), v2.ColorJitter(hue=0.1)),
        (v2.GaussianBlur(5, (0.1, 2.0)), v2.GaussianBlur(5, (0.3, 2.0))),
        (v2.RandomErasing(0.5), v2.RandomErasing(0.5, scale=(0.02, 0.2))),
    ],
)
def test_another_distribution_is_told_apart(compared: Any, right: Any, wrong: Any) -> None:
    found = compared(right, translate(wrong).ops, count=2000)
    assert not all(one.alike(len(found)) for one in found)


def test_no_sample_is_no_evidence() -> None:
    assert distribution.two_sample(np.zeros(10), np.array([])) == 0
    assert distribution.two_sample(np.array([]), np.array([])) == 1


def test_the_test_of_two_samples_keeps_its_rate_of_false_alarms() -> None:
    rng = np.random.default_rng(0)
    seen = [distribution.two_sample(rng.random(300), rng.random(300)) for _ in range(1000)]
    for level in (0.5, 0.1, 0.01):
        assert sum(p < level for p in seen) / 1000 <= level + 3 * (level * (1 - level) / 1000) ** 0.5


def test_overhearing_leaves_torchvision_and_its_generator_as_they_were() -> None:
    kernel, crop = v2.Transform._call_kernel, v1.functional.crop
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    overheard.overheard(v1.RandomResizedCrop(8), count=5, size=(3, 20, 20))
    assert v2.Transform._call_kernel is kernel
    assert v1.functional.crop is crop
    assert torch.equal(torch.rand(3), expected)


WHOLE = v2.Compose(
    [
        v2.RandomResizedCrop(20),
        v2.RandomHorizontalFlip(),
        v2.ColorJitter(0.3, 0.3, 0.3, 0.1),
        v2.RandAugment(),
        v2.RandomErasing(0.5),
    ]
)


@pytest.mark.parametrize("target", [kornia, tensor])
@pytest.mark.parametrize("batch", [1, 3, 7, 20])
def test_neither_the_batch_nor_the_order_changes_a_sample(target: Any, batch: int) -> None:
    images = pictures(20)
    listed = translate(WHOLE).ops
    augment = target.augmentation(listed, seed=4)
    whole = augment(images, index=range(20), epoch=2)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(batch))
    parts = [augment(images[part], index=part, epoch=2) for part in order.split(batch)]
    assert torch.equal(torch.cat(parts), whole[order])


def test_counting_goes_on_where_it_was_resumed() -> None:
    images = pictures(12)
    listed = translate(WHOLE).ops
    first = kornia.augmentation(listed, seed=1)
    first.set_epoch(3)
    whole = torch.cat([first(images[:5]), first(images[5:])])
    begun = kornia.augmentation(listed, seed=1)
    begun.set_epoch(3)
    begun(images[:5])
    later = kornia.augmentation(listed, seed=99)
    later.load_state_dict(begun.state_dict())
    assert torch.equal(later(images[5:]), whole[5:])


def test_epochs_seeds_and_ranks_draw_differently() -> None:
    listed, images = translate(WHOLE).ops, pictures(6)
    made = [
        kornia.augmentation(listed, seed=seed, rank=rank)(images, epoch=epoch)
        for seed, rank, epoch in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))
    ]
    assert all(not torch.equal(made[0], other) for other in made[1:])


def test_no_two_samples_share_their_draws() -> None:
    keys = keys_of(0, 0, np.arange(100_000))
    assert len(np.unique(keys)) == 100_000
    numbers = Stream(keys).uniform(2)
    assert len(np.unique(numbers[:, 0])) == 100_000
    assert abs(np.corrcoef(numbers[:-1, 0], numbers[1:, 0])[0, 1]) < 0.02
    assert abs(np.corrcoef(numbers[:, 0], numbers[:, 1])[0, 1]) < 0.02
    steps = kornia.augmentation(translate(v2.RandomResizedCrop(8)).ops).steps([(3, 200, 300)] * 64, np.arange(64))
    boxes = {tuple(step.values[key][row] for key in ("top", "left", "height", "width")) for step in steps for row in range(64)}
    assert len(boxes) > 60


@pytest.mark.parametrize("bits", range(8))
def test_each_bit_of_an_index_counts(bits: int) -> None:
    one, other = Stream(keys_of(0, 0, [5])), Stream(keys_of(0, 0, [5 ^ (1 << (8 * bits % 63))]))
    assert abs(one.uniform(64) - other.uniform(64)).min() > 0


def test_fields_of_noise_have_torchvisions_moments() -> None:
    images = torch.full((200, 3, 16, 16), 128, dtype=torch.uint8)
    listed = translate(v2.GaussianNoise(0.1, 0.05)).ops
    ours = kornia.augmentation(listed)(images).float()
    theirs = torch.stack([v2.GaussianNoise(0.1, 0.05)(one) for one in images]).float()
    assert abs(ours.mean() - theirs.mean()) < 0.3
    assert abs(ours.std() - theirs.std()) < 0.2
    assert not torch.equal(ours[0], ours[1])


def test_the_weights_of_mixed_chains_are_torchvisions() -> None:
    (op,) = translate(v2.AugMix()).ops
    (step,) = kornia.augmentation([op]).steps([(3, 8, 8)] * 3000, np.arange(3000))
    weights = step.values["weights"]
    assert np.allclose(weights.sum(axis=1), 1)
    kept = torch._sample_dirichlet(torch.ones(3000, 2))[:, 0].numpy()
    assert distribution.two_sample(weights[:, 0], kept) > 1e-4
