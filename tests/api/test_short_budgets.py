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


def test_caches_that_were_not_tried_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    measurement = JPEGS.measurement()
    monkeypatch.setattr(probe, "measure", lambda *_, **__: measurement)
    monkeypatch.setattr(probe, "diagnose", lambda _: JPEGS.diagnosis())

    def told(_subject: Any, _machine: Any, measured: Measurement, *_: Any) -> Any:
        raise Told(measured)

    monkeypatch.setattr(probe, "_told", told)
    with pytest.raises(Told):
        probe.look_at(load(DataLoader([0, 1], batch_size=2)), Consumer(), budget=LEAST_BUDGET - 1)
    assert measurement.tried_caches["resized"].late


class Told(BaseException):
    """Ends it where it would be told."""
