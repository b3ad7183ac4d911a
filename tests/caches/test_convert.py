"""From a dataset to a cache, for every store and both containers; and all that may come between."""

from __future__ import annotations

import ctypes
import errno
import gc
import itertools
import json
import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import lmdb
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Dataset, IterableDataset
from torchvision.transforms import v2

from pipefix.caches import estimate
from pipefix.caches import manifest as manifests
from pipefix.caches.building import Building, _sync
from pipefix.caches.convert import recipe_of
from pipefix.caches.dataset import CachedDataset
from pipefix.caches.estimate import forecast
from pipefix.caches.maker import getter
from pipefix.caches.survey import survey
from pipefix.caches.verify import verify
from pipefix.caches.witness import Witness
from pipefix.vocabulary import files as whole_files
from pipefix.vocabulary.errors import BadUsage, Interrupted, TargetError, UnreadableFile
from pipefix.vocabulary.folder_lock import FolderLock
from tests.caches.killing import contents, interrupted_after
from tests.caches.sources import Acting, Endless, Files, Noisy, Numbers, Stream, draw

FLIP = v2.RandomHorizontalFlip()


def same(sample, expected) -> bool:
    return np.array_equal(np.asarray(sample), np.asarray(expected))


# -- stores ----------------------------------------------------------------------------------------------------------------


def test_a_file_that_many_parts_are_made_from_is_one_file(files, make, monkeypatch):
    """A dataset of 60 files that repeats them, or one of a single HDF5 file, was told to have thousands of files, or 32."""
    monkeypatch.setattr("pipefix.caches.survey._SMALLEST_PART", 1)
    source = make(ConcatDataset([files] * 3), "resized", size=22).manifest.source
    assert (source.files, source.bytes) == (len(files), sum(Path(path).stat().st_size for path in files.paths))


def test_resized_keeps_kind_and_shape(files, make):
    done = make(files, "resized", size=22)
    cached = CachedDataset(done.folder)
    image, label = cached[3]
    assert (image.size, image.format, label) == ((30, 22), "JPEG", 3)
    near = np.asarray(files[3][0].resize((30, 22), Image.Resampling.BILINEAR), float)
    assert np.abs(np.asarray(image, float) - near).mean() < 3
    assert done.manifest.bytes < done.manifest.source.bytes * 3


@pytest.mark.parametrize(
    ("listing", "kept", "live"),
    [
        (
            [v2.Resize(24), v2.CenterCrop(20), FLIP, v2.PILToTensor()],
            ["Resize([24])", "CenterCrop((20, 20))"],
            ["RandomHorizontalFlip", "PILToTensor"],
        ),
        # No record holds a tv_tensors.Image: what gives one stays live, unless a later result can be stored.
        ([v2.Resize(24), v2.ToImage(), FLIP], ["Resize([24])"], ["ToImage", "RandomHorizontalFlip"]),
        ([v2.ToImage(), FLIP], [], ["ToImage", "RandomHorizontalFlip"]),
        ([v2.ToImage(), v2.ToPureTensor(), FLIP], ["ToImage", "ToPureTensor"], ["RandomHorizontalFlip"]),
    ],
)
def test_sample_keeps_all_up_to_the_first_random_operation(pictures, make, listing, kept, live):
    dataset = Files(pictures, v2.Compose(listing))
    transform, state = dataset.transform, torch.get_rng_state()
    done = make(dataset, "sample", workers=2)
    assert dataset.transform is transform and torch.equal(torch.get_rng_state(), state), "the dataset is left as it was"
    cut = done.manifest.cut
    assert (cut.attribute, cut.kept, cut.live) == ("transform", kept, live)
    cached = CachedDataset(done.folder, dataset=dataset)
    for index in range(12):
        torch.manual_seed(index)
        expected = dataset[index]
        torch.manual_seed(index)
        sample = cached[index]
        assert torch.equal(sample[0], expected[0]) and sample[1] == expected[1]


def test_whatever_a_sample_is(make):
    cached = CachedDataset(make(Numbers(), "sample").folder)
    sample = cached[7]
    assert (sample["index"], sample["name"]) == (7, "n7")
    assert torch.equal(sample["value"], torch.arange(4) * 7) and sample["weights"].dtype == np.float32
    assert [sample["index"] for sample in cached.__getitems__([99, 3, 50])] == [99, 3, 50]


