"""`FastLoader(fuse=...)`: the samples of the dataset's own code, under the same numbers, in the same batches."""

from __future__ import annotations

import collections
import math
import pickle
import random
import shutil
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    Sampler,
    Subset,
    WeightedRandomSampler,
    default_collate,
    get_worker_info,
)
from torchvision import io as tvio
from torchvision import transforms as v1
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from pipefix.caches.convert import convert, recipe_of
from pipefix.caches.dataset import CachedDataset
from pipefix.kernels.kernel import native
from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.fusing import in_part
from pipefix.loader.fusing.source import FusedSource, settings_of
from pipefix.loader.fusing.threads import PendingBatch
from pipefix.plan.planfile import AugmentationChange, PlanFile, write
from tests.loader import pipelines
from tests.loader.likeness import assert_same

M, S = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
TRAIN = v1.Compose([v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(M, S)])
# Bicubic: by bilinear, an older torchvision resizes floats on some CPUs.
TENSORS = v2.Compose(
    [
        v2.RandomResizedCrop(32, interpolation=v2.InterpolationMode.BICUBIC),
        v2.RandomHorizontalFlip(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(M, S),
    ]
)


@pytest.fixture(scope="module")
def folder(pictures: Callable[[int], Path]) -> Path:
    return pictures(19)


@pytest.fixture(autouse=True)
def whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """`test_in_part.py` is about the rest."""
    monkeypatch.setattr(in_part, "LEAST_GAIN", math.inf)


def both(dataset: Any, fuse: str = "exact", **options: Any) -> tuple[list[Any], list[Any], FastLoader[Any]]:
    """Batches of the fused loader, and of the one that runs the dataset's own code under the same numbers."""
    workers = options.pop("num_workers", 2)
    torch.manual_seed(7)
    fused = FastLoader(dataset, fuse=fuse, num_workers=workers, **options)
    batches = [batch for _ in range(2) for batch in fused]
    torch.manual_seed(7)
    own = FastLoader(dataset, rng="sample", num_workers=0, **options)
    return batches, [batch for _ in range(2) for batch in own], fused


def assert_fused(loader: FastLoader[Any]) -> None:
    assert "by fused calls" in loader.explain(), loader.explain()


OPTIONS: dict[str, dict[str, Any]] = {
    "shuffled": {"batch_size": 4, "shuffle": True},
    "dropping the last": {"batch_size": 4, "shuffle": True, "drop_last": True},
    "weights": {"batch_size": 5, "sampler": WeightedRandomSampler([0.1, 0.9] * 9, 14)},
    "batches": {"batch_sampler": [[3, 1], [7], [5, 5, 18]]},
    "a rank": {"batch_size": 3, "sampler": DistributedSampler(range(19), num_replicas=2, rank=1, shuffle=False)},
}


@pytest.mark.parametrize(("name", "workers"), [*((name, 2) for name in OPTIONS), ("shuffled", 0)])
def test_batches_are_those_of_the_datasets_own_code(name: str, workers: int, folder: Path) -> None:
    batches, own, loader = both(ImageFolder(str(folder), TRAIN), num_workers=workers, **OPTIONS[name])
    assert_same(batches, own)
    assert_fused(loader)
    assert len(loader) * 2 == len(batches)
    if name == "a rank":
        assert batches[0][1].tolist() == batches[4][1].tolist()
        assert not torch.equal(batches[0][0], batches[4][0]), "each epoch draws anew"


def test_close_is_close_and_says_how_close_before_it_is_used(folder: Path) -> None:
    dataset = ImageFolder(
        str(folder), v1.Compose([v1.ToTensor(), v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), v1.Normalize(M, S)])
    )
    declining = FastLoader(dataset, fuse="close", num_workers=1)
    with pytest.warns(UserWarning, match=r"fuse='close': pixels differ from the list's own by 0\.\d+ levels .* at most"):
        assert "(close): pixels differ from the list's own by 0." in declining.explain()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(declining)  # said once
    with pytest.warns(UserWarning, match="fuse='close'"):
        batches, own, _ = both(dataset, "close", batch_size=19)
    assert (batches[0][0] - own[0][0]).abs().mean() / (1 / 255 / 0.225) < 1
    with pytest.warns(UserWarning, match="fuse='close'"):
        assert list(FastLoader(dataset, fuse="close"))
    in_part_made = "" if native() is None else "; made in part"
    assert f"Not fused: the list resizes floats, the kernel bytes, so that pixels would not be equal to the bit{in_part_made}" in (
        FastLoader(dataset, fuse="exact").explain()
    )


