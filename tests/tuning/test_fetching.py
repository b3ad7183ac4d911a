"""Whole batches or one sample after the other: what is measured, what is tried, what the plan does, and what is said."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset, Subset

from pipefix.api.tune import _space
from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.planning import as_planned, planned
from pipefix.loader.planning.as_planned import with_settings
from pipefix.loader.planning.one_by_one import OneByOne
from pipefix.plan import planfile
from pipefix.plan.planfile import LoaderChange, PlanFile
from pipefix.report.tune_figures import ConsumerName, TuneReporter
from pipefix.subject.load import load
from pipefix.tuning import child
from pipefix.tuning.block_figures import around
from pipefix.tuning.child import one_by_one
from pipefix.tuning.limits import BatchCost, ResourceLimits
from pipefix.tuning.results import Goal, Preview, TrialResult
from pipefix.tuning.search import NextTrial, Search
from pipefix.tuning.space import Settings, Space, said
from pipefix.tuning.tuner import Found, TrialLine
from pipefix.vocabulary.settings import LoaderSettings
from tests.doubles.ticks import Ticks
from tests.plan.builders import MACHINE

PAUSE = time.sleep


class Numbers(Dataset[Any]):
    """Counts how it is asked. Whole batches take ``slower`` seconds more a sample."""

    def __init__(self, slower: float = 0.0, single: float = 0.0) -> None:
        self.slower, self.single, self.note = slower, single, ""
        self.asked: list[Any] = []

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> int:
        PAUSE(self.single)
        self.asked.append(index)
        return index

    def __getitems__(self, indices: list[int]) -> list[int]:
        PAUSE(self.slower * len(indices))
        self.asked.append(list(indices))
        return list(indices)


class Whole(Numbers):
    def __getitem__(self, index: int) -> int:
        raise NotImplementedError


def loader(dataset: Any, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, batch_size=4, collate_fn=list, **options)


def test_both_ways_are_timed_where_both_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = Ticks().given_to((child.__name__,), monkeypatch)
    monkeypatch.setitem(globals(), "PAUSE", ticks.passes)
    slow = one_by_one(load(loader(Numbers(slower=0.004))))
    assert slow is not None and slow < 0.5
    quick = one_by_one(load(loader(Numbers(single=0.004))))
    assert quick is not None and quick > 2
    assert one_by_one(load(loader(Whole()))) is None
    assert one_by_one(load(loader(Subset(list(range(20)), range(8))))) is None  # type: ignore[arg-type]
    inner = one_by_one(load(loader(Subset(Numbers(slower=0.004), range(100)))))
    assert inner is not None and inner < 0.5


@pytest.mark.parametrize(("ratio", "tried"), [(0.6, True), (0.99, False), (3.0, False), (None, False)])
def test_one_by_one_is_tried_where_it_is_quicker(ratio: float | None, tried: bool) -> None:
    search = Search(Space(most_workers=2, cores=2, reorder=False), Goal(), Settings(2))
    look, seen = Preview(100.0, one_by_one=ratio), []
    while isinstance(asked := search.next(seen, look=look), NextTrial):
        gain = 1.4 if asked.settings.batched_fetch is False else 1.0
        seen.append(TrialResult(asked.settings, 100.0 * gain * max(1, asked.settings.workers), doubt=0.01))
        if asked.settings == Settings(2, batched_fetch=False):
            assert asked.why == "a batch's samples one by one took 60 % of what __getitems__ took"
    best = search.best(seen, look=look)
    assert best is not None
    assert (best.settings.batched_fetch is False) == tried == any(one.settings.batched_fetch is False for one in seen)


def test_a_trial_asks_for_one_sample_after_the_other() -> None:
    data = Numbers()
    made = with_settings(loader(data), **Settings(0, batched_fetch=False).arguments())
    assert next(iter(made)) == [0, 1, 2, 3]
    assert data.asked == [0, 1, 2, 3]
    assert isinstance(made.dataset, OneByOne)
    assert not load(made).batched_fetch


def test_the_plan_is_applied_by_fastloader_and_by_what_measures_plans(tmp_path: Path) -> None:
    path = tmp_path / planfile.NAME
    planfile.write(PlanFile(loader=LoaderChange(batched_fetch=False)), path)
    data = Numbers()
    fast: FastLoader[Any] = FastLoader(data, batch_size=4, collate_fn=list, plan=path)
    assert next(iter(fast)) == [0, 1, 2, 3]
    assert data.asked == [0, 1, 2, 3]
    assert fast.dataset is data
    assert next(iter(as_planned.loader(loader(data), planfile.read(path), tmp_path))) == [0, 1, 2, 3]
    assert not any(isinstance(one, list) for one in data.asked)
    plain = [1, 2]
    assert planned.asked(plain, LoaderChange(batched_fetch=False)) is plain, "nothing is to be hidden"
    assert planned.asked(data, LoaderChange()) is data


def test_the_dataset_is_the_same_in_all_else() -> None:
    data = Numbers()
    seen: Any = OneByOne(data)
    seen.note = "set by worker_init_fn"
    assert (data.note, seen.note, len(seen), seen.dataset) == ("set by worker_init_fn", data.note, 400, data)
    assert getattr(seen, "__getitems__", None) is None
    again = pickle.loads(pickle.dumps(seen))
    assert again.note == data.note and again[3] == 3


def told(chosen: Settings, kind: str, batch: BatchCost, *rows: TrialLine, space: Space | None = None) -> Any:
    rate = around(100.0, 0.01)
    found = Found(rows, chosen, None, rate, rate.scaled(1.4), (), batch, "")
    settings = LoaderSettings(batch_size=4, num_workers=2, kind=kind, length=400)
    space = space or Space(4, 4)
    who = ConsumerName("none", present=False)
    return TuneReporter("train.py", settings, Settings(2), space, ResourceLimits(), found, who, 0.01).report(
        created="", written=None
    )


def test_what_is_said() -> None:
    batch = BatchCost(100.0, 1, 1e8, 10, 0.1, 0.1, 4, one_by_one=0.6)
    turned = Settings(2, batched_fetch=False)
    report = told(turned, "batched", batch)
    assert report.changes["batched_fetch"] is False
    assert LoaderChange(**report.changes).batched_fetch is False
    assert "batched_fetch = false makes FastLoader do so" in " ".join(report.notes)
    assert "batched_fetch" not in report.declined
    row = TrialLine(turned, "", "run")
    assert told(Settings(2), "batched", batch, row).declined["batched_fetch"] == (
        "samples fetched one by one took 60 % of what whole batches took (__getitems__), and in a trial they brought no more"
    )
    only = BatchCost(100.0, 1, 1e8, 10, 0.1, 0.1, 4)
    assert told(Settings(2), "batched", only).declined["batched_fetch"].endswith("and can be asked in no other way")
    assert said(turned) == "2 workers, samples one by one"


def test_a_dataset_without_it_is_said_to_need_a_change() -> None:
    space = _space(load(DataLoader(list(range(20)), batch_size=4)), MACHINE, None, False)  # type: ignore[arg-type]
    assert space.declined is not None
    assert space.declined["batched_fetch"] == (
        "the dataset has no __getitems__, and only a change to its code could give it one; what that would bring is told by "
        "pipefix probe"
    )