def test_streams_end_when_they_end_and_are_left_alone_then(make):
    done = make(Stream(50), "sample")
    cached = CachedDataset(done.folder)
    assert len(cached) == 50 and [int(cached[index][1]) for index in range(50)] == list(range(50))
    again = make(Stream(50), "sample")
    assert (again.made, again.changed, again.compared) == (0, (), False)


def test_a_stream_that_is_shuffled_is_refused_with_what_can_be_done(make):
    """--store source was advised, and refused with the advice to use --store sample."""

    class Shuffled(Stream):
        def __iter__(self):
            return iter(random.sample(list(super().__iter__()), self.length))

    with pytest.raises(TargetError, match="comes out different every time") as raised:
        make(Shuffled(50), "sample")
    assert raised.value.advice.startswith("Turn its shuffling off")


def test_what_a_stream_gives_that_cannot_be_stored_is_told_with_what_can_be_done(make):
    """--store source was advised, which takes no stream; of rows --store sample, which --to parquet does not keep."""

    class Objects(Stream):
        def __iter__(self):
            return ((index, object()) for index in range(self.length))

    for to, store, advice in (("lmdb", "sample", "Let the stream give"), ("parquet", "rows", "--to lmdb --store sample")):
        with pytest.raises(TargetError, match=f"cannot be stored as {store}") as raised:
            make(Objects(50), store, to)
        assert advice in raised.value.advice


def test_an_update_of_a_stream_makes_all_of_it_anew(make, small_parts):
    """verify and CachedDataset advised it, and it was refused."""
    folder = make(Stream(50), "sample").folder
    (folder / "parts" / "00001.mdb").write_bytes(b"damage")
    with interrupted_after(2), pytest.raises(Interrupted):
        make(Stream(48), "sample", update=True)
    assert len(CachedDataset(folder)) == 50, "until it is done, the cache is the old one"
    done = make(Stream(48), "sample", update=True)
    assert done.made + done.found == 13 and done.found >= 2 and verify(folder).sound
    assert [int(sample[1]) for sample in CachedDataset(folder)] == list(range(48))
    assert len(os.listdir(folder / "parts")) == 12


@pytest.mark.parametrize("store", ["resized", "decoded", "sample"])
def test_of_an_endless_stream_the_first_samples(pictures, make, store):
    done = make(Endless(pictures), store, limit=20)
    cached = CachedDataset(done.folder)
    assert [cached[index][1] for index in range(len(cached))] == list(range(20))
    assert done.manifest.update(done.folder).endswith(" --limit 20 --update")
    if store != "resized":
        assert same(cached[15][0], Image.open(pictures[3]).convert("RGB"))


def test_what_a_stream_would_take(pictures, tmp_path, monkeypatch):
    looks = itertools.count(1)  # of a clock that stands still but for a microsecond each: no round counts as long enough
    monkeypatch.setattr(estimate, "time", SimpleNamespace(perf_counter=lambda: next(looks) * 1e-6))
    predicted = forecast(Endless(pictures), recipe_of("lmdb", "resized", 22, limit=40), tmp_path / "x", workers=0)
    assert (predicted.samples, predicted.tried) == (40, 40) and predicted.bytes > 0 and predicted.gain is not None
    predicted = forecast(Stream(50), recipe_of("lmdb", "sample", limit=100_000), tmp_path / "x", workers=0)
    assert (predicted.samples, predicted.tried) == (50, 50), "the bytes and seconds of a limit that it never comes to were told"


def test_an_interrupted_forecast_leaves_nothing_and_says_no_more(files, small_parts, tmp_path):
    """It named finished parts that were kept, and removed them."""
    with interrupted_after(1), pytest.raises(KeyboardInterrupt):
        forecast(files, recipe_of("lmdb", "decoded"), tmp_path / "cache", workers=0)
    assert os.listdir(tmp_path) == ["pictures"]