class Named(ImageFolder):
    """More than pictures and labels."""

    def __getitem__(self, index: int) -> Any:
        picture, label = super().__getitem__(index)
        return {"picture": picture, "label": label, "path": self.samples[index][0], "weight": torch.tensor(index / 2)}


class DrawnAtOnce(Sampler[list[int]]):
    """Shuffles where it is asked for an iterator, which torch does twice where there are workers."""

    def __iter__(self) -> Any:
        return iter(random.sample([[first, first + 1] for first in range(0, 18, 2)], 9))


Pair = collections.namedtuple("Pair", "number picture")


class Opens(Dataset[Any]):
    """As most datasets are written."""

    def __init__(self, folder: Path, transform: Any) -> None:
        self.files = sorted(folder.glob("*/*"))
        self.transform = transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        with Image.open(self.files[index]) as opened:
            picture = opened.convert("RGB")
        if self.transform is not None:
            picture = self.transform(picture)
        return Pair(index, picture)


class Reads(Opens):
    def __getitem__(self, index: int) -> Any:
        return self.transform(tvio.decode_image(str(self.files[index]), mode=tvio.ImageReadMode.RGB))


class Around(Dataset[Any]):
    """Transforms outside, the pictures within."""

    def __init__(self, dataset: Any, transform: Any) -> None:
        self.dataset, self.transform = dataset, transform

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        picture, label = self.dataset[index]
        return self.transform(picture), 10 * label


def turned(path: str) -> Any:
    from PIL import ImageOps

    return ImageOps.exif_transpose(Image.open(path)).convert("RGB")


def read(path: str) -> torch.Tensor:
    return tvio.read_image(path, tvio.ImageReadMode.RGB)


def mixed(samples: list[Any]) -> Any:
    """As MixUp does in a collate function."""
    pictures, labels = default_collate(samples)
    share = torch.rand(())
    return pictures * share + pictures.flip(0) * (1 - share), labels, random.random()


DATASETS: dict[str, Callable[[Path], Any]] = {
    "labels made into others": lambda root: ImageFolder(str(root), TRAIN, target_transform=lambda label: [label, -label]),
    "a dict": lambda root: Named(str(root), TRAIN),
    "a part": lambda root: Subset(ImageFolder(str(root), TRAIN), [17, 2, 3, 11, 5, 7]),
    "a part of a part": lambda root: Subset(Subset(ImageFolder(str(root), TRAIN), [17, 2, 3, 11]), [3, 0]),
    "transforms around": lambda root: Around(ImageFolder(str(root)), TRAIN),
    "its own code, Pillow": lambda root: Opens(root, TRAIN),
    "its own code, torchvision": lambda root: Reads(root, TENSORS),
    "a loader that turns": lambda root: ImageFolder(str(root), TRAIN, loader=turned),
    "a loader of tensors": lambda root: ImageFolder(str(root), TENSORS, loader=read),
    "bytes": lambda root: ImageFolder(str(root), v2.Compose([v2.ToImage(), v2.CenterCrop(40)])),
}  # fmt: skip


@pytest.mark.parametrize("name", DATASETS)
def test_whatever_the_datasets_code_does_beside_the_picture(name: str, folder: Path) -> None:
    batches, own, loader = both(DATASETS[name](folder), batch_size=4, shuffle=True)
    assert_fused(loader)
    assert_same(batches, own)


@pytest.mark.parametrize("part", [False, True])
@pytest.mark.parametrize(("store", "size"), [("source", None), ("resized", 64), ("decoded", 64)])
def test_a_cache(store: str, size: int | None, part: bool, folder: Path, tmp_path: Path) -> None:
    dataset = ImageFolder(str(shutil.copytree(folder, tmp_path / "pictures")), TRAIN)
    convert(dataset, recipe_of("lmdb", store, size=size), tmp_path / "cache", target="folder", workers=1)
    cache = CachedDataset(tmp_path / "cache", dataset=dataset)
    shutil.rmtree(tmp_path / "pictures")
    batches, own, loader = both(Subset(cache, [3, 1, 7, 11, 5]) if part else cache, batch_size=4, shuffle=True)
    assert_fused(loader)
    assert_same(batches, own)


