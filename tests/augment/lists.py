"""Every transform of torchvision v2 with parameters that show, and pictures to try them on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional as tv

BILINEAR = InterpolationMode.BILINEAR


def pictures(
    count: int, height: int = 40, width: int = 48, *, channels: int = 3, seed: int = 0, dtype: Any = torch.uint8
) -> torch.Tensor:
    """Smooth pictures with some detail, as photographs have."""
    rng = np.random.default_rng(seed)
    coarse = torch.from_numpy(rng.integers(0, 256, (count, channels, height // 6 + 2, width // 6 + 2), dtype=np.uint8))
    smooth = tv.resize(coarse.float(), [height, width], antialias=True).to(torch.int16)
    fine = torch.from_numpy(rng.normal(0, 6, tuple(smooth.shape)).astype(np.int16))
    bytes_ = (smooth + fine).clamp(0, 255).to(torch.uint8)
    return bytes_ if dtype == torch.uint8 else bytes_.to(dtype) / 255


GEOMETRY: dict[str, Any] = {
    "Resize": v2.Resize((33, 29)),
    "Resize shorter": v2.Resize(25),
    "Resize bicubic": v2.Resize((61, 70), interpolation=InterpolationMode.BICUBIC),
    "Resize plain": v2.Resize((23, 31), antialias=False),
    "RandomResizedCrop": v2.RandomResizedCrop(32),
    "RandomResizedCrop bicubic": v2.RandomResizedCrop((24, 40), interpolation=InterpolationMode.BICUBIC),
    "RandomResizedCrop plain": v2.RandomResizedCrop(32, antialias=False),
    "RandomResizedCrop nearest": v2.RandomResizedCrop(32, interpolation=InterpolationMode.NEAREST),
    "RandomRotation": v2.RandomRotation(40),
    "RandomRotation bilinear": v2.RandomRotation((-90, 30), interpolation=BILINEAR, center=[5, 9], fill=(3, 77, 200)),
    "RandomAffine": v2.RandomAffine(30, (0.1, 0.2), (0.7, 1.3), (-10, 10, -5, 5)),
    "RandomAffine bilinear": v2.RandomAffine(30, (0.1, 0.2), (0.7, 1.3), 10, interpolation=BILINEAR, fill=99),
    "RandomPerspective": v2.RandomPerspective(0.5, p=1.0),
    "RandomPerspective nearest": v2.RandomPerspective(0.4, p=0.7, interpolation=InterpolationMode.NEAREST, fill=9),
    "ElasticTransform": v2.ElasticTransform(80.0, 3.0),
}
EXACT: dict[str, Any] = {
    "CenterCrop": v2.CenterCrop((30, 21)),
    "CenterCrop larger": v2.CenterCrop((60, 20)),
    "RandomCrop": v2.RandomCrop(24),
    "RandomCrop padded": v2.RandomCrop(60, padding=3, pad_if_needed=True, fill=(1, 2, 3)),
    "RandomCrop reflected": v2.RandomCrop(40, padding=4, padding_mode="reflect"),
    "Pad": v2.Pad((1, 2, 3, 4), fill=7),
    "RandomHorizontalFlip": v2.RandomHorizontalFlip(),
    "RandomVerticalFlip": v2.RandomVerticalFlip(0.3),
    "RandomChannelPermutation": v2.RandomChannelPermutation(),
    "RandomInvert": v2.RandomInvert(),
    "RandomPosterize": v2.RandomPosterize(3),
    "RandomSolarize": v2.RandomSolarize(128),
    "RandomEqualize": v2.RandomEqualize(),
    "RandomErasing": v2.RandomErasing(0.7, value=[9.0, 8.0, 7.0]),
    "ToDtype": v2.ToDtype(torch.float32, scale=True),
    "usual end": v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))]),
}
COLOR: dict[str, Any] = {
    "ColorJitter": v2.ColorJitter(0.4, 0.4, 0.4, 0.2),
    "RandomPhotometricDistort": v2.RandomPhotometricDistort(),
    "Grayscale": v2.Grayscale(1),
    "RandomGrayscale": v2.RandomGrayscale(0.5),
    "RandomAutocontrast": v2.RandomAutocontrast(),
    "RandomAdjustSharpness": v2.RandomAdjustSharpness(2.0),
    "GaussianBlur": v2.GaussianBlur((5, 9), (0.1, 3.0)),
    "AutoAugment": v2.AutoAugment(),
    "AutoAugment CIFAR": v2.AutoAugment(v2.AutoAugmentPolicy.CIFAR10),
    "RandAugment": v2.RandAugment(),
    "TrivialAugmentWide": v2.TrivialAugmentWide(),
    "RandomApply": v2.RandomApply([v2.ColorJitter(0.3), v2.GaussianBlur(3)], 0.5),
    "RandomChoice": v2.RandomChoice([v2.RandomInvert(1.0), v2.RandomSolarize(100, 1.0)], p=[0.3, 0.7]),
    "RandomOrder": v2.RandomOrder([v2.RandomInvert(0.5), v2.RandomSolarize(100, 0.5)]),
}
ALL = {**GEOMETRY, **EXACT, **COLOR}
STAYS: dict[str, tuple[Any, str]] = {
    "GaussianNoise": (v2.GaussianNoise(0.05, 0.1), "drawn pixel by pixel"),
    "AugMix": (v2.AugMix(), "computes on pixels by itself"),
    "JPEG": (v2.JPEG((50, 90)), "libjpeg"),
    "FiveCrop": (v2.FiveCrop(8), "several pictures"),
    "expanded": (v2.RandomRotation(30, expand=True), "differ in size"),
    "Lanczos": (v2.Resize((9, 9), interpolation=InterpolationMode.LANCZOS), "PIL only"),
    "LinearTransformation": (v2.LinearTransformation(torch.eye(5760), torch.zeros(5760)), "computes on pixels"),
}
"""What is left to the CPU, and why."""