def test_a_forecast_on_a_full_disk_keeps_nothing_and_says_no_more(files, small_parts, tmp_path, monkeypatch):
    """It said that finished parts were kept, and removed them."""
    monkeypatch.setattr(Building, "settle", mock.Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    with pytest.raises(UnreadableFile, match="is full") as raised:
        forecast(files, recipe_of("lmdb", "decoded"), tmp_path / "cache", workers=0)
    assert str(raised.value).endswith("is full.")
    assert raised.value.advice == "Make room and run the same command again." and os.listdir(tmp_path) == ["pictures"]


def test_a_dataset_without_length_is_told(make):
    class Keyed(Dataset):
        def __getitem__(self, key):
            return key

    with pytest.raises(TargetError, match=r"The dataset \(Keyed\) has no length"):
        make(Keyed(), "sample")


def test_an_empty_stream(make):
    with pytest.raises(TargetError, match=r"None of the samples"):
        make(Stream(0), "sample")


class Torn(Stream):
    """One of its samples raises; a generator ends with that, and an iterator of its own goes on."""

    def __init__(self, length: int, at: int, *, is_generator: bool) -> None:
        super().__init__(length)
        self.at, self.is_generator = at, is_generator

    def __iter__(self):
        return (self.sample(index) for index in range(self.length)) if self.is_generator else map(self.sample, range(self.length))

    def sample(self, index: int) -> int:
        if index == self.at:
            raise ValueError("a torn sample")
        return index


def test_a_stream_that_ends_with_an_error_is_not_taken_for_a_whole_one(make, monkeypatch):
    """All that came after a damaged sample was left out, and nobody told."""
    monkeypatch.setattr("pipefix.caches.survey._part_samples", lambda samples, record_bytes: 60)
    for at in (59, 50):  # the last of a part, and another one
        with pytest.raises(TargetError, match=f"The stream ended after sample {at}, which raised ValueError: a torn sample"):
            make(Torn(100, at, is_generator=True), "sample", on_bad="skip", name=str(at))
    done = make(Torn(100, 50, is_generator=False), "sample", on_bad="skip")
    assert list(CachedDataset(done.folder)) == [*range(50), *range(51, 100)]


def test_a_damaged_sample_of_a_stream_that_is_passed_over_shifts_no_other():
    """A conversion that goes on takes the stream from its beginning."""
    assert getter(Torn(100, 50, is_generator=False), None)(60) == 60


def test_randomness_is_not_frozen(make):
    with pytest.raises(TargetError, match=r"comes out different every time"):
        make(Noisy(), "sample")


class Sometimes(Noisy):
    """Random for some of its samples, as those of a rare class may be."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def __getitem__(self, index: int) -> float:
        return index + self.generator.random() if index > 6 else index


@pytest.mark.parametrize("generator", [random, random.Random(0)])
def test_randomness_of_some_samples_is_not_frozen(make, generator):
    """Three samples were looked at: of a flip by the dataset itself, half the time, one conversion in eight saw nothing."""
    with pytest.raises(TargetError, match="Sample 7 comes out different every time: the dataset draws random numbers"):
        make(Sometimes(generator), "sample")


class OfEpochs(Numbers):
    """Its crops are drawn by the number of the epoch and of the sample."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __getitem__(self, index: int) -> Any:
        return random.Random(f"{self.epoch} {index}").random()


def test_that_what_differs_by_epoch_is_stored_as_of_one_is_told(make):
    """The same crops came in every epoch, and nobody said so: a sample that is made twice gives the same."""
    with pytest.warns(RuntimeWarning, match=r"set_epoch changes is stored as it is now, for all epochs\. .*--store source"):
        make(OfEpochs(8), "sample")


class OfSome(Files):
    """Augments the pictures of its rare classes."""

    def __getitem__(self, index: int) -> Any:
        image = Image.open(self.paths[index]).convert("RGB")
        return self.transform(image) if index < 6 else image, index


@pytest.mark.parametrize("store", ["decoded", "sample"])
def test_a_sample_that_the_dataset_does_not_transform_is_told(pictures, make, store):
    """Three samples were looked at. From the cache all were transformed, also those that the dataset hands out as they are."""
    with pytest.raises(TargetError, match=r"Sample 6 .*does not hold what its transforms gave.*--store source"):
        make(OfSome(pictures, v2.RandomCrop(20)), store)
    assert make(OfSome(pictures, v2.Resize(20)), "sample", name="fixed").manifest.length == 12, "nothing runs live"


class OfSomeStreamed(IterableDataset[Any]):
    """The same as a stream."""

    def __init__(self, paths: list[Path], transform: Any) -> None:
        self.paths, self.transform = paths, transform

    def __iter__(self) -> Any:
        for index, path in enumerate(self.paths):
            image = Image.open(path).convert("RGB")
            yield self.transform(image) if index < 6 else image, index


def test_of_a_stream_what_samples_read_is_not_advised(pictures, make):
    """It was told to keep that, which convert refuses for streams."""
    with pytest.raises(TargetError, match=r"Sample 6 .*does not hold what its transforms gave") as raised:
        make(OfSomeStreamed(pictures, v2.RandomCrop(20)), "sample")
    assert "--store source" not in f"{raised.value} {raised.value.advice}"


def test_what_cannot_be_stored_is_named_with_the_way_out(make):
    class Odd(Numbers):
        def __getitem__(self, index):
            return object()

    with pytest.raises(TargetError, match=r"Sample 1 cannot be stored as sample: a builtins.object") as raised:
        make(Odd(), "sample")
    assert "--store source" in raised.value.advice


# -- plain programs read it ------------------------------------------------------------------------------------------------


def test_lmdb_alone_reads_it(files, make):
    done = make(files, "resized", size=22)
    environment = lmdb.open(str(done.folder / "parts" / "00000.mdb"), subdir=False, readonly=True, lock=False)
    with environment.begin() as transaction:
        keys = [int.from_bytes(key, "big") for key, _ in transaction.cursor()]
        import io

        picture = Image.open(io.BytesIO(transaction.get((4).to_bytes(8, "big"))))
    environment.close()
    assert keys == list(range(12)) and picture.size == (30, 22)


@pytest.mark.parametrize(("store", "stage"), [("source", "storage"), ("decoded", "decode"), ("sample", "augment")])
def test_the_manifest_names_the_stage_that_samples_are_stored_at(store, stage, files, make):
    assert json.loads((make(files, store).folder / "manifest.json").read_text())["stage"] == stage


# -- parts are pure; nothing is lost ---------------------------------------------------------------------------------------


def test_processes_and_order_change_nothing(files, make, small_parts):
    first = make(files, "resized", name="one", workers=0)
    many = make(files, "resized", name="many", workers=3)
    assert contents(first.folder) == contents(many.folder)
    assert len(first.manifest.parts) == 3


def test_it_goes_on_where_it_was(files, make, small_parts):
    whole = make(files, "decoded", name="whole")
    with interrupted_after(2), pytest.raises(Interrupted, match=r"keeps 2 finished parts of 3") as raised:
        make(files, "decoded", name="cache")
    assert raised.value.advice == "The same command goes on where it was."
    folder = whole.folder.parent / "cache"
    with pytest.raises(UnreadableFile, match=r"never finished"):
        CachedDataset(folder)
    done = make(files, "decoded", name="cache")
    assert (done.made, done.found) == (1, 2)
    assert contents(done.folder) == contents(whole.folder)


def test_parts_from_before_a_restart_are_checked(files, make, monkeypatch, small_parts):
    whole = make(files, "source", name="whole")
    folder = whole.folder.parent / "cache.building"
    make(files, "source", name="cache").folder.rename(folder)
    (folder / "manifest.json").unlink()
    # As a power failure may leave it: names without bytes, and bytes without names.
    parts = folder / "parts"
    data = bytearray((parts / "00001.mdb").read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    (parts / "00001.mdb").write_bytes(data)
    (folder / "index" / "00002.facts").unlink()
    (parts / ".pipefix-0123456789ab").write_bytes(b"half")
    plan = survey(files, recipe_of("lmdb", "source"), "a target").blueprint
    whole_files.write_whole(folder / "plan.json", manifests.sealed_text(plan))
    monkeypatch.setattr("pipefix.caches.survey.boot", lambda: "another start")
    done = make(files, "source", name="cache")
    assert (done.made, done.found) == (2, 1)
    assert contents(done.folder) == contents(whole.folder)


@pytest.mark.parametrize(
    ("number", "message", "advice"),
    [
        (errno.ENOSPC, "is full. Finished parts are kept", "Make room"),
        (errno.EIO, f"cache cannot be written: {os.strerror(errno.EIO)}", "--out DIR"),
        (errno.EMFILE, f"cache cannot be written: {os.strerror(errno.EMFILE)}", "ulimit -n 65536"),
    ],
)
def test_a_full_or_failing_disk_keeps_what_is_finished(files, make, monkeypatch, small_parts, number, message, advice):
    real = Building.finished

    def failing(self, part, facts):
        real(self, part, facts)
        if part == 1:
            raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(Building, "finished", failing)
        with pytest.raises(UnreadableFile, match=message) as raised:
            make(files, "source")
    assert advice in raised.value.advice
    assert make(files, "source").found == 2


def test_a_directory_that_cannot_be_locked_is_told(tmp_path, monkeypatch):
    import fcntl

    def refuse(*args):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with pytest.raises(UnreadableFile, match=r"cannot be written: No locks available"), FolderLock(tmp_path, "converter"):
        pass


def test_what_other_threads_bring_to_the_disk_is_no_read_of_a_sample(files, tmp_path):
    """Parts are brought to the disk while the next ones are made, in the same process where there are no workers."""
    (tmp_path / "part").write_bytes(b"data")
    with Witness() as witness, ThreadPoolExecutor(1) as pool:

        def meanwhile(index):
            pool.submit(_sync, tmp_path / "part").result()
            return files[index]

        _, reads = witness.whole(meanwhile, 3)
    assert [Path(path).name for path in reads.files] == ["03.jpg"]


@pytest.mark.parametrize(
    ("act", "signal", "words"),
    [
        (lambda: os.kill(os.getpid(), 35), "35", []),  # most real-time signals have no name
        (lambda: ctypes.string_at(0), r"11 \(SIGSEGV\)", ["Segmentation fault", "in string_at", "test_convert.py"]),
    ],
)
def test_a_dead_worker_is_told_with_its_sample_and_last_words(make, act, signal, words):
    with pytest.raises(TargetError, match=f"ended by signal {signal} while it made sample 42") as dead:
        make(Acting(42, act, apart=True), "sample", workers=2)
    assert all(word in dead.value.user_traceback for word in words)


def test_garbage_of_the_program_is_not_freed_in_a_worker(make):
    """A pipeline of DALI, whose threads are not there, crashes the worker that frees it."""

    class Deadly:
        def __init__(self):
            self.itself = self

        def __del__(self):
            if os.getpid() != parent:
                os.kill(os.getpid(), 9)

    parent = os.getpid()
    gc.disable()
    try:
        Deadly()
        make(Acting(42, gc.collect, apart=True), "sample", workers=2)
    finally:
        gc.enable()


def test_another_recipe_does_not_overwrite(files, make):
    make(files, "source")
    with pytest.raises(BadUsage, match=r"is a finished cache already, of another recipe: source in lmdb"):
        make(files, "decoded")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": "tar"}, "no 'tar' to choose"),
        ({"store": "rows"}, "rows is not kept in lmdb"),
        ({"store": "decoded", "to": "parquet"}, "decoded is not kept in parquet"),
        ({"store": "source", "size": 256}, "--size 256 does not fit --store source"),
        ({"quality": 0}, "quality of 0"),
        ({"text": "a"}, "Tokenising takes"),
        ({"on_bad": "ignore"}, "no 'ignore' to choose"),
        ({"store": "sample", "limit": 1e6}, "limit should be an int, but got a float: 1000000.0"),
        ({"size": 22.5}, "size should be an int"),  # its manifest could not be read
        ({"max_bad": 5}, "a share from 0 to 1, and 5 is not"),  # meant as 5 %, it allowed all samples to be left out
    ],
)
def test_recipes_that_make_no_sense(options, message):
    with pytest.raises(BadUsage, match=message):
        recipe_of(**{"to": "lmdb", "store": "resized", **options})


