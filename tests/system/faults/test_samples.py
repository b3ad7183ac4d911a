"""Probes that take seconds, and races that are run over and over."""

from __future__ import annotations

from typing import Any

import pytest

import pipefix
from tests.faults.conftest import Tell
from tests.faults.test_samples import BOTH, STATEFUL, loader


@BOTH
def test_code_that_does_not_run_with_a_stage_replaced(target: Any, workers: int) -> None:
    """What a method leaves on its object is missing where its result came from a recording. That is ours to notice, not theirs."""
    # On a busy machine 2 s end before the arm is tried.
    run = pipefix.probe(target(STATEFUL + loader("Stateful()", workers)), budget=8)
    arms = {arm.name: arm for arm in run.arms}
    declined = arms["decode-recorded"].declined or ""
    assert declined.startswith("the pipeline does not run with that replaced: dataset[") and "TypeError" in declined
    assert arms["real"].rates and not arms["decode-recorded"].rates
    assert run.verdict is not None and not run.partial


@pytest.mark.timeout(120)
def test_workers_ended_in_the_middle_of_anything_are_not_waited_for(tell: Tell) -> None:
    """A worker may be ended while it holds a lock that torch takes when it cleans up: again and again, it must not matter."""
    for _ in range(8):
        tell(
            "class Torn(Good):\n    def __getitem__(self, index):\n        raise ValueError('torn')\n" + loader("Torn()", 2)
        ).check(3, "torn")
