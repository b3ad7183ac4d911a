"""What is observed: objects in datasets, the make-up of batches, pinning in the user's code, and the process itself."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset

from pipefix.audit.dataset_scan import scan_dataset
from pipefix.audit.facts import REUSED, BatchFacts, DatasetFacts
from pipefix.audit.handle_scan import open_handles
from pipefix.audit.loader_facts import batch_facts, growth, loader_facts, run_facts, worker_facts
from pipefix.audit.storage_facts import store_in
from pipefix.loader.fast_loader import FastLoader
from tests.audit import pipelines

SPECIAL = ("__len__", "__iter__", "__getitem__", "__sizeof__", "__contains__", "items", "values", "keys", "__repr__")


def held(**attributes: Any) -> DatasetFacts:
    return scan_dataset(SimpleNamespace(**attributes))


class TestDatasets:
    def test_tuples_of_path_and_label(self) -> None:
        facts = scan_dataset(pipelines.PathList(20_000))
        assert facts.objects == pytest.approx(60_000, rel=0.02)
        assert facts.bytes == pytest.approx(20_000 * (56 + 91 + 28), rel=0.1)
        assert facts.where == "dataset.samples"

    def test_shared_labels_count_once(self) -> None:
        names = [f"class {index}" for index in range(100)]
        assert held(labels=[names[index % 100] for index in range(50_000)]).objects <= 100

    def test_small_numbers_are_the_interpreters_own(self) -> None:
        assert held(labels=[index % 10 for index in range(50_000)]).objects == 0

    def test_records(self) -> None:
        records = {index: {"path": f"{index}.jpg", "box": [index + 0.5, index + 1.5]} for index in range(10_000)}
        # A key, a dict, a path, a list and two numbers each; the names of the fields are shared.
        assert held(records=records).objects == pytest.approx(60_000, rel=0.05)

    def test_arrays_hold_no_objects(self) -> None:
        facts = held(
            paths=np.array(["a", "b"] * 50_000), pixels=torch.zeros(100_000), numbers=np.arange(100_000), span=range(10**9)
        )
        assert facts == DatasetFacts()

    def test_arrays_of_objects_do(self) -> None:
        strings = [f"path {index}" for index in range(5000)]
        assert held(paths=np.array(strings, dtype=object)).objects == 5000

    def test_kinds_of_lists_and_dicts(self) -> None:
        Sample = namedtuple("Sample", "path label")
        strings = [f"path {index}" for index in range(6000)]
        by_class = defaultdict(list)
        for index, string in enumerate(strings):
            by_class[index % 100].append(string)
        assert held(paths=deque(strings)).objects == 6000
        assert held(paths=OrderedDict.fromkeys(strings)).objects == 6000
        assert held(samples=[Sample(string, 0.5 + index) for index, string in enumerate(strings)]).objects == 18_000
        # Of each of the hundred lists 32 entries are looked at.
        assert held(by_class=by_class).objects == pytest.approx(6100, rel=0.01)

    def test_columns_of_tables(self) -> None:
        pandas = pytest.importorskip("pandas")
        strings = [f"path {index}" for index in range(5000)]
        table = pandas.DataFrame({"label": range(5000), "path": pandas.Series(strings, dtype=object)})
        facts = held(table=table)
        assert facts.objects == 5000
        assert facts.where == "dataset.table['path']"
        assert held(paths=table["path"]).objects == 5000
        assert held(labels=table["label"]) == DatasetFacts()

    def test_datasets_inside_datasets(self) -> None:
        inner = pipelines.PathList(1000)
        both = Subset(ConcatDataset([inner, pipelines.PathList(2000)]), range(10))
        facts = scan_dataset(both)
        assert facts.objects == pytest.approx(9000, rel=0.1)
        assert facts.where == "dataset.dataset.datasets[1].samples"

    def test_one_list_under_two_names_counts_once(self) -> None:
        strings = [f"path {index}" for index in range(5000)]
        assert held(samples=strings, imgs=strings).objects == 5000

    def test_no_code_of_the_datasets_is_run(self) -> None:
        def ran(*_: Any) -> Any:
            raise AssertionError("the user's own code was run")

        kinds = [type("Lazy", (base,), dict.fromkeys(SPECIAL, ran)) for base in (list, dict, tuple, set)]
        clips = [kind([(number, number) for number in range(500)]) for kind in kinds]
        sequence = type("Clips", (Sequence,), dict.fromkeys((*SPECIAL, "__getattr__"), ran))()
        proxy = type("Proxy", (), {"__class__": property(ran), "__getattr__": ran})()
        dataset = SimpleNamespace(clips=clips, sequence=sequence, proxy=proxy, many=[*clips, sequence, proxy] * 20)
        assert scan_dataset(dataset).objects > 0
        assert open_handles(dataset) == {}
        assert store_in(dataset) is None

    def test_slots_and_loops(self) -> None:
        class Slotted:
            __slots__ = ("itself", "paths")

        thing = Slotted()
        thing.itself, thing.paths = thing, [f"path {index}" for index in range(1000)]
        assert scan_dataset(thing).objects == 1000


class TestBatches:
    def test_a_plain_batch(self) -> None:
        assert batch_facts([torch.zeros(32, 3, 64, 64), torch.zeros(32, dtype=torch.int64)]) == BatchFacts(
            bytes=32 * 3 * 64 * 64 * 4 + 256, tensors=2, small_tensors=1
        )

    def test_views_of_one_storage_cross_as_one(self) -> None:
        whole = torch.zeros(100, dtype=torch.uint8)
        assert batch_facts([whole[:10], whole[50:], whole]) == BatchFacts(bytes=100, tensors=1, small_tensors=1)

    def test_everything_a_collate_function_may_return(self) -> None:
        Pair = namedtuple("Pair", "pixels label")
        batch = {
            "pair": Pair(torch.zeros(10), [torch.ones(2), torch.ones(3)]),
            "own": pipelines.OwnBatch([torch.zeros(4)]),
            "array": np.zeros(100, np.uint8),
            "raw": [b"12345", bytearray(5)],
            "text": "no bytes to speak of",
            "nothing": None,
            "sparse": torch.eye(3).to_sparse(),
        }
        facts = batch_facts(batch)
        assert facts.piped_bytes == 110
        assert facts.tensors == 5
        assert facts.bytes == 110 + 4 * (10 + 2 + 3 + 4 + 9)

    @pytest.mark.parametrize("batch", [None, 3, "text", [], {}, object()])
    def test_no_tensors_at_all(self, batch: Any) -> None:
        assert batch_facts(batch) == BatchFacts()


class TestProcess:
    @pytest.mark.skipif(not sys.platform.startswith("linux"), reason="starts a forked worker")
    def test_threads_of_python_are_no_pool(self) -> None:
        look = pipelines.Look(torch.stack)
        beside = DataLoader(Spinning(), batch_size=4, num_workers=1, multiprocessing_context="fork", collate_fn=look)
        assert {numbers["worker.busy_threads"] for _, _, numbers in beside} == {0.0}

    def test_numbers_travel_and_come_back(self) -> None:
        batch = [torch.zeros(100_000), np.zeros(10)]
        loader = DataLoader(pipelines.Arrays())
        facts = run_facts(loader, worker_facts(batch), ["/"])
        assert facts["batch"] == batch_facts(batch)
        assert set(loader_facts(loader)) <= set(facts)

    def test_a_fast_loader_shares_batches_in_a_way_of_its_own(self) -> None:
        told = [loader_facts(FastLoader([1], engine=engine))["sharing_strategy"] for engine in ("auto", "torch")]
        assert told == [REUSED, loader_facts(DataLoader([1]))["sharing_strategy"]]

    def test_growth_needs_two_figures(self) -> None:
        seen = growth([(4, {"worker.uss_bytes": 100.0}), (9, {}), (14, {"worker.uss_bytes": 150.0, "batch.bytes": 3.0})])
        assert seen is not None
        assert (seen.bytes, seen.fraction, seen.samples) == (50, 0.5, 10)
        assert growth([(4, {}), (14, {"worker.uss_bytes": 150.0})]) is None
        assert growth([(4, {"worker.uss_bytes": 100.0})]) is None

    def test_asking_for_the_start_method_does_not_fix_it(self, preloaded: str) -> None:
        code = (
            "import multiprocessing\nfrom torch.utils.data import DataLoader\nfrom pipefix.audit.loader_facts import loader_facts\n"
            "print(loader_facts(DataLoader([1]))['start_method'])\nmultiprocessing.set_start_method('spawn')\n"
            "print(loader_facts(DataLoader([1]))['start_method'])"
        )
        said = subprocess.run([*preloaded.split(), "-c", code], capture_output=True, text=True, check=True).stdout.split()
        assert said[1] == "spawn"


class Spinning(pipelines.Arrays):
    """A thread of Python's own does work beside the main one."""

    def __getitem__(self, index: int) -> torch.Tensor:
        thread = threading.Thread(target=sum, args=(range(300_000),))
        thread.start()
        thread.join()
        # Python joins it when its last line has run: until the kernel has ended it, it would look like a thread of somebody else's.
        while os.path.exists(f"/proc/self/task/{thread.native_id}"):
            time.sleep(0.001)
        return super().__getitem__(index)
