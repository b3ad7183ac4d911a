"""Counting verdicts, and the child processes that cases run in."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from benchmarks.cases import verdict
from measured.planted import confusion
from measured.planted.children import in_child
from measured.planted.fixes import Fix, plant
from pipefix.vocabulary.quantity import exactly


def result(truth: str, said: str, outcome: str, dominance: float = 2.0) -> dict[str, Any]:
    planted = {"workers": 0, "waits": [], "unevenness": 0.0}
    return {"name": f"{truth}-{said}", "truth": truth, "said": said, "outcome": outcome, "dominance": dominance, "planted": planted}


RESULTS = [
    result("decode", "decode", "right"),
    result("decode", "augment", "wrong"),
    result("step", "inconclusive", "inconclusive"),
    result("ipc", "ipc", "right"),
    result("storage", "decode", "drifted"),
    {"name": "x", "truth": "storage", "said": "error", "outcome": "error"},
]


def test_drifted_and_broken_cases_are_told_apart_from_verdicts() -> None:
    assert confusion.shares(RESULTS) == {"right": 0.5, "wrong": 0.25, "inconclusive": 0.25}
    assert confusion.summary(RESULTS) == (
        "4 judged: right 50.0%, confidently wrong 25.0%, inconclusive 25.0%; apart from these 1 drifted, 1 errors"
    )


def test_the_matrix_has_a_row_for_what_was_planted_and_a_column_for_what_was_said() -> None:
    rows = {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
        for line in confusion.table(RESULTS).splitlines()
    }
    columns = rows["planted"]
    assert rows["decode"][columns.index("decode")] == "1"
    assert rows["decode"][columns.index("augment")] == "1"
    assert rows["step"][columns.index("inconclusive")] == "1"
    assert rows["storage"] == ["·"] * len(columns)


def test_the_page_is_written() -> None:
    page = verdict.table({"cases": RESULTS})
    assert "right 50.0%" in page
    assert "| decode-augment | wrong | augment |" in page
    assert "for longer" not in page


@pytest.mark.parametrize(
    ("said", "outcome", "counts", "in_the_end"),
    [
        ("step", "right", "1 right, 0 confidently wrong, 0 still open", "right 75.0%, confidently wrong 25.0%, inconclusive 0.0%"),
        ("ipc", "wrong", "0 right, 1 confidently wrong, 0 still open", "right 50.0%, confidently wrong 50.0%, inconclusive 0.0%"),
        (
            "step",
            "drifted",
            "0 right, 0 confidently wrong, 1 still open",
            "right 50.0%, confidently wrong 25.0%, inconclusive 25.0%",
        ),
    ],
)
def test_what_a_longer_probe_says_is_told_beside_what_the_first_said(said: str, outcome: str, counts: str, in_the_end: str) -> None:
    again = [result("step", said, outcome) | {"name": "step-inconclusive"}]
    page = verdict.table({"cases": RESULTS, "longer_s": 60, "probed_for_longer": again})
    assert "right 50.0%, confidently wrong 25.0%, inconclusive 25.0%" in page, "the first answers stay told"
    assert f"1 left open and probed for longer: {counts}. In the end, 4 judged: {in_the_end}" in page


def waiting() -> dict[str, Any]:
    threading.Event().wait()
    return {}


def test_a_child_answers_fails_or_is_ended() -> None:
    assert in_child(lambda: {"pid": os.getpid()}, timeout=100)["pid"] != os.getpid()
    failed = in_child(lambda: {"never": 1 / 0}, timeout=100)
    assert failed["error"].startswith("ZeroDivisionError")
    assert "no answer within" in in_child(waiting, timeout=0)["error"]


class _Figure:
    def __init__(self, name: str, value: float) -> None:
        self.id = self.stage = name
        self.speedup = self.marginal_gain = exactly(value)


class _Run:
    def __init__(self, remedies: dict[str, float], gains: dict[str, float]) -> None:
        self.remedies = [_Figure(*pair) for pair in remedies.items()]
        self.stages = [_Figure(*pair) for pair in gains.items()]


@pytest.mark.parametrize(
    ("fix", "figure"),
    [
        (Fix(plant("a"), workers=2), ("remedy workers-2", 1.9)),
        (Fix(plant("a"), workers=4), ("remedy workers-4", None)),
        (Fix(plant("a"), without=("storage",)), ("marginal gain of storage", 1.1)),
        (Fix(plant("a"), without=("augment",)), ("marginal gain of augment", 1.4)),
        (Fix(plant("a"), without=("storage", "decode")), ("remedy cache-decoded", None)),
    ],
)
def test_the_figure_that_predicts_a_fix(fix: Fix, figure: tuple[str, float | None]) -> None:
    run = _Run({"workers-2": 1.9}, {"storage": 1.1, "augment": 1.4})
    name, value = fix.predicted(run)
    assert (name, value and value.value) == figure