def test_what_a_call_may_say_as_the_command_line_does(files, make):
    assert recipe_of(max_bad="5%").max_bad == 0.05
    with pytest.raises(BadUsage, match="There cannot be -1 workers"):  # it was taken for one process
        make(files, "decoded", workers=-1)


# -- a source that changes -------------------------------------------------------------------------------------------------


def test_only_what_changed_is_made_anew(files, make, small_parts):
    before = make(files, "decoded")
    old = contents(before.folder)
    draw(Path(files.paths[5]), 40)
    noticed = make(files, "decoded")
    assert (noticed.made, noticed.changed) == (0, (1,)) and contents(before.folder) == old
    done = make(files, "decoded", update=True)
    assert (done.made, done.found) == (1, 2)
    new = contents(done.folder)
    assert [name for name in new if name in old and new[name] == old[name]] == [
        *(f"index/0000{number}.{suffix}" for number in (0, 2) for suffix in ("facts", "idx")),
        *(f"parts/0000{number}.mdb" for number in (0, 2)),
    ]
    assert "parts/00001-1.mdb" in new and "parts/00001.mdb" not in new
    assert verify(done.folder).sound
    fresh = make(files, "decoded", name="fresh")
    for index in range(12):
        assert repr(CachedDataset(done.folder).raw(index).tobytes()) == repr(CachedDataset(fresh.folder).raw(index).tobytes())