def stacked(samples: list[Any]) -> Any:
    """A collate function of the user's own, which looks at where it runs."""
    info = get_worker_info()
    return torch.stack([picture for picture, _ in samples]), [label for _, label in samples], info is not None


def told(worker: int) -> None:
    assert type(get_worker_info().dataset) is ImageFolder and get_worker_info().id == worker


class TestProcesses:
    """Where the loader's options ask for worker processes, these make the fused batches."""

    def test_each_reason_is_told(self, folder: Path) -> None:
        for options, why in (
            ({"engine": "processes"}, "engine='processes'"),
            ({"collate_fn": stacked}, "collate_fn is your own"),
            ({"worker_init_fn": told}, "worker_init_fn is called in them"),
            ({"sample_timeout": 60}, "sample_timeout interrupts them"),
        ):
            loader: Any = FastLoader(ImageFolder(str(folder), TRAIN), fuse="exact", num_workers=2, **options)
            assert loader.explain().startswith(f"Worker processes ({why}) make batches by fused calls. ")

    def test_batches_are_the_same(self, folder: Path) -> None:
        dataset = ImageFolder(str(folder), TRAIN)
        options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "collate_fn": stacked}
        torch.manual_seed(7)
        loader = FastLoader(dataset, fuse="exact", num_workers=2, worker_init_fn=told, sample_timeout=60, **options)
        batches = [batch for _ in range(2) for batch in loader]
        torch.manual_seed(7)
        unfused = FastLoader(dataset, rng="sample", **options)
        assert_same([batch[:2] for batch in batches], [batch[:2] for _ in range(2) for batch in unfused])
        assert all(in_worker for _, _, in_worker in batches)
        assert "is known to the workers alone" in loader.explain()

    def test_the_twin_is_called_in_them(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its many short calls would have threads wait for each other."""
        monkeypatch.setitem(sys.modules, "pipefix.kernels.native", None)
        batches, own, loader = both(ImageFolder(str(folder), TRAIN), num_workers=2, batch_size=4)
        assert_same(batches, own)
        assert loader.explain().startswith("Worker processes (without the native kernel threads take turns) make batches by fused")
        assert "in one twin call" in loader.explain()

    def test_a_collate_function_that_draws(self, folder: Path) -> None:
        """Its numbers are the batch's own, as without fuse; the user's generator is left alone."""
        batches, own, loader = both(ImageFolder(str(folder), TRAIN), batch_size=4, collate_fn=mixed, num_workers=0)
        assert_fused(loader)
        assert_same(batches, own)

    def test_settings_that_a_text_would_round_are_seen(self, folder: Path) -> None:
        dataset = ImageFolder(str(folder), v1.Compose([v1.RandomResizedCrop(32, scale=(0.5, 0.50001)), v1.ToTensor()]))
        before = settings_of(dataset.transform)
        dataset.transform.transforms[0].scale = (0.5, 0.50002)
        assert settings_of(dataset.transform) != before


class TestDeclined:
    """Each reason is a sentence, and the loader goes on as without."""

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            ({"engine": "torch"}, "engine='torch' asks for another way"),
            ({"batch_size": None}, "batch_size=None puts no samples into batches"),
            ({"sample_timeout": 60}, "without workers sample_timeout would have to interrupt threads"),
        ],
    )
    def test_by_the_loaders_options(self, options: dict[str, Any], why: str, folder: Path) -> None:
        loader = FastLoader(ImageFolder(str(folder), TRAIN), fuse="exact", **options)
        assert loader.explain().startswith(f"Not fused: {why}. ")
        assert len(list(loader)) == 19
        assert f"Not fused: {why}." in loader.explain()

    def declined(self, dataset: Any, why: str) -> None:
        torch.manual_seed(1), np.random.seed(1), random.seed(1)
        before = torch.get_rng_state()
        assert f"Not fused: {why.rstrip('.')}" in FastLoader(dataset, fuse="exact").explain()
        assert torch.equal(torch.get_rng_state(), before)

    def test_by_the_dataset(self, folder: Path) -> None:
        root = str(folder)
        self.declined(pipelines.Stream(), "the dataset is a stream, or made of data pipes: its samples are not asked for by index.")
        self.declined(pipelines.Tensors(), "the dataset has no transforms (an attribute such as transform).")
        self.declined(
            Around(ImageFolder(root, TRAIN), TRAIN), "the dataset has more than one list of transforms (transform, transform)."
        )
        self.declined(Subset(ImageFolder(root, TRAIN), []), "the dataset is empty.")
        self.declined(
            ImageFolder(root, v1.Compose([v1.Resize(32), v1.ColorJitter(0.5), v1.ToTensor()])), "ColorJitter is no transform"
        )
        self.declined(
            ImageFolder(root, v1.Compose([v1.Resize(32), v1.ToTensor()])), "samples are of different sizes, as their pictures are."
        )
        grey = ImageFolder(root, TRAIN, loader=lambda path: Image.open(path).convert("L"))
        self.declined(
            grey, "its loader TestDeclined.test_by_the_dataset.<locals>.<lambda> gives a PIL Image in L with pixels of its own, "
        )
        self.declined(Odd(folder, "size"), "the dataset's code asks the picture for its size.")
        self.declined(Odd(folder, "kind"), "the dataset's code asks what the picture is.")
        self.declined(Odd(folder, "twice"), "the dataset's code gives 2 pictures a sample.")
        self.declined(Odd(folder, "none"), "the dataset's code gives no pictures a sample.")
        self.declined(Odd(folder, "random"), "the dataset's code draws random numbers beside its transforms.")
        self.declined(
            Odd(folder, "other"), "the dataset's code hands its transforms something else than the picture that was loaded."
        )
        self.declined(Odd(folder, "missing"), "the dataset's code does not go without its picture (KeyError: 'missing').")
        self.declined(Odd(folder, "grey"), "the dataset's code converts pictures to 'L'.")
        self.declined(Batched(root, TRAIN), "the dataset reads whole batches itself (__getitems__).")
        self.declined(Unknown(folder, TRAIN), "it is not known how the dataset opens pictures ")

    @pytest.mark.parametrize("kind", ["Remembers", "RemembersInPart"])
    def test_a_dataset_that_remembers_its_samples_is_shown_none_but_its_own(self, kind: str, folder: Path) -> None:
        transform = TRAIN if kind == "Remembers" else v1.Compose([v1.CenterCrop(32), v1.RandomRotation(5), v1.ToTensor()])
        dataset = Remembers(folder, transform)
        sentence = FastLoader(dataset, fuse="exact").explain()
        assert "Not fused: " in sentence
        assert not dataset.seen, "a trial left something behind"
        if kind == "Remembers":
            assert "keeps what it is given in a picture's place" in sentence
        assert all(isinstance(dataset[index], torch.Tensor) for index in range(len(dataset)))

    def test_classes_that_are_told_of_subclasses_are_told_of_none(self, folder: Path) -> None:
        loader = FastLoader(Registered(folder, TRAIN), fuse="exact")
        assert "it is not known how the dataset opens pictures" in loader.explain()
        assert Registers.registered == ["Registered"]

    def test_by_a_plan(self, folder: Path, tmp_path: Path) -> None:
        path = tmp_path / "pipefix.plan.toml"
        write(PlanFile(augmentation=AugmentationChange(backend="kornia")), path)
        loader = FastLoader(ImageFolder(str(folder), TRAIN), fuse="close", plan=path)
        assert loader.explain().startswith("Not fused: the plan moves transforms to whole batches. ")


def upside_down_dogs(path: str) -> Any:
    """Looks at where a picture lies: small pictures elsewhere do not show it."""
    picture = Image.open(path).convert("RGB")
    return picture.transpose(Image.Transpose.ROTATE_180) if "dog" in path else picture


def only_in_workers(path: str) -> Any:
    if "dog" in path:
        raise OSError("not today")
    return Image.open(path).convert("RGB")


class TestProof:
    """Nothing is fused before samples from all over the dataset were really made both ways."""

    def test_samples_that_cannot_be_read_agree_with_nothing(self, folder: Path, tmp_path: Path) -> None:
        dataset = ImageFolder(str(folder), TRAIN, loader=upside_down_dogs)
        for number in range(4):
            dataset.samples[number] = (str(tmp_path / "gone.jpg"), 0)
        assert "Not fused: sample " in (sentence := FastLoader(dataset, fuse="exact").explain())
        assert "differs from the dataset's own by" in sentence

    def test_without_any_that_can_be_read_nothing_is_fused(self, folder: Path, tmp_path: Path) -> None:
        dataset = ImageFolder(str(folder), TRAIN)
        dataset.samples = [(str(tmp_path / f"gone{number}.jpg"), 0) for number in range(9)]
        assert (
            "Not fused: of 9 samples that were tried, 0 could be compared with what the dataset's own code makes of them "
            "(sample 0: FileNotFoundError: [Errno 2] No such file or directory: "
        ) in FastLoader(dataset, fuse="exact").explain()

    def test_what_the_datasets_code_refuses_is_not_made_without_it(self, folder: Path) -> None:
        dataset = ImageFolder(str(folder), TRAIN, loader=only_in_workers)
        sentence = FastLoader(dataset, fuse="exact").explain()
        assert "Not fused: the dataset's own code raises OSError (not today) for sample " in sentence

    def test_they_come_from_all_over_the_dataset(self, folder: Path) -> None:
        dataset = ImageFolder(str(folder), TRAIN, loader=upside_down_dogs)
        dataset.samples = [entry for kind in ("cat", "dog") for entry in dataset.samples if kind in entry[0]]
        assert "differs from the dataset's own by" in FastLoader(dataset, fuse="exact").explain()

    def test_a_dataset_of_one_sample_is_compared_in_it(self, folder: Path) -> None:
        batches, own, loader = both(Subset(ImageFolder(str(folder), TRAIN), [1]), batch_size=1)
        assert_fused(loader)
        assert_same(batches, own)


class Odd(Opens):
    """Does something to its pictures."""

    def __init__(self, folder: Path, how: str) -> None:
        super().__init__(folder, TRAIN)
        self.how = how

    def __getitem__(self, index: int) -> Any:
        if self.how == "grey":
            return self.transform(Image.open(self.files[index]).convert("L"))
        picture = Image.open(self.files[index]).convert("RGB")
        if self.how == "size" and picture.size[0] > 70:
            return self.transform(picture), 1
        if self.how == "kind" and not isinstance(picture, Image.Image):
            return None
        if self.how == "other":
            return self.transform(np.zeros((40, 40, 3)))
        if self.how == "missing":
            return {}["missing"]
        if self.how == "random":
            return self.transform(picture), random.random()
        picture_made = self.transform(picture)
        return {"twice": (picture_made, picture_made), "none": index}.get(self.how, picture_made)


class Remembers(Opens):
    def __init__(self, folder: Path, transform: Any) -> None:
        super().__init__(folder, transform)
        self.seen: dict[int, Any] = {}

    def __getitem__(self, index: int) -> Any:
        if index not in self.seen:
            self.seen[index] = self.transform(Image.open(self.files[index]).convert("RGB"))
        return self.seen[index]


class Registers(Opens):
    registered: ClassVar[list[str]] = []

    def __init_subclass__(cls, *, name: str) -> None:
        Registers.registered.append(name)


class Registered(Registers, name="Registered"):
    pass


class Batched(ImageFolder):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in reversed(indices)]


class Unknown(Opens):
    def __getitem__(self, index: int) -> Any:
        return self.transform(other_module_opens(self.files[index]))


def other_module_opens(path: Path) -> Any:
    return Image.open(path).convert("RGB")


class TestBadPictures:
    @pytest.fixture
    def torn(self, tmp_path: Path, photo: Callable[..., bytes]) -> ImageFolder:
        for number in range(12):
            data = photo(60 + number, 50)
            (tmp_path / "all").mkdir(exist_ok=True)
            (tmp_path / "all" / f"{number:02d}.jpg").write_bytes({4: data[:900], 9: b"nothing"}.get(number, data))
        return ImageFolder(str(tmp_path), TRAIN)

    def test_the_librarys_own_error_names_the_file_and_iteration_goes_on(self, torn: ImageFolder) -> None:
        loader = FastLoader(torn, batch_size=4, fuse="exact", num_workers=2)
        iterator = iter(loader)
        assert next(iterator)[1].tolist() == [0] * 4
        with pytest.raises(OSError, match=r"image file is truncated .* \(sample 4, .*04\.jpg\)"):
            next(iterator)
        with pytest.raises(OSError, match=r"cannot identify image file .*09\.jpg"):
            next(iterator)
        assert list(iterator) == []
        assert_fused(loader)

    @pytest.mark.parametrize("how", ["skip", "refill"])
    def test_they_are_lived_with(self, how: str, torn: ImageFolder, tmp_path: Path) -> None:
        options = {"batch_size": 4, "on_bad": how, "max_bad": 0.5, "quarantine": str(tmp_path / "bad.jsonl")}
        batches, own, loader = both(torn, **options)
        assert_same(batches, own)
        assert "4 samples could not be read" in loader.explain() or "2 samples could not be read" in loader.explain()
        lines = [line for line in (tmp_path / "bad.jsonl").read_text().splitlines() if "04.jpg" in line]
        assert len(lines) == 4 and len(set(lines)) == 2  # each epoch once, told alike by both loaders

    def test_a_batch_of_none_is_left_out(self, torn: ImageFolder, tmp_path: Path) -> None:
        loader = FastLoader(torn, batch_sampler=[[4, 9], [1]], fuse="exact", on_bad="skip", max_bad=1, quarantine=None)
        assert [labels.tolist() for _, labels in loader] == [[0]]


class TestResume:
    @pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0)])
    def test_what_follows_is_the_same(self, before: int, after: int, folder: Path) -> None:
        dataset = ImageFolder(str(folder), TRAIN)
        torch.manual_seed(3)
        whole = FastLoader(dataset, batch_size=4, shuffle=True, fuse="exact", num_workers=before)
        list(whole)
        iterator = iter(whole)
        next(iterator), next(iterator)
        state = whole.state_dict()
        rest = list(iterator)
        torch.manual_seed(99)
        resumed = FastLoader(dataset, batch_size=4, shuffle=True, fuse="exact", num_workers=after)
        resumed.load_state_dict(state)
        assert_same(list(resumed), rest)
        unfused = FastLoader(dataset, batch_size=4, shuffle=True, rng="sample")
        unfused.load_state_dict(state)
        assert_same(list(unfused), rest)

    def test_the_end_is_the_end_also_of_an_order_that_was_dealt_anew(self, folder: Path) -> None:
        """Asked once more, the loader waited for ever for threads that had ended; where they are kept, the order began again."""

        def loader(batch_size: int) -> FastLoader[Any]:
            dataset = ImageFolder(str(folder), TRAIN)
            return FastLoader(dataset, batch_size=batch_size, fuse="exact", num_workers=1, persistent_workers=True)

        whole, resumed = loader(4), loader(5)
        next(iter(whole))
        resumed.load_state_dict(whole.state_dict())
        iterator = iter(resumed)
        assert [len(batch[1]) for batch in iterator] == [5, 5, 5]
        assert next(iterator, None) is None


class TestManners:
    def test_a_batch_belongs_to_the_caller(self, folder: Path) -> None:
        loader = FastLoader(ImageFolder(str(folder), TRAIN), batch_size=2, fuse="exact", num_workers=2)
        pictures = [batch[0] for batch in loader]
        once = [batch.clone() for batch in pictures]
        views = [batch[0][-1] for batch in loader]
        for _ in range(2):
            list(loader)
        assert_same(pictures, once)
        assert not any(torch.equal(picture[-1], view) for picture, view in zip(pictures, views, strict=True))

    def test_memory_is_used_again(self, folder: Path) -> None:
        loader = FastLoader(ImageFolder(str(folder), TRAIN), batch_size=2, fuse="exact", num_workers=1)
        places = set()
        for batch in loader:
            places.add(batch[0].data_ptr())
            del batch
        assert len(places) <= 6 < len(loader)

    @pytest.mark.skipif(native() is None, reason="without the native kernel threads would take turns: processes do it")
    @pytest.mark.parametrize(("sampler", "ahead"), [(BatchSampler(range(19), 4, False), 2), ([[1, 2, 3, 4]] * 20, 4)])
    def test_no_more_batches_are_made_ahead_where_a_batch_sampler_makes_them(self, sampler: Any, ahead: int, folder: Path) -> None:
        """Eight were, and their memory stayed with the loader: so many as would be enough if each had one sample."""
        iterator: Any = iter(FastLoader(ImageFolder(str(folder), TRAIN), batch_sampler=sampler, fuse="exact", num_workers=2))
        assert len(iterator._under_way) == ahead

    def test_persistent_workers_and_an_epoch_left_early(self, folder: Path) -> None:
        dataset = ImageFolder(str(folder), TRAIN)
        options = {"batch_size": 4, "shuffle": True, "num_workers": 2, "persistent_workers": True, "fuse": "exact"}
        torch.manual_seed(5)
        loader = FastLoader(dataset, **options)
        first = iter(loader)
        next(first)
        assert iter(loader) is first
        batches = list(loader)
        torch.manual_seed(5)
        own = DataLoader(range(19), **{name: value for name, value in options.items() if name != "fuse"})
        next(iter(own)), iter(own)
        assert [batch[1].tolist() for batch in batches] == [[dataset.targets[index] for index in batch] for batch in own]

    def test_an_iterator_that_was_told_to_end_its_workers_gives_no_batch_and_the_next_one_does(self, folder: Path) -> None:
        """As many programs do. The next batch was waited for for ever, in later epochs too."""
        dataset = ImageFolder(str(folder), TRAIN)
        loader = FastLoader(dataset, batch_size=4, num_workers=2, persistent_workers=True, fuse="exact")
        begun: Any = iter(loader)
        begun._shutdown_workers()
        with pytest.raises((AssertionError, RuntimeError), match=r"shut ?down"):
            next(begun)
        assert len(list(loader)) == 5

    @pytest.mark.skipif(native() is None, reason="without the native kernel threads would take turns: processes do it")
    def test_threads_end_with_their_iterator(self, folder: Path) -> None:
        loader = FastLoader(ImageFolder(str(folder), TRAIN), batch_size=4, fuse="exact", num_workers=2)
        iterator = iter(loader)
        next(iterator)
        working = [thread for thread in threading.enumerate() if thread.name.startswith("pipefix-")]
        assert len(working) >= 2
        del iterator
        for thread in working[-2:]:
            thread.join()

    def test_another_default_device_is_none_of_the_pictures(self, folder: Path) -> None:
        fixed = v1.Compose([v1.Resize(40), v1.CenterCrop(32), v1.ToTensor(), v1.Normalize(M, S)])
        with torch.device("meta"):  # as under torch.set_default_device("cuda")
            assert_fused(FastLoader(ImageFolder(str(folder), fixed), batch_size=4, fuse="exact"))

    def test_a_batch_sampler_that_draws_its_order_at_once_draws_that_of_data_loader(self, folder: Path) -> None:
        orders = []
        for kind, own in ((DataLoader, {}), (FastLoader, {"fuse": "exact"})):
            random.seed(5)
            loader: Any = kind(Named(str(folder), TRAIN), batch_sampler=DrawnAtOnce(), num_workers=1, **own)
            orders.append([batch["path"] for batch in loader])
        assert orders[1] == orders[0]

    def test_transforms_changed_between_epochs_are_seen(self, folder: Path) -> None:
        dataset = ImageFolder(str(folder), v1.Compose([v1.RandomResizedCrop(32), v1.ToTensor()]))
        loader = FastLoader(dataset, batch_size=4, fuse="exact")
        assert next(iter(loader))[0].shape == (4, 3, 32, 32)
        dataset.transform.transforms[0].size = (24, 40)
        assert next(iter(loader))[0].shape == (4, 3, 24, 40)

    def test_a_loader_that_was_used_can_be_pickled_and_built_anew(self, folder: Path) -> None:
        loader = FastLoader(ImageFolder(str(folder), TRAIN), batch_size=4, fuse="exact")
        batches = list(loader)
        again = pickle.loads(pickle.dumps(loader))
        assert_same([batch[1] for batch in again], [batch[1] for batch in batches])
        assert_fused(again)
        assert FastLoader(loader.dataset, batch_size=4, fuse=loader.fuse).fuse == "exact"

    def test_timeout(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        go = threading.Event()
        begin = FusedSource.begin
        loader = FastLoader(ImageFolder(str(folder), TRAIN), batch_size=4, fuse="exact", num_workers=1, timeout=0.05)
        assert_fused(loader)
        monkeypatch.setattr(FusedSource, "begin", lambda *args: (go.wait(), begin(*args))[1])
        iterator = iter(loader)
        with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.05 seconds"):
            next(iterator)
        go.set()
        monkeypatch.setattr(FusedSource, "begin", begin)

    def test_a_wait_that_is_broken_off_loses_no_batch(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(*_: Any) -> bool:
            raise KeyboardInterrupt

        iterator = iter(FastLoader(ImageFolder(str(folder), TRAIN), batch_size=4, fuse="exact", num_workers=0))
        next(iterator)
        with monkeypatch.context() as ctrl_c:
            ctrl_c.setattr(PendingBatch, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(iterator)
        assert [len(batch[1]) for batch in iterator] == [4, 4, 4, 3]
