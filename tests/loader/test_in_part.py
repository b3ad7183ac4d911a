"""Where one call cannot make a sample: what can be fused is, and the rest is the user's own code, with the same samples."""

from __future__ import annotations

import io
import math
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset, default_collate, get_worker_info
from torchvision import transforms as v1
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from pipefix.kernels.kernel import native
from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.fusing import in_part
from pipefix.loader.fusing.batches import FusedCollate, FusedOrders
from pipefix.loader.fusing.fusion import Fusing
from pipefix.loader.policy.read_policy import Asked, ReadPolicy
from tests.loader import pipelines
from tests.loader.likeness import assert_same

M, S = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CUBIC = v1.InterpolationMode.BICUBIC
NORM1, NORM2, FLOAT = v1.Normalize(M, S), v2.Normalize(M, S), v2.ToDtype(torch.float32, scale=True)
CROP1, FLIP1 = v1.RandomResizedCrop(32), v1.RandomHorizontalFlip()
JITTER = v1.RandomApply([v1.ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8)
SIMCLR = v1.Compose([CROP1, FLIP1, JITTER, v1.RandomGrayscale(0.5), v1.GaussianBlur(5), v1.ToTensor(), NORM1])


class TwoViews:
    """As contrastive learning's public code has it."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __call__(self, picture: Any) -> list[Any]:
        return [self.transform(picture), self.transform(picture)]


class Crops:
    """Large and small views, each by a list of its own."""

    def __init__(self) -> None:
        self.large = v1.Compose([v1.RandomResizedCrop(32, (0.4, 1), interpolation=CUBIC), SIMCLR.transforms[2], v1.ToTensor()])
        self.small = v1.Compose([v1.RandomResizedCrop(16, (0.05, 0.4), interpolation=CUBIC), v1.ToTensor()])

    def __call__(self, picture: Any) -> list[Any]:
        return [self.large(picture), self.large(picture), self.small(picture), self.small(picture)]


LISTS: dict[str, Any] = {
    "torchvision's reference": v1.Compose(
        [
            CROP1, FLIP1, v1.TrivialAugmentWide(), v1.PILToTensor(), v1.ConvertImageDtype(torch.float), NORM1,
            v1.RandomErasing(0.5),
        ]
    ),
    "the same in v2": v2.Compose(
        [
            v2.RandomResizedCrop(32, antialias=True), v2.RandomHorizontalFlip(), v2.RandAugment(), v2.PILToTensor(), FLOAT, NORM2,
            v2.RandomErasing(0.5), v2.ToPureTensor(),
        ]
    ),
    "v2 images": v2.Compose([v2.Resize(40), v2.RandomRotation(20), v2.CenterCrop(32), v2.ToImage(), FLOAT, NORM2]),
    "v2 images, erased": v2.Compose([v2.Resize((32, 32)), v2.ColorJitter(0.4), v2.ToImage(), FLOAT, v2.RandomErasing(0.9)]),
    "SimCLR": SIMCLR,
    "timm's default": v1.Compose(
        [
            v1.RandomResizedCrop(32, interpolation=CUBIC), FLIP1, v1.ColorJitter(0.4, 0.4, 0.4), v1.ToTensor(), NORM1,
            v1.RandomErasing(0.5),
        ]
    ),
    "turned and bent": v1.Compose(
        [v1.Resize(40), v1.RandomAffine(15, (0.1, 0.1), (0.8, 1.2), 5), v1.RandomPerspective(), v1.CenterCrop(32), v1.ToTensor()]
    ),
    "a crop that pads": v1.Compose([v1.Resize((32, 32)), v1.RandomCrop(32, padding=4), FLIP1, v1.ToTensor(), NORM1]),
    "own code between": v1.Compose([CROP1, v1.Lambda(lambda image: image.rotate(7)), v1.ToTensor(), v1.Lambda(lambda x: x * 2)]),
    "v2 colours": v2.Compose(
        [
            v2.Resize((32, 32)), v2.ColorJitter(0.4, 0.4, 0.2, 0.3), v2.GaussianBlur((5, 9), (0.1, 2.0)), v2.ToImage(), FLOAT, NORM2
        ]
    ),
    "bytes": v2.Compose([v2.RandomResizedCrop(32), v2.RandomEqualize(0.5), v2.PILToTensor()]),
}  # fmt: skip
VIEWS: dict[str, Any] = {"two views": TwoViews(SIMCLR), "large and small views": Crops()}


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little is gained: these pictures are small."""
    if native() is None:
        pytest.skip("there is no native kernel here")
    monkeypatch.setattr(in_part, "LEAST_GAIN", 0.0)


@pytest.fixture(scope="module")
def folder(pictures: Callable[[int], Path]) -> Path:
    return pictures(13)


def both(dataset: Any, *, rng: str = "sample", workers: int = 0, **options: Any) -> FastLoader[Any]:
    """Two epochs of the loader that fuses in part, against those of the one that runs the dataset's own code."""
    options = {"batch_size": 4, "shuffle": True, **options}
    torch.manual_seed(7), np.random.seed(7), random.seed(7)
    fused: FastLoader[Any] = FastLoader(dataset, fuse="exact", num_workers=workers, **options)
    batches = [batch for _ in range(2) for batch in fused]
    torch.manual_seed(7), np.random.seed(7), random.seed(7)
    own = FastLoader(dataset, rng=rng, num_workers=workers if rng == "torch" else 0, **options)
    assert_same(batches, [batch for _ in range(2) for batch in own])
    return fused


@pytest.mark.parametrize("name", LISTS)
def test_lists(name: str, folder: Path) -> None:
    loader = both(ImageFolder(str(folder), LISTS[name]))
    assert "This process makes batches by fused calls. In part, as " in loader.explain(), loader.explain()


def test_by_worker_processes(folder: Path) -> None:
    loader = both(ImageFolder(str(folder), SIMCLR), workers=2)
    sentence = loader.explain()
    beginning = "Worker processes (your own transforms run in them) make batches by fused calls. In part, as "
    assert sentence.startswith(beginning), sentence
    assert "Samples equal the dataset's own, and take " in sentence


def test_it_says_which_part_went_where(folder: Path) -> None:
    loader = FastLoader(ImageFolder(str(folder), LISTS["torchvision's reference"]), fuse="exact")
    assert (
        "In part, as TrivialAugmentWide is no transform that can be fused: decoding, RandomResizedCrop, RandomHorizontalFlip in "
        "one native call, then TrivialAugmentWide as written, then PILToTensor, ConvertImageDtype, Normalize in one call into the "
        "batch, then RandomErasing there, as written. Samples equal the dataset's own, and take "
    ) in loader.explain()


# -- datasets --------------------------------------------------------------------------------------------------------------


class Records(Dataset[Any]):
    """Pictures as bytes, as databases and archives hold them."""

    def __init__(self, folder: Path, transform: Any, how: str = "plain") -> None:
        self.data = [path.read_bytes() for path in sorted(folder.glob("*/*"))]
        self.transform, self.how = transform, how

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        return self.made(index)

    def made(self, index: int) -> Any:
        picture = Image.open(io.BytesIO(self.data[index])).convert("RGB")
        if self.how == "size":
            return {"picture": self.transform(picture), "size": picture.size, "wide": picture.width > picture.height}
        if self.how == "checked":
            assert isinstance(picture, Image.Image) and picture.mode == "RGB"
        if self.how == "patched":
            picture.paste((255, 0, 0), (0, 0, 9, 9))
        if self.how == "mask":
            mask = Image.fromarray((np.arange(picture.width * picture.height) % 7).astype(np.uint8).reshape(picture.size[::-1]))
            box = v1.RandomCrop.get_params(picture, (32, 32))
            picture, mask = v1.functional.crop(picture, *box), v1.functional.crop(mask, *box)
            return self.transform(picture), torch.from_numpy(np.array(mask))
        return self.transform(picture), index


class Batches(Records):
    """As the datasets library does it: whole batches, transformed together."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        rows = [Image.open(io.BytesIO(self.data[index])) for index in indices]
        for row in rows:
            row.load()
        return [{"pixels": self.transform(row.convert("RGB")), "label": index} for row, index in zip(rows, indices, strict=True)]


TRAIN = v1.Compose([CROP1, FLIP1, v1.ToTensor(), NORM1])


@pytest.mark.parametrize("how", ["plain", "size", "checked", "patched", "mask"])
def test_pictures_of_bytes(how: str, folder: Path) -> None:
    loader = both(Records(folder, TRAIN, how))
    assert "without workers there is nothing to hand over" not in loader.explain()
    assert "by fused calls. In part, as it is not known how the dataset opens pictures" in loader.explain()


class Own(Records):
    """Without transforms that could be found."""

    def __getitem__(self, index: int) -> Any:
        picture = Image.open(io.BytesIO(self.data[index])).convert("RGB").resize((32, 32))
        return torch.from_numpy(np.array(picture)), picture


def stacked(samples: list[Any]) -> Any:
    assert all(type(picture) is Image.Image for _, picture in samples)
    return torch.stack([picture for picture, _ in samples])


class Twice(Records):
    """Two views by calling its transforms twice."""

    def __getitem__(self, index: int) -> Any:
        picture = Image.open(io.BytesIO(self.data[index])).convert("RGB")
        return self.transform(picture), self.transform(picture)


UNEVEN = v1.Compose([v1.ToTensor(), v1.RandomRotation(5), v1.Resize((32, 32), antialias=True)])
AS_THEY_ARE: dict[str, tuple[Callable[[Path], Any], dict[str, Any], str]] = {
    "two views": (lambda folder: ImageFolder(str(folder), VIEWS["two views"]), {"workers": 2}, ""),
    "large and small views": (lambda folder: ImageFolder(str(folder), VIEWS["large and small views"]), {}, ""),
    "values of different sizes": (lambda folder: ImageFolder(str(folder), UNEVEN), {}, ""),
    "whole batches": (lambda folder: Batches(folder, TRAIN), {"workers": 1}, "the dataset reads whole batches itself (__getitems"),
    "no transforms": (lambda folder: Own(folder, None), {"collate_fn": stacked}, "the dataset has no transforms (an attribute"),
    "transforms called twice": (lambda folder: Twice(folder, SIMCLR), {}, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", AS_THEY_ARE)
def test_datasets_whose_code_runs_as_it_is(name: str, folder: Path) -> None:
    """As the stock loader makes their samples, to the bit: by the same numbers of the same workers."""
    make, options, why = AS_THEY_ARE[name]
    assert f"Fused in part, as {why}" in both(make(folder), rng="torch", **options).explain()


# -- manners ---------------------------------------------------------------------------------------------------------------


class TestErrors:
    @pytest.fixture
    def torn(self, folder: Path) -> Records:
        dataset = Records(folder, SIMCLR)
        dataset.data[4] = dataset.data[4][:900]
        return dataset

    def test_the_librarys_own_error(self, torn: Records) -> None:
        iterator = iter(FastLoader(torn, batch_size=4, fuse="exact"))
        next(iterator)
        with pytest.raises(OSError, match="image file is truncated"):
            next(iterator)

    @pytest.mark.parametrize("transform", [SIMCLR, VIEWS["two views"]])
    def test_a_dataset_that_lives_with_bad_files_does_so_as_ever(self, torn: Records, transform: Any) -> None:
        """It looks for the error where Pillow's convert raises it."""

        class Brave(Records):
            def __getitem__(self, index: int) -> Any:
                try:
                    picture = Image.open(io.BytesIO(self.data[index])).convert("RGB")
                except OSError:
                    return self[index + 1]
                return self.transform(picture), index

        torn.__class__ = Brave
        torn.transform = transform
        loader = both(torn, rng="sample" if transform is SIMCLR else "torch")
        assert "n part, as " in loader.explain()

    def test_they_are_lived_with(self, torn: Records) -> None:
        loader = FastLoader(torn, batch_size=4, fuse="exact", on_bad="skip", max_bad=1.0, quarantine=None)
        assert sum(len(labels) for _, labels in loader) == 12


class TestOperations:
    """Hue and blur are native while a sample is made, and nobody else's."""

    @pytest.fixture
    def called(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        from pipefix.kernels.native import NativeKernel

        names: list[str] = []
        for name in ("hue_turned", "blurred"):
            own = getattr(NativeKernel, name)
            monkeypatch.setattr(NativeKernel, name, lambda *args, own=own, name=name: (names.append(name), own(*args))[1])
        return names

    @pytest.mark.parametrize("own", [v1, v2])
    def test_they_are_called_and_equal(self, own: Any, folder: Path, called: list[str]) -> None:
        operations = [own.Resize((41, 37)), own.ColorJitter(0.2, 0.2, 0.2, 0.5), own.GaussianBlur(7, (0.5, 2.0)), own.PILToTensor()]
        loader = both(ImageFolder(str(folder), own.Compose(operations)))
        assert "n part, as" in loader.explain()
        assert called.count("hue_turned") > 20 and called.count("blurred") > 20
        called.clear()
        picture = Image.new("RGB", (50, 40), (9, 80, 7))
        own.functional.adjust_hue(picture, 0.2), own.functional.gaussian_blur(picture, [7, 7], [1.0, 1.0])
        assert called == []

    def test_what_differs_from_torchvisions_is_left_to_it(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """As where torch adds up in another order."""
        from pipefix.kernels.native import NativeKernel

        own = NativeKernel.blurred
        monkeypatch.setattr(NativeKernel, "blurred", lambda *args: own(*args) ^ 1)
        both(ImageFolder(str(folder), v1.Compose([v1.Resize((43, 35)), v1.GaussianBlur(7), v1.ToTensor()])))


class TestManners:
    def test_nothing_is_fused_where_nothing_is_gained(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(in_part, "LEAST_GAIN", math.inf)
        for transform in (SIMCLR, VIEWS["two views"]):
            sentence = FastLoader(ImageFolder(str(folder), transform), fuse="exact").explain()
            assert sentence.startswith("Not fused: ") and "; made in part by native calls, samples take " in sentence

    def test_samples_that_cannot_be_compared(self, folder: Path) -> None:
        """Code that draws from numbers of its own, which nobody can seed."""
        own = np.random.default_rng(0)
        transform = v1.Compose([CROP1, v1.Lambda(lambda picture: picture.rotate(360 * own.random())), v1.ToTensor()])
        for listed in (transform, TwoViews(transform)):
            sentence = FastLoader(Records(folder, listed), fuse="exact").explain()
            assert "; in part neither, as sample " in sentence and " is not the same under the same random numbers" in sentence

    def test_transforms_changed_between_epochs_are_seen(self, folder: Path) -> None:
        dataset = ImageFolder(str(folder), v1.Compose([CROP1, v1.ColorJitter(0.4), v1.ToTensor()]))
        loader = FastLoader(dataset, 4, fuse="exact")
        assert next(iter(loader))[0].max() <= 1
        dataset.transform.transforms.append(NORM1)
        assert next(iter(loader))[0].max() > 1
        dataset.transform = v1.Compose([v1.RandomResizedCrop(24), v1.ColorJitter(0.4), v1.ToTensor()])
        assert next(iter(loader))[0].shape == (4, 3, 24, 24)
        dataset.target_transform = lambda label: label + 100
        assert next(iter(loader))[1].min() >= 100

    def test_the_dataset_and_the_users_generators_stay_as_they_are(self, folder: Path) -> None:
        for transform in (TRAIN, SIMCLR, VIEWS["two views"]):
            dataset = ImageFolder(str(folder), transform)
            before, own, threads = dict(vars(dataset)), Image.open, torch.get_num_threads()
            torch.manual_seed(3), np.random.seed(3), random.seed(3)
            loader = FastLoader(dataset, batch_size=4, fuse="exact")
            loader.explain()
            assert torch.equal(torch.get_rng_state(), torch.Generator().manual_seed(3).get_state())
            assert random.getstate() == random.Random(3).getstate()
            list(loader)
            assert vars(dataset) == before and Image.open is own and torch.get_num_threads() == threads

    def test_nothing_is_opened_here_that_workers_are_to_open(self, folder: Path) -> None:
        """A database that is open when workers are forked is not safe to read in them."""

        class Opens(Records):
            opened = False

            def __getitem__(self, index: int) -> Any:
                self.opened = True
                return super().__getitem__(index)

        for transform in (SIMCLR, VIEWS["two views"]):
            dataset = Opens(folder, transform)
            loader = FastLoader(dataset, 4, fuse="exact", num_workers=1)
            assert len(list(loader)) == 4 and "n part, as" in loader.explain()
            assert not dataset.opened

    def test_workers_see_the_users_dataset(self, folder: Path) -> None:
        for transform in (SIMCLR, VIEWS["two views"]):
            list(FastLoader(Records(folder, transform), 4, fuse="exact", num_workers=1, worker_init_fn=looked))

    def test_what_spawned_workers_are_sent(self, folder: Path) -> None:
        for transform in (TRAIN, SIMCLR):
            dataset = ImageFolder(str(folder), transform)
            fusion: Any = Fusing("exact").decide(FastLoader(dataset, num_workers=1), dataset, moved=False)
            sent = FusedOrders(fusion.source, ReadPolicy(keyed=True)), FusedCollate(default_collate)
            orders, maker = pickle.loads(pickle.dumps(sent))
            order = orders.__getitems__(Asked(0, [3, 1, 7], seed=7))
            assert len(order) == 3, "who counts samples may ask what is yet to be made"
            torch.manual_seed(7)
            assert_same(maker(order), next(iter(FastLoader(dataset, rng="sample", batch_sampler=[[3, 1, 7]]))))


def looked(worker: int) -> None:
    assert type(get_worker_info().dataset) is Records


class TornApart(pipelines.TornTogether):
    """Takes back what its base class has, as torch lets it."""

    __getitems__: Any = None


@pytest.mark.parametrize(
    ("dataset", "at_once"), [(pipelines.Torn(), False), (pipelines.TornTogether(), True), (TornApart(), False)]
)
def test_a_part_of_a_dataset_is_read_as_that_reads_itself(dataset: Any, at_once: bool) -> None:
    """A `Subset` was asked for whole batches, by one thread, whatever threads_per_worker said."""
    for part in (dataset, Subset(dataset, range(8))):
        reads: Any = in_part.ReadInPart(part, None, "", "").reads  # type: ignore[arg-type]
        assert hasattr(reads, "__getitems__") is at_once