def test_a_label_mended_and_files_added(pictures, make, small_parts, tmp_path):
    files = Files(pictures)
    make(files, "decoded")
    files = Files([*pictures, draw(tmp_path / "pictures" / "new.jpg", 77)])
    files.labels[2] = 1000
    done = make(files, "decoded", update=True)
    assert (done.made, done.found) == (2, 2)
    cached = CachedDataset(done.folder)
    assert len(cached) == 13 and cached[2][1] == 1000 and cached[12][1] == 12


LISTED_IN = ""


class Listed(Dataset[Any]):
    """Names of files in a folder that its code knows."""

    def __init__(self, names):
        self.names = names

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        return np.fromfile(os.path.join(LISTED_IN, self.names[index]), np.uint8)


def test_files_added_in_another_folder_leave_the_names_of_the_others(make, small_parts, tmp_path, monkeypatch):
    """Files of parts that were kept were looked for in the folder that holds both: all of them were said to be missing."""
    monkeypatch.setitem(globals(), "LISTED_IN", str(tmp_path / "files"))
    names = [f"{folder}/{index}" for folder in "ab" for index in range(8)]
    for name in names:
        path = tmp_path / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    make(Listed(names[:8]), "sample")
    done = make(Listed(names), "sample", update=True)
    assert (done.made, done.found) == (2, 2) and not verify(done.folder).missing_count
    assert not make(Listed(names), "sample").changed


