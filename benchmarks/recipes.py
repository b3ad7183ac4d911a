"""Twelve transform lists that people train and evaluate with, and seven ways to write a dataset of pictures."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision import transforms as v1
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_image, read_file
from torchvision.transforms import v2

M, S = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
BILINEAR, CUBIC = v1.InterpolationMode.BILINEAR, v1.InterpolationMode.BICUBIC


class Views:
    """Several views of a picture, as contrastive learning's public code makes them."""

    def __init__(self, *lists: Any) -> None:
        self.lists = lists

    def __call__(self, picture: Any) -> list[Any]:
        return [one(picture) for one in self.lists]


class Lists:
    """The lists, of one of torchvision's two libraries of transforms; on Pillow's pictures, or on tensors of bytes."""

    def __init__(self, of: Any = v1, *, tensors: bool = False) -> None:
        self.of, self.tensors = of, tensors
        self.values = [v2.ToDtype(torch.float, scale=True) if tensors else of.ToTensor(), of.Normalize(M, S)]
        self.bytes = [] if tensors else [of.PILToTensor()]

    def contrastive(self, side: int, scale: tuple[float, float], filter: Any = BILINEAR) -> Any:
        of = self.of
        crop = [of.RandomResizedCrop(side, scale, interpolation=filter), of.RandomHorizontalFlip()]
        colours = [of.RandomApply([of.ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8), of.RandomGrayscale(0.2)]
        return of.Compose([*crop, *colours, of.RandomApply([of.GaussianBlur(9, (0.1, 2.0))], 0.5), *self.values])

    def train(self, *operations: Any, scale: tuple[float, float] = (0.08, 1.0), filter: Any = BILINEAR, erased: float = 0.0) -> Any:
        of = self.of
        crop = [of.RandomResizedCrop(224, scale, interpolation=filter), of.RandomHorizontalFlip()]
        return of.Compose([*crop, *operations, *self.values, *([of.RandomErasing(erased)] if erased else [])])

    def reference(self, side: int, operation: Any) -> Any:
        """torchvision's."""
        of = self.of
        values = [*self.bytes, of.ConvertImageDtype(torch.float), of.Normalize(M, S), of.RandomErasing(0.1)]
        return of.Compose([of.RandomResizedCrop(side), of.RandomHorizontalFlip(), operation, *values])

    def every(self) -> dict[str, Any]:
        of, values = self.of, self.values
        simclr = self.contrastive(224, (0.08, 1.0))
        large, small = self.contrastive(224, (0.4, 1.0), CUBIC), self.contrastive(96, (0.05, 0.4), CUBIC)
        bent = [of.RandomRotation(15), of.RandomAffine(0, (0.1, 0.1)), of.RandomPerspective(0.2)]
        padded = [of.Resize((224, 224)), of.RandomCrop(224, padding=28), of.RandomHorizontalFlip()]
        return {
            "ResNet": self.train(),
            "MAE": self.train(scale=(0.2, 1.0), filter=CUBIC),
            "evaluation": of.Compose([of.Resize(256), of.CenterCrop(224), *values]),
            "evaluation, bicubic": of.Compose([of.Resize(256, CUBIC), of.CenterCrop(224), *values]),
            "torchvision's reference": self.reference(176, of.TrivialAugmentWide()),
            "torchvision's reference in v2": Lists(v2, tensors=self.tensors).reference(224, v2.RandAugment()),
            "SimCLR, two views": Views(simclr, simclr),
            "DINO, two large and four small views": Views(large, large, *[small] * 4),
            "timm's default": self.train(of.ColorJitter(0.4, 0.4, 0.4), filter=CUBIC, erased=0.25),
            "AutoAugment": self.train(of.AutoAugment(), erased=0.25),
            "rotation, affine, perspective": of.Compose([of.Resize(256), *bent, of.CenterCrop(224), *values]),
            "a crop that pads": of.Compose([*padded, *values]),
        }


def read(path: str) -> torch.Tensor:
    return decode_image(read_file(path), mode=ImageReadMode.RGB)


class Files(Dataset[Any]):
    """The files of a folder, and what becomes of one."""

    def __init__(self, folder: Path, transform: Any) -> None:
        self.files = sorted(str(path) for path in folder.rglob("*.jpg"))
        self.transform = transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        return self.transform(Image.open(self.files[index]).convert("RGB")), index


class Dicts(Files):
    def __getitem__(self, index: int) -> Any:
        picture = Image.open(self.files[index]).convert("RGB")
        return {"picture": self.transform(picture), "number": index, "path": self.files[index]}


class Bytes(Files):
    """Bytes from anywhere: a database, an archive, the network."""

    def __getitem__(self, index: int) -> Any:
        with open(self.files[index], "rb") as file:
            data = file.read()
        return self.transform(Image.open(io.BytesIO(data)).convert("RGB")), index


class Masked(Files):
    """A picture and its mask, cut alike, by code that asks for the picture's size."""

    def __getitem__(self, index: int) -> Any:
        picture = Image.open(self.files[index]).convert("RGB")
        mask = Image.new("L", picture.size, index % 20)
        box = v1.RandomCrop.get_params(picture, (224, 224))
        values = v1.Compose(Lists().values)
        return values(v1.functional.crop(picture, *box)), torch.from_numpy(np.array(v1.functional.crop(mask, *box)))


class OpenCV(Files):
    def __getitem__(self, index: int) -> Any:
        import cv2

        picture = cv2.cvtColor(cv2.imread(self.files[index]), cv2.COLOR_BGR2RGB)
        return self.transform(image=picture)["image"], index


def _albumentations() -> Any:
    import albumentations
    from albumentations.pytorch import ToTensorV2

    crop = albumentations.RandomResizedCrop(size=(224, 224))
    return albumentations.Compose([crop, albumentations.HorizontalFlip(), albumentations.Normalize(M, S), ToTensorV2()])


def _hugging_face(folder: Path) -> Any:
    library = importlib.import_module("datasets")
    files = Files(folder, None).files
    rows = library.Dataset.from_dict({"image": files, "label": list(range(len(files)))}).cast_column("image", library.Image())
    transform = Lists().train()

    def transformed(batch: Any) -> Any:
        return {"pixels": [transform(one.convert("RGB")) for one in batch["image"]], "label": batch["label"]}

    return rows.with_transform(transformed)


DATASETS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "ImageFolder": ("torchvision", lambda folder: ImageFolder(str(folder), Lists().train())),
    "own class, paths": ("torchvision", lambda folder: Files(folder, Lists().train())),
    "dicts": ("torchvision", lambda folder: Dicts(folder, Lists().train())),
    "bytes": ("torchvision", lambda folder: Bytes(folder, Lists().train())),
    "picture and mask": ("torchvision", lambda folder: Masked(folder, None)),
    "OpenCV, albumentations": ("albumentations", lambda folder: OpenCV(folder, _albumentations())),
    "Hugging Face datasets": ("datasets", _hugging_face),
}
"""The library that each needs beside torch, and how it is made. All of them with the ResNet list, or what comes nearest."""
