"""What a diagnosis must never claim: each of its statements turned against its figures is told in words."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pipefix.diagnosis import diagnose as diagnosing
from pipefix.diagnosis.contradictions import contradictions
from pipefix.diagnosis.diagnose import diagnose
from pipefix.diagnosis.diagnosis import Diagnosis
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


def verdict(**changes: Any) -> Callable[[Diagnosis], None]:
    def change(diagnosis: Diagnosis) -> None:
        diagnosis.verdict = msgspec.structs.replace(diagnosis.verdict, **changes)

    return change


FALSE = {
    "its own arm gains nothing": (
        stage(Stage.DECODE, gain=tried(0.9, 0.95, 0.98)),
        "decode is named, and without it the pipeline delivers 0.95x (0.90-0.98)",
    ),
    "its own arm saves far less than it is said to take": (
        stage(Stage.DECODE, gain=tried(1.0, 1.02, 1.04)),
        "decode is said to take 75 % of the time, and without it the pipeline delivers 1.02x (1.00-1.04)",
    ),
    "its bound is far less": (
        stage(Stage.DECODE, gain=Bounded(1.1)),
        "decode is said to take 75 % of the time, and without it there would be at most 1.10x",
    ),
    "another gains more": (stage(Stage.STORAGE, gain=tried(7.0, 8.0, 9.0)), "but without storage 8.00x (7.00-9.00)"),
    "one block": (stage(Stage.DECODE, gain=tried(3.9, 4.0, 4.1, blocks=1)), "decode is named, and its arm ran for one block"),
    "no such stage": (verdict(stage=Stage.TRANSFER), "transfer is named, and was not measured"),
    "another kind": (verdict(kind="balanced"), "decode is named, and the verdict is balanced"),
    "no arm of it ran": (
        stage(Stage.AUGMENT, gain=tried(1.0, 1.1, 1.2)),
        "augment is said to gain 1.10x (1.00-1.20), and no arm ran without it",
    ),
    "outside of its interval": (stage(Stage.STORAGE, wall=Interval(2.0, 3.0, 4.0)), "storage takes 2.00 s a sample"),
    "operations that take longer than their stage": (
        stage(Stage.STORAGE, wall=Interval(1e-4, 1e-4, 1e-4)),
        "operations of storage take 1.00 ms a sample, and the stage 100 µs",
    ),
    "more than the whole": (stage(Stage.STORAGE, share=0.9), "the stages and the rest add up to 165 % of the time"),
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
