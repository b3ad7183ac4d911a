"""Samples that cannot be read: left out or replaced, noted, and an end to it where they are too many."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import Subset

from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.policy import read_policy
from pipefix.loader.policy.quarantine import TooManyBadSamples
from pipefix.loader.policy.read_policy import SOONEST, SampleTimeout, limited, source_of
from tests.loader import pipelines
from tests.loader.ways import made_by

TOLERANT: dict[str, Any] = {"batch_size": 4, "max_bad": 1.0}
BY = made_by(0, 2)


def values(batches: Any) -> list[list[float]]:
    return [[float(sample[0]) for sample in batch] for batch in batches]


@BY
@pytest.mark.parametrize("kind", [pipelines.Torn, pipelines.TornTogether])
def test_skipped_samples_are_left_out_and_noted(kind: Any, by: dict[str, Any], tmp_path: Path) -> None:
    note = tmp_path / "quarantine.jsonl"
    loader = FastLoader(kind(), **by, on_bad="skip", quarantine=note, **TOLERANT)
    samples = values(loader)
    assert samples[0] == [0, 1, 2] and samples[4] == [16, 19]
    assert loader.stats().samples == 37
    assert sorted(value for batch in samples for value in batch) == [index for index in range(40) if index not in (3, 17, 18)]
    lines = [json.loads(line) for line in note.read_text().splitlines()]
    assert [line["index"] for line in lines] == [3, 17, 18]
    assert lines[0]["error"] == "OSError: cannot identify image 3"
    assert lines[0]["source"] == "/data/3.jpg" and "__getitem__" in lines[0]["where"] and lines[0]["epoch"] == 0
    assert f"3 samples could not be read; see {note}." in loader.explain()


class WholeBatches(pipelines.Torn):
    """Makes a batch at once, and not a list of samples."""

    def __getitems__(self, indices: Any) -> Any:
        return {"x": torch.stack([self[index] for index in indices]), "kind": type(indices).__name__}


@BY
def test_whole_batches_stay_what_the_dataset_made(by: dict[str, Any]) -> None:
    options: dict[str, Any] = {"batch_sampler": [(0, 1), (4, 5)], "collate_fn": pipelines.itself, "on_bad": "skip"}
    loader = FastLoader(WholeBatches(), **{**by, **options, "rng": "torch"}, quarantine=None)
    assert [(batch["x"][:, 0].tolist(), batch["kind"]) for batch in loader] == [([0.0, 1.0], "tuple"), ([4.0, 5.0], "tuple")]


@pytest.mark.parametrize("own", [{"on_bad": "skip"}, {"on_bad": "refill"}, {"rng": "sample"}, {"sample_timeout": 60}])
@pytest.mark.parametrize("workers", [0, 1])
def test_no_sample_of_a_whole_batch_can_be_left_out(own: dict[str, Any], workers: int) -> None:
    loader = FastLoader(
        WholeBatches(bad=(3,)), batch_size=4, num_workers=workers, collate_fn=pipelines.itself, quarantine=None, **own
    )
    with pytest.raises(TypeError, match=r"__getitems__ makes whole batches: for one index it gave a dict"):
        next(iter(loader))


def test_a_batch_of_nothing_but_bad_samples_is_left_out() -> None:
    dataset = pipelines.Torn(16, bad=(4, 5, 6, 7))
    loader = FastLoader(dataset, num_workers=1, on_bad="skip", quarantine=None, **TOLERANT)
    assert values(loader) == [[0, 1, 2, 3], [8, 9, 10, 11], [12, 13, 14, 15]]


@BY
def test_refilled_batches_keep_their_size_with_samples_of_their_own(by: dict[str, Any]) -> None:
    loader = FastLoader(pipelines.Torn(), **by, on_bad="refill", quarantine=None, **TOLERANT)
    samples = values(loader)
    assert [len(batch) for batch in samples] == [4] * 10
    assert samples[0] == [0, 1, 2, 0] and samples[4] == [16, 16, 19, 19]


def test_single_samples_are_left_out() -> None:
    loader = FastLoader(pipelines.Torn(), batch_size=None, num_workers=1, on_bad="skip", quarantine=None, max_bad=1)
    assert [float(sample[0]) for sample in loader] == [index for index in range(40) if index not in (3, 17, 18)]


def test_too_many_are_an_error_that_names_the_first(tmp_path: Path) -> None:
    note = tmp_path / "bad.jsonl"
    loader = FastLoader(pipelines.Torn(), batch_size=4, num_workers=1, on_bad="skip", quarantine=note, max_bad=0.05)
    expected = (
        r"3 of about \d+ samples could not be read, more than max_bad=0.05 \(5.0 %\) allows. The first is sample 3, /data/3.jpg"
    )
    with pytest.raises(TooManyBadSamples, match=expected) as caught:
        list(loader)
    assert str(note) in str(caught.value)
    assert str(caught.value).endswith("allow more with FastLoader(..., max_bad=0.25).")
    assert len(note.read_text().splitlines()) == 3


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sample_that_takes_too_long_counts_as_bad(workers: int, tmp_path: Path) -> None:
    note = tmp_path / "slow.jsonl"
    loader = FastLoader(pipelines.Late(12), num_workers=workers, on_bad="skip", sample_timeout=900, quarantine=note, **TOLERANT)
    assert [len(batch) for batch in loader] == [4, 3, 4]
    assert json.loads(note.read_text())["error"] == "SampleTimeout: sample 5 took longer than sample_timeout=900 s"


def test_a_sample_that_takes_too_long_is_an_error_by_default() -> None:
    with pytest.raises(SampleTimeout, match=r"sample 5 took longer"):
        list(FastLoader(pipelines.Late(12), batch_size=4, sample_timeout=900))


def test_a_time_limit_that_cannot_be_kept_in_another_thread_is_told() -> None:
    """As under Ray Train: no sample was timed, without a word."""
    loader = FastLoader(pipelines.Tensors(8), batch_size=4, sample_timeout=60)
    with pytest.warns(RuntimeWarning, match="sample_timeout=60 times no sample"), ThreadPoolExecutor(1) as pool:
        assert len(pool.submit(list, loader).result()) == 2


class Timer:
    """The process's timer and the time, both as they are told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.rings_at, self.every = 100.0, 0.0, 0.0
        monkeypatch.setattr(signal, "setitimer", self.set)
        monkeypatch.setattr(read_policy, "time", SimpleNamespace(monotonic=lambda: self.now))

    def set(self, which: int, seconds: float, every: float = 0.0) -> tuple[float, float]:
        assert which == signal.ITIMER_REAL
        before = (self.rings_at - self.now if self.rings_at else 0.0), self.every
        self.rings_at, self.every = (self.now + seconds if seconds else 0.0), every
        return before


