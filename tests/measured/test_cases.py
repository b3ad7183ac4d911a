"""The drawn pipelines are what the bench says it plants."""

from __future__ import annotations

from collections import Counter

from measured.planted import cases, formats, sources
from measured.planted.truth import truth_of

DRAWN = cases.draw(300)


def test_the_plan_has_the_limiting_stage_it_names() -> None:
    for case in DRAWN:
        truth = truth_of(case.costs, case.workers)
        assert truth.label == case.truth, case
        if case.truth != "balanced":
            assert 1.15 <= truth.dominance <= 12.5, case


def test_every_stage_limits_equally_often() -> None:
    assert set(Counter(case.truth for case in DRAWN).values()) <= {42, 43}


def test_a_third_is_hard_and_some_are_easy() -> None:
    dominances = [truth_of(case.costs, case.workers).dominance for case in DRAWN if case.truth != "balanced"]
    assert sum(value < 2 for value in dominances) >= len(dominances) / 3
    assert sum(value > 4 for value in dominances) >= len(dominances) / 10


def test_all_kinds_take_part() -> None:
    assert {case.workers for case in DRAWN} == {0, 1, 2, 4}
    assert {case.shape for case in DRAWN} == {"map", "methods", "inline", "batched", "stream", "folder"}
    assert {case.consumer for case in DRAWN} == {"none", "emulated", "real"}
    assert {case.format for case in DRAWN} == set(formats.ENCODERS)
    assert {case.storage for case in DRAWN} == set(sources.CPU_SOURCES) | set(sources.WAITING_SOURCES)
    assert {stage for case in DRAWN for stage in case.waits} == {"storage", "augment", "collate", "step"}
    assert sum(bool(case.unevenness) for case in DRAWN) > 75


def test_a_case_does_not_depend_on_how_many_are_drawn() -> None:
    assert cases.draw(10) == DRAWN[:10]
    assert cases.draw(10, seed=1) != DRAWN[:10]
