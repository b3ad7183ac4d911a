"""What is tried beside a probe: FastLoader's hand-over where the arms promise something of it, fused calls over pictures and over
caches, and no cache of what a cache already holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset

from pipefix.api import probe, try_remedies
from pipefix.caches.convert import convert, recipe_of
from pipefix.caches.dataset import CachedDataset
from pipefix.fixes.outcome import Measured
from pipefix.loader.fast_loader import FastLoader
from pipefix.measurement.consumer import Consumer
from pipefix.measurement.measurement import FusedCall, TriedCache
from pipefix.subject.load import load
from pipefix.vocabulary.errors import TargetError
from pipefix.vocabulary.gain import MeasuredGain
from pipefix.vocabulary.quantity import exactly
from pipefix.vocabulary.stage import Stage
from tests.plan.builders import JPEGS, MACHINE, World

PROMISING = JPEGS.but(arms={"handover-skipped": exactly(2.0)}, fields={"first_batch": 0.1, "paths": ["one.jpg"]})
GAIN = Measured(gain=exactly(1.7), before=exactly(10.0), after=exactly(17.0), pairs=4)


def handover(world: World, monkeypatch: pytest.MonkeyPatch, answer: Any = GAIN) -> tuple[MeasuredGain | None, list[type]]:
    """What is told, and the kinds of loaders that were run in turn."""
    ran: list[type] = []

    def faster(before: Any, after: Any, *, from_memory: bool, **_: Any) -> Measured:
        assert from_memory
        ran.extend(type(pipeline.subject.loader) for pipeline in (before, after))
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return]

    monkeypatch.setattr(try_remedies, "faster", faster)
    subject = load(DataLoader(TensorDataset(torch.zeros(8, 4)), batch_size=2, num_workers=2))
    return try_remedies.handover(subject, Consumer(), world.case(), 1.0), ran


def test_what_the_arms_promise_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    told, ran = handover(PROMISING, monkeypatch)
    assert told == MeasuredGain(exactly(1.7), 4)
    assert ran == [DataLoader, FastLoader]


@pytest.mark.parametrize(
    "world",
    [
        PROMISING.but(arms={"handover-skipped": exactly(1.0)}),
        PROMISING.but(workers=0),
        PROMISING.but(fields={"first_batch": 9.0}),
        PROMISING.but(fields={"first_batch": None}),
    ],
)
def test_what_promises_nothing_or_starts_late_is_not_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert handover(world, monkeypatch) == (None, [])


@pytest.mark.parametrize("error", [TargetError("a sample", advice="look at it"), RuntimeError("a worker died")])
def test_what_fails_leaves_it_to_the_model(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    assert handover(PROMISING, monkeypatch, error)[0] is None


@pytest.mark.parametrize("answer", [GAIN, TargetError("a sample", advice="look at it")])
def test_the_calls_that_promise_most_are_run_in_the_whole_loader(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []

    def faster(before: Any, after: Any, **_: Any) -> Measured:
        ran.append(after.subject.loader.fuse)
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return]

    monkeypatch.setattr(try_remedies, "faster", faster)
    quick, quicker = FusedCall(left=exactly(0.5)), FusedCall(left=exactly(0.2))
    measured = MeasuredGain(exactly(1.7), 4) if answer is GAIN else None
    subject = load(DataLoader(TensorDataset(torch.zeros(8, 4)), batch_size=2))
    for calls, mode in (
        ({"exact": quick, "close": quicker}, "close"),
        ({"exact": quick, "close": FusedCall(why_not="no")}, "exact"),
        ({"exact": FusedCall(why_not="no")}, None),
        ({"exact": FusedCall(left=exactly(5.0))}, None),
        ({}, None),
    ):
        ran.clear()
        world = JPEGS.but(fields={"fused": calls, "first_batch": 0.1})
        told = try_remedies.fused_loader(subject, Consumer(), world.case(), 1.0)
        assert ran == ([mode] if mode else [])
        assert told == calls | ({mode: replace(calls[mode], gain=measured)} if mode else {})


@pytest.fixture
def cached(tmp_path: Path) -> CachedDataset:
    """Of arrays, nothing of which has a picture's name."""
    convert(TensorDataset(torch.zeros(8, 4)), recipe_of("lmdb", "decoded"), tmp_path / "cache", target="a target", workers=0)
    return CachedDataset(tmp_path / "cache")


NAMELESS = JPEGS.but(ops={**JPEGS.ops, Stage.DECODE: ("RecordDecoder",)})


@pytest.mark.parametrize(("of_cache", "fuse", "tried"), [(True, None, 2), (False, None, 0), (True, "close", 0)])
def test_fused_calls_are_tried_over_a_cache_whatever_its_operations_are_called(
    of_cache: bool, fuse: Any, tried: int, cached: CachedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pictures that are decoded already pass no decoder: `fix` stopped at the cache, and left the larger gain behind it."""
    asked: list[str] = []
    monkeypatch.setattr(try_remedies, "_tried", lambda subject, mode, seconds: asked.append(mode) or FusedCall())
    dataset = Subset(cached, range(8)) if of_cache else TensorDataset(torch.zeros(8, 4))
    calls = try_remedies.fused_calls(load(FastLoader(dataset, fuse=fuse)), NAMELESS.diagnosis(), 20.0)
    assert len(asked) == tried
    assert [call.why_not for call in calls.values()] == (
        ["the loader is told to use fused calls already (fuse = 'close')"] if fuse else [""] * tried
    )


@pytest.mark.parametrize(
    ("store", "why"),
    [
        ("source", "the pipeline reads from {} already, which holds what comes later on a sample's way"),
        ("decoded", "the pipeline reads from {} already, which holds the same"),
    ],
)
def test_no_cache_is_proposed_of_what_a_cache_holds(store: str, why: str, cached: CachedDataset) -> None:
    subject = load(DataLoader(cached, batch_size=2))
    assert try_remedies.begin_cache(subject, store, 0.0, 0.001) == TriedCache(why.format(cached.path))
    assert try_remedies.begin_cache(subject, "sample", 0.0, 0.001) is None, "nothing speaks against it, and there is no time"
    both = load(DataLoader(ConcatDataset([cached, TensorDataset(torch.zeros(8, 4))]), batch_size=2))
    assert try_remedies.begin_cache(both, store, 0.0, 0.001) is None, "half of its samples are in no cache"


class Transformed(TensorDataset):
    def __init__(self, values: torch.Tensor) -> None:
        super().__init__(values)
        self.transform = sorted


@pytest.mark.parametrize(
    ("operation", "held", "tried"),
    [("cv2.GaussianBlur", True, True), ("RandomResizedCrop", True, False), ("RandomResizedCrop", False, True)],
)
def test_operations_whose_names_tell_nothing_are_tried(
    operation: str, held: bool, tried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blurred pictures were said to gain 1.16x where nothing of them was random, and a cache brought 9.6x."""
    begun: list[str] = []

    def begin_cache(_subject: Any, store: str, *_: Any) -> TriedCache:
        begun.append(store)
        return TriedCache(whole=store == "sample")

    monkeypatch.setattr(try_remedies, "begin_cache", begin_cache)
    world = JPEGS.but(ops={**JPEGS.ops, Stage.AUGMENT: (operation,)})
    subject = load(DataLoader((Transformed if held else TensorDataset)(torch.zeros(8, 4))))
    measurement = world.measurement()
    probe._try_conversions(subject, MACHINE, measurement, world.diagnosis(), 4.0)
    assert ("sample" in begun) == measurement.same_every_time == tried
