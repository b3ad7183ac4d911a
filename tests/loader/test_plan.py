"""A plan file applied: settings, cache and augmentation, and taken away again."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler, TensorDataset

from pipefix.caches.convert import convert, recipe_of
from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.planning import as_planned, planned
from pipefix.loader.workers import start
from pipefix.plan.planfile import AugmentationChange, CacheChange, LoaderChange, PlanFile, TunedOn, write
from pipefix.subject.load import load
from pipefix.vocabulary.errors import BadUsage, UnreadableFile
from tests.loader import pipelines


@pytest.fixture
def plan(tmp_path: Path) -> Any:
    def make(**parts: Any) -> str:
        path = tmp_path / "pipefix.plan.toml"
        write(PlanFile(**parts), path)
        return str(path)

    return make


def test_settings_are_the_plans(plan: Any) -> None:
    change = LoaderChange(
        num_workers=2, prefetch_factor=3, pin_memory=False, persistent_workers=True, start_method="spawn", in_order=False
    )
    loader = FastLoader(pipelines.Tensors(), 4, True, plan=plan(loader=change))
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers, loader.in_order) == (2, 3, True, False)
    assert loader.multiprocessing_context.get_start_method() == "spawn"
    assert loader.batch_size == 4


def test_what_the_plan_does_not_name_stays(plan: Any) -> None:
    loader = FastLoader(pipelines.Tensors(), num_workers=3, prefetch_factor=4, plan=plan(loader=LoaderChange(num_workers=1)))
    assert (loader.num_workers, loader.prefetch_factor) == (1, 4)


def test_a_plan_without_workers_takes_away_what_needs_them(plan: Any) -> None:
    options: dict[str, Any] = {"num_workers": 3, "prefetch_factor": 4, "persistent_workers": True, "timeout": 5}
    loader = FastLoader(pipelines.Tensors(8), plan=plan(loader=LoaderChange(num_workers=0)), **options)
    assert len(list(loader)) == 8


def test_building_it_anew_from_its_attributes_changes_nothing(plan: Any) -> None:
    first = FastLoader(pipelines.Tensors(), batch_size=4, plan=plan(loader=LoaderChange(num_workers=2)))
    again = FastLoader(first.dataset, batch_size=4, num_workers=first.num_workers, plan=first.plan)
    assert again.num_workers == 2 and again.dataset is first.dataset


def test_threads_of_workers_are_set(plan: Any) -> None:
    loader = FastLoader(pipelines.Told(), num_workers=1, batch_size=1, plan=plan(loader=LoaderChange(worker_threads=2)))
    assert {int(batch[5]) for batch in loader} == {2}


def test_batches_are_handed_over_as_the_plan_has_it(plan: Any) -> None:
    loader = FastLoader(pipelines.Tensors(8), num_workers=1, batch_size=4, plan=plan(loader=LoaderChange(engine="processes")))
    assert len(list(loader)) == 2
    assert "through reusable shared memory" in loader.explain()
    assert loader.engine == "auto", "as it was passed"
    as_torch = FastLoader(pipelines.Tensors(8), num_workers=1, engine="processes", plan=plan(loader=LoaderChange(engine="torch")))
    assert len(list(as_torch)) == 8
    assert "engine='torch' asks for it" in as_torch.explain()
    older = FastLoader(pipelines.Tensors(8), num_workers=2, batch_size=4, plan=plan(loader=LoaderChange(engine="threads")))
    assert len(list(older)) == 2, "an engine of earlier versions"
    assert "through reusable shared memory" in older.explain()


class Files(Dataset[Any]):
    """Reads a file a sample."""

    def __init__(self, folder: Path, length: int = 12) -> None:
        self.files = [folder / f"{number}.bin" for number in range(length)]
        for number, file in enumerate(self.files):
            if not file.exists():
                file.write_bytes(bytes([number] * 100))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        with open(self.files[index], "rb") as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)


@pytest.fixture
def cached(tmp_path: Path) -> tuple[Files, Path]:
    files = tmp_path / "files"
    files.mkdir()
    dataset = Files(files)
    convert(dataset, recipe_of("lmdb", "source"), tmp_path / "cache", target="files.py", workers=1)
    return dataset, tmp_path


def test_samples_are_read_from_the_plans_cache(cached: Any, plan: Any) -> None:
    dataset, folder = cached
    loader = FastLoader(dataset, batch_size=4, num_workers=1, plan=plan(cache=CacheChange(path="cache", store="source")))
    for file in dataset.files:
        file.unlink()
    assert torch.cat(list(loader))[:, 0].tolist() == list(range(12))
    assert loader.dataset is dataset
    assert f"samples are read from {folder / 'cache'}" in loader.explain()


def test_a_cache_of_another_length_is_refused(cached: Any, plan: Any) -> None:
    dataset, folder = cached
    again = f"pipefix convert files.py --to lmdb --store source --out {folder / 'bad'} --on-bad skip --update; or take"
    dataset.files[5].rename(folder / "away")
    convert(dataset, recipe_of("lmdb", "source", on_bad="skip"), folder / "bad", target="files.py", workers=0)
    with pytest.raises(BadUsage, match="has 11 records, and the dataset 12 samples") as told:
        FastLoader(dataset, plan=plan(cache=CacheChange(path="bad", store="source")))
    assert told.value.advice.startswith(f"Mend the damaged samples that it leaves out. Bring it up to date with: {again}")
    dataset.files = dataset.files[:5]
    with pytest.raises(BadUsage, match="of 12"):
        FastLoader(dataset, plan=plan(cache=CacheChange(path="cache", store="source")))


def test_a_cache_that_fix_made_is_made_anew_by_fix(cached: Any, plan: Any) -> None:
    """Nobody typed ``pipefix convert``."""
    dataset, folder = cached
    (folder / "pipefix-caches").mkdir()
    (folder / "cache").rename(folder / "pipefix-caches" / "source")
    dataset.files = dataset.files[:5]
    with pytest.raises(BadUsage, match="of 12") as told:
        FastLoader(dataset, plan=plan(cache=CacheChange(path="pipefix-caches/source", store="source")))
    assert f"pipefix fix --undo --out {folder}" in told.value.advice
    assert "convert" not in told.value.advice


def test_a_stream_has_no_use_for_a_cache(plan: Any) -> None:
    with pytest.raises(BadUsage, match="the dataset is a stream"):
        FastLoader(pipelines.Stream(), plan=plan(cache=CacheChange(path="cache", store="source")))


def test_a_missing_plan_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"There is no plan file .*none.toml"):
        FastLoader(pipelines.Tensors(), plan=tmp_path / "none.toml")


def test_a_plan_is_of_the_directory_that_it_was_named_in(cached: Any, plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What moves augmentation opens the cache with the first batch, after Hydra has changed the working directory."""
    dataset, folder = cached
    path = plan(cache=CacheChange(path="cache", store="source"))
    monkeypatch.chdir(folder)
    named = planned.Planned(planned.planfile.read(Path(path)), Path(Path(path).name), dataset)
    monkeypatch.chdir(folder / "files")
    assert len(planned.cached(dataset, named.plan.cache, named.folder)) == 12  # type: ignore[arg-type]


