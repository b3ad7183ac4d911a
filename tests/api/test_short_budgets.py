"""What a probe of few seconds says of remedies that it had no time to try."""

from __future__ import annotations

from typing import Any

import pytest
from torch.utils.data import DataLoader

from pipefix.api import probe
from pipefix.measurement.consumer import Consumer
from pipefix.measurement.measurement import Measurement
from pipefix.plan.remedies.pictures import LEAST_BUDGET
from pipefix.subject.load import load
from tests.plan.builders import JPEGS


def looked(monkeypatch: pytest.MonkeyPatch, budget: float) -> Measurement:
    """What is known when it is told."""
    measurement = JPEGS.measurement()
    monkeypatch.setattr(probe, "measure", lambda *_, **__: measurement)
    monkeypatch.setattr(probe, "diagnose", lambda _: JPEGS.diagnosis())

    def told(_subject: Any, _machine: Any, measured: Measurement, *_: Any) -> Any:
        raise Told(measured)

    monkeypatch.setattr(probe, "_told", told)
    with pytest.raises(Told):
        probe.look_at(load(DataLoader([0, 1], batch_size=2)), Consumer(), budget=budget)
    return measurement


def test_caches_that_were_not_tried_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looked(monkeypatch, LEAST_BUDGET - 1).tried_caches["resized"].late


def test_after_ctrl_c_nothing_more_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches were begun all the same, for seconds, before what was known was told."""

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(probe.try_remedies, "fused_calls", interrupted)
    given: list[float] = []
    monkeypatch.setattr(probe.try_remedies, "begin_cache", lambda _subject, _store, seconds, _sample_s: given.append(seconds))
    measurement = looked(monkeypatch, LEAST_BUDGET)
    assert measurement.partial and measurement.tried_caches["resized"].late
    assert given and max(given) <= 0, "in no time nothing is begun"


class Told(BaseException):
    """Ends it where it would be told."""
