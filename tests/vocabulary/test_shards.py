"""How many parts a stream says it can be read in."""

from __future__ import annotations

import types
from collections.abc import Iterator

from torch.utils.data import get_worker_info

from pipefix.subject.frameworks import NodeStream
from pipefix.vocabulary.shards import shards_of


class ShardList:
    def __init__(self, urls: list[str]) -> None:
        self.urls = urls


ShardList.__module__ = "webdataset.shardlists"


class ResampledShards(ShardList):
    """Every worker draws from all of them."""


ResampledShards.__module__ = "webdataset.shardlists"


class Dealing:
    """The user's own stream: each worker reads every so many of its files."""

    def __init__(self, files: list[str]) -> None:
        self.files = self.labels = files

    def __iter__(self) -> Iterator[str]:
        info = get_worker_info()
        assert info is not None
        yield from self.files[info.id :: info.num_workers]
        yield from self.labels[::-1]


class Lines:
    """Another one: each worker reads every so many lines of all files."""

    def __init__(self, urls: list[str]) -> None:
        self.urls = urls


class Pipeline:
    """As WebDataset holds its stages."""

    def __init__(self, urls: list[str]) -> None:
        self.pipeline = [ShardList(urls), len]


class Plain:
    @property
    def num_shards(self) -> int:
        raise AssertionError("the user's own code is not run for this")


def test_a_pipeline_of_shards_is_counted() -> None:
    assert shards_of(Pipeline(["a.tar"])) == 1
    assert shards_of(Pipeline(["a.tar", "b.tar", "c.tar"])) == 3


def test_a_stream_of_hugging_faces_says_it_itself_also_inside_another() -> None:
    kind = type("IterableDataset", (), {"__module__": "datasets.iterable_dataset", "num_shards": property(lambda self: 8)})
    assert shards_of(kind()) == 8
    assert shards_of(types.SimpleNamespace(dataset=kind())) == 8


def test_the_users_own_stream_is_counted_by_the_list_that_its_workers_share_out() -> None:
    assert shards_of(Dealing(["a", "b"])) == 2
    assert shards_of(Lines(["a"])) is None


def test_shards_that_are_drawn_with_replacement_limit_no_worker() -> None:
    assert shards_of(types.SimpleNamespace(pipeline=[ResampledShards(["a.tar"])])) is None


def test_others_say_nothing_and_are_not_run() -> None:
    assert shards_of(Plain()) is None


def test_a_graph_of_nodes_has_none_for_workers_of_a_loader() -> None:
    assert shards_of(NodeStream(None)) == 0