def test_a_plan_that_names_another_store_or_no_cache_says_what_to_write(cached: Any, plan: Any, tmp_path: Path) -> None:
    dataset, _ = cached
    with pytest.raises(BadUsage, match="of store 'sample', and it is one of 'source'") as told:
        FastLoader(dataset, plan=plan(cache=CacheChange(path="cache", store="sample")))
    assert 'store = "source"' in told.value.advice
    with pytest.raises(UnreadableFile, match=r"The plan names the cache .*gone, and there is none") as absent:
        FastLoader(dataset, plan=plan(cache=CacheChange(path="gone", store="source")))
    assert absent.value.advice == "Bring it back there, or take [cache] out of the plan."
    with pytest.raises(UnreadableFile) as absent:
        FastLoader(dataset, plan=plan(cache=CacheChange(path="pipefix-caches/source", store="source")))
    assert absent.value.advice.startswith(f"Make it anew, pipefix fix TARGET --out {tmp_path}, with plan= left out")


@pytest.mark.parametrize("wrong", [["one.toml", "two.toml"], {"loader": {}}, 3, True])
def test_what_is_no_path_is_no_plan(wrong: Any) -> None:
    with pytest.raises(TypeError, match="plan option should be the path of one plan file, but got plan="):
        FastLoader(pipelines.Tensors(), plan=wrong)


def test_another_machine_is_warned_of_with_what_to_type(plan: Any) -> None:
    path = plan(machine=TunedOn(cores=640.0), target="train.py:loader")
    with pytest.warns(RuntimeWarning, match=r"it was tuned on 640 cores, here there are .*pipefix tune train.py:loader"):
        FastLoader(pipelines.Tensors(), plan=path)


def test_on_its_own_machine_nothing_is_warned_of(plan: Any) -> None:
    gpus = [gpu.name for gpu in planned.gpus_here()[0]]
    here = TunedOn(cores=max(planned.cores(), 0.01), gpus=gpus, memory_bytes=int(psutil.virtual_memory().total))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FastLoader(pipelines.Tensors(), plan=plan(machine=here))


