"""What the card proposes where nobody knows what limits: a remedy that was tried and surely gains, and no other."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pipefix.report import runfile
from pipefix.report.card import card
from pipefix.report.runfile import GainFigures, RemedyFigures
from tests.conftest import ROOT

RUN = runfile.read(ROOT / "fixtures" / "runs" / "inconclusive-partial.json")


def workers(low: float, *, measured: bool) -> RemedyFigures:
    gain = GainFigures(value=low + 0.1, low=low, high=low + 0.2, blocks=5, how="measured" if measured else "modelled")
    return RemedyFigures(
        id="workers-4", stage="ipc", why="", title="Use 4 workers instead of 2", status="proposed", speedup=gain, measured=measured,
        command="DataLoader(..., num_workers=4)",
    )  # fmt: skip


def test_a_remedy_that_surely_gained_is_told_whatever_limits() -> None:
    told = card(replace(RUN, remedies=[*RUN.remedies, workers(1.5, measured=True)]))
    assert told.kind == "inconclusive"
    assert told.next[:2] == ["Whatever limits it, this was tried beside it:", "Use 4 workers instead of 2."]
    assert told.command == "DataLoader(..., num_workers=4)"


@pytest.mark.parametrize("remedy", [workers(1.02, measured=True), workers(1.5, measured=False)])
def test_one_that_may_gain_nothing_or_was_not_tried_is_not(remedy: RemedyFigures) -> None:
    assert card(replace(RUN, remedies=[remedy])).command == "pipefix probe clips.py:ClipDataset --budget 180"