def test_names_of_classes_that_are_not_utf_8(files, make):
    """Folders out of an archive of another language: the plan that names them could not be written."""
    files.classes = ["caf\udce9", "th\xe9"]
    assert CachedDataset(make(files, "decoded").folder).classes == ["caf\\udce9", "th\xe9"]


def test_files_taken_away(pictures, make, small_parts):
    make(Files(pictures), "decoded")
    done = make(Files(pictures[:8]), "decoded", update=True)
    assert len(CachedDataset(done.folder)) == 8 and verify(done.folder).sound


# -- damaged samples -------------------------------------------------------------------------------------------------------


def test_a_damaged_sample_ends_it_with_its_name(files, make):
    Path(files.paths[4]).write_bytes(b"no picture")
    with pytest.raises(TargetError, match=r"Sample 4 \(.*04.jpg\) cannot be read: UnidentifiedImageError") as raised:
        make(files, "decoded")
    assert "--on-bad quarantine" in raised.value.advice and "sources.py" in (raised.value.user_traceback or "")


def test_quarantine_names_file_index_and_error(files, make):
    Path(files.paths[4]).write_bytes(b"no picture")
    Path(files.paths[0]).unlink()
    done = make(files, "decoded", on_bad="quarantine", workers=2)
    cached = CachedDataset(done.folder)
    assert len(cached) == 10 and [cached[index][1] for index in range(10)] == [1, 2, 3, 5, 6, 7, 8, 9, 10, 11]
    assert [cached.sample_number(index) for index in range(10)] == [1, 2, 3, 5, 6, 7, 8, 9, 10, 11]
    quarantined = [json.loads(line) for line in (done.folder / "quarantine.jsonl").read_text().splitlines()]
    assert [entry["index"] for entry in quarantined] == [0, 4]
    assert quarantined[0]["error"].startswith("FileNotFoundError") and quarantined[1]["files"] == ["04.jpg"]
    assert verify(done.folder).sound