class Drawn(Dataset[Any]):
    """Pictures in files, and a list of transforms of which the first part can be stored."""

    def __init__(self, folder: Path) -> None:
        from PIL import Image
        from torchvision.transforms import v2

        self.files = [folder / f"{number}.png" for number in range(8)]
        for number, file in enumerate(self.files):
            Image.new("RGB", (40, 30), (number * 30, 90, 10)).save(file)
        steps = [v2.Resize((24, 24)), v2.RandomHorizontalFlip(), v2.CenterCrop((16, 16)), v2.ToImage()]
        self.transform = v2.Compose([*steps, v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.25] * 3)])

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        from PIL import Image

        with Image.open(self.files[index]) as opened:
            return self.transform(opened.convert("RGB")), index


def test_augmentation_is_done_to_whole_batches(plan: Any, tmp_path: Path) -> None:
    dataset = Drawn(tmp_path)
    expected = torch.cat([images for images, _ in FastLoader(dataset, batch_size=4)])
    loader = FastLoader(dataset, batch_size=4, plan=plan(augmentation=AugmentationChange(backend="kornia")))
    images = torch.cat([images for images, _ in loader])
    assert torch.allclose(images, expected, atol=1e-2)
    assert "are done to whole batches: augmentation that was moved runs on the CPU" in loader.explain()
    assert 'device="cuda"' in loader.explain()


class Turned(Drawn):
    def __init__(self, folder: Path) -> None:
        from torchvision.transforms import v2

        super().__init__(folder)
        steps = [v2.Resize((12, 10)), v2.RandomHorizontalFlip(), v2.ColorJitter(0.5, 0.5), v2.RandomRotation(30), v2.ToImage()]
        self.transform = v2.Compose([*steps, v2.ToDtype(torch.float32, scale=True)])


def _as_dictionary(samples: list[Any]) -> dict[str, Any]:
    return {"x": torch.stack([image for image, _ in samples]), "index": [index for _, index in samples]}


@pytest.mark.parametrize(
    ("collate_fn", "workers", "engine"), [(None, 1, "auto"), (_as_dictionary, 0, "auto"), (_as_dictionary, 1, "torch")]
)
def test_moved_augmentation_draws_what_the_dataset_would_have_drawn(
    plan: Any, collate_fn: Any, workers: int, engine: str, tmp_path: Path
) -> None:
    """The same seed, the same samples, whatever makes and collates them."""
    settings: dict[str, Any] = {
        "batch_size": 3,
        "shuffle": True,
        "collate_fn": collate_fn,
        "num_workers": workers,
        "engine": engine,
    }

    def images(**more: Any) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(4)
        batches = list(FastLoader(Turned(tmp_path), **settings, **more))
        state = torch.get_rng_state()
        return torch.cat([batch["x"] if collate_fn else batch[0] for batch in batches]), state

    expected, drawn = images()
    moved, also_drawn = images(plan=plan(augmentation=AugmentationChange(backend="kornia")))
    assert torch.equal(drawn, also_drawn)
    assert (moved - expected).abs().mean() < 2 / 255