@pytest.mark.parametrize(("taken", "rings_in"), [(4.0, 6.0), (12.0, SOONEST)])
def test_an_alarm_of_the_users_own_goes_on_with_what_is_left_of_it(
    taken: float, rings_in: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    timer, handler = Timer(monkeypatch), signal.getsignal(signal.SIGALRM)
    timer.set(signal.ITIMER_REAL, 10.0, 3.0)
    with pytest.raises(KeyError), limited(20.0, 5):
        assert (timer.rings_at, timer.every) == (120.0, 0.0)
        assert signal.getsignal(signal.SIGALRM) is not handler
        timer.now += taken
        raise KeyError
    assert timer.rings_at - timer.now == pytest.approx(rings_in) and timer.every == 3.0
    assert signal.getsignal(signal.SIGALRM) is handler


def test_where_no_alarm_was_set_none_is_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = Timer(monkeypatch)
    with limited(20.0, 5):
        assert timer.rings_at == 120.0
    assert timer.rings_at == 0.0


def test_sources_are_found_through_subsets() -> None:
    assert source_of(Subset(Subset(pipelines.Torn(), [9, 8, 7]), [2, 1]), 0) == "/data/7.jpg"
    assert source_of(pipelines.Tensors(), 0) is None
    assert source_of(Subset(pipelines.Torn(), [9, 8, 7]), 12) is None


class InPairs(pipelines.Torn):
    """Its index is a sample's number and something else, in one tensor."""

    def __getitem__(self, pair: Any) -> Any:
        return super().__getitem__(int(pair[0]))


@pytest.mark.parametrize("rng", ["torch", "sample"])
@pytest.mark.parametrize(
    ("dataset", "order", "noted"),
    [
        (Subset(pipelines.Torn(), [0, 1, 2]), [0, 1, 7, 2], 7),
        (InPairs(), [torch.tensor([number, 5]) for number in range(4)], "tensor([3, 5])"),
    ],
)
def test_an_index_that_leads_to_no_sample_is_a_bad_sample(dataset: Any, order: Any, noted: Any, rng: str, tmp_path: Path) -> None:
    note = tmp_path / "quarantine.jsonl"
    loader = FastLoader(dataset, sampler=order, on_bad="skip", rng=rng, quarantine=note, **TOLERANT)
    assert values(loader) == [[0, 1, 2]]
    assert json.loads(note.read_text())["index"] == noted


def test_a_quarantine_that_cannot_be_written_is_told_once() -> None:
    loader = FastLoader(pipelines.Torn(), on_bad="skip", quarantine="/nowhere/at/all.jsonl", **TOLERANT)
    with pytest.warns(RuntimeWarning, match=r"cannot be noted in /nowhere/at/all.jsonl.*FOLDER/quarantine.jsonl") as caught:
        list(loader)
    assert len(caught) == 1


class Hostile(pipelines.Tensors):
    """Its third sample lies in a file whose name is not UTF-8, and its error holds a whole file."""

    def __getitem__(self, index: int) -> Any:
        if index == 2:
            raise OSError(22, "x" * 1_000_000, os.fsdecode(b"/data/caf\xe9.jpg"))
        return super().__getitem__(index)


def test_names_that_are_not_utf_8_and_endless_errors_are_noted(tmp_path: Path) -> None:
    note = tmp_path / "quarantine.jsonl"
    loader = FastLoader(Hostile(8), num_workers=1, on_bad="skip", quarantine=note, **TOLERANT)
    assert len(list(loader)) == 2
    assert note.stat().st_size < 10_000
    (line,) = [json.loads(line) for line in note.read_text(encoding="utf-8").splitlines()]
    assert os.fsencode(line["source"]) == b"/data/caf\xe9.jpg"
    assert line["error"].startswith("OSError: [Errno 22] xxx") and line["error"].endswith("characters)")


class Mute(Exception):
    def __str__(self) -> str:
        raise KeyError("self.message")


class Muted(pipelines.Tensors):
    def __getitem__(self, index: int) -> Any:
        if index == 3:
            raise Mute
        return super().__getitem__(index)


def test_an_error_that_cannot_say_what_it_is_is_noted_by_its_name(tmp_path: Path) -> None:
    note = tmp_path / "quarantine.jsonl"
    loader = FastLoader(Muted(8), batch_size=4, on_bad="skip", quarantine=note, max_bad=1.0)
    assert [len(batch) for batch in loader] == [3, 4]
    assert json.loads(note.read_text())["error"] == "Mute, whose text raises KeyError"