def test_a_file_that_a_damaged_sample_did_not_find_is_noticed_when_it_comes(files, make, small_parts):
    """Nothing of it had been read, and so its part was said to be unchanged: the sample stayed left out."""
    there = Path(files.paths[4])
    away = there.rename(there.with_suffix(".away"))
    assert make(files, "decoded", on_bad="skip").manifest.bad == 1 and not make(files, "decoded", on_bad="skip").changed
    away.rename(there)
    done = make(files, "decoded", on_bad="skip", update=True)
    assert (done.made, done.found, done.manifest.length) == (1, 2, 12)


def test_source_keeps_its_place_after_a_gap(files, make):
    Path(files.paths[4]).unlink()
    done = make(files, "source", on_bad="skip")
    assert not (done.folder / "quarantine.jsonl").exists()
    cached = CachedDataset(done.folder, dataset=files)
    assert [cached[index][1] for index in (3, 4, 10)] == [3, 5, 11]


def test_too_many_are_a_mistake_elsewhere(make):
    class Broken(Numbers):
        def __getitem__(self, index):
            if index % 5 == 0:
                raise ValueError("not mounted")
            return super().__getitem__(index)

    for limit in (0.01, 0.01, 0.1):  # the same command goes on, and ends no better
        said = r"20 of 100 samples cannot be read, more than 10?(\.0)? %. The first is sample 0"
        with pytest.raises(TargetError, match=said) as raised:
            make(Broken(), "sample", on_bad="skip", max_bad=limit)
        assert raised.value.advice.endswith("--max-bad 30%"), "no more than there are, or fewer, was said to be enough"
    assert make(Broken(), "sample", on_bad="skip", max_bad=0.5).manifest.length == 80
    assert make(Broken(), "sample", on_bad="skip", max_bad=0.3, update=True).made == 0, "another limit is no other cache"


def raising(error: Exception) -> Any:
    def act() -> None:
        raise error

    return act


@pytest.mark.parametrize("kind", [MemoryError, partial(OSError, errno.EMFILE, os.strerror(errno.EMFILE))])
@pytest.mark.parametrize("is_inner", [False, True])
def test_a_sample_that_memory_or_open_files_were_short_for_is_not_left_out(make, kind, is_inner):
    """Whole caches came out with samples missing that nothing was wrong with."""
    error: Exception = kind()
    if is_inner:
        error = RuntimeError("cannot read it")
        error.__cause__ = kind()
    with pytest.raises(TargetError, match="Sample 42 cannot be read") as raised:
        make(Acting(42, raising(error)), "sample", on_bad="skip")
    assert "not left out" in raised.value.advice


def test_none_is_no_sample(make):
    class Nothing(Numbers):
        def __getitem__(self, index):
            return None if index == 60 else super().__getitem__(index)

    with pytest.raises(TargetError, match=r"Sample 60 cannot be read: Unreadable: the dataset returned None"):
        make(Nothing(), "sample")


def test_the_manifest_is_written_last(files, make, monkeypatch):
    real = whole_files.write_whole
    names = []

    def noting(path, data):
        names.append(path.name)
        real(path, data)

    monkeypatch.setattr("pipefix.caches.building.write_whole", noting)
    folder = make(files, "source").folder
    assert names == ["plan.json", "manifest.json"] and not (folder / "plan.json").exists()


@pytest.mark.parametrize(("workers", "number"), [(0, 1), (2, 60)])
def test_a_sample_that_ends_the_program_is_told(make, workers, number):
    with pytest.raises(TargetError, match=r"ended the program: its code called sys.exit\(0\)") as raised:
        make(Acting(number, lambda: sys.exit(0)), "sample", workers=workers)
    assert raised.value.exit_code == 3 and "in __getitem__" in (raised.value.user_traceback or "")


@pytest.mark.parametrize("when", [5, 8])
def test_a_file_that_changed_after_it_was_read_is_noticed(files, make, when):
    """In its sample, or in a later one."""

    class Changing(Files):
        def __getitem__(self, index):
            sample = super().__getitem__(index)
            if self.armed and index == when:
                self.time += 1
                os.utime(self.paths[5], ns=(1, self.time))
            return sample

    dataset = Changing(files.paths)
    dataset.armed, dataset.time = True, 10**18
    folder = make(dataset, "decoded").folder
    dataset.armed = False
    assert verify(folder).changed == [files.paths[5]]