def test_a_training_on_a_device_is_told_that_moved_augmentation_runs_on_the_cpu(
    plan: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    loader = FastLoader(Drawn(tmp_path), batch_size=4, plan=plan(augmentation=AugmentationChange(backend="kornia")))
    with pytest.warns(RuntimeWarning, match=r"runs on the CPU, in this process \(FastLoader\(..., device=\"cuda\"\) has"):
        list(loader)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(loader)


def test_what_moves_is_moved_after_an_interruption_too(plan: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After a Ctrl-C while it was made ready, transforms stayed in the dataset, and nobody was told."""
    loader = FastLoader(Drawn(tmp_path), batch_size=4, plan=plan(augmentation=AugmentationChange(backend="kornia")))

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(planned, "moved", interrupted)
        with pytest.raises(KeyboardInterrupt):
            iter(loader)
    list(loader)
    assert "are done to whole batches" in loader.explain()


def test_a_loader_like_one_that_fuses_does_not_where_transforms_move(tmp_path: Path) -> None:
    """fix measured fused calls that a FastLoader with the plan never makes."""
    theirs: Any = FastLoader(Drawn(tmp_path), batch_size=4, fuse="exact")
    moving: Any = as_planned.loader(theirs, PlanFile(augmentation=AugmentationChange(backend="kornia")), tmp_path)
    assert moving.fuse is None and theirs.fuse == "exact"


def test_an_augmentation_that_cannot_be_moved_is_told(plan: Any) -> None:
    path = plan(augmentation=AugmentationChange(backend="kornia", operations=["Normalize"]))
    loader = FastLoader(pipelines.Tensors(8), batch_size=4, plan=path)
    with pytest.warns(RuntimeWarning, match=r"of this dataset's transforms none can be moved. It stays in the dataset\. Take"):
        assert len(list(loader)) == 2


@pytest.mark.parametrize("store", ["source", "sample"])
def test_augmentation_behind_a_cache_is_done_once(store: Any, plan: Any, tmp_path: Path) -> None:
    dataset = Drawn(tmp_path)
    convert(dataset, recipe_of("lmdb", store), tmp_path / "cache", target="drawn.py", workers=1)
    expected = torch.stack([dataset[index][0] for index in range(8)])
    path = plan(cache=CacheChange(path="cache", store=store), augmentation=AugmentationChange(backend="kornia"))
    loader: Any = FastLoader(dataset, batch_size=4, plan=path)
    batches = list(loader)
    # One colour a picture: flips do not show, and normalising twice would.
    assert torch.allclose(torch.cat([images for images, _ in batches]), expected, atol=1e-2)
    assert torch.cat([index for _, index in batches]).tolist() == list(range(8))
    assert "samples are read from" in loader.explain() and "Normalize are done to whole batches" in loader.explain()


# -- a loader like another, as fix and tune measure plans ------------------------------------------------------------------

TEN = TensorDataset(torch.arange(10))


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


def noted(worker: int) -> None:
    os.environ["PIPEFIX_TEST_WORKER"] = str(worker)


def test_threads_are_capped_before_the_users_own_init_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("OMP_NUM_THREADS", "PIPEFIX_TEST_WORKER", *start._VARIABLES):
        monkeypatch.setenv(name, "7")
    plain: Any = DataLoader(TEN, num_workers=2, worker_init_fn=noted)
    worker_init = as_planned.loader(plain, PlanFile(loader=LoaderChange(worker_threads=1)), tmp_path).worker_init_fn
    worker_init(5)
    assert os.environ["OMP_NUM_THREADS"] == "1" and os.environ["PIPEFIX_TEST_WORKER"] == "5"


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 3, "shuffle": False, "drop_last": True},
        {"batch_size": None},
        {"batch_sampler": BatchSampler(SequentialSampler(TEN), 4, False)},
        {"dataset": Stream(), "batch_size": 4},
    ],
)
def test_batches_of_a_loader_like_another_are_the_same(tmp_path: Path, options: dict[str, Any]) -> None:
    plain: Any = DataLoader(**{"dataset": TEN, **options})
    ours = as_planned.loader(plain, PlanFile(loader=LoaderChange(num_workers=1, engine="processes")), tmp_path)
    assert ours.num_workers == 1
    assert [str(batch) for batch in ours] == [str(batch) for batch in plain]


class Torn(Dataset[int]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        if index == 3:
            raise ValueError("torn")
        return index


def test_a_loader_like_a_fastloader_reads_samples_as_that_does(tmp_path: Path) -> None:
    """All trials of tune and all steps of fix ended at the first sample that training leaves out; threads_per_worker was lost."""
    theirs: Any = FastLoader(Torn(), batch_size=5, on_bad="skip", threads_per_worker=2, quarantine=tmp_path / "bad.jsonl")
    tuned: Any = as_planned.with_settings(theirs, in_order=False)
    fixed: Any = as_planned.loader(theirs, PlanFile(loader=LoaderChange(num_workers=1)), tmp_path)
    for loader in (tuned, fixed, load(theirs).loader_to_run(), load(fixed).loader_to_run()):
        assert torch.cat(list(loader)).tolist() == [0, 1, 2, *range(4, 10)]
    assert tuned.threads_per_worker == fixed.threads_per_worker == 2
    assert not (tmp_path / "bad.jsonl").exists(), "and what they left out is noted as training's"
    by_dali: Any = as_planned.loader(theirs, PlanFile(augmentation=AugmentationChange(backend="dali")), tmp_path)
    with pytest.warns(RuntimeWarning, match="The dataset makes the samples"):
        assert torch.cat(list(by_dali)).tolist() == [0, 1, 2, *range(4, 10)]


def test_a_loader_like_one_with_a_plan_does_what_that_plan_says(plan: Any) -> None:
    """tune of a loader with plan= measured batches that nobody fused, where training fuses them."""
    theirs: Any = FastLoader(pipelines.Told(), plan=plan(loader=LoaderChange(fuse="exact")))
    tuned: Any = as_planned.with_settings(theirs, num_workers=1)
    assert tuned.fuse == "exact"
    capped: Any = FastLoader(pipelines.Told(), num_workers=1, batch_size=1, plan=plan(loader=LoaderChange(worker_threads=2)))
    assert {int(batch[5]) for batch in as_planned.with_settings(capped, prefetch_factor=3)} == {2}
