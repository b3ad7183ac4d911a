"""Mistakes that are really made, in running processes, where the gate describes what they look like."""

from __future__ import annotations

import sys

import pytest

from pipefix.audit.facts import audit
from tests.audit.case import Case, Impossible
from tests.audit.mistakes import MISTAKES
from tests.audit.sound import HEALTHY

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the cases read /proc and start forked workers")


@pytest.mark.parametrize("case", [case for case in MISTAKES if case.long], ids=lambda case: case.name)
def test_a_planted_mistake_is_found_and_nothing_else(case: Case) -> None:
    try:
        facts = case.make()
    except Impossible as reason:
        pytest.skip(str(reason))
    assert [finding.id for finding in audit(facts)] == [case.expect]


@pytest.mark.parametrize("case", [case for case in HEALTHY if case.long], ids=lambda case: case.name)
def test_nothing_sound_raises_an_alarm(case: Case) -> None:
    assert audit(case.make()) == []
