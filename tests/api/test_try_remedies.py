"""FastLoader's hand-over is run beside a probe where the arms promise something of it, and only there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from pipefix.api import try_remedies
from pipefix.fixes.outcome import Measured
from pipefix.loader.fast_loader import FastLoader
from pipefix.measurement.consumer import Consumer
from pipefix.subject.load import load
from pipefix.vocabulary.errors import TargetError
from pipefix.vocabulary.gain import MeasuredGain
from pipefix.vocabulary.quantity import exactly
from tests.plan.builders import JPEGS, World

PROMISING = JPEGS.but(arms={"handover-skipped": exactly(2.0)}, fields={"first_batch": 0.1})
GAIN = Measured(gain=exactly(1.7), before=exactly(10.0), after=exactly(17.0), pairs=4)


def handover(world: World, monkeypatch: pytest.MonkeyPatch, answer: Any = GAIN) -> tuple[MeasuredGain | None, list[type]]:
    """What is told, and the kinds of loaders that were run in turn."""
    ran: list[type] = []

    def faster(before: Any, after: Any, **_: Any) -> Measured:
        ran.extend(type(pipeline.subject.loader) for pipeline in (before, after))
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return]

    monkeypatch.setattr(try_remedies, "faster", faster)
    subject = load(DataLoader(TensorDataset(torch.zeros(8, 4)), batch_size=2, num_workers=2))
    return try_remedies.handover(subject, Consumer(), world.measurement(), world.diagnosis(), 1.0), ran


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
