"""What a diagnosis must never claim: each of its statements turned against its figures is told in words."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from pipefix.diagnosis import diagnose as diagnosing
from pipefix.diagnosis.diagnose import diagnose
from pipefix.diagnosis.diagnosis import Diagnosis
from pipefix.diagnosis.verdict_rules import contradictions
from pipefix.vocabulary.gain import Bounded, MeasuredGain
from pipefix.vocabulary.quantity import Interval
from pipefix.vocabulary.stage import Stage
from tests.doubles.measured import measured


def tried(low: float, value: float, high: float, blocks: int = 3) -> MeasuredGain:
    return MeasuredGain(Interval(value, low, high), blocks)


def stage(name: Stage, **changes: Any) -> Callable[[Diagnosis], None]:
    def change(diagnosis: Diagnosis) -> None:
        diagnosis.stages[name] = dataclasses.replace(diagnosis.stages[name], **changes)

    return change


FALSE: dict[str, tuple[Callable[[Diagnosis], None], str]] = {
    "its own arm saves far less than it is said to take": (
        stage(Stage.DECODE, gain=tried(1.0, 1.02, 1.04)),
        "decode is said to take 75 % of the time, and without it the pipeline delivers 1.02x (1.00-1.04)",
    ),
    "another gains more": (stage(Stage.STORAGE, gain=tried(7.0, 8.0, 9.0)), "but without storage 8.00x (6.05-10.5)"),
    "the sampler gains more": (
        lambda diagnosis: setattr(diagnosis, "sampler_gain", tried(7.0, 8.0, 9.0)),
        "but without the sampler 8.00x (6.05-10.5)",
    ),
}


@pytest.mark.parametrize("claim", FALSE)
def test_a_statement_that_the_figures_contradict_is_told(claim: str) -> None:
    change, sentence = FALSE[claim]
    measurement = measured({"storage": 1.0, "decode": 3.0}, arms={"augment-recorded": None})
    diagnosis = diagnose(measurement)
    assert contradictions(measurement, diagnosis) == []
    change(diagnosis)
    sentences = contradictions(measurement, diagnosis)
    assert any(sentence in contradiction for contradiction in sentences), sentences


def test_a_bound_contradicts_no_other_stage() -> None:
    measurement = measured({"storage": 1.0, "decode": 3.0})
    diagnosis = diagnose(measurement)
    stage(Stage.STORAGE, gain=Bounded(50.0))(diagnosis)
    assert contradictions(measurement, diagnosis) == []


def test_what_contradicts_itself_is_inconclusive_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosing, "contradictions", lambda measurement, diagnosis: ["decode is named, and was not measured"])
    verdict = diagnose(measured({"storage": 1.0, "decode": 3.0})).verdict
    assert (verdict.kind, verdict.stage) == ("inconclusive", None)
    assert verdict.sentence == "Inconclusive: decode is named, and was not measured. More blocks would settle it: --budget 60."
