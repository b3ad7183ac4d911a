"""How many parts a stream says it can be read in."""

from __future__ import annotations

import types

from pipefix.vocabulary.shards import shards_of


class ShardList:
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


def test_others_say_nothing_and_are_not_run() -> None:
    assert shards_of(Plain()) is None
